//! The files of traces that the command line or another file names.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use conditions::trace::{self, Trace, TraceError, TraceFormat};
use conditions::{LinkSpec, TraceSpec};

/// The file of a trace, those beside it with its delays, its light load and its offsets, and the format that was named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    file: PathBuf,
    delays: Option<PathBuf>,
    light: Option<PathBuf>,
    offsets: Option<PathBuf>,
    format: Option<TraceFormat>,
}

/// The traces that this process has read, because many links may follow one file.
static READ: Mutex<BTreeMap<Source, Arc<Trace>>> = Mutex::new(BTreeMap::new());

/// Reads all traces of conditions whose files the command line names.
///
/// # Errors
/// A file cannot be read, or is no trace. The message has the file and the line.
pub(crate) fn read_all(spec: &mut LinkSpec) -> Result<()> {
    spec.traces_mut()
        .try_for_each(|trace| read(trace, |name| Ok(PathBuf::from(name))))
}

/// Reads a trace from its files, unless its content is there. `find` returns the path of a file that it names.
///
/// # Errors
/// The errors of [`read_all`] and of `find`.
pub(crate) fn read(spec: &mut TraceSpec, find: impl Fn(&Path) -> Result<PathBuf>) -> Result<()> {
    if spec.trace().is_some() {
        return Ok(());
    }
    let source = Source::of(spec, find)?;
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(trace) = known.get(&source) {
        spec.set_trace(Arc::clone(trace));
        return Ok(());
    }
    source.read_into(spec)?;
    if let Some(trace) = spec.trace() {
        known.insert(source, Arc::clone(trace));
    }
    Ok(())
}

/// Reads a trace from its files as they are now, although they may have been read before.
///
/// # Errors
/// The errors of [`read_all`].
pub(crate) fn read_again(spec: &mut TraceSpec) -> Result<()> {
    let source = Source::of(spec, |name| Ok(PathBuf::from(name)))?;
    source.read_into(spec)
}

impl Source {
    fn of(spec: &TraceSpec, find: impl Fn(&Path) -> Result<PathBuf>) -> Result<Self> {
        let beside = |name: &Option<String>| {
            let found = name.as_ref().map(|name| find(Path::new(name)));
            found.transpose()
        };
        Ok(Self {
            file: find(Path::new(&spec.file))?,
            delays: beside(&spec.delays)?,
            light: beside(&spec.light)?,
            offsets: beside(&spec.offsets)?,
            format: spec.format,
        })
    }

    fn read_into(&self, spec: &mut TraceSpec) -> Result<()> {
        spec.read(open(&self.file)?)
            .map_err(|error| located(&self.file, error))?;
        if let Some(delays) = &self.delays {
            spec.read_delays(open(delays)?)
                .map_err(|error| located(delays, error))?;
        }
        if let Some(light) = &self.light {
            let offsets = self.offsets.as_ref().map(|file| {
                let read = trace::read_offsets(open(file)?);
                read.map_err(|error| located(file, error))
            });
            let offsets = offsets.transpose()?.unwrap_or_default();
            spec.read_light(open(light)?, offsets)
                .map_err(|error| located(light, error))?;
        }
        Ok(())
    }
}

/// Opens the file of a trace.
///
/// # Errors
/// It cannot be opened, or is a directory.
pub(crate) fn open(file: &Path) -> Result<File> {
    let opened = File::open(file).with_context(|| format!("{}: cannot open", file.display()))?;
    let is_directory = opened.metadata().is_ok_and(|facts| facts.is_dir());
    ensure!(
        !is_directory,
        "{}: a directory is no trace: name a file",
        file.display()
    );
    Ok(opened)
}

/// Returns the error of a trace with its file and line.
pub(crate) fn located(file: &Path, error: TraceError) -> anyhow::Error {
    let TraceError { line, what } = error;
    let file = file.display();
    match line {
        0 => anyhow!("{file}: {what}"),
        line => anyhow!("{file}:{line}: {what}"),
    }
}
