//! Scenario files: what a user writes, checked whole before anything runs, and made into a plan.

mod tables;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::Spanned;

use self::tables::{CaseTable, InstrumentTable, TcpTable};
use super::plan::{Bed, Plan};
use crate::toml_file;

const DEFAULT_SEED: u64 = 1;
/// IPv6 needs 1280 (RFC 8200 §5); veth carries no more than 65535.
const MTUS: std::ops::RangeInclusive<u32> = 1280..=65_535;

/// A scenario as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    title: String,
    seed: Option<u64>,
    reference: Option<Spanned<String>>,
    bed: Spanned<Bed>,
    tcp: TcpTable,
    instruments: Vec<InstrumentTable>,
    cases: Vec<CaseTable>,
}

/// The text of the scenario in `file`, and the plan that it stands for; `quick` shortens it.
///
/// # Errors
/// One that names the file, the line and the key.
pub(crate) fn read(file: &Path, quick: bool) -> Result<(String, Plan)> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    let plan = parse(&file.display().to_string(), &text, quick)?;
    Ok((text, plan))
}

/// The plan in `text`, which came from `file`.
///
/// # Errors
/// As [`read`].
pub(crate) fn parse(file: &str, text: &str, quick: bool) -> Result<Plan> {
    let scenario: ScenarioFile = toml_file::parse(file, text)?;
    let place = Place { file, text };
    place.check(&scenario)?;
    let instruments = scenario.instruments.iter().map(|table| {
        let context = || {
            place.at(
                &table.name,
                &format!("instrument `{}`", table.name.as_ref()),
            )
        };
        table
            .resolve(quick, &scenario.tcp.congestion)
            .with_context(context)
    });
    let cases = scenario.cases.iter().map(|table| {
        let context = || place.at(&table.name, &format!("case `{}`", table.name.as_ref()));
        table
            .resolve(scenario.reference.is_some())
            .with_context(context)
    });
    Ok(Plan {
        quick,
        seed: scenario.seed.unwrap_or(DEFAULT_SEED),
        instruments: instruments.collect::<Result<_>>()?,
        cases: cases.collect::<Result<_>>()?,
        name: scenario.name,
        title: scenario.title,
        reference: scenario.reference.map(Spanned::into_inner),
        bed: scenario.bed.into_inner(),
        congestion: scenario.tcp.congestion,
    })
}

