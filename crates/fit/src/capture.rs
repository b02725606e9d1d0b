//! Observations from captures in pcap and pcapng: of both ends of a path, or of the end that sends pings.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use conditions::Direction;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, PcapError};
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::files::{FileError, enough, of_probes};
use crate::full::{Arrival, FullDirection};
use crate::observations::{PathObservations, Probe, ProbeSession, index};

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
}

/// The packets of both ends, or of one end.
#[derive(Default)]
struct Capture {
    ends: [Vec<Packet>; 2],
    /// Whether farwire wrote it, whose ends have one clock.
    has_one_clock: bool,
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
            has_one_clock: false,
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
    while !rest.is_empty() {
        let (left, block) = match parser.next_block(rest) {
            Err(PcapError::IncompleteBuffer) => break,
            found => found.map_err(damaged)?,
        };
        rest = left;
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
    Ok(capture)
}

fn is_farwire(option: &SectionHeaderOption<'_>) -> bool {
    matches!(option, SectionHeaderOption::UserApplication(name) if name.starts_with("farwire "))
}

/// Returns whether a comment of farwire says that a packet was dropped for another reason than random loss.
fn is_excluded(option: &EnhancedPacketOption<'_>) -> bool {
    let EnhancedPacketOption::Comment(comment) = option else {
        return false;
    };
    let is_loss = comment.starts_with("dropped: loss");
    let is_undecided =
        comment.starts_with("in flight") || comment.starts_with("lost by the emulator");
    is_undecided || (comment.starts_with("dropped: ") && !is_loss)
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
    /// Reads a frame; `None` if it is not IP.
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
        })
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

