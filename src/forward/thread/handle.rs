//! The handle by which other threads change and read the links of a forwarder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::Result;
use model::{ConfigError, Nanos, Side};
use netio::clock;
use record::lateness::{FlowDepartures, LateBudget};

use super::commands::{ForwarderCommand, Wakeup};
use super::reading::LinkReading;
use crate::forward::NewConditions;
use crate::forward::capture::{Capture, CaptureHandle};
use crate::forward::stats::QueueState;

/// The largest number of links that are read together, because packets wait meanwhile.
const READ_TOGETHER: usize = 8;

/// A handle that sends commands to a forwarder, from any thread. The forwarder may have ended.
#[derive(Clone, Debug)]
pub(crate) struct ForwarderHandle {
    pub(super) commands: Sender<ForwarderCommand>,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) start: Nanos,
    /// The times at which the links began, or [`Nanos::MAX`] while they wait for their first packet.
    pub(super) begins: Arc<[Arc<AtomicU64>]>,
    pub(super) late_budget: LateBudget,
    pub(super) memory: usize,
}

/// The forwarder was stopped or has died.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the emulator has ended")]
pub(crate) struct ForwarderEnded;

/// The reason why new conditions were not put into force.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The link refuses the conditions.
    #[error(transparent)]
    Refused(#[from] ConfigError),
    /// The link has ended.
    #[error(transparent)]
    Ended(#[from] ForwarderEnded),
}

impl ForwarderHandle {
    /// Puts new conditions into force on a link immediately, for both directions at the same
    /// instant. Returns the state of the link at that instant.
    ///
    /// # Errors
    /// Fails if [`model::Link::change`] refuses the conditions, which then stay unchanged, or if the
    /// forwarder has ended.
    pub(crate) fn change(
        &self,
        link: usize,
        new: NewConditions,
    ) -> Result<LinkReading, ChangeError> {
        let changed = self.ask(|done| ForwarderCommand::Change { link, new, done })?;
        Ok(changed?)
    }

    /// Copies packets of a link from now on, until the handle is dropped or a limit is reached.
    ///
    /// # Errors
    /// Fails if the forwarder has died or a thread cannot be started.
    pub(crate) fn capture(&self, link: usize, capture: Capture) -> Result<CaptureHandle> {
        // The answer shows that the forwarder is alive. Its time is also after that of every packet
        // which has arrived, so the capture begins after them.
        self.ask(ForwarderCommand::Answer)?;
        let (tap, handle) = capture.begin(clock::now())?;
        self.send(ForwarderCommand::Capture(link, Box::new(tap)));
        Ok(handle)
    }

    /// Measures round trips on a link from now on.
    pub(crate) fn measure_round_trips(&self, link: usize) {
        self.send(ForwarderCommand::MeasureRoundTrips(link));
    }

    /// Returns the current state of a link.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn read(&self, link: usize) -> Result<LinkReading, ForwarderEnded> {
        self.ask(|done| ForwarderCommand::Read(link, done))
    }

    /// Returns the current states of these links in their order, with one round trip for several. If the
    /// forwarder has ended, the rest is left out.
    pub(crate) fn read_each(&self, links: &[usize]) -> impl Iterator<Item = LinkReading> {
        let groups = links.chunks(READ_TOGETHER);
        groups.flat_map(move |together| {
            let (answer, answered) = mpsc::channel();
            for link in together {
                self.queue(ForwarderCommand::Read(*link, answer.clone()));
            }
            self.wakeup.ring();
            answered
        })
    }

    /// Returns the current queue and the drops of a link.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn read_queue(&self, link: usize) -> Result<QueueState, ForwarderEnded> {
        self.ask(|done| ForwarderCommand::ReadQueue(link, done))
    }

    /// Returns a number that handles of the same forwarder share, and those of another one do not.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.wakeup).addr()
    }

    /// Returns the time at which the links' time began, on the clock of [`netio::clock::now`].
    pub(crate) fn start(&self) -> Nanos {
        self.start
    }

    /// Returns the time from which the schedules of a link count, on the same clock; [`Nanos::MAX`] while the link waits for its first
    /// packet.
    pub(crate) fn begin(&self, link: usize) -> Nanos {
        let begins = self.begins.get(link);
        begins.map_or(self.start, |begins| Nanos(begins.load(Ordering::Acquire)))
    }

    /// Returns the time beyond which departures are late.
    pub(crate) fn late_budget(&self) -> LateBudget {
        self.late_budget
    }

    /// Returns the limit of bytes of frames that all links together may hold.
    pub(crate) fn held_memory(&self) -> u64 {
        self.memory as u64
    }

    /// Returns the departures from each link up to now, by kind.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn departures(&self) -> Result<Vec<Vec<FlowDepartures>>, ForwarderEnded> {
        self.ask(ForwarderCommand::Departures)
    }

    /// Uses the interface with this index in place of one that is gone, at this end of a link.
    ///
    /// # Errors
    /// Fails if the new interface has gone too, or if the forwarder has died.
    pub(crate) fn rejoin(&self, link: usize, side: Side, interface: u32) -> Result<()> {
        let done = self.ask(|done| ForwarderCommand::Rejoin {
            link,
            side,
            interface,
            done,
        })?;
        Ok(done?)
    }

    /// Asks whether all these forwarders are alive. The answer arrives when the last of them handles
    /// its commands, and never if one has died.
    pub(crate) fn ask_whether_all_alive<'h>(
        forwarders: impl Iterator<Item = &'h Self>,
    ) -> Receiver<()> {
        let (answer, answered) = mpsc::channel();
        let all: Vec<_> = forwarders.collect();
        let missing = Arc::new(AtomicUsize::new(all.len()));
        for forwarder in all {
            let missing = Arc::clone(&missing);
            forwarder.send(ForwarderCommand::AnswerWithAll(missing, answer.clone()));
        }
        answered
    }

    fn ask<T>(
        &self,
        command: impl FnOnce(Sender<T>) -> ForwarderCommand,
    ) -> Result<T, ForwarderEnded> {
        let (answer, answered) = mpsc::channel();
        self.send(command(answer));
        answered.recv().map_err(|_| ForwarderEnded)
    }

    pub(super) fn send(&self, command: ForwarderCommand) {
        self.queue(command);
        self.wakeup.ring();
    }

    /// Adds a command, which the forwarder handles after the next wakeup.
    fn queue(&self, command: ForwarderCommand) {
        // A forwarder that has died takes no commands; a caller that waits for an answer notices
        // that.
        let _ = self.commands.send(command);
    }
}
