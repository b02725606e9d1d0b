//! The contract of a stage: one effect on every packet of a path.

use alloc::vec::Vec;

use crate::counters::{DelayStatistics, Waiting};
use crate::in_flight::InFlight;
use crate::packet::{DropCause, Reply};
use crate::schedule::ScheduleClock;
use crate::spec::Effect;
use crate::time::Nanos;

/// An effect on packets at one place of their path.
///
/// A stage returns what happens to the packet that enters, and reports everything else through [`Out`]. It does not
/// hold packets only to delay them: the link keeps a packet that passes with a later time, if a later stage needs that.
pub(crate) trait Stage {
    /// Takes in `t` at `at`; `t` is number `index` of its stream at this stage.
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult;

    /// Does what is due at `at`, the time that [`Stage::next`] returned. Returns the packet that leaves then, if any,
    /// which leaves before everything that is reported through `out`.
    fn wake(&mut self, _at: Nanos, _out: &mut Out) -> Option<InFlight> {
        None
    }

    /// Returns when something may happen to a packet that it holds.
    fn next(&self) -> Option<Nanos> {
        None
    }

    /// Has the effect `effect` from `at` on, which is of its kind or [`Effect::Nothing`].
    fn set(&mut self, at: Nanos, effect: &Effect);

    /// Follows `clock` from `at` on, if its effects have times of their own beside those of the schedule.
    fn follow(&mut self, _at: Nanos, _clock: ScheduleClock) {}

    /// Returns the number of packets that it holds.
    fn held(&self) -> usize {
        0
    }

    /// Returns the largest number of packets that ever waited in it.
    fn longest_queue(&self) -> usize {
        0
    }

    /// Returns what waits in it at `at`, if it is a server.
    fn backlog(&self, _at: Nanos) -> Option<Waiting> {
        None
    }

    /// Returns statistics of the delays that it gave, if they vary at random.
    fn delays(&self) -> Option<DelayStatistics> {
        None
    }

    /// Returns whether a packet that passes at `at` without any effect can overtake nothing that the stage has passed.
    fn settled(&self, _at: Nanos) -> bool {
        self.held() == 0
    }
}

/// The result for a packet that enters a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryResult {
    /// It leaves the stage at this time, which may lie ahead.
    Passes(Nanos),
    /// It is dropped.
    Dropped(DropCause),
    /// It is dropped, and its sender gets a reply.
    Refused(DropCause, Reply),
    /// The stage holds it.
    Taken,
}

/// The order in which packets must enter a stage and in which they leave it, from which the link knows where packets
/// have to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) entries: Entries,
    pub(crate) departures: Departures,
}

/// The order in which packets must enter a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entries {
    /// Any order: no packet's outcome depends on another packet.
    #[default]
    AnyOrder,
    /// The order of their times: a packet's outcome depends on those before it.
    InOrder,
    /// The order of their times, each when model time has reached its own: a packet's outcome depends on what the stage
    /// holds.
    Now,
}

/// The time at which packets leave a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Departures {
    /// When they enter, or when the stage is woken.
    #[default]
    Immediate,
    /// Later, in the order in which they entered.
    LaterInOrder,
    /// Later; a packet may leave before another one that entered earlier.
    AnyOrder,
}

/// The outputs of a stage, in addition to the result for the packet that entered.
#[derive(Debug, Default)]
pub(crate) struct Out {
    outputs: Vec<Output>,
}

/// A packet, and what happens to it at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) at: Nanos,
    pub(crate) t: InFlight,
    pub(crate) outcome: PacketOutcome,
}

/// The event that an output reports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOutcome {
    /// A held packet leaves.
    Passes,
    /// A copy was made and leaves.
    Copied,
    /// A copy was made and enters the same stage.
    CopiedAgain,
    /// A held packet is dropped.
    Dropped(DropCause),
}

impl Out {
    /// Reports that the held packet `t` leaves at `at`.
    #[inline]
    pub(crate) fn pass(&mut self, at: Nanos, t: InFlight) {
        self.push(at, t, PacketOutcome::Passes);
    }

    /// Reports a copy of `t` that leaves at `at`, behind `t`.
    pub(crate) fn copy(&mut self, at: Nanos, t: InFlight) {
        self.push(at, t, PacketOutcome::Copied);
    }

    /// Reports a copy of `t` that enters the stage that `t` has just entered, before any other packet does.
    pub(crate) fn copy_again(&mut self, at: Nanos, t: InFlight) {
        self.push(at, t, PacketOutcome::CopiedAgain);
    }

    /// Reports that the held packet `t` is dropped at `at`.
    pub(crate) fn drop(&mut self, at: Nanos, t: InFlight, cause: DropCause) {
        self.push(at, t, PacketOutcome::Dropped(cause));
    }

    /// Returns the number of outputs that were not removed yet.
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

    /// Removes the latest outputs, down to a length of `len`.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.outputs.truncate(len);
    }

    #[inline]
    fn push(&mut self, at: Nanos, t: InFlight, outcome: PacketOutcome) {
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

    /// Returns the stricter order of entries of both, and the looser order of departures.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            entries: self.entries.max(other.entries),
            departures: self.departures.max(other.departures),
        }
    }
}
