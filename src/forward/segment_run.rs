//! Neighbouring segments of one frame that leave together.

use std::ops::Range;

use model::{Nanos, PacketId};
use netio::{Lent, Spare, TxFrame};

use super::departures::Changes;
use super::held_frames::{self, HeldFrames};
use super::observed::ObservedPackets;

/// Neighbouring segments of one frame that leave together. A changed segment leaves alone.
pub(super) struct SegmentRun {
    pub(super) first: PacketId,
    pub(super) len: u32,
    pub(super) changes: Changes,
}

impl SegmentRun {
    fn segments(&self) -> Range<u32> {
        let first = held_frames::segment(self.first);
        first..first + self.len
    }

    /// Builds the frame that leaves. With `trains`, the segments of a tunnel's train may leave as
    /// one frame.
    pub(super) fn frame<'f>(
        &self,
        held: &'f HeldFrames<impl Lent>,
        spare: &mut Spare,
        trains: bool,
    ) -> TxFrame<'f> {
        let (frame, gso) = held.get(self.first);
        let mut part = if trains {
            gso.train(frame, self.segments(), spare)
        } else {
            gso.part(frame, self.segments(), spare)
        };
        let edit = self.changes.edit();
        if self.changes.is_marked || edit.is_some() {
            part.change(self.changes.is_marked, edit);
        }
        part
    }

    /// Returns the segments for observers, with these due times.
    pub(super) fn observed<'f>(
        &self,
        held: &'f HeldFrames<impl Lent>,
        due: &'f [Nanos],
    ) -> ObservedPackets<'f> {
        ObservedPackets {
            due,
            changes: self.changes,
            ..held.observed(self.first, self.len)
        }
    }

    /// Returns the L2 bytes of the segments, each with its headers.
    pub(super) fn bytes(&self, held: &HeldFrames<impl Lent>) -> u64 {
        held.gso(self.first).wire_len(self.segments())
    }
}
