//! A line of a trace: the conditions from a time on.

use model::{BitsPerSec, Nanos, Probability};

/// The conditions of a trace from a time on. Those that the trace does not state are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// The time, from the beginning of the trace.
    pub at: Nanos,
    /// The rate in bit/s, [`Line::UNLIMITED`] for none. In a stall it is the last rate before, or 0.
    pub rate: u64,
    /// Whether nothing is served.
    pub is_stalled: bool,
    /// The propagation delay.
    pub delay: Nanos,
    /// The spread of the jitter.
    pub jitter: Nanos,
    /// The share of packets that are lost, each independently.
    pub loss: Probability,
    /// The packets that the queue holds.
    pub queue: u32,
    /// The share of packets that are copied.
    pub copies: Probability,
    /// The time between a packet and its copy.
    pub copies_after: Nanos,
}

/// The conditions that a trace states, by the names of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The rate.
    pub rate: bool,
    /// The delay.
    pub delay: bool,
    /// The jitter.
    pub jitter: bool,
    /// The loss.
    pub loss: bool,
    /// The size of the queue.
    pub queue: bool,
    /// The duplication.
    pub duplicate: bool,
}

/// The least and the greatest value of every condition of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extremes {
    /// The least values.
    pub least: Line,
    /// The greatest values.
    pub greatest: Line,
    /// Whether it stalls.
    pub stalls: bool,
    /// Whether it has no rate for a time.
    pub is_unlimited: bool,
}

impl Line {
    /// The rate of a line without a limit.
    pub const UNLIMITED: u64 = u64::MAX;

    /// Returns its rate; `None` in a stall and without a limit.
    pub fn served(&self) -> Option<BitsPerSec> {
        let is_limited = !self.is_stalled && self.rate != Self::UNLIMITED;
        BitsPerSec::new(self.rate).ok().filter(|_| is_limited)
    }
}

impl Extremes {
    /// The extremes of no line.
    pub(super) const NONE: Self = Self {
        least: Line {
            at: Nanos::MAX,
            rate: u64::MAX,
            is_stalled: false,
            delay: Nanos::MAX,
            jitter: Nanos::MAX,
            loss: Probability::ZERO,
            queue: u32::MAX,
            copies: Probability::ZERO,
            copies_after: Nanos::MAX,
        },
        greatest: Line {
            at: Nanos::ZERO,
            rate: 0,
            is_stalled: false,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            loss: Probability::ZERO,
            queue: 0,
            copies: Probability::ZERO,
            copies_after: Nanos::ZERO,
        },
        stalls: false,
        is_unlimited: false,
    };

    /// Counts another line.
    pub(super) fn add(&mut self, line: &Line) {
        let is_first = self.least.at == Nanos::MAX;
        let Self {
            least, greatest, ..
        } = self;
        if let Some(rate) = line.served() {
            least.rate = least.rate.min(rate.get());
            greatest.rate = greatest.rate.max(rate.get());
        }
        least.delay = least.delay.min(line.delay);
        greatest.delay = greatest.delay.max(line.delay);
        least.jitter = least.jitter.min(line.jitter);
        greatest.jitter = greatest.jitter.max(line.jitter);
        least.queue = least.queue.min(line.queue);
        greatest.queue = greatest.queue.max(line.queue);
        least.copies_after = least.copies_after.min(line.copies_after);
        greatest.copies_after = greatest.copies_after.max(line.copies_after);
        if is_first || line.loss < least.loss {
            least.loss = line.loss;
        }
        if line.loss > greatest.loss {
            greatest.loss = line.loss;
        }
        if is_first || line.copies < least.copies {
            least.copies = line.copies;
        }
        if line.copies > greatest.copies {
            greatest.copies = line.copies;
        }
        least.at = least.at.min(line.at);
        greatest.at = greatest.at.max(line.at);
        self.stalls |= line.is_stalled;
        self.is_unlimited |= !line.is_stalled && line.rate == Line::UNLIMITED;
    }
}
