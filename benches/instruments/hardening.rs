//! What giving up privileges costs `serve`: its processor time a gigabyte as iperf3's far end, confined beside `--no-sandbox`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;
use stats::t_interval;

use crate::pair::{Pair, SERVER};
use crate::spread::Spread;

/// Each confined and not, in turns; which comes first alternates.
const PAIRS: usize = 21;
/// Tests of one far end: connections differ, by which processor does what for them, more than the far ends do.
const TESTS: u32 = 6;
/// Of one test, in units that iperf3 takes for 2^30 bytes.
const GIB: u32 = 4;

pub(crate) fn run() -> Result<()> {
    println!(
        "serve as the far end of {TESTS} times iperf3 -n {GIB}G, one TCP stream, one veth pair: its processor seconds a GiB; {PAIRS} interleaved pairs: median (least to most)"
    );
    let pair = Pair::build()?;
    let mut found = Vec::new();
    for number in 0..PAIRS {
        let mut both = [0.0; 2];
        for step in 0..2 {
            let confined = (number + step) % 2 == 0;
            both[usize::from(confined)] = seconds_a_gib(&pair, confined)?;
        }
        found.push(both);
    }
    println!(
        "confined      {}",
        Spread::of(found.iter().map(|both| both[1]))
    );
    println!(
        "--no-sandbox  {}",
        Spread::of(found.iter().map(|both| both[0]))
    );
    // Of the logarithms, as ratios scatter evenly there.
    let ratios: Vec<f64> = found.iter().map(|both| (both[1] / both[0]).ln()).collect();
    let mean = t_interval::mean(&ratios).context("no pairs")?.exp();
    let [low, high] = t_interval::mean_interval(&ratios)
        .context("too few pairs")?
        .map(f64::exp);
    println!("confined / --no-sandbox: {mean:.3}, 95 % interval {low:.3} to {high:.3}");
    Ok(())
}

/// Of one far end, from its start to its end: the kernel adds up what a process took once it has been waited for.
fn seconds_a_gib(pair: &Pair, confined: bool) -> Result<f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwire"));
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

/// Waits until it has said all that it says at its start.
fn await_ready(server: &mut Child) -> Result<()> {
    let said = BufReader::new(server.stderr.take().context("a pipe was asked for")?);
    let mut lines = said.lines().map_while(Result::ok);
    let ready = lines.any(|line| line.starts_with("farwire sends"));
    ensure!(ready, "serve did not start");
    Ok(())
}

/// Processor seconds of all children that have been waited for.
fn of_children() -> Result<f64> {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both = usage.user_time() + usage.system_time();
    Ok(both.num_microseconds() as f64 / 1e6)
}
