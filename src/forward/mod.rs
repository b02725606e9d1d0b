//! The forwarder: port → path → port.
//!
//! [`Forwarder::step`] takes in what has arrived, lets the model decide, and sends what is due; it never
//! waits. [`thread`] turns it into a loop on a clock.

mod departures;
mod held;
pub(crate) mod stats;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod thread;
pub(crate) mod truth;

use std::ops::Range;

use model::{Link, Nanos, Outcome, PacketId, Side};
use netio::{Frame, Piece, Port, Received, Train, is_link_control};

use departures::Departures;
use held::HeldFrames;
use record::summary::TruthSummary;
pub(crate) use stats::{Loss, Stats};
use thread::Options;
use truth::{Journal, Line, Verdict};

/// Neighbouring segments that are due within this span leave as one frame, when the last of them is due.
const QUANTUM: Nanos = Nanos(10_000);

/// Frames taken in before what is due is looked at again.
const INTAKE: usize = 64;

/// Pieces handed to a port in one call: few enough that one reading of the clock stands for all of them.
const BATCH: usize = 8;

/// Two ports, the link between them, and the frames that are on their way.
pub(crate) struct Forwarder<P, C> {
    ports: [P; 2],
    clock: C,
    link: Link,
    held: HeldFrames,
    departures: [Departures; 2],
    /// Due times of the runs that are about to be sent.
    due: Vec<Nanos>,
    stats: Stats,
    /// Takes a line a packet, where that was asked for.
    truth: Option<Journal>,
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

impl<P: Port, C: Fn() -> Nanos> Forwarder<P, C> {
    /// `ports` are A and B; `clock` says when a packet is sent.
    pub(crate) fn new(ports: [P; 2], clock: C, link: Link, options: Options) -> Self {
        Self {
            ports,
            clock,
            link,
            held: HeldFrames::new(options.memory),
            truth: options.truth,
            departures: [Departures::default(), Departures::default()],
            due: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Does everything that is to be done by `now`.
    pub(crate) fn step(&mut self, now: Nanos) -> Next {
        if let Some(truth) = &mut self.truth {
            truth.follow(now);
        }
        let waiting = self.take_in(now);
        // What still waits came before now: nothing after it can be decided yet.
        self.decide(waiting.unwrap_or(now));
        let next = [Side::A, Side::B]
            .map(|egress| self.depart(egress, now))
            .into_iter()
            .flatten()
            .chain(self.link.next_at())
            .min();
        match next {
            _ if waiting.is_some() => Next::Now,
            Some(at) => Next::At(at),
            None => Next::Arrival,
        }
    }

    /// Offers what has arrived, both ports merged by arrival; when the next arrival was that still waits.
    fn take_in(&mut self, now: Nanos) -> Option<Nanos> {
        for port in &mut self.ports {
            port.refresh(now);
        }
        for _ in 0..INTAKE {
            let (arrival, ingress) = self.next_arrival()?;
            match self.ports[ingress.index()].take()? {
                Received::Frame(frame) => self.accept(ingress, frame),
                Received::Truncated => self.lose_unseen(arrival, ingress, Loss::TooLong),
                Received::UnknownTrain => self.lose_unseen(arrival, ingress, Loss::Uncuttable),
            }
            let keep_from = self.ports[ingress.index()].keep_from();
            self.held.vacate_below(ingress, keep_from);
        }
        Some(self.next_arrival()?.0)
    }

    fn next_arrival(&mut self) -> Option<(Nanos, Side)> {
        let [a, b] = &mut self.ports;
        match (a.arrival(), b.arrival()) {
            (Some(a), Some(b)) if b < a => Some((b, Side::B)),
            (Some(a), _) => Some((a, Side::A)),
            (None, b) => b.map(|b| (b, Side::B)),
        }
    }

    /// Counts a frame that the port could not hand over.
    fn lose_unseen(&mut self, arrival: Nanos, ingress: Side, cause: Loss) {
        self.stats.lose(ingress, cause, 1);
        if let Some(truth) = &mut self.truth {
            truth.note(Line::unseen(arrival, ingress, cause.into()));
        }
    }

    fn accept(&mut self, ingress: Side, frame: Frame) {
        let Ok(train) = Train::of(&frame) else {
            self.stats.lose(ingress, Loss::Uncuttable, 1);
            if let Some(truth) = &mut self.truth {
                truth.note(Line::of(&frame, ingress, Loss::Uncuttable.into()));
            }
            return;
        };
        if is_link_control(frame.bytes()) {
            return self.pass(ingress, &frame, &train);
        }
        let (arrival, segments) = (frame.arrival, train.segments());
        if !self.held.has_room(&frame, &train) {
            self.stats.lose(ingress, Loss::Memory, segments);
            if let Some(truth) = &mut self.truth {
                let line = Line::of(&frame, ingress, Loss::Memory.into());
                let lengths = (0..segments).map(|segment| train.segment_len(segment));
                lengths.for_each(|bytes| truth.note(Line { bytes, ..line }));
            }
            return;
        }
        let first = self.held.insert(ingress, frame, train);
        for segment in 0..segments {
            let packet = self.held.packet(first, segment);
            self.link.offer(arrival, ingress, packet);
        }
    }

    /// Sends link control at once.
    fn pass(&mut self, ingress: Side, frame: &Frame, train: &Train) {
        self.stats.control[ingress.index()] += 1;
        let mut line = Line::of(frame, ingress, Verdict::LinkControl);
        line.departure = Some((self.clock)());
        let whole = train.piece(frame, 0..train.segments());
        let stats = &mut self.stats;
        self.ports[ingress.other().index()].send(&[whole], &mut |_, error| {
            stats.send_failed(ingress, 1, &error);
            line.verdict = Loss::Send.into();
            line.departure = None;
        });
        if let Some(truth) = &mut self.truth {
            truth.note(line);
        }
    }

    /// Schedules or forgets every packet that the model has decided on.
    fn decide(&mut self, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Deliver { id, due } => {
                    let egress = self.held.ingress(id).other();
                    self.departures[egress.index()].push(due, id);
                }
                Outcome::Drop { id, cause } => {
                    if let Some(truth) = &mut self.truth {
                        truth.note(self.held.line(id, cause.into()));
                    }
                    self.held.release(id, 1);
                }
            }
        }
    }

