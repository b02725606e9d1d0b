//! Checks of the conditions that a link is built from.

use core::mem::discriminant;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use crate::limits::{
    MOST_CLASSES, MOST_COPIES, MOST_FLOW_QUEUES, MOST_STAGES, MOST_STAGES_IN_ALL, MOST_STEPS,
};
use crate::packet::Side;
use crate::spec::{
    Codel, ConfigError, Delay, Discipline, Effect, Fluctuation, FourState, Gate, HoldBack, Jitter,
    Law, Netem, NetemRate, NetemSlotDelay, PathSpec, Queue, Rate, Red, Slots, StageSpec, Toffee,
    Trace,
};
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, Probability, QueueLimit};

/// The longest delay and the longest queue in time. A longer one is taken for a mistaken unit.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// The shortest time that a rate lasts, and the shortest interval of an AQM's controller. Each step costs time when the
/// model catches up.
const SHORTEST_HOLD: Nanos = Nanos::from_millis(1);

/// The largest number of periods of a fluctuating rate during the service of one full frame. Each period costs a draw.
const MOST_PERIODS: u64 = 1_000;

/// The longest packet that a delay by size must pass within [`LONGEST`]: a whole GSO frame.
const LARGEST_PACKET: Bytes = Bytes(65_550);

/// A full frame at an MTU of 1,500, which a token bucket must be able to hold.
const FULL_FRAME: Bytes = Bytes(1_514);

/// Refuses conditions that no link can be built from or that would cost too much.
pub(crate) fn check(paths: &[PathSpec]) -> Result<(), ConfigError> {
    check_classes(paths)?;
    let mut known: BTreeMap<&str, &StageSpec> = BTreeMap::new();
    for path in paths {
        check_costs(path)?;
        for (place, stage) in path.stages.iter().enumerate() {
            if stage.name.is_empty() {
                return Err(ConfigError::Unnamed(place + 1));
            }
            let is_same = |other: &StageSpec| other.name == stage.name;
            if path.stages[..place].iter().any(is_same) {
                return Err(ConfigError::Twice(stage.name.clone()));
            }
            match known.insert(&stage.name, stage) {
                Some(other) if other != stage => {
                    return Err(ConfigError::NotTheSame(stage.name.clone()));
                }
                Some(_) => {}
                None => stage.check()?,
            }
        }
    }
    require_at_most("stages of a link", known.len(), MOST_STAGES_IN_ALL)?;
    let lists = known.values().filter_map(|stage| stage.schedule.list());
    let steps = lists.map(<[_]>::len).sum();
    require_at_most("steps of a link's schedules", steps, MOST_STEPS)?;
    let queues = known.values().map(|stage| stage.flow_queues()).sum();
    require_at_most("flow queues of fq_codel", queues, MOST_FLOW_QUEUES)
}

fn check_classes(paths: &[PathSpec]) -> Result<(), ConfigError> {
    let last = paths.iter().map(|path| path.class).max();
    let classes = usize::from(last.unwrap_or(0));
    require_at_most("classes of a link", classes, MOST_CLASSES.into())?;
    for side in Side::BOTH {
        let mut classes: alloc::vec::Vec<u16> = paths
            .iter()
            .filter(|path| path.side == side)
            .map(|path| path.class)
            .collect();
        classes.sort_unstable();
        if let Some(pair) = classes.windows(2).find(|pair| pair[0] == pair[1]) {
            let class = pair[0];
            return Err(ConfigError::TwoPaths { class, side });
        }
        let missing = last.and_then(|last| (0..=last).find(|class| !classes.contains(class)));
        if let Some(class) = missing {
            return Err(ConfigError::NoPath { class, side });
        }
    }
    Ok(())
}

/// Refuses a path on which one packet would cost too much.
fn check_costs(path: &PathSpec) -> Result<(), ConfigError> {
    let copying = path.stages.iter().filter(|stage| stage.copies()).count();
    let doublings = u32::try_from(copying).unwrap_or(u32::MAX);
    let copies = 2_u64.saturating_pow(doublings);
    if copies > MOST_COPIES.into() {
        return Err(ConfigError::TooManyCopies {
            stages: copying,
            copies,
        });
    }
    require_at_most("stages of one path", path.stages.len(), MOST_STAGES)
}

