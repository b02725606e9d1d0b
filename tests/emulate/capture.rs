//! `--pcap` of a box: the file is opened before the box gives up access to files, and written while the box is confined.

use std::process::Command;

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig};

use test_support::process::{succeeds, succeeds_in};
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
