//! One TCP stream, as fast as it goes.

use anyhow::{Context, Result};

use crate::pair::{Pair, SERVER, farwire, figure};
use crate::spread::Spread;

const ROUNDS: usize = 5;
const SECONDS: u32 = 4;

/// A meter and what it says, in bit/s.
type Rival = (&'static str, fn() -> Result<f64>);

const RIVALS: [Rival; 4] = [
    ("farwire", with_farwire),
    ("iperf3", with_iperf3),
    ("iperf 2", with_iperf),
    ("nuttcp, with what the kernel has", with_nuttcp),
];

pub(crate) fn run() -> Result<()> {
    println!(
        "TCP, one stream, cubic, buffers up to 128 MiB, MTU 1500, one veth pair; {ROUNDS} interleaved rounds of {SECONDS} s: median (least to most) of the goodput at the receiver"
    );
    let round = |_| RIVALS.iter().map(|(_, measure)| measure()).collect();
    let rounds: Vec<Vec<f64>> = (0..ROUNDS).map(round).collect::<Result<_>>()?;
    for (i, (name, _)) in RIVALS.iter().enumerate() {
        let spread = Spread::of(rounds.iter().map(|round| round[i] / 1e9));
        println!("{name:<34} {spread} Gbit/s");
    }
    let ratios = rounds.iter().map(|round| round[0] / round[1].max(round[2]));
    println!(
        "farwire / the better of iperf3 and iperf 2 in each round: {}",
        Spread::of(ratios)
    );
    Ok(())
}

fn with_farwire() -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve_farwire()?;
    let measured = pair.json(&farwire(&format!(
        "measure tcp {SERVER} -t {SECONDS} -C cubic --quiet --json -"
    )))?;
    figure(&measured, "goodput_bit_per_s", "mean")
}

fn with_iperf3() -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve("iperf3 -s")?;
    let measured = pair.json(&format!("iperf3 -c {SERVER} -t {SECONDS} -C cubic -J"))?;
    measured["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 said no rate")
}

/// iperf 2 reports what the server counted when the client asks for enhanced reports; its CSV is the client's.
fn with_iperf() -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve("iperf -s")?;
    let text = pair.run(&format!("iperf -c {SERVER} -t {SECONDS} -Z cubic -y C"))?;
    let last = text.lines().last().context("iperf said nothing")?;
    Ok(last
        .rsplit(',')
        .next()
        .with_context(|| text.clone())?
        .parse()?)
}

fn with_nuttcp() -> Result<f64> {
    let pair = Pair::build()?;
    let _server = pair.serve("nuttcp -S --nofork")?;
    let text = pair.run(&format!("nuttcp -T{SECONDS} -fparse {SERVER}"))?;
    let rate: f64 = value(&text, "rate_Mbps")?;
    Ok(rate * 1e6)
}

/// The value of `key` in what nuttcp -fparse prints.
pub(crate) fn value(text: &str, key: &str) -> Result<f64> {
    let mut words = text.split_whitespace();
    let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Ok(found.with_context(|| text.to_owned())?.parse()?)
}
