//! `/metrics`: a scrape is valid OpenMetrics, adds up, and real programs accept it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use test_support::api::Exec;
use test_support::process::{self, has, stderr};

/// Three pings that are answered, and three that are not.
const PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 20 $FARWIRE_SERVER > /dev/null; echo $?";
const LOST_PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 1 $FARWIRE_SERVER > /dev/null; echo $?";

#[test_support::test(Namespaces, Tool("ping"))]
fn metrics_are_openmetrics_whose_counters_add_up_and_have_the_packets_that_were_lost() -> Result<()>
{
    let mut exec = Exec::start("--rate 10mbit --delay 1ms")?;
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    exec.patch("", r#"{"up": {"loss": "100%"}}"#)?;
    ensure!(
        exec.shell(LOST_PINGS)? != "0",
        "pings passed a loss of 100 %"
    );
    let (answer, metrics) =
        process::wait_for("three pings that passed and three that were lost", || {
            let answer = exec.get("/metrics?link=link")?;
            let metrics = Metrics::parse(&answer.text).with_context(|| answer.text.clone())?;
            let lost = metrics.of("farwire_packets_total", &["up", "dropped", "loss"]);
            let lost = lost.unwrap_or(0.0);
            let passed = metrics.of("farwire_packets_total", &["down", "delivered"])?;
            Ok((lost >= 3.0 && passed >= 3.0).then_some((answer, metrics)))
        })?;
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    ensure!(answer.head.contains(kind), "{}", answer.head);
    let lost = metrics.of("farwire_packets_total", &["up", "dropped", "loss"])?;
    ensure!(lost == 3.0, "{lost} of 3 were lost: {}", answer.text);
    for way in ["up", "down"] {
        let came = metrics.of("farwire_offered_packets_total", &[way])?
            + metrics.of("farwire_copied_packets_total", &[way])?;
        let ended = metrics.of("farwire_packets_total", &[way])?
            + metrics.of("farwire_in_flight_packets", &[way])?;
        ensure!(came == ended, "{way}: {came} came, {ended} ended");
        ensure!(came >= 3.0, "{way}: {came} came, {ended} ended");
        let bytes = metrics.of("farwire_bytes_total", &[way])?;
        ensure!(bytes >= 3.0 * 98.0, "{way}: {bytes} bytes of three pings");
        metrics.of("farwire_queue_bytes", &[way])?;
        metrics.of("farwire_queue_delay_seconds", &[way])?;
    }
    let delivered = metrics.of("farwire_packets_total", &["delivered"])?;
    let count = metrics.of("farwire_departure_error_seconds_count", &["link"])?;
    ensure!(
        delivered == count,
        "{delivered} left, {count} departure errors"
    );
    let delayed = metrics.of("farwire_delay_seconds_count", &["link"])?;
    let delay = metrics.of("farwire_delay_seconds_sum", &["link"])?;
    ensure!(
        delayed == delivered && delay >= 0.001 * delayed,
        "{delayed} were delayed by {delay} s"
    );
    let revision = metrics.of("farwire_link_revision", &["link"])?;
    ensure!(revision == 2.0, "{revision}");
    let valid = metrics.of("farwire_run_valid", &["link"])?;
    ensure!(valid == 0.0 || valid == 1.0, "{valid}");
    ensure!(
        metrics.of("farwire_link_info", &["link", "client", "server"])? == 1.0,
        "no info"
    );
    // The sums over the only link are its values, without its name.
    let sums = exec.get("/metrics")?;
    ensure!(!sums.text.contains("link=\""), "{}", sums.text);
    let metrics = Metrics::parse(&sums.text).with_context(|| sums.text.clone())?;
    ensure!(metrics.of("farwire_links", &[])? == 1.0, "{}", sums.text);
    let lost = metrics.of("farwire_packets_total", &["up", "dropped", "loss"])?;
    ensure!(lost == 3.0, "{lost} of 3 were lost: {}", sums.text);
    let unknown = exec.get("/metrics?link=nosuch")?;
    ensure!(unknown.status == 404, "{unknown:?}");
    has(&unknown.text, "the links are: link")?;
    let every = exec.get("/metrics?link=*")?;
    has(&every.text, "farwire_link_info{link=\"link\"")?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_scrape_is_compressed_for_a_client_that_accepts_gzip_and_events_are_not() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let ask = |path: &str| -> Result<TcpStream> {
        let mut stream = exec.connect()?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}", exec.at);
        write!(
            stream,
            "{head}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        )?;
        Ok(stream)
    };
    let mut answer = Vec::new();
    ask("/metrics")?.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.context("no head")? + 4);
    has(&String::from_utf8_lossy(head), "content-encoding: gzip\r\n")?;
    let mut text = String::new();
    GzDecoder::new(body).read_to_string(&mut text)?;
    has(&text, "farwire_packets_total{")?;
    ensure!(body.len() < text.len() / 2, "{} bytes", body.len());
    let mut is_head = true;
    for line in BufReader::new(ask("/v1/links/link/events")?).lines() {
        let line = line?;
        ensure!(
            !(is_head && line.starts_with("content-encoding")),
            "events are compressed: {line}"
        );
        is_head &= !line.is_empty();
        if line == "event: sample" {
            return exec.end();
        }
    }
    bail!("no sample came")
}

