//! The running test: one end sends load, the other feeds back what came of it. Both roles are alike but for two
//! things: the server decides the rate and the end, the client follows.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use model::Nanos;
use netio::stop::STOP_INTERVAL;
use netio::{CpuUse, Waiter};
use record::Direction;
use stats::layers::{UDP_HEADER, ip_header};

use super::channel::{Channel, now};
use super::pacer::{Pacer, Train};
use super::receiver::{LoadTotals, Receiver};
use super::search::RateControl;
use super::wire::{
    Action, Activation, LoadHeader, SendingRate, Sizes, Status, SubInterval, TestParameters,
    Version,
};
use crate::live::Live;

/// After so long without a message of the peer, it is gone (the reference's watchdog).
pub(crate) const SILENCE: Duration = Duration::from_secs(3);
/// What the server adds to the time asked for, so that the last sub-interval is fed back too.
const STOP_AFTER: Duration = Duration::from_millis(500);
/// Received in one go before looking at the time again.
const AT_ONCE: usize = 64;
/// A peer's feedback beyond so many times what was agreed upon is not kept.
const TOLERATED: u64 = 4;
/// After so long without feedback, load PDUs say so.
const FEEDBACK_SILENCE: Nanos = Nanos(1_000_000_000);
/// This long before a train is due, waiting is spinning.
const GUARD: Nanos = Nanos(60_000);

/// What both ends agreed upon, and which of them this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// Which way the load goes.
    pub(crate) direction: Direction,
    /// The protocol's version.
    pub(crate) version: Version,
    /// Which table of sending rates.
    pub(crate) sizes: Sizes,
    /// As the server set them.
    pub(crate) parameters: TestParameters,
    /// Whether this is the server's end.
    pub(crate) is_server: bool,
}

/// One end of a running test.
pub(crate) struct Exchange<'a> {
    /// The socket, connected to the other end.
    pub(crate) channel: Channel,
    /// What the test is.
    pub(crate) agreed: Agreed,
    /// Decides the rate; at a client it only follows what the server decides.
    pub(crate) control: RateControl,
    /// The rate to begin with, at the end that sends.
    pub(crate) rate: SendingRate,
    /// Asked at least every 100 ms: why to stop at once.
    pub(crate) stop: &'a dyn Fn() -> Option<String>,
    /// The server's answer to the activation, for a client that did not get it; empty at a client.
    pub(crate) answer: Vec<u8>,
    /// Told of each whole sub-interval.
    pub(crate) live: Live,
}

/// One trial interval: what its feedback said, and the rate chosen by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialInterval {
    /// Since the start of the test.
    pub(crate) at: Duration,
    /// As fed back.
    pub(crate) status: Status,
    /// The row chosen, where the rate is one of the table.
    pub(crate) row: Option<usize>,
    /// The rate chosen, at L3.
    pub(crate) l3_bit_per_s: f64,
}

/// A whole sub-interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSubInterval {
    /// When it was known, since the start of the test.
    pub(crate) at: Duration,
    /// What was counted in it.
    pub(crate) counted: SubInterval,
    /// The least round trip of the test by then, in milliseconds, above which its own are stated; `wire::NO_DELAY` without any.
    pub(crate) least_rtt_ms: u32,
    /// When it ended, in nanoseconds since 1970; only where this host received the load.
    pub(crate) ended: Option<u64>,
}

/// What one end knows when the test is over.
#[derive(Debug, Default)]
pub(crate) struct TestOutcome {
    /// Every trial interval at a client; a server's memory must not grow with its clients' tests.
    pub(crate) trials: Vec<TrialInterval>,
    /// Every whole sub-interval.
    pub(crate) sub_intervals: Vec<WholeSubInterval>,
    /// How it ended.
    pub(crate) end: End,
    /// Datagrams that this host's full socket dropped: no loss of the network.
    pub(crate) host_drops: u32,
    /// Load that this host's sending socket had no room for.
    pub(crate) unsent: u64,
    /// Time whose load this host was too late for.
    pub(crate) skipped: Duration,
    /// Feedback messages that did not reach the load's sender, as far as it said.
    pub(crate) feedback_missed: u64,
    /// Datagrams that were no message of the test.
    pub(crate) unreadable: u64,
    /// What the load's receiver counted; none at the end that sent it.
    pub(crate) totals: Option<LoadTotals>,
    /// Whether arrivals were stamped by the kernel.
    pub(crate) kernel_stamps: bool,
}

