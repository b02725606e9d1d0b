//! How fast a case's conditions let things go: what the time of an instrument that states counts or bytes is estimated from.
//!
//! It is no bound: where a formula is known to say too little or too much of Linux's TCP, what was seen stands here.

use model::{Bottleneck, Bytes, Nanos};
use stats::layers::{Stack, TransportProtocol};
use stats::theory::loss::{self, Congestion, LossLaw};

use crate::Direction;
use crate::plan::Case;
use conditions::route::{PathStages, Route};

/// What both hosts and the emulator add to a round trip, in seconds: seen on small machines.
const HOSTS_S: f64 = 80e-6;
/// What a machine carries where no rate is said, in payload bits a second: seen on small machines.
const MACHINE_BIT_PER_S: f64 = 5e9;
/// Segments that a TCP sender begins with (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// The part of the time-outs of Padhye's law that Linux's loss recovery (RACK-TLP, RFC 8985) does not avoid: seen in case 6 of
/// `toffee-mocha` alone.
const TIMEOUTS_LEFT: f64 = 0.35;

/// The pace of a case's path.
#[derive(Clone, Debug)]
pub struct PathPace {
    route: Route,
    mtu: u32,
    congestion: Congestion,
    /// A token bucket at the client, in L2 bits a second.
    bucket_bit_per_s: Option<f64>,
}

impl PathPace {
    /// Of `case`; nothing where its path is not of this machine alone, or its conditions contradict each other.
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

    /// How long a message of so many bytes of TCP payload takes there, and one of `back` bytes back, in seconds.
    pub fn round_trip_s(&self, there: u64, back: u64) -> f64 {
        let there = self.crossing_s(Direction::Up, there);
        there + self.crossing_s(Direction::Down, back) + HOSTS_S
    }

    /// How long a TCP sender takes for so many bytes, one message after the other, in seconds: the start, in which its window
    /// grows, and then as fast as the path and its losses let it go; until the last byte has come.
    pub fn stream_s(&self, direction: Direction, bytes: u64) -> f64 {
        let segment = self.stack().most_payload(self.mtu) as f64;
        let rtt_s = self.round_trip_s(0, 0);
        let segment_s = self.segment_s(direction);
        // What is on its way when nothing waits.
        let full_window = rtt_s / segment_s;
        let grown = full_window.min(bytes as f64 / segment) / FIRST_WINDOW;
        let start_s = (1.0 + grown).log2() * rtt_s;
        start_s + bytes as f64 / segment * segment_s + self.crossing_s(direction, 0)
    }

    /// How long the path takes for so many bytes of TCP payload, whoever sends how many streams, in seconds.
    pub fn carrying_s(&self, direction: Direction, bytes: u64) -> f64 {
        let segment = self.stack().most_payload(self.mtu) as f64;
        bytes as f64 / segment * self.path_s(direction)
    }

    /// How long each segment takes in a long stream.
    fn segment_s(&self, direction: Direction) -> f64 {
        let lost = self.route.stages(direction).loss_percent() / 100.0;
        // Where all is lost, whoever waits gives up: any number will do.
        let lost = lost.min(0.99);
        let path_s = self.path_s(direction);
        (path_s / (1.0 - lost)).max(self.law_s(lost, path_s))
    }

    /// How long the path takes for each segment when many wait.
    fn path_s(&self, direction: Direction) -> f64 {
        let stack = self.stack();
        let full = stack.full_packet(self.mtu);
        let back = stack.packet(0);
        // Half an acknowledgement comes for each segment, through the servers that both directions share.
        let shared = self.route.stages(direction).shared_servers();
        let of_shared =
            shared.map(|server| served_s(server, full.l2) + served_s(server, back.l2) / 2.0);
        let machine_s = full.payload as f64 * 8.0 / MACHINE_BIT_PER_S;
        of_shared.fold(self.serving_s(direction, full.l2).max(machine_s), f64::max)
    }

    /// What the congestion control makes of loss: seconds a segment.
    fn law_s(&self, lost: f64, path_s: f64) -> f64 {
        let rtt_s = self.round_trip_s(self.stack().most_payload(self.mtu), 0);
        let laws = loss::laws(self.congestion, lost, rtt_s);
        let time = |is: fn(LossLaw) -> bool| {
            let of = laws.iter().filter(|(law, _)| is(*law));
            of.map(|(_, segments_per_s)| 1.0 / segments_per_s)
                .fold(0.0, f64::max)
        };
        let window_s = time(|law| law != LossLaw::Padhye);
        let padhye_s = time(|law| law == LossLaw::Padhye);
        // Time-outs come on top of whatever else holds the sender up.
        window_s.max(path_s) + TIMEOUTS_LEFT * (padhye_s - window_s).max(0.0)
    }

    /// How long `payload` bytes sent at once take one way: the slowest stage serves them one by one, the others only delay them.
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

    /// How long the slowest stage serves a frame of so many L2 bytes.
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

/// What all stages add to a frame of so many L2 bytes that meets nobody.
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

/// How long a server takes for a frame of so many L2 bytes.
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

    /// Of a bed with this wire and link, under cubic.
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
    fn a_message_passes_every_rate_and_waits_at_the_slowest_alone() {
        let two = pace("rate = '98.44mbit', delay = '20us'", "rate = '98.44mbit'");
        // 67 bytes of frame on two lines each way.
        let one_b = 4.0 * 67.0 * 8.0 / 98.44e6 + 40e-6 + HOSTS_S;
        near(two.round_trip_s(1, 1), one_b, 1e-6);
        // "Experiment on Oct 10" found 22.72 ms for 131,072 bytes there and back.
        near(two.round_trip_s(131_072, 131_072), 22.72e-3, 3.0);
        // And 1,114.5 s for a hundred thousand of them one way.
        near(two.stream_s(Direction::Up, 13_107_200_000), 1114.5, 1.0);
    }

    #[test]
    fn toffee_serves_one_packet_at_a_time() {
        let case2 = pace(
            "rate = '60.9mbit', delay = '0.68ms'",
            "toffee = 'delay=1ms'",
        );
        // 1.5 ms a segment.
        near(
            case2.stream_s(Direction::Down, 524_288_000),
            524_288_000.0 / 1448.0 * 1.5e-3,
            1.0,
        );
        near(case2.round_trip_s(0, 0), 2.0 * (0.68e-3 + 1e-3), 10.0);
    }

    #[test]
    fn loss_takes_what_its_law_says_and_some_of_the_time_outs() {
        let lossy = pace("rate = '50mbit', delay = '10ms'", "loss = '1%'");
        // 12.247 segments in 20 ms.
        let law_s = 1e6 / (12.247 * 1448.0 / 20e-3);
        near(lossy.stream_s(Direction::Up, 1_000_000), law_s, 20.0);
        let more = pace("rate = '50mbit', delay = '10ms'", "loss = '5%'");
        assert!(more.stream_s(Direction::Up, 1_000_000) > 2.0 * law_s);
        let all = pace("", "loss = '100%'");
        assert!(all.stream_s(Direction::Up, 1_000_000).is_finite());
    }

    #[test]
    fn a_short_stream_takes_the_round_trips_in_which_its_window_grows() {
        let long = pace("rate = '1gbit', delay = '50ms'", "");
        let of_segments = |count: u64| long.stream_s(Direction::Up, count * 1448);
        // 10, 20, 40: three windows, the last of which needs no answer.
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
