//! A stage: one thing that happens to every packet of a path, and what it counted.

use alloc::string::String;
use core::mem;

use crate::counters::StageReport;
use crate::impair::delay::{Delay, DelayLine};
use crate::impair::loss::Loss;
use crate::in_flight::{Entered, InFlight};
use crate::packet::DropCause;
use crate::queue::server::Server;
use crate::time::Nanos;

/// A stage of a link, with its name and its counters.
#[derive(Debug)]
pub(crate) struct NamedStage {
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
    /// A delay after the path's last server: it answers with the due time at once.
    Delay(Delay),
    /// A delay before a server: it holds its packets until they are due.
    DelayLine(DelayLine),
}

impl NamedStage {
    pub(crate) fn new(name: String, stage: Stage) -> Self {
        Self {
            name,
            stage,
            packets: 0,
            dropped: 0,
        }
    }

    /// Takes `in_flight` in at `at`.
    #[inline]
    pub(crate) fn enter(&mut self, at: Nanos, in_flight: InFlight) -> Entered {
        let index = self.packets;
        self.packets += 1;
        let entered = match &mut self.stage {
            Stage::Delay(delay) => Entered::Passes(delay.due(at, in_flight.packet.len)),
            Stage::Loss(loss) if loss.hits(index) => Entered::Dropped(DropCause::Loss),
            Stage::Loss(_) => Entered::Passes(at),
            Stage::DelayLine(line) => line.enter(at, in_flight),
            Stage::Server(server) => server.enter(at, in_flight),
        };
        self.dropped += u64::from(matches!(entered, Entered::Dropped(_)));
        entered
    }

    /// The packet that leaves at `at`, the time this stage asked for, and the next such time.
    pub(crate) fn release(&mut self, at: Nanos) -> Option<(InFlight, Option<Nanos>)> {
        match &mut self.stage {
            Stage::Server(server) => server.release(at),
            Stage::DelayLine(line) => line.release(),
            Stage::Loss(_) | Stage::Delay(_) => None,
        }
    }

    /// Makes a delay hold its packets.
    pub(crate) fn hold(&mut self) {
        if let Stage::Delay(delay) = &mut self.stage {
            let delay = mem::take(delay);
            self.stage = Stage::DelayLine(DelayLine::new(delay));
        }
    }

    pub(crate) fn report(&self) -> StageReport<'_> {
        let (cause, held, longest_queue) = match &self.stage {
            Stage::Server(server) => (
                Some(DropCause::QueueFull),
                server.held(),
                server.longest_queue(),
            ),
            Stage::DelayLine(line) => (None, line.held(), 0),
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
