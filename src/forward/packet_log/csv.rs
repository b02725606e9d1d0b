//! The packet log as CSV (RFC 4180, except that lines end with a bare line feed).

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;

use itoa::Integer;
use model::{Nanos, Side};
use netio::{FiveTuple, clock};
use record::crossing::CrossedFlow;

use super::{LogLine, Sink, hop_name};
use crate::forward::departures::Changes;

/// The header line.
pub(super) const HEADER: &str = "number,direction,bytes,arrival_ns,verdict,changes,due_ns,departure_ns,protocol,source,source_port,destination,destination_port,hop\n";
/// The time within which both clocks are read, unless the thread was interrupted between the readings.
const TOGETHER: Nanos = Nanos(2_000);
/// The most readings of both clocks, of which the shortest counts.
const READINGS: u32 = 16;

/// The number of bytes per write. The kernel needs the least work for large writes.
const WRITE: usize = 1 << 20;

/// A CSV file with one row per packet.
pub(super) struct CsvFile<W> {
    file: W,
    rows: RowWriter,
}

/// Formats log lines as rows.
#[derive(Debug, Default)]
struct RowWriter {
    /// Rows that are not written yet.
    text: Vec<u8>,
    /// The row being formatted, without its number.
    row: Vec<u8>,
    /// The last flow and its columns, which the next line probably needs again, by ingress side.
    flows: [Option<(FiveTuple, String)>; 2],
}

impl<W> CsvFile<W> {
    /// Creates a CSV log in `file`.
    pub(super) fn new(file: W) -> Self {
        Self {
            file,
            rows: RowWriter::default(),
        }
    }
}

impl<W: Write> CsvFile<W> {
    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.rows.text)?;
        self.rows.text.clear();
        Ok(())
    }
}

impl<W: Write + Send + 'static> Sink for CsvFile<W> {
    fn begin(&mut self) -> io::Result<()> {
        self.file.write_all(HEADER.as_bytes())
    }

    fn take(&mut self, first: u64, lines: &[LogLine], hops: &[String]) -> io::Result<u64> {
        let (wall, mut number) = (WallTime::now(), first);
        for line in lines {
            self.rows.add(wall, number, line, hops);
            number += u64::from(line.count);
            if self.rows.text.len() >= WRITE {
                self.write()?;
            }
        }
        self.write()?;
        self.file.flush()?;
        Ok(number - first)
    }

    fn flows(self) -> Vec<CrossedFlow> {
        Vec::new()
    }
}

impl RowWriter {
    /// Adds a row for each packet of a line, numbered from `first` on.
    fn add(&mut self, wall: WallTime, first: u64, line: &LogLine, hops: &[String]) {
        self.row.clear();
        self.row_without_number(wall, line, hops);
        let mut digits = itoa::Buffer::new();
        for number in first..first + u64::from(line.count) {
            self.text
                .extend_from_slice(digits.format(number).as_bytes());
            self.text.extend_from_slice(&self.row);
        }
    }

    fn row_without_number(&mut self, wall: WallTime, line: &LogLine, hops: &[String]) {
        let row = &mut self.row;
        row.extend_from_slice(match line.ingress {
            Side::A => b",up,",
            Side::B => b",down,",
        });
        if line.bytes > 0 {
            push_decimal(row, line.bytes);
        }
        row.push(b',');
        push_decimal(row, wall.of(line.arrival));
        row.push(b',');
        row.extend_from_slice(line.verdict.name().as_bytes());
        row.push(b',');
        push_changes(row, line.changes);
        row.push(b',');
        for time in [line.due, line.departure] {
            if let Some(time) = time {
                push_decimal(row, wall.of(time));
            }
            row.push(b',');
        }
        let last = &mut self.flows[line.ingress.index()];
        row.extend_from_slice(columns_of(last, line.flow).as_bytes());
        row.push(b',');
        row.extend_from_slice(hop_name(hops, line.hop).as_bytes());
        row.push(b'\n');
    }
}

fn push_decimal(row: &mut Vec<u8>, number: impl Integer) {
    row.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_changes(row: &mut Vec<u8>, changes: Changes) {
    let mut between = "";
    for word in changes.words() {
        row.extend_from_slice(between.as_bytes());
        row.extend_from_slice(word.as_bytes());
        between = " ";
    }
}

/// Returns the columns of the flow. They are formatted again only if the flow differs from the last
/// one.
fn columns_of(last: &mut Option<(FiveTuple, String)>, flow: Option<FiveTuple>) -> &str {
    let Some(flow) = flow else {
        return ",,,,";
    };
    if last.as_ref().is_none_or(|(known, _)| *known != flow) {
        *last = Some((flow, columns(&flow)));
    }
    last.as_ref().map_or("", |(_, columns)| columns)
}

fn columns(flow: &FiveTuple) -> String {
    let protocol = protocol_name(flow.protocol);
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

/// Returns the name of a protocol of IP, or its number.
pub(super) fn protocol_name(number: u8) -> Cow<'static, str> {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmpv6".into(),
        _ => number.to_string().into(),
    }
}

