//! The tables of a scenario file, and what each stands for.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use model::Nanos;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::TakenOut;
use super::expectations::{AmountText, ExpectTable, PublishedText};
use crate::experiment::machine_facts;
use crate::experiment::{Case, PlannedInstrument};
use crate::forward::thread::HELD_MEMORY;
use crate::toml_file::{Below, SourceFile};
use conditions::in_effect::MemoryNeed;
use conditions::{LinkSpec, nearest, require};
use instruments::measure::{InstrumentArgs, Kind, Parameters};
use record::bed::Bed;
use record::figure_name::FigureName;
use record::plan::{MOST_RUNS, Narrow, Repeats};
use stats::repeats;

/// The `quick` table: what `--quick` changes of all cases.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickTable {
    pub(super) repeats: Option<u32>,
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
    /// The kind when absent.
    name: Option<String>,
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
    /// Keep a line a probe as CSV below the record's directory; `probe` alone has one.
    #[serde(default)]
    csv: bool,
}

/// One of `cases`, its base and its sweep's values filled in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseTable {
    pub(super) name: String,
    #[serde(default)]
    title: String,
    /// `netns` when absent.
    #[serde(default)]
    bed: Bed,
    /// Of a chain, from which node to which.
    between: Option<[String; 2]>,
    /// The host's default when absent.
    tcp: Option<TcpTable>,
    #[serde(default)]
    link: LinkSpec,
    repeats: Option<RepeatsTable>,
    /// Which of the scenario's, in this order; all of them when absent.
    instruments: Option<Vec<String>>,
    /// By instrument, what this case changes.
    #[serde(default)]
    parameters: BTreeMap<String, Parameters>,
    #[serde(default)]
    published: BTreeMap<FigureName, PublishedText>,
    #[serde(default)]
    expect: Vec<ExpectTable>,
    #[serde(default)]
    note: String,
    #[serde(rename = "base")]
    #[schemars(skip)]
    _base: Option<TakenOut>,
    #[serde(rename = "sweep")]
    #[schemars(skip)]
    _sweep: Option<TakenOut>,
}

/// A number of repeats, or when there are enough.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum RepeatsTable {
    Fixed(NonZeroU32),
    Until(UntilTable),
}

/// Repeats until the interval of a figure's mean is narrow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UntilTable {
    of: FigureName,
    /// Half the interval in percent of the mean.
    within: AmountText,
    /// Refused, with the reason.
    #[schemars(skip)]
    least: Option<u32>,
    /// Refused, with the reason.
    #[schemars(skip)]
    most: Option<u32>,
}

struct RepeatsVisitor;

impl<'de> Visitor<'de> for RepeatsVisitor {
    type Value = RepeatsTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 1 on, or { of, within }")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RepeatsTable, E> {
        let count = u32::try_from(number).ok().and_then(NonZeroU32::new);
        let count = count.filter(|count| u64::from(count.get()) <= MOST_RUNS);
        let count = count.ok_or_else(|| {
            E::custom(format!(
                "`{number}` is not a number of runs from 1 to {MOST_RUNS}"
            ))
        })?;
        Ok(RepeatsTable::Fixed(count))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RepeatsTable, M::Error> {
        let table = UntilTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RepeatsTable::Until(table))
    }
}

/// By hand, because serde's `untagged` would hide where in the file a wrong value stands.
impl<'de> Deserialize<'de> for RepeatsTable {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(RepeatsVisitor)
    }
}

impl InstrumentTable {
    /// Its own, or its kind's.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.kind.name())
    }

    /// Refuses options that the instrument has not, with and without `--quick`, whichever is asked for.
    pub(super) fn check(&self, source: SourceFile<'_>) -> Result<()> {
        let asked = self.with(&self.parameters, source).below("parameters")?;
        require!(
            !self.csv || asked.instrument().writes_csv(),
            "csv": "{} has no CSV; probe has one",
            self.kind.name()
        );
        let mut shortened = self.parameters.clone();
        shortened.set(&self.quick);
        self.with(&shortened, source).below("quick")?;
        require!(
            self.timeout != Some(Nanos::ZERO),
            "timeout": "must be above 0"
        );
        Ok(())
    }

    /// The instrument with these parameters; the file that it takes is one that `source` may name, by its whole path.
    fn with(&self, parameters: &Parameters, source: SourceFile<'_>) -> Result<InstrumentArgs> {
        let mut asked = self.kind.with(parameters)?;
        if let Some(file) = asked.file_mut() {
            *file = source.named(file).below("file")?;
        }
        Ok(asked)
    }
}

