//! Tests of several links, in virtual time that passes while packets are sent.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use model::{Effect, LinkConfig, StageSpec};
use netio::{Capabilities, Frame, Missed, Offload, SendTimes, TxFrame};

use super::*;

/// The time that a call of `send` takes for each packet.
const COST: Nanos = Nanos(2_000);

/// A set of ports at which frames arrive by a schedule, and which takes time to send.
struct BusyPorts {
    clock: Rc<Cell<Nanos>>,
    /// The frames that have not been taken, with their ports, in the order of their arrivals.
    waiting: VecDeque<(usize, Frame)>,
    now: Nanos,
}

impl PortSet for BusyPorts {
    type Lent = Infallible;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: true,
            tunnel_gso: false,
            checksum: true,
            vlan: false,
            arrival_stamp: true,
            largest_frame: usize::MAX,
        }
    }

    fn refresh(&mut self, now: Nanos) {
        self.now = now;
    }

    fn has_arrivals(&self) -> bool {
        self.arrival().is_some()
    }

    fn arrival(&self) -> Option<Nanos> {
        let next = self.waiting.front()?.1.arrival;
        (next <= self.now).then_some(next)
    }

    fn take(&mut self) -> Option<(usize, ReceivedFrame<Infallible>)> {
        self.arrival()?;
        let (port, frame) = self.waiting.pop_front()?;
        Some((port, ReceivedFrame::Frame(frame)))
    }

    fn send(
        &mut self,
        _: usize,
        _: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        for (index, frame) in frames.iter().enumerate() {
            let begun = self.clock.get();
            let len = frame.head.bytes().len() + frame.body.len();
            let packets = frame
                .offload
                .gso
                .map_or(1, |gso| len.div_ceil(gso.size.into()));
            let ended = begun + Nanos(COST.0 * packets as u64);
            self.clock.set(ended);
            sent(index, Ok(SendTimes { begun, ended }));
        }
    }

    fn missed(&mut self) -> Missed {
        Missed::default()
    }

    fn rejoin(&mut self, _: usize, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Frames of single packets that arrive at side A of a link at equal intervals.
#[derive(Clone, Copy)]
struct Stream {
    link: u32,
    interval: Nanos,
}

const DURATION: Nanos = Nanos::from_millis(200);

/// Passes these streams through `links` links of 5 ms each until all packets are gone.
fn pass(links: u32, streams: &[Stream]) -> Forwarder<BusyPorts> {
    let mut waiting: Vec<(usize, Frame)> = Vec::new();
    for Stream { link, interval } in streams {
        let mut at = Nanos::from_millis(1) + Nanos::from_micros(100 * u64::from(*link));
        while at < DURATION {
            let mut bytes = [0; 100];
            bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            let frame = Frame::new(at, Offload::default(), None, &bytes);
            waiting.push((2 * *link as usize, frame));
            at += *interval;
        }
    }
    waiting.sort_by_key(|(_, frame)| frame.arrival);
    let clock = Rc::new(Cell::new(Nanos::ZERO));
    let ports = BusyPorts {
        clock: Rc::clone(&clock),
        waiting: waiting.into(),
        now: Nanos::ZERO,
    };
    let mut forwarder = Forwarder::new(vec![ports], usize::MAX);
    for number in 0..links {
        let delay = Effect::Delay(model::Delay {
            time: Nanos::from_millis(5),
            ..model::Delay::default()
        });
        let stages = vec![StageSpec::new("box.up.delay", delay)];
        let link = Link::new(&LinkConfig::new(3, stages, Vec::new())).unwrap();
        let budget = LateBudget::DEFAULT;
        let ends = PortId::in_one_set(number);
        forwarder.add_link(ends, link, Rules::default(), budget, None);
    }
    loop {
        let now = clock.get();
        let next = match forwarder.step(now, Nanos::ZERO) {
            NextStep::Now => {
                // A step takes time, too.
                clock.set(clock.get() + Nanos(500));
                continue;
            }
            NextStep::At(at) => Some(at),
            NextStep::Arrival => None,
        };
        let ports = &forwarder.sets()[0];
        let arrival = ports.waiting.front().map(|(_, frame)| frame.arrival);
        let Some(at) = next.into_iter().chain(arrival).min() else {
            return forwarder;
        };
        clock.set(clock.get().max(at) + Nanos(500));
    }
}

/// Returns the latest departure error of a link.
fn latest(forwarder: &mut Forwarder<BusyPorts>, link: usize) -> Nanos {
    Nanos(forwarder.stats(link).departure_error().max_ns)
}

/// The busy link has twice the packets that can be sent. Each of the others has one packet each 2 ms.
fn beside_a_busy_link(links: u32) -> Forwarder<BusyPorts> {
    let busy = Stream {
        link: 0,
        interval: Nanos(1_000),
    };
    let quiet = (1..links).map(|link| Stream {
        link,
        interval: Nanos::from_millis(2),
    });
    let streams: Vec<Stream> = [busy].into_iter().chain(quiet).collect();
    pass(links, &streams)
}

#[test]
fn a_link_that_is_too_busy_delays_no_other_by_more_than_a_quantum() {
    let mut forwarder = beside_a_busy_link(6);
    for link in 1..6 {
        assert_eq!(forwarder.stats(link).sent[0], 100);
        // A quantum of the busy link, a packet of each of the others, and the step itself.
        let most = Nanos(32 * COST.0 + 5 * COST.0 + 2_000);
        let latest = latest(&mut forwarder, link);
        assert!(latest <= most, "{link}: {latest}");
        // Packets whose due time is known beforehand rarely wait for more than a packet.
        let p50 = forwarder.stats(link).departure_error().p50_ns;
        assert!(p50 <= 4 * COST.0, "{link}: {p50}");
    }
}

#[test]
fn links_that_are_busy_alike_share_what_can_be_sent() {
    let busy = [0, 1, 2].map(|link| Stream {
        link,
        interval: Nanos(1_500),
    });
    let mut forwarder = pass(3, &busy);
    let sent: Vec<u64> = (0..3).map(|link| forwarder.stats(link).sent[0]).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least < most / 20, "{sent:?}");
}

#[test]
fn links_under_high_load_take_turns_and_others_are_paced_to_their_due_times() {
    let streams = [
        Stream {
            link: 0,
            interval: Nanos(20_000),
        },
        Stream {
            link: 1,
            interval: Nanos::from_millis(2),
        },
    ];
    let mut forwarder = pass(2, &streams);
    // The busy link leaves every 75 us. In this test, steps also begin at every arrival.
    let busy = forwarder.stats(0).departure_error();
    assert!(busy.max_ns > 20_000 && busy.max_ns < 100_000, "{busy:?}");
    let quiet = forwarder.stats(1).departure_error();
    assert!(quiet.p99_ns < 15_000, "{quiet:?}");
}
