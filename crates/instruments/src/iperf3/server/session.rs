//! The test of one client, from its parameters to its end.

use crate::error::{Error, Result};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::dispatcher::Dispatcher;
use crate::iperf3::control::{ControlChannel, ControlError, ControlResult};
use crate::iperf3::messages::{Params, Results, TestResults};
use crate::iperf3::plan::{Iperf3Test, StreamSpec, Transport, Until};
use crate::iperf3::run::{self, Streams};
use crate::iperf3::tcp::{self, TcpStreams, report};
use crate::iperf3::udp::{self, UdpStreams};
use crate::iperf3::wire::{ControlState, Cookie, ErrorCode, LONGEST_PARAMS, LONGEST_RESULTS};
use crate::round_trip;
use crate::service::{
    AdmissionRefusal, ConnectionPermit, RefusalCause, ServiceLimits, TestResources, TestTime,
    TestTraffic, TrafficPublisher, keep_alive,
};
use netio::tcp::TcpInfo;
use record::Measurement;
use socket2::SockRef;

/// The time that a client may take to end its test beyond its duration: ten steps of 4 s, as in iperf3's server. Some
/// round trips are added.
const GRACE: Duration = Duration::from_secs(40);
/// The additional time for set-up per stream, since clients open streams one after the other. Two round trips are
/// added.
const TIME_PER_STREAM: Duration = Duration::from_secs(1);
/// The longest wait for data after the client has ended a test of a number of bytes. iperf3's clients wait 10 s for the
/// results.
const SETTLE: Duration = Duration::from_secs(8);

/// The failure of a test.
struct TestFailure {
    cause: ControlError,
    /// The error code for the client, if the cause leaves a choice.
    code: Option<ErrorCode>,
}

/// The result of a part of the test.
type SessionResult<T> = Result<T, TestFailure>;

/// Serves the client whose control connection has `cookie`, and logs its test.
pub(super) fn serve(
    dispatcher: &Dispatcher,
    mut control: ControlChannel,
    cookie: Cookie,
    place: &ConnectionPermit,
) {
    let shared = &dispatcher.shared;
    let test = ServerTest {
        dispatcher,
        limits: shared.limits(),
        cookie,
    };
    if keep_alive(&control.socket(), test.limits.idle).is_err() {
        return;
    }
    let began = Instant::now();
    let mut measurement = Measurement::default();
    let params = match test.exchange_params(&mut control) {
        Ok(params) => params,
        Err(failed) => {
            let (peer, why) = (control.peer(), failed.cause.to_string());
            match failed.refusal() {
                Some(cause) => shared.refused("iperf3", peer, cause, &why),
                None => {
                    measurement.failure = Some(why);
                    let time = TestTime::until_now(began);
                    shared.log("iperf3", peer, time, &measurement);
                }
            }
            return failed.notify(&mut control);
        }
    };
    let plan = &params.plan;
    let name = match plan.protocol {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let permit = match shared.admit(control.peer(), name, needs(plan, test.limits.duration)) {
        Ok(permit) => permit,
        Err(refusal) => return refuse(&mut control, refusal),
    };
    place.begin();
    let mut publisher = permit.publisher();
    let ways = u32::from(plan.direction.goes_up()) + u32::from(plan.direction.goes_down());
    let per_stream = TIME_PER_STREAM + round_trip::several(2, control.round_trip());
    let streams = per_stream * plan.parallel * ways;
    control.extend_set_up(streams.min(test.limits.duration));
    let outcome = match plan.protocol {
        Transport::Tcp => test.run_tcp(&mut control, plan, &mut publisher, &mut measurement),
        Transport::Udp => test.run_udp(&mut control, &params, &mut publisher, &mut measurement),
    };
    if let Err(failed) = outcome {
        measurement.failure = Some(failed.cause.to_string());
        failed.notify(&mut control);
    }
    permit.finish(&measurement);
}

/// Tells a client why it may not test.
pub(super) fn refuse(control: &mut ControlChannel, refusal: AdmissionRefusal) {
    let _ = match refusal {
        AdmissionRefusal::Busy(_) => control.send_state(ControlState::AccessDenied),
        AdmissionRefusal::NotAllowed => control.send_error(ErrorCode::NOT_ALLOWED),
    };
}

/// Returns the resources that a test of at most `longest` needs.
fn needs(plan: &Iperf3Test, longest: Duration) -> TestResources {
    let streams = plan.streams(false).len() as u64;
    let windows = streams * 2 * u64::from(plan.window.unwrap_or(0));
    let buffers = match plan.protocol {
        Transport::Tcp => u64::from(tcp::block(plan)),
        Transport::Udp => udp::memory(plan, longest),
    };
    TestResources {
        memory: windows + buffers,
        sockets: streams,
    }
}

/// The test of one client.
struct ServerTest<'a> {
    dispatcher: &'a Dispatcher,
    limits: ServiceLimits,
    cookie: Cookie,
}

