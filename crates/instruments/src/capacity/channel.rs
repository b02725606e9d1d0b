//! The socket of a test. It sends load PDUs in trains, and receives datagrams with their time of arrival.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netio::clock;
use netio::udp::{LONGEST_TRAIN, MOST_SEGMENTS, TrainBuffer, TrainReceiver};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::pacer::Train;
use super::rates::payload_to_send;
use super::receiver::ArrivalTime;
use super::session::Transmit;
use super::wire::{LOAD_HEADER, LoadHeader, Stamp};
use crate::service::DirectionTraffic;

/// The requested receive buffer. Without CAP_NET_ADMIN the kernel grants at most net.core.rmem_max.
const SOCKET_BUFFER: usize = 4 << 20;

/// A connected non-blocking UDP socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: TrainReceiver,
    incoming: TrainBuffer,
    outgoing: Vec<u8>,
    ipv6: bool,
    segmentation: bool,
    sequence: u32,
    /// The datagrams that the socket dropped for any reason.
    dropped: u32,
    /// Whether the kernel stamped the latest arrival.
    pub(super) kernel_stamps: bool,
    /// The load PDUs for which the send buffer had no room.
    pub(super) unsent: u64,
    /// The load PDUs that were sent.
    pub(super) sent: DirectionTraffic,
    refusal_is_due: bool,
}

/// Datagrams that were received together. All have the same size, except that the last may be shorter.
#[derive(Debug)]
pub(crate) struct ReceivedDatagrams<'a> {
    /// The consecutive payloads.
    bytes: &'a [u8],
    /// The size of each payload in bytes.
    segment: usize,
    /// The time of arrival in the kernel, or in this program if the kernel does not tell.
    pub(crate) at: ArrivalTime,
}

impl ReceivedDatagrams<'_> {
    /// Returns each datagram.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment)
    }
}

