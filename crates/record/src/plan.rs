//! What an experiment does, resolved: nothing is left to a default here.

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

/// The most runs of an experiment: the number of cases times the most repeats that one of them may have.
pub const MOST_RUNS: u64 = 1_000_000;

/// A whole experiment. `A` is what each instrument was asked for: [`RecordedArguments`] in a record, the parsed arguments where
/// instruments are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan<A = RecordedArguments> {
    /// Short name, as of the output directory.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Whether counts and sizes were shortened.
    pub quick: bool,
    /// Seed of the first repeat, and of the order; each further repeat adds 1.
    pub seed: u64,
    /// In which order the cases of a round run.
    pub order: Order,
    /// What counts as late.
    pub late_budget: LateBudget,
    /// The case that the others are held against.
    pub reference: Option<String>,
    /// In the order of the report.
    pub cases: Vec<Case<A>>,
    /// What is expected of several cases together.
    pub trends: Vec<Trend>,
    /// Whether each link keeps what every flow added up to, which a calibration's truth is made of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_flow: bool,
    /// The part of the runs that takes place here; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// In which order runs take place. Each round has every case once, so that a drift of the machine meets all alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Every round in an order of its own, drawn by the plan's seed.
    #[default]
    Random,
    /// Every round as the scenario has it.
    AsWritten,
}

/// One case: the conditions, how they are measured, what was published of it, and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case<A = RecordedArguments> {
    /// As the record and the report call it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What a sweep set: the field's path within the case, and its value as written.
    pub axes: Vec<(String, String)>,
    /// Where it runs.
    pub bed: Bed,
    /// Of a chain, from which node to which; from the first to the last when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
    /// TCP congestion control of the sending sockets.
    pub congestion: String,
    /// The conditions of the box.
    pub link: LinkSpec,
    /// How many times it runs.
    pub repeats: Repeats,
    /// In the order in which each run uses them; those of one group at the same time.
    pub instruments: Vec<PlannedInstrument<A>>,
    /// What somebody else measured under the same conditions, in the metric's unit.
    pub published: BTreeMap<FigureName, Published>,
    /// What its figures are held to.
    pub expect: Vec<Expectation>,
    /// Where the measured and the published may differ, and why.
    pub note: String,
}

/// What somebody else measured of one figure, in its metric's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// All that is said of it.
    Value(f64),
    /// Likewise, as it was published.
    Quoted {
        /// In the metric's unit.
        value: f64,
        /// With the unit in which it was published.
        text: String,
    },
    /// One of each of their runs; one at least.
    Runs(Vec<f64>),
    /// Likewise, as they were published.
    QuotedRuns {
        /// The values in the metric's unit.
        values: Vec<f64>,
        /// Their texts, with the units in which they were published.
        texts: Vec<String>,
    },
}

/// A list of more published runs than this is shown as their number.
const MOST_QUOTED: usize = 5;

/// How many times a case runs, each with a seed of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// At least so many; with `until` those that say how many it takes.
    pub least: u32,
    /// At most so many; as many as `least` without `until`.
    pub most: u32,
    /// Between the two, as many as this takes.
    pub until: Option<Narrow>,
}

/// That the 95 % interval of a figure's mean is narrow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Narrow {
    /// The figure.
    pub of: FigureName,
    /// Half the interval in percent of the mean, at most.
    pub percent: f64,
}

/// The arguments of an instrument as a record keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedArguments {
    /// The kind of the instrument, as `farwire measure` calls it.
    pub kind: String,
    /// The options of `farwire measure KIND` by their names, with `_` between words.
    pub arguments: BTreeMap<String, Value>,
}

/// An instrument and how it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedInstrument<A = RecordedArguments> {
    /// As the record and the report call it.
    pub name: String,
    /// Its kind and its arguments.
    #[serde(flatten)]
    pub args: A,
    /// What they make of it.
    pub profile: InstrumentProfile,
    /// Instruments of one name here, neighbours in the list, run at the same time.
    pub group: Option<String>,
    /// It is stopped after this time; when absent, some time after it should have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Nanos>,
    /// Left out of the steady rate at the start; found in what was measured when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Nanos>,
    /// Whether its own CSV is kept beside the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub csv: bool,
}

