//! `farwire submit` with scripts in place of Slurm's commands, whose answers the tests set: orders of events that are rare with a real
//! Slurm.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

/// The script for all of Slurm's commands. Each line of `COMMAND.answers` is for one call: `cancel` first writes the mark of `--cancel`,
/// `fail WORDS` refuses with these words, `lost WORDS` does the work but reports a failure; anything else, or no line, does the work.
/// Tasks wait until they are cancelled. The file `partitions` lists the partitions, `nodes` the nodes of each; `environment` gets the
/// environment variables of sbatch.
const FAKE: &str = r#"#!/bin/sh
cd "$FAKE" || exit 9
command=${0##*/}
echo "$command $*" >>calls
answer=$(sed -n 1p "$command.answers" 2>/dev/null)
[ ! -e "$command.answers" ] || sed -i 1d "$command.answers"
refuse() {
    echo "$command: error: ${answer#* }" >&2
    exit 1
}
case $answer in
cancel) : >out/cancelled ;;
fail*) refuse ;;
esac
for last; do :; done
case $command in
scontrol) echo "MaxArraySize = 1001" ;;
sinfo) case $last in
    *%P) cat partitions ;;
    *%c) echo 4 ;;
    *) cat nodes ;;
    esac ;;
sbatch)
    env | grep '^SBATCH_' >environment
    job=$(($(ls | grep -c '^job\.') + 1))
    {
        sed -n 's/^#SBATCH --job-name=//p' "$last"
        sed -n 's/^#SBATCH --array=//p' "$last" | tr - '\n'
    } >"job.$job"
    case $answer in lost*) refuse ;; esac
    echo "$job"
    ;;
squeue)
    for file in job.*; do
        [ -e "$file" ] || exit 0
        { read -r name && read -r first && read -r most; } <"$file"
        case " $* " in *" --name=$name "*) ;; *) continue ;; esac
        state=PENDING
        [ ! -e "ended.${file#job.}" ] || state=CANCELLED
        for shard in $(seq "$first" "$most"); do
            echo "${file#job.}|$shard|$state||Resources"
        done
    done
    ;;
scancel) : >"ended.$last" ;;
esac
"#;

/// Environment variables with their values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// An experiment of four shards, and a fake Slurm.
struct Fake(TempDir);

impl Fake {
    fn new() -> Result<Self> {
        let fake = Self(tempfile::tempdir()?);
        let program = fake.path("slurm");
        fs::write(&program, FAKE)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        fs::create_dir(fake.path("bin"))?;
        for name in ["sbatch", "squeue", "sinfo", "scontrol", "scancel"] {
            symlink(&program, fake.path("bin").join(name))?;
        }
        fs::write(fake.path("partitions"), "main*\nlong\n")?;
        fs::write(fake.path("nodes"), "node1|idle|none\n")?;
        fs::write(
            fake.path("x.toml"),
            "name = 'x'\ntitle = 'X'\nbed = { kind = 'netns' }\ntcp = { congestion = 'reno' }\n\
             [[instruments]]\nname = 'ping'\nkind = 'ping'\n[[cases]]\nname = 'a'\nrepeats = 4\n",
        )?;
        Ok(fake)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Sets the answers to the next calls of a command, one line for each.
    fn answers(&self, command: &str, lines: &str) -> Result<()> {
        Ok(fs::write(self.path(&format!("{command}.answers")), lines)?)
    }

    fn farwire(&self, arguments: &[&str]) -> Result<Output> {
        self.farwire_with(&[], arguments)
    }

    /// The same, with these environment variables.
    fn farwire_with(&self, set: Variables<'_>, arguments: &[&str]) -> Result<Output> {
        let mut command: Command = farwire();
        for name in ["SBATCH_PARTITION", "SBATCH_TIMELIMIT"] {
            command.env_remove(name);
        }
        command.envs(set.iter().copied());
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.path(""))
            .env("FAKE", self.path(""))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .args(arguments);
        process::run(&mut command)
    }

    fn submit(&self, more: &[&str]) -> Result<Output> {
        self.submit_with(&[], more)
    }

    /// The same, with these environment variables.
    fn submit_with(&self, set: Variables<'_>, more: &[&str]) -> Result<Output> {
        let submit = ["submit", "x.toml", "--slurm", "--out", "out"];
        let short = ["--shard-time", "1ms"];
        self.farwire_with(set, &[&submit[..], &short, more].concat())
    }

