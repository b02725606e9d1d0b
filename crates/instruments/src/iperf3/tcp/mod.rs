//! The TCP streams of a test, at either end.

mod counts;
mod flow;
pub(crate) mod measure;
pub(crate) mod options;
pub(crate) mod report;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use socket2::SockRef;

pub(crate) use self::counts::{Interval, StreamInterval, StreamTotal, cwnd_bytes};
use self::counts::{Limited, Rtts};
use self::flow::{Flow, Gate, Snapshot};
pub(crate) use self::options::Options;
use super::plan::{CpuTime, Plan, Progress, StreamSpec, Streams, Until};
use super::results::StreamResults;

/// Bytes of a block when the user does not say: as large as iperf3 takes, for fewer calls.
const DEFAULT_BLOCK: u32 = 1 << 20;
/// How often [`Streams::settle`] looks whether everything is there.
const SETTLE_STEP: Duration = Duration::from_millis(5);

/// The TCP streams of one end of a test.
#[derive(Debug)]
pub(crate) struct TcpStreams {
    flows: Vec<Tracked>,
    gate: Arc<Gate>,
    until: Until,
    start: Instant,
    /// When what counts began: after the omitted start.
    counted_from: Instant,
    omitting: bool,
    ticked: Instant,
    cpu_before: Duration,
    /// Every interval, or the last one only.
    intervals: Vec<Interval>,
    keeps_intervals: bool,
    /// As read before the sockets were closed.
    congestion_used: Option<String>,
    peer: Option<SocketAddr>,
}

/// One stream and where it stood when something began or ended.
#[derive(Debug)]
struct Tracked {
    flow: Flow,
    base: Option<Snapshot>,
    before: Option<Snapshot>,
    end: Option<Snapshot>,
    rtts: Rtts,
    most_cwnd: u64,
}

impl TcpStreams {
    /// Over connections that are up, in the order of opening.
    pub(crate) fn new(plan: &Plan, streams: Vec<(StreamSpec, TcpStream)>) -> Self {
        let now = Instant::now();
        let peer = streams
            .first()
            .and_then(|(_, socket)| socket.peer_addr().ok());
        let flows = streams.into_iter().map(|(spec, socket)| Tracked {
            flow: Flow::new(spec, socket),
            base: None,
            before: None,
            end: None,
            rtts: Rtts::default(),
            most_cwnd: 0,
        });
        Self {
            flows: flows.collect(),
            gate: Arc::new(Gate::new(block(plan), plan.bitrate)),
            until: plan.until,
            start: now,
            counted_from: now,
            omitting: !plan.omit.is_zero(),
            ticked: now,
            cpu_before: Duration::ZERO,
            intervals: Vec::new(),
            keeps_intervals: true,
            congestion_used: None,
            peer,
        }
    }

    /// Forgets all intervals but the last: a server's memory must not grow with its clients' tests.
    pub(crate) fn without_intervals(mut self) -> Self {
        self.keeps_intervals = false;
        self
    }

    /// Every interval until now, unless they are forgotten.
    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The connections.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (StreamSpec, &TcpStream)> {
        let flows = self.flows.iter();
        flows.filter_map(|tracked| Some((tracked.flow.spec, tracked.flow.socket()?)))
    }

    /// Who is at the other end of the streams.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Each stream as a whole.
    pub(crate) fn totals(&self) -> Vec<StreamTotal> {
        let totals = self.flows.iter();
        totals.map(|tracked| self.total(tracked)).collect()
    }

    fn total(&self, tracked: &Tracked) -> StreamTotal {
        let spec = tracked.flow.spec;
        let end = tracked.latest();
        let base = tracked.base.unwrap_or(end);
        let (segments, segment_bytes) = if spec.sends {
            (end.info.data_segs_out, end.info.bytes_sent)
        } else {
            (end.info.data_segs_in, end.info.bytes_received)
        };
        let seconds = match self.until {
            // What was received of so many bytes is whole with the last of them.
            Until::Bytes(_) if !spec.sends => {
                (self.start + tracked.flow.last_byte()).saturating_duration_since(self.counted_from)
            }
            _ => end.at.saturating_duration_since(self.counted_from),
        };
        StreamTotal {
            spec,
            bytes: end.bytes - base.bytes,
            bytes_with_omitted: end.bytes,
            seconds: seconds.as_secs_f64(),
            retransmits: end
                .info
                .total_retrans
                .saturating_sub(base.info.total_retrans),
            segment: (segments > 0).then(|| segment_bytes as f64 / f64::from(segments)),
            limited: Limited {
                busy: end.info.busy_time.saturating_sub(base.info.busy_time),
                by_receiver: end.info.rwnd_limited.saturating_sub(base.info.rwnd_limited),
                by_send_buffer: end
                    .info
                    .sndbuf_limited
                    .saturating_sub(base.info.sndbuf_limited),
            },
            info: end.info,
            rtt: tracked.rtts.least_mean_most(),
            most_cwnd: tracked.most_cwnd,
        }
    }

