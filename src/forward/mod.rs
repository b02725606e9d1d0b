//! The forwarder: port → path → port, for one link or many.
//!
//! `Forwarder::step` takes in the frames that have arrived, lets the model decide, and sends the
//! packets that are due. It never waits and has no clock: its caller and the ports pass the time to
//! it. `thread` runs it in real time, [`run_to_end`] in virtual time.

mod agenda;
mod allowance;
mod arena;
pub(crate) mod capture;
mod departures;
mod departures_by_kind;
pub(crate) mod fuzzing;
mod held_frames;
mod lateness_histogram;
mod least_delays;
mod link_runner;
#[cfg(test)]
mod long_run_tests;
mod observed;
mod observers;
pub(crate) mod overload;
mod packet_fields;
pub(crate) mod packet_log;
mod recent_frames;
pub(crate) mod round_trips;
#[cfg(test)]
mod rule_hits;
mod segment_run;
mod send_batch;
#[cfg(test)]
mod send_batch_tests;
pub(crate) mod stats;
#[cfg(test)]
mod test_writers;
#[cfg(test)]
mod tests;
pub(crate) mod thread;
pub(crate) mod threads;
#[cfg(test)]
mod turn_tests;
mod turns;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use model::{CheckedPaths, ConfigError, Link, Nanos, ScheduleClock, ScheduleOrder, Side, Waiting};
use netio::{MemoryPort, PortSet, ReceivedFrame, Spare, Stall, is_link_control};

use agenda::Agenda;
use allowance::{Intake, IntakeCost};
use capture::{Tap, TimeShare};
use conditions::Rules;
use held_frames::HeldFrames;
use least_delays::LeastDelays;
use link_runner::{ForwarderShared, LinkRunner, TurnEnd};
use overload::{Arrears, CpuClock, LateLimit, LatenessBound};
pub(crate) use packet_fields::packet_fields;
use packet_log::PacketLogWriter;
use record::lateness::{FlowDepartures, LateBudget};
use record::summary::PacketLogSummary;
use round_trips::RoundTripTimes;
use send_batch::SendBatch;
use stats::{EmulatorLoss, QueueState, StallStats, Stats};
use turns::LoadOfLinks;
pub(crate) use turns::Pace;

/// Neighbouring segments that are due within this time leave as one frame, when the last of them is
/// due.
const JOIN_WITHIN: Nanos = Nanos(10_000);

/// The largest number of frames handed to a port in one call.
const BATCH: usize = 32;

/// The largest number of links whose statistics are prepared before packets arrive.
const MOST_PREPARED: usize = 4;

/// The longest time that arrivals may wait in the rings, which have room for many times that.
const LONGEST_WAIT: Nanos = Nanos(1_000_000);

/// Sets of ports, the links between them, and the frames on their way.
pub(crate) struct Forwarder<P: PortSet> {
    runners: Vec<LinkRunner>,
    /// The link and its side for each port, by set and port.
    ends: Vec<Vec<Option<(u32, Side)>>>,
    agenda: Agenda,
    shared: ForwarderShared<P>,
    load: LoadOfLinks,
    /// The time that captures may take.
    captures: TimeShare,
    /// The delays that every arrival can wait, because no packet is due sooner.
    least_delays: LeastDelays,
    /// The links that have had a turn in this step, with the times of their next turns.
    served: Vec<(u32, TurnEnd)>,
}

/// New conditions of a running link.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewConditions {
    /// The paths, whose schedules follow `clock`.
    pub(crate) paths: CheckedPaths,
    /// The rules that give packets their classes.
    pub(crate) rules: Rules,
    /// The schedules' time before the change.
    pub(crate) clock: ScheduleClock,
    /// The effect of the change on the schedules' time.
    pub(crate) order: ScheduleOrder,
}

/// A port of a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId {
    pub(crate) set: u16,
    pub(crate) port: u32,
}

/// The time of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The step is due immediately, because more frames have arrived than one step takes in.
    Now,
    /// The step is due at this time or at the next arrival, whichever is earlier.
    At(Nanos),
    /// The step is due at the next arrival.
    Arrival,
}

