//! Which figures are held against what.

use std::fmt;

use anyhow::Result;

use crate::link::Run;

/// An instrument as it is run, and the figures of it that are checked.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// After `farwire measure`.
    pub(crate) arguments: &'static str,
    pub(crate) checks: &'static [Check],
}

/// One figure and the truth of it.
pub(crate) struct Check {
    metric: &'static str,
    statistic: &'static str,
    direction: Option<&'static str>,
    truth: fn(&Run) -> Result<f64>,
}

/// How a figure did over all runs.
pub(crate) struct Verdict {
    /// In how many runs its interval held the truth.
    pub(crate) held: usize,
    runs: usize,
    /// Medians over the runs: the truth, how far the value lay from it, how wide the interval was.
    truth: f64,
    deviation: f64,
    width: f64,
}

const fn check(
    metric: &'static str,
    statistic: &'static str,
    direction: Option<&'static str>,
    truth: fn(&Run) -> Result<f64>,
) -> Check {
    Check {
        metric,
        statistic,
        direction,
        truth,
    }
}

const UP: Option<&str> = Some("up");
const DOWN: Option<&str> = Some("down");

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "ping",
        arguments: "ping 10.77.0.2 -c 400 -i 5ms",
        checks: &[
            check("rtt_ms", "median", None, |run| {
                Ok(run.one_way_ms(run.mean_frame("up")) + run.one_way_ms(run.mean_frame("down")))
            }),
            // An echo is lost if either its request or its answer is.
            check("lost_percent", "mean", None, |run| {
                let lost = run.dropped("up", "loss") + run.dropped("down", "loss");
                Ok(100.0 * lost / run.counted("up", "packets"))
            }),
        ],
    },
    Case {
        name: "probe",
        arguments: "probe 10.77.0.2 -c 1000 -i 2ms",
        checks: &[
            check("one_way_delay_ms", "median", UP, |run| {
                Ok(run.one_way_ms(run.mean_frame("up")))
            }),
            check("one_way_delay_ms", "median", DOWN, |run| {
                Ok(run.one_way_ms(run.mean_frame("down")))
            }),
            check("lost_percent", "mean", UP, |run| Ok(run.lost_percent("up"))),
            check("lost_percent", "mean", DOWN, |run| {
                Ok(run.lost_percent("down"))
            }),
        ],
    },
    Case {
        name: "pingpong",
        arguments: "pingpong 10.77.0.2 --size 64 --count 20 --runs 2",
        checks: &[check("rtt_ms", "median", None, |run| {
            // Ethernet, IPv4, TCP with timestamps, and the message, each way.
            const FRAME: f64 = 14.0 + 20.0 + 32.0 + 64.0;
            Ok(2.0 * run.one_way_ms(FRAME))
        })],
    },
    Case {
        name: "udp",
        arguments: "udp 10.77.0.2 -b 10M -l 1200 -t 3",
        checks: &[
            check("lost_percent", "mean", UP, |run| Ok(run.lost_percent("up"))),
            check("goodput_bit_per_s", "mean", UP, |run| {
                // Datagrams of 1,200 bytes behind 42 of headers: no packet of the control connection is as long.
                let datagrams = run.delivered_of_length("up", 1200.0 + 42.0)?;
                Ok(datagrams as f64 * 1200.0 * 8.0 / run.value("elapsed_s", "total", UP)?)
            }),
        ],
    },
    Case {
        name: "tcp",
        arguments: "tcp 10.77.0.2 -t 4 -C cubic",
        checks: &[check("goodput_bit_per_s", "mean", UP, |run| {
            let seconds = run.value("elapsed_s", "total", UP)?;
            Ok(run.tcp_payload_bytes("up") * 8.0 / seconds)
        })],
    },
    Case {
        name: "http",
        arguments: "http http://10.77.0.2/bytes/4000000",
        checks: &[check("goodput_bit_per_s", "mean", None, |run| {
            let seconds = run.value("elapsed_s", "total", None)?;
            Ok(run.tcp_payload_bytes("down") * 8.0 / seconds)
        })],
    },
    Case {
        name: "blast",
        arguments: "blast 10.77.0.2 --size 10000 --count 50 --runs 4",
        checks: &[check("goodput_bit_per_s", "mean", UP, |run| {
            goodput_of_runs(run, run.value("elapsed_s", "mean", None)?)
        })],
    },
    Case {
        name: "transfer",
        arguments: "transfer 10.77.0.2 --bytes 500kb --block 8192 --runs 4",
        checks: &[check("goodput_bit_per_s", "mean", UP, |run| {
            goodput_of_runs(run, run.value("elapsed_s", "mean", UP)?)
        })],
    },
    Case {
        name: "capacity",
        arguments: "capacity 10.77.0.2 --down -t 5",
        // At the layer of the link's rate: datagrams differ in size.
        checks: &[check("l2_rate_bit_per_s", "max", DOWN, |run| {
            run.rate_of_best_second("down")
        })],
    },
    Case {
        name: "capacity",
        arguments: "capacity 10.77.0.2 --down -t 2 -i 500ms",
        checks: &[check("l2_rate_bit_per_s", "max", DOWN, |run| {
            run.rate_of_best_second("down")
        })],
    },
];

/// What crossed the link in four connections of `mean_s` each.
fn goodput_of_runs(run: &Run, mean_s: f64) -> Result<f64> {
    const RUNS: f64 = 4.0;
    Ok(run.tcp_payload_bytes("up") * 8.0 / (RUNS * mean_s))
}

impl Check {
    pub(crate) fn title(&self) -> String {
        let way = self.direction.unwrap_or("");
        format!("{} {} {way}", self.metric, self.statistic)
    }

    /// Holds the figure of every run against its truth.
    pub(crate) fn of(&self, runs: &[Run]) -> Result<Verdict> {
        let (mut truths, mut deviations, mut widths) = (Vec::new(), Vec::new(), Vec::new());
        let mut held = 0;
        for run in runs {
            let truth = (self.truth)(run)?;
            let (value, [low, high]) = run.figure(self.metric, self.statistic, self.direction)?;
            held += usize::from((low..=high).contains(&truth));
            truths.push(truth);
            deviations.push(value - truth);
            widths.push(high - low);
        }
        Ok(Verdict {
            held,
            runs: runs.len(),
            truth: median(truths),
            deviation: median(deviations),
            width: median(widths),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            held,
            runs,
            truth,
            deviation,
            width,
        } = self;
        write!(
            f,
            "{held:>4}/{runs:<3} {truth:>14.4} {deviation:>+14.4} {width:>14.4}"
        )
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
