//! A running link: its conditions, their history, and how they are changed.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conditions::{Error, LinkSpec};
use model::{Nanos, ScheduleClock, ScheduleOrder, check_change};
use netio::clock;
use tokio::sync::{broadcast, watch};

use super::bounded_history::BoundedHistory;
use super::change::{ChangeOrder, ChangeRefusal, Origin, check_memory};
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

struct LinkState {
    /// The last one is in force; there always is one.
    revisions: BoundedHistory<Revision>,
    lease: Option<Lease>,
    /// The names of classes in their order: the forwarder counts by their places.
    classes: Vec<String>,
}

/// What was in force from an instant on, and what had been counted by then.
struct Revision {
    number: u64,
    at: Nanos,
    spec: LinkSpec,
    /// By which its schedules count.
    clock: ScheduleClock,
    by: By,
    counted: [DirectionCounters; 2],
}

impl LiveLink {
    pub(super) fn new(new: NewLink, keeper: Arc<ExpiryAlarm>) -> Self {
        let first = Revision {
            number: 1,
            at: new.forwarder.start(),
            by: By::Start,
            counted: Default::default(),
            clock: ScheduleClock::default(),
            spec: new.spec,
        };
        let classes = class_names(&first.spec);
        let mut revisions = BoundedHistory::at_most(KEPT);
        let bytes = first.spec.memory();
        revisions.push(first, bytes);
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
        self.view_of(&lock(&self.state), false)
    }

    /// Makes the change that is asked for, at one instant in both directions; or none.
    ///
    /// # Errors
    /// Conditions that cannot be, another revision in force, somebody else's lease, or the link's end: nothing is changed.
    pub(crate) fn change(&self, order: &ChangeOrder) -> Result<Changed, ChangeRefusal> {
        let mut state = lock(&self.state);
        let now = state.in_force().as_before();
        if order.if_revision.is_some_and(|asked| asked != now.revision) {
            return Err(ChangeRefusal::Revision {
                in_force: now.revision,
            });
        }
        self.check_lease(&state, order)?;
        if !order.is_dry_run {
            self.builder()?;
        }
        let (spec, schedule) = order.conditions.over(&now.spec)?;
        // What has no schedule keeps no time that a later one would begin with.
        let clock = match spec.has_schedule() {
            true => now.clock,
            false => ScheduleClock::default(),
        };
        check_classes(&state.classes, &spec)?;
        let before = self.forwarder.read(self.number)?;
        check_memory(&spec, before.summary.held_limit_bytes as u64)?;
        let lease = state.lease.as_ref().map(|lease| &lease.before.spec);
        if let Some(back) = lease.or(order.lease_for.map(|_| &now.spec)) {
            self.check_successor(&spec, back)
                .map_err(ChangeRefusal::of_the_way_back)?;
        }
        if order.is_dry_run {
            self.check_successor(&now.spec, &spec)?;
            let at = self.link_time(before.at);
            let would = self.view_with(&state, &spec, clock.ordered(at, schedule), before.at);
            return Ok(self.changed(&before, would, true));
        }
        let reading = self.put_into_force(&mut state, spec, (clock, schedule), By::Api)?;
        if let Some(span) = order.lease_for {
            match &mut state.lease {
                Some(lease) => lease.renew(span, reading.at),
                none => *none = Some(Lease::begin(span, reading.at, now)),
            }
            self.keeper.ring();
        }
        self.log_change(&state, order);
        let grant = state.lease.as_ref().and_then(Lease::grant);
        let view = self.view_of(&state, state.lease.is_some());
        Ok(Changed {
            grant: grant.filter(|_| order.lease_for.is_some()),
            ..self.changed(&reading, view, false)
        })
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
        Ok(self.changed(&reading, self.view_of(&state, false), false))
    }

