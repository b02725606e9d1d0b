//! The arithmetic of measurements, without I/O: intervals, tests, order statistics and change points, and the limits of
//! TCP and Ethernet.
#![forbid(unsafe_code)]

pub mod autocorrelation;
pub mod change;
pub mod contrast;
pub mod deciding;
pub mod digits;
pub mod hodges_lehmann;
pub mod layers;
pub mod losses;
mod mann_whitney;
pub mod order_statistics;
mod pairs;
pub mod proportion;
pub mod quantile;
pub mod repeats;
pub mod sample_summary;
#[cfg(test)]
mod statistics_tests;
pub mod steady;
pub mod t_interval;
pub mod theory;
pub mod welch;

#[cfg(test)]
mod tests {
    /// Returns `count` values of the standard normal distribution (G. E. P. Box and M. E. Muller, 1958).
    pub(crate) fn draws(seed: u64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = || {
            let (radius, angle) = (1.0 - random.f64(), random.f64());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        };
        (0..count).map(|_| draw()).collect()
    }
}
