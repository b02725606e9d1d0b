//! Every profile that ships is measured for a minute of model time, and compared with what it states.

use model::{Bytes, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, QueueLimit, Side};

use super::{Averages, Outline, OutlinePeriod, OverTime};
use crate::link::profiles::{LinkProfile, PROFILES};
use crate::{Direction, LinkSpec};

/// The time for which a profile is measured.
const MINUTE: Nanos = Nanos::from_secs(60);
/// The L2 bytes of a probe.
const PROBE: u64 = 100;
/// The number of standard deviations that a measured average may differ from the stated one. All draws have one seed, so
/// a profile always or never passes.
const DEVIATIONS: f64 = 4.0;
/// The longest burst of losses that a profile states.
const BURST: f64 = 8.0;

/// A profile in one direction.
struct Measured<'p> {
    direction: Direction,
    config: &'p LinkConfig,
    stated: &'p [OutlinePeriod],
}

/// The outcomes of packets that were sent at regular intervals.
struct Passed {
    sent: u64,
    /// The arrival and the delay of each packet that was delivered.
    delivered: Vec<(Nanos, Nanos)>,
}

#[test]
fn every_profile_achieves_what_it_states_for_a_minute() {
    let mut wrong = String::new();
    for LinkProfile { name, text } in PROFILES {
        let spec: LinkSpec = crate::read::toml_text(text).unwrap();
        let config = spec.to_link("box").unwrap().config;
        let outline = Outline::of(&spec, MINUTE).unwrap();
        for (direction, stated) in [
            (Direction::Up, &outline.up),
            (Direction::Down, &outline.down),
        ] {
            let measured = Measured {
                direction,
                config: &config,
                stated,
            };
            for problem in measured.problems() {
                wrong += &format!("{name} {}: {problem}\n", direction.name());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_figures_between_two_times_follow_the_schedule() {
    let text = "rate = '10mbit'\ndelay = '5ms'\n\
                schedule = [{ at = '2s', rate = '4mbit' }, { at = '5s', delay = '9ms', loss = '3%' }]";
    let all = OverTime::of(&crate::read::toml_text(text).unwrap()).unwrap();
    let s = Nanos::from_secs;
    let of = |one: &OutlinePeriod| {
        let [from, until] = [one.from, one.until].map(|at| at.0 / 1_000_000_000);
        let ms = one.delay.0 / 1_000_000;
        (from, until, one.rate, ms, one.loss > 0.029)
    };
    let outline = all.between(s(1), s(6), 100);
    let right = [
        (1, 2, Some(10_000_000), 5, false),
        (2, 5, Some(4_000_000), 5, false),
        (5, 6, Some(4_000_000), 9, true),
    ];
    assert_eq!(outline.up.iter().map(of).collect::<Vec<_>>(), right);
    assert_eq!(outline.up, outline.down);
    let now = all.at(s(3))[0];
    assert_eq!(of(&now), (3, 3, Some(4_000_000), 5, false));
    // Of three periods in ten seconds, two are shown.
    let few = all.between(Nanos::ZERO, s(10), 2).up;
    let right = [
        (0, 5, Some(10_000_000), 5, false),
        (5, 10, Some(4_000_000), 9, true),
    ];
    assert_eq!(few.iter().map(of).collect::<Vec<_>>(), right);
    assert!(all.between(s(6), s(6), 2).up.is_empty());
}

#[test]
fn the_figures_of_a_trace_and_of_outages_follow_their_times() {
    let text = "trace = { file = 'x', content = \"t,rate,delay\\n0s,8mbit,5ms\\n2s,0bit,\\n3s,,\\n\" }\noutage = '1s/4s'";
    let all = OverTime::of(&crate::read::toml_text(text).unwrap()).unwrap();
    let outline = all.between(Nanos::ZERO, Nanos::from_secs(6), 100);
    let is_closed = |at: u64| all.at(Nanos::from_secs(at))[0].is_closed();
    assert_eq!([0, 2, 3, 5].map(is_closed), [false, true, false, true]);
    let lost = outline.up.iter().filter(|one| one.loss > 0.99);
    assert!(lost.map(OutlinePeriod::seconds).sum::<f64>() > 0.9);
    assert!(all.between(Nanos::ZERO, Nanos::from_secs(6), 3).up.len() <= 3);
}

#[test]
fn the_rate_of_a_trace_of_times_is_what_it_served_in_a_window() {
    // Ten packets of 1,504 bytes in the first tenth of a second, and the last one at the end of the second tenth.
    let times: String = (1..=10)
        .chain([20])
        .map(|time| format!("{}\\n", time * 10))
        .collect();
    let text = format!("trace = {{ file = 'x', content = \"{times}\" }}");
    let all = OverTime::of(&crate::read::toml_text(&text).unwrap()).unwrap();
    let rates = |from, until| {
        let [from, until] = [from, until].map(Nanos::from_millis);
        let up = all.between(from, until, 10).up;
        up.iter().map(|one| one.rate.unwrap()).collect::<Vec<_>>()
    };
    // Nine times are before 100 ms, and the tenth is at 100 ms. The trace begins again at 200 ms, with its last time.
    assert_eq!(rates(0, 200), [9 * 120_320, 120_320]);
    assert_eq!(rates(200, 400), [10 * 120_320, 120_320]);
    let at = |ms| all.at(Nanos::from_millis(ms))[0].rate;
    assert_eq!(at(150), Some(6 * 120_320));
    assert_eq!(at(200), Some(120_320));
    // Before the end of the first window, that window counts.
    assert_eq!([0, 50].map(at), [Some(9 * 120_320); 2]);
}

#[test]
fn every_profile_states_a_rate_a_delay_and_whether_it_loses_packets() {
    for profile in PROFILES {
        let outline = Outline::of(&profile.conditions(), MINUTE).unwrap();
        for stated in [&outline.up, &outline.down] {
            let of = Averages::of(stated);
            assert!(of.rate_bit_per_s.is_some(), "{}", profile.name);
            assert!(of.delay_ms > 0.0, "{}", profile.name);
            assert!(of.loss_percent < 50.0, "{}", profile.name);
        }
    }
}

#[test]
fn figures_follow_schedules_gates_and_stalls() {
    let text = "delay = '10ms'\nrate = '8mbit'\nloss = '1%'\n\
        schedule = [{ at = '15s', rate = '4mbit', delay = '30ms' }, { at = '90s', rate = '1mbit' }]\n\
        [[stages]]\nkind = 'gate'\nschedule = [{ at = '30s', open = false }, { at = '45s', open = true }]\n\
        [[stages]]\nkind = 'stall'\ndirection = 'up'\nevery = '10s'\nlasts = '1s'\n";
    let spec: LinkSpec = crate::read::toml_text(text).unwrap();
    let Outline { up, down } = Outline::of(&spec, MINUTE).unwrap();
    let rates =
        |all: &[OutlinePeriod]| -> Vec<Option<u64>> { all.iter().map(|one| one.rate).collect() };
    assert_eq!(rates(&up), [8, 4, 0, 4].map(|mbit| Some(mbit * 1_000_000)));
    assert_eq!(up.first().unwrap().until, Nanos::from_secs(15));
    assert_eq!(up.last().unwrap().until, MINUTE);
    let [up, down] = [up, down].map(|all| Averages::of(&all));
    // The gate is open for 45 s, 15 of them at 8 Mbit/s.
    assert!((up.rate_bit_per_s.unwrap() - 16e6 / 3.0).abs() < 1.0);
    assert!((up.delay_ms - 25.0).abs() < 1e-9);
    assert!((up.loss_percent - 1.0).abs() < 1e-9);
    assert!((down.outage_percent - 25.0).abs() < 1e-9);
    assert!((up.outage_percent - 32.5).abs() < 1e-9);
    let unlimited: LinkSpec = crate::read::toml_text("delay = '1ms'").unwrap();
    let outline = Outline::of(&unlimited, MINUTE).unwrap();
    assert_eq!(Averages::of(&outline.up).rate_bit_per_s, None);
}

impl Measured<'_> {
    /// Sends packets of one length at regular intervals for a minute, and waits for the last one.
    fn send(&self, length: Bytes, gap: Nanos) -> Passed {
        let side = self.direction.choose(Side::A, Side::B);
        let mut link = Link::new(self.config).unwrap();
        let mut passed = Passed {
            sent: 0,
            delivered: Vec::new(),
        };
        let mut take = |outcome: Outcome| {
            if let Outcome::Deliver { id, due, .. } = outcome {
                let came = gap.saturating_mul(id.0);
                passed.delivered.push((came, due - came));
            }
        };
        let mut at = Nanos::ZERO;
        while at < MINUTE {
            link.offer(at, side, Packet::new(PacketId(passed.sent), length));
            passed.sent += 1;
            std::iter::from_fn(|| link.poll(at)).for_each(&mut take);
            at = gap.saturating_mul(passed.sent);
        }
        std::iter::from_fn(|| link.poll(Nanos::MAX)).for_each(take);
        passed
    }

    /// Returns what differs from what it states.
    fn problems(&self) -> impl Iterator<Item = String> {
        let least = self.stated.iter().filter_map(|one| one.rate);
        let least = least.filter(|rate| *rate > 0).min().unwrap();
        let service = Nanos(PROBE * 8 * 1_000_000_000 / least);
        // The probes do not load the link.
        let gap = Nanos::from_millis(10).max(service.saturating_mul(4));
        let probes = self.send(Bytes(PROBE), gap);
        let delay = self.check_delay(&probes, gap, service);
        [delay, self.check_loss(&probes), self.check_rate()]
            .into_iter()
            .flatten()
    }

    /// Compares the share of probes that were lost.
    fn check_loss(&self, probes: &Passed) -> Option<String> {
        let closed = self.share_closed();
        let stated = Averages::of(self.stated).loss_percent / 100.0 * (1.0 - closed);
        let lost = 1.0 - probes.delivered.len() as f64 / probes.sent as f64;
        let tolerance = self.loss_tolerance(stated, probes.sent);
        let right = stated - tolerance..=stated + closed + tolerance;
        (!right.contains(&lost))
            .then(|| format!("{lost:.4} of the probes were lost, not {right:.4?}"))
    }

    /// Compares the average delay of probes that came while packets passed.
    fn check_delay(&self, probes: &Passed, gap: Nanos, service: Nanos) -> Option<String> {
        let stated_at = |came: Nanos| self.stated.iter().find(|one| came < one.until);
        let differences = probes.delivered.iter().filter_map(|(came, took)| {
            let stated = stated_at(*came).filter(|one| !one.is_closed())?;
            Some((took.0 as f64 - stated.delay.0 as f64) / 1e6)
        });
        let differences: Vec<f64> = differences.collect();
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        let most =
            |value: fn(&OutlinePeriod) -> f64| self.stated.iter().map(value).fold(0.0, f64::max);
        let spread = most(|one| one.jitter.0 as f64 / 1e6);
        // Neighbouring delays are similar: at most 1.5 s of them count as one.
        let apart = (gap.0 as f64 / 1e9).max(if spread > 0.0 { 1.5 } else { 0.0 });
        let tolerance = DEVIATIONS * spread / (60.0 / apart).sqrt() + 0.01;
        // Packets wait for a stall, for a packet before them, and for one that must not be overtaken.
        let stalled = most(|one| one.stalled);
        let waits = 500.0 * stalled + 0.35 * spread + 2.0 * service.0 as f64 / 1e6;
        let right = -tolerance..=waits + tolerance;
        (!right.contains(&mean))
            .then(|| format!("probes took {mean:.3} ms more than stated, not {right:.3?}"))
    }

    /// Compares the rate of a link that is full all the time.
    fn check_rate(&self) -> Option<String> {
        let fastest = self.stated.iter().filter_map(|one| one.rate).max().unwrap();
        // A full frame, or what the link passes in 5 ms: a minute at 1 Gbit/s has five million full frames.
        let length = (fastest / 8 / 200).max(1_514);
        let gap = Nanos(length * 8 * 1_000_000_000 / fastest / 2);
        let passed = self.send(Bytes(length), gap);
        let mean = |value: &dyn Fn(&OutlinePeriod) -> f64| {
            self.stated
                .iter()
                .map(|one| value(one) * one.seconds())
                .sum::<f64>()
                / 60.0
        };
        let rate = |one: &OutlinePeriod| one.rate.unwrap() as f64 * (1.0 - one.loss);
        let most = mean(&rate);
        let least = mean(&|one| rate(one) * (1.0 - one.stalled));
        let delay = Averages::of(self.stated).delay_ms;
        let arrived = passed.delivered.iter().filter(|(came, took)| {
            let since = (came.0 + took.0) as f64 / 1e6 - delay;
            (0.0..60_000.0).contains(&since)
        });
        let achieved = arrived.count() as f64 * length as f64 * 8.0 / 60.0;
        let fluctuates = self.stated.iter().filter(|one| one.hold > Nanos::ZERO);
        let drawn = fluctuates.map(|one| {
            let count = (60e9 / one.hold.0 as f64).max(1.0);
            DEVIATIONS * one.fluctuation / (3.0 * count).sqrt()
        });
        let lost = Averages::of(self.stated).loss_percent / 100.0;
        let two_packets = 2.0 * length as f64 * 8.0 / 60.0 / most;
        let tolerance = drawn.fold(0.0, f64::max)
            + self.loss_tolerance(lost, passed.sent)
            + self.kept_at_gates() / 60.0
            + two_packets
            + 0.02;
        let right = least * (1.0 - tolerance)..=most * (1.0 + tolerance);
        (!right.contains(&achieved))
            .then(|| format!("it passed {achieved:.0} bit/s, not {right:.0?}"))
    }

    /// Returns the seconds for which full queues go on passing packets when gates close.
    fn kept_at_gates(&self) -> f64 {
        let closures = self.stated.iter().filter(|one| one.is_closed()).count() as f64;
        let queues = self.config.paths.iter().flat_map(|path| &path.stages);
        let times = queues.filter_map(|stage| match stage.effect.behaviour().room? {
            QueueLimit::Time(time) | QueueLimit::TimeOrPackets(time, _) => {
                Some(time.0 as f64 / 1e9)
            }
            QueueLimit::Packets(_) | QueueLimit::Bytes(_) => None,
        });
        closures * times.fold(0.0, f64::max)
    }

    fn share_closed(&self) -> f64 {
        let closed = self.stated.iter().filter(|one| one.is_closed());
        closed.map(OutlinePeriod::seconds).sum::<f64>() / 60.0
    }

    /// Returns by how much the share of lost packets may differ from a stated one, when losses come in bursts.
    fn loss_tolerance(&self, stated: f64, packets: u64) -> f64 {
        DEVIATIONS * (stated * (1.0 - stated) * 2.0 * BURST / packets as f64).sqrt()
    }
}
