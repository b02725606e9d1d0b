//! One TCP stream: its socket, the thread that sends or receives on it, and what was counted.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::cpu::{self, ThreadClock};
use netio::tcp::{TcpInfo, discard};

use super::super::control::is_pause;
use super::super::plan::{CpuTime, StreamSpec};

/// How long a blocked send or receive may keep a thread from looking up; also how late a stalled sender stops.
const BLOCKED: Duration = Duration::from_millis(20);
/// Taken out of the receive buffer in one call. Large, because the kernel copies nothing.
const RECEIVE: usize = 4 << 20;
/// A paced sender writes what is due in so long, and at least [`LEAST_CHUNK`].
const PACING_STEP: Duration = Duration::from_millis(1);
const LEAST_CHUNK: usize = 1460;
/// Between two statements of a receiver's CPU time: it still runs when the results are taken.
const STATED_EVERY: Duration = Duration::from_millis(20);

/// What all streams of one end share.
#[derive(Debug)]
pub(super) struct Gate {
    /// Until the test ends: senders end then, receivers go on without being counted.
    running: AtomicBool,
    /// Payload bytes that may still be sent; `u64::MAX` is no limit.
    budget: AtomicU64,
    /// What is sent over and over: incompressible.
    block: Vec<u8>,
    /// Payload bits a second of each stream.
    bitrate: Option<u64>,
}

/// One stream of this end.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) spec: StreamSpec,
    /// Absent once closed.
    socket: Option<Arc<TcpStream>>,
    counted: Arc<Counted>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread of a stream tells others.
#[derive(Debug, Default)]
struct Counted {
    /// Payload bytes sent or received.
    bytes: AtomicU64,
    /// Nanoseconds after the start at which the last of them came or went.
    last_ns: AtomicU64,
    clock: OnceLock<ThreadClock>,
    /// As the thread stated it last.
    cpu: Mutex<CpuTime>,
    end: Mutex<Option<End>>,
}

/// How a thread ended.
#[derive(Clone, Debug)]
struct End {
    broken: Option<String>,
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

impl Gate {
    pub(super) fn new(block: u32, bitrate: Option<u64>) -> Self {
        let mut bytes = vec![0; block as usize];
        fastrand::Rng::with_seed(block.into()).fill(&mut bytes);
        Self {
            running: AtomicBool::new(true),
            budget: AtomicU64::new(u64::MAX),
            block: bytes,
            bitrate,
        }
    }

    /// Lets so many payload bytes more through, all streams together.
    pub(super) fn limit(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    /// Whether all that may be sent has been taken up by senders.
    pub(super) fn is_spent(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    pub(super) fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
    }

    fn take(&self, wanted: usize) -> usize {
        let mut taken = wanted;
        let less = |left: u64| {
            if left == u64::MAX {
                return None;
            }
            taken = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
            Some(left - taken as u64)
        };
        // Without a limit nothing is written, so that streams do not contend for the number.
        let _ = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken
    }

    fn give_back(&self, bytes: usize) {
        let more = |left: u64| (left != u64::MAX && bytes > 0).then(|| left + bytes as u64);
        let _ = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Flow {
    pub(super) fn new(spec: StreamSpec, socket: TcpStream) -> Self {
        Self {
            spec,
            socket: Some(Arc::new(socket)),
            counted: Arc::default(),
            thread: None,
        }
    }

    /// Sets the thread going.
    pub(super) fn start(&mut self, gate: &Arc<Gate>, start: Instant) -> Result<()> {
        let socket = self.socket.clone().context("a stream that is closed")?;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(BLOCKED))?;
        socket.set_read_timeout(Some(BLOCKED))?;
        let (counted, gate, sends) = (Arc::clone(&self.counted), Arc::clone(gate), self.spec.sends);
        let run = move || {
            let _ = counted.clock.set(ThreadClock::of_this_thread());
            let outcome = if sends {
                send(&socket, &gate, &counted, start)
            } else {
                receive(&socket, &gate, &counted, start)
            };
            counted.finish(outcome.err().map(|error| error.to_string()));
        };
        let thread = thread::Builder::new().name(format!("tcp {}", self.spec.id));
        self.thread = Some(thread.spawn(run).context("no thread for a stream")?);
        Ok(())
    }

    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            at: now,
            bytes: self.counted.bytes.load(Ordering::Relaxed),
            info: self
                .socket()
                .and_then(|socket| TcpInfo::of(socket).ok())
                .unwrap_or_default(),
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

    /// When the last byte came or went, after the start.
    pub(super) fn last_byte(&self) -> Duration {
        Duration::from_nanos(self.counted.last_ns.load(Ordering::Relaxed))
    }

    /// Whether the thread has ended, and over what if it should not have.
    pub(super) fn ended(&self) -> Option<Option<String>> {
        self.counted.end().map(|end| end.broken)
    }

    pub(super) fn cpu(&self) -> CpuTime {
        self.counted.cpu()
    }

    /// Waits for the thread, which has been told to end.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; the stream has no end then and counts as it stands.
            let _ = thread.join();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.close();
    }
}

impl Counted {
    fn add(&self, bytes: usize, start: Instant) {
        // One writer only, so that no locked instruction is needed.
        let total = self.bytes.load(Ordering::Relaxed) + bytes as u64;
        self.bytes.store(total, Ordering::Relaxed);
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.store(ns, Ordering::Relaxed);
    }

