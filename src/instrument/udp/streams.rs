//! The UDP streams of one end of an iperf3 test: sockets, the two threads, and what was counted.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::cpu;
use netio::udp::{TrainReceiver, TrainSender};

use super::account::{Account, Omitted, Tally};
use super::datagram::Counter;
use super::detail::Detail;
use super::receiver::{self, Incoming};
use super::sender::{self, Manner, Orders, Outgoing, Sent};
use crate::instrument::iperf3::plan::{CpuTime, Plan, Progress, StreamSpec, Streams, Until};
use crate::instrument::iperf3::results::StreamResults;

/// Kernel memory asked for by a test's sockets in each direction, unless the user says: half a second of 1 gbit. Without
/// privileges the kernel gives `net.core.rmem_max` and `wmem_max` at most.
const BUFFER: usize = 64 << 20;
/// A socket that sends fills no more than this: what waits there is late.
const SEND_BUFFER: usize = 4 << 20;
/// How long the last datagrams may take after the sender's word that they left.
const SETTLES: Duration = Duration::from_millis(200);
/// Between two looks whether they are there.
const LOOK: Duration = Duration::from_millis(2);

/// The streams of one end.
#[derive(Debug)]
pub(crate) struct UdpStreams {
    manner: Manner,
    /// Payload bytes to send after what is omitted.
    limit: Option<u64>,
    streams: Vec<Stream>,
    orders: Arc<Orders>,
    stop_receiving: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
    receiving: Option<JoinHandle<()>>,
    cpu: Vec<Arc<Mutex<CpuTime>>>,
    /// When what counts began, and when it ended.
    began: Instant,
    ended: Option<Instant>,
    readings: Vec<Reading>,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    half: Half,
}

#[derive(Debug)]
enum Half {
    Sends {
        sent: Arc<sender::Shared>,
        /// Until the thread takes it.
        socket: Option<TrainSender>,
    },
    Receives {
        account: Arc<receiver::Shared>,
        socket: Arc<TrainReceiver>,
    },
}

/// How far all streams were at the end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Seconds after the start of the test, with what is omitted.
    pub(crate) at: Instant,
    /// Whether the interval that ends here is omitted.
    pub(crate) omitted: bool,
    /// One a stream.
    pub(crate) streams: Vec<StreamReading>,
}

/// How far one stream was.
#[derive(Clone, Debug)]
pub(crate) enum StreamReading {
    /// Datagrams and payload bytes sent.
    Sent { datagrams: u64, bytes: u64 },
    /// The account of what came.
    Came(Tally),
}

/// The end of one stream.
#[derive(Clone, Debug)]
pub(crate) enum StreamEnd {
    /// This end sent.
    Sent(Sent),
    /// This end received.
    Came(Tally, Omitted),
}

impl UdpStreams {
    /// Streams over `sockets`, which are connected, in the order of `specs`.
    ///
    /// # Errors
    /// A socket refuses its options, or the length is out of range.
    pub(crate) fn new(
        plan: &Plan,
        length: usize,
        counter: Counter,
        (specs, sockets): (&[StreamSpec], Vec<UdpSocket>),
        client: bool,
    ) -> Result<Self> {
        let receivers = specs.iter().filter(|spec| !spec.sends).count().max(1);
        let window = plan.window.map(|window| window as usize);
        let send_buffer = window.unwrap_or(SEND_BUFFER);
        let receive_buffer = window.unwrap_or(BUFFER / receivers);
        let stream = |(spec, socket): (&StreamSpec, UdpSocket)| -> Result<Stream> {
            let half = if spec.sends {
                Half::Sends {
                    sent: Arc::new(sender::Shared::new()),
                    socket: Some(TrainSender::new(socket, length, send_buffer)?),
                }
            } else {
                Half::Receives {
                    account: Arc::new(receiver::Shared::new(Account::new(counter))),
                    socket: Arc::new(TrainReceiver::new(socket, receive_buffer)?),
                }
            };
            Ok(Stream { id: spec.id, half })
        };
        let limit = match plan.until {
            // A server goes on until the client has enough: it cannot know what was lost.
            Until::Bytes(bytes) if client => Some(bytes),
            _ => None,
        };
        Ok(Self {
            manner: Manner {
                length,
                rate: plan.bitrate.filter(|rate| *rate > 0),
                counter,
            },
            limit,
            streams: specs
                .iter()
                .zip(sockets)
                .map(stream)
                .collect::<Result<_>>()?,
            orders: Arc::new(Orders {
                stop: AtomicBool::new(false),
                allowance: AtomicU64::new(if plan.omit.is_zero() {
                    limit.unwrap_or(u64::MAX)
                } else {
                    u64::MAX
                }),
            }),
            stop_receiving: Arc::default(),
            sending: None,
            receiving: None,
            cpu: Vec::new(),
            began: Instant::now(),
            ended: None,
            readings: Vec::new(),
        })
    }

