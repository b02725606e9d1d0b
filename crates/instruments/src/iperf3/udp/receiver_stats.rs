//! Statistics of a stream's received datagrams by their numbers: loss, duplicates, reordering, jitter, and drops of
//! this host.

use std::collections::VecDeque;

use model::Nanos;
use netio::FullDrops;
use netio::udp::MOST_SEGMENTS;

use super::wire::{DatagramHeader, NumberWidth};
use crate::iperf3::detail::ReceiverDetail;
use crate::seen_numbers::{SeenNumbers, SequenceVerdict};

/// The numbers up to the highest within which a duplicate is distinguished from a late datagram: over 1 s at 800,000
/// per second.
const WINDOW: u64 = 1 << 20;
/// The number of gaps remembered. Older ones are forgotten, and extents that depend on them are unknown.
const MOST_GAPS: usize = 1024;

/// The statistics of a stream's receiver. Their memory does not grow, whatever the numbers are.
#[derive(Debug)]
pub(super) struct ReceiverStats {
    counter: NumberWidth,
    seen: SeenNumbers<WINDOW>,
    gaps: Gaps,
    /// Number and payload bytes of a datagram far ahead of all others. The next datagram tells whether it is an outage
    /// or garbage.
    suspect: Option<(u64, u64)>,
    /// The drops of this host's socket so far, as the kernel counts them.
    drops: u32,
    transit: Option<i64>,
    /// The datagrams before the counted part, which are none without [`Self::omit`].
    pub(super) omitted: OmittedCounts,
    /// The counts of the counted part.
    pub(super) counts: ReceiverCounts,
}

/// The datagrams before the counted part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OmittedCounts {
    /// Datagrams sent in it, according to their numbers.
    pub(super) datagrams: u64,
    /// Of these, the datagrams that had not arrived when it ended.
    pub(super) missing: u64,
}

/// The counts of a stream, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReceiverCounts {
    /// The highest number counted. All numbers before it were sent.
    pub(super) highest: u64,
    /// The highest number of the omitted start, or 0. Datagrams up to it do not count.
    pub(super) base: u64,
    /// Datagrams received, without duplicates.
    pub(super) received: u64,
    /// Payload bytes of these.
    pub(super) bytes: u64,
    /// Duplicates.
    pub(super) duplicates: u64,
    /// Datagrams with a number below an earlier one (RFC 4737 section 3, Type-P-Reordered), without duplicates.
    pub(super) reordered: u64,
    /// The largest reordering extent (RFC 4737 section 4.2.1) in datagrams, of those still known.
    pub(super) largest_extent: u64,
    /// Packets that are not a datagram of the test: too short, or with an implausible number.
    pub(super) garbage: u64,
    /// Drops of this host's full socket as its kernel counts them: a train counts once.
    pub(super) drops: u64,
    /// Datagrams in these drops, according to the gaps that they left.
    pub(super) host_dropped: u64,
    /// Runs of consecutive missing numbers.
    pub(super) bursts: u64,
    /// Further datagrams that found the socket full or had a wrong checksum, which
    /// [`ReceiverStats::separate_checksum_errors`] could not distinguish.
    pub(super) unsure: u64,
    /// Interarrival jitter (RFC 3550 section 6.4.1) in nanoseconds.
    pub(super) jitter_ns: f64,
    /// Arrival of the first and of the last datagram counted.
    pub(super) arrivals: Option<[Nanos; 2]>,
    /// Payload bytes of the first arrival.
    pub(super) first_bytes: u64,
}

impl ReceiverCounts {
    /// Returns the datagrams sent up to the highest number, without the omitted start.
    pub(super) fn expected(&self) -> u64 {
        self.highest - self.base
    }

    /// Returns the datagrams missing below the highest number, whoever dropped them.
    pub(super) fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// Returns the details for another farwire.
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
    /// Returns the statistics of a stream that has not begun.
    pub(super) fn new(counter: NumberWidth) -> Self {
        Self {
            counter,
            seen: SeenNumbers::new(),
            gaps: Gaps::new(),
            suspect: None,
            drops: 0,
            transit: None,
            omitted: OmittedCounts::default(),
            counts: ReceiverCounts::default(),
        }
    }

