//! A delay that varies: windows of its time differ by more than the variation within them explains, and by so much that one
//! delay does not describe them.

use statrs::distribution::{ContinuousCDF as _, FisherSnedecor};
use stats::order_statistics::{quantile, sorted};
use stats::t_interval;

use crate::observations::BETWEEN_SESSIONS_S;
use crate::over_time::{CHANCE, OverTime};

/// The range of nine of ten windows above which a delay is not constant: this share of the median, and this number of
/// milliseconds.
const VARIES: (f64, f64) = (0.05, 0.5);
/// The fewest windows that show it.
const FEWEST_WINDOWS: usize = 10;
/// The shortest window in seconds, and its fewest probes.
const WINDOW: (f64, f64) = (1.0, 20.0);
/// The share of its probes that a window needs.
const COMPLETE: f64 = 0.75;
/// The time between two probes, as a multiple of the usual one, up to which they follow each other.
const FOLLOWS: f64 = 1.5;
/// The share of gaps between probes that have about the usual length if the probes are regular.
const REGULAR: f64 = 0.8;
/// The fewest independent values in a window that show its delay.
const FEWEST_INDEPENDENT: f64 = 4.0;
/// One of this number of windows may have a step within it.
const STEPPED: usize = 10;
/// The variation of delays in milliseconds below which hosts and clocks are not exact.
const EXACT_MS: f64 = 0.01;

/// A delay that is not constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VaryingDelay {
    /// The median delay of each window of the longest session, in milliseconds.
    pub(crate) over_time: OverTime,
    /// The delays less the difference of their window's median to the median of all, each with its time in seconds.
    pub(crate) rest: Vec<(f64, f64)>,
}

impl VaryingDelay {
    /// Finds whether delays, each with its time in seconds, vary from window to window of the longest session, by more than the
    /// time that the bottleneck needs for a probe, which has a range of `served_range_ms`.
    ///
    /// It is an analysis of variance with one factor, the window. Neighbouring delays within a window are similar, so that n
    /// of them show as much as n (1 - r) / (1 + r) independent ones, where r is their correlation.
    pub(crate) fn of(probes: &[(f64, f64)], served_range_ms: f64) -> Option<Self> {
        let interval_s = regular(probes)?;
        let probes = longest_session(probes, interval_s);
        let (shortest_s, fewest) = WINDOW;
        let every_s = shortest_s.max(fewest * interval_s);
        let least = COMPLETE * every_s / interval_s;
        let window = |(at_s, _): &(f64, f64)| (at_s / every_s).floor();
        let windows = probes.chunk_by(|one, other| window(one) == window(other));
        let windows: Vec<&[(f64, f64)]> = windows
            .filter(|window| window.len() as f64 >= least)
            .collect();
        if windows.len() < FEWEST_WINDOWS {
            return None;
        }
        let all: Vec<f64> = windows.iter().flat_map(|window| delays(window)).collect();
        let ordered = sorted(&all);
        let of = |share| quantile(&ordered, share);
        let (middle, [low, high]) = (of(0.5)?, [of(0.01)?, of(0.99)?]);
        let scatter = Scatter::of(&windows, [low, high])?;
        let medians = windows
            .iter()
            .filter_map(|window| quantile(&sorted(&delays(window)), 0.5));
        let medians: Vec<f64> = medians.collect();
        let start = windows.first()?.first().map(window)?;
        let mut values: Vec<f64> = Vec::new();
        for (probes, median) in windows.iter().zip(&medians) {
            let place = probes.first().map(window)? - start;
            // A window with too few probes has the delay of the one before.
            let before = values.last().copied().unwrap_or(*median);
            while (values.len() as f64) < place {
                values.push(before);
            }
            values.push(*median);
        }
        let over_time = OverTime { every_s, values };
        let [low, high] = over_time.spread()?.interval;
        let (share, least_ms) = VARIES;
        let explained_ms = least_ms.max(share * middle) + served_range_ms;
        if scatter.chance()? >= CHANCE || high - low <= explained_ms {
            return None;
        }
        let rest = windows.iter().zip(&medians);
        let rest = rest.flat_map(|(window, median)| {
            let flat = window.iter();
            flat.map(move |(at_s, delay)| (*at_s, delay - median + middle))
        });
        Some(Self {
            rest: rest.collect(),
            over_time,
        })
    }
}

