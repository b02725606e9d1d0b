//! Departures by IP protocol and service, which show whose packets left late.

use model::Side;
use record::lateness::{Departed, FlowDepartures, FlowKind};

/// The largest number of kinds. Packets of further kinds are counted together under protocol 0.
const MOST: usize = 48;

/// The departures of each kind of packets, by ingress side.
#[derive(Clone, Debug)]
pub(crate) struct DeparturesByKind {
    /// The kinds. Packets without a kind are counted under the first one.
    kinds: Vec<FlowKind>,
    departed: Vec<[Departed; 2]>,
    /// The kind of the last packet, which is usually also the kind of the next one.
    last: u8,
}

impl Default for DeparturesByKind {
    fn default() -> Self {
        let mut flows = Self {
            kinds: Vec::with_capacity(MOST),
            departed: Vec::with_capacity(MOST),
            last: 0,
        };
        flows.add(FlowKind::default());
        flows
    }
}

impl DeparturesByKind {
    /// Returns the number of the kind of packets with this protocol and these ports.
    pub(crate) fn number(&mut self, protocol: Option<u8>, ports: Option<[u16; 2]>) -> u8 {
        let kind = FlowKind {
            protocol: protocol.unwrap_or(0),
            // A service usually has a lower port number than its clients.
            port: ports.map_or(0, |[a, b]| a.min(b)),
        };
        if self.kinds[usize::from(self.last)] != kind {
            let known = self.kinds.iter().position(|known| *known == kind);
            let number = known.unwrap_or_else(|| self.add(kind));
            self.last = u8::try_from(number).unwrap_or(0);
        }
        self.last
    }

    /// Counts packets of a kind that have left.
    pub(crate) fn left(&mut self, number: u8, ingress: Side, packets: u64, are_late: bool) {
        let departed = &mut self.departed[usize::from(number)][ingress.index()];
        departed.packets += packets;
        departed.late += if are_late { packets } else { 0 };
    }

    /// Returns the departures up to now. Up is from A to B.
    pub(crate) fn departures(&self) -> Vec<FlowDepartures> {
        let all = self.kinds.iter().zip(&self.departed);
        all.map(|(kind, [up, down])| FlowDepartures {
            kind: *kind,
            up: *up,
            down: *down,
        })
        .collect()
    }

    /// Returns the number of packets of all kinds from `ingress` that left late.
    pub(crate) fn late(&self, ingress: Side) -> u64 {
        let own = self.departed.iter().map(|kind| kind[ingress.index()].late);
        own.sum()
    }

    #[cold]
    fn add(&mut self, kind: FlowKind) -> usize {
        if self.kinds.len() == MOST {
            return 0;
        }
        self.kinds.push(kind);
        self.departed.push(<[Departed; 2]>::default());
        self.kinds.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_service_are_one_kind() {
        let mut flows = DeparturesByKind::default();
        let up = flows.number(Some(6), Some([40_000, 80]));
        assert_eq!(flows.number(Some(6), Some([80, 40_001])), up);
        assert_ne!(flows.number(Some(17), Some([40_000, 80])), up);
        assert_ne!(flows.number(Some(1), None), up);
        assert_eq!(flows.number(None, None), 0);
    }

    #[test]
    fn late_packets_of_all_kinds_are_counted_by_direction() {
        let mut flows = DeparturesByKind::default();
        for (port, ingress, packets, are_late) in [
            (80, Side::A, 3, true),
            (443, Side::A, 4, true),
            (443, Side::A, 5, false),
            (443, Side::B, 6, true),
        ] {
            let number = flows.number(Some(6), Some([40_000, port]));
            flows.left(number, ingress, packets, are_late);
        }
        assert_eq!([flows.late(Side::A), flows.late(Side::B)], [7, 6]);
    }

    #[test]
    fn kinds_without_number_are_counted_together() {
        let mut flows = DeparturesByKind::default();
        for port in 1..1000 {
            let number = flows.number(Some(6), Some([40_000, port]));
            flows.left(number, Side::A, 1, false);
        }
        let departures = flows.departures();
        assert_eq!(departures.len(), MOST);
        assert_eq!(departures[0].up.packets, 1000 - MOST as u64);
    }
}
