//! Compares farwire with its peers: the packet path with the kernel's bridge, rattan and an earlier commit, the instruments with those
//! of others, and parts of farwire with and without an option.
//!
//! Arguments name the parts to run; without arguments the usual ones run. The result of each part is printed and kept. Once all usual
//! parts have run at one commit, docs/bench.md and its figure are written again.
//!
//! Everything runs in a separate PID namespace, so that nothing is left behind however this program is stopped.
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

/// A part of the bench, with its name.
struct Part {
    name: &'static str,
    /// The programs that it requires.
    needs: &'static [&'static str],
    /// True if it runs when no parts are named.
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

    /// Returns a part that runs only by name: it compares pairs, which takes long, or has no place in the page.
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
    Part::paired("isolation", &["ip"], path::isolation::run),
    Part::paired("many-links", &["ip"], path::many_links::run),
    Part::paired("packet-log", &["iperf3"], path::paired::packet_log),
    Part::paired("start", &[], path::start::run),
    Part::paired("page", &["iperf3"], path::page::run),
    Part::paired("effects", &["iperf3"], path::paired::effects),
    Part::paired("hardening", &["iperf3"], instruments::hardening::run),
    Part::paired("merge", &[], merge::run),
    Part::paired("view", &[], path::view::run),
];

/// The first argument of the contained process.
const INSIDE: &str = "__inside";

fn main() -> Result<ExitCode> {
    contain::divert();
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes this; there is nothing to test here.
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

/// Returns the named parts, or the usual ones; cargo's own `--bench` is ignored.
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

/// Runs this program again, contained.
fn contained(named: &[&str]) -> Result<ExitCode> {
    // Stopping cargo must stop this too.
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

/// Runs these parts one after another; a failing part does not keep the others from running.
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

/// Writes docs/bench.md if all usual parts have run at this commit, including other parts that have.
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
    println!("docs/bench.md and docs/pictures/bench.svg are written");
    Ok(())
}
