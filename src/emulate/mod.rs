//! A transparent WAN box between two interfaces that exist.
//!
//! Everything it changes on them is leased: put back at the end, or by the next start if it was killed. The
//! host's own stack is kept out by a drop at ingress, behind the packet taps; addresses stay as they are. What becomes of the
//! interfaces at the box's end is seen to by a process that outlives it ([`holder`]).

mod carrier;
mod confinement;
mod holder;
mod port;

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use model::Side;
use netio::iface::{Interface, InterfaceError, LinkChange, LinkWatcher};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::forward::thread::{EMULATOR_DIED, ForwarderOptions, ForwarderThread};
use crate::notes::note;
use crate::service_manager::{self, Watchdog};
use carrier::{Action, Carriers};
use confinement::Confinement;
use holder::BoxHolder;
pub(crate) use holder::{OnExit, hold};
use instruments::failure::Failure;
use netio::stop::Stop;
pub(crate) use port::blame;
use port::{Port, Taken, find, open};
use record::link_spec::EmulatedLink;
use record::summary::Summary;

/// How often signals are asked for, in milliseconds; most of them end the waiting at once.
const LOOK_AGAIN: u8 = 100;

/// Two interfaces under lease, and the emulator between them.
pub(crate) struct WanBox {
    ports: [Port; 2],
    carriers: Carriers,
    /// Takes also an interface that the default route leads out of.
    force: bool,
    watcher: LinkWatcher,
    running: ForwarderThread,
    stop: Stop,
    holder: BoxHolder,
    told_unheld: bool,
}

impl WanBox {
    /// Takes both interfaces and starts to forward between them.
    pub(crate) fn up(
        names: [&str; 2],
        force: bool,
        on_exit: OnExit,
        link: EmulatedLink,
        options: ForwarderOptions,
    ) -> Result<Self, Failure> {
        let watcher = LinkWatcher::new().context("watching the interfaces")?;
        let [a, b] = names;
        if a == b {
            return Err(Failure::bad_input(format!(
                "{a} is named twice: a box stands between two different interfaces"
            )));
        }
        let found = [find(a, force)?, find(b, force)?];
        if found[0].mtu != found[1].mtu {
            return Err(Failure::bad_input(format!(
                "{}: what fits one would vanish at the other; set both alike",
                mtus(&found)
            )));
        }
        // From here on signals end the box in order, as does a forwarder that dies.
        let stop = Stop::on_signals()?.or(&options.died, EMULATOR_DIED);
        let mut sockets = [open(a)?, open(b)?];
        let holder = BoxHolder::start(on_exit, found.each_ref().map(|found| found.index))?;
        let started = || -> Result<_, Failure> {
            let [first, second] = found;
            let (first, first_raised) = Port::take(first)?;
            let (second, second_raised) = Port::take(second)?;
            let carriers = Carriers::new([first_raised, second_raised]);
            for (socket, name) in sockets.iter_mut().zip(names) {
                // Without, tunnels' trains leave in another form; `doctor` says why.
                let _ = socket.take_tunnels(name);
            }
            let confinement = Confinement::begin()?;
            let running = ForwarderThread::start(sockets, link, options)?;
            confinement.complete()?;
            Ok(([first, second], carriers, running))
        };
        match started() {
            Ok((ports, carriers, running)) => Ok(Self {
                ports,
                carriers,
                force,
                watcher,
                running,
                stop,
                holder,
                told_unheld: false,
            }),
            Err(failure) => {
                // Nothing was begun: what was changed is put back.
                holder.dismiss();
                Err(failure)
            }
        }
    }

    /// Passes carrier losses on until a signal ends the box; then puts everything back, and has done what is to be done
    /// at the end.
    ///
    /// # Errors
    /// The forwarder has died, or what was changed could not be put back.
    pub(crate) fn run(mut self) -> Result<Summary> {
        let ended = self.watch();
        service_manager::stopping();
        let summary = self.running.stop();
        let happened = self.ports.each_ref().map(|port| port.happened.clone());
        // The leases and drops end here, after the last packet.
        drop(self.ports);
        let outcome = ended.and(summary);
        self.holder.end(outcome.is_ok())?;
        let happened = happened.into_iter().filter(|of| !of.is_quiet());
        Ok(Summary {
            interfaces: happened.collect(),
            ..outcome?
        })
    }

