//! The measurement of a path: probes on the idle path, the search for the rates, and probes beside loads.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use conditions::Direction;
use fit::plan::{self, FitTimes, SEARCH_RATES};
use fit::{
    Burst, Estimate, Intensity, LoadedSession, LossFit, PathObservations, ProbeSession,
    TrafficRate,
};
use instruments::Session;
use instruments::endpoint::{self, Family};
use instruments::failure::{Blame, Failure};
use instruments::measure::{FarEnd, InstrumentArgs, Kind, Parameters};
use record::{Figure, Measurement, Metric, Statistic};
use serde_json::{Value, json};
use stats::layers::ip_header;
use stats::order_statistics::{quantile, sorted};

use crate::notes::note;

/// The UDP ports at which a far end reflects probes: the standard one, and that of an ordinary user.
const STAMP_PORTS: [u16; 2] = [862, 8620];
/// The TCP port of a far end's web server.
const HTTP_PORT: u16 = 8080;
/// The payload of a probe in bytes.
const PROBE_BYTES: u32 = 104;
/// The payload of a datagram of a load in bytes, which fits the MTU of most paths.
const LOAD_BYTES: u32 = 1400;
/// The headers of Ethernet and UDP in bytes.
const HEADERS: u32 = 14 + 8;
/// The time between two probes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The time for which a probe beside a strong load is awaited, in addition to two round trips.
const PATIENCE_MS: f64 = 2500.0;
/// The part of the time around a load that passes before it begins.
const BEFORE_LOAD: f64 = 0.6;
/// The part of the budget that the search for the rates may use.
const SEARCH_PART: f64 = 0.25;
/// The least time of a load: one second is left out of its rate.
const LEAST_LOAD_S: f64 = 2.0;
/// The time of the measurement that is compared with the fitted link.
const LEAST_PROOF_S: f64 = 14.0;
/// The part of that time in which each of its three loads runs, and the number of directions of all three loads, by
/// direction.
const PROOF_LOADS: (f64, f64) = (0.3, 2.0);

/// The path to a far end.
pub(super) struct Path<'a> {
    far_end: FarEnd,
    stamp_port: u16,
    session: &'a Session,
    directions: Vec<Direction>,
}

/// The result of the measurement.
pub(super) struct Measured {
    /// The observations to fit.
    pub(super) observed: PathObservations,
    /// The measurement that is held out, or the reason why there is none.
    pub(super) held_out: Result<Measurement, String>,
    /// The time of the held-out measurement in seconds.
    pub(super) held_out_s: f64,
    /// What the measurement could not learn, each with its reason.
    pub(super) lacks: Vec<String>,
}

/// What the user allows.
pub(super) struct Limits {
    /// The time of the measurement that is fitted, in seconds.
    pub(super) time_s: f64,
    /// The payload that all loads together may send, in bytes.
    pub(super) budget: f64,
    /// Whether to measure once more for the comparison.
    pub(super) with_proof: bool,
}

impl Limits {
    /// Returns the time of the held-out measurement in seconds.
    pub(super) fn proof_s(&self) -> f64 {
        (self.time_s / 3.0).max(LEAST_PROOF_S)
    }
}

/// The rate of a direction, as the search found it.
struct FoundRate {
    direction: Direction,
    /// In bit/s of L2 bytes.
    rate: f64,
}

impl<'a> Path<'a> {
    /// Finds the far end.
    ///
    /// # Errors
    /// The name does not resolve, or no far end of farwire answers there.
    pub(super) fn find(host: &str, session: &'a Session) -> Result<Self, Failure> {
        let address = endpoint::resolve(host, STAMP_PORTS[0], Family::Any).or_bad_input()?;
        let mut path = Self {
            far_end: FarEnd {
                address: address.ip(),
                http: HTTP_PORT,
            },
            stamp_port: 0,
            session,
            directions: vec![Direction::Down, Direction::Up],
        };
        for port in STAMP_PORTS {
            path.stamp_port = port;
            let few = path.probe(5, 1000.0)?;
            if few.failure.is_none() {
                return Ok(path);
            }
        }
        Err(Failure::from(anyhow::anyhow!(
            "{host} answers no probes at the UDP ports 862 and 8620: start `farwire serve` there"
        )))
    }

