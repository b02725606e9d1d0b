//! The verdict about the latency that loads add, with the source of its thresholds, and the table of the phases.
//!
//! All functions are pure functions of the measurement.

use super::plan::{LOADED, in_words};
use super::responsiveness::category;
use record::quantity::{number, optional, quantity};
use record::table::{Cell, Column, Mark, Table};
use record::{Direction, Figure, Measurement, Metric, Phase, Statistic};

/// Below this many milliseconds more under load, a path is good.
const GOOD_BELOW_MS: f64 = 30.0;
/// From this many milliseconds more under load on, a path is bloated.
const BLOATED_FROM_MS: f64 = 60.0;
/// The source of both thresholds.
const SOURCE: &str = "DSLReports, \"Bufferbloat Grades\", www.dslreports.com/faq/17930: grades A and A+ are below 30 ms, grades C \
     to F from 60 ms on";
/// From this many milliseconds more in one direction on, packets wait in a queue there.
const WAITS_FROM_MS: f64 = 1.0;
/// The loss in percent that ITU-T Y.1541 (2011), table 1, allows in its classes 0 to 4.
const ALLOWED_LOSS_PERCENT: f64 = 0.1;

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// The judgement of the latency that the loads add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Good,
    Fair,
    Bloated,
}

/// The evidence that the load in one direction reached the rate of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum QueueUse {
    /// Packets wait this many milliseconds longer.
    Waiting(f64),
    /// Packets of the load were lost, and others hardly wait: the queue is short or managed, or the path loses packets.
    Losing,
    /// Nothing does: packets neither wait nor are lost.
    Unfilled,
    /// Packets do not wait, and the sender does not count those that it sent again.
    Unknown,
}

/// A grade with its reasons.
#[derive(Clone, Debug, PartialEq)]
struct Verdict {
    grade: Grade,
    /// The greatest increase of the median round trip, and its phase.
    worst: (f64, Phase),
    /// The directions in which packets wait.
    directions: Vec<Direction>,
}

impl Grade {
    fn of(increase_ms: f64) -> Self {
        match increase_ms {
            ms if ms < GOOD_BELOW_MS => Self::Good,
            ms if ms < BLOATED_FROM_MS => Self::Fair,
            _ => Self::Bloated,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Bloated => "bloated",
        }
    }

    fn mark(self) -> Mark {
        match self {
            Self::Good => Mark::Good,
            Self::Fair => Mark::Plain,
            Self::Bloated => Mark::Bad,
        }
    }
}

impl Verdict {
    /// Returns the verdict, or `None` if no phase under load was measured.
    fn of(measurement: &Measurement) -> Option<Self> {
        let increase = |phase: Phase| Some((added(measurement, phase, None)?, phase));
        let increases = loaded().filter_map(increase);
        let worst = increases.max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some(Self {
            grade: Grade::of(worst.0),
            worst,
            directions: waiting(measurement),
        })
    }

    /// Returns the grade with its directions, if packets wait: "bloated upwards".
    fn in_words(&self) -> String {
        let name = self.grade.name();
        match (self.grade, &self.directions[..]) {
            (Grade::Good, _) => name.to_owned(),
            (_, [Direction::Up]) => format!("{name} upwards"),
            (_, [Direction::Down]) => format!("{name} downwards"),
            (_, []) => format!("{name} in both directions together"),
            (_, _) => format!("{name} in both directions"),
        }
    }
}

/// Returns the directions in which one-way times grow under any load by as much as makes a round trip fair. If the far
/// end states no one-way times, they are the directions of loads beside which round trips grow by as much.
fn waiting(measurement: &Measurement) -> Vec<Direction> {
    let grows = |phase, direction| {
        added(measurement, phase, direction).is_some_and(|ms| ms >= GOOD_BELOW_MS)
    };
    let has_one_way =
        loaded().any(|phase| added(measurement, phase, Some(Direction::Up)).is_some());
    let is_slow = |direction: &Direction| match (has_one_way, direction) {
        (true, _) => loaded().any(|phase| grows(phase, Some(*direction))),
        (false, Direction::Up) => grows(Phase::LoadedUp, None),
        (false, Direction::Down) => grows(Phase::LoadedDown, None),
    };
    DIRECTIONS.into_iter().filter(is_slow).collect()
}

/// Returns the phases under load.
fn loaded() -> impl Iterator<Item = Phase> {
    LOADED.into_iter().map(|(phase, _)| phase)
}