/// How a test ended.
#[derive(Debug, Default, thiserror::Error)]
pub(crate) enum End {
    /// As agreed upon.
    #[default]
    #[error("complete")]
    Complete,
    /// The peer fell silent.
    #[error("fell silent for {} s during the test", SILENCE.as_secs())]
    Silent,
    /// The server did not end it.
    #[error("did not end the test in time")]
    Overdue,
    /// The peer's host says that nobody listens any more.
    #[error("closed its port during the test")]
    Closed,
    /// This end was told to stop.
    #[error("{0}")]
    Stopped(String),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Failed(io::Error),
}

/// A test under way, whichever end it is.
struct Run<'a> {
    exchange: Exchange<'a>,
    began: Nanos,
    heard: Nanos,
    /// The stop was said, or heard.
    stopping: bool,
    sub_intervals_seen: u32,
    /// What is known so far.
    outcome: TestOutcome,
}

/// The end that sends load: on schedule, at the rate that the last feedback led to.
struct LoadSender<'r, 'a> {
    run: &'r mut Run<'a>,
    pacer: Pacer,
    waiter: Waiter,
    header: LoadHeader,
    feedback_sequence: u32,
    feedback_at: Nanos,
    confirmed: bool,
}

impl Agreed {
    /// Whether this end receives the load.
    pub(crate) fn receives_here(&self) -> bool {
        (self.direction == Direction::Down) != self.is_server
    }

    /// Bytes of a datagram's UDP and IP headers.
    pub(crate) fn l3_header(&self) -> u32 {
        UDP_HEADER + ip_header(self.peer.ip().to_canonical().is_ipv6())
    }
}

impl SubInterval {
    /// What was received, in bit/s, with `header` bytes counted for each datagram.
    pub(crate) fn bit_per_s(&self, header: u32) -> f64 {
        let bytes = self.bytes as f64 + f64::from(self.datagrams) * f64::from(header);
        if self.span_us == 0 {
            0.0
        } else {
            bytes * 8e6 / f64::from(self.span_us)
        }
    }
}

impl Exchange<'_> {
    /// Sends or receives load until the end.
    pub(crate) fn run(self) -> TestOutcome {
        let began = now().mono;
        let mut run = Run {
            began,
            heard: began,
            stopping: false,
            sub_intervals_seen: 0,
            outcome: TestOutcome::default(),
            exchange: self,
        };
        let end = if run.exchange.agreed.receives_here() {
            run.receive_load()
        } else {
            LoadSender::new(&mut run).run()
        };
        run.finish(end)
    }
}

impl Run<'_> {
    fn finish(mut self, end: io::Result<End>) -> TestOutcome {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.outcome.end = match end {
            Ok(end) => end,
            // The client had confirmed, and was gone before it was read.
            Err(error) if refused(&error) && self.stopping => End::Complete,
            Err(error) if refused(&error) => End::Closed,
            Err(error) => End::Failed(error),
        };
        let channel = &self.exchange.channel;
        self.outcome.kernel_stamps = channel.kernel_stamps;
        self.outcome.host_drops = channel.dropped;
        self.outcome.unsent = channel.unsent;
        self.outcome
    }

    /// The activation came once more: its answer was lost.
    fn answer_again(&mut self) -> io::Result<()> {
        if self.exchange.answer.is_empty() {
            return Ok(());
        }
        self.exchange.channel.send(&self.exchange.answer)
    }

    /// What messages say of the test now.
    fn action(&self) -> Action {
        if self.stopping {
            Action::Stop
        } else {
            Action::Testing
        }
    }

    /// Whether the test is over at `now`, and how; the server's time to stop is noted.
    fn over(&mut self, now: Nanos) -> Option<End> {
        if let Some(cause) = (self.exchange.stop)() {
            return Some(End::Stopped(cause));
        }
        let Agreed {
            parameters,
            is_server,
            ..
        } = self.exchange.agreed;
        let since_start = Duration::from(now - self.began);
        let last = Duration::from_secs(parameters.duration_s.into()) + STOP_AFTER;
        self.stopping |= is_server && since_start >= last;
        let silent = Duration::from(now - self.heard) > SILENCE;
        match (silent, self.stopping, is_server) {
            // The client's confirmation was lost: the test itself was whole.
            (true, true, true) => Some(End::Complete),
            (true, _, _) => Some(End::Silent),
            (false, _, false) if since_start > last + SILENCE => Some(End::Overdue),
            _ => None,
        }
    }

    /// A message of the peer: it lives, unless the test is being stopped.
    fn hear(&mut self, now: Nanos) {
        if !self.stopping {
            self.heard = now;
        }
    }

    /// Keeps what a trial interval said, and its sub-interval, which ended at that time of day, if that is new.
    fn keep(
        &mut self,
        at: Nanos,
        status: Status,
        row: Option<usize>,
        rate: &SendingRate,
        ended: Option<u64>,
    ) {
        let at = Duration::from(at - self.began);
        let agreed = &self.exchange.agreed;
        let parameters = &agreed.parameters;
        let milliseconds = u64::from(parameters.duration_s) * 1000;
        let most = |each: u16| milliseconds * TOLERATED / u64::from(each.max(1)) + TOLERATED;
        let room = (self.outcome.trials.len() as u64) < most(parameters.feedback_ms);
        if room && !agreed.is_server {
            self.outcome.trials.push(TrialInterval {
                at,
                status,
                row,
                l3_bit_per_s: rate.l3_bit_per_s(),
            });
        }
        let room = (self.outcome.sub_intervals.len() as u64) < most(parameters.sub_interval_ms);
        if status.sub_interval_number > self.sub_intervals_seen && room {
            self.sub_intervals_seen = status.sub_interval_number;
            let counted = status.sub_interval;
            self.outcome.sub_intervals.push(WholeSubInterval {
                at,
                counted,
                least_rtt_ms: status.rtt_min_ms,
                ended,
            });
            self.exchange.live.line(format_args!(
                "{:6.2} s {:>10.2} Mbit/s at L3, {} lost, round trip up to {} ms above its least",
                f64::from(counted.elapsed_ms) / 1e3,
                counted.bit_per_s(agreed.l3_header()) / 1e6,
                counted.counts.lost,
                counted.rtt_max_ms
            ));
        }
    }
}

