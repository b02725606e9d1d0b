//! The thread that sends: every stream of a test that leaves this host, each on its schedule.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use model::Nanos;
use netio::udp::TrainSender;
use netio::{Sleeper, clock};

use super::datagram::{Counter, Stamped};
use super::greeting;
use super::pacing::Pacing;
use super::schedule::{Pace, Schedule};
use netio::stop::STOP_INTERVAL;

/// Errors of a socket that come again after so long are no passing ones.
const PERSISTS: Nanos = Nanos(500_000_000);
/// Errors further apart have nothing to do with each other.
const PASSES: Nanos = Nanos(3_000_000_000);
/// A thread whose trains are so far apart sleeps between them.
const SLEEPS: Nanos = Nanos(1_000_000);
/// Before trying again after an error.
const PAUSE: Duration = Duration::from_millis(1);

/// What all of a test's senders obey.
#[derive(Debug)]
pub(super) struct Orders {
    /// End now.
    pub(super) stop: AtomicBool,
    /// Payload bytes that may still be sent, all streams together.
    pub(super) allowance: AtomicU64,
}

/// One stream that leaves.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) socket: TrainSender,
    pub(super) sent: Arc<Shared>,
}

/// What a stream has sent, for whoever looks.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Sent>);

/// What a stream has sent so far.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Datagrams, all of them: the last one's number.
    pub(crate) number: u64,
    /// Those of them that are omitted.
    pub(crate) omitted: u64,
    /// Payload bytes, without what is omitted.
    pub(crate) bytes: u64,
    /// When the first and the last train left, without what is omitted.
    pub(crate) departures: Option<[Nanos; 2]>,
    /// How well in time, without what is omitted.
    pub(crate) pacing: Pacing,
    /// Sends that this host's full buffers held up or refused; they were tried again.
    pub(crate) held_up: u64,
    /// Why the stream cannot go on.
    pub(crate) broken: Option<String>,
}

/// How the streams are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Payload bytes of a datagram.
    pub(super) length: usize,
    /// Payload bits a second and stream; as fast as possible when absent.
    pub(super) rate: Option<u64>,
    pub(super) counter: Counter,
    /// Whether the thread may run before all ordinary ones of this host.
    pub(super) urgent: bool,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Sent {
            number: 0,
            omitted: 0,
            bytes: 0,
            departures: None,
            pacing: Pacing::new(0),
            held_up: 0,
            broken: None,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sent {
    /// Begins to count anew.
    pub(super) fn omit(&mut self) {
        *self = Self {
            number: self.number,
            omitted: self.number,
            bytes: 0,
            departures: None,
            pacing: Pacing::new(self.pacing.burst),
            held_up: 0,
            broken: self.broken.take(),
        };
    }
}

/// Sends `streams` until told to stop or until the allowance is used up.
pub(super) fn run(streams: Vec<Outgoing>, manner: Manner, orders: &Orders) {
    let mut streams = Stream::prepare(streams, manner);
    let mut sleeper = if manner.urgent && streams.iter().all(Stream::sleeps) {
        Sleeper::urgent()
    } else {
        Sleeper::new()
    };
    let mut looked = clock::now();
    while !orders.stop.load(Ordering::Relaxed) {
        let now = clock::now();
        if now.0 - looked.0 > STOP_INTERVAL_NS {
            looked = now;
            streams.iter().for_each(Stream::answer_greetings);
        }
        let open = streams.iter_mut().filter(|stream| !stream.ended);
        let Some(stream) = open.min_by_key(|stream| stream.schedule.next()) else {
            return;
        };
        let next = stream.schedule.next();
        if next.0 > now.0 + STOP_INTERVAL_NS {
            thread::sleep(STOP_INTERVAL / 2);
            continue;
        }
        let at = sleeper.wait(next);
        if !stream.send(at, manner, orders) {
            return;
        }
    }
}

const STOP_INTERVAL_NS: u64 = 100_000_000;

/// A stream in the sending thread.
struct Stream {
    socket: TrainSender,
    sent: Arc<Shared>,
    schedule: Schedule,
    train: Vec<u8>,
    number: u64,
    trouble: Option<Nanos>,
    ended: bool,
}

impl Stream {
    fn prepare(streams: Vec<Outgoing>, manner: Manner) -> Vec<Self> {
        let start = clock::now();
        let count = streams.len() as u64;
        let pace = manner.rate.map(|rate| Pace {
            bits: manner.length as u64 * 8,
            rate,
        });
        let stream = |(Outgoing { socket, sent }, index)| {
            let most = socket.most_segments() as u64;
            let schedule = Schedule::new(start, pace, (index, count), most);
            sent.lock().pacing.burst = schedule.train();
            let mut train = vec![0; socket.most_segments() * manner.length];
            fastrand::fill(&mut train);
            Self {
                socket,
                sent,
                schedule,
                train,
                number: 0,
                trouble: None,
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
    fn send(&mut self, at: Nanos, manner: Manner, orders: &Orders) -> bool {
        let allowed = orders.allowance.load(Ordering::Relaxed);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
        let most = allowed.div_ceil(manner.length);
        let full = usize::try_from(self.schedule.train()).expect("a few dozen");
        let train = &mut self.train[..full.min(most) * manner.length];
        if train.is_empty() {
            return false;
        }
        for (datagram, number) in train.chunks_mut(manner.length).zip(self.number + 1..) {
            let stamped = Stamped { sent: at, number };
            manner.counter.write(stamped, datagram);
        }
        match self.socket.send(train) {
            Ok(count) => self.count(at, count as u64, manner, orders),
            Err(error) => self.fail(at, &error),
        }
        true
    }

    fn count(&mut self, at: Nanos, count: u64, manner: Manner, orders: &Orders) {
        self.number += count;
        let bytes = count * manner.length as u64;
        let less = |allowed: u64| (allowed != u64::MAX).then(|| allowed.saturating_sub(bytes));
        let _ = orders
            .allowance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let departure = self.schedule.leave(at, count);
        let mut sent = self.sent.lock();
        sent.number = self.number;
        sent.bytes += bytes;
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
            self.sent.lock().held_up += 1;
        } else {
            let since = *self.trouble.get_or_insert(at);
            if at > since + PASSES {
                self.trouble = Some(at);
            } else if at > since + PERSISTS {
                self.sent.lock().broken = Some(describe(error));
                self.ended = true;
            }
        }
        if error.kind() != ErrorKind::WouldBlock {
            thread::sleep(PAUSE);
        }
    }

    /// A client that has not seen the answer to its greeting greets again.
    fn answer_greetings(&self) {
        let mut datagram = [0; greeting::LENGTH + 1];
        while let Ok(Some(length)) = self.socket.receive(&mut datagram) {
            if let Some(answer) = greeting::answer_to(&datagram[..length]) {
                // It is not a datagram of the test, and its loss would be greeted again.
                let _ = self.socket.answer(&answer);
            }
        }
    }
}

fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "the other end's host refuses the datagrams: nobody receives them there".to_owned()
        }
        _ => format!("the datagrams cannot be sent: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Departure;
    use super::*;

    #[test]
    fn what_was_given_up_in_the_omitted_start_is_not_counted() {
        let shared = Shared::new();
        let mut sent = shared.lock();
        let departure = |given_up| Departure {
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
