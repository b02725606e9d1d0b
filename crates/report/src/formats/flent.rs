//! Runs in the format of flent's data files, so that flent can plot them (flent 2.3.0, doc/data-format.rst, file format
//! version 4).
//!
//! A file has the instruments that ran simultaneously: all of a run, or one of them if they ran one after the other.
//! flent chooses its plots by the name of its test and of the series, so a series that no test of flent has is left
//! out.

use std::collections::BTreeMap;

use conditions::require;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::NamedFiles;
use crate::analysis::counted;
use crate::analysis::intervals::{RateQuantity, RateSeries};
use crate::case_conditions;
use crate::error::Result;
use record::figure_name::FigureName;
use record::plan::{Case, PlannedInstrument};
use record::profile::FlentSeries;
use record::{Direction, Measured, Measurement, Metric, Record, Run, Statistic};

/// Step of the common time axis in seconds; the raw values keep their own times.
const STEP_S: f64 = 0.1;

/// The longest time in seconds that a file may span, which is 1,000,000 values of each series: more than a day.
const LONGEST_S: f64 = 100_000.0;

/// A data file.
struct DataFile {
    /// Name without the extension.
    name: String,
    content: Value,
}

/// Seconds since the start of the group of instruments, and a value in the series' unit.
type Points = Vec<(f64, f64)>;

/// A series of a data file.
struct Series {
    points: Points,
    /// The mean over the whole measurement, which flent's summary shows.
    mean: f64,
}

/// Returns a file for each group of instruments of every run that counts, in the order of the plan.
///
/// # Errors
/// No instrument of the record has a test in flent, or samples of one span more than [`LONGEST_S`].
pub(crate) fn flent(record: &Record) -> Result<NamedFiles> {
    let files: NamedFiles = data_files(record)?
        .into_iter()
        .map(|file| (format!("{}.flent", file.name), file.content.to_string()))
        .collect();
    require!(
        !files.is_empty(),
        "flent has no test for any instrument of the record"
    );
    Ok(files)
}

fn data_files(record: &Record) -> Result<Vec<DataFile>> {
    let (cases, latest) = (record.plan().cases.iter(), record.latest());
    let runs = cases.flat_map(|case| counted(&latest, case).map(move |run| (case, run)));
    let files = runs.flat_map(|(case, run)| {
        let groups = case.groups().into_iter();
        groups
            .filter_map(move |group| file(record, case, run, group).transpose())
            .collect::<Vec<_>>()
    });
    files.collect()
}

fn file(
    record: &Record,
    case: &Case,
    run: &Run,
    group: &[PlannedInstrument],
) -> Result<Option<DataFile>> {
    let measured: Vec<(&PlannedInstrument, &Measured)> = group
        .iter()
        .filter_map(|instrument| Some((instrument, run.measured(&instrument.name)?)))
        .collect();
    let began = |measured: &Measured| measured.started_at.parse::<Timestamp>().ok();
    let Some(start) = measured
        .iter()
        .filter_map(|(_, measured)| began(measured))
        .min()
    else {
        return Ok(None);
    };
    let mut series: BTreeMap<String, Series> = BTreeMap::new();
    for (instrument, measured) in &measured {
        let Some(began) = began(measured) else {
            return Ok(None);
        };
        let offset_s = began.duration_since(start).as_secs_f64();
        for (name, mut own) in of_instrument(&instrument.profile.flent, &measured.measurement) {
            own.points.iter_mut().for_each(|point| point.0 += offset_s);
            // flent numbers several series of the same name in this way.
            let again = (2..).map(|n| format!("{name}::{n}"));
            let free = std::iter::once(name.to_owned())
                .chain(again)
                .find(|name| !series.contains_key(name));
            series.extend(free.map(|name| (name, own)));
        }
    }
    let Some(test) = test(&series) else {
        return Ok(None);
    };
    let length_s = series
        .values()
        .flat_map(|one| &one.points)
        .map(|point| point.0)
        .fold(0.0, f64::max);
    require!(
        length_s <= LONGEST_S,
        "case `{}`, repeat {}: the samples span {length_s:.0} s, more than the {LONGEST_S} s of a flent data file",
        case.name,
        run.repeat
    );
    let of = group
        .iter()
        .map(|instrument| instrument.name.as_str())
        .collect::<Vec<_>>()
        .join("+");
    let title = format!("{}, {of}, run {}", case.name, run.repeat);
    Ok(Some(DataFile {
        name: crate::charts::file_name(&[&case.name, &of, &run.repeat.to_string()]),
        content: json!({
            "version": 4,
            "x_values": axis(length_s).collect::<Vec<_>>(),
            "results": series.iter().map(|(name, one)| (name.clone(), interpolated(&one.points, length_s))).collect::<BTreeMap<_, _>>(),
            "raw_values": series.iter().map(|(name, one)| (name.clone(), raw(&one.points, start))).collect::<BTreeMap<_, _>>(),
            "metadata": metadata(record, case, run, &Meta { test, title: &title, start, length_s, series: &series }),
        }),
    }))
}

