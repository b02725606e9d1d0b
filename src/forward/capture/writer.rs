//! The capture's thread: makes packets of what was taken, puts them in order of time, and writes them as pcapng.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use model::{Nanos, Side};
use netio::{FrameRef, GsoFrame, Spare, TxFrame, clock};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use record::summary::CaptureSummary;

use super::CaptureSpec;
use super::comment::Comment;
use super::tap::{Batch, Taken, Waiting};
use crate::forward::packet_log::WallTime;

/// Bytes that may wait for what arrived before them to be decided; beyond them the file is not in order of time.
const MOST_UNORDERED: usize = 256 << 20;
/// What a packet that waits costs beside its bytes.
const BESIDE: usize = 160;
/// Bytes written at once.
const BUFFER: usize = 256 << 10;
/// Nanoseconds (if_tsresol: a power of 10).
const RESOLUTION: u8 = 9;
/// epb_flags: bits 0 and 1 are the direction, seen from the emulator.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// if_filter: what follows is a text in libpcap's words.
const IS_TEXT: u8 = 0;

/// Packets in order, on their way to a file.
pub(super) struct Writer<W: Write> {
    spec: CaptureSpec,
    file: PcapNgWriter<BufWriter<W>>,
    order: BinaryHeap<Reverse<Record>>,
    /// Bytes in it.
    unordered: usize,
    /// How many packets came into it.
    ordered: u64,
    spare: Spare,
    wall: WallTime,
    began: Nanos,
    /// By side, packets handed to the buffer, and those that have left it.
    written: [u64; 2],
    flushed: [u64; 2],
    bytes: u64,
}

/// A packet as it stands in the file at one side.
struct Record {
    at: Nanos,
    /// Of those at one time the first comes first.
    number: u64,
    side: Side,
    packet: Rc<Packet>,
    /// Its bytes, where they are not the packet's.
    changed: Option<Vec<u8>>,
}

struct Packet {
    taken: Taken,
    due: Option<Nanos>,
    bytes: Vec<u8>,
}

/// Why nothing more is written.
enum End {
    Limit,
    Failed(PcapError),
}

/// Writes until the capture ends, by itself or by a limit, or cannot be written; what was.
pub(super) fn write(
    spec: CaptureSpec,
    sink: impl Write,
    to_write: &Receiver<Batch>,
    give_back: &Sender<Batch>,
    waiting: &Waiting,
) -> CaptureSummary {
    let mut seen = [0; 2];
    let mut summary = CaptureSummary::default();
    match Writer::begin(spec, sink) {
        Ok(mut writer) => {
            let mut result = writer.take_all(to_write, give_back, waiting, &mut seen);
            if !matches!(result, Err(End::Failed(_))) {
                result = writer.finish(seen).and(result);
            }
            [summary.a, summary.b] = writer.flushed;
            summary.error = error_of(result);
        }
        Err(error) => summary.error = error_of(Err(error)),
    }
    // The sink is gone; what still comes is counted.
    for batch in to_write {
        waiting.taken();
        seen = batch.seen;
    }
    summary.not_kept = (seen[0] + seen[1]).saturating_sub(summary.a + summary.b);
    summary
}

fn error_of(result: Result<(), End>) -> Option<String> {
    match result {
        Ok(()) => None,
        Err(End::Limit) => Some("the limit was reached".to_owned()),
        Err(End::Failed(PcapError::IoError(error))) => Some(error.to_string()),
        Err(End::Failed(error)) => Some(error.to_string()),
    }
}

