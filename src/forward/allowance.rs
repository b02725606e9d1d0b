//! The part of a forwarder's time that each of its links may use before the next one, in packets and
//! bytes.

use model::Nanos;

/// The largest number of frames that a forwarder of one link takes in before the next check for due
/// departures.
const INTAKE: usize = 64;

/// The packets and bytes that a forwarder of several links takes in before the next check for due
/// departures. A train counts by its segments.
const SHARED_INTAKE: Allowance = Allowance {
    packets: 128,
    bytes: 128 << 10,
};

/// The largest number of frames that leave the rings in a step of several links, including those that
/// are dropped, each of which takes about 200 ns.
const MOST_FRAMES: usize = 256;

/// The largest number of packets that one of several links drops in a turn because they are too late.
/// It exceeds the intake of a step, so that the packets that must be dropped do not accumulate.
const MOST_DROPPED: u32 = 192;

/// The packets and bytes that one of several links may send in a turn, and the share of a step's
/// intake that it may use when the rings fill.
const QUANTUM: Allowance = Allowance {
    packets: 32,
    bytes: 64 << 10,
};

/// A number of packets and bytes, of which what has been used is subtracted. The frame that uses up
/// the rest is still allowed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    packets: u32,
    bytes: u64,
}

/// The packets that a link which has used up its allowance may send while others wait.
const LEAST_BEHIND: u32 = 4;

/// The packets that such a link may send in a step while frames fill the rings, which the forwarder
/// must empty faster than they arrive.
const MOST_BESIDE_FULL_RINGS: u32 = 8;

/// The reason for a turn of one of several links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The link has something to do by now.
    Due,
    /// The link had used up its allowance.
    Behind,
    /// The link had used up its allowance, and the forwarder cannot keep up with its rings.
    BesideFullRings,
}

/// The frames that one step may take in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intake {
    frames: usize,
    of_all: Allowance,
}

/// The part of a step's intake that one of several links has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    step: Nanos,
    left: Allowance,
}

/// The average time that a packet takes to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCost {
    nanos: u64,
}

impl Allowance {
    /// No limit, for a link that shares its forwarder with no other.
    pub(crate) const UNLIMITED: Self = Self {
        packets: u32::MAX,
        bytes: u64::MAX,
    };

    /// Returns the allowance of a turn that begins at `now`, for a link whose packets cost `cost`. The
    /// turn ends before `next`, the time at which another link has something to do, but allows at
    /// least one packet. If that link waits already, the length depends on the reason for the turn.
    pub(super) fn of_turn(now: Nanos, next: Option<Nanos>, cost: SendCost, reason: Turn) -> Self {
        let (most, beside_waiting) = match reason {
            Turn::Due => (QUANTUM.packets, QUANTUM.packets),
            Turn::Behind => (QUANTUM.packets, LEAST_BEHIND),
            Turn::BesideFullRings => (MOST_BESIDE_FULL_RINGS, LEAST_BEHIND),
        };
        let packets = match next {
            None => most,
            Some(next) if next > now => cost.packets_within(next.0 - now.0),
            Some(_) => beside_waiting,
        };
        Self {
            packets: packets.clamp(1, most),
            ..QUANTUM
        }
    }

    /// Returns the number of packets that may be dropped in a turn with this allowance because they are
    /// too late.
    pub(crate) fn drops(self) -> u32 {
        if self == Self::UNLIMITED {
            u32::MAX
        } else {
            MOST_DROPPED
        }
    }

    /// Returns the number of packets that are left.
    pub(crate) fn packets(self) -> u32 {
        self.packets
    }

    pub(crate) fn is_used_up(self) -> bool {
        self.packets == 0 || self.bytes == 0
    }

    /// Subtracts packets and their bytes, which are computed only if there is a limit.
    pub(crate) fn spend(&mut self, packets: u32, bytes: impl FnOnce() -> u64) {
        if *self != Self::UNLIMITED {
            self.packets = self.packets.saturating_sub(packets);
            self.bytes = self.bytes.saturating_sub(bytes());
        }
    }
}

impl Intake {
    /// Returns the frames that one step of a forwarder with this number of links may take in.
    pub(super) fn of_step(links: usize) -> Self {
        if links == 1 {
            Self {
                frames: INTAKE,
                of_all: Allowance::UNLIMITED,
            }
        } else {
            Self {
                frames: MOST_FRAMES,
                of_all: SHARED_INTAKE,
            }
        }
    }

    pub(super) fn is_used_up(self) -> bool {
        self.frames == 0 || self.of_all.is_used_up()
    }

    /// Counts a frame that was dropped, which takes little time.
    pub(super) fn skip(&mut self) {
        self.frames -= 1;
    }

    /// Counts a frame that was taken in.
    pub(super) fn take(&mut self, packets: u32, bytes: usize) {
        self.frames -= 1;
        self.of_all.spend(packets, || bytes as u64);
    }
}

