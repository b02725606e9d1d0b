//! A user namespace in which the caller is root, for users without privileges.

use std::ffi::CStr;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

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

/// How this process can come by namespaces and interfaces of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It holds CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN.
    Root,
    /// In a user namespace: [`enter`] works.
    UserNamespace,
    /// Not at all.
    None {
        /// Why there is no user namespace either.
        why: String,
    },
}

impl Privilege {
    /// Finds out; a user namespace is really tried, in a child.
    pub fn detect() -> Self {
        if holds_network_capabilities() && holds(Capability::CAP_SYS_ADMIN) {
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

/// Whether this process holds CAP_NET_ADMIN and CAP_NET_RAW, which interfaces that exist take.
pub fn holds_network_capabilities() -> bool {
    holds(Capability::CAP_NET_ADMIN) && holds(Capability::CAP_NET_RAW)
}

/// Puts the process into a user namespace in which it is root, and into an empty network namespace of that.
///
/// Call it before any thread is started.
///
/// # Errors
/// When the kernel or its policy allows none, or the process has threads.
pub fn enter() -> Result<(), UserNsError> {
    unshare_and_map(&Maps::of_caller()).map_err(UserNsError::new)
}

/// Tells whether [`enter`] would work and gain anything: a child enters, and makes a pair of interfaces.
///
/// Some systems let anyone enter and then grant nothing, whatever their sysctls say.
///
/// # Errors
/// When it would not, with the step that failed.
pub fn works() -> Result<(), UserNsError> {
    let pipe_failed = |errno| UserNsError::new((Step::Fork, errno));
    let maps = Maps::of_caller();
    let request = add_veth_request();
    let (from_child, to_parent) = pipe().map_err(pipe_failed)?;
    // SAFETY: the child only makes system calls and allocates nothing, so that locks which other
    // threads held at the fork cannot stop it; it ends with _exit.
    match unsafe { fork() }.map_err(pipe_failed)? {
        ForkResult::Child => {
            let outcome = unshare_and_map(&maps).and_then(|()| add_veth(&request));
            if let Err((step, errno)) = outcome {
                let [low, high, ..] = (errno as i32).to_ne_bytes();
                let _ = write(&to_parent, &[step as u8, low, high]);
            }
            // SAFETY: ends the child at once, without running what the parent registered for its exit.
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

/// A user namespace that could not be had, or gives nothing.
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
}

/// What most likely stands in the way.
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
        " (sysctl user.max_user_namespaces is 0)"
    } else if denied && sysctl("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        " (sysctl kernel.unprivileged_userns_clone is 0)"
    } else if denied
        && sysctl(
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
        )
    {
        " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
    } else if denied {
        " (a container's or the system's security policy forbids it)"
    } else {
        ""
    }
}

/// The number outside a user namespace of the user or group `id` inside it; nothing if the map, a file of /proc (user_namespaces(7)),
/// has none.
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

/// The lines that make the caller root.
struct Maps {
    uid: String,
    gid: String,
}

impl Maps {
    fn of_caller() -> Self {
        Self {
            uid: format!("0 {} 1", geteuid()),
            gid: format!("0 {} 1", getegid()),
        }
    }
}

/// Makes system calls only: it also runs in a child that was forked off a process with threads.
fn unshare_and_map(maps: &Maps) -> Result<(), (Step, Errno)> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| (Step::Unshare, errno))?;
    let files = [
        // Without this, gid_map takes nothing from an unprivileged process (user_namespaces(7)).
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

/// The netlink message that makes a pair of interfaces, ready to send.
fn add_veth_request() -> Vec<u8> {
    let link = LinkVeth::new("a", "b").build();
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    netlink::request(RouteNetlinkMessage::NewLink(link), flags)
}

/// Makes system calls only, like [`unshare_and_map`].
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
    // An answer is a 16-byte netlink header and an errno below zero, or 0.
    let [.., a, b, c, d] = *answer.first_chunk::<20>().expect("an answer is longer");
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        error => Err(failed(Errno::from_raw(error.wrapping_neg()))),
    }
}

/// Reads the child's verdict: nothing, or the step that failed and its errno.
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
    fn a_user_inside_is_the_one_outside_that_the_map_says() {
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
