//! The files of traces that the command line or another file names.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use conditions::trace::{self, Trace, TraceError, TraceFormat};
use conditions::{LinkSpec, TraceSpec};

/// The file of a trace, those beside it with its delays, its light load and its offsets, and the format that was named.
type Source = (PathBuf, [Option<PathBuf>; 3], Option<TraceFormat>);

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
    let file = find(Path::new(&spec.file))?;
    let beside =
        |name: &Option<String>| name.as_ref().map(|name| find(Path::new(name))).transpose();
    let delays = beside(&spec.delays)?;
    let light = beside(&spec.light)?;
    let offsets = beside(&spec.offsets)?;
    let all = [&delays, &light, &offsets].map(Option::clone);
    let key = (file.clone(), all, spec.format);
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(trace) = known.get(&key) {
        spec.set_trace(Arc::clone(trace));
        return Ok(());
    }
    spec.read(open(&file)?)
        .map_err(|error| located(&file, error))?;
    if let Some(delays) = &delays {
        spec.read_delays(open(delays)?)
            .map_err(|error| located(delays, error))?;
    }
    if let Some(light) = &light {
        let offsets = offsets.map(|file| {
            let read = trace::read_offsets(open(&file)?);
            read.map_err(|error| located(&file, error))
        });
        let offsets = offsets.transpose()?.unwrap_or_default();
        spec.read_light(open(light)?, offsets)
            .map_err(|error| located(light, error))?;
    }
    if let Some(trace) = spec.trace() {
        known.insert(key, Arc::clone(trace));
    }
    Ok(())
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
