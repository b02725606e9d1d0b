//! The packet log: what became of every packet. The packet path takes lines; a separate thread writes them to a file or
//! adds them up by flow. Packets of one train that differ in nothing are one line with a count until they are written.
//!
//! Between the two is a buffer of bounded size. Lines that find it full are not kept. Their packets have numbers all the
//! same, so a gap in the numbers shows where they are missing, and the summary counts them.

mod csv;
mod flow_totals;

use record::crossing::CrossedFlow;
use record::summary::PacketLogSummary;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use model::{Nanos, Side};
use netio::{FiveTuple, GsoFrame};

use self::csv::CsvFile;
pub(in crate::forward) use self::csv::WallTime;
use self::flow_totals::FlowTotals;
use super::departures::Changes;
use super::observed::{ObservedPackets, PacketVerdict};
use instruments::output;

/// Lines per batch, and how many batches may wait: 14 MB, which is more than a tenth of a second at a million packets per
/// second, each of another frame.
const BATCH: usize = 2048;
const WAITING: usize = 64;
const _: () = assert!(size_of::<LogLine>() <= 104);

/// A batch is also handed over when it has this many packets, so that little is left to write at the end.
const BATCH_PACKETS: u64 = 16 << 10;

/// A batch that is not full is handed over after this time, so that the file can be followed while it grows.
const FOLLOW: Nanos = Nanos(200_000_000);

/// What became of one packet, or of neighbours that differ in nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLine {
    /// How many packets. Each has a number, and a row in a file.
    pub(crate) count: u32,
    /// The end of the link at which they arrived.
    pub(crate) ingress: Side,
    /// L2 bytes of each, without FCS; 0 if the kernel did not report them.
    pub(crate) bytes: u32,
    /// The kernel's time stamp.
    pub(crate) arrival: Nanos,
    /// What became of them.
    pub(crate) verdict: PacketVerdict,
    /// When they were due to leave; `None` if they never were.
    pub(crate) due: Option<Nanos>,
    /// When they were handed to the kernel, if they were.
    pub(crate) departure: Option<Nanos>,
    /// How they differ from the packets that arrived.
    pub(crate) changes: Changes,
    /// The flow of IP packets.
    pub(crate) flow: Option<FiveTuple>,
}

/// Where lines are to be kept, before the log begins.
#[derive(Debug)]
pub(crate) enum PacketLog {
    /// As CSV.
    Stdout,
    /// As CSV.
    File(File),
    /// Added up by flow, and not written.
    ByFlow,
}

/// Takes lines without ever waiting.
#[derive(Debug)]
pub(crate) struct PacketLogWriter {
    batch: Vec<LogLine>,
    /// Packets in the batch, and in all batches before it.
    in_batch: u64,
    before: u64,
    handed_over: Nanos,
    full: SyncSender<LineBatch>,
    emptied: Receiver<Vec<LogLine>>,
    writer: JoinHandle<PacketLogSummary>,
}

/// Where lines go.
trait Sink: Send + 'static {
    /// Before the first line.
    fn begin(&mut self) -> io::Result<()>;

    /// Takes lines whose packets are numbered from `first` on. Returns how many packets it kept.
    fn take(&mut self, first: u64, lines: &[LogLine]) -> io::Result<u64>;

    /// The totals of each flow, if this sink adds them up.
    fn flows(self) -> Vec<CrossedFlow>;
}

/// Lines whose packets have consecutive numbers, from `first` on.
struct LineBatch {
    first: u64,
    lines: Vec<LogLine>,
}

