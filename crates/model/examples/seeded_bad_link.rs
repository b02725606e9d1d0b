//! A seeded bad link in a unit test: a protocol over 2 % loss and 20 ms of delay, in virtual time.

use farwire_model::{
    Bytes, Delay, Effect, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side, StageSpec,
};

/// The protocol under test: stop and wait. Sends `count` messages, each again after `timeout` until it
/// is acknowledged; returns when the last acknowledgement came and how many packets that took.
fn stop_and_wait(link: &mut Link, count: u64, timeout: Nanos) -> (Nanos, u64) {
    let (mut now, mut sent) = (Nanos::ZERO, 0);
    for _ in 0..count {
        loop {
            sent += 1;
            let arrived = cross(link, now, Side::A, Bytes(1_514));
            let acknowledged = arrived.and_then(|at| cross(link, at, Side::B, Bytes(60)));
            if let Some(at) = acknowledged.filter(|&at| at <= now + timeout) {
                now = at;
                break;
            }
            now += timeout;
        }
    }
    (now, sent)
}

/// Returns the time at which a frame of `len` that enters the link at `at` leaves it; `None` if it is lost.
fn cross(link: &mut Link, at: Nanos, side: Side, len: Bytes) -> Option<Nanos> {
    link.offer(at, side, Packet::new(PacketId(0), len));
    match link.poll(Nanos::MAX)? {
        Outcome::Deliver { due, .. } => Some(due),
        _ => None,
    }
}

fn transfer(seed: u64) -> (Nanos, u64) {
    let bad = |direction: &str| {
        let loss = Effect::Loss("2%".parse().expect("a probability"));
        let delay = Effect::Delay(Delay {
            time: "20ms".parse().expect("a time"),
            ..Delay::default()
        });
        vec![
            StageSpec::new(format!("wan.{direction}.loss"), loss),
            StageSpec::new(format!("wan.{direction}.delay"), delay),
        ]
    };
    let config = LinkConfig::new(seed, bad("up"), bad("down"));
    let mut link = Link::new(&config).expect("conditions within their ranges");
    stop_and_wait(&mut link, 1_000, Nanos::from_millis(100))
}

fn main() {
    let (took, sent) = transfer(7);
    let repeated = sent - 1_000;
    println!("1,000 messages took {took} and {repeated} repetitions");

    // Each message takes a round trip, each repetition a timeout: exact, because nothing reads a clock.
    assert_eq!(took, Nanos::from_millis(1_000 * 40 + repeated * 100));
    // A round trip fails with a probability of 1 - 0.98^2 = 4 %.
    assert!((20..=62).contains(&repeated));
    // The same seed loses the same packets, so a test that fails fails again; another seed loses others.
    assert_eq!(transfer(7), (took, sent));
    assert_ne!(transfer(8), (took, sent));
}
