//! A user namespace in which the caller is root, for users without privileges.

use std::ffi::CStr;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, getegid, geteuid, pipe, write};
use rtnetlink::LinkVeth;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;

use crate::netlink;

/// The way in which this process can create namespaces and interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process has CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN.
    Root,
    /// The process can use a user namespace: [`enter`] works.
    UserNamespace,
    /// The process cannot create them.
    None {
        /// The reason why there is no user namespace, either.
        why: String,
    },
}

impl Privilege {
    /// Determines the privilege. Whether a user namespace works is tried in a child process.
    pub fn detect() -> Self {
        if holds_network_capabilities() && may_enter_namespaces() {
            return Self::Root;
        }
        match works() {
            Ok(()) => Self::UserNamespace,
            Err(error) => Self::None {
                why: error.to_string(),
            },
        }
    }
}

/// Returns whether this process has CAP_NET_ADMIN and CAP_NET_RAW, which are required for existing interfaces.
pub fn holds_network_capabilities() -> bool {
    holds(Capability::CAP_NET_ADMIN) && holds(Capability::CAP_NET_RAW)
}

/// Returns whether this process has CAP_SYS_ADMIN, which is required to enter the network namespace of another process.
pub fn may_enter_namespaces() -> bool {
    holds(Capability::CAP_SYS_ADMIN)
}

/// Moves the process into a user namespace in which it is root, and into an empty network namespace owned by it.
///
/// Call it before any thread is started.
///
/// # Errors
/// The kernel or its policy does not allow it, or the process has threads.
pub fn enter() -> Result<(), UserNsError> {
    unshare_and_map(&IdMaps::to_root()).map_err(UserNsError::new)
}

/// Moves the process into a user namespace in which it keeps its user and has all capabilities, and into an empty network
/// namespace owned by it. The programs that it starts have the capabilities as well.
///
/// Call it before any thread is started.
///
/// # Errors
/// The same as for [`enter`].
pub fn enter_as_caller() -> Result<(), UserNsError> {
    unshare_and_map(&IdMaps::to_itself()).map_err(UserNsError::new)?;
    // A program that a user other than 0 starts has the ambient capabilities (capabilities(7)).
    let hand_on = || {
        let all = caps::read(None, CapSet::Permitted)?;
        caps::set(None, CapSet::Inheritable, &all)?;
        caps::set(None, CapSet::Ambient, &all)
    };
    hand_on().map_err(|_| UserNsError::new((Step::HandOn, Errno::EPERM)))?;
    IS_AS_CALLER.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns true after [`enter_as_caller`].
pub(crate) fn is_as_caller() -> bool {
    IS_AS_CALLER.load(Ordering::Relaxed)
}

/// Takes from the programs that this process starts from now on all capabilities of [`enter_as_caller`] except those over
/// the network: CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE. It has no effect on programs of user 0.
pub(crate) fn hand_on_network_only() -> Result<(), CapsError> {
    let mut kept = caps::read(None, CapSet::Ambient)?;
    kept.retain(|capability| HANDED_ON.contains(capability));
    // An ambient capability must be inheritable, so the kernel lowers both sets (capabilities(7)).
    caps::set(None, CapSet::Inheritable, &kept)
}

/// True if this process has entered a user namespace in which it keeps its user. It never leaves that.
static IS_AS_CALLER: AtomicBool = AtomicBool::new(false);

/// The capabilities of commands, which ping, tcpdump and congestion controls need.
const HANDED_ON: [Capability; 3] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_NET_BIND_SERVICE,
];

