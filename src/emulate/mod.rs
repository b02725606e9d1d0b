//! A transparent emulator between existing interfaces, for one link or many. Each link connects two
//! interfaces.
//!
//! All changes to the interfaces are leased: the emulator undoes them at its end, or the next start
//! undoes them if the emulator was killed. A drop rule at ingress, behind the packet taps, keeps
//! the host's own stack out; addresses stay as they are. A separate process that outlives the
//! emulator takes care of the interfaces at its end ([`holder`]).

pub(crate) mod attach;
mod carrier;
mod confinement;
mod containers;
mod engine_api;
mod engine_program;
pub(crate) mod engines;
mod holder;
mod inserted;
mod new_pair;
mod pair;
mod places;
mod port;

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use model::Side;
use netio::AfPacket;
use netio::bridge_port::BridgePort;
use netio::cpu;
use netio::descriptors;
use netio::iface::{HostUse, Interface, InterfaceError, InterfaceLookup, LinkChange, LinkWatcher};
use netio::ingress_drop::IngressDrop;
use netio::lease::{InterfaceLease, InterfaceLeases};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::end_names::EndNames;
use crate::forward::thread::{EMULATOR_DIED, ForwarderOptions};
use crate::forward::threads::{self, Forwarders, distribute, place};
use crate::notes::{log, warn};
use crate::service_manager::{self, Watchdog};
use conditions::EmulatedLink;
use confinement::Confinement;
pub(crate) use containers::watch as watch_containers;
use containers::{ContainerEnd, ContainerWatcher};
use holder::BoxHolder;
pub(crate) use holder::{EarlyHolder, OnExit, hold};
use instruments::failure::{Blame, Failure};
use netio::side_by_side;
use netio::stop::Stop;
use pair::{InterfacePair, mtus};
use places::PortPlaces;
use port::acceptable;
pub(crate) use port::blame;
use record::quantity::counted;
use record::summary::Summary;

/// The interval in milliseconds between two checks for a signal; most signals interrupt the wait
/// immediately.
const SIGNAL_CHECK_MS: u8 = 100;

/// The time for which the start of a box waits until the new port of a bridge has its carrier.
const INSERT_TIMEOUT: Duration = Duration::from_secs(10);

/// The leased interfaces and the emulator between them.
pub(crate) struct WanBox {
    /// The interface pairs, in the order of the links.
    pairs: Vec<InterfacePair>,
    /// Finds their ports.
    places: PortPlaces,
    /// The names of their interfaces, as others show them.
    names: Vec<EndNames>,
    /// Leases an interface that comes back.
    leases: InterfaceLeases,
    /// The rule that keeps the host's stack out of all interfaces.
    guard: IngressDrop,
    /// Allows interfaces that have addresses or routes or lead to the default route.
    force: bool,
    watcher: LinkWatcher,
    running: Forwarders,
    stop: Stop,
    holder: BoxHolder,
    reported_holder_death: bool,
    /// Looks for containers that restart, if links are inserted at containers.
    containers: Option<ContainerWatcher>,
    /// Keeps Landlock's rule for the interfaces' sysctls in force.
    _sysctls: Option<File>,
}

/// A link of a box and the names of the interfaces that it connects.
pub(crate) struct BoxLink {
    /// The names of the interfaces on side A and side B.
    pub(crate) names: EndNames,
    pub(crate) link: EmulatedLink,
    /// The place of side A in a bridge, if the link is inserted there.
    pub(crate) insertion: Option<Insertion>,
}

/// The end of a box: its cause, and the actions on its interfaces.
pub(crate) struct BoxEnd {
    /// Ends the box.
    pub(crate) stop: Stop,
    pub(crate) on_exit: OnExit,
    /// The holder, if it runs already because links are inserted.
    pub(crate) holder: Option<EarlyHolder>,
}

