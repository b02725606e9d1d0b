//! The amount that waits in a queue of any discipline.

use crate::queue::service::{Load, Service};
use crate::time::Nanos;
use crate::units::{Bytes, QueueLimit};

/// The amount that waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    /// The L2 bytes.
    pub(crate) bytes: Bytes,
    /// The load, as the server counts it.
    load: Load,
}

impl Backlog {
    #[inline]
    pub(crate) fn plus(self, len: Bytes, service: &Service) -> Self {
        Self {
            bytes: Bytes(self.bytes.0 + len.0),
            load: self.load.plus(service.load(len)),
        }
    }

    #[inline]
    pub(crate) fn minus(self, len: Bytes, service: &Service) -> Self {
        Self {
            bytes: Bytes(self.bytes.0 - len.0),
            load: self.load.minus(service.load(len)),
        }
    }

    /// Returns whether this amount may wait at `now`.
    #[inline]
    pub(crate) fn fits(self, limit: QueueLimit, now: Nanos, service: &Service) -> bool {
        match limit {
            QueueLimit::Packets(limit) => self.load.packets <= u64::from(limit),
            QueueLimit::Bytes(limit) => self.bytes <= limit,
            QueueLimit::Time(limit) => self.time(now, service) <= limit,
            QueueLimit::TimeOrPackets(time, packets) => {
                self.load.packets <= u64::from(packets) || self.time(now, service) <= time
            }
        }
    }

    /// Returns the time that it takes at the rate of `now`.
    #[inline]
    pub(crate) fn time(self, now: Nanos, service: &Service) -> Nanos {
        service.time(now, self.load)
    }
}