impl ServerTest<'_> {
    fn exchange_params(&self, control: &mut ControlChannel) -> SessionResult<Params> {
        control.send_state(ControlState::ParamExchange)?;
        let (deadline, what) = (control.deadline(), "the parameters");
        let params = control
            .read_json(deadline, LONGEST_PARAMS, what, Params::parse)
            .map_err(|cause| TestFailure::with(cause, ErrorCode::PARAMS))?;
        self.check_limits(&params.plan)?;
        self.check_congestion(&params.plan)?;
        Ok(params)
    }

    fn check_congestion(&self, plan: &Iperf3Test) -> SessionResult<()> {
        let choices = self.dispatcher.shared.choices();
        match &plan.congestion {
            Some(name) if plan.protocol == Transport::Tcp && !choices.has(name) => {
                let (problem, code) = if choices.withholds(name) {
                    (
                        "this host has, but does not allow (net.ipv4.tcp_allowed_congestion_control)",
                        ErrorCode::CONGESTION_NOT_ALLOWED,
                    )
                } else {
                    ("this host does not have", ErrorCode::CONGESTION)
                };
                let text =
                    format!("it requested the TCP congestion control {name:?}, which {problem}");
                Err(TestFailure::with(ControlError::Protocol(text), code))
            }
            _ => Ok(()),
        }
    }

    fn check_limits(&self, plan: &Iperf3Test) -> SessionResult<()> {
        let refuse =
            |text: String, code| Err(TestFailure::with(ControlError::Protocol(text), code));
        let most = self.limits.duration;
        if let Some(asked) = plan.duration().filter(|asked| *asked > most) {
            let text = format!(
                "it requested a test of {} s; {} s are allowed",
                asked.as_secs(),
                most.as_secs()
            );
            return refuse(text, ErrorCode::TOO_LONG);
        }
        let TestResources { memory, .. } = needs(plan, most);
        if memory > self.limits.memory.0 {
            let text = format!(
                "it requested {memory} bytes of buffers; {} are allowed",
                self.limits.memory
            );
            return refuse(text, ErrorCode::MEMORY);
        }
        Ok(())
    }

    fn run_tcp(
        &self,
        control: &mut ControlChannel,
        plan: &Iperf3Test,
        publisher: &mut TrafficPublisher,
        measurement: &mut Measurement,
    ) -> SessionResult<()> {
        let connections = &self.dispatcher.connections;
        let waiting = connections
            .wait(self.cookie, control, Instant::now())
            .map_err(TestFailure::stream)?;
        control.send_state(ControlState::CreateStreams)?;
        let specs = plan.streams(false);
        let mut accepted = waiting
            .accept(control, specs.len(), |_| ())
            .map_err(TestFailure::stream)?;
        accepted.sort_by_key(|(order, _)| *order);
        let with_options = |(spec, (_, socket)): (StreamSpec, (u64, TcpStream))| {
            let peer = socket.peer_addr()?.ip();
            tcp::set_options(plan, &SockRef::from(&socket), peer, false)?;
            Ok((spec, socket))
        };
        let sockets: Result<_> = specs.into_iter().zip(accepted).map(with_options).collect();
        let sockets = sockets.map_err(|error| connection_failed(&error))?;
        let mut streams = TcpStreams::new(plan, sockets).without_intervals();
        let (sides, outcome) = self.run(control, plan, publisher, &mut streams);
        *measurement = report::measurement(plan, &streams, &sides, false);
        outcome
    }

    fn run_udp(
        &self,
        control: &mut ControlChannel,
        params: &Params,
        publisher: &mut TrafficPublisher,
        measurement: &mut Measurement,
    ) -> SessionResult<()> {
        let plan = &params.plan;
        let source = control.peer().ip().to_canonical();
        let datagrams = &self.dispatcher.datagrams;
        let waiting = datagrams.wait(source, control, control.deadline())?;
        control.send_state(ControlState::CreateStreams)?;
        let specs = plan.streams(false);
        // If the last answer is lost, the client greets again on the stream that it has.
        let sockets = waiting.accept(control, specs.len(), udp::wire::answer_repeated)?;
        let mut streams = UdpStreams::new(params, &specs, sockets, false)
            .map_err(|error| connection_failed(&error))?;
        let (sides, outcome) = self.run(control, plan, publisher, &mut streams);
        *measurement = udp::measurement(&streams, &sides);
        outcome
    }

    /// Runs the test over its streams of either protocol, and exchanges results.
    fn run(
        &self,
        control: &mut ControlChannel,
        plan: &Iperf3Test,
        publisher: &mut TrafficPublisher,
        streams: &mut impl Streams,
    ) -> (TestResults, SessionResult<()>) {
        let mut sides = TestResults::default();
        let outcome = self.run_and_exchange(control, plan, publisher, streams, &mut sides);
        publisher.finish(&traffic(streams, control));
        streams.close();
        (sides, outcome)
    }

    fn run_and_exchange(
        &self,
        control: &mut ControlChannel,
        plan: &Iperf3Test,
        publisher: &mut TrafficPublisher,
        streams: &mut impl Streams,
        sides: &mut TestResults,
    ) -> SessionResult<()> {
        control.set_up();
        control.send_state(ControlState::TestStart)?;
        control.send_state(ControlState::TestRunning)?;
        let outcome;
        (sides.local, outcome) = self.run_streams(control, plan, publisher, streams);
        outcome?;
        if let Until::For(_) = plan.until {
            // As in iperf3, the sockets are closed so that queued data does not delay the results.
            streams.close();
        }
        control.send_state(ControlState::ExchangeResults)?;
        let (deadline, what) = (control.deadline(), "the client's results");
        let remote = control
            .read_json(deadline, LONGEST_RESULTS, what, Results::parse)
            .map_err(|cause| TestFailure::with(cause, ErrorCode::RESULTS))?;
        if plan.protocol == Transport::Udp || matches!(plan.until, Until::Bytes(_)) {
            run::settle(streams, sides, &remote, control, SETTLE);
        }
        sides.remote = Some(remote);
        control.send_json(&sides.local.to_json(), "the results")?;
        control.send_state(ControlState::DisplayResults)?;
        // A client that closes the connection without sending it has everything that it wanted.
        let deadline = control.deadline();
        let _ = control.expect(ControlState::Done, deadline);
        Ok(())
    }

    fn run_streams(
        &self,
        control: &mut ControlChannel,
        plan: &Iperf3Test,
        publisher: &mut TrafficPublisher,
        streams: &mut impl Streams,
    ) -> (Results, ControlResult<()>) {
        let round_trip = control.round_trip();
        let longest = plan.duration().map_or(self.limits.duration, |time| {
            time + round_trip::extended(GRACE, round_trip)
        });
        let began = Instant::now();
        let sends = plan.direction.goes_down();
        let silence = round_trip::extended(self.limits.idle, round_trip);
        run::run(plan, streams, sends, silence, |streams, _, until| {
            publisher.publish(|| traffic(streams, control));
            match control.poll_state(until)? {
                Some(ControlState::TestEnd) => return Ok(true),
                Some(state) => return Err(control.unexpected(state, "TEST_END (4)")),
                None => {}
            }
            if began.elapsed() > longest {
                return Err(ControlError::Overdue(format!(
                    "TEST_END (4) did not arrive within {} s",
                    longest.as_secs()
                )));
            }
            match streams.progress().broken {
                Some(cause) => Err(ControlError::Connection(cause)),
                None => Ok(false),
            }
        })
    }
}

