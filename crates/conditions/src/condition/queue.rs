//! The queue of the bottleneck.

use model::QueueLimit;

use super::{Needs, describe, quantity};

quantity! {
    /// The limit of the bottleneck's queue.
    QueueSpec(QueueLimit)
}

describe! {
    QueueSpec: "queue" = "LIMIT", as in "100pkt", shapes Rate needs Needs::Rate("a queue needs a rate that fills it");
    "Waiting room of the bottleneck: 100pkt, 64KiB, 50ms [default: 100ms at the rate; with AQM, as many packets as tc]"
}
