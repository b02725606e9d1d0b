//! A running link: its conditions, their history, and how they are changed.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conditions::{Error, LinkSpec};
use model::{Nanos, ScheduleClock, ScheduleOrder};
use netio::clock;
use tokio::sync::{broadcast, watch};

use super::bounded_history::BoundedHistory;
use super::change::{ChangeOrder, ChangeRefusal, Origin, check_memory};
use super::checked_conditions::CheckedConditions;
use super::counters::{DirectionCounters, LinkCounters};
use super::export::ChangeLog;
use super::keeper::ExpiryAlarm;
use super::lease::{Before, Lease, LeaseGrant, LeaseId};
use super::meter::LinkMeter;
use super::moment::{Calendar, seconds, since};
use super::sample::{Event, EventJournal, Happening};
use super::view::{By, ChangeView, Changed, LinkView, ScheduleTime, ScheduleView};
use super::words::{command_line, in_force};
use super::{BuildLink, NewLink, lock};
use crate::forward::NewConditions;
use crate::forward::capture::{Capture, CaptureHandle};
use crate::forward::thread::{Ended, ForwarderHandle, LinkReading};
use crate::notes::log;

/// Revisions whose conditions and counters are kept, at most.
const KEPT: usize = 1_000;

/// In how long a lease that could not end is ended again.
const AGAIN: Duration = Duration::from_millis(10);

/// A link that runs.
pub(crate) struct LiveLink {
    name: String,
    ends: [String; 2],
    forwarder: ForwarderHandle,
    number: usize,
    build: Result<BuildLink, String>,
    calendar: Calendar,
    state: Mutex<LinkState>,
    journal: Mutex<EventJournal>,
    over: watch::Sender<bool>,
    keeper: Arc<ExpiryAlarm>,
}

/// What changes of a link. Its lock is held for a moment only: conditions are checked before, and what clients see is made after.
struct LinkState {
    /// The last one is in force; there always is one.
    revisions: BoundedHistory<Arc<Revision>>,
    /// The conditions in force.
    conditions: Arc<CheckedConditions>,
    lease: Option<Lease>,
    /// The names of classes in their order: the forwarder counts by their places.
    classes: Vec<String>,
}

/// What was in force from an instant on, and what had been counted by then.
struct Revision {
    number: u64,
    at: Nanos,
    spec: Arc<LinkSpec>,
    /// The conditions in one line.
    said: Arc<str>,
    /// By which its schedules count.
    clock: ScheduleClock,
    by: By,
    counted: [DirectionCounters; 2],
}

impl LiveLink {
    pub(super) fn new(new: NewLink, keeper: Arc<ExpiryAlarm>) -> Self {
        let spec = Arc::new(new.spec);
        let conditions = CheckedConditions::of(Arc::clone(&spec), new.build.as_ref().ok());
        // Those with which a link began were checked at its start.
        let conditions = Arc::new(conditions.unwrap_or_else(|_| CheckedConditions {
            spec,
            ..CheckedConditions::default()
        }));
        let first = Revision {
            number: 1,
            at: new.forwarder.start(),
            by: By::Start,
            counted: Default::default(),
            clock: ScheduleClock::default(),
            spec: Arc::clone(&conditions.spec),
            said: Arc::clone(&conditions.said),
        };
        let classes = class_names(&first.spec);
        let mut revisions = BoundedHistory::at_most(KEPT);
        let bytes = first.memory();
        revisions.push(Arc::new(first), bytes);
        new.forwarder.watch(new.number);
        Self {
            name: new.name,
            ends: new.ends,
            forwarder: new.forwarder,
            number: new.number,
            build: new.build,
            calendar: Calendar::now(),
            state: Mutex::new(LinkState {
                revisions,
                conditions,
                lease: None,
                classes,
            }),
            journal: Mutex::default(),
            over: watch::Sender::new(false),
            keeper,
        }
    }

    /// As users name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// As it is now.
    pub(crate) fn view(&self) -> LinkView {
        let (revision, lease) = {
            let state = lock(&self.state);
            (Arc::clone(state.in_force()), state.lease.clone())
        };
        self.view_of(&revision, lease.as_ref(), false)
    }

