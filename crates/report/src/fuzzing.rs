//! A function for fuzzers that reads any bytes as a record and creates every report of it, without a panic.

use std::io::{self, Write};

use record::Record;

use crate::{DataRows, DataSelection, DataTable, FORMATS, Make, Terminal};

/// Reads a record from the bytes of a file and creates every report of it.
pub fn records(bytes: &[u8]) {
    let Ok(record) = Record::from_reader(bytes) else {
        return;
    };
    for format in FORMATS {
        match format.make {
            Make::Terminal(make) => {
                let _ = (
                    make(&record, false, Terminal::NONE),
                    make(&record, true, Terminal::NONE),
                );
            }
            Make::Document(make) => drop(make(&record)),
            Make::Stream(make) => drop(make(&record, &mut io::sink())),
            Make::Data(make) => data(&record, make),
            Make::Files(make) => drop(make(&record)),
        }
    }
    let _ = crate::drawings(&record);
}

/// Creates every table of a record.
fn data(record: &Record, make: fn(DataTable<'_>, &mut (dyn Write + Send)) -> io::Result<()>) {
    for rows in [DataRows::Runs, DataRows::Samples] {
        for with_invalid in [false, true] {
            let selection = DataSelection { rows, with_invalid };
            if let Ok(table) = DataTable::of(record, selection) {
                let _ = make(table, &mut io::sink());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = include_str!("../../../tests/fixtures/records/small.jsonl");
    /// Replacements for a byte, which produce numbers that are too large, have another sign or are missing, and
    /// truncated text.
    const BYTES: &[u8] = b"0159-e.\"}],:n ";

    #[test]
    fn reports_of_changed_records_do_not_panic() {
        assert!(Record::from_reader(SMALL.as_bytes()).is_ok());
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            let mut bytes = SMALL.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = BYTES[random.usize(..BYTES.len())];
            }
            records(&bytes);
        }
    }
}