/// Returns the series that the measurement has under flent's names, in Mbit/s and ms.
fn of_instrument<'a>(
    series: &'a [FlentSeries],
    measurement: &Measurement,
) -> Vec<(&'a str, Series)> {
    let of = |one: &'a FlentSeries| {
        let found = match one.metric {
            Metric::GoodputBitPerS => received(measurement, one.direction),
            metric => observed(measurement, metric, one.direction),
        };
        Some((one.name.as_str(), found?))
    };
    series.iter().filter_map(of).collect()
}

/// Returns the rate at which data arrived, in Mbit/s. flent's names are for received data, so a sent rate has no place
/// under them.
fn received(measurement: &Measurement, direction: Option<Direction>) -> Option<Series> {
    let mut arrived = [RateQuantity::Goodput, RateQuantity::IpCapacity].into_iter();
    let rates = arrived.find_map(|of| RateSeries::of(measurement, direction, of))?;
    let intervals = rates.complete_intervals().iter();
    let points = intervals
        .filter(|(start, end, _)| end > start)
        .map(|(start, end, bits)| (*end, bits / (end - start) / 1e6));
    let mean = mean(measurement, rates.quantity().metric(), direction);
    Series::of(points.collect(), mean.map(|bits| bits / 1e6))
}

/// Returns the samples of a metric over all message sizes.
fn observed(
    measurement: &Measurement,
    metric: Metric,
    direction: Option<Direction>,
) -> Option<Series> {
    let samples = measurement.samples.iter();
    let own = samples.filter(|sample| {
        (sample.metric, sample.direction, sample.size) == (metric, direction, None)
    });
    let points = own.map(|sample| (sample.at_s, sample.value)).collect();
    Series::of(points, mean(measurement, metric, direction))
}

/// Returns the mean that the instrument states for the whole measurement.
fn mean(measurement: &Measurement, metric: Metric, direction: Option<Direction>) -> Option<f64> {
    let name = FigureName {
        instrument: String::new(),
        metric,
        statistic: Statistic::Mean,
        direction,
        phase: None,
        size: None,
    };
    Some(name.find(measurement)?.value)
}

impl Series {
    /// Creates a series with this mean, or else with that of its points; `None` without points.
    fn of(points: Points, mean: Option<f64>) -> Option<Self> {
        let sum: f64 = points.iter().map(|point| point.1).sum();
        let count = points.len() as f64;
        (!points.is_empty()).then(|| Self {
            points,
            mean: mean.unwrap_or(sum / count),
        })
    }
}

/// Returns the test of flent that has plots for these series.
fn test(series: &BTreeMap<String, Series>) -> Option<&'static str> {
    let has = |name: &str| series.contains_key(name);
    match (has("TCP download"), has("TCP upload")) {
        (true, true) => Some("tcp_bidirectional"),
        (true, false) => Some("tcp_download"),
        (false, true) => Some("tcp_upload"),
        _ if has("UDP upload") => Some("udp_flood"),
        _ if series.keys().any(|name| name.starts_with("Ping")) => Some("ping"),
        _ => None,
    }
}

fn axis(length_s: f64) -> impl Iterator<Item = f64> {
    let steps = (0..).map(|step: u32| (f64::from(step) * STEP_S * 10.0).round() / 10.0);
    steps.take_while(move |at_s| *at_s <= length_s + STEP_S)
}

/// Interpolates the values linearly at the steps of the axis; null before the first and after the last value.
fn interpolated(points: &Points, length_s: f64) -> Vec<Option<f64>> {
    let mut sorted = points.clone();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let value = |at_s: f64| {
        let after = sorted.partition_point(|point| point.0 < at_s);
        match (
            after.checked_sub(1).map(|before| sorted[before]),
            sorted.get(after),
        ) {
            (_, Some(&(x, y))) if x == at_s => Some(y),
            (Some((x0, y0)), Some(&(x1, y1))) => Some(y0 + (y1 - y0) * (at_s - x0) / (x1 - x0)),
            _ => None,
        }
    };
    axis(length_s).map(value).collect()
}

fn raw(points: &Points, start: Timestamp) -> Vec<Value> {
    let start_s = start.as_duration().as_secs_f64();
    points
        .iter()
        .map(|(at_s, value)| json!({ "t": start_s + at_s, "val": value }))
        .collect()
}

/// The facts about the file itself for [`metadata`].
struct Meta<'a> {
    test: &'static str,
    title: &'a str,
    start: Timestamp,
    length_s: f64,
    series: &'a BTreeMap<String, Series>,
}