impl PortId {
    /// The ports of a link between two sets with one port each.
    pub(crate) const SEPARATE_SETS: [Self; 2] =
        [Self { set: 0, port: 0 }, Self { set: 1, port: 0 }];

    /// The ports of a link in the first set, where the two ports of a link follow each other.
    pub(crate) fn in_one_set(link: u32) -> [Self; 2] {
        [0, 1].map(|side| Self {
            set: 0,
            port: 2 * link + side,
        })
    }

    fn set(self) -> usize {
        usize::from(self.set)
    }

    fn port(self) -> usize {
        self.port as usize
    }
}

impl<P: PortSet> Forwarder<P> {
    /// Creates a forwarder without links that holds at most `memory` bytes of frames.
    pub(crate) fn new(sets: Vec<P>, memory: usize) -> Self {
        Self {
            runners: Vec::new(),
            ends: sets.iter().map(|_| Vec::new()).collect(),
            agenda: Agenda::default(),
            shared: ForwarderShared {
                sets,
                held: HeldFrames::new(memory),
                due: Vec::new(),
                batch: SendBatch::default(),
                spare: Spare::default(),
                latest: Nanos::ZERO,
                bound: LatenessBound::in_virtual_time(),
                rings: Arrears::default(),
                intake_cost: IntakeCost::default(),
                stalls: StallStats::default(),
            },
            load: LoadOfLinks::default(),
            captures: TimeShare::default(),
            least_delays: LeastDelays::default(),
            served: Vec::new(),
        }
    }

    /// Sets the lateness at which packets are dropped if the forwarder cannot keep up, and the clock that
    /// tells how long its thread has run. Without them, no packet is dropped for that reason.
    pub(crate) fn bound_lateness(&mut self, limit: LateLimit, cpu_clock: CpuClock) {
        self.shared.bound = LatenessBound::new(limit, cpu_clock);
    }

    /// Notes that the forwarder waits if nothing is due before `until`.
    pub(crate) fn note_wait(&mut self, until: Option<Nanos>) {
        self.shared.bound.note_wait(until, netio::clock::now);
    }

    /// Adds a link between `ports` A and B. Departures later than `budget` after their due time count as late.
    pub(crate) fn add_link(
        &mut self,
        ports: [PortId; 2],
        link: Link,
        rules: Rules,
        budget: LateBudget,
        log: Option<PacketLogWriter>,
    ) {
        let number = u32::try_from(self.runners.len()).expect("far fewer links");
        for (end, side) in ports.into_iter().zip([Side::A, Side::B]) {
            let ends = &mut self.ends[end.set()];
            ends.resize(ends.len().max(end.port() + 1), None);
            ends[end.port()] = Some((number, side));
        }
        let captures = self.captures.clone();
        let runner = LinkRunner::new(
            number,
            ports,
            link,
            rules,
            Stats::with_budget(budget),
            log,
            captures,
        );
        self.least_delays.push(runner.least_delay());
        self.runners.push(runner);
    }

    /// Allocates what the statistics of departures need, if there are few links. Of many links, most have
    /// no packets.
    pub(crate) fn prepare_statistics(&mut self) {
        if self.runners.len() <= MOST_PREPARED {
            let runners = self.runners.iter_mut();
            runners.for_each(LinkRunner::prepare_statistics);
        }
    }

    /// Lets the links under high load, and what has arrived, wait until `until`. Then the thread can sleep between the
    /// packets of the other links, which leave in time. Returns false if there is no such rest, because the load
    /// is low or there is one link only.
    pub(crate) fn rest(&mut self, now: Nanos, until: Nanos) -> bool {
        // The load after the first frame that waits is not known yet.
        let known = self.next_arrival().map_or(now, |(at, _)| at.min(now));
        let rests = self.runners.len() > 1 && self.load.rest(known, until);
        if rests {
            self.shared.bound.note_rest(until - now);
        }
        rests
    }

    /// Returns true if links under high load wait for the end of a rest.
    pub(crate) fn rests(&self, now: Nanos) -> bool {
        self.load.rests(now)
    }

