//! Progress events for observers of an experiment: the links of the current run, the progress and
//! the figures measured up to now.
//!
//! The conditions of a measured run cannot be changed, because its record states them.

use std::time::Duration;

use crate::experiment::{Case, Plan, PlannedRun};
use crate::live::{FigureRow, Links, NewLink, NumberedRun};
use crate::testbed::Testbed;
use conditions::LinkSpec;
use record::Record;
use record::bed::{Bed, THE_LINK};

/// The reason why a link's conditions cannot be changed.
const FIXED: &str = "the conditions of a measured run are those of its scenario; only links of `farwire exec` and `farwire emulate` can be changed";

/// The observers of an experiment, if observers are allowed.
#[derive(Clone, Copy)]
pub(crate) struct RunObserver<'a>(Option<&'a Links>);

/// The links of a run, visible to observers until this value is dropped.
pub(crate) struct ShownLinks<'a>(Option<&'a Links>);

impl<'a> RunObserver<'a> {
    /// Reports to no observer.
    pub(crate) const NOBODY: Self = Self(None);

    /// Reports to the observers of `links`.
    pub(crate) fn by(links: Option<&'a Links>) -> Self {
        Self(links)
    }

    /// Reports that an experiment begins.
    pub(super) fn begin(self, plan: &Plan) {
        if let Some(links) = self.0 {
            links.experiment().begin(&plan.name, &plan.title);
        }
    }

    /// Reports how long each remaining run is expected to take.
    pub(super) fn expect(self, left: &[Duration]) {
        if let Some(links) = self.0 {
            links.experiment().expect(left.len(), left.iter().sum());
        }
    }

    /// Reports the current run and the one after it.
    pub(super) fn set_current(
        self,
        this: NumberedRun,
        following: impl FnOnce() -> Option<NumberedRun>,
    ) {
        if let Some(links) = self.0 {
            links.experiment().set_current(this, following());
        }
    }

    /// Reports the current phase.
    pub(crate) fn enter(self, phase: &str) {
        if let Some(links) = self.0 {
            links.experiment().enter(phase);
        }
    }

    /// Shows the links of a run whose test bed is set up.
    pub(super) fn show(self, testbed: &dyn Testbed, run: &PlannedRun<'_>) -> ShownLinks<'a> {
        if let Some(links) = self.0 {
            let conditions = conditions(run.case).into_iter();
            for (named, (forwarder, number)) in conditions.zip(testbed.forwarders()) {
                let (name, ends, spec) = named;
                links.put(NewLink {
                    name,
                    ends: ends.into(),
                    forwarder,
                    number,
                    spec: LinkSpec {
                        seed: Some(run.seed),
                        ..spec
                    },
                    build: Err(fixed(&run.case.bed)),
                });
            }
            links.experiment().set_up(true);
        }
        ShownLinks(self.0)
    }

    /// Reports that a run of `case` has ended and is in the record.
    pub(super) fn ended(self, record: &Record, case: &str) {
        if let Some(links) = self.0 {
            let planned = record.plan().case(case);
            let so_far = planned
                .map(|case| report::so_far(record, case))
                .into_iter()
                .flatten();
            let rows = so_far.map(|figure| FigureRow {
                case: case.to_owned(),
                instrument: figure.name.instrument.clone(),
                figure: without_instrument(&figure.name.to_string(), &figure.name.instrument),
                value: figure.value,
                low: figure.interval.map(|ends| ends[0]),
                high: figure.interval.map(|ends| ends[1]),
                runs: figure.runs,
                valid: figure.valid,
            });
            links.experiment().ended(case, rows.collect());
        }
    }
}

impl Drop for ShownLinks<'_> {
    fn drop(&mut self) {
        if let Some(links) = self.0 {
            links.clear();
            links.experiment().set_up(false);
        }
    }
}

/// Returns a figure's name without the name of its instrument.
fn without_instrument(name: &str, instrument: &str) -> String {
    let figure = name.strip_prefix(instrument).unwrap_or(name);
    figure.trim_start_matches('.').to_owned()
}

/// Returns the emulated links of a case in order: the name, the two ends and the conditions of
/// each.
pub(super) fn conditions(case: &Case) -> Vec<(String, [String; 2], LinkSpec)> {
    match &case.bed {
        Bed::Netns(pair) => {
            let name = |number: u32| match pair.clients {
                1 => THE_LINK.to_owned(),
                _ => format!("client {number}"),
            };
            let ends = ["client", "server"].map(str::to_owned);
            let all = 1..=pair.clients;
            all.map(|number| (name(number), ends.clone(), case.link.clone()))
                .collect()
        }
        Bed::Chain(chain) => {
            let ends = chain.nodes.windows(2);
            let all = chain.segments().zip(ends);
            all.map(|(name, ends)| {
                let spec = chain.links.get(&name).cloned().unwrap_or_default();
                (name, [ends[0].clone(), ends[1].clone()], spec)
            })
            .collect()
        }
        Bed::External(_) | Bed::Nics(_) => Vec::new(),
    }
}

/// Explains why the links of this bed cannot be changed, and names the conditions of the bed's wire
/// if it has any.
fn fixed(bed: &Bed) -> String {
    let wire = match bed {
        Bed::Netns(pair) if pair.wire != LinkSpec::default() => Some(report::link(&pair.wire)),
        _ => None,
    };
    let wire = wire.map(|wire| format!("; the bed's wire before it has {wire}"));
    format!("{FIXED}{}", wire.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use instruments::measure::read_plan;

    fn case(bed: &str) -> Case {
        let record = crate::experiment::small_record();
        let plan = read_plan(record.plan()).unwrap();
        let mut case = plan.cases[0].clone();
        case.bed = toml::from_str(bed).unwrap();
        case.link = LinkSpec::default();
        case
    }

    #[test]
    fn links_have_the_names_of_the_bed_and_the_right_ends() {
        for bed in [
            "kind = 'netns'",
            "kind = 'netns'\nclients = 3",
            "kind = 'chain'\nnodes = ['a', 'b', 'c']\nlinks = { 'b-c' = { delay = '1ms' } }",
        ] {
            let case = case(bed);
            let named = case.links(1).unwrap().into_iter().map(|(name, _)| name);
            let shown = conditions(&case);
            let shown_names = shown.iter().map(|(name, ..)| name.clone());
            assert!(named.eq(shown_names), "{bed}: {shown:?}");
        }
        let chain = conditions(&case(
            "kind = 'chain'\nnodes = ['a', 'b', 'c']\nlinks = { 'b-c' = { delay = '1ms' } }",
        ));
        assert_eq!(chain[1].1, ["b", "c"].map(str::to_owned));
        assert_eq!(chain[1].2, toml::from_str("delay = '1ms'").unwrap());
        assert_eq!(chain[0].2, LinkSpec::default());
    }

    #[test]
    fn the_conditions_of_a_wire_are_reported_too() {
        let plain = fixed(&case("kind = 'netns'").bed);
        assert_eq!(plain, FIXED);
        let wired = fixed(&case("kind = 'netns'\nwire = { delay = '3ms' }").bed);
        assert!(wired.ends_with("wire before it has delay 3ms"), "{wired}");
    }

    #[test]
    fn a_figure_is_reported_without_its_instrument() {
        assert_eq!(
            without_instrument("ping.rtt_ms.median", "ping"),
            "rtt_ms.median"
        );
    }
}
