//! Runs a program without any privilege, or in an environment that grants none. The test program itself drops its
//! privileges and executes that program.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use caps::{CapSet, Capability};
use netio::userns::{self, Privilege};
use nix::unistd::geteuid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::process;

/// The first argument of a test program that drops all capabilities except those that follow, and then executes the
/// program after them.
const POWERLESS: &str = "__powerless";
/// The same in a user namespace that does not allow another one.
const CONFINED: &str = "__confined";
/// The same behind a filter that forbids every namespace.
const FILTERED: &str = "__filtered";

/// The number of an ordinary user, whom the system need not know.
const ORDINARY: u32 = 1001;

/// Returns the program under test with these capabilities only.
pub fn farwire_with(kept: &[Capability]) -> Result<Command> {
    diverted(POWERLESS, kept, process::program())
}

/// Returns the program under test as a user without privileges runs it, who may create namespaces.
pub fn farwire_unprivileged() -> Result<Command> {
    plain_user(process::program())
}

/// Returns a program as a user without privileges runs it, who may create namespaces.
pub fn plain_user(program: impl AsRef<OsStr>) -> Result<Command> {
    match Privilege::detect() {
        // Without this capability, user 0 cannot be user 0 of a user namespace (Linux 5.12, user_namespaces(7)).
        Privilege::Root => diverted(POWERLESS, &[Capability::CAP_SETFCAP], program),
        Privilege::UserNamespace | Privilege::None { .. } => Ok(Command::new(program)),
    }
}

/// Returns the program under test as a user other than 0 runs it: the user of this program or, if that is root, another
/// one.
pub fn farwire_of_ordinary_user() -> Command {
    let mut command = process::farwire();
    if geteuid().is_root() {
        // Root without further groups gives up the own ones, too.
        command.uid(ORDINARY).gid(ORDINARY);
    }
    command
}

/// Returns the program under test without any capability, in an environment without user namespaces.
pub fn farwire_without_namespaces() -> Result<Command> {
    diverted(CONFINED, &[], process::program())
}

/// Returns the program under test without any capability, behind a filter that forbids namespaces, as that of Docker's
/// default profile does.
pub fn farwire_behind_filter() -> Result<Command> {
    diverted(FILTERED, &[], process::program())
}

/// Executes another program if the first argument says so. Call it at the start of the main function.
pub fn divert() {
    let mut arguments = std::env::args_os().skip(1);
    let way = arguments.next().unwrap_or_default();
    if [POWERLESS, CONFINED, FILTERED]
        .iter()
        .all(|known| way != *known)
    {
        return;
    }
    let failure = become_powerless(&way, &arguments.collect::<Vec<_>>());
    eprintln!("cannot become powerless: {failure:?}");
    std::process::exit(1);
}

fn diverted(way: &str, kept: &[Capability], program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    command.args([way, &kept.join(",")]).arg(program);
    Ok(command)
}

fn become_powerless(way: &OsStr, argv: &[OsString]) -> Result<Infallible> {
    if way == CONFINED {
        userns::enter()?;
        std::fs::write("/proc/sys/user/max_user_namespaces", "0")?;
    }
    let (kept, argv) = argv.split_first().context("capabilities")?;
    let kept: Vec<&str> = kept
        .to_str()
        .context("capabilities have plain names")?
        .split(',')
        .collect();
    // Root regains the capabilities of the bounding set at exec. Another user has none, and may not change that set.
    if geteuid().is_root() {
        for capability in caps::all() {
            if !kept.contains(&capability.to_string().as_str()) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    if way == FILTERED {
        forbid_namespaces()?;
    }
    let (program, arguments) = argv.split_first().context("a program")?;
    Err(Command::new(program).args(arguments).exec().into())
}

/// Lets every call of unshare(2) fail from now on, also those of the programs that this process executes.
fn forbid_namespaces() -> Result<()> {
    let rules = [(nix::libc::SYS_unshare, Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(nix::libc::EPERM.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}
