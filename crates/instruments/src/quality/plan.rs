//! The phases of the measurement: their loads, their probes and their times.

use std::time::Duration;

use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};
use crate::instrument::{ROUND_TRIPS, SOCKETS, interval, seconds};
use crate::iperf3::plan::{Iperf3Test, MOST_STREAMS, TestDirection};
use crate::round_trip::{self, LossTimeout};
use crate::stamp::load::Load;
use crate::stamp::loaded_latency::LoadTimes;
use crate::stamp::{EXTENDED_SIZE, ProbePlan};
use record::Phase;

/// The loads and the probes
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(super) struct QualityPlan {
    /// Time of all phases together: 30s, or a number of seconds
    #[arg(short, long, value_name = "TIME", default_value = "20s", value_parser = time)]
    time: Nanos,
    /// TCP streams of the load in each direction
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_STREAMS)))]
    parallel: u32,
    /// Time between probes: 50ms, or a number of seconds; a probe has 146 bytes in each direction
    #[arg(short, long, value_name = "TIME", default_value = "20ms", value_parser = interval)]
    interval: Nanos,
    /// TCP congestion control of the loads [default: that of each end]
    #[arg(short = 'C', long, value_name = "NAME", help_heading = SOCKETS)]
    pub(super) congestion: Option<String>,
}

/// The shortest time of all phases on a short path, in which each phase under load has a second for probes.
const SHORTEST: Nanos = Nanos::from_secs(14);
/// The longest time of all phases.
const LONGEST: Nanos = Nanos::from_secs(3600);

impl QualityPlan {
    /// Returns the time of all phases on a short path.
    pub(super) fn time(&self) -> Duration {
        self.time.into()
    }
}

/// The phases under load in their order, each with the direction of its load.
pub(super) const LOADED: [(Phase, TestDirection); 3] = [
    (Phase::LoadedDown, TestDirection::Down),
    (Phase::LoadedUp, TestDirection::Up),
    (Phase::LoadedBoth, TestDirection::Both),
];
/// The part of the time that the idle phase takes.
const IDLE_SHARE: u32 = 8;
/// The time after which a probe beside a load is lost on a short path. It is longer than the queues of a bloated path in
/// both directions together.
const LOADED_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two readings of the load's kernel state.
const READING_INTERVAL: Duration = Duration::from_millis(500);

/// The probes and loads of all phases.
#[derive(Clone, Debug)]
pub(super) struct PhasePlan {
    /// The time between two probes.
    interval: Nanos,
    /// The time in which the idle path is probed.
    idle: Duration,
    /// The time in which the path is probed beside each load.
    pub(super) loaded: Duration,
    /// The round-trip time of the idle path; 0 until it is known.
    round_trip: Duration,
    parallel: u32,
    congestion: Option<String>,
}

impl PhasePlan {
    /// Divides the time of `plan` among the phases.
    pub(super) fn of(plan: &QualityPlan) -> Self {
        let time = plan.time();
        let idle = time / IDLE_SHARE;
        let without_probes = LoadTimes::of(Duration::ZERO, Duration::ZERO).lasting;
        Self {
            interval: plan.interval,
            idle,
            loaded: ((time - idle) / loaded_phases()).saturating_sub(without_probes),
            round_trip: Duration::ZERO,
            parallel: plan.parallel,
            congestion: plan.congestion.clone(),
        }
    }

    /// Returns the plan for a path whose idle round trip takes this time, in milliseconds.
    pub(super) fn on_path(&self, round_trip_ms: f64) -> Self {
        Self {
            round_trip: round_trip::milliseconds(round_trip_ms),
            ..self.clone()
        }
    }

    /// Checks that this end may use the congestion control, if the plan names one.
    ///
    /// # Errors
    /// Returns an error that lists the names that may be used.
    pub(super) fn check(&self) -> Result<()> {
        self.load(TestDirection::Both).check()
    }

    /// Returns the probes on the idle path.
    pub(super) fn idle_probes(&self) -> ProbePlan {
        self.probes(self.idle, None)
    }

    /// Returns the probes beside each load.
    pub(super) fn loaded_probes(&self) -> ProbePlan {
        let mut timeout = LossTimeout::new(None, LOADED_TIMEOUT);
        timeout.add(self.round_trip);
        self.probes(self.loaded, Some(timeout.time().into()))
    }

