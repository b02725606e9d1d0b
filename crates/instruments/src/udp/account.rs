//! What became of a stream's datagrams, by their numbers: loss, duplicates, reordering, jitter, and what this host dropped.

mod gaps;
mod window;

use model::Nanos;
use netio::udp::MOST_SEGMENTS;

use self::gaps::Gaps;
use self::window::{Seen, WINDOW, Window};
use super::datagram::{Counter, Stamped};

/// The account of one stream at its receiver. Its memory does not grow, whatever the numbers are.
#[derive(Debug)]
pub(crate) struct Account {
    counter: Counter,
    window: Window,
    gaps: Gaps,
    /// A number far ahead of all others, until the next datagram tells an outage from garbage.
    suspect: Option<Suspect>,
    /// Drops of this host's socket that were seen so far, as the kernel counts them.
    drops: u32,
    transit: Option<i64>,
    omitted: Omitted,
    tally: Tally,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    number: u64,
    bytes: u64,
}

/// What came before the part that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Datagrams sent in it, as far as their numbers show.
    pub(crate) datagrams: u64,
    /// Those of them that had not come when it ended.
    pub(crate) missing: u64,
}

/// The figures of a stream, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// The highest number counted; it covers all that were sent before it.
    pub(crate) highest: u64,
    /// The highest number at the end of what is omitted, 0 without: what comes up to it is not counted.
    pub(crate) base: u64,
    /// Datagrams received, each number once.
    pub(crate) received: u64,
    /// Payload bytes of these.
    pub(crate) bytes: u64,
    /// Further copies of a number.
    pub(crate) duplicates: u64,
    /// Datagrams with a number below one received before (RFC 4737 section 3, Type-P-Reordered), copies apart.
    pub(crate) reordered: u64,
    /// The largest reordering extent (RFC 4737 section 4.2.1), in datagrams, of those still known.
    pub(crate) largest_extent: u64,
    /// What is no datagram of the test: too short, or with a number that nothing bears out.
    pub(crate) garbage: u64,
    /// Times that this host's full socket dropped something, as its kernel counts: a train counts once.
    pub(crate) drops: u64,
    /// Datagrams that these were, by the gaps that they left.
    pub(crate) host_dropped: u64,
    /// Interarrival jitter (RFC 3550 section 6.4.1) in nanoseconds.
    pub(crate) jitter_ns: f64,
    /// Arrival of the first and of the last datagram counted.
    pub(crate) arrivals: Option<[Nanos; 2]>,
    /// Payload bytes that came with the first arrival.
    pub(crate) first_bytes: u64,
}

impl Tally {
    /// Datagrams sent up to the highest number, less what was omitted.
    pub(crate) fn expected(&self) -> u64 {
        self.highest - self.base
    }

    /// Datagrams that are missing below the highest number, whoever dropped them.
    pub(crate) fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }
}

impl Account {
    /// The account of a stream that has not begun.
    pub(crate) fn new(counter: Counter) -> Self {
        Self {
            counter,
            window: Window::new(),
            gaps: Gaps::new(),
            suspect: None,
            drops: 0,
            transit: None,
            omitted: Omitted::default(),
            tally: Tally::default(),
        }
    }

    /// What was omitted; nothing without [`Self::omit`].
    pub(crate) fn omitted(&self) -> Omitted {
        self.omitted
    }

    /// The figures so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Begins to count anew: what was sent up to here is omitted, also if it comes later.
    pub(crate) fn omit(&mut self) {
        self.omitted = Omitted {
            datagrams: self.tally.highest,
            missing: self.omitted.missing + self.tally.missing(),
        };
        self.suspect = None;
        self.tally = Tally {
            highest: self.tally.highest,
            base: self.tally.highest,
            ..Tally::default()
        };
        self.transit = None;
    }

