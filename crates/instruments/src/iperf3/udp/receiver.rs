//! The thread that receives: every stream of a test that comes to this host.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use model::Nanos;
use netio::clock::{self, StampConverter};
use netio::udp::{TrainBuffer, TrainReceiver};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::receiver_stats::ReceiverStats;
use super::wire;
use crate::iperf3::run::CpuMeter;
use crate::lock;

/// How long the thread sleeps without looking whether it is to end, in milliseconds.
const WAIT_MS: u16 = 20;
/// Between two statements of the CPU time.
const STATED_EVERY: Nanos = Nanos(20_000_000);
/// Trains taken from one socket before the others get their turn.
const TURN: usize = 64;
/// After it has emptied every socket the thread rests so long before it looks again. The kernel stamps what comes
/// meanwhile, and a wake-up for each datagram would take this host's time from whoever else needs it: a sender on the
/// same host would be put off a core for it, some hundred times a second.
const REST: Duration = Duration::from_millis(1);
/// A socket that can hold less is not left alone: at 10 Gb/s as much comes during a [`REST`].
const ROOM: usize = 2 << 20;

/// One stream that comes.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) socket: Arc<TrainReceiver>,
    pub(super) stats: Arc<Mutex<ReceiverStats>>,
}

/// Receives `streams` until `stop` rises; states to `cpu` what CPU time it took, now and then.
pub(super) fn run(streams: &[Incoming], stop: &AtomicBool, cpu: &CpuMeter) {
    let mut buffer = TrainBuffer::default();
    let sockets = streams.iter().map(|stream| stream.socket.as_fd());
    let mut fds: Vec<PollFd<'_>> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
        .collect();
    let mut stated = clock::now();
    let mut last_empty = vec![stated; streams.len()];
    let rests = streams.iter().all(|stream| stream.socket.room() >= ROOM);
    while !stop.load(Ordering::Relaxed) {
        match poll(&mut fds, PollTimeout::from(WAIT_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Only a kernel without memory says so.
            Err(_) => return,
        }
        let mut emptied = true;
        for ((fd, stream), empty) in fds.iter().zip(streams).zip(&mut last_empty) {
            if fd.any().unwrap_or(true) {
                emptied &= stream.take_turn(&mut buffer, empty);
            }
        }
        let now = clock::now();
        if now > stated + STATED_EVERY {
            cpu.state();
            stated = now;
        }
        if rests && emptied {
            thread::sleep(REST);
        }
    }
}

impl Incoming {
    /// Takes what waits in the socket, up to a turn; whether that was all.
    fn take_turn(&self, buffer: &mut TrainBuffer, last_empty: &mut Nanos) -> bool {
        for _ in 0..TURN {
            let asked = clock::now();
            match self.socket.receive(buffer) {
                Ok(Some(train)) => {
                    if let Some(answer) = wire::answer_to(train.bytes) {
                        // A client that has not seen the answer greets again. It is not a datagram of the test.
                        let _ = self.socket.answer(&answer);
                        continue;
                    }
                    let at = match train.stamp {
                        Some(stamp) => StampConverter::sample(*last_empty).convert(stamp),
                        None => clock::now(),
                    };
                    lock(&self.stats).arrive(train.bytes, train.segment, at, train.drops);
                }
                Ok(None) => {
                    *last_empty = asked;
                    return true;
                }
                // Refused: about an answer of ours. It is taken off the socket by being reported.
                Err(_) => return false,
            }
        }
        false
    }
}
