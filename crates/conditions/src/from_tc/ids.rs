//! The identifiers of qdiscs and classes: two hexadecimal numbers (iproute2 6.1, `tc/tc_util.c`).

use std::fmt;

use crate::tc_number;

/// The identifier of a class, or with a minor number of 0 that of a qdisc: `1:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassId(u32);

impl ClassId {
    /// The parent of a device's first qdisc.
    pub(super) const ROOT: Self = Self(u32::MAX);
    /// The first number of the qdisc of packets that come in.
    pub(super) const INGRESS: u16 = 0xffff;

    /// Returns the class of a qdisc with this minor number.
    pub(super) fn of(qdisc: u16, minor: u32) -> Self {
        Self((u32::from(qdisc) << 16) | (minor & 0xffff))
    }

    /// Reads a class; a qdisc may be without its colon, as in tc.
    pub(super) fn class(word: &str) -> Option<Self> {
        if word == "root" {
            return Some(Self::ROOT);
        }
        let number = |digits: &str| {
            let number = tc_number::integer(digits, 16)?;
            u16::try_from(number).ok()
        };
        let (qdisc, minor) = match word.split_once(':') {
            Some(("", minor)) => (0, number(minor)?),
            Some((qdisc, "")) => (number(qdisc)?, 0),
            Some((qdisc, minor)) => (number(qdisc)?, number(minor)?),
            None => (0, number(word)?),
        };
        Some(Self::of(qdisc, minor.into()))
    }

    /// Reads the handle of a qdisc; tc ignores what is behind the colon.
    pub(super) fn handle(word: &str) -> Option<u16> {
        let (qdisc, _) = word.split_once(':').unwrap_or((word, ""));
        let Self(id) = Self::class(&format!("{qdisc}:"))?;
        u16::try_from(id >> 16).ok()
    }

    /// Returns the number of the qdisc.
    pub(super) fn qdisc(self) -> u16 {
        u16::try_from(self.0 >> 16).unwrap_or_default()
    }

    /// Returns the number of the class within the qdisc.
    pub(super) fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.minor()) {
            (Self::ROOT, _) => f.write_str("root"),
            (_, 0) => write!(f, "{:x}:", self.qdisc()),
            (_, minor) => write!(f, "{:x}:{minor:x}", self.qdisc()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_hexadecimal_and_either_part_may_be_absent() {
        for (word, written) in [
            ("1:10", "1:10"),
            ("a:1F", "a:1f"),
            ("1:", "1:"),
            ("1:0", "1:"),
            (":5", "0:5"),
            ("root", "root"),
            ("ffff:", "ffff:"),
        ] {
            assert_eq!(ClassId::class(word).unwrap().to_string(), written);
        }
        for word in ["", ":", "x:1", "1:10000", "1:1:1", "-1:1"] {
            assert_eq!(ClassId::class(word), None, "{word}");
        }
        assert_eq!(ClassId::handle("1"), Some(1));
        assert_eq!(ClassId::handle("ffff:"), Some(0xffff));
        assert_eq!(ClassId::handle("1:0"), Some(1));
        assert_eq!(ClassId::handle("root"), None);
    }
}
