//! One TCP stream: its socket, the thread that sends or receives on it, and its counts.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail};
use netio::tcp::{TcpInfo, discard};

use super::super::control::is_timeout;
use super::super::plan::{Iperf3Test, StreamSpec};
use super::super::run::{CpuMeter, CpuTime, SendControl};

/// The time-out of a blocked send or receive, after which a thread checks the stop. A stalled sender stops this late.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(20);
/// The bytes discarded from the receive buffer in one call. The number is large because the kernel copies nothing.
const DISCARD_SIZE: usize = 4 << 20;
/// The bytes copied from the receive buffer in one call, if the plan asks for copies, which is iperf3's default.
const COPY_SIZE: usize = 128 << 10;
/// A paced sender writes the data that is due within this time, and at least [`LEAST_CHUNK`] bytes.
const PACING_STEP: Duration = Duration::from_millis(1);
const LEAST_CHUNK: usize = 1460;
/// The time between two publications of a receiver's CPU time, since the receiver still runs when the results are
/// taken.
const CPU_PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// The state that all streams of one end share.
#[derive(Debug)]
pub(super) struct SharedStreamState {
    /// The control of the senders. Receivers continue after its stop without being counted.
    pub(super) control: SendControl,
    /// The incompressible block that is sent repeatedly.
    block: Vec<u8>,
    /// The rate of each stream in payload bits per second.
    bitrate: Option<u64>,
    /// Whether receivers copy received data.
    rx_copy: bool,
}

/// One stream of this end, with its counts at several moments.
#[derive(Debug)]
pub(super) struct DataStream {
    pub(super) spec: StreamSpec,
    /// The socket, or `None` once it is closed.
    socket: Option<Arc<TcpStream>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    /// The counts at the start of counting.
    pub(super) base: Snapshot,
    /// The counts at the start of the current interval.
    before: Snapshot,
    /// The counts at the end of the test.
    pub(super) end: Option<Snapshot>,
    pub(super) sender: SenderSummary,
}

/// The values that the thread of a stream publishes.
#[derive(Debug, Default)]
struct Counters {
    /// Payload bytes sent or received.
    bytes: AtomicU64,
    /// Time of the first of them in nanoseconds after the start, or 0 before it.
    first_ns: AtomicU64,
    /// Time of the last of them in nanoseconds after the start.
    last_ns: AtomicU64,
    cpu: CpuMeter,
    /// Set when the thread ends, with the reason if it ended with an error.
    end: OnceLock<Option<String>>,
}

/// The counts of a stream at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// Payload bytes that this end's program sent or received.
    pub(super) bytes: u64,
    /// The kernel's values.
    pub(super) info: TcpInfo,
}

/// The kernel's values of a sender at the ends of intervals, summarised.
#[derive(Debug, Default)]
pub(super) struct SenderSummary {
    count: u32,
    rtt_sum: Duration,
    /// The largest round-trip time.
    rtt_most: Duration,
    /// The largest congestion window in bytes.
    pub(super) most_cwnd: u64,
}

/// The counts of one stream for one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamInterval {
    /// The stream as this end sees it.
    pub(crate) spec: StreamSpec,
    /// Payload bytes that this end wrote or read.
    pub(crate) bytes: u64,
    /// Payload bytes that arrived: those that this end read, or that the other end acknowledged.
    pub(crate) arrived: u64,
    /// Retransmitted segments, only at a sender.
    pub(crate) retransmits: u32,
    /// The kernel's values at the end of the interval.
    pub(crate) info: TcpInfo,
}

/// Returns the congestion window in bytes, as iperf3 states it.
pub(crate) fn cwnd_bytes(info: &TcpInfo) -> u64 {
    u64::from(info.snd_cwnd) * u64::from(info.snd_mss)
}

