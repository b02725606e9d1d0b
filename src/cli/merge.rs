//! `farwire merge`: joins the records of an experiment's shards.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::args::experiment_run::clear_reports;
use super::args::headings;
use crate::experiment::{Case, Plan};
use crate::experiment::{scenario, sharding, uses};
use crate::live::quoted;
use crate::notes::note;
use crate::toml_file::SourceFile;
use instruments::failure::{Blame, Failure};
use instruments::measure;
use record::printable::printable_lines;
use record::quantity::counted;
use record::{GivenScenario, Merge, Record, Shard, ShardBy};
use report::analysis::{Analysis, Verdict};

/// Join the records of an experiment's shards into one record
///
/// The joined record contains every run once, whatever the order of the records. merge lists the runs that are missing, with the
/// commands that run them. The exit code is that of `farwire run` for the whole experiment.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Records of one experiment: their directories, or their record.jsonl files
    #[arg(required = true, value_name = "DIR")]
    records: Vec<PathBuf>,
    /// Directory of the joined record
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an existing record
    #[arg(long)]
    overwrite: bool,
    /// Write counts and missing runs as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

/// The counts of the joined record, and the missing runs.
#[derive(Debug, Serialize)]
struct Joined {
    name: String,
    /// Runs that need no further attempt.
    runs: usize,
    planned: usize,
    records: usize,
    hosts: usize,
    duplicates: usize,
    missing: Vec<ToDo>,
    /// True if all expectations are met; null while runs are missing.
    met: Option<bool>,
}

/// Missing runs, and the command that runs them.
#[derive(Debug, Serialize)]
struct ToDo {
    command: String,
    runs: Vec<Missing>,
}

/// The missing repeats of a case.
#[derive(Debug, Serialize)]
struct Missing {
    case: String,
    repeats: Vec<u32>,
}

impl MergeArgs {
    /// Merges. The exit code is 0 if no run is missing and all expectations are met, else 1.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let merge = Merge::of(&self.records).or_bad_input()?;
        let replaces = Record::is_in(&self.out);
        match merge.write(&self.out, self.overwrite) {
            Err(error) if error.is_full() => return Err(error.into()),
            written => written.or_bad_input()?,
        }
        clear_reports(&self.out, replaces);
        let (all, missing) = (merge.planned(), merge.missing().len());
        let verdict = match missing {
            0 => Some(verdict(&merge, &self.out)?),
            _ => None,
        };
        let joined = Joined {
            name: merge.plan().name.clone(),
            runs: all - missing,
            planned: all,
            records: self.records.len(),
            hosts: merge.hosts(),
            duplicates: merge.duplicates(),
            missing: to_do(&merge)?,
            met: verdict.map(|verdict| verdict == Verdict::Met),
        };
        let json = self.json.as_deref();
        let text = joined.to_string();
        super::show(json, &joined, &printable_lines(&text), io::sink())?;
        note(format_args!(
            "`farwire report {}` shows the report",
            self.out.display()
        ));
        Err(match verdict {
            Some(Verdict::Met) => return Ok(ExitCode::SUCCESS),
            Some(Verdict::NotMet) => anyhow!("not all expectations are met"),
            Some(Verdict::Invalid) => anyhow!("some runs are invalid"),
            Some(Verdict::Failed | Verdict::Incomplete) => {
                anyhow!("some runs failed or are incomplete")
            }
            None => anyhow!("{missing} of {} are missing", counted(all, "run")),
        }
        .into())
    }
}

/// Returns the verdict on the whole experiment, as it was written to `out`. The record is read into memory only if it has something to judge.
fn verdict(merge: &Merge, out: &Path) -> Result<Verdict, Failure> {
    Ok(match merge.is_to_be_judged() {
        true => Analysis::of(&Record::read(out)?).verdict,
        false => Verdict::Met,
    })
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} from {} on {}",
            self.name,
            self.runs,
            counted(self.planned, "run"),
            counted(self.records, "record"),
            counted(self.hosts, "host"),
        )?;
        if self.duplicates > 0 {
            let duplicates = counted(self.duplicates, "duplicate run");
            write!(f, "; {duplicates} left out")?;
        }
        writeln!(f)?;
        for ToDo { command, runs } in &self.missing {
            for Missing { case, repeats } in runs {
                writeln!(
                    f,
                    "missing: case `{case}`, repeat {}",
                    sharding::ranges(repeats, " to ", ", ")
                )?;
            }
            writeln!(f, "  {command}")?;
        }
        Ok(())
    }
}

/// Returns the commands for the missing runs, each with its runs.
fn to_do(merge: &Merge) -> Result<Vec<ToDo>, Failure> {
    if merge.missing().is_empty() {
        return Ok(Vec::new());
    }
    let plan = measure::read_plan(merge.plan()).or_bad_input()?;
    let shards = merge
        .shard()
        .map_or_else(Vec::new, |one| sharding::all(&plan, one.number.of, one.by));
    let mut by_command: BTreeMap<String, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for (case, repeat) in merge.missing() {
        let command = command(merge, &plan, &shards, case, *repeat);
        let cases = by_command.entry(command).or_default();
        cases.entry(case).or_default().push(*repeat);
    }
    let missing = |(case, repeats): (&str, Vec<u32>)| Missing {
        case: case.to_owned(),
        repeats,
    };
    let to_do = by_command.into_iter().map(|(command, cases)| ToDo {
        command,
        runs: cases.into_iter().map(missing).collect(),
    });
    Ok(to_do.collect())
}

