//! The table of the time until a throughput was steady, and of the steady throughput.

use super::charts::instruments;
use crate::analysis::Analysis;
use crate::analysis::intervals::RateQuantity;
use crate::analysis::throughput::{LeftOutStart, Throughput};
use crate::case_labels::CaseLabels;
use crate::figure_tables::or_dash;
use crate::interval::{Label, with_interval};
use record::Metric;
use record::plan::Case;
use record::profile::SampleKind;
use record::quantity::{number, scale_for};
use record::table::{Cell, Column, Table};
use stats::order_statistics;

/// Note on how to read the table.
const NOTE: &str = "Reached: the time at which the rate of an interval first reached the steady rate, median over the runs (least to greatest). \
                               Steady: the mean rate after the warm-up, with its 95 % interval. Over N runs, it is Student's t interval of the runs' \
                               means. Over the run's intervals, it is the interval of the mean that a run of any length would have had under the \
                               same conditions, by batch means over the autocorrelation; an asterisk marks an interval that is uncertain because \
                               the run's intervals are too few or too similar. It is wider than the interval beside the goodput, which describes \
                               what the network did in the run. A sent rate is what the sender handed to its socket; some of it may not have \
                               arrived. Warm-up: set by the scenario, or found by MSER-5";

/// Returns a table for each instrument that has intervals, with a row for each case and direction.
pub(super) fn tables(analysis: &Analysis<'_>) -> Vec<Table> {
    let names = instruments(&analysis.cases, &[SampleKind::Intervals]);
    let mut tables: Vec<Table> = names
        .into_iter()
        .map(|name| table(analysis, name))
        .filter(|table| !table.rows.is_empty())
        .collect();
    if let Some(last) = tables.last_mut() {
        last.note = NOTE.to_owned();
    }
    tables
}

fn table(analysis: &Analysis<'_>, instrument: &str) -> Table {
    let ways: Vec<(&Case, Throughput)> = analysis
        .cases
        .iter()
        .flat_map(|case| {
            let ways = Throughput::of(case, instrument).into_iter();
            ways.map(|way| (case.case, way))
        })
        .collect();
    let cases: Vec<&Case> = ways.iter().map(|(case, _)| *case).collect();
    let labels = CaseLabels::of(analysis.record.plan(), &cases);
    let has_directions = ways.iter().any(|(_, way)| way.direction.is_some());
    let shown: Vec<(RateQuantity, Label)> = RateQuantity::ALL
        .into_iter()
        .filter(|quantity| ways.iter().any(|(_, way)| way.quantity == *quantity))
        .map(|quantity| (quantity, label(&ways, quantity)))
        .collect();
    let greatest = ways.iter().map(|(_, way)| way.steady).fold(0.0, f64::max);
    let unit = scale_for(Metric::GoodputBitPerS, greatest);
    let is_requested = ways.iter().any(|(_, way)| way.requested.is_some());
    let mut columns = labels.columns();
    columns.extend(has_directions.then(|| Column::words("direction").label()));
    columns.push(Column::numbers("reached after\ns"));
    columns.extend(shown.iter().map(|(quantity, label)| {
        let title = format!("steady {}", quantity.name());
        let lines = [Some(title), label.heading(), Some(unit.1.to_owned())];
        Column::numbers(lines.into_iter().flatten().collect::<Vec<_>>().join("\n"))
    }));
    columns.extend(
        is_requested.then(|| Column::numbers(format!("requested rate\n{}", unit.1)).beside()),
    );
    columns.push(Column::words("warm-up left out"));
    let rows = ways.iter().map(|(case, way)| {
        let mut row = labels.cells(case);
        let direction = || or_dash(way.direction.map(|way| way.name().to_owned()));
        row.extend(has_directions.then(|| Cell::from(direction())));
        let figures = cells(way, &shown, unit.0, is_requested);
        row.extend(figures.into_iter().map(Cell::from));
        row
    });
    Table::new(format!("{instrument}: warm-up and ramp"), columns).with(rows)
}

/// Returns the label for the intervals in the column of one quantity.
fn label(ways: &[(&Case, Throughput)], quantity: RateQuantity) -> Label {
    let own = ways.iter().filter(|(_, way)| way.quantity == quantity);
    Label::of(own.filter_map(|(_, way)| Some(way.interval?.of)))
}

fn cells(
    way: &Throughput,
    shown: &[(RateQuantity, Label)],
    by: f64,
    is_requested: bool,
) -> Vec<String> {
    let mut cells = vec![reached(&way.ramps_s)];
    cells.extend(shown.iter().map(|(quantity, label)| {
        or_dash((way.quantity == *quantity).then(|| steady(way, by, *label)))
    }));
    cells.extend(is_requested.then(|| or_dash(way.requested.map(|rate| number(rate / by)))));
    cells.push(left_out(&way.warm_ups));
    cells
}

fn reached(ramps_s: &[f64]) -> String {
    let median = order_statistics::quantile(ramps_s, 0.5);
    or_dash(median.map(|median| match ramps_s {
        [least, .., greatest] if least < greatest => {
            format!("{median:.2} ({least:.2} to {greatest:.2})")
        }
        _ => format!("{median:.2}"),
    }))
}