    /// Measures the path within `limits`.
    ///
    /// # Errors
    /// An instrument failed, or the budget is too small for the path.
    pub(super) fn measure(&self, limits: &Limits) -> Result<Measured, Failure> {
        let times = FitTimes::of(limits.time_s);
        note("farwire: fit: probes on the idle path");
        let idle = self.idle(times.idle_s)?;
        let round_trip_ms = idle_round_trip(&idle)?;
        let mut observed = PathObservations {
            idle,
            ..PathObservations::default()
        };
        let mut lacks = Vec::new();
        let mut sent = 0.0;
        let mut rates = Vec::new();
        for way in &self.directions {
            let most = sent + SEARCH_PART / 2.0 * limits.budget;
            let found = self.search(*way, round_trip_ms, &mut observed, &mut sent, most)?;
            match found {
                Ok(rate) => rates.push(FoundRate {
                    direction: *way,
                    rate,
                }),
                Err(lack) => lacks.push(lack),
            }
        }
        let proof_s = limits.proof_s();
        let spends = Spending::of(&rates, times, limits, sent)?;
        note(format_args!("farwire: fit: {spends}"));
        for found in &rates {
            self.loads(found, spends.times, round_trip_ms, &mut observed)?;
        }
        let held_out = match (limits.with_proof, spends.with_proof) {
            (true, true) => {
                note("farwire: fit: the measurement that is held out for the comparison");
                self.instrument("quality", json!({ "time": format!("{proof_s:.0}s") }))?
                    .measure(self.session)
                    .map(|found| Ok(found.measurement))?
            }
            (true, false) => Err("the budget does not allow a second measurement".to_owned()),
            (false, _) => Err("--no-proof leaves it out".to_owned()),
        };
        let held_out = held_out.and_then(|found| match &found.failure {
            Some(cause) => Err(cause.clone()),
            None => Ok(found),
        });
        Ok(Measured {
            observed,
            held_out,
            held_out_s: proof_s,
            lacks,
        })
    }

    /// Probes the idle path.
    fn idle(&self, lasts_s: f64) -> Result<ProbeSession, Failure> {
        let measurement = self.probe(probes_in(lasts_s), PATIENCE_MS)?;
        if let Some(cause) = &measurement.failure {
            return Err(Failure::from(anyhow::anyhow!("probes on the idle path: {cause}")));
        }
        Ok(ProbeSession::of(&measurement, None, self.wire(PROBE_BYTES)))
    }

    /// Sends datagrams at rising rates until the path carries less than was sent. Returns the rate that it carried. The
    /// inner error is the reason why there is none.
    fn search(
        &self,
        way: Direction,
        round_trip_ms: f64,
        observed: &mut PathObservations,
        sent: &mut f64,
        most: f64,
    ) -> Result<Result<f64, String>, Failure> {
        let random = LossFit::of(&observed.idle, way);
        let lasts_s = plan::search_s(round_trip_ms);
        let mut carried = 0.0;
        for rate in SEARCH_RATES {
            let bytes = rate * lasts_s / 8.0;
            if *sent + bytes > most {
                break;
            }
            *sent += bytes;
            let measurement = self.load(way, rate, lasts_s, 0)?;
            let Some(found) = self.traffic(&measurement, way)? else {
                let cause = measurement.failure.as_deref().unwrap_or("nothing arrived");
                return Ok(Err(format!("the rate {}: {cause}", way.name())));
            };
            carried = found.received.value;
            if plan::is_full(found.sent, carried, &random) {
                let bytes = total(&measurement, Metric::ReceivedBytes, way).unwrap_or_default();
                let bytes = bytes * f64::from(found.wire_bytes) / f64::from(LOAD_BYTES);
                observed.bursts.push(Burst {
                    direction: way,
                    bytes,
                    seconds: 8.0 * bytes / carried,
                });
                return Ok(Ok(carried));
            }
        }
        Ok(Err(format!(
            "the rate {} is above {:.0} Mbit/s, which the budget allows to send",
            way.name(),
            carried / 1e6
        )))
    }

