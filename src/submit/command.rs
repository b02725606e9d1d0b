//! Running Slurm's commands: in bounded time, again where nobody answers, and what became of what failed.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::notes::note;
use netio::kill_on_drop::KillOnDrop;
use netio::stop::Stop;

/// What a command may take.
pub(super) const ANSWER: Duration = Duration::from_secs(60);
/// How long Slurm may be silent: a controller that is started again is back by then.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two questions to one that is.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// In Slurm's words, of a controller that never heard of what was asked, and of one that may have.
const UNREACHED: [&str; 2] = ["connect failure", "standby mode"];
const UNANSWERED: [&str; 5] = [
    "send failure",
    "receive failure",
    "shutdown failure",
    "Socket timed out",
    "Zero Bytes were",
];
const STEP: Duration = Duration::from_millis(10);
/// What users set to have their own views, which are not ours, and what would override a script's own lines.
const FOREIGN: [&str; 2] = ["SQUEUE_", "SINFO_"];
const OVERRIDING: [&str; 8] = [
    "SBATCH_ARRAY_INX",
    "SBATCH_JOB_NAME",
    "SBATCH_OUTPUT",
    "SBATCH_OPEN_MODE",
    "SBATCH_ERROR",
    "SBATCH_REQUEUE",
    "SBATCH_WAIT",
    "SBATCH_CLUSTERS",
];
/// What would override lines that the user may leave to them: those of --partition and --time. sbatch(1) has none for --cpus.
pub(super) const PARTITION: &str = "SBATCH_PARTITION";
pub(super) const TIME_LIMIT: &str = "SBATCH_TIMELIMIT";

/// A Slurm that does not answer, and is asked again.
pub(super) struct Silence<'a> {
    stop: &'a Stop,
    since: Option<Instant>,
}

impl<'a> Silence<'a> {
    /// One that is asked no more when `stop` says so.
    pub(super) fn of(stop: &'a Stop) -> Self {
        Self { stop, since: None }
    }

    /// Waits until the next question; fails with what came of the last one when it has been asked for long enough.
    pub(super) fn wait(&mut self, error: anyhow::Error) -> Result<()> {
        if let Some(cause) = self.stop.cause() {
            bail!("{cause}; the same command continues");
        }
        match self.since {
            None => {
                note(format_args!("{error:#}; retrying for at most 10 min"));
                self.since = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => {
                return Err(
                    error.context("Slurm has not answered for 10 min; the same command continues")
                );
            }
            Some(_) => {}
        }
        thread::sleep(AGAIN);
        Ok(())
    }
}

/// What became of what a command that failed was to do.
#[derive(Debug, PartialEq)]
pub(super) enum CommandFailure {
    Refused,
    /// Nobody heard of it.
    Unreached,
    /// It may have been done.
    Unknown,
}

/// What a command came to.
pub(super) struct SlurmOutput {
    program: String,
    /// Nothing of one that did not end.
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

impl SlurmOutput {
    /// What it printed, if it did what it was to.
    pub(super) fn answer(self) -> Result<String> {
        let program = self.program;
        let status = self
            .status
            .with_context(|| format!("{program} did not answer within {} s", ANSWER.as_secs()))?;
        // Beside its cause it repeats the outcome: the lines make one.
        let lines = self.stderr.lines().map(str::trim);
        let cause: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        ensure!(
            status.success(),
            "{}",
            match &cause[..] {
                [] => format!("{program}: {status}"),
                cause => cause.join("; "),
            }
        );
        Ok(self.stdout)
    }

    /// Of one that failed, what became of what it was to do.
    pub(super) fn fate(&self) -> CommandFailure {
        let says = |words: &[&str]| words.iter().any(|words| self.stderr.contains(words));
        let ended = self.status.and_then(|status| status.code()).is_some();
        if says(&UNREACHED) {
            CommandFailure::Unreached
        } else if !ended || says(&UNANSWERED) {
            CommandFailure::Unknown
        } else {
            CommandFailure::Refused
        }
    }
}

/// Runs one of Slurm's commands, in bounded time.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<SlurmOutput> {
    run_without(program, arguments, &[])
}

/// The same without these variables: what they say was said otherwise.
pub(super) fn run_without(program: &str, arguments: &[&str], said: &[&str]) -> Result<SlurmOutput> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    for (name, _) in std::env::vars_os() {
        if is_withheld(&name.to_string_lossy(), said) {
            command.env_remove(&name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // What is typed to end this program is no reason for sbatch to end half-way.
    command.process_group(0);
    let mut running = KillOnDrop::spawn(&mut command).with_context(|| program.to_owned())?;
    let child = running.streams();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let begun = Instant::now();
    thread::scope(|scope| {
        let stdout = scope.spawn(move || text(stdout));
        let stderr = scope.spawn(move || text(stderr));
        let status = loop {
            match running.streams().try_wait()? {
                Some(status) => break Some(status),
                None if begun.elapsed() > ANSWER => break None,
                None => thread::sleep(STEP),
            }
        };
        if status.is_none() {
            drop(running);
        }
        Ok(SlurmOutput {
            program: program.to_owned(),
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
        })
    })
}

/// Whether a variable is kept from Slurm's commands, beside those of what was `said`.
fn is_withheld(name: &str, said: &[&str]) -> bool {
    FOREIGN.iter().any(|prefix| name.starts_with(prefix))
        || OVERRIDING.contains(&name)
        || said.contains(&name)
}

fn text(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What could be read before an error is what there is to say.
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn what_was_said_is_not_overridden_and_the_rest_is_left_to_the_user() {
        let said = [PARTITION, TIME_LIMIT];
        for always in ["SBATCH_OUTPUT", "SBATCH_OPEN_MODE", "SINFO_PARTITION"] {
            assert!(is_withheld(always, &[]), "{always}");
        }
        for name in said {
            assert!(is_withheld(name, &said), "{name}");
            assert!(!is_withheld(name, &[]), "{name}");
        }
        for others in ["SBATCH_ACCOUNT", "SBATCH_QOS", "SLURM_CONF", "PATH"] {
            assert!(!is_withheld(others, &said), "{others}");
        }
    }

    #[test]
    fn a_script_is_handed_in_again_only_where_nobody_heard_of_it() {
        let fate = |status: Option<i32>, stderr: &str| {
            let said = SlurmOutput {
                program: "sbatch".to_owned(),
                status: status.map(ExitStatus::from_raw),
                stdout: String::new(),
                stderr: format!("sbatch: error: Batch job submission failed: {stderr}\n"),
            };
            said.fate()
        };
        let failed = Some(1 << 8);
        assert_eq!(
            fate(
                failed,
                "Unable to contact slurm controller (connect failure)"
            ),
            CommandFailure::Unreached
        );
        let timed_out = "Socket timed out on send/recv operation";
        assert_eq!(fate(failed, timed_out), CommandFailure::Unknown);
        // Killed, and without an answer.
        assert_eq!(fate(Some(9), ""), CommandFailure::Unknown);
        assert_eq!(fate(None, ""), CommandFailure::Unknown);
        assert_eq!(fate(failed, "Invalid account"), CommandFailure::Refused);
    }
}
