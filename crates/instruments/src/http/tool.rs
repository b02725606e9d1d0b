//! `--tool`: another program in the place of farwire's own download.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_INTERVAL, HttpTarget, curl, wget};
use crate::Session;
use crate::endpoint::Local;
use crate::external::Tool;
use crate::failure::{Blame, Failure};
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
        Ok(match self {
            Self::Wget => {
                wget::check(target, local).or_bad_input()?;
                wget::tool().or_machine()?;
                let interval = interval.unwrap_or(DEFAULT_INTERVAL);
                wget::measure(session.launcher(), target, interval, local, &session.stop)
            }
            Self::Curl => {
                if interval.is_some() {
                    let cause = "curl says nothing until it is done: it has no use for --interval";
                    return Err(Failure::bad_input(cause));
                }
                curl::tool().or_machine()?;
                curl::measure(session.launcher(), target, local, session)
            }
        })
    }
}
