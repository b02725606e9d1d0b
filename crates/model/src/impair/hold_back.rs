//! Reordering with a given extent: a set number of packets overtakes another one.

use alloc::collections::VecDeque;

use crate::behaviour::{Behaviour, Holding};
use crate::draw::{Chance, Draws};
use crate::in_flight::{InFlight, Stream};
use crate::spec::{Effect, HoldBack};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Holds packets back until later ones have passed; see [`HoldBack`]. Copies pass, and do not count as overtaking.
#[derive(Debug, Default)]
pub(crate) struct HoldBackStage {
    chance: Chance,
    extent: u64,
    timeout: Nanos,
    /// The held packets, in the order in which they came.
    held: VecDeque<Held>,
    /// The number of originals that were not held back.
    passed: u64,
    draws: Draws,
}

/// A packet that is held back until `passed` reaches a number, or until a time.
#[derive(Debug)]
struct Held {
    until_passed: u64,
    until: Nanos,
    t: InFlight,
}

impl HoldBackStage {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            draws,
            ..Self::default()
        }
    }
}

impl HoldBack {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            reorders: true,
            varies: true,
            holds: Holding::Temporarily,
            timing: Timing::NOW,
            ..Behaviour::default()
        }
    }
}

impl Stage for HoldBackStage {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult {
        if t.stream() == Stream::Copies {
            return EntryResult::Passes(at);
        }
        if self.chance.hits(self.draws.at(index)) {
            self.held.push_back(Held {
                until_passed: self.passed + self.extent,
                until: at + self.timeout,
                t: *t,
            });
            return EntryResult::Taken;
        }
        self.passed += 1;
        let passed = self.passed;
        let is_over = |held: &mut Held| held.until_passed <= passed;
        while let Some(held) = self.held.pop_front_if(is_over) {
            out.pass(at, held.t);
        }
        EntryResult::Passes(at)
    }

    fn wake(&mut self, at: Nanos, _: &mut Out) -> Option<InFlight> {
        let held = self.held.pop_front_if(|held| held.until <= at)?;
        Some(held.t)
    }

    fn next(&self) -> Option<Nanos> {
        self.held.front().map(|held| held.until)
    }

    fn set(&mut self, at: Nanos, effect: &Effect) {
        let law = match effect {
            Effect::HoldBack(law) => Some(law),
            _ => None,
        };
        self.chance = law.map_or(Chance::NEVER, |law| Chance::of(law.share));
        if let Some(HoldBack {
            extent, timeout, ..
        }) = law
        {
            self.extent = u64::from(extent.get());
            self.timeout = *timeout;
            // No packet waits for longer than one that comes now, so they stay in order.
            for held in &mut self.held {
                held.until_passed = held.until_passed.min(self.passed + self.extent);
                held.until = held.until.min(at + self.timeout);
            }
        } else {
            self.held.iter_mut().for_each(|held| held.until = at);
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }
}
