//! Which segment of a chain limits the whole path.

use super::{Across, CaseFigures};
use crate::case_conditions;
use crate::changes;
use conditions::LinkSpec;
use record::bed::{Bed, Ends};
use record::figure_name::FigureName;
use record::{Metric, Statistic, quantity};
use stats::change::Change;

/// A CPU that is busy for so much of a test has no time to spare, in percent.
const BUSY: f64 = 95.0;
/// A whole path that carries so much less than its slowest segment loses it elsewhere, in percent.
const MARKED: f64 = 5.0;

/// What the segments of a chain carry, and the path over all of them, by one instrument.
#[derive(Clone, Debug)]
pub(crate) struct ChainBottleneck {
    /// The plan's name for it.
    instrument: String,
    /// The whole path.
    whole: PathGoodput,
    /// From the slowest segment to the fastest; two at least.
    segments: Vec<PathGoodput>,
    /// The whole path against its slowest segment.
    change: Option<Change>,
    /// Ends whose CPU had no time to spare.
    busy: Vec<String>,
    /// The slowest segment's conditions in words.
    link: String,
}

/// What one case carried.
#[derive(Clone, Debug, PartialEq)]
struct PathGoodput {
    /// "PC2 to router (lan)": from where to where, and the case.
    path: String,
    bit_per_s: f64,
}

/// Those of `cases`, by every instrument that measured a chain's whole path and two of its segments or more.
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

/// Of a case on a chain.
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
        figure: &Across,
    ) -> Option<Self> {
        let path = ends(whole)?;
        let segments = cases.iter().filter_map(|case| {
            let within = ends(case).is_some_and(|own| own.segments() == 1 && path.covers(own));
            let alike = case.case.bed == whole.case.bed;
            Some((case, case.figures.get(name).filter(|_| within && alike)?))
        });
        let mut segments: Vec<_> = segments.collect();
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

    /// In one sentence: the segment, by how much, and whether hosts had a part in it.
    pub(crate) fn words(&self) -> String {
        let [slowest, next, ..] = &self.segments[..] else {
            unreachable!("there are two segments at least");
        };
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

    fn loses_elsewhere(&self) -> bool {
        let interval = self
            .change
            .as_ref()
            .and_then(|change| change.percent()?.interval);
        interval.is_some_and(|[_, high]| high < -MARKED)
    }
}

impl PathGoodput {
    fn of(figures: &CaseFigures<'_>, figure: &Across) -> Self {
        let case = figures.case;
        let path = match (&case.bed, &case.between) {
            (Bed::Chain(_), Some([client, server])) => format!("{client} to {server}"),
            (Bed::Chain(chain), None) => chain.nodes.join(" to "),
            _ => unreachable!("it has ends, as only a chain's cases have"),
        };
        Self {
            path: format!("{path} ({})", case.name),
            bit_per_s: figure.value(),
        }
    }
}

/// The conditions of the one segment that a case of a chain measures.
fn link(figures: &CaseFigures<'_>) -> String {
    let case = figures.case;
    let (Bed::Chain(chain), Some(ends)) = (&case.bed, ends(figures)) else {
        unreachable!("it has ends, as only a chain's cases have");
    };
    let first = ends.client.min(ends.server);
    let spec = chain.links.get(&chain.nodes[first..=first + 1].join("-"));
    case_conditions::link(spec.unwrap_or(&LinkSpec::default()))
}

/// The ends whose CPU an instrument kept busy all the time.
fn busy_ends(figures: &CaseFigures<'_>, instrument: &str) -> Vec<String> {
    let cpu = figures.figures.iter().filter_map(|(name, figure)| {
        let end = match name.metric {
            Metric::SenderCpuPercent => "the sender",
            Metric::ReceiverCpuPercent => "the receiver",
            _ => return None,
        };
        let busy = name.instrument == instrument && figure.value() >= BUSY;
        busy.then(|| format!("{end} in {} ({:.0} %)", figures.case.name, figure.value()))
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

    /// Five runs each of a-b, b-c and a-c with these goodputs in Mbit/s, and this CPU of the receiver in percent.
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
    fn the_slowest_segment_is_named_with_how_much_faster_the_next_is() {
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
    fn a_whole_path_that_loses_more_than_its_segments_do_says_so() {
        let words = words([94.0, 20.0, 15.0], 99.0);
        assert!(words.contains("slower"), "{words}");
        assert!(words.contains("less than any of its segments"), "{words}");
        assert!(words.contains("the receiver in c-a (99 %)"), "{words}");
    }

    #[test]
    fn without_a_chain_there_is_none() {
        assert!(bottlenecks(&Analysis::of(&record()).cases).is_empty());
    }
}
