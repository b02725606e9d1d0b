//! Every frame leaves the box as it entered, byte for byte: tags, unknown protocols, jumbo frames, GSO frames with tags.

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER};
use netio::{Gso, GsoKind, Offload, PartialChecksum};
use std::process::Command;

use super::frames::{End, Tag, checksum, echo, frame, ipv4};
use test_support::process;
use test_support::stream::Transfer;
use test_support::suite::{Need, Suite};
use test_support::wan_box::{WanBox, complete_checksums};

const IPV4: u16 = 0x0800;
const VLAN_100: Tag = (0x8100, 100);
/// Priority 7, drop eligible, the highest VLAN number.
const VLAN_ODD: Tag = (0x8100, 0xfffe);
const SERVICE_VLAN: Tag = (0x88a8, 200);
/// An EtherType for experiments (IEEE 802).
const UNKNOWN: u16 = 0x88b5;

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (name, tags) in [
        ("a vlan tag", &[VLAN_100][..]),
        ("a vlan tag with priority", &[VLAN_ODD]),
        ("a service tag", &[SERVICE_VLAN]),
        ("a tag within a service tag", &[SERVICE_VLAN, VLAN_100]),
        ("a tag within a tag", &[VLAN_100, VLAN_ODD]),
    ] {
        suite.test(
            format!("a ping with {name} comes and goes unchanged"),
            &[Need::Namespaces],
            || {
                passes_both_ways(|answer| {
                    let sizes = [8, 64, 1200];
                    sizes.map(|size| {
                        frame(answer, tags, IPV4, &ipv4(answer, 1, &echo(answer, size)))
                    })
                })
            },
        );
    }
    for link in ["--rate 300mbit", "--delay 1ms"] {
        suite.test(
            format!("a GSO frame with a tag arrives as its packets: {link}"),
            &[Need::Namespaces],
            move || a_tagged_gso_frame_arrives(link),
        );
    }
    for offloads in [true, false] {
        suite.test(
            format!("a jumbo transfer arrives intact: offloads {offloads}"),
            &[Need::Namespaces],
            move || a_jumbo_transfer_arrives(offloads),
        );
    }
}

#[test_support::test(Namespaces)]
fn a_full_packet_with_a_tag_passes() -> Result<()> {
    passes_both_ways(|answer| {
        [frame(
            answer,
            &[VLAN_100],
            IPV4,
            &ipv4(answer, 1, &echo(answer, 1480)),
        )]
    })
}

#[test_support::test(Namespaces)]
fn protocols_that_nobody_knows_pass() -> Result<()> {
    passes_both_ways(|answer| {
        let payload: Vec<u8> = (0..1500u16).map(|n| n.to_le_bytes()[0]).collect();
        [
            frame(answer, &[], UNKNOWN, &payload[..46]),
            frame(answer, &[], UNKNOWN, &payload),
            frame(answer, &[VLAN_100], UNKNOWN, &payload[..100]),
            // A length where others have an EtherType (IEEE 802.3).
            frame(answer, &[], 100, &payload[..100]),
        ]
    })
}

#[test_support::test(Namespaces, Tool("ping"))]
fn an_ipv6_ping_passes() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    let output = process::run_in(
        bed.client(),
        Command::new("ping").args(["-6", "-c", "5", "-i", "0.02", "fd77::2"]),
    )?;
    let summary = wan.stop()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(summary.up.packets == 5, "{summary:?}");
    ensure!(summary.down.delivered == 5, "{summary:?}");
    Ok(())
}

/// Sends frames in each direction through a box; they must leave as they entered.
fn passes_both_ways<const N: usize>(frames: impl Fn(bool) -> [Vec<u8>; N]) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    let mut near = End::open(bed.client())?;
    let mut far = End::open(bed.server())?;
    for answer in [false, true] {
        let (from, to) = if answer {
            (&mut far, &mut near)
        } else {
            (&mut near, &mut far)
        };
        for sent in frames(answer) {
            from.send(&sent, Offload::default()).context("sending")?;
            let got = to.receive()?;
            ensure!(got == sent, "sent {sent:02x?}, got {got:02x?}");
        }
    }
    let summary = wan.stop()?;
    ensure!(
        summary.up.own_losses() + summary.down.own_losses() == 0,
        "{summary:?}"
    );
    Ok(())
}

/// Payload of each segment of the GSO frame, and of all of them; the last segment is shorter.
const SEGMENT: u16 = 1000;
const WHOLE: usize = 20_300;
/// The headers: Ethernet, tag, IPv4, TCP.
const HEADERS: usize = 14 + 4 + 20 + 20;
const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;

