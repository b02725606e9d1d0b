//! The UDP streams of one end of an iperf3 test: sockets, the two threads, and the counts.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Context, Result, ensure};
use netio::tcp::path_mtu;
use netio::udp::{LONGEST_TRAIN, TrainReceiver, TrainSender};
use socket2::SockRef;

use super::readings::{self, IntervalReading, ReadingKind, StreamReading};
use super::receiver::{self, ReceivingStream};
use super::receiver_stats::{ReceiverCounts, ReceiverStats};
use super::sender::{self, SendConfig, SenderStats};
use super::wire::NumberWidth;
use crate::iperf3::detail::StreamDetail;
use crate::iperf3::messages::{Params, StreamResults};
use crate::iperf3::plan::{Iperf3Test, StreamSpec, Until};
use crate::iperf3::run::{CpuMeter, CpuTime, SendControl, Streams, TestProgress};
use crate::iperf3::tcp::set_tos;
use crate::lock;
use crate::service::TestTraffic;

/// The default kernel memory in bytes of a test's sockets in each direction: half a second at 1 Gbit/s. Without
/// privileges, the kernel grants at most `net.core.rmem_max` and `wmem_max`.
const BUFFER: usize = 64 << 20;
/// The payload of a datagram in bytes if neither end states it (`DEFAULT_UDP_BLKSIZE` of iperf3).
const DEFAULT_LENGTH: usize = 1460;
/// The send buffer of a socket in bytes. A larger one would only delay its datagrams.
const SEND_BUFFER: usize = 4 << 20;
/// The time that the last datagrams may take after the sender's message that they left.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(200);
/// The most readings of streams that are kept, which limits a server's memory for a long test to some 100 MB.
const MOST_READINGS: usize = 500_000;
/// The most intervals of all streams that a server reports, so that its results stay below 256 KiB.
const MOST_ARRIVALS: usize = 6_000;
/// The time between two checks for the last datagrams.
const SETTLE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Returns the bytes that a test of at most `longest` needs of a server: the kernel memory of its sockets, if the
/// client does not set it, and the readings of each interval.
pub(crate) fn memory(plan: &Iperf3Test, longest: Duration) -> u64 {
    let streams = plan.streams(false).len();
    let lasts = plan.duration().unwrap_or(longest).as_millis();
    let intervals = usize::try_from(lasts / plan.interval.as_millis().max(1));
    let intervals = intervals.map_or(MOST_READINGS, |count| count.saturating_add(2));
    let readings = intervals
        .saturating_mul(streams)
        .min(MOST_READINGS + streams);
    // The list of readings may have twice the length that it needs.
    let lists = 2 * readings.div_ceil(streams.max(1));
    let kept = readings * size_of::<StreamReading>() + lists * size_of::<IntervalReading>();
    let buffers = match plan.window {
        Some(_) => 0,
        None => {
            let senders = usize::from(plan.direction.goes_down()) * plan.parallel as usize;
            senders * SEND_BUFFER + usize::from(plan.direction.goes_up()) * BUFFER
        }
    };
    (kept + buffers) as u64
}

/// The streams of one end.
#[derive(Debug)]
pub(crate) struct UdpStreams {
    config: SendConfig,
    pub(super) client: bool,
    pub(super) ipv6: bool,
    /// The MTU of the path as this host knows it, if it does.
    pub(super) mtu: Option<u32>,
    /// Payload bytes to send after the omitted start.
    limit: Option<u64>,
    streams: Vec<UdpStream>,
    control: Arc<SendControl>,
    end_receiving: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
    receiving: Option<JoinHandle<()>>,
    cpu: Vec<Arc<CpuMeter>>,
    pub(super) started: Instant,
    /// Whether the client asked for what arrives in each interval.
    reports_arrivals: bool,
    /// The start and the end of counting.
    began: Instant,
    ended: Option<Instant>,
    pub(super) readings: Vec<IntervalReading>,
}

/// One stream.
#[derive(Debug)]
struct UdpStream {
    /// The number that both ends use for it.
    id: u32,
    half: StreamEnd,
}

/// This end's half of the stream.
#[derive(Debug)]
enum StreamEnd {
    Sends {
        stats: Arc<Mutex<SenderStats>>,
        /// The socket, until the thread takes it.
        socket: Option<TrainSender>,
    },
    Receives(ReceivingStream),
}

