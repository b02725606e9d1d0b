//! Reads the measurements of instruments.

use serde_json::Value;

/// Returns the value of the figure over all directions, streams and sizes.
pub fn figure(measured: &Value, metric: &str, statistic: &str) -> Option<f64> {
    let mut figures = measured["figures"].as_array()?.iter();
    let whole = |figure: &Value| {
        ["direction", "stream", "size"]
            .iter()
            .all(|key| figure[key].is_null())
    };
    let figure =
        figures.find(|f| f["metric"] == metric && f["statistic"] == statistic && whole(f))?;
    figure["value"].as_f64()
}
