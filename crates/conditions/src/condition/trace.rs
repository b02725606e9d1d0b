//! Conditions from a trace: a file with a line for each change.

use std::fmt;
use std::sync::Arc;

use model::Nanos;
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

use super::{Shapes, describe};
use crate::error::{At, Error};
use crate::read::OrText;
use crate::require;
use crate::trace::{self, Columns, Line, Trace, TraceEnd, TraceError, TraceFormat};

/// The longest content of a trace that is written in place of its file, in bytes.
pub const LONGEST_CONTENT: usize = 64 << 10;

/// A trace of conditions, written `drive.csv`, `drive.csv,hold` or as a table.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as drive.csv,hold, or a table"
)]
#[schemars(transform = OrText { first: "file", words: WORDS })]
pub struct TraceSpec {
    /// The file of the trace. Where `content` is given, it is only a name.
    #[schemars(regex(pattern = r"^[^,]+$"))]
    pub file: String,
    /// The format of the file; when absent, its content decides.
    // In a text, the name of a format is enough.
    #[serde(
        default,
        alias = "mahimahi",
        alias = "csv",
        alias = "theaterq",
        alias = "netem-trace"
    )]
    pub format: Option<TraceFormat>,
    /// The file with the delays of LeoReplayer's pair, beside a file of times at which packets are served: a whole number
    /// of milliseconds on each line, for 10 ms each.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[^,]+$"))]
    pub delays: Option<String>,
    /// The conditions that follow when the trace is over; when absent it is loop, so that it begins again.
    #[serde(default, alias = "loop", alias = "hold", alias = "clear")]
    pub end: TraceEnd,
    /// The columns that do not count, because a more specific condition overrides them.
    #[serde(default)]
    pub except: Vec<TraceColumn>,
    /// The content of the file, in place of reading it: at most 64 KiB.
    #[serde(default)]
    pub content: Option<String>,
    /// The conditions by time beside that content, as csv: at most 64 KiB.
    #[serde(default)]
    beside: Option<String>,
    /// The length of a trace that was read. It is written for readers of records, and not read.
    #[serde(default)]
    length: Option<Nanos>,
    /// The digest of a trace whose content is too long to be written: only the process that read it knows it.
    #[serde(default)]
    kept: Option<String>,
    /// The trace, as soon as it has been read.
    #[serde(skip)]
    #[schemars(skip)]
    trace: Option<Arc<Trace>>,
}

/// The words in a text that name the format and the end.
const WORDS: &[&str] = &[
    "mahimahi",
    "csv",
    "theaterq",
    "netem-trace",
    "loop",
    "hold",
    "clear",
];

/// A condition that a trace states.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
    EnumIter,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TraceColumn {
    /// The rate, and the times at which a bottleneck serves.
    Rate,
    /// The delay.
    Delay,
    /// The spread of the jitter.
    Jitter,
    /// The loss.
    Loss,
    /// The size of the queue.
    Queue,
    /// The duplication.
    Duplicate,
}

impl TraceColumn {
    /// Returns the condition with this key.
    fn of(key: &str) -> Option<Self> {
        Self::iter().find(|column| <&str>::from(*column) == key)
    }
}

describe! {
    TraceSpec: "trace" = "FILE[,FORMAT][,END]", as in "drive.csv,hold", shapes Trace;
    "Follow a trace of rates, delays or losses in FILE: drive.csv"
    + "The format is detected (mahimahi, csv, theaterq, netem-trace). delays=FILE2 reads delays from a second file, as LeoReplayer has them. At its end, the trace starts again (loop, the default), holds its last \
       values (hold) or stops applying (clear): drive.csv,hold. The trace overrides conditions of the same kind"
}

