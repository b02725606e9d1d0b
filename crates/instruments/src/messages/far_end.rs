//! The far end of one connection: what the server does with each request.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::datagrams::{Came, Datagrams, number_of};
use super::exchange::{Broken, Channel};
use super::wire::{DONE, EchoResult, Grant, LARGEST_DATAGRAM, Request, TransferResult, Wait};

/// Where the server listens, for the UDP sockets that clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// TCP's, and UDP's.
    pub(crate) port: u16,
    /// If it is bound to one.
    pub(crate) interface: Option<String>,
}

/// What blast swallows at most at once.
const SWALLOW: usize = 256 * 1024;

/// What one connection brought, until its end or its failure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Served {
    /// Payload bytes received.
    pub(crate) received: u64,
    /// Payload bytes sent back.
    pub(crate) sent: u64,
    /// From the answer to the request on.
    pub(crate) time: Duration,
    /// Of a transfer.
    pub(crate) transfer: Option<TransferResult>,
}

/// Bytes of memory that serving `request` takes.
pub(crate) fn memory_for(request: &Request) -> usize {
    match *request {
        Request::Pingpong { udp: Some(_), .. } => LARGEST_DATAGRAM.into(),
        Request::Pingpong { size, .. } => size,
        Request::Blast { .. } => SWALLOW,
        Request::Transfer { block, .. } => block,
    }
}

/// Answers `request` and serves it. `wait` is what is granted of what was asked for.
///
/// # Errors
/// The connection broke, or a UDP socket could not be had; what came until then is in `served`.
pub(crate) fn serve(
    channel: &mut Channel,
    request: &Request,
    wait: Wait,
    place: &Place,
    served: &mut Served,
) -> Result<()> {
    let (udp, nagle) = match *request {
        Request::Pingpong { udp, nagle, .. } => (udp, nagle),
        Request::Blast { nagle, .. } | Request::Transfer { nagle, .. } => (None, nagle),
    };
    channel.stream().set_nodelay(!nagle)?;
    // Ready, and emptied, before the client knows: what it sends from then on is kept.
    let datagrams = udp.map(|port| Datagrams::new(answering_socket(channel, place, port)?, wait));
    let datagrams = datagrams
        .transpose()
        .with_context(|| format!("no UDP socket on port {}", place.port))?;
    let grant = Grant {
        wait,
        mss: SockRef::from(channel.stream()).tcp_mss()?,
        udp: udp.map(|_| place.port),
    };
    let mut memory = vec![0; memory_for(request)];
    channel.send_line(&grant.to_string())?;
    channel.wait = wait;
    let start = Instant::now();
    let outcome = match (request, datagrams) {
        (Request::Pingpong { count, .. }, Some(datagrams)) => {
            echo_datagrams(channel, datagrams, *count, &mut memory, served)
        }
        (Request::Pingpong { count, .. }, None) => echo(channel, *count, &mut memory, served),
        (Request::Blast { .. }, _) => swallow(channel, request.bytes(), &mut memory, served),
        (Request::Transfer { bytes, .. }, _) => account(channel, *bytes, &mut memory, served),
    };
    served.time = start.elapsed();
    Ok(outcome?)
}

/// Sends `count` messages back, each when the whole of it has come.
fn echo(
    channel: &Channel,
    count: u64,
    message: &mut [u8],
    served: &mut Served,
) -> Result<(), Broken> {
    for _ in 0..count {
        channel.receive(message)?;
        served.received += message.len() as u64;
        channel.send(message)?;
        served.sent += message.len() as u64;
        // While the answer is on its way: who is never kept waiting never looks otherwise.
        channel.go_on()?;
    }
    Ok(())
}

/// Sends datagrams back until the client says that it is done; what comes after `count` of them is a copy, and not
/// answered.
fn echo_datagrams(
    channel: &Channel,
    mut datagrams: Datagrams,
    count: u64,
    buffer: &mut [u8],
    served: &mut Served,
) -> Result<(), Broken> {
    let mut result = EchoResult::default();
    let mut last = None;
    let mut quiet = None;
    loop {
        match datagrams.receive(buffer, None)? {
            Came::Datagram(length) => {
                quiet = None;
                channel.go_on()?;
                served.received += length as u64;
                let message = &buffer[..length];
                if result.received == count {
                    result.duplicates += 1;
                    continue;
                }
                if last.replace(number_of(message)) == Some(number_of(message)) {
                    result.duplicates += 1;
                } else {
                    result.received += 1;
                }
                datagrams.send(message)?;
                served.sent += length as u64;
            }
            Came::Empty | Came::Nothing if channel.is_readable() => break,
            Came::Empty => channel.go_on()?,
            Came::Nothing => channel.check(&mut quiet)?,
        }
    }
    let line = channel.receive_line()?;
    if line == DONE {
        channel.send_line(&result.to_string())
    } else {
        Err(Broken::NoLine(line))
    }
}

/// Swallows `bytes` bytes and sends one.
fn swallow(
    channel: &Channel,
    bytes: u64,
    buffer: &mut [u8],
    served: &mut Served,
) -> Result<(), Broken> {
    while served.received < bytes {
        served.received += read_up_to(channel, bytes - served.received, buffer)? as u64;
        channel.go_on()?;
    }
    channel.send(&[1])?;
    served.sent = 1;
    Ok(())
}

/// Reads `bytes` bytes and accounts for the reads as document 004's server did: the time within them apart.
fn account(
    channel: &Channel,
    bytes: u64,
    block: &mut [u8],
    served: &mut Served,
) -> Result<(), Broken> {
    let start = Instant::now();
    let mut result = TransferResult::default();
    while result.bytes < bytes {
        let before = Instant::now();
        let read = read_up_to(channel, bytes - result.bytes, block);
        let after = Instant::now();
        result.network += after - before;
        result.total = after - start;
        result.bytes += *read.as_ref().unwrap_or(&0) as u64;
        result.reads += u64::from(read.is_ok());
        served.received = result.bytes;
        served.transfer = Some(result);
        read?;
        channel.go_on()?;
    }
    channel.send_line(&result.to_string())
}

/// One read of no more than `most` bytes.
fn read_up_to(channel: &Channel, most: u64, buffer: &mut [u8]) -> Result<usize, Broken> {
    let room = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
    match channel.read(&mut buffer[..room])? {
        0 => Err(Broken::Closed(0)),
        count => Ok(count),
    }
}

/// A socket on the server's UDP port that hears this client's port `theirs` alone, at the address that the client
/// has reached.
fn answering_socket(channel: &Channel, place: &Place, theirs: u16) -> io::Result<UdpSocket> {
    let local = channel.stream().local_addr()?.ip().to_canonical();
    let peer = match channel.peer {
        // The scope of a link-local address stays.
        SocketAddr::V6(mut v6) if v6.ip().to_ipv4_mapped().is_none() => {
            v6.set_port(theirs);
            SocketAddr::V6(v6)
        }
        other => (other.ip().to_canonical(), theirs).into(),
    };
    let mut local: SocketAddr = (local, place.port).into();
    if let (SocketAddr::V6(local), SocketAddr::V6(peer)) = (&mut local, peer) {
        local.set_scope_id(peer.scope_id());
    }
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    // Several clients' sockets stand on one port; each is connected to its client.
    socket.set_reuse_port(true)?;
    if let Some(name) = &place.interface {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    socket.bind(&local.into())?;
    socket.connect(&peer.into())?;
    Ok(socket.into())
}
