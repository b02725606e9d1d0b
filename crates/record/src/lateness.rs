//! Whether packets left the emulator late, judged for each instrument by its own packets in its own time, and for each
//! figure against what it claims.

use std::fmt;
use std::str::FromStr;

use model::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::counted;
use crate::{Direction, Figure, Statistic};

/// One late packet in so many touches the bulk of a measurement, and with it every figure.
const BULK: u64 = 20;
/// One in so many is the tail that a 99th percentile speaks of.
const TAIL: u64 = 100;

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet that leaves later than this after its due time is late; 1 ms unless said. Above 0, at most 1 s; written as a time
/// with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Nanos", into = "Nanos")]
pub struct LateBudget(Nanos);

/// Whose packets an emulator counts together: those of one IP protocol and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKind {
    /// The IP protocol number; 0 is whatever found no place of its own.
    pub protocol: u8,
    /// The lower of the two ports, which is the service's; 0 where there are none.
    pub port: u16,
}

/// Packets of one kind that left a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowDepartures {
    /// Whose.
    pub kind: FlowKind,
    /// From client to server.
    pub up: Departed,
    /// From server to client.
    pub down: Departed,
}

/// How many packets left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// All of them.
    pub packets: u64,
    /// Those that left later than the budget after their due time.
    pub late: u64,
}

/// What left a link until some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkDepartures {
    /// The plan's name for the link.
    pub link: String,
    /// The budget.
    pub budget_ns: u64,
    /// By kind; new kinds come at the end.
    pub flows: Vec<FlowDepartures>,
}

/// Which packets an instrument's figures are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Echo requests and replies.
    Icmp,
    /// Of TCP, at this port of the far end if one is known.
    Tcp(Option<u16>),
    /// Of UDP, at this port of the far end if one is known.
    Udp(Option<u16>),
}

/// How many packets of an instrument left a link one way while it measured, and how many of them late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatePackets {
    /// The plan's name for the link.
    pub link: String,
    /// Which packets: "icmp", "tcp 80", "udp 862"; without a port all of the protocol.
    pub traffic: String,
    /// Which way they went.
    pub direction: Direction,
    /// How many, and how many late.
    #[serde(flatten)]
    pub departed: Departed,
    /// What is late.
    pub budget_ns: u64,
}

impl LateBudget {
    /// What there is unless another was asked for.
    pub const DEFAULT: Self = Self(Nanos::from_millis(1));
    /// Whoever lets packets be later than this has no use for the count.
    const MOST: Nanos = Nanos::from_secs(1);

    /// The time.
    pub fn time(self) -> Nanos {
        self.0
    }
}

impl Default for LateBudget {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<Nanos> for LateBudget {
    type Error = String;

    fn try_from(time: Nanos) -> Result<Self, String> {
        if time == Nanos::ZERO || time > Self::MOST {
            return Err(format!(
                "`{time}` is out of range: write a time above 0 and at most 1s, as in 1ms"
            ));
        }
        Ok(Self(time))
    }
}

impl From<LateBudget> for Nanos {
    fn from(budget: LateBudget) -> Self {
        budget.0
    }
}

impl FromStr for LateBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time: Nanos = text.parse().map_err(|cause| format!("{cause}"))?;
        time.try_into()
    }
}

impl fmt::Display for LateBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Traffic {
    /// Whether packets of `kind` are among these, or may be.
    fn has(self, kind: FlowKind) -> bool {
        let (protocols, port): (&[u8], _) = match self {
            Self::Icmp => (&[ICMP, ICMP_V6], None),
            Self::Tcp(port) => (&[TCP], port),
            Self::Udp(port) => (&[UDP], port),
        };
        let at_port = port.is_none_or(|port| [port, 0].contains(&kind.port));
        kind.protocol == 0 || protocols.contains(&kind.protocol) && at_port
    }

    fn words(self) -> String {
        match self {
            Self::Icmp => "icmp".to_owned(),
            Self::Tcp(None) => "tcp".to_owned(),
            Self::Udp(None) => "udp".to_owned(),
            Self::Tcp(Some(port)) => format!("tcp {port}"),
            Self::Udp(Some(port)) => format!("udp {port}"),
        }
    }
}

impl FlowDepartures {
    fn toward(&self, direction: Direction) -> Departed {
        direction.choose(self.up, self.down)
    }
}

