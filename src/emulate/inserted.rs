//! Links that are inserted at the network of something that runs: their end, and the return of a container.

use std::time::Duration;

use anyhow::{Result, bail};
use model::Side;
use netio::iface::Interface;
use netio::ingress_drop::IngressDrop;

use super::containers::{Answer, ContainerWatcher};
use super::holder::NOT_MADE;
use super::pair::InterfacePair;
use super::{WanBox, attach, port};
use crate::forward::threads::Forwarders;
use crate::notes::{log, warn};
use crate::service_manager;
use instruments::failure::{Blame, Failure};

/// The time for which a running box waits until the new port of a bridge has its carrier, which takes milliseconds.
/// Meanwhile the box notices neither signals nor changes of other interfaces, and does not answer the service manager's
/// watchdog. If the time is not enough, the helper looks again.
const INSERT_TIMEOUT: Duration = Duration::from_secs(1);

impl WanBox {
    /// Ends an inserted link, one of whose interfaces is gone. If that was the host's end of a container, the container
    /// may come back.
    pub(super) fn end_inserted(&mut self, link: usize, side: Side, gone: &str) -> Result<()> {
        let pair = &mut self.pairs[link];
        for side in [Side::A, Side::B] {
            let port = pair.port_mut(side);
            port.lease = None;
            self.guard.forget(port.interface.index);
            self.places.forget(port.interface.index);
        }
        let containers = self.containers.as_mut().filter(|_| side == Side::A);
        let message = match containers.and_then(|of| of.wait_for(link)) {
            Some(container) => {
                format!("interface {gone} is gone: waiting for container {container}")
            }
            None => {
                format!("interface {gone} is gone, and with it the network that it belonged to")
            }
        };
        self.end_with_last(message)
    }

    /// Reports the end of an inserted link. The box ends with its last link, unless it waits for a container.
    fn end_with_last(&self, message: String) -> Result<()> {
        let containers = self.containers.as_ref();
        let is_waiting = containers.is_some_and(ContainerWatcher::is_waiting);
        if !is_waiting && self.pairs.iter().all(InterfacePair::is_gone) {
            bail!(message);
        }
        log(format_args!("farwire: {message}"));
        service_manager::status(&message);
        Ok(())
    }

    /// Handles the answers about containers.
    pub(super) fn follow_containers(&mut self) -> Result<()> {
        let Some(containers) = &mut self.containers else {
            return Ok(());
        };
        let Ok(mut answers) = containers.answers() else {
            self.containers = None;
            let message = "the helper process that watches containers has died: a container that restarts gets no link until \
                           farwire starts again";
            if self.pairs.iter().all(InterfacePair::is_gone) {
                bail!(message);
            }
            warn(message);
            return Ok(());
        };
        // The box would end at a link that ends, although the container of another one is back.
        answers.sort_by_key(|answer| {
            matches!(answer, Answer::Removed { .. } | Answer::Elsewhere { .. })
        });
        for answer in answers {
            match answer {
                Answer::Back { link, index } => self.insert_again(link, index)?,
                Answer::Renamed { link, name } => {
                    let former = self.container(link);
                    if let Some(containers) = &mut self.containers {
                        containers.rename(link, &name);
                    }
                    log(format_args!(
                        "farwire: container {former} is called {name} now"
                    ));
                }
                Answer::Joined { network: None, .. } => {}
                Answer::Joined {
                    link,
                    network: Some(network),
                    ..
                } => {
                    let name = self.container(link);
                    warn(format_args!(
                        "container {name} has joined the network {network}, which gets no link: its packets there are not \
                         impaired; `farwire emulate --container {name} --network {network}` inserts a link there"
                    ));
                }
                Answer::Removed { link } => {
                    let name = self.container(link);
                    self.end_with_last(format!(
                        "container {name} was removed, and with it the network that it belonged to"
                    ))?;
                }
                Answer::Elsewhere { link } => {
                    let name = self.container(link);
                    self.end_with_last(format!(
                        "container {name} is back in another network namespace, as Podman without root makes it after its \
                         last container has ended: start farwire again in the new one"
                    ))?;
                }
            }
        }
        Ok(())
    }

    /// Handles all interfaces that belong to no link, if the box watches containers.
    pub(super) fn follow_others(&mut self) -> Result<()> {
        if self.containers.is_some() {
            for found in Interface::all()? {
                self.follow_other(&found);
            }
        }
        Ok(())
    }

