//! Tests of several links and of overload, in virtual time that passes while packets are sent.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use model::{Effect, LinkConfig, StageSpec};
use netio::{Capabilities, Frame, Missed, Offload, SendTimes, TxFrame};

use super::*;

/// The time that a call of `send` takes for each packet.
pub(super) const COST: Nanos = Nanos(2_000);

/// A set of ports at which frames arrive by a schedule, and which takes time to send.
pub(super) struct BusyPorts {
    clock: Rc<Cell<Nanos>>,
    /// The frames that have not been taken, with their ports, in the order of their arrivals.
    waiting: VecDeque<(usize, Frame)>,
    /// The time that taking a frame takes.
    take: Nanos,
    now: Nanos,
    /// The frames of each call that sent something.
    pub(super) calls: Vec<Vec<SentFrame>>,
    /// The port that refuses all frames, if any.
    refuses: Option<usize>,
}

/// A frame that left, or that its port has refused.
#[derive(Debug)]
pub(super) struct SentFrame {
    pub(super) port: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) begun: Nanos,
}

impl BusyPorts {
    /// Sends frames in one call, each by the port that `port` returns for its index.
    fn call(
        &mut self,
        port: impl Fn(usize) -> usize,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        let mut call = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let begun = self.clock.get();
            let bytes = [frame.head.bytes(), &frame.body].concat();
            let packets = frame
                .offload
                .gso
                .map_or(1, |gso| bytes.len().div_ceil(gso.size.into()));
            let port = port(index);
            call.push(SentFrame { port, bytes, begun });
            if self.refuses == Some(port) {
                sent(index, Err(io::ErrorKind::NetworkDown.into()));
                continue;
            }
            let ended = begun + Nanos(COST.0 * packets as u64);
            self.clock.set(ended);
            sent(index, Ok(SendTimes { begun, ended }));
        }
        self.calls.push(call);
    }
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
        self.clock.set(self.clock.get() + self.take);
        let (port, frame) = self.waiting.pop_front()?;
        Some((port, ReceivedFrame::Frame(frame)))
    }

    fn send(
        &mut self,
        port: usize,
        _: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        self.call(|_| port, frames, sent);
    }

    fn send_each(
        &mut self,
        ports: &[usize],
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        assert_eq!(ports.len(), frames.len());
        self.call(|index| ports[index], frames, sent);
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

/// Differences of a test's links and of the forwarder's work from the usual ones.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    /// The delay of each link.
    pub(super) delay: Nanos,
    /// The time that taking a frame from the rings takes.
    pub(super) take: Nanos,
    /// The time that dropping a packet takes because it is too late. It passes after the step.
    pub(super) drop: Nanos,
    /// The port that refuses all frames, if any.
    pub(super) refuses: Option<usize>,
    /// The time for which the forwarder stays awake before it rests, if it does.
    pub(super) stint: Option<Nanos>,
    /// The lateness at which packets are dropped.
    pub(super) limit: LateLimit,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            limit: LateLimit::DEFAULT,
            delay: Nanos::from_millis(5),
            take: Nanos::ZERO,
            drop: Nanos::ZERO,
            refuses: None,
            stint: None,
        }
    }
}

/// The duration of a rest.
const REST: Nanos = Nanos(550_000);
const DURATION: Nanos = Nanos::from_millis(200);
/// The time for which the host does not run the forwarder in some tests.
const STALL: Nanos = Nanos::from_millis(30);

/// Passes these streams through `links` links of 5 ms each until all packets are gone. `stall` is
/// the time at which the host stops running the forwarder for [`STALL`].
fn pass(links: u32, streams: &[Stream], stall: Option<Nanos>) -> Forwarder<BusyPorts> {
    let frames = frames_of(streams, DURATION);
    pass_frames(Setting::default(), links, frames, stall)
}

/// Returns the frames of these streams that arrive before `end`, with their ports.
fn frames_of(streams: &[Stream], end: Nanos) -> Vec<(usize, Frame)> {
    let mut frames = Vec::new();
    for Stream { link, interval } in streams {
        let mut at = Nanos::from_millis(1) + Nanos::from_micros(100 * u64::from(*link));
        while at < end {
            frames.extend(together(*link, 1, at));
            at += *interval;
        }
    }
    frames
}

/// Returns this many frames that arrive together at side A of a link, with their ports.
fn together(link: u32, count: u32, at: Nanos) -> impl Iterator<Item = (usize, Frame)> {
    let mut bytes = [0; 100];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    let port = 2 * link as usize;
    (0..count).map(move |_| (port, Frame::new(at, Offload::default(), None, &bytes)))
}

