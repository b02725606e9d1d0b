//! `expect` and `trends` of a scenario file.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use schemars::JsonSchema;
use serde::Deserialize;

use model::Nanos;
use record::expectation::{Expectation, Rule, Trend, TrendWay};
use record::figure_name::FigureName;
use record::plan::Case;

/// A text or a bare number.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(from = "TextOrNumber")]
#[schemars(with = "Nanos")] // As every unit has it.
pub(super) struct Text(pub(super) String);

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Whole(i64),
    Number(f64),
}

impl From<TextOrNumber> for Text {
    fn from(value: TextOrNumber) -> Self {
        Self(match value {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Whole(number) => number.to_string(),
            TextOrNumber::Number(number) => number.to_string(),
        })
    }
}

/// One of a case's `expect`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    of: FigureName,
    least: Option<Text>,
    most: Option<Text>,
    value: Option<Text>,
    gain: Option<Text>,
    ratio: Option<f64>,
    within: Option<Text>,
    published: Option<PublishedTable>,
}

/// How near a figure must come to the published.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    within: Option<Text>,
    factor: Option<f64>,
}

/// One of `trends`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrendTable {
    of: FigureName,
    rising: Option<Vec<String>>,
    falling: Option<Vec<String>>,
}

impl ExpectTable {
    /// The rule that the table stands for.
    ///
    /// # Errors
    /// No rule, or two; a value of another unit.
    pub(super) fn resolve(&self) -> Result<Expectation> {
        let rule = self.rule().with_context(|| self.of.to_string())?;
        Ok(Expectation {
            of: self.of.clone(),
            rule,
        })
    }

    fn rule(&self) -> Result<Rule> {
        let amount = |text: &Text| self.of.value(&text.0);
        let range = self.least.is_some() || self.most.is_some();
        Ok(
            match (range, &self.value, &self.gain, self.ratio, &self.published) {
                (true, None, None, None, None) => {
                    ensure!(self.within.is_none(), "within: a range needs none");
                    Rule::Range {
                        least: self
                            .least
                            .as_ref()
                            .map(amount)
                            .transpose()
                            .context("least")?,
                        most: self.most.as_ref().map(amount).transpose().context("most")?,
                    }
                }
                (false, Some(value), None, None, None) => {
                    let value = amount(value).context("value")?;
                    Rule::Value {
                        value,
                        within: self.absolute(value)?,
                    }
                }
                (false, None, Some(gain), None, None) => {
                    let gain = amount(gain).context("gain")?;
                    Rule::Gain {
                        gain,
                        within: self.absolute(gain)?,
                    }
                }
                (false, None, None, Some(ratio), None) => Rule::Ratio {
                    ratio,
                    within: fraction(self.within.as_ref())?,
                },
                (false, None, None, None, Some(published)) => match published.factor {
                    Some(factor) if published.within.is_none() => {
                        ensure!(factor >= 1.0, "published: factor: at least 1");
                        Rule::PublishedFactor { factor }
                    }
                    _ => Rule::Published {
                        within: fraction(published.within.as_ref()).context("published")?,
                    },
                },
                _ => bail!(
                    "say one of least and most, value, gain, ratio, or published = {{ within or factor }}"
                ),
            },
        )
    }

    /// `within` in the metric's unit: an amount, or a percentage of `value`.
    fn absolute(&self, value: f64) -> Result<f64> {
        let text = &self.within.as_ref().context("say `within`")?.0;
        let within = match text.strip_suffix('%') {
            Some(_) if self.of.metric.unit() != "%" => {
                fraction(self.within.as_ref())? * value.abs()
            }
            _ => self.of.value(text).context("within")?,
        };
        ensure!(within >= 0.0, "within: must not be below 0");
        Ok(within)
    }
}

fn fraction(within: Option<&Text>) -> Result<f64> {
    let text = &within.context("say `within`")?.0;
    let percent = text
        .strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|percent| *percent >= 0.0);
    Ok(percent.with_context(|| format!("within: `{text}` is no percentage, such as 15%"))? / 100.0)
}

impl TrendTable {
    /// The rule that the table stands for, where a name of `groups` stands for its cases.
    ///
    /// # Errors
    /// An unknown case, or fewer than two.
    pub(super) fn resolve(&self, groups: &BTreeMap<String, Vec<String>>) -> Result<Trend> {
        let (names, way) = match (&self.rising, &self.falling) {
            (Some(names), None) => (names, TrendWay::Rising),
            (None, Some(names)) => (names, TrendWay::Falling),
            _ => bail!("{}: say either rising or falling", self.of),
        };
        let mut cases = Vec::new();
        for name in names {
            let known = groups
                .get(name)
                .with_context(|| format!("{}: there is no case `{name}`", self.of))?;
            cases.extend(known.iter().cloned());
        }
        ensure!(cases.len() > 1, "{}: a trend needs two cases", self.of);
        Ok(Trend {
            of: self.of.clone(),
            cases,
            way,
        })
    }
}

/// Refuses rules about what is not there.
///
/// # Errors
/// An instrument that the case has not, a gain without a reference, a published value that is missing.
pub(super) fn check(case: &Case, has_reference: bool) -> Result<()> {
    for Expectation { of, rule } in &case.expect {
        let known = case.instruments.iter().any(|i| i.name == of.instrument);
        ensure!(
            known,
            "{of}: the case has no instrument `{}`",
            of.instrument
        );
        ensure!(
            has_reference || !rule.is_relative(),
            "{of}: needs a case to compare with: name it in `reference`"
        );
        ensure!(
            case.published.contains_key(of) || !rule.is_of_the_published(),
            "{of}: needs its value in `published`"
        );
    }
    Ok(())
}