fn require_at_most(what: &'static str, count: usize, most: usize) -> Result<(), ConfigError> {
    if count <= most {
        Ok(())
    } else {
        Err(ConfigError::TooMany { what, count, most })
    }
}

/// Returns whether two effects are of one kind, so that a stage may change from one to the other.
pub(crate) fn is_of_kind(effect: &Effect, kind: &Effect) -> bool {
    matches!((effect, kind), (Effect::Nothing, _) | (_, Effect::Nothing))
        || discriminant(effect) == discriminant(kind)
}

impl StageSpec {
    fn check(&self) -> Result<(), ConfigError> {
        let list = self.schedule.list().unwrap_or_default();
        if !list.is_sorted_by_key(|(at, _)| *at) {
            return Err(ConfigError::Backwards(self.name.clone()));
        }
        let kind = self.kind();
        for effect in self.effects() {
            if !is_of_kind(effect, kind) {
                return Err(ConfigError::OtherKind(self.name.clone()));
            }
            self.check_effect(effect)?;
        }
        Ok(())
    }

    /// Returns whether any of its effects copies packets.
    pub(crate) fn copies(&self) -> bool {
        let mut all = self.effects().map(Effect::behaviour);
        all.any(|behaviour| behaviour.copies.is_some())
    }

    /// Returns the largest number of flow queues that it has at any time.
    fn flow_queues(&self) -> usize {
        let of = |effect: &Effect| match effect.behaviour().bottleneck?.discipline() {
            Discipline::FqCodel(fq) => Some(usize::from(fq.flows)),
            _ => None,
        };
        self.effects().filter_map(of).max().unwrap_or(0)
    }

    /// Returns the kind of the stage: its first effect that is not [`Effect::Nothing`].
    pub(crate) fn kind(&self) -> &Effect {
        let real = |effect: &&Effect| **effect != Effect::Nothing;
        self.effects().find(real).unwrap_or(&Effect::Nothing)
    }

    fn check_effect(&self, effect: &Effect) -> Result<(), ConfigError> {
        match effect {
            Effect::Rate(rate) => self.check_rate(rate),
            Effect::Trace(trace) => self.check_trace(trace),
            Effect::CellReplay(loads) => self.check_trace(&loads.full),
            Effect::Toffee(toffee) => self.check_toffee(toffee),
            Effect::Delay(delay) => self.check_delays(delay),
            Effect::Police(police) => self.check_burst(police.burst),
            Effect::Slots(slots) => self.check_slots(slots),
            Effect::Mtu(mtu) => {
                let right = "an MTU must be at least 68, IPv4's minimum";
                self.require(*mtu >= 68, "mtu", mtu, right)
            }
            Effect::Gate(Gate { queue, .. }) => {
                let right = "set a gate's queue in packets or bytes, above 0";
                let within = !is_time(*queue) && is_queue(*queue);
                self.require(within, "queue", queue, right)
            }
            Effect::FourState(law) => self.check_four_state(law),
            Effect::Indexes(indexes) => {
                let back = indexes.windows(2).find(|pair| pair[1] <= pair[0]);
                let right = "write each packet's number once, in ascending order, as in [0, 3, 7]";
                let value = back.map(|pair| alloc::format!("{}, {}", pair[0], pair[1]));
                self.require(back.is_none(), "indexes", value.unwrap_or_default(), right)
            }
            Effect::HoldBack(HoldBack { timeout, .. }) => {
                let within = *timeout > Nanos::ZERO && *timeout <= LONGEST;
                let right = "a packet must be held for more than 0 and at most 3600s";
                self.require(within, "timeout", timeout, right)
            }
            Effect::Duplicate(law) => self.check_delay("delay", law.delay),
            Effect::Netem(netem) => self.check_netem(netem),
            // The types of all other effects allow only valid values.
            _ => Ok(()),
        }
    }

