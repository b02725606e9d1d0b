//! `farwire calibrate`: compares the instruments with the packet log of the emulator.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::args::api_server::LiveRuns;
use super::args::experiment_run::{ExperimentArgs, FinishedExperiment};
use crate::experiment::grid;
use crate::notes;
use crate::toml_file::{SourceFile, text_of};
use instruments::failure::Failure;
use instruments::output;
use record::GivenScenario;
use report::analysis::calibration::CalibrationReport;

/// Find out which instrument to trust on this machine, and for what
///
/// Every instrument measures alone over a grid of links, and its figures are compared with the emulator's own log of every packet.
/// The report says under which conditions each figure can be trusted, and why not under the others. calibrate also writes it beside
/// the record, as calibration.md and calibration.json.
#[derive(Args, Debug)]
#[command(
    override_usage = "farwire calibrate [OPTIONS] [GRID]\n       farwire calibrate [OPTIONS] --resume DIR"
)]
pub(crate) struct CalibrateArgs {
    /// Your own grid: a scenario, each of whose cases runs once for each of its instruments [default: built in]
    #[arg(conflicts_with = "resume")]
    grid: Option<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

impl CalibrateArgs {
    /// Calibrates. The exit code is 0 if the intervals of every instrument contain the truth in at least 90 % of its cells, else 1.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let given = |quick| {
            let given = self.given()?;
            let source = SourceFile {
                file: &given.file,
                text: &given.text,
                also: &self.experiment.named_files(),
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

    /// Returns the grid of the command line, or the built-in one.
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

    /// Writes the report beside the record, and to standard output unless its JSON goes there.
    fn show(&self, finished: &FinishedExperiment, calibration: &CalibrationReport) -> Result<()> {
        let within = &finished.directory;
        let text = report::calibration_markdown(calibration);
        output::write_beside(within, "calibration.md", &text)?;
        output::write_beside(within, "calibration.json", &output::json(calibration)?)?;
        let json = self.experiment.json.as_deref();
        let text = report::calibration_text(calibration, super::terminal());
        super::show(json, calibration, &text, notes::beside())
    }
}
