//! What iperf3's JSON says of the whole test: `end`.

use serde_json::Value;

use super::report::number;
use crate::iperf3::plan::{Plan, Protocol, Way};
use record::{Direction, Figure, Metric, Statistic};

/// The figures of what stands under `end`.
pub(super) fn figures(end: &Value, plan: &Plan) -> Vec<Figure> {
    End { end, plan }.figures()
}

struct End<'a> {
    end: &'a Value,
    plan: &'a Plan,
}

impl End<'_> {
    fn figures(&self) -> Vec<Figure> {
        // The sums without an ending are of the first direction, whichever it is.
        let sums: &[(Direction, &str)] = match self.plan.way {
            Way::Up => &[(Direction::Up, "")],
            Way::Down => &[(Direction::Down, "")],
            Way::Both => &[(Direction::Up, ""), (Direction::Down, "_bidir_reverse")],
        };
        let mut figures = Vec::new();
        for (direction, ending) in sums {
            figures.extend(self.sums(*direction, ending));
            figures.extend(self.load(*direction));
        }
        figures.extend(self.stream_figures());
        figures
    }

    fn sums(&self, direction: Direction, ending: &str) -> Vec<Figure> {
        let sum = |name: &str| &self.end[format!("{name}{ending}")];
        let (sent, received, datagrams) = (sum("sum_sent"), sum("sum_received"), sum("sum"));
        let mut found = vec![
            (Metric::SentBytes, Statistic::Total, number(sent, "bytes")),
            (
                Metric::SentRateBitPerS,
                Statistic::Mean,
                number(sent, "bits_per_second"),
            ),
            (
                Metric::ReceivedBytes,
                Statistic::Total,
                number(received, "bytes"),
            ),
            (
                Metric::GoodputBitPerS,
                Statistic::Mean,
                number(received, "bits_per_second"),
            ),
            (Metric::ElapsedS, Statistic::Total, number(received, "end")),
        ];
        // Of datagrams behind others iperf3 does not say which were duplicates: they are left out.
        match self.plan.protocol {
            Protocol::Tcp => found.push((
                Metric::RetransmittedPackets,
                Statistic::Total,
                number(sent, "retransmits"),
            )),
            Protocol::Udp => found.extend([
                (
                    Metric::SentPackets,
                    Statistic::Total,
                    number(datagrams, "packets"),
                ),
                (
                    Metric::LostPackets,
                    Statistic::Total,
                    number(datagrams, "lost_packets"),
                ),
                (
                    Metric::LostPercent,
                    Statistic::Mean,
                    number(datagrams, "lost_percent"),
                ),
                (
                    Metric::JitterMs,
                    Statistic::Mean,
                    number(datagrams, "jitter_ms"),
                ),
            ]),
        }
        known(found, direction)
    }

    /// Of the processors at both ends, over the whole test.
    fn load(&self, direction: Direction) -> Vec<Figure> {
        let load = &self.end["cpu_utilization_percent"];
        let (client, server) = (number(load, "host_total"), number(load, "remote_total"));
        let (sender, receiver) = match direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        let found = vec![
            (Metric::SenderCpuPercent, Statistic::Mean, sender),
            (Metric::ReceiverCpuPercent, Statistic::Mean, receiver),
        ];
        known(found, direction)
    }

    /// Of each of several streams its goodput, and of each what TCP took for the round-trip time.
    fn stream_figures(&self) -> Vec<Figure> {
        let several = self.plan.parallel > 1;
        let streams = self.end["streams"].as_array();
        let mut figures = Vec::new();
        for (stream, of) in streams.into_iter().flatten().zip(1..) {
            let (sender, receiver) = (&stream["sender"], &stream["receiver"]);
            let Some(sends) = sender["sender"].as_bool() else {
                continue;
            };
            let goodput = number(receiver, "bits_per_second").filter(|_| several);
            // The far end's iperf3 keeps these to itself: of what it sends they are 0 here.
            let rtt = |key| number(sender, key).filter(|us| *us > 0.0);
            let found = vec![
                (Metric::GoodputBitPerS, Statistic::Mean, goodput),
                (
                    Metric::TcpRttMs,
                    Statistic::Mean,
                    rtt("mean_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::TcpRttMs,
                    Statistic::Min,
                    rtt("min_rtt").map(|us| us / 1e3),
                ),
                (
                    Metric::TcpRttMs,
                    Statistic::Max,
                    rtt("max_rtt").map(|us| us / 1e3),
                ),
            ];
            let direction = if sends {
                Direction::Up
            } else {
                Direction::Down
            };
            let found = known(found, direction).into_iter();
            figures.extend(found.map(|figure| if several { figure.stream(of) } else { figure }));
        }
        figures
    }
}

/// Figures of what was said.
fn known(found: Vec<(Metric, Statistic, Option<f64>)>, direction: Direction) -> Vec<Figure> {
    let figure = |(metric, statistic, value)| {
        let value: Option<f64> = value;
        Some(Figure::new(metric, statistic, value?).toward(direction))
    };
    found.into_iter().filter_map(figure).collect()
}
