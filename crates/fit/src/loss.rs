//! Random loss on the idle path, its bursts, and duplication.
//!
//! A short measurement of a path that loses packets in bursts often shows no burst, or a single one. Its losses then do
//! not show whether they come in bursts, and an interval for independent losses misses the truth. The interval of the
//! loss is therefore that of the likelihood of a chain of two states, whatever length its bursts have (E. N. Gilbert,
//! "Capacity of a burst-noise channel", 1960; S. S. Wilks, "The large-sample distribution of the likelihood ratio for
//! testing composite hypotheses", 1938).

use conditions::Direction;
use stats::losses::Losses;
use stats::proportion;

use crate::estimate::Estimate;
use crate::index;
use crate::observations::ProbeSession;

/// The probability by chance below which losses in a row are bursts.
const ALARM: f64 = 0.01;
/// The normal quantile of 95 % intervals.
const Z: f64 = 1.96;
/// The fall of the logarithm of the likelihood at the ends of a 95 % interval: half of the quantile of chi-squared with
/// one degree of freedom.
const FALL: f64 = 1.92;
/// The longest mean length of bursts, in packets, that a measurement with few bursts does not exclude.
pub(crate) const LONGEST_BURST: f64 = 8.0;
/// The longest mean length of bursts as a multiple of the one that was observed.
const LONGER_BURST: f64 = 4.0;
/// The mean length of bursts, in packets, up to which losses are as good as independent.
const HARDLY_BURSTS: f64 = 1.5;
/// The number of halvings that find the end of an interval to more digits than are shown.
const HALVINGS: u32 = 60;

/// The random loss of a direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFit {
    /// The share of lost packets in percent. If the direction is unknown, it is half of the round trip's, and its interval
    /// reaches from none of that to all of it.
    pub percent: Estimate,
    /// The mean number of packets that are lost in a row, if they are lost in bursts.
    pub burst: Option<Estimate>,
    /// The counts behind both.
    pub counts: Losses,
    /// Whether the direction is unknown, so that each direction has half of the round trip's loss.
    pub is_half: bool,
}

impl LossFit {
    /// Fits the loss of a direction to the probes on the idle path; `None` without probes.
    pub fn of(idle: &ProbeSession, way: Direction) -> Option<Self> {
        let lost = idle.probes.iter().map(|probe| probe.rtt_ms.is_none());
        let round_trip = Losses::in_order(lost);
        let (counts, is_half) = match idle.losses[index(way)] {
            Some(counts) => (counts, false),
            None => (round_trip, true),
        };
        let interval = interval(counts)?;
        let share = counts.lost as f64 / counts.of.max(1) as f64;
        let whole = Estimate::new(share, interval).map(|share| 100.0 * share);
        let percent = match is_half {
            // Two directions with the same loss lose 1 - (1 - p)^2 together.
            true => of_either_direction(100.0 * (1.0 - (1.0 - share).sqrt()), whole),
            false => whole,
        };
        Some(Self {
            percent,
            burst: burst(counts),
            counts,
            is_half,
        })
    }

    /// Returns the longest mean length of bursts, in packets, that the losses do not exclude, if they do not show whether they
    /// come in bursts: the share of losses that follow another one then has an interval that reaches to these bursts.
    pub(crate) fn possible_burst(&self) -> Option<f64> {
        let Losses { of, lost, bursts } = self.counts;
        if self.burst.is_some() || lost >= of {
            return None;
        }
        let [_, most] = proportion::wilson(lost.saturating_sub(bursts), lost)?;
        let longest = 1.0 / (1.0 - most).max(1.0 / lost as f64);
        (longest > HARDLY_BURSTS).then_some(longest)
    }

    /// Returns the share of packets that are lost, from 0 to 1.
    pub(crate) fn share(&self) -> Estimate {
        self.percent.map(|percent| percent / 100.0)
    }

    /// Returns the interval of the share of `packets` others that are lost, from 0 to 1.
    ///
    /// The variance of a share is inversely proportional to the number of packets, so that the share of these adds its own
    /// variance to that of the known one.
    pub(crate) fn expected(&self, packets: f64) -> [f64; 2] {
        let Estimate { value, interval } = self.share();
        let wider = (1.0 + self.counts.of as f64 / packets.max(1.0)).sqrt();
        interval.map(|end| (value + wider * (end - value)).clamp(0.0, 1.0))
    }
}

