//! Least privilege: privileges that a command gives up permanently before it handles input from unknown peers.
//!
//! There are four layers, each of which alone would stop most attacks: capabilities ([`capabilities`]), the user
//! ([`OtherUser`]), files by Landlock ([`landlock`]), and system calls by seccomp ([`seccomp`]). The last two are used
//! if the kernel has them; the first two are verified (`status`).

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
use self::seccomp::AllowedCalls;
pub use self::seccomp::Threads;
pub use self::user::OtherUser;

/// The files that a far end reads while it serves: the id of the boot, the list of congestion controls, and its own
/// state.
const FAR_END_FILES: Reach<'_> = Reach {
    read: &["/proc/sys", "/proc/self"],
    write: &[],
    outside: false,
};

/// The layers in force besides the capabilities, which are always verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSandbox {
    /// The reason why system calls are not filtered; absent if they are.
    pub no_seccomp: Option<String>,
    /// Whether access to files is restricted.
    pub landlock: bool,
}

/// The reason why privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The process cannot continue as another user.
    #[error("cannot change to the user `{name}`: {source}")]
    User {
        /// Name of the user.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// Capabilities could not be given up, or no_new_privs could not be set.
    #[error("cannot give up privileges: {0}")]
    Privileges(#[source] io::Error),
    /// The kernel has Landlock but refuses.
    #[error("cannot restrict file access with Landlock: {0}")]
    Landlock(#[source] ::landlock::RulesetError),
    /// A privilege that was given up is still there.
    #[error("privileges were given up, but thread {thread} still has {left}")]
    StillThere {
        /// Number of the thread.
        thread: String,
        /// The privilege as in /proc/PID/status.
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

/// Gives up all capabilities except `kept`, and sets no_new_privs, in the calling thread and in threads that it starts
/// afterwards.
///
/// # Errors
/// The kernel refuses, for which no cause is known.
pub fn give_up_privileges(kept: &[Capability]) -> Result<(), SandboxError> {
    let failed = |error: caps::errors::CapsError| SandboxError::Privileges(io::Error::other(error));
    capabilities::keep(kept).map_err(failed)?;
    set_no_new_privs().map_err(|errno| SandboxError::Privileges(errno.into()))
}

/// Gives up privileges like [`give_up_privileges`], and access to all files except `reach`. Returns whether the kernel
/// has Landlock.
///
/// # Errors
/// The kernel refuses something that it supports.
pub fn give_up(kept: &[Capability], reach: Reach<'_>) -> Result<bool, SandboxError> {
    give_up_privileges(kept)?;
    landlock::restrict(reach).map_err(SandboxError::Landlock)
}

/// Allows this process to run with real-time priority without CAP_SYS_NICE, by `RLIMIT_RTPRIO` (sched(7)). Returns
/// whether the limit could be raised, which requires CAP_SYS_RESOURCE.
pub fn allow_real_time() -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_RTPRIO) else {
        return false;
    };
    soft >= 1 || setrlimit(Resource::RLIMIT_RTPRIO, 1, hard.max(1)).is_ok()
}

/// Confines a far end whose ports are bound and that has not started a thread: it keeps the capabilities `kept`, access
/// to almost no file, and the calls of [`seccomp::FAR_END`]. All of it is verified for `threads`.
///
/// # Errors
/// Something could not be given up, or is still there.
pub fn confine_far_end(
    kept: &[Capability],
    threads: Threads,
) -> Result<ActiveSandbox, SandboxError> {
    confine(kept, threads, seccomp::FAR_END)
}

/// Confines a far end like [`confine_far_end`], except that it can restore the settings of the terminal on which it
/// shows its tests.
///
/// # Errors
/// The same as for [`confine_far_end`].
pub fn confine_far_end_on_terminal(
    kept: &[Capability],
    threads: Threads,
) -> Result<ActiveSandbox, SandboxError> {
    confine(kept, threads, seccomp::FAR_END_ON_TERMINAL)
}

fn confine(
    kept: &[Capability],
    threads: Threads,
    calls: AllowedCalls,
) -> Result<ActiveSandbox, SandboxError> {
    let landlock = give_up(kept, FAR_END_FILES)?;
    let filter = seccomp::install(calls, threads);
    let no_seccomp = filter.err().map(|error| error.to_string());
    status::check(kept, no_seccomp.is_none(), threads)?;
    Ok(ActiveSandbox {
        no_seccomp,
        landlock,
    })
}

/// Filters the system calls of an emulator that forwards, in all its threads, which gave up privileges before they were
/// started. All of it is verified.
///
/// # Errors
/// The same as for [`confine_far_end`].
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
