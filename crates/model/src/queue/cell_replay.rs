//! A bottleneck with a light and a full load.

use core::mem;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::behaviour::{Behaviour, Bottleneck};
use crate::counters::Waiting;
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::queue::server::{Server, of_server};
use crate::queue::trace::Traced;
use crate::schedule::ScheduleClock;
use crate::spec::{CellReplay, Effect, LIGHT_OPPORTUNITY, LightLoad, Trace};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;
use crate::units::Bytes;

/// The time after the last packet of a train for which another one still belongs to it. CellReplay counts in milliseconds,
/// and the packets of a burst come at slightly different times.
const TOGETHER: Nanos = Nanos::from_millis(1);

/// Packets on their way through the light load, and the bottleneck of the full load, which some of them enter behind it.
/// Packets keep their order.
#[derive(Debug)]
pub(crate) struct CellReplayStage {
    start: Nanos,
    /// The clock of the schedules, which both loads follow.
    clock: ScheduleClock,
    loads: Option<CellReplay>,
    train: Option<Train>,
    /// The time at which the last packet leaves the light load.
    last: Nanos,
    /// The packets in the light load, in the order in which they leave it.
    delayed: VecDeque<Delayed>,
    /// The number of those that the full load serves.
    heavy: usize,
    full: Box<Server>,
    owed: Option<Owed>,
}

/// The full load as if it had served all packets, those of the light load too. A train lasts until then, because a light load
/// is one that the full load would have served, however its packets come.
#[derive(Debug)]
struct Owed {
    full: Traced,
    /// The time at which it has served all packets.
    until: Nanos,
    /// Whether the full load has served packets since it was last idle. It may have dropped some, which are not owed.
    is_heavy: bool,
}

/// A train of packets that the light load serves.
#[derive(Debug)]
struct Train {
    number: usize,
    /// The arrival of its first packet.
    since: Nanos,
    /// The delay of its first packet.
    delay: Nanos,
    /// The number of the current opportunity.
    current: usize,
    /// The bytes that the current opportunity has left.
    spare: u64,
    /// The time at which its last packet leaves, without the offset by size.
    leaves: Nanos,
}

/// A packet in the light load.
#[derive(Debug)]
struct Delayed {
    /// The time at which it leaves the light load.
    at: Nanos,
    /// Its number at this stage.
    index: u64,
    /// Whether the light load alone serves it, unless packets wait for the full load.
    is_light: bool,
    t: InFlight,
}

impl CellReplayStage {
    pub(crate) fn new(start: Nanos, draws: Draws) -> Self {
        Self {
            start,
            clock: ScheduleClock::default(),
            loads: None,
            train: None,
            last: Nanos::ZERO,
            delayed: VecDeque::new(),
            heavy: 0,
            full: Box::new(Server::new(start, draws)),
            owed: None,
        }
    }

    /// Returns when a packet of `len` leaves the light load, and whether that alone serves it.
    fn pass(&mut self, at: Nanos, len: Bytes) -> (Nanos, bool) {
        let (Some(CellReplay { light, .. }), Some(owed)) = (&self.loads, &mut self.owed) else {
            return (at.max(self.last), true);
        };
        let goes_on = |train: &&mut Train| {
            let comes = at + train.delay;
            comes < train.leaves + TOGETHER || comes < owed.until
        };
        let (mut leaves, mut is_light) = match self.train.as_mut().filter(goes_on) {
            Some(train) => train.continue_with(light, at, len),
            None => {
                let recorded = self.clock.at(at - self.start);
                let new = self.train.insert(Train::begin(light, recorded, at));
                new.take(len);
                (new.leaves, true)
            }
        };
        let moved = Nanos(leaves.0.saturating_add_signed(light.offset(len))).max(at);
        if moved >= self.last {
            leaves = moved;
        }
        if leaves < self.last {
            (leaves, is_light) = (self.last, false);
        }
        self.last = leaves;
        owed.add(leaves, len);
        owed.is_heavy |= !is_light;
        (leaves, is_light)
    }

    /// Creates the account of the full load anew, from `at` on.
    fn begin_account(&mut self, at: Nanos) {
        let loads = self.loads.as_ref();
        self.owed = loads.map(|loads| Owed::new(&loads.full, self.clock, self.start, at));
    }

    /// Limits what is owed when the full load has become idle: the packets that it dropped are not, so that at most the
    /// opportunities of one train are.
    fn settle(&mut self, at: Nanos) {
        let is_idle = self.heavy == 0 && self.full.held() == 0;
        let (Some(loads), Some(owed), Some(train)) = (&self.loads, &mut self.owed, &self.train)
        else {
            return;
        };
        if !is_idle || !owed.is_heavy {
            return;
        }
        owed.is_heavy = false;
        let opportunities = loads.light.deliveries(train.number).len() as u64;
        let mut most = Owed::new(&loads.full, self.clock, self.start, at);
        most.add(at, Bytes(opportunities * LIGHT_OPPORTUNITY.0));
        if most.until < owed.until {
            *owed = most;
        }
    }
}

impl Owed {
    fn new(full: &Trace, clock: ScheduleClock, start: Nanos, at: Nanos) -> Self {
        Self {
            full: Traced::new(Arc::clone(&full.opportunities), clock, start, at),
            until: at,
            is_heavy: false,
        }
    }

