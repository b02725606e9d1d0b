//! A transparent emulator between existing interfaces: one link between two of them, or many links.
//!
//! All changes to the interfaces are leased: they are undone at the end, or by the next start if the emulator was killed. A drop
//! rule at ingress, behind the packet taps, keeps the host's own stack out; addresses stay as they are. A process that outlives
//! the emulator takes care of the interfaces at its end ([`holder`]).

mod carrier;
mod confinement;
mod holder;
mod pair;
mod port;
mod side_by_side;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use model::Side;
use netio::AfPacket;
use netio::iface::{Interface, InterfaceError, LinkChange, LinkWatcher};
use netio::ingress_drop::IngressDrop;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::forward::PortId;
use crate::forward::thread::{
    EMULATOR_DIED, ForwarderHandle, ForwarderOptions, ForwarderThread, PlacedLink, RING_SLOTS,
};
use crate::notes::{log, warn};
use crate::service_manager::{self, Watchdog};
use conditions::EmulatedLink;
use confinement::Confinement;
use holder::BoxHolder;
pub(crate) use holder::{OnExit, hold};
use instruments::failure::{Blame, Failure};
use instruments::serve::raise_descriptor_limit;
use netio::stop::Stop;
use pair::{InterfacePair, mtus};
use port::acceptable;
pub(crate) use port::blame;
use record::summary::Summary;

/// How often signals are asked for, in milliseconds; most of them end the waiting at once.
const LOOK_AGAIN: u8 = 100;

/// Of more changes at once than this, all interfaces are looked at together.
const MANY_CHANGES: usize = 16;

/// Interfaces under lease, and the emulator between them.
pub(crate) struct WanBox {
    /// In the order of the links.
    pairs: Vec<InterfacePair>,
    /// Keeps the host out of all of them.
    guard: IngressDrop,
    /// Takes also an interface that has addresses or routes, or that the default route leads out of.
    force: bool,
    watcher: LinkWatcher,
    running: ForwarderThread,
    stop: Stop,
    holder: BoxHolder,
    told_unheld: bool,
    /// Keeps the sysctls of interfaces within reach.
    _sysctls: Option<File>,
}

/// A link of a box, and the interfaces that it is to stand between.
pub(crate) struct BoxLink {
    /// A and B.
    pub(crate) names: [String; 2],
    pub(crate) link: EmulatedLink,
}

impl WanBox {
    /// Takes all interfaces and starts to forward between those of each link; and `beside`, what else runs in this process, which is
    /// confined with it.
    pub(crate) fn up<T>(
        links: Vec<BoxLink>,
        force: bool,
        on_exit: OnExit,
        options: ForwarderOptions,
        beside: impl FnOnce(&ForwarderHandle) -> Result<T>,
    ) -> Result<(Self, T), Failure> {
        let watcher = LinkWatcher::new().context("cannot watch the interfaces")?;
        let (names, links): (Vec<_>, Vec<_>) =
            links.into_iter().map(|of| (of.names, of.link)).unzip();
        let found = find_all(&names, force)?;
        if found.len() > 1 {
            // A lease of an interface has three.
            raise_descriptor_limit();
        }
        // From here on signals end the box in order, as does a forwarder that dies.
        let stop = Stop::on_signals()?.or(&options.died, EMULATOR_DIED);
        let (mut sockets, ports) = open(&found)?;
        let indices = found.iter().map(|pair| pair.each_ref().map(|of| of.index));
        let holder = BoxHolder::start(on_exit, indices.collect())?;
        let started = || -> Result<_, Failure> {
            let names: Vec<String> = found.iter().flatten().map(|of| of.name.clone()).collect();
            let pairs = side_by_side::each(found, InterfacePair::take)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let guard = IngressDrop::new(&names).or_machine()?;
            let pairs = side_by_side::each(pairs, InterfacePair::raise)?;
            if let [_, _] = names[..] {
                for (socket, name) in sockets.iter_mut().zip(&names) {
                    // Without, tunnels' trains leave in another form; `doctor` says why.
                    let _ = socket.take_tunnels(name);
                }
            }
            let confinement = Confinement::begin()?;
            let joined = ports.into_iter().zip(links);
            let joined = joined.map(|(ports, link)| PlacedLink { ports, link });
            let running = ForwarderThread::start_all(sockets, joined.collect(), options)?;
            let beside = beside(running.handle())?;
            let sysctls = confinement.complete()?;
            Ok((pairs, guard, running, beside, sysctls))
        };
        match started() {
            Ok((pairs, guard, running, beside, sysctls)) => {
                let wan_box = Self {
                    pairs,
                    guard,
                    force,
                    watcher,
                    running,
                    stop,
                    holder,
                    told_unheld: false,
                    _sysctls: sysctls,
                };
                Ok((wan_box, beside))
            }
            Err(failure) => {
                // Nothing was begun: what was changed is put back.
                holder.dismiss();
                Err(failure)
            }
        }
    }

