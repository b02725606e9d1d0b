//! Ports on real interfaces: two `AF_PACKET` sockets with receive rings and virtio headers, for one interface or for
//! many.
//!
//! The sockets of many interfaces are bound to none of them: they receive from the whole namespace, a filter skips
//! frames of other interfaces, and the address beside each frame says where it arrived. Therefore a port needs no
//! memory for itself.
//!
//! One ring has many small slots for single packets, the other has long ones for GSO frames. With slots of one length
//! there would be too few of them for single packets, or they would take gigabytes. A filter on the length decides
//! which socket receives a frame.
//!
//! `TPACKET_V2` shows a frame immediately (V3 holds a block for up to a millisecond), works without root in a user
//! namespace, and is not limited by `rmem_max`. With `PACKET_VNET_HDR` the kernel passes and accepts whole GSO frames
//! (net/packet/af_packet.c).

mod egress;
mod filter;
mod interfaces;
mod join;
mod ring;
mod socket;
mod tunnel_out;
mod vnet;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use arrayvec::ArrayVec;
use model::Nanos;

use crate::clock::{self, StampConverter};
use crate::gso;
use crate::port::{Capabilities, MAX_HEAD, Missed, PortSet, ReceivedFrame, SendTimes, TxFrame};
use crate::side_by_side;
use crate::socket_option;
use crate::wait::Wakes;
use egress::Egress;
use filter::FrameLengths;
use interfaces::Interfaces;
pub use ring::{COPY_BELOW, LentSlot};
use ring::{Ring, SlotGeometry};
use tunnel_out::TunnelOut;
pub use tunnel_out::TunnelOutError;
pub(crate) use vnet::read as virtio_header;

/// Largest number of frames per call of `sendmmsg`: enough to hide its cost, and few enough that the last frame leaves
/// soon after the first.
const BATCH: usize = 32;

