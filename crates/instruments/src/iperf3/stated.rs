//! Which figures a test over iperf3's protocol, or with another program in its place, can state.

use record::stated::Stated;
use record::{Direction, Metric, Statistic};

use super::plan::{Protocol, Way};
use super::tool::StreamTool;

const RATES: [Metric; 4] = [
    Metric::GoodputBitPerS,
    Metric::L3RateBitPerS,
    Metric::L2RateBitPerS,
    Metric::L1RateBitPerS,
];
const CPU: [Metric; 2] = [Metric::SenderCpuPercent, Metric::ReceiverCpuPercent];
const USER_CPU: [Metric; 2] = [Metric::SenderUserCpuPercent, Metric::ReceiverUserCpuPercent];
const DATAGRAMS: [Metric; 2] = [Metric::SentPackets, Metric::LostPackets];

/// Those of a test of `streams` in each direction.
pub(crate) fn stated(
    tool: Option<StreamTool>,
    protocol: Protocol,
    way: Way,
    streams: u32,
) -> Stated {
    let directions = match way {
        Way::Up => &[Direction::Up][..],
        Way::Down => &[Direction::Down],
        Way::Both => &[Direction::Up, Direction::Down],
    };
    let sends = way != Way::Down;
    match (tool, protocol) {
        (None, Protocol::Tcp) => {
            let own = Stated::means(&RATES)
                .and(Stated::means(&CPU))
                .and(Stated::means(&USER_CPU))
                .and(Stated::totals(&[
                    Metric::SentBytes,
                    Metric::ReceivedBytes,
                    Metric::RetransmittedPackets,
                    Metric::ElapsedS,
                ]))
                .toward(directions);
            // What the sending kernel says of a connection is here of one only.
            match sends && streams == 1 {
                true => own.and(of_sender().toward(&[Direction::Up])),
                false => own,
            }
        }
        (None, Protocol::Udp) => of_datagrams().toward(directions),
        (Some(StreamTool::Iperf3), protocol) => {
            let own = Stated::means(&[Metric::SentRateBitPerS, Metric::GoodputBitPerS])
                .and(Stated::means(&CPU))
                .and(Stated::totals(&[
                    Metric::SentBytes,
                    Metric::ReceivedBytes,
                    Metric::ElapsedS,
                ]))
                .and(of_protocol(protocol))
                .toward(directions);
            match sends && streams == 1 && protocol == Protocol::Tcp {
                true => own.and(tcp_rtt().toward(&[Direction::Up])),
                false => own,
            }
        }
        (Some(StreamTool::Iperf), protocol) => {
            Stated::means(&[Metric::SentRateBitPerS, Metric::GoodputBitPerS])
                .and(Stated::totals(&[
                    Metric::SentBytes,
                    Metric::ReceivedBytes,
                    Metric::ElapsedS,
                ]))
                .and(of_protocol(protocol))
                .toward(directions)
        }
        (Some(StreamTool::Nuttcp), protocol) => {
            let counts = match protocol {
                // What it prints as retrans is 0, whatever is sent again.
                Protocol::Tcp => Stated::totals(&[]),
                Protocol::Udp => {
                    Stated::totals(&DATAGRAMS).and(Stated::means(&[Metric::LostPercent]))
                }
            };
            Stated::means(&[Metric::GoodputBitPerS])
                .and(Stated::totals(&[Metric::ReceivedBytes, Metric::ElapsedS]))
                .and(counts)
                .toward(directions)
                .and(Stated::means(&[Metric::ConnectMs]))
                .and(Stated::means(&CPU))
        }
    }
}

/// What other programs say of TCP, or of datagrams.
fn of_protocol(protocol: Protocol) -> Stated {
    match protocol {
        Protocol::Tcp => Stated::totals(&[Metric::RetransmittedPackets]),
        Protocol::Udp => {
            Stated::totals(&DATAGRAMS).and(Stated::means(&[Metric::LostPercent, Metric::JitterMs]))
        }
    }
}

fn tcp_rtt() -> Stated {
    use Statistic::{Max, Mean, Min};
    Stated::of(Metric::TcpRttMs, &[Min, Mean, Max])
}

/// What the sending kernel says.
fn of_sender() -> Stated {
    tcp_rtt()
        .and(Stated::of(Metric::CongestionWindowBytes, &[Statistic::Max]))
        .and(Stated::means(&[
            Metric::ReceiverLimitedPercent,
            Metric::SendBufferLimitedPercent,
        ]))
}

/// What both ends count of datagrams.
fn of_datagrams() -> Stated {
    use Statistic::{Max, Median, P99};
    Stated::means(&RATES)
        .and(Stated::means(&CPU))
        .and(Stated::means(&USER_CPU))
        .and(Stated::means(&[
            Metric::LostPercent,
            Metric::JitterMs,
            Metric::SentRateBitPerS,
            Metric::LateTrainsPercent,
        ]))
        .and(Stated::totals(&[
            Metric::SentBytes,
            Metric::ReceivedBytes,
            Metric::ElapsedS,
            Metric::SentPackets,
            Metric::ReceivedPackets,
            Metric::LostPackets,
            Metric::DuplicatePackets,
            Metric::ReorderedPackets,
            Metric::HostDroppedPackets,
            Metric::GarbagePackets,
        ]))
        .and(Stated::of(Metric::PacingErrorUs, &[Median, P99, Max]))
        .and(Stated::of(Metric::ReorderingExtentPackets, &[Max]))
        .and(Stated::of(Metric::TrainPackets, &[Max]))
}
