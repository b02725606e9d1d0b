//! The link: its stages, a path through them for each side and class, and the order of events.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::checked::CheckedPaths;
use crate::counters::{Counters, HopCounters, StageReport, Waiting};
use crate::in_flight::InFlight;
use crate::named::NamedStage;
use crate::packet::{DropCause, Edit, Outcome, Packet, PacketId, Reply, Side};
use crate::path::{Handover, Path, Step};
use crate::spec::{ConfigError, LinkConfig};
use crate::stage::{EntryResult, Out, PacketOutcome};
use crate::time::Nanos;
use crate::timers::Timers;
use crate::units::Bytes;

/// A link in model time: offer packets, poll outcomes, ask when to come back.
/// A link in model time. The caller offers packets, polls outcomes and asks when to come back.
///
/// Events inside the link happen at their *logical* times and in the order of those times, over all paths and stages.
/// Events of the same time happen in the order in which they were scheduled, and a packet that leaves a stage goes
/// before one that arrives at the link. Therefore outcomes depend on the offers alone: a late or an extra `poll`
/// changes nothing, unless a packet is offered that arrived before an event that was already processed for its
/// direction.
///
/// A packet's outcome is decided as soon as nothing can change it any more: when the packet leaves its last server, or
/// on arrival if its path has none. Its due time then lies ahead by the delays that remain.
#[derive(Debug)]
pub struct Link {
    pub(crate) seed: u64,
    pub(crate) link: u64,
    pub(crate) start: Nanos,
    /// The conditions with which it begins when its first packet arrives, while it waits for that.
    pub(crate) waiting: Option<Box<CheckedPaths>>,
    pub(crate) stages: Vec<NamedStage>,
    pub(crate) paths: Vec<Path>,
    /// The indexes of the paths that arriving packets take, by side and class.
    pub(crate) current: [Vec<u32>; 2],
    /// Whether the directions share a stage, so that no arrival may be earlier than an event of either direction.
    pub(crate) shared: bool,
    /// The number of stages that the conditions no longer name and that paths still contain.
    pub(crate) leaving: usize,
    /// The largest number of packets that can result from one that arrives now.
    pub(crate) most_copies: u32,
    pub(crate) is_stopped: bool,
    pub(crate) timers: Timers,
    /// The time of the latest arrival or event of each direction.
    pub(crate) clocks: [Nanos; 2],
    /// Outputs of stages that were not processed yet.
    out: Out,
    decided: VecDeque<DecidedOutcome>,
    copies: u32,
    pub(crate) counters: [Vec<Counters>; 2],
    /// The hops that stages have named, in the order in which they first did.
    pub(crate) hops: Vec<HopCounters>,
}

/// An outcome that was not polled yet.
///
/// It is flat and short, because every packet pays for its size.
#[derive(Debug)]
struct DecidedOutcome {
    id: PacketId,
    len: Bytes,
    at: Nanos,
    edit: Option<Edit>,
    copy: u32,
    class: u16,
    side: Side,
    mark: bool,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug)]
enum Verdict {
    Copied,
    Delivered,
    /// The last number is that of the hop, or 0.
    Dropped(DropCause, Option<Reply>, u16),
}

impl Link {
    /// Creates a link with the conditions of `config`.
    ///
    /// # Errors
    /// Returns an error that names the stage and the field if conditions contradict each other, lie out of range or
    /// cost too much.
    pub fn new(config: &LinkConfig) -> Result<Self, ConfigError> {
        let mut link = Self {
            seed: config.seed,
            link: config.link,
            start: if config.waits {
                Nanos::MAX
            } else {
                config.start
            },
            waiting: config.waits.then(Box::default),
            stages: Vec::new(),
            paths: Vec::new(),
            current: [Vec::new(), Vec::new()],
            shared: false,
            leaving: 0,
            most_copies: 1,
            is_stopped: false,
            timers: Timers::default(),
            clocks: [Nanos::ZERO; 2],
            out: Out::default(),
            decided: VecDeque::new(),
            copies: 0,
            counters: [Vec::new(), Vec::new()],
            hops: Vec::new(),
        };
        link.change(Nanos::ZERO, &config.paths)?;
        Ok(link)
    }

