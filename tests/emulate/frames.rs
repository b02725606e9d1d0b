//! Hand-written Ethernet frames, and an end that sends and receives them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use model::Nanos;
use netio::bed::{CLIENT, Endpoint, SERVER, WAN};
use netio::netns::NetNs;
use netio::{
    AfPacket, FrameHead, Offload, PortSet as _, ReceivedFrame, RingSlots, TxFrame, Wakes as _,
    clock, is_link_control,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A VLAN tag: protocol and tag control information.
pub(crate) type Tag = (u16, u16);

/// A socket on an interface of a bed's end, for whole frames.
pub(crate) struct End {
    port: AfPacket,
}

const SLOTS: RingSlots = RingSlots {
    small: 512,
    large: 60,
};

/// The time within which a frame must arrive.
const PATIENCE: Duration = Duration::from_secs(20);

impl End {
    pub(crate) fn open(ns: &NetNs) -> Result<Self> {
        let port = ns.run(|| AfPacket::open(WAN, SLOTS))??;
        Ok(Self { port })
    }

    /// Sends a frame; `offload` says what the kernel has to complete.
    pub(crate) fn send(&mut self, frame: &[u8], offload: Offload) -> Result<()> {
        let mut failure = None;
        let piece = TxFrame {
            offload,
            tunnel: None,
            head: FrameHead::EMPTY,
            body: frame.into(),
        };
        self.port.send(0, Nanos::ZERO, &[piece], &mut |_, sent| {
            failure = sent.err()
        });
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns the next frame, as it was on the wire, that the kernel did not send by itself.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.port.refresh(clock::now());
            match self.port.take().map(|(_, received)| received) {
                Some(ReceivedFrame::Frame(frame)) if is_link_control(frame.bytes()) => {}
                Some(ReceivedFrame::Frame(frame)) => {
                    ensure!(frame.offload == Offload::default(), "{:?}", frame.offload);
                    let (addresses, rest) = frame.bytes().split_at(12);
                    let tag = frame.vlan.map(netio::Vlan::bytes).unwrap_or_default();
                    let tag = if frame.vlan.is_some() { &tag[..] } else { &[] };
                    return Ok([addresses, tag, rest].concat());
                }
                Some(other) => bail!("no whole frame: {other:?}"),
                None => {
                    ensure!(Instant::now() < end, "no frame for {PATIENCE:?}");
                    let fds = self.port.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                    let mut fds: Vec<PollFd<'_>> = fds.collect();
                    let _ = poll(&mut fds, PollTimeout::from(100u8));
                }
            }
        }
    }
}

/// Builds a frame from the client to the server, or back.
pub(crate) fn frame(answer: bool, tags: &[Tag], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends(answer);
    let mut frame = [to.mac, from.mac].concat();
    for (protocol, control) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Builds an IPv4 packet.
pub(crate) fn ipv4(answer: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends(answer);
    let length = u16::try_from(20 + payload.len()).expect("a packet is below 64 KiB");
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from.v4.octets());
    packet.extend(to.v4.octets());
    let sum = !checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Builds an ICMP echo, or the answer to it, of `size` bytes.
pub(crate) fn echo(answer: bool, size: usize) -> Vec<u8> {
    let mut message = vec![if answer { 0 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend((message.len()..size).map(|n| n.to_le_bytes()[0]));
    let sum = !checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Computes the Internet checksum before its inversion; correct data with its checksum sums to 0xffff.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded to 16 bits")
}

fn ends(answer: bool) -> (Endpoint, Endpoint) {
    if answer {
        (SERVER, CLIENT)
    } else {
        (CLIENT, SERVER)
    }
}
