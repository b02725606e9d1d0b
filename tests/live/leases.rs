//! Leases whose holders disappear at any moment, and leases of `farwire set`.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use test_support::api::Exec;
use test_support::process::{self, has, stderr};

/// The number of clients that die, one after the other.
const CLIENTS: usize = 20;

/// The number of dry runs that are computed before the meaning of the next change.
const BEFORE: usize = 8;

/// Some clients disappear right after their request, others as soon as their change is in force.
#[test_support::test(Namespaces)]
fn a_lease_of_a_connection_ends_with_a_client_that_goes_away_before_it_is_answered() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?["conditions"].clone();
    let loss = r#"{"loss": "100%"}"#;
    let await_return = || {
        process::wait_for("the link to revert", || {
            let link = exec.link()?;
            let is_back = link["lease"].is_null() && link["conditions"] == before;
            Ok(is_back.then_some(()))
        })
    };
    for _ in 0..CLIENTS {
        drop(ask(&exec, "?for=connection", loss)?);
    }
    await_return()?;
    let mut unanswered = 0;
    for number in 1..=CLIENTS {
        // The meaning of changes is computed one at a time: the next one waits for these.
        let others = (0..BEFORE).map(|_| ask(&exec, "?dry_run=1", "{}"));
        let others = others.collect::<Result<Vec<_>>>()?;
        let client = ask(&exec, "?for=connection", loss)?;
        process::wait_for("a lease", || {
            let link = exec.link()?;
            Ok(link["lease"].is_object().then_some(()))
        })?;
        client.set_nonblocking(true)?;
        let read = client.peek(&mut [0]).map_err(|error| error.kind());
        unanswered += usize::from(read == Err(ErrorKind::WouldBlock));
        drop(client);
        await_return().with_context(|| format!("client {number}"))?;
        drop(others);
    }
    ensure!(unanswered > 0, "all were answered before they went away");
    exec.end()
}

