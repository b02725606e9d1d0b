//! The TCP streams of a test, at either end.

pub(crate) mod measure;
pub(crate) mod report;
mod stream;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Result};
use netio::tcp::TcpInfo;
use socket2::SockRef;

use self::stream::{DataStream, SharedStreamState, Snapshot};
pub(crate) use self::stream::{StreamInterval, cwnd_bytes};
use super::detail::{StreamDetail, TcpDetail};
use super::messages::StreamResults;
use super::plan::{Iperf3Test, StreamSpec, Until};
use super::run::{CpuTime, Streams, TestProgress, seconds};
use crate::service::TestTraffic;

/// The default block in bytes, which is the largest that iperf3 accepts, for fewer calls.
const DEFAULT_BLOCK: u32 = 1 << 20;
/// The time between two checks of [`Streams::settle`].
const SETTLE_STEP: Duration = Duration::from_millis(5);

/// The TCP streams of one end of a test.
#[derive(Debug)]
pub(crate) struct TcpStreams {
    streams: Vec<DataStream>,
    sending: Arc<SharedStreamState>,
    until: Until,
    start: Instant,
    /// The start of counting, after the omitted start.
    counted_from: Instant,
    omitting: bool,
    ticked: Instant,
    cpu_before: Duration,
    /// All intervals, or only the last one.
    intervals: Vec<TcpInterval>,
    keeps_intervals: bool,
    /// The congestion control, as read before the sockets were closed.
    congestion_used: Option<String>,
    ipv6: bool,
}

/// The properties of one data connection after its set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataConnection {
    /// The stream.
    pub(crate) spec: StreamSpec,
    /// Its local address.
    pub(crate) local: SocketAddr,
    /// Its remote address.
    pub(crate) remote: SocketAddr,
    /// The effective SO_SNDBUF and SO_RCVBUF.
    pub(crate) buffers: [usize; 2],
    /// The effective TCP_MAXSEG.
    pub(crate) mss: u32,
}

/// The counts of one interval.
#[derive(Clone, Debug)]
pub(crate) struct TcpInterval {
    /// The start of the interval in seconds after the start of the test, which includes the omitted start.
    pub(crate) start_s: f64,
    /// The end of the interval in seconds after the start of the test.
    pub(crate) end_s: f64,
    /// Whether the interval is part of the omitted start.
    pub(crate) omitted: bool,
    /// CPU time of this end's threads in percent of the interval.
    pub(crate) cpu_percent: f64,
    /// The counts of each stream, in the order of opening.
    pub(crate) streams: Vec<StreamInterval>,
}

/// The counts of one stream for a whole test, as this end sees them.
#[derive(Clone, Debug)]
pub(crate) struct StreamTotal {
    /// The stream.
    pub(crate) spec: StreamSpec,
    /// Payload bytes that this end wrote or read.
    pub(crate) bytes: u64,
    /// Payload bytes that this end wrote or read since the connection began, including the omitted start.
    pub(crate) bytes_with_omitted: u64,
    /// The duration in seconds.
    pub(crate) seconds: f64,
    /// The data that the network carried, according to this end's kernel.
    pub(crate) carried: KernelCounts,
    /// Retransmitted segments, only at a sender.
    pub(crate) retransmits: u32,
    /// The average payload of a segment in bytes, retransmissions included, or `None` without a segment.
    pub(crate) segment: Option<f64>,
    /// The times for which the receiver's window and the sender's own send buffer limited it, out of the time in which
    /// it had something to send.
    pub(crate) limited: SenderLimits,
    /// The kernel's values at the end.
    pub(crate) info: TcpInfo,
    /// The mean and the maximum of the smoothed round-trip time at the ends of intervals.
    pub(crate) rtt: Option<[Duration; 2]>,
    /// The largest congestion window at the end of an interval, in bytes.
    pub(crate) most_cwnd: u64,
}

