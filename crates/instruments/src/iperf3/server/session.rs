//! One client's test, from its parameters to its end.

use std::net::TcpStream;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::desk::{Arrival, Desk, Waiting};
use crate::iperf3::control::{Broken, Control};
use crate::iperf3::params::Params;
use crate::iperf3::plan::{Plan, Protocol, StreamSpec, Streams, Until};
use crate::iperf3::results::{Results, Sides};
use crate::iperf3::run;
use crate::iperf3::run::Ended;
use crate::iperf3::tcp;
use crate::iperf3::tcp::{Options, TcpStreams, report};
use crate::iperf3::wire::{Cookie, ErrorCode, LONGEST_PARAMS, LONGEST_RESULTS, State};
use crate::service::{Limits, Permit, Refusal};
use crate::udp;
use crate::udp::{End, UdpStreams};
use netio::stop::STOP_INTERVAL;
use record::Measurement;

/// How much longer than it said a client may take to end its test: ten steps of 4 s, as iperf3's server has it.
const GRACE: Duration = Duration::from_secs(40);
/// How long bytes may still come in after the client's word that a test of so many is over; iperf3's clients wait 10 s for
/// the results.
const SETTLE: Duration = Duration::from_secs(8);

/// Why a test came to nothing, and what the client is told.
struct Failed {
    broken: Broken,
    tell: Tell,
}

enum Tell {
    Nothing,
    Terminate,
    Error(ErrorCode),
}

/// A step of the server.
type Outcome<T> = Result<T, Failed>;

/// Serves the client whose control connection bears `cookie`, and logs its test.
pub(crate) fn serve(desk: &Desk, mut control: Control, cookie: Cookie) {
    let permit = match desk.shared.admit(control.peer(), "iperf3") {
        Ok(permit) => permit,
        Err(refusal) => return refuse(&mut control, refusal),
    };
    let mut session = Session {
        desk,
        limits: desk.shared.limits(),
        cookie,
        measurement: Measurement::default(),
    };
    let outcome = session.exchange_params(&mut control);
    let (permit, outcome) = match outcome {
        Ok(params) => session.test(&mut control, permit, &params),
        Err(failed) => (permit, Err(failed)),
    };
    if let Err(Failed { broken, tell }) = outcome {
        session.measurement.failure = Some(broken.to_string());
        // The client may be gone: then there is nobody to tell.
        let _ = match tell {
            Tell::Nothing => Ok(()),
            Tell::Terminate => {
                control.farewell(State::ServerTerminate);
                Ok(())
            }
            Tell::Error(code) => control.send_error(code),
        };
    }
    permit.finish(&session.measurement);
}

/// Tells a client why it may not test.
pub(crate) fn refuse(control: &mut Control, refusal: Refusal) {
    let _ = match refusal {
        Refusal::Busy(_) => control.send_state(State::AccessDenied),
        Refusal::NotAllowed => control.send_error(ErrorCode::NOT_ALLOWED),
    };
}

struct Session<'a> {
    desk: &'a Desk,
    limits: Limits,
    cookie: Cookie,
    measurement: Measurement,
}

