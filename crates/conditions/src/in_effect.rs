//! The meaning of a link's conditions: figures derived from them, and the outcomes of packets in model time.

mod tried;

use model::{
    Behaviour, BitsPerSec, Bytes, Link, LinkConfig, LongRunLoss, LossLaw, Nanos, QueueLimit,
};
use serde::Serialize;

pub use self::tried::{Delays, Tried};
use crate::Direction;
use crate::error::Error;
use crate::link::hop::{emulated_link, route};
use crate::route::{FULL_FRAME, PathStages, Route};
use crate::rules::EmulatedLink;
use crate::{LinkSpec, reach, warnings};

/// The meaning of conditions in both directions.
#[derive(Clone, Debug, Serialize)]
pub struct InEffect {
    /// The direction from client to server.
    pub up: DirectionInEffect,
    /// The direction from server to client.
    pub down: DirectionInEffect,
    /// The round-trip propagation delay, in ms.
    pub round_trip_ms: f64,
    /// Notes for the author of the conditions, one sentence each.
    pub notes: Vec<String>,
}

/// The meaning of conditions in one direction, at first, for packets that match no rule.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionInEffect {
    /// The share of packets that are lost at random in the long run, or marked if they support ECN, in percent; absent
    /// if no formula gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// The average number of packets that are lost in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_packets: Option<f64>,
    /// The share of packets that skip a delay and so overtake others, in percent; absent if none do, or if several
    /// stages let them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelayed_percent: Option<f64>,
    /// The slowest rate, in bit/s of the L2 bytes of full frames; the average, if it fluctuates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<u64>,
    /// The slowest policer's rate, in bit/s of L2 bytes; packets beyond it are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police_bit_per_s: Option<u64>,
    /// The bandwidth-delay product: the slowest rate times the round-trip propagation delay, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdp_bytes: Option<u64>,
    /// The capacity of that rate's queue, in L2 bytes of full frames. For netem, it is the capacity of its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// The time that a full queue takes, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<f64>,
    /// The queueing delay at which the queue's AQM aims, in ms; absent for disciplines without a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aqm_target_ms: Option<f64>,
    /// The bytes that queue and propagation hold together when that rate is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The outcomes of packets in model time.
    pub tried: Tried,
}

impl InEffect {
    /// Derives the meaning of `spec`.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::check`].
    pub fn of(spec: &LinkSpec) -> Result<Self, Error> {
        let hops = spec.all_hops("box")?;
        let EmulatedLink { config, rules } = emulated_link(&hops, spec.seed(), 0);
        let Route { up, down, .. } = route(&hops);
        let mut notes = warnings::of_link(&config);
        notes.extend(reach::beyond(&config, &reach::Host::default()));
        let mut all = up.0.iter().chain(&down.0);
        if all.any(|stage| !stage.schedule.is_empty()) {
            notes.push("schedules: later changes are not shown here".to_owned());
        }
        if !rules.is_empty() {
            notes.push("rules: the conditions of rules are not shown here".to_owned());
        }
        notes.extend(warnings::of_rules(&rules));
        let round_trip = up.propagation() + down.propagation();
        Ok(Self {
            up: DirectionInEffect::of(&up, round_trip, &config, Direction::Up)?,
            down: DirectionInEffect::of(&down, round_trip, &config, Direction::Down)?,
            round_trip_ms: ms(round_trip),
            notes,
        })
    }
}

