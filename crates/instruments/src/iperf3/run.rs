//! The running part of a test, the same at both ends and over TCP and UDP: intervals, the omitted start, silence.

use crate::error::Result;
use crate::lock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use netio::cpu::{self, ThreadClock};

use super::control::{ControlChannel, ControlError, ControlResult};
use super::messages::{Results, Sides, StreamResults};
use super::plan::{Iperf3Test, Until};

/// How often the streams are looked at, whatever the interval.
const LOOK: Duration = Duration::from_millis(100);
/// How often they are looked at in a test of a fixed number of bytes, whose end has to be found.
const LOOK_FOR_BYTES: Duration = Duration::from_millis(5);

/// The streams of one end while a test runs: what TCP and UDP each bring to the control session of either end.
///
/// The session opens them, calls [`start`](Self::start) once, then [`tick`](Self::tick) at the end of every interval and
/// [`end_omission`](Self::end_omission) where the omitted start ends, then [`stop`](Self::stop), and asks for
/// [`results`](Self::results) last. All times are of this end's clock.
pub(crate) trait Streams {
    /// Starts the senders and receivers; `start` is when the test's time begins.
    ///
    /// # Errors
    /// No thread can be started.
    fn start(&mut self, start: Instant) -> Result<()>;

    /// Forgets what was counted until now in everything that [`results`](Self::results) and
    /// [`progress`](Self::progress) say.
    fn end_omission(&mut self, now: Instant);

    /// Ends an interval.
    fn tick(&mut self, now: Instant);

    /// One line about the interval that ended last, for a terminal.
    fn interval_line(&self) -> String;

    /// How far the streams have come.
    fn progress(&self) -> TestProgress;

    /// Stops sending and counting: what arrives from now on is read, but does not belong to the test.
    fn stop(&mut self, now: Instant);

    /// Takes what arrives after [`stop`](Self::stop) into account until all that the sender says it `sent` is there, or it is
    /// `enough`: a test of a fixed number of bytes ends with its last byte, not when the sender says so.
    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool);

    /// Closes the sockets; what was counted until [`stop`](Self::stop) stays.
    fn close(&mut self) {}

    /// What the other end is to know about each stream.
    fn results(&self) -> Vec<StreamResults>;

    /// The TCP congestion control in use, where there is one.
    fn congestion_used(&self) -> Option<String> {
        None
    }

    /// CPU time that the streams have used since [`start`](Self::start).
    fn cpu(&self) -> CpuTime;
}

/// How far a test has come since the omitted start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestProgress {
    /// Payload bytes received, all streams.
    pub(crate) received: u64,
    /// Of what was sent since the start, how much the other end has; grows while the path works.
    pub(crate) moved: u64,
    /// Whether all that was to be sent has arrived at the other end's host, as far as this end can know.
    pub(crate) delivered: bool,
    /// Why a stream ended too early.
    pub(crate) broken: Option<String>,
}

/// What the senders of one end obey, all streams together.
#[derive(Debug)]
pub(crate) struct SendControl {
    stopped: AtomicBool,
    /// Payload bytes that may still be sent; `u64::MAX` is no limit.
    allowance: AtomicU64,
}

/// CPU time of data threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// In user space.
    pub(crate) user: Duration,
    /// In the kernel on the threads' account.
    pub(crate) system: Duration,
}

/// CPU time of one data thread, for others to read.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    clock: OnceLock<ThreadClock>,
    stated: Mutex<CpuTime>,
    ended: AtomicBool,
}

/// How far a running test is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTime {
    /// For how long it has counted; absent in the omitted start.
    pub(crate) counted: Option<Duration>,
    /// Whether an interval has just ended.
    pub(crate) ticked: bool,
}

/// Starts the streams, lets them run until `turn` says that the test is over, and stops them; gives this end's results
/// beside why the test ended too early, if it did. `turn` is called again and again, and waits for the other end until
/// the moment that it is given. `sends` says whether this end sends on any stream.
///
/// When nothing moves on any stream for `silence`, the test has failed.
pub(crate) fn run<S: Streams>(
    plan: &Iperf3Test,
    streams: &mut S,
    sends: bool,
    silence: Duration,
    turn: impl FnMut(&mut S, RunningTime, Instant) -> ControlResult<bool>,
) -> (Results, ControlResult<()>) {
    let start = Instant::now();
    let mut running = Running {
        plan,
        start,
        counted_from: plan.omit.is_zero().then_some(start),
        next_tick: start + plan.interval,
        moved: (start, 0),
        silence,
    };
    let outcome = streams
        .start(start)
        .map_err(|error| ControlError::Connection(format!("{error:#}")))
        .and_then(|()| running.turns(streams, turn));
    let lasted = start.elapsed();
    streams.stop(Instant::now());
    let results = Results {
        cpu_percent: streams.cpu().percent_of(lasted),
        has_retransmits: sends.then_some(true),
        congestion_used: streams.congestion_used(),
        streams: streams.results(),
    };
    (results, outcome)
}

/// Waits, `patience` at most, for what the other end says that it sent, and counts anew.
pub(crate) fn settle(
    streams: &mut impl Streams,
    sides: &mut Sides,
    remote: &Results,
    control: &ControlChannel,
    patience: Duration,
) {
    let late = Instant::now() + patience;
    let enough = || Instant::now() >= late || control.check().is_err();
    streams.settle(&remote.streams, &enough);
    sides.local.streams = streams.results();
}

/// Seconds from one moment to another; none where that is earlier.
pub(crate) fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

struct Running<'a> {
    plan: &'a Iperf3Test,
    start: Instant,
    counted_from: Option<Instant>,
    next_tick: Instant,
    /// When something moved last, and how much had by then.
    moved: (Instant, u64),
    silence: Duration,
}

