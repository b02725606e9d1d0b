//! Lines of less than a modem's rate, whose default queue holds 20 packets.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::effects::Run;
use test_support::FAR_ENDS;
use test_support::measured::figure;
use test_support::process::has;

const NOTE: &str = "100ms is less than 20 full packets, so the queue holds 20 packets";

/// Runs a measurement behind a link of this rate, and returns the measurement, and the link's own counts.
fn measured(rate: &str, line: &str) -> Result<(Value, Run)> {
    let script = format!("$farwire measure {line} --quiet --json -");
    let run = Run::of(&format!("rate = '{rate}'"), &script)?;
    // Notes on standard error follow the measurement.
    let mut values = serde_json::Deserializer::from_str(&run.said).into_iter::<Value>();
    let measured = values.next().context("a measurement")?;
    Ok((measured.with_context(|| run.said.clone())?, run))
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn a_download_over_56_kbit_per_s_loses_hardly_anything(address: &str) -> Result<()> {
    let url = if address.contains(':') {
        format!("http://[{address}]/bytes/60000")
    } else {
        format!("http://{address}/bytes/60000")
    };
    let (measured, run) = measured("56kbit", &format!("http {url}"))?;
    ensure!(measured["failure"].is_null(), "{measured}");
    has(&run.said, NOTE)?;
    let down = run.summary.down;
    // A queue of 100 ms dropped 31 % of the packets.
    ensure!(down.queue_full() * 10 <= down.packets, "{down:?}");
    Ok(())
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn pings_over_300_bit_per_s_come_back_in_time(address: &str) -> Result<()> {
    // 98 bytes take 2.61 s in each direction, and 118 bytes over IPv6 take 3.15 s.
    let least_ms = if address.contains(':') {
        6_293.0
    } else {
        5_226.0
    };
    let (measured, run) = measured("300bit", &format!("ping {address} -c 2 -i 7s"))?;
    has(&run.said, NOTE)?;
    let rtt_ms = figure(&measured, "rtt_ms", "median").context("a median")?;
    ensure!((least_ms..least_ms + 1_000.0).contains(&rtt_ms), "{rtt_ms}");
    ensure!(
        figure(&measured, "lost_percent", "mean") == Some(0.0),
        "{measured}"
    );
    Ok(())
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn tcp_connects_and_transfers_over_9600_bit_per_s(address: &str) -> Result<()> {
    let line = format!("transfer {address} --bytes 3000b --runs 1");
    let (measured, run) = measured("9600bit", &line)?;
    has(&run.said, NOTE)?;
    ensure!(measured["failure"].is_null(), "{measured}");
    let up = run.summary.up;
    ensure!(up.dropped.values().sum::<u64>() == 0, "{up:?}");
    Ok(())
}
