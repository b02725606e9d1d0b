//! A link between two ports: what is offered to it, decided by it, and sent.

use std::io;
use std::iter;

use arrayvec::ArrayVec;
use model::{Bytes, ConfigError, Link, Nanos, Outcome, Packet, PacketId, Reply, Side, Waiting};
use netio::{
    Frame, GsoFrame, Headers, Lent, Ports, Sending, Spare, Stall, TxFrame, is_link_control, too_big,
};

use super::capture::{Captures, Fate, Seen, Tap};
use super::departures::{Changes, Departure, Departures};
use super::held::{self, Came, HeldFrames};
use super::packet_log::{LogLine, PacketLogWriter, PacketVerdict};
use super::round_trips::{Gone, RoundTripTimes, RoundTrips};
use super::run::Run;
use super::stats::{Loss, Stats};
use super::{BATCH, NewConditions, PortId, QUANTUM};
use conditions::Rules;
use record::lateness::FlowDepartures;
use record::summary::{DelaySummary, PacketLogSummary, ShareSummary};

/// A link and the two ports that it is between.
pub(super) struct Lane {
    ports: [PortId; 2],
    link: Link,
    /// Which class a packet is of.
    rules: Rules,
    pub(super) departures: [Departures; 2],
    stats: Stats,
    /// Takes a line a packet, where that was asked for.
    log: Option<PacketLogWriter>,
    /// Copy packets, where that was asked for.
    captures: Captures,
    /// Looks for round trips, where somebody watches.
    round_trips: Option<Box<RoundTrips>>,
}

/// What all lanes use.
pub(super) struct Common<P: Ports> {
    pub(super) sets: Vec<P>,
    pub(super) held: HeldFrames<P::Lent>,
    /// Due times of the runs that are about to be sent.
    pub(super) due: Vec<Nanos>,
    /// What frames are built in.
    pub(super) spare: Spare,
}

impl Lane {
    pub(super) fn new(
        ports: [PortId; 2],
        link: Link,
        rules: Rules,
        stats: Stats,
        log: Option<PacketLogWriter>,
    ) -> Self {
        Self {
            ports,
            link,
            rules,
            departures: [Departures::default(), Departures::default()],
            stats,
            log,
            captures: Captures::default(),
            round_trips: None,
        }
    }

    /// Looks for round trips from now on.
    pub(super) fn watch(&mut self) {
        self.round_trips.get_or_insert_default();
    }

    /// Copies packets from now on, until that is to end.
    pub(super) fn capture(&mut self, tap: Tap) {
        self.captures.add(tap);
    }

