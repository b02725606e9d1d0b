//! A direction that was full while it was captured: the rate of each second, and the packets that certainly did not wait.

use crate::over_time::OverTime;

/// The wait in nanoseconds from which on a packet was in a queue.
const WAITED_NS: u64 = 5_000_000;
/// The time in nanoseconds by which hosts alone make delays differ. A packet that needed longer may have waited in a queue that
/// began to grow.
const FAST_NS: u64 = 300_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The fewest seconds that show a rate.
const FEWEST: usize = 10;
/// The most seconds of a capture, a day.
const MOST: usize = 86_400;

/// A packet that crossed the path.
pub(crate) struct Arrival {
    /// When it was sent, in nanoseconds.
    pub(crate) sent_ns: u64,
    /// When it arrived, in nanoseconds.
    pub(crate) at_ns: u64,
    /// The bytes of its frame.
    pub(crate) bytes: u32,
}

/// A direction in which packets waited most of the time.
pub(crate) struct FullDirection {
    /// The least time that a packet needed, in nanoseconds.
    least_ns: u64,
    /// The rate of each second in bit/s.
    rates: Vec<f64>,
}

/// The packets that arrived in a second.
#[derive(Clone, Copy, Default)]
struct Second {
    bytes: u64,
    packets: u64,
    waited: u64,
}

impl Arrival {
    fn needed_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.sent_ns)
    }
}

impl Second {
    /// Returns whether most packets waited, so that the path carried what it could.
    fn is_full(self) -> bool {
        2 * self.waited > self.packets
    }

    /// Returns the rate of what arrived, in bit/s.
    fn rate(self) -> f64 {
        8.0 * self.bytes as f64
    }
}

impl FullDirection {
    /// Finds the rate of each second, if packets waited in most seconds.
    ///
    /// A second without waiting packets carried less than it could: it has at least the rate of the last full one. A
    /// second without any packet between two full ones is a stall.
    pub(crate) fn of(arrivals: &[Arrival]) -> Option<Self> {
        let least_ns = arrivals.iter().map(Arrival::needed_ns).min()?;
        let times = || arrivals.iter().map(|one| one.at_ns);
        let (from_ns, until_ns) = (times().min()?, times().max()?);
        let place = |at_ns: u64| usize::try_from((at_ns - from_ns) / SECOND_NS).ok();
        // The last second is not complete.
        let count = place(until_ns).filter(|count| (FEWEST..=MOST).contains(count))?;
        let mut seconds = vec![Second::default(); count];
        for one in arrivals {
            if let Some(second) = place(one.at_ns).and_then(|at| seconds.get_mut(at)) {
                second.bytes += u64::from(one.bytes);
                second.packets += 1;
                second.waited += u64::from(one.needed_ns() - least_ns >= WAITED_NS);
            }
        }
        let full = seconds.iter().filter(|one| one.is_full()).count();
        if 2 * full <= count {
            return None;
        }
        let is_full = |at: Option<usize>| {
            let second = at.and_then(|at| seconds.get(at));
            second.is_some_and(|second| second.is_full())
        };
        let mut known = seconds.iter().find(|one| one.is_full())?.rate();
        let rates = seconds.iter().enumerate().map(|(at, second)| {
            let is_between = is_full(at.checked_sub(1)) && is_full(Some(at + 1));
            if second.is_full() {
                known = second.rate();
                known
            } else if second.packets == 0 && is_between {
                0.0
            } else {
                known.max(second.rate())
            }
        });
        Some(Self {
            least_ns,
            rates: rates.collect(),
        })
    }

    /// Returns the rate over time.
    pub(crate) fn over_time(self) -> OverTime {
        OverTime {
            every_s: 1.0,
            values: self.rates,
        }
    }

    /// Returns whether a packet that was sent and arrived at these times needed hardly longer than the fastest one.
    pub(crate) fn is_fast(&self, sent_ns: u64, at_ns: u64) -> bool {
        at_ns.saturating_sub(sent_ns).saturating_sub(self.least_ns) < FAST_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns packets of 1,000 bytes that arrive evenly, this number in each second, after waiting for `wait_ns`. The first
    /// one does not wait.
    fn arrivals(per_second: &[u64], wait_ns: u64) -> Vec<Arrival> {
        let mut all = Vec::new();
        for (second, count) in (1..).zip(per_second) {
            all.extend((0..*count).map(|packet| {
                let at_ns = second * SECOND_NS + packet * SECOND_NS / count;
                let wait_ns = if second == 1 && packet == 0 {
                    0
                } else {
                    wait_ns
                };
                Arrival {
                    sent_ns: at_ns - 20_000_000 - wait_ns,
                    at_ns,
                    bytes: 1000,
                }
            }));
        }
        all
    }

    #[test]
    fn each_second_of_a_full_direction_has_its_rate_and_a_stall_has_none() {
        let mut counts = [1000; 14];
        counts[5] = 500;
        counts[8] = 0;
        let found = FullDirection::of(&arrivals(&counts, 50_000_000)).unwrap();
        assert_eq!(found.rates.len(), 13);
        assert_eq!(found.rates[4..9], [8e6, 4e6, 8e6, 8e6, 0.0]);
        assert!(found.is_fast(0, 20_100_000) && !found.is_fast(0, 21_000_000));
    }

    #[test]
    fn a_direction_in_which_packets_do_not_wait_is_not_full() {
        let counts = [1000; 14];
        assert!(FullDirection::of(&arrivals(&counts, 0)).is_none());
        assert!(FullDirection::of(&arrivals(&counts[..5], 50_000_000)).is_none());
        assert!(FullDirection::of(&[]).is_none());
    }
}
