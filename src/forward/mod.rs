//! The forwarder: port → path → port.
//!
//! `Forwarder::step` takes in what has arrived, lets the model decide, and sends what is due; it never
//! waits and has no clock: its caller and the ports say what time it is. `thread` turns it into a loop in real time,
//! [`run_to_end`] into one in virtual time.

mod arena;
mod departures;
mod flows;
mod held;
mod load;
pub(crate) mod packet_log;
pub(crate) mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

use std::io;
use std::ops::Range;

use arrayvec::ArrayVec;
use model::{Bytes, ConfigError, Link, Nanos, Outcome, Packet, PacketId, PathSpec, Reply, Side};
use netio::{
    Frame, GsoFrame, Headers, Lent, MemoryPort, Missed, Port, Received, Spare, Stall, TxFrame,
    is_link_control, too_big,
};

use departures::{Changes, Departure, Departures};
use held::HeldFrames;
use load::Load;
pub(crate) use load::TURN;
use packet_log::{LogLine, PacketLogWriter, PacketVerdict};
use record::lateness::{FlowDepartures, LateBudget};
use record::link_spec::Rules;
use record::summary::{DelaySummary, PacketLogSummary, ShareSummary};
use stats::DepartureError;
pub(crate) use stats::{Loss, Stats};

/// Neighbouring segments that are due within this span leave as one frame, when the last of them is due.
const QUANTUM: Nanos = Nanos(10_000);

/// Frames taken in before what is due is looked at again.
const INTAKE: usize = 64;

/// Frames handed to a port in one call.
const BATCH: usize = 32;

/// Two ports, the link between them, and the frames that are on their way.
pub(crate) struct Forwarder<P: Port> {
    ports: [P; 2],
    link: Link,
    /// Which class a packet is of.
    rules: Rules,
    held: HeldFrames<P::Lent>,
    departures: [Departures; 2],
    load: Load,
    /// Frames that ports lost which were replaced.
    missed: [Missed; 2],
    /// Due times of the runs that are about to be sent.
    due: Vec<Nanos>,
    /// What frames are built in.
    spare: Spare,
    stats: Stats,
    /// Takes a line a packet, where that was asked for.
    log: Option<PacketLogWriter>,
}

/// When to step again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once: more has arrived than one step takes in.
    Now,
    /// At this time, or when something arrives.
    At(Nanos),
    /// When something arrives.
    Arrival,
}

impl<P: Port> Forwarder<P> {
    /// `ports` are A and B; `memory` is how many bytes of frames may be held.
    pub(crate) fn new(
        ports: [P; 2],
        link: Link,
        rules: Rules,
        memory: usize,
        log: Option<PacketLogWriter>,
    ) -> Self {
        Self {
            ports,
            link,
            rules,
            held: HeldFrames::new(memory),
            log,
            departures: [Departures::default(), Departures::default()],
            load: Load::default(),
            missed: [Missed::default(); 2],
            due: Vec::new(),
            spare: Spare::default(),
            stats: Stats::default(),
        }
    }

    /// Departures later than `budget` after their due time count as late; before the first of them.
    pub(crate) fn with_late_budget(mut self, budget: LateBudget) -> Self {
        self.stats.departure = DepartureError::within(budget);
        self
    }

    /// Does everything that is to be done by `now`.
    pub(crate) fn step(&mut self, now: Nanos) -> Next {
        if let Some(log) = &mut self.log {
            log.follow(now);
        }
        let waiting = self.take_in(now);
        // What still waits came before now: nothing after it can be decided yet.
        self.decide(waiting.unwrap_or(now));
        let next = [Side::A, Side::B]
            .map(|egress| self.depart(egress, now))
            .into_iter()
            .flatten()
            .chain(self.link.next_at())
            .min();
        match next {
            _ if waiting.is_some() => Next::Now,
            Some(at) => Next::At(at),
            None => Next::Arrival,
        }
    }

