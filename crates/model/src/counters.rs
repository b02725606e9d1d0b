//! What a link did, in counters that add up: packets + copies = delivered + dropped + held.

use crate::packet::DropCause;
use crate::spec::Effect;
use crate::time::Nanos;
use crate::units::Bytes;

/// Counts of the packets of one class that came from one side.
///
/// A packet counts as delivered or dropped when its outcome is handed out; until then it is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets: u64,
    /// Their L2 bytes.
    pub bytes: u64,
    /// Copies made of them.
    pub copies: u64,
    /// Packets and copies delivered: their outcome was handed out.
    pub delivered: u64,
    /// L2 bytes delivered.
    pub delivered_bytes: u64,
    /// Of those delivered, with a congestion mark that they did not come with.
    pub marked: u64,
    /// Of those delivered, with changed bytes.
    pub edited: u64,
    dropped: [u64; DropCause::ALL.len()],
    /// Arrivals older than what was already decided for their direction, and taken as if they came then.
    pub late: u64,
}

impl Counters {
    /// Packets and copies dropped for `cause`.
    #[must_use]
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Packets and copies dropped for any cause.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Packets and copies whose outcome was not handed out yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.packets + self.copies - self.delivered - self.all_dropped()
    }

    pub(crate) fn drop(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}

impl core::ops::Add for Counters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.copies += other.copies;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.marked += other.marked;
        self.edited += other.edited;
        self.late += other.late;
        for (own, others) in self.dropped.iter_mut().zip(other.dropped) {
            *own += others;
        }
        self
    }
}

/// What one stage of a link did, in all paths together where it stands in several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageReport<'a> {
    /// Its name: "box.up.loss", or "box.toffee" for what both directions share.
    pub name: &'a str,
    /// Packets and copies that came to it.
    pub packets: u64,
    /// What it does, if that has been the same all the time.
    pub effect: Option<&'a Effect>,
    /// Those that it dropped.
    pub dropped: u64,
    /// How often it began to drop them as they came: `dropped / runs` in a row in the mean, where nothing waits in it.
    pub runs: u64,
    /// Copies that it made.
    pub copied: u64,
    /// Packets in it now: in flight, waiting or in service.
    pub held: u64,
    /// The most packets that ever waited in its queue.
    pub longest_queue: u64,
    /// What its delays came to, if they vary at random.
    pub delays: Option<Achieved>,
}

/// What waits for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Packets that wait; the one in service is not among them.
    pub packets: u64,
    /// Their L2 bytes.
    pub bytes: Bytes,
    /// How long a packet that comes now waits until its own service begins, at the rate of now, if it goes behind all others. Of a
    /// trace and in a stall it is what is left of the packet in service.
    pub delay: Nanos,
}

/// What a delay that varies at random came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Achieved {
    /// Packets and copies that it gave a delay.
    pub packets: u64,
    /// The mean of their delays, what order added to them included.
    pub mean: Nanos,
    /// Their standard deviation, of a sample.
    pub deviation: Nanos,
    /// Those whose own delay would have been below 0, and was taken as 0.
    pub clamped: u64,
}