    /// Probes beside a strong and a gentle load.
    fn loads(
        &self,
        found: &FoundRate,
        times: FitTimes,
        round_trip_ms: f64,
        observed: &mut PathObservations,
    ) -> Result<(), Failure> {
        let way = found.direction;
        let random = LossFit::of(&observed.idle, way);
        let passes = (1.0 - random.percent.value / 100.0).max(0.1);
        let strong = LoadPlan {
            direction: way,
            intensity: Intensity::Strong,
            rate: plan::strong(found.rate / passes),
            lasts_s: times.strong_s,
            round_trip_ms,
            patience_ms: PATIENCE_MS,
        };
        let strong = self.loaded(&strong)?;
        let longest = strong.probes.probes.iter().filter_map(|probe| probe.rtt_ms);
        let longest = longest.fold(round_trip_ms, f64::max);
        let served = strong.load.received.value / passes;
        let gentle = LoadPlan {
            direction: way,
            intensity: Intensity::Gentle,
            rate: plan::gentle(served, strong.load.wire_bytes),
            lasts_s: times.gentle_s,
            round_trip_ms,
            patience_ms: 1.3 * longest + 200.0,
        };
        observed.loaded.push(strong);
        observed.loaded.push(self.loaded(&gentle)?);
        Ok(())
    }

    /// Probes beside a load.
    fn loaded(&self, load: &LoadPlan) -> Result<LoadedSession, Failure> {
        let way = load.direction;
        note(format_args!(
            "farwire: fit: {:.2} Mbit/s {} for {:.1} s, probed",
            load.rate / 1e6,
            way.name(),
            load.lasts_s
        ));
        // Connecting takes some round trips before the load, and exchanging results some after it.
        let around_s = 0.5 + 8e-3 * load.round_trip_ms;
        let count = probes_in(load.lasts_s + around_s);
        let patience_ms = load.patience_ms + 2.0 * load.round_trip_ms;
        let probing = || self.probe(count, patience_ms);
        let (probed, from_s, loaded) = thread::scope(|scope| {
            let probing = scope.spawn(probing);
            let begun = Instant::now();
            let loaded = self.load(way, load.rate, load.lasts_s, 1);
            let around_s = (begun.elapsed().as_secs_f64() - load.lasts_s).max(0.0);
            let joined = probing.join();
            let probed = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (probed, BEFORE_LOAD * around_s, loaded)
        });
        let (probed, loaded) = (probed?, loaded?);
        let traffic = self.traffic(&loaded, way)?;
        let traffic = traffic.with_context(|| {
            let cause = loaded.failure.as_deref().unwrap_or("nothing arrived");
            format!("the load {}: {cause}", way.name())
        })?;
        Ok(LoadedSession {
            direction: way,
            intensity: load.intensity,
            probes: ProbeSession::of(&probed, None, self.wire(PROBE_BYTES)),
            from_s,
            until_s: from_s + load.lasts_s,
            omitted_s: 1.0,
            load: traffic,
        })
    }

    /// Runs a session of probes.
    fn probe(&self, count: u32, timeout_ms: f64) -> Result<Measurement, Failure> {
        let options = json!({
            "port": self.stamp_port,
            "count": count,
            "interval": format!("{}ms", INTERVAL.as_millis()),
            "size": PROBE_BYTES,
            "timeout": format!("{timeout_ms:.0}ms"),
        });
        let probe = self.instrument("probe", options)?;
        Ok(probe.measure(self.session)?.measurement)
    }

    /// Sends datagrams at this rate in L2 bit/s for a time, the first `omitted` seconds of which do not count.
    fn load(&self, way: Direction, rate: f64, lasts_s: f64, omitted: u32) -> Result<Measurement, Failure> {
        let payload = rate * f64::from(LOAD_BYTES) / f64::from(self.wire(LOAD_BYTES));
        let counted_ms = 1e3 * (lasts_s - f64::from(omitted)).max(0.1);
        let options = json!({
            "bitrate": format!("{payload:.0}"),
            "length": LOAD_BYTES,
            "time": format!("{counted_ms:.0}ms"),
            "omit": omitted.to_string(),
            "reverse": way == Direction::Down,
        });
        let load = self.instrument("udp", options)?;
        Ok(load.measure(self.session)?.measurement)
    }

