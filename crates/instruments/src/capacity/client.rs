//! The client: set-up and activation, then the test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result, bail, ensure};
use netio::stop::STOP_INTERVAL;
use record::{Direction, Measurement};

use super::CapacityArgs;
use super::channel::{Channel, now};
use super::exchange::Exchange;
use super::outcome::{Agreed, SILENCE};
use super::results::measurement;
use super::search::RateControl;
use super::session::TestSession;
use super::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, LoadHeader, Malformed, SendingRate, Setup,
    SetupAnswer, Sizes, TestParameters, Version,
};
use crate::Session;
use crate::endpoint;
use crate::failure::go_on;
use crate::iperf3::control::is_pause;

/// A request is repeated after so long, until [`SILENCE`] has passed.
const REPEAT: Duration = Duration::from_secs(1);
/// What the reference's server makes of a time that it finds too short, in seconds.
const REFERENCE_TIME_S: u16 = 10;

/// Measures the capacity between here and the server whose control port `target` is.
///
/// # Errors
/// No test began.
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
        notes: Vec::new(),
    };
    let port = request.set_up(args.datagrams.is_none())?;
    request
        .socket
        .connect(SocketAddr::new(target.ip(), port))
        .with_context(|| format!("port {port} of {target} cannot be reached"))?;
    let asked = parameters;
    let Activation {
        parameters, rate, ..
    } = request.activate(args.direction(), asked)?;
    check(asked, &parameters).with_context(|| format!("{target} accepts impossible parameters"))?;
    request.note_changes(asked, &parameters);
    let agreed = Agreed {
        peer: target,
        direction: args.direction(),
        version: request.version,
        sizes: request.sizes,
        parameters,
        is_server: false,
    };
    let control = RateControl::new(agreed.sizes, &parameters);
    let exchange = Exchange {
        channel: Channel::new(request.socket)?,
        session: TestSession::client(agreed, control, &rate, now()),
        stop: &|| session.stop.cause().map(|cause| cause.to_string()),
        live: session.live,
    };
    let mut measurement = measurement(&exchange.run(), &agreed);
    measurement.facts.extend(request.notes);
    Ok(measurement)
}

/// A test that is being asked for.
struct TestRequest<'a> {
    /// Connected to the control port, and after set-up to the test's.
    socket: UdpSocket,
    target: SocketAddr,
    session: &'a Session,
    version: Version,
    sizes: Sizes,
    /// What is not as it was asked for.
    notes: Vec<(String, String)>,
}

impl TestRequest<'_> {
    /// The test's port. Gives in once to the server's version, and to its sizes if `sizes_are_open`.
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

    fn request_setup(&self) -> Result<Setup> {
        let request = Setup {
            version: self.version.number(),
            connections: 1,
            ident: fastrand::u16(1..),
            sizes: self.sizes,
            ..Setup::default()
        };
        self.ask("the setup request", &request.encode(), |datagram| {
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
        let answer = self.ask("the activation request", &bytes, |datagram| {
            // The answer was lost or overtaken: load says as much.
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

    /// Sends `request` until `read` finds its answer; other datagrams are passed over. Load is left in the socket.
    fn ask<T>(
        &self,
        name: &str,
        request: &[u8],
        read: impl Fn(&[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut asked = 0;
        let mut wrong = None;
        let mut buffer = [0; LONGEST_MESSAGE];
        while began.elapsed() < SILENCE {
            go_on(&self.session.stop)?;
            if began.elapsed() >= REPEAT * asked {
                self.explained(self.socket.send(request))?;
                asked += 1;
            }
            let length = match self.socket.peek(&mut buffer) {
                Err(error) if is_pause(&error) => continue,
                peeked => self.explained(peeked)?,
            };
            let datagram = &buffer[..length];
            let found = read(datagram);
            if LoadHeader::decode(datagram).is_err() || !matches!(found, Ok(Some(_))) {
                self.explained(self.socket.recv(&mut buffer))?;
            }
            match found {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(malformed) => wrong = Some(malformed),
            }
        }
        let cause = match wrong {
            Some(malformed) => format!("it sent a {malformed}"),
            None => "no UDP Speed Test server answers, or it refuses this client".to_owned(),
        };
        let (target, seconds) = (self.target, SILENCE.as_secs());
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

    fn note_changes(&mut self, asked: &TestParameters, given: &TestParameters) {
        for (name, unit, asked, given) in [
            ("duration", "s", asked.duration_s, given.duration_s),
            (
                "sub_interval",
                "ms",
                asked.sub_interval_ms,
                given.sub_interval_ms,
            ),
        ] {
            if asked != given {
                let text =
                    format!("{asked} {unit} requested, {given} {unit} granted by the server");
                self.note(name, text);
            }
        }
        if (asked.thresholds, asked.algorithm) != (given.thresholds, given.algorithm) {
            self.note(
                "thresholds_asked",
                "the server changed some; these are the effective ones",
            );
        }
    }
}

/// Whether the server has set a test that the client can do, of a time that it asked for.
fn check(asked: &TestParameters, given: &TestParameters) -> Result<()> {
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
    let longest = asked.duration_s.max(REFERENCE_TIME_S);
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
    fn a_server_cannot_set_what_cannot_be_nor_what_takes_longer() {
        let asked = parameters(20);
        check(&asked, &asked).unwrap();
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
            let mut given = asked;
            change(&mut given);
            let error = check(&asked, &given).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn the_reference_s_least_time_is_taken() {
        let asked = parameters(2);
        let given = TestParameters {
            duration_s: REFERENCE_TIME_S,
            ..asked
        };
        check(&asked, &given).unwrap();
    }
}
