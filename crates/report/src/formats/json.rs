//! The record itself as one JSON document.

use std::io::{self, Write};

use record::Record;

/// Writes the record as one document, indented for people.
///
/// # Errors
/// Those of writing to `target`.
pub(crate) fn write_json(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *target, record)?;
    writeln!(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn the_json_view_is_the_record() {
        let mut text = Vec::new();
        write_json(&record(), &mut text).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["plan"]["name"], "small");
        assert_eq!(value["runs"].as_array().unwrap().len(), 3);
    }
}
