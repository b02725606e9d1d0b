//! Traces: conditions that were recorded or written down line by line, and may have millions of lines.
//!
//! A trace has two parts, and at least one of them: the times at which a bottleneck serves, and conditions by time. A
//! reader of a format passes lines to a [`Builder`], one after the other; they are kept in a few bytes each.

mod describe;
mod edit;
mod formats;
mod line;
mod packed;
mod play;
mod samples;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use model::{LightLoad, LightTrain, Nanos, Probability};

pub use self::describe::{Described, Spread, Stalls, WINDOW};
pub use self::edit::Scale;
pub use self::formats::{TraceFormat, read, read_delays, read_light, read_offsets, write};
pub(crate) use self::formats::{write_light, write_offsets};
pub use self::line::{Columns, Extremes, Line};
pub use self::packed::failed_reads;
use self::packed::{Digest, Packed, Packer, Reader};
pub use self::play::TraceEnd;
pub(crate) use self::play::{Overlay, PlayedSchedule, Segment, StageSteps};
pub use self::samples::{SampleUnit, Samples};

/// The shortest time between two lines of conditions. Each of them costs time when it comes.
pub const SHORTEST_STEP: Nanos = Nanos::from_micros(10);

/// The longest delay, jitter and time before a copy. A longer one is taken for a mistaken unit.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// A trace: the content of one file, or of a pair of files.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The times at which a bottleneck serves a full packet.
    pub(crate) opportunities: Option<Series>,
    /// The light load beside these times, which then are those of a full load.
    pub(crate) light: Option<Light>,
    /// The rates from which these times were computed, if the full load was stated as rates.
    rates: Option<Arc<Self>>,
    /// Conditions by time.
    pub(crate) steps: Option<Series>,
    /// The conditions that its steps state.
    pub columns: Columns,
    /// The extremes of these conditions.
    pub extremes: Extremes,
    /// The first rate above 0, in bit/s.
    pub(crate) first_rate: Option<u64>,
}

/// A light load, and a digest of it.
#[derive(Clone, Debug)]
pub(crate) struct Light {
    pub(crate) load: Arc<LightLoad>,
    digest: u128,
}

/// Lines that have a length, after which they may repeat.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) packed: Arc<Packed>,
    pub(crate) length: Nanos,
    /// A digest of its lines.
    digest: u128,
}

/// An error in a trace, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", place(*.line))]
pub struct TraceError {
    /// The number of the line, from 1; 0 for the whole file.
    pub line: u64,
    /// The problem, and what would be right.
    pub what: String,
}

fn place(line: u64) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

impl TraceError {
    /// Creates an error at a line, from 1.
    pub(crate) fn at(line: u64, what: impl ToString) -> Self {
        Self {
            line,
            what: what.to_string(),
        }
    }

    /// Creates an error about the whole file.
    pub(crate) fn whole(what: impl ToString) -> Self {
        Self::at(0, what)
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::whole(match error.kind() {
            io::ErrorKind::InvalidData => "the file is not text".to_owned(),
            _ => format!("cannot read: {error}"),
        })
    }
}

impl Trace {
    /// Returns the times at which a bottleneck serves a full packet, in order.
    pub fn opportunities(&self) -> impl Iterator<Item = Nanos> {
        let reader = self.opportunities.as_ref().map(Series::reader);
        let lines = reader.as_ref().map_or(0, Reader::lines);
        (0..lines).map_while(move |index| reader.as_ref()?.at(index))
    }

    /// Returns its conditions by time, in order.
    pub fn steps(&self) -> impl Iterator<Item = Line> {
        let reader = self.steps.as_ref().map(Series::reader);
        let lines = reader.as_ref().map_or(0, Reader::lines);
        (0..lines).map_while(move |index| reader.as_ref()?.line(index))
    }

    /// Returns the number of its opportunities and steps, as they were stated.
    pub fn lines(&self) -> u64 {
        if let Some(rates) = &self.rates {
            return rates.lines();
        }
        let parts = [&self.opportunities, &self.steps].into_iter().flatten();
        parts.map(|part| part.packed.lines()).sum()
    }

