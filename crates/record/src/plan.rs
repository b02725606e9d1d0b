//! The plan of an experiment, in which every default of the scenario has been filled in.

use std::collections::{BTreeMap, HashSet};

use model::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stats::deciding::Centre;
use stats::repeats;
use stats::sample_summary::SampleSummary;

use super::bed::Bed;
use super::expectation::{Expectation, Trend};
use super::figure_name::FigureName;
use crate::lateness::LateBudget;
use crate::printable::{is_control, printable};
use crate::profile::InstrumentProfile;
use crate::quantity::number;
use crate::shard::Shard;
use conditions::route::Route;
use conditions::{EmulatedLink, Error, LinkSpec, require};

/// Largest number of runs of an experiment: the number of cases multiplied by the largest number of repeats of any
/// case.
pub const MOST_RUNS: u64 = 100_000;

/// An experiment. `A` is the type of an instrument's arguments: [`RecordedArguments`] in a record, and the parsed
/// arguments where the instruments are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan<A = RecordedArguments> {
    /// Short name, which is also that of the output directory.
    pub name: String,
    /// Title in one line, for people.
    pub title: String,
    /// Whether counts and sizes were reduced.
    pub quick: bool,
    /// Seed of the first repeat and of the order of the runs. Each further repeat adds 1.
    pub seed: u64,
    /// The order in which the cases of a round run.
    pub order: Order,
    /// The delay after its due time from which a departing packet counts as late.
    pub late_budget: LateBudget,
    /// Name of the case with which the others are compared.
    pub reference: Option<String>,
    /// The cases in the order of the report.
    pub cases: Vec<Case<A>>,
    /// Expectations about several cases together.
    pub trends: Vec<Trend>,
    /// Comparisons between the cases of sweeps.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub compare: RequestedComparisons,
    /// Whether each link keeps counts of every flow, from which a calibration computes its reference values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_flow: bool,
    /// The part of the runs that this record is for; all runs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// The order in which runs take place. Each round has every case once, so that a drift of the machine affects all cases
/// alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Every round has a different order, drawn with the plan's seed.
    #[default]
    Random,
    /// Every round has the order of the scenario.
    AsWritten,
}

/// One case: the conditions, the instruments, published values to compare with, and expectations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case<A = RecordedArguments> {
    /// The name of the case in the record and the report.
    pub name: String,
    /// Title in one line, for people.
    pub title: String,
    /// The values that a sweep set: the path of each field within the case, and its value as written.
    pub axes: Vec<(String, String)>,
    /// The test bed.
    pub bed: Bed,
    /// The nodes between which the case measures in a chain; the first and the last when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
    /// TCP congestion control of the sending sockets, as Linux names it.
    pub congestion: String,
    /// The emulated conditions of the case.
    pub link: LinkSpec,
    /// Number of repeats.
    pub repeats: Repeats,
    /// The instruments in the order in which each run uses them; those of one group run simultaneously.
    pub instruments: Vec<PlannedInstrument<A>>,
    /// Published results under the same conditions, in the metric's unit.
    pub published: BTreeMap<FigureName, Published>,
    /// Expectations about its figures.
    pub expect: Vec<Expectation>,
    /// Known reasons why measured and published values may differ.
    pub note: String,
}

/// A published result for one figure, in its metric's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// A single value.
    Value(f64),
    /// A single value and its text.
    Quoted {
        /// The value in the metric's unit.
        value: f64,
        /// The text with the unit in which it was published.
        text: String,
    },
    /// The values of the individual runs, at least one.
    Runs(Vec<f64>),
    /// The values of the individual runs, at least one, and their texts.
    QuotedRuns {
        /// The values in the metric's unit.
        values: Vec<f64>,
        /// Their texts, with the units in which they were published.
        texts: Vec<String>,
    },
}

/// Longer lists of published runs are shown as their number.
const MOST_QUOTED: usize = 5;

/// The comparisons between the cases of sweeps that a scenario asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedComparisons {
    /// The paths of the swept fields whose values are compared: "tcp.congestion".
    pub by: Vec<String>,
    /// The figures that are compared; the first main figure of each instrument if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<FigureName>,
}

/// The number of repeats of a case, each with a different seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// Least number of repeats. With `until`, it is the number of the first runs, from which the needed number is
    /// computed.
    pub least: u32,
    /// Greatest number of repeats; without `until` it equals `least`.
    pub most: u32,
    /// If set, the number of repeats between `least` and `most` is chosen to reach this precision.
    pub until: Option<Narrow>,
}

