//! The capture's thread: takes frames apart into packets, sorts them by time, and writes them as pcapng.

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
use super::comment::PacketComment;
use super::tap::{CapturedFrame, FrameBatch, WaitingBatches};
use crate::forward::packet_log::WallTime;

/// Bytes that may wait until all packets that arrived earlier are decided. Beyond them, the file is not sorted by time.
const MOST_UNORDERED: usize = 256 << 20;
/// Memory that a waiting packet takes beside its bytes.
const BESIDE: usize = 160;
/// Bytes per write.
const BUFFER: usize = 256 << 10;
/// Nanoseconds (if_tsresol: a power of 10).
const RESOLUTION: u8 = 9;
/// epb_flags: bits 0 and 1 are the direction, seen from the emulator.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// if_filter: a text in libpcap's syntax follows.
const IS_TEXT: u8 = 0;

/// Sorts packets by time and writes them.
pub(super) struct CaptureWriter<W: Write> {
    spec: CaptureSpec,
    file: PcapNgWriter<BufWriter<W>>,
    order: BinaryHeap<Reverse<OrderedPacket>>,
    /// Bytes in `order`.
    unordered: usize,
    /// How many packets were put into `order`.
    ordered: u64,
    spare: Spare,
    wall: WallTime,
    began: Nanos,
    /// By side: packets handed to the buffer, and those of them that were flushed.
    written: [u64; 2],
    flushed: [u64; 2],
    bytes: u64,
}

/// A packet as the file has it at one side.
struct OrderedPacket {
    at: Nanos,
    /// Packets of one time keep the order of these numbers.
    number: u64,
    side: Side,
    packet: Rc<CapturedPacket>,
    /// Its bytes, if they differ from the packet's.
    changed: Option<Vec<u8>>,
}

struct CapturedPacket {
    frame: CapturedFrame,
    due: Option<Nanos>,
    bytes: Vec<u8>,
}

/// Why nothing more is written.
enum WriteEnd {
    Limit,
    Failed(PcapError),
}

/// Writes until the capture ends, a limit is reached or writing fails. Returns what was written.
pub(super) fn write(
    spec: CaptureSpec,
    sink: impl Write,
    to_write: &Receiver<FrameBatch>,
    give_back: &Sender<FrameBatch>,
    waiting: &WaitingBatches,
) -> CaptureSummary {
    let mut seen = [0; 2];
    let mut summary = CaptureSummary::default();
    match CaptureWriter::begin(spec, sink) {
        Ok(mut writer) => {
            let mut result = writer.take_all(to_write, give_back, waiting, &mut seen);
            if !matches!(result, Err(WriteEnd::Failed(_))) {
                result = writer.finish(seen).and(result);
            }
            [summary.a, summary.b] = writer.flushed;
            summary.error = error_of(result);
        }
        Err(error) => summary.error = error_of(Err(error)),
    }
    // The sink is closed; packets that are still handed over are counted.
    for batch in to_write {
        waiting.taken();
        seen = batch.seen;
    }
    summary.not_kept = (seen[0] + seen[1]).saturating_sub(summary.a + summary.b);
    summary
}

fn error_of(result: Result<(), WriteEnd>) -> Option<String> {
    match result {
        Ok(()) => None,
        Err(WriteEnd::Limit) => Some("the size limit was reached".to_owned()),
        Err(WriteEnd::Failed(PcapError::IoError(error))) => Some(error.to_string()),
        Err(WriteEnd::Failed(error)) => Some(error.to_string()),
    }
}

impl<W: Write> CaptureWriter<W> {
    fn begin(spec: CaptureSpec, sink: W) -> Result<Self, WriteEnd> {
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
        to_write: &Receiver<FrameBatch>,
        give_back: &Sender<FrameBatch>,
        waiting: &WaitingBatches,
        seen: &mut [u64; 2],
    ) -> Result<(), WriteEnd> {
        for mut batch in to_write {
            waiting.taken();
            *seen = batch.seen;
            self.wall = WallTime::now();
            self.take(&batch);
            self.release(batch.until)?;
            batch.clear();
            // Nobody needs it after the end.
            let _ = give_back.send(batch);
        }
        self.release(Nanos(u64::MAX))
    }

