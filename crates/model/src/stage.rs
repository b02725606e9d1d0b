//! A stage: one thing that happens to every packet of a path. The contract.

use alloc::vec::Vec;

use crate::counters::{Achieved, Waiting};
use crate::in_flight::InFlight;
use crate::packet::{DropCause, Reply};
use crate::spec::Effect;
use crate::time::Nanos;

/// What happens to packets at one place of their path.
///
/// A stage answers for the packet that enters, and says all else through [`Out`]. It never waits for a packet's sake: one that
/// passes later than it came is kept by the link, if anything after it needs that.
pub(crate) trait Stage {
    /// Takes in `t` at `at`; it is number `index` of its stream here.
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> Entered;

    /// Does what is due at `at`, the time that [`Stage::next`] named; the packet that leaves then, if one does, before all
    /// that is outputs through `out`.
    fn wake(&mut self, _at: Nanos, _out: &mut Out) -> Option<InFlight> {
        None
    }

    /// When something may become of a packet that it holds.
    fn next(&self) -> Option<Nanos> {
        None
    }

    /// Does `effect` from `at` on, which is of its kind or [`Effect::Nothing`].
    fn set(&mut self, at: Nanos, effect: &Effect);

    /// Packets that it holds.
    fn held(&self) -> usize {
        0
    }

    /// The most packets that ever waited in it.
    fn longest_queue(&self) -> usize {
        0
    }

    /// What waits in it at `at`, if it is a server.
    fn backlog(&self, _at: Nanos) -> Option<Waiting> {
        None
    }

    /// What its delays came to, if they vary at random.
    fn delays(&self) -> Option<Achieved> {
        None
    }

    /// Whether nothing that it passed can be overtaken any more by what passes at `at` if it does nothing.
    fn settled(&self, _at: Nanos) -> bool {
        self.held() == 0
    }
}

/// What became of a packet that entered a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It leaves at this time, which may lie ahead.
    Passes(Nanos),
    /// It is dropped.
    Dropped(DropCause),
    /// It is dropped, and its sender is told.
    Refused(DropCause, Reply),
    /// The stage holds it.
    Taken,
}

/// The order in which packets must enter a stage, and in which they leave it: from this the link knows where packets wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) entries: Entries,
    pub(crate) departures: Departures,
}

/// The order in which packets must enter a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entries {
    /// Any: no packet's outcome depends on another packet.
    #[default]
    AnyOrder,
    /// That of their times: a packet's outcome depends on those before it.
    InOrder,
    /// That of their times, each when model time has reached its own: a packet's outcome depends on what the stage holds.
    Now,
}

/// When packets leave a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Departures {
    /// When they enter, or when the stage is woken.
    #[default]
    Immediate,
    /// Later, in the order in which they entered.
    LaterInOrder,
    /// Later, and some before others that entered earlier.
    AnyOrder,
}

/// What a stage says beside the answer for the packet that entered.
#[derive(Debug, Default)]
pub(crate) struct Out {
    outputs: Vec<Output>,
}

/// A packet, and what becomes of it at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) at: Nanos,
    pub(crate) t: InFlight,
    pub(crate) outcome: PacketOutcome,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOutcome {
    /// One that was held leaves.
    Passes,
    /// A copy is made, and leaves.
    Copied,
    /// A copy is made, and enters the same stage.
    CopiedAgain,
    /// One that was held is dropped.
    Dropped(DropCause),
}

impl Out {
    /// A packet that was held leaves at `at`.
    #[inline]
    pub(crate) fn pass(&mut self, at: Nanos, t: InFlight) {
        self.say(at, t, PacketOutcome::Passes);
    }

    /// A copy of `t` leaves at `at`, behind it.
    pub(crate) fn copy(&mut self, at: Nanos, t: InFlight) {
        self.say(at, t, PacketOutcome::Copied);
    }

    /// A copy of `t` is made, which enters the stage that `t` has just entered, next of all.
    pub(crate) fn copy_again(&mut self, at: Nanos, t: InFlight) {
        self.say(at, t, PacketOutcome::CopiedAgain);
    }

    /// A packet that was held is dropped.
    pub(crate) fn drop(&mut self, at: Nanos, t: InFlight, cause: DropCause) {
        self.say(at, t, PacketOutcome::Dropped(cause));
    }

    /// How much was outputs and not taken away.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.outputs.len()
    }

    pub(crate) fn get(&self, place: usize) -> &Output {
        &self.outputs[place]
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> &mut Output {
        &mut self.outputs[place]
    }

    /// Takes away what was outputs last, down to a length of `len`.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.outputs.truncate(len);
    }

    #[inline]
    fn say(&mut self, at: Nanos, t: InFlight, outcome: PacketOutcome) {
        self.outputs.push(Output { at, t, outcome });
    }
}

impl Timing {
    /// No packet's outcome depends on another packet, and each leaves when it enters.
    pub(crate) const NONE: Self = Self {
        entries: Entries::AnyOrder,
        departures: Departures::Immediate,
    };

    /// Packets enter in order, and each leaves when it enters.
    pub(crate) const IN_ORDER: Self = Self {
        entries: Entries::InOrder,
        ..Self::NONE
    };

    /// Packets enter when model time has reached theirs, and leave when they enter or when the stage is woken.
    pub(crate) const NOW: Self = Self {
        entries: Entries::Now,
        ..Self::NONE
    };

    /// The stricter order of entries of both, and the looser order of departures.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            entries: self.entries.max(other.entries),
            departures: self.departures.max(other.departures),
        }
    }
}