/// A precision: a narrow 95 % confidence interval of a figure's mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Narrow {
    /// The figure.
    pub of: FigureName,
    /// Largest accepted half-width of the interval in percent of the mean.
    pub percent: f64,
}

/// The arguments of an instrument as a record stores them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedArguments {
    /// The kind of the instrument, as in `farwire measure KIND`.
    pub kind: String,
    /// The options of `farwire measure KIND` by name, with `_` between words.
    pub arguments: BTreeMap<String, Value>,
}

/// An instrument and how the case uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedInstrument<A = RecordedArguments> {
    /// The name of the instrument in the record and the report.
    pub name: String,
    /// Kind and arguments.
    #[serde(flatten)]
    pub args: A,
    /// The profile that follows from the arguments.
    pub profile: InstrumentProfile,
    /// Name of the group. Consecutive instruments of the same group run simultaneously.
    pub group: Option<String>,
    /// The time after which the instrument is stopped; when absent, it is stopped some time after it should have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Nanos>,
    /// The time at the start that the steady rate leaves out; when absent, it is determined from the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Nanos>,
    /// Whether the instrument's CSV file is kept beside the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub csv: bool,
}

/// One run: a case is set up once and every instrument is used in turn.
#[derive(Debug)]
pub struct PlannedRun<'a, A = RecordedArguments> {
    /// The case that is set up.
    pub case: &'a Case<A>,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Seed of the link's randomness.
    pub seed: u64,
}

impl<A> Plan<A> {
    /// Returns the same plan with the arguments of each instrument converted.
    ///
    /// # Errors
    /// The first error of `convert`.
    pub fn try_map<'a, B, E>(
        &'a self,
        convert: impl Fn(&'a PlannedInstrument<A>) -> Result<B, E>,
    ) -> Result<Plan<B>, E> {
        let instrument = |planned: &'a PlannedInstrument<A>| {
            Ok(PlannedInstrument {
                name: planned.name.clone(),
                args: convert(planned)?,
                profile: planned.profile.clone(),
                group: planned.group.clone(),
                timeout: planned.timeout,
                warm_up: planned.warm_up,
                csv: planned.csv,
            })
        };
        let case = |case: &'a Case<A>| {
            let instruments = case.instruments.iter().map(&instrument);
            Ok(case.with_instruments(instruments.collect::<Result<_, E>>()?))
        };
        Ok(Plan {
            name: self.name.clone(),
            title: self.title.clone(),
            quick: self.quick,
            seed: self.seed,
            order: self.order,
            late_budget: self.late_budget,
            reference: self.reference.clone(),
            cases: self.cases.iter().map(case).collect::<Result<_, E>>()?,
            trends: self.trends.clone(),
            compare: self.compare.clone(),
            by_flow: self.by_flow,
            shard: self.shard.clone(),
        })
    }

    /// Checks what the reader of a scenario would have refused: names, and more runs than [`MOST_RUNS`].
    ///
    /// # Errors
    /// An invalid value, with the name of its key.
    pub fn check(&self) -> Result<(), Error> {
        check_experiment_name(&self.name)?;
        self.check_runs()?;
        let mut names = HashSet::new();
        for (index, case) in self.cases.iter().enumerate() {
            let (name, shown) = (&case.name, printable(&case.name));
            let mut check = || {
                require!(names.insert(name), "name": "another case has this name");
                case.check()
            };
            check().map_err(|error| error.at_item(index, Some(&shown)).at("cases"))?;
        }
        match &self.shard {
            Some(shard) => shard.number.check().map_err(Error::other),
            None => Ok(()),
        }
    }

    /// Checks the number of runs against [`MOST_RUNS`].
    ///
    /// # Errors
    /// A number that is too large, with its factors.
    pub fn check_runs(&self) -> Result<(), Error> {
        let (cases, rounds) = (self.cases.len() as u64, u64::from(self.rounds()));
        require!(
            cases.saturating_mul(rounds) <= MOST_RUNS,
            "repeats": "{cases} cases with up to {rounds} repeats each: at most {MOST_RUNS} runs in all"
        );
        Ok(())
    }

    /// Returns the case of this name.
    pub fn case(&self, name: &str) -> Option<&Case<A>> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// Returns the instruments of all cases.
    pub fn instruments(&self) -> impl Iterator<Item = &PlannedInstrument<A>> {
        self.cases.iter().flat_map(|case| &case.instruments)
    }

    /// Returns the runs of a round, from 1, in the order in which they take place, including those that turn out not to
    /// be needed. A plan with a shard has only the shard's runs.
    pub fn round(&self, repeat: u32) -> Vec<PlannedRun<'_, A>> {
        let cases = self.cases.iter();
        let mut runs: Vec<_> = cases.map(|case| self.run(case, repeat)).collect();
        if self.order == Order::Random {
            // Each round has its own generator, so that a resumed experiment draws the same orders.
            let round = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fastrand::Rng::with_seed(round ^ u64::from(repeat)).shuffle(&mut runs);
        }
        runs.retain(|run| self.has(&run.case.name, repeat));
        runs
    }

    /// Returns the run of a case's repeat, from 1.
    pub fn run<'a>(&self, case: &'a Case<A>, repeat: u32) -> PlannedRun<'a, A> {
        PlannedRun {
            case,
            repeat,
            seed: (case.link.seed.unwrap_or(self.seed)).wrapping_add(u64::from(repeat - 1)),
        }
    }

    /// Returns whether this run belongs to the plan's shard; without a shard every run does.
    pub fn has(&self, case: &str, repeat: u32) -> bool {
        let shard = self.shard.as_ref();
        shard.is_none_or(|shard| shard.has(case, repeat))
    }

    /// Returns the greatest number of repeats that any case may need.
    pub fn rounds(&self) -> u32 {
        let most = self.cases.iter().map(|case| case.repeats.most);
        most.max().unwrap_or(0)
    }
}