    /// Decides what came before `horizon` and sends what is due by `now`; when to come back.
    pub(super) fn turn<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        horizon: Nanos,
        now: Nanos,
    ) -> Option<Nanos> {
        if let Some(log) = &mut self.log {
            log.follow(now);
        }
        if !self.captures.is_empty() {
            self.captures.follow(now, horizon);
        }
        self.decide(common, horizon);
        self.depart_both(common, now, Nanos::ZERO)
    }

    /// Gets what is due at `at`, which lies ahead, ready and sends it then; when to come back.
    pub(super) fn turn_ahead<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        at: Nanos,
    ) -> Option<Nanos> {
        self.depart_both(common, at, at)
    }

    /// Sends what is due by `now`, not before that time; when to come back.
    fn depart_both<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        now: Nanos,
        not_before: Nanos,
    ) -> Option<Nanos> {
        let sides = [Side::A, Side::B];
        let departures = sides.map(|egress| self.depart(common, egress, now, not_before));
        let departures = departures.into_iter().flatten();
        let others = [self.link.next_at(), self.captures.next_at()];
        departures.chain(others.into_iter().flatten()).min()
    }

    /// Counts a frame that its port could not hand over.
    pub(super) fn lose_unseen(&mut self, arrival: Nanos, ingress: Side, cause: Loss) {
        self.stats.lose(ingress, cause, 1);
        note(&mut self.log, || {
            LogLine::unseen(arrival, ingress, cause.into())
        });
    }

    /// Offers a frame's packets to the link.
    pub(super) fn accept<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        ingress: Side,
        frame: Frame<P::Lent>,
    ) {
        let Ok(gso) = GsoFrame::of(&frame) else {
            self.stats.lose(ingress, Loss::UnsupportedGso, 1);
            note(&mut self.log, || {
                LogLine::of(&frame, ingress, Loss::UnsupportedGso.into())
            });
            if !self.captures.is_empty() {
                self.captures.arrives(&frame, 1);
                let fate = Fate::of(Loss::UnsupportedGso);
                self.captures.note(&Seen::unparsed(&frame, ingress, fate));
            }
            return;
        };
        if !self.captures.is_empty() {
            self.captures.arrives(&frame, gso.segments());
        }
        if is_link_control(frame.bytes()) {
            return self.pass(common, ingress, &frame, &gso);
        }
        let (arrival, segments) = (frame.arrival, gso.segments());
        if !common.held.has_room(&frame, &gso) {
            return self.lose_whole(ingress, &frame, &gso);
        }
        let headers = Headers::of(&frame);
        let protocol = headers.protocol.filter(|_| !self.rules.is_empty());
        let class = protocol.map_or(0, |number| self.rules.class_of(number, headers.ports));
        let came = Came {
            side: ingress,
            set: self.ports[ingress.index()].set,
            flow: self.stats.flows.number(headers.protocol, headers.ports),
            class,
        };
        // All segments but the last are of one length.
        let [len, last_len] = [0, segments - 1].map(|n| Bytes(gso.segment_len(n).into()));
        let first = common.held.insert(came, frame, gso);
        if let Some(round_trips) = &mut self.round_trips {
            let last = PacketId(first.0 + u64::from(segments - 1));
            round_trips.came(ingress, last, common.held.get(first).0);
        }
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
                common.held.clamp(first, clamped);
            }
        }
    }

    /// Counts a frame for which there is no memory.
    #[cold]
    fn lose_whole<L: Lent>(&mut self, ingress: Side, frame: &Frame<L>, gso: &GsoFrame) {
        self.stats.lose(ingress, Loss::Memory, gso.segments());
        if let Some(log) = &mut self.log {
            let line = LogLine::of(frame, ingress, Loss::Memory.into());
            log.note_segments(line, gso, 0..gso.segments());
        }
        if !self.captures.is_empty() {
            let fate = Fate::of(Loss::Memory);
            self.captures.note(&Seen::whole(frame, gso, ingress, fate));
        }
    }

    /// Sends link control at once. What finds the other interface down is lost as on a wire whose other end is, and is no
    /// fault of the emulator's: neighbours report groups as soon as their own end is up.
    fn pass<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        ingress: Side,
        frame: &Frame<P::Lent>,
        gso: &GsoFrame,
    ) {
        self.stats.control[ingress.index()] += 1;
        let mut whole = [gso.part(frame, 0..gso.segments(), &mut common.spare)];
        let mut departure = None;
        let (port, stats) = (self.ports[ingress.other().index()], &mut self.stats);
        send(
            &mut common.sets,
            port,
            Nanos::ZERO,
            &mut whole,
            |_, sent| match sent {
                Ok(sending) => departure = Some(sending.ended),
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) => stats.send_failed(ingress, 1, &error),
            },
        );
        whole
            .into_iter()
            .for_each(|sent| common.spare.take_back(sent));
        let verdict = match departure {
            Some(_) => PacketVerdict::LinkControl,
            None => Loss::Send.into(),
        };
        note(&mut self.log, || LogLine {
            departure,
            ..LogLine::of(frame, ingress, verdict)
        });
        if !self.captures.is_empty() {
            let fate = Fate {
                departure,
                ..Fate::of(verdict)
            };
            self.captures.note(&Seen::whole(frame, gso, ingress, fate));
        }
    }

    /// Schedules or forgets every packet that the model has decided on.
    fn decide<P: Ports>(&mut self, common: &mut Common<P>, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Copied { id, .. } => common.held.copied(id),
                Outcome::Deliver {
                    id,
                    copy,
                    due,
                    mark,
                    edit,
                } => {
                    let egress = common.held.ingress(id).other();
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
                        self.reply(common, id, reply);
                    }
                    note(&mut self.log, || LogLine {
                        changes: Changes::new(copy, false, None),
                        ..common.held.line(id, cause.into())
                    });
                    if !self.captures.is_empty() {
                        let fate = Fate {
                            changes: Changes::new(copy, false, None),
                            ..Fate::of(cause)
                        };
                        self.captures.note(&common.held.seen(id, 1, fate, &[]));
                    }
                    if let Some(round_trips) = &mut self.round_trips
                        && copy == 0
                    {
                        round_trips.gone(&Gone {
                            ingress: common.held.ingress(id),
                            first: id,
                            count: 1,
                            frame: common.held.get(id).0,
                            sent: None,
                        });
                    }
                    common.held.release(id, 1);
                }
            }
        }
    }

    /// Tells the sender of a packet that was dropped why, at once and past the link.
    #[cold]
    fn reply<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        id: PacketId,
        Reply::TooBig { mtu }: Reply,
    ) {
        let (frame, gso) = common.held.get(id);
        let segment = held::segment(id);
        let mut packet = gso.part(frame, segment..segment + 1, &mut common.spare);
        packet.complete_checksum();
        let reply = too_big(&[packet.head.bytes(), &packet.body].concat(), mtu);
        common.spare.take_back(packet);
        let Some(reply) = reply else {
            return;
        };
        let ingress = common.held.ingress(id);
        let (port, stats) = (self.ports[ingress.index()], &mut self.stats);
        stats.replies[ingress.index()] += 1;
        let mut reply = [TxFrame::from(reply)];
        let mut departure = None;
        send(
            &mut common.sets,
            port,
            Nanos::ZERO,
            &mut reply,
            |_, sent| match sent {
                Ok(sending) => departure = Some(sending.ended),
                Err(error) => stats.reply_failed(ingress, &error),
            },
        );
        if let Some(departure) = departure {
            self.captures.replied(ingress, &reply[0], departure);
        }
    }

    /// Sends by `egress` what is due, not before that time; when to look again.
    fn depart<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        egress: Side,
        now: Nanos,
        not_before: Nanos,
    ) -> Option<Nanos> {
        loop {
            let mut runs: ArrayVec<Run, BATCH> = ArrayVec::new();
            let mut wait = self.departures[egress.index()].next_due();
            while !runs.is_full() && wait.is_some_and(|due| due <= now) {
                match self.next_run(common, egress, now) {
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
                self.send_runs(common, egress, not_before, &runs);
            }
            if !runs.is_full() {
                return wait;
            }
        }
    }

    /// Takes the next run of segments from the schedule; or leaves it there and says until when to wait for it.
    fn next_run<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        egress: Side,
        now: Nanos,
    ) -> Result<Run, Nanos> {
        let len = self.run_length(common, egress, now)?;
        let schedule = &mut self.departures[egress.index()];
        let Departure { id, changes, .. } = schedule.get(0).ok_or(now)?;
        let due = (0..len).map_while(|_| schedule.pop());
        common.due.extend(due.map(|next| next.due));
        Ok(Run {
            first: id,
            len,
            changes,
        })
    }

    /// How many neighbouring segments at the front of the schedule are due; or, when the next neighbour follows
    /// within the quantum, when it does. Copies and what is changed leave alone.
    fn run_length<P: Ports>(
        &self,
        common: &Common<P>,
        egress: Side,
        now: Nanos,
    ) -> Result<u32, Nanos> {
        let schedule = &self.departures[egress.index()];
        let front = schedule.get(0).ok_or(now)?;
        let (due, first) = (front.due, front.id);
        let gso = common.held.gso(first);
        let can = common.sets[self.ports[egress.index()].set()].capabilities();
        let longest = match () {
            () if !can.gso || !front.changes.is_none() => 1,
            () if can.tunnel_gso => gso.longest_train(),
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

    /// Sends runs that were taken from the schedule, not before that time, and forgets them.
    fn send_runs<P: Ports>(
        &mut self,
        common: &mut Common<P>,
        egress: Side,
        not_before: Nanos,
        runs: &[Run],
    ) {
        let Common {
            sets,
            held,
            due,
            spare,
        } = common;
        let (port, stats) = (self.ports[egress.index()], &mut self.stats);
        let trains = sets[port.set()].capabilities().tunnel_gso;
        let frames = runs.iter().map(|run| run.frame(held, spare, trains));
        let mut frames: ArrayVec<TxFrame<'_>, BATCH> = frames.collect();
        let mut sendings = [None; BATCH];
        send(
            sets,
            port,
            not_before,
            &mut frames,
            |index, sent| match sent {
                Ok(sending) => sendings[index] = Some(sending),
                Err(error) => stats.send_failed(egress.other(), runs[index].len, &error),
            },
        );
        frames.into_iter().for_each(|sent| spare.take_back(sent));
        let mut rest = due.as_slice();
        for (run, sending) in runs.iter().zip(sendings) {
            let (due, after) = rest.split_at(run.len as usize);
            rest = after;
            if let Some(sending) = sending {
                self.stats.left(egress.other(), run.len, run.bytes(held));
                self.stats
                    .delayed(egress.other(), held.arrival(run.first), due);
                let whose = held.lateness(run.first);
                for alike in due.chunk_by(|a, b| a == b) {
                    let (due, count) = (alike[0], alike.len() as u64);
                    self.stats
                        .departed(egress.other(), whose, due, sending, count);
                }
            }
            if let Some(log) = &mut self.log {
                run.note(held, due, sending.map(|sending| sending.ended), log);
            }
            if !self.captures.is_empty() {
                let departure = sending.map(|sending| sending.ended);
                let fate = Fate::of_run(departure, run.changes);
                self.captures
                    .note(&held.seen(run.first, run.len, fate, due));
            }
            if let Some(round_trips) = &mut self.round_trips {
                round_trips.gone(&Gone {
                    ingress: egress.other(),
                    first: run.first,
                    count: run.len,
                    frame: held.get(run.first).0,
                    sent: sending.filter(|_| run.changes.edit().is_none()),
                });
            }
            held.release(run.first, run.len);
        }
        due.clear();
    }

    /// The machine stood still so long before the next turn.
    pub(super) fn stood_still(&mut self, stall: Stall) {
        self.stats.stalls.note(stall);
    }

    /// Puts other conditions into force at `at`; when they are.
    ///
    /// # Errors
    /// What the link refuses; nothing is changed then.
    pub(super) fn change(&mut self, at: Nanos, new: NewConditions) -> Result<Nanos, ConfigError> {
        let NewConditions {
            paths,
            rules,
            clock,
            order,
        } = new;
        let at = self.link.change_by_clock(at, paths, clock, order)?;
        self.rules = rules;
        Ok(at)
    }

    /// Gives up what is still on its way and ends the packet log with it; what of that was kept.
    pub(super) fn finish<P: Ports>(&mut self, common: &mut Common<P>) -> Option<PacketLogSummary> {
        // What is decided already, and nothing else.
        self.decide(common, Nanos::ZERO);
        let undecided = self.link.stop();
        let scheduled = self
            .departures
            .iter_mut()
            .flat_map(|of| iter::from_fn(|| of.pop()));
        let scheduled = scheduled.map(|of| (of.id, Some(of.due), of.changes));
        let undecided = undecided
            .into_iter()
            .map(|(id, copy)| (id, None, Changes::new(copy, false, None)));
        for (id, due, changes) in scheduled.chain(undecided) {
            note(&mut self.log, || LogLine {
                due,
                changes,
                ..common.held.line(id, PacketVerdict::HeldAtEnd)
            });
            if !self.captures.is_empty() {
                let fate = Fate {
                    changes,
                    ..Fate::of(PacketVerdict::HeldAtEnd)
                };
                self.captures
                    .note(&common.held.seen(id, 1, fate, due.as_slice()));
            }
        }
        self.captures.finish();
        self.log.take().map(PacketLogWriter::finish)
    }

    /// What its own packets were counted as, brought up to date. Nothing of it is copied that grows with what was counted: the
    /// packets wait meanwhile.
    pub(super) fn stats(&mut self) -> &mut Stats {
        for side in [Side::A, Side::B] {
            self.stats.link[side.index()] = self.link.by_class(side).to_vec();
        }
        self.stats.shares = ShareSummary::of(self.link.stages());
        self.stats.delays = DelaySummary::of(self.link.stages());
        &mut self.stats
    }

    /// What waits for the bottleneck of each direction at `at`, by ingress.
    pub(super) fn backlogs(&self, at: Nanos) -> [Option<Waiting>; 2] {
        Side::BOTH.map(|ingress| self.link.backlog(at, ingress))
    }

    /// What has left so far, by kind of packets.
    pub(super) fn departures(&self) -> Vec<FlowDepartures> {
        self.stats.flows.departures()
    }

    /// How long the round trips took that were seen so far, by side.
    pub(super) fn round_trips(&self) -> [RoundTripTimes; 2] {
        let seen = self.round_trips.as_deref();
        seen.map(RoundTrips::times).unwrap_or_default()
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn ports(&self) -> [PortId; 2] {
        self.ports
    }

    /// No packet's due time lies closer to its arrival than this.
    pub(super) fn least_delay(&self) -> Nanos {
        self.link.least_delay()
    }
}

/// Sends `frames` by `port`, after what it cannot do for itself.
fn send<P: Ports>(
    sets: &mut [P],
    port: PortId,
    not_before: Nanos,
    frames: &mut [TxFrame<'_>],
    mut sent: impl FnMut(usize, io::Result<Sending>),
) {
    let set = &mut sets[port.set()];
    if !set.capabilities().checksum {
        frames.iter_mut().for_each(TxFrame::complete_checksum);
    }
    set.send(port.port(), not_before, frames, &mut sent);
}

/// Notes a line where a log is kept.
fn note(log: &mut Option<PacketLogWriter>, line: impl FnOnce() -> LogLine) {
    if let Some(log) = log {
        log.note(line());
    }
}
