//! `farwire doctor`: what this machine offers.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::doctor::Diagnosis;
use instruments::failure::Failure;

/// Say what this machine offers, what each missing thing costs, and the way round it
///
/// Everything is really tried, in namespaces that are gone afterwards. Ends with 0 when all that farwire cannot do
/// without is there, else with 3.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Write the checks as JSON; - is standard output, in place of the lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where what was found begins in a line.
const INDENT: usize = 33;

impl DoctorArgs {
    /// Examines the machine.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let diagnosis = Diagnosis::make();
        super::show(
            self.json.as_deref(),
            &diagnosis,
            &report::hanging(&diagnosis.to_string(), super::terminal(), INDENT),
            io::sink(),
        )?;
        match diagnosis.is_fit() {
            true => Ok(ExitCode::SUCCESS),
            false => Err(Failure::machine(
                "this machine lacks what is marked missing",
            )),
        }
    }
}
