//! A bottleneck server: one packet in service, the others wait.

use crate::in_flight::{Entered, InFlight};
use crate::packet::DropCause;
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::time::Nanos;
use crate::units::QueueLimit;

/// A bottleneck that serves one packet after the other.
///
/// What it holds are events, not departures computed in advance, so that a change of the rate can
/// reach the packet in service and those that wait.
#[derive(Debug)]
pub(crate) struct Server {
    service: Service,
    queue: Fifo,
    in_service: Option<InFlight>,
    /// What rounding up the service times of this busy period has served in advance, in the unit of
    /// `BitsPerSec::time_with_credit`.
    credit: u64,
}

impl Server {
    pub(crate) fn new(service: Service, limit: QueueLimit) -> Self {
        Self {
            service,
            queue: Fifo::new(limit),
            in_service: None,
            credit: 0,
        }
    }

    /// Takes `in_flight` in at `at`.
    #[inline]
    pub(crate) fn enter(&mut self, at: Nanos, in_flight: InFlight) -> Entered {
        if self.in_service.is_none() {
            self.begin_busy_period();
            return Entered::Held(Some(self.serve(at, in_flight)));
        }
        if self.queue.push(in_flight, &self.service) {
            Entered::Held(None)
        } else {
            Entered::Dropped(DropCause::QueueFull)
        }
    }

    /// The packet whose service ends at `at`, and when the next one's will.
    pub(crate) fn release(&mut self, at: Nanos) -> Option<(InFlight, Option<Nanos>)> {
        let done = self.in_service.take()?;
        let next = self.queue.pop(&self.service);
        Some((done, next.map(|next| self.serve(at, next))))
    }

    /// Packets waiting or in service.
    pub(crate) fn held(&self) -> usize {
        self.queue.len() + usize::from(self.in_service.is_some())
    }

    /// The most packets that ever waited.
    pub(crate) fn longest_queue(&self) -> usize {
        self.queue.longest()
    }

    fn serve(&mut self, at: Nanos, in_flight: InFlight) -> Nanos {
        let load = self.service.load(in_flight.packet.len);
        self.in_service = Some(in_flight);
        match &mut self.service {
            Service::Rate(rate, _) => {
                let (time, credit) = rate.time_with_credit(load.bytes, self.credit);
                self.credit = credit;
                at + time
            }
            Service::Fluctuating(rate, _) => rate.serve(at, load.bytes),
            Service::Toffee(..) => at + self.service.time(load),
        }
    }

    /// What rounding served in advance in the last busy period is not carried into the next.
    fn begin_busy_period(&mut self) {
        self.credit = 0;
        if let Service::Fluctuating(rate, _) = &mut self.service {
            rate.begin_busy_period();
        }
    }
}
