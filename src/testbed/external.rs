//! The test bed `external`: an existing host. Nothing is emulated and nothing on this machine is
//! changed.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::stalls::StallWatch;
use super::{ClientWork, LinkSummaries, Testbed};
use instruments::endpoint::{self, Family};
use instruments::external::{Running, Tool};
use instruments::measure::FarEnd;
use netio::netns::NetNs;
use record::Measurement;
use record::bed::External;
use record::lateness::LateBudget;

/// The time within which the far end must answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

struct ExternalTestbed {
    stalls: StallWatch,
    host: String,
    address: IpAddr,
    http: u16,
}

/// Finds the host and the `farwire serve` that runs on it.
pub(super) fn set_up(bed: &External, late_budget: LateBudget) -> Result<Box<dyn Testbed>> {
    let target = endpoint::resolve(&bed.host, bed.http_port, Family::Any)?;
    TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).with_context(|| {
        let (host, port) = (&bed.host, bed.http_port);
        format!(
            "bed `external`: no HTTP server on port {port} of {host}: run `farwire serve` there"
        )
    })?;
    Ok(Box::new(ExternalTestbed {
        stalls: StallWatch::begin(late_budget)?,
        host: bed.host.clone(),
        address: target.ip(),
        http: bed.http_port,
    }))
}

impl Testbed for ExternalTestbed {
    fn far_end(&self) -> FarEnd {
        FarEnd {
            address: self.address,
            http: self.http,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let far_end = format!("{} ({}), not inspected", self.host, self.address);
        BTreeMap::from([("far end".to_owned(), far_end)])
    }

    fn in_client(&self, _: usize, work: ClientWork<'_>) -> Result<Measurement> {
        Ok(thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    fn serve_with(&self, _: &Tool, _: &[String], _: u16) -> Result<Option<Running>> {
        Ok(None)
    }

    fn far_namespace(&self) -> Option<&NetNs> {
        None
    }

    fn spoilt(&self) -> Option<String> {
        self.stalls.spoilt()
    }

    fn tear_down(self: Box<Self>) -> Result<LinkSummaries> {
        Ok(Vec::new())
    }
}
