//! The running test: one end sends load, the other feeds back what came of it. Both roles are alike but for two
//! things: the server decides the rate and the end, the client follows.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use model::Nanos;
use netio::{CpuUse, Waiter};

use super::channel::{Channel, now};
use super::pacer::Pacer;
use super::rates::RateTable;
use super::receiver::{Receiver, Totals};
use super::search::{Feedback, Search};
use super::wire::{
    Action, Activation, LoadHeader, NO_DELAY, SendingRate, Status, SubInterval, TestParameters,
    Version,
};
use crate::instrument::stop::STOP_INTERVAL;

/// After so long without a message of the peer, it is gone (the reference's watchdog).
pub(crate) const SILENCE: Duration = Duration::from_secs(3);
/// What the server adds to the time asked for, so that the last sub-interval is fed back too.
pub(crate) const STOP_AFTER: Duration = Duration::from_millis(500);
/// After so long without feedback, load PDUs say so.
const FEEDBACK_SILENCE: Nanos = Nanos(1_000_000_000);
/// Received in one go before looking at the time again.
const AT_ONCE: usize = 64;
/// This long before a train is due, waiting is spinning.
const GUARD: Nanos = Nanos(60_000);
/// A peer's feedback beyond so many times what was agreed upon is not kept.
const TOLERATED: u64 = 4;

/// One end of a running test.
pub(crate) struct Exchange<'a> {
    /// The socket, connected to the other end.
    pub(crate) channel: Channel,
    /// As agreed upon.
    pub(crate) version: Version,
    /// As agreed upon.
    pub(crate) parameters: TestParameters,
    /// Decides the rate; at a client it only retraces the server's decisions.
    pub(crate) decider: Decider,
    /// The server's: when the test ends.
    pub(crate) ends_after: Option<Duration>,
    /// Asked at least every 100 ms: why to stop at once.
    pub(crate) stop: &'a dyn Fn() -> Option<String>,
    /// The server's answer to the activation, for a client that did not get it; empty at a client.
    pub(crate) answer: Vec<u8>,
    /// Told of each whole sub-interval.
    pub(crate) on_sub_interval: &'a mut dyn FnMut(&SubInterval),
}

/// Chooses the row of the sending rates by the feedback.
#[derive(Debug)]
pub(crate) struct Decider {
    table: RateTable,
    search: Search,
    /// Stays at the row where it began.
    fixed: bool,
    one_way: bool,
    ignore_reordering: bool,
}

/// One trial interval: what its feedback said, and the rate chosen by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Since the start of the test.
    pub(crate) at: Duration,
    /// As fed back.
    pub(crate) status: Status,
    /// The row chosen, where the rate is one of the table.
    pub(crate) row: Option<usize>,
    /// The rate chosen, at L3.
    pub(crate) l3_bit_per_s: f64,
}

/// What one end knows when the test is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Every trial interval.
    pub(crate) trials: Vec<Trial>,
    /// Every whole sub-interval, and when it was known.
    pub(crate) sub_intervals: Vec<(Duration, SubInterval)>,
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
    pub(crate) totals: Option<Totals>,
    /// Whether arrivals are the kernel's.
    pub(crate) kernel_stamps: bool,
}

/// How a test ended.
#[derive(Debug)]
pub(crate) enum End {
    /// As agreed upon.
    Complete,
    /// The peer fell silent.
    Silent,
    /// The server did not end it.
    Overdue,
    /// The peer's host says that nobody listens any more.
    Closed,
    /// This end was told to stop.
    Stopped(String),
    /// The socket failed.
    Failed(io::Error),
}

/// A test under way, whichever end it is.
struct Run<'a> {
    exchange: Exchange<'a>,
    began: Nanos,
    heard: Nanos,
    stopping: bool,
    sub_intervals_seen: u32,
    outcome: Outcome,
}

impl Exchange<'_> {
    /// Sends load and takes feedback until the end; begins at `rate`.
    pub(crate) fn send_load(self, rate: SendingRate) -> Outcome {
        let mut run = Run::new(self);
        let end = Loading::new(&mut run, rate).run();
        run.finish(end)
    }

    /// Takes load and feeds back until the end.
    pub(crate) fn take_load(self) -> Outcome {
        let mut run = Run::new(self);
        let end = Taking::new(&mut run).run();
        run.finish(end)
    }
}

impl<'a> Run<'a> {
    fn new(exchange: Exchange<'a>) -> Self {
        let began = now().mono;
        Self {
            began,
            heard: began,
            stopping: false,
            sub_intervals_seen: 0,
            outcome: Outcome {
                trials: Vec::new(),
                sub_intervals: Vec::new(),
                end: End::Complete,
                host_drops: 0,
                unsent: 0,
                skipped: Duration::ZERO,
                feedback_missed: 0,
                unreadable: 0,
                totals: None,
                kernel_stamps: exchange.channel.kernel_stamps(),
            },
            exchange,
        }
    }