    /// Checks that the probabilities of leaving a state add up to at most 100 %. The tolerance is for rounding, because
    /// they are written as percentages.
    fn check_four_state(&self, law: &FourState) -> Result<(), ConfigError> {
        let sum = |one: Probability, other: Probability| one.percent() + other.percent();
        let from_3 = sum(law.p31, law.p32);
        let right = "p31 and p32, which leave state 3, must not exceed 100% together";
        let value = || alloc::format!("{} and p31 = {}", law.p32, law.p31);
        self.require(from_3 <= 100.0 + 1e-9, "p32", value(), right)?;
        let from_1 = sum(law.p13, law.p14);
        let right = "p13 and p14, which leave state 1, must not exceed 100% together";
        let value = || alloc::format!("{} and p13 = {}", law.p14, law.p13);
        self.require(from_1 <= 100.0 + 1e-9, "p14", value(), right)
    }

    fn check_rate(&self, rate: &Rate) -> Result<(), ConfigError> {
        self.check_queue(&rate.queue)?;
        if let Some(burst) = rate.burst {
            self.check_burst(burst)?;
            let right = "the rate of a token bucket cannot vary: leave burst or fluctuation out";
            self.require(rate.fluctuation.is_none(), "burst", burst, right)?;
        }
        let Some(Fluctuation { spread, hold }) = rate.fluctuation else {
            return Ok(());
        };
        let right = "a rate must fluctuate by less than 100%";
        self.require(spread.fraction() < 1.0, "fluctuation.spread", spread, right)?;
        let within = (SHORTEST_HOLD..=LONGEST).contains(&hold);
        let right = "a rate must last 1ms to 3600s";
        self.require(within, "fluctuation.hold", hold, right)?;
        let time_for_frame = |rate: BitsPerSec| rate.time_for(FULL_FRAME);
        let frame = rate.rate.map_or(Nanos::ZERO, time_for_frame);
        let within = hold.saturating_mul(MOST_PERIODS) >= frame;
        let right = "a rate must last at least a thousandth of the service time of a full frame";
        self.require(within, "fluctuation.hold", hold, right)
    }

    fn check_burst(&self, burst: Bytes) -> Result<(), ConfigError> {
        let right = "a burst must be at least 1514b, a full frame of an MTU of 1500";
        self.require(burst >= FULL_FRAME, "burst", burst, right)
    }

    fn check_trace(&self, trace: &Trace) -> Result<(), ConfigError> {
        let right = "a trace has no rate, so set its queue in packets or bytes";
        let limit = trace.queue.limit;
        self.require(!is_time(limit), "queue", limit, right)?;
        self.check_queue(&trace.queue)
    }

    fn check_toffee(&self, toffee: &Toffee) -> Result<(), ConfigError> {
        self.check_delay("delay", toffee.delay)?;
        self.check_by_size("dynamic", toffee.dynamic)?;
        self.check_queue(&toffee.queue)
    }

    fn check_delays(&self, delay: &Delay) -> Result<(), ConfigError> {
        self.check_delay("delay", delay.time)?;
        self.check_by_size("size_delay", delay.by_size)?;
        let jitter = delay.jitter.as_ref();
        jitter.map_or(Ok(()), |jitter| self.check_jitter(jitter, delay.time))
    }

    /// Checks a jitter about `mean`.
    fn check_jitter(&self, jitter: &Jitter, mean: Nanos) -> Result<(), ConfigError> {
        self.check_delay("jitter", jitter.spread)?;
        if let Some(half_life) = jitter.half_life {
            let right = "a half-life must be above 0 and at most 3600s";
            let within = half_life > Nanos::ZERO && half_life <= LONGEST;
            self.require(within, "jitter.half_life", half_life, right)?;
        }
        let right = "a log-normal delay needs a mean above 0: set delay too";
        let has_mean = jitter.law != Law::LogNormal || mean > Nanos::ZERO;
        self.require(has_mean, "delay", mean, right)
    }

    fn check_slots(&self, slots: &Slots) -> Result<(), ConfigError> {
        self.check_delay("delay", slots.delay)?;
        if let Some(jitter) = &slots.jitter {
            self.check_jitter(jitter, slots.delay)?;
            let right = "the waits of slots are independent";
            let half_life = jitter.half_life;
            self.require(
                half_life.is_none(),
                "jitter.half_life",
                half_life.unwrap_or_default(),
                right,
            )?;
        }
        let right = "a slot must have room for at least a byte; leave it out for any number";
        let bytes = slots.bytes.unwrap_or(Bytes(1));
        self.require(bytes.0 > 0, "bytes", bytes, right)
    }

