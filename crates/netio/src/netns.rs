//! Network namespaces held by file descriptor. The kernel removes a namespace when its last descriptor is closed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::socket_option;

/// A network namespace. It exists until its last descriptor and the last process in it are gone.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Creates a namespace with nothing but a loopback interface that is down.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is missing in the user namespace, or the kernel's limit (`user.max_net_namespaces`) is reached.
    pub fn create() -> Result<Self, NetNsError> {
        // A separate thread is used, so that the caller stays in its namespace.
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| NetNsError::Create(e.into()))?;
            Self::current()
        })?
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Self, NetNsError> {
        Self::from_path("/proc/thread-self/ns/net")
    }

    /// Opens the namespace that process `process` holds by its descriptor `fd`.
    ///
    /// # Errors
    /// There is no such process or descriptor, or it belongs to another user.
    pub fn of_process(process: u32, fd: RawFd) -> Result<Self, NetNsError> {
        Self::from_path(&format!("/proc/{process}/fd/{fd}"))
    }

    /// Opens the namespace of the process `process`.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn of_pid(process: u32) -> Result<Self, NetNsError> {
        Self::from_path(&format!("/proc/{process}/ns/net"))
    }

    /// Opens the namespace that is mounted at `path`, as `ip netns` does it in `/run/netns`.
    ///
    /// # Errors
    /// There is no such file. Whether it is a network namespace shows when it is entered.
    pub fn at(path: &Path) -> Result<Self, NetNsError> {
        Self::from_path(&path.display().to_string())
    }

    /// Runs `f` on a thread that has entered the namespace. A panic of `f` continues in the caller.
    ///
    /// Sockets that `f` opens belong to the namespace permanently, wherever they are used later.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the thread cannot be started.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        in_thread(|| {
            self.enter_thread()?;
            Ok(f())
        })?
    }

    /// Moves the calling thread into the namespace permanently. Threads that it starts begin there.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is missing in the user namespace that owns this one.
    pub fn enter_thread(&self) -> Result<(), NetNsError> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(|e| NetNsError::Enter(e.into()))
    }

    /// Returns another handle on the same namespace.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, NetNsError> {
        let fd = self.fd.try_clone().map_err(NetNsError::Clone)?;
        Ok(Self { fd })
    }

    /// Sets the sysctl `path` (such as `net/ipv4/ip_forward`) of this namespace to `value`.
    ///
    /// # Errors
    /// The kernel has no such sysctl, does not accept the value, or does not allow this namespace to set it.
    pub fn write_sysctl(&self, path: &str, value: &str) -> Result<(), NetNsError> {
        self.run(|| write_sysctl_here(path, value))?
    }

    fn from_path(path: &str) -> Result<Self, NetNsError> {
        let file = File::open(path).map_err(|source| NetNsError::Open {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { fd: file.into() })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Errors of network namespaces.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    /// The namespace could not be created.
    #[error("cannot make a network namespace: {0}")]
    Create(#[source] io::Error),
    /// The namespace could not be opened.
    #[error("cannot open the network namespace {path}: {source}")]
    Open {
        /// Path of the namespace.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error("cannot enter a network namespace: {0}")]
    Enter(#[source] io::Error),
    /// The descriptor could not be copied or read.
    #[error("cannot use the descriptor of a network namespace: {0}")]
    Clone(#[source] io::Error),
    /// No thread could be started to work in the namespace.
    #[error("cannot start a thread for a network namespace: {0}")]
    Thread(#[source] io::Error),
    /// A sysctl could not be set.
    #[error("cannot set the sysctl {path} to \"{value}\": {source}")]
    Sysctl {
        /// Path under `/proc/sys`.
        path: String,
        /// The refused value.
        value: String,
        /// The cause.
        source: io::Error,
    },
}

/// Returns the kernel's number for the namespace of the calling thread, which no other namespace gets until the next
/// boot (`SO_NETNS_COOKIE`, Linux 5.14; `net/core/sock.c`).
///
/// # Errors
/// There are no descriptors left.
pub(crate) fn cookie_here() -> io::Result<u64> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let cookie = socket_option::get(&socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// Returns the user who owns the namespace of the calling thread, which is the owner of the user namespace in which it
/// was created, as a number in the caller's user namespace (ioctl_ns(2)).
///
/// # Errors
/// The namespace belongs to a user namespace outside the caller's, so its owner is unknown.
pub(crate) fn owner_here() -> io::Result<u32> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
    let network = File::open("/proc/thread-self/ns/net")?;
    // SAFETY: this request takes no argument and returns a new descriptor or -1.
    let users = Errno::result(unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS) })?;
    // SAFETY: the kernel has just opened the descriptor for this call, and nothing else owns it.
    let users = unsafe { OwnedFd::from_raw_fd(users) };
    let mut owner: libc::uid_t = 0;
    // SAFETY: this request writes one uid_t, and `owner` is a valid uid_t that outlives the call.
    Errno::result(unsafe { libc::ioctl(users.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) })?;
    Ok(owner)
}

/// Sets a sysctl in the namespace of the calling thread. `/proc/sys/net` shows the namespace of the thread that opens
/// the file.
pub(crate) fn write_sysctl_here(path: &str, value: &str) -> Result<(), NetNsError> {
    OpenOptions::new()
        .write(true)
        .open(format!("/proc/sys/{path}"))
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|source| NetNsError::Sysctl {
            path: path.to_owned(),
            value: value.to_owned(),
            source,
        })
}

/// Runs `f` on a separate thread, which inherits the caller's namespaces. A panic continues in the caller.
pub(crate) fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .spawn_scoped(scope, f)
            .map_err(NetNsError::Thread)?;
        worker
            .join()
            .map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}
