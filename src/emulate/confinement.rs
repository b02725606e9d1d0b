//! The privileges that an emulator keeps while it forwards.

use std::fs::File;

use netio::private_dir::PrivateDir;
use netio::sandbox::{self, Capability, Reach};

use crate::notes::note;
use instruments::failure::{Blame, Failure};

/// The capabilities for changing interfaces and their offloads, and for opening sockets on an
/// interface that comes back.
const KEPT: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];

/// The directory of the interfaces' IPv6 sysctls. The emulator changes one of them and restores it
/// at the end.
const SYSCTLS: &str = "/proc/sys/net/ipv6/conf";

/// A process that has given up the privileges it does not need and whose system calls are not yet
/// filtered.
#[must_use]
pub(super) struct Confinement {
    kept: Vec<Capability>,
    landlock: bool,
    sysctls: Option<File>,
}

impl Confinement {
    /// Gives up capabilities and access to files. Both belong to a thread, so the caller must do
    /// this before it starts any thread, and after it has started and opened everything that needs
    /// more privileges.
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
        // A kernel without IPv6 does not have this directory.
        let sysctls = File::open(SYSCTLS).ok();
        let landlock = sandbox::give_up(&kept, reach).or_machine()?;
        Ok(Self {
            kept,
            landlock,
            sysctls,
        })
    }

    /// Filters the system calls of all threads once the emulator forwards, then reads back which
    /// restrictions are in force.
    ///
    /// Landlock's rule for the directory of sysctls is in force as long as the returned file is
    /// open. Without an open file, the kernel may drop the directory's inode from its cache and
    /// create another one later, to which the rule does not apply.
    pub(super) fn complete(self) -> Result<Option<File>, Failure> {
        let in_force = sandbox::confine_emulator(&self.kept, self.landlock).or_machine()?;
        note(format_args!("farwire is confined: {in_force}"));
        Ok(self.sysctls)
    }
}
