//! The metrics of a test over iperf3's protocol, or with another program in its place.

use record::Direction::Up;
use record::Metric;
use record::Statistic::{Max, Mean, Median, Min, P99};
use record::metric_table::{MetricRow, MetricTable};

use super::plan::{Iperf3Test, Transport};
use super::tool::StreamTool;
use crate::measured::goodput;

/// Returns the metrics that `tool`, or farwire itself, states for a test.
pub(crate) fn metrics(tool: Option<StreamTool>, plan: &Iperf3Test) -> MetricTable {
    let directions = plan.direction.directions();
    let (protocol, is_tcp) = match plan.protocol {
        Transport::Tcp => ("TCP", true),
        Transport::Udp => ("UDP", false),
    };
    let has_cpu = tool != Some(StreamTool::Iperf);
    // The sending kernel's values are available here only for a single connection.
    let of_sender = is_tcp
        && plan.direction.goes_up()
        && plan.parallel == 1
        && matches!(tool, None | Some(StreamTool::Iperf3));
    let rows = MetricTable::new([goodput(protocol)]);
    let rows = match (tool, plan.protocol) {
        (None, Transport::Tcp) => rows.and(sent_and_received()).and([retransmitted()]),
        (None, Transport::Udp) => rows.and(of_datagrams()).and([sent_rate().headline()]),
        (Some(StreamTool::Iperf3 | StreamTool::Iperf), Transport::Tcp) => {
            let rates = rows.and([sent_rate().headline(), retransmitted()]);
            rates.and(sent_and_received())
        }
        (Some(StreamTool::Iperf3 | StreamTool::Iperf), Transport::Udp) => {
            let rates = rows.and([lost_percent(), jitter(), sent_rate().headline()]);
            rates.and(sent_and_received()).and(lost())
        }
        // nuttcp prints 0 as retrans, whatever is retransmitted.
        (Some(StreamTool::Nuttcp), Transport::Tcp) => rows.and(received()),
        (Some(StreamTool::Nuttcp), Transport::Udp) => {
            rows.and([lost_percent()]).and(lost()).and(received())
        }
    };
    // Datagrams have a rate, unless the user asked for none.
    let is_paced = !is_tcp || plan.bitrate.is_some();
    let rows = rows.and(is_paced.then(requested_rate));
    let rows = match tool {
        None => rows.and(rates_below()).and(user_cpu()),
        Some(_) => rows,
    };
    let of_cpu = MetricTable::new(has_cpu.then(|| cpu(is_tcp)).into_iter().flatten());
    let rows = rows.toward(directions).and(of_sender.then(tcp_rtt));
    let rows = match tool {
        // nuttcp's values are of both directions together.
        Some(StreamTool::Nuttcp) => rows.and(of_cpu).and([MetricRow::mean(Metric::ConnectMs)]),
        _ => rows.and(of_cpu.toward(directions)),
    };
    let limits = (of_sender && tool.is_none()).then(sender_limits);
    rows.and(limits.into_iter().flatten())
}

fn sent_rate() -> MetricRow {
    MetricRow::mean(Metric::SentRateBitPerS)
}

fn requested_rate() -> MetricRow {
    MetricRow::mean(Metric::RequestedRateBitPerS).headline()
}

fn lost_percent() -> MetricRow {
    MetricRow::mean(Metric::LostPercent).headline()
}

fn jitter() -> MetricRow {
    MetricRow::mean(Metric::JitterMs).headline()
}

fn retransmitted() -> MetricRow {
    MetricRow::total(Metric::RetransmittedPackets).headline()
}

fn received() -> [MetricRow; 2] {
    [Metric::ReceivedBytes, Metric::ElapsedS].map(MetricRow::total)
}

fn sent_and_received() -> [MetricRow; 3] {
    [Metric::SentBytes, Metric::ReceivedBytes, Metric::ElapsedS].map(MetricRow::total)
}

fn lost() -> [MetricRow; 2] {
    [Metric::SentPackets, Metric::LostPackets].map(MetricRow::total)
}

fn rates_below() -> [MetricRow; 3] {
    [
        Metric::L3RateBitPerS,
        Metric::L2RateBitPerS,
        Metric::L1RateBitPerS,
    ]
    .map(MetricRow::mean)
}

fn cpu(is_tcp: bool) -> [MetricRow; 2] {
    let cpu = [Metric::SenderCpuPercent, Metric::ReceiverCpuPercent].map(MetricRow::mean);
    if is_tcp {
        cpu.map(MetricRow::headline)
    } else {
        cpu
    }
}

fn user_cpu() -> [MetricRow; 2] {
    [Metric::SenderUserCpuPercent, Metric::ReceiverUserCpuPercent].map(MetricRow::mean)
}

fn tcp_rtt() -> MetricRow {
    MetricRow::new(Metric::TcpRttMs, &[Min, Mean, Max])
        .headlines(&[Mean])
        .toward(&[Up])
}

/// Returns the metrics of the limits of the sender, according to its kernel.
fn sender_limits() -> [MetricRow; 3] {
    [
        MetricRow::new(Metric::CongestionWindowBytes, &[Max]),
        MetricRow::mean(Metric::ReceiverLimitedPercent),
        MetricRow::mean(Metric::SendBufferLimitedPercent),
    ]
    .map(|row| row.toward(&[Up]))
}

/// Returns the metrics of the datagrams that both ends count.
fn of_datagrams() -> MetricTable {
    let counts = [
        Metric::ReceivedPackets,
        Metric::DuplicatePackets,
        Metric::ReorderedPackets,
        Metric::HostDroppedPackets,
        Metric::GarbagePackets,
    ];
    MetricTable::new([lost_percent(), jitter()])
        .and(sent_and_received())
        .and(lost())
        .and(counts.map(MetricRow::total))
        .and([
            MetricRow::mean(Metric::LateTrainsPercent),
            MetricRow::new(Metric::PacingErrorUs, &[Median, P99, Max]),
            MetricRow::new(Metric::ReorderingExtentPackets, &[Max]),
            MetricRow::new(Metric::TrainPackets, &[Max]),
        ])
}
