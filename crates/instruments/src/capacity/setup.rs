//! The client's side of what comes before the test: set-up, then activation.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, LoadHeader, Malformed, SendingRate, Setup,
    SetupAnswer, Sizes, TestParameters, Version,
};
use super::{CapacityPlan, SILENCE};
use crate::Session;
use crate::endpoint::{self, Local};
use netio::stop::STOP_INTERVAL;
use record::Direction;

/// A request is repeated after so long, until [`SILENCE`] has passed.
const REPEAT: Duration = Duration::from_secs(1);
/// What the reference's server makes of a time that it finds too short, in seconds.
const REFERENCE_TIME_S: u16 = 10;

/// What both ends agreed upon.
pub(super) struct Agreement {
    /// Connected to the test's port.
    pub(super) socket: UdpSocket,
    pub(super) version: Version,
    pub(super) sizes: Sizes,
    /// As the server set them.
    pub(super) parameters: TestParameters,
    /// Upstream: the rate to begin with.
    pub(super) rate: SendingRate,
    /// What is not as it was asked for.
    pub(super) notes: Vec<(String, String)>,
}

/// Asks the server for a test.
///
/// # Errors
/// It refuses, and why; it does not answer within [`SILENCE`]; it answers what is no answer; a signal.
pub(super) fn agree(
    target: SocketAddr,
    local: Option<&Local>,
    plan: &CapacityPlan,
    session: &Session,
) -> Result<Agreement> {
    let socket = endpoint::udp(target, local)?;
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    let mut asking = Asking {
        socket,
        target,
        session,
        version: Version::NEWEST,
        sizes: plan.datagrams.map(Sizes::from).unwrap_or_default(),
        notes: Vec::new(),
    };
    let port = asking.set_up(plan.datagrams.is_none())?;
    asking
        .socket
        .connect(SocketAddr::new(target.ip(), port))
        .with_context(|| format!("no way to port {port} of {target}"))?;
    let answer = asking.activate(plan)?;
    check(&plan.parameters(), &answer.parameters)
        .with_context(|| format!("{target} accepts what cannot be"))?;
    asking.note_changes(&plan.parameters(), &answer.parameters);
    Ok(Agreement {
        socket: asking.socket,
        version: asking.version,
        sizes: asking.sizes,
        parameters: answer.parameters,
        rate: answer.rate,
        notes: asking.notes,
    })
}

struct Asking<'a> {
    socket: UdpSocket,
    target: SocketAddr,
    session: &'a Session,
    version: Version,
    sizes: Sizes,
    notes: Vec<(String, String)>,
}

