//! `expect` and `trends` of a scenario file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::experiment::Case;
use crate::toml_file::Below;
use conditions::{nearest, require};
use record::expectation::{Criterion, Expectation, Judgement, Met, Trend, TrendWay};
use record::figure_name::FigureName;
use record::plan::Published;
use record::quantity::counted;
use stats::deciding::Centre;

/// A text or a number without a unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "TextOrNumber")]
pub(super) struct AmountText(pub(super) String);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "must be a text such as \"20ms\", \"10mbit\" or \"5%\", or a number"
)]
enum TextOrNumber {
    Text(String),
    Whole(i64),
    Number(f64),
}

impl JsonSchema for AmountText {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "description": "A value with its unit, such as \"20ms\", or a number in the figure's own."
        })
    }
}

impl TryFrom<TextOrNumber> for AmountText {
    type Error = String;

    fn try_from(value: TextOrNumber) -> Result<Self, String> {
        Ok(Self(match value {
            TextOrNumber::Text(text) if text.parse::<f64>().is_ok() => {
                return Err(format!(
                    "`{text}` has no unit: add one, as in 20ms, 10mbit or 5%, or leave the quotes out to use the figure's own unit"
                ));
            }
            TextOrNumber::Text(text) => text,
            TextOrNumber::Whole(number) => number.to_string(),
            TextOrNumber::Number(number) => number.to_string(),
        }))
    }
}

/// A published value of a figure, or a list with one value for each published run.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum PublishedText {
    Value(AmountText),
    Runs(#[schemars(length(min = 1))] Vec<AmountText>),
}

struct PublishedVisitor;

impl<'de> Visitor<'de> for PublishedVisitor {
    type Value = PublishedText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text such as \"20ms\", \"10mbit\" or \"5%\", a number, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PublishedText, E> {
        one(TextOrNumber::Text(text.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<PublishedText, E> {
        one(TextOrNumber::Whole(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<PublishedText, E> {
        one(TextOrNumber::Number(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<PublishedText, A::Error> {
        let all = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(PublishedText::Runs(all))
    }
}

fn one<E: de::Error>(value: TextOrNumber) -> Result<PublishedText, E> {
    let text = AmountText::try_from(value).map_err(E::custom)?;
    Ok(PublishedText::Value(text))
}

/// Written by hand, because serde's `untagged` would hide the cause of an error.
impl<'de> Deserialize<'de> for PublishedText {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(PublishedVisitor)
    }
}

impl AmountText {
    /// Returns true for a number without a unit, which needs no text beside its value.
    fn is_bare(&self) -> bool {
        self.0.trim().parse::<f64>().is_ok()
    }
}

impl PublishedText {
    /// Converts the values to the unit of the figure `of`.
    ///
    /// # Errors
    /// Fails if a value has another unit or if the list is empty.
    pub(super) fn resolve(&self, of: &FigureName) -> Result<Published> {
        Ok(match self {
            Self::Value(text) => {
                let value = of.value(&text.0).below(of.to_string())?;
                if text.is_bare() {
                    Published::Value(value)
                } else {
                    Published::Quoted {
                        value,
                        text: text.0.clone(),
                    }
                }
            }
            Self::Runs(all) => {
                require!(!all.is_empty(), of.to_string() => "a list needs a value for each run");
                let value = |(index, text): (usize, &AmountText)| {
                    of.value(&text.0).below_item(&of.to_string(), index)
                };
                let values = all.iter().enumerate().map(value).collect::<Result<_>>()?;
                if all.iter().all(AmountText::is_bare) {
                    Published::Runs(values)
                } else {
                    Published::QuotedRuns {
                        values,
                        texts: all.iter().map(|text| text.0.clone()).collect(),
                    }
                }
            }
        })
    }
}

/// One entry of a case's `expect`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    of: FigureName,
    least: Option<AmountText>,
    most: Option<AmountText>,
    value: Option<AmountText>,
    gain: Option<AmountText>,
    ratio: Option<RatioText>,
    within: Option<AmountText>,
    published: Option<PublishedTable>,
    spread: Option<SpreadTable>,
    /// The statistic of the runs that is compared; the mean when absent.
    #[serde(default)]
    over: Centre,
    /// The criterion for meeting the expectation; the value itself when absent.
    #[serde(default)]
    met: Met,
    /// True if the conditions were chosen to produce the expected value. Meeting it then proves nothing.
    #[serde(default)]
    fitted: bool,
}

/// The ratio to the reference: a number, with its tolerance in `within`, or a range.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(untagged)]
enum RatioText {
    Times(f64),
    Between(RatioTable),
}

/// The least and the greatest ratio, both included; one may be left out.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RatioTable {
    least: Option<f64>,
    most: Option<f64>,
}

struct RatioVisitor;

impl<'de> Visitor<'de> for RatioVisitor {
    type Value = RatioText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or { least, most }")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RatioText, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<RatioText, E> {
        Ok(RatioText::Times(number))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RatioText, M::Error> {
        let table = RatioTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RatioText::Between(table))
    }
}

/// Written by hand, because serde's `untagged` would hide the cause of an error.
impl<'de> Deserialize<'de> for RatioText {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(RatioVisitor)
    }
}

/// The allowed distance from the published value.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    within: Option<AmountText>,
    factor: Option<f64>,
}

/// The spread of the runs without the greatest and the least one: the greatest less the least of the others, in percent of the median.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpreadTable {
    least: Option<AmountText>,
    most: Option<AmountText>,
}

/// One entry of `trends`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrendTable {
    of: FigureName,
    rising: Option<Vec<String>>,
    falling: Option<Vec<String>>,
    /// The statistic of the runs that is compared; the mean when absent.
    #[serde(default)]
    over: Centre,
    /// The criterion for meeting the trend; the values themselves when absent.
    #[serde(default)]
    met: Met,
    /// True if the conditions were chosen to produce the trend. Meeting it then proves nothing.
    #[serde(default)]
    fitted: bool,
}

