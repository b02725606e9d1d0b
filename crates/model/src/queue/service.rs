//! The time that a server takes for a packet, or for all packets that wait.

use crate::draw::Draws;
use crate::framing::Framing;
use crate::queue::bucket::Bucket;
use crate::queue::constant::{ConstantRate, WORK_PER_BYTE};
use crate::queue::fluctuating::Fluctuating;
use crate::queue::trace::Traced;
use crate::schedule::ScheduleClock;
use crate::spec::{Effect, Rate};
use crate::time::Nanos;
use crate::units::{Bytes, Factor};

/// The way in which a server determines the time for a packet.
#[derive(Debug)]
pub(crate) enum Service {
    /// It serves a packet when it comes.
    Unlimited,
    /// It serves no packet.
    Stalled(Framing),
    /// A rate, and the bytes that it counts.
    Rate(ConstantRate, Framing),
    /// A token bucket, and the bytes that it counts.
    Bucket(Bucket, Framing),
    /// A rate that varies, and the bytes that it counts.
    Fluctuating(Fluctuating, Framing),
    /// TOFFEE-Mocha: a constant time for each packet, plus L2 bytes / factor in microseconds.
    Toffee(Nanos, Option<Factor>),
    /// A trace.
    Traced(Traced),
}

/// Work for a server: packets, and their bytes as its framing counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    pub(crate) bytes: Bytes,
}

/// The work of a packet's whole service under TOFFEE; after a change, the served part of it still counts.
const WHOLE: u128 = 1 << 64;

impl Service {
    /// Creates the service that `effect` defines from `at` on; `before` is the service until then. A trace follows
    /// `clock`, which counts from `start`.
    pub(crate) fn new(
        effect: &Effect,
        (clock, start): (ScheduleClock, Nanos),
        at: Nanos,
        draws: Draws,
        before: &Self,
    ) -> Self {
        match effect {
            Effect::Rate(rate) => Self::of_rate(rate, at, draws, before),
            Effect::Toffee(toffee) => Self::Toffee(toffee.delay, toffee.dynamic),
            Effect::Trace(trace) => {
                let opportunities = trace.opportunities.clone();
                Self::Traced(Traced::new(opportunities, clock, start, at))
            }
            _ => Self::Unlimited,
        }
    }

    fn of_rate(spec: &Rate, at: Nanos, draws: Draws, before: &Self) -> Self {
        let drawn = match before {
            Self::Fluctuating(before, _) => before.drawn(),
            _ => 0,
        };
        if let (Some(rate), Some(burst)) = (spec.rate, spec.burst) {
            let full = Bucket::new(rate, burst, at);
            let bucket = match before {
                Self::Bucket(before, _) => full.following(before, at),
                _ => full,
            };
            return Self::Bucket(bucket, spec.framing);
        }
        match (spec.rate, spec.fluctuation) {
            (None, _) => Self::Stalled(spec.framing),
            (Some(rate), None) => Self::Rate(ConstantRate { rate, credit: 0 }, spec.framing),
            (Some(rate), Some(how)) => {
                Self::Fluctuating(Fluctuating::new(rate, how, draws, drawn), spec.framing)
            }
        }
    }

    /// Returns the load of one packet of `len` L2 bytes.
    #[inline]
    pub(crate) fn load(&self, len: Bytes) -> Load {
        let bytes = match self {
            Self::Rate(_, framing)
            | Self::Bucket(_, framing)
            | Self::Fluctuating(_, framing)
            | Self::Stalled(framing) => framing.bytes_counted(len),
            Self::Unlimited | Self::Toffee(..) | Self::Traced(_) => len,
        };
        Load { packets: 1, bytes }
    }