impl PacketLog {
    /// A log in `path`, which is overwritten; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written; the error names it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if output::is_stdout(path) {
            return Ok(Self::Stdout);
        }
        let file = File::create(path);
        file.map(Self::File)
            .with_context(|| format!("{}: cannot write", path.display()))
    }

    /// Starts the thread that writes the log.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn begin(self) -> Result<PacketLogWriter> {
        match self {
            Self::Stdout => PacketLogWriter::to(CsvFile::new(io::stdout())),
            Self::File(file) => PacketLogWriter::to(CsvFile::new(file)),
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
            full,
            emptied,
            writer,
        })
    }

    /// Notes a line for these packets, or several if their lengths or due times differ.
    pub(crate) fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        departure: Option<Nanos>,
    ) {
        let line = LogLine::of(packets, verdict, departure);
        let Some(gso) = packets.gso else {
            return self.push(line);
        };
        if packets.due.is_empty() {
            return self.push_segments(line, gso, packets.segments.clone());
        }
        let mut first = packets.segments.start;
        for alike in packets.due.chunk_by(|a, b| a == b) {
            let due = Some(alike[0]);
            let end = first + u32::try_from(alike.len()).expect("segments of one frame");
            self.push_segments(LogLine { due, ..line }, gso, first..end);
            first = end;
        }
    }

    /// Adds a line for these segments, which differ in nothing but the length of the frame's last one.
    fn push_segments(&mut self, line: LogLine, gso: &GsoFrame, segments: Range<u32>) {
        let Range { start, end } = segments;
        let [bytes, last] = [start, end - 1].map(|segment| gso.segment_len(segment));
        let alike = end - start - u32::from(bytes != last);
        for (bytes, count) in [(bytes, alike), (last, end - start - alike)] {
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

    /// Hands over a batch that has waited long enough by `now`.
    pub(crate) fn follow(&mut self, now: Nanos) {
        if !self.batch.is_empty() && now > self.handed_over + FOLLOW {
            self.handed_over = now;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let batch = self.take_batch();
        // A batch that finds no room is missing in the writer's count.
        let _ = self.full.try_send(batch);
    }

    /// Writes what is left. Returns what was kept.
    pub(crate) fn finish(mut self) -> PacketLogSummary {
        let rest = self.take_batch();
        // A writer that has ended reports its error itself.
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
        let empty = self.emptied.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let lines = std::mem::replace(&mut self.batch, empty);
        let first = self.before + 1;
        self.before += std::mem::take(&mut self.in_batch);
        LineBatch { first, lines }
    }
}

/// Runs on the writer's thread until the log is finished or cannot be written.
fn write(
    mut sink: impl Sink,
    to_write: &Receiver<LineBatch>,
    give_back: &Sender<Vec<LogLine>>,
) -> PacketLogSummary {
    let mut kept = PacketLogSummary::default();
    let mut result = sink.begin();
    while result.is_ok()
        && let Ok(LineBatch { first, mut lines }) = to_write.recv()
    {
        result = sink.take(first, &lines).map(|count| kept.lines += count);
        lines.clear();
        // Nobody needs it after the end.
        let _ = give_back.send(lines);
    }
    kept.error = result.err().map(|error| error.to_string());
    kept.flows = sink.flows();
    kept
}

impl LogLine {
    /// A line of one packet, with the length of the whole frame.
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

    /// A line of one packet of which nothing else is known.
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
            flow: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_writers::{Full, Gate, Written};
    use super::*;

    fn line() -> LogLine {
        LogLine::bare(Nanos(1), Side::A, PacketVerdict::Delivered)
    }

    #[test]
    fn a_writer_that_falls_behind_loses_lines_that_are_counted_and_leave_a_gap() {
        let written = Written::default();
        let (gate, let_go, held_up) = Gate::new(&written);
        let mut log = PacketLogWriter::to(CsvFile::new(gate)).unwrap();
        held_up.recv().unwrap();
        // The writer is held up at the header: all batches wait, and the next one finds no room.
        let batches = WAITING + 1;
        (0..batches * BATCH).for_each(|_| log.push(line()));
        drop(let_go);
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
    fn a_disk_that_is_full_is_said_and_what_is_missing_is_counted() {
        let mut log = PacketLogWriter::to(CsvFile::new(Full)).unwrap();
        (0..10).for_each(|_| log.push(line()));
        let summary = log.finish();
        assert_eq!((summary.lines, summary.not_kept), (0, 10));
        assert!(summary.error.is_some());
    }
}