impl Capture {
    /// Returns the delays and losses of the packets in each direction; of a direction that was full, the rate and the delays
    /// of the fastest packets.
    fn both_ends(&self) -> Result<PathObservations, FileError> {
        let mut crossings = self.directions()?;
        let mut throughput = Vec::new();
        for (way, all) in &mut crossings {
            all.sort_by_key(|(packet, _)| packet.at_ns);
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
        let start_ns = crossings
            .iter()
            .filter_map(|(_, all)| Some(all.first()?.0.at_ns))
            .min()
            .unwrap_or_default();
        let mut session = ProbeSession::default();
        let mut least_ms = 0.0;
        for (way, all) in &crossings {
            let delays = all.iter().filter_map(|(packet, arrived_ns)| {
                Some((*arrived_ns)?.saturating_sub(packet.at_ns) as f64 / 1e6)
            });
            least_ms += delays.reduce(f64::min).unwrap_or_default();
            let place = index(*way);
            let is_full = throughput.iter().any(|(full, _)| full == way);
            // A full queue drops packets, so that losses are not random.
            session.losses[place] = Some(match is_full {
                true => Losses::default(),
                false => Losses::in_order(all.iter().map(|(_, at)| at.is_none())),
            });
            let arrivals: Vec<u64> = all.iter().filter_map(|(_, at)| *at).collect();
            session.reordered[place] = !arrivals.is_sorted();
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

    /// Returns the packets at one end with the times at which the same ones were at the other one. Equal packets that are
    /// not equally many at both ends are left out.
    fn crossings(&self, end: usize) -> Vec<Crossing<'_>> {
        let mut there: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for packet in &self.ends[1 - end] {
            there.entry(packet.digest).or_default().push(packet.at_ns);
        }
        let mut here: BTreeMap<u64, Vec<&Packet>> = BTreeMap::new();
        for packet in &self.ends[end] {
            here.entry(packet.digest).or_default().push(packet);
        }
        let mut crossings = Vec::new();
        for (digest, mut packets) in here {
            let mut times = there.remove(&digest).unwrap_or_default();
            packets.sort_by_key(|packet| packet.at_ns);
            times.sort_unstable();
            if times.is_empty() {
                crossings.extend(packets.into_iter().map(|packet| (packet, None)));
            } else if times.len() == packets.len() {
                crossings.extend(packets.into_iter().zip(times.into_iter().map(Some)));
            }
        }
        crossings
    }

    /// Divides the packets by their directions: those from a source whose packets are usually at the near end first go
    /// up. Only packets of the time in which both ends captured count.
    fn directions(&self) -> Result<[(Direction, Vec<Crossing<'_>>); 2], FileError> {
        let [mut at_near, mut at_far] = [0, 1].map(|end| self.crossings(end));
        let mut ahead: BTreeMap<(IpAddr, IpAddr), Vec<f64>> = BTreeMap::new();
        for (packet, arrived_ns) in &at_near {
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
            .iter()
            .filter(|(_, arrived_ns)| arrived_ns.is_some());
        let longest = matched
            .map(|(packet, _)| packet.bytes)
            .max()
            .unwrap_or_default();
        Ok(DIRECTIONS.map(|way| {
            let mut all = std::mem::take(way.choose(&mut at_near, &mut at_far));
            all.retain(|(packet, _)| {
                goes_up.get(&packet.ends) == Some(&(way == Direction::Up))
                    && (from_ns..=until_ns).contains(&packet.at_ns)
                    && packet.bytes <= longest
                    && !packet.is_excluded
            });
            (way, all)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pcap_file::TsResolution;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

    use super::*;
    use crate::LinkFit;

    const HOSTS: [[u8; 4]; 2] = [[192, 0, 2, 1], [198, 51, 100, 7]];

    /// Returns a frame of UDP between the hosts, with the time to live that is left at an end.
    fn frame(number: u32, way: Direction, ttl: u8) -> Vec<u8> {
        let [from, to] = way.choose([0, 1], [1, 0]).map(|at| HOSTS[at]);
        let [.., high, low] = number.to_be_bytes();
        let mut frame = vec![0; 12];
        frame.extend([
            0x08, 0x00, 0x45, 0, 0, 48, high, low, 0x40, 0, ttl, UDP, 0, 0,
        ]);
        frame.extend(from);
        frame.extend(to);
        // Ports, length, and a checksum that only one end has.
        frame.extend([0x10, 0, 0x20, 0, 0, 28, ttl, ttl]);
        frame.extend([0; 16]);
        frame.extend(number.to_be_bytes());
        frame
    }

    /// Writes packets, each with its interface and its time in microseconds.
    fn written(packets: &[(u32, u64, Vec<u8>)]) -> Vec<u8> {
        let mut file = PcapNgWriter::new(Vec::new()).unwrap();
        for _ in 0..2 {
            file.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: Vec::new(),
            })
            .unwrap();
        }
        for (interface_id, at_us, data) in packets {
            file.write_pcapng_block(EnhancedPacketBlock {
                interface_id: *interface_id,
                // The library writes nanoseconds in place of the interface's microseconds.
                timestamp: Duration::from_nanos(*at_us),
                original_len: u32::try_from(data.len()).unwrap(),
                data: data.as_slice().into(),
                options: Vec::new(),
            })
            .unwrap();
        }
        file.into_inner()
    }

    /// Returns a capture of both ends of a path that needs 20 ms up and 30 ms down, and loses every tenth packet up. The far
    /// clock is ahead by some microseconds.
    fn both_ends(ahead_us: u64) -> Vec<u8> {
        let mut packets = Vec::new();
        for number in 0..400_u32 {
            let at_us = 1_000_000 + 10_000 * u64::from(number);
            packets.push((0, at_us, frame(number, Direction::Up, 64)));
            if number % 10 != 0 {
                let at_us = at_us + 20_000 + ahead_us;
                packets.push((1, at_us, frame(number, Direction::Up, 60)));
            }
            packets.push((1, at_us + ahead_us, frame(number, Direction::Down, 64)));
            packets.push((0, at_us + 30_000, frame(number, Direction::Down, 60)));
        }
        packets.sort_by_key(|(_, at_us, _)| *at_us);
        written(&packets)
    }

    #[test]
    fn a_capture_of_both_ends_has_the_delay_and_the_loss_of_each_direction() {
        let observed = read_capture(&both_ends(0)).unwrap();
        let [up, down] = observed.idle.losses.map(Option::unwrap);
        // Packets of the last second may still be on their way.
        assert_eq!((up.lost, up.bursts, up.of), (31, 31, 302));
        assert_eq!((down.lost, down.of), (0, 302));
        let found = LinkFit::of(&observed);
        let delays = [&found.up, &found.down].map(|one| one.delay.as_ref().unwrap().ms);
        let is_near = |found: f64, truth: f64| (found - truth).abs() < 0.01;
        assert!(
            is_near(delays[0].value, 20.0) && is_near(delays[1].value, 30.0),
            "{delays:?}"
        );
        // Nothing relates the clocks of the captures but that no delay is negative.
        assert!(
            delays[0].contains(1.0) && delays[1].contains(54.0),
            "{delays:?}"
        );
    }

    #[test]
    fn clocks_that_make_delays_negative_are_refused() {
        let error = read_capture(&both_ends(35_000)).unwrap_err().to_string();
        assert!(error.contains("synchronise them"), "{error}");
        assert!(read_capture(&both_ends(5_000)).is_ok());
    }

    /// Returns a frame of a ping or its answer.
    fn ping(number: u16, is_reply: bool) -> Vec<u8> {
        let way = if is_reply {
            Direction::Down
        } else {
            Direction::Up
        };
        let mut frame = frame(number.into(), way, 64);
        frame[23] = 1;
        let number = number.to_be_bytes();
        let kind = if is_reply { 0 } else { 8 };
        frame.splice(34..42, [kind, 0, 0, 0, 7, 7, number[0], number[1]]);
        frame
    }

    #[test]
    fn a_capture_of_one_end_has_the_round_trips_of_pings() {
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let mut file = PcapWriter::with_header(Vec::new(), header).unwrap();
        let mut packets = Vec::new();
        for number in 0..100_u16 {
            let at_ms = 50 * u64::from(number);
            packets.push((at_ms, ping(number, false)));
            if number % 25 != 3 {
                packets.push((at_ms + 40, ping(number, true)));
            }
        }
        for (at_ms, data) in &packets {
            let packet = PcapPacket::new(
                Duration::from_millis(*at_ms),
                u32::try_from(data.len()).unwrap(),
                data,
            );
            file.write_packet(&packet).unwrap();
        }
        let bytes = file.into_writer();
        assert!(is_capture(&bytes));
        let idle = read_capture(&bytes).unwrap().idle;
        assert_eq!((idle.probes.len(), idle.answered().count()), (100, 96));
        assert_eq!(idle.probes[3].rtt_ms, None);
        assert_eq!((idle.probes[0].rtt_ms, idle.wire_bytes), (Some(40.0), 62));
        // The last packet is not complete.
        let cut = read_capture(&bytes[..bytes.len() - 5]).unwrap().idle;
        assert_eq!(cut.answered().count(), 95);
    }

    #[test]
    fn a_capture_that_shows_nothing_is_refused_with_what_to_do() {
        let few = written(&[(0, 0, frame(1, Direction::Up, 64))]);
        let error = read_capture(&few).unwrap_err().to_string();
        assert!(error.contains("mergecap -I none"), "{error}");
        let error = read_capture(&[0xa1, 0xb2, 0xc3, 0xd4, 0])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("the capture is damaged: "), "{error}");
    }
}