    /// Returns the time that `load` takes at the rate of `now`; 0 if there is no rate.
    pub(crate) fn time(&self, now: Nanos, load: Load) -> Nanos {
        match self {
            Self::Rate(constant, _) => constant.rate.time_for(load.bytes),
            Self::Bucket(bucket, _) => bucket.rate().time_for(load.bytes),
            Self::Fluctuating(rate, _) => rate.at(now).time_for(load.bytes),
            Self::Toffee(constant, dynamic) => {
                let growing = dynamic.map_or(Nanos::ZERO, |k| k.time_for(load.bytes));
                constant.saturating_mul(load.packets) + growing
            }
            Self::Unlimited | Self::Stalled(_) | Self::Traced(_) => Nanos::ZERO,
        }
    }

    /// Begins a busy period: a packet finds the server idle, and work that rounding did in advance is not carried over.
    #[inline]
    pub(crate) fn begin_busy_period(&mut self, at: Nanos) {
        match self {
            Self::Rate(constant, _) => constant.credit = 0,
            Self::Fluctuating(rate, _) => rate.begin_busy_period(),
            Self::Traced(trace) => trace.begin_busy_period(at),
            Self::Unlimited | Self::Stalled(_) | Self::Bucket(..) | Self::Toffee(..) => {}
        }
    }

    /// Returns when a packet of `len` whose service begins at `at` is done; [`Nanos::MAX`] if never.
    #[inline]
    pub(crate) fn serve(&mut self, at: Nanos, len: Bytes) -> Nanos {
        let load = self.load(len);
        match self {
            Self::Rate(constant, _) => constant.serve(at, load.bytes),
            Self::Bucket(bucket, _) => bucket.serve(at, u128::from(load.bytes.0) * WORK_PER_BYTE),
            Self::Fluctuating(rate, _) => rate.serve(at, u128::from(load.bytes.0) * WORK_PER_BYTE),
            Self::Traced(trace) => trace.serve(at, len),
            Self::Toffee(..) => at + self.time(at, load),
            Self::Unlimited => at,
            Self::Stalled(_) => Nanos::MAX,
        }
    }

    /// Returns the whole work of a packet, in the unit of [`Service::left`].
    pub(crate) fn work(&self, len: Bytes) -> u128 {
        match self {
            Self::Toffee(..) => WHOLE,
            Self::Traced(_) => u128::from(len.0),
            _ => u128::from(self.load(len).bytes.0) * WORK_PER_BYTE,
        }
    }

    /// Returns the work that is left at `at` of a packet of `len` that will be done at `ends`.
    pub(crate) fn left(&self, at: Nanos, len: Bytes, ends: Nanos) -> u128 {
        match self {
            Self::Rate(constant, _) => constant.left(at, ends),
            Self::Bucket(bucket, _) => bucket.left(at, ends),
            Self::Fluctuating(rate, _) => rate.left(at, ends),
            Self::Traced(trace) => u128::from(trace.left(at, ends)),
            Self::Toffee(..) => {
                let whole = u128::from(self.time(at, self.load(len)).0).max(1);
                u128::from(ends.0.saturating_sub(at.0)) * WHOLE / whole
            }
            Self::Unlimited => 0,
            Self::Stalled(_) => self.work(len),
        }
    }

    /// Returns when a packet of `len` with the work `left` at `at` is done.
    pub(crate) fn resume(&mut self, at: Nanos, len: Bytes, left: u128) -> Nanos {
        let load = self.load(len);
        match self {
            Self::Rate(constant, _) => constant.resume(at, left),
            Self::Bucket(bucket, _) => bucket.serve(at, left),
            Self::Fluctuating(rate, _) => rate.serve(at, left),
            Self::Traced(trace) => {
                trace.begin_busy_period(at);
                trace.serve(at, Bytes(u64::try_from(left).unwrap_or(u64::MAX)))
            }
            Self::Toffee(..) => {
                // It is rounded up, so that the loss of `left` by rounding down does not matter.
                let time = (u128::from(self.time(at, load).0) * left).div_ceil(WHOLE);
                at + Nanos(u64::try_from(time).unwrap_or(u64::MAX))
            }
            Self::Unlimited => at,
            Self::Stalled(_) => Nanos::MAX,
        }
    }
}

impl Load {
    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
        }
    }

    #[inline]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            bytes: Bytes(self.bytes.0 - other.bytes.0),
        }
    }
}
