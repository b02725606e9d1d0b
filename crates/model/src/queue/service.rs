//! How long a server takes for a packet, or for all that wait.

use crate::draw::Draws;
use crate::framing::Framing;
use crate::queue::bucket::Bucket;
use crate::queue::constant::{Constant, WORK_PER_BYTE};
use crate::queue::fluctuating::Fluctuating;
use crate::queue::trace::Traced;
use crate::spec::{Effect, Rate};
use crate::time::Nanos;
use crate::units::{Bytes, Factor};

/// What determines a server's time for a packet.
#[derive(Debug)]
pub(crate) enum Service {
    /// None: a packet is served when it comes.
    Unlimited,
    /// None is served.
    Stalled(Framing),
    /// A rate, and which bytes it counts.
    Rate(Constant, Framing),
    /// A token bucket, and which bytes it counts.
    Bucket(Bucket, Framing),
    /// A rate that varies, and which bytes it counts.
    Fluctuating(Fluctuating, Framing),
    /// TOFFEE-Mocha: a constant for each packet, and L2 bytes / factor in microseconds.
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

/// A packet's whole service in TOFFEE's unit of work, of which a change keeps what was served.
const WHOLE: u128 = 1 << 64;

impl Service {
    /// What `effect` asks for from `at` on; `before` is what served until then.
    pub(crate) fn new(
        effect: &Effect,
        start: Nanos,
        at: Nanos,
        draws: Draws,
        before: &Self,
    ) -> Self {
        match effect {
            Effect::Rate(rate) => Self::of_rate(rate, at, draws, before),
            Effect::Toffee(toffee) => Self::Toffee(toffee.delay, toffee.dynamic),
            Effect::Trace(trace) => Self::Traced(Traced::new(trace.opportunities.clone(), start)),
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
            (Some(rate), None) => Self::Rate(Constant { rate, credit: 0 }, spec.framing),
            (Some(rate), Some(how)) => {
                Self::Fluctuating(Fluctuating::new(rate, how, draws, drawn), spec.framing)
            }
        }
    }

    /// The work of one packet of `len` L2 bytes.
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

    /// How long `load` takes at the rate of `now`. Of what has no rate of its own, no time.
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

    /// A packet finds the server idle: what rounding served in advance before is not carried over.
    #[inline]
    pub(crate) fn begin_busy_period(&mut self, at: Nanos) {
        match self {
            Self::Rate(constant, _) => constant.credit = 0,
            Self::Fluctuating(rate, _) => rate.begin_busy_period(),
            Self::Traced(trace) => trace.begin_busy_period(at),
            Self::Unlimited | Self::Stalled(_) | Self::Bucket(..) | Self::Toffee(..) => {}
        }
    }

    /// When a packet of `len` whose service begins at `at` is done; [`Nanos::MAX`] if never.
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

    /// The whole work of a packet, in the unit of [`Service::left`].
    pub(crate) fn work(&self, len: Bytes) -> u128 {
        match self {
            Self::Toffee(..) => WHOLE,
            Self::Traced(_) => u128::from(len.0),
            _ => u128::from(self.load(len).bytes.0) * WORK_PER_BYTE,
        }
    }

    /// The work that is left at `at` of a packet of `len` that will be done at `ends`.
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

    /// When a packet of `len` of which so much work is left at `at` is done.
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
                // Rounded up, so that what `left` lost by rounding down does not count.
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
