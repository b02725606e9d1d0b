//! The client's side of a test: the control session, within which the TCP or UDP streams run.

use crate::error::Result;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::control::{ControlChannel, ControlError, ControlResult, MESSAGE_TIMEOUT};
use super::messages::{Params, Results, TestResults};
use super::plan::{StreamSpec, Transport, Until};
use super::run::{self, Streams};
use super::wire::{ControlState, Cookie, LONGEST_RESULTS};
use crate::Session;
use crate::endpoint::{self, Local};
use crate::round_trip;
use model::Nanos;
use netio::clock;
use netio::stop::Stop;

/// The time without progress on any stream after which the path or the server counts as dead.
const SILENCE: Duration = Duration::from_secs(30);
/// The time from the last byte's acknowledgement (in tests of a number of bytes) or the last datagram to `TEST_END`.
/// iperf3's server stops counting at that message, and the latest data may still be in its receive buffer.
const LINGER: Duration = Duration::from_millis(50);

/// The longest wait for datagrams that the server has sent, after its results.
const SETTLE: Duration = Duration::from_secs(1);

/// The server, and the settings to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Iperf3Server {
    /// Address of its control port, which is also the port of the data.
    pub(crate) address: SocketAddr,
    /// The local address or interface to send from.
    pub(crate) local: Option<Local>,
    /// The time-out for a connection.
    pub(crate) connect_timeout: Duration,
    /// The time-out for a message of the server. The round trips of the path are added.
    pub(crate) message_timeout: Duration,
    /// The longest time without progress while the test runs. The round trips of the path are added.
    pub(crate) silence: Duration,
    /// Takes the moment at which the streams start to run, if somebody waits for it.
    pub(crate) started: Option<Sender<Nanos>>,
}

/// A test that ended, with or without success.
#[derive(Debug)]
pub(crate) struct ClientOutcome<S> {
    /// The client's streams with their counts, or `None` if the test did not reach that point.
    pub(crate) streams: Option<S>,
    /// The results of both ends.
    pub(crate) sides: TestResults,
    /// The cookie of the test.
    pub(crate) cookie: Cookie,
    /// The reason why the test failed, if it did.
    pub(crate) failure: Option<String>,
}

/// The parameters with which a protocol opens its streams.
#[derive(Debug)]
pub(crate) struct StreamSetup<'a> {
    /// The server.
    pub(crate) server: &'a Iperf3Server,
    /// The parameters of the test. The length is always present for UDP.
    pub(crate) params: &'a Params,
    /// The stop of the measurement.
    pub(crate) stop: &'a Stop,
    /// The cookie, which a TCP stream sends first.
    pub(crate) cookie: Cookie,
    /// The round-trip time of the control connection.
    pub(crate) round_trip: Duration,
    /// The streams, in the order in which the server counts them.
    pub(crate) streams: Vec<StreamSpec>,
}

impl Iperf3Server {
    /// Returns the server at `address`, with the default time-outs.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self {
            address,
            local: None,
            connect_timeout: endpoint::CONNECT_TIMEOUT,
            message_timeout: MESSAGE_TIMEOUT,
            silence: SILENCE,
            started: None,
        }
    }
}

/// Runs the test of `params` against `server`. `open` opens its streams.
///
/// If the length of datagrams is absent, it becomes the MSS of the control connection, as in iperf3.
pub(crate) fn run<S: Streams>(
    server: &Iperf3Server,
    params: &Params,
    session: &Session,
    open: impl FnOnce(&StreamSetup<'_>) -> Result<S>,
) -> ClientOutcome<S> {
    let mut tested = ClientOutcome {
        streams: None,
        sides: TestResults::default(),
        cookie: Cookie::random(),
        failure: None,
    };
    tested.failure = match Client::connect(server, params, session) {
        Err(error) => Some(format!("{error:#}")),
        Ok(mut client) => {
            let outcome = client.test(open, &mut tested);
            client.notify_early_end(&outcome);
            let failure = outcome.err();
            failure.map(|error| format!("{}: {error}", server.address))
        }
    };
    tested
}

struct Client<'a> {
    server: &'a Iperf3Server,
    /// The parameters, with the length filled in.
    params: Params,
    session: &'a Session,
    control: ControlChannel,
}

impl<'a> Client<'a> {
    fn connect(server: &'a Iperf3Server, params: &Params, session: &'a Session) -> Result<Self> {
        let (address, timeout) = (server.address, server.connect_timeout);
        let socket = endpoint::tcp(address, server.local.as_ref())?;
        let stream = endpoint::connect(socket, address, timeout, &session.stop)?;
        let control =
            ControlChannel::new(stream, session.stop.clone())?.with_timeout(server.message_timeout);
        let mut params = params.clone();
        if params.plan.protocol == Transport::Udp {
            params.plan.length = params.plan.length.or_else(|| control.mss());
        }
        Ok(Self {
            server,
            params,
            session,
            control,
        })
    }