#[test_support::test(Namespaces, Tool("promtool"))]
fn promtool_has_nothing_against_the_metrics() -> Result<()> {
    let exec = Exec::start("--rate 10mbit")?;
    let host = exec.at;
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: text/plain");
    let answer = exec.send(&head, "")?;
    has(&answer.head, "text/plain; version=0.0.4")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("metrics");
    fs::write(&file, &answer.text)?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let said = process::run_with(&mut promtool, File::open(&file)?.into())?;
    let words = stderr(&said);
    let is_content = said.status.success() && words.is_empty();
    ensure!(is_content, "{}: {words}{}", said.status, answer.text);
    exec.end()
}

#[test_support::test(Soak, Namespaces, Tool("ping"), Tool("prometheus"))]
fn a_real_prometheus_scrapes_the_metrics() -> Result<()> {
    let mut exec = Exec::start("--delay 1ms")?;
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    let prometheus = Prometheus::scraping(exec.at)?;
    let delivered = "farwire_packets_total{verdict=\"delivered\",direction=\"up\"}";
    let first = process::wait_for("Prometheus to have scraped", || prometheus.ask(delivered))?;
    ensure!(first >= 3.0, "{first}");
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    process::wait_for("the next scrape to have three more", || {
        Ok(prometheus.ask(delivered)?.filter(|now| *now >= first + 3.0))
    })?;
    let p99 = "histogram_quantile(0.99, farwire_departure_error_seconds_bucket)";
    let p99 = prometheus.ask(p99)?.context("no departure error")?;
    ensure!(p99 > 0.0 && p99 <= 1.0, "{p99}");
    exec.end()
}

/// The metrics of a scrape: families with their samples, checked by the rules of OpenMetrics 1.0.
#[derive(Debug, Default)]
struct Metrics(Vec<(String, BTreeMap<String, String>, f64)>);

impl Metrics {
    /// Reads and checks everything: one EOF at the end, every family in one piece with its help and type, each sample once and named
    /// after its type, the unit in the name, buckets that add up.
    fn parse(text: &str) -> Result<Self> {
        let text = text.strip_suffix("# EOF\n").context("no EOF")?;
        let mut metrics = Self::default();
        let mut seen = BTreeSet::new();
        let (mut family, mut kind) = (String::new(), String::new());
        for line in text.lines() {
            let Some(about) = line.strip_prefix("# ") else {
                metrics
                    .sample(line, &family, &kind)
                    .context(line.to_owned())?;
                continue;
            };
            let mut words = about.splitn(3, ' ');
            let mut next = || words.next().context("too few words");
            let (what, name, rest) = (next()?, next()?, next()?);
            match what {
                "HELP" => {
                    ensure!(seen.insert(name.to_owned()), "{name}: a second time");
                    family = name.to_owned();
                }
                "TYPE" => kind = rest.to_owned(),
                "UNIT" => ensure!(name.ends_with(&format!("_{rest}")), "{line}"),
                _ => bail!("{line}"),
            }
            ensure!(name == family, "{line}: within {family}");
        }
        metrics.check_buckets()?;
        Ok(metrics)
    }

