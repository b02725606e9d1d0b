use super::*;
use crate::analysis::tests::spoil;
use record::crossing::{CrossedData, CrossedFlow};
use record::summary::{DirectionSummary, PacketLogSummary, Summary};
use record::{Figure, Measurement};
use record::{LinkCounts, Measured, Run, RunOutcome};

/// A line of 8 Mbit/s and 10 ms in each direction behind 1 ms of wire, measured by ping and tcp. A connection of 2 s
/// offered 1,000 frames of 1,000 bytes in each direction, of which 10 were lost.
fn crossed() -> Summary {
    let way = DirectionSummary {
        packets: 1000,
        bytes: 1_000_000,
        delivered: 990,
        delivered_bytes: 990_000,
        dropped: [("loss".to_owned(), 10)].into(),
        ..DirectionSummary::default()
    };
    let flow = |direction| CrossedFlow {
        direction,
        protocol: 6,
        ports: [4000, 5201],
        delivered: 990,
        delivered_bytes: 990_000,
        best_second_bytes: Some(500_000),
        data: CrossedData {
            packets: 1000,
            lost: 10,
            first_arrival_ns: 500_000_000,
            first_departure_ns: Some(512_000_000),
            last_departure_ns: Some(2_500_000_000),
            median_delay_ns: Some(12_000_000),
        },
    };
    Summary {
        up: way.clone(),
        down: way,
        packet_log: Some(PacketLogSummary {
            lines: 2000,
            flows: [Direction::Up, Direction::Down].map(flow).into(),
            ..PacketLogSummary::default()
        }),
        ..Summary::default()
    }
}

/// The grid with one run of each case that measured these figures.
pub(crate) fn measured(figures: &[(&str, Figure)]) -> Record {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/records/grid.jsonl"
    );
    let mut record = Record::read(std::path::Path::new(file)).unwrap();
    let plan = record.plan().clone();
    for case in &plan.cases {
        let name = &case.instruments[0].name;
        let own = figures.iter().filter(|(of, _)| of == name);
        record.runs.push(Run {
            case: case.name.clone(),
            repeat: 1,
            attempt: 1,
            seed: 1,
            host: None,
            started_at: String::new(),
            elapsed_s: None,
            outcome: RunOutcome::Ok,
            environment: [].into(),
            measurements: vec![Measured {
                instrument: name.clone(),
                invalid: None,
                departures: Vec::new(),
                rows: Vec::new(),
                started_at: String::new(),
                measurement: Measurement {
                    figures: own.map(|(_, figure)| figure.clone()).collect(),
                    ..Measurement::default()
                },
            }],
            links: vec![LinkCounts::of(("link".to_owned(), crossed()))],
            artifacts: Vec::new(),
        });
    }
    record.finished_at = Some(String::new());
    record
}

fn figure(metric: Metric, statistic: Statistic, value: f64, half: f64) -> Figure {
    Figure::new(metric, statistic, value).within(value - half, value + half)
}

pub(crate) fn rtt(value: f64, half: f64) -> (&'static str, Figure) {
    let figure = figure(Metric::RttMs, Statistic::Median, value, half);
    ("ping", figure)
}

fn only_cell(report: &CalibrationReport) -> &CalibrationCell {
    let figures = &report.instruments[0].figures;
    &figures[0].cells[0]
}

#[test]
fn the_truth_of_a_round_trip_is_the_sum_of_both_logged_delays() {
    let report = CalibrationReport::of(&measured(&[rtt(24.05, 0.1)]));
    let cell = only_cell(&report);
    assert!((cell.truth.unwrap() - 24.0).abs() < 1e-9, "{cell:?}");
    assert_eq!(cell.standing, CellStatus::Holds);
    assert!(cell.is_trusted() && cell.cause.is_none());
    assert_eq!(cell.conditions.rtt_ms, 22.0);
    assert_eq!(cell.conditions.loss_percent, 1.0);
    let range = report.instruments[0].figures[0].range.unwrap();
    assert_eq!(range.rate_bit_per_s, Some([8e6, 8e6]));
    assert!(!range.unlimited);
}

/// A packet reaches its receiver at an unknown time during the call that sends it, and the log has the end of the call.
#[test]
fn the_true_delay_is_uncertain_by_the_time_of_the_send_call() {
    let standing = |value| {
        let mut record = measured(&[rtt(value, 0.001)]);
        let error = &mut record.runs[0].links[0].summary.departure_error;
        (error.p50_ns, error.hand_over.p50_ns) = (15_000, 5_000);
        only_cell(&CalibrationReport::of(&record)).standing
    };
    assert_eq!(standing(24.0), CellStatus::Holds);
    assert_eq!(standing(23.98), CellStatus::Holds);
    assert_eq!(standing(23.978), CellStatus::Misses);
    assert_eq!(standing(24.002), CellStatus::Misses);
}

