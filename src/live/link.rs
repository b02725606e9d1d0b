//! A running link: its conditions, their history and their changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conditions::{Error, LinkSpec};
use model::{Nanos, ScheduleClock, ScheduleOrder};
use netio::clock;
use tokio::sync::{broadcast, watch};

use super::bounded_history::BoundedHistory;
use super::change::{ChangeOrder, ChangeRefusal, Origin, ScheduleState, check_memory};
use super::checked_conditions::CheckedConditions;
use super::counters::{DirectionCounters, LinkCounters};
use super::export::ChangeLog;
use super::keeper::ExpiryAlarm;
use super::lease::{Lease, LeaseGrant, LeaseId, RevertState};
use super::meter::LinkMeter;
use super::moment::{WallClock, seconds, since};
use super::sample::{Event, EventJournal, EventKind, InForce};
use super::view::{ChangeCause, ChangeResult, ChangeView, LinkView, ScheduleTime, ScheduleView};
use super::words::{command_line, in_force};
use super::{BuildLink, NewLink, lock};
use crate::end_names::EndNames;
use crate::forward::NewConditions;
use crate::forward::capture::{Capture, CaptureHandle};
use crate::forward::thread::{ForwarderEnded, ForwarderHandle, LinkReading};
use crate::notes::log;

/// The largest number of revisions whose conditions and counters are kept.
const KEPT: usize = 1_000;

/// The time after which ending a lease is tried again, if it failed.
const AGAIN: Duration = Duration::from_millis(10);

/// A running link.
pub(crate) struct LiveLink {
    name: String,
    ends: EndNames,
    forwarder: ForwarderHandle,
    number: usize,
    build: Result<BuildLink, String>,
    wall_clock: WallClock,
    state: Mutex<LinkState>,
    journal: Mutex<EventJournal>,
    ended: watch::Sender<bool>,
    keeper: Arc<ExpiryAlarm>,
}

/// The changing part of a link. Its lock is held only briefly: conditions are checked before
/// locking, and views for clients are created afterwards.
struct LinkState {
    /// The kept revisions. The last one is in force, and there is always one.
    revisions: BoundedHistory<Arc<Revision>>,
    /// The conditions in force.
    conditions: Arc<CheckedConditions>,
    lease: Option<Lease>,
    /// The names of the rules in order. The forwarder counts packets by the places of their
    /// rules.
    rules: Vec<String>,
}

/// The cause of the end of a lease.
enum LeaseEnd<'a> {
    /// Its time is over, or an earlier attempt to end it was refused.
    Expired,
    /// The connection that held it has closed.
    WithConnection,
    /// A client ended it.
    By(&'a Origin),
}

/// The conditions in force from an instant on, and the counters at that instant.
struct Revision {
    number: u64,
    at: Nanos,
    spec: Arc<LinkSpec>,
    /// A description of the conditions in one line.
    description: Arc<str>,
    /// The clock of the conditions' schedules.
    clock: ScheduleClock,
    by: ChangeCause,
    counted: [DirectionCounters; 2],
}

impl LiveLink {
    pub(super) fn new(new: NewLink, keeper: Arc<ExpiryAlarm>) -> Self {
        let spec = Arc::new(new.spec);
        let conditions = CheckedConditions::of(Arc::clone(&spec), new.build.as_ref().ok());
        // The conditions of a new link were already checked at its start.
        let conditions = Arc::new(conditions.unwrap_or_else(|_| CheckedConditions {
            spec,
            ..CheckedConditions::default()
        }));
        let first = Revision {
            number: 1,
            at: new.forwarder.start(),
            by: ChangeCause::Start,
            counted: Default::default(),
            clock: ScheduleClock::default(),
            spec: Arc::clone(&conditions.spec),
            description: Arc::clone(&conditions.description),
        };
        let rules = rule_names(&first.spec);
        let mut revisions = BoundedHistory::at_most(KEPT);
        let bytes = first.memory();
        revisions.push(Arc::new(first), bytes);
        new.forwarder.measure_round_trips(new.number);
        Self {
            name: new.name,
            ends: new.ends,
            forwarder: new.forwarder,
            number: new.number,
            build: new.build,
            wall_clock: WallClock::now(),
            state: Mutex::new(LinkState {
                revisions,
                conditions,
                lease: None,
                rules,
            }),
            journal: Mutex::default(),
            ended: watch::Sender::new(false),
            keeper,
        }
    }

