//! A receive ring: slots that the kernel fills in order. A slot returns to the kernel when its frame is dropped.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use model::Nanos;

use super::{socket, vnet};
use crate::frame::{Frame, Lent, Vlan};
use crate::port::ReceivedFrame;

/// Bytes that a slot needs beside its frame: the kernel's header, the address (`struct sockaddr_ll`) and the virtio
/// header.
const BESIDE: usize = 128;

const BLOCK: usize = 1 << 20;

/// The length of a ring's slots, and how many of them fit into a block. A slot never crosses the end of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotGeometry {
    len: usize,
    a_block: usize,
}

impl SlotGeometry {
    /// Slots for single packets up to an MTU of 1,500 bytes, including VLAN tags and the headers of a tunnel.
    pub(super) const SMALL: Self = Self::of(2 << 10);
    /// Slots for GSO frames of 64 KiB with their headers and those of a tunnel, and for jumbo frames.
    pub(super) const LARGE: Self = Self::of(68 << 10);

    const fn of(len: usize) -> Self {
        Self {
            len,
            a_block: BLOCK / len,
        }
    }

    /// Returns the length of the longest frame that a slot holds, in bytes.
    pub(super) const fn largest_frame(self) -> usize {
        self.len - BESIDE
    }

    /// Returns the offset of slot `index` in the ring.
    fn offset_of(self, index: usize) -> usize {
        (index / self.a_block) * BLOCK + (index % self.a_block) * self.len
    }
}

/// A shorter frame is cheaper to copy than its slot is to occupy. The receiver copies it immediately, and its slot is
/// never recalled.
pub const COPY_BELOW: usize = 4096;

/// Offsets in `struct tpacket2_hdr` (include/uapi/linux/if_packet.h).
mod field {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const SNAPLEN: usize = 8;
    pub(super) const MAC: usize = 12;
    pub(super) const SEC: usize = 16;
    pub(super) const NSEC: usize = 20;
    pub(super) const VLAN_TCI: usize = 24;
    pub(super) const VLAN_TPID: usize = 26;
    /// Offset within `struct sockaddr_ll`, which follows it.
    pub(super) const INTERFACE: usize = 32 + 4;
}

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// A packet socket and the ring in which it receives.
#[derive(Debug)]
pub(super) struct Ring {
    socket: ManuallyDrop<OwnedFd>,
    map: ManuallyDrop<Arc<Map>>,
    geometry: SlotGeometry,
    /// Number of slots, in the order in which the kernel fills them.
    slots: usize,
    next: usize,
    /// Number of frames taken so far.
    taken: usize,
    /// Numbers of the taken frames that were lent and not recalled since, oldest first. Some of them have already left
    /// their slots.
    lent: VecDeque<usize>,
    /// Number of frames that found the ring full.
    missed: u64,
}

/// The mapped memory of a ring. It exists until the last frame in it is dropped.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the map owns the memory. It is accessed only through slots, each of which has one owner, and the kernel and
// this process pass a slot to each other through its atomic status word.
unsafe impl Send for Map {}
// SAFETY: shared access reads only slots that their owner holds, or the atomic status words.
unsafe impl Sync for Map {}

/// The slot of a frame in the receive ring. It returns to the kernel when it is dropped.
#[derive(Debug)]
pub struct LentSlot {
    map: Arc<Map>,
    /// Number of the slot.
    index: u32,
    at: u32,
    start: u32,
    len: u32,
}

impl Ring {
    /// Requests a ring of at least `slots` slots from the kernel and maps it. It must be called before `bind`, because
    /// frames that arrive earlier would be queued outside the ring.
    pub(super) fn map(socket: OwnedFd, geometry: SlotGeometry, slots: usize) -> io::Result<Self> {
        let blocks = slots.div_ceil(geometry.a_block).max(1);
        let slots = blocks * geometry.a_block;
        let small = |n: usize| libc::c_uint::try_from(n).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: small(BLOCK)?,
            tp_block_nr: small(blocks)?,
            tp_frame_size: small(geometry.len)?,
            tp_frame_nr: small(slots)?,
        };
        socket::set(&socket, libc::PACKET_RX_RING, &request)?;
        let map = Map::new(&socket, blocks * BLOCK)?;
        Ok(Self {
            socket: ManuallyDrop::new(socket),
            map: ManuallyDrop::new(Arc::new(map)),
            geometry,
            slots,
            next: 0,
            taken: 0,
            lent: VecDeque::new(),
            missed: 0,
        })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn bytes(&self) -> usize {
        self.map.len
    }

    /// Returns the number of frames that found the ring full since it was mapped.
    pub(super) fn missed(&mut self) -> u64 {
        self.missed += u64::from(socket::take_drops(&self.socket));
        self.missed
    }

    /// Returns the kernel's timestamp of the next frame, if there is one.
    pub(super) fn next_stamp(&self) -> Option<Nanos> {
        let at = self.geometry.offset_of(self.next);
        let status = self.map.status(at).load(Ordering::Acquire);
        if status & STATUS_USER == 0 || self.map.is_held(at) {
            return None;
        }
        let (sec, nsec) = (
            self.map.u32_at(at + field::SEC),
            self.map.u32_at(at + field::NSEC),
        );
        Some(Nanos(u64::from(sec) * 1_000_000_000 + u64::from(nsec)))
    }

