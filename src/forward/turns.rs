//! The order in which links take turns, the calls that send their packets, and the time of the next
//! turn.

use std::collections::VecDeque;
use std::io;
use std::mem;

use arrayvec::ArrayVec;
use model::Nanos;
use netio::{PortSet, SendTimes, TxFrame};

use super::allowance::{Allowance, TurnReason};
use super::link_runner::{ForwarderShared, LinkRunner, TurnEnd, WaitsIn};
use super::recent_frames::{ROUND, RecentFrames};
use super::send_batch::BatchedRun;
use super::{BATCH, Forwarder};

/// The time after which a forwarder of several links looks for arrivals again, although more links
/// have something to do.
const LONGEST_WITHOUT_INTAKE: Nanos = Nanos(50_000);

/// The load of several links. A link under high load takes its turns together with all others under
/// high load, in rounds that begin every [`ROUND`]; the others are paced to their due times.
#[derive(Debug, Default)]
pub(super) struct LoadOfLinks {
    /// The arrivals of all links.
    all: RecentFrames,
    /// The arrivals of the links that are not under high load themselves.
    quiet: RecentFrames,
    /// The departures from those links, which their queues may spread over a time without arrivals.
    quiet_departures: RecentFrames,
    /// The links that wait for the next round.
    for_round: Vec<u32>,
    /// The links under high load over which others take precedence in this step, with their appointments.
    passed_over: Vec<(Nanos, u32)>,
    /// The links that have used up their allowance and have more to send, in the order of their turns.
    behind: VecDeque<u32>,
    /// The links that have more to drop than a turn allows, in the order of their turns.
    dropping: VecDeque<u32>,
    /// True if the latest step beside a busy link took in frames, so that the next one serves links.
    has_taken_in: bool,
    /// The time of the next round.
    round: Nanos,
    /// The end of the latest rest, in which only links that are not under high load take turns.
    rest: Nanos,
}

/// The way in which the forwarder waits for its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The step begins at the next due time, or at an arrival before it.
    Exact,
    /// The step begins at this time, regardless of arrivals and due times.
    Round(Nanos),
    /// The step begins at this time, regardless of arrivals, or at the next due time, which is
    /// earlier.
    RoundOrDue(Nanos),
}

impl<P: PortSet> Forwarder<P> {
    /// Gives a turn to each link that has something to do by `now`. Of several links, each sends at
    /// most its allowance. One that has used it up gets its next turn after the links that are due by
    /// then, and only one such turn is part of a step, because frames of others may have arrived
    /// meanwhile. A turn that ends because a link has more to drop is none of these, so that such a link
    /// neither keeps others from sending nor drops fewer packets than arrive. Returns true if more is due
    /// now.
    pub(super) fn serve(&mut self, now: Nanos, horizon: Nanos) -> bool {
        if self.runners.len() == 1 {
            if let Some((_, link)) = self.agenda.take(now) {
                let all = Allowance::UNLIMITED;
                let end = self.runners[link as usize].turn(&mut self.shared, horizon, now, all);
                self.agenda.set(link, end.next);
            }
            return false;
        }
        while self.shared.expected() <= now + LONGEST_WITHOUT_INTAKE
            && let Some((_, link)) = self.agenda.take(now)
        {
            let end = self.limited_turn(link, now, horizon, TurnReason::Due);
            self.served.push((link, end));
        }
        self.send_batch();
        for place in 0..self.served.len() {
            let (link, end) = self.served[place];
            self.plan_next(link, end, now);
        }
        self.served.clear();
        let dropping = self.load.dropping.pop_front();
        let others_may_send =
            dropping.is_none_or(|link| self.turn_of_list(link, now, horizon).drops_more);
        if others_may_send && let Some(link) = self.load.behind.pop_front() {
            self.turn_of_list(link, now, horizon);
        }
        self.load.has_cut() || self.agenda.next().is_some_and(|at| at <= now)
    }

    /// Gives a turn to each link that has something to do by `now`, except to those under high load, before frames
    /// are taken in. In a rest, those under high load wait for its end.
    pub(super) fn serve_quiet(&mut self, now: Nanos) {
        let rests = self.load.rests(now);
        for set in &mut self.shared.sets {
            set.refresh(now);
        }
        // Frames that have arrived wait, so nothing after them can be decided yet, and no load after them is known.
        let horizon = self.next_arrival().map_or(now, |(at, _)| at.min(now));
        while self.shared.expected() <= now + LONGEST_WITHOUT_INTAKE
            && let Some((at, link)) = self.agenda.take(now)
        {
            let runner = &mut self.runners[link as usize];
            if !runner.load.is_high(horizon) {
                let end = self.limited_turn(link, now, horizon, TurnReason::Due);
                self.served.push((link, end));
            } else if rests {
                self.load.wait_for_round(link, runner);
            } else {
                self.load.passed_over.push((at, link));
            }
        }
        for (at, link) in self.load.passed_over.drain(..) {
            self.agenda.set(link, Some(at));
        }
        self.send_batch();
        for place in 0..self.served.len() {
            let (link, end) = self.served[place];
            let waits_for_arrival = !end.is_cut && end.next.is_some_and(|at| at <= now);
            if rests && waits_for_arrival {
                // Nothing can be decided before the end of the rest, but packets may be due.
                let due = self.runners[link as usize].next_due();
                self.agenda.set(link, Some(self.load.end_of_rest(due)));
            } else {
                self.plan_next(link, end, horizon);
            }
        }
        self.served.clear();
    }

