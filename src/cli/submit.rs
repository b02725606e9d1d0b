//! `farwire submit`: runs an experiment on a cluster, and reports it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use model::Nanos;

use super::args::experiment_run::{ShardByArg, clear_reports, keep_only, warn, write_reports};
use super::args::headings;
use crate::experiment::Plan;
use crate::experiment::scenario;
use crate::named_files::{NamedFiles, NamedFilesArgs};
use crate::notes::{self, note};
use crate::profile_folders::ProfileFolders;
use crate::submit::{self, Reached, Resources, Submission, SubmissionKey, SubmissionStatus};
use instruments::failure::{Blame, Failure};
use instruments::output::{self, PAGE};
use record::lateness::LateBudget;
use record::quantity::counted;
use record::{Merge, Record};
use report::analysis::{Analysis, Verdict};

/// Run an experiment on a cluster with Slurm
///
/// submit divides the runs into shards, submits them as a job array, waits, submits missing shards again, joins the records and shows
/// the report. Its whole state is in DIR and in Slurm: if submit ends early, run the same command again to continue.
#[derive(Args, Debug)]
#[command(
    override_usage = "farwire submit [OPTIONS] --slurm --out DIR SCENARIO\n       farwire submit --status DIR\n       farwire submit --cancel DIR"
)]
pub(crate) struct SubmitArgs {
    /// Scenario, a TOML file
    #[arg(required_unless_present_any = ["status", "cancel"])]
    scenario: Option<PathBuf>,
    /// Use Slurm, 22.05 or later; it needs no accounting database
    #[arg(long, required_unless_present_any = ["status", "cancel"])]
    slurm: bool,
    /// Directory of the shards and the joined record, which all nodes see under this path
    #[arg(long, value_name = "DIR", required_unless_present_any = ["status", "cancel"])]
    out: Option<PathBuf>,
    /// Print the batch script without submitting it
    #[arg(long)]
    print: bool,
    /// Do not wait: submit missing shards, or join the records if none is missing
    #[arg(long, conflicts_with = "print")]
    detach: bool,
    /// Show the progress of the submit in DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_SUBMITTING)]
    status: Option<PathBuf>,
    /// Cancel the tasks of DIR and the submit that waits for them; finished runs are kept
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_SUBMITTING, conflicts_with = "status")]
    cancel: Option<PathBuf>,
    /// Slurm partition [default: $SBATCH_PARTITION, else Slurm's default]
    #[arg(long, value_name = "NAME", help_heading = TASKS_HEADING)]
    partition: Option<String>,
    /// Processors per task
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..), help_heading = TASKS_HEADING)]
    cpus: u32,
    /// Time limit of a task, in whole minutes [default: twice the expected time, plus 10 min]
    #[arg(long, value_name = "TIME", help_heading = TASKS_HEADING)]
    time: Option<Nanos>,
    /// Maximum number of simultaneous tasks [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = TASKS_HEADING)]
    max_tasks: Option<u32>,
    /// Minimum duration of a shard
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = TASKS_HEADING)]
    shard_time: Nanos,
    /// Unit that stays together in one shard
    #[arg(long, value_name = "UNIT", default_value = "run", help_heading = TASKS_HEADING, hide_short_help = true)]
    shard_by: ShardByArg,
    /// Reduce counts and sizes for a quick look; the conditions stay the same
    #[arg(long, help_heading = RUNS_HEADING)]
    quick: bool,
    /// Run only this case, or the cases of this sweep, and the reference (repeatable)
    #[arg(long, value_name = "CASE", help_heading = RUNS_HEADING)]
    only: Vec<String>,
    /// Run every case this many times, whatever the scenario says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = RUNS_HEADING)]
    repeats: Option<u32>,
    #[command(flatten, next_help_heading = RUNS_HEADING)]
    files: NamedFilesArgs,
    /// Count a packet as late if it leaves later than this after its due time; at most 1s [default: the scenario's, else 1ms]
    #[arg(long, value_name = "TIME", help_heading = RUNS_HEADING, hide_short_help = true)]
    late_budget: Option<LateBudget>,
    /// Write the results as JSON to FILE (- for standard output, instead of text)
    ///
    /// Write the results as JSON to FILE (- for standard output, instead of text): with --status or --detach the progress, with
    /// --cancel the number of cancelled tasks
    #[arg(long, value_name = "FILE", conflicts_with = "print", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

/// Headings of the options in help.
const TASKS_HEADING: &str = "Slurm tasks";
const RUNS_HEADING: &str = "Runs";

/// The options of a new submit, which --status and --cancel exclude.
const OF_SUBMITTING: [&str; 16] = [
    "scenario",
    "slurm",
    "out",
    "partition",
    "cpus",
    "time",
    "max_tasks",
    "shard_time",
    "shard_by",
    "quick",
    "only",
    "repeats",
    "allow_files",
    "profiles",
    "late_budget",
    "print",
];

