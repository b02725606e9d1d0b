//! The tables of a scenario file and their conversion to parts of a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use model::Nanos;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::RemovedKey;
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
use record::swept;
use stats::repeats;

/// The `quick` table: the changes that `--quick` makes to all cases.
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

/// One entry of `instruments`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InstrumentTable {
    /// The name of the instrument; its kind when absent.
    name: Option<String>,
    kind: Kind,
    /// The options of `farwire measure KIND`, by their long names.
    #[serde(default)]
    parameters: Parameters,
    /// The changes that `--quick` makes to the parameters; `false` removes one.
    #[serde(default)]
    quick: Parameters,
    /// Instruments with the same group run simultaneously.
    group: Option<String>,
    /// The time after which the instrument is stopped and counts as failed.
    timeout: Option<Nanos>,
    /// The time at the start that the steady rate leaves out; derived from the measurement when absent.
    warm_up: Option<Nanos>,
    /// Saves one line per probe as CSV below the record's directory; only `probe` supports it.
    #[serde(default)]
    csv: bool,
}

/// One entry of `cases`, with its base and its sweep's values filled in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseTable {
    pub(super) name: String,
    #[serde(default)]
    title: String,
    /// The test bed; `netns` when absent.
    #[serde(default)]
    bed: Bed,
    /// The first and the last node of the path in a chain.
    between: Option<[String; 2]>,
    /// The TCP settings; the host's defaults when absent.
    tcp: Option<TcpTable>,
    #[serde(default)]
    link: LinkSpec,
    repeats: Option<RepeatsTable>,
    /// The names of the scenario's instruments to use, in this order; all of them when absent.
    instruments: Option<Vec<String>>,
    /// The parameters that this case changes, by instrument.
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
    _base: Option<RemovedKey>,
    #[serde(rename = "sweep")]
    #[schemars(skip)]
    _sweep: Option<RemovedKey>,
}

/// A fixed number of repeats, or a criterion that ends them.
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
    /// Half the width of the interval in percent of the mean.
    within: AmountText,
    /// This key is refused with an explanation.
    #[schemars(skip)]
    least: Option<u32>,
    /// This key is refused with an explanation.
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
        let count = u32::try_from(number)
            .ok()
            .and_then(NonZeroU32::new)
            .filter(|count| u64::from(count.get()) <= MOST_RUNS)
            .ok_or_else(|| {
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

/// Written by hand, because serde's `untagged` would hide the place of a wrong value in the file.
impl<'de> Deserialize<'de> for RepeatsTable {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(RepeatsVisitor)
    }
}

impl InstrumentTable {
    /// Returns the name of the instrument, or that of its kind.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.kind.name())
    }

    /// Refuses options that the instrument does not have, both with and without `--quick`.
    pub(super) fn check(&self, source: SourceFile<'_>) -> Result<()> {
        let args = self.with(&self.parameters, source).below("parameters")?;
        require!(
            !self.csv || args.instrument().writes_csv(),
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

    /// Returns the instrument with these parameters. If it takes a file, `source` must allow it,
    /// and its path becomes absolute.
    fn with(&self, parameters: &Parameters, source: SourceFile<'_>) -> Result<InstrumentArgs> {
        let mut args = self.kind.with(parameters)?;
        if let Some(file) = args.file_mut() {
            *file = source.named(file).below("file")?;
        }
        Ok(args)
    }
}

impl CaseTable {
    /// Converts the table to a case.
    ///
    /// # Errors
    /// Fails if conditions contradict each other, if an instrument does not have an option, or if
    /// an expectation cannot be judged.
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
        let mut published = self
            .published
            .iter()
            .map(value)
            .collect::<Result<BTreeMap<_, _>>>()
            .below("published")?;
        // A total of a shortened run differs from the published total.
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

    /// Refuses more clients than the forwarder's memory allows for their links.
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
                let args = table.with(&parameters, source)?;
                require!(
                    self.bed.clients() == 1 || !matches!(args.instrument().server(), Ok(Some(_))),
                    "tool": "its server runs one test at a time: leave the tool out, or use one client"
                );
                Ok::<_, anyhow::Error>(args)
            };
            let args = check().below(name).below("parameters")?;
            Ok(PlannedInstrument {
                name: name.to_owned(),
                profile: args.instrument().profile(),
                args,
                group: table.group.clone(),
                timeout: table.timeout,
                warm_up: table.warm_up,
                csv: table.csv,
            })
        };
        chosen.into_iter().map(resolve).collect()
    }
}

/// Returns a case's name with the values that a sweep set.
pub(crate) fn case_name(name: &str, axes: &[(String, String)]) -> String {
    format!("{name}{}", swept::name_suffix(axes))
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
            .and_then(|p| p.trim().parse::<f64>().ok())
            .filter(|percent| *percent > 0.0)
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
