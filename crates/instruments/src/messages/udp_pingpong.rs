//! `pingpong` over UDP: numbered datagrams, one at a time, a connection beside them for the far end's count.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::client::{Call, FarEnd, incompressible};
use super::datagrams::{Came, Datagrams, number_of, put_number};
use super::exchange::{Broken, Channel};
use super::pingpong::{PingpongPlan, Run, one_way, state_wait};
use super::recorder::Recorder;
use super::sizes::Load;
use super::wire::{DONE, EchoResult, LARGEST_DATAGRAM, Request};
use crate::endpoint;
use netio::stop::Stop;
use record::{Direction, Figure, Measurement, Metric, Statistic};
use stats::proportion;

/// Datagrams of one or more runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    sent: u64,
    /// At the far end, each once.
    arrived: u64,
    /// Answered in time.
    answered: u64,
    /// Answers to earlier messages: after the time-out, or second ones.
    late: u64,
}

impl Counts {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            arrived: self.arrived + other.arrived,
            answered: self.answered + other.answered,
            late: self.late + other.late,
        }
    }

    /// Lost by direction: on the way up what the far end did not count, on the way down what it sent back and did not
    /// come in time.
    pub(super) fn figures(self) -> Vec<Figure> {
        let lost = |way, lost: u64, of: u64| {
            let [low, high] = proportion::wilson(lost, of)?;
            let percent = 100.0 * lost as f64 / of as f64;
            let figure = Figure::new(Metric::LostPercent, Statistic::Mean, percent).toward(way);
            Some(figure.within(100.0 * low, 100.0 * high))
        };
        let up = self.sent.saturating_sub(self.arrived);
        let down = self.arrived.saturating_sub(self.answered);
        let counts = [
            Some(one_way(
                Metric::SentPackets,
                Direction::Up,
                self.sent as f64,
            )),
            Some(one_way(
                Metric::ReceivedPackets,
                Direction::Up,
                self.arrived as f64,
            )),
            Some(one_way(
                Metric::ReceivedPackets,
                Direction::Down,
                self.answered as f64,
            )),
            Some(one_way(
                Metric::LatePackets,
                Direction::Down,
                self.late as f64,
            )),
            lost(Direction::Up, up, self.sent),
            lost(Direction::Down, down, self.arrived),
        ];
        counts.into_iter().flatten().collect()
    }
}

/// One run.
pub(super) fn run(
    far: &FarEnd,
    plan: &PingpongPlan,
    load: Load,
    timeout: Duration,
    stop: &Stop,
    recorder: &mut Recorder,
    measurement: &mut Measurement,
) -> Result<Run> {
    let control = far.connect(stop)?;
    let mut address = far.address;
    let socket = endpoint::udp(address, far.local.as_ref())?;
    let request = Request::Pingpong {
        size: load.size,
        count: load.count,
        wait: plan.wait,
        nagle: plan.nagle,
        udp: Some(socket.local_addr()?.port()),
    };
    let Call {
        channel,
        grant,
        segment,
    } = far.ask(control, &request)?;
    segment.state(measurement);
    state_wait(plan.wait, grant.wait, measurement);
    let port = grant.udp.context("the far end grants no UDP port")?;
    if port != address.port() {
        address.set_port(port);
        socket.connect(address)?;
    }
    let mut exchange = Exchange {
        datagrams: Datagrams::new(socket, plan.wait)?,
        answer: vec![0; usize::from(LARGEST_DATAGRAM) + 1],
        timeout,
        late: 0,
    };
    let mut message = incompressible(load.size);
    let mut counts = Counts::default();
    let start = Instant::now();
    let mut end = start;
    for number in 1..=load.count {
        let doing = || format!("message {number} of {} of {} bytes", load.count, load.size);
        put_number(&mut message, number);
        let rtt = exchange
            .one(&channel, &message)
            .map_err(|broken| far.blame(&doing(), broken))?;
        counts.sent += 1;
        end = Instant::now();
        match rtt {
            Some((rtt, at)) => {
                counts.answered += 1;
                recorder.add(rtt, at);
                end = at;
            }
            // Before the end the far end says nothing over the connection but that it gives up.
            None if channel.is_readable() => {
                let line = channel.receive_line();
                let broken = line.map_or_else(|broken| broken, Broken::NoLine);
                return Err(far.blame(&doing(), broken));
            }
            None => {}
        }
    }
    let result = channel
        .send_line(DONE)
        .and_then(|()| exchange.datagrams.send(&[]))
        .and_then(|()| channel.receive_line())
        .map_err(|broken| far.blame("counting the messages", broken))?;
    let result: EchoResult = result.parse().with_context(|| far.address.to_string())?;
    ensure!(
        counts.answered <= result.received && result.received <= counts.sent,
        "{} counts {} messages, of {} that were sent and {} that it answered",
        far.address,
        result.received,
        counts.sent,
        counts.answered
    );
    counts.arrived = result.received;
    counts.late = exchange.late;
    Ok(Run {
        elapsed: end - start,
        datagrams: Some(counts),
    })
}

struct Exchange {
    datagrams: Datagrams,
    answer: Vec<u8>,
    timeout: Duration,
    late: u64,
}

impl Exchange {
    /// Sends a message and waits for its answer: the round-trip time and when it came, or nothing in time.
    fn one(
        &mut self,
        channel: &Channel,
        message: &[u8],
    ) -> Result<Option<(Duration, Instant)>, Broken> {
        let before = Instant::now();
        self.datagrams.send(message)?;
        let deadline = Some(before + self.timeout);
        loop {
            let came = self.datagrams.receive(&mut self.answer, deadline)?;
            let now = Instant::now();
            let rtt = now - before;
            if let Came::Datagram(length) = came {
                let answer = &self.answer[..length];
                let is_current = length == message.len() && number_of(answer) == number_of(message);
                if is_current && rtt <= self.timeout {
                    channel.go_on()?;
                    return Ok(Some((rtt, now)));
                }
                self.late += 1;
            }
            if rtt >= self.timeout {
                return Ok(None);
            }
            channel.go_on()?;
        }
    }
}