impl<'r, 'a> LoadSender<'r, 'a> {
    fn new(run: &'r mut Run<'a>) -> Self {
        let mut pacer = Pacer::default();
        // Measuring it readies the thread for short sleeps.
        let waiter = Waiter::measure(CpuUse::Gentle);
        let now = now().mono;
        pacer.set(&run.exchange.rate, now);
        Self {
            run,
            pacer,
            waiter,
            header: LoadHeader::default(),
            feedback_sequence: 0,
            feedback_at: now,
            confirmed: false,
        }
    }

    /// Sends until the end.
    fn run(&mut self) -> io::Result<End> {
        let end = loop {
            let now = now().mono;
            self.send_due(now)?;
            self.take_feedback()?;
            if self.confirmed {
                break End::Complete;
            }
            if let Some(end) = self.run.over(now) {
                break end;
            }
            self.wait();
        };
        self.run.outcome.skipped = self.pacer.skipped().into();
        if self.confirmed || matches!(end, End::Stopped(_)) {
            self.header.action = Action::Stop;
            let one = Train {
                payload: 0,
                count: 1,
                addon: 0,
            };
            self.run.exchange.channel.send_load(one, &self.header)?;
        }
        Ok(end)
    }

    fn send_due(&mut self, now: Nanos) -> io::Result<()> {
        while let Some(mut train) = self.pacer.due(now) {
            if self.run.stopping {
                train.count = train.count.min(1);
            }
            // Rounded as the reference does, so that the far end's difference of two is not biased.
            let response_ms = ((now - self.feedback_at).0 + 500_000) / 1_000_000;
            self.header.action = self.run.action();
            self.header.response_delay_ms = u16::try_from(response_ms).unwrap_or(u16::MAX);
            self.header.feedback_stopped = now > self.feedback_at + FEEDBACK_SILENCE;
            self.run.exchange.channel.send_load(train, &self.header)?;
        }
        Ok(())
    }