/// The place of an interface in a bridge, which the other end of side B takes while the box runs.
#[derive(Debug)]
pub(crate) struct Insertion {
    pub(crate) place: BridgePort,
    /// The interface that takes the place.
    pub(crate) far: Interface,
    /// The leases of side A and side B. The latter removes the pair to which both ends belong.
    pub(crate) leases: [InterfaceLease; 2],
    /// The interface of the container, if it is one.
    container: Option<ContainerEnd>,
}

impl WanBox {
    /// Takes all interfaces and starts to forward between the two of each link, with this number of
    /// threads, for which [`make_room`] has made room. `beside` starts whatever else runs in this process and is
    /// confined together with it.
    pub(crate) fn up<T>(
        links: Vec<BoxLink>,
        threads: usize,
        force: bool,
        end: BoxEnd,
        options: ForwarderOptions,
        beside: impl FnOnce(&Forwarders) -> Result<T>,
    ) -> Result<(Self, T), Failure> {
        // If the start fails, the holder ends after the leases of the inserted links.
        let BoxEnd {
            stop,
            on_exit,
            holder,
        } = end;
        let parts = links.into_iter();
        let parts = parts.map(|of| (of.names, (of.insertion, of.link)));
        let (shown, parts): (Vec<EndNames>, Vec<_>) = parts.unzip();
        let (insertions, links): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let names: Vec<[String; 2]> = shown.iter().map(EndNames::now).collect();
        let found = find_all(&names, force)?;
        // From here on, a signal or the death of the forwarder ends the box in order.
        let stop = stop.or(&options.died, EMULATOR_DIED);
        let leases = InterfaceLeases::open().map_err(blame)?;
        let shares = distribute(found.len(), threads);
        let mut sockets = open(&found, &insertions, &shares)?;
        let containers = insertions.iter();
        let containers = containers.map(|of| of.as_ref()?.container.clone());
        let containers = ContainerWatcher::start(containers.collect())?;
        let (guard, mut holder) = if let Some(early) = holder {
            early.into_parts()
        } else {
            let first = found.first().map_or("", |[a, _]| a.name.as_str());
            let guard = IngressDrop::open(first).or_machine()?;
            let holder = BoxHolder::start(on_exit, &guard)?;
            (guard, holder)
        };
        for (link, pair) in found.iter().enumerate() {
            holder.set_interfaces(link, pair.each_ref().map(|of| of.index));
        }
        let started = || -> Result<_, Failure> {
            let names: Vec<String> = found.iter().flatten().map(|of| of.name.clone()).collect();
            // The host still uses side A of an inserted link until the link is inserted.
            let early = found.iter().zip(&insertions);
            let early = early.flat_map(|(pair, insertion)| &pair[insertion.iter().count()..]);
            let early: Vec<String> = early.map(|of| of.name.clone()).collect();
            let pairs = found.into_iter().zip(insertions).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let early: Vec<&str> = early.iter().map(String::as_str).collect();
            let take = |(found, insertion)| InterfacePair::take(found, insertion, &leases);
            // Among many interfaces the guard takes as long as the leases, because the kernel looks for each interface by its name.
            let (guarded, pairs) =
                side_by_side::both(|| guard.guard(&early), || side_by_side::each(pairs, take));
            let pairs = pairs?;
            guarded.or_machine()?;
            let mut pairs = side_by_side::each(pairs, InterfacePair::raise)?;
            if let [_, _] = names[..] {
                for (socket, name) in sockets.iter_mut().flatten().zip(&names) {
                    // If this fails, trains of tunnel packets leave in another form; `doctor`
                    // explains why.
                    let _ = socket.take_tunnels(name);
                }
            }
            let confinement = Confinement::begin()?;
            let running = Forwarders::start(place(sockets, &shares, links), shares, options)?;
            for (link, pair) in pairs.iter_mut().enumerate() {
                if pair.is_inserted() {
                    inserted::insert(pair, link, &guard, &running, INSERT_TIMEOUT)?;
                }
            }
            let beside = beside(&running)?;
            // It does not see what the box itself has changed. The present states are read after it begins to watch.
            let watcher = LinkWatcher::new().context("cannot watch the interfaces")?;
            let sysctls = confinement.complete()?;
            Ok((pairs, guard, running, watcher, beside, sysctls))
        };
        match started() {
            Ok((pairs, guard, running, watcher, beside, sysctls)) => {
                let mut places = PortPlaces::default();
                for (link, pair) in pairs.iter().enumerate() {
                    for side in [Side::A, Side::B] {
                        places.lease(pair.port(side).interface.index, (link, side));
                    }
                }
                let wan_box = Self {
                    pairs,
                    places,
                    names: shown,
                    leases,
                    guard,
                    force,
                    watcher,
                    running,
                    stop,
                    holder,
                    reported_holder_death: false,
                    containers,
                    _sysctls: sysctls,
                };
                Ok((wan_box, beside))
            }
            Err(failure) => {
                // The box did not start, so the leases have undone their changes.
                holder.dismiss();
                Err(failure)
            }
        }
    }

