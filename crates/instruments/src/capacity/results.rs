//! The results of a test as samples, figures and facts.

use std::collections::BTreeMap;
use std::time::Duration;

use record::metric_table::{MetricRow, MetricTable};
use record::schedule::{Pace, PaceUnit};
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::layers::{ETHERNET_HEADER, WIRE};
use stats::proportion;

use super::outcome::{TestAgreement, TestEnd, TestOutcome, TrialInterval, WholeSubInterval};
use super::rates::RateTable;
use super::wire::{NO_DELAY, SubInterval};
use crate::measured::{figures, mean, total};

/// The possible error of a sub-interval's start and end: of kernel timestamps here, and of the wake-ups at the far end.
const EDGES_HERE_S: f64 = 0.000_2;
const EDGES_THERE_S: f64 = 0.001;
/// The rounding error of a round-trip time, which is the difference of two times in whole milliseconds.
const ROUNDING_MS: f64 = 1.0;

/// Returns the samples, figures and facts of a test.
pub(crate) fn measurement(outcome: &TestOutcome, agreed: &TestAgreement) -> Measurement {
    let rate = |whole: &&WholeSubInterval| whole.counted.bit_per_s(agreed.l3_header());
    let whole = outcome.sub_intervals.iter();
    let best = whole.max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let mut figures = Vec::new();
    if let Some(best) = best.filter(|best| best.counted.datagrams > 0) {
        let unlimited = ended_rising(outcome, agreed) || table_ended(outcome, agreed);
        figures.extend(capacity(&best.counted, agreed, unlimited));
        let host_dropped = outcome.host_drops > 0;
        figures.extend(packets(&best.counted, host_dropped, agreed.direction));
        figures.extend(delays(best, agreed.direction));
    }
    if outcome.host_drops > 0 {
        let drops = total(Metric::HostDroppedPackets, outcome.host_drops.into());
        figures.push(drops.toward(agreed.direction));
    }
    let peer = agreed.peer;
    Measurement {
        samples: samples(outcome, agreed),
        figures,
        facts: facts(outcome, agreed),
        paces: pace(outcome, agreed).into_iter().collect(),
        failure: match &outcome.end {
            TestEnd::Complete if best.is_none() => Some(format!(
                "{peer}: there is no feedback for a complete sub-interval of load"
            )),
            TestEnd::Complete => None,
            TestEnd::Stopped(cause) => Some(cause.clone()),
            end => Some(format!("{peer} {end}")),
        },
        ..Measurement::default()
    }
}

/// Compares the load that this host sent with the load that the search asked for. `None` if the far end sent, since it
/// does not report that.
fn pace(outcome: &TestOutcome, agreed: &TestAgreement) -> Option<Pace> {
    if agreed.receives_here() {
        return None;
    }
    let whole = outcome.sub_intervals.iter().map(|whole| whole.counted);
    let seconds: f64 = whole.clone().map(|one| f64::from(one.span_us) / 1e6).sum();
    let left = |one: SubInterval| {
        let counts = [one.datagrams, one.counts.lost, one.counts.duplicated].map(f64::from);
        (counts[0] + counts[1] - counts[2]).max(0.0)
    };
    let sent: f64 = whole.map(left).sum();
    // The sender would have sent in the skipped time of the schedule as much as in the rest.
    let kept_s = (seconds - outcome.skipped.as_secs_f64()).max(0.0);
    let asked = (sent + outcome.unsent as f64) / kept_s;
    (asked.is_finite() && asked > 0.0).then(|| Pace {
        direction: Some(agreed.direction),
        unit: PaceUnit::Packets,
        asked_per_s: asked,
        sent_per_s: sent / seconds,
        missing: asked * seconds - sent,
        behind_s: seconds - sent / asked,
    })
}

/// Returns the metrics of a search in this direction.
pub(crate) fn metrics(direction: Direction) -> MetricTable {
    use Statistic::{Max, Min};
    MetricTable::new([
        MetricRow::new(Metric::IpCapacityBitPerS, &[Max]).headline(),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::new(Metric::L2RateBitPerS, &[Max]),
        MetricRow::new(Metric::L1RateBitPerS, &[Max]),
        MetricRow::new(Metric::GoodputBitPerS, &[Max]),
        MetricRow::total(Metric::ReceivedPackets),
        MetricRow::total(Metric::ReorderedPackets),
        MetricRow::total(Metric::DuplicatePackets),
        MetricRow::total(Metric::LostPackets),
        MetricRow::total(Metric::HostDroppedPackets),
        MetricRow::new(Metric::PdvMs, &[Min, Max]),
    ])
    .toward(&[direction])
    .and([MetricRow::new(Metric::RttMs, &[Min, Max])])
}

