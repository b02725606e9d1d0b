//! Packets as observers see them, and their outcomes.

use std::ops::Range;

use model::{DropCause, Nanos, Side};
use netio::{FrameRef, GsoFrame};
use strum::IntoStaticStr;

use super::departures::Changes;
use super::stats::EmulatorLoss;

/// Neighbouring packets of one frame with the same outcome at the same time.
#[derive(Clone, Debug)]
pub(crate) struct ObservedPackets<'f> {
    /// The end of the link at which the packets arrived.
    pub(crate) ingress: Side,
    /// The frame in which the packets arrived. It has no bytes if the port could not deliver it.
    pub(crate) frame: FrameRef<'f>,
    /// The segmentation of the frame; `None` if it cannot be split into packets.
    pub(crate) gso: Option<&'f GsoFrame>,
    pub(crate) segments: Range<u32>,
    /// The due time of each packet; empty if they were never due.
    pub(crate) due: &'f [Nanos],
    /// The differences from the packets that arrived.
    pub(crate) changes: Changes,
    /// The name of the further hop that dropped the packets, if one did.
    pub(crate) hop: Option<&'f str>,
}

/// The outcome of a packet: an outcome of the emulated link, or a cause for which the emulator
/// itself lost the packet. The names match those of the link's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum PacketVerdict {
    /// The egress interface accepted the packet.
    Delivered,
    /// The emulated network dropped the packet for this cause.
    Dropped(DropCause),
    /// The packet was on its way when the emulator stopped.
    HeldAtEnd,
    /// ARP, discovery protocols and other link-control frames pass the link immediately.
    LinkControl,
    /// The emulator's memory limit was reached.
    MemoryLimit,
    /// The GSO frame cannot be split into packets; it counts as one packet.
    UnsupportedGso,
    /// The frame is longer than the slots of the receive ring.
    FrameTooLong,
    /// The egress interface refused the packet.
    SendFailed,
    /// The emulator could not keep up, and the packet would have left too late.
    Overload,
    /// The emulator could not keep up with its receive rings, and the link had used up its share of
    /// the intake.
    IntakeOverload,
}

impl<'f> ObservedPackets<'f> {
    /// Describes all packets of a frame, none of which was ever due.
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
            hop: None,
        }
    }
}

impl PacketVerdict {
    /// Returns the name that logs and summaries use.
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
            EmulatorLoss::Overload => Self::Overload,
            EmulatorLoss::IntakeOverload => Self::IntakeOverload,
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
