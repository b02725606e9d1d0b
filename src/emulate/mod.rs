//! A transparent WAN box between two interfaces that exist.
//!
//! Everything it changes on them is leased: put back at the end, or by the next start if it was killed. The
//! host's own stack is kept out by a drop at ingress, behind the packet taps; addresses stay as they are.

mod carrier;

use std::io::ErrorKind;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use model::Side;
use netio::AfPacket;
use netio::iface::{Interface, LinkWatcher};
use netio::ingress_drop::IngressDrop;
use netio::lease::{Lease, LeaseError};
use netio::offloads::OffloadError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::forward::thread::{EMULATOR_DIED, ForwarderOptions, ForwarderThread, RING_SLOTS};
use crate::notes::note;
use carrier::{Action, Carriers};
use instruments::failure::{Blame, Failure};
use netio::stop::Stop;
use record::link_spec::EmulatedLink;
use record::summary::Summary;

/// What would merge packets before they are seen, in a form that the virtio header cannot describe or that
/// could not leave as it came (`net/core/dev.c`, `dev_disable_lro` and its like).
const MERGING: [&str; 4] = [
    "rx-lro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
];

/// How often signals are asked for, in milliseconds; most of them end the waiting at once.
const LOOK_AGAIN: u8 = 100;

/// Two interfaces under lease, and the emulator between them.
pub(crate) struct WanBox {
    ports: [Port; 2],
    watcher: LinkWatcher,
    running: ForwarderThread,
    stop: Stop,
}

/// One interface, as long as the box stands.
struct Port {
    interface: Interface,
    lease: Lease,
    /// It was said that this one stays up whatever the other side's carrier does.
    told_kept_up: bool,
    _ingress_drop: IngressDrop,
}

impl WanBox {
    /// Takes both interfaces and starts to forward between them.
    pub(crate) fn up(
        names: [&str; 2],
        force: bool,
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
                "{a} has MTU {} and {b} has MTU {}: what fits one would vanish at the other; set both alike",
                found[0].mtu, found[1].mtu
            )));
        }
        // From here on signals end the box in order, as does a forwarder that dies.
        let stop = Stop::on_signals()?.or(&options.died, EMULATOR_DIED);
        let sockets = [open(a)?, open(b)?];
        let [first, second] = found;
        let ports = [Port::take(first)?, Port::take(second)?];
        let running = ForwarderThread::start(sockets, link, options)?;
        Ok(Self {
            ports,
            watcher,
            running,
            stop,
        })
    }

    /// Passes carrier losses on until a signal ends the box; then puts everything back.
    ///
    /// # Errors
    /// An interface is gone, or the forwarder has died.
    pub(crate) fn run(mut self) -> Result<Summary> {
        let ended = self.watch();
        let summary = self.running.stop();
        // The leases and drops end here, after the last packet.
        drop(self.ports);
        ended.and(summary)
    }

    fn watch(&mut self) -> Result<()> {
        // What the box itself did when it took the interfaces, told from their states before.
        self.watcher.changes().context("watching the interfaces")?;
        let now = [&self.ports[0], &self.ports[1]].map(|p| Interface::find(&p.interface.name));
        let [a, b] = now;
        // As they were found, before they were raised.
        let raised = [&self.ports[0], &self.ports[1]].map(|p| !p.interface.up);
        let mut carriers = Carriers::new(raised);
        for (side, state) in [(Side::A, a?), (Side::B, b?)] {
            self.pass_on(&mut carriers, side, state.carrier)?;
        }
        while self.stop.cause().is_none() {
            let mut fds = [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, LOOK_AGAIN) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("watching the interfaces"),
            }
            for change in self.watcher.changes().context("watching the interfaces")? {
                let Some(side) = self.side_of(change.index) else {
                    continue;
                };
                if change.gone {
                    bail!("interface {} is gone", self.port(side).interface.name);
                }
                self.pass_on(&mut carriers, side, change.carrier)?;
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, carriers: &mut Carriers, side: Side, carrier: bool) -> Result<()> {
        let Some(Action { side, up }) = carriers.change(side, carrier) else {
            return Ok(());
        };
        let port = &mut self.ports[side.index()];
        let name = &port.interface.name;
        if !up && port.interface.is_configured()? {
            carriers.kept_up();
            if !std::mem::replace(&mut port.told_kept_up, true) {
                eprintln!(
                    "farwire: carrier lost, but {name} stays up: it has addresses or routes, which lowering it would take away"
                );
            }
            return Ok(());
        }
        let word = if up {
            "back: raising"
        } else {
            "lost: lowering"
        };
        note(format_args!("farwire: carrier {word} {name}"));
        port.lease.set_up(up)?;
        Ok(())
    }

    fn side_of(&self, index: u32) -> Option<Side> {
        [Side::A, Side::B]
            .into_iter()
            .find(|side| self.port(*side).interface.index == index)
    }

    fn port(&self, side: Side) -> &Port {
        &self.ports[side.index()]
    }
}

impl Port {
    fn take(interface: Interface) -> Result<Self, Failure> {
        let mut lease = Lease::take(&interface.name).map_err(blame)?;
        let ingress_drop = IngressDrop::new(&interface.name).or_machine()?;
        for feature in MERGING {
            lease.switch(feature, false).map_err(blame)?;
        }
        lease.set_up(true).map_err(blame)?;
        Ok(Self {
            interface,
            lease,
            told_kept_up: false,
            _ingress_drop: ingress_drop,
        })
    }
}

/// A want of privilege is the machine's; everything else about a lease can fail anywhere.
fn blame(error: LeaseError) -> Failure {
    let source = match &error {
        LeaseError::Offload(OffloadError { source, .. }) | LeaseError::Journal { source, .. } => {
            source.kind()
        }
        _ => return error.into(),
    };
    match source {
        ErrorKind::PermissionDenied => Failure::machine(error),
        _ => error.into(),
    }
}

/// Looks `name` up and refuses what a box must not take.
fn find(name: &str, force: bool) -> Result<Interface, Failure> {
    let interface = Interface::find(name).or_bad_input()?;
    let refuse = |why: &str| Err(Failure::bad_input(format!("interface {name} {why}")));
    match &interface {
        i if !i.ethernet => refuse("is not Ethernet"),
        i if i.master.is_some() => {
            refuse("is a port of a bridge or bond: take it out of that first")
        }
        i if i.default_route && !force => refuse(
            "leads to the default route: the host would be cut off; --force takes it all the same",
        ),
        _ => Ok(interface),
    }
}

fn open(name: &str) -> Result<AfPacket, Failure> {
    AfPacket::open(name, RING_SLOTS).or_machine()
}