    /// Takes a train in that arrived at `at`, after `drops` drops of the socket in all.
    ///
    /// The jitter takes one step a train, with its first datagram: the others of a train share its stamp of arrival, and
    /// between them there is nothing to measure.
    pub(crate) fn arrive(&mut self, train: &[u8], segment: usize, at: Nanos, drops: u32) {
        let dropped = u64::from(drops.wrapping_sub(self.drops));
        self.drops = drops;
        self.tally.drops += dropped;
        let mut dropped = dropped;
        let mut first = true;
        for datagram in train.chunks(segment.max(1)) {
            let Some(mut stamped) = self.counter.read(datagram) else {
                self.tally.garbage += 1;
                continue;
            };
            if self.counter == Counter::Bits32 {
                stamped.number = self.unwrapped(stamped.number);
            }
            let expected = self.window.highest().saturating_add(1);
            if self.number(stamped.number, datagram.len() as u64, at) {
                if std::mem::take(&mut first) {
                    self.jitter(stamped, at);
                }
                let gap = stamped.number.saturating_sub(expected);
                self.tally.host_dropped += gap.min(dropped * MOST_SEGMENTS as u64);
                dropped = 0;
            }
        }
    }

    /// Closes the account: the sender has sent numbers up to `sent` (if it says so) and the socket has dropped `drops`
    /// times in all (if the kernel says so). What is missing behind the last arrival counts as lost from here.
    pub(crate) fn close(&mut self, sent: Option<u64>, drops: Option<u32>) {
        let dropped = drops.map_or(0, |drops| u64::from(drops.wrapping_sub(self.drops)));
        self.tally.drops += dropped;
        let tail = sent.map_or(0, |sent| sent.saturating_sub(self.tally.highest));
        self.tally.highest += tail;
        self.tally.host_dropped += tail.min(dropped * MOST_SEGMENTS as u64);
    }

    /// The number of a datagram whose 32 bits on the wire may have wrapped: the one nearest to the highest so far.
    fn unwrapped(&self, number: u64) -> u64 {
        let highest = self.window.highest();
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
            self.tally.garbage += 1;
            return false;
        }
        let held = self.suspect.take();
        if number > self.window.highest().saturating_add(WINDOW) {
            match held.filter(|held| held.number == number - 1) {
                Some(held) => {
                    self.tally.garbage -= 1;
                    self.count(held.number, held.bytes, at);
                }
                None => {
                    self.tally.garbage += 1;
                    self.suspect = Some(Suspect { number, bytes });
                    return false;
                }
            }
        }
        self.count(number, bytes, at)
    }

    fn count(&mut self, number: u64, bytes: u64, at: Nanos) -> bool {
        let before = self.window.highest();
        let seen = self.window.insert(number);
        if number <= self.tally.base {
            return false;
        }
        match seen {
            Seen::Again => {
                self.tally.duplicates += 1;
                return false;
            }
            // Too far behind for copies to be told: it counts as lost.
            Seen::TooLate => return false,
            Seen::New if number < before => {
                self.tally.reordered += 1;
                let extent = self.gaps.extent(number, self.window.arrivals());
                self.tally.largest_extent = self.tally.largest_extent.max(extent.unwrap_or(0));
            }
            Seen::New => self.gaps.open(before, number, self.window.arrivals()),
        }
        let tally = &mut self.tally;
        tally.highest = tally.highest.max(number);
        tally.received += 1;
        tally.bytes += bytes;
        let [first, last] = *tally.arrivals.get_or_insert([at, at]);
        if at == first {
            tally.first_bytes += bytes;
        }
        tally.arrivals = Some([first, at.max(last)]);
        true
    }

    fn jitter(&mut self, stamped: Stamped, at: Nanos) {
        let transit =
            at.0.cast_signed()
                .wrapping_sub(stamped.sent.0.cast_signed());
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.tally.jitter_ns += (change - self.tally.jitter_ns) / 16.0;
        }
    }
}

#[cfg(test)]
mod tests;