/// Converts the emulator's monotonic clock to wall-clock time, which instruments and captures use.
#[derive(Clone, Copy, Debug)]
pub(in crate::forward) struct WallTime {
    mono: Nanos,
    wall: Nanos,
}

impl WallTime {
    /// Reads both clocks. An interruption between the readings would move every time that is converted by its length, so that
    /// they are repeated.
    pub(in crate::forward) fn now() -> Self {
        Self::read(clock::now, clock::wall)
    }

    fn read(mut mono: impl FnMut() -> Nanos, mut wall: impl FnMut() -> Nanos) -> Self {
        let mut best = Self {
            mono: Nanos::ZERO,
            wall: Nanos::ZERO,
        };
        let mut shortest = u64::MAX;
        for _ in 0..READINGS {
            let (before, wall, after) = (mono(), wall(), mono());
            let took = after.0.saturating_sub(before.0);
            if took < shortest {
                shortest = took;
                best = Self {
                    mono: Nanos(before.0 + took / 2),
                    wall,
                };
            }
            if shortest <= TOGETHER.0 {
                break;
            }
        }
        best
    }

    /// Returns the nanoseconds since 1970.
    pub(in crate::forward) fn of(self, mono: Nanos) -> u64 {
        (self.wall.0.wrapping_sub(self.mono.0)).wrapping_add(mono.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::num::NonZeroU8;

    use super::super::PacketVerdict;
    use super::*;
    use crate::forward::test_writers::SharedBuffer;
    use model::{DropCause, Edit};
    use proptest::prelude::*;

    #[test]
    fn an_interruption_between_the_readings_of_both_clocks_moves_no_time() {
        // The wall clock is an hour ahead. The first readings are interrupted for 13 ms.
        let at = Cell::new(0);
        let steps = RefCell::new([0, 13_000_000, 100, 100, 200, 200].into_iter());
        let mono = || {
            at.set(at.get() + steps.borrow_mut().next().unwrap());
            Nanos(at.get())
        };
        let read = WallTime::read(&mono, || Nanos(mono().0 + 3_600_000_000_000));
        assert_eq!(read.of(Nanos(5_000)), 3_600_000_005_000);
    }

    const WALL: WallTime = WallTime {
        mono: Nanos(2_000),
        wall: Nanos(1_000_002_000),
    };
    const FLIP: Edit = Edit::FlipBits {
        first: 7,
        count: NonZeroU8::MIN,
        repair: false,
    };

    fn rows(first: u64, line: &LogLine) -> String {
        let mut rows = RowWriter::default();
        rows.add(WALL, first, line, &[]);
        String::from_utf8(rows.text).unwrap()
    }

    #[test]
    fn a_row_has_wall_clock_times_and_empty_columns_for_missing_values() {
        let line = LogLine {
            bytes: 98,
            due: Some(Nanos(1_500)),
            departure: Some(Nanos(1_600)),
            flow: Some(FiveTuple {
                protocol: 6,
                source: "fd77::1".parse().unwrap(),
                destination: "fd77::2".parse().unwrap(),
                ports: Some([1000, 80]),
            }),
            ..LogLine::bare(Nanos(1_000), Side::B, PacketVerdict::Delivered)
        };
        let lost = LogLine {
            flow: None,
            due: None,
            departure: None,
            verdict: PacketVerdict::Dropped(DropCause::QueueFull),
            ..line
        };
        let changed = LogLine {
            changes: Changes::new(2, true, Some(FLIP)),
            ..lost
        };
        let whole =
            "7,down,98,1000001000,delivered,,1000001500,1000001600,tcp,fd77::1,1000,fd77::2,80,\n";
        assert_eq!(rows(7, &line), whole);
        assert_eq!(rows(8, &lost), "8,down,98,1000001000,queue_full,,,,,,,,,\n");
        assert_eq!(
            rows(9, &changed),
            "9,down,98,1000001000,queue_full,copy marked corrupted,,,,,,,,\n"
        );
        let columns = |text: &str| text.trim_end().split(',').count();
        assert_eq!(columns(HEADER), columns(whole));
    }

    #[test]
    fn a_dropped_packet_has_the_name_of_its_hop() {
        let written = SharedBuffer::default();
        let mut csv = CsvFile::new(written.clone());
        let line = |hop| LogLine {
            hop,
            ..LogLine::bare(Nanos(1), Side::A, PacketVerdict::Dropped(DropCause::Loss))
        };
        let hops = ["dsl", "far"].map(str::to_owned);
        csv.take(1, &[line(2), line(0), line(1)], &hops).unwrap();
        let text = String::from_utf8(written.bytes()).unwrap();
        let hops: Vec<&str> = text
            .lines()
            .map(|row| row.rsplit(',').next().unwrap())
            .collect();
        assert_eq!(hops, ["far", "", "dsl"]);
    }

    #[test]
    fn equal_packets_have_a_row_each() {
        let pair = LogLine {
            count: 3,
            ..LogLine::bare(Nanos(1), Side::A, PacketVerdict::LinkControl)
        };
        let rest = ",up,,1000000001,link_control,,,,,,,,,\n";
        let expected = format!("8{rest}9{rest}10{rest}");
        assert_eq!(rows(8, &pair), expected);
    }

    /// Formats a row with the standard formatting functions.
    fn plain(number: u64, line: &LogLine) -> String {
        let text = |value: Option<String>| value.unwrap_or_default();
        let time = |at: Nanos| (1_000_000_000 + at.0).to_string();
        let direction = ["up", "down"][line.ingress.index()];
        let bytes = text((line.bytes > 0).then(|| line.bytes.to_string()));
        let words = [
            line.changes.is_copy.then_some("copy"),
            line.changes.is_marked.then_some("marked"),
            line.changes.edit().map(|_| "corrupted"),
        ];
        let changes: Vec<&str> = words.into_iter().flatten().collect();
        let port = |at: usize| {
            let ports = line.flow.and_then(|flow| flow.ports);
            text(ports.map(|ports| ports[at].to_string()))
        };
        format!(
            "{number},{direction},{bytes},{},{},{},{},{},{},{},{},{},{},\n",
            time(line.arrival),
            line.verdict.name(),
            changes.join(" "),
            text(line.due.map(time)),
            text(line.departure.map(time)),
            text(line.flow.map(|flow| match flow.protocol {
                17 => "udp".to_owned(),
                other => other.to_string(),
            })),
            text(line.flow.map(|flow| flow.source.to_string())),
            port(0),
            text(line.flow.map(|flow| flow.destination.to_string())),
            port(1),
        )
    }

    fn flows() -> impl Strategy<Value = FiveTuple> {
        let kinds = prop_oneof![Just((17, true)), Just((132, true)), Just((89, false))];
        (kinds, any::<[IpAddr; 2]>(), any::<[u16; 2]>()).prop_map(
            |((protocol, has_ports), [source, destination], ports)| FiveTuple {
                protocol,
                source,
                destination,
                ports: has_ports.then_some(ports),
            },
        )
    }

    fn lines() -> impl Strategy<Value = LogLine> {
        let verdicts = prop_oneof![
            Just(PacketVerdict::Delivered),
            Just(PacketVerdict::MemoryLimit),
            Just(PacketVerdict::Dropped(DropCause::Loss)),
        ];
        let times = (0..u64::MAX / 2).prop_map(Nanos);
        let edits = prop::option::of(Just(FLIP));
        (
            (1_u32..120, any::<bool>(), verdicts, any::<u32>()),
            (
                times.clone(),
                prop::option::of(times.clone()),
                prop::option::of(times),
            ),
            (0_u32..2, any::<bool>(), edits),
            prop::option::of(flows()),
        )
            .prop_map(
                |(what, (arrival, due, departure), (copy, mark, edit), flow)| {
                    let (count, is_up, verdict, bytes) = what;
                    let ingress = if is_up { Side::A } else { Side::B };
                    LogLine {
                        count,
                        bytes,
                        due,
                        departure,
                        changes: Changes::new(copy, mark, edit),
                        flow,
                        ..LogLine::bare(arrival, ingress, verdict)
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn rows_equal_those_of_plain_formatting(
            first in 1_u64..u64::MAX / 2,
            lines in prop::collection::vec(lines(), 1..20),
        ) {
            let (mut rows, mut expected, mut number) = (RowWriter::default(), String::new(), first);
            for line in &lines {
                rows.add(WALL, number, line, &[]);
                for _ in 0..line.count {
                    expected += &plain(number, line);
                    number += 1;
                }
            }
            prop_assert_eq!(String::from_utf8(rows.text).unwrap(), expected);
        }
    }
}
