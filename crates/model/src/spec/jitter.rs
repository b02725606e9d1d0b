//! The random part of a delay.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ConfigError;
use crate::time::Nanos;

/// A random part of a delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// How far; [`Law`] says of what it is the measure.
    pub spread: Nanos,
    /// How it is distributed.
    pub law: Law,
    /// How long it takes until two packets' scores are half as alike as those of packets at one instant; each packet's is
    /// drawn by itself if there is none. Above 0.
    ///
    /// A score is a standard normal variable z that wanders with time (Ornstein and Uhlenbeck 1930): after dt it is rho z +
    /// sqrt(1 - rho²) e, with rho = 2^(-dt / half-life) and a new e. What is drawn is the law's quantile of Phi(z), so that
    /// each packet's delay has the law exactly, whatever the packet rate.
    pub half_life: Option<Nanos>,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Law {
    /// Each value within the spread is equally likely.
    #[default]
    Uniform,
    /// Normal, with a mean of 0; the spread is the standard deviation.
    Normal,
    /// netem's (iproute2, `netem/pareto.c`): 4/3 (V^(-1/3) - 3/2) spreads, V uniform between 0 and 1, and at most 32767/8192
    /// spreads, where 1.1 % of all are. The mean is 0.033 spreads below 0, the standard deviation 0.82 spreads. netem takes the nearest of
    /// 4,096 values.
    Pareto,
    /// netem's (iproute2, `netem/paretonormal.c`): the sum of a quarter of the normal law's and three quarters of the Pareto
    /// law's quantile of one draw, and at most 32767/8192 spreads. netem takes the nearest of 4,096 values.
    ParetoNormal,
    /// The delay as a whole is log-normal: its logarithm is normal. Its mean is the delay without jitter, above 0, and its
    /// standard deviation the spread, so that of the logarithm s² = ln(1 + (spread / delay)²) is the variance and ln(delay) -
    /// s²/2 the mean. What grows with the packet's size is added.
    LogNormal,
    /// Each value of a table is equally likely.
    Table(Table),
}

/// A distribution by its values, as netem's `.dist` files have it: each is equally likely and counts in 8192ths of the spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(Arc<[i16]>);

impl Table {
    /// What stands for one spread (Linux, `NETEM_DIST_SCALE`).
    pub const SCALE: i16 = 8_192;
    /// The most values (Linux, `NETEM_DIST_MAX`).
    pub const MOST: usize = 16_384;

    /// The distribution of `values`, in any order.
    ///
    /// # Errors
    /// None, or more than [`Table::MOST`].
    pub fn new(mut values: Vec<i16>) -> Result<Self, ConfigError> {
        if (1..=Self::MOST).contains(&values.len()) {
            values.sort_unstable();
            return Ok(Self(values.into()));
        }
        Err(ConfigError::BadTable {
            values: values.len(),
        })
    }

    /// Its values, from the least.
    #[must_use]
    pub fn values(&self) -> &[i16] {
        &self.0
    }
}

impl Jitter {
    /// One whose packets are drawn by themselves.
    #[must_use]
    pub const fn new(spread: Nanos, law: Law) -> Self {
        Self {
            spread,
            law,
            half_life: None,
        }
    }
}
