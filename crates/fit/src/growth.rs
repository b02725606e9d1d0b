//! The growth of a queue beside a load: in a plain queue, and in one that CoDel manages.

use stats::order_statistics::{quantile, sorted};

/// CoDel's usual target in milliseconds, and its interval in seconds (RFC 8289, section 4.4).
pub(crate) const CODEL: (f64, f64) = (5.0, 0.1);
/// The time between two steps of a prediction, in seconds.
const STEP_S: f64 = 0.01;
/// The longest load that is predicted, in seconds.
const LONGEST_S: f64 = 600.0;
/// The parts into which the time of the probes is divided; each has its median wait.
const PARTS: usize = 10;
/// The rates within their interval that are tried in a round, and the rounds, each of which is closer to the best rate.
const TRIED: u32 = 20;
const ROUNDS: u32 = 3;

/// The manager of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// Nothing: the queue grows until it is full.
    Nobody,
    /// CoDel with its usual parameters.
    Codel,
}

/// A load, and the queue in front of the rate that it exceeds.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    /// The interval of the rate in bit/s.
    pub(crate) rates: [f64; 2],
    /// The rate of the load in bit/s.
    pub(crate) sent: f64,
    /// The rate of the probes in bit/s, and the time of the first one in seconds since the start of the load.
    pub(crate) probes: (f64, f64),
    /// The bits that pass before the queue grows.
    pub(crate) burst_bits: f64,
    /// The wait in a full queue in milliseconds.
    pub(crate) full_ms: f64,
    /// The bits of a datagram.
    pub(crate) packet_bits: f64,
}

impl Growth {
    /// Returns by how much the `waits` of probes differ from those that a queue makes them wait, in milliseconds: the root
    /// mean square over the medians of ten parts, for the rate within its interval at which they differ least. Each wait has
    /// its time in seconds since the start of the load, and they are in the order of time.
    ///
    /// Returns `None` without waits, and for times that no measurement has.
    pub(crate) fn misfit(&self, manager: Manager, waits: &[(f64, f64)]) -> Option<f64> {
        let parts = parts(waits);
        let (last_s, _) = *parts.last()?;
        if !(0.0..LONGEST_S).contains(&last_s) {
            return None;
        }
        let [mut low, mut high] = self.rates.map(|rate| rate.max(1.0));
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            let step = (high - low) / f64::from(TRIED);
            let tried = (0..=TRIED).map(|at| low + f64::from(at) * step);
            let misfits = tried.map(|rate| (rate, self.misfit_of(manager, rate, &parts)));
            let (rate, found) = misfits.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
            least = least.min(found);
            (low, high) = ((rate - step).max(low), (rate + step).min(high));
        }
        Some(least)
    }

    fn misfit_of(&self, manager: Manager, rate: f64, parts: &[(f64, f64)]) -> f64 {
        let most = parts
            .iter()
            .map(|(_, wait)| *wait)
            .fold(self.full_ms, f64::max);
        let full_ms = match manager {
            Manager::Nobody => self.full_ms,
            // The queue may have been longer than at the time of the strong load for which its wait is known.
            Manager::Codel => most,
        };
        let mut queue = GrowingQueue {
            wait_ms: -1e3 * self.burst_bits / rate,
            above_s: None,
        };
        let (mut now_s, mut squares) = (0.0, 0.0);
        for (at_s, wait_ms) in parts {
            while now_s < *at_s {
                let (probes, from_s) = self.probes;
                let offered = self.sent + if now_s < from_s { 0.0 } else { probes };
                queue.wait_ms += 1e3 * STEP_S * (offered / rate - 1.0);
                if manager == Manager::Codel {
                    queue.drop_packets(now_s, 1e3 * self.packet_bits / rate);
                }
                queue.wait_ms = queue.wait_ms.min(full_ms);
                now_s += STEP_S;
            }
            squares += (queue.wait_ms.max(0.0) - wait_ms).powi(2);
        }
        (squares / parts.len() as f64).sqrt()
    }
}

/// A queue at one time of its growth.
struct GrowingQueue {
    /// The wait in milliseconds; below 0 as long as a burst passes.
    wait_ms: f64,
    /// The time in seconds since which it has been longer than CoDel's target.
    above_s: Option<f64>,
}

impl GrowingQueue {
    /// Drops packets as CoDel does in a step of time: the n-th one an interval / sqrt(n) after the one before, so that it
    /// has dropped (t / 2 interval)^2 packets t seconds after the first one, until the queue is at its target.
    fn drop_packets(&mut self, now_s: f64, packet_ms: f64) {
        let (target_ms, interval_s) = CODEL;
        if self.wait_ms < target_ms {
            self.above_s = None;
            return;
        }
        let above_s = *self.above_s.get_or_insert(now_s);
        let dropped = |at_s: f64| {
            let dropping_s = (at_s - above_s - interval_s).max(0.0);
            (dropping_s / 2.0 / interval_s).powi(2)
        };
        let packets = dropped(now_s + STEP_S) - dropped(now_s);
        self.wait_ms = (self.wait_ms - packets * packet_ms).max(target_ms);
    }
}

/// Returns the median time and wait of ten parts of about the same number of waits.
fn parts(waits: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let middle = |values: Vec<f64>| quantile(&sorted(&values), 0.5);
    let parts = waits.chunks(waits.len().div_ceil(PARTS).max(1));
    let medians = parts.filter_map(|part| {
        let (times, waits) = part.iter().copied().unzip();
        middle(times).zip(middle(waits))
    });
    medians.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of 21 Mbit/s on a path of 20 Mbit/s.
    fn growth() -> Growth {
        Growth {
            rates: [19.8e6, 20.2e6],
            sent: 21e6,
            probes: (0.0, 0.0),
            burst_bits: 0.0,
            full_ms: 120.0,
            packet_bits: 12e3,
        }
    }

    fn times() -> impl Iterator<Item = f64> {
        (200..400).map(|at| f64::from(at) / 100.0)
    }

    #[test]
    fn a_queue_that_grows_evenly_until_it_is_full_is_plain() {
        // 5 % of each second are 50 ms.
        let waits: Vec<(f64, f64)> = times().map(|at| (at, (50.0 * at).min(120.0))).collect();
        let [plain, managed] =
            [Manager::Nobody, Manager::Codel].map(|one| growth().misfit(one, &waits).unwrap());
        assert!(plain < 1.0 && managed > 20.0, "{plain} {managed}");
    }

    #[test]
    fn a_queue_that_drops_ever_more_packets_is_managed() {
        // It is above 5 ms after 0.1 s, and drops after 0.2 s. A packet needs 0.6 ms.
        let wait = |at: f64| 50.0 * at - 0.6 * 25.0 * (at - 0.2).powi(2);
        let waits: Vec<(f64, f64)> = times().map(|at| (at, wait(at).max(5.0))).collect();
        let [plain, managed] =
            [Manager::Nobody, Manager::Codel].map(|one| growth().misfit(one, &waits).unwrap());
        assert!(managed < 1.0 && plain > 20.0, "{plain} {managed}");
    }

    #[test]
    fn impossible_times_are_refused() {
        for waits in [Vec::new(), vec![(1e9, 5.0)], vec![(f64::NAN, 5.0)]] {
            assert_eq!(growth().misfit(Manager::Codel, &waits), None);
        }
    }
}
