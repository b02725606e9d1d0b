//! The packet log: what became of every packet, taken beside the packet path and kept by a thread of its own, in a file or summed up by flow.
//! Packets of one train, of which that is mostly the same, are one line with a count until they are written.
//!
//! Between the two stands a buffer of bounded size. What finds it full is not kept, but it has its number, so that a gap
//! in the numbers shows it, and its count stands in the summary.

mod csv;
mod flows;

use record::crossing::CrossedFlow;
use record::summary::PacketLogSummary;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use model::{DropCause, Nanos, Side};
use netio::{Flow, FrameRef, GsoFrame};
use strum::IntoStaticStr;

use self::csv::CsvFile;
pub(in crate::forward) use self::csv::WallTime;
use self::flows::Flows;
use super::Loss;
use super::departures::Changes;
use instruments::output;

/// Lines handed over at once, and how many such batches may wait: 14 MB, more than a tenth of a second of a million
/// packets a second that are each another frame's.
const BATCH: usize = 2048;
const WAITING: usize = 64;
const _: () = assert!(size_of::<LogLine>() <= 104);

/// Lines of so many packets are handed over, too: what waits at the end is soon written.
const BATCH_PACKETS: u64 = 16 << 10;

/// A batch that is not full waits so long, so that the file can be followed.
const FOLLOW: Nanos = Nanos(200_000_000);

/// What became of one packet, or of neighbours of which it is the same in everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLine {
    /// How many packets; each has a number, and a row in a file.
    pub(crate) count: u32,
    /// Where it came in.
    pub(crate) ingress: Side,
    /// L2 without FCS; 0 where the kernel did not say it.
    pub(crate) bytes: u32,
    /// The kernel's stamp.
    pub(crate) arrival: Nanos,
    /// What became of it.
    pub(crate) verdict: PacketVerdict,
    /// When it was to leave; none if it was not to.
    pub(crate) due: Option<Nanos>,
    /// When it was handed to the kernel, if it was.
    pub(crate) departure: Option<Nanos>,
    /// In what it differs from the packet that came.
    pub(crate) changes: Changes,
    /// Whose it is, where it is IP.
    pub(crate) flow: Option<Flow>,
}

/// What became of a packet: the keys of the link's summary, and the causes for which the emulator itself loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum PacketVerdict {
    /// The egress interface took it.
    Delivered,
    /// Dropped by the emulated network; its name is the cause's.
    Dropped(DropCause),
    /// On its way when the emulator stopped.
    HeldAtEnd,
    /// ARP, discovery and the like: passed at once.
    LinkControl,
    /// The emulator's memory limit was reached.
    MemoryLimit,
    /// A GSO frame that cannot be taken apart: one line for all of it.
    UnsupportedGso,
    /// A frame longer than the receive ring's slots.
    FrameTooLong,
    /// The egress interface refused it.
    SendFailed,
}

/// Where lines are to be kept; no thread keeps them yet.
#[derive(Debug)]
pub(crate) enum PacketLog {
    /// As CSV.
    Stdout,
    /// As CSV.
    File(File),
    /// Summed up by flow, and not written.
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
    full: SyncSender<Batch>,
    emptied: Receiver<Vec<LogLine>>,
    writer: JoinHandle<PacketLogSummary>,
}

/// Where lines go.
trait Sink: Send + 'static {
    /// Before the first line.
    fn begin(&mut self) -> io::Result<()>;

    /// Takes lines, their packets numbered from `first` on; how many packets found room.
    fn take(&mut self, first: u64, lines: &[LogLine]) -> io::Result<u64>;

    /// What each flow added up to, where that is kept.
    fn flows(self) -> Vec<CrossedFlow>;
}

/// Lines of consecutive numbers, from `first` on.
struct Batch {
    first: u64,
    lines: Vec<LogLine>,
}

