//! The messages of a conversion.

use serde::Serialize;

/// A part of a script that has no equivalent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Lack {
    /// The line of the script, from 1.
    pub line: usize,
    /// The part, and perhaps what to write instead.
    pub what: String,
}

/// The messages about a link that was made of tc's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) lacks: Vec<Lack>,
    pub(super) remarks: Vec<String>,
}

impl Report {
    /// Names a part without an equivalent, once.
    pub(super) fn lack(&mut self, line: usize, what: impl Into<String>) {
        let lack = Lack {
            line,
            what: what.into(),
        };
        if !self.lacks.contains(&lack) {
            self.lacks.push(lack);
        }
    }

    /// Explains a part of the result, once.
    pub(super) fn remark(&mut self, sentence: &str) {
        if !self.remarks.iter().any(|known| known == sentence) {
            self.remarks.push(sentence.to_owned());
        }
    }
}
