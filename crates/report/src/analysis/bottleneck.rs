//! Finds the segment of a chain that limits the whole path.

use super::{CaseFigures, FigureOverRuns};
use crate::case_conditions;
use crate::changes;
use conditions::LinkSpec;
use record::bed::{Bed, Ends};
use record::figure_name::FigureName;
use record::{Metric, Statistic, quantity};
use stats::change::Change;

/// CPU time in percent from which a CPU counts as busy during the whole test.
const BUSY: f64 = 95.0;
/// Deficit in percent from which a whole path counts as slower than its slowest segment, so that something else limits
/// it.
const MARKED: f64 = 5.0;

/// Goodputs of the segments of a chain and of the whole path, measured by one instrument.
#[derive(Clone, Debug)]
pub(crate) struct ChainBottleneck {
    /// The plan's name for the instrument.
    instrument: String,
    /// Goodput of the whole path.
    whole: PathGoodput,
    /// Goodputs of at least two segments, in ascending order.
    segments: Vec<PathGoodput>,
    /// The whole path compared with its slowest segment.
    change: Option<Change>,
    /// Ends whose CPU was busy all the time.
    busy: Vec<String>,
    /// The slowest segment's conditions in words.
    link: String,
}

/// The goodput of one case.
#[derive(Clone, Debug, PartialEq)]
struct PathGoodput {
    /// The two nodes and the name of the case: "PC2 to router (lan)".
    path: String,
    bit_per_s: f64,
}