    /// Gives a turn to a link that was taken from a list of those whose turn was cut, and plans its next
    /// one.
    fn turn_of_list(&mut self, link: u32, now: Nanos, horizon: Nanos) -> TurnEnd {
        self.runners[link as usize].waits_in = WaitsIn::None;
        let reason = if self.shared.rings.is_overload() {
            TurnReason::BesideFullRings
        } else {
            TurnReason::Behind
        };
        let end = self.limited_turn(link, now, horizon, reason);
        self.send_batch();
        self.plan_next(link, end, now);
        end
    }

    /// Gives a turn to one of several links, whose packets leave with those of others.
    fn limited_turn(
        &mut self,
        link: u32,
        now: Nanos,
        horizon: Nanos,
        reason: TurnReason,
    ) -> TurnEnd {
        self.begin_turn(link);
        let runner = &mut self.runners[link as usize];
        let next = self.agenda.next();
        let begins = self.shared.expected() + self.shared.intake_cost.until_sent();
        let allowance = Allowance::of_turn(begins, next, runner.cost(), reason);
        let end = runner.turn(&mut self.shared, horizon, now, allowance);
        self.end_turn(link);
        end
    }

    /// Notes that the turn of a link begins. If the link usually has many packets to send, the others'
    /// packets leave before, because its decisions take time.
    fn begin_turn(&mut self, link: u32) {
        if self.runners[link as usize].sends_alone {
            self.send_batch();
        }
        self.shared.batch.begin_turn();
    }

    /// Notes that the turn of a link has ended, and sends the batch if it is complete.
    fn end_turn(&mut self, link: u32) {
        let batch = &self.shared.batch;
        if batch.has_turn() {
            self.runners[link as usize].sends_alone = batch.has_long_turn();
        }
        if batch.is_complete() {
            self.send_batch();
        }
    }

    /// Sends all packets of the batch in the order of their turns.
    fn send_batch(&mut self) {
        if self.shared.batch.is_empty() {
            return;
        }
        let (runs, first) = self.shared.batch.take();
        let mut due = mem::take(&mut self.shared.due);
        let mut rest = due.as_slice();
        let (before, after) = runs.split_at(first);
        for part in [before, after] {
            for of_set in part.chunk_by(|a, b| a.port.set == b.port.set) {
                for together in of_set.chunks(BATCH) {
                    rest = self.send_together(together, rest);
                }
            }
        }
        due.clear();
        self.shared.due = due;
        self.shared.batch.reuse(runs);
    }