    /// Passes carrier losses on until a signal ends the box. Then restores everything, has the
    /// holder do its work and returns the summaries of all links, in order.
    ///
    /// # Errors
    /// Fails if the forwarder has died or if a change to an interface cannot be undone.
    pub(crate) fn run(mut self) -> Result<Vec<Summary>> {
        let ended = self.watch();
        service_manager::stopping();
        // Nothing passes an inserted link from here on, until its container is back in the bridge.
        let summaries = self.running.stop_soon();
        let events: Vec<_> = self.pairs.iter().map(InterfacePair::events).collect();
        let mut restored = Ok(());
        for pair in self.pairs.iter_mut().filter(|pair| pair.is_inserted()) {
            let container = pair.port_mut(Side::A);
            restored = restored.and(container.end());
            self.guard.forget(container.interface.index);
        }
        // The leases end here, after the last packet, and the drop rule ends with the holder.
        let others = side_by_side::each(self.pairs, InterfacePair::end);
        drop(self.guard);
        let outcome = ended.and(summaries);
        self.holder.end(outcome.is_ok())?;
        let with_events = |(summary, interfaces)| Summary {
            interfaces,
            ..summary
        };
        let summaries = outcome?;
        restored.and(others)?;
        Ok(summaries.into_iter().zip(events).map(with_events).collect())
    }

    fn watch(&mut self) -> Result<()> {
        let mut watchdog = Watchdog::from_environment();
        let lookup = InterfaceLookup::open()?;
        let mut gone = Vec::new();
        for (link, pair) in self.pairs.iter_mut().enumerate() {
            for side in [Side::A, Side::B] {
                match look_up(&lookup, pair.port(side).interface.index)? {
                    Some(now) => pair.pass_on(side, now.carrier).map(drop)?,
                    // The change that said so may have come before.
                    None => gone.push((link, side)),
                }
            }
        }
        for (link, side) in gone {
            if self.pairs[link].port(side).lease.is_some() {
                self.lose(link, side)?;
            }
        }
        // A container may have joined a network since its links were found.
        self.follow_others()?;
        while self.stop.cause().is_none() {
            let has_answers = self.wait()?;
            self.follow_all()?;
            if has_answers {
                self.follow_containers()?;
            }
            if let Some(watchdog) = &mut watchdog {
                watchdog.check(|| self.running.ask_whether_alive());
            }
            if self.holder.has_ended() && !std::mem::replace(&mut self.reported_holder_death, true)
            {
                warn(
                    "the helper process has died: --on-exit has no effect if this process is killed",
                );
            }
        }
        Ok(())
    }