/// Where a text came from, for errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn at<T>(&self, spot: &Spanned<T>, what: &str) -> String {
        format!("{}:{}: {what}", self.file, self.line(spot))
    }

    fn line<T>(&self, spot: &Spanned<T>) -> usize {
        toml_file::line_of(self.text, spot.span().start)
    }

    /// What only the whole file can show to be wrong.
    fn check(&self, scenario: &ScenarioFile) -> Result<()> {
        ensure!(
            !scenario.cases.is_empty(),
            "{}: cases: there is none",
            self.file
        );
        ensure!(
            !scenario.instruments.is_empty(),
            "{}: instruments: there is none",
            self.file
        );
        self.refuse_twins("cases", scenario.cases.iter().map(|case| &case.name))?;
        self.refuse_twins("instruments", scenario.instruments.iter().map(|i| &i.name))?;
        if let Some(reference) = &scenario.reference {
            let names: Vec<&str> = scenario
                .cases
                .iter()
                .map(|c| c.name.as_ref().as_str())
                .collect();
            if !names.contains(&reference.as_ref().as_str()) {
                let at = self.at(reference, "reference");
                bail!(
                    "{at}: there is no case `{}`; there are: {}",
                    reference.as_ref(),
                    names.join(", ")
                );
            }
        }
        let bed = scenario.bed.as_ref();
        let at = || self.at(&scenario.bed, "bed");
        ensure!(
            MTUS.contains(&bed.mtu),
            "{}: mtu: {} is out of range: 1280 to 65535",
            at(),
            bed.mtu
        );
        bed.wire.check().with_context(|| format!("{}: wire", at()))
    }

    fn refuse_twins<'a>(
        &self,
        key: &str,
        names: impl Iterator<Item = &'a Spanned<String>>,
    ) -> Result<()> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for name in names {
            if let Some(line) = seen.insert(name.as_ref(), self.line(name)) {
                let at = self.at(name, &format!("{key}: name"));
                bail!("{at}: `{}` is taken already, by line {line}", name.as_ref());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Method;
    use super::*;
    use crate::instrument::http::Amount;
    use std::time::Duration;

    const HEAD: &str = "\
name = 'x'
title = 'X'
[bed]
kind = 'netns'
[tcp]
congestion = 'cubic'
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { size = '1200b', count = 100 }
quick = { count = 5 }
[[instruments]]
name = 'download'
kind = 'http'
parameters = { bytes = '500MiB' }
quick = { duration = '10s' }
";

    fn plan(quick: bool) -> Plan {
        let text = format!(
            "{HEAD}[[cases]]\nname = 'a'\ntitle = 'A'\nrepeats = 3\n[[cases]]\nname = 'b'\ntitle = 'B'\n"
        );
        parse("x.toml", &text, quick).unwrap()
    }

    fn refusal(cases: &str) -> String {
        refusal_of(&format!("{HEAD}[[cases]]\n{cases}"))
    }

    fn refusal_of(text: &str) -> String {
        format!("{:#}", parse("x.toml", text, false).unwrap_err())
    }

    #[test]
    fn quick_shortens_counts_and_sizes_and_nothing_else() {
        let (full, quick) = (plan(false), plan(true));
        let Method::Ping(ping) = &quick.instruments[0].method else {
            panic!()
        };
        assert_eq!((ping.count, ping.size), (5, 1200));
        let Method::Http(http) = &quick.instruments[1].method else {
            panic!()
        };
        assert_eq!(http.amount, Amount::For(Duration::from_secs(10)));
        let Method::Http(http) = &full.instruments[1].method else {
            panic!()
        };
        assert_eq!(http.amount, Amount::Bytes(524_288_000));
        assert_eq!((full.bed, full.cases), (quick.bed, quick.cases));
    }

    #[test]
    fn repeats_are_spread_over_the_cases_and_have_seeds_of_their_own() {
        let plan = plan(false);
        let runs: Vec<_> = plan
            .runs()
            .iter()
            .map(|r| (r.case.name.clone(), r.repeat, r.seed))
            .collect();
        let expected = [("a", 1, 1), ("b", 1, 1), ("a", 2, 2), ("a", 3, 3)];
        assert_eq!(
            runs,
            expected.map(|(name, repeat, seed)| (name.to_owned(), repeat, seed))
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_key() {
        let message = refusal("name = 'a'\ntitle = 'A'\nlnik = {}\n");
        assert!(
            message.starts_with("x.toml:20: unknown field `lnik`"),
            "{message}"
        );
        assert!(message.ends_with("did you mean `link`?"), "{message}");
    }

    #[test]
    fn a_key_of_a_link_is_checked_like_any_other() {
        let message = refusal("name = 'a'\ntitle = 'A'\nlink = { dealy = '1ms' }\n");
        assert!(
            message.contains("x.toml:20") && message.contains("did you mean `delay`?"),
            "{message}"
        );
        let message = refusal("name = 'a'\ntitle = 'A'\n[cases.link]\ndelay = '1parsec'\n");
        assert!(
            message.starts_with("x.toml:21: delay: `1parsec`"),
            "{message}"
        );
    }

    #[test]
    fn two_cases_of_one_name_are_refused() {
        let message = refusal("name = 'a'\ntitle = 'A'\n[[cases]]\nname = 'a'\ntitle = 'B'\n");
        assert_eq!(
            message,
            "x.toml:21: cases: name: `a` is taken already, by line 18"
        );
    }

    #[test]
    fn an_unknown_reference_is_refused() {
        let text = format!("reference = 'z'\n{HEAD}[[cases]]\nname = 'a'\ntitle = 'A'\n");
        assert_eq!(
            refusal_of(&text),
            "x.toml:1: reference: there is no case `z`; there are: a"
        );
    }

    #[test]
    fn conditions_that_contradict_each_other_are_refused() {
        let message = refusal("name = 'a'\ntitle = 'A'\nlink = { queue = '5pkt' }\n");
        assert!(
            message.starts_with("x.toml:18: case `a`: link: "),
            "{message}"
        );
        assert!(message.contains("needs a rate"), "{message}");
    }

    #[test]
    fn expectations_without_what_they_refer_to_are_refused() {
        let message = refusal("name = 'a'\ntitle = 'A'\nexpect = { goodput = { factor = 1.5 } }\n");
        assert!(
            message.contains("goodput: needs the published"),
            "{message}"
        );
        let message = refusal(
            "name = 'a'\ntitle = 'A'\nexpect = { rtt_gain = { gain = '2ms', within = '1ms' } }\n",
        );
        assert!(message.contains("name it in `reference`"), "{message}");
    }

    #[test]
    fn a_parameter_of_another_instrument_is_refused() {
        let text = HEAD.replace("bytes = '500MiB'", "count = 3");
        let message = refusal_of(&format!("{text}[[cases]]\nname = 'a'\ntitle = 'A'\n"));
        assert_eq!(
            message,
            "x.toml:13: instrument `download`: count: this kind takes bytes, duration, interval"
        );
    }

    #[test]
    fn streams_of_tools_and_many_files_are_planned_whole() {
        let text = format!(
            "{HEAD}\
[[instruments]]
name = 'files'
kind = 'http-files'
parameters = {{ count = 9, sizes = '1kb,10kb' }}
[[instruments]]
name = 'udp'
kind = 'iperf3'
parameters = {{ protocol = 'udp', way = 'down', duration = '2s', bitrate = '5mbit', length = '1448b' }}
[[instruments]]
name = 'tcp'
kind = 'iperf'
parameters = {{ streams = 4, duration = '2s' }}
[[cases]]
name = 'a'
title = 'A'
"
        );
        let plan = parse("x.toml", &text, false).unwrap();
        let of = |name: &str| {
            let mut instruments = plan.instruments.iter();
            instruments.find(|i| i.name == name).unwrap().method.clone()
        };
        assert!(matches!(of("files"), Method::HttpFiles(plan) if plan.count == 9));
        // UDP has no congestion control; the scenario's is that of all TCP senders.
        assert!(matches!(of("udp"), Method::Iperf3(plan)
            if plan.congestion.is_none() && plan.bitrate == Some(5_000_000)));
        assert!(matches!(of("tcp"), Method::Iperf(plan)
            if plan.congestion.as_deref() == Some("cubic") && plan.parallel == 4));
    }

    #[test]
    fn the_scenarios_that_ship_are_sound() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        for entry in std::fs::read_dir(directory).unwrap() {
            for quick in [false, true] {
                read(&entry.as_ref().unwrap().path(), quick).unwrap();
            }
        }
    }
}
