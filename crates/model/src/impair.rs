//! The effects on packets, one in each file, and the list of all.

mod bit_errors;
mod correlated_score;
mod corrupt;
mod delay;
mod delay_accumulator;
mod duplicate;
mod estimate;
mod every_nth;
mod four_state;
mod gate;
mod gilbert_elliott;
mod hold_back;
mod indexes;
mod jitter;
mod loss;
mod mtu;
mod netem;
mod police;
mod reorder;
mod score;
mod slots;
mod stall;

pub use self::estimate::DelayEstimate;
use crate::behaviour::Behaviour;
use crate::counters::{DelayStatistics, Waiting};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::queue::cell_replay::CellReplayStage;
use crate::queue::server::Server;
use crate::schedule::ScheduleClock;
use crate::spec::Effect;
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;

impl Effect {
    /// Returns its behaviour.
    #[must_use]
    pub fn behaviour(&self) -> Behaviour<'_> {
        match self {
            Self::Nothing => Behaviour::default(),
            Self::Rate(rate) => rate.behaviour(),
            Self::Trace(trace) => trace.behaviour(),
            Self::CellReplay(loads) => loads.behaviour(),
            Self::Toffee(toffee) => toffee.behaviour(),
            Self::Loss(law) => law.behaviour(),
            Self::Indexes(_) => indexes::behaviour(),
            Self::EveryNth(n) => every_nth::behaviour(*n),
            Self::GilbertElliott(law) => law.behaviour(),
            Self::FourState(law) => law.behaviour(),
            Self::BitErrors(rate) => rate.behaviour(),
            Self::Duplicate(law) => law.behaviour(),
            Self::Corrupt(law) => law.behaviour(),
            Self::Mtu(mtu) => mtu::behaviour(*mtu),
            Self::Delay(delay) => delay.behaviour(),
            Self::Slots(slots) => slots.behaviour(),
            Self::HoldBack(law) => law.behaviour(),
            Self::Gate(gate) => gate.behaviour(),
            Self::Stall(stall) => stall.behaviour(),
            Self::Police(police) => police.behaviour(),
            Self::Netem(netem) => netem.behaviour(),
        }
    }
}

/// Lists every kind of stage in one enum, through which the link calls them.
macro_rules! kinds {
    ($($kind:ident($stage:ty): $($effect:ident)|+,)+) => {
        /// A stage of any kind.
        #[derive(Debug, Default)]
        pub(crate) enum AnyStage {
            $($kind($stage),)+
            /// A stage that never does anything.
            #[default]
            Nothing,
        }

        impl AnyStage {
            /// Creates a stage of the kind of `effect`, which does nothing yet.
            pub(crate) fn of_kind(effect: &Effect, start: Nanos, draws: Draws) -> Self {
                match effect {
                    $($(Effect::$effect(_))|+ => Self::$kind(<$stage>::new(start, draws)),)+
                    Effect::Nothing => Self::Nothing,
                }
            }
        }

        impl Stage for AnyStage {
            #[inline]
            fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, out: &mut Out) -> EntryResult {
                match self {
                    $(Self::$kind(stage) => stage.enter(at, index, t, out),)+
                    Self::Nothing => EntryResult::Passes(at),
                }
            }

            #[inline]
            fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
                match self {
                    $(Self::$kind(stage) => stage.wake(at, out),)+
                    Self::Nothing => None,
                }
            }

            #[inline]
            fn next(&self) -> Option<Nanos> {
                match self {
                    $(Self::$kind(stage) => stage.next(),)+
                    Self::Nothing => None,
                }
            }

            fn set(&mut self, at: Nanos, effect: &Effect) {
                match self {
                    $(Self::$kind(stage) => stage.set(at, effect),)+
                    Self::Nothing => {}
                }
            }

            fn follow(&mut self, at: Nanos, clock: ScheduleClock) {
                match self {
                    $(Self::$kind(stage) => stage.follow(at, clock),)+
                    Self::Nothing => {}
                }
            }

            fn held(&self) -> usize {
                match self {
                    $(Self::$kind(stage) => stage.held(),)+
                    Self::Nothing => 0,
                }
            }

            fn backlog(&self, at: Nanos) -> Option<Waiting> {
                match self {
                    $(Self::$kind(stage) => stage.backlog(at),)+
                    Self::Nothing => None,
                }
            }

            fn longest_queue(&self) -> usize {
                match self {
                    $(Self::$kind(stage) => stage.longest_queue(),)+
                    Self::Nothing => 0,
                }
            }

            fn delays(&self) -> Option<DelayStatistics> {
                match self {
                    $(Self::$kind(stage) => stage.delays(),)+
                    Self::Nothing => None,
                }
            }

            fn settled(&self, at: Nanos) -> bool {
                match self {
                    $(Self::$kind(stage) => stage.settled(at),)+
                    Self::Nothing => true,
                }
            }
        }
    };
}

kinds! {
    Server(Server): Rate | Trace | Toffee,
    CellReplay(CellReplayStage): CellReplay,
    Loss(loss::Loss): Loss,
    BurstLoss(gilbert_elliott::BurstLoss): GilbertElliott,
    FourState(four_state::FourStateLoss): FourState,
    Indexes(indexes::Indexes): Indexes,
    BitErrors(bit_errors::BitErrors): BitErrors,
    EveryNth(every_nth::EveryNth): EveryNth,
    Duplicate(duplicate::Duplicate): Duplicate,
    Corrupt(corrupt::Corrupt): Corrupt,
    Mtu(mtu::Mtu): Mtu,
    Delay(delay::DelayLaw): Delay,
    Slots(slots::SlotStage): Slots,
    Gate(gate::GateStage): Gate,
    Policer(police::Policer): Police,
    HoldBack(hold_back::HoldBackStage): HoldBack,
    Stall(stall::StallStage): Stall,
    Netem(netem::NetemStage): Netem,
}
