//! `farwire run`: an experiment, or the missing rest of one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::experiment::ExperimentArgs;
use crate::experiment::scenario;
use crate::notes;
use instruments::failure::Failure;
use record::GivenScenario;
use report::analysis::{Analysis, Verdict};

/// Run an experiment
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The scenario, a TOML file
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// End with all that the record says: every headline, spread, warm-up, conditions, the machine
    #[arg(long)]
    details: bool,
}

impl RunArgs {
    /// Runs the experiment; 0 when all expectations are met, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let given = |quick| {
            let file = self.scenario.as_deref().unwrap_or(Path::new(""));
            let (text, plan) = scenario::read(file, quick)?;
            let file = file.display().to_string();
            Ok((GivenScenario { file, text }, plan))
        };
        let Some(finished) = self.experiment.run("run", given, |plan| plan)? else {
            return Ok(ExitCode::SUCCESS);
        };
        let text = super::report::text(&finished.record, self.details, super::terminal());
        let json = self.experiment.json.as_deref();
        super::show(json, &finished.record, &text, notes::beside())?;
        finished.conclude()?;
        Ok(match Analysis::of(&finished.record).verdict {
            Verdict::Met => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}
