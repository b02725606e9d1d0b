//! `pingpong`: a message to the far end and the same message back, repeatedly, as nettest does ("Experiment on Oct
//! 10").
//!
//! Over UDP, one numbered datagram is on its way at a time. A TCP connection carries the request and the far end's
//! count.

use std::time::{Duration, Instant};

use crate::error::{Context, Result, ensure};
use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use super::args::{ConnectionArgs, Messages};
use super::client::{MessageTarget, incompressible};
use super::connection::{
    DatagramWait, MessageError, MessageStream, NumberedDatagrams, number_of, put_number,
};
use super::round_trips::{MessageRoundTrips, host_overhead, network_part, overhead_takes_s};
use super::sizes::{MessageLoad, Sweep};
use super::wire::{DONE, EchoResult, LARGEST_DATAGRAM, MessageGrant, Mode, WaitMode};
use super::{VARIATION, elapsed, elapsed_figures, nagle_in_words};
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, above_zero, estimated};
use crate::messages::tables;
use crate::messages::wire::DEFAULT_PORT;
use crate::round_trip::LossTimeout;
use crate::{Session, endpoint, measured};
use netio::stop::STOP_INTERVAL;
use netio::tcp::TcpInfo;
use record::Statistic::{self, Mean};
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::{Carrier, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::counted;
use record::table::Table;
use record::{Direction, Figure, Measurement, Metric, Sample};
use stats::losses::Losses;
use stats::t_interval;

/// Measure the round-trip time of messages, as nettest did
///
/// The far end returns each message after it has received all of it. Then the next message follows.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct PingpongArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) messages: Messages,
    /// Method by which both ends wait for a message
    #[arg(long, value_enum, default_value_t)]
    pub(super) wait: WaitMode,
    /// Use UDP, with one datagram of at most 65,507 bytes per message
    #[arg(short, long)]
    pub(super) udp: bool,
    /// Over UDP, count a message as lost after this time without an answer [default: 1s, and 4 round trips on a long path]
    #[arg(short = 'W', long, value_name = "TIME", value_parser = above_zero, requires = "udp")]
    pub(super) timeout: Option<Nanos>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for PingpongArgs {
    fn profile(&self) -> InstrumentProfile {
        let median = Headline::new(Metric::RttMs, Statistic::Median);
        let carrier = if self.udp {
            Carrier::Udp { length: None }
        } else {
            Carrier::Tcp {
                streams: 1,
                congestion: None,
            }
        };
        InstrumentProfile {
            carrier: Some(carrier),
            samples: Some(SampleKind::Messages),
            ..self.table().profile(median, HostLimit::RoundTrip)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        let loads = self.loads()?;
        let sizes: Vec<u64> = loads.iter().map(|load| load.size as u64).collect();
        Ok(self.table().of_sizes(&sizes))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![if self.udp {
            Traffic::Udp(Some(DEFAULT_PORT))
        } else {
            Traffic::Tcp(Some(DEFAULT_PORT))
        }]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.connection.set_far_end(far_end);
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let (pace, loads) = (pace?, self.loads().ok()?);
        let of_load = |load: &MessageLoad| {
            let rtt_s = pace.round_trip_s(load.size as u64, load.size as u64);
            let runs_s = f64::from(self.connection.runs) * load.count as f64 * rtt_s;
            runs_s + overhead_takes_s(rtt_s)
        };
        Some(estimated(loads.iter().map(of_load).sum()))
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        let loads = self.loads().or_bad_input()?;
        if self.udp {
            check_datagrams(&loads)?;
        }
        Ok(measure(&far, self, session).into())
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.loads().or_bad_input()?;
        Ok(Some(tables::pingpong_table(measurement, &sizes)))
    }
}

impl PingpongArgs {
    fn loads(&self) -> Result<Vec<MessageLoad>> {
        self.messages.loads(Sweep::pingpong)
    }

    /// Returns the time-out of a message over UDP on a path with this round trip.
    fn udp_timeout(&self, round_trip: Duration) -> Duration {
        let mut timeout = LossTimeout::new(self.timeout, UDP_TIMEOUT);
        timeout.add(round_trip);
        timeout.time()
    }

    /// Returns the metrics for a message of any size.
    fn table(&self) -> MetricTable {
        use Statistic::{Max, Median, Min, P99};
        let (up, down) = (&[Direction::Up][..], &[Direction::Down]);
        let both = &[Direction::Up, Direction::Down];
        let of_all = MetricTable::new([
            MetricRow::new(Metric::RttMs, &[Mean, Min, Median, P99, Max])
                .headlines(&[Mean, Median]),
            elapsed(),
        ]);
        if self.udp {
            of_all.and([
                MetricRow::total(Metric::SentPackets).toward(up),
                MetricRow::total(Metric::ReceivedPackets).toward(both),
                MetricRow::total(Metric::LatePackets).toward(down),
                MetricRow::mean(Metric::LostPercent).toward(both),
            ])
        } else {
            of_all.and([
                MetricRow::total(Metric::RetransmittedPackets).toward(up),
                MetricRow::total(Metric::NeededRetransmittedPackets).toward(up),
            ])
        }
    }
}

fn check_datagrams(loads: &[MessageLoad]) -> Result<(), Failure> {
    let too_large = loads
        .iter()
        .find(|load| load.size > LARGEST_DATAGRAM.into());
    too_large.map_or(Ok(()), |load| {
        Err(Failure::bad_input(format_args!(
            "a message of {} bytes does not fit into a UDP datagram: use at most {LARGEST_DATAGRAM}, or TCP",
            load.size
        )))
    })
}

/// The time after which a message over UDP counts as lost, unless the user states one. Some round trips are added.
const UDP_TIMEOUT: Duration = Duration::from_secs(1);
/// With more messages than this in all runs, single round-trip times are kept only in a histogram.
const MOST_SAMPLES: u64 = 20_000;

/// Measures from the calling thread's network namespace.
pub(crate) fn measure(far: &MessageTarget, plan: &PingpongArgs, session: &Session) -> Measurement {
    let began = Instant::now();
    let loads = match plan.loads() {
        Ok(loads) => loads,
        Err(error) => return measured::failed(error),
    };
    let messages: u64 = loads.iter().map(|load| load.count).sum();
    let keep = messages * u64::from(plan.connection.runs) <= MOST_SAMPLES;
    let mut measurement = with_facts(plan, keep);
    let outcome = loads.iter().try_for_each(|load| {
        let mut runs = Runs {
            far,
            plan,
            session,
            load: *load,
            round_trips: MessageRoundTrips::new(keep, began),
            elapsed_s: Vec::new(),
            mean_rtt_ms: Vec::new(),
            datagrams: DatagramCounts::default(),
            retransmitted: 0,
            unneeded: 0,
            measurement: &mut measurement,
        };
        let outcome = runs.all();
        runs.finish();
        outcome
    });
    measurement.failure = measured::failure(outcome);
    let by_time = |a: &Sample, b: &Sample| a.at_s.total_cmp(&b.at_s);
    measurement.samples.sort_by(by_time);
    measurement
}

/// All runs of one size.
struct Runs<'a> {
    far: &'a MessageTarget,
    plan: &'a PingpongArgs,
    session: &'a Session,
    load: MessageLoad,
    round_trips: MessageRoundTrips,
    /// Durations of the completed runs in seconds.
    elapsed_s: Vec<f64>,
    mean_rtt_ms: Vec<f64>,
    datagrams: DatagramCounts,
    /// The segments that the client retransmitted over TCP.
    retransmitted: u64,
    /// Those of them that the far end reported as duplicates.
    unneeded: u64,
    measurement: &'a mut Measurement,
}

/// Counts of datagrams in one or more runs.
#[derive(Clone, Copy, Debug, Default)]
struct DatagramCounts {
    sent: u64,
    /// Datagrams that arrived at the far end, each counted once.
    arrived: u64,
    /// Datagrams that were answered in time.
    answered: u64,
    /// Answers after the time-out, and duplicate answers.
    late: u64,
}

impl Runs<'_> {
    fn all(&mut self) -> Result<()> {
        for number in 1..=self.plan.connection.runs {
            let (sum_before, before) = self.round_trips.sum();
            let elapsed = if self.plan.udp {
                self.over_udp()
            } else {
                self.over_tcp()
            }?;
            let elapsed_s = elapsed.as_secs_f64();
            self.elapsed_s.push(elapsed_s);
            let (sum, after) = self.round_trips.sum();
            if after > before {
                let mean = (sum - sum_before).as_secs_f64() / (after - before) as f64;
                self.mean_rtt_ms.push(mean * 1e3);
            }
            let MessageLoad { size, count } = self.load;
            let at_s = self.round_trips.now_s();
            let sample = Sample::new(at_s, Metric::ElapsedS, number.into(), elapsed_s);
            self.measurement.samples.push(sample.size(size as u64));
            self.session.live.line(format_args!(
                "{}, run {number} of {}: {} in {elapsed_s:.6} s",
                counted(size, "byte"),
                self.plan.connection.runs,
                counted(count, "message")
            ));
        }
        Ok(())
    }

    /// Runs once over TCP, and returns the time from the first message sent to the last answer.
    fn over_tcp(&mut self) -> Result<Duration> {
        let (mut stream, _) = self.request(None)?;
        stream.wait = self.plan.wait;
        let message = incompressible(self.load.size);
        let mut answer = vec![0; self.load.size];
        let start = Instant::now();
        let (mut before, mut looked) = (start, start);
        for number in 1..=self.load.count {
            let sent = stream.send(&message);
            let exchanged = sent.and_then(|()| stream.receive(&mut answer));
            let after = Instant::now();
            exchanged.map_err(|broken| self.far.error_at(&self.load.message(number), broken))?;
            self.round_trips.add(after - before, after);
            before = after;
            if after - looked >= STOP_INTERVAL {
                looked = after;
                let going_on = stream.check_stop();
                going_on.map_err(|broken| self.far.error_at("", broken))?;
            }
        }
        ensure!(
            Peer,
            answer == message,
            "{} returns other bytes than it received",
            self.far.address
        );
        let info = TcpInfo::of(stream.socket())?;
        self.retransmitted += u64::from(info.total_retrans);
        self.unneeded += u64::from(info.dsack_dups.min(info.total_retrans));
        Ok(before - start)
    }

    /// Runs once over UDP, and returns the time from the first message sent to the last answer or its time-out.
    fn over_udp(&mut self) -> Result<Duration> {
        let (far, load) = (self.far, self.load);
        let mut address = far.address;
        let socket = endpoint::udp(address, far.local.as_ref())?;
        let (stream, grant) = self.request(Some(socket.local_addr()?.port()))?;
        let timeout = self.plan.udp_timeout(stream.round_trip());
        let port = grant.udp.context("the far end offers no UDP port")?;
        if port != address.port() {
            address.set_port(port);
            socket.connect(address)?;
        }
        let mut datagrams = NumberedDatagrams::new(socket, self.plan.wait)?;
        let mut answer = vec![0; usize::from(LARGEST_DATAGRAM) + 1];
        let mut message = incompressible(load.size);
        let mut counts = DatagramCounts::default();
        let start = Instant::now();
        let mut end = start;
        for number in 1..=load.count {
            let error_at = |broken| far.error_at(&load.message(number), broken);
            put_number(&mut message, number);
            let before = Instant::now();
            let deadline = before + timeout;
            datagrams.send(&message).map_err(error_at)?;
            let answered = loop {
                let received = datagrams.receive(&mut answer, Some(deadline));
                let now = Instant::now();
                if let DatagramWait::Datagram(length) = received.map_err(error_at)? {
                    let is_current = length == message.len()
                        && number_of(&answer[..length]) == number_of(&message);
                    if is_current && now <= deadline {
                        break Some(now);
                    }
                    counts.late += 1;
                }
                if now >= deadline {
                    break None;
                }
                stream.check_stop().map_err(error_at)?;
            };
            counts.sent += 1;
            stream.check_stop().map_err(error_at)?;
            end = answered.unwrap_or_else(Instant::now);
            match answered {
                Some(at) => {
                    counts.answered += 1;
                    self.round_trips.add(at - before, at);
                }
                // During a run, the far end writes to the connection only to give up.
                None if stream.is_readable() => {
                    let line = stream.receive_line();
                    return Err(error_at(
                        line.map_or_else(|broken| broken, MessageError::NoLine),
                    ));
                }
                None => {}
            }
        }
        let line = stream
            .send_line(DONE)
            .and_then(|()| datagrams.send(&[]))
            .and_then(|()| stream.receive_line())
            .map_err(|broken| far.error_at("counting the messages", broken))?;
        let result: EchoResult = line.parse().with_context(|| far.address.to_string())?;
        ensure!(
            Peer,
            counts.answered <= result.received && result.received <= counts.sent,
            "{} counts {} messages, but {} were sent and {} answered",
            far.address,
            result.received,
            counts.sent,
            counts.answered
        );
        counts.arrived = result.received;
        self.datagrams.add(counts);
        Ok(end - start)
    }

    fn request(&mut self, udp: Option<u16>) -> Result<(MessageStream, MessageGrant)> {
        let mode = Mode::Pingpong {
            size: self.load.size,
            count: self.load.count,
            wait: self.plan.wait,
            udp,
        };
        let (nagle, stop) = (self.plan.connection.nagle, &self.session.stop);
        let (stream, grant) = self.far.request(mode, nagle, stop, self.measurement)?;
        self.state_wait(grant.wait);
        Ok((stream, grant))
    }

    /// Adds the fact of how both ends wait.
    fn state_wait(&mut self, granted: WaitMode) {
        let asked = self.plan.wait;
        let text = if asked == granted {
            asked.to_string()
        } else {
            format!("{asked}; the far end has no free core: {granted}")
        };
        self.measurement.facts.insert("wait".to_owned(), text);
    }

    fn finish(mut self) {
        let size = self.load.size as u64;
        let hosts_ms = self.hosts_ms();
        let mean_rtt = [(Metric::RttMs, Mean, t_interval::mean(&self.mean_rtt_ms))];
        let interval = network_part(t_interval::mean_interval(&self.mean_rtt_ms), hosts_ms);
        let mean_rtt =
            measured::figures(None, mean_rtt).map(|figure| Figure { interval, ..figure });
        let figures = elapsed_figures(&self.elapsed_s)
            .chain(mean_rtt)
            .chain(self.round_trips.figures(hosts_ms))
            .chain(self.datagrams.figures())
            .chain(self.retransmitted())
            .map(|figure| figure.size(size));
        self.measurement.figures.extend(figures);
        let samples = self.round_trips.samples().map(|sample| sample.size(size));
        self.measurement.samples.extend(samples);
    }

    /// Returns the numbers of segments that the client retransmitted over TCP, and of those that were needed, as figures.
    fn retransmitted(&self) -> impl Iterator<Item = Figure> + use<> {
        let counts = [
            (Metric::RetransmittedPackets, self.retransmitted),
            (
                Metric::NeededRetransmittedPackets,
                self.retransmitted - self.unneeded,
            ),
        ];
        let over_tcp = !self.plan.udp && !self.elapsed_s.is_empty();
        let totals =
            counts.map(|(metric, count)| measured::total(metric, count).toward(Direction::Up));
        totals.into_iter().filter(move |_| over_tcp)
    }

    /// Returns an upper bound for the hosts' part of a round-trip time in milliseconds: twice the time over loopback,
    /// which allows for a slower far end or for load that does not show here.
    fn hosts_ms(&mut self) -> Option<f64> {
        let pause = self.round_trips.median();
        let stop = &self.session.stop;
        match host_overhead(self.load.size, self.plan.wait, pause, stop) {
            Ok(overhead) => Some(2.0 * overhead.as_secs_f64() * 1e3),
            Err(error) => {
                let cause =
                    format!("none: there is no loopback to estimate the hosts' part: {error:#}");
                self.measurement.facts.insert("interval".to_owned(), cause);
                None
            }
        }
    }
}

