//! Runs Slurm's commands with a time limit, repeats them if Slurm does not answer, and classifies
//! failures.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::notes::note;
use netio::kill_on_drop::KillOnDrop;
use netio::stop::Stop;

/// The time limit of a command.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which Slurm may stay silent. It allows for a restart of the controller.
const RETRY_LIMIT: Duration = Duration::from_secs(600);
/// The interval between two requests to a silent Slurm.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Slurm's messages if the controller cannot have received the request, and if it may have.
const UNREACHED: [&str; 2] = ["connect failure", "standby mode"];
const UNANSWERED: [&str; 5] = [
    "send failure",
    "receive failure",
    "shutdown failure",
    "Socket timed out",
    "Zero Bytes were",
];
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Prefixes of variables with which users change the output that this module parses, and variables
/// that would override lines of the script.
const OUTPUT_PREFIXES: [&str; 2] = ["SQUEUE_", "SINFO_"];
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
/// The variables that would override the script's lines for --partition and --time, which users may
/// leave to their environment. sbatch(1) has none for --cpus.
pub(super) const PARTITION: &str = "SBATCH_PARTITION";
pub(super) const TIME_LIMIT: &str = "SBATCH_TIMELIMIT";

/// Repeated requests to a Slurm that does not answer.
pub(super) struct SlurmRetry<'a> {
    stop: &'a Stop,
    since: Option<Instant>,
}

impl<'a> SlurmRetry<'a> {
    /// Creates the state for requests that end when `stop` is set.
    pub(super) fn of(stop: &'a Stop) -> Self {
        Self { stop, since: None }
    }

    /// Waits until the next request. Fails with the last error if Slurm has been silent for too
    /// long.
    pub(super) fn wait(&mut self, error: anyhow::Error) -> Result<()> {
        if let Some(cause) = self.stop.cause() {
            bail!("{cause}; run the same command to continue");
        }
        match self.since {
            None => {
                note(format_args!("{error:#}; retrying for at most 10 min"));
                self.since = Some(Instant::now());
            }
            Some(since) if since.elapsed() > RETRY_LIMIT => {
                return Err(error.context(
                    "Slurm has not answered for 10 min; run the same command to continue",
                ));
            }
            Some(_) => {}
        }
        thread::sleep(RETRY_INTERVAL);
        Ok(())
    }
}

/// The effect of a command that failed.
#[derive(Debug, PartialEq)]
pub(super) enum CommandFailure {
    Refused,
    /// Slurm did not receive the request.
    Unreached,
    /// Slurm may have done the request.
    Unknown,
}

/// The output of a command.
pub(super) struct SlurmOutput {
    program: String,
    /// The exit status; `None` if the command did not end in time.
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

impl SlurmOutput {
    /// Returns the standard output if the command succeeded.
    pub(super) fn answer(self) -> Result<String> {
        let program = self.program;
        let status = self.status.with_context(|| {
            format!(
                "{program} did not answer within {} s",
                COMMAND_TIMEOUT.as_secs()
            )
        })?;
        // Slurm prints its cause and the outcome on separate lines; they are joined.
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

    /// Returns the effect of a command that failed.
    pub(super) fn failure(&self) -> CommandFailure {
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

/// Runs one of Slurm's commands with a time limit.
pub(super) fn run(program: &str, arguments: &[&str]) -> Result<SlurmOutput> {
    run_without(program, arguments, &[])
}

/// Does the same without these environment variables, because the command's own options already set
/// their values.
pub(super) fn run_without(
    program: &str,
    arguments: &[&str],
    already_set: &[&str],
) -> Result<SlurmOutput> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    for (name, _) in std::env::vars_os() {
        if is_withheld(&name.to_string_lossy(), already_set) {
            command.env_remove(&name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The terminal's Ctrl-C must not interrupt sbatch.
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
                None if begun.elapsed() > COMMAND_TIMEOUT => break None,
                None => thread::sleep(POLL_INTERVAL),
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

/// Returns true if a variable is hidden from Slurm's commands, including those in `already_set`.
fn is_withheld(name: &str, already_set: &[&str]) -> bool {
    OUTPUT_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || OVERRIDING.contains(&name)
        || already_set.contains(&name)
}

fn text(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // Everything read before an error is still useful.
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn given_options_are_not_overridden_and_other_variables_are_kept() {
        let already_set = [PARTITION, TIME_LIMIT];
        for always in ["SBATCH_OUTPUT", "SBATCH_OPEN_MODE", "SINFO_PARTITION"] {
            assert!(is_withheld(always, &[]), "{always}");
        }
        for name in already_set {
            assert!(is_withheld(name, &already_set), "{name}");
            assert!(!is_withheld(name, &[]), "{name}");
        }
        for others in ["SBATCH_ACCOUNT", "SBATCH_QOS", "SLURM_CONF", "PATH"] {
            assert!(!is_withheld(others, &already_set), "{others}");
        }
    }

    #[test]
    fn a_script_is_handed_in_again_only_if_slurm_did_not_receive_it() {
        let failure = |status: Option<i32>, stderr: &str| {
            let output = SlurmOutput {
                program: "sbatch".to_owned(),
                status: status.map(ExitStatus::from_raw),
                stdout: String::new(),
                stderr: format!("sbatch: error: Batch job submission failed: {stderr}\n"),
            };
            output.failure()
        };
        let failed = Some(1 << 8);
        assert_eq!(
            failure(
                failed,
                "Unable to contact slurm controller (connect failure)"
            ),
            CommandFailure::Unreached
        );
        let timed_out = "Socket timed out on send/recv operation";
        assert_eq!(failure(failed, timed_out), CommandFailure::Unknown);
        // A killed command, and one without an answer.
        assert_eq!(failure(Some(9), ""), CommandFailure::Unknown);
        assert_eq!(failure(None, ""), CommandFailure::Unknown);
        assert_eq!(failure(failed, "Invalid account"), CommandFailure::Refused);
    }
}
