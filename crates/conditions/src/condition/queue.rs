//! The queue of the bottleneck.

use model::QueueLimit;

use super::{Needs, describe, quantity};

quantity! {
    /// The limit of the bottleneck's queue.
    QueueSpec(QueueLimit)
}

describe! {
    QueueSpec: "queue" = "LIMIT", as in "100pkt", shapes Rate needs Needs::Rate("a queue needs a rate that fills it");
    "Queue of the bottleneck: 100pkt, 50ms [default: 100ms,20pkt]" + "A time becomes bytes at the current rate; 100ms,20pkt is the larger of the two. The default with codel and pie is 1000pkt, with fq_codel 10240pkt, with dualpi2 10000pkt, with red four times its max"
}