    /// Restarts counting. Datagrams sent until now are omitted, even if they arrive later.
    pub(super) fn omit(&mut self) {
        self.omitted = OmittedCounts {
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

    /// Counts a train that arrived at `at`, when the socket had dropped `drops` times in total.
    ///
    /// The jitter changes once per train, with its first datagram, because the datagrams of a train share one arrival
    /// timestamp.
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
            if self.counter == NumberWidth::Bits32 {
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

    /// Returns how often the socket dropped something, as reported with received datagrams.
    pub(super) fn dropped(&self) -> u32 {
        self.drops
    }

    /// Ends counting. The sender has sent numbers up to `sent`, and the socket has dropped `drops` times in total, if
    /// these are known. Datagrams missing after the last arrival then count as lost.
    pub(super) fn close(&mut self, sent: Option<u64>, drops: Option<u32>) {
        let dropped = drops.map_or(0, |drops| u64::from(drops.wrapping_sub(self.drops)));
        self.counts.drops += dropped;
        let tail = sent.map_or(0, |sent| sent.saturating_sub(self.counts.highest));
        self.counts.highest += tail;
        self.counts.bursts += u64::from(tail > 0);
        self.counts.host_dropped += tail.min(dropped * MOST_SEGMENTS as u64);
    }

    /// Removes drops that were not of a full socket. According to the kernel, `full` of the socket's drops found it
    /// full. The other drops were single datagrams with a wrong checksum, which count as lost by the network.
    pub(super) fn separate_checksum_errors(&mut self, dropped: u32, full: FullDrops) {
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

    /// Returns the number of a datagram whose 32 bits in the packet may have wrapped: the number nearest to the highest
    /// so far.
    fn unwrapped(&self, number: u64) -> u64 {
        let highest = self.seen.highest;
        let ahead = (number.wrapping_sub(highest) << 32).cast_signed() >> 32;
        let nearest = highest.checked_add_signed(ahead);
        nearest.filter(|nearest| *nearest > 0).unwrap_or(number)
    }

    /// Counts a datagram and returns whether it counts: its number belongs to the stream, is new, and is in the counted
    /// part.
    ///
    /// A number that jumps far ahead is held until the next one follows it, as after an outage. Otherwise it is garbage
    /// (RFC 3550 appendix A.1 does the same).
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
            // The number is too old to detect duplicates; the datagram counts as lost.
            SequenceVerdict::TooLate => return false,
            SequenceVerdict::New if number < before => {
                self.counts.reordered += 1;
                // The run of missing numbers that contained it is split, shortened or filled.
                let base = self.counts.base;
                let mut missing = |number: u64| number > base && !self.seen.has_arrived(number);
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

    fn jitter(&mut self, stamped: DatagramHeader, at: Nanos) {
        let transit =
            at.0.cast_signed()
                .wrapping_sub(stamped.sent.0.cast_signed());
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.counts.jitter_ns += (change - self.counts.jitter_ns) / 16.0;
        }
    }
}

/// The latest gaps in the numbers in ascending order, from which reordering extents are computed.
#[derive(Debug)]
struct Gaps(VecDeque<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The received numbers on either side.
    below: u64,
    above: u64,
    /// The number of datagrams that had arrived when `above` did.
    passed_at: u64,
}

impl Gaps {
    fn new() -> Self {
        Self(VecDeque::with_capacity(MOST_GAPS))
    }

    /// Adds the gap below number `above`, which was the `arrival`th datagram to arrive, after `below`.
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

    /// Returns how many datagrams arrived from the first one that overtook `number` to `number` itself, which was the
    /// `arrival`th to arrive (RFC 4737 section 4.2.1: i - j for the earliest j with s\[j\] > s\[i\]).
    fn extent(&self, number: u64, arrival: u64) -> Option<u64> {
        let behind = self.0.partition_point(|gap| gap.below < number);
        let gap = self.0.get(behind.checked_sub(1)?)?;
        (number < gap.above).then(|| arrival - gap.passed_at)
    }
}

#[cfg(test)]
mod tests;