    /// How far the streams were at the end of each interval.
    pub(crate) fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// What became of each stream, with its number.
    pub(crate) fn ends(&self) -> Vec<(u32, StreamEnd)> {
        let end = |stream: &Stream| (stream.id, stream.end());
        self.streams.iter().map(end).collect()
    }

    /// From the start of what counts to its end at this end.
    pub(crate) fn lasted(&self) -> Duration {
        self.ended.unwrap_or_else(Instant::now) - self.began
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Mutex<CpuTime>) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let used = Arc::default();
        self.cpu.push(Arc::clone(&used));
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                work(&used);
                publish_cpu(&used);
            })
            .context("no thread for the UDP streams")
    }

    fn read(&mut self, at: Instant, omitted: bool) {
        let streams = self.streams.iter().map(Stream::reading).collect();
        self.readings.push(Reading {
            at,
            omitted,
            streams,
        });
    }

    fn stop_sending(&mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.sending.take() {
            // A panic there was printed there; what was counted until then stands.
            let _ = thread.join();
        }
    }
}

/// States what CPU time the calling thread has used.
pub(super) fn publish_cpu(used: &Mutex<CpuTime>) {
    let (user, system) = cpu::of_this_thread();
    *used.lock().unwrap_or_else(PoisonError::into_inner) = CpuTime { user, system };
}

impl Streams for UdpStreams {
    fn start(&mut self, start: Instant) -> Result<()> {
        self.began = start;
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for stream in &mut self.streams {
            match &mut stream.half {
                Half::Sends { sent, socket } => outgoing.extend(socket.take().map(|socket| {
                    let sent = Arc::clone(sent);
                    Outgoing { socket, sent }
                })),
                Half::Receives { account, socket } => incoming.push(Incoming {
                    socket: Arc::clone(socket),
                    account: Arc::clone(account),
                }),
            }
        }
        if !incoming.is_empty() {
            let stop = Arc::clone(&self.stop_receiving);
            let receive = move |used: &Mutex<CpuTime>| receiver::run(&incoming, &stop, used);
            self.receiving = Some(self.spawn("udp receiver", receive)?);
        }
        if !outgoing.is_empty() {
            let (orders, manner) = (Arc::clone(&self.orders), self.manner);
            let send = move |_: &Mutex<CpuTime>| sender::run(outgoing, manner, &orders);
            self.sending = Some(self.spawn("udp sender", send)?);
        }
        Ok(())
    }

    fn end_omission(&mut self, now: Instant) {
        self.began = now;
        for stream in &self.streams {
            match &stream.half {
                Half::Sends { sent, .. } => sent.lock().omit(),
                Half::Receives { account, .. } => account.lock().omit(),
            }
        }
        if let Some(limit) = self.limit {
            self.orders.allowance.store(limit, Ordering::Relaxed);
        }
        for reading in &mut self.readings {
            reading.omitted = true;
        }
        self.read(now, true);
    }

    fn tick(&mut self, now: Instant) {
        self.read(now, false);
    }

