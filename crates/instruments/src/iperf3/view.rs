//! What tests of TCP and UDP share of iperf3's JSON.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::messages::Sides;
use super::plan::{Plan, Protocol, Until, Way};
use super::wire::Cookie;

/// A test and the addresses of its streams.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) server: SocketAddr,
    pub(crate) cookie: Cookie,
    /// A stream's number, its address here and its address there.
    pub(crate) connected: Vec<(u32, [SocketAddr; 2])>,
}

impl Setting<'_> {
    /// iperf3 numbers streams by descriptor; here the stream's own number stands for it.
    pub(crate) fn start(&self) -> Value {
        let connected: Vec<_> = self
            .connected
            .iter()
            .map(|(id, [local, remote])| {
                json!({
                    "socket": id,
                    "local_host": local.ip().to_canonical(),
                    "local_port": local.port(),
                    "remote_host": remote.ip().to_canonical(),
                    "remote_port": remote.port(),
                })
            })
            .collect();
        let plan = self.plan;
        let (duration, bytes) = match plan.until {
            Until::For(time) => (time.as_secs_f64(), 0),
            Until::Bytes(bytes) => (0.0, bytes),
        };
        json!({
            "connected": connected,
            "version": concat!("farwire ", env!("CARGO_PKG_VERSION")),
            "connecting_to": { "host": self.server.ip(), "port": self.server.port() },
            "cookie": format!("{:?}", self.cookie),
            "target_bitrate": plan.bitrate.unwrap_or(0),
            "sock_bufsize": plan.window.unwrap_or(0),
            "test_start": {
                "protocol": match plan.protocol {
                    Protocol::Tcp => "TCP",
                    Protocol::Udp => "UDP",
                },
                "num_streams": plan.parallel,
                "blksize": plan.length.unwrap_or(0),
                "omit": plan.omit.as_secs(),
                "duration": duration,
                "bytes": bytes,
                "blocks": 0,
                "reverse": u8::from(plan.way == Way::Down),
                "bidir": u8::from(plan.way == Way::Both),
                "tos": plan.tos.unwrap_or(0),
                "target_bitrate": plan.bitrate.unwrap_or(0),
            },
        })
    }

    /// A test that never ran.
    pub(crate) fn failed(&self, cause: &str) -> Value {
        json!({ "start": self.start(), "intervals": [], "end": {}, "error": cause })
    }
}

/// iperf3 calls the direction that it was started for `sum`, and in tests of both the other one `sum_bidir_reverse`.
pub(crate) fn sum_name(plan: &Plan, name: &str, sends: bool) -> String {
    let reverse = if plan.way == Way::Both && !sends {
        "_bidir_reverse"
    } else {
        ""
    };
    format!("{name}{reverse}")
}

/// `cpu_utilization_percent`; what the other end did not say is not there.
pub(crate) fn cpu(sides: &Sides) -> Value {
    let [total, user, system] = sides.local.cpu_percent;
    let mut cpu = json!({ "host_total": total, "host_user": user, "host_system": system });
    if let Some([total, user, system]) = sides.remote.as_ref().map(|remote| remote.cpu_percent) {
        cpu["remote_total"] = total.into();
        cpu["remote_user"] = user.into();
        cpu["remote_system"] = system.into();
    }
    cpu
}
