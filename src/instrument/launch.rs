//! External tools: found on PATH, run where the traffic is, their output kept with its time of arrival.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::Stop;
use super::stop::STOP_INTERVAL;

/// Runs a tool where the client is, with a locale whose output the parsers know.
pub(crate) trait Launcher {
    /// Runs `tool` to its end and keeps its output.
    ///
    /// # Errors
    /// The tool did not start, or was stopped for the cause that is named.
    fn launch(&self, tool: &Tool, arguments: &[String], stop: &Stop) -> Result<Output>;
}

/// An external program.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// The first line it says of itself.
    pub(crate) version: String,
}

/// What a tool said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    /// Standard output and standard error together, in the order of arrival.
    pub(crate) lines: Vec<Line>,
    /// Exit code; 128 + n when signal n ended it.
    pub(crate) code: i32,
}

/// One line and when its end arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Seconds since the tool started.
    pub(crate) at_s: f64,
    /// Without the line feed.
    pub(crate) text: String,
}

impl Tool {
    /// The program `name` on PATH and its version.
    ///
    /// # Errors
    /// It is not there: says which Debian package has it.
    pub(crate) fn find(name: &str, version_flag: &str, package: &str) -> Result<Self> {
        let path = which::which(name).map_err(|_| {
            anyhow!("{name} is not on PATH; on Debian it is in the package {package} (apt-get install {package})")
        })?;
        let output = Command::new(&path)
            .arg(version_flag)
            .stdin(Stdio::null())
            .output()
            .with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text
            .lines()
            .next()
            .unwrap_or("version unknown")
            .trim()
            .to_owned();
        Ok(Self { path, version })
    }
}

/// Every line that `child` says on the streams that are pipes, until it closes them.
///
/// # Errors
/// It was to `stop`; the caller ends the child.
pub(crate) fn lines_of(child: &mut Child, stop: &Stop) -> Result<Vec<Line>> {
    let start = Instant::now();
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        read_lines(stdout, start, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read_lines(stderr, start, sender);
    }
    let mut lines = Vec::new();
    loop {
        match receiver.recv_timeout(STOP_INTERVAL) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Disconnected) => return Ok(lines),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(cause) = stop.cause() {
            bail!("{cause}");
        }
    }
}

impl Output {
    /// The last line that says something, for an error message.
    pub(crate) fn last_words(&self) -> &str {
        let said = self.lines.iter().rev().map(|line| line.text.trim());
        said.into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or("no output")
    }
}

fn read_lines(source: impl Read + Send + 'static, start: Instant, sender: Sender<Line>) {
    thread::spawn(move || {
        for bytes in BufReader::new(source).split(b'\n') {
            let Ok(bytes) = bytes else { return };
            let line = Line {
                at_s: start.elapsed().as_secs_f64(),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    /// Runs tools in the namespace of the test.
    pub(crate) struct Here;

    impl Launcher for Here {
        fn launch(&self, tool: &Tool, arguments: &[String], stop: &Stop) -> Result<Output> {
            let mut command = Command::new(&tool.path);
            command
                .args(arguments)
                .env("LC_ALL", "C")
                .stdin(Stdio::null());
            let mut child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let lines = lines_of(&mut child, stop);
            if lines.is_err() {
                child.kill()?;
            }
            let code = child.wait()?.code().unwrap_or(-1);
            Ok(Output {
                lines: lines?,
                code,
            })
        }
    }

    /// Captured output with times of arrival of 0.
    pub(crate) fn captured(text: &str, code: i32) -> Output {
        Output {
            lines: text
                .lines()
                .map(|text| Line {
                    at_s: 0.0,
                    text: text.to_owned(),
                })
                .collect(),
            code,
        }
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let error = Tool::find("no-such-tool", "-V", "some-package")
            .unwrap_err()
            .to_string();
        assert!(error.contains("apt-get install some-package"), "{error}");
    }

    #[test]
    fn both_outputs_and_the_exit_code_are_kept() {
        let tool = Tool::find("sh", "--version", "dash").unwrap();
        let script = ["-c", "echo one; echo two >&2; exit 3"].map(str::to_owned);
        let output = Here.launch(&tool, &script, &Stop::default()).unwrap();
        let mut texts: Vec<_> = output.lines.iter().map(|line| line.text.as_str()).collect();
        texts.sort_unstable();
        assert_eq!(texts, ["one", "two"]);
        assert_eq!(output.code, 3);
    }

    #[test]
    fn a_tool_that_does_not_end_is_stopped_at_the_time_out() {
        let tool = Tool::find("sleep", "--version", "coreutils").unwrap();
        let stop = Stop::default().within(Duration::ZERO);
        let error = Here.launch(&tool, &["60".to_owned()], &stop).unwrap_err();
        assert!(error.to_string().contains("not done within 0 s"), "{error}");
    }
}