    /// Waits for a change of interfaces or an answer about containers, but not long. Returns whether there are answers.
    fn wait(&self) -> Result<bool> {
        let changes = PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN);
        let answers = self.containers.as_ref().map(ContainerWatcher::output);
        let answers = answers.map(|of| PollFd::new(of.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = [Some(changes), answers].into_iter().flatten().collect();
        match poll(&mut fds, SIGNAL_CHECK_MS) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e).context("cannot watch the interfaces"),
        }
        let happened = fds.get(1).and_then(PollFd::revents);
        Ok(happened.is_some_and(|events| !events.is_empty()))
    }

    /// Handles all changes of interfaces since the last call.
    fn follow_all(&mut self) -> Result<()> {
        let changes = self
            .watcher
            .changes()
            .context("cannot watch the interfaces")?;
        // This is called ten times a second, and hardly ever with a change.
        if changes.is_empty() {
            return Ok(());
        }
        let lookup = InterfaceLookup::open()?;
        changes
            .iter()
            .try_for_each(|change| self.follow(change, &lookup))
    }

    /// Handles a change of any interface. The current state, as read by `lookup`, counts rather than
    /// the state in the message, because a late message may describe a change that the box itself
    /// has made.
    fn follow(&mut self, change: &LinkChange, lookup: &InterfaceLookup) -> Result<()> {
        if let Some((link, side)) = self.places.leased(change.index) {
            if change.gone {
                return self.lose(link, side);
            }
            // If the interface does not exist any more, a later message says that it is gone.
            let Some(now) = look_up(lookup, change.index)? else {
                return Ok(());
            };
            let pair = &mut self.pairs[link];
            pair.update(side, &now);
            if pair.pass_on(side, now.carrier)? {
                pair.port_mut(side).events.carrier_losses += 1;
            }
            return Ok(());
        }
        let back = self.places.waiting(&change.name);
        if let Some((link, side)) = back.filter(|_| !change.gone) {
            return self.take_again(link, side);
        }
        if let Some(containers) = self.containers.as_mut().filter(|_| change.gone) {
            containers.forget(change.index);
        } else if self.containers.is_some()
            && let Ok(now) = lookup.by_index(change.index)
        {
            self.follow_other(&now);
        }
        Ok(())
    }

    /// Handles an interface that has left the namespace: the other side loses its carrier, as if a
    /// cable had been pulled.
    fn lose(&mut self, link: usize, side: Side) -> Result<()> {
        let port = self.pairs[link].port_mut(side);
        port.lease = None;
        port.events.gone += 1;
        self.guard.forget(port.interface.index);
        self.places.forget(port.interface.index);
        let gone = port.name().to_owned();
        if self.pairs[link].is_inserted() {
            return self.end_inserted(link, side, &gone);
        }
        self.places.wait(&gone, (link, side));
        let message = format!("interface {gone} is gone: waiting for its return");
        log(format_args!("farwire: {message}"));
        service_manager::status(&message);
        self.pairs[link].pass_on(side, false).map(drop)
    }

    /// Handles an interface that has come back under its old name: takes it again if that is
    /// possible.
    fn take_again(&mut self, link: usize, side: Side) -> Result<()> {
        let name = self.pairs[link].port(side).name().to_owned();
        let take = || -> Result<_, Failure> {
            let found = port::find(&name, self.force)?;
            let mut lease = port::lease(&found, &self.leases)?;
            self.guard.take_again(&found.name).or_machine()?;
            let keep_down = self.pairs[link].keeps_down(side);
            let raised = lease.set_up(!keep_down).map_err(blame);
            let (forwarder, number) = self.running.of_link(link);
            let joined = raised.and_then(|_| Ok(forwarder.rejoin(number, side, found.index)?));
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
                // Something may still be configuring the interface; its next change causes another
                // attempt.
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
        port.events.back += 1;
        self.places.stop_waiting(&name, (link, side));
        self.places.lease(found.index, (link, side));
        port.interface = found;
        port.lease = Some(lease);
        self.holder.set_interfaces(link, pair.indices());
        let message = format!("interface {name} is back");
        log(format_args!("farwire: {message}"));
        service_manager::status(&message);
        pair.warn_of_mtus();
        let carrier = Interface::find(&name).is_ok_and(|now| now.carrier);
        pair.pass_on(side, carrier).map(drop)
    }
}