/// Returns the relative error of a sub-interval's rate.
fn off(counted: &SubInterval, agreed: &TestAgreement) -> f64 {
    let edges = if agreed.receives_here() {
        EDGES_HERE_S
    } else {
        EDGES_THERE_S
    };
    1.0 / f64::from(counted.datagrams.max(1)) + edges * 1e6 / f64::from(counted.span_us.max(1))
}

/// Returns whether the test ended before it found a limit: the rate of the last sub-interval exceeds every other one by
/// more than their errors, and the load rose in it without a step back.
fn ended_rising(outcome: &TestOutcome, agreed: &TestAgreement) -> bool {
    let Some((last, earlier)) = outcome.sub_intervals.split_last() else {
        return false;
    };
    let bounds = |one: &WholeSubInterval| {
        let (rate, off) = (
            one.counted.bit_per_s(agreed.l3_header()),
            off(&one.counted, agreed),
        );
        [rate * (1.0 - off), rate * (1.0 + off)]
    };
    let earlier: Vec<[f64; 2]> = earlier.iter().map(bounds).collect();
    let load: Vec<f64> = trials_within(outcome, last)
        .map(|trial| trial.l3_bit_per_s)
        .collect();
    is_rising(&earlier, bounds(last), &load)
}

/// Returns the trial intervals of a sub-interval.
fn trials_within<'o>(
    outcome: &'o TestOutcome,
    whole: &WholeSubInterval,
) -> impl Iterator<Item = &'o TrialInterval> + use<'o> {
    let span = Duration::from_micros(whole.counted.span_us.into());
    let times = whole.at.saturating_sub(span)..=whole.at;
    let trials = outcome.trials.iter();
    trials.filter(move |trial| times.contains(&trial.at))
}

/// Returns whether the last sub-interval's rate exceeds the bounds of all earlier ones, and the load rose in it.
fn is_rising(earlier: &[[f64; 2]], last: [f64; 2], load: &[f64]) -> bool {
    let is_most = earlier.iter().all(|[_, high]| *high < last[0]);
    is_most && load.first() < load.last() && load.is_sorted()
}

/// Returns whether the path carried the table's fastest rate for a complete sub-interval. The table then ended the
/// search, not the path.
fn table_ended(outcome: &TestOutcome, agreed: &TestAgreement) -> bool {
    let last = RateTable::new(agreed.sizes).last();
    outcome.sub_intervals.iter().any(|whole| {
        let mut rows = trials_within(outcome, whole)
            .map(|trial| trial.row)
            .peekable();
        rows.peek().is_some() && rows.all(|row| row == Some(last))
    })
}

/// Returns the capacity and the same sub-interval's rate at the other layers. They are lower bounds if no limit was
/// found.
fn capacity(best: &SubInterval, agreed: &TestAgreement, unlimited: bool) -> [Figure; 4] {
    let off = off(best, agreed);
    let l3 = agreed.l3_header();
    // No load PDU is so short that Ethernet pads it.
    [
        (Metric::IpCapacityBitPerS, l3),
        (Metric::L2RateBitPerS, l3 + ETHERNET_HEADER),
        (Metric::L1RateBitPerS, l3 + ETHERNET_HEADER + WIRE),
        (Metric::GoodputBitPerS, 0),
    ]
    .map(|(metric, header)| {
        let value = best.bit_per_s(header);
        let figure = Figure::new(metric, Statistic::Max, value).toward(agreed.direction);
        let (low, high) = (value * (1.0 - off), value * (1.0 + off));
        if unlimited {
            figure.at_least(low)
        } else {
            figure.within(low, high)
        }
    })
}

/// Returns the packet counts of the sub-interval that gave the capacity (RFC 9097 section 6.3), without its loss if the
/// host dropped some of the load.
fn packets(best: &SubInterval, host_dropped: bool, direction: Direction) -> Vec<Figure> {
    let received = best.datagrams.saturating_sub(best.counts.duplicated);
    let mut figures = vec![
        total(Metric::ReceivedPackets, received.into()),
        total(Metric::ReorderedPackets, best.counts.reordered.into()),
        total(Metric::DuplicatePackets, best.counts.duplicated.into()),
    ];
    let lost = f64::from(best.counts.lost);
    let sent = f64::from(received) + lost;
    if !host_dropped && sent > 0.0 {
        figures.push(total(Metric::LostPackets, best.counts.lost.into()));
        figures.push(mean(Metric::LostPercent, lost / sent * 100.0));
    }
    let figures = figures.into_iter();
    figures.map(|figure| figure.toward(direction)).collect()
}

