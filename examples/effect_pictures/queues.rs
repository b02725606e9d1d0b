//! Queues: waiting times and drops in each under the same overload.

use anyhow::Result;
use model::{Ecn, Flow, Nanos, Outcome, Packet};
use report::{Axis, Curve, Plot, Point, Shape, stack};

use crate::crossing::{Crossing, index, milliseconds, of_length};
use crate::drawing::{Picture, between, formula, found, means};

/// A packet of this length takes 1 ms at 10 Mbit/s.
const LENGTH: u64 = 1_250;

/// The end of the arrivals, and the interval of a mean, in seconds.
const END_S: f64 = 10.0;
const MEAN_S: f64 = 0.025;
const SHARE_S: f64 = 0.2;

pub(crate) fn pictures() -> Result<Vec<Picture>> {
    let one = |name, aqm: &str, label: &str, level| {
        let shown = Shown {
            aqm,
            label,
            of: |_| true,
        };
        queue(name, &[shown, DROP_TAIL], level, overload(one_flow))
    };
    let heavy = |packet: &Packet| packet.flow.id == 0;
    let sparse = |packet: &Packet| packet.flow.id == 1;
    let l4s = |packet: &Packet| packet.ecn == Ecn::Ect1;
    let classic = |packet: &Packet| packet.ecn == Ecn::NotEct;
    let part = |aqm, label, of| Shown { aqm, label, of };
    Ok(vec![
        overview()?,
        one("drop-head", "drop-head", "drop-head", (90.9, "90.9 ms"))?,
        one("red", "red", "red", (73.9, "73.9 ms"))?,
        one("pie", "pie", "pie", (15.0, "target: 15 ms"))?,
        one("codel", "codel", "codel", (5.0, "target: 5 ms"))?,
        queue(
            "fq-codel",
            &[
                part("fq_codel", "the sparse flow", sparse),
                part("fq_codel", "the other flow", heavy),
            ],
            (5.0, "target: 5 ms"),
            overload(with_a_sparse_flow),
        )?,
        queue(
            "dualpi2",
            &[
                part("dualpi2", "L4S, ECT(1)", l4s),
                part("dualpi2", "Classic", classic),
            ],
            (15.0, "target: 15 ms"),
            overload(half_l4s),
        )?,
    ])
}

/// A series: some packets of a queue.
#[derive(Clone, Copy)]
struct Shown<'a> {
    aqm: &'a str,
    label: &'a str,
    of: fn(&Packet) -> bool,
}

const DROP_TAIL: Shown<'static> = Shown {
    aqm: "drop-tail",
    label: "drop-tail, 100 ms",
    of: |_| true,
};

fn link(aqm: &str) -> String {
    match aqm {
        "drop-tail" => "rate = '10mbit'".to_owned(),
        aqm => format!("rate = '10mbit'\naqm = '{aqm}'"),
    }
}

/// Makes arrivals of 8 Mbit/s for a second, 11 Mbit/s for seven, and 8 Mbit/s again, at intervals that vary randomly by half. `which` makes
/// a packet from a number between 0 and 1.
fn overload(which: fn(f64) -> Packet) -> Vec<(Nanos, Packet)> {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut packets, mut at_s) = (Vec::new(), 0.0);
    loop {
        let a_second = if (1.0..8.0).contains(&at_s) {
            1_100.0
        } else {
            800.0
        };
        at_s += (0.5 + random.f64()) / a_second;
        if at_s >= END_S {
            return packets;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some seconds"
        )]
        let at = Nanos((at_s * 1e9) as u64);
        packets.push((at, which(random.f64())));
    }
}

fn one_flow(_: f64) -> Packet {
    of_length(LENGTH)
}

/// Makes a packet; one in twenty belongs to another flow.
fn with_a_sparse_flow(share: f64) -> Packet {
    let flow = Flow {
        id: u32::from(share < 0.05),
        ..Flow::default()
    };
    Packet {
        flow,
        ..of_length(LENGTH)
    }
}

fn half_l4s(share: f64) -> Packet {
    let is_l4s = share < 0.5;
    Packet {
        ecn: if is_l4s { Ecn::Ect1 } else { Ecn::NotEct },
        ..of_length(LENGTH)
    }
}

