//! A link between two ports: takes in the frames that arrive, lets the model decide, and sends the
//! packets that are due.

use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use model::{
    Bytes, ConfigError, Counters, Link, Nanos, Outcome, Packet, PacketId, Reply, Side, Waiting,
};
use netio::{
    Frame, FrameRef, GsoFrame, Headers, Lent, Offload, PortSet, SendTimes, Spare, Stall, TxFrame,
    is_link_control, too_big,
};

use super::allowance::{Allowance, SendCost, Share};
use super::capture::TimeShare;
use super::departures::{Changes, Departures, ScheduledDeparture};
use super::held_frames::{self, FrameOrigin, HeldFrames};
use super::observed::{ObservedPackets, PacketVerdict};
use super::observers::Observers;
use super::overload::{Arrears, LatenessBound};
use super::packet_log::PacketLogWriter;
use super::recent_arrivals::RecentArrivals;
use super::segment_run::SegmentRun;
use super::stats::{EmulatorLoss, QueueState, Stats};
use super::{BATCH, NewConditions, PortId, QUANTUM, packet_fields};
use conditions::{Direction, Rules};
use record::lateness::FlowDepartures;
use record::summary::{DelaySummary, PacketLogSummary, ShareSummary};

/// A link and its two ports.
pub(super) struct LinkRunner {
    pub(super) ports: [PortId; 2],
    link: Link,
    /// The rules that give packets their classes.
    pub(super) rules: Rules,
    pub(super) departures: [Departures; 2],
    stats: Stats,
    pub(super) observers: Observers,
    /// The arrivals at both ports.
    pub(super) load: RecentArrivals,
    /// The link's share of the present step's intake.
    pub(super) share: Share,
    /// True if the link waits in a list of several links for its turn.
    pub(super) waits: bool,
    arrears: Arrears,
    cost: SendCost,
    /// The egress side that is served first in the next turn.
    first: Side,
    /// Takes the time of the first packet, if the link begins with it and none has arrived.
    begins: Option<Arc<AtomicU64>>,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnEnd {
    /// The time of the next turn.
    pub(super) next: Option<Nanos>,
    /// True if the allowance was used up before all packets that were due had left.
    pub(super) is_cut: bool,
}

/// The parts of a forwarder that all its links share.
pub(super) struct ForwarderShared<P: PortSet> {
    pub(super) sets: Vec<P>,
    pub(super) held: HeldFrames<P::Lent>,
    /// The due times of the runs that are sent next.
    pub(super) due: Vec<Nanos>,
    /// The buffers in which frames are built.
    pub(super) spare: Spare,
    /// The latest known time: that of the step, or the end of the latest call that sent something.
    pub(super) latest: Nanos,
    /// The lateness at which packets are dropped if the forwarder cannot keep up.
    pub(super) bound: LatenessBound,
    /// Says since when frames have waited in the rings.
    pub(super) rings: Arrears,
}

/// The largest number of packets that are dropped in one turn because they are too late.
const MOST_DROPPED: usize = 1_024;

impl LinkRunner {
    pub(super) fn new(
        ports: [PortId; 2],
        link: Link,
        rules: Rules,
        stats: Stats,
        log: Option<PacketLogWriter>,
        captures: TimeShare,
    ) -> Self {
        Self {
            ports,
            link,
            rules,
            departures: [Departures::default(), Departures::default()],
            stats,
            observers: Observers::new(log, captures),
            load: RecentArrivals::default(),
            share: Share::default(),
            waits: false,
            arrears: Arrears::default(),
            cost: SendCost::default(),
            first: Side::A,
            begins: None,
        }
    }

    /// Stores the time of the first packet, with which the link begins, in `begins`.
    pub(super) fn announce_start(&mut self, begins: Arc<AtomicU64>) {
        self.begins = Some(begins);
    }

    /// Decides on the packets that arrived before `horizon` and sends those that are due by `now`,
    /// as far as `allowance` goes.
    pub(super) fn turn<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        horizon: Nanos,
        now: Nanos,
        allowance: Allowance,
    ) -> TurnEnd {
        self.observers.follow(now, horizon);
        self.decide(shared, horizon);
        let due = self.departures.iter().filter_map(Departures::next_due);
        self.arrears
            .note(due.min(), shared.latest, &mut shared.bound);
        self.depart_both(shared, now, Nanos::ZERO, allowance)
    }

