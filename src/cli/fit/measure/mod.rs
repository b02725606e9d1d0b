//! The measurement of a path: probes on the idle path, the search for the rates, and loads with probes beside them.

mod hold_out;
mod loads;
mod longest_packets;
mod send_trains;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conditions::Direction;
use fit::{PathObservations, ProbeSession, plan};
use instruments::Session;
use instruments::endpoint::{self, Family};
use instruments::failure::{Blame, Failure};
use instruments::measure::{FarEnd, Kind, Parameters};
use record::Measurement;
use serde_json::{Value, json};
use stats::layers::ip_header;

use self::longest_packets::WEB_PORTS;
use super::costs::{Costs, Limits, TOO_MUCH, share_out};
use super::held_out::HeldOut;
use crate::notes::note;

/// The UDP ports at which a far end reflects probes: the standard one, and that of an ordinary user.
const STAMP_PORTS: [u16; 2] = [862, 8620];
/// The TCP port of a far end's web server.
const HTTP_PORT: u16 = 8080;
/// The congestion control of the loads of the comparison, which must be the same on the path and through the link.
pub(super) const CONGESTION: &str = "cubic";
/// The payload of a probe in bytes, of UDP as well as of ICMP.
pub(super) const PROBE_BYTES: u32 = 104;
/// The headers of Ethernet, and of UDP or ICMP, in bytes.
pub(super) const HEADERS: u32 = 14 + 8;
/// The time between two probes.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// The number of probes that look for a reflector, so that a lossy path hardly ever loses all of them.
const FEW: u32 = 5;
/// The longest time to connect to a far end's iperf3 server.
const CONNECT_TIMEOUT: &str = "10s";
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
        if bytes > 0.0 {
            note(format_args!(
                "farwire: fit: the following loads send about {:.0} MB, and at most {:.0} MB if faster ones are needed",
                bytes / 1e6,
                left / 1e6
            ));
        }
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
            Datagram::Small => plan::LOSSES_PAYLOAD + self.headers(),
        };
        let mut options = json!({
            "bitrate": format!("{:.0}", self.payload(rate, wire_bytes)),
            "time": format!("{:.0}ms", 1e3 * lasts_s),
            "reverse": way == Direction::Down,
            "connect_timeout": CONNECT_TIMEOUT,
        });
        if datagram == Datagram::Small {
            options["length"] = plan::LOSSES_PAYLOAD.into();
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
    /// Those that show losses.
    Small,
}

/// Returns the number of probes in this number of seconds.
pub(super) fn probes_in(seconds: f64) -> u32 {
    let count = Duration::from_secs_f64(seconds).as_millis() / INTERVAL.as_millis();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}