/// Returns the delays of the sub-interval that gave the capacity.
fn delays(best: &WholeSubInterval, direction: Direction) -> impl Iterator<Item = Figure> + use<> {
    let counted = best.counted;
    let known = counted.rtt_min_ms != NO_DELAY && best.least_rtt_ms != NO_DELAY;
    let rtt = |above: u32| known.then(|| best.least_rtt_ms.saturating_add(above));
    let variation = |ms: u32| (counted.delays.count > 0).then_some(ms);
    let range = move |metric, way, least_and_most: [Option<u32>; 2]| {
        let range = [Statistic::Min, Statistic::Max]
            .into_iter()
            .zip(least_and_most)
            .map(move |(statistic, ms)| (metric, statistic, ms.map(f64::from)));
        figures(way, range)
    };
    let rtts = [counted.rtt_min_ms, counted.rtt_max_ms].map(rtt);
    let variations = [counted.delays.min_ms, counted.delays.max_ms].map(variation);
    range(Metric::RttMs, None, rtts)
        .chain(range(Metric::PdvMs, Some(direction), variations))
        .map(|figure| {
            let ms = figure.value;
            figure.within((ms - ROUNDING_MS).max(0.0), ms + ROUNDING_MS)
        })
}

/// Returns a text with the packet counts of the whole search, whose loss the search itself causes by sending too fast.
fn whole_search(outcome: &TestOutcome) -> Option<String> {
    let sum = |of: fn(&SubInterval) -> u32| {
        let numbers = outcome.sub_intervals.iter().map(|whole| of(&whole.counted));
        numbers.map(u64::from).sum::<u64>()
    };
    let (sent, received) = match outcome.totals {
        Some(totals) => (u64::from(totals.highest), totals.distinct),
        // A sub-interval is in about twenty feedback messages, but a trial interval is in only one, which may be lost.
        None => {
            let received = sum(|s| s.datagrams.saturating_sub(s.counts.duplicated));
            (received + sum(|s| s.counts.lost), received)
        }
    };
    let missing = sent.saturating_sub(received);
    let percent = proportion::percent(missing, sent)?;
    let least_rtt = outcome
        .sub_intervals
        .iter()
        .map(|whole| whole.least_rtt_ms)
        .min();
    let rtt = least_rtt
        .filter(|ms| *ms != NO_DELAY)
        .map_or(String::new(), |ms| {
            format!("; least round-trip time {ms} ms")
        });
    Some(format!(
        "{sent} datagrams sent, {received} received, {missing} missing ({percent:.2} %), because the search itself exceeds the \
         capacity{rtt}"
    ))
}

/// Returns the samples of each trial interval and each sub-interval.
fn samples(outcome: &TestOutcome, agreed: &TestAgreement) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |at_s: f64, index: u64, values: &[(Metric, Option<f64>)]| {
        samples.extend(values.iter().filter_map(|(metric, value)| {
            let sample = Sample::new(at_s, *metric, index, (*value)?);
            Some(if *metric == Metric::RttMs {
                sample
            } else {
                sample.toward(agreed.direction)
            })
        }));
    };
    for (trial, index) in outcome.trials.iter().zip(1..) {
        let status = &trial.status;
        let received = SubInterval {
            datagrams: status.trial_datagrams,
            bytes: status.trial_bytes.into(),
            span_us: status.trial_us,
            ..SubInterval::default()
        };
        let rate = (status.trial_us > 0).then(|| received.bit_per_s(agreed.l3_header()));
        let values = [
            (Metric::L3RateBitPerS, rate),
            (Metric::LostPackets, Some(status.counts.lost.into())),
            (Metric::PdvMs, status.delays.mean_ms().map(f64::from)),
            (Metric::RttMs, status.rtt_ms().map(f64::from)),
            (Metric::RateRow, trial.row.map(|row| row as f64)),
            (Metric::SendingRateBitPerS, Some(trial.l3_bit_per_s)),
        ];
        add(trial.at.as_secs_f64(), index, &values);
    }
    for (whole, index) in outcome.sub_intervals.iter().zip(1..) {
        let l3 = whole.counted.bit_per_s(agreed.l3_header());
        let span_s = f64::from(whole.counted.span_us) / 1e6;
        let values = [
            (Metric::IpCapacityBitPerS, Some(l3)),
            (Metric::ElapsedS, Some(span_s)),
            (Metric::EndedS, whole.ended.map(|ended| ended as f64 / 1e9)),
        ];
        add(whole.at.as_secs_f64(), index, &values);
    }
    samples.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    samples
}

