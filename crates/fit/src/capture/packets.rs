//! Reads the IP packets of captures in pcap and pcapng, and what farwire notes about each.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, PcapError};

use crate::files::FileError;

/// The first four bytes of pcapng, and those of pcap with micro- and nanoseconds in either order.
const MAGIC: [[u8; 4]; 5] = [
    [0x0a, 0x0d, 0x0d, 0x0a],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
/// The bytes after the IP header that distinguish packets; a capture may have no more.
const DISTINCT: usize = 64;
/// The numbers of ICMP and ICMPv6 as protocols of IP, each with its types of an echo request and of a reply.
const ECHOES: [(u8, [u8; 2]); 2] = [(1, [8, 0]), (58, [128, 129])];
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The bits of ECN, which are both set in a packet that is marked for congestion.
const ECN: u8 = 3;
/// Bits 0 and 1 of epb_flags are the direction; 1 is inbound, which farwire notes where a packet enters the link.
const DIRECTION_FLAGS: u32 = 3;
pub(super) const INBOUND: u32 = 1;

/// A captured IP packet.
pub(super) struct Packet {
    pub(super) at_ns: u64,
    /// The bytes of the frame.
    pub(super) bytes: u32,
    pub(super) ends: (IpAddr, IpAddr),
    /// A digest of everything that a path does not change.
    pub(super) digest: u64,
    /// Whether it is marked for congestion (CE of ECN; RFC 3168).
    pub(super) is_marked: bool,
    /// Whether it is the answer to a ping, and its numbers.
    pub(super) echo: Option<(bool, [u8; 4])>,
    /// Whether farwire noted that it was dropped for another reason than random loss, or did not see what became of it.
    pub(super) is_excluded: bool,
    /// The note of farwire about a packet that entered the link here.
    pub(super) outcome: Outcome,
}

/// The note in a capture about a packet that enters the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: the packet has to be found at the other end.
    Unstated,
    /// It was due at the other end after these nanoseconds.
    After(u64),
    /// It was lost by chance.
    Lost,
}

/// The packets of both ends, or of one end.
#[derive(Default)]
pub(super) struct Capture {
    pub(super) ends: [Vec<Packet>; 2],
    /// Whether farwire wrote it, whose ends have one clock.
    pub(super) has_one_clock: bool,
    /// Whether the file says that packets are missing at an end.
    pub(super) has_dropped: [bool; 2],
}

/// Returns whether a file is a capture.
pub fn is_capture(bytes: &[u8]) -> bool {
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

impl Capture {
    /// Reads the packets of a file.
    ///
    /// # Errors
    /// The file is damaged, or has packets of more than two interfaces.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, FileError> {
        match bytes.starts_with(&MAGIC[0]) {
            true => pcapng(bytes),
            false => Ok(Self {
                ends: [pcap(bytes).map_err(damaged)?, Vec::new()],
                ..Self::default()
            }),
        }
    }
}

fn damaged(error: PcapError) -> FileError {
    FileError::Capture(format!("the capture is damaged: {error}"))
}

fn pcap(bytes: &[u8]) -> Result<Vec<Packet>, PcapError> {
    let (mut rest, parser) = PcapParser::new(bytes)?;
    let link = parser.header().datalink;
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let (left, packet) = match parser.next_packet(rest) {
            // The last packet of a program that was killed.
            Err(PcapError::IncompleteBuffer) => break,
            found => found?,
        };
        rest = left;
        let at_ns = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        packets.extend(Packet::read(link, &packet.data, packet.orig_len, at_ns));
    }
    Ok(packets)
}

fn pcapng(bytes: &[u8]) -> Result<Capture, FileError> {
    let (mut rest, mut parser) = PcapNgParser::new(bytes).map_err(damaged)?;
    let mut capture = Capture {
        has_one_clock: parser.section().options.iter().any(is_farwire),
        ..Capture::default()
    };
    // Interfaces without packets do not count.
    let mut numbers: Vec<u32> = Vec::new();
    let mut incomplete: BTreeSet<u32> = BTreeSet::new();
    while !rest.is_empty() {
        let (left, block) = match parser.next_block(rest) {
            Err(PcapError::IncompleteBuffer) => break,
            found => found.map_err(damaged)?,
        };
        rest = left;
        if let Block::InterfaceStatistics(statistics) = &block
            && statistics.options.iter().any(has_drops)
        {
            incomplete.insert(statistics.interface_id);
        }
        let Block::EnhancedPacket(packet) = block else {
            continue;
        };
        let Some(interface) = parser.packet_interface(&packet) else {
            continue;
        };
        let at_ns = nanoseconds(&packet, &interface.options);
        let read = Packet::read(interface.linktype, &packet.data, packet.original_len, at_ns);
        let Some(mut read) = read else {
            continue;
        };
        read.is_excluded = packet.options.iter().any(is_excluded);
        read.outcome = outcome(&packet.options);
        if !numbers.contains(&packet.interface_id) {
            numbers.push(packet.interface_id);
            numbers.sort_unstable();
            if numbers.len() > 2 {
                return Err(FileError::Capture(
                    "it has packets of more than two interfaces: keep one at each end of the path"
                        .to_owned(),
                ));
            }
            let [near, far] = &mut capture.ends;
            // The interface with the lower number is the near end, whichever has the first packet.
            if numbers.len() == 2 && numbers.first() == Some(&packet.interface_id) {
                std::mem::swap(near, far);
            }
        }
        let is_near = numbers.first() == Some(&packet.interface_id);
        let [near, far] = &mut capture.ends;
        if is_near { near } else { far }.push(read);
    }
    let is_incomplete = |number: &u32| incomplete.contains(number);
    capture.has_dropped = [0_usize, 1].map(|end| numbers.get(end).is_some_and(is_incomplete));
    Ok(capture)
}