/// Passes these frames, in the order of their arrivals.
pub(super) fn pass_frames(
    Setting {
        delay,
        take,
        drop,
        refuses,
        stint,
        limit,
    }: Setting,
    links: u32,
    mut waiting: Vec<(usize, Frame)>,
    stall: Option<Nanos>,
) -> Forwarder<BusyPorts> {
    waiting.sort_by_key(|(_, frame)| frame.arrival);
    let clock = Rc::new(Cell::new(Nanos::ZERO));
    let ports = BusyPorts {
        clock: Rc::clone(&clock),
        waiting: waiting.into(),
        take,
        now: Nanos::ZERO,
        calls: Vec::new(),
        refuses,
    };
    let mut forwarder = Forwarder::new(vec![ports], usize::MAX);
    for number in 0..links {
        let delay = Effect::Delay(model::Delay {
            time: delay,
            ..model::Delay::default()
        });
        let stages = vec![StageSpec::new("box.up.delay", delay)];
        let link = Link::new(&LinkConfig::new(3, stages, Vec::new())).unwrap();
        let budget = LateBudget::DEFAULT;
        let ends = PortId::in_one_set(number);
        forwarder.add_link(ends, link, Rules::default(), budget, None);
    }
    // The thread runs whenever time passes, except in the stall.
    let stalled = Rc::new(Cell::new(Nanos::ZERO));
    let (time, without) = (Rc::clone(&clock), Rc::clone(&stalled));
    let cpu_clock = move || time.get() - without.get();
    forwarder.bound_lateness(limit, Box::new(cpu_clock));
    let mut stall = stall;
    let mut dropped: u64 = 0;
    let mut awake = Nanos::ZERO;
    loop {
        if stall.is_some_and(|at| at <= clock.get()) {
            stall = None;
            stalled.set(STALL);
            clock.set(clock.get() + STALL);
        }
        let now = clock.get();
        if stint.is_some_and(|stint| now > awake + stint) && forwarder.rest(now, now + REST) {
            awake = now + REST;
        }
        let next = forwarder.step(now, Nanos::ZERO);
        if drop > Nanos::ZERO {
            let all = (0..links as usize).map(|link| overloaded(&mut forwarder, link));
            let before = std::mem::replace(&mut dropped, all.sum::<u64>());
            clock.set(clock.get() + Nanos(drop.0 * (dropped - before)));
        }
        let next = match next {
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
        let arrival = arrival.filter(|_| !forwarder.rests(now));
        let Some(at) = next.into_iter().chain(arrival).min() else {
            return forwarder;
        };
        clock.set(clock.get().max(at) + Nanos(500));
    }
}

fn overloaded(forwarder: &mut Forwarder<BusyPorts>, link: usize) -> u64 {
    forwarder.stats(link).lost(Side::A, EmulatorLoss::Overload)
}

/// Returns the latest departure error of a link.
fn latest(forwarder: &mut Forwarder<BusyPorts>, link: usize) -> Nanos {
    Nanos(forwarder.stats(link).departure_error().max_ns)
}

/// Returns streams of a busy link, which is the first one, and of a quiet one.
fn busy_and_quiet(busy: Nanos, quiet: Nanos) -> [Stream; 2] {
    let stream = |link, interval| Stream { link, interval };
    [stream(0, busy), stream(1, quiet)]
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
    pass(links, &streams, None)
}

#[test]
fn a_link_that_is_too_busy_delays_no_other_by_more_than_a_turn_and_loses_only_its_own() {
    let mut forwarder = beside_a_busy_link(6);
    assert!(overloaded(&mut forwarder, 0) > 10_000);
    for link in 1..6 {
        assert_eq!(overloaded(&mut forwarder, link), 0);
        assert_eq!(forwarder.stats(link).sent[0], 100);
        // A turn of the busy link, a packet of each of the others, and the step itself.
        let most = Nanos(32 * COST.0 + 5 * COST.0 + 2_000);
        let latest = latest(&mut forwarder, link);
        assert!(latest <= most, "{link}: {latest}");
        // Packets whose due time is known beforehand rarely wait for more than a packet.
        let p50 = forwarder.stats(link).departure_error().p50_ns;
        assert!(p50 <= 4 * COST.0, "{link}: {p50}");
    }
}

#[test]
fn many_departures_are_a_load_though_nothing_has_arrived_for_long() {
    for (links, is_high) in [(7, false), (8, true)] {
        let frames = (0..links).flat_map(|link| {
            let at = Nanos::from_micros(1_000 + 100 * u64::from(link));
            together(link, 1, at)
        });
        let forwarder = pass_frames(Setting::default(), links, frames.collect(), None);
        let last = forwarder.sets()[0].calls.last().unwrap()[0].begun;
        let [soon, later] = [100, 2_000].map(|us| last + Nanos::from_micros(us));
        let expected = if is_high {
            Pace::Round(soon + recent_frames::ROUND)
        } else {
            Pace::Exact
        };
        assert_eq!(forwarder.pace(soon), expected, "{links} links");
        assert_eq!(forwarder.pace(later), Pace::Exact, "{links} links");
    }
}

#[test]
fn a_busy_link_rests_while_the_others_send_in_time() {
    let streams = busy_and_quiet(Nanos(1_000), Nanos(310_000));
    let setting = Setting {
        stint: Some(Nanos::from_millis(2)),
        ..Setting::default()
    };
    let frames = frames_of(&streams, DURATION);
    let mut forwarder = pass_frames(setting, 2, frames, None);
    let departures = |port| {
        let calls = forwarder.sets()[0].calls.iter().flatten();
        let of_port = calls.filter(move |frame| frame.port == port);
        of_port.map(|frame| frame.begun).collect::<Vec<_>>()
    };
    // Side B of each link.
    let (of_busy, of_quiet) = (departures(1), departures(3));
    let rests: Vec<_> = of_busy
        .windows(2)
        .filter(|pair| pair[1] >= pair[0] + Nanos::from_micros(500))
        .collect();
    assert!(rests.len() > 60, "{}", rests.len());
    let is_in_rest = |at: &Nanos| rests.iter().any(|rest| rest[0] < *at && *at < rest[1]);
    assert!(of_quiet.iter().filter(|at| is_in_rest(at)).count() > 100);
    assert_eq!(overloaded(&mut forwarder, 1), 0);
    let latest = latest(&mut forwarder, 1);
    assert!(latest <= Nanos(34 * COST.0 + 2_000), "{latest}");
}

#[test]
fn a_link_that_fills_the_rings_loses_its_own_frames_before_the_kernel_drops_those_of_others() {
    let streams = busy_and_quiet(Nanos(300), Nanos::from_millis(2));
    // The rings have no more room for packets that may leave later.
    for limit in ["10ms", "10s"] {
        let setting = Setting {
            take: Nanos(200),
            limit: limit.parse().unwrap(),
            ..Setting::default()
        };
        let frames = frames_of(&streams, DURATION);
        let mut forwarder = pass_frames(setting, 2, frames, None);
        let of_busy = forwarder.stats(0);
        let refused = of_busy.lost(Side::A, EmulatorLoss::IntakeOverload);
        let taken_in = of_busy.counters(Side::A).packets;
        assert_eq!(refused + taken_in, 663_334);
        assert!(refused > taken_in, "{limit}: {refused} {taken_in}");
        let lost = of_busy.lost(Side::A, EmulatorLoss::Overload);
        assert_eq!(of_busy.sent[0] + lost, taken_in);
        let of_quiet = forwarder.stats(1);
        assert_eq!(of_quiet.sent[0], 100);
        // Frames never wait in the rings for as long as the shorter limit.
        let latest = latest(&mut forwarder, 1);
        assert!(latest < Nanos::from_millis(10), "{limit}: {latest}");
    }
}

#[test]
fn frames_that_are_refused_delay_other_links_by_little() {
    let streams = busy_and_quiet(Nanos(300), Nanos(510_000));
    // Frames wait in the rings for less than this delay, so only the steps make packets late.
    let setting = Setting {
        delay: Nanos::from_millis(20),
        take: Nanos(200),
        ..Setting::default()
    };
    let frames = frames_of(&streams, Nanos::from_millis(80));
    let mut forwarder = pass_frames(setting, 2, frames, None);
    let of_busy = forwarder.stats(0);
    assert!(of_busy.lost(Side::A, EmulatorLoss::IntakeOverload) > 10_000);
    // The intake of two steps with the largest number of frames, and a turn between them.
    let most = Nanos(2 * 256 * 200 + 32 * COST.0 + 2 * COST.0 + 2_000);
    let latest = latest(&mut forwarder, 1);
    assert!(latest <= most, "{latest}");
}

#[test]
fn a_link_that_drops_most_of_its_packets_still_sends_its_share_and_none_accumulate() {
    // Between two turns of the first link, twice the packets arrive there that a turn may drop.
    let streams = [0, 1, 2, 3, 4].map(|link| Stream {
        link,
        interval: Nanos(if link == 0 { 750 } else { 8_000 }),
    });
    let mut forwarder = pass(5, &streams, None);
    let sent: Vec<u64> = (0..5).map(|link| forwarder.stats(link).sent[0]).collect();
    assert!(sent[0] > sent[1] / 2, "{sent:?}");
    let peak = forwarder.stats(0).peak_bytes;
    assert!(peak < 30 << 20, "{peak}");
}

#[test]
fn frames_that_arrive_together_wait_while_a_packet_of_another_link_is_due() {
    let burst = |number: u64| together(0, 100, Nanos::from_micros(1_595 + 1_000 * number));
    // Its packets are due 5 us after each burst has arrived.
    let quiet = Stream {
        link: 1,
        interval: Nanos::from_millis(1),
    };
    let setting = Setting {
        delay: Nanos::from_micros(5_500),
        take: Nanos(1_000),
        ..Setting::default()
    };
    let frames = frames_of(&[quiet], Nanos::from_millis(50));
    let frames = (0..50).flat_map(burst).chain(frames);
    let mut forwarder = pass_frames(setting, 2, frames.collect(), None);
    assert_eq!(forwarder.stats(0).sent[0], 5_000);
    assert_eq!(forwarder.stats(1).sent[0], 49);
    // The least intake of two steps, and the packet itself.
    let most = Nanos(2 * 16 * 1_000 + COST.0 + 2_000);
    let latest = latest(&mut forwarder, 1);
    assert!(latest <= most, "{latest}");
}

#[test]
fn packets_of_a_quiet_link_leave_before_frames_of_a_busy_one_are_taken_in() {
    let streams = busy_and_quiet(Nanos(3_000), Nanos(310_000));
    let setting = Setting {
        delay: Nanos::from_millis(20),
        take: Nanos(1_500),
        ..Setting::default()
    };
    let frames = frames_of(&streams, DURATION);
    let mut forwarder = pass_frames(setting, 2, frames, None);
    let quiet = forwarder.stats(1).departure_error();
    // A packet of the busy link, or a frame of it, and the step itself.
    assert!(quiet.p50_ns <= 4_000, "{quiet:?}");
    assert!(quiet.p99_ns <= 12_000, "{quiet:?}");
}

#[test]
fn packets_that_are_dropped_delay_other_links_by_little() {
    // Every 8 ms, frames arrive together that take 12 ms to send. Those that are still there after 10 ms
    // become too late at the same instant.
    let burst = |number: u64| together(0, 6_000, Nanos::from_millis(1 + 8 * number));
    let quiet = [1, 2].map(|link| Stream {
        link,
        interval: Nanos(200_000),
    });
    let frames = (0..10).flat_map(burst);
    let frames = frames.chain(frames_of(&quiet, Nanos::from_millis(90)));
    let setting = Setting {
        drop: Nanos(200),
        ..Setting::default()
    };
    let mut forwarder = pass_frames(setting, 3, frames.collect(), None);
    assert!(overloaded(&mut forwarder, 0) > 10_000);
    let of_busy = latest(&mut forwarder, 0);
    assert!(of_busy < Nanos(10_300_000), "{of_busy}");
    for link in [1, 2] {
        assert_eq!(overloaded(&mut forwarder, link), 0);
        // A turn and its drops, a packet of each other link, and the steps themselves.
        let most = Nanos(32 * COST.0 + 192 * 200 + 3 * COST.0 + 2_000);
        let latest = latest(&mut forwarder, link);
        assert!(latest <= most, "{link}: {latest}");
    }
}

#[test]
fn a_link_that_must_drop_much_takes_no_turn_from_one_that_sends() {
    // These take 50 ms to send, and a packet is dropped after 10 ms.
    let much = (0..3).flat_map(|n| together(0, 25_000, Nanos::from_millis(1 + 30 * n)));
    // These are more than a turn sends.
    let bursts = (0..100).flat_map(|n| together(1, 60, Nanos::from_micros(1_300 + 1_000 * n)));
    let setting = Setting {
        drop: Nanos(200),
        ..Setting::default()
    };
    let mut forwarder = pass_frames(setting, 2, much.chain(bursts).collect(), None);
    assert!(overloaded(&mut forwarder, 0) > 50_000);
    assert_eq!(overloaded(&mut forwarder, 1), 0);
    assert_eq!(forwarder.stats(1).sent[0], 6_000);
    // It needs two turns. Before each of them, the other link has one, and drops packets beside both.
    let most = Nanos(4 * 32 * COST.0 + 4 * 192 * 200 + 4_000);
    let latest = latest(&mut forwarder, 1);
    assert!(latest <= most, "{latest}");
}

#[test]
fn link_control_of_a_link_that_fills_the_rings_passes() {
    let busy = Stream {
        link: 0,
        interval: Nanos(300),
    };
    let end = Nanos::from_millis(40);
    let mut frames = frames_of(&[busy], end);
    let offered = frames.len() as u64;
    let mut arp = [0; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut spanning_tree = [0; 60];
    spanning_tree[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
    for millis in 1..40 {
        for bytes in [&arp, &spanning_tree] {
            let at = Nanos::from_millis(millis);
            frames.push((0, Frame::new(at, Offload::default(), None, bytes)));
        }
    }
    let setting = Setting {
        take: Nanos(200),
        ..Setting::default()
    };
    let mut forwarder = pass_frames(setting, 2, frames, None);
    let stats = forwarder.stats(0);
    let refused = stats.lost(Side::A, EmulatorLoss::IntakeOverload);
    assert!(refused > 10_000, "{refused}");
    assert_eq!(refused + stats.counters(Side::A).packets, offered);
    assert_eq!(stats.control, [78, 0]);
}

#[test]
fn lateness_is_bounded_and_the_excess_is_counted_under_its_own_cause() {
    for links in [1, 3] {
        let mut forwarder = beside_a_busy_link(links);
        let latest = latest(&mut forwarder, 0);
        let limit = Nanos::from_millis(10);
        assert!(
            latest > limit && latest < limit + Nanos(200_000),
            "{latest}"
        );
        let lost = overloaded(&mut forwarder, 0);
        let stats = forwarder.stats(0);
        let offered = stats.counters(Side::A).packets;
        assert_eq!(offered, 199_000);
        assert_eq!(stats.sent[0] + lost, offered);
        // Twice the packets that can be sent: about half are lost.
        assert!(lost > offered * 4 / 10 && lost < offered * 6 / 10, "{lost}");
        assert!(forwarder.shared.held.is_empty());
    }
}

#[test]
fn packets_that_are_due_together_are_late_by_the_limit_at_most() {
    for links in [1, 3] {
        // These take 50 ms to send.
        let burst = together(0, 25_000, Nanos::from_millis(1));
        let mut forwarder = pass_frames(Setting::default(), links, burst.collect(), None);
        let latest = latest(&mut forwarder, 0);
        let limit = Nanos::from_millis(10);
        assert!(latest < limit + Nanos(200_000), "{latest}");
        let lost = overloaded(&mut forwarder, 0);
        assert!(lost > 15_000, "{lost}");
        assert_eq!(forwarder.stats(0).sent[0] + lost, 25_000);
        assert!(forwarder.shared.held.is_empty());
    }
}

#[test]
fn a_forwarder_that_was_stopped_by_its_host_catches_up_without_a_loss() {
    let streams = [0, 1].map(|link| Stream {
        link,
        interval: Nanos(20_000),
    });
    for links in [1, 2] {
        let stall = Some(Nanos::from_millis(50));
        let mut forwarder = pass(links, &streams[..links as usize], stall);
        for link in 0..links as usize {
            assert_eq!(overloaded(&mut forwarder, link), 0);
            assert!(latest(&mut forwarder, link) > Nanos::from_millis(20));
        }
    }
}

#[test]
fn links_that_are_busy_alike_share_what_can_be_sent() {
    let busy = [0, 1, 2].map(|link| Stream {
        link,
        interval: Nanos(1_500),
    });
    let mut forwarder = pass(3, &busy, None);
    let sent: Vec<u64> = (0..3).map(|link| forwarder.stats(link).sent[0]).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least < most / 20, "{sent:?}");
}

#[test]
fn links_under_high_load_take_turns_and_others_are_paced_to_their_due_times() {
    let streams = busy_and_quiet(Nanos(20_000), Nanos::from_millis(2));
    let mut forwarder = pass(2, &streams, None);
    // The busy link leaves every 75 us. In this test, steps also begin at every arrival.
    let busy = forwarder.stats(0).departure_error();
    assert!(busy.max_ns > 20_000 && busy.max_ns < 100_000, "{busy:?}");
    let quiet = forwarder.stats(1).departure_error();
    assert!(quiet.p99_ns < 15_000, "{quiet:?}");
}
