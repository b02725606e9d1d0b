//! The packet log: the outcome of every packet. The packet path produces lines; a separate thread
//! writes them to a file or sums them up by flow. Equal packets of one train share a line with a
//! count until they are written.
//!
//! The buffer between the two has a bounded size. Lines that do not fit are lost, but their packets
//! keep their numbers. A gap in the numbers therefore shows where lines are missing, and the
//! summary counts them.

mod csv;
mod flow_totals;
mod parquet;
mod rotating;

use record::crossing::CrossedFlow;
use record::summary::PacketLogSummary;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use model::{Bytes, Nanos, Side};
use netio::{FiveTuple, GsoFrame};

use self::csv::CsvFile;
pub(in crate::forward) use self::csv::WallTime;
use self::flow_totals::FlowTotals;
use self::parquet::ParquetLog;
use self::rotating::LogFile;
use super::departures::Changes;
use super::observed::{ObservedPackets, PacketVerdict};
use instruments::output;

/// The limits of lines per batch and of waiting batches: 14 MB, which lasts for more than a tenth
/// of a second at a million packets per second, each from a different frame.
const BATCH: usize = 2048;
const WAITING: usize = 64;
const _: () = assert!(size_of::<LogLine>() <= 104);

/// A batch is also handed over when it has this many packets, so that little is left to write at
/// the end.
const BATCH_PACKETS: u64 = 16 << 10;

/// A batch that is not full is handed over after this time, so that a growing file can be followed.
const FOLLOW: Nanos = Nanos(200_000_000);

/// The outcome of one packet, or of neighbouring equal packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLine {
    /// The number of packets. Each has its own number, and its own row in a file.
    pub(crate) count: u32,
    /// The end of the link at which the packets arrived.
    pub(crate) ingress: Side,
    /// The L2 length of each packet without FCS; 0 if the kernel did not report it.
    pub(crate) bytes: u32,
    /// The kernel's arrival timestamp.
    pub(crate) arrival: Nanos,
    /// The outcome of the packets.
    pub(crate) verdict: PacketVerdict,
    /// The due time; `None` if the packets were never due.
    pub(crate) due: Option<Nanos>,
    /// The time at which the packets were handed to the kernel, if they were.
    pub(crate) departure: Option<Nanos>,
    /// The differences from the packets that arrived.
    pub(crate) changes: Changes,
    /// The number of the further hop that dropped the packets, from 1, in the order in which hops first
    /// dropped any; 0 for none.
    pub(crate) hop: u16,
    /// The flow of IP packets.
    pub(crate) flow: Option<FiveTuple>,
}

/// The destination of the log before it starts.
#[derive(Debug)]
pub(crate) enum PacketLog {
    /// CSV on standard output.
    Stdout,
    /// A file.
    File(LogFile),
    /// Totals by flow; no line is written.
    ByFlow,
}

/// The part of the log in the packet path. It takes lines and never waits.
#[derive(Debug)]
pub(crate) struct PacketLogWriter {
    batch: Vec<LogLine>,
    /// The number of packets in the batch, and in all batches before it.
    in_batch: u64,
    before: u64,
    handed_over: Nanos,
    /// The hops that lines have named, in the order of their numbers.
    hops: Vec<String>,
    /// Those of them that the writer does not know yet.
    new_hops: Vec<String>,
    full: SyncSender<LineBatch>,
    emptied: Receiver<Vec<LogLine>>,
    writer: JoinHandle<PacketLogSummary>,
}

/// A destination of lines.
trait Sink: Send + 'static {
    /// Prepares the destination for the first line.
    fn begin(&mut self) -> io::Result<()>;

    /// Takes lines whose packets are numbered from `first` on. `hops` are the names of the hops to which
    /// the lines refer, in the order of their numbers. Returns the number of packets kept.
    fn take(&mut self, first: u64, lines: &[LogLine], hops: &[String]) -> io::Result<u64>;

    /// Completes the destination after the last line.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the totals of each flow, if this sink computes them.
    fn flows(self) -> Vec<CrossedFlow>;
}

/// A batch of lines whose packets have consecutive numbers from `first` on.
struct LineBatch {
    first: u64,
    lines: Vec<LogLine>,
    /// The hops that no earlier batch has named.
    new_hops: Vec<String>,
}

