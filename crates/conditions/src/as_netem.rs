//! Conditions as options of tc-netem(8), as far as these can express them.

use std::num::NonZeroU8;

use model::{
    Effect, GilbertElliott, Nanos, Netem, NetemDistribution, NetemLoss, NetemRate, NetemShare,
    Ordering, Probability, RandomLoss,
};

use crate::condition::{
    Condition, CorruptSpec, DelaySpec, DuplicateSpec, JitterSpec, LawName, LossSpec, NetemSpec,
    QueueSpec, RateSpec, ReorderSpec,
};
use crate::layer::{ConditionSet, Layer};

/// One direction of a link as netem's options.
#[derive(Clone, Debug, PartialEq)]
pub struct AsNetem {
    /// The options that express its conditions.
    pub netem: NetemSpec,
    /// The conditions that no option expresses, in words.
    pub unsaid: Vec<String>,
}

impl AsNetem {
    /// Expresses the conditions of `direction`.
    pub(crate) fn of(direction: &Layer) -> Self {
        let conditions = &direction.at_first;
        let mut options = Options {
            netem: conditions.get::<NetemSpec>().copied().unwrap_or_default().0,
            // The place of netem matters only beside a rate, which then is among the conditions without an option.
            keys: vec!["netem", "netem_at"],
        };
        // A netem excludes options for the other conditions, which would be a second netem.
        if !conditions.has::<NetemSpec>() {
            options.add(conditions);
        }
        let is_expressed = |one: &&Condition| options.keys.contains(&one.kind().key);
        let rest = conditions.iter().filter(|one| !is_expressed(one));
        let mut unsaid: Vec<String> = rest
            .map(|one| format!("{} {one}", one.kind().key.replace('_', "-")))
            .collect();
        if !direction.schedule.is_empty() {
            unsaid.push("schedule".to_owned());
        }
        unsaid.sort();
        if options.keys.contains(&"rate") && !conditions.has::<QueueSpec>() {
            unsaid.push(
                "the default queue of the rate, because netem's limit also counts packets in flight".to_owned(),
            );
        }
        Self {
            netem: NetemSpec(options.netem),
            unsaid,
        }
    }
}

/// The options so far, and the keys of the conditions that they express.
struct Options {
    netem: Netem,
    keys: Vec<&'static str>,
}

impl Options {
    fn add(&mut self, conditions: &ConditionSet) {
        let share = |share: Probability| NetemShare {
            share,
            correlation: None,
        };
        if let Some(DelaySpec(delay)) = conditions.get() {
            self.netem.delay = *delay;
            self.keys.push("delay");
        }
        // netem flips one bit and corrects no checksum.
        let flips = conditions.get::<CorruptSpec>();
        if let Some(flips) = flips.filter(|of| of.bits == NonZeroU8::MIN && !of.repair) {
            self.netem.corrupt = Some(share(flips.share));
            self.keys.push("corrupt");
        }
        let copies = conditions.get::<DuplicateSpec>();
        if let Some(copies) = copies.filter(|of| of.delay == Nanos::ZERO) {
            self.netem.duplicate = Some(share(copies.share));
            self.keys.push("duplicate");
        }
        if let Some((loss, ecn)) = conditions.get().and_then(loss) {
            self.netem.loss = loss;
            self.netem.ecn = ecn;
            self.keys.push("loss");
        }
        // tc requires a delay next to it.
        let reorder = conditions.get().filter(|_| self.netem.delay > Nanos::ZERO);
        if let Some(ReorderSpec { share: hits, gap }) = reorder {
            self.netem.reorder = Some(share(*hits));
            self.netem.gap = match gap.get() {
                1 => 0,
                _ if *hits == Probability::ZERO => 0,
                gap => gap,
            };
            self.keys.push("reorder");
        }
        if let Some((jitter, law)) = conditions.get().and_then(jitter) {
            // tc requires both times next to a distribution.
            let has_both = self.netem.delay > Nanos::ZERO && jitter > Nanos::ZERO;
            if law.is_none() || has_both {
                self.netem.jitter = jitter;
                self.netem.distribution = law;
                self.keys.push("jitter");
            }
        }
        if let Some(rate) = conditions.get().and_then(rate) {
            self.netem.rate = Some(rate);
            self.keys.push("rate");
        }
    }
}

