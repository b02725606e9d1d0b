//! The link: stages in an arena, a path over them for each side, and the order of events.

use crate::{ConfigError, Counters, LinkConfig, Nanos, Outcome, Packet, Side};

/// A link in model time: offer packets, poll outcomes, ask when to come back.
#[derive(Debug)]
pub struct Link {}

impl Link {
    /// A link under `config`.
    ///
    /// # Errors
    /// Conditions that contradict each other.
    pub fn new(config: &LinkConfig) -> Result<Self, ConfigError> {
        let _ = config;
        Ok(Self {})
    }

    /// Takes a packet that arrived at `at` by `ingress`.
    pub fn offer(&mut self, at: Nanos, ingress: Side, packet: Packet) {
        let _ = (at, ingress, packet);
    }

    /// The next outcome decided by `now`, in the order of decision; `None` when there is no more.
    pub fn poll(&mut self, now: Nanos) -> Option<Outcome> {
        let _ = now;
        None
    }

    /// When the next undecided packet may be decided; `None` when none is held.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        None
    }

    /// What was counted for packets that entered by `ingress`.
    #[must_use]
    pub fn counters(&self, ingress: Side) -> Counters {
        let _ = ingress;
        Counters::default()
    }
}
