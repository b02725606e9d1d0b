//! A UDP socket that answers from the address to which a request was sent.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{MsgFlags, SockaddrStorage, recvmsg, sendmsg};

use crate::packet_info::{self, SourceAddress};
use crate::timestamped::address;

/// A UDP socket whose answers leave from the address to which the request was sent, even if the host has several.
#[derive(Debug)]
pub struct AskedUdp {
    socket: UdpSocket,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRequest {
    /// Payload bytes; a payload that is longer than the buffer is truncated.
    pub length: usize,
    /// Address of the sender in the socket's family.
    pub from: SocketAddr,
    /// The address of this host to which it was sent, if the kernel reports it. An IPv4 address is never mapped.
    pub asked: Option<IpAddr>,
}

impl UdpRequest {
    /// Returns the address of the sender. An IPv4 address is never mapped.
    pub fn peer(&self) -> SocketAddr {
        match self.from.ip().to_canonical() {
            ip @ IpAddr::V4(_) => SocketAddr::new(ip, self.from.port()),
            IpAddr::V6(_) => self.from,
        }
    }

    /// Returns the address to which the request was sent, with `port`. A socket bound to it can answer
    /// [`peer`](Self::peer).
    pub fn local(&self, port: u16) -> Option<SocketAddr> {
        match (self.asked?, self.peer()) {
            (IpAddr::V4(asked), SocketAddr::V4(_)) => Some((asked, port).into()),
            // A link-local address is complete only with its link.
            (IpAddr::V6(asked), SocketAddr::V6(peer)) if !asked.is_multicast() => {
                Some(SocketAddrV6::new(asked, port, 0, peer.scope_id()).into())
            }
            _ => None,
        }
    }
}

impl AskedUdp {
    /// Makes the kernel report the destination address of each datagram.
    ///
    /// # Errors
    /// The socket refuses the option.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let is_ipv6 = socket.local_addr()?.is_ipv6();
        packet_info::ask(&socket, is_ipv6)?;
        Ok(Self { socket })
    }

    /// Returns the socket itself.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Receives the next datagram, for which it waits up to the socket's read time-out.
    ///
    /// # Errors
    /// Those of recvmsg(2), such as time-outs and ICMP errors for earlier answers.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<UdpRequest> {
        let mut slices = [IoSliceMut::new(buffer)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let from = message.address.as_ref().and_then(address);
        let asked = message
            .cmsgs()?
            .filter_map(|note| packet_info::asked(&note));
        Ok(UdpRequest {
            length: message.bytes,
            from: from.ok_or(io::ErrorKind::AddrNotAvailable)?,
            asked: asked.map(|asked| asked.to_canonical()).last(),
        })
    }

    /// Answers `request` from the address to which it was sent.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn answer(&self, request: &UdpRequest, datagram: &[u8]) -> io::Result<()> {
        let to = SockaddrStorage::from(request.from);
        let asked = request.asked.map(|asked| match asked {
            // An IPv6 socket requires a mapped IPv4 address.
            IpAddr::V4(asked) if request.from.is_ipv6() => asked.to_ipv6_mapped().into(),
            asked => asked,
        });
        let source = asked.and_then(SourceAddress::of);
        let control: Vec<_> = source
            .as_ref()
            .map(SourceAddress::message)
            .into_iter()
            .collect();
        let fd = self.socket.as_raw_fd();
        let slices = [IoSlice::new(datagram)];
        sendmsg(fd, &slices, &control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }
}

impl AsFd for AskedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All addresses of 127.0.0.0/8 belong to this host, and 127.0.0.1 is the preferred one.
    #[test]
    fn an_answer_leaves_from_the_address_of_the_request() {
        for (bound, asked) in [
            ("0.0.0.0:0", "127.0.0.7"),
            ("[::]:0", "127.0.0.7"),
            ("[::]:0", "::1"),
        ] {
            let far = AskedUdp::new(UdpSocket::bind(bound).unwrap()).unwrap();
            let port = far.socket().local_addr().unwrap().port();
            let to = SocketAddr::new(asked.parse().unwrap(), port);
            let near = match to {
                SocketAddr::V4(_) => UdpSocket::bind("127.0.0.1:0"),
                SocketAddr::V6(_) => UdpSocket::bind("[::1]:0"),
            };
            let near = near.unwrap();
            near.send_to(b"request", to).unwrap();
            let request = far.receive(&mut [0; 16]).unwrap();
            assert_eq!((request.length, request.asked), (7, Some(to.ip())));
            far.answer(&request, b"answer").unwrap();
            let (length, from) = near.recv_from(&mut [0; 16]).unwrap();
            assert_eq!((length, from), (6, to), "{bound}");
        }
    }
}
