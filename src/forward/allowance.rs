//! The part of a forwarder's time that each of its links may use before the next one, in packets and
//! bytes.

use model::Nanos;

/// The largest number of frames that a forwarder of one link takes in before the next check for due
/// departures.
const INTAKE: u32 = 64;

/// The packets and bytes that a forwarder of several links takes in before the next check for due
/// departures. A train counts by its segments.
const SHARED_INTAKE: Allowance = Allowance {
    packets: 128,
    bytes: 128 << 10,
};

/// The packets that such a forwarder takes in although a link has something to do sooner, so that a step
/// is worth its own cost.
const LEAST_INTAKE: u32 = 16;

/// Nothing is taken in if a packet of a link beside a busy one is due within this time and within that of a frame. The bound
/// holds also after a stop of the host, which makes a frame seem to take longer.
const SHORTLY: Nanos = Nanos(20_000);

/// A link that has waited for longer than this does not limit the intake, because a forwarder that is
/// behind with its departures must not leave frames in the rings, too.
const LONGEST_OVERDUE: Nanos = Nanos(50_000);

/// The largest number of packets that one of several links drops in a turn because they are too late,
/// if no packet is copied. It exceeds the intake of a step, so that the packets that must be dropped do
/// not accumulate.
const MOST_DROPPED: u32 = 192;

/// The packets and bytes that one of several links may send in a turn, and the share of a step's
/// intake that it may use when the rings fill.
const TURN_ALLOWANCE: Allowance = Allowance {
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
pub(super) enum TurnReason {
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
    frames: u32,
    of_all: Allowance,
    /// The packets taken in, including those that were dropped.
    taken: u32,
    /// The packets of the longest frame taken in.
    longest: u32,
}

/// The part of a step's intake that one of several links has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    step: Nanos,
    left: Allowance,
}

/// The average time that a packet takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketCost {
    nanos: u64,
}

/// The average time from the beginning of a step until something is sent, for each packet taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntakeCost {
    each: PacketCost,
    /// The average number of packets of the longest frame of a step.
    of_frame: u32,
    /// The beginning of the present step and the packets that it has taken in, until something is sent.
    step: Option<(Nanos, u32)>,
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
    pub(super) fn of_turn(
        now: Nanos,
        next: Option<Nanos>,
        cost: PacketCost,
        reason: TurnReason,
    ) -> Self {
        let (most, beside_waiting) = match reason {
            TurnReason::Due => (TURN_ALLOWANCE.packets, TURN_ALLOWANCE.packets),
            TurnReason::Behind => (TURN_ALLOWANCE.packets, LEAST_BEHIND),
            TurnReason::BesideFullRings => (MOST_BESIDE_FULL_RINGS, LEAST_BEHIND),
        };
        let packets = match next {
            None => most,
            Some(next) if next > now => cost.packets_within(next.0 - now.0),
            Some(_) => beside_waiting,
        };
        Self {
            packets: packets.clamp(1, most),
            ..TURN_ALLOWANCE
        }
    }

    /// Returns the number of packets that may be dropped in a turn with this allowance because they are
    /// too late.
    pub(crate) fn drops(self) -> u32 {
        if self.is_limited() {
            MOST_DROPPED
        } else {
            u32::MAX
        }
    }

    /// Returns the number of packets that are left.
    pub(crate) fn packets(self) -> u32 {
        self.packets
    }

    /// Returns true if the link shares its forwarder with others.
    pub(crate) fn is_limited(self) -> bool {
        self != Self::UNLIMITED
    }

    pub(crate) fn is_used_up(self) -> bool {
        self.packets == 0 || self.bytes == 0
    }

    /// Subtracts packets and their bytes, which are computed only if there is a limit.
    pub(crate) fn spend(&mut self, packets: u32, bytes: impl FnOnce() -> u64) {
        if self.is_limited() {
            self.packets = self.packets.saturating_sub(packets);
            self.bytes = self.bytes.saturating_sub(bytes());
        }
    }
}

impl Intake {
    /// Returns the frames that a forwarder of one link may take in in a step.
    pub(super) fn of_one_link() -> Self {
        Self {
            frames: INTAKE,
            of_all: Allowance::UNLIMITED,
            taken: 0,
            longest: 0,
        }
    }