    fn cpu_total(&self) -> CpuTime {
        self.flows.iter().fold(CpuTime::default(), |sum, tracked| {
            let cpu = tracked.flow.cpu();
            CpuTime {
                user: sum.user + cpu.user,
                system: sum.system + cpu.system,
            }
        })
    }
}

impl Tracked {
    /// Where the stream stood at the end of the test, or stands now.
    fn latest(&self) -> Snapshot {
        self.end
            .unwrap_or_else(|| self.flow.snapshot(Instant::now()))
    }

    fn arrived(&self, from: Snapshot, to: Snapshot) -> u64 {
        if self.flow.spec.sends {
            to.info.bytes_acked.saturating_sub(from.info.bytes_acked)
        } else {
            to.bytes - from.bytes
        }
    }
}

impl Streams for TcpStreams {
    fn start(&mut self, start: Instant) -> Result<()> {
        self.start = start;
        self.counted_from = start;
        self.ticked = start;
        if !self.omitting
            && let Until::Bytes(bytes) = self.until
        {
            self.gate.limit(bytes);
        }
        for tracked in &mut self.flows {
            let now = tracked.flow.snapshot(start);
            tracked.base = Some(now);
            tracked.before = Some(now);
        }
        for tracked in &mut self.flows {
            tracked.flow.start(&self.gate, start)?;
        }
        Ok(())
    }

    fn end_omission(&mut self, now: Instant) {
        self.omitting = false;
        self.counted_from = now;
        self.ticked = now;
        if let Until::Bytes(bytes) = self.until {
            self.gate.limit(bytes);
        }
        for tracked in &mut self.flows {
            let now = tracked.flow.snapshot(now);
            tracked.base = Some(now);
            tracked.before = Some(now);
            tracked.rtts = Rtts::default();
            tracked.most_cwnd = 0;
        }
    }

    fn tick(&mut self, now: Instant) {
        let start = self.start;
        let since = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        let cpu = self.cpu_total().total();
        let lasted = now.saturating_duration_since(self.ticked).as_secs_f64();
        let used = cpu.saturating_sub(self.cpu_before).as_secs_f64();
        let mut interval = Interval {
            start_s: since(self.ticked),
            end_s: since(now),
            omitted: self.omitting,
            cpu_percent: 100.0 * used / lasted.max(f64::EPSILON),
            streams: Vec::new(),
        };
        for tracked in &mut self.flows {
            let now = tracked.end.unwrap_or_else(|| tracked.flow.snapshot(now));
            let before = tracked.before.replace(now).unwrap_or(now);
            let info = now.info;
            if tracked.flow.spec.sends {
                tracked.rtts.add(info.rtt);
                tracked.most_cwnd = tracked.most_cwnd.max(cwnd_bytes(&info));
            }
            interval.streams.push(StreamInterval {
                spec: tracked.flow.spec,
                bytes: now.bytes - before.bytes,
                arrived: tracked.arrived(before, now),
                retransmits: info.total_retrans.saturating_sub(before.info.total_retrans),
                info,
            });
        }
        if !self.keeps_intervals {
            self.intervals.clear();
        }
        self.intervals.push(interval);
        self.ticked = now;
        self.cpu_before = cpu;
    }