    /// Returns the length of its opportunities, or else of its steps.
    pub fn length(&self) -> Nanos {
        let parts = [&self.opportunities, &self.steps];
        let first = parts.into_iter().flatten().next();
        first.map_or(Nanos::ZERO, |part| part.length)
    }

    /// Returns the length of its longest part.
    pub fn length_of_all(&self) -> Nanos {
        let light = self.light().map_or(Nanos::ZERO, LightLoad::length);
        let steps = self.length_of_steps().unwrap_or_default();
        self.length().max(steps).max(light)
    }

    /// Returns the length of its steps, if it has any.
    pub fn length_of_steps(&self) -> Option<Nanos> {
        self.steps.as_ref().map(|steps| steps.length)
    }

    /// Returns whether it has times at which a bottleneck serves.
    pub fn has_opportunities(&self) -> bool {
        self.opportunities.is_some()
    }

    /// Returns the format that expresses all of it, unless it has two parts.
    pub fn native_format(&self) -> TraceFormat {
        match self.opportunities {
            Some(_) => TraceFormat::Mahimahi,
            None => TraceFormat::Csv,
        }
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let parts = [&self.opportunities, &self.steps].into_iter().flatten();
        let light = self.light.as_ref().map_or(0, Light::memory);
        let rates = self.rates.as_ref().map_or(0, |rates| rates.memory());
        size_of::<Self>() + light + rates + parts.map(|part| part.packed.memory()).sum::<usize>()
    }

    /// Keeps it for the rest of the process, and returns the name by which this process finds it again.
    pub fn keep(self: Arc<Self>) -> String {
        let name = self.digest();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(name.clone()).or_insert(self);
        name
    }

    /// Returns the trace that was kept under a name.
    pub(crate) fn kept(name: &str) -> Option<Arc<Self>> {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name).cloned()
    }

    /// Returns a digest of its content, in 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("{:032x}", self.content_digest())
    }

    fn content_digest(&self) -> u128 {
        let of = |part: &Option<Series>| {
            let part = part.as_ref();
            part.map_or(0, |part| {
                part.digest ^ u128::from(part.length.0).rotate_left(64)
            })
        };
        let of_opportunities = of(&self.opportunities).rotate_left(1);
        of_opportunities
            .wrapping_add(of(&self.steps))
            .wrapping_add(u128::from(self.columns.bits()))
            .wrapping_add(self.light.as_ref().map_or(0, |light| light.digest))
    }

    /// Joins the opportunities of this trace and the conditions by time of another one. Each repeats after its own length.
    ///
    /// # Errors
    /// Returns an error if this one has no opportunities, or if the other one has them or a rate.
    pub fn with_steps_of(self, other: Self) -> Result<Self, TraceError> {
        if !self.has_opportunities() {
            return Err(TraceError::whole(
                "only a trace of times at which packets are served has its delays in another file",
            ));
        }
        if other.has_opportunities() || other.columns.rate {
            return Err(TraceError::whole("the file beside it states a rate, too"));
        }
        if self.light.is_some() {
            return Err(TraceError::whole(
                "the light load has delays, too: leave it or the other delays out",
            ));
        }
        Ok(Self {
            opportunities: self.opportunities,
            ..other
        })
    }

    /// Makes its opportunities those of a full load, beside a light one. Rates become opportunities.
    ///
    /// # Errors
    /// Returns an error if it has neither opportunities nor rates, or other conditions by time beside them.
    pub fn with_light(self, load: LightLoad) -> Result<Self, TraceError> {
        let light = Some(Light::new(load));
        if !self.has_opportunities() {
            let full = self.to_light_opportunities()?;
            return Ok(Self {
                light,
                rates: Some(Arc::new(self)),
                ..full
            });
        }
        if self.steps.is_some() {
            return Err(TraceError::whole(
                "the trace has its delays in another file, and a light load has delays too: leave one of them out",
            ));
        }
        Ok(Self { light, ..self })
    }

    /// Returns the light load beside its opportunities, if it has one.
    pub fn light(&self) -> Option<&LightLoad> {
        self.light.as_ref().map(|light| &*light.load)
    }

    /// Returns its full load as it was stated: as rates, if its opportunities were computed from them.
    pub(crate) fn full_load(&self) -> Option<Self> {
        let rates = self.rates.as_deref().cloned();
        rates.or_else(|| self.opportunities_alone())
    }

    /// Returns its opportunities alone, if it has any.
    pub fn opportunities_alone(&self) -> Option<Self> {
        self.opportunities.as_ref().map(|series| Self {
            opportunities: Some(series.clone()),
            light: None,
            rates: None,
            steps: None,
            columns: Columns::default(),
            extremes: Extremes::NONE,
            first_rate: None,
        })
    }

    /// Returns its conditions by time alone, if it has any.
    pub fn steps_alone(&self) -> Option<Self> {
        self.steps.as_ref().map(|_| Self {
            opportunities: None,
            light: None,
            ..self.clone()
        })
    }
}