    /// Makes the change that is asked for, at one instant in both directions; or none. Conditions are checked while packets pass and
    /// others read the link; if another change is made meanwhile, they are checked again.
    ///
    /// # Errors
    /// Conditions that cannot be, another revision in force, somebody else's lease, a change that is not checked by `deadline`, or the
    /// link's end: nothing is changed.
    pub(crate) fn change(
        &self,
        order: &ChangeOrder,
        deadline: Nanos,
    ) -> Result<Changed, ChangeRefusal> {
        loop {
            let (now, lease, classes) = {
                let state = lock(&self.state);
                self.check_order(&state, order)?;
                let lease = state.lease.as_ref();
                let lease = lease.map(|lease| Arc::clone(&lease.before.conditions));
                (state.as_before(), lease, state.classes.clone())
            };
            let (spec, schedule) = order.conditions.over(&now.conditions.spec)?;
            // Conditions without a schedule keep no time for a later schedule.
            let clock = match spec.has_schedule() {
                true => now.clock,
                false => ScheduleClock::default(),
            };
            check_classes(&classes, &spec)?;
            check_memory(&spec, self.forwarder.held_memory())?;
            let next = match Arc::ptr_eq(&spec, &now.conditions.spec) {
                true => Arc::clone(&now.conditions),
                false => Arc::new(CheckedConditions::of(spec, self.build.as_ref().ok())?),
            };
            if let Some(back) = lease.or(order.lease_for.map(|_| Arc::clone(&now.conditions))) {
                let checked = next.check_successor(&back);
                checked
                    .map_err(|error| ChangeRefusal::of_model(&back.spec, error))
                    .map_err(ChangeRefusal::of_the_way_back)?;
            }
            if order.is_dry_run {
                let checked = now.conditions.check_successor(&next);
                checked.map_err(|error| ChangeRefusal::of_model(&next.spec, error))?;
            }
            if clock::now() > deadline {
                return Err(ChangeRefusal::TooLong);
            }
            if order.is_dry_run {
                return self.would_change(&next, (clock, schedule));
            }
            let new = self.to_forwarder(&next, (clock, schedule))?;
            let mut state = lock(&self.state);
            if state.in_force().number != now.revision {
                continue;
            }
            let reading = self.put_into_force(&mut state, next, new, By::Api)?;
            if let Some(span) = order.lease_for {
                match &mut state.lease {
                    Some(lease) => lease.renew(span, reading.at),
                    none => *none = Some(Lease::begin(span, reading.at, now)),
                }
                self.keeper.ring();
            }
            self.log_change(&state, order);
            let (revision, lease) = (Arc::clone(state.in_force()), state.lease.clone());
            drop(state);
            let grant = lease.as_ref().and_then(Lease::grant);
            let view = self.view_of(&revision, lease.as_ref(), true);
            return Ok(Changed {
                grant: grant.filter(|_| order.lease_for.is_some()),
                ..self.changed(&reading, view, false)
            });
        }
    }

    /// Tells what a change to `next` would do now.
    fn would_change(
        &self,
        next: &CheckedConditions,
        (clock, schedule): (ScheduleClock, ScheduleOrder),
    ) -> Result<Changed, ChangeRefusal> {
        let now = self.forwarder.read(self.number)?;
        let revision = Arc::clone(lock(&self.state).in_force());
        let would = Revision {
            spec: Arc::clone(&next.spec),
            said: Arc::clone(&next.said),
            clock: clock.ordered(self.link_time(now.at), schedule),
            counted: Default::default(),
            ..*revision
        };
        let view = self.view_of(&would, None, false);
        Ok(self.changed(&now, view, true))
    }

