//! The tables of a scenario file, and what each stands for.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use model::{BitsPerSec, Bytes, Nanos, Probability};
use serde::Deserialize;
use toml::Spanned;

use crate::experiment::plan::{
    Case, Expectations, GainExpectation, GoodputExpectation, Instrument, Method, Published,
};
use crate::instrument::external::iperf::Iperf;
use crate::instrument::external::iperf3::Iperf3;
use crate::instrument::external::nuttcp::Nuttcp;
use crate::instrument::external::streams::StreamTool;
use crate::instrument::http::files::{DEFAULT_CONNECTIONS, FilesPlan, MOST_CONNECTIONS};
use crate::instrument::http::sizes::Sizes;
use crate::instrument::http::{self, Amount, HttpPlan};
use crate::instrument::iperf3::plan::{MOST_STREAMS, Plan as StreamPlan, Protocol, Until, Way};
use crate::instrument::ping::PingPlan;
use crate::link_spec::{LinkSpec, unit};

const DEFAULT_PING_SIZE: Bytes = Bytes(56);
const LARGEST_PING: u16 = 65_507;
const DEFAULT_PING_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_PING_TIMEOUT: Duration = Duration::from_secs(3);
const FILES_SEED: u64 = 1;

/// The `tcp` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpTable {
    pub(super) congestion: String,
}

/// One of `instruments`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstrumentTable {
    pub(super) name: Spanned<String>,
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
    Curl,
    HttpFiles,
    Iperf3,
    Iperf,
    Nuttcp,
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
    #[serde(default, with = "unit")]
    sizes: Option<Sizes>,
    connections: Option<u32>,
    keep_alive: Option<bool>,
    protocol: Option<Protocol>,
    way: Option<Way>,
    streams: Option<u32>,
    #[serde(default, with = "unit")]
    bitrate: Option<BitsPerSec>,
    #[serde(default, with = "unit")]
    length: Option<Bytes>,
}

/// One of `cases`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseTable {
    pub(super) name: Spanned<String>,
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

impl InstrumentTable {
    /// The instrument that the table stands for.
    ///
    /// # Errors
    /// A parameter that is missing, out of range or another instrument's.
    pub(super) fn resolve(&self, quick: bool, congestion: &str) -> Result<Instrument> {
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
            Kind::Curl => Method::Curl(parameters.http()?),
            Kind::HttpFiles => Method::HttpFiles(parameters.files()?),
            Kind::Iperf3 => Method::Iperf3(parameters.streams(&Iperf3, Some(congestion))?),
            Kind::Iperf => Method::Iperf(parameters.streams(&Iperf, Some(congestion))?),
            // It has no option for congestion control.
            Kind::Nuttcp => Method::Nuttcp(parameters.streams(&Nuttcp, None)?),
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
            sizes: quick.sizes.clone().or_else(|| self.sizes.clone()),
            connections: quick.connections.or(self.connections),
            keep_alive: quick.keep_alive.or(self.keep_alive),
            protocol: quick.protocol.or(self.protocol),
            way: quick.way.or(self.way),
            streams: quick.streams.or(self.streams),
            bitrate: quick.bitrate.or(self.bitrate),
            length: quick.length.or(self.length),
        }
    }

    /// Refuses what is not among the parameters that a kind takes.
    fn only(&self, taken: &[&str]) -> Result<()> {
        let said = [
            ("size", self.size.is_some()),
            ("count", self.count.is_some()),
            ("interval", self.interval.is_some()),
            ("timeout", self.timeout.is_some()),
            ("bytes", self.bytes.is_some()),
            ("duration", self.duration.is_some()),
            ("sizes", self.sizes.is_some()),
            ("connections", self.connections.is_some()),
            ("keep_alive", self.keep_alive.is_some()),
            ("protocol", self.protocol.is_some()),
            ("way", self.way.is_some()),
            ("streams", self.streams.is_some()),
            ("bitrate", self.bitrate.is_some()),
            ("length", self.length.is_some()),
        ];
        let other = said
            .iter()
            .find(|(key, said)| *said && !taken.contains(key));
        match other {
            Some((key, _)) => bail!("{key}: this kind takes {}", taken.join(", ")),
            None => Ok(()),
        }
    }

    fn ping(&self) -> Result<PingPlan> {
        self.only(&["size", "count", "interval", "timeout"])?;
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
            tos: None,
            ttl: None,
        })
    }

    fn http(&self) -> Result<HttpPlan> {
        self.only(&["bytes", "duration", "interval"])?;
        let amount = match (self.bytes, self.duration) {
            (Some(Bytes(bytes)), None) if bytes > 0 => Amount::Bytes(bytes),
            (None, Some(time)) if time > Nanos::ZERO => Amount::For(time.into()),
            _ => bail!("say either bytes or duration, above 0"),
        };
        let interval = self.interval.map_or(http::DEFAULT_INTERVAL, Duration::from);
        ensure!(!interval.is_zero(), "interval: must be above 0");
        Ok(HttpPlan { amount, interval })
    }

    fn files(&self) -> Result<FilesPlan> {
        self.only(&["sizes", "count", "connections", "keep_alive"])?;
        let count = self.count.context("count: say how many files to fetch")?;
        ensure!(count > 0, "count: at least 1");
        let connections = self.connections.unwrap_or(DEFAULT_CONNECTIONS);
        ensure!(
            (1..=MOST_CONNECTIONS).contains(&connections),
            "connections: 1 to {MOST_CONNECTIONS}"
        );
        let sizes = self.sizes.clone();
        Ok(FilesPlan {
            count,
            sizes: Some(sizes.context("sizes: say how large the files are")?),
            // One seed for all, so that every case fetches the same files.
            seed: FILES_SEED,
            connections,
            keep_alive: self.keep_alive.unwrap_or(false),
        })
    }

    fn streams(&self, by: &dyn StreamTool, congestion: Option<&str>) -> Result<StreamPlan> {
        self.only(&[
            "protocol", "way", "streams", "duration", "interval", "bitrate", "length",
        ])?;
        let time = self
            .duration
            .filter(|time| *time > Nanos::ZERO)
            .context("duration: say how long to send")?;
        let protocol = self.protocol.unwrap_or(Protocol::Tcp);
        let usual = StreamPlan::new(protocol);
        let parallel = self.streams.unwrap_or(usual.parallel);
        ensure!(
            (1..=MOST_STREAMS).contains(&parallel),
            "streams: 1 to {MOST_STREAMS}"
        );
        let length = self.length.map(|Bytes(bytes)| u32::try_from(bytes));
        let congestion = congestion.filter(|_| protocol == Protocol::Tcp);
        let plan = StreamPlan {
            way: self.way.unwrap_or(usual.way),
            parallel,
            until: Until::For(time.into()),
            interval: self.interval.map_or(usual.interval, Duration::from),
            bitrate: self.bitrate.map(BitsPerSec::get),
            length: length.transpose().context("length")?,
            congestion: congestion.map(str::to_owned),
            ..usual
        };
        by.check(&plan)?;
        Ok(plan)
    }
}

impl CaseTable {
    /// The case that the table stands for.
    ///
    /// # Errors
    /// Conditions that contradict each other, or expectations about nothing.
    pub(super) fn resolve(&self, has_reference: bool) -> Result<Case> {
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
