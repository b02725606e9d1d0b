//! Requests to a farwire that listens: by TCP, by TLS whose certificate is known by its fingerprint, or by a Unix socket.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use super::api_server;
use crate::live::LeaseId;
use crate::web::{Listen, Pin};
use instruments::failure::{Blame, Failure};

/// How long nothing may come of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the whole of one may take.
const LONGEST: Duration = Duration::from_secs(30);

/// Bytes of the longest one.
const LARGEST: usize = 16 << 20;

/// Where a farwire listens, and what it wants.
#[derive(Args, Clone, Debug)]
pub(crate) struct ApiArgs {
    /// Where that farwire listens, as it says: 127.0.0.1:7700, https://192.0.2.1:7700, or unix:PATH
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7700")]
    at: At,
    /// The token that it wants; that of FARWIRE_TOKEN when absent
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// By what its certificate is known, as it says when it begins: sha256:1f2e...
    #[arg(long, value_name = "FINGERPRINT")]
    pin: Option<Pin>,
}

/// An address to ask at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Plain(Listen),
    Tls { host: String, port: u16 },
}

/// A request.
struct Request<'r> {
    host: String,
    token: Option<String>,
    method: &'r str,
    path: &'r str,
    lease: Option<&'r LeaseId>,
    body: &'r str,
}

impl ApiArgs {
    /// Sends a request, of who holds this lease; the answer's JSON.
    ///
    /// # Errors
    /// Nobody answers there; or it refuses, in its words: as bad input, where what was asked for cannot be.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        lease: Option<&LeaseId>,
        body: Option<&str>,
    ) -> Result<Value, Failure> {
        let token =
            api_server::token(self.token_file.as_deref(), api_server::TOKEN).or_bad_input()?;
        let request = Request {
            host: self.at.host(),
            token,
            method,
            path,
            lease,
            body: body.unwrap_or_default(),
        };
        let answer = match &self.at {
            At::Plain(Listen::Tcp(address)) => {
                self.check_plain(*address, request.token.is_some())
                    .or_bad_input()?;
                let stream = TcpStream::connect(address).and_then(patient);
                request.by(stream.with_context(|| self.nobody())?)
            }
            At::Plain(Listen::Unix(socket)) => {
                let stream = UnixStream::connect(socket).and_then(|stream| {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    Ok(stream)
                });
                request.by(stream.with_context(|| self.nobody())?)
            }
            At::Tls { host, port } => {
                let pin = self.pin.with_context(|| {
                    format!(
                        "--at {}: --pin is missing: the fingerprint of its certificate, which that farwire says when it begins",
                        self.at
                    )
                });
                let config = Arc::new(pin.or_bad_input()?.client()?);
                let stream = TcpStream::connect((host.as_str(), *port)).and_then(patient);
                let stream = stream.with_context(|| self.nobody())?;
                let name = ServerName::try_from(host.clone()).context("a name of a host");
                let client =
                    ClientConnection::new(config, name.or_bad_input()?).context("beginning TLS")?;
                request.by(StreamOwned::new(client, stream))
            }
        };
        let (status, body) = answer.with_context(|| format!("{}: asking", self.at))?;
        if status == 200 {
            return Ok(body);
        }
        let refused = anyhow!(
            "{}",
            body["detail"]
                .as_str()
                .unwrap_or("refused, without a reason")
        );
        match status {
            400..500 => Err(refused).or_bad_input(),
            _ => Err(refused.into()),
        }
    }

    /// Refuses to send in clear what is to be kept from others: a farwire beyond loopback always has TLS.
    fn check_plain(&self, address: SocketAddr, has_token: bool) -> Result<()> {
        ensure!(
            self.pin.is_none(),
            "--pin: {address} is asked without TLS: write --at https://{address}"
        );
        ensure!(
            !has_token || address.ip().is_loopback(),
            "--at {address}: the token would be sent in clear: write --at https://{address}, with --pin"
        );
        Ok(())
    }

    fn nobody(&self) -> String {
        format!(
            "{}: no farwire listens there: start one with --listen, or name another address with --at",
            self.at
        )
    }
}

fn patient(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

impl Request<'_> {
    /// Sends it by `stream` and reads the answer to its end: status and JSON.
    fn by(&self, mut stream: impl Read + Write) -> Result<(u16, Value)> {
        let Self {
            host,
            method,
            path,
            body,
            ..
        } = self;
        let length = body.len();
        let token = self.token.as_deref();
        let token = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let lease = self
            .lease
            .map(|LeaseId(id)| format!("Farwire-Lease: {id}\r\n"));
        let lease = lease.unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}{lease}Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )?;
        stream.flush()?;
        let text = String::from_utf8(whole(stream)?)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no answer of HTTP")?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let Some(status) = status.filter(|_| head.starts_with("HTTP/1.")) else {
            bail!("no answer of HTTP");
        };
        Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
    }
}

/// All that comes, of what a farwire says: no more, and no longer.
fn whole(mut stream: impl Read) -> Result<Vec<u8>> {
    let begun = Instant::now();
    let mut all = Vec::new();
    let mut part = [0; 1 << 14];
    loop {
        match stream.read(&mut part)? {
            0 => return Ok(all),
            len => all.extend_from_slice(&part[..len]),
        }
        ensure!(
            all.len() <= LARGEST,
            "an answer of more than {LARGEST} bytes"
        );
        ensure!(
            begun.elapsed() <= LONGEST,
            "an answer that has no end after {} s",
            LONGEST.as_secs()
        );
    }
}

impl At {
    /// As the header `Host` has it.
    fn host(&self) -> String {
        match self {
            Self::Plain(Listen::Tcp(address)) => address.to_string(),
            Self::Plain(Listen::Unix(_)) => "localhost".to_owned(),
            Self::Tls { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tls { host, port } => format!("{host}:{port}"),
        }
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("https://") else {
            let plain = text.strip_prefix("http://").unwrap_or(text);
            let plain = plain.trim_end_matches('/').parse();
            return plain.map(Self::Plain).map_err(|_| {
                "it is an address and a port, such as 127.0.0.1:7700 or https://192.0.2.1:7700, or unix:PATH".to_owned()
            });
        };
        let right = || "it is https://HOST:PORT, such as https://192.0.2.1:7700".to_owned();
        let (host, port) = rest
            .trim_end_matches('/')
            .rsplit_once(':')
            .ok_or_else(right)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or_else(right)?,
            None => host,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err(right());
        }
        Ok(Self::Tls {
            host: host.to_owned(),
            port: port.parse().map_err(|_| right())?,
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(listen) => listen.fmt(f),
            Self::Tls { .. } => write!(f, "https://{}", self.host()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_where_a_farwire_says_that_it_listens() {
        for (text, host) in [
            ("127.0.0.1:7700", "127.0.0.1:7700"),
            ("http://127.0.0.1:7700/", "127.0.0.1:7700"),
            ("unix:/run/farwire.sock", "localhost"),
            ("https://192.0.2.1:7700/", "192.0.2.1:7700"),
            ("https://[2001:db8::1]:7700", "[2001:db8::1]:7700"),
            ("https://bench.example:443", "bench.example:443"),
        ] {
            assert_eq!(text.parse::<At>().unwrap().host(), host, "{text}");
        }
        for wrong in [
            "https://",
            "https://a",
            "https://:1",
            "https://a/b:1",
            "https://a:x",
            "bench.example:443",
        ] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
    }
}
