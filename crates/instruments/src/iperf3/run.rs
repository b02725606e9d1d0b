//! The running part of a test, which is the same at both ends and for TCP and UDP: intervals, the omitted start, and
//! silence.

use crate::error::Result;
use crate::lock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use netio::cpu::{self, ThreadClock};

use super::control::{ControlChannel, ControlError, ControlResult};
use super::messages::{Results, StreamResults, TestResults};
use super::plan::{Iperf3Test, Until};
use crate::service::TestTraffic;

/// The longest time between two looks at the streams, whatever the interval.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two looks in a test of a number of bytes, whose end must be found.
const BYTES_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The streams of one end while a test runs. TCP and UDP implement this for the control session of either end.
///
/// The session opens the streams and calls [`start`](Self::start) once. It then calls [`tick`](Self::tick) at the end
/// of every interval, [`end_omission`](Self::end_omission) at the end of the omitted start, [`stop`](Self::stop) at the
/// end of the test, and [`results`](Self::results) last. All times are of this end's clock.
pub(crate) trait Streams {
    /// Starts the senders and receivers. The test's time begins at `start`.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    fn start(&mut self, start: Instant) -> Result<()>;

    /// Discards the counts so far from [`results`](Self::results) and [`progress`](Self::progress).
    fn end_omission(&mut self, now: Instant);

    /// Ends an interval.
    fn tick(&mut self, now: Instant);

    /// Returns a line about the last complete interval, for a terminal.
    fn interval_line(&self) -> String;

    /// Returns the progress of the streams.
    fn progress(&self) -> TestProgress;

    /// Returns the traffic of the streams as a far end sees it, for people who watch.
    fn traffic(&self) -> TestTraffic;

    /// Stops sending and counting. Data that arrives later is read, but does not belong to the test.
    fn stop(&mut self, now: Instant);

    /// Counts data that arrives after [`stop`](Self::stop), until everything that the sender reports as `sent` has
    /// arrived, or `enough` returns true. A test of a number of bytes ends with its last byte, not with the sender's
    /// message.
    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool);

    /// Closes the sockets. The counts at [`stop`](Self::stop) are kept.
    fn close(&mut self) {}

    /// Returns the results of each stream for the other end.
    fn results(&self) -> Vec<StreamResults>;

    /// Returns the TCP congestion control in use, if there is one.
    fn congestion_used(&self) -> Option<String> {
        None
    }

    /// Returns the CPU time that the streams have used since [`start`](Self::start).
    fn cpu(&self) -> CpuTime;
}

/// The progress of a test since the omitted start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestProgress {
    /// Payload bytes received on all streams.
    pub(crate) received: u64,
    /// Bytes since the start that show progress of the path: those received and those acknowledged, or the sent ones if
    /// this end only sends datagrams.
    pub(crate) moved: u64,
    /// Whether all data to be sent has arrived at the other end's host, as far as this end knows.
    pub(crate) delivered: bool,
    /// The reason why a stream ended too early.
    pub(crate) broken: Option<String>,
}

/// The control of all senders of one end.
#[derive(Debug)]
pub(crate) struct SendControl {
    stopped: AtomicBool,
    /// Payload bytes that may still be sent; `u64::MAX` means no limit.
    allowance: AtomicU64,
}

/// CPU time of data threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// Time in user space.
    pub(crate) user: Duration,
    /// Time in the kernel on behalf of the threads.
    pub(crate) system: Duration,
}

/// The CPU time of one data thread, which other threads can read.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    clock: OnceLock<ThreadClock>,
    published: Mutex<CpuTime>,
    ended: AtomicBool,
}

/// The time of a running test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTime {
    /// The time that has counted so far, or `None` during the omitted start.
    pub(crate) counted: Option<Duration>,
    /// Whether an interval has just ended.
    pub(crate) ticked: bool,
}