/// Returns whether the program or the kernel could not keep all packets of an interface.
fn has_drops(option: &InterfaceStatisticsOption<'_>) -> bool {
    matches!(
        option,
        InterfaceStatisticsOption::IsbIfDrop(1..) | InterfaceStatisticsOption::IsbOsDrop(1..)
    )
}

fn is_farwire(option: &SectionHeaderOption<'_>) -> bool {
    matches!(option, SectionHeaderOption::UserApplication(name) if name.starts_with("farwire "))
}

/// Returns whether a comment of farwire says that a packet was dropped for another reason than random loss, or was not
/// subject to the link's conditions.
fn is_excluded(option: &EnhancedPacketOption<'_>) -> bool {
    let EnhancedPacketOption::Comment(comment) = option else {
        return false;
    };
    let is_loss = comment.starts_with("dropped: loss");
    let is_undecided =
        comment.starts_with("in flight") || comment.starts_with("lost by the emulator");
    let is_control = comment.starts_with("link control");
    is_undecided || is_control || (comment.starts_with("dropped: ") && !is_loss)
}

/// Returns what farwire says about a packet that enters the link.
fn outcome(options: &[EnhancedPacketOption<'_>]) -> Outcome {
    let enters = options.iter().any(|option| {
        matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION_FLAGS == INBOUND)
    });
    let comments = options.iter().filter_map(|option| match option {
        EnhancedPacketOption::Comment(comment) if enters => Some(&**comment),
        _ => None,
    });
    let mut outcomes = comments.filter_map(|comment| match comment.starts_with("dropped: loss") {
        true => Some(Outcome::Lost),
        false => delivered_after(comment).map(Outcome::After),
    });
    outcomes.next().unwrap_or(Outcome::Unstated)
}

/// Reads the delay in nanoseconds from a comment such as `delivered 23.112 ms after arrival, due after 10.000 ms, 13112.0 us
/// late`. The time by which the emulator was late is no property of the link.
fn delivered_after(comment: &str) -> Option<u64> {
    let left = comment.strip_prefix("delivered ")?;
    let due = left.split_once(", due after ").map_or(left, |(_, due)| due);
    let (ms, _) = due.split_once(" ms")?;
    let seconds = ms.parse::<f64>().ok()? / 1e3;
    let after = Duration::try_from_secs_f64(seconds).ok()?;
    u64::try_from(after.as_nanos()).ok()
}

