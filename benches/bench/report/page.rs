//! docs/bench.md and its figure, made from the results of all usual parts at one commit.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use anyhow::Result;

use crate::report::figure;
use crate::report::table::{COLUMNS, cells};
use crate::results::Kept;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/bench.md");
const FIGURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pictures/bench.svg");

/// Writes the page and its figure.
pub(crate) fn write(parts: &[Kept]) -> Result<()> {
    fs::write(FIGURE, figure::svg(parts))?;
    Ok(fs::write(PAGE, page(parts))?)
}

// Writing to a String cannot fail, here and below.
fn page(parts: &[Kept]) -> String {
    let mut page = String::from(
        "# Measured against peers\n\n\
         `make bench` writes this page and its figure. Each figure is the median over several rounds, with the minimum and the maximum in brackets; \
         with ten rounds or more, the 95 % interval of the median. Every round has each rival once, in a random order, and ratios are computed round \
         by round. Compare the ratios: absolute figures depend on the machine and the hour. Processor seconds for each 10^9 bytes carried (CPU s/GB) \
         allow a comparison with machines that have another number of processors.\n\n\
         ![How many times as good as its peers farwire is](pictures/bench.svg)\n\n",
    );
    host(&mut page, parts);
    let _ = writeln!(page, "\n| {} |", COLUMNS.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(COLUMNS.len()));
    for kept in parts {
        for row in &kept.outcome.rows {
            let cells = cells(&kept.part, row).map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(page, "| {} |", cells.join(" | "));
        }
    }
    page.push_str("\n## How each part is measured\n\n");
    for kept in parts {
        let outcome = &kept.outcome;
        let _ = writeln!(
            page,
            "- **{}**, {}, {:.0} s on {}: {}.",
            kept.part,
            match outcome.rounds {
                1 => "1 round".to_owned(),
                rounds => format!("{rounds} rounds"),
            },
            kept.took_s,
            kept.date,
            outcome.how
        );
        for note in &outcome.notes {
            let _ = writeln!(page, "  - {note}");
        }
    }
    page.push_str(RATTAN);
    page
}

/// The limits of the comparison with rattan.
const RATTAN: &str = "
rattan is the newest release that `cargo install` gives: it uses packet sockets, one system call for each packet, and a channel between any two of its cells. Its authors also have
a network interface in a kernel module outside the kernel's tree, whose rings their emulator uses in place of packet sockets; with it they publish 0.1 to 6 Gbit/s over one
path (rattan, USENIX ATC 2026, arXiv 2507.08134). It is not in this table, because it needs root and a module that fits the running kernel.
";

/// Writes the machine, the commit and the peers.
fn host(page: &mut String, parts: &[Kept]) {
    let hosts: BTreeSet<String> = parts
        .iter()
        .map(|kept| {
            let host = &kept.host;
            format!(
                "{}, {} processors, {} of memory, {}, clock {}",
                host.cpu, host.cpus, host.memory, host.kernel, host.clocksource
            )
        })
        .collect();
    let commits: BTreeSet<&str> = parts.iter().map(|kept| kept.commit.as_str()).collect();
    let bases: BTreeSet<&str> = parts
        .iter()
        .filter_map(|kept| kept.base.as_deref())
        .collect();
    let tools: BTreeSet<String> = parts
        .iter()
        .flat_map(|kept| &kept.host.tools)
        .map(|(tool, version)| format!("{tool} {version}"))
        .collect();
    let list = |all: Vec<&str>| all.join("; ");
    let _ = writeln!(
        page,
        "- Machine: {}",
        list(hosts.iter().map(String::as_str).collect())
    );
    let _ = writeln!(
        page,
        "- farwire at commit {}{}",
        list(commits.into_iter().collect()),
        match bases.is_empty() {
            true => String::new(),
            false => format!(", beside {}", list(bases.into_iter().collect())),
        }
    );
    let _ = writeln!(
        page,
        "- Peers: {}",
        tools.into_iter().collect::<Vec<_>>().join(", ")
    );
    page.push_str(
        "- TCP's congestion control is cubic for every rival that has an option for it\n",
    );
}