    /// Returns the probes of a phase in which the path is probed for `lasting`.
    fn probes(&self, lasting: Duration, timeout: Option<Nanos>) -> ProbePlan {
        let interval = Duration::from(self.interval).as_nanos().max(1);
        let count = lasting.as_nanos() / interval;
        ProbePlan {
            size: EXTENDED_SIZE,
            // The bounds of the time and of the interval's grammar allow more probes than anybody needs.
            count: u32::try_from(count).unwrap_or(u32::MAX).clamp(1, 1_000_000),
            interval: self.interval,
            train: 1,
            timeout,
            dscp: None,
        }
    }

    /// Returns the times of the load of each phase.
    pub(super) fn load_times(&self) -> LoadTimes {
        LoadTimes::of(self.loaded, self.round_trip)
    }

    /// Returns the number of the path's round trips that the phases may take in addition.
    pub(super) fn round_trips(&self) -> u32 {
        let loads = LOADED.into_iter();
        let of_loads = loads.map(|(_, direction)| self.test(direction).round_trips());
        ROUND_TRIPS + of_loads.sum::<u32>()
    }

    fn load(&self, direction: TestDirection) -> Load {
        Load::tcp(self.parallel, direction, self.congestion.clone())
    }

    /// Returns the load as a test whose warm-up is not in its figures.
    pub(super) fn test(&self, direction: TestDirection) -> Iperf3Test {
        Iperf3Test {
            omit: self.load_times().warm_up,
            interval: READING_INTERVAL,
            ..self.load(direction).plan()
        }
    }
}

/// Returns the number of phases under load.
fn loaded_phases() -> u32 {
    u32::try_from(LOADED.len()).unwrap_or(u32::MAX)
}

/// Returns the name of a phase for people.
pub(super) fn in_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Loaded => "under load",
        Phase::LoadedDown => "load down",
        Phase::LoadedUp => "load up",
        Phase::LoadedBoth => "load both ways",
    }
}

/// Parses the time of all phases.
fn time(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    ensure!(
        Input,
        (SHORTEST..=LONGEST).contains(&time),
        "must be from {SHORTEST} to {LONGEST}"
    );
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_beside_a_load_waits_for_the_queues_and_for_a_long_path() {
        let plan = PhasePlan {
            interval: Nanos::from_millis(20),
            idle: Duration::from_secs(2),
            loaded: Duration::from_secs(3),
            round_trip: Duration::ZERO,
            parallel: 1,
            congestion: None,
        };
        let timeout = |plan: PhasePlan| plan.loaded_probes().timeout;
        assert_eq!(timeout(plan.on_path(20.0)), Some(Nanos::from_secs(5)));
        assert_eq!(timeout(plan.on_path(2_600.0)), Some(Nanos::from_secs(16)));
        assert_eq!(timeout(plan.on_path(f64::NAN)), Some(Nanos::from_secs(5)));
        assert_eq!(plan.idle_probes().timeout, None);
    }

    #[test]
    fn on_a_long_path_the_load_has_a_longer_start_which_is_not_in_its_figures() {
        let plan = QualityPlan {
            time: Nanos::from_secs(20),
            parallel: 8,
            interval: Nanos::from_millis(20),
            congestion: None,
        };
        let plan = PhasePlan::of(&plan);
        let [short, long] = [20.0, 600.0].map(|rtt| plan.on_path(rtt));
        let omitted = |plan: &PhasePlan| plan.test(TestDirection::Down).omit;
        assert_eq!(omitted(&short), Duration::from_secs(2));
        assert_eq!(omitted(&long), Duration::from_secs(5));
        // The number of probes is the same.
        assert_eq!(short.loaded_probes().count, long.loaded_probes().count);
        let [short, long] = [short, long].map(|plan| plan.load_times().lasting);
        assert_eq!(long - short, Duration::from_secs(4));
        // Eight streams up, eight down, and sixteen in both directions.
        assert_eq!(plan.round_trips(), 4 * 20 + 32);
    }

    #[test]
    fn the_time_leaves_a_second_for_the_probes_of_each_phase() {
        assert_eq!(time("20").unwrap(), Nanos::from_secs(20));
        let error = time("5s").unwrap_err().to_string();
        assert_eq!(error, "must be from 14s to 3600s");
    }
}
