//! The fields that sweeps set, and their values in each case.

use std::collections::{HashMap, HashSet};

use crate::plan::{Case, Plan};

/// A field that a sweep sets in at least one case of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweptField<'a> {
    /// The path of the field within the case, which is unique in a plan: "link.up.loss".
    pub path: &'a str,
    /// The shortest ending of the path that no other swept field of the plan has: "loss", or "up.loss" if another field
    /// is "link.down.loss".
    pub name: &'a str,
}

/// Returns the part of a case's name that shows the values of a sweep, each labelled with the last part of its path:
/// "\[delay=10ms, loss=1%\]". It is empty for a case that no sweep made.
pub fn name_suffix(axes: &[(String, String)]) -> String {
    if axes.is_empty() {
        return String::new();
    }
    let label = |(path, value): &(String, String)| {
        let last = endings(path).next().unwrap_or(path);
        format!("{last}={value}")
    };
    let labels: Vec<String> = axes.iter().map(label).collect();
    format!("[{}]", labels.join(", "))
}

impl<A> Plan<A> {
    /// Returns the fields that sweeps set, in the order in which the cases have them. The paths of published values are
    /// no fields, because they are no conditions.
    pub fn swept_fields(&self) -> Vec<SweptField<'_>> {
        let mut known = HashSet::new();
        let axes = self.cases.iter().flat_map(|case| &case.axes);
        let paths = axes.map(|(path, _)| path.as_str());
        let swept = paths.filter(|path| !path.starts_with("published."));
        let paths: Vec<&str> = swept.filter(|path| known.insert(*path)).collect();
        // The number of paths with each ending.
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for ending in paths.iter().copied().flat_map(endings) {
            *counts.entry(ending).or_default() += 1;
        }
        let fields = paths.iter().copied().map(|path| SweptField {
            path,
            name: endings(path)
                .find(|ending| counts[ending] == 1)
                .unwrap_or(path),
        });
        fields.collect()
    }
}

impl<A> Case<A> {
    /// Returns the value that a sweep set for the field at this path, as the scenario has it: "10ms".
    pub fn swept_value(&self, path: &str) -> Option<&str> {
        let mut axes = self.axes.iter();
        let (_, value) = axes.find(|(known, _)| known == path)?;
        Some(value)
    }

    /// Returns the paths and the values of the fields that a sweep set, in the order and the words of the scenario. Published
    /// values are left out, because they are no conditions.
    pub fn swept_values(&self) -> impl Iterator<Item = (&str, &str)> {
        let axes = self.axes.iter();
        let swept = axes.filter(|(path, _)| !path.starts_with("published."));
        swept.map(|(path, value)| (path.as_str(), value.as_str()))
    }

    /// Returns the name that the scenario gives the case, without the values of a sweep.
    pub fn base_name(&self) -> String {
        match name_suffix(&self.axes) {
            suffix if suffix.is_empty() => self.name.clone(),
            suffix => self.name.replacen(&suffix, "", 1),
        }
    }
}

/// Returns the endings of a path from the last part to the whole path.
fn endings(path: &str) -> impl Iterator<Item = &str> {
    let dots = path.rmatch_indices('.').map(|(at, _)| &path[at + 1..]);
    dots.chain([path])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    /// The plan of a small record with these sweeps in its cases.
    fn plan(axes: [&[(&str, &str)]; 2]) -> Plan {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/records/small.jsonl"
        );
        let record = Record::read(std::path::Path::new(file)).unwrap();
        let mut plan = record.head.plan;
        for (case, axes) in plan.cases.iter_mut().zip(axes) {
            let owned = axes
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
            case.axes = owned.collect();
            case.name = format!("{}{}", case.name, name_suffix(&case.axes));
        }
        plan
    }

    #[test]
    fn a_field_has_the_shortest_unique_name() {
        let plan = plan([
            &[("link.up.loss", "1%"), ("link.delay", "1ms")],
            &[
                ("link.down.loss", "2%"),
                ("delay", "3ms"),
                ("published.ping.rtt_ms.median", "1"),
            ],
        ]);
        let fields = plan.swept_fields();
        let pairs: Vec<(&str, &str)> = fields.iter().map(|one| (one.path, one.name)).collect();
        assert_eq!(
            pairs,
            [
                ("link.up.loss", "up.loss"),
                ("link.delay", "link.delay"),
                ("link.down.loss", "down.loss"),
                ("delay", "delay"),
            ]
        );
        assert_eq!(plan.cases[0].swept_value("link.delay"), Some("1ms"));
        assert_eq!(plan.cases[0].swept_value("delay"), None);
        let values: Vec<(&str, &str)> = plan.cases[1].swept_values().collect();
        assert_eq!(values, [("link.down.loss", "2%"), ("delay", "3ms")]);
    }

    #[test]
    fn the_base_name_is_the_name_without_the_values_of_the_sweep() {
        let mut plan = plan([&[("link.delay", "1ms"), ("link.loss", "1%")], &[]]);
        assert_eq!(plan.cases[0].name, "base[delay=1ms, loss=1%]");
        assert_eq!(plan.cases[0].base_name(), "base");
        assert_eq!(plan.cases[1].base_name(), "slow");
        plan.cases[0].name += ": ping";
        assert_eq!(plan.cases[0].base_name(), "base: ping");
    }

    #[test]
    fn the_endings_of_a_path_begin_with_its_last_part() {
        let all = |path| endings(path).collect::<Vec<_>>();
        assert_eq!(all("a.b.c"), ["c", "b.c", "a.b.c"]);
        assert_eq!(all("a"), ["a"]);
    }
}
