//! What an effect does to packets, as the answers to one set of questions.
//!
//! Warnings, estimates, records and calibrations read these answers and never ask which effect it is. Each effect gives its
//! own, beside its stage.

use core::num::NonZeroU32;

use crate::spec::{
    BitErrorRate, Delay, Discipline, Netem, NetemRate, NetemShare, Rate, Toffee, Trace,
};
use crate::stage::Timing;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, QueueLimit};

pub use long_run::LongRunLoss;

mod long_run;

/// Opportunities of a trace over which its mean time is taken.
const OPPORTUNITIES: u64 = 10_000;

/// What an effect does to packets. By default it passes every packet unchanged when it comes.
#[derive(Clone, Debug, Default)]
pub struct Behaviour<'a> {
    /// Which packets it drops by its own law. It also drops those that find no `room`, and those that the AQM of its
    /// `bottleneck` chooses.
    pub loss: LossLaw,
    /// Whether it marks a packet in place of dropping it, where the packet's sender understands marks.
    pub marks: bool,
    /// Which packets it copies.
    pub copies: Option<NetemShare>,
    /// Which packets it passes with flipped bits.
    pub damage: Option<Damage>,
    /// The constant part of its delay: that of a packet without a length.
    pub propagation: Nanos,
    /// The part of its delay that grows with the packet: microseconds = L2 bytes / factor.
    pub by_size: Option<Factor>,
    /// No packet passes in less time. It is 0 where a draw decides, and where nothing is known.
    pub least_delay: Nanos,
    /// Which packets skip its delay, and so overtake others.
    pub skips: Option<SkipLaw>,
    /// Whether a packet can leave before one that came earlier.
    pub reorders: bool,
    /// Whether packets of one length that meet no queue can take different times.
    pub varies: bool,
    /// How long it can hold a packet.
    pub holds: Holding,
    /// How much it holds at most; it drops a packet for which there is no room. `None` where any number fits.
    pub room: Option<QueueLimit>,
    /// What serves packets one after the other.
    pub bottleneck: Option<Bottleneck<'a>>,
    /// The delay from which [`Delay::estimate`] says what its jitter does.
    pub delay: Option<&'a Delay>,
    /// The options of Linux's netem that it follows.
    pub netem: Option<&'a Netem>,
    /// Whether a packet's outcome depends on those before it, and when packets leave.
    pub(crate) timing: Timing,
}

/// Which packets an effect drops by its own law.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossLaw {
    /// None.
    #[default]
    Never,
    /// Each with a probability, independently of the others unless the share has a correlation.
    Random(NetemShare),
    /// Packets in a row, by a chain of states.
    Bursts(LongRunLoss),
    /// Every n-th.
    EveryNth(NonZeroU32),
    /// Each with a probability that grows with its length, independently of the others.
    BitErrors(BitErrorRate),
    /// Those of given numbers: a fixed count, and no share of all.
    Numbered,
    /// Those longer than this many L3 bytes.
    LongerThan(u16),
    /// Those that exceed this rate, in L2 bytes, and a burst.
    FasterThan(BitsPerSec),
}

/// Which packets are passed with flipped bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damage {
    /// How many.
    pub share: NetemShare,
    /// Whether the checksum is repaired. Otherwise the receiver's kernel drops such a packet.
    pub repaired: bool,
}

/// Which packets skip a delay: behind each, `gap` less one wait, and then each skips it with the share's probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkipLaw {
    /// The probability.
    pub share: NetemShare,
    /// At least 1.
    pub gap: u32,
}

/// How long an effect can hold packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Each leaves when it comes.
    #[default]
    Never,
    /// Each leaves some time later.
    Awhile,
    /// None leaves before the effect's parameters change.
    UntilChanged,
}