impl Default for Share {
    fn default() -> Self {
        Self {
            step: Nanos::ZERO,
            left: QUANTUM,
        }
    }
}

impl Share {
    /// Returns true if the link has used up its share of the step that began at `step`.
    pub(super) fn is_used_up(&self, step: Nanos) -> bool {
        self.step == step && self.left.is_used_up()
    }

    /// Counts packets that were taken in during the step that began at `step`.
    pub(super) fn take(&mut self, step: Nanos, packets: u32, bytes: usize) {
        if self.step != step {
            *self = Self {
                step,
                left: QUANTUM,
            };
        }
        self.left.spend(packets, || bytes as u64);
    }
}

impl SendCost {
    /// Learns from a call that sent packets: one part in eight of the average is new.
    pub(super) fn learn(&mut self, took: Nanos, packets: u32) {
        let each = took.0 / u64::from(packets.max(1));
        self.nanos = (7 * self.nanos + each) / 8;
    }

    /// Returns the number of packets that can be sent within a number of nanoseconds.
    fn packets_within(self, nanos: u64) -> u32 {
        u32::try_from(nanos / self.nanos.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costing(nanos: u64) -> SendCost {
        SendCost { nanos }
    }

    #[test]
    fn a_turn_ends_before_another_link_is_due() {
        let of = |next: Option<u64>, turn| {
            let next = next.map(Nanos);
            Allowance::of_turn(Nanos(1_000), next, costing(500), turn).packets()
        };
        let packets = |next| of(next, Turn::Due);
        assert_eq!(packets(Some(4_000)), 6);
        // The next one is due before a packet can be sent, or so late that the quantum counts.
        assert_eq!(packets(Some(1_100)), 1);
        assert_eq!(packets(Some(900_000)), 32);
        // It waits already, or there is none.
        assert_eq!(packets(Some(900)), 32);
        assert_eq!(of(Some(900), Turn::Behind), 4);
        assert_eq!(packets(None), 32);
        // The rings must be emptied.
        let beside_full_rings = |next| of(next, Turn::BesideFullRings);
        assert_eq!(
            [None, Some(900_000), Some(1_900), Some(900)].map(beside_full_rings),
            [8, 8, 1, 4]
        );
    }

    #[test]
    fn a_link_among_others_drops_more_than_a_step_takes_in_and_a_link_alone_has_no_limit() {
        let among_others = Allowance::of_turn(Nanos(0), None, costing(500), Turn::Due);
        // A train of datagrams may have 64 segments.
        assert!(among_others.drops() >= SHARED_INTAKE.packets + 64);
        assert_eq!(Allowance::UNLIMITED.drops(), u32::MAX);
    }

    #[test]
    fn an_allowance_is_used_up_by_packets_or_by_bytes() {
        let mut few_bytes = QUANTUM;
        few_bytes.spend(31, || 100);
        assert!(!few_bytes.is_used_up());
        few_bytes.spend(1, || 100);
        assert!(few_bytes.is_used_up());
        let mut one_train = QUANTUM;
        one_train.spend(9, || 70_000);
        assert!(one_train.is_used_up() && one_train.packets() == 23);
        let mut unlimited = Allowance::UNLIMITED;
        unlimited.spend(1_000_000, || unreachable!("nobody needs the bytes"));
        assert!(!unlimited.is_used_up());
    }

    #[test]
    fn a_train_counts_by_its_segments_where_links_share_an_intake() {
        let frames = |links, segments| {
            let mut intake = Intake::of_step(links);
            let mut frames = 0;
            while !intake.is_used_up() {
                intake.take(segments, 1_500);
                frames += 1;
            }
            frames
        };
        assert_eq!([frames(1, 1), frames(1, 45)], [64, 64]);
        // Both limits: 128 packets, and 128 KiB.
        assert_eq!([frames(2, 45), frames(2, 1)], [3, 88]);
    }

    #[test]
    fn a_share_of_the_intake_is_new_in_each_step_and_a_train_counts_by_its_segments() {
        let taken = |segments| {
            let mut share = Share::default();
            let mut frames = 0;
            while !share.is_used_up(Nanos(5)) {
                share.take(Nanos(5), segments, 1_500);
                frames += 1;
            }
            assert!(!share.is_used_up(Nanos(6)));
            frames
        };
        assert_eq!([taken(1), taken(20), taken(45)], [32, 2, 1]);
    }

    #[test]
    fn the_cost_of_a_packet_follows_the_latest_calls() {
        let mut cost = SendCost::default();
        assert_eq!(cost.packets_within(7), 7);
        for _ in 0..100 {
            cost.learn(Nanos(32_000), 16);
        }
        assert_eq!(cost.packets_within(20_000), 10);
    }
}
