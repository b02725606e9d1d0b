//! The tables of iproute2's distributions, computed as its programs do (`netem/normal.c`, `pareto.c`, `paretonormal.c`).

use alloc::boxed::Box;

use crate::spec::NetemDistribution;

/// What stands for one jitter in a table (the kernel's `NETEM_DIST_SCALE`).
pub(super) const SCALE: i64 = 8_192;

/// Entries of a table. The programs work out four times as many, and write every fourth.
const ENTRIES: u32 = 4_096;
const FINE: f64 = 16_384.0;

/// The steps in which the normal distribution's program goes through its values.
const STEP: f64 = 0.000_05;
/// Where it begins.
const LOWEST: f64 = -10.0;

/// The quantiles of `law`, 8192 for each jitter.
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
                // The whole part of the sum of a whole one and three whole ones.
                NetemDistribution::ParetoNormal => (normal(entry) + 3 * pareto(entry)) / 4,
            };
            let held = value.clamp(i32::from(i16::MIN), i32::from(i16::MAX));
            i16::try_from(held).unwrap_or(i16::MAX)
        })
        .collect()
}

/// The last of the program's values whose place in its fine table, rounded, is that of `entry`: all below half a place more.
fn quantile(entry: u32, near: f64) -> f64 {
    let share = (f64::from(entry) * 4.0 + 0.5) / FINE;
    let steps = libm::floor((probit(share, near) - LOWEST) / STEP);
    LOWEST + steps * STEP
}

/// 4/3 of how far the quantile of a Pareto law of shape 3, from 1 on, lies above its mean of 3/2, cut at what 16 bits hold.
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

/// Where the standard normal distribution function is `share`, by Newton's method from `near`: few steps where that is near.
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

    /// FNV-1a of the entries, two bytes each, the low one first.
    fn fingerprint(table: &[i16]) -> u64 {
        let bytes = table.iter().flat_map(|entry| entry.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn the_tables_are_those_that_iproute2_installs() {
        // Of normal.dist, pareto.dist and paretonormal.dist as iproute2 6.1.0 has them.
        for (law, theirs) in [
            (NetemDistribution::Normal, 0x3f19_8b60_14c3_b3b8),
            (NetemDistribution::Pareto, 0x209e_1d3c_8618_19fa),
            (NetemDistribution::ParetoNormal, 0x468c_e9c9_62a5_ecf9),
        ] {
            assert_eq!(fingerprint(&of(law)), theirs, "{law:?}");
        }
    }
}