impl TraceSpec {
    /// Creates the condition for a file that is not yet read.
    pub fn named(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            format: None,
            delays: None,
            end: TraceEnd::default(),
            except: Vec::new(),
            content: None,
            beside: None,
            length: None,
            kept: None,
            trace: None,
        }
    }

    /// Returns the trace, if it has been read.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    /// Follows a trace that was read before.
    pub fn set_trace(&mut self, trace: Arc<Trace>) {
        self.trace = Some(trace);
    }

    /// Reads the trace from the content of its file.
    ///
    /// # Errors
    /// Returns an error with its line.
    pub fn read(&mut self, source: impl std::io::Read) -> Result<(), TraceError> {
        let (trace, format) = trace::read(source, self.format)?;
        self.format = Some(format);
        self.trace = Some(Arc::new(trace));
        Ok(())
    }

    /// Reads the delays beside a trace that has been read.
    ///
    /// # Errors
    /// Returns an error with its line.
    pub fn read_delays(&mut self, source: impl std::io::Read) -> Result<(), TraceError> {
        let delays = trace::read_delays(source)?;
        self.join(delays)
    }

    fn join(&mut self, beside: Trace) -> Result<(), TraceError> {
        if let Some(own) = self.trace.take() {
            let joined = own.as_ref().clone().with_steps_of(beside)?;
            self.trace = Some(Arc::new(joined));
        }
        Ok(())
    }

    /// Refuses a trace that has not been read, and an end that it cannot have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let file = &self.file;
        require!(
            self.trace.is_some() || self.kept.is_none(),
            "its content is too long to be part of a record: read {file} again"
        );
        let Some(trace) = &self.trace else {
            return Err(Error::other(format_args!(
                "{file} was not read, because only the command line and files name the file of a trace: write its content, as in trace = {{ \
                 file = \"{file}\", content = \"...\" }}"
            )));
        };
        require!(
            !trace.has_opportunities() || self.end != TraceEnd::Hold,
            "end": "hold: a trace of times at which packets are served has no last conditions: write loop or clear"
        );
        Ok(())
    }

    /// Lets the condition with this key override it.
    pub fn override_by(&mut self, key: &str) {
        if let Some(column) = TraceColumn::of(key).filter(|one| !self.except.contains(one)) {
            self.except.push(column);
            self.except.sort_unstable();
        }
    }

    /// Returns the columns that count.
    pub(crate) fn columns(&self) -> Columns {
        let own = self.trace.as_ref().map(|trace| trace.columns);
        let own = own.unwrap_or_default();
        let is_free = |column| !self.except.contains(&column);
        Columns {
            rate: own.rate && is_free(TraceColumn::Rate),
            delay: own.delay && is_free(TraceColumn::Delay),
            jitter: own.jitter && is_free(TraceColumn::Jitter),
            loss: own.loss && is_free(TraceColumn::Loss),
            queue: own.queue && is_free(TraceColumn::Rate) && is_free(TraceColumn::Queue),
            duplicate: own.duplicate && is_free(TraceColumn::Duplicate),
        }
    }

    /// Returns whether the bottleneck serves at its times.
    pub(crate) fn has_opportunities(&self) -> bool {
        let trace = self.trace.as_ref();
        trace.is_some_and(|trace| trace.has_opportunities())
            && !self.except.contains(&TraceColumn::Rate)
    }

    /// Returns whether it changes this stage.
    pub(crate) fn shapes(&self, stage: Shapes) -> bool {
        let columns = self.columns();
        match stage {
            Shapes::Trace => self.has_opportunities(),
            Shapes::Rate => columns.rate,
            Shapes::Delay => columns.delay || columns.jitter,
            Shapes::Loss => columns.loss,
            Shapes::Duplicate => columns.duplicate,
            Shapes::PathMtu
            | Shapes::Police
            | Shapes::Pps
            | Shapes::Netem
            | Shapes::Ber
            | Shapes::Corrupt
            | Shapes::Outage
            | Shapes::Handover => false,
        }
    }

    /// Returns whether it states the condition with this key.
    pub(crate) fn states(&self, key: &str) -> bool {
        let columns = self.columns();
        TraceColumn::of(key).is_some_and(|column| match column {
            TraceColumn::Rate => columns.rate || self.has_opportunities(),
            TraceColumn::Delay => columns.delay,
            TraceColumn::Jitter => columns.jitter,
            TraceColumn::Loss => columns.loss,
            TraceColumn::Queue => columns.queue,
            TraceColumn::Duplicate => columns.duplicate,
        })
    }

    /// Returns whether it determines how fast packets are served. One that was not read might.
    pub(crate) fn has_rate(&self) -> bool {
        self.trace.is_none() || self.states("rate")
    }

    /// Returns whether it delays packets. One that was not read might.
    pub(crate) fn has_delay(&self) -> bool {
        self.trace.is_none() || self.shapes(Shapes::Delay)
    }

    /// Returns its conditions at a time, if it states any then.
    pub(crate) fn line_at(&self, time: Nanos) -> Option<Line> {
        let trace = self.trace.as_ref()?;
        let is_over = self.end == TraceEnd::Clear && time >= trace.length();
        trace.line_at(time, self.end).filter(|_| !is_over)
    }

    /// Returns its length, as far as that is known.
    pub fn length(&self) -> Option<Nanos> {
        self.trace
            .as_ref()
            .map(|trace| trace.length())
            .or(self.length)
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        let except = self.except.capacity() * size_of::<TraceColumn>();
        self.file.capacity() + except + self.trace.as_ref().map_or(0, |trace| trace.memory())
    }

    /// Returns whether its content is short enough to be written in place of the file.
    pub fn is_short(&self) -> bool {
        self.short_content().is_some()
    }

    /// Returns the content, and the one beside it if it has two parts, unless it is too long.
    fn short_content(&self) -> Option<(String, Option<String>)> {
        let trace = self.trace.as_ref()?;
        // A line takes two bytes at least.
        if trace.lines() > LONGEST_CONTENT as u64 / 2 {
            return None;
        }
        let parts = [trace.opportunities_alone(), trace.steps_alone()];
        let mut texts = Vec::new();
        for part in parts.into_iter().flatten() {
            let mut text = Vec::new();
            trace::write(&part, part.native_format(), &mut text).ok()?;
            texts.push(String::from_utf8(text).ok()?);
        }
        let is_short = texts.iter().all(|text| text.len() <= LONGEST_CONTENT);
        let mut texts = texts.into_iter().filter(|_| is_short);
        Some((texts.next()?, texts.next()))
    }

    /// Takes over the trace that its content or its digest names.
    fn take_over(&mut self) -> Result<(), Error> {
        // A trace that is not here has the length that its record states.
        if self.kept.is_none() {
            self.length = None;
        }
        require!(
            self.content.is_none() || self.kept.is_none(),
            "content": "it has both content and kept: leave one of them out"
        );
        if let Some(content) = self.content.take() {
            let most = LONGEST_CONTENT;
            require!(content.len() <= most, "content": "it has {} bytes: at most {most} are allowed", content.len());
            self.read(content.as_bytes())
                .map_err(Error::other)
                .at("content")?;
            if let Some(beside) = self.beside.take() {
                require!(beside.len() <= most, "beside": "it has {} bytes: at most {most} are allowed", beside.len());
                let read = trace::read(beside.as_bytes(), Some(TraceFormat::Csv));
                let joined = read.and_then(|(beside, _)| self.join(beside));
                joined.map_err(Error::other).at("beside")?;
            }
        }
        if let Some(kept) = &self.kept {
            self.trace = Trace::kept(kept);
        }
        Ok(())
    }
}