    /// Prepares the packets that are due at the future time `at` and sends them then. Returns the
    /// time of the next turn.
    pub(super) fn turn_ahead<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        at: Nanos,
    ) -> Option<Nanos> {
        self.depart_both(shared, at, at, Allowance::UNLIMITED).next
    }

    /// Sends the packets that are due by `now`, but not before `not_before`.
    fn depart_both<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        now: Nanos,
        not_before: Nanos,
        mut allowance: Allowance,
    ) -> TurnEnd {
        let sides = [self.first, self.first.other()];
        let next = sides.map(|egress| self.depart(shared, egress, now, not_before, &mut allowance));
        let departures = next.into_iter().flatten();
        let is_cut = allowance.is_used_up() && departures.clone().any(|due| due <= now);
        if is_cut {
            // Otherwise one direction could use up every turn.
            self.first = self.first.other();
        }
        let others = [self.link.next_at(), self.observers.next_at()];
        TurnEnd {
            next: departures.chain(others.into_iter().flatten()).min(),
            is_cut,
        }
    }

    /// Counts a frame that its port could not deliver.
    pub(super) fn lose_unreadable(&mut self, arrival: Nanos, ingress: Side, cause: EmulatorLoss) {
        self.stats.lose(ingress, cause, 1);
        self.observers.decided(cause, || {
            let frame = FrameRef {
                arrival,
                offload: Offload::default(),
                vlan: None,
                bytes: &[],
            };
            ObservedPackets::whole_frame(ingress, frame, None)
        });
    }

    /// Offers a frame's packets to the link. Returns their number.
    pub(super) fn accept<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: Frame<P::Lent>,
    ) -> u32 {
        let gso = GsoFrame::of(&frame);
        let segments = gso.as_ref().map_or(1, GsoFrame::segments);
        self.observers.arrived(ingress, &frame, segments);
        match gso {
            Ok(gso) => self.offer(shared, ingress, frame, gso),
            Err(_) => self.lose_whole(ingress, &frame, None, EmulatorLoss::UnsupportedGso),
        }
        segments
    }

    /// Drops a frame because the forwarder cannot keep up with its rings and this link has used up
    /// its share of the intake.
    #[cold]
    pub(super) fn refuse<L: Lent>(&mut self, ingress: Side, frame: &Frame<L>) {
        let gso = GsoFrame::of(frame).ok();
        let segments = gso.as_ref().map_or(1, GsoFrame::segments);
        self.observers.arrived(ingress, frame, segments);
        self.lose_whole(ingress, frame, gso.as_ref(), EmulatorLoss::IntakeOverload);
    }

    /// Offers the packets of a frame to the link.
    fn offer<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: Frame<P::Lent>,
        gso: GsoFrame,
    ) {
        let segments = gso.segments();
        if is_link_control(frame.bytes()) {
            return self.pass(shared, ingress, &frame, &gso);
        }
        let copies = self.link.most_copies();
        if !shared.held.has_room(&frame, &gso, copies) {
            return self.lose_whole(ingress, &frame, Some(&gso), EmulatorLoss::Memory);
        }
        let arrival = frame.arrival;
        if let Some(begins) = self.begins.take() {
            begins.store(arrival.0, Ordering::Release);
        }
        let headers = Headers::of(&frame);
        let class = self.class_of(ingress, (&frame).into(), &headers);
        let origin = FrameOrigin {
            side: ingress,
            set: self.ports[ingress.index()].set,
            flow: self.stats.flows.number(headers.protocol, headers.ports),
            class,
        };
        // All segments except the last have the same length.
        let [len, last_len] = [0, segments - 1].map(|n| Bytes(gso.segment_len(n).into()));
        let first = shared.held.insert(origin, frame, gso, copies);
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
                shared.held.clamp(first, clamped);
            }
        }
    }

    /// Returns the class of a frame's packets: the number of the first rule that they match, or 0.
    fn class_of(&self, ingress: Side, frame: FrameRef<'_>, headers: &Headers) -> u16 {
        if self.rules.is_empty() {
            return 0;
        }
        let direction = match ingress {
            Side::A => Direction::Up,
            Side::B => Direction::Down,
        };
        self.rules
            .class_of(direction, &packet_fields(frame, headers))
    }

    /// Counts a frame with all its packets as lost by the emulator.
    #[cold]
    fn lose_whole<L: Lent>(
        &mut self,
        ingress: Side,
        frame: &Frame<L>,
        gso: Option<&GsoFrame>,
        cause: EmulatorLoss,
    ) {
        let packets = gso.map_or(1, GsoFrame::segments);
        self.stats.lose(ingress, cause, packets);
        self.observers
            .decided(cause, || ObservedPackets::whole_frame(ingress, frame, gso));
    }

    /// Sends a link-control frame immediately. If the other interface is down, the frame is lost as
    /// on a wire whose other end is down. That is not an error of the emulator: hosts report their
    /// multicast groups as soon as their own end is up.
    fn pass<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        ingress: Side,
        frame: &Frame<P::Lent>,
        gso: &GsoFrame,
    ) {
        self.stats.control[ingress.index()] += 1;
        let mut whole = [gso.part(frame, 0..gso.segments(), &mut shared.spare)];
        let mut sending = None;
        let (port, stats) = (self.ports[ingress.other().index()], &mut self.stats);
        send(
            &mut shared.sets,
            port,
            Nanos::ZERO,
            &mut whole,
            |_, sent| match sent {
                Ok(call) => sending = Some(call),
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) => stats.send_failed(ingress, 1, &error),
            },
        );
        whole
            .into_iter()
            .for_each(|sent| shared.spare.take_back(sent));
        self.observers
            .sent(PacketVerdict::LinkControl, sending, || {
                ObservedPackets::whole_frame(ingress, frame, Some(gso))
            });
    }

    /// Schedules or releases every packet on which the model has decided.
    fn decide<P: PortSet>(&mut self, shared: &mut ForwarderShared<P>, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Copied { id, .. } => shared.held.copied(id),
                Outcome::Deliver {
                    id,
                    copy,
                    due,
                    mark,
                    edit,
                } => {
                    let egress = shared.held.ingress(id).other();
                    let changes = Changes::new(copy, mark, edit);
                    self.departures[egress.index()].push(ScheduledDeparture { due, id, changes });
                }
                Outcome::Drop {
                    id,
                    copy,
                    cause,
                    reply,
                    ..
                } => {
                    if let Some(reply) = reply {
                        self.reply(shared, id, reply);
                    }
                    self.observers.decided(cause, || ObservedPackets {
                        changes: Changes::new(copy, false, None),
                        ..shared.held.observed(id, 1)
                    });
                    shared.held.release(id, 1);
                }
            }
        }
    }

    /// Tells the sender of a dropped packet the reason. The reply leaves immediately and does not
    /// cross the link.
    #[cold]
    fn reply<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        id: PacketId,
        Reply::TooBig { mtu }: Reply,
    ) {
        let (frame, gso) = shared.held.get(id);
        let segment = held_frames::segment(id);
        let mut packet = gso.part(frame, segment..segment + 1, &mut shared.spare);
        packet.complete_checksum();
        let reply = too_big(&[packet.head.bytes(), &packet.body].concat(), mtu);
        shared.spare.take_back(packet);
        let Some(reply) = reply else {
            return;
        };
        let ingress = shared.held.ingress(id);
        let (port, stats) = (self.ports[ingress.index()], &mut self.stats);
        stats.replies[ingress.index()] += 1;
        let mut reply = [TxFrame::from(reply)];
        let mut departure = None;
        send(
            &mut shared.sets,
            port,
            Nanos::ZERO,
            &mut reply,
            |_, sent| match sent {
                Ok(sending) => departure = Some(sending.ended),
                Err(error) => stats.reply_failed(ingress, &error),
            },
        );
        if let Some(departure) = departure {
            self.observers.replied(ingress, &reply[0], departure);
        }
    }

    /// Sends the packets that are due by `now` through `egress`, but not before `not_before`, as far
    /// as `allowance` goes. Returns the time of the next turn.
    fn depart<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        egress: Side,
        now: Nanos,
        not_before: Nanos,
        allowance: &mut Allowance,
    ) -> Option<Nanos> {
        loop {
            if self.arrears.is_overload() {
                self.drop_too_late(shared, egress);
            }
            let mut runs: ArrayVec<SegmentRun, BATCH> = ArrayVec::new();
            let mut wait = self.departures[egress.index()].next_due();
            while !runs.is_full() && !allowance.is_used_up() && wait.is_some_and(|due| due <= now) {
                match self.next_run(shared, egress, now, allowance.packets()) {
                    Ok(run) => {
                        allowance.spend(run.len, || run.bytes(&shared.held));
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
                self.send_runs(shared, egress, not_before, &runs);
            }
            if !runs.is_full() || allowance.is_used_up() {
                return wait;
            }
        }
    }

    /// Drops the packets at the front of the schedule that could leave only after the limit.
    #[cold]
    fn drop_too_late<P: PortSet>(&mut self, shared: &mut ForwarderShared<P>, egress: Side) {
        let limit = shared.bound.too_late_before(shared.latest);
        let schedule = &mut self.departures[egress.index()];
        for _ in 0..MOST_DROPPED {
            let Some(next) = schedule.get(0).filter(|next| next.due < limit) else {
                return;
            };
            schedule.pop();
            self.stats.lose(egress.other(), EmulatorLoss::Overload, 1);
            self.observers
                .decided(EmulatorLoss::Overload, || ObservedPackets {
                    due: std::slice::from_ref(&next.due),
                    changes: next.changes,
                    ..shared.held.observed(next.id, 1)
                });
            shared.held.release(next.id, 1);
        }
    }

    /// Takes the next run of at most `most` segments from the schedule, or returns the time until
    /// which the run must wait.
    fn next_run<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        egress: Side,
        now: Nanos,
        most: u32,
    ) -> Result<SegmentRun, Nanos> {
        let len = self.run_length(shared, egress, now, most)?;
        let schedule = &mut self.departures[egress.index()];
        let ScheduledDeparture { id, changes, .. } = schedule.get(0).ok_or(now)?;
        let due = (0..len).map_while(|_| schedule.pop());
        shared.due.extend(due.map(|next| next.due));
        Ok(SegmentRun {
            first: id,
            len,
            changes,
        })
    }

    /// Returns the number of neighbouring segments at the front of the schedule that are due, up to
    /// `most`. If the next neighbour follows within the quantum, returns its due time as an error.
    /// Copies and changed packets leave separately.
    fn run_length<P: PortSet>(
        &self,
        shared: &ForwarderShared<P>,
        egress: Side,
        now: Nanos,
        most: u32,
    ) -> Result<u32, Nanos> {
        let schedule = &self.departures[egress.index()];
        let front = schedule.get(0).ok_or(now)?;
        let (due, first) = (front.due, front.id);
        let gso = shared.held.gso(first);
        let capabilities = shared.sets[self.ports[egress.index()].set()].capabilities();
        let longest = match () {
            () if !capabilities.gso || !front.changes.is_none() => 1,
            () if capabilities.tunnel_gso => gso.longest_train(),
            () => gso.longest_run(),
        }
        .min(most);
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
                    let last = held_frames::segment(first) + len == gso.segments();
                    let undecided = self.link.next_at().filter(|at| !last && soon(*at));
                    return undecided.map_or(Ok(len), Err);
                }
            }
        }
        Ok(longest)
    }

    /// Sends runs that were taken from the schedule, but not before `not_before`, and releases
    /// them.
    fn send_runs<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        egress: Side,
        not_before: Nanos,
        runs: &[SegmentRun],
    ) {
        let ForwarderShared {
            sets,
            held,
            due,
            spare,
            latest,
            ..
        } = shared;
        let (port, stats) = (self.ports[egress.index()], &mut self.stats);
        let trains = sets[port.set()].capabilities().tunnel_gso;
        let mut frames: ArrayVec<TxFrame<'_>, BATCH> = runs
            .iter()
            .map(|run| run.frame(held, spare, trains))
            .collect();
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
        if let (Some(first), Some(last)) = (sendings[0], sendings[runs.len() - 1]) {
            let took = Nanos(last.ended.0.saturating_sub(first.begun.0));
            self.cost.learn(took, runs.iter().map(|run| run.len).sum());
            *latest = last.ended.max(*latest);
        }
        let mut rest = due.as_slice();
        for (run, sending) in runs.iter().zip(sendings) {
            let (due, after) = rest.split_at(run.len as usize);
            rest = after;
            if let Some(sending) = sending {
                self.stats.left(egress.other(), run.len, run.bytes(held));
                self.stats
                    .record_delays(egress.other(), held.arrival(run.first), due);
                let whose = held.lateness(run.first);
                for equal in due.chunk_by(|a, b| a == b) {
                    let (due, count) = (equal[0], equal.len() as u64);
                    self.stats
                        .departed(egress.other(), whose, due, sending, count);
                }
            }
            self.observers.sent(PacketVerdict::Delivered, sending, || {
                run.observed(held, due)
            });
            held.release(run.first, run.len);
        }
        due.clear();
    }

    /// Returns the average time that a packet of this link takes to be sent.
    pub(super) fn cost(&self) -> SendCost {
        self.cost
    }

    /// Records a time in which the host did not run this thread.
    pub(super) fn stalled(&mut self, stall: Stall) {
        self.stats.stalls.note(stall);
    }

    /// Puts new conditions into force at `at`, or as soon after it as the link can. Returns the
    /// time of the change.
    ///
    /// # Errors
    /// Fails if the link refuses the conditions, which then stay unchanged.
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

    /// Gives up the packets that are still on their way and ends the packet log with them. Returns
    /// the summary of the log.
    pub(super) fn finish<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
    ) -> Option<PacketLogSummary> {
        // Time zero yields only the outcomes that are already decided.
        self.decide(shared, Nanos::ZERO);
        let undecided = self.link.stop();
        let scheduled = self
            .departures
            .iter_mut()
            .flat_map(|schedule| iter::from_fn(|| schedule.pop()))
            .map(|next| (next.id, Some(next.due), next.changes));
        let undecided = undecided
            .into_iter()
            .map(|(id, copy)| (id, None, Changes::new(copy, false, None)));
        for (id, due, changes) in scheduled.chain(undecided) {
            self.observers.held(|| ObservedPackets {
                due: due.as_slice(),
                changes,
                ..shared.held.observed(id, 1)
            });
        }
        self.observers.finish()
    }

    /// Returns all counters. The cost does not grow with the number of packets, because packets
    /// wait meanwhile.
    pub(super) fn stats(&mut self) -> &mut Stats {
        for side in [Side::A, Side::B] {
            self.stats.link[side.index()] = self.link.by_class(side).to_vec();
        }
        self.stats.shares = ShareSummary::of(self.link.stages());
        self.stats.delays = DelaySummary::of(self.link.stages());
        &mut self.stats
    }

    /// Returns the backlog at the bottleneck of each direction at `at`, by ingress side.
    pub(super) fn backlogs(&self, at: Nanos) -> [Option<Waiting>; 2] {
        Side::BOTH.map(|ingress| self.link.backlog(at, ingress))
    }

    /// Returns the queue and the drops at `at`.
    pub(super) fn queue_state(&self, at: Nanos) -> QueueState {
        let all = |ingress| {
            let classes = self.link.by_class(ingress).iter();
            classes.fold(Counters::default(), |sum, class| sum + *class)
        };
        QueueState {
            backlogs: self.backlogs(at),
            counters: Side::BOTH.map(all),
        }
    }

    /// Returns the departures up to now, by kind.
    pub(super) fn departures(&self) -> Vec<FlowDepartures> {
        self.stats.flows.departures()
    }

    /// Returns the least time between the arrival of a packet and its due time.
    pub(super) fn least_delay(&self) -> Nanos {
        self.link.least_delay()
    }
}

/// Sends `frames` through `port`, after completing the checksums that the port cannot complete.
fn send<P: PortSet>(
    sets: &mut [P],
    port: PortId,
    not_before: Nanos,
    frames: &mut [TxFrame<'_>],
    mut sent: impl FnMut(usize, io::Result<SendTimes>),
) {
    let set = &mut sets[port.set()];
    if !set.capabilities().checksum {
        frames.iter_mut().for_each(TxFrame::complete_checksum);
    }
    set.send(port.port(), not_before, frames, &mut sent);
}
