//! A gate: an outage that holds packets until it is over.

use alloc::collections::VecDeque;

use crate::behaviour::{Behaviour, Holding};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::spec::{Effect, Gate};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::units::QueueLimit;

/// Holds packets that come while it is closed, and lets all of them go together when it opens.
#[derive(Debug)]
pub(crate) struct GateStage {
    gate: Gate,
    waiting: VecDeque<InFlight>,
    /// The L2 bytes that wait.
    bytes: u64,
    longest: usize,
    /// The time at which it opened, while packets still wait.
    opened: Option<Nanos>,
}

const OPEN: Gate = Gate {
    open: true,
    queue: QueueLimit::Packets(u32::MAX),
};

impl GateStage {
    pub(crate) fn new(_start: Nanos, _: Draws) -> Self {
        Self {
            gate: OPEN,
            waiting: VecDeque::new(),
            bytes: 0,
            longest: 0,
            opened: None,
        }
    }
}

impl Gate {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            holds: if self.open {
                Holding::Never
            } else {
                Holding::UntilChanged
            },
            room: Some(self.queue),
            timing: Timing::NOW,
            ..Behaviour::default()
        }
    }
}

impl Stage for GateStage {
    fn enter(&mut self, at: Nanos, _: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        if self.gate.open && self.waiting.is_empty() {
            return EntryResult::Passes(at);
        }
        let bytes = self.bytes + t.packet.len.0;
        let fits = match self.gate.queue {
            QueueLimit::Packets(limit) => self.waiting.len() < limit as usize,
            QueueLimit::Bytes(limit) => bytes <= limit.0,
            QueueLimit::Time(_) | QueueLimit::TimeOrPackets(..) => true,
        };
        if !fits {
            return EntryResult::Dropped(DropCause::QueueFull);
        }
        self.bytes = bytes;
        self.waiting.push_back(*t);
        self.longest = self.longest.max(self.waiting.len());
        EntryResult::Taken
    }

    fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
        self.opened = None;
        self.bytes = 0;
        self.waiting.drain(..).for_each(|t| out.pass(at, t));
        None
    }

    fn next(&self) -> Option<Nanos> {
        self.opened
    }

    fn set(&mut self, at: Nanos, effect: &Effect) {
        self.gate = match effect {
            Effect::Gate(gate) => *gate,
            _ => OPEN,
        };
        self.opened = (self.gate.open && !self.waiting.is_empty()).then_some(at);
    }

    fn held(&self) -> usize {
        self.waiting.len()
    }

    fn longest_queue(&self) -> usize {
        self.longest
    }
}