fn facts(outcome: &TestOutcome, agreed: &TestAgreement) -> BTreeMap<String, String> {
    let p = &agreed.parameters;
    let protocol = format!(
        "UDP Speed Test Protocol (RFC 9946) version {}, unauthenticated, with {}",
        agreed.version.number(),
        agreed.peer
    );
    let capacity = format!(
        "maximum IP-layer capacity (RFC 9097): L3 bits received in the best of {} sub-intervals of {} ms in {} s; as a maximum, it exceeds the mean of sub-intervals that differ by chance",
        outcome.sub_intervals.len(),
        p.sub_interval_ms,
        p.duration_s
    );
    let search = format!(
        "algorithm {:?}, sequence errors above {} a feedback or a round trip more than {} ms above its least are congestion, below {} ms is clean, a feedback each {} ms, fast step {} rows, slow after {} congested",
        p.algorithm,
        p.thresholds.sequence_errors,
        p.thresholds.upper_ms,
        p.thresholds.low_ms,
        p.feedback_ms,
        p.thresholds.high_speed_delta,
        p.thresholds.slow
    );
    let packets = format!(
        "IP packets of up to {} bytes{}",
        if agreed.sizes.traditional { 1500 } else { 1250 },
        if agreed.sizes.jumbo {
            ", above 1 Gbit/s up to 9000"
        } else {
            ""
        }
    );
    let arrival = match (agreed.receives_here(), outcome.kernel_stamps) {
        (true, true) => "kernel at receipt",
        (true, false) => "user space at receipt",
        (false, _) => "the far end's",
    };
    let layers = "L2 without FCS, L1 with FCS, preamble and gap; goodput is UDP payload";
    let at_maximum = "rates, packets, loss, round trips and delay variation belong to the sub-interval that determined the capacity";
    let intervals = "capacity: one datagram, and the possible error of its ends (0.2 ms with time stamps here, 1 ms at the far end); delays: the protocol's rounding to 1 ms";
    let mut facts = vec![
        ("protocol", protocol),
        ("capacity", capacity),
        ("search", search),
        ("packets", packets),
        ("layers", layers.to_owned()),
        ("at the maximum", at_maximum.to_owned()),
        ("timestamps", format!("{arrival}, user space at sending")),
        ("intervals", intervals.to_owned()),
    ];
    facts.extend(whole_search(outcome).map(|text| ("whole search", text)));
    if table_ended(outcome, agreed) {
        let table = RateTable::new(agreed.sizes);
        let fastest = table.rate(table.last()).l3_bit_per_s() / 1e6;
        facts.push((
            "end of the table",
            format!(
                "the path carried the fastest rate of the table, {fastest:.0} Mbit/s at L3, for a complete sub-interval: the \
                 table ended the search, and the capacity is at least the stated value"
            ),
        ));
    }
    if agreed.receives_here() && !agreed.is_server {
        facts.push(("trace", "rows and sending rates are the server's decisions, reconstructed from the feedback that it received".to_owned()));
    }
    if ended_rising(outcome, agreed) {
        facts.push(("rising", "the load was still rising when the test ended, so this is a lower bound: use a longer --time to find the capacity".to_owned()));
    }
    if !agreed.receives_here() {
        let counted = "of the complete sub-intervals, as the far end counted them";
        facts.push(("received_and_lost", counted.to_owned()));
    }
    facts.extend(troubles(outcome));
    let facts = facts.into_iter();
    facts.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Returns the facts about anything that keeps the figures from describing the network alone.
fn troubles(outcome: &TestOutcome) -> impl Iterator<Item = (&'static str, String)> {
    let implausible = outcome.totals.unwrap_or_default().implausible;
    [
        (
            outcome.host_drops > 0,
            "loss",
            format!(
                "not stated: a full socket of this host dropped {} datagrams or trains of datagrams, so this host limited the result",
                outcome.host_drops
            ),
        ),
        (
            outcome.unsent > 0 || !outcome.skipped.is_zero(),
            "sender",
            format!(
                "this host did not send {} datagrams because its buffers were full, and missed {:.3} s of the schedule",
                outcome.unsent,
                outcome.skipped.as_secs_f64()
            ),
        ),
        (
            outcome.feedback_missed > 0,
            "feedback",
            format!(
                "{} messages did not reach the sender of the load: the trace may differ from its actual rates",
                outcome.feedback_missed
            ),
        ),
        (
            outcome.silences > 0,
            "silence",
            format!(
                "the far end was silent for a second or more, {} times, because packets were lost",
                outcome.silences
            ),
        ),
        (
            outcome.unreadable + implausible > 0,
            "ignored",
            format!(
                "{} datagrams did not belong to the test, and {implausible} had impossible numbers: not counted",
                outcome.unreadable
            ),
        ),
    ]
    .into_iter()
    .filter_map(|(applies, name, text)| applies.then_some((name, text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::wire::{
        Algorithm, ArrivalCounts, DelayVariation, FeedbackMessage, Sizes, StartRow, TestParameters,
        Thresholds, Version,
    };

    fn agreed() -> TestAgreement {
        TestAgreement {
            peer: ([10, 77, 0, 2], 24601).into(),
            direction: Direction::Down,
            version: Version::NEWEST,
            sizes: Sizes::default(),
            parameters: TestParameters {
                thresholds: Thresholds::default(),
                algorithm: Algorithm::B,
                feedback_ms: 50,
                duration_s: 10,
                sub_interval_ms: 1000,
                start: StartRow::Lowest,
                one_way: false,
                ignore_reordering: true,
                random_payload: true,
            },
            round_trip: Duration::ZERO,
            is_server: false,
        }
    }

    /// Returns a second in which `datagrams` arrived.
    fn second(datagrams: u32, counted: SubInterval) -> WholeSubInterval {
        WholeSubInterval {
            at: Duration::from_secs(1),
            counted: SubInterval {
                datagrams,
                bytes: u64::from(datagrams) * 1222,
                span_us: 1_000_000,
                ..counted
            },
            least_rtt_ms: 20,
            ended: None,
        }
    }

    fn value(measurement: &Measurement, metric: Metric, statistic: Statistic) -> f64 {
        let figure = measurement
            .figures
            .iter()
            .find(|f| f.metric == metric && f.statistic == statistic);
        figure.unwrap_or_else(|| panic!("{metric:?}")).value
    }

    #[test]
    fn a_search_whose_load_this_host_did_not_send_fell_short() {
        use Direction::{Down, Up};
        let counted = SubInterval::default();
        let fell_short = |direction, unsent, skipped_ms| {
            let outcome = TestOutcome {
                sub_intervals: vec![second(1000, counted); 10],
                unsent,
                skipped: Duration::from_millis(skipped_ms),
                ..TestOutcome::default()
            };
            let agreed = TestAgreement {
                direction,
                ..agreed()
            };
            measurement(&outcome, &agreed).shortfall(Duration::from_millis(1))
        };
        assert_eq!(fell_short(Up, 0, 0), None);
        assert_eq!(fell_short(Up, 50, 20), None);
        let cause = fell_short(Up, 0, 2000).unwrap();
        assert!(
            cause.ends_with("it sent 1000 of the requested 1250 packets/s up"),
            "{cause}"
        );
        assert!(fell_short(Up, 200, 0).is_some());
        // This host does not know what the far end sends.
        assert_eq!(fell_short(Down, 200, 2000), None);
    }

    #[test]
    fn loss_and_delays_are_of_the_best_sub_interval() {
        let counted = |lost, rtt: [u32; 2], variation: [u32; 2]| SubInterval {
            counts: ArrivalCounts {
                lost,
                reordered: 1,
                duplicated: 2,
            },
            delays: DelayVariation {
                min_ms: variation[0],
                max_ms: variation[1],
                sum_ms: 0,
                count: 9,
            },
            rtt_min_ms: rtt[0],
            rtt_max_ms: rtt[1],
            ..SubInterval::default()
        };
        let outcome = TestOutcome {
            sub_intervals: vec![
                second(1000, counted(0, [0, 1], [0, 1])),
                second(5002, counted(50, [5, 30], [2, 28])),
                second(4000, counted(900, [60, 200], [50, 190])),
            ],
            ..TestOutcome::default()
        };
        let measurement = measurement(&outcome, &agreed());
        let of = |metric, statistic| value(&measurement, metric, statistic);
        assert_eq!(of(Metric::ReceivedPackets, Statistic::Total), 5000.0);
        assert_eq!(of(Metric::LostPackets, Statistic::Total), 50.0);
        assert!((of(Metric::LostPercent, Statistic::Mean) - 50.0 / 50.5).abs() < 1e-9);
        for (metric, range) in [(Metric::RttMs, [25.0, 50.0]), (Metric::PdvMs, [2.0, 28.0])] {
            let found = [Statistic::Min, Statistic::Max].map(|statistic| of(metric, statistic));
            assert_eq!(found, range, "{metric:?}");
        }
        let whole = &measurement.facts["whole search"];
        assert!(
            whole.starts_with("10946 datagrams sent, 9996 received, 950 missing"),
            "{whole}"
        );
    }

    /// These figures are in docs/instruments/capacity.md.
    #[test]
    fn the_best_of_several_sub_intervals_exceeds_their_mean_as_documented() {
        const ROUNDS: u32 = 4000;
        let mut random = fastrand::Rng::with_seed(9097);
        // The counts are 1,000,000 with a deviation of 1 %; a sum of twelve uniform draws is normal enough up to three
        // deviations.
        let mut datagrams = || 940_000 + (0..12).map(|_| random.u32(0..=10_000)).sum::<u32>();
        for (sub_intervals, expected) in [(1, 0.0), (2, 0.56), (5, 1.16), (10, 1.54), (60, 2.32)] {
            let mut above = 0.0;
            for _ in 0..ROUNDS {
                let seconds =
                    (0..sub_intervals).map(|_| second(datagrams(), SubInterval::default()));
                let outcome = TestOutcome {
                    sub_intervals: seconds.collect(),
                    ..TestOutcome::default()
                };
                let found = measurement(&outcome, &agreed());
                let goodput = value(&found, Metric::GoodputBitPerS, Statistic::Max);
                above += (goodput / (1e6 * 1222.0 * 8.0) - 1.0) / 0.01;
            }
            let above = above / f64::from(ROUNDS);
            assert!((above - expected).abs() < 0.06, "{sub_intervals}: {above}");
        }
    }

    #[test]
    fn the_fastest_rate_in_a_complete_sub_interval_is_a_lower_bound() {
        let last = RateTable::new(agreed().sizes).last();
        let bounds = |rows: [usize; 3]| {
            let trial = |(row, at): (usize, u64)| TrialInterval {
                at: Duration::from_millis(at),
                status: FeedbackMessage::default(),
                row: Some(row),
                l3_bit_per_s: 1e9,
            };
            let outcome = TestOutcome {
                sub_intervals: vec![second(1000, SubInterval::default())],
                trials: rows.into_iter().zip([100, 500, 900]).map(trial).collect(),
                ..TestOutcome::default()
            };
            let found = measurement(&outcome, &agreed());
            let has_table_fact = found.facts.contains_key("end of the table");
            let capacity = found
                .figures
                .iter()
                .find(|figure| figure.metric == Metric::IpCapacityBitPerS);
            (has_table_fact, capacity.unwrap().interval.unwrap()[1])
        };
        let (has_table_fact, upper) = bounds([last; 3]);
        assert!(has_table_fact && upper.is_infinite(), "{upper}");
        let (has_table_fact, upper) = bounds([last, last - 1, last]);
        assert!(!has_table_fact && upper.is_finite(), "{upper}");
    }

    #[test]
    fn a_test_ends_rising_if_its_last_rate_is_best_and_the_load_never_fell() {
        let up = [100.0, 110.0, 110.0, 120.0];
        assert!(is_rising(&[[49.0, 51.0]], [98.0, 102.0], &up));
        assert!(is_rising(&[], [98.0, 102.0], &up));
        // The path is full: the received rate stays the same, however much is sent.
        assert!(!is_rising(&[[97.0, 101.0]], [98.0, 102.0], &up));
        let back = [100.0, 110.0, 80.0, 90.0];
        assert!(!is_rising(&[[49.0, 51.0]], [98.0, 102.0], &back));
        // The sender is at its limit, or the test has a fixed rate.
        assert!(!is_rising(&[[49.0, 51.0]], [98.0, 102.0], &[100.0, 100.0]));
        assert!(!is_rising(&[], [98.0, 102.0], &[]));
    }
}
