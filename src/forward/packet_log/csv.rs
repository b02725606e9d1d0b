//! The packet log's lines as CSV (RFC 4180, but for its line ends, which are bare).

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::net::IpAddr;

use model::{Nanos, Side};
use netio::{Flow, clock};
use record::crossing::CrossedFlow;

use super::{LogLine, Sink};
use crate::forward::departures::Changes;

/// The first line.
const HEADER: &str = "number,direction,bytes,arrival_ns,verdict,changes,due_ns,departure_ns,protocol,source,source_port,destination,destination_port\n";

/// A file of rows.
pub(super) struct CsvFile<W> {
    file: W,
    rows: RowWriter,
}

/// Makes rows of lines.
#[derive(Debug, Default)]
struct RowWriter {
    text: String,
    /// By ingress: the last flow and its columns, which the next line is likely to need again.
    flows: [Option<(Flow, String)>; 2],
}

impl<W> CsvFile<W> {
    /// Written to `file`.
    pub(super) fn new(file: W) -> Self {
        Self {
            file,
            rows: RowWriter::default(),
        }
    }
}

impl<W: Write + Send + 'static> Sink for CsvFile<W> {
    fn begin(&mut self) -> io::Result<()> {
        self.file.write_all(HEADER.as_bytes())
    }

    fn take(&mut self, first: u64, lines: &[LogLine]) -> io::Result<usize> {
        let text = self.rows.rows(first, lines);
        self.file.write_all(text.as_bytes())?;
        self.file.flush()?;
        Ok(lines.len())
    }

    fn flows(self) -> Vec<CrossedFlow> {
        Vec::new()
    }
}

impl RowWriter {
    /// A row for each line, numbered from `first` on.
    fn rows(&mut self, first: u64, lines: &[LogLine]) -> &str {
        self.rows_at(WallTime::now(), first, lines)
    }

    fn rows_at(&mut self, wall: WallTime, first: u64, lines: &[LogLine]) -> &str {
        self.text.clear();
        for (number, line) in (first..).zip(lines) {
            let row = self.row(wall, number, line);
            row.expect("a string takes everything");
        }
        &self.text
    }

    fn row(&mut self, wall: WallTime, number: u64, line: &LogLine) -> fmt::Result {
        let direction = match line.ingress {
            Side::A => "up",
            Side::B => "down",
        };
        let text = &mut self.text;
        write!(text, "{number},{direction},")?;
        if line.bytes > 0 {
            write!(text, "{}", line.bytes)?;
        }
        let (arrival, verdict) = (wall.of(line.arrival), line.verdict.name());
        write!(text, ",{arrival},{verdict},")?;
        let Changes {
            is_copy, is_marked, ..
        } = line.changes;
        let changes = [
            (is_copy, "copy"),
            (is_marked, "marked"),
            (line.changes.edit().is_some(), "corrupted"),
        ];
        let mut between = "";
        for (_, word) in changes.iter().filter(|(applies, _)| *applies) {
            write!(text, "{between}{word}")?;
            between = " ";
        }
        text.push(',');
        for time in [line.due, line.departure] {
            if let Some(time) = time {
                write!(text, "{}", wall.of(time))?;
            }
            text.push(',');
        }
        let last = &mut self.flows[line.ingress.index()];
        writeln!(text, "{}", columns_of(last, line.flow))
    }
}

/// The last columns; made anew only when the flow is another one.
fn columns_of(last: &mut Option<(Flow, String)>, flow: Option<Flow>) -> &str {
    let Some(flow) = flow else {
        return ",,,,";
    };
    if last.as_ref().is_none_or(|(known, _)| *known != flow) {
        *last = Some((flow, columns(&flow)));
    }
    last.as_ref().map_or("", |(_, columns)| columns)
}

fn columns(flow: &Flow) -> String {
    let named = [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "icmpv6")];
    let protocol = named.iter().find(|(number, _)| *number == flow.protocol);
    let protocol =
        protocol.map_or_else(|| flow.protocol.to_string(), |(_, name)| (*name).to_owned());
    let end = |address: IpAddr, port: usize| {
        let port = flow.ports.map(|ports| ports[port].to_string());
        format!("{address},{}", port.unwrap_or_default())
    };
    format!(
        "{protocol},{},{}",
        end(flow.source, 0),
        end(flow.destination, 1)
    )
}

/// How the emulator's clock becomes the wall's, which instruments and captures stamp with.
#[derive(Clone, Copy, Debug)]
struct WallTime {
    mono: Nanos,
    wall: Nanos,
}

impl WallTime {
    fn now() -> Self {
        Self {
            mono: clock::now(),
            wall: clock::wall(),
        }
    }

    /// Nanoseconds since 1970.
    fn of(self, mono: Nanos) -> u64 {
        (self.wall.0.wrapping_sub(self.mono.0)).wrapping_add(mono.0)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::super::PacketVerdict;
    use super::*;
    use model::{DropCause, Edit};

    #[test]
    fn a_row_has_wall_clock_times_and_leaves_empty_what_there_is_not() {
        let line = LogLine {
            bytes: 98,
            due: Some(Nanos(1_500)),
            departure: Some(Nanos(1_600)),
            flow: Some(Flow {
                protocol: 6,
                source: "fd77::1".parse().unwrap(),
                destination: "fd77::2".parse().unwrap(),
                ports: Some([1000, 80]),
            }),
            ..LogLine::unseen(Nanos(1_000), Side::B, PacketVerdict::Delivered)
        };
        let lost = LogLine {
            flow: None,
            due: None,
            departure: None,
            verdict: PacketVerdict::Dropped(DropCause::QueueFull),
            ..line
        };
        let changed = LogLine {
            changes: Changes::new(
                2,
                true,
                Some(Edit::FlipBits {
                    first: 7,
                    count: NonZeroU8::MIN,
                    repair: false,
                }),
            ),
            ..lost
        };
        let wall = WallTime {
            mono: Nanos(2_000),
            wall: Nanos(1_000_002_000),
        };
        let mut table = RowWriter::default();
        let rows = table.rows_at(wall, 7, &[line, lost, changed]);
        assert_eq!(
            rows,
            "7,down,98,1000001000,delivered,,1000001500,1000001600,tcp,fd77::1,1000,fd77::2,80\n\
             8,down,98,1000001000,queue_full,,,,,,,,\n\
             9,down,98,1000001000,queue_full,copy marked corrupted,,,,,,,\n"
        );
        let columns = |text: &str| text.lines().next().unwrap().split(',').count();
        assert_eq!(columns(HEADER), columns(rows));
    }
}
