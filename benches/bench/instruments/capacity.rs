//! The highest capacity that the search finds through the kernel's bridge, beside the goodput of one TCP stream there.

use std::cell::Cell;

use anyhow::Result;

use crate::instruments::pair::figure;
use crate::path::rivals::{Over, Rival};
use crate::processes::FARWIRE;
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

/// The search. It lasts long enough for the rate to reach the end of its table, which takes 10 s.
const SEARCH: &str =
    "measure capacity $TARGET --up -t 15s --datagrams traditional --quiet --json -";
const STREAM: &str = "measure tcp $TARGET -t 5 -C cubic --quiet --json -";

/// Measures once, in bit/s, and counts searches that reached the end of the table.
type Measure = fn(&Cell<usize>) -> Result<f64>;

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(3)?;
    let mut outcome = Outcome::new(
        rounds,
        "through the kernel's bridge: the capacity that the search of RFC 9097 finds in 15 s with packets of up to 1,500 bytes, as payload, \
         beside the goodput of one TCP stream, cubic, 5 s",
    );
    let unlimited = Cell::new(0_usize);
    let measures: [Measure; 2] = [search, stream];
    let found = Found {
        names: vec!["farwire".to_owned(), "TCP".to_owned()],
        rounds: shuffled(rounds, &measures, |measure| {
            Ok((measure(&unlimited)? / 1e9).into())
        })?,
    };
    outcome.rows(found.row(
        &Quantity::more("capacity of a bridge", "Gbit/s"),
        0,
        1,
        "a TCP stream through it",
    ));
    if unlimited.get() > 0 {
        outcome.note(&format!(
            "in {} of {rounds} rounds the capacity is a lower bound: the search reached the end of its table of rates, or of its time, before it found a limit",
            unlimited.get()
        ));
    }
    Ok(outcome)
}

/// Returns payload bits a second, and counts a search that found no limit.
fn search(unlimited: &Cell<usize>) -> Result<f64> {
    let said = through_bridge(SEARCH)?;
    if ["end of the table", "rising"]
        .iter()
        .any(|fact| said["facts"][fact].is_string())
    {
        unlimited.set(unlimited.get() + 1);
    }
    figure(&said, "goodput_bit_per_s", "max")
}

fn stream(_: &Cell<usize>) -> Result<f64> {
    figure(&through_bridge(STREAM)?, "goodput_bit_per_s", "mean")
}

fn through_bridge(client: &str) -> Result<serde_json::Value> {
    let far_end = format!("{FARWIRE} serve --quiet --congestion cubic");
    let mut standing = Rival::Bridge.stand(Over::Plain, &far_end)?;
    let carried = standing.carry(&format!("{FARWIRE} {client}"))?;
    standing.end()?;
    Ok(carried.said)
}
