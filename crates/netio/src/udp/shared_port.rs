//! One UDP port for many peers, each of which gets a separate connected socket.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, recvmsg, setsockopt,
    socket, sockopt,
};

use super::asked::{AskedUdp, UdpRequest};
use crate::socket_option;
use crate::timestamped::address as address_of;

/// Largest number of addresses of one host from which it answers although its routes prefer another one.
const MOST_ADDRESSES: usize = 64;
/// Bytes that are kept of a datagram that arrived too early; the first datagrams of a peer are short.
const LONGEST_EARLY_DATAGRAM: usize = 64;

/// A port whose datagrams go to one socket, except those from peers that have a connected socket.
///
/// All its sockets form a reuse-port group with a selection program that always chooses the first one. Therefore no
/// datagram from another peer is lost or misdirected while the socket of a new peer is bound but not yet connected;
/// with plain `SO_REUSEADDR` it would go to the newest socket in that moment. If a peer sends to an address from which
/// the host's routes would not answer, its sockets must be bound to that address, and have a separate group with a
/// first socket.
///
/// Since 6.13 the kernel removes connected sockets from their group (`udp_lib_hash4` of net/ipv4/udp.c), and a socket
/// that is then bound to the same address joins no group with the program. Datagrams from other peers that arrived
/// before it was connected wait in it, and are read from there.
#[derive(Debug)]
pub struct SharedPort {
    address: SocketAddr,
    interface: Option<String>,
    /// The first socket of each group, with the address to which it is bound.
    firsts: Vec<(SocketAddr, AskedUdp)>,
    /// Datagrams that arrived at a socket before it was connected.
    early_datagrams: Vec<(UdpRequest, Vec<u8>)>,
}

impl SharedPort {
    /// Binds `address`, and `interface` if there is one; port 0 selects a free one. An IPv6 wildcard includes IPv4.
    ///
    /// # Errors
    /// The address is in use by another program or does not belong to this host, or there is no such interface.
    pub fn bind(address: SocketAddr, interface: Option<&str>) -> io::Result<Self> {
        let first = first(address, interface)?;
        let address = first.socket().local_addr()?;
        Ok(Self {
            address,
            interface: interface.map(str::to_owned),
            firsts: vec![(address, first)],
            early_datagrams: Vec::new(),
        })
    }