    /// Passes carrier losses on until a signal ends the box; then puts everything back, and has done what is to be done
    /// at the end. What each link did, in order.
    ///
    /// # Errors
    /// The forwarder has died, or what was changed could not be put back.
    pub(crate) fn run(mut self) -> Result<Vec<Summary>> {
        let ended = self.watch();
        service_manager::stopping();
        let summaries = self.running.stop();
        let happened: Vec<_> = self.pairs.iter().map(InterfacePair::happened).collect();
        // The leases and the drop end here, after the last packet.
        side_by_side::for_each(self.pairs, drop);
        drop(self.guard);
        let outcome = ended.and(summaries);
        self.holder.end(outcome.is_ok())?;
        let summaries = outcome?.into_iter().zip(happened);
        let told = |(summary, interfaces)| Summary {
            interfaces,
            ..summary
        };
        Ok(summaries.map(told).collect())
    }

    fn watch(&mut self) -> Result<()> {
        let mut watchdog = Watchdog::asked_for();
        // What the box itself did when it took the interfaces, told from their states before.
        self.watcher
            .changes()
            .context("cannot watch the interfaces")?;
        let now = all_now()?;
        for pair in &mut self.pairs {
            for side in [Side::A, Side::B] {
                // One that is gone already is told as a change.
                if let Some(now) = now.get(&pair.port(side).interface.index) {
                    pair.pass_on(side, now.carrier)?;
                }
            }
        }
        while self.stop.cause().is_none() {
            let mut fds = [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, LOOK_AGAIN) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("cannot watch the interfaces"),
            }
            self.follow_all()?;
            if let Some(watchdog) = &mut watchdog {
                watchdog.look(|| self.running.handle().ask_whether_alive());
            }
            if self.holder.has_ended() && !std::mem::replace(&mut self.told_unheld, true) {
                warn(
                    "the helper process has died: --on-exit has no effect if this process is killed",
                );
            }
        }
        Ok(())
    }

    /// Does what follows from the changes of interfaces since the last call.
    fn follow_all(&mut self) -> Result<()> {
        let changes = self
            .watcher
            .changes()
            .context("cannot watch the interfaces")?;
        // To ask of each by itself would take seconds where a thousand have changed.
        let now = (changes.len() > MANY_CHANGES).then(all_now).transpose()?;
        let look = |index| match &now {
            Some(now) => Ok(now.get(&index).cloned()),
            None => match Interface::by_index(index) {
                Err(InterfaceError::Missing(_)) => Ok(None),
                other => other.map(Some),
            },
        };
        changes
            .iter()
            .try_for_each(|change| self.follow(change, look))
    }

    /// Does what follows from a change of any interface. What it is now, as `look` says, counts, not what it was when it was
    /// told: what is told late may be what the box itself has done since.
    fn follow(
        &mut self,
        change: &LinkChange,
        look: impl Fn(u32) -> Result<Option<Interface>, InterfaceError>,
    ) -> Result<()> {
        let ours = self.find(|port| port.taken.is_some() && port.interface.index == change.index);
        if let Some((link, side)) = ours {
            if change.gone {
                return self.lose(link, side);
            }
            // Of one that is not there it is told next that it is gone.
            let Some(now) = look(change.index)? else {
                return Ok(());
            };
            let pair = &mut self.pairs[link];
            pair.take_note(side, &now);
            if pair.pass_on(side, now.carrier)? {
                pair.port_mut(side).happened.carrier_losses += 1;
            }
            return Ok(());
        }
        let back = self.find(|port| port.taken.is_none() && port.name() == change.name);
        match back.filter(|_| !change.gone) {
            Some((link, side)) => self.take_again(link, side),
            None => Ok(()),
        }
    }

    /// The link and the side of the port that is as `wanted`.
    fn find(&self, wanted: impl Fn(&port::Port) -> bool) -> Option<(usize, Side)> {
        let mut pairs = self.pairs.iter().enumerate();
        pairs.find_map(|(link, pair)| Some((link, pair.side(&wanted)?)))
    }

    /// An interface has left the namespace: the other side loses its carrier, as if a cable was pulled.
    fn lose(&mut self, link: usize, side: Side) -> Result<()> {
        let port = self.pairs[link].port_mut(side);
        port.taken = None;
        port.happened.gone += 1;
        self.guard.forget(port.interface.index);
        let said = format!("interface {} is gone: waiting for its return", port.name());
        log(format_args!("farwire: {said}"));
        service_manager::status(&said);
        self.pairs[link].pass_on(side, false).map(drop)
    }

    /// An interface of that name is there again: goes on with it, if it can be had.
    fn take_again(&mut self, link: usize, side: Side) -> Result<()> {
        let name = self.pairs[link].port(side).name().to_owned();
        let mut take = || -> Result<_, Failure> {
            let found = port::find(&name, self.force)?;
            let mut lease = port::lease(&found)?;
            self.guard.take_again(&found.name).or_machine()?;
            let keep_down = self.pairs[link].keeps_down(side);
            let raised = lease.set_up(!keep_down).map_err(blame);
            let joined =
                raised.and_then(|_| Ok(self.running.handle().rejoin(link, side, found.index)?));
            match joined {
                Ok(()) => Ok((found, lease)),
                Err(failure) => {
                    self.guard.forget(found.index);
                    Err(failure)
                }
            }
        };
        let again = take();
        let pair = &mut self.pairs[link];
        let port = pair.port_mut(side);
        let (found, lease) = match again {
            Ok(again) => again,
            Err(failure) => {
                // It may still be about to become what it was: with its next change this is tried again.
                let refusal = failure.to_string();
                if refusal != port.refusal {
                    warn(format_args!(
                        "interface {name} is back, but cannot be used: {refusal}"
                    ));
                    port.refusal = refusal;
                }
                return Ok(());
            }
        };
        port.refusal.clear();
        port.happened.back += 1;
        port.interface = found;
        port.taken = Some(lease);
        self.holder.stand_between(link, pair.indices());
        let said = format!("interface {name} is back");
        log(format_args!("farwire: {said}"));
        service_manager::status(&said);
        pair.warn_of_mtus();
        let carrier = Interface::find(&name).is_ok_and(|now| now.carrier);
        pair.pass_on(side, carrier).map(drop)
    }
}

