//! What was counted of TCP streams: in intervals, and of a whole test.

use std::time::Duration;

use netio::tcp::TcpInfo;

use super::super::plan::StreamSpec;

/// What one interval brought.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Seconds after the start of the test at which it began, the omitted start included.
    pub(crate) start_s: f64,
    /// Likewise its end.
    pub(crate) end_s: f64,
    /// Whether it lies in the omitted start.
    pub(crate) omitted: bool,
    /// CPU time of this end's threads in percent of the interval.
    pub(crate) cpu_percent: f64,
    /// Each stream, in the order of opening.
    pub(crate) streams: Vec<StreamInterval>,
}

/// What one interval brought on one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamInterval {
    /// The stream, seen from this end.
    pub(crate) spec: StreamSpec,
    /// Payload bytes that this end wrote, or read.
    pub(crate) bytes: u64,
    /// Payload bytes that arrived: read by this end, or acknowledged by the other.
    pub(crate) arrived: u64,
    /// Segments sent again; at a sender only.
    pub(crate) retransmits: u32,
    /// The kernel's view at the end of the interval.
    pub(crate) info: TcpInfo,
}

/// One stream of a whole test, seen from this end.
#[derive(Clone, Debug)]
pub(crate) struct StreamTotal {
    /// The stream.
    pub(crate) spec: StreamSpec,
    /// Payload bytes that this end wrote, or read.
    pub(crate) bytes: u64,
    /// Payload bytes that this end wrote or read since the connection began, the omitted start included.
    pub(crate) bytes_with_omitted: u64,
    /// For how long that went.
    pub(crate) seconds: f64,
    /// Segments sent again; at a sender only.
    pub(crate) retransmits: u32,
    /// Payload bytes of a segment on average, those sent again included; absent without a segment.
    pub(crate) segment: Option<f64>,
    /// How long the sender was held up by the receiver's window and by its own send buffer, of the time in which it had
    /// something to send.
    pub(crate) limited: Limited,
    /// The kernel's view at the end.
    pub(crate) info: TcpInfo,
    /// Least, mean and greatest smoothed round-trip time at the ends of intervals.
    pub(crate) rtt: Option<[Duration; 3]>,
    /// The greatest congestion window at the end of an interval, in bytes.
    pub(crate) most_cwnd: u64,
}

/// What held a sender up (tcpi_busy_time and its parts).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limited {
    pub(crate) busy: Duration,
    pub(crate) by_receiver: Duration,
    pub(crate) by_send_buffer: Duration,
}

/// Smoothed round-trip times at the ends of intervals.
#[derive(Debug, Default)]
pub(super) struct Rtts {
    count: u32,
    sum: Duration,
    /// The least and the greatest.
    ends: Option<[Duration; 2]>,
}

/// The congestion window in bytes, as iperf3 states it.
pub(crate) fn cwnd_bytes(info: &TcpInfo) -> u64 {
    u64::from(info.snd_cwnd) * u64::from(info.snd_mss)
}

impl Rtts {
    pub(super) fn add(&mut self, rtt: Duration) {
        let [least, most] = self.ends.unwrap_or([rtt, rtt]);
        self.ends = Some([least.min(rtt), most.max(rtt)]);
        self.sum += rtt;
        self.count += 1;
    }

    /// Absent without any.
    pub(super) fn least_mean_most(&self) -> Option<[Duration; 3]> {
        let [least, most] = self.ends?;
        Some([least, self.sum / self.count, most])
    }
}
