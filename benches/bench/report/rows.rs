//! Rows of the table: a figure of farwire's beside a peer's, and their ratio, taken round by round.

use serde::{Deserialize, Serialize};

use crate::report::spread::Spread;

/// What one measurement gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// In the unit of the row.
    pub(crate) value: f64,
    /// Processor seconds a gigabyte (10^9 bytes) carried, where that was counted.
    pub(crate) cpu: Option<f64>,
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self { value, cpu: None }
    }
}

/// What is measured in a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Quantity {
    /// In a few words.
    pub(crate) what: String,
    /// Of both values.
    pub(crate) unit: String,
    pub(crate) better: Better,
}

/// Which way the figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Better {
    More,
    Less,
    /// What stands beside it is no rival.
    Neither,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) quantity: Quantity,
    /// What the first value is of: farwire, with its options if they are not the usual ones.
    pub(crate) name: String,
    pub(crate) value: Spread,
    /// Processor seconds a gigabyte.
    pub(crate) cpu: Option<Spread>,
    /// What stood beside it, if anything did.
    pub(crate) peer: Option<Beside>,
}

/// The other side of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) value: Spread,
    /// Processor seconds a gigabyte.
    pub(crate) cpu: Option<Spread>,
    /// The first value over this one, in each round.
    pub(crate) ratio: Spread,
}

/// What all rivals gave in some rounds.
pub(crate) struct Found {
    /// Of the rivals.
    pub(crate) names: Vec<String>,
    /// In each round, in the order of the names.
    pub(crate) rounds: Vec<Vec<Sample>>,
}

impl Quantity {
    pub(crate) fn more(what: &str, unit: &str) -> Self {
        Self::new(what, unit, Better::More)
    }

    pub(crate) fn less(what: &str, unit: &str) -> Self {
        Self::new(what, unit, Better::Less)
    }

    fn new(what: &str, unit: &str, better: Better) -> Self {
        Self {
            what: what.to_owned(),
            unit: unit.to_owned(),
            better,
        }
    }
}

impl Found {
    /// The first rival beside each of the others; nothing of no rounds.
    pub(crate) fn rows(&self, quantity: &Quantity) -> Vec<Row> {
        let others = 1..self.names.len();
        others
            .filter_map(|at| self.row(quantity, 0, at, &self.names[at]))
            .collect()
    }

    /// Rival `own` beside what was best of `others` in each round.
    pub(crate) fn beside_best(
        &self,
        quantity: &Quantity,
        own: usize,
        others: &[usize],
    ) -> Option<Row> {
        let best = |round: &Vec<Sample>| {
            let all = others.iter().filter_map(|at| round.get(*at)).copied();
            all.reduce(|a, b| match quantity.better {
                Better::More if b.value > a.value => b,
                Better::Less if b.value < a.value => b,
                _ => a,
            })
        };
        let rounds = self.rounds.iter();
        let both: Vec<[Sample; 2]> = rounds
            .filter_map(|round| Some([*round.get(own)?, best(round)?]))
            .collect();
        let names: Vec<&str> = others.iter().map(|at| self.names[*at].as_str()).collect();
        let peer = format!("the best of {}", names.join(", "));
        pairs(quantity, &self.names[own], &peer, &both)
    }

    /// Rival `own` by itself.
    pub(crate) fn alone(&self, quantity: &Quantity, own: usize) -> Option<Row> {
        let samples: Vec<Sample> = self.rounds.iter().map(|round| round[own]).collect();
        Some(Row {
            quantity: quantity.clone(),
            name: self.names[own].clone(),
            value: values(&samples)?,
            cpu: cpu(&samples),
            peer: None,
        })
    }

    /// Rival `own` beside rival `other`, which is called `peer`.
    pub(crate) fn row(
        &self,
        quantity: &Quantity,
        own: usize,
        other: usize,
        peer: &str,
    ) -> Option<Row> {
        let rounds = self.rounds.iter();
        let both: Vec<[Sample; 2]> = rounds.map(|round| [round[own], round[other]]).collect();
        pairs(quantity, &self.names[own], peer, &both)
    }
}

fn pairs(quantity: &Quantity, name: &str, peer: &str, both: &[[Sample; 2]]) -> Option<Row> {
    let side = |at: usize| -> Vec<Sample> { both.iter().map(|pair| pair[at]).collect() };
    let ratios: Vec<f64> = both.iter().map(|[a, b]| a.value / b.value).collect();
    Some(Row {
        quantity: quantity.clone(),
        name: name.to_owned(),
        value: values(&side(0))?,
        cpu: cpu(&side(0)),
        peer: Some(Beside {
            name: peer.to_owned(),
            value: values(&side(1))?,
            cpu: cpu(&side(1)),
            ratio: Spread::of(&ratios)?,
        }),
    })
}

fn values(samples: &[Sample]) -> Option<Spread> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    Spread::of(&values)
}

fn cpu(samples: &[Sample]) -> Option<Spread> {
    let seconds: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu).collect();
    Spread::of(&seconds)
}
