//! Rows of the table: a figure of farwire beside a peer's, and their ratio, computed round by round.

use serde::{Deserialize, Serialize};

use crate::report::spread::Spread;

/// The result of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The value, in the unit of the row.
    pub(crate) value: f64,
    /// Processor seconds for each gigabyte (10^9 bytes) carried, if that was counted.
    pub(crate) cpu: Option<f64>,
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self { value, cpu: None }
    }
}

/// The quantity that a row measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Quantity {
    /// A short description.
    pub(crate) what: String,
    /// The unit of both values.
    pub(crate) unit: String,
    pub(crate) better: Better,
}

/// Whether larger or smaller figures are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Better {
    More,
    Less,
    /// Neither: the other value is not from a rival.
    Neither,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) quantity: Quantity,
    /// The owner of the first value: farwire, with its options if they are unusual.
    pub(crate) name: String,
    pub(crate) value: Spread,
    /// Processor seconds for each gigabyte.
    pub(crate) cpu: Option<Spread>,
    /// The other side, if there is one.
    pub(crate) peer: Option<Beside>,
}

/// The other side of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) value: Spread,
    /// Processor seconds for each gigabyte.
    pub(crate) cpu: Option<Spread>,
    /// The ratio of the first value to this one, in each round; none if this one is 0 in a round.
    pub(crate) ratio: Option<Spread>,
}

/// The samples of all rivals in some rounds.
pub(crate) struct Found {
    /// The names of the rivals.
    pub(crate) names: Vec<String>,
    /// The samples of each round, in the order of the names.
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
    /// Makes rows of the first rival beside each of the others; none if there were no rounds.
    pub(crate) fn rows(&self, quantity: &Quantity) -> Vec<Row> {
        let others = 1..self.names.len();
        others
            .filter_map(|at| self.row(quantity, 0, at, &self.names[at]))
            .collect()
    }

    /// Makes a row of rival `own` beside the best of `others` in each round.
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

    /// Makes a row of rival `own` alone.
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

    /// Makes a row of rival `own` beside rival `other`, under the name `peer`.
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
    let ratios: Option<Vec<f64>> = both
        .iter()
        .map(|[a, b]| (b.value != 0.0).then(|| a.value / b.value))
        .collect();
    Some(Row {
        quantity: quantity.clone(),
        name: name.to_owned(),
        value: values(&side(0))?,
        cpu: cpu(&side(0)),
        peer: Some(Beside {
            name: peer.to_owned(),
            value: values(&side(1))?,
            cpu: cpu(&side(1)),
            ratio: ratios.and_then(|ratios| Spread::of(&ratios)),
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