/// One run: a case set up once and every instrument used in turn.
#[derive(Debug)]
pub struct PlannedRun<'a, A = RecordedArguments> {
    /// What is set up.
    pub case: &'a Case<A>,
    /// From 1.
    pub repeat: u32,
    /// Of the link's randomness.
    pub seed: u64,
}

impl<A> Plan<A> {
    /// The same plan with other arguments of each instrument.
    ///
    /// # Errors
    /// The first of `convert`.
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
            by_flow: self.by_flow,
            shard: self.shard.clone(),
        })
    }

    /// Refuses what no scenario becomes: names that a scenario could not have, and more runs than [`MOST_RUNS`].
    ///
    /// # Errors
    /// One that names the key.
    pub fn check(&self) -> Result<(), Error> {
        check_experiment_name(&self.name)?;
        self.check_runs()?;
        let mut names = HashSet::new();
        for (index, case) in self.cases.iter().enumerate() {
            let (name, shown) = (&case.name, printable(&case.name));
            let mut check = || {
                require!(names.insert(name), "name": "it is taken by another case");
                case.check()
            };
            check().map_err(|error| error.at_item(index, Some(&shown)).at("cases"))?;
        }
        match &self.shard {
            Some(shard) => shard.number.check().map_err(Error::other),
            None => Ok(()),
        }
    }

    /// Refuses more runs than [`MOST_RUNS`].
    ///
    /// # Errors
    /// One that names the product.
    pub fn check_runs(&self) -> Result<(), Error> {
        let (cases, rounds) = (self.cases.len() as u64, u64::from(self.rounds()));
        require!(
            cases.saturating_mul(rounds) <= MOST_RUNS,
            "repeats": "{cases} cases with up to {rounds} repeats each: at most {MOST_RUNS} runs in all"
        );
        Ok(())
    }

    /// The case of this name.
    pub fn case(&self, name: &str) -> Option<&Case<A>> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// The instruments of every case.
    pub fn instruments(&self) -> impl Iterator<Item = &PlannedInstrument<A>> {
        self.cases.iter().flat_map(|case| &case.instruments)
    }

    /// The cases of a round, from 1, in the order in which they run, whether or not each still needs it; of a shard those
    /// that are its own.
    pub fn round(&self, repeat: u32) -> Vec<PlannedRun<'_, A>> {
        let cases = self.cases.iter();
        let mut runs: Vec<_> = cases.map(|case| self.run(case, repeat)).collect();
        if self.order == Order::Random {
            // One generator a round, so that a resumed experiment draws the same orders.
            let round = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fastrand::Rng::with_seed(round ^ u64::from(repeat)).shuffle(&mut runs);
        }
        runs.retain(|run| self.has(&run.case.name, repeat));
        runs
    }

    /// A repeat of a case, from 1.
    pub fn run<'a>(&self, case: &'a Case<A>, repeat: u32) -> PlannedRun<'a, A> {
        PlannedRun {
            case,
            repeat,
            seed: (case.link.seed.unwrap_or(self.seed)).wrapping_add(u64::from(repeat - 1)),
        }
    }

    /// Whether this run takes place here.
    pub fn has(&self, case: &str, repeat: u32) -> bool {
        let shard = self.shard.as_ref();
        shard.is_none_or(|shard| shard.has(case, repeat))
    }

    /// The most rounds that any case may need.
    pub fn rounds(&self) -> u32 {
        let most = self.cases.iter().map(|case| case.repeats.most);
        most.max().unwrap_or(0)
    }
}