#[test]
fn a_loss_is_compared_with_the_probability_and_its_count_with_the_log() {
    let lost = figure(Metric::LostPercent, Statistic::Mean, 2.0, 0.5);
    let answered = Figure::new(Metric::ReceivedPackets, Statistic::Total, 980.0);
    let report = CalibrationReport::of(&measured(&[("ping", lost), ("ping", answered)]));
    let cells = report.instruments[0].figures.iter().flat_map(|f| &f.cells);
    let in_hundredths = |truth: f64| (truth * 100.0).round();
    let truths: Vec<_> = cells
        .map(|c| (in_hundredths(c.truth.unwrap()), c.standing))
        .collect();
    // Each direction loses 1 %.
    assert_eq!(
        truths,
        [(98_000.0, CellStatus::Holds), (199.0, CellStatus::Holds)]
    );
    assert!(report.is_met());
    let off = Figure::new(Metric::ReceivedPackets, Statistic::Total, 981.0);
    let report = CalibrationReport::of(&measured(&[("ping", off)]));
    assert_eq!(only_cell(&report).standing, CellStatus::Misses);
}

#[test]
fn too_rare_losses_have_no_truth() {
    let lost = figure(Metric::LostPercent, Statistic::Mean, 2.0, 0.5);
    let mut record = measured(&[("ping", lost)]);
    for flow in flows_of(&mut record) {
        flow.data.packets = 100;
    }
    assert!(CalibrationReport::of(&record).instruments.is_empty());
}

/// The truth of ping's share of lost packets on a link that dropped some of 1,000 packets in each direction, by cause.
fn loss_truth(link: &str, dropped: &[(&str, u64)]) -> Option<f64> {
    let lost = figure(Metric::LostPercent, Statistic::Mean, 2.0, 0.5);
    let mut record = measured(&[("ping", lost)]);
    for case in &mut record.head.plan.cases {
        case.link = toml::from_str(link).unwrap();
    }
    let all: u64 = dropped.iter().map(|(_, count)| count).sum();
    for flow in flows_of(&mut record) {
        flow.data.lost = all;
    }
    for link in record.runs.iter_mut().flat_map(|run| &mut run.links) {
        for way in [&mut link.summary.up, &mut link.summary.down] {
            let dropped = dropped.iter();
            way.dropped = dropped
                .map(|&(cause, count)| (cause.to_owned(), count))
                .collect();
        }
    }
    let report = CalibrationReport::of(&record);
    let figures = &report.instruments.first()?.figures;
    figures[0].cells[0].truth
}

#[test]
fn drops_of_a_policer_are_part_of_the_true_loss() {
    let link = "loss = '1%'\npolice = '4mbit,burst=64KiB'";
    // The link dropped 40 of 1,000 packets in each direction.
    assert_eq!(
        loss_truth(link, &[("loss", 10), ("policed", 30)]),
        Some(8.0)
    );
    let idle = loss_truth(link, &[("loss", 10)]).unwrap();
    assert!((idle - 1.99).abs() < 1e-9, "{idle}");
}

