//! The link: its stages, a path through them for each side and class, and the order of events.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::counters::{Counters, StageReport, Waiting};
use crate::in_flight::InFlight;
use crate::named::NamedStage;
use crate::packet::{DropCause, Edit, Outcome, Packet, PacketId, Reply, Side};
use crate::path::{After, Path, Step};
use crate::spec::{ConfigError, LinkConfig};
use crate::stage::{Entered, Out, PacketOutcome};
use crate::time::Nanos;
use crate::timers::Timers;
use crate::units::Bytes;

/// A link in model time: offer packets, poll outcomes, ask when to come back.
///
/// Events inside the link happen at their *logical* times and in the order of those times, over all paths and
/// stages. Events of the same time happen in the order in which they were scheduled,
/// and a packet that leaves a stage goes before one that arrives at the link. So outcomes depend on the
/// offers alone: a late or an extra `poll` changes nothing, unless a packet is offered that arrived
/// before something already decided for its direction.
///
/// A packet's outcome is decided as soon as nothing can change it any more: when the packet leaves its last
/// server, or at once if its path has none. Its due time then lies ahead by the delays that remain.
#[derive(Debug)]
pub struct Link {
    pub(crate) seed: u64,
    pub(crate) link: u64,
    pub(crate) start: Nanos,
    pub(crate) stages: Vec<NamedStage>,
    pub(crate) paths: Vec<Path>,
    /// The paths of packets that arrive now, by side and class.
    pub(crate) current: [Vec<u32>; 2],
    /// Whether the directions share a stage, so that no arrival may lie before an event of either.
    pub(crate) shared: bool,
    /// Stages that left the conditions and still stand in paths.
    pub(crate) leaving: usize,
    /// The most packets that can come of one that arrives now.
    pub(crate) most_copies: u32,
    pub(crate) is_stopped: bool,
    pub(crate) timers: Timers,
    /// The latest arrival or event of each direction.
    pub(crate) clocks: [Nanos; 2],
    /// What stages said that was not followed yet.
    out: Out,
    decided: VecDeque<Decided>,
    copies: u32,
    pub(crate) counters: [Vec<Counters>; 2],
}

/// An outcome that was not handed out yet.
///
/// Kept flat and short: what it carries, every packet pays for.
#[derive(Debug)]
struct Decided {
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
    Dropped(DropCause, Option<Reply>),
}

impl Link {
    /// A link under `config`.
    ///
    /// # Errors
    /// Conditions that contradict each other, lie out of range or cost too much, by stage and field.
    pub fn new(config: &LinkConfig) -> Result<Self, ConfigError> {
        let mut link = Self {
            seed: config.seed,
            link: config.link,
            start: config.start,
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
        };
        link.change(Nanos::ZERO, &config.paths)?;
        Ok(link)
    }

    /// Takes a packet that arrived at `at` by `ingress`.
    ///
    /// Offer in the order of arrival. A packet older than its direction's latest arrival or event (of
    /// both directions, if they share a stage) is taken as if it came at that time, and counted as late; gives by how much.
    pub fn offer(&mut self, at: Nanos, ingress: Side, packet: Packet) -> Nanos {
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

    /// The next outcome decided by `now`, in the order of decision; `None` when there is no more.
    ///
    /// Poll with a time up to which every arrival was offered: one offered afterwards that is older
    /// than an event already processed is late.
    pub fn poll(&mut self, now: Nanos) -> Option<Outcome> {
        while self.decided.is_empty() && self.step(now) {}
        let Decided {
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
            Verdict::Dropped(cause, reply) => {
                counters.drop(cause);
                Outcome::Drop {
                    id,
                    copy,
                    at,
                    cause,
                    reply,
                }
            }
            Verdict::Copied => {
                counters.copies += 1;
                Outcome::Copied { id, copy }
            }
        })
    }