/// The data that the network carried in the counted time, as the kernel of one end knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    /// An upper bound of the payload bytes, or `None` if the kernel does not report it.
    pub(crate) most: Option<u64>,
    /// The number of bytes that the receiver read in this time but that the network may have carried before it.
    pub(crate) before: u64,
    /// The part of this time before the first data arrived at this end or left it.
    pub(crate) waited: Duration,
}

/// The times that limited a sender (`tcpi_busy_time` and its parts).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderLimits {
    /// The time in which data was waiting to be sent or acknowledged.
    pub(crate) busy: Duration,
    /// The time in which the receiver's window was the limit.
    pub(crate) by_receiver: Duration,
    /// The time in which this end's send buffer was the limit.
    pub(crate) by_send_buffer: Duration,
}

impl DataConnection {
    /// Returns the stream's number, its local address and its remote address.
    fn ends(&self) -> (u32, [SocketAddr; 2]) {
        (self.spec.id, [self.local, self.remote])
    }

    /// Returns the properties of an established connection.
    fn of((spec, stream): &(StreamSpec, TcpStream)) -> Option<Self> {
        let socket = SockRef::from(stream);
        Some(Self {
            spec: *spec,
            local: stream.local_addr().ok()?,
            remote: stream.peer_addr().ok()?,
            buffers: [
                socket.send_buffer_size().ok()?,
                socket.recv_buffer_size().ok()?,
            ],
            mss: socket.tcp_mss().ok()?,
        })
    }
}

impl KernelCounts {
    /// Returns the counts from `base`, when counting began, to `end`, at the sending or at the receiving end.
    fn between(sends: bool, base: &Snapshot, end: &Snapshot) -> Self {
        let (from, to) = (&base.info, &end.info);
        if sends {
            // Data in flight at the start of counting crossed the path before it or after it. Data that is not yet sent
            // has not been carried.
            let unacknowledged = from.bytes_sent.saturating_sub(from.bytes_retrans);
            let in_flight = match base.bytes {
                0 => 0,
                _ => unacknowledged.saturating_sub(from.bytes_acked),
            };
            let sent = to.bytes_sent.saturating_sub(from.bytes_sent);
            return Self {
                most: (to.bytes_sent > 0).then(|| sent.saturating_add(in_flight)),
                before: in_flight,
                waited: Duration::ZERO,
            };
        }
        let in_order = to.bytes_received.saturating_sub(from.bytes_received);
        // Out-of-order data is not in the kernel's count of bytes, but in its count of segments.
        let segments = to.data_segs_in.saturating_sub(from.data_segs_in);
        let received = if to.out_of_order == from.out_of_order {
            in_order
        } else {
            in_order.max(u64::from(segments) * u64::from(to.rcv_mss))
        };
        Self {
            most: (to.bytes_received > 0).then_some(received),
            before: match base.bytes {
                0 => 0,
                _ => from.bytes_received.saturating_sub(base.bytes),
            },
            waited: Duration::ZERO,
        }
    }
}

impl TcpStreams {
    /// Returns streams over established connections, in the order of opening.
    pub(crate) fn new(plan: &Iperf3Test, streams: Vec<(StreamSpec, TcpStream)>) -> Self {
        let now = Instant::now();
        let peer = streams
            .first()
            .and_then(|(_, socket)| socket.peer_addr().ok());
        let streams = streams
            .into_iter()
            .map(|(spec, socket)| DataStream::new(spec, socket));
        Self {
            streams: streams.collect(),
            sending: Arc::new(SharedStreamState::new(block(plan), plan)),
            until: plan.until,
            start: now,
            counted_from: now,
            omitting: !plan.omit.is_zero(),
            ticked: now,
            cpu_before: Duration::ZERO,
            intervals: Vec::new(),
            keeps_intervals: true,
            congestion_used: None,
            ipv6: peer.is_some_and(|peer| peer.ip().to_canonical().is_ipv6()),
        }
    }

    /// Keeps only the last interval, because a server's memory must not grow with its clients' tests.
    pub(crate) fn without_intervals(mut self) -> Self {
        self.keeps_intervals = false;
        self
    }