impl ProbeSession {
    /// Adds the losses of a load that was far below the rate, if the far end counts those of the probes, too.
    ///
    /// A path that cannot carry as many packets, or whose rate falls below that of the load for a while, loses others than the
    /// random ones. They are therefore left out if they are certainly more than those of the probes, or in longer bursts than
    /// those of the probes can be. A few probes may have met no burst.
    pub fn add_losses(&mut self, way: Direction, more: Losses) {
        let Some(known) = self.losses[index(way)] else {
            return;
        };
        let most = known.interval_at_least(more.inflation());
        let are_more = most
            .zip(more.interval())
            .is_none_or(|([_, most], [least, _])| least > most);
        if !are_more && !has_longer_bursts(more, known) {
            self.losses[index(way)] = Some(known.with(more));
        }
    }
}

/// Returns whether losses come in certainly longer bursts than other, known ones can: than bursts of which the known losses show
/// too few, or than those that they show.
fn has_longer_bursts(losses: Losses, known: Losses) -> bool {
    mean_burst(losses).is_some_and(|burst| burst.interval[0] > longest_burst(known))
}

/// Returns the share of packets that pass a direction with this random loss; all of them if it is not known.
pub(crate) fn passes(random: Option<&LossFit>) -> f64 {
    random.map_or(1.0, |random| 1.0 - random.share().value)
}

/// Returns the 95 % interval of the share of lost packets, from 0 to 1; `None` without packets.
///
/// It has the shares for which some length of bursts makes the counts almost as likely as the most likely share does.
fn interval(counts: Losses) -> Option<[f64; 2]> {
    if counts.lost >= counts.of {
        return counts.interval();
    }
    let chain = Chain::new(counts);
    let found = counts.lost as f64 / counts.of as f64;
    let most = chain.likelihood(found);
    let end = |mut inside: f64, mut outside: f64| {
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(inside, outside);
            match most - chain.likelihood(middle) < FALL {
                true => inside = middle,
                false => outside = middle,
            }
        }
        inside
    };
    Some([end(found, 0.0), end(found, 1.0)])
}

/// The transitions of a chain with the states "passes" and "lost".
struct Chain {
    /// Passed packets after a passed one.
    passing: f64,
    /// Lost packets after a lost one.
    losing: f64,
    /// Bursts, each with a change to "lost" and one back.
    bursts: f64,
    /// The least probability that a burst ends with a packet.
    least_end: f64,
}

impl Chain {
    fn new(counts: Losses) -> Self {
        let Losses { of, lost, bursts } = counts;
        Self {
            passing: of.saturating_sub(lost).saturating_sub(bursts) as f64,
            losing: lost.saturating_sub(bursts) as f64,
            bursts: bursts as f64,
            least_end: 1.0 / longest_burst(counts),
        }
    }

