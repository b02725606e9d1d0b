//! The thread that sends: every stream of a test that leaves this host, each on its schedule.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use model::Nanos;
use netio::stop::STOP_INTERVAL;
use netio::udp::TrainSender;
use netio::{Sleeper, clock};

use super::schedule::{DatagramRate, PacingStats, Schedule};
use super::wire::{self, Counter, Stamped};
use crate::iperf3::detail::SenderDetail;
use crate::iperf3::run::SendControl;
use crate::lock;

/// Errors of a socket that come again after so long are no passing ones.
const PERSISTS: Nanos = Nanos(500_000_000);
/// Errors further apart have nothing to do with each other.
const PASSES: Nanos = Nanos(3_000_000_000);
/// A thread whose trains are so far apart sleeps between them.
const SLEEPS: Nanos = Nanos(1_000_000);
/// Before trying again after an error.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two looks for greetings, in nanoseconds; a longer gap is slept through in parts.
const LOOKS_EVERY: u64 = 100_000_000;

/// What a stream has sent so far.
#[derive(Clone, Debug)]
pub(super) struct SenderStats {
    /// Datagrams, all of them: the last one's number.
    pub(super) number: u64,
    /// Those of them that are omitted.
    pub(super) omitted: u64,
    /// Payload bytes, without what is omitted.
    pub(super) bytes: u64,
    /// When the first and the last train left, without what is omitted.
    pub(super) departures: Option<[Nanos; 2]>,
    /// How well in time, without what is omitted.
    pub(super) pacing: PacingStats,
    /// Sends that this host's full buffers held up or refused; they were tried again.
    pub(super) held_up: u64,
    /// Why the stream cannot go on.
    pub(super) broken: Option<String>,
}

/// How the streams are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendConfig {
    /// Payload bytes of a datagram.
    pub(super) length: usize,
    /// Payload bits a second and stream; as fast as possible when absent.
    pub(super) rate: Option<u64>,
    pub(super) counter: Counter,
    /// Whether the thread may run before all ordinary ones of this host.
    pub(super) urgent: bool,
}

/// A socket to send on, and where to count that.
pub(super) type Outgoing = (TrainSender, Arc<Mutex<SenderStats>>);

impl SenderStats {
    /// Of nothing yet, in trains of at most `burst` datagrams.
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

    /// Begins to count anew.
    pub(super) fn omit(&mut self) {
        *self = Self {
            number: self.number,
            omitted: self.number,
            broken: self.broken.take(),
            ..Self::new(self.pacing.burst)
        };
    }

    /// What another farwire is told of it.
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

/// Sends `streams` until told to stop or until the allowance is used up.
pub(super) fn run(streams: Vec<Outgoing>, config: SendConfig, control: &SendControl) {
    let mut streams = PacedStream::prepare(streams, config);
    let mut sleeper = if config.urgent && streams.iter().all(PacedStream::sleeps) {
        Sleeper::urgent()
    } else {
        Sleeper::default()
    };
    let mut looked = clock::now();
    while !control.is_stopped() {
        let now = clock::now();
        if now.0 - looked.0 > LOOKS_EVERY {
            looked = now;
            streams.iter().for_each(PacedStream::answer_greetings);
        }
        let open = streams.iter_mut().filter(|stream| !stream.ended);
        let Some(stream) = open.min_by_key(|stream| stream.schedule.next()) else {
            return;
        };
        let next = stream.schedule.next();
        if next.0 > now.0 + LOOKS_EVERY {
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
    schedule: Schedule,
    train: Vec<u8>,
    number: u64,
    failing_since: Option<Nanos>,
    ended: bool,
}

impl PacedStream {
    fn prepare(streams: Vec<Outgoing>, config: SendConfig) -> Vec<Self> {
        let start = clock::now();
        let count = streams.len() as u64;
        let pace = config.rate.map(|rate| DatagramRate {
            bits: config.length as u64 * 8,
            rate,
        });
        let stream = |((socket, sent), index): (Outgoing, u64)| {
            let most = socket.most_segments() as u64;
            let schedule = Schedule::new(start, pace, (index, count), most);
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

    /// Whether the thread would spend most of its time asleep.
    fn sleeps(&self) -> bool {
        self.schedule.gap().is_some_and(|gap| gap >= SLEEPS)
    }

    /// Sends the next train; false when the allowance is used up.
    fn send(&mut self, at: Nanos, config: SendConfig, control: &SendControl) -> bool {
        let allowed = usize::try_from(control.allowance()).unwrap_or(usize::MAX);
        let most = allowed.div_ceil(config.length);
        let full = usize::try_from(self.schedule.train()).expect("a few dozen");
        let train = &mut self.train[..full.min(most) * config.length];
        if train.is_empty() {
            return false;
        }
        for (datagram, number) in train.chunks_mut(config.length).zip(self.number + 1..) {
            let stamped = Stamped { sent: at, number };
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
        let departure = self.schedule.leave(at, count);
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

    /// A full buffer is waited for; anything else ends the stream when it persists.
    fn fail(&mut self, at: Nanos, error: &std::io::Error) {
        let no_buffers = error.raw_os_error() == Some(nix::libc::ENOBUFS);
        if no_buffers || error.kind() == ErrorKind::WouldBlock {
            lock(&self.sent).held_up += 1;
        } else {
            let since = *self.failing_since.get_or_insert(at);
            if at > since + PASSES {
                self.failing_since = Some(at);
            } else if at > since + PERSISTS {
                lock(&self.sent).broken = Some(describe(error));
                self.ended = true;
            }
        }
        if error.kind() != ErrorKind::WouldBlock {
            thread::sleep(PAUSE);
        }
    }

    /// A client that has not seen the answer to its greeting greets again.
    fn answer_greetings(&self) {
        let mut datagram = [0; wire::GREETING_LENGTH + 1];
        while let Ok(Some(length)) = self.socket.receive(&mut datagram) {
            if let Some(answer) = wire::answer_to(&datagram[..length]) {
                // It is not a datagram of the test, and its loss would be greeted again.
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
    fn what_was_given_up_in_the_omitted_start_is_not_counted() {
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
