//! The lines of a trace in a compact form: a few bytes for a line, in memory as long as they are few, else in a file
//! without a name.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::{Nanos, Probability};

use super::line::Line;

/// The number of lines of a block, which are read together.
const BLOCK: u64 = 128;

/// The most bytes that are kept in memory.
const MOST_IN_MEMORY: usize = 8 << 20;

/// The number of times that lines could not be read from a file of many lines.
static FAILED_READS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that this process could not read lines of a long trace back from its temporary file. A
/// link that follows the trace then behaves as if the trace had ended.
pub fn failed_reads() -> u64 {
    FAILED_READS.load(Ordering::Relaxed)
}

/// The lines of a trace, in blocks.
#[derive(Debug)]
pub(crate) struct Packed {
    blocks: Vec<BlockStart>,
    lines: u64,
    data: Data,
}

/// The place of a block: its first byte, and the time of its first line.
#[derive(Clone, Copy, Debug)]
struct BlockStart {
    offset: u64,
    at: Nanos,
}

#[derive(Debug)]
enum Data {
    Memory(Vec<u8>),
    File(File, u64),
}

/// Packs lines one after the other.
#[derive(Debug)]
pub(super) struct Packer {
    packed: Packed,
    block: Vec<u8>,
    before: Before,
    digest: Digest,
}

/// The line before, from which the next one differs.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    line: Line,
    interval: u64,
}

/// The parts of a line that differ from the line before, as bits of its first byte.
mod differs {
    pub(super) const INTERVAL: u8 = 1;
    pub(super) const RATE: u8 = 1 << 1;
    pub(super) const DELAY: u8 = 1 << 2;
    pub(super) const JITTER: u8 = 1 << 3;
    pub(super) const LOSS: u8 = 1 << 4;
    pub(super) const QUEUE: u8 = 1 << 5;
    pub(super) const COPIES: u8 = 1 << 6;
    /// This bit is no difference: it says whether the line stalls.
    pub(super) const STALLED: u8 = 1 << 7;
}

/// The offset and the prime of FNV-1a with 128 bits (Fowler, Noll and Vo).
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A digest of bytes.
#[derive(Debug)]
pub(super) struct Digest(pub(super) u128);

impl Digest {
    /// Returns the digest of no bytes.
    pub(super) fn new() -> Self {
        Self(FNV_OFFSET)
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }
}

impl Packer {
    pub(super) fn new() -> Self {
        Self {
            packed: Packed {
                blocks: Vec::new(),
                lines: 0,
                data: Data::Memory(Vec::new()),
            },
            block: Vec::new(),
            before: Before::default(),
            digest: Digest::new(),
        }
    }

    /// Returns the number of lines so far.
    pub(super) fn lines(&self) -> u64 {
        self.packed.lines
    }

    /// Adds a line, which is not earlier than the line before.
    ///
    /// # Errors
    /// Returns an error if the file for many lines cannot be written.
    pub(super) fn push(&mut self, line: &Line) -> io::Result<()> {
        if self.packed.lines.is_multiple_of(BLOCK) {
            self.flush()?;
            let offset = self.packed.data.len();
            self.packed.blocks.push(BlockStart {
                offset,
                at: line.at,
            });
            self.before = Before {
                line: Line {
                    at: line.at,
                    ..Line::default()
                },
                interval: 0,
            };
        }
        self.before.pack(line, &mut self.block);
        self.packed.lines += 1;
        Ok(())
    }

    /// Returns the packed lines, and a digest of them.
    ///
    /// # Errors
    /// Returns the errors of [`Packer::push`].
    pub(super) fn finish(mut self) -> io::Result<(Packed, u128)> {
        self.flush()?;
        if let Data::Memory(bytes) = &mut self.packed.data {
            bytes.shrink_to_fit();
        }
        self.packed.blocks.shrink_to_fit();
        Ok((self.packed, self.digest.0))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.digest.add(&self.block);
        self.packed.data.add(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

impl Data {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    fn add(&mut self, block: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(bytes) if bytes.len() + block.len() > MOST_IN_MEMORY => {
                let mut file = tempfile::tempfile()?;
                file.write_all(bytes)?;
                file.write_all(block)?;
                *self = Self::File(file, (bytes.len() + block.len()) as u64);
            }
            Self::Memory(bytes) => bytes.extend_from_slice(block),
            Self::File(file, len) => {
                file.write_all(block)?;
                *len += block.len() as u64;
            }
        }
        Ok(())
    }

    /// Reads the bytes from `from` to `to`.
    fn read(&self, from: u64, to: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        match self {
            Self::Memory(bytes) => {
                let block = bytes.get(place(from)?..place(to)?);
                into.extend_from_slice(block.unwrap_or_default());
            }
            Self::File(file, _) => {
                into.resize(place(to - from)?, 0);
                file.read_exact_at(into, from)?;
            }
        }
        Ok(())
    }
}

impl Packed {
    /// Returns the number of lines.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let data = match &self.data {
            Data::Memory(bytes) => bytes.len(),
            Data::File(..) => 0,
        };
        data + self.blocks.len() * size_of::<BlockStart>()
    }

