//! UDP sockets with the kernel's timestamps at sending and at receipt (`SO_TIMESTAMPING`, software timestamps).
//!
//! A sending timestamp is taken when the driver gets the packet, and a receiving timestamp when the network stack gets
//! it, so neither includes the time to wake a program up. Sending timestamps come back through the socket's error
//! queue, as do ICMP errors. Source: Documentation/networking/timestamping.rst of the kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use model::Nanos;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, Timestamps,
    recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::packet_info::{self, SourceAddress};
use crate::udp_drops::{DropCauses, FullDrops};

/// Size of the receive buffer in bytes. The kernel allocates twice as much, of which a short packet takes 768 bytes: it
/// suffices for 100 ms at 100,000 packets per second, in which the program may not run.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A UDP socket with kernel timestamps. It never blocks.
#[derive(Debug)]
pub struct TimestampedUdp {
    socket: UdpSocket,
    control: Vec<u8>,
    /// The kernel's id for the next packet that leaves.
    next: u32,
    causes: DropCauses,
}

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Payload bytes; a payload that is longer than the buffer is truncated.
    pub length: usize,
    /// Address of the sender.
    pub source: SocketAddr,
    /// The address of this machine to which it was sent.
    pub asked: Option<IpAddr>,
    /// The time in `CLOCK_REALTIME` at which the kernel got it.
    pub at: Option<Nanos>,
    /// TTL or hop limit with which it arrived.
    pub ttl: Option<u8>,
    /// DSCP (the upper six bits) and ECN with which it arrived.
    pub tos: u8,
    /// Number of packets that this socket has dropped since it was opened, as far as the kernel has reported, because
    /// it was full or because their checksum was wrong ([`TimestampedUdp::full_drops`]).
    pub dropped: u32,
}

/// A report of the error queue on a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendReport {
    /// A packet left.
    Departed {
        /// The id that [`TimestampedUdp::send`] or [`TimestampedUdp::reply`] returned.
        id: u32,
        /// The time in `CLOCK_REALTIME` at which the driver got it.
        at: Nanos,
    },
    /// An ICMP error says that a packet did not reach its destination.
    Unreachable {
        /// The reason as an error number: `ECONNREFUSED` is "port unreachable".
        why: Errno,
        /// The address from which the ICMP error came.
        by: Option<IpAddr>,
    },
}

impl TimestampedUdp {
    /// Makes the kernel timestamp the packets that `socket` sends and receives, and report the destination address and
    /// header fields of received packets.
    ///
    /// # Errors
    /// The kernel has no software timestamps for sockets.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_ipv6 = socket.local_addr()?.is_ipv6();
        // A smaller buffer than requested is the host's choice, and packets that find it full are counted.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
        }
        setsockopt(&socket, sockopt::Timestamping, &flags())?;
        // Without these options, only some facts about packets are unknown. An IPv4 socket refuses those of IPv6 and
        // vice versa.
        let _ = setsockopt(&socket, sockopt::RxqOvfl, &1);
        let _ = setsockopt(&socket, sockopt::Ipv4RecvTtl, &true);
        let _ = setsockopt(&socket, sockopt::IpRecvTos, &true);
        let _ = setsockopt(&socket, sockopt::Ipv4RecvErr, &true);
        if is_ipv6 {
            let _ = setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true);
            let _ = setsockopt(&socket, sockopt::Ipv6RecvTClass, &true);
            let _ = setsockopt(&socket, sockopt::Ipv6RecvErr, &true);
        }
        packet_info::ask(&socket, is_ipv6)?;
        let control = cmsg_space!(
            Timestamps,
            libc::in6_pktinfo,
            libc::in_pktinfo,
            libc::sock_extended_err,
            libc::sockaddr_in6,
            [i32; 6]
        );
        Ok(Self {
            socket,
            // cmsg_space has capacity for one message of each kind, but every message has a header.
            control: vec![0; control.capacity() + 8 * size_of::<libc::cmsghdr>()],
            next: 0,
            causes: DropCauses::watch(),
        })
    }

    /// Returns the address to which the socket is bound.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns how many of the first `dropped` drops of this socket found it full. The calling thread must be in the
    /// socket's network namespace.
    pub fn full_drops(&self, dropped: u32) -> FullDrops {
        self.causes.full(dropped.into())
    }

    /// Sends to the peer to which the socket is connected. The result is the packet's id in its [`SendReport`].
    ///
    /// # Errors
    /// The packet was not sent. An ICMP error for an earlier packet is reported here, too.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<u32> {
        self.transmit(packet, &[], None)
    }

    /// Answers `request` with `packet`, from the address to which the request was sent, with `tos` as DSCP and ECN.
    ///
    /// # Errors
    /// The packet was not sent.
    pub fn reply(&mut self, packet: &[u8], request: &Arrival, tos: u8) -> io::Result<u32> {
        let to = SockaddrStorage::from(request.source);
        let (tos_v4, tos_v6) = (tos, i32::from(tos));
        let mut control = Vec::with_capacity(2);
        // An IPv4 address on an IPv6 socket is mapped. The IPv4 type of service applies to it.
        match request.source {
            SocketAddr::V6(source) if source.ip().to_ipv4_mapped().is_none() => {
                control.push(ControlMessage::Ipv6TClass(&tos_v6));
            }
            _ => control.push(ControlMessage::Ipv4Tos(&tos_v4)),
        }
        let source = request.asked.and_then(SourceAddress::of);
        control.extend(source.as_ref().map(SourceAddress::message));
        self.transmit(packet, &control, Some(&to))
    }

    /// Returns the next waiting packet, whose payload is at the start of `buffer`; `None` if none waits.
    ///
    /// # Errors
    /// The socket failed. An ICMP error for a sent packet is one such failure.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        let mut slices = [IoSliceMut::new(buffer)];
        let control = Some(self.control.as_mut_slice());
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            control,
            flags,
        ) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let Some(source) = message.address.as_ref().and_then(address) else {
            return Ok(None);
        };
        let mut arrival = Arrival {
            length: message.bytes,
            source,
            asked: None,
            at: None,
            ttl: None,
            tos: 0,
            dropped: 0,
        };
        for note in message.cmsgs()? {
            arrival.take(&note);
        }
        Ok(Some(arrival))
    }

    /// Returns the next report on a sent packet; `None` if none waits.
    ///
    /// # Errors
    /// The socket failed.
    pub fn report(&mut self) -> io::Result<Option<SendReport>> {
        loop {
            let control = Some(self.control.as_mut_slice());
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_ERRQUEUE;
            let message = match recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut [],
                control,
                flags,
            ) {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if let Some(report) = report(message.cmsgs()?) {
                return Ok(Some(report));
            }
        }
    }

    fn transmit(
        &mut self,
        packet: &[u8],
        control: &[ControlMessage<'_>],
        to: Option<&SockaddrStorage>,
    ) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        match sendmsg(
            fd,
            &[IoSlice::new(packet)],
            control,
            MsgFlags::MSG_DONTWAIT,
            to,
        ) {
            Ok(_) => {
                let id = self.next;
                self.next = id.wrapping_add(1);
                Ok(id)
            }
            Err(errno) => {
                self.restart_ids();
                Err(errno.into())
            }
        }
    }

    /// Restarts the ids at 0 on both sides. Whether the kernel has counted a packet that failed depends on where it
    /// failed.
    fn restart_ids(&mut self) {
        let without = flags().difference(TimestampingFlag::SOF_TIMESTAMPING_OPT_ID);
        let off = setsockopt(&self.socket, sockopt::Timestamping, &without);
        if off
            .and_then(|()| setsockopt(&self.socket, sockopt::Timestamping, &flags()))
            .is_ok()
        {
            self.next = 0;
        }
    }
}

