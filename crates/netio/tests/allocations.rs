//! A packet that passes a link allocates no memory, as soon as the link has met as many packets at the same time as it
//! ever will. Neither does the search for its rule.
//!
//! The tests are here because an allocator that counts is unsafe code.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use conditions::filter::{IpFields, PacketFields};
use conditions::read::toml_text;
use conditions::trace::read_offsets;
use conditions::{Direction, LinkSpec, RuleSpec, TraceSpec};
use model::{Bytes, Link, Nanos, Packet, PacketId, Side};

/// The system's allocator, which counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more, and nobody reads it.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; the counter neither allocates nor is dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of GlobalAlloc, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// The time between two packets of 600 bytes in each direction.
const GAP: Nanos = Nanos::from_millis(2);

/// The length after which all traces repeat together, in multiples of [`GAP`].
const ROUND: u64 = 6_000;

/// The packets of a soak, and those of other runs.
const PACKETS: [u64; 2] = [1_000_000_000, 200_000];

/// The most allocations of all these packets: a random number of packets is on its way, and its maximum grows a few times
/// more.
const FEW: u64 = 16;

/// Offers the packets of one round from number `first` on, and returns the number of allocations meanwhile.
fn round(link: &mut Link, first: u64) -> u64 {
    let before = ALLOCATIONS.get();
    for number in first..first + ROUND {
        let at = GAP.saturating_mul(number);
        for side in Side::BOTH {
            link.offer(at, side, Packet::new(PacketId(number), Bytes(600)));
        }
        while link.poll(at).is_some() {}
    }
    ALLOCATIONS.get() - before
}

fn following(trace: TraceSpec) -> Link {
    let mut spec = LinkSpec::default();
    spec.both.at_first.set(trace);
    link_of(&spec)
}

fn link_of(spec: &LinkSpec) -> Link {
    let config = spec.to_link("link").expect("the trace is valid").config;
    Link::new(&config).expect("the conditions are valid")
}

fn read(text: &str) -> TraceSpec {
    let mut trace = TraceSpec::named("x");
    trace.read(text.as_bytes()).expect("the trace is valid");
    trace
}

#[test]
fn a_billion_packets_through_one_link_make_nothing_grow() {
    let conditions = "rate = '10mbit'\nqueue = '100pkt'\ndelay = '20ms'\njitter = '5ms,normal'\n\
                      loss = '1%,burst=3'\nduplicate = '0.1%'";
    let spec: LinkSpec = toml_text(conditions).expect("the conditions are valid");
    let mut link = link_of(&spec);
    for warm_up in 0..3 {
        round(&mut link, warm_up * ROUND);
    }
    let packets = PACKETS[usize::from(!test_support::is_soak())];
    // Each round has packets in both directions.
    let rounds = packets.div_ceil(2 * ROUND);
    let allocations: u64 = (3..3 + rounds)
        .map(|number| round(&mut link, number * ROUND))
        .sum();
    assert!(
        allocations <= FEW,
        "{packets} packets made {allocations} allocations"
    );
}

#[test]
fn the_search_for_the_rule_of_a_packet_allocates_nothing() {
    let rule = |n: u32| -> RuleSpec {
        let filter = match n % 5 {
            0 => format!("port {n} and dscp {}", n % 64),
            1 => format!("src net fd{n:02}::/16 and tcp"),
            2 => format!("vlan {n}"),
            3 => format!("host 10.0.0.{n}"),
            _ => format!("proto {n} and net 10.{n}.0.0/16"),
        };
        format!("{filter}: name=r{n}").parse().expect("a rule")
    };
    let spec = LinkSpec {
        rules: (0..100).map(rule).collect(),
        ..LinkSpec::default()
    };
    let rules = spec.to_link("link").expect("the rules are valid").rules;
    let packet = |n: u8| PacketFields {
        ether_type: Some(0x0800),
        vlan: n.is_multiple_of(16).then_some(n.into()),
        ip: Some(IpFields {
            addresses: [n, n / 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last))),
            protocol: if n.is_multiple_of(2) { 6 } else { 17 },
            ports: Some([40_000, n.into()]),
            dscp: n % 64,
            is_fragment: false,
        }),
    };
    let packets: Vec<PacketFields> = (0..=u8::MAX).map(packet).collect();
    let before = ALLOCATIONS.get();
    let found = packets
        .iter()
        .filter(|packet| rules.class_of(Direction::Up, packet) > 0)
        .count();
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!((1..packets.len()).contains(&found), "{found}");
}

#[test]
fn a_packet_through_a_trace_allocates_nothing() {
    // 1,200 lines for 10 ms each, which are in several blocks.
    let mut table = String::from("t,rate,delay\n");
    for line in 0..1_200 {
        let (rate, delay) = (6 + line % 5, 20 + line % 9);
        writeln!(table, "{}ms,{rate}mbit,{delay}ms", line * 10).expect("a string takes all");
    }
    let times: String = (1..=1_000).map(|time| format!("{time}\n")).collect();
    let mut pair = read(&times);
    pair.read_delays(&b"20\n25\n20\n40\n"[..])
        .expect("the delays are valid");
    let mut loads = read(&times);
    loads.light = Some("y".to_owned());
    let offsets = read_offsets(&b"100 0\n200 0.5\n"[..]).expect("the offsets are valid");
    loads
        .read_light(&b"0 20 0 0 1\n500 30 0 2\n1000 20 0\n"[..], offsets)
        .expect("the light load is valid");
    for (name, trace) in [
        ("a table", read(&table)),
        ("opportunities", read(&times)),
        ("LeoReplayer's pair", pair),
        ("CellReplay's pair", loads),
    ] {
        let mut link = following(trace);
        assert!(
            round(&mut link, 0) > 0,
            "{name}: the link begins without memory"
        );
        // In the second round the blocks that are kept come again, and the queues are as long as in the third one.
        round(&mut link, ROUND);
        assert_eq!(round(&mut link, 2 * ROUND), 0, "{name}");
    }
}
