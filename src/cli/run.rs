//! `farwire run`: runs experiments, or the missing runs of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;

use super::args::api_server::{ListenArg, LiveRuns};
use super::args::capture::CaptureArgs;
use super::args::experiment_run::{self, ExperimentArgs, FinishedExperiment, ShardByArg};
use super::args::headings;
use super::args::screen::TuiArg;
use crate::experiment::captures::RunCaptures;
use crate::experiment::scenario;
use crate::notes::note;
use crate::{exit, notes};
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::{GivenScenario, ShardNumber};
use report::Listed;
use report::analysis::{Analysis, Verdict};

/// The page of several experiments, beside their directories.
const INDEX: &str = "index.html";

/// Run an experiment from a scenario file, and report it
///
/// An experiment measures through emulated links, case by case, and repeats the measurements. Its record survives interruptions:
/// --resume continues it. docs/scenarios.md describes scenario files.
#[derive(Args, Debug)]
#[command(
    override_usage = "farwire run [OPTIONS] SCENARIO...\n       farwire run [OPTIONS] --resume DIR"
)]
pub(crate) struct RunArgs {
    /// Scenario, a TOML file; several scenarios run one after the other
    ///
    /// Scenario, a TOML file. Several scenarios run one after the other, each into its own directory below --out, with an index.html of
    /// their reports
    #[arg(
        required_unless_present = "resume",
        conflicts_with = "resume",
        value_name = "SCENARIO"
    )]
    scenarios: Vec<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Run only one of several shards, such as 3/16; `farwire merge` joins the records
    ///
    /// Run only one of several shards, such as 3/16. Every host divides the runs in the same way, into shards of similar duration, and
    /// `farwire merge` joins the records. A shard does not judge expectations: its exit code is 0 when its runs took place
    #[arg(long, value_name = "N/M", conflicts_with = "resume", help_heading = experiment_run::RUNS_HEADING, hide_short_help = true)]
    shard: Option<ShardNumber>,
    /// Unit that stays together in one shard
    #[arg(long, value_name = "UNIT", default_value = "run", requires = "shard", help_heading = experiment_run::RUNS_HEADING, hide_short_help = true)]
    shard_by: ShardByArg,
    /// Print every detail at the end: all figures, spread, warm-up, conditions, the machine
    #[arg(long, help_heading = headings::OUTPUT)]
    details: bool,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
    /// Capture both ends of each link in every run, to artifacts/PREFIX-CASE-REPEAT.pcapng
    #[arg(long, value_name = "PREFIX", help_heading = headings::OUTPUT, hide_short_help = true)]
    pcap: Option<String>,
    #[command(flatten)]
    captured: CaptureArgs,
}

impl RunArgs {
    /// Runs the experiments. The exit code is 0 if all expectations are met, else 1.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let captures = self.pcap.as_deref();
        let captures = captures.map(|prefix| RunCaptures::new(prefix, self.captured.spec(true)));
        let captures = captures.transpose().or_bad_input()?;
        let scenario = self.scenarios.first().and_then(|file| file.file_stem());
        let name = scenario.unwrap_or("run".as_ref()).to_string_lossy();
        let listening = self
            .listen
            .open(&name, &self.experiment.named_files().profiles)?;
        let mut live = LiveRuns::at(listening, self.tui.is_wanted()?, captures);
        let file = match &self.scenarios[..] {
            [] => Path::new(""),
            [file] => file,
            files => return self.several(files, &mut live),
        };
        let Some(finished) = self.one(file, &self.experiment, &mut live)? else {
            return Ok(ExitCode::SUCCESS);
        };
        finished.conclude()?;
        Ok(super::exit_code(is_met(&finished)))
    }

    /// Runs one experiment with its report. It returns `None` if only the plan is asked for.
    fn one(
        &self,
        file: &Path,
        experiment: &ExperimentArgs,
        live: &mut LiveRuns,
    ) -> Result<Option<FinishedExperiment>, Failure> {
        let given = |quick| {
            let (text, plan) = scenario::read(file, &experiment.named_files(), quick)?;
            let file = file.display().to_string();
            Ok((GivenScenario { file, text }, plan))
        };
        let shard = self.shard.map(|number| (number, self.shard_by.into()));
        let Some(finished) = experiment.run("run", given, |plan| plan, shard, live)? else {
            return Ok(None);
        };
        let text = report::text(&finished.record, self.details, super::terminal());
        let json = experiment.json.as_deref();
        super::show(json, &finished.record, &text, notes::beside())?;
        Ok(Some(finished))
    }

    /// Runs all of `files`, even if one of them fails, and writes the page of those that ran. A file that cannot be read stops
    /// them before the first one runs, and a signal ends them all.
    fn several(&self, files: &[PathBuf], live: &mut LiveRuns) -> Result<ExitCode, Failure> {
        let experiments = self.experiments(files)?;
        let folder = self.experiment.folder();
        let page = folder.join(INDEX);
        let (mut listed, mut wrong) = (Vec::new(), Vec::new());
        for (file, experiment) in experiments {
            match self.one(file, &experiment, live) {
                Ok(None) => {}
                Ok(Some(finished)) => {
                    if !is_met(&finished) {
                        wrong.push(file.display().to_string());
                    }
                    let report = finished.page();
                    let seen = report.strip_prefix(folder).unwrap_or(&report);
                    listed.push(Listed::of(&finished.record, seen.display().to_string()));
                    output::write_beside(folder, INDEX, &report::index(&listed, &[])?)?;
                    finished.conclude()?;
                }
                Err(failure) => {
                    exit::report(&failure);
                    wrong.push(file.display().to_string());
                }
            }
        }
        if !listed.is_empty() {
            note(format_args!("all reports: {}", page.display()));
        }
        match wrong.is_empty() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(anyhow!(
                "failed, or not all expectations are met: {}",
                wrong.join(", ")
            )
            .into()),
        }
    }

    /// Returns each scenario with the options of its run.
    ///
    /// # Errors
    /// A scenario cannot be read, or two have the same name.
    fn experiments<'f>(
        &self,
        files: &'f [PathBuf],
    ) -> Result<Vec<(&'f Path, ExperimentArgs)>, Failure> {
        let mut names: BTreeMap<String, &Path> = BTreeMap::new();
        let experiment = |file: &'f PathBuf| {
            let ExperimentArgs { quick, .. } = self.experiment;
            let (_, plan) =
                scenario::read(file, &self.experiment.named_files(), quick).or_bad_input()?;
            let experiment = self.experiment.of_several(&plan.name)?;
            match names.insert(plan.name.clone(), file) {
                None => Ok((file.as_path(), experiment)),
                Some(other) => Err(Failure::bad_input(format_args!(
                    "{} and {} have the same name, `{}`: run them separately",
                    other.display(),
                    file.display(),
                    plan.name
                ))),
            }
        };
        files.iter().map(experiment).collect()
    }
}

/// True if all expectations are met, or for a shard, which cannot judge them, if its runs took place.
fn is_met(finished: &FinishedExperiment) -> bool {
    let record = &finished.record;
    match record.plan().shard {
        None => Analysis::of(record).verdict == Verdict::Met,
        Some(_) => record.finished_at.is_some(),
    }
}