impl DirectionInEffect {
    fn of(
        stages: &PathStages,
        round_trip: Nanos,
        config: &LinkConfig,
        direction: Direction,
    ) -> Result<Self, Error> {
        let loss = known_loss(stages);
        let slowest = stages.slowest(FULL_FRAME);
        let rate = slowest.as_ref().map(|(rate, _)| *rate);
        let queue_bytes = slowest
            .as_ref()
            .and_then(|(rate, stage)| room(*rate, stage));
        let queue = rate.zip(queue_bytes);
        // If the stage delays packets, too, its room includes those that it delays.
        let in_flight = slowest.as_ref().map(|(rate, stage)| {
            let others = Nanos(stages.propagation().0 - stage.propagation.0);
            rate.bytes_in(others).0
        });
        let target = slowest.as_ref().and_then(|(_, stage)| {
            let bottleneck = stage.bottleneck?;
            bottleneck.discipline().target()
        });
        let memory = queue_bytes.zip(in_flight);
        Ok(Self {
            loss_percent: loss.map(|loss| loss.share * 100.0),
            burst_packets: loss.and_then(|loss| loss.burst),
            undelayed_percent: undelayed(stages).map(|share| share * 100.0),
            rate_bit_per_s: rate.map(BitsPerSec::get),
            police_bit_per_s: stages.slowest_policer().map(BitsPerSec::get),
            bdp_bytes: rate.map(|rate| rate.bytes_in(round_trip).0),
            queue_bytes,
            queue_ms: queue.map(|(rate, bytes)| ms(rate.time_for(Bytes(bytes)))),
            aqm_target_ms: target.map(ms),
            memory_bytes: memory.map(|(one, other)| one.saturating_add(other)),
            tried: tried::pass(config, direction)?,
        })
    }
}

/// The memory that packets in flight need when the rates are full: each is held for the propagation delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// L2 bytes of full frames from client to server.
    pub up: u64,
    /// L2 bytes of full frames from server to client.
    pub down: u64,
    /// The number of packets that can result from one; 0 counts as 1.
    pub copies: u32,
}

/// The bytes that are kept in addition to each frame, as the forwarder counts them.
pub const BESIDE_FRAME: u64 = 160;

/// The bytes that are kept in addition to each packet of a frame and each copy that can be made of it, as the forwarder
/// counts them. A packet that waits takes 84 bytes in a stage or 32 in the schedule of departures, whose memory grows
/// by doubling.
pub const BESIDE_PACKET: u64 = 128;

impl MemoryNeed {
    /// Derives the need of `spec` at first; a direction without a rate needs nothing.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::check`].
    pub fn of(spec: &LinkSpec) -> Result<Self, Error> {
        let hops = spec.all_hops("box")?;
        let config = emulated_link(&hops, spec.seed(), 0).config;
        let copies = Link::new(&config)?.most_copies();
        let Route { up, down, .. } = route(&hops);
        let need = Self::on(&up, &down);
        Ok(Self { copies, ..need })
    }

    /// Derives the need of these stages.
    pub fn on(up: &PathStages, down: &PathStages) -> Self {
        let [up, down] = [up, down].map(|stages| {
            let slowest = stages.slowest(FULL_FRAME);
            slowest.map_or(0, |(rate, _)| rate.bytes_in(stages.propagation()).0)
        });
        Self {
            up,
            down,
            copies: 1,
        }
    }

    /// Returns the bytes of memory, including what is kept in addition to full frames.
    pub fn bytes(&self) -> u64 {
        let frames = self.up.saturating_add(self.down).div_ceil(FULL_FRAME.0);
        let packets = BESIDE_PACKET * u64::from(self.copies.max(1));
        frames.saturating_mul(FULL_FRAME.0 + BESIDE_FRAME + packets)
    }
}

/// Returns the most bytes that can wait before `stage`, which serves at this rate.
fn room(rate: BitsPerSec, stage: &Behaviour<'_>) -> Option<u64> {
    Some(match stage.room? {
        QueueLimit::Packets(packets) => u64::from(packets) * FULL_FRAME.0,
        QueueLimit::Bytes(bytes) => bytes.0,
        QueueLimit::Time(time) => rate.bytes_in(time).0,
        QueueLimit::TimeOrPackets(time, packets) => {
            let packets = u64::from(packets) * FULL_FRAME.0;
            rate.bytes_in(time).0.max(packets)
        }
    })
}

