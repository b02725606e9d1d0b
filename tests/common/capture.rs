//! Frames as the kernel saw them: on a ring of one interface, or on a plain socket for all of a namespace.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use model::Nanos;
use netio::netns::NetNs;
use netio::{AfPacket, Lent, Port as _, Received, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use super::process::wait_for;

/// Bytes kept of each frame: headers and the beginning of what they carry.
const KEPT: usize = 128;

/// Frames that a capture has room for: all of a test's, so that a busy machine that never lets it read loses none.
const SLOTS: usize = 4800;

/// A frame that arrived by an interface.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The kernel's arrival stamp.
    pub(crate) at: Nanos,
    /// L2 bytes, without FCS.
    pub(crate) len: usize,
    /// The first of them.
    pub(crate) head: Vec<u8>,
}

/// A capture of what arrives by one interface, GSO frames whole.
pub(crate) struct Capture {
    thread: JoinHandle<Result<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
}

impl Capture {
    /// Starts to capture on `interface` of `ns`.
    pub(crate) fn start(ns: &NetNs, interface: &str) -> Result<Self> {
        let mut port = ns.run(|| AfPacket::open(interface, SLOTS))??;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let interface = interface.to_owned();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            loop {
                // Read before the ring is emptied: what came before the stop is taken.
                let last = stopped.load(Ordering::Acquire);
                port.refresh(clock::now());
                while let Some(received) = port.take() {
                    seen.push(kept(received)?);
                }
                if last {
                    break;
                }
                wait_readable(&port)?;
            }
            let missed = port.missed();
            ensure!(
                missed == 0,
                "the capture on {interface} missed {missed} frames"
            );
            Ok(seen)
        });
        Ok(Self { thread, stop })
    }

    /// What has arrived until now.
    pub(crate) fn finish(self) -> Result<Vec<Seen>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the capture does not panic")
    }
}

fn wait_readable(port: &AfPacket) -> Result<()> {
    let mut fds = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(20u8)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn kept(received: Received<impl Lent>) -> Result<Seen> {
    let Received::Frame(frame) = received else {
        anyhow::bail!("a frame was cut short");
    };
    let bytes = frame.bytes();
    Ok(Seen {
        at: frame.arrival,
        len: bytes.len() + if frame.vlan.is_some() { 4 } else { 0 },
        head: bytes[..bytes.len().min(KEPT)].to_vec(),
    })
}

/// Which way a frame went past a [`Tap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into the namespace.
    In,
    /// Out of it.
    Out,
}

/// A frame that went past a tap.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) way: Way,
    /// The interface's number.
    pub(crate) interface: usize,
    /// The kernel's stamp, on the wall clock, all taps alike.
    pub(crate) at: Nanos,
    /// L2 bytes, without FCS.
    pub(crate) len: usize,
    pub(crate) head: Vec<u8>,
}

/// A plain packet socket on all interfaces of a namespace. It sees what leaves at the moment of its sending, and its
/// buffer holds few frames: for flows with a small window.
pub(crate) struct Tap {
    socket: OwnedFd,
}

impl Tap {
    pub(crate) fn open(ns: &NetNs) -> Result<Self> {
        let socket = ns.run(|| {
            socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )
        })?;
        let socket = socket.context("opening a packet socket")?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // More than the default where that is allowed.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20));
        let tap = Self { socket };
        ns.run(|| tap.await_stamps())??;
        Ok(tap)
    }

    /// Waits until the kernel stamps frames as they pass. It begins some time after it was asked to (netstamp_work in
    /// net/core/dev.c); until then a frame gets the time of its reading for a stamp.
    fn await_stamps(&self) -> Result<()> {
        let loopback = UdpSocket::bind("127.0.0.1:0")?;
        wait_for("frames to be stamped", || {
            loopback.send_to(&[0], loopback.local_addr()?)?;
            let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
            let mut frames = 0;
            let mut stamped = 0;
            while let Some(frame) = self.next()? {
                frames += 1;
                stamped += u32::from(u128::from(frame.at.0) < before);
            }
            Ok((frames > 0 && stamped == frames).then_some(()))
        })
    }

    /// The next frame that is there, if any.
    pub(crate) fn next(&self) -> Result<Option<Passed>> {
        let mut head = vec![0; KEPT];
        let mut parts = [IoSliceMut::new(&mut head)];
        let mut control = nix::cmsg_space!(TimeSpec);
        // MSG_TRUNC: the frame's own length, however little of it is kept.
        let flags = MsgFlags::MSG_TRUNC;
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error).context("reading a tap"),
        };
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(at) => Some(at),
            _ => None,
        });
        let stamp = stamp.context("a frame without a stamp")?;
        let from = message.address.context("a frame without an address")?;
        let (interface, len) = (from.ifindex(), message.bytes);
        // PACKET_OUTGOING in include/uapi/linux/if_packet.h.
        let way = if from.pkttype() == 4 {
            Way::Out
        } else {
            Way::In
        };
        let at =
            Nanos(stamp.tv_sec().unsigned_abs() * 1_000_000_000 + stamp.tv_nsec().unsigned_abs());
        head.truncate(len);
        Ok(Some(Passed {
            way,
            interface,
            at,
            len,
            head,
        }))
    }

    /// Runs `work` and collects what goes past meanwhile.
    pub(crate) fn during<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<(T, Vec<Passed>)> {
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            let mut passed = Vec::new();
            loop {
                let last = working.is_finished();
                while let Some(frame) = self.next()? {
                    passed.push(frame);
                }
                if last {
                    break;
                }
                let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut fds, PollTimeout::from(20u8));
            }
            let done = working.join().expect("the work does not panic")?;
            Ok((done, passed))
        })
    }
}
