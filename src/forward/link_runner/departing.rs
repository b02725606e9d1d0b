//! The way of packets out of their link: the model's decisions, the schedule, and the calls that send.

use std::io;

use arrayvec::ArrayVec;
use model::{Nanos, Outcome, PacketId, Reply, Side};
use netio::{Lent, PortSet, SendTimes, TxFrame, too_big};

use super::{ForwarderShared, LinkRunner, send};
use crate::forward::allowance::Allowance;
use crate::forward::departures::{Changes, ScheduledDeparture};
use crate::forward::held_frames::{self, HeldFrames};
use crate::forward::observed::{ObservedPackets, PacketVerdict};
use crate::forward::segment_run::SegmentRun;
use crate::forward::stats::EmulatorLoss;
use crate::forward::{BATCH, JOIN_WITHIN};

impl LinkRunner {
    /// Schedules or releases every packet on which the model has decided.
    pub(super) fn decide<P: PortSet>(&mut self, shared: &mut ForwarderShared<P>, now: Nanos) {
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
                    hop,
                    ..
                } => {
                    if let Some(reply) = reply {
                        self.reply(shared, id, reply);
                    }
                    let hops = self.link.hops();
                    let place = usize::from(hop).checked_sub(1);
                    self.observers.decided(cause, || ObservedPackets {
                        changes: Changes::new(copy, false, None),
                        hop: place.map(|place| hops[place].name()),
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
    /// as `allowance` goes, and drops at most `drops` packets that are too late. With a limited allowance,
    /// the packets are added to the batch of all links instead of sent. Returns the time of the next turn.
    pub(super) fn depart<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        egress: Side,
        now: Nanos,
        not_before: Nanos,
        allowance: &mut Allowance,
        drops: &mut u32,
    ) -> Option<Nanos> {
        loop {
            if self.arrears.is_overload() && !self.drop_too_late(shared, egress, drops) {
                return self.departures[egress.index()].next_due();
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
            let is_full = runs.is_full();
            if !runs.is_empty() && allowance.is_limited() {
                let way_out = (egress, self.ports[egress.index()]);
                let runs = runs.drain(..);
                shared.batch.add(self.number, way_out, self.cost, runs);
            } else if !runs.is_empty() {
                self.send_runs(shared, egress, not_before, &runs);
            }
            let is_more_due = wait.is_some_and(|due| due <= now);
            if !is_full || allowance.is_used_up() || !is_more_due {
                return wait;
            }
            // A link that is alone sends all that is due in one turn, which takes time itself.
            shared.bound.time_has_passed();
            self.note_arrears(shared);
        }
    }

    /// Drops the packets at the front of the schedule that could leave only after the limit, at most
    /// `most`, from which it subtracts their number. Returns true if it has dropped all of them.
    #[cold]
    fn drop_too_late<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        egress: Side,
        most: &mut u32,
    ) -> bool {
        let limit = shared.bound.too_late_before(shared.latest);
        let schedule = &mut self.departures[egress.index()];
        while let Some(next) = schedule.get(0).filter(|next| next.due < limit) {
            if *most == 0 {
                return false;
            }
            *most -= 1;
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
        true
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
    /// `most`. If the next neighbour follows within [`JOIN_WITHIN`], returns its due time as an error.
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
        let soon = |at: Nanos| at > now && at <= due + JOIN_WITHIN;
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
            intake_cost,
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
            if not_before == Nanos::ZERO {
                intake_cost.sent(first.begun);
            }
            *latest = last.ended.max(*latest);
        }
        let mut rest = due.as_slice();
        for (run, sending) in runs.iter().zip(sendings) {
            let (due, after) = rest.split_at(run.len as usize);
            rest = after;
            self.finish_run(held, egress, run, due, sending);
        }
        due.clear();
    }

    /// Counts a run after the call that sent it, and releases its packets. Without `sending`, the port
    /// has refused it.
    #[inline]
    pub(in crate::forward) fn finish_run<L: Lent>(
        &mut self,
        held: &mut HeldFrames<L>,
        egress: Side,
        run: &SegmentRun,
        due: &[Nanos],
        sending: Option<SendTimes>,
    ) {
        let ingress = egress.other();
        if let Some(sending) = sending {
            self.stats.left(ingress, run.len, run.bytes(held));
            self.stats
                .record_delays(ingress, held.arrival(run.first), due);
            let whose = held.lateness(run.first);
            for equal in due.chunk_by(|a, b| a == b) {
                let (due, count) = (equal[0], equal.len() as u64);
                self.stats.departed(ingress, whose, due, sending, count);
            }
        }
        self.observers.sent(PacketVerdict::Delivered, sending, || {
            run.observed(held, due)
        });
        held.release(run.first, run.len);
    }

    /// Counts packets that the port of `egress` has refused.
    pub(in crate::forward) fn send_failed(
        &mut self,
        egress: Side,
        packets: u32,
        error: &io::Error,
    ) {
        self.stats.send_failed(egress.other(), packets, error);
    }
}
