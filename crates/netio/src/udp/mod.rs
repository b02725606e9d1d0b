//! Connected UDP sockets that send and receive trains: many datagrams of one size per call (`UDP_SEGMENT`, `UDP_GRO`).

mod asked;
mod shared_port;

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use model::Nanos;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::socket_option;
use crate::tcp::path_mtu;
use crate::udp_drops::{DropCauses, FullDrops};

pub use self::asked::{AskedUdp, UdpRequest};
pub use self::shared_port::SharedPort;

/// Datagrams of the longest train: `UDP_MAX_SEGMENTS` of kernels before 6.9, which later ones exceed.
pub const MOST_SEGMENTS: usize = 64;

/// Payload bytes of the longest train, which is one IPv4 packet of at most 65,535 bytes until it is segmented.
pub const LONGEST_TRAIN: usize = 65_507;

/// Bytes of the IPv4 and UDP headers of a datagram.
const IPV4_HEADERS: usize = 20 + 8;

/// Bytes of the IPv6 and UDP headers of a datagram.
const IPV6_HEADERS: usize = 40 + 8;

/// Size of a buffer that can hold any datagram and any train.
const RECEIVE_BYTES: usize = 1 << 16;

/// Time after which a send gives up that finds no room in the socket's buffer.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// The sending end of a stream of datagrams of one length.
#[derive(Debug)]
pub struct TrainSender {
    socket: UdpSocket,
    segment: usize,
    most: usize,
}

impl TrainSender {
    /// Prepares a connected socket for datagrams of `segment` payload bytes and requests a send buffer of `buffer`
    /// bytes.
    ///
    /// Datagrams longer than the path's MTU leave one by one, as IP fragments: the kernel refuses a train of them, and
    /// with `UDP_SEGMENT` also a single one (`udp_send_skb` of net/ipv4/udp.c).
    ///
    /// # Errors
    /// `segment` is 0 or above [`LONGEST_TRAIN`], or the socket refuses its options.
    pub fn new(socket: UdpSocket, segment: usize, buffer: usize) -> io::Result<Self> {
        if !(1..=LONGEST_TRAIN).contains(&segment) {
            let why =
                format!("{segment} bytes of UDP payload are out of range: 1 to {LONGEST_TRAIN}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        if setsockopt(&socket, sockopt::SndBufForce, &buffer).is_err() {
            setsockopt(&socket, sockopt::SndBuf, &buffer)?;
        }
        let mut sender = Self {
            socket,
            segment,
            most: 1,
        };
        let fits = (LONGEST_TRAIN / segment).min(MOST_SEGMENTS);
        if fits > 1 && sender.fits_one_packet() && sender.cut_every(segment).is_ok() {
            sender.most = fits;
        }
        Ok(sender)
    }

    /// Prepares a socket in the same way that sends one datagram per call.
    ///
    /// # Errors
    /// The same as for [`TrainSender::new`].
    pub fn one_by_one(socket: UdpSocket, segment: usize, buffer: usize) -> io::Result<Self> {
        let mut sender = Self::new(socket, segment, buffer)?;
        if sender.most > 1 {
            sender.most = 1;
            sender.cut_every(0)?;
        }
        Ok(sender)
    }

    /// Returns the number of datagrams that one call can send; 1 if they are longer than the path's MTU, or if the
    /// kernel or the interface does not segment trains.
    pub fn most_segments(&self) -> usize {
        self.most
    }

    /// Sends a train of whole datagrams and returns how many of them left.
    ///
    /// If the kernel refuses trains, because the datagrams have become longer than the path's MTU or the interface
    /// completes no checksums, they are sent one by one from now on.
    ///
    /// # Errors
    /// Those of send(2): `WouldBlock` if the buffer remains full for 100 ms, `ConnectionRefused` if an ICMP error says
    /// that nobody listens at the far end. The datagrams were then not sent.
    pub fn send(&mut self, train: &[u8]) -> io::Result<usize> {
        let count = train.len().div_ceil(self.segment);
        if self.most > 1 {
            match self.socket.send(train) {
                Ok(_) => return Ok(count),
                Err(error) if !refuses_trains(&error) => return Err(error),
                Err(_) => {
                    self.most = 1;
                    self.cut_every(0)?;
                }
            }
        }
        for (sent, datagram) in train.chunks(self.segment).enumerate() {
            match self.send_one(datagram) {
                Ok(()) => {}
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
        Ok(count)
    }

    /// Sends one datagram, as IP fragments if it is longer than the path's MTU.
    ///
    /// The kernel also reports with a send that an earlier datagram was longer than the MTU of a hop (ICMP,
    /// fragmentation needed). It then knows that MTU, and the next attempt succeeds.
    fn send_one(&self, datagram: &[u8]) -> io::Result<()> {
        let too_long = |error: &io::Error| error.raw_os_error() == Some(libc::EMSGSIZE);
        let sent = match self.socket.send(datagram) {
            Err(error) if too_long(&error) => self.socket.send(datagram),
            sent => sent,
        };
        sent.map(drop)
    }

    /// Returns whether a datagram fits into one packet of the path, as far as the kernel knows its MTU.
    fn fits_one_packet(&self) -> bool {
        let is_ipv6 = |peer: SocketAddr| peer.ip().to_canonical().is_ipv6();
        let headers = if self.socket.peer_addr().is_ok_and(is_ipv6) {
            IPV6_HEADERS
        } else {
            IPV4_HEADERS
        };
        path_mtu(&self.socket).is_ok_and(|mtu| self.segment + headers <= mtu as usize)
    }

    /// Receives one datagram from the peer into `buffer`, if one waits, and returns its length.
    ///
    /// # Errors
    /// Those of recv(2).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::sys::socket::recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends one datagram beside the stream.
    ///
    /// # Errors
    /// Those of send(2).
    pub fn answer(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send(datagram).map(drop)
    }

    fn cut_every(&self, bytes: usize) -> io::Result<()> {
        let bytes = i32::try_from(bytes).expect("at most LONGEST_TRAIN");
        Ok(setsockopt(&self.socket, sockopt::UdpGsoSegment, &bytes)?)
    }
}

/// Returns whether the kernel refuses trains and not the datagrams (`udp_send_skb` of net/ipv4/udp.c).
fn refuses_trains(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP)
    )
}

/// The receiving end of a stream of datagrams. It never blocks.
#[derive(Debug)]
pub struct TrainReceiver {
    socket: UdpSocket,
    causes: DropCauses,
}

/// The buffer into which trains are received, one after the other.
#[derive(Debug)]
pub struct TrainBuffer {
    bytes: Vec<u8>,
    control: Vec<u8>,
}

/// One or more datagrams from one peer that arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedTrain<'a> {
    /// The payloads of all of them.
    pub bytes: &'a [u8],
    /// Payload bytes of each datagram except the last, which may be shorter.
    pub segment: usize,
    /// The time in `CLOCK_REALTIME` at which the kernel received the first of them, if it reports that.
    pub stamp: Option<Nanos>,
    /// Number of trains and datagrams that the socket had dropped since it was opened when this one was queued
    /// (`SO_RXQ_OVFL`), because it was full or because their checksum was wrong ([`TrainReceiver::full_drops`]).
    pub drops: u32,
}

