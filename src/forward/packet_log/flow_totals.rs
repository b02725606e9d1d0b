//! Totals of the packet log by flow. Measurements are compared with these totals as soon as a run
//! is over.

use std::collections::HashMap;
use std::io;

use model::Side;
use record::Direction;
use record::crossing::{CrossedData, CrossedFlow};

use super::{LogLine, PacketVerdict, Sink};

/// The largest number of lines of one link that are kept until its end. Each takes 32 bytes, and
/// almost as much again during the summation, so the limit is about 500 MB. Further lines are not
/// kept.
const MOST: usize = 1 << 23;
/// A flow's packets count as data if their length is at least this many quarters of the flow's
/// longest packet.
const DATA_QUARTERS: u64 = 3;
const SECOND: u64 = 1_000_000_000;

/// The lines of all packets, by flow.
#[derive(Debug, Default)]
pub(super) struct FlowTotals {
    flows: HashMap<FlowKey, Vec<PacketGroup>>,
    kept: usize,
    /// The arrival time of the first packet.
    began: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    ingress: Side,
    protocol: u8,
    /// The source and the destination port.
    ports: [u16; 2],
}

/// Packets that are equal in all logged properties.
#[derive(Clone, Copy, Debug)]
struct PacketGroup {
    arrival: u64,
    /// The departure time; 0 if the packets were lost.
    departure: u64,
    /// The due time; 0 if the packets were never due.
    due: u64,
    /// The length of each packet.
    bytes: u32,
    count: u32,
}

impl Sink for FlowTotals {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, _: u64, lines: &[LogLine], _: &[String]) -> io::Result<u64> {
        let room = MOST - self.kept;
        let lines = &lines[..lines.len().min(room)];
        for line in lines {
            self.add(line);
        }
        self.kept += lines.len();
        Ok(lines.iter().map(|line| u64::from(line.count)).sum())
    }

    /// Returns the flows in a fixed order.
    fn flows(self) -> Vec<CrossedFlow> {
        let began = self.began.unwrap_or_default();
        let mut flows: Vec<(FlowKey, Vec<PacketGroup>)> = self.flows.into_iter().collect();
        flows.sort_unstable_by_key(|(key, _)| (key.ingress.index(), key.protocol, key.ports));
        flows
            .iter()
            .map(|(key, packets)| key.sum(began, packets))
            .collect()
    }
}

impl FlowTotals {
    fn add(&mut self, line: &LogLine) {
        let Some(flow) = line.flow else {
            return;
        };
        // A loss by the emulator itself makes the run invalid, and link control belongs to no flow.
        let is_of_network = matches!(
            line.verdict,
            PacketVerdict::Delivered | PacketVerdict::Dropped(_)
        );
        if !is_of_network {
            return;
        }
        // Lines are in the order of departures, not of arrivals.
        let at = line.arrival.0;
        self.began = Some(self.began.map_or(at, |began| began.min(at)));
        let key = FlowKey {
            ingress: line.ingress,
            protocol: flow.protocol,
            ports: flow.ports.unwrap_or_default(),
        };
        self.flows.entry(key).or_default().push(PacketGroup {
            arrival: line.arrival.0,
            departure: line.departure.map_or(0, |at| at.0),
            due: line.due.map_or(0, |at| at.0),
            bytes: line.bytes,
            count: line.count,
        });
    }
}

impl PacketGroup {
    fn has_left(&self) -> bool {
        self.departure > 0
    }

    fn packets(&self) -> u64 {
        self.count.into()
    }

    fn all_bytes(&self) -> u64 {
        u64::from(self.bytes) * self.packets()
    }
}

impl FlowKey {
    fn sum(self, began: u64, packets: &[PacketGroup]) -> CrossedFlow {
        let (direction, ports) = match self.ingress {
            Side::A => (Direction::Up, self.ports),
            Side::B => (Direction::Down, [self.ports[1], self.ports[0]]),
        };
        let delivered = packets.iter().filter(|group| group.has_left());
        CrossedFlow {
            direction,
            protocol: self.protocol,
            ports,
            delivered: delivered.clone().map(PacketGroup::packets).sum(),
            delivered_bytes: delivered.map(PacketGroup::all_bytes).sum(),
            best_second_bytes: best_second(packets),
            data: data(began, packets),
        }
    }
}

fn data(began: u64, packets: &[PacketGroup]) -> CrossedData {
    let longest = packets.iter().map(|packet| packet.bytes).max();
    let least = u64::from(longest.unwrap_or_default()) * DATA_QUARTERS;
    let is_data = |packet: &&PacketGroup| u64::from(packet.bytes) * 4 >= least;
    let packets = packets.iter().filter(is_data);
    let since = |at: u64| at.saturating_sub(began);
    let (left, lost): (Vec<&PacketGroup>, Vec<&PacketGroup>) =
        packets.clone().partition(|group| group.has_left());
    let departures = left.iter().map(|group| group.departure);
    let arrivals = packets.clone().map(|group| group.arrival);
    CrossedData {
        packets: packets.map(PacketGroup::packets).sum(),
        lost: lost.into_iter().map(PacketGroup::packets).sum(),
        first_arrival_ns: since(arrivals.min().unwrap_or(began)),
        first_departure_ns: departures.clone().min().map(since),
        last_departure_ns: departures.max().map(since),
        median_delay_ns: median_delay(&left),
    }
}