/// Traces of files, by their digests. Values that name one are written and read within a process.
static KEPT: Mutex<BTreeMap<String, Arc<Trace>>> = Mutex::new(BTreeMap::new());

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.content_digest() == other.content_digest()
    }
}

impl Light {
    fn new(load: LightLoad) -> Self {
        let mut digest = Digest::new();
        let mut add = |number: u64| digest.add(&number.to_le_bytes());
        for LightTrain {
            at,
            delay,
            deliveries,
        } in load.trains()
        {
            let head = [at.0, delay.0, deliveries.len() as u64];
            let all = deliveries.iter().map(|after| after.0);
            head.into_iter().chain(all).for_each(&mut add);
        }
        let offsets = load.offsets().iter().map(|offset| offset.cast_unsigned());
        offsets.for_each(&mut add);
        Self {
            load: Arc::new(load),
            digest: digest.0,
        }
    }

    /// Returns the bytes of memory that it takes.
    fn memory(&self) -> usize {
        let of_train = |train: &LightTrain| size_of_val(train.deliveries.as_slice());
        let deliveries: usize = self.load.trains().iter().map(of_train).sum();
        size_of_val(self.load.trains()) + deliveries + size_of_val(self.load.offsets())
    }
}

impl Series {
    pub(crate) fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.packed))
    }
}

/// Builds a trace from its lines.
#[derive(Debug)]
pub struct Builder {
    opportunities: Packer,
    steps: Packer,
    last: Nanos,
    columns: Columns,
    extremes: Extremes,
    first_rate: Option<u64>,
    rate: u64,
}

impl Builder {
    /// Begins a trace whose steps state these conditions.
    pub fn new(columns: Columns) -> Self {
        Self {
            opportunities: Packer::new(),
            steps: Packer::new(),
            last: Nanos::ZERO,
            columns,
            extremes: Extremes::NONE,
            first_rate: None,
            rate: 0,
        }
    }

    /// Adds an opportunity, which is the line number `line` of its file.
    ///
    /// # Errors
    /// Returns an error for a time before the last one.
    pub fn opportunity(&mut self, line: u64, at: Nanos) -> Result<(), TraceError> {
        if at < self.last {
            return Err(TraceError::at(
                line,
                format_args!(
                    "{at} comes after {}: put the times in ascending order",
                    self.last
                ),
            ));
        }
        self.last = at;
        let one = Line {
            at,
            ..Line::default()
        };
        Ok(self.opportunities.push(&one)?)
    }

