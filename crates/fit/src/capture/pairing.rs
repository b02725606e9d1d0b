//! Finds the copies of a packet at one end among those at the other end.

/// The error of timestamps in nanoseconds: processors that receive side by side do not take theirs in the order of the packets.
pub(super) const STAMPS_NS: u64 = 100_000;
/// The fewest packets without equal ones that show which times other packets may need.
const FEWEST: usize = 20;

/// The times that packets without equal ones needed between the same hosts.
#[derive(Default)]
pub(super) struct Needed {
    /// The least and the longest time in nanoseconds.
    range: Option<[i128; 2]>,
    count: usize,
}

impl Needed {
    /// Adds a packet that was sent and arrived at these times.
    pub(super) fn add(&mut self, sent_ns: u64, at_ns: u64) {
        let ns = needed(sent_ns, at_ns);
        let [least, most] = self.range.unwrap_or([ns; 2]);
        self.range = Some([least.min(ns), most.max(ns)]);
        self.count += 1;
    }

    /// Returns the least and the longest time that other packets may need: those of the added ones, with the error of
    /// timestamps. `None` if the added ones are too few.
    pub(super) fn range(&self) -> Option<[i128; 2]> {
        let [least, most] = self.range.filter(|_| self.count >= FEWEST)?;
        let stamps = i128::from(STAMPS_NS);
        Some([least - stamps, most + stamps])
    }
}

/// Returns the time from sending to arriving in nanoseconds, negative if the clocks say so.
fn needed(sent_ns: u64, at_ns: u64) -> i128 {
    i128::from(at_ns) - i128::from(sent_ns)
}

/// Finds the arrival of each of several equal packets, whose times are in order. Packets between the same hosts need from the
/// first to the second time of `range`, if that is known.
///
/// If equally many arrived, and in order each needed such a time, they are those. Otherwise a packet is the only one that may be
/// the arriving one, or the result is `None`: it is not known which of them arrived.
pub(super) fn arrivals(
    sent_ns: &[u64],
    arrived_ns: &[u64],
    range: Option<[i128; 2]>,
) -> Option<Vec<Option<u64>>> {
    let fits = |sent_ns: u64, at_ns: u64| {
        range.is_none_or(|[least, most]| (least..=most).contains(&needed(sent_ns, at_ns)))
    };
    let mut in_order = sent_ns.iter().zip(arrived_ns);
    if sent_ns.len() == arrived_ns.len() && in_order.all(|(sent, at)| fits(*sent, *at)) {
        return Some(arrived_ns.iter().copied().map(Some).collect());
    }
    let mut found = vec![None; sent_ns.len()];
    for at_ns in arrived_ns {
        let [least, most] = range?;
        let place = sent_ns.partition_point(|sent| needed(*sent, *at_ns) > most);
        let may_be = |place: usize| {
            let sent = sent_ns.get(place);
            sent.is_some_and(|sent| needed(*sent, *at_ns) >= least)
        };
        if !may_be(place) || may_be(place + 1) || found.get_mut(place)?.replace(*at_ns).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Returns whether a packet arrived before another one that was sent earlier, by more than the error of timestamps at either end.
/// Each packet has the times of sending and of arriving; they are in the order of sending.
pub(super) fn overtakes(packets: &[(u64, u64)]) -> bool {
    let mut earlier = packets.iter().peekable();
    let mut latest_ns = 0;
    packets.iter().any(|(sent_ns, at_ns)| {
        while let Some((_, arrived_ns)) =
            earlier.next_if(|(before_ns, _)| before_ns.saturating_add(STAMPS_NS) < *sent_ns)
        {
            latest_ns = latest_ns.max(*arrived_ns);
        }
        at_ns.saturating_add(STAMPS_NS) < latest_ns
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Other packets needed from 20 to 25 ms.
    const RANGE: Option<[i128; 2]> = Some([20_000_000, 25_000_000]);

    fn found(sent_ms: &[u64], arrived_ms: &[u64]) -> Option<Vec<Option<u64>>> {
        let ns = |all: &[u64]| all.iter().map(|ms| ms * MS).collect::<Vec<u64>>();
        let found = arrivals(&ns(sent_ms), &ns(arrived_ms), RANGE)?;
        Some(found.into_iter().map(|at| Some(at? / MS)).collect())
    }

    #[test]
    fn a_copy_that_was_sent_again_after_a_loss_is_the_one_that_arrived() {
        assert_eq!(found(&[0, 200], &[220]), Some(vec![None, Some(220)]));
        assert_eq!(found(&[0, 200], &[22]), Some(vec![Some(22), None]));
        assert_eq!(
            found(&[0, 200, 600], &[220, 623]),
            Some(vec![None, Some(220), Some(623)])
        );
        assert_eq!(found(&[0, 200], &[]), Some(vec![None, None]));
    }

    #[test]
    fn copies_that_arrived_in_order_are_paired_in_order() {
        assert_eq!(found(&[0, 2], &[21, 23]), Some(vec![Some(21), Some(23)]));
        assert_eq!(found(&[0], &[20]), Some(vec![Some(20)]));
        let unknown = arrivals(&[0, 2], &[7, 9], None);
        assert_eq!(unknown, Some(vec![Some(7), Some(9)]));
    }

    #[test]
    fn copies_that_cannot_be_told_apart_are_refused() {
        // Either of both may have arrived.
        assert_eq!(found(&[0, 2], &[23]), None);
        // The path duplicated the packet, also after a loss.
        assert_eq!(found(&[0], &[20, 25]), None);
        assert_eq!(found(&[0, 200], &[220, 222]), None);
        // The packet that arrived was not captured where it was sent.
        assert_eq!(found(&[0, 200], &[420]), None);
        assert_eq!(arrivals(&[0, 2], &[7], None), None);
    }

    #[test]
    fn enough_packets_show_the_possible_times_to_the_error_of_stamps() {
        let mut known = Needed::default();
        for packet in 0..20 {
            assert_eq!(known.range(), None, "{packet} packets");
            known.add(packet * MS, (packet + 20) * MS + 10_000 * packet);
        }
        assert_eq!(known.range(), Some([19_900_000, 20_290_000]));
    }

    #[test]
    fn stamps_of_several_processors_do_not_reorder_packets() {
        let swapped_ns = |by_ns: u64| [(0, 20 * MS + by_ns), (MS, 20 * MS)];
        assert!(!overtakes(&swapped_ns(50_000)));
        assert!(overtakes(&swapped_ns(500_000)));
        // They were sent at almost the same time, and a slow path separates them.
        assert!(!overtakes(&[(0, 32 * MS), (20_000, 20 * MS)]));
        assert!(overtakes(&[(0, 50 * MS), (MS, 51 * MS), (2 * MS, 22 * MS)]));
        assert!(!overtakes(&[]));
    }
}