    fn finish(mut self, end: Result<End, io::Error>) -> Outcome {
        self.outcome.end = match end {
            Ok(end) => end,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if self.stopping {
                    End::Complete // The client had confirmed, and was gone before it was read.
                } else {
                    End::Closed
                }
            }
            Err(error) => End::Failed(error),
        };
        self.outcome.host_drops = self.exchange.channel.dropped();
        self.outcome.unsent = self.exchange.channel.unsent();
        self.outcome
    }

    /// The activation came once more: its answer was lost.
    fn answer_again(&self) -> io::Result<()> {
        if self.exchange.answer.is_empty() {
            return Ok(());
        }
        self.exchange.channel.send(&self.exchange.answer)
    }

    fn is_server(&self) -> bool {
        self.exchange.ends_after.is_some()
    }

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
        let since_start = Duration::from(now - self.began);
        if self
            .exchange
            .ends_after
            .is_some_and(|end| since_start >= end)
        {
            self.stopping = true;
        }
        let silent = Duration::from(now - self.heard) > SILENCE;
        let asked = Duration::from_secs(self.exchange.parameters.duration_s.into());
        let last = asked + STOP_AFTER + SILENCE;
        match (silent, self.stopping, self.is_server()) {
            // The client's confirmation was lost: the test itself was whole.
            (true, true, true) => Some(End::Complete),
            (true, _, _) => Some(End::Silent),
            (false, _, false) if since_start > last => Some(End::Overdue),
            _ => None,
        }
    }

    /// A message of the peer: it lives, unless the test is being stopped.
    fn hear(&mut self, now: Nanos) {
        if !self.stopping {
            self.heard = now;
        }
    }

    /// Keeps a trial interval and its sub-interval, if that is new.
    fn keep(&mut self, at: Nanos, status: Status, row: Option<usize>, rate: &SendingRate) {
        let at = Duration::from(at - self.began);
        let parameters = &self.exchange.parameters;
        let milliseconds = u64::from(parameters.duration_s) * 1000;
        let agreed = |each: u16| milliseconds * TOLERATED / u64::from(each.max(1)) + TOLERATED;
        if (self.outcome.trials.len() as u64) < agreed(parameters.feedback_ms) {
            self.outcome.trials.push(Trial {
                at,
                status,
                row,
                l3_bit_per_s: rate.l3_bit_per_s(),
            });
        }
        let room = (self.outcome.sub_intervals.len() as u64) < agreed(parameters.sub_interval_ms);
        if status.sub_interval_number > self.sub_intervals_seen && room {
            self.sub_intervals_seen = status.sub_interval_number;
            self.outcome.sub_intervals.push((at, status.sub_interval));
            (self.exchange.on_sub_interval)(&status.sub_interval);
        }
    }
}

/// The end that sends load.
struct Loading<'r, 'a> {
    run: &'r mut Run<'a>,
    pacer: Pacer,
    waiter: Waiter,
    header: LoadHeader,
    feedback_sequence: u32,
    feedback_at: Nanos,
    confirmed: bool,
}

