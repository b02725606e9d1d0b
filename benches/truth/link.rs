//! One run: an instrument behind the known link, what it said, and what the emulator counted.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::packet_log::Delivered;

/// One way, in milliseconds.
const DELAY_MS: f64 = 20.0;
/// L2 bits a second, FCS not counted.
const RATE: f64 = 50e6;

/// What one run gave.
pub(crate) struct Run {
    /// The measurement, as the instrument wrote it.
    pub(crate) measured: Value,
    /// The link's summary.
    link: Value,
    /// A line a packet, as the emulator wrote it.
    packet_log: String,
}

/// Runs `farwire measure ARGUMENTS` behind the link with `seed`.
pub(crate) fn run(seed: u64, arguments: &str) -> Result<Run> {
    let directory = tempfile::tempdir()?;
    let [measured, link, packet_log] =
        ["measured", "link", "packets"].map(|f| directory.path().join(f));
    let farwire = env!("CARGO_BIN_EXE_farwire");
    let mut command = Command::new(farwire);
    command.args("exec --delay 20ms --rate 50mbit --loss 1%".split(' '));
    command.args(["--seed", &seed.to_string()]);
    command.arg("--json").arg(&link);
    command.arg("--packet-log").arg(&packet_log);
    command.args(["--", farwire, "measure"]);
    command.args(arguments.split_whitespace());
    command.args(["--quiet", "--json"]).arg(&measured);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments}, seed {seed}: {said}");
    let read = |file| -> Result<Value> {
        serde_json::from_str(&fs::read_to_string(file)?).context("what the run wrote")
    };
    Ok(Run {
        measured: read(&measured)?,
        link: read(&link)?,
        packet_log: fs::read_to_string(&packet_log)?,
    })
}

impl Run {
    /// A figure over all streams: its value.
    pub(crate) fn value(
        &self,
        metric: &str,
        statistic: &str,
        direction: Option<&str>,
    ) -> Result<f64> {
        let figure = self.find(metric, statistic, direction)?;
        figure["value"].as_f64().context("a number")
    }

    /// A figure over all streams: its value and interval.
    pub(crate) fn figure(
        &self,
        metric: &str,
        statistic: &str,
        direction: Option<&str>,
    ) -> Result<(f64, [f64; 2])> {
        let figure = self.find(metric, statistic, direction)?;
        let what = || format!("an interval: {figure}");
        let interval = |end: usize| figure["interval"][end].as_f64().with_context(what);
        let value = figure["value"].as_f64().context("a number")?;
        Ok((value, [interval(0)?, interval(1)?]))
    }

    fn find(&self, metric: &str, statistic: &str, direction: Option<&str>) -> Result<&Value> {
        let figures = self.measured["figures"].as_array().context("figures")?;
        let found = figures.iter().find(|figure| {
            figure["metric"] == metric
                && figure["statistic"] == statistic
                && figure["direction"].as_str() == direction
                && figure["stream"].is_null()
        });
        found.with_context(|| format!("{metric} {statistic} {direction:?}: {figures:?}"))
    }

    /// How many packets of this length, L2 without FCS, the emulator delivered in a direction.
    pub(crate) fn delivered_of_length(&self, direction: &str, length: f64) -> Result<usize> {
        Ok(Delivered::read(&self.packet_log, direction)?.of_length(length))
    }

    /// The rate that the emulator delivered in a direction during the second of a capacity test that had the most.
    pub(crate) fn rate_of_best_second(&self, direction: &str) -> Result<f64> {
        let samples = self.measured["samples"].as_array().context("samples")?;
        let of = |metric: &str| {
            let samples = samples.iter().filter(|sample| sample["metric"] == metric);
            let values = samples.map(|s| Some((s["index"].as_u64()?, s["value"].as_f64()?)));
            values
                .collect::<Option<BTreeMap<_, _>>>()
                .context("numbers")
        };
        let rates = of("ip_capacity_bit_per_s")?;
        let best = rates.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let (index, _) = best.context("a whole second")?;
        let place = |metric| of(metric)?.get(index).copied().context("its place");
        let (end, length) = (place("ended_s")?, place("elapsed_s")?);
        Ok(Delivered::read(&self.packet_log, direction)?.rate(end, length))
    }

    /// What the emulator counted in a direction ("up", "down").
    pub(crate) fn counted(&self, direction: &str, key: &str) -> f64 {
        self.link[direction][key].as_f64().unwrap_or(f64::NAN)
    }

    /// What the emulated network dropped in a direction for this cause.
    pub(crate) fn dropped(&self, direction: &str, cause: &str) -> f64 {
        self.link[direction]["dropped"][cause]
            .as_f64()
            .unwrap_or(f64::NAN)
    }

    /// How much later than due packets left, in the median.
    pub(crate) fn lateness_ms(&self) -> f64 {
        self.link["departure_error"]["p50_ns"]
            .as_f64()
            .unwrap_or(f64::NAN)
            / 1e6
    }

    /// One way through the link for a frame of so many bytes, L2 without FCS.
    pub(crate) fn one_way_ms(&self, frame: f64) -> f64 {
        DELAY_MS + frame * 8.0 / RATE * 1e3 + self.lateness_ms()
    }

    /// The mean length of the frames that were offered in a direction.
    pub(crate) fn mean_frame(&self, direction: &str) -> f64 {
        self.counted(direction, "bytes") / self.counted(direction, "packets")
    }

    /// What the emulated network dropped of what was offered, in percent.
    pub(crate) fn lost_percent(&self, direction: &str) -> f64 {
        let dropped = self.dropped(direction, "loss") + self.dropped(direction, "queue_full");
        100.0 * dropped / self.counted(direction, "packets")
    }

    /// TCP payload that was delivered, by its packets' lengths: IPv4 with timestamps.
    pub(crate) fn tcp_payload_bytes(&self, direction: &str) -> f64 {
        const HEADERS: f64 = 14.0 + 20.0 + 32.0;
        self.counted(direction, "delivered_bytes") - HEADERS * self.counted(direction, "delivered")
    }
}
