//! The two interfaces that a link connects.

use std::time::Duration;

use anyhow::Result;
use model::Side;
use netio::bridge_port::BridgePort;
use netio::iface::Interface;
use netio::lease::InterfaceLeases;

use super::Insertion;
use super::carrier::{CarrierChange, Carriers};
use super::port::{self, Port, blame};
use crate::notes::{log, warn};
use instruments::failure::Failure;
use record::summary::InterfaceSummary;

/// Two leased interfaces and the state of their carriers.
pub(super) struct InterfacePair {
    ports: [Port; 2],
    carriers: Carriers,
    /// The place of side A in a bridge, and the interface that takes it, if the link is inserted.
    insertion: Option<(BridgePort, Interface)>,
}

impl InterfacePair {
    /// Leases both interfaces and makes the changes that the box needs, except for their
    /// administrative state and the insertion into a bridge.
    pub(super) fn take(
        [a, b]: [Interface; 2],
        insertion: Option<Insertion>,
        leases: &InterfaceLeases,
    ) -> Result<Self, Failure> {
        let ([of_a, of_b], insertion) = match insertion {
            None => ([port::lease(&a, leases)?, port::lease(&b, leases)?], None),
            Some(Insertion {
                place,
                far,
                leases: [mut of_a, mut of_b],
                container: _,
            }) => {
                port::prepare(&a.name, &mut of_a)?;
                port::prepare(&b.name, &mut of_b)?;
                ([of_a, of_b], Some((place, far)))
            }
        };
        Ok(Self {
            ports: [Port::new(a, of_a), Port::new(b, of_b)],
            carriers: Carriers::new([false; 2]),
            insertion,
        })
    }

    /// Prepares the bridge for [`Self::insert`], if the link is to be inserted. Packets pass as before.
    pub(super) fn prepare_insertion(&mut self) -> Result<(), Failure> {
        let [a, _] = &mut self.ports;
        if let (Some((place, far)), Some(lease)) = (&self.insertion, &mut a.lease) {
            lease.prepare_port(place, far).map_err(blame)?;
        }
        Ok(())
    }

    /// Puts the link into the bridge, if it is to be inserted. The new port of the bridge must have its carrier within
    /// `timeout`.
    pub(super) fn insert(&mut self, timeout: Duration) -> Result<(), Failure> {
        let [a, _] = &mut self.ports;
        if let (Some((place, far)), Some(lease)) = (&self.insertion, &mut a.lease) {
            lease.replace_port(place, far, timeout).map_err(blame)?;
            a.interface.master = None;
        }
        Ok(())
    }

    pub(super) fn is_inserted(&self) -> bool {
        self.insertion.is_some()
    }

    /// Returns true if neither interface is leased any more.
    pub(super) fn is_gone(&self) -> bool {
        self.ports.iter().all(|port| port.lease.is_none())
    }

    /// Sets both interfaces up, once the host's stack is kept out of them. An interface that was
    /// down may need some time to get a carrier.
    pub(super) fn raise(mut self) -> Result<Self, Failure> {
        let [a, b] = &mut self.ports;
        self.carriers = Carriers::new([a.raise()?, b.raise()?]);
        Ok(self)
    }

    /// Continues with the interfaces of `new`, which take the place of those that are gone. Side A counts that as a return.
    pub(super) fn continue_with(&mut self, new: Self) {
        for (port, new) in self.ports.iter_mut().zip(new.ports) {
            port.events.name = new.events.name;
            port.interface = new.interface;
            port.lease = new.lease;
            port.refusal.clear();
        }
        self.ports[0].events.back += 1;
        self.carriers = new.carriers;
        self.insertion = new.insertion;
    }

    /// Ends the leases of both interfaces, which undoes all changes to them.
    ///
    /// # Errors
    /// Something could not be undone.
    pub(super) fn end(mut self) -> Result<()> {
        let [a, b] = self.ports.each_mut().map(Port::end);
        a.and(b)
    }

    pub(super) fn port(&self, side: Side) -> &Port {
        &self.ports[side.index()]
    }

    pub(super) fn port_mut(&mut self, side: Side) -> &mut Port {
        &mut self.ports[side.index()]
    }

    /// Returns the names of both interfaces.
    pub(super) fn names(&self) -> [String; 2] {
        self.ports.each_ref().map(|port| port.name().to_owned())
    }

    /// Returns the indexes of both interfaces.
    pub(super) fn indices(&self) -> [u32; 2] {
        self.ports.each_ref().map(|port| port.interface.index)
    }

    /// Returns the events of each interface that had any.
    pub(super) fn events(&self) -> Vec<InterfaceSummary> {
        let all = self.ports.iter().map(|port| port.events.clone());
        all.filter(|of| !of.is_quiet()).collect()
    }

    /// Returns true if the interface of `side` must stay down because the other side has lost its
    /// carrier.
    pub(super) fn keeps_down(&self, side: Side) -> bool {
        self.carriers.is_lowered(side)
    }

    /// Records the current name, bridge and MTU of an interface, any of which may have changed.
    pub(super) fn update(&mut self, side: Side, now: &Interface) {
        let is_inserted = self.is_inserted();
        let port = self.port_mut(side);
        port.interface.name.clone_from(&now.name);
        let earlier = std::mem::replace(&mut port.interface.master, now.master);
        if is_inserted && earlier.is_none() && now.master.is_some() {
            let name = &now.name;
            warn(format_args!(
                "another program has made {name} a port of a bridge: packets pass beside the link until `ip link set {name} \
                 nomaster`"
            ));
        }
        if std::mem::replace(&mut port.interface.mtu, now.mtu) != now.mtu {
            port.events.mtu_changes += 1;
            self.warn_of_mtus();
        }
    }

    pub(super) fn warn_of_mtus(&self) {
        let [a, b] = self.ports.each_ref().map(|port| &port.interface);
        if a.mtu != b.mtu {
            warn(format_args!(
                "{}: frames longer than the smaller MTU are lost",
                mtus([a, b])
            ));
        }
    }

    /// Passes the carrier of `side` on to the other side. Returns true if the carrier was lost just
    /// now.
    pub(super) fn pass_on(&mut self, side: Side, carrier: bool) -> Result<bool> {
        let Some(CarrierChange { side, up }) = self.carriers.change(side, carrier) else {
            return Ok(false);
        };
        let port = &mut self.ports[side.index()];
        let Some(lease) = &mut port.lease else {
            return Ok(!up);
        };
        let name = &port.interface.name;
        if !up && port.interface.is_configured()? {
            self.carriers.cancel_lowering();
            if !std::mem::replace(&mut port.reported_kept_up, true) {
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
            // The interface has just disappeared; the watcher reports that as a change.
            Err(error) if error.is_gone() => {}
            other => drop(other?),
        }
        Ok(!up)
    }
}

/// Describes the MTUs of both interfaces.
pub(super) fn mtus([a, b]: [&Interface; 2]) -> String {
    let (of_a, of_b) = (&a.name, &b.name);
    format!("{of_a} has MTU {} and {of_b} has MTU {}", a.mtu, b.mtu)
}
