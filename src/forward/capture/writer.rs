//! The writer's thread of a capture: splits frames into packets, sorts them by time and writes them
//! as pcapng.

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

/// The bytes that may wait until the outcomes of all earlier packets are known. Beyond this limit,
/// the file is not sorted by time.
const MOST_UNORDERED: usize = 256 << 20;
/// The memory that a waiting packet takes in addition to its bytes.
const PACKET_OVERHEAD: usize = 160;
/// The number of bytes per write.
const BUFFER: usize = 256 << 10;
/// The time resolution is nanoseconds (if_tsresol: a power of 10).
const RESOLUTION: u8 = 9;
/// Bits 0 and 1 of epb_flags are the direction as seen from the emulator.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// The first byte of if_filter: a text in libpcap's syntax follows.
const IS_TEXT: u8 = 0;

/// Sorts packets by time and writes them.
pub(super) struct CaptureWriter<W: Write> {
    spec: CaptureSpec,
    file: PcapNgWriter<BufWriter<W>>,
    order: BinaryHeap<Reverse<OrderedPacket>>,
    /// The size of the packets in `order`, in bytes.
    unordered: usize,
    /// The number of packets put into `order` since the start.
    ordered: u64,
    spare: Spare,
    wall: WallTime,
    began: Nanos,
    /// The packets handed to the buffer, and those of them that were flushed, by side.
    written: [u64; 2],
    flushed: [u64; 2],
    bytes: u64,
}

/// A packet as the file shows it at one side.
struct OrderedPacket {
    at: Nanos,
    /// A sequence number that orders packets with equal times.
    number: u64,
    side: Side,
    packet: Rc<CapturedPacket>,
    /// The packet's bytes at this side, if the link changed them.
    changed: Option<Vec<u8>>,
}

struct CapturedPacket {
    frame: CapturedFrame,
    due: Option<Nanos>,
    bytes: Vec<u8>,
}

/// The reason why nothing more is written.
enum WriteEnd {
    Limit,
    Failed(PcapError),
}

/// Writes until the capture ends, a limit is reached or writing fails. Returns the summary.
pub(super) fn write(
    spec: CaptureSpec,
    sink: impl Write,
    to_write: &Receiver<FrameBatch>,
    give_back: &Sender<FrameBatch>,
    waiting: &WaitingBatches,
) -> CaptureSummary {
    let mut observed = [0; 2];
    let mut summary = CaptureSummary::default();
    match CaptureWriter::begin(spec, sink) {
        Ok(mut writer) => {
            let mut result = writer.take_all(to_write, give_back, waiting, &mut observed);
            if !matches!(result, Err(WriteEnd::Failed(_))) {
                result = writer.finish(observed).and(result);
            }
            [summary.a, summary.b] = writer.flushed;
            summary.error = error_of(result);
        }
        Err(error) => summary.error = error_of(Err(error)),
    }
    // The sink is closed; packets that are still handed over are only counted.
    for batch in to_write {
        waiting.taken();
        observed = batch.observed;
    }
    summary.not_kept = (observed[0] + observed[1]).saturating_sub(summary.a + summary.b);
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
            // The library writes the times of statistics with the upper half first.
            endianness: Endianness::Big,
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..SectionHeaderBlock::default()
        };
        let sink = BufWriter::with_capacity(BUFFER, sink);
        let mut file = PcapNgWriter::with_section_header(sink, header)?;
        let mut filter = vec![IS_TEXT];
        filter.extend_from_slice(spec.filter.for_tcpdump().as_bytes());
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
        observed: &mut [u64; 2],
    ) -> Result<(), WriteEnd> {
        for mut batch in to_write {
            waiting.taken();
            *observed = batch.observed;
            self.wall = WallTime::now();
            self.take(&batch);
            self.release(batch.until)?;
            batch.clear();
            // The tap does not need the batch after its end.
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

    /// Sorts each packet of a frame into the order.
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

    /// Writes the packets from before `until`, and further ones while the waiting packets exceed
    /// the limit.
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

    /// Writes to the end of the file how many packets are missing.
    fn finish(&mut self, observed: [u64; 2]) -> Result<(), WriteEnd> {
        let [began, now] = [self.began, clock::now()].map(|at| self.wall.of(at));
        for side in [Side::A, Side::B] {
            let (all, kept) = (observed[side.index()], self.written[side.index()]);
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

/// Returns the index of a side's interface block.
fn number_of(side: Side) -> u32 {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

impl OrderedPacket {
    fn cost(&self) -> usize {
        let bytes = self.changed.as_ref().unwrap_or(&self.packet.bytes);
        PACKET_OVERHEAD + bytes.len()
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
