//! Deviations of netem from its options.

use model::{BitsPerSec, Nanos, Netem, NetemLoss, NetemShare, Probability};

/// The largest jitter of the kernel, and about the jitter from which on a correlation of delays has an effect.
const LARGEST_JITTER: Nanos = Nanos((1 << 31) - 1);

/// A full frame in bits, for the rate that a limit allows.
const FRAME_BITS: u64 = 1_514 * 8;

/// Returns notes for the author of these options, one sentence each. `slowest` is the rate of the path, if it has one.
pub(crate) fn notes(netem: &Netem, slowest: Option<BitsPerSec>) -> Vec<String> {
    let all = [
        limit(netem, slowest),
        delay_correlation(netem),
        jitter(netem),
        loss_correlation(netem),
        duplicate_correlation(netem),
        wrapped(netem),
        seed(netem),
    ];
    all.into_iter().flatten().collect()
}

/// Returns a note if the limit is the default, which tc also uses if none is stated, unless no more passes anyway.
fn limit(netem: &Netem, slowest: Option<BitsPerSec>) -> Option<String> {
    let longest = (netem.delay + netem.jitter).0;
    let is_usual = netem.limit == Netem::PLAIN.limit;
    if !is_usual || longest == 0 {
        return None;
    }
    let bits = u128::from(u64::from(netem.limit) * FRAME_BITS) * 1_000_000_000;
    let most = bits / u128::from(longest);
    let is_limit = slowest.is_none_or(|slowest| u128::from(slowest.get()) > most);
    is_limit.then(|| {
        format!(
            "limit {} also counts packets in flight, so at most {} of full frames pass: raise the limit to let more pass",
            netem.limit,
            rate(most)
        )
    })
}

/// Returns a rate in the largest unit in which it is at least 1, with three digits, rounded down.
fn rate(bit_per_s: u128) -> String {
    const UNITS: [(u128, &str); 3] = [
        (1_000_000_000, "Gbit/s"),
        (1_000_000, "Mbit/s"),
        (1_000, "kbit/s"),
    ];
    let unit = UNITS.iter().find(|(size, _)| bit_per_s >= *size);
    let Some((size, name)) = unit else {
        return format!("{bit_per_s} bit/s");
    };
    let (whole, hundredths) = (bit_per_s / size, bit_per_s % size * 100 / size);
    match whole {
        100.. => format!("{whole} {name}"),
        10.. => format!("{whole}.{} {name}", hundredths / 10),
        _ => format!("{whole}.{hundredths:02} {name}"),
    }
}

/// Returns a note about the kernel's remainder, which it takes of a draw by twice the jitter or by the length of the
/// table.
fn delay_correlation(netem: &Netem) -> Option<String> {
    let correlation = netem.delay_correlation?;
    let has_effect = netem.distribution.is_none() && netem.jitter.0 >= LARGEST_JITTER.0 / 2;
    let is_one = correlation > Probability::ZERO && !has_effect;
    is_one.then(|| {
        let what = if netem.distribution.is_some() {
            "with a distribution"
        } else {
            "with less than 2.1s of jitter"
        };
        format!(
            "delay: the correlation of {correlation} has no effect {what}: the kernel uses the low bits of each draw, and only the high bits are correlated; for correlated delays, use jitter with a half-life beside netem"
        )
    })
}

fn jitter(netem: &Netem) -> Option<String> {
    (netem.jitter > LARGEST_JITTER).then(|| {
        let jitter = netem.jitter;
        format!("delay: the kernel stores a jitter in 31 bits, so {jitter} becomes 2.147s")
    })
}

fn loss_correlation(netem: &Netem) -> Option<String> {
    let NetemLoss::Random(share) = netem.loss else {
        return None;
    };
    let correlation = share.correlation.filter(|of| *of > Probability::ZERO)?;
    let percent = share.long_run().share * 100.0;
    // Three decimal places, or three significant digits of a value that is too small for them.
    let percent = if percent < 0.001 {
        let rounded: f64 = format!("{percent:.2e}").parse().ok()?;
        rounded.to_string()
    } else {
        format!("{percent:.3}")
    };
    let NetemShare { share, .. } = share;
    Some(format!(
        "loss: {share} with a correlation of {correlation} loses {percent} % in the long run, because the correlation narrows the random draws"
    ))
}

fn duplicate_correlation(netem: &Netem) -> Option<String> {
    let stated = netem
        .duplicate?
        .correlation
        .filter(|of| *of > Probability::ZERO)?;
    netem.duplicate_correlation().is_none().then(|| {
        format!(
            "duplicate: the correlation of {stated} has no effect, because tc sends it only together with another correlation"
        )
    })
}

/// Returns a note about sums that wrap in 32 bits.
fn wrapped(netem: &Netem) -> Option<String> {
    let NetemLoss::State(states) = netem.loss else {
        return None;
    };
    let is_all = |one: Probability, other: Probability| {
        one > Probability::ZERO
            && other > Probability::ZERO
            && one.percent() + other.percent() >= 100.0
    };
    let pair = if is_all(states.p31, states.p32) {
        "p31 and p32"
    } else if is_all(states.p13, states.p14) {
        "p13 and p14"
    } else {
        return None;
    };
    Some(format!(
        "loss: {pair} add up to 100%, which can overflow the kernel's 32 bits to 0: use slightly less"
    ))
}

fn seed(netem: &Netem) -> Option<String> {
    let seed = netem.seed?;
    Some(format!(
        "seed {seed}: farwire draws other random numbers from this seed than the kernel does"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_a_limit_allows_has_a_readable_unit() {
        let of = |delay: &str| {
            let netem = Netem {
                delay: delay.parse().unwrap(),
                ..Netem::PLAIN
            };
            limit(&netem, None).unwrap()
        };
        for (delay, rate) in [
            ("100us", "121 Gbit/s"),
            ("100ms", "121 Mbit/s"),
            ("500ms", "24.2 Mbit/s"),
            ("3s", "4.03 Mbit/s"),
            ("20min", "10.0 kbit/s"),
            ("4h", "841 bit/s"),
        ] {
            let note = of(delay);
            assert!(note.contains(&format!("at most {rate} of")), "{note}");
        }
    }
}