impl AsFd for TimestampedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Arrival {
    fn take(&mut self, note: &ControlMessageOwned) {
        match note {
            ControlMessageOwned::ScmTimestampsns(stamps) => self.at = nanos(stamps.system),
            ControlMessageOwned::Ipv4PacketInfo(_) => {
                // A mapped address has both kinds of messages. The one of the socket's own family is used to answer.
                self.asked = self.asked.or(packet_info::asked(note));
            }
            ControlMessageOwned::Ipv6PacketInfo(_) => self.asked = packet_info::asked(note),
            ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                self.ttl = u8::try_from(*ttl).ok();
            }
            ControlMessageOwned::Ipv4Tos(tos) => self.tos = *tos,
            ControlMessageOwned::Ipv6TClass(class) => self.tos = u8::try_from(*class).unwrap_or(0),
            ControlMessageOwned::RxqOvfl(count) => self.dropped = *count,
            _ => {}
        }
    }
}

fn flags() -> TimestampingFlag {
    TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY
}

/// Returns the report in one message of the error queue; `None` if it has no useful content.
fn report(notes: impl Iterator<Item = ControlMessageOwned>) -> Option<SendReport> {
    let (mut stamp, mut error) = (None, None);
    for note in notes {
        match note {
            ControlMessageOwned::ScmTimestampsns(stamps) => stamp = nanos(stamps.system),
            ControlMessageOwned::Ipv4RecvErr(e, by) => {
                let by = by
                    .filter(|by| i32::from(by.sin_family) == libc::AF_INET)
                    .map(|by| IpAddr::from(by.sin_addr.s_addr.to_ne_bytes()));
                error = Some((e, by));
            }
            ControlMessageOwned::Ipv6RecvErr(e, by) => {
                let by = by.filter(|by| i32::from(by.sin6_family) == libc::AF_INET6);
                error = Some((e, by.map(|by| IpAddr::from(by.sin6_addr.s6_addr))));
            }
            _ => {}
        }
    }
    match error? {
        (e, _) if e.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING => Some(SendReport::Departed {
            id: e.ee_data,
            at: stamp?,
        }),
        (e, by)
            if matches!(
                e.ee_origin,
                libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6
            ) =>
        {
            Some(SendReport::Unreachable {
                why: Errno::from_raw(i32::try_from(e.ee_errno).ok()?),
                by,
            })
        }
        _ => None,
    }
}

