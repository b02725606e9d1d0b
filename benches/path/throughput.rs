//! One TCP stream through each rival in turn.

use anyhow::Result;

use crate::rivals::{Outcome, Rival, WINDOW, rattan_path};

const ROUNDS: usize = 5;
const SECONDS: u32 = 4;

pub(crate) fn run() -> Result<()> {
    println!(
        "TCP, one stream, cubic, MTU 1500, default offloads, buffers up to {} MiB; {ROUNDS} interleaved rounds of {SECONDS} s",
        WINDOW.0 >> 20
    );
    let mut rivals = Rival::ALL.to_vec();
    if rattan_path().is_none() {
        println!("rattan is left out: it is not installed (cargo install rattan --version 0.1.1)");
        rivals.retain(|r| *r != Rival::Rattan);
    }
    let mut rounds: Vec<Vec<Outcome>> = Vec::new();
    for _ in 0..ROUNDS {
        let round: Result<Vec<Outcome>> = rivals.iter().map(|r| r.measure(SECONDS)).collect();
        rounds.push(round?);
    }
    for (i, rival) in rivals.iter().enumerate() {
        let spread = Spread::of(rounds.iter().map(|round| round[i].goodput / 1e9));
        println!("{:<28} {spread} Gb/s goodput", rival.name());
        let median = rounds
            .iter()
            .find(|round| round[i].goodput / 1e9 == spread.median);
        println!("    {}", median.map_or("", |round| round[i].limit.as_str()));
    }
    for (i, rival) in rivals
        .iter()
        .enumerate()
        .filter(|(_, r)| **r != Rival::Farwire)
    {
        let ratios = Spread::of(
            rounds
                .iter()
                .map(|round| round[1].goodput / round[i].goodput),
        );
        println!("farwire / {:<38} {ratios}", rival.name());
    }
    Ok(())
}

/// Median, least and most.
pub(crate) struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.2} ({:.2} to {:.2})",
            self.median, self.least, self.most
        )
    }
}
