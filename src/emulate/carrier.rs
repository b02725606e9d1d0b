//! Passes the loss of a carrier on one side to the other side.

use model::Side;

/// Tracks which side has lost its carrier by itself and which side was lowered because of that.
///
/// A side counts as lost only if it has had a carrier since it was raised: a real link takes
/// seconds to bring its carrier up.
#[derive(Debug)]
pub(super) struct Carriers {
    /// The side that has lost its carrier by itself; the other side is down because of it.
    lost: Option<Side>,
    /// True for each side that has had a carrier since it was last raised.
    had_carrier: [bool; 2],
}

/// The side whose interface must be raised or lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarrierChange {
    pub(super) side: Side,
    pub(super) up: bool,
}

impl Carriers {
    /// Creates the state without any loss. `raised` says which sides were raised just now and may
    /// still be negotiating. A side that was up before has had time to negotiate, so if it has no
    /// carrier, it has lost it.
    pub(super) fn new(raised: [bool; 2]) -> Self {
        Self {
            lost: None,
            had_carrier: raised.map(|just_now| !just_now),
        }
    }

    /// Records the carrier state of `side` and returns the change that the other side needs, if
    /// any. The carrier of a lowered side is ignored, because lowering removes it.
    pub(super) fn change(&mut self, side: Side, carrier: bool) -> Option<CarrierChange> {
        if self.lost == Some(side.other()) {
            return None;
        }
        let had = std::mem::replace(&mut self.had_carrier[side.index()], carrier);
        match (self.lost, carrier) {
            (None, false) if had => self.lost = Some(side),
            (Some(_), true) => {
                self.lost = None;
                self.had_carrier[side.other().index()] = false;
            }
            _ => return None,
        }
        Some(CarrierChange {
            side: side.other(),
            up: carrier,
        })
    }

    /// Returns true if `side` is down because the other side has lost its carrier.
    pub(super) fn is_lowered(&self, side: Side) -> bool {
        self.lost == Some(side.other())
    }

    /// Records that the other side was not lowered after all: the loss is not passed on, and no
    /// later change ends it.
    pub(super) fn cancel_lowering(&mut self) {
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

    /// Returns the state of two sides that were both up before.
    fn both_up() -> Carriers {
        Carriers::new([false, false])
    }

    #[test]
    fn a_lost_carrier_lowers_the_other_side_and_its_return_raises_it() {
        let mut carriers = both_up();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::A, true), None);
    }

    #[test]
    fn the_side_that_was_lowered_does_not_lower_the_first() {
        let mut carriers = both_up();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::B, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::B, true), None);
    }

    #[test]
    fn a_side_that_was_raised_has_lost_nothing_until_it_had_a_carrier() {
        let mut carriers = both_up();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        // Side B was raised and is still negotiating.
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
        let mut carriers = both_up();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        carriers.cancel_lowering();
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::B, false), LOWER_A);
        carriers.cancel_lowering();
        assert_eq!(carriers.change(Side::A, true), None);
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
    }
}
