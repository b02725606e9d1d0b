//! Percentiles of what was seen.

/// The value that `share` of the `sorted` ones do not pass.
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
