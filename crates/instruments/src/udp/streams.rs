//! The UDP streams of one end of an iperf3 test: sockets, the two threads, and what was counted.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::cpu;
use netio::udp::{LONGEST_TRAIN, TrainReceiver, TrainSender};
use socket2::SockRef;

use super::account::Account;
use super::datagram::Counter;
use super::receiver::{self, Incoming};
use super::sender::{self, Manner, Orders, Outgoing};
use super::stream::{Ending, Half, Reading, Stream};
use crate::iperf3::params::Params;
use crate::iperf3::plan::{CpuTime, Plan, Progress, StreamSpec, Streams, Until};
use crate::iperf3::results::StreamResults;
use crate::iperf3::tcp::options::set_tos;

/// Kernel memory asked for by a test's sockets in each direction, unless the user says: half a second of 1 gbit. Without
/// privileges the kernel gives `net.core.rmem_max` and `wmem_max` at most.
const BUFFER: usize = 64 << 20;
/// Payload bytes of a datagram when neither end says (`DEFAULT_UDP_BLKSIZE` of iperf3).
const DEFAULT_LENGTH: usize = 1460;
/// A socket that sends fills no more than this: what waits there is late.
const SEND_BUFFER: usize = 4 << 20;
/// How long the last datagrams may take after the sender's word that they left.
const SETTLES: Duration = Duration::from_millis(200);
/// Readings of streams kept; they bound what a long test takes of a server's memory to some 100 MB.
const MOST_READINGS: usize = 500_000;
/// Between two looks whether they are there.
const LOOK: Duration = Duration::from_millis(2);

/// Which end of a test this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It began the test.
    Client,
    /// It was asked to take part.
    Server,
}

/// Kernel memory that the sockets of a server may take in a test: what they ask for when the client does not say.
pub(crate) fn memory(plan: &Plan) -> u64 {
    let sends = if plan.way.goes_down() {
        SEND_BUFFER * plan.parallel as usize
    } else {
        0
    };
    let receives = if plan.way.goes_up() { BUFFER } else { 0 };
    if plan.window.is_some() {
        0
    } else {
        (sends + receives) as u64
    }
}

/// The streams of one end.
#[derive(Debug)]
pub(crate) struct UdpStreams {
    manner: Manner,
    end: End,
    ipv6: bool,
    /// Payload bytes to send after what is omitted.
    limit: Option<u64>,
    streams: Vec<Stream>,
    orders: Arc<Orders>,
    stop_receiving: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
    receiving: Option<JoinHandle<()>>,
    cpu: Vec<Arc<Mutex<CpuTime>>>,
    started: Instant,
    /// When what counts began, and when it ended.
    began: Instant,
    ended: Option<Instant>,
    readings: Vec<Reading>,
}

