//! A function for fuzzers that reads any bytes as a record and creates every report of it, without a panic.

use std::io::{self, Write};

use record::Record;

use crate::{DataRows, DataSelection, DataTable, Drawings, FORMATS, Make, Terminal};
use crate::{ServerReport, server_csv, server_html, server_markdown, server_text};

/// Reads a record from the bytes of a file and creates every report of it. Reads them as a far end's log, too.
pub fn records(bytes: &[u8]) {
    server_logs(bytes);
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
    drop(Drawings::of(&record).svg());
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

/// Reads a far end's log from the bytes of a file and creates every report of it.
fn server_logs(bytes: &[u8]) {
    let Ok(report) = ServerReport::of(bytes) else {
        return;
    };
    for details in [false, true] {
        drop(server_text(&report, details, Terminal::NONE));
    }
    drop(server_markdown(&report));
    let _ = server_html(&report);
    drop(Drawings::of_log(&report).svg());
    let _ = server_csv(&report, &mut io::sink());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sweep_comparison::tests::sweep;

    const SMALL: &str = include_str!("../../../tests/fixtures/records/small.jsonl");
    /// Replacements for a byte, which produce numbers that are too large, have another sign or are missing, and
    /// truncated text.
    const BYTES: &[u8] = b"0159-e.\"}],:n ";

    const LOG: &str = include_str!("../../../tests/fixtures/serve.jsonl");

    /// Gives `make` the text with a few bytes changed, this many times.
    fn changed(text: &str, times: u32, make: fn(&[u8])) {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..if cfg!(miri) { 3 } else { times } {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = BYTES[random.usize(..BYTES.len())];
            }
            make(&bytes);
        }
    }

    #[test]
    fn reports_of_changed_logs_do_not_panic() {
        assert!(ServerReport::of(LOG.as_bytes()).unwrap().unreadable_lines == 0);
        changed(LOG, 300, server_logs);
    }

    #[test]
    fn reports_of_changed_records_do_not_panic() {
        assert!(Record::from_reader(SMALL.as_bytes()).is_ok());
        changed(SMALL, 300, records);
    }

    #[test]
    fn reports_of_changed_sweeps_do_not_panic() {
        let sweep = sweep(4, 0.05, 1, |_| 1.0);
        let run =
            |run: &record::Run| format!("{{\"run\":{}}}", serde_json::to_string(run).unwrap());
        let head = serde_json::to_string(&sweep.head).unwrap();
        let lines: Vec<String> = [head]
            .into_iter()
            .chain(sweep.runs.iter().map(run))
            .collect();
        let text = lines.join("\n") + "\n";
        assert!(Record::from_reader(text.as_bytes()).is_ok());
        changed(&text, 60, records);
    }
}