impl TrainReceiver {
    /// Prepares a connected socket and requests a receive buffer of `buffer` bytes.
    ///
    /// # Errors
    /// The socket refuses to be non-blocking or to have its buffer set.
    pub fn new(socket: UdpSocket, buffer: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &buffer)?;
        }
        // Each of these is optional. Without them, datagrams arrive one by one, without timestamps, or without a count
        // of drops.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        let _ = setsockopt(&socket, sockopt::RxqOvfl, &1);
        let causes = DropCauses::watch();
        Ok(Self { socket, causes })
    }

    /// Receives the next train; `None` if none waits.
    ///
    /// # Errors
    /// Those of recvmsg(2): `ConnectionRefused` if an ICMP error says that nobody listens at the far end.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut TrainBuffer,
    ) -> io::Result<Option<ReceivedTrain<'a>>> {
        let mut slices = [IoSliceMut::new(&mut buffer.bytes)];
        let control = Some(buffer.control.as_mut_slice());
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<()>(fd, &mut slices, control, MsgFlags::MSG_DONTWAIT) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let length = message.bytes;
        let mut train = ReceivedTrain {
            bytes: &[],
            segment: length.max(1),
            stamp: None,
            drops: 0,
        };
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(bytes) if bytes > 0 => {
                    train.segment = usize::try_from(bytes).unwrap_or(train.segment);
                }
                ControlMessageOwned::ScmTimestampns(stamp) => {
                    let since_epoch = Duration::from(stamp).as_nanos();
                    train.stamp = u64::try_from(since_epoch).ok().map(Nanos);
                }
                ControlMessageOwned::RxqOvfl(drops) => train.drops = drops,
                _ => {}
            }
        }
        train.bytes = &buffer.bytes[..length];
        Ok(Some(train))
    }

    /// Returns the bytes that the socket can hold, as the kernel counts them; 0 if it does not report them.
    pub fn room(&self) -> usize {
        // The kernel reports twice the requested size, half of which is for its own use.
        getsockopt(&self.socket, sockopt::RcvBuf).unwrap_or(0) / 2
    }

    /// Returns the number of trains and datagrams that the socket has dropped so far, because it was full or because
    /// their checksum was wrong. It does not require a later datagram.
    ///
    /// # Errors
    /// The kernel does not report it (before 4.12).
    pub fn drops(&self) -> io::Result<u32> {
        /// Index of `SK_MEMINFO_DROPS` of linux/sock_diag.h, the last of the variables.
        const DROPS: usize = 8;
        let variables: [u8; 4 * (DROPS + 1)] =
            socket_option::get(&self.socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        let [.., a, b, c, d] = variables;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    /// Returns how many of the first `drops` drops found the socket full. The calling thread must be in the socket's
    /// network namespace.
    pub fn full_drops(&self, drops: u32) -> FullDrops {
        self.causes.full(drops.into())
    }

    /// Sends one datagram to the peer.
    ///
    /// # Errors
    /// Those of send(2).
    pub fn answer(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send(datagram).map(drop)
    }
}

impl Default for TrainBuffer {
    /// Creates an empty buffer.
    fn default() -> Self {
        Self {
            bytes: vec![0; RECEIVE_BYTES],
            control: nix::cmsg_space!(TimeSpec, u32, i32),
        }
    }
}

impl AsFd for TrainReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    const SEGMENT: usize = 1000;

    fn pair() -> (TrainSender, TrainReceiver) {
        let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
        sending.connect(receiving.local_addr().unwrap()).unwrap();
        receiving.connect(sending.local_addr().unwrap()).unwrap();
        (
            TrainSender::new(sending, SEGMENT, 1 << 20).unwrap(),
            TrainReceiver::new(receiving, 1 << 20).unwrap(),
        )
    }

    fn await_datagram(socket: impl AsFd) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(5000u16)).unwrap(), 1);
    }

    /// Receives all bytes that were sent, in order, as segments.
    fn receive(receiver: &TrainReceiver, bytes: usize) -> Vec<Vec<u8>> {
        let (mut buffer, mut segments, mut got) = (TrainBuffer::default(), Vec::new(), 0);
        while got < bytes {
            await_datagram(receiver);
            let train = receiver.receive(&mut buffer).unwrap().unwrap();
            segments.extend(train.bytes.chunks(train.segment).map(<[u8]>::to_vec));
            got += train.bytes.len();
        }
        segments
    }

    #[test]
    fn a_train_arrives_as_its_datagrams() {
        let (mut sender, receiver) = pair();
        let train: Vec<u8> = (0..=u8::MAX).cycle().take(10 * SEGMENT).collect();
        assert_eq!(sender.send(&train).unwrap(), 10);
        let expected: Vec<Vec<u8>> = train.chunks(SEGMENT).map(<[u8]>::to_vec).collect();
        assert_eq!(receive(&receiver, train.len()), expected);
        assert_eq!(receiver.receive(&mut TrainBuffer::default()).unwrap(), None);
    }

    #[test]
    fn the_kernel_timestamps_arriving_datagrams() {
        let (mut sender, receiver) = pair();
        sender.send(&[7; SEGMENT]).unwrap();
        await_datagram(&receiver);
        let mut buffer = TrainBuffer::default();
        let train = receiver.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((train.bytes.len(), train.segment), (SEGMENT, SEGMENT));
        assert!(train.stamp.is_some());
    }

    #[test]
    fn datagrams_of_more_than_half_a_train_leave_one_by_one() {
        let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
        sending.connect(receiving.local_addr().unwrap()).unwrap();
        let sender = TrainSender::new(sending, 60_000, 1 << 20).unwrap();
        assert_eq!(sender.most_segments(), 1);
    }

    #[test]
    fn a_kernel_that_refuses_trains_gets_single_datagrams() {
        // The kernel refuses trains, also of one datagram, on a socket that sends no checksums.
        for count in [1, 10] {
            let (mut sender, receiver) = pair();
            assert!(sender.most_segments() > 1);
            let without: libc::c_int = 1;
            socket_option::set(
                &sender.socket,
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                &without,
            )
            .unwrap();
            let train = vec![7; count * SEGMENT];
            assert_eq!(sender.send(&train).unwrap(), count);
            assert_eq!(sender.most_segments(), 1);
            assert_eq!(
                receive(&receiver, train.len()),
                vec![vec![7; SEGMENT]; count]
            );
        }
    }

    #[test]
    fn drops_of_a_full_socket_are_counted_immediately_and_with_the_next_datagram() {
        let (mut sender, receiver) = pair();
        setsockopt(&receiver.socket, sockopt::RcvBuf, &1).unwrap();
        let datagram = [0; SEGMENT];
        for _ in 0..100 {
            sender.send(&datagram).unwrap();
        }
        let dropped = receiver.drops().unwrap();
        assert!((1..100).contains(&dropped), "{dropped}");
        let mut buffer = TrainBuffer::default();
        let before =
            std::iter::from_fn(|| receiver.receive(&mut buffer).unwrap().map(drop)).count();
        assert_eq!(before, 100 - usize::try_from(dropped).unwrap());
        sender.send(&datagram).unwrap();
        await_datagram(&receiver);
        let next = receiver.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(next.drops, dropped);
    }

    #[test]
    fn a_send_to_a_closed_port_is_refused() {
        let (mut sender, receiver) = pair();
        drop(receiver);
        let refused = (0..100).find_map(|_| sender.send(&[0; SEGMENT]).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
}