    /// Does what is due by `now`, in turns if there are several links. If the next departure is due
    /// within `lead` after `now`, it is prepared and sent when it is due.
    pub(crate) fn step(&mut self, now: Nanos, lead: Nanos) -> NextStep {
        self.shared.latest = now;
        self.shared.bound.time_has_passed();
        if self.load.rests(now) {
            self.serve_quiet(now);
            return NextStep::At(self.load.end_of_rest(self.agenda.next()));
        }
        let waiting = if self.runners.len() > 1 && self.load.is_uneven(now) {
            self.serve_quiet(now);
            // While frames are taken in, packets of other links become due, which leave before more are served.
            if self.load.takes_in() && self.next_arrival().is_some() {
                self.take_in(now);
                return NextStep::Now;
            }
            self.next_arrival().map(|(at, _)| at)
        } else {
            self.take_in(now)
        };
        // Frames that still wait arrived before `now`, so nothing after them can be decided yet.
        let horizon = waiting.unwrap_or(now);
        self.begin_round(now);
        let is_cut = self.serve(now, horizon);
        match (waiting, self.agenda.next()) {
            (Some(_), _) => NextStep::Now,
            _ if is_cut => NextStep::Now,
            (None, Some(at)) if at > now && at <= now + lead => self.prepare_ahead(at),
            (None, _) => self.next_appointment(),
        }
    }

    /// Does the work that one link has at the future time `at`.
    fn prepare_ahead(&mut self, at: Nanos) -> NextStep {
        let Some((_, link)) = self.agenda.take(at) else {
            return NextStep::Now;
        };
        let next = self.runners[link as usize].turn_ahead(&mut self.shared, at);
        self.agenda.set(link, next);
        self.next_appointment()
    }

    /// Returns the time of the next appointment of a link, or of the next round if one waits for it.
    fn next_appointment(&mut self) -> NextStep {
        let round = self.load.next_round();
        let next = self.agenda.next().into_iter().chain(round).min();
        next.map_or(NextStep::Arrival, NextStep::At)
    }

    /// Takes in the frames that have arrived, in the order of arrival over all ports. Returns the
    /// arrival time of the next frame that waits.
    fn take_in(&mut self, now: Nanos) -> Option<Nanos> {
        for set in &mut self.shared.sets {
            set.refresh(now);
        }
        if self.runners.len() == 1 {
            return self.take_frames(now, &mut Intake::of_one_link());
        }
        let (next, is_uneven) = (self.agenda.next(), self.load.is_uneven(now));
        let mut intake = Intake::of_several(now, next, self.shared.intake_cost, is_uneven);
        let waiting = self.take_frames(now, &mut intake);
        self.shared.intake_cost.took_in(now, intake);
        waiting
    }

    /// Takes in frames as far as `intake` goes. Returns the arrival time of the next frame that waits.
    fn take_frames(&mut self, now: Nanos, intake: &mut Intake) -> Option<Nanos> {
        let is_alone = self.runners.len() == 1;
        let is_short = !is_alone && self.rings_fill(now);
        while !intake.is_used_up() {
            let (arrival, set) = self.next_arrival()?;
            let taken = self.shared.sets[usize::from(set)].take();
            let ends = &self.ends[usize::from(set)];
            let end = taken.and_then(|(port, received)| {
                let (link, side) = (*ends.get(port)?)?;
                Some((link, side, received))
            });
            let (mut packets, mut bytes) = (1, 0);
            if let Some((link, side, received)) = end {
                let runner = &mut self.runners[link as usize];
                runner.load.count(arrival);
                match received {
                    ReceivedFrame::Frame(frame)
                        if is_short
                            && runner.share.is_used_up(now)
                            && !is_link_control(frame.bytes()) =>
                    {
                        runner.refuse(side, &frame);
                        intake.skip();
                        continue;
                    }
                    ReceivedFrame::Frame(frame) => {
                        bytes = frame.bytes().len();
                        packets = runner.accept(&mut self.shared, side, frame);
                        runner.share.take(now, packets, bytes);
                    }
                    ReceivedFrame::Truncated => {
                        runner.lose_unreadable(arrival, side, EmulatorLoss::TooLong)
                    }
                    ReceivedFrame::UnsupportedGso => {
                        runner.lose_unreadable(arrival, side, EmulatorLoss::UnsupportedGso);
                    }
                }
                if is_alone {
                    self.agenda.at_latest(link, now);
                } else if !self.load.arrived(arrival, link, runner)
                    && let Some(at) = runner.turn_after_arrival(now)
                {
                    self.agenda.at_latest(link, at);
                }
            }
            intake.take(packets, bytes);
            while let Some(place) = self.shared.sets[usize::from(set)].recall() {
                intake.copy(self.shared.held.give_back(set, place));
                if intake.is_used_up() {
                    break;
                }
            }
        }
        Some(self.next_arrival()?.0)
    }