    /// Reads a block into `lines`.
    ///
    /// # Errors
    /// Returns an error of the file of many lines; `lines` is empty then.
    fn read_block(
        &self,
        block: usize,
        bytes: &mut Vec<u8>,
        lines: &mut Vec<Line>,
    ) -> io::Result<()> {
        bytes.clear();
        lines.clear();
        let Some(start) = self.blocks.get(block) else {
            return Ok(());
        };
        let end = self.blocks.get(block + 1);
        let end = end.map_or_else(|| self.data.len(), |next| next.offset);
        self.data.read(start.offset, end, bytes)?;
        let mut before = Before::default();
        before.line.at = start.at;
        let mut rest = &bytes[..];
        while let Some(line) = before.unpack(&mut rest) {
            lines.push(line);
        }
        Ok(())
    }
}

impl Before {
    fn pack(&mut self, line: &Line, into: &mut Vec<u8>) {
        let before = self.line;
        let interval = line.at.0.saturating_sub(before.at.0);
        let parts = [
            (differs::INTERVAL, interval != self.interval),
            (differs::RATE, line.rate != before.rate),
            (differs::DELAY, line.delay != before.delay),
            (differs::JITTER, line.jitter != before.jitter),
            (differs::LOSS, line.loss != before.loss),
            (differs::QUEUE, line.queue != before.queue),
            (
                differs::COPIES,
                (line.copies, line.copies_after) != (before.copies, before.copies_after),
            ),
            (differs::STALLED, line.is_stalled),
        ];
        let mask = parts.into_iter().filter(|(_, is_set)| *is_set);
        let mask = mask.fold(0, |mask, (bit, _)| mask | bit);
        into.push(mask);
        let has = |bit| mask & bit != 0;
        if has(differs::INTERVAL) {
            push_decimal(interval, into);
        }
        if has(differs::RATE) {
            push_decimal(line.rate, into);
        }
        if has(differs::DELAY) {
            push_decimal(line.delay.0, into);
        }
        if has(differs::JITTER) {
            push_decimal(line.jitter.0, into);
        }
        if has(differs::LOSS) {
            push_share(line.loss, into);
        }
        if has(differs::QUEUE) {
            push_decimal(line.queue.into(), into);
        }
        if has(differs::COPIES) {
            push_share(line.copies, into);
            push_decimal(line.copies_after.0, into);
        }
        *self = Self {
            line: *line,
            interval,
        };
    }

    fn unpack(&mut self, rest: &mut &[u8]) -> Option<Line> {
        let (mask, behind) = rest.split_first()?;
        *rest = behind;
        let has = |bit| mask & bit != 0;
        let mut line = self.line;
        if has(differs::INTERVAL) {
            self.interval = decimal(rest)?;
        }
        line.at += Nanos(self.interval);
        if has(differs::RATE) {
            line.rate = decimal(rest)?;
        }
        if has(differs::DELAY) {
            line.delay = Nanos(decimal(rest)?);
        }
        if has(differs::JITTER) {
            line.jitter = Nanos(decimal(rest)?);
        }
        if has(differs::LOSS) {
            line.loss = share(rest)?;
        }
        if has(differs::QUEUE) {
            line.queue = u32::try_from(decimal(rest)?).ok()?;
        }
        if has(differs::COPIES) {
            line.copies = share(rest)?;
            line.copies_after = Nanos(decimal(rest)?);
        }
        line.is_stalled = has(differs::STALLED);
        self.line = line;
        Some(line)
    }
}

/// Writes 7 bits a byte, the low ones first; the highest bit of a byte says that another one follows.
fn push_number(mut number: u64, into: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            return into.push(low);
        }
        into.push(low | 0x80);
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// The exponent that says that the whole number follows.
const RAW: u64 = 15;

/// Writes a number without its zeros at the end, as people write most quantities.
fn push_decimal(number: u64, into: &mut Vec<u8>) {
    let (mut mantissa, mut exponent) = (number, 0);
    while mantissa > 0 && mantissa.is_multiple_of(10) && exponent < RAW - 1 {
        (mantissa, exponent) = (mantissa / 10, exponent + 1);
    }
    if mantissa < 1 << 60 {
        push_number(mantissa << 4 | exponent, into);
    } else {
        push_number(RAW, into);
        push_number(number, into);
    }
}

fn decimal(rest: &mut &[u8]) -> Option<u64> {
    let read = number(rest)?;
    match u32::try_from(read & 0xf).ok()? {
        15 => number(rest),
        exponent => (read >> 4).checked_mul(10_u64.pow(exponent)),
    }
}

/// Writes a probability. The bytes are exchanged, because most percentages have few digits and end with zeros.
fn push_share(share: Probability, into: &mut Vec<u8>) {
    push_number(share.percent().to_bits().swap_bytes(), into);
}