impl CaseTable {
    /// The case that the table stands for.
    ///
    /// # Errors
    /// Conditions that contradict each other, an option that an instrument has not, or expectations about nothing.
    pub(super) fn resolve(
        &self,
        source: SourceFile<'_>,
        instruments: &[InstrumentTable],
        axes: &[(String, String)],
        quick: bool,
        shortened: &QuickTable,
    ) -> Result<Case> {
        require!(!self.name.contains('\n'), "name": "it must be one line");
        self.bed.check(&self.link, self.between.as_ref())?;
        self.check_memory()?;
        let mut repeats = self
            .repeats
            .as_ref()
            .map_or(Ok(Repeats::fixed(1)), RepeatsTable::resolve)
            .below("repeats")?;
        if let (true, Some(count)) = (quick, shortened.repeats) {
            repeats = Repeats::fixed(count.min(repeats.most));
        }
        let value =
            |(name, text): (&FigureName, &PublishedText)| Ok((name.clone(), text.resolve(name)?));
        let published = self.published.iter().map(value);
        let published = published.collect::<Result<BTreeMap<_, _>>>();
        let mut published = published.below("published")?;
        // Of what is shortened, an amount is another one than that of whoever published it.
        published.retain(|name, _| !(quick && name.is_of_the_whole()));
        let expect = self.expect.iter().enumerate().map(|(index, expect)| {
            let rule = expect.resolve();
            rule.below_item("expect", index)
        });
        let congestion = self.tcp.as_ref().map(|tcp| tcp.congestion.clone());
        Ok(Case {
            name: case_name(&self.name, axes),
            title: self.title.clone(),
            axes: axes.to_vec(),
            bed: self.bed.clone(),
            between: self.between.clone(),
            congestion: congestion.unwrap_or_else(machine_facts::congestion),
            link: self.link.clone(),
            repeats,
            instruments: self.instruments(source, instruments, axes, quick)?,
            published,
            expect: expect.collect::<Result<_>>()?,
            note: self.note.trim().to_owned(),
        })
    }

    /// Refuses more clients than there is memory for what their links imply.
    fn check_memory(&self) -> Result<()> {
        let clients = u64::from(self.bed.clients());
        if clients == 1 {
            return Ok(());
        }
        let route = self.bed.path(&self.link, self.between.as_ref())?;
        let need = MemoryNeed::on(&route.up, &route.down).bytes();
        let check = || {
            require!(
                need.saturating_mul(clients) <= HELD_MEMORY as u64,
                "clients": "{clients} links that need {need} bytes each for rate times delay exceed the emulator's memory of \
             {HELD_MEMORY}: reduce the clients, the rate or the delay"
            );
            Ok::<_, conditions::Error>(())
        };
        check().below("bed")
    }

    fn instruments(
        &self,
        source: SourceFile<'_>,
        all: &[InstrumentTable],
        axes: &[(String, String)],
        quick: bool,
    ) -> Result<Vec<PlannedInstrument>> {
        let known = |name: &str| nearest::or_all(name, all.iter().map(InstrumentTable::name));
        let find = |name: &str| all.iter().find(|i| i.name() == name);
        for name in self.parameters.keys() {
            let found = find(name)
                .with_context(|| format!("there is no instrument `{name}`{}", known(name)));
            found.below(name).below("parameters")?;
        }
        let chosen: Vec<&InstrumentTable> = match &self.instruments {
            None => all.iter().collect(),
            Some(names) => {
                let one = |(index, name): (usize, &String)| {
                    let found = find(name)
                        .with_context(|| format!("there is no instrument `{name}`{}", known(name)));
                    found.below_item("instruments", index)
                };
                names.iter().enumerate().map(one).collect::<Result<_>>()?
            }
        };
        require!(!chosen.is_empty(), "instruments": "there is none");
        let resolve = |table: &InstrumentTable| {
            let name = table.name();
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
            let check = || {
                let asked = table.with(&parameters, source)?;
                require!(
                    self.bed.clients() == 1 || !matches!(asked.instrument().server(), Ok(Some(_))),
                    "tool": "its server runs one test at a time: leave the tool out, or use one client"
                );
                Ok::<_, anyhow::Error>(asked)
            };
            let asked = check().below(name).below("parameters")?;
            Ok(PlannedInstrument {
                name: name.to_owned(),
                profile: asked.instrument().profile(),
                args: asked,
                group: table.group.clone(),
                timeout: table.timeout,
                warm_up: table.warm_up,
                csv: table.csv,
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
        let UntilTable {
            of,
            within,
            least,
            most,
        } = match self {
            Self::Fixed(count) => return Ok(Repeats::fixed(count.get())),
            Self::Until(table) => table,
        };
        let [first, all] = [repeats::FIRST, repeats::MOST];
        for (key, given) in [("least", least), ("most", most)] {
            require!(
                given.is_none(),
                key => "the number of runs is no longer fixed: the first {first} decide it, up to {all}"
            );
        }
        let percent = within
            .0
            .strip_suffix('%')
            .and_then(|p| p.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| *percent > 0.0);
        let percent = percent
            .with_context(|| format!("`{}` is not a percentage such as 5%", within.0))
            .below("within")?;
        Ok(Repeats {
            least: u32::try_from(first)?,
            most: u32::try_from(all)?,
            until: Some(Narrow {
                of: of.clone(),
                percent,
            }),
        })
    }
}