#[test]
fn the_true_loss_is_the_dropped_share_if_it_depends_on_the_traffic() {
    let loss = &[("loss", 10)][..];
    let probability = Some(1.99);
    let share = Some(2.0);
    for (stage, dropped, truth) in [
        ("", loss, probability),
        ("kind = 'gate'", loss, probability),
        ("kind = 'slots'\nmin = '1ms'", loss, probability),
        (
            "kind = 'reorder'\nshare = '1%'\nextent = 3",
            loss,
            probability,
        ),
        ("kind = 'trace'\ntimes = [1, 2, 3]", loss, probability),
        (
            "kind = 'trace'\ntimes = [1, 2, 3]",
            &[("loss", 8), ("queue_full", 2)],
            share,
        ),
        ("kind = 'mtu'\nmtu = 1400", loss, probability),
        (
            "kind = 'mtu'\nmtu = 1400",
            &[("loss", 8), ("too_big", 2)],
            share,
        ),
        ("kind = 'ber'\nber = '1e-6'", loss, share),
        ("kind = 'every-nth'\nn = 100", loss, None),
        ("kind = 'indexes'\nindexes = [3]", loss, None),
        // Each direction loses 1 / 11 of the packets, and 1 % of the others.
        ("kind = 'gemodel'\np = '1%'\nr = '10%'", loss, Some(19.0)),
        ("kind = 'gate'\nopen = false", loss, None),
    ] {
        let stage = match stage {
            "" => String::new(),
            stage => format!("[[stages]]\n{stage}"),
        };
        assert_near(
            loss_truth(&format!("loss = '1%'\n{stage}"), dropped),
            truth,
            &stage,
        );
    }
    for (link, dropped, truth) in [
        ("netem = 'delay 1ms'\nloss = '1%'", loss, probability),
        ("netem = 'loss 1%'", loss, probability),
        ("netem = 'loss 1% 25%'", loss, None),
        (
            "netem = 'loss gemodel 1% 10%'",
            loss,
            Some(100.0 * (1.0 - (10.0_f64 / 11.0).powi(2))),
        ),
        (
            "netem = 'loss 1% limit 10'",
            &[("loss", 8), ("queue_full", 2)],
            share,
        ),
        ("loss = '1%'\ntoffee = 'delay=1ms'", loss, probability),
        ("loss = '1%,ecn'", loss, probability),
    ] {
        assert_near(loss_truth(link, dropped), truth, link);
    }
}

#[test]
fn the_true_loss_includes_the_probability_of_detectable_damage() {
    let truth = |link: &str, copies: u64, queue_full: u64| {
        let lost = figure(Metric::LostPercent, Statistic::Mean, 6.0, 1.0);
        let mut record = measured(&[("ping", lost)]);
        for case in &mut record.head.plan.cases {
            case.link = toml::from_str(link).unwrap();
        }
        for link in record.runs.iter_mut().flat_map(|run| &mut run.links) {
            let up = &mut link.summary.up;
            (up.edited, up.copies) = (50, copies);
            up.dropped = [("queue_full".to_owned(), queue_full)].into();
        }
        let report = CalibrationReport::of(&record);
        report.instruments.first()?.figures[0].cells[0].truth
    };
    let up = "up = { corrupt = '5%', loss = '1%' }";
    assert_near(truth(up, 0, 0), Some(100.0 * (1.0 - 0.95 * 0.99)), up);
    // It is unknown which of the damaged packets a full queue dropped.
    assert_eq!(truth(up, 0, 3), None);
    assert_eq!(truth(up, 1, 0), None);
    assert_eq!(truth("up = { corrupt = '5%,repair' }", 0, 0), None);
}

#[test]
fn rare_losses_are_pooled_over_five_runs() {
    use record::plan::Repeats;
    use stats::losses::Losses;
    let pooled = |lost: [u64; 10]| {
        let mut record = measured(&[]);
        let plan = &mut record.head.plan;
        let is_ping = |case: &record::plan::Case| case.instruments[0].name == "ping";
        plan.cases.retain(is_ping);
        let case = &mut plan.cases[0];
        case.link = toml::from_str("up = { loss = '0.1%' }").unwrap();
        case.repeats = Repeats::fixed(10);
        let (name, run) = (case.name.clone(), record.runs[0].clone());
        let runs = lost.into_iter().zip(1..).map(|(lost, repeat)| {
            let mut run = run.clone();
            (run.case, run.repeat) = (name.clone(), repeat);
            let losses = Losses::independent(lost, 2000);
            let share = Figure::new(Metric::LostPercent, Statistic::Mean, 0.05 * lost as f64);
            run.measurements[0].instrument = "ping".to_owned();
            run.measurements[0].measurement.figures = vec![Figure {
                losses: Some(losses),
                ..share
            }];
            run
        });
        record.runs = runs.collect();
        let all = PooledLosses::of(&record);
        let [one] = all.as_slice() else {
            panic!("{all:?}");
        };
        (one.covered, one.groups)
    };
    // Ten of 10,000 are the configured loss; 50 in the second group are too many.
    assert_eq!(pooled([2; 10]), (2, 2));
    assert_eq!(pooled([2, 0, 4, 2, 2, 10, 10, 10, 10, 10]), (1, 2));
}

fn assert_near(found: Option<f64>, expected: Option<f64>, of: &str) {
    let is_near = match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
        (found, expected) => found == expected,
    };
    assert!(is_near, "{of}: {found:?} for {expected:?}");
}

