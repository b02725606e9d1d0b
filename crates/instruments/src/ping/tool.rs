//! The system's own ping (iputils) as an instrument, its output parsed into the same samples.

use crate::error::Result;
use std::net::IpAddr;

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::echo_stats::EchoStats;
use crate::endpoint::Local;
use crate::external::{Tool, ToolOutput, word, words};
use crate::failure::{Blame, Failure};
use crate::ping::PingPlan;
use record::Measurement;

/// What ping may take beyond its plan before it is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// What pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PingTool {
    /// The ping on PATH (Debian: iputils-ping)
    Ping,
}

/// Pings `target` with the ping on PATH, run by `launcher`.
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
    let stamps = "as the tool takes them, printed with three digits";
    Ok(measurement
        .with_fact("rtt", plan.describe(target))
        .with_fact("timestamps", stamps))
}

/// The ping on PATH.
///
/// # Errors
/// It is not there.
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

/// What ping said, as samples; lines that it did not mean for us are passed over.
pub(crate) fn parse(output: &ToolOutput, plan: &PingPlan) -> Measurement {
    // Without its closing statistics ping never came to ping, or was killed.
    let Some(sent) = output.texts().find_map(transmitted) else {
        return Measurement::failed(output.ending("ping"));
    };
    let mut tally = EchoStats::new(plan.timeout());
    // ping states when answers came, not when requests left: the schedule stands for that.
    for probe in 0..sent.min(u64::from(plan.count)) {
        tally.sent(plan.interval().as_secs_f64() * probe as f64);
    }
    let mut wraps = SequenceNumbers::default();
    for (sequence, rtt_ms) in output.texts().filter_map(answer) {
        tally.answered(wraps.unwrap(sequence), rtt_ms);
    }
    tally.finish(None)
}

/// `[1795291848.6] 1208 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.907 ms`: sequence and time.
fn answer(line: &str) -> Option<(u16, f64)> {
    if !line.contains(" bytes from ") {
        return None;
    }
    let sequence = field(line, "icmp_seq=")?.parse().ok()?;
    let rtt_ms: f64 = field(line, "time=")?.parse().ok()?;
    (rtt_ms.is_finite() && rtt_ms >= 0.0).then_some((sequence, rtt_ms))
}

/// `3 packets transmitted, 3 received, 0% packet loss, time 201ms`: the first number.
fn transmitted(line: &str) -> Option<u64> {
    let (count, _) = line.split_once(" packets transmitted, ")?;
    count.trim().parse().ok()
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

/// ping prints sequence numbers of 16 bits; these make them count on.
#[derive(Default)]
struct SequenceNumbers {
    highest: u64,
}

impl SequenceNumbers {
    fn unwrap(&mut self, sequence: u16) -> u64 {
        const TURN: u64 = 1 << 16;
        let mut number = self.highest / TURN * TURN + u64::from(sequence);
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

    /// iputils 20221126.
    pub(crate) const ANSWERED: &str = "\
PING 127.0.0.1 (127.0.0.1) 1200(1228) bytes of data.
[1795291848.603981] 1208 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.907 ms
[1795291848.703278] 1208 bytes from 127.0.0.1: icmp_seq=2 ttl=64 time=0.038 ms
[1795291848.803473] 1208 bytes from 127.0.0.1: icmp_seq=3 ttl=64 time=0.034 ms

--- 127.0.0.1 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 201ms
rtt min/avg/max/mdev = 0.034/0.326/0.907/0.410 ms
";

    /// iputils 20221126, a neighbour that does not answer and a duplicate.
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
    fn answers_become_samples_that_give_pings_own_figures() {
        assert_eq!(total(ANSWERED, Metric::SentPackets), 3.0);
        assert_eq!(total(ANSWERED, Metric::ReceivedPackets), 3.0);
        let rtt = |statistic| figure(ANSWERED, Metric::RttMs, statistic);
        assert!((rtt(Statistic::Mean) - 0.326).abs() < 0.001);
        assert!((rtt(Statistic::Mdev) - 0.410).abs() < 0.001);
    }

    #[test]
    fn loss_and_duplicates_are_counted_apart() {
        assert_eq!(total(TROUBLED, Metric::SentPackets), 3.0);
        assert_eq!(total(TROUBLED, Metric::ReceivedPackets), 1.0);
        assert_eq!(total(TROUBLED, Metric::DuplicatePackets), 1.0);
    }

    #[test]
    fn a_ping_that_could_not_start_says_why() {
        let output = captured("ping: connect: Network is unreachable\n", 2);
        let cause = parse(&output, &PLAN).failure.unwrap();
        assert!(cause.contains("Network is unreachable"), "{cause}");
    }

    #[test]
    fn garbage_is_passed_over() {
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
    fn sequence_numbers_count_on_after_65535() {
        let mut numbers = SequenceNumbers { highest: 65_533 };
        let unwrapped = [65_534, 65_535, 1, 0, 2].map(|n| numbers.unwrap(n));
        assert_eq!(unwrapped, [65_534, 65_535, 65_537, 65_536, 65_538]);
    }
}
