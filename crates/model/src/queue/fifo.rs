//! A drop-tail queue.

use alloc::collections::VecDeque;

use crate::in_flight::InFlight;
use crate::queue::service::{Load, Service};
use crate::units::{Bytes, QueueLimit};

/// First in, first out, up to a limit; neither the packet in service nor those further along the path are in it.
#[derive(Debug)]
pub(crate) struct Fifo {
    limit: QueueLimit,
    waiting: VecDeque<InFlight>,
    /// L2 bytes waiting.
    bytes: Bytes,
    /// What waits, as the server counts it.
    load: Load,
    longest: usize,
}

impl Fifo {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        Self {
            limit,
            waiting: VecDeque::new(),
            bytes: Bytes(0),
            load: Load::default(),
            longest: 0,
        }
    }

    /// Queues `in_flight` for `service`, or refuses it if that would exceed the limit.
    pub(crate) fn push(&mut self, in_flight: InFlight, service: &Service) -> bool {
        let bytes = Bytes(self.bytes.0 + in_flight.packet.len.0);
        let load = self.load.plus(service.load(in_flight.packet.len));
        let fits = match self.limit {
            QueueLimit::Packets(limit) => load.packets <= u64::from(limit),
            QueueLimit::Bytes(limit) => bytes <= limit,
            QueueLimit::Time(limit) => service.time(load) <= limit,
        };
        if fits {
            self.waiting.push_back(in_flight);
            (self.bytes, self.load) = (bytes, load);
            self.longest = self.longest.max(self.waiting.len());
        }
        fits
    }

    /// The packet that waited longest.
    pub(crate) fn pop(&mut self, service: &Service) -> Option<InFlight> {
        let in_flight = self.waiting.pop_front()?;
        self.bytes.0 -= in_flight.packet.len.0;
        self.load = self.load.minus(service.load(in_flight.packet.len));
        Some(in_flight)
    }

    /// Packets waiting now.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The most packets that ever waited.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }
}
