//! What stands in a packet's comment: what became of it, and when.

use std::fmt;

use model::Nanos;

use super::tap::Taken;
use crate::forward::packet_log::PacketVerdict;

/// One packet's comment.
pub(super) struct Comment<'t> {
    pub(super) taken: &'t Taken,
    pub(super) due: Option<Nanos>,
}

/// A time in milliseconds, to the nanosecond's thousand.
struct Millis(Nanos);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0 / 1000;
        write!(f, "{}.{:03} ms", micros / 1000, micros % 1000)
    }
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrival = self.taken.arrival;
        let after = |at: Nanos| Millis(Nanos(at.0.saturating_sub(arrival.0)));
        let fate = self.taken.fate;
        match fate.verdict {
            None => return f.write_str("reply of the emulator"),
            Some(PacketVerdict::Delivered) => f.write_str("delivered")?,
            Some(PacketVerdict::LinkControl) => f.write_str("link control, passed at once")?,
            Some(PacketVerdict::HeldAtEnd) => f.write_str("on its way at the end")?,
            Some(PacketVerdict::Dropped(cause)) => {
                write!(f, "dropped: {}", cause.name().replace('_', " "))?;
            }
            Some(own) => write!(f, "lost by the emulator: {}", own.name().replace('_', " "))?,
        }
        if let Some(departure) = fate.departure {
            write!(f, " {} after arrival", after(departure))?;
        }
        if let Some(due) = self.due {
            write!(f, ", due after {}", after(due))?;
            if let Some(departure) = fate.departure {
                let late = departure.0.saturating_sub(due.0);
                write!(f, ", {}.{} us late", late / 1000, late % 1000 / 100)?;
            }
        }
        for word in fate.changes.words() {
            write!(f, ", {word}")?;
        }
        Ok(())
    }
}
