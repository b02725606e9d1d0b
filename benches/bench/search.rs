//! The highest rate at which nearly nothing is lost.

use anyhow::{Result, bail};

/// The largest loss: 1 of 10,000.
pub(crate) const MOST_LOST_PERCENT: f64 = 0.01;
/// The duration of the runs that search for the rate, in seconds.
const SHORT: u32 = 1;
/// The duration of the run that gives the result, in seconds.
pub(crate) const LONG: u32 = 3;
/// The factor from one rate to the next while an end is unknown.
const STRIDE: f64 = 1.5;
/// The ratio of both ends at which the search stops.
const NEAR: f64 = 1.06;
/// The factor by which a rate is reduced that failed in the long run; each further step is larger by [`FALL_GROWTH`].
const FALL: f64 = 1.04;
const FALL_GROWTH: f64 = 1.02;
/// The largest number of attempts, more than any search needs on an undisturbed machine.
const MOST_ATTEMPTS: u32 = 60;

/// The result of one run at a rate.
pub(crate) struct Attempt {
    /// The received rate, in the unit of the offered one.
    pub(crate) received: f64,
    pub(crate) lost_percent: f64,
}

impl Attempt {
    fn holds(&self) -> bool {
        self.lost_percent <= MOST_LOST_PERCENT
    }
}

/// Returns the highest rate that succeeded for [`LONG`] seconds, as it was received; `run` takes a rate and seconds. The search finds two
/// ends from `start` in strides and bisects them; then a longer run must succeed, at decreasing rates. A rate at which a run lost too much
/// gets a second run, because a single stall of the machine would otherwise end the search far too low.
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
            // A sender that cannot go faster loses nothing at any higher rate.
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