    fn interval_line(&self) -> String {
        super::line::interval(&self.readings, self.began)
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress {
            delivered: true,
            ..Progress::default()
        };
        for stream in &self.streams {
            match &stream.half {
                Half::Sends { sent, .. } => {
                    let sent = sent.lock();
                    progress.sent += sent.bytes;
                    let broken = sent.broken.as_ref();
                    let broken = broken.map(|why| format!("stream {}: {why}", stream.id));
                    progress.broken = progress.broken.or(broken);
                }
                Half::Receives { account, .. } => progress.received += account.lock().tally().bytes,
            }
        }
        // Nobody tells a sender what has arrived.
        progress.moved = progress.sent;
        progress
    }

    fn stop(&mut self, now: Instant) {
        self.stop_sending();
        self.ended = Some(now);
    }

    fn settle(&mut self, sent: &[StreamResults], deadline: Instant) {
        let complete = |stream: &Stream| {
            let Half::Receives { account, .. } = &stream.half else {
                return true;
            };
            let account = account.lock();
            let there = account.omitted().datagrams + account.tally().received;
            let told = sent.iter().find(|told| told.id == stream.id);
            told.is_some_and(|told| there >= told.packets)
        };
        let deadline = deadline.min(Instant::now() + SETTLES);
        while Instant::now() < deadline && !self.streams.iter().all(complete) {
            thread::sleep(LOOK);
        }
        self.stop_receiving.store(true, Ordering::Relaxed);
        if let Some(thread) = self.receiving.take() {
            let _ = thread.join();
        }
        for stream in &self.streams {
            if let Half::Receives { account, socket } = &stream.half {
                let told = sent.iter().find(|told| told.id == stream.id);
                account
                    .lock()
                    .close(told.map(|told| told.packets), socket.drops().ok());
            }
        }
    }

    fn results(&self) -> Vec<StreamResults> {
        let seconds = self.lasted().as_secs_f64();
        let streams = self.streams.iter();
        streams.map(|stream| stream.results(seconds)).collect()
    }

    fn cpu(&self) -> CpuTime {
        let mut all = CpuTime::default();
        for used in &self.cpu {
            let used = used.lock().unwrap_or_else(PoisonError::into_inner);
            all.user += used.user;
            all.system += used.system;
        }
        all
    }
}

impl Drop for UdpStreams {
    fn drop(&mut self) {
        self.stop_sending();
        self.stop_receiving.store(true, Ordering::Relaxed);
        if let Some(thread) = self.receiving.take() {
            let _ = thread.join();
        }
    }
}

impl Stream {
    fn end(&self) -> StreamEnd {
        match &self.half {
            Half::Sends { sent, .. } => StreamEnd::Sent(sent.lock().clone()),
            Half::Receives { account, .. } => {
                let account = account.lock();
                StreamEnd::Came(*account.tally(), account.omitted())
            }
        }
    }

    fn reading(&self) -> StreamReading {
        match &self.half {
            Half::Sends { sent, .. } => {
                let sent = sent.lock();
                StreamReading::Sent {
                    datagrams: sent.number - sent.omitted,
                    bytes: sent.bytes,
                }
            }
            Half::Receives { account, .. } => StreamReading::Came(*account.lock().tally()),
        }
    }

    /// In iperf3's terms, where errors and packets have what is omitted in them.
    fn results(&self, seconds: f64) -> StreamResults {
        let results = StreamResults {
            id: self.id,
            seconds: Some(seconds),
            ..StreamResults::default()
        };
        match self.end() {
            StreamEnd::Sent(sent) => StreamResults {
                bytes: sent.bytes,
                errors: Some(0),
                packets: sent.number,
                omitted: Some([0, sent.omitted]),
                detail: Some(Detail::of_sender(&sent)),
                ..results
            },
            StreamEnd::Came(tally, omitted) => StreamResults {
                bytes: tally.bytes,
                jitter_s: tally.jitter_ns / 1e9,
                errors: Some(omitted.missing + tally.missing()),
                packets: tally.highest,
                omitted: Some([omitted.missing, omitted.datagrams]),
                detail: Some(Detail::of_receiver(&tally)),
                ..results
            },
        }
    }
}