impl UdpStreams {
    /// Returns streams over connected `sockets`, in the order of `specs`, at the client or at the server.
    ///
    /// # Errors
    /// Returns an error if a socket refuses its options, or the length is out of range.
    pub(crate) fn new(
        params: &Params,
        specs: &[StreamSpec],
        sockets: Vec<UdpSocket>,
        client: bool,
    ) -> Result<Self> {
        let plan = &params.plan;
        let counter = if params.udp_counters_64bit {
            NumberWidth::Bits64
        } else {
            NumberWidth::Bits32
        };
        let length = plan.length.map_or(DEFAULT_LENGTH, |length| length as usize);
        let allowed = counter.header()..=LONGEST_TRAIN;
        ensure!(
            Peer,
            allowed.contains(&length),
            "datagrams of {length} bytes are out of range: {} to {}",
            allowed.start(),
            allowed.end()
        );
        let mut config = SendConfig {
            length,
            rate: plan.bitrate.filter(|rate| *rate > 0),
            requested: None,
            counter,
            // A client must not decide about thread priorities on a server.
            urgent: client && specs.len() == 1,
            is_server: !client,
        };
        if let (Until::For(time), true) = (plan.until, client)
            && !time.is_zero()
        {
            config.requested = config.pace().map(|pace| pace.due_within(plan.omit + time));
        }
        let receivers = specs.iter().filter(|spec| !spec.sends).count().max(1);
        let peer = sockets.first().map(UdpSocket::peer_addr).transpose()?;
        let ipv6 = peer.is_some_and(|peer| peer.ip().to_canonical().is_ipv6());
        let mtu = sockets.first().and_then(|socket| path_mtu(socket).ok());
        let streams = specs.iter().zip(sockets);
        let streams =
            streams.map(|(spec, socket)| UdpStream::new(*spec, socket, plan, config, receivers));
        let limit = match plan.until {
            // A server continues until the client has enough, because it does not know what was lost.
            Until::Bytes(bytes) if client => Some(bytes),
            _ => None,
        };
        let control = SendControl::new();
        if let Some(limit) = limit.filter(|_| plan.omit.is_zero()) {
            control.limit(limit);
        }
        let now = Instant::now();
        Ok(Self {
            config,
            client,
            ipv6,
            mtu,
            limit,
            streams: streams.collect::<Result<_>>()?,
            control: Arc::new(control),
            end_receiving: Arc::default(),
            sending: None,
            receiving: None,
            cpu: Vec::new(),
            started: now,
            reports_arrivals: plan.arrivals && !client,
            began: now,
            ended: None,
            readings: Vec::new(),
        })
    }

    /// Returns the payload of a datagram in bytes.
    pub(crate) fn length(&self) -> usize {
        self.config.length
    }

    /// Returns the requested rate of each stream in payload bits per second.
    pub(super) fn rate(&self) -> Option<u64> {
        self.config.rate
    }

    /// Returns whether this end sends a fixed number of bytes.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns whether the test omits a start.
    pub(crate) fn omits(&self) -> bool {
        self.started != self.began
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&CpuMeter) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let cpu = Arc::<CpuMeter>::default();
        self.cpu.push(Arc::clone(&cpu));
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || cpu.measure(|| work(&cpu)))
            .context("cannot start the thread of the UDP streams")
    }

    fn take_reading(&mut self, at: Instant, ending: ReadingKind) {
        let streams = self.streams.iter().map(UdpStream::reading).collect();
        if self.readings.len() * self.streams.len() >= MOST_READINGS {
            // From here on, the last interval contains all the rest.
            self.readings
                .pop_if(|last| last.ending != ReadingKind::Nothing);
        }
        self.readings.push(IntervalReading {
            at,
            ending,
            streams,
        });
    }

    /// Returns what arrived of a stream in each interval, if the client asked for it and it is not too much.
    fn arrivals(&self, place: usize) -> Vec<[u64; 2]> {
        let count = self.readings.len() * self.streams.len();
        match self.reports_arrivals && count <= MOST_ARRIVALS {
            true => readings::arrivals(&self.readings, self.started, place),
            false => Vec::new(),
        }
    }

    fn stop_sending(&mut self) {
        self.control.stop();
        // A panic of the thread has already been printed, and the counts until then are kept.
        self.sending.take().map(JoinHandle::join);
    }

    fn stop_receiving(&mut self) {
        self.end_receiving.store(true, Ordering::Relaxed);
        self.receiving.take().map(JoinHandle::join);
    }
}

