//! Figures that describe a trace.

use hdrhistogram::Histogram;
use model::{Nanos, OPPORTUNITY_WINDOW};
use serde::Serialize;

use super::{Builder, Columns, Line, SHORTEST_STEP, Trace, TraceError};

/// The interval over which the rate of opportunities is counted, and the shortest gap between two that is a stall.
pub const WINDOW: Nanos = OPPORTUNITY_WINDOW;

/// The number of values of the picture.
const PICTURE: usize = 60;

/// Figures that describe a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    /// The number of its lines.
    pub lines: u64,
    /// Its length in seconds.
    pub length_s: f64,
    /// Its rate in bit/s. That of opportunities is counted in windows of 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<Spread>,
    /// Its delay in ms; that of a light load is the delay of its trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Spread>,
    /// The spread of its jitter in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<Spread>,
    /// Its loss in per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<Spread>,
    /// Its stalls, if it has a rate: times with a rate of 0, or of at least 100 ms without an opportunity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// The averages of the rate, or else of the delay or the loss, in 60 intervals of equal length.
    pub picture: Vec<f64>,
}

/// The distribution of a condition over the time of a trace. Quantiles are exact to three digits.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The least value.
    pub least: f64,
    /// The quantile of 5 %.
    pub p5: f64,
    /// The median.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The quantile of 95 %.
    pub p95: f64,
    /// The greatest value.
    pub greatest: f64,
}

/// The stalls of a trace.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Stalls {
    /// Their number.
    pub count: u64,
    /// The length of the longest, in seconds.
    pub longest_s: f64,
    /// The sum of their lengths, in seconds.
    pub total_s: f64,
}

impl Trace {
    /// Returns figures that describe it.
    ///
    /// # Errors
    /// Returns an error if the lines of a long trace cannot be read.
    pub fn describe(&self) -> Result<Described, TraceError> {
        if let Some(rates) = &self.rates {
            return Ok(Described {
                delay_ms: self.describe_light()?,
                ..rates.describe_steps()?
            });
        }
        if self.has_opportunities() {
            let rates = self.to_rates(WINDOW.min(self.length()))?;
            let mut stalls = Stalls::default();
            let mut before = Nanos::ZERO;
            for at in self.opportunities() {
                if at - before >= WINDOW {
                    stalls.add(at - before);
                }
                before = at;
            }
            return Ok(Described {
                lines: self.lines(),
                stalls: Some(stalls),
                delay_ms: match self.steps_alone() {
                    Some(delays) => delays.describe_steps()?.delay_ms,
                    None => self.describe_light()?,
                },
                ..rates.describe_steps()?
            });
        }
        self.describe_steps()
    }

    /// Returns the distribution of the delay of its light load, in ms, each of which holds until the next train.
    fn describe_light(&self) -> Result<Option<Spread>, TraceError> {
        let Some(load) = self.light() else {
            return Ok(None);
        };
        let mut delays = Builder::new(Columns {
            delay: true,
            ..Columns::default()
        });
        for train in load.trains() {
            let is_first = delays.lines() == 0;
            let is_later = train.at >= delays.last() + SHORTEST_STEP;
            // The last train is the end of the load.
            if (is_first || is_later) && train.at < load.length() {
                let line = Line {
                    at: train.at,
                    delay: train.delay,
                    ..Line::default()
                };
                delays.step(0, line)?;
            }
        }
        let delays = delays.finish(0, Some(load.length()))?;
        Ok(delays.describe_steps()?.delay_ms)
    }

    /// Returns each line with the time for which it holds.
    fn spans(&self) -> impl Iterator<Item = (Line, Nanos)> {
        let mut lines = self.steps().peekable();
        std::iter::from_fn(move || {
            let line = lines.next()?;
            let end = lines.peek().map_or(self.length(), |next| next.at);
            Some((line, end - line.at))
        })
    }

    fn describe_steps(&self) -> Result<Described, TraceError> {
        let columns = self.columns;
        let spread = |is_there: bool, unit: f64, of: fn(&Line) -> f64| {
            is_there.then(|| self.spread(unit, of)).transpose()
        };
        let rate = |line: &Line| line.served().map_or(0.0, |rate| rate.get() as f64);
        let pictured: fn(&Line) -> f64 = match (columns.rate, columns.delay) {
            (true, _) => rate,
            (false, true) => |line| line.delay.0 as f64 / 1e6,
            (false, false) => |line| line.loss.percent(),
        };
        Ok(Described {
            lines: self.lines(),
            length_s: seconds(self.length()),
            rate_bit_per_s: spread(columns.rate, 1.0, rate)?,
            delay_ms: spread(columns.delay, 1e-3, |line| line.delay.0 as f64 / 1e6)?,
            jitter_ms: spread(columns.jitter, 1e-3, |line| line.jitter.0 as f64 / 1e6)?,
            loss_percent: spread(columns.loss, 1e-6, |line| line.loss.percent())?,
            stalls: columns.rate.then(|| self.stalls()),
            picture: self.picture(pictured),
        })
    }

