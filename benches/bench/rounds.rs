//! Rounds: every rival once in each, in an order of its own, so that none always comes first.

use anyhow::{Context, Result};

/// So many, or as many as FARWIRE_ROUNDS says.
pub(crate) fn rounds(usual: usize) -> Result<usize> {
    let Ok(rounds) = std::env::var("FARWIRE_ROUNDS") else {
        return Ok(usual);
    };
    let number = rounds.parse().ok().filter(|&number| number > 0);
    number.with_context(|| format!("FARWIRE_ROUNDS={rounds} is not a number of rounds, such as 5"))
}

/// What `measure` gives for each of `rivals`, in their order, in so many rounds; in each they are measured in any order.
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
