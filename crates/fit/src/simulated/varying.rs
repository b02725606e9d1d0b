//! Paths that vary: the link that was fitted to one, replayed in virtual time, beside the path itself. On light load it
//! is also compared with a plain replay of the saturated path in Mahimahi's format, with the least delay. Bursts on a
//! path that serves a light load in another way are also compared with the same link without that light load.

use std::sync::Arc;

use conditions::TraceSpec;
use stats::order_statistics::{quantile, sorted};
use stats::t_interval::mean;

use super::*;

/// The largest error of the replayed path, in percent.
const LARGEST_PERCENT: f64 = 10.0;
/// The factor by which the error of a plain replay on light load is larger at least.
const PLAIN_FACTOR: f64 = 3.0;
/// The least error of bursts through a link without the light load, in percent.
const LEAST_WITHOUT_PERCENT: f64 = 30.0;
/// The share of the full rate that a light load has.
const LIGHT_SHARE: f64 = 0.4;
/// The levels of the rate of a light load. Their number is odd, so that the median is within one of them.
const LIGHT_LEVELS: usize = 7;
/// The time between two trains of the comparison, in seconds.
const BURSTS_EVERY_S: f64 = 0.2;
/// The rate of the load of the comparison, in bit/s.
const SATURATING: f64 = 40e6;

/// The conditions up, which do not vary.
const UP: &str = "delay = '20ms'\nrate = '20mbit'\nqueue = '100ms'";

/// The conditions down in each 100 ms, which begin again at their end.
struct VaryingPath {
    name: &'static str,
    /// The rates in Mbit/s.
    rates: Vec<f64>,
    /// The delays in milliseconds.
    delays: Vec<f64>,
    /// The rates of a light load in Mbit/s, for a path that serves the packets of a train in another way; otherwise
    /// empty.
    light: Vec<f64>,
    /// The other conditions down, a line each.
    others: &'static str,
    /// The time in seconds of a whole number of rounds, which the loads show after their first second.
    rounds_s: f64,
}

impl VaryingPath {
    /// Draws a path like a mobile network: its rate wanders by a factor of about two within a second, its delay has another
    /// level every five seconds, and its queue has a constant number of bytes.
    fn lte(random: &mut fastrand::Rng) -> Self {
        let kept = (-0.1_f64).exp();
        let mut score = 0.0;
        let rates = (0..200).map(|_| {
            score = kept * score + (1.0 - kept * kept).sqrt() * normal(random);
            (10.0 * (0.5 * score).exp()).clamp(1.0, 40.0)
        });
        let rates = rates.collect();
        let levels: Vec<f64> = (0..4).map(|_| 20.0 + 20.0 * random.f64()).collect();
        Self {
            name: "LTE-like",
            rates,
            delays: (0..200).map(|at| levels[at / 50]).collect(),
            light: Vec::new(),
            others: "queue = '192KiB'\njitter = '3ms'",
            rounds_s: 40.0,
        }
    }

    /// Draws a path like a network of satellites in low orbits: every 15 seconds, rate and delay have another level.
    fn leo(random: &mut fastrand::Rng) -> Self {
        let levels: Vec<[f64; 2]> = (0..4)
            .map(|_| [8.0 + 12.0 * random.f64(), 18.0 + 14.0 * random.f64()])
            .collect();
        let rates = (0..600).map(|at| levels[at / 150][0] * (0.85 + 0.3 * random.f64()));
        Self {
            name: "LEO-like",
            rates: rates.collect(),
            delays: (0..600).map(|at| levels[at / 150][1]).collect(),
            light: Vec::new(),
            others: "queue = '100ms'\njitter = '1ms'",
            rounds_s: 60.0,
        }
    }

    /// Draws a path like a cellular one: its full load is that of the mobile network, and a train of packets after
    /// silence has a part of that rate, which has another level every three seconds.
    fn cellular(random: &mut fastrand::Rng) -> Self {
        let path = Self::lte(random);
        let count = path.rates.len();
        let level = |at: usize| at * LIGHT_LEVELS / count;
        let rate = |at: usize| {
            let same = (0..count).filter(|other| level(*other) == level(at));
            let rates: Vec<f64> = same.map(|other| path.rates[other]).collect();
            LIGHT_SHARE * mean(&rates).unwrap()
        };
        let light = (0..count).map(rate).collect();
        Self {
            name: "cellular-like",
            light,
            others: "queue = '192KiB'",
            rounds_s: 60.0,
            ..path
        }
    }

    /// Returns the path as a file of conditions.
    fn conditions(&self) -> String {
        let trace = match self.light.is_empty() {
            true => self.one_trace(),
            false => self.two_traces(),
        };
        format!(
            "[up]\n{UP}\n[down]\ntrace = {{ file = 'path', {trace} }}\n{}",
            self.others
        )
    }

