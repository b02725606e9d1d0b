//! The system calls that a command may make, by purpose (seccomp). Any other call kills the process.
//!
//! A call that is allowed by its number alone costs nothing: since Linux 5.11 the kernel caches the numbers that a
//! filter always allows (kernel/seccomp.c, `seccomp_cache_prepare`).

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, apply_filter_all_threads,
};

/// The allowed system calls of one command.
pub type AllowedCalls = &'static [CallPurpose];

/// A purpose for which a command makes system calls.
#[derive(Debug)]
pub struct CallPurpose {
    /// The purpose in a few words.
    pub name: &'static str,
    /// The system calls for this purpose.
    pub calls: &'static [SystemCall],
}

/// A system call that may be made.
#[derive(Debug)]
pub struct SystemCall {
    /// Name of the libc constant, which starts with "SYS_".
    constant: &'static str,
    number: libc::c_long,
    arguments: ArgumentRule,
}

/// The arguments with which a system call may be made; they are numbered from 0.
#[derive(Clone, Copy, Debug)]
enum ArgumentRule {
    /// Any arguments are allowed.
    Any,
    /// The argument must be one of the values in these lists; its low 32 bits are compared.
    OneOf(u8, &'static [&'static [u64]]),
    /// All these bits must be set in the argument.
    With(u8, u64),
    /// None of these bits may be set in the argument.
    Without(u8, u64),
}

/// The threads to which a filter applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread, and threads that it starts afterwards.
    Calling,
    /// All threads of the process.
    All,
}

