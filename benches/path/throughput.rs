//! One TCP stream through each rival in turn.

use anyhow::Result;

use crate::rivals::{Outcome, Over, Rival, WINDOW, rattan_path};
use crate::spread::Spread;

const ROUNDS: usize = 5;
const SECONDS: u32 = 4;

pub(crate) fn run() -> Result<()> {
    let mut rivals = Rival::ALL.to_vec();
    if rattan_path().is_none() {
        println!("rattan is left out: it is not installed (cargo install rattan --version 0.1.1)");
        rivals.retain(|r| *r != Rival::Rattan);
    }
    println!(
        "TCP, one stream, cubic, MTU 1500, default offloads, buffers up to {} MiB; {ROUNDS} interleaved rounds of {SECONDS} s: median (least to most)",
        WINDOW.0 >> 20
    );
    compare(&rivals, Over::Plain)?;
    println!("\nthe same in a VXLAN tunnel whose trains reach the middle whole");
    compare(&[Rival::Bridge, Rival::Farwire], Over::Vxlan)
}

fn compare(rivals: &[Rival], over: Over) -> Result<()> {
    let round = |_| rivals.iter().map(|r| r.measure(over, SECONDS)).collect();
    let rounds: Vec<Vec<Outcome>> = (0..ROUNDS).map(round).collect::<Result<_>>()?;
    let goodput = |i: usize| {
        rounds
            .iter()
            .map(move |round: &Vec<Outcome>| round[i].goodput)
    };
    for (i, rival) in rivals.iter().enumerate() {
        let spread = Spread::of(goodput(i).map(|bits| bits / 1e9));
        println!("{:<28} {spread} Gb/s goodput", rival.name());
        let median = rounds
            .iter()
            .find(|round| (round[i].goodput / 1e9).total_cmp(&spread.median).is_eq());
        println!("    {}", median.map_or("", |round| round[i].limit.as_str()));
    }
    let own = rivals
        .iter()
        .position(|r| *r == Rival::Farwire)
        .unwrap_or(0);
    for (i, rival) in rivals.iter().enumerate().filter(|(i, _)| *i != own) {
        let ratios = Spread::of(goodput(own).zip(goodput(i)).map(|(a, b)| a / b));
        println!("farwire / {:<28} {ratios}", rival.name());
    }
    Ok(())
}