    fn take(&mut self, batch: &FrameBatch) {
        let (mut bytes, mut due) = (batch.bytes.as_slice(), batch.due.as_slice());
        for frame in &batch.frames {
            let (of_frame, rest) = bytes.split_at(frame.bytes);
            let (due_of_frame, rest_due) = due.split_at(frame.due);
            (bytes, due) = (rest, rest_due);
            self.take_apart(frame, of_frame, due_of_frame);
        }
    }

    /// Puts each packet of a frame in order.
    fn take_apart(&mut self, frame: &CapturedFrame, bytes: &[u8], due: &[Nanos]) {
        let part = FrameRef {
            arrival: frame.arrival,
            offload: frame.offload,
            vlan: None,
            bytes,
        };
        let Ok(gso) = GsoFrame::of(part) else {
            unreachable!("it was a part of a frame that could be taken apart");
        };
        for segment in 0..gso.segments() {
            let mut single = gso.part(part, segment..segment + 1, &mut self.spare);
            single.complete_checksum();
            let packet = CapturedPacket {
                frame: *frame,
                due: due.get(segment as usize).copied(),
                bytes: [single.head.bytes(), &single.body].concat(),
            };
            self.spare.take_back(single);
            self.put_in_order(Rc::new(packet));
        }
    }

    fn put_in_order(&mut self, packet: Rc<CapturedPacket>) {
        let CapturedFrame {
            arrival,
            ingress,
            departure,
            changes,
            at,
            ..
        } = packet.frame;
        let egress = ingress.other();
        if at[ingress.index()] {
            self.push(arrival, ingress, Rc::clone(&packet), None);
        }
        if let Some(departure) = departure.filter(|_| at[egress.index()]) {
            let edit = changes.edit();
            let is_changed = changes.is_marked || edit.is_some();
            let changed = is_changed.then(|| {
                let mut frame = TxFrame::from(packet.bytes.clone());
                frame.change(changes.is_marked, edit);
                [frame.head.bytes(), &frame.body].concat()
            });
            self.push(departure, egress, packet, changed);
        }
    }

    fn push(
        &mut self,
        at: Nanos,
        side: Side,
        packet: Rc<CapturedPacket>,
        changed: Option<Vec<u8>>,
    ) {
        let record = OrderedPacket {
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

    /// Writes packets from before `until`, and those for which there is no room.
    fn release(&mut self, until: Nanos) -> Result<(), WriteEnd> {
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

    fn flush(&mut self) -> Result<(), WriteEnd> {
        self.file.get_mut().flush()?;
        self.flushed = self.written;
        Ok(())
    }

    fn write(&mut self, record: &OrderedPacket) -> Result<(), WriteEnd> {
        if self.spec.most_bytes.is_some_and(|most| self.bytes >= most) {
            return Err(WriteEnd::Limit);
        }
        let CapturedPacket { frame, due, bytes } = &*record.packet;
        let bytes = record.changed.as_deref().unwrap_or(bytes);
        let kept = match self.spec.snaplen as usize {
            0 => bytes,
            most => &bytes[..bytes.len().min(most)],
        };
        let direction = if record.side == frame.ingress {
            INBOUND
        } else {
            OUTBOUND
        };
        let comment = PacketComment { frame, due: *due }.to_string();
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

    /// Records at the end of the file how many packets it lacks.
    fn finish(&mut self, seen: [u64; 2]) -> Result<(), WriteEnd> {
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

/// The number of an interface's block.
fn number_of(side: Side) -> u32 {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

impl OrderedPacket {
    fn cost(&self) -> usize {
        let bytes = self.changed.as_ref().unwrap_or(&self.packet.bytes);
        BESIDE + bytes.len()
    }
}

impl PartialEq for OrderedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for OrderedPacket {}

impl PartialOrd for OrderedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedPacket {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl From<PcapError> for WriteEnd {
    fn from(error: PcapError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for WriteEnd {
    fn from(error: io::Error) -> Self {
        Self::Failed(PcapError::IoError(error))
    }
}
