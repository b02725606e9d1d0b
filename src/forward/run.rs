//! Segments of one frame that leave together.

use std::ops::Range;

use model::{Nanos, PacketId};
use netio::{Lent, Spare, TxFrame};

use super::departures::Changes;
use super::held::{self, HeldFrames};
use super::packet_log::{LogLine, PacketLogWriter, PacketVerdict};

/// Segments of one frame that leave together; one alone, if anything is changed.
pub(super) struct Run {
    pub(super) first: PacketId,
    pub(super) len: u32,
    pub(super) changes: Changes,
}

impl Run {
    fn segments(&self) -> Range<u32> {
        let first = held::segment(self.first);
        first..first + self.len
    }

    /// What leaves; `trains` says whether a tunnel's may.
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

    /// Notes a line for each segment, which left at `departure` if it did.
    pub(super) fn note(
        &self,
        held: &HeldFrames<impl Lent>,
        due: &[Nanos],
        departure: Option<Nanos>,
        log: &mut PacketLogWriter,
    ) {
        let verdict = departure.map_or(PacketVerdict::SendFailed, |_| PacketVerdict::Delivered);
        let gso = held.gso(self.first);
        let line = LogLine {
            departure,
            changes: self.changes,
            ..held.line(self.first, verdict)
        };
        let mut next = self.segments().start;
        for alike in due.chunk_by(|a, b| a == b) {
            let first = next;
            next += u32::try_from(alike.len()).expect("segments of one frame");
            let due = Some(alike[0]);
            log.note_segments(LogLine { due, ..line }, gso, first..next);
        }
    }

    /// L2 bytes of its segments, each with its headers.
    pub(super) fn bytes(&self, held: &HeldFrames<impl Lent>) -> u64 {
        held.gso(self.first).wire_len(self.segments())
    }
}
