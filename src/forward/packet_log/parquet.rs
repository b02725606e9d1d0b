//! The packet log as a Parquet file, with the columns of the CSV file. It is complete when the log ends.

use std::borrow::Cow;
use std::io::{self, Write};

use model::Side;
use netio::FiveTuple;
use record::crossing::CrossedFlow;
use report::{DataColumn, DataKind, DataValue, ParquetFile};

use super::csv::{WallTime, protocol_name};
use super::{LogLine, Sink, hop_name};

/// The columns, in the order of the CSV file.
const COLUMNS: [(&str, DataKind); 14] = [
    ("number", DataKind::Integer),
    ("direction", DataKind::Text),
    ("bytes", DataKind::Integer),
    ("arrival_ns", DataKind::Integer),
    ("verdict", DataKind::Text),
    ("changes", DataKind::Text),
    ("due_ns", DataKind::Integer),
    ("departure_ns", DataKind::Integer),
    ("protocol", DataKind::Text),
    ("source", DataKind::Text),
    ("source_port", DataKind::Integer),
    ("destination", DataKind::Text),
    ("destination_port", DataKind::Integer),
    ("hop", DataKind::Text),
];

/// The number of cells in a group of rows, which are in memory together: about 20 MB.
const CELLS_OF_A_GROUP: usize = 1 << 20;

/// A Parquet file with one row per packet.
pub(super) struct ParquetLog<W: Write + Send> {
    /// The file, until it is finished.
    file: Option<ParquetFile<W>>,
    /// The last flow and its cells, which the next line probably needs again, by ingress side.
    flows: [Option<(FiveTuple, FlowCells)>; 2],
}

/// The cells of a flow.
struct FlowCells {
    protocol: String,
    source: String,
    destination: String,
    ports: Option<[u64; 2]>,
}

impl<W: Write + Send> ParquetLog<W> {
    /// Creates a log in `file`.
    ///
    /// # Errors
    /// Those of writing to `file`.
    pub(super) fn new(file: W) -> io::Result<Self> {
        let columns = COLUMNS.map(|(name, kind)| DataColumn {
            name: name.to_owned(),
            kind,
        });
        let file = ParquetFile::new(&columns, file)?;
        Ok(Self {
            file: Some(file.with_groups_of(CELLS_OF_A_GROUP)),
            flows: [None, None],
        })
    }
}

impl<W: Write + Send + 'static> Sink for ParquetLog<W> {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, first: u64, lines: &[LogLine], hops: &[String]) -> io::Result<u64> {
        let (wall, mut number) = (WallTime::now(), first);
        let Some(file) = &mut self.file else {
            return Ok(0);
        };
        for line in lines {
            let cells = flow_cells(&mut self.flows[line.ingress.index()], line.flow);
            let hop = hop_name(hops, line.hop);
            for _ in 0..line.count {
                file.add(row(wall, number, line, cells, hop))?;
                number += 1;
            }
        }
        Ok(number - first)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), ParquetFile::finish)
    }

    fn flows(self) -> Vec<CrossedFlow> {
        Vec::new()
    }
}

/// Returns the cells of a line's packet with this number.
fn row<'a>(
    wall: WallTime,
    number: u64,
    line: &LogLine,
    flow: Option<&'a FlowCells>,
    hop: &'a str,
) -> [DataValue<'a>; COLUMNS.len()] {
    let text = |text: &'a str| DataValue::Text(Cow::Borrowed(text));
    let integer = |one: Option<u64>| one.map_or(DataValue::Missing, DataValue::Integer);
    let time = |at| integer(Option::map(at, |at| wall.of(at)));
    let of_flow =
        |cell: fn(&FlowCells) -> &str| flow.map_or(DataValue::Missing, |flow| text(cell(flow)));
    let port = |end: usize| integer(flow.and_then(|flow| flow.ports).map(|ports| ports[end]));
    let changes: Vec<&str> = line.changes.words().collect();
    [
        DataValue::Integer(number),
        text(match line.ingress {
            Side::A => "up",
            Side::B => "down",
        }),
        integer((line.bytes > 0).then_some(u64::from(line.bytes))),
        DataValue::Integer(wall.of(line.arrival)),
        text(line.verdict.name()),
        match changes.is_empty() {
            true => DataValue::Missing,
            false => DataValue::Text(changes.join(" ").into()),
        },
        time(line.due),
        time(line.departure),
        of_flow(|flow| &flow.protocol),
        of_flow(|flow| &flow.source),
        port(0),
        of_flow(|flow| &flow.destination),
        port(1),
        match hop.is_empty() {
            true => DataValue::Missing,
            false => text(hop),
        },
    ]
}

