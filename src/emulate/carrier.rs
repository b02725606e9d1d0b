//! A cable that is pulled on one side is felt on the other.

use model::Side;

/// Which side has lost its carrier by itself, and which one was lowered for it.
#[derive(Debug, Default)]
pub(super) struct Carriers {
    /// The side without a carrier of its own; the other one is down because of it.
    lost: Option<Side>,
}

/// An interface to be raised or lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) side: Side,
    pub(super) up: bool,
}

impl Carriers {
    /// Takes note of the carrier of `side`; what is to be done to the other side. The carrier of a side
    /// that was lowered says nothing, for it has none.
    pub(super) fn change(&mut self, side: Side, carrier: bool) -> Option<Action> {
        match (self.lost, carrier) {
            (None, false) => self.lost = Some(side),
            (Some(lost), true) if lost == side => self.lost = None,
            _ => return None,
        }
        Some(Action {
            side: other(side),
            up: carrier,
        })
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::A => Side::B,
        Side::B => Side::A,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOWER_B: Option<Action> = Some(Action {
        side: Side::B,
        up: false,
    });
    const RAISE_B: Option<Action> = Some(Action {
        side: Side::B,
        up: true,
    });

    #[test]
    fn a_lost_carrier_lowers_the_other_side_and_its_return_raises_it() {
        let mut carriers = Carriers::default();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::A, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::A, true), None);
    }

    #[test]
    fn the_side_that_was_lowered_does_not_lower_the_first() {
        let mut carriers = Carriers::default();
        assert_eq!(carriers.change(Side::A, false), LOWER_B);
        assert_eq!(carriers.change(Side::B, false), None);
        assert_eq!(carriers.change(Side::A, true), RAISE_B);
        assert_eq!(carriers.change(Side::B, true), None);
    }
}
