//! farwire beside its peers: the packet path beside the kernel's bridge, rattan and an earlier commit, the instruments beside
//! those that others wrote, and what parts of farwire cost.
//!
//! An argument names the parts to run; without, the usual ones run. What each finds is printed, and kept; once all usual parts have
//! run at one commit, docs/bench.md and its figure are written anew.
//!
//! Everything happens in a PID namespace of its own, so that nothing is left behind when this is stopped, however.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

mod facts;
mod instruments;
mod merge;
mod model;
mod path;
mod processes;
mod report;
mod results;
mod rounds;
mod search;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use jiff::Zoned;
use jiff::tz::TimeZone;
use netio::contain::{self, Contained};
use netio::netns::NetNs;
use netio::userns::{self, Privilege};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::results::{Kept, Outcome};

/// A part by its name.
struct Part {
    name: &'static str,
    /// Programs that it cannot do without.
    needs: &'static [&'static str],
    /// Whether it runs unless others are named.
    is_usual: bool,
    run: fn() -> Result<Outcome>,
}

impl Part {
    const fn usual(
        name: &'static str,
        needs: &'static [&'static str],
        run: fn() -> Result<Outcome>,
    ) -> Self {
        Self {
            name,
            needs,
            is_usual: true,
            run,
        }
    }

    /// One that runs only by name: it compares pairs, which takes long, or has no place in the page.
    const fn paired(
        name: &'static str,
        needs: &'static [&'static str],
        run: fn() -> Result<Outcome>,
    ) -> Self {
        Self {
            is_usual: false,
            ..Self::usual(name, needs, run)
        }
    }
}

const METERS: &[&str] = &["iperf3", "iperf", "nuttcp"];

const PARTS: &[Part] = &[
    Part::usual("throughput", &["iperf3"], path::throughput::run),
    Part::usual("packets", &[], path::packets::run),
    Part::usual("lateness", &[], path::lateness::run),
    Part::usual("links", &["ip"], path::links::run),
    Part::usual("paths", &["ip"], path::paths::run),
    Part::usual("rates", &[], path::rates::run),
    Part::usual("tcp", METERS, instruments::tcp::run),
    Part::usual("udp", METERS, instruments::udp::run),
    Part::usual("pingpong", &["sockperf"], instruments::pingpong::run),
    Part::usual("pacing", METERS, instruments::pacing::run),
    Part::usual("probe", &["irtt"], instruments::probe::run),
    Part::usual("probe-rate", &[], instruments::probe_rate::run),
    Part::usual("capacity", &[], instruments::capacity::run),
    Part::usual("model", &[], model::run),
    Part::paired("packet-log", &["iperf3"], path::paired::packet_log),
    Part::paired("page", &["iperf3"], path::page::run),
    Part::paired("effects", &["iperf3"], path::paired::effects),
    Part::paired("hardening", &["iperf3"], instruments::hardening::run),
    Part::paired("merge", &[], merge::run),
];

/// The first argument of the process in which all is contained.
const INSIDE: &str = "__inside";

fn main() -> Result<ExitCode> {
    contain::divert();
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // Asked for by `cargo test --benches`: there is nothing to test here.
    if asked.iter().any(|argument| argument == "--test") {
        return Ok(ExitCode::SUCCESS);
    }
    let named: Vec<&str> = asked.iter().map(String::as_str).collect();
    match named.as_slice() {
        [INSIDE, named @ ..] => inside(&chosen(named)?),
        named => {
            chosen(named)?;
            contained(named)
        }
    }
}

/// Those named, or the usual ones; cargo's own `--bench` is passed over.
fn chosen(named: &[&str]) -> Result<Vec<&'static Part>> {
    let named = || named.iter().filter(|name| !name.starts_with('-'));
    if named().next().is_none() {
        return Ok(PARTS.iter().filter(|part| part.is_usual).collect());
    }
    let part = |name: &&str| {
        let found = PARTS.iter().find(|part| part.name == *name);
        found.with_context(|| {
            let all: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            format!("there is no part {name}: there are {}", all.join(", "))
        })
    };
    named().map(part).collect()
}

/// Runs this program once more, contained.
fn contained(named: &[&str]) -> Result<ExitCode> {
    // Whoever stops cargo means this.
    set_pdeathsig(Signal::SIGKILL)?;
    match Privilege::detect() {
        Privilege::Root => {}
        Privilege::UserNamespace => userns::enter()?,
        Privilege::None { why } => bail!("no test bed: {why}"),
    }
    results::clear_scratch();
    let mut argv = vec![std::env::current_exe()?.into_os_string(), INSIDE.into()];
    argv.extend(named.iter().map(OsString::from));
    let mut command = contain::command(&NetNs::current()?, &argv)?;
    let code = Contained::spawn(&mut command)?.wait()?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Runs these parts, one after another; one that fails does not keep the others from running.
fn inside(parts: &[&Part]) -> Result<ExitCode> {
    let mut failed = Vec::new();
    for part in parts {
        match measure(part) {
            Ok(kept) => {
                println!("{}", report::table::text(&kept));
                kept.write()?;
            }
            Err(error) => {
                eprintln!("farwire: {} failed: {error:#}", part.name);
                failed.push(part.name);
            }
        }
    }
    write_page()?;
    Ok(match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn measure(part: &Part) -> Result<Kept> {
    let missing: Vec<&str> = part
        .needs
        .iter()
        .copied()
        .filter(|tool| which::which(tool).is_err())
        .collect();
    let started = Instant::now();
    let outcome = match missing.is_empty() {
        true => (part.run)()?,
        false => Outcome::new(
            0,
            &format!("left out: not installed: {}", missing.join(", ")),
        ),
    };
    Ok(Kept {
        part: part.name.to_owned(),
        commit: results::commit(),
        base: path::rivals::base_path().map(|path| {
            let name = path.file_name().unwrap_or_default();
            name.display().to_string()
        }),
        date: Zoned::now()
            .with_time_zone(TimeZone::UTC)
            .date()
            .to_string(),
        took_s: started.elapsed().as_secs_f64(),
        host: facts::collect(),
        outcome,
    })
}

/// Writes docs/bench.md if all usual parts have run at this commit, with those of the others that have.
fn write_page() -> Result<()> {
    let commit = results::commit();
    let mut kept = Vec::new();
    for part in PARTS {
        match Kept::read(part.name).filter(|kept| kept.commit == commit) {
            Some(found) => kept.push(found),
            None if part.is_usual => {
                println!(
                    "docs/bench.md stays as it is: {} has not run at {commit}",
                    part.name
                );
                return Ok(());
            }
            None => {}
        }
    }
    report::page::write(&kept)?;
    println!("docs/bench.md and docs/pictures/bench.svg are written anew");
    Ok(())
}
