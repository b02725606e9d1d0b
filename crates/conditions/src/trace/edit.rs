//! Traces made from other traces: a part of one, scaled, with fewer columns, or as rates in place of opportunities.

use model::{BitsPerSec, LIGHT_OPPORTUNITY, Nanos, OPPORTUNITY};

use super::{Builder, Columns, Line, SHORTEST_STEP, Trace, TraceError};

/// A full packet in bits.
const PACKET_BITS: u128 = OPPORTUNITY.0 as u128 * 8;
/// The bits of an opportunity of a full load beside a light one.
const LIGHT_BITS: u128 = LIGHT_OPPORTUNITY.0 as u128 * 8;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// The most lines that a change of a trace makes.
const MOST_LINES: u64 = 100_000_000;

/// Factors of the values of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor of all rates, and of the number of opportunities.
    pub rate: f64,
    /// The factor of all delays and jitters.
    pub delay: f64,
    /// The factor of all times: 2 makes the trace twice as long.
    pub time: f64,
}

impl Trace {
    /// Returns the part from a time to another one. The conditions in force at `from`, or up to 10 us later, are those of its
    /// first line; of
    /// opportunities, the last one within the part is its length.
    ///
    /// # Errors
    /// Returns an error for a part that is empty or lies outside.
    pub fn part(&self, from: Nanos, to: Nanos) -> Result<Self, TraceError> {
        let length = self.length();
        if from >= to || to > length {
            return Err(TraceError::whole(format_args!(
                "there is no part from {from} to {to}: the trace lasts {length}"
            )));
        }
        if self.has_opportunities() {
            let times = self.opportunities();
            let within = times.filter(|at| (from..=to).contains(at));
            return of_opportunities(within.map(|at| at - from));
        }
        let mut builder = Builder::new(self.columns);
        let mut first = None;
        for line in self.steps().take_while(|line| line.at < to) {
            if line.at < from + SHORTEST_STEP {
                first = Some(line);
                continue;
            }
            if let Some(first) = first.take() {
                begin(&mut builder, first)?;
            }
            let at = line.at - from;
            builder.step(0, Line { at, ..line })?;
        }
        if let Some(first) = first {
            begin(&mut builder, first)?;
        }
        builder.finish(0, Some(to - from))
    }

    /// Returns it with all values multiplied by factors.
    ///
    /// # Errors
    /// Returns an error for values that no link can have.
    pub fn scaled(&self, by: Scale) -> Result<Self, TraceError> {
        let time = |at: Nanos| times(at.0, by.time).map(Nanos);
        if self.has_opportunities() {
            let mut builder = Builder::new(Columns::default());
            for (index, at) in (0_u64..).zip(self.opportunities()) {
                let at = time(at)?;
                let (before, now) = (times(index, by.rate)?, times(index + 1, by.rate)?);
                for _ in before..now {
                    check_lines(builder.lines())?;
                    builder.opportunity(0, at)?;
                }
            }
            return builder.finish(0, None);
        }
        let mut builder = Builder::new(self.columns);
        for line in self.steps() {
            let is_limited = line.rate != Line::UNLIMITED;
            let rate = if is_limited {
                times(line.rate, by.rate)?.max(u64::from(line.rate > 0))
            } else {
                line.rate
            };
            let line = Line {
                at: time(line.at)?,
                rate,
                delay: Nanos(times(line.delay.0, by.delay)?),
                jitter: Nanos(times(line.jitter.0, by.delay)?),
                ..line
            };
            builder.step(0, line)?;
        }
        builder.finish(0, Some(time(self.length())?))
    }

