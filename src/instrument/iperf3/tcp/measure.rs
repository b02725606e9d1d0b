//! `measure tcp`: a test of TCP against any iperf3 server.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::client::{self, Opening, Server};
use super::super::params::Params;
use super::super::plan::{Plan, StreamSpec};
use super::report::Report;
use super::{Options, TcpStreams, block, view};
use crate::endpoint;
use crate::instrument::{Measurement, Session};

/// A measurement, and the same as iperf3 would tell it.
#[derive(Debug)]
pub(crate) struct TcpMeasured {
    pub(crate) measurement: Measurement,
    /// iperf3's JSON: `start`, `intervals`, `end`, `error`.
    pub(crate) iperf3: Value,
    /// A table an interval and a summary, like iperf3's.
    pub(crate) text: String,
}

/// Measures `plan` against `server` from the calling thread's namespace.
pub(crate) fn measure(server: &Server, plan: &Plan, session: &Session) -> TcpMeasured {
    let plan = Plan {
        length: Some(block(plan)),
        ..plan.clone()
    };
    let params = Params {
        plan,
        udp_counters_64bit: false,
    };
    let mut connections = Vec::new();
    let tested = client::run(server, &params, session, |opening| {
        let sockets = connect_all(opening)?;
        connections = sockets.iter().filter_map(Connection::of).collect();
        Ok(TcpStreams::new(opening.plan, sockets))
    });
    let plan = &params.plan;
    let context = view::Context {
        server: server.address,
        cookie: tested.cookie,
        connections,
    };
    let Some(streams) = &tested.streams else {
        let cause = tested.failure.unwrap_or_default();
        return TcpMeasured {
            iperf3: view::failed(plan, &context, &cause),
            measurement: Measurement::failed(cause).with_fact("server", server.address),
            text: String::new(),
        };
    };
    let report = Report::new(plan, streams, &tested.sides, true);
    let mut measurement = report.measurement().with_fact("server", server.address);
    for (name, value) in context.facts() {
        measurement.facts.insert(name, value);
    }
    measurement.failure = tested.failure.or(measurement.failure);
    TcpMeasured {
        iperf3: view::iperf3(&report, &context, measurement.failure.as_deref()),
        text: view::text(&report),
        measurement,
    }
}

/// One data connection as it was set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) spec: StreamSpec,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// SO_SNDBUF and SO_RCVBUF as in effect.
    pub(crate) buffers: [usize; 2],
    /// TCP_MAXSEG as in effect.
    pub(crate) mss: u32,
}

impl Connection {
    fn of((spec, stream): &(StreamSpec, TcpStream)) -> Option<Self> {
        let socket = socket2::SockRef::from(stream);
        Some(Self {
            spec: *spec,
            local: stream.local_addr().ok()?,
            remote: stream.peer_addr().ok()?,
            buffers: [
                socket.send_buffer_size().ok()?,
                socket.recv_buffer_size().ok()?,
            ],
            mss: socket.tcp_mss().ok()?,
        })
    }
}

/// Connects the streams one after another: the server counts them as they come.
fn connect_all(opening: &Opening<'_>) -> Result<Vec<(StreamSpec, TcpStream)>> {
    let connect = |spec: &StreamSpec| -> Result<(StreamSpec, TcpStream)> {
        let server = opening.server;
        let socket = endpoint::tcp(server.address, server.local.as_ref())?;
        Options(opening.plan).before_connecting(&socket, server.address)?;
        let stream = endpoint::connect(socket, server.address, server.connect_timeout)?;
        let cookie = opening.cookie.as_bytes();
        std::io::Write::write_all(&mut &stream, cookie).context("a stream broke at its start")?;
        Ok((*spec, stream))
    };
    opening.streams.iter().map(connect).collect()
}
