//! The measurement of a path: probes on the idle path, the search for the rates, and loads with probes beside them.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use conditions::Direction;
use fit::plan::{self, NextLoad, SEARCH_RATES};
use fit::{LinkFit, LoadTraffic, LoadedSession, LossFit, PathObservations, ProbeSession};
use instruments::Session;
use instruments::endpoint::{self, Family};
use instruments::failure::{Blame, Failure};
use instruments::measure::{FarEnd, Kind, Parameters};
use netio::stop::{STOP_INTERVAL, Stop};
use netio::tcp::{self, TcpInfo};
use record::{Measurement, Phase};
use serde_json::{Value, json};
use stats::layers::ip_header;

use super::costs::{Costs, Limits, TOO_MUCH, longest_ms, served_rate, share_out};
use super::held_out::{self, HeldOut, HeldOutPlan, NO_PROOF};
use super::trains::{self, LIGHT_LOAD, TrainPlan};
use crate::notes::note;
use crate::progress;

/// The UDP ports at which a far end reflects probes: the standard one, and that of an ordinary user.
const STAMP_PORTS: [u16; 2] = [862, 8620];
/// The TCP port of a far end's web server.
const HTTP_PORT: u16 = 8080;
/// The ports of the web servers of `farwire serve` and of the far end of `farwire exec`.
const WEB_PORTS: [u16; 2] = [HTTP_PORT, 80];
/// The congestion control of the loads of the comparison, which must be the same on the path and through the link.
pub(super) const CONGESTION: &str = "cubic";
/// The payload of a probe in bytes, of UDP as well as of ICMP.
pub(super) const PROBE_BYTES: u32 = 104;
/// The headers of Ethernet, and of UDP or ICMP, in bytes.
pub(super) const HEADERS: u32 = 14 + 8;
/// The L2 bytes that a datagram of a load usually has, until the far end has counted one.
const USUAL_DATAGRAM: u32 = 1490;
/// The time between two probes.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// The number of probes that look for a reflector, so that a lossy path hardly ever loses all of them.
const FEW: u32 = 5;
/// The time for which a probe beside a strong load is awaited, which is longer than most queues.
const STRONG_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time for which a probe beside a gentle load is awaited, in milliseconds, and the factor of the longest round
/// trip beside the strong one.
const GENTLE_TIMEOUT: (f64, f64) = (1000.0, 1.5);
/// The longest time to connect to a far end's iperf3 server.
const CONNECT_TIMEOUT: &str = "10s";
/// The longest time to connect to a far end's web server, and to wait for a part of its answer.
const WEB_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of the download that shows the MTU down: several full packets, whatever the MTU is.
const DOWNLOAD_BYTES: usize = 100_000;
/// The longest time of that download.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(30);
/// The bytes that are read from the connection of that download in one call.
const READ_BYTES: usize = 16 * 1024;
/// The header of TCP, and its timestamps option, in bytes (RFC 9293, RFC 7323).
const TCP_HEADER: [u32; 2] = [20, 12];
/// The loads of one rate that have to fill the path, if the budget allows them. Packets are also lost if a host stalls.
const AGREEING: usize = 2;
/// The part of the budget that the search for the rates may use.
const SEARCH_PART: f64 = 0.25;

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
        let left = left - self.losses(limits, left, &mut observed)?;
        let costs = Costs::of(&observed);
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
        let trains = self.trains(&mut observed, &mut spare, &mut lacks)?;
        // By now, the loads may have found higher rates, and they show the queues.
        let costs = costs.after_loads(&observed);
        let mut left = proof + spare;
        if limits.proof_bytes(costs) > left {
            loads = loads.and_then(|()| Err(TOO_MUCH.to_owned()));
        }
        if loads.is_ok() {
            left -= limits.proof_bytes(costs);
        }
        let trains = trains.map(|plan| plan.held_out(limits.proof_loaded_s(), left));
        let held_out = match loads {
            Err(cause) if !limits.with_proof => Err(cause),
            loads => match self.hold_out(limits, loads, trains) {
                Ok(found) => found,
                Err(failure) => {
                    self.check_stop()?;
                    Err(failure.to_string())
                }
            },
        };
        // By now, the kernel has had answers to the longest packets, those of TCP included.
        observed.mtu = self.mtu();
        observed.longest_down = self.longest_down();
        self.check_stop()?;
        let may_serve = matches!(self.reflector, Reflector::Stamp(_));
        if may_serve && observed.longest_down.is_none() {
            let [port, other] = WEB_PORTS;
            lacks.push(format!(
                "the MTU down: no download from port {port} or {other} of the far end arrived"
            ));
        }
        observed.lacks = lacks;
        Ok(Measured { observed, held_out })
    }

    /// Measures only what is compared with a link, `with_trains` if the link has a light load. The inner error is the reason
    /// why that is impossible.
    ///
    /// # Errors
    /// An instrument failed, or the user stopped the program.
    pub(super) fn only_hold_out(
        &self,
        limits: &Limits,
        with_trains: bool,
    ) -> Result<Result<HeldOut, String>, Failure> {
        let (observed, mut left) = self.searched(limits, &mut Vec::new())?;
        let bytes = limits.proof_bytes(Costs::of(&observed));
        let loads = match self.can_load(limits, &observed) {
            Ok(()) if bytes > left => Err(TOO_MUCH.to_owned()),
            loads => loads,
        };
        if loads.is_ok() {
            left -= bytes;
            note(format_args!(
                "farwire: fit: the following loads send about {:.0} MB",
                bytes / 1e6
            ));
        }
        let trains = with_trains.then(|| self.searched_trains(limits, &observed, left));
        self.hold_out(limits, loads, trains)
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

    /// Sends datagrams at rising rates until the path twice carries less than was sent, and at most `left` bytes. Adds the load
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
            let mut full: Vec<LoadTraffic> = Vec::new();
            while full.len() < AGREEING && bytes <= *left {
                *left -= bytes;
                let datagram = Datagram::Full(USUAL_DATAGRAM);
                let measurement = self.load(way, rate, datagram, lasts_s)?;
                let Some(load) = LoadTraffic::of(&measurement, None, way, self.headers()) else {
                    let cause = measurement.failure.as_deref().unwrap_or("nothing arrived");
                    return Ok(Some(format!("the rate {}: {cause}", way.name())));
                };
                if !plan::is_full(&load, random.as_ref()) {
                    carried = load.received();
                    let losses = LoadTraffic::losses(&measurement, way);
                    below.extend(losses.map(|losses| (load.sent, losses)));
                    full.clear();
                    break;
                }
                full.push(load);
            }
            // A queue for each flow may still have held a part of the first load while the second one was sent.
            let of_rate = |one: &LoadTraffic, other: &LoadTraffic| {
                one.received().total_cmp(&other.received())
            };
            if let Some(load) = full.into_iter().max_by(of_rate) {
                let rate = plan::served(&load, random.as_ref());
                below.retain(|(sent, _)| plan::is_far_below(*sent, rate));
                below
                    .into_iter()
                    .for_each(|(_, losses)| idle.add_losses(way, losses));
                observed.searches.push((way, load));
                return Ok(None);
            }
            if bytes > *left {
                break;
            }
        }
        Ok(Some(format!(
            "the rate {}: it is above {:.0} Mbit/s, and the budget allows no faster load",
            way.name(),
            carried / 1e6
        )))
    }

    /// Sends small datagrams far below the rate of each direction, whose losses are random ones, if they are at most a part of
    /// `left` bytes. Returns the bytes that they took.
    fn losses(
        &self,
        limits: &Limits,
        left: f64,
        observed: &mut PathObservations,
    ) -> Result<f64, Failure> {
        let lasts_s = plan::losses_s(limits.time_s);
        let datagram = PROBE_BYTES + self.headers();
        let mut taken = 0.0;
        if !matches!(self.reflector, Reflector::Stamp(_)) {
            return Ok(taken);
        }
        for (way, search) in observed.searches.clone() {
            let rate = served_rate(way, &search, &observed.idle);
            let rate = plan::losses_rate(rate, datagram);
            let bytes = rate * lasts_s / 8.0;
            if taken + bytes > SEARCH_PART * left {
                continue;
            }
            taken += bytes;
            note(format_args!(
                "farwire: fit: small datagrams at {:.2} Mbit/s {}, for the losses",
                rate / 1e6,
                way.name()
            ));
            match self.load(way, rate, Datagram::Probe, lasts_s) {
                Ok(measurement) => {
                    if let Some(losses) = LoadTraffic::losses(&measurement, way) {
                        observed.idle.add_random_losses(way, losses);
                    }
                }
                // The losses of the probes are known.
                Err(_) => self.check_stop()?,
            }
        }
        Ok(taken)
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
        let searched = served_rate(way, search, &observed.idle);
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
            let rate = served_rate(way, &load, &observed.idle);
            let next = plan::next(observed, session, rate);
            if next != NextLoad::Nothing {
                self.pause(plan::pause_s(observed, session, rate, probed_s))?;
            }
            match next {
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
                let found = self.load(way, rate, Datagram::Full(datagram), probed_s)?;
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

    /// Waits for this number of seconds, in which a queue becomes empty that a load has filled.
    fn pause(&self, seconds: f64) -> Result<()> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.check_stop()?;
            thread::sleep(left.min(STOP_INTERVAL));
        }
        Ok(())
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

    /// Measures once more: probes on the idle path, trains if they are planned, and loads, unless there is a reason against
    /// them. The inner error is the reason why nothing was measured.
    fn hold_out(
        &self,
        limits: &Limits,
        loads: Result<(), String>,
        trains: Option<Result<TrainPlan, String>>,
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
        let trains = trains.map(|plan| plan.and_then(|plan| self.send_trains(plan)));
        self.check_stop()?;
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
        let with_trains = match &trains {
            Some(Ok((plan, _))) => format!(", {}", plan.description()),
            Some(Err(cause)) => {
                note(format_args!("farwire: fit: no trains of packets: {cause}"));
                format!(", no trains of packets ({cause})")
            }
            None => String::new(),
        };
        let (trains, of_trains) = trains.and_then(Result::ok).unzip();
        Ok(Ok(HeldOut {
            description: format!(
                "{count} packets of `{instrument}` on the idle path{with_trains}{with_loads}, after the sessions that were fitted"
            ),
            plan: HeldOutPlan {
                idle: instrument,
                count,
                interval: INTERVAL,
                size: PROBE_BYTES,
                trains,
                loads_s,
            },
            measurement: held_out::joined(idle, trains.zip(of_trains), loaded),
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

    /// Sends trains of packets on the idle path if the rate of a direction varies, and takes their bytes from `spare`. Adds
    /// what they do not show to `lacks`. Returns them if they succeeded.
    fn trains(
        &self,
        observed: &mut PathObservations,
        spare: &mut f64,
        lacks: &mut Vec<String>,
    ) -> Result<Option<TrainPlan>, Failure> {
        let found = LinkFit::of(observed);
        let Some(plan) = TrainPlan::of(&found, self.headers()) else {
            return Ok(None);
        };
        let last = observed.loaded.last();
        if let Some((load, bottleneck)) =
            last.and_then(|load| Some((load, found.toward(load.direction).bottleneck.as_ref()?)))
        {
            self.pause(plan::pause_s(observed, load, bottleneck.rate.value, 0.0))?;
        }
        let measured = plan.check(self.mtu(), *spare).and_then(|()| {
            *spare -= plan.bytes();
            self.send_trains(plan)
        });
        self.check_stop()?;
        match measured {
            Ok((plan, measured)) => {
                observed.trains = plan.session(&measured, self.headers());
                lacks.extend(plan.lacks(&found, &observed.trains));
                Ok(Some(plan))
            }
            Err(cause) => {
                lacks.push(format!("{LIGHT_LOAD}: {cause}"));
                Ok(None)
            }
        }
    }

    /// Plans the trains of a comparison without a fit, which send at most `left` bytes. The error is the reason why they are
    /// impossible.
    fn searched_trains(
        &self,
        limits: &Limits,
        observed: &PathObservations,
        left: f64,
    ) -> Result<TrainPlan, String> {
        let searches = observed.searches.iter();
        let rates = searches.map(|(way, search)| served_rate(*way, search, &observed.idle));
        let rates: Vec<f64> = rates.collect();
        let [one, other] = rates.as_slice() else {
            return Err("the rate of a direction is not known".to_owned());
        };
        let lasts_s = limits.proof_loaded_s();
        let plan = TrainPlan::lasting(lasts_s, one.min(*other), self.headers());
        plan.check(self.mtu(), left).map(|()| plan)
    }

    /// Sends trains on the idle path. Returns them with what is known about the far end then. The error is the reason why that
    /// failed.
    fn send_trains(&self, plan: TrainPlan) -> Result<(TrainPlan, Measurement), String> {
        let Reflector::Stamp(port) = self.reflector else {
            return Err("the far end answers no probes (STAMP)".to_owned());
        };
        note(format_args!(
            "farwire: fit: {} on the idle path, {}",
            plan.description(),
            progress::about(plan.lasts())
        ));
        let options = json!({
            "count": plan.count,
            "interval": format!("{}ms", plan.interval.as_millis()),
            "size": plan.size,
            "train": plan.length,
            "port": port,
        });
        let measured = self.measure_with("probe", options);
        let measured = measured.map_err(|failure| failure.to_string())?;
        if let Some(cause) = &measured.failure {
            return Err(cause.clone());
        }
        let is_held = trains::are_held(&measured);
        Ok((TrainPlan { is_held, ..plan }, measured))
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

    /// Sends datagrams at this rate in L2 bit/s.
    fn load(
        &self,
        way: Direction,
        rate: f64,
        datagram: Datagram,
        lasts_s: f64,
    ) -> Result<Measurement, Failure> {
        let wire_bytes = match datagram {
            Datagram::Full(wire_bytes) => wire_bytes,
            Datagram::Probe => PROBE_BYTES + self.headers(),
        };
        let mut options = json!({
            "bitrate": format!("{:.0}", self.payload(rate, wire_bytes)),
            "time": format!("{:.0}ms", 1e3 * lasts_s),
            "reverse": way == Direction::Down,
            "connect_timeout": CONNECT_TIMEOUT,
        });
        if datagram == Datagram::Probe {
            options["length"] = PROBE_BYTES.into();
        }
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

    /// Returns the L3 bytes of the longest packet of a download from the web server of a far end that answers probes.
    fn longest_down(&self) -> Option<u32> {
        if !matches!(self.reflector, Reflector::Stamp(_)) {
            return None;
        }
        let mut ports = WEB_PORTS.into_iter();
        ports.find_map(|port| {
            let stop = self.session.stop.within(LONGEST_DOWNLOAD);
            longest_from(SocketAddr::new(self.far_end.address, port), &stop)
        })
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

/// The length of the datagrams of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagram {
    /// The full packets that an instrument sends by default, which have this number of L2 bytes.
    Full(u32),
    /// The length of a probe.
    Probe,
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

/// Returns the L3 bytes of the longest packet of a download from this web server; `None` if the download fails, or if `stop`
/// ends it.
fn longest_from(server: SocketAddr, stop: &Stop) -> Option<u32> {
    let mut stream = TcpStream::connect_timeout(&server, WEB_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(STOP_INTERVAL)).ok()?;
    let request = format!(
        "GET /bytes/{DOWNLOAD_BYTES} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut part = [0; READ_BYTES];
    let mut arrived = 0;
    let mut last_arrival = Instant::now();
    // The kernel's estimate begins with a guess, which shorter answers do not correct.
    while arrived < DOWNLOAD_BYTES {
        if stop.cause().is_some() || last_arrival.elapsed() > WEB_TIMEOUT {
            return None;
        }
        match stream.read(&mut part) {
            Ok(0) => return None,
            Ok(bytes) => {
                arrived += bytes;
                last_arrival = Instant::now();
            }
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
            Err(_) => return None,
        }
    }
    let info = TcpInfo::of(&stream).ok()?;
    let [header, timestamps] = TCP_HEADER;
    let options = if info.timestamps { timestamps } else { 0 };
    Some(info.rcv_mss + options + header + ip_header(server.is_ipv6()))
}

/// Returns the time for which probes beside a gentle load are awaited after this strong one.
fn gentle_timeout(strong: &LoadedSession) -> Duration {
    let (least_ms, factor) = GENTLE_TIMEOUT;
    Duration::from_secs_f64((factor * longest_ms(&strong.probes) + least_ms) / 1e3)
}

/// Returns the number of probes in this number of seconds.
pub(super) fn probes_in(seconds: f64) -> u32 {
    let count = Duration::from_secs_f64(seconds).as_millis() / INTERVAL.as_millis();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread::JoinHandle;

    use super::*;

    /// Starts a web server that answers one request with parts of this number of bytes, at this interval, until the client
    /// closes the connection.
    fn server(part: usize, interval: Duration) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request: Vec<u8> = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                request.extend(byte);
            }
            let part = vec![0_u8; part];
            while stream.write_all(&part).is_ok() {
                thread::sleep(interval);
            }
        });
        (address, answers)
    }

    #[test]
    fn a_download_shows_its_longest_packet() {
        let (address, answers) = server(2 * DOWNLOAD_BYTES, Duration::ZERO);
        let longest = longest_from(address, &Stop::default());
        assert!(longest.is_some_and(|bytes| bytes > 500), "{longest:?}");
        answers.join().unwrap();
    }

    #[test]
    fn a_download_that_drips_ends_at_its_deadline_and_when_the_user_stops_it() {
        let drip = Duration::from_millis(100);
        // At this pace, the download would take almost three hours.
        let (address, answers) = server(1, drip);
        let soon = Stop::default().within(3 * drip);
        assert_eq!(longest_from(address, &soon), None);
        answers.join().unwrap();
        let (address, answers) = server(1, drip);
        let stopped = Stop::on(Arc::new(AtomicBool::new(true)));
        assert_eq!(longest_from(address, &stopped), None);
        answers.join().unwrap();
    }
}
