//! The highest rate of datagrams of 1,448 bytes at which nearly none is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instruments::pair::{Pair, SERVER, farwire, figure};
use crate::instruments::tcp::value;
use crate::processes::Running;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};
use crate::search::{Attempt, LONG, MOST_LOST_PERCENT, highest};

/// Returns the largest buffer that any program may set for a socket, in bytes: iperf3 ends if it gets less than it asked for.
fn window() -> Result<u64> {
    let most = |name| -> Result<u64> {
        Ok(fs::read_to_string(format!("/proc/sys/net/core/{name}"))?
            .trim()
            .parse()?)
    };
    Ok(most("rmem_max")?.min(most("wmem_max")?))
}

/// A meter, and the first rate of its search, in bit/s.
struct Rival {
    name: &'static str,
    first: f64,
    run: fn(&Pair, f64, u32) -> Result<Attempt>,
    server: fn(&Pair) -> Result<Running>,
}

const RIVALS: [Rival; 5] = [
    Rival {
        name: "farwire",
        first: 8e9,
        run: |pair, rate, seconds| with_farwire(pair, rate, seconds, ""),
        server: Pair::serve_farwire,
    },
    Rival {
        name: "farwire --no-gso",
        first: 2e9,
        run: |pair, rate, seconds| with_farwire(pair, rate, seconds, "--no-gso"),
        server: Pair::serve_farwire,
    },
    Rival {
        name: "iperf3",
        first: 1e9,
        run: with_iperf3,
        server: |pair| pair.serve("iperf3 -s"),
    },
    Rival {
        name: "iperf 2",
        first: 1e9,
        run: with_iperf,
        server: |pair| pair.serve(&format!("iperf -s -u -w {}", window()?)),
    },
    Rival {
        name: "nuttcp",
        first: 1e9,
        run: with_nuttcp,
        server: |pair| pair.serve("nuttcp -S --nofork"),
    },
];

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(3)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "UDP, datagrams of 1,448 bytes, one veth pair: the highest rate at which no more than {MOST_LOST_PERCENT} % are lost for {LONG} s, in the better of two runs, as received. \
             The peers get buffers of {} bytes, the most that this system allows a program to ask for. farwire's datagrams travel as trains (UDP GSO), \
             unlike its peers'; with --no-gso each travels alone",
            window()?
        ),
    );
    let starts = RefCell::new(BTreeMap::new());
    let found = Found {
        names: RIVALS.iter().map(|rival| rival.name.to_owned()).collect(),
        rounds: shuffled(rounds, &RIVALS, |rival| {
            let start = starts.borrow().get(rival.name).copied();
            let rate = rival.highest(start.unwrap_or(rival.first))?;
            starts.borrow_mut().insert(rival.name, rate);
            Ok(Sample::from(rate / 1e9))
        })?,
    };
    let quantity = Quantity::more("UDP, 1,448 bytes", "Gbit/s");
    for (own, name) in found.names.iter().enumerate().take(2) {
        let what = match own {
            0 => quantity.clone(),
            _ => Quantity::more(&format!("UDP, 1,448 bytes, {name}"), "Gbit/s"),
        };
        let peers = (2..RIVALS.len()).filter_map(|at| found.row(&what, own, at, RIVALS[at].name));
        outcome.rows(peers);
        outcome.rows(found.beside_best(&what, own, &[2, 3, 4]));
    }
    Ok(outcome)
}

impl Rival {
    fn highest(&self, start: f64) -> Result<f64> {
        let pair = Pair::build()?;
        // Start a new server each time, because an iperf 2 server sometimes loses its second client.
        highest(start, |rate, seconds| {
            let _server = (self.server)(&pair)?;
            (self.run)(&pair, rate, seconds)
        })
    }
}

fn with_farwire(pair: &Pair, rate: f64, seconds: u32, options: &str) -> Result<Attempt> {
    let measured = pair.json(&farwire(&format!(
        "measure udp {SERVER} -b {rate:.0} -l 1448 -t {seconds} {options} --quiet --json -"
    )))?;
    Ok(Attempt {
        received: figure(&measured, "goodput_bit_per_s", "mean")?,
        lost_percent: figure(&measured, "lost_percent", "mean")?,
    })
}

fn with_iperf3(pair: &Pair, rate: f64, seconds: u32) -> Result<Attempt> {
    let measured = pair.json(&format!(
        "iperf3 -c {SERVER} -u -b {rate:.0} -l 1448 -t {seconds} -w {} -J",
        window()?
    ))?;
    let sum = &measured["end"]["sum"];
    let number = |value: &Value| value.as_f64().context("iperf3 said no sum");
    let lost_percent = number(&sum["lost_percent"])?;
    let received = number(&sum["packets"])? * (1.0 - lost_percent / 100.0);
    Ok(Attempt {
        received: received * 1448.0 * 8.0 / number(&sum["seconds"])?,
        lost_percent,
    })
}

/// Measures with iperf 2. The server's report is the line with the lost and all datagrams: "... 0.005 ms 0/43164 (0%)".
fn with_iperf(pair: &Pair, rate: f64, seconds: u32) -> Result<Attempt> {
    let text = pair.run(&format!(
        "iperf -c {SERVER} -u -b {rate:.0} -l 1448 -t {seconds} -w {} -f b",
        window()?
    ))?;
    let reported = || {
        let report = text.lines().rev().find(|line| line.contains(" ms "))?;
        let seconds: f64 = report
            .split_once('-')?
            .1
            .split_once(" sec")?
            .0
            .parse()
            .ok()?;
        let (lost, sent) = report.rsplit_once(" ms ")?.1.trim().split_once('/')?;
        let lost: f64 = lost.trim().parse().ok()?;
        let sent: f64 = sent.split_once(' ')?.0.parse().ok()?;
        Some(Attempt {
            received: (sent - lost) * 1448.0 * 8.0 / seconds,
            lost_percent: 100.0 * lost / sent,
        })
    };
    reported().with_context(|| text.clone())
}

fn with_nuttcp(pair: &Pair, rate: f64, seconds: u32) -> Result<Attempt> {
    let text = pair.run(&format!(
        "nuttcp -u -l1448 -w{} -R{:.0}k -T{seconds} -fparse {SERVER}",
        window()? / 1024,
        rate / 1e3
    ))?;
    Ok(Attempt {
        received: value(&text, "rate_Mbps")? * 1e6,
        lost_percent: value(&text, "data_loss")?,
    })
}
