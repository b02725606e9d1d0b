//! A port on a real interface: an `AF_PACKET` socket with a receive ring and virtio headers.
//!
//! `TPACKET_V2` shows a frame at once (V3 holds a block for up to a millisecond), works without root in a
//! user namespace and is not bound by `rmem_max`. `PACKET_VNET_HDR` makes the kernel hand over and take
//! whole GSO frames (net/packet/af_packet.c).

mod ring;
mod socket;
mod vnet;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use model::Nanos;

use crate::clock::{self, StampConverter};
use crate::port::{Capabilities, MAX_HEAD, Port, Received, TxFrame};
use ring::Ring;
pub use ring::Slot;
pub(crate) use vnet::read as virtio_header;

/// Frames a call of `sendmmsg`: enough to hide its cost, few enough that the last leaves soon after the first.
const BATCH: usize = 32;

/// Opening a port failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such interface in this network namespace.
    #[error("interface {0}: no such interface here")]
    NoInterface(String),
    /// The privilege to open packet sockets is missing.
    #[error("interface {0}: opening a packet socket needs CAP_NET_RAW")]
    NotPermitted(String),
    /// A call failed.
    #[error("interface {interface}: {call}: {source}")]
    Call {
        /// The interface.
        interface: String,
        /// What was attempted.
        call: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// A packet socket on one interface. Promiscuous mode belongs to the socket and ends with it.
#[derive(Debug)]
pub struct AfPacket {
    socket: OwnedFd,
    ring: Ring,
    /// The virtio headers of one call.
    headers: Vec<[u8; vnet::LEN]>,
    stamps: StampConverter,
    last_empty: Nanos,
    /// The latest arrival given out.
    latest: Nanos,
    missed: u64,
}

impl AfPacket {
    /// Opens `interface` of the calling thread's network namespace with room for `slots` frames of up to
    /// 64 KiB each, rounded up to what the ring's blocks hold.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(interface: &str, slots: usize) -> Result<Self, OpenError> {
        let index = socket::interface_index(interface)?;
        let call = |call| {
            move |source| OpenError::Call {
                interface: interface.to_owned(),
                call,
                source,
            }
        };
        let socket = socket::open().map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => OpenError::NotPermitted(interface.to_owned()),
            _ => call("opening a packet socket")(e),
        })?;
        socket::configure(&socket).map_err(call("switching on virtio headers"))?;
        let ring = Ring::map(&socket, slots).map_err(call("mapping the receive ring"))?;
        socket::bind(&socket, index).map_err(call("binding the packet socket"))?;
        socket::promiscuous(&socket, index).map_err(call("entering promiscuous mode"))?;
        let now = clock::now();
        Ok(Self {
            socket,
            ring,
            headers: Vec::new(),
            stamps: StampConverter::sample(now),
            last_empty: now,
            latest: Nanos::ZERO,
            missed: 0,
        })
    }

    /// Bytes of memory that the receive ring takes.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.ring.bytes()
    }
}

impl AsFd for AfPacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AfPacket {
    /// One `sendmmsg`; how many frames it took.
    fn send_batch(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.headers.clear();
        let headers = frames.iter().map(|f| vnet::write(&f.offload, head_len(f)));
        self.headers.extend(headers);
        let mut parts = [[EMPTY; 3]; BATCH];
        for ((part, frame), header) in parts.iter_mut().zip(frames).zip(&self.headers) {
            *part = [slice(header), slice(frame.head.bytes()), slice(&frame.body)];
        }
        // SAFETY: an all-zero mmsghdr is valid: no name, no control data, no parts.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            message.msg_hdr.msg_iov = part.as_mut_ptr();
            message.msg_hdr.msg_iovlen = part.len();
        }
        let count = libc::c_uint::try_from(frames.len()).expect("at most a batch");
        // SAFETY: the first `count` messages point at parts that point at bytes borrowed for this call.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Port for AfPacket {
    type Lent = Slot;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: true,
            checksum: true,
            vlan: true,
            arrival_stamp: true,
            largest_frame: ring::LARGEST_FRAME,
        }
    }

    fn refresh(&mut self, now: Nanos) {
        if self.ring.next_stamp().is_none() {
            self.last_empty = now;
        } else {
            self.stamps = StampConverter::sample(self.last_empty);
        }
    }

    fn arrival(&mut self) -> Option<Nanos> {
        let stamp = self.ring.next_stamp()?;
        if self.stamps.precedes(stamp) {
            // It came after the last look: by the old readings it would count as older than it is.
            self.stamps = StampConverter::sample(self.last_empty);
        }
        // Two conversions differ by what lay between the readings of the clocks; frames stay in order.
        Some(self.stamps.convert(stamp).max(self.latest))
    }

    fn take(&mut self) -> Option<Received<Slot>> {
        self.latest = self.arrival()?;
        self.ring.take(self.latest)
    }

    fn recall(&mut self) -> Option<usize> {
        self.ring.recall()
    }

    fn recall_to_wait(&self) -> Option<usize> {
        self.ring.recall_newest()
    }

    fn send(&mut self, frames: &[TxFrame<'_>], sent: &mut dyn FnMut(usize, io::Result<Nanos>)) {
        let mut before = clock::now();
        for (batch, first) in frames.chunks(BATCH).zip((0..).step_by(BATCH)) {
            let mut done = 0;
            while done < batch.len() {
                match self.send_batch(&batch[done..]) {
                    Ok(took) => {
                        let after = clock::now();
                        for place in 0..took {
                            sent(
                                first + done + place,
                                Ok(left_at(before, after, place, took)),
                            );
                        }
                        done += took;
                        before = after;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => {
                        sent(first + done, Err(e));
                        done += 1;
                    }
                }
            }
        }
    }

    fn missed(&mut self) -> u64 {
        self.missed += u64::from(socket::take_drops(&self.socket));
        self.missed
    }
}

/// When the frame at `place` of `count` that one call sent had left: the call took them one after the other, all of the time
/// between the clock's readings before and after it. Of one frame it is the reading after.
fn left_at(before: Nanos, after: Nanos, place: usize, count: usize) -> Nanos {
    let took = after.0.saturating_sub(before.0);
    Nanos(before.0 + took * (place as u64 + 1) / count as u64)
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

fn slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// How many bytes the kernel should keep together at the front: the headers as far as they are known.
fn head_len(frame: &TxFrame<'_>) -> u16 {
    let known = frame
        .offload
        .checksum
        .map_or(64, |c| usize::from(c.start) + 60);
    let len = frame.head.bytes().len() + frame.body.len();
    u16::try_from(known.min(MAX_HEAD).min(len)).expect("at most MAX_HEAD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_has_the_send_call_and_the_place_in_it() {
        let at = |place, count| left_at(Nanos(1_000), Nanos(9_000), place, count).0;
        assert_eq!(at(0, 1), 9_000);
        assert_eq!(
            [0, 1, 2, 3].map(|place| at(place, 4)),
            [3_000, 5_000, 7_000, 9_000]
        );
    }
}
