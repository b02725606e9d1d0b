//! STAMP's session sender. Probes leave on an absolute schedule, and every packet is recorded.

use record::quantity::counted;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{Context, Error, Result, bail};
use clap::Args;
use model::Nanos;
use netio::clock::{self, WallClock};
use netio::{CpuUse, SendReport, TimestampedUdp, Waiter};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::probe_log::{AnswerTimes, ProbeLog};
use super::tlv::{self, HEADER, LONGEST_TRAIN, SameClock, TRAIN_LENGTH, TlvKind, TrainPlace};
use super::wire::{BASE, ErrorEstimate};
use crate::Session;
use crate::endpoint::{self, Local};
use crate::failure::{Blame, Failure, check_stop};
use crate::instrument::{NETWORK, above_zero, interval};
use crate::iperf3::args::dscp;
use crate::round_trip::LossTimeout;
use netio::stop::STOP_INTERVAL;

/// The largest payload of UDP over IPv4 in bytes.
const LONGEST: usize = 65_507;
/// The time after which a probe counts as lost, unless the user states one. Some round trips are added.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two progress lines.
const LIVE_INTERVAL: Nanos = Nanos(1_000_000_000);
/// The extensions that farwire's sender includes, in this order, with the lengths of their values. Padding fills the
/// rest.
const EXTENSIONS: [(TlvKind, u16); 3] = [
    (TlvKind::FollowUpTelemetry, 16),
    (TlvKind::DirectMeasurement, 12),
    (TlvKind::SameClock, 20),
];
/// The payload in bytes of a probe with all of these extensions.
pub(crate) const EXTENDED_SIZE: u16 = 104;
/// The payload in bytes of the shortest probe of a train, which also has the extension with its place.
const TRAIN_SIZE: usize = EXTENDED_SIZE as usize + HEADER + TRAIN_LENGTH as usize;
/// The most payload bytes of a train. A send buffer of the usual size (net.core.wmem_default, 212,992 bytes) has room
/// for its packets at both ends, even if none of them has left yet.
const MOST_TRAIN_BYTES: usize = 96 << 10;

/// The probes
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProbePlan {
    /// Payload bytes of a probe; below 104, without the extensions of RFC 8972
    #[arg(short, long, value_name = "BYTES", default_value_t = EXTENDED_SIZE)]
    pub(crate) size: u16,
    /// Number of probes
    #[arg(short, long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Time between probes: 500us, or a number of seconds
    #[arg(short, long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    pub(crate) interval: Nanos,
    /// Probes to send back to back at each interval, up to 64
    #[arg(long, value_name = "PROBES", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(LONGEST_TRAIN)))]
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub(crate) train: u16,
    /// Count a probe as lost after this time without an answer [default: 2s, and 4 round trips on a long path]
    #[arg(short = 'W', long, value_name = "TIME", value_parser = above_zero)]
    pub(crate) timeout: Option<Nanos>,
    /// DSCP of the probes: 0 to 63, or a name from cs0 to cs7, af11 to af43, ef
    #[arg(long, value_name = "DSCP", value_parser = dscp, help_heading = NETWORK)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dscp: Option<u8>,
}

/// A session in progress.
pub(crate) struct Sender {
    socket: TimestampedUdp,
    target: SocketAddr,
    waiter: Waiter,
    plan: ProbePlan,
    challenge: u64,
    error: ErrorEstimate,
    packet: Vec<u8>,
    buffer: Vec<u8>,
    log: ProbeLog,
    /// The answers that the socket dropped for any reason.
    dropped: u32,
    /// The number of the probe that has identifier 0 in the kernel.
    id_zero: usize,
    /// The time of the first probe on the monotonic clock.
    start: Nanos,
}

/// Returns the length of a train in a plan that does not state it.
fn single() -> u16 {
    1
}

/// Returns whether probes do not leave in trains. A plan does not state this length.
fn is_single(train: &u16) -> bool {
    *train == single()
}

impl ProbePlan {
    /// Returns the time between two trains of the absolute schedule, and thus between two probes that leave alone.
    pub(crate) fn interval(&self) -> Duration {
        self.interval.into()
    }

    /// Returns whether several probes leave back to back.
    pub(crate) fn has_trains(&self) -> bool {
        self.train > 1
    }

    /// Returns the number of probes of a train, which is 1 for probes that leave alone.
    pub(crate) fn train_length(&self) -> usize {
        usize::from(self.train).max(1)
    }

    /// Returns the number of trains. The last one may be shorter than the others.
    pub(crate) fn trains(&self) -> u32 {
        self.count.div_ceil(u32::from(self.train).max(1))
    }

