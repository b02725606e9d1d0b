//! A forwarder that passes many packets through one link, in virtual time.

use conditions::LinkSpec;
use conditions::read::toml_text;
use netio::{Frame, Offload};
use test_support::is_soak;
use test_support::usage::heap_kib;

use super::*;

/// The packets of a soak, and those of other runs.
const PACKETS: [u64; 2] = [1_000_000_000, 200_000];

/// The packets of each direction after which the link is empty.
const ROUND: u64 = 5_000;

/// The time between two packets of 600 bytes in each direction: more than the link can carry.
const GAP: Nanos = Nanos::from_micros(400);

const CONDITIONS: &str = "rate = '10mbit'\nqueue = '100pkt'\ndelay = '20ms'\njitter = '5ms,normal'\n\
                          loss = '1%,burst=3'\nduplicate = '0.1%'";

/// Returns the most bytes of frames held so far and the memory of the process in KiB. Other tests have
/// a part of that memory, except in a soak, which runs this test alone.
fn memory(forwarder: &mut Forwarder<MemoryPort>) -> (usize, u64) {
    let held = forwarder.stats(0).peak_bytes;
    (held, heap_kib(std::process::id()).unwrap())
}

#[test]
fn a_billion_packets_through_a_forwarder_make_nothing_grow() {
    let spec: LinkSpec = toml_text(CONDITIONS).unwrap();
    let link = Link::new(&spec.to_link("link").unwrap().config).unwrap();
    let ports = [(); 2].map(|()| MemoryPort::new(true));
    let mut forwarder = Forwarder::new(ports.into(), usize::MAX);
    let budget = LateBudget::DEFAULT;
    forwarder.add_link(PortId::SEPARATE_SETS, link, Rules::default(), budget, None);
    let mut bytes = [0; 600];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    let rounds = PACKETS[usize::from(!is_soak())] / (2 * ROUND);
    let (mut now, mut at_first) = (Nanos::ZERO, (0, 0));
    for round in 0..rounds {
        for number in 1..=ROUND {
            let at = now + GAP.saturating_mul(number);
            for port in &mut forwarder.shared.sets {
                port.arrive(Frame::new(at, Offload::default(), None, &bytes));
            }
        }
        now = run_until_idle(&mut forwarder, now);
        for port in &mut forwarder.shared.sets {
            let sent = port.sent().len() as u64;
            assert!(sent > ROUND / 2 && sent < ROUND, "{sent}");
        }
        assert!(forwarder.shared.held.is_empty());
        if round == rounds / 10 {
            at_first = memory(&mut forwarder);
        }
    }
    let (held, kib) = memory(&mut forwarder);
    let (held_at_first, kib_at_first) = at_first;
    assert!(held < 2 * held_at_first, "{held} {held_at_first}");
    assert!(
        !is_soak() || kib < kib_at_first + kib_at_first / 10,
        "{kib} {kib_at_first}"
    );
    let stats = forwarder.stats(0);
    for side in Side::BOTH {
        assert_eq!(stats.counters(side).packets, rounds * ROUND);
    }
}