    /// Sends by `egress` what is due; when to look again.
    fn depart(&mut self, egress: Side, now: Nanos) -> Option<Nanos> {
        loop {
            let mut runs = [const { Run::EMPTY }; BATCH];
            let mut filled = 0;
            let mut wait = self.departures[egress.index()].next_due();
            while filled < BATCH && wait.is_some_and(|due| due <= now) {
                match self.next_run(egress, now) {
                    Ok(run) => {
                        runs[filled] = run;
                        filled += 1;
                        wait = self.departures[egress.index()].next_due();
                    }
                    Err(until) => {
                        wait = Some(until);
                        break;
                    }
                }
            }
            self.send_runs(egress, &runs[..filled]);
            if filled < BATCH {
                return wait;
            }
        }
    }

    /// Takes the next run of segments from the schedule; or leaves it there and says until when to wait for it.
    fn next_run(&mut self, egress: Side, now: Nanos) -> Result<Run, Nanos> {
        let len = self.run_length(egress, now)?;
        let schedule = &mut self.departures[egress.index()];
        let first = schedule.get(0).ok_or(now)?.1;
        let due = (0..len).map_while(|_| schedule.pop());
        self.due.extend(due.map(|(due, _)| due));
        Ok(Run { first, len })
    }

    /// How many neighbouring segments at the front of the schedule are due; or, when the next neighbour follows
    /// within the quantum, when it does.
    fn run_length(&self, egress: Side, now: Nanos) -> Result<u32, Nanos> {
        let schedule = &self.departures[egress.index()];
        let (due, first) = schedule.get(0).ok_or(now)?;
        let train = self.held.train(first);
        if !train.joins() || !self.ports[egress.index()].capabilities().gso {
            return Ok(1);
        }
        let soon = |at: Nanos| at > now && at <= due + QUANTUM;
        for len in 1..train.longest_run() {
            match schedule.get(len as usize) {
                Some((next, id)) if id.0 == first.0 + u64::from(len) => {
                    if soon(next) {
                        return Err(next);
                    } else if next > now {
                        return Ok(len);
                    }
                }
                Some(_) => return Ok(len),
                None => {
                    let last = held::segment(first) + len == train.segments();
                    let undecided = self.link.next_at().filter(|at| !last && soon(*at));
                    return undecided.map_or(Ok(len), Err);
                }
            }
        }
        Ok(train.longest_run())
    }