impl PartialEq for TraceSpec {
    /// Compares the content, if it has been read, and not the format that it had.
    fn eq(&self, other: &Self) -> bool {
        let digest = |one: &Self| {
            let read = one.trace.as_ref().map(|trace| trace.digest());
            read.or_else(|| one.kept.clone())
        };
        let (one, two) = (digest(self), digest(other));
        (&self.file, &self.delays, self.end, &self.except)
            == (&other.file, &other.delays, other.end, &other.except)
            && one == two
            && (one.is_some() || self.format == other.format)
    }
}

impl fmt::Display for TraceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(format) = self.format {
            write!(f, ",{format}")?;
        }
        if let Some(delays) = &self.delays {
            write!(f, ",delays={delays}")?;
        }
        if self.end != TraceEnd::default() {
            write!(f, ",{}", <&str>::from(self.end))?;
        }
        Ok(())
    }
}

impl Serialize for TraceSpec {
    /// Writes it as a text if it has not been read, else as a table with its content. A long content is kept in this
    /// process, and the table has its digest.
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        if self.trace.is_none() && self.kept.is_none() {
            return target.collect_str(self);
        }
        let mut map = target.serialize_map(None)?;
        map.serialize_entry("file", &self.file)?;
        if let Some(delays) = &self.delays {
            map.serialize_entry("delays", delays)?;
        }
        map.serialize_entry("end", &self.end)?;
        if !self.except.is_empty() {
            map.serialize_entry("except", &self.except)?;
        }
        if let Some(length) = self.length() {
            map.serialize_entry("length", &length)?;
        }
        match (self.short_content(), &self.trace) {
            (Some((content, beside)), _) => {
                map.serialize_entry("content", &content)?;
                if let Some(beside) = beside {
                    map.serialize_entry("beside", &beside)?;
                }
            }
            (None, Some(trace)) => map.serialize_entry("kept", &Arc::clone(trace).keep())?,
            (None, None) => map.serialize_entry("kept", &self.kept)?,
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for TraceSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let mut read = Self::deserialize(source)?;
        read.take_over().map_err(de::Error::custom)?;
        Ok(read)
    }
}