/// The interfaces of this namespace by number.
fn all_now() -> Result<HashMap<u32, Interface>> {
    let all = Interface::all().context("cannot list the interfaces")?;
    Ok(all.into_iter().map(|of| (of.index, of)).collect())
}

/// Looks all interfaces up, and refuses what a box must not take.
fn find_all(names: &[[String; 2]], force: bool) -> Result<Vec<[Interface; 2]>, Failure> {
    let mut all: HashMap<String, Interface> = HashMap::new();
    for interface in Interface::all().or_machine()? {
        all.insert(interface.name.clone(), interface);
    }
    let configured = Interface::configured().or_machine()?;
    let mut taken = HashSet::new();
    let mut find = |name: &String| match all.remove(name) {
        Some(found) => {
            taken.insert(name.clone());
            let is_configured = configured.contains(&found.index);
            acceptable(found, is_configured, force)
        }
        None if taken.contains(name) => Err(Failure::bad_input(format!(
            "{name} is named twice: each link needs two interfaces of its own"
        ))),
        // Perhaps by another name that it has.
        None => port::find(name, force),
    };
    let mut found = Vec::new();
    for [a, b] in names {
        let pair = [find(a)?, find(b)?];
        if pair[0].mtu != pair[1].mtu {
            return Err(Failure::bad_input(format!(
                "{}: longer frames would be lost; give both the same MTU",
                mtus(pair.each_ref())
            )));
        }
        found.push(pair);
    }
    Ok(found)
}

/// Opens all interfaces: those of a single link apart, with rings of their own; those of several together, with rings that
/// they share.
fn open(found: &[[Interface; 2]]) -> Result<(Vec<AfPacket>, Vec<[PortId; 2]>), Failure> {
    if let [[a, b]] = found {
        let open = |of: &Interface| AfPacket::open(&of.name, RING_SLOTS).or_machine();
        return Ok((vec![open(a)?, open(b)?], vec![PortId::APART]));
    }
    let names: Vec<&str> = found.iter().flatten().map(|of| of.name.as_str()).collect();
    let together = AfPacket::open_all(&names, RING_SLOTS).or_machine()?;
    let links = (0..).zip(found);
    let ports = links.map(|(link, _)| PortId::together(link)).collect();
    Ok((vec![together], ports))
}
