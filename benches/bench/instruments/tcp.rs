//! One TCP stream, as fast as possible.

use anyhow::{Context, Result};

use crate::instruments::pair::{Pair, SERVER, farwire, figure};
use crate::processes::of_children;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const SECONDS: u32 = 4;

/// The name of a meter, and the function that returns its result in bit/s.
type Rival = (&'static str, fn(&Pair) -> Result<f64>);

const RIVALS: [Rival; 5] = [
    ("farwire", |pair| with_farwire(pair, "")),
    ("farwire --rx-copy", |pair| with_farwire(pair, "--rx-copy")),
    ("iperf3", with_iperf3),
    ("iperf 2", with_iperf),
    ("nuttcp", with_nuttcp),
];

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "TCP, one stream, buffers up to 128 MiB, MTU 1500, one veth pair, {SECONDS} s: goodput at the receiver; cubic, except nuttcp, which uses the \
             kernel's default. Processor seconds are those of client and server. \
             farwire's receiver lets the kernel discard the bytes, unlike its peers; with --rx-copy it copies them"
        ),
    );
    let found = Found {
        names: RIVALS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rounds: shuffled(rounds, &RIVALS, |(_, measure)| one(*measure))?,
    };
    let quantity = Quantity::more("TCP, one stream", "Gbit/s");
    for own in 0..2 {
        let what = match own {
            0 => quantity.clone(),
            _ => Quantity::more("TCP, one stream, --rx-copy", "Gbit/s"),
        };
        let peers = (2..RIVALS.len()).filter_map(|at| found.row(&what, own, at, RIVALS[at].0));
        outcome.rows(peers);
        outcome.rows(found.beside_best(&what, own, &[2, 3, 4]));
    }
    Ok(outcome)
}

fn one(measure: fn(&Pair) -> Result<f64>) -> Result<Sample> {
    let pair = Pair::build()?;
    let before = of_children()?;
    let bit_per_s = measure(&pair)?;
    let gigabytes = bit_per_s * f64::from(SECONDS) / 8e9;
    Ok(Sample {
        value: bit_per_s / 1e9,
        cpu: Some((of_children()? - before) / gigabytes),
    })
}

fn with_farwire(pair: &Pair, options: &str) -> Result<f64> {
    let _server = pair.serve(&farwire("serve --congestion cubic"))?;
    let measured = pair.json(&farwire(&format!(
        "measure tcp {SERVER} -t {SECONDS} -C cubic {options} --quiet --json -"
    )))?;
    figure(&measured, "goodput_bit_per_s", "mean")
}

fn with_iperf3(pair: &Pair) -> Result<f64> {
    let _server = pair.serve("iperf3 -s")?;
    let measured = pair.json(&format!("iperf3 -c {SERVER} -t {SECONDS} -C cubic -J"))?;
    measured["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 said no rate")
}

/// Measures with iperf 2, whose enhanced reports contain the server's count; its CSV has the client's.
fn with_iperf(pair: &Pair) -> Result<f64> {
    let _server = pair.serve("iperf -s")?;
    let text = pair.run(&format!("iperf -c {SERVER} -t {SECONDS} -Z cubic -y C"))?;
    let last = text.lines().last().context("iperf said nothing")?;
    let rate = last.rsplit(',').next().with_context(|| text.clone())?;
    Ok(rate.parse()?)
}

fn with_nuttcp(pair: &Pair) -> Result<f64> {
    let _server = pair.serve("nuttcp -S --nofork")?;
    let text = pair.run(&format!("nuttcp -T{SECONDS} -fparse {SERVER}"))?;
    Ok(value(&text, "rate_Mbps")? * 1e6)
}

/// Returns the value of `key` in the output of nuttcp -fparse.
pub(crate) fn value(text: &str, key: &str) -> Result<f64> {
    let mut words = text.split_whitespace();
    let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Ok(found.with_context(|| text.to_owned())?.parse()?)
}
