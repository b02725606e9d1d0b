//! Where a new record goes: never over another one unasked.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::experiment::Plan;
use crate::live::quoted;
use crate::notes::note;
use record::Record;

/// Where records go unless that is said.
pub(crate) const OUT: &str = "out";

/// What the directory of `plan`'s record is called: as the experiment, and of a shard NAME-3-of-16.
pub(crate) fn name(plan: &Plan) -> String {
    match &plan.shard {
        None => plan.name.clone(),
        Some(shard) => format!(
            "{}-{}-of-{}",
            plan.name, shard.number.index, shard.number.of
        ),
    }
}

/// The directory for a new record called `name`: `out`, or the first free one of out/NAME, out/NAME-2 and
/// so on, which is said where it is not out/NAME. `command` is the one that makes it.
///
/// # Errors
/// `out` holds a record, and it is not to be overwritten.
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
    let held = held(command, &first);
    if out.is_some() {
        bail!("{held}: replace it with --overwrite, or choose another --out");
    }
    let others = (2..).map(|n| first.with_file_name(format!("{name}-{n}")));
    let free = others
        .into_iter()
        .find(|directory| !Record::is_in(directory));
    let free = free.unwrap_or(first);
    note(format_args!(
        "{held}; the new record goes to {}",
        free.display()
    ));
    Ok(free)
}

/// What is in the way, and how to go on with it where it is unfinished.
fn held(command: &str, directory: &Path) -> String {
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
