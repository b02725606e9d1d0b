//! The load of a link in two forms, between which its packets decide.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{ConfigError, Trace};
use crate::time::Nanos;
use crate::units::Bytes;

/// The bytes that one opportunity of a light load serves, as CellReplay's own: its packets have at most 1,400 bytes.
pub const LIGHT_OPPORTUNITY: Bytes = Bytes(1_400);

/// The step of the sizes for which the delay has an offset, in bytes.
const SIZE_STEP: u64 = 100;

/// A bottleneck that was recorded with a light and with a full load at the same time (CellReplay, Sentosa et al., NSDI
/// 2025).
///
/// A packet begins a new train if it comes more than a millisecond after the last one has left the light load, and if the full
/// load would have served all packets before it. It has the delay that the record has at that time. Other packets are served
/// at the opportunities of the present train. A packet for which it has none, and every packet behind that until it has left,
/// joins the queue of the full load. The name is that of the program, whose arithmetic this is with the differences that
/// docs/traces.md lists.
#[derive(Clone, Debug)]
pub struct CellReplay {
    /// The light load.
    pub light: Arc<LightLoad>,
    /// The full load, and its queue.
    pub full: Trace,
}

/// A train of packets as it was recorded on a link that carried nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LightTrain {
    /// The time at which its first packet was sent, since the beginning of the record.
    pub at: Nanos,
    /// The one-way delay of its first packet.
    pub delay: Nanos,
    /// The times at which its packets were delivered, since the first one was.
    pub deliveries: Vec<Nanos>,
}

/// A light load: trains of packets over time, and the part of the delay that depends on a packet's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LightLoad {
    trains: Vec<LightTrain>,
    /// The offset in nanoseconds of packets of 100 bytes, 200 bytes, and so on.
    offsets: Vec<i64>,
}

impl LightLoad {
    /// Creates a load that repeats after the time of the last of `trains`. `offsets` are added to the delays of packets
    /// of 100, 200, ... bytes of L2, in nanoseconds; between two sizes they are interpolated, and outside them the
    /// nearest one counts. Without any, the size does not matter.
    ///
    /// # Errors
    /// Returns an error for fewer than two trains, a first one that is not at 0, trains that are not in order of time or
    /// all at 0, a train without deliveries, and deliveries that run backwards.
    pub fn new(trains: Vec<LightTrain>, offsets: Vec<i64>) -> Result<Self, ConfigError> {
        let refused = |right| Err(ConfigError::BadTrace { right });
        if trains.len() < 2 {
            return refused("a light load has at least two trains, the last of which is its end");
        }
        if trains[0].at > Nanos::ZERO {
            return refused("the first train of a light load is at 0");
        }
        if !trains.is_sorted_by_key(|train| train.at) {
            return refused("the trains of a light load must be in order of time");
        }
        let is_right =
            |train: &LightTrain| !train.deliveries.is_empty() && train.deliveries.is_sorted();
        if !trains.iter().all(is_right) {
            return refused(
                "a train has at least one delivery, and they must be in ascending order",
            );
        }
        let new = Self { trains, offsets };
        if new.length() == Nanos::ZERO {
            return refused("the last train of a light load is its end, which must be after 0");
        }
        Ok(new)
    }

    /// Returns the time after which it repeats.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.trains.last().map_or(Nanos::ZERO, |train| train.at)
    }

    /// Returns its trains.
    #[must_use]
    pub fn trains(&self) -> &[LightTrain] {
        &self.trains
    }

    /// Returns the offsets of the delay for 100 bytes, 200 bytes, and so on, in nanoseconds.
    #[must_use]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Returns it with these offsets.
    #[must_use]
    pub fn with_offsets(self, offsets: Vec<i64>) -> Self {
        Self { offsets, ..self }
    }

    /// Returns the least delay of a first packet.
    #[must_use]
    pub fn least_delay(&self) -> Nanos {
        let delays = self.trains.iter().map(|train| train.delay);
        delays.min().unwrap_or_default()
    }

    /// Returns it with delays of first packets that are shorter by `by`, at least 0.
    #[must_use]
    pub fn with_shorter_delays(&self, by: Nanos) -> Self {
        let mut shorter = self.clone();
        for train in &mut shorter.trains {
            train.delay = Nanos(train.delay.0.saturating_sub(by.0));
        }
        shorter
    }

    /// Returns the number of the train in force at a time of the schedules' clock, and the delay then, on the straight line
    /// to the next train.
    pub(crate) fn begin(&self, at: Nanos) -> (usize, Nanos) {
        let within = Nanos(at.0 % self.length().0);
        // The first train is at 0, and the last one after every time within a period.
        let number = self.trains.partition_point(|train| train.at <= within) - 1;
        let (train, next) = (&self.trains[number], &self.trains[number + 1]);
        let growth = i128::from(next.delay.0) - i128::from(train.delay.0);
        let passed = i128::from((within - train.at).0);
        let delay =
            i128::from(train.delay.0) + growth * passed / i128::from((next.at - train.at).0);
        (number, Nanos(u64::try_from(delay).unwrap_or(0)))
    }

    /// Returns the times of the opportunities of a train, since its first packet was delivered.
    pub(crate) fn deliveries(&self, train: usize) -> &[Nanos] {
        &self.trains[train].deliveries
    }

    /// Returns the offset of the delay of a packet of `len`, in nanoseconds.
    pub(crate) fn offset(&self, len: Bytes) -> i64 {
        let Some(first) = self.offsets.first() else {
            return 0;
        };
        let Some(place) = (len.0 / SIZE_STEP).checked_sub(1) else {
            return *first;
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match self.offsets.get(place..) {
            Some([own, next, ..]) => {
                let part = i128::from(len.0 % SIZE_STEP);
                let growth = i128::from(*next) - i128::from(*own);
                let offset = i128::from(*own) + growth * part / i128::from(SIZE_STEP);
                i64::try_from(offset).unwrap_or(*own)
            }
            _ => self.offsets.last().copied().unwrap_or(0),
        }
    }
}

impl PartialEq for CellReplay {
    /// Compares the loads themselves: two objects with the same content are not equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.light, &other.light) && self.full == other.full
    }
}
