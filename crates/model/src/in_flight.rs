//! A packet between its arrival at the link and its outcome.

use crate::packet::{Ecn, Edit, Packet, Side};
use crate::time::Nanos;

/// A packet inside the link; a cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) packet: Packet,
    /// When it came to the queue in which it waits.
    pub(crate) since: Nanos,
    /// The path that it entered by, which it keeps.
    pub(crate) path: u32,
    /// Which of its copies; 0 is the packet itself.
    pub(crate) copy: u32,
    pub(crate) edit: Option<Edit>,
    /// The place of the stage in its path that it is in, or comes to next.
    pub(crate) step: u16,
    /// The class that it was taken for.
    pub(crate) class: u16,
    /// Where it entered.
    pub(crate) side: Side,
    /// Whether it was marked on its way.
    pub(crate) mark: bool,
}

const _: () = assert!(size_of::<InFlight>() == 64);

/// Which sequence of draws a packet takes from: a copy never takes what is an original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Originals,
    Copies,
}

impl InFlight {
    /// One that enters by `side` at `at`, before its path is known.
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

    /// What its header says by now.
    pub(crate) fn ecn(&self) -> Ecn {
        match self.mark {
            true => Ecn::Ce,
            false => self.packet.ecn,
        }
    }

    /// Marks it (CE), if its sender understands marks; whether it is marked now.
    pub(crate) fn mark(&mut self) -> bool {
        self.mark |= matches!(self.packet.ecn, Ecn::Ect0 | Ecn::Ect1);
        self.ecn() == Ecn::Ce
    }
}

#[cfg(test)]
impl InFlight {
    /// An original of that length, of no flow, on no path.
    pub(crate) fn for_test(len: u64) -> Self {
        use crate::packet::PacketId;
        use crate::units::Bytes;
        Self::of(Packet::new(PacketId(0), Bytes(len)), Side::A, Nanos::ZERO)
    }
}