/// Returns random losses, or bursts as netem's gemodel, and whether packets are marked instead; `None` if netem cannot
/// express the loss.
fn loss(spec: &LossSpec) -> Option<(NetemLoss, bool)> {
    match spec.effects() {
        [Effect::Nothing, Effect::Nothing] => Some((NetemLoss::Nothing, false)),
        [Effect::Loss(RandomLoss { share, ecn }), Effect::Nothing] => {
            let correlation = None;
            Some((NetemLoss::Random(NetemShare { share, correlation }), ecn))
        }
        [Effect::Nothing, Effect::GilbertElliott(law)] => {
            let own = GilbertElliott { ecn: false, ..law };
            Some((NetemLoss::Gemodel(own), law.ecn))
        }
        _ => None,
    }
}

/// Returns a jitter that netem can express: packets may overtake each other, each is drawn independently, and tc has
/// the law.
fn jitter(spec: &JitterSpec) -> Option<(Nanos, Option<NetemDistribution>)> {
    let law = match spec.law {
        LawName::Uniform => None,
        LawName::Normal => Some(NetemDistribution::Normal),
        LawName::Pareto => Some(NetemDistribution::Pareto),
        LawName::ParetoNormal => Some(NetemDistribution::ParetoNormal),
        LawName::LogNormal | LawName::Table => return None,
    };
    let is_alike = spec.ordering == Ordering::Free && spec.half_life.is_none();
    is_alike.then_some((spec.spread, law))
}

