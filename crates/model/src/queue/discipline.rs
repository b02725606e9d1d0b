//! The contract of a queue discipline: it decides which packets wait, which goes next, and which are dropped or marked.

use crate::in_flight::InFlight;
use crate::queue::backlog::Backlog;
use crate::queue::service::Service;
use crate::spec::Queue;
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;

/// The arrival of a packet at a queue: its time, and its number in its stream, which determines its draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Nanos,
    pub(crate) index: u64,
}

/// A queue of packets that wait for a server.
///
/// It is work-conserving: while packets wait, [`QueueDiscipline::dequeue`] returns one or drops all of them. It has no
/// timers: a controller catches up when a method is called. Only the server decides when to dequeue.
pub(crate) trait QueueDiscipline {
    /// Takes in `t`, which arrived at `t.since`. It and others may be marked; others may be dropped through `out`.
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult;

    /// Takes in `t`, which finds the server idle and no packet waiting: it needs no room.
    fn enqueue_at_idle(&mut self, _: Arrival, t: InFlight, service: &Service) -> EntryResult {
        self.adopt(t, service);
        EntryResult::Taken
    }

    /// Removes and returns the packet that is served next; others, of any flow, may be dropped through `out`.
    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight>;

    /// Takes over the parameters of `queue` from `at` on and keeps its state, if they are of its kind; returns whether
    /// they are.
    fn set(&mut self, at: Nanos, queue: &Queue) -> bool;

    /// Takes in a packet that another discipline held, regardless of the limit.
    fn adopt(&mut self, t: InFlight, service: &Service);

    /// Removes and returns the packet that would go next if none was dropped.
    fn remove_head(&mut self, service: &Service) -> Option<InFlight>;

    /// Returns the number of waiting packets.
    fn len(&self) -> usize;

    /// Returns the amount that waits.
    fn backlog(&self) -> Backlog;
}