/// Returns the cells of the flow. They are formatted again only if the flow differs from the last one.
fn flow_cells(
    last: &mut Option<(FiveTuple, FlowCells)>,
    flow: Option<FiveTuple>,
) -> Option<&FlowCells> {
    let flow = flow?;
    if last.as_ref().is_none_or(|(known, _)| *known != flow) {
        let cells = FlowCells {
            protocol: protocol_name(flow.protocol).into_owned(),
            source: flow.source.to_string(),
            destination: flow.destination.to_string(),
            ports: flow.ports.map(|ports| ports.map(u64::from)),
        };
        *last = Some((flow, cells));
    }
    last.as_ref().map(|(_, cells)| cells)
}

#[cfg(test)]
mod tests {
    use model::{DropCause, Nanos};

    use super::super::PacketVerdict;
    use super::super::csv::{CsvFile, HEADER};
    use super::*;
    use crate::forward::departures::Changes;
    use crate::forward::test_writers::SharedBuffer;

    #[test]
    fn the_columns_are_those_of_the_csv_file() {
        let names = COLUMNS.map(|(name, _)| name).join(",");
        assert_eq!(names, HEADER.trim_end());
    }

    #[test]
    fn a_row_has_the_values_of_its_line_and_nothing_for_those_that_are_missing() {
        let wall = WallTime::now();
        let line = LogLine {
            bytes: 98,
            due: Some(Nanos(1_500)),
            changes: Changes::new(0, true, None),
            flow: Some(FiveTuple {
                protocol: 6,
                source: "fd77::1".parse().unwrap(),
                destination: "fd77::2".parse().unwrap(),
                ports: Some([1000, 80]),
            }),
            ..LogLine::bare(
                Nanos(1_000),
                Side::B,
                PacketVerdict::Dropped(DropCause::QueueFull),
            )
        };
        let mut last = None;
        let cells = flow_cells(&mut last, line.flow);
        let text = |text: &'static str| DataValue::Text(text.into());
        let expected = [
            DataValue::Integer(7),
            text("down"),
            DataValue::Integer(98),
            DataValue::Integer(wall.of(Nanos(1_000))),
            text("queue_full"),
            text("marked"),
            DataValue::Integer(wall.of(Nanos(1_500))),
            DataValue::Missing,
            text("tcp"),
            text("fd77::1"),
            DataValue::Integer(1000),
            text("fd77::2"),
            DataValue::Integer(80),
            text("dsl"),
        ];
        assert_eq!(row(wall, 7, &line, cells, "dsl"), expected);
        let bare = LogLine::bare(Nanos(1), Side::A, PacketVerdict::LinkControl);
        let missing = row(wall, 8, &bare, None, "");
        let missing = missing.iter().filter(|cell| **cell == DataValue::Missing);
        assert_eq!(missing.count(), 10);
    }

    #[test]
    fn a_finished_file_has_all_packets_and_a_small_part_of_the_bytes_of_csv() {
        let written = SharedBuffer::default();
        let mut log = ParquetLog::new(written.clone()).unwrap();
        let as_csv = SharedBuffer::default();
        let mut csv = CsvFile::new(as_csv.clone());
        let flow = FiveTuple {
            protocol: 17,
            source: "10.77.0.1".parse().unwrap(),
            destination: "10.77.0.2".parse().unwrap(),
            ports: Some([40_000, 5_201]),
        };
        let lines = (0..100_000_u64).map(|number| LogLine {
            bytes: 1_242,
            due: Some(Nanos(number * 10_000 + 20_000_000)),
            departure: Some(Nanos(number * 10_000 + 20_000_000 + number % 977)),
            flow: Some(flow),
            ..LogLine::bare(Nanos(number * 10_000), Side::A, PacketVerdict::Delivered)
        });
        let lines: Vec<LogLine> = lines.collect();
        log.begin().unwrap();
        assert_eq!(log.take(1, &lines, &[]).unwrap(), 100_000);
        log.finish().unwrap();
        csv.take(1, &lines, &[]).unwrap();
        let [parquet, csv] = [written, as_csv].map(|buffer| buffer.bytes().len());
        assert!(parquet > 0 && parquet * 8 < csv, "{parquet} of {csv}");
    }
}
