//! The link: stages in an arena, a path over them for each side, and the order of events.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::agenda::Agenda;
use crate::path::{Layout, Transit};
use crate::stage::{Entered, Slot};
use crate::{
    ConfigError, Counters, DropCause, LinkConfig, Nanos, Outcome, Packet, Side, StageReport,
};

/// A link in model time: offer packets, poll outcomes, ask when to come back.
///
/// What happens inside happens at its *logical* time, in the order of those times over both
/// directions and all stages, equal times in the order in which they were foreseen; at one instant
/// what leaves a stage goes before what arrives at the link. So outcomes depend on the offers alone: a
/// late or an extra `poll` changes nothing, unless a packet is offered that arrived before something
/// already decided for its direction.
///
/// A packet is decided once nothing can change its fate any more: when it leaves its last server, or at
/// once if it meets none. Its due time then lies ahead by the delays that remain.
#[derive(Debug)]
pub struct Link {
    stages: Vec<Slot>,
    paths: [Vec<usize>; 2],
    /// Whether the directions share a stage, so that an arrival may not precede either one's events.
    shared: bool,
    agenda: Agenda,
    /// The latest arrival or event of each direction.
    clocks: [Nanos; 2],
    decided: VecDeque<Decided>,
    counters: [Counters; 2],
    held: [u64; 2],
}

/// An outcome that was not handed out yet.
///
/// Flat, because an [`Outcome`] moved through the queue in pieces doubles what a delayed packet costs.
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
        let Layout {
            stages,
            paths,
            shared,
        } = Layout::new(config);
        Ok(Self {
            agenda: Agenda::new(stages.len()),
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
        let transit = Transit {
            packet,
            side: ingress,
            step: 0,
        };
        self.carry(at, transit);
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
        self.agenda.first().map(|(at, _)| at)
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
        self.stages.iter().map(Slot::report)
    }

    /// Processes the earliest event, if it lies at or before `now`.
    #[inline]
    fn step(&mut self, now: Nanos) -> bool {
        let Some((at, index)) = self.agenda.first().filter(|&(at, _)| at <= now) else {
            return false;
        };
        let (transit, next) = self.stages[index]
            .release(at)
            .expect("a stage asks to be woken only while it holds a packet");
        self.agenda.set(index, next);
        self.advance_clock(transit.side, at);
        self.carry(at, transit);
        true
    }

    /// Takes `transit` on from stage to stage, until one holds it or its outcome is decided.
    #[inline]
    fn carry(&mut self, mut at: Nanos, mut transit: Transit) {
        let dropped = loop {
            let Some(&index) = self.paths[transit.side.index()].get(transit.step) else {
                break None;
            };
            transit.step += 1;
            match self.stages[index].enter(at, transit) {
                Entered::Passes(later) => at = later,
                Entered::Held(None) => return,
                Entered::Held(wake) => return self.agenda.set(index, wake),
                Entered::Dropped(cause) => break Some(cause),
            }
        };
        self.decided.push_back(Decided {
            packet: transit.packet,
            ingress: transit.side,
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
