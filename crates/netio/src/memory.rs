//! A port in memory for virtual time: it takes frames with their arrival times and returns frames with their departure
//! times.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;

use model::Nanos;

use crate::frame::{Frame, Gso};
use crate::port::{Capabilities, Missed, PortSet, ReceivedFrame, SendTimes, TxFrame};

/// A port, number 0 of its set, whose caller provides arriving frames and collects departed ones.
#[derive(Debug)]
pub struct MemoryPort {
    gso: bool,
    waiting: VecDeque<Frame>,
    sent: Vec<Sent>,
    now: Nanos,
}

/// A frame that left by a [`MemoryPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Departure time.
    pub departure: Nanos,
    /// The segments, if it is a GSO frame; its checksum is then partial.
    pub gso: Option<Gso>,
    /// The bytes of the frame.
    pub bytes: Vec<u8>,
}

impl MemoryPort {
    /// Creates a port that sends GSO frames as such, or segment by segment.
    pub fn new(gso: bool) -> Self {
        Self {
            gso,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            now: Nanos(0),
        }
    }

    /// Adds a frame after those that were added before. It can be taken from its arrival time on.
    pub fn arrive(&mut self, frame: Frame) {
        self.waiting.push_back(frame);
    }

    /// Returns the arrival time of the next frame, even if that time has not come.
    pub fn next_arrival(&self) -> Option<Nanos> {
        Some(self.waiting.front()?.arrival)
    }

    /// Returns the frames that were sent since the last call.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}

impl PortSet for MemoryPort {
    type Lent = Infallible;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: self.gso,
            tunnel_gso: false,
            checksum: self.gso,
            vlan: false,
            arrival_stamp: true,
            largest_frame: usize::MAX,
        }
    }

    fn refresh(&mut self, now: Nanos) {
        self.now = now;
    }

    fn has_arrivals(&self) -> bool {
        self.arrival().is_some()
    }

    fn arrival(&self) -> Option<Nanos> {
        self.next_arrival().filter(|at| *at <= self.now)
    }

    fn take(&mut self) -> Option<(usize, ReceivedFrame<Infallible>)> {
        self.arrival()?;
        let frame = self.waiting.pop_front()?;
        Some((0, ReceivedFrame::Frame(frame)))
    }

    fn send(
        &mut self,
        _: usize,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        let departure = self.now.max(not_before);
        self.sent.extend(frames.iter().map(|frame| Sent {
            departure,
            gso: frame.offload.gso,
            bytes: [frame.head.bytes(), &frame.body].concat(),
        }));
        let sending = SendTimes {
            begun: departure,
            ended: departure,
        };
        (0..frames.len()).for_each(|index| sent(index, Ok(sending)));
    }

    fn missed(&mut self) -> Missed {
        Missed::default()
    }

    fn rejoin(&mut self, _: usize, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