    /// Counts the calls of commands that begin with `begin`.
    fn calls(&self, begin: &str) -> Result<usize> {
        let calls = fs::read_to_string(self.path("calls"))?;
        Ok(calls.lines().filter(|call| call.starts_with(begin)).count())
    }
}

/// Checks that the submit ended because it was cancelled, and that Slurm has no task of it left.
fn is_cancelled(fake: &Fake, output: &Output) -> Result<()> {
    let said = stderr(output);
    ensure!(output.status.code() == Some(1), "{said}");
    has(
        &said,
        "the submit was cancelled; run the same command to continue",
    )?;
    ensure!(fake.calls("sbatch ")? == 1 && fake.path("job.1").exists());
    ensure!(fake.path("ended.1").exists(), "the array lives on: {said}");
    Ok(())
}

#[test_support::test]
fn an_array_that_is_handed_in_while_somebody_cancels_is_ended() -> Result<()> {
    // The mark appears after the submit has looked for it, and Slurm was asked for tasks to cancel before it has the job.
    for more in [&[][..], &["--detach"]] {
        let fake = Fake::new()?;
        fake.answers("sbatch", "cancel\n")?;
        is_cancelled(&fake, &fake.submit(more)?)?;
    }
    Ok(())
}

#[test_support::test]
fn a_submit_that_sees_that_it_was_cancelled_ends_its_array_whoever_else_does() -> Result<()> {
    let fake = Fake::new()?;
    // The submit asks twice before it waits.
    fake.answers("squeue", "-\ncancel\n")?;
    is_cancelled(&fake, &fake.submit(&[])?)
}

#[test_support::test]
fn a_controller_that_is_silent_for_a_while_is_asked_again_and_has_no_array_twice() -> Result<()> {
    let fake = Fake::new()?;
    let silence = "fail Unable to contact slurm controller (connect failure)\n";
    fake.answers("sinfo", silence)?;
    fake.answers("squeue", silence)?;
    let lost = "lost Batch job submission failed: Socket timed out on send/recv operation\n";
    fake.answers("sbatch", &[silence, lost].concat())?;
    let output = process::succeeded(fake.submit(&["--detach"])?)?;
    let said = stderr(&output);
    has(&said, "job 1: 4 shards of 4\n")?;
    ensure!(fake.calls("sbatch ")? == 2, "{said}");
    ensure!(fake.path("job.1").exists() && !fake.path("job.2").exists());
    fake.answers("squeue", silence)?;
    fake.answers("scancel", silence)?;
    let output = process::succeeded(fake.farwire(&["submit", "--cancel", "out"])?)?;
    let said = stdout(&output);
    has(&said, "4 tasks cancelled")?;
    ensure!(fake.path("ended.1").exists(), "the array lives on");
    Ok(())
}

#[test_support::test]
fn what_slurm_refuses_is_bad_input_and_nothing_of_it_is_waited_for() -> Result<()> {
    let fake = Fake::new()?;
    let refusal = "fail Batch job submission failed: Invalid account\n";
    fake.answers("sbatch", &refusal.repeat(2))?;
    for _ in 0..2 {
        let output = fake.submit(&[])?;
        ends_with(&output, 2, "Invalid account")?;
    }
    let output = process::succeeded(fake.submit(&["--detach"])?)?;
    let said = stderr(&output);
    has(&said, "job 1: 4 shards of 4\n")?;
    ensure!(!said.contains("no longer knows its task"), "{said}");
    Ok(())
}

/// The variables for sbatch in the user's environment.
const SET: [(&str, &str); 4] = [
    ("SBATCH_PARTITION", "long"),
    ("SBATCH_TIMELIMIT", "7"),
    ("SBATCH_OPEN_MODE", "append"),
    ("SBATCH_ACCOUNT", "mine"),
];

#[test_support::test]
fn what_is_said_to_submit_wins_over_sbatchs_own_environment_which_has_the_rest() -> Result<()> {
    let partition = ["--partition", "main"];
    let time = ["--time", "1h"];
    let both = [partition, time].concat();
    let all: [(&[&str], &[&str]); 4] = [
        (&[], &["PARTITION=long", "TIMELIMIT=7"]),
        (&partition, &["TIMELIMIT=7"]),
        (&time, &["PARTITION=long"]),
        (&both, &[]),
    ];
    for (more, seen) in all {
        let fake = Fake::new()?;
        process::succeeded(fake.submit_with(&SET, &[more, &["--detach"]].concat())?)?;
        let environment = fs::read_to_string(fake.path("environment"))?;
        let mut found: Vec<&str> = environment.lines().collect();
        found.sort_unstable();
        let mut expected: Vec<String> = seen.iter().map(|name| format!("SBATCH_{name}")).collect();
        expected.insert(0, "SBATCH_ACCOUNT=mine".to_owned());
        ensure!(found == expected, "{more:?}: {found:?}");
    }
    Ok(())
}

