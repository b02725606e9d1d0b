//! Tunnels through the box: their GSO frames have two stacks of headers.

use anyhow::{Result, ensure};
use netio::bed::{Bed, BedConfig, WAN};
use netio::netns::NetNs;
use netio::offloads::Offloads;

use test_support::process::ip;
use test_support::stream::Transfer;
use test_support::suite::{Need, Suite};
use test_support::wan_box::{WanBox, complete_checksums};

/// The name and kind of a tunnel, whether it runs over IPv6, and its options.
const TUNNELS: [(&str, &str, bool, &str); 7] = [
    (
        "vxlan with outer checksums",
        "vxlan",
        false,
        "id 42 dstport 4789 dev wan udpcsum",
    ),
    (
        "vxlan without outer checksums",
        "vxlan",
        false,
        "id 42 dstport 4789 dev wan noudpcsum",
    ),
    (
        "vxlan over ipv6 with outer checksums",
        "vxlan",
        true,
        "id 42 dstport 4789 dev wan noudp6zerocsumtx",
    ),
    (
        "vxlan over ipv6 without outer checksums",
        "vxlan",
        true,
        "id 42 dstport 4789 dev wan udp6zerocsumtx udp6zerocsumrx",
    ),
    ("gre", "gre", false, ""),
    ("gretap", "gretap", false, ""),
    ("ipip", "ipip", false, ""),
];

/// The place where frames of the tunnel are segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segmented {
    /// The sending end segments before encapsulation, as on any test bed.
    BeforeTheTunnel,
    /// The box segments: GSO frames arrive with both stacks of headers.
    ByTheBox,
    /// The box segments, and its ports complete the inner checksums, so that the far end checks these and the outer ones.
    ByTheBoxWithChecksums,
}

#[test_support::tests]
fn add(suite: &mut Suite) {
    for tunnel in TUNNELS {
        for segmented in [
            Segmented::BeforeTheTunnel,
            Segmented::ByTheBox,
            Segmented::ByTheBoxWithChecksums,
        ] {
            let how = match segmented {
                Segmented::BeforeTheTunnel => "segmented before it",
                Segmented::ByTheBox => "segmented by the box",
                Segmented::ByTheBoxWithChecksums => "segmented by the box, all checksums checked",
            };
            let needs = [Need::Namespaces, Need::Tool("ip"), Need::Device(tunnel.1)];
            let name = format!("a tcp stream through {} arrives intact: {how}", tunnel.0);
            suite.test(name, &needs, move || {
                let (_, kind, v6, options) = tunnel;
                arrives_through(kind, v6, options, segmented)
            });
        }
    }
}

fn arrives_through(kind: &str, v6: bool, options: &str, segmented: Segmented) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let outer = if v6 {
        ["fd77::1", "fd77::2"]
    } else {
        ["10.77.0.1", "10.77.0.2"]
    };
    let ends = [
        (bed.client(), outer[0], outer[1], 1),
        (bed.server(), outer[1], outer[0], 2),
    ];
    for (ns, local, remote, number) in ends {
        ip(
            ns,
            &format!("link add tunnel type {kind} local {local} remote {remote} {options}"),
        )?;
        ip(ns, &format!("address add 10.88.0.{number}/24 dev tunnel"))?;
        ip(ns, "link set tunnel up")?;
        if segmented != Segmented::BeforeTheTunnel {
            send_gso(ns)?;
        }
    }
    if segmented == Segmented::ByTheBoxWithChecksums {
        complete_checksums(&bed)?;
    }
    let wan = WanBox::start(&bed, "--rate 2gbit --loss 0.1%")?;
    let transfer = Transfer {
        bytes: 40_000_000,
        to: [10, 88, 0, 2].into(),
        seed: 9,
    };
    let summary = transfer.cross(&bed, wan)?;
    for way in [&summary.up, &summary.down] {
        ensure!(way.own_losses() == 0, "{way:?}");
    }
    ensure!(summary.up.lost() > 0, "{summary:?}");
    Ok(())
}

/// Lets an end pass GSO frames of tunnels to its interface, which the bed has forbidden.
fn send_gso(ns: &NetNs) -> Result<()> {
    ns.run(|| -> Result<()> {
        let offloads = Offloads::open(WAN)?;
        for feature in [
            "tx-udp_tnl-segmentation",
            "tx-udp_tnl-csum-segmentation",
            "tx-gre-segmentation",
            "tx-gre-csum-segmentation",
            "tx-ipxip4-segmentation",
        ] {
            offloads.switch(feature, true)?;
        }
        Ok(())
    })?
}