fn median_delay(left: &[&PacketGroup]) -> Option<u64> {
    let mut delays: Vec<(u64, u64)> = left
        .iter()
        .map(|group| {
            let delay = group.departure.saturating_sub(group.arrival);
            (delay, group.packets())
        })
        .collect();
    delays.sort_unstable();
    let half = delays.iter().map(|(_, packets)| packets).sum::<u64>() / 2;
    let mut passed = 0;
    let median = delays.iter().find(|(_, packets)| {
        passed += packets;
        passed > half
    });
    median.map(|(delay, _)| *delay)
}

/// Returns the most bytes due within one second, among the packets that left, or `None` if they
/// span less than a second. Due times count, not departures: bytes that left late and together were
/// delayed by the host rather than let through by the network.
fn best_second(packets: &[PacketGroup]) -> Option<u64> {
    let mut left: Vec<(u64, u64)> = packets
        .iter()
        .filter(|group| group.has_left())
        .map(|group| (group.due, group.all_bytes()))
        .collect();
    left.sort_unstable();
    let last = left.last()?.0;
    let (mut from, mut within, mut best) = (0, 0, None);
    for &(at, bytes) in &left {
        within += bytes;
        while at - left[from].0 >= SECOND {
            within -= left[from].1;
            from += 1;
        }
        let is_whole = last - left[0].0 >= SECOND;
        best = best.max(is_whole.then_some(within));
    }
    best
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use model::{DropCause, Nanos};
    use netio::FiveTuple;

    use super::*;

    /// Returns the line of a UDP packet from client to server that left 1 ms after its arrival, or
    /// was dropped.
    fn line(at_ms: u64, bytes: u32, verdict: PacketVerdict) -> LogLine {
        let arrival = Nanos(at_ms * 1_000_000);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        LogLine {
            bytes,
            due: Some(arrival + Nanos(1_000_000)),
            departure: (verdict == PacketVerdict::Delivered).then(|| arrival + Nanos(1_000_000)),
            flow: Some(FiveTuple {
                protocol: 17,
                source: address,
                destination: address,
                ports: Some([4000, 5201]),
            }),
            ..LogLine::bare(arrival, Side::A, verdict)
        }
    }

    fn sum(lines: &[LogLine]) -> CrossedFlow {
        let mut flows = FlowTotals::default();
        let packets: u64 = lines.iter().map(|line| u64::from(line.count)).sum();
        assert_eq!(flows.take(1, lines, &[]).unwrap(), packets);
        let [flow] = &flows.flows()[..] else {
            panic!("one flow");
        };
        flow.clone()
    }

    #[test]
    fn a_flow_counts_packets_that_left_and_its_data_are_those_of_the_usual_length() {
        let delivered = PacketVerdict::Delivered;
        let lost = PacketVerdict::Dropped(DropCause::Loss);
        let flow = sum(&[
            line(5, 46, delivered),
            line(10, 1000, delivered),
            line(20, 1000, lost),
            line(30, 800, delivered),
            line(40, 100, PacketVerdict::LinkControl),
        ]);
        assert_eq!((flow.delivered, flow.delivered_bytes), (3, 1846));
        assert_eq!((flow.direction, flow.ports), (Direction::Up, [4000, 5201]));
        assert_eq!(
            flow.data,
            CrossedData {
                packets: 3,
                lost: 1,
                // Times count from the arrival of the first, short packet.
                first_arrival_ns: 5_000_000,
                first_departure_ns: Some(6_000_000),
                last_departure_ns: Some(26_000_000),
                median_delay_ns: Some(1_000_000),
            }
        );
        assert_eq!(flow.best_second_bytes, None);
    }

    #[test]
    fn equal_packets_give_the_same_totals_as_single_ones() {
        let times = |count: u32, line: LogLine| LogLine { count, ..line };
        let (delivered, lost) = (
            PacketVerdict::Delivered,
            PacketVerdict::Dropped(DropCause::Loss),
        );
        let slow = LogLine {
            departure: Some(Nanos(1_205_000_000)),
            ..line(1200, 800, delivered)
        };
        let lines = [
            times(3, line(0, 1000, delivered)),
            times(2, line(10, 1000, lost)),
            times(4, slow),
            times(1, line(3000, 40, delivered)),
        ];
        let one_by_one = lines.iter().flat_map(|line| {
            let count = line.count as usize;
            std::iter::repeat_n(times(1, *line), count)
        });
        let apart = sum(&one_by_one.collect::<Vec<_>>());
        assert_eq!(apart.data.median_delay_ns, Some(5_000_000));
        assert_eq!(sum(&lines), apart);
    }

    #[test]
    fn the_best_second_may_begin_at_any_packet() {
        let at = [0, 900, 1100, 1300, 1899, 1900, 3000];
        let lines = at.map(|ms| line(ms, 100, PacketVerdict::Delivered));
        assert_eq!(sum(&lines).best_second_bytes, Some(400));
    }

    #[test]
    fn replies_have_the_client_port_first() {
        let mut answer = line(0, 100, PacketVerdict::Delivered);
        answer.ingress = Side::B;
        if let Some(flow) = &mut answer.flow {
            flow.ports = Some([5201, 4000]);
        }
        let flow = sum(&[answer]);
        assert_eq!(flow.direction, Direction::Down);
        assert_eq!(flow.ports, [4000, 5201]);
    }
}