/// Looks up the interface with this number; `None` if there is none.
fn look_up(lookup: &InterfaceLookup, index: u32) -> Result<Option<Interface>, InterfaceError> {
    match lookup.by_index(index) {
        Err(InterfaceError::Missing(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// Looks up all interfaces and refuses those that a box must not take.
fn find_all(names: &[[String; 2]], force: bool) -> Result<Vec<[Interface; 2]>, Failure> {
    let lookup = InterfaceLookup::open().or_machine()?;
    let host = HostUse::now().or_machine()?;
    let mut taken = HashSet::new();
    let mut find = |name: &String| {
        let found = lookup.find(name).or_bad_input()?;
        if !taken.insert(found.index) {
            return Err(Failure::bad_input(format!(
                "{name} is named twice: an interface can belong to one link only"
            )));
        }
        acceptable(found, &host, force)
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

/// The descriptors that the rest of a box needs at most, including those of threads that work on
/// many interfaces in parallel.
const OTHER_DESCRIPTORS: u64 = 64;

/// The descriptors of a forwarder thread: its two rings, or four if it has one link, its alarm and its
/// commands.
const DESCRIPTORS_OF_THREAD: u64 = 8;

/// Makes sure that this process may have enough descriptors for a box of this number of links and threads.
/// The packet log and the capture of each link need `of_records`, and none of their files is open yet.
///
/// # Errors
/// Blames the machine if the limit is too low and cannot be raised.
pub(crate) fn make_room(links: usize, threads: usize, of_records: u64) -> Result<(), Failure> {
    let what = || counted(links as u64, "link");
    descriptors::make_room(needed_descriptors(links, threads, of_records))
        .with_context(what)
        .or_machine()
}

fn needed_descriptors(links: usize, threads: usize, of_records: u64) -> u64 {
    let parallel = 4 * side_by_side::threads(2 * links) as u64;
    let of_threads = threads as u64 * DESCRIPTORS_OF_THREAD;
    let of_links = links as u64 * of_records;
    of_links + of_threads + OTHER_DESCRIPTORS + parallel
}

/// Opens all interfaces, for each thread those of its links. On side A of an inserted link it opens the interface that will take the
/// place of side A in the bridge. It is down, so that nothing arrives before the link is inserted.
fn open(
    found: &[[Interface; 2]],
    insertions: &[Option<Insertion>],
    shares: &[Range<usize>],
) -> Result<Vec<Vec<AfPacket>>, Failure> {
    let names = |([a, b], insertion): (&[Interface; 2], &Option<Insertion>)| {
        let first = insertion.as_ref().map_or(a, |of| &of.far);
        [first.name.clone(), b.name.clone()]
    };
    let names: Vec<[String; 2]> = found.iter().zip(insertions).map(names).collect();
    let open_share = |share: Range<usize>| {
        let names: Vec<&str> = names[share].iter().flatten().map(String::as_str).collect();
        threads::open(&names).or_machine()
    };
    let open_all = || side_by_side::each(shares.to_vec(), open_share);
    if insertions.iter().all(Option::is_none) {
        return open_all();
    }
    // The kernel clears the memory of the rings without a pause. A container that runs needs the other processors meanwhile.
    let open_on_one = || {
        let first = cpu::allowed().ok().and_then(|all| all.first().copied());
        // Otherwise the container may wait.
        let _ = first.map(cpu::run_on);
        open_all()
    };
    thread::scope(|scope| {
        let opened = scope.spawn(open_on_one).join();
        opened.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_log_and_the_capture_of_each_link_need_descriptors() {
        let [without, with] = [0, 5].map(|of_records| needed_descriptors(40, 2, of_records));
        assert_eq!(with, without + 200);
    }
}
