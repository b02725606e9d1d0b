//! `farwire run`: experiments, or the missing rest of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;

use super::args::api_server::{ListenArg, LiveRuns};
use super::args::capture::CaptureArgs;
use super::args::experiment_run::{ExperimentArgs, FinishedExperiment, ShardByArg, write_beside};
use super::args::screen::TuiArg;
use crate::experiment::captures::RunCaptures;
use crate::experiment::scenario;
use crate::notes::note;
use crate::{exit, notes};
use instruments::failure::{Blame, Failure};
use record::{GivenScenario, ShardNumber};
use report::Listed;
use report::analysis::{Analysis, Verdict};

/// The page of several experiments, beside their folders.
const INDEX: &str = "index.html";

/// Run an experiment
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The scenario, a TOML file; several run one after the other, each into a folder of its own below --out [default: out/], with an
    /// index.html of their reports there
    #[arg(
        required_unless_present = "resume",
        conflicts_with = "resume",
        value_name = "SCENARIO"
    )]
    scenarios: Vec<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Only this part of the runs, as 3/16: the longest first, each to the part that has the least to do, alike on every host; `farwire
    /// merge` joins the records of all parts. What is expected is for the joined record to show: a part ends with 0 when its runs took place
    #[arg(long, value_name = "N/M", conflicts_with = "resume")]
    shard: Option<ShardNumber>,
    /// What stays together in one shard; a case whose runs say how many it has always does
    #[arg(long, value_name = "UNIT", default_value = "run", requires = "shard")]
    shard_by: ShardByArg,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
    /// Capture every packet of every run at both ends of its links, to artifacts/PREFIX-CASE-REPEAT.pcapng beside the record, with what became
    /// of it as its comment
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<String>,
    #[command(flatten)]
    captured: CaptureArgs,
    /// End with all that the record says: every headline, spread, warm-up, conditions, the machine
    #[arg(long)]
    details: bool,
}

impl RunArgs {
    /// Runs the experiments; 0 when all expectations are met, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let captures = self.pcap.as_deref();
        let captures = captures.map(|prefix| RunCaptures::new(prefix, self.captured.spec(true)));
        let captures = captures.transpose().or_bad_input()?;
        let scenario = self.scenarios.first().and_then(|file| file.file_stem());
        let name = scenario.unwrap_or("run".as_ref()).to_string_lossy();
        let listening = self.listen.open(&name)?;
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

    /// One experiment with its report; nothing where only its plan was asked for.
    fn one(
        &self,
        file: &Path,
        experiment: &ExperimentArgs,
        live: &mut LiveRuns,
    ) -> Result<Option<FinishedExperiment>, Failure> {
        let given = |quick| {
            let (text, plan) = scenario::read(file, experiment.allowed(), quick)?;
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

    /// All of `files`, also where one of them fails, and the page of those that ran. A file that cannot be read stops
    /// them before the first one runs, a signal ends them all.
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
                    write_beside(folder, INDEX, &report::index(&listed, &[])?)?;
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
            false => Err(anyhow!("not all that is expected is met: {}", wrong.join(", ")).into()),
        }
    }

    /// How each of several scenarios is run.
    ///
    /// # Errors
    /// One of them cannot be read, or two have one name.
    fn experiments<'f>(
        &self,
        files: &'f [PathBuf],
    ) -> Result<Vec<(&'f Path, ExperimentArgs)>, Failure> {
        let mut names: BTreeMap<String, &Path> = BTreeMap::new();
        let experiment = |file: &'f PathBuf| {
            let ExperimentArgs { quick, .. } = self.experiment;
            let (_, plan) =
                scenario::read(file, self.experiment.allowed(), quick).or_bad_input()?;
            let experiment = self.experiment.of_several(&plan.name)?;
            match names.insert(plan.name.clone(), file) {
                None => Ok((file.as_path(), experiment)),
                Some(other) => Err(Failure::bad_input(format_args!(
                    "{} and {} are both called `{}`: run one of them by itself",
                    other.display(),
                    file.display(),
                    plan.name
                ))),
            }
        };
        files.iter().map(experiment).collect()
    }
}

/// Whether everything expected is met; of a shard, which cannot know, whether its runs took place.
fn is_met(finished: &FinishedExperiment) -> bool {
    let record = &finished.record;
    match record.plan().shard {
        None => Analysis::of(record).verdict == Verdict::Met,
        Some(_) => record.finished_at.is_some(),
    }
}