    /// Offers what has arrived, both ports merged by arrival; when the next arrival was that still waits.
    fn take_in(&mut self, now: Nanos) -> Option<Nanos> {
        for port in &mut self.ports {
            port.refresh(now);
        }
        for _ in 0..INTAKE {
            let (arrival, ingress) = self.next_arrival()?;
            self.load.arrived(arrival);
            match self.ports[ingress.index()].take()? {
                Received::Frame(frame) => self.accept(ingress, frame),
                Received::Truncated => self.lose_unseen(arrival, ingress, Loss::TooLong),
                Received::UnsupportedGso => {
                    self.lose_unseen(arrival, ingress, Loss::UnsupportedGso);
                }
            }
            while let Some(place) = self.ports[ingress.index()].recall() {
                self.held.give_back(ingress, place);
            }
        }
        Some(self.next_arrival()?.0)
    }

    fn next_arrival(&self) -> Option<(Nanos, Side)> {
        let [a, b] = &self.ports;
        match (a.arrival(), b.arrival()) {
            (Some(a), Some(b)) if b < a => Some((b, Side::B)),
            (Some(a), _) => Some((a, Side::A)),
            (None, b) => b.map(|b| (b, Side::B)),
        }
    }

    /// Counts a frame that the port could not hand over.
    fn lose_unseen(&mut self, arrival: Nanos, ingress: Side, cause: Loss) {
        self.stats.lose(ingress, cause, 1);
        note(&mut self.log, || {
            LogLine::unseen(arrival, ingress, cause.into())
        });
    }

    fn accept(&mut self, ingress: Side, frame: Frame<P::Lent>) {
        let Ok(gso) = GsoFrame::of(&frame) else {
            self.stats.lose(ingress, Loss::UnsupportedGso, 1);
            note(&mut self.log, || {
                LogLine::of(&frame, ingress, Loss::UnsupportedGso.into())
            });
            return;
        };
        if is_link_control(frame.bytes()) {
            return self.pass(ingress, &frame, &gso);
        }
        let (arrival, segments) = (frame.arrival, gso.segments());
        if !self.held.has_room(&frame, &gso) {
            self.stats.lose(ingress, Loss::Memory, segments);
            if let Some(log) = &mut self.log {
                let line = LogLine::of(&frame, ingress, Loss::Memory.into());
                let lengths = (0..segments).map(|segment| gso.segment_len(segment));
                lengths.for_each(|bytes| log.note(LogLine { bytes, ..line }));
            }
            return;
        }
        let headers = Headers::of(&frame);
        let protocol = headers.protocol.filter(|_| !self.rules.is_empty());
        let class = protocol.map_or(0, |number| self.rules.class_of(number, headers.ports));
        let flow = self.stats.flows.number(headers.protocol, headers.ports);
        // All segments but the last are of one length.
        let [len, last_len] = [0, segments - 1].map(|n| Bytes(gso.segment_len(n).into()));
        let first = self.held.insert(ingress, flow, frame, gso);
        for segment in 0..segments {
            let packet = Packet {
                id: PacketId(first.0 + u64::from(segment)),
                len: if segment + 1 == segments {
                    last_len
                } else {
                    len
                },
                flow: headers.flow,
                class,
                ecn: headers.ecn,
                l3_at: headers.l3_at,
            };
            let clamped = self.link.offer(arrival, ingress, packet);
            if clamped > Nanos::ZERO {
                self.held.clamp(first, clamped);
            }
        }
    }

    /// Sends link control at once. What finds the other interface down is lost as on a wire whose other end is, and is no
    /// fault of the emulator's: neighbours report groups as soon as their own end is up.
    fn pass(&mut self, ingress: Side, frame: &Frame<P::Lent>, gso: &GsoFrame) {
        self.stats.control[ingress.index()] += 1;
        let (mut whole, mut departure) =
            ([gso.part(frame, 0..gso.segments(), &mut self.spare)], None);
        let (port, stats) = (&mut self.ports[ingress.other().index()], &mut self.stats);
        send(port, &mut whole, |_, sent| match sent {
            Ok(at) => departure = Some(at),
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
            Err(error) => stats.send_failed(ingress, 1, &error),
        });
        whole
            .into_iter()
            .for_each(|sent| self.spare.take_back(sent));
        let verdict = match departure {
            Some(_) => PacketVerdict::LinkControl,
            None => Loss::Send.into(),
        };
        note(&mut self.log, || LogLine {
            departure,
            ..LogLine::of(frame, ingress, verdict)
        });
    }

