//! `farwire run`: an experiment, or the missing rest of one.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::experiment::ExperimentArgs;
use crate::experiment::scenario;
use instruments::failure::Failure;
use instruments::output;
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
        let text = report::text(
            &finished.record,
            output::coloured(io::stdout().is_terminal()),
        );
        let json = self.experiment.json.as_deref();
        super::show(json, &finished.record, &text, io::stderr())?;
        finished.conclude()?;
        Ok(match Analysis::of(&finished.record).verdict {
            Verdict::Met => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}
