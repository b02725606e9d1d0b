//! Very many links of one emulator: its start, its memory, its cost while nothing passes, and its sudden end, each beside the earlier
//! commit of `make bench BASE=COMMIT`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::iface::Interface;
use netio::netns::NetNs;
use nix::sys::signal::Signal;

use crate::path::links::{COUNTED, Ends, SETTLED, idle_percent};
use crate::path::rivals::base_path;
use crate::processes::{FARWIRE, memory_mb, output};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

/// The links that are built, with two interfaces each, and the links of the emulators that are measured among them.
const CASES: [(usize, &[usize]); 2] = [(1_000, &[1_000]), (10_000, &[1_000, 10_000])];

/// The limit of the time until all interfaces are down.
const LONGEST: Duration = Duration::from_secs(120);
/// The time that the helper process has for its remaining work.
const REST: Duration = Duration::from_secs(1);

/// The result for an emulator.
struct Came {
    opened_s: f64,
    /// The resident memory with the receive rings.
    memory_mb: f64,
    /// The use of one processor.
    idle_percent: f64,
    /// The times from SIGKILL until the process has ended, and until all interfaces are down, too.
    ended_s: f64,
    down_s: f64,
    restored_s: f64,
}

pub(crate) fn run() -> Result<Outcome> {
    type Figure = fn(&Came) -> f64;
    let rounds = rounds(1)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "one emulator with very many links of 1 ms in each direction: the time from its start until they are open, its resident memory with the receive rings, its processor time over \
             {} s when nothing has passed for {} s, the times from SIGKILL until the process has ended and until all of its interfaces are down, and that of `emulate --restore`",
            COUNTED.as_secs(),
            SETTLED.as_secs()
        ),
    );
    let figures: [(&str, &str, Figure); 6] = [
        ("start", "s", |came| came.opened_s),
        ("memory", "MB", |came| came.memory_mb),
        ("idle", "% of a CPU", |came| came.idle_percent),
        ("SIGKILL, ended", "s", |came| came.ended_s),
        ("SIGKILL, all down", "s", |came| came.down_s),
        ("restore", "s", |came| came.restored_s),
    ];
    let mut programs = vec![("farwire".to_owned(), PathBuf::from(FARWIRE))];
    programs.extend(base_path().map(|base| ("the base commit".to_owned(), base)));
    for (built, boxes) in CASES {
        let ends = Ends::build(built, 0)?;
        for links in boxes {
            // A machine may lack descriptors or memory for the largest emulator.
            let found = shuffled(rounds, &programs, |(_, program)| {
                Ok(measure(&ends, program, *links))
            })?;
            let name = format!("{links} links among {} interfaces", 2 * built + 1);
            let all = found
                .iter()
                .map(|round| round.iter().flatten().collect::<Vec<_>>());
            let complete: Vec<Vec<&Came>> =
                all.filter(|round| round.len() == programs.len()).collect();
            let own: Vec<&Came> = found
                .iter()
                .filter_map(|round| round[0].as_ref().ok())
                .collect();
            for (what, unit, value) in figures {
                let quantity = Quantity::less(&format!("{name}: {what}"), unit);
                let of = |rounds: &[Vec<&Came>]| Found {
                    names: programs.iter().map(|(name, _)| name.clone()).collect(),
                    rounds: rounds
                        .iter()
                        .map(|round| round.iter().map(|came| value(came).into()).collect())
                        .collect(),
                };
                let beside = of(&complete).rows(&quantity);
                if beside.is_empty() {
                    let alone: Vec<Vec<&Came>> = own.iter().map(|came| vec![*came]).collect();
                    outcome.rows(of(&alone).alone(&quantity, 0));
                } else {
                    outcome.rows(beside);
                }
            }
            for round in &found {
                for ((program, _), came) in programs.iter().zip(round) {
                    if let Err(failure) = came {
                        outcome.note(&format!("{name}, {program}: {failure:#}"));
                    }
                }
            }
        }
    }
    Ok(outcome)
}

/// Measures an emulator of the first `links` links from its start to its end by SIGKILL.
fn measure(ends: &Ends, program: &Path, links: usize) -> Result<Came> {
    let mut open = ends.open(program, links)?;
    let pid = open.pid();
    let idle_percent = idle_percent(pid)?;
    let memory_mb = memory_mb(pid, "VmRSS").context("the emulator has ended")?;
    let killed = Instant::now();
    let ended_s = open.end_by(Signal::SIGKILL)?;
    loop {
        let up = up(&ends.middle, links)?;
        if up == 0 {
            break;
        }
        ensure!(
            killed.elapsed() < LONGEST,
            "{up} interfaces are still up {} s after SIGKILL",
            LONGEST.as_secs()
        );
        thread::sleep(Duration::from_millis(20));
    }
    let down_s = killed.elapsed().as_secs_f64();
    thread::sleep(REST);
    let begun = Instant::now();
    let mut restore = Command::new(program);
    restore.args(["emulate", "--restore"]);
    output(&ends.middle, restore)?;
    let restored_s = begun.elapsed().as_secs_f64();
    let up = up(&ends.middle, links)?;
    ensure!(
        up == 2 * links,
        "only {up} of {} interfaces are restored",
        2 * links
    );
    Ok(Came {
        opened_s: open.opened_s,
        memory_mb,
        idle_percent,
        ended_s,
        down_s,
        restored_s,
    })
}

/// Returns the number of interfaces of the first `links` links that are up.
fn up(middle: &NetNs, links: usize) -> Result<usize> {
    let all = middle.run(Interface::all)??;
    let is_of_box = |of: &&Interface| {
        let number = of.name.strip_prefix(['a', 'b']);
        let number = number.and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number < links)
    };
    Ok(all.iter().filter(is_of_box).filter(|of| of.up).count())
}