    fn check_netem(&self, netem: &Netem) -> Result<(), ConfigError> {
        let right = "netem with limit 0 drops every packet: write at least 1";
        self.require(netem.limit > 0, "limit", netem.limit, right)?;
        self.check_delay("delay", netem.delay)?;
        self.check_delay("jitter", netem.jitter)?;
        if let Some(NetemRate { bytes_per_s, .. }) = netem.rate {
            let right = "a rate must be at least 1 byte per second";
            self.require(bytes_per_s > 0, "rate", bytes_per_s, right)?;
        }
        let (least, most) = match netem.slot.map(|slot| slot.delay) {
            None => return Ok(()),
            Some(NetemSlotDelay::Uniform(least, most)) => (least, most),
            Some(NetemSlotDelay::Table(_, mean, jitter)) => (Nanos::ZERO, mean.max(jitter)),
        };
        self.check_delay("slot", most)?;
        let right = "the longest delay must not be below the shortest";
        self.require(least <= most, "slot", most, right)
    }

    fn check_delay(&self, field: &'static str, delay: Nanos) -> Result<(), ConfigError> {
        self.require(
            delay <= LONGEST,
            field,
            delay,
            "a delay must be at most 3600s",
        )
    }

    fn check_by_size(&self, field: &'static str, k: Option<Factor>) -> Result<(), ConfigError> {
        let right = "with this factor, a long packet takes more than 3600s";
        k.map_or(Ok(()), |k| {
            self.require(k.time_for(LARGEST_PACKET) <= LONGEST, field, k, right)
        })
    }

