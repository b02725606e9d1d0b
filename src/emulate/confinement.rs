//! The privileges that an emulator keeps while it forwards.

use netio::lease;
use netio::sandbox::{self, Capability, Reach};

use crate::notes::note;
use instruments::failure::{Blame, Failure};

/// For interfaces and their offloads, and for sockets on an interface that comes back.
const KEPT: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];

/// A box that has given up what it does not need, and whose system calls are not filtered yet.
#[must_use]
pub(super) struct Confinement {
    kept: Vec<Capability>,
    landlock: bool,
}

impl Confinement {
    /// Gives up capabilities and files, which are a thread's own: to be called before any thread is started, and after everything
    /// is started and opened that needs more.
    pub(super) fn begin() -> Result<Self, Failure> {
        let mut kept = KEPT.to_vec();
        if !sandbox::allow_real_time() {
            kept.push(Capability::CAP_SYS_NICE);
        }
        let reach = Reach {
            read: &["/proc", "/sys"],
            write: &lease::journal_dirs(),
            outside: true,
        };
        let landlock = sandbox::give_up(&kept, reach).or_machine()?;
        Ok(Self { kept, landlock })
    }

    /// Filters the system calls of all threads, once it forwards, and reads everything back.
    pub(super) fn complete(self) -> Result<(), Failure> {
        let in_force = sandbox::confine_emulator(&self.kept, self.landlock).or_machine()?;
        note(format_args!("farwire is confined: {in_force}"));
        Ok(())
    }
}