impl UdpStreams {
    /// Streams over `sockets`, which are connected, in the order of `specs`.
    ///
    /// # Errors
    /// A socket refuses its options, or the length is out of range.
    pub(crate) fn new(
        params: &Params,
        specs: &[StreamSpec],
        sockets: Vec<UdpSocket>,
        end: End,
    ) -> Result<Self> {
        let plan = &params.plan;
        let counter = if params.udp_counters_64bit {
            Counter::Bits64
        } else {
            Counter::Bits32
        };
        let length = plan.length.map_or(DEFAULT_LENGTH, |length| length as usize);
        let allowed = counter.header()..=LONGEST_TRAIN;
        ensure!(
            allowed.contains(&length),
            "datagrams of {length} bytes: {} to {} are possible",
            allowed.start(),
            allowed.end()
        );
        let receivers = specs.iter().filter(|spec| !spec.sends).count().max(1);
        let window = plan.window.map(|window| window as usize);
        let send_buffer = window.unwrap_or(SEND_BUFFER);
        let receive_buffer = window.unwrap_or(BUFFER / receivers);
        let stream = |(spec, socket): (&StreamSpec, UdpSocket)| -> Result<Stream> {
            if let Some(tos) = plan.tos {
                set_tos(&SockRef::from(&socket), socket.peer_addr()?.ip(), tos)
                    .with_context(|| format!("a type of service of {tos:#04x} cannot be set"))?;
            }
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
        let peer = sockets.first().map(UdpSocket::peer_addr).transpose()?;
        let ipv6 = peer.is_some_and(|peer| peer.ip().to_canonical().is_ipv6());
        let limit = match plan.until {
            // A server goes on until the client has enough: it cannot know what was lost.
            Until::Bytes(bytes) if end == End::Client => Some(bytes),
            _ => None,
        };
        Ok(Self {
            manner: Manner {
                length,
                rate: plan.bitrate.filter(|rate| *rate > 0),
                counter,
                // A client must not decide who runs first on a server.
                urgent: end == End::Client && specs.len() == 1,
            },
            end,
            ipv6,
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
            started: Instant::now(),
            began: Instant::now(),
            ended: None,
            readings: Vec::new(),
        })
    }

    /// How far the streams were at the end of each interval.
    pub(crate) fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// When the test began, with what is omitted.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Whether this end is the client.
    pub(crate) fn is_client(&self) -> bool {
        self.end == End::Client
    }

    /// Payload bytes of a datagram.
    pub(crate) fn length(&self) -> usize {
        self.manner.length
    }

    /// Whether a start is omitted.
    pub(crate) fn omits(&self) -> bool {
        self.started != self.began
    }

    /// Whether the datagrams travel in IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    fn lasted(&self) -> Duration {
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

    fn read(&mut self, at: Instant, ending: Ending) {
        let streams = self.streams.iter().map(Stream::reading).collect();
        if self.readings.len() * self.streams.len() >= MOST_READINGS {
            // From here on the last interval is all the rest.
            self.readings.pop_if(|last| last.ending != Ending::Nothing);
        }
        self.readings.push(Reading {
            at,
            ending,
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
        (self.started, self.began) = (start, start);
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for stream in &mut self.streams {
            match &mut stream.half {
                Half::Sends { sent, socket } => outgoing.extend(socket.take().map(|socket| {
                    let sent = Arc::clone(sent);
                    Outgoing { socket, sent }
                })),
                Half::Receives {
                    account, socket, ..
                } => incoming.push(Incoming {
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
        for stream in &mut self.streams {
            match &mut stream.half {
                Half::Sends { sent, .. } => sent.lock().omit(),
                Half::Receives { account, .. } => account.lock().omit(),
            }
        }
        if let Some(limit) = self.limit {
            self.orders.allowance.store(limit, Ordering::Relaxed);
        }
        for reading in &mut self.readings {
            reading.ending = Ending::Omitted;
        }
        self.read(now, Ending::Nothing);
    }

    fn tick(&mut self, now: Instant) {
        self.read(now, Ending::Counted);
    }

    fn interval_line(&self) -> String {
        super::line::interval(&self.readings, self.started)
    }

    fn progress(&self) -> Progress {
        let spent = self.orders.allowance.load(Ordering::Relaxed) == 0;
        let mut progress = Progress {
            delivered: spent && self.sending.as_ref().is_none_or(JoinHandle::is_finished),
            ..Progress::default()
        };
        let mut receives = false;
        for stream in &self.streams {
            match &stream.half {
                Half::Sends { sent, .. } => {
                    let sent = sent.lock();
                    progress.sent += sent.bytes;
                    let broken = sent.broken.as_ref();
                    let broken = broken.map(|why| format!("stream {}: {why}", stream.id));
                    progress.broken = progress.broken.or(broken);
                }
                Half::Receives { account, .. } => {
                    receives = true;
                    progress.received += account.lock().tally().bytes;
                }
            }
        }
        // Nobody tells a sender what has arrived.
        progress.moved = if receives {
            progress.received
        } else {
            progress.sent
        };
        progress
    }

    fn stop(&mut self, now: Instant) {
        self.stop_sending();
        self.ended = Some(now);
    }

    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool) {
        let complete = |stream: &Stream| {
            let Half::Receives { account, .. } = &stream.half else {
                return true;
            };
            let account = account.lock();
            let there = account.omitted().datagrams + account.tally().received;
            let told = sent.iter().find(|told| told.id == stream.id);
            told.is_some_and(|told| there >= told.packets)
        };
        let late = Instant::now() + SETTLES;
        while Instant::now() < late && !enough() && !self.streams.iter().all(complete) {
            thread::sleep(LOOK);
        }
        self.stop_receiving.store(true, Ordering::Relaxed);
        if let Some(thread) = self.receiving.take() {
            let _ = thread.join();
        }
        for stream in &self.streams {
            if let Half::Receives {
                account, socket, ..
            } = &stream.half
            {
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