    /// Returns the name of the link.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the current state of the link.
    pub(crate) fn view(&self) -> LinkView {
        let (revision, lease) = {
            let state = lock(&self.state);
            (Arc::clone(state.in_force()), state.lease.clone())
        };
        self.view_of(&revision, lease.as_ref(), false)
    }

    /// Makes the requested change at one instant in both directions, or none at all. Conditions are
    /// checked while packets pass and others read the link. If another change is made meanwhile,
    /// they are checked again.
    ///
    /// # Errors
    /// Fails without any change if the conditions are wrong, another revision is in force, another
    /// client has a lease, the check is not complete by `deadline`, or the link has ended.
    pub(crate) fn change(
        &self,
        order: &ChangeOrder,
        deadline: Nanos,
    ) -> Result<ChangeResult, ChangeRefusal> {
        loop {
            let (now, lease, rules) = {
                let state = lock(&self.state);
                self.check_order(&state, order)?;
                let lease = state
                    .lease
                    .as_ref()
                    .map(|lease| Arc::clone(&lease.before.conditions));
                (state.revert_state(), lease, state.rules.clone())
            };
            let (spec, schedule) = order.conditions.apply_to(&now.conditions.spec)?;
            // Conditions without a schedule keep no time for a later schedule.
            let clock = if spec.follows_clock() {
                now.clock
            } else {
                ScheduleClock::default()
            };
            check_rules(&rules, &spec)?;
            check_memory(&spec, self.forwarder.held_memory())?;
            let next = if Arc::ptr_eq(&spec, &now.conditions.spec) {
                Arc::clone(&now.conditions)
            } else {
                Arc::new(CheckedConditions::of(spec, self.build.as_ref().ok())?)
            };
            if let Some(back) = lease.or(order.lease_for.map(|_| Arc::clone(&now.conditions))) {
                let checked = next.check_successor(&back);
                checked
                    .map_err(|error| ChangeRefusal::of_model(&back.spec, error))
                    .map_err(ChangeRefusal::for_lease_end)?;
            }
            if order.is_dry_run {
                let checked = now.conditions.check_successor(&next);
                checked.map_err(|error| ChangeRefusal::of_model(&next.spec, error))?;
            }
            if clock::now() > deadline {
                return Err(ChangeRefusal::TooLong);
            }
            if order.is_dry_run {
                return self.preview_change(&next, (clock, schedule));
            }
            let new = self.to_forwarder(&next, (clock, schedule))?;
            let mut state = lock(&self.state);
            if state.in_force().number != now.revision {
                continue;
            }
            let reading = self.put_into_force(&mut state, next, new, ChangeCause::Api)?;
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
            return Ok(ChangeResult {
                grant: grant.filter(|_| order.lease_for.is_some()),
                ..self.changed(&reading, view, false)
            });
        }
    }

    /// Returns the result that a change to `next` would have now.
    fn preview_change(
        &self,
        next: &CheckedConditions,
        (clock, schedule): (ScheduleClock, ScheduleOrder),
    ) -> Result<ChangeResult, ChangeRefusal> {
        let now = self.forwarder.read(self.number)?;
        let revision = Arc::clone(lock(&self.state).in_force());
        let preview = Revision {
            spec: Arc::clone(&next.spec),
            description: Arc::clone(&next.description),
            clock: clock.ordered(self.time_of_schedules(now.at), schedule),
            counted: Default::default(),
            ..*revision
        };
        let view = self.view_of(&preview, None, false);
        Ok(self.changed(&now, view, true))
    }

