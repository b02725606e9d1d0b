//! FQ-CoDel (RFC 8290): queues that take turns, each under CoDel.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::queue::backlog::Backlog;
use crate::queue::codel::Control;
use crate::queue::discipline::{Arrival, QueueDiscipline};
use crate::queue::service::Service;
use crate::spec::{Discipline, FqCodel, Queue};
use crate::stage::{EntryResult, Out};
use crate::time::Nanos;
use crate::units::{Bytes, QueueLimit};

/// Queues to which flows are hashed, served by deficit round robin, those of new flows first.
///
/// Three details follow RFC 8290 and not Linux. A new queue that has become empty always goes to the end of the old
/// queues (section 4.2); Linux deactivates it immediately if there are none. At overflow, half of the *packets* of the
/// queue with the most bytes are dropped, at most 64 (section 4.1); Linux stops at half of its bytes. These drops do
/// not change CoDel's `count`; newer kernels add them. Credits of 0 are used up, as in section 3 and in Linux; section
/// 4.2 calls them negative.
#[derive(Debug)]
pub(crate) struct FqCodelQueue {
    limit: QueueLimit,
    law: FqCodel,
    /// For each hash value, the index of its queue plus 1; 0 if it has none, because no packet had this value yet. So
    /// a new discipline writes little memory, whatever the number of its queues: the packet path makes it.
    numbers: Vec<u16>,
    queues: Vec<Flow>,
    /// The active queues, by their index in `queues`.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    store: PacketStore,
    backlog: Backlog,
    /// The longest packet that came.
    longest: Bytes,
    packets: usize,
}

/// One of the queues, with the state of its turns.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The hash value of its packets.
    value: u16,
    chain: Chain,
    /// The bytes that it may still send in its turn.
    credits: i64,
    is_active: bool,
    control: Control,
}

/// Packets in the order in which they arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    first: Option<u32>,
    last: u32,
    packets: u32,
    bytes: u64,
}

/// The packets of all queues, each with the index of the next one in its queue; free places are used again.
#[derive(Debug, Default)]
struct PacketStore {
    places: Vec<(InFlight, Option<u32>)>,
    free: Vec<u32>,
}

/// The head of a queue, with everything that counts the packets that leave it.
struct Head<'a> {
    chain: &'a mut Chain,
    store: &'a mut PacketStore,
    service: &'a Service,
    backlog: &'a mut Backlog,
    packets: &'a mut usize,
}

/// The most packets that one overflow drops.
const BATCH: u32 = 64;

impl FqCodelQueue {
    pub(crate) fn new(limit: QueueLimit, law: FqCodel) -> Self {
        Self {
            limit,
            law,
            numbers: vec![0; usize::from(law.flows)],
            queues: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            store: PacketStore::default(),
            backlog: Backlog::default(),
            longest: Bytes(0),
            packets: 0,
        }
    }

    /// Returns the queue whose turn it is, and whether it is a new one.
    fn select(&mut self) -> Option<(u16, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let turn = if is_new { &self.new } else { &self.old };
            let place = *turn.front()?;
            let queue = &mut self.queues[usize::from(place)];
            if queue.credits > 0 {
                return Some((place, is_new));
            }
            queue.credits += i64::from(self.law.quantum);
            self.pass_turn(place, is_new);
        }
    }

    /// Moves the queue whose turn it is to the end of the old ones.
    fn pass_turn(&mut self, place: u16, is_new: bool) {
        self.leave_turn(is_new);
        self.old.push_back(place);
    }

    fn leave_turn(&mut self, is_new: bool) {
        if is_new {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }

    /// Returns the packet that `take` removes from the queue whose turn it is. If `take` empties that queue without
    /// returning one, the next queue has its turn.
    fn take_by_turns(
        &mut self,
        service: &Service,
        mut take: impl FnMut(&mut Control, &mut Head<'_>) -> Option<InFlight>,
    ) -> Option<InFlight> {
        loop {
            let (place, is_new) = self.select()?;
            let (control, mut head) = self.head(place, service);
            if let Some(t) = take(control, &mut head) {
                let sent = i64::try_from(t.packet.len.0).unwrap_or(i64::MAX);
                self.queues[usize::from(place)].credits -= sent;
                return Some(t);
            }
            if is_new {
                self.pass_turn(place, is_new);
            } else {
                self.queues[usize::from(place)].is_active = false;
                self.leave_turn(is_new);
            }
        }
    }

    fn head<'q>(&'q mut self, place: u16, service: &'q Service) -> (&'q mut Control, Head<'q>) {
        let Flow { control, chain, .. } = &mut self.queues[usize::from(place)];
        let head = Head {
            chain,
            store: &mut self.store,
            service,
            backlog: &mut self.backlog,
            packets: &mut self.packets,
        };
        (control, head)
    }

    /// Returns the index of the queue for packets with this hash value.
    fn place(&mut self, value: u16) -> u16 {
        let number = &mut self.numbers[usize::from(value)];
        if *number == 0 {
            self.queues.push(Flow {
                value,
                ..Flow::default()
            });
            *number = u16::try_from(self.queues.len()).expect("at most one queue for each value");
        }
        *number - 1
    }

    /// Drops packets from the head of the queue with the most bytes; of several, that of the least hash value.
    fn drop_batch(&mut self, now: Nanos, service: &Service, out: &mut Out) {
        let places = self.queues.iter().zip(0..);
        let largest = places.max_by_key(|(queue, _)| (queue.chain.bytes, Reverse(queue.value)));
        let Some((_, largest)) = largest else {
            return;
        };
        let (_, mut head) = self.head(largest, service);
        for _ in 0..head.chain.packets.div_ceil(2).min(BATCH) {
            if let Some((t, _)) = head.pop() {
                out.drop(now, t, DropCause::QueueFull);
            }
        }
    }
}