/// Returns the command for a missing run. It resumes the record that should contain the run, or runs the missing shard.
fn command(merge: &Merge, plan: &Plan, shards: &[Shard], case: &str, repeat: u32) -> String {
    // Only a calibration records every flow.
    let name = if plan.by_flow { "calibrate" } else { "run" };
    if let Some(directory) = merge.owner(case, repeat) {
        let files = files_to_allow(plan, directory);
        let directory = quoted(&directory.display().to_string());
        return format!("farwire {name} --resume {directory}{files}");
    }
    let mut owners = shards.iter();
    let shard = owners.find(|shard| shard.has(case, repeat));
    let shard = shard.map(|shard| match shard.by {
        ShardBy::Run => format!(" --shard {}", shard.number),
        ShardBy::Case => format!(" --shard {} --shard-by case", shard.number),
    });
    format!(
        "farwire {name} {}{}{}",
        quoted(&merge.scenario().file),
        options(merge.scenario(), plan),
        shard.unwrap_or_default()
    )
}

/// Returns the options that turn the scenario into the plan. If the scenario cannot be read again, for example without the files
/// that it names, all options that may have been given are returned.
fn options(given: &GivenScenario, plan: &Plan) -> String {
    let folder = Path::new(&given.file).parent().unwrap_or(Path::new(""));
    let source = SourceFile {
        file: &given.file,
        text: &given.text,
        also: &uses::folders_sent_from(plan)
            .into_iter()
            .collect::<Vec<_>>(),
    };
    let whole = scenario::parse(source, plan.quick).ok();
    let mut options = String::new();
    if plan.quick {
        options += " --quick";
    }
    let has_all = |whole: &Plan| whole.cases.len() == plan.cases.len();
    if !whole.as_ref().is_some_and(has_all) {
        // The reference is always included.
        let is_reference = |case: &Case| plan.reference.as_ref() == Some(&case.name);
        let others = plan.cases.iter().filter(|case| !is_reference(case));
        let only: Vec<&Case> = others.collect();
        let named = if only.is_empty() {
            plan.cases.iter().collect()
        } else {
            only
        };
        options.extend(
            named
                .iter()
                .map(|case| format!(" --only {}", quoted(&case.name))),
        );
    }
    if whole.is_none_or(|whole| whole.late_budget != plan.late_budget) {
        options += &format!(" --late-budget {}", plan.late_budget);
    }
    options + &files_to_allow(plan, folder)
}

/// Returns the options for files that instruments send from outside of `own`, a directory from which they may.
fn files_to_allow(plan: &Plan, own: &Path) -> String {
    let own = match own.as_os_str().is_empty() {
        true => Path::new("."),
        false => own,
    };
    let own = own.canonicalize().ok();
    let beyond = uses::folders_sent_from(plan).into_iter();
    let beyond = beyond.filter(|from| own.as_ref().is_none_or(|own| !from.starts_with(own)));
    let option = |from: PathBuf| format!(" --allow-files {}", quoted(&from.display().to_string()));
    beyond.map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "name = 'x'\nbed = { kind = 'netns' }\nlate_budget = '2ms'\nreference = 'a'\n\
         [[instruments]]\nname = 'ping'\nkind = 'ping'\n\
         [[cases]]\nname = 'a'\n[[cases]]\nname = 'b'\nsweep = { \"link.delay\" = ['1ms', '2ms'] }\n";

    fn given(text: &str) -> (GivenScenario, Plan) {
        let given = GivenScenario {
            file: "a folder/x.toml".to_owned(),
            text: text.to_owned(),
        };
        (given, crate::experiment::plan_of(SCENARIO))
    }

    #[test]
    fn what_the_scenario_says_is_not_said_again() {
        let (given, mut plan) = given(SCENARIO);
        assert_eq!(options(&given, &plan), "");
        plan.quick = true;
        assert_eq!(options(&given, &plan), " --quick");
    }

    #[test]
    fn what_the_command_line_changed_is_said() {
        let (given, mut plan) = given(SCENARIO);
        plan.late_budget = "5ms".parse().unwrap();
        plan.cases.retain(|case| case.name != "b[delay=2ms]");
        assert_eq!(
            options(&given, &plan),
            " --only 'b[delay=1ms]' --late-budget 5ms"
        );
        plan.cases.truncate(1);
        assert_eq!(options(&given, &plan), " --only a --late-budget 5ms");
    }

    #[test]
    fn of_a_scenario_that_cannot_be_read_all_is_said() {
        let (given, plan) = given("name = 'lost'");
        assert_eq!(
            options(&given, &plan),
            " --only 'b[delay=1ms]' --only 'b[delay=2ms]' --late-budget 2ms"
        );
    }
}