/// Checks whether [`enter`] would work and be useful: a child process enters, and creates a pair of interfaces.
///
/// Some systems let anyone enter but grant no capabilities then, whatever their sysctls say.
///
/// # Errors
/// The step that failed.
pub fn works() -> Result<(), UserNsError> {
    let pipe_failed = |errno| UserNsError::new((Step::Fork, errno));
    let maps = IdMaps::to_root();
    let request = add_veth_request();
    let (from_child, to_parent) = pipe().map_err(pipe_failed)?;
    // SAFETY: the child only makes system calls and allocates nothing, so locks that other threads held at the fork
    // cannot block it. It ends with _exit.
    match unsafe { fork() }.map_err(pipe_failed)? {
        ForkResult::Child => {
            let outcome = unshare_and_map(&maps).and_then(|()| add_veth(&request));
            if let Err((step, errno)) = outcome {
                let [low, high, ..] = (errno as i32).to_ne_bytes();
                let _ = write(&to_parent, &[step as u8, low, high]);
            }
            // SAFETY: `_exit` ends the child immediately, without running handlers that the parent registered for its
            // exit.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(to_parent);
            let outcome = read_outcome(from_child);
            waitpid(child, None).map_err(pipe_failed)?;
            outcome
        }
    }
}

/// Error for a user namespace that is not available or not useful.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}{advice}")]
pub struct UserNsError {
    step: Step,
    source: io::Error,
    advice: &'static str,
}

impl UserNsError {
    fn new((step, errno): (Step, Errno)) -> Self {
        Self {
            step,
            source: errno.into(),
            advice: advice(step, errno),
        }
    }
}

fn holds(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[repr(u8)]
enum Step {
    #[error("cannot start a child to try a user namespace")]
    Fork,
    #[error("cannot make a user namespace")]
    Unshare,
    #[error("cannot become root in a user namespace")]
    Map,
    #[error("cannot make a veth pair in a user namespace")]
    Veth,
    #[error("cannot hand on the capabilities of a user namespace")]
    HandOn,
}

/// Returns advice on the most likely obstacle.
fn advice(step: Step, errno: Errno) -> &'static str {
    let sysctl = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    let denied = matches!(errno, Errno::EPERM | Errno::EACCES);
    if matches!(step, Step::Veth) && errno == Errno::EOPNOTSUPP {
        " (the kernel needs CONFIG_VETH)"
    } else if matches!(step, Step::Unshare) && errno == Errno::EINVAL {
        " (the kernel needs CONFIG_USER_NS, and the process may have no second thread)"
    } else if sysctl("/proc/sys/user/max_user_namespaces", "0") {
        " (sysctl user.max_user_namespaces is 0: as root, run `sysctl -w user.max_user_namespaces=15000`)"
    } else if matches!(step, Step::Unshare) && errno == Errno::ENOSPC {
        " (the limit of user namespaces or of network namespaces is reached, or user namespaces are nested too deep: as \
         root, raise sysctl user.max_user_namespaces and user.max_net_namespaces)"
    } else if denied && sysctl("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        " (sysctl kernel.unprivileged_userns_clone is 0: as root, run `sysctl -w kernel.unprivileged_userns_clone=1`)"
    } else if denied
        && sysctl(
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
        )
    {
        " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1, as on Ubuntu 24.04: as root, run \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give farwire an AppArmor profile with `userns,`)"
    } else if denied && is_filtered() {
        " (a seccomp filter forbids it, as Docker's default profile does: start the container with \
         `--security-opt seccomp=unconfined`, or as its root with `--cap-add SYS_ADMIN --cap-add NET_ADMIN`)"
    } else if denied {
        " (a container's or the system's security policy forbids it)"
    } else {
        ""
    }
}

/// Returns true if a seccomp filter is in force for this process.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    // 2 is SECCOMP_MODE_FILTER (include/uapi/linux/seccomp.h).
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// Returns the number outside a user namespace for the user or group `id` inside it; `None` if the map, a file of /proc
/// (user_namespaces(7)), has none.
pub(crate) fn outside(map: &str, id: u32) -> Option<u32> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut number = || numbers.next()?.ok();
        Some((number()?, number()?, number()?))
    });
    let mut mapped = ranges.filter_map(|(inside, outside, count)| {
        let offset = id.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    });
    mapped.next()
}

/// The lines of the maps of a user namespace.
struct IdMaps {
    uid: String,
    gid: String,
}

