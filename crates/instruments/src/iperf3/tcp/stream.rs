//! One TCP stream: its socket, the thread that sends or receives on it, and what was counted.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail};
use netio::tcp::{TcpInfo, discard};

use super::super::control::is_pause;
use super::super::plan::{Iperf3Test, StreamSpec};
use super::super::run::{CpuMeter, CpuTime, SendControl};

/// How long a blocked send or receive may keep a thread from looking up; also how late a stalled sender stops.
const BLOCKED: Duration = Duration::from_millis(20);
/// Taken out of the receive buffer in one call. Large, because the kernel copies nothing.
const RECEIVE: usize = 4 << 20;
/// Copied out of it in one call, where that is asked for: as much as iperf3 does by default.
const COPIED: usize = 128 << 10;
/// A paced sender writes what is due in so long, and at least [`LEAST_CHUNK`].
const PACING_STEP: Duration = Duration::from_millis(1);
const LEAST_CHUNK: usize = 1460;
/// Between two statements of a receiver's CPU time: it still runs when the results are taken.
const STATED_EVERY: Duration = Duration::from_millis(20);

/// What all streams of one end share.
#[derive(Debug)]
pub(super) struct SenderState {
    /// When senders stop, and how much they may send; receivers go on after it without being counted.
    pub(super) control: SendControl,
    /// What is sent over and over: incompressible.
    block: Vec<u8>,
    /// Payload bits a second of each stream.
    bitrate: Option<u64>,
    /// Whether receivers copy what they receive.
    rx_copy: bool,
}

/// One stream of this end, and how far it was when something began or ended.
#[derive(Debug)]
pub(super) struct DataStream {
    pub(super) spec: StreamSpec,
    /// Absent once closed.
    socket: Option<Arc<TcpStream>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    /// When what counts began.
    pub(super) base: Snapshot,
    /// When the interval began.
    before: Snapshot,
    /// At the end of the test.
    pub(super) end: Option<Snapshot>,
    pub(super) sender: SenderRange,
}

/// What the thread of a stream tells others.
#[derive(Debug, Default)]
struct Counters {
    /// Payload bytes sent or received.
    bytes: AtomicU64,
    /// Nanoseconds after the start at which the first of them left or came; 0 before.
    first_ns: AtomicU64,
    /// Likewise the last.
    last_ns: AtomicU64,
    cpu: CpuMeter,
    /// Set when the thread ends: why, if it should not have.
    end: OnceLock<Option<String>>,
}

/// How far a stream has come at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// Payload bytes sent or received by this end's program.
    pub(super) bytes: u64,
    /// What the kernel knows.
    pub(super) info: TcpInfo,
}

/// Of a sender's kernel state at the ends of intervals.
#[derive(Debug, Default)]
pub(super) struct SenderRange {
    count: u32,
    rtt_sum: Duration,
    /// The greatest round-trip time.
    rtt_most: Duration,
    /// The greatest congestion window, in bytes.
    pub(super) most_cwnd: u64,
}

/// What one interval brought on one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamInterval {
    /// The stream, seen from this end.
    pub(crate) spec: StreamSpec,
    /// Payload bytes that this end wrote, or read.
    pub(crate) bytes: u64,
    /// Payload bytes that arrived: read by this end, or acknowledged by the other.
    pub(crate) arrived: u64,
    /// Segments sent again; at a sender only.
    pub(crate) retransmits: u32,
    /// The kernel's view at the end of the interval.
    pub(crate) info: TcpInfo,
}

/// The congestion window in bytes, as iperf3 states it.
pub(crate) fn cwnd_bytes(info: &TcpInfo) -> u64 {
    u64::from(info.snd_cwnd) * u64::from(info.snd_mss)
}

