//! The cost of giving up privileges for `serve`: its processor time a gigabyte as iperf3's far end, confined and with `--no-sandbox`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::instruments::pair::{Pair, SERVER};
use crate::processes::{FARWIRE, of_children};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const PAIRS: usize = 21;
/// The number of tests with one far end. Connections differ more than far ends, by the processors that work for them.
const TESTS: u32 = 6;
/// The amount of one test, in units of 2^30 bytes, as iperf3 counts.
const GIB: u32 = 4;

pub(crate) fn run() -> Result<Outcome> {
    let pairs = rounds(PAIRS)?;
    let mut outcome = Outcome::new(
        pairs,
        &format!(
            "serve, confined and with --no-sandbox, as the far end of {TESTS} runs of iperf3 -n {GIB}G, one TCP stream, one veth pair: processor seconds of serve a GiB; \
             pairs in random order"
        ),
    );
    let pair = Pair::build()?;
    let rounds = shuffled(pairs, &[true, false], |confined| {
        Ok(seconds_a_gib(&pair, *confined)?.into())
    })?;
    let found = Found {
        names: vec!["confined".to_owned(), "farwire --no-sandbox".to_owned()],
        rounds,
    };
    outcome.rows(found.rows(&Quantity::less("confining serve", "CPU s/GiB")));
    Ok(outcome)
}

/// Measures one far end from its start to its end: the kernel adds up the time of a process once it has been waited for.
fn seconds_a_gib(pair: &Pair, confined: bool) -> Result<f64> {
    let mut command = Command::new(FARWIRE);
    command.args(["serve", "--congestion", "cubic"]);
    if !confined {
        command.arg("--no-sandbox");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = pair
        .server
        .run(|| command.stderr(Stdio::piped()).spawn())??;
    await_ready(&mut server)?;
    for _ in 0..TESTS {
        pair.run(&format!("iperf3 -c {SERVER} -n {GIB}G -C cubic"))?;
    }
    let before = of_children()?;
    kill(Pid::from_raw(i32::try_from(server.id())?), Signal::SIGTERM)?;
    let status = server.wait()?;
    ensure!(status.success(), "serve ended with {status}");
    Ok((of_children()? - before) / f64::from(TESTS * GIB))
}

/// Waits until the server has printed everything that it prints at its start.
fn await_ready(server: &mut Child) -> Result<()> {
    let said = BufReader::new(server.stderr.take().context("a pipe was asked for")?);
    let mut lines = said.lines().map_while(Result::ok);
    let ready = lines.any(|line| line.starts_with("farwire sends"));
    ensure!(ready, "serve did not start");
    Ok(())
}
