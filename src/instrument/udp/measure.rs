//! `measure udp`: a test of UDP against any iperf3 server.

use anyhow::Result;

use super::streams::{End, UdpStreams};
use super::{greeting, line, report};
use crate::endpoint;
use crate::instrument::iperf3::client::{self, Opening, Server};
use crate::instrument::iperf3::params::Params;
use crate::instrument::iperf3::plan::Plan;
use crate::instrument::{Measurement, Session};

/// Measures `plan` against `server` from the calling thread's namespace; with a line an interval.
pub(crate) fn measure(server: &Server, plan: &Plan, session: &Session) -> (Measurement, String) {
    let params = Params {
        plan: plan.clone(),
        udp_counters_64bit: true,
    };
    let tested = client::run(server, &params, session, open);
    let Some(streams) = &tested.streams else {
        let cause = tested.failure.unwrap_or_default();
        let failed = Measurement::failed(cause).with_fact("server", server.address);
        return (failed, String::new());
    };
    let mut measurement =
        report::measurement(streams, &tested.sides).with_fact("server", server.address);
    measurement.failure = tested.failure.or(measurement.failure);
    (
        measurement,
        line::all(streams.readings(), streams.started()),
    )
}

/// Greets the server from one socket after another: it counts the streams as they come.
fn open(opening: &Opening<'_>) -> Result<UdpStreams> {
    let server = opening.server;
    let mut sockets = Vec::new();
    for _ in &opening.streams {
        let socket = endpoint::udp(server.address, server.local.as_ref())?;
        greeting::greet(&socket, opening.stop)?;
        sockets.push(socket);
    }
    UdpStreams::new(opening.params, &opening.streams, sockets, End::Client)
}
