//! The options of netem: each is read from its words, and then dependences between them are checked.

use model::{
    FourState, GilbertElliott, Nanos, Netem, NetemDistribution, NetemLoss, NetemRate, NetemShare,
    NetemSlot, NetemSlotDelay, Probability,
};

use super::values::{percent, rate, size, time, whole};
use crate::nearest;
use crate::tc_words::Words;

/// The options, in the order in which tc compares a shortened name with them.
const OPTIONS: [&str; 14] = [
    "limit",
    "latency",
    "delay",
    "loss",
    "drop",
    "seed",
    "ecn",
    "reorder",
    "corrupt",
    "gap",
    "duplicate",
    "distribution",
    "rate",
    "slot",
];

/// Reads a netem from its words.
pub(super) fn read(words: &mut Words<'_>) -> Result<Netem, String> {
    let mut netem = Netem::PLAIN;
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        let option = named(word)?;
        if given.contains(&option) {
            return Err(format!("{option}: given twice: write it once"));
        }
        given.push(option);
        set(&mut netem, option, words)?;
    }
    check(&netem)?;
    Ok(netem)
}

/// Returns the option that a word names or begins; older names count as the current ones.
fn named(word: &str) -> Result<&'static str, String> {
    let known = OPTIONS.into_iter().find(|option| option.starts_with(word));
    match known {
        Some("latency") => Ok("delay"),
        Some("drop") => Ok("loss"),
        Some(option) => Ok(option),
        None => Err(format!(
            "`{word}`: netem has no such option{}",
            nearest::or_all(word, OPTIONS)
        )),
    }
}

fn set(netem: &mut Netem, option: &'static str, words: &mut Words<'_>) -> Result<(), String> {
    let of = |words: &mut Words<'_>| share(option, words).map(Some);
    match option {
        "limit" => netem.limit = size(option, words.need(option, "packets, as in limit 1000")?)?,
        "delay" => delay(netem, words)?,
        "loss" => netem.loss = loss(words)?,
        "seed" => {
            let right = "a whole number, as in seed 7";
            netem.seed = Some(whole(option, words.need(option, right)?, right)?);
        }
        "ecn" => netem.ecn = true,
        "reorder" => netem.reorder = of(words)?,
        "corrupt" => netem.corrupt = of(words)?,
        "gap" => {
            let right = "packets, as in gap 5";
            netem.gap = whole(option, words.need(option, right)?, right)?;
        }
        "duplicate" => netem.duplicate = of(words)?,
        "distribution" => netem.distribution = Some(distribution(option, words)?),
        "rate" => netem.rate = Some(bottleneck(words)?),
        _ => netem.slot = Some(slot(words)?),
    }
    Ok(())
}

/// Refuses combinations of options that are wrong although each option is valid.
fn check(netem: &Netem) -> Result<(), String> {
    let is_none = |share: Probability| share == Probability::ZERO;
    let reorders = netem.reorder.is_some_and(|reorder| !is_none(reorder.share));
    let loses = match netem.loss {
        NetemLoss::Nothing => false,
        NetemLoss::Random(NetemShare { share, .. }) => !is_none(share),
        NetemLoss::State(_) | NetemLoss::Gemodel(_) => true,
    };
    let is_over = |one: Probability, other: Probability| one.percent() + other.percent() > 100.0;
    let wrong = if netem.limit == 0 {
        "limit: netem would drop every packet: write at least 1"
    } else if reorders && netem.delay == Nanos::ZERO {
        "reorder: reordered packets skip a delay, and there is none: set delay too"
    } else if netem.gap > 0 && !reorders {
        "gap: tc refuses gap without reorder: write reorder 100% gap 5 for every fifth packet"
    } else if netem.ecn && !loses {
        "ecn: ecn marks packets instead of losing them: set loss too, or leave ecn out"
    } else if netem.distribution.is_some()
        && (netem.delay == Nanos::ZERO || netem.jitter == Nanos::ZERO)
    {
        "distribution: a distribution needs a jitter: write both times, as in delay 100ms 10ms"
    } else {
        return match netem.loss {
            NetemLoss::State(of) if is_over(of.p13, of.p14) => {
                Err("loss: p13 and p14 together are above 100%, and both leave state 1".to_owned())
            }
            NetemLoss::State(of) if is_over(of.p31, of.p32) => {
                Err("loss: p31 and p32 together are above 100%, and both leave state 3".to_owned())
            }
            _ => Ok(()),
        };
    };
    Err(wrong.to_owned())
}

/// Reads a share with an optional correlation.
fn share(option: &str, words: &mut Words<'_>) -> Result<NetemShare, String> {
    let first = words.need(option, &format!("a percentage, as in {option} 1%"))?;
    Ok(NetemShare {
        share: percent(option, first)?,
        correlation: optional(option, words)?,
    })
}

/// Reads a percentage, if the next word is a number.
fn optional(option: &str, words: &mut Words<'_>) -> Result<Option<Probability>, String> {
    words.number().map(|word| percent(option, word)).transpose()
}

fn delay(netem: &mut Netem, words: &mut Words<'_>) -> Result<(), String> {
    const OPTION: &str = "delay";
    netem.delay = time(OPTION, words.need(OPTION, "a time, as in delay 100ms")?)?;
    if let Some(word) = words.number() {
        netem.jitter = time(OPTION, word)?;
        netem.delay_correlation = optional(OPTION, words)?;
    }
    Ok(())
}