impl ExpectTable {
    /// Converts the table to its rule.
    ///
    /// # Errors
    /// Fails if there is no rule or more than one, or if a value has another unit.
    pub(super) fn resolve(&self) -> Result<Expectation> {
        Ok(Expectation {
            of: self.of.clone(),
            rule: self.rule()?,
            judgement: Judgement {
                over: self.over,
                met: self.met,
            },
            fitted: self.fitted,
        })
    }

    fn rule(&self) -> Result<Criterion> {
        let is_given = [
            self.least.is_some() || self.most.is_some(),
            self.value.is_some(),
            self.gain.is_some(),
            self.ratio.is_some(),
            self.published.is_some(),
            self.spread.is_some(),
        ];
        ensure!(
            is_given.into_iter().filter(|is_given| *is_given).count() == 1,
            "write one of least and most, value, gain, ratio, spread, or published = {{ within or factor }}"
        );
        let amount = |text: &AmountText| self.of.value(&text.0);
        if let Some(value) = &self.value {
            let value = amount(value).below("value")?;
            let within = self.absolute(value)?;
            return Ok(Criterion::Value { value, within });
        }
        if let Some(gain) = &self.gain {
            let gain = amount(gain).below("gain")?;
            let within = self.absolute(gain)?;
            return Ok(Criterion::Gain { gain, within });
        }
        if let Some(RatioText::Times(ratio)) = self.ratio {
            let within = fraction(self.within.as_ref())?;
            return Ok(Criterion::Ratio { ratio, within });
        }
        if let Some(published) = &self.published {
            return published.rule().below("published");
        }
        if let Some(spread) = &self.spread {
            require!(self.within.is_none(), "within": "a spread needs no `over`");
            require!(
                (self.over, self.met) == (Centre::Mean, Met::ByValue),
                "spread": "a value is decided exactly: leave `over` and `met` out"
            );
            return spread.rule().below("spread");
        }
        require!(self.within.is_none(), "within": "a range needs no value");
        if let Some(RatioText::Between(RatioTable { least, most })) = self.ratio {
            require!(
                least.is_some() || most.is_some(),
                "ratio": "write `least`, `most` or both"
            );
            return Ok(Criterion::RatioRange { least, most });
        }
        Ok(Criterion::Range {
            least: self.least.as_ref().map(amount).transpose().below("least")?,
            most: self.most.as_ref().map(amount).transpose().below("most")?,
        })
    }

    /// Returns `within` in the metric's unit; the text is an amount or a percentage of `value`.
    fn absolute(&self, value: f64) -> Result<f64> {
        let text = &self.within.as_ref().context("say `within`")?.0;
        let within = match text.strip_suffix('%') {
            Some(_) if self.of.metric.unit() != "%" => {
                fraction(self.within.as_ref())? * value.abs()
            }
            _ => self.of.value(text).below("within")?,
        };
        require!(within >= 0.0, "within": "must not be below 0");
        Ok(within)
    }
}

impl PublishedTable {
    fn rule(&self) -> Result<Criterion> {
        Ok(match self.factor {
            Some(factor) if self.within.is_none() => {
                require!(factor >= 1.0, "factor": "at least 1");
                Criterion::PublishedFactor { factor }
            }
            _ => Criterion::Published {
                within: fraction(self.within.as_ref())?,
            },
        })
    }
}

impl SpreadTable {
    fn rule(&self) -> Result<Criterion> {
        let [least, most] = [("least", &self.least), ("most", &self.most)].map(|(key, text)| {
            let percent = text.as_ref().map(percentage).transpose();
            percent.below(key)
        });
        let (least, most) = (least?, most?);
        ensure!(
            least.is_some() || most.is_some(),
            "write least, most or both"
        );
        Ok(Criterion::Spread { least, most })
    }
}

fn fraction(within: Option<&AmountText>) -> Result<f64> {
    let within = within.context("say `within`")?;
    Ok(percentage(within).below("within")? / 100.0)
}