impl<A> Case<A> {
    /// Checks names, the number of repeats, and the bed, as the reader of a scenario does.
    fn check(&self) -> Result<(), Error> {
        let names = self.instruments.iter().map(|one| &one.name);
        require!(
            !self.name.contains(|letter| letter == '\n' || is_control(letter)),
            "name": "it contains a control character"
        );
        for (index, name) in names.enumerate() {
            let checked = check_instrument_name(name);
            checked.map_err(|error| error.at_item(index, None).at("instruments"))?;
        }
        let Repeats { least, most, until } = &self.repeats;
        require!(
            (1..=*most).contains(least),
            "repeats": "from {least} to {most} runs: the first number is at least 1 and at most the second"
        );
        require!(
            until.is_none() || *most as usize <= repeats::MOST,
            "repeats": "up to {most} runs until an interval is narrow: at most {}",
            repeats::MOST
        );
        self.bed.check_size()
    }

    /// Returns the same case with these instruments.
    pub fn with_instruments<B>(&self, instruments: Vec<PlannedInstrument<B>>) -> Case<B> {
        Case {
            name: self.name.clone(),
            title: self.title.clone(),
            axes: self.axes.clone(),
            bed: self.bed.clone(),
            between: self.between.clone(),
            congestion: self.congestion.clone(),
            link: self.link.clone(),
            repeats: self.repeats.clone(),
            instruments,
            published: self.published.clone(),
            expect: self.expect.clone(),
            note: self.note.clone(),
        }
    }

    /// Returns the instrument of this name.
    pub fn instrument(&self, name: &str) -> Option<&PlannedInstrument<A>> {
        self.instruments.iter().find(|one| one.name == name)
    }

    /// Returns the emulated links in order, each with its name.
    ///
    /// # Errors
    /// Conditions that contradict each other.
    pub fn links(&self, seed: u64) -> Result<Vec<(String, EmulatedLink)>, Error> {
        self.bed.links(&self.link, seed)
    }

    /// Returns the emulated stages between client and server; the route is empty if nothing is emulated.
    ///
    /// # Errors
    /// The same as for [`Case::links`].
    pub fn path(&self) -> Result<Route, Error> {
        self.bed.path(&self.link, self.between.as_ref())
    }

    /// Returns the groups of instruments in order; the instruments of a group run simultaneously.
    pub fn groups(&self) -> Vec<&[PlannedInstrument<A>]> {
        self.instruments
            .chunk_by(|a, b| a.group.is_some() && a.group == b.group)
            .collect()
    }
}

/// Checks that the name of an experiment names a directory in the current one and cannot be mistaken for a command-line
/// option.
///
/// # Errors
/// An invalid name, for the key `name`.
pub fn check_experiment_name(name: &str) -> Result<(), Error> {
    let within = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    require!(
        name.starts_with(char::is_alphanumeric) && name.chars().all(within),
        "name": "`{}`: the directory of the record has this name: use letters, digits, `-`, `_` and `.`, and begin with a letter or a digit",
        printable(name)
    );
    Ok(())
}

/// Checks that the name of an instrument can be part of the names of its figures.
///
/// # Errors
/// An invalid name, for the key `name`.
pub fn check_instrument_name(name: &str) -> Result<(), Error> {
    let splits = |letter: char| letter == '.' || letter.is_whitespace() || is_control(letter);
    require!(
        !name.is_empty() && !name.contains(splits),
        "name": "`{}`: a name contains neither dots nor spaces",
        name.escape_debug()
    );
    Ok(())
}

