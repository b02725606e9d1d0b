//! `farwire view`: past records and their reports.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use test_support::api::Listening;
use test_support::process::{self, ends_with, has, stderr};

#[test_support::test]
fn past_records_are_listed_and_their_reports_shown_and_nothing_else_of_the_folder() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records/small.jsonl");
    for name in ["first", "second one"] {
        fs::create_dir(folder.path().join(name))?;
        fs::copy(&fixture, folder.path().join(name).join("record.jsonl"))?;
    }
    fs::write(folder.path().join("secret"), "of somebody")?;
    let mut view = process::farwire();
    view.args(["view", "--listen", "127.0.0.1:0"])
        .arg(folder.path());
    let view = Listening::start(&mut view)?;
    let index = view.get("/")?;
    ensure!(index.status == 200, "{index:?}");
    for address in ["first/report.html", "second%20one/report.html"] {
        has(&index.text, format!("href=\"{address}\""))?;
        let report = view.get(&format!("/{address}"))?;
        ensure!(report.status == 200, "{report:?}");
        ensure!(report.text.contains("</html>"), "{report:?}");
        has(&report.head, "content-security-policy: default-src 'none'")?;
    }
    for path in [
        "/secret",
        "/secret/report.html",
        "/../secret",
        "/%2e%2e/report.html",
        "/v1/links",
    ] {
        let answer = view.get(path)?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    let stranger = view.send("GET / HTTP/1.1\r\nHost: attacker.example", "")?;
    ensure!(stranger.status == 403, "{stranger:?}");
    view.terminate()
}

#[test_support::test]
fn a_folder_without_a_record_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ended = process::run(process::farwire().arg("view").arg(folder.path()))?;
    ends_with(&ended, 2, "neither a record nor a directory of one")?;
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_socket_of_the_file_system_is_gone_with_what_listened_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records/small.jsonl");
    fs::copy(&fixture, folder.path().join("record.jsonl"))?;
    let socket = folder.path().join("socket");
    let mut exec = process::farwire();
    exec.current_dir(folder.path());
    exec.args(["exec", "--listen", "unix:socket", "--"]);
    let said = stderr(&process::succeeds(exec.args(["test", "-S", "socket"]))?);
    ensure!(!socket.exists(), "exec left its socket: {said}");
    let mut view = process::farwire();
    view.current_dir(folder.path());
    let mut view = view
        .args(["view", ".", "-q", "--listen", "unix:socket"])
        .spawn()?;
    process::wait_for("its socket", || Ok(socket.exists().then_some(())))?;
    // It removes its socket, also when a signal ends it.
    kill(Pid::from_raw(view.id().try_into()?), Signal::SIGTERM)?;
    process::end_of(&mut view)?;
    ensure!(!socket.exists(), "view left its socket");
    Ok(())
}
