//! A flow of numbered UDP datagrams with distinct contents. It never has more than a window in flight, so nothing
//! overflows if CPU time is short, and every datagram can be accounted for.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::process::uninterrupted;

/// The parameters of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Address of the receiver.
    pub to: IpAddr,
    /// Least number of bytes of UDP payload that must arrive.
    pub bytes: u64,
    /// Payload bytes of a datagram; without it, each batch has another size from 64 to 1,452 bytes.
    pub size: Option<usize>,
    /// Number of datagrams per call, which are one train (`UDP_SEGMENT`) if there is more than one.
    pub batch: usize,
    /// Largest number of datagrams in flight.
    pub window: u64,
    /// Whether the sender stays on one CPU. Otherwise its datagrams could overtake each other when it moves to another
    /// CPU.
    pub pinned: bool,
    /// Pause between two batches, so that the datagrams in flight fill the delay and not the receive ring.
    pub pause: Duration,
}

/// The result of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of datagrams that the receiver read, each with the content that was sent.
    pub received: u64,
    /// Number of them that arrived after one with a higher number.
    pub overtaken: u64,
}

/// Time for which the sender waits for the window, or the receiver for a datagram, before it gives up.
const TIMEOUT: Duration = Duration::from_secs(20);
const PORT: u16 = 5002;
/// Bytes of number and length before a datagram's content.
const HEADER: usize = 10;
/// Bytes of the largest train: 64 segments before Linux 6.9, and 64 KiB with its headers.
const LARGEST_TRAIN: usize = 60_000;

impl Flow {
    /// Sends the flow. The last datagram arrives, so that nothing is in flight afterwards.
    pub fn run(&self, sender: &NetNs, receiver: &NetNs) -> Result<Tally> {
        self.run_with(sender, receiver, || Ok(()))
    }

    /// Sends the flow. It calls `before_train` before each further train, when the outcome of all but a window of the
    /// earlier datagrams is known.
    pub fn run_with(
        &self,
        sender: &NetNs,
        receiver: &NetNs,
        before_train: impl FnMut() -> Result<()> + Send,
    ) -> Result<Tally> {
        let address = SocketAddr::new(self.to, PORT);
        let socket = receiver.run(|| UdpSocket::bind(address))??;
        // The buffer is larger than the default if that is allowed. The kernel counts datagrams that do not fit.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20));
        let progress = Progress::default();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let received = receive(&socket, &progress);
                progress.update(|state| state.receiver_gone = true);
                received
            });
            let sent = sender.run(|| self.send(address, &progress, before_train))?;
            progress.update(|state| state.sender_gone = true);
            let received = receiving.join().expect("the receiver does not panic");
            Ok(Tally {
                sent: sent?,
                ..received?
            })
        })
    }

    fn send(
        &self,
        to: SocketAddr,
        progress: &Progress,
        mut before_train: impl FnMut() -> Result<()>,
    ) -> Result<u64> {
        if self.pinned {
            let mut cpu = CpuSet::new();
            cpu.set(0)?;
            sched_setaffinity(Pid::from_raw(0), &cpu)?;
        }
        let any: SocketAddr = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }.parse()?;
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        let mut sizes = fastrand::Rng::with_seed(self.bytes);
        let mut train = Vec::new();
        let mut next = 0;
        while progress.lock().bytes < self.bytes {
            let size = self.size.unwrap_or_else(|| sizes.usize(64..=1452));
            let count = self.batch.min(LARGEST_TRAIN / size);
            train.clear();
            for _ in 0..count {
                append(&mut train, next, size);
                next += 1;
            }
            progress.await_window(next, self.window)?;
            before_train()?;
            if self.batch > 1 {
                setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(size)?)?;
            }
            socket.send(&train).context("sending a train")?;
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        // Further datagrams are sent until one arrives. Because the link keeps the order, the outcome of all earlier ones
        // is then known.
        let mut timeout = Duration::from_millis(500);
        while !progress.has_received(next - 1, timeout)? {
            // The datagram may be lost, or the link may have a longer delay.
            timeout *= 2;
            train.clear();
            append(&mut train, next, 64);
            next += 1;
            socket.send(&train)?;
        }
        Ok(next)
    }
}

/// The progress of the receiver, for the sender.
#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The highest number received, plus one.
    next: u64,
    /// Payload bytes received.
    bytes: u64,
    sender_gone: bool,
    receiver_gone: bool,
}

impl Progress {
    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Waits until the outcome of all but `window` of the datagrams before number `next` is known.
    fn await_window(&self, next: u64, window: u64) -> Result<()> {
        let waits = |state: &mut State| !state.receiver_gone && next > state.next + window;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), TIMEOUT, waits)
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(!state.receiver_gone, "the receiver has given up");
        ensure!(
            next <= state.next + window,
            "no datagram came through for {TIMEOUT:?}: {} of {next} seen",
            state.next
        );
        Ok(())
    }

    /// Returns whether number `last` arrives within `timeout`.
    fn has_received(&self, last: u64, timeout: Duration) -> Result<bool> {
        let waits = |state: &mut State| !state.receiver_gone && state.next <= last;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, waits)
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(!state.receiver_gone, "the receiver has given up");
        Ok(state.next > last)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn receive(socket: &UdpSocket, progress: &Progress) -> Result<Tally> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut tally = Tally::default();
    let (mut got, mut expected) = (vec![0; 1 << 16], Vec::new());
    let mut next = 0;
    let mut seen = Vec::new();
    let mut last = Instant::now();
    loop {
        let len = match uninterrupted(|| socket.recv(&mut got)) {
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if progress.lock().sender_gone {
                    return Ok(tally);
                }
                ensure!(last.elapsed() < TIMEOUT, "no datagram for {TIMEOUT:?}");
                continue;
            }
            Err(e) => return Err(e).context("receiving"),
        };
        last = Instant::now();
        let number = number(&got[..len]).with_context(|| format!("a datagram of {len} bytes"))?;
        expected.clear();
        append(&mut expected, number, len);
        ensure!(
            got[..len] == expected,
            "datagram {number} of {len} bytes does not carry what it was sent with"
        );
        mark(&mut seen, number)?;
        tally.received += 1;
        tally.overtaken += u64::from(number < next);
        next = next.max(number + 1);
        progress.update(|state| {
            state.next = next;
            state.bytes += len as u64;
        });
    }
}

/// Appends datagram `number` of `size` bytes; the content follows from both.
fn append(train: &mut Vec<u8>, number: u64, size: usize) {
    let start = train.len();
    train.extend(number.to_le_bytes());
    train.extend(
        u16::try_from(size)
            .expect("a datagram is below 64 KiB")
            .to_le_bytes(),
    );
    train.resize(start + size, 0);
    fastrand::Rng::with_seed(number).fill(&mut train[start + HEADER..]);
}

/// Returns the number of a datagram whose length is the one that it states.
pub fn number(datagram: &[u8]) -> Option<u64> {
    let (number, rest) = datagram.split_first_chunk()?;
    let (len, _) = rest.split_first_chunk()?;
    let whole = usize::from(u16::from_le_bytes(*len)) == datagram.len();
    whole.then(|| u64::from_le_bytes(*number))
}

/// Marks `number` as received; fails if it was received before.
fn mark(seen: &mut Vec<bool>, number: u64) -> Result<()> {
    let at = usize::try_from(number)?;
    if at >= seen.len() {
        seen.resize(at + 1, false);
    }
    ensure!(!seen[at], "datagram {number} came twice");
    seen[at] = true;
    Ok(())
}