#[test]
fn a_round_trip_has_a_truth_only_if_delays_do_not_vary() {
    let is_known = |link: &str| {
        let mut record = measured(&[rtt(24.05, 0.1)]);
        for case in &mut record.head.plan.cases {
            case.link = toml::from_str(link).unwrap();
        }
        !CalibrationReport::of(&record).instruments.is_empty()
    };
    for link in [
        "delay = '10ms'\nrate = '8mbit'",
        "police = '4mbit,burst=64KiB'",
        "ber = '1e-9'",
        "netem = 'delay 10ms rate 8mbit'",
        "[[stages]]\nkind = 'gate'",
        "[[stages]]\nkind = 'mtu'\nmtu = 1400",
    ] {
        assert!(is_known(link), "{link}");
    }
    for link in [
        "delay = '10ms'\njitter = '1ms'",
        "rate = '8mbit'\nfluctuation = 'spread=10%,hold=100ms'",
        "netem = 'delay 10ms 1ms'",
        "netem = 'slot 1ms 4ms'",
        "toffee = 'delay=1ms'",
        "[[stages]]\nkind = 'gate'\nopen = false",
        "[[stages]]\nkind = 'slots'\nmin = '1ms'\nmax = '4ms'",
        "[[stages]]\nkind = 'reorder'\nshare = '1%'\nextent = 3",
        "[[stages]]\nkind = 'trace'\ntimes = [1, 2, 3]",
    ] {
        assert!(!is_known(link), "{link}");
    }
}

#[test]
fn a_policer_a_server_and_a_trace_limit_the_rate() {
    let rate = |link: &str| {
        let mut record = measured(&[rtt(24.05, 0.1)]);
        let case = &mut record.head.plan.cases[0];
        case.link = toml::from_str(link).unwrap();
        CellConditions::of(case).rate_bit_per_s
    };
    assert_eq!(rate("delay = '1ms'"), None);
    assert_eq!(
        rate("rate = '8mbit'\npolice = '4mbit,burst=64KiB'"),
        Some(4e6)
    );
    // A full frame of 1,514 bytes takes 1 ms.
    assert_eq!(rate("toffee = 'delay=1ms'"), Some(12_112_000.0));
    let trace = "[[stages]]\nkind = 'trace'\ntimes = [1, 2, 3]";
    assert!((rate(trace).unwrap() / 12_112_000.0 - 1.0).abs() < 1e-3);
}

#[test]
fn the_truth_of_a_goodput_is_the_payload_over_the_logged_time() {
    let up = |figure: Figure| ("tcp", figure.toward(Direction::Up));
    let goodput = || up(figure(Metric::GoodputBitPerS, Statistic::Mean, 3.7e6, 1e5));
    let elapsed = |seconds| up(Figure::new(Metric::ElapsedS, Statistic::Total, seconds));
    // The instrument's own clock has no influence.
    for seconds in [2.0, 2.1] {
        let report = CalibrationReport::of(&measured(&[elapsed(seconds), goodput()]));
        let cell = only_cell(&report);
        // Each packet has 66 bytes of headers, and the transfer took 2 s.
        let payload = 990_000.0 - 66.0 * 990.0;
        assert_eq!(cell.truth, Some(payload * 4.0), "{cell:?}");
        assert_eq!(cell.standing, CellStatus::Holds);
    }
}

#[test]
fn the_time_of_a_download_starts_with_the_first_departure() {
    let goodput = figure(Metric::GoodputBitPerS, Statistic::Mean, 3.7e6, 1e5);
    let goodput = ("tcp", goodput.toward(Direction::Down));
    let found = |timed| {
        let mut record = measured(std::slice::from_ref(&goodput));
        let cases = record.head.plan.cases.iter_mut();
        for used in cases.flat_map(|case| &mut case.instruments) {
            used.profile.calibration.timed = timed;
        }
        CalibrationReport::of(&record)
    };
    let payload = 990_000.0 - 66.0 * 990.0;
    // The first packet left 12 ms after it had arrived.
    let truth = only_cell(&found(false)).truth.unwrap();
    assert!((truth - payload * 8.0 / 1.988).abs() < 1.0, "{truth}");
    // When the client's clock ends, the far end's socket is still full.
    assert!(found(true).instruments.is_empty());
}

#[test]
fn an_incomplete_log_yields_no_truth() {
    let mut record = measured(&[rtt(24.05, 0.1)]);
    for run in &mut record.runs {
        let log = run.links[0].summary.packet_log.as_mut().unwrap();
        log.not_kept = 1;
    }
    assert!(CalibrationReport::of(&record).instruments.is_empty());
}

