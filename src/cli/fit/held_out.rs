//! The measurement that is held out for the comparison: probes on the idle path, trains of packets if its rate varies, then TCP
//! loads if the far end allows them. It runs over the path and, in a test bed, through the link. Of files, it is the last part
//! of their probes.

use std::time::Duration;

use record::{Measurement, Phase, Sample};

use super::trains::TrainPlan;

/// The reason why nothing is held out if the user wants no comparison.
pub(super) const NO_PROOF: &str = "--no-proof leaves the comparison out";

/// The instruments of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeldOutPlan {
    /// The instrument of the idle path: `probe` or `ping`.
    pub(super) idle: &'static str,
    /// The number of its packets.
    pub(super) count: u32,
    /// The time between two of them.
    pub(super) interval: Duration,
    /// The payload of each in bytes.
    pub(super) size: u32,
    /// The trains of packets on the idle path, if there are some.
    pub(super) trains: Option<TrainPlan>,
    /// The seconds of `quality`, or the reason why there are no loads.
    pub(super) loads_s: Result<f64, String>,
}

/// The measurement of the path.
pub(super) struct HeldOut {
    /// A text that says which packets are held out.
    pub(super) description: String,
    /// Its instruments.
    pub(super) plan: HeldOutPlan,
    /// Its result.
    pub(super) measurement: Measurement,
}

/// Joins the probes on the idle path with the arrivals of trains there, and with the loads of `quality`, whose own probes on
/// the idle path are fewer and left out.
pub(super) fn joined(
    mut idle: Measurement,
    trains: Option<(TrainPlan, Measurement)>,
    loaded: Option<Measurement>,
) -> Measurement {
    for sample in &mut idle.samples {
        sample.phase = Some(Phase::Idle);
    }
    for figure in &mut idle.figures {
        figure.phase = Some(Phase::Idle);
    }
    if let Some((plan, trains)) = trains {
        append(&mut idle.samples, plan.samples(trains));
    }
    let Some(loaded) = loaded else {
        return idle;
    };
    let samples = loaded.samples.into_iter();
    let samples = samples.filter(|sample| sample.phase != Some(Phase::Idle));
    append(&mut idle.samples, samples);
    let figures = loaded.figures.into_iter();
    idle.figures
        .extend(figures.filter(|figure| figure.phase != Some(Phase::Idle)));
    idle.facts.extend(loaded.facts);
    idle.paces.extend(loaded.paces);
    idle
}

/// Appends samples whose times count from the last one of `samples`.
fn append(samples: &mut Vec<Sample>, later: impl IntoIterator<Item = Sample>) {
    let last_s = samples.last().map_or(0.0, |last| last.at_s);
    samples.extend(later.into_iter().map(|sample| Sample {
        at_s: last_s + sample.at_s,
        ..sample
    }));
}

#[cfg(test)]
mod tests {
    use record::{Figure, Metric, Statistic};

    use super::*;

    /// Returns a measurement with a round trip and its median in each of these phases.
    fn measured(phases: &[Option<Phase>], rtt_ms: f64) -> Measurement {
        let samples = (1_u64..).zip(phases).map(|(index, phase)| Sample {
            phase: *phase,
            ..Sample::new(index as f64, Metric::RttMs, index, rtt_ms)
        });
        let figures = phases.iter().map(|phase| Figure {
            phase: *phase,
            ..Figure::new(Metric::RttMs, Statistic::Median, rtt_ms)
        });
        Measurement {
            samples: samples.collect(),
            figures: figures.collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn the_longer_probes_take_the_place_of_the_idle_phase() {
        let idle = measured(&[None, None], 20.0);
        let loaded = measured(&[Some(Phase::Idle), Some(Phase::LoadedUp)], 30.0);
        let found = joined(idle, None, Some(loaded));
        let samples = found.samples.iter();
        let samples: Vec<_> = samples
            .map(|one| (one.phase, one.at_s, one.value))
            .collect();
        let expected = [
            (Some(Phase::Idle), 1.0, 20.0),
            (Some(Phase::Idle), 2.0, 20.0),
            (Some(Phase::LoadedUp), 4.0, 30.0),
        ];
        assert_eq!(samples, expected);
        let phases: Vec<_> = found.figures.iter().map(|one| one.phase).collect();
        assert_eq!(phases, expected.map(|(phase, ..)| phase));
    }

    #[test]
    fn without_loads_the_probes_are_the_idle_phase() {
        let found = joined(measured(&[None], 20.0), None, None);
        assert_eq!(found, measured(&[Some(Phase::Idle)], 20.0));
    }

    #[test]
    fn the_arrivals_of_trains_are_between_the_probes_and_the_loads() {
        let plan = TrainPlan::lasting(4.0, 20e6, 42);
        let mut trains = measured(&[None], 25.0);
        let arrival = Sample::new(3.0, Metric::InTrainMs, 1, 5.0);
        trains.samples.push(arrival);
        let loaded = measured(&[Some(Phase::LoadedUp)], 30.0);
        let found = joined(measured(&[None], 20.0), Some((plan, trains)), Some(loaded));
        let samples = found.samples.iter();
        let samples: Vec<_> = samples
            .map(|one| (one.phase, one.metric, one.at_s, one.value))
            .collect();
        let expected = [
            (Some(Phase::Idle), Metric::RttMs, 1.0, 20.0),
            (Some(Phase::Idle), Metric::InTrainMs, 4.0, 5.0),
            (Some(Phase::LoadedUp), Metric::RttMs, 5.0, 30.0),
        ];
        assert_eq!(samples, expected);
        assert_eq!(found.figures.len(), 2);
    }
}