/// Reads a share, or a chain. The numbers that are omitted get the values of a simpler chain.
fn loss(words: &mut Words<'_>) -> Result<NetemLoss, String> {
    const OPTION: &str = "loss";
    const KINDS: &str = "a percentage, random, state or gemodel, as in loss 1%";
    if let Some(word) = words.number() {
        let share = percent(OPTION, word)?;
        let correlation = optional(OPTION, words)?;
        return Ok(NetemLoss::Random(NetemShare { share, correlation }));
    }
    let all = Probability::from_percent(100.0).map_err(|cause| cause.to_string())?;
    let none = Probability::ZERO;
    let rest = |of: Probability| {
        Probability::from_percent(100.0 - of.percent()).map_err(|cause| cause.to_string())
    };
    match words.need(OPTION, KINDS)? {
        "random" => Ok(NetemLoss::Random(share("loss random", words)?)),
        "state" => {
            let p13 = percent(
                OPTION,
                words.need("loss state", "p13, as in loss state 1%")?,
            )?;
            Ok(NetemLoss::State(FourState {
                p13,
                p31: optional(OPTION, words)?.map_or_else(|| rest(p13), Ok)?,
                p32: optional(OPTION, words)?.unwrap_or(none),
                p23: optional(OPTION, words)?.unwrap_or(all),
                p14: optional(OPTION, words)?.unwrap_or(none),
                ecn: false,
            }))
        }
        "gemodel" => {
            let p = percent(
                OPTION,
                words.need("loss gemodel", "p, as in loss gemodel 1% 10%")?,
            )?;
            Ok(NetemLoss::Gemodel(GilbertElliott {
                to_bad: p,
                to_good: optional(OPTION, words)?.map_or_else(|| rest(p), Ok)?,
                bad_loss: optional(OPTION, words)?.unwrap_or(all),
                good_loss: optional(OPTION, words)?.unwrap_or(none),
                ecn: false,
            }))
        }
        other => Err(format!("loss: `{other}` is not a loss model: use {KINDS}")),
    }
}

fn distribution(option: &str, words: &mut Words<'_>) -> Result<NetemDistribution, String> {
    const KNOWN: &str = "normal, pareto or paretonormal";
    match words.need(option, KNOWN)? {
        "normal" => Ok(NetemDistribution::Normal),
        "pareto" => Ok(NetemDistribution::Pareto),
        "paretonormal" => Ok(NetemDistribution::ParetoNormal),
        "uniform" => Err(format!(
            "{option}: tc refuses `uniform`: leave distribution out for uniform delays"
        )),
        other => Err(format!(
            "{option}: farwire does not read tc's file `{other}` here: use {KNOWN}, or leave distribution out for uniform delays; a jitter with law = \"table\" reads such files"
        )),
    }
}

fn bottleneck(words: &mut Words<'_>) -> Result<NetemRate, String> {
    const OPTION: &str = "rate";
    let bytes_per_s = rate(words.need(OPTION, "a rate, as in rate 10mbit")?)?;
    let overhead = |word: Option<&str>| {
        let right = "bytes that each packet or cell counts for in addition, as in 20 or -5";
        word.map_or(Ok(0), |word| whole(OPTION, word, right))
    };
    let cell_size = |word: Option<&str>| {
        word.map_or(Ok(0), |word| {
            whole(OPTION, word, "the bytes of a cell, as in 48")
        })
    };
    Ok(NetemRate {
        bytes_per_s,
        packet_overhead: overhead(words.signed_number())?,
        cell_size: cell_size(words.number())?,
        cell_overhead: overhead(words.signed_number())?,
    })
}

fn slot(words: &mut Words<'_>) -> Result<NetemSlot, String> {
    const OPTION: &str = "slot";
    const RIGHT: &str =
        "times between slots, as in slot 10ms 20ms, or slot distribution normal 10ms 1ms";
    let delay = if let Some(word) = words.number() {
        let least = time(OPTION, word)?;
        let most = words
            .number()
            .map_or(Ok(least), |word| time(OPTION, word))?;
        if most < least {
            return Err(format!(
                "slot: {most} is less than {least}: write the longer time second"
            ));
        }
        if most == Nanos::ZERO {
            return Err("slot: write the time between slots, as in slot 10ms".to_owned());
        }
        NetemSlotDelay::Uniform(least, most)
    } else {
        match words.need(OPTION, RIGHT)? {
            "distribution" => {
                let law = distribution("slot distribution", words)?;
                let mean = time(OPTION, words.need("slot distribution", RIGHT)?)?;
                let jitter = time(OPTION, words.need("slot distribution", RIGHT)?)?;
                if jitter == Nanos::ZERO {
                    return Err(format!(
                        "slot: a distribution needs a jitter above 0: {RIGHT}"
                    ));
                }
                NetemSlotDelay::Table(law, mean, jitter)
            }
            other => return Err(format!("slot: `{other}` is not a time: {RIGHT}")),
        }
    };
    let (mut packets, mut bytes) = (0, 0);
    if words.option("packets") {
        let right = "how many, as in packets 10";
        let most: i32 = whole("slot packets", words.need("slot packets", right)?, right)?;
        packets = u32::try_from(most)
            .map_err(|_| format!("slot packets: `{most}` is out of range: {right}"))?;
    }
    if words.option("bytes") {
        let right = "how many, as in bytes 10k";
        bytes = size("slot bytes", words.need("slot bytes", right)?)?;
    }
    Ok(NetemSlot {
        delay,
        packets,
        bytes,
    })
}
