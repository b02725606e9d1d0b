//! A port in memory: for virtual time, where a test is the wire.

use std::collections::VecDeque;
use std::io;

use model::Nanos;

use crate::checksum;
use crate::frame::{Frame, Gso, Offload};
use crate::port::{Capabilities, Piece, Port, Received};

/// A port whose frames a caller puts in and takes out.
#[derive(Debug)]
pub struct Memory {
    capabilities: Capabilities,
    waiting: VecDeque<Frame>,
    sent: Vec<Sent>,
    now: Nanos,
}

/// A frame that left by a [`Memory`] port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The train that it is, if it is one.
    pub gso: Option<Gso>,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl Memory {
    /// A port that sends trains as such, or segment by segment.
    #[must_use]
    pub fn new(gso: bool) -> Self {
        let capabilities = Capabilities { gso };
        Self {
            capabilities,
            waiting: VecDeque::new(),
            sent: Vec::new(),
            now: Nanos(0),
        }
    }

    /// Puts a frame on the wire; it is there from its arrival time on.
    pub fn arrive(&mut self, frame: Frame) {
        self.waiting.push_back(frame);
    }

    /// Takes out what has been sent since the last call.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}

impl Port for Memory {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn refresh(&mut self, now: Nanos) {
        self.now = now;
    }

    fn arrival(&mut self) -> Option<Nanos> {
        let next = self.waiting.front()?.arrival;
        (next <= self.now).then_some(next)
    }

    fn take(&mut self) -> Option<Received> {
        self.arrival()?;
        self.waiting.pop_front().map(Received::Frame)
    }

    fn send(&mut self, pieces: &[Piece<'_>], _failed: &mut dyn FnMut(usize, io::Error)) {
        self.sent.extend(pieces.iter().map(Sent::of));
    }

    fn last_taken(&self) -> u64 {
        0
    }

    fn keep_from(&self) -> u64 {
        0
    }

    fn missed(&mut self) -> u64 {
        0
    }
}

impl Sent {
    /// A single packet's checksum is completed as a card would; a train's stays partial.
    fn of(piece: &Piece<'_>) -> Self {
        let mut bytes = [piece.head.bytes(), &piece.body].concat();
        let Offload { gso, checksum } = piece.offload;
        if let (None, Some(partial)) = (gso, checksum) {
            let start = usize::from(partial.start);
            let place = start + usize::from(partial.offset);
            let sum = !checksum::sum(&[&bytes[start..]]);
            bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        Self { gso, bytes }
    }
}
