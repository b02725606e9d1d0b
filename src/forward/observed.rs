//! Packets as observers see them, and what became of them.

use std::ops::Range;

use model::{DropCause, Nanos, Side};
use netio::{FrameRef, GsoFrame};
use strum::IntoStaticStr;

use super::departures::Changes;
use super::stats::EmulatorLoss;

/// Neighbouring packets of one frame to which the same happened at the same time.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPackets<'f> {
    /// The end of the link at which they arrived.
    pub(crate) ingress: Side,
    /// The frame in which they arrived; without bytes if the port could not hand it over.
    pub(crate) frame: FrameRef<'f>,
    /// `None` for a frame that cannot be taken apart.
    pub(crate) gso: Option<&'f GsoFrame>,
    pub(crate) segments: Range<u32>,
    /// When each of them was due; empty if they were never due.
    pub(crate) due: &'f [Nanos],
    /// How they differ from the packets that arrived.
    pub(crate) changes: Changes,
}

/// What became of a packet: the keys of the link's summary, and the causes for which the emulator itself loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum PacketVerdict {
    /// The egress interface took it.
    Delivered,
    /// The emulated network dropped it; it has the name of the cause.
    Dropped(DropCause),
    /// It was on its way when the emulator stopped.
    HeldAtEnd,
    /// ARP, discovery and the like, which pass the link immediately.
    LinkControl,
    /// The emulator's memory limit was reached.
    MemoryLimit,
    /// A GSO frame that cannot be taken apart; it counts as one packet.
    UnsupportedGso,
    /// A frame longer than the slots of the receive ring.
    FrameTooLong,
    /// The egress interface refused it.
    SendFailed,
}

impl<'f> ObservedPackets<'f> {
    /// All packets of a frame, none of which was ever due.
    pub(crate) fn whole_frame(
        ingress: Side,
        frame: impl Into<FrameRef<'f>>,
        gso: Option<&'f GsoFrame>,
    ) -> Self {
        Self {
            ingress,
            frame: frame.into(),
            gso,
            segments: 0..gso.map_or(1, GsoFrame::segments),
            due: &[],
            changes: Changes::NONE,
        }
    }
}

impl PacketVerdict {
    /// The name that logs and summaries use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dropped(cause) => cause.name(),
            other => other.into(),
        }
    }
}

impl From<DropCause> for PacketVerdict {
    fn from(cause: DropCause) -> Self {
        Self::Dropped(cause)
    }
}

impl From<EmulatorLoss> for PacketVerdict {
    fn from(loss: EmulatorLoss) -> Self {
        match loss {
            EmulatorLoss::Memory => Self::MemoryLimit,
            EmulatorLoss::UnsupportedGso => Self::UnsupportedGso,
            EmulatorLoss::TooLong => Self::FrameTooLong,
            EmulatorLoss::Send => Self::SendFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_the_emulator_has_the_same_name_in_the_log_and_in_the_summary() {
        for loss in EmulatorLoss::ALL {
            let name = loss.name().replace(' ', "_").to_lowercase();
            assert_eq!(PacketVerdict::from(loss).name(), name);
        }
    }
}