/// Returns a rate of whole bytes per second without a token bucket.
fn rate(RateSpec { rate, burst }: &RateSpec) -> Option<NetemRate> {
    let bits = (*rate)?.get();
    (burst.is_none() && bits.is_multiple_of(8)).then_some(NetemRate {
        bytes_per_s: bits / 8,
        packet_overhead: 0,
        cell_size: 0,
        cell_overhead: 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LinkSpec;
    use crate::read;

    /// Returns the up direction as netem's options, and what these cannot express.
    fn as_netem(text: &str) -> (String, Vec<String>) {
        let link: LinkSpec = read::toml_text(text).unwrap();
        let [up, _] = link.as_netem();
        (up.netem.to_string(), up.unsaid)
    }

    #[test]
    fn conditions_are_written_as_netem_options() {
        for case in [
            "delay = '20ms'\njitter = '2ms,free' => delay 20ms 2ms",
            "delay = '20ms'\njitter = '2ms,normal,free' => delay 20ms 2ms distribution normal",
            "delay = '20ms'\njitter = '2ms,pareto,free' => delay 20ms 2ms distribution pareto",
            "delay = '20ms'\njitter = '2ms,free,paretonormal' => delay 20ms 2ms distribution paretonormal",
            "jitter = '2ms,free' => delay 0ms 2ms",
            "loss = '1%'\nduplicate = '2%'\ncorrupt = '3%' => loss 1% duplicate 2% corrupt 3%",
            "loss = '50%,burst=4' => loss gemodel 25% 25% 100% 0%",
            "loss = '1%,ecn' => loss 1% ecn",
            "loss = '50%,burst=4,ecn' => loss gemodel 25% 25% 100% 0% ecn",
            "delay = '9ms'\nreorder = '25%,gap=5' => delay 9ms reorder 25% gap 5",
            "delay = '9ms'\nreorder = '25%' => delay 9ms reorder 25%",
            "delay = '1ms'\nup = { delay = '2ms' } => delay 2ms",
            "netem = 'loss 1% 25% delay 1ms' => delay 1ms loss 1% 25%",
            "netem = 'loss 1%'\nnetem_at = 'before-rate' => loss 1%",
        ] {
            let (text, options) = case.split_once(" => ").unwrap();
            assert_eq!(as_netem(text), (options.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn conditions_without_a_netem_option_are_listed() {
        for case in [
            "delay = '20ms'\njitter = '2ms' => delay 20ms => jitter 2ms",
            "delay = '20ms'\njitter = '2ms,per-flow' => delay 20ms => jitter 2ms,per-flow",
            "delay = '20ms'\njitter = '2ms,half-life=50ms,free' => delay 20ms => jitter 2ms,half-life=50ms,free",
            "delay = '20ms'\njitter = '2ms,lognormal,free' => delay 20ms => jitter 2ms,lognormal,free",
            "jitter = '9ms,free'\nreorder = '5%'\nduplicate = '1%,delay=5ms' => \
             delay 0ms 9ms => duplicate 1%,delay=5ms; reorder 5%",
            "corrupt = '1%,bits=2'\nber = '1e-6'\nup = { corrupt = '1%,repair' } => limit 1000 => ber 1e-6; corrupt 1%,repair",
            "jitter = '2ms,normal,free' => limit 1000 => jitter 2ms,normal,free",
            "delay = '20ms'\njitter = '0ms,normal,free' => delay 20ms => jitter 0ms,normal,free",
            "rate = '8mbit,burst=32KiB'\nqueue = '9pkt' => limit 1000 => queue 9pkt; rate 8mbit,burst=32KiB",
            "rate = '8mbit'\nrate_at = 'l1'\nqueue = '9pkt'\npolice = '9mbit,burst=64KiB' => \
             rate 8mbit => police 9mbit,burst=64KiB; queue 9pkt; rate-at l1",
            "rate = '8mbit'\nqueue = '50ms' => rate 8mbit => queue 50ms",
            "rate = '8mbit'\naqm = 'codel'\nqueue = '9pkt' => rate 8mbit => aqm codel; queue 9pkt",
            "size_delay = 2\nseed = 7 => limit 1000 => size-delay 2",
            "path_mtu = 1400\nloss = '1%' => loss 1% => path-mtu 1400",
            "pps = 1000\nloss = '1%' => loss 1% => pps 1000",
            "netem = 'delay 1ms'\nloss = '1%' => delay 1ms => loss 1%",
            "netem = 'delay 1ms'\nnetem_at = 'before-rate'\nrate = '1mbit'\nqueue = '9pkt' => delay 1ms => queue 9pkt; rate 1mbit",
            "delay = '1ms'\nschedule = [{ at = '1s', delay = '2ms' }] => delay 1ms => schedule",
            "toffee = 'drop=2' => limit 1000 => toffee, which both directions share",
            "delay = '1ms'\nhops = [{ name = 'a', delay = '2ms' }] => delay 1ms => hops, each of which needs its own interface and qdisc",
        ] {
            let [text, options, unsaid] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let (own, own_unsaid) = as_netem(text);
            assert_eq!(own, options, "{text}");
            assert_eq!(own_unsaid.join("; "), unsaid, "{text}");
        }
        let (_, unsaid) = as_netem("rate = '8mbit'");
        assert!(
            unsaid[0].starts_with("the default queue of the rate"),
            "{unsaid:?}"
        );
    }

    proptest! {
        #[test]
        fn netem_options_are_read_back_as_the_same_value(
            delay in prop_oneof![Just(0), 0_u64..1 << 40],
            spread in prop_oneof![Just(0), 0_u64..1 << 32],
            law in prop::sample::select(vec!["", ",normal", ",pareto", ",lognormal"]),
            loss in 0_u32..50_000,
            burst in prop::sample::select(vec!["", ",burst=3"]),
            rate in 1_u64..1 << 50,
        ) {
            let loss = f64::from(loss) / 1e3;
            let text = format!(
                "delay = '{delay}ns'\njitter = '{spread}ns{law},free'\nloss = '{loss}%{burst}'\nrate = '{rate}bit'"
            );
            let link: LinkSpec = read::toml_text(&text).unwrap();
            let [AsNetem { netem, .. }, _] = link.as_netem();
            prop_assert_eq!(netem.to_string().parse(), Ok(netem), "{}", netem);
        }
    }
}