fn steady(way: &Throughput, by: f64, label: Label) -> String {
    let interval = way.interval.map(|own| own.in_units_of(by));
    let words = with_interval(way.steady / by, interval.map(|own| own.ends));
    let beside = interval.and_then(|own| label.beside(own.of));
    let mark = (interval.is_some() && !way.trusted).then(|| "*".to_owned());
    let parts = [Some(words), beside, mark].into_iter().flatten();
    parts.collect::<Vec<_>>().join(" ")
}

fn left_out(warm_ups: &[LeftOutStart]) -> String {
    let mut found: Vec<f64> = Vec::new();
    let (mut unsettled, mut short) = (0, 0);
    for warm_up in warm_ups {
        match warm_up {
            LeftOutStart::Fixed(seconds) => return format!("{seconds} s, fixed"),
            LeftOutStart::Found(seconds) => found.push(*seconds),
            LeftOutStart::Unsettled => unsettled += 1,
            LeftOutStart::TooShort => short += 1,
        }
    }
    found.sort_by(f64::total_cmp);
    let found = match found[..] {
        [] => None,
        [.., 0.0] => Some("nothing, found".to_owned()),
        [least, .., most] if least < most => Some(format!("{least:.2} to {most:.2} s, found")),
        [least, ..] => Some(format!("{least:.2} s, found")),
    };
    let runs = warm_ups.len();
    let of = |count: usize| match runs {
        1 => String::new(),
        _ => format!(" in {count} of {runs} runs"),
    };
    let unsettled = (unsettled > 0).then(|| format!("not settled{}", of(unsettled)));
    let short = (short > 0).then(|| format!("too short to decide{}", of(short)));
    let parts: Vec<String> = [found, unsettled, short].into_iter().flatten().collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::{ConfidenceInterval, IntervalScope};

    #[test]
    fn warm_ups_are_formatted() {
        let found = [
            LeftOutStart::Found(0.5),
            LeftOutStart::Found(2.0),
            LeftOutStart::Unsettled,
        ];
        assert_eq!(
            left_out(&found),
            "0.50 to 2.00 s, found; not settled in 1 of 3 runs"
        );
        assert_eq!(left_out(&[LeftOutStart::Found(0.0); 2]), "nothing, found");
        assert_eq!(left_out(&[LeftOutStart::Fixed(2.0); 3]), "2 s, fixed");
        assert_eq!(left_out(&[LeftOutStart::TooShort]), "too short to decide");
    }

    #[test]
    fn the_ramp_is_a_median_with_its_range() {
        assert_eq!(reached(&[0.2, 0.4, 9.0]), "0.40 (0.20 to 9.00)");
        assert_eq!(reached(&[0.2]), "0.20");
        assert_eq!(reached(&[]), "–");
    }

    #[test]
    fn an_untrusted_interval_is_marked() {
        let way = Throughput {
            quantity: RateQuantity::Goodput,
            direction: None,
            requested: None,
            steady: 5e6,
            interval: Some(ConfidenceInterval {
                ends: [4e6, 6e6],
                of: IntervalScope::TheRun,
            }),
            trusted: false,
            warm_ups: vec![LeftOutStart::TooShort],
            ramps_s: Vec::new(),
        };
        assert_eq!(steady(&way, 1e6, Label::default()), "5.0 ± 1.0 *");
        let sure = Throughput {
            trusted: true,
            ..way
        };
        assert_eq!(steady(&sure, 1e6, Label::default()), "5.0 ± 1.0");
    }

    #[test]
    fn a_sent_rate_has_a_separate_column_beside_the_requested_rate() {
        use record::{Direction, Figure, Sample, Statistic};
        let mut record = crate::analysis::tests::record();
        let up = Direction::Up;
        let instrument = record.head.plan.cases[0].instruments[1].name.clone();
        let measurement = &mut record.runs[0].measurements[1].measurement;
        // The sender sends 2,496,250 bytes per second, which are 19.97 Mbit/s; 20 were requested, and 9.718 arrived.
        let sent = |index: u64| Sample::new(index as f64, Metric::SentBytes, index, 2_496_250.0);
        measurement.samples = (1..=4).map(|index| sent(index).toward(up)).collect();
        measurement.figures = vec![
            Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 9.718e6).toward(up),
            Figure::new(Metric::RequestedRateBitPerS, Statistic::Mean, 20e6).toward(up),
        ];
        let analysis = Analysis::of(&record);
        let table = table(&analysis, &instrument);
        let titles: Vec<&str> = table.columns.iter().map(|c| c.title.as_str()).collect();
        let row = table
            .rows
            .iter()
            .find(|row| row[0].text == "base" && row[1].text == "up")
            .unwrap();
        let at = |title: &str| titles.iter().position(|known| known.starts_with(title));
        assert!(
            row[at("steady sent rate").unwrap()]
                .text
                .starts_with("19.97")
        );
        assert_eq!(row[at("requested rate").unwrap()].text, "20.00");
        // The other case's downloads did arrive.
        assert_eq!(row[at("steady goodput").unwrap()].text, "–");
    }
}
