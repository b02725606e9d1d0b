//! Unusable nodes, and shards whose files are damaged.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use test_support::process::{ends_with, has, stderr, stdout, succeeded};

use anyhow::{Context, Result, ensure};

use super::cluster::{Experiment, run, slurm};

/// Submits with a copy of the program, which is replaced by this script before the tasks begin; then waits for the end.
fn with_program(experiment: &Experiment, script: &str) -> Result<Output> {
    let program = experiment.path("farwire");
    fs::copy(test_support::process::program(), &program)?;
    slurm("scontrol update PartitionName=main State=DOWN")?;
    let mut command = experiment.submit_by(Command::new(&program), "1ms")?;
    let handed = run(command.args(["--detach", "--max-tasks", "1"]));
    fs::remove_file(&program)?;
    fs::write(
        &program,
        script.replace("REAL", test_support::process::program()),
    )?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    slurm("scontrol update PartitionName=main State=UP")?;
    succeeded(handed?)?;
    run(&mut experiment.submit()?)
}

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn a_node_that_cannot_is_left_out_with_its_cause_and_the_others_do_the_runs() -> Result<()> {
    let experiment = Experiment::of(4)?;
    let script = "#!/bin/sh\n[ \"$(hostname)\" != node1 ] || { echo 'no libc' >&2; exit 127; }\nexec REAL \"$@\"\n";
    let output = succeeded(with_program(&experiment, script)?)?;
    has(&stderr(&output), "node1 is left out: ")?;
    has(&stderr(&output), "does not run: no libc")?;
    let record = experiment.record()?;
    let mut hosts = record.head.hosts.iter();
    ensure!(hosts.all(|host| host.name != "node1"));
    let status = experiment.about("--status")?;
    has(&stdout(&status), "node1 is left out")?;
    Ok(())
}

#[test_support::test(serial, Root, Tool("slurmctld"), Tool("munged"))]
fn where_no_node_can_the_causes_are_said_and_nothing_is_waited_for() -> Result<()> {
    let experiment = Experiment::of(4)?;
    let output = with_program(&experiment, "#!/bin/sh\necho farwire 99.0.0\n")?;
    let said = ends_with(&output, 3, "no node can run the shards: node1: its ")?;
    has(&said, "is farwire 99.0.0, not farwire ")?;
    experiment.wait_for_queue()
}

/// The first task on node1 finds a full file system at the place of its record.
const FULL: &str = r#"#!/bin/sh
if [ "$1" = run ] && [ "$(hostname)" = node1 ] && mkdir "$0.full" 2>/dev/null; then
    for out; do :; done
    mkdir -p "$out"
    exec unshare --mount sh -c 'mount -t tmpfs -o size=4k full "$0" && head -c 4096 /dev/zero >"$0/filler" && exec "$@"' "$out" REAL "$@"
fi
exec REAL "$@"
"#;

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn a_full_disk_on_one_node_is_named_with_its_shard_which_the_next_array_does() -> Result<()> {
    let experiment = Experiment::of(4)?;
    let output = succeeded(with_program(&experiment, FULL)?)?;
    let said = stderr(&output);
    ensure!(experiment.path("farwire.full").exists(), "all had room");
    let mut named = said.lines().filter(|line| line.contains("No space left"));
    let line = named.next().context("no word of it")?;
    has(line, "shard ")?;
    has(line, ": FAILED on node1: farwire: ")?;
    ensure!(named.next().is_none(), "{said}");
    // The next array has only that shard.
    has(&said, ": 1 shard of 4\n")?;
    experiment.record()?;
    Ok(())
}

#[test_support::test(serial, All, Root, Tool("slurmctld"), Tool("munged"))]
fn a_torn_record_a_damaged_one_and_a_deleted_shard_are_done_again() -> Result<()> {
    let experiment = Experiment::of(4)?;
    succeeded(run(experiment.submit()?.arg("--detach"))?)?;
    experiment.wait_for_queue()?;
    let shard = |number: u32| experiment.path(&format!("out/shards/{number}"));
    // One record is cut off within its last run, one has only the beginning of its head, one is missing.
    let torn = shard(1).join("pass-1/record.jsonl");
    let text = fs::read_to_string(&torn)?;
    let last = text.rfind("{\"run\"").context("a run")?;
    fs::write(&torn, &text[..last + 20])?;
    fs::write(shard(2).join("pass-1/record.jsonl"), &text[..100])?;
    fs::remove_dir_all(shard(3))?;
    let output = succeeded(run(&mut experiment.submit()?)?)?;
    let said = stderr(&output);
    has(&said, "2/pass-1/record.jsonl:1: ")?;
    has(&said, "its shard runs again")?;
    ensure!(shard(2).join("pass-1.damaged/record.jsonl").exists());
    has(&said, ": 3 shards")?;
    experiment.record()?;
    Ok(())
}