impl LinkDepartures {
    /// What has left several links, together under one name.
    pub fn of_all(name: String, budget: LateBudget, links: Vec<Vec<FlowDepartures>>) -> Self {
        let mut flows: Vec<FlowDepartures> = Vec::new();
        for flow in links.into_iter().flatten() {
            match flows.iter_mut().find(|known| known.kind == flow.kind) {
                Some(known) => {
                    known.up.add(flow.up);
                    known.down.add(flow.down);
                }
                None => flows.push(flow),
            }
        }
        Self {
            link: name,
            budget_ns: budget.time().0,
            flows,
        }
    }
}

impl Departed {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.late += other.late;
    }
}

/// What of each `traffic` left the links between two looks at them.
pub fn between(
    before: &[LinkDepartures],
    after: &[LinkDepartures],
    traffic: &[Traffic],
) -> Vec<LatePackets> {
    let mut all = Vec::new();
    for (before, after) in before.iter().zip(after) {
        for one in traffic {
            for direction in [Direction::Up, Direction::Down] {
                let mut departed = Departed::default();
                for flow in after.flows.iter().filter(|flow| one.has(flow.kind)) {
                    let mut old = before.flows.iter();
                    let old = old.find(|old| old.kind == flow.kind);
                    let old = old.map_or(Departed::default(), |old| old.toward(direction));
                    let new = flow.toward(direction);
                    departed.packets += new.packets - old.packets;
                    departed.late += new.late - old.late;
                }
                if departed.packets > 0 {
                    all.push(LatePackets {
                        link: after.link.clone(),
                        traffic: one.words(),
                        direction,
                        departed,
                        budget_ns: after.budget_ns,
                    });
                }
            }
        }
    }
    all
}

/// Why `figure` is not the network's, if late packets reach what it speaks of.
///
/// A figure of one direction is judged by the packets that went that way; one of a round trip, and every one of TCP, which its
/// acknowledgements clock, by both. A median, a mean, a loss or a rate stands until one packet in twenty is late, a 99th
/// percentile until one in a hundred is.
pub fn spoilt(late: &[LatePackets], figure: &Figure) -> Option<String> {
    let one_in = match figure.statistic {
        Statistic::P99 => TAIL,
        _ => BULK,
    };
    cause(late, figure.direction, one_in)
}

/// Why the bulk of what one of `figures` is of is not the network's, if so.
pub fn invalid(late: &[LatePackets], figures: &[Figure]) -> Option<String> {
    let mut figures = figures.iter();
    figures.find_map(|figure| cause(late, figure.direction, BULK))
}

/// What is late in at least one packet in `one_in`, one way or another. A packet may be late on every link and on its way
/// back, so the late ones of all count against the packets of one.
fn cause(late: &[LatePackets], direction: Option<Direction>, one_in: u64) -> Option<String> {
    let mut traffic: Vec<&str> = late.iter().map(|one| one.traffic.as_str()).collect();
    traffic.dedup();
    traffic.into_iter().find_map(|traffic| {
        let is_judged = |one: &&LatePackets| {
            let this_way = direction.is_none_or(|way| way == one.direction);
            one.traffic == traffic && (this_way || traffic.starts_with("tcp"))
        };
        let judged: Vec<_> = late.iter().filter(is_judged).collect();
        let packets = judged.iter().map(|one| one.departed.packets).max()?;
        let sum: u64 = judged.iter().map(|one| one.departed.late).sum();
        let reached = match one_in {
            TAIL => sum > 0 && sum * one_in >= packets,
            _ => sum * one_in > packets,
        };
        reached.then(|| in_words(&judged))
    })
}

