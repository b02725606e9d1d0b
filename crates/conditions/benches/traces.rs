//! The cost of a packet on a link that follows a trace, beside the same link without one.
//!
//! Packets of 1,514 bytes arrive in both directions, one each microsecond, so that a line of a trace serves 1,000 of
//! them, as at 12 Gbit/s. `no_trace` is the reference: what a trace costs is the difference.

use std::fmt::Write as _;

use divan::Bencher;
use divan::counter::ItemsCount;
use farwire_conditions::read::toml_text;
use farwire_conditions::{LinkSpec, TraceSpec};
use model::{Bytes, Link, Nanos, Packet, PacketId, Side};

/// Packets between two readings of the clock.
const BATCH: u64 = 1_000;
/// The time between two packets of a direction.
const GAP: Nanos = Nanos::from_micros(1);
/// The lines of a table, for 1 ms each.
const LINES: u64 = 10_000;
/// The lines of a table that does not fit into the memory that traces have.
const MANY_LINES: u64 = 2_000_000;

fn main() {
    divan::main();
}

/// A rate and a delay that never change.
#[divan::bench]
fn no_trace(bencher: Bencher<'_, '_>) {
    let text = "rate = '20gbit'\nqueue = '4000pkt'\ndelay = '1ms'";
    cross(bencher, &toml_text(text).expect("a link"));
}

/// A rate and a delay that change each millisecond.
#[divan::bench]
fn trace_of_rate_and_delay(bencher: Bencher<'_, '_>) {
    cross(bencher, &following(table(LINES)));
}

/// The same, with lines in a file.
#[divan::bench]
fn trace_in_a_file(bencher: Bencher<'_, '_>) {
    cross(bencher, &following(table(MANY_LINES)));
}

/// Times at which packets are served, more than there are packets.
#[divan::bench]
fn trace_of_times(bencher: Bencher<'_, '_>) {
    cross(bencher, &following(times()));
}

/// The same, as the full load beside a light one.
#[divan::bench]
fn trace_of_two_loads(bencher: Bencher<'_, '_>) {
    let mut loads = times();
    let mut light = String::new();
    for train in 0..1_000 {
        writeln!(light, "{} {} 0 1 1 2", train * 100, 1 + train % 3).expect("a string takes all");
    }
    loads.light = Some("light".to_owned());
    loads
        .read_light(light.as_bytes(), Vec::new())
        .expect("a light load");
    cross(bencher, &following(loads));
}

fn table(lines: u64) -> TraceSpec {
    let mut text = String::from("t,rate,delay\n");
    for line in 0..lines {
        let (rate, delay) = (20 + line % 7, 1_000 + line % 11);
        writeln!(text, "{line}ms,{rate}gbit,{delay}us").expect("a string takes all");
    }
    read(&text)
}

/// Returns 2,000 times in each millisecond.
fn times() -> TraceSpec {
    let mut text = String::new();
    for time in 1..=200 {
        text += &format!("{time}\n").repeat(2_000);
    }
    read(&text)
}

fn read(text: &str) -> TraceSpec {
    let mut trace = TraceSpec::named("trace");
    trace.read(text.as_bytes()).expect("a trace");
    trace
}

fn following(trace: TraceSpec) -> LinkSpec {
    // Up to 1,000 packets wait for the next millisecond.
    let mut spec: LinkSpec = toml_text("queue = '4000pkt'").expect("a link");
    spec.both.at_first.set(trace);
    spec
}

/// Offers packets of both sides in turn, and polls after each.
fn cross(bencher: Bencher<'_, '_>, spec: &LinkSpec) {
    let config = spec.to_link("box").expect("valid conditions").config;
    let mut link = Link::new(&config).expect("a link");
    let (mut now, mut number) = (Nanos::ZERO, 0);
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(move || {
            for _ in 0..BATCH / 2 {
                now += GAP;
                for side in Side::BOTH {
                    number += 1;
                    let packet = Packet::new(PacketId(number), Bytes(1_514));
                    link.offer(now, side, divan::black_box(packet));
                    while let Some(outcome) = link.poll(now) {
                        divan::black_box(outcome);
                    }
                }
            }
        });
}
