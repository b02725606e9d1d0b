//! The plan of an iperf3 test, and its streams.

use std::time::Duration;

use record::pace::PathPace;
use record::{Direction, Figure, Measurement, Metric, Statistic};

use crate::instrument::{ROUND_TRIPS, estimated};

/// The most streams per direction that iperf3 accepts (`MAX_STREAMS`).
pub(crate) const MOST_STREAMS: u32 = 128;
/// The longest block in bytes that iperf3 accepts for TCP (`MAX_BLOCKSIZE`).
pub(crate) const LONGEST_BLOCK: u32 = 1 << 20;
/// The largest socket buffer in bytes that iperf3 accepts (`MAX_TCP_BUFFER`).
pub(crate) const LARGEST_WINDOW: u32 = 512 << 20;
/// The longest test in seconds that iperf3 accepts (`MAX_TIME`).
pub(crate) const LONGEST_TEST_S: u32 = 86_400;
/// The longest omitted start in seconds that iperf3 accepts (`MAX_OMIT_TIME`).
pub(crate) const LONGEST_OMIT_S: u32 = 600;

/// An iperf3 test as its client requests it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Iperf3Test {
    /// TCP or UDP.
    pub(crate) protocol: Transport,
    /// The direction of the test.
    pub(crate) direction: TestDirection,
    /// The number of streams in each direction that sends, 1 to [`MOST_STREAMS`].
    pub(crate) parallel: u32,
    /// The end of the test.
    pub(crate) until: Until,
    /// The duration of the omitted start, in whole seconds of at most [`LONGEST_OMIT_S`].
    pub(crate) omit: Duration,
    /// The time between two reports.
    pub(crate) interval: Duration,
    /// Whether a far end that receives UDP, if it is farwire, also reports what arrived in each interval.
    pub(crate) arrivals: bool,
    /// The rate of each stream in payload bits per second, or `None` for as fast as possible.
    pub(crate) bitrate: Option<u64>,
    /// Bytes of a block (TCP) or of a datagram's payload (UDP), or `None` for the protocol's default.
    pub(crate) length: Option<u32>,
    /// Whether a call sends several datagrams, if the kernel can segment trains.
    pub(crate) trains: bool,
    /// TCP_CONGESTION of the sending sockets.
    pub(crate) congestion: Option<String>,
    /// TCP_MAXSEG in bytes.
    pub(crate) mss: Option<u32>,
    /// SO_SNDBUF and SO_RCVBUF in bytes.
    pub(crate) window: Option<u32>,
    /// TCP_NODELAY.
    pub(crate) no_delay: bool,
    /// Whether TCP receivers copy received data to user space. iperf3 always does.
    pub(crate) rx_copy: bool,
    /// The TOS byte (IPv4) or traffic class (IPv6): DSCP * 4 + ECN.
    pub(crate) tos: Option<u8>,
}

/// The transport protocol of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// One connection per stream.
    Tcp,
    /// Datagrams that carry a time and a number.
    Udp,
}

/// The direction of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestDirection {
    /// The client sends.
    Up,
    /// The server sends, as with iperf3's `--reverse`.
    Down,
    /// Both ends send, as with iperf3's `--bidir`.
    Both,
}

/// The end of a test. The omitted start does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Until {
    /// The test ends after this time, or when the client says so if the time is zero.
    For(Duration),
    /// The test ends when all streams together have sent this number of bytes in each direction that sends.
    Bytes(u64),
}

/// One stream of a test as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSpec {
    /// The number that both ends use for it: 1, 3, 4, 5... in the order of opening.
    pub(crate) id: u32,
    /// Whether this end sends.
    pub(crate) sends: bool,
}

impl Iperf3Test {
    /// Returns iperf3's default test: 10 s from client to server over one stream.
    pub(crate) fn new(protocol: Transport) -> Self {
        Self {
            protocol,
            direction: TestDirection::Up,
            parallel: 1,
            until: Until::For(Duration::from_secs(10)),
            omit: Duration::ZERO,
            interval: Duration::from_secs(1),
            arrivals: false,
            bitrate: None,
            length: None,
            trains: true,
            congestion: None,
            mss: None,
            window: None,
            no_delay: false,
            rx_copy: false,
            tos: None,
        }
    }

    /// Returns the streams in the order of opening, as the client or the server sees them.
    ///
    /// In a bidirectional test, those that the client sends come first. The second stream has number 3: iperf3 has
    /// counted like this since its first version, and the results identify streams by it.
    pub(crate) fn streams(&self, client: bool) -> Vec<StreamSpec> {
        let client_sends: &[bool] = match self.direction {
            TestDirection::Up => &[true],
            TestDirection::Down => &[false],
            TestDirection::Both => &[true, false],
        };
        let senders = client_sends
            .iter()
            .flat_map(|&sends| (0..self.parallel).map(move |_| sends));
        senders
            .zip(0..)
            .map(|(client_sends, index)| StreamSpec {
                id: if index == 0 { 1 } else { index + 2 },
                sends: client_sends == client,
            })
            .collect()
    }

