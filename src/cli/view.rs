//! `farwire view`: serves records and their reports to a browser.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;

use crate::experiment::record_directory;
use crate::notes::note;
use crate::web::{Listen, Records, WebServer};
use instruments::failure::{Blame, Failure};
use netio::stop::Stop;

/// The interval at which signals are checked.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Serve past records and their reports to a browser, until a signal ends it
///
/// DIR is the directory of a record, or a directory that contains such directories, as out/ does. The page lists the records with
/// their verdicts. Each report is made from its record when you open it.
#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    /// Directory of a record, or of several records
    #[arg(value_name = "DIR", default_value = record_directory::OUT)]
    folder: PathBuf,
    /// Loopback address or unix:PATH to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7700")]
    listen: Listen,
}

impl ViewArgs {
    /// Serves the records until a signal comes.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let records = Records::of(self.folder.clone());
        let folder = self.folder.display();
        let names = records.names().with_context(|| folder.to_string());
        if names.or_bad_input()?.is_empty() {
            let why = anyhow!("{folder}: there is neither a record nor a directory of one");
            return Err(why).or_bad_input();
        }
        // Signals are caught before a socket exists that a signal would leave behind.
        let stop = Stop::on_signals()?;
        let listening = self.listen.open_local().or_bad_input()?;
        let said = format!("farwire: reports of {folder}: {listening}");
        let server = WebServer::of_records(listening, records)?;
        note(said);
        while stop.cause().is_none() {
            thread::sleep(STOP_INTERVAL);
        }
        drop(server);
        Ok(ExitCode::SUCCESS)
    }
}
