//! `--tool`: another program in the place of farwire's own instrument.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::endpoint::{self, Family, Local};
use crate::external;
use crate::external::iperf::Iperf;
use crate::external::iperf3::Iperf3;
use crate::external::nuttcp::Nuttcp;
use crate::external::streams;
use crate::external::streams::StreamTest;
use crate::external::{Tool, curl, wget};
use crate::failure::{Blame, Failure};
use crate::http::DEFAULT_INTERVAL;
use crate::http::HttpTarget;
use crate::iperf3::plan::{Plan, Way};
use crate::ping::PingPlan;
use record::Measurement;

/// What ping may take beyond its plan before it is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// What measures streams of TCP or UDP; the server must be of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StreamTool {
    /// The iperf3 on PATH (Debian: iperf3)
    Iperf3,
    /// The iperf 2 on PATH (Debian: iperf)
    Iperf,
    /// The nuttcp on PATH (Debian: nuttcp)
    Nuttcp,
}

/// What downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DownloadTool {
    /// The wget on PATH (Debian: wget)
    Wget,
    /// The curl on PATH (Debian: curl)
    Curl,
}

/// What pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PingTool {
    /// The ping on PATH (Debian: iputils-ping)
    Ping,
}

/// A tool's own server, to run at the far end.
pub struct FarTool {
    /// The program.
    pub tool: Tool,
    /// What it is started with.
    pub arguments: Vec<String>,
    /// Where it listens.
    pub port: u16,
}

impl StreamTool {
    /// Where its server listens unless told otherwise.
    pub(crate) fn port(self) -> u16 {
        self.external().port()
    }

    /// The one on PATH.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn found(self) -> Result<Tool> {
        self.external().tool()
    }

    /// The server that it needs at `host` for `plan`, where that is not farwire's.
    ///
    /// # Errors
    /// It is not there, or has no option for something in the plan.
    pub(crate) fn server(self, host: &str, plan: &Plan) -> Result<Option<FarTool>> {
        let tool = self.external();
        tool.check(plan)?;
        let port = tool.port();
        let target = endpoint::resolve(host, port, Family::Any)?;
        let Some(arguments) = tool.server_arguments(target, plan) else {
            return Ok(None);
        };
        Ok(Some(FarTool {
            tool: tool.tool()?,
            arguments,
            port,
        }))
    }

    /// Measures in the calling thread's namespace.
    ///
    /// # Errors
    /// The tool is not here, or has no option for something that is asked for.
    pub(crate) fn measure(
        self,
        test: &StreamTest<'_>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        let by = self.external();
        let mut plan = test.plan.clone();
        if session.in_bed && plan.way == Way::Down {
            // The server that sends was started with it.
            plan.congestion = None;
        }
        let test = &StreamTest {
            plan: &plan,
            ..*test
        };
        streams::command_line(by, test).or_bad_input()?;
        by.tool().or_machine()?;
        Ok(streams::measure(by, session.launcher(), test, session))
    }

    fn external(self) -> &'static dyn streams::StreamTool {
        match self {
            Self::Iperf3 => &Iperf3,
            Self::Iperf => &Iperf,
            Self::Nuttcp => &Nuttcp,
        }
    }
}

impl DownloadTool {
    /// As [`StreamTool::found`].
    ///
    /// # Errors
    /// As [`StreamTool::found`].
    pub(crate) fn found(self) -> Result<Tool> {
        match self {
            Self::Wget => wget::tool(),
            Self::Curl => curl::tool(),
        }
    }

    /// As [`StreamTool::measure`], with samples of so long, or of [`DEFAULT_INTERVAL`].
    ///
    /// # Errors
    /// As [`StreamTool::measure`].
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

impl PingTool {
    /// As [`StreamTool::found`].
    ///
    /// # Errors
    /// As [`StreamTool::found`].
    pub(crate) fn found(self) -> Result<Tool> {
        match self {
            Self::Ping => external::ping::tool(),
        }
    }

    /// As [`StreamTool::measure`].
    ///
    /// # Errors
    /// As [`StreamTool::measure`].
    pub(crate) fn measure(
        self,
        target: IpAddr,
        plan: &PingPlan,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        match self {
            Self::Ping => {
                external::ping::tool().or_machine()?;
                let stop = &session.stop.within(plan.longest() + GRACE);
                let launcher = session.launcher();
                Ok(external::ping::measure(launcher, target, plan, local, stop))
            }
        }
    }
}
