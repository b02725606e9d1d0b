//! The kernel's information about a TCP connection (tcp(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use crate::socket_option;

/// The state of a TCP connection at one moment (`TCP_INFO`). Counters start with the connection.
///
/// Fields that the running kernel does not support are 0; all of them exist since Linux 5.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Whether every segment has the timestamps option of 12 bytes (RFC 7323).
    pub timestamps: bool,
    /// Payload bytes of a full segment that is sent, without options.
    pub snd_mss: u32,
    /// Payload bytes of a full segment that is received, as the kernel estimates it.
    pub rcv_mss: u32,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// MTU of the path as the kernel knows it, in L3 bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time (RFC 6298).
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// The least round-trip time within the last minutes; absent before the first one.
    pub min_rtt: Option<Duration>,
    /// Smoothed time from an acknowledgement that this end sent until data that answers it arrived; 0 before the kernel
    /// has measured one.
    pub rcv_rtt: Duration,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Window that the peer advertises, in bytes.
    pub snd_wnd: u32,
    /// Segments that were retransmitted.
    pub total_retrans: u32,
    /// Payload bytes sent, including retransmissions.
    pub bytes_sent: u64,
    /// Payload bytes sent that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Payload bytes that were retransmitted.
    pub bytes_retrans: u64,
    /// Segments that arrived at the peer twice, as it reported (DSACK, RFC 2883).
    pub dsack_dups: u32,
    /// Segments received while earlier ones were missing.
    pub out_of_order: u32,
    /// Segments with payload sent, including retransmissions.
    pub data_segs_out: u32,
    /// Segments with payload received.
    pub data_segs_in: u32,
    /// Time in which there was data to send.
    pub busy_time: Duration,
    /// The part of it in which the peer's window was the limit.
    pub rwnd_limited: Duration,
    /// The part of it in which the send buffer was the limit.
    pub sndbuf_limited: Duration,
    /// Bytes in the send buffer that were not yet sent.
    pub notsent_bytes: u32,
}

/// Number of bytes that are read, which end after `tcpi_rcv_ooopack` and `tcpi_snd_wnd` of include/uapi/linux/tcp.h.
const LENGTH: usize = 232;
const OPTION_TIMESTAMPS: u8 = 1;

impl TcpInfo {
    /// Returns the present state of `socket`.
    ///
    /// # Errors
    /// It is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let info = socket_option::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Ok(Self::parse(&info))
    }

    /// Parses the state. Offsets are those of `struct tcp_info`, which grows only at its end.
    fn parse(bytes: &[u8; LENGTH]) -> Self {
        const WITHIN: &str = "a field lies within the structure";
        let short = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect(WITHIN));
        let long = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect(WITHIN));
        let micros = |at| Duration::from_micros(short(at).into());
        // Before the first round trip the kernel reports ~0.
        let min_rtt = Some(short(148)).filter(|us| *us != u32::MAX && *us != 0);
        Self {
            timestamps: bytes[5] & OPTION_TIMESTAMPS != 0,
            snd_mss: short(16),
            rcv_mss: short(20),
            unacked: short(24),
            pmtu: short(60),
            rtt: micros(68),
            rtt_var: micros(72),
            min_rtt: min_rtt.map(|us| Duration::from_micros(us.into())),
            rcv_rtt: micros(92),
            snd_cwnd: short(80),
            snd_wnd: short(228),
            total_retrans: short(100),
            bytes_sent: long(200),
            bytes_retrans: long(208),
            dsack_dups: short(216),
            out_of_order: short(224),
            bytes_acked: long(120),
            bytes_received: long(128),
            data_segs_out: short(156),
            data_segs_in: short(152),
            busy_time: Duration::from_micros(long(168)),
            rwnd_limited: Duration::from_micros(long(176)),
            sndbuf_limited: Duration::from_micros(long(184)),
            notsent_bytes: short(144),
        }
    }
}

/// Removes up to `most` bytes from a TCP socket's receive buffer without copying them (recv(2), MSG_TRUNC; tcp(7)), and
/// returns their number.
///
/// # Errors
/// Those of recv(2): `WouldBlock` if nothing arrived within the socket's time-out.
pub fn discard(socket: impl AsFd, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing, and another kind of socket fails with EFAULT at this address.
    let received = unsafe {
        libc::recv(
            socket.as_fd().as_raw_fd(),
            std::ptr::null_mut(),
            most,
            libc::MSG_TRUNC,
        )
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Returns the bytes written to a connection that the peer has not acknowledged yet (tcp(7), SIOCOUTQ).
///
/// # Errors
/// It is not a TCP socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one int, which `bytes` is. The descriptor is open while `socket` is borrowed.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    Errno::result(result)?;
    Ok(bytes.unsigned_abs())
}

/// Returns the MTU in bytes of the path of a connected IPv4 or IPv6 socket, as the kernel knows it (ip(7), ipv6(7)).
///
/// # Errors
/// The socket is not connected.
pub fn path_mtu(socket: impl AsFd) -> io::Result<u32> {
    let of_ipv6 = || socket_option::get(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU);
    let mtu = match getsockopt(&socket, sockopt::IpMtu) {
        Ok(mtu) => mtu,
        Err(_) => libc::c_int::from_ne_bytes(of_ipv6()?),
    };
    Ok(mtu.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn sent_bytes_are_counted_at_both_ends() {
        let (mut near, far) = pair();
        near.write_all(&[7; 1000]).unwrap();
        assert_eq!(discard(&far, 1 << 20).unwrap(), 1000);
        let info = TcpInfo::of(&far).unwrap();
        assert_eq!((info.bytes_received, info.data_segs_in), (1000, 1));
        assert!(info.rcv_mss > 0);
        let info = TcpInfo::of(&near).unwrap();
        assert_eq!((info.bytes_sent, info.data_segs_out), (1000, 1));
        assert!(info.snd_mss > 500 && info.snd_cwnd > 0, "{info:?}");
    }

    #[test]
    fn a_closed_connection_yields_no_bytes() {
        let (near, far) = pair();
        drop(near);
        assert_eq!(discard(&far, 1000).unwrap(), 0);
    }

    #[test]
    fn another_kind_of_socket_has_no_tcp_state() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::of(&socket).is_err());
    }

    #[test]
    fn the_mtu_of_a_connection_is_that_of_its_interface() {
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let mtu: u32 = text.trim().parse().unwrap();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // There is nothing to test without IPv6.
            let Ok(listener) = TcpListener::bind(host) else {
                continue;
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // The length field of IPv4 is smaller than lo's MTU.
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