    /// Returns the distribution of a value, which is counted in multiples of `unit`.
    fn spread(&self, unit: f64, of: fn(&Line) -> f64) -> Result<Spread, TraceError> {
        let mut counts = Histogram::<u64>::new(3).map_err(TraceError::whole)?;
        let (mut sum, mut time) = (0.0, 0.0);
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for (line, holds) in self.spans() {
            let value = of(&line);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a value that does not fit counts as the greatest"
            )]
            let counted = (value / unit).round() as u64;
            let weight = holds.0.div_ceil(1_000);
            let counted = counted.min(1 << 60);
            counts
                .record_n(counted, weight)
                .map_err(TraceError::whole)?;
            sum += value * seconds(holds);
            time += seconds(holds);
            least = least.min(value);
            greatest = greatest.max(value);
        }
        let quantile = |share| {
            let value = counts.value_at_quantile(share) as f64 * unit;
            value.clamp(least, greatest)
        };
        Ok(Spread {
            least,
            p5: quantile(0.05),
            median: quantile(0.5),
            mean: sum / time,
            p95: quantile(0.95),
            greatest,
        })
    }

    fn stalls(&self) -> Stalls {
        let (mut stalls, mut now) = (Stalls::default(), Nanos::ZERO);
        for (line, holds) in self.spans() {
            if line.is_stalled {
                now += holds;
            } else if now > Nanos::ZERO {
                stalls.add(now);
                now = Nanos::ZERO;
            }
        }
        if now > Nanos::ZERO {
            stalls.add(now);
        }
        stalls
    }

    fn picture(&self, of: fn(&Line) -> f64) -> Vec<f64> {
        let width = self.length().0 as f64 / PICTURE as f64;
        let mut sums = vec![0.0; PICTURE];
        for (line, holds) in self.spans() {
            let (begin, end) = (line.at.0 as f64, (line.at + holds).0 as f64);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is the number of an interval"
            )]
            let first = (begin / width) as usize;
            for (place, sum) in sums.iter_mut().enumerate().skip(first) {
                let from = place as f64 * width;
                if from >= end {
                    break;
                }
                let within = end.min(from + width) - begin.max(from);
                *sum += of(&line) * within.max(0.0) / width;
            }
        }
        sums
    }
}

impl Stalls {
    fn add(&mut self, length: Nanos) {
        self.count += 1;
        self.longest_s = self.longest_s.max(seconds(length));
        self.total_s += seconds(length);
    }
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::formats::tests::trace;

    #[test]
    fn a_table_is_described_by_the_time_that_its_lines_hold() {
        let described =
            trace("t,rate,delay\n0s,10mbit,20ms\n6s,0bit,\n7s,0bit,\n8s,2mbit,60ms\n10s,,\n")
                .describe()
                .unwrap();
        assert_eq!((described.lines, described.length_s), (4, 10.0));
        let rate = described.rate_bit_per_s.unwrap();
        assert_eq!((rate.least, rate.greatest), (0.0, 10e6));
        assert!((rate.mean - 6.4e6).abs() < 1.0, "{rate:?}");
        assert!((rate.median - 10e6).abs() < 1e4, "{rate:?}");
        let delay = described.delay_ms.unwrap();
        assert!((delay.mean - 28.0).abs() < 1e-9 && (delay.p95 - 60.0).abs() < 0.1);
        let stalls = described.stalls.unwrap();
        assert_eq!(
            (stalls.count, stalls.longest_s, stalls.total_s),
            (1, 2.0, 2.0)
        );
        assert_eq!(described.picture.len(), 60);
        assert!((described.picture[0] - 10e6).abs() < 1.0);
        assert!(described.picture[36].abs() < 1.0);
        assert!((described.picture[59] - 2e6).abs() < 1.0);
        assert!(described.jitter_ms.is_none() && described.loss_percent.is_none());
    }

    #[test]
    fn a_light_load_is_described_by_the_delays_of_its_trains() {
        let light = &b"0 20 0\n3000 40 0 1\n4000 99 0\n"[..];
        let load = super::super::read_light(light).unwrap();
        let both = trace("1\n2\n").with_light(load).unwrap();
        let described = both.describe().unwrap();
        let delay = described.delay_ms.unwrap();
        // 20 ms for three seconds and 40 ms for one; the last train is only the end.
        assert_eq!((delay.least, delay.greatest), (20.0, 40.0));
        assert!((delay.mean - 25.0).abs() < 1e-9, "{delay:?}");
        assert_eq!(described.lines, 2);
        assert!(trace("1\n2\n").describe().unwrap().delay_ms.is_none());
    }

    #[test]
    fn opportunities_are_described_by_their_rate() {
        // One packet each ms for a second, and a stall of a second.
        let lines: Vec<String> = (1..=1_000)
            .chain([2_000])
            .map(|ms| ms.to_string())
            .collect();
        let described = trace(&lines.join("\n")).describe().unwrap();
        assert_eq!((described.lines, described.length_s), (1_001, 2.0));
        let rate = described.rate_bit_per_s.unwrap();
        assert!(
            (rate.mean - 1_001.0 * 12_032.0 / 2.0).abs() < 1.0,
            "{rate:?}"
        );
        assert!((rate.greatest - 12.032e6).abs() < 1.0, "{rate:?}");
        let stalls = described.stalls.unwrap();
        assert_eq!((stalls.count, stalls.longest_s), (1, 1.0));
    }
}
