//! What a test was asked for and how it was connected: `start` of iperf3's JSON.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::plan::{Plan, Protocol, Until, Way};
use super::wire::Cookie;

/// Of streams by their numbers, with their addresses here and there. iperf3 numbers streams by descriptor; here the
/// stream's own number stands for it.
pub(crate) fn start(
    plan: &Plan,
    server: SocketAddr,
    cookie: Cookie,
    connected: &[(u32, [SocketAddr; 2])],
) -> Value {
    let connected = connected.iter().map(|(id, [local, remote])| {
        json!({
            "socket": id,
            "local_host": local.ip().to_canonical(),
            "local_port": local.port(),
            "remote_host": remote.ip().to_canonical(),
            "remote_port": remote.port(),
        })
    });
    let (duration, bytes) = match plan.until {
        Until::For(time) => (time.as_secs_f64(), 0),
        Until::Bytes(bytes) => (0.0, bytes),
    };
    json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": concat!("farwire ", env!("CARGO_PKG_VERSION")),
        "connecting_to": { "host": server.ip(), "port": server.port() },
        "cookie": format!("{cookie:?}"),
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
