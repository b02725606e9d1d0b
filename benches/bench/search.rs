//! The highest rate at which nearly nothing is lost.

use anyhow::{Result, bail};

/// Lost of 10,000, at most 1.
pub(crate) const MOST_LOST_PERCENT: f64 = 0.01;
/// Of the runs that look for the rate, in seconds.
const SHORT: u32 = 1;
/// Of the run that the result stands on.
pub(crate) const LONG: u32 = 3;
/// From one rate to the next while either end is unknown.
const STRIDE: f64 = 1.5;
/// The ends come so near to each other.
const NEAR: f64 = 1.06;
/// Down from a rate that did not hold for longer; each further step is larger by [`FALL_GROWTH`].
const FALL: f64 = 1.04;
const FALL_GROWTH: f64 = 1.02;
/// More attempts than any search needs on a machine that is left alone.
const MOST_ATTEMPTS: u32 = 60;

/// What came of one run at a rate.
pub(crate) struct Attempt {
    /// Received, in the rate's unit.
    pub(crate) received: f64,
    pub(crate) lost_percent: f64,
}

impl Attempt {
    fn holds(&self) -> bool {
        self.lost_percent <= MOST_LOST_PERCENT
    }
}

/// The highest rate that held for [`LONG`] seconds, as it was received; `run` has a rate and seconds. Two ends are found from
/// `start` in strides and halved between; then a longer run must hold, at ever less. A rate at which a run lost too much has a
/// second one, for one moment in which the machine stood still would end the search far below what it carries.
pub(crate) fn highest(start: f64, mut run: impl FnMut(f64, u32) -> Result<Attempt>) -> Result<f64> {
    let mut attempt = |rate, seconds| {
        let first = run(rate, seconds)?;
        if first.holds() {
            return Ok(first);
        }
        run(rate, seconds)
    };
    let (mut held, mut lost): (Option<f64>, Option<f64>) = (None, None);
    let mut rate = start;
    for _ in 0..MOST_ATTEMPTS {
        let tried = attempt(rate, SHORT)?;
        if !tried.holds() {
            lost = Some(rate);
        } else {
            held = Some(rate);
            // A sender that cannot go faster holds at any rate.
            if tried.received < rate * 0.9 {
                break;
            }
        }
        rate = match (held, lost) {
            (Some(held), Some(lost)) if lost / held < NEAR => break,
            (Some(held), Some(lost)) => (held * lost).sqrt(),
            (Some(held), None) => held * STRIDE,
            (None, _) => rate / STRIDE,
        };
    }
    let mut rate = held.unwrap_or(rate);
    let mut fall = FALL;
    for _ in 0..MOST_ATTEMPTS {
        let tried = attempt(rate, LONG)?;
        if tried.holds() {
            return Ok(tried.received);
        }
        rate /= fall;
        fall *= FALL_GROWTH;
    }
    bail!("no rate held: at {rate} still more than {MOST_LOST_PERCENT} % were lost")
}
