//! The tables of a scenario file, and what each stands for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use model::Nanos;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::rules::{ExpectTable, Text};
use instruments::measure::{Kind, Parameters};
use record::bed::Bed;
use record::figure_name::FigureName;
use record::link_spec::LinkSpec;
use record::plan::{Case, Instrument, Narrow, Repeats};
use stats::repeats;

/// The `quick` table: what `--quick` changes of all cases.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickTable {
    repeats: Option<u32>,
}

/// The `tcp` table.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpTable {
    congestion: String,
}

/// One of `instruments`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InstrumentTable {
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    kind: Kind,
    /// The options of `farwire measure KIND`, by their long names.
    #[serde(default)]
    parameters: Parameters,
    /// What `--quick` changes of the parameters; `false` takes one away.
    #[serde(default)]
    quick: Parameters,
    /// Instruments of one name here run at the same time.
    group: Option<String>,
    /// It is stopped after this time, and has failed.
    timeout: Option<Nanos>,
    /// Left out of the steady rate at the start; found in what was measured when absent.
    warm_up: Option<Nanos>,
}

/// One of `cases`, its base and its sweep's values filled in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseTable {
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    #[serde(default)]
    title: String,
    bed: Bed,
    /// Of a chain, from which node to which.
    between: Option<[String; 2]>,
    tcp: TcpTable,
    #[serde(default)]
    link: LinkSpec,
    repeats: Option<RepeatsTable>,
    /// Which of the scenario's, in this order; all of them when absent.
    instruments: Option<Vec<String>>,
    /// By instrument, what this case changes.
    #[serde(default)]
    parameters: BTreeMap<String, Parameters>,
    #[serde(default)]
    published: BTreeMap<FigureName, Text>,
    #[serde(default)]
    expect: Vec<ExpectTable>,
    #[serde(default)]
    note: String,
}

/// A number of repeats, or when there are enough.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number, or { of, within }")]
pub(super) enum RepeatsTable {
    Fixed(u32),
    #[serde(rename_all = "kebab-case")]
    Until {
        of: FigureName,
        within: Text,
        /// Refused, with the reason.
        #[schemars(skip)]
        least: Option<u32>,
        /// Refused, with the reason.
        #[schemars(skip)]
        most: Option<u32>,
    },
}

impl CaseTable {
    /// The case that the table stands for.
    ///
    /// # Errors
    /// Conditions that contradict each other, an option that an instrument has not, or expectations about nothing.
    pub(super) fn resolve(
        &self,
        instruments: &[InstrumentTable],
        axes: &[(String, String)],
        quick: bool,
        shortened: &QuickTable,
    ) -> Result<Case> {
        self.bed.check(&self.link, self.between.as_ref())?;
        let mut repeats = self
            .repeats
            .as_ref()
            .map_or(Ok(Repeats::fixed(1)), RepeatsTable::resolve)?;
        if let (true, Some(count)) = (quick, shortened.repeats) {
            repeats = Repeats::fixed(count.min(repeats.most));
        }
        let value = |(name, text): (&FigureName, &Text)| {
            let value = name.value(&text.0).with_context(|| name.to_string())?;
            Ok((name.clone(), value))
        };
        let published = self.published.iter().map(value).collect::<Result<_>>();
        let expect = self.expect.iter().map(ExpectTable::resolve);
        Ok(Case {
            name: case_name(self.name.as_ref(), axes),
            title: self.title.clone(),
            axes: axes.to_vec(),
            bed: self.bed.clone(),
            between: self.between.clone(),
            congestion: self.tcp.congestion.clone(),
            link: self.link.clone(),
            repeats,
            instruments: self.instruments(instruments, axes, quick)?,
            published: published.context("published")?,
            expect: expect.collect::<Result<_>>().context("expect")?,
            note: self.note.trim().to_owned(),
        })
    }

    fn instruments(
        &self,
        all: &[InstrumentTable],
        axes: &[(String, String)],
        quick: bool,
    ) -> Result<Vec<Instrument>> {
        let known = || {
            let names: Vec<&str> = all.iter().map(|i| i.name.as_ref().as_str()).collect();
            format!("there are: {}", names.join(", "))
        };
        let find = |name: &String| all.iter().find(|i| i.name.as_ref() == name);
        for name in self.parameters.keys() {
            ensure!(
                find(name).is_some(),
                "parameters: there is no instrument `{name}`; {}",
                known()
            );
        }
        let chosen: Vec<&InstrumentTable> = match &self.instruments {
            None => all.iter().collect(),
            Some(names) => {
                let one = |name| {
                    find(name)
                        .with_context(|| format!("instruments: there is no `{name}`; {}", known()))
                };
                names.iter().map(one).collect::<Result<_>>()?
            }
        };
        ensure!(!chosen.is_empty(), "instruments: there is none");
        let resolve = |table: &InstrumentTable| {
            let name = table.name.as_ref();
            let mut parameters = table.parameters.clone();
            if let Some(own) = self.parameters.get(name) {
                parameters.set(own);
            }
            if quick {
                let swept = |key: &str| {
                    axes.iter()
                        .any(|(path, _)| *path == format!("parameters.{name}.{key}"))
                };
                parameters.set(&table.quick.without(swept));
            }
            let asked = table
                .kind
                .with(&parameters)
                .with_context(|| format!("instrument `{name}`"))?;
            ensure!(
                table.timeout != Some(Nanos::ZERO),
                "instrument `{name}`: timeout: must be above 0"
            );
            Ok(Instrument {
                name: name.clone(),
                kind: table.kind.name().to_owned(),
                arguments: asked.arguments(),
                profile: asked.instrument().profile(),
                group: table.group.clone(),
                timeout: table.timeout,
                warm_up: table.warm_up,
            })
        };
        chosen.into_iter().map(resolve).collect()
    }
}

/// A case's name with what a sweep set, each by the last part of its path.
pub(crate) fn case_name(name: &str, axes: &[(String, String)]) -> String {
    if axes.is_empty() {
        return name.to_owned();
    }
    let label = |(path, value): &(String, String)| {
        let last = path.rsplit('.').next().unwrap_or(path);
        format!("{last}={value}")
    };
    let labels: Vec<String> = axes.iter().map(label).collect();
    format!("{name}[{}]", labels.join(", "))
}

impl RepeatsTable {
    fn resolve(&self) -> Result<Repeats> {
        match self {
            Self::Fixed(0) => bail!("repeats: at least 1"),
            Self::Fixed(count) => Ok(Repeats::fixed(*count)),
            Self::Until {
                of,
                within,
                least,
                most,
            } => {
                let [first, all] = [repeats::FIRST, repeats::MOST];
                ensure!(
                    least.is_none() && most.is_none(),
                    "repeats: there is no least and no most: the first {first} say how many it takes, {all} at most"
                );
                let percent = within
                    .0
                    .strip_suffix('%')
                    .and_then(|p| p.trim().parse::<f64>().ok());
                let percent = percent.filter(|percent| *percent > 0.0);
                Ok(Repeats {
                    least: u32::try_from(first)?,
                    most: u32::try_from(all)?,
                    until: Some(Narrow {
                        of: of.clone(),
                        percent: percent
                            .context("repeats: within: must be a percentage, such as 5%")?,
                    }),
                })
            }
        }
    }
}
