//! The schedule of a sending rate: bursts, spread over their intervals. It is pure, and takes the time as an argument.
//!
//! A rate states how many datagrams each transmitter sends per interval, but not when within it. The reference sends
//! them at the start of the interval. This pacer spreads them evenly, in trains at least [`SLOT`] apart, so that the
//! sender's own bursts do not fill a short queue on the path.

use model::Nanos;

use super::wire::{SendingRate, Transmitter};

/// The least gap between sends in nanoseconds. Datagrams that would be closer leave as a train.
const SLOT: u64 = 50_000;
/// The delay in nanoseconds above which the sender skips the datagrams that it missed, instead of sending them as a
/// burst.
const MOST_BEHIND: u64 = 10_000_000;
/// The largest burst of the table, and of any peer's request.
const LARGEST_BURST: u32 = 100;
/// The shortest interval of the table, and of any peer's request.
const SHORTEST_US: u32 = 100;
/// The longest interval of any peer's request.
const LONGEST_US: u32 = 60_000_000;

/// Datagrams that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    /// UDP payload size of the datagrams, as the rate states it.
    pub(crate) payload: u32,
    /// The number of datagrams of this size.
    pub(crate) count: usize,
    /// The size of one more datagram behind them; 0 means none.
    pub(crate) addon: u32,
}

/// The two transmitters of a rate, each with its own schedule. At first it sends nothing.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    schedules: [TransmitterSchedule; 2],
}

#[derive(Debug, Default)]
struct TransmitterSchedule {
    transmitter: Transmitter,
    /// The start of the current interval, or `None` while there is nothing to send.
    began: Option<Nanos>,
    /// The number of slots of this interval that have left.
    left: u64,
    /// The time that was skipped.
    skipped: Nanos,
}

impl Pacer {
    /// Sends at `rate` from `now` on. The first train is due when the next train of the old rate was, but no later than
    /// one interval after `now`.
    pub(crate) fn set(&mut self, rate: &SendingRate, now: Nanos) {
        for (schedule, transmitter) in self.schedules.iter_mut().zip([rate.first, rate.second]) {
            schedule.set(bounded(transmitter), now);
        }
    }

    /// Returns when the next train is due.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.schedules
            .iter()
            .filter_map(TransmitterSchedule::next_at)
            .min()
    }

    /// Returns the next train that is due by `now`.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Train> {
        loop {
            let schedule = self
                .schedules
                .iter_mut()
                .min_by_key(|schedule| schedule.next_at().unwrap_or(Nanos(u64::MAX)))?;
            let at = schedule.next_at().filter(|at| *at <= now)?;
            if now.0 - at.0 > MOST_BEHIND {
                schedule.skipped += now - at;
                schedule.began = Some(now);
                schedule.left = 0;
            }
            if let Some(train) = schedule.take() {
                return Some(train);
            }
        }
    }

    /// Returns the time of the schedule whose datagrams were skipped, because this machine was too late for them.
    pub(crate) fn skipped(&self) -> Nanos {
        let each = self.schedules.iter().map(|schedule| schedule.skipped);
        each.max().unwrap_or_default()
    }
}

impl TransmitterSchedule {
    fn set(&mut self, transmitter: Transmitter, now: Nanos) {
        if self.transmitter == transmitter {
            return;
        }
        // A change of the rate causes neither a gap nor a burst.
        let due = self.next_at();
        self.transmitter = transmitter;
        self.left = 0;
        let latest = Nanos(now.0 + self.interval());
        self.began = (transmitter.interval_us > 0).then(|| due.map_or(now, |due| due.min(latest)));
    }

    fn next_at(&self) -> Option<Nanos> {
        let into = self.interval() * self.left / self.slots();
        Some(Nanos(self.began?.0 + into))
    }

    /// Returns the train of the next slot, or `None` if the interval has none to send.
    fn take(&mut self) -> Option<Train> {
        let (slots, items) = (self.slots(), self.items());
        let (from, to) = (items * self.left / slots, items * (self.left + 1) / slots);
        self.left += 1;
        if self.left == slots {
            self.left = 0;
            self.began = self.began.map(|began| Nanos(began.0 + self.interval()));
        }
        let with_addon = to > u64::from(self.transmitter.burst);
        let count = to - from - u64::from(with_addon);
        (to > from).then_some(Train {
            payload: self.transmitter.payload,
            count: usize::try_from(count).unwrap_or_default(),
            addon: u32::from(with_addon) * self.transmitter.addon,
        })
    }

    fn interval(&self) -> u64 {
        u64::from(self.transmitter.interval_us) * 1_000
    }

    fn items(&self) -> u64 {
        u64::from(self.transmitter.burst) + u64::from(self.transmitter.addon > 0)
    }

