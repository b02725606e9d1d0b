//! The parameters of PIE.

use crate::time::Nanos;

/// PIE (RFC 8033): drops at arrival, with a probability that a controller of the queue's delay sets anew again and again.
///
/// The delay is that of the packet that left last, none while nothing waits. Beside the basic scheme there are marks as long as
/// the probability is below 10 % (section 5.1), drops that are neither too close nor too far apart (5.4: `accu_prob`, 0.85
/// and 8.5), and increases of at most 2 % at once from 10 % on (5.5); and as in Linux 2 % more at delays above 250 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// The delay that the controller aims at.
    pub target: Nanos,
    /// How often it looks; at least 1 ms.
    pub tupdate: Nanos,
    /// How long a burst may last to an empty queue before anything is dropped.
    pub max_burst: Nanos,
    /// Whether packets are marked, where they allow it, instead of dropped.
    pub ecn: bool,
}

impl Default for Pie {
    /// 15 ms, 15 ms, 150 ms, drops (RFC 8033, sections 4.2 and 4.4).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            tupdate: Nanos::from_millis(15),
            max_burst: Nanos::from_millis(150),
            ecn: false,
        }
    }
}