#[test]
fn a_wide_interval_scores_no_better_than_a_narrow_one_with_a_small_miss() {
    let score = |half, value| {
        let report = CalibrationReport::of(&measured(&[rtt(value, half)]));
        only_cell(&report).score.unwrap()
    };
    // The score is the width plus forty times the distance by which it misses the truth.
    assert!((score(2.0, 24.0) - 4.0).abs() < 1e-9);
    assert!((score(0.1, 24.15) - (0.2 + 40.0 * 0.05)).abs() < 1e-6);
}

#[test]
fn the_accepted_deviation_is_relative_to_the_truth() {
    let mut record = measured(&[rtt(0.25, 0.06)]);
    for flow in flows_of(&mut record) {
        flow.data.median_delay_ns = Some(100_000);
    }
    let report = CalibrationReport::of(&record);
    let cell = only_cell(&report);
    // The deviation is 0.05 ms of 0.2 ms.
    assert_eq!(cell.standing, CellStatus::Holds);
    assert!(!cell.is_trusted());
}

/// Returns all flows of all runs.
fn flows_of(record: &mut Record) -> impl Iterator<Item = &mut CrossedFlow> {
    let links = record.runs.iter_mut().flat_map(|run| &mut run.links);
    links.flat_map(|link| &mut link.summary.packet_log.as_mut().unwrap().flows)
}

#[test]
fn an_interval_without_the_truth_misses_with_its_distance() {
    let report = CalibrationReport::of(&measured(&[rtt(25.0, 0.1)]));
    let cell = only_cell(&report);
    assert_eq!(cell.standing, CellStatus::Misses);
    let cause = cell.cause.as_deref().unwrap();
    assert!(
        cause.starts_with("outside by 0.900 ms: the interval is too narrow"),
        "{cause}"
    );
    assert!(!report.is_met());
    assert_eq!(report.instruments[0].held, 0);
    assert_eq!(report.instruments[0].judged, 1);
}

#[test]
fn a_miss_by_a_fraction_of_the_width_is_attributed_to_chance() {
    let report = CalibrationReport::of(&measured(&[rtt(24.52, 0.5)]));
    let cause = only_cell(&report).cause.clone().unwrap();
    assert!(cause.contains("one 95 % interval in twenty"), "{cause}");
}

#[test]
fn a_miss_within_the_departure_error_is_attributed_to_it() {
    let mut record = measured(&[rtt(24.5, 0.1)]);
    record.runs[0].links[0].summary.departure_error.p99_ns = 500_000;
    let cause = only_cell(&CalibrationReport::of(&record))
        .cause
        .clone()
        .unwrap();
    assert!(
        cause.contains("the emulator's own departure error, p99 0.500 ms"),
        "{cause}"
    );
}

#[test]
fn a_value_above_the_truth_within_its_interval_is_attributed_to_the_hosts() {
    let report = CalibrationReport::of(&measured(&[rtt(24.4, 0.5)]));
    let cell = only_cell(&report);
    assert_eq!(cell.standing, CellStatus::Holds);
    assert!(!cell.is_trusted());
    assert!(
        cell.cause
            .as_deref()
            .unwrap()
            .contains("time that the hosts take")
    );
    assert!(report.instruments[0].figures[0].range.is_none());
}

#[test]
fn a_figure_without_an_interval_is_not_judged() {
    let bare = Figure::new(Metric::RttMs, Statistic::Median, 24.0);
    let report = CalibrationReport::of(&measured(&[("ping", bare)]));
    assert_eq!(only_cell(&report).standing, CellStatus::NoInterval);
    assert_eq!(report.instruments[0].judged, 0);
    assert!(!report.is_met());
}

#[test]
fn a_spoilt_run_has_no_truth_and_a_cause() {
    let mut record = measured(&[rtt(24.0, 0.1)]);
    for run in &mut record.runs {
        spoil(run, "the ring was full");
    }
    let report = CalibrationReport::of(&record);
    let cell = only_cell(&report);
    assert_eq!(cell.standing, CellStatus::NoTruth);
    assert_eq!(cell.cause.as_deref(), Some("INVALID: the ring was full"));
}

#[test]
fn instruments_that_share_a_link_have_no_truth() {
    let mut record = measured(&[rtt(24.0, 0.1)]);
    for case in &mut record.head.plan.cases {
        let twice = case.instruments[0].clone();
        case.instruments.push(twice);
    }
    assert!(CalibrationReport::of(&record).instruments.is_empty());
}