    /// Returns true if the forwarder cannot keep up with the frames that arrive in its rings. Then each
    /// link may take in only its share in a step, so that those that fill the rings lose their own
    /// frames before the kernel drops those of any link.
    fn rings_fill(&mut self, now: Nanos) -> bool {
        let first = self.next_arrival().map(|(at, _)| at);
        let ForwarderShared { rings, bound, .. } = &mut self.shared;
        rings.note(first, now, bound.limit_of_rings(), bound);
        rings.is_overload()
    }

    /// Returns the first arrival that is not taken in yet, and its set.
    fn next_arrival(&self) -> Option<(Nanos, u16)> {
        let arrivals = self
            .shared
            .sets
            .iter()
            .zip(0..)
            .filter_map(|(set, number)| Some((set.arrival()?, number)));
        arrivals.min()
    }

    /// Records a time in which the host did not run this thread.
    #[cold]
    pub(crate) fn stalled(&mut self, stall: Stall) {
        self.shared.stalls.note(stall);
    }

    /// Returns true if packets that arrive until `until` can wait until then, because none is due
    /// sooner.
    pub(crate) fn can_wait(&self, now: Nanos, until: Nanos) -> bool {
        let wait = self.least_delays.least().unwrap_or(LONGEST_WAIT);
        until <= now + wait.min(LONGEST_WAIT)
    }