impl SharedStreamState {
    /// Returns the state for blocks of `block` bytes, without a limit of sending.
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
            sender: SenderSummary::default(),
        }
    }

    /// Starts the thread.
    pub(super) fn start(&mut self, sending: &Arc<SharedStreamState>, start: Instant) -> Result<()> {
        let socket = self.socket.clone().context("a closed stream")?;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(BLOCK_TIMEOUT))?;
        socket.set_read_timeout(Some(BLOCK_TIMEOUT))?;
        let (counters, sending) = (Arc::clone(&self.counters), Arc::clone(sending));
        let work = if self.spec.sends { send } else { receive };
        let run = move || {
            let outcome = counters
                .cpu
                .measure(|| work(&socket, &sending, &counters, start));
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

    /// Returns the counts at the end of the test, or now if it has not ended.
    pub(super) fn latest(&self) -> Snapshot {
        self.end.unwrap_or_else(|| self.snapshot(Instant::now()))
    }

    /// Restarts counting.
    pub(super) fn reset(&mut self, now: Instant) {
        self.base = self.snapshot(now);
        self.before = self.base;
        self.sender = SenderSummary::default();
    }

    /// Ends an interval and returns its counts.
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

    /// Returns the connection, until it is closed.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_deref()
    }

    /// Joins the thread, which has been told to end, and closes the connection.
    pub(super) fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            // The shutdown wakes a receiver that waits for more data.
            let _ = socket.shutdown(Shutdown::Read);
            self.join();
        }
    }

    /// Returns the time of the first byte sent or received, since the start.
    pub(super) fn first_byte(&self) -> Duration {
        Duration::from_nanos(self.counters.first_ns.load(Ordering::Relaxed))
    }

    /// Returns the time of the last byte sent or received, since the start.
    pub(super) fn last_byte(&self) -> Duration {
        Duration::from_nanos(self.counters.last_ns.load(Ordering::Relaxed))
    }

    /// Returns `Some` if the thread has ended, with the reason if it ended with an error.
    pub(super) fn ended(&self) -> Option<&Option<String>> {
        self.counters.end.get()
    }

    pub(super) fn cpu(&self) -> CpuTime {
        self.counters.cpu.used()
    }

    /// Waits for the thread, which has been told to end.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed. The stream then has no end, and keeps its counts.
            let _ = thread.join();
        }
    }
}

impl Drop for DataStream {
    fn drop(&mut self) {
        self.close();
    }
}

impl SenderSummary {
    fn add(&mut self, info: &TcpInfo) {
        self.rtt_most = self.rtt_most.max(info.rtt);
        self.rtt_sum += info.rtt;
        self.count += 1;
        self.most_cwnd = self.most_cwnd.max(cwnd_bytes(info));
    }

    /// Returns the mean and the largest round-trip time, or `None` without an interval.
    pub(super) fn rtt(&self) -> Option<[Duration; 2]> {
        (self.count > 0).then(|| [self.rtt_sum / self.count, self.rtt_most])
    }
}

impl Counters {
    fn add(&self, bytes: usize, start: Instant) {
        // There is only one writer, so that no locked instruction is needed.
        let total = self.bytes.load(Ordering::Relaxed) + bytes as u64;
        self.bytes.store(total, Ordering::Relaxed);
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(ns, Ordering::Relaxed);
        if total == bytes as u64 {
            self.first_ns.store(ns, Ordering::Relaxed);
        }
    }
}

/// Writes until the stop, or until the allowance is used up.
fn send(
    socket: &TcpStream,
    sending: &SharedStreamState,
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
                thread::sleep(wait.min(BLOCK_TIMEOUT));
                continue;
            }
        }
        let wanted = control.take(chunk);
        if wanted == 0 {
            break;
        }
        let written = match socket.write(&sending.block[..wanted]) {
            Ok(count) => count,
            Err(error) if is_timeout(&error) => 0,
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

/// Reads until the far end or this end closes the connection.
fn receive(
    socket: &TcpStream,
    test: &SharedStreamState,
    counters: &Counters,
    start: Instant,
) -> Result<()> {
    let mut published = Instant::now();
    let mut copied = vec![0; if test.rx_copy { COPY_SIZE } else { 0 }];
    loop {
        if published.elapsed() > CPU_PUBLISH_INTERVAL {
            counters.cpu.publish();
            published = Instant::now();
        }
        let taken = if test.rx_copy {
            (&mut &*socket).read(&mut copied)
        } else {
            discard(socket, DISCARD_SIZE)
        };
        match taken {
            Ok(0) if !test.control.is_stopped() => {
                bail!(Peer, "the far end closed a receiving stream");
            }
            Ok(0) => return Ok(()),
            Ok(count) => counters.add(count, start),
            Err(error) if is_timeout(&error) => {}
            Err(error) if !test.control.is_stopped() => {
                return Err(error).context("the far end broke a receiving stream");
            }
            // After the test the far end may close the connection at any time.
            Err(_) => return Ok(()),
        }
    }
}

/// Returns when byte `sent` is due at `rate` bits per second.
fn due(sent: u64, rate: u64) -> Duration {
    let ns = u128::from(sent) * 8_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_due_after_the_time_of_the_bytes_before_it() {
        assert_eq!(due(1_250_000, 10_000_000), Duration::from_secs(1));
        assert_eq!(due(0, 1), Duration::ZERO);
    }
}
