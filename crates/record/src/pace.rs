//! Estimates how fast the conditions of a case let data through. The duration of an instrument with a fixed count or
//! number of bytes is estimated from it.
//!
//! The result is an estimate and no bound: where a formula is known to deviate from Linux's TCP, a measured constant
//! replaces it.

use model::{Bottleneck, Bytes, Nanos};
use stats::layers::{Stack, TransportProtocol};
use stats::theory::loss::{self, Congestion, LossLaw};

use crate::Direction;
use crate::plan::Case;
use conditions::route::{PathStages, Route};

/// Time in seconds that both hosts and the emulator add to a round trip, as measured on small machines.
const HOSTS_S: f64 = 80e-6;
/// Payload bits per second that a machine carries on a path without a rate, as measured on small machines.
const MACHINE_BIT_PER_S: f64 = 5e9;
/// Initial window of a TCP sender in segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// The part of the time-outs in Padhye's law that Linux's loss recovery (RACK-TLP, RFC 8985) does not avoid. Only case
/// 6 of `toffee-mocha` was measured for it.
const TIMEOUTS_LEFT: f64 = 0.35;

/// Speed of a case's path.
#[derive(Clone, Debug)]
pub struct PathPace {
    route: Route,
    mtu: u32,
    congestion: Congestion,
    /// Rate of the token bucket at the client, in L2 bits per second.
    bucket_bit_per_s: Option<f64>,
}

impl PathPace {
    /// Returns the pace of `case`, or `None` if farwire does not create its whole path or its conditions contradict
    /// each other.
    pub fn of<A>(case: &Case<A>) -> Option<Self> {
        Some(Self {
            route: case.path().ok()?,
            mtu: case.bed.mtu()?,
            congestion: match case.congestion.as_str() {
                "cubic" => Congestion::Cubic,
                "reno" => Congestion::Reno,
                _ => Congestion::Bbr,
            },
            bucket_bit_per_s: case.bed.tbf().map(|rate| rate.get() as f64),
        })
    }

    /// Returns the seconds that a message of `there` bytes of TCP payload takes from client to server and an answer of
    /// `back` bytes takes to return.
    pub fn round_trip_s(&self, there: u64, back: u64) -> f64 {
        let there = self.crossing_s(Direction::Up, there);
        there + self.crossing_s(Direction::Down, back) + HOSTS_S
    }

    /// Returns the seconds until the last of `bytes` bytes of a TCP stream has arrived. The sender first takes the time
    /// in which its window grows, and then sends as fast as the path and its losses allow.
    pub fn stream_s(&self, direction: Direction, bytes: u64) -> f64 {
        let segment = self.stack().most_payload(self.mtu) as f64;
        let rtt_s = self.round_trip_s(0, 0);
        let segment_s = self.segment_s(direction);
        // The window that keeps the path busy without a queue.
        let full_window = rtt_s / segment_s;
        let grown = full_window.min(bytes as f64 / segment) / FIRST_WINDOW;
        let start_s = (1.0 + grown).log2() * rtt_s;
        start_s + bytes as f64 / segment * segment_s + self.crossing_s(direction, 0)
    }

    /// Returns the seconds that the path takes to carry this many bytes of TCP payload, for any number of streams.
    pub fn carrying_s(&self, direction: Direction, bytes: u64) -> f64 {
        let segment = self.stack().most_payload(self.mtu) as f64;
        bytes as f64 / segment * self.path_s(direction)
    }

    /// Returns the seconds per segment in a long stream.
    fn segment_s(&self, direction: Direction) -> f64 {
        let lost = self.route.stages(direction).loss_percent() / 100.0;
        // With a loss of 100 % nothing ever arrives, and the instrument gives up; any number will do.
        let lost = lost.min(0.99);
        let path_s = self.path_s(direction);
        (path_s / (1.0 - lost)).max(self.loss_limited_s(lost, path_s))
    }

