//! The forwarder: port → path → port, for one link or for many.
//!
//! `Forwarder::step` takes in what has arrived, lets the model decide, and sends what is due; it never
//! waits and has no clock: its caller and the ports say what time it is. `thread` turns it into a loop in real time,
//! [`run_to_end`] into one in virtual time.

mod agenda;
mod arena;
pub(crate) mod capture;
mod departures;
mod flows;
mod held;
mod lane;
mod load;
pub(crate) mod packet_log;
pub(crate) mod round_trips;
mod run;
pub(crate) mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

use model::{ConfigError, Link, Nanos, PathSpec, ScheduleClock, ScheduleOrder, Side, Waiting};
use netio::{MemoryPort, Ports, Received, Spare, Stall};

use agenda::Agenda;
use capture::Tap;
use conditions::Rules;
use held::HeldFrames;
use lane::{Common, Lane};
use load::Load;
pub(crate) use load::TURN;
use packet_log::PacketLogWriter;
use record::lateness::{FlowDepartures, LateBudget};
use record::summary::PacketLogSummary;
use round_trips::RoundTripTimes;
pub(crate) use stats::{Loss, Stats};

/// Neighbouring segments that are due within this span leave as one frame, when the last of them is due.
const QUANTUM: Nanos = Nanos(10_000);

/// Frames taken in before what is due is looked at again.
const INTAKE: usize = 64;

/// Frames handed to a port in one call.
const BATCH: usize = 32;

/// Longest that arrivals are left alone while something is held: far less than the rings hold.
const LONGEST_PATIENCE: Nanos = Nanos(1_000_000);

/// Sets of ports, the links between them, and the frames that are on their way.
pub(crate) struct Forwarder<P: Ports> {
    lanes: Vec<Lane>,
    /// By set and port: whose end that is.
    ends: Vec<Vec<Option<(u32, Side)>>>,
    agenda: Agenda,
    common: Common<P>,
    load: Load,
    /// How long arrivals can wait, because none of them is due sooner.
    patience: Nanos,
    /// Links that are due in this step.
    due: Vec<u32>,
}

/// Other conditions for a link that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewConditions {
    /// Their schedules count by `clock`.
    pub(crate) paths: Vec<PathSpec>,
    /// Which class a packet is of.
    pub(crate) rules: Rules,
    /// The time of schedules as it was until then.
    pub(crate) clock: ScheduleClock,
    /// What becomes of that at the same instant.
    pub(crate) order: ScheduleOrder,
}

/// A port of a forwarder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId {
    pub(crate) set: u16,
    pub(crate) port: u32,
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

impl PortId {
    /// Two sets of one port each.
    pub(crate) const APART: [Self; 2] = [Self { set: 0, port: 0 }, Self { set: 1, port: 0 }];