    fn sample(&mut self, line: &str, family: &str, kind: &str) -> Result<()> {
        let (name, labels, value) = match line.split_once('{') {
            Some((name, rest)) => {
                let (labels, value) = rest.rsplit_once("} ").context("no value")?;
                (name, labels, value)
            }
            None => {
                let (name, value) = line.split_once(' ').context("no value")?;
                (name, "", value)
            }
        };
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            other => bail!("{other}: no such type is expected"),
        };
        let ending = name.strip_prefix(family).context("not of this family")?;
        ensure!(endings.contains(&ending), "{name} in {family}");
        let labels = labels.split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| {
            let (name, value) = label.split_once("=\"").context("a label without a value")?;
            Ok((name.to_owned(), value.trim_end_matches('"').to_owned()))
        });
        let labels: BTreeMap<_, _> = labels.collect::<Result<_>>()?;
        let is_known =
            |(other, of, _): &(String, BTreeMap<_, _>, f64)| other == name && *of == labels;
        ensure!(!self.0.iter().any(is_known), "a second time");
        self.0.push((name.to_owned(), labels, value.parse()?));
        Ok(())
    }

    fn check_buckets(&self) -> Result<()> {
        let mut histograms: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
        for (name, labels, count) in &self.0 {
            if let Some(name) = name.strip_suffix("_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").context("a bucket without a bound")?;
                let bounds = histograms.entry((name, labels)).or_default();
                bounds.push((bound.replace("+Inf", "inf").parse()?, *count));
            }
        }
        // These are departure errors, round trips at both sides, and delays in both directions, which have one bucket.
        ensure!(histograms.len() == 5, "{histograms:?}");
        for ((name, labels), bounds) in histograms {
            let grow = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
            ensure!(
                (bounds.len() > 2 || name == "farwire_delay_seconds")
                    && bounds.windows(2).all(grow),
                "{name}: {bounds:?}"
            );
            let (last, all) = bounds[bounds.len() - 1];
            let words: Vec<&str> = labels.values().map(String::as_str).collect();
            let count = self.of(&format!("{name}_count"), &words)?;
            ensure!(
                last.is_infinite() && all == count,
                "{name}: {all} in buckets, {count} in all"
            );
        }
        Ok(())
    }

    /// Sums the samples of this name that have all of these words as values of labels.
    fn of(&self, name: &str, words: &[&str]) -> Result<f64> {
        let has = |labels: &BTreeMap<String, String>| {
            words
                .iter()
                .all(|word| labels.values().any(|value| value == word))
        };
        let found = self
            .0
            .iter()
            .filter(|(of, labels, _)| of == name && has(labels));
        let values: Vec<f64> = found.map(|(.., value)| *value).collect();
        ensure!(!values.is_empty(), "there is no {name} of {words:?}");
        Ok(values.iter().sum())
    }
}

/// A Prometheus that scrapes every 250 ms.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn scraping(target: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // This port was free a moment ago; Prometheus cannot choose a free port.
        let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\nscrape_configs:\n- job_name: farwire\n  static_configs: \
             [{{targets: ['{target}']}}]\n"
        );
        fs::write(&config, text)?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={at}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            at,
            _folder: folder,
        })
    }

    /// Returns its answer to a query of one value, or nothing while it has none.
    fn ask(&self, query: &str) -> Result<Option<f64>> {
        let Ok(mut stream) = TcpStream::connect(self.at) else {
            return Ok(None);
        };
        let bytes = query.bytes().map(|byte| format!("%{byte:02x}"));
        let query: String = bytes.collect();
        // HTTP/1.0 makes the answer come in one piece.
        write!(
            stream,
            "GET /api/v1/query?query={query} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.at
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (_, body) = text.split_once("\r\n\r\n").context("no answer")?;
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            return Ok(None);
        };
        let value = body["data"]["result"][0]["value"][1].as_str();
        Ok(value.map(str::parse).transpose()?)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
