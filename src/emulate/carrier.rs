//! Passes the loss of a carrier on one side to the other side.

use model::Side;

/// Which side has lost its carrier by itself, and which one was lowered for it.
///
/// A side can lose only what it had since it was raised: a real link needs seconds until it has a carrier.
#[derive(Debug)]
pub(super) struct Carriers {
    /// The side without a carrier of its own; the other one is down because of it.
    lost: Option<Side>,
    /// Whether each side has had a carrier since it was last raised.
    seen: [bool; 2],
}

/// An interface to be raised or lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarrierChange {
    pub(super) side: Side,
    pub(super) up: bool,
}

impl Carriers {
    /// Nothing is lost yet; `raised` says which sides have just been raised. One that stood up before has had its
    /// time: without a carrier it has lost it.
    pub(super) fn new(raised: [bool; 2]) -> Self {
        Self {
            lost: None,
            seen: raised.map(|just_now| !just_now),
        }
    }

    /// Takes note of the carrier of `side`; what is to be done to the other side. The carrier of a side
    /// that was lowered says nothing, for it has none.
    pub(super) fn change(&mut self, side: Side, carrier: bool) -> Option<CarrierChange> {
        if self.lost == Some(side.other()) {
            return None;
        }
        let had = std::mem::replace(&mut self.seen[side.index()], carrier);
        match (self.lost, carrier) {
            (None, false) if had => self.lost = Some(side),
            (Some(_), true) => {
                self.lost = None;
                self.seen[side.other().index()] = false;
            }
            _ => return None,
        }
        Some(CarrierChange {
            side: side.other(),
            up: carrier,
        })
    }

    /// Whether `side` is down for the other side's loss.
    pub(super) fn is_lowered(&self, side: Side) -> bool {
        self.lost == Some(side.other())
    }

    /// The other side was not lowered after all, so that the loss is not passed on and nothing waits for its end.
    pub(super) fn kept_up(&mut self) {
        self.lost = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOWER_A: Option<CarrierChange> = Some(CarrierChange {
        side: Side::A,
        up: false,
    });
    const LOWER_B: Option<CarrierChange> = Some(CarrierChange {
        side: Side::B,
        up: false,
    });
    const RAISE_B: Option<CarrierChange> = Some(CarrierChange {
        side: Side::B,
        up: true,
    });

    /// Both sides were up before.
    fn standing() -> Carriers {
        Carriers::new([false, false])
    }

    #[test]
    fn a_lost_carrier_lowers_the_other_side_and_its_return_raises_it() {
        let mut carriers = standing();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::A, true), None);
    }

    #[test]
    fn the_side_that_was_lowered_does_not_lower_the_first() {
        let mut carriers = standing();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::B, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::B, true), None);
    }

    #[test]
    fn a_side_that_was_raised_has_lost_nothing_until_it_had_a_carrier() {
        let mut carriers = standing();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        // Raised, and negotiating.
        assert_eq!(carriers.change(Side::B, false), None);
        assert_eq!(carriers.change(Side::B, false), None);
        assert_eq!(carriers.change(Side::B, true), None);
        assert_eq!(carriers.change(Side::B, false), LOWER_A);
    }

    #[test]
    fn a_side_raised_at_the_start_has_lost_nothing_until_it_had_a_carrier() {
        let mut carriers = Carriers::new([true, false]);
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::B, true), None);
        assert_eq!(carriers.change(Side::A, true), None);
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
    }

    #[test]
    fn a_side_that_is_kept_up_can_lose_its_own_carrier_at_any_time() {
        let mut carriers = standing();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        carriers.kept_up();
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::B, false), LOWER_A);
        carriers.kept_up();
        assert_eq!(carriers.change(Side::A, true), None);
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
    }
}