    /// Returns true if anything has arrived since the last step.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.shared.sets.iter().any(P::has_arrivals)
    }

    /// Frees the ports' memory that would otherwise end a sleep immediately.
    pub(crate) fn prepare_to_sleep(&mut self) {
        for (set, number) in self.shared.sets.iter().zip(0..) {
            if let Some(place) = set.recall_to_wait() {
                self.shared.held.give_back(number, place);
            }
        }
    }

    /// Puts new conditions into force on a link at `now`, or at the arrival time of the first frame
    /// that waits to be taken in. Returns the time of the change.
    ///
    /// # Errors
    /// Fails if the link refuses the conditions, which then stay unchanged.
    pub(crate) fn change(
        &mut self,
        link: usize,
        now: Nanos,
        new: NewConditions,
    ) -> Result<Nanos, ConfigError> {
        // The former conditions apply to packets that arrived earlier.
        let at = self.take_in(now).unwrap_or(now);
        let runner = &mut self.runners[link];
        let at = runner.change(at, new)?;
        self.least_delays.set(link, runner.least_delay());
        let number = u32::try_from(link).expect("far fewer links");
        self.agenda.set(number, Some(Nanos::ZERO));
        Ok(at)
    }

    /// Continues with another interface at this end of a link. Packets that arrived through the old
    /// one stay on their way.
    ///
    /// # Errors
    /// Fails if the new interface has gone, too.
    pub(crate) fn rejoin(
        &mut self,
        link: usize,
        side: Side,
        interface: u32,
    ) -> std::io::Result<()> {
        let end = self.runners[link].ports[side.index()];
        self.shared.sets[end.set()].rejoin(end.port(), interface)
    }

    /// Copies packets of a link from now on, until the capture ends.
    pub(crate) fn capture(&mut self, link: usize, tap: Tap) {
        self.runners[link].observers.capture(tap);
        let number = u32::try_from(link).expect("far fewer links");
        self.agenda.set(number, Some(Nanos::ZERO));
    }

    /// Stores the time of a link's first packet in `begins`. The link waits for it.
    pub(crate) fn announce_start(&mut self, link: usize, begins: Arc<AtomicU64>) {
        self.runners[link].announce_start(begins);
    }

    /// Measures round trips on a link from now on.
    pub(crate) fn measure_round_trips(&mut self, link: usize) {
        self.runners[link].observers.measure_round_trips();
    }

    /// Returns the round trips measured on a link up to now, by side.
    pub(crate) fn round_trips(&self, link: usize) -> [RoundTripTimes; 2] {
        self.runners[link].observers.round_trip_times()
    }

    /// Gives up the packets still on their way on a link and ends its packet log with them. Returns
    /// the summary of the log.
    pub(crate) fn finish(&mut self, link: usize) -> Option<PacketLogSummary> {
        self.runners[link].finish(&mut self.shared)
    }

    /// Returns all counters of a link.
    pub(crate) fn stats(&mut self, link: usize) -> &Stats {
        let runner = &mut self.runners[link];
        let ends = runner.ports;
        let stats = runner.stats();
        stats.stalls = self.shared.stalls;
        for side in [Side::A, Side::B] {
            let set = ends[side.index()].set();
            let missed = self.shared.sets[set].missed();
            if self.ends[set].len() == 1 {
                stats.missed[side.index()] = missed;
            } else {
                stats.missed_by_any = missed;
            }
        }
        stats.peak_bytes = self.shared.held.peak_bytes();
        stats
    }

    /// Returns the departures from a link up to now, by kind.
    pub(crate) fn departures(&self, link: usize) -> Vec<FlowDepartures> {
        self.runners[link].departures()
    }

    /// Returns the backlog at the bottleneck of each direction of a link at `at`, by ingress side.
    pub(crate) fn backlogs(&self, link: usize, at: Nanos) -> [Option<Waiting>; 2] {
        self.runners[link].backlogs(at)
    }

    /// Returns the queue and the drops of a link at `at`.
    pub(crate) fn queue_state(&self, link: usize, at: Nanos) -> QueueState {
        self.runners[link].queue_state(at)
    }

    /// Returns the bytes of frames that all links hold now, bookkeeping included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.held.bytes()
    }

    pub(crate) fn links(&self) -> usize {
        self.runners.len()
    }

    pub(crate) fn sets(&self) -> &[P] {
        &self.shared.sets
    }

    pub(crate) fn rules(&self, link: usize) -> &Rules {
        &self.runners[link].rules
    }
}

/// Passes all frames that arrive at `ports` A and B through `link`, in virtual time, until none is
/// on its way. Returns the ports with the frames that left through them.
///
/// In virtual time every packet leaves exactly when it is due, so the same seed always gives the
/// same departures.
#[must_use]
pub fn run_to_end(ports: [MemoryPort; 2], link: Link) -> [MemoryPort; 2] {
    let mut forwarder = Forwarder::new(ports.into(), usize::MAX);
    let budget = LateBudget::DEFAULT;
    forwarder.add_link(PortId::SEPARATE_SETS, link, Rules::default(), budget, None);
    run_until_idle(&mut forwarder, Nanos::ZERO);
    let sets = <[MemoryPort; 2]>::try_from(forwarder.shared.sets);
    sets.unwrap_or_else(|_| unreachable!("both are there still"))
}

/// Runs a forwarder in virtual time from `now` until no frame is on its way. Returns the time then.
fn run_until_idle(forwarder: &mut Forwarder<MemoryPort>, mut now: Nanos) -> Nanos {
    loop {
        let next = match forwarder.step(now, Nanos::ZERO) {
            NextStep::Now => continue,
            NextStep::At(at) => Some(at),
            NextStep::Arrival => None,
        };
        let arrivals = forwarder.sets().iter().filter_map(MemoryPort::next_arrival);
        match arrivals.chain(next).min() {
            Some(at) => now = at,
            None => return now,
        }
    }
}
