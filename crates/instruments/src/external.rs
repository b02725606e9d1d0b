//! External tools: found on PATH, run where the traffic is. Their output is kept with its time of arrival.

use serde::Deserialize;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Instant;
use std::{iter, thread};

use crate::error::{Context, Error, Result, ensure};
use netio::contain::{self, Contained};
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use netio::stop::{STOP_INTERVAL, Stop};
use record::Measurement;

use crate::failure::check_stop;
use crate::measured::failed;

/// The most bytes that a tool may write. iperf3 writes about 1 KiB per stream and interval.
const MOST_OUTPUT: usize = 64 << 20;
/// The number of lines that may wait for the parser.
const LINES_AHEAD: usize = 1024;

/// The way to start tools: always in the calling thread's network namespace, and with a locale whose output the parsers
/// know.
#[derive(Clone, Copy, Debug)]
pub enum Launcher {
    /// On the host: a tool ends with the calling thread.
    OnHost,
    /// In a test bed, where this program may create PID namespaces: a tool ends together with everything that it
    /// started.
    InTestBed,
}

/// A running tool, which ends when this value is dropped.
#[derive(Debug)]
pub enum Running {
    /// A tool in its own PID namespace, together with everything that it started.
    Contained(Contained),
    /// Only the process of the tool.
    ByItself(KillOnDrop),
}

/// An external program.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The path where it was found.
    pub path: PathBuf,
    /// The first line of its version text.
    pub version: String,
}

/// The output of a tool that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolOutput {
    /// The lines of standard output and standard error, in the order of arrival.
    pub(crate) lines: Vec<OutputLine>,
    /// The exit code, or 128 + n if signal n ended the tool.
    pub(crate) code: i32,
}

/// A line of output and its time of arrival.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputLine {
    /// Time when the end of the line arrived, in seconds since the tool started.
    pub(crate) at_s: f64,
    /// The stream on which the line arrived.
    pub(crate) stream: OutputStream,
    /// The line without its line feed.
    pub(crate) text: String,
}

/// A standard stream of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

impl Tool {
    /// Finds the program `name` on PATH and its version.
    ///
    /// # Errors
    /// Returns an error that names the Debian package if the program is not on PATH.
    pub fn find(name: &str, version_flag: &str, package: &str) -> Result<Self> {
        let path = which::which(name).map_err(|_| {
            Error::Tool(format!("{name} is not on PATH; on Debian, install the package {package} (apt-get install {package})"))
        })?;
        let output = Command::new(&path)
            .arg(version_flag)
            .stdin(Stdio::null())
            .output()
            .with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .lines()
            .next()
            .unwrap_or("version unknown")
            .trim()
            .to_owned();
        Ok(Self { path, version })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Launcher {
    /// Starts `tool`, which ends when the result is dropped.
    ///
    /// # Errors
    /// Returns an error if the tool does not start.
    pub fn start(self, tool: &Tool, arguments: &[String]) -> Result<Running> {
        let started = match self {
            Self::OnHost => {
                let mut command = Command::new(&tool.path);
                KillOnDrop::spawn(prepared(command.args(arguments))).map(Running::ByItself)
            }
            Self::InTestBed => {
                let program = OsString::from(&tool.path);
                let arguments = arguments.iter().map(OsString::from);
                let argv: Vec<OsString> = iter::once(program).chain(arguments).collect();
                let mut command = contain::command(&NetNs::current()?, &argv)?;
                Contained::spawn(prepared(&mut command)).map(Running::Contained)
            }
        };
        started.with_context(|| format!("{} did not start", tool.name()))
    }

    /// Runs `tool` to its end and returns its output.
    ///
    /// # Errors
    /// Returns an error if the tool does not start, writes too much, or is stopped; a stop names its cause.
    pub(crate) fn run(self, tool: &Tool, arguments: &[String], stop: &Stop) -> Result<ToolOutput> {
        let mut running = self.start(tool, arguments)?;
        let lines = lines_of(running.streams(), stop).with_context(|| tool.name())?;
        let code = running.wait()?;
        Ok(ToolOutput { lines, code })
    }

    /// Runs `tool` with `arguments` and returns the measurement that `parse` reads from its output.
    pub(crate) fn measure(
        self,
        tool: &Tool,
        arguments: &[String],
        stop: &Stop,
        parse: impl FnOnce(&ToolOutput) -> Measurement,
    ) -> Measurement {
        let output = self.run(tool, arguments, stop);
        let measurement = output.map_or_else(failed, |output| parse(&output));
        measurement.with_fact("tool", &tool.version)
    }
}

impl Running {
    fn streams(&mut self) -> &mut Child {
        match self {
            Self::Contained(contained) => contained.streams(),
            Self::ByItself(child) => child.streams(),
        }
    }

    fn wait(&mut self) -> io::Result<i32> {
        match self {
            Self::Contained(contained) => contained.wait(),
            Self::ByItself(child) => child.wait(),
        }
    }
}

impl ToolOutput {
    /// Returns the text of standard output.
    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .filter(|line| line.stream == OutputStream::Stdout)
            .map(|line| line.text.clone() + "\n")
            .collect()
    }

    /// Returns the lines of both streams.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.text.as_str())
    }

