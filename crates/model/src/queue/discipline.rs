//! A queue discipline: who waits, who goes next, and who is dropped or marked. The contract.

use crate::in_flight::InFlight;
use crate::queue::backlog::Backlog;
use crate::queue::service::Service;
use crate::spec::Queue;
use crate::stage::{Entered, Out};
use crate::time::Nanos;

/// What waits for a server.
///
/// It is work-conserving: while something waits, [`QueueDiscipline::dequeue`] gives a packet, or drops all. It has no timers: a
/// controller catches up when it is asked. The server alone says when to dequeue.
pub(crate) trait QueueDiscipline {
    /// Takes in `t`, which came at `t.since` as packet number `index` of its stream: what is drawn for it follows from that
    /// number. It and others may be marked; others may be dropped through `out`.
    fn enqueue(
        &mut self,
        now: Nanos,
        index: u64,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> Entered;

    /// Takes in `t` likewise, which finds the server idle and nothing waiting: it needs no room.
    fn enqueue_at_idle(
        &mut self,
        _: Nanos,
        _index: u64,
        t: InFlight,
        service: &Service,
    ) -> Entered {
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
