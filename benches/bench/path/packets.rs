//! Small packets: the rate of datagrams of 64 bytes, each in a separate frame, that cross without loss.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::Result;

use crate::instruments::pair::figure;
use crate::path::rivals::{Over, Rival, Standing};
use crate::processes::FARWIRE;
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};
use crate::search::{Attempt, LONG, MOST_LOST_PERCENT, highest};

/// The payload bytes of a datagram.
const LENGTH: u32 = 64;
/// Socket buffers at both ends. The default holds the datagrams of 1.5 ms, but a receiver on two cores waits longer than that for a
/// processor.
const BUFFER: &str = "4MiB";
/// The first rate of the search, in datagrams a second.
const FIRST: f64 = 100_000.0;

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(3)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "datagrams of {LENGTH} bytes, one in each frame: the highest rate at which no more than {MOST_LOST_PERCENT} % are lost for {LONG} s, \
             in the better of two runs; buffers of {BUFFER} at both ends; farwire and rattan with 1 ms in each direction"
        ),
    );
    let rivals = Rival::all(true);
    let starts = RefCell::new(BTreeMap::new());
    let found = shuffled(rounds, &rivals, |rival| {
        let start = starts.borrow().get(&rival.name()).copied();
        let mut standing = rival.stand(Over::Plain, &format!("{FARWIRE} serve --quiet"))?;
        let rate = highest(start.unwrap_or(FIRST), |rate, seconds| {
            attempt(&mut standing, rate, seconds)
        })?;
        standing.end()?;
        starts.borrow_mut().insert(rival.name(), rate);
        Ok(Sample::from(rate / 1e3))
    })?;
    let found = Found {
        names: rivals.iter().map(Rival::name).collect(),
        rounds: found,
    };
    outcome.rows(found.rows(&Quantity::more("64-byte datagrams", "1,000/s")));
    Ok(outcome)
}

/// Runs once at this rate, in datagrams a second.
fn attempt(standing: &mut Standing, rate: f64, seconds: u32) -> Result<Attempt> {
    let bits = rate * f64::from(LENGTH) * 8.0;
    let said = standing
        .carry(&format!(
            "{FARWIRE} measure udp $TARGET -b {bits:.0} -l {LENGTH} -w {BUFFER} --no-gso -t {seconds} --quiet --json -"
        ))?
        .said;
    Ok(Attempt {
        received: figure(&said, "goodput_bit_per_s", "mean")? / 8.0 / f64::from(LENGTH),
        lost_percent: figure(&said, "lost_percent", "mean")?,
    })
}
