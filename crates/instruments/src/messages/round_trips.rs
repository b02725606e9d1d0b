//! The round-trip times of one message size, and an estimate of the hosts' part of them.

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use hdrhistogram::Histogram;

use super::connection::MessageStream;
use super::wire::WaitMode;
use netio::stop::Stop;
use record::{Figure, Metric, Sample, Statistic};
use stats::quantile::Quantile;
use stats::{order_statistics, t_interval};

/// The significant digits of the histogram; four digits mean an error of at most 0.01 %.
const DIGITS: u8 = 4;
/// The largest round-trip time in the histogram: one hour, in nanoseconds.
const LONGEST_RTT_NS: u64 = 3_600_000_000_000;
/// The number of messages from which the hosts' part is estimated.
const HOST_MESSAGES: usize = 200;
/// The longest duration of the estimate. Large messages or long pauses reduce the number of messages.
const LONGEST_ESTIMATE: Duration = Duration::from_millis(500);
/// The approximate time in seconds that a small message over loopback takes, including the oversleep of the wait before
/// it.
const LOOPBACK_S: f64 = 100e-6;
/// The longest wait before a message. A core that has waited for this long has reached its deepest sleep state.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Returns the approximate duration of [`host_overhead`] in seconds with waits of `pause_s` seconds.
pub(super) fn overhead_takes_s(pause_s: f64) -> f64 {
    let messages_s = HOST_MESSAGES as f64 * (pause_s + LOOPBACK_S);
    messages_s.min(LONGEST_ESTIMATE.as_secs_f64())
}

/// A record of round-trip times that allocates only if every one of them is kept.
pub(super) struct MessageRoundTrips {
    /// Round-trip times in nanoseconds.
    histogram: Histogram<u64>,
    /// Arrival and round-trip time of each answer in seconds. Empty if there are too many messages to keep.
    kept: Vec<(f64, f64)>,
    keep: bool,
    began: Instant,
    sum: Duration,
    answered: u64,
}

impl MessageRoundTrips {
    /// Returns an empty record whose times count from `began`. With `keep` it keeps every message.
    pub(super) fn new(keep: bool, began: Instant) -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, LONGEST_RTT_NS, DIGITS)
                .expect("bounds in order"),
            kept: Vec::new(),
            keep,
            began,
            sum: Duration::ZERO,
            answered: 0,
        }
    }

    /// Adds a message whose answer arrived at `now`.
    pub(super) fn add(&mut self, rtt: Duration, now: Instant) {
        self.sum += rtt;
        self.answered += 1;
        let nanos = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        if self.keep {
            let at = now - self.began;
            self.kept.push((at.as_secs_f64(), rtt.as_secs_f64()));
        }
    }

    /// Returns the seconds since the instrument began.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Returns the sum of all round-trip times and their number.
    pub(super) fn sum(&self) -> (Duration, u64) {
        (self.sum, self.answered)
    }

    /// Returns a sample for every message that was kept.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> {
        let kept = self.kept.iter().zip(1..);
        kept.map(|((at_s, rtt_s), index)| Sample::new(*at_s, Metric::RttMs, index, rtt_s * 1e3))
    }

    /// Returns the figures of single messages. The lower ends of the quantiles' intervals are reduced by `hosts_ms`,
    /// and there are no intervals without it.
    pub(super) fn figures(&self, hosts_ms: Option<f64>) -> Vec<Figure> {
        if self.answered == 0 {
            return Vec::new();
        }
        let figure = |statistic, share| Figure::new(Metric::RttMs, statistic, self.at_ms(share));
        let quantile = |statistic, share| {
            let (interval, effective_samples) = self.interval_ms(share);
            Figure {
                interval: network_part(interval, hosts_ms),
                ..figure(statistic, share).effective_samples(effective_samples)
            }
        };
        vec![
            figure(Statistic::Min, 0.0),
            quantile(Statistic::Median, 0.5),
            quantile(Statistic::P99, 0.99),
            figure(Statistic::Max, 1.0),
        ]
    }

    /// Returns the median round-trip time, or 0 without an answer.
    pub(super) fn median(&self) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(0.5))
    }

    /// Returns the quantile of the round-trip times at `share` (0 to 1), in milliseconds.
    fn at_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share.clamp(0.0, 1.0)) as f64 / 1e6
    }

    /// Returns the 95 % interval of the quantile at `share` in milliseconds, and the effective number of independent
    /// messages. If there were too many messages to keep, they are assumed to be independent.
    fn interval_ms(&self, share: f64) -> (Option<[f64; 2]>, f64) {
        let kept: Vec<f64> = self.kept.iter().map(|(_, rtt_s)| rtt_s * 1e3).collect();
        if let Some(quantile) = Quantile::of(&kept, share) {
            return (quantile.interval, quantile.effective_samples);
        }
        let ranks = order_statistics::quantile_ranks(self.answered, share);
        // Half a rank less prevents that rounding leads to the next value.
        let at = |rank: f64| self.at_ms((rank - 0.5) / self.answered as f64);
        (ranks.map(|ranks| ranks.map(at)), self.answered as f64)
    }
}

