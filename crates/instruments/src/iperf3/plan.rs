//! What an iperf3 test is to do, and which streams it has.

use std::time::Duration;

use record::pace::PathPace;
use record::{Direction, Figure, Measurement, Metric, Statistic};

use crate::instrument::estimated;

/// The most streams a direction that iperf3 takes (`MAX_STREAMS`).
pub(crate) const MOST_STREAMS: u32 = 128;
/// The longest block in bytes that iperf3 takes over TCP (`MAX_BLOCKSIZE`).
pub(crate) const LONGEST_BLOCK: u32 = 1 << 20;
/// The largest socket buffer in bytes that iperf3 takes (`MAX_TCP_BUFFER`).
pub(crate) const LARGEST_WINDOW: u32 = 512 << 20;
/// The longest test in seconds that iperf3 takes (`MAX_TIME`).
pub(crate) const LONGEST_TEST_S: u32 = 86_400;
/// The longest omitted start in seconds that iperf3 takes (`MAX_OMIT_TIME`).
pub(crate) const LONGEST_OMIT_S: u32 = 600;

/// One iperf3 test, as its client asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Iperf3Test {
    /// TCP or UDP.
    pub(crate) protocol: Transport,
    /// Who sends.
    pub(crate) way: TestDirection,
    /// Streams in each direction that sends, 1 to [`MOST_STREAMS`].
    pub(crate) parallel: u32,
    /// When the test ends.
    pub(crate) until: Until,
    /// How much of the start is left out, in whole seconds of at most [`LONGEST_OMIT_S`].
    pub(crate) omit: Duration,
    /// From one report to the next.
    pub(crate) interval: Duration,
    /// Payload bits a second to which each stream is paced; as fast as possible when absent.
    pub(crate) bitrate: Option<u64>,
    /// Bytes of a block (TCP) or a datagram's payload (UDP); absent: the protocol's default.
    pub(crate) length: Option<u32>,
    /// Whether datagrams are sent many a call, where the kernel cuts trains.
    pub(crate) trains: bool,
    /// TCP_CONGESTION of the sending sockets.
    pub(crate) congestion: Option<String>,
    /// TCP_MAXSEG in bytes.
    pub(crate) mss: Option<u32>,
    /// SO_SNDBUF and SO_RCVBUF in bytes.
    pub(crate) window: Option<u32>,
    /// TCP_NODELAY.
    pub(crate) no_delay: bool,
    /// Whether TCP's receivers copy what they receive to memory of their own, as iperf3 does; an iperf3 always does.
    pub(crate) rx_copy: bool,
    /// The byte of type of service (IPv4) or traffic class (IPv6): DSCP * 4 + ECN.
    pub(crate) tos: Option<u8>,
}

/// Which transport carries the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// One connection a stream.
    Tcp,
    /// Datagrams that bear time and number.
    Udp,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestDirection {
    /// The client sends.
    Up,
    /// The server sends: iperf3's `--reverse`.
    Down,
    /// Both do: iperf3's `--bidir`.
    Both,
}

/// When a test ends; what was omitted at the start does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Until {
    /// After so long; when the client says so if that is zero.
    For(Duration),
    /// When so many bytes were sent in each direction that sends, all streams together.
    Bytes(u64),
}

/// One stream of a test, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSpec {
    /// The number that both ends know it by: 1, 3, 4, 5... in the order in which they were opened.
    pub(crate) id: u32,
    /// Whether this end sends.
    pub(crate) sends: bool,
}

impl Iperf3Test {
    /// A test of 10 s from client to server over one stream, as iperf3 does without options.
    pub(crate) fn new(protocol: Transport) -> Self {
        Self {
            protocol,
            way: TestDirection::Up,
            parallel: 1,
            until: Until::For(Duration::from_secs(10)),
            omit: Duration::ZERO,
            interval: Duration::from_secs(1),
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

    /// The streams in the order in which they are opened, from the client's view or from the server's.
    ///
    /// In a test of both directions those that the client sends come first. The second stream is number 3: iperf3 has
    /// counted so since its first version, and the results name streams by it.
    pub(crate) fn streams(&self, client: bool) -> Vec<StreamSpec> {
        let client_sends: &[bool] = match self.way {
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

    /// The measurement of this test with the rate that its senders were asked for beside what they sent, where there is one.
    pub(crate) fn with_requested_rate(&self, mut measurement: Measurement) -> Measurement {
        if let Some(each) = self.bitrate.filter(|_| !measurement.figures.is_empty()) {
            let rate = each as f64 * f64::from(self.parallel);
            let requested = Figure::new(Metric::RequestedRateBitPerS, Statistic::Mean, rate);
            let directions = self.way.directions().iter();
            let figures = directions.map(|way| requested.clone().toward(*way));
            measurement.figures.extend(figures);
        }
        measurement
    }

    /// How long the test lasts with what is omitted, when that is known beforehand.
    pub(crate) fn duration(&self) -> Option<Duration> {
        match self.until {
            Until::For(time) if !time.is_zero() => Some(time + self.omit),
            Until::For(_) | Until::Bytes(_) => None,
        }
    }

    /// About how long the test takes over a path of this pace; nothing where the client decides, or nothing is known of the path.
    pub(crate) fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let Until::Bytes(bytes) = self.until else {
            return self.duration();
        };
        let paced_s = self.bitrate.filter(|rate| *rate > 0).map_or(0.0, |rate| {
            bytes as f64 * 8.0 / (rate as f64 * f64::from(self.parallel))
        });
        let directions = self.way.directions();
        // Datagrams that the path does not take are lost: what is paced leaves at its pace.
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
    /// Those in which payload goes.
    pub(crate) fn directions(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }

    /// Whether the client sends.
    pub(crate) fn goes_up(self) -> bool {
        self != Self::Down
    }

    /// Whether the server sends.
    pub(crate) fn goes_down(self) -> bool {
        self != Self::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_stream_is_number_three_and_those_that_the_client_sends_come_first() {
        let plan = Iperf3Test {
            way: TestDirection::Both,
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
            way: TestDirection::Both,
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
        let requested = figures[1..].iter();
        let requested: Vec<_> = requested
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