    /// Returns the frames that a forwarder of several links may take in in a step that begins at `now`, if
    /// each packet costs `cost`. The intake ends before `next`, the time at which a link has something to
    /// do. If only a few links are busy, `is_uneven`, the time of the others matters more than the cost of a step.
    pub(super) fn of_several(
        now: Nanos,
        next: Option<Nanos>,
        cost: IntakeCost,
        is_uneven: bool,
    ) -> Self {
        let packets = match next {
            Some(next) if next > now => {
                let within = cost.each.packets_within(next.0 - now.0);
                match is_uneven {
                    true if within < cost.of_frame && next < now + SHORTLY => 0,
                    true => within.max(1),
                    false => within.max(LEAST_INTAKE),
                }
            }
            Some(next) if next + LONGEST_OVERDUE > now => LEAST_INTAKE,
            Some(_) | None => SHARED_INTAKE.packets,
        };
        let packets = packets.min(SHARED_INTAKE.packets);
        Self {
            // As many frames may be dropped, each of which takes about 200 ns.
            frames: 2 * packets,
            of_all: Allowance {
                packets,
                ..SHARED_INTAKE
            },
            taken: 0,
            longest: 0,
        }
    }

    pub(super) fn is_used_up(self) -> bool {
        self.frames == 0 || self.of_all.is_used_up()
    }

    /// Counts a frame that was dropped, which takes little time.
    pub(super) fn skip(&mut self) {
        self.frames -= 1;
        self.taken += 1;
    }

    /// Counts bytes that were copied, because their frame had to leave its ring. This takes as long as sending them.
    pub(super) fn copy(&mut self, bytes: usize) {
        self.of_all.spend(0, || bytes as u64);
    }

    /// Counts a frame that was taken in.
    pub(super) fn take(&mut self, packets: u32, bytes: usize) {
        self.frames -= 1;
        self.taken += packets;
        self.longest = self.longest.max(packets);
        self.of_all.spend(packets, || bytes as u64);
    }
}

impl Default for Share {
    fn default() -> Self {
        Self {
            step: Nanos::ZERO,
            left: TURN_ALLOWANCE,
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
                left: TURN_ALLOWANCE,
            };
        }
        self.left.spend(packets, || bytes as u64);
    }
}

impl PacketCost {
    /// Learns from a call that sent packets: one part in eight of the average is new.
    pub(super) fn learn(&mut self, took: Nanos, packets: u32) {
        let each = took.0 / u64::from(packets.max(1));
        self.nanos = (7 * self.nanos + each) / 8;
    }

    /// Returns the time that a number of packets takes.
    pub(super) fn time_of(self, packets: u32) -> Nanos {
        Nanos(self.nanos * u64::from(packets))
    }

    /// Returns the number of packets that can be sent within a number of nanoseconds.
    fn packets_within(self, nanos: u64) -> u32 {
        u32::try_from(nanos / self.nanos.max(1)).unwrap_or(u32::MAX)
    }
}

impl Default for IntakeCost {
    /// Creates a usual cost, which applies until the actual one is known.
    fn default() -> Self {
        Self {
            each: PacketCost { nanos: 300 },
            of_frame: 1,
            step: None,
        }
    }
}

impl IntakeCost {
    /// Notes the packets that were taken in by a step that began at `step`. Few packets say more about
    /// the cost of a step than about their own.
    pub(super) fn took_in(&mut self, step: Nanos, intake: Intake) {
        let packets = intake.taken;
        if intake.longest > 0 {
            self.of_frame = (7 * self.of_frame + intake.longest) / 8;
        }
        self.step = (packets >= LEAST_INTAKE).then_some((step, packets));
    }

    /// Returns the time that passes from the beginning of the present step until something is sent, as far as the packets
    /// that were taken in determine it; none if something was sent already.
    pub(super) fn until_sent(&self) -> Nanos {
        self.step
            .map_or(Nanos::ZERO, |(_, packets)| self.each.time_of(packets))
    }

