//! `--tool`: another program in place of farwire's own download.

use crate::error::Result;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INTERVAL, HttpTarget, curl, wget};
use crate::Session;
use crate::endpoint::Local;
use crate::external::Tool;
use crate::failure::Failure;
use record::Measurement;

/// The programs that can download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DownloadTool {
    /// The wget on PATH (Debian: wget)
    Wget,
    /// The curl on PATH (Debian: curl)
    Curl,
}

impl DownloadTool {
    /// Returns the program on PATH.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    pub(crate) fn find_tool(self) -> Result<Tool> {
        match self {
            Self::Wget => wget::tool(),
            Self::Curl => curl::tool(),
        }
    }

    /// Measures in the calling thread's network namespace, with samples of `interval` or of [`DEFAULT_INTERVAL`].
    ///
    /// # Errors
    /// Returns a failure if the tool is not installed, or has no option for one of the arguments.
    pub(crate) fn measure(
        self,
        target: &HttpTarget,
        interval: Option<Duration>,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        match (self, interval) {
            (Self::Wget, _) => {
                let interval = interval.unwrap_or(DEFAULT_INTERVAL);
                wget::measure(target, interval, local, session)
            }
            (Self::Curl, None) => curl::measure(target, local, session),
            (Self::Curl, Some(_)) => Err(Failure::bad_input(
                "curl prints nothing until it is done: leave --interval out",
            )),
        }
    }
}
