//! Percentiles of observed values.

/// Returns the value that `share` of the `sorted` values do not exceed.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len() - 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index within the slice"
    )]
    let at = (share * last as f64).round() as usize;
    sorted[at.min(last)]
}
