//! The commands to a forwarder, and how it notices them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use model::{ConfigError, Side};
use netio::Alarm;
use record::lateness::FlowDepartures;

use super::reading::LinkReading;
use crate::forward::NewConditions;
use crate::forward::capture::Tap;
use crate::forward::stats::QueueState;

/// A command to a running forwarder. Links are identified by number.
pub(super) enum ForwarderCommand {
    /// Put new conditions into force.
    Change {
        link: usize,
        new: NewConditions,
        done: Sender<Result<LinkReading, ConfigError>>,
    },
    /// Copy packets from now on.
    Capture(usize, Box<Tap>),
    /// Measure round trips from now on.
    MeasureRoundTrips(usize),
    /// Report the counters.
    Read(usize, Sender<LinkReading>),
    /// Report the queue and the drops.
    ReadQueue(usize, Sender<QueueState>),
    /// Report the departures of every link up to now.
    Departures(Sender<Vec<Vec<FlowDepartures>>>),
    /// Use the interface with this index in place of one that is gone.
    Rejoin {
        link: usize,
        side: Side,
        interface: u32,
        done: Sender<io::Result<()>>,
    },
    /// Answer, which shows that the forwarder is alive.
    Answer(Sender<()>),
    /// Answer together with other forwarders.
    AnswerWithAll(Arc<AtomicUsize>, Sender<()>),
    /// End the forwarder.
    Stop,
}

/// Tells a forwarder that there are commands: by a flag if it is awake, by an alarm if it sleeps.
/// The packet path reads one flag and takes no lock.
#[derive(Debug)]
pub(super) struct Wakeup {
    pub(super) called: AtomicBool,
    pub(super) alarm: Alarm,
}

impl Wakeup {
    pub(super) fn ring(&self) {
        self.called.store(true, Ordering::Release);
        self.alarm.ring();
    }

    /// Returns true if there was a wakeup since the last call.
    pub(super) fn was_called(&self) -> bool {
        self.called.load(Ordering::Relaxed) && {
            // The alarm is reset first, so that a command sent from here on causes another wakeup.
            self.alarm.acknowledge();
            self.called.swap(false, Ordering::AcqRel)
        }
    }
}
