//! The figures of a report: the link's history that they show, swept cases, and files for slides.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::process::{self, farwire, has, stderr, stdout};
use test_support::scenario::{PING, PLAIN, Small};

/// A download that takes more than a second at 20 Mbit/s.
const DOWNLOAD: &str = "\
[[instruments]]
name = 'download'
kind = 'http'
parameters = { path = '/bytes/3000000' }
";

#[test_support::test(Namespaces)]
fn the_queue_of_a_link_is_in_the_record_and_below_the_goodput() -> Result<()> {
    let small = Small::of(&[DOWNLOAD, PLAIN])?;
    let output = small.run()?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    let history = &runs[0]["links"][0]["history"];
    let column = |column: &Value| column.as_array().map(Vec::len);
    let length = column(&history["at_s"]).with_context(|| runs[0].to_string())?;
    ensure!(length >= 5, "{history}");
    let down = &history["down"];
    for name in ["queue_packets", "queue_bytes", "queue_ms"] {
        ensure!(column(&down[name]) == Some(length), "{name} of {history}");
    }
    let packets = down["queue_packets"].as_array().into_iter().flatten();
    let longest = packets.filter_map(Value::as_u64).max();
    ensure!(longest > Some(0), "nothing waited: {history}");
    let page = fs::read_to_string(small.path("out/report.html"))?;
    has(&page, ">queue, ms<")
}

#[test_support::test(Namespaces)]
fn conditions_that_change_are_below_the_goodput_of_the_same_seconds() -> Result<()> {
    // An outage begins in every fifth of a second, whenever the download starts.
    let case =
        "[[cases]]\nname = 'outages'\nlink = { rate = '20mbit', outage = '20ms/200ms,hold' }\n";
    let small = Small::of(&[DOWNLOAD, case])?;
    let output = small.run()?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    let link = &runs[0]["links"][0];
    ensure!(link["begins_at"].is_string(), "{link}");
    let page = fs::read_to_string(small.path("out/report.html"))?;
    has(&page, ">link rate, Mbit/s<")
}

#[test_support::test(Namespaces)]
fn the_values_of_a_sweep_are_columns_and_an_axis() -> Result<()> {
    let sweep = "[[cases]]\nname = 'line'\nsweep = { 'link.delay' = ['0ms', '10ms', '20ms'] }\n";
    let small = Small::of(&[PING, sweep])?;
    let output = small.run()?;
    let table = stdout(&output);
    for row in [" 0ms ", " 10ms ", " 20ms "] {
        ensure!(
            table.lines().any(|line| line.starts_with(row)),
            "{row} in {table} {}",
            stderr(&output)
        );
    }
    let page = fs::read_to_string(small.path("out/report.html"))?;
    has(&page, ">delay, ms<")?;
    has(&page, "<th scope=\"col\" class=\"left\">delay")
}

#[test_support::test(Namespaces)]
fn figures_are_svg_or_png() -> Result<()> {
    let small = Small::of(&[DOWNLOAD, PLAIN])?;
    small.run()?;
    let report = |arguments: &[&str]| {
        let mut command = farwire();
        command.arg("report").arg(small.path("out")).args(arguments);
        command.arg("--figures").arg(small.path("figures"));
        process::run(&mut command)
    };
    let svg = report(&[])?;
    ensure!(svg.status.success(), "{}", stderr(&svg));
    let png = report(&["--png"])?;
    if png.status.code() == Some(3) {
        // A machine without fonts says what it lacks.
        return has(&stderr(&png), "no font is installed");
    }
    ensure!(png.status.success(), "{}", stderr(&png));
    let mut counts = [0, 0];
    for file in fs::read_dir(small.path("figures"))? {
        let path = file?.path();
        let start = fs::read(&path)?;
        match path.extension().and_then(|end| end.to_str()) {
            Some("svg") => {
                ensure!(start.starts_with(b"<svg"), "{}", path.display());
                counts[0] += 1;
            }
            Some("png") => {
                ensure!(
                    start.starts_with(b"\x89PNG\r\n\x1a\n"),
                    "{}",
                    path.display()
                );
                counts[1] += 1;
            }
            _ => anyhow::bail!("{}", path.display()),
        }
    }
    ensure!(counts[0] > 0 && counts[0] == counts[1], "{counts:?}");
    let mut alone = farwire();
    alone.arg("report").arg(small.path("out")).arg("--png");
    let refused = process::run(&mut alone)?;
    ensure!(refused.status.code() == Some(2), "{}", stderr(&refused));
    Ok(())
}