    /// What was counted since a revision came into force; since the start, where none is said. `None` of one that is not
    /// kept, or never was.
    ///
    /// # Errors
    /// The link's end.
    pub(crate) fn counters(&self, revision: Option<u64>) -> Result<Option<LinkCounters>, Ended> {
        let state = lock(&self.state);
        let number = revision.unwrap_or(1);
        let (since_then, counted) = match state.revisions.iter().find(|of| of.number == number) {
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
        let state = lock(&self.state);
        let Revision {
            number,
            spec,
            clock,
            ..
        } = state.in_force();
        let now = clock::now();
        let time = clock.at(self.link_time(now));
        let then = spec.clone().then(time);
        Some(ScheduleView {
            time: self.schedule_time(spec, *clock, now)?,
            at: self.calendar.at(now),
            last_s: seconds(spec.last_step()?),
            says: says(&then, ScheduleClock::default()),
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

    /// What was in force, and when, from the first that is kept to what is now.
    pub(crate) fn history(&self) -> Vec<ChangeView> {
        let state = lock(&self.state);
        let revisions = state.revisions.iter();
        revisions.map(|revision| self.change_of(revision)).collect()
    }

    /// What was in force from a revision on, or from the first that is kept, to be made into files. `None` of one that is not kept,
    /// or never was.
    pub(crate) fn told(&self, since_revision: Option<u64>) -> Option<ChangeLog> {
        let state = lock(&self.state);
        let is_meant = |of: &&Revision| since_revision.is_none_or(|number| of.number >= number);
        let all: Vec<&Revision> = state.revisions.iter().filter(is_meant).collect();
        let (first, last) = (all.first()?, all.last()?);
        if since_revision.is_some_and(|number| number != first.number) {
            return None;
        }
        let start = self.forwarder.start();
        Some(ChangeLog {
            name: self.name.clone(),
            revisions: [first.number, last.number],
            since: self.calendar.at(first.at),
            conditions: all
                .iter()
                .map(|of| (since(start, of.at), of.spec.clone().on_clock(of.clock)))
                .collect(),
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

    /// Puts conditions into force that were checked. The time of their schedules is that of a clock on which an order is carried
    /// out at the same instant.
    fn put_into_force(
        &self,
        state: &mut LinkState,
        spec: LinkSpec,
        (clock, order): (ScheduleClock, ScheduleOrder),
        by: By,
    ) -> Result<LinkReading, ChangeRefusal> {
        let link = self.builder()?(&spec)?;
        let new = NewConditions {
            paths: link.config.paths,
            rules: link.rules,
            clock,
            order,
        };
        let changed = self.forwarder.change(self.number, new);
        let reading = changed.map_err(|error| ChangeRefusal::of_change(&spec, error))?;
        let names = class_names(&spec);
        if names.len() > state.classes.len() {
            state.classes = names;
        }
        let revision = Revision {
            number: state.in_force().number + 1,
            at: reading.at,
            spec,
            clock: clock.ordered(self.link_time(reading.at), order),
            by,
            counted: [&reading.summary.up, &reading.summary.down].map(DirectionCounters::of),
        };
        let change = self.change_of(&revision);
        let bytes = revision.spec.memory();
        state.revisions.push(revision, bytes);
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

    /// Puts into force what stood before the lease, and ends it; `cause` says in the log how it comes to its end. Where a stage of conditions since then still has packets that would
    /// be overtaken, it stands until they have passed: the keeper comes back to it.
    fn revert(
        &self,
        state: &mut LinkState,
        cause: fmt::Arguments<'_>,
    ) -> Result<LinkReading, ChangeRefusal> {
        let Some(lease) = state.lease.take() else {
            return Err(ChangeRefusal::NoLease);
        };
        let before = lease.before.clone();
        let schedule = (before.clock, ScheduleOrder::default());
        let reverted = self.put_into_force(state, before.spec, schedule, By::LeaseEnded);
        match &reverted {
            Ok(_) => log(format_args!(
                "farwire: {}: revision {}: the lease has ended {cause} ({}): {}",
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

    /// Refuses conditions that could not follow those, on a link that can be changed.
    fn check_successor(&self, now: &LinkSpec, next: &LinkSpec) -> Result<(), ChangeRefusal> {
        let Ok(builder) = self.builder() else {
            return Ok(());
        };
        let [before, after] = [builder(now)?, builder(next)?];
        let checked = check_change(&before.config.paths, &after.config.paths);
        checked.map_err(|error| ChangeRefusal::of_model(next, error))
    }

    /// What makes conditions into a link, where they can be changed.
    fn builder(&self) -> Result<&BuildLink, ChangeRefusal> {
        let fixed = |why: &String| ChangeRefusal::Fixed { why: why.clone() };
        self.build.as_ref().map_err(fixed)
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

    fn view_of(&self, state: &LinkState, to_holder: bool) -> LinkView {
        let lease = state.lease.as_ref();
        let Revision {
            at, spec, clock, ..
        } = state.in_force();
        LinkView {
            lease: lease.map(|lease| lease.view(&self.calendar, to_holder)),
            ..self.view_with(state, spec, *clock, *at)
        }
    }

    /// As it would be under these conditions from `at` on, without a lease.
    fn view_with(
        &self,
        state: &LinkState,
        spec: &LinkSpec,
        clock: ScheduleClock,
        at: Nanos,
    ) -> LinkView {
        let in_force = state.in_force();
        LinkView {
            name: self.name.clone(),
            ends: self.ends.clone(),
            says: says(spec, clock),
            command: command_line(spec),
            conditions: spec.clone(),
            schedule: self.schedule_time(spec, clock, at),
            revision: in_force.number,
            since: self.calendar.at(in_force.at),
            started: self.calendar.at(self.forwarder.start()),
            lease: None,
            fixed: self.build.as_ref().err().cloned(),
            seed: spec.seed(),
        }
    }
}

impl LinkState {
    fn in_force(&self) -> &Revision {
        self.revisions.last().expect("there always is one")
    }
}

impl Revision {
    fn says(&self) -> String {
        says(&self.spec, self.clock)
    }

    fn as_before(&self) -> Before {
        Before {
            revision: self.number,
            spec: self.spec.clone(),
            clock: self.clock,
        }
    }
}

/// Conditions in one line, with what became of the time of their schedules.
fn says(spec: &LinkSpec, clock: ScheduleClock) -> String {
    let said = in_force(spec).unwrap_or_default();
    match clock {
        _ if clock == ScheduleClock::default() => said,
        ScheduleClock::Stopped { at } => {
            format!("{said}, the schedule stopped at {:.3} s", seconds(at))
        }
        ScheduleClock::Running { from, .. } => {
            format!("{said}, the schedule going on from {:.3} s", seconds(from))
        }
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
            "{name} is where {known} was, and would be counted as it: a running link keeps the order and the names of its classes, \
             and new ones come behind them"
        ))
        .at("classes")),
    }
}
