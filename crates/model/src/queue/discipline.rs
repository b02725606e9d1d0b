//! A queue discipline: who waits, who goes next, and who is dropped or marked. The contract.

use crate::in_flight::InFlight;
use crate::queue::backlog::Backlog;
use crate::queue::service::Service;
use crate::spec::Queue;
use crate::stage::{Entered, Out};
use crate::time::Nanos;

/// When a packet comes to a queue, and its number in its stream, from which follows what is drawn for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) now: Nanos,
    pub(crate) index: u64,
}

/// What waits for a server.
///
/// It is work-conserving: while something waits, [`QueueDiscipline::dequeue`] gives a packet, or drops all. It has no timers: a
/// controller catches up when it is asked. The server alone says when to dequeue.
pub(crate) trait QueueDiscipline {
    /// Takes in `t`, which came at `t.since`. It and others may be marked; others may be dropped through `out`.
    fn enqueue(&mut self, at: Entry, t: InFlight, service: &Service, out: &mut Out) -> Entered;

    /// Takes in `t` likewise, which finds the server idle and nothing waiting: it needs no room.
    fn enqueue_at_idle(&mut self, _: Entry, t: InFlight, service: &Service) -> Entered {
        self.adopt(t, service);
        Entered::Taken
    }

    /// The packet that is served next; others, of any flow, may be dropped through `out`.
    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight>;

    /// Takes over `queue`'s parameters from `at` on and keeps its state, if it is of their kind.
    fn set(&mut self, at: Nanos, queue: &Queue) -> bool;

    /// Takes in a packet that another discipline held, whatever the limit.
    fn adopt(&mut self, t: InFlight, service: &Service);

    /// Gives up the packet that would go next if nobody was dropped.
    fn give_up(&mut self, service: &Service) -> Option<InFlight>;

    /// Packets waiting.
    fn len(&self) -> usize;

    /// What they come to.
    fn backlog(&self) -> Backlog;
}