impl SenderState {
    /// Blocks of so many bytes, without a limit.
    pub(super) fn new(block: u32, plan: &Iperf3Test) -> Self {
        let mut bytes = vec![0; block as usize];
        fastrand::Rng::with_seed(block.into()).fill(&mut bytes);
        Self {
            control: SendControl::new(),
            block: bytes,
            bitrate: plan.bitrate,
            rx_copy: plan.rx_copy,
        }
    }
}

impl DataStream {
    pub(super) fn new(spec: StreamSpec, socket: TcpStream) -> Self {
        let (now, info) = (Instant::now(), TcpInfo::of(&socket).unwrap_or_default());
        let base = Snapshot {
            at: now,
            bytes: 0,
            info,
        };
        Self {
            spec,
            socket: Some(Arc::new(socket)),
            counters: Arc::default(),
            thread: None,
            base,
            before: base,
            end: None,
            sender: SenderRange::default(),
        }
    }

    /// Starts the thread.
    pub(super) fn start(&mut self, sending: &Arc<SenderState>, start: Instant) -> Result<()> {
        let socket = self.socket.clone().context("a closed stream")?;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(BLOCKED))?;
        socket.set_read_timeout(Some(BLOCKED))?;
        let (counters, sending) = (Arc::clone(&self.counters), Arc::clone(sending));
        let work = if self.spec.sends { send } else { receive };
        let run = move || {
            let outcome = counters
                .cpu
                .meter(|| work(&socket, &sending, &counters, start));
            let _ = counters
                .end
                .set(outcome.err().map(|error| error.to_string()));
        };
        let thread = thread::Builder::new().name(format!("tcp {}", self.spec.id));
        self.thread = Some(
            thread
                .spawn(run)
                .context("cannot start the thread of a stream")?,
        );
        Ok(())
    }

    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        let info = self.socket().and_then(|socket| TcpInfo::of(socket).ok());
        Snapshot {
            at: now,
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            info: info.unwrap_or_default(),
        }
    }

    /// How far the stream was at the end of the test, or is now.
    pub(super) fn latest(&self) -> Snapshot {
        self.end.unwrap_or_else(|| self.snapshot(Instant::now()))
    }

    /// Counts anew from here.
    pub(super) fn reset(&mut self, now: Instant) {
        self.base = self.snapshot(now);
        self.before = self.base;
        self.sender = SenderRange::default();
    }

    /// Ends an interval.
    pub(super) fn interval(&mut self, now: Instant) -> StreamInterval {
        let now = self.end.unwrap_or_else(|| self.snapshot(now));
        let before = std::mem::replace(&mut self.before, now);
        let (info, bytes) = (now.info, now.bytes - before.bytes);
        let mut arrived = bytes;
        if self.spec.sends {
            arrived = info.bytes_acked.saturating_sub(before.info.bytes_acked);
            self.sender.add(&info);
        }
        StreamInterval {
            spec: self.spec,
            bytes,
            arrived,
            retransmits: info.total_retrans.saturating_sub(before.info.total_retrans),
            info,
        }
    }

    /// The connection, until it is closed.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_deref()
    }

    /// Ends the thread, which has been told to, and closes the connection.
    pub(super) fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            // Wakes a receiver that waits for more.
            let _ = socket.shutdown(Shutdown::Read);
            self.join();
        }
    }

    /// When the first byte left or came, after the start.
    pub(super) fn first_byte(&self) -> Duration {
        Duration::from_nanos(self.counters.first_ns.load(Ordering::Relaxed))
    }

    /// When the last byte left or came, after the start.
    pub(super) fn last_byte(&self) -> Duration {
        Duration::from_nanos(self.counters.last_ns.load(Ordering::Relaxed))
    }

    /// Whether the thread has ended, and why if it should not have.
    pub(super) fn ended(&self) -> Option<&Option<String>> {
        self.counters.end.get()
    }

    pub(super) fn cpu(&self) -> CpuTime {
        self.counters.cpu.used()
    }

    /// Waits for the thread, which has been told to end.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; the stream has no end then and counts as it stands.
            let _ = thread.join();
        }
    }
}

