//! What became of a stream's datagrams, by their numbers: loss, duplicates, reordering, jitter, and what this host dropped.

use std::collections::VecDeque;

use model::Nanos;
use netio::FullDrops;
use netio::udp::MOST_SEGMENTS;

use super::wire::{Counter, Stamped};
use crate::iperf3::detail::ReceiverDetail;
use crate::seen_numbers::{SeenNumbers, SequenceVerdict};

/// How far behind the highest number a copy is still told from a late first one: at 800,000 datagrams a second, over 1 s.
const WINDOW: u64 = 1 << 20;
/// Gaps remembered; older ones are forgotten, and extents that would need them are not known.
const MOST_GAPS: usize = 1024;

/// What a stream's receiver counts. Its memory does not grow, whatever the numbers are.
#[derive(Debug)]
pub(super) struct ReceiverStats {
    counter: Counter,
    seen: SeenNumbers<WINDOW>,
    gaps: Gaps,
    /// Number and payload bytes of a datagram far ahead of all others, until the next one tells an outage from garbage.
    suspect: Option<(u64, u64)>,
    /// Drops of this host's socket that were seen so far, as the kernel counts them.
    drops: u32,
    transit: Option<i64>,
    /// What came before the part that counts; nothing without [`Self::omit`].
    pub(super) omitted: Omitted,
    /// The part that counts, so far.
    pub(super) counts: ReceiverCounts,
}

/// What came before the part that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Omitted {
    /// Datagrams sent in it, as far as their numbers show.
    pub(super) datagrams: u64,
    /// Those of them that had not come when it ended.
    pub(super) missing: u64,
}

/// The figures of a stream, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReceiverCounts {
    /// The highest number counted; it covers all that were sent before it.
    pub(super) highest: u64,
    /// The highest number at the end of what is omitted, 0 without: what comes up to it is not counted.
    pub(super) base: u64,
    /// Datagrams received, each number once.
    pub(super) received: u64,
    /// Payload bytes of these.
    pub(super) bytes: u64,
    /// Further copies of a number.
    pub(super) duplicates: u64,
    /// Datagrams with a number below one received before (RFC 4737 section 3, Type-P-Reordered), copies apart.
    pub(super) reordered: u64,
    /// The largest reordering extent (RFC 4737 section 4.2.1), in datagrams, of those still known.
    pub(super) largest_extent: u64,
    /// What is no datagram of the test: too short, or with a number that nothing bears out.
    pub(super) garbage: u64,
    /// Times that this host's full socket dropped something, as its kernel counts: a train counts once.
    pub(super) drops: u64,
    /// Datagrams that these were, by the gaps that they left.
    pub(super) host_dropped: u64,
    /// Runs of consecutive numbers that are missing.
    pub(super) bursts: u64,
    /// Datagrams beside these that found the socket full or came with a wrong checksum, which [`ReceiverStats::tell_apart`] could not
    /// tell.
    pub(super) unsure: u64,
    /// Interarrival jitter (RFC 3550 section 6.4.1) in nanoseconds.
    pub(super) jitter_ns: f64,
    /// Arrival of the first and of the last datagram counted.
    pub(super) arrivals: Option<[Nanos; 2]>,
    /// Payload bytes that came with the first arrival.
    pub(super) first_bytes: u64,
}

impl ReceiverCounts {
    /// Datagrams sent up to the highest number, less what was omitted.
    pub(super) fn expected(&self) -> u64 {
        self.highest - self.base
    }

    /// Datagrams that are missing below the highest number, whoever dropped them.
    pub(super) fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// What another farwire is told of them.
    pub(super) fn detail(&self) -> ReceiverDetail {
        let span = self.arrivals.map_or(0, |[first, last]| last.0 - first.0);
        ReceiverDetail {
            received: self.received,
            duplicates: self.duplicates,
            reordered: self.reordered,
            largest_extent: self.largest_extent,
            host_dropped: self.host_dropped,
            drops: self.drops,
            bursts: self.bursts,
            unsure: self.unsure,
            garbage: self.garbage,
            after_first: [self.bytes - self.first_bytes, span],
        }
    }
}