impl Channel {
    /// Wraps a connected socket.
    ///
    /// # Errors
    /// Returns an error if the socket is not connected, or cannot be made non-blocking.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let ipv6 = socket.peer_addr()?.ip().to_canonical().is_ipv6();
        let mut outgoing = vec![0; LONGEST_TRAIN];
        // Links that compress would shrink zeros.
        fastrand::fill(&mut outgoing);
        Ok(Self {
            socket: TrainReceiver::new(socket, SOCKET_BUFFER)?,
            incoming: TrainBuffer::default(),
            outgoing,
            ipv6,
            segmentation: true,
            sequence: 0,
            dropped: 0,
            kernel_stamps: false,
            unsent: 0,
            sent: DirectionTraffic::default(),
            refusal_is_due: false,
        })
    }

    /// Ignores one ICMP refusal that arrives before the peer's first datagram. Such a refusal concerns a message that
    /// was sent before the peer had a socket for it.
    pub(crate) fn after_null_request(mut self) -> Self {
        self.refusal_is_due = true;
        self
    }

    /// Receives the datagrams that wait, if there are any.
    ///
    /// # Errors
    /// Returns an error if the peer's host refuses datagrams to this port, or the socket fails.
    pub(crate) fn receive(&mut self) -> io::Result<Option<ReceivedDatagrams<'_>>> {
        let train = match self.socket.receive(&mut self.incoming) {
            Ok(Some(train)) => train,
            Ok(None) => return Ok(None),
            Err(error) if is_due_refusal(&error, &mut self.refusal_is_due) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.refusal_is_due = false;
        let read = now();
        self.dropped = train.drops.max(self.dropped);
        self.kernel_stamps = train.stamp.is_some();
        Ok(Some(ReceivedDatagrams {
            bytes: train.bytes,
            segment: train.segment,
            at: ArrivalTime {
                wall: train.stamp.map_or(read.wall, |stamp| stamp.0),
                ..read
            },
        }))
    }

    /// Returns an upper bound for the datagrams and trains that the full receive buffer dropped. Datagrams with a wrong
    /// checksum do not count.
    pub(super) fn host_drops(&self) -> u32 {
        let full = self.socket.full_drops(self.dropped).most;
        u32::try_from(full).unwrap_or(u32::MAX)
    }

    /// Sends what the session asks for.
    ///
    /// # Errors
    /// Returns the errors of [`receive`](Self::receive).
    pub(crate) fn transmit(&mut self, transmit: &Transmit) -> io::Result<()> {
        match transmit {
            Transmit::Message(message) => self.send(message),
            Transmit::Probe(probe) => {
                self.sequence = 1;
                self.send(probe)
            }
            Transmit::Load(train, header) => self.send_load(*train, header),
        }
    }

    /// Sends one message. If the socket has no room, the message is lost.
    ///
    /// # Errors
    /// Returns the errors of [`receive`](Self::receive).
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self.socket.answer(message) {
            Err(error) if is_full(&error) => Ok(()),
            Err(error) if is_due_refusal(&error, &mut self.refusal_is_due) => self.send(message),
            sent => sent,
        }
    }

    /// Sends a train of load PDUs, each with `header` and its own number, size and sending time.
    ///
    /// A PDU for which the socket has no room gets no number and counts as unsent, because the network did not lose it.
    ///
    /// # Errors
    /// Returns the errors of [`receive`](Self::receive).
    fn send_load(&mut self, train: Train, header: &LoadHeader) -> io::Result<()> {
        let payload = payload_to_send(train.payload, self.ipv6);
        let per_call = if self.segmentation {
            (LONGEST_TRAIN / payload).min(MOST_SEGMENTS)
        } else {
            1
        };
        let mut left = train.count;
        while left > 0 {
            let count = left.min(per_call);
            self.send_equal(payload, count, header)?;
            left -= count;
        }
        if train.addon > 0 {
            self.send_equal(payload_to_send(train.addon, self.ipv6), 1, header)?;
        }
        Ok(())
    }

    fn send_equal(&mut self, payload: usize, count: usize, header: &LoadHeader) -> io::Result<()> {
        let mut header = LoadHeader {
            sequence: self.sequence,
            payload: u16::try_from(payload).unwrap_or(u16::MAX),
            sent: Stamp::of(now().wall),
            ..*header
        };
        for datagram in self.outgoing[..payload * count].chunks_mut(payload) {
            header.sequence = header.sequence.wrapping_add(1);
            datagram[..LOAD_HEADER].copy_from_slice(&header.encode());
        }
        let bytes = &self.outgoing[..payload * count];
        match self.send_segments(bytes, payload) {
            Ok(()) => {
                self.sequence = header.sequence;
                self.sent.packets += count as u64;
                self.sent.bytes += bytes.len() as u64;
            }
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => self.unsent += count as u64,
            // The kernel cannot segment a train into datagrams that exceed the path's MTU, but it fragments single
            // datagrams.
            Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EIO) if count > 1 => {
                self.segmentation = false;
                for _ in 0..count {
                    self.send_equal(payload, 1, &header)?;
                }
            }
            Err(errno) if is_due_refusal(&errno.into(), &mut self.refusal_is_due) => {
                return self.send_equal(payload, count, &header);
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    fn send_segments(&self, bytes: &[u8], payload: usize) -> Result<(), Errno> {
        let fd = self.socket.as_fd().as_raw_fd();
        let slices = [IoSlice::new(bytes)];
        let size = u16::try_from(payload).map_err(|_| Errno::EMSGSIZE)?;
        let segments = [ControlMessage::UdpGsoSegments(&size)];
        let control = &segments[..usize::from(bytes.len() > payload)];
        sendmsg::<()>(fd, &slices, control, MsgFlags::MSG_DONTWAIT, None).map(drop)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the current time of both clocks.
pub(crate) fn now() -> ArrivalTime {
    ArrivalTime {
        wall: clock::wall().0,
        mono: clock::now(),
    }
}

/// Returns whether `error` is the one refusal to ignore, after which none is ignored.
fn is_due_refusal(error: &io::Error, is_due: &mut bool) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused && std::mem::take(is_due)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (a, b) = (bound(), bound());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (Channel::new(a).unwrap(), Channel::new(b).unwrap())
    }

    fn train(payload: u32, count: usize, addon: u32) -> Train {
        Train {
            payload,
            count,
            addon,
        }
    }

    fn bound() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    /// Receives `count` datagrams and returns their sequence numbers and sizes.
    fn take(channel: &mut Channel, count: usize) -> Vec<(u32, usize)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(5000u16)).unwrap(), 1);
            let Some(arrived) = channel.receive().unwrap() else {
                continue;
            };
            for datagram in arrived.datagrams() {
                let header = LoadHeader::decode(datagram).unwrap();
                assert_eq!(usize::from(header.payload), datagram.len());
                taken.push((header.sequence, datagram.len()));
            }
        }
        taken
    }

    #[test]
    fn a_train_arrives_as_numbered_load_pdus() {
        let (mut from, mut to) = pair();
        let train = train(1222, 90, 97);
        from.send_load(train, &LoadHeader::default()).unwrap();
        let taken = take(&mut to, 91);
        let numbers: Vec<u32> = taken.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=91).collect::<Vec<_>>());
        assert!(taken[..90].iter().all(|(_, size)| *size == 1222));
        assert_eq!(taken[90].1, 97);
    }

    #[test]
    fn datagrams_above_the_mtu_are_sent_one_by_one() {
        let (mut from, mut to) = pair();
        from.segmentation = false;
        let train = train(8972, 12, 0);
        from.send_load(train, &LoadHeader::default()).unwrap();
        assert_eq!(take(&mut to, 12).len(), 12);
    }

    #[test]
    fn a_closed_peer_is_an_error() {
        let (mut from, to) = pair();
        drop(to);
        let train = train(100, 1, 0);
        let refused = (0..100).find_map(|_| from.send_load(train, &LoadHeader::default()).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_refusal_of_a_null_request_is_ignored() {
        let train = train(100, 3, 0);
        type Call = fn(&mut Channel, Train) -> io::Result<()>;
        let calls: [Call; 3] = [
            |channel, _| channel.receive().map(drop),
            |channel, _| channel.send(b"answer"),
            |channel, train| channel.send_load(train, &LoadHeader::default()),
        ];
        for call in calls {
            let (from, to) = (bound(), bound());
            let peer = to.local_addr().unwrap();
            from.connect(peer).unwrap();
            drop(to);
            from.send(b"null request").unwrap();
            // The refusal waits in the socket.
            let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(5000u16)).unwrap(), 1);
            let to = UdpSocket::bind(peer).unwrap();
            to.connect(from.local_addr().unwrap()).unwrap();
            let mut from = Channel::new(from).unwrap().after_null_request();
            call(&mut from, train).unwrap();
            from.send_load(train, &LoadHeader::default()).unwrap();
            let (mut buffer, mut received) = ([0; 200], 0);
            while received < 3 {
                received = if to.recv(&mut buffer).unwrap() == 100 {
                    received + 1
                } else {
                    0
                };
            }
        }
    }

    #[test]
    fn a_second_refusal_is_an_error() {
        let (from, to) = pair();
        let mut from = from.after_null_request();
        drop(to);
        let refused = (0..100).find_map(|_| from.send(b"answer").err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
}