impl Drop for DataStream {
    fn drop(&mut self) {
        self.close();
    }
}

impl SenderRange {
    fn add(&mut self, info: &TcpInfo) {
        self.rtt_most = self.rtt_most.max(info.rtt);
        self.rtt_sum += info.rtt;
        self.count += 1;
        self.most_cwnd = self.most_cwnd.max(cwnd_bytes(info));
    }

    /// Mean and greatest round-trip time; absent without any.
    pub(super) fn rtt(&self) -> Option<[Duration; 2]> {
        (self.count > 0).then(|| [self.rtt_sum / self.count, self.rtt_most])
    }
}

impl Counters {
    fn add(&self, bytes: usize, start: Instant) {
        // One writer only, so that no locked instruction is needed.
        let total = self.bytes.load(Ordering::Relaxed) + bytes as u64;
        self.bytes.store(total, Ordering::Relaxed);
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(ns, Ordering::Relaxed);
        if total == bytes as u64 {
            self.first_ns.store(ns, Ordering::Relaxed);
        }
    }
}

/// Writes until told to stop, or until the allowance is spent.
fn send(
    socket: &TcpStream,
    sending: &SenderState,
    counters: &Counters,
    start: Instant,
) -> Result<()> {
    let mut socket = socket;
    let control = &sending.control;
    let chunk = match sending.bitrate {
        None => sending.block.len(),
        Some(rate) => {
            let step = u128::from(rate) * PACING_STEP.as_nanos() / 8_000_000_000;
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            step.max(LEAST_CHUNK).min(sending.block.len())
        }
    };
    while !control.is_stopped() {
        if let Some(rate) = sending.bitrate {
            let sent = counters.bytes.load(Ordering::Relaxed);
            let wait = due(sent, rate).saturating_sub(start.elapsed());
            if !wait.is_zero() {
                thread::sleep(wait.min(BLOCKED));
                continue;
            }
        }
        let wanted = control.take(chunk);
        if wanted == 0 {
            break;
        }
        let written = match socket.write(&sending.block[..wanted]) {
            Ok(count) => count,
            Err(error) if is_pause(&error) => 0,
            Err(error) => {
                control.give_back(wanted);
                return Err(error).context("the far end broke a sending stream");
            }
        };
        control.give_back(wanted - written);
        if written > 0 {
            counters.add(written, start);
        }
    }
    Ok(())
}

/// Reads until the far end closes, or this end does.
fn receive(
    socket: &TcpStream,
    test: &SenderState,
    counters: &Counters,
    start: Instant,
) -> Result<()> {
    let mut stated = Instant::now();
    let mut copied = vec![0; if test.rx_copy { COPIED } else { 0 }];
    loop {
        if stated.elapsed() > STATED_EVERY {
            counters.cpu.state();
            stated = Instant::now();
        }
        let taken = match test.rx_copy {
            true => (&mut &*socket).read(&mut copied),
            false => discard(socket, RECEIVE),
        };
        match taken {
            Ok(0) if !test.control.is_stopped() => {
                bail!(Peer, "the far end closed a receiving stream");
            }
            Ok(0) => return Ok(()),
            Ok(count) => counters.add(count, start),
            Err(error) if is_pause(&error) => {}
            Err(error) if !test.control.is_stopped() => {
                return Err(error).context("the far end broke a receiving stream");
            }
            // After the test the far end may close as it likes.
            Err(_) => return Ok(()),
        }
    }
}

/// When byte `sent` is due at `rate` bits a second.
fn due(sent: u64, rate: u64) -> Duration {
    let ns = u128::from(sent) * 8_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_due_when_those_before_it_have_had_their_time() {
        assert_eq!(due(1_250_000, 10_000_000), Duration::from_secs(1));
        assert_eq!(due(0, 1), Duration::ZERO);
    }
}
