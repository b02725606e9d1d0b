//! Slots: packets wait for a slot and leave in bursts.

use alloc::boxed::Box;

use crate::behaviour::{Behaviour, Holding};
use crate::draw::Draws;
use crate::impair::jitter::Offsets;
use crate::in_flight::{InFlight, Stream};
use crate::spec::{Effect, Slots};
use crate::stage::{Departures, Entries, EntryResult, Out, Stage, Timing};
use crate::time::Nanos;

/// netem's slots behind its delay (Linux, `net/sched/sch_netem.c`, `netem_dequeue` and `get_slot_next`), as arithmetic
/// on arrival times: a packet's slot is known when it enters.
#[derive(Debug, Default)]
pub(crate) struct SlotStage {
    slots: Slots,
    offsets: Box<Offsets>,
    draws: Draws,
    /// The time at which the latest slot that was drawn opens.
    opens: Option<Nanos>,
    packets_left: u32,
    bytes_left: u64,
}

impl SlotStage {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            draws,
            packets_left: u32::MAX,
            bytes_left: u64::MAX,
            ..Self::default()
        }
    }

    /// Draws the slot that opens a wait after `from`, with its full room.
    fn draw(&mut self, from: Nanos, draws: Draws, stream: Stream, index: u64) {
        let offset = self.offsets.next(from, draws, stream, index);
        self.opens = Some(from + Nanos(self.slots.delay.0.saturating_add_signed(offset)));
        self.packets_left = self.slots.packets.map_or(u32::MAX, Into::into);
        self.bytes_left = self.slots.bytes.map_or(u64::MAX, |bytes| bytes.0);
    }
}

impl Slots {
    /// The delay varies, because a packet that comes earlier than another one waits longer for the same slot.
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            varies: true,
            holds: Holding::Temporarily,
            timing: Timing {
                entries: Entries::InOrder,
                departures: Departures::LaterInOrder,
            },
            ..Behaviour::default()
        }
    }
}

impl Stage for SlotStage {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let stream = t.stream();
        let leaves = match self.opens {
            Some(opens) if opens >= at => opens,
            _ => {
                self.draw(at, self.draws, stream, index);
                self.opens.unwrap_or(at)
            }
        };
        self.packets_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(t.packet.len.0);
        if self.packets_left == 0 || self.bytes_left == 0 {
            self.draw(leaves, self.draws.stream(1), stream, index);
        }
        EntryResult::Passes(leaves)
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.slots = match effect {
            Effect::Slots(slots) => slots.clone(),
            _ => Slots::default(),
        };
        self.offsets
            .set(self.slots.jitter.as_ref(), self.slots.delay);
    }

    fn settled(&self, at: Nanos) -> bool {
        self.opens.is_none_or(|opens| opens <= at)
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::spec::{Jitter, Law};
    use crate::units::Bytes;

    /// Returns when packets with these times and lengths leave.
    fn leave(slots: Slots, packets: &[(u64, u64)]) -> Vec<u64> {
        let mut stage = SlotStage::new(Nanos::ZERO, Draws::new(1, 0, "box.up.slots"));
        stage.set(Nanos::ZERO, &Effect::Slots(slots));
        let mut enter = |index: usize, (at, len): (u64, u64)| {
            let mut t = InFlight::for_test(len);
            match stage.enter(Nanos(at), index as u64, &mut t, &mut Out::default()) {
                EntryResult::Passes(leaves) => leaves.0,
                other => panic!("{other:?}"),
            }
        };
        let packets = packets.iter().enumerate();
        packets
            .map(|(index, packet)| enter(index, *packet))
            .collect()
    }

    #[test]
    fn all_packets_before_a_slot_opens_leave_in_it() {
        let every_ten = Slots {
            delay: Nanos(10),
            ..Slots::default()
        };
        let packets = [(5, 100), (6, 100), (15, 100), (16, 100), (40, 100)];
        assert_eq!(leave(every_ten, &packets), vec![15, 15, 15, 26, 50]);
    }

    #[test]
    fn packets_without_room_wait_for_the_next_slot() {
        let slots = |packets, bytes| Slots {
            delay: Nanos(10),
            packets: NonZeroU32::new(packets),
            bytes: Some(Bytes(bytes)),
            ..Slots::default()
        };
        let together = [(0, 100), (0, 100), (0, 100), (0, 100), (0, 100), (35, 100)];
        assert_eq!(
            leave(slots(2, 10_000), &together),
            vec![10, 10, 20, 20, 30, 45]
        );
        // The packet that reaches the limit still leaves: 300 bytes with a limit of 250.
        assert_eq!(
            leave(slots(99, 250), &together),
            vec![10, 10, 10, 20, 20, 45]
        );
    }

    #[test]
    fn each_slot_draws_another_wait() {
        let varying = Slots {
            delay: Nanos(1_000),
            jitter: Some(Jitter::new(Nanos(500), Law::Uniform)),
            packets: NonZeroU32::new(1),
            bytes: None,
        };
        let leave = leave(varying, &[(0, 100); 100]);
        let gaps: Vec<u64> = leave.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (500..=1_500).contains(gap)));
        assert!(gaps.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