    /// Ends the lease now, or only the lease `id` if that is given. The link reverts.
    ///
    /// # Errors
    /// Fails if there is no such lease or if the link has ended.
    pub(crate) fn end_lease(
        &self,
        id: Option<&LeaseId>,
        origin: &Origin,
    ) -> Result<ChangeResult, ChangeRefusal> {
        let mut state = lock(&self.state);
        let is_it = |lease: &Lease| id.is_none_or(|id| *id == lease.id);
        if !state.lease.as_ref().is_some_and(is_it) {
            return Err(ChangeRefusal::NoLease);
        }
        let reading = self.revert(&mut state, &LeaseEnd::By(origin))?;
        let revision = Arc::clone(state.in_force());
        drop(state);
        let view = self.view_of(&revision, None, false);
        Ok(self.changed(&reading, view, false))
    }

    /// Returns the counters since a revision came into force, or since the start if none is given.
    /// Returns `None` if the revision is not kept or does not exist.
    ///
    /// # Errors
    /// Fails if the link has ended.
    pub(crate) fn counters(
        &self,
        revision: Option<u64>,
    ) -> Result<Option<LinkCounters>, ForwarderEnded> {
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
            since: self.wall_clock.at(since_then),
            at: self.wall_clock.at(now.at),
            span_s: seconds(since(since_then, now.at)),
            up: up.since(&counted[0]),
            down: down.since(&counted[1]),
        }))
    }

    /// Returns the current state of the link's schedules, or `None` if it has none.
    pub(crate) fn schedule(&self) -> Option<ScheduleView> {
        let revision = Arc::clone(lock(&self.state).in_force());
        let Revision {
            number,
            spec,
            clock,
            ..
        } = &*revision;
        let now = clock::now();
        let time = clock.at(self.time_of_schedules(now));
        let then = LinkSpec::clone(spec).then(time);
        Some(ScheduleView {
            time: self.schedule_time(spec, *clock, now)?,
            at: self.wall_clock.at(now),
            last_s: spec.last_step().map(seconds),
            says: in_force(&then),
            conditions: then,
            revision: *number,
        })
    }

    /// Describes the present time of the link's schedules, or returns `None` if it has none.
    pub(crate) fn schedule_says(&self) -> Option<String> {
        let revision = Arc::clone(lock(&self.state).in_force());
        let time = self.schedule_time(&revision.spec, revision.clock, clock::now())?;
        Some(match time.state {
            ScheduleState::Running => format!("schedule at {:.0} s", time.time_s),
            ScheduleState::Stopped => format!("schedule stopped at {:.3} s", time.time_s),
        })
    }

    /// Returns the values of these links that a scrape reads. Links that have ended are left out.
    pub(crate) fn meters(links: &[Arc<Self>]) -> Vec<LinkMeter> {
        let of_forwarders = links.chunk_by(|a, b| a.forwarder.id() == b.forwarder.id());
        let of_one = |links: &[Arc<Self>]| -> Vec<LinkMeter> {
            let numbers: Vec<usize> = links.iter().map(|link| link.number).collect();
            let readings = links[0].forwarder.read_each(&numbers);
            let read = links.iter().zip(readings);
            read.map(|(link, now)| link.meter(&now)).collect()
        };
        of_forwarders.flat_map(of_one).collect()
    }

    fn meter(&self, now: &LinkReading) -> LinkMeter {
        LinkMeter::of(
            self.name.clone(),
            self.ends.now(),
            self.revision(),
            self.forwarder.id(),
            now,
        )
    }

    /// Returns the number of the revision in force.
    pub(crate) fn revision(&self) -> u64 {
        lock(&self.state).in_force().number
    }

    /// Returns the first kept entry of the history after revision `last`, if any.
    pub(crate) fn change_after(&self, last: u64) -> Option<ChangeView> {
        let revision = {
            let state = lock(&self.state);
            let first = state.revisions.iter().next()?.number;
            Arc::clone(state.revision((last + 1).max(first))?)
        };
        Some(self.change_of(&revision))
    }

    /// Returns the changes from a revision on, or from the first one that is kept, for export.
    /// Returns `None` if the revision is not kept or does not exist.
    pub(crate) fn change_log(&self, since_revision: Option<u64>) -> Option<ChangeLog> {
        let is_requested =
            |of: &&Arc<Revision>| since_revision.is_none_or(|number| of.number >= number);
        let all: Vec<Arc<Revision>> = {
            let state = lock(&self.state);
            state
                .revisions
                .iter()
                .filter(is_requested)
                .cloned()
                .collect()
        };
        let (first, last) = (all.first()?, all.last()?);
        if since_revision.is_some_and(|number| number != first.number) {
            return None;
        }
        let start = self.forwarder.begin(self.number);
        let conditions = |of: &Arc<Revision>| {
            let spec = LinkSpec::clone(&of.spec).on_clock(of.clock);
            (since(start, of.at), spec)
        };
        let is_moved = |of: &Arc<Revision>| of.clock != ScheduleClock::default();
        let has_own_times = |of: &Arc<Revision>| of.spec.has_own_times();
        Some(ChangeLog {
            is_moved: all.iter().any(is_moved) && all.iter().any(has_own_times),
            name: self.name.clone(),
            revisions: [first.number, last.number],
            since: self.wall_clock.at(first.at),
            conditions: all.iter().map(conditions).collect(),
        })
    }

    /// Returns the kept events after number `last` and a receiver of later events. The link counts
    /// as observed from now on.
    pub(crate) fn follow(
        &self,
        last: Option<u64>,
    ) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let followed = lock(&self.journal).follow(last);
        self.keeper.ring();
        followed
    }

    /// Starts a capture of packets that arrive from now on. Its ends have the names of the link's
    /// ends.
    ///
    /// # Errors
    /// Fails if the link has ended or a thread cannot be started.
    pub(crate) fn capture(&self, mut capture: Capture) -> anyhow::Result<CaptureHandle> {
        capture.spec.ends = self.ends.now();
        self.forwarder.capture(self.number, capture)
    }

    /// Ends the lease of a connection that has closed, if that connection still holds it.
    pub(crate) fn end_connection(&self, grant: &LeaseGrant) {
        let mut state = lock(&self.state);
        let is_it = |lease: &Lease| lease.is_held_by(grant);
        if state.lease.as_ref().is_some_and(is_it) {
            // The log reports the result, and a link that has ended needs no change.
            let _ = self.revert(&mut state, &LeaseEnd::WithConnection);
        }
    }

    /// Waits until the link has ended.
    pub(crate) async fn ended(&self) {
        // An error means that the link itself is gone.
        let _ = self.ended.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// Tells observers that the link is about to end.
    pub(super) fn end(&self) {
        lock(&self.journal).note(EventKind::End);
        self.ended.send_replace(true);
    }

    /// Does the maintenance that is due at `now`: ends an expired lease and takes a sample if the
    /// link has observers. Returns the time until the next maintenance.
    pub(super) fn keep(&self, now: Nanos) -> Option<Duration> {
        let lease = self.keep_lease(now);
        let sample = self.keep_samples(now);
        lease.into_iter().chain(sample).min()
    }

    fn keep_lease(&self, now: Nanos) -> Option<Duration> {
        let mut state = lock(&self.state);
        let left = state.lease.as_ref()?.ends_in(now)?;
        if left > Duration::ZERO {
            return Some(left);
        }
        // A link that has ended needs no further attempt.
        let reverted = self.revert(&mut state, &LeaseEnd::Expired);
        let is_reverted = matches!(reverted, Ok(_) | Err(ChangeRefusal::Ended));
        (!is_reverted).then_some(AGAIN)
    }

    fn keep_samples(&self, now: Nanos) -> Option<Duration> {
        let next = {
            let mut journal = lock(&self.journal);
            if !journal.is_watched() {
                journal.forget_reading();
                return None;
            }
            journal.next_reading()
        };
        if next > now {
            return Some(Duration::from_nanos(next.0 - now.0));
        }
        let reading = self.forwarder.read(self.number).ok()?;
        let (revision, clock, conditions) = {
            let state = lock(&self.state);
            let in_force = state.in_force();
            (
                in_force.number,
                in_force.clock,
                Arc::clone(&state.conditions),
            )
        };
        let time = clock.at(self.time_of_schedules(reading.at));
        let over_time = conditions.over_time.as_ref();
        let in_force = InForce {
            revision,
            figures: over_time.map(|all| all.at(time)),
        };
        let start = self.forwarder.start();
        lock(&self.journal).take(reading, start, in_force, &self.wall_clock);
        Some(Duration::from_nanos(super::sample::EVERY.0))
    }

    /// Builds the forwarder's part of a change. The schedules' clock applies `order` at the instant
    /// of the change.
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

    /// Puts checked conditions into force.
    fn put_into_force(
        &self,
        state: &mut LinkState,
        conditions: Arc<CheckedConditions>,
        new: NewConditions,
        by: ChangeCause,
    ) -> Result<LinkReading, ChangeRefusal> {
        let (clock, order) = (new.clock, new.order);
        let changed = self.forwarder.change(self.number, new);
        let reading = changed.map_err(|error| ChangeRefusal::of_change(&conditions.spec, error))?;
        let names = rule_names(&conditions.spec);
        if names.len() > state.rules.len() {
            state.rules = names;
        }
        let revision = Revision {
            number: state.in_force().number + 1,
            at: reading.at,
            spec: Arc::clone(&conditions.spec),
            description: Arc::clone(&conditions.description),
            clock: clock.ordered(self.time_of_schedules(reading.at), order),
            by,
            counted: [&reading.summary.up, &reading.summary.down].map(DirectionCounters::of),
        };
        let change = self.change_of(&revision);
        let bytes = revision.memory();
        state.revisions.push(Arc::new(revision), bytes);
        state.conditions = conditions;
        lock(&self.journal).note(EventKind::Change(change.into()));
        Ok(reading)
    }

    /// Logs the change that has just come into force and the client that requested it.
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
            revision.describe()
        ));
    }

    /// Ends the lease and restores the conditions from before it; the log names the `cause`. If
    /// packets in a stage of the later conditions would be overtaken, the lease stays until they
    /// have passed, and the keeper tries again.
    fn revert(
        &self,
        state: &mut LinkState,
        cause: &LeaseEnd<'_>,
    ) -> Result<LinkReading, ChangeRefusal> {
        let Some(lease) = state.lease.take() else {
            return Err(ChangeRefusal::NoLease);
        };
        let before = &lease.before;
        let schedule = (before.clock, ScheduleOrder::default());
        let new = self.to_forwarder(&before.conditions, schedule);
        let conditions = Arc::clone(&before.conditions);
        let reverted = new
            .and_then(|new| self.put_into_force(state, conditions, new, ChangeCause::LeaseEnded));
        match &reverted {
            Ok(reading) => log(format_args!(
                "farwire: {}: revision {}: the lease ended {} ({}): {}",
                self.name,
                state.in_force().number,
                cause.describe(&lease, reading.at),
                lease.id.shortened(),
                state.in_force().describe()
            )),
            Err(ChangeRefusal::Ended) => {}
            Err(_) => {
                state.lease = Some(lease.expired(clock::now()));
                self.keeper.ring();
            }
        }
        reverted
    }

    /// Refuses a change that requires another revision, violates a lease, or is for a link with
    /// fixed conditions.
    fn check_order(&self, state: &LinkState, order: &ChangeOrder) -> Result<(), ChangeRefusal> {
        let in_force = state.in_force().number;
        if order
            .if_revision
            .is_some_and(|required| required != in_force)
        {
            return Err(ChangeRefusal::Revision { in_force });
        }
        self.check_lease(state, order)?;
        match &self.build {
            Err(why) if !order.is_dry_run => Err(ChangeRefusal::Fixed { why: why.clone() }),
            _ => Ok(()),
        }
    }

    /// Refuses a change that another client's lease forbids.
    fn check_lease(&self, state: &LinkState, order: &ChangeOrder) -> Result<(), ChangeRefusal> {
        match (&state.lease, &order.lease) {
            (Some(lease), Some(id)) if lease.id == *id => Ok(()),
            (Some(lease), _) if !order.is_dry_run => Err(ChangeRefusal::Leased {
                until: lease.describe_end(&self.wall_clock),
            }),
            (None, Some(_)) => Err(ChangeRefusal::NoLease),
            _ => Ok(()),
        }
    }

    fn changed(&self, reading: &LinkReading, link: LinkView, dry_run: bool) -> ChangeResult {
        ChangeResult {
            at: self.wall_clock.at(reading.at),
            at_s: seconds(self.link_time(reading.at)),
            revision: link.revision,
            link,
            under_previous: reading.summary.up.held_at_end + reading.summary.down.held_at_end,
            grant: None,
            dry_run,
        }
    }

    /// Returns an instant as the time since the link's start.
    fn link_time(&self, at: Nanos) -> Nanos {
        since(self.forwarder.start(), at)
    }

    /// Returns an instant as the time from which the link's schedules count: since the link's start, or since its first packet
    /// if it waits for that; 0 before.
    fn time_of_schedules(&self, at: Nanos) -> Nanos {
        since(self.forwarder.begin(self.number), at)
    }

    /// Returns the schedules' time at an instant, or `None` without schedules.
    fn schedule_time(
        &self,
        spec: &LinkSpec,
        clock: ScheduleClock,
        at: Nanos,
    ) -> Option<ScheduleTime> {
        spec.follows_clock().then(|| ScheduleTime {
            state: clock.into(),
            time_s: seconds(clock.at(self.time_of_schedules(at))),
        })
    }

    fn change_of(&self, revision: &Revision) -> ChangeView {
        ChangeView {
            revision: revision.number,
            at: self.wall_clock.at(revision.at),
            at_s: seconds(self.link_time(revision.at)),
            conditions: revision.spec.clone(),
            says: revision.describe(),
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
            ends: self.ends.now(),
            says: revision.describe(),
            command: command_line(spec),
            conditions: Arc::clone(spec),
            schedule: self.schedule_time(spec, *clock, *at),
            revision: *number,
            since: self.wall_clock.at(*at),
            started: self.wall_clock.at(self.forwarder.start()),
            lease: lease.map(|lease| lease.view(&self.wall_clock, to_holder)),
            fixed: self.build.as_ref().err().cloned(),
            seed: spec.seed(),
        }
    }
}

