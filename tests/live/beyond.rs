//! Beyond loopback: a token, TLS with a certificate that clients identify by its fingerprint, and a read-only token.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use test_support::process::{self, farwire, has, stderr};

const ALL: &str = "all-0123456789abcdef";
const READ: &str = "read-0123456789abcdef";

/// `farwire exec` that listens on all addresses.
struct Guarded {
    child: Child,
    directory: TempDir,
    /// https://127.0.0.1:PORT
    at: String,
    pin: String,
}

impl Guarded {
    fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| directory.path().join(name);
        for (name, token) in [
            ("all", ALL),
            ("read", READ),
            ("wrong", "wrong-0123456789abcdef"),
        ] {
            fs::write(file(name), format!("{token}\n"))?;
        }
        let mut child = farwire()
            .args([
                "exec",
                "--listen",
                "0.0.0.0:0",
                "--delay",
                "20ms",
                "--token-file",
            ])
            .arg(file("all"))
            .arg("--read-token-file")
            .arg(file("read"))
            .args(["--", "sleep", "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("its standard error")?;
        let mut started = Self {
            child,
            directory,
            at: String::new(),
            pin: String::new(),
        };
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        for line in &mut lines {
            let line = line?;
            if let Some((_, pin)) = line.split_once("--pin: ") {
                started.pin = pin.to_owned();
            }
            if let Some((_, port)) = line.split_once("https://0.0.0.0:") {
                started.at = format!("https://127.0.0.1:{}", port.trim_end_matches('/'));
                break;
            }
            said += &line;
        }
        std::thread::spawn(move || lines.for_each(drop));
        ensure!(!started.at.is_empty(), "it never listened: {said}");
        ensure!(!started.pin.is_empty(), "it never listened: {said}");
        Ok(started)
    }

    fn token(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command of farwire for this address, with the token in this file.
    fn asks(&self, words: &str, token: Option<&str>, pin: &str) -> Result<(Option<i32>, String)> {
        let mut command = farwire();
        command
            .args(words.split(' '))
            .args(["--at", &self.at, "--pin", pin]);
        command.env_remove("FARWIRE_TOKEN");
        if let Some(token) = token {
            command.arg("--token-file").arg(self.token(token));
        }
        let Output {
            status,
            stdout,
            stderr,
        } = process::run(&mut command)?;
        let said = [stdout, stderr].concat();
        Ok((status.code(), String::from_utf8(said)?))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

#[test_support::test(Namespaces)]
fn beyond_loopback_farwire_set_changes_a_link_with_the_token_and_the_fingerprint_and_with_nothing_else()
-> Result<()> {
    let exec = Guarded::start()?;
    let (code, said) = exec.asks("set link --delay 30ms", Some("all"), &exec.pin)?;
    ensure!(code == Some(0), "{said}");
    has(&said, "link: delay 30ms in each direction")?;
    let (code, said) = exec.asks("links", Some("read"), &exec.pin)?;
    ensure!(code == Some(0), "{said}");
    has(&said, "delay 30ms in each direction (revision 2)")?;
    for (words, token, words_of_error) in [
        ("set link --delay 40ms", Some("read"), "read-only token"),
        ("set link --delay 40ms", Some("wrong"), "the token is wrong"),
        ("links", None, "requires a token"),
    ] {
        let (code, said) = exec.asks(words, token, &exec.pin)?;
        ensure!(code == Some(2), "{words}: {said}");
        ensure!(said.contains(words_of_error), "{words}: {said}");
    }
    // Nobody listens there: farwire refuses before it connects.
    for case in [
        "links --at 192.0.2.1:7700 --token-file all => the token would be sent unencrypted: write --at https://192.0.2.1:7700",
        "links --at 127.0.0.1:1 --pin PIN => has no TLS",
        "links --at localhost:7700 => https://",
    ] {
        let (words, words_of_error) = case.split_once(" => ").context("a case")?;
        let words = words.replace("PIN", &exec.pin);
        let mut asks = farwire();
        asks.args(words.split(' ')).env_remove("FARWIRE_TOKEN");
        let ran = process::run(asks.current_dir(exec.directory.path()))?;
        let said = String::from_utf8(ran.stderr)?;
        ensure!(ran.status.code() == Some(2), "{words}: {said}");
        ensure!(said.contains(words_of_error), "{words}: {said}");
    }
    let other = format!("sha256:{}", "0".repeat(64));
    let (code, said) = exec.asks("links", Some("all"), &other)?;
    ensure!(code != Some(0) && said.contains(&exec.pin), "{said}");
    ensure!(!said.contains("unexpected error"), "{said}");
    // Without https, the reason is named, and no token is sent.
    let plain = exec.at.trim_start_matches("https://");
    let mut asks = farwire();
    asks.args(["links", "--at", plain])
        .env_remove("FARWIRE_TOKEN");
    let ran = process::run(&mut asks)?;
    let said = String::from_utf8(ran.stderr)?;
    ensure!(ran.status.code() == Some(2), "{said}");
    has(
        &said,
        format!("the server there uses TLS: write --at https://{plain}"),
    )?;
    let (_, said) = exec.asks("links", Some("read"), &exec.pin)?;
    ensure!(
        said.contains("(revision 2)"),
        "what was refused changed the link: {said}"
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("curl"))]
fn wrong_tokens_are_answered_by_401_many_of_them_by_429_and_who_watches_changes_nothing()
-> Result<()> {
    let exec = Guarded::start()?;
    let asks = |token: &str, more: &[&str]| -> Result<String> {
        let mut curl = Command::new("curl");
        // Clients identify the certificate by its fingerprint, which curl does not check.
        curl.args([
            "-s",
            "-k",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--noproxy",
            "*",
        ]);
        curl.args(["-H", &format!("Authorization: Bearer {token}")])
            .args(more);
        let output = process::run(curl.arg(format!("{}/v1/links/link", exec.at)))?;
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(asks(ALL, &[])? == "200");
    ensure!(asks(READ, &[])? == "200");
    ensure!(asks(READ, &["-X", "PATCH", "-d", "{}"])? == "403");
    for _ in 0..10 {
        let code = asks("wrong", &[])?;
        ensure!(code == "401", "{code}");
    }
    // Every six seconds one more token is checked.
    for _ in 0..100 {
        match asks("wrong", &[])?.as_str() {
            "429" => return Ok(()),
            code => ensure!(code == "401", "{code}"),
        }
    }
    bail!("a hundred more wrong tokens were heard")
}

#[test_support::test(Namespaces)]
fn a_token_and_a_certificate_that_are_none_are_refused_at_the_start_by_their_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = directory.path().join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let token = file("token", ALL)?;
    let short = file("short", "short")?;
    let empty = file("empty", "\n")?;
    for (flags, words) in [
        (vec!["--token-file", &short], "at least 16"),
        (
            vec!["--token-file", &empty],
            "empty: the file contains no token",
        ),
        (
            vec!["--token-file", "/nowhere/token"],
            "/nowhere/token: cannot read",
        ),
        (vec!["--read-token-file", &token], "add one"),
        (
            vec![
                "--token-file",
                &token,
                "--tls-cert",
                &empty,
                "--tls-key",
                &empty,
            ],
            "empty: the file contains no certificate",
        ),
    ] {
        let mut exec = farwire();
        exec.env_remove("FARWIRE_TOKEN");
        exec.args(["exec", "--listen", "0.0.0.0:0"])
            .args(&flags)
            .args(["--", "true"]);
        let ended = process::run(&mut exec)?;
        let said = stderr(&ended);
        ensure!(ended.status.code() == Some(125), "{flags:?}: {said}");
        ensure!(said.contains(words), "{flags:?}: {said}");
    }
    Ok(())
}
