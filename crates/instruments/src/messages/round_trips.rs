//! The round-trip times of one message size, and what the hosts add to them.

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use hdrhistogram::Histogram;

use super::connection::MessageStream;
use super::wire::Wait;
use netio::stop::Stop;
use record::{Figure, Metric, Sample, Statistic};
use stats::quantile::Quantile;
use stats::{order_statistics, t_interval};

/// Four digits: 0.01 %.
const DIGITS: u8 = 4;
/// An hour.
const LONGEST_RTT_NS: u64 = 3_600_000_000_000;
/// Messages that estimate the hosts' part.
const HOST_MESSAGES: usize = 200;
/// For large messages, or long pauses, less is enough.
const LONGEST_ESTIMATE: Duration = Duration::from_millis(500);
/// What a wait and a small message over loopback take beyond the wait, about.
const LOOPBACK_S: f64 = 100e-6;
/// A core that has waited so long sleeps as deeply as it will.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// About how long [`host_overhead`] takes after waits of so many seconds.
pub(super) fn overhead_takes_s(pause_s: f64) -> f64 {
    let messages_s = HOST_MESSAGES as f64 * (pause_s + LOOPBACK_S);
    messages_s.min(LONGEST_ESTIMATE.as_secs_f64())
}

/// Takes round-trip times without allocating, unless every one is kept.
pub(super) struct MessageRoundTrips {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    /// When each answer came and its round-trip time, in seconds; empty when there are too many.
    kept: Vec<(f64, f64)>,
    keep: bool,
    began: Instant,
    sum: Duration,
    answered: u64,
}

impl MessageRoundTrips {
    /// Nothing yet; times count from `began`. `keep` keeps every message.
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

    /// One message's answer came at `now`.
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

    /// Seconds since the instrument began.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The sum of all round-trip times, and of how many.
    pub(super) fn sum(&self) -> (Duration, u64) {
        (self.sum, self.answered)
    }

    /// Every message that was kept.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> {
        let kept = self.kept.iter().zip(1..);
        kept.map(|((at_s, rtt_s), index)| Sample::new(*at_s, Metric::RttMs, index, rtt_s * 1e3))
    }

    /// Of single messages; quantiles lie within their intervals, the lower ends less `hosts_ms`, if that is known.
    pub(super) fn figures(&self, hosts_ms: Option<f64>) -> Vec<Figure> {
        if self.answered == 0 {
            return Vec::new();
        }
        let figure = |statistic, share| Figure::new(Metric::RttMs, statistic, self.at_ms(share));
        let quantile = |statistic, share| {
            let (interval, worth) = self.interval_ms(share);
            Figure {
                interval: network_part(interval, hosts_ms),
                ..figure(statistic, share).worth(worth)
            }
        };
        vec![
            figure(Statistic::Min, 0.0),
            quantile(Statistic::Median, 0.5),
            quantile(Statistic::P99, 0.99),
            figure(Statistic::Max, 1.0),
        ]
    }

    /// The median round-trip time; 0 without an answer.
    pub(super) fn median(&self) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(0.5))
    }

    /// What a share (0 to 1) of the round-trip times is not above, in milliseconds.
    fn at_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share.clamp(0.0, 1.0)) as f64 / 1e6
    }

    /// Between which round-trip times the quantile at `share` lies at 95 %, and how many independent messages they are worth.
    /// Messages that are too many to be kept are taken as independent.
    fn interval_ms(&self, share: f64) -> (Option<[f64; 2]>, f64) {
        let kept: Vec<f64> = self.kept.iter().map(|(_, rtt_s)| rtt_s * 1e3).collect();
        if let Some(quantile) = Quantile::of(&kept, share) {
            return (quantile.interval, quantile.worth);
        }
        let ranks = order_statistics::quantile_ranks(self.answered, share);
        // Half a rank less: no rounding leads to the next value.
        let at = |rank: f64| self.at_ms((rank - 0.5) / self.answered as f64);
        (ranks.map(|ranks| ranks.map(at)), self.answered as f64)
    }
}

/// How [`goodput_interval`] comes about.
pub(super) const GOODPUT_INTERVAL: &str = "Student's t over the runs' goodputs; the upper end leaves out twice the time of a \
     message over loopback, the upper bound of the hosts' part of a run";

/// The 95 % interval of the goodput of `bytes` a run over the network: Student's over the runs' goodputs, its upper end without the
/// time that the hosts add to a run, `hosts_s`.
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

/// What the hosts add at most to a run of many messages, in seconds: to the round trip in which both ends take part. Twice
/// what a message of one byte takes over loopback, as [`host_overhead`] has it after a long wait.
///
/// # Errors
/// There is no loopback here.
pub(super) fn hosts_of_a_run(stop: &Stop) -> Result<f64> {
    let once = host_overhead(1, Wait::Block, LONGEST_PAUSE, stop)?;
    Ok(2.0 * once.as_secs_f64())
}

/// The part of the `interval` of a round-trip time that is the network's own, which lies below by up to `hosts_ms`.
pub(super) fn network_part(interval: Option<[f64; 2]>, hosts_ms: Option<f64>) -> Option<[f64; 2]> {
    let ([low, high], hosts) = interval.zip(hosts_ms)?;
    Some([(low - hosts).max(0.0), high])
}

/// What both hosts add to the round-trip time of messages of `size` bytes, estimated where there is no network: the 90th
/// percentile of what such messages take from one thread to another and back over 127.0.0.1.
///
/// Both threads wait as `wait` says, and for as long as an answer of the network takes (`pause`): the longer a core waits,
/// the longer it takes to wake up. The estimate holds two sends, two receives, two wake-ups and the copies; nothing of
/// a driver or a wire.
///
/// # Errors
/// There is no loopback here.
pub(super) fn host_overhead(
    size: usize,
    wait: Wait,
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
        let pairs = exchanges.iter().zip(&answers);
        let hosts = pairs.map(|((sent, came), (heard, answered))| {
            heard.saturating_duration_since(*sent) + came.saturating_duration_since(*answered)
        });
        let mut hosts: Vec<Duration> = hosts.collect();
        hosts.sort_unstable();
        let nine_in_ten = hosts.get(hosts.len() * 9 / 10).copied();
        nine_in_ten.context("no message returned over loopback")
    })
}

/// Sends every message back after a pause; when each came, and when its answer was sent.
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
    fn the_median_s_interval_has_the_ranks_of_the_binomial_distribution_less_the_hosts_part() {
        let began = Instant::now();
        let mut round_trips = MessageRoundTrips::new(true, began);
        // One below the median, one above it: neighbours are not alike.
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