    fn interval_line(&self) -> String {
        let Some(interval) = self.intervals.last() else {
            return String::new();
        };
        let lasted = interval.end_s - interval.start_s;
        let way = |sends: bool| -> Option<String> {
            let of = || {
                interval
                    .streams
                    .iter()
                    .filter(move |s| s.spec.sends == sends)
            };
            of().next()?;
            let arrived: u64 = of().map(|s| s.arrived).sum();
            let rate = arrived as f64 * 8.0 / lasted / 1e6;
            let retransmits: u32 = of().map(|s| s.retransmits).sum();
            let rtt = of().map(|s| s.info.rtt).max().unwrap_or_default();
            Some(if sends {
                let rtt = rtt.as_secs_f64() * 1e3;
                format!("sent {rate:.1} Mbit/s, {retransmits} retransmissions, RTT {rtt:.3} ms")
            } else {
                format!("received {rate:.1} Mbit/s")
            })
        };
        let ways: Vec<String> = [way(true), way(false)].into_iter().flatten().collect();
        let omitted = if interval.omitted { " (omitted)" } else { "" };
        format!(
            "{:.1} to {:.1} s: {}{omitted}",
            interval.start_s,
            interval.end_s,
            ways.join("; ")
        )
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        let mut idle = true;
        for tracked in &self.flows {
            let now = tracked.latest();
            let base = tracked.base.unwrap_or(now);
            let bytes = now.bytes - base.bytes;
            if tracked.flow.spec.sends {
                progress.sent += bytes;
                progress.moved += now.info.bytes_acked;
                idle &= now.info.unacked == 0 && now.info.notsent_bytes == 0;
                idle &= tracked.flow.ended().is_some();
            } else {
                progress.received += bytes;
                progress.moved += now.bytes;
            }
            if let Some(Some(cause)) = tracked.flow.ended() {
                progress.broken.get_or_insert(cause);
            }
        }
        progress.delivered = idle && self.gate.is_spent();
        progress
    }

    fn stop(&mut self, now: Instant) {
        self.gate.stop();
        for tracked in &mut self.flows {
            if tracked.flow.spec.sends {
                tracked.flow.join();
            }
        }
        // What a sender wrote until it looked up was sent, and in the time until then.
        for tracked in &mut self.flows {
            let at = if tracked.flow.spec.sends {
                Instant::now()
            } else {
                now
            };
            tracked.end = Some(tracked.flow.snapshot(at));
        }
        let end = Instant::now();
        if end.duration_since(self.ticked) > Duration::from_millis(1) {
            self.tick(end);
        }
    }

    fn settle(&mut self, sent: &[StreamResults], enough: &dyn Fn() -> bool) {
        loop {
            let mut complete = true;
            for tracked in &mut self.flows {
                let spec = tracked.flow.spec;
                let Some(theirs) = sent.iter().find(|theirs| theirs.id == spec.id) else {
                    continue;
                };
                if !spec.sends {
                    let now = tracked.flow.snapshot(Instant::now());
                    let base = tracked.base.unwrap_or(now);
                    tracked.end = Some(now);
                    complete &=
                        now.bytes - base.bytes >= theirs.bytes || tracked.flow.ended().is_some();
                }
            }
            if complete || enough() {
                return;
            }
            thread::sleep(SETTLE_STEP);
        }
    }

    fn close(&mut self) {
        self.gate.stop();
        self.congestion_used = self.congestion_used();
        for tracked in &mut self.flows {
            tracked
                .end
                .get_or_insert_with(|| tracked.flow.snapshot(Instant::now()));
            tracked.flow.close();
        }
    }

    fn results(&self) -> Vec<StreamResults> {
        let totals = self.totals().into_iter();
        totals
            .map(|total| StreamResults {
                id: total.spec.id,
                bytes: total.bytes,
                retransmits: total.spec.sends.then(|| total.retransmits.into()),
                errors: Some(0),
                omitted: Some([0, 0]),
                seconds: Some(total.seconds),
                ..StreamResults::default()
            })
            .collect()
    }

    fn congestion_used(&self) -> Option<String> {
        let Some((_, socket)) = self.sockets().next() else {
            return self.congestion_used.clone();
        };
        let name = SockRef::from(socket).tcp_congestion().ok()?;
        let text = name.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn cpu(&self) -> CpuTime {
        self.cpu_total()
    }
}

impl Drop for TcpStreams {
    fn drop(&mut self) {
        // Senders have to see it before their flows wait for them.
        self.gate.stop();
    }
}

/// Bytes that a sender writes in one call.
pub(crate) fn block(plan: &Plan) -> u32 {
    plan.length.unwrap_or(DEFAULT_BLOCK)
}
