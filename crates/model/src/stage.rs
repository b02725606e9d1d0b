//! A stage: one thing that happens to every packet of a path, and what it counted.

use alloc::string::String;
use core::mem;

use crate::impair::delay::{Delay, Pipe};
use crate::impair::loss::Loss;
use crate::path::Transit;
use crate::queue::server::{Admission, Server};
use crate::{DropCause, Nanos, StageReport};

/// A stage in a link's arena, by its name.
#[derive(Debug)]
pub(crate) struct Slot {
    name: String,
    pub(crate) stage: Stage,
    packets: u64,
    dropped: u64,
}

/// What a stage does.
#[derive(Debug)]
pub(crate) enum Stage {
    Server(Server),
    Loss(Loss),
    /// A delay after which nothing is left to decide but loss: it answers at once.
    Delay(Delay),
    /// A delay before a server: it holds what is in flight.
    Pipe(Pipe),
}

/// What became of a packet that entered a stage.
pub(crate) enum Entered {
    /// It leaves at this time.
    Passes(Nanos),
    /// It is held; the stage may ask to be woken.
    Held(Option<Nanos>),
    /// It is gone.
    Dropped(DropCause),
}

impl Slot {
    pub(crate) fn new(name: String, stage: Stage) -> Self {
        Self {
            name,
            stage,
            packets: 0,
            dropped: 0,
        }
    }

    /// Takes `transit` in at `at`.
    #[inline]
    pub(crate) fn enter(&mut self, at: Nanos, transit: Transit) -> Entered {
        let index = self.packets;
        self.packets += 1;
        let entered = match &mut self.stage {
            Stage::Delay(delay) => Entered::Passes(delay.due(at, transit.packet.len)),
            Stage::Loss(loss) if loss.hits(index) => Entered::Dropped(DropCause::Loss),
            Stage::Loss(_) => Entered::Passes(at),
            Stage::Pipe(pipe) => Entered::Held(pipe.enter(at, transit)),
            Stage::Server(server) => match server.enter(at, transit) {
                Admission::Served(until) => Entered::Held(Some(until)),
                Admission::Waits => Entered::Held(None),
                Admission::Refused => Entered::Dropped(DropCause::QueueFull),
            },
        };
        self.dropped += u64::from(matches!(entered, Entered::Dropped(_)));
        entered
    }

    /// The packet that leaves at `at`, the time this stage asked for, and the next such time.
    pub(crate) fn release(&mut self, at: Nanos) -> Option<(Transit, Option<Nanos>)> {
        match &mut self.stage {
            Stage::Server(server) => server.release(at),
            Stage::Pipe(pipe) => pipe.release(),
            Stage::Loss(_) | Stage::Delay(_) => None,
        }
    }

    /// Makes a delay hold its packets.
    pub(crate) fn hold(&mut self) {
        if let Stage::Delay(delay) = &mut self.stage {
            let delay = mem::take(delay);
            self.stage = Stage::Pipe(Pipe::new(delay));
        }
    }

    pub(crate) fn report(&self) -> StageReport<'_> {
        let (cause, held, longest_queue) = match &self.stage {
            Stage::Server(server) => (
                Some(DropCause::QueueFull),
                server.held(),
                server.longest_queue(),
            ),
            Stage::Pipe(pipe) => (None, pipe.held(), 0),
            Stage::Loss(_) => (Some(DropCause::Loss), 0, 0),
            Stage::Delay(_) => (None, 0, 0),
        };
        StageReport {
            name: &self.name,
            packets: self.packets,
            dropped: self.dropped,
            cause,
            held: held as u64,
            longest_queue: longest_queue as u64,
        }
    }
}
