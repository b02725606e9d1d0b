//! A running farwire that listens, and plain HTTP requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::process::{self, PATIENCE};

/// Arguments for listening on a free port of the loopback without a token, as most tests do.
pub const OPEN: [&str; 3] = ["--listen", "127.0.0.1:0", "--no-token"];

/// A running farwire that listens.
pub struct Listening {
    child: Child,
    pub at: SocketAddr,
}

/// `farwire exec` with a shell that reads commands.
pub struct Exec {
    listening: Listening,
    stdout: BufReader<ChildStdout>,
}

/// An answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    /// The body as it was received.
    pub text: String,
    /// The body as JSON, if it is JSON.
    pub body: Value,
}

impl Exec {
    /// Starts behind `link`, and returns when it answers.
    pub fn start(link: &str) -> Result<Self> {
        Self::start_as(&mut process::farwire(), link)
    }

    /// Starts `farwire` as the program.
    pub fn start_as(farwire: &mut Command, link: &str) -> Result<Self> {
        farwire
            .arg("exec")
            .args(OPEN)
            .args(link.split_whitespace())
            .args(["--", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut listening = Listening::start(farwire)?;
        let stdout = listening.child.stdout.take();
        let stdout = BufReader::new(stdout.context("its standard output")?);
        Ok(Self { listening, stdout })
    }

    /// Runs `command` in the shell behind the link, and returns the line that it prints.
    pub fn shell(&mut self, command: &str) -> Result<String> {
        let stdin = self
            .listening
            .child
            .stdin
            .as_mut()
            .context("its standard input")?;
        writeln!(stdin, "{command}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Ends the shell, and with it farwire.
    pub fn end(mut self) -> Result<()> {
        drop(self.listening.child.stdin.take());
        let status = process::end_of(&mut self.listening.child)?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Deref for Exec {
    type Target = Listening;

    fn deref(&self) -> &Listening {
        &self.listening
    }
}

impl Listening {
    /// Starts a command that reports where it listens, and returns when it has.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("its standard error")?;
        let mut at = None;
        let mut said = String::new();
        let mut lines = BufReader::new(stderr).lines();
        for line in &mut lines {
            let line = line?;
            // A warning may contain the address before.
            let marks = ["live page and API: ", "reports of "];
            let states_it = marks.iter().any(|words| line.contains(words));
            if let Some((_, url)) = line.rsplit_once(": http://").filter(|_| states_it) {
                let (address, _) = url.split_once('/').unwrap_or((url, ""));
                at = Some(address.parse()?);
                break;
            }
            said += &line;
        }
        // The lines are read to the end, so that the program never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            at: at.with_context(|| format!("it never listened: {said}"))?,
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process by SIGTERM and waits until it has ended.
    pub fn terminate(mut self) -> Result<()> {
        kill(Pid::from_raw(self.pid().try_into()?), Signal::SIGTERM)?;
        process::end_of(&mut self.child)?;
        Ok(())
    }

    /// Sends a request with these header lines and this body, and returns the answer.
    pub fn send(&self, head: &str, body: &str) -> Result<Answer> {
        let mut stream = self.connect()?;
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let head = head.to_ascii_lowercase();
        let text = if head.contains("transfer-encoding: chunked") {
            joined(body)?
        } else {
            body.to_owned()
        };
        Ok(Answer {
            status,
            head,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        })
    }

    pub fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.at)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}", self.at), "")
    }

    /// Sends a body of the type `kind`, with further header lines.
    pub fn with_body(&self, line: &str, kind: &str, more: &str, body: &str) -> Result<Answer> {
        let length = body.len();
        let host = self.at;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {length}{more}"
        );
        self.send(&head, body)
    }

    /// Sends a merge patch of the link's conditions.
    pub fn patch(&self, query: &str, body: &str) -> Result<Answer> {
        let line = format!("PATCH /v1/links/link{query}");
        self.with_body(&line, "application/merge-patch+json", "", body)
    }

    /// Returns the state of the link.
    pub fn link(&self) -> Result<Value> {
        let answer = self.get("/v1/links/link")?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body)
    }
}

/// Joins the chunks of a complete body (RFC 9112, section 7.1).
fn joined(mut chunks: &str) -> Result<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n").context("no chunk")?;
        let length = usize::from_str_radix(length, 16)?;
        if length == 0 {
            return Ok(body);
        }
        let (chunk, rest) = rest.split_at_checked(length).context("half a chunk")?;
        body += chunk;
        chunks = rest
            .strip_prefix("\r\n")
            .context("a chunk without an end")?;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}