    /// Ends the lease now, or this one if it still stands; the link reverts.
    ///
    /// # Errors
    /// There is none, or another one; the link's end.
    pub(crate) fn end_lease(
        &self,
        id: Option<&LeaseId>,
        origin: &Origin,
    ) -> Result<Changed, ChangeRefusal> {
        let mut state = lock(&self.state);
        let is_it = |lease: &Lease| id.is_none_or(|id| *id == lease.id);
        if !state.lease.as_ref().is_some_and(is_it) {
            return Err(ChangeRefusal::NoLease);
        }
        let reading = self.revert(&mut state, format_args!("by {origin}"))?;
        let revision = Arc::clone(state.in_force());
        drop(state);
        let view = self.view_of(&revision, None, false);
        Ok(self.changed(&reading, view, false))
    }

    /// What was counted since a revision came into force; since the start, where none is said. `None` of one that is not
    /// kept, or never was.
    ///
    /// # Errors
    /// The link's end.
    pub(crate) fn counters(&self, revision: Option<u64>) -> Result<Option<LinkCounters>, Ended> {
        let number = revision.unwrap_or(1);
        let of = lock(&self.state).revision(number).cloned();
        let (since_then, counted) = match &of {
            Some(of) => (of.at, of.counted.clone()),
            None if number == 1 => (self.forwarder.start(), Default::default()),
            None => return Ok(None),
        };
        let now = self.forwarder.read(self.number)?;
        let [up, down] = [&now.summary.up, &now.summary.down].map(DirectionCounters::of);
        Ok(Some(LinkCounters {
            since_revision: number,
            since: self.calendar.at(since_then),
            at: self.calendar.at(now.at),
            span_s: seconds(since(since_then, now.at)),
            up: up.since(&counted[0]),
            down: down.since(&counted[1]),
        }))
    }

    /// Its schedules now; `None` where it has none.
    pub(crate) fn schedule(&self) -> Option<ScheduleView> {
        let revision = Arc::clone(lock(&self.state).in_force());
        let Revision {
            number,
            spec,
            clock,
            ..
        } = &*revision;
        let now = clock::now();
        let time = clock.at(self.link_time(now));
        let then = LinkSpec::clone(spec).then(time);
        Some(ScheduleView {
            time: self.schedule_time(spec, *clock, now)?,
            at: self.calendar.at(now),
            last_s: seconds(spec.last_step()?),
            says: in_force(&then),
            conditions: then,
            revision: *number,
        })
    }

    /// What a scrape reads.
    ///
    /// # Errors
    /// The link's end.
    pub(crate) fn meter(&self) -> Result<LinkMeter, Ended> {
        let revision = lock(&self.state).in_force().number;
        let now = self.forwarder.read(self.number)?;
        Ok(LinkMeter::of(
            self.name.clone(),
            self.ends.clone(),
            revision,
            &now,
        ))
    }

    /// The number of the revision in force.
    pub(crate) fn revision(&self) -> u64 {
        lock(&self.state).in_force().number
    }

    /// The first entry of the history after revision `last` that is kept, if there is one.
    pub(crate) fn change_after(&self, last: u64) -> Option<ChangeView> {
        let revision = {
            let state = lock(&self.state);
            let first = state.revisions.iter().next()?.number;
            Arc::clone(state.revision((last + 1).max(first))?)
        };
        Some(self.change_of(&revision))
    }

    /// What was in force from a revision on, or from the first that is kept, to be made into files. `None` of one that is not kept,
    /// or never was.
    pub(crate) fn told(&self, since_revision: Option<u64>) -> Option<ChangeLog> {
        let is_meant =
            |of: &&Arc<Revision>| since_revision.is_none_or(|number| of.number >= number);
        let all: Vec<Arc<Revision>> = {
            let state = lock(&self.state);
            state.revisions.iter().filter(is_meant).cloned().collect()
        };
        let (first, last) = (all.first()?, all.last()?);
        if since_revision.is_some_and(|number| number != first.number) {
            return None;
        }
        let start = self.forwarder.start();
        let conditions = |of: &Arc<Revision>| {
            let spec = LinkSpec::clone(&of.spec).on_clock(of.clock);
            (since(start, of.at), spec)
        };
        Some(ChangeLog {
            name: self.name.clone(),
            revisions: [first.number, last.number],
            since: self.calendar.at(first.at),
            conditions: all.iter().map(conditions).collect(),
        })
    }