    fn take_feedback(&mut self) -> io::Result<()> {
        let version = self.run.exchange.agreed.version;
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.run.exchange.channel.receive()? else {
                return Ok(());
            };
            let at = arrived.at.mono;
            let mut asked_again = false;
            let read = |datagram: &[u8]| {
                asked_again |= Activation::decode(datagram, version).is_ok();
                Status::decode(datagram, version).ok()
            };
            let statuses: Vec<_> = arrived.datagrams().map(read).collect();
            if asked_again {
                self.run.answer_again()?;
            }
            for status in statuses {
                match status {
                    Some(status) => self.follow(at, &status),
                    None => self.run.outcome.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, at: Nanos, status: &Status) {
        self.run.hear(at);
        if status.action == Action::Stop {
            self.confirmed = true;
            self.run.stopping = true;
        }
        let expected = self.feedback_sequence.wrapping_add(1);
        self.header.feedback_missed = match status.sequence.checked_sub(expected) {
            Some(missed) => u16::try_from(missed).unwrap_or(u16::MAX - 1),
            None => u16::MAX,
        };
        if status.sequence > self.feedback_sequence {
            self.run.outcome.feedback_missed += u64::from(self.header.feedback_missed);
            self.feedback_sequence = status.sequence;
        }
        self.header.feedback_stamp = status.sent;
        self.feedback_at = at;
        let control = &mut self.run.exchange.control;
        let (row, rate) = if self.run.exchange.agreed.is_server {
            control.decide(status);
            (Some(control.row()), control.rate())
        } else {
            (control.row_of(&status.rate), status.rate)
        };
        // A client's last feedback carries a rate too, but the test is over.
        if status.action == Action::Testing {
            self.pacer.set(&rate, at);
        }
        self.run.keep(at, *status, row, &rate, None);
    }

    fn wait(&mut self) {
        let now = now().mono;
        let latest = now + STOP_INTERVAL.into();
        let until = self.pacer.next_at().map_or(latest, |at| at.min(latest));
        if until > now + GUARD {
            let until = Nanos(until.0 - GUARD.0);
            let socket = self.run.exchange.channel.as_fd();
            self.waiter.sleep(&[socket], now, Some(until));
        }
    }
}

/// The end that receives load: counts it, and feeds back each trial interval.
impl Run<'_> {
    /// Receives load until the end.
    fn receive_load(&mut self) -> io::Result<End> {
        let Agreed {
            parameters,
            is_server,
            ..
        } = self.exchange.agreed;
        let mut waiter = Waiter::measure(CpuUse::Gentle);
        let each = Nanos(u64::from(parameters.feedback_ms) * 1_000_000);
        let began = now().mono;
        let mut receiver = Receiver::new(began, parameters.feedback_ms, parameters.sub_interval_ms);
        let mut trial_ends = began + each;
        let end = loop {
            let peer_stopped = self.take_load(&mut receiver)?;
            let now = now().mono;
            if peer_stopped {
                self.stopping = true;
                break End::Complete;
            }
            if let Some(end) = self.over(now) {
                break end;
            }
            if now >= trial_ends {
                self.feed_back(&mut receiver, is_server)?;
                // Ends that were missed are not made up for.
                let missed = (now - trial_ends).0 / each.0.max(1);
                trial_ends = Nanos(trial_ends.0 + each.0 * (missed + 1));
            }
            let until = trial_ends.min(now + STOP_INTERVAL.into());
            waiter.sleep(&[self.exchange.channel.as_fd()], now, Some(until));
        };
        let totals = receiver.totals;
        self.outcome.totals = Some(totals);
        self.outcome.feedback_missed = totals.feedback_missed;
        if !is_server || matches!(end, End::Stopped(_)) {
            self.stopping = true;
            self.feed_back(&mut receiver, false)?;
        }
        Ok(end)
    }

    /// Counts what came; whether the peer has stopped.
    fn take_load(&mut self, receiver: &mut Receiver) -> io::Result<bool> {
        let mut peer_stopped = false;
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.exchange.channel.receive()? else {
                break;
            };
            let at = arrived.at;
            let (mut heard, mut asked_again) = (false, false);
            for datagram in arrived.datagrams() {
                match LoadHeader::decode(datagram) {
                    Ok(header) => {
                        heard = true;
                        peer_stopped |= header.action == Action::Stop;
                        // The end's own PDUs are not part of the load.
                        if header.action == Action::Testing {
                            receiver.load(at, &header, datagram.len());
                        }
                    }
                    Err(_) => {
                        let version = self.exchange.agreed.version;
                        asked_again |= Activation::decode(datagram, version).is_ok();
                        self.outcome.unreadable += 1;
                    }
                }
            }
            if heard {
                self.hear(at.mono);
            }
            if asked_again {
                self.answer_again()?;
            }
        }
        Ok(peer_stopped)
    }

    /// Feeds the trial interval back, with the rate if it is this end that says it.
    fn feed_back(&mut self, receiver: &mut Receiver, with_rate: bool) -> io::Result<()> {
        let now = now();
        let action = self.action();
        let trial = receiver.peek(now);
        let Some(mut status) = receiver.feedback(now, action) else {
            return Ok(());
        };
        let control = &mut self.exchange.control;
        if action == Action::Testing {
            control.decide(&trial);
        }
        let (row, rate) = (control.row(), control.rate());
        if with_rate {
            status.rate = rate;
        }
        let bytes = status.encode(self.exchange.agreed.version);
        self.exchange.channel.send(&bytes)?;
        let (number, sub_interval, ended) = receiver.last_sub_interval();
        (status.sub_interval_number, status.sub_interval) = (number, sub_interval);
        self.keep(now.mono, status, Some(row), &rate, ended);
        Ok(())
    }
}
