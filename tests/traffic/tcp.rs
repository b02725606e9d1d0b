//! A TCP stream arrives as it was sent, whatever happens to the GSO frames that carry it.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER};

use test_support::is_soak;
use test_support::stream::Transfer;
use test_support::suite::{Need, Suite};
use test_support::wan_box::{WanBox, complete_checksums};

/// The place where GSO frames are split and checksums are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    /// Nothing splits them, as between virtual machines of one host: GSO frames and incomplete checksums go from end to end.
    On,
    /// The emulator's ports split them, in software: the far end checks every checksum that splitting has prepared.
    AtTheEnds,
    /// The sending end splits them.
    Off,
}

impl Offload {
    pub(crate) const ALL: [Self; 3] = [Self::On, Self::AtTheEnds, Self::Off];

    /// Returns the words with which a test's name ends.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::On => "offloads on",
            Self::AtTheEnds => "offloads on at the ends only",
            Self::Off => "offloads off",
        }
    }

    /// Builds a bed whose ends and ports have these offloads.
    pub(crate) fn bed(self, mtu: u32) -> Result<Bed> {
        let bed = Bed::build(&BedConfig {
            mtu,
            offloads: self != Self::Off,
            tcp_memory: None,
            ..BedConfig::default()
        })?;
        if self == Self::AtTheEnds {
            complete_checksums(&bed)?;
        }
        Ok(bed)
    }
}

#[test_support::tests]
fn add(suite: &mut Suite) {
    // At 3 Gb/s, two or three segments of a GSO frame are due within a quantum, so every frame is split.
    for link in ["--rate 3gbit", "--delay 200us"] {
        for loss in ["", "--loss 0.1%"] {
            for offload in Offload::ALL {
                let link = format!("{link} {loss}").trim_end().to_owned();
                let name = format!("a tcp stream arrives intact: {link}, {}", offload.name());
                suite.test(name, &[Need::Namespaces], move || {
                    arrives_intact(&link, offload, 1500, SERVER.v4.into())
                });
            }
        }
    }
    for offload in Offload::ALL {
        let name = format!("a tcp stream over ipv6 arrives intact: {}", offload.name());
        suite.test(name, &[Need::Namespaces], move || {
            arrives_intact("--rate 3gbit --loss 0.1%", offload, 1500, SERVER.v6.into())
        });
    }
}

fn arrives_intact(link: &str, offload: Offload, mtu: u32, to: IpAddr) -> Result<()> {
    let bed = offload.bed(mtu)?;
    let wan = WanBox::start(&bed, link)?;
    let transfer = Transfer {
        bytes: if is_soak() {
            10_000_000_000
        } else {
            120_000_000
        },
        to,
        seed: 7,
    };
    let summary = transfer.cross(&bed, wan)?;
    let lossy = link.contains("loss");
    ensure!(
        (summary.up.lost() > 0) == lossy,
        "{} packets lost on a link of {link}",
        summary.up.lost()
    );
    for way in [&summary.up, &summary.down] {
        let decided = way.delivered + way.lost() + way.queue_full();
        ensure!(decided <= way.packets, "more decided than came: {way:?}");
    }
    // Acknowledgements may have been on their way when the box was stopped; at the end there are few.
    let left = summary.departure_error.count;
    let delivered = summary.up.delivered + summary.down.delivered;
    ensure!(
        left <= delivered && delivered - left < 100,
        "{delivered} packets delivered, but {left} departures"
    );
    Ok(())
}
