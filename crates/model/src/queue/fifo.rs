//! A waiting room that drops at its tail.

use alloc::collections::VecDeque;

use crate::path::Transit;
use crate::queue::server::{Load, Service};
use crate::{Bytes, QueueLimit};

/// First in, first out, up to a limit; the packet in service is not in here, nor are those in flight.
#[derive(Debug)]
pub(crate) struct Fifo {
    limit: QueueLimit,
    waiting: VecDeque<Transit>,
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

    /// Lets `transit` wait for `service`, or refuses it if that would exceed the limit.
    pub(crate) fn push(&mut self, transit: Transit, service: &Service) -> bool {
        let bytes = Bytes(self.bytes.0 + transit.packet.len.0);
        let load = self.load.plus(service.load(transit.packet.len));
        let fits = match self.limit {
            QueueLimit::Packets(limit) => load.packets <= u64::from(limit),
            QueueLimit::Bytes(limit) => bytes <= limit,
            QueueLimit::Time(limit) => service.time(load) <= limit,
        };
        if fits {
            self.waiting.push_back(transit);
            (self.bytes, self.load) = (bytes, load);
            self.longest = self.longest.max(self.waiting.len());
        }
        fits
    }

    /// The packet that waited longest.
    pub(crate) fn pop(&mut self, service: &Service) -> Option<Transit> {
        let transit = self.waiting.pop_front()?;
        self.bytes.0 -= transit.packet.len.0;
        self.load = self.load.minus(service.load(transit.packet.len));
        Some(transit)
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
