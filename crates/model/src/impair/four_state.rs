//! Loss in bursts with packets received in between: a chain of four states.

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::{Chance, Draws};
use crate::impair::loss::lose_or_mark;
use crate::in_flight::{InFlight, Stream};
use crate::spec::{Effect, FourState};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// Loss as in tc's `loss state`; see [`FourState`].
///
/// Originals and copies have separate chains, so that duplication changes nothing for originals.
#[derive(Debug)]
pub(crate) struct FourStateLoss {
    transitions: Transitions,
    /// The state of the originals' chain and that of the copies' chain.
    states: [State; 2],
    draws: Draws,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ReceivedInGap,
    ReceivedInBurst,
    LostInBurst,
    LostInGap,
}

/// The transitions of the chain: a draw below the first chance of a row leads to one state, a draw below the second to
/// another, and any other draw keeps the state. By default no packet is lost, in whatever state, and the state stays.
#[derive(Clone, Copy, Debug, Default)]
struct Transitions {
    p14: Chance,
    p14_or_p13: Chance,
    p23: Chance,
    p32: Chance,
    p32_or_p31: Chance,
    ecn: bool,
}

impl FourStateLoss {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            transitions: Transitions::default(),
            states: [State::ReceivedInGap; 2],
            draws,
        }
    }
}

impl Transitions {
    fn of(law: &FourState) -> Self {
        Self {
            p14: Chance::of(law.p14),
            p14_or_p13: Chance::of_either(law.p14, law.p13),
            p23: Chance::of(law.p23),
            p32: Chance::of(law.p32),
            p32_or_p31: Chance::of_either(law.p32, law.p31),
            ecn: law.ecn,
        }
    }

    /// Returns the state that follows `state`.
    #[inline]
    fn next(&self, state: State, draw: u64) -> State {
        use State::{LostInBurst, LostInGap, ReceivedInBurst, ReceivedInGap};
        match state {
            ReceivedInGap if self.p14.hits(draw) => LostInGap,
            ReceivedInGap if self.p14_or_p13.hits(draw) => LostInBurst,
            ReceivedInGap => ReceivedInGap,
            ReceivedInBurst if self.p23.hits(draw) => LostInBurst,
            ReceivedInBurst => ReceivedInBurst,
            LostInBurst if self.p32.hits(draw) => ReceivedInBurst,
            LostInBurst if self.p32_or_p31.hits(draw) => ReceivedInGap,
            LostInBurst => LostInBurst,
            LostInGap => ReceivedInGap,
        }
    }
}

impl FourState {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            loss: LossLaw::Bursts(self.long_run()),
            marks: self.ecn,
            timing: Timing::IN_ORDER,
            ..Behaviour::default()
        }
    }
}

impl Stage for FourStateLoss {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let stream = t.stream();
        let state = &mut self.states[usize::from(stream == Stream::Copies)];
        *state = self
            .transitions
            .next(*state, self.draws.of(stream).at(index));
        match state {
            State::LostInBurst | State::LostInGap => lose_or_mark(at, t, self.transitions.ecn),
            State::ReceivedInGap | State::ReceivedInBurst => EntryResult::Passes(at),
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        match effect {
            Effect::FourState(law) => self.transitions = Transitions::of(law),
            // From its first state, it never reaches a loss.
            _ => {
                self.transitions = Transitions::default();
                self.states = [State::ReceivedInGap; 2];
            }
        }
    }
}
