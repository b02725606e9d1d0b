//! A packet between its arrival at the link and its outcome.

use crate::packet::{Ecn, Edit, Packet, Side};
use crate::time::Nanos;

/// A packet inside the link. It fills one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) packet: Packet,
    /// The time at which it joined the queue in which it waits.
    pub(crate) since: Nanos,
    /// The index of the path by which it entered, which it keeps.
    pub(crate) path: u32,
    /// The copy's number; 0 for the packet itself.
    pub(crate) copy: u32,
    pub(crate) edit: Option<Edit>,
    /// The index, in its path, of the stage that it is in or enters next.
    pub(crate) step: u16,
    /// The class that the link assigned it to.
    pub(crate) class: u16,
    /// The side at which it entered.
    pub(crate) side: Side,
    /// Whether it was marked (CE) inside the link.
    pub(crate) mark: bool,
}

const _: () = assert!(size_of::<InFlight>() == 64);

/// The sequence of draws that a packet uses. Copies have another one, so that they never change the draws of originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Originals,
    Copies,
}

impl InFlight {
    /// Creates a packet that enters at `side` at `at`, before its path is known.
    #[inline]
    pub(crate) fn of(packet: Packet, side: Side, at: Nanos) -> Self {
        Self {
            packet,
            copy: 0,
            side,
            class: 0,
            path: 0,
            step: 0,
            since: at,
            mark: false,
            edit: None,
        }
    }

    #[inline]
    pub(crate) fn stream(&self) -> Stream {
        match self.copy {
            0 => Stream::Originals,
            _ => Stream::Copies,
        }
    }

    /// Returns the ECN codepoint of its header, with marks from inside the link.
    pub(crate) fn ecn(&self) -> Ecn {
        if self.mark { Ecn::Ce } else { self.packet.ecn }
    }

    /// Marks it (CE) if its sender understands marks, and returns whether it is marked now.
    pub(crate) fn mark(&mut self) -> bool {
        self.mark |= matches!(self.packet.ecn, Ecn::Ect0 | Ecn::Ect1);
        self.ecn() == Ecn::Ce
    }
}

#[cfg(test)]
impl InFlight {
    /// Creates an original of length `len` without a flow or a path.
    pub(crate) fn for_test(len: u64) -> Self {
        use crate::packet::PacketId;
        use crate::units::Bytes;
        Self::of(Packet::new(PacketId(0), Bytes(len)), Side::A, Nanos::ZERO)
    }
}
