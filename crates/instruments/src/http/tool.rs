//! `--tool`: another program in the place of farwire's own download.

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

/// What downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DownloadTool {
    /// The wget on PATH (Debian: wget)
    Wget,
    /// The curl on PATH (Debian: curl)
    Curl,
}

impl DownloadTool {
    /// The one on PATH.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn found(self) -> Result<Tool> {
        match self {
            Self::Wget => wget::tool(),
            Self::Curl => curl::tool(),
        }
    }

    /// Measures in the calling thread's namespace, with samples of so long, or of [`DEFAULT_INTERVAL`].
    ///
    /// # Errors
    /// The tool is not here, or has no option for something that is asked for.
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
