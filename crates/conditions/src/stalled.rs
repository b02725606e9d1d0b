//! The queue of a rate of 0, to which a time cannot refer.

use model::{BitsPerSec, Bytes, QueueLimit};

use crate::route::FULL_FRAME;

/// The queue of a rate that is always 0, for which a time means nothing.
const STALLED_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

/// Returns the queue of a rate of 0. A time needs a rate: `known` is the last one before, or else the first one after.
pub(crate) fn stalled_limit(limit: QueueLimit, known: Option<BitsPerSec>) -> QueueLimit {
    match limit {
        QueueLimit::Packets(_) | QueueLimit::Bytes(_) => limit,
        QueueLimit::Time(time) => known.map_or(STALLED_QUEUE, |rate| {
            QueueLimit::Bytes(rate.bytes_in(time).max(Bytes(1)))
        }),
        QueueLimit::TimeOrPackets(time, packets) => known.map_or(STALLED_QUEUE, |rate| {
            let (bytes, full) = (rate.bytes_in(time), u64::from(packets) * FULL_FRAME.0);
            if bytes.0 < full {
                QueueLimit::Packets(packets)
            } else {
                QueueLimit::Bytes(bytes)
            }
        }),
    }
}