    /// Returns the next datagram from a peer without a connected socket; `None` if `wake` becomes readable before one
    /// arrives, or after a signal.
    ///
    /// # Errors
    /// Those of poll(2) and recvmsg(2).
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        wake: impl AsFd,
    ) -> io::Result<Option<UdpRequest>> {
        if let Some((request, datagram)) = self.early_datagrams.pop() {
            let length = request.length.min(buffer.len());
            buffer[..length].copy_from_slice(&datagram[..length]);
            return Ok(Some(UdpRequest { length, ..request }));
        }
        let sockets = self.firsts.iter().map(|(_, socket)| socket.as_fd());
        let mut fds: Vec<PollFd<'_>> = sockets
            .chain([wake.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let ready = fds.iter().position(|fd| fd.any().unwrap_or(false));
        ready
            .and_then(|ready| self.firsts.get(ready))
            .map(|(_, socket)| socket.receive(buffer))
            .transpose()
    }

    /// Returns a socket on this port, at the address to which `request` was sent, that receives all further datagrams
    /// from its sender.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn connect(&mut self, request: &UdpRequest) -> io::Result<UdpSocket> {
        let socket = self.own(self.address, request.from)?;
        let chosen = socket.local_addr()?.ip().to_canonical();
        let Some(asked) = request
            .local(self.address.port())
            .filter(|asked| asked.ip() != chosen)
        else {
            return Ok(socket);
        };
        if self.firsts.iter().all(|(address, _)| *address != asked) {
            if self.firsts.len() > MOST_ADDRESSES {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            let first = first(asked, self.interface.as_deref())?;
            self.firsts.push((asked, first));
        }
        self.own(asked, request.peer())
    }

    /// Returns a socket at `address` that is connected to `peer`.
    fn own(&mut self, address: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = bound(address, self.interface.as_deref())?;
        socket.connect(peer)?;
        self.keep_early_datagrams(&socket, address);
        Ok(socket)
    }

    /// Reads the datagrams that arrived at `socket`, which was bound to `address`, before it was connected.
    fn keep_early_datagrams(&mut self, socket: &UdpSocket, address: SocketAddr) {
        let mut datagram = [0; LONGEST_EARLY_DATAGRAM];
        let flags = MsgFlags::MSG_DONTWAIT;
        let mut next = || {
            let fd = socket.as_raw_fd();
            let mut slices = [IoSliceMut::new(&mut datagram)];
            let message = recvmsg::<SockaddrStorage>(fd, &mut slices, None, flags).ok()?;
            let (length, from) = (message.bytes, address_of(message.address.as_ref()?)?);
            Some((length, from, datagram[..length].to_vec()))
        };
        while let Some((length, from, datagram)) = next() {
            let asked = (!address.ip().is_unspecified()).then(|| address.ip().to_canonical());
            let request = UdpRequest {
                length,
                from,
                asked,
            };
            self.early_datagrams.push((request, datagram));
        }
    }
}

/// Returns the first socket of a group on `address`.
fn first(address: SocketAddr, interface: Option<&str>) -> io::Result<AskedUdp> {
    let first = bound(address, interface)?;
    always_first(&first)?;
    AskedUdp::new(first)
}

/// Returns a socket on `address` that shares its port with other sockets of this program.
fn bound(address: SocketAddr, interface: Option<&str>) -> io::Result<UdpSocket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let fd: OwnedFd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    if let Some(name) = interface {
        setsockopt(&fd, sockopt::BindToDevice, &name.into())?;
    }
    if address.is_ipv6() {
        // The wildcard includes IPv4, regardless of net.ipv6.bindv6only.
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(fd.into())
}

/// Makes the reuse-port group of `socket` pass every datagram to the group's first socket.
fn always_first(socket: &UdpSocket) -> io::Result<()> {
    let mut take_first = libc::sock_filter {
        code: u16::try_from(libc::BPF_RET | libc::BPF_K).expect("an opcode"),
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut take_first,
    };
    // The program points to its only instruction, and both outlive the call.
    socket_option::set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alarm;

    fn await_datagram(socket: impl AsFd) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(5000u16)).unwrap(), 1);
    }

    fn greeting(port: &mut SharedPort) -> UdpRequest {
        let sockets = port.firsts.iter().map(|(_, socket)| socket.as_fd());
        let mut fds: Vec<_> = sockets
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let is_early = !port.early_datagrams.is_empty();
        assert!(is_early || poll(&mut fds, PollTimeout::from(5000u16)).unwrap() > 0);
        let received = port.receive(&mut [0; 16], Alarm::new().unwrap());
        received.unwrap().expect("a datagram has arrived")
    }

    #[test]
    fn a_wait_without_a_datagram_ends_when_the_waker_is_readable() {
        let mut port = SharedPort::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let alarm = Alarm::new().unwrap();
        alarm.ring();
        assert_eq!(port.receive(&mut [0; 16], &alarm).unwrap(), None);
    }

    #[test]
    fn a_shared_port_separates_connected_peers_from_the_others() {
        // The host prefers 127.0.0.1 for packets to itself.
        for (wildcard, asked) in [
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::]:0", "127.0.0.1"),
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.7"),
            ("[::]:0", "127.0.0.7"),
        ] {
            let mut port = SharedPort::bind(wildcard.parse().unwrap(), None).unwrap();
            let to = SocketAddr::new(asked.parse().unwrap(), port.address.port());
            let peers: Vec<UdpSocket> = (0..4)
                .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
                .collect();
            let mut buffer = [0; 16];
            let mut own = Vec::new();
            for (peer, number) in peers.iter().zip(0u8..) {
                peer.connect(to).unwrap();
                peer.send(&[number]).unwrap();
                let request = greeting(&mut port);
                own.push(port.connect(&request).unwrap());
            }
            for (peer, number) in peers.iter().zip(10u8..) {
                peer.send(&[number]).unwrap();
            }
            for ((socket, peer), number) in own.iter().zip(&peers).zip(10u8..) {
                await_datagram(socket);
                assert_eq!(socket.recv(&mut buffer).unwrap(), 1);
                assert_eq!(buffer[0], number, "{wildcard}");
                // A connected peer accepts answers only from the address to which it sent.
                socket.send(&[number]).unwrap();
                await_datagram(peer);
                assert_eq!(peer.recv(&mut buffer).unwrap(), 1);
            }
        }
    }

    #[test]
    fn a_bound_but_unconnected_socket_gets_no_datagrams() {
        let mut port = SharedPort::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let _unconnected: Vec<UdpSocket> =
            (0..8).map(|_| bound(port.address, None).unwrap()).collect();
        for _ in 0..32 {
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            peer.send_to(b"hello", port.address).unwrap();
            assert_eq!(greeting(&mut port).from, peer.local_addr().unwrap());
        }
    }

    #[test]
    fn datagrams_before_the_connection_of_a_socket_are_not_lost() {
        for (address, asked) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.7")] {
            let mut port = SharedPort::bind(address.parse().unwrap(), None).unwrap();
            let to = SocketAddr::new(asked.parse().unwrap(), port.address.port());
            let peers = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            let [first, second, third] = &peers;
            first.send_to(b"hello", to).unwrap();
            let request = greeting(&mut port);
            let _own = port.connect(&request).unwrap();
            let early = bound(to, None).unwrap();
            third.send_to(b"hello", to).unwrap();
            early.connect(second.local_addr().unwrap()).unwrap();
            port.keep_early_datagrams(&early, to);
            let request = greeting(&mut port);
            let came = (request.peer(), request.asked, request.length);
            let expected = (third.local_addr().unwrap(), Some(to.ip()), 5);
            assert_eq!(came, expected, "{address}");
        }
    }

    #[test]
    fn a_port_in_use_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = SharedPort::bind(taken.local_addr().unwrap(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
