//! The thread that receives all streams of a test that arrive at this host.

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

/// The longest sleep in milliseconds before the thread checks the stop.
const WAIT_MS: u16 = 20;
/// The time between two publications of the CPU time.
const CPU_PUBLISH_INTERVAL: Nanos = Nanos(20_000_000);
/// The most trains received from one socket before it is the turn of the next.
const TURN: usize = 64;
/// The pause after the thread has emptied every socket. The kernel stamps datagrams that arrive in the meantime. A
/// wake-up per datagram would take CPU time from other threads of this host: a sender on the same host would lose its
/// core for each, some hundred times a second.
const REST: Duration = Duration::from_millis(1);
/// The least receive buffer in bytes for which the thread pauses: about as much as arrives during a [`REST`] at 10
/// Gbit/s.
const ROOM: usize = 2 << 20;

/// A stream that arrives at this host.
#[derive(Clone, Debug)]
pub(super) struct ReceivingStream {
    pub(super) socket: Arc<TrainReceiver>,
    pub(super) stats: Arc<Mutex<ReceiverStats>>,
    /// Whether this end is the server, which answers greetings.
    pub(super) is_server: bool,
}

/// Receives `streams` until `stop` is set, and publishes its CPU time to `cpu` from time to time.
pub(super) fn run(streams: &[ReceivingStream], stop: &AtomicBool, cpu: &CpuMeter) {
    let mut buffer = TrainBuffer::default();
    let sockets = streams.iter().map(|stream| stream.socket.as_fd());
    let mut fds: Vec<PollFd<'_>> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
        .collect();
    let mut published = clock::now();
    let mut last_empty = vec![published; streams.len()];
    let rests = streams.iter().all(|stream| stream.socket.room() >= ROOM);
    while !stop.load(Ordering::Relaxed) {
        match poll(&mut fds, PollTimeout::from(WAIT_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            // The only possible error is a kernel without memory.
            Err(_) => return,
        }
        let mut emptied = true;
        for ((fd, stream), empty) in fds.iter().zip(streams).zip(&mut last_empty) {
            if fd.any().unwrap_or(true) {
                emptied &= stream.take_turn(&mut buffer, empty);
            }
        }
        let now = clock::now();
        if now > published + CPU_PUBLISH_INTERVAL {
            cpu.publish();
            published = now;
        }
        if rests && emptied {
            thread::sleep(REST);
        }
    }
}

impl ReceivingStream {
    /// Receives the trains that wait in the socket, up to [`TURN`], and returns whether those were all.
    fn take_turn(&self, buffer: &mut TrainBuffer, last_empty: &mut Nanos) -> bool {
        for _ in 0..TURN {
            let before = clock::now();
            match self.socket.receive(buffer) {
                Ok(Some(train)) => {
                    if let Some(answer) = wire::answer_to(train.bytes) {
                        // A client that has not received the answer greets again, and may then receive two. Neither is
                        // a datagram of the test.
                        if self.is_server {
                            let _ = self.socket.answer(&answer);
                        }
                        continue;
                    }
                    let at = match train.stamp {
                        Some(stamp) => StampConverter::sample(*last_empty).convert(stamp),
                        None => clock::now(),
                    };
                    lock(&self.stats).arrive(train.bytes, train.segment, at, train.drops);
                }
                Ok(None) => {
                    *last_empty = before;
                    return true;
                }
                // The error is an ICMP refusal of an earlier answer. Reporting it has removed it from the socket.
                Err(_) => return false,
            }
        }
        false
    }
}