impl Session<'_> {
    fn exchange_params(&self, control: &mut Control) -> Outcome<Params> {
        control.send_state(State::ParamExchange)?;
        let text = control
            .read_json(LONGEST_PARAMS, "the parameters")
            .map_err(|broken| Failed::with(broken, ErrorCode::PARAMS))?;
        let params = Params::parse(&text).map_err(|error| {
            let text = format!("the parameters cannot be read: {error:#}");
            Failed::with(Broken::Garbage(text), ErrorCode::PARAMS)
        })?;
        self.check_limits(&params.plan)?;
        Ok(params)
    }

    fn check_limits(&self, plan: &Plan) -> Outcome<()> {
        let refuse = |text: String, code| Err(Failed::with(Broken::Garbage(text), code));
        let most = self.limits.duration;
        if let Some(asked) = plan.duration().filter(|asked| *asked > most) {
            let text = format!(
                "it asked for {} s of test; {} s are allowed",
                asked.as_secs(),
                most.as_secs()
            );
            return refuse(text, ErrorCode::TOO_LONG);
        }
        let windows = plan.streams(false).len() as u64 * 2 * u64::from(plan.window.unwrap_or(0));
        let memory = windows
            + match plan.protocol {
                Protocol::Tcp => u64::from(tcp::block(plan)),
                Protocol::Udp => udp::memory(plan),
            };
        if memory > self.limits.memory.0 {
            let text = format!(
                "it asked for {memory} bytes of buffers; {} are allowed",
                self.limits.memory
            );
            return refuse(text, ErrorCode::MEMORY);
        }
        Ok(())
    }

    fn test(
        &mut self,
        control: &mut Control,
        permit: Permit,
        params: &Params,
    ) -> (Permit, Outcome<()>) {
        let plan = &params.plan;
        match plan.protocol {
            Protocol::Tcp => (permit.called("tcp"), self.tcp(control, plan)),
            Protocol::Udp => (permit.called("udp"), self.udp(control, params)),
        }
    }

    fn tcp(&mut self, control: &mut Control, plan: &Plan) -> Outcome<()> {
        let Some(waiting) = self.desk.await_streams(self.cookie) else {
            let text = "another test has the same cookie".to_owned();
            return Err(Failed::with(Broken::Garbage(text), ErrorCode::STREAM));
        };
        control.send_state(State::CreateStreams)?;
        let sockets = accept_streams(control, waiting, plan)?;
        let mut streams = TcpStreams::new(plan, sockets).without_intervals();
        let (sides, outcome) = self.run(control, plan, &mut streams);
        self.measurement = report::measurement(plan, &streams, &sides, false);
        outcome
    }

    fn udp(&mut self, control: &mut Control, params: &Params) -> Outcome<()> {
        let plan = &params.plan;
        let turn = self.desk.datagrams.turn(control)?;
        control.send_state(State::CreateStreams)?;
        let specs = plan.streams(false);
        let sockets = turn.accept(control, specs.len())?;
        let mut streams = UdpStreams::new(params, &specs, sockets, End::Server)
            .map_err(|error| Failed::with(Broken::Gone(format!("{error:#}")), ErrorCode::STREAM))?;
        let (sides, outcome) = self.run(control, plan, &mut streams);
        self.measurement = udp::measurement(&streams, &sides);
        outcome
    }

    /// Runs the test over its streams, whatever they are, and exchanges results.
    fn run(
        &self,
        control: &mut Control,
        plan: &Plan,
        streams: &mut impl Streams,
    ) -> (Sides, Outcome<()>) {
        let mut sides = Sides::default();
        let outcome = self.run_and_exchange(control, plan, streams, &mut sides);
        streams.close();
        (sides, outcome)
    }

    fn run_and_exchange(
        &self,
        control: &mut Control,
        plan: &Plan,
        streams: &mut impl Streams,
        sides: &mut Sides,
    ) -> Outcome<()> {
        control.send_state(State::TestStart)?;
        control.send_state(State::TestRunning)?;
        let ended = self.run_streams(control, plan, streams);
        streams.stop(Instant::now());
        sides.local = Results::of(streams, plan.way.goes_down(), ended.lasted);
        ended.outcome?;
        if let Until::For(_) = plan.until {
            // As iperf3 does: what is still queued must not stand in the way of the results.
            streams.close();
        }
        control.send_state(State::ExchangeResults)?;
        let text = control
            .read_json(LONGEST_RESULTS, "the client's results")
            .map_err(|broken| Failed::with(broken, ErrorCode::RESULTS))?;
        let remote = Results::parse(&text).map_err(|error| {
            let text = format!("the client's results cannot be read: {error:#}");
            Failed::with(Broken::Garbage(text), ErrorCode::RESULTS)
        })?;
        if plan.protocol == Protocol::Udp || matches!(plan.until, Until::Bytes(_)) {
            let late = Instant::now() + SETTLE;
            let enough = || Instant::now() >= late || control.check().is_err();
            streams.settle(&remote.streams, &enough);
            sides.local.streams = streams.results();
        }
        sides.remote = Some(remote);
        control.send_json(&sides.local.to_json(), "the results")?;
        control.send_state(State::DisplayResults)?;
        // A client that closes without this word has all that it wanted.
        let deadline = control.deadline();
        let _ = control.expect(State::Done, deadline);
        Ok(())
    }

    fn run_streams(&self, control: &mut Control, plan: &Plan, streams: &mut impl Streams) -> Ended {
        let longest = plan
            .duration()
            .map_or(self.limits.duration, |time| time + GRACE);
        let begun = Instant::now();
        run::run(plan, streams, self.limits.idle, |streams, _, until| {
            match control.poll_state(until)? {
                Some(State::TestEnd) => return Ok(true),
                Some(state) => return Err(control.unexpected(state, "TEST_END (4)")),
                None => {}
            }
            if begun.elapsed() > longest {
                return Err(Broken::Overdue(format!(
                    "TEST_END (4) did not come within {} s",
                    longest.as_secs()
                )));
            }
            match streams.progress().broken {
                Some(cause) => Err(Broken::Gone(cause)),
                None => Ok(false),
            }
        })
    }
}

/// The data connections of a test, in the order in which they were accepted, with their options set.
fn accept_streams(
    control: &Control,
    waiting: Waiting<'_>,
    plan: &Plan,
) -> Outcome<Vec<(StreamSpec, TcpStream)>> {
    let specs = plan.streams(false);
    let mut arrived: Vec<Arrival> = Vec::new();
    let mut deadline = control.deadline();
    while arrived.len() < specs.len() {
        control.check()?;
        match waiting.arrivals.recv_timeout(STOP_INTERVAL) {
            Ok(arrival) => {
                arrived.push(arrival);
                deadline = control.deadline();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(RecvTimeoutError::Timeout) => {
                let text = format!("{} of {} streams came", arrived.len(), specs.len());
                return Err(Failed::with(Broken::Silent(text), ErrorCode::STREAM));
            }
        }
    }
    arrived.sort_by_key(|(order, _)| *order);
    for (_, socket) in &arrived {
        Options(plan)
            .after_accepting(socket)
            .map_err(|error| Failed::with(Broken::Gone(format!("{error:#}")), ErrorCode::STREAM))?;
    }
    let sockets = arrived.into_iter().map(|(_, socket)| socket);
    Ok(specs.into_iter().zip(sockets).collect())
}

impl Failed {
    fn with(broken: Broken, code: ErrorCode) -> Self {
        match broken {
            // Who ended it, or is gone, is told nothing.
            Broken::Told(..) | Broken::Gone(_) if code != ErrorCode::STREAM => broken.into(),
            Broken::Stopped(_) => broken.into(),
            broken => Self {
                broken,
                tell: Tell::Error(code),
            },
        }
    }
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Self {
        let tell = match &broken {
            Broken::Told(..) => Tell::Nothing,
            Broken::Stopped(_) => Tell::Terminate,
            Broken::Gone(_) => Tell::Error(ErrorCode::STREAM),
            Broken::Silent(_) => Tell::Error(ErrorCode::SILENCE),
            Broken::Overdue(_) => Tell::Error(ErrorCode::EXPIRED),
            Broken::Garbage(_) => Tell::Error(ErrorCode::MESSAGE),
        };
        Self { broken, tell }
    }
}
