//! The bytes of a frame that a rate counts.

use core::fmt;
use core::str::FromStr;

use crate::decimal::{Quantity, UnitError};
use crate::units::Bytes;

const FRAMING: Quantity = Quantity {
    what: "what a rate counts",
    right: "write l2 (frames without FCS), l1 (the wire), docsis, pppoe-ptm or another line of sch_cake's, or atm, ptm, overhead=-64 to 256 and mpu=0 to 256, as in atm,overhead=18,mpu=96",
    units: &[],
};

/// The bytes of a frame that a rate counts: its L2 length without FCS plus an overhead, at least a minimum, plus the
/// bytes that cells add, as in tc-stab(8).
///
/// Text: `l2`, which is the default; `l1`; the name of a line; or its parts: `atm,overhead=18,mpu=96`. Parts behind a
/// name replace the parts of that line. The names are those of tc-cake(8). It counts from the IP header on, so its
/// overheads are 14 bytes less here. [`Framing::PACKETS`] is written `packets`, which is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// The bytes that the line adds to the L2 frame without FCS, not counting VLAN tags; negative if the line omits
    /// parts of the frame.
    pub overhead: i16,
    /// The smallest number of bytes that a frame counts for, before cells.
    pub mpu: u16,
    /// The cells in which the line carries frames.
    pub cells: Cells,
}

/// The cells in which a line carries frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// No cells: frames are carried whole.
    #[default]
    None,
    /// ATM cells of 53 bytes that carry 48 bytes, the last one padded (ADSL).
    Atm,
    /// PTM, with one byte more after each 64 (VDSL2; IEEE 802.3, 61.3).
    Ptm,
    /// One cell of one byte for each frame, whatever its length.
    Packet,
}

/// The lines by name.
const LINES: [(&str, Framing); 15] = [
    ("l2", Framing::L2),
    ("l1", Framing::L1),
    ("ethernet", Framing::L1),
    ("docsis", line(18, 64, Cells::None)),
    ("pppoe-ptm", line(30, 0, Cells::Ptm)),
    ("bridged-ptm", line(22, 0, Cells::Ptm)),
    ("pppoe-llcsnap", line(40, 0, Cells::Atm)),
    ("pppoe-vcmux", line(32, 0, Cells::Atm)),
    ("bridged-llcsnap", line(32, 0, Cells::Atm)),
    ("bridged-vcmux", line(24, 0, Cells::Atm)),
    ("pppoa-llc", line(14, 0, Cells::Atm)),
    ("pppoa-vcmux", line(10, 0, Cells::Atm)),
    ("ipoa-llcsnap", line(16, 0, Cells::Atm)),
    ("ipoa-vcmux", line(8, 0, Cells::Atm)),
    ("conservative", line(48, 0, Cells::Atm)),
];

/// Returns a line that adds `beside_ip` bytes to an IP packet.
const fn line(beside_ip: i16, mpu: u16, cells: Cells) -> Framing {
    Framing {
        overhead: beside_ip - 14,
        mpu,
        cells,
    }
}

impl Framing {
    /// The L2 frame without FCS, as tc counts.
    pub const L2: Self = Self {
        overhead: 0,
        mpu: 0,
        cells: Cells::None,
    };

    /// The wire of Ethernet: `max(64, L2 + 4 FCS) + 8 preamble + 12 gap` (IEEE 802.3, 3.1.1 and 4.4.2).
    pub const L1: Self = Self {
        overhead: 24,
        mpu: 84,
        cells: Cells::None,
    };

    /// One byte for each frame, whatever its length: a rate of 8 bit/s serves one packet per second.
    pub const PACKETS: Self = Self {
        overhead: 0,
        mpu: 0,
        cells: Cells::Packet,
    };

    /// Returns the number of bytes that a frame of `l2_len` bytes (without FCS) counts for.
    #[inline]
    #[must_use]
    pub fn bytes_counted(self, l2_len: Bytes) -> Bytes {
        let overhead = i64::from(self.overhead);
        let whole = l2_len
            .0
            .saturating_add_signed(overhead)
            .max(u64::from(self.mpu));
        Bytes(match self.cells {
            Cells::None => whole,
            Cells::Atm => whole.div_ceil(48).saturating_mul(53),
            Cells::Ptm => whole.saturating_add(whole.div_ceil(64)),
            Cells::Packet => 1,
        })
    }
}

impl FromStr for Framing {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut framing = None;
        for part in text.split(',').map(str::trim) {
            let before = framing.unwrap_or_default();
            let named = LINES.iter().find(|(name, _)| *name == part);
            framing = Some(match (named, part.split_once('=')) {
                // A name defines all parts, so nothing may come before it.
                (Some((_, line)), _) if framing.is_none() => *line,
                (None, Some(("overhead", value))) => Self {
                    overhead: number(text, value, -64)?,
                    ..before
                },
                (None, Some(("mpu", value))) => Self {
                    mpu: number(text, value, 0)?.unsigned_abs(),
                    ..before
                },
                (None, None) if part == "atm" || part == "ptm" => Self {
                    cells: if part == "atm" {
                        Cells::Atm
                    } else {
                        Cells::Ptm
                    },
                    ..before
                },
                _ => return Err(FRAMING.malformed(text)),
            });
        }
        framing.ok_or_else(|| FRAMING.malformed(text))
    }
}