    /// Adds conditions from a time on, which are the line number `number` of their file. In a stall, the rate may be 0.
    ///
    /// # Errors
    /// Returns an error for a first time that is not 0, for a time that does not come after the last one, and for a
    /// value that no link can have.
    pub fn step(&mut self, number: u64, mut line: Line) -> Result<(), TraceError> {
        let refused = |what: String| Err(TraceError::at(number, what));
        let at = line.at;
        let is_first = self.steps.lines() == 0;
        if is_first && at > Nanos::ZERO {
            return refused(format!(
                "the first time is {at}: a trace begins at 0s, so subtract that from all times"
            ));
        }
        self.check_end(number, at, is_first)?;
        for (key, time) in [
            ("delay", line.delay),
            ("jitter", line.jitter),
            ("duplicate", line.copies_after),
        ] {
            if time > LONGEST {
                return refused(format!("{key}: {time} is out of range: at most 3600s"));
            }
        }
        if self.columns.rate && line.rate > 0 {
            self.rate = line.rate;
            let is_limited = line.rate != Line::UNLIMITED;
            self.first_rate = self.first_rate.or(is_limited.then_some(line.rate));
        }
        line.rate = self.rate;
        self.last = at;
        self.extremes.add(&line);
        Ok(self.steps.push(&line)?)
    }

    /// Checks the time of another line of conditions, or that of their end.
    fn check_end(&self, number: u64, at: Nanos, is_first: bool) -> Result<(), TraceError> {
        let what = if is_first || at >= self.last + SHORTEST_STEP {
            return Ok(());
        } else if at < self.last {
            format!(
                "{at} comes after {}: put the lines in order of time",
                self.last
            )
        } else {
            format!(
                "{at} comes after {}: a line must last at least {SHORTEST_STEP}",
                self.last
            )
        };
        Err(TraceError::at(number, what))
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.opportunities.lines() + self.steps.lines()
    }

    /// Returns the time of the last line.
    pub fn last(&self) -> Nanos {
        self.last
    }

    /// Ends the trace. Its opportunities end with the last one; its conditions end at `end`, which is the line number
    /// `number` of their file.
    ///
    /// # Errors
    /// Returns an error for a trace without lines, for opportunities that are all at 0, and for an end that does not
    /// come after the last line of conditions.
    pub fn finish(self, number: u64, end: Option<Nanos>) -> Result<Trace, TraceError> {
        if self.lines() == 0 {
            return Err(TraceError::whole(
                "the trace is empty: it needs at least one line",
            ));
        }
        let last = self.last;
        let length = end.unwrap_or(last);
        if self.columns.rate && self.rate == 0 {
            return Err(TraceError::whole(
                "the rate is always 0, so nothing ever passes: write a rate above 0 in at least one line",
            ));
        }
        let (has_opportunities, has_steps) =
            (self.opportunities.lines() > 0, self.steps.lines() > 0);
        if has_steps {
            self.check_end(number, length, false)?;
        } else if last == Nanos::ZERO {
            return Err(TraceError::at(
                number,
                "all times are 0: the last time is the length of the trace, which must be above 0",
            ));
        }
        let (opportunities, of_opportunities) = self.opportunities.finish()?;
        let (steps, of_steps) = self.steps.finish()?;
        let series = |packed, digest, is_there: bool| {
            is_there.then(|| Series {
                packed: Arc::new(packed),
                length,
                digest,
            })
        };
        Ok(Trace {
            opportunities: series(opportunities, of_opportunities, has_opportunities),
            light: None,
            rates: None,
            steps: series(steps, of_steps, has_steps),
            columns: self.columns,
            extremes: self.extremes,
            first_rate: self.first_rate,
        })
    }
}

impl Columns {
    /// Returns a number that differs for other columns.
    fn bits(self) -> u8 {
        let all = [
            self.rate,
            self.delay,
            self.jitter,
            self.loss,
            self.queue,
            self.duplicate,
        ];
        all.into_iter()
            .fold(0, |bits, is_there| bits << 1 | u8::from(is_there))
    }

    /// Returns whether it has no column.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Returns a share of a whole as a probability; more than the whole is all.
pub(crate) fn share_of(part: u64, whole: u64) -> Probability {
    let percent = 100.0 * part.min(whole) as f64 / whole as f64;
    Probability::from_percent(percent).unwrap_or(Probability::ZERO)
}

#[cfg(test)]
mod tests;
