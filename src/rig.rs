//! A test bed with the emulator running in it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use model::{Link, LinkConfig};
use netio::AfPacket;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT};
use netio::netns::NetNs;
use netio::userns::{self, Privilege};

use crate::forward::thread::{Options, Running};
use instruments::failure::{Blame, Failure};
use record::summary::Summary;

/// Slots of each port's receive ring: 64 MiB, the bursts of two cores that are busy elsewhere for 20 ms.
pub(crate) const RING_SLOTS: usize = 960;

/// A bed whose links are emulated.
pub(crate) struct Rig {
    bed: Bed,
    /// In the order of the bed's segments.
    running: Vec<Running>,
}

/// Makes namespaces possible for this process; to be called before it starts any thread.
pub(crate) fn gain_privilege() -> Result<(), Failure> {
    match Privilege::detect() {
        Privilege::Root => Ok(()),
        Privilege::UserNamespace => userns::enter().or_machine(),
        Privilege::None { why } => Err(Failure::machine(format!(
            "a test bed needs root, or user namespaces, which this machine refuses: {why}; \
             run as root, or see `farwire doctor`"
        ))),
    }
}

impl Rig {
    /// Builds the bed, with a segment for each of `links`, and starts to forward.
    pub(crate) fn up(bed: &BedConfig, links: Vec<(LinkConfig, Options)>) -> Result<Self> {
        let bed = Bed::build(&BedConfig {
            segments: u8::try_from(links.len()).context("so many links")?,
            ..bed.clone()
        })?;
        let forward = |(emulator, (link, options)): (&NetNs, (LinkConfig, Options))| {
            let link = Link::new(&link)?;
            let ports = emulator.run(|| -> Result<_> {
                let open = |name| AfPacket::open(name, RING_SLOTS);
                Ok([open(CLIENT_PORT)?, open(SERVER_PORT)?])
            })??;
            Running::start(ports, link, options)
        };
        let running = bed.emulators().iter().zip(links).map(forward);
        let running = running.collect::<Result<_>>()?;
        Ok(Self { bed, running })
    }

    /// Where the client runs.
    pub(crate) fn client(&self) -> &NetNs {
        self.bed.client()
    }

    /// Where the server runs.
    pub(crate) fn server(&self) -> &NetNs {
        self.bed.server()
    }

    /// From the client to the server.
    pub(crate) fn nodes(&self) -> &[NetNs] {
        self.bed.nodes()
    }

    /// Stops forwarding; what each link did, in the order of the segments.
    pub(crate) fn down(self) -> Vec<Summary> {
        let stopped = self.running.into_iter().map(Running::stop);
        stopped
            .map(|stats| crate::forward::summary::summary(&stats))
            .collect()
    }
}

/// Waits until something in `namespace` listens on `port` of TCP or UDP, or on any, at most for `patience`; whether it does.
pub(crate) fn await_listener(
    namespace: &NetNs,
    port: Option<u16>,
    patience: Duration,
) -> Result<bool> {
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    let end = Instant::now() + patience;
    namespace.run(|| -> Result<bool> {
        while !someone_listens(port)? {
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(true)
    })?
}

/// States in /proc/net/tcp and udp (include/net/tcp_states.h): 0A listens, 07 is an unconnected UDP socket.
fn someone_listens(port: Option<u16>) -> Result<bool> {
    for (table, state) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        let path = format!("/proc/thread-self/net/{table}");
        // Without IPv6 there is no table of it.
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

/// Whether a row is of a socket in this state and, if that is said, on this port: its columns are a number, the local
/// address with its port in hexadecimal, the remote one, the state.
fn listens<'a>(row: &mut impl Iterator<Item = &'a str>, state: &str, port: Option<u16>) -> bool {
    let local = row.nth(1).and_then(|local| local.rsplit_once(':'));
    let at = local.and_then(|(_, digits)| u16::from_str_radix(digits, 16).ok());
    row.nth(1) == Some(state) && (port.is_none() || port == at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_state_and_port() {
        let row = "   0: 0100007F:1389 00000000:0000 0A 00000000:00000000 00:00000000";
        let is = |state, port| listens(&mut row.split_whitespace(), state, port);
        assert!(is("0A", None) && is("0A", Some(5001)));
        assert!(!is("07", None) && !is("0A", Some(5002)));
        assert!(!listens(&mut "".split_whitespace(), "0A", None));
    }
}
