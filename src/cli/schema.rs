//! `farwire schema`: the JSON Schema of scenario files, and the OpenAPI document.

use std::process::ExitCode;

use clap::Args;

use crate::experiment::scenario::schema;
use crate::web;
use instruments::failure::Failure;
use instruments::output;

/// Print the JSON Schema of scenario files, or the OpenAPI document of the live API
#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// Print the OpenAPI document of the API that --listen serves
    #[arg(long)]
    openapi: bool,
}

impl SchemaArgs {
    /// Prints it to standard output.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let text = match self.openapi {
            true => web::document(),
            false => schema(),
        };
        output::write(None, &text)?;
        Ok(ExitCode::SUCCESS)
    }
}
