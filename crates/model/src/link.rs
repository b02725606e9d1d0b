//! The link: its stages, a path through them for each side, and the order of events.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::{ConfigError, LinkConfig};
use crate::counters::{Counters, StageReport};
use crate::in_flight::{Entered, InFlight};
use crate::packet::{DropCause, Outcome, Packet, Side};
use crate::stage::NamedStage;
use crate::time::Nanos;
use crate::timers::Timers;
use crate::topology::Topology;

/// A link in model time: offer packets, poll outcomes, ask when to come back.
///
/// Events inside the link happen at their *logical* times and in the order of those times, over both
/// directions and all stages. Events of the same time happen in the order in which they were scheduled,
/// and a packet that leaves a stage goes before one that arrives at the link. So outcomes depend on the
/// offers alone: a late or an extra `poll` changes nothing, unless a packet is offered that arrived
/// before something already decided for its direction.
///
/// A packet's outcome is decided as soon as nothing can change it any more: when the packet leaves its last
/// server, or at once if its path has none. Its due time then lies ahead by the delays that remain.
#[derive(Debug)]
pub struct Link {
    stages: Vec<NamedStage>,
    paths: [Vec<usize>; 2],
    /// Whether the directions share a stage, so that no arrival may lie before an event of either.
    shared: bool,
    timers: Timers,
    /// The latest arrival or event of each direction.
    clocks: [Nanos; 2],
    decided: VecDeque<Decided>,
    counters: [Counters; 2],
    held: [u64; 2],
}

/// An outcome that was not handed out yet.
///
/// Kept flat: with an [`Outcome`] inside, a delayed packet costs twice as much.
#[derive(Debug)]
struct Decided {
    packet: Packet,
    ingress: Side,
    /// When it is due, unless it is dropped.
    due: Nanos,
    dropped: Option<DropCause>,
}

impl Link {
    /// A link under `config`.
    ///
    /// # Errors
    /// Conditions that contradict each other or lie out of range, by hop and field.
    pub fn new(config: &LinkConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let Topology {
            stages,
            paths,
            shared,
        } = Topology::new(config);
        Ok(Self {
            timers: Timers::new(stages.len()),
            stages,
            paths,
            shared,
            clocks: [Nanos::ZERO; 2],
            decided: VecDeque::new(),
            counters: [Counters::default(); 2],
            held: [0; 2],
        })
    }

    /// Takes a packet that arrived at `at` by `ingress`.
    ///
    /// Offer in the order of arrival. A packet older than its direction's latest arrival or event (of
    /// both directions, if they share a stage) is taken as if it came at that time, and counted as late.
    pub fn offer(&mut self, at: Nanos, ingress: Side, packet: Packet) {
        while self.step(at) {}
        let counters = &mut self.counters[ingress.index()];
        counters.packets += 1;
        counters.bytes += packet.len.0;
        let clock = self.clocks[ingress.index()];
        counters.late += u64::from(at < clock);
        self.held[ingress.index()] += 1;
        let at = at.max(clock);
        self.advance_clock(ingress, at);
        let in_flight = InFlight {
            packet,
            side: ingress,
            step: 0,
        };
        self.carry(at, in_flight);
    }

    /// The next outcome decided by `now`, in the order of decision; `None` when there is no more.
    ///
    /// Poll with a time up to which every arrival was offered: one offered afterwards that is older
    /// than an event already processed is late.
    pub fn poll(&mut self, now: Nanos) -> Option<Outcome> {
        while self.decided.is_empty() && self.step(now) {}
        let decided = self.decided.pop_front()?;
        self.count(&decided);
        let id = decided.packet.id;
        Some(match decided.dropped {
            None => Outcome::Deliver {
                id,
                due: decided.due,
            },
            Some(cause) => Outcome::Drop { id, cause },
        })
    }

    /// When the next undecided packet may be decided; `None` when none is held.
    ///
    /// While outcomes wait to be polled, a time that has passed.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        if !self.decided.is_empty() {
            return Some(self.clocks[0].min(self.clocks[1]));
        }
        self.timers.first().map(|(at, _)| at)
    }

    /// What was counted for packets that entered by `ingress`.
    #[must_use]
    pub fn counters(&self, ingress: Side) -> Counters {
        self.counters[ingress.index()]
    }

    /// Packets that entered by `ingress` and whose outcome was not handed out yet.
    #[must_use]
    pub fn held(&self, ingress: Side) -> u64 {
        self.held[ingress.index()]
    }

    /// What each stage did, hop by hop.
    pub fn stages(&self) -> impl Iterator<Item = StageReport<'_>> {
        self.stages.iter().map(NamedStage::report)
    }

    /// Processes the earliest event, if it lies at or before `now`.
    #[inline]
    fn step(&mut self, now: Nanos) -> bool {
        let Some((at, index)) = self.timers.first().filter(|&(at, _)| at <= now) else {
            return false;
        };
        let (in_flight, next) = self.stages[index]
            .release(at)
            .expect("a stage asks to be woken only while it holds a packet");
        self.timers.set(index, next);
        self.advance_clock(in_flight.side, at);
        self.carry(at, in_flight);
        true
    }

    /// Passes `in_flight` from stage to stage, until one holds it or its outcome is decided.
    #[inline]
    fn carry(&mut self, mut at: Nanos, mut in_flight: InFlight) {
        let dropped = loop {
            let Some(&index) = self.paths[in_flight.side.index()].get(in_flight.step) else {
                break None;
            };
            in_flight.step += 1;
            match self.stages[index].enter(at, in_flight) {
                Entered::Passes(later) => at = later,
                Entered::Held(None) => return,
                Entered::Held(wake) => return self.timers.set(index, wake),
                Entered::Dropped(cause) => break Some(cause),
            }
        };
        self.decided.push_back(Decided {
            packet: in_flight.packet,
            ingress: in_flight.side,
            due: at,
            dropped,
        });
    }

    #[inline]
    fn advance_clock(&mut self, side: Side, at: Nanos) {
        if self.shared {
            self.clocks = [at; 2];
        } else {
            self.clocks[side.index()] = at;
        }
    }

    #[inline]
    fn count(&mut self, decided: &Decided) {
        self.held[decided.ingress.index()] -= 1;
        let counters = &mut self.counters[decided.ingress.index()];
        match decided.dropped {
            None => {
                counters.delivered += 1;
                counters.delivered_bytes += decided.packet.len.0;
            }
            Some(DropCause::Loss) => counters.lost += 1,
            Some(DropCause::QueueFull) => counters.queue_full += 1,
        }
    }
}