    /// States what CPU time the calling thread, which is that of the stream, has used.
    fn state_cpu(&self) {
        let (user, system) = cpu::of_this_thread();
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner) = CpuTime { user, system };
    }

    /// Up to now while the thread runs; what it has not stated yet counts as the kernel's.
    fn cpu(&self) -> CpuTime {
        let stated = *self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let total = match self.end() {
            Some(_) => None,
            None => self.clock.get().and_then(|clock| clock.elapsed()),
        };
        let since = total.map(|total| total.saturating_sub(stated.total()));
        CpuTime {
            system: stated.system + since.unwrap_or_default(),
            ..stated
        }
    }

    fn finish(&self, broken: Option<String>) {
        self.state_cpu();
        let end = Some(End { broken });
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn end(&self) -> Option<End> {
        self.end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Writes until told to stop, or until the budget is spent.
fn send(socket: &TcpStream, gate: &Gate, counted: &Counted, start: Instant) -> Result<()> {
    let mut socket = socket;
    let chunk = match gate.bitrate {
        None => gate.block.len(),
        Some(rate) => {
            let step = u128::from(rate) * PACING_STEP.as_nanos() / 8_000_000_000;
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            step.max(LEAST_CHUNK).min(gate.block.len())
        }
    };
    while gate.running.load(Ordering::Relaxed) {
        if let Some(rate) = gate.bitrate {
            let sent = counted.bytes.load(Ordering::Relaxed);
            let wait = due(sent, rate).saturating_sub(start.elapsed());
            if !wait.is_zero() {
                thread::sleep(wait.min(BLOCKED));
                continue;
            }
        }
        let wanted = gate.take(chunk);
        if wanted == 0 {
            break;
        }
        let written = match socket.write(&gate.block[..wanted]) {
            Ok(count) => count,
            Err(error) if is_pause(&error) => 0,
            Err(error) => {
                gate.give_back(wanted);
                return Err(error).context("the far end broke a stream that was sent on");
            }
        };
        gate.give_back(wanted - written);
        if written > 0 {
            counted.add(written, start);
        }
    }
    Ok(())
}

/// Reads until the far end closes, or this end does.
fn receive(socket: &TcpStream, gate: &Gate, counted: &Counted, start: Instant) -> Result<()> {
    let mut stated = Instant::now();
    loop {
        if stated.elapsed() > STATED_EVERY {
            counted.state_cpu();
            stated = Instant::now();
        }
        match discard(socket, RECEIVE) {
            Ok(0) if gate.running.load(Ordering::Relaxed) => {
                anyhow::bail!("the far end closed a stream that was received on");
            }
            Ok(0) => return Ok(()),
            Ok(count) => counted.add(count, start),
            Err(error) if is_pause(&error) => {}
            Err(error) if gate.running.load(Ordering::Relaxed) => {
                return Err(error).context("the far end broke a stream that was received on");
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
    fn streams_share_a_budget_and_give_back_what_they_could_not_send() {
        let gate = Gate::new(1000, None);
        assert_eq!(gate.take(1000), 1000);
        gate.limit(1500);
        assert_eq!(
            (gate.take(1000), gate.take(1000), gate.take(1000)),
            (1000, 500, 0)
        );
        assert!(gate.is_spent());
        gate.give_back(200);
        assert_eq!(gate.take(1000), 200);
    }

    #[test]
    fn a_byte_is_due_when_those_before_it_have_had_their_time() {
        assert_eq!(due(1_250_000, 10_000_000), Duration::from_secs(1));
        assert_eq!(due(0, 1), Duration::ZERO);
    }

    #[test]
    fn a_thread_that_still_runs_has_used_what_it_stated_and_since_then_the_kernel_s() {
        let counted = Counted::default();
        counted.clock.set(ThreadClock::of_this_thread()).unwrap();
        while cpu::of_this_thread().0.is_zero() {}
        counted.state_cpu();
        let stated = *counted.cpu.lock().unwrap();
        let used = counted.cpu();
        assert!(!used.user.is_zero());
        assert_eq!(used.user, stated.user);
        assert!(used.total() >= stated.total());
        counted.finish(None);
        assert_eq!(counted.cpu(), *counted.cpu.lock().unwrap());
    }
}