impl IdMaps {
    /// The caller is root inside.
    fn to_root() -> Self {
        Self {
            uid: format!("0 {} 1", geteuid()),
            gid: format!("0 {} 1", getegid()),
        }
    }

    /// The caller keeps its user and group.
    fn to_itself() -> Self {
        let (uid, gid) = (geteuid(), getegid());
        Self {
            uid: format!("{uid} {uid} 1"),
            gid: format!("{gid} {gid} 1"),
        }
    }
}

/// Enters the namespaces and writes the maps. It also runs in a child that was forked from a process with threads, so
/// it only makes system calls.
fn unshare_and_map(maps: &IdMaps) -> Result<(), (Step, Errno)> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| (Step::Unshare, errno))?;
    let files = [
        // Otherwise an unprivileged process may not write gid_map (user_namespaces(7)).
        (c"/proc/self/setgroups", "deny"),
        (c"/proc/self/uid_map", &maps.uid),
        (c"/proc/self/gid_map", &maps.gid),
    ];
    for (path, text) in files {
        write_whole(path, text).map_err(|errno| (Step::Map, errno))?;
    }
    Ok(())
}

fn write_whole(path: &CStr, text: &str) -> Result<(), Errno> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(&file, text.as_bytes()).map(drop)
}

/// Returns the netlink message that creates a pair of interfaces.
fn add_veth_request() -> Vec<u8> {
    let link = LinkVeth::new("a", "b").build();
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    netlink::request(RouteNetlinkMessage::NewLink(link), flags)
}

/// Creates the pair of interfaces. It only makes system calls, like [`unshare_and_map`].
fn add_veth(request: &[u8]) -> Result<(), (Step, Errno)> {
    let failed = |errno| (Step::Veth, errno);
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )
    .map_err(failed)?;
    send(socket.as_raw_fd(), request, MsgFlags::empty()).map_err(failed)?;
    let mut answer = [0; 256];
    recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(failed)?;
    // An answer is a netlink header of 16 bytes and a negative errno, or 0.
    let [.., a, b, c, d] = *answer.first_chunk::<20>().expect("an answer is longer");
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        error => Err(failed(Errno::from_raw(error.wrapping_neg()))),
    }
}

/// Reads the result of the child: nothing, or the step that failed and its errno.
fn read_outcome(from_child: OwnedFd) -> Result<(), UserNsError> {
    let mut failure = Vec::new();
    let read = std::fs::File::from(from_child).read_to_end(&mut failure);
    let step = |number| {
        [Step::Fork, Step::Unshare, Step::Map, Step::Veth]
            .into_iter()
            .find(|step| *step as u8 == number)
            .unwrap_or(Step::Fork)
    };
    match (read, failure.as_slice()) {
        (Ok(_), []) => Ok(()),
        (Ok(_), &[number, low, high]) => {
            let errno = i16::from_ne_bytes([low, high]);
            let errno = Errno::from_raw(errno.into());
            Err(UserNsError::new((step(number), errno)))
        }
        _ => Err(UserNsError::new((Step::Fork, Errno::EIO))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_namespaces_that_is_reached_is_named_with_its_sysctl() {
        // unshare(2) fails in this way beyond a limit. A machine on which the limit is 0 is told that.
        let said = advice(Step::Unshare, Errno::ENOSPC);
        assert!(said.contains("user.max_user_namespaces"));
    }

    #[test]
    fn a_user_inside_maps_to_the_user_outside() {
        let whole = "         0          0 4294967295\n";
        let container = "0 1000 1\n1 100000 65536\n";
        for (map, inside, right) in [
            (whole, 1000, Some(1000)),
            (whole, 65534, Some(65534)),
            ("         0       1000          1\n", 0, Some(1000)),
            (container, 7, Some(100_006)),
            (container, 65534, Some(165_533)),
            (container, 65537, None),
            ("0 1000 1\n", 7, None),
            ("", 0, None),
        ] {
            assert_eq!(outside(map, inside), right, "{map}");
        }
    }
}