    /// Returns the logarithm of the likelihood of the transitions, if a chain loses this share of packets and its bursts
    /// have the length that makes them most likely.
    fn likelihood(&self, share: f64) -> f64 {
        if share <= 0.0 {
            return if self.bursts > 0.0 {
                f64::NEG_INFINITY
            } else {
                0.0
            };
        }
        // A burst begins with the probability odds * end. Independent losses have the end 1 - share.
        let odds = share / (1.0 - share);
        let rises = |end: f64| {
            2.0 * self.bursts / end
                > self.losing / (1.0 - end) + self.passing * odds / (1.0 - odds * end)
        };
        let (mut low, mut high) = (self.least_end, (1.0 - share).min(1.0 / odds));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match rises(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        let begin = odds * low;
        // A count of 0 has no part in the likelihood, even if its probability is 0.
        let part = |count: f64, probability: f64| match count > 0.0 {
            true => count * probability.ln(),
            false => 0.0,
        };
        part(self.bursts, begin)
            + part(self.bursts, low)
            + part(self.losing, 1.0 - low)
            + part(self.passing, 1.0 - begin)
    }
}

/// Returns the mean length of bursts, if more losses follow each other than independent losses would.
///
/// After a lost packet, the next one is lost with the share of losses if losses are independent. The count of losses
/// that follow another one is compared with the binomial distribution.
fn burst(counts: Losses) -> Option<Estimate> {
    let Losses { of, lost, bursts } = counts;
    let following = lost.saturating_sub(bursts);
    if following < 2 || lost >= of {
        return None;
    }
    let share = lost as f64 / of as f64;
    if 1.0 - proportion::fewer_than(following, lost, share) > ALARM {
        return None;
    }
    mean_burst(counts)
}

/// Returns the mean number of packets that are lost in a row; `None` without losses.
///
/// Bursts of a Gilbert channel have a geometric length, whose mean has the relative standard error sqrt((1 - 1/B) / bursts).
fn mean_burst(Losses { lost, bursts, .. }: Losses) -> Option<Estimate> {
    let mean = lost as f64 / bursts as f64;
    let relative = ((1.0 - 1.0 / mean) / bursts as f64).sqrt();
    let reach = (Z * relative).exp();
    (bursts > 0).then(|| Estimate::new(mean, [(mean / reach).max(1.0), mean * reach]))
}

/// Returns the longest mean length of bursts, in packets, that these losses do not exclude.
fn longest_burst(Losses { lost, bursts, .. }: Losses) -> f64 {
    LONGEST_BURST.max(LONGER_BURST * lost as f64 / bursts.max(1) as f64)
}

/// Returns what a direction has of an effect that only round trips show. This value assumes that both directions have the
/// same; one of them may have all of it, and the other one nothing.
fn of_either_direction(value: f64, whole: Estimate) -> Estimate {
    let [_, most] = whole.interval;
    Estimate::new(value, [0.0, most])
}

/// Returns the share of packets that are duplicated in each direction, in percent; `None` if no answer was duplicated.
pub(crate) fn duplicated(idle: &ProbeSession) -> Option<Estimate> {
    let sent = idle.probes.len() as u64;
    let count = idle.duplicates.min(sent);
    if count == 0 {
        return None;
    }
    let share = count as f64 / sent as f64;
    let interval = proportion::wilson(count, sent)?;
    let whole = Estimate::new(share, interval).map(|share| 100.0 * share);
    Some(of_either_direction(whole.value / 2.0, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observations::{PathObservations, Probe};
    use crate::{LinkFit, Origin};

    /// Returns the losses of a chain of two states that loses `share` of `count` packets in bursts of `burst` packets.
    fn chain(random: &mut fastrand::Rng, count: usize, share: f64, burst: f64) -> Losses {
        let ends = 1.0 / burst;
        let begins = ends * share / (1.0 - share);
        let mut is_lost = random.f64() < share;
        Losses::in_order((0..count).map(|_| {
            let now = is_lost;
            is_lost ^= random.f64() < if now { ends } else { begins };
            now
        }))
    }

    #[test]
    fn intervals_contain_rare_losses_whether_they_are_independent_or_in_bursts() {
        const SERIES: u32 = 200;
        let mut random = fastrand::Rng::with_seed(1);
        for burst in [1.01, 2.0, 4.0, 8.0] {
            let mut covered = 0;
            let shares = [0.001, 0.003, 0.01, 0.03];
            for share in shares {
                for _ in 0..SERIES {
                    let [low, high] = interval(chain(&mut random, 950, share, burst)).unwrap();
                    covered += u32::from((low..=high).contains(&share));
                }
            }
            let percent = 100.0 * f64::from(covered) / f64::from(SERIES) / shares.len() as f64;
            assert!(percent >= 93.5, "{burst}: {percent} %");
        }
    }

    #[test]
    fn few_losses_have_an_interval_that_knows_no_burst_length() {
        let of = |of, lost, bursts| interval(Losses { of, lost, bursts }).unwrap();
        let is_near = |[low, high]: [f64; 2], expected: [f64; 2]| {
            (low - expected[0]).abs() < 2e-4 && (high - expected[1]).abs() < 2e-4
        };
        // The likelihood of no losses is exp(-n p / 8).
        assert!(is_near(of(951, 0, 0), [0.0, 0.0159]), "{:?}", of(951, 0, 0));
        assert!(
            is_near(of(830, 2, 1), [0.0001, 0.0307]),
            "{:?}",
            of(830, 2, 1)
        );
        // Many independent losses have almost the interval of Wilson.
        let (found, wilson) = (
            of(20_000, 200, 198),
            proportion::wilson(200, 20_000).unwrap(),
        );
        assert!(is_near(found, wilson), "{found:?} {wilson:?}");
        assert_eq!(interval(Losses::default()), None);
        let [low, high] = of(3, 2, 2);
        assert!(low < 0.5 && high > 0.8, "{low} {high}");
        assert_eq!(of(20, 20, 1)[1], 1.0);
        let most = u64::MAX;
        let [low, high] = of(most, most - 1, most);
        assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0);
    }

    #[test]
    fn the_interval_of_half_a_round_trip_has_all_of_it_in_one_direction_and_none_in_the_other() {
        let probes = (0..1000).map(|at| Probe {
            at_s: f64::from(at),
            rtt_ms: (at % 50 > 0).then_some(20.0),
            ..Probe::default()
        });
        let idle = ProbeSession {
            probes: probes.collect(),
            duplicates: 40,
            ..ProbeSession::default()
        };
        let lost = LossFit::of(&idle, Direction::Up).unwrap();
        assert!(lost.is_half && (lost.percent.value - 1.005).abs() < 0.001);
        assert!(
            lost.percent.contains(0.0) && lost.percent.contains(2.0),
            "{lost:?}"
        );
        let duplicated = duplicated(&idle).unwrap();
        assert!((duplicated.value - 2.0).abs() < 1e-9, "{duplicated:?}");
        assert!(
            duplicated.contains(0.0) && duplicated.contains(4.0),
            "{duplicated:?}"
        );
    }

    #[test]
    fn few_losses_that_may_be_bursts_are_said_to_be_indistinguishable() {
        let observed = |lost_every: u32| {
            let probes = (0..2000).map(|at| Probe {
                at_s: f64::from(at) / 100.0,
                rtt_ms: (at % lost_every > 0).then_some(20.0),
                ..Probe::default()
            });
            PathObservations {
                idle: ProbeSession {
                    probes: probes.collect(),
                    ..ProbeSession::default()
                },
                ..PathObservations::default()
            }
        };
        let bursts = |lost_every| {
            let found = LinkFit::of(&observed(lost_every));
            let text = found.to_toml(&Origin::of_path("192.0.2.1", "2026-11-27"));
            let mut rows = found.parameters().into_iter();
            let row = rows.find(|row| row.name == "loss burst");
            (
                row.and_then(|row| row.word),
                text.contains("bursts cannot be distinguished"),
            )
        };
        // Four losses may be single ones of short bursts, and 200 that never follow each other are not.
        assert_eq!(
            bursts(500),
            (Some("cannot be distinguished".to_owned()), true)
        );
        assert_eq!(bursts(10), (None, false));
    }

    #[test]
    fn independent_losses_have_no_bursts_and_long_runs_do() {
        let of = |of, lost, bursts| burst(Losses { of, lost, bursts });
        assert_eq!(of(1000, 30, 29), None);
        assert_eq!(of(1000, 2, 1), None);
        let found = of(1000, 40, 10).unwrap();
        assert!(
            (found.value - 4.0).abs() < 1e-9 && found.contains(5.0),
            "{found:?}"
        );
    }

    #[test]
    fn losses_of_a_load_are_left_out_if_they_are_certainly_more_or_in_longer_bursts() {
        let after = |known: Losses, lost, bursts| {
            let mut idle = ProbeSession {
                losses: [Some(known), None],
                ..ProbeSession::default()
            };
            let more = Losses {
                of: 30_000,
                lost,
                bursts,
            };
            idle.add_losses(Direction::Up, more);
            idle.losses[0].unwrap().lost - known.lost
        };
        let none = Losses::independent(0, 1319);
        // 1,319 probes meet none of 17 bursts with a probability of a half, and none of 300 losses hardly ever.
        assert_eq!(after(none, 100, 17), 100);
        assert_eq!(after(none, 300, 300), 0);
        assert_eq!(after(none, 3000, 200), 0);
        // A queue of 100 packets that overflows once loses many in a row.
        assert_eq!(after(none, 114, 1), 0);
        assert_eq!(after(none, 20, 1), 20);
        let in_bursts = Losses {
            of: 1319,
            lost: 60,
            bursts: 2,
        };
        assert_eq!(after(in_bursts, 800, 20), 800);
    }
}
