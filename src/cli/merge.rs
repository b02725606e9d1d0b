//! `farwire merge`: joins the records of an experiment's shards.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
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
use crate::named_files::NamedFiles;
use crate::notes::note;
use crate::profile_folders::ProfileFolders;
use crate::toml_file::SourceFile;
use instruments::failure::{Blame, Failure};
use instruments::measure;
use record::printable::printable_lines;
use record::quantity::counted;
use record::{GivenScenario, Merge, Record, Shard, ShardBy, ShardNumber};
use report::analysis::{Analysis, Verdict};

/// Join the records of an experiment's shards into one record
///
/// The joined record contains every run once, in whatever order the records are given. merge lists the runs that are missing, with the
/// commands that run them. merge exits with the code that `farwire run` has for the whole experiment.
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
pub(crate) struct Joined {
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
        let (joined, verdict) = join(&self.records, &self.out, self.overwrite)?;
        let (all, missing) = (joined.planned, joined.planned - joined.runs);
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

/// Joins `records` into one record in `out`. It replaces an existing record only with `overwrite`. The verdict is that of the whole
/// experiment, and `None` while runs are missing.
///
/// # Errors
/// A record cannot be read or belongs to another experiment, or the joined record cannot be written.
pub(crate) fn join(
    records: &[PathBuf],
    out: &Path,
    overwrite: bool,
) -> Result<(Joined, Option<Verdict>), Failure> {
    let merge = Merge::of(records).or_bad_input()?;
    let replaces = Record::is_in(out);
    match merge.write(out, overwrite) {
        Err(error) if error.is_full() => return Err(error.into()),
        written => written.or_bad_input()?,
    }
    clear_reports(out, replaces);
    let (all, missing) = (merge.planned(), merge.missing().len());
    let verdict = match missing {
        0 => Some(verdict(&merge, out)?),
        _ => None,
    };
    let joined = Joined {
        name: merge.plan().name.clone(),
        runs: all - missing,
        planned: all,
        records: records.len(),
        hosts: merge.hosts(),
        duplicates: merge.duplicates(),
        missing: to_do(&merge)?,
        met: verdict.map(|verdict| verdict == Verdict::Met),
    };
    Ok((joined, verdict))
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
            write!(f, "; {duplicates} ignored")?;
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

/// The record or shard that a missing run belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<'a> {
    /// The given record in this directory, which is resumed.
    Record(&'a Path),
    /// A shard whose record was not given, or the whole experiment if it has no shards.
    Beginning(Option<(ShardNumber, ShardBy)>),
}

/// Returns the commands for the missing runs, each with its runs. It makes texts that many runs share only once, because a record from a
/// stranger may lack a hundred thousand runs.
fn to_do(merge: &Merge) -> Result<Vec<ToDo>, Failure> {
    if merge.missing().is_empty() {
        return Ok(Vec::new());
    }
    let plan = measure::read_plan(merge.plan()).or_bad_input()?;
    let shards = merge
        .shard()
        .map_or_else(Vec::new, |one| sharding::all(&plan, one.number.of, one.by));
    let shard_of = shards_of_runs(&shards);
    let mut by_owner: BTreeMap<Owner<'_>, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for (case, repeat) in merge.missing() {
        let shard = || shard_of.get(&(case.as_str(), *repeat)).copied();
        let owner = merge.owner(case, *repeat);
        let owner = owner.map_or_else(|| Owner::Beginning(shard()), Owner::Record);
        let cases = by_owner.entry(owner).or_default();
        cases.entry(case).or_default().push(*repeat);
    }
    // Only a calibration records every flow.
    let name = if plan.by_flow { "calibrate" } else { "run" };
    let begin = LazyCell::new(|| {
        let file = quoted(&merge.scenario().file);
        format!("farwire {name} {file}{}", options(merge.scenario(), &plan))
    });
    let command = |owner: Owner<'_>| match owner {
        Owner::Record(directory) => {
            let files = files_to_allow(&plan, directory);
            let directory = quoted(&directory.display().to_string());
            format!("farwire {name} --resume {directory}{files}")
        }
        Owner::Beginning(None) => begin.clone(),
        Owner::Beginning(Some((number, ShardBy::Run))) => format!("{} --shard {number}", *begin),
        Owner::Beginning(Some((number, ShardBy::Case))) => {
            format!("{} --shard {number} --shard-by case", *begin)
        }
    };
    let by_owner = by_owner.into_iter();
    let by_command: BTreeMap<String, _> = by_owner
        .map(|(owner, cases)| (command(owner), cases))
        .collect();
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

/// Returns the shard of each run, by case and repeat.
fn shards_of_runs(shards: &[Shard]) -> HashMap<(&str, u32), (ShardNumber, ShardBy)> {
    let mut shard_of = HashMap::new();
    for shard in shards {
        for (case, repeats) in &shard.runs {
            let runs = repeats.iter().map(|repeat| (case.as_str(), *repeat));
            shard_of.extend(runs.map(|run| (run, (shard.number, shard.by))));
        }
    }
    shard_of
}

/// Returns the options that turn the scenario into the plan. If the scenario cannot be read again, for example without the files
/// that it names, all options that may have been given are returned.
fn options(given: &GivenScenario, plan: &Plan) -> String {
    let folder = Path::new(&given.file).parent().unwrap_or(Path::new(""));
    let source = SourceFile {
        file: &given.file,
        text: &given.text,
        also: &NamedFiles {
            folders: uses::folders_sent_from(plan).into_iter().collect(),
            profiles: ProfileFolders::usual(None),
        },
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
    let has_own = |whole: &Plan| {
        let mut cases = plan.cases.iter();
        cases.all(|case| {
            whole
                .case(&case.name)
                .is_some_and(|own| own.repeats == case.repeats)
        })
    };
    if let Some(count) = equal_repeats(plan)
        && !whole.as_ref().is_some_and(has_own)
    {
        options += &format!(" --repeats {count}");
    }
    if whole.is_none_or(|whole| whole.late_budget != plan.late_budget) {
        options += &format!(" --late-budget {}", plan.late_budget);
    }
    options + &files_to_allow(plan, folder)
}

/// Returns the number of repeats if it is fixed and the same for all cases, as `--repeats` makes it.
fn equal_repeats(plan: &Plan) -> Option<u32> {
    let mut all = plan.cases.iter().map(|case| &case.repeats);
    let first = all.next()?;
    let is_equal = first.until.is_none() && all.all(|repeats| repeats == first);
    is_equal.then_some(first.most)
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
    use record::plan::Repeats;

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
        plan.cases[0].repeats = Repeats::fixed(3);
        assert_eq!(
            options(&given, &plan),
            " --only a --repeats 3 --late-budget 5ms"
        );
    }

    #[test]
    fn of_a_scenario_that_cannot_be_read_all_is_said() {
        let (given, plan) = given("name = 'lost'");
        assert_eq!(
            options(&given, &plan),
            " --only 'b[delay=1ms]' --only 'b[delay=2ms]' --repeats 1 --late-budget 2ms"
        );
    }
}
