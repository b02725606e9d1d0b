//! How long a server takes for a packet, or for all that wait.

use crate::queue::fluctuating::Fluctuating;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, Framing};

/// What determines a server's time for a packet.
#[derive(Debug)]
pub(crate) enum Service {
    /// A rate, and which bytes it counts.
    Rate(BitsPerSec, Framing),
    /// A rate that varies, and which bytes it counts.
    Fluctuating(Fluctuating, Framing),
    /// TOFFEE-Mocha: a constant for each packet, and L2 bytes / factor in microseconds.
    Toffee(Nanos, Option<Factor>),
}

/// Work for a server: packets, and their bytes as its framing counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    pub(crate) bytes: Bytes,
}

impl Service {
    /// The work of one packet of `len` L2 bytes.
    pub(crate) fn load(&self, len: Bytes) -> Load {
        let bytes = match self {
            Self::Rate(_, framing) | Self::Fluctuating(_, framing) => framing.bytes_counted(len),
            Self::Toffee(..) => len,
        };
        Load { packets: 1, bytes }
    }

    /// How long `load` takes; at the mean of a rate that varies.
    pub(crate) fn time(&self, load: Load) -> Nanos {
        match self {
            Self::Rate(rate, _) => rate.time_for(load.bytes),
            Self::Fluctuating(rate, _) => rate.mean().time_for(load.bytes),
            Self::Toffee(constant, dynamic) => {
                let growing = dynamic.map_or(Nanos::ZERO, |k| k.time_for(load.bytes));
                constant.saturating_mul(load.packets) + growing
            }
        }
    }
}

impl Load {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            bytes: Bytes(self.bytes.0 - other.bytes.0),
        }
    }
}
