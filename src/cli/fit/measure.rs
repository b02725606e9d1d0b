//! The measurement of a path: probes on the idle path, the search for the rates, and loads with probes beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conditions::Direction;
use fit::plan::{self, NextLoad, SEARCH_RATES};
use fit::{LoadTraffic, LoadedSession, LossFit, PathObservations, ProbeSession};
use instruments::Session;
use instruments::endpoint::{self, Family};
use instruments::failure::{Blame, Failure};
use instruments::measure::{FarEnd, Kind, Parameters};
use instruments::stamp::load_around_probes;
use netio::tcp;
use record::{Measurement, Phase};
use serde_json::{Value, json};
use stats::layers::ip_header;
use stats::order_statistics::{percentile, sorted};

use super::held_out::{self, HeldOut, HeldOutPlan, NO_PROOF};
use crate::notes::note;

/// The UDP ports at which a far end reflects probes: the standard one, and that of an ordinary user.
const STAMP_PORTS: [u16; 2] = [862, 8620];
/// The TCP port of a far end's web server.
const HTTP_PORT: u16 = 8080;
/// The congestion control of the loads of the comparison, which must be the same on the path and through the link.
pub(super) const CONGESTION: &str = "cubic";
/// The payload of a probe in bytes, of UDP as well as of ICMP.
const PROBE_BYTES: u32 = 104;
/// The headers of Ethernet, and of UDP or ICMP, in bytes.
pub(super) const HEADERS: u32 = 14 + 8;
/// The L2 bytes that a datagram of a load usually has, until the far end has counted one.
const USUAL_DATAGRAM: u32 = 1490;
/// The time between two probes.
const INTERVAL: Duration = Duration::from_millis(10);
/// The number of probes that look for a reflector, so that a lossy path hardly ever loses all of them.
const FEW: u32 = 5;
/// The time for which a probe beside a strong load is awaited, which is longer than most queues.
const STRONG_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time for which a probe beside a gentle load is awaited, in milliseconds, and the factor of the longest round
/// trip beside the strong one.
const GENTLE_TIMEOUT: (f64, f64) = (1000.0, 1.5);
/// The longest time to connect to a far end's iperf3 server.
const CONNECT_TIMEOUT: &str = "10s";
/// The part of the budget that the search for the rates may use.
const SEARCH_PART: f64 = 0.25;
/// The reason why the held-out measurement has no loads if they exceed the budget.
const TOO_MUCH: &str = "the budget does not allow the loads of the comparison: raise --budget";
/// The part of the time for which the idle path is probed for the comparison. Losses need many probes to be compared.
const PROOF_IDLE_PART: f64 = 0.5;
/// The part of the time for which `quality` measures for the comparison, and the least time in seconds.
const PROOF_LOADED_TIME: (f64, f64) = (1.0 / 3.0, 14.0);
/// The part of that time for which each of its three loads lasts on a short path.
const PROOF_LOADED: f64 = 1.0 / 3.0 * 7.0 / 8.0;
/// The loads of `quality` in each direction, of three in total.
const PROOF_LOADS: f64 = 2.0;
/// The time for which a TCP load still occupies the path after its end, in round trips beside the load: its packets are in
/// flight, and about as many are in the sender's buffer.
const IN_FLIGHT_ROUND_TRIPS: f64 = 2.0;
/// The least value of that time in seconds, which counts until the round trips beside loads are known.
const USUAL_IN_FLIGHT_S: f64 = 1.0;
/// The share of idle round trips that the one which counts for the times of loads is not below.
const LONG_ROUND_TRIP: f64 = 0.95;

/// The path to a far end.
pub(super) struct Path<'a> {
    far_end: FarEnd,
    reflector: Reflector,
    session: &'a Session,
}

/// The service of a far end that answers probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reflector {
    /// A STAMP reflector at this UDP port.
    Stamp(u16),
    /// The kernel, which answers pings.
    Ping,
    /// Nothing answers.
    Absent,
}

/// The result of the measurement.
pub(super) struct Measured {
    /// The observations to fit.
    pub(super) observed: PathObservations,
    /// The measurement that is held out, or the reason why there is none.
    pub(super) held_out: Result<HeldOut, String>,
}

