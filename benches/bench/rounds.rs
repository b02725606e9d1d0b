//! Rounds: each has every rival once, in a random order, so that none always comes first.

use anyhow::{Context, Result};

/// Returns the usual number of rounds, or the number in FARWIRE_ROUNDS.
pub(crate) fn rounds(usual: usize) -> Result<usize> {
    let Ok(rounds) = std::env::var("FARWIRE_ROUNDS") else {
        return Ok(usual);
    };
    let number = rounds.parse().ok().filter(|&number| number > 0);
    number.with_context(|| format!("FARWIRE_ROUNDS={rounds} is not a number of rounds, such as 5"))
}

/// Calls `measure` for each of `rivals` in this many rounds, each in a random order; returns the results in the order of the rivals.
pub(crate) fn shuffled<R, T>(
    rounds: usize,
    rivals: &[R],
    mut measure: impl FnMut(&R) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut round = || {
        let mut order: Vec<usize> = (0..rivals.len()).collect();
        fastrand::shuffle(&mut order);
        let mut measured = Vec::new();
        for index in order {
            measured.push((index, measure(&rivals[index])?));
        }
        measured.sort_by_key(|(index, _)| *index);
        Ok(measured.into_iter().map(|(_, one)| one).collect())
    };
    (0..rounds).map(|_| round()).collect()
}
