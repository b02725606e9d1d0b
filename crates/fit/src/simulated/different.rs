//! Links that differ from the path in one parameter.

use super::*;

/// The time for which the idle path is probed for a comparison, so that a difference of a fifth in losses is no chance.
const COMPARED_S: f64 = 300.0;

/// Returns what a comparison needs of a measurement, with loads of `rate` in bit/s.
fn measured(conditions: &str, rate: f64) -> Measurement {
    let mut path = Path::new(conditions);
    let mut measurement = Measurement::default();
    let (idle, _) = path.session([0.0, COMPARED_S], None);
    add(&mut measurement, &idle, Phase::Idle);
    for (way, phase) in DIRECTIONS
        .into_iter()
        .zip([Phase::LoadedUp, Phase::LoadedDown])
    {
        let loaded = path.loaded(way, Intensity::Strong, plan::strong(rate), 3.0);
        add(&mut measurement, &loaded.probes, phase);
        let goodput = loaded.load.received();
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, goodput);
        measurement.figures.push(goodput.toward(way).during(phase));
    }
    measurement
}

/// Adds a session of probes to a measurement, as `farwire measure quality` reports it.
fn add(measurement: &mut Measurement, session: &ProbeSession, phase: Phase) {
    let numbered = (1..).zip(&session.probes);
    let samples = numbered.map(|(index, probe)| {
        let (metric, value) = match probe.rtt_ms {
            Some(rtt) => (Metric::RttMs, rtt),
            None => (Metric::LostPackets, 1.0),
        };
        Sample {
            phase: Some(phase),
            direction: probe.lost,
            ..Sample::new(probe.at_s, metric, index, value)
        }
    });
    measurement.samples.extend(samples);
    for (way, losses) in DIRECTIONS.into_iter().zip(session.losses) {
        let figure = Figure::new(Metric::LostPercent, Statistic::Mean, 0.0);
        measurement.figures.push(Figure {
            losses,
            ..figure.toward(way).during(phase)
        });
    }
}

#[test]
fn a_link_with_one_parameter_wrong_by_a_fifth_is_reported_as_different() {
    const LINKS: u64 = 10;
    const PARAMETERS: [&str; 4] = ["rate", "delay", "queue", "loss"];
    let mut random = fastrand::Rng::with_seed(20);
    let (mut found, mut alarms) = ([0; PARAMETERS.len()], 0);
    for seed in 1..=LINKS {
        let mbit = 1.0 + 9.0 * random.f64();
        let truth = [
            mbit,
            10.0 + 90.0 * random.f64(),
            150.0 + 250.0 * random.f64(),
            3.0,
        ];
        let text = |[rate, delay, queue, loss]: [f64; 4], seed| {
            format!(
                "seed = {seed}\nrate = '{:.0}kbit'\ndelay = '{delay:.3}ms'\nqueue = '{queue:.2}ms'\nloss = '{loss:.3}%'",
                1e3 * rate
            )
        };
        let path = measured(&text(truth, seed), 1e6 * mbit);
        let compared = |parameters, seed| {
            Comparison::of(&path, &measured(&text(parameters, seed), 1e6 * mbit)).different
        };
        let unchanged = compared(truth, seed + LINKS);
        alarms += u32::from(!unchanged.is_empty());
        for (at, found) in found.iter_mut().enumerate() {
            let mut wrong = truth;
            wrong[at] *= 1.2;
            *found += u32::from(!compared(wrong, seed + 2 * LINKS).is_empty());
        }
    }
    for (parameter, found) in PARAMETERS.into_iter().zip(found) {
        assert!(found >= 9, "{parameter}: {found} of {LINKS}");
    }
    assert!(alarms <= 1, "{alarms} of {LINKS} right links are reported");
}