/// Bytes after the request, such as a line end or the next request, are read only after the answer has ended, and so is the client's end.
#[test_support::test(Namespaces)]
fn a_lease_of_a_connection_ends_with_a_client_that_sent_more_than_its_request() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?["conditions"].clone();
    for more in ["\n", "GET / HTTP/1.1\r\n"] {
        let (mut client, _) = hold(&exec, "")?;
        client.write_all(more.as_bytes())?;
        ensure!(exec.link()?["lease"].is_object(), "{more:?} ended it");
        drop(client);
        process::wait_for("the link to revert", || {
            let link = exec.link()?;
            let is_back = link["lease"].is_null() && link["conditions"] == before;
            Ok(is_back.then_some(()))
        })
        .with_context(|| format!("after {more:?}"))?;
    }
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_lease_of_a_connection_that_another_connection_renews_ends_with_that_one() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?["conditions"].clone();
    let (first, id) = hold(&exec, "")?;
    let (second, same) = hold(&exec, &format!("Farwire-Lease: {id}\r\n"))?;
    ensure!(id == same, "{id} became {same}");
    drop(first);
    for _ in 0..CLIENTS {
        ensure!(exec.link()?["lease"].is_object(), "it ended with the first");
    }
    drop(second);
    process::wait_for("the link to revert", || {
        let link = exec.link()?;
        let is_back = link["lease"].is_null() && link["conditions"] == before;
        Ok(is_back.then_some(()))
    })?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_lease_is_refused_of_what_could_not_be_taken_back_and_by_its_field() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let own = r#"{"loss": "0.5%", "rules": [{"name": "voice", "protocol": "udp", "loss": "0%"}]}"#;
    let shared = r#"{"rules": [{"name": "voice", "protocol": "udp"}]}"#;
    ensure!(exec.patch("", own)?.status == 200, "{own}");
    let refused = |query: &str, body: &str, words: &str| -> Result<()> {
        let refused = exec.patch(query, body)?;
        let why = refused.body["detail"].as_str().unwrap_or_default();
        ensure!(refused.status == 422, "{query}: {refused:?}");
        ensure!(refused.body["field"] == "rules", "{query}: {refused:?}");
        ensure!(why.contains(words), "{query}: {refused:?}");
        Ok(())
    };
    refused(
        "?for=60s",
        shared,
        "at its end; change the link without a lease",
    )?;
    refused(
        "?for=60s&dry_run=1",
        shared,
        "at its end; change the link without a lease",
    )?;
    let leased = exec.patch("?for=60s", r#"{"delay": "30ms"}"#)?;
    let id = leased.body["link"]["lease"]["id"].as_str();
    let id = format!("\r\nFarwire-Lease: {}", id.context("no id")?);
    let line = "PATCH /v1/links/link";
    let held = exec.with_body(line, "application/json", &id, shared)?;
    ensure!(held.status == 422, "{held:?}");
    ensure!(held.body["field"] == "rules", "{held:?}");
    let ended = exec.send(
        &format!("DELETE /v1/links/link/lease HTTP/1.1\r\nHost: {}", exec.at),
        "",
    )?;
    ensure!(ended.status == 200, "{ended:?}");
    let good = exec.patch("", shared)?;
    ensure!(good.status == 200, "{good:?}");
    refused("", own, "a running link cannot give one of them its own")?;
    refused(
        "?dry_run=1",
        own,
        "a running link cannot give one of them its own",
    )?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn farwire_set_says_by_what_its_lease_is_known_and_changes_and_ends_it_by_that() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?["conditions"].clone();
    let at = exec.at.to_string();
    let set = |words: &str| -> Result<(Option<i32>, String)> {
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at])
            .args(words.split(' '));
        set.env_remove("FARWIRE_TOKEN");
        let ran = process::run(&mut set)?;
        let said = String::from_utf8([ran.stdout, ran.stderr].concat())?;
        Ok((ran.status.code(), said))
    };
    let in_force = || -> Result<(bool, bool)> {
        let link = exec.link()?;
        Ok((link["conditions"] == before, link["lease"].is_object()))
    };
    let (code, said) = set("--loss 1% --for 60s")?;
    let lease = said.split_once("link: lease ").map(|(_, rest)| rest);
    let id = lease.and_then(|rest| rest.split(' ').next());
    let id = id.with_context(|| said.clone())?;
    ensure!(code == Some(0), "{said}");
    has(&said, ", then the conditions of revision 1\n")?;
    for (words, words_of_error) in [
        ("--loss 2%", "--revert"),
        ("--loss 2% --lease wrong", "--revert"),
        ("--revert --lease wrong", "no such lease"),
        (
            "--revert --loss 2%",
            "leave the conditions of the command line out",
        ),
        ("--for 60s", "remove all with --clear"),
        ("--clear --loss 2%", "leave the others out"),
        ("--revert --for 1s", "cannot be used with"),
        ("--loss 2% --lease é", "the ID that was printed"),
    ] {
        let (code, said) = set(words)?;
        ensure!(code == Some(2), "{words}: {code:?} {said}");
        ensure!(said.contains(words_of_error), "{words}: {code:?} {said}");
        ensure!(exec.link()?["revision"] == 2, "{words}: {said}");
    }
    let (code, said) = set(&format!("--loss 3% --lease {id} --for 30s"))?;
    ensure!(code == Some(0) && said.contains(id), "{said}");
    let link = exec.link()?;
    ensure!(link["conditions"]["loss"] == "3%", "{link}");
    ensure!(link["lease"]["for"] == "30s", "{link}");
    let (code, said) = set(&format!("--revert --lease {id}"))?;
    ensure!(code == Some(0), "{said}");
    has(&said, "delay 20ms in each direction")?;
    ensure!(in_force()? == (true, false), "{}", exec.link()?);
    let (code, said) = set("--loss 1% --for 60s --json -")?;
    let told: Value = serde_json::from_str(&said)?;
    ensure!(code == Some(0), "{said}");
    ensure!(told["link"]["lease"]["id"].is_string(), "{said}");
    let (code, said) = set("--revert")?;
    ensure!(code == Some(0), "{said}");
    ensure!(in_force()? == (true, false), "{}", exec.link()?);
    let (code, said) = set("--revert")?;
    ensure!(code == Some(2), "{said}");
    has(
        &said,
        "link: there is no lease to end. --revert ends a lease",
    )?;
    has(&said, "farwire set link --replace CONDITION...")?;
    let (code, said) = set(&format!("--revert --lease {id}"))?;
    ensure!(code == Some(2), "{said}");
    has(&said, "there is no such lease, or it has ended")?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn farwire_set_keeps_the_conditions_that_it_does_not_name_unless_it_replaces_all() -> Result<()> {
    let exec = Exec::start("--delay 20ms --up-loss 5%")?;
    let at = exec.at.to_string();
    let set = |words: &str| -> Result<(Option<i32>, String)> {
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at]);
        set.args(words.split_whitespace());
        let ran = process::run(set.env_remove("FARWIRE_TOKEN"))?;
        let output = String::from_utf8([ran.stdout, ran.stderr].concat())?;
        Ok((ran.status.code(), output))
    };
    let changes = |words: &str, conditions: Value| -> Result<()> {
        let (code, output) = set(words)?;
        ensure!(code == Some(0), "{words}: {output}");
        let link = exec.link()?;
        ensure!(link["conditions"] == conditions, "{words}: {link}");
        Ok(())
    };
    let rated = json!({"delay": "20ms", "rate": "10mbit", "up": {"loss": "5%"}});
    changes("--rate 10mbit", rated.clone())?;
    let mut lossy = rated;
    lossy["down"] = json!({"loss": "2%"});
    changes("--down-loss 2%", lossy)?;
    let in_both = json!({"delay": "20ms", "rate": "10mbit", "loss": "1%"});
    changes("--loss 1%", in_both)?;
    changes("--replace --loss 3%", json!({"loss": "3%"}))?;
    let (code, output) = set("--profile in-flight")?;
    ensure!(code == Some(0), "{output}");
    let link = exec.link()?;
    let has_loss_of_profile = link["conditions"]["loss"] != "3%";
    ensure!(
        has_loss_of_profile && link["conditions"]["delay"].is_string(),
        "{link}"
    );
    changes("--clear", json!({}))?;
    let before = exec.link()?["revision"].clone();
    for (words, words_of_error) in [
        ("", "the others stay, unless --replace is given"),
        ("--replace", "name those to change"),
        ("--replace --clear", "cannot be used with"),
        ("--loss 1% --for 25h", "at most 24h"),
    ] {
        let (code, output) = set(words)?;
        ensure!(code == Some(2), "{words}: {code:?} {output}");
        ensure!(output.contains(words_of_error), "{words}: {output}");
    }
    ensure!(exec.link()?["revision"] == before);
    exec.end()
}