impl QueueDiscipline for FqCodelQueue {
    fn enqueue(
        &mut self,
        at: Arrival,
        t: InFlight,
        service: &Service,
        out: &mut Out,
    ) -> EntryResult {
        self.adopt(t, service);
        while !self.backlog.fits(self.limit, at.now, service) {
            self.drop_batch(at.now, service, out);
        }
        EntryResult::Taken
    }

    fn dequeue(&mut self, now: Nanos, service: &Service, out: &mut Out) -> Option<InFlight> {
        let (law, longest) = (self.law.codel, self.longest);
        self.take_by_turns(service, |control, head| {
            control.dequeue(&law, longest, now, || head.pop(), out)
        })
    }

    /// Takes over the parameters. Another number of queues needs a new discipline, because flows are hashed anew.
    fn set(&mut self, _: Nanos, queue: &Queue) -> bool {
        match queue.discipline {
            Discipline::FqCodel(law) if law.flows == self.law.flows => self.law = law,
            _ => return false,
        }
        self.limit = queue.limit;
        true
    }

    fn adopt(&mut self, t: InFlight, service: &Service) {
        // The remainder is less than the number of queues, which has 16 bits.
        let value = u16::try_from(t.packet.flow.id % u32::from(self.law.flows)).unwrap_or(0);
        let place = self.place(value);
        let queue = &mut self.queues[usize::from(place)];
        queue.chain.push(t, &mut self.store);
        if !queue.is_active {
            queue.is_active = true;
            queue.credits = i64::from(self.law.quantum);
            self.new.push_back(place);
        }
        self.longest = self.longest.max(t.packet.len);
        self.backlog = self.backlog.plus(t.packet.len, service);
        self.packets += 1;
    }

    fn remove_head(&mut self, service: &Service) -> Option<InFlight> {
        self.take_by_turns(service, |_, head| head.pop().map(|(t, _)| t))
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl Chain {
    fn push(&mut self, t: InFlight, store: &mut PacketStore) {
        let place = store.put(t);
        match self.first {
            None => self.first = Some(place),
            Some(_) => store.places[self.last as usize].1 = Some(place),
        }
        self.last = place;
        self.packets += 1;
        self.bytes += t.packet.len.0;
    }
}

impl Head<'_> {
    /// Removes and returns the first packet, with the bytes that are left in all queues together.
    fn pop(&mut self) -> Option<(InFlight, Bytes)> {
        let place = self.chain.first?;
        let (t, behind) = self.store.places[place as usize];
        self.store.free.push(place);
        self.chain.first = behind;
        self.chain.packets -= 1;
        self.chain.bytes -= t.packet.len.0;
        *self.backlog = self.backlog.minus(t.packet.len, self.service);
        *self.packets -= 1;
        Some((t, self.backlog.bytes))
    }
}

impl PacketStore {
    fn put(&mut self, t: InFlight) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = (t, None);
            return place;
        }
        self.places.push((t, None));
        u32::try_from(self.places.len() - 1).expect("fewer packets than 4 billion")
    }
}
