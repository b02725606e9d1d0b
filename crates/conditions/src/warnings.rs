//! Effects of conditions that differ from what their words suggest.

use model::{
    Behaviour, BitsPerSec, Bottleneck, Bytes, Delay, Effect, Framing, LinkConfig, Nanos, Ordering,
    PathSpec, QueueLimit, StageSpec,
};

use crate::LinkSpec;
use crate::condition::netem;
use crate::route::FULL_FRAME;
use crate::rules::{HiddenRule, Rules};
use crate::trace::TraceEnd;

/// The shortest trace whose end is noted.
const SHORTEST_NOTED: Nanos = Nanos::from_secs(1);

/// The distance of packets for which an estimate is made: one each millisecond.
const GAP: Nanos = Nanos::from_millis(1);

/// Returns notes about a link: side effects of jitter (order adds to the mean, and delays cannot be below 0), queues of
/// slow rates, and deviations of netem from its options. Each is a line that begins with the stages that it concerns.
pub fn of_link(link: &LinkConfig) -> Vec<String> {
    let mut known: Vec<(String, Vec<&str>)> = Vec::new();
    let stages = link.paths.iter().flat_map(|path| {
        let slowest = slowest(path);
        path.stages.iter().map(move |stage| (stage, slowest))
    });
    for (stage, slowest) in stages {
        // The effects of a schedule or of a trace would all have nearly the same notes.
        let mut notes = stage.effects().map(|effect| of_effect(effect, slowest));
        let first = notes.find(|lines| !lines.is_empty());
        for line in first.into_iter().flatten() {
            let place = known
                .iter()
                .position(|(other, _)| *other == line)
                .unwrap_or_else(|| {
                    known.push((line, Vec::new()));
                    known.len() - 1
                });
            let names = &mut known[place].1;
            if !names.contains(&stage.name.as_str()) {
                names.push(&stage.name);
            }
        }
    }
    let lines = known.into_iter();
    lines
        .map(|(line, names)| format!("{}: {line}", names.join(", ")))
        .collect()
}

/// Returns a warning about each rule that never applies, because an earlier one matches all its packets.
pub fn of_rules(rules: &Rules) -> Vec<String> {
    let line = |HiddenRule { name, earlier }| {
        format!(
            "rule {name} never applies: rule {earlier} comes first and matches all its packets: put {name} before {earlier}"
        )
    };
    rules.hidden().into_iter().map(line).collect()
}

