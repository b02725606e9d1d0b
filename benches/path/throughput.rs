//! One TCP stream through each rival in turn.

use anyhow::{Context, Result};

use crate::rivals::{Outcome, Over, Rival, WINDOW, base_path, rattan_path};
use crate::spread::Spread;

const SECONDS: u32 = 4;
/// Rounds in which conditions that do nothing are held against none.
const PAIRS: usize = 9;

pub(crate) fn run() -> Result<()> {
    let rounds = rounds()?;
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

/// Five, or as many as FARWIRE_ROUNDS says.
fn rounds() -> Result<usize> {
    let Ok(rounds) = std::env::var("FARWIRE_ROUNDS") else {
        return Ok(5);
    };
    let number = rounds.parse().ok().filter(|&number| number > 0);
    number.with_context(|| format!("FARWIRE_ROUNDS={rounds} is not a number of rounds, such as 5"))
}

fn compare(rivals: &[Rival], over: Over, rounds: usize) -> Result<()> {
    let rounds: Vec<Vec<Outcome>> = (0..rounds)
        .map(|number| round(rivals, over, number))
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
    }
    let own = rivals
        .iter()
        .position(|r| *r == Rival::Farwire)
        .unwrap_or(0);
    for (i, rival) in rivals.iter().enumerate().filter(|(i, _)| *i != own) {
        let ratios = Spread::of(goodput(own).zip(goodput(i)).map(|(a, b)| a / b));
        println!("farwire / {:<30} {ratios}", rival.name());
    }
    Ok(())
}

/// Every other round runs backwards, so that none always comes first.
fn round(rivals: &[Rival], over: Over, number: usize) -> Result<Vec<Outcome>> {
    let measure = |rival: &Rival| rival.measure(over, SECONDS);
    if number.is_multiple_of(2) {
        return rivals.iter().map(measure).collect();
    }
    let mut outcomes: Vec<_> = rivals.iter().rev().map(measure).collect::<Result<_>>()?;
    outcomes.reverse();
    Ok(outcomes)
}