impl PacketLog {
    /// In `path`, in the place of what stood there; `-` is standard output.
    ///
    /// # Errors
    /// It cannot be written; names the file.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if output::is_stdout(path) {
            return Ok(Self::Stdout);
        }
        let file = File::create(path);
        file.map(Self::File)
            .with_context(|| format!("{}: cannot write", path.display()))
    }

    /// Starts its thread.
    ///
    /// # Errors
    /// There is none to be had.
    pub(crate) fn begin(self) -> Result<PacketLogWriter> {
        match self {
            Self::Stdout => PacketLogWriter::to(CsvFile::new(io::stdout())),
            Self::File(file) => PacketLogWriter::to(CsvFile::new(file)),
            Self::ByFlow => PacketLogWriter::to(Flows::default()),
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
            .context("starting the packet log's thread")?;
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

    /// Takes a line.
    pub(crate) fn note(&mut self, line: LogLine) {
        self.in_batch += u64::from(line.count);
        self.batch.push(line);
        if self.batch.len() == BATCH || self.in_batch >= BATCH_PACKETS {
            self.hand_over();
        }
    }

    /// Takes a line of these segments of a frame, which are alike in all but their lengths.
    pub(crate) fn note_segments(&mut self, line: LogLine, gso: &GsoFrame, segments: Range<u32>) {
        let Range { start, end } = segments;
        // All segments but a frame's last are of one length.
        let [bytes, last] = [start, end - 1].map(|segment| gso.segment_len(segment));
        let alike = end - start - u32::from(bytes != last);
        for (bytes, count) in [(bytes, alike), (last, end - start - alike)] {
            if count > 0 {
                self.note(LogLine {
                    bytes,
                    count,
                    ..line
                });
            }
        }
    }

    /// Hands over what has waited for long by `now`.
    pub(crate) fn follow(&mut self, now: Nanos) {
        if !self.batch.is_empty() && now > self.handed_over + FOLLOW {
            self.handed_over = now;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let batch = self.take_batch();
        // What is not taken is missing in the writer's count.
        let _ = self.full.try_send(batch);
    }

    /// Writes what is left; what was kept.
    pub(crate) fn finish(mut self) -> PacketLogSummary {
        let rest = self.take_batch();
        // A writer that has ended says so itself.
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

    fn take_batch(&mut self) -> Batch {
        let empty = self.emptied.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let lines = std::mem::replace(&mut self.batch, empty);
        let first = self.before + 1;
        self.before += std::mem::take(&mut self.in_batch);
        Batch { first, lines }
    }
}

/// The writer's thread: until the log is finished or cannot be written.
fn write(
    mut sink: impl Sink,
    to_write: &Receiver<Batch>,
    give_back: &Sender<Vec<LogLine>>,
) -> PacketLogSummary {
    let mut kept = PacketLogSummary::default();
    let mut result = sink.begin();
    while result.is_ok()
        && let Ok(Batch { first, mut lines }) = to_write.recv()
    {
        result = sink.take(first, &lines).map(|count| kept.lines += count);
        lines.clear();
        // After the end nobody needs it.
        let _ = give_back.send(lines);
    }
    kept.error = result.err().map(|error| error.to_string());
    kept.flows = sink.flows();
    kept
}

impl LogLine {
    /// A line of a frame; the length is the whole frame's until it is said otherwise.
    pub(crate) fn of<'f>(
        frame: impl Into<FrameRef<'f>>,
        ingress: Side,
        verdict: PacketVerdict,
    ) -> Self {
        let frame: FrameRef<'f> = frame.into();
        Self {
            bytes: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
            flow: Flow::of(frame.bytes),
            ..Self::unseen(frame.arrival, ingress, verdict)
        }
    }

    /// A line of a frame that the port could not hand over.
    pub(crate) fn unseen(arrival: Nanos, ingress: Side, verdict: PacketVerdict) -> Self {
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

impl PacketVerdict {
    /// As the file has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dropped(cause) => cause.name(),
            other => other.into(),
        }
    }
}

impl From<DropCause> for PacketVerdict {
    fn from(cause: DropCause) -> Self {
        Self::Dropped(cause)
    }
}

impl From<Loss> for PacketVerdict {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Memory => Self::MemoryLimit,
            Loss::UnsupportedGso => Self::UnsupportedGso,
            Loss::TooLong => Self::FrameTooLong,
            Loss::Send => Self::SendFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what is written, and holds the writer up until it is let go.
    struct Gate {
        text: Arc<Mutex<Vec<u8>>>,
        open: Receiver<()>,
        entered: Sender<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.entered.send(());
            // Open for good once the other end is gone.
            let _ = self.open.recv();
            self.text.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line() -> LogLine {
        LogLine::unseen(Nanos(1), Side::A, PacketVerdict::Delivered)
    }

    #[test]
    fn a_writer_that_falls_behind_loses_lines_that_are_counted_and_leave_a_gap() {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (let_go, open) = channel();
        let (entered, held_up) = channel();
        let gate = Gate {
            text: Arc::clone(&text),
            open,
            entered,
        };
        let mut log = PacketLogWriter::to(CsvFile::new(gate)).unwrap();
        held_up.recv().unwrap();
        // The writer stands at the header: so many batches wait, and the next one finds no room.
        let batches = WAITING + 1;
        (0..batches * BATCH).for_each(|_| log.note(line()));
        drop(let_go);
        log.note(line());
        let summary = log.finish();
        let lost = BATCH as u64;
        assert_eq!(summary.not_kept, lost);
        assert_eq!(summary.lines, (WAITING * BATCH) as u64 + 1);
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
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
        (0..10).for_each(|_| log.note(line()));
        let summary = log.finish();
        assert_eq!((summary.lines, summary.not_kept), (0, 10));
        assert!(summary.error.is_some());
    }

    #[test]
    fn a_loss_of_the_emulators_own_is_named_alike_in_the_file_and_in_the_summary() {
        for loss in Loss::ALL {
            let name = loss.name().replace(' ', "_").to_lowercase();
            assert_eq!(PacketVerdict::from(loss).name(), name);
        }
    }
}