impl ReceiverStats {
    /// Of a stream that has not begun.
    pub(super) fn new(counter: Counter) -> Self {
        Self {
            counter,
            seen: SeenNumbers::new(),
            gaps: Gaps::new(),
            suspect: None,
            drops: 0,
            transit: None,
            omitted: Omitted::default(),
            counts: ReceiverCounts::default(),
        }
    }

    /// Begins to count anew: what was sent up to here is omitted, also if it comes later.
    pub(super) fn omit(&mut self) {
        self.omitted = Omitted {
            datagrams: self.counts.highest,
            missing: self.omitted.missing + self.counts.missing(),
        };
        self.suspect = None;
        self.counts = ReceiverCounts {
            highest: self.counts.highest,
            base: self.counts.highest,
            ..ReceiverCounts::default()
        };
        self.transit = None;
    }

    /// Takes a train in that arrived at `at`, after `drops` drops of the socket in all.
    ///
    /// The jitter takes one step a train, with its first datagram: the others of a train share its stamp of arrival, and
    /// between them there is nothing to measure.
    pub(super) fn arrive(&mut self, train: &[u8], segment: usize, at: Nanos, drops: u32) {
        let dropped = u64::from(drops.wrapping_sub(self.drops));
        self.drops = drops;
        self.counts.drops += dropped;
        let mut dropped = dropped;
        let mut first = true;
        for datagram in train.chunks(segment.max(1)) {
            let Some(mut stamped) = self.counter.read(datagram) else {
                self.counts.garbage += 1;
                continue;
            };
            if self.counter == Counter::Bits32 {
                stamped.number = self.unwrapped(stamped.number);
            }
            let expected = self.seen.highest.saturating_add(1);
            if self.number(stamped.number, datagram.len() as u64, at) {
                if std::mem::take(&mut first) {
                    self.jitter(stamped, at);
                }
                let gap = stamped.number.saturating_sub(expected);
                self.counts.host_dropped += gap.min(dropped * MOST_SEGMENTS as u64);
                dropped = 0;
            }
        }
    }

    /// How often the socket dropped something, by what came with the datagrams.
    pub(super) fn dropped(&self) -> u32 {
        self.drops
    }

    /// Ends counting: the sender has sent numbers up to `sent` (if it says so) and the socket has dropped `drops`
    /// times in all (if the kernel says so). What is missing behind the last arrival counts as lost from here.
    pub(super) fn close(&mut self, sent: Option<u64>, drops: Option<u32>) {
        let dropped = drops.map_or(0, |drops| u64::from(drops.wrapping_sub(self.drops)));
        self.counts.drops += dropped;
        let tail = sent.map_or(0, |sent| sent.saturating_sub(self.counts.highest));
        self.counts.highest += tail;
        self.counts.bursts += u64::from(tail > 0);
        self.counts.host_dropped += tail.min(dropped * MOST_SEGMENTS as u64);
    }

    /// Takes away what was no drop of a full socket: of the socket's drops, these found it full, says the kernel. The others came with a
    /// wrong checksum, each of them one datagram, and count as lost by the network.
    pub(super) fn tell_apart(&mut self, dropped: u32, full: FullDrops) {
        let counts = &mut self.counts;
        if full.most == 0 {
            (counts.drops, counts.host_dropped) = (0, 0);
            return;
        }
        let others = u64::from(dropped).saturating_sub(full.least);
        counts.drops = counts.drops.saturating_sub(others);
        counts.unsure = others.min(counts.host_dropped);
        counts.host_dropped -= counts.unsure;
    }

    /// The number of a datagram whose 32 bits on the wire may have wrapped: the one nearest to the highest so far.
    fn unwrapped(&self, number: u64) -> u64 {
        let highest = self.seen.highest;
        let ahead = (number.wrapping_sub(highest) << 32).cast_signed() >> 32;
        let nearest = highest.checked_add_signed(ahead);
        nearest.filter(|nearest| *nearest > 0).unwrap_or(number)
    }