/// The limits that the user sets.
pub(super) struct Limits {
    /// The time of the measurement that is fitted, in seconds.
    pub(super) time_s: f64,
    /// The bytes that all loads together may send.
    pub(super) budget: f64,
    /// Whether to measure once more for the comparison.
    pub(super) with_proof: bool,
}

impl Limits {
    /// Returns for how many seconds the idle path is probed for the comparison.
    pub(super) fn proof_idle_s(&self) -> f64 {
        PROOF_IDLE_PART * self.time_s
    }

    /// Returns for how many seconds `quality` measures for the comparison, in whole seconds.
    pub(super) fn proof_loaded_s(&self) -> f64 {
        let (part, least_s) = PROOF_LOADED_TIME;
        (part * self.time_s).round().max(least_s)
    }

    /// Returns the time of the held-out measurement in seconds.
    pub(super) fn proof_s(&self) -> f64 {
        self.proof_idle_s() + self.proof_loaded_s()
    }

    /// Returns the bytes that the loads of the held-out measurement send at most. On a long path, they last longer by the same
    /// round trips as the loads that are fitted.
    fn proof_bytes(&self, costs: Costs) -> f64 {
        let longer_s = costs.around_s - plan::AROUND_S + costs.in_flight_s;
        let load_s = PROOF_LOADED * self.proof_loaded_s() + longer_s;
        PROOF_LOADS * load_s * costs.rates / 8.0
    }
}

/// The numbers that determine how much the loads send.
#[derive(Clone, Copy)]
struct Costs {
    /// The sum of the rates of both directions of the path, in bit/s.
    rates: f64,
    /// The sum of the rates of the strong and the gentle load of each direction, in bit/s.
    loads: f64,
    /// The time in seconds for which a load lasts longer than the probes beside it.
    around_s: f64,
    /// The time in seconds for which a TCP load still occupies the path after its end.
    in_flight_s: f64,
}

impl<'a> Path<'a> {
    /// Finds the services of a host.
    ///
    /// # Errors
    /// The name does not resolve, or the user stopped the program.
    pub(super) fn find(host: &str, session: &'a Session) -> Result<Self, Failure> {
        let address = endpoint::resolve(host, STAMP_PORTS[0], Family::Any).or_bad_input()?;
        let mut path = Self {
            far_end: FarEnd {
                address: address.ip(),
                http: HTTP_PORT,
            },
            reflector: Reflector::Absent,
            session,
        };
        let [first, second] = STAMP_PORTS.map(Reflector::Stamp);
        for reflector in [first, second, Reflector::Ping] {
            path.check_stop()?;
            path.reflector = reflector;
            // If this machine may not send such probes, another kind may work.
            let few = path.probe(FEW, None);
            if few.is_ok_and(|few| few.failure.is_none()) {
                return Ok(path);
            }
        }
        path.reflector = Reflector::Absent;
        Ok(path)
    }

    /// Measures the path within `limits`.
    ///
    /// # Errors
    /// An instrument failed, or the budget is too small for the path.
    pub(super) fn measure(&self, limits: &Limits) -> Result<Measured, Failure> {
        let probed_s = plan::probed_s(limits.time_s);
        let mut lacks = Vec::new();
        let (mut observed, left) = self.searched(limits, &mut lacks)?;
        let costs = self.costs(&observed);
        let loads = self.can_load(limits, &observed);
        let (probed_s, mut loads) = share_out(limits, probed_s, costs, left, loads)?;
        let proof = if loads.is_ok() {
            limits.proof_bytes(costs)
        } else {
            0.0
        };
        let bytes = plan::load_bytes(costs.loads, probed_s, costs.around_s) + proof;
        note(format_args!(
            "farwire: fit: the following loads send about {:.0} MB, and at most {:.0} MB if faster ones are needed",
            bytes / 1e6,
            left / 1e6
        ));
        let mut spare = left - bytes;
        let times = [probed_s, costs.around_s];
        for (way, search) in observed.searches.clone() {
            lacks.extend(self.loads(way, &search, times, &mut observed, &mut spare)?);
        }
        // By now, the loads may have found higher rates, and they show the queues.
        let costs = Costs {
            rates: self.highest_rates(&observed),
            in_flight_s: in_flight_s(&observed.loaded),
            ..costs
        };
        if limits.proof_bytes(costs) > proof + spare {
            loads = loads.and_then(|()| Err(TOO_MUCH.to_owned()));
        }
        let held_out = match loads {
            Err(cause) if !limits.with_proof => Err(cause),
            loads => match self.hold_out(limits, loads) {
                Ok(found) => found,
                Err(failure) => {
                    self.check_stop()?;
                    Err(failure.to_string())
                }
            },
        };
        // By now, the kernel has had answers to the longest packets, those of TCP included.
        observed.mtu = self.mtu();
        observed.lacks = lacks;
        Ok(Measured { observed, held_out })
    }

