//! Captures frames as the kernel sees them: by the ring of one interface, or by a plain socket for all interfaces of a
//! namespace.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use model::Nanos;
use netio::netns::NetNs;
use netio::{AfPacket, Lent, Missed, PortSet as _, ReceivedFrame, RingSlots, Wakes as _, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::process::wait_for;

/// Bytes that are kept of each frame: the headers and the start of the payload.
const KEPT: usize = 128;

/// Number of frames for which a capture has room. It suffices for all frames of a test, so that none is lost even if
/// the capture is never scheduled.
const SLOTS: RingSlots = RingSlots {
    small: 16 << 10,
    large: 4800,
};

/// A frame that arrived at an interface.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The kernel's arrival timestamp.
    pub at: Nanos,
    /// L2 bytes without FCS.
    pub len: usize,
    /// The first bytes of the frame.
    pub head: Vec<u8>,
}

/// A capture of the frames that arrive at one interface, with GSO frames unsegmented.
pub struct Capture {
    thread: JoinHandle<Result<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
}

impl Capture {
    /// Starts to capture on `interface` of `ns`.
    pub fn start(ns: &NetNs, interface: &str) -> Result<Self> {
        let mut port = ns.run(|| AfPacket::open(interface, SLOTS))??;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let interface = interface.to_owned();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            loop {
                // This is read before the ring is emptied, so that all frames before the stop are taken.
                let last = stopped.load(Ordering::Acquire);
                port.refresh(clock::now());
                while let Some((_, received)) = port.take() {
                    seen.push(kept(received)?);
                }
                if last {
                    break;
                }
                wait_readable(&port)?;
            }
            let missed = port.missed();
            ensure!(
                missed == Missed::default(),
                "the capture on {interface} missed frames: {missed:?}"
            );
            Ok(seen)
        });
        Ok(Self { thread, stop })
    }

    /// Ends the capture, and returns the frames that have arrived.
    pub fn finish(self) -> Result<Vec<Seen>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the capture does not panic")
    }
}

fn wait_readable(port: &AfPacket) -> Result<()> {
    let mut fds: Vec<PollFd<'_>> = port
        .fds()
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    match poll(&mut fds, PollTimeout::from(20u8)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn kept(received: ReceivedFrame<impl Lent>) -> Result<Seen> {
    let ReceivedFrame::Frame(frame) = received else {
        anyhow::bail!("a frame was cut short");
    };
    let bytes = frame.bytes();
    Ok(Seen {
        at: frame.arrival,
        len: bytes.len() + if frame.vlan.is_some() { 4 } else { 0 },
        head: bytes[..bytes.len().min(KEPT)].to_vec(),
    })
}

/// The direction in which a frame passed a [`Tap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapDirection {
    /// Into the namespace.
    In,
    /// Out of the namespace.
    Out,
}

/// A frame that passed a tap.
#[derive(Clone, Debug)]
pub struct Passed {
    pub way: TapDirection,
    /// Number of the interface.
    pub interface: usize,
    /// The kernel's timestamp on the wall clock, which is comparable between taps.
    pub at: Nanos,
    /// L2 bytes without FCS.
    pub len: usize,
    pub head: Vec<u8>,
}

/// A plain packet socket on all interfaces of a namespace. It sees leaving frames when they are sent. Its buffer holds
/// few frames, so it is read before each train of a flow with a small window: see [`Flow::run_with`].
///
/// [`Flow::run_with`]: crate::datagrams::Flow::run_with
pub struct Tap {
    socket: OwnedFd,
    /// A socket that sends to itself, to produce frames for the tap.
    loopback: UdpSocket,
    passed: Vec<Passed>,
    /// Number of frames that found the buffer full, as reported with the last frame that did not.
    missed: u32,
}

impl Tap {
    pub fn open(ns: &NetNs) -> Result<Self> {
        let (socket, loopback) = ns.run(|| {
            let kind = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let (family, all) = (AddressFamily::Packet, SockProtocol::EthAll);
            let socket = socket(family, SockType::Raw, kind, all).context("a packet socket")?;
            let loopback = UdpSocket::bind("127.0.0.1:0")?;
            loopback.connect(loopback.local_addr()?)?;
            anyhow::Ok((socket, loopback))
        })??;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        // The buffer is as large as this user may set it, and larger if that is allowed.
        setsockopt(&socket, sockopt::RcvBuf, &(8 << 20))?;
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20));
        let mut tap = Self {
            socket,
            loopback,
            passed: Vec::new(),
            missed: 0,
        };
        tap.await_stamps()?;
        Ok(tap)
    }

    /// Waits until the kernel timestamps frames as they pass. It starts some time after the request (netstamp_work in
    /// net/core/dev.c); until then a frame gets the time at which it is read as its timestamp.
    fn await_stamps(&mut self) -> Result<()> {
        wait_for("frames to be stamped", || {
            self.loopback.send(&[0])?;
            let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
            self.read()?;
            let frames = std::mem::take(&mut self.passed);
            let stamped = frames.iter().all(|frame| u128::from(frame.at.0) < before);
            Ok((!frames.is_empty() && stamped).then_some(()))
        })
    }

    /// Reads the frames that have passed so far.
    pub fn read(&mut self) -> Result<()> {
        while let Some(frame) = self.next()? {
            self.passed.push(frame);
        }
        Ok(())
    }

    /// Ends the tap, and returns the frames that passed and the number of frames that the tap missed.
    pub fn finish(mut self) -> Result<(Vec<Passed>, u32)> {
        self.read()?;
        // The kernel reports with a frame how many it dropped before it.
        self.loopback.send(&[0])?;
        self.read()?;
        Ok((self.passed, self.missed))
    }

    /// Returns the next waiting frame, if there is one.
    fn next(&mut self) -> Result<Option<Passed>> {
        let mut head = vec![0; KEPT];
        let mut parts = [IoSliceMut::new(&mut head)];
        let mut control = nix::cmsg_space!(TimeSpec, u32);
        // With MSG_TRUNC the length is that of the whole frame, however little of it is kept.
        let flags = MsgFlags::MSG_TRUNC;
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error).context("reading a tap"),
        };
        let mut stamp = None;
        for message in message.cmsgs()? {
            match message {
                ControlMessageOwned::ScmTimestampns(at) => stamp = Some(at),
                ControlMessageOwned::RxqOvfl(missed) => self.missed = missed,
                _ => {}
            }
        }
        let stamp = stamp.context("a frame without a stamp")?;
        let from = message.address.context("a frame without an address")?;
        let (interface, len) = (from.ifindex(), message.bytes);
        // PACKET_OUTGOING is defined in include/uapi/linux/if_packet.h.
        let way = if from.pkttype() == 4 {
            TapDirection::Out
        } else {
            TapDirection::In
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
}