    /// The events after number `last`, as far as they are kept, and those from now on: from now on it is watched.
    pub(crate) fn follow(
        &self,
        last: Option<u64>,
    ) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let followed = lock(&self.journal).follow(last);
        self.keeper.ring();
        followed
    }

    /// Starts a capture of what arrives from now on; its ends are named as the link's.
    ///
    /// # Errors
    /// The link's end; there is no thread to be had.
    pub(crate) fn capture(&self, mut capture: Capture) -> anyhow::Result<CaptureHandle> {
        capture.spec.ends = self.ends.clone();
        self.forwarder.capture(self.number, capture)
    }

    /// Ends a lease that was granted for a connection, if that is what it still is held by: the connection has ended.
    pub(crate) fn end_connection(&self, grant: &LeaseGrant) {
        let mut state = lock(&self.state);
        let is_it = |lease: &Lease| lease.is_held_by(grant);
        if state.lease.as_ref().is_some_and(is_it) {
            // What came of it is said; a link that has ended needs nothing.
            let _ = self.revert(&mut state, format_args!("with its connection"));
        }
    }

    /// Waits until the link has ended.
    pub(crate) async fn ended(&self) {
        // An error would say that the link itself is gone.
        let _ = self.over.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// It is about to end: who watches is told.
    pub(super) fn end(&self) {
        lock(&self.journal).note(Happening::End);
        self.over.send_replace(true);
    }

    /// Does what is due at `now`: ends a lease whose time is over, takes a sample if somebody watches; in how long to come back.
    pub(super) fn keep(&self, now: Nanos) -> Option<Duration> {
        let lease = self.keep_lease(now);
        let sample = self.keep_watch(now);
        lease.into_iter().chain(sample).min()
    }

    fn keep_lease(&self, now: Nanos) -> Option<Duration> {
        let mut state = lock(&self.state);
        let left = state.lease.as_ref()?.ends_in(now)?;
        if left > Duration::ZERO {
            return Some(left);
        }
        // One that has ended needs nothing.
        let reverted = self.revert(&mut state, format_args!("at its time"));
        let is_reverted = matches!(reverted, Ok(_) | Err(ChangeRefusal::Ended));
        (!is_reverted).then_some(AGAIN)
    }

    fn keep_watch(&self, now: Nanos) -> Option<Duration> {
        let next = {
            let mut journal = lock(&self.journal);
            if !journal.is_watched() {
                journal.rest();
                return None;
            }
            journal.next_reading()
        };
        if next > now {
            return Some(Duration::from_nanos(next.0 - now.0));
        }
        let reading = self.forwarder.read(self.number).ok()?;
        let revision = lock(&self.state).in_force().number;
        let start = self.forwarder.start();
        lock(&self.journal).take(reading, start, revision, &self.calendar);
        Some(Duration::from_nanos(super::sample::EVERY.0))
    }

    /// Makes the forwarder's part of a change. The clock of the schedules carries out its order at the instant of the change.
    fn to_forwarder(
        &self,
        conditions: &CheckedConditions,
        (clock, order): (ScheduleClock, ScheduleOrder),
    ) -> Result<NewConditions, ChangeRefusal> {
        let fixed = || ChangeRefusal::Fixed {
            why: self.build.as_ref().err().cloned().unwrap_or_default(),
        };
        let (paths, rules) = conditions.built.clone().ok_or_else(fixed)?;
        Ok(NewConditions {
            paths,
            rules,
            clock,
            order,
        })
    }

    /// Puts conditions into force that were checked.
    fn put_into_force(
        &self,
        state: &mut LinkState,
        conditions: Arc<CheckedConditions>,
        new: NewConditions,
        by: By,
    ) -> Result<LinkReading, ChangeRefusal> {
        let (clock, order) = (new.clock, new.order);
        let changed = self.forwarder.change(self.number, new);
        let reading = changed.map_err(|error| ChangeRefusal::of_change(&conditions.spec, error))?;
        let names = class_names(&conditions.spec);
        if names.len() > state.classes.len() {
            state.classes = names;
        }
        let revision = Revision {
            number: state.in_force().number + 1,
            at: reading.at,
            spec: Arc::clone(&conditions.spec),
            said: Arc::clone(&conditions.said),
            clock: clock.ordered(self.link_time(reading.at), order),
            by,
            counted: [&reading.summary.up, &reading.summary.down].map(DirectionCounters::of),
        };
        let change = self.change_of(&revision);
        let bytes = revision.memory();
        state.revisions.push(Arc::new(revision), bytes);
        state.conditions = conditions;
        lock(&self.journal).note(Happening::Change(change.into()));
        Ok(reading)
    }

    /// Logs the change that is in force now, and who asked for it.
    fn log_change(&self, state: &LinkState, order: &ChangeOrder) {
        let revision = state.in_force();
        let lease = match (&state.lease, order.lease_for) {
            (Some(lease), Some(span)) => format!(", lease {} for {span}", lease.id.shortened()),
            (Some(lease), None) => format!(", lease {}", lease.id.shortened()),
            (None, _) => String::new(),
        };
        log(format_args!(
            "farwire: {}: revision {} by {}{lease}: {}",
            self.name,
            revision.number,
            order.origin,
            revision.says()
        ));
    }

    /// Ends the lease and restores the conditions from before it; `cause` says in the log why it ends. If a stage of later conditions
    /// still has packets that would be overtaken, the lease stays until they have passed: the keeper tries again.
    fn revert(
        &self,
        state: &mut LinkState,
        cause: fmt::Arguments<'_>,
    ) -> Result<LinkReading, ChangeRefusal> {
        let Some(lease) = state.lease.take() else {
            return Err(ChangeRefusal::NoLease);
        };
        let before = &lease.before;
        let schedule = (before.clock, ScheduleOrder::default());
        let new = self.to_forwarder(&before.conditions, schedule);
        let conditions = Arc::clone(&before.conditions);
        let reverted =
            new.and_then(|new| self.put_into_force(state, conditions, new, By::LeaseEnded));
        match &reverted {
            Ok(_) => log(format_args!(
                "farwire: {}: revision {}: the lease ended {cause} ({}): {}",
                self.name,
                state.in_force().number,
                lease.id.shortened(),
                state.in_force().says()
            )),
            Err(ChangeRefusal::Ended) => {}
            Err(_) => {
                state.lease = Some(lease.over(clock::now()));
                self.keeper.ring();
            }
        }
        reverted
    }

    /// Refuses a change of another revision, against somebody else's lease, or of conditions that stay as they are.
    fn check_order(&self, state: &LinkState, order: &ChangeOrder) -> Result<(), ChangeRefusal> {
        let in_force = state.in_force().number;
        if order.if_revision.is_some_and(|asked| asked != in_force) {
            return Err(ChangeRefusal::Revision { in_force });
        }
        self.check_lease(state, order)?;
        match &self.build {
            Err(why) if !order.is_dry_run => Err(ChangeRefusal::Fixed { why: why.clone() }),
            _ => Ok(()),
        }
    }

    /// Refuses what somebody else's lease forbids.
    fn check_lease(&self, state: &LinkState, order: &ChangeOrder) -> Result<(), ChangeRefusal> {
        match (&state.lease, &order.lease) {
            (Some(lease), Some(id)) if lease.id == *id => Ok(()),
            (Some(lease), _) if !order.is_dry_run => Err(ChangeRefusal::Leased {
                until: lease.says(&self.calendar),
            }),
            (None, Some(_)) => Err(ChangeRefusal::NoLease),
            _ => Ok(()),
        }
    }

    fn changed(&self, reading: &LinkReading, link: LinkView, dry_run: bool) -> Changed {
        Changed {
            at: self.calendar.at(reading.at),
            at_s: seconds(self.link_time(reading.at)),
            revision: link.revision,
            link,
            under_previous: reading.summary.up.held_at_end + reading.summary.down.held_at_end,
            grant: None,
            dry_run,
        }
    }

    /// An instant as the time since the link's start.
    fn link_time(&self, at: Nanos) -> Nanos {
        since(self.forwarder.start(), at)
    }

    /// The time of schedules at an instant, where there are some.
    fn schedule_time(
        &self,
        spec: &LinkSpec,
        clock: ScheduleClock,
        at: Nanos,
    ) -> Option<ScheduleTime> {
        spec.has_schedule().then(|| ScheduleTime {
            state: clock.into(),
            time_s: seconds(clock.at(self.link_time(at))),
        })
    }

    fn change_of(&self, revision: &Revision) -> ChangeView {
        ChangeView {
            revision: revision.number,
            at: self.calendar.at(revision.at),
            at_s: seconds(self.link_time(revision.at)),
            conditions: revision.spec.clone(),
            says: revision.says(),
            schedule: self.schedule_time(&revision.spec, revision.clock, revision.at),
            by: revision.by,
        }
    }

    fn view_of(&self, revision: &Revision, lease: Option<&Lease>, to_holder: bool) -> LinkView {
        let Revision {
            number,
            at,
            spec,
            clock,
            ..
        } = revision;
        LinkView {
            name: self.name.clone(),
            ends: self.ends.clone(),
            says: revision.says(),
            command: command_line(spec),
            conditions: Arc::clone(spec),
            schedule: self.schedule_time(spec, *clock, *at),
            revision: *number,
            since: self.calendar.at(*at),
            started: self.calendar.at(self.forwarder.start()),
            lease: lease.map(|lease| lease.view(&self.calendar, to_holder)),
            fixed: self.build.as_ref().err().cloned(),
            seed: spec.seed(),
        }
    }
}

