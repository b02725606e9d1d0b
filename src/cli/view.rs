//! `farwire view`: past records and their reports in a browser.

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

/// How often the signals are looked at.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Show past records and their reports in a browser, until it is ended
///
/// DIR is a record's folder, or one that holds such folders, as out/ does. A page lists them with their verdicts; each report is made of its
/// record when it is asked for.
#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    /// The folder
    #[arg(value_name = "DIR", default_value = record_directory::OUT)]
    folder: PathBuf,
    /// Where: an address of the loopback, or unix:PATH
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7700")]
    listen: Listen,
}

impl ViewArgs {
    /// Serves them until a signal comes.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let records = Records::of(self.folder.clone());
        let folder = self.folder.display();
        let names = records.names().with_context(|| folder.to_string());
        if names.or_bad_input()?.is_empty() {
            let why = anyhow!("{folder}: neither a record nor a folder of one is there");
            return Err(why).or_bad_input();
        }
        // Before there is a socket that a signal would leave.
        let stop = Stop::on_signals()?;
        let listening = self.listen.open_local().or_bad_input()?;
        let said = format!("farwire: the reports of {folder} are at {listening}");
        let server = WebServer::of_records(listening, records)?;
        note(said);
        while stop.cause().is_none() {
            thread::sleep(STOP_INTERVAL);
        }
        drop(server);
        Ok(ExitCode::SUCCESS)
    }
}
