//! A host with a network, for programs that use the network of the host where they run.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::thread;

use anyhow::Result;
use netio::bed::{Bed, BedConfig, WAN};
use netio::netns::NetNs;

use crate::process;

/// The other machine's addresses, to which the default routes of the host lead.
pub const OTHER: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// Two namespaces: a host with a loopback and default routes, and another machine behind a bridge.
pub struct Host {
    bed: Bed,
}

impl Host {
    /// Sets both up, with IPv4, and with IPv6 as well if `ipv6`.
    pub fn start(ipv6: bool) -> Result<Self> {
        let bed = Bed::build(&BedConfig::default())?;
        bed.bridge()?;
        let families = if ipv6 { 2 } else { 1 };
        for (node, number) in [(bed.client(), 1), (bed.server(), 2)] {
            process::ip(node, &format!("addr flush dev {WAN} scope global"))?;
            let addresses = [
                format!("192.0.2.{number}/24"),
                format!("2001:db8::{number}/64"),
            ];
            if ipv6 {
                // As every interface has one, pasta takes it for granted.
                process::ip(node, &format!("addr add fe80::{number}/64 dev {WAN} nodad"))?;
            }
            for address in &addresses[..families] {
                process::ip(node, &format!("addr add {address} dev {WAN} nodad"))?;
            }
        }
        for gateway in &OTHER[..families] {
            let line = format!("route add default via {gateway} dev {WAN}");
            process::ip(bed.client(), &line)?;
        }
        Ok(Self { bed })
    }

    /// Returns the host's namespace, in which programs under test run.
    pub fn own(&self) -> &NetNs {
        self.bed.client()
    }

    /// Returns the namespace of the other machine.
    pub fn other(&self) -> &NetNs {
        self.bed.server()
    }
}

/// Answers every HTTP request at a free port of `address` in `ns` with `text`, until the program ends. Returns the port.
pub fn serve_text(ns: &NetNs, address: &str, text: &'static str) -> Result<u16> {
    let address: IpAddr = address.parse()?;
    serve_text_at(ns, SocketAddr::new(address, 0), text)
}

/// Does the same at `at`, or at a free port there if its port is 0.
pub fn serve_text_at(ns: &NetNs, at: SocketAddr, text: &'static str) -> Result<u16> {
    let listener = ns.run(|| TcpListener::bind(at))??;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let answer = format!(
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            );
            // A client that has gone is not the server's fault.
            let _ = connection.and_then(|mut connection| {
                let _ = connection.read(&mut [0; 4096])?;
                connection.write_all(answer.as_bytes())
            });
        }
    });
    Ok(port)
}

/// Answers every query for an IPv4 address at port 53 of `at` in `ns` with `address`, until the program ends.
pub fn serve_names(ns: &NetNs, at: &str, address: [u8; 4]) -> Result<()> {
    let at = SocketAddr::new(at.parse()?, 53);
    let socket = ns.run(|| UdpSocket::bind(at))??;
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..len], address) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    Ok(())
}

/// Returns the answer to a query with one question (RFC 1035 section 4.1): one address for type A, none for others.
fn answer(query: &[u8], address: [u8; 4]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let name = query.get(HEADER..)?.iter().position(|byte| *byte == 0)?;
    let end = HEADER + name + 5;
    let question = query.get(HEADER..end)?;
    let is_a = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    // A response, recursion desired and available, no error; one question and the answers.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        // The name of the question, type A, class IN, 60 s, 4 bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address);
    }
    Some(answer)
}