/// Returns the loss of the only stage that loses packets, regardless of their rate. `None` if several stages do, if no
/// formula is known, or if a stage also copies packets, because one of two equal packets passes.
fn known_loss(stages: &PathStages) -> Option<LongRunLoss> {
    let mut known = LongRunLoss::NONE;
    for stage in stages.behaviours() {
        if matches!(stage.loss, LossLaw::FasterThan(_)) {
            continue;
        }
        // The loss is computed for full frames, which matter most.
        let own = stage.loss.long_run(FULL_FRAME)?;
        if own.share > 0.0 {
            if known.share > 0.0 || stage.copies.is_some() {
                return None;
            }
            known = own;
        }
    }
    Some(known)
}

/// Returns the share of packets that skip a delay at the only stage where any do.
fn undelayed(stages: &PathStages) -> Option<f64> {
    let laws = stages.behaviours().filter_map(|stage| stage.skips);
    let mut shares = laws.map(|law| law.long_run()).filter(|share| *share > 0.0);
    shares.next().filter(|_| shares.next().is_none())
}

/// Converts a time to milliseconds.
pub(crate) fn ms(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> InEffect {
        InEffect::of(&toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn figures_are_derived_from_conditions() {
        let both =
            of("rate = '8mbit'\nqueue = '100pkt'\ndelay = '25ms'\n[up]\nloss = '1%,burst=8'");
        assert_eq!(both.round_trip_ms, 50.0);
        assert_eq!(both.up.rate_bit_per_s, Some(8_000_000));
        assert_eq!(both.up.bdp_bytes, Some(50_000));
        assert_eq!(both.up.queue_bytes, Some(151_400));
        assert_eq!(both.up.queue_ms, Some(151.4));
        assert_eq!(both.up.memory_bytes, Some(176_400));
        assert!((both.up.loss_percent.unwrap() - 1.0).abs() < 1e-9);
        assert!((both.up.burst_packets.unwrap() - 8.0).abs() < 1e-9);
        assert_eq!(both.down.loss_percent, Some(0.0));
        assert_eq!(both.down.burst_packets, None);
    }

    #[test]
    fn fewer_packets_are_passed_if_each_costs_much() {
        let passed = |text: &str| of(text).up.tried.packets;
        assert_eq!(
            passed("rate = '8mbit'\ndelay = '25ms'\nloss = '1%'"),
            10_000
        );
        let copied: String = (0..4)
            .map(|name| {
                format!("[[stages]]\nname = 'd{name}'\nkind = 'duplicate'\nduplicate = '100%'\n")
            })
            .chain((0..28).map(|name| {
                format!("[[stages]]\nname = 'l{name}'\nkind = 'loss'\nloss = '0.1%'\n")
            }))
            .collect();
        assert_eq!(passed(&copied), 500);
        assert_eq!(
            passed("rate = '1bit'\nfluctuation = 'spread=99%,hold=13s'"),
            625
        );
    }

    #[test]
    fn memory_covers_the_packets_in_flight() {
        let need = |text: &str| MemoryNeed::of(&toml::from_str(text).unwrap()).unwrap();
        let both = need("rate = '8mbit'\ndelay = '1s'\n[down]\ndelay = '10ms'");
        assert_eq!((both.up, both.down), (1_000_000, 10_000));
        let frames = 1_010_000u64.div_ceil(1514);
        assert_eq!(both.bytes(), frames * (1514 + 160 + 128));
        let copied = need("rate = '8mbit'\ndelay = '1s'\nduplicate = '1%'");
        let frames = 2_000_000u64.div_ceil(1514);
        assert_eq!(copied.bytes(), frames * (1514 + 160 + 2 * 128));
        assert_eq!(need("delay = '1s'").bytes(), 0);
    }

    #[test]
    fn packets_in_model_time_show_effects_without_a_formula() {
        let free = of("delay = '20ms'\njitter = '10ms,free'\nduplicate = '10%'")
            .up
            .tried;
        let delays = free.delay_ms.unwrap();
        assert!((delays.mean - 20.0).abs() < 0.3, "{delays:?}");
        assert!((delays.deviation - 5.77).abs() < 0.2, "{delays:?}");
        assert!(delays.least >= 10.0 && delays.most <= 30.0);
        assert!(free.reordered_percent > 50.0);
        assert!((8.0..12.0).contains(&free.copied_percent));
        let fifo = of("delay = '20ms'\njitter = '10ms'").up.tried;
        assert_eq!(fifo.reordered_percent, 0.0);
        // A packet that waits for others takes longer.
        assert!(fifo.delay_ms.unwrap().mean > 23.0);
        let stalled = of("[up]\nnetem = 'loss 100%'").up;
        assert!(stalled.tried.delay_ms.is_none());
        assert_eq!(stalled.tried.dropped_percent, 100.0);
    }

    #[test]
    fn jitter_reorders_from_the_ratio_to_the_gap_that_the_documentation_states() {
        // A packet comes each millisecond. docs/effects/jitter.md has the formulas.
        let reordered = |jitter: &str| {
            let tried = of(&format!("delay = '20ms'\njitter = '{jitter}'")).up.tried;
            assert_eq!(tried.gap_ms, 1.0);
            tried.reordered_percent
        };
        assert_eq!(reordered("500us,free"), 0.0);
        assert_eq!(reordered("5ms"), 0.0);
        for (jitter, percent) in [
            ("750us,free", 5.6_f64),
            ("1ms,free", 12.5),
            ("5ms,free", 58.7),
            ("250us,normal,free", 0.23),
            ("1ms,normal,free", 27.5),
        ] {
            let found = reordered(jitter);
            // Seven standard deviations of a share of 10,000 packets, because neighbours are not independent.
            let near = 7.0 * (percent * (100.0 - percent) / 10_000.0).sqrt();
            assert!((found - percent).abs() < near, "{jitter}: {found} %");
        }
    }

    #[test]
    fn a_slow_rate_is_tested_at_half_load() {
        let slow = of("rate = '100kbit'").up.tried;
        assert_eq!(slow.gap_ms, 160.0);
        assert_eq!(slow.dropped_percent, 0.0);
        assert_eq!(slow.delay_ms.unwrap().mean, 80.0);
    }

    #[test]
    fn the_default_queue_of_a_slow_rate_holds_twenty_full_packets() {
        let queue = |rate: &str| {
            let up = of(&format!("rate = '{rate}'")).up;
            (up.queue_bytes.unwrap(), up.queue_ms.unwrap().round())
        };
        assert_eq!(queue("10mbit"), (125_000, 100.0));
        assert_eq!(queue("56kbit"), (20 * 1_514, 4_326.0));
        assert_eq!(queue("9600bit"), (20 * 1_514, 25_233.0));
        assert_eq!(queue("300bit"), (20 * 1_514, 807_467.0));
    }

    #[test]
    fn a_rate_is_given_in_l2_bytes_of_full_frames() {
        let wire = of("rate = '10mbit'\nrate_at = 'l1'\nqueue = '100ms'").up;
        let served = 10_000_000 * 1_514 / 1_538;
        assert_eq!(wire.rate_bit_per_s, Some(served));
        assert_eq!(wire.queue_bytes, Some(served / 80));
        assert_eq!(wire.police_bit_per_s, None);
        let both = of("police = '2mbit,burst=64KiB'\nrate = '8mbit'").up;
        assert_eq!(both.rate_bit_per_s, Some(8_000_000));
        assert_eq!(both.police_bit_per_s, Some(2_000_000));
        assert_eq!(both.tried.gap_ms, 8.0);
        assert_eq!(both.tried.dropped_percent, 0.0);
    }

    #[test]
    fn the_target_of_an_aqm_is_reported() {
        for (aqm, target) in [
            ("drop-head", None),
            ("red", None),
            ("codel,target=7ms", Some(7.0)),
            ("fq_codel", Some(5.0)),
            ("pie,target=20ms", Some(20.0)),
            ("dualpi2", Some(15.0)),
        ] {
            let own = of(&format!("rate = '8mbit'\naqm = '{aqm}'")).up;
            assert_eq!(own.aqm_target_ms, target, "{aqm}");
            assert_eq!(own.tried.dropped_percent, 0.0, "{aqm}");
            // The packet in service is not in the queue.
            assert_eq!(own.tried.delay_ms.unwrap().most, 1.0, "{aqm}");
        }
    }

    #[test]
    fn the_share_that_skips_a_delay_is_given_for_a_single_stage() {
        let undelayed = |text: &str| of(text).up.undelayed_percent;
        let netem = "netem = 'delay 9ms reorder 25% gap 5'";
        let delay = "delay = '9ms'\nreorder = '25%,gap=5'";
        for text in [netem, delay] {
            assert!((undelayed(text).unwrap() - 12.5).abs() < 1e-9, "{text}");
        }
        assert_eq!(undelayed(&format!("{netem}\n{delay}")), None);
        assert_eq!(undelayed("delay = '9ms'"), None);
    }

    #[test]
    fn netems_limit_covers_its_queue_and_the_packets_in_its_delay() {
        let own = of("netem = 'limit 10 delay 10ms rate 8mbit'\ndelay = '5ms'").up;
        assert_eq!(own.rate_bit_per_s, Some(8_000_000));
        assert_eq!(own.bdp_bytes, Some(30_000));
        assert_eq!(own.queue_bytes, Some(15_140));
        // 5 ms at 8 Mbit/s are added.
        assert_eq!(own.memory_bytes, Some(20_140));
    }

    #[test]
    fn the_first_conditions_count_without_schedules_and_rules() {
        let own = of("delay = '10ms'\nschedule = [{ at = '1s', delay = '50ms' }]");
        assert_eq!(own.up.tried.delay_ms.unwrap().most, 10.0);
        assert!(own.notes[0].starts_with("schedules: "), "{own:?}");
        let stalled = of("rate = '0bit'\nschedule = [{ at = '1s', rate = '1mbit' }]").up;
        assert_eq!(stalled.rate_bit_per_s, None);
        let tried = stalled.tried;
        assert!(tried.held_percent > 0.0 && tried.delay_ms.is_none());
        assert!((tried.held_percent + tried.dropped_percent - 100.0).abs() < 1e-9);
        let rules = of("[[rules]]\nname = 'calls'\nprotocol = 'udp'\nloss = '1%'");
        assert!(rules.notes[0].starts_with("rules: "), "{rules:?}");
        assert_eq!(rules.up.loss_percent, Some(0.0));
    }

    #[test]
    fn a_shared_server_is_tested_at_half_load() {
        let own = of("toffee = 'delay=5ms'").up.tried;
        assert_eq!(own.gap_ms, 10.0);
        assert_eq!(own.dropped_percent, 0.0);
        assert_eq!(own.delay_ms.unwrap().most, 5.0);
    }

    #[test]
    fn no_loss_is_given_if_one_loss_hides_another() {
        let known = |text: &str| of(text).up.loss_percent;
        assert_eq!(known("netem = 'duplicate 1%'"), Some(0.0));
        assert_eq!(known("netem = 'loss 1% ecn'"), Some(1.0));
        assert_eq!(known("loss = '1%,ecn'"), Some(1.0));
        // A frame has 12,144 bits with its FCS.
        let lost = known("ber = '1e-6'").unwrap();
        assert!((lost - 1.207).abs() < 1e-3, "{lost}");
        let states = "[[stages]]\nkind = 'four-state'\np13 = '1%'\np31 = '99%'";
        assert!((known(states).unwrap() - 1.0).abs() < 1e-9);
        for text in [
            "netem = 'loss 1% duplicate 1%'",
            "netem = 'loss 1%'\nloss = '1%'",
        ] {
            assert_eq!(known(text), None, "{text}");
        }
    }

    #[test]
    fn netem_options_are_reported_with_their_effect() {
        let own = of("netem = 'delay 10ms loss 10% 25%'");
        assert!((own.up.loss_percent.unwrap() - 1.75).abs() < 0.1, "{own:?}");
        assert_eq!(own.round_trip_ms, 20.0);
        assert!(
            own.notes
                .iter()
                .any(|note| note.contains("in the long run"))
        );
    }
}