    /// Returns the seconds that the path takes per segment when many segments queue.
    fn path_s(&self, direction: Direction) -> f64 {
        let stack = self.stack();
        let full = stack.full_packet(self.mtu);
        let back = stack.packet(0);
        // Servers that both directions share also serve half an acknowledgement per segment.
        let shared = self.route.stages(direction).shared_servers();
        let of_shared =
            shared.map(|server| served_s(server, full.l2) + served_s(server, back.l2) / 2.0);
        let machine_s = full.payload as f64 * 8.0 / MACHINE_BIT_PER_S;
        of_shared.fold(self.serving_s(direction, full.l2).max(machine_s), f64::max)
    }

    /// Returns the seconds per segment to which loss limits the congestion control.
    fn loss_limited_s(&self, lost: f64, path_s: f64) -> f64 {
        let rtt_s = self.round_trip_s(self.stack().most_payload(self.mtu), 0);
        let laws = loss::laws(self.congestion, lost, rtt_s);
        let time = |is: fn(LossLaw) -> bool| {
            let of = laws.iter().filter(|(law, _)| is(*law));
            of.map(|(_, segments_per_s)| 1.0 / segments_per_s)
                .fold(0.0, f64::max)
        };
        let window_s = time(|law| law != LossLaw::Padhye);
        let padhye_s = time(|law| law == LossLaw::Padhye);
        // Time-outs add to any other limit of the sender.
        window_s.max(path_s) + TIMEOUTS_LEFT * (padhye_s - window_s).max(0.0)
    }

    /// Returns the seconds that `payload` bytes, sent back to back, take in one direction. They queue only at the
    /// slowest stage; the others delay only the first frame.
    fn crossing_s(&self, direction: Direction, payload: u64) -> f64 {
        let stack = self.stack();
        let most = stack.most_payload(self.mtu);
        let (full, rest) = (payload / most, payload % most);
        let first = stack.packet(payload.min(most)).l2;
        let all_s = full as f64 * self.serving_s(direction, stack.packet(most).l2)
            + if rest > 0 || full == 0 {
                self.serving_s(direction, stack.packet(rest).l2)
            } else {
                0.0
            };
        let stages = self.route.stages(direction);
        let crossing_s = sizes_s(stages, first) + seconds(stages.propagation());
        crossing_s + all_s - self.serving_s(direction, first)
    }

    /// Returns the seconds that the slowest stage takes to serve a frame of `l2` bytes.
    fn serving_s(&self, direction: Direction, l2: u64) -> f64 {
        let stages = self.route.stages(direction);
        let rate = stages.slowest(Bytes(l2)).map(|(rate, _)| rate.get() as f64);
        let bucket = self.bucket_bit_per_s.filter(|_| direction == Direction::Up);
        let rates = rate.into_iter().chain(bucket);
        let of_rates = rates.map(|bit_per_s| l2 as f64 * 8.0 / bit_per_s);
        let of_shared = stages.shared_servers().map(|server| served_s(server, l2));
        of_rates.chain(of_shared).fold(0.0, f64::max)
    }

    fn stack(&self) -> Stack {
        Stack {
            ipv6: false,
            vlan_tags: 0,
            protocol: TransportProtocol::Tcp { timestamps: true },
        }
    }
}

/// Returns the seconds that all stages together take to serve a frame of `l2` bytes that finds no queue.
fn sizes_s(stages: &PathStages, l2: u64) -> f64 {
    let rates = stages
        .rates(Bytes(l2))
        .map(|rate| l2 as f64 * 8.0 / rate.get() as f64);
    let by_size = stages
        .by_size()
        .map(|factor| seconds(factor.time_for(Bytes(l2))));
    let shared = stages.shared_servers().map(|server| served_s(server, l2));
    rates.chain(by_size).chain(shared).sum()
}