/// Returns the lines above the table: the verdict, its thresholds, the responsiveness, and a loss of the idle path.
pub(super) fn text(measurement: &Measurement) -> String {
    let lines = facts(measurement).into_iter();
    let shown = lines.filter(|(name, _)| !["bloated", "grade", "unfilled"].contains(name));
    shown
        .map(|(name, text)| format!("{name}: {text}\n"))
        .collect()
}

/// Returns the verdict as facts. `grade` is one word, `bloated` and `unfilled` have directions.
pub(super) fn facts(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    match Verdict::of(measurement) {
        Some(verdict) => {
            let (added, phase) = verdict.worst;
            let more = quantity(Metric::LatencyIncreaseMs, added.max(0.0));
            let sentence = format!(
                "{}: the median round trip takes {more} longer under load ({})",
                verdict.in_words(),
                in_words(phase)
            );
            facts.push(("verdict", sentence));
            facts.push(("grade", verdict.grade.name().to_owned()));
            if verdict.grade == Grade::Bloated {
                let names = verdict.directions.iter().map(|way| way.name());
                facts.push(("bloated", names.collect::<Vec<_>>().join(" ")));
            }
            let queues = queues(measurement);
            facts.extend(queues_in_words(&queues).map(|text| ("queue", text)));
            facts.extend(unfilled(&queues).map(|names| ("unfilled", names)));
            facts.push(("thresholds", thresholds()));
            facts.extend(congestion(measurement).map(|text| ("congestion control", text)));
        }
        None if measurement.failure.is_none() => {
            facts.push((
                "verdict",
                "none: no phase under load was measured".to_owned(),
            ));
        }
        None => {}
    }
    facts.extend(rpm(measurement).map(|text| ("round trips per minute", text)));
    facts.extend(idle_loss(measurement).map(|text| ("idle loss", text)));
    facts
}

/// Returns what the loads down and up did to the queue in their direction, without those that were not measured. A verdict is
/// one about a loaded path only where the load reached the path's rate.
fn queues(measurement: &Measurement) -> Vec<(Direction, QueueUse)> {
    let phases = [
        (Phase::LoadedDown, Direction::Down),
        (Phase::LoadedUp, Direction::Up),
    ];
    let of = |(phase, way): (Phase, Direction)| {
        let one_way = added(measurement, phase, Some(way));
        let wait = one_way.or_else(|| added(measurement, phase, None))?;
        let (metric, total) = (Metric::RetransmittedPackets, Statistic::Total);
        let found = match value(measurement, metric, total, phase, Some(way)) {
            _ if wait >= WAITS_FROM_MS => QueueUse::Waiting(wait),
            Some(again) if again > 0.0 => QueueUse::Losing,
            Some(_) => QueueUse::Unfilled,
            None => QueueUse::Unknown,
        };
        Some((way, found))
    };
    phases.into_iter().filter_map(of).collect()
}

/// Returns whether the loads filled the queues in one sentence; `None` if none was measured.
fn queues_in_words(queues: &[(Direction, QueueUse)]) -> Option<String> {
    let each = queues.iter().map(|(way, found)| {
        let way = way.name();
        match found {
            QueueUse::Waiting(ms) => {
                let wait = quantity(Metric::LatencyIncreaseMs, *ms);
                format!("filled {way} (packets wait {wait} longer)")
            }
            QueueUse::Losing => format!("at its limit {way} (packets of the load were lost)"),
            QueueUse::Unfilled => format!("not filled {way}"),
            QueueUse::Unknown => format!("perhaps not filled {way}"),
        }
    });
    let each: Vec<String> = each.collect();
    let is_in_doubt = |(_, found): &(Direction, QueueUse)| {
        matches!(found, QueueUse::Unfilled | QueueUse::Unknown)
    };
    let doubt = match queues.iter().any(is_in_doubt) {
        true => "; where it was not, the verdict does not say what a full queue adds",
        false => "",
    };
    (!each.is_empty()).then(|| format!("{}{doubt}", each.join(", ")))
}