impl PacketLog {
    /// Creates a log in `path`, which is overwritten; `-` is standard output. A name that ends in `.parquet` is a Parquet
    /// file, and any other a CSV file. With a `limit`, FILE and FILE.1 take turns: when one has reached it, the other is
    /// emptied and in use.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the error names it.
    pub(crate) fn create(path: &Path, limit: Option<Bytes>) -> Result<Self> {
        if output::is_stdout(path) {
            ensure!(
                limit.is_none(),
                "-: standard output has no limit: leave `limit` out, or name a file"
            );
            return Ok(Self::Stdout);
        }
        let file = LogFile::create(path, limit);
        file.map(Self::File)
            .with_context(|| format!("{}: cannot write", path.display()))
    }

    /// Starts the thread that writes the log.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn begin(self) -> Result<PacketLogWriter> {
        match self {
            Self::Stdout => PacketLogWriter::to(CsvFile::new(io::stdout())),
            Self::File(file) if file.is_parquet() => {
                PacketLogWriter::to(file.rotating(ParquetLog::new)?)
            }
            Self::File(file) => PacketLogWriter::to(file.rotating(|file| Ok(CsvFile::new(file)))?),
            Self::ByFlow => PacketLogWriter::to(FlowTotals::default()),
        }
    }
}

impl PacketLogWriter {
    fn to(sink: impl Sink) -> Result<Self> {
        let (full, to_write) = sync_channel(WAITING);
        let (give_back, emptied) = channel();
        let writer = std::thread::Builder::new()
            .name("packet-log".to_owned())
            .spawn(move || write(sink, &to_write, &give_back))
            .context("cannot start the thread of the packet log")?;
        Ok(Self {
            batch: Vec::with_capacity(BATCH),
            in_batch: 0,
            before: 0,
            handed_over: Nanos::ZERO,
            hops: Vec::new(),
            new_hops: Vec::new(),
            full,
            emptied,
            writer,
        })
    }

    /// Adds a line for these packets, or several lines if their lengths or due times differ.
    pub(crate) fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        departure: Option<Nanos>,
    ) {
        let line = LogLine {
            hop: self.hop_number(packets.hop),
            ..LogLine::of(packets, verdict, departure)
        };
        let Some(gso) = packets.gso else {
            return self.push(line);
        };
        if packets.due.is_empty() {
            return self.push_segments(line, gso, packets.segments.clone());
        }
        let mut first = packets.segments.start;
        for equal in packets.due.chunk_by(|a, b| a == b) {
            let due = Some(equal[0]);
            let end = first + u32::try_from(equal.len()).expect("segments of one frame");
            self.push_segments(LogLine { due, ..line }, gso, first..end);
            first = end;
        }
    }

    /// Returns the number of a hop, from 1; 0 for none.
    fn hop_number(&mut self, name: Option<&str>) -> u16 {
        let Some(name) = name else {
            return 0;
        };
        let known = self.hops.iter().position(|hop| hop == name);
        let place = known.unwrap_or_else(|| {
            self.hops.push(name.to_owned());
            self.new_hops.push(name.to_owned());
            self.hops.len() - 1
        });
        u16::try_from(place + 1).unwrap_or(0)
    }

    /// Adds a line for these segments, and a second one if the frame's last segment has another
    /// length.
    fn push_segments(&mut self, line: LogLine, gso: &GsoFrame, segments: Range<u32>) {
        let Range { start, end } = segments;
        let [bytes, last] = [start, end - 1].map(|segment| gso.segment_len(segment));
        let equal = end - start - u32::from(bytes != last);
        for (bytes, count) in [(bytes, equal), (last, end - start - equal)] {
            if count > 0 {
                self.push(LogLine {
                    bytes,
                    count,
                    ..line
                });
            }
        }
    }

    fn push(&mut self, line: LogLine) {
        self.in_batch += u64::from(line.count);
        self.batch.push(line);
        if self.batch.len() == BATCH || self.in_batch >= BATCH_PACKETS {
            self.hand_over();
        }
    }

    /// Hands over lines that have waited long enough by `now`.
    pub(crate) fn follow(&mut self, now: Nanos) {
        if now >= self.handed_over + FOLLOW {
            self.handed_over = now;
            if !self.batch.is_empty() {
                self.hand_over();
            }
        }
    }

    /// Returns the latest time at which [`PacketLogWriter::follow`] must be called next. Without it,
    /// the last lines of a link that has become idle would wait for its next packet.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        (!self.batch.is_empty()).then(|| self.handed_over + FOLLOW)
    }

    fn hand_over(&mut self) {
        let batch = self.take_batch();
        // If no batch fits, the writer's count lacks these lines, which shows the loss. Later lines may
        // have the same hops.
        if let Err(TrySendError::Full(lost) | TrySendError::Disconnected(lost)) =
            self.full.try_send(batch)
        {
            self.new_hops = lost.new_hops;
        }
    }

    /// Writes the last batch, waits for the writer and returns the summary.
    pub(crate) fn finish(mut self) -> PacketLogSummary {
        let rest = self.take_batch();
        // If the writer has ended, it has reported its error itself.
        let _ = self.full.send(rest);
        drop(self.full);
        let kept = match self.writer.join() {
            Ok(kept) => kept,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        PacketLogSummary {
            not_kept: self.before - kept.lines,
            ..kept
        }
    }

    fn take_batch(&mut self) -> LineBatch {
        let empty = self
            .emptied
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let lines = std::mem::replace(&mut self.batch, empty);
        let first = self.before + 1;
        self.before += std::mem::take(&mut self.in_batch);
        LineBatch {
            first,
            lines,
            new_hops: std::mem::take(&mut self.new_hops),
        }
    }
}

