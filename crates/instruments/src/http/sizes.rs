//! The sizes of many files: listed, or drawn from a distribution with a seed.

use std::fmt;
use std::str::FromStr;

use crate::codec::as_text;
use crate::error::{Context, Error, Result, bail, ensure};
use model::Bytes;

/// The largest size of a file in bytes. Larger values of a distribution become this size.
const LARGEST: u64 = 1_000_000_000;

/// The sizes of files, in bytes.
///
/// The text form is `10kb`, `1kb,10kb,100kb` (in turn), `1kb..100kb` (uniform), `lognormal:MEDIAN,SIGMA` or
/// `pareto:LEAST,ALPHA`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileSizes {
    /// A list of sizes that is used cyclically.
    InTurn(Vec<u64>),
    /// Every whole number from `least` to `most` with equal probability.
    Uniform { least: u64, most: u64 },
    /// A log-normal distribution: the natural logarithm is normal with standard deviation `sigma`, and half of the
    /// files are smaller than `median`.
    LogNormal { median: u64, sigma: f64 },
    /// A Pareto distribution: a share of (`least` / x)^`alpha` of the files is larger than x.
    Pareto { least: u64, alpha: f64 },
}

impl FileSizes {
    /// Returns the sizes of `count` files. The same seed gives the same sizes.
    pub(crate) fn draw(&self, count: u32, seed: u64) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count as usize)
            .map(|at| self.one(at, &mut random))
            .collect()
    }

    /// Returns the listed sizes, each once and in ascending order. The list is empty for a distribution.
    pub(crate) fn distinct(&self) -> Vec<u64> {
        let Self::InTurn(sizes) = self else {
            return Vec::new();
        };
        let mut sizes = sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn one(&self, at: usize, random: &mut fastrand::Rng) -> u64 {
        let size = match *self {
            Self::InTurn(ref sizes) => return sizes[at % sizes.len()],
            Self::Uniform { least, most } => return random.u64(least..=most),
            Self::LogNormal { median, sigma } => median as f64 * (sigma * normal(random)).exp(),
            Self::Pareto { least, alpha } => least as f64 * open_unit(random).powf(-1.0 / alpha),
        };
        whole(size)
    }

    /// Returns a description for people.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::InTurn(sizes) => {
                format!(
                    "{} bytes in turn",
                    joined(sizes, ", ", |size| size.to_string())
                )
            }
            Self::Uniform { least, most } => format!("uniform from {least} to {most} bytes"),
            Self::LogNormal { median, sigma } => {
                format!("log-normal, median {median} bytes, sigma {sigma}, at most {LARGEST}")
            }
            Self::Pareto { least, alpha } => {
                format!("Pareto, at least {least} bytes, alpha {alpha}, at most {LARGEST}")
            }
        }
    }

    fn check(&self) -> Result<()> {
        let (least, most) = match self {
            Self::InTurn(sizes) => (sizes.iter().min(), sizes.iter().max()),
            Self::Uniform { least, most } => (Some(least), Some(most)),
            Self::LogNormal { median: size, .. } | Self::Pareto { least: size, .. } => {
                (Some(size), Some(size))
            }
        };
        let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
        ensure!(Input, least > 0, "a file must have at least 1 byte");
        ensure!(
            Input,
            least <= most,
            "there is no size from {least} to {most} bytes"
        );
        ensure!(
            Input,
            most <= LARGEST,
            "{most} bytes: a file can have at most {LARGEST}"
        );
        Ok(())
    }
}

impl FromStr for FileSizes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let sizes = if let Some(parameters) = text.strip_prefix("lognormal:") {
            let (median, sigma) = pair(parameters, "lognormal:MEDIAN,SIGMA")?;
            Self::LogNormal { median, sigma }
        } else if let Some(parameters) = text.strip_prefix("pareto:") {
            let (least, alpha) = pair(parameters, "pareto:LEAST,ALPHA")?;
            Self::Pareto { least, alpha }
        } else if let Some((least, most)) = text.split_once("..") {
            Self::Uniform {
                least: size(least)?,
                most: size(most)?,
            }
        } else {
            Self::InTurn(text.split(',').map(size).collect::<Result<_>>()?)
        };
        sizes.check()?;
        Ok(sizes)
    }
}

as_text!(FileSizes);