    /// Measures only what is compared with a link. The inner error is the reason why that is impossible.
    ///
    /// # Errors
    /// An instrument failed, or the user stopped the program.
    pub(super) fn only_hold_out(
        &self,
        limits: &Limits,
    ) -> Result<Result<HeldOut, String>, Failure> {
        let (observed, left) = self.searched(limits, &mut Vec::new())?;
        let bytes = limits.proof_bytes(self.costs(&observed));
        let loads = match self.can_load(limits, &observed) {
            Ok(()) if bytes > left => Err(TOO_MUCH.to_owned()),
            loads => loads,
        };
        if loads.is_ok() {
            note(format_args!(
                "farwire: fit: the following loads send about {:.0} MB",
                bytes / 1e6
            ));
        }
        self.hold_out(limits, loads)
    }

    /// Probes the idle path and searches for the rates. Adds what they do not show to `lacks`. Returns also the rest of the
    /// budget.
    fn searched(
        &self,
        limits: &Limits,
        lacks: &mut Vec<String>,
    ) -> Result<(PathObservations, f64), Failure> {
        let mut observed = PathObservations {
            idle: self.idle(plan::probed_s(limits.time_s), lacks)?,
            ..PathObservations::default()
        };
        let mut left = limits.budget;
        for way in [Direction::Down, Direction::Up] {
            let mut most = SEARCH_PART / 2.0 * limits.budget;
            left -= most;
            lacks.extend(self.search(way, &mut observed, &mut most)?);
            left += most;
        }
        Ok((observed, left))
    }

    /// Probes the idle path. Adds what the reflector cannot tell to `lacks`.
    fn idle(&self, probed_s: f64, lacks: &mut Vec<String>) -> Result<ProbeSession, Failure> {
        match self.reflector {
            Reflector::Stamp(_) => {}
            Reflector::Ping => lacks.push(
                "each direction's part of delay and loss, and the queue: the far end answers pings, but no probes (STAMP)"
                    .to_owned(),
            ),
            Reflector::Absent => {
                lacks.push(
                    "delay, loss and the queue: the far end answers neither probes (STAMP) nor pings"
                        .to_owned(),
                );
                return Ok(ProbeSession::default());
            }
        }
        note("farwire: fit: probes on the idle path");
        let idle = self.probe(probes_in(probed_s), None)?;
        if let Some(cause) = &idle.failure {
            lacks.push(format!("a part of delay and loss: {cause}"));
        }
        Ok(ProbeSession::of(&idle, None, self.headers()))
    }

