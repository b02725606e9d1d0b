//! `farwire merge`: the records of an experiment's shards as one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;

use super::experiment::clear_reports;
use crate::experiment::shard;
use crate::notes::note;
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::quantity::counted;
use record::{Merge, Record, Shard, ShardBy};

/// Join the records of an experiment's shards
///
/// Every run is there once, and the same bytes come out whatever the order of the records. Runs that no record has are named, with
/// the command that does them, and it ends with 1.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Records of one experiment: their directories, or their record.jsonl
    #[arg(required = true, value_name = "DIR")]
    records: Vec<PathBuf>,
    /// Where the record goes
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a record that is there
    #[arg(long)]
    overwrite: bool,
}

impl MergeArgs {
    /// Merges; 0 when no run is missing, 1 when some are.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let merge = Merge::of(&self.records).or_bad_input()?;
        let replaces = Record::is_in(&self.out);
        merge.write(&self.out, self.overwrite).or_bad_input()?;
        clear_reports(&self.out, replaces);
        let all = merge.runs() + merge.missing().len();
        let mut text = format!(
            "{}: {} of {} from {} on {}",
            merge.plan().name,
            all - merge.missing().len(),
            counted(all, "run"),
            counted(self.records.len(), "record"),
            counted(merge.hosts(), "host"),
        );
        if merge.duplicates() > 0 {
            text += &format!("; {} left out", counted(merge.duplicates(), "duplicate"));
        }
        text += "\n";
        for (command, runs) in to_do(&merge) {
            text += &runs;
            text += &format!("  {command}\n");
        }
        output::write(None, &text)?;
        note(format_args!(
            "`farwire report {}` shows the record",
            self.out.display()
        ));
        match merge.missing().len() {
            0 => Ok(ExitCode::SUCCESS),
            missing => Err(anyhow!("{missing} of {} missing", counted(all, "run")).into()),
        }
    }
}

/// The commands that do the missing runs, each with those that it does, a line a case.
fn to_do(merge: &Merge) -> BTreeMap<String, String> {
    let shards = merge.shard().map_or_else(Vec::new, |one| {
        shard::all(merge.plan(), one.number.of, one.by)
    });
    let mut by_command: BTreeMap<String, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for (case, repeat) in merge.missing() {
        let command = command(merge, &shards, case, *repeat);
        let cases = by_command.entry(command).or_default();
        cases.entry(case).or_default().push(*repeat);
    }
    let words = |cases: BTreeMap<&str, Vec<u32>>| {
        let line = |(case, repeats): (&str, Vec<u32>)| {
            format!("missing: case `{case}`, repeat {}\n", ranges(&repeats))
        };
        cases.into_iter().map(line).collect()
    };
    by_command
        .into_iter()
        .map(|(command, cases)| (command, words(cases)))
        .collect()
}

/// The command that does a missing run: it goes on with the record that owes it, or begins the shard that nobody gave.
fn command(merge: &Merge, shards: &[Shard], case: &str, repeat: u32) -> String {
    let plan = merge.plan();
    // Only a calibration keeps every flow.
    let name = if plan.by_flow { "calibrate" } else { "run" };
    if let Some(directory) = merge.owner(case, repeat) {
        return format!("farwire {name} --resume {}", directory.display());
    }
    let quick = if plan.quick { " --quick" } else { "" };
    let scenario = merge.scenario();
    let mut owners = shards.iter();
    match owners.find(|shard| shard.has(case, repeat)) {
        None => format!("farwire {name} {scenario}{quick}"),
        Some(shard) => {
            let by = match shard.by {
                ShardBy::Run => "",
                ShardBy::Case => " --shard-by case",
            };
            format!(
                "farwire {name} {scenario}{quick} --shard {}{by}",
                shard.number
            )
        }
    }
}

/// Ascending numbers for people: "1 to 4, 7".
fn ranges(numbers: &[u32]) -> String {
    let rows = numbers.chunk_by(|a, b| a + 1 == *b);
    let words = rows.map(|row| match row {
        [first, .., last] => format!("{first} to {last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_a_range() {
        assert_eq!(ranges(&[1, 2, 3, 4, 7, 9, 10]), "1 to 4, 7, 9 to 10");
        assert_eq!(ranges(&[5]), "5");
    }
}
