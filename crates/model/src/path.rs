//! A path: the stages that packets of one class from one side pass, and where they have to wait between them.

use alloc::vec::Vec;

use crate::packet::Side;
use crate::stage::{Departures, Entries, Timing};

/// A path through the link. It never changes: new conditions make a new path, and packets that are on their way keep
/// theirs.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) side: Side,
    pub(crate) class: u16,
    pub(crate) steps: Vec<Step>,
    /// Packets on this path whose outcome is not decided yet.
    pub(crate) inside: u64,
    /// Whether packets that arrive now take another path.
    pub(crate) is_old: bool,
}

/// A stage of a path, and how packets continue behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) stage: usize,
    pub(crate) handover: Handover,
}

/// The way in which a packet continues behind a stage that it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// Immediately, even if its time lies ahead: nothing can change its outcome.
    Immediate,
    /// When model time reaches its time, if that lies ahead; otherwise immediately.
    WaitIfAhead,
    /// When model time reaches its time, and behind all events that are due by then.
    Wait,
}

impl Path {
    pub(crate) fn new(side: Side, class: u16, stages: impl IntoIterator<Item = usize>) -> Self {
        let step = |stage| Step {
            stage,
            handover: Handover::Wait,
        };
        Self {
            side,
            class,
            steps: stages.into_iter().map(step).collect(),
            inside: 0,
            is_old: false,
        }
    }

    /// Returns the stages in order.
    pub(crate) fn stages(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().map(|step| step.stage)
    }

    /// Returns whether no packet uses it any more.
    pub(crate) fn is_free(&self) -> bool {
        self.is_old && self.inside == 0
    }

    /// Determines where packets have to wait.
    ///
    /// Up to the last stage that needs model time, packets enter every stage at their time. Behind it they are carried
    /// ahead, and wait only where a stage needs them in order and the order was lost.
    pub(crate) fn find_waits(&mut self, timing: impl Fn(usize) -> Timing) {
        let needs_now = |step: &Step| timing(step.stage).entries == Entries::Now;
        let last_now = self.steps.iter().rposition(needs_now);
        let mut is_ordered = true;
        let mut before: Option<(&mut Step, Departures)> = None;
        for (place, step) in self.steps.iter_mut().enumerate() {
            let Timing {
                entries,
                departures,
            } = timing(step.stage);
            let is_lost = !is_ordered && entries != Entries::AnyOrder;
            let waits = last_now.is_some_and(|last| place <= last) || is_lost;
            is_ordered |= waits;
            if let Some((before, given)) = before {
                before.handover = match (waits, given) {
                    (false, _) => Handover::Immediate,
                    (true, Departures::Immediate) => Handover::WaitIfAhead,
                    (true, _) => Handover::Wait,
                };
            }
            is_ordered &= departures != Departures::AnyOrder;
            before = Some((step, departures));
        }
        if let Some((last, _)) = before {
            last.handover = Handover::Immediate;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// Returns how packets continue behind stages with these timings.
    fn handovers(timings: &[(Entries, Departures)]) -> Vec<Handover> {
        let mut path = Path::new(Side::A, 0, 0..timings.len());
        path.find_waits(|stage| {
            let (entries, departures) = timings[stage];
            Timing {
                entries,
                departures,
            }
        });
        path.steps.iter().map(|step| step.handover).collect()
    }

    const LOSS: (Entries, Departures) = (Entries::AnyOrder, Departures::Immediate);
    const SERVER: (Entries, Departures) = (Entries::Now, Departures::Immediate);
    const DELAY: (Entries, Departures) = (Entries::InOrder, Departures::LaterInOrder);
    const JITTER: (Entries, Departures) = (Entries::AnyOrder, Departures::AnyOrder);

    #[test]
    fn packets_wait_up_to_the_last_server_and_where_order_was_lost() {
        use Handover::{Immediate, Wait, WaitIfAhead};
        assert_eq!(
            handovers(&[LOSS, DELAY, LOSS]),
            vec![Immediate, Immediate, Immediate]
        );
        assert_eq!(
            handovers(&[DELAY, LOSS, SERVER, LOSS, DELAY, DELAY]),
            vec![
                Wait,
                WaitIfAhead,
                Immediate,
                Immediate,
                Immediate,
                Immediate
            ]
        );
        assert_eq!(
            handovers(&[JITTER, DELAY, DELAY]),
            vec![Wait, Immediate, Immediate]
        );
        assert_eq!(
            handovers(&[JITTER, LOSS, DELAY]),
            vec![Immediate, WaitIfAhead, Immediate]
        );
        assert_eq!(
            handovers(&[JITTER, LOSS, JITTER]),
            vec![Immediate, Immediate, Immediate]
        );
    }
}
