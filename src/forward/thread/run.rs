//! The loop of a forwarder: it steps, waits and handles commands.

use std::iter;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use model::Nanos;
use netio::{CpuUse, PortSet, Waiter, Wakes};
use record::summary::Summary;

use super::commands::{ForwarderCommand, Wakeup};
use super::reading::LinkReading;
use crate::forward::stats::summary;
use crate::forward::{Forwarder, NextStep, Pace};

/// A single departure is prepared this long before it is due.
const LEAD: Nanos = Nanos(10_000);

/// A forwarder and the way in which it waits.
pub(super) struct ForwarderLoop<P: PortSet> {
    pub(super) forwarder: Forwarder<P>,
    pub(super) waiter: Waiter,
    pub(super) cpu: CpuUse,
    pub(super) memory: usize,
    pub(super) ring_bytes: usize,
}

impl<P: PortSet + Wakes> ForwarderLoop<P> {
    /// Forwards until it is told to stop. Returns the summary of each link.
    pub(super) fn forward(
        &mut self,
        wakeup: &Wakeup,
        commands: &Receiver<ForwarderCommand>,
    ) -> Vec<Summary> {
        let lead = match self.cpu {
            CpuUse::Spin => LEAD,
            CpuUse::Gentle => Nanos::ZERO,
        };
        loop {
            let now = self.waiter.now();
            if wakeup.was_called() && self.handle_commands(now, commands) {
                return (0..self.forwarder.links())
                    .map(|link| self.end(link))
                    .collect();
            }
            if let Some(until) = self.waiter.must_rest(now)
                && self.forwarder.rest(now, until)
            {
                self.waiter.rest(until);
            }
            match self.forwarder.step(now, lead) {
                NextStep::Now => {}
                NextStep::At(at) => {
                    self.wait(wakeup, now, Some(Nanos(at.0.saturating_sub(lead.0))))
                }
                NextStep::Arrival => self.wait(wakeup, now, None),
            }
        }
    }

    /// Waits until `until`, until an arrival that cannot wait that long, or until a wakeup; under
    /// high load, until the next round.
    fn wait(&mut self, wakeup: &Wakeup, now: Nanos, until: Option<Nanos>) {
        // A rest says nothing about whether the forwarder keeps up.
        if !self.forwarder.rests(now) {
            self.forwarder.note_wait(until);
        }
        match self.forwarder.pace(now) {
            Pace::Exact => {}
            Pace::Round(round) => return self.waiter.coarse_sleep(round),
            // A packet that is due when the round ends is not prepared before.
            Pace::RoundOrDue(round) => match until.filter(|until| *until + LEAD < round) {
                None => return self.waiter.coarse_sleep(round),
                Some(until) => return self.wait_exactly(wakeup, now, until),
            },
        }
        if self.waiter.sleeps(now, until) {
            let alarm = iter::once(wakeup.alarm.as_fd());
            if until.is_some_and(|until| self.forwarder.can_wait(now, until)) {
                return self.waiter.sleep(alarm, now, until);
            }
            self.forwarder.prepare_to_sleep();
            let ports = self.forwarder.sets().iter().flat_map(Wakes::fds);
            self.waiter.sleep(ports.chain(alarm), now, until);
        } else if let Some(until) = until {
            let stall = self.waiter.spin(until, || self.forwarder.has_arrivals());
            if let Some(stall) = stall {
                self.forwarder.stalled(stall);
            }
        }
    }

    /// Waits until `until` or a wakeup, regardless of arrivals.
    fn wait_exactly(&mut self, wakeup: &Wakeup, now: Nanos, until: Nanos) {
        if self.waiter.sleeps(now, Some(until)) {
            let alarm = iter::once(wakeup.alarm.as_fd());
            return self.waiter.sleep(alarm, now, Some(until));
        }
        if let Some(stall) = self.waiter.spin(until, || false) {
            self.forwarder.stalled(stall);
        }
    }

    /// Handles the pending commands. Returns true if one of them was to stop.
    #[cold]
    fn handle_commands(&mut self, now: Nanos, commands: &Receiver<ForwarderCommand>) -> bool {
        for command in commands.try_iter() {
            // A caller that has gone meanwhile needs no answer.
            match command {
                ForwarderCommand::Change { link, new, done } => {
                    let changed = self.forwarder.change(link, now, new);
                    let _ = done.send(changed.map(|at| self.read(link, at)));
                }
                ForwarderCommand::Capture(link, tap) => self.forwarder.capture(link, *tap),
                ForwarderCommand::MeasureRoundTrips(link) => {
                    self.forwarder.measure_round_trips(link)
                }
                ForwarderCommand::Read(link, done) => {
                    let _ = done.send(self.read(link, now));
                }
                ForwarderCommand::ReadQueue(link, done) => {
                    let _ = done.send(self.forwarder.queue_state(link, now));
                }
                ForwarderCommand::Departures(done) => {
                    let links = 0..self.forwarder.links();
                    let left = links.map(|link| self.forwarder.departures(link));
                    let _ = done.send(left.collect());
                }
                ForwarderCommand::Rejoin {
                    link,
                    side,
                    interface,
                    done,
                } => {
                    let _ = done.send(self.forwarder.rejoin(link, side, interface));
                }
                ForwarderCommand::Answer(done) => drop(done.send(())),
                ForwarderCommand::AnswerWithAll(missing, done) => {
                    if missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                        let _ = done.send(());
                    }
                }
                ForwarderCommand::Stop => return true,
            }
        }
        false
    }

    /// Ends a link and returns its summary.
    fn end(&mut self, link: usize) -> Summary {
        let packet_log = self.forwarder.finish(link);
        Summary {
            packet_log,
            ..self.summary(link)
        }
    }

    fn read(&mut self, link: usize, at: Nanos) -> LinkReading {
        LinkReading {
            at,
            summary: self.summary(link),
            lateness: self.forwarder.stats(link).lateness(),
            round_trips: self.forwarder.round_trips(link),
            backlogs: self.forwarder.backlogs(link, at),
            held_bytes: self.forwarder.held_bytes(),
        }
    }

    fn summary(&mut self, link: usize) -> Summary {
        let rules = self.forwarder.rules(link).clone();
        let stats = self.forwarder.stats(link);
        summary(stats, &self.waiter, self.memory, self.ring_bytes, &rules)
    }
}
