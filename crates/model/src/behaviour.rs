//! The behaviour of each effect, described by one set of properties.
//!
//! Warnings, estimates, records and calibrations read these properties and never ask which effect it is. Each effect
//! describes itself, next to its stage.

use core::num::NonZeroU32;

use crate::framing::Framing;
use crate::spec::{
    BitErrorRate, Delay, Discipline, Netem, NetemRate, NetemShare, Rate, Toffee, Trace,
};
use crate::stage::Timing;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, QueueLimit};

pub use long_run::LongRunLoss;

mod long_run;

/// The number of opportunities of a trace over which their mean distance is taken.
const OPPORTUNITIES: u64 = 10_000;

/// The behaviour of an effect. By default it passes every packet unchanged when it comes.
#[derive(Clone, Debug, Default)]
pub struct Behaviour<'a> {
    /// The law by which it drops packets. It also drops packets that find no `room`, and those that the AQM of its
    /// `bottleneck` chooses.
    pub loss: LossLaw,
    /// Whether it marks a packet instead of dropping it, if the packet's sender understands marks.
    pub marks: bool,
    /// The share of packets that it copies.
    pub copies: Option<NetemShare>,
    /// The packets that it passes with flipped bits.
    pub damage: Option<Damage>,
    /// The constant part of its delay: the delay of a packet of length 0.
    pub propagation: Nanos,
    /// The part of its delay that grows with the packet's length: microseconds = L2 bytes / factor.
    pub by_size: Option<Factor>,
    /// A lower bound of the time that a packet takes. It is 0 if the time is drawn at random or unknown.
    pub least_delay: Nanos,
    /// The packets that skip its delay, and so overtake others.
    pub skips: Option<SkipLaw>,
    /// Whether a packet can leave before one that came earlier.
    pub reorders: bool,
    /// Whether packets of one length that meet no queue can take different times.
    pub varies: bool,
    /// The time for which it can hold a packet.
    pub holds: Holding,
    /// The most that it can hold; it drops a packet for which there is no room. `None` if any number fits.
    pub room: Option<QueueLimit>,
    /// The server that it has, which serves packets one after the other.
    pub bottleneck: Option<Bottleneck<'a>>,
    /// The delay, if [`Delay::estimate`] can tell the effect of its jitter.
    pub delay: Option<&'a Delay>,
    /// The options of Linux's netem, if it follows them.
    pub netem: Option<&'a Netem>,
    /// The order that it needs among entering packets, and the order in which they leave.
    pub(crate) timing: Timing,
}

/// The law by which an effect drops packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossLaw {
    /// It drops no packet.
    #[default]
    Never,
    /// It drops each packet with a probability, independently of the others unless the share has a correlation.
    Random(NetemShare),
    /// It drops consecutive packets, by a chain of states.
    Bursts(LongRunLoss),
    /// It drops every n-th packet.
    EveryNth(NonZeroU32),
    /// It drops each packet with a probability that grows with its length, independently of the others.
    BitErrors(BitErrorRate),
    /// It drops the packets with given numbers: a fixed count and not a share.
    Numbered,
    /// It drops packets longer than this number of L3 bytes.
    LongerThan(u16),
    /// It drops packets that exceed this rate, in L2 bytes, and a burst.
    FasterThan(BitsPerSec),
}

/// The packets that an effect passes with flipped bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damage {
    /// Their share.
    pub share: NetemShare,
    /// Whether their checksum is corrected. Otherwise the receiver's kernel drops such a packet.
    pub repaired: bool,
}

/// The packets that skip a delay: after each of them, `gap` - 1 packets wait; from then on, each packet skips the delay
/// with the probability of `share`, until one does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkipLaw {
    /// The probability that a packet skips the delay when its turn has come.
    pub share: NetemShare,
    /// The gap in packets, at least 1.
    pub gap: u32,
}

/// The time for which an effect can hold packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Each packet leaves when it comes.
    #[default]
    Never,
    /// Each packet leaves some time later.
    Temporarily,
    /// No packet leaves before the effect's parameters change.
    UntilChanged,
}

/// A server, which serves packets one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Bottleneck<'a> {
    /// A rate.
    Rate(&'a Rate),
    /// netem's rate. The room that limits its queue also holds the packets in its delay.
    Netem(NetemRate),
    /// A trace of opportunities.
    Trace(&'a Trace),
    /// TOFFEE-Mocha's server, which both directions share.
    Toffee(&'a Toffee),
}

impl LossLaw {
    /// Returns the long-run loss among frames of this length (without FCS); `None` if it depends on when packets
    /// arrive.
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
    /// Returns the share of packets that skip the delay in the long run, 0 to 1.
    #[must_use]
    pub fn long_run(&self) -> f64 {
        let share = self.share.long_run().share;
        if share > 0.0 {
            1.0 / (f64::from(self.gap - 1) + 1.0 / share)
        } else {
            0.0
        }
    }
}

impl Bottleneck<'_> {
    /// Returns how fast it serves frames of this many L2 bytes, in bit/s of such bytes; the average, if it fluctuates.
    /// `None` if it stalls or has no rate.
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

    /// Returns the configured rate, in bit/s of the bytes that it counts; `None` if it varies, counts packets or does not
    /// exist.
    #[must_use]
    pub fn constant_rate(&self) -> Option<BitsPerSec> {
        match self {
            Self::Rate(rate) => {
                let is_constant = rate.fluctuation.is_none() && rate.framing != Framing::PACKETS;
                rate.rate.filter(|_| is_constant)
            }
            Self::Netem(rate) => BitsPerSec::new(rate.bytes_per_s.saturating_mul(8)).ok(),
            Self::Trace(_) | Self::Toffee(_) => None,
        }
    }

    /// Returns the average time that it serves a frame of this many L2 bytes; 0 if it stalls. A trace is assumed to
    /// serve one frame at each opportunity.
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

    /// Returns whether packets pass it faster than its rate after a time without packets.
    #[must_use]
    pub fn passes_bursts(&self) -> bool {
        matches!(self, Self::Rate(rate) if rate.burst.is_some())
    }

    /// Returns whether the packets of both directions wait for one server.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Toffee(_))
    }

    /// Returns the discipline of its queue, which decides which packets wait and which are dropped before the room is
    /// full.
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
    /// Returns the waiting time that it aims at, if it has such a target.
    #[must_use]
    pub fn target(&self) -> Option<Nanos> {
        match self {
            Self::DropTail | Self::DropHead | Self::Red(_) | Self::Weighted(_) => None,
            Self::Codel(of) => Some(of.target),
            Self::FqCodel(of) => Some(of.codel.target),
            Self::Pie(of) => Some(of.target),
            Self::DualPi2(of) => Some(of.target),
        }
    }

    /// Returns whether it marks packets instead of dropping them, if their senders understand marks.
    pub(crate) fn marks(&self) -> bool {
        match self {
            Self::DropTail | Self::DropHead | Self::Weighted(_) => false,
            Self::Red(of) => of.ecn,
            Self::Codel(of) => of.ecn,
            Self::FqCodel(of) => of.codel.ecn,
            Self::Pie(of) => of.ecn,
            Self::DualPi2(_) => true,
        }
    }

    /// Returns whether a packet can leave its queue before one that came earlier.
    pub(crate) fn reorders(&self) -> bool {
        matches!(
            self,
            Self::FqCodel(_) | Self::DualPi2(_) | Self::Weighted(_)
        )
    }
}
