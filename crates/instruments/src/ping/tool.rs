//! The system's ping (iputils) as an instrument, whose output is parsed into the same samples.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::echo_stats::EchoStats;
use crate::endpoint::Local;
use crate::error::Result;
use crate::external::{Tool, ToolOutput, word, words};
use crate::failure::{Blame, Failure};
use crate::ping::PingPlan;
use record::Measurement;

/// The time beyond its plan after which ping is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// The programs that can ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PingTool {
    /// The ping on PATH (Debian: iputils-ping)
    Ping,
}

/// Pings `target` with the ping on PATH, started by the session's launcher.
pub(crate) fn measure(
    target: IpAddr,
    plan: &PingPlan,
    local: Option<&Local>,
    session: &Session,
) -> Result<Measurement, Failure> {
    let (tool, arguments) = (tool().or_machine()?, arguments(target, plan, local));
    let stop = session.stop.within(plan.longest() + GRACE);
    let launcher = session.launcher();
    let measurement = launcher.measure(&tool, &arguments, &stop, |output| parse(output, plan));
    let stamps = "as the tool measures them, printed with three digits";
    Ok(measurement
        .with_fact("rtt", plan.describe(target))
        .with_fact("timestamps", stamps))
}

/// Returns the ping on PATH.
///
/// # Errors
/// Returns an error if it is not installed.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("ping", "-V", "iputils-ping")
}

fn arguments(target: IpAddr, plan: &PingPlan, local: Option<&Local>) -> Vec<String> {
    let mut arguments = ["-n", "-D", "-O"].map(str::to_owned).to_vec();
    arguments.extend(words(&[
        ("-s", word(plan.size)),
        ("-c", word(plan.count)),
        ("-i", word(plan.interval().as_secs_f64())),
        ("-W", word(plan.timeout().as_secs_f64())),
        ("-Q", plan.tos().and_then(word)),
        ("-t", plan.ttl.and_then(word)),
        ("-I", local.and_then(word)),
    ]));
    arguments.push(target.to_string());
    arguments
}

/// Parses ping's output into samples. Other lines are ignored.
pub(crate) fn parse(output: &ToolOutput, plan: &PingPlan) -> Measurement {
    // Without its closing statistics, ping failed to start or was killed.
    let Some(sent) = output.texts().find_map(transmitted) else {
        return Measurement::failed(output.exit_message("ping"));
    };
    let mut wraps = SequenceNumbers::default();
    let answers: Vec<EchoReply> = output
        .texts()
        .filter_map(EchoReply::parse)
        .map(|one| one.unwrapped(&mut wraps))
        .collect();
    let mut tally = EchoStats::new(plan.timeout());
    let times = sending_times(&answers, sent.min(u64::from(plan.count)), plan.interval());
    times.iter().for_each(|at_s| tally.sent(*at_s));
    for answer in &answers {
        tally.answered(answer.number, answer.rtt_ms);
    }
    let measurement = tally.finish(None);
    match times.as_slice() {
        [first, .., last] => measurement.with_fact("schedule", schedule(sent, last - first, plan)),
        _ => measurement,
    }
}

/// Returns when requests left, in seconds since the first one. The time of an answered request is the timestamp of its
/// answer minus the round trip. Any other request is assumed to leave an interval after the previous one.
fn sending_times(answers: &[EchoReply], sent: u64, interval: Duration) -> Vec<f64> {
    let mut known: BTreeMap<u64, f64> = BTreeMap::new();
    for answer in answers {
        if let Some(left) = answer.left_s() {
            known.entry(answer.number).or_insert(left);
        }
    }
    let interval_s = interval.as_secs_f64();
    let first = known.first_key_value();
    // An unanswered first request is assumed to have left that number of intervals before the first answered one.
    let began = first.map_or(0.0, |(number, left)| {
        left - interval_s * number.saturating_sub(1) as f64
    });
    let mut times: Vec<f64> = Vec::new();
    for number in 1..=sent {
        let after = times.last().map_or(0.0, |before| before + interval_s);
        let left = known.get(&number).map(|left| left - began);
        // The timestamps are those of the wall clock, which may be set back.
        let before = times.last().copied().unwrap_or(0.0);
        let left = left.filter(|left| left.is_finite() && *left >= before);
        times.push(left.unwrap_or(after));
    }
    times
}

