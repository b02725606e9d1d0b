//! Chooses the directory of a new record. Another record is overwritten only on request.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::experiment::Plan;
use crate::live::quoted;
use crate::notes::note;
use record::Record;

/// The directory of records if none is given.
pub(crate) const OUT: &str = "out";

/// Returns the directory name of `plan`'s record: the experiment's name, or `NAME-3-of-16` for a
/// shard.
pub(crate) fn name(plan: &Plan) -> String {
    match &plan.shard {
        None => plan.name.clone(),
        Some(shard) => format!(
            "{}-{}-of-{}",
            plan.name, shard.number.index, shard.number.of
        ),
    }
}

/// Chooses the directory of a new record called `name`: `out`, or the first free one of `out/NAME`,
/// `out/NAME-2` and so on. A note says if it is not `out/NAME`. `command` is the command that
/// creates the record.
///
/// # Errors
/// Fails if `out` holds a record and `overwrite` is false.
pub(crate) fn choose(
    command: &str,
    out: Option<&Path>,
    name: &str,
    overwrite: bool,
) -> Result<PathBuf> {
    let first = match out {
        Some(directory) => directory.to_owned(),
        None => Path::new(OUT).join(name),
    };
    if overwrite || !Record::is_in(&first) {
        return Ok(first);
    }
    let existing = describe_existing(command, &first);
    if out.is_some() {
        bail!("{existing}: replace it with --overwrite, or choose another --out");
    }
    let others = (2..).map(|n| first.with_file_name(format!("{name}-{n}")));
    let free = others
        .into_iter()
        .find(|directory| !Record::is_in(directory))
        .unwrap_or(first);
    note(format_args!(
        "{existing}; the new record goes to {}",
        free.display()
    ));
    Ok(free)
}

/// Describes the record that already exists and, if it is unfinished, the command that resumes it.
fn describe_existing(command: &str, directory: &Path) -> String {
    let at = directory.display();
    let Ok(record) = Record::read(directory) else {
        return format!("{at} contains a record that cannot be read");
    };
    let name = &record.plan().name;
    if record.finished_at.is_some() {
        return format!("{at} contains a record of `{name}`");
    }
    let quoted = quoted(&at.to_string());
    format!(
        "{at} contains an unfinished record of `{name}`: `farwire {command} --resume {quoted}` continues it"
    )
}