/// Starts the streams, runs them until `poll_end` returns that the test is over, and stops them. Returns this end's
/// results, and an error if the test ended too early. `poll_end` is called repeatedly, and waits for the other end
/// until the given moment. `sends` tells whether this end sends on any stream.
///
/// The test fails if there is no progress on any stream for `silence`.
pub(crate) fn run<S: Streams>(
    plan: &Iperf3Test,
    streams: &mut S,
    sends: bool,
    silence: Duration,
    poll_end: impl FnMut(&mut S, RunningTime, Instant) -> ControlResult<bool>,
) -> (Results, ControlResult<()>) {
    let start = Instant::now();
    let mut running = TestLoop {
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
        .and_then(|()| running.poll_until_end(streams, poll_end));
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

/// Waits at most `max_wait` for the data that the other end reports as sent, and updates the results.
pub(crate) fn settle(
    streams: &mut impl Streams,
    sides: &mut TestResults,
    remote: &Results,
    control: &ControlChannel,
    max_wait: Duration,
) {
    let late = Instant::now() + max_wait;
    let enough = || Instant::now() >= late || control.check().is_err();
    streams.settle(&remote.streams, &enough);
    sides.local.streams = streams.results();
}

/// Returns the seconds from one moment to another, or 0 if the second is earlier.
pub(crate) fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

struct TestLoop<'a> {
    plan: &'a Iperf3Test,
    start: Instant,
    counted_from: Option<Instant>,
    next_tick: Instant,
    /// The time of the last progress, and the amount then.
    moved: (Instant, u64),
    silence: Duration,
}

impl TestLoop<'_> {
    fn poll_until_end<S: Streams>(
        &mut self,
        streams: &mut S,
        mut poll_end: impl FnMut(&mut S, RunningTime, Instant) -> ControlResult<bool>,
    ) -> ControlResult<()> {
        loop {
            let now = Instant::now();
            let ticked = self.advance(streams, now);
            let since = |from| now.saturating_duration_since(from);
            let counted = self.counted_from.map(since);
            let moment = RunningTime { counted, ticked };
            if poll_end(streams, moment, self.next_event(now))? {
                return Ok(());
            }
            self.check_silence(streams, now)?;
        }
    }

    /// Does the work that is due by `now`, and returns whether an interval ended.
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
            // A late interval shortens the next one. If it is late by more than an interval, it includes the next one.
            while self.next_tick <= now {
                self.next_tick += self.plan.interval;
            }
        }
        ticked
    }

    fn next_event(&self, now: Instant) -> Instant {
        let next = self.next_tick.min(now + CHECK_INTERVAL);
        match (self.counted_from, self.plan.until) {
            (None, _) => next.min(self.start + self.plan.omit),
            // The server continues until it is told of the end.
            (Some(from), Until::For(time)) if now < from + time => next.min(from + time),
            (Some(_), Until::For(_)) => next,
            (Some(_), Until::Bytes(_)) => next.min(now + BYTES_CHECK_INTERVAL),
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
    /// Returns a control that does not limit sending.
    pub(crate) fn new() -> Self {
        Self {
            stopped: AtomicBool::new(false),
            allowance: AtomicU64::new(u64::MAX),
        }
    }

    /// Limits sending to `bytes` more payload bytes.
    pub(crate) fn limit(&self, bytes: u64) {
        self.allowance.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of payload bytes that may still be sent; `u64::MAX` means no limit.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` payload bytes from the allowance, and returns the number taken.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let mut taken = wanted;
        // Without a limit nothing is written, so that streams do not contend for the counter.
        self.change(|left| {
            taken = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
            left - taken as u64
        });
        taken
    }

    /// Returns bytes to the allowance that were taken but not sent.
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

    /// Stops sending.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether sending is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl CpuTime {
    /// Returns the sum of both kinds.
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
    }

    /// Returns the CPU time in percent of `lasted`: total, user, system.
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
    /// Runs `work` on the calling thread and measures its CPU time. `work` may call [`publish`](Self::publish) from
    /// time to time.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let _ = self.clock.set(ThreadClock::of_this_thread());
        let done = work();
        self.publish();
        self.ended.store(true, Ordering::Release);
        done
    }

    /// Publishes the CPU time of the calling thread, which must be the measured one.
    pub(crate) fn publish(&self) {
        let (user, system) = cpu::of_this_thread();
        *lock(&self.published) = CpuTime { user, system };
    }

    /// Returns the CPU time until now. Time since the last publication counts as the kernel's.
    pub(crate) fn used(&self) -> CpuTime {
        let running = !self.ended.load(Ordering::Acquire);
        let clock = self.clock.get().filter(|_| running);
        let published = *lock(&self.published);
        let total = clock.and_then(|clock| clock.elapsed());
        let since = total.map(|total| total.saturating_sub(published.total()));
        CpuTime {
            system: published.system + since.unwrap_or_default(),
            ..published
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_an_allowance_and_return_unsent_bytes() {
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
    fn cpu_time_since_the_last_publication_counts_as_the_kernel_s() {
        let meter = CpuMeter::default();
        meter.measure(|| {
            while cpu::of_this_thread().0.is_zero() {}
            meter.publish();
            let published = *lock(&meter.published);
            let used = meter.used();
            assert!(!used.user.is_zero());
            assert_eq!(used.user, published.user);
            assert!(used.total() >= published.total());
        });
        assert_eq!(meter.used(), *lock(&meter.published));
    }
}