/// "4 of 10 packets up left more than 1 ms late, 1 of 10 packets down".
fn in_words(judged: &[&LatePackets]) -> String {
    let mut links: Vec<&str> = judged.iter().map(|one| one.link.as_str()).collect();
    links.dedup();
    let several = links.len() > 1;
    let late = judged.iter().filter(|one| one.departed.late > 0);
    let parts = late.map(|one| {
        let place = if several {
            format!(" on {}", one.link)
        } else {
            String::new()
        };
        let Departed { packets, late } = one.departed;
        let (packets, way) = (counted(packets, "packet"), one.direction.name());
        format!("{late} of {packets} {way}{place}")
    });
    let budget = judged.first().map_or(0, |one| one.budget_ns);
    #[expect(clippy::cast_precision_loss, reason = "a budget has few digits")]
    let millis = budget as f64 / 1e6;
    format!(
        "{} left more than {millis} ms late",
        parts.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    fn late(traffic: &str, direction: Direction, packets: u64, late: u64) -> LatePackets {
        LatePackets {
            link: "link".to_owned(),
            traffic: traffic.to_owned(),
            direction,
            departed: Departed { packets, late },
            budget_ns: 1_000_000,
        }
    }

    fn figure(statistic: Statistic) -> Figure {
        Figure::new(Metric::RttMs, statistic, 1.0)
    }

    #[test]
    fn a_budget_is_above_0_and_at_most_a_second() {
        for text in ["1ns", "500us", "1ms", "1s"] {
            let budget: LateBudget = text.parse().unwrap();
            assert_eq!(Ok(budget.time()), text.parse(), "{text}");
        }
        for text in ["0ms", "1.001s"] {
            let error = text.parse::<LateBudget>().unwrap_err();
            assert!(error.contains("above 0 and at most 1s"), "{error}");
        }
        let error = "1".parse::<LateBudget>().unwrap_err();
        assert!(error.contains("has no unit"), "{error}");
    }

    #[test]
    fn two_late_packets_in_a_hundred_spoil_the_p99_and_not_the_median() {
        use Direction::{Down, Up};
        let two = [late("udp 862", Up, 100, 2), late("udp 862", Down, 100, 0)];
        let cause = spoilt(&two, &figure(Statistic::P99)).unwrap();
        assert_eq!(cause, "2 of 100 packets up left more than 1 ms late");
        for statistic in [Statistic::Median, Statistic::Mean, Statistic::P90] {
            assert_eq!(spoilt(&two, &figure(statistic)), None);
        }
        assert_eq!(invalid(&two, &[figure(Statistic::P99)]), None);
        let few = [late("udp 862", Up, 1000, 9)];
        assert_eq!(spoilt(&few, &figure(Statistic::P99)), None);
    }

    #[test]
    fn a_figure_of_one_way_is_judged_by_the_packets_that_went_that_way() {
        use Direction::{Down, Up};
        let mean = |way| figure(Statistic::Mean).toward(way);
        for (traffic, down_too) in [("udp 5201", false), ("tcp 5201", true)] {
            let up = [late(traffic, Up, 100, 50), late(traffic, Down, 100, 0)];
            assert!(spoilt(&up, &mean(Up)).is_some());
            assert!(invalid(&up, &[mean(Down), mean(Up)]).is_some());
            assert_eq!(spoilt(&up, &mean(Down)).is_some(), down_too);
        }
    }

    #[test]
    fn a_packet_may_be_late_on_each_link_and_both_ways() {
        let each = |link: &str, direction| LatePackets {
            link: link.to_owned(),
            ..late("icmp", direction, 100, 3)
        };
        let way = [each("a", Direction::Up), each("b", Direction::Up)];
        let both = [figure(Statistic::Mean)];
        let cause = invalid(&way, &both).unwrap();
        assert_eq!(
            cause,
            "3 of 100 packets up on a, 3 of 100 packets up on b left more than 1 ms late"
        );
        assert_eq!(invalid(&way[..1], &both), None);
    }

    #[test]
    fn an_instrument_has_its_own_packets_in_its_own_time() {
        let flow = |protocol, port, packets, late| FlowDepartures {
            kind: FlowKind { protocol, port },
            up: Departed { packets, late },
            down: Departed::default(),
        };
        let look = |flows| {
            let budget_ns = 1_000_000;
            let link = "link".to_owned();
            [LinkDepartures {
                link,
                budget_ns,
                flows,
            }]
        };
        let before = look(vec![flow(17, 862, 10, 10)]);
        let after = look(vec![
            flow(17, 862, 20, 11),
            flow(6, 80, 9, 9),
            flow(17, 5201, 3, 3),
            flow(0, 0, 2, 1),
        ]);
        let own = |traffic| {
            let late = between(&before, &after, &[traffic]);
            late.first()
                .map(|one| (one.departed.packets, one.departed.late))
        };
        assert_eq!(own(Traffic::Udp(Some(862))), Some((12, 2)));
        assert_eq!(own(Traffic::Udp(None)), Some((15, 5)));
        assert_eq!(own(Traffic::Tcp(Some(80))), Some((11, 10)));
        assert_eq!(own(Traffic::Icmp), Some((2, 1)));
    }
}