impl<A> Case<A> {
    /// Refuses names that a scenario could not have, a number of repeats that is none, and a bed that no bed can be.
    fn check(&self) -> Result<(), Error> {
        let names = self.instruments.iter().map(|one| &one.name);
        require!(
            !self.name.contains(|letter| letter == '\n' || is_control(letter)),
            "name": "it has a control character in it"
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

    /// The same case with these instruments.
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

    /// The instrument of this name.
    pub fn instrument(&self, name: &str) -> Option<&PlannedInstrument<A>> {
        self.instruments.iter().find(|one| one.name == name)
    }

    /// The emulated links in a row, each with its name.
    ///
    /// # Errors
    /// Conditions that contradict each other.
    pub fn links(&self, seed: u64) -> Result<Vec<(String, EmulatedLink)>, Error> {
        self.bed.links(&self.link, seed)
    }

    /// What is emulated between its client and its server; nothing where nothing is.
    ///
    /// # Errors
    /// As [`Case::links`].
    pub fn path(&self) -> Result<Route, Error> {
        self.bed.path(&self.link, self.between.as_ref())
    }

    /// The instruments that run at the same time, each group after the other.
    pub fn groups(&self) -> Vec<&[PlannedInstrument<A>]> {
        self.instruments
            .chunk_by(|a, b| a.group.is_some() && a.group == b.group)
            .collect()
    }
}

/// Refuses a name of an experiment that does not name a directory where it is made, or that is an option to a program.
///
/// # Errors
/// One of the key `name`.
pub fn check_experiment_name(name: &str) -> Result<(), Error> {
    let within = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    require!(
        name.starts_with(char::is_alphanumeric) && name.chars().all(within),
        "name": "`{}`: it names the directory of the record: letters, digits, `-`, `_` and `.`, the first a letter or a digit",
        printable(name)
    );
    Ok(())
}

/// Refuses a name of an instrument by which its figures cannot be named.
///
/// # Errors
/// One of the key `name`.
pub fn check_instrument_name(name: &str) -> Result<(), Error> {
    let splits = |letter: char| letter == '.' || letter.is_whitespace() || is_control(letter);
    require!(
        !name.is_empty() && !name.contains(splits),
        "name": "`{}`: a name has neither dots nor spaces",
        name.escape_debug()
    );
    Ok(())
}

impl Published {
    /// The value, or the mean or median over their runs.
    pub fn over(&self, centre: Centre) -> Option<f64> {
        match self {
            Self::Value(value) | Self::Quoted { value, .. } => Some(*value),
            Self::Runs(values) | Self::QuotedRuns { values, .. } => centre.of(values),
        }
    }

    /// For people, in a unit of which `by` of the metric's own are one: as it was published, with what it is in that unit before it where it
    /// was published in another; of several runs their mean, which is called that, with each of a few as it was published.
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

    /// How their runs spread; nothing where they are not told apart.
    pub fn runs(&self) -> Option<(&[f64], SampleSummary)> {
        match self {
            Self::Value(_) | Self::Quoted { .. } => None,
            Self::Runs(values) | Self::QuotedRuns { values, .. } => {
                Some((values, SampleSummary::of(values)?))
            }
        }
    }
}

/// A value as it was published, which is `value` in another unit.
fn quoted(value: f64, text: &str) -> String {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let digits = &text[..text.len() - unit.len()];
    let is_in_unit = digits
        .parse::<f64>()
        .is_ok_and(|own| (own - value).abs() <= 1e-9 * value.abs());
    match is_in_unit {
        true => digits.to_owned(),
        false => format!("{} ({text})", number(value)),
    }
}

impl RecordedArguments {
    /// Its arguments as on a command line; what is off is left out.
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

/// A value without JSON's quotes and brackets.
fn bare(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(bare).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

impl Repeats {
    /// Exactly so many.
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
    fn a_published_value_is_printed_as_published_and_a_mean_is_called_that() {
        let quoted = |value, text: &str| Published::Quoted {
            value,
            text: text.to_owned(),
        };
        // 4.90 MiB/s are 41.10 Mbit/s.
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