    /// Returns the last line that is not empty, for an error message.
    pub(crate) fn last_line(&self) -> &str {
        let mut texts = self.lines.iter().rev().map(|line| line.text.trim());
        texts.find(|text| !text.is_empty()).unwrap_or("no output")
    }

    /// Returns a description of how `tool` ended, for an error message.
    pub(crate) fn exit_message(&self, tool: &str) -> String {
        let (code, last_line) = (self.code, self.last_line());
        format!("{tool} ended with code {code}: {last_line}")
    }
}

fn prepared(command: &mut Command) -> &mut Command {
    command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// Reads all lines of `child` until it closes its streams.
fn lines_of(child: &mut Child, stop: &Stop) -> Result<Vec<OutputLine>> {
    let start = Instant::now();
    let (sender, receiver) = mpsc::sync_channel(LINES_AHEAD);
    if let Some(stdout) = child.stdout.take() {
        read_lines(stdout, OutputStream::Stdout, start, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read_lines(stderr, OutputStream::Stderr, start, sender);
    }
    let mut lines: Vec<OutputLine> = Vec::new();
    let mut room = MOST_OUTPUT;
    loop {
        match receiver.recv_timeout(STOP_INTERVAL) {
            Ok(line) => {
                room = room.saturating_sub(line.text.len() + size_of::<OutputLine>());
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(lines),
            Err(RecvTimeoutError::Timeout) => {}
        }
        ensure!(Tool, room > 0, "printed more than {MOST_OUTPUT} bytes");
        check_stop(stop)?;
    }
}

/// Sends every line of `source` to the channel; a line that is too long is sent in pieces.
fn read_lines(
    source: impl Read + Send + 'static,
    stream: OutputStream,
    start: Instant,
    sender: SyncSender<OutputLine>,
) {
    const LONGEST_LINE: u64 = 1 << 20;
    thread::spawn(move || {
        let mut source = BufReader::new(source);
        loop {
            let mut bytes = Vec::new();
            let mut piece = (&mut source).take(LONGEST_LINE);
            let Ok(1..) = piece.read_until(b'\n', &mut bytes) else {
                return;
            };
            let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let line = OutputLine {
                at_s: start.elapsed().as_secs_f64(),
                stream,
                text: String::from_utf8_lossy(text).into_owned(),
            };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
}

/// The server program of an external tool, to run at the far end.
pub struct FarTool {
    /// The program.
    pub tool: Tool,
    /// The arguments of its command line.
    pub arguments: Vec<String>,
    /// The port on which it listens.
    pub port: u16,
}

/// Returns a number as a word of a command line.
pub(crate) fn word(number: impl ToString) -> Option<String> {
    Some(number.to_string())
}

/// Returns flags and their values as words of a command line. Flags without a value are left out.
pub(crate) fn words(flags: &[(&str, Option<String>)]) -> Vec<String> {
    let present = flags
        .iter()
        .filter_map(|(flag, value)| Some([(*flag).to_owned(), value.clone()?]));
    present.flatten().collect()
}

/// A number from a tool's output that can be an amount: not negative, and at most 1e22, which is more than the number
/// of bits in a year at 100 Tbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct ToolNumber(pub(crate) f64);

impl TryFrom<f64> for ToolNumber {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        const MOST: f64 = 1e22;
        let possible = (0.0..=MOST).contains(&value).then_some(Self(value));
        possible.ok_or("this is not a possible amount")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns captured standard output whose lines arrived at 0 s.
    pub(crate) fn captured(text: &str, code: i32) -> ToolOutput {
        let line = |text: &str| OutputLine {
            at_s: 0.0,
            stream: OutputStream::Stdout,
            text: text.to_owned(),
        };
        ToolOutput {
            lines: text.lines().map(line).collect(),
            code,
        }
    }

    fn shell(script: &str, stop: &Stop) -> Result<ToolOutput> {
        let tool = Tool::find("sh", "--version", "dash").unwrap();
        Launcher::OnHost.run(&tool, &["-c", script].map(str::to_owned), stop)
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
        let output = shell("echo one; echo two >&2; exit 3", &Stop::default()).unwrap();
        let mut texts: Vec<_> = output.lines.iter().map(|line| line.text.as_str()).collect();
        texts.sort_unstable();
        assert_eq!(texts, ["one", "two"]);
        assert_eq!(output.text(), "one\n");
        assert_eq!(output.code, 3);
    }

    #[test]
    fn a_tool_is_stopped_at_the_time_out() {
        let stop = Stop::default().within(Duration::ZERO);
        let error = shell("exec sleep 60", &stop).unwrap_err();
        assert!(
            format!("{error:#}").contains("not done within 0 s"),
            "{error:#}"
        );
    }

    #[test]
    fn a_tool_with_endless_output_is_ended() {
        for script in ["exec yes", "exec tr '\\0' x < /dev/zero"] {
            let error = format!("{:#}", shell(script, &Stop::default()).unwrap_err());
            assert!(error.contains("printed more than"), "{error}");
        }
    }

    #[test]
    fn a_tool_that_cannot_be_executed_is_named() {
        let tool = Tool {
            path: "/dev/null".into(),
            version: String::new(),
        };
        let error = Launcher::OnHost
            .run(&tool, &[], &Stop::default())
            .unwrap_err();
        assert!(
            format!("{error:#}").contains("/dev/null did not start"),
            "{error:#}"
        );
    }
}