    /// Adds a packet of `len` that comes at `at`.
    fn add(&mut self, at: Nanos, len: Bytes) {
        if self.until <= at {
            self.full.begin_busy_period(at);
        }
        self.until = self.full.serve(self.until.max(at), len);
    }
}

impl Train {
    /// Begins a train with a packet that comes at `at`, as the load was at the time `recorded` of the record.
    fn begin(light: &LightLoad, recorded: Nanos, at: Nanos) -> Self {
        let (number, delay) = light.begin(recorded);
        Self {
            number,
            since: at,
            delay,
            current: 0,
            spare: LIGHT_OPPORTUNITY.0,
            leaves: at + delay,
        }
    }

    /// Returns when another packet, which comes at `at`, leaves, and whether the train has an opportunity for it. The
    /// opportunities before `at` are over.
    fn continue_with(&mut self, light: &LightLoad, at: Nanos, len: Bytes) -> (Nanos, bool) {
        let deliveries = light.deliveries(self.number);
        let since = self.since;
        let is_over = |after: &Nanos| since + *after < at;
        while deliveries.get(self.current).is_some_and(is_over) {
            self.go_on();
        }
        self.take(len);
        let opportunity = deliveries.get(self.current);
        self.leaves = match opportunity {
            Some(after) => self.since + self.delay + *after,
            None => at + self.delay,
        };
        (self.leaves, opportunity.is_some())
    }

    fn go_on(&mut self) {
        self.current += 1;
        self.spare = LIGHT_OPPORTUNITY.0;
    }

    /// Takes up the opportunity for a packet of `len`. A packet shares one only as a whole, unless it is longer than
    /// one.
    fn take(&mut self, len: Bytes) {
        let mut left = len.0;
        if self.spare < left && left <= LIGHT_OPPORTUNITY.0 {
            self.go_on();
        }
        while self.spare < left {
            left -= self.spare;
            self.go_on();
        }
        self.spare -= left;
    }
}

impl CellReplay {
    pub(crate) fn behaviour(&self) -> Behaviour<'_> {
        Behaviour {
            propagation: self.light.begin(Nanos::ZERO).1,
            ..of_server(Bottleneck::Trace(&self.full), self.full.queue)
        }
    }
}

impl Stage for CellReplayStage {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        if self.loads.is_none() && self.held() == 0 {
            return EntryResult::Passes(at);
        }
        let (leaves, is_light) = self.pass(at, t.packet.len);
        self.heavy += usize::from(!is_light);
        self.delayed.push_back(Delayed {
            at: leaves,
            index,
            is_light,
            t: *t,
        });
        EntryResult::Taken
    }

    fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
        let first = self.delayed.front().map_or(Nanos::MAX, |first| first.at);
        // A packet that the full load has served by then leaves it before another one comes.
        if self.full.next().is_some_and(|served| served <= first) {
            let served = self.full.wake(at, out);
            self.settle(at);
            return served;
        }
        let Delayed {
            index,
            is_light,
            mut t,
            ..
        } = self.delayed.pop_front()?;
        self.heavy -= usize::from(!is_light);
        if is_light && self.full.held() == 0 {
            return Some(t);
        }
        match self.full.enter(at, index, &mut t, out) {
            EntryResult::Taken => None,
            EntryResult::Passes(_) => Some(t),
            EntryResult::Dropped(cause) | EntryResult::Refused(cause, _) => {
                out.drop(at, t, cause);
                None
            }
        }
    }

    fn next(&self) -> Option<Nanos> {
        let delayed = self.delayed.front().map(|first| first.at);
        match (delayed, self.full.next()) {
            (Some(delayed), Some(served)) => Some(delayed.min(served)),
            (delayed, served) => delayed.or(served),
        }
    }

    fn set(&mut self, at: Nanos, effect: &Effect) {
        let loads = match effect {
            Effect::CellReplay(loads) => Some(loads.clone()),
            _ => None,
        };
        let is_same = |one: &CellReplay, other: &CellReplay| {
            Arc::ptr_eq(&one.light, &other.light)
                && Arc::ptr_eq(&one.full.opportunities, &other.full.opportunities)
        };
        let before = mem::replace(&mut self.loads, loads);
        let both = before.as_ref().zip(self.loads.as_ref());
        if !both.is_some_and(|(before, now)| is_same(before, now)) {
            self.train = None;
            self.begin_account(at);
        }
        let full = self.loads.as_ref().map(|loads| loads.full.clone());
        self.full
            .set(at, &full.map_or(Effect::Nothing, Effect::Trace));
    }

    fn follow(&mut self, at: Nanos, clock: ScheduleClock) {
        if clock != self.clock {
            self.clock = clock;
            self.train = None;
            self.begin_account(at);
        }
        self.full.follow(at, clock);
    }

    fn held(&self) -> usize {
        self.delayed.len() + self.full.held()
    }

    fn longest_queue(&self) -> usize {
        self.full.longest_queue()
    }

    fn backlog(&self, at: Nanos) -> Option<Waiting> {
        self.full.backlog(at)
    }
}