    fn watch(&mut self) -> Result<()> {
        let mut watchdog = Watchdog::asked_for();
        // What the box itself did when it took the interfaces, told from their states before.
        self.watcher.changes().context("watching the interfaces")?;
        for side in [Side::A, Side::B] {
            // One that is gone already is told as a change.
            if let Ok(now) = Interface::find(self.port(side).name()) {
                self.pass_on(side, now.carrier)?;
            }
        }
        while self.stop.cause().is_none() {
            let mut fds = [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, LOOK_AGAIN) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("watching the interfaces"),
            }
            for change in self.watcher.changes().context("watching the interfaces")? {
                self.follow(&change)?;
            }
            if let Some(watchdog) = &mut watchdog {
                watchdog.look(|| self.running.ask_whether_alive());
            }
            if self.holder.has_ended() && !std::mem::replace(&mut self.told_unheld, true) {
                eprintln!(
                    "farwire: the box holder has died: --on-exit will not hold if this process is killed"
                );
            }
        }
        Ok(())
    }

    /// Does what follows from a change of any interface. What it is now counts, not what it was when it was told: what is
    /// told late may be what the box itself has done since.
    fn follow(&mut self, change: &LinkChange) -> Result<()> {
        let sides = [Side::A, Side::B];
        let of = |port: &Port| port.taken.is_some() && port.interface.index == change.index;
        if let Some(side) = sides.into_iter().find(|side| of(self.port(*side))) {
            if change.gone {
                return self.lose(side);
            }
            let now = match Interface::by_index(change.index) {
                // It is told next that it is gone.
                Err(InterfaceError::Missing(_)) => return Ok(()),
                other => other?,
            };
            self.take_note(side, &now);
            if self.pass_on(side, now.carrier)? {
                self.ports[side.index()].happened.carrier_losses += 1;
            }
            return Ok(());
        }
        let awaited = |port: &Port| port.taken.is_none() && port.name() == change.name;
        let back = sides.into_iter().find(|side| awaited(self.port(*side)));
        match back.filter(|_| !change.gone) {
            Some(side) => self.take_again(side),
            None => Ok(()),
        }
    }

    /// An interface has left the namespace: the other side loses its carrier, as if a cable was pulled.
    fn lose(&mut self, side: Side) -> Result<()> {
        let port = &mut self.ports[side.index()];
        port.taken = None;
        port.happened.gone += 1;
        let said = format!(
            "interface {} is gone: waiting until it is back",
            port.name()
        );
        note(format_args!("farwire: {said}"));
        service_manager::status(&said);
        self.pass_on(side, false).map(drop)
    }

    /// An interface of that name is there again: goes on with it, if it can be had.
    fn take_again(&mut self, side: Side) -> Result<()> {
        let name = self.port(side).name().to_owned();
        let keep_down = self.carriers.is_lowered(side);
        let take = || -> Result<_, Failure> {
            let found = find(&name, self.force)?;
            let socket = open(&name)?;
            let mut taken = Taken::take(&name)?;
            taken.lease.set_up(!keep_down).map_err(blame)?;
            Ok((found, socket, taken))
        };
        let again = take();
        let port = &mut self.ports[side.index()];
        let (found, socket, taken) = match again {
            Ok(again) => again,
            Err(failure) => {
                // It may still be about to become what it was: with its next change this is tried again.
                let refusal = failure.to_string();
                if refusal != port.refusal {
                    eprintln!("farwire: interface {name} is back, and cannot be taken: {refusal}");
                    port.refusal = refusal;
                }
                return Ok(());
            }
        };
        port.refusal.clear();
        port.happened.back += 1;
        port.interface = found;
        port.taken = Some(taken);
        self.running.replace(side, socket);
        self.holder
            .stand_between(self.ports.each_ref().map(|port| port.interface.index));
        let said = format!("interface {name} is back");
        note(format_args!("farwire: {said}"));
        service_manager::status(&said);
        self.warn_of_mtus();
        let carrier = Interface::find(&name).is_ok_and(|now| now.carrier);
        self.pass_on(side, carrier).map(drop)
    }

    /// A name or an MTU may be another.
    fn take_note(&mut self, side: Side, now: &Interface) {
        let interface = &mut self.ports[side.index()].interface;
        interface.name.clone_from(&now.name);
        if std::mem::replace(&mut interface.mtu, now.mtu) != now.mtu {
            self.ports[side.index()].happened.mtu_changes += 1;
            self.warn_of_mtus();
        }
    }

    fn warn_of_mtus(&self) {
        let found = self.ports.each_ref().map(|port| port.interface.clone());
        if found[0].mtu != found[1].mtu {
            eprintln!(
                "farwire: {}: what fits one is lost at the other",
                mtus(&found)
            );
        }
    }

    /// Passes the carrier of `side` on to the other side; whether it was lost just now.
    fn pass_on(&mut self, side: Side, carrier: bool) -> Result<bool> {
        let Some(Action { side, up }) = self.carriers.change(side, carrier) else {
            return Ok(false);
        };
        let port = &mut self.ports[side.index()];
        let Some(taken) = &mut port.taken else {
            return Ok(!up);
        };
        let name = &port.interface.name;
        if !up && port.interface.is_configured()? {
            self.carriers.kept_up();
            if !std::mem::replace(&mut port.told_kept_up, true) {
                eprintln!(
                    "farwire: carrier lost, but {name} stays up: it has addresses or routes, which lowering it would take away"
                );
            }
            return Ok(true);
        }
        let word = if up {
            "back: raising"
        } else {
            "lost: lowering"
        };
        note(format_args!("farwire: carrier {word} {name}"));
        match taken.lease.set_up(up) {
            // It has gone this moment, which is told as a change.
            Err(error) if error.is_gone() => {}
            other => drop(other?),
        }
        Ok(!up)
    }

    fn port(&self, side: Side) -> &Port {
        &self.ports[side.index()]
    }
}

/// Both MTUs in words.
fn mtus([a, b]: &[Interface; 2]) -> String {
    let (of_a, of_b) = (&a.name, &b.name);
    format!("{of_a} has MTU {} and {of_b} has MTU {}", a.mtu, b.mtu)
}
