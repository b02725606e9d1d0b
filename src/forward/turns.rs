//! The order in which links take turns, and the time of the next turn.

use std::collections::VecDeque;

use model::Nanos;
use netio::PortSet;

use super::Forwarder;
use super::allowance::{Allowance, TurnReason};
use super::link_runner::{LinkRunner, TurnEnd, WaitsIn};
use super::recent_arrivals::{ROUND, RecentArrivals};

/// The time after which a forwarder of several links looks for arrivals again, although more links
/// have something to do.
const LONGEST_WITHOUT_INTAKE: Nanos = Nanos(50_000);

/// The load of several links. A link under high load takes its turns together with all others under
/// high load, in rounds that begin every [`ROUND`]; the others are paced to their due times.
#[derive(Debug, Default)]
pub(super) struct LoadOfLinks {
    /// The arrivals of all links.
    all: RecentArrivals,
    /// The arrivals of the links that are not under high load themselves.
    quiet: RecentArrivals,
    /// The links that wait for the next round.
    for_round: Vec<u32>,
    /// The links that have used up their allowance and have more to send, in the order of their turns.
    behind: VecDeque<u32>,
    /// The links that have more to drop than a turn allows, in the order of their turns.
    dropping: VecDeque<u32>,
    /// The time of the next round.
    round: Nanos,
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
            if let Some(link) = self.agenda.take(now) {
                let all = Allowance::UNLIMITED;
                let end = self.runners[link as usize].turn(&mut self.shared, horizon, now, all);
                self.agenda.set(link, end.next);
            }
            return false;
        }
        while self.shared.latest <= now + LONGEST_WITHOUT_INTAKE
            && let Some(link) = self.agenda.take(now)
        {
            let end = self.limited_turn(link, now, horizon, TurnReason::Due);
            self.served.push((link, end));
        }
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
        self.plan_next(link, end, now);
        end
    }

    /// Gives a turn to one of several links.
    fn limited_turn(
        &mut self,
        link: u32,
        now: Nanos,
        horizon: Nanos,
        reason: TurnReason,
    ) -> TurnEnd {
        let runner = &mut self.runners[link as usize];
        let next = self.agenda.next();
        let allowance = Allowance::of_turn(self.shared.latest, next, runner.cost(), reason);
        runner.turn(&mut self.shared, horizon, now, allowance)
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
            _ if self.load.quiet.is_high(now) => Pace::Round(now + ROUND),
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
        self.all.arrived(at);
        if !runner.load.is_high(at) {
            self.quiet.arrived(at);
        } else if at < self.round {
            self.wait_for_round(link, runner);
        }
        runner.waits_in != WaitsIn::None
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