/// Returns the bottlenecks for every instrument that measured the whole path of a chain and at least two of its
/// segments.
pub(crate) fn bottlenecks(cases: &[CaseFigures<'_>]) -> Vec<ChainBottleneck> {
    let wholes = cases.iter().filter(|whole| {
        let length = |case: &CaseFigures<'_>| ends(case).map_or(0, Ends::segments);
        let alike = cases.iter().filter(|case| case.case.bed == whole.case.bed);
        length(whole) > 1 && alike.map(length).max() == Some(length(whole))
    });
    let found = wholes.flat_map(|whole| {
        let rates = whole.figures.iter().filter(|(name, _)| is_rate(name));
        rates.filter_map(|(name, figure)| ChainBottleneck::of(cases, whole, name, figure))
    });
    found.collect()
}

fn is_rate(name: &FigureName) -> bool {
    (name.metric, name.statistic) == (Metric::GoodputBitPerS, Statistic::Mean)
        && name.size.is_none()
        && name.phase.is_none()
}

/// Returns the nodes between which a case on a chain measures.
fn ends(figures: &CaseFigures<'_>) -> Option<Ends> {
    match &figures.case.bed {
        Bed::Chain(chain) => chain.ends(figures.case.between.as_ref()).ok(),
        _ => None,
    }
}

impl ChainBottleneck {
    fn of(
        cases: &[CaseFigures<'_>],
        whole: &CaseFigures<'_>,
        name: &FigureName,
        figure: &FigureOverRuns,
    ) -> Option<Self> {
        let path = ends(whole)?;
        let mut segments: Vec<_> = cases
            .iter()
            .filter_map(|case| {
                let within = ends(case).is_some_and(|own| own.segments() == 1 && path.covers(own));
                let alike = case.case.bed == whole.case.bed;
                Some((case, case.figures.get(name).filter(|_| within && alike)?))
            })
            .collect();
        segments.sort_by(|(_, a), (_, b)| a.value().total_cmp(&b.value()));
        let (slowest, slowest_figure) = *segments.first().filter(|_| segments.len() > 1)?;
        let busy = [whole, slowest].map(|case| busy_ends(case, &name.instrument));
        Some(Self {
            instrument: name.instrument.clone(),
            whole: PathGoodput::of(whole, figure),
            segments: segments
                .iter()
                .map(|(case, figure)| PathGoodput::of(case, figure))
                .collect(),
            change: Change::of(&slowest_figure.values, &figure.values),
            busy: busy.concat(),
            link: link(slowest),
        })
    }

    /// Describes the bottleneck in one sentence: the segment, how much faster the next one is, and whether a host's CPU
    /// was busy.
    pub(crate) fn words(&self) -> String {
        let [slowest, next] = self.slowest_two();
        let rate = |carried: &PathGoodput| quantity(Metric::GoodputBitPerS, carried.bit_per_s);
        let factor = next.bit_per_s / slowest.bit_per_s;
        let against = self
            .change
            .as_ref()
            .map(|change| changes::in_words(change, None, Metric::GoodputBitPerS));
        let mut words = format!(
            "{}: the bottleneck is {} with {}; the next segment, {}, carries {factor:.1} times as much. The whole path, {}, carries {}",
            self.instrument,
            slowest.path,
            rate(slowest),
            next.path,
            self.whole.path,
            rate(&self.whole)
        );
        if let Some(against) = against {
            words += &format!(" ({against})");
        }
        if self.loses_elsewhere() {
            words += ", less than any of its segments, so something between them limits it too";
        }
        if self.busy.is_empty() {
            words += &format!(
                ". No end was short of CPU; the slowest link: {}.",
                self.link
            );
        } else {
            words += &format!(". Short of CPU: {}.", self.busy.join(", "));
        }
        words
    }

    /// Describes the bottleneck in one sentence without its cause.
    pub(crate) fn in_short(&self) -> String {
        let [slowest, next] = self.slowest_two();
        let rate = |carried: &PathGoodput| quantity(Metric::GoodputBitPerS, carried.bit_per_s);
        let change = self.change.as_ref();
        let against = change.map(|change| changes::in_words(change, None, Metric::GoodputBitPerS));
        format!(
            "{} finds the bottleneck in {} with {}: the next segment, {}, carries {:.1} times as much, and the whole path carries {}{}.",
            self.instrument,
            slowest.path,
            rate(slowest),
            next.path,
            next.bit_per_s / slowest.bit_per_s,
            rate(&self.whole),
            against.map_or(String::new(), |words| format!(" ({words})"))
        )
    }

    /// Returns the plan's name for the instrument.
    pub(crate) fn instrument(&self) -> &str {
        &self.instrument
    }

    fn slowest_two(&self) -> [&PathGoodput; 2] {
        let [slowest, next, ..] = &self.segments[..] else {
            unreachable!("there are two segments at least");
        };
        [slowest, next]
    }

    fn loses_elsewhere(&self) -> bool {
        let interval = self
            .change
            .as_ref()
            .and_then(|change| change.percent()?.interval);
        interval.is_some_and(|[_, high]| high < -MARKED)
    }
}

impl PathGoodput {
    fn of(figures: &CaseFigures<'_>, figure: &FigureOverRuns) -> Self {
        let case = figures.case;
        let path = match (&case.bed, &case.between) {
            (Bed::Chain(_), Some([client, server])) => format!("{client} to {server}"),
            (Bed::Chain(chain), None) => chain.nodes.join(" to "),
            _ => unreachable!("it has ends, as only a chain's cases have"),
        };
        Self {
            path: format!("{path} ({})", figures.words()),
            bit_per_s: figure.value(),
        }
    }
}

/// Returns the conditions of the segment that a case of a chain measures.
fn link(figures: &CaseFigures<'_>) -> String {
    let case = figures.case;
    let (Bed::Chain(chain), Some(ends)) = (&case.bed, ends(figures)) else {
        unreachable!("it has ends, as only a chain's cases have");
    };
    let first = ends.client.min(ends.server);
    let spec = chain.links.get(&chain.nodes[first..=first + 1].join("-"));
    case_conditions::link(spec.unwrap_or(&LinkSpec::default()))
}

/// Returns the ends whose CPU an instrument kept busy all the time.
fn busy_ends(figures: &CaseFigures<'_>, instrument: &str) -> Vec<String> {
    let cpu = figures.figures.iter().filter_map(|(name, figure)| {
        let end = match name.metric {
            Metric::SenderCpuPercent => "the sender",
            Metric::ReceiverCpuPercent => "the receiver",
            _ => return None,
        };
        let busy = name.instrument == instrument && figure.value() >= BUSY;
        busy.then(|| format!("{end} in {} ({:.0} %)", figures.words(), figure.value()))
    });
    cpu.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::analysis::tests::record;
    use record::Figure;
    use record::Record;
    use record::plan::Repeats;

    /// A record with five runs each of a-b, b-c and a-c with these goodputs in Mbit/s and this CPU time of the receiver
    /// in percent.
    fn chain(goodputs: [f64; 3], cpu: f64) -> Record {
        let mut record = record();
        let (case, run) = (record.head.plan.cases[0].clone(), record.runs[0].clone());
        record.head.plan.cases.clear();
        record.runs.clear();
        for (ends, goodput) in [["a", "b"], ["b", "c"], ["c", "a"]].iter().zip(goodputs) {
            let mut case = case.clone();
            case.name = ends.join("-");
            case.bed = toml::from_str(
                "kind = 'chain'\nnodes = ['a', 'b', 'c']\nlinks = { b-c = { rate = '21mbit' } }",
            )
            .unwrap();
            case.between = Some(ends.map(str::to_owned));
            case.repeats = Repeats::fixed(5);
            for repeat in 1..=5 {
                let mut run = run.clone();
                run.case = case.name.clone();
                run.repeat = repeat;
                run.measurements.truncate(1);
                let noise = 1.0 + f64::from(repeat) / 1000.0;
                run.measurements[0].measurement.figures = vec![
                    Figure::new(
                        Metric::GoodputBitPerS,
                        Statistic::Mean,
                        goodput * 1e6 * noise,
                    ),
                    Figure::new(Metric::ReceiverCpuPercent, Statistic::Mean, cpu),
                ];
                record.runs.push(run);
            }
            record.head.plan.cases.push(case);
        }
        record
    }

    fn words(goodputs: [f64; 3], cpu: f64) -> String {
        let record = chain(goodputs, cpu);
        let found = bottlenecks(&Analysis::of(&record).cases);
        assert_eq!(found.len(), 1);
        found[0].words()
    }

    #[test]
    fn the_slowest_segment_is_named_with_the_lead_of_the_next() {
        let words = words([94.0, 20.0, 20.0], 3.0);
        assert!(
            words.contains("the bottleneck is b to c (b-c) with 20.06 Mbit/s"),
            "{words}"
        );
        assert!(
            words.contains("a to b (a-b), carries 4.7 times as much"),
            "{words}"
        );
        assert!(
            words.contains("c to a (c-a), carries 20.06 Mbit/s (no difference shown"),
            "{words}"
        );
        let cause = "No end was short of CPU; the slowest link: rate 21mbit.";
        assert!(words.ends_with(cause), "{words}");
    }

    #[test]
    fn the_short_form_has_the_slowest_segment_and_the_whole() {
        let record = chain([94.0, 20.0, 20.0], 3.0);
        let found = bottlenecks(&Analysis::of(&record).cases);
        let words = found[0].in_short();
        assert!(
            words.starts_with("ping finds the bottleneck in b to c (b-c) with 20.06 Mbit/s"),
            "{words}"
        );
        assert!(
            words.contains("the whole path carries 20.06 Mbit/s (no difference shown"),
            "{words}"
        );
    }

    #[test]
    fn a_path_slower_than_its_slowest_segment_is_reported() {
        let words = words([94.0, 20.0, 15.0], 99.0);
        assert!(words.contains("lower"), "{words}");
        assert!(words.contains("less than any of its segments"), "{words}");
        assert!(words.contains("the receiver in c-a (99 %)"), "{words}");
    }

    #[test]
    fn without_a_chain_there_is_no_bottleneck() {
        assert!(bottlenecks(&Analysis::of(&record()).cases).is_empty());
    }
}