/// Error when opening a port.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface in this network namespace.
    #[error("interface {0}: there is no such interface")]
    NoInterface(String),
    /// The privilege to open packet sockets is missing.
    #[error("interface {0}: opening a packet socket needs CAP_NET_RAW")]
    NotPermitted(String),
    /// A system call failed.
    #[error("interface {interface}: {call}: {source}")]
    Call {
        /// The interface.
        interface: String,
        /// The operation.
        call: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Least number of frames for which the receive rings of a set have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSlots {
    /// Frames of up to 1,920 bytes; each slot takes 2 KiB.
    pub small: usize,
    /// Longer frames, including GSO frames of 64 KiB; each slot takes 68 KiB.
    pub large: usize,
}

/// Packet sockets on one interface or on several. Promiscuous mode belongs to the sockets and ends when they are
/// closed.
#[derive(Debug)]
pub struct AfPacket {
    /// The rings of small and of large frames. The socket of the first one also sends.
    rings: [Ring; 2],
    interfaces: Interfaces,
    /// The way out for whole trains of tunnels.
    tunnels: Option<TunnelOut>,
    /// Number of trains that earlier ways out refused.
    refused: u64,
    stamps: StampConverter,
    last_empty: Nanos,
    /// The latest arrival time that was returned.
    latest: Nanos,
    /// Whether the kernel accepts GSO frames of datagrams.
    joins: bool,
}

const SMALL: usize = 0;
const LARGE: usize = 1;

impl AfPacket {
    /// Opens `interface` in the network namespace of the calling thread as port 0. The rings have room for at least as
    /// many frames as `slots` says.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(interface: &str, slots: RingSlots) -> Result<Self, OpenError> {
        let index = socket::interface_index(interface)?;
        Self::on(Interfaces::one(index), &[interface], slots)
    }

    /// Opens both `interfaces` in the network namespace of the calling thread, each as port 0 of a separate set. It
    /// takes as long as [`AfPacket::open`] for one of them.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_pair(interfaces: [&str; 2], slots: RingSlots) -> Result<[Self; 2], OpenError> {
        let [a, b] = interfaces;
        // The kernel waits for all processors for each ring (`synchronize_net` in net/packet/af_packet.c).
        let (a, b) = side_by_side::both(|| Self::open(a, slots), || Self::open(b, slots));
        Ok([a?, b?])
    }

    /// Opens all `interfaces` in the network namespace of the calling thread, in the order of the ports, with shared
    /// rings.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_all(interfaces: &[&str], slots: RingSlots) -> Result<Self, OpenError> {
        let indices = interfaces.iter().map(|name| socket::interface_index(name));
        let all = Interfaces::sharing(indices.collect::<Result<_, _>>()?);
        Self::on(all, interfaces, slots)
    }

    fn on(interfaces: Interfaces, names: &[&str], slots: RingSlots) -> Result<Self, OpenError> {
        let first = names.first().copied().unwrap_or_default();
        let [small, large] = Self::takes();
        let (small, large) = side_by_side::both(
            || open(first, SlotGeometry::SMALL, slots.small, small),
            || open(first, SlotGeometry::LARGE, slots.large, large),
        );
        let now = clock::now();
        let mut opened = Self {
            rings: [small?, large?],
            interfaces,
            tunnels: None,
            refused: 0,
            stamps: StampConverter::sample(now),
            last_empty: now,
            latest: Nanos::ZERO,
            joins: gso::kernel_takes_udp_gso(),
        };
        let bound = opened.listen();
        bound.map_err(failed(first, "cannot bind the packet socket"))?;
        for (port, name) in names.iter().enumerate() {
            let entered = opened.enter_promiscuous_mode(port);
            entered.map_err(failed(name, "cannot enter promiscuous mode"))?;
        }
        Ok(opened)
    }

    /// Returns the frames that each of the two sockets receives.
    fn takes() -> [FrameLengths; 2] {
        let longest = SlotGeometry::SMALL.largest_frame();
        [FrameLengths::UpTo(longest), FrameLengths::Above(longest)]
    }

    /// Starts to receive from the interfaces of the set.
    fn listen(&mut self) -> io::Result<()> {
        let ranges = self.interfaces.ranges();
        for (ring, takes) in self.rings.iter().zip(Self::takes()) {
            filter::attach(ring.socket(), takes, &ranges)?;
            socket::bind(ring.socket(), self.interfaces.bound_to())?;
        }
        Ok(())
    }

    /// Starts promiscuous mode on the interface of `port`, in which frames for other addresses are received, too.
    fn enter_promiscuous_mode(&mut self, port: usize) -> io::Result<()> {
        socket::promiscuous(self.rings[SMALL].socket(), self.interfaces.of_port(port))
    }

    /// Sends whole trains of UDP tunnels by the only port as such ([`Capabilities::tunnel_gso`]), until the port gets
    /// another interface than `interface`. Otherwise they are sent as trains of the tunnel's datagrams.
    ///
    /// # Errors
    /// See [`TunnelOutError`]; the port is then unchanged.
    pub fn take_tunnels(&mut self, interface: &str) -> Result<(), TunnelOutError> {
        self.tunnels = Some(TunnelOut::open(interface)?);
        Ok(())
    }

    /// Returns the bytes of memory of the receive rings.
    pub fn ring_bytes(&self) -> usize {
        self.rings.iter().map(Ring::bytes).sum()
    }

    /// Returns the ring whose next frame arrived first, and the timestamp of that frame.
    fn next(&self) -> Option<(usize, Nanos)> {
        let [small, large] = [SMALL, LARGE].map(|ring| self.rings[ring].next_stamp());
        // A large frame that is visible now may have arrived after the small ring was checked, and a small frame of the
        // same flow before it.
        let small = small.or_else(|| large.and_then(|_| self.rings[SMALL].next_stamp()));
        match (small, large) {
            (Some(small), Some(large)) if large < small => Some((LARGE, large)),
            (Some(small), _) => Some((SMALL, small)),
            (None, large) => large.map(|stamp| (LARGE, stamp)),
        }
    }

    /// Returns the ring from which the next frame is to be taken, and the arrival time of that frame.
    fn next_arrival(&self) -> Option<(usize, Nanos)> {
        let (ring, stamp) = self.next()?;
        // For a frame that arrived after the clocks were read, the age would be too great. It waits for the next
        // reading.
        if self.stamps.precedes(stamp) {
            return None;
        }
        // Two conversions differ by the time between the readings of the clocks, and the rings are filled by different
        // processors. The arrival times must not decrease.
        Some((ring, self.stamps.convert(stamp).max(self.latest)))
    }
}

