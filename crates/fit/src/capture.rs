//! Observations from captures in pcap and pcapng: of both ends of a path, or of the end that sends pings.

mod pairing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use conditions::Direction;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, PcapError};
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::files::{FileError, enough, of_probes};
use crate::full::{Arrival, FullDirection};
use crate::observations::{PathObservations, Probe, ProbeSession, index};
use pairing::{STAMPS_NS, arrivals, needed, overtakes};

/// The first four bytes of pcapng, and those of pcap with micro- and nanoseconds in either order.
const MAGIC: [[u8; 4]; 5] = [
    [0x0a, 0x0d, 0x0d, 0x0a],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
/// The time before the end of a capture in which a packet may still be on its way, in nanoseconds.
const ON_ITS_WAY_NS: u64 = 1_000_000_000;
/// The bytes after the IP header that distinguish packets; a capture may have no more.
const DISTINCT: usize = 64;
/// The numbers of ICMP and ICMPv6 as protocols of IP, each with its types of an echo request and of a reply.
const ECHOES: [(u8, [u8; 2]); 2] = [(1, [8, 0]), (58, [128, 129])];
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Bits 0 and 1 of epb_flags are the direction; 1 is inbound, which farwire notes where a packet enters the link.
const DIRECTION_FLAGS: u32 = 3;
const INBOUND: u32 = 1;

/// A captured IP packet.
struct Packet {
    at_ns: u64,
    /// The bytes of the frame.
    bytes: u32,
    ends: (IpAddr, IpAddr),
    /// A digest of everything that a path does not change.
    digest: u64,
    /// Whether it is the answer to a ping, and its numbers.
    echo: Option<(bool, [u8; 4])>,
    /// Whether farwire noted that it was dropped for another reason than random loss, or did not see what became of it.
    is_excluded: bool,
    /// The note of farwire about a packet that entered the link here.
    outcome: Outcome,
}

/// The note in a capture about a packet that enters the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing: the packet has to be found at the other end.
    Unstated,
    /// It was due at the other end after these nanoseconds.
    After(u64),
    /// It was lost by chance.
    Lost,
}

/// The packets of both ends, or of one end.
#[derive(Default)]
struct Capture {
    ends: [Vec<Packet>; 2],
    /// Whether farwire wrote it, whose ends have one clock.
    has_one_clock: bool,
    /// Whether the file says that packets are missing at an end.
    has_dropped: [bool; 2],
}

/// Returns whether a file is a capture.
pub fn is_capture(bytes: &[u8]) -> bool {
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

/// Reads a capture. With two interfaces, which are the ends of the path, the first one at this end, packets are compared;
/// with one, it has round trips of pings.
///
/// # Errors
/// The file is damaged, has more than two interfaces, or too few packets.
pub fn read_capture(bytes: &[u8]) -> Result<PathObservations, FileError> {
    let capture = match bytes.starts_with(&MAGIC[0]) {
        true => pcapng(bytes)?,
        false => Capture {
            ends: [pcap(bytes).map_err(damaged)?, Vec::new()],
            ..Capture::default()
        },
    };
    let observed = match capture.ends.each_ref().map(Vec::is_empty) {
        [false, false] => capture.both_ends()?,
        _ => {
            let [near, far] = &capture.ends;
            of_probes(pings(if near.is_empty() { far } else { near }))
        }
    };
    enough(observed).map_err(|error| match error {
        FileError::TooFew(..) => FileError::Capture(
            "it has fewer than ten packets that are at both of its interfaces, and fewer than ten pings: capture at both ends of the \
             path, and join the files with `mergecap -I none -w both.pcapng NEAR FAR`"
                .to_owned(),
        ),
        other => other,
    })
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
            echo,
            is_excluded: false,
            outcome: Outcome::Unstated,
        })
    }
}

