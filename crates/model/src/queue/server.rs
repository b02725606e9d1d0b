//! A server: one packet in service, the others wait.

use crate::path::Transit;
use crate::queue::fifo::Fifo;
use crate::queue::fluctuating::Fluctuating;
use crate::{BitsPerSec, Bytes, Factor, Framing, Nanos, QueueLimit};

/// A bottleneck that serves one packet after the other.
///
/// What it holds are events, not departures computed in advance, so that a change of the rate can
/// reach the packet in service and those that wait.
#[derive(Debug)]
pub(crate) struct Server {
    service: Service,
    room: Fifo,
    in_service: Option<Transit>,
    /// What rounding the busy period's packets up has paid in advance: see [`BitsPerSec::time_with_credit`].
    credit: u64,
}

/// How long a server takes.
#[derive(Debug)]
pub(crate) enum Service {
    /// A rate, and which bytes it counts.
    Rate(BitsPerSec, Framing),
    /// A rate that varies, and which bytes it counts.
    Fluctuating(Fluctuating, Framing),
    /// TOFFEE: a constant a packet, and L2 bytes / factor in microseconds.
    Toffee(Nanos, Option<Factor>),
}

/// Work for a server: packets, and their bytes as its framing counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    bytes: u64,
}

/// What became of a packet that came to a server.
pub(crate) enum Admission {
    /// It is served until then.
    Served(Nanos),
    /// It waits for others.
    Waits,
    /// The waiting room is full.
    Refused,
}

impl Server {
    pub(crate) fn new(service: Service, limit: QueueLimit) -> Self {
        Self {
            service,
            room: Fifo::new(limit),
            in_service: None,
            credit: 0,
        }
    }

    /// Takes `transit` in at `at`.
    pub(crate) fn enter(&mut self, at: Nanos, transit: Transit) -> Admission {
        if self.in_service.is_none() {
            self.rest();
            return Admission::Served(self.serve(at, transit));
        }
        if self.room.push(transit, &self.service) {
            Admission::Waits
        } else {
            Admission::Refused
        }
    }

    /// The packet whose service ends at `at`, and when the next one's will.
    pub(crate) fn release(&mut self, at: Nanos) -> Option<(Transit, Option<Nanos>)> {
        let done = self.in_service.take()?;
        let next = self.room.pop(&self.service);
        Some((done, next.map(|next| self.serve(at, next))))
    }

    /// Packets waiting or in service.
    pub(crate) fn held(&self) -> usize {
        self.room.len() + usize::from(self.in_service.is_some())
    }

    /// The most packets that ever waited.
    pub(crate) fn longest_queue(&self) -> usize {
        self.room.longest()
    }

    fn serve(&mut self, at: Nanos, transit: Transit) -> Nanos {
        let load = self.service.load(transit.packet.len);
        self.in_service = Some(transit);
        match &mut self.service {
            Service::Rate(rate, _) => {
                let (time, credit) = rate.time_with_credit(Bytes(load.bytes), self.credit);
                self.credit = credit;
                at + time
            }
            Service::Fluctuating(rate, _) => rate.serve(at, Bytes(load.bytes)),
            Service::Toffee(..) => at + self.service.time(load),
        }
    }

    /// A busy period begins: what rounding paid in the last one is forgotten.
    fn rest(&mut self) {
        self.credit = 0;
        if let Service::Fluctuating(rate, _) = &mut self.service {
            rate.rest();
        }
    }
}

impl Service {
    /// The work of one packet of `len` L2 bytes.
    pub(crate) fn load(&self, len: Bytes) -> Load {
        let counted = match self {
            Self::Rate(_, framing) | Self::Fluctuating(_, framing) => framing.bytes_counted(len),
            Self::Toffee(..) => len,
        };
        Load {
            packets: 1,
            bytes: counted.0,
        }
    }

    /// How long `load` takes; at the mean of a rate that varies.
    pub(crate) fn time(&self, load: Load) -> Nanos {
        match self {
            Self::Rate(rate, _) => rate.time_for(Bytes(load.bytes)),
            Self::Fluctuating(rate, _) => rate.mean().time_for(Bytes(load.bytes)),
            Self::Toffee(constant, dynamic) => {
                let growing = dynamic.map_or(Nanos::ZERO, |k| k.time_for(Bytes(load.bytes)));
                constant.saturating_mul(load.packets) + growing
            }
        }
    }
}

impl Load {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            bytes: self.bytes - other.bytes,
        }
    }
}