/// Draws waiting times above, and drops or marks below.
fn queue(
    name: &'static str,
    all: &[Shown<'_>],
    (level, level_label): (f64, &str),
    packets: Vec<(Nanos, Packet)>,
) -> Result<Picture> {
    let (mut waits, mut shares) = (Vec::new(), Vec::new());
    let mut has_marks = false;
    for (look, shown) in all.iter().enumerate() {
        let crossing = Crossing::of(&link(shown.aqm), packets.iter().copied())?;
        let is_shown = |number: usize| (shown.of)(&packets[number].1);
        waits.push(waiting(&crossing, shown.label, look, &is_shown));
        let share = |of: fn(&Outcome) -> bool| share_of(&crossing, &is_shown, of);
        let dropped = share(|outcome| matches!(outcome, Outcome::Drop { .. }));
        let marked = share(|outcome| matches!(outcome, Outcome::Deliver { mark: true, .. }));
        let is_marked = marked.iter().any(|point| point.y > 0.0);
        has_marks |= is_marked;
        shares.push(found(
            shown.label,
            look,
            Shape::Line,
            if is_marked { marked } else { dropped },
        ));
    }
    let line = [0.0, END_S].map(|at| Point::at(at, level));
    waits.push(formula(level_label, Shape::Level, line.to_vec()));
    let frames = [
        frame("waiting, ms", waits, 130.0),
        frame(
            if has_marks {
                "marked or dropped, %"
            } else {
                "dropped, %"
            },
            shares,
            if has_marks { 110.0 } else { 80.0 },
        ),
    ];
    let title = format!("Waiting time and drops in {name} under overload");
    Ok(Picture {
        name,
        svg: stack(&frames, &title),
    })
}

/// Draws all queues, each in a frame.
fn overview() -> Result<Picture> {
    let mut frames = Vec::new();
    for (look, aqm) in [
        "drop-tail",
        "drop-head",
        "red",
        "pie",
        "codel",
        "fq_codel",
        "dualpi2",
    ]
    .into_iter()
    .enumerate()
    {
        let crossing = Crossing::of(&link(aqm), overload(one_flow))?;
        let waits = waiting(&crossing, aqm, 0, &|_| true);
        let mut plot = frame(aqm, vec![waits], 60.0);
        plot.y = between(aqm, 0.0, 100.0);
        plot.curves[0].label = (look == 0).then(|| "waiting time in ms, means of 25 ms".to_owned());
        plot.curves[0].shape = Shape::Area;
        frames.push(plot);
    }
    Ok(Picture {
        name: "queues",
        svg: stack(
            &frames,
            "Waiting time in each queue under the same overload",
        ),
    })
}

fn frame(title: &str, curves: Vec<Curve>, height: f64) -> Plot {
    let highest = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.y);
    Plot {
        x: between("time, s", 0.0, END_S),
        y: Axis::from_zero(title, highest),
        height,
        curves,
    }
}

/// Returns the waiting times of packets against their arrival.
fn waiting(
    crossing: &Crossing,
    label: &str,
    look: usize,
    is_shown: &dyn Fn(usize) -> bool,
) -> Curve {
    let delays = crossing.delays().into_iter().enumerate();
    let waits = delays.filter(|(number, _)| is_shown(*number));
    let waits: Vec<(f64, f64)> = waits
        .filter_map(|(number, delay)| {
            let at_s = milliseconds(crossing.came[number]) / 1e3;
            // Subtract the packet's own millisecond of service.
            delay.map(|delay| (at_s, delay - 1.0))
        })
        .collect();
    found(label, look, Shape::Trace(0), means(&waits, MEAN_S, END_S))
}

/// Returns the share of packets with such an outcome against their arrival.
fn share_of(
    crossing: &Crossing,
    is_shown: &dyn Fn(usize) -> bool,
    of: fn(&Outcome) -> bool,
) -> Vec<Point> {
    let shown = crossing
        .outcomes
        .iter()
        .filter(|outcome| is_shown(index(outcome.id())));
    let all: Vec<(f64, f64)> = shown
        .map(|outcome| {
            let at_s = milliseconds(crossing.came[index(outcome.id())]) / 1e3;
            (at_s, f64::from(u8::from(of(outcome))) * 100.0)
        })
        .collect();
    means(&all, SHARE_S, END_S)
}
