//! Scenario files: what a user writes, checked whole before anything runs, and made into a plan.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use model::{Bytes, Nanos, Probability};
use serde::Deserialize;
use toml::Spanned;

use super::plan::{
    Bed, Case, Expectations, GainExpectation, GoodputExpectation, Instrument, Method, Plan,
    Published,
};
use crate::instrument::http::{Amount, HttpPlan};
use crate::instrument::ping::PingPlan;
use crate::link_spec::{LinkSpec, unit};
use crate::toml_file;

const DEFAULT_SEED: u64 = 1;
const DEFAULT_PING_SIZE: Bytes = Bytes(56);
const LARGEST_PING: u16 = 65_507;
const DEFAULT_PING_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_PING_TIMEOUT: Duration = Duration::from_secs(3);
const DEFAULT_HTTP_INTERVAL: Duration = Duration::from_millis(100);
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TcpTable {
    congestion: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstrumentTable {
    name: Spanned<String>,
    kind: Kind,
    #[serde(default)]
    parameters: Parameters,
    /// What `--quick` changes of the parameters.
    #[serde(default)]
    quick: Parameters,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Ping,
    Http,
    SystemPing,
    Wget,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(default, with = "unit")]
    size: Option<Bytes>,
    count: Option<u32>,
    #[serde(default, with = "unit")]
    interval: Option<Nanos>,
    #[serde(default, with = "unit")]
    timeout: Option<Nanos>,
    #[serde(default, with = "unit")]
    bytes: Option<Bytes>,
    #[serde(default, with = "unit")]
    duration: Option<Nanos>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    name: Spanned<String>,
    title: String,
    #[serde(default)]
    link: LinkSpec,
    repeats: Option<u32>,
    #[serde(default)]
    published: PublishedTable,
    #[serde(default)]
    expect: ExpectTable,
    #[serde(default)]
    note: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    #[serde(default, with = "unit")]
    rtt_mean: Option<Nanos>,
    #[serde(default, with = "unit")]
    loss: Option<Probability>,
    #[serde(default, with = "unit")]
    download_bytes: Option<Bytes>,
    #[serde(default, with = "unit")]
    download_time: Option<Nanos>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectTable {
    rtt_gain: Option<GainTable>,
    goodput: Option<GoodputTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GainTable {
    #[serde(with = "unit")]
    gain: Option<Nanos>,
    #[serde(with = "unit")]
    within: Option<Nanos>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GoodputTable {
    #[serde(default, with = "unit")]
    within: Option<Probability>,
    factor: Option<f64>,
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
        table.resolve(quick).with_context(context)
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

impl InstrumentTable {
    fn resolve(&self, quick: bool) -> Result<Instrument> {
        let parameters = if quick {
            self.parameters.shortened(&self.quick)
        } else {
            self.parameters.clone()
        };
        let method = match self.kind {
            Kind::Ping => Method::Ping(parameters.ping()?),
            Kind::SystemPing => Method::SystemPing(parameters.ping()?),
            Kind::Http => Method::Http(parameters.http()?),
            Kind::Wget => Method::Wget(parameters.http()?),
        };
        Ok(Instrument {
            name: self.name.as_ref().clone(),
            method,
        })
    }
}

impl Parameters {
    /// With what `quick` names in its place; a quick size or duration replaces either.
    fn shortened(&self, quick: &Self) -> Self {
        let (bytes, duration) = match (quick.bytes, quick.duration) {
            (None, None) => (self.bytes, self.duration),
            quick => quick,
        };
        Self {
            size: quick.size.or(self.size),
            count: quick.count.or(self.count),
            interval: quick.interval.or(self.interval),
            timeout: quick.timeout.or(self.timeout),
            bytes,
            duration,
        }
    }

    fn ping(&self) -> Result<PingPlan> {
        refuse("bytes", self.bytes.is_some(), "a download's")?;
        refuse("duration", self.duration.is_some(), "a download's")?;
        let size = self.size.unwrap_or(DEFAULT_PING_SIZE);
        let size = u16::try_from(size.0)
            .ok()
            .filter(|size| *size <= LARGEST_PING);
        let count = self
            .count
            .context("count: say how many echo requests to send")?;
        ensure!(count > 0, "count: at least 1");
        let interval = self.interval.map_or(DEFAULT_PING_INTERVAL, Duration::from);
        ensure!(!interval.is_zero(), "interval: must be above 0");
        Ok(PingPlan {
            size: size.with_context(|| format!("size: at most {LARGEST_PING}b"))?,
            count,
            interval,
            timeout: self.timeout.map_or(DEFAULT_PING_TIMEOUT, Duration::from),
        })
    }

    fn http(&self) -> Result<HttpPlan> {
        refuse("size", self.size.is_some(), "a ping's")?;
        refuse("count", self.count.is_some(), "a ping's")?;
        refuse("timeout", self.timeout.is_some(), "a ping's")?;
        let amount = match (self.bytes, self.duration) {
            (Some(Bytes(bytes)), None) if bytes > 0 => Amount::Bytes(bytes),
            (None, Some(time)) if time > Nanos::ZERO => Amount::For(time.into()),
            _ => bail!("say either bytes or duration, above 0"),
        };
        let interval = self.interval.map_or(DEFAULT_HTTP_INTERVAL, Duration::from);
        ensure!(!interval.is_zero(), "interval: must be above 0");
        Ok(HttpPlan { amount, interval })
    }
}

impl CaseTable {
    fn resolve(&self, has_reference: bool) -> Result<Case> {
        self.link.check().context("link")?;
        let repeats = self.repeats.unwrap_or(1);
        ensure!(repeats > 0, "repeats: at least 1");
        let published = self.published.resolve().context("published")?;
        let expect = self
            .expect
            .resolve(has_reference, &published)
            .context("expect")?;
        Ok(Case {
            name: self.name.as_ref().clone(),
            title: self.title.clone(),
            link: self.link.clone(),
            repeats,
            published,
            expect,
            note: self.note.trim().to_owned(),
        })
    }
}

impl PublishedTable {
    fn resolve(&self) -> Result<Published> {
        let goodput = match (self.download_bytes, self.download_time) {
            (Some(Bytes(bytes)), Some(time)) if time > Nanos::ZERO => {
                Some(bytes as f64 / Duration::from(time).as_secs_f64())
            }
            (None, None) => None,
            _ => bail!("download_bytes and download_time (above 0) go together"),
        };
        Ok(Published {
            rtt_mean_ms: self.rtt_mean.map(millis),
            lost_percent: self.loss.map(|loss| loss.percent()),
            goodput_bytes_per_s: goodput,
        })
    }
}

impl ExpectTable {
    fn resolve(&self, has_reference: bool, published: &Published) -> Result<Expectations> {
        let rtt_gain = self.rtt_gain.as_ref().map(GainTable::resolve);
        ensure!(
            rtt_gain.is_none() || has_reference,
            "rtt_gain: a gain needs a case to gain over: name it in `reference`"
        );
        let goodput = self.goodput.as_ref().map(GoodputTable::resolve);
        ensure!(
            goodput.is_none() || published.goodput_bytes_per_s.is_some(),
            "goodput: needs the published download_bytes and download_time"
        );
        Ok(Expectations {
            rtt_gain: rtt_gain.transpose().context("rtt_gain")?,
            goodput: goodput.transpose().context("goodput")?,
        })
    }
}

impl GainTable {
    fn resolve(&self) -> Result<GainExpectation> {
        Ok(GainExpectation {
            gain_ms: self.gain.map(millis).ok_or_else(|| anyhow!("say `gain`"))?,
            tolerance_ms: self
                .within
                .map(millis)
                .ok_or_else(|| anyhow!("say `within`"))?,
        })
    }
}

impl GoodputTable {
    fn resolve(&self) -> Result<GoodputExpectation> {
        match (self.within, self.factor) {
            (Some(fraction), None) => Ok(GoodputExpectation::Within(fraction.fraction())),
            (None, Some(factor)) if factor >= 1.0 && factor.is_finite() => {
                Ok(GoodputExpectation::Factor(factor))
            }
            _ => bail!("say either within, such as \"15%\", or factor, at least 1"),
        }
    }
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

fn refuse(key: &str, present: bool, owner: &str) -> Result<()> {
    ensure!(!present, "{key}: is {owner} parameter");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "x.toml:13: instrument `download`: count: is a ping's parameter"
        );
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
