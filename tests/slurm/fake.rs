//! `farwire submit` with commands in Slurm's place that answer as they are told to: orders of events that a real Slurm has seldom.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::cluster::{stderr, stdout};
use crate::common::process::{self, farwire};
use crate::common::suite::Suite;

/// All of Slurm's commands. A line of `COMMAND.answers` is for one call: `cancel` puts down the mark of `--cancel` first, `fail WORDS` refuses with
/// these, `lost WORDS` does what it is to and refuses nevertheless; anything else, or no line, does it. Tasks wait until they are cancelled.
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
    *%R) echo main ;;
    *%c) echo 4 ;;
    *) echo node1 ;;
    esac ;;
sbatch)
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

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "an array that is handed in while somebody cancels is ended",
        &[],
        cancelled_meanwhile,
    );
    suite.test(
        "a submit that sees that it was cancelled ends its array, whoever else does",
        &[],
        cancelled_later,
    );
    suite.test(
        "a controller that is silent for a while is asked again, and has no array twice",
        &[],
        silent,
    );
    suite.test(
        "what Slurm refuses is bad input, and nothing of it is waited for",
        &[],
        refused,
    );
}

/// An experiment of four shards, and a Slurm that does nothing.
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

    /// What the next calls of a command come to, a line each.
    fn answers(&self, command: &str, lines: &str) -> Result<()> {
        Ok(fs::write(self.path(&format!("{command}.answers")), lines)?)
    }

    fn farwire(&self, arguments: &[&str]) -> Result<Output> {
        let mut command: Command = farwire();
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.path(""))
            .env("FAKE", self.path(""))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .args(arguments);
        process::run(&mut command)
    }

    fn submit(&self, more: &[&str]) -> Result<Output> {
        let submit = ["submit", "x.toml", "--slurm", "--out", "out"];
        let short = ["--shard-time", "1ms"];
        self.farwire(&[&submit[..], &short, more].concat())
    }

    /// How often a command was called that begins so.
    fn calls(&self, begin: &str) -> Result<usize> {
        let calls = fs::read_to_string(self.path("calls"))?;
        Ok(calls.lines().filter(|call| call.starts_with(begin)).count())
    }
}

/// That it ended because it was cancelled, and Slurm has nothing left of it.
fn is_cancelled(fake: &Fake, output: &Output) -> Result<()> {
    let said = stderr(output);
    ensure!(output.status.code() == Some(1), "{said}");
    ensure!(
        said.contains("it was cancelled; the same command goes on"),
        "{said}"
    );
    ensure!(fake.calls("sbatch ")? == 1 && fake.path("job.1").exists());
    ensure!(fake.path("ended.1").exists(), "the array lives on: {said}");
    Ok(())
}

fn cancelled_meanwhile() -> Result<()> {
    // The mark comes after the submit has looked for it, and Slurm was asked for what there is to cancel before it has the job.
    for more in [&[][..], &["--detach"]] {
        let fake = Fake::new()?;
        fake.answers("sbatch", "cancel\n")?;
        is_cancelled(&fake, &fake.submit(more)?)?;
    }
    Ok(())
}

fn cancelled_later() -> Result<()> {
    let fake = Fake::new()?;
    // It asks twice before it waits.
    fake.answers("squeue", "-\ncancel\n")?;
    is_cancelled(&fake, &fake.submit(&[])?)
}

fn silent() -> Result<()> {
    let fake = Fake::new()?;
    let silence = "fail Unable to contact slurm controller (connect failure)\n";
    fake.answers("sinfo", silence)?;
    fake.answers("squeue", silence)?;
    let lost = "lost Batch job submission failed: Socket timed out on send/recv operation\n";
    fake.answers("sbatch", &[silence, lost].concat())?;
    let output = fake.submit(&["--detach"])?;
    let said = stderr(&output);
    ensure!(output.status.success(), "{said}");
    ensure!(said.contains("job 1: 4 shards of 4\n"), "{said}");
    ensure!(fake.calls("sbatch ")? == 2, "{said}");
    ensure!(fake.path("job.1").exists() && !fake.path("job.2").exists());
    fake.answers("squeue", silence)?;
    fake.answers("scancel", silence)?;
    let output = fake.farwire(&["submit", "--cancel", "out"])?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    ensure!(said.contains("4 tasks ended"), "{said}");
    ensure!(fake.path("ended.1").exists(), "the array lives on");
    Ok(())
}

fn refused() -> Result<()> {
    let fake = Fake::new()?;
    let refusal = "fail Batch job submission failed: Invalid account\n";
    fake.answers("sbatch", &refusal.repeat(2))?;
    for _ in 0..2 {
        let output = fake.submit(&[])?;
        ensure!(output.status.code() == Some(2), "{}", stderr(&output));
        ensure!(
            stderr(&output).contains("Invalid account"),
            "{}",
            stderr(&output)
        );
    }
    let output = fake.submit(&["--detach"])?;
    let said = stderr(&output);
    ensure!(output.status.success(), "{said}");
    ensure!(said.contains("job 1: 4 shards of 4\n"), "{said}");
    ensure!(!said.contains("knows its task no more"), "{said}");
    Ok(())
}