/// What serves packets one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Bottleneck<'a> {
    /// A rate.
    Rate(&'a Rate),
    /// netem's rate. The room that limits its queue also holds what the delay has in flight.
    Netem(NetemRate),
    /// A trace.
    Trace(&'a Trace),
    /// TOFFEE-Mocha's server, which both directions share.
    Toffee(&'a Toffee),
}

impl LossLaw {
    /// The loss in the long run among frames of this length, FCS not included; `None` where it depends on how they come.
    #[must_use]
    pub fn long_run(&self, frame: Bytes) -> Option<LongRunLoss> {
        match self {
            Self::Never => Some(LongRunLoss::NONE),
            Self::Random(share) => Some(share.long_run()),
            Self::Bursts(loss) => Some(*loss),
            Self::EveryNth(n) => Some(LongRunLoss::periodic(*n)),
            Self::BitErrors(rate) => Some(NetemShare::from(rate.loss(frame)).long_run()),
            Self::Numbered | Self::LongerThan(_) | Self::FasterThan(_) => None,
        }
    }
}

impl SkipLaw {
    /// The share of packets that skip the delay in the long run, 0 to 1.
    #[must_use]
    pub fn long_run(&self) -> f64 {
        let share = self.share.long_run().share;
        match share > 0.0 {
            true => 1.0 / (f64::from(self.gap - 1) + 1.0 / share),
            false => 0.0,
        }
    }
}

impl Bottleneck<'_> {
    /// How fast it serves frames of this many L2 bytes, in bit/s of such bytes; on average, if it fluctuates. `None` where it
    /// stalls, and where it has no rate.
    #[must_use]
    pub fn rate(&self, frame: Bytes) -> Option<BitsPerSec> {
        let (bits, counted) = match self {
            Self::Rate(Rate { rate, framing, .. }) => {
                ((*rate)?.get(), framing.bytes_counted(frame))
            }
            Self::Netem(rate) => (
                rate.bytes_per_s.saturating_mul(8),
                rate.bytes_counted(frame),
            ),
            Self::Trace(_) | Self::Toffee(_) => return None,
        };
        let bits = u128::from(bits) * u128::from(frame.0) / u128::from(counted.0.max(1));
        BitsPerSec::new(u64::try_from(bits).ok()?).ok()
    }

    /// The rate as it was asked for, in bit/s of the bytes that it counts; `None` where it varies.
    #[must_use]
    pub fn constant_rate(&self) -> Option<BitsPerSec> {
        match self {
            Self::Rate(rate) => rate.rate.filter(|_| rate.fluctuation.is_none()),
            Self::Netem(rate) => BitsPerSec::new(rate.bytes_per_s.saturating_mul(8)).ok(),
            Self::Trace(_) | Self::Toffee(_) => None,
        }
    }

    /// How long it serves a frame of this many L2 bytes, on average; 0 where it stalls. A trace is taken to serve one frame at
    /// each opportunity.
    #[must_use]
    pub fn time_for(&self, frame: Bytes) -> Nanos {
        match self {
            Self::Rate(Rate { rate, framing, .. }) => rate.map_or(Nanos::ZERO, |rate| {
                rate.time_for(framing.bytes_counted(frame))
            }),
            Self::Netem(rate) => rate.time_for(frame),
            Self::Trace(trace) => match trace.opportunities.at(OPPORTUNITIES) {
                Nanos::MAX => Nanos::ZERO,
                last => Nanos(last.0 / OPPORTUNITIES),
            },
            Self::Toffee(Toffee { delay, dynamic, .. }) => {
                *delay + dynamic.map_or(Nanos::ZERO, |factor| factor.time_for(frame))
            }
        }
    }

    /// Whether packets pass it faster than its rate after a time without packets.
    #[must_use]
    pub fn passes_bursts(&self) -> bool {
        matches!(self, Self::Rate(rate) if rate.burst.is_some())
    }

    /// Whether the packets of both directions wait for one server.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Toffee(_))
    }

    /// What decides who waits, and who is dropped before the room is full.
    #[must_use]
    pub fn discipline(&self) -> Discipline {
        match self {
            Self::Rate(rate) => rate.queue.discipline,
            Self::Trace(trace) => trace.queue.discipline,
            Self::Toffee(toffee) => toffee.queue.discipline,
            Self::Netem(_) => Discipline::DropTail,
        }
    }
}

impl Discipline {
    /// The waiting time that it aims at, if it has such an aim.
    #[must_use]
    pub fn target(&self) -> Option<Nanos> {
        match self {
            Self::DropTail | Self::DropHead | Self::Red(_) => None,
            Self::Codel(of) => Some(of.target),
            Self::FqCodel(of) => Some(of.codel.target),
            Self::Pie(of) => Some(of.target),
            Self::DualPi2(of) => Some(of.target),
        }
    }

    /// Whether it marks packets in place of dropping them, where their senders understand marks.
    pub(crate) fn marks(&self) -> bool {
        match self {
            Self::DropTail | Self::DropHead => false,
            Self::Red(of) => of.ecn,
            Self::Codel(of) => of.ecn,
            Self::FqCodel(of) => of.codel.ecn,
            Self::Pie(of) => of.ecn,
            Self::DualPi2(_) => true,
        }
    }

    /// Whether a packet can leave a queue under it before one that came earlier.
    pub(crate) fn reorders(&self) -> bool {
        matches!(self, Self::FqCodel(_) | Self::DualPi2(_))
    }
}
