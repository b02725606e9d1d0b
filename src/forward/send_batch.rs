//! Packets of several links that leave together.
//!
//! A link that has few packets to send in its turn does not send them itself. Its packets wait for
//! those of the links whose turns follow, and all leave in one call. Each call takes time beside that
//! of its packets, and with every call, the code of the kernel and that of this program displace each
//! other from the processor's caches. Nothing is delayed to fill a batch: it leaves after the turn of
//! the last link that is due, and earlier if it is complete. It therefore grows with the load.

use std::mem;

use model::{Nanos, Side};

use super::PortId;
use super::allowance::PacketCost;
use super::segment_run::SegmentRun;

/// The number of runs with which a batch is complete, and the number of turns that its first packet
/// waits for, its own included. The turn of a link that has few packets to send is short.
const TOGETHER: usize = 16;

/// A link that sends more packets than this in a turn gets separate calls, which cost it hardly more.
/// Packets of other links do not wait for it, and do not share their time with it.
const FEW: u32 = 4;

/// Runs that are due and wait for the call that sends them, in the order of their turns.
#[derive(Default)]
pub(super) struct SendBatch {
    runs: Vec<BatchedRun>,
    /// The number of runs that were added before the latest turn.
    before_turn: usize,
    /// The packets of the latest turn.
    of_turn: u32,
    /// The number of turns from the first run on.
    turns: usize,
    /// The time that the call is expected to take.
    takes: Nanos,
}

/// A run of a link, and the port by which it leaves.
pub(super) struct BatchedRun {
    pub(super) link: u32,
    pub(super) egress: Side,
    pub(super) port: PortId,
    pub(super) run: SegmentRun,
}

impl SendBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the time that the call for the present runs is expected to take.
    pub(super) fn takes(&self) -> Nanos {
        self.takes
    }

    /// Notes that the turn of a link begins.
    pub(super) fn begin_turn(&mut self) {
        self.before_turn = self.runs.len();
        self.of_turn = 0;
        self.turns = if self.is_empty() { 1 } else { self.turns + 1 };
    }

    /// Adds runs of the link whose turn it is, with the average time that a packet of it takes.
    pub(super) fn add(
        &mut self,
        link: u32,
        (egress, port): (Side, PortId),
        cost: PacketCost,
        runs: impl IntoIterator<Item = SegmentRun>,
    ) {
        for run in runs {
            self.of_turn += run.len;
            self.takes += cost.time_of(run.len);
            self.runs.push(BatchedRun {
                link,
                egress,
                port,
                run,
            });
        }
    }

    /// Returns true if the latest turn added packets.
    pub(super) fn has_turn(&self) -> bool {
        self.of_turn > 0
    }

    /// Returns true if the latest turn added more than a few packets, which leave in separate calls.
    pub(super) fn has_long_turn(&self) -> bool {
        self.of_turn > FEW
    }

    /// Returns true if the batch should leave before the next turn.
    pub(super) fn is_complete(&self) -> bool {
        let has_all = self.runs.len() >= TOGETHER || self.turns >= TOGETHER;
        !self.is_empty() && (has_all || self.has_long_turn())
    }

    /// Takes all runs, and the number of those that leave in calls before the others.
    pub(super) fn take(&mut self) -> (Vec<BatchedRun>, usize) {
        let first = if self.has_long_turn() {
            self.before_turn
        } else {
            self.runs.len()
        };
        self.takes = Nanos::ZERO;
        (mem::take(&mut self.runs), first)
    }

    /// Keeps the memory of runs that have left.
    pub(super) fn reuse(&mut self, mut runs: Vec<BatchedRun>) {
        runs.clear();
        self.runs = runs;
    }
}

#[cfg(test)]
mod tests {
    use model::PacketId;

    use super::super::departures::Changes;
    use super::*;

    fn run(len: u32) -> SegmentRun {
        SegmentRun {
            first: PacketId(0),
            len,
            changes: Changes::NONE,
        }
    }

    /// Adds a turn of link 7 with runs of these lengths.
    fn turn(batch: &mut SendBatch, lens: &[u32]) {
        batch.begin_turn();
        let mut cost = PacketCost::default();
        (0..100).for_each(|_| cost.learn(Nanos(2_000), 1));
        let [port, _] = PortId::in_one_set(7);
        let runs = lens.iter().map(|len| run(*len));
        batch.add(7, (Side::A, port), cost, runs);
    }

    #[test]
    fn a_packet_waits_for_at_most_fifteen_turns_of_other_links() {
        for lens in [&[1][..], &[]] {
            let mut batch = SendBatch::default();
            // Turns before the first packet do not count.
            (0..100).for_each(|_| turn(&mut batch, &[]));
            assert!(!batch.is_complete() && batch.is_empty());
            turn(&mut batch, &[1]);
            let mut others = 0;
            while !batch.is_complete() {
                turn(&mut batch, lens);
                others += 1;
            }
            assert_eq!(others, 15);
            let (runs, first) = batch.take();
            assert_eq!((runs.len(), first), (1 + 15 * lens.len(), runs.len()));
        }
    }

    #[test]
    fn a_batch_knows_how_long_its_call_will_take() {
        let mut batch = SendBatch::default();
        turn(&mut batch, &[1, 2]);
        turn(&mut batch, &[1]);
        let takes = batch.takes();
        assert!(takes > Nanos(7_800) && takes <= Nanos(8_000), "{takes}");
        let (runs, _) = batch.take();
        batch.reuse(runs);
        assert!(batch.is_empty() && batch.takes() == Nanos::ZERO);
    }

    #[test]
    fn a_link_with_many_packets_has_separate_calls() {
        let mut batch = SendBatch::default();
        turn(&mut batch, &[]);
        assert!(!batch.has_turn() && !batch.has_long_turn());
        turn(&mut batch, &[1, 1, 1, 1]);
        assert!(batch.has_turn() && !batch.is_complete());
        turn(&mut batch, &[45]);
        assert!(batch.is_complete() && batch.has_long_turn());
        let (runs, first) = batch.take();
        assert_eq!((runs.len(), first), (5, 4));
        batch.reuse(runs);
        turn(&mut batch, &[1, 1]);
        assert!(!batch.is_complete());
    }
}
