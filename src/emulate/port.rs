//! One interface of a box: what it must be, and what is changed on it.

use std::io::ErrorKind;

use netio::AfPacket;
use netio::iface::{Interface, InterfaceError};
use netio::ingress_drop::IngressDrop;
use netio::lease::{Lease, LeaseError, MERGING};
use netio::offloads::OffloadError;

use crate::forward::thread::RING_SLOTS;
use instruments::failure::{Blame, Failure};
use record::summary::InterfaceSummary;

/// One interface, as long as the box stands.
pub(super) struct Port {
    /// As it was found, with the changes since.
    pub(super) interface: Interface,
    /// What is changed on it; none while it is gone.
    pub(super) taken: Option<Taken>,
    /// It was said that this one stays up whatever the other side's carrier does.
    pub(super) told_kept_up: bool,
    /// Why it could not be taken again, as it was said last.
    pub(super) refusal: String,
    pub(super) happened: InterfaceSummary,
}

/// What is changed on an interface, until this is dropped.
pub(super) struct Taken {
    pub(super) lease: Lease,
    _ingress_drop: IngressDrop,
}

impl Port {
    /// Takes the interface; on return it is up, and its carrier may take its time if it was not before.
    pub(super) fn take(interface: Interface) -> Result<(Self, bool), Failure> {
        let mut taken = Taken::take(&interface.name)?;
        let was_raised = taken.lease.set_up(true).map_err(blame)? || taken.lease.has_raised();
        let name = interface.name.clone();
        let port = Self {
            interface,
            taken: Some(taken),
            told_kept_up: false,
            refusal: String::new(),
            happened: InterfaceSummary {
                name,
                ..InterfaceSummary::default()
            },
        };
        Ok((port, was_raised))
    }

    pub(super) fn name(&self) -> &str {
        &self.interface.name
    }
}

impl Taken {
    /// Changes what must be otherwise while a box stands on the interface, but for its administrative state.
    pub(super) fn take(name: &str) -> Result<Self, Failure> {
        let mut lease = Lease::take(name).map_err(blame)?;
        // Only now: what a killed box left joined is no longer.
        if Interface::find(name).or_bad_input()?.master.is_some() {
            return Err(refused(
                name,
                "is a port of a bridge or bond: take it out of that first",
            ));
        }
        let _ingress_drop = IngressDrop::new(name).or_machine()?;
        for feature in MERGING {
            lease.switch(feature, false).map_err(blame)?;
        }
        Ok(Self {
            lease,
            _ingress_drop,
        })
    }
}

/// Looks `name` up and refuses what a box must not take.
pub(super) fn find(name: &str, force: bool) -> Result<Interface, Failure> {
    let interface = Interface::find(name).or_bad_input()?;
    match &interface {
        i if !i.ethernet => Err(refused(name, "is not Ethernet")),
        i if i.default_route && !force => Err(refused(
            name,
            "leads to the default route: the host would be cut off; --force takes it all the same",
        )),
        _ => Ok(interface),
    }
}

fn refused(name: &str, why: &str) -> Failure {
    Failure::bad_input(format!("interface {name} {why}"))
}

pub(super) fn open(name: &str) -> Result<AfPacket, Failure> {
    AfPacket::open(name, RING_SLOTS).or_machine()
}

/// A want of privilege is the machine's; everything else about a lease can fail anywhere.
pub(crate) fn blame(error: LeaseError) -> Failure {
    let source = match &error {
        LeaseError::Offload(OffloadError { source, .. }) | LeaseError::Journal { source, .. } => {
            source.kind()
        }
        LeaseError::Interface(InterfaceError::Missing(_)) => return Failure::bad_input(error),
        _ => return error.into(),
    };
    match source {
        ErrorKind::PermissionDenied => Failure::machine(error),
        _ => error.into(),
    }
}
