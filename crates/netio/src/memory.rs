//! A port in memory: frames with their arrival times in, frames with their departure times out, in virtual time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;

use model::Nanos;

use crate::frame::{Frame, Gso};
use crate::port::{Capabilities, Missed, PortSet, ReceivedFrame, SendTimes, TxFrame};

/// A port, number 0 of its set, whose frames a caller puts in and takes out.
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
    /// When it left.
    pub departure: Nanos,
    /// How it is segmented, if it is a GSO frame; its checksum is a partial one then.
    pub gso: Option<Gso>,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl MemoryPort {
    /// A port that sends GSO frames as such, or segment by segment.
    pub fn new(gso: bool) -> Self {
        Self {
            gso,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            now: Nanos(0),
        }
    }

    /// Puts a frame on the wire, after those put there before; it can be taken from its arrival time on.
    pub fn arrive(&mut self, frame: Frame) {
        self.waiting.push_back(frame);
    }

    /// When the next frame arrives, even if that time has not come.
    pub fn next_arrival(&self) -> Option<Nanos> {
        Some(self.waiting.front()?.arrival)
    }

    /// Takes out what has been sent since the last call.
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
