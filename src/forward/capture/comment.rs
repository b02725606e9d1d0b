//! A packet's comment in a capture: its outcome and its times. `farwire fit` reads them (crates/fit/src/capture.rs).

use std::fmt;

use model::Nanos;

use super::tap::CapturedFrame;
use crate::forward::observed::PacketVerdict;

/// The comment of one packet.
pub(super) struct PacketComment<'t> {
    pub(super) frame: &'t CapturedFrame,
    pub(super) due: Option<Nanos>,
}

/// A time in milliseconds, to the microsecond.
struct Millis(Nanos);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0 / 1000;
        write!(f, "{}.{:03} ms", micros / 1000, micros % 1000)
    }
}

impl fmt::Display for PacketComment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = self.frame;
        let arrival = frame.arrival;
        let after = |at: Nanos| Millis(Nanos(at.0.saturating_sub(arrival.0)));
        match frame.verdict {
            None => return f.write_str("reply by the emulator"),
            Some(PacketVerdict::Delivered) => f.write_str("delivered")?,
            Some(PacketVerdict::LinkControl) => {
                f.write_str("link control, forwarded immediately")?
            }
            Some(PacketVerdict::HeldAtEnd) => f.write_str("in flight at the end")?,
            Some(PacketVerdict::Dropped(cause)) => {
                write!(f, "dropped: {}", cause.name().replace('_', " "))?;
            }
            Some(own) => write!(f, "lost by the emulator: {}", own.name().replace('_', " "))?,
        }
        if let Some(departure) = frame.departure {
            write!(f, " {} after arrival", after(departure))?;
        }
        if let Some(due) = self.due {
            write!(f, ", due after {}", after(due))?;
            if let Some(departure) = frame.departure {
                let late = departure.0.saturating_sub(due.0);
                write!(f, ", {}.{} us late", late / 1000, late % 1000 / 100)?;
            }
        }
        for word in frame.changes.words() {
            write!(f, ", {word}")?;
        }
        Ok(())
    }
}