impl<W: Write> Writer<W> {
    fn begin(spec: CaptureSpec, sink: W) -> Result<Self, End> {
        let program = concat!("farwire ", env!("CARGO_PKG_VERSION"));
        let header = SectionHeaderBlock {
            // The library writes times of statistics with the upper half first.
            endianness: Endianness::Big,
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..SectionHeaderBlock::default()
        };
        let sink = BufWriter::with_capacity(BUFFER, sink);
        let mut file = PcapNgWriter::with_section_header(sink, header)?;
        let mut filter = vec![IS_TEXT];
        filter.extend_from_slice(spec.filter.to_string().as_bytes());
        for (name, end) in ["a", "b"].into_iter().zip(&spec.ends) {
            let mut options = vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfDescription(end.into()),
                InterfaceDescriptionOption::IfTsResol(RESOLUTION),
            ];
            if filter.len() > 1 {
                let filter = filter.as_slice().into();
                options.push(InterfaceDescriptionOption::IfFilter(filter));
            }
            file.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: spec.snaplen,
                options,
            })?;
        }
        Ok(Self {
            spec,
            file,
            order: BinaryHeap::new(),
            unordered: 0,
            ordered: 0,
            spare: Spare::default(),
            wall: WallTime::now(),
            began: clock::now(),
            written: [0; 2],
            flushed: [0; 2],
            bytes: 0,
        })
    }

    fn take_all(
        &mut self,
        to_write: &Receiver<Batch>,
        give_back: &Sender<Batch>,
        waiting: &Waiting,
        seen: &mut [u64; 2],
    ) -> Result<(), End> {
        for mut batch in to_write {
            waiting.taken();
            *seen = batch.seen;
            self.wall = WallTime::now();
            self.take(&batch);
            self.release(batch.until)?;
            batch.clear();
            // After the end nobody needs it.
            let _ = give_back.send(batch);
        }
        self.release(Nanos(u64::MAX))
    }

    fn take(&mut self, batch: &Batch) {
        let (mut bytes, mut due) = (batch.bytes.as_slice(), batch.due.as_slice());
        for taken in &batch.frames {
            let (of_frame, rest) = bytes.split_at(taken.bytes);
            let (due_of_frame, rest_due) = due.split_at(taken.due);
            (bytes, due) = (rest, rest_due);
            self.take_apart(taken, of_frame, due_of_frame);
        }
    }

    /// Puts each packet of a frame in order.
    fn take_apart(&mut self, taken: &Taken, bytes: &[u8], due: &[Nanos]) {
        let frame = FrameRef {
            arrival: taken.arrival,
            offload: taken.offload,
            vlan: None,
            bytes,
        };
        let Ok(gso) = GsoFrame::of(frame) else {
            unreachable!("it was a part of a frame that could be taken apart");
        };
        for segment in 0..gso.segments() {
            let mut part = gso.part(frame, segment..segment + 1, &mut self.spare);
            part.complete_checksum();
            let packet = Packet {
                taken: *taken,
                due: due.get(segment as usize).copied(),
                bytes: [part.head.bytes(), &part.body].concat(),
            };
            self.spare.take_back(part);
            self.put_in_order(Rc::new(packet));
        }
    }

    fn put_in_order(&mut self, packet: Rc<Packet>) {
        let Taken {
            arrival,
            ingress,
            fate,
            at,
            ..
        } = packet.taken;
        let egress = ingress.other();
        if at[ingress.index()] {
            self.push(arrival, ingress, Rc::clone(&packet), None);
        }
        if let Some(departure) = fate.departure.filter(|_| at[egress.index()]) {
            let edit = fate.changes.edit();
            let is_changed = fate.changes.is_marked || edit.is_some();
            let changed = is_changed.then(|| {
                let mut frame = TxFrame::from(packet.bytes.clone());
                frame.change(fate.changes.is_marked, edit);
                [frame.head.bytes(), &frame.body].concat()
            });
            self.push(departure, egress, packet, changed);
        }
    }

    fn push(&mut self, at: Nanos, side: Side, packet: Rc<Packet>, changed: Option<Vec<u8>>) {
        let record = Record {
            at,
            number: self.ordered,
            side,
            packet,
            changed,
        };
        self.ordered += 1;
        self.unordered += record.cost();
        self.order.push(Reverse(record));
    }

    /// Writes what happened before `until`, and what there is no room for.
    fn release(&mut self, until: Nanos) -> Result<(), End> {
        while let Some(Reverse(first)) = self.order.peek()
            && (first.at < until || self.unordered > MOST_UNORDERED)
        {
            let Some(Reverse(record)) = self.order.pop() else {
                break;
            };
            self.unordered -= record.cost();
            self.write(&record)?;
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), End> {
        self.file.get_mut().flush()?;
        self.flushed = self.written;
        Ok(())
    }

    fn write(&mut self, record: &Record) -> Result<(), End> {
        if self.spec.most_bytes.is_some_and(|most| self.bytes >= most) {
            return Err(End::Limit);
        }
        let Packet { taken, due, bytes } = &*record.packet;
        let bytes = record.changed.as_deref().unwrap_or(bytes);
        let kept = match self.spec.snaplen as usize {
            0 => bytes,
            most => &bytes[..bytes.len().min(most)],
        };
        let direction = if record.side == taken.ingress {
            INBOUND
        } else {
            OUTBOUND
        };
        let comment = Comment { taken, due: *due }.to_string();
        let written = self.file.write_pcapng_block(EnhancedPacketBlock {
            interface_id: number_of(record.side),
            timestamp: Duration::from_nanos(self.wall.of(record.at)),
            original_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(kept),
            options: vec![
                EnhancedPacketOption::Flags(direction),
                EnhancedPacketOption::Comment(comment.into()),
            ],
        })?;
        self.bytes += written as u64;
        self.written[record.side.index()] += 1;
        Ok(())
    }

    /// Says at the end of the file how many packets are missing in it.
    fn finish(&mut self, seen: [u64; 2]) -> Result<(), End> {
        let [began, now] = [self.began, clock::now()].map(|at| self.wall.of(at));
        for side in [Side::A, Side::B] {
            let (all, kept) = (seen[side.index()], self.written[side.index()]);
            self.file.write_pcapng_block(InterfaceStatisticsBlock {
                interface_id: number_of(side),
                timestamp: now,
                options: vec![
                    InterfaceStatisticsOption::IsbStartTime(began),
                    InterfaceStatisticsOption::IsbEndTime(now),
                    InterfaceStatisticsOption::IsbIfRecv(all),
                    InterfaceStatisticsOption::IsbIfDrop(all.saturating_sub(kept)),
                ],
            })?;
        }
        self.flush()
    }
}

/// Of an interface's block.
fn number_of(side: Side) -> u32 {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

impl Record {
    fn cost(&self) -> usize {
        let bytes = self.changed.as_ref().unwrap_or(&self.packet.bytes);
        BESIDE + bytes.len()
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Record {}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl From<PcapError> for End {
    fn from(error: PcapError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Failed(PcapError::IoError(error))
    }
}
