//! `farwire doctor`: checks this machine.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::doctor::Diagnosis;
use instruments::failure::Failure;

/// Check what this machine supports, what each missing part means, and what to do about it
///
/// doctor tries every part, in namespaces that end with the command. `ok` means that it works, `degraded` that farwire works
/// with limits, and `missing` that farwire cannot work. The last line says which commands work on this machine.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Write the checks as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The column in which the result of a check begins.
const INDENT: usize = 33;

impl DoctorArgs {
    /// Examines the machine.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let diagnosis = Diagnosis::make();
        let checks = report::hanging(&diagnosis.to_string(), super::terminal(), INDENT);
        let text = format!("{checks}{}\n", diagnosis.uses());
        super::show(self.json.as_deref(), &diagnosis, &text, io::sink())?;
        match diagnosis.is_fit() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(Failure::machine(
                "this machine lacks the parts that are marked missing",
            )),
        }
    }
}