/// Returns whether a packet is neighbour or router discovery (RFC 4861), or goes to a group of the link, as MLD does. It does
/// not cross a path, is the same each time, and passes an emulated link without a delay.
fn is_of_the_link(to: IpAddr, protocol: u8, payload: &[u8]) -> bool {
    let is_discovery = protocol == ICMPV6 && matches!(payload.first(), Some(133..=137));
    match to {
        IpAddr::V4(_) => false,
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

/// Returns the round trips of the pings that one end sent.
fn pings(packets: &[Packet]) -> ProbeSession {
    let mut packets: Vec<&Packet> = packets.iter().filter(|one| one.echo.is_some()).collect();
    packets.sort_by_key(|packet| packet.at_ns);
    let mut sent: BTreeMap<(IpAddr, IpAddr, [u8; 4]), usize> = BTreeMap::new();
    let mut requests: Vec<(&Packet, Option<u64>)> = Vec::new();
    let (mut duplicates, mut reordered, mut highest) = (0, false, None);
    for packet in packets {
        let Some((is_reply, numbers)) = packet.echo else {
            continue;
        };
        let (from, to) = packet.ends;
        if !is_reply {
            sent.insert((from, to, numbers), requests.len());
            requests.push((packet, None));
            continue;
        }
        let Some(place) = sent.get(&(to, from, numbers)).copied() else {
            continue;
        };
        let Some((_, answered_ns)) = requests.get_mut(place) else {
            continue;
        };
        if answered_ns.is_some() {
            duplicates += 1;
            continue;
        }
        *answered_ns = Some(packet.at_ns);
        reordered |= highest > Some(place);
        highest = highest.max(Some(place));
    }
    let start_ns = requests.first().map_or(0, |(first, _)| first.at_ns);
    // A later request than the last answered one may still be answered.
    let decided = requests
        .iter()
        .take(highest.map_or(0, |highest| highest + 1));
    let probes = decided.map(|(request, answered_ns)| Probe {
        at_s: (request.at_ns - start_ns) as f64 / 1e9,
        rtt_ms: answered_ns.map(|at| (at - request.at_ns) as f64 / 1e6),
        ..Probe::default()
    });
    ProbeSession {
        wire_bytes: requests.first().map_or(0, |(first, _)| first.bytes),
        probes: probes.collect(),
        reordered: [false, reordered],
        duplicates,
        ..ProbeSession::default()
    }
}

/// A packet with the time of its arrival at the other end, if it arrived.
type Crossing<'a> = (&'a Packet, Option<u64>);

/// The packets that entered a direction.
#[derive(Default)]
struct Pairs<'a> {
    crossings: Vec<Crossing<'a>>,
    /// The packets that have equal ones, so that it is not known which of them arrived, and those that arrived before they
    /// were sent.
    unclear: Vec<&'a Packet>,
}

impl Pairs<'_> {
    /// Refuses pairs whose packet arrived before it was sent, which are not of one packet.
    fn refuse_impossible(&mut self) {
        let (kept, refused): (Vec<Crossing<'_>>, Vec<Crossing<'_>>) =
            std::mem::take(&mut self.crossings)
                .into_iter()
                .partition(|(packet, at_ns)| {
                    at_ns.is_none_or(|at_ns| at_ns.saturating_add(STAMPS_NS) >= packet.at_ns)
                });
        self.crossings = kept;
        self.unclear
            .extend(refused.into_iter().map(|(packet, _)| packet));
    }
}

