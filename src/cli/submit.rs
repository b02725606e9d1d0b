//! `farwire submit`: an experiment on a cluster, to its report.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use model::Nanos;

use super::args::experiment_run::{
    PAGE, ShardByArg, clear_reports, keep_only, warn, write_reports,
};
use crate::experiment::Plan;
use crate::experiment::scenario;
use crate::named_files::AllowFilesArg;
use crate::notes::{self, note};
use crate::submit::{self, Reached, Resources, Submission, SubmissionKey, SubmissionStatus};
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::lateness::LateBudget;
use record::quantity::counted;
use record::{Merge, Record};
use report::analysis::{Analysis, Verdict};

/// Run an experiment on a cluster
///
/// Its runs are parted into shards, which Slurm does as an array of tasks; it waits for them, hands in again what is missing, joins
/// their records and shows the report. What is known stands in the directory and in Slurm alone: the same command goes on with a
/// submit that ended, however it ended.
#[derive(Args, Debug)]
pub(crate) struct SubmitArgs {
    /// The scenario, a TOML file
    #[arg(required_unless_present_any = ["status", "cancel"])]
    scenario: Option<PathBuf>,
    /// By Slurm, 22.05 or later: sbatch, squeue, sinfo, scontrol and scancel, no accounting database
    #[arg(long, required_unless_present_any = ["status", "cancel"])]
    slurm: bool,
    /// Where the shards and their joined record go; like the scenario and this program, all nodes see it under the same path
    #[arg(long, value_name = "DIR", required_unless_present_any = ["status", "cancel"])]
    out: Option<PathBuf>,
    /// Slurm's partition [default: that of SBATCH_PARTITION, else Slurm's]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Processors of a task
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    cpus: u32,
    /// How long a task may take, in whole minutes [default: twice what its shard should take, and ten minutes]
    #[arg(long, value_name = "TIME")]
    time: Option<Nanos>,
    /// How many tasks may run at once [default: as many as there is room for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// What a shard should take at least
    #[arg(long, value_name = "TIME", default_value = "60s")]
    shard_time: Nanos,
    /// What stays together in one shard; a case whose runs say how many it has always does
    #[arg(long, value_name = "UNIT", default_value = "run")]
    shard_by: ShardByArg,
    /// Shorten counts and sizes, never the conditions
    #[arg(long)]
    quick: bool,
    /// Only the case of this name, or those that a sweep made of it, and the reference; may be repeated
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    #[command(flatten)]
    files: AllowFilesArg,
    /// A packet that leaves the emulator later than this after its due time counts as late; above 0, at most 1s [default:
    /// what the file says, else 1ms]
    #[arg(long, value_name = "TIME")]
    late_budget: Option<LateBudget>,
    /// Print the batch script, and hand nothing in
    #[arg(long)]
    print: bool,
    /// Do not wait: hand in what is missing, or join the records when nothing is
    #[arg(long, conflicts_with = "print")]
    detach: bool,
    /// Say how far the submit of DIR is
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_SUBMITTING)]
    status: Option<PathBuf>,
    /// End the tasks of DIR, and the submit that waits for them; what is done is kept
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_SUBMITTING, conflicts_with = "status")]
    cancel: Option<PathBuf>,
    /// Write the results as JSON there, how far it is with --status or --detach, how many tasks ended with --cancel; - is standard output,
    /// in place of the text
    #[arg(long, value_name = "FILE", conflicts_with = "print")]
    json: Option<PathBuf>,
}

/// What nothing but a submit has.
const OF_SUBMITTING: [&str; 14] = [
    "scenario",
    "slurm",
    "out",
    "partition",
    "cpus",
    "time",
    "at_once",
    "shard_time",
    "shard_by",
    "quick",
    "only",
    "allow_files",
    "late_budget",
    "print",
];

impl SubmitArgs {
    /// Submits; 0 when all expectations are met, 1 when not or when runs are missing.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(directory) = &self.status {
            self.show_status(directory, io::sink())?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(directory) = &self.cancel {
            let ended = submit::cancel(directory)?;
            let text = format!("{} ended; what is done is kept\n", counted(ended, "task"));
            let ended = serde_json::json!({ "ended": ended });
            super::show(self.json.as_deref(), &ended, &text, io::sink())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (scenario, out) = (self.scenario.as_ref(), self.out.as_ref());
        // Clap has seen to it.
        let (scenario, out) = scenario.zip(out).context("a scenario and --out")?;
        let (asked, plan) = self.asked(scenario)?;
        let submission = Submission {
            asked,
            plan: &plan,
            by: self.shard_by.into(),
            resources: Resources {
                partition: self.partition.clone(),
                cpus: self.cpus,
                time: self.time.map(Into::into),
                at_once: self.at_once,
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
                    "`farwire submit --status {at}` says how far it is; the same command without --detach waits, and joins the records"
                ));
                if self.json.is_some() {
                    self.show_status(out, notes::beside())?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Reached::Some(records, causes) => Err(given_up(&records, out, &causes)),
        }
    }

    /// What makes the experiment, and its plan.
    fn asked(&self, scenario: &Path) -> Result<(SubmissionKey, Plan), Failure> {
        let whole = |path: &Path| {
            // With its links: what they lead to need not have the same name on all nodes.
            let whole = submit::absolute(path).and_then(|whole| whole.metadata().map(|_| whole));
            whole.with_context(|| format!("{}: cannot read", path.display()))
        };
        let scenario = whole(scenario).or_bad_input()?;
        let allowed = self.files.allow_files.iter().map(|folder| whole(folder));
        let allowed: Vec<PathBuf> = allowed.collect::<Result<_, _>>().or_bad_input()?;
        let (text, mut plan) = scenario::read(&scenario, &allowed, self.quick).or_bad_input()?;
        plan.late_budget = self.late_budget.unwrap_or(plan.late_budget);
        keep_only(&mut plan, &self.only).or_bad_input()?;
        warn(&plan).or_bad_input()?;
        let mut options = Vec::new();
        options.extend(self.quick.then(|| "--quick".to_owned()));
        options.extend(self.only.iter().map(|case| format!("--only={case}")));
        let by_case = matches!(self.shard_by, ShardByArg::Case);
        options.extend(by_case.then(|| "--shard-by=case".to_owned()));
        let budget = self.late_budget;
        options.extend(budget.map(|budget| format!("--late-budget={budget}")));
        let folders = allowed.iter();
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

    /// Joins the records into `out` and shows the report.
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
            // A shard that holds less than it says.
            (missing, _) => Err(anyhow!(
                "{} missing; `farwire merge` names them",
                counted(missing, "run")
            )
            .into()),
        }
    }

    /// Says how far the submit of `directory` is; `instead` where the JSON goes to standard output.
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

/// Joins what there is, and says what is missing and why.
fn given_up(records: &[PathBuf], out: &Path, causes: &[String]) -> Failure {
    let joined = match records {
        [] => Ok("no run took place".to_owned()),
        records => Merge::of(records).and_then(|merge| {
            put(&merge, out)?;
            let missing = counted(merge.missing().len(), "run");
            Ok(format!(
                "{missing} missing, {} holds the others",
                out.display()
            ))
        }),
    };
    let joined = joined.unwrap_or_else(|error| format!("{error:#}"));
    anyhow!(
        "two arrays in a row brought nothing new; {}; {joined}; the same command tries again",
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