    /// Returns it with the conditions of `columns` only. Its opportunities, which are no column, do not stay beside conditions by time.
    ///
    /// # Errors
    /// Returns an error if it states none of them.
    pub fn only(&self, columns: Columns) -> Result<Self, TraceError> {
        if let Some(steps) = self.steps_alone().filter(|_| self.has_opportunities()) {
            return steps.only(columns);
        }
        let own = self.columns;
        let kept = Columns {
            rate: own.rate && columns.rate,
            delay: own.delay && columns.delay,
            jitter: own.jitter && columns.jitter,
            loss: own.loss && columns.loss,
            queue: own.queue && columns.queue && columns.rate,
            duplicate: own.duplicate && columns.duplicate,
        };
        if kept.is_empty() || self.has_opportunities() {
            return Err(TraceError::whole("the trace has none of these columns"));
        }
        let mut builder = Builder::new(kept);
        let mut before: Option<Line> = None;
        for line in self.steps() {
            let line = line.with_only(kept);
            let is_new = before.is_none_or(|before| {
                Line {
                    at: line.at,
                    ..before
                } != line
            });
            if is_new {
                builder.step(0, line)?;
            }
            before = Some(line);
        }
        builder.finish(0, Some(self.length()))
    }

    /// Returns the rate of its opportunities in each interval, as a table. An interval without an opportunity stalls.
    ///
    /// # Errors
    /// Returns an error for an interval below [`SHORTEST_STEP`], and if it has no opportunities.
    pub fn to_rates(&self, every: Nanos) -> Result<Self, TraceError> {
        if every < SHORTEST_STEP {
            return Err(TraceError::whole(format_args!(
                "an interval of {every} is too short: at least {SHORTEST_STEP}"
            )));
        }
        let length = self.length();
        check_lines(length.0 / every.0)?;
        let mut builder = Builder::new(Columns {
            rate: true,
            ..Columns::default()
        });
        let mut times = self.opportunities().peekable();
        let mut at = Nanos::ZERO;
        let mut before = None;
        while at < length {
            let end = (at + every).min(length);
            let mut packets = 0_u128;
            // An opportunity at the end of the trace belongs to its last interval.
            while times.next_if(|time| *time < end || end == length).is_some() {
                packets += 1;
            }
            let bits = packets * PACKET_BITS * NANOS_PER_SECOND / u128::from((end - at).0);
            let rate = u64::try_from(bits).unwrap_or(u64::MAX - 1);
            if before != Some(rate) && (end - at >= SHORTEST_STEP) {
                let is_stalled = rate == 0;
                builder.step(
                    0,
                    Line {
                        at,
                        rate,
                        is_stalled,
                        ..Line::default()
                    },
                )?;
            }
            before = Some(rate);
            at = end;
            if rate == 0 {
                // The intervals up to the next opportunity are alike.
                let Some(next) = times.peek() else { break };
                let next = next.0.min(length.0 - 1);
                at = at.max(Nanos(next / every.0 * every.0));
            }
        }
        builder.finish(0, Some(length))
    }

    /// Returns the times, in whole milliseconds, at which its rate has served one more full packet.
    ///
    /// # Errors
    /// Returns an error if it has other columns than a rate, a time without a limit, or too high a rate.
    pub fn to_opportunities(&self) -> Result<Self, TraceError> {
        if !self.has_only_rates() {
            return Err(TraceError::whole(
                "a trace of delivery opportunities has no delay, no loss and no queue: keep the rate alone with --only rate",
            ));
        }
        let builder = self.served(PACKET_BITS, MILLISECOND)?;
        builder.finish(0, None)
    }

    /// Returns the times at which its rate has served as much as one more opportunity of a full load beside a light one. They
    /// repeat after its own length.
    ///
    /// # Errors
    /// Returns an error if it has other columns than a rate, a time without a limit, or too high a rate.
    pub(crate) fn to_light_opportunities(&self) -> Result<Self, TraceError> {
        if !self.has_only_rates() {
            return Err(TraceError::whole(
                "a light load is beside times at which packets are served, or beside rates alone: leave the other columns out",
            ));
        }
        let builder = self.served(LIGHT_BITS, 1)?;
        builder.finish(0, Some(self.length()))
    }