    /// Sends datagrams at rising rates until the path carries less than was sent, and at most `left` bytes. Adds the load
    /// that filled the path, or returns the reason why there is none.
    fn search(
        &self,
        way: Direction,
        observed: &mut PathObservations,
        left: &mut f64,
    ) -> Result<Option<String>, Failure> {
        note(format_args!(
            "farwire: fit: the search for the rate {}",
            way.name()
        ));
        let idle = &mut observed.idle;
        let random = LossFit::of(idle, way);
        let lasts_s = plan::search_s(longest_ms(idle).min(1e3));
        let mut below = Vec::new();
        let mut carried = 0.0;
        for rate in SEARCH_RATES {
            let bytes = rate * lasts_s / 8.0;
            if bytes > *left {
                break;
            }
            *left -= bytes;
            let measurement = self.load(way, rate, USUAL_DATAGRAM, lasts_s)?;
            let Some(load) = LoadTraffic::of(&measurement, None, way, self.headers()) else {
                let cause = measurement.failure.as_deref().unwrap_or("nothing arrived");
                return Ok(Some(format!("the rate {}: {cause}", way.name())));
            };
            if plan::is_full(&load, random.as_ref()) {
                let rate = plan::served(&load, random.as_ref());
                below.retain(|(sent, _)| plan::is_far_below(*sent, rate));
                below
                    .into_iter()
                    .for_each(|(_, losses)| idle.add_losses(way, losses));
                observed.searches.push((way, load));
                return Ok(None);
            }
            carried = load.received();
            let losses = LoadTraffic::losses(&measurement, way);
            below.extend(losses.map(|losses| (load.sent, losses)));
        }
        Ok(Some(format!(
            "the rate {}: it is above {:.0} Mbit/s, and the budget allows no faster load",
            way.name(),
            carried / 1e6
        )))
    }

    /// Returns the rate of a direction that a load has filled, in bit/s.
    fn rate(&self, way: Direction, load: &LoadTraffic, idle: &ProbeSession) -> f64 {
        plan::served(load, LossFit::of(idle, way).as_ref())
    }

    /// Returns the sum of the highest rates of both directions that a load has found, in bit/s.
    fn highest_rates(&self, observed: &PathObservations) -> f64 {
        let highest = |(way, search): &(Direction, LoadTraffic)| {
            let loaded = observed.loaded.iter().filter(|one| one.direction == *way);
            let loads = loaded.map(|one| &one.load).chain([search]);
            let rates = loads.map(|load| self.rate(*way, load, &observed.idle));
            rates.fold(0.0, f64::max)
        };
        observed.searches.iter().map(highest).sum()
    }

    /// Returns what the loads cost on a path of which the search has found the rates.
    fn costs(&self, observed: &PathObservations) -> Costs {
        let rates = observed.searches.iter().map(|(way, search)| {
            let rate = self.rate(*way, search, &observed.idle);
            (rate, plan::both_loads(rate, search.wire_bytes))
        });
        let (rates, loads): (Vec<f64>, Vec<f64>) = rates.unzip();
        let round_trips = observed.idle.probes.iter();
        let round_trips: Vec<f64> = round_trips.filter_map(|probe| probe.rtt_ms).collect();
        Costs {
            rates: rates.iter().sum(),
            loads: loads.iter().sum(),
            around_s: around_s(&round_trips),
            in_flight_s: USUAL_IN_FLIGHT_S,
        }
    }