impl Running<'_> {
    fn turns<S: Streams>(
        &mut self,
        streams: &mut S,
        mut turn: impl FnMut(&mut S, RunningTime, Instant) -> ControlResult<bool>,
    ) -> ControlResult<()> {
        loop {
            let now = Instant::now();
            let ticked = self.advance(streams, now);
            let since = |from| now.saturating_duration_since(from);
            let counted = self.counted_from.map(since);
            let moment = RunningTime { counted, ticked };
            if turn(streams, moment, self.next_event(now))? {
                return Ok(());
            }
            self.check_silence(streams, now)?;
        }
    }

    /// Does what is due by `now`; whether an interval ended.
    fn advance(&mut self, streams: &mut impl Streams, now: Instant) -> bool {
        if self.counted_from.is_none() && now >= self.start + self.plan.omit {
            streams.tick(now);
            streams.end_omission(now);
            self.counted_from = Some(now);
            self.next_tick = now + self.plan.interval;
            return true;
        }
        let ticked = now >= self.next_tick;
        if ticked {
            streams.tick(now);
            // One that came late shortens the next; one that came much too late is longer itself.
            while self.next_tick <= now {
                self.next_tick += self.plan.interval;
            }
        }
        ticked
    }

    fn next_event(&self, now: Instant) -> Instant {
        let next = self.next_tick.min(now + LOOK);
        match (self.counted_from, self.plan.until) {
            (None, _) => next.min(self.start + self.plan.omit),
            // The server goes on until it is told of the end.
            (Some(from), Until::For(time)) if now < from + time => next.min(from + time),
            (Some(_), Until::For(_)) => next,
            (Some(_), Until::Bytes(_)) => next.min(now + LOOK_FOR_BYTES),
        }
    }

    fn check_silence(&mut self, streams: &impl Streams, now: Instant) -> ControlResult<()> {
        let moved = streams.progress().moved;
        let (since, before) = self.moved;
        if moved != before {
            self.moved = (now, moved);
        } else if now.saturating_duration_since(since) >= self.silence {
            return Err(ControlError::TimedOut(format!(
                "no stream transferred data for {} s",
                self.silence.as_secs_f64()
            )));
        }
        Ok(())
    }
}

impl SendControl {
    /// Sending goes on without a limit.
    pub(crate) fn new() -> Self {
        Self {
            stopped: AtomicBool::new(false),
            allowance: AtomicU64::new(u64::MAX),
        }
    }

    /// Lets so many payload bytes more be sent.
    pub(crate) fn limit(&self, bytes: u64) {
        self.allowance.store(bytes, Ordering::Relaxed);
    }

    /// How many payload bytes may still be sent; `u64::MAX` is no limit.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` payload bytes out of the allowance; how many it gave.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let mut taken = wanted;
        // Without a limit nothing is written, so that streams do not contend for the number.
        self.change(|left| {
            taken = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
            left - taken as u64
        });
        taken
    }

    /// Puts bytes back that were taken and not sent.
    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.change(|left| left + bytes as u64);
        }
    }

    fn change(&self, mut change: impl FnMut(u64) -> u64) {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let limited = |left| (left != u64::MAX).then(|| change(left));
        let _ = self.allowance.fetch_update(set, fetch, limited);
    }

    /// Ends sending.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether sending is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl CpuTime {
    /// Both kinds together.
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
    }

    /// In percent of `lasted`: total, user, system.
    fn percent_of(self, lasted: Duration) -> [f64; 3] {
        let lasted = lasted.as_secs_f64().max(f64::EPSILON);
        [self.total(), self.user, self.system].map(|time| 100.0 * time.as_secs_f64() / lasted)
    }
}

impl std::iter::Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), |sum, time| Self {
            user: sum.user + time.user,
            system: sum.system + time.system,
        })
    }
}

impl CpuMeter {
    /// Does `work`, which may state its CPU time now and then, on the calling thread and meters it.
    pub(crate) fn meter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _ = self.clock.set(ThreadClock::of_this_thread());
        let done = work();
        self.state();
        self.ended.store(true, Ordering::Release);
        done
    }

    /// States what CPU time the calling thread, which is the one metered, has used.
    pub(crate) fn state(&self) {
        let (user, system) = cpu::of_this_thread();
        *lock(&self.stated) = CpuTime { user, system };
    }

    /// Up to now while the thread runs; what it has not stated yet counts as the kernel's.
    pub(crate) fn used(&self) -> CpuTime {
        let running = !self.ended.load(Ordering::Acquire);
        let clock = self.clock.get().filter(|_| running);
        let stated = *lock(&self.stated);
        let total = clock.and_then(|clock| clock.elapsed());
        let since = total.map(|total| total.saturating_sub(stated.total()));
        CpuTime {
            system: stated.system + since.unwrap_or_default(),
            ..stated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_an_allowance_and_give_back_what_they_could_not_send() {
        let control = SendControl::new();
        assert_eq!(control.take(1000), 1000);
        control.limit(1500);
        assert_eq!(control.take(1000), 1000);
        assert_eq!(control.take(1000), 500);
        assert_eq!(control.take(1000), 0);
        assert_eq!(control.allowance(), 0);
        control.give_back(200);
        assert_eq!(control.take(1000), 200);
    }

    #[test]
    fn a_thread_that_still_runs_has_used_what_it_stated_and_since_then_the_kernel_s() {
        let meter = CpuMeter::default();
        meter.meter(|| {
            while cpu::of_this_thread().0.is_zero() {}
            meter.state();
            let stated = *lock(&meter.stated);
            let used = meter.used();
            assert!(!used.user.is_zero());
            assert_eq!(used.user, stated.user);
            assert!(used.total() >= stated.total());
        });
        assert_eq!(meter.used(), *lock(&meter.stated));
    }
}
