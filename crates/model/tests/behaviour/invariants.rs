//! Invariants of every link under all traffic, in virtual time.

use crate::drive::{
    Arrival, Hop, any_hops, any_link, any_traffic, any_wakes, drain, drive, drive_to_end, dues,
    link, packet,
};
use farwire_model::{Link, Nanos, Outcome, Rate, Side};
use proptest::prelude::*;

/// Returns the least delay that a link adds to a packet of this length from this side.
fn configured_delay(hops: &[Hop], arrival: &Arrival) -> Nanos {
    let hop_delay = |hop: &Hop| {
        let own = match arrival.side {
            Side::A => &hop.up,
            Side::B => &hop.down,
        };
        let service = |rate: Rate| rate.rate.unwrap().time_for(arrival.len);
        let toffee = hop.toffee.map_or(Nanos::ZERO, |(toffee, _)| {
            toffee.delay
                + toffee
                    .dynamic
                    .map_or(Nanos::ZERO, |k| k.time_for(arrival.len))
        });
        let by_size = own
            .size_delay
            .map_or(Nanos::ZERO, |k| k.time_for(arrival.len));
        toffee + own.rate.map_or(Nanos::ZERO, service) + own.delay + by_size
    };
    hops.iter()
        .fold(Nanos::ZERO, |sum, hop| sum + hop_delay(hop))
}

proptest! {
    #[test]
    fn counters_add_up_at_every_step(config in any_link(), traffic in any_traffic()) {
        let mut link = Link::new(&config).unwrap();
        let mut handed_out = [0_u64; 2];
        drive_to_end(&mut link, &traffic, |link, _, outcome| {
            if let Some(outcome) = outcome {
                let id = usize::try_from(outcome.id().0).unwrap();
                handed_out[traffic[id].side as usize] += 1;
            }
            for (side, out) in [(Side::A, handed_out[0]), (Side::B, handed_out[1])] {
                let counters = link.counters(side);
                let gone = counters.delivered + counters.all_dropped();
                assert_eq!(gone, out);
                assert_eq!(counters.packets, gone + counters.held());
            }
            let in_stages: u64 = link.stages().map(|stage| stage.held).sum();
            assert!(in_stages <= (link.counters(Side::A) + link.counters(Side::B)).held());
        });
        let counters = link.counters(Side::A) + link.counters(Side::B);
        prop_assert_eq!(counters.held(), 0);
        let dropped: u64 = link.stages().map(|stage| stage.dropped).sum();
        prop_assert_eq!(dropped, counters.all_dropped());
    }

    #[test]
    fn waking_at_deadlines_gives_every_outcome_before_it_is_due(
        config in any_link(),
        traffic in any_traffic(),
    ) {
        drive_to_end(&mut Link::new(&config).unwrap(), &traffic, |_, now, outcome| {
            if let Some(Outcome::Deliver { due, .. }) = outcome {
                assert!(due >= now, "{due} was handed out at {now}");
            }
        });
    }

    #[test]
    fn outcomes_do_not_depend_on_when_the_caller_wakes(
        config in any_link(),
        traffic in any_traffic(),
        wakes in any_wakes(),
    ) {
        prop_assert_eq!(drive(&config, &traffic, &wakes), drive(&config, &traffic, &[]));
    }

    #[test]
    fn each_packet_has_one_outcome_and_none_arrives_late(
        config in any_link(),
        traffic in any_traffic(),
    ) {
        let mut ids: Vec<u64> = drive(&config, &traffic, &[])
            .iter()
            .map(|outcome| outcome.id().0)
            .collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..traffic.len() as u64).collect::<Vec<_>>());

        let mut link = Link::new(&config).unwrap();
        for (id, arrival) in traffic.iter().enumerate() {
            drain(&mut link, arrival.at);
            link.offer(arrival.at, arrival.side, packet(id, arrival.len));
        }
        prop_assert_eq!(link.counters(Side::A).late + link.counters(Side::B).late, 0);
    }

    #[test]
    fn each_direction_keeps_its_order(config in any_link(), traffic in any_traffic()) {
        let mut latest = [None; 2];
        for outcome in drive(&config, &traffic, &[]) {
            if let Outcome::Deliver { id, due, .. } = outcome {
                let side = traffic[usize::try_from(id.0).unwrap()].side;
                let before = latest[side as usize].replace((id, due));
                prop_assert!(before.is_none_or(|(earlier, at)| earlier < id && at <= due));
            }
        }
    }

    #[test]
    fn no_packet_is_due_before_its_arrival_and_the_configured_delay(
        hops in any_hops(),
        traffic in any_traffic(),
    ) {
        let config = link(hops.clone());
        for (arrival, due) in traffic.iter().zip(dues(&drive(&config, &traffic, &[]))) {
            // A busy server rounds over many packets, so that one packet may be a nanosecond early.
            let servers = Nanos(hops.len() as u64);
            let least = arrival.at + configured_delay(&hops, arrival) - servers;
            prop_assert!(due.is_none_or(|due| due >= least), "{:?} < {:?}", due, least);
        }
    }
}