    /// Whether a datagram counts: its number is one of the stream's, it is new, and belongs to what is measured.
    ///
    /// A number that leaps far ahead is held back until the next one follows it, as after an outage; if none does, it was
    /// garbage (RFC 3550 appendix A.1 does the same).
    fn number(&mut self, number: u64, bytes: u64, at: Nanos) -> bool {
        if number == 0 {
            self.counts.garbage += 1;
            return false;
        }
        let held = self.suspect.take();
        if number > self.seen.highest.saturating_add(WINDOW) {
            let Some((before, bytes_before)) = held.filter(|(held, _)| *held == number - 1) else {
                self.counts.garbage += 1;
                self.suspect = Some((number, bytes));
                return false;
            };
            self.counts.garbage -= 1;
            self.count(before, bytes_before, at);
        }
        self.count(number, bytes, at)
    }

    fn count(&mut self, number: u64, bytes: u64, at: Nanos) -> bool {
        let before = self.seen.highest;
        let seen = self.seen.insert(number);
        if number <= self.counts.base {
            return false;
        }
        match seen {
            SequenceVerdict::Again => {
                self.counts.duplicates += 1;
                return false;
            }
            // Too far behind for copies to be told: it counts as lost.
            SequenceVerdict::TooLate => return false,
            SequenceVerdict::New if number < before => {
                self.counts.reordered += 1;
                // The run of missing numbers that it was part of is split, shortened or filled.
                let base = self.counts.base;
                let mut missing = |number: u64| number > base && !self.seen.came(number);
                match (missing(number - 1), missing(number + 1)) {
                    (true, true) => self.counts.bursts += 1,
                    (false, false) => {
                        self.counts.bursts = self.counts.bursts.saturating_sub(1);
                    }
                    _ => {}
                }
                let extent = self.gaps.extent(number, self.seen.arrivals);
                self.counts.largest_extent = self.counts.largest_extent.max(extent.unwrap_or(0));
            }
            SequenceVerdict::New => {
                self.counts.bursts += u64::from(number - before > 1);
                self.gaps.open(before, number, self.seen.arrivals);
            }
        }
        let counts = &mut self.counts;
        counts.highest = counts.highest.max(number);
        counts.received += 1;
        counts.bytes += bytes;
        let [first, last] = *counts.arrivals.get_or_insert([at, at]);
        if at == first {
            counts.first_bytes += bytes;
        }
        counts.arrivals = Some([first, at.max(last)]);
        true
    }

    fn jitter(&mut self, stamped: Stamped, at: Nanos) {
        let transit =
            at.0.cast_signed()
                .wrapping_sub(stamped.sent.0.cast_signed());
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.counts.jitter_ns += (change - self.counts.jitter_ns) / 16.0;
        }
    }
}

/// The latest gaps in the numbers, ascending: what a reordering extent is counted from.
#[derive(Debug)]
struct Gaps(VecDeque<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The numbers on either side, which came.
    below: u64,
    above: u64,
    /// How many datagrams had come when the one above did.
    passed_at: u64,
}

impl Gaps {
    fn new() -> Self {
        Self(VecDeque::with_capacity(MOST_GAPS))
    }

    /// Notes that number `above` was the `arrival`th to come, next to `below`.
    fn open(&mut self, below: u64, above: u64, arrival: u64) {
        if above - below > 1 {
            if self.0.len() == MOST_GAPS {
                self.0.pop_front();
            }
            self.0.push_back(Gap {
                below,
                above,
                passed_at: arrival,
            });
        }
    }

    /// How many datagrams came from the first one that passed `number` until `number` itself, the `arrival`th to come
    /// (RFC 4737 section 4.2.1: i - j for the earliest j with s\[j\] > s\[i\]).
    fn extent(&self, number: u64, arrival: u64) -> Option<u64> {
        let behind = self.0.partition_point(|gap| gap.below < number);
        let gap = self.0.get(behind.checked_sub(1)?)?;
        (number < gap.above).then(|| arrival - gap.passed_at)
    }
}

#[cfg(test)]
mod tests;