impl UdpStream {
    /// Returns one of the streams of `plan`, `receivers` of which receive.
    fn new(
        spec: StreamSpec,
        socket: UdpSocket,
        plan: &Iperf3Test,
        config: SendConfig,
        receivers: usize,
    ) -> Result<Self> {
        set_tos(plan, &SockRef::from(&socket), socket.peer_addr()?.ip())?;
        let window = plan.window.map(|window| window as usize);
        let half = if spec.sends {
            let buffer = window.unwrap_or(SEND_BUFFER);
            StreamEnd::Sends {
                stats: Arc::new(Mutex::new(SenderStats::new(0))),
                socket: Some(if plan.trains {
                    TrainSender::new(socket, config.length, buffer)?
                } else {
                    TrainSender::one_by_one(socket, config.length, buffer)?
                }),
            }
        } else {
            let buffer = window.unwrap_or(BUFFER / receivers);
            StreamEnd::Receives(ReceivingStream {
                socket: Arc::new(TrainReceiver::new(socket, buffer)?),
                stats: Arc::new(Mutex::new(ReceiverStats::new(config.counter))),
                is_server: config.is_server,
            })
        };
        Ok(Self { id: spec.id, half })
    }

    fn reading(&self) -> StreamReading {
        let (sends, counts) = match &self.half {
            StreamEnd::Sends { stats, .. } => {
                let sent = lock(stats);
                let left = ReceiverCounts {
                    received: sent.number - sent.omitted,
                    bytes: sent.bytes,
                    ..ReceiverCounts::default()
                };
                (true, left)
            }
            StreamEnd::Receives(incoming) => (false, lock(&incoming.stats).counts),
        };
        StreamReading { sends, counts }
    }

    /// Returns whether everything has arrived that the sender reports as `sent`.
    fn is_complete(&self, sent: &[StreamResults]) -> bool {
        let StreamEnd::Receives(incoming) = &self.half else {
            return true;
        };
        let stats = lock(&incoming.stats);
        let there = stats.omitted.datagrams + stats.counts.received;
        let reported = sent.iter().find(|reported| reported.id == self.id);
        reported.is_some_and(|reported| there >= reported.packets)
    }

    /// Returns the results in iperf3's form, in which errors and packets include the omitted start.
    fn results(&self, seconds: f64) -> StreamResults {
        let results = StreamResults {
            id: self.id,
            seconds: Some(seconds),
            ..StreamResults::default()
        };
        match &self.half {
            StreamEnd::Sends { stats, .. } => {
                let sent = lock(stats);
                StreamResults {
                    bytes: sent.bytes,
                    errors: Some(0),
                    packets: sent.number,
                    omitted: Some([0, sent.omitted]),
                    detail: Some(StreamDetail::Sender(sent.detail())),
                    ..results
                }
            }
            StreamEnd::Receives(incoming) => {
                let stats = lock(&incoming.stats);
                let (counts, omitted) = (&stats.counts, stats.omitted);
                StreamResults {
                    bytes: counts.bytes,
                    jitter_s: counts.jitter_ns / 1e9,
                    errors: Some(omitted.missing + counts.missing()),
                    packets: counts.highest,
                    omitted: Some([omitted.missing, omitted.datagrams]),
                    detail: Some(StreamDetail::Receiver(counts.detail())),
                    ..results
                }
            }
        }
    }
}

impl Streams for UdpStreams {
    fn start(&mut self, start: Instant) -> Result<()> {
        (self.started, self.began) = (start, start);
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for stream in &mut self.streams {
            match &mut stream.half {
                StreamEnd::Sends { stats, socket } => {
                    outgoing.extend(socket.take().map(|socket| (socket, Arc::clone(stats))));
                }
                StreamEnd::Receives(stream) => incoming.push(stream.clone()),
            }
        }
        if !incoming.is_empty() {
            let end = Arc::clone(&self.end_receiving);
            let receive = move |cpu: &CpuMeter| receiver::run(&incoming, &end, cpu);
            self.receiving = Some(self.spawn("udp receiver", receive)?);
        }
        if !outgoing.is_empty() {
            let (control, config) = (Arc::clone(&self.control), self.config);
            let send = move |_: &CpuMeter| sender::run(outgoing, config, &control);
            self.sending = Some(self.spawn("udp sender", send)?);
        }
        Ok(())
    }

