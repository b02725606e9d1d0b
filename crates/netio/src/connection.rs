//! What the kernel knows of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::sys::socket::{getsockopt, sockopt};

/// Bytes written to a connection that the peer has not acknowledged yet (tcp(7), SIOCOUTQ).
///
/// # Errors
/// It is no TCP socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel fills one int; the descriptor is open for as long as `socket` is borrowed.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.unsigned_abs())
}

/// The MTU in bytes of the path that a connected IPv4 or IPv6 socket takes, as far as the kernel knows it (ip(7), ipv6(7)).
///
/// # Errors
/// The socket is not connected.
pub fn path_mtu(socket: impl AsFd) -> io::Result<u32> {
    let mtu = getsockopt(&socket, sockopt::IpMtu).map_err(io::Error::from);
    Ok(mtu.or_else(|_| ipv6_mtu(&socket))?.unsigned_abs())
}

fn ipv6_mtu(socket: impl AsFd) -> io::Result<libc::c_int> {
    let fd = socket.as_fd().as_raw_fd();
    let mut mtu: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&mtu)).expect("a small integer");
    // SAFETY: `mtu` has room for `length` bytes; the descriptor is open for as long as `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU,
            (&raw mut mtu).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(mtu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_s_mtu_is_that_of_its_interface() {
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let mtu: u32 = text.trim().parse().unwrap();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // Without IPv6 there is nothing to see here.
            let Ok(listener) = TcpListener::bind(host) else {
                continue;
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // IPv4's length field ends before lo's MTU does.
            let most = if stream.local_addr().unwrap().is_ipv4() {
                65_535
            } else {
                u32::MAX
            };
            assert_eq!(path_mtu(&stream).unwrap(), mtu.min(most), "{host}");
            assert_eq!(unacknowledged(&stream).unwrap(), 0);
        }
    }
}