fn metadata(record: &Record, case: &Case, run: &Run, meta: &Meta<'_>) -> Value {
    let box_of = case_conditions::path(case);
    let bed = case_conditions::bed(case);
    let time = format!("{:.6}", meta.start);
    let series = meta.series.iter().map(|(name, one)| {
        let units = if name.starts_with("Ping") {
            "ms"
        } else {
            "Mbits/s"
        };
        (
            name.clone(),
            json!({ "MEAN_VALUE": one.mean, "UNITS": units }),
        )
    });
    json!({
        "NAME": meta.test,
        "TITLE": meta.title,
        "NOTE": format!("{}: {}; link: {box_of}; bed: {bed}; seed {}", record.plan().title, case.title, run.seed),
        "TIME": time,
        "T0": time,
        "LENGTH": meta.length_s.ceil(),
        "TOTAL_LENGTH": meta.length_s.ceil(),
        "STEP_SIZE": STEP_S,
        "HOST": "far-end",
        "HOSTS": ["far-end"],
        "LOCAL_HOST": "farwire",
        "IP_VERSION": 4,
        "FLENT_VERSION": format!("farwire-{}", record.head.farwire),
        "KERNEL_NAME": "Linux",
        "KERNEL_RELEASE": record.head.host.kernel,
        "SYSCTLS": run.environment,
        "SERIES_META": series.collect::<BTreeMap<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::Figure;

    #[test]
    fn instruments_that_ran_separately_have_separate_files() {
        let files = data_files(&record()).unwrap();
        let tests: Vec<_> = files
            .iter()
            .map(|file| file.content["metadata"]["NAME"].as_str().unwrap())
            .collect();
        // The downloads' bytes of the fixture have no direction.
        assert_eq!(tests, ["ping", "ping", "ping"]);
        assert_eq!(files[1].name, "slow-ping-1");
    }

    #[test]
    fn samples_that_span_more_than_a_day_are_refused_with_their_case() {
        for at_s in [1e9, 1e300, 100_001.0] {
            let mut record = record();
            record.runs[0].measurements[0].measurement.samples[0].at_s = at_s;
            let error = format!("{:#}", flent(&record).unwrap_err());
            assert!(error.starts_with("case `base`, repeat 1: "), "{error}");
            assert!(
                error.contains("more than the 100000 s of a flent data file"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_sent_rate_is_not_a_series_of_flent() {
        let series = FlentSeries::of_streams("UDP");
        let of = |metric| {
            let sample = |index: u64| record::Sample::new(index as f64, metric, index, 1e6);
            let up = (1..=3).map(|index| sample(index).toward(Direction::Up));
            let measurement = Measurement {
                samples: up.collect(),
                ..Measurement::default()
            };
            of_instrument(&series, &measurement).len()
        };
        assert_eq!(of(Metric::SentBytes), 0);
        assert_eq!(of(Metric::ReceivedBytes), 1);
    }

    #[test]
    fn an_incomplete_last_interval_is_left_out_and_the_mean_is_the_instruments_own() {
        let interval = |index: u64, end_s: f64, rate: f64| {
            let sample = record::Sample::new(end_s, Metric::GoodputBitPerS, index, rate);
            sample.toward(Direction::Up)
        };
        let figure = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 8.9e6);
        // The last 24 ms had a burst of twice the link's rate.
        let mut measurement = Measurement {
            samples: vec![
                interval(1, 0.505, 8.8e6),
                interval(2, 1.005, 9.0e6),
                interval(3, 1.029, 18.8e6),
            ],
            figures: vec![figure.toward(Direction::Up)],
            ..Measurement::default()
        };
        let series = FlentSeries::of_streams("TCP");
        let (name, upload) = of_instrument(&series, &measurement).pop().unwrap();
        let values: Vec<f64> = upload.points.iter().map(|point| point.1.round()).collect();
        assert_eq!((name, values), ("TCP upload", vec![9.0, 9.0]));
        assert_eq!(upload.mean, 8.9);
        measurement.figures.clear();
        let (_, upload) = of_instrument(&series, &measurement).pop().unwrap();
        assert!((upload.mean - 8.9).abs() < 1e-6, "{}", upload.mean);
    }

    #[test]
    fn instruments_that_ran_simultaneously_share_a_file_and_its_axis() {
        let mut record = record();
        for instrument in &mut record.head.plan.cases[0].instruments {
            instrument.group = Some("both".to_owned());
        }
        for sample in &mut record.runs[0].measurements[1].measurement.samples {
            sample.direction = Some(Direction::Down);
        }
        let file = &data_files(&record).unwrap()[0].content;
        assert_eq!(file["metadata"]["NAME"], "tcp_download");
        let steps = file["x_values"].as_array().unwrap().len();
        for name in ["Ping (ms) ICMP", "TCP download"] {
            assert_eq!(file["results"][name].as_array().unwrap().len(), steps);
        }
        assert_eq!(file["results"]["Ping (ms) ICMP"][2], 1.1);
        assert_eq!(file["results"]["TCP download"][7], 16.0);
        assert_eq!(file["results"]["TCP download"][3], Value::Null);
        assert_eq!(
            file["raw_values"]["TCP download"].as_array().unwrap().len(),
            4
        );
    }
}