    fn check_queue(&self, queue: &Queue) -> Result<(), ConfigError> {
        let right = "a queue must be above 0 and at most 3600s";
        self.require(is_queue(queue.limit), "queue", queue.limit, right)?;
        let right = "it must be above 0 and at most 3600s";
        let times: &[(&'static str, Nanos)] = match &queue.discipline {
            Discipline::DropTail | Discipline::DropHead | Discipline::Weighted(_) => &[],
            Discipline::Red(red) => {
                self.check_red(red, queue.limit)?;
                &[]
            }
            Discipline::Pie(pie) => {
                let right = "the interval of a controller must be at least 1ms";
                let within = pie.tupdate >= SHORTEST_HOLD;
                self.require(within, "tupdate", pie.tupdate, right)?;
                &[
                    ("target", pie.target),
                    ("tupdate", pie.tupdate),
                    ("max_burst", pie.max_burst),
                ]
            }
            Discipline::Codel(codel) => {
                self.check_ce_threshold(codel)?;
                &[("target", codel.target), ("interval", codel.interval)]
            }
            Discipline::FqCodel(fq) => {
                self.require(fq.flows > 0, "flows", fq.flows, "write at least one queue")?;
                self.require(
                    fq.quantum > 0,
                    "quantum",
                    fq.quantum,
                    "write at least one byte",
                )?;
                self.check_ce_threshold(&fq.codel)?;
                &[("target", fq.codel.target), ("interval", fq.codel.interval)]
            }
            Discipline::DualPi2(dual) => {
                let right = "the interval of a controller must be at least 1ms";
                let within = dual.t_update >= SHORTEST_HOLD;
                self.require(within, "t_update", dual.t_update, right)?;
                self.check_delay("ramp", dual.ramp)?;
                let right = "the coupling factor must be above 0";
                self.require(dual.coupling > 0, "coupling", dual.coupling, right)?;
                &[
                    ("target", dual.target),
                    ("t_update", dual.t_update),
                    ("l_threshold", dual.l_threshold),
                ]
            }
        };
        for &(field, time) in times {
            self.require(time > Nanos::ZERO && time <= LONGEST, field, time, right)?;
        }
        Ok(())
    }

    fn check_ce_threshold(&self, codel: &Codel) -> Result<(), ConfigError> {
        let right = "a waiting time must be at most 3600s";
        codel.ce_threshold.map_or(Ok(()), |time| {
            self.require(time <= LONGEST, "ce_threshold", time, right)
        })
    }

    fn check_red(&self, red: &Red, limit: QueueLimit) -> Result<(), ConfigError> {
        let right = "it must be above 0";
        self.require(red.min > Bytes(0), "min", red.min, right)?;
        self.require(red.avpkt > Bytes(0), "avpkt", red.avpkt, right)?;
        let p = red.probability;
        self.require(p > Probability::ZERO, "probability", p, right)?;
        let right = "max must be above min, and is useful from twice min on";
        self.require(red.max > red.min, "max", red.max, right)?;
        let right = "max must not exceed the queue";
        let within = !matches!(limit, QueueLimit::Bytes(limit) if limit < red.max);
        self.require(within, "max", red.max, right)?;
        let right = "burst must be at least min / avpkt packets, and not thousands of times that";
        self.require(red.weight().is_some(), "burst", red.burst(), right)
    }

    fn require(
        &self,
        within: bool,
        field: &'static str,
        value: impl ToString,
        right: &'static str,
    ) -> Result<(), ConfigError> {
        if within {
            return Ok(());
        }
        Err(ConfigError::OutOfRange {
            stage: String::from(&self.name),
            field,
            value: value.to_string(),
            right,
        })
    }
}

/// Returns whether the limit depends on a rate.
fn is_time(limit: QueueLimit) -> bool {
    matches!(limit, QueueLimit::Time(_) | QueueLimit::TimeOrPackets(..))
}

fn is_queue(limit: QueueLimit) -> bool {
    match limit {
        QueueLimit::Packets(packets) => packets > 0,
        QueueLimit::Bytes(bytes) => bytes.0 > 0,
        QueueLimit::Time(time) => time.0 > 0 && time <= LONGEST,
        QueueLimit::TimeOrPackets(time, packets) => time.0 > 0 && time <= LONGEST && packets > 0,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::spec::LinkConfig;

    fn refusal(up: Vec<StageSpec>) -> String {
        let config = LinkConfig::new(1, up, vec![]);
        check(&config.paths).unwrap_err().to_string()
    }

    fn loss(name: &str, percent: &str) -> StageSpec {
        StageSpec::new(name, Effect::Loss(percent.parse().unwrap()))
    }

    #[test]
    fn stage_names_are_unique() {
        assert_eq!(
            refusal(vec![loss("wire", "1%"), loss("", "1%")]),
            "stage 2 of a path has no name: give it one, such as box.up.loss"
        );
        assert_eq!(
            refusal(vec![
                loss("box", "1%"),
                loss("wire", "1%"),
                loss("box", "1%")
            ]),
            "box occurs twice in one path: give each stage its own name"
        );
        let shared = LinkConfig::new(1, vec![loss("box", "1%")], vec![loss("box", "2%")]);
        assert_eq!(
            check(&shared.paths).unwrap_err().to_string(),
            "box differs between paths: a name in several paths must be the same stage"
        );
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_stage_and_field() {
        let delay = |delay| StageSpec::new("box.down.delay", Effect::Delay(delay));
        let late = delay(Delay {
            time: Nanos::from_secs(7_200),
            ..Delay::default()
        });
        assert_eq!(
            refusal(vec![late]),
            "box.down.delay: delay = 7200s is out of range: a delay must be at most 3600s"
        );
        let crowded = Effect::Rate(Rate {
            rate: "1mbit".parse().ok(),
            fluctuation: None,
            burst: None,
            framing: crate::framing::Framing::L2,
            queue: QueueLimit::Packets(0).into(),
        });
        assert_eq!(
            refusal(vec![StageSpec::new("box.up.rate", crowded)]),
            "box.up.rate: queue = 0pkt is out of range: a queue must be above 0 and at most 3600s"
        );
        let steep = delay(Delay {
            by_size: Factor::new(1e-9).ok(),
            ..Delay::default()
        });
        assert!(
            refusal(vec![steep]).starts_with("box.down.delay: size_delay = 0.000000001 is out")
        );
    }

    #[test]
    fn copies_multiply_and_their_product_is_limited() {
        let copier = |number: usize| {
            let name = alloc::format!("box.up.{number}");
            StageSpec::new(name, Effect::Duplicate(crate::spec::Duplication::default()))
        };
        let path = |stages: usize| (0..stages).map(copier).collect::<Vec<_>>();
        let most = MOST_COPIES.ilog2() as usize;
        let link = crate::Link::new(&LinkConfig::new(1, path(most), vec![])).unwrap();
        assert_eq!(link.most_copies(), MOST_COPIES);
        assert_eq!(
            refusal(path(30)),
            "30 stages of one path duplicate packets, which makes 1073741824 packets of one: at most 16 are allowed, so use at most \
             4 such stages"
        );
        assert!(refusal(path(most + 1)).contains("makes 32 packets of one: at most 16"));
        let one_later = StageSpec {
            schedule: vec![(Nanos(5), copier(0).effect)].into(),
            ..StageSpec::new("box.up.later", Effect::Nothing)
        };
        let later = [path(most), vec![one_later]].concat();
        assert!(refusal(later).contains("makes 32 packets of one"));
    }

    #[test]
    fn the_cost_of_a_link_is_limited() {
        let losses = |count: usize, prefix: &str| {
            let names = (0..count).map(|number| alloc::format!("{prefix}.{number}"));
            names.map(|name| loss(&name, "1%")).collect::<Vec<_>>()
        };
        assert_eq!(
            refusal(losses(MOST_STAGES + 1, "box.up")),
            "33 stages of one path: at most 32 are allowed"
        );
        let classes = |count: u16, stages: usize| {
            let classes = (0..=count).flat_map(|class| {
                Side::BOTH.map(|side| PathSpec {
                    side,
                    class,
                    stages: losses(stages, &alloc::format!("{class}.{side:?}")),
                })
            });
            classes.collect::<Vec<_>>()
        };
        assert_eq!(check(&classes(MOST_CLASSES, 0)), Ok(()));
        assert_eq!(check(&classes(7, 16)), Ok(()));
        let refused = |paths: &[PathSpec]| check(paths).unwrap_err().to_string();
        assert_eq!(
            refused(&classes(MOST_CLASSES + 1, 0)),
            "129 classes of a link: at most 128 are allowed"
        );
        assert_eq!(
            refused(&classes(8, 16)),
            "288 stages of a link: at most 256 are allowed"
        );
        let mut long = loss("box.up.loss", "1%");
        long.schedule = vec![(Nanos(1), Effect::Nothing); MOST_STEPS + 1].into();
        assert!(refusal(vec![long]).starts_with("65537 steps of a link's schedules"));
        let fair = |number: usize| {
            let fq = crate::spec::FqCodel {
                flows: u16::MAX,
                ..crate::spec::FqCodel::default()
            };
            let rate = Rate {
                rate: "1mbit".parse().ok(),
                fluctuation: None,
                burst: None,
                framing: crate::framing::Framing::L2,
                queue: Queue {
                    limit: QueueLimit::Packets(10),
                    discipline: Discipline::FqCodel(fq),
                },
            };
            StageSpec::new(alloc::format!("box.up.{number}"), Effect::Rate(rate))
        };
        let refused = refusal((0..3).map(fair).collect());
        assert!(
            refused.starts_with("196605 flow queues of fq_codel"),
            "{refused}"
        );
    }

    #[test]
    fn every_class_has_a_path_from_either_side() {
        let mut config = LinkConfig::new(1, vec![], vec![]);
        config.paths.push(PathSpec {
            side: Side::A,
            class: 1,
            stages: vec![],
        });
        let missing = ConfigError::NoPath {
            class: 1,
            side: Side::B,
        };
        assert_eq!(check(&config.paths), Err(missing));
        config.paths.push(config.paths[1].clone());
        let twice = ConfigError::TwoPaths {
            class: 0,
            side: Side::B,
        };
        assert_eq!(check(&config.paths), Err(twice));
    }

    #[test]
    fn a_schedule_runs_forwards_and_keeps_to_its_kind() {
        let mut stage = loss("box", "1%");
        stage.schedule = vec![
            (Nanos(5), Effect::Nothing),
            (Nanos(4), Effect::Loss("2%".parse().unwrap())),
        ]
        .into();
        assert_eq!(
            check(&LinkConfig::new(1, vec![stage.clone()], vec![]).paths),
            Err(ConfigError::Backwards("box".into()))
        );
        stage.schedule = vec![(Nanos(5), Effect::Mtu(1_500))].into();
        assert_eq!(
            check(&LinkConfig::new(1, vec![stage], vec![]).paths),
            Err(ConfigError::OtherKind("box".into()))
        );
    }
}