/// Parses a number of bytes from `least` to 256, the range of sch_cake.
fn number(text: &str, value: &str, least: i16) -> Result<i16, UnitError> {
    let value: i16 = value.trim().parse().map_err(|_| FRAMING.malformed(text))?;
    if (least..=256).contains(&value) {
        Ok(value)
    } else {
        Err(FRAMING.out_of_range(text))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::L2 => return f.write_str("l2"),
            Self::L1 => return f.write_str("l1"),
            // Other names are written as parts, because several names mean the same.
            _ => {}
        }
        f.write_str(match self.cells {
            Cells::None => "",
            Cells::Atm => "atm,",
            Cells::Ptm => "ptm,",
            Cells::Packet => return f.write_str("packets"),
        })?;
        write!(f, "overhead={}", self.overhead)?;
        if self.mpu > 0 {
            write!(f, ",mpu={}", self.mpu)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn framing(text: &str) -> Framing {
        text.parse().unwrap()
    }

    #[test]
    fn the_wire_counts_padding_fcs_preamble_and_gap() {
        assert_eq!(Framing::L1.bytes_counted(Bytes(42)), Bytes(84));
        assert_eq!(Framing::L1.bytes_counted(Bytes(60)), Bytes(84));
        assert_eq!(Framing::L1.bytes_counted(Bytes(61)), Bytes(85));
        assert_eq!(Framing::L1.bytes_counted(Bytes(1_514)), Bytes(1_538));
        assert_eq!(Framing::L2.bytes_counted(Bytes(42)), Bytes(42));
        assert_eq!(Framing::L1.bytes_counted(Bytes(u64::MAX)), Bytes(u64::MAX));
    }

    #[test]
    fn a_packet_counts_as_one_byte_whatever_its_length() {
        for len in [1, 60, 1_514, u64::MAX] {
            assert_eq!(Framing::PACKETS.bytes_counted(Bytes(len)), Bytes(1));
        }
        assert_eq!(Framing::PACKETS.to_string(), "packets");
        assert!("packets".parse::<Framing>().is_err());
    }

    #[test]
    fn the_last_cell_is_padded() {
        // The example of tc-stab(8): 100 bytes are three cells, 159 bytes.
        assert_eq!(framing("atm").bytes_counted(Bytes(100)), Bytes(159));
        for (len, cells) in [(1, 1), (48, 1), (49, 2), (96, 2), (1_514, 32)] {
            assert_eq!(framing("atm").bytes_counted(Bytes(len)), Bytes(cells * 53));
        }
        // An acknowledgement of 40 bytes of IP over PPPoE and LLC has 80 bytes in two cells; a packet of 1,500 bytes
        // has 1,540 bytes in 33.
        let adsl = framing("pppoe-llcsnap");
        assert_eq!(adsl.bytes_counted(Bytes(54)), Bytes(106));
        assert_eq!(adsl.bytes_counted(Bytes(1_514)), Bytes(33 * 53));
        assert_eq!(framing("atm,mpu=96").bytes_counted(Bytes(60)), Bytes(106));
        assert_eq!(framing("ptm").bytes_counted(Bytes(64)), Bytes(65));
        assert_eq!(framing("ptm").bytes_counted(Bytes(65)), Bytes(67));
        assert_eq!(
            framing("pppoe-ptm").bytes_counted(Bytes(1_514)),
            Bytes(1_554)
        );
    }

    #[test]
    fn the_minimum_includes_the_overhead() {
        let cable = framing("docsis");
        for (len, counted) in [(42, 64), (60, 64), (61, 65), (1_514, 1_518)] {
            assert_eq!(cable.bytes_counted(Bytes(len)), Bytes(counted));
        }
        assert_eq!(framing("overhead=-14").bytes_counted(Bytes(54)), Bytes(40));
        assert_eq!(framing("overhead=-64").bytes_counted(Bytes(42)), Bytes(0));
    }

    #[test]
    fn written_values_are_read_back_equal() {
        for text in [
            "l2",
            "l1",
            "docsis",
            "pppoe-ptm",
            "pppoa-llc",
            "conservative",
            "overhead=4",
            "atm,overhead=-6",
            "ptm,overhead=8,mpu=64",
        ] {
            let read = framing(text);
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
        assert_eq!(framing("ethernet").to_string(), "l1");
        assert_eq!(framing("bridged-llcsnap").to_string(), "atm,overhead=18");
        assert_eq!(
            framing("pppoe-llcsnap, overhead=30"),
            framing("overhead=30,atm")
        );
    }

    #[test]
    fn an_invalid_framing_is_refused_with_advice() {
        for text in ["ip", "", "mpu=1,docsis", "atm=1", "overhead=x", "overhead"] {
            let message = text.parse::<Framing>().unwrap_err().to_string();
            assert!(
                message.starts_with(&alloc::format!("`{text}` is not what")),
                "{message}"
            );
            assert!(
                message.ends_with("as in atm,overhead=18,mpu=96"),
                "{message}"
            );
        }
        for text in ["overhead=-65", "overhead=257", "mpu=257", "mpu=-1"] {
            let message = text.parse::<Framing>().unwrap_err().to_string();
            assert!(message.contains("is out of range: write l2"), "{message}");
        }
    }
}
