//! Notices that the resolvers of the host do not answer, for a command that failed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

/// The time within which a resolver that works has answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// A query for the name servers of the root, which any resolver answers (RFC 1035 section 4.1): the ID, recursion desired, one
/// question; the root, type NS, class IN.
const QUERY: [u8; 17] = [
    0xfa, 0x12, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, // The header.
    0, 0, 2, 0, 1,
];
/// The length of a header, and the bit of an answer in its third byte.
const HEADER: usize = 12;
const IS_ANSWER: u8 = 0x80;
/// The number of queries to each resolver, because one may be lost.
const QUERIES: usize = 2;

/// Queries to the resolvers of the host, over the host's own network.
pub(super) struct ResolverProbe {
    /// Each resolver, with the socket of its answers if it could be asked.
    asked: Vec<(IpAddr, Option<UdpSocket>)>,
    since: Instant,
}

impl ResolverProbe {
    /// Asks these resolvers, and waits for nothing. Call it before this process enters namespaces.
    pub(super) fn start(resolvers: &[IpAddr]) -> Self {
        let asked = resolvers.iter();
        let asked = asked.map(|resolver| (*resolver, ask(*resolver).ok()));
        Self {
            asked: asked.collect(),
            since: Instant::now(),
        }
    }

    /// Returns the resolvers if none of them has answered, although they had the time to, or if all of them have refused. Call it
    /// once, because it reads the answers.
    pub(super) fn silent(&self) -> Option<Vec<IpAddr>> {
        let heard = self.asked.iter().map(|(_, socket)| {
            let socket = socket.as_ref();
            socket.map_or(Some(false), has_answered)
        });
        let heard: Vec<Option<bool>> = heard.collect();
        let has_any = heard.contains(&Some(true));
        let have_refused = heard.iter().all(|one| *one == Some(false));
        let is_over = have_refused || self.since.elapsed() >= PATIENCE;
        let is_silent = !has_any && !self.asked.is_empty() && is_over;
        is_silent.then(|| self.asked.iter().map(|(resolver, _)| *resolver).collect())
    }
}

fn ask(resolver: IpAddr) -> io::Result<UdpSocket> {
    let own: IpAddr = match resolver {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect((resolver, 53))?;
    socket.set_nonblocking(true)?;
    for _ in 0..QUERIES {
        socket.send(&QUERY)?;
    }
    Ok(socket)
}

/// Returns whether a resolver has answered; false if it has refused, and `None` if nothing has come from it.
fn has_answered(socket: &UdpSocket) -> Option<bool> {
    let mut answer = [0; 512];
    let mut heard = None;
    // The refusals of both queries by ICMP come as errors.
    for _ in 0..2 * QUERIES {
        match socket.recv(&mut answer) {
            Ok(length) => {
                if length >= HEADER && answer[..2] == QUERY[..2] && answer[2] & IS_ANSWER != 0 {
                    return Some(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => heard = Some(false),
        }
    }
    heard
}
