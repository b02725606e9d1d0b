//! The two interfaces that a link connects.

use anyhow::Result;
use model::Side;
use netio::iface::Interface;

use super::carrier::{CarrierChange, Carriers};
use super::port::Port;
use crate::notes::{log, warn};
use instruments::failure::Failure;
use record::summary::InterfaceSummary;

/// Two interfaces under lease.
pub(super) struct InterfacePair {
    ports: [Port; 2],
    carriers: Carriers,
}

impl InterfacePair {
    /// Leases both and changes what must be otherwise, but for their administrative state.
    pub(super) fn take([a, b]: [Interface; 2]) -> Result<Self, Failure> {
        Ok(Self {
            ports: [Port::take(a)?, Port::take(b)?],
            carriers: Carriers::new([false; 2]),
        })
    }

    /// Sets both up, once the host is kept out of them; a carrier may take its time where one was not.
    pub(super) fn raise(mut self) -> Result<Self, Failure> {
        let [a, b] = &mut self.ports;
        self.carriers = Carriers::new([a.raise()?, b.raise()?]);
        Ok(self)
    }

    pub(super) fn port(&self, side: Side) -> &Port {
        &self.ports[side.index()]
    }

    pub(super) fn port_mut(&mut self, side: Side) -> &mut Port {
        &mut self.ports[side.index()]
    }

    /// The numbers of both.
    pub(super) fn indices(&self) -> [u32; 2] {
        self.ports.each_ref().map(|port| port.interface.index)
    }

    /// The side whose interface is as `wanted`.
    pub(super) fn side(&self, wanted: impl Fn(&Port) -> bool) -> Option<Side> {
        let sides = [Side::A, Side::B];
        sides.into_iter().find(|side| wanted(self.port(*side)))
    }

    /// What happened to either, where anything did.
    pub(super) fn happened(&self) -> Vec<InterfaceSummary> {
        let all = self.ports.iter().map(|port| port.happened.clone());
        all.filter(|of| !of.is_quiet()).collect()
    }

    /// Whether the interface of `side` is to stay down, for the other side's loss.
    pub(super) fn keeps_down(&self, side: Side) -> bool {
        self.carriers.is_lowered(side)
    }

    /// A name or an MTU may be another.
    pub(super) fn take_note(&mut self, side: Side, now: &Interface) {
        let port = self.port_mut(side);
        port.interface.name.clone_from(&now.name);
        if std::mem::replace(&mut port.interface.mtu, now.mtu) != now.mtu {
            port.happened.mtu_changes += 1;
            self.warn_of_mtus();
        }
    }

    pub(super) fn warn_of_mtus(&self) {
        let [a, b] = self.ports.each_ref().map(|port| &port.interface);
        if a.mtu != b.mtu {
            warn(format_args!(
                "{}: the smaller one loses longer frames",
                mtus([a, b])
            ));
        }
    }

    /// Passes the carrier of `side` on to the other side; whether it was lost just now.
    pub(super) fn pass_on(&mut self, side: Side, carrier: bool) -> Result<bool> {
        let Some(CarrierChange { side, up }) = self.carriers.change(side, carrier) else {
            return Ok(false);
        };
        let port = &mut self.ports[side.index()];
        let Some(lease) = &mut port.taken else {
            return Ok(!up);
        };
        let name = &port.interface.name;
        if !up && port.interface.is_configured()? {
            self.carriers.kept_up();
            if !std::mem::replace(&mut port.told_kept_up, true) {
                warn(format_args!(
                    "carrier lost, but {name} stays up, because it would lose its addresses or routes"
                ));
            }
            return Ok(true);
        }
        let word = if up {
            "is back: setting up"
        } else {
            "is lost: setting down"
        };
        log(format_args!("farwire: carrier {word} {name}"));
        match lease.set_up(up) {
            // It has gone this moment, which is told as a change.
            Err(error) if error.is_gone() => {}
            other => drop(other?),
        }
        Ok(!up)
    }
}

/// Both MTUs in words.
pub(super) fn mtus([a, b]: [&Interface; 2]) -> String {
    let (of_a, of_b) = (&a.name, &b.name);
    format!("{of_a} has MTU {} and {of_b} has MTU {}", a.mtu, b.mtu)
}
