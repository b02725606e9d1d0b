//! Observations from captures in pcap and pcapng: of both ends of a path, or of the end that sends pings.

mod packets;
mod pairing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use conditions::Direction;
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::DIRECTIONS;
use crate::files::{FileError, day_of, enough, of_probes};
use crate::full::{Arrival, FullDirection};
use crate::index;
use crate::observations::{Marks, PathObservations, Probe, ProbeSession};
use packets::{Capture, Outcome, Packet};
use pairing::{Needed, STAMPS_NS, arrivals, overtakes};

pub use packets::is_capture;

/// The time before the end of a capture in which a packet may still be on its way, in nanoseconds.
const ON_ITS_WAY_NS: u64 = 1_000_000_000;
/// The largest share of packets without equal ones that may arrive before they were sent, unless the clocks are wrong.
const MOST_IMPOSSIBLE: f64 = 0.01;

/// Reads a capture. With two interfaces, which are the ends of the path, the first one at this end, packets are compared;
/// with one, it has round trips of pings.
///
/// # Errors
/// The file is damaged, has more than two interfaces or too few packets, or its ends have different clocks.
pub fn read_capture(bytes: &[u8]) -> Result<PathObservations, FileError> {
    let capture = Capture::read(bytes)?;
    let observed = match capture.ends.each_ref().map(Vec::is_empty) {
        [false, false] => capture.both_ends()?,
        _ => {
            let [near, far] = &capture.ends;
            of_probes(pings(if near.is_empty() { far } else { near }))
        }
    };
    let times = capture.ends.iter().flatten().map(|packet| packet.at_ns);
    let began_s = times.min().map(|at_ns| at_ns / 1_000_000_000);
    let observed = PathObservations {
        measured_on: began_s.and_then(|s| day_of(s.try_into().ok()?)),
        ..observed
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

fn wrong_clocks() -> FileError {
    FileError::Capture(
        "the clocks of both ends differ by more than the delay: synchronise them, and capture again"
            .to_owned(),
    )
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

/// A packet that entered a direction.
struct Crossing<'a> {
    packet: &'a Packet,
    /// The time of its arrival at the other end, if it arrived.
    arrived_ns: Option<u64>,
    /// Whether no other packet is equal, so that what arrived is the same packet.
    is_unique: bool,
}

/// The packets that entered a direction.
#[derive(Default)]
struct Pairs<'a> {
    crossings: Vec<Crossing<'a>>,
    /// The packets that have equal ones, so that it is not known which of them arrived, and those that arrived before they
    /// were sent.
    unclear: Vec<&'a Packet>,
}

impl Crossing<'_> {
    /// Returns whether it arrived before it was sent, by more than the error of timestamps.
    fn is_impossible(&self) -> bool {
        let sent_ns = self.packet.at_ns;
        self.arrived_ns
            .is_some_and(|at_ns| at_ns.saturating_add(STAMPS_NS) < sent_ns)
    }
}

impl Pairs<'_> {
    /// Returns whether too many unique packets arrived before they were sent. A few may be different packets, of which each end
    /// captured one.
    fn show_wrong_clocks(&self) -> bool {
        let unique = self.crossings.iter().filter(|one| one.is_unique);
        let arrived: Vec<&Crossing<'_>> = unique.filter(|one| one.arrived_ns.is_some()).collect();
        let impossible = arrived.iter().filter(|one| one.is_impossible()).count();
        impossible as f64 > MOST_IMPOSSIBLE * arrived.len() as f64
    }

    /// Refuses pairs whose packet arrived before it was sent, which are not of one packet.
    fn refuse_impossible(&mut self) {
        let all = std::mem::take(&mut self.crossings).into_iter();
        let (refused, kept): (Vec<Crossing<'_>>, Vec<Crossing<'_>>) =
            all.partition(Crossing::is_impossible);
        self.crossings = kept;
        self.unclear
            .extend(refused.into_iter().map(|one| one.packet));
    }
}