    fn slots(&self) -> u64 {
        self.items().min(self.interval() / SLOT).max(1)
    }
}

/// Returns a peer's request within the limits of the table.
fn bounded(transmitter: Transmitter) -> Transmitter {
    Transmitter {
        interval_us: match transmitter.interval_us {
            0 => 0,
            us => us.clamp(SHORTEST_US, LONGEST_US),
        },
        burst: transmitter.burst.min(LARGEST_BURST),
        ..transmitter
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rates::RateTable;
    use super::super::wire::Sizes;
    use super::*;

    /// Returns the trains of the first `span_ms` milliseconds, each with the time at which it was due.
    fn trains(rate: &SendingRate, span_ms: u64) -> Vec<(u64, Train)> {
        let mut pacer = Pacer::default();
        pacer.set(rate, Nanos(0));
        let mut sent = Vec::new();
        while let Some(at) = pacer.next_at().filter(|at| at.0 < span_ms * 1_000_000) {
            sent.extend(pacer.due(at).map(|train| (at.0, train)));
        }
        sent
    }

    #[test]
    fn every_row_sends_at_its_rate() {
        let table = RateTable::new(Sizes::default());
        for row in 1..=table.last() {
            let rate = table.rate(row);
            let bytes: u64 = trains(&rate, 20)
                .iter()
                .map(|(_, train)| {
                    let addon = if train.addon == 0 {
                        0
                    } else {
                        u64::from(train.addon) + 28
                    };
                    train.count as u64 * (u64::from(train.payload) + 28) + addon
                })
                .sum();
            let mbit = bytes as f64 * 8.0 / 20_000.0;
            let stated = rate.l3_bit_per_s() / 1e6;
            assert!(
                (mbit - stated).abs() < 1e-6,
                "row {row}: {mbit} of {stated}"
            );
        }
    }

    #[test]
    fn a_burst_is_spread_over_its_interval() {
        let rate = RateTable::new(Sizes::default()).rate(50);
        let sent = trains(&rate, 2);
        let times: Vec<u64> = sent.iter().map(|(at, _)| at / 1_000).collect();
        assert_eq!(times, [0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800]);
        assert!(sent.iter().all(|(_, train)| train.count == 1));
    }

    #[test]
    fn fast_rows_leave_in_trains() {
        let rate = RateTable::new(Sizes::default()).rate(1152);
        let sent = trains(&rate, 1);
        assert_eq!(sent.len(), 20);
        assert!(sent.iter().all(|(_, train)| train.count == 50));
    }

    #[test]
    fn a_change_of_rate_makes_neither_a_gap_nor_a_burst() {
        let table = RateTable::new(Sizes::default());
        let mut pacer = Pacer::default();
        pacer.set(&table.rate(50), Nanos(0));
        let mut times = Vec::new();
        while let Some(at) = pacer.next_at().filter(|at| at.0 < 4_000_000) {
            if at.0 >= 1_500_000 {
                pacer.set(&table.rate(40), at);
            }
            pacer.due(at);
            times.push(at.0 / 1_000);
        }
        assert!(
            times
                .windows(2)
                .all(|gap| (199..=251).contains(&(gap[1] - gap[0]))),
            "{times:?}"
        );
    }

    #[test]
    fn a_delayed_sender_skips_missed_trains() {
        let rate = RateTable::new(Sizes::default()).rate(50);
        let mut pacer = Pacer::default();
        pacer.set(&rate, Nanos(0));
        pacer.due(Nanos(0));
        let late = Nanos(1_000_000_000);
        let burst = std::iter::from_fn(|| pacer.due(late)).count();
        assert_eq!(burst, 1);
        assert_eq!(pacer.skipped().0, 1_000_000_000 - 200_000);
    }

    #[test]
    fn row_0_keeps_the_path_open() {
        let sent = trains(&RateTable::new(Sizes::default()).rate(0), 200);
        assert_eq!(sent.len(), 4);
    }

    proptest! {
        #[test]
        fn no_rate_of_a_peer_causes_spinning_or_bursts(
            numbers in prop::array::uniform7(prop_oneof![0u32..3000, any::<u32>()]),
        ) {
            let [interval_us, payload, burst, slow_us, slow_payload, slow_burst, addon] = numbers;
            let rate = SendingRate {
                first: Transmitter { interval_us, payload, burst, addon: 0 },
                second: Transmitter { interval_us: slow_us, payload: slow_payload, burst: slow_burst, addon },
            };
            let sent = trains(&rate, 10);
            prop_assert!(sent.len() <= 2 * 200);
            let datagrams: usize = sent.iter().map(|(_, train)| train.count + 1).sum();
            prop_assert!(datagrams <= 2 * 101 * 100 + 400);
        }
    }
}
