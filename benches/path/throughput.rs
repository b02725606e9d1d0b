//! One TCP stream through each rival in turn.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::rivals::{Carried, Load, Over, Rival, WINDOW, base_path, rattan_path};
use crate::rounds::{in_any_order, rounds};
use crate::spread::Spread;

const SECONDS: u32 = 4;
/// Rounds in which conditions that do nothing are held against none.
const PAIRS: usize = 9;

pub(crate) fn run() -> Result<()> {
    let rounds = rounds(5)?;
    let mut rivals = vec![Rival::Bridge, Rival::Farwire];
    rivals.extend(base_path().map(Rival::Base));
    println!(
        "TCP, one stream, cubic, MTU 1500, default offloads, buffers up to {} MiB; {rounds} interleaved rounds of {SECONDS} s: median (least to most)",
        WINDOW.0 >> 20
    );
    let mut plain = rivals.clone();
    if rattan_path().is_some() {
        plain.push(Rival::Rattan);
    } else {
        println!("rattan is left out: it is not installed (cargo install rattan --version 0.1.1)");
    }
    compare(&plain, Over::Plain, rounds)?;
    println!("\nthe same in a VXLAN tunnel whose trains reach the middle whole");
    compare(&rivals, Over::Vxlan, rounds)?;
    println!("\nconditions that do nothing; {PAIRS} interleaved pairs");
    compare(&[Rival::Farwire, Rival::Idle], Over::Plain, PAIRS)
}

fn compare(rivals: &[Rival], over: Over, rounds: usize) -> Result<()> {
    let rounds: Vec<Vec<Outcome>> = (0..rounds)
        .map(|_| round(rivals, over))
        .collect::<Result<_>>()?;
    let goodput = |i: usize| {
        rounds
            .iter()
            .map(move |round: &Vec<Outcome>| round[i].goodput)
    };
    for (i, rival) in rivals.iter().enumerate() {
        let spread = Spread::of(goodput(i).map(|bits| bits / 1e9));
        println!("{:<30} {spread} Gb/s goodput", rival.name());
        let median = rounds
            .iter()
            .find(|round| (round[i].goodput / 1e9).total_cmp(&spread.median).is_eq());
        println!("    {}", median.map_or("", |round| round[i].limit.as_str()));
        let cpu: Vec<f64> = rounds
            .iter()
            .filter_map(|round| round[i].cpu_a_gb)
            .collect();
        if !cpu.is_empty() {
            println!(
                "    processor seconds a GB: {}",
                Spread::of(cpu.into_iter())
            );
        }
    }
    let own = rivals
        .iter()
        .position(|r| *r == Rival::Farwire)
        .unwrap_or(0);
    for (i, rival) in rivals.iter().enumerate().filter(|(i, _)| *i != own) {
        let ratios = Spread::of(goodput(own).zip(goodput(i)).map(|(a, b)| a / b));
        println!("farwire / {:<30} {ratios}", rival.name());
        let cpu = |round: &Vec<Outcome>| Some(round[own].cpu_a_gb? / round[i].cpu_a_gb?);
        let ratios: Vec<f64> = rounds.iter().filter_map(cpu).collect();
        if !ratios.is_empty() {
            let ratios = Spread::of(ratios.into_iter());
            println!("    processor seconds a GB, farwire / it: {ratios}");
        }
        let best = goodput(i).fold(0.0, f64::max);
        let undisturbed = goodput(own)
            .zip(goodput(i))
            .filter(|(_, it)| *it >= 0.8 * best);
        let ratios: Vec<f64> = undisturbed.map(|(own, it)| own / it).collect();
        println!(
            "    in the {} rounds in which it came to 0.8 of its best: {}",
            ratios.len(),
            Spread::of(ratios.into_iter())
        );
    }
    Ok(())
}

fn round(rivals: &[Rival], over: Over) -> Result<Vec<Outcome>> {
    in_any_order(rivals, |rival| {
        let load = Load {
            server: "exec iperf3 -s -1".to_owned(),
            client: format!("iperf3 -c $TARGET -t {SECONDS} -C cubic -J"),
        };
        Outcome::of(&rival.carry(over, &load)?)
    })
}

/// What one run of iperf3 said, and what else was seen of it.
#[derive(Clone, Debug)]
struct Outcome {
    /// Received payload, bits a second.
    goodput: f64,
    /// Processor seconds of the emulator's busiest thread for each gigabyte received.
    cpu_a_gb: Option<f64>,
    /// What kept it from being more.
    limit: String,
}

impl Outcome {
    fn of(carried: &Carried) -> Result<Self> {
        if let Some(error) = carried.said["error"].as_str() {
            bail!("iperf3: {error}");
        }
        let number = |path| {
            carried
                .said
                .pointer(path)
                .and_then(Value::as_f64)
                .unwrap_or(0.0)
        };
        let goodput = number("/end/sum_received/bits_per_second");
        let sender = number("/end/cpu_utilization_percent/host_total");
        let receiver = number("/end/cpu_utilization_percent/remote_total");
        let window = number("/end/streams/0/sender/max_snd_cwnd") * 8.0;
        let rtt_s = number("/end/streams/0/sender/mean_rtt") / 1e6;
        let retransmits = number("/end/sum_sent/retransmits");
        let mut parts = vec![format!(
            "CPU: sender {sender:.0} %, receiver {receiver:.0} %"
        )];
        if let Some((name, seconds)) = &carried.cpu {
            let percent = 100.0 * seconds / f64::from(SECONDS);
            parts.push(format!("thread {name} {percent:.0} %"));
        }
        if rtt_s > 0.0 {
            parts.push(format!(
                "largest window {:.1} MB allows {:.1} Gb/s at {:.2} ms",
                window / 8e6,
                window / rtt_s / 1e9,
                rtt_s * 1e3
            ));
        }
        parts.push(format!("{retransmits:.0} retransmissions"));
        let lost = carried.own_loss();
        if lost > 0 {
            parts.push(format!("{lost} frames lost by the emulator"));
        }
        let gigabytes = number("/end/sum_received/bytes") / 1e9;
        Ok(Self {
            goodput,
            cpu_a_gb: carried.cpu.as_ref().map(|(_, seconds)| seconds / gigabytes),
            limit: parts.join(", "),
        })
    }
}
