//! Loss by a chain of four states.

use crate::units::Probability;

/// Loss by a chain of four states, as tc's `loss state` (S. Salsano, F. Ludovici, A. Ordine, D. Giannuzzi: "Definition
/// of a general and intuitive loss model for packet networks and its implementation in the Netem module in the Linux
/// kernel", University of Rome Tor Vergata, 2012; Linux, `net/sched/sch_netem.c`, `loss_4state`): one draw for each
/// packet moves the chain, and the state that it reaches decides.
///
/// The states are 1, received in a gap; 2, received in a burst; 3, lost in a burst; 4, lost alone in a gap, which 1
/// always follows. The chain begins in 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FourState {
    /// The probability that 3 follows 1: a burst begins with a loss. At most 100 % together with `p14`.
    pub p13: Probability,
    /// The probability that 1 follows 3: a burst ends. At most 100 % together with `p32`.
    pub p31: Probability,
    /// The probability that 2 follows 3: packets are received within a burst.
    pub p32: Probability,
    /// The probability that 3 follows 2: losses continue.
    pub p23: Probability,
    /// The probability that 4 follows 1: a single packet is lost.
    pub p14: Probability,
    /// Whether a packet is marked instead of lost, if its sender understands marks.
    pub ecn: bool,
}

impl FourState {
    /// Returns the share of packets that are lost (or marked) in the long run; 0 for a chain that never leaves state 1.
    #[must_use]
    pub fn stationary_loss(&self) -> f64 {
        let [_, _, in_burst, alone] = self.stationary();
        in_burst + alone
    }

    /// Returns the average number of packets lost in a row; 0 if none is lost, infinite if a run never ends.
    #[must_use]
    pub fn mean_burst(&self) -> f64 {
        let [gap, received, in_burst, alone] = self.stationary();
        let begun =
            gap * (self.p13.fraction() + self.p14.fraction()) + received * self.p23.fraction();
        match in_burst + alone {
            0.0 => 0.0,
            lost => lost / begun,
        }
    }

    /// Returns the share of packets in each of the states 1 to 4 in the long run, for a chain that begins in state 1.
    fn stationary(&self) -> [f64; 4] {
        let [p13, p31, p32, p23, p14] =
            [self.p13, self.p31, self.p32, self.p23, self.p14].map(Probability::fraction);
        if p13 == 0.0 {
            let gap = 1.0 / (1.0 + p14);
            return [gap, 0.0, 0.0, gap * p14];
        }
        // The flows into and out of a state are equal. If the chain gets caught in 2 and 3, or in one of them, the
        // other states have a weight of 0.
        let [received, in_burst] = match (p32 > 0.0, p23 > 0.0) {
            (true, false) => return [0.0, 1.0, 0.0, 0.0],
            (true, true) => [p32, p23],
            (false, _) => [0.0, 1.0],
        };
        let gap = in_burst * p31 / p13;
        let alone = gap * p14;
        let all = gap + received + in_burst + alone;
        [gap, received, in_burst, alone].map(|weight| weight / all)
    }
}