/// Returns a text which states how long the requests took and that the schedule cannot be judged.
fn schedule(sent: u64, took_s: f64, plan: &PingPlan) -> String {
    let asked_s = plan.interval().as_secs_f64() * (sent - 1) as f64;
    format!(
        "none: ping waits at least the interval after each request, so {sent} requests took {took_s:.3} s, and the intervals \
         alone are {asked_s:.3} s; whether ping kept up cannot be judged"
    )
}

/// An answer, such as `[1795291848.6] 1208 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.907 ms`.
struct EchoReply {
    /// Arrival time in seconds since 1970.
    at_s: Option<f64>,
    /// The sequence number, which continues beyond 65535 once it is unwrapped.
    number: u64,
    rtt_ms: f64,
}

impl EchoReply {
    fn parse(line: &str) -> Option<Self> {
        if !line.contains(" bytes from ") {
            return None;
        }
        let stamp = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let at_s = stamp.and_then(|(stamp, _)| stamp.parse().ok());
        let number: u16 = field(line, "icmp_seq=")?.parse().ok()?;
        let rtt_ms: f64 = field(line, "time=")?.parse().ok()?;
        (rtt_ms.is_finite() && rtt_ms >= 0.0).then_some(Self {
            at_s: at_s.filter(|at_s: &f64| at_s.is_finite()),
            number: number.into(),
            rtt_ms,
        })
    }

    fn unwrapped(self, numbers: &mut SequenceNumbers) -> Self {
        let number = numbers.unwrap(self.number);
        Self { number, ..self }
    }

    /// Returns when the request left, in seconds since 1970.
    fn left_s(&self) -> Option<f64> {
        Some(self.at_s? - self.rtt_ms / 1e3)
    }
}

