//! The proof that a client is where its source address says, before load is sent there.
//!
//! Anybody can request a test in the name of another address. Therefore the first load PDU is a probe, which states a
//! sending time that lies a random time in the past. A client's feedback states its own sending time and the least
//! clock difference, which is the arrival time of the probe minus the stated time. The client's clock cancels out of
//! the two. Until feedback matches the stated time, the server sends at most three times the bytes that it received
//! (RFC 9000, section 8.1). The first true sending time after the probe becomes the least clock difference from then
//! on, so that the probe does not affect the test's figures.

use model::Nanos;

use super::receiver::ArrivalTime;
use super::wire::{FeedbackMessage, LOAD_HEADER, LoadHeader, Stamp};

/// The number of bytes that may be sent for each received byte.
const FACTOR: u64 = 3;
/// The range in nanoseconds of the random time by which the probe's stated sending time lies in the past. The
/// protocol's clock differences are 32 bits of milliseconds, which is 24 days in each direction; half of that remains
/// for clocks that are wrong.
const LEAST_AGE: u64 = 10_000_000_000;
const MOST_AGE: u64 = 12 * 86_400_000_000_000;
/// The most copies of the probe.
const MOST_COPIES: u8 = 5;
/// The time between two copies, which is longer than most round trips plus the 50 ms until the first feedback.
const PROBE_INTERVAL: Nanos = Nanos(400_000_000);
/// The tolerance for two times that are each rounded to a millisecond, and for a client whose clock is slewed.
const ROUNDING_MS: i32 = 2;

/// The bytes, with headers, that may still be sent to an address that is not proven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnprovenBudget {
    header: u64,
    left: u64,
}

/// The proof of one client's address.
#[derive(Debug)]
pub(crate) struct AddressProof {
    /// The stated sending time of the probe in nanoseconds since 1970.
    claimed: u64,
    copies: u8,
    first_sent: Option<Nanos>,
    next: Nanos,
}

impl UnprovenBudget {
    /// Returns a budget before the first datagram. IP and UDP headers have `header` bytes.
    pub(crate) fn new(header: u32) -> Self {
        let header = header.into();
        Self { header, left: 0 }
    }

    /// Adds a received datagram of `payload` bytes.
    pub(crate) fn add_received(&mut self, payload: usize) {
        self.left = self.left.saturating_add(FACTOR * self.size(payload));
    }

    /// Returns whether a datagram of `payload` bytes may be sent.
    pub(crate) fn allows(&self, payload: usize) -> bool {
        self.size(payload) <= self.left
    }

    /// Subtracts a sent datagram of `payload` bytes.
    pub(crate) fn sent(&mut self, payload: usize) {
        self.left = self.left.saturating_sub(self.size(payload));
    }

    fn size(&self, payload: usize) -> u64 {
        payload as u64 + self.header
    }
}

impl AddressProof {
    /// Returns a proof whose probe is due at `now`. `draw` is a number that nobody can predict.
    pub(crate) fn new(now: ArrivalTime, draw: u64) -> Self {
        let age = LEAST_AGE + draw % (MOST_AGE - LEAST_AGE);
        Self {
            claimed: now.wall.saturating_sub(age),
            copies: 0,
            first_sent: None,
            next: now.mono,
        }
    }