impl LinkState {
    fn in_force(&self) -> &Arc<Revision> {
        self.revisions.last().expect("there always is one")
    }

    /// The revision of this number, if it is kept. Their numbers follow each other.
    fn revision(&self, number: u64) -> Option<&Arc<Revision>> {
        let first = self.revisions.iter().next()?.number;
        let place = usize::try_from(number.checked_sub(first)?).ok()?;
        self.revisions.get(place)
    }

    fn as_before(&self) -> Before {
        let in_force = self.in_force();
        Before {
            revision: in_force.number,
            conditions: Arc::clone(&self.conditions),
            clock: in_force.clock,
        }
    }
}

impl Revision {
    /// The conditions in one line, with what became of the time of their schedules.
    fn says(&self) -> String {
        let said = &self.said;
        match self.clock {
            clock if clock == ScheduleClock::default() => said.as_ref().to_owned(),
            ScheduleClock::Stopped { at } => {
                format!("{said}, schedule stopped at {:.3} s", seconds(at))
            }
            ScheduleClock::Running { from, .. } => {
                format!("{said}, schedule continues from {:.3} s", seconds(from))
            }
        }
    }

    /// The bytes that it takes.
    fn memory(&self) -> usize {
        let counted = self.counted.iter().map(DirectionCounters::memory);
        size_of::<Self>() + self.spec.memory() + self.said.len() + counted.sum::<usize>()
    }
}