/// The reason why a filter could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The kernel has no seccomp, or it is forbidden for this process.
    #[error("the kernel refuses: {0}")]
    Refused(#[source] seccompiler::Error),
    /// Filters exist only for some processors.
    #[error("there are no filters for this processor: {0}")]
    Processor(#[source] seccompiler::BackendError),
}

/// Lists system calls by libc's constants, optionally with a restriction of their arguments in parentheses.
macro_rules! calls {
    ($($call:ident $(($arguments:expr))?),* $(,)?) => {
        &[$(SystemCall {
            constant: stringify!($call),
            number: libc::$call,
            arguments: calls!(@ $($arguments)?),
        }),*]
    };
    (@) => { ArgumentRule::Any };
    (@ $arguments:expr) => { $arguments };
}

/// The calls of `serve` after its ports are bound, and of the far end of a test bed.
pub const FAR_END: AllowedCalls = &far_end(CallPurpose {
    name: "what is queued, whether it is a terminal, and not to block",
    calls: calls![SYS_ioctl(ArgumentRule::OneOf(1, &[DESCRIPTOR_REQUESTS]))],
});

/// The calls of `serve --tui` after its ports are bound.
pub const FAR_END_ON_TERMINAL: AllowedCalls = &far_end(CallPurpose {
    name: "the same, and restoring the terminal of `serve --tui`",
    calls: calls![SYS_ioctl(ArgumentRule::OneOf(
        1,
        &[DESCRIPTOR_REQUESTS, TERMINAL_REQUESTS]
    ))],
});

/// Returns the calls of a far end that may make these requests of its descriptors.
const fn far_end(requests: CallPurpose) -> [CallPurpose; 11] {
    [
        MEMORY,
        THREADS,
        SIGNALS,
        TIME,
        WAITING,
        FILES,
        OWN_PROCESS,
        SOCKETS,
        IP_SOCKETS,
        requests,
        OLD_X86_64_CALLS,
    ]
}

/// The calls of `emulate` while it forwards.
pub const EMULATOR: AllowedCalls = &[
    MEMORY,
    THREADS,
    SIGNALS,
    TIME,
    WAITING,
    FILES,
    OWN_PROCESS,
    SOCKETS,
    CallPurpose {
        name: "making a socket: a port, netlink, ethtool's, the service manager's",
        calls: calls![SYS_socket(ArgumentRule::OneOf(
            0,
            &[&[INET, INET6, PACKET, NETLINK, UNIX]]
        ))],
    },
    CallPurpose {
        name: "an interface's flags, offloads, MTU and address",
        calls: calls![SYS_ioctl(ArgumentRule::OneOf(
            1,
            &[DESCRIPTOR_REQUESTS, TERMINAL_REQUESTS, INTERFACE_REQUESTS]
        ))],
    },
    CallPurpose {
        name: "journals",
        calls: calls![
            SYS_mkdirat,
            SYS_unlinkat,
            SYS_renameat2,
            SYS_ftruncate,
            SYS_fsync,
            SYS_fdatasync,
        ],
    },
    CallPurpose {
        name: "processes started before",
        calls: calls![
            SYS_wait4,
            SYS_waitid,
            SYS_kill,
            SYS_pidfd_open,
            SYS_pidfd_send_signal,
        ],
    },
    OLD_X86_64_CALLS,
    OLD_X86_64_JOURNAL_CALLS,
];

const MEMORY: CallPurpose = CallPurpose {
    name: "memory that is not executed",
    calls: calls![
        SYS_brk,
        SYS_mmap(ArgumentRule::Without(2, EXEC)),
        SYS_mprotect(ArgumentRule::Without(2, EXEC)),
        SYS_mremap,
        SYS_munmap,
        SYS_madvise,
        SYS_membarrier,
    ],
};

const THREADS: CallPurpose = CallPurpose {
    name: "threads; no processes",
    calls: calls![
        // The call fails with ENOSYS, so that the C library uses clone instead. The flags of clone3 are in memory,
        // where a filter cannot read them.
        SYS_clone3,
        SYS_clone(ArgumentRule::With(0, THREAD)),
        SYS_futex,
        SYS_set_robust_list,
        SYS_rseq,
        SYS_gettid,
        SYS_sched_yield,
        SYS_sched_getaffinity,
        SYS_sched_getattr,
        SYS_sched_setattr,
        // The kernel refuses it without a privilege or a limit that allows it (sched(7)).
        SYS_sched_setscheduler,
        SYS_prctl(ArgumentRule::OneOf(
            0,
            &[&[SET_NAME, SET_TIMER_SLACK, SET_VMA]]
        )),
        SYS_exit,
        SYS_exit_group,
    ],
};

const SIGNALS: CallPurpose = CallPurpose {
    name: "signals to itself",
    calls: calls![
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigreturn,
        SYS_sigaltstack,
        SYS_restart_syscall,
        // abort(3) uses it to end the process after a panic during a panic. Without capabilities, processes of other
        // users cannot be reached.
        SYS_tgkill,
    ],
};

const TIME: CallPurpose = CallPurpose {
    name: "time, and how well it is synchronised",
    calls: calls![
        SYS_clock_gettime,
        SYS_clock_getres,
        SYS_clock_nanosleep,
        SYS_nanosleep,
        SYS_gettimeofday,
        // Setting the clock requires CAP_SYS_TIME.
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_getrusage,
    ],
};

const WAITING: CallPurpose = CallPurpose {
    name: "waiting for input",
    calls: calls![
        SYS_ppoll,
        SYS_pselect6,
        SYS_epoll_create1,
        SYS_epoll_ctl,
        SYS_epoll_pwait,
        SYS_epoll_pwait2,
        SYS_eventfd2,
    ],
};

const FILES: CallPurpose = CallPurpose {
    name: "files: Landlock says which",
    calls: calls![
        SYS_openat,
        SYS_read,
        SYS_readv,
        SYS_pread64,
        SYS_write,
        SYS_writev,
        SYS_pwrite64,
        SYS_lseek,
        SYS_close,
        SYS_fstat,
        SYS_newfstatat,
        SYS_statx,
        SYS_faccessat,
        SYS_faccessat2,
        SYS_readlinkat,
        SYS_getdents64,
        SYS_getcwd,
        SYS_fcntl,
        SYS_dup,
    ],
};

const OWN_PROCESS: CallPurpose = CallPurpose {
    name: "what it is",
    calls: calls![
        SYS_getpid,
        SYS_getppid,
        SYS_getuid,
        SYS_geteuid,
        SYS_getgid,
        SYS_getegid,
        SYS_capget,
        SYS_prlimit64,
        SYS_getcpu,
        SYS_sysinfo,
        SYS_uname,
        SYS_getrandom,
    ],
};

const SOCKETS: CallPurpose = CallPurpose {
    name: "sockets",
    calls: calls![
        SYS_bind,
        SYS_listen,
        SYS_accept,
        SYS_accept4,
        SYS_connect,
        SYS_getsockname,
        SYS_getpeername,
        SYS_getsockopt,
        SYS_setsockopt,
        SYS_sendto,
        SYS_sendmsg,
        SYS_sendmmsg,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_recvmmsg,
        SYS_shutdown,
    ],
};

const IP_SOCKETS: CallPurpose = CallPurpose {
    name: "making a socket of IP",
    calls: calls![SYS_socket(ArgumentRule::OneOf(0, &[&[INET, INET6]]))],
};

/// Older forms of the calls above, which newer processor architectures never had.
const OLD_X86_64_CALLS: CallPurpose = CallPurpose {
    name: "on x86-64, older forms of the same",
    #[cfg(not(target_arch = "x86_64"))]
    calls: &[],
    #[cfg(target_arch = "x86_64")]
    calls: calls![
        SYS_poll,
        SYS_select,
        SYS_epoll_create,
        SYS_epoll_wait,
        SYS_eventfd,
        SYS_open,
        SYS_stat,
        SYS_lstat,
        SYS_access,
        SYS_readlink,
        SYS_dup2,
        SYS_time,
        SYS_arch_prctl,
    ],
};

const OLD_X86_64_JOURNAL_CALLS: CallPurpose = CallPurpose {
    name: "on x86-64, older forms for journals",
    #[cfg(not(target_arch = "x86_64"))]
    calls: &[],
    #[cfg(target_arch = "x86_64")]
    calls: calls![SYS_mkdir, SYS_unlink, SYS_rename],
};

const DESCRIPTOR_REQUESTS: &[u64] = &[
    request(libc::FIONBIO),
    request(libc::FIONREAD),
    request(libc::TIOCOUTQ),
    request(libc::TIOCGWINSZ),
    request(libc::TCGETS),
    request(libc::TCGETS2),
];

/// Requests that restore the terminal after `--tui`.
const TERMINAL_REQUESTS: &[u64] = &[request(libc::TCSETS), request(libc::TCSETS2)];

/// Returns the number of a request, which has 32 bits. It is signed with musl.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a request has 32 bits in the kernel"
)]
const fn request(number: libc::Ioctl) -> u64 {
    number as u32 as u64
}

