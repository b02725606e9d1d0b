//! The process on the host's side: pasta, and the helper that starts and watches it.
//!
//! pasta must run on the host, but farwire enters namespaces from which nothing leads back. Therefore farwire first starts
//! a helper, which is this program again with the hidden command `host-gateway`. The helper reads pasta's command line
//! from its standard input when the namespaces exist. It kills pasta when its standard input ends, however farwire has
//! ended.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use instruments::external::Tool;
use netio::bed::{CLIENT, HOST, HOST_TAP};
use netio::iface::DefaultRoutes;
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The name of the hidden command.
const HOST_GATEWAY: &str = "host-gateway";
/// The options without which pasta is too old.
const NEEDED: [&str; 11] = [
    "--userns",
    "--netns",
    "--no-netns-quit",
    "--ns-ifname",
    "--mac-addr",
    "--address",
    "--gateway",
    "--tcp-ns",
    "--udp-ns",
    "--no-ndp",
    "--no-ra",
];
/// The device with which pasta makes its tap.
const TUN: &str = "/dev/net/tun";
/// The most lines of pasta that are kept.
const MOST_LINES: usize = 20;

/// pasta, which is on this machine and new enough.
#[derive(Debug)]
pub(super) struct Pasta {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

/// The helper, which waits for pasta's command line or runs pasta. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Child,
    /// `None` while this is being dropped.
    input: Option<ChildStdin>,
    /// `None` once a thread reads it.
    output: Option<ChildStdout>,
    said: Arc<Mutex<Vec<String>>>,
    has_ended: Arc<AtomicBool>,
}

impl Pasta {
    /// Finds pasta, and checks that it is new enough and can make a tap.
    ///
    /// # Errors
    /// Names what is missing, and the way round.
    pub(super) fn find() -> Result<Self> {
        let tool = Tool::find("pasta", "--version", "passt").context("--net host needs pasta")?;
        let help = Command::new(&tool.path)
            .arg("--help")
            .stdin(Stdio::null())
            .output()
            .with_context(|| tool.path.display().to_string())?;
        let help = [help.stdout, help.stderr].concat();
        let help = String::from_utf8_lossy(&help);
        if let Some(option) = missing_option(&help) {
            bail!(
                "--net host: {} is too old ({}): it has no option {option}; install passt of Debian 12, Ubuntu 24.04 or later",
                tool.path.display(),
                tool.version
            );
        }
        let device = std::fs::File::options().read(true).write(true).open(TUN);
        device.with_context(|| {
            format!(
                "--net host: pasta needs {TUN}; as root, run `modprobe tun` and `chmod 666 {TUN}`"
            )
        })?;
        Ok(Self {
            path: tool.path,
            version: tool.version,
        })
    }

    /// Returns the command line that makes the tap in `namespace`, which this process holds.
    pub(super) fn command_line(
        &self,
        namespace: &NetNs,
        is_root: bool,
        mtu: u32,
        families: DefaultRoutes,
    ) -> Vec<String> {
        let process = std::process::id();
        let fd = namespace.as_fd().as_raw_fd();
        let mut line = vec![self.path.display().to_string()];
        let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
        add(&["--foreground", "--quiet", "--no-netns-quit"]);
        add(&["--userns", &format!("/proc/{process}/ns/user")]);
        add(&["--netns", &format!("/proc/{process}/fd/{fd}")]);
        if is_root {
            // Otherwise it would become the user nobody, who may not enter the namespace.
            add(&["--runas", "0:0"]);
        }
        add(&["--ns-ifname", HOST_TAP, "--mtu", &mtu.to_string()]);
        add(&["--mac-addr", &mac_text(HOST.mac)]);
        if families.v4 {
            add(&["--address", &CLIENT.v4.to_string(), "--netmask", "24"]);
            add(&["--gateway", &HOST.v4.to_string()]);
        } else {
            add(&["--ipv6-only"]);
        }
        if families.v6 {
            add(&["--address", &CLIENT.v6.to_string()]);
            add(&["--gateway", &HOST.v6.to_string()]);
        } else {
            add(&["--ipv4-only"]);
        }
        // Otherwise connections of the loopback would bypass the link.
        add(&["-t", "none", "-u", "none", "-T", "none", "-U", "none"]);
        add(&["--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra"]);
        line
    }
}

