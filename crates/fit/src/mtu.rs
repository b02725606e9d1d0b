//! The MTU of the path in each direction.

use conditions::Direction;

use crate::PathObservations;
use crate::estimate::Estimate;

/// The header of Ethernet in bytes, without FCS.
const ETHERNET: u32 = 14;
/// The most bytes by which the longest fragment of a packet is shorter than the MTU, because fragments carry multiples of 8 bytes.
const FRAGMENT_BELOW: u32 = 7;

/// Returns the MTU in L3 bytes, as the kernel of this end knows it. The interval begins with the longest packet that arrived.
/// `None` if the kernel was not asked, or if no load went up.
pub(crate) fn up(observed: &PathObservations) -> Option<Estimate> {
    let known = observed.mtu?;
    let searches = observed
        .searches
        .iter()
        .map(|(way, load)| (*way, load.wire_bytes));
    let loads = observed
        .loaded
        .iter()
        .map(|one| (one.direction, one.load.wire_bytes));
    let up = searches
        .chain(loads)
        .filter(|(way, _)| *way == Direction::Up);
    let datagram = up.map(|(_, bytes)| bytes.saturating_sub(ETHERNET)).max()?;
    // The kernel sends a longer datagram as fragments.
    let passed = if datagram <= known {
        datagram
    } else {
        known.saturating_sub(FRAGMENT_BELOW)
    };
    Some(Estimate::new(
        f64::from(known),
        [f64::from(passed), f64::from(known)],
    ))
}

/// Returns the MTU of the direction down in L3 bytes: the longest packet of a TCP download, which the far end lengthens up to
/// what its kernel knows about the path. Its interval ends with the MTU up, because this end does not ask for longer segments
/// than its route has room for. `None` without a download.
pub(crate) fn down(observed: &PathObservations) -> Option<Estimate> {
    let arrived = f64::from(observed.longest_down?);
    let most = observed.mtu.map_or(arrived, f64::from);
    Some(Estimate::new(arrived, [arrived, most]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadTraffic;

    fn observed(mtu: Option<u32>, way: Direction) -> PathObservations {
        let load = LoadTraffic {
            wire_bytes: 1490,
            sent: 2e6,
            sending_s: 1.0,
            bytes: 1e5,
            seconds: 1.0,
            error: 0.0,
        };
        PathObservations {
            searches: vec![(way, load)],
            mtu,
            ..PathObservations::default()
        }
    }

    #[test]
    fn the_mtu_is_the_kernels_and_its_interval_begins_with_what_arrived() {
        let ethernet = up(&observed(Some(1500), Direction::Up)).unwrap();
        assert_eq!(ethernet.interval, [1476.0, 1500.0]);
        assert_eq!(ethernet.value, 1500.0);
        let tunnel = up(&observed(Some(1400), Direction::Up)).unwrap();
        assert_eq!(tunnel.interval, [1393.0, 1400.0]);
        assert_eq!(tunnel.value, 1400.0);
    }

    #[test]
    fn the_mtu_down_is_the_longest_packet_that_arrived() {
        let of = |longest_down| {
            down(&PathObservations {
                longest_down,
                ..observed(Some(1500), Direction::Up)
            })
        };
        let tunnel = of(Some(1400)).unwrap();
        assert_eq!((tunnel.value, tunnel.interval), (1400.0, [1400.0, 1500.0]));
        // The path up may be the one with the tunnel.
        let longer = of(Some(9000)).unwrap();
        assert_eq!((longer.value, longer.interval), (9000.0, [9000.0, 9000.0]));
        assert_eq!(of(None), None);
    }

    #[test]
    fn without_a_load_or_an_answer_of_the_kernel_there_is_no_mtu() {
        assert!(up(&observed(None, Direction::Up)).is_none());
        assert!(up(&observed(Some(1500), Direction::Down)).is_none());
    }
}
