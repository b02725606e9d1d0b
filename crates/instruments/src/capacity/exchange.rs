//! The running test: one end sends load, the other feeds back what came of it. Both roles are alike but for two
//! things: the server decides the rate and the end, the client follows.

use std::fmt;
use std::io;
use std::time::Duration;

use model::Nanos;

use super::channel::{Channel, now};
use super::decider::Decider;
use super::loading::Loading;
use super::receiver::Totals;
use super::taking::Taking;
use super::wire::{Action, NO_DELAY, SendingRate, Status, SubInterval, TestParameters, Version};

/// After so long without a message of the peer, it is gone (the reference's watchdog).
pub(crate) const SILENCE: Duration = Duration::from_secs(3);
/// What the server adds to the time asked for, so that the last sub-interval is fed back too.
pub(crate) const STOP_AFTER: Duration = Duration::from_millis(500);
/// Received in one go before looking at the time again.
pub(super) const AT_ONCE: usize = 64;
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

/// A whole sub-interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// When it was known, since the start of the test.
    pub(crate) at: Duration,
    /// What was counted in it.
    pub(crate) counted: SubInterval,
    /// When it ended, in nanoseconds since 1970; only where this host took the load.
    pub(crate) ended: Option<u64>,
}

/// The least and the greatest delays of a test, in milliseconds, as far as they were fed back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delays {
    /// The least round trip.
    pub(crate) rtt_min: Option<u32>,
    /// The greatest round trip.
    pub(crate) rtt_max: Option<u32>,
    /// The least and the greatest one-way delay above the least.
    pub(crate) variation: Option<[u32; 2]>,
}

/// What one end knows when the test is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Every trial interval at a client; a server's memory must not grow with its clients' tests.
    pub(crate) trials: Vec<Trial>,
    /// What all trial intervals said of delay.
    pub(crate) delays: Delays,
    /// Every whole sub-interval.
    pub(crate) sub_intervals: Vec<Whole>,
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
pub(super) struct Run<'a> {
    /// The end itself.
    pub(super) exchange: Exchange<'a>,
    began: Nanos,
    heard: Nanos,
    /// The stop was said, or heard.
    pub(super) stopping: bool,
    sub_intervals_seen: u32,
    /// What is known so far.
    pub(super) outcome: Outcome,
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
                delays: Delays::default(),
                sub_intervals: Vec::new(),
                end: End::Complete,
                host_drops: 0,
                unsent: 0,
                skipped: Duration::ZERO,
                feedback_missed: 0,
                unreadable: 0,
                totals: None,
                kernel_stamps: false,
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
        self.outcome.kernel_stamps = self.exchange.channel.kernel_stamps();
        self.outcome.host_drops = self.exchange.channel.dropped();
        self.outcome.unsent = self.exchange.channel.unsent();
        self.outcome
    }

    /// The activation came once more: its answer was lost.
    pub(super) fn answer_again(&mut self) -> io::Result<()> {
        if self.exchange.answer.is_empty() {
            return Ok(());
        }
        self.exchange.channel.send(&self.exchange.answer)
    }

    /// Whether this end decides.
    pub(super) fn is_server(&self) -> bool {
        self.exchange.ends_after.is_some()
    }

    /// What messages say of the test now.
    pub(super) fn action(&self) -> Action {
        if self.stopping {
            Action::Stop
        } else {
            Action::Testing
        }
    }

    /// Whether the test is over at `now`, and how; the server's time to stop is noted.
    pub(super) fn over(&mut self, now: Nanos) -> Option<End> {
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
    pub(super) fn hear(&mut self, now: Nanos) {
        if !self.stopping {
            self.heard = now;
        }
    }

    /// Keeps what a trial interval said, and its sub-interval, which ended at that time of day, if that is new.
    pub(super) fn keep(
        &mut self,
        at: Nanos,
        status: Status,
        row: Option<usize>,
        rate: &SendingRate,
        ended: Option<u64>,
    ) {
        let at = Duration::from(at - self.began);
        let parameters = &self.exchange.parameters;
        let milliseconds = u64::from(parameters.duration_s) * 1000;
        let agreed = |each: u16| milliseconds * TOLERATED / u64::from(each.max(1)) + TOLERATED;
        self.outcome.delays.add(&status);
        let room = (self.outcome.trials.len() as u64) < agreed(parameters.feedback_ms);
        if room && !self.is_server() {
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
            self.outcome.sub_intervals.push(Whole {
                at,
                counted: status.sub_interval,
                ended,
            });
            (self.exchange.on_sub_interval)(&status.sub_interval);
        }
    }
}

impl Delays {
    fn add(&mut self, status: &Status) {
        if status.rtt_min_ms != NO_DELAY {
            let least = self.rtt_min.unwrap_or(status.rtt_min_ms);
            self.rtt_min = Some(least.min(status.rtt_min_ms));
        }
        self.rtt_max = self.rtt_max.max(status.rtt_ms());
        if status.delay_count > 0 {
            let (min, max) = (status.delay_min_ms, status.delay_max_ms);
            let [least, most] = self.variation.unwrap_or([min, max]);
            self.variation = Some([least.min(min), most.max(max)]);
        }
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