    /// Learns from the first call in a step that sends something.
    pub(super) fn sent(&mut self, begun: Nanos) {
        if let Some((step, packets)) = self.step.take() {
            self.each
                .learn(Nanos(begun.0.saturating_sub(step.0)), packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costing(nanos: u64) -> PacketCost {
        PacketCost { nanos }
    }

    #[test]
    fn a_turn_ends_before_another_link_is_due() {
        let of = |next: Option<u64>, turn| {
            let next = next.map(Nanos);
            Allowance::of_turn(Nanos(1_000), next, costing(500), turn).packets()
        };
        let packets = |next| of(next, TurnReason::Due);
        assert_eq!(packets(Some(4_000)), 6);
        // The next one is due before a packet can be sent, or so late that the allowance counts.
        assert_eq!(packets(Some(1_100)), 1);
        assert_eq!(packets(Some(900_000)), 32);
        // It waits already, or there is none.
        assert_eq!(packets(Some(900)), 32);
        assert_eq!(of(Some(900), TurnReason::Behind), 4);
        assert_eq!(packets(None), 32);
        // The rings must be emptied.
        let beside_full_rings = |next| of(next, TurnReason::BesideFullRings);
        assert_eq!(
            [None, Some(900_000), Some(1_900), Some(900)].map(beside_full_rings),
            [8, 8, 1, 4]
        );
    }

    #[test]
    fn a_link_among_others_drops_more_than_a_step_takes_in_and_a_link_alone_has_no_limit() {
        let among_others = Allowance::of_turn(Nanos(0), None, costing(500), TurnReason::Due);
        // A train of datagrams may have 64 segments.
        assert!(among_others.drops() >= SHARED_INTAKE.packets + 64);
        assert_eq!(Allowance::UNLIMITED.drops(), u32::MAX);
    }

    #[test]
    fn an_allowance_is_used_up_by_packets_or_by_bytes() {
        let mut few_bytes = TURN_ALLOWANCE;
        few_bytes.spend(31, || 100);
        assert!(!few_bytes.is_used_up());
        few_bytes.spend(1, || 100);
        assert!(few_bytes.is_used_up());
        let mut one_train = TURN_ALLOWANCE;
        one_train.spend(9, || 70_000);
        assert!(one_train.is_used_up() && one_train.packets() == 23);
        let mut unlimited = Allowance::UNLIMITED;
        unlimited.spend(1_000_000, || unreachable!("nobody needs the bytes"));
        assert!(!unlimited.is_used_up());
    }

    #[test]
    fn a_train_counts_by_its_segments_where_links_share_an_intake() {
        let frames = |mut intake: Intake, segments| {
            let mut frames = 0;
            while !intake.is_used_up() {
                intake.take(segments, 1_500);
                frames += 1;
            }
            assert_eq!(intake.taken, frames * segments);
            frames
        };
        let alone = Intake::of_one_link();
        assert_eq!([frames(alone, 1), frames(alone, 45)], [64, 64]);
        // Both limits: 128 packets, and 128 KiB.
        let shared = Intake::of_several(Nanos(0), None, IntakeCost::default(), false);
        assert_eq!([frames(shared, 45), frames(shared, 1)], [3, 88]);
    }

    #[test]
    fn an_intake_of_several_links_ends_when_so_many_bytes_were_copied() {
        let copied = |mut intake: Intake| {
            let copies = 0..100;
            copies
                .take_while(|_| {
                    let goes_on = !intake.is_used_up();
                    intake.copy(64 << 10);
                    goes_on
                })
                .count()
        };
        let shared = Intake::of_several(Nanos(0), None, IntakeCost::default(), false);
        assert_eq!([copied(shared), copied(Intake::of_one_link())], [2, 100]);
    }

    #[test]
    fn an_intake_ends_before_a_link_is_due_unless_the_forwarder_is_behind() {
        let cost = IntakeCost {
            each: costing(500),
            ..IntakeCost::default()
        };
        let packets = |next: u64, is_uneven| {
            let next = Some(Nanos(next));
            let intake = Intake::of_several(Nanos(100_000), next, cost, is_uneven);
            assert_eq!(intake.frames, 2 * intake.of_all.packets);
            intake.of_all.packets
        };
        for is_uneven in [false, true] {
            assert_eq!(packets(120_000, is_uneven), 40);
            assert_eq!(packets(900_000, is_uneven), 128);
            // It waits already.
            assert_eq!([100_000, 50_001].map(|at| packets(at, is_uneven)), [16; 2]);
            assert_eq!(packets(50_000, is_uneven), 128);
        }
        // It is due before a step would be worth its cost.
        let soon = [false, true].map(|uneven| packets(101_000, uneven));
        assert_eq!(soon, [16, 2]);
        assert_eq!(packets(100_100, true), 0);
        // A train of 44 packets takes longer, but frames must be taken in now and then.
        let of_trains = IntakeCost {
            of_frame: 44,
            ..cost
        };
        let packets = |next: u64| {
            let next = Some(Nanos(next));
            let intake = Intake::of_several(Nanos(100_000), next, of_trains, true);
            intake.of_all.packets
        };
        assert_eq!([119_000, 121_000].map(packets), [0, 42]);
    }

    #[test]
    fn the_cost_of_an_intake_is_learned_from_steps_that_take_in_enough_and_send() {
        let mut cost = IntakeCost::default();
        let taking = |packets| {
            let mut intake = Intake::of_several(Nanos(0), None, IntakeCost::default(), false);
            intake.take(packets, 0);
            intake
        };
        let packets = |cost: IntakeCost| cost.each.packets_within(30_000);
        assert_eq!(packets(cost), 100);
        for step in 0..100 {
            let begun = Nanos(1_000_000 * step);
            cost.took_in(begun, taking(32));
            cost.sent(begun + Nanos(32_000));
            // A second call says nothing, and neither does a step that takes in little.
            cost.sent(begun + Nanos(900_000));
            cost.took_in(begun, taking(1));
            cost.sent(begun + Nanos(50_000));
        }
        assert_eq!(packets(cost), 30);
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
        let mut cost = PacketCost::default();
        assert_eq!(cost.packets_within(7), 7);
        for _ in 0..100 {
            cost.learn(Nanos(32_000), 16);
        }
        assert_eq!(cost.packets_within(20_000), 10);
    }
}
