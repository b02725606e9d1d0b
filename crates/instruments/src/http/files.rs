//! Many files over a few HTTP/1.1 connections: the time to each one's first byte and to its completion.

mod fetch;
mod results;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::fetch::File;
use super::HttpTarget;
use super::sizes::Sizes;
use crate::Session;
use crate::endpoint::Local;
use record::Measurement;

/// Connections in parallel unless said, as browsers open them to one server.
pub(crate) const DEFAULT_CONNECTIONS: u32 = 6;
/// Connections that one client may use in parallel.
pub(crate) const MOST_CONNECTIONS: u32 = 256;

/// Which files to fetch, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FilesPlan {
    /// How many.
    pub(crate) count: u32,
    /// Their sizes; what the URLs give when absent.
    pub(crate) sizes: Option<Sizes>,
    /// Of the sizes drawn.
    pub(crate) seed: u64,
    /// In parallel, 1 to [`MOST_CONNECTIONS`].
    pub(crate) connections: u32,
    /// Whether a connection is used again for the next file; else each has its own.
    pub(crate) keep_alive: bool,
}

/// Fetches `count` files of `targets` in turn, from the calling thread's namespace, and from `local` if that is said.
///
/// The first failure ends all; what came until then is kept.
pub(crate) fn measure(
    targets: &[HttpTarget],
    plan: &FilesPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let (fetched, failure) = fetch::fetch(files(targets, plan), plan, local, session);
    let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let measurement = Measurement {
        samples: results::samples(&fetched, plan.connections),
        figures: results::figures(&fetched, plan),
        failure,
        ..Measurement::default()
    };
    describe(measurement, plan).with_fact("url", names.join(" "))
}

/// The files in their order: the targets in turn, each with its drawn size.
fn files(targets: &[HttpTarget], plan: &FilesPlan) -> Vec<File> {
    let turns = targets.iter().cycle();
    match &plan.sizes {
        Some(sizes) => {
            let sizes = sizes.draw(plan.count, plan.seed);
            let file = |(target, size): (&HttpTarget, u64)| File {
                target: target.of_size(size),
                size: Some(size),
            };
            turns.zip(sizes).map(file).collect()
        }
        None => {
            let file = |(target, _): (&HttpTarget, u32)| File {
                target: target.clone(),
                size: None,
            };
            turns.zip(0..plan.count).map(file).collect()
        }
    }
}

fn describe(measurement: Measurement, plan: &FilesPlan) -> Measurement {
    let connections = match plan.keep_alive {
        true => format!("{} in parallel, each used again", plan.connections),
        false => format!("{} in parallel, a new one for each file", plan.connections),
    };
    let measurement = measurement
        .with_fact("connections", connections)
        .with_fact(
            "first byte",
            "from sending a file's request to the first byte of its answer",
        )
        .with_fact(
            "completion",
            "from a file's turn on its connection, connecting included, to its last byte",
        )
        .with_fact(
            "elapsed",
            "all files: from the first one's turn to the last byte of the last",
        )
        .with_fact("goodput", "HTTP body bytes (L7) of all files over elapsed")
        .with_fact(
            "intervals",
            "of the median, by the ranks of the values: sampling only",
        );
    match &plan.sizes {
        Some(sizes) => measurement.with_fact("sizes", format!("{sizes}; seed {}", plan.seed)),
        None => measurement.with_fact("sizes", "what the URLs give"),
    }
}