#[test_support::test(Namespaces)]
fn farwire_set_for_connection_holds_its_lease_until_it_ends() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let at = exec.at.to_string();
    let hold = || -> Result<(Child, String)> {
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at, "--loss", "100%"]);
        set.args(["--for", "connection"]).stdout(Stdio::piped());
        let mut child = set.env_remove("FARWIRE_TOKEN").spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let lines = output
            .lines()
            .take(2)
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok((child, lines.join("\n")))
    };
    let (mut child, output) = hold()?;
    has(&output, "delay 20ms, loss 100% in each direction since ")?;
    has(&output, " until its connection closes, then the conditions")?;
    let lease = &exec.link()?["lease"];
    ensure!(lease["for"] == "connection", "{lease}");
    child.kill()?;
    child.wait()?;
    process::wait_for("the link to revert", || {
        let link = exec.link()?;
        let is_back = link["lease"].is_null() && link["conditions"] == json!({"delay": "20ms"});
        Ok(is_back.then_some(()))
    })?;
    let (mut child, _) = hold()?;
    exec.end()?;
    let status = process::end_of(&mut child)?;
    ensure!(status.code() == Some(1), "{status}");
    Ok(())
}

/// Starts a farwire and a client that holds a lease and stays alive, in a namespace whose loopback then carries nothing.
const VANISHED: &str = "
ip link set lo up
\"$FARWIRE\" exec --listen 127.0.0.1:7700 --no-token -- sleep 120 2> said & farwire=$!
curl --silent --no-buffer --retry 50 --retry-delay 1 --retry-connrefused -X PATCH -H 'Content-Type: application/json' -d '{\"loss\": \"100%\"}' \
    'http://127.0.0.1:7700/v1/links/link?for=connection' > answer & client=$!
until grep -q reverts_to answer; do sleep 0.1; done
if grep -q 'lease ended' said; then exit 1; fi
ip link set lo down
for second in $(seq 40); do
    if grep -q 'lease ended' said; then found=yes; break; fi
    sleep 1
done
kill $farwire $client
wait
[ \"${found:-no}\" = yes ]
";

#[test_support::test(Soak, Root, Tool("unshare"), Tool("curl"))]
fn a_lease_of_a_connection_ends_with_a_client_that_nothing_is_heard_of_any_more() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut shell = Command::new("unshare");
    shell.args(["--net", "sh", "-c", VANISHED]);
    shell.current_dir(folder.path());
    shell.env("FARWIRE", process::program());
    let ran = process::run(&mut shell)?;
    let said = stderr(&ran);
    ensure!(ran.status.success(), "the lease is still in force: {said}");
    Ok(())
}

/// Opens a connection that holds a lease; also returns the lease's ID.
fn hold(exec: &Exec, more: &str) -> Result<(TcpStream, String)> {
    let mut stream = exec.connect()?;
    write!(
        stream,
        "PATCH /v1/links/link?for=connection HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{more}Content-Length: 14\r\n\r\n\
         {{\"loss\": \"5%\"}}",
        exec.at
    )?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let granted = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with('{')));
    let granted: Value = serde_json::from_str(&granted.context("no lease")??)?;
    let id = granted["link"]["lease"]["id"].as_str().context("no id")?;
    Ok((stream, id.to_owned()))
}

/// Sends a patch without waiting for its answer.
fn ask(exec: &Exec, query: &str, body: &str) -> Result<TcpStream> {
    let mut stream = exec.connect()?;
    write!(
        stream,
        "PATCH /v1/links/link{query} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        exec.at,
        body.len()
    )?;
    Ok(stream)
}