    /// Ports of the first set, in which those of every link follow each other.
    pub(crate) fn together(link: u32) -> [Self; 2] {
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

impl<P: Ports> Forwarder<P> {
    /// Without links yet; `memory` is how many bytes of frames may be held.
    pub(crate) fn new(sets: Vec<P>, memory: usize) -> Self {
        Self {
            lanes: Vec::new(),
            ends: sets.iter().map(|_| Vec::new()).collect(),
            agenda: Agenda::default(),
            common: Common {
                sets,
                held: HeldFrames::new(memory),
                due: Vec::new(),
                spare: Spare::default(),
            },
            load: Load::default(),
            patience: LONGEST_PATIENCE,
            due: Vec::new(),
        }
    }

    /// Adds a link between `ports` A and B. Its departures later than `budget` after their due time count as late.
    pub(crate) fn join(
        &mut self,
        ports: [PortId; 2],
        link: Link,
        rules: Rules,
        budget: LateBudget,
        log: Option<PacketLogWriter>,
    ) {
        let number = u32::try_from(self.lanes.len()).expect("far fewer links");
        for (end, side) in ports.into_iter().zip([Side::A, Side::B]) {
            let ends = &mut self.ends[end.set()];
            ends.resize(ends.len().max(end.port() + 1), None);
            ends[end.port()] = Some((number, side));
        }
        let lane = Lane::new(ports, link, rules, Stats::within(budget), log);
        self.patience = self.patience.min(lane.least_delay());
        self.lanes.push(lane);
    }

    /// Does everything that is to be done by `now`; and what is due up to `lead` later, if it is alone, gets ready for its
    /// time and then sends.
    pub(crate) fn step(&mut self, now: Nanos, lead: Nanos) -> Next {
        let waiting = self.take_in(now);
        // What still waits came before now: nothing after it can be decided yet.
        let horizon = waiting.unwrap_or(now);
        while let Some(link) = self.agenda.take(now) {
            self.due.push(link);
        }
        for link in self.due.drain(..) {
            let next = self.lanes[link as usize].turn(&mut self.common, horizon, now);
            self.agenda.set(link, next);
        }
        match (waiting, self.agenda.next()) {
            (Some(_), _) => Next::Now,
            (None, Some(at)) if at > now && at <= now + lead => self.get_ready(at),
            (None, Some(at)) => Next::At(at),
            (None, None) => Next::Arrival,
        }
    }

    /// Does what one link has to do at `at`, which lies ahead.
    fn get_ready(&mut self, at: Nanos) -> Next {
        let Some(link) = self.agenda.take(at) else {
            return Next::Now;
        };
        let next = self.lanes[link as usize].turn_ahead(&mut self.common, at);
        self.agenda.set(link, next);
        self.agenda.next().map_or(Next::Arrival, Next::At)
    }

    /// Offers what has arrived, all ports merged by arrival; when the next arrival was that still waits.
    fn take_in(&mut self, now: Nanos) -> Option<Nanos> {
        for set in &mut self.common.sets {
            set.refresh(now);
        }
        for _ in 0..INTAKE {
            let (arrival, set) = self.next_arrival()?;
            self.load.arrived(arrival);
            let taken = self.common.sets[usize::from(set)].take();
            let ends = &self.ends[usize::from(set)];
            let end = taken.and_then(|(port, received)| {
                let (link, side) = (*ends.get(port)?)?;
                Some((link, side, received))
            });
            if let Some((link, side, received)) = end {
                let lane = &mut self.lanes[link as usize];
                match received {
                    Received::Frame(frame) => lane.accept(&mut self.common, side, frame),
                    Received::Truncated => lane.lose_unseen(arrival, side, Loss::TooLong),
                    Received::UnsupportedGso => {
                        lane.lose_unseen(arrival, side, Loss::UnsupportedGso);
                    }
                }
                self.agenda.set(link, Some(Nanos::ZERO));
            }
            while let Some(place) = self.common.sets[usize::from(set)].recall() {
                self.common.held.give_back(set, place);
            }
        }
        Some(self.next_arrival()?.0)
    }

    /// The first arrival that was not taken in yet, and the set that has it.
    fn next_arrival(&self) -> Option<(Nanos, u16)> {
        let arrivals = self.common.sets.iter().zip(0..);
        let arrivals = arrivals.filter_map(|(set, number)| Some((set.arrival()?, number)));
        arrivals.min()
    }

    /// The machine stood still so long before the next step.
    #[cold]
    pub(crate) fn stood_still(&mut self, stall: Stall) {
        self.lanes
            .iter_mut()
            .for_each(|lane| lane.stood_still(stall));
    }

    /// Whether so much arrives that the next turn comes at its own time, [`TURN`] after this one.
    pub(crate) fn is_loaded(&self, now: Nanos) -> bool {
        self.load.is_high(now)
    }

    /// Whether what arrives until `until` can wait until then: no packet is due sooner.
    pub(crate) fn can_wait(&self, now: Nanos, until: Nanos) -> bool {
        until <= now + self.patience
    }

    /// Whether anything has arrived since the last step.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.common.sets.iter().any(P::has_arrivals)
    }

    /// Gives ports back what of their memory would end a sleep at once.
    pub(crate) fn prepare_to_sleep(&mut self) {
        for (set, number) in self.common.sets.iter().zip(0..) {
            if let Some(place) = set.recall_to_wait() {
                self.common.held.give_back(number, place);
            }
        }
    }

    /// Puts other conditions into force on a link, at `now` or, if more has arrived than is taken in at once, before what
    /// waits; when they are.
    ///
    /// # Errors
    /// What the link refuses; nothing is changed then.
    pub(crate) fn change(
        &mut self,
        link: usize,
        now: Nanos,
        new: NewConditions,
    ) -> Result<Nanos, ConfigError> {
        // What came before meets the conditions that it found.
        let at = self.take_in(now).unwrap_or(now);
        let at = self.lanes[link].change(at, new)?;
        let number = u32::try_from(link).expect("far fewer links");
        self.agenda.set(number, Some(Nanos::ZERO));
        let least = self.lanes.iter().map(Lane::least_delay).min();
        self.patience = least.map_or(LONGEST_PATIENCE, |least| least.min(LONGEST_PATIENCE));
        Ok(at)
    }

    /// Goes on with another interface at this end of a link. What came by the old one and is on its way stays so.
    ///
    /// # Errors
    /// That interface is gone, too.
    pub(crate) fn rejoin(
        &mut self,
        link: usize,
        side: Side,
        interface: u32,
    ) -> std::io::Result<()> {
        let end = self.lanes[link].ports()[side.index()];
        self.common.sets[end.set()].rejoin(end.port(), interface)
    }

    /// Copies packets of a link from now on, until that is to end.
    pub(crate) fn capture(&mut self, link: usize, tap: Tap) {
        self.lanes[link].capture(tap);
        let number = u32::try_from(link).expect("far fewer links");
        self.agenda.set(number, Some(Nanos::ZERO));
    }

    /// Looks for round trips on a link from now on.
    pub(crate) fn watch(&mut self, link: usize) {
        self.lanes[link].watch();
    }

    /// How long the round trips took that were seen on a link so far, by side; none before it was watched.
    pub(crate) fn round_trips(&self, link: usize) -> [RoundTripTimes; 2] {
        self.lanes[link].round_trips()
    }

    /// Gives up what is still on its way on a link and ends its packet log with it; what of that was kept.
    pub(crate) fn finish(&mut self, link: usize) -> Option<PacketLogSummary> {
        self.lanes[link].finish(&mut self.common)
    }

    /// Everything counted so far of a link.
    pub(crate) fn stats(&mut self, link: usize) -> &Stats {
        let lane = &mut self.lanes[link];
        let ends = lane.ports();
        let stats = lane.stats();
        for side in [Side::A, Side::B] {
            let set = ends[side.index()].set();
            let missed = self.common.sets[set].missed();
            if self.ends[set].len() == 1 {
                stats.missed[side.index()] = missed;
            } else {
                stats.missed_by_any = missed;
            }
        }
        stats.peak_bytes = self.common.held.peak_bytes();
        stats
    }

    /// What has left a link so far, by kind of packets.
    pub(crate) fn departures(&self, link: usize) -> Vec<FlowDepartures> {
        self.lanes[link].departures()
    }

    /// What waits for the bottleneck of each direction of a link at `at`, by ingress.
    pub(crate) fn backlogs(&self, link: usize, at: Nanos) -> [Option<Waiting>; 2] {
        self.lanes[link].backlogs(at)
    }

    /// Bytes of frames held now on all links, book-keeping included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.common.held.bytes()
    }

