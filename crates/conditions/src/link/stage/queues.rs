//! Stages in which packets wait: a gate, and a bottleneck that follows a trace.

use std::sync::Arc;

use crate::condition::AqmSpec;
use crate::error::{At, Error};
use model::{Effect, Gate, Nanos, Queue, QueueLimit, Repeating, Trace};

/// The default queue of a closed gate or of a trace, which has no rate that a time could refer to.
pub(in crate::link) const DEFAULT_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

parameters! {
    /// Packets that come while it is not open wait until it opens.
    GateStage {
        /// Whether packets pass; true when absent.
        open: bool,
        /// The size of the queue, in packets or bytes; 1000 packets when absent.
        queue: QueueLimit,
    }
}

parameters! {
    /// A bottleneck that serves 1504 bytes at given times.
    TraceStage {
        /// The times at which it serves, in milliseconds from the link's start; the last one is also the period with
        /// which they repeat.
        times: Arc<[u64]>,
        /// The size of the queue, in packets or bytes; 1000 packets when absent.
        queue: QueueLimit,
        /// Active queue management.
        aqm: AqmSpec,
    }
}

impl GateStage {
    pub(super) fn effect(&self) -> Effect {
        Effect::Gate(Gate {
            open: self.open.unwrap_or(true),
            queue: self.queue.unwrap_or(DEFAULT_QUEUE),
        })
    }
}

impl TraceStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let times = self
            .times
            .iter()
            .flat_map(|times| times.iter())
            .map(|ms| Nanos(ms.saturating_mul(1_000_000)));
        let opportunities = Repeating::new(times.collect()).at("times")?;
        let usual = self
            .aqm
            .and_then(AqmSpec::usual_limit)
            .unwrap_or(DEFAULT_QUEUE);
        Ok(Effect::Trace(Trace {
            opportunities: Arc::new(opportunities),
            queue: Queue {
                limit: self.queue.unwrap_or(usual),
                discipline: self.aqm.map(|aqm| aqm.0).unwrap_or_default(),
            },
        }))
    }
}
