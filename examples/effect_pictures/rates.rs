//! Rates: the bytes or packets that they count, the packets that a bucket lets pass, and the drops of a policer and a path
//! MTU.

use anyhow::Result;
use model::{Nanos, Outcome};
use report::{Axis, Point, Shape};

use crate::crossing::{Crossing, index, milliseconds, of_length, steady};
use crate::drawing::{Picture, between, by_number, formula, found, picture};

/// Converts the L2 bytes of a frame to the bytes that it counts for.
type Counted = fn(u32) -> u32;

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    Ok(vec![
        by_length()?,
        packet_rate()?,
        bucket()?,
        policer()?,
        path_mtu()?,
    ])
}

/// Draws the time of a packet against its length.
fn by_length() -> Result<Picture> {
    const MARKS: [u32; 6] = [60, 300, 600, 900, 1_200, 1_500];
    let layers: [(&str, Counted); 3] = [
        ("l2", |length| length),
        ("l1", |length| (length + 24).max(84)),
        ("pppoe-llcsnap", |length| (length + 26).div_ceil(48) * 53),
    ];
    let sizes = || (60..=1_500_u32).step_by(4);
    let mut curves = Vec::new();
    for (look, (name, bytes)) in layers.into_iter().enumerate() {
        let link = format!("rate = '10mbit'\nrate_at = '{name}'");
        let packets = sizes().zip(0..);
        let packets = packets
            .map(|(size, number)| (Nanos::from_millis(100 * number), of_length(u64::from(size))));
        let delays = Crossing::of(&link, packets)?.all_delays();
        let points = sizes().zip(delays);
        let points = points.map(|(size, delay)| Point::at(f64::from(size), delay));
        let label = format!("rate_at = {name}");
        curves.push(found(&label, look, Shape::Line, points.collect()));
        let time = |size: u32| 8.0 * f64::from(bytes(size)) / 10e3;
        let points = by_number(MARKS.into_iter(), time);
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let axes = [
        between("L2 bytes without FCS", 0.0, 1_500.0),
        Axis::from_zero("time of a packet, ms", [1.4].into_iter()),
    ];
    Ok(picture(
        "rate-sizes",
        "Time of a packet at 10 Mbit/s against its length",
        axes,
        curves,
    ))
}

/// Draws the time of a packet that finds no other one against its length, with a packet rate and with a rate.
fn packet_rate() -> Result<Picture> {
    const MARKS: [u32; 6] = [60, 300, 600, 900, 1_200, 1_500];
    // The milliseconds for a packet, and for each of its bytes.
    let links = [
        ("pps = 1000", 1.0, 0.0),
        ("rate = '10mbit'", 0.0, 8.0 / 10e3),
        ("pps = 1000\nrate = '10mbit'", 1.0, 8.0 / 10e3),
    ];
    let sizes = || (60..=1_500_u32).step_by(4);
    let mut curves = Vec::new();
    for (look, (link, for_packet, for_byte)) in links.into_iter().enumerate() {
        let packets = sizes().zip(0..);
        let packets = packets
            .map(|(size, number)| (Nanos::from_millis(100 * number), of_length(u64::from(size))));
        let delays = Crossing::of(link, packets)?.all_delays();
        let points = sizes().zip(delays);
        let points = points.map(|(size, delay)| Point::at(f64::from(size), delay));
        let label = link.replace('\n', ", ").replace('\'', "");
        curves.push(found(&label, look, Shape::Line, points.collect()));
        let time = |size: u32| for_packet + for_byte * f64::from(size);
        let points = by_number(MARKS.into_iter(), time);
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let axes = [
        between("L2 bytes without FCS", 0.0, 1_500.0),
        Axis::from_zero("time of a packet, ms", [2.4].into_iter()),
    ];
    let title = "Time of a packet at 1,000 packets/s and at 10 Mbit/s against its length";
    Ok(picture("packet-rate", title, axes, curves))
}

/// Draws when packets leave that arrive together.
fn bucket() -> Result<Picture> {
    let links = [
        ("rate = 10mbit", "rate = '10mbit'\nqueue = '100pkt'", 0.0),
        (
            "rate = 10mbit,burst=32KiB",
            "rate = '10mbit,burst=32KiB'\nqueue = '100pkt'",
            32_768.0,
        ),
    ];
    let mut curves = Vec::new();
    for (look, (name, link, burst)) in links.into_iter().enumerate() {
        let left = Crossing::of(link, steady(100, Nanos::ZERO, 1_250))?.left();
        let points = left.iter().flatten().zip(1..);
        let points = points.map(|(left, number)| Point::at(milliseconds(*left), f64::from(number)));
        curves.push(found(name, look, Shape::Line, points.collect()));
        let points = (10..=100).step_by(10).map(|number| {
            let number = f64::from(number);
            Point::at((number - burst / 1_250.0).max(0.0), number)
        });
        curves.push(formula("by the formula", Shape::Hollow, points.collect()));
    }
    let axes = [
        between("time, ms", 0.0, 100.0),
        between("packets that have left", 0.0, 100.0),
    ];
    Ok(picture(
        "rate-bucket",
        "Departures of 100 packets that arrive together",
        axes,
        curves,
    ))
}

/// Draws the traffic that passes of 20 Mbit/s with pauses.
fn policer() -> Result<Picture> {
    const LENGTH: f64 = 1_250.0;
    const BURST: f64 = 65_536.0;
    let link = "police = '10mbit,burst=64KiB'";
    // Send one every 500 us for 200 ms, none for 200 ms, and again.
    let packets = (0..800_u64).map(|number| {
        let pause = Nanos::from_millis(if number < 400 { 0 } else { 200 });
        (Nanos::from_micros(500 * number) + pause, of_length(1_250))
    });
    let crossing = Crossing::of(link, packets)?;
    let passed: Vec<bool> = crossing.lost().iter().map(|lost| !lost).collect();
    let mut is_policed = vec![false; passed.len()];
    for outcome in &crossing.outcomes {
        is_policed[index(outcome.id())] = matches!(outcome, Outcome::Drop { .. });
    }
    let sums = |which: &dyn Fn(usize) -> bool| {
        let mut sum = 0.0;
        let points = crossing.came.iter().enumerate().map(|(number, came)| {
            sum += if which(number) { LENGTH / 1e3 } else { 0.0 };
            Point::at(milliseconds(*came), sum)
        });
        points.collect::<Vec<Point>>()
    };
    // 1,250 bytes a millisecond fill the bucket, 2,500 take from it until it is empty.
    let law = |at: u32| {
        let part = |since: f64| (2.5 * since).min(BURST / 1e3 + 1.25 * since);
        let at = f64::from(at);
        part(at.min(200.0)) + if at > 400.0 { part(at - 400.0) } else { 0.0 }
    };
    let curves = vec![
        found("came", 1, Shape::Line, sums(&|_| true)),
        found("passed", 0, Shape::Line, sums(&|number| passed[number])),
        found(
            "dropped",
            2,
            Shape::Line,
            sums(&|number| is_policed[number]),
        ),
        formula(
            "passed, by the formula",
            Shape::Hollow,
            by_number((25..=600).step_by(25), law),
        ),
    ];
    let axes = [between("time, ms", 0.0, 600.0), between("kB", 0.0, 1_000.0)];
    Ok(picture(
        "policer",
        "Traffic that a policer lets pass of 20 Mbit/s",
        axes,
        curves,
    ))
}

/// Draws which packet lengths are dropped.
fn path_mtu() -> Result<Picture> {
    const ETHERNET: u32 = 14;
    let sizes = || (1_200..=1_500_u32).step_by(2);
    let mut curves = Vec::new();
    for (look, mtu) in [1_280, 1_400].into_iter().enumerate() {
        let packets = sizes().zip(0..).map(|(size, number)| {
            let packet = of_length(u64::from(size + ETHERNET));
            (Nanos::from_millis(number), packet)
        });
        let link = format!("path_mtu = {mtu}");
        let lost = sizes().zip(Crossing::of(&link, packets)?.lost());
        let point = |(size, lost)| Point::at(f64::from(size), f64::from(u8::from(lost)));
        curves.push(found(&link, look, Shape::Line, lost.map(point).collect()));
        let marks = sizes().step_by(15);
        let points = by_number(marks, |size| f64::from(u8::from(size > mtu)));
        curves.push(formula("by the formula", Shape::Hollow, points));
    }
    let axes = [
        between("L3 bytes", 1_200.0, 1_500.0),
        Axis::names("", vec!["passes".to_owned(), "dropped".to_owned()]),
    ];
    let title = "Packet lengths that a path MTU drops";
    Ok(picture("path-mtu", title, axes, curves))
}