impl<'r, 'a> Loading<'r, 'a> {
    fn new(run: &'r mut Run<'a>, rate: SendingRate) -> Self {
        let mut pacer = Pacer::new();
        // Measuring it readies the thread for short sleeps.
        let waiter = Waiter::measure(CpuUse::Gentle);
        let now = now().mono;
        pacer.set(&rate, now);
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

    fn run(&mut self) -> Result<End, io::Error> {
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
        let leaves = self.confirmed || matches!(end, End::Stopped(_));
        if leaves {
            self.header.action = Action::Stop;
            let one = super::pacer::Train {
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
            let response_ms = (now - self.feedback_at).0 / 1_000_000;
            self.header.action = self.run.action();
            self.header.response_delay_ms = u16::try_from(response_ms).unwrap_or(u16::MAX);
            self.header.feedback_stopped = now > self.feedback_at + FEEDBACK_SILENCE;
            self.run.exchange.channel.send_load(train, &self.header)?;
        }
        Ok(())
    }

    fn take_feedback(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let version = self.run.exchange.version;
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
        let server = self.run.is_server();
        let decider = &mut self.run.exchange.decider;
        let (row, rate) = if server {
            let row = decider.decide(status);
            (Some(row), decider.table.rate(row))
        } else {
            (decider.table.row_of(&status.rate), status.rate)
        };
        // A client's last feedback carries a rate too, but the test is over.
        if status.action == Action::Testing {
            self.pacer.set(&rate, at);
        }
        self.run.keep(at, *status, row, &rate);
    }

    fn wait(&self) {
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

/// The end that takes load.
struct Taking<'r, 'a> {
    run: &'r mut Run<'a>,
    receiver: Receiver,
    waiter: Waiter,
    tick: Nanos,
    peer_stopped: bool,
}

impl<'r, 'a> Taking<'r, 'a> {
    fn new(run: &'r mut Run<'a>) -> Self {
        let waiter = Waiter::measure(CpuUse::Gentle);
        let parameters = run.exchange.parameters;
        let now = now().mono;
        Self {
            receiver: Receiver::new(now, parameters.feedback_ms, parameters.sub_interval_ms),
            run,
            waiter,
            tick: now,
            peer_stopped: false,
        }
    }

    fn run(&mut self) -> Result<End, io::Error> {
        let each = Nanos(u64::from(self.run.exchange.parameters.feedback_ms) * 1_000_000);
        self.tick += each;
        let end = loop {
            self.take()?;
            let now = now().mono;
            let server = self.run.is_server();
            if self.peer_stopped {
                self.run.stopping = true;
                break End::Complete;
            }
            if let Some(end) = self.run.over(now) {
                break end;
            }
            if now >= self.tick {
                self.feed_back(server)?;
                // Ticks that were missed are not made up for.
                let missed = (now - self.tick).0 / each.0.max(1);
                self.tick = Nanos(self.tick.0 + each.0 * (missed + 1));
            }
            let latest = now + STOP_INTERVAL.into();
            let socket = self.run.exchange.channel.as_fd();
            self.waiter
                .sleep(&[socket], now, Some(self.tick.min(latest)));
        };
        let totals = self.receiver.totals();
        self.run.outcome.totals = Some(totals);
        self.run.outcome.feedback_missed = totals.feedback_missed;
        if !self.run.is_server() || matches!(end, End::Stopped(_)) {
            self.run.stopping = true;
            self.feed_back(false)?;
        }
        Ok(end)
    }

    fn take(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.run.exchange.channel.receive()? else {
                return Ok(());
            };
            let (mut heard, mut asked_again) = (false, false);
            for datagram in arrived.datagrams() {
                match LoadHeader::decode(datagram) {
                    Ok(header) => {
                        heard = true;
                        self.peer_stopped |= header.action == Action::Stop;
                        // The end's own PDUs are not part of the load.
                        if header.action == Action::Testing {
                            self.receiver.load(arrived.at, &header, datagram.len());
                        }
                    }
                    Err(_) => {
                        let version = self.run.exchange.version;
                        asked_again |= Activation::decode(datagram, version).is_ok();
                        self.run.outcome.unreadable += 1;
                    }
                }
            }
            let at = arrived.at.mono;
            if heard {
                self.run.hear(at);
            }
            if asked_again {
                self.run.answer_again()?;
            }
        }
        Ok(())
    }

    fn feed_back(&mut self, server: bool) -> io::Result<()> {
        let now = now();
        let action = self.run.action();
        let trial = self.receiver.peek(now);
        let Some(mut status) = self.receiver.feedback(now, action) else {
            return Ok(());
        };
        let decider = &mut self.run.exchange.decider;
        let row = if action == Action::Testing {
            decider.decide(&trial)
        } else {
            decider.row()
        };
        let rate = decider.table.rate(row);
        if server {
            status.rate = rate;
        }
        let bytes = status.encode(self.run.exchange.version);
        self.run.exchange.channel.send(&bytes)?;
        (status.sub_interval_number, status.sub_interval) = self.receiver.last_sub_interval();
        self.run.keep(now.mono, status, Some(row), &rate);
        Ok(())
    }
}

impl Decider {
    /// Chooses by these parameters, from a row of `table`; `search` begins there.
    pub(crate) fn new(
        table: RateTable,
        search: Search,
        fixed: bool,
        parameters: &TestParameters,
    ) -> Self {
        Self {
            table,
            search,
            fixed,
            one_way: parameters.one_way,
            ignore_reordering: parameters.ignore_reordering,
        }
    }

    /// How to send now.
    pub(crate) fn rate(&self) -> SendingRate {
        self.table.rate(self.row())
    }

    fn row(&self) -> usize {
        self.search.row()
    }

    fn decide(&mut self, status: &Status) -> usize {
        if self.fixed {
            return self.search.row();
        }
        let others = if self.ignore_reordering {
            0
        } else {
            status.reordered.saturating_add(status.duplicated)
        };
        self.search.feed(Feedback {
            sequence_errors: status.lost.saturating_add(others),
            delay_variation_ms: if self.one_way {
                status.delay_mean_ms()
            } else {
                (status.rtt_variation_ms != NO_DELAY).then_some(status.rtt_variation_ms)
            },
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Silent => write!(f, "fell silent for {} s during the test", SILENCE.as_secs()),
            Self::Overdue => f.write_str("did not end the test in time"),
            Self::Closed => f.write_str("closed its port during the test"),
            Self::Stopped(cause) => f.write_str(cause),
            Self::Failed(error) => write!(f, "the socket failed: {error}"),
        }
    }
}
