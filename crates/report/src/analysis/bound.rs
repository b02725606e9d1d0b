//! Computes the goodput that the conditions of a case allow, with which a report compares the measured one.

use std::time::Duration;

use model::{BitsPerSec, Bottleneck, Bytes, Nanos, Probability};

use conditions::route::{PathStages, Route};
use record::Direction;
use record::plan::{Case, PlannedInstrument};
use record::profile::Carrier;
use stats::layers::{Counted, Stack, TransportProtocol};
use stats::theory::PathConditions;
use stats::theory::limits::{Cause, GoodputLimits};
use stats::theory::loss::Congestion;

/// The smallest of all limits that follow from the conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// Payload rate (L7).
    pub(crate) bit_per_s: f64,
    /// The limit: "shaper", "CUBIC's law of loss".
    pub(crate) name: String,
    /// Whether the value is the average that a law of loss predicts, which a transfer can exceed, and not a limit.
    pub(crate) is_average: bool,
}

impl Bound {
    /// Returns "at most" for a limit or "expected" for an average.
    pub(crate) fn kind(&self) -> &'static str {
        if self.is_average {
            "expected"
        } else {
            "at most"
        }
    }

    /// Returns the bound on the goodput of `instrument` in this direction, over all clients of `case`, or `None` if the
    /// conditions set no limit. The wire of a test bed has only the rate that the case sets.
    pub(crate) fn of(
        case: &Case,
        instrument: &PlannedInstrument,
        direction: Option<Direction>,
    ) -> Option<Self> {
        let carrier = instrument.profile.carrier.as_ref()?;
        let protocol = match carrier {
            Carrier::Tcp { .. } => TransportProtocol::Tcp { timestamps: true },
            Carrier::Udp { .. } => TransportProtocol::Udp,
        };
        let route = case.path().ok().filter(|route| route.is_steady)?;
        let mtu = case.bed.mtu()?;
        let stack = Stack {
            ipv6: false,
            vlan_tags: 0,
            protocol,
        };
        let direction = direction.or(instrument.profile.direction)?;
        let data = route.stages(direction);
        let full = stack.full_packet(mtu);
        let rtt_s = round_trip_s(&route, full);
        let conditions = PathConditions {
            rate: BitsPerSec::new(ENDLESS_BIT_PER_S).ok()?,
            mtu,
            stack,
            shaper: shaper(data, full),
            rtt: Duration::try_from_secs_f64(rtt_s)
                .ok()
                .map(Nanos::from)
                .filter(|rtt| *rtt > Nanos::ZERO),
            window: None,
            loss: lost(data).filter(|_| rtt_s > 0.0),
            congestion: congestion(case, carrier),
        };
        let theory = GoodputLimits::of(&conditions).ok()?.least();
        let servers = data
            .shared_servers()
            .filter_map(|server| of_server(server, stack, full));
        let known = (theory.cause != Cause::Line).then(|| Self {
            bit_per_s: theory.bit_per_s,
            name: theory.cause.name(),
            is_average: theory.cause.is_average(),
        });
        known
            .into_iter()
            .chain(servers)
            .min_by(|a, b| a.bit_per_s.total_cmp(&b.bit_per_s))
            .map(|of_one| Self {
                bit_per_s: of_one.bit_per_s
                    * fragmented(carrier, stack, mtu)
                    * f64::from(case.bed.clients()),
                ..of_one
            })
    }
}

/// Returns the factor by which IP fragments carry more payload than full datagrams for each byte at L2, because only
/// the first has a UDP header; 1 for datagrams that fit into a packet.
fn fragmented(carrier: &Carrier, stack: Stack, mtu: u32) -> f64 {
    match carrier {
        Carrier::Udp {
            length: Some(length),
        } if u64::from(*length) > stack.most_payload(mtu) => {
            let share = |counted: Counted| counted.payload as f64 / counted.l2 as f64;
            let fragments = share(stack.datagram((*length).into(), mtu));
            (fragments / share(stack.full_packet(mtu))).max(1.0)
        }
        _ => 1.0,
    }
}

/// Returns the L2 rate for a full packet. `None` if a token bucket lets bursts pass, because a short run may consist of
/// bursts, and for a netem stage with a varying delay, in which packets overtake others and exceed the rate.
fn shaper(data: &PathStages, full: Counted) -> Option<BitsPerSec> {
    let (rate, stage) = data.slowest(Bytes(full.l2))?;
    let passes_bursts = stage.bottleneck.is_some_and(|of| of.passes_bursts());
    let is_passed = stage.netem.is_some() && stage.reorders;
    (!passes_bursts && !is_passed).then_some(rate)
}

/// A line rate that no other limit reaches, for a path without a line rate.
const ENDLESS_BIT_PER_S: u64 = 1_000_000_000_000_000;

/// Returns the congestion control for the law of loss, which describes a single stream. For other cases BBR is
/// returned, for which no law is claimed.
fn congestion(case: &Case, carrier: &Carrier) -> Congestion {
    let Carrier::Tcp {
        streams: 1,
        congestion,
    } = carrier
    else {
        return Congestion::Bbr;
    };
    match congestion.as_ref().unwrap_or(&case.congestion).as_str() {
        "cubic" => Congestion::Cubic,
        "reno" => Congestion::Reno,
        _ => Congestion::Bbr,
    }
}