    /// Loads a direction strongly and, if it can be probed meanwhile, gently. If the strong load does not always exceed the
    /// rate, faster loads take its place, as far as they send at most `spare` bytes; a rate that varies has no gentle load. The
    /// times in seconds are those of the probes beside a load, and by which the load lasts longer. Returns what they do not
    /// show, with the reasons.
    fn loads(
        &self,
        way: Direction,
        search: &LoadTraffic,
        [probed_s, around_s]: [f64; 2],
        observed: &mut PathObservations,
        spare: &mut f64,
    ) -> Result<Vec<String>, Failure> {
        let mut lacks = Vec::new();
        let searched = self.rate(way, search, &observed.idle);
        let planned_gentle = plan::gentle(searched, search.wire_bytes);
        let mut strong = LoadPlan {
            direction: way,
            rate: plan::strong(searched),
            datagram: search.wire_bytes,
            probed_s,
            timeout: STRONG_TIMEOUT,
        };
        let mut tried = strong.rate;
        let mut cause = "is not allowed";
        for left in (0..=plan::MOST_FASTER).rev() {
            let load = match self.loaded(&strong, observed) {
                Ok(load) => load,
                Err(failure) => {
                    self.check_stop()?;
                    if left == plan::MOST_FASTER {
                        lacks.push(format!("the rate {} and its queue: {failure}", way.name()));
                        return Ok(lacks);
                    }
                    cause = "failed";
                    break;
                }
            };
            tried = strong.rate;
            let (Reflector::Stamp(_), Some(session)) = (self.reflector, observed.loaded.last())
            else {
                return Ok(lacks);
            };
            let is_first = left == plan::MOST_FASTER;
            if is_first && way == Direction::Up && session.arrivals.is_empty() {
                let lack = "the rate up over time: the far end does not report what arrived in each interval";
                lacks.push(lack.to_owned());
            }
            let rate = self.rate(way, &load, &observed.idle);
            match plan::next(observed, session, rate) {
                NextLoad::Gentle(rate) => {
                    let gentle = LoadPlan {
                        rate,
                        timeout: gentle_timeout(session),
                        ..strong
                    };
                    // The strong load may have found a higher rate than the search.
                    let more = plan::load_bytes(rate - planned_gentle, probed_s, around_s);
                    let lack = if more > *spare {
                        Some("the budget allows no gentle load".to_owned())
                    } else {
                        *spare -= more;
                        let loaded = self.loaded(&gentle, observed);
                        loaded.err().map(|failure| failure.to_string())
                    };
                    if let Some(cause) = lack {
                        self.check_stop()?;
                        lacks.push(format!(
                            "whether the queue {} is managed: {cause}",
                            way.name()
                        ));
                    }
                    return Ok(lacks);
                }
                NextLoad::Nothing => return Ok(lacks),
                NextLoad::Faster(rate) => {
                    let bytes = plan::load_bytes(rate, probed_s, around_s);
                    if left == 0 || bytes > *spare {
                        break;
                    }
                    *spare -= bytes;
                    strong.rate = rate;
                }
            }
        }
        lacks.push(format!(
            "the highest rate {}: a load of {:.0} Mbit/s did not always exceed it, and a faster one {cause}",
            way.name(),
            tried / 1e6
        ));
        Ok(lacks)
    }

    /// Loads a direction, and probes the path before and meanwhile.
    fn loaded(
        &self,
        plan: &LoadPlan,
        observed: &mut PathObservations,
    ) -> Result<LoadTraffic, Failure> {
        let LoadPlan {
            direction: way,
            rate,
            datagram,
            probed_s,
            timeout,
        } = *plan;
        note(format_args!(
            "farwire: fit: a load of {:.2} Mbit/s {}",
            rate / 1e6,
            way.name()
        ));
        let headers = self.headers();
        let (session, failure) = match self.reflector {
            Reflector::Stamp(_) => {
                let under = format!("udp:{:.0}bit,{}", self.payload(rate, datagram), way.name());
                let found = self.probe(probes_in(probed_s), Some((under, timeout)))?;
                let idle = ProbeSession::of(&found, Some(Phase::Idle), headers);
                observed.idle.join(idle);
                (LoadedSession::of(&found, headers), found.failure)
            }
            Reflector::Ping | Reflector::Absent => {
                let found = self.load(way, rate, datagram, probed_s)?;
                let load = LoadTraffic::of(&found, None, way, headers);
                let session = load.map(|load| LoadedSession::unprobed(way, load));
                (session, found.failure)
            }
        };
        let session = session.with_context(|| {
            let cause = failure.unwrap_or_else(|| "nothing arrived".to_owned());
            format!("the load {}: {cause}", way.name())
        })?;
        let load = session.load;
        observed.loaded.push(session);
        Ok(load)
    }

    /// Checks whether the held-out measurement can have loads. The error is the reason why not.
    fn can_load(&self, limits: &Limits, observed: &PathObservations) -> Result<(), String> {
        let cause = if !limits.with_proof {
            NO_PROOF
        } else if !matches!(self.reflector, Reflector::Stamp(_)) {
            "that needs a far end that answers probes (STAMP), as `farwire serve` does"
        } else if observed.searches.len() < 2 {
            "the rate of a direction is not known, so that its loads could exceed the budget"
        } else {
            return Ok(());
        };
        Err(cause.to_owned())
    }