/// Returns the IPv4 or IPv6 address in `storage`.
pub(crate) fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| {
        storage
            .as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()))
    })
}

/// Returns the time; `None` for zero, which means that there is no timestamp.
fn nanos(stamp: TimeSpec) -> Option<Nanos> {
    let seconds = u64::try_from(stamp.tv_sec()).ok().filter(|s| *s > 0)?;
    Some(Nanos(
        seconds.checked_mul(1_000_000_000)? + u64::try_from(stamp.tv_nsec()).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn bound(address: &str) -> UdpSocket {
        UdpSocket::bind(address).unwrap()
    }

    fn wait(socket: &TimestampedUdp) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
        assert_eq!(ready, 1, "nothing came");
    }

    fn received(socket: &mut TimestampedUdp, buffer: &mut [u8]) -> Arrival {
        loop {
            wait(socket);
            if let Some(arrival) = socket.receive(buffer).unwrap() {
                return arrival;
            }
        }
    }

    fn reported(socket: &mut TimestampedUdp) -> SendReport {
        loop {
            wait(socket);
            if let Some(report) = socket.report().unwrap() {
                return report;
            }
        }
    }

    fn pair(far: &str, to: &str) -> (TimestampedUdp, TimestampedUdp) {
        let far = bound(far);
        let port = far.local_addr().unwrap().port();
        let near = bound(if to.contains('.') {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        });
        near.connect((to.parse::<IpAddr>().unwrap(), port)).unwrap();
        (
            TimestampedUdp::new(near).unwrap(),
            TimestampedUdp::new(far).unwrap(),
        )
    }

    /// Returns a pair whose packets the kernel already timestamps. It enables timestamps some time after the first
    /// socket requests them (net/core/dev.c, net_enable_timestamp), and disables them after the last one.
    fn stamping() -> (TimestampedUdp, TimestampedUdp) {
        let (mut near, mut far) = pair("127.0.0.1:0", "127.0.0.1");
        let mut buffer = [0; 64];
        loop {
            near.send(b"request").unwrap();
            if received(&mut far, &mut buffer).at.is_some() {
                return (near, far);
            }
        }
    }

    #[test]
    fn a_round_trip_has_four_timestamps_in_order() {
        let _stamping = stamping();
        for (far, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
        ] {
            let (mut near, mut far) = pair(far, to);
            let mut buffer = [0; 64];
            let before = clock::wall();
            for round in 0..3 {
                assert_eq!(near.send(b"request").unwrap(), round);
                let SendReport::Departed { id, at: t1 } = reported(&mut near) else {
                    panic!("an error");
                };
                assert_eq!(id, round);
                let request = received(&mut far, &mut buffer);
                assert_eq!(&buffer[..request.length], b"request");
                assert_eq!(far.reply(b"reply", &request, 0).unwrap(), round);
                let SendReport::Departed { id, at: t3 } = reported(&mut far) else {
                    panic!("an error");
                };
                assert_eq!(id, round);
                let reply = received(&mut near, &mut buffer);
                assert!(before <= t1 && t3 <= clock::wall());
                assert!(t1 <= request.at.unwrap() && t3 <= reply.at.unwrap());
                assert!(request.ttl.is_some(), "{far:?}");
            }
        }
    }

    #[test]
    fn a_reply_comes_from_the_address_of_the_request() {
        for far in ["0.0.0.0:0", "[::]:0"] {
            // A connected socket accepts replies only from the address to which it sent the request.
            let (mut near, mut far) = pair(far, "127.0.0.9");
            let mut buffer = [0; 64];
            near.send(b"request").unwrap();
            let request = received(&mut far, &mut buffer);
            far.reply(b"reply", &request, 0xb8).unwrap();
            let reply = received(&mut near, &mut buffer);
            assert_eq!(reply.source.ip(), "127.0.0.9".parse::<IpAddr>().unwrap());
            assert_eq!(reply.tos, 0xb8);
        }
    }

    #[test]
    fn a_closed_port_is_reported_with_the_source_of_the_error() {
        for host in ["127.0.0.1", "::1"] {
            let ip: IpAddr = host.parse().unwrap();
            let (mut near, far) = pair(&SocketAddr::new(ip, 0).to_string(), host);
            drop(far);
            near.send(b"request").unwrap();
            let refusal = std::iter::from_fn(|| Some(reported(&mut near)))
                .find(|report| matches!(report, SendReport::Unreachable { .. }));
            let expected = SendReport::Unreachable {
                why: Errno::ECONNREFUSED,
                by: Some(ip),
            };
            assert_eq!(refusal, Some(expected));
        }
    }

    #[test]
    fn timestamps_match_their_packets_after_a_failed_send() {
        let (mut near, _far) = pair("127.0.0.1:0", "127.0.0.1");
        near.send(b"first").unwrap();
        near.send(&[0; 70_000]).unwrap_err();
        while near.report().unwrap().is_some() {}
        let id = near.send(b"second").unwrap();
        let report = reported(&mut near);
        assert!(matches!(report, SendReport::Departed { id: found, .. } if found == id));
    }
}