    /// Adds the requested rate of the senders to the figures of this test's measurement, if there is one.
    pub(crate) fn with_requested_rate(&self, mut measurement: Measurement) -> Measurement {
        if let Some(each) = self.bitrate.filter(|_| !measurement.figures.is_empty()) {
            let rate = each as f64 * f64::from(self.parallel);
            let requested = Figure::new(Metric::RequestedRateBitPerS, Statistic::Mean, rate);
            let directions = self.direction.directions().iter();
            let figures = directions.map(|way| requested.clone().toward(*way));
            measurement.figures.extend(figures);
        }
        measurement
    }

    /// Returns how long the test lasts including its omitted start, if that is known beforehand.
    pub(crate) fn duration(&self) -> Option<Duration> {
        match self.until {
            Until::For(time) if !time.is_zero() => Some(time + self.omit),
            Until::For(_) | Until::Bytes(_) => None,
        }
    }

    /// Returns the number of the path's round trips that the test may take beside its time. Its streams connect one after
    /// another.
    pub(crate) fn round_trips(&self) -> u32 {
        let streams = self.direction.directions().iter().map(|_| self.parallel);
        ROUND_TRIPS + streams.sum::<u32>()
    }

    /// Estimates how long the test takes over a path of this pace. `None` means that the client decides, or that the
    /// path is unknown.
    pub(crate) fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let Until::Bytes(bytes) = self.until else {
            return self.duration();
        };
        let paced_s = self.bitrate.filter(|rate| *rate > 0).map_or(0.0, |rate| {
            bytes as f64 * 8.0 / (rate as f64 * f64::from(self.parallel))
        });
        let directions = self.direction.directions();
        // Paced datagrams leave at their pace, since those that the path cannot carry are lost.
        let path_s = match (self.protocol, paced_s > 0.0) {
            (Transport::Udp, true) => 0.0,
            _ => {
                let pace = pace?;
                let each = bytes / u64::from(self.parallel.max(1));
                let streams = directions.iter().map(|way| {
                    let alone_s = pace.stream_s(*way, each);
                    alone_s.max(pace.carrying_s(*way, bytes))
                });
                streams.fold(0.0, f64::max)
            }
        };
        Some(self.omit + estimated(paced_s.max(path_s)))
    }
}

impl TestDirection {
    /// Returns the directions in which payload flows.
    pub(crate) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }

    /// Returns whether the client sends.
    pub(crate) fn goes_up(self) -> bool {
        self != Self::Down
    }

    /// Returns whether the server sends.
    pub(crate) fn goes_down(self) -> bool {
        self != Self::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_stream_is_number_three_and_client_streams_come_first() {
        let plan = Iperf3Test {
            direction: TestDirection::Both,
            parallel: 2,
            ..Iperf3Test::new(Transport::Tcp)
        };
        let of = |client| -> Vec<_> {
            let streams = plan.streams(client).into_iter();
            streams.map(|stream| (stream.id, stream.sends)).collect()
        };
        assert_eq!(of(true), [(1, true), (3, true), (4, false), (5, false)]);
        assert_eq!(of(false), [(1, false), (3, false), (4, true), (5, true)]);
    }

    #[test]
    fn the_requested_rate_is_that_of_all_streams_of_each_direction() {
        let plan = Iperf3Test {
            direction: TestDirection::Both,
            parallel: 3,
            bitrate: Some(20_000_000),
            ..Iperf3Test::new(Transport::Udp)
        };
        let sent = Figure::new(Metric::SentRateBitPerS, Statistic::Mean, 57.48e6);
        let measured = Measurement {
            figures: vec![sent],
            ..Measurement::default()
        };
        let figures = plan.with_requested_rate(measured.clone()).figures;
        let requested: Vec<_> = figures[1..]
            .iter()
            .map(|f| (f.metric, f.direction, f.value))
            .collect();
        let of = |way| (Metric::RequestedRateBitPerS, Some(way), 60e6);
        assert_eq!(requested, [of(Direction::Up), of(Direction::Down)]);
        let unpaced = Iperf3Test::new(Transport::Tcp);
        assert_eq!(unpaced.with_requested_rate(measured.clone()), measured);
        assert!(
            plan.with_requested_rate(Measurement::default())
                .figures
                .is_empty()
        );
    }
}