impl LeaseEnd<'_> {
    /// Describes the end of `lease`, whose link reverted at this instant: "the lease ended at its time".
    fn describe(&self, lease: &Lease, reverted: Nanos) -> String {
        match self {
            Self::Expired => lease.describe_expiry(reverted),
            Self::WithConnection => "with its connection".to_owned(),
            Self::By(origin) => format!("by {origin}"),
        }
    }
}

impl LinkState {
    fn in_force(&self) -> &Arc<Revision> {
        self.revisions.last().expect("there always is one")
    }

    /// Returns the revision with this number, if it is kept. The numbers are consecutive.
    fn revision(&self, number: u64) -> Option<&Arc<Revision>> {
        let first = self.revisions.iter().next()?.number;
        let place = usize::try_from(number.checked_sub(first)?).ok()?;
        self.revisions.get(place)
    }

    fn revert_state(&self) -> RevertState {
        let in_force = self.in_force();
        RevertState {
            revision: in_force.number,
            conditions: Arc::clone(&self.conditions),
            clock: in_force.clock,
        }
    }
}

impl Revision {
    /// Describes the conditions in one line, with the changes to their schedules' time.
    fn describe(&self) -> String {
        let description = &self.description;
        match self.clock {
            clock if clock == ScheduleClock::default() => description.as_ref().to_owned(),
            ScheduleClock::Stopped { at } => {
                format!("{description}, schedule stopped at {:.3} s", seconds(at))
            }
            ScheduleClock::Running { from, .. } => {
                format!(
                    "{description}, schedule continues from {:.3} s",
                    seconds(from)
                )
            }
        }
    }

