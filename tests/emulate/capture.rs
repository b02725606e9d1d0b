//! `--pcap` and `--packet-log` of a box: the files are opened before the box gives up access to files, and written while the box is
//! confined.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER};

use test_support::process::{succeeds, succeeds_in, wait_for};
use test_support::wan_box::WanBox;

#[test_support::test(Namespaces, Tool("ping"), Tool("tshark"))]
fn a_capture_of_a_box_has_what_passed_it_and_tshark_reads_it() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let prefix = directory.path().join("seen");
    let bed = Bed::build(&BedConfig::default())?;
    let link = format!("--delay 5ms --pcap {} --pcap-filter icmp", prefix.display());
    let wan_box = WanBox::start(&bed, &link)?;
    let mut ping = Command::new("ping");
    ping.args(["-q", "-c", "3", "-i", "0.2", "10.77.0.2"]);
    succeeds_in(bed.client(), &mut ping)?;
    let counted = wan_box.stop()?;
    ensure!(counted.up.delivered >= 3, "{counted:?}");
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(prefix.with_extension("pcapng"));
    tshark.args(
        "-T fields -e frame.interface_name -e frame.interface_description -e icmp.type".split(' '),
    );
    let read = succeeds(&mut tshark)?;
    let rows = String::from_utf8(read.stdout)?;
    let ends = [netio::bed::CLIENT_PORT, netio::bed::SERVER_PORT];
    for (name, end) in ["a", "b"].into_iter().zip(ends) {
        for icmp in [8, 0] {
            let row = format!("{name}\t{end}\t{icmp}");
            ensure!(
                rows.lines().filter(|line| **line == row).count() == 3,
                "{row}: {rows}"
            );
        }
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn the_files_of_a_packet_log_with_a_limit_take_turns_while_the_box_is_confined() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = ["packets.csv", "packets.csv.1"].map(|name| directory.path().join(name));
    let bed = Bed::build(&BedConfig::default())?;
    let link = format!("--packet-log {},limit=8KiB", files[0].display());
    let wan_box = WanBox::start(&bed, &link)?;
    let client = bed.client().run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
    client.connect((SERVER.v4, 9))?;
    wait_for("a line in the second file", || {
        for _ in 0..20 {
            // The answer that nobody listens may be an error of the next call.
            let _ = client.send(&[7; 100]);
        }
        Ok((fs::metadata(&files[1])?.len() > 0).then_some(()))
    })?;
    let log = wan_box.stop()?.packet_log.context("no log is counted")?;
    ensure!(log.not_kept == 0, "{log:?}");
    let numbers = |file| -> Result<Vec<u64>> {
        let text = fs::read_to_string(file)?;
        let rows = text.lines().skip(1);
        let rows = rows.map(|row| row.split(',').next().unwrap_or_default().parse());
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let mut numbers = [numbers(&files[0])?, numbers(&files[1])?];
    numbers.sort();
    let numbers = numbers.concat();
    // The second file may have been full, too. Then the first one has the last lines.
    ensure!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    ensure!(numbers.last() == Some(&log.lines), "{log:?}, {numbers:?}");
    Ok(())
}