#[test_support::test]
fn without_a_partition_its_nodes_are_those_of_sbatch_s_the_environment_s_or_the_default_s()
-> Result<()> {
    let long = [("SBATCH_PARTITION", "long")];
    let both = [("SBATCH_PARTITION", "long,main")];
    let all: [(Variables<'_>, &[&str], &str); 4] = [
        (&[], &[], "main"),
        (&long, &[], "long"),
        (&both, &[], "long,main"),
        (&long, &["--partition", "main"], "main"),
    ];
    for (set, more, nodes_of) in all {
        let fake = Fake::new()?;
        process::succeeded(fake.submit_with(set, &[more, &["--detach"]].concat())?)?;
        let of = "sinfo --noheader --Node --partition=";
        // Compare the processors and states of the nodes.
        let (asked, all) = (fake.calls(&format!("{of}{nodes_of} "))?, fake.calls(of)?);
        ensure!(asked == 2 && all == 2, "{nodes_of}: {asked} of {all}");
    }
    let fake = Fake::new()?;
    let gone = [("SBATCH_PARTITION", "gone")];
    let output = fake.submit_with(&gone, &[])?;
    ends_with(
        &output,
        2,
        "SBATCH_PARTITION gone: Slurm has no such partition; the partitions are: long, main",
    )?;
    fs::write(fake.path("partitions"), "main\nlong\n")?;
    ensure!(!fake.path("out").exists(), "something was written");
    // Without a default, Slurm decides.
    process::succeeded(fake.submit(&["--detach"])?)?;
    let all = fake.calls("sinfo --noheader --Node --format=")?;
    ensure!(all == 2, "{all}");
    Ok(())
}

#[test_support::test]
fn where_all_nodes_are_down_or_drained_nothing_is_handed_in_and_busy_ones_are_waited_for()
-> Result<()> {
    let fake = Fake::new()?;
    let nodes = "node1|drained|a fan\nnode2|down*|Not responding\n";
    fs::write(fake.path("nodes"), nodes)?;
    let output = fake.submit(&["--detach"])?;
    let said = stderr(&output);
    ensure!(output.status.code() == Some(3), "{said}");
    has(&said, "no node can run the shards: ")?;
    has(&said, "node1: drained (a fan); ")?;
    has(&said, "node2: down* (Not responding); ")?;
    ensure!(fake.calls("sbatch ")? == 0, "it was handed in");
    // The other nodes are left, also when farwire itself leaves one out.
    fs::write(fake.path("out/nodes/node3.cannot"), "no farwire")?;
    for state in ["allocated", "completing", "idle~"] {
        let busy = format!("{nodes}node3|idle|none\nnode4|{state}|none\n");
        fs::write(fake.path("nodes"), busy)?;
        let output = fake.submit(&["--detach"])?;
        ensure!(output.status.success(), "{state}: {}", stderr(&output));
        process::succeeded(fake.farwire(&["submit", "--cancel", "out"])?)?;
    }
    // A submit that waits for tasks without a usable node ends, and ends the tasks.
    process::succeeded(fake.submit(&["--detach"])?)?;
    fs::write(fake.path("nodes"), [nodes, "node3|idle|none\n"].concat())?;
    let output = fake.submit(&[])?;
    let said = ends_with(
        &output,
        3,
        "no node can run the shards: node3: no farwire; ",
    )?;
    ensure!(fake.path("ended.4").exists(), "the array lives on: {said}");
    Ok(())
}

#[test_support::test]
fn the_script_has_paths_as_they_are_typed_with_their_links() -> Result<()> {
    let fake = Fake::new()?;
    let home = fake.path("home");
    symlink(fake.path(""), &home)?;
    let home = home.display().to_string();
    // This is the environment after a shell's `cd home`.
    let output = fake.submit_with(&[("PWD", &home)], &["--allow-files", ".", "--print"])?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    for line in [
        format!("dir='{home}/out'"),
        format!("scenario='{home}/x.toml'"),
        format!("#SBATCH --output=\"{home}/out/log/1-%a.txt\""),
    ] {
        ensure!(said.lines().any(|found| found == line), "no {line}: {said}");
    }
    has(&said, format!(" '--allow-files={home}'"))?;
    Ok(())
}