    /// Takes a packet that arrived at `at` on side `ingress`, and returns by how much it was late.
    ///
    /// Packets must be offered in the order of arrival. A packet that is older than the latest arrival or event of its
    /// direction (of both directions, if they share a stage) counts as late and is treated as if it arrived at that
    /// time.
    pub fn offer(&mut self, at: Nanos, ingress: Side, packet: Packet) -> Nanos {
        if self.waiting.is_some() {
            self.begin(at);
        }
        while self.step(at) {}
        let clock = self.clocks[ingress.index()];
        let arrival = at.max(clock);
        if self.leaving > 0 {
            self.retire_settled(arrival);
        }
        let paths = &self.current[ingress.index()];
        let class = if usize::from(packet.class) < paths.len() {
            packet.class
        } else {
            0
        };
        let path = paths[usize::from(class)];
        let counters = &mut self.counters[ingress.index()][usize::from(class)];
        counters.packets += 1;
        counters.bytes += packet.len.0;
        counters.late += u64::from(at < clock);
        self.paths[path as usize].inside += 1;
        self.advance_clock(ingress, arrival);
        let mut in_flight = InFlight {
            class,
            path,
            ..InFlight::of(packet, ingress, arrival)
        };
        self.carry(arrival, arrival, &mut in_flight);
        if cfg!(debug_assertions) && packet.id.0.is_multiple_of(64) {
            self.check_held();
        }
        Nanos(arrival.0 - at.0)
    }

    /// Returns the next outcome that is decided by `now`, in the order of decision; `None` if there is no more.
    ///
    /// Poll with a time up to which every arrival has been offered: a packet that is offered later and is older than an
    /// event already processed is late.
    pub fn poll(&mut self, now: Nanos) -> Option<Outcome> {
        while self.decided.is_empty() && self.step(now) {}
        let DecidedOutcome {
            id,
            len,
            at,
            edit,
            copy,
            class,
            side,
            mark,
            verdict,
        } = self.decided.pop_front()?;
        let counters = &mut self.counters[side.index()][usize::from(class)];
        Some(match verdict {
            Verdict::Delivered => {
                counters.delivered += 1;
                counters.delivered_bytes += len.0;
                counters.marked += u64::from(mark);
                counters.edited += u64::from(edit.is_some());
                Outcome::Deliver {
                    id,
                    copy,
                    due: at,
                    mark,
                    edit,
                }
            }
            Verdict::Dropped(cause, reply, hop) => {
                counters.drop(cause);
                if let Some(place) = usize::from(hop).checked_sub(1) {
                    self.hops[place].drop(side, cause);
                }
                Outcome::Drop {
                    id,
                    copy,
                    at,
                    cause,
                    reply,
                    hop,
                }
            }
            Verdict::Copied => {
                counters.copies += 1;
                Outcome::Copied { id, copy }
            }
        })
    }

