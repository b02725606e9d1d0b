//! One interface of the emulator: what it requires, and what it changes there.

use std::io::ErrorKind;

use netio::iface::{Interface, InterfaceError};
use netio::lease::{InterfaceLease, LeaseError, MERGING};
use netio::offloads::OffloadError;
use netio::private_dir::PrivateDirError;

use crate::notes::warn;
use instruments::failure::{Blame, Failure};
use record::summary::InterfaceSummary;

/// One interface, as long as the box stands.
pub(super) struct Port {
    /// As it was found, with the changes since.
    pub(super) interface: Interface,
    /// What is changed on it; none while it is gone.
    pub(super) taken: Option<InterfaceLease>,
    /// It was said that this one stays up whatever the other side's carrier does.
    pub(super) told_kept_up: bool,
    /// Why it could not be taken again, as it was said last.
    pub(super) refusal: String,
    pub(super) happened: InterfaceSummary,
}

impl Port {
    /// Takes the interface as it is, up or down.
    pub(super) fn take(interface: Interface) -> Result<Self, Failure> {
        let taken = lease(&interface)?;
        let name = interface.name.clone();
        Ok(Self {
            interface,
            taken: Some(taken),
            told_kept_up: false,
            refusal: String::new(),
            happened: InterfaceSummary {
                name,
                ..InterfaceSummary::default()
            },
        })
    }

    /// Sets it up; whether it was not.
    pub(super) fn raise(&mut self) -> Result<bool, Failure> {
        match &mut self.taken {
            Some(lease) => Ok(lease.set_up(true).map_err(blame)? || lease.has_raised()),
            None => Ok(false),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.interface.name
    }
}

/// Changes what must be otherwise while a box stands on the interface, but for its administrative state.
pub(super) fn lease(interface: &Interface) -> Result<InterfaceLease, Failure> {
    let mut lease = InterfaceLease::take(interface).map_err(blame)?;
    let name = &interface.name;
    // Only now: what a killed box left joined is no longer.
    if interface.master.is_some() && Interface::find(name).or_bad_input()?.master.is_some() {
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
        // A container's /proc/sys can be read-only. The link is the same without it.
        Err(error @ LeaseError::Sysctl(_)) => {
            warn(format_args!(
                "the host will send its own router solicitations through {name}: {error}"
            ));
            Ok(lease)
        }
        Err(error) => Err(blame(error)),
    }
}

/// Looks `name` up and refuses what a box must not take.
pub(super) fn find(name: &str, force: bool) -> Result<Interface, Failure> {
    let found = Interface::find(name).or_bad_input()?;
    let is_configured = !force && found.is_configured().or_machine()?;
    acceptable(found, is_configured, force)
}

/// Refuses what a box must not take; `is_configured` tells whether the interface has addresses or routes.
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

/// A want of privilege is the machine's; everything else about a lease can fail anywhere.
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