impl Capture {
    /// Returns the delays and losses of the packets in each direction; of a direction that was full, the rate and the delays
    /// of the fastest packets.
    fn both_ends(&self) -> Result<PathObservations, FileError> {
        let mut directions = self.directions()?;
        let mut throughput = Vec::new();
        let mut session = ProbeSession::default();
        for (way, pairs) in &mut directions {
            pairs.refuse_impossible();
            session.unclear[index(*way)] = pairs.unclear.len() as u64;
            let all = &mut pairs.crossings;
            all.sort_by_key(|(packet, _)| packet.at_ns);
            if self.misses_arrivals(*way) {
                all.retain(|(_, at_ns)| at_ns.is_some());
            }
            let arrivals = all.iter().filter_map(|(packet, at_ns)| {
                Some(Arrival {
                    sent_ns: packet.at_ns,
                    at_ns: (*at_ns)?,
                    bytes: packet.bytes,
                })
            });
            if let Some(full) = FullDirection::of(&arrivals.collect::<Vec<Arrival>>()) {
                all.retain(|(packet, at_ns)| {
                    at_ns.is_some_and(|at_ns| full.is_fast(packet.at_ns, at_ns))
                });
                throughput.push((*way, full.rates));
            }
        }
        let start_ns = directions
            .iter()
            .filter_map(|(_, pairs)| Some(pairs.crossings.first()?.0.at_ns))
            .min()
            .unwrap_or_default();
        let mut least_ms = 0.0;
        for (way, pairs) in &directions {
            let all = &pairs.crossings;
            let delays = all.iter().filter_map(|(packet, arrived_ns)| {
                Some((*arrived_ns)?.saturating_sub(packet.at_ns) as f64 / 1e6)
            });
            least_ms += delays.reduce(f64::min).unwrap_or_default();
            let place = index(*way);
            let is_full = throughput.iter().any(|(full, _)| full == way);
            // A full queue drops packets, so that losses are not random.
            session.losses[place] = Some(match is_full || self.misses_arrivals(*way) {
                true => Losses::default(),
                false => Losses::in_order(all.iter().map(|(_, at)| at.is_none())),
            });
            let arrived = all
                .iter()
                .filter_map(|(packet, at)| Some((packet.at_ns, (*at)?)));
            session.reordered[place] = overtakes(&arrived.collect::<Vec<(u64, u64)>>());
            session
                .probes
                .extend(all.iter().map(|(packet, arrived_ns)| {
                    let mut probe = Probe {
                        at_s: (packet.at_ns - start_ns) as f64 / 1e9,
                        lost: arrived_ns.is_none().then_some(*way),
                        ..Probe::default()
                    };
                    probe.one_way_ms[place] =
                        arrived_ns.map(|at| at.saturating_sub(packet.at_ns) as f64 / 1e6);
                    probe
                }));
        }
        // Clocks of two hosts are only known to differ by less than makes a delay negative.
        session.clock_error_ms = if self.has_one_clock {
            0.0
        } else {
            least_ms / 2.0
        };
        session
            .probes
            .sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        Ok(PathObservations {
            idle: session,
            throughput,
            ..PathObservations::default()
        })
    }

    /// Returns whether packets are missing in the capture at the end to which a direction goes, so that a packet that is not
    /// there need not be lost. farwire itself says what became of each packet.
    fn misses_arrivals(&self, way: Direction) -> bool {
        let [near, far] = self.has_dropped;
        !self.has_one_clock && way.choose(far, near)
    }