/// The method behind [`goodput_interval`], stated among the facts of a measurement.
pub(super) const GOODPUT_INTERVAL: &str = "Student's t over the runs' goodputs; the upper end leaves out twice the time of a \
     message over loopback, the upper bound of the hosts' part of a run";

/// Returns the 95 % interval of the network's goodput for runs of `bytes`: Student's t interval over the goodputs of
/// the runs. Its upper end excludes the time `hosts_s` in seconds that the hosts add to a run.
pub(super) fn goodput_interval(
    goodputs: &[f64],
    bytes: f64,
    hosts_s: Option<f64>,
) -> Option<[f64; 2]> {
    let ([low, high], hosts_s) = t_interval::mean_interval(goodputs).zip(hosts_s)?;
    let seconds = bytes * 8.0 / high - hosts_s;
    let most = if seconds > 0.0 {
        bytes * 8.0 / seconds
    } else {
        f64::INFINITY
    };
    Some([low.max(0.0), most])
}

/// Returns an upper bound in seconds for the hosts' part of a run of many messages, which is their part of the one
/// round trip in which both ends take part: twice the [`host_overhead`] of a message of one byte after a long wait.
///
/// # Errors
/// Returns an error if there is no loopback interface.
pub(super) fn hosts_of_a_run(stop: &Stop) -> Result<f64> {
    let once = host_overhead(1, WaitMode::Block, LONGEST_PAUSE, stop)?;
    Ok(2.0 * once.as_secs_f64())
}

/// Returns the interval of the network's part of a round-trip time, which is lower than the measured one by up to
/// `hosts_ms`.
pub(super) fn network_part(interval: Option<[f64; 2]>, hosts_ms: Option<f64>) -> Option<[f64; 2]> {
    let ([low, high], hosts) = interval.zip(hosts_ms)?;
    Some([(low - hosts).max(0.0), high])
}

/// Estimates the hosts' part of the round-trip time of messages of `size` bytes where there is no network: the 90th
/// percentile of the time that such messages take from one thread to another and back over 127.0.0.1.
///
/// Both threads wait in the way of `wait`, for as long as an answer from the network takes (`pause`), because a core
/// that has waited longer takes longer to wake up. The estimate includes two sends, two receives, two wake-ups and the
/// copies, but no driver and no wire.
///
/// # Errors
/// Returns an error if there is no loopback interface, or no message came back.
pub(super) fn host_overhead(
    size: usize,
    wait: WaitMode,
    pause: Duration,
    stop: &Stop,
) -> Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect_timeout(&listener.local_addr()?, LONGEST_ESTIMATE)?;
    let (far, _) = listener.accept()?;
    let open = |socket| {
        let mut stream = MessageStream::new(socket, stop.clone(), Duration::from_secs(1))?;
        stream.wait = wait;
        Ok::<_, Error>(stream)
    };
    let (near, far) = (open(near)?, open(far)?);
    let pause = pause.min(LONGEST_PAUSE);
    thread::scope(|scope| {
        let far = scope.spawn(move || answer(&far, size, pause));
        let mut message = vec![0; size];
        let start = Instant::now();
        let mut exchanges = Vec::new();
        while exchanges.len() < HOST_MESSAGES && start.elapsed() < LONGEST_ESTIMATE {
            thread::sleep(pause);
            let sent = Instant::now();
            near.send(&message)?;
            near.receive(&mut message)?;
            exchanges.push((sent, Instant::now()));
        }
        near.socket().shutdown(Shutdown::Both)?;
        let answers = far.join().unwrap_or_default();
        let mut hosts: Vec<Duration> = exchanges
            .iter()
            .zip(&answers)
            .map(|((sent, returned), (arrived, answered))| {
                arrived.saturating_duration_since(*sent)
                    + returned.saturating_duration_since(*answered)
            })
            .collect();
        hosts.sort_unstable();
        let nine_in_ten = hosts.get(hosts.len() * 9 / 10).copied();
        nine_in_ten.context("no message returned over loopback")
    })
}

/// Sends every message back after a pause. Returns when each message arrived and when the sending of its answer began.
fn answer(far: &MessageStream, size: usize, pause: Duration) -> Vec<(Instant, Instant)> {
    let mut message = vec![0; size];
    let mut answers = Vec::new();
    while far.receive(&mut message).is_ok() {
        let came = Instant::now();
        thread::sleep(pause);
        let answered = Instant::now();
        if far.send(&message).is_err() {
            break;
        }
        answers.push((came, answered));
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_s_interval_is_reduced_by_the_hosts_part() {
        let began = Instant::now();
        let mut round_trips = MessageRoundTrips::new(true, began);
        // The values alternate between below and above the median, so that neighbours are not correlated positively.
        for ms in (1..=50).flat_map(|ms| [ms, ms + 50]) {
            round_trips.add(Duration::from_millis(ms), began);
        }
        assert_eq!(round_trips.samples().count(), 100);
        let figures = round_trips.figures(Some(5.0));
        let median = figures.iter().find(|f| f.statistic == Statistic::Median);
        let [low, high] = median.unwrap().interval.unwrap();
        assert!((low - 35.0).abs() < 0.01, "{low} {high}");
        assert!((high - 61.0).abs() < 0.01, "{low} {high}");
        let without = round_trips.figures(None);
        assert!(without.iter().all(|figure| figure.interval.is_none()));
    }
}
