//! The tables of iproute2's distributions, computed as its programs do (`netem/normal.c`, `pareto.c`,
//! `paretonormal.c`).

use alloc::boxed::Box;

use crate::spec::NetemDistribution;

/// The table value of one jitter (the kernel's `NETEM_DIST_SCALE`).
pub(super) const SCALE: i64 = 8_192;

/// The number of entries of a table. The programs compute four times as many (FINE) and write every fourth.
const ENTRIES: u32 = 4_096;
const FINE: f64 = 16_384.0;

/// The step between the values of the normal distribution's program.
const STEP: f64 = 0.000_05;
/// Its first value.
const LOWEST: f64 = -10.0;

/// Returns the quantiles of `law`; 8192 is one jitter.
pub(super) fn of(law: NetemDistribution) -> Box<[i16]> {
    let mut near = -4.0;
    let mut normal = |entry: u32| {
        near = quantile(entry, near);
        rounded(near)
    };
    (0..ENTRIES)
        .map(|entry| {
            let value = match law {
                NetemDistribution::Normal => normal(entry),
                NetemDistribution::Pareto => pareto(entry),
                // This is the integer part of a quarter of one rounded value and three quarters of another.
                NetemDistribution::ParetoNormal => (normal(entry) + 3 * pareto(entry)) / 4,
            };
            let held = value.clamp(i32::from(i16::MIN), i32::from(i16::MAX));
            i16::try_from(held).unwrap_or(i16::MAX)
        })
        .collect()
}

/// Returns the last of the program's values whose place in its fine table, after rounding, is that of `entry`: it lies
/// less than half a place above it.
fn quantile(entry: u32, near: f64) -> f64 {
    let share = (f64::from(entry) * 4.0 + 0.5) / FINE;
    let steps = libm::floor((probit(share, near) - LOWEST) / STEP);
    LOWEST + steps * STEP
}

/// Returns 4/3 of the amount by which the quantile of a Pareto law of shape 3, from 1 on, exceeds its mean of 3/2,
/// limited to what 16 bits hold.
fn pareto(entry: u32) -> i32 {
    let above = 1.0 - f64::from(entry) / f64::from(ENTRIES);
    let value = (1.0 / libm::cbrt(above) - 1.5) * (4.0 / 3.0);
    rounded(value.min(f64::from(i16::MAX) / SCALE as f64))
}

fn rounded(value: f64) -> i32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a whole number of some ten thousand"
    )]
    let rounded = libm::rint(value * SCALE as f64) as i32;
    rounded
}

/// Returns the quantile of the standard normal distribution at `share`, by Newton's method from `near`, which takes few
/// steps if `near` is close.
fn probit(share: f64, near: f64) -> f64 {
    use core::f64::consts::{PI, SQRT_2};
    let mut x = near;
    for _ in 0..50 {
        let excess = libm::erfc(-x / SQRT_2) / 2.0 - share;
        let density = libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * PI);
        let step = excess / density;
        x -= step;
        if step.abs() < 1e-13 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the FNV-1a hash of the entries, two bytes each, the low one first.
    fn fingerprint(table: &[i16]) -> u64 {
        let bytes = table.iter().flat_map(|entry| entry.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn the_tables_equal_those_of_iproute2() {
        // These are the hashes of normal.dist, pareto.dist and paretonormal.dist of iproute2 6.1.0.
        for (law, theirs) in [
            (NetemDistribution::Normal, 0x3f19_8b60_14c3_b3b8),
            (NetemDistribution::Pareto, 0x209e_1d3c_8618_19fa),
            (NetemDistribution::ParetoNormal, 0x468c_e9c9_62a5_ecf9),
        ] {
            assert_eq!(fingerprint(&of(law)), theirs, "{law:?}");
        }
    }
}
