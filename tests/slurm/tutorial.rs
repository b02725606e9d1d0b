//! The commands of docs/cluster.md as shown there, with some of its cases.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cluster::{configuration, run};
use test_support::blocks;
use test_support::process::{stderr, stdout};

const PAGE: &str = "docs/cluster.md";
/// The options that this test adds to the page's commands.
const SHORTER: &str = " --slurm --only 'path[delay=1ms, rate=1mbit, loss=0%]' \
    --only 'path[delay=6ms, rate=1mbit, loss=0%]' --shard-time 4s --max-tasks 1";

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn docs_cluster_md_does_as_it_says() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let bin = directory.path().join("bin");
    fs::create_dir(&bin)?;
    symlink(test_support::process::program(), bin.join("farwire"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE))?;
    let blocks = blocks::of(PAGE, &text)?;
    let mut ran = 0;
    for block in &blocks {
        if let Some(name) = &block.file {
            fs::write(directory.path().join(name), &block.text)?;
        }
        // Commands typed as root set up a cluster, which this suite has already.
        for typed in block
            .commands
            .iter()
            .filter(|typed| typed.user == blocks::User::Plain)
        {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(typed.line.replace(" --slurm", SHORTER));
            command.current_dir(directory.path());
            command.env("PATH", format!("{}:{path}", bin.display()));
            let output = run(command.env("SLURM_CONF", configuration()?));
            let output = output.with_context(|| block.place.clone())?;
            ensure!(
                output.status.success(),
                "{}: {}",
                typed.line,
                stderr(&output)
            );
            for words in &typed.shown {
                ensure!(
                    stdout(&output).contains(words),
                    "{}: {}",
                    typed.line,
                    stdout(&output)
                );
            }
            ran += 1;
        }
    }
    ensure!((1..=5).contains(&ran), "{ran} commands");
    for file in ["record.jsonl", "report.html", "runs.csv", "samples.csv"] {
        ensure!(
            directory.path().join("out/thousand").join(file).exists(),
            "no {file}"
        );
    }
    Ok(())
}