    /// Sends these runs, which leave by ports of one set, and releases them. `due` begins with their due
    /// times. Returns the rest of it.
    fn send_together<'d>(&mut self, runs: &[BatchedRun], due: &'d [Nanos]) -> &'d [Nanos] {
        let Self {
            runners,
            shared,
            load,
            ..
        } = self;
        let ForwarderShared {
            sets,
            held,
            spare,
            latest,
            intake_cost,
            ..
        } = shared;
        let set = &mut sets[runs[0].port.set()];
        let capabilities = set.capabilities();
        let trains = capabilities.tunnel_gso;
        let mut frames: ArrayVec<TxFrame<'_>, BATCH> = runs
            .iter()
            .map(|of| of.run.frame(held, spare, trains))
            .collect();
        if !capabilities.checksum {
            frames.iter_mut().for_each(TxFrame::complete_checksum);
        }
        let ports: ArrayVec<usize, BATCH> = runs.iter().map(|of| of.port.port()).collect();
        let mut sendings = [None; BATCH];
        let mut refused = |index: usize, error: &io::Error| {
            let BatchedRun {
                link, egress, run, ..
            } = &runs[index];
            runners[*link as usize].send_failed(*egress, run.len, error);
        };
        set.send_each(&ports, &frames, &mut |index, sent| match sent {
            Ok(sending) => sendings[index] = Some(sending),
            Err(error) => refused(index, &error),
        });
        frames.into_iter().for_each(|sent| spare.take_back(sent));
        let mut sent = sendings.iter().flatten();
        let mut took = None;
        if let Some(first) = sent.next() {
            let last = sent.next_back().unwrap_or(first);
            took = Some(last.ended - first.begun);
            intake_cost.sent(first.begun);
            *latest = last.ended.max(*latest);
        }
        let packets: u32 = runs.iter().map(|of| of.run.len).sum();
        let mut rest = due;
        for (of, sending) in runs.iter().zip(sendings) {
            let (due, after) = rest.split_at(of.run.len as usize);
            rest = after;
            let runner = &mut runners[of.link as usize];
            if let Some(took) = took {
                runner.learn_cost(took, packets);
            }
            if let Some(SendTimes { ended, .. }) = sending {
                load.departed(ended, runner);
            }
            runner.finish_run(held, of.egress, &of.run, due, sending);
        }
        rest
    }

    /// Plans the next turn of one of several links.
    fn plan_next(&mut self, link: u32, end: TurnEnd, now: Nanos) {
        let runner = &mut self.runners[link as usize];
        let next = end.next;
        if end.drops_more {
            self.load.wait_to_drop(link, runner);
        } else if end.is_cut {
            self.load.wait_behind(link, runner);
        } else if next.is_some_and(|at| at < self.load.round) && runner.load.is_high(now) {
            self.load.wait_for_round(link, runner);
        } else {
            self.agenda.set(link, next);
        }
    }

    /// Gives the links that wait for the next round an appointment, if it is time.
    pub(super) fn begin_round(&mut self, now: Nanos) {
        if now < self.load.round {
            return;
        }
        self.load.round = now + ROUND;
        for link in self.load.for_round.drain(..) {
            self.runners[link as usize].waits_in = WaitsIn::None;
            self.agenda.at_latest(link, now);
        }
    }

    /// Returns the way to wait after a step that began at `now`.
    pub(crate) fn pace(&self, now: Nanos) -> Pace {
        match &self.runners[..] {
            [runner] if runner.load.is_high(now) => Pace::Round(now + ROUND),
            [_] => Pace::Exact,
            _ if self.load.rests(now) => Pace::RoundOrDue(self.load.rest),
            _ if self.load.quiet.is_high(now) || self.load.quiet_departures.is_high(now) => {
                Pace::Round(now + ROUND)
            }
            _ if self.load.all.is_high(now) || !self.load.for_round.is_empty() => {
                Pace::RoundOrDue(self.load.round)
            }
            _ => Pace::Exact,
        }
    }
}

impl LoadOfLinks {
    /// Counts a frame of a link. Returns true if the link waits for a turn and needs no appointment.
    pub(super) fn arrived(&mut self, at: Nanos, link: u32, runner: &mut LinkRunner) -> bool {
        self.all.count(at);
        if !runner.load.is_high(at) {
            self.quiet.count(at);
        } else if at < self.round {
            self.wait_for_round(link, runner);
        }
        runner.waits_in != WaitsIn::None
    }

    /// Counts a frame that has left a link.
    fn departed(&mut self, at: Nanos, runner: &LinkRunner) {
        if !runner.load.is_high(at) {
            self.quiet_departures.count(at);
        }
    }

    /// Lets the links under high load wait until `until`, unless the load of all links was low at `known`.
    pub(super) fn rest(&mut self, known: Nanos, until: Nanos) -> bool {
        let is_busy = self.all.is_high(known) || self.has_cut();
        if is_busy {
            self.rest = until;
            self.round = until;
        }
        is_busy
    }

    /// Returns true if links under high load wait for the end of a rest.
    pub(super) fn rests(&self, now: Nanos) -> bool {
        now < self.rest
    }

    /// Returns true if a step beside a busy link takes in frames, which it does every other time.
    pub(super) fn takes_in(&mut self) -> bool {
        self.has_taken_in = !self.has_taken_in;
        self.has_taken_in
    }

    /// Returns true if links are under high load at `now`, and the others together are not.
    pub(super) fn is_uneven(&self, now: Nanos) -> bool {
        (self.all.is_high(now) || self.has_cut()) && !self.quiet.is_high(now)
    }

    /// Returns the time of the next step in a rest, if another link has something to do at `next`.
    pub(super) fn end_of_rest(&self, next: Option<Nanos>) -> Nanos {
        next.map_or(self.rest, |next| next.min(self.rest))
    }

    /// Returns the time of the next round if a link waits for it.
    pub(super) fn next_round(&self) -> Option<Nanos> {
        (!self.for_round.is_empty()).then_some(self.round)
    }

    fn wait_for_round(&mut self, link: u32, runner: &mut LinkRunner) {
        if runner.waits_in == WaitsIn::None {
            runner.waits_in = WaitsIn::ForRound;
            self.for_round.push(link);
        }
    }

    /// Returns true if the turn of a link was cut.
    fn has_cut(&self) -> bool {
        !self.behind.is_empty() || !self.dropping.is_empty()
    }

    fn wait_to_drop(&mut self, link: u32, runner: &mut LinkRunner) {
        if runner.waits_in == WaitsIn::None {
            runner.waits_in = WaitsIn::Dropping;
            self.dropping.push_back(link);
        }
    }

    fn wait_behind(&mut self, link: u32, runner: &mut LinkRunner) {
        if runner.waits_in == WaitsIn::None {
            runner.waits_in = WaitsIn::Behind;
            self.behind.push_back(link);
        }
    }
}
