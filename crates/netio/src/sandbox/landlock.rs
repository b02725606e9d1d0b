//! Restricts which files can still be opened, by Landlock (landlock(7)).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest version of Landlock whose rights are requested. On an older kernel, the rights that it supports are
/// requested.
const ABI: ABI = ABI::V6;

/// The files and other objects that Landlock leaves accessible. Nothing may be executed, and no TCP port may be bound
/// or connected to.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    /// Existing directories below which files may be read.
    pub read: &'a [&'a str],
    /// Directories below which files may be read, written, created and removed.
    pub write: &'a [PathBuf],
    /// Whether processes outside may be signalled, and their abstract Unix sockets may be connected to.
    pub outside: bool,
}

/// Returns the version of Landlock in this kernel, if it is available and enabled.
pub fn version() -> Option<i32> {
    // SAFETY: without attributes, the call returns the version and accesses no memory (landlock_create_ruleset(2)).
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION_FLAG,
        )
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// `LANDLOCK_CREATE_RULESET_VERSION` (include/uapi/linux/landlock.h).
const VERSION_FLAG: u32 = 1;

/// Restricts the calling thread, and threads that it starts afterwards, to `reach`, and sets no_new_privs. Returns
/// whether the kernel has Landlock.
///
/// # Errors
/// The kernel has Landlock but refuses.
pub(super) fn restrict(reach: Reach<'_>) -> Result<bool, RulesetError> {
    let all = AccessFs::from_all(ABI) & !AccessFs::Execute;
    let read = AccessFs::from_read(ABI) & all;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI))?
        .handle_access(AccessNet::from_all(ABI))?;
    if !reach.outside {
        rules = rules.scope(Scope::from_all(ABI))?;
    }
    let below = |path: &Path, access| Some(PathBeneath::new(PathFd::new(path).ok()?, access));
    let read = reach.read.iter().map(|path| below(path.as_ref(), read));
    let write = reach.write.iter().map(|path| below(path, all));
    let allowed = read.chain(write).flatten().map(Ok::<_, RulesetError>);
    let status = rules.create()?.add_rules(allowed)?.restrict_self()?;
    Ok(matches!(status.landlock, LandlockStatus::Available { .. }))
}
