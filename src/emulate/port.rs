//! One interface of the emulator: the requirements on it and the changes made to it.

use std::io::ErrorKind;

use anyhow::{Context as _, Result};
use netio::iface::{HostUse, Interface, InterfaceError};
use netio::lease::{InterfaceLease, InterfaceLeases, LeaseError, MERGING};
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
    /// Takes a leased interface as it is, up or down.
    pub(super) fn new(interface: Interface, lease: InterfaceLease) -> Self {
        let name = interface.name.clone();
        Self {
            interface,
            lease: Some(lease),
            reported_kept_up: false,
            refusal: String::new(),
            events: InterfaceSummary {
                name,
                ..InterfaceSummary::default()
            },
        }
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

    /// Ends the lease, which undoes all changes to the interface.
    ///
    /// # Errors
    /// Something could not be undone.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(lease) = self.lease.take() else {
            return Ok(());
        };
        lease.end().with_context(|| {
            let name = self.name();
            format!(
                "interface {name} is not as it was before; `farwire emulate --restore` tries again"
            )
        })
    }
}

/// Leases an interface and prepares it for a box.
pub(super) fn lease(
    interface: &Interface,
    leases: &InterfaceLeases,
) -> Result<InterfaceLease, Failure> {
    let mut lease = leases.take(interface).map_err(blame)?;
    let name = &interface.name;
    // Checked only now, because taking the lease has undone the bridge of a killed box.
    if interface.master.is_some() && Interface::find(name).or_bad_input()?.master.is_some() {
        return Err(refused(
            name,
            "is a port of a bridge or bond: remove it from that first",
        ));
    }
    prepare(name, &mut lease)?;
    Ok(lease)
}

/// Makes the changes that an interface needs while a box uses it, except for its administrative
/// state.
pub(super) fn prepare(name: &str, lease: &mut InterfaceLease) -> Result<(), Failure> {
    for feature in MERGING {
        lease.switch(feature, false).map_err(blame)?;
    }
    match lease.stop_soliciting() {
        Ok(()) => Ok(()),
        // A container's /proc/sys can be read-only. The link works without this change.
        Err(error @ LeaseError::Sysctl(_)) => {
            warn(format_args!(
                "the host will send its own router solicitations through {name}: {error}"
            ));
            Ok(())
        }
        Err(error) => Err(blame(error)),
    }
}

/// Looks up `name` and refuses an interface that a box must not take.
pub(super) fn find(name: &str, force: bool) -> Result<Interface, Failure> {
    let found = Interface::find(name).or_bad_input()?;
    acceptable(found, &HostUse::now().or_machine()?, force)
}

/// Refuses an interface that a box must not take.
pub(super) fn acceptable(
    interface: Interface,
    host: &HostUse,
    force: bool,
) -> Result<Interface, Failure> {
    let name = &interface.name;
    match &interface {
        i if !i.ethernet => Err(refused(name, "is not Ethernet")),
        i if host.has_default_route(i) && !force => Err(refused(
            name,
            "carries the default route: the host would lose its network; add --force to use it anyway",
        )),
        i if host.is_configured(i) && !force => Err(refused(
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
        | LeaseError::Socket(source)
        | LeaseError::Journal { source, .. } => source.kind(),
        LeaseError::Interface(InterfaceError::Missing(_)) => return Failure::bad_input(error),
        _ => return error.into(),
    };
    match source {
        ErrorKind::PermissionDenied => Failure::machine(error),
        _ => error.into(),
    }
}
