//! The thread that sends all streams of a test that leave this host, each on its schedule.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use model::Nanos;
use netio::stop::STOP_INTERVAL;
use netio::udp::TrainSender;
use netio::{Sleeper, clock};

use super::schedule::{DatagramRate, PacingStats, TrainSchedule};
use super::wire::{self, DatagramHeader, NumberWidth};
use crate::iperf3::detail::SenderDetail;
use crate::iperf3::run::SendControl;
use crate::lock;

/// The time for which a socket's errors must persist to count as permanent.
const ERROR_PERSISTENCE: Nanos = Nanos(500_000_000);
/// The time after which an error is unrelated to the one before it.
const ERROR_MEMORY: Nanos = Nanos(3_000_000_000);
/// The least gap between trains for which the thread sleeps instead of spinning.
const SLEEP_GAP: Nanos = Nanos(1_000_000);
/// The pause before another attempt after an error.
const PAUSE: Duration = Duration::from_millis(1);
/// The time between two checks for greetings, in nanoseconds. A longer gap is slept through in parts.
const GREETING_CHECK_NS: u64 = 100_000_000;

/// The counts of a stream that this end sends.
#[derive(Clone, Debug)]
pub(super) struct SenderStats {
    /// Datagrams sent in total, which is the number of the last one.
    pub(super) number: u64,
    /// Of these, the datagrams that are omitted.
    pub(super) omitted: u64,
    /// Payload bytes, without the omitted start.
    pub(super) bytes: u64,
    /// Times of the first and the last train, without the omitted start.
    pub(super) departures: Option<[Nanos; 2]>,
    /// Statistics of the departures, without the omitted start.
    pub(super) pacing: PacingStats,
    /// Sends that this host's full buffers delayed or refused, and that were repeated.
    pub(super) held_up: u64,
    /// The reason why the stream cannot continue.
    pub(super) broken: Option<String>,
}

/// The settings for sending the streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendConfig {
    /// Payload of a datagram in bytes.
    pub(super) length: usize,
    /// Payload bits per second of each stream, or `None` for as fast as possible.
    pub(super) rate: Option<u64>,
    /// The datagrams of each stream that the rate makes in the time of the test, or `None` if the other end decides
    /// when the test is over.
    pub(super) requested: Option<u64>,
    pub(super) counter: NumberWidth,
    /// Whether the thread may have priority over all ordinary threads of this host.
    pub(super) urgent: bool,
    /// Whether this end is the server, which answers greetings.
    pub(super) is_server: bool,
}

impl SendConfig {
    /// Returns the rate in datagrams, if there is one.
    pub(super) fn pace(&self) -> Option<DatagramRate> {
        self.rate.map(|rate| DatagramRate {
            bits: self.length as u64 * 8,
            rate,
        })
    }
}

/// A socket to send on, and its counts.
pub(super) type SendingStream = (TrainSender, Arc<Mutex<SenderStats>>);

impl SenderStats {
    /// Returns counts before the first train. Trains have at most `burst` datagrams.
    pub(super) fn new(burst: u64) -> Self {
        Self {
            number: 0,
            omitted: 0,
            bytes: 0,
            departures: None,
            pacing: PacingStats::new(burst),
            held_up: 0,
            broken: None,
        }
    }

    /// Restarts counting.
    pub(super) fn omit(&mut self) {
        *self = Self {
            number: self.number,
            omitted: self.number,
            broken: self.broken.take(),
            ..Self::new(self.pacing.burst)
        };
    }

    /// Returns the details for another farwire.
    pub(super) fn detail(&self) -> SenderDetail {
        let (pacing, departures) = (&self.pacing, self.departures);
        SenderDetail {
            trains: pacing.trains,
            burst: pacing.burst,
            late: pacing.late,
            gap_error_ns: pacing.gap_errors_ns(),
            given_up_ns: pacing.given_up.0,
            held_up: self.held_up,
            active_ns: departures.map_or(0, |[first, last]| last.0 - first.0),
        }
    }
}

/// Sends `streams` until the stop, or until the allowance is used up.
pub(super) fn run(streams: Vec<SendingStream>, config: SendConfig, control: &SendControl) {
    let mut streams = PacedStream::prepare(streams, config);
    let mut sleeper = if config.urgent && streams.iter().all(PacedStream::sleeps) {
        Sleeper::urgent()
    } else {
        Sleeper::default()
    };
    let mut looked = clock::now();
    while !control.is_stopped() {
        let now = clock::now();
        if now.0 - looked.0 > GREETING_CHECK_NS {
            looked = now;
            let streams = streams.iter();
            streams.for_each(|stream| stream.read_greetings(config.is_server));
        }
        let open = streams.iter_mut().filter(|stream| !stream.ended);
        let Some(stream) = open.min_by_key(|stream| stream.schedule.next()) else {
            return;
        };
        let next = stream.schedule.next();
        if next.0 > now.0 + GREETING_CHECK_NS {
            thread::sleep(STOP_INTERVAL / 2);
            continue;
        }
        let at = sleeper.wait(next);
        if !stream.send(at, config, control) {
            return;
        }
    }
}

