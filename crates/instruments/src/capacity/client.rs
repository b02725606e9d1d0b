//! The client: set-up, activation, and the test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result, bail, ensure};
use netio::stop::STOP_INTERVAL;
use record::{Direction, Measurement};

use super::CapacityArgs;
use super::channel::{Channel, now};
use super::exchange::Exchange;
use super::outcome::{SILENCE, TestAgreement};
use super::results::measurement;
use super::search::RateControl;
use super::session::TestSession;
use super::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, LoadHeader, MalformedMessage, SendingRate,
    Setup, SetupAnswer, Sizes, TestParameters, Version, is_null_request,
};
use crate::Session;
use crate::endpoint;
use crate::failure::check_stop;
use crate::iperf3::control::is_timeout;
use crate::round_trip::{FIRST_ANSWER, several};

/// A request is repeated after this time.
const REPEAT: Duration = Duration::from_secs(1);
/// The duration in seconds that the reference's server sets if the requested one is too short.
const REFERENCE_TIME_S: u16 = 10;

/// Measures the capacity of the path to the server whose control port is `target`.
///
/// # Errors
/// Returns an error if no test begins.
pub(crate) fn measure(
    target: SocketAddr,
    args: &CapacityArgs,
    parameters: &TestParameters,
    session: &Session,
) -> Result<Measurement> {
    let socket = endpoint::udp(target, args.common.bind.as_ref())?;
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    let mut request = TestRequest {
        socket,
        target,
        session,
        version: Version::NEWEST,
        sizes: args.datagrams.map(Sizes::from).unwrap_or_default(),
        round_trip: None,
        notes: Vec::new(),
    };
    let port = request.set_up(args.datagrams.is_none())?;
    request
        .socket
        .connect(SocketAddr::new(target.ip(), port))
        .with_context(|| format!("port {port} of {target} cannot be reached"))?;
    let requested = parameters;
    let Activation {
        parameters, rate, ..
    } = request.activate(args.direction(), requested)?;
    check(requested, &parameters)
        .with_context(|| format!("{target} accepts impossible parameters"))?;
    request.note_changes(requested, &parameters);
    let agreed = TestAgreement {
        peer: target,
        direction: args.direction(),
        version: request.version,
        sizes: request.sizes,
        parameters,
        round_trip: request.round_trip.unwrap_or_default(),
        is_server: false,
    };
    request.note_extension(&agreed);
    let control = RateControl::new(agreed.sizes, &parameters);
    let exchange = Exchange {
        channel: Channel::new(request.socket)?,
        session: TestSession::client(agreed, control, &rate, now()),
        stop: &|| session.stop.cause().map(|cause| cause.to_string()),
        live: session.live,
        publisher: None,
    };
    let mut measurement = measurement(&exchange.run(), &agreed);
    measurement.facts.extend(request.notes);
    Ok(measurement)
}

/// The request for a test.
struct TestRequest<'a> {
    /// A socket connected to the control port, and after set-up to the port of the test.
    socket: UdpSocket,
    target: SocketAddr,
    session: &'a Session,
    version: Version,
    sizes: Sizes,
    /// The least time from a request to its answer so far.
    round_trip: Option<Duration>,
    /// Facts about values that differ from the requested ones.
    notes: Vec<(String, String)>,
}

/// The times at which a request is sent, and until when its answer is awaited.
struct RequestTimes {
    /// The time after which it is repeated.
    repeat: Duration,
    /// The factor by which this time grows with each repetition.
    growth: u32,
    longest: Duration,
}

impl RequestTimes {
    /// Returns the times of a request over a path with this round trip, or over an unknown path.
    fn over(round_trip: Option<Duration>) -> Self {
        match round_trip {
            None => Self {
                repeat: REPEAT,
                growth: 2,
                longest: FIRST_ANSWER,
            },
            Some(round_trip) => Self {
                repeat: REPEAT + several(1, round_trip),
                growth: 1,
                longest: SILENCE + several(4, round_trip),
            },
        }
    }
}