/// Returns the directions in which the load filled no queue, if there are any.
fn unfilled(queues: &[(Direction, QueueUse)]) -> Option<String> {
    let unfilled = queues
        .iter()
        .filter(|(_, found)| *found == QueueUse::Unfilled);
    let names: Vec<&str> = unfilled.map(|(way, _)| way.name()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

fn thresholds() -> String {
    format!(
        "an increase below {GOOD_BELOW_MS} ms is good, one of {BLOATED_FROM_MS} ms or more means a bloated path ({SOURCE})"
    )
}

/// Returns the congestion control of the loads, as their ends read it back: each end sends in one direction.
fn congestion(measurement: &Measurement) -> Option<String> {
    let of = |end: &str, phase: Phase| {
        let name = format!("load_congestion control of the {end}");
        // A fact that differs between the phases has the name of its phase in front.
        let of_phase = measurement.facts.get(&format!("{}_{name}", phase.name()));
        of_phase.or_else(|| measurement.facts.get(&name))
    };
    let up = of("client", Phase::LoadedUp);
    let down = of("server", Phase::LoadedDown);
    let names = match (up, down) {
        (Some(up), Some(down)) if up == down => up.clone(),
        (Some(up), Some(down)) => format!("{up} up, {down} down"),
        (Some(up), None) => format!("{up} up"),
        (None, Some(down)) => format!("{down} down"),
        (None, None) => return None,
    };
    Some(match names.contains("bbr") {
        true => format!(
            "{names}; bbr fills a queue less than cubic and reno do: -C cubic shows what their packets meet"
        ),
        false => names,
    })
}

/// Returns the least responsiveness of the phases in a sentence.
fn rpm(measurement: &Measurement) -> Option<String> {
    let of = |phase: Phase| {
        let value = value(
            measurement,
            Metric::ResponsivenessPerMin,
            Statistic::Mean,
            phase,
            None,
        );
        Some((value?, phase))
    };
    let all = loaded().filter_map(of);
    let (least, phase) = all.min_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "{least:.0} at least ({}): {} (draft-ietf-ippm-responsiveness: below 300 is poor, from 1000 on good, from 6000 on excellent)",
        in_words(phase),
        category(least)
    ))
}

/// Returns the loss of the idle path in a sentence, if it is certainly more than ITU-T Y.1541 allows.
fn idle_loss(measurement: &Measurement) -> Option<String> {
    let of = |direction| {
        let figure = find(
            measurement,
            Metric::LostPercent,
            Statistic::Mean,
            Phase::Idle,
            direction,
        )?;
        let [low, _] = figure.interval?;
        Some((figure.value, low > ALLOWED_LOSS_PERCENT))
    };
    let (percent, is_too_much) = of(None)?;
    if !is_too_much {
        return None;
    }
    let shown = |value| quantity(Metric::LostPercent, value);
    let each = DIRECTIONS.map(|way| Some(format!("{} {}", shown(of(Some(way))?.0), way.name())));
    let [up, down] = each;
    let by_direction = up.zip(down);
    let by_direction = by_direction.map_or(String::new(), |(up, down)| format!(" ({up}, {down})"));
    Some(format!(
        "{} of the probes{by_direction}; ITU-T Y.1541 allows {ALLOWED_LOSS_PERCENT} % in its classes 0 to 4",
        shown(percent)
    ))
}

/// Returns the table with a row for each measured phase.
pub(super) fn table(measurement: &Measurement) -> Table {
    let columns = [
        Column::words("phase"),
        Column::numbers("down\nMbit/s"),
        Column::numbers("up\nMbit/s"),
        Column::numbers("lost\n%"),
        Column::numbers("rtt p50\nms"),
        Column::numbers("p95\nms"),
        Column::numbers("p99\nms"),
        Column::numbers("more\nms"),
        Column::numbers("rounds\n/min"),
    ];
    let phases = [Phase::Idle].into_iter().chain(loaded());
    let rows = phases.filter_map(|phase| row(measurement, phase));
    Table::new("", columns).with(rows)
}

/// Returns the row of a phase, if its probes were sent.
fn row(measurement: &Measurement, phase: Phase) -> Option<Vec<Cell>> {
    use Statistic::{Mean, Median, P95, P99};
    let of = |metric, statistic, direction| value(measurement, metric, statistic, phase, direction);
    of(Metric::SentPackets, Statistic::Total, None)?;
    let goodput = |way| of(Metric::GoodputBitPerS, Mean, Some(way)).map(|rate| rate / 1e6);
    let network = of(Metric::NetworkRttMs, Median, None).map(|_| Metric::NetworkRttMs);
    let rtt = network.unwrap_or(Metric::RttMs);
    let more = added(measurement, phase, None);
    let shown = |value: Option<f64>| value.map_or_else(|| optional(None, 0), number);
    let grade = more.map_or(Mark::Plain, |ms| Grade::of(ms).mark());
    let rounds = of(Metric::ResponsivenessPerMin, Mean, None).map(f64::round);
    Some(vec![
        in_words(phase).into(),
        shown(goodput(Direction::Down)).into(),
        shown(goodput(Direction::Up)).into(),
        shown(of(Metric::LostPercent, Mean, None)).into(),
        shown(of(rtt, Median, None)).into(),
        shown(of(rtt, P95, None)).into(),
        shown(of(rtt, P99, None)).into(),
        Cell::marked(shown(more), grade),
        optional(rounds, 0).into(),
    ])
}