    /// Returns the content of a trace of rates and delays.
    fn one_trace(&self) -> String {
        let mut content = "t,rate,delay\\n".to_owned();
        let lines = self.rates.iter().zip(&self.delays).enumerate();
        for (at, (rate, delay)) in lines {
            content += &format!("{}ms,{:.0}kbit,{delay:.3}ms\\n", 100 * at, 1e3 * rate);
        }
        content += &format!("{}ms,,\\n", 100 * self.rates.len());
        format!("content = \"{content}\"")
    }

    /// Returns the content of a trace of rates, and that of a light load with the delays beside it.
    fn two_traces(&self) -> String {
        let (mut content, mut light) = ("t,rate\\n".to_owned(), String::new());
        for (at, rate) in self.rates.iter().enumerate() {
            content += &format!("{}ms,{:.0}kbit\\n", 100 * at, 1e3 * rate);
            let packet_ms = 8e-3 * f64::from(plan::TRAIN_WIRE_BYTES) / self.light[at];
            let deliveries =
                (0..plan::TRAIN).map(|place| format!(" {:.3}", packet_ms * f64::from(place)));
            let deliveries: String = deliveries.collect();
            light += &format!("{} {:.3}{deliveries}\\n", 100 * at, self.delays[at]);
        }
        let end = 100 * self.rates.len();
        content += &format!("{end}ms,\\n");
        light += &format!("{end} {:.3} 0\\n", self.delays[0]);
        format!("content = \"{content}\", light = 'light', light_content = \"{light}\"")
    }

    /// Returns for how many seconds to probe the path, so that a load shows whole rounds after its first second. A load
    /// begins before the probes and ends after them.
    fn probed_s(&self) -> f64 {
        let around_s: f64 = AROUND_S.iter().sum();
        self.rounds_s + 1.0 - around_s
    }
}

/// Returns a number with about a normal distribution.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// The effect of a path on packets.
#[derive(Debug)]
struct Behaviour {
    /// The rate of a saturating load in bit/s.
    rate: f64,
    /// The median and the 95th percentile of round trips in milliseconds, on the idle path and beside that load.
    idle_ms: [f64; 2],
    loaded_ms: [f64; 2],
}

impl Behaviour {
    /// Measures a path for this number of seconds, which are a whole number of its rounds.
    fn of(mut path: Path, rounds_s: f64) -> Self {
        let (idle, _) = path.session([0.0, rounds_s], None);
        let loaded = path.loaded(Direction::Down, Intensity::Strong, SATURATING, rounds_s);
        // The load has filled the queue after a second.
        let [first, count] = [1.0, rounds_s].map(|s| (s / READING_S).round() as usize);
        let rates = &loaded.arrivals.values[first..first + count];
        Self {
            rate: mean(rates).unwrap(),
            idle_ms: percentiles(&idle),
            loaded_ms: percentiles(&loaded.probes),
        }
    }
}

fn percentiles(session: &ProbeSession) -> [f64; 2] {
    let round_trips = sorted(&session.delays(None, [0.0, f64::INFINITY]));
    [0.5, 0.95].map(|share| quantile(&round_trips, share).unwrap())
}

/// Returns the larger error of both percentiles in percent.
fn error_percent(found: [f64; 2], truth: [f64; 2]) -> f64 {
    let errors = found.into_iter().zip(truth);
    let errors = errors.map(|(found, truth)| 100.0 * (found - truth).abs() / truth);
    errors.fold(0.0, f64::max)
}

/// Returns the path as Mahimahi replays it: the times at which the saturated path served a packet, and its least delay.
fn plain_replay(found: &LinkFit, idle: &ProbeSession) -> LinkSpec {
    let rates = found.down.bottleneck.as_ref().unwrap();
    let rates = rates.over_time.as_ref().unwrap();
    let mut content = "t,rate\n".to_owned();
    for (at, rate) in rates.values.iter().enumerate() {
        let at_s = rates.every_s * at as f64;
        content += &format!("{:.0}ms,{rate:.0}bit\n", 1e3 * at_s);
    }
    let delays = idle.delays(Some(Direction::Down), [0.0, f64::INFINITY]);
    let least_ms = delays.into_iter().fold(f64::INFINITY, f64::min);
    let mut trace = TraceSpec::named("saturated");
    trace.read(content.as_bytes()).unwrap();
    let served = trace.trace().unwrap().to_opportunities().unwrap();
    trace.set_trace(Arc::new(served));
    let text = format!("[up]\n{UP}\n[down]\ndelay = '{least_ms:.3}ms'");
    let mut link: LinkSpec = toml_text(&text).unwrap();
    link.down.at_first.set(trace);
    link
}