    pub(crate) fn links(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn sets(&self) -> &[P] {
        &self.common.sets
    }

    pub(crate) fn rules(&self, link: usize) -> &Rules {
        self.lanes[link].rules()
    }
}

/// Passes all that arrives at `ports` A and B through `link`, in virtual time and as fast as it goes, until nothing is
/// on its way any more. Gives the ports back, with what left by them.
///
/// What arrives is in time by definition, so every packet leaves when it is due, and one seed gives the same departures
/// again.
#[must_use]
pub fn run_to_end(ports: [MemoryPort; 2], link: Link) -> [MemoryPort; 2] {
    let mut forwarder = Forwarder::new(ports.into(), usize::MAX);
    let budget = LateBudget::DEFAULT;
    forwarder.join(PortId::APART, link, Rules::default(), budget, None);
    let mut now = Nanos::ZERO;
    loop {
        let next = match forwarder.step(now, Nanos::ZERO) {
            Next::Now => continue,
            Next::At(at) => Some(at),
            Next::Arrival => None,
        };
        let arrivals = forwarder.sets().iter().filter_map(MemoryPort::next_arrival);
        match arrivals.chain(next).min() {
            Some(at) => now = at,
            None => break,
        }
    }
    let sets = <[MemoryPort; 2]>::try_from(forwarder.common.sets);
    sets.unwrap_or_else(|_| unreachable!("both are there still"))
}