    /// Returns the packets at one end with the times at which the same ones were at the other one.
    fn pairs(&self, end: usize) -> Pairs<'_> {
        let mut there: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for packet in &self.ends[1 - end] {
            there.entry(packet.digest).or_default().push(packet.at_ns);
        }
        let mut pairs = Pairs::default();
        let mut here: BTreeMap<u64, Vec<&Packet>> = BTreeMap::new();
        for packet in &self.ends[end] {
            match packet.outcome {
                Outcome::Unstated if packet.is_excluded => {}
                Outcome::Unstated => here.entry(packet.digest).or_default().push(packet),
                Outcome::Lost => pairs.crossings.push((packet, None)),
                Outcome::After(ns) => {
                    let at_ns = packet.at_ns.saturating_add(ns);
                    pairs.crossings.push((packet, Some(at_ns)));
                }
            }
        }
        let groups = here.into_iter().map(|(digest, mut packets)| {
            let mut times = there.remove(&digest).unwrap_or_default();
            packets.sort_by_key(|packet| packet.at_ns);
            times.sort_unstable();
            (packets, times)
        });
        let groups: Vec<(Vec<&Packet>, Vec<u64>)> = groups.collect();
        // The least and the longest time that packets without equal ones needed.
        let mut ranges: BTreeMap<(IpAddr, IpAddr), [i128; 2]> = BTreeMap::new();
        for (packets, times) in &groups {
            if let ([packet], [at_ns]) = (packets.as_slice(), times.as_slice()) {
                let needed = needed(packet.at_ns, *at_ns);
                let [least, most] = ranges.entry(packet.ends).or_insert([needed; 2]);
                (*least, *most) = (needed.min(*least), needed.max(*most));
            }
        }
        for (packets, times) in groups {
            let sent: Vec<u64> = packets.iter().map(|packet| packet.at_ns).collect();
            let range = packets.first().and_then(|first| ranges.get(&first.ends));
            match arrivals(&sent, &times, range.copied()) {
                Some(arrived) => pairs.crossings.extend(packets.into_iter().zip(arrived)),
                None => pairs.unclear.extend(packets),
            }
        }
        pairs
    }

    /// Divides the packets by their directions: those from a source whose packets are usually at the near end first go
    /// up. Only packets of the time in which both ends captured count.
    fn directions(&self) -> Result<[(Direction, Pairs<'_>); 2], FileError> {
        let [mut at_near, mut at_far] = [0, 1].map(|end| self.pairs(end));
        let mut ahead: BTreeMap<(IpAddr, IpAddr), Vec<f64>> = BTreeMap::new();
        for (packet, arrived_ns) in &at_near.crossings {
            if let Some(arrived_ns) = arrived_ns {
                let all = ahead.entry(packet.ends).or_default();
                all.push(*arrived_ns as f64 - packet.at_ns as f64);
            }
        }
        let goes_up: BTreeMap<(IpAddr, IpAddr), bool> = ahead
            .into_iter()
            .filter_map(|(ends, ahead)| Some((ends, quantile(&sorted(&ahead), 0.5)? > 0.0)))
            .collect();
        let answers = |(from, to): &(IpAddr, IpAddr)| goes_up.get(&(*to, *from));
        if goes_up.iter().any(|(ends, up)| answers(ends) == Some(up)) {
            return Err(FileError::Capture(
                "the clocks of both ends differ by more than the delay: synchronise them, and capture again".to_owned(),
            ));
        }
        let times = |end: &Vec<Packet>| {
            let times = || end.iter().map(|packet| packet.at_ns);
            Some([times().min()?, times().max()?])
        };
        let [near, far] = self.ends.each_ref().map(times);
        let [from_ns, until_ns] = near.zip(far).map_or([0; 2], |(near, far)| {
            [
                near[0].max(far[0]),
                near[1].min(far[1]).saturating_sub(ON_ITS_WAY_NS),
            ]
        });
        // Trains that a host puts together for its own interface never cross the path as they are.
        let matched = at_near
            .crossings
            .iter()
            .filter(|(_, arrived_ns)| arrived_ns.is_some());
        let longest = matched
            .map(|(packet, _)| packet.bytes)
            .max()
            .unwrap_or_default();
        Ok(DIRECTIONS.map(|way| {
            let mut pairs = std::mem::take(way.choose(&mut at_near, &mut at_far));
            let counts = |packet: &Packet| {
                goes_up.get(&packet.ends) == Some(&(way == Direction::Up))
                    && (from_ns..=until_ns).contains(&packet.at_ns)
                    && packet.bytes <= longest
                    && !packet.is_excluded
            };
            pairs.crossings.retain(|(packet, _)| counts(packet));
            pairs.unclear.retain(|packet| counts(packet));
            (way, pairs)
        }))
    }
}