    /// Schedules or forgets every packet that the model has decided on.
    fn decide(&mut self, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Copied { id, .. } => self.held.copied(id),
                Outcome::Deliver {
                    id,
                    copy,
                    due,
                    mark,
                    edit,
                } => {
                    let egress = self.held.ingress(id).other();
                    let changes = Changes::new(copy, mark, edit);
                    self.departures[egress.index()].push(Departure { due, id, changes });
                }
                Outcome::Drop {
                    id,
                    copy,
                    cause,
                    reply,
                    ..
                } => {
                    if let Some(reply) = reply {
                        self.reply(id, reply);
                    }
                    note(&mut self.log, || LogLine {
                        changes: Changes::new(copy, false, None),
                        ..self.held.line(id, cause.into())
                    });
                    self.held.release(id, 1);
                }
            }
        }
    }

    /// Tells the sender of a packet that was dropped why, at once and past the link.
    #[cold]
    fn reply(&mut self, id: PacketId, Reply::TooBig { mtu }: Reply) {
        let (frame, gso) = self.held.get(id);
        let segment = held::segment(id);
        let mut packet = gso.part(frame, segment..segment + 1, &mut self.spare);
        packet.complete_checksum();
        let reply = too_big(&[packet.head.bytes(), &packet.body].concat(), mtu);
        self.spare.take_back(packet);
        let Some(reply) = reply else {
            return;
        };
        let ingress = self.held.ingress(id);
        let (port, stats) = (&mut self.ports[ingress.index()], &mut self.stats);
        stats.replies[ingress.index()] += 1;
        send(port, &mut [TxFrame::from(reply)], |_, sent| {
            if let Err(error) = sent {
                stats.reply_failed(ingress, &error);
            }
        });
    }

    /// Sends by `egress` what is due; when to look again.
    fn depart(&mut self, egress: Side, now: Nanos) -> Option<Nanos> {
        loop {
            let mut runs: ArrayVec<Run, BATCH> = ArrayVec::new();
            let mut wait = self.departures[egress.index()].next_due();
            while !runs.is_full() && wait.is_some_and(|due| due <= now) {
                match self.next_run(egress, now) {
                    Ok(run) => {
                        runs.push(run);
                        wait = self.departures[egress.index()].next_due();
                    }
                    Err(until) => {
                        wait = Some(until);
                        break;
                    }
                }
            }
            if !runs.is_empty() {
                self.send_runs(egress, &runs);
            }
            if !runs.is_full() {
                return wait;
            }
        }
    }

    /// Takes the next run of segments from the schedule; or leaves it there and says until when to wait for it.
    fn next_run(&mut self, egress: Side, now: Nanos) -> Result<Run, Nanos> {
        let len = self.run_length(egress, now)?;
        let schedule = &mut self.departures[egress.index()];
        let Departure { id, changes, .. } = schedule.get(0).ok_or(now)?;
        let due = (0..len).map_while(|_| schedule.pop());
        self.due.extend(due.map(|next| next.due));
        Ok(Run {
            first: id,
            len,
            changes,
        })
    }

    /// How many neighbouring segments at the front of the schedule are due; or, when the next neighbour follows
    /// within the quantum, when it does. Copies and what is changed leave alone.
    fn run_length(&self, egress: Side, now: Nanos) -> Result<u32, Nanos> {
        let schedule = &self.departures[egress.index()];
        let front = schedule.get(0).ok_or(now)?;
        let (due, first) = (front.due, front.id);
        let gso = self.held.gso(first);
        let port = self.ports[egress.index()].capabilities();
        let longest = match () {
            () if !port.gso || !front.changes.is_none() => 1,
            () if port.tunnel_gso => gso.longest_train(),
            () => gso.longest_run(),
        };
        let soon = |at: Nanos| at > now && at <= due + QUANTUM;
        for len in 1..longest {
            match schedule.get(len as usize) {
                Some(next) if next.id.0 == first.0 + u64::from(len) && next.changes.is_none() => {
                    if soon(next.due) {
                        return Err(next.due);
                    } else if next.due > now {
                        return Ok(len);
                    }
                }
                Some(_) => return Ok(len),
                None => {
                    let last = held::segment(first) + len == gso.segments();
                    let undecided = self.link.next_at().filter(|at| !last && soon(*at));
                    return undecided.map_or(Ok(len), Err);
                }
            }
        }
        Ok(longest)
    }

    /// Sends runs that were taken from the schedule, and forgets them.
    fn send_runs(&mut self, egress: Side, runs: &[Run]) {
        let (held, spare) = (&self.held, &mut self.spare);
        let trains = self.ports[egress.index()].capabilities().tunnel_gso;
        let frames = runs.iter().map(|run| run.frame(held, spare, trains));
        let mut frames: ArrayVec<TxFrame<'_>, BATCH> = frames.collect();
        let mut departures = [None; BATCH];
        let stats = &mut self.stats;
        let port = &mut self.ports[egress.index()];
        send(port, &mut frames, |index, sent| match sent {
            Ok(at) => departures[index] = Some(at),
            Err(error) => stats.send_failed(egress.other(), runs[index].len, &error),
        });
        frames.into_iter().for_each(|sent| spare.take_back(sent));
        let mut rest = self.due.as_slice();
        for (run, departure) in runs.iter().zip(departures) {
            let (due, after) = rest.split_at(run.len as usize);
            rest = after;
            if let Some(left) = departure {
                let bytes = run.bytes(&self.held);
                self.stats.left(egress.other(), run.len, bytes);
                let (flow, clamped) = self.held.lateness(run.first);
                for alike in due.chunk_by(|a, b| a == b) {
                    let error = Nanos(left.0.saturating_sub(alike[0].0)) + clamped;
                    let count = alike.len() as u64;
                    self.stats
                        .departed(egress.other(), flow, alike[0], error, count);
                }
            }
            if let Some(log) = &mut self.log {
                run.note(&self.held, due, departure, log);
            }
            self.held.release(run.first, run.len);
        }
        self.due.clear();
    }

    /// The machine stood still so long before the next step.
    #[cold]
    pub(crate) fn stood_still(&mut self, stall: Stall) {
        self.stats.stalls.note(stall);
    }

    /// Whether so much arrives that the next turn comes at its own time, [`TURN`] after this one.
    pub(crate) fn is_loaded(&self, now: Nanos) -> bool {
        self.load.is_high(now)
    }

    /// Whether anything has arrived since the last step.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.ports.iter().any(P::has_arrivals)
    }

    /// Gives ports back what of their memory would end a sleep at once.
    pub(crate) fn prepare_to_sleep(&mut self) {
        for side in [Side::A, Side::B] {
            if let Some(place) = self.ports[side.index()].recall_to_wait() {
                self.held.give_back(side, place);
            }
        }
    }

    /// Puts other conditions into force, at `now` or, if more has arrived than is taken in at once, before what waits; when
    /// they are.
    ///
    /// # Errors
    /// What the link refuses; nothing is changed then.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        paths: &[PathSpec],
        rules: Rules,
    ) -> Result<Nanos, ConfigError> {
        // What came before meets the conditions that it found.
        let at = self.take_in(now).unwrap_or(now);
        let at = self.link.change(at, paths)?;
        self.rules = rules;
        Ok(at)
    }

    /// Goes on with another port on this side. What came by the old one and is on its way stays so; it keeps the old port's
    /// memory until it has left.
    pub(crate) fn replace_port(&mut self, side: Side, port: P) {
        let old = std::mem::replace(&mut self.ports[side.index()], port);
        self.missed[side.index()] += { old }.missed();
    }

    /// Gives up what is still on its way and ends the packet log with it; what of that was kept.
    pub(crate) fn finish(&mut self) -> Option<PacketLogSummary> {
        // What is decided already, and nothing else.
        self.decide(Nanos::ZERO);
        let undecided = self.link.stop();
        let mut log = self.log.take()?;
        for departures in &mut self.departures {
            while let Some(Departure { due, id, changes }) = departures.pop() {
                log.note(LogLine {
                    due: Some(due),
                    changes,
                    ..self.held.line(id, PacketVerdict::HeldAtEnd)
                });
            }
        }
        for (id, copy) in undecided {
            log.note(LogLine {
                changes: Changes::new(copy, false, None),
                ..self.held.line(id, PacketVerdict::HeldAtEnd)
            });
        }
        Some(log.finish())
    }

    /// Everything counted so far.
    pub(crate) fn stats(&mut self) -> Stats {
        let mut stats = self.stats.clone();
        for side in [Side::A, Side::B] {
            stats.link[side.index()] = self.link.by_class(side).to_vec();
            stats.missed[side.index()] = self.missed[side.index()];
            stats.missed[side.index()] += self.ports[side.index()].missed();
        }
        stats.shares = ShareSummary::of(self.link.stages());
        stats.delays = DelaySummary::of(self.link.stages());
        stats.peak_bytes = self.held.peak_bytes();
        stats
    }

    /// What has left so far, by kind of packets.
    pub(crate) fn departures(&self) -> Vec<FlowDepartures> {
        self.stats.flows.departures()
    }

    pub(crate) fn ports(&self) -> &[P; 2] {
        &self.ports
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }
}