/// Returns the increase of a phase in milliseconds: of the round trip, or of the time in one direction.
fn added(measurement: &Measurement, phase: Phase, direction: Option<Direction>) -> Option<f64> {
    let (metric, statistic) = (Metric::LatencyIncreaseMs, Statistic::Median);
    value(measurement, metric, statistic, phase, direction)
}

fn value(
    measurement: &Measurement,
    metric: Metric,
    statistic: Statistic,
    phase: Phase,
    direction: Option<Direction>,
) -> Option<f64> {
    find(measurement, metric, statistic, phase, direction).map(|figure| figure.value)
}

fn find(
    measurement: &Measurement,
    metric: Metric,
    statistic: Statistic,
    phase: Phase,
    direction: Option<Direction>,
) -> Option<&Figure> {
    let wanted = (metric, statistic, Some(phase), direction);
    let mut figures = measurement.figures.iter();
    figures.find(|one| (one.metric, one.statistic, one.phase, one.direction) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a measurement in which each load adds these milliseconds up and down.
    fn measured(added: [(Phase, f64, f64); 3]) -> Measurement {
        let figure = |phase, ms, direction| Figure {
            direction,
            ..Figure::new(Metric::LatencyIncreaseMs, Statistic::Median, ms).during(phase)
        };
        let figures = added.into_iter().flat_map(|(phase, up, down)| {
            [
                figure(phase, up + down, None),
                figure(phase, up, Some(Direction::Up)),
                figure(phase, down, Some(Direction::Down)),
            ]
        });
        Measurement {
            figures: figures.collect(),
            ..Measurement::default()
        }
    }

    fn words(added: [(f64, f64); 3]) -> String {
        let [down, up, both] = added;
        let measurement = measured([
            (Phase::LoadedDown, down.0, down.1),
            (Phase::LoadedUp, up.0, up.1),
            (Phase::LoadedBoth, both.0, both.1),
        ]);
        Verdict::of(&measurement).unwrap().in_words()
    }

    #[test]
    fn the_verdict_names_the_directions_in_which_packets_wait() {
        assert_eq!(words([(0.1, 9.0), (11.0, 0.0), (12.0, 10.0)]), "good");
        assert_eq!(
            words([(0.0, 0.0), (40.0, 0.0), (44.0, 1.0)]),
            "fair upwards"
        );
        // Acknowledgements of the download wait in the queue of the uplink.
        assert_eq!(
            words([(700.0, 5.0), (900.0, 0.0), (950.0, 6.0)]),
            "bloated upwards"
        );
        assert_eq!(
            words([(0.0, 800.0), (0.0, 0.0), (1.0, 700.0)]),
            "bloated downwards"
        );
        assert_eq!(
            words([(0.0, 800.0), (500.0, 0.0), (9.0, 9.0)]),
            "bloated in both directions"
        );
        assert_eq!(
            words([(0.0, 25.0), (25.0, 0.0), (29.0, 40.0)]),
            "bloated downwards"
        );
        assert_eq!(
            words([(0.0, 25.0), (25.0, 0.0), (29.0, 29.0)]),
            "fair in both directions together"
        );
    }

    #[test]
    fn thresholds_are_those_that_are_stated() {
        let of = [29.9, 30.0, 59.9, 60.0].map(|ms| Grade::of(ms).name());
        assert_eq!(of, ["good", "fair", "fair", "bloated"]);
        let text = thresholds();
        assert!(text.contains("below 30 ms"), "{text}");
        assert!(text.contains("dslreports.com/faq/17930"), "{text}");
    }

    #[test]
    fn facts_have_the_grade_in_one_word_and_the_directions() {
        let measurement = measured(LOADED.map(|(phase, _)| (phase, 100.0, 0.0)));
        let facts = facts(&measurement);
        assert!(facts.contains(&("grade", "bloated".to_owned())));
        assert!(facts.contains(&("bloated", "up".to_owned())));
        let text = text(&measurement);
        assert!(
            text.starts_with("verdict: bloated upwards: the median round trip"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_load_that_fills_no_queue_is_named_beside_the_verdict() {
        let retransmitted = |phase, way, count| {
            Figure::new(Metric::RetransmittedPackets, Statistic::Total, count)
                .toward(way)
                .during(phase)
        };
        let of = |down: f64, again: &[(Phase, Direction, f64)]| {
            let mut measurement = measured([
                (Phase::LoadedDown, 0.0, down),
                (Phase::LoadedUp, 0.0, 0.1),
                (Phase::LoadedBoth, 0.0, 0.1),
            ]);
            let again = again
                .iter()
                .map(|(phase, way, count)| retransmitted(*phase, *way, *count));
            measurement.figures.extend(again);
            let facts = facts(&measurement);
            let fact = |wanted: &str| {
                let found = facts.iter().find(|(name, _)| *name == wanted);
                found.map(|(_, text)| text.clone())
            };
            assert!(fact("verdict").unwrap().starts_with("good: "));
            (fact("queue").unwrap(), fact("unfilled"))
        };
        let (down, up) = (
            (Phase::LoadedDown, Direction::Down),
            (Phase::LoadedUp, Direction::Up),
        );
        let lost = [(down.0, down.1, 0.0), (up.0, up.1, 12.0)];
        let (words, none) = of(9.0, &lost);
        let expected = "filled down (packets wait 9.000 ms longer), at its limit up (packets of the load were lost)";
        assert_eq!((words.as_str(), none), (expected, None));
        let clean = [(down.0, down.1, 0.0), (up.0, up.1, 0.0)];
        let (words, directions) = of(0.2, &clean);
        let expected = "not filled down, not filled up; where it was not, the verdict does not say what a full queue adds";
        assert_eq!(words, expected);
        assert_eq!(directions.unwrap(), "down up");
        let (words, directions) = of(9.0, &clean[..1]);
        assert!(words.contains(", perhaps not filled up; where"), "{words}");
        assert_eq!(directions, None);
    }

    #[test]
    fn the_congestion_control_of_the_loads_is_named_and_bbr_explained() {
        let of = |facts: &[(&str, &str)]| {
            let facts = facts.iter();
            congestion(&Measurement {
                facts: facts
                    .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                    .collect(),
                ..Measurement::default()
            })
        };
        let client = "load_congestion control of the client";
        let server = "load_congestion control of the server";
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(client, "cubic")]).unwrap(), "cubic up");
        assert_eq!(
            of(&[(client, "cubic"), (server, "cubic")]).unwrap(),
            "cubic"
        );
        assert_eq!(
            of(&[(client, "reno"), (server, "cubic")]).unwrap(),
            "reno up, cubic down"
        );
        // The client only received in the first phase.
        let sending = format!("loaded_up_{client}");
        let words = of(&[(client, "cubic"), (&sending, "bbr"), (server, "bbr")]).unwrap();
        assert!(words.starts_with("bbr; bbr fills a queue less"), "{words}");
    }

    #[test]
    fn a_loss_of_the_idle_path_is_named_if_it_is_certain() {
        let lost = |percent, low, direction| Figure {
            direction,
            ..Figure::new(Metric::LostPercent, Statistic::Mean, percent)
                .within(low, 2.0 * percent)
                .during(Phase::Idle)
        };
        let of = |low| {
            let figures = vec![
                lost(5.9, low, None),
                lost(3.1, low, Some(Direction::Up)),
                lost(2.9, low, Some(Direction::Down)),
            ];
            idle_loss(&Measurement {
                figures,
                ..Measurement::default()
            })
        };
        assert_eq!(of(0.1), None);
        let named = of(2.0).unwrap();
        let start = "5.900 % of the probes (3.100 % up, 2.900 % down); ITU-T Y.1541";
        assert!(named.starts_with(start), "{named}");
    }

    #[test]
    fn the_table_has_a_row_for_each_phase_that_was_probed() {
        let sent = |phase| Figure::new(Metric::SentPackets, Statistic::Total, 9.0).during(phase);
        let measurement = Measurement {
            figures: vec![sent(Phase::Idle), sent(Phase::LoadedUp)],
            ..Measurement::default()
        };
        let rows = table(&measurement).rows;
        let names: Vec<&str> = rows.iter().map(|row| row[0].text.as_str()).collect();
        assert_eq!(names, ["idle", "load up"]);
        assert_eq!(rows[0].len(), 9);
    }
}
