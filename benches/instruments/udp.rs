//! The highest rate of datagrams of 1,448 bytes of which no more than one in 10,000 is lost, for 5 s.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::pair::{Pair, SERVER, farwire, figure};
use crate::spread::Spread;
use crate::tcp::value;

const ROUNDS: usize = 5;
const SECONDS: u32 = 5;
const SHORT: u32 = 1;
const MOST_LOST_PERCENT: f64 = 0.01;
/// From one rate that is tried to the next, as factors: up while it holds, then down until it holds.
const CLIMB: f64 = 1.3;
const DESCENT: f64 = 1.08;

/// The most that a socket's buffer may be set to by any program, in bytes: iperf3 ends when it is given less than it asked for.
fn window() -> Result<u64> {
    let most = |name| -> Result<u64> {
        Ok(fs::read_to_string(format!("/proc/sys/net/core/{name}"))?
            .trim()
            .parse()?)
    };
    Ok(most("rmem_max")?.min(most("wmem_max")?))
}

/// What a run received, and what part was lost.
struct Outcome {
    bit_per_s: f64,
    lost_percent: f64,
}

/// A meter and the rates to try, in bit/s.
struct Rival {
    name: &'static str,
    lowest: f64,
    run: fn(&Pair, f64, u32) -> Result<Outcome>,
    server: fn(&Pair) -> Result<crate::pair::Running>,
}

const RIVALS: [Rival; 4] = [
    Rival {
        name: "farwire",
        lowest: 2e9,
        run: with_farwire,
        server: Pair::serve_farwire,
    },
    Rival {
        name: "iperf3",
        lowest: 2e8,
        run: with_iperf3,
        server: |pair| pair.serve("iperf3 -s"),
    },
    Rival {
        name: "iperf 2",
        lowest: 2e8,
        run: with_iperf,
        server: |pair| pair.serve(&format!("iperf -s -u -w {}", window()?)),
    },
    Rival {
        name: "nuttcp",
        lowest: 2e8,
        run: with_nuttcp,
        server: |pair| pair.serve("nuttcp -S --nofork"),
    },
];

pub(crate) fn run() -> Result<()> {
    println!(
        "UDP, datagrams of 1448 bytes, at most {MOST_LOST_PERCENT} % lost, one veth pair; {ROUNDS} interleaved rounds, the highest rate that held {SECONDS} s: median (least to most) of the goodput received. The rivals are given buffers of {} bytes, the most that this system allows a program to ask for",
        window()?
    );
    let round = |_| RIVALS.iter().map(Rival::highest).collect();
    let rounds: Vec<Vec<f64>> = (0..ROUNDS).map(round).collect::<Result<_>>()?;
    for (i, rival) in RIVALS.iter().enumerate() {
        let spread = Spread::of(rounds.iter().map(|round| round[i] / 1e9));
        println!("{:<34} {spread} Gbit/s", rival.name);
    }
    let best = |round: &Vec<f64>| round[1..].iter().copied().fold(0.0, f64::max);
    let ratios = rounds.iter().map(|round| round[0] / best(round));
    println!(
        "farwire / the best of the three in each round: {}",
        Spread::of(ratios)
    );
    Ok(())
}

impl Rival {
    /// Climbs in short runs until one loses too much, then comes down until a whole one holds.
    fn highest(&self) -> Result<f64> {
        let pair = Pair::build()?;
        // A server each: the second client of one iperf 2 server is lost now and then.
        let attempt = |rate, seconds| {
            let _server = (self.server)(&pair)?;
            (self.run)(&pair, rate, seconds)
        };
        let mut rate = self.lowest;
        loop {
            let outcome = attempt(rate, SHORT)?;
            // A sender that cannot go faster holds at any rate.
            if outcome.lost_percent > MOST_LOST_PERCENT || outcome.bit_per_s < rate * 0.9 {
                break;
            }
            rate *= CLIMB;
        }
        loop {
            let outcome = attempt(rate, SECONDS)?;
            if outcome.lost_percent <= MOST_LOST_PERCENT {
                return Ok(outcome.bit_per_s);
            }
            rate /= DESCENT;
        }
    }
}

fn with_farwire(pair: &Pair, rate: f64, seconds: u32) -> Result<Outcome> {
    let measured = pair.json(&farwire(&format!(
        "measure udp {SERVER} -b {rate:.0} -l 1448 -t {seconds} --quiet --json -"
    )))?;
    Ok(Outcome {
        bit_per_s: figure(&measured, "goodput_bit_per_s", "mean")?,
        lost_percent: figure(&measured, "lost_percent", "mean")?,
    })
}

fn with_iperf3(pair: &Pair, rate: f64, seconds: u32) -> Result<Outcome> {
    let measured = pair.json(&format!(
        "iperf3 -c {SERVER} -u -b {rate:.0} -l 1448 -t {seconds} -w {} -J",
        window()?
    ))?;
    let sum = &measured["end"]["sum"];
    let number = |value: &Value| value.as_f64().context("iperf3 said no sum");
    let lost_percent = number(&sum["lost_percent"])?;
    let received = number(&sum["packets"])? * (1.0 - lost_percent / 100.0);
    Ok(Outcome {
        bit_per_s: received * 1448.0 * 8.0 / number(&sum["seconds"])?,
        lost_percent,
    })
}

/// The server's report is the line with the lost and all datagrams: "... 0.005 ms 0/43164 (0%)".
fn with_iperf(pair: &Pair, rate: f64, seconds: u32) -> Result<Outcome> {
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
        Some(Outcome {
            bit_per_s: (sent - lost) * 1448.0 * 8.0 / seconds,
            lost_percent: 100.0 * lost / sent,
        })
    };
    reported().with_context(|| text.clone())
}

fn with_nuttcp(pair: &Pair, rate: f64, seconds: u32) -> Result<Outcome> {
    let text = pair.run(&format!(
        "nuttcp -u -l1448 -w{} -R{:.0}k -T{seconds} -fparse {SERVER}",
        window()? / 1024,
        rate / 1e3
    ))?;
    Ok(Outcome {
        bit_per_s: value(&text, "rate_Mbps")? * 1e6,
        lost_percent: value(&text, "data_loss")?,
    })
}
