//! A box that cannot keep up with its packets drops the excess, names the cause, and is INVALID.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER};
use nix::sys::signal::Signal;
use tempfile::NamedTempFile;

use test_support::process::{has, wait_for};
use test_support::wan_box::WanBox;

/// A link that makes 16 packets of one, and lets all of them leave at the same instant.
const LINK: &str = "stages = [
    { kind = 'duplicate', name = 'first', direction = 'up', duplicate = '100%' },
    { kind = 'duplicate', name = 'second', direction = 'up', duplicate = '100%' },
    { kind = 'duplicate', name = 'third', direction = 'up', duplicate = '100%' },
    { kind = 'duplicate', name = 'fourth', direction = 'up', duplicate = '100%' },
    { kind = 'slots', direction = 'up', min = '200ms' },
]
";

/// The datagrams of a burst, and the packets that the link makes of them. No machine sends this many within a millisecond.
const DATAGRAMS: usize = 500;
const PACKETS: usize = 16 * DATAGRAMS;

/// The least length of a line of the packet log for a datagram.
const SHORTEST_LINE: u64 = 80;

/// The time in nanoseconds by which the due times of two slots differ at least.
const BETWEEN_SLOTS: u64 = 100_000_000;

/// A packet in the log.
#[derive(Clone, Debug)]
struct Row {
    verdict: String,
    due: u64,
}

/// A host that runs the forwarder for less than half of the time makes packets late instead of losing them. Bursts are
/// therefore sent until one of them is an overload.
#[test_support::test(serial, Namespaces)]
fn what_cannot_leave_within_the_limit_is_dropped_under_its_own_cause_and_the_run_is_invalid()
-> Result<()> {
    let (link, log) = (NamedTempFile::with_suffix(".toml")?, NamedTempFile::new()?);
    fs::write(link.path(), LINK)?;
    let bed = Bed::build(&BedConfig::default())?;
    let options = format!(
        "--late-limit 1ms --link {} --packet-log {}",
        link.path().display(),
        log.path().display()
    );
    let mut wan = WanBox::start(&bed, &options)?;
    // Nobody reads the datagrams, but a port that nobody has would answer.
    let server = bed.server().run(|| UdpSocket::bind((SERVER.v4, 0)))??;
    let client = bed.client().run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
    client.connect(server.local_addr()?)?;
    let port = client.local_addr()?.port();
    let mut bursts = 0;
    let burst = wait_for("a burst that is an overload", || {
        let before = fs::metadata(log.path())?.len();
        for _ in 0..DATAGRAMS {
            client.send(&[7; 100])?;
        }
        bursts += 1;
        let rows = wait_for("the outcome of every packet", || {
            if fs::metadata(log.path())?.len() < before + PACKETS as u64 * SHORTEST_LINE {
                return Ok(None);
            }
            let rows = rows_of(log.path(), port)?;
            Ok((rows.len() == bursts * PACKETS).then_some(rows))
        })?;
        let burst = rows[(bursts - 1) * PACKETS..].to_vec();
        Ok(burst.iter().any(is_overload).then_some(burst))
    })?;
    // The first packets leave. Those that are dropped would have left after the limit, and none leaves behind them.
    for slot in burst.chunk_by(|one, next| next.due.abs_diff(one.due) < BETWEEN_SLOTS) {
        let sent = slot.iter().take_while(|row| !is_overload(row)).count();
        ensure!(sent > 0, "nothing has left");
        ensure!(slot[sent..].iter().all(is_overload), "{:?}", &slot[sent..]);
        let sent = &slot[..sent];
        ensure!(
            sent.iter().all(|row| row.verdict == "delivered"),
            "{sent:?}"
        );
    }
    let (status, printed) = wan.end_by(Signal::SIGTERM)?;
    ensure!(status.success(), "{status}: {printed}");
    let lost = fs::read_to_string(log.path())?
        .matches(",overload,")
        .count();
    let cause = format!(
        "INVALID: the emulator itself lost packets (up: {lost} x overload); it could not keep up"
    );
    has(&printed, cause)
}

fn is_overload(row: &Row) -> bool {
    row.verdict == "overload"
}

/// Returns the packets that a socket with this port has sent, in the order in which they left or were dropped.
fn rows_of(log: &Path, port: u16) -> Result<Vec<Row>> {
    let text = fs::read_to_string(log)?;
    let port = port.to_string();
    let mut rows = Vec::new();
    // The last line may be incomplete.
    let (complete, _) = text.rsplit_once('\n').unwrap_or_default();
    for line in complete.lines() {
        let columns: Vec<&str> = line.split(',').collect();
        let [_, "up", _, _, verdict, _, due, _, _, _, source_port, ..] = columns[..] else {
            continue;
        };
        if source_port == port {
            rows.push(Row {
                verdict: verdict.to_owned(),
                due: due.parse()?,
            });
        }
    }
    Ok(rows)
}
