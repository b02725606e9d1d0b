//! Clients of the far end, written byte by byte. They follow a protocol as far as a test wants, and no further.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// Time for which such a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// iperf3's states, as bytes on the control connection (`iperf_api.h` of esnet/iperf).
pub mod state {
    pub const TEST_START: u8 = 1;
    pub const TEST_RUNNING: u8 = 2;
    pub const TEST_END: u8 = 4;
    pub const PARAM_EXCHANGE: u8 = 9;
    pub const CREATE_STREAMS: u8 = 10;
    pub const EXCHANGE_RESULTS: u8 = 13;
    pub const DISPLAY_RESULTS: u8 = 14;
    pub const DONE: u8 = 16;
    /// The state -2. Two big-endian numbers of 4 bytes follow.
    pub const SERVER_ERROR: u8 = 0xfe;
}

/// The first line of an HTTP request that is never completed.
pub const HALF_HTTP: &[u8] = b"GET /bytes/1000 HTTP/1.1\r\n";
/// The start of the first line of a pingpong client.
pub const HALF_MESSAGES: &[u8] = b"farwire-messages/1 pingpong size=64";

/// Opens a TCP connection from the address `from`.
pub fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    let connected = socket.connect_timeout(&to.into(), TIMEOUT);
    connected.with_context(|| format!("connecting from {from} to {to}"))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket.into())
}

/// Opens a UDP socket at the address `from` that is connected to `to`.
pub fn datagrams(from: IpAddr, to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// Returns a cookie of iperf3: 36 letters and a zero byte.
pub fn cookie(number: u64) -> [u8; 37] {
    let mut cookie = [b'a'; 37];
    for (at, letter) in cookie.iter_mut().rev().skip(1).take(13).enumerate() {
        let [low, ..] = (number >> (5 * at)).to_le_bytes();
        *letter = b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(low & 31)];
    }
    cookie[36] = 0;
    cookie
}

/// Returns a text after its length of 4 bytes, as iperf3 sends JSON.
pub fn framed(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a message is short");
    [&length.to_be_bytes()[..], text].concat()
}

/// Reads the next `N` bytes of a connection.
pub fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads all further bytes until the other end closes or resets the connection.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The bytes before a reset are returned.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Reads a text after its length, as the other end sends JSON.
pub fn read_text(stream: &mut TcpStream) -> Result<String> {
    let length = u32::from_be_bytes(read(stream)?);
    let mut text = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8(text)?)
}

/// Returns the control connection of an iperf3 client that has sent its cookie and these parameters.
pub fn iperf3(from: IpAddr, to: SocketAddr, number: u64, params: &[u8]) -> Result<TcpStream> {
    let mut control = connect(from, to)?;
    control.write_all(&cookie(number))?;
    control.write_all(&framed(params))?;
    Ok(control)
}

/// Returns a setup request of the UDP Speed Test Protocol (RFC 9946) for one unauthenticated connection.
pub fn capacity_setup(ident: u16) -> [u8; 56] {
    let mut request = [0; 56];
    request[..4].copy_from_slice(&[0xac, 0xe1, 0, 20]);
    // The fields are one connection in total, its ident, and the type request.
    request[5] = 1;
    request[6..8].copy_from_slice(&ident.to_be_bytes());
    request[8] = 1;
    request
}

/// Returns a STAMP request (RFC 8762 section 4.2.1) of the session `ssid` (RFC 8972 section 3).
pub fn stamp_request(sequence: u32, ssid: u16) -> [u8; 44] {
    let mut request = [0; 44];
    request[..4].copy_from_slice(&sequence.to_be_bytes());
    // An error estimate has a multiplier other than 0.
    request[13] = 1;
    request[14..16].copy_from_slice(&ssid.to_be_bytes());
    request
}
