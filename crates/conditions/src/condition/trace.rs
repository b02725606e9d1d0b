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
    /// The file with the light load of CellReplay, beside a file of times at which a full load is served: on each line a
    /// time, a delay, and the times of deliveries, in whole milliseconds.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[^,]+$"))]
    pub light: Option<String>,
    /// The file with the offsets of the delay by the size of a packet, beside a light load: on each line 100, 200 and so
    /// on, and milliseconds.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[^,]+$"))]
    pub offsets: Option<String>,
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
    /// The content of the file of the light load, beside that content: at most 64 KiB.
    #[serde(default)]
    light_content: Option<String>,
    /// The content of the file of the offsets, beside that of the light load: at most 64 KiB.
    #[serde(default)]
    offsets_content: Option<String>,
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
    + "The format is detected (mahimahi, csv, theaterq, netem-trace). delays=FILE2 reads delays from a second file, as LeoReplayer has them. \
       light=FILE2 reads CellReplay's light load, and offsets=FILE3 its offsets by size. At its end, the trace starts again (loop, the default), holds its last \
       values (hold) or stops applying (clear): drive.csv,hold. The trace overrides conditions of the same kind"
}

impl TraceSpec {
    /// Creates the condition for a file that is not yet read.
    pub fn named(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            format: None,
            delays: None,
            light: None,
            offsets: None,
            end: TraceEnd::default(),
            except: Vec::new(),
            content: None,
            beside: None,
            light_content: None,
            offsets_content: None,
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

    /// Reads the light load beside a trace that has been read. `offsets` are in nanoseconds, for 100 bytes, 200 bytes, and
    /// so on.
    ///
    /// # Errors
    /// Returns an error with its line.
    pub fn read_light(
        &mut self,
        light: impl std::io::Read,
        offsets: Vec<i64>,
    ) -> Result<(), TraceError> {
        let load = trace::read_light(light)?.with_offsets(offsets);
        if let Some(own) = self.trace.take() {
            let joined = own.as_ref().clone().with_light(load)?;
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
        let light = self.light.as_deref().unwrap_or_default();
        require!(
            self.offsets.is_none() || self.light.is_some(),
            "offsets": "they belong to a light load: name its file too, as in light = \"light.pdo\""
        );
        require!(
            trace.light().is_some() == self.light.is_some(),
            "light": "{light} was not read, because only the command line and files name the file of a trace: write its content as light_content"
        );
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

    /// Returns whether it has a light load, whose delays count.
    pub(crate) fn has_light_delays(&self) -> bool {
        let trace = self.trace.as_ref();
        self.has_opportunities()
            && !self.except.contains(&TraceColumn::Delay)
            && trace.is_some_and(|trace| trace.light().is_some())
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
            TraceColumn::Delay => columns.delay || self.has_light_delays(),
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
        let texts = [
            &self.delays,
            &self.light,
            &self.offsets,
            &self.content,
            &self.beside,
            &self.light_content,
            &self.offsets_content,
            &self.kept,
        ];
        let texts = texts.into_iter().flatten().map(String::capacity);
        let except = self.except.capacity() * size_of::<TraceColumn>();
        let trace = self.trace.as_ref().map_or(0, |trace| trace.memory());
        self.file.capacity() + texts.sum::<usize>() + except + trace
    }

    /// Returns whether its content is short enough to be written in place of the file.
    pub fn is_short(&self) -> bool {
        self.short_content().is_some()
    }

    /// Returns the contents by their keys, unless one of them is too long.
    fn short_content(&self) -> Option<Vec<(&'static str, String)>> {
        let trace = self.trace.as_ref()?;
        // A line takes two bytes at least, and six in a light load.
        if trace.lines() > LONGEST_CONTENT as u64 / 2 {
            return None;
        }
        let trains = trace.light().map_or(0, |load| load.trains().len());
        if trains > LONGEST_CONTENT / 6 {
            return None;
        }
        let parts = [trace.full_load(), trace.steps_alone()];
        let mut contents = Vec::new();
        for (key, part) in ["content", "beside"]
            .into_iter()
            .zip(parts.into_iter().flatten())
        {
            let mut text = Vec::new();
            trace::write(&part, part.native_format(), &mut text).ok()?;
            contents.push((key, text));
        }
        if let Some(load) = trace.light() {
            let (mut light, mut offsets) = (Vec::new(), Vec::new());
            trace::write_light(load, &mut light).ok()?;
            trace::write_offsets(load.offsets(), &mut offsets).ok()?;
            contents.push(("light_content", light));
            contents.extend((!offsets.is_empty()).then_some(("offsets_content", offsets)));
        }
        let texts = contents.into_iter().map(|(key, text)| {
            let is_short = text.len() <= LONGEST_CONTENT;
            let text = String::from_utf8(text).ok().filter(|_| is_short);
            Some((key, text?))
        });
        texts.collect()
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
            self.take_over_light()?;
        }
        if let Some(kept) = &self.kept {
            self.trace = Trace::kept(kept);
        }
        Ok(())
    }

    /// Takes over the light load that its content states, beside a trace that has been read.
    fn take_over_light(&mut self) -> Result<(), Error> {
        let (light, offsets) = (self.light_content.take(), self.offsets_content.take());
        let most = LONGEST_CONTENT;
        for (key, text) in [("light_content", &light), ("offsets_content", &offsets)] {
            let len = text.as_ref().map_or(0, String::len);
            require!(len <= most, key => "it has {len} bytes: at most {most} are allowed");
        }
        require!(
            offsets.is_none() || light.is_some(),
            "offsets_content": "the offsets belong to a light load: write light_content too"
        );
        let Some(light) = light else {
            return Ok(());
        };
        require!(
            self.light.is_some(),
            "light_content": "its file has no name: write one too, as in light = \"light.pdo\""
        );
        let offsets = offsets.map(|text| trace::read_offsets(text.as_bytes()));
        let offsets = offsets.transpose().map_err(Error::other);
        let offsets = offsets.at("offsets_content")?;
        let read = self.read_light(light.as_bytes(), offsets.unwrap_or_default());
        read.map_err(Error::other).at("light_content")
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
        (&self.file, self.end, &self.except) == (&other.file, other.end, &other.except)
            && (&self.delays, &self.light, &self.offsets)
                == (&other.delays, &other.light, &other.offsets)
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
        if let Some(light) = &self.light {
            write!(f, ",light={light}")?;
        }
        if let Some(offsets) = &self.offsets {
            write!(f, ",offsets={offsets}")?;
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
        if let Some(light) = &self.light {
            map.serialize_entry("light", light)?;
        }
        if let Some(offsets) = &self.offsets {
            map.serialize_entry("offsets", offsets)?;
        }
        map.serialize_entry("end", &self.end)?;
        if !self.except.is_empty() {
            map.serialize_entry("except", &self.except)?;
        }
        if let Some(length) = self.length() {
            map.serialize_entry("length", &length)?;
        }
        match (self.short_content(), &self.trace) {
            (Some(contents), _) => {
                for (key, content) in &contents {
                    map.serialize_entry(key, content)?;
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
