//! Pairs of cases of a sweep that differ in the value of one field, which a scenario may ask to compare.

use std::collections::{BTreeMap, HashMap};

use crate::plan::{Case, Plan};
use conditions::{Error, require};

/// Largest number of comparisons of one record: nobody would read more, and the adjustment for their number would hide
/// every difference.
pub const MOST_COMPARISONS: usize = 10_000;

/// The pairs of cases that differ in the value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairsByField<'a> {
    /// The paths of other swept fields whose values change together with those of the field, so that a difference may
    /// be theirs.
    pub together: Vec<&'a str>,
    /// Every pair of values at each combination of the other fields, in the order of the cases.
    pub pairs: Vec<CasePair<'a>>,
}

/// Two cases that differ in the value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CasePair<'a> {
    /// Their places in the plan. The first one has the value that the sweep names first.
    pub cases: [usize; 2],
    /// The values of the field in both.
    pub values: [&'a str; 2],
    /// The paths of the other swept fields and the values that both cases have.
    pub shared: Vec<(&'a str, &'a str)>,
}

/// A case with a value of the field: its place in the plan, the case, and the value.
type Candidate<'a, A> = (usize, &'a Case<A>, &'a str);

impl<A> Plan<A> {
    /// Returns the pairs of cases that differ in the value of the swept field at this path.
    ///
    /// # Errors
    /// There are more than [`MOST_COMPARISONS`].
    pub fn pairs_by<'a>(&'a self, path: &str) -> Result<PairsByField<'a>, Error> {
        let with_value =
            |(at, case): (usize, &'a Case<A>)| Some((at, case, case.swept_value(path)?));
        let mut found = PairsByField {
            together: Vec::new(),
            pairs: Vec::new(),
        };
        let candidates = self.cases.iter().enumerate().filter_map(with_value);
        for group in grouped(candidates, |(_, case, _)| case.base_name()) {
            found.add_sweep(path, group)?;
        }
        Ok(found)
    }
}

impl<'a> PairsByField<'a> {
    /// Adds the pairs of one sweep.
    fn add_sweep<A>(&mut self, path: &str, cases: Vec<Candidate<'a, A>>) -> Result<(), Error> {
        let together = together(path, &cases);
        let shared = |case: &'a Case<A>| -> Vec<(&'a str, &'a str)> {
            let axes = case
                .axes
                .iter()
                .map(|(path, value)| (path.as_str(), value.as_str()));
            axes.filter(|(other, _)| *other != path && !together.contains(other))
                .collect()
        };
        for group in grouped(cases, |candidate| shared(candidate.1)) {
            let most = group.len().saturating_mul(group.len().saturating_sub(1)) / 2;
            require!(
                self.pairs.len().saturating_add(most) <= MOST_COMPARISONS,
                "more than {MOST_COMPARISONS} pairs of cases differ in it"
            );
            for (later, second) in group.iter().enumerate() {
                let earlier = group[..later].iter().filter(|first| first.2 != second.2);
                self.pairs.extend(earlier.map(|first| CasePair {
                    cases: [first.0, second.0],
                    values: [first.2, second.2],
                    shared: shared(first.1),
                }));
            }
        }
        let new = together.into_iter();
        let new: Vec<&str> = new.filter(|path| !self.together.contains(path)).collect();
        self.together.extend(new);
        Ok(())
    }
}

/// Returns the paths of the fields that follow the one at `path`: each of its values occurs with one value of theirs,
/// and they have several.
fn together<'a, A>(path: &str, cases: &[Candidate<'a, A>]) -> Vec<&'a str> {
    let mut others: Vec<&'a str> = Vec::new();
    for (other, _) in cases.iter().flat_map(|(_, case, _)| &case.axes) {
        if other != path && !others.contains(&other.as_str()) {
            others.push(other);
        }
    }
    others.retain(|other| {
        let mut known: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let is_one_each = cases.iter().all(|(_, case, value)| {
            let own = case.swept_value(other);
            *known.entry(value).or_insert(own) == own
        });
        let mut values = known.values();
        let first = values.next();
        is_one_each && values.any(|value| Some(value) != first)
    });
    others
}

