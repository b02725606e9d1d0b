//! Stages in which packets wait: a gate, and a bottleneck that follows a trace.

use std::sync::Arc;

use model::{Effect, Gate, Nanos, Queue, QueueLimit, Repeating, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::AqmSpec;
use crate::error::{At, Error};

/// What may wait before a closed gate or a trace, where nothing else is said.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

/// What comes while it is not open waits until it opens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateStage {
    /// Whether packets pass; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    /// The waiting room, in packets or bytes; 1000 packets when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
}

/// A bottleneck that serves 1504 bytes at given times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceStage {
    /// When it serves, in milliseconds from the link's start; the last one is how long it lasts until it repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<u64>>,
    /// The waiting room, in packets or bytes; 1000 packets when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// Active management of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aqm: Option<AqmSpec>,
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
        let times = self.times.iter().flatten();
        let times = times.map(|ms| Nanos(ms.saturating_mul(1_000_000)));
        let opportunities = Repeating::new(times.collect()).at("times")?;
        let usual = self.aqm.and_then(AqmSpec::usual_limit);
        let usual = usual.unwrap_or(DEFAULT_QUEUE);
        Ok(Effect::Trace(Trace {
            opportunities: Arc::new(opportunities),
            queue: Queue {
                limit: self.queue.unwrap_or(usual),
                discipline: self.aqm.map(|aqm| aqm.0).unwrap_or_default(),
            },
        }))
    }
}