    /// Returns when the probe is due next, or `None` after its last copy.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        (self.copies < MOST_COPIES).then_some(self.next)
    }

    /// Returns the probe, which is sent at `now`. All copies are equal, so that they do not count as load.
    pub(crate) fn send(&mut self, now: Nanos) -> [u8; LOAD_HEADER] {
        self.copies += 1;
        self.first_sent.get_or_insert(now);
        self.next = now + PROBE_INTERVAL;
        let probe = LoadHeader {
            sequence: 1,
            payload: u16::try_from(LOAD_HEADER).unwrap_or(u16::MAX),
            sent: Stamp::of(self.claimed),
            ..LoadHeader::default()
        };
        probe.encode()
    }

    /// Returns whether feedback that arrived at `at` matches the probe: it was sent no earlier than the probe's
    /// arrival, and no later than now.
    pub(crate) fn matches(&self, status: &FeedbackMessage, at: Nanos) -> bool {
        let Some(first_sent) = self.first_sent else {
            return false;
        };
        let since = i128::from(status.sent.nanos()) - i128::from(self.claimed);
        let since_ms = (since + 500_000).div_euclid(1_000_000);
        // Clock differences wrap, as in the reference.
        let held = (since_ms - i128::from(status.clock_delta_min_ms)).rem_euclid(1 << 32);
        let most = i128::from((at.0.saturating_sub(first_sent.0)) / 1_000_000);
        let rounding = i128::from(ROUNDING_MS);
        held <= most + rounding || held >= (1 << 32) - rounding
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WALL: u64 = 1_700_000_000_000_000_000;

    fn at_ms(ms: u64) -> ArrivalTime {
        ArrivalTime {
            mono: Nanos(ms * 1_000_000),
            wall: WALL + ms * 1_000_000,
        }
    }

    /// Returns the feedback of a client whose clock is ahead by `ahead_ms`, which received `probe` at `got_ms` and
    /// answered at `answered_ms`.
    fn feedback(probe: &[u8], ahead_ms: i64, got_ms: i64, answered_ms: i64) -> FeedbackMessage {
        let claimed = LoadHeader::decode(probe).unwrap().sent.nanos();
        let clock = |ms: i64| {
            WALL.checked_add_signed((ms + ahead_ms) * 1_000_000)
                .unwrap()
        };
        let delta = clock(got_ms).abs_diff(claimed) / 1_000_000;
        let delta = if clock(got_ms) < claimed {
            -i64::try_from(delta).unwrap()
        } else {
            i64::try_from(delta).unwrap()
        };
        FeedbackMessage {
            clock_delta_min_ms: u32::try_from(delta.rem_euclid(1 << 32))
                .unwrap()
                .cast_signed(),
            sent: Stamp::of(clock(answered_ms)),
            ..FeedbackMessage::default()
        }
    }

    #[test]
    fn three_bytes_may_be_sent_per_received_byte_including_headers() {
        let mut budget = UnprovenBudget::new(28);
        assert!(!budget.allows(0));
        budget.add_received(56);
        assert!(budget.allows(224) && !budget.allows(225));
        budget.sent(100);
        assert!(budget.allows(96) && !budget.allows(97));
    }

    #[test]
    fn the_probe_is_sent_at_most_five_times() {
        let mut proof = AddressProof::new(at_ms(0), 7);
        let mut sent = Vec::new();
        while let Some(at) = proof.next_at() {
            sent.push((at.0 / 1_000_000, proof.send(at)));
        }
        let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 400, 800, 1_200, 1_600]);
        assert!(sent.iter().all(|(_, probe)| *probe == sent[0].1));
        assert!((32..=60).contains(&sent[0].1.len()));
    }

    proptest! {
        #[test]
        fn the_stated_time_is_ten_seconds_to_twelve_days_ago(draw in any::<u64>()) {
            let probe = AddressProof::new(at_ms(0), draw).send(Nanos(0));
            let age = WALL - LoadHeader::decode(&probe).unwrap().sent.nanos();
            prop_assert!((10_000_000_000..=12 * 86_400_000_000_000).contains(&age));
        }

        #[test]
        fn feedback_matches_the_probe_with_any_client_clock(
            draw in any::<u64>(),
            ahead_ms in -1_000_000_000_000i64..1_000_000_000_000,
            way_ms in 0u64..500,
            held_ms in 0u64..500,
        ) {
            let mut proof = AddressProof::new(at_ms(0), draw);
            let probe = proof.send(Nanos(0));
            let (got, answered) = (way_ms.cast_signed(), (way_ms + held_ms).cast_signed());
            let status = feedback(&probe, ahead_ms, got, answered);
            prop_assert!(proof.matches(&status, at_ms(2 * way_ms + held_ms).mono));
        }

        #[test]
        fn feedback_on_another_time_does_not_match(
            draw in any::<u64>(),
            guess in any::<u64>(),
            ahead_ms in -1_000_000_000i64..1_000_000_000,
        ) {
            let mut proof = AddressProof::new(at_ms(0), draw);
            proof.send(Nanos(0));
            let mut other = AddressProof::new(at_ms(0), guess);
            let off = proof.claimed.abs_diff(other.claimed) / 1_000_000;
            prop_assume!(off > 60);
            let status = feedback(&other.send(Nanos(0)), ahead_ms, 0, 50);
            prop_assert!(!proof.matches(&status, at_ms(52).mono));
        }
    }

    #[test]
    fn feedback_held_longer_than_the_probe_s_age_does_not_match() {
        let mut proof = AddressProof::new(at_ms(0), 7);
        let probe = proof.send(Nanos(0));
        let status = feedback(&probe, 0, 0, 60);
        assert!(proof.matches(&status, at_ms(60).mono));
        assert!(!proof.matches(&status, at_ms(50).mono));
    }
}