impl Published {
    /// Returns the single value, or the mean or median of the runs.
    pub fn over(&self, centre: Centre) -> Option<f64> {
        match self {
            Self::Value(value) | Self::Quoted { value, .. } => Some(*value),
            Self::Runs(values) | Self::QuotedRuns { values, .. } => centre.of(values),
        }
    }

    /// Formats the result in a unit that is `by` times the metric's. A value published in another unit is followed by
    /// its published text. For several runs, the mean is labelled as such and followed by the published texts, if they
    /// are few, or their number.
    pub fn in_words(&self, by: f64) -> Option<String> {
        let value = self.over(Centre::Mean)? / by;
        Some(match self {
            Self::Quoted { text, .. } => quoted(value, text),
            Self::QuotedRuns { texts, .. } if texts.len() == 1 => quoted(value, &texts[0]),
            Self::QuotedRuns { texts, .. } if texts.len() <= MOST_QUOTED => {
                format!("{}, mean of {}", number(value), texts.join(", "))
            }
            Self::Runs(values) | Self::QuotedRuns { values, .. } if values.len() > 1 => {
                format!("{}, mean of {}", number(value), values.len())
            }
            Self::Value(_) | Self::Runs(_) | Self::QuotedRuns { .. } => number(value),
        })
    }

    /// Returns the individual runs and their spread, or `None` if only a single value was published.
    pub fn runs(&self) -> Option<(&[f64], SampleSummary)> {
        match self {
            Self::Value(_) | Self::Quoted { .. } => None,
            Self::Runs(values) | Self::QuotedRuns { values, .. } => {
                Some((values, SampleSummary::of(values)?))
            }
        }
    }
}

/// Formats `value` together with the published text, if that has another unit.
fn quoted(value: f64, text: &str) -> String {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let digits = &text[..text.len() - unit.len()];
    let is_in_unit = digits
        .parse::<f64>()
        .is_ok_and(|own| (own - value).abs() <= 1e-9 * value.abs());
    if is_in_unit {
        digits.to_owned()
    } else {
        format!("{} ({text})", number(value))
    }
}

impl RecordedArguments {
    /// Returns the arguments as on a command line; options that are off are left out.
    pub fn options(&self) -> String {
        let options = self.arguments.iter().filter_map(|(name, value)| {
            let name = name.replace('_', "-");
            match value {
                Value::Null | Value::Bool(false) => None,
                Value::Bool(true) => Some(format!("--{name}")),
                value => Some(format!("--{name}={}", bare(value))),
            }
        });
        options.collect::<Vec<_>>().join(" ")
    }
}

/// Formats a value without JSON's quotes and brackets.
fn bare(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(bare).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

impl Repeats {
    /// Creates a fixed number of repeats.
    pub fn fixed(count: u32) -> Self {
        Self {
            least: count,
            most: count,
            until: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_value_is_printed_as_published_and_a_mean_is_labelled() {
        let quoted = |value, text: &str| Published::Quoted {
            value,
            text: text.to_owned(),
        };
        // 4.90 MiB/s equal 41.10 Mbit/s.
        let rate = quoted(4.90 * 1_048_576.0 * 8.0, "4.90MiB/1s");
        assert_eq!(rate.in_words(1e6).unwrap(), "41.10 (4.90MiB/1s)");
        assert_eq!(quoted(1.7, "1.70ms").in_words(1.0).unwrap(), "1.70");
        let runs = Published::Runs(vec![3.0, 3.1, 3.8]);
        assert_eq!(runs.in_words(1.0).unwrap(), "3.300, mean of 3");
        let own = |texts: &[&str]| Published::QuotedRuns {
            values: texts.iter().map(|_| 4.90 * 1_048_576.0 * 8.0).collect(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        let [one, two] = [&["4.90MiB/1s"][..], &["4.90MiB/1s", "41.1mbit"]].map(own);
        assert_eq!(one.in_words(1e6).unwrap(), "41.10 (4.90MiB/1s)");
        assert_eq!(
            two.in_words(1e6).unwrap(),
            "41.10, mean of 4.90MiB/1s, 41.1mbit"
        );
        let many = own(&["4.90MiB/1s"; 6]);
        assert_eq!(many.in_words(1e6).unwrap(), "41.10, mean of 6");
        assert_eq!(many.runs().unwrap().0.len(), 6);
        let all = [rate, runs, two, Published::Value(2.0)];
        let json = serde_json::to_string(&all).unwrap();
        let back: Vec<Published> = serde_json::from_str(&json).unwrap();
        assert_eq!(back, all);
    }
}
