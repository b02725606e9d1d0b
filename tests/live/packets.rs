//! Captures of a running link.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Result, ensure};

use test_support::api::Exec;
use test_support::process::{self, has, stderr, stdout, wait_for};

/// Asks for a capture; on return its answer has begun. The request uses HTTP/1.0, so that the body has only the capture.
fn capture(exec: &Exec, query: &str) -> Result<(u16, BufReader<TcpStream>)> {
    let mut stream = exec.connect()?;
    let host = exec.at;
    write!(
        stream,
        "GET /v1/links/link/capture{query} HTTP/1.0\r\nHost: {host}\r\n\r\n"
    )?;
    let mut body = BufReader::new(stream);
    let mut status = 0;
    loop {
        let mut line = String::new();
        body.read_line(&mut line)?;
        if let Some(said) = line.strip_prefix("HTTP/1.0 ") {
            status = said.split(' ').next().unwrap_or_default().parse()?;
        }
        if line.trim_end().is_empty() {
            return Ok((status, body));
        }
    }
}

#[test_support::test(Namespaces, Tool("ping"), Tool("tshark"))]
fn a_capture_streams_what_passes_one_side_and_tshark_reads_it() -> Result<()> {
    let mut exec = Exec::start("--delay 5ms --loss 30%")?;
    let (status, mut body) = capture(&exec, "?side=a&filter=icmp&for=3s")?;
    ensure!(status == 200, "{status}");
    exec.shell("ping -i 0.05 -c 200 $FARWIRE_SERVER > /dev/null & echo begun")?;
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes)?;
    exec.end()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("stream.pcapng");
    std::fs::write(&file, bytes)?;
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file);
    tshark
        .args("-T fields -e frame.interface_name -e _ws.col.Protocol -e frame.comment".split(' '));
    let read = process::run(&mut tshark)?;
    let rows = stdout(&read);
    ensure!(read.status.success(), "{}", stderr(&read));
    has(&rows, "a\tICMP\tdelivered ")?;
    has(&rows, "a\tICMP\tdropped: loss")?;
    let other = rows.lines().find(|row| !row.starts_with("a\tICMP\t"));
    ensure!(other.is_none(), "{other:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("wget"))]
fn captures_that_nobody_reads_are_cut_off_and_there_are_four_at_a_time() -> Result<()> {
    let mut exec = Exec::start("")?;
    exec.shell("wget -qO /dev/null http://$FARWIRE_SERVER/seconds/600 & echo begun")?;
    let many = "?for=3600s&max_bytes=1073741824";
    let unread: Vec<_> = (0..4)
        .map(|_| capture(&exec, many))
        .collect::<Result<_>>()?;
    ensure!(
        unread.iter().all(|(status, _)| *status == 200),
        "{unread:?}"
    );
    let (status, _) = capture(&exec, many)?;
    ensure!(status == 429, "a fifth: {status}");
    wait_for("captures to be cut off", || {
        Ok((capture(&exec, "?max_bytes=1")?.0 == 200).then_some(()))
    })?;
    exec.shell("kill $!; echo over")?;
    exec.end()
}
