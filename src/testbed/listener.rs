//! Starts servers in a namespace and waits until they listen.

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use netio::sandbox::{self, Capability, Threads};

use instruments::endpoint::Local;
use instruments::external::{Launcher, Running, Tool};
use instruments::serve::{self, FarEndServer, ServeConfig, ServiceLimits, ServicePorts};

/// The time within which a tool must listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts farwire's own far end in `namespace`, on `address`, for this number of clients.
pub(super) fn start_far_end(
    namespace: &NetNs,
    address: IpAddr,
    congestion: &str,
    clients: u16,
) -> Result<FarEndServer> {
    let config = ServeConfig {
        bind: Some(Local::Address(address)),
        ports: ServicePorts::IN_BED,
        congestion: Some(congestion.to_owned()),
        limits: ServiceLimits::in_bed(clients),
        ..ServeConfig::default()
    };
    serve_confined(namespace, config)
}

/// Starts farwire's own far end in `namespace`. Its threads keep only CAP_NET_ADMIN within the
/// namespace, with which they may set any congestion control.
pub(crate) fn serve_confined(namespace: &NetNs, config: ServeConfig) -> Result<FarEndServer> {
    let start = || {
        let bound = serve::bind(config)?;
        let kept = [Capability::CAP_NET_ADMIN]
            .into_iter()
            .chain(bound.needs().iter().copied());
        sandbox::confine_far_end(&kept.collect::<Vec<_>>(), Threads::Calling)?;
        anyhow::Ok(bound.start()?)
    };
    namespace.run(start)?.context("the far end")
}

/// Starts `tool` as a contained server in `namespace` and waits until it listens on `port`.
pub(super) fn serve_in(
    namespace: &NetNs,
    tool: &Tool,
    arguments: &[String],
    port: u16,
) -> Result<Running> {
    let running = namespace.run(|| Launcher::InTestBed.start(tool, arguments))??;
    let listens = await_listener(namespace, Some(port), LISTEN_TIMEOUT)?;
    ensure!(
        listens,
        "{} did not listen on port {port} within {LISTEN_TIMEOUT:?}",
        tool.path.display()
    );
    Ok(running)
}

/// Waits for at most `longest` until a socket in `namespace` listens on `port`, or on any port if
/// `None`, with TCP or UDP. Returns true if one does.
pub(crate) fn await_listener(
    namespace: &NetNs,
    port: Option<u16>,
    longest: Duration,
) -> Result<bool> {
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    let end = Instant::now() + longest;
    namespace.run(|| -> Result<bool> {
        while !is_listening(port)? {
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(true)
    })?
}

/// Reads /proc/net/tcp and udp. The states (include/net/tcp_states.h) are 0A for a listener and 07
/// for an unconnected UDP socket.
fn is_listening(port: Option<u16>) -> Result<bool> {
    for (table, state) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        let path = format!("/proc/thread-self/net/{table}");
        // There are no tables for IPv6 if the kernel lacks it.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let mut rows = text.lines().skip(1).map(|line| line.split_whitespace());
        if rows.any(|mut row| listens(&mut row, state, port)) {
            return Ok(true);
        }
    }
    fs::metadata("/proc/thread-self/net").context("looking for listeners")?;
    Ok(false)
}

/// Returns true if a row describes a socket in this state and, if given, on this port. The columns
/// are a number, the local address with its port in hexadecimal, the remote address, and the state.
fn listens<'a>(row: &mut impl Iterator<Item = &'a str>, state: &str, port: Option<u16>) -> bool {
    let local = row.nth(1).and_then(|local| local.rsplit_once(':'));
    let at = local.and_then(|(_, digits)| u16::from_str_radix(digits, 16).ok());
    row.nth(1) == Some(state) && (port.is_none() || port == at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_identified_by_its_state_and_port() {
        let row = "   0: 0100007F:1389 00000000:0000 0A 00000000:00000000 00:00000000";
        let matches = |state, port| listens(&mut row.split_whitespace(), state, port);
        assert!(matches("0A", None) && matches("0A", Some(5001)));
        assert!(!matches("07", None) && !matches("0A", Some(5002)));
        assert!(!listens(&mut "".split_whitespace(), "0A", None));
    }
}
