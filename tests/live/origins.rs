//! Access to the API on this machine by socket and token, and the log of who changed what.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use test_support::api;
use test_support::powerless::farwire_of_ordinary_user;
use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

/// The words before the address that farwire prints.
const SAID: &str = "live page and API: ";

/// `farwire exec` with these arguments and a delay of 20 ms, and its output at the start.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    said: Vec<String>,
    /// The URL that it printed.
    url: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_as(&mut farwire(), arguments)
    }

    /// Starts `farwire` as the program.
    fn start_as(farwire: &mut Command, arguments: &[&str]) -> Result<Self> {
        let mut child = farwire
            .args(["exec", "--delay", "20ms"])
            .args(arguments)
            .args(["--", "cat"])
            .env_remove("FARWIRE_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("its standard error")?;
        let mut running = Self {
            child,
            lines: BufReader::new(stderr).lines(),
            said: Vec::new(),
            url: String::new(),
        };
        let line = running.line(SAID)?;
        let (_, url) = line.split_once(SAID).context("an address")?;
        running.url = url.to_owned();
        Ok(running)
    }

    /// Returns the next line with these words.
    fn line(&mut self, words: &str) -> Result<String> {
        for line in &mut self.lines {
            let line = line?;
            self.said.push(line.clone());
            if line.contains(words) {
                return Ok(line);
            }
        }
        anyhow::bail!("it never said `{words}`: {:?}", self.said)
    }

    /// Returns only the address.
    fn address(&self) -> Result<&str> {
        let address = self.url.strip_prefix("http://").context("no TLS")?;
        Ok(address.split_once('/').context("a path")?.0)
    }

    /// Returns the status of the answer to a request with this header.
    fn status(&self, header: &str) -> Result<u16> {
        let address = self.address()?;
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET /v1/links HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        has(&answer.to_ascii_lowercase(), "farwire-version: ")?;
        Ok(answer.split(' ').nth(1).context("no status")?.parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

#[test_support::test(Namespaces)]
fn on_loopback_nobody_changes_a_link_without_the_token_of_the_printed_url() -> Result<()> {
    let exec = Running::start(&["--listen", "127.0.0.1:0"])?;
    let (_, token) = exec.url.split_once("/#token=").context("no token")?;
    ensure!(exec.status("")? == 401, "without a token");
    let sent = format!("Authorization: bearer {token}\r\n");
    ensure!(exec.status(&sent)? == 200, "with the token");
    let set = |at: &str| {
        let mut set = farwire();
        set.args(["set", "link", "--delay", "30ms", "--at", at]);
        process::run(set.env_remove("FARWIRE_TOKEN"))
    };
    ends_with(&set(exec.address()?)?, 2, "requires a token")?;
    let changed = set(&exec.url)?;
    has(&stdout(&changed), "link: delay 30ms in each direction")
}

#[test_support::test(Namespaces)]
fn without_a_token_every_user_may_ask_and_that_is_said() -> Result<()> {
    let exec = Running::start(&api::OPEN)?;
    ensure!(!exec.url.contains('#'), "{}", exec.url);
    ensure!(exec.status("")? == 200, "without a token");
    has(
        &exec.said.join("\n"),
        "every user of this machine can change",
    )
}

#[test_support::test(Namespaces)]
fn a_token_that_is_none_is_refused_at_the_start() -> Result<()> {
    for (variable, value, words) in [
        (
            "FARWIRE_TOKEN",
            &b""[..],
            "FARWIRE_TOKEN: the variable is empty",
        ),
        (
            "FARWIRE_TOKEN",
            b"\xff123456789abcdef",
            "FARWIRE_TOKEN: the token is not UTF-8",
        ),
        (
            "FARWIRE_READ_TOKEN",
            b"",
            "FARWIRE_READ_TOKEN: the variable is empty",
        ),
    ] {
        let mut exec = farwire();
        exec.args(["exec", "--listen", "127.0.0.1:0", "--", "true"]);
        exec.env_remove("FARWIRE_TOKEN");
        exec.env(
            variable,
            std::os::unix::ffi::OsStrExt::from_bytes(value) as &std::ffi::OsStr,
        );
        ends_with(&process::run(&mut exec)?, 125, words)?;
    }
    let mut exec = farwire();
    exec.arg("exec").args(api::OPEN).args(["--", "true"]);
    let ended = process::run(exec.env("FARWIRE_TOKEN", "0123456789abcdef"))?;
    ends_with(&ended, 125, "--no-token: FARWIRE_TOKEN contains a token").map(drop)
}

/// The test runs in a separate mount namespace, because all programs of this user share the directory.
const PRIVATE: &str = "
set -e
mount -t tmpfs tmpfs /run
exec \"$FARWIRE\" exec --delay 20ms --listen -- sh -ec '
stat -c \"mode %a\" /run/farwire /run/farwire/link.sock
\"$FARWIRE\" set link --delay 30ms
\"$FARWIRE\" links
exec \"$FARWIRE\" exec --delay 40ms --listen -- sh -c \"
\\\"$FARWIRE\\\" links; echo ended \\$?
\\\"$FARWIRE\\\" links --at unix:/run/farwire/link-2.sock
\\\"$FARWIRE\\\" set link --delay 50ms
\"'
";

#[test_support::test(Namespaces, Tool("unshare"))]
fn without_an_address_it_listens_where_only_its_user_reaches_it_and_clients_look_first()
-> Result<()> {
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", PRIVATE]);
    let ended = process::run(shell.env("FARWIRE", process::program()))?;
    let (said, errors) = (stdout(&ended), stderr(&ended));
    for words in [
        "mode 700\nmode 600\n",
        "link: delay 30ms in each direction since ",
        "link: delay 30ms in each direction (revision 2)\n",
        // Two of them listen.
        "ended 2\n",
        "link: delay 40ms in each direction (revision 1)\n",
        // The name selects the first of them.
        "link: delay 50ms in each direction since ",
    ] {
        ensure!(said.contains(words), "`{words}` is not in: {said}{errors}");
    }
    has(&errors, "live page and API: unix:/run/farwire/link.sock")?;
    has(
        &errors,
        "several farwires listen: choose one with --at: unix:/run/farwire/link-2.sock, unix:/run/farwire/link.sock",
    )?;
    ensure!(ended.status.success(), "{errors}");
    Ok(())
}

#[test_support::test(OrdinaryUser)]
fn an_ordinary_user_listens_in_the_runtime_directory_where_clients_look_too() -> Result<()> {
    let runtime = tempfile::tempdir()?;
    fs::set_permissions(runtime.path(), Permissions::from_mode(0o777))?;
    let as_user = || {
        let mut command = farwire_of_ordinary_user();
        command.env("XDG_RUNTIME_DIR", runtime.path());
        command.env_remove("FARWIRE_TOKEN");
        command
    };
    let exec = Running::start_as(&mut as_user(), &["--listen"])?;
    let directory = runtime.path().join("farwire");
    let socket = directory.join("link.sock");
    let printed = format!("unix:{}", socket.display());
    ensure!(exec.url == printed, "{} instead of {printed}", exec.url);
    for (path, mode) in [(&directory, 0o700), (&socket, 0o600)] {
        let found = fs::metadata(path)?.mode() & 0o777;
        ensure!(found == mode, "{}: {found:o}", path.display());
    }
    let links = process::succeeds(as_user().arg("links"))?;
    has(
        &stdout(&links),
        "link: delay 20ms in each direction (revision 1)\n",
    )?;
    let set = process::succeeds(as_user().args(["set", "link", "--delay", "30ms"]))?;
    has(&stdout(&set), "link: delay 30ms in each direction since ")
}

#[test_support::test]
fn clients_take_no_answer_but_a_farwires() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body = r#"{"links":[{"name":"link","says":"delay 20ms"}]}"#;
            let length = body.len();
            // A client that has gone is no reason to refuse the next one.
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    for words in [&["links"][..], &["set", "link", "--delay", "1ms"]] {
        let ended = process::run(farwire().args(words).args(["--at", &at]))?;
        let said = ends_with(&ended, 1, "the server is not a farwire")?;
        ensure!(stdout(&ended).is_empty(), "{said}");
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn every_change_is_logged_with_its_time_and_who_made_it() -> Result<()> {
    const TOKEN: &str = "0123456789abcdef";
    let folder = tempfile::tempdir()?;
    let (token, socket) = (folder.path().join("token"), folder.path().join("api"));
    fs::write(&token, TOKEN)?;
    let (token, socket) = (
        token.to_str().context("UTF-8")?,
        format!("unix:{}", socket.display()),
    );
    let guarded = ["--listen", "127.0.0.1:0", "--token-file", token];
    let mut exec = Running::start(&guarded)?;
    let at = exec.address()?.to_owned();
    let set = |words: &str| {
        let mut set = farwire();
        set.args(["set", "link", "--at", &at, "--token-file", token]);
        process::succeeds(set.args(words.split(' ')))
    };
    let profile = "--delay 30ms --jitter 2ms --rate 10mbit --queue 50pkt --reorder 1% --duplicate 1% --corrupt 0.1%";
    set(profile)?;
    let line = exec.line("revision 2 by 127.0.0.1:")?;
    has(&line, ", full-access token: corrupt 0.1%, delay 30ms, ")?;
    check_line(&line)?;
    let id = stdout(&set("--loss 1% --for 60s")?);
    let (_, id) = id.split_once("lease ").context("a lease")?;
    let id = id.get(..8).context("its ID")?;
    let line = exec.line("revision 3 by 127.0.0.1:")?;
    has(&line, format!(", full-access token, lease {id} for 60s: "))?;
    check_line(&line)?;
    set("--revert")?;
    let line = exec.line("the lease ended by 127.0.0.1:")?;
    has(&line, format!("({id})"))?;
    check_line(&line)?;

    let mut exec = Running::start(&["--log-format", "json", "--listen", &socket])?;
    let mut set = farwire();
    set.args(["set", "link", "--at", &socket]);
    process::succeeds(set.args(profile.split(' ')))?;
    let line = exec.line("revision 2 by the Unix socket, user ")?;
    let entry: serde_json::Value = serde_json::from_str(&line)?;
    let words = entry["msg"].as_str().context("a message")?;
    // The line for people has no room for this text.
    has(words, "reorder 1% in each direction")?;
    Ok(())
}

/// Checks that a line for people begins with its time and fits into 160 columns.
fn check_line(line: &str) -> Result<()> {
    let time = line.split(' ').next().context("words")?;
    ensure!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
    ensure!(line.chars().count() <= 160, "{line}");
    Ok(())
}
