//! A port on a real interface: an `AF_PACKET` socket with a receive ring and virtio headers.
//!
//! `TPACKET_V2` shows a frame at once (V3 holds a block for up to a millisecond), works without root in a
//! user namespace and is not bound by `rmem_max`. `PACKET_VNET_HDR` makes the kernel hand over and take
//! whole trains (net/packet/af_packet.c).

mod ring;
mod send;
mod socket;
mod vnet;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::Nanos;

use crate::clock::StampConverter;
use crate::port::{Capabilities, Piece, Port, Received};
use ring::Ring;
pub(crate) use ring::Slot;
use send::Sender;

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
    sender: Sender,
    stamps: StampConverter,
    last_empty: Nanos,
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
        let now = crate::clock::now();
        Ok(Self {
            socket,
            ring,
            sender: Sender::default(),
            stamps: StampConverter::sample(now),
            last_empty: now,
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

impl Port for AfPacket {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: true,
            arrival_stamp: true,
            largest_frame: ring::LARGEST_FRAME,
            // The kernel fills the slots in their order and stops at the first that is not free.
            in_place: self.ring.slots() / 2,
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
        Some(self.stamps.convert(stamp))
    }

    fn take(&mut self) -> Option<Received> {
        let arrival = self.arrival()?;
        self.ring.take(arrival)
    }

    fn send(&mut self, pieces: &[Piece<'_>], failed: &mut dyn FnMut(usize, io::Error)) {
        self.sender.send(&self.socket, pieces, failed);
    }

    fn missed(&mut self) -> u64 {
        self.missed += u64::from(socket::take_drops(&self.socket));
        self.missed
    }
}