/// Returns the traffic of a test. Datagrams show no round-trip time, so that it has the control connection's.
fn traffic(streams: &impl Streams, control: &ControlChannel) -> TestTraffic {
    let traffic = streams.traffic();
    let of_control = || {
        let info = TcpInfo::of(&*control.socket()).ok()?;
        Some(info.rtt).filter(|time| !time.is_zero())
    };
    TestTraffic {
        round_trip: traffic.round_trip.or_else(of_control),
        ..traffic
    }
}

/// Returns the failure of streams that cannot be set up.
fn connection_failed(error: &Error) -> TestFailure {
    ControlError::Connection(format!("{error:#}")).into()
}

impl TestFailure {
    /// Returns the cause for which the far end refuses the client's request, or `None` if the test failed without a
    /// refusal.
    fn refusal(&self) -> Option<RefusalCause> {
        match self.code? {
            ErrorCode::TOO_LONG | ErrorCode::MEMORY => Some(RefusalCause::OverLimit),
            ErrorCode::CONGESTION | ErrorCode::CONGESTION_NOT_ALLOWED => {
                Some(RefusalCause::Congestion)
            }
            _ => None,
        }
    }

    fn with(cause: ControlError, code: ErrorCode) -> Self {
        let code = Some(code);
        Self { cause, code }
    }

    /// Returns the failure of streams that could not be opened.
    fn stream(cause: ControlError) -> Self {
        Self::with(cause, ErrorCode::STREAM)
    }

    /// Tells the client. An error is ignored, since the client may be gone.
    fn notify(self, control: &mut ControlChannel) {
        let usual = match self.cause {
            ControlError::PeerGaveUp(..) => return,
            ControlError::Stopped(_) => return control.give_up(ControlState::ServerTerminate),
            ControlError::Connection(_) => return drop(control.send_error(ErrorCode::STREAM)),
            ControlError::TimedOut(_) => ErrorCode::SILENCE,
            ControlError::Overdue(_) => ErrorCode::EXPIRED,
            ControlError::Protocol(_) => ErrorCode::MESSAGE,
        };
        let _ = control.send_error(self.code.unwrap_or(usual));
    }
}

impl From<ControlError> for TestFailure {
    fn from(cause: ControlError) -> Self {
        Self { cause, code: None }
    }
}