    fn end_omission(&mut self, now: Instant) {
        self.began = now;
        for stream in &self.streams {
            match &stream.half {
                StreamEnd::Sends { stats, .. } => lock(stats).omit(),
                StreamEnd::Receives(incoming) => lock(&incoming.stats).omit(),
            }
        }
        if let Some(limit) = self.limit {
            self.control.limit(limit);
        }
        for reading in &mut self.readings {
            reading.ending = ReadingKind::Omitted;
        }
        self.take_reading(now, ReadingKind::Nothing);
    }

    fn tick(&mut self, now: Instant) {
        self.take_reading(now, ReadingKind::Counted);
    }

    fn interval_line(&self) -> String {
        readings::last_interval(&self.readings, self.started)
    }

    fn progress(&self) -> TestProgress {
        let spent = self.control.allowance() == 0;
        let mut progress = TestProgress {
            delivered: spent && self.sending.as_ref().is_none_or(JoinHandle::is_finished),
            ..TestProgress::default()
        };
        let (mut receives, mut bytes_sent) = (false, 0);
        for stream in &self.streams {
            match &stream.half {
                StreamEnd::Sends { stats, .. } => {
                    let sent = lock(stats);
                    bytes_sent += sent.bytes;
                    let broken = sent
                        .broken
                        .as_ref()
                        .map(|why| format!("stream {}: {why}", stream.id));
                    progress.broken = progress.broken.or(broken);
                }
                StreamEnd::Receives(incoming) => {
                    receives = true;
                    progress.received += lock(&incoming.stats).counts.bytes;
                }
            }
        }
        // A sender does not know what has arrived.
        progress.moved = if receives {
            progress.received
        } else {
            bytes_sent
        };
        progress
    }

    fn traffic(&self) -> TestTraffic {
        let mut traffic = TestTraffic::default();
        for StreamReading { sends, counts } in self.streams.iter().map(UdpStream::reading) {
            let direction = if sends {
                &mut traffic.down
            } else {
                let loss = traffic.loss.get_or_insert_default();
                loss.lost += counts.missing();
                loss.sent += counts.expected();
                &mut traffic.up
            };
            direction.packets += counts.received;
            direction.bytes += counts.bytes;
        }
        traffic
    }

    fn stop(&mut self, now: Instant) {
        self.stop_sending();
        self.ended = Some(now);
    }

    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool) {
        let late = Instant::now() + SETTLE_TIMEOUT;
        let complete = |stream: &UdpStream| stream.is_complete(sent);
        while Instant::now() < late && !enough() && !self.streams.iter().all(complete) {
            thread::sleep(SETTLE_CHECK_INTERVAL);
        }
        self.stop_receiving();
        for (place, stream) in self.streams.iter().enumerate() {
            if let StreamEnd::Receives(incoming) = &stream.half {
                let reported = sent.iter().find(|reported| reported.id == stream.id);
                let drops = incoming.socket.drops().ok();
                let mut stats = lock(&incoming.stats);
                stats.close(reported.map(|reported| reported.packets), drops);
                let dropped = drops.unwrap_or(stats.dropped());
                stats.separate_checksum_errors(dropped, incoming.socket.full_drops(dropped));
                if stats.counts.host_dropped == 0 {
                    let readings = self.readings.iter_mut();
                    let own = readings.filter_map(|reading| reading.streams.get_mut(place));
                    own.for_each(|own| own.counts.host_dropped = 0);
                }
            }
        }
    }

    fn results(&self) -> Vec<StreamResults> {
        let lasted = self.ended.unwrap_or_else(Instant::now) - self.began;
        let results = |(place, stream): (usize, &UdpStream)| StreamResults {
            arrivals: self.arrivals(place),
            ..stream.results(lasted.as_secs_f64())
        };
        self.streams.iter().enumerate().map(results).collect()
    }

    fn cpu(&self) -> CpuTime {
        self.cpu.iter().map(|cpu| cpu.used()).sum()
    }
}

impl Drop for UdpStreams {
    fn drop(&mut self) {
        self.stop_sending();
        self.stop_receiving();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::plan::Transport;

    #[test]
    fn the_memory_of_a_test_counts_the_readings_and_their_lists() {
        let of = |seconds| {
            let plan = Iperf3Test {
                until: Until::For(Duration::from_secs(seconds)),
                interval: Duration::from_millis(10),
                ..Iperf3Test::new(Transport::Udp)
            };
            memory(&plan, Duration::ZERO)
        };
        let reading = size_of::<StreamReading>() + 2 * size_of::<IntervalReading>();
        assert_eq!(of(200) - of(100), 10_000 * reading as u64);
    }
}