/// A stream in the sending thread.
struct PacedStream {
    socket: TrainSender,
    sent: Arc<Mutex<SenderStats>>,
    schedule: TrainSchedule,
    train: Vec<u8>,
    number: u64,
    failing_since: Option<Nanos>,
    ended: bool,
}

impl PacedStream {
    fn prepare(streams: Vec<SendingStream>, config: SendConfig) -> Vec<Self> {
        let start = clock::now();
        let count = streams.len() as u64;
        let pace = config.pace();
        let stream = |((socket, sent), index): (SendingStream, u64)| {
            let most = socket.most_segments() as u64;
            let schedule = TrainSchedule::new(start, pace, (index, count), most);
            lock(&sent).pacing.burst = schedule.train();
            let mut train = vec![0; socket.most_segments() * config.length];
            fastrand::fill(&mut train);
            Self {
                socket,
                sent,
                schedule,
                train,
                number: 0,
                failing_since: None,
                ended: false,
            }
        };
        streams.into_iter().zip(0..).map(stream).collect()
    }

    /// Returns whether the thread would sleep most of its time.
    fn sleeps(&self) -> bool {
        self.schedule.gap().is_some_and(|gap| gap >= SLEEP_GAP)
    }

    /// Sends the next train. Returns false when the allowance is used up.
    fn send(&mut self, at: Nanos, config: SendConfig, control: &SendControl) -> bool {
        let requested = config.requested.unwrap_or(u64::MAX);
        let due = requested.saturating_sub(self.number);
        if due == 0 {
            self.ended = true;
            return true;
        }
        let allowed = usize::try_from(control.allowance()).unwrap_or(usize::MAX);
        let most = allowed.div_ceil(config.length);
        let full = usize::try_from(self.schedule.train().min(due)).expect("a few dozen");
        let train = &mut self.train[..full.min(most) * config.length];
        if train.is_empty() {
            return false;
        }
        for (datagram, number) in train.chunks_mut(config.length).zip(self.number + 1..) {
            let stamped = DatagramHeader { sent: at, number };
            config.counter.write(stamped, datagram);
        }
        match self.socket.send(train) {
            Ok(count) => self.count(at, count, config, control),
            Err(error) => self.fail(at, &error),
        }
        true
    }

    fn count(&mut self, at: Nanos, count: usize, config: SendConfig, control: &SendControl) {
        let bytes = count * config.length;
        control.take(bytes);
        let count = count as u64;
        self.number += count;
        let departure = self.schedule.record_departure(at, count);
        self.schedule
            .limit_trains(self.socket.most_segments() as u64);
        let mut sent = lock(&self.sent);
        sent.number = self.number;
        sent.bytes += bytes as u64;
        let [first, _] = sent.departures.unwrap_or([at, at]);
        sent.departures = Some([first, at]);
        if let Some(departure) = departure {
            sent.pacing.add(departure);
            sent.pacing.burst = sent.pacing.burst.max(self.schedule.train());
        }
    }

    /// Waits for a full buffer. Any other error ends the stream if it persists.
    fn fail(&mut self, at: Nanos, error: &std::io::Error) {
        let no_buffers = error.raw_os_error() == Some(nix::libc::ENOBUFS);
        if no_buffers || error.kind() == ErrorKind::WouldBlock {
            lock(&self.sent).held_up += 1;
        } else {
            let since = *self.failing_since.get_or_insert(at);
            if at > since + ERROR_MEMORY {
                self.failing_since = Some(at);
            } else if at > since + ERROR_PERSISTENCE {
                lock(&self.sent).broken = Some(describe(error));
                self.ended = true;
            }
        }
        if error.kind() != ErrorKind::WouldBlock {
            thread::sleep(PAUSE);
        }
    }

    /// Reads the greetings that wait in the socket. A server answers them, because its client has not received the
    /// first answer yet. A client discards them: they are further answers to its own greetings.
    fn read_greetings(&self, is_server: bool) {
        let mut datagram = [0; wire::GREETING_LENGTH + 1];
        while let Ok(Some(length)) = self.socket.receive(&mut datagram) {
            if let Some(answer) = wire::answer_to(&datagram[..length]).filter(|_| is_server) {
                // The greeting is not a datagram of the test, and if this answer is lost, the client greets again.
                let _ = self.socket.answer(&answer);
            }
        }
    }
}

fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "the far end's host refuses the datagrams: no program receives them there".to_owned()
        }
        _ => format!("the datagrams cannot be sent: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::TrainTiming;
    use super::*;

    #[test]
    fn time_skipped_in_the_omitted_start_is_not_counted() {
        let mut sent = SenderStats::new(0);
        let departure = |given_up| TrainTiming {
            late: given_up,
            gap_error: None,
            given_up,
        };
        sent.held_up = 3;
        sent.pacing.add(departure(Nanos(200_000_000)));
        sent.omit();
        sent.pacing.add(departure(Nanos(150_000_000)));
        assert_eq!(sent.pacing.given_up, Nanos(150_000_000));
        assert_eq!(sent.held_up, 0);
    }
}
