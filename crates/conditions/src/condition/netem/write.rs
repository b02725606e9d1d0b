//! netem's options as a text that tc reads, in the order in which tc prints them.

use std::fmt;

use model::{
    BitsPerSec, Nanos, Netem, NetemDistribution, NetemLoss, NetemRate, NetemShare, NetemSlot,
    NetemSlotDelay, Probability,
};

use super::NetemSpec;

impl fmt::Display for NetemSpec {
    /// Writes the options that differ from the defaults; the limit if none does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let netem = &self.0;
        let mut words = Vec::new();
        if netem.limit != Netem::PLAIN.limit || *netem == Netem::PLAIN {
            words.push(format!("limit {}", netem.limit));
        }
        delay(netem, &mut words);
        words.extend(loss(&netem.loss));
        if netem.ecn {
            words.push("ecn".to_owned());
        }
        let shares = [
            ("duplicate", netem.duplicate),
            ("reorder", netem.reorder),
            ("corrupt", netem.corrupt),
        ];
        let stated = shares
            .into_iter()
            .filter_map(|(key, of)| of.map(|of| format!("{key} {}", share(of))));
        words.extend(stated);
        if netem.gap > 0 {
            words.push(format!("gap {}", netem.gap));
        }
        words.extend(netem.rate.map(rate));
        words.extend(netem.slot.map(slot));
        words.extend(netem.seed.map(|seed| format!("seed {seed}")));
        f.write_str(&words.join(" "))
    }
}

fn delay(netem: &Netem, words: &mut Vec<String>) {
    let Netem {
        delay,
        jitter,
        delay_correlation,
        ..
    } = netem;
    let has_jitter = *jitter > Nanos::ZERO || delay_correlation.is_some();
    if *delay > Nanos::ZERO || has_jitter {
        words.push(format!("delay {}", delay.in_whole_units()));
    }
    if has_jitter {
        words.push(jitter.in_whole_units());
    }
    words.extend(delay_correlation.map(|correlation| correlation.to_string()));
    words.extend(
        netem
            .distribution
            .map(|law| format!("distribution {}", name(law))),
    );
}

fn name(law: NetemDistribution) -> &'static str {
    match law {
        NetemDistribution::Normal => "normal",
        NetemDistribution::Pareto => "pareto",
        NetemDistribution::ParetoNormal => "paretonormal",
    }
}

fn share(NetemShare { share, correlation }: NetemShare) -> String {
    let rest = correlation.map_or_else(String::new, |of| format!(" {of}"));
    format!("{share}{rest}")
}

fn loss(loss: &NetemLoss) -> Option<String> {
    let chain = |name: &str, numbers: &[Probability]| {
        let numbers: Vec<String> = numbers.iter().map(Probability::to_string).collect();
        Some(format!("loss {name} {}", numbers.join(" ")))
    };
    match loss {
        NetemLoss::Nothing => None,
        NetemLoss::Random(of) => Some(format!("loss {}", share(*of))),
        NetemLoss::State(of) => chain("state", &[of.p13, of.p31, of.p32, of.p23, of.p14]),
        NetemLoss::Gemodel(of) => chain(
            "gemodel",
            &[of.to_bad, of.to_good, of.bad_loss, of.good_loss],
        ),
    }
}

fn rate(rate: NetemRate) -> String {
    let bits = BitsPerSec::new(rate.bytes_per_s.saturating_mul(8))
        .map_or_else(|_| "0bit".to_owned(), BitsPerSec::in_whole_units);
    let NetemRate {
        packet_overhead,
        cell_size,
        cell_overhead,
        ..
    } = rate;
    match (packet_overhead, cell_size, cell_overhead) {
        (0, 0, 0) => format!("rate {bits}"),
        _ => format!("rate {bits} {packet_overhead} {cell_size} {cell_overhead}"),
    }
}

fn slot(slot: NetemSlot) -> String {
    let mut text = match slot.delay {
        NetemSlotDelay::Uniform(least, most) => {
            let [least, most] = [least, most].map(Nanos::in_whole_units);
            format!("slot {least} {most}")
        }
        NetemSlotDelay::Table(law, mean, jitter) => {
            let [mean, jitter] = [mean, jitter].map(Nanos::in_whole_units);
            format!("slot distribution {} {mean} {jitter}", name(law))
        }
    };
    for (key, limit) in [("packets", slot.packets), ("bytes", slot.bytes)] {
        if limit > 0 {
            text += &format!(" {key} {limit}");
        }
    }
    text
}
