//! Least privilege: what a command gives up permanently before it handles input from strangers.
//!
//! There are four layers, each of which alone would stop most attacks: capabilities ([`capabilities`]), the user ([`OtherUser`]),
//! files by Landlock ([`landlock`]), and system calls by seccomp ([`seccomp`]). The last two are used if the kernel has them; the
//! first two are verified (`status`).

pub mod capabilities;
pub mod landlock;
pub mod seccomp;
mod status;
mod user;

use std::fmt;
use std::io;

pub use caps::Capability;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub use self::landlock::Reach;
pub use self::seccomp::Threads;
pub use self::user::OtherUser;

/// What a far end reads while it serves: the boot's number, the lists of congestion controls, its own state.
const OF_FAR_END: Reach<'_> = Reach {
    read: &["/proc/sys", "/proc/self"],
    write: &[],
    outside: false,
};

/// What is in force beside the capabilities, which are as stated, or there is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSandbox {
    /// Why system calls are not filtered, if so.
    pub no_seccomp: Option<String>,
    /// Whether files are out of reach.
    pub landlock: bool,
}

/// Why privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The user cannot be another one.
    #[error("cannot change to the user `{name}`: {source}")]
    User {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Capabilities, or no_new_privs.
    #[error("cannot give up privileges: {0}")]
    Privileges(#[source] io::Error),
    /// Landlock is there and refuses.
    #[error("cannot restrict file access with Landlock: {0}")]
    Landlock(#[source] ::landlock::RulesetError),
    /// What was given up is still there.
    #[error("privileges were given up, but thread {thread} still has {left}")]
    StillThere {
        /// The thread's number.
        thread: String,
        /// What it has, as /proc/PID/status says it.
        left: String,
    },
}

impl SandboxError {
    fn user(name: &str, source: io::Error) -> Self {
        Self::User {
            name: name.to_owned(),
            source,
        }
    }
}

/// Gives up all capabilities but `kept`, and sets no_new_privs, in the calling thread and those that it starts from now on.
///
/// # Errors
/// The kernel refuses; nothing is known to make it.
pub fn give_up_privileges(kept: &[Capability]) -> Result<(), SandboxError> {
    let failed = |error: caps::errors::CapsError| SandboxError::Privileges(io::Error::other(error));
    capabilities::keep(kept).map_err(failed)?;
    set_no_new_privs().map_err(|errno| SandboxError::Privileges(errno.into()))
}

/// As [`give_up_privileges`], and leaves only `reach` of the files; whether the kernel has Landlock.
///
/// # Errors
/// The kernel refuses what it has.
pub fn give_up(kept: &[Capability], reach: Reach<'_>) -> Result<bool, SandboxError> {
    give_up_privileges(kept)?;
    landlock::restrict(reach).map_err(SandboxError::Landlock)
}

/// Lets this process run before ordinary threads without CAP_SYS_NICE, by `RLIMIT_RTPRIO` (sched(7)); whether the limit could be
/// raised, which takes CAP_SYS_RESOURCE.
pub fn allow_real_time() -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_RTPRIO) else {
        return false;
    };
    soft >= 1 || setrlimit(Resource::RLIMIT_RTPRIO, 1, hard.max(1)).is_ok()
}

/// Confines a far end whose ports are bound and that has started no thread yet: no capability but `kept`, no file, and the calls of
/// [`seccomp::FAR_END`]. All of it is read back, of `threads`.
///
/// # Errors
/// Something could not be given up, or is still there.
pub fn confine_far_end(
    kept: &[Capability],
    threads: Threads,
) -> Result<ActiveSandbox, SandboxError> {
    let landlock = give_up(kept, OF_FAR_END)?;
    let filter = seccomp::install(seccomp::FAR_END, threads);
    let no_seccomp = filter.err().map(|error| error.to_string());
    status::check(kept, no_seccomp.is_none(), threads)?;
    Ok(ActiveSandbox {
        no_seccomp,
        landlock,
    })
}

/// Filters the calls of an emulator that forwards, in all its threads, which have given up privileges before they were started; all
/// of it is read back.
///
/// # Errors
/// As [`confine_far_end`].
pub fn confine_emulator(
    kept: &[Capability],
    landlock: bool,
) -> Result<ActiveSandbox, SandboxError> {
    let filter = seccomp::install(seccomp::EMULATOR, Threads::All);
    let no_seccomp = filter.err().map(|error| error.to_string());
    status::check(kept, no_seccomp.is_none(), Threads::All)?;
    Ok(ActiveSandbox {
        no_seccomp,
        landlock,
    })
}

impl fmt::Display for ActiveSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.no_seccomp {
            None => f.write_str("seccomp, ")?,
            Some(why) => write!(f, "no seccomp ({why}), ")?,
        }
        f.write_str(if self.landlock {
            "Landlock"
        } else {
            "no Landlock (this kernel does not have it)"
        })
    }
}