    /// Returns the counts of each whole stream.
    pub(crate) fn totals(&self) -> Vec<StreamTotal> {
        let streams = self.streams.iter();
        streams.map(|stream| self.total(stream)).collect()
    }

    fn total(&self, stream: &DataStream) -> StreamTotal {
        let spec = stream.spec;
        let (base, end) = (stream.base, stream.latest());
        let (before, info) = (base.info, end.info);
        let (segments, segment_bytes) = if spec.sends {
            (info.data_segs_out, info.bytes_sent)
        } else {
            (info.data_segs_in, info.bytes_received)
        };
        let ended = match self.until {
            // Receiving a number of bytes is complete with the last of them.
            Until::Bytes(_) if !spec.sends => self.start + stream.last_byte(),
            _ => end.at,
        };
        StreamTotal {
            spec,
            bytes: end.bytes - base.bytes,
            carried: KernelCounts {
                // After an omitted start, data is already on its way.
                waited: match base.bytes {
                    0 => stream
                        .first_byte()
                        .saturating_sub(self.counted_from.saturating_duration_since(self.start)),
                    _ => Duration::ZERO,
                },
                ..KernelCounts::between(spec.sends, &base, &end)
            },
            bytes_with_omitted: end.bytes,
            seconds: seconds(self.counted_from, ended),
            retransmits: info.total_retrans.saturating_sub(before.total_retrans),
            segment: (segments > 0).then(|| segment_bytes as f64 / f64::from(segments)),
            limited: SenderLimits {
                busy: info.busy_time.saturating_sub(before.busy_time),
                by_receiver: info.rwnd_limited.saturating_sub(before.rwnd_limited),
                by_send_buffer: info.sndbuf_limited.saturating_sub(before.sndbuf_limited),
            },
            info,
            rtt: stream.sender.rtt(),
            most_cwnd: stream.sender.most_cwnd,
        }
    }

    /// Restarts counting at `now`, with the test's number of bytes as the allowance.
    fn count_from(&mut self, now: Instant) {
        (self.counted_from, self.ticked) = (now, now);
        if let (false, Until::Bytes(bytes)) = (self.omitting, self.until) {
            self.sending.control.limit(bytes);
        }
        self.streams.iter_mut().for_each(|stream| stream.reset(now));
    }
}

impl Streams for TcpStreams {
    fn start(&mut self, start: Instant) -> Result<()> {
        self.start = start;
        self.count_from(start);
        let mut streams = self.streams.iter_mut();
        streams.try_for_each(|stream| stream.start(&self.sending, start))
    }

    fn end_omission(&mut self, now: Instant) {
        self.omitting = false;
        self.count_from(now);
    }

    fn tick(&mut self, now: Instant) {
        let cpu = self.cpu().total();
        let lasted = seconds(self.ticked, now);
        let used = cpu.saturating_sub(self.cpu_before).as_secs_f64();
        if !self.keeps_intervals {
            self.intervals.clear();
        }
        let streams = self.streams.iter_mut();
        self.intervals.push(TcpInterval {
            start_s: seconds(self.start, self.ticked),
            end_s: seconds(self.start, now),
            omitted: self.omitting,
            cpu_percent: 100.0 * used / lasted.max(f64::EPSILON),
            streams: streams.map(|stream| stream.interval(now)).collect(),
        });
        self.ticked = now;
        self.cpu_before = cpu;
    }