/// Returns the items in groups of the same key, in the order in which the keys first appear.
fn grouped<T, K: std::hash::Hash + Eq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<Vec<T>> = Vec::new();
    for item in items {
        let at = *places.entry(key(&item)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use crate::swept::name_suffix;

    /// A plan with these sweeps: for each case its name and the values of its fields.
    fn plan(cases: &[(&str, &[(&str, &str)])]) -> Plan {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/records/small.jsonl"
        );
        let record = Record::read(std::path::Path::new(file)).unwrap();
        let mut plan = record.head.plan;
        let pattern = plan.cases[0].clone();
        let case = |(name, axes): &(&str, &[(&str, &str)])| {
            let axes: Vec<(String, String)> = axes
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
                .collect();
            Case {
                name: format!("{name}{}", name_suffix(&axes)),
                axes,
                ..pattern.clone()
            }
        };
        plan.cases = cases.iter().map(case).collect();
        plan
    }

    #[test]
    fn every_pair_of_values_is_compared_at_each_combination_of_the_others() {
        let mut cases: Vec<Vec<(&str, &str)>> = Vec::new();
        for delay in ["1ms", "2ms"] {
            for congestion in ["cubic", "bbr", "reno"] {
                cases.push(vec![("link.delay", delay), ("tcp.congestion", congestion)]);
            }
        }
        let cases: Vec<(&str, &[(&str, &str)])> =
            cases.iter().map(|axes| ("grid", &axes[..])).collect();
        let plan = plan(&cases);
        let found = plan.pairs_by("tcp.congestion").unwrap();
        assert!(found.together.is_empty());
        let places: Vec<[usize; 2]> = found.pairs.iter().map(|pair| pair.cases).collect();
        assert_eq!(places, [[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5]]);
        assert_eq!(found.pairs[2].values, ["bbr", "reno"]);
        assert_eq!(found.pairs[5].shared, [("link.delay", "2ms")]);
        let by_delay = plan.pairs_by("link.delay").unwrap().pairs;
        assert_eq!(by_delay.len(), 3);
        assert_eq!(by_delay[1].shared, [("tcp.congestion", "bbr")]);
        assert!(plan.pairs_by("link.loss").unwrap().pairs.is_empty());
    }

    #[test]
    fn fields_that_change_together_are_named_and_separate_no_pairs() {
        let plan = plan(&[
            ("grid", &[("link.rate", "1mbit"), ("link.queue", "10pkt")]),
            ("grid", &[("link.rate", "2mbit"), ("link.queue", "20pkt")]),
        ]);
        let found = plan.pairs_by("link.rate").unwrap();
        assert_eq!(found.together, ["link.queue"]);
        assert_eq!(found.pairs.len(), 1);
        assert!(found.pairs[0].shared.is_empty());
    }

    #[test]
    fn cases_of_different_sweeps_are_not_compared() {
        let plan = plan(&[
            ("one", &[("link.delay", "1ms")]),
            ("other", &[("link.delay", "2ms")]),
            ("plain", &[]),
        ]);
        assert!(plan.pairs_by("link.delay").unwrap().pairs.is_empty());
    }

    #[test]
    fn too_many_pairs_are_refused() {
        let values: Vec<String> = (1..=150).map(|ms| format!("{ms}ms")).collect();
        let axes: Vec<Vec<(&str, &str)>> = values
            .iter()
            .map(|value| vec![("link.delay", value.as_str())])
            .collect();
        let cases: Vec<(&str, &[(&str, &str)])> =
            axes.iter().map(|axes| ("grid", &axes[..])).collect();
        let error = plan(&cases).pairs_by("link.delay").unwrap_err();
        assert_eq!(
            error.to_string(),
            "more than 10000 pairs of cases differ in it"
        );
    }
}