    /// Handles an interface that belongs to no link. If it leads to a container with a link, the container has joined another
    /// network, which the helper is asked to name.
    pub(super) fn follow_other(&mut self, now: &Interface) {
        let Some(containers) = &mut self.containers else {
            return;
        };
        if now.depends_on_namespace.is_none() || self.places.leased(now.index).is_some() {
            return;
        }
        let leads_there = |pair: &InterfacePair| {
            let port = pair.port(Side::A);
            pair.is_inserted()
                && port.lease.is_some()
                && port.interface.depends_on_namespace == now.depends_on_namespace
        };
        if let Some(link) = self.pairs.iter().position(leads_there) {
            containers.name_network(link, now.index);
        }
    }

    /// Inserts a link again, whose container is connected to the host's interface with this number now.
    fn insert_again(&mut self, link: usize, index: u32) -> Result<()> {
        let new = match self.take_anew(link, index) {
            Ok(new) => new,
            Err(failure) => {
                // Something may still be configuring the interface. The helper looks again.
                let container = self.container(link);
                let refusal = failure.to_string();
                let port = self.pairs[link].port_mut(Side::A);
                if refusal != port.refusal {
                    warn(format_args!(
                        "container {container} is back, but gets no link: {refusal}"
                    ));
                    port.refusal = refusal;
                }
                if let Some(containers) = &mut self.containers {
                    containers.wait_for(link);
                }
                return Ok(());
            }
        };
        let message = format!(
            "container {} is back: its link is inserted at {}",
            self.container(link),
            new.port(Side::A).name()
        );
        let pair = &mut self.pairs[link];
        pair.continue_with(new);
        for side in [Side::A, Side::B] {
            let index = pair.port(side).interface.index;
            self.places.lease(index, (link, side));
        }
        self.names[link].replace(pair.names());
        log(format_args!("farwire: {message}"));
        service_manager::status(&message);
        for side in [Side::A, Side::B] {
            let now = Interface::by_index(pair.port(side).interface.index);
            pair.pass_on(side, now.is_ok_and(|now| now.carrier))?;
        }
        // The container may have joined more networks while its link was lost.
        self.follow_others()
    }

    /// Makes a new pair at the host's interface with this number, and inserts the link there.
    fn take_anew(&mut self, link: usize, index: u32) -> Result<InterfacePair, Failure> {
        // If this process is killed from here on, the holder restores both.
        self.holder.set_interfaces(link, [index, NOT_MADE]);
        let (names, insertion) = attach::again(index, &self.leases)?;
        let [a, b] = names.each_ref();
        let indices = [index, Interface::find(b).or_machine()?.index];
        self.holder.set_interfaces(link, indices);
        let found = [port::find(a, self.force)?, port::find(b, self.force)?];
        let taken = InterfacePair::take(found, Some(insertion), &self.leases);
        let inserted = taken.and_then(|pair| self.insert(link, pair));
        if inserted.is_err() {
            for index in indices {
                self.guard.forget(index);
            }
        }
        inserted
    }

    /// Inserts a link with these interfaces, which its forwarder does not use yet.
    fn insert(&self, link: usize, pair: InterfacePair) -> Result<InterfacePair, Failure> {
        let near = pair.port(Side::B).interface.index;
        let guarded = self.guard.take_again(pair.port(Side::B).name());
        guarded.or_machine()?;
        let mut pair = pair.raise()?;
        let (forwarder, number) = self.running.of_link(link);
        forwarder.rejoin(number, Side::B, near)?;
        insert(&mut pair, link, &self.guard, &self.running, INSERT_TIMEOUT)?;
        Ok(pair)
    }

    /// Returns the name of the container of a link, or an empty text.
    fn container(&self, link: usize) -> String {
        let containers = self.containers.as_ref();
        containers.map_or_else(String::new, |of| of.container(link).to_owned())
    }
}

/// Inserts a link, whose forwarder uses side B already, at side A. The new port of the bridge must have its carrier within `timeout`.
pub(super) fn insert(
    pair: &mut InterfacePair,
    link: usize,
    guard: &IngressDrop,
    running: &Forwarders,
    timeout: Duration,
) -> Result<(), Failure> {
    pair.prepare_insertion()?;
    let container = &pair.port(Side::A).interface;
    // Nothing passes from here on, until the link is inserted. The forwarder has not seen what the host has passed on before, which
    // would otherwise arrive twice.
    guard.guard(&[&container.name]).or_machine()?;
    let (forwarder, number) = running.of_link(link);
    forwarder.rejoin(number, Side::A, container.index)?;
    pair.insert(timeout)
}