    /// Returns the place of a probe in its train, if probes leave in trains. The probes are numbered from 0.
    fn place(&self, probe: u32) -> Option<TrainPlace> {
        let train = u32::from(self.train).max(1);
        let place = probe % train;
        let length = train.min(self.count.saturating_sub(probe - place));
        self.has_trains().then_some(TrainPlace {
            place: u16::try_from(place).ok()?,
            length: u16::try_from(length).ok()?,
        })
    }

    /// Returns the time after which an answer over a short path is late and its probe lost (RFC 8762 leaves it to the
    /// user; RFC 7680 asks to state it).
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.map_or(TIMEOUT, Duration::from)
    }

    /// Returns whether the size has room for extensions.
    pub(crate) fn is_extended(&self) -> bool {
        self.size >= EXTENDED_SIZE
    }

    /// Checks that a packet can have this size.
    ///
    /// # Errors
    /// Returns an error that names possible sizes if not.
    pub(crate) fn check(&self) -> Result<()> {
        let size = usize::from(self.size);
        let (probe, least) = if self.has_trains() {
            ("a probe of a train", TRAIN_SIZE)
        } else {
            ("a probe", BASE)
        };
        if !(least..=LONGEST).contains(&size) {
            bail!(
                Input,
                "{probe} must have {least} to {LONGEST} payload bytes, not {size}"
            );
        }
        let base = if self.is_extended() {
            least.max(EXTENDED_SIZE.into())
        } else {
            BASE
        };
        if size != base && size - base < HEADER {
            bail!(
                Input,
                "{probe} cannot have {size} payload bytes, because padding needs at least {HEADER}: use {base} or {}",
                base + HEADER
            );
        }
        if self.has_trains() && self.train_length() * size > MOST_TRAIN_BYTES {
            bail!(
                Input,
                "a train must have at most {MOST_TRAIN_BYTES} payload bytes: with {size} in a probe, use trains of at most {}",
                counted(MOST_TRAIN_BYTES / size, "probe")
            );
        }
        Ok(())
    }
}

impl Sender {
    /// Opens a session to `target`. This takes about 10 ms, in which it measures how late this machine wakes the
    /// calling thread up.
    ///
    /// # Errors
    /// Returns a failure if the near end cannot be bound, there is no route to the target, or the kernel does not stamp
    /// packets.
    pub(crate) fn open(
        target: SocketAddr,
        local: Option<&Local>,
        plan: &ProbePlan,
    ) -> Result<Self, Failure> {
        // The socket comes first, because the kernel needs a moment to begin to stamp received packets.
        let socket = endpoint::udp(target, local).or_bad_input()?;
        if let Some(dscp) = plan.dscp {
            mark(&socket, dscp, target).or_machine()?;
        }
        let socket = TimestampedUdp::new(socket)
            .context("the kernel does not time-stamp packets of this socket")
            .or_machine()?;
        // The identifier 0 would mean a sender without sessions.
        let (ssid, challenge) = (fastrand::u16(1..), fastrand::u64(..));
        Ok(Self {
            socket,
            target,
            waiter: Waiter::measure(CpuUse::Spin, 1),
            plan: plan.clone(),
            challenge,
            error: ErrorEstimate::of(WallClock::now()),
            packet: Vec::with_capacity(plan.size.into()),
            buffer: vec![0; LONGEST],
            log: ProbeLog::new(ssid, challenge, LossTimeout::new(plan.timeout, TIMEOUT)),
            dropped: 0,
            id_zero: 0,
            start: clock::now(),
        })
    }

    /// Sends every probe and receives answers until the last one arrived or is overdue. Returns the reason if it ended
    /// early.
    pub(crate) fn run(mut self, session: &Session) -> (ProbeLog, Option<String>) {
        let ended = self.exchange(session);
        // The kernel may still have a report about the last probe.
        let _ = self.read_reports();
        self.log.overflowed = self.socket.full_drops(self.dropped);
        let failure = match ended {
            Err(cause) => Some(format!("{cause:#}")),
            Ok(()) => (self.log.answered() == 0).then(|| self.no_answer()),
        };
        (self.log, failure)
    }

    fn exchange(&mut self, session: &Session) -> Result<()> {
        self.start = clock::now();
        let (mut shown, mut next_check) = (self.start, self.start);
        let count = usize::try_from(self.plan.count)?;
        while self.log.probes.len() < count || !self.log.complete() {
            let now = clock::now();
            if now >= next_check {
                check_stop(&session.stop)?;
                next_check = now + STOP_INTERVAL.into();
            }
            if now >= shown + LIVE_INTERVAL {
                shown = now;
                self.show_progress(session, now);
            }
            let due = self.due(count);
            if now >= due {
                if self.log.probes.len() == count {
                    return Ok(());
                }
                self.send_train(count)?;
            } else if self.waiter.sleeps(now, Some(due)) {
                let until = due.min(next_check);
                let socket = self.socket.as_fd();
                self.waiter.sleep([socket].into_iter(), now, Some(until));
            }
            self.read_reports()?;
            self.receive_answers()?;
        }
        Ok(())
    }