/// The text form that [`FromStr`] parses.
impl fmt::Display for FileSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InTurn(ref sizes) => {
                f.write_str(&joined(sizes, ",", |size| Bytes(size).to_string()))
            }
            Self::Uniform { least, most } => write!(f, "{}..{}", Bytes(least), Bytes(most)),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{},{sigma}", Bytes(median)),
            Self::Pareto { least, alpha } => write!(f, "pareto:{},{alpha}", Bytes(least)),
        }
    }
}

fn joined(sizes: &[u64], between: &str, text: fn(u64) -> String) -> String {
    let texts: Vec<String> = sizes.iter().map(|&size| text(size)).collect();
    texts.join(between)
}

fn size(text: &str) -> Result<u64> {
    let Bytes(bytes) = text.trim().parse()?;
    Ok(bytes)
}

/// Parses a size and a parameter above 0, separated by a comma.
fn pair(text: &str, form: &str) -> Result<(u64, f64)> {
    let Some((first, second)) = text.split_once(',') else {
        bail!(Input, "`{text}`: write {form}");
    };
    let parameter: f64 = second
        .trim()
        .parse()
        .with_context(|| format!("`{second}`: write {form}"))?;
    ensure!(
        Input,
        parameter.is_finite() && parameter > 0.0,
        "`{second}`: must be above 0"
    );
    Ok((size(first)?, parameter))
}

/// Returns a standard normal deviate (Box and Muller, 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * open_unit(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// Returns a uniform deviate above 0 and up to 1.
fn open_unit(random: &mut fastrand::Rng) -> f64 {
    1.0 - random.f64()
}

/// Rounds to a whole number of bytes from 1 to [`LARGEST`].
fn whole(size: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what fits; of no number, 0 comes"
    )]
    let bytes = size.round().clamp(1.0, LARGEST as f64) as u64;
    bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn draw(text: &str, count: u32, seed: u64) -> Vec<u64> {
        text.parse::<FileSizes>().unwrap().draw(count, seed)
    }

    fn median(text: &str) -> u64 {
        let mut sizes = draw(text, 10_001, 1);
        sizes.sort_unstable();
        sizes[5_000]
    }

    #[test]
    fn the_same_seed_gives_the_same_sizes() {
        for text in ["1kb..100kb", "lognormal:10kb,1.5", "pareto:1kb,1.2"] {
            assert_eq!(draw(text, 50, 7), draw(text, 50, 7));
            assert_ne!(draw(text, 50, 7), draw(text, 50, 8));
            // Additional files do not change the first ones.
            assert_eq!(draw(text, 50, 7), draw(text, 90, 7)[..50]);
        }
        // These sizes must not change, because an older version drew them from the same seed.
        assert_eq!(draw("1kb..100kb", 3, 1), [66_047, 53_927, 24_724]);
    }

    #[test]
    fn listed_sizes_are_used_in_turn() {
        assert_eq!(draw("1kb,5kb", 5, 9), [1000, 5000, 1000, 5000, 1000]);
        assert_eq!(draw("2kb", 2, 9), [2000, 2000]);
    }

    #[test]
    fn distributions_have_their_medians() {
        // Five standard errors of the sample median of 10,001 values are below 8 % for these distributions.
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 0.08;
        assert!(near(median("1b..100kb"), 50_000.0));
        assert!(near(median("lognormal:10kb,1"), 10_000.0));
        // The median is the square root of two times the least size, because (1 / x)^2 = 1/2 there.
        assert!(near(median("pareto:10kb,2"), 14_142.0));
    }

    #[test]
    fn an_invalid_distribution_is_refused_with_its_cause() {
        for (text, cause) in [
            ("", "size"),
            ("10", "size"),
            ("0b", "at least 1 byte"),
            ("2gb", "at most"),
            ("9kb..1kb", "there is no size from 9000 to 1000 bytes"),
            ("lognormal:10kb", "lognormal:MEDIAN,SIGMA"),
            ("pareto:1kb,x", "pareto:LEAST,ALPHA"),
            ("pareto:1kb,0", "above 0"),
            ("pareto:1kb,NaN", "above 0"),
        ] {
            let error = format!("{:#}", text.parse::<FileSizes>().unwrap_err());
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_size_is_within_its_bounds(median in 1..=LARGEST, sigma in 0.01..20.0, seed: u64) {
            let sizes = FileSizes::LogNormal { median, sigma };
            prop_assert!(sizes.draw(20, seed).iter().all(|size| (1..=LARGEST).contains(size)));
            let sizes = FileSizes::Pareto { least: median, alpha: sigma };
            prop_assert!(sizes.draw(20, seed).iter().all(|size| (median..=LARGEST).contains(size)));
        }
    }
}
