//! Views of a record: each is a pure function of it.

mod charts;
mod csv;
mod figures;
mod html;
mod messages;
mod text;

use anyhow::Result;

pub(crate) use self::csv::csv;
pub(crate) use figures::{figure_in_words, figures, quantity};
pub(crate) use html::html;
pub(crate) use messages::{blast_table, pingpong_table, transfer_table};
pub(crate) use text::text;

use crate::experiment::record::Record;

/// The record itself, indented for people.
///
/// # Errors
/// None that a record can cause.
pub(crate) fn json(record: &Record) -> Result<String> {
    Ok(serde_json::to_string_pretty(record)? + "\n")
}

/// A number with so many digits behind the point, or a dash.
fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// As [`optional`], with its sign; what rounds to 0 has none.
fn signed(value: Option<f64>, digits: usize) -> String {
    let text = value.map_or_else(|| "–".to_owned(), |value| format!("{value:+.digits$}"));
    let zero = text.bytes().skip(1).all(|byte| matches!(byte, b'0' | b'.'));
    if zero && value.is_some() {
        text[1..].to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn a_number_that_rounds_to_nothing_has_no_sign() {
        assert_eq!(signed(Some(-0.0004), 3), "0.000");
        assert_eq!(signed(Some(-0.04), 2), "-0.04");
        assert_eq!(signed(Some(2.0), 2), "+2.00");
        assert_eq!(signed(None, 2), "–");
    }

    #[test]
    fn the_json_view_is_the_record() {
        let record = record();
        let again: Record = serde_json::from_str(&json(&record).unwrap()).unwrap();
        assert!(again == record);
    }
}
