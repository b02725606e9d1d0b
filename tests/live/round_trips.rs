//! Round trips that a watched link observes.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::api::Exec;

/// The sum of both delays of the link.
const LEAST_MS: f64 = 40.0;

#[test_support::test(Namespaces, Tool("ping"), Tool("wget"))]
fn round_trips_of_pings_and_of_tcp_are_seen_at_either_side_none_shorter_than_the_links_delays()
-> Result<()> {
    let mut exec = Exec::start("--delay 20ms")?;
    let mut samples = Samples::of(&exec)?;
    let first = samples.next()?;
    ensure!(
        first["round_trips"]["a"].is_null() && first["round_trips"]["b"].is_null(),
        "nothing was sent: {first}"
    );
    let pinged = exec.shell("ping -q -n -c 5 -i 0.1 $FARWIRE_SERVER > /dev/null; echo $?")?;
    ensure!(pinged == "0", "the link lost pings");
    let [pings, none] = samples.sides_until(|[a, _]| a.count > 0)?;
    ensure!(none.count == 0, "the far end has asked for nothing");
    let fetched = exec.shell("wget -qO /dev/null http://$FARWIRE_SERVER/bytes/100000; echo $?")?;
    ensure!(fetched == "0", "no answer to a request");
    let [requests, data] = samples.sides_until(|[a, b]| a.count > 0 && b.count > 0)?;
    for seen in [&pings, &requests, &data] {
        ensure!(seen.least_ms >= LEAST_MS, "{seen:?}");
    }

    let metrics = exec.get("/metrics?link=*")?.text;
    let metric = |name: &str, labels: &str| -> Result<f64> {
        let sample = format!("farwire_round_trip_seconds_{name}{{{labels}}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        Ok(value.with_context(|| metrics.clone())?.parse()?)
    };
    for (side, least) in [("a", pings.count + requests.count), ("b", data.count)] {
        let count = metric("count", &format!("link=\"link\",side=\"{side}\""))?;
        ensure!(count >= least as f64, "{side}: {count} of {least}");
        let sum = metric("sum", &format!("link=\"link\",side=\"{side}\""))?;
        ensure!(
            sum * 1e3 >= count * LEAST_MS,
            "{side}: {count} took {sum} s"
        );
        let labels = format!("le=\"0.02\",link=\"link\",side=\"{side}\"");
        let short = metric("bucket", &labels)?;
        ensure!(short == 0.0, "{side}: {short} within half of the least");
    }
    exec.end()
}

/// The round trips that one side has observed.
#[derive(Debug)]
struct Seen {
    count: u64,
    /// The smallest mean of a sample.
    least_ms: f64,
}

/// The samples of a link's events.
struct Samples(Lines<BufReader<TcpStream>>);

impl Samples {
    fn of(exec: &Exec) -> Result<Self> {
        let mut watcher = exec.connect()?;
        let host = exec.at;
        write!(
            watcher,
            "GET /v1/links/link/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
        )?;
        Ok(Self(BufReader::new(watcher).lines()))
    }

    fn next(&mut self) -> Result<Value> {
        loop {
            let line = self.0.next().context("the events ended")??;
            if line == "event: sample" {
                let data = self.0.next().context("no data")??;
                return Ok(serde_json::from_str(data.trim_start_matches("data: "))?);
            }
        }
    }

    /// Reads samples until enough was observed at sides a and b.
    fn sides_until(&mut self, is_enough: impl Fn(&[Seen; 2]) -> bool) -> Result<[Seen; 2]> {
        let mut sides = [0, 1].map(|_| Seen {
            count: 0,
            least_ms: f64::INFINITY,
        });
        while !is_enough(&sides) {
            let sample = self.next()?;
            for (side, seen) in ["a", "b"].into_iter().zip(&mut sides) {
                let of = &sample["round_trips"][side];
                let Some(count) = of["count"].as_u64() else {
                    ensure!(of.is_null(), "{sample}");
                    continue;
                };
                let mean_ms = of["mean_ms"].as_f64().context("no mean")?;
                ensure!(count > 0, "{sample}");
                seen.count += count;
                seen.least_ms = seen.least_ms.min(mean_ms);
            }
        }
        Ok(sides)
    }
}