impl Asking<'_> {
    /// The test's port. Gives in once to the server's version, and to its sizes if `sizes_are_open`.
    fn set_up(&mut self, sizes_are_open: bool) -> Result<u16> {
        let (mut version_open, mut jumbo_open, mut traditional_open) =
            (true, sizes_are_open, sizes_are_open);
        loop {
            let answer = self.request_setup()?;
            match answer.answer {
                Some(SetupAnswer::Accepted) if answer.port != 0 => return Ok(answer.port),
                Some(SetupAnswer::Accepted) => bail!("{} accepts on port 0", self.target),
                Some(SetupAnswer::BadVersion) if version_open => {
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
                Some(SetupAnswer::BadJumbo) if jumbo_open => {
                    jumbo_open = false;
                    self.sizes.jumbo = !self.sizes.jumbo;
                    self.note("datagrams", "sizes as the server wants them");
                }
                Some(SetupAnswer::BadTraditional) if traditional_open => {
                    traditional_open = false;
                    self.sizes.traditional = !self.sizes.traditional;
                    self.note("datagrams", "sizes as the server wants them");
                }
                Some(refusal) => bail!("{} {refusal}", self.target),
                None => bail!("{} asks for a test instead of answering", self.target),
            }
        }
    }

    fn request_setup(&self) -> Result<Setup> {
        let request = Setup {
            version: self.version.number(),
            connection: 0,
            connections: 1,
            ident: fastrand::u16(1..),
            answer: None,
            port: 0,
            sizes: self.sizes,
            authentication: 0,
        };
        self.ask("the setup request", &request.encode(), |datagram| {
            let answer = Setup::decode(datagram)?;
            Ok((answer.ident == request.ident).then_some(answer))
        })
    }

    fn activate(&mut self, plan: &CapacityPlan) -> Result<Activation> {
        let request = Activation {
            direction: plan.direction,
            answer: None,
            parameters: plan.parameters(),
            rate: SendingRate::default(),
        };
        let down = plan.direction == Direction::Down;
        let version = self.version;
        let answer = self.ask(
            "the activation request",
            &request.encode(version),
            |datagram| {
                // The answer was lost or overtaken: load says as much.
                if down && LoadHeader::decode(datagram).is_ok() {
                    let answer = Some(ActivationAnswer::Accepted);
                    return Ok(Some(Activation { answer, ..request }));
                }
                Activation::decode(datagram, version).map(Some)
            },
        )?;
        match answer.answer {
            Some(ActivationAnswer::Accepted) if answer.direction == plan.direction => Ok(answer),
            Some(ActivationAnswer::Accepted) => bail!("{} accepts another direction", self.target),
            Some(refusal) => bail!("{} {refusal}", self.target),
            None => bail!("{} asks for a test instead of answering", self.target),
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
            if let Some(cause) = self.session.stop.cause() {
                bail!("{cause}");
            }
            if began.elapsed() >= REPEAT * asked {
                self.socket
                    .send(request)
                    .map_err(|error| self.explain(error))?;
                asked += 1;
            }
            let length = match self.socket.peek(&mut buffer) {
                Ok(length) => length,
                Err(error) if is_time_out(&error) => continue,
                Err(error) => return Err(self.explain(error)),
            };
            let datagram = &buffer[..length];
            let found = read(datagram);
            if LoadHeader::decode(datagram).is_err() || !matches!(found, Ok(Some(_))) {
                self.socket
                    .recv(&mut buffer)
                    .map_err(|error| self.explain(error))?;
            }
            match found {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(malformed) => wrong = Some(malformed),
            }
        }
        let within = format!(
            "{} does not answer {name} within {} s",
            self.target,
            SILENCE.as_secs()
        );
        Err(match wrong {
            Some(malformed) => anyhow!("{within}: it sent a {malformed}"),
            None => {
                anyhow!("{within}: no UDP Speed Test server, or one that does not take this client")
            }
        })
    }

    fn explain(&self, error: io::Error) -> anyhow::Error {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            anyhow!("{} refuses: nothing listens there", self.target)
        } else {
            anyhow!(error).context(format!("asking {}", self.target))
        }
    }

    fn note(&mut self, name: &str, text: impl ToString) {
        self.notes.push((name.to_owned(), text.to_string()));
    }

    fn note_changes(&mut self, asked: &TestParameters, given: &TestParameters) {
        if asked.duration_s != given.duration_s {
            let text = format!(
                "{} s asked for, the server made it {} s",
                asked.duration_s, given.duration_s
            );
            self.note("duration", text);
        }
        if asked.sub_interval_ms != given.sub_interval_ms {
            let (asked, given) = (asked.sub_interval_ms, given.sub_interval_ms);
            self.note(
                "sub_interval",
                format!("{asked} ms asked for, the server made it {given} ms"),
            );
        }
        let thresholds = |p: &TestParameters| {
            (
                p.low_ms,
                p.upper_ms,
                p.sequence_errors,
                p.slow_threshold,
                p.high_speed_delta,
                p.algorithm,
            )
        };
        if thresholds(asked) != thresholds(given) {
            self.note(
                "thresholds_asked",
                "the server changed some: those in effect are given",
            );
        }
    }
}

/// Whether the server has set a test that the client can do, of a time that it asked for.
fn check(asked: &TestParameters, given: &TestParameters) -> Result<()> {
    let within = |name: &str, value: u16, least: u16, most: u16| {
        ensure!(
            (least..=most).contains(&value),
            "{name} of {value}: {least} to {most} are possible"
        );
        Ok(())
    };
    within("a feedback interval in ms", given.feedback_ms, 5, 250)?;
    within("a sub-interval in ms", given.sub_interval_ms, 100, 10_000)?;
    let longest = asked.duration_s.max(REFERENCE_TIME_S);
    within("a duration in s", given.duration_s, 1, longest)
}

fn is_time_out(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::{Algorithm, Thresholds};

    #[test]
    fn a_server_cannot_set_what_cannot_be_nor_what_takes_longer() {
        let plan = CapacityPlan {
            direction: Direction::Down,
            duration: Duration::from_secs(20),
            sub_interval: Duration::from_secs(1),
            algorithm: Algorithm::B,
            thresholds: Thresholds::default(),
            datagrams: None,
        };
        let asked = plan.parameters();
        check(&asked, &asked).unwrap();
        type Change = fn(&mut TestParameters);
        let changes: [(Change, &str); 5] = [
            (|p| p.feedback_ms = 0, "feedback interval in ms of 0"),
            (|p| p.feedback_ms = 251, "feedback interval in ms of 251"),
            (|p| p.sub_interval_ms = 0, "sub-interval in ms of 0"),
            (|p| p.duration_s = 0, "duration in s of 0"),
            (|p| p.duration_s = 21, "duration in s of 21: 1 to 20"),
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
        let plan = CapacityPlan {
            direction: Direction::Up,
            duration: Duration::from_secs(2),
            sub_interval: Duration::from_secs(1),
            algorithm: Algorithm::B,
            thresholds: Thresholds::default(),
            datagrams: None,
        };
        let given = TestParameters {
            duration_s: REFERENCE_TIME_S,
            ..plan.parameters()
        };
        check(&plan.parameters(), &given).unwrap();
    }
}