fn share(rest: &mut &[u8]) -> Option<Probability> {
    let percent = f64::from_bits(number(rest)?.swap_bytes());
    Probability::from_percent(percent).ok()
}

/// Reads lines by their numbers. It keeps the block that was read last, so it belongs to one reader.
#[derive(Debug)]
pub(crate) struct Reader {
    packed: Arc<Packed>,
    last: Mutex<LastBlock>,
}

#[derive(Debug, Default)]
struct LastBlock {
    number: Option<u64>,
    bytes: Vec<u8>,
    lines: Vec<Line>,
}

impl Reader {
    pub(crate) fn new(packed: Arc<Packed>) -> Self {
        Self {
            packed,
            last: Mutex::default(),
        }
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> u64 {
        self.packed.lines
    }

    /// Returns line number `index` (from 0).
    pub(crate) fn line(&self, index: u64) -> Option<Line> {
        self.with(index / BLOCK, |lines| {
            lines.get(usize::try_from(index % BLOCK).ok()?).copied()
        })
    }

    /// Returns the time of line number `index` (from 0).
    pub(crate) fn at(&self, index: u64) -> Option<Nanos> {
        self.with(index / BLOCK, |lines| {
            let line = lines.get(usize::try_from(index % BLOCK).ok()?);
            line.map(|line| line.at)
        })
    }

    /// Returns the number of lines up to `time`, inclusive.
    pub(crate) fn count_until(&self, time: Nanos) -> u64 {
        let before = self.packed.blocks.partition_point(|block| block.at <= time);
        let Some(block) = before.checked_sub(1) else {
            return 0;
        };
        let block = block as u64;
        let within = self.with(block, |lines| lines.partition_point(|line| line.at <= time));
        block * BLOCK + within as u64
    }

    fn with<T>(&self, block: u64, read: impl FnOnce(&[Line]) -> T) -> T {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let LastBlock {
            number,
            bytes,
            lines,
        } = &mut *last;
        if *number != Some(block) {
            let place = usize::try_from(block).unwrap_or(usize::MAX);
            let read = self.packed.read_block(place, bytes, lines);
            if read.is_err() {
                FAILED_READS.fetch_add(1, Ordering::Relaxed);
            }
            // A block that could not be read is tried again.
            *number = read.ok().map(|()| block);
        }
        read(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(lines: &[Line]) -> (Packed, u128) {
        let mut packer = Packer::new();
        lines.iter().for_each(|line| packer.push(line).unwrap());
        packer.finish().unwrap()
    }

    #[test]
    fn lines_are_read_as_they_were_packed() {
        let mut random = 1_u64;
        let mut draw = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random >> (random % 60)
        };
        let mut at = 0;
        let line = |_| {
            at += draw() % 3 * 1_000_000;
            Line {
                at: Nanos(at),
                rate: draw(),
                is_stalled: draw() % 3 == 0,
                delay: Nanos(draw() % 7 * 100_000),
                jitter: Nanos(draw()),
                loss: Probability::from_percent((draw() % 1_000) as f64 / 10.0).unwrap(),
                queue: u32::try_from(draw() >> 32).unwrap(),
                copies: Probability::ZERO,
                copies_after: Nanos(draw() % 2),
            }
        };
        let lines: Vec<Line> = (0..1_000).map(line).collect();
        let (all, digest) = packed(&lines);
        let (_, same) = packed(&lines);
        let (_, shorter) = packed(&lines[1..]);
        assert!(digest == same && digest != shorter);
        let reader = Reader::new(Arc::new(all));
        for (index, line) in lines.iter().enumerate().rev() {
            assert_eq!(reader.line(index as u64), Some(*line));
        }
        assert_eq!(reader.line(1_000), None);
        for time in (0..at + 2_000_000).step_by(333_333) {
            let until = lines.partition_point(|line| line.at <= Nanos(time));
            assert_eq!(reader.count_until(Nanos(time)), until as u64, "{time}");
        }
    }

    #[test]
    fn many_lines_are_kept_in_a_file() {
        let line = |index: u64| Line {
            at: Nanos(index * 1_000_001),
            rate: index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..Line::default()
        };
        let lines: Vec<Line> = (0..900_000).map(line).collect();
        let (all, _) = packed(&lines);
        assert!(matches!(all.data, Data::File(..)));
        assert!(all.memory() < 200_000, "{}", all.memory());
        let reader = Reader::new(Arc::new(all));
        for index in [0, 127, 128, 500_000, 899_999] {
            assert_eq!(reader.line(index), Some(line(index)));
        }
        let before = failed_reads();
        let Data::File(file, _) = &reader.packed.data else {
            panic!("it is in a file");
        };
        file.set_len(1_000).unwrap();
        assert_eq!(reader.line(500_000), None);
        assert_eq!(reader.line(500_000), None, "it is tried again");
        assert!(failed_reads() >= before + 2);
    }
}