fn class_names(spec: &LinkSpec) -> Vec<String> {
    let names = spec.classes.iter().map(|class| class.rule.name.clone());
    names.collect()
}

/// Refuses classes that would be counted as others: the forwarder knows them by their places.
fn check_classes(known: &[String], spec: &LinkSpec) -> Result<(), Error> {
    let names = class_names(spec);
    let differ = known.iter().zip(&names).find(|(known, name)| known != name);
    match differ {
        None => Ok(()),
        Some((known, name)) => Err(Error::other(format_args!(
            "{name} takes the place of {known}, and would be counted as it: keep the order and the names of a running link's \
             classes, and add new ones at the end"
        ))
        .at("classes")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use serde_json::json;

    use super::super::change::RequestedConditions;
    use super::*;
    use crate::forward::thread::ForwarderThread;
    use crate::forward::thread::tests::idle;

    /// A link whose conditions are checked when a message says so, once it has said that it is about to be.
    struct Checked {
        forwarder: ForwarderThread,
        link: LiveLink,
        begun: Receiver<()>,
        go_on: Sender<()>,
    }

    fn checked() -> Checked {
        let forwarder = idle();
        let (begin, begun) = channel();
        let (go_on, goes_on) = channel();
        let goes_on = Mutex::new(goes_on);
        let build = move |spec: &LinkSpec| {
            // Nobody listens any more at the end of a test.
            let _ = begin.send(());
            let _ = lock(&goes_on).recv();
            spec.to_link("box")
        };
        go_on.send(()).unwrap();
        let new = NewLink {
            name: "link".to_owned(),
            ends: ["a", "b"].map(str::to_owned),
            forwarder: forwarder.handle().clone(),
            number: 0,
            spec: toml::from_str("delay = '1ms'").unwrap(),
            build: Ok(Box::new(build)),
        };
        let link = LiveLink::new(new, Arc::default());
        begun.recv().unwrap();
        Checked {
            forwarder,
            link,
            begun,
            go_on,
        }
    }

    fn patch(patch: serde_json::Value) -> ChangeOrder {
        ChangeOrder {
            conditions: RequestedConditions::Patch(patch),
            ..ChangeOrder::default()
        }
    }

    #[test]
    fn a_change_that_is_checked_too_late_is_refused_and_changes_nothing() {
        let Checked {
            forwarder,
            link,
            go_on,
            ..
        } = checked();
        for is_dry_run in [false, true] {
            go_on.send(()).unwrap();
            let order = ChangeOrder {
                is_dry_run,
                ..patch(json!({"delay": "2ms"}))
            };
            let refused = link.change(&order, Nanos::ZERO);
            assert!(
                matches!(refused, Err(ChangeRefusal::TooLong)),
                "{refused:?}"
            );
        }
        assert_eq!(link.view().revision, 1);
        forwarder.stop().unwrap();
    }

    #[test]
    fn while_conditions_are_checked_others_read_and_change_the_link() {
        let Checked {
            forwarder,
            link,
            begun,
            go_on,
        } = checked();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| link.change(&patch(json!({"loss": "1%"})), Nanos::MAX));
            begun.recv().unwrap();
            assert_eq!(link.view().revision, 1);
            assert_eq!(link.change_after(0).unwrap().revision, 1);
            // The conditions in force are known, and need no check.
            let leased = ChangeOrder {
                lease_for: Some("connection".parse().unwrap()),
                ..ChangeOrder::default()
            };
            let leased = link.change(&leased, Nanos::MAX).unwrap();
            assert_eq!(leased.revision, 2);
            link.end_connection(&leased.grant.unwrap());
            assert_eq!(link.view().revision, 3);
            // A change that was checked against other conditions is checked again.
            (0..2).for_each(|_| go_on.send(()).unwrap());
            assert_eq!(slow.join().unwrap().unwrap().revision, 4);
        });
        forwarder.stop().unwrap();
    }

    #[test]
    fn revisions_share_conditions_and_count_all_that_they_take() {
        let Checked {
            forwarder,
            link,
            go_on,
            ..
        } = checked();
        (0..10).for_each(|_| go_on.send(()).unwrap());
        let indexes: Vec<u64> = (0..10_000).collect();
        let stages = json!({"stages": [{"kind": "indexes", "indexes": indexes}]});
        link.change(&patch(stages), Nanos::MAX).unwrap();
        let leased = ChangeOrder {
            lease_for: Some("60s".parse().unwrap()),
            ..patch(json!({"delay": "2ms"}))
        };
        link.change(&leased, Nanos::MAX).unwrap();
        link.end_lease(None, &Origin::default()).unwrap();
        let state = lock(&link.state);
        let [_, second, third, last] = [1, 2, 3, 4].map(|number| state.revision(number).unwrap());
        assert!(Arc::ptr_eq(&second.spec, &last.spec));
        assert!(!Arc::ptr_eq(&second.spec, &third.spec));
        assert!(second.memory() > 80_000 && third.memory() > 80_000);
        let without_text = second.memory() - second.said.len();
        assert!(without_text < 90_000, "{without_text}");
        drop(state);
        forwarder.stop().unwrap();
    }
}