impl TestRequest<'_> {
    /// Sets a test up and returns its port. Accepts the server's version once, and its datagram sizes if
    /// `sizes_are_open`.
    fn set_up(&mut self, sizes_are_open: bool) -> Result<u16> {
        let (mut version_open, mut jumbo_open, mut traditional_open) =
            (true, sizes_are_open, sizes_are_open);
        loop {
            let answer = self.request_setup()?;
            match answer.answer {
                Some(SetupAnswer::ACCEPTED) if answer.port != 0 => return Ok(answer.port),
                Some(SetupAnswer::ACCEPTED) => bail!(Peer, "{} accepts with port 0", self.target),
                Some(SetupAnswer::BAD_VERSION) if version_open => {
                    version_open = false;
                    self.version = Version::spoken(answer.version).with_context(|| {
                        format!(
                            "{} speaks version {} of the protocol; farwire speaks {} to {}",
                            self.target,
                            answer.version,
                            Version::OLDEST.number(),
                            Version::NEWEST.number()
                        )
                    })?;
                }
                Some(SetupAnswer::BAD_JUMBO) if std::mem::take(&mut jumbo_open) => {
                    self.sizes.jumbo = !self.sizes.jumbo;
                    self.note("datagrams", "sizes as the server requires them");
                }
                Some(SetupAnswer::BAD_TRADITIONAL) if std::mem::take(&mut traditional_open) => {
                    self.sizes.traditional = !self.sizes.traditional;
                    self.note("datagrams", "sizes as the server requires them");
                }
                Some(refusal) => bail!(Peer, "{} {refusal}", self.target),
                None => bail!(Peer, "{} requests a test instead of answering", self.target),
            }
        }
    }

    fn request_setup(&mut self) -> Result<Setup> {
        let request = Setup {
            version: self.version.number(),
            connections: 1,
            ident: fastrand::u16(1..),
            sizes: self.sizes,
            ..Setup::default()
        };
        self.exchange("the setup request", &request.encode(), |datagram| {
            let answer = Setup::decode(datagram)?;
            Ok((answer.ident == request.ident).then_some(answer))
        })
    }

    fn activate(
        &mut self,
        direction: Direction,
        parameters: &TestParameters,
    ) -> Result<Activation> {
        let request = Activation {
            direction,
            answer: None,
            parameters: *parameters,
            rate: SendingRate::default(),
        };
        let down = direction == Direction::Down;
        let version = self.version;
        let bytes = request.encode(version);
        let answer = self.exchange("the activation request", &bytes, |datagram| {
            // The answer was lost or overtaken; load from the server implies that it accepted.
            if down && LoadHeader::decode(datagram).is_ok() {
                let answer = Some(ActivationAnswer::ACCEPTED);
                return Ok(Some(Activation { answer, ..request }));
            }
            Activation::decode(datagram, version).map(Some)
        })?;
        match answer.answer {
            Some(ActivationAnswer::ACCEPTED) if answer.direction == direction => Ok(answer),
            Some(ActivationAnswer::ACCEPTED) => {
                bail!(Peer, "{} accepts the other direction", self.target)
            }
            Some(refusal) => bail!(Peer, "{} {refusal}", self.target),
            None => bail!(Peer, "{} requests a test instead of answering", self.target),
        }
    }

    /// Sends `request` repeatedly until `read` recognises its answer. Other datagrams are discarded, except that load
    /// stays in the socket.
    fn exchange<T>(
        &mut self,
        name: &str,
        request: &[u8],
        read: impl Fn(&[u8]) -> Result<Option<T>, MalformedMessage>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut times = RequestTimes::over(self.round_trip);
        let mut next = Duration::ZERO;
        let mut wrong = None;
        let mut buffer = [0; LONGEST_MESSAGE];
        while began.elapsed() < times.longest {
            check_stop(&self.session.stop)?;
            if began.elapsed() >= next {
                self.explained(self.socket.send(request))?;
                next += times.repeat;
                times.repeat *= times.growth;
            }
            let length = match self.socket.peek(&mut buffer) {
                Err(error) if is_timeout(&error) => continue,
                peeked => self.explained(peeked)?,
            };
            let datagram = &buffer[..length];
            // A null request comes shortly before or after the answer to the setup, and is no answer.
            let found = match is_null_request(datagram) {
                true => Ok(None),
                false => read(datagram),
            };
            if LoadHeader::decode(datagram).is_err() || !matches!(found, Ok(Some(_))) {
                self.explained(self.socket.recv(&mut buffer))?;
            }
            match found {
                Ok(Some(answer)) => {
                    let took = began.elapsed();
                    self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
                    return Ok(answer);
                }
                Ok(None) => {}
                Err(malformed) => {
                    // Something answers there, so the path is not too long for an answer.
                    times.longest = times.longest.min(SILENCE);
                    wrong = Some(malformed);
                }
            }
        }
        let cause = match wrong {
            Some(malformed) => format!("it sent something else: {malformed}"),
            None => "no UDP Speed Test server answers, or it refuses this client".to_owned(),
        };
        let (target, seconds) = (self.target, times.longest.as_secs());
        bail!(
            Peer,
            "{target} does not answer {name} within {seconds} s: {cause}"
        )
    }

    fn explained<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                Error::Peer(format!("{} refuses: no program listens there", self.target))
            }
            _ => Error::from(error).during(format!("asking {}", self.target)),
        })
    }

    fn note(&mut self, name: &str, text: impl ToString) {
        self.notes.push((name.to_owned(), text.to_string()));
    }

    /// Notes that the test is longer because of the path.
    fn note_extension(&mut self, agreed: &TestAgreement) {
        let longer = agreed.extension();
        if !longer.is_zero() {
            let text = format!(
                "the test lasts {} s longer, because the search sees the effect of its load only after a round trip of {:.1} s",
                longer.as_secs(),
                agreed.round_trip.as_secs_f64()
            );
            self.note("long_path", text);
        }
    }

    fn note_changes(&mut self, requested: &TestParameters, given: &TestParameters) {
        for (name, unit, asked, given) in [
            ("duration", "s", requested.duration_s, given.duration_s),
            (
                "sub_interval",
                "ms",
                requested.sub_interval_ms,
                given.sub_interval_ms,
            ),
        ] {
            if asked != given {
                let text =
                    format!("{asked} {unit} requested, {given} {unit} granted by the server");
                self.note(name, text);
            }
        }
        if (requested.thresholds, requested.algorithm) != (given.thresholds, given.algorithm) {
            self.note(
                "thresholds_asked",
                "the server changed some; these are the effective ones",
            );
        }
    }
}

