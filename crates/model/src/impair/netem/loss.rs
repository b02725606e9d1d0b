//! The loss of packets (`loss_event`, `loss_4state`, `loss_gilb_ell`).

use crate::draw::Draws;
use crate::spec::{FourState, GilbertElliott, NetemLoss};

use super::crandom::{Key, Purpose, ShareDraw, draw, scaled};

/// A model of loss, with the state that all packets share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum LossModel {
    #[default]
    Nothing,
    Random(ShareDraw),
    FourStates(FourStates),
    Gemodel(Gemodel),
}

impl LossModel {
    pub(super) fn new(loss: &NetemLoss, draws: Draws) -> Self {
        match loss {
            NetemLoss::Nothing => Self::Nothing,
            NetemLoss::Random(share) => {
                Self::Random(ShareDraw::new(draws, Purpose::Loss, Some(*share)))
            }
            NetemLoss::State(states) => Self::FourStates(FourStates::new(states, draws)),
            NetemLoss::Gemodel(law) => Self::Gemodel(Gemodel::new(law, draws)),
        }
    }

    /// Returns whether the next packet is lost.
    #[inline]
    pub(super) fn loses(&mut self, key: Key) -> bool {
        match self {
            Self::Nothing => false,
            Self::Random(hits) => hits.hits(key),
            Self::FourStates(chain) => chain.loses(key),
            Self::Gemodel(chain) => chain.loses(key),
        }
    }
}

/// The chain of four states: the state that is entered decides. Sums of shares wrap at 2^32, as in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct FourStates {
    state: State,
    p14: u32,
    p13_p14: u32,
    p23: u32,
    p32: u32,
    p31_p32: u32,
    draws: Draws,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// State 1: the packet passes.
    Gap,
    /// State 2: the packet passes within a burst.
    Within,
    /// State 3: the packet is lost in a burst.
    Burst,
    /// State 4: a single packet is lost.
    Single,
}

impl FourStates {
    fn new(states: &FourState, draws: Draws) -> Self {
        let (p14, p32) = (scaled(states.p14), scaled(states.p32));
        Self {
            state: State::Gap,
            p14,
            p13_p14: scaled(states.p13).wrapping_add(p14),
            p23: scaled(states.p23),
            p32,
            p31_p32: scaled(states.p31).wrapping_add(p32),
            draws: draws.stream(Purpose::Loss as u64),
        }
    }

    fn loses(&mut self, key: Key) -> bool {
        let draw = draw(self.draws, key);
        // A draw that equals a bound changes no state and loses no packet.
        let (state, lost) = match self.state {
            State::Gap if draw < self.p14 => (State::Single, true),
            State::Gap if self.p14 < draw && draw < self.p13_p14 => (State::Burst, true),
            State::Gap | State::Single => (State::Gap, false),
            State::Within if draw < self.p23 => (State::Burst, true),
            State::Within => (State::Within, false),
            State::Burst if draw < self.p32 => (State::Within, false),
            State::Burst if self.p32 < draw && draw < self.p31_p32 => (State::Gap, false),
            State::Burst => (State::Burst, self.p31_p32 < draw),
        };
        self.state = state;
        lost
    }
}

/// The chain of two states: it moves first, and the state that it left decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gemodel {
    is_bad: bool,
    p: u32,
    r: u32,
    /// The probability that a packet passes in the bad state.
    h: u32,
    /// The probability that a packet is lost in the good state: tc's 1-k.
    k1: u32,
    transitions: Draws,
    losses: Draws,
}

impl Gemodel {
    fn new(law: &GilbertElliott, draws: Draws) -> Self {
        Self {
            is_bad: false,
            p: scaled(law.to_bad),
            r: scaled(law.to_good),
            h: u32::MAX - scaled(law.bad_loss),
            k1: scaled(law.good_loss),
            transitions: draws.stream(Purpose::Loss as u64),
            losses: draws.stream(Purpose::StateLoss as u64),
        }
    }

    fn loses(&mut self, key: Key) -> bool {
        let (moves, loss) = (draw(self.transitions, key), draw(self.losses, key));
        if self.is_bad {
            self.is_bad = moves >= self.r;
            loss > self.h
        } else {
            self.is_bad = moves < self.p;
            loss < self.k1
        }
    }
}
