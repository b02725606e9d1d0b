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
    /// What its entries need while it does `effect`, and what it gives.
    fn nature(_effect: &Effect) -> Nature
    where
        Self: Sized,
    {
        Nature::NONE
    }

    /// Takes in `t` at `at`; it is number `index` of its stream here.
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> Entered;

    /// Does what is due at `at`, the time that [`Stage::next`] named; the packet that leaves then, if one does, before all
    /// that is said through `out`.
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

/// What a stage's entries need, and what it gives: from this the link knows where packets must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nature {
    pub(crate) needs: Needs,
    pub(crate) gives: Gives,
}

/// What must hold of a stage's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// Nothing: each packet stands for itself.
    Nothing,
    /// They come in the order of their times.
    Order,
    /// They come when model time is theirs: what the stage does depends on what else it holds.
    Now,
}

/// When packets leave a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gives {
    /// When they enter, or when the stage is woken.
    AtOnce,
    /// Later, in the order in which they entered.
    LaterInOrder,
    /// Later, and some before others that entered earlier.
    AnyOrder,
}

/// What a stage says beside the answer for the packet that entered.
#[derive(Debug, Default)]
pub(crate) struct Out {
    said: Vec<Said>,
}

/// A packet, and what becomes of it at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) at: Nanos,
    pub(crate) t: InFlight,
    pub(crate) fate: Fate,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
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
        self.say(at, t, Fate::Passes);
    }

    /// A copy of `t` leaves at `at`, behind it.
    pub(crate) fn copy(&mut self, at: Nanos, t: InFlight) {
        self.say(at, t, Fate::Copied);
    }

    /// A copy of `t` is made, which enters the stage that `t` has just entered, next of all.
    pub(crate) fn copy_again(&mut self, at: Nanos, t: InFlight) {
        self.say(at, t, Fate::CopiedAgain);
    }

    /// A packet that was held is dropped.
    pub(crate) fn drop(&mut self, at: Nanos, t: InFlight, cause: DropCause) {
        self.say(at, t, Fate::Dropped(cause));
    }

    /// How much was said and not taken away.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.said.len()
    }

    pub(crate) fn get(&self, place: usize) -> &Said {
        &self.said[place]
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> &mut Said {
        &mut self.said[place]
    }

    /// Takes away what was said last, down to a length of `len`.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.said.truncate(len);
    }

    #[inline]
    fn say(&mut self, at: Nanos, t: InFlight, fate: Fate) {
        self.said.push(Said { at, t, fate });
    }
}

impl Nature {
    /// Each packet stands for itself, and leaves at once: of most effects, and of none.
    pub(crate) const NONE: Self = Self {
        needs: Needs::Nothing,
        gives: Gives::AtOnce,
    };

    /// What both need, and what either may do.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            needs: self.needs.max(other.needs),
            gives: self.gives.max(other.gives),
        }
    }
}
