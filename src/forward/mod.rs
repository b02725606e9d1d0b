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

use model::{Link, Nanos, Outcome, PacketId, Side};
use netio::{Piece, Port, Received, Train, is_link_control};

use departures::Departures;
use held::HeldFrames;
pub(crate) use stats::{Loss, Stats};

/// Neighbouring segments that are due within this span leave as one frame, when the last of them is due.
const QUANTUM: Nanos = Nanos(10_000);

/// Frames taken in before what is due is looked at again.
const INTAKE: usize = 64;

/// Pieces handed to a port in one call.
const BATCH: usize = 32;

/// Two ports, the link between them, and the frames that are on their way.
pub(crate) struct Forwarder<P> {
    ports: [P; 2],
    link: Link,
    held: HeldFrames,
    departures: [Departures; 2],
    stats: Stats,
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

impl<P: Port> Forwarder<P> {
    /// `ports` are A and B; at most `memory` bytes of frames are held.
    pub(crate) fn new(ports: [P; 2], link: Link, memory: usize) -> Self {
        let in_place = [&ports[0], &ports[1]].map(|port| port.capabilities().in_place);
        Self {
            ports,
            link,
            held: HeldFrames::new(memory, in_place),
            departures: [Departures::default(), Departures::default()],
            stats: Stats::default(),
        }
    }

    /// Does everything that is to be done by `now`.
    pub(crate) fn step(&mut self, now: Nanos) -> Next {
        let more = self.take_in(now);
        self.decide(now);
        let next = [Side::A, Side::B]
            .map(|egress| self.depart(egress, now))
            .into_iter()
            .flatten()
            .chain(self.link.next_at())
            .min();
        match next {
            _ if more => Next::Now,
            Some(at) => Next::At(at),
            None => Next::Arrival,
        }
    }

    /// Offers what has arrived, both ports merged by arrival; whether there is more.
    fn take_in(&mut self, now: Nanos) -> bool {
        for port in &mut self.ports {
            port.refresh(now);
        }
        for _ in 0..INTAKE {
            let [a, b] = &mut self.ports;
            let ingress = match (a.arrival(), b.arrival()) {
                (None, None) => return false,
                (Some(_), None) => Side::A,
                (None, Some(_)) => Side::B,
                (Some(a), Some(b)) if a <= b => Side::A,
                (Some(_), Some(_)) => Side::B,
            };
            match self.ports[index(ingress)].take() {
                Some(Received::Frame(frame)) => self.accept(ingress, frame),
                Some(Received::Truncated) => self.stats.lose(ingress, Loss::TooLong, 1),
                None => return false,
            }
        }
        true
    }

    fn accept(&mut self, ingress: Side, frame: netio::Frame) {
        let Ok(train) = Train::of(&frame) else {
            return self.stats.lose(ingress, Loss::Uncuttable, 1);
        };
        if is_link_control(frame.bytes()) {
            self.stats.control[index(ingress)] += 1;
            let whole = train.piece(&frame, 0..train.segments());
            return send(
                &mut self.ports,
                &mut self.stats,
                other(ingress),
                &[whole],
                &[1],
            );
        }
        let (arrival, segments) = (frame.arrival, train.segments());
        let Some(first) = self.held.insert(ingress, frame, train) else {
            return self.stats.lose(ingress, Loss::Memory, segments);
        };
        for segment in 0..segments {
            let packet = self.held.packet(first, segment);
            self.link.offer(arrival, ingress, packet);
        }
    }

    /// Schedules or forgets every packet that the model has decided on.
    fn decide(&mut self, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Deliver { id, due } => {
                    let egress = other(self.held.ingress(id));
                    self.departures[index(egress)].push(due, id);
                }
                Outcome::Drop { id, .. } => self.held.release(id, 1),
            }
        }
    }

    /// Sends by `egress` what is due; when to look again.
    fn depart(&mut self, egress: Side, now: Nanos) -> Option<Nanos> {
        loop {
            let mut runs = [const { Run::EMPTY }; BATCH];
            let mut filled = 0;
            let mut wait = self.departures[index(egress)].next_due();
            while filled < BATCH && wait.is_some_and(|due| due <= now) {
                match self.next_run(egress, now) {
                    Ok(run) => {
                        runs[filled] = run;
                        filled += 1;
                        wait = self.departures[index(egress)].next_due();
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
        let schedule = &mut self.departures[index(egress)];
        let first = schedule.get(0).ok_or(now)?.1;
        for (due, _) in (0..len).map_while(|_| schedule.pop()) {
            self.stats.departure.record(now, due);
        }
        Ok(Run { first, len })
    }

    /// How many neighbouring segments at the front of the schedule are due; or, when the next neighbour follows
    /// within the quantum, when it does.
    fn run_length(&self, egress: Side, now: Nanos) -> Result<u32, Nanos> {
        let schedule = &self.departures[index(egress)];
        let (due, first) = schedule.get(0).ok_or(now)?;
        let train = self.held.train(first);
        if !train.joins() || !self.ports[index(egress)].capabilities().gso {
            return Ok(1);
        }
        let soon = |at: Nanos| at > now && at <= due + QUANTUM;
        for len in 1.. {
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
        unreachable!("a train has fewer than 2^32 segments")
    }

    fn send_runs(&mut self, egress: Side, runs: &[Run]) {
        if runs.is_empty() {
            return;
        }
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(runs.len());
        let mut weights = [0; BATCH];
        for (run, weight) in runs.iter().zip(&mut weights) {
            let (frame, train) = self.held.get(run.first);
            let first = held::segment(run.first);
            pieces.push(train.piece(frame, first..first + run.len));
            *weight = run.len;
        }
        send(&mut self.ports, &mut self.stats, egress, &pieces, &weights);
        drop(pieces);
        for run in runs {
            self.held.release(run.first, run.len);
        }
    }

    /// Everything counted so far.
    pub(crate) fn stats(&mut self) -> Stats {
        let mut stats = self.stats.clone();
        for side in [Side::A, Side::B] {
            stats.link[index(side)] = self.link.counters(side);
            stats.missed[index(side)] = self.ports[index(side)].missed();
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
}

fn send<P: Port>(
    ports: &mut [P; 2],
    stats: &mut Stats,
    egress: Side,
    pieces: &[Piece<'_>],
    segments: &[u32],
) {
    ports[index(egress)].send(pieces, &mut |piece, error| {
        stats.lose(other(egress), Loss::Send, segments[piece]);
        stats.send_error.get_or_insert_with(|| error.to_string());
    });
}

pub(crate) fn index(side: Side) -> usize {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::A => Side::B,
        Side::B => Side::A,
    }
}