/// Returns the time of a packet. The library takes the units of the interface, microseconds without an option, for
/// nanoseconds.
fn nanoseconds(
    packet: &EnhancedPacketBlock<'_>,
    options: &[InterfaceDescriptionOption<'_>],
) -> u64 {
    let resolution = options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let power = u32::from(resolution & 0x7f);
    let units = packet.timestamp.as_nanos();
    let each_second = match resolution & 0x80 {
        0 => 10_u128.checked_pow(power),
        _ => 2_u128.checked_pow(power),
    };
    let scaled = each_second.and_then(|each| Some(units.checked_mul(1_000_000_000)? / each));
    scaled
        .and_then(|ns| u64::try_from(ns).ok())
        .unwrap_or_default()
}

impl Packet {
    /// Reads a frame; `None` if it is not IP, or keeps up the link itself.
    fn read(link: DataLink, frame: &[u8], bytes: u32, at_ns: u64) -> Option<Self> {
        let ip = packet_of(link, frame)?;
        let version = ip.first()? >> 4;
        // The last two bits of the type of service of IPv4, and of the traffic class of IPv6.
        let service = *ip.get(1)?;
        let ecn = match version {
            4 => service & ECN,
            _ => (service >> 4) & ECN,
        };
        let (ends, protocol, fixed, payload) = match version {
            4 => {
                let header = usize::from(ip.first()? & 0x0f) * 4;
                let address =
                    |from: usize| Some(IpAddr::from(*ip.get(from..)?.first_chunk::<4>()?));
                let ends = (address(12)?, address(16)?);
                // The length, the identification and the place of a fragment; the path changes the rest.
                (ends, *ip.get(9)?, ip.get(2..8)?, ip.get(header..)?)
            }
            6 => {
                let address =
                    |from: usize| Some(IpAddr::from(*ip.get(from..)?.first_chunk::<16>()?));
                let ends = (address(8)?, address(24)?);
                (ends, *ip.get(6)?, ip.get(4..6)?, ip.get(40..)?)
            }
            _ => return None,
        };
        if is_of_the_link(ends.1, protocol, payload) {
            return None;
        }
        let payload = payload.get(..DISTINCT).unwrap_or(payload);
        let mut digest = DefaultHasher::new();
        (ends, protocol, fixed).hash(&mut digest);
        // A host that lets its interface compute checksums captures others than it sends.
        let checksum = match protocol {
            TCP => 16..18,
            UDP => 6..8,
            _ => 0..0,
        };
        for (place, byte) in payload.iter().enumerate() {
            if !checksum.contains(&place) {
                byte.hash(&mut digest);
            }
        }
        let echo = ECHOES.iter().find(|(number, _)| *number == protocol);
        let echo = echo.and_then(|(_, [request, reply])| {
            let numbers = payload.get(4..)?.first_chunk::<4>()?;
            let kind = payload.first()?;
            (kind == request || kind == reply).then_some((kind == reply, *numbers))
        });
        Some(Self {
            at_ns,
            bytes,
            ends,
            digest: digest.finish(),
            is_marked: ecn == ECN,
            echo,
            is_excluded: false,
            outcome: Outcome::Unstated,
        })
    }
}

/// Returns whether a packet is neighbour or router discovery (RFC 4861), or goes to a group of the link, as MLD and IGMP do
/// (RFC 4291, section 2.7; RFC 5771, section 4). Routers do not forward it, so that it does not cross a path, and it is often
/// the same each time.
fn is_of_the_link(to: IpAddr, protocol: u8, payload: &[u8]) -> bool {
    let is_discovery = protocol == ICMPV6 && matches!(payload.first(), Some(133..=137));
    match to {
        IpAddr::V4(to) => to.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(to) => is_discovery || to.segments()[0] & 0xff0f == 0xff02,
    }
}

/// Returns the IP packet of a frame.
fn packet_of(link: DataLink, frame: &[u8]) -> Option<&[u8]> {
    match link {
        DataLink::ETHERNET => {
            let mut rest = frame.get(12..)?;
            // Tags of VLANs.
            while let [0x81, 0x00, _, _, inner @ ..] | [0x88, 0xa8, _, _, inner @ ..] = rest {
                rest = inner;
            }
            match rest {
                [0x08, 0x00, ip @ ..] | [0x86, 0xdd, ip @ ..] => Some(ip),
                _ => None,
            }
        }
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(frame),
        DataLink::LINUX_SLL => frame.get(16..),
        DataLink::LINUX_SLL2 => frame.get(20..),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbour_discovery_and_groups_of_the_link_do_not_cross_a_path() {
        let to = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_of_the_link(to("2001:db8::1"), ICMPV6, &[135]));
        assert!(is_of_the_link(to("ff02::16"), 0, &[58]));
        assert!(!is_of_the_link(to("2001:db8::1"), ICMPV6, &[128]));
        assert!(!is_of_the_link(to("ff0e::1"), UDP, &[135]));
        assert!(is_of_the_link(to("224.0.0.251"), UDP, &[]));
        assert!(!is_of_the_link(to("224.0.1.1"), UDP, &[]));
        assert!(!is_of_the_link(to("192.0.2.1"), ICMPV6, &[135]));
    }

    #[test]
    fn the_comment_of_a_packet_states_when_it_was_due() {
        let late = "delivered 23.112 ms after arrival, due after 10.000 ms, 13112.0 us late";
        assert_eq!(delivered_after(late), Some(10_000_000));
        let undue = "delivered 23.112 ms after arrival";
        assert_eq!(delivered_after(undue), Some(23_112_000));
        for other in ["delivered", "delivered soon ms", "in flight at the end"] {
            assert_eq!(delivered_after(other), None);
        }
        let of = |flags, comment: &'static str| {
            outcome(&[
                EnhancedPacketOption::Flags(flags),
                EnhancedPacketOption::Comment(comment.into()),
            ])
        };
        assert_eq!(of(INBOUND, late), Outcome::After(10_000_000));
        assert_eq!(of(INBOUND, "dropped: loss"), Outcome::Lost);
        assert_eq!(of(INBOUND, "dropped: queue full"), Outcome::Unstated);
        assert_eq!(of(2, late), Outcome::Unstated);
    }
}
