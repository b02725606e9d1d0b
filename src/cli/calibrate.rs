//! `farwire calibrate`: the instruments against known truth.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::args::api_server::LiveRuns;
use super::args::experiment_run::{ExperimentArgs, FinishedExperiment, write_beside};
use crate::experiment::grid;
use crate::notes;
use crate::toml_file::{SourceFile, text_of};
use instruments::failure::Failure;
use instruments::output;
use record::GivenScenario;
use report::analysis::calibration::CalibrationReport;

/// Hold the instruments against known truth
///
/// Runs every instrument alone over a grid of links whose truth the emulator counts, and prints a report: which instrument to
/// trust for what, under which conditions, and why not elsewhere. calibration.md and calibration.json go beside the record.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// A grid of one's own: a scenario, each case of which is run once for each of its instruments
    #[arg(conflicts_with = "resume")]
    grid: Option<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

impl CalibrateArgs {
    /// Calibrates; 0 when every instrument's intervals hold the truth in at least 90 % of its cells, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let given = |quick| {
            let given = self.given()?;
            let source = SourceFile {
                file: &given.file,
                text: &given.text,
                also: self.experiment.allowed(),
            };
            let plan = grid::parse(source, quick)?;
            Ok((given, plan))
        };
        let Some(finished) = self.experiment.run(
            "calibrate",
            given,
            grid::one_by_one,
            None,
            &mut LiveRuns::nowhere(),
        )?
        else {
            return Ok(ExitCode::SUCCESS);
        };
        let calibration = CalibrationReport::of(&finished.record);
        self.show(&finished, &calibration)?;
        finished.conclude()?;
        Ok(super::exit_code(calibration.is_met()))
    }

    /// The grid that was asked for.
    fn given(&self) -> Result<GivenScenario> {
        Ok(match &self.grid {
            None => GivenScenario {
                file: grid::BUILT_IN.to_owned(),
                text: grid::TEXT.to_owned(),
            },
            Some(path) => GivenScenario {
                file: path.display().to_string(),
                text: text_of(path)?,
            },
        })
    }

    /// The report beside the record, and to standard output unless its JSON goes there.
    fn show(&self, finished: &FinishedExperiment, calibration: &CalibrationReport) -> Result<()> {
        let within = &finished.directory;
        let text = report::calibration_markdown(calibration);
        write_beside(within, "calibration.md", &text)?;
        write_beside(within, "calibration.json", &output::json(calibration)?)?;
        let json = self.experiment.json.as_deref();
        let text = report::calibration_text(calibration, super::terminal());
        super::show(json, calibration, &text, notes::beside())
    }
}
