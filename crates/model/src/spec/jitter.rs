//! The random part of a delay.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ConfigError;
use crate::time::Nanos;

/// A random part of a delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// The size of the random part; [`Law`] defines what it measures.
    pub spread: Nanos,
    /// The distribution.
    pub law: Law,
    /// The time after which the scores of two packets are half as similar as those of packets at one instant, above 0.
    /// Without it, each packet is drawn independently.
    ///
    /// A score is a standard normal variable z that wanders with time (Ornstein and Uhlenbeck 1930): after dt it is rho
    /// z + sqrt(1 - rho²) e, with rho = 2^(-dt / half-life) and a new e. The random part is the quantile of the law at
    /// Phi(z), so that each drawn delay has that law, whatever the packet rate.
    pub half_life: Option<Nanos>,
}

/// A distribution of the random part of a delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Law {
    /// Each value within the spread is equally likely.
    #[default]
    Uniform,
    /// Normal, with a mean of 0; the spread is the standard deviation.
    Normal,
    /// netem's Pareto law (iproute2, `netem/pareto.c`): 4/3 (V^(-1/3) - 3/2) spreads, with V uniform between 0 and 1,
    /// and at most 32767/8192 spreads, which 1.1 % of all values reach. The mean is 0.033 spreads below 0, the standard
    /// deviation 0.82 spreads. netem takes the nearest of 4,096 values.
    Pareto,
    /// netem's mixed law (iproute2, `netem/paretonormal.c`): a quarter of the normal law's quantile plus three quarters
    /// of the Pareto law's quantile of the same draw, and at most 32767/8192 spreads. netem takes the nearest of 4,096
    /// values.
    ParetoNormal,
    /// The delay as a whole is log-normal: its logarithm is normal. Its mean is the delay without jitter, above 0, and
    /// its standard deviation is the spread, so the logarithm has the variance s² = ln(1 + (spread / delay)²) and the
    /// mean ln(delay) - s²/2. The part that grows with the packet's length is added.
    LogNormal,
    /// Each value of a table is equally likely.
    Table(Table),
}

/// A distribution given by its values, as in netem's `.dist` files: all are equally likely, in units of the spread /
/// 8192.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(Arc<[i16]>);

impl Table {
    /// The table value of one spread (Linux, `NETEM_DIST_SCALE`).
    pub const SCALE: i16 = 8_192;
    /// The largest number of values (Linux, `NETEM_DIST_MAX`).
    pub const MOST: usize = 16_384;

    /// Creates the distribution of `values`, which may be in any order.
    ///
    /// # Errors
    /// Returns an error for no values and for more than [`Table::MOST`].
    pub fn new(mut values: Vec<i16>) -> Result<Self, ConfigError> {
        if (1..=Self::MOST).contains(&values.len()) {
            values.sort_unstable();
            return Ok(Self(values.into()));
        }
        Err(ConfigError::BadTable {
            values: values.len(),
        })
    }

    /// Returns its values in ascending order.
    #[must_use]
    pub fn values(&self) -> &[i16] {
        &self.0
    }
}

impl Jitter {
    /// Creates a jitter that is drawn independently for each packet.
    #[must_use]
    pub const fn new(spread: Nanos, law: Law) -> Self {
        Self {
            spread,
            law,
            half_life: None,
        }
    }
}