    /// Measures once more: probes on the idle path, and loads unless there is a reason against them. The inner error is the
    /// reason why nothing was measured.
    fn hold_out(
        &self,
        limits: &Limits,
        loads: Result<(), String>,
    ) -> Result<Result<HeldOut, String>, Failure> {
        let instrument = match self.reflector {
            Reflector::Stamp(_) => "probe",
            Reflector::Ping => "ping",
            Reflector::Absent => {
                let cause = "the far end answers neither probes (STAMP) nor pings";
                return Ok(Err(cause.to_owned()));
            }
        };
        note("farwire: fit: the measurement that is held out for the comparison");
        let count = probes_in(limits.proof_idle_s());
        let idle = self.probe(count, None)?;
        self.check_stop()?;
        if let Some(cause) = idle.failure {
            return Ok(Err(cause));
        }
        let lasts_s = limits.proof_loaded_s();
        let loaded = loads.and_then(|()| self.hold_out_loads(lasts_s));
        self.check_stop()?;
        let (loads_s, loaded) = match loaded {
            Ok(loaded) => (Ok(lasts_s), Some(loaded)),
            Err(cause) => (Err(cause), None),
        };
        let with_loads = match &loads_s {
            Ok(lasts_s) => format!(", and {lasts_s:.0} s with TCP loads"),
            Err(_) => String::new(),
        };
        Ok(Ok(HeldOut {
            description: format!(
                "{count} packets of `{instrument}` on the idle path{with_loads}, after all that was fitted"
            ),
            plan: HeldOutPlan {
                idle: instrument,
                count,
                interval: INTERVAL,
                size: PROBE_BYTES,
                loads_s,
            },
            measurement: held_out::joined(idle, loaded),
        }))
    }

    /// Measures with the loads of the comparison. The error is the reason why that failed.
    fn hold_out_loads(&self, lasts_s: f64) -> Result<Measurement, String> {
        let options = json!({ "time": format!("{lasts_s:.0}s"), "congestion": CONGESTION });
        let loaded = self.measure_with("quality", options);
        let loaded = loaded.map_err(|failure| failure.to_string())?;
        match &loaded.failure {
            Some(cause) => Err(cause.clone()),
            None => Ok(loaded),
        }
    }

    /// Runs a session of probes and, with `under`, another one beside that load. The probes of both are then awaited for
    /// the time beside it.
    fn probe(&self, count: u32, under: Option<(String, Duration)>) -> Result<Measurement, Failure> {
        let mut options = json!({
            "count": count,
            "interval": format!("{}ms", INTERVAL.as_millis()),
            "size": PROBE_BYTES,
        });
        if let Some((under, timeout)) = under {
            options["under"] = under.into();
            options["under_interval"] = format!("{:.0}ms", 1e3 * plan::READING_S).into();
            options["timeout"] = format!("{}ms", timeout.as_millis()).into();
        }
        match self.reflector {
            Reflector::Stamp(port) => {
                options["port"] = port.into();
                self.measure_with("probe", options)
            }
            Reflector::Ping => self.measure_with("ping", options),
            Reflector::Absent => Ok(Measurement::failed("the far end answers no probes")),
        }
    }

    /// Sends datagrams of this number of L2 bytes at this rate in L2 bit/s.
    fn load(
        &self,
        way: Direction,
        rate: f64,
        datagram: u32,
        lasts_s: f64,
    ) -> Result<Measurement, Failure> {
        let options = json!({
            "bitrate": format!("{:.0}", self.payload(rate, datagram)),
            "time": format!("{:.0}ms", 1e3 * lasts_s),
            "reverse": way == Direction::Down,
            "connect_timeout": CONNECT_TIMEOUT,
        });
        self.measure_with("udp", options)
    }

    fn measure_with(&self, kind: &str, options: Value) -> Result<Measurement, Failure> {
        self.check_stop()?;
        let kind = Kind::all().find(|one| one.name() == kind);
        let kind = kind.context("an unknown instrument")?;
        let parameters: Parameters = serde_json::from_value(options)?;
        let instrument = kind.with(&parameters)?.toward(&self.far_end, CONGESTION);
        Ok(instrument.measure(self.session)?.measurement)
    }

    /// Returns the MTU of the path to the far end in L3 bytes, as the kernel of this host knows it.
    fn mtu(&self) -> Option<u32> {
        let address = self.far_end.address;
        let any = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        // This chooses the route, and sends nothing.
        socket.connect((address, HTTP_PORT)).ok()?;
        tcp::path_mtu(&socket).ok()
    }