    /// When the next undecided packet may be decided; `None` when none is held, or all that are wait for a change.
    ///
    /// While outcomes wait to be polled, a time that has passed.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        if !self.decided.is_empty() {
            return Some(self.clocks[0].min(self.clocks[1]));
        }
        self.timers.first().map(|(at, _)| at)
    }

    /// No packet that arrives is due sooner after its arrival: what is constant of its path's delays, as far as that is known.
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

    /// The most packets that can come of one that arrives now, itself included: each stage that copies doubles them. At most
    /// [`MOST_COPIES`](crate::MOST_COPIES).
    #[must_use]
    pub fn most_copies(&self) -> u32 {
        self.most_copies
    }

    /// Ends the link: gives up every packet and copy whose outcome is not decided. Their outcomes never come; they stay
    /// counted as held. Poll what is decided first.
    pub fn stop(&mut self) -> Vec<(PacketId, u32)> {
        self.is_stopped = true;
        let at = self.clocks[0].max(self.clocks[1]);
        for stage in 0..self.stages.len() {
            self.stages[stage].empty(at, &mut self.out);
            self.timers.set(stage, None);
        }
        let held = (0..self.out.len()).map(|place| self.out.get(place).t);
        let held = held.map(|t| (t.packet.id, t.copy)).collect();
        self.out.truncate(0);
        self.paths.iter_mut().for_each(|path| path.inside = 0);
        held
    }

    /// What was counted for packets that entered by `ingress`, all classes together.
    #[must_use]
    pub fn counters(&self, ingress: Side) -> Counters {
        self.by_class(ingress)
            .iter()
            .fold(Counters::default(), |sum, one| sum + *one)
    }

    /// What was counted for packets that entered by `ingress`, by class.
    #[must_use]
    pub fn by_class(&self, ingress: Side) -> &[Counters] {
        &self.counters[ingress.index()]
    }

    /// What each stage did, in the order in which paths name them, side A's first.
    pub fn stages(&self) -> impl Iterator<Item = StageReport<'_>> {
        self.stages
            .iter()
            .filter(|stage| !stage.is_retired())
            .map(NamedStage::report)
    }

    /// What waits at `at` for the servers of packets that enter by `ingress` and are of no class: of that with the longest wait.
    /// `None` where there is none.
    #[must_use]
    pub fn backlog(&self, at: Nanos, ingress: Side) -> Option<Waiting> {
        let path = *self.current[ingress.index()].first()?;
        let stages = self.paths[path as usize].stages();
        let backlogs = stages.filter_map(|stage| self.stages[stage].backlog(at));
        backlogs.max_by_key(|backlog| backlog.delay)
    }

    /// Processes the earliest event, if it lies at or before `now`.
    #[inline]
    pub(crate) fn step(&mut self, now: Nanos) -> bool {
        let Some((at, index)) = self.timers.first().filter(|&(at, _)| at <= now) else {
            return false;
        };
        let said = self.out.len();
        let stage = &mut self.stages[index];
        let released = stage.wake(at, &mut self.out);
        self.timers.set(index, stage.next());
        if let Some(mut in_flight) = released {
            self.advance_clock(in_flight.side, at);
            in_flight.step += 1;
            self.carry(at, at, &mut in_flight);
        }
        if self.out.len() != said {
            self.follow(index, said, at);
        }
        true
    }

    /// Carries `t`, which passes the stage in which it is at `at`, further; now or later.
    #[inline]
    fn go_on(&mut self, now: Nanos, at: Nanos, mut t: InFlight) {
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
            let said = self.out.len();
            let stage = &mut self.stages[step.stage];
            let entered = stage.enter(at, t, &mut self.out);
            if let Entered::Passes(later) = entered {
                at = later;
            } else if entered == Entered::Taken {
                let next = stage.next();
                self.rewake(step.stage, next);
            }
            if self.out.len() != said {
                return self.follow_entry(step, said, now, at, *t, entered);
            }
            match entered {
                Entered::Passes(_) if self.waits(step, now, at, t) => return,
                Entered::Passes(_) => {
                    place += 1;
                    t.step = place;
                }
                Entered::Taken => return,
                Entered::Dropped(cause) => return self.drop(step.stage, at, t, cause, None),
                Entered::Refused(cause, reply) => {
                    return self.drop(step.stage, at, t, cause, Some(reply));
                }
            }
        }
    }

    /// Goes on after `t` `entered` the stage of `step` and that said more than an answer for `t`.
    #[cold]
    #[inline(never)]
    fn follow_entry(
        &mut self,
        step: Step,
        said: usize,
        now: Nanos,
        at: Nanos,
        t: InFlight,
        entered: Entered,
    ) {
        self.announce_copies(step.stage, said);
        match entered {
            Entered::Passes(at) => self.go_on(now, at, t),
            Entered::Taken => {}
            Entered::Dropped(cause) => self.drop(step.stage, at, &t, cause, None),
            Entered::Refused(cause, reply) => self.drop(step.stage, at, &t, cause, Some(reply)),
        }
        self.follow(step.stage, said, now);
    }

    /// Does what `stage` has said since it had said so much.
    #[inline(never)]
    fn follow(&mut self, stage: usize, said: usize, now: Nanos) {
        for place in said..self.out.len() {
            let mut one = *self.out.get(place);
            self.advance_clock(one.t.side, now);
            match one.outcome {
                PacketOutcome::Passes | PacketOutcome::Copied => self.go_on(now, one.at, one.t),
                PacketOutcome::CopiedAgain => self.carry(now, one.at, &mut one.t),
                PacketOutcome::Dropped(cause) => self.drop(stage, one.at, &one.t, cause, None),
            }
        }
        self.out.truncate(said);
    }

    /// Numbers the copies that `stage` made since it had said so much, and says that there are.
    fn announce_copies(&mut self, stage: usize, said: usize) {
        for place in said..self.out.len() {
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
                self.say(at, &t, Verdict::Copied);
            }
        }
    }

    /// Whether `t`, which passed `step`, has to wait for `at`: then it does.
    #[inline]
    fn waits(&mut self, step: Step, now: Nanos, at: Nanos, t: &InFlight) -> bool {
        let waits = match step.after {
            After::Go => false,
            After::WaitIfAhead => at > now,
            After::Wait => true,
        };
        if waits {
            let stage = &mut self.stages[step.stage];
            stage.line.push(at, *t);
            let next = stage.next();
            self.rewake(step.stage, next);
        }
        waits
    }

    /// Has `stage` woken at `next`, if that is not settled already.
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
        self.stages[stage].dropped += 1;
        self.decide(at, t, Verdict::Dropped(cause, reply));
    }

    #[inline]
    fn decide(&mut self, at: Nanos, t: &InFlight, verdict: Verdict) {
        self.paths[t.path as usize].inside -= 1;
        self.say(at, t, verdict);
    }

    #[inline]
    fn say(&mut self, at: Nanos, t: &InFlight, verdict: Verdict) {
        self.decided.push_back(Decided {
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

    /// In debug builds: what paths count as inside is what stages hold.
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