/// Returns the number of packets sent from a line such as
/// `3 packets transmitted, 3 received, 0% packet loss, time 201ms`.
fn transmitted(line: &str) -> Option<u64> {
    let (count, _) = line.split_once(" packets transmitted, ")?;
    count.trim().parse().ok()
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

/// Unwraps the 16-bit sequence numbers that ping prints.
#[derive(Default)]
struct SequenceNumbers {
    highest: u64,
}

impl SequenceNumbers {
    fn unwrap(&mut self, sequence: u64) -> u64 {
        const TURN: u64 = 1 << 16;
        let mut number = self.highest / TURN * TURN + sequence;
        if number + TURN / 2 < self.highest {
            number += TURN;
        } else if number > self.highest + TURN / 2 {
            number = number.saturating_sub(TURN);
        }
        self.highest = self.highest.max(number);
        number
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::external::tests::captured;
    use crate::fuzzing::tools::PING as PLAN;
    use record::{Metric, Statistic};

    /// Output of iputils 20221126.
    pub(crate) const ANSWERED: &str = "\
PING 127.0.0.1 (127.0.0.1) 1200(1228) bytes of data.
[1795291848.603981] 1208 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.907 ms
[1795291848.703278] 1208 bytes from 127.0.0.1: icmp_seq=2 ttl=64 time=0.038 ms
[1795291848.803473] 1208 bytes from 127.0.0.1: icmp_seq=3 ttl=64 time=0.034 ms

--- 127.0.0.1 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 201ms
rtt min/avg/max/mdev = 0.034/0.326/0.907/0.410 ms
";

    /// Output of iputils 20221126 with an unreachable neighbour and a duplicate.
    pub(crate) const TROUBLED: &str = "\
PING 10.77.0.2 (10.77.0.2) 1200(1228) bytes of data.
[1795291848.603981] no answer yet for icmp_seq=1
[1795291848.703278] 1208 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.74 ms
[1795291848.703290] 1208 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.75 ms (DUP!)
From 10.77.0.1 icmp_seq=3 Destination Host Unreachable

--- 10.77.0.2 ping statistics ---
3 packets transmitted, 1 received, +1 duplicates, +1 errors, 66.6667% packet loss, time 201ms
rtt min/avg/max/mdev = 1.740/1.745/1.750/0.005 ms
";

    fn figure(text: &str, metric: Metric, statistic: Statistic) -> f64 {
        let measurement = parse(&captured(text, 0), &PLAN);
        measurement.figure(metric, statistic).unwrap()
    }

    fn total(text: &str, metric: Metric) -> f64 {
        figure(text, metric, Statistic::Total)
    }

    #[test]
    fn answers_give_the_figures_of_ping() {
        assert_eq!(total(ANSWERED, Metric::SentPackets), 3.0);
        assert_eq!(total(ANSWERED, Metric::ReceivedPackets), 3.0);
        let rtt = |statistic| figure(ANSWERED, Metric::RttMs, statistic);
        assert!((rtt(Statistic::Mean) - 0.326).abs() < 0.001);
        assert!((rtt(Statistic::Mdev) - 0.410).abs() < 0.001);
    }

    #[test]
    fn requests_left_a_round_trip_before_their_answers() {
        let sent_at = |text: &str| {
            let samples = parse(&captured(text, 0), &PLAN).samples;
            let at: Vec<String> = samples.iter().map(|s| format!("{:.4}", s.at_s)).collect();
            at
        };
        assert_eq!(sent_at(ANSWERED), ["0.0000", "0.1002", "0.2004"]);
        // Without timestamps, only the interval is known.
        let bare = ANSWERED
            .replace("[1795291848.", "[")
            .replace("[603981] ", "")
            .replace("[703278] ", "");
        assert_eq!(
            sent_at(&bare.replace("[803473] ", "")),
            ["0.0000", "0.1000", "0.2000"]
        );
        let facts = parse(&captured(ANSWERED, 0), &PLAN).facts;
        let schedule = &facts["schedule"];
        assert!(
            schedule.contains("3 requests took 0.200 s, and the intervals alone are 0.200 s"),
            "{schedule}"
        );
    }

    #[test]
    fn loss_and_duplicates_are_counted_separately() {
        assert_eq!(total(TROUBLED, Metric::SentPackets), 3.0);
        assert_eq!(total(TROUBLED, Metric::ReceivedPackets), 1.0);
        assert_eq!(total(TROUBLED, Metric::DuplicatePackets), 1.0);
    }

    #[test]
    fn a_ping_that_could_not_start_states_the_cause() {
        let output = captured("ping: connect: Network is unreachable\n", 2);
        let cause = parse(&output, &PLAN).failure.unwrap();
        assert!(cause.contains("Network is unreachable"), "{cause}");
    }

    #[test]
    fn garbage_is_ignored() {
        for garbage in [
            "",
            "bytes from",
            "9 bytes from x: icmp_seq=99999 time=1 ms",
            "9 bytes from x: icmp_seq=1 time=NaN ms",
            "99999999999999999999 packets transmitted, ",
            "\u{0}\u{fffd} packets transmitted, \n1 packets transmitted, 9 bytes from icmp_seq= time=",
        ] {
            let _ = parse(&captured(garbage, 0), &PLAN);
        }
    }

    #[test]
    fn sequence_numbers_continue_after_65535() {
        let mut numbers = SequenceNumbers { highest: 65_533 };
        let unwrapped = [65_534, 65_535, 1, 0, 2].map(|n| numbers.unwrap(n));
        assert_eq!(unwrapped, [65_534, 65_535, 65_537, 65_536, 65_538]);
    }
}
