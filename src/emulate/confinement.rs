//! The privileges that an emulator keeps while it forwards.

use std::fs::File;

use netio::private_dir::PrivateDir;
use netio::sandbox::{self, Capability, Reach};

use crate::notes::note;
use instruments::failure::{Blame, Failure};

/// For interfaces and their offloads, and for sockets on an interface that comes back.
const KEPT: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];

/// The sysctls of interfaces, one of which is put back at the end.
const SYSCTLS: &str = "/proc/sys/net/ipv6/conf";

/// A box that has given up what it does not need, and whose system calls are not filtered yet.
#[must_use]
pub(super) struct Confinement {
    kept: Vec<Capability>,
    landlock: bool,
    sysctls: Option<File>,
}

impl Confinement {
    /// Gives up capabilities and files, which are a thread's own: to be called before any thread is started, and after everything
    /// is started and opened that needs more.
    pub(super) fn begin() -> Result<Self, Failure> {
        let mut kept = KEPT.to_vec();
        if !sandbox::allow_real_time() {
            kept.push(Capability::CAP_SYS_NICE);
        }
        let mut write = PrivateDir::candidates();
        write.push(SYSCTLS.into());
        let reach = Reach {
            read: &["/proc", "/sys"],
            write: &write,
            outside: true,
        };
        // A kernel without IPv6 has none.
        let sysctls = File::open(SYSCTLS).ok();
        let landlock = sandbox::give_up(&kept, reach).or_machine()?;
        Ok(Self {
            kept,
            landlock,
            sysctls,
        })
    }

    /// Filters the system calls of all threads, once it forwards, and reads everything back. Landlock's rule for the directory of the
    /// sysctls holds for as long as the result is open: the kernel may otherwise forget the directory and then make another inode.
    pub(super) fn complete(self) -> Result<Option<File>, Failure> {
        let in_force = sandbox::confine_emulator(&self.kept, self.landlock).or_machine()?;
        note(format_args!("farwire is confined: {in_force}"));
        Ok(self.sysctls)
    }
}
