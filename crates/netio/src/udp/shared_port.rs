//! One UDP port for many peers, each with a connected socket of its own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};

/// A port whose datagrams go to one socket, except those of peers that got a connected socket of their own.
///
/// All its sockets form a reuse-port group whose selection is a program that always takes the first one. So no
/// datagram of another peer is lost or strays while a socket of a new peer is bound, but not yet connected; plain
/// `SO_REUSEADDR` gives it to the newest socket in that moment.
#[derive(Debug)]
pub struct SharedPort {
    first: UdpSocket,
    address: SocketAddr,
    interface: Option<String>,
}

impl SharedPort {
    /// Binds `address`, and `interface` if there is one; port 0 takes a free one. An IPv6 wildcard takes IPv4 too.
    ///
    /// # Errors
    /// The address is in use by another program or not of this host, or there is no such interface.
    pub fn bind(address: SocketAddr, interface: Option<&str>) -> io::Result<Self> {
        let first = bound(address, interface)?;
        always_first(&first)?;
        let address = first.local_addr()?;
        Ok(Self {
            first,
            address,
            interface: interface.map(str::to_owned),
        })
    }

    /// The socket that gets the datagrams of all peers without one of their own.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.first
    }

    /// A socket on this port for what `peer` sends from now on.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = bound(self.address, self.interface.as_deref())?;
        socket.connect(peer)?;
        Ok(socket)
    }
}

/// A socket on `address` that shares its port with others of this program.
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
        // All addresses are those of IPv4 too, whatever net.ipv6.bindv6only says.
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(fd.into())
}

/// Has the reuse-port group of `socket` give every datagram to the group's first socket.
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
    // SAFETY: the program points at its one instruction, and both outlive the call, which copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            libc::socklen_t::try_from(size_of_val(&program)).expect("a small struct"),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    fn await_datagram(socket: impl AsFd) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(5000u16)).unwrap(), 1);
    }

    #[test]
    fn a_shared_port_gives_each_peer_its_socket_and_the_rest_to_the_first() {
        for wildcard in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"] {
            let port = SharedPort::bind(wildcard.parse().unwrap(), None).unwrap();
            let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port.address.port());
            let peers: Vec<UdpSocket> = (0..4)
                .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
                .collect();
            let mut buffer = [0; 16];
            let mut own = Vec::new();
            for (peer, number) in peers.iter().zip(0u8..) {
                peer.connect(to).unwrap();
                peer.send(&[number]).unwrap();
                await_datagram(port.socket());
                let (_, from) = port.socket().recv_from(&mut buffer).unwrap();
                own.push(port.connect(from).unwrap());
            }
            for (peer, number) in peers.iter().zip(10u8..) {
                peer.send(&[number]).unwrap();
            }
            for (socket, number) in own.iter().zip(10u8..) {
                await_datagram(socket);
                assert_eq!(socket.recv(&mut buffer).unwrap(), 1);
                assert_eq!(buffer[0], number, "{wildcard}");
            }
        }
    }

    #[test]
    fn a_socket_that_is_bound_but_not_connected_takes_nobodys_datagrams() {
        let port = SharedPort::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let _unconnected: Vec<UdpSocket> =
            (0..8).map(|_| bound(port.address, None).unwrap()).collect();
        for _ in 0..32 {
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            peer.send_to(b"hello", port.address).unwrap();
            await_datagram(port.socket());
            port.socket().recv_from(&mut [0; 16]).unwrap();
        }
    }

    #[test]
    fn a_port_of_another_socket_is_refused() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = SharedPort::bind(taken.local_addr().unwrap(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
