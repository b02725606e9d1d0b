//! Slots: packets leave in bursts.

use core::num::NonZeroU32;

use super::Jitter;
use crate::time::Nanos;
use crate::units::Bytes;

/// A medium that packets get in turns, as netem's `slot` (Linux, `net/sched/sch_netem.c`, `get_slot_next`).
///
/// The first packet that comes when no slot is ahead has the next one open after a wait that is drawn for it. All that comes
/// until then leaves in that slot, as far as it has room; what has none waits for the slot after it, which opens a wait of its own
/// later. Order is kept. As many packets may wait as come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// The wait for a slot; in the mean, if it varies. netem's minimum and maximum are this, less and more the spread of a uniform
    /// law.
    pub delay: Nanos,
    /// What is drawn for each slot; a wait below 0 is 0. Without half-life.
    pub jitter: Option<Jitter>,
    /// The packets that leave in one slot; as many as there are if there is none.
    pub packets: Option<NonZeroU32>,
    /// The L2 bytes after which a slot is over; the packet that reaches them leaves. Above 0.
    pub bytes: Option<Bytes>,
}