    fn interval_line(&self) -> String {
        let Some(interval) = self.intervals.last() else {
            return String::new();
        };
        let lasted = interval.end_s - interval.start_s;
        let way = |sends: bool| -> Option<String> {
            let streams = interval.streams.iter();
            let of = || streams.clone().filter(|stream| stream.spec.sends == sends);
            let rtt = of().map(|stream| stream.info.rtt).max()?;
            let arrived: u64 = of().map(|stream| stream.arrived).sum();
            let rate = arrived as f64 * 8.0 / lasted / 1e6;
            let retransmits: u32 = of().map(|stream| stream.retransmits).sum();
            Some(if sends {
                let rtt = rtt.as_secs_f64() * 1e3;
                format!("sent {rate:.1} Mbit/s, {retransmits} retransmissions, RTT {rtt:.3} ms")
            } else {
                format!("received {rate:.1} Mbit/s")
            })
        };
        let ways: Vec<String> = [true, false].into_iter().filter_map(way).collect();
        let omitted = if interval.omitted { " (omitted)" } else { "" };
        format!(
            "{:.1} to {:.1} s: {}{omitted}",
            interval.start_s,
            interval.end_s,
            ways.join("; ")
        )
    }

    fn progress(&self) -> TestProgress {
        let mut progress = TestProgress::default();
        let mut idle = true;
        for stream in &self.streams {
            let now = stream.latest();
            let bytes = now.bytes - stream.base.bytes;
            if stream.spec.sends {
                progress.moved += now.info.bytes_acked;
                idle &= now.info.unacked == 0 && now.info.notsent_bytes == 0;
                idle &= stream.ended().is_some();
            } else {
                progress.received += bytes;
                progress.moved += now.bytes;
            }
            if let Some(Some(cause)) = stream.ended() {
                progress.broken.get_or_insert_with(|| cause.clone());
            }
        }
        progress.delivered = idle && self.sending.control.allowance() == 0;
        progress
    }

    fn traffic(&self) -> TestTraffic {
        let snapshots = self
            .streams
            .iter()
            .map(|stream| (stream.spec.sends, stream.latest()));
        let (mut bytes, mut infos) = ([0, 0], Vec::with_capacity(self.streams.len()));
        for (sends, now) in snapshots {
            bytes[usize::from(sends)] += now.bytes;
            infos.push(now.info);
        }
        TestTraffic::of_tcp(&infos, bytes)
    }

    fn stop(&mut self, now: Instant) {
        self.sending.control.stop();
        let senders = self.streams.iter_mut().filter(|stream| stream.spec.sends);
        senders.for_each(DataStream::join);
        for stream in &mut self.streams {
            // Everything that a sender wrote until it noticed the stop was sent, within the time until then.
            let sends = stream.spec.sends;
            stream.end = Some(stream.snapshot(if sends { Instant::now() } else { now }));
        }
        let end = Instant::now();
        if end.duration_since(self.ticked) > Duration::from_millis(1) {
            self.tick(end);
        }
    }

    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool) {
        loop {
            let mut complete = true;
            for stream in self.streams.iter_mut().filter(|stream| !stream.spec.sends) {
                if let Some(theirs) = sent.iter().find(|theirs| theirs.id == stream.spec.id) {
                    let now = stream.snapshot(Instant::now());
                    stream.end = Some(now);
                    complete &=
                        now.bytes - stream.base.bytes >= theirs.bytes || stream.ended().is_some();
                }
            }
            if complete || enough() {
                return;
            }
            thread::sleep(SETTLE_STEP);
        }
    }

    fn close(&mut self) {
        self.sending.control.stop();
        self.congestion_used = self.congestion_used();
        for stream in &mut self.streams {
            stream.end = Some(stream.latest());
            stream.close();
        }
    }

    fn results(&self) -> Vec<StreamResults> {
        let result = |total: StreamTotal| StreamResults {
            id: total.spec.id,
            bytes: total.bytes,
            retransmits: total.spec.sends.then(|| total.retransmits.into()),
            errors: Some(0),
            omitted: Some([0, 0]),
            seconds: Some(total.seconds),
            detail: (!total.spec.sends).then(|| {
                StreamDetail::Tcp(TcpDetail {
                    waited_ns: u64::try_from(total.carried.waited.as_nanos()).unwrap_or(u64::MAX),
                })
            }),
            ..StreamResults::default()
        };
        self.totals().into_iter().map(result).collect()
    }

    fn congestion_used(&self) -> Option<String> {
        let Some(socket) = self.streams.iter().find_map(DataStream::socket) else {
            return self.congestion_used.clone();
        };
        let name = SockRef::from(socket).tcp_congestion().ok()?;
        let text = name.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn cpu(&self) -> CpuTime {
        self.streams.iter().map(DataStream::cpu).sum()
    }
}