/// Sends `frames` by `port`, after what it cannot do for itself.
fn send<P: Port>(
    port: &mut P,
    frames: &mut [TxFrame<'_>],
    mut sent: impl FnMut(usize, io::Result<Nanos>),
) {
    if !port.capabilities().checksum {
        frames.iter_mut().for_each(TxFrame::complete_checksum);
    }
    port.send(frames, &mut sent);
}

/// Notes a line where a log is kept.
fn note(log: &mut Option<PacketLogWriter>, line: impl FnOnce() -> LogLine) {
    if let Some(log) = log {
        log.note(line());
    }
}

/// Passes all that arrives at `ports` A and B through `link`, in virtual time and as fast as it goes, until nothing is
/// on its way any more. Gives the ports back, with what left by them.
///
/// What arrives is in time by definition, so every packet leaves when it is due, and one seed gives the same departures
/// again.
#[must_use]
pub fn run_to_end(ports: [MemoryPort; 2], link: Link) -> [MemoryPort; 2] {
    let mut forwarder = Forwarder::new(ports, link, Rules::default(), usize::MAX, None);
    let mut now = Nanos::ZERO;
    loop {
        let next = match forwarder.step(now) {
            Next::Now => continue,
            Next::At(at) => Some(at),
            Next::Arrival => None,
        };
        let arrivals = forwarder.ports.iter().filter_map(MemoryPort::next_arrival);
        match arrivals.chain(next).min() {
            Some(at) => now = at,
            None => return forwarder.ports,
        }
    }
}

/// Segments of one frame that leave together; one alone, if anything is changed.
struct Run {
    first: PacketId,
    len: u32,
    changes: Changes,
}

impl Run {
    fn segments(&self) -> Range<u32> {
        let first = held::segment(self.first);
        first..first + self.len
    }

    /// What leaves; `trains` says whether a tunnel's may.
    fn frame<'f>(
        &self,
        held: &'f HeldFrames<impl Lent>,
        spare: &mut Spare,
        trains: bool,
    ) -> TxFrame<'f> {
        let (frame, gso) = held.get(self.first);
        let mut part = if trains {
            gso.train(frame, self.segments(), spare)
        } else {
            gso.part(frame, self.segments(), spare)
        };
        let edit = self.changes.edit();
        if self.changes.is_marked || edit.is_some() {
            part.change(self.changes.is_marked, edit);
        }
        part
    }

    /// Notes a line for each segment, which left at `departure` if it did.
    fn note(
        &self,
        held: &HeldFrames<impl Lent>,
        due: &[Nanos],
        departure: Option<Nanos>,
        log: &mut PacketLogWriter,
    ) {
        let verdict = departure.map_or(PacketVerdict::SendFailed, |_| PacketVerdict::Delivered);
        let (line, gso) = (held.line(self.first, verdict), held.gso(self.first));
        for (segment, due) in self.segments().zip(due) {
            log.note(LogLine {
                bytes: gso.segment_len(segment),
                due: Some(*due),
                departure,
                changes: self.changes,
                ..line
            });
        }
    }

    /// L2 bytes of its segments, each with its headers.
    fn bytes(&self, held: &HeldFrames<impl Lent>) -> u64 {
        held.gso(self.first).wire_len(self.segments())
    }
}