    fn has_only_rates(&self) -> bool {
        self.columns
            == Columns {
                rate: true,
                ..Columns::default()
            }
    }

    /// Returns the times, in multiples of `step` nanoseconds, at which its rate has served `packet_bits` more.
    fn served(&self, packet_bits: u128, step: u64) -> Result<Builder, TraceError> {
        if self.extremes.is_unlimited {
            return Err(TraceError::whole(
                "a time without a limit has no opportunities: write a rate in each line",
            ));
        }
        let mut builder = Builder::new(Columns::default());
        // In bits times nanoseconds per second, so that no rounding adds up.
        let (packet, mut served) = (packet_bits * NANOS_PER_SECOND, 0_u128);
        let mut lines = self.steps().peekable();
        while let Some(line) = lines.next() {
            let end = lines.peek().map_or(self.length(), |next| next.at);
            let Some(rate) = line.served().map(BitsPerSec::get).map(u128::from) else {
                continue;
            };
            let mut at = line.at;
            loop {
                let left = packet - served;
                let takes = left.div_ceil(rate);
                if u128::from((end - at).0) < takes {
                    served += u128::from((end - at).0) * rate;
                    break;
                }
                served = served + takes * rate - packet;
                at += Nanos(u64::try_from(takes).unwrap_or(u64::MAX));
                check_lines(builder.lines())?;
                builder.opportunity(0, Nanos(at.0.div_ceil(step) * step))?;
            }
        }
        Ok(builder)
    }
}

impl Line {
    /// Returns it with the conditions of `columns` only.
    fn with_only(self, columns: Columns) -> Self {
        let nothing = Self::default();
        let rate = if columns.rate { self } else { nothing };
        let copies = if columns.duplicate { self } else { nothing };
        let choose = |is_there: bool, own, none| if is_there { own } else { none };
        Self {
            at: self.at,
            rate: rate.rate,
            is_stalled: rate.is_stalled,
            delay: choose(columns.delay, self.delay, Nanos::ZERO),
            jitter: choose(columns.jitter, self.jitter, Nanos::ZERO),
            loss: if columns.loss {
                self.loss
            } else {
                nothing.loss
            },
            queue: if columns.queue { self.queue } else { 0 },
            copies: copies.copies,
            copies_after: copies.copies_after,
        }
    }
}

fn begin(builder: &mut Builder, first: Line) -> Result<(), TraceError> {
    let at = Nanos::ZERO;
    builder.step(0, Line { at, ..first })
}

fn of_opportunities(times: impl Iterator<Item = Nanos>) -> Result<Trace, TraceError> {
    let mut builder = Builder::new(Columns::default());
    for at in times {
        builder.opportunity(0, at)?;
    }
    builder.finish(0, None)
}

fn check_lines(lines: u64) -> Result<(), TraceError> {
    if lines < MOST_LINES {
        return Ok(());
    }
    Err(TraceError::whole(format_args!(
        "the result would have more than {MOST_LINES} lines"
    )))
}