/// Returns notes about a link that runs for `time`: steps of its schedules that never come, and traces that end before.
/// `run` is the beginning of the sentence about the time, such as "the run took".
pub fn of_time(spec: &LinkSpec, time: Nanos, run: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(last) = spec.last_scheduled().filter(|last| *last > time) {
        lines.push(format!(
            "the schedule has steps until {last}, but {run} {}: later steps never apply",
            Seconds(time)
        ));
    }
    for trace in spec.traces() {
        // Short traces are patterns, which are meant to repeat.
        let length = trace.length().filter(|length| *length >= SHORTEST_NOTED);
        let Some(length) = length.filter(|length| *length < time) else {
            continue;
        };
        let then = match trace.end {
            TraceEnd::Loop => "it starts again then",
            TraceEnd::Hold => "its last conditions stay then",
            TraceEnd::Clear => "its conditions no longer apply then",
        };
        let line = format!(
            "the trace {} has {}, but {run} {}: {then}",
            trace.file,
            Seconds(length),
            Seconds(time)
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the rate of the slowest stage of a path that always has one: the greatest rate of its schedule.
fn slowest(path: &PathSpec) -> Option<BitsPerSec> {
    let rate_of = |effect: &Effect| -> Option<BitsPerSec> {
        let behaviour = effect.behaviour();
        match behaviour.netem {
            // Packets that wait for the rate of netem count towards its limit.
            Some(_) => None,
            None => behaviour.bottleneck?.rate(FULL_FRAME),
        }
    };
    let greatest = |stage: &StageSpec| {
        let rates: Option<Vec<BitsPerSec>> = stage.effects().map(rate_of).collect();
        rates?.into_iter().max()
    };
    path.stages.iter().filter_map(greatest).min()
}

fn of_effect(effect: &Effect, slowest: Option<BitsPerSec>) -> Vec<String> {
    let behaviour = effect.behaviour();
    let of_queue = of_queue(&behaviour);
    let Behaviour { delay, netem, .. } = behaviour;
    let of_delay = delay.map(of_delay).into_iter().flatten();
    of_delay
        .chain(of_queue)
        .chain(netem.into_iter().flat_map(|of| netem::notes(of, slowest)))
        .collect()
}

/// Returns a note about a queue whose time at the rate holds fewer full packets than its number of packets.
fn of_queue(behaviour: &Behaviour<'_>) -> Option<String> {
    let QueueLimit::TimeOrPackets(time, packets) = behaviour.room? else {
        return None;
    };
    let bottleneck = behaviour.bottleneck?;
    let rate = bottleneck.rate(FULL_FRAME)?;
    let full = Bytes(u64::from(packets) * FULL_FRAME.0);
    (rate.bytes_in(time) < full).then(|| {
        // The key `queue` of a link is that of its rate in bits.
        let (speed, key) = match packets_per_s(&bottleneck) {
            Some(number) => (format!("{number} packets/s"), "`queue` of the packet rate"),
            None => (rate.to_string(), "`queue`"),
        };
        format!(
            "at {speed}, {time} is less than {packets} full packets, so the queue holds {packets} packets: it delays full-sized ones by up \
             to {}; set {key} to change that",
            Seconds(rate.time_for(full))
        )
    })
}

/// Returns the rate in packets per second, if it counts packets.
fn packets_per_s(bottleneck: &Bottleneck<'_>) -> Option<u64> {
    match bottleneck {
        Bottleneck::Rate(rate) if rate.framing == Framing::PACKETS => {
            rate.rate.map(|rate| rate.get() / 8)
        }
        Bottleneck::Rate(_)
        | Bottleneck::Netem(_)
        | Bottleneck::Trace(_)
        | Bottleneck::Toffee(_) => None,
    }
}

fn of_delay(delay: &Delay) -> Vec<String> {
    let (Some(jitter), Some(estimate)) = (&delay.jitter, delay.estimate(GAP)) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    // An addition of less than a twentieth of the spread is not noticeable.
    if delay.ordering == Ordering::Fifo && estimate.added.0 > jitter.spread.0 / 20 {
        lines.push(format!(
            "order-preserving jitter adds a delay of {} on average at 1000 packets/s, with a standard deviation of {}; `free` or \
             `per-flow` avoids that, and a half-life reduces it",
            Milliseconds(estimate.added),
            Milliseconds(estimate.deviation)
        ));
    }
    if estimate.clamped > 0.0 {
        let percent = 100.0 * estimate.clamped;
        let digits = if percent < 1.0 { 2 } else { 0 };
        lines.push(format!(
            "about {percent:.digits$} % of delays would be negative and are set to 0, which raises the mean"
        ));
    }
    lines
}

/// A time in milliseconds, with two decimal places.
struct Milliseconds(Nanos);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two digits are read")]
        let milliseconds = self.0.0 as f64 / 1e6;
        write!(f, "{milliseconds:.2} ms")
    }
}

/// A time in seconds, with two decimal places.
struct Seconds(Nanos);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two digits are read")]
        let seconds = self.0.0 as f64 / 1e9;
        write!(f, "{seconds:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        of_link(&spec.to_link("box").unwrap().config)
    }

    #[test]
    fn jitter_in_order_is_noted_to_raise_the_mean() {
        let both = warnings("delay = '50ms'\njitter = '5ms,normal'");
        let [line] = &both[..] else {
            panic!("{both:?}")
        };
        let begin = "box.up.delay, box.down.delay: order-preserving jitter adds a delay of 4.";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.contains("a standard deviation of 3."), "{line}");
        let up = warnings("[up]\ndelay = '50ms'\njitter = '5ms'");
        assert!(up[0].starts_with("box.up.delay: "), "{up:?}");
    }

    #[test]
    fn a_trace_has_one_note_for_each_stage() {
        let text = "jitter = '5ms'\ntrace = { file = 'x', content = \"t,delay\\n0s,5ms\\n1s,9ms\\n2s,50ms\\n\" }";
        let lines = warnings(text);
        let first = lines.first().expect("order adds to the mean");
        assert!(lines.len() <= 2, "{lines:?}");
        assert!(
            first.starts_with("box.up.delay, box.down.delay: "),
            "{first}"
        );
    }

    #[test]
    fn plain_conditions_have_no_warning() {
        for jitter in ["5ms,normal,free", "5ms,per-flow", "5ms,half-life=10s"] {
            let lines = warnings(&format!("delay = '50ms'\njitter = '{jitter}'"));
            assert!(lines.is_empty(), "{lines:?}");
        }
        assert!(warnings("delay = '50ms'").is_empty());
    }

    #[test]
    fn the_default_queue_of_a_slow_rate_is_noted() {
        let both = warnings("rate = '56kbit'");
        let [line] = &both[..] else {
            panic!("{both:?}")
        };
        let expected = "box.up.rate, box.down.rate: at 56kbit, 100ms is less than 20 full packets, so the queue holds 20 packets: \
                        it delays full-sized ones by up to 4.33 s; set `queue` to change that";
        assert_eq!(line, expected);
        for quiet in [
            "rate = '2423kbit'",
            "rate = '56kbit'\nqueue = '20pkt'",
            "rate = '56kbit'\nqueue = '100ms'",
            "rate = '56kbit'\naqm = 'fq_codel'",
        ] {
            assert!(warnings(quiet).is_empty(), "{quiet}");
        }
        assert_eq!(warnings("rate = '2422kbit'").len(), 1);
    }

    #[test]
    fn the_note_about_the_queue_of_a_packet_rate_names_packets() {
        let both = warnings("pps = 100");
        let [line] = &both[..] else {
            panic!("{both:?}")
        };
        let expected = "box.up.pps, box.down.pps: at 100 packets/s, 100ms is less than 20 full packets, so the queue holds 20 packets: \
                        it delays full-sized ones by up to 0.20 s; set `queue` of the packet rate to change that";
        assert_eq!(line, expected);
        assert!(warnings("pps = '100,queue=20pkt'").is_empty());
        assert!(warnings("pps = 200").is_empty());
    }

    #[test]
    fn a_schedule_that_is_longer_than_the_run_is_noted() {
        let notes = |text: &str, seconds| {
            let spec: LinkSpec = toml::from_str(text).unwrap();
            of_time(&spec, Nanos::from_secs(seconds), "the run took")
        };
        let steps = "delay = '1ms'\nschedule = [{ at = '10s', delay = '2ms' }, { at = '20s', over = '5s', delay = '3ms' }]";
        assert_eq!(
            notes(steps, 12),
            ["the schedule has steps until 25s, but the run took 12.00 s: later steps never apply"]
        );
        assert!(notes(steps, 25).is_empty());
        let stage = "stages = [{ kind = 'gate', schedule = [{ at = '20s', open = false }] }]";
        assert_eq!(notes(stage, 12).len(), 1);
        assert!(notes("delay = '1ms'", 0).is_empty());
    }

    #[test]
    fn a_trace_that_is_shorter_than_the_run_is_noted() {
        let notes = |end: &str, seconds| {
            let content = "content = \"t,delay\\n0s,5ms\\n2s,9ms\\n4s,\\n\"";
            let text = format!("trace = {{ file = 'drive.csv', end = '{end}', {content} }}");
            let spec: LinkSpec = toml::from_str(&text).unwrap();
            of_time(&spec, Nanos::from_secs(seconds), "a run takes about")
        };
        assert_eq!(
            notes("loop", 10),
            ["the trace drive.csv has 4.00 s, but a run takes about 10.00 s: it starts again then"]
        );
        assert!(notes("hold", 10)[0].ends_with("its last conditions stay then"));
        assert!(notes("clear", 10)[0].ends_with("no longer apply then"));
        assert!(notes("loop", 4).is_empty());
    }

    #[test]
    fn a_limit_of_netem_is_noted_only_if_more_would_pass() {
        let limit = |text: &str| {
            let lines = warnings(&format!("netem = 'delay 40ms'\n{text}"));
            lines.iter().any(|line| line.contains("limit 1000"))
        };
        assert!(limit(""));
        // 1,000 full frames in 40 ms are 302 Mbit/s.
        assert!(!limit("rate = '10mbit'\nqueue = '100pkt'"));
        assert!(limit("rate = '1gbit'"));
        assert!(limit(
            "rate = '10mbit'\nqueue = '100pkt'\nschedule = [{ at = '1s', rate = '1gbit' }]"
        ));
    }

    #[test]
    fn delays_below_zero_are_noted() {
        let lines = warnings("delay = '5ms'\njitter = '5ms,normal,free'");
        // Phi(-1) is 15.9 %.
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(line.contains("down.delay: about 16 % of"), "{line}");
    }
}
