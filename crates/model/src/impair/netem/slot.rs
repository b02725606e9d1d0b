//! Slots: packets that are due leave when a slot comes (`get_slot_next`, `netem_dequeue`).

use crate::draw::Draws;
use crate::in_flight::Stream;
use crate::spec::{NetemSlot, NetemSlotDelay};
use crate::time::Nanos;
use crate::units::Bytes;

use super::crandom::{Crandom, Key, Purpose, draw};
use super::delay::DelayDraw;

/// The next slot, or the one that has come.
#[derive(Debug)]
pub(super) struct NetemSlots {
    delay: SlotDelay,
    packets: u64,
    bytes: u64,
    next: Nanos,
    packets_left: u64,
    bytes_left: u64,
    /// The number of slots so far.
    drawn: u64,
}

#[derive(Debug)]
enum SlotDelay {
    /// The least delay, and the largest addition to it.
    Uniform(Draws, Nanos, Nanos),
    Table(DelayDraw),
}

impl NetemSlots {
    /// Creates slots, the first of which begins at `at`; returns `None` for a delay of 0.
    pub(super) fn new(slot: &NetemSlot, at: Nanos, draws: Draws) -> Option<Self> {
        let delay = match slot.delay {
            NetemSlotDelay::Uniform(_, Nanos::ZERO) => return None,
            NetemSlotDelay::Uniform(least, most) => {
                let draws = draws.stream(Purpose::Slot as u64);
                SlotDelay::Uniform(draws, least, most - least)
            }
            NetemSlotDelay::Table(law, mean, jitter) => {
                let mut delay = DelayDraw::default();
                let random = Crandom::new(draws, Purpose::Slot, None);
                delay.set([mean, jitter], Some(law), random);
                SlotDelay::Table(delay)
            }
        };
        let unless_none = |limit: u32| match limit {
            0 => u64::MAX,
            limit => u64::from(limit),
        };
        let (packets, bytes) = (unless_none(slot.packets), unless_none(slot.bytes));
        Some(Self {
            delay,
            packets,
            bytes,
            next: at,
            packets_left: packets,
            bytes_left: bytes,
            drawn: 0,
        })
    }

    /// Returns when the next slot begins, or the last one began.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// Returns whether a packet that is due at `due` can leave at `at`. If the last slot began before the packet was
    /// due, the packet misses it, and the next slot comes a delay after now.
    pub(super) fn is_open(&mut self, at: Nanos, due: Nanos) -> bool {
        if self.next < due {
            self.begin(at);
        }
        due <= at && self.next <= at
    }

    /// Counts a packet of `len` bytes that has left in the slot.
    pub(super) fn count_departure(&mut self, at: Nanos, len: Bytes) {
        self.packets_left = self.packets_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(len.0);
        if self.packets_left == 0 || self.bytes_left == 0 {
            self.begin(at);
        }
    }

    fn begin(&mut self, at: Nanos) {
        let key = Key {
            stream: Stream::Originals,
            index: self.drawn,
            again: false,
        };
        self.drawn += 1;
        self.next = match &mut self.delay {
            SlotDelay::Uniform(draws, least, more) => {
                let share = u128::from(draw(*draws, key));
                let part = u64::try_from((share * u128::from(more.0)) >> 32);
                at + *least + Nanos(part.unwrap_or(u64::MAX))
            }
            SlotDelay::Table(delay) => Nanos(at.0.saturating_add_signed(delay.draw(key))),
        };
        self.packets_left = self.packets;
        self.bytes_left = self.bytes;
    }
}