    fn check_stop(&self) -> Result<()> {
        match self.session.stop.cause() {
            Some(cause) => bail!("{cause}"),
            None => Ok(()),
        }
    }

    /// Returns the payload of a rate in L2 bit/s.
    fn payload(&self, rate: f64, datagram: u32) -> f64 {
        let payload = datagram.saturating_sub(self.headers());
        rate * f64::from(payload) / f64::from(datagram)
    }

    /// Returns the bytes of a datagram's headers at L2, without FCS.
    fn headers(&self) -> u32 {
        HEADERS + ip_header(matches!(self.far_end.address, IpAddr::V6(_)))
    }
}

/// A load, and the probes beside it.
#[derive(Clone, Copy)]
struct LoadPlan {
    direction: Direction,
    /// The rate in bit/s of L2 bytes.
    rate: f64,
    /// The L2 bytes of a datagram.
    datagram: u32,
    probed_s: f64,
    /// The time for which a probe is awaited.
    timeout: Duration,
}

/// Returns the time for which probes beside a gentle load are awaited after this strong one.
fn gentle_timeout(strong: &LoadedSession) -> Duration {
    let (least_ms, factor) = GENTLE_TIMEOUT;
    Duration::from_secs_f64((factor * longest_ms(&strong.probes) + least_ms) / 1e3)
}

/// Returns the longest round trip of a session in milliseconds; 0 without one.
fn longest_ms(session: &ProbeSession) -> f64 {
    let round_trips = session.probes.iter().filter_map(|probe| probe.rtt_ms);
    round_trips.fold(0.0, f64::max)
}

/// Returns the time in seconds for which a load on a path with these idle round trips, in milliseconds, lasts longer than the
/// probes beside it, at most. The median of the probes before a load, which determines it, is hardly ever longer than one of
/// the longest round trips here.
fn around_s(round_trips: &[f64]) -> f64 {
    let long_ms = percentile(&sorted(round_trips), LONG_ROUND_TRIP).unwrap_or_default();
    let round_trip = Duration::try_from_secs_f64(long_ms / 1e3).unwrap_or_default();
    load_around_probes(round_trip).as_secs_f64()
}

/// Returns the time in seconds for which a TCP load still occupies the path after its end, if these loads have filled the same
/// queues.
fn in_flight_s(loaded: &[LoadedSession]) -> f64 {
    let longest = loaded.iter().map(|one| longest_ms(&one.probes));
    let longest_s = longest.fold(0.0, f64::max) / 1e3;
    (IN_FLIGHT_ROUND_TRIPS * longest_s).max(USUAL_IN_FLIGHT_S)
}

/// Divides the `left` bytes of the budget among the loads, which are probed for `probed_s` if that is affordable, and the
/// loads of the held-out measurement, if they are possible. Returns for how many seconds to probe.
///
/// # Errors
/// The shortest loads exceed the budget.
fn share_out(
    limits: &Limits,
    probed_s: f64,
    costs: Costs,
    left: f64,
    loads: Result<(), String>,
) -> Result<(f64, Result<(), String>)> {
    let affordable = |left| plan::affordable_s(probed_s, costs.loads, costs.around_s, left);
    let proof = limits.proof_bytes(costs);
    let with_proof = affordable(left - proof).filter(|_| loads.is_ok());
    if let Some(probed_s) = with_proof {
        return Ok((probed_s, Ok(())));
    }
    let probed_s = affordable(left).with_context(|| {
        format!(
            "the path carries {:.0} Mbit/s in both directions together, so that even short loads exceed the budget of {:.0} MB: \
             raise --budget",
            costs.rates / 1e6,
            limits.budget / 1e6
        )
    })?;
    Ok((probed_s, loads.and_then(|()| Err(TOO_MUCH.to_owned()))))
}