impl Drop for TcpStreams {
    fn drop(&mut self) {
        // Senders must see the stop before their streams wait for them.
        self.sending.control.stop();
    }
}

/// Returns the number of bytes that a sender writes in one call.
pub(crate) fn block(plan: &Iperf3Test) -> u32 {
    plan.length.unwrap_or(DEFAULT_BLOCK)
}

/// Sets the options of `plan` on a data socket to `peer`. The MSS takes effect only if the socket `connects` later,
/// since the client's handshake determines it.
///
/// # Errors
/// Returns an error that names the option that the system refuses.
pub(crate) fn set_options(
    plan: &Iperf3Test,
    socket: &SockRef<'_>,
    peer: IpAddr,
    connects: bool,
) -> Result<()> {
    if let Some(name) = &plan.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .with_context(|| format!("TCP congestion control `{name}` cannot be set here"))?;
    }
    if let Some(mss) = plan.mss.filter(|_| connects) {
        socket
            .set_tcp_mss(mss)
            .with_context(|| format!("an MSS of {mss} cannot be set"))?;
    }
    if let Some(window) = plan.window {
        let window = window as usize;
        socket
            .set_send_buffer_size(window)
            .and_then(|()| socket.set_recv_buffer_size(window))
            .with_context(|| format!("a window of {window} bytes cannot be set"))?;
    }
    if plan.no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    set_tos(plan, socket, peer)
}

/// Sets the TOS byte of `plan`, if it has one, for packets to `peer`, on a socket of either IP version.
///
/// # Errors
/// Returns an error if the system refuses it.
pub(crate) fn set_tos(plan: &Iperf3Test, socket: &SockRef<'_>, peer: IpAddr) -> Result<()> {
    let Some(tos) = plan.tos else {
        return Ok(());
    };
    let set = match peer.to_canonical() {
        IpAddr::V4(_) => socket.set_tos_v4(tos.into()),
        IpAddr::V6(_) => socket.set_tclass_v6(tos.into()),
    };
    set.with_context(|| format!("a type of service of {tos:#04x} cannot be set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(bytes: u64, info: TcpInfo) -> Snapshot {
        Snapshot {
            at: Instant::now(),
            bytes,
            info,
        }
    }

    #[test]
    fn a_sender_s_kernel_counts_sent_data_and_data_in_flight_at_the_start() {
        let info = |bytes_sent, bytes_retrans, bytes_acked| TcpInfo {
            bytes_sent,
            bytes_retrans,
            bytes_acked,
            ..TcpInfo::default()
        };
        let base = snapshot(5_000, info(4_000, 500, 3_000));
        let end = snapshot(95_000, info(44_000, 1_500, 42_000));
        let carried = KernelCounts::between(true, &base, &end);
        assert_eq!((carried.most, carried.before), (Some(40_500), 500));
        let from_the_start = KernelCounts::between(true, &snapshot(0, info(37, 0, 0)), &end);
        assert_eq!(from_the_start.most, Some(43_963));
        assert_eq!(from_the_start.before, 0);
    }

    #[test]
    fn a_receiver_s_kernel_counts_out_of_order_data_too() {
        let info = |bytes_received, out_of_order| TcpInfo {
            bytes_received,
            out_of_order,
            data_segs_in: 60,
            rcv_mss: 100,
            ..TcpInfo::default()
        };
        let base = TcpInfo {
            data_segs_in: 10,
            ..info(1_000, 2)
        };
        let base = snapshot(900, base);
        let carried = |out_of_order| {
            KernelCounts::between(false, &base, &snapshot(4_900, info(5_200, out_of_order)))
        };
        assert_eq!((carried(2).most, carried(2).before), (Some(4_200), 100));
        assert_eq!(carried(3).most, Some(5_000));
    }
}
