//! Tables of seconds and Mbit/s.

use conditions::Direction;
use stats::order_statistics::{quantile, sorted};

use super::FileError;
use crate::observations::PathObservations;
use crate::over_time::OverTime;

/// The share of the usual time between two rows by which a distance of rows may differ from it.
const UNEVEN: f64 = 0.1;

/// Reads the throughput in the direction down: lines of seconds and Mbit/s at equal distances, with or without a header.
pub(super) fn read(text: &str) -> Result<PathObservations, FileError> {
    let mut rates = Vec::new();
    let mut times = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let cells = text.split([',', ' ', '\t']).filter(|cell| !cell.is_empty());
        let cells: Vec<&str> = cells.collect();
        let numbers: Vec<f64> = cells.iter().filter_map(|cell| cell.parse().ok()).collect();
        match numbers.as_slice() {
            [at_s, mbit] if at_s.is_finite() && mbit.is_finite() && *mbit >= 0.0 => {
                rates.push(mbit * 1e6);
                times.push((line, *at_s));
            }
            // The header names the columns.
            [] if line == 1 || cells.is_empty() => {
                if let Some(unit) = cells.get(1).filter(|unit| !is_mbit(unit)) {
                    let cause = format!("`{unit}` does not say Mbit/s or Mbps");
                    return Err(FileError::Line { line, cause });
                }
            }
            _ => {
                let cause = format!("`{text}` is not a time in seconds and a rate in Mbit/s");
                return Err(FileError::Line { line, cause });
            }
        }
    }
    let over_time = OverTime {
        every_s: between_rows_s(&times)?,
        values: rates,
    };
    Ok(PathObservations {
        throughput: vec![(Direction::Down, over_time)],
        ..PathObservations::default()
    })
}

/// Returns the time in seconds between two rows, each with its line and its time, which must be at equal distances. A single
/// row counts as a second.
fn between_rows_s(times: &[(usize, f64)]) -> Result<f64, FileError> {
    let [(_, first_s), .., (_, last_s)] = times else {
        return Ok(1.0);
    };
    let distances = times.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let distances: Vec<f64> = distances.collect();
    let usual_s = quantile(&sorted(&distances), 0.5).unwrap_or_default();
    let later = times.iter().skip(1).zip(&distances);
    for ((line, at_s), distance_s) in later {
        let is_equal = (distance_s - usual_s).abs() <= UNEVEN * usual_s;
        if !(usual_s > 0.0 && is_equal) {
            let cause = format!(
                "the time {at_s} s is {distance_s} s after that of the row before, and the usual distance is {usual_s} s: the rows need \
                 rising times at equal distances, one row for each interval"
            );
            return Err(FileError::Line { line: *line, cause });
        }
    }
    Ok((last_s - first_s) / distances.len() as f64)
}

/// Returns whether the name of a column has the unit Mbit/s.
fn is_mbit(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("mbit") || name.contains("mbps")
}