impl DatagramCounts {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.arrived += other.arrived;
        self.answered += other.answered;
        self.late += other.late;
    }

    /// Returns the counts and the loss of each direction: upwards, messages that the far end did not count; downwards,
    /// answers that did not arrive in time. There are no figures without a datagram.
    fn figures(self) -> impl Iterator<Item = Figure> {
        let count = |metric, way, count: u64| {
            (self.sent > 0).then(|| measured::total(metric, count).toward(way))
        };
        let lost = |way, of: u64, left: u64| {
            let lost = of.saturating_sub(left);
            (of > 0).then(|| measured::lost_percent(Losses::independent(lost, of)).toward(way))
        };
        let (up, down) = (Direction::Up, Direction::Down);
        let figures = [
            count(Metric::SentPackets, up, self.sent),
            count(Metric::ReceivedPackets, up, self.arrived),
            count(Metric::ReceivedPackets, down, self.answered),
            count(Metric::LatePackets, down, self.late),
            lost(up, self.sent, self.arrived),
            lost(down, self.arrived, self.answered),
        ];
        figures.into_iter().flatten()
    }
}

/// Returns an empty measurement with the facts that explain its figures. `keep` tells whether every message is a
/// sample.
fn with_facts(plan: &PingpongArgs, keep: bool) -> Measurement {
    let transport = if plan.udp {
        let long = match plan.timeout {
            Some(_) => "",
            None => ", or that and four round trips of 100 ms and more",
        };
        format!(
            "UDP: one message at a time, lost without an answer within {} s{long}; means are over answered messages",
            plan.udp_timeout(Duration::ZERO).as_secs_f64()
        )
    } else {
        "TCP: from handing the message to the kernel until all of it is read back".to_owned()
    };
    let kept = if keep {
        "every message's round-trip time is a sample"
    } else {
        "more than 20000 messages: the samples are the times of runs, and single messages are in a histogram of 0.01 %"
    };
    let nagle = nagle_in_words(plan.connection.nagle);
    Measurement::default()
        .with_fact(
            "rtt",
            format!("{transport}; user space, including both hosts"),
        )
        .with_fact("samples", kept)
        .with_fact("nagle", format!("{nagle}, at both ends"))
        .with_fact("variation", VARIATION)
        .with_fact("interval", interval_in_words(keep))
}

/// Returns the fact that explains the intervals. `keep` tells whether the time of every message is kept.
fn interval_in_words(keep: bool) -> String {
    let quantiles = if keep {
        measured::QUANTILE_INTERVAL
    } else {
        "of quantiles by the ranks of all messages, assuming independent messages"
    };
    format!(
        "of the mean: Student's t over the runs; {quantiles}; the lower ends are reduced by twice the mean over loopback, the \
         upper bound of the hosts' part; of loss: Wilson's, for independent losses, because each message waits for the timeout \
         of the one before"
    )
}