const INTERFACE_REQUESTS: &[u64] = &[
    libc::SIOCETHTOOL,
    libc::SIOCGIFFLAGS,
    libc::SIOCSIFFLAGS,
    libc::SIOCGIFMTU,
    libc::SIOCSIFMTU,
    libc::SIOCGIFINDEX,
    libc::SIOCGIFNAME,
    libc::SIOCGIFHWADDR,
];

const INET: u64 = libc::AF_INET as u64;
const INET6: u64 = libc::AF_INET6 as u64;
const PACKET: u64 = libc::AF_PACKET as u64;
const NETLINK: u64 = libc::AF_NETLINK as u64;
const UNIX: u64 = libc::AF_UNIX as u64;
const EXEC: u64 = libc::PROT_EXEC as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;
const SET_NAME: u64 = libc::PR_SET_NAME as u64;
const SET_TIMER_SLACK: u64 = libc::PR_SET_TIMERSLACK as u64;
/// The C library names its memory by this request.
const SET_VMA: u64 = libc::PR_SET_VMA as u64;

impl SystemCall {
    /// Returns the name as in the manual.
    pub fn name(&self) -> &'static str {
        self.constant.trim_start_matches("SYS_")
    }

    /// Returns the rules of which at least one must match; empty if any arguments are allowed.
    fn rules(&self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        use SeccompCmpArgLen::{Dword, Qword};
        let one = |argument, length, operator, value| {
            SeccompRule::new(vec![SeccompCondition::new(
                argument, length, operator, value,
            )?])
        };
        match self.arguments {
            ArgumentRule::Any => Ok(Vec::new()),
            ArgumentRule::OneOf(argument, lists) => {
                let of = |value: &u64| one(argument, Dword, SeccompCmpOp::Eq, *value);
                lists.iter().copied().flatten().map(of).collect()
            }
            ArgumentRule::With(argument, bits) => {
                let masked = SeccompCmpOp::MaskedEq(bits);
                Ok(vec![one(argument, Qword, masked, bits)?])
            }
            ArgumentRule::Without(argument, bits) => {
                let masked = SeccompCmpOp::MaskedEq(bits);
                Ok(vec![one(argument, Qword, masked, 0)?])
            }
        }
    }
}

/// Restricts `threads` to the system calls `allowed` permanently, and sets no_new_privs. Any other call kills the
/// process with SIGSYS.
///
/// # Errors
/// The kernel has no seccomp, or there is no filter for this processor.
pub fn install(allowed: AllowedCalls, threads: Threads) -> Result<(), SeccompError> {
    // Both filters are built before either is installed.
    let filters = [without_clone3(), allow_list(allowed)];
    for filter in filters {
        let filter = filter.map_err(SeccompError::Processor)?;
        let applied = match threads {
            Threads::Calling => apply_filter(&filter),
            Threads::All => apply_filter_all_threads(&filter),
        };
        applied.map_err(SeccompError::Refused)?;
    }
    Ok(())
}

/// Returns whether this kernel accepts filters and can kill a process by one, as it reports itself (seccomp(2),
/// `SECCOMP_GET_ACTION_AVAIL`).
pub fn is_available() -> bool {
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads the one number to which the pointer leads, which outlives the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    answer == 0 && processor().is_ok()
}

fn processor() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

fn allow_list(allowed: AllowedCalls) -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = allowed.iter().flat_map(|purpose| purpose.calls);
    let rules: Result<BTreeMap<_, _>, _> =
        calls.map(|call| Ok((call.number, call.rules()?))).collect();
    let (otherwise, listed) = (SeccompAction::KillProcess, SeccompAction::Allow);
    SeccompFilter::new(rules?, otherwise, listed, processor()?)?.try_into()
}

fn without_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let listed = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, listed, processor()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_calls_are_documented() {
        let page = include_str!("../../../../docs/hardening.md");
        let all = FAR_END.iter().chain(FAR_END_ON_TERMINAL).chain(EMULATOR);
        for purpose in all {
            assert!(page.contains(purpose.name), "{}", purpose.name);
            for call in purpose.calls {
                let name = format!("`{}`", call.name());
                assert!(page.contains(&name), "{name} ({})", purpose.name);
            }
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        for list in [FAR_END, FAR_END_ON_TERMINAL, EMULATOR] {
            let mut names: Vec<_> = list
                .iter()
                .flat_map(|purpose| purpose.calls)
                .map(SystemCall::name)
                .collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
