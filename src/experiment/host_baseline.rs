//! The baseline: measurements of this machine without a link, before and after an experiment. If a
//! result of the experiment is near the baseline, it shows the limit of the tool or the host rather
//! than of the link.

use anyhow::{Context, Result};

use super::observer::RunObserver;
use super::runner::{self, SetUp};
use super::scenario;
use crate::experiment::{Case, Plan, PlannedRun};
use crate::named_files::NamedFiles;
use crate::toml_file::SourceFile;
use netio::stop::Stop;
use record::Baseline;
use record::bed::Bed;
use record::{Direction, Metric, Statistic};
use record::{Run, RunOutcome};

const SCENARIO: &str = include_str!("baseline.toml");

/// Measures the baseline, which takes about 2 s. Returns `None` if the test bed includes another
/// machine.
///
/// # Errors
/// Fails if the program's own scenario cannot be read.
pub(crate) fn measure(set_up: &SetUp<'_>, plan: &Plan, stop: &Stop) -> Result<Option<Baseline>> {
    let Some(first) = plan.cases.first() else {
        return Ok(None);
    };
    let Some(bed) = first.bed.bare() else {
        return Ok(None);
    };
    let case = case_in(bed, first)?;
    let planned = PlannedRun {
        case: &case,
        repeat: 1,
        seed: plan.seed,
    };
    let run = runner::run_once(set_up, RunObserver::NOBODY, None, &planned, stop);
    Ok(Some(baseline_of(&case.bed, &run)))
}

/// Returns the case of a direct path in `bed`, with the congestion control of `first`.
fn case_in(bed: Bed, first: &Case) -> Result<Case> {
    let source = SourceFile {
        file: "baseline.toml",
        text: SCENARIO,
        also: NamedFiles::OWN,
    };
    let own = scenario::parse(source, false)?;
    let case = own.cases.into_iter().next().context("no case")?;
    Ok(Case {
        congestion: first.congestion.clone(),
        bed,
        ..case
    })
}

fn baseline_of(bed: &Bed, run: &Run) -> Baseline {
    let figure = |instrument: &str, metric, statistic, direction: Option<Direction>| {
        let figures = &run.measured(instrument)?.measurement.figures;
        let mut found = figures.iter().filter(|f| f.stream.is_none());
        found
            .find(|f| (f.metric, f.statistic, f.direction) == (metric, statistic, direction))
            .map(|figure| figure.value)
    };
    let up = Some(Direction::Up);
    let total = |metric| figure("udp", metric, Statistic::Total, up);
    let packets = total(Metric::ReceivedPackets).zip(total(Metric::ElapsedS));
    let pacing = |statistic| figure("paced", Metric::PacingErrorUs, statistic, up);
    Baseline {
        host: None,
        started_at: run.started_at.clone(),
        mtu: bed.mtu().unwrap_or_default(),
        offloads: bed.offloads().unwrap_or_default(),
        tcp_bit_per_s: figure("tcp", Metric::GoodputBitPerS, Statistic::Mean, up),
        udp_bit_per_s: figure("udp", Metric::L3RateBitPerS, Statistic::Mean, up),
        udp_packets_per_s: packets.map(|(packets, seconds)| packets / seconds),
        pacing_error_us: pacing(Statistic::Median),
        pacing_error_p99_us: pacing(Statistic::P99),
        timer_floor_us: wake_up_latency_us(run),
        rtt_floor_ms: figure("ping", Metric::RttMs, Statistic::Median, None),
        failure: match &run.outcome {
            // The load exceeds the emulator's capacity on purpose, so its losses are not a fault
            // here.
            RunOutcome::Ok | RunOutcome::Invalid { .. } => None,
            RunOutcome::Failed { cause } => Some(cause.clone()),
        },
    }
}

fn wake_up_latency_us(run: &Run) -> Option<f64> {
    let link = run.links.first()?;
    Some(link.summary.wake_up_latency_ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::LinkSpec;

    fn plan() -> Plan {
        let record = crate::experiment::small_record();
        instruments::measure::read_plan(record.plan()).unwrap()
    }

    #[test]
    fn the_baseline_has_the_bed_and_congestion_control_of_the_experiment_without_conditions() {
        let mut first = plan().cases.remove(0);
        let text = "kind = 'netns'\nmtu = 9000\nwire = { delay = '1ms' }\ntbf = '1mbit'";
        first.bed = toml::from_str(text).unwrap();
        first.congestion = "reno".to_owned();
        let case = case_in(first.bed.bare().unwrap(), &first).unwrap();
        assert_eq!(case.bed.mtu(), Some(9000));
        assert_eq!(case.congestion.as_str(), "reno");
        let bare: Bed = toml::from_str("kind = 'netns'\nmtu = 9000").unwrap();
        assert!(crate::experiment::run_times::estimate(&case) < std::time::Duration::from_secs(3));
        assert_eq!((case.bed, case.link), (bare, LinkSpec::default()));
    }
}