/// Checks that the client can do the test that the server set, and that it lasts no longer than requested.
fn check(requested: &TestParameters, given: &TestParameters) -> Result<()> {
    let within = |name: &str, value: u16, least: u16, most: u16| {
        ensure!(
            Peer,
            (least..=most).contains(&value),
            "{name} of {value} is out of range: {least} to {most}"
        );
        Ok(())
    };
    within("a feedback interval in ms", given.feedback_ms, 5, 250)?;
    within("a sub-interval in ms", given.sub_interval_ms, 100, 10_000)?;
    let longest = requested.duration_s.max(REFERENCE_TIME_S);
    within("a duration in s", given.duration_s, 1, longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::wire::{Algorithm, StartRow, Thresholds};

    fn parameters(duration_s: u16) -> TestParameters {
        TestParameters {
            thresholds: Thresholds::default(),
            algorithm: Algorithm::B,
            feedback_ms: 50,
            duration_s,
            sub_interval_ms: 1000,
            start: StartRow::Lowest,
            one_way: false,
            ignore_reordering: true,
            random_payload: true,
        }
    }

    #[test]
    fn impossible_or_longer_parameters_of_a_server_are_refused() {
        let requested = parameters(20);
        check(&requested, &requested).unwrap();
        type Change = fn(&mut TestParameters);
        let changes: [(Change, &str); 5] = [
            (|p| p.feedback_ms = 0, "feedback interval in ms of 0"),
            (|p| p.feedback_ms = 251, "feedback interval in ms of 251"),
            (|p| p.sub_interval_ms = 0, "sub-interval in ms of 0"),
            (|p| p.duration_s = 0, "duration in s of 0"),
            (
                |p| p.duration_s = 21,
                "duration in s of 21 is out of range: 1 to 20",
            ),
        ];
        for (change, cause) in changes {
            let mut given = requested;
            change(&mut given);
            let error = check(&requested, &given).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn the_least_duration_of_the_reference_is_accepted() {
        let requested = parameters(2);
        let given = TestParameters {
            duration_s: REFERENCE_TIME_S,
            ..requested
        };
        check(&requested, &given).unwrap();
    }
}
