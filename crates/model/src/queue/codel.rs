//! CoDel (RFC 8289): it drops at the head when packets have waited longer than a target for a whole interval.

use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::fifo::Fifo;
use crate::queue::service::Service;
use crate::spec::{Codel, Discipline, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use crate::units::{Bytes, QueueLimit};

/// One queue under CoDel.
#[derive(Debug)]
pub(crate) struct CodelQueue {
    fifo: Fifo,
    law: Codel,
    /// The longest packet that came, even if the queue was full.
    longest: Bytes,
    control: Control,
}

/// The state of RFC 8289, section 5.2, with its names.
///
/// `control_law` (section 5.6) takes the exact square root, rounded down to a nanosecond. Linux approximates it by one
/// Newton step for each drop, from its last value: its drops are 100, 50.0, 56.2 and 48.8 ms apart instead of 100,
/// 70.7, 57.7 and 50 ms, so that the third comes after 150 ms instead of 170.7 ms. `None` in `first_above_time` is the
/// RFC's 0. The default is the state of a queue that no packet has entered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    first_above_time: Option<Nanos>,
    drop_next: Nanos,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

/// The number of intervals after its last drop for which a queue remembers how often it had to drop.
const REMEMBERED: u64 = 16;

impl CodelQueue {
    pub(crate) fn new(limit: QueueLimit, law: Codel) -> Self {
        Self {
            fifo: Fifo::new(limit),
            law,
            longest: Bytes(0),
            control: Control::default(),
        }
    }
}

impl QueueDiscipline for CodelQueue {
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        self.longest = self.longest.max(t.packet.len);
        self.fifo.enqueue(at, t, service, out)
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight> {
        let fifo = &mut self.fifo;
        let take = || {
            let t = fifo.remove_head(service)?;
            Some((t, fifo.bytes()))
        };
        self.control
            .dequeue(&self.law, self.longest, now, take, out)
    }

    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        let Discipline::Codel(law) = queue.discipline else {
            return false;
        };
        self.fifo.limit = queue.limit;
        self.law = law;
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        self.longest = self.longest.max(t.packet.len);
        self.fifo.adopt(t, service);
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        self.fifo.remove_head(service)
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
}

impl Control {
    /// Returns the packet that is served at `now` (section 5.5). `take` removes the head of the queue and returns it
    /// with the bytes that are left then: in all queues that share the link, if there are several (RFC 8289, section
    /// 4.4).
    ///
    /// If `law` and the packet allow it, the packet is marked instead of dropped. It is then served, so it ends the
    /// search for one.
    pub(crate) fn dequeue(
        &mut self,
        law: &Codel,
        longest: Bytes,
        now: Nanos,
        mut take: impl FnMut() -> Option<(InFlight, Bytes)>,
        out: &mut Out,
    ) -> Option<InFlight> {
        let (mut head, mut ok_to_drop) = self.do_dequeue(law, longest, now, take());
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                head = drop_or_mark(law, now, head?, out);
                if head.is_some() {
                    self.drop_next = self.control_law(law, self.drop_next);
                    break;
                }
                (head, ok_to_drop) = self.do_dequeue(law, longest, now, take());
                if ok_to_drop {
                    self.drop_next = self.control_law(law, self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            head = drop_or_mark(law, now, head?, out);
            if head.is_none() {
                (head, _) = self.do_dequeue(law, longest, now, take());
            }
            self.begin_dropping(law, now);
        }
        if let (Some(t), Some(threshold)) = (&mut head, law.ce_threshold)
            && now - t.since > threshold
        {
            t.mark();
        }
        head
    }

    /// Returns the head, and whether packets have been above target for an interval (the RFC's `dodequeue`, section
    /// 5.6).
    fn do_dequeue(
        &mut self,
        law: &Codel,
        longest: Bytes,
        now: Nanos,
        head: Option<(InFlight, Bytes)>,
    ) -> (Option<InFlight>, bool) {
        let Some((t, left)) = head else {
            self.first_above_time = None;
            return (None, false);
        };
        if now - t.since < law.target || left <= longest {
            self.first_above_time = None;
            return (Some(t), false);
        }
        let first_above = *self.first_above_time.get_or_insert(now + law.interval);
        // At the first packet above target it lies an interval ahead, which is never 0.
        (Some(t), now >= first_above)
    }

    /// Enters the dropping state. It starts with as many drops as the last such state added, if they were several and
    /// it is not long ago.
    fn begin_dropping(&mut self, law: &Codel, now: Nanos) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.lastcount);
        let is_recent = now - self.drop_next < law.interval.saturating_mul(REMEMBERED);
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.drop_next = self.control_law(law, now);
        self.lastcount = self.count;
    }

    /// Returns when to drop next after a drop that was due at `last`: interval / sqrt(count) later.
    fn control_law(&self, law: &Codel, last: Nanos) -> Nanos {
        let interval = u128::from(law.interval.0);
        let squared = interval * interval / u128::from(self.count);
        last + Nanos(u64::try_from(squared.isqrt()).unwrap_or(u64::MAX))
    }
}

/// Marks `t` and returns it to be served, or drops it.
fn drop_or_mark(law: &Codel, now: Nanos, mut t: InFlight, out: &mut Out) -> Option<InFlight> {
    if law.ecn && t.mark() {
        return Some(t);
    }
    out.drop(now, t, DropCause::Aqm);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_law_is_the_exact_square_root() {
        let law = Codel::default();
        let after = |count| {
            let control = Control {
                count,
                ..Control::default()
            };
            control.control_law(&law, Nanos(7)).0 - 7
        };
        assert_eq!(after(1), 100_000_000);
        assert_eq!(after(2), 70_710_678);
        assert_eq!(after(3), 57_735_026);
        assert_eq!(after(4), 50_000_000);
        assert_eq!(after(u32::MAX), 1_525);
        // In a queue that stays above target, with the first drop at 0, the fifth drop comes 278 ms later.
        let fifth: u64 = (1..5).map(after).sum();
        assert_eq!(fifth, 278_445_704);
    }
}
