//! A bottleneck with a light and a full load.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::behaviour::{Behaviour, Bottleneck};
use crate::counters::Waiting;
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::queue::server::{Server, of_server};
use crate::schedule::ScheduleClock;
use crate::spec::{CellReplay, Effect, LIGHT_OPPORTUNITY, LightLoad};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;
use crate::units::Bytes;

/// Packets on their way through the light load, and the bottleneck of the full load, which some of them enter behind it.
/// Packets keep their order.
#[derive(Debug)]
pub(crate) struct CellReplayStage {
    start: Nanos,
    /// The clock of the schedules, which both loads follow.
    clock: ScheduleClock,
    light: Option<Arc<LightLoad>>,
    train: Option<Train>,
    /// The time at which the last packet leaves the light load.
    last: Nanos,
    /// The packets in the light load, in the order in which they leave it.
    delayed: VecDeque<Delayed>,
    full: Box<Server>,
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
            light: None,
            train: None,
            last: Nanos::ZERO,
            delayed: VecDeque::new(),
            full: Box::new(Server::new(start, draws)),
        }
    }

    /// Returns when a packet of `len` leaves the light load, and whether that alone serves it.
    fn pass(&mut self, at: Nanos, len: Bytes) -> (Nanos, bool) {
        let Some(light) = &self.light else {
            return (at.max(self.last), true);
        };
        let (mut leaves, mut is_light) = match &mut self.train {
            Some(train) if at + train.delay <= train.leaves => train.continue_with(light, at, len),
            train => {
                let recorded = self.clock.at(at - self.start);
                let new = train.insert(Train::begin(light, recorded, at));
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
        (leaves, is_light)
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

    /// Returns when another packet, which comes at `at`, leaves, and whether the train has an opportunity for it.
    /// The opportunities before `at` are used up: the packet comes before the last one has left.
    fn continue_with(&mut self, light: &LightLoad, at: Nanos, len: Bytes) -> (Nanos, bool) {
        let deliveries = light.deliveries(self.number);
        self.take(len);
        let opportunity = deliveries.get(self.current);
        self.leaves = match opportunity {
            Some(after) => self.since + self.delay + *after,
            None => {
                // CellReplay counts the last opportunity from the packet itself.
                let last = deliveries.last().copied().unwrap_or(Nanos::ZERO);
                at + self.delay.max(last)
            }
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
        if self.light.is_none() && self.held() == 0 {
            return EntryResult::Passes(at);
        }
        let (leaves, is_light) = self.pass(at, t.packet.len);
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
            return self.full.wake(at, out);
        }
        let Delayed {
            index,
            is_light,
            mut t,
            ..
        } = self.delayed.pop_front()?;
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
        let full = match effect {
            Effect::CellReplay(own) => {
                let is_same = |light: &Arc<LightLoad>| Arc::ptr_eq(light, &own.light);
                if !self.light.as_ref().is_some_and(is_same) {
                    self.light = Some(Arc::clone(&own.light));
                    self.train = None;
                }
                Effect::Trace(own.full.clone())
            }
            _ => {
                self.light = None;
                self.train = None;
                Effect::Nothing
            }
        };
        self.full.set(at, &full);
    }

    fn follow(&mut self, at: Nanos, clock: ScheduleClock) {
        if clock != self.clock {
            self.clock = clock;
            self.train = None;
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