impl SubmitArgs {
    /// Submits. The exit code is 0 if all expectations are met, and 1 if one is not or runs are missing.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(directory) = &self.status {
            self.show_status(directory, io::sink())?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(directory) = &self.cancel {
            let ended = submit::cancel(directory)?;
            let text = format!(
                "{} cancelled; finished runs are kept\n",
                counted(ended, "task")
            );
            let ended = serde_json::json!({ "ended": ended });
            super::show(self.json.as_deref(), &ended, &text, io::sink())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (scenario, out) = (self.scenario.as_ref(), self.out.as_ref());
        // clap requires both.
        let (scenario, out) = scenario
            .zip(out)
            .context("a scenario and --out are required")?;
        let (asked, plan) = self.asked(scenario)?;
        let submission = Submission {
            asked,
            plan: &plan,
            by: self.shard_by.into(),
            resources: Resources {
                partition: self.partition.clone(),
                cpus: self.cpus,
                time: self.time.map(Into::into),
                max_tasks: self.max_tasks,
                shard_time: self.shard_time.into(),
            },
            out: out.clone(),
        };
        if self.print {
            output::write(None, &submission.script()?)?;
            return Ok(ExitCode::SUCCESS);
        }
        match submission.run(self.detach)? {
            Reached::All(records) => self.join(&records, out),
            Reached::Handed => {
                let at = out.display();
                note(format_args!(
                    "`farwire submit --status {at}` shows the progress; run the same command without --detach to wait and join the records"
                ));
                if self.json.is_some() {
                    self.show_status(out, notes::beside())?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Reached::Some(records, causes) => Err(given_up(&records, out, &causes)),
        }
    }

    /// Returns the key of the experiment, and its plan.
    fn asked(&self, scenario: &Path) -> Result<(SubmissionKey, Plan), Failure> {
        let whole = |path: &Path| {
            // Symbolic links stay, because their targets need not have the same names on all nodes.
            let whole = submit::absolute(path).and_then(|whole| whole.metadata().map(|_| whole));
            whole.with_context(|| format!("{}: cannot read", path.display()))
        };
        let scenario = whole(scenario).or_bad_input()?;
        let allowed = self.files.allow_files.iter().map(|folder| whole(folder));
        let allowed: Vec<PathBuf> = allowed.collect::<Result<_, _>>().or_bad_input()?;
        let profiles = self.files.profiles.as_deref().map(whole);
        let profiles = profiles.transpose().or_bad_input()?;
        let named = NamedFiles {
            folders: allowed,
            profiles: ProfileFolders::usual(profiles.as_deref()),
        };
        let (text, mut plan) = scenario::read(&scenario, &named, self.quick).or_bad_input()?;
        plan.late_budget = self.late_budget.unwrap_or(plan.late_budget);
        keep_only(&mut plan, &self.only).or_bad_input()?;
        if let Some(count) = self.repeats {
            scenario::repeat_each(&mut plan, count).or_bad_input()?;
        }
        warn(&plan).or_bad_input()?;
        let mut options = Vec::new();
        options.extend(self.quick.then(|| "--quick".to_owned()));
        options.extend(self.only.iter().map(|case| format!("--only={case}")));
        options.extend(self.repeats.map(|count| format!("--repeats={count}")));
        let by_case = matches!(self.shard_by, ShardByArg::Case);
        options.extend(by_case.then(|| "--shard-by=case".to_owned()));
        let budget = self.late_budget;
        options.extend(budget.map(|budget| format!("--late-budget={budget}")));
        options.extend(profiles.map(|folder| format!("--profiles={}", folder.display())));
        let folders = named.folders.iter();
        let folders = folders.map(|folder| format!("--allow-files={}", folder.display()));
        let asked = SubmissionKey {
            farwire: format!("farwire {}", env!("CARGO_PKG_VERSION")),
            name: plan.name.clone(),
            scenario,
            text,
            options,
            also_resumed: folders.collect(),
        };
        Ok((asked, plan))
    }

    /// Joins the records into `out`, and shows the report.
    fn join(&self, records: &[PathBuf], out: &Path) -> Result<ExitCode, Failure> {
        let merge = Merge::of(records)?;
        put(&merge, out)?;
        let record = Record::read(out)?;
        write_reports(&record, out)?;
        let text = report::text(&record, false, super::terminal());
        super::show(self.json.as_deref(), &record, &text, notes::beside())?;
        note(format_args!("report: {}", out.join(PAGE).display()));
        match (merge.missing().len(), Analysis::of(&record).verdict) {
            (0, verdict) => Ok(super::exit_code(verdict == Verdict::Met)),
            // A shard contains fewer runs than it says.
            (missing, _) => Err(anyhow!(
                "{} missing; `farwire merge` names them",
                counted(missing, "run")
            )
            .into()),
        }
    }

    /// Prints the progress of the submit in `directory`, to `instead` if the JSON goes to standard output.
    fn show_status(&self, directory: &Path, instead: impl io::Write) -> Result<(), Failure> {
        let status = SubmissionStatus::of(directory)?;
        Ok(super::show(
            self.json.as_deref(),
            &status,
            &status.to_string(),
            instead,
        )?)
    }
}

/// Joins the records that exist, and returns the failure that says which runs are missing, and why.
fn given_up(records: &[PathBuf], out: &Path, causes: &[String]) -> Failure {
    let joined = match records {
        [] => Ok("no run took place".to_owned()),
        records => Merge::of(records).and_then(|merge| {
            put(&merge, out)?;
            let missing = counted(merge.missing().len(), "run");
            Ok(format!(
                "{missing} missing, {} contains the others",
                out.display()
            ))
        }),
    };
    let joined = joined.unwrap_or_else(|error| format!("{error:#}"));
    anyhow!(
        "two arrays in a row completed no further run; {}; {joined}; run the same command to try again",
        causes.join("; ")
    )
    .into()
}

fn put(merge: &Merge, out: &Path) -> Result<(), record::Error> {
    let replaces = Record::is_in(out);
    merge.write(out, true)?;
    clear_reports(out, replaces);
    let all = merge.runs();
    note(format_args!(
        "{}: {} on {}",
        merge.plan().name,
        counted(all, "run"),
        counted(merge.hosts(), "host")
    ));
    Ok(())
}
