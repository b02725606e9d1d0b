//! A capture agrees with the counters in the link's summary, and other programs can read it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use test_support::process::{self, has, stderr, stdout};
use test_support::wan_box::{Direction, Summary};

/// Each packet goes there and back; none is lost.
const PINGS: [&str; 8] = ["ping", "-q", "-i", "0.002", "-c", "200", "-s", "1000"];

#[test_support::test(Namespaces, Tool("ping"))]
fn a_disk_that_is_full_under_a_capture_is_said_and_the_link_goes_on() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // Use a mount namespace, which ends with its last process, in a user namespace, where anybody may mount.
    let script = "mount -t tmpfs -o size=64k full . && cd . && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(process::farwire().get_program());
    // Ping waits two of its round trips for the last answer.
    command.args(["exec", "--down-delay", "200ms", "--pcap", "seen", "--"]);
    command.args(PINGS).arg("10.77.0.2");
    let output = process::succeeds(command.current_dir(directory.path()))?;
    let said = stderr(&output);
    has(&said, "No space left")?;
    let pings = stdout(&output);
    has(&pings, "200 received")?;
    has(&said, "200 delivered")?;
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_capture_is_no_longer_than_its_limit_which_is_said() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("seen.pcapng");
    let mut run = process::farwire();
    run.args(["exec", "--delay", "1ms", "--pcap-limit", "100KiB"]);
    run.arg("--pcap").arg(&file).arg("--");
    let said = stderr(&process::succeeds(run.args(PINGS).arg("10.77.0.2"))?);
    has(&said, "the size limit was reached")?;
    let length = std::fs::metadata(&file)?.len();
    // The packet that reaches the limit is the last; statistics follow.
    ensure!(
        (50_000..(100 << 10) + 2_000).contains(&length),
        "{length} bytes"
    );
    let mut read = PcapNgReader::new(std::fs::File::open(&file)?)?;
    while let Some(block) = read.next_block() {
        block?;
    }
    Ok(())
}

/// Runs a command behind a link with loss; returns the capture and the counters of the link.
fn captured(directory: &Path, filter: &str, command: &str) -> Result<Summary> {
    let json = directory.join("json");
    let mut run = process::farwire();
    run.args("exec --delay 5ms --loss 2% --rate 50mbit".split(' '));
    run.arg("--pcap").arg(directory.join("seen"));
    run.args(["--pcap-filter", filter]);
    run.arg("--json").arg(&json);
    run.args(["--", "sh", "-c", command]);
    let said = stderr(&process::succeeds(&mut run)?);
    has(&said, "capture: ")?;
    Ok(serde_json::from_slice(&std::fs::read(json)?)?)
}

fn commands(measurement: &str) -> String {
    format!("{} measure {measurement} --quiet", process::program())
}

#[test_support::test(Namespaces)]
fn a_capture_has_every_packet_that_the_summary_counts_in_order_of_time() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let command = commands("tcp 10.77.0.2 -t 1");
    let summary = captured(directory.path(), "", &command)?;
    let mut file = PcapNgReader::new(std::fs::File::open(directory.path().join("seen.pcapng"))?)?;
    // Count by interface, direction and first words.
    let mut counts: BTreeMap<(u32, u32, String), u64> = BTreeMap::new();
    let mut last = std::time::Duration::ZERO;
    while let Some(block) = file.next_block() {
        let Block::EnhancedPacket(packet) = block? else {
            continue;
        };
        ensure!(packet.timestamp >= last, "{packet:?} after {last:?}");
        last = packet.timestamp;
        ensure!(packet.data.len() <= 1514, "a train: {packet:?}");
        let [
            EnhancedPacketOption::Flags(direction),
            EnhancedPacketOption::Comment(comment),
        ] = &packet.options[..]
        else {
            anyhow::bail!("{packet:?}");
        };
        let words: Cow<'_, str> = match comment.split_once(' ') {
            Some(("delivered", _)) => "delivered".into(),
            _ => comment.clone(),
        };
        let words = words.split(',').next().unwrap_or_default().to_owned();
        let key = (packet.interface_id, *direction, words);
        *counts.entry(key).or_default() += 1;
    }
    for (ingress, direction) in [(0, &summary.up), (1, &summary.down)] {
        agrees(&counts, ingress, direction)
            .with_context(|| format!("at {ingress}: {direction:?}, {counts:?}"))?;
    }
    ensure!(summary.up.lost() > 0, "{counts:?}");
    Ok(())
}

/// Returns the packets that arrived at one interface, and those that left at the other.
fn agrees(
    counts: &BTreeMap<(u32, u32, String), u64>,
    ingress: u32,
    direction: &Direction,
) -> Result<()> {
    let count = |interface, way, words: &str| {
        let key = (interface, way, words.to_owned());
        counts.get(&key).copied().unwrap_or_default()
    };
    let (inbound, outbound) = (1, 2);
    let came = |words| count(ingress, inbound, words);
    ensure!(came("delivered") == direction.delivered);
    ensure!(count(1 - ingress, outbound, "delivered") == direction.delivered);
    ensure!(came("dropped: loss") == direction.lost());
    ensure!(came("dropped: queue full") == direction.queue_full());
    ensure!(came("in flight at the end") == direction.held_at_end);
    Ok(())
}

#[test_support::test(Namespaces, Tool("tshark"))]
fn tshark_reads_a_capture_of_tcp_comments_whole_checksums_nothing_malformed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let command = commands("tcp 10.77.0.2 -t 1");
    captured(directory.path(), "tcp and host 10.77.0.2", &command)?;
    let file = directory.path().join("seen.pcapng");
    let read = |options: &[&str]| -> Result<String> {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&file).args(options);
        let output = process::succeeds(&mut tshark)?;
        Ok(String::from_utf8(output.stdout)?)
    };
    // Segments that are sent again may overlap, which is an error for tshark if it joins them, although each one is right.
    let checked = [
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.desegment_tcp_streams:FALSE",
    ];
    let bad = "_ws.malformed or tcp.checksum.status == \"Bad\" or ip.checksum.status == \"Bad\" or not tcp";
    let bad = read(&[&checked[..], &["-Y", bad]].concat())?;
    ensure!(bad.is_empty(), "{bad}");
    let fields = "-T fields -e frame.interface_name -e frame.comment";
    let rows = read(&fields.split(' ').collect::<Vec<_>>())?;
    let both = |name: &str| rows.lines().any(|row| row.starts_with(name));
    ensure!(both("a\tdelivered ") && both("b\tdelivered "), "{rows}");
    ensure!(both("a\tdropped: loss"), "{rows}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_capture_that_cannot_be_written_and_a_filter_of_unknown_words_are_found_before_the_command_runs()
-> Result<()> {
    for (options, word) in [
        (["--pcap=/nowhere/seen", "--"], "/nowhere/seen.pcapng"),
        (["--pcap=-", "--pcap-filter=tpc"], "`tpc`"),
    ] {
        let mut command = process::farwire();
        command.arg("exec").args(options).args(["echo", "ran"]);
        let output = process::run(&mut command)?;
        let said = stderr(&output);
        ensure!(!output.status.success(), "{}", output.status);
        has(&said, word)?;
        ensure!(output.stdout.is_empty(), "the command ran");
    }
    Ok(())
}