    /// Takes the next frame, if there is one, and returns it with the number of the interface on which it arrived.
    pub(super) fn take(
        &mut self,
        arrival: Nanos,
    ) -> Option<(libc::c_int, ReceivedFrame<LentSlot>)> {
        let (index, at) = (self.next, self.geometry.offset_of(self.next));
        let status = self.map.status(at).load(Ordering::Acquire);
        if status & STATUS_USER == 0 || self.map.is_held(at) {
            return None;
        }
        self.next = (self.next + 1) % self.slots;
        self.taken += 1;
        let map: &Arc<Map> = &self.map;
        let interface = map.u32_at(at + field::INTERFACE).cast_signed();
        let word = |offset: usize| map.u32_at(at + offset) as usize;
        let (len, captured) = (word(field::LEN), word(field::SNAPLEN));
        let start = at + usize::from(map.u16_at(at + field::MAC));
        assert!(
            start >= at + vnet::LEN && start + captured <= at + self.geometry.len,
            "the kernel keeps a frame inside its slot"
        );
        let slot = LentSlot::new(Arc::clone(map), index, at, start, captured);
        if captured < len {
            return Some((interface, ReceivedFrame::Truncated));
        }
        let vlan = vlan(map, at, status);
        let Some(offload) = vnet::read(map.array(start - vnet::LEN)) else {
            return Some((interface, ReceivedFrame::UnsupportedGso));
        };
        if slot.bytes().len() >= COPY_BELOW {
            self.lent.push_back(self.taken - 1);
        }
        let frame = Frame::lent(arrival, offload, vlan, slot);
        Some((interface, ReceivedFrame::Frame(frame)))
    }

    /// Returns the slot of the oldest frame that must leave it. The kernel fills slots in order, and drops frames when
    /// the next slot is still held, no matter how many others are free.
    pub(super) fn recall(&mut self) -> Option<usize> {
        let taken = self.taken;
        let frame = self
            .lent
            .pop_front_if(|frame| *frame + self.slots / 2 < taken)?;
        Some(frame % self.slots)
    }

    /// Returns the slot of the last taken frame, if it was lent: the kernel checks that slot to decide whether the
    /// socket is readable.
    pub(super) fn recall_newest(&self) -> Option<usize> {
        let newest = self.lent.back().filter(|frame| **frame + 1 == self.taken);
        newest.map(|frame| frame % self.slots)
    }
}

impl Drop for Ring {
    /// Closes the socket on a separate thread, because the kernel then waits twice until all processors have left their
    /// present work (`packet_release` in net/packet/af_packet.c). The process ends only after that.
    fn drop(&mut self) {
        // SAFETY: the ring is being dropped, so neither of them is used again.
        let (socket, map) = unsafe {
            (
                ManuallyDrop::take(&mut self.socket),
                ManuallyDrop::take(&mut self.map),
            )
        };
        // If there can be no thread, they are closed here.
        let thread = thread::Builder::new().name("closing".to_owned());
        let _ = thread.spawn(move || drop((map, socket)));
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn vlan(map: &Map, at: usize, status: u32) -> Option<Vlan> {
    if status & STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & STATUS_VLAN_TPID_VALID == 0 {
        0x8100
    } else {
        map.u16_at(at + field::VLAN_TPID)
    };
    Some(Vlan {
        tpid,
        tci: map.u16_at(at + field::VLAN_TCI),
    })
}

/// A bit that this process sets in the status word of a slot whose frame is still held. The kernel does not use a slot
/// while any bit is set.
const STATUS_HELD: u32 = 1 << 28;

impl Map {
    fn new(socket: &OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address of the new mapping of the ring that was just requested, so no other
        // memory is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child process does not need the ring, and copying its page tables would take milliseconds.
        // SAFETY: the range is the new mapping, whose contents are not changed.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?,
            len,
        })
    }

    fn status(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.len);
        // SAFETY: slots begin at multiples of 16 inside the mapping, so the word is in bounds and aligned. The kernel
        // and this process access it atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at + field::STATUS).cast()) }
    }

    fn is_held(&self, at: usize) -> bool {
        self.status(at).load(Ordering::Relaxed) & STATUS_HELD != 0
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.len, "inside the ring");
        // SAFETY: the bytes are in bounds, as asserted. The kernel has handed the slot over, so nobody writes to it.
        unsafe {
            self.base
                .as_ptr()
                .add(at)
                .cast::<[u8; N]>()
                .read_unaligned()
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping, and no slot refers to it any more, because each holds a
        // reference to the map.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl LentSlot {
    /// Creates a frame of `len` bytes at `start`, in the slot that begins at `at`.
    fn new(map: Arc<Map>, index: usize, at: usize, start: usize, len: usize) -> Self {
        map.status(at).fetch_or(STATUS_HELD, Ordering::Relaxed);
        let small = |n: usize| u32::try_from(n).expect("a ring is below 4 GiB");
        Self {
            map,
            index: small(index),
            at: small(at),
            start: small(start),
            len: small(len),
        }
    }
}

impl Lent for LentSlot {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are in bounds, as asserted in `Ring::take`, and the slot belongs to this process until it
        // is dropped.
        unsafe {
            std::slice::from_raw_parts(
                self.map.base.as_ptr().add(self.start as usize),
                self.len as usize,
            )
        }
    }

    fn place(&self) -> usize {
        self.index as usize
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        self.map
            .status(self.at as usize)
            .store(STATUS_KERNEL, Ordering::Release);
    }
}