/// Returns the probes of the longest session. What the delay was in the pause between two sessions, in which loads ran, is not
/// known, so that their windows do not follow each other.
fn longest_session(probes: &[(f64, f64)], interval_s: f64) -> &[(f64, f64)] {
    let pause_s = (0.99 * BETWEEN_SESSIONS_S).max(FOLLOWS * interval_s);
    let sessions = probes.chunk_by(|one, other| other.0 - one.0 < pause_s);
    let longest = sessions.max_by_key(|session| session.len());
    longest.unwrap_or_default()
}

fn delays(window: &[(f64, f64)]) -> Vec<f64> {
    window.iter().map(|(_, delay)| *delay).collect()
}

/// Returns the usual time between two probes in seconds, if they are regular. Packets of other traffic are not, and their
/// delays have the queue in them.
fn regular(probes: &[(f64, f64)]) -> Option<f64> {
    let gaps = probes.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let gaps: Vec<f64> = gaps.collect();
    let usual = quantile(&sorted(&gaps), 0.5).filter(|gap| *gap > 0.0)?;
    let near = gaps
        .iter()
        .filter(|gap| (0.5..=FOLLOWS).contains(&(*gap / usual)));
    (near.count() as f64 >= REGULAR * gaps.len() as f64).then_some(usual)
}

/// The scatter of values within windows and between them.
struct Scatter {
    /// The mean squares.
    between: f64,
    within: f64,
    /// The degrees of freedom of both.
    freedom: [f64; 2],
    /// The number of similar neighbours that show as much as one independent value.
    similar: f64,
    /// The mean number of values in a window.
    length: f64,
}

impl Scatter {
    /// Returns the scatter of the delays, of which those outside of a range count as its ends, because hosts stall.
    fn of(windows: &[&[(f64, f64)]], [low, high]: [f64; 2]) -> Option<Self> {
        let clipped = |window: &&[(f64, f64)]| -> Vec<f64> {
            let all = delays(window).into_iter();
            all.map(|delay| delay.clamp(low, high)).collect()
        };
        let windows: Vec<Vec<f64>> = windows.iter().map(clipped).collect();
        let count = windows.iter().map(Vec::len).sum::<usize>() as f64;
        let whole = windows.iter().flatten().sum::<f64>() / count;
        let mut between = 0.0;
        let mut each = Vec::new();
        for window in &windows {
            let mean = t_interval::mean(window)?;
            between += window.len() as f64 * (mean - whole).powi(2);
            let errors: Vec<f64> = window.iter().map(|delay| delay - mean).collect();
            let squares = errors.iter().map(|error| error.powi(2)).sum::<f64>();
            let products = errors.windows(2).map(|pair| pair[0] * pair[1]);
            each.push((squares, products.sum::<f64>()));
        }
        let groups = windows.len() as f64;
        let length = count / groups;
        // A step of the delay within a window is no variation that other windows have.
        each.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        each.truncate(each.len() - each.len() / STEPPED);
        let kept = each.len() as f64;
        let within: f64 = each.iter().map(|(squares, _)| squares).sum();
        let products: f64 = each.iter().map(|(_, products)| products).sum();
        // A window of n values has n - 1 pairs of neighbours.
        let pairs = (length - 1.0) / length;
        let found = products / (pairs * within).max(f64::MIN_POSITIVE);
        // Errors from the mean of n values are less similar than the values are.
        let similarity = (found + (1.0 + 3.0 * found) / length).clamp(0.0, 0.999);
        let freedom = [groups - 1.0, kept * (length - 1.0)];
        Some(Self {
            between: between / freedom[0],
            within: within / freedom[1],
            freedom,
            similar: (1.0 + similarity) / (1.0 - similarity),
            length,
        })
    }

