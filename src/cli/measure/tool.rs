//! `--tool`: another program in the place of farwire's own instrument.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum;

use crate::endpoint::Local;
use crate::exit::{Blame, Failure};
use crate::instrument::external::{self, Here, curl, iperf, iperf3, nuttcp, wget};
use crate::instrument::http::HttpTarget;
use crate::instrument::iperf3::plan::Plan;
use crate::instrument::ping::PingPlan;
use crate::instrument::{Measurement, Session};

/// What ping may take beyond its plan before it is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// What measures streams of TCP or UDP; the server must be of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StreamTool {
    /// The iperf3 on PATH (Debian: iperf3)
    Iperf3,
    /// The iperf 2 on PATH (Debian: iperf)
    Iperf,
    /// The nuttcp on PATH (Debian: nuttcp)
    Nuttcp,
}

/// What downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DownloadTool {
    /// The wget on PATH (Debian: wget)
    Wget,
    /// The curl on PATH (Debian: curl)
    Curl,
}

/// What pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PingTool {
    /// The ping on PATH (Debian: iputils-ping)
    Ping,
}

impl StreamTool {
    /// Where its server listens unless told otherwise.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Iperf3 => iperf3::PORT,
            Self::Iperf => iperf::PORT,
            Self::Nuttcp => nuttcp::PORT,
        }
    }

    /// Measures in the calling thread's namespace.
    ///
    /// # Errors
    /// The tool is not here, or has no option for something in the plan.
    pub(super) fn measure(
        self,
        target: SocketAddr,
        plan: &Plan,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        let checked = match self {
            Self::Iperf3 => iperf3::check(target, plan, local),
            Self::Iperf => iperf::check(target, plan, local),
            Self::Nuttcp => nuttcp::check(target, plan, local),
        };
        checked.or_bad_input()?;
        let found = match self {
            Self::Iperf3 => iperf3::tool(),
            Self::Iperf => iperf::tool(),
            Self::Nuttcp => nuttcp::tool(),
        };
        found.or_machine()?;
        Ok(match self {
            Self::Iperf3 => iperf3::measure(&Here, target, plan, local, session),
            Self::Iperf => iperf::measure(&Here, target, plan, local, session),
            Self::Nuttcp => nuttcp::measure(&Here, target, plan, local, session),
        })
    }
}

impl DownloadTool {
    /// As [`StreamTool::measure`].
    ///
    /// # Errors
    /// As [`StreamTool::measure`].
    pub(super) fn measure(
        self,
        target: &HttpTarget,
        interval: Duration,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Measurement, Failure> {
        Ok(match self {
            Self::Wget => {
                wget::check(target, local).or_bad_input()?;
                wget::tool().or_machine()?;
                wget::measure(&Here, target, interval, local, &session.stop)
            }
            Self::Curl => {
                curl::tool().or_machine()?;
                curl::measure(&Here, target, local, session)
            }
        })
    }
}

impl PingTool {
    /// As [`StreamTool::measure`].
    ///
    /// # Errors
    /// As [`StreamTool::measure`].
    pub(super) fn measure(
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
                Ok(external::ping::measure(&Here, target, plan, local, stop))
            }
        }
    }
}