impl Capture {
    /// Returns the delays and losses of the packets in each direction; of a direction that was full, the rate and the delays
    /// of the fastest packets.
    fn both_ends(&self) -> Result<PathObservations, FileError> {
        let mut directions = self.directions()?;
        let mut throughput = Vec::new();
        let mut lacks = Vec::new();
        let mut marked = [Marks::default(); 2];
        let mut session = ProbeSession::default();
        for (way, pairs) in &mut directions {
            if !self.has_one_clock && pairs.show_wrong_clocks() {
                return Err(wrong_clocks());
            }
            pairs.refuse_impossible();
            session.unclear[index(*way)] = pairs.unclear.len() as u64;
            let marks = self.marks(*way, pairs);
            marked[index(*way)] = marks;
            let all = &mut pairs.crossings;
            all.sort_by_key(|one| one.packet.at_ns);
            if self.misses_arrivals(*way) {
                all.retain(|one| one.arrived_ns.is_some());
            }
            let arrivals = all.iter().filter_map(|one| {
                Some(Arrival {
                    sent_ns: one.packet.at_ns,
                    at_ns: one.arrived_ns?,
                    bytes: one.packet.bytes,
                })
            });
            let full = FullDirection::of(&arrivals.collect::<Vec<Arrival>>());
            lacks.extend(self.lack(*way, full.is_some()));
            if full.is_none() && marks.show_managed_queue() {
                lacks.push(format!(
                    "the queue {}: {} packets were marked (ECN), so that it is managed, but the direction was not full, so that its rate \
                     is not known",
                    way.name(),
                    marks.count
                ));
            }
            if let Some(full) = full {
                all.retain(|one| {
                    one.arrived_ns
                        .is_some_and(|at_ns| full.is_fast(one.packet.at_ns, at_ns))
                });
                throughput.push((*way, full.over_time()));
            }
        }
        let start_ns = directions
            .iter()
            .filter_map(|(_, pairs)| Some(pairs.crossings.first()?.packet.at_ns))
            .min()
            .unwrap_or_default();
        let mut least_ms = 0.0;
        for (way, pairs) in &directions {
            let all = &pairs.crossings;
            let delays = all.iter().filter_map(|one| {
                Some(one.arrived_ns?.saturating_sub(one.packet.at_ns) as f64 / 1e6)
            });
            least_ms += delays.reduce(f64::min).unwrap_or_default();
            let place = index(*way);
            let is_full = throughput.iter().any(|(full, _)| full == way);
            // A full queue drops packets, so that losses are not random.
            session.losses[place] = Some(match is_full || self.misses_arrivals(*way) {
                true => Losses::default(),
                false => Losses::in_order(all.iter().map(|one| one.arrived_ns.is_none())),
            });
            let arrived = all
                .iter()
                .filter_map(|one| Some((one.packet.at_ns, one.arrived_ns?)));
            session.reordered[place] = overtakes(&arrived.collect::<Vec<(u64, u64)>>());
            session.probes.extend(all.iter().map(|one| {
                let sent_ns = one.packet.at_ns;
                let mut probe = Probe {
                    at_s: (sent_ns - start_ns) as f64 / 1e9,
                    lost: one.arrived_ns.is_none().then_some(*way),
                    ..Probe::default()
                };
                probe.one_way_ms[place] = one
                    .arrived_ns
                    .map(|at_ns| at_ns.saturating_sub(sent_ns) as f64 / 1e6);
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
            marked,
            lacks,
            ..PathObservations::default()
        })
    }

    /// Counts the packets of a direction that were marked for congestion between both ends.
    fn marks(&self, way: Direction, pairs: &Pairs<'_>) -> Marks {
        let unmarked = pairs.crossings.iter().map(|one| one.packet);
        let unmarked = unmarked.filter(|packet| !packet.is_marked);
        let unmarked: BTreeSet<u64> = unmarked.map(|packet| packet.digest).collect();
        let [near, far] = &self.ends;
        let arrived = way.choose(far, near).iter();
        let marked = arrived.filter(|one| one.is_marked && unmarked.contains(&one.digest));
        let marked_ns: Vec<u64> = marked.map(|one| one.at_ns).collect();
        let arrived_ns = || pairs.crossings.iter().filter_map(|one| one.arrived_ns);
        let between_ns = [arrived_ns().min(), arrived_ns().max()].map(Option::unwrap_or_default);
        Marks::at(&marked_ns, between_ns)
    }

    /// Returns whether packets are missing in the capture at the end to which a direction goes, so that a packet that is not
    /// there need not be lost. farwire itself says what became of each packet.
    fn misses_arrivals(&self, way: Direction) -> bool {
        let [near, far] = self.has_dropped;
        !self.has_one_clock && way.choose(far, near)
    }

    /// Returns what a direction cannot show, with the reason, if it was full or packets are missing at its end.
    fn lack(&self, way: Direction, is_full: bool) -> Option<String> {
        let name = way.name();
        if is_full {
            return Some(format!(
                "jitter and random loss {name}: the direction was full, so that its queue delayed and dropped packets"
            ));
        }
        self.misses_arrivals(way).then(|| {
            format!(
                "the loss {name}: the capture could not keep all packets at the end where they arrive"
            )
        })
    }

    /// Returns the packets at one end with the times at which the same ones were at the other one.
    fn pairs(&self, end: usize) -> Pairs<'_> {
        let mut there: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for packet in &self.ends[1 - end] {
            there.entry(packet.digest).or_default().push(packet.at_ns);
        }
        let mut pairs = Pairs::default();
        let stated = |packet, arrived_ns| Crossing {
            packet,
            arrived_ns,
            is_unique: true,
        };
        let mut here: BTreeMap<u64, Vec<&Packet>> = BTreeMap::new();
        for packet in &self.ends[end] {
            match packet.outcome {
                Outcome::Unstated if packet.is_excluded => {}
                Outcome::Unstated => here.entry(packet.digest).or_default().push(packet),
                Outcome::Lost => pairs.crossings.push(stated(packet, None)),
                Outcome::After(ns) => {
                    let at_ns = packet.at_ns.saturating_add(ns);
                    pairs.crossings.push(stated(packet, Some(at_ns)));
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
        let mut known: BTreeMap<(IpAddr, IpAddr), Needed> = BTreeMap::new();
        for (packets, times) in &groups {
            if let ([packet], [at_ns]) = (packets.as_slice(), times.as_slice()) {
                let needed = known.entry(packet.ends).or_default();
                needed.add(packet.at_ns, *at_ns);
            }
        }
        for (packets, times) in groups {
            let sent: Vec<u64> = packets.iter().map(|packet| packet.at_ns).collect();
            let needed = packets.first().and_then(|first| known.get(&first.ends));
            match arrivals(&sent, &times, needed.and_then(Needed::range)) {
                Some(arrived) => {
                    let is_unique = packets.len() == 1 && times.len() <= 1;
                    let both = packets.into_iter().zip(arrived);
                    let crossings = both.map(|(packet, arrived_ns)| Crossing {
                        packet,
                        arrived_ns,
                        is_unique,
                    });
                    pairs.crossings.extend(crossings);
                }
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
        for one in &at_near.crossings {
            if let Some(arrived_ns) = one.arrived_ns {
                let all = ahead.entry(one.packet.ends).or_default();
                all.push(arrived_ns as f64 - one.packet.at_ns as f64);
            }
        }
        let goes_up: BTreeMap<(IpAddr, IpAddr), bool> = ahead
            .into_iter()
            .filter_map(|(ends, ahead)| Some((ends, quantile(&sorted(&ahead), 0.5)? > 0.0)))
            .collect();
        let answers = |(from, to): &(IpAddr, IpAddr)| goes_up.get(&(*to, *from));
        if goes_up.iter().any(|(ends, up)| answers(ends) == Some(up)) {
            return Err(wrong_clocks());
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
            .filter(|one| one.arrived_ns.is_some());
        let longest = matched
            .map(|one| one.packet.bytes)
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
            pairs.crossings.retain(|one| counts(one.packet));
            pairs.unclear.retain(|packet| counts(packet));
            (way, pairs)
        }))
    }
}