/// Returns the round-trip time without queues: propagation in both directions, and the time that stages add for the
/// size of a full packet.
fn round_trip_s(route: &Route, full: Counted) -> f64 {
    let sized_us = |stages: &PathStages| -> f64 {
        let factors = stages.by_size();
        factors.map(|factor| full.l2 as f64 / factor.get()).sum()
    };
    let both = [&route.up, &route.down];
    let sized = both.map(sized_us).into_iter().fold(0.0, f64::max);
    let propagation: u64 = both
        .map(PathStages::propagation)
        .iter()
        .map(|time| time.0)
        .sum();
    propagation as f64 / 1e9 + sized / 1e6
}

/// Returns the loss of data packets over all hops.
fn lost(data: &PathStages) -> Option<Probability> {
    Probability::from_percent(data.loss_percent())
        .ok()
        .filter(|loss| loss.fraction() > 0.0)
}

/// Returns the bound by TOFFEE's server, which serves both directions: a full segment and, for TCP, half an
/// acknowledgement each.
fn of_server(server: Bottleneck<'_>, stack: Stack, full: Counted) -> Option<Bound> {
    let served_s = |packet: Counted| server.time_for(Bytes(packet.l2)).0 as f64 / 1e9;
    let back = match stack.protocol {
        TransportProtocol::Tcp { .. } => served_s(stack.packet(0)) / 2.0,
        TransportProtocol::Udp => 0.0,
    };
    let each_s = served_s(full) + back;
    (each_s > 0.0).then(|| Bound {
        bit_per_s: full.payload as f64 * 8.0 / each_s,
        name: "TOFFEE's server".to_owned(),
        is_average: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::bed::Bed;

    fn bound(link: &str, direction: Option<Direction>) -> Option<Bound> {
        let mut case = record().head.plan.cases[0].clone();
        case.bed = bed("rate = '60.9mbit', delay = '0.68ms'");
        case.link = toml::from_str(link).unwrap();
        let instrument = case.instruments[1].clone();
        Bound::of(&case, &instrument, direction)
    }

    fn bed(wire: &str) -> Bed {
        toml::from_str(&format!("kind = 'netns'\nwire = {{ {wire} }}")).unwrap()
    }

    #[test]
    fn the_slower_of_two_rates_is_the_bound() {
        let of = |link, way| bound(link, way).unwrap().bit_per_s / 1448.0 * 1514.0 / 1e6;
        assert!((of("", None) - 60.9).abs() < 1e-6);
        assert!((of("rate = '10mbit'", None) - 10.0).abs() < 1e-6);
        let up = "[up]\nrate = '10mbit'";
        assert!((of(up, None) - 60.9).abs() < 1e-6);
        assert!((of(up, Some(Direction::Up)) - 10.0).abs() < 1e-6);
    }

    #[test]
    fn the_bound_of_several_clients_is_the_sum_over_their_links() {
        let mut case = record().head.plan.cases[0].clone();
        let of = |case: &Case| Bound::of(case, &case.instruments[1], None).unwrap();
        case.bed = bed("rate = '10mbit'");
        let one = of(&case);
        case.bed = toml::from_str("clients = 5\nwire = { rate = '10mbit' }").unwrap();
        assert_eq!(of(&case).bit_per_s, 5.0 * one.bit_per_s);
    }

    #[test]
    fn the_bound_of_datagrams_counts_the_headers_of_their_fragments() {
        let of = |length| {
            let mut case = record().head.plan.cases[0].clone();
            case.bed = bed("rate = '10mbit'");
            let mut instrument = case.instruments[1].clone();
            instrument.profile.carrier = Some(Carrier::Udp { length });
            Bound::of(&case, &instrument, Some(Direction::Up))
                .unwrap()
                .bit_per_s
        };
        let full = 1e7 * 1472.0 / 1514.0;
        assert!((of(Some(1472)) / full - 1.0).abs() < 1e-6);
        assert_eq!(of(Some(1000)), of(None));
        // The 4,104 bytes of a datagram with its UDP header are three frames with 34 bytes of headers each.
        assert!((of(Some(4096)) / (1e7 * 4096.0 / 4206.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_rate_of_netem_is_a_bound_without_reordering() {
        let of = |options: &str| bound(&format!("netem = '{options}'"), None);
        let binding = of("rate 8mbit 100").unwrap().bit_per_s;
        assert!(
            (binding / 1448.0 * 1614.0 / 8e6 - 1.0).abs() < 1e-6,
            "{binding}"
        );
        for passed in [
            "rate 8mbit delay 1ms reorder 1%",
            "rate 8mbit delay 1ms 1ms",
        ] {
            let name = of(passed).map(|bound| bound.name);
            assert_ne!(name.as_deref(), Some("shaper"), "{passed}");
        }
    }

    #[test]
    fn loss_and_a_shared_server_are_named_as_bounds() {
        let lossy = bound("toffee = 'drop=1'", None).unwrap();
        assert_eq!(lossy.name, "Padhye's loss model");
        let served = bound("toffee = 'delay=1ms'", None).unwrap();
        assert_eq!(served.name, "TOFFEE's server");
        assert!((served.bit_per_s / 8e6 - 0.9653).abs() < 1e-3, "{served:?}");
    }

    #[test]
    fn without_conditions_there_is_no_bound() {
        let mut case = record().head.plan.cases[0].clone();
        let instrument = case.instruments[1].clone();
        assert_eq!(Bound::of(&case, &instrument, None), None);
        case.bed = bed("rate = '1gbit'");
        assert_eq!(Bound::of(&case, &case.instruments[0], None), None);
    }
}