    /// Returns what a load sent and what arrived of it, at L2; `None` if nothing arrived.
    fn traffic(&self, measurement: &Measurement, way: Direction) -> Result<Option<TrafficRate>> {
        if let Some(cause) = self.session.stop.cause() {
            bail!("{cause}");
        }
        let wire_bytes = self.wire(LOAD_BYTES);
        let at_l2 = |goodput: f64| goodput * f64::from(wire_bytes) / f64::from(LOAD_BYTES);
        let received = figure(measurement, Metric::GoodputBitPerS, Statistic::Mean, way);
        let sent = figure(measurement, Metric::SentRateBitPerS, Statistic::Mean, way);
        let Some((received, sent)) = received.zip(sent) else {
            return Ok(None);
        };
        let interval = received.interval.unwrap_or([received.value; 2]).map(at_l2);
        Ok(Some(TrafficRate {
            wire_bytes,
            sent: at_l2(sent.value),
            received: Estimate::new(at_l2(received.value), interval),
        }))
    }

    fn instrument(&self, kind: &str, options: Value) -> Result<InstrumentArgs> {
        let kind = Kind::all().find(|one| one.name() == kind);
        let kind = kind.context("an unknown instrument")?;
        let parameters: Parameters = serde_json::from_value(options)?;
        let found = kind.with(&parameters)?;
        Ok(found.toward(&self.far_end, "cubic"))
    }

    /// Returns the L2 bytes of a datagram with this payload, without FCS.
    fn wire(&self, payload: u32) -> u32 {
        payload + HEADERS + ip_header(matches!(self.far_end.address, IpAddr::V6(_)))
    }
}

/// A load beside which the path is probed.
struct LoadPlan {
    direction: Direction,
    intensity: Intensity,
    /// In bit/s of L2 bytes.
    rate: f64,
    lasts_s: f64,
    round_trip_ms: f64,
    /// The time for which a probe is awaited, in addition to two round trips.
    patience_ms: f64,
}

/// What the loads send, after the search for the rates.
struct Spending {
    times: FitTimes,
    with_proof: bool,
    bytes: f64,
}

impl Spending {
    /// Shortens the loads so that they fit the budget.
    ///
    /// # Errors
    /// The shortest loads exceed the budget.
    fn of(rates: &[FoundRate], times: FitTimes, limits: &Limits, sent: f64) -> Result<Self> {
        let all: f64 = rates.iter().map(|found| found.rate).sum();
        let (part, directions) = PROOF_LOADS;
        let proof = match limits.with_proof {
            true => part * directions * limits.proof_s() * all / 8.0,
            false => 0.0,
        };
        let whole = times.bytes(all);
        let least = LEAST_LOAD_S / times.strong_s.min(times.gentle_s);
        let share = |proof: f64| ((limits.budget - sent - proof) / whole.max(1.0)).min(1.0);
        let (share, proof) = match share(proof) {
            enough if enough >= least.min(1.0) => (enough, proof),
            _ => (share(0.0), 0.0),
        };
        ensure!(
            share >= least.min(1.0),
            "the path carries {:.0} Mbit/s in both directions together, so that the shortest loads send {:.0} MB: raise --budget",
            all / 1e6,
            (sent + least * whole) / 1e6
        );
        Ok(Self {
            times: times.with_loads(share),
            with_proof: proof > 0.0 || (all == 0.0 && limits.with_proof),
            bytes: sent + share * whole + proof,
        })
    }
}

impl std::fmt::Display for Spending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "all loads together send about {:.0} MB", self.bytes / 1e6)
    }
}

/// Returns the number of probes in this number of seconds.
fn probes_in(seconds: f64) -> u32 {
    let count = Duration::from_secs_f64(seconds).as_millis() / INTERVAL.as_millis();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Returns the median round trip of the idle path in milliseconds.
fn idle_round_trip(idle: &ProbeSession) -> Result<f64> {
    let all: Vec<f64> = idle.probes.iter().filter_map(|probe| probe.rtt_ms).collect();
    quantile(&sorted(&all), 0.5).context("no probe on the idle path was answered")
}

/// Returns the figure over all streams in this direction.
fn figure(
    measurement: &Measurement,
    metric: Metric,
    statistic: Statistic,
    way: Direction,
) -> Option<&Figure> {
    let mut figures = measurement.figures.iter();
    figures.find(|one| {
        (one.metric, one.statistic, one.direction, one.stream) == (metric, statistic, Some(way), None)
    })
}

fn total(measurement: &Measurement, metric: Metric, way: Direction) -> Option<f64> {
    figure(measurement, metric, Statistic::Total, way).map(|figure| figure.value)
}