/// Opens a socket that does not receive anything yet.
fn open(
    interface: &str,
    length: SlotGeometry,
    slots: usize,
    takes: FrameLengths,
) -> Result<Ring, OpenError> {
    let call = |call| failed(interface, call);
    let socket = socket::open().map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM) => OpenError::NotPermitted(interface.to_owned()),
        _ => call("cannot open a packet socket")(e),
    })?;
    socket::configure(&socket).map_err(call("cannot switch on virtio headers"))?;
    filter::attach(&socket, takes, &[]).map_err(call("cannot filter frames by their length"))?;
    Ring::map(socket, length, slots).map_err(call("cannot map the receive ring"))
}

fn failed(interface: &str, call: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Call {
        interface: interface.to_owned(),
        call,
        source,
    }
}

impl Wakes for AfPacket {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.socket().as_fd())
    }
}

impl AfPacket {
    /// Sends all `frames` by the ports of `egress`, the first of them not before `not_before`. For each frame it calls
    /// `sent` as [`PortSet::send`] does.
    fn send_all(
        &mut self,
        egress: Egress<'_>,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        let mut begun = clock::spin_until(not_before);
        let mut was_down = false;
        for (batch, first) in frames.chunks(BATCH).zip((0..).step_by(BATCH)) {
            let mut done = 0;
            while done < batch.len() {
                match self.send_some(egress.without(first + done), &batch[done..]) {
                    Ok(took) => {
                        let after = clock::now();
                        for place in 0..took {
                            let ended = left_at(begun, after, place, took);
                            sent(first + done + place, Ok(SendTimes { begun, ended }));
                        }
                        done += took;
                        begun = after;
                        was_down = false;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // The kernel says once that the interface was down since the last call, even if it is up now.
                    Err(e)
                        if e.kind() == io::ErrorKind::NetworkDown
                            && !std::mem::replace(&mut was_down, true) => {}
                    Err(e) => {
                        sent(first + done, Err(e));
                        done += 1;
                    }
                }
            }
        }
    }

    /// Sends as many of the first `frames` as one call can, and returns their number.
    fn send_some(&mut self, egress: Egress<'_>, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        let plain = frames.iter().take_while(|frame| frame.tunnel.is_none());
        match (plain.count(), frames, &mut self.tunnels) {
            (0, [train, ..], Some(tunnels)) => send_train(tunnels, train).map(|()| 1),
            (0, [_, ..], None) => Err(io::ErrorKind::Unsupported.into()),
            (plain, ..) => self.send_batch(egress, &frames[..plain]),
        }
    }

    /// Sends frames by one `sendmmsg`, and returns the number of frames that it sent.
    fn send_batch(&self, egress: Egress<'_>, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        let groups = egress.groups(frames, self.joins);
        let mut addresses = egress.addresses(&groups, &self.interfaces);
        let mut headers: ArrayVec<[u8; vnet::LEN], BATCH> = ArrayVec::new();
        let mut parts: ArrayVec<libc::iovec, { 3 * BATCH }> = ArrayVec::new();
        let mut lengths: ArrayVec<usize, BATCH> = ArrayVec::new();
        let mut rest = frames;
        for group in &groups {
            let (members, after) = rest.split_at(group.frames);
            rest = after;
            let before = parts.len();
            let (head, known) = match members {
                [frame] => (frame.head.bytes(), head_len(frame)),
                _ => (group.head.as_slice(), group.head_len()),
            };
            headers.push(vnet::write(&group.offload, known));
            // The virtio header is inserted before them when all headers have their final place in memory.
            parts.extend([slice(&[]), slice(head)]);
            let bodies = members.iter().map(|frame| &frame.body[group.head.len()..]);
            parts.extend(bodies.map(slice));
            lengths.push(parts.len() - before);
        }
        let mut messages: ArrayVec<libc::mmsghdr, BATCH> = ArrayVec::new();
        let mut unused = parts.as_mut_slice();
        for (place, (header, length)) in headers.iter().zip(lengths).enumerate() {
            let (own, after) = unused.split_at_mut(length);
            unused = after;
            own[0] = slice(header);
            messages.push(message(own, addresses.of(place)));
        }
        let count = libc::c_uint::try_from(messages.len()).expect("at most a batch");
        // SAFETY: the first `count` messages are initialised. They point to `parts` and to `addresses`, which outlive
        // this call, and the parts point to headers and bytes that are borrowed for the call.
        let sent = unsafe {
            libc::sendmmsg(
                self.rings[SMALL].socket().as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                // The flags are signed with glibc only.
                libc::MSG_DONTWAIT as _,
            )
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(groups[..sent].iter().map(|group| group.frames).sum())
    }
}

impl PortSet for AfPacket {
    type Lent = LentSlot;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: true,
            tunnel_gso: self.tunnels.is_some(),
            checksum: true,
            vlan: true,
            arrival_stamp: true,
            largest_frame: SlotGeometry::LARGE.largest_frame(),
        }
    }