impl Gateway {
    /// Starts the helper, which waits. Call it before this process enters namespaces.
    ///
    /// # Errors
    /// The helper cannot be started.
    pub(super) fn prepare() -> Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .args(["--quiet", HOST_GATEWAY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group keeps the terminal's Ctrl-C away from it.
            .process_group(0)
            .spawn()
            .context("--net host: cannot start the helper process")?;
        Ok(Self {
            input: process.stdin.take(),
            output: process.stdout.take(),
            process,
            said: Arc::default(),
            has_ended: Arc::default(),
        })
    }

    /// Lets the helper start pasta.
    ///
    /// # Errors
    /// The helper has ended.
    pub(super) fn start(&mut self, command_line: &[String]) -> Result<()> {
        let input = self.input.as_mut().context("the helper has no input")?;
        let line = serde_json::to_string(command_line)?;
        writeln!(input, "{line}").context("--net host: the helper process has ended")?;
        let output = self.output.take().context("the helper is running pasta")?;
        let (said, has_ended) = (Arc::clone(&self.said), Arc::clone(&self.has_ended));
        thread::Builder::new()
            .name("pasta".to_owned())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    keep(
                        &mut said.lock().unwrap_or_else(PoisonError::into_inner),
                        line,
                    );
                }
                has_ended.store(true, Ordering::Release);
            })?;
        Ok(())
    }

    /// Returns the flag that is set when pasta has ended.
    pub(super) fn has_ended(&self) -> &Arc<AtomicBool> {
        &self.has_ended
    }

    /// Returns the last lines that pasta has printed, as one line.
    pub(super) fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.join("; ")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// Runs the helper: starts pasta with the command line from standard input, and kills it when the input ends.
///
/// # Errors
/// pasta cannot be started.
pub(crate) fn run_gateway() -> Result<()> {
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(());
    }
    let command_line: Vec<String> = serde_json::from_str(&line)?;
    let (program, arguments) = command_line.split_first().context("no command line")?;
    let output = || io::stdout().as_fd().try_clone_to_owned();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(output()?).stderr(output()?);
    let mut pasta = KillOnDrop::spawn(&mut command).with_context(|| program.clone())?;
    let pid = Pid::from_raw(i32::try_from(pasta.streams().id())?);
    thread::spawn(move || {
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = kill(pid, Signal::SIGKILL);
    });
    // farwire notices the end, and tells what pasta has said.
    pasta.wait()?;
    Ok(())
}

/// Returns the first of the needed options that the help text of pasta does not name.
fn missing_option(help: &str) -> Option<&'static str> {
    let words: Vec<&str> = help.split([' ', '\t', '\n', ',']).collect();
    NEEDED.into_iter().find(|option| !words.contains(option))
}

/// Keeps a line of pasta among the last ones, except complaints about the system log.
fn keep(said: &mut Vec<String>, line: String) {
    if line.contains("to syslog") || line.trim().is_empty() {
        return;
    }
    if said.len() == MOST_LINES {
        said.remove(0);
    }
    said.push(line);
}

fn mac_text(mac: [u8; 6]) -> String {
    let digits = mac.map(|byte| format!("{byte:02x}"));
    digits.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasta_is_too_old_if_its_help_lacks_an_option() {
        let help = NEEDED.map(|option| format!("  -x, {option} ADDR\twhat it does\n"));
        assert_eq!(missing_option(&help.concat()), None);
        assert_eq!(missing_option(&help[..7].concat()), Some("--tcp-ns"));
        assert_eq!(missing_option("--netns-only --userns-x"), Some("--userns"));
    }

    #[test]
    fn the_last_lines_of_pasta_are_kept_without_its_complaints_about_the_log() {
        let mut said = Vec::new();
        for number in 0..30 {
            keep(&mut said, format!("line {number}"));
            keep(&mut said, "Failed to send 5 bytes to syslog".to_owned());
        }
        assert_eq!(said.len(), MOST_LINES);
        assert_eq!(said[MOST_LINES - 1], "line 29");
    }
}