/// Reads a value in percent.
fn percentage(AmountText(text): &AmountText) -> Result<f64> {
    let percent = text
        .strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| *percent >= 0.0);
    percent.with_context(|| format!("`{text}` is not a percentage such as 15%"))
}

impl TrendTable {
    /// Converts the table to its rule. `groups` maps each name to its cases.
    ///
    /// # Errors
    /// Fails if a case is unknown or if there are fewer than two cases.
    pub(super) fn resolve(
        &self,
        groups: &BTreeMap<String, Vec<String>>,
        cases: &[Case],
        quick: bool,
    ) -> Result<Trend> {
        let (key, names, way) = match (&self.rising, &self.falling) {
            (Some(names), None) => ("rising", names, TrendWay::Rising),
            (None, Some(names)) => ("falling", names, TrendWay::Falling),
            _ => bail!("write either rising or falling, as a list of cases"),
        };
        let mut named = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let known = groups
                .get(name)
                .with_context(|| {
                    let known = nearest::or_all(name, groups.keys().map(String::as_str));
                    format!("there is no case `{name}`{known}")
                })
                .below_item(key, index)?;
            named.extend(known.iter().cloned());
        }
        require!(named.len() > 1, key => "a trend needs two cases");
        let trend = Trend {
            of: self.of.clone(),
            cases: named,
            way,
            judgement: Judgement {
                over: self.over,
                met: self.met,
            },
            fitted: self.fitted,
        };
        for case in cases.iter().filter(|case| trend.cases.contains(&case.name)) {
            let checked = check_figure(case, &self.of);
            checked
                .with_context(|| format!("in case `{}`", case.name))
                .below("of")?;
            check_runs(case, trend.fewest_runs(), "an interval", quick).below("met")?;
        }
        Ok(trend)
    }
}

/// Refuses rules that cannot be judged.
///
/// # Errors
/// Fails if the case's instruments do not report a figure, if a gain has no reference, if a
/// published value is missing, or if there are fewer runs than an interval or a spread needs.
pub(super) fn check(case: &Case, has_reference: bool, quick: bool) -> Result<()> {
    for (index, expectation) in case.expect.iter().enumerate() {
        let check = || {
            let Expectation { of, rule, .. } = expectation;
            check_figure(case, of).below("of")?;
            ensure!(
                has_reference || !rule.is_relative(),
                "{of}: there is no case to compare with: name one in `reference`"
            );
            ensure!(
                case.published.contains_key(of) || !rule.is_of_the_published(),
                "{of}: its value is missing in `published`{}",
                if of.is_of_the_whole() {
                    " (--quick leaves out totals and times)"
                } else {
                    ""
                }
            );
            let (key, what) = match rule {
                Criterion::Spread { .. } => ("spread", "a spread"),
                _ => ("met", "an interval"),
            };
            check_runs(case, expectation.fewest_runs(), what, quick).below(key)
        };
        check().below_item("expect", index)?;
    }
    for of in case.published.keys() {
        let checked = check_figure(case, of);
        checked.below(of.to_string()).below("published")?;
    }
    if let Some(narrow) = &case.repeats.until {
        let checked = check_figure(case, &narrow.of);
        checked.below("of").below("repeats")?;
    }
    Ok(())
}

/// Refuses expectations of `case` relative to a reference with fewer runs than an interval needs.
///
/// # Errors
/// The error names the expectation and the number of runs that it needs.
pub(super) fn check_reference_runs(case: &Case, reference: &Case, quick: bool) -> Result<()> {
    for (index, expectation) in case.expect.iter().enumerate() {
        if expectation.rule.is_relative() {
            let checked = check_runs(reference, expectation.fewest_runs(), "an interval", quick);
            checked.below("met").below_item("expect", index)?;
        }
    }
    Ok(())
}

/// Refuses a `case` with fewer runs than `what` needs.
fn check_runs(case: &Case, fewest: usize, what: &str, quick: bool) -> Result<()> {
    let least = case.repeats.least;
    ensure!(
        least as usize >= fewest,
        "{what} needs at least {fewest} repeats; case `{}` has {}{}",
        case.name,
        counted(least, "run"),
        if quick { " with --quick" } else { "" }
    );
    Ok(())
}

/// Refuses a figure that none of the case's instruments reports.
pub(super) fn check_figure(case: &Case, of: &FigureName) -> Result<()> {
    let known = case.instruments.iter().map(|i| i.name.as_str());
    let instrument = case.instrument(&of.instrument).with_context(|| {
        let known = nearest::or_all(&of.instrument, known);
        format!("the case has no instrument `{}`{known}", of.instrument)
    })?;
    let mut stated = instrument.args.instrument().metrics()?.figures();
    if case.bed.clients() > 1 {
        stated = stated.of_clients(instrument.profile.samples);
    }
    ensure!(
        stated.has(of),
        "with its options, `{}` has no figure {of}; it has {}",
        of.instrument,
        list(&stated.nearest(of))
    );
    Ok(())
}

/// Formats figure names as a list, in the given order.
fn list(figures: &[FigureName]) -> String {
    let texts: Vec<String> = figures.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
