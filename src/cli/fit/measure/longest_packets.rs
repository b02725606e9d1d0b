//! The longest packets that pass a path: the MTU up as the kernel knows it, and the longest packet of a download.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use netio::stop::{STOP_INTERVAL, Stop};
use netio::tcp::{self, TcpInfo};
use stats::layers::ip_header;

use super::{HTTP_PORT, Path, Reflector};

/// The ports of the web servers of `farwire serve` and of the far end of `farwire exec`.
pub(super) const WEB_PORTS: [u16; 2] = [HTTP_PORT, 80];
/// The longest time to connect to a far end's web server, and to wait for a part of its answer.
const WEB_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of the download that shows the MTU down: several full packets, whatever the MTU is.
const DOWNLOAD_BYTES: usize = 100_000;
/// The longest time of that download.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(30);
/// The bytes that are read from the connection of that download in one call.
const READ_BYTES: usize = 16 * 1024;
/// The header of TCP, and its timestamps option, in bytes (RFC 9293, RFC 7323).
const TCP_HEADER: [u32; 2] = [20, 12];

impl Path<'_> {
    /// Returns the MTU of the path to the far end in L3 bytes, as the kernel of this host knows it.
    pub(super) fn mtu(&self) -> Option<u32> {
        let address = self.far_end.address;
        let any = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        // This chooses the route, and sends nothing.
        socket.connect((address, HTTP_PORT)).ok()?;
        tcp::path_mtu(&socket).ok()
    }

    /// Returns the L3 bytes of the longest packet of a download from the web server of a far end that answers probes.
    pub(super) fn longest_down(&self) -> Option<u32> {
        if !matches!(self.reflector, Reflector::Stamp(_)) {
            return None;
        }
        let mut ports = WEB_PORTS.into_iter();
        ports.find_map(|port| {
            let stop = self.session.stop.within(LONGEST_DOWNLOAD);
            longest_from(SocketAddr::new(self.far_end.address, port), &stop)
        })
    }
}

/// Returns the L3 bytes of the longest packet of a download from this web server; `None` if the download fails, or if `stop`
/// ends it.
fn longest_from(server: SocketAddr, stop: &Stop) -> Option<u32> {
    let mut stream = TcpStream::connect_timeout(&server, WEB_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(STOP_INTERVAL)).ok()?;
    let request = format!(
        "GET /bytes/{DOWNLOAD_BYTES} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut part = [0; READ_BYTES];
    let mut arrived = 0;
    let mut last_arrival = Instant::now();
    // The kernel's estimate begins with a guess, which shorter answers do not correct.
    while arrived < DOWNLOAD_BYTES {
        if stop.cause().is_some() || last_arrival.elapsed() > WEB_TIMEOUT {
            return None;
        }
        match stream.read(&mut part) {
            Ok(0) => return None,
            Ok(bytes) => {
                arrived += bytes;
                last_arrival = Instant::now();
            }
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
            Err(_) => return None,
        }
    }
    let info = TcpInfo::of(&stream).ok()?;
    let [header, timestamps] = TCP_HEADER;
    let options = if info.timestamps { timestamps } else { 0 };
    Some(info.rcv_mss + options + header + ip_header(server.is_ipv6()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// Starts a web server that answers one request with parts of this number of bytes, at this interval, until the client
    /// closes the connection.
    fn server(part: usize, interval: Duration) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request: Vec<u8> = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                request.extend(byte);
            }
            let part = vec![0_u8; part];
            while stream.write_all(&part).is_ok() {
                thread::sleep(interval);
            }
        });
        (address, answers)
    }

    #[test]
    fn a_download_shows_its_longest_packet() {
        let (address, answers) = server(2 * DOWNLOAD_BYTES, Duration::ZERO);
        let longest = longest_from(address, &Stop::default());
        assert!(longest.is_some_and(|bytes| bytes > 500), "{longest:?}");
        answers.join().unwrap();
    }

    #[test]
    fn a_download_that_drips_ends_at_its_deadline_and_when_the_user_stops_it() {
        let drip = Duration::from_millis(100);
        // At this pace, the download would take almost three hours.
        let (address, answers) = server(1, drip);
        let soon = Stop::default().within(3 * drip);
        assert_eq!(longest_from(address, &soon), None);
        answers.join().unwrap();
        let (address, answers) = server(1, drip);
        let stopped = Stop::on(Arc::new(AtomicBool::new(true)));
        assert_eq!(longest_from(address, &stopped), None);
        answers.join().unwrap();
    }
}