    /// Returns the probability that windows of one distribution differ as much by chance; `None` if a window has too few
    /// independent values.
    fn chance(&self) -> Option<f64> {
        let independent = self.length / self.similar;
        if independent < FEWEST_INDEPENDENT {
            return None;
        }
        let within = self.within / (1.0 - 1.0 / independent);
        let noise = (within * self.similar).max(EXACT_MS.powi(2));
        let [between, within] = self.freedom;
        let law = FisherSnedecor::new(between, within / self.similar).ok()?;
        Some(law.sf((self.between / noise).min(1e9)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fits delays behind a constant rate.
    fn varying(probes: &[(f64, f64)]) -> Option<VaryingDelay> {
        VaryingDelay::of(probes, 0.0)
    }

    /// Returns the probes of 30 seconds, one every 10 ms, with these delays and up to 1 ms of noise.
    fn probes(delay: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(7);
        let times = (0..3000).map(|at| f64::from(at) / 100.0);
        times
            .map(|at_s| (at_s, delay(at_s) + random.f64()))
            .collect()
    }

    #[test]
    fn a_delay_that_is_exact_between_its_steps_varies() {
        // The steps are in the middle of a window.
        let steps = (0..6000).map(|at| {
            let at_s = f64::from(at) / 100.0;
            (at_s, 20.0 + 5.0 * ((at_s + 7.5) / 15.0).floor())
        });
        let found = varying(&steps.collect::<Vec<_>>()).unwrap();
        assert_eq!(found.over_time.values[0], 20.0);
        assert_eq!(found.over_time.values[59], 40.0);
    }

    #[test]
    fn sessions_with_a_pause_between_them_are_not_consecutive() {
        let first = probes(|at_s| if at_s < 15.0 { 20.0 } else { 26.0 });
        let second = probes(|_| 40.0);
        let second = second
            .into_iter()
            .take(1200)
            .map(|(at_s, delay)| (30.0 + BETWEEN_SESSIONS_S + at_s, delay));
        let joined: Vec<(f64, f64)> = first.iter().copied().chain(second).collect();
        assert_eq!(varying(&joined), varying(&first));
        // Ten steps of a second between sessions of a second are none within a session.
        let short = (0..10).flat_map(|session| {
            let delay = if session % 2 == 0 { 20.0 } else { 26.0 };
            let of_session = probes(move |_| delay).into_iter().take(100);
            let start_s = f64::from(session) * (1.0 + BETWEEN_SESSIONS_S);
            of_session.map(move |(at_s, delay)| (start_s + at_s, delay))
        });
        assert_eq!(varying(&short.collect::<Vec<_>>()), None);
    }

    #[test]
    fn a_window_whose_probes_were_lost_keeps_its_place() {
        let all = probes(|at_s| if at_s < 15.0 { 20.0 } else { 26.0 });
        let kept = all
            .into_iter()
            .filter(|(at_s, _)| !(5.2..8.9).contains(at_s));
        let found = varying(&kept.collect::<Vec<_>>()).unwrap();
        let medians = &found.over_time.values;
        assert_eq!(medians.len(), 30);
        assert!((medians[14] - 20.5).abs() < 0.2 && (medians[15] - 26.5).abs() < 0.2);
    }

    #[test]
    fn delays_that_step_vary_and_the_rest_is_their_jitter() {
        let found = varying(&probes(|at_s| if at_s < 15.0 { 20.0 } else { 26.0 })).unwrap();
        let medians = &found.over_time.values;
        assert_eq!((found.over_time.every_s, medians.len()), (1.0, 30));
        assert!((medians[0] - 20.5).abs() < 0.2 && (medians[29] - 26.5).abs() < 0.2);
        let rest: Vec<f64> = found.rest.iter().map(|(_, delay)| *delay).collect();
        let ordered = sorted(&rest);
        assert!(
            ordered[2999] - ordered[0] < 1.5,
            "{} to {}",
            ordered[0],
            ordered[2999]
        );
    }

    #[test]
    fn the_time_that_a_varying_rate_needs_for_a_probe_is_no_varying_delay() {
        let steps = probes(|at_s| if at_s < 15.0 { 20.0 } else { 26.0 });
        assert_eq!(VaryingDelay::of(&steps, 6.0), None);
        assert!(VaryingDelay::of(&steps, 3.0).is_some());
    }

    #[test]
    fn neither_noise_nor_jitter_with_a_short_memory_is_a_varying_delay() {
        assert_eq!(varying(&probes(|_| 20.0)), None);
        let mut random = fastrand::Rng::with_seed(11);
        let mut score = 0.0;
        let wandering: Vec<(f64, f64)> = (0..6000)
            .map(|at| {
                score = 0.87 * score + random.f64() - 0.5;
                (f64::from(at) / 100.0, 20.0 + 10.0 * score)
            })
            .collect();
        assert_eq!(varying(&wandering), None);
        // A step that is hardly larger than the error of clocks is not worth a trace.
        assert_eq!(
            varying(&probes(|at_s| if at_s < 15.0 { 20.0 } else { 20.3 })),
            None
        );
    }

    #[test]
    fn packets_at_irregular_times_show_no_varying_delay() {
        let steps = probes(|at_s| if at_s < 15.0 { 20.0 } else { 26.0 });
        let bursts = steps.into_iter().enumerate().map(|(at, (_, delay))| {
            let at = at as f64;
            (0.05 * (at / 3.0).floor() + 0.000_01 * at, delay)
        });
        let bursts: Vec<(f64, f64)> = bursts.collect();
        assert_eq!(varying(&bursts), None);
    }
}