/// Returns a value multiplied by a factor, rounded to the nearest whole number.
fn times(value: u64, factor: f64) -> Result<u64, TraceError> {
    let product = (value as f64 * factor).round();
    if (0.0..9e18).contains(&product) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is a whole number that fits"
        )]
        let product = product as u64;
        return Ok(product);
    }
    Err(TraceError::whole(format_args!(
        "{value} times {factor} is out of range: write a factor above 0"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::formats::tests::{trace, written};
    use super::super::{TraceFormat, write};
    use super::*;

    const TABLE: &str =
        "t,rate,delay\n0s,12.032mbit,20ms\n1s,0bit,\n2s,6.016mbit,30ms\n3s,,40ms\n4s,,\n";

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    #[test]
    fn a_part_begins_with_the_conditions_in_force() {
        let part = trace(TABLE).part(ms(1_500), ms(3_500)).unwrap();
        assert_eq!(
            written(&part, TraceFormat::Csv),
            "t,rate,delay\n0ms,0bit,20ms\n500ms,6.016mbit,30ms\n1.5s,6.016mbit,40ms\n2s,,\n"
        );
        let within = trace(TABLE).part(ms(2_100), ms(2_200)).unwrap();
        assert_eq!(
            written(&within, TraceFormat::Csv),
            "t,rate,delay\n0ms,6.016mbit,30ms\n100ms,,\n"
        );
        let times = trace("5\n10\n20\n30\n").part(ms(10), ms(25)).unwrap();
        assert_eq!(written(&times, TraceFormat::Mahimahi), "0\n10\n");
        let error = trace(TABLE).part(ms(2), ms(5_000)).unwrap_err();
        assert!(error.to_string().ends_with("the trace lasts 4s"), "{error}");
    }

    #[test]
    fn factors_apply_to_rates_delays_and_times() {
        let by = Scale {
            rate: 0.5,
            delay: 2.0,
            time: 10.0,
        };
        let scaled = trace(TABLE).scaled(by).unwrap();
        assert!(
            written(&scaled, TraceFormat::Csv)
                .starts_with("t,rate,delay\n0ms,6.016mbit,40ms\n10s,0bit,40ms\n")
        );
        assert_eq!(scaled.length(), ms(40_000));
        let times = trace("1\n2\n3\n4\n").scaled(by).unwrap();
        let rounded: Vec<u64> = times.opportunities().map(|at| at.0 / MILLISECOND).collect();
        assert_eq!(rounded, [10, 30]);
        let more = Scale { rate: 3.0, ..by };
        let times = trace("1\n2\n").scaled(more).unwrap();
        assert_eq!(
            written(&times, TraceFormat::Mahimahi),
            "10\n10\n10\n20\n20\n20\n"
        );
    }

    #[test]
    fn rates_and_opportunities_are_converted_to_each_other() {
        let rate = trace("t,rate\n0s,12.032mbit\n2s,0bit\n3s,6.016mbit\n4s,\n");
        let times = rate.to_opportunities().unwrap();
        // 12.032 Mbit/s are a packet of 1,504 bytes each millisecond.
        let all: Vec<u64> = times.opportunities().map(|at| at.0 / MILLISECOND).collect();
        assert_eq!(all.len(), 2_000 + 500);
        assert_eq!(
            (all[0], all[1_999], all[2_000], all[2_499]),
            (1, 2_000, 3_002, 4_000)
        );
        let back = times.to_rates(ms(1_000)).unwrap();
        assert_eq!(
            written(&back, TraceFormat::Csv),
            "t,rate\n0ms,12.019968mbit\n1s,12.032mbit\n2s,12.032kbit\n3s,6.016mbit\n4s,\n"
        );
        let sparse = trace("3333\n4444444433\n").to_rates(ms(100)).unwrap();
        assert_eq!(
            written(&sparse, TraceFormat::Csv),
            "t,rate\n0ms,0bit\n3.3s,120.32kbit\n3.4s,0bit\n4444444.4s,364.606kbit\n4444444.433s,\n"
        );
        let error = trace(TABLE).to_opportunities().unwrap_err().to_string();
        assert!(error.ends_with("with --only rate"), "{error}");
        let only = Columns {
            rate: true,
            ..Columns::default()
        };
        let alone = trace(TABLE).only(only).unwrap();
        assert_eq!(
            written(&alone, TraceFormat::Csv),
            "t,rate\n0ms,12.032mbit\n1s,0bit\n2s,6.016mbit\n4s,\n"
        );
        assert!(alone.to_opportunities().is_ok());
        let mut nowhere = Vec::new();
        let refused = write(&times, TraceFormat::Csv, &mut nowhere).unwrap_err();
        assert!(refused.to_string().contains("a table has a rate"));
    }
}