/// Returns the number of probes in this number of seconds.
fn probes_in(seconds: f64) -> u32 {
    let count = Duration::from_secs_f64(seconds).as_millis() / INTERVAL.as_millis();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use fit::Probe;

    use super::*;

    /// Returns the costs of a path of 16 Mbit/s in both directions together, with this round trip.
    fn costs(round_trip_ms: f64) -> Costs {
        Costs {
            rates: 16e6,
            loads: 2.0 * plan::both_loads(8e6, USUAL_DATAGRAM),
            around_s: around_s(&[round_trip_ms; 20]),
            in_flight_s: USUAL_IN_FLIGHT_S,
        }
    }

    #[test]
    fn long_round_trips_make_all_loads_longer_and_more_expensive() {
        let limits = Limits {
            time_s: 30.0,
            budget: 0.0,
            with_proof: true,
        };
        let [short, long] = [20.0, 600.0].map(|round_trip_ms| {
            let costs = costs(round_trip_ms);
            let loads = plan::load_bytes(costs.loads, 5.0, costs.around_s);
            (costs.around_s, loads + limits.proof_bytes(costs))
        });
        // Four round trips before the probes and one after them, each in whole seconds.
        assert_eq!((short.0, long.0), (plan::AROUND_S, 7.0));
        let more_s = long.0 - short.0;
        let more = more_s * (costs(600.0).loads + PROOF_LOADS * 16e6) / 8.0;
        assert!((long.1 - short.1 - more).abs() < 1.0, "{short:?} {long:?}");
        // A budget that is enough for a short path is not enough for the same loads on a long one.
        let (probed_s, _) = share_out(&limits, 5.0, costs(600.0), short.1, Ok(())).unwrap();
        assert!(probed_s < 5.0, "{probed_s}");
    }

    #[test]
    fn the_loads_of_the_comparison_cost_the_queues_that_they_fill() {
        let beside = |rtt_ms| {
            let traffic = LoadTraffic {
                wire_bytes: USUAL_DATAGRAM,
                sent: 16e6,
                sending_s: 10.0,
                bytes: 10e6,
                seconds: 10.0,
                error: 0.0,
            };
            let mut session = LoadedSession::unprobed(Direction::Down, traffic);
            session.probes.probes = vec![Probe {
                rtt_ms: Some(rtt_ms),
                ..Probe::default()
            }];
            session
        };
        assert_eq!(in_flight_s(&[]), USUAL_IN_FLIGHT_S);
        assert_eq!(in_flight_s(&[beside(100.0)]), USUAL_IN_FLIGHT_S);
        let in_flight_s = in_flight_s(&[beside(100.0), beside(2000.0)]);
        assert_eq!(in_flight_s, 4.0);
        let limits = Limits {
            time_s: 50.0,
            budget: 0.0,
            with_proof: true,
        };
        // A third of 50 s as whole seconds, as `quality` has it.
        assert_eq!(limits.proof_loaded_s(), 17.0);
        let bytes = limits.proof_bytes(Costs {
            in_flight_s,
            ..costs(20.0)
        });
        let load_s = 17.0 * 7.0 / 24.0 + 4.0;
        assert!((bytes - 2.0 * load_s * 2e6).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn a_budget_pays_for_the_loads_before_the_comparison() {
        let limits = |budget| Limits {
            time_s: 30.0,
            budget,
            with_proof: true,
        };
        let shared = |budget: f64| share_out(&limits(budget), 2.0, costs(20.0), budget, Ok(()));
        let loads = plan::load_bytes(costs(20.0).loads, 2.0, plan::AROUND_S);
        let proof = limits(0.0).proof_bytes(costs(20.0));
        assert_eq!(shared(loads + proof + 1.0).unwrap(), (2.0, Ok(())));
        let (probed_s, proof_loads) = shared(loads + 1.0).unwrap();
        assert_eq!(probed_s, 2.0);
        assert!(proof_loads.unwrap_err().contains("raise --budget"));
        let error = shared(0.5 * loads).unwrap_err().to_string();
        assert!(error.contains("carries 16 Mbit/s"), "{error}");
    }

    #[test]
    fn loads_of_a_comparison_that_are_impossible_keep_their_reason() {
        let limits = Limits {
            time_s: 30.0,
            budget: 1e9,
            with_proof: false,
        };
        let impossible = Err("no".to_owned());
        let shared = share_out(&limits, 2.0, costs(20.0), 1e9, impossible).unwrap();
        assert_eq!(shared, (2.0, Err("no".to_owned())));
    }
}
