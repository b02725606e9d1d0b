//! One interface of the emulator: the requirements on it and the changes made to it.

use std::io::ErrorKind;

use netio::iface::{Interface, InterfaceError};
use netio::lease::{InterfaceLease, LeaseError, MERGING};
use netio::offloads::OffloadError;
use netio::private_dir::PrivateDirError;

use crate::notes::warn;
use instruments::failure::{Blame, Failure};
use record::summary::InterfaceSummary;

/// One interface while the box runs.
pub(super) struct Port {
    /// The interface as it was found, updated with later changes.
    pub(super) interface: Interface,
    /// The lease with all changes to the interface; `None` while the interface is gone.
    pub(super) lease: Option<InterfaceLease>,
    /// True once a warning has said that this interface stays up whatever the carrier of the other
    /// side does.
    pub(super) reported_kept_up: bool,
    /// The last warning about why the interface could not be taken again.
    pub(super) refusal: String,
    pub(super) events: InterfaceSummary,
}

impl Port {
    /// Takes the interface as it is, up or down. `is_port` allows it to be a port of a bridge.
    pub(super) fn take(interface: Interface, is_port: bool) -> Result<Self, Failure> {
        let lease = lease(&interface, is_port)?;
        let name = interface.name.clone();
        Ok(Self {
            interface,
            lease: Some(lease),
            reported_kept_up: false,
            refusal: String::new(),
            events: InterfaceSummary {
                name,
                ..InterfaceSummary::default()
            },
        })
    }

    /// Sets the interface up. Returns true if it was down before.
    pub(super) fn raise(&mut self) -> Result<bool, Failure> {
        match &mut self.lease {
            Some(lease) => Ok(lease.set_up(true).map_err(blame)? || lease.has_raised()),
            None => Ok(false),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.interface.name
    }
}

/// Makes the changes that an interface needs while a box uses it, except for its administrative
/// state. `is_port` allows it to be a port of a bridge.
pub(super) fn lease(interface: &Interface, is_port: bool) -> Result<InterfaceLease, Failure> {
    let mut lease = InterfaceLease::take(interface).map_err(blame)?;
    let name = &interface.name;
    // Checked only now, because taking the lease has undone the bridge of a killed box.
    if !is_port
        && interface.master.is_some()
        && Interface::find(name).or_bad_input()?.master.is_some()
    {
        return Err(refused(
            name,
            "is a port of a bridge or bond: remove it from that first",
        ));
    }
    for feature in MERGING {
        lease.switch(feature, false).map_err(blame)?;
    }
    match lease.stop_soliciting() {
        Ok(()) => Ok(lease),
        // A container's /proc/sys can be read-only. The link works without this change.
        Err(error @ LeaseError::Sysctl(_)) => {
            warn(format_args!(
                "the host will send its own router solicitations through {name}: {error}"
            ));
            Ok(lease)
        }
        Err(error) => Err(blame(error)),
    }
}

/// Looks up `name` and refuses an interface that a box must not take.
pub(super) fn find(name: &str, force: bool) -> Result<Interface, Failure> {
    let found = Interface::find(name).or_bad_input()?;
    let is_configured = !force && found.is_configured().or_machine()?;
    acceptable(found, is_configured, force)
}

/// Refuses an interface that a box must not take; `is_configured` says whether it has addresses or
/// routes.
pub(super) fn acceptable(
    interface: Interface,
    is_configured: bool,
    force: bool,
) -> Result<Interface, Failure> {
    let name = &interface.name;
    match &interface {
        i if !i.ethernet => Err(refused(name, "is not Ethernet")),
        i if i.default_route && !force => Err(refused(
            name,
            "carries the default route: the host would lose its network; --force uses it nevertheless",
        )),
        _ if is_configured && !force => Err(refused(
            name,
            "has addresses or routes, which do not work while farwire emulates: choose an unused interface, or add --force",
        )),
        _ => Ok(interface),
    }
}

fn refused(name: &str, why: &str) -> Failure {
    Failure::bad_input(format!("interface {name} {why}"))
}

/// Blames the machine for missing privileges. Any other error of a lease keeps its own kind.
pub(crate) fn blame(error: LeaseError) -> Failure {
    let source = match &error {
        LeaseError::Offload(OffloadError { source, .. })
        | LeaseError::Directory(PrivateDirError { source, .. })
        | LeaseError::Journal { source, .. } => source.kind(),
        LeaseError::Interface(InterfaceError::Missing(_)) => return Failure::bad_input(error),
        _ => return error.into(),
    };
    match source {
        ErrorKind::PermissionDenied => Failure::machine(error),
        _ => error.into(),
    }
}