/// Returns the seconds that a server takes for a frame of `l2` bytes.
fn served_s(server: Bottleneck<'_>, l2: u64) -> f64 {
    seconds(server.time_for(Bytes(l2)))
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::Bed;

    /// Returns the pace of a bed with this wire and link, with the congestion control cubic.
    fn pace(wire: &str, link: &str) -> PathPace {
        let bed = format!("kind = 'netns'\nwire = {{ {wire} }}");
        let bed: Bed = toml::from_str(&bed).unwrap();
        let link = toml::from_str(link).unwrap();
        PathPace {
            route: bed.path(&link, None).unwrap(),
            mtu: bed.mtu().unwrap(),
            congestion: Congestion::Cubic,
            bucket_bit_per_s: bed.tbf().map(|rate| rate.get() as f64),
        }
    }

    #[track_caller]
    fn near(found: f64, expected: f64, percent: f64) {
        let off = 100.0 * (found / expected - 1.0).abs();
        assert!(off < percent, "{found} for {expected}: {off} % off");
    }

    #[test]
    fn a_message_queues_only_at_the_slowest_rate() {
        let two = pace("rate = '98.44mbit', delay = '20us'", "rate = '98.44mbit'");
        // A frame has 67 bytes and crosses two lines in each direction.
        let one_b = 4.0 * 67.0 * 8.0 / 98.44e6 + 40e-6 + HOSTS_S;
        near(two.round_trip_s(1, 1), one_b, 1e-6);
        // "Experiment on Oct 10" measured 22.72 ms for 131,072 bytes in each direction.
        near(two.round_trip_s(131_072, 131_072), 22.72e-3, 3.0);
        // It measured 1,114.5 s for a hundred thousand of them in one direction.
        near(two.stream_s(Direction::Up, 13_107_200_000), 1114.5, 1.0);
    }

    #[test]
    fn toffee_serves_one_packet_at_a_time() {
        let case2 = pace(
            "rate = '60.9mbit', delay = '0.68ms'",
            "toffee = 'delay=1ms'",
        );
        // A segment takes 1.5 ms.
        near(
            case2.stream_s(Direction::Down, 524_288_000),
            524_288_000.0 / 1448.0 * 1.5e-3,
            1.0,
        );
        near(case2.round_trip_s(0, 0), 2.0 * (0.68e-3 + 1e-3), 10.0);
    }

    #[test]
    fn loss_adds_the_time_of_its_law_and_of_some_time_outs() {
        let lossy = pace("rate = '50mbit', delay = '10ms'", "loss = '1%'");
        // The law allows 12.247 segments in 20 ms.
        let loss_limited_s = 1e6 / (12.247 * 1448.0 / 20e-3);
        near(
            lossy.stream_s(Direction::Up, 1_000_000),
            loss_limited_s,
            20.0,
        );
        let more = pace("rate = '50mbit', delay = '10ms'", "loss = '5%'");
        assert!(more.stream_s(Direction::Up, 1_000_000) > 2.0 * loss_limited_s);
        let all = pace("", "loss = '100%'");
        assert!(all.stream_s(Direction::Up, 1_000_000).is_finite());
    }

    #[test]
    fn a_short_stream_takes_the_round_trips_in_which_its_window_grows() {
        let long = pace("rate = '1gbit', delay = '50ms'", "");
        let of_segments = |count: u64| long.stream_s(Direction::Up, count * 1448);
        // The windows have 10, 20 and 40 segments; the last one needs no answer.
        let three = of_segments(70) - of_segments(1);
        assert!((0.2..0.35).contains(&three), "{three}");
    }

    #[test]
    fn without_a_rate_the_machine_is_the_limit() {
        near(
            pace("", "").stream_s(Direction::Up, 10_000_000_000),
            80e9 / MACHINE_BIT_PER_S,
            1.0,
        );
        let bucket: Bed = toml::from_str("kind = 'netns'\ntbf = '100mbit'").unwrap();
        let limited = PathPace {
            bucket_bit_per_s: bucket.tbf().map(|rate| rate.get() as f64),
            ..pace("", "")
        };
        near(
            limited.stream_s(Direction::Up, 10_000_000),
            80e6 / 100e6 * 1514.0 / 1448.0,
            1.0,
        );
    }
}