    /// Returns the memory of the revision in bytes.
    fn memory(&self) -> usize {
        let counted = self.counted.iter().map(DirectionCounters::memory);
        size_of::<Self>() + self.spec.memory() + self.description.len() + counted.sum::<usize>()
    }
}

fn rule_names(spec: &LinkSpec) -> Vec<String> {
    let names = spec.rules.iter().map(|one| one.rule.name.clone());
    names.collect()
}

/// Refuses rules that would be counted as others, because the forwarder identifies rules by
/// their places.
fn check_rules(known: &[String], spec: &LinkSpec) -> Result<(), Error> {
    let names = rule_names(spec);
    let differ = known.iter().zip(&names).find(|(known, name)| known != name);
    match differ {
        None => Ok(()),
        Some((known, name)) => Err(Error::other(format_args!(
            "{name} takes the place of {known}, and would continue its counters: keep the order and the names of a running link's \
             rules, and add new ones at the end"
        ))
        .at("rules")),
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

    /// A link whose check of conditions announces its start and then waits for a message.
    struct SlowLink {
        forwarder: ForwarderThread,
        link: LiveLink,
        begun: Receiver<()>,
        go_on: Sender<()>,
    }

    fn slow_link() -> SlowLink {
        let forwarder = idle();
        let (begin, begun) = channel();
        let (go_on, may_go_on) = channel();
        let may_go_on = Mutex::new(may_go_on);
        let build = move |spec: &LinkSpec| {
            // At the end of a test, the receiver is gone.
            let _ = begin.send(());
            let _ = lock(&may_go_on).recv();
            spec.to_link("box")
        };
        go_on.send(()).unwrap();
        let new = NewLink {
            name: "link".to_owned(),
            ends: ["a", "b"].map(str::to_owned).into(),
            forwarder: forwarder.handle().clone(),
            number: 0,
            spec: toml::from_str("delay = '1ms'").unwrap(),
            build: Ok(Box::new(build)),
        };
        let link = LiveLink::new(new, Arc::default());
        begun.recv().unwrap();
        SlowLink {
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
    fn a_scrape_reads_all_links_in_their_order_and_leaves_out_those_that_have_ended() {
        let link = |forwarder: &ForwarderThread, name: &str| {
            let new = NewLink {
                name: name.to_owned(),
                ends: ["a", "b"].map(str::to_owned).into(),
                forwarder: forwarder.handle().clone(),
                number: 0,
                spec: LinkSpec::default(),
                build: Err("a test".to_owned()),
            };
            Arc::new(LiveLink::new(new, Arc::default()))
        };
        let [first, second, ended] = [(); 3].map(|()| idle());
        let links = [
            link(&first, "w"),
            link(&first, "x"),
            link(&ended, "y"),
            link(&second, "z"),
        ];
        ended.stop().unwrap();
        let meters = LiveLink::meters(&links);
        let names: Vec<&str> = meters.iter().map(|meter| meter.link.as_str()).collect();
        assert_eq!(names, ["w", "x", "z"]);
        first.stop().unwrap();
        second.stop().unwrap();
    }

    #[test]
    fn a_change_that_is_checked_too_late_is_refused_and_changes_nothing() {
        let SlowLink {
            forwarder,
            link,
            go_on,
            ..
        } = slow_link();
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
        let SlowLink {
            forwarder,
            link,
            begun,
            go_on,
        } = slow_link();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| link.change(&patch(json!({"loss": "1%"})), Nanos::MAX));
            begun.recv().unwrap();
            assert_eq!(link.view().revision, 1);
            assert_eq!(link.change_after(0).unwrap().revision, 1);
            // The conditions in force need no check.
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
        let SlowLink {
            forwarder,
            link,
            go_on,
            ..
        } = slow_link();
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
        let without_text = second.memory() - second.description.len();
        assert!(without_text < 90_000, "{without_text}");
        drop(state);
        forwarder.stop().unwrap();
    }
}
