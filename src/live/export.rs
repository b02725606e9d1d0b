//! Exports the changes of a running link as files that repeat them.

use std::fmt::Display;

use anyhow::{Result, ensure};
use conditions::{LinkSpec, over_time};
use model::Nanos;
use serde::Serialize;

use super::moment::since;

/// The time for which the scenario continues after the last change.
const TAIL: Nanos = Nanos::from_millis(5_000);

/// The interval between two pings of the scenario.
const BETWEEN_PINGS: Nanos = Nanos::from_millis(100);

/// The conditions that were in force, with their times.
pub(crate) struct ChangeLog {
    /// The link's name.
    pub(super) name: String,
    /// The first and the last revision.
    pub(super) revisions: [u64; 2],
    /// The time at which the first conditions came into force: RFC 3339.
    pub(super) since: String,
    /// Whether the clock of traces, outages or handovers was stopped or moved.
    pub(super) is_moved: bool,
    /// The conditions, each with the time since the link's start at which it came into force.
    pub(super) conditions: Vec<(Nanos, LinkSpec)>,
}

/// The tables of a scenario file.
#[derive(Serialize)]
struct Scenario {
    name: String,
    title: String,
    seed: u64,
    instruments: [ScenarioInstrument; 1],
    cases: [ScenarioCase; 1],
}

#[derive(Serialize)]
struct ScenarioInstrument {
    kind: &'static str,
    parameters: Pings,
}

#[derive(Serialize)]
struct Pings {
    count: u64,
    interval: Nanos,
}

#[derive(Serialize)]
struct ScenarioCase {
    name: &'static str,
    link: LinkSpec,
}

impl ChangeLog {
    /// Formats the changes as a link file with a schedule.
    ///
    /// # Errors
    /// Fails if a schedule cannot express one of the changes.
    pub(crate) fn link_file(&self) -> Result<String> {
        let about =
            "The conditions of the link, in order of time. Times count from the first change.";
        Ok(format!(
            "{}{}",
            self.head(about),
            toml::to_string(&self.over_time()?)?
        ))
    }

    /// Returns the conditions with a schedule that has the same effect.
    fn over_time(&self) -> Result<LinkSpec> {
        ensure!(
            !self.is_moved,
            "the schedules' clock was stopped or moved, and a file cannot express that for traces, outages and handovers"
        );
        Ok(over_time(&self.conditions)?)
    }

    /// Formats the changes as a scenario for `farwire run`.
    ///
    /// # Errors
    /// Fails if a schedule cannot express one of the changes.
    pub(crate) fn scenario(&self) -> Result<String> {
        let link = self.over_time()?;
        let [first, last] = self.revisions;
        let scenario = Scenario {
            name: format!("{}-{first}-to-{last}", plain(&self.name)),
            title: format!("{}: its conditions since {}", self.name, self.since),
            seed: link.seed(),
            instruments: [ScenarioInstrument {
                kind: "ping",
                parameters: Pings {
                    count: self.pings(),
                    interval: BETWEEN_PINGS,
                },
            }],
            cases: [ScenarioCase {
                name: "as-it-was",
                link,
            }],
        };
        let about = "Pings through the recorded conditions, in order. Replace the pings with your own instruments.";
        let text = toml::to_string(&scenario)?;
        Ok(format!("{}{text}", self.head(about)))
    }

    fn head(&self, about: impl Display) -> String {
        let [first, last] = self.revisions;
        let Self { name, since, .. } = self;
        let name = name.escape_debug();
        format!("# {about}\n# Link {name}, revisions {first} to {last}, from {since} on.\n\n")
    }

    /// Returns the number of pings that also covers the last change.
    fn pings(&self) -> u64 {
        let [first, last] = [self.conditions.first(), self.conditions.last()]
            .map(|end| end.map_or(Nanos::ZERO, |(at, _)| *at));
        (since(first, last) + TAIL).0.div_ceil(BETWEEN_PINGS.0)
    }
}

/// Converts a link's name to a part of an experiment's name.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let letters = name.chars().map(|c| if is_plain(c) { c } else { '-' });
    letters
        .collect::<String>()
        .trim_start_matches(['-', '_'])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_log() -> ChangeLog {
        let at = |ms, text: &str| (Nanos::from_millis(ms), toml::from_str(text).unwrap());
        ChangeLog {
            is_moved: false,
            name: "eth0-eth1.7".to_owned(),
            revisions: [3, 4],
            since: "2026-01-01T00:00:00Z".to_owned(),
            conditions: vec![
                at(2_000, "delay = '1ms'\nseed = 7\nup = { loss = '1%' }"),
                at(3_500, "delay = '2ms'\nseed = 7"),
            ],
        }
    }

    #[test]
    fn a_link_file_repeats_the_conditions_with_their_times() {
        let text = change_log().link_file().unwrap();
        assert!(text.contains("revisions 3 to 4, from 2026"), "{text}");
        let read: LinkSpec = toml::from_str(&text).unwrap();
        let right = "delay = '1ms'\nseed = 7\nschedule = [{ at = '1.5s', delay = '2ms' }]\n\
            [up]\nloss = '1%'\nschedule = [{ at = '1.5s', without = ['loss'] }]";
        assert_eq!(read, toml::from_str(right).unwrap());
    }

    #[test]
    fn a_scenario_runs_until_after_the_last_change() {
        let text = change_log().scenario().unwrap();
        let scenario: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(scenario["name"].as_str(), Some("eth0-eth1-7-3-to-4"));
        assert_eq!(scenario["seed"].as_integer(), Some(7));
        let link: LinkSpec = scenario["cases"][0]["link"].clone().try_into().unwrap();
        let file: LinkSpec = toml::from_str(&change_log().link_file().unwrap()).unwrap();
        assert_eq!(link, file);
        let pings = &scenario["instruments"][0]["parameters"];
        assert_eq!(pings["count"].as_integer(), Some(65));
    }
}