    fn refresh(&mut self, now: Nanos) {
        if self.next().is_none() {
            self.last_empty = now;
        } else {
            self.stamps = StampConverter::sample(self.last_empty);
        }
    }

    fn has_arrivals(&self) -> bool {
        self.next().is_some()
    }

    fn arrival(&self) -> Option<Nanos> {
        Some(self.next_arrival()?.1)
    }

    fn take(&mut self) -> Option<(usize, ReceivedFrame<LentSlot>)> {
        let (ring, arrival) = self.next_arrival()?;
        self.latest = arrival;
        let (interface, received) = self.rings[ring].take(arrival)?;
        Some((self.interfaces.port(interface)?, received))
    }

    fn recall(&mut self) -> Option<usize> {
        self.rings[LARGE].recall()
    }

    fn recall_to_wait(&self) -> Option<usize> {
        self.rings[LARGE].recall_newest()
    }

    fn send(
        &mut self,
        port: usize,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        self.send_all(Egress::One(port), not_before, frames, sent);
    }

    fn send_each(
        &mut self,
        ports: &[usize],
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        self.send_all(Egress::Each(ports), Nanos::ZERO, frames, sent);
    }

    fn missed(&mut self) -> Missed {
        let [small, large] = &mut self.rings;
        Missed {
            small: small.missed(),
            large: large.missed(),
            refused: self.refused + self.tunnels.as_ref().map_or(0, TunnelOut::refused),
        }
    }

    fn rejoin(&mut self, port: usize, interface: u32) -> io::Result<()> {
        let index = libc::c_int::try_from(interface).map_err(io::Error::other)?;
        let left = self.tunnels.take_if(|of| !of.leads_to(interface));
        self.refused += left.map_or(0, |left| left.refused());
        self.interfaces.replace(port, index);
        self.listen()?;
        self.enter_promiscuous_mode(port)
    }
}

/// Returns when the frame at `place` of `count` frames of one call had left. It is assumed that the call took equal
/// time for each frame between the readings of the clock before and after it. For a single frame it is the reading
/// after the call.
fn left_at(before: Nanos, after: Nanos, place: usize, count: usize) -> Nanos {
    let took = after.0.saturating_sub(before.0);
    Nanos(before.0 + took * (place as u64 + 1) / count as u64)
}

/// Sends a tunnel's train by the separate way out.
fn send_train(tunnels: &mut TunnelOut, train: &TxFrame<'_>) -> io::Result<()> {
    let tunnel = train.tunnel.ok_or(io::ErrorKind::InvalidInput)?;
    let header = vnet::write_tunnel(&train.offload, tunnel, head_len(train));
    tunnels.send(&header, [train.head.bytes(), &train.body])
}

/// Creates a message of `parts` to `address`, if there is one, without control data.
#[allow(
    clippy::cast_possible_truncation,
    reason = "musl has 32 bits for the number of parts, which is small"
)]
fn message(parts: &mut [libc::iovec], address: Option<&mut libc::sockaddr_ll>) -> libc::mmsghdr {
    // SAFETY: an all-zero mmsghdr is valid: it has no name, no control data, and no parts.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = parts.as_mut_ptr();
    message.msg_hdr.msg_iovlen = parts.len() as _;
    if let Some(address) = address {
        message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
        message.msg_hdr.msg_namelen = socket_option::length_of::<libc::sockaddr_ll>();
    }
    message
}

fn slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Returns the number of bytes that the kernel should keep contiguous at the front, which are the known headers.
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
    fn departure_times_follow_from_the_call_and_the_place_in_it() {
        let at = |place, count| left_at(Nanos(1_000), Nanos(9_000), place, count).0;
        assert_eq!(at(0, 1), 9_000);
        assert_eq!(
            [0, 1, 2, 3].map(|place| at(place, 4)),
            [3_000, 5_000, 7_000, 9_000]
        );
    }
}