#[test]
fn a_link_fitted_to_a_path_that_varies_behaves_like_it() {
    let mut random = fastrand::Rng::with_seed(47);
    let paths = [VaryingPath::lte(&mut random), VaryingPath::leo(&mut random)];
    for path in paths {
        let VaryingPath { name, rounds_s, .. } = path;
        let original = path.conditions();
        let observed = Path::new(&original).observe(path.probed_s());
        let found = LinkFit::of(&observed);
        let varies = |way: Direction| {
            let fit = found.toward(way);
            let rate = fit.bottleneck.as_ref().map(|one| &one.over_time);
            let delay = fit.delay.as_ref().map(|one| &one.over_time);
            [rate, delay].map(|over_time| over_time.is_some_and(Option::is_some))
        };
        assert_eq!(varies(Direction::Up), [false; 2], "{name}");
        assert_eq!(varies(Direction::Down), [true; 2], "{name}");
        // Trains have the rate of the full load.
        assert_eq!(found.up.light, None, "{name}");
        let light = found.down.light.as_ref().unwrap();
        assert!(!light.is_different(), "{name}: {light:?}");
        let text = found.to_toml(&Origin::of_path("203.0.113.7", "2026-11-28"));
        assert_eq!(conditions::unfounded(&text), [], "{text}");
        let [truth, replayed] =
            [&original, &text].map(|text| Behaviour::of(Path::new(text), rounds_s));
        let mut plain = Path::of(&plain_replay(&found, &observed.idle));
        let (idle, _) = plain.session([0.0, rounds_s], None);
        let plain_ms = percentiles(&idle);
        let [light, of_plain] =
            [replayed.idle_ms, plain_ms].map(|found| error_percent(found, truth.idle_ms));
        let loaded = error_percent(replayed.loaded_ms, truth.loaded_ms);
        let rate = 100.0 * (replayed.rate - truth.rate).abs() / truth.rate;
        let errors = format!(
            "{name}: errors of the rate {rate:.1} %, of round trips beside a load {loaded:.1} %, on light load {light:.1} %, and \
             there {of_plain:.1} % with a plain replay\n{truth:?}\n{replayed:?}\n{plain_ms:?}\n{:?}",
            found.parameters()
        );
        assert!(rate.max(loaded).max(light) <= LARGEST_PERCENT, "{errors}");
        assert!(PLAIN_FACTOR * light < of_plain, "{errors}");
    }
}

/// Returns the median and the 95th percentile of the spread of trains down, in milliseconds.
fn bursts(text: &str, lasts_s: f64) -> [f64; 2] {
    let session = Path::new(text).trains(lasts_s, BURSTS_EVERY_S);
    let spreads = sorted(&session.spreads(Direction::Down));
    [0.5, 0.95].map(|share| quantile(&spreads, share).unwrap())
}

#[test]
fn a_link_fitted_to_a_path_with_a_light_load_serves_bursts_like_it() {
    let path = VaryingPath::cellular(&mut fastrand::Rng::with_seed(47));
    let original = path.conditions();
    let observed = Path::new(&original).observe(path.probed_s());
    let found = LinkFit::of(&observed);
    assert_eq!(found.up.light, None);
    let light = found.down.light.as_ref().unwrap();
    assert!(light.is_different(), "{light:?}");
    let mut without = found.clone();
    without.down.light = None;
    let origin = Origin::of_path("203.0.113.7", "2026-11-28");
    let (text, plain) = (found.to_toml(&origin), without.to_toml(&origin));
    assert_eq!(conditions::unfounded(&text), [], "{text}");
    let rounds_s = path.rounds_s;
    let [truth, replayed, plain] = [&original, &text, &plain].map(|text| bursts(text, rounds_s));
    let [of_link, of_plain] = [replayed, plain].map(|found| error_percent(found, truth));
    let [truth_ms, link_ms] = [&original, &text].map(|text| {
        let (idle, _) = Path::new(text).session([0.0, rounds_s], None);
        percentiles(&idle)
    });
    let of_idle = error_percent(link_ms, truth_ms);
    let errors = format!(
        "errors of bursts {of_link:.1} %, without the light load {of_plain:.1} %, of idle round trips {of_idle:.1} %\n\
         {truth:?}\n{replayed:?}\n{plain:?}\n{truth_ms:?}\n{link_ms:?}\n{:?}",
        found.parameters()
    );
    assert!(of_link.max(of_idle) <= LARGEST_PERCENT, "{errors}");
    assert!(of_plain > LEAST_WITHOUT_PERCENT, "{errors}");
}