fn a_tagged_gso_frame_arrives(link: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    // The ports complete checksums and split frames, so packets arrive as on a wire.
    complete_checksums(&bed)?;
    let wan = WanBox::start(&bed, link)?;
    let mut near = End::open(bed.client())?;
    let mut far = End::open(bed.server())?;
    let payload: Vec<u8> = (0..WHOLE).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let (frame, offload) = gso_frame(&payload)?;
    near.send(&frame, offload)
        .context("sending the GSO frame")?;
    let mut got = Vec::new();
    let mut id = None;
    while got.len() < payload.len() {
        let packet = far.receive()?;
        let last = got.len() + usize::from(SEGMENT) >= payload.len();
        let sequence = u32::try_from(got.len())?;
        id = Some(check_segment(&packet, sequence, last, id)?);
        got.extend_from_slice(&packet[HEADERS..]);
    }
    ensure!(got == payload, "other bytes than were sent");
    let summary = wan.stop()?;
    let segments = WHOLE.div_ceil(usize::from(SEGMENT)) as u64;
    ensure!(summary.up.packets == segments, "{summary:?}");
    // Each segment has its own headers and its tag.
    let bytes = (WHOLE + usize::try_from(segments)? * HEADERS) as u64;
    ensure!(summary.up.bytes == bytes, "{summary:?}");
    Ok(())
}

/// Builds a TCP GSO frame with a tag, whose checksum the kernel has to complete.
fn gso_frame(payload: &[u8]) -> Result<(Vec<u8>, Offload)> {
    let mut tcp = [0u8; 20];
    tcp[..4].copy_from_slice(&[0x30, 0x39, 0x30, 0x3a]);
    tcp[12] = 0x50;
    tcp[13] = FIN | PSH | ACK;
    let segment = [&tcp[..], payload].concat();
    let mut packet = ipv4(false, 6, &segment);
    let pseudo = pseudo_sum(&packet, segment.len())?;
    packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
    let offload = Offload {
        gso: Some(Gso {
            kind: GsoKind::TcpV4,
            size: SEGMENT,
            ecn: false,
        }),
        checksum: Some(PartialChecksum {
            start: 38,
            offset: 16,
        }),
    };
    Ok((frame(false, &[VLAN_100], IPV4, &packet), offload))
}

/// Computes the sum over the pseudo header of an IPv4 packet that carries `length` bytes of TCP.
fn pseudo_sum(packet: &[u8], length: usize) -> Result<u16> {
    let length = u16::try_from(length)?.to_be_bytes();
    Ok(checksum(&[&packet[12..20], &[0, 6], &length].concat()))
}

/// Checks one packet of the GSO frame and returns its identification, which must follow that of the previous packet.
fn check_segment(packet: &[u8], sequence: u32, last: bool, before: Option<u16>) -> Result<u16> {
    ensure!(
        packet.get(12..16) == Some(&[0x81, 0, 0, 100]),
        "no tag: {packet:02x?}"
    );
    let ip = &packet[18..];
    ensure!(checksum(&ip[..20]) == 0xffff, "IPv4 checksum: {ip:02x?}");
    ensure!(
        usize::from(u16::from_be_bytes([ip[2], ip[3]])) == ip.len(),
        "length: {ip:02x?}"
    );
    let id = u16::from_be_bytes([ip[4], ip[5]]);
    ensure!(
        before.is_none_or(|before| id == before + 1),
        "{id} after {before:?}"
    );
    let tcp = &ip[20..];
    let sum = [&pseudo_sum(ip, tcp.len())?.to_be_bytes(), tcp].concat();
    ensure!(checksum(&sum) == 0xffff, "TCP checksum: {tcp:02x?}");
    ensure!(
        tcp[4..8] == sequence.to_be_bytes(),
        "not {sequence}: {tcp:02x?}"
    );
    let flags = if last { FIN | PSH | ACK } else { ACK };
    ensure!(tcp[13] == flags, "flags {:02x} at {sequence}", tcp[13]);
    Ok(id)
}

fn a_jumbo_transfer_arrives(offloads: bool) -> Result<()> {
    let bed = Bed::build(&BedConfig {
        mtu: 9000,
        offloads,
        ..BedConfig::default()
    })?;
    let wan = WanBox::start(&bed, "--rate 5gbit --loss 0.1%")?;
    let transfer = Transfer {
        bytes: 100_000_000,
        to: SERVER.v4.into(),
        seed: 5,
    };
    let summary = transfer.cross(&bed, wan)?;
    let mean = summary.up.bytes / summary.up.packets;
    ensure!(mean > 8000, "packets of {mean} bytes are not jumbo");
    Ok(())
}