    /// Returns when the next train is due, or when the time-out of the last probe passes.
    fn due(&self, count: usize) -> Nanos {
        let sent = self.log.probes.len();
        match self.log.probes.last() {
            Some(_) if sent == count => self.log.deadline(),
            _ => {
                let interval = self.plan.interval;
                let trains = sent / self.plan.train_length();
                Nanos(self.start.0 + interval.0.saturating_mul(trains as u64))
            }
        }
    }

    /// Sends the next train back to back, up to the last of `count` probes. Reports and answers are read afterwards.
    fn send_train(&mut self, count: usize) -> Result<()> {
        let left = count - self.log.probes.len();
        for _ in 0..left.min(self.plan.train_length()) {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let number = self.log.probes.len();
        let wall = clock::wall();
        let request = self.log.send(clock::now(), wall, self.error);
        self.packet.clear();
        self.packet.extend(request.emit());
        if self.plan.is_extended() {
            self.extend(request.sequence);
        }
        let padding = usize::from(self.plan.size) - self.packet.len();
        if let Some(padding) = padding.checked_sub(HEADER) {
            let padding = u16::try_from(padding)?;
            tlv::append(&mut self.packet, TlvKind::ExtraPadding, padding);
        }
        loop {
            match self.socket.send(&self.packet) {
                Ok(id) => {
                    self.id_zero = number.wrapping_sub(usize::try_from(id)?);
                    return Ok(());
                }
                // The error concerns an earlier probe and is in the error queue; this probe is not sent yet.
                Err(error) if error.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => {
                    self.read_reports()?;
                }
                Err(error) => {
                    self.log.probes.pop();
                    return Err(error).with_context(|| {
                        format!("probe {} to {} was not sent", number + 1, self.target)
                    });
                }
            }
        }
    }

    /// Appends the extensions of a probe to its packet.
    fn extend(&mut self, sequence: u32) {
        for (kind, length) in EXTENSIONS {
            let value = tlv::append(&mut self.packet, kind, length);
            match kind {
                TlvKind::DirectMeasurement => {
                    value[..4].copy_from_slice(&(sequence + 1).to_be_bytes());
                }
                TlvKind::SameClock => SameClock {
                    challenge: self.challenge,
                    response: self.log.proof(),
                    ..SameClock::default()
                }
                .emit(value),
                _ => {}
            }
        }
        if let Some(place) = self.plan.place(sequence) {
            place.emit(tlv::append(&mut self.packet, TlvKind::Train, TRAIN_LENGTH));
        }
    }

    fn read_reports(&mut self) -> Result<()> {
        while let Some(report) = self.socket.report()? {
            match report {
                SendReport::Departed { id, at } => {
                    let probe = self.id_zero.wrapping_add(usize::try_from(id)?);
                    self.log.departed(probe, at);
                }
                SendReport::Unreachable {
                    why: Errno::ECONNREFUSED,
                    by,
                } => return Err(self.refused(by.unwrap_or(self.target.ip()))),
                SendReport::Unreachable { why, by } => {
                    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
                    self.log.unreachable = Some(format!("{}{by}", why.desc()));
                }
            }
        }
        Ok(())
    }

    fn receive_answers(&mut self) -> Result<()> {
        loop {
            let arrival = match self.socket.receive(&mut self.buffer) {
                Ok(Some(arrival)) => arrival,
                Ok(None) => return Ok(()),
                // The error queue has more details.
                Err(_) => return self.read_reports(),
            };
            self.dropped = self.dropped.max(arrival.dropped);
            let arrived = AnswerTimes {
                read: clock::now(),
                kernel: arrival.at,
            };
            self.log
                .receive(&mut self.buffer[..arrival.length], arrived);
            if self.log.flooded() {
                bail!(
                    Peer,
                    "{} keeps sending packets: {} answers to {} probes, and {} other packets",
                    self.target,
                    self.log.answers.len(),
                    self.log.probes.len(),
                    self.log.garbage
                );
            }
        }
    }

    fn refused(&self, by: std::net::IpAddr) -> Error {
        let what = match self.log.answered() {
            0 => "no STAMP reflector listens there (farwire serve has one, on port 8620 if it may not use 862)".to_owned(),
            answered => format!("the reflector disappeared after {}", counted(answered, "answer")),
        };
        Error::Peer(format!(
            "{} refuses, as {by} reports (ICMP port unreachable): {what}",
            self.target
        ))
    }

    fn no_answer(&self) -> String {
        let probes = counted(self.log.probes.len(), "probe");
        let garbage = match self.log.garbage {
            0 => String::new(),
            1 => "; one packet arrived that answers none of them".to_owned(),
            count => format!("; {count} packets arrived that answer none of them"),
        };
        let unreachable = self
            .log
            .unreachable
            .as_deref()
            .map_or_else(String::new, |why| format!("; ICMP: {why}"));
        format!(
            "no answer from {} to {probes} within {:?}{garbage}{unreachable}",
            self.target,
            self.log.timeout()
        )
    }

    fn show_progress(&self, session: &Session, now: Nanos) {
        let (sent, answered) = (self.log.probes.len(), self.log.answered());
        let elapsed = (now.0 - self.start.0) as f64 / 1e9;
        let rtt = self.log.answers.last().map_or_else(String::new, |answer| {
            let sent = self.log.probes[answer.probe].sent;
            format!(", rtt {:.3} ms", (answer.read.0 - sent.0) as f64 / 1e6)
        });
        session.live.line(format_args!(
            "{elapsed:.0} s: {sent} sent, {answered} answered{rtt}"
        ));
    }
}

/// Sets the code point of the packets that a socket sends to `target`.
fn mark(socket: &UdpSocket, dscp: u8, target: SocketAddr) -> Result<()> {
    let (socket, tos) = (SockRef::from(socket), u32::from(dscp) << 2);
    let set = match target {
        SocketAddr::V4(_) => socket.set_tos_v4(tos),
        SocketAddr::V6(_) => socket.set_tclass_v6(tos),
    };
    set.with_context(|| format!("a DSCP of {dscp} cannot be set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_carry_the_code_point() {
        let target = SocketAddr::from(([127, 0, 0, 1], 862));
        let socket = endpoint::udp(target, None).unwrap();
        mark(&socket, 46, target).unwrap();
        assert_eq!(SockRef::from(&socket).tos_v4().unwrap(), 184);
    }

    /// Returns a plan of `count` probes of `size` bytes in trains of `train`.
    fn plan(size: u16, count: u32, train: u16) -> ProbePlan {
        ProbePlan {
            size,
            count,
            interval: Nanos::from_millis(1),
            train,
            timeout: Some(Nanos::from_secs(1)),
            dscp: None,
        }
    }

    #[test]
    fn an_impossible_size_is_refused_with_a_possible_one() {
        for (size, train) in [
            (44, 1),
            (48, 1),
            (60, 1),
            (104, 1),
            (108, 1),
            (65_507, 1),
            (112, 2),
            (116, 64),
            (1472, 64),
            (9000, 10),
        ] {
            plan(size, 1, train).check().unwrap();
        }
        for (size, train, instead) in [
            (43, 1, "44"),
            (45, 1, "use 44 or 48"),
            (106, 1, "use 104 or 108"),
            (65_508, 1, "65507"),
            (
                104,
                2,
                "a probe of a train must have 112 to 65507 payload bytes, not 104",
            ),
            (113, 2, "use 112 or 116"),
            (9000, 11, "use trains of at most 10 probes"),
            (65_507, 2, "use trains of at most 1 probe"),
        ] {
            let error = plan(size, 1, train).check().unwrap_err().to_string();
            assert!(error.contains(instead), "{error}");
        }
    }

    #[test]
    fn the_last_train_may_be_shorter() {
        let plan = plan(112, 7, 3);
        let places: Vec<_> = (0..7)
            .map(|probe| plan.place(probe).unwrap())
            .map(|place| (place.place, place.length))
            .collect();
        let expected = [(0, 3), (1, 3), (2, 3), (0, 3), (1, 3), (2, 3), (0, 1)];
        assert_eq!(places, expected);
        assert_eq!(plan.trains(), 3);
    }

    #[test]
    fn probes_that_leave_alone_have_no_place_and_a_plan_does_not_state_it() {
        let alone = plan(112, 7, 1);
        assert_eq!((alone.place(3), alone.trains()), (None, 7));
        let stated = serde_json::to_value(&alone).unwrap();
        assert_eq!(stated.get("train"), None);
        let read: ProbePlan = serde_json::from_value(stated).unwrap();
        assert_eq!(read.train, 1);
        let stated = serde_json::to_value(plan(112, 7, 10)).unwrap();
        assert_eq!(stated["train"], 10);
    }
}