/// Runs on the writer's thread until the log is finished or cannot be written.
fn write(
    mut sink: impl Sink,
    to_write: &Receiver<LineBatch>,
    give_back: &Sender<Vec<LogLine>>,
) -> PacketLogSummary {
    let mut kept = PacketLogSummary::default();
    let mut hops: Vec<String> = Vec::new();
    let mut result = sink.begin();
    while result.is_ok()
        && let Ok(batch) = to_write.recv()
    {
        let LineBatch {
            first,
            mut lines,
            new_hops,
        } = batch;
        hops.extend(new_hops);
        let taken = sink.take(first, &lines, &hops);
        result = taken.map(|count| kept.lines += count);
        lines.clear();
        // The packet path does not need the batch after its end.
        let _ = give_back.send(lines);
    }
    let result = result.and_then(|()| sink.finish());
    kept.error = result.err().map(|error| error.to_string());
    kept.flows = sink.flows();
    kept
}

impl LogLine {
    /// Creates a line of one packet, with the length of the whole frame.
    fn of(packets: &ObservedPackets<'_>, verdict: PacketVerdict, departure: Option<Nanos>) -> Self {
        let frame = packets.frame;
        Self {
            bytes: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
            departure,
            changes: packets.changes,
            flow: FiveTuple::of(frame.bytes),
            ..Self::bare(frame.arrival, packets.ingress, verdict)
        }
    }

    /// Creates a line of one packet without further properties.
    fn bare(arrival: Nanos, ingress: Side, verdict: PacketVerdict) -> Self {
        Self {
            count: 1,
            ingress,
            bytes: 0,
            arrival,
            verdict,
            due: None,
            departure: None,
            changes: Changes::NONE,
            hop: 0,
            flow: None,
        }
    }
}

/// Returns the name of the hop with this number, from 1; an empty text for 0.
fn hop_name(hops: &[String], number: u16) -> &str {
    let place = usize::from(number).checked_sub(1);
    let name = place.and_then(|place| hops.get(place));
    name.map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::test_writers::{FullDisk, GatedWriter, SharedBuffer};
    use super::*;

    fn line() -> LogLine {
        LogLine::bare(Nanos(1), Side::A, PacketVerdict::Delivered)
    }

    #[test]
    fn lines_lost_by_a_slow_writer_are_counted_and_leave_a_gap() {
        let written = SharedBuffer::default();
        let (gate, release, blocked) = GatedWriter::new(&written);
        let mut log = PacketLogWriter::to(CsvFile::new(gate)).unwrap();
        blocked.recv().unwrap();
        // The writer is blocked at the header: all batches wait, and the next one finds no room.
        let batches = WAITING + 1;
        (0..batches * BATCH).for_each(|_| log.push(line()));
        drop(release);
        log.push(line());
        let summary = log.finish();
        let lost = BATCH as u64;
        assert_eq!(summary.not_kept, lost);
        assert_eq!(summary.lines, (WAITING * BATCH) as u64 + 1);
        let text = String::from_utf8(written.bytes()).unwrap();
        let numbers: Vec<u64> = text
            .lines()
            .skip(1)
            .map(|row| row.split(',').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(numbers.len() as u64, summary.lines);
        let [.., before, after] = numbers[..] else {
            panic!("{numbers:?}")
        };
        assert_eq!(after - before, lost + 1);
    }

    #[test]
    fn a_full_disk_is_reported_and_missing_packets_are_counted() {
        let mut log = PacketLogWriter::to(CsvFile::new(FullDisk)).unwrap();
        (0..10).for_each(|_| log.push(line()));
        let summary = log.finish();
        assert_eq!((summary.lines, summary.not_kept), (0, 10));
        assert!(summary.error.is_some());
    }
}