    fn test<S: Streams>(
        &mut self,
        open: impl FnOnce(&StreamSetup<'_>) -> Result<S>,
        tested: &mut ClientOutcome<S>,
    ) -> ControlResult<()> {
        self.control.send_cookie(&tested.cookie)?;
        self.expect(ControlState::ParamExchange)?;
        self.control
            .send_json(&self.params.to_json(), "the parameters")?;
        self.expect(ControlState::CreateStreams)?;
        let opening = StreamSetup {
            server: self.server,
            params: &self.params,
            stop: &self.session.stop,
            cookie: tested.cookie,
            round_trip: self.control.round_trip(),
            streams: self.params.plan.streams(true),
        };
        let streams =
            open(&opening).map_err(|error| ControlError::Connection(format!("{error:#}")))?;
        let streams = tested.streams.insert(streams);
        self.expect(ControlState::TestStart)?;
        self.expect(ControlState::TestRunning)?;
        if let Some(started) = &self.server.started {
            // A receiver that no longer waits needs no message.
            let _ = started.send(clock::now());
        }
        let outcome;
        (tested.sides.local, outcome) = self.run_streams(streams);
        outcome?;
        let plan = &self.params.plan;
        let sent_datagrams = plan.protocol == Transport::Udp && plan.direction.goes_up();
        if sent_datagrams || matches!(plan.until, Until::Bytes(_)) {
            self.linger()?;
        }
        self.control.send_state(ControlState::TestEnd)?;
        self.exchange_results(tested)
    }

    /// Runs the streams until the test is over or something breaks.
    fn run_streams(&mut self, streams: &mut impl Streams) -> (Results, ControlResult<()>) {
        let session = self.session;
        let silence = round_trip::extended(self.server.silence, self.control.round_trip());
        let (control, plan) = (&mut self.control, &self.params.plan);
        let sends = plan.direction.goes_up();
        run::run(plan, streams, sends, silence, |streams, now, until| {
            if now.ticked {
                session
                    .live
                    .line(format_args!("{}", streams.interval_line()));
            }
            let progress = streams.progress();
            let over = now.counted.is_some_and(|counted| match plan.until {
                Until::For(time) => counted >= time,
                Until::Bytes(bytes) => {
                    let sent = !sends || progress.delivered;
                    sent && (!plan.direction.goes_down() || progress.received >= bytes)
                }
            });
            if over {
                return Ok(true);
            }
            // A message of the server about the end says more than the streams that break because of it.
            match (control.poll_state(until)?, progress.broken) {
                (Some(state), _) => Err(control.unexpected(state, "the end of the test")),
                (None, Some(cause)) => Err(ControlError::Connection(cause)),
                (None, None) => Ok(false),
            }
        })
    }

    fn linger(&mut self) -> ControlResult<()> {
        match self.control.poll_state(Instant::now() + LINGER)? {
            None => Ok(()),
            Some(state) => Err(self.control.unexpected(state, "nothing")),
        }
    }

    fn exchange_results<S: Streams>(&mut self, tested: &mut ClientOutcome<S>) -> ControlResult<()> {
        self.expect(ControlState::ExchangeResults)?;
        let control = &mut self.control;
        let (sides, plan) = (&mut tested.sides, &self.params.plan);
        control.send_json(&sides.local.to_json(), "the results")?;
        let deadline = Instant::now() + 2 * control.timeout();
        let what = "the server's results";
        let remote = control.read_json(deadline, LONGEST_RESULTS, what, Results::parse)?;
        let known = plan.streams(true);
        let unknown = |id: u32| !known.iter().any(|spec| spec.id == id);
        let wrong = |text: String| Err(ControlError::Protocol(text));
        if let Some(stream) = remote.streams.iter().find(|stream| unknown(stream.id)) {
            let id = stream.id;
            return wrong(format!(
                "its results contain a stream {id} that does not exist"
            ));
        }
        if let Some(spec) = known.iter().find(|spec| remote.stream(spec.id).is_none()) {
            let id = spec.id;
            return wrong(format!("its results lack stream {id}"));
        }
        if let (Transport::Udp, Some(streams)) = (plan.protocol, &mut tested.streams) {
            run::settle(streams, sides, &remote, control, SETTLE);
        }
        sides.remote = Some(remote);
        self.expect(ControlState::DisplayResults)?;
        self.control.send_state(ControlState::Done)
    }

    /// Tells the server if the test ends early.
    fn notify_early_end(&mut self, outcome: &ControlResult<()>) {
        use ControlError::{Overdue, Stopped, TimedOut};
        if matches!(outcome, Err(Stopped(_) | TimedOut(_) | Overdue(_))) {
            self.control.give_up(ControlState::ClientTerminate);
        }
    }

    fn expect(&mut self, state: ControlState) -> ControlResult<()> {
        let deadline = self.control.deadline();
        self.control.expect(state, deadline)
    }
}