    /// Sends runs that were taken from the schedule, and forgets them.
    fn send_runs(&mut self, egress: Side, runs: &[Run]) {
        let pieces: Vec<Piece<'_>> = runs.iter().map(|run| run.piece(&self.held)).collect();
        let now = (self.clock)();
        let mut failed = [false; BATCH];
        let stats = &mut self.stats;
        self.ports[egress.index()].send(&pieces, &mut |piece, error| {
            failed[piece] = true;
            stats.send_failed(egress.other(), runs[piece].len, &error);
        });
        drop(pieces);
        let mut rest = self.due.as_slice();
        for (run, failed) in runs.iter().zip(failed) {
            let (due, after) = rest.split_at(run.len as usize);
            rest = after;
            if !failed {
                let bytes = run.bytes(&self.held);
                self.stats.left(egress.other(), run.len, bytes);
                due.iter()
                    .for_each(|due| self.stats.departure.record(now, *due));
            }
            if let Some(truth) = &mut self.truth {
                let departure = (!failed).then_some(now);
                run.tell(&self.held, due, departure, truth);
            }
            self.held.release(run.first, run.len);
        }
        self.due.clear();
    }

    /// Moves the newest frames out of their ports' memory, where they would end a sleep at once.
    pub(crate) fn prepare_to_sleep(&mut self) {
        for side in [Side::A, Side::B] {
            let newest = self.ports[side.index()].last_taken();
            self.held.vacate_newest(side, newest);
        }
    }

    /// Ends the truth with what is still on its way; what of it was kept.
    pub(crate) fn finish_truth(&mut self) -> Option<TruthSummary> {
        let mut truth = self.truth.take()?;
        for departures in &mut self.departures {
            while let Some((due, id)) = departures.pop() {
                let line = self.held.line(id, Verdict::HeldAtEnd);
                truth.note(Line {
                    due: Some(due),
                    ..line
                });
            }
        }
        while let Some(at) = self.link.next_at() {
            while let Some(outcome) = self.link.poll(at) {
                truth.note(self.held.line(outcome.id(), Verdict::HeldAtEnd));
            }
        }
        Some(truth.finish())
    }

    /// Everything counted so far.
    pub(crate) fn stats(&mut self) -> Stats {
        let mut stats = self.stats.clone();
        for side in [Side::A, Side::B] {
            stats.link[side.index()] = self.link.counters(side);
            stats.missed[side.index()] = self.ports[side.index()].missed();
        }
        stats.peak_bytes = self.held.peak_bytes();
        stats
    }

    pub(crate) fn ports(&self) -> &[P; 2] {
        &self.ports
    }
}

/// Segments of one train that leave together.
struct Run {
    first: PacketId,
    len: u32,
}

impl Run {
    const EMPTY: Self = Self {
        first: PacketId(0),
        len: 0,
    };

    fn segments(&self) -> Range<u32> {
        let first = held::segment(self.first);
        first..first + self.len
    }

    fn piece<'f>(&self, held: &'f HeldFrames) -> Piece<'f> {
        let (frame, train) = held.get(self.first);
        train.piece(frame, self.segments())
    }

    /// A line of truth for each segment, which left at `departure` if it did.
    fn tell(
        &self,
        held: &HeldFrames,
        due: &[Nanos],
        departure: Option<Nanos>,
        truth: &mut Journal,
    ) {
        let verdict = departure.map_or(Verdict::SendFailed, |_| Verdict::Delivered);
        let (line, train) = (held.line(self.first, verdict), held.train(self.first));
        for (segment, due) in self.segments().zip(due) {
            truth.note(Line {
                bytes: train.segment_len(segment),
                due: Some(*due),
                departure,
                ..line
            });
        }
    }

    /// L2 bytes of its segments, each with its headers.
    fn bytes(&self, held: &HeldFrames) -> u64 {
        let train = held.train(self.first);
        self.segments()
            .map(|s| u64::from(train.segment_len(s)))
            .sum()
    }
}