    /// Returns when the next undecided packet may be decided; `None` if no packet is held, or if all held packets wait
    /// for a change of the conditions.
    ///
    /// While outcomes wait to be polled, it returns a time that has passed.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        if !self.decided.is_empty() {
            return Some(self.clocks[0].min(self.clocks[1]));
        }
        self.timers.first().map(|(at, _)| at)
    }

    /// Returns a lower bound of the time from a packet's arrival to its due time, for packets that arrive now: the
    /// smallest sum, over all paths, of the delays that are known to be constant.
    #[must_use]
    pub fn least_delay(&self) -> Nanos {
        let paths = self.current.iter().flatten();
        let of_path = |path: &u32| {
            let stages = self.paths[*path as usize].stages();
            let delays = stages.map(|stage| self.stages[stage].least_delay());
            delays.fold(Nanos::ZERO, |sum, delay| sum + delay)
        };
        paths.map(of_path).min().unwrap_or(Nanos::ZERO)
    }

    /// Returns the largest number of packets that can result from one that arrives now, itself included: each stage
    /// that copies doubles it. It is at most [`MOST_COPIES`](crate::MOST_COPIES).
    #[must_use]
    pub fn most_copies(&self) -> u32 {
        self.most_copies
    }

    /// Ends the link: gives up every packet and copy whose outcome is not decided, and returns their identifiers and
    /// copy numbers. Their outcomes never come, and they stay counted as held. Poll all decided outcomes first.
    pub fn stop(&mut self) -> Vec<(PacketId, u32)> {
        self.is_stopped = true;
        let at = self.clocks[0].max(self.clocks[1]);
        for stage in 0..self.stages.len() {
            self.stages[stage].empty(at, &mut self.out);
            self.timers.set(stage, None);
        }
        let held = (0..self.out.len())
            .map(|place| self.out.get(place).t)
            .map(|t| (t.packet.id, t.copy))
            .collect();
        self.out.truncate(0);
        self.paths.iter_mut().for_each(|path| path.inside = 0);
        held
    }

    /// Returns the counters of packets that entered at `ingress`, summed over all classes.
    #[must_use]
    pub fn counters(&self, ingress: Side) -> Counters {
        self.by_class(ingress)
            .iter()
            .fold(Counters::default(), |sum, one| sum + *one)
    }

    /// Returns the counters of packets that entered at `ingress`, by class.
    #[must_use]
    pub fn by_class(&self, ingress: Side) -> &[Counters] {
        &self.counters[ingress.index()]
    }

    /// Returns the counters of every hop that a stage has ever named, in the order in which they were first named. The
    /// place of a hop never changes.
    #[must_use]
    pub fn hops(&self) -> &[HopCounters] {
        &self.hops
    }

    /// Returns a report of each stage, in the order in which the paths name them, those of side A first.
    pub fn stages(&self) -> impl Iterator<Item = StageReport<'_>> {
        self.stages
            .iter()
            .filter(|stage| !stage.is_retired())
            .map(NamedStage::report)
    }

    /// Returns what waits at `at` for a server on the path of class 0 from `ingress`; of several servers, the one with
    /// the longest wait counts. `None` if the path has no server.
    #[must_use]
    pub fn backlog(&self, at: Nanos, ingress: Side) -> Option<Waiting> {
        let path = *self.current[ingress.index()].first()?;
        let stages = self.paths[path as usize].stages();
        let backlogs = stages.filter_map(|stage| self.stages[stage].backlog(at));
        backlogs.max_by_key(|backlog| backlog.delay)
    }

    /// Processes the earliest event if its time is at or before `now`, and returns whether there was one.
    #[inline]
    pub(crate) fn step(&mut self, now: Nanos) -> bool {
        let Some((at, index)) = self.timers.first().filter(|&(at, _)| at <= now) else {
            return false;
        };
        let first_output = self.out.len();
        let stage = &mut self.stages[index];
        let released = stage.wake(at, &mut self.out);
        self.timers.set(index, stage.next());
        if let Some(mut in_flight) = released {
            self.advance_clock(in_flight.side, at);
            in_flight.step += 1;
            self.carry(at, at, &mut in_flight);
        }
        if self.out.len() != first_output {
            self.process_outputs(index, first_output, at);
        }
        true
    }

    /// Carries `t`, which passes its stage at `at`, further; immediately or after it has waited.
    #[inline]
    fn continue_path(&mut self, now: Nanos, at: Nanos, mut t: InFlight) {
        let step = self.paths[t.path as usize].steps[usize::from(t.step)];
        if !self.waits(step, now, at, &t) {
            t.step += 1;
            self.carry(now, at, &mut t);
        }
    }

    /// Passes `t`, whose time is `at`, from stage to stage, until it waits somewhere or its outcome is decided.
    fn carry(&mut self, now: Nanos, mut at: Nanos, t: &mut InFlight) {
        let (path, mut place) = (t.path as usize, t.step);
        loop {
            let Some(&step) = self.paths[path].steps.get(usize::from(place)) else {
                return self.decide(at, t, Verdict::Delivered);
            };
            let first_output = self.out.len();
            let stage = &mut self.stages[step.stage];
            let entered = stage.enter(at, t, &mut self.out);
            if let EntryResult::Passes(later) = entered {
                at = later;
            } else if entered == EntryResult::Taken {
                let next = stage.next();
                self.rewake(step.stage, next);
            }
            if self.out.len() != first_output {
                return self.finish_entry(step, first_output, now, at, *t, entered);
            }
            match entered {
                EntryResult::Passes(_) if self.waits(step, now, at, t) => return,
                EntryResult::Passes(_) => {
                    place += 1;
                    t.step = place;
                }
                EntryResult::Taken => return,
                EntryResult::Dropped(cause) => return self.drop(step.stage, at, t, cause, None),
                EntryResult::Refused(cause, reply) => {
                    return self.drop(step.stage, at, t, cause, Some(reply));
                }
            }
        }
    }

    /// Finishes the entry of `t`, whose result is `entered`, at a stage that had further outputs.
    #[cold]
    #[inline(never)]
    fn finish_entry(
        &mut self,
        step: Step,
        first_output: usize,
        now: Nanos,
        at: Nanos,
        t: InFlight,
        entered: EntryResult,
    ) {
        self.announce_copies(step.stage, first_output);
        match entered {
            EntryResult::Passes(at) => self.continue_path(now, at, t),
            EntryResult::Taken => {}
            EntryResult::Dropped(cause) => self.drop(step.stage, at, &t, cause, None),
            EntryResult::Refused(cause, reply) => self.drop(step.stage, at, &t, cause, Some(reply)),
        }
        self.process_outputs(step.stage, first_output, now);
    }

    /// Processes the outputs of `stage` from index `first_output` on.
    #[inline(never)]
    fn process_outputs(&mut self, stage: usize, first_output: usize, now: Nanos) {
        for place in first_output..self.out.len() {
            let mut one = *self.out.get(place);
            self.advance_clock(one.t.side, now);
            match one.outcome {
                PacketOutcome::Passes | PacketOutcome::Copied => {
                    self.continue_path(now, one.at, one.t)
                }
                PacketOutcome::CopiedAgain => self.carry(now, one.at, &mut one.t),
                PacketOutcome::Dropped(cause) => self.drop(stage, one.at, &one.t, cause, None),
            }
        }
        self.out.truncate(first_output);
    }

    /// Numbers the copies among the outputs of `stage` from index `first_output` on, and announces them.
    fn announce_copies(&mut self, stage: usize, first_output: usize) {
        for place in first_output..self.out.len() {
            let one = self.out.get_mut(place);
            if matches!(
                one.outcome,
                PacketOutcome::Copied | PacketOutcome::CopiedAgain
            ) {
                self.copies = self.copies.checked_add(1).unwrap_or(1);
                one.t.copy = self.copies;
                let (at, t) = (one.at, one.t);
                self.stages[stage].copied += 1;
                self.paths[t.path as usize].inside += 1;
                self.push_decided(at, &t, Verdict::Copied);
            }
        }
    }

    /// Returns whether `t`, which passed `step`, has to wait until `at`; if so, makes it wait.
    #[inline]
    fn waits(&mut self, step: Step, now: Nanos, at: Nanos, t: &InFlight) -> bool {
        let waits = match step.handover {
            Handover::Immediate => false,
            Handover::WaitIfAhead => at > now,
            Handover::Wait => true,
        };
        if waits {
            let stage = &mut self.stages[step.stage];
            stage.delayed.push(at, *t);
            let next = stage.next();
            self.rewake(step.stage, next);
        }
        waits
    }

    /// Sets the wake-up of `stage` to `next`, unless it is set to that time already.
    #[inline]
    pub(crate) fn rewake(&mut self, stage: usize, next: Option<Nanos>) {
        if next != self.timers.get(stage) {
            self.timers.set(stage, next);
        }
    }

    fn drop(
        &mut self,
        stage: usize,
        at: Nanos,
        t: &InFlight,
        cause: DropCause,
        reply: Option<Reply>,
    ) {
        let stage = &mut self.stages[stage];
        stage.dropped += 1;
        let hop = stage.hop;
        self.decide(at, t, Verdict::Dropped(cause, reply, hop));
    }

    #[inline]
    fn decide(&mut self, at: Nanos, t: &InFlight, verdict: Verdict) {
        self.paths[t.path as usize].inside -= 1;
        self.push_decided(at, t, verdict);
    }

    #[inline]
    fn push_decided(&mut self, at: Nanos, t: &InFlight, verdict: Verdict) {
        self.decided.push_back(DecidedOutcome {
            id: t.packet.id,
            len: t.packet.len,
            at,
            edit: t.edit,
            copy: t.copy,
            class: t.class,
            side: t.side,
            mark: t.mark,
            verdict,
        });
    }

    #[inline]
    fn advance_clock(&mut self, side: Side, at: Nanos) {
        if self.shared {
            self.clocks = [at; 2];
        } else {
            self.clocks[side.index()] = at;
        }
    }

    /// Asserts, in debug builds, that stages hold as many packets as paths count inside.
    pub(crate) fn check_held(&self) {
        debug_assert_eq!(
            self.paths.iter().map(|path| path.inside).sum::<u64>(),
            self.stages
                .iter()
                .map(|stage| stage.report().held)
                .sum::<u64>(),
            "every undecided packet is in one stage"
        );
    }
}
