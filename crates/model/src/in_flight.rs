//! A packet between its arrival at the link and its outcome, and what a stage answers for it.

use crate::packet::{DropCause, Packet, Side};
use crate::time::Nanos;

/// A packet inside the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) packet: Packet,
    /// Where it entered.
    pub(crate) side: Side,
    /// How many stages of its path it has entered.
    pub(crate) step: usize,
}

/// What became of a packet that entered a stage.
pub(crate) enum Entered {
    /// It leaves at this time.
    Passes(Nanos),
    /// The stage keeps it, and may ask to be woken.
    Held(Option<Nanos>),
    /// It is dropped.
    Dropped(DropCause),
}
