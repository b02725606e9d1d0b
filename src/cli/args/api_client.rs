//! Requests to a running farwire: over TCP, over TLS with a pinned certificate, or through a Unix socket.

use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin as Pinned;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, StatusCode, header};
use clap::Args;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsConnector;

use super::api_server;
use crate::live::LeaseId;
use crate::web::{Listen, Pin, TOKEN_FRAGMENT, VERSION, tls};
use instruments::failure::{Blame, Failure};

/// The longest pause within an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time of a TLS handshake that only finds out whether a server uses TLS.
const DETECTION: Duration = Duration::from_secs(3);

/// The longest time of a whole answer.
const LONGEST: Duration = Duration::from_secs(30);

/// The longest answer, in bytes.
const LARGEST: usize = 16 << 20;

/// The heading of the options of this module.
const HEADING: &str = "Running farwire";

/// The address of a running farwire, its token and its certificate.
#[derive(Args, Clone, Debug)]
pub(crate) struct ApiArgs {
    /// Address of the running farwire, as it prints at startup [default: its socket]
    ///
    /// Address of the running farwire, as it prints at startup: http://127.0.0.1:7700/#token=TOKEN, https://192.0.2.1:7700 or
    /// unix:PATH [default: the socket of `--listen` without an address, or this user's only socket, else 127.0.0.1:7700]
    #[arg(long, value_name = "ADDR:PORT", help_heading = HEADING)]
    at: Option<At>,
    /// File with the token of the running farwire [default: $FARWIRE_TOKEN]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    token_file: Option<PathBuf>,
    /// Certificate fingerprint, printed at startup: sha256:1f2e...
    #[arg(long, value_name = "FINGERPRINT", help_heading = HEADING)]
    pin: Option<Pin>,
}

/// A request to a running farwire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The name of the link that the request is about.
    pub(crate) link: Option<&'a str>,
    /// The ID of the lease that the caller holds.
    pub(crate) lease: Option<&'a LeaseId>,
    /// The revision that the link must have; any if `None`.
    pub(crate) if_revision: Option<u64>,
    pub(crate) body: Option<&'a str>,
}

/// The refusal of a request by a running farwire.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct Refusal {
    status: StatusCode,
    why: String,
}

/// The address of a request, with the token of a URL that contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    place: Place,
    token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Plain(Listen),
    Tls { host: String, port: u16 },
}

/// Clients use this address if no farwire of this user listens at its private socket.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7700);

impl ApiArgs {
    /// Sends a request, and returns the JSON of the answer.
    ///
    /// # Errors
    /// No farwire answers at the address, or it refuses; [`refused_with`] returns its status then. A refusal of the request itself is
    /// bad input, in the words of the answer.
    pub(crate) fn ask(&self, request: &ApiRequest<'_>) -> Result<Value, Failure> {
        let (place, request) = self.request(request)?;
        let (status, body) = client()?.block_on(async {
            let asking = async {
                let answer = self.send(&place, request, Some(PATIENCE)).await?;
                let whole = answer.whole().await;
                Ok::<_, Failure>(whole.with_context(|| failed(&place))?)
            };
            let answer = tokio::time::timeout(LONGEST, asking).await;
            answer.unwrap_or_else(|_| Err(incomplete(&place)))
        })?;
        accepted(status, body)
    }

    /// Sends a request whose answer lasts as long as its connection. Passes the JSON of the answer's first line to `granted`, and then
    /// waits until the running farwire closes the connection.
    ///
    /// # Errors
    /// Those of [`ApiArgs::ask`], and that of `granted`.
    pub(crate) fn hold(
        &self,
        request: &ApiRequest<'_>,
        granted: impl FnOnce(&Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (place, request) = self.request(request)?;
        client()?.block_on(async {
            let asking = async {
                let mut answer = self.send(&place, request, None).await?;
                let first = answer.first_line().await;
                let first = first.with_context(|| failed(&place))?;
                Ok::<_, Failure>((answer, first))
            };
            let begun = tokio::time::timeout(LONGEST, asking).await;
            let (mut answer, first) = begun.unwrap_or_else(|_| Err(incomplete(&place)))?;
            granted(&accepted(answer.response.status(), first)?)?;
            // A broken connection ends the lease as a closed one does.
            while let Ok(Some(_)) = answer.next_part().await {}
            Ok(())
        })
    }

    /// Returns the address of the running farwire, and the request to it.
    fn request(&self, wanted: &ApiRequest<'_>) -> Result<(Place, Request<String>), Failure> {
        let At { place, token } = match &self.at {
            Some(at) => at.clone(),
            None => At::found(wanted.link).or_bad_input()?,
        };
        let token = match token {
            Some(token) => Some(token),
            None => {
                api_server::token(self.token_file.as_deref(), api_server::TOKEN).or_bad_input()?
            }
        };
        if let Place::Plain(Listen::Tcp(address)) = place {
            self.check_plain(address, token.is_some()).or_bad_input()?;
        }
        let mut request = Request::builder()
            .method(wanted.method)
            .uri(wanted.path)
            .header(header::HOST, place.host())
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(LeaseId(id)) = wanted.lease {
            request = request.header("Farwire-Lease", id);
        }
        if let Some(revision) = wanted.if_revision {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        let request = request.body(wanted.body.unwrap_or_default().to_owned());
        let request = request.context("cannot make the request").or_bad_input()?;
        Ok((place, request))
    }

    /// Connects, sends a request, and returns the answer, whose parts arrive with pauses of at most `pause`.
    async fn send(
        &self,
        place: &Place,
        request: Request<String>,
        pause: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let nobody = || {
            format!(
                "{place}: no farwire listens there: start one with --listen, or name its address with --at"
            )
        };
        let answer = match place {
            Place::Plain(Listen::Tcp(address)) => {
                let stream = TcpStream::connect(address).await.with_context(nobody)?;
                let answer = exchange(stream, request, pause).await;
                if answer.is_err() && speaks_tls(*address).await {
                    return Err(Failure::bad_input(format_args!(
                        "--at {address}: the server there uses TLS: write --at https://{address}, with --pin and the certificate \
                         fingerprint that the running farwire printed at startup"
                    )));
                }
                answer
            }
            Place::Plain(Listen::Unix(socket)) => {
                let stream = UnixStream::connect(socket).await.with_context(nobody)?;
                exchange(stream, request, pause).await
            }
            Place::Tls { host, port } => {
                let pin = self.pin.with_context(|| {
                    format!(
                        "--at {place}: add --pin with the certificate fingerprint that the running farwire printed at startup"
                    )
                });
                let tls = TlsConnector::from(Arc::new(pin.or_bad_input()?.client()?));
                let name = ServerName::try_from(host.clone()).context("not a host name");
                let name = name.or_bad_input()?;
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                match tls.connect(name, stream.with_context(nobody)?).await {
                    Ok(stream) => exchange(stream, request, pause).await,
                    Err(error) => Err(tls::in_words(error)),
                }
            }
        };
        Ok(answer.with_context(|| failed(place))?)
    }

    /// Refuses to send a token unencrypted. A farwire that listens beyond loopback always uses TLS.
    fn check_plain(&self, address: SocketAddr, has_token: bool) -> Result<()> {
        ensure!(
            self.pin.is_none(),
            "--pin: the address {address} has no TLS: write --at https://{address}"
        );
        ensure!(
            !has_token || address.ip().is_loopback(),
            "--at {address}: the token would be sent unencrypted: write --at https://{address}, with --pin"
        );
        Ok(())
    }
}

/// Returns whether the server at `address` presents a certificate to a TLS client. It tries for a few seconds.
async fn speaks_tls(address: SocketAddr) -> bool {
    let Ok((config, presented)) = tls::detector() else {
        return false;
    };
    let handshake = async {
        let stream = TcpStream::connect(address).await.ok()?;
        let tls = TlsConnector::from(Arc::new(config));
        let name = ServerName::IpAddress(address.ip().into());
        tls.connect(name, stream).await.err()
    };
    // The handshake always fails: only whether a certificate came is of interest.
    let _ = tokio::time::timeout(DETECTION, handshake).await;
    presented.load(Ordering::Relaxed)
}

fn client() -> Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start an HTTP client")
}

/// Returns the JSON of an answer, or its refusal as an error.
pub(crate) fn accepted(status: StatusCode, body: Value) -> Result<Value, Failure> {
    if status == StatusCode::OK {
        return Ok(body);
    }
    let why = body["detail"].as_str();
    let why = why.unwrap_or("the request was refused without a reason");
    let refusal = Refusal {
        status,
        why: why.to_owned(),
    };
    match status.is_client_error() {
        true => Err(refusal).or_bad_input(),
        false => Err(refusal.into()),
    }
}

/// Returns the status with which a running farwire refused a request, if that is why it failed.
pub(crate) fn refused_with(failure: &Failure) -> Option<StatusCode> {
    failure
        .downcast_ref()
        .map(|refusal: &Refusal| refusal.status)
}

fn failed(place: &Place) -> String {
    format!("{place}: the request failed")
}

fn incomplete(place: &Place) -> Failure {
    let longest = LONGEST.as_secs();
    anyhow!("{place}: no complete answer within {longest} s").into()
}

/// An answer whose body is still to be read.
struct Answer {
    /// Keeps the connection open.
    _sender: SendRequest<String>,
    response: Response<Incoming>,
}

impl Answer {
    /// Reads the answer to its end, and returns its status and its JSON.
    async fn whole(self) -> Result<(StatusCode, Value)> {
        let status = self.response.status();
        let body = axum::body::to_bytes(Body::new(self.response.into_body()), LARGEST).await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Reads the first line of the body, or the whole body if it has no line end, and returns its JSON.
    async fn first_line(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        while !line.contains(&b'\n') {
            let Some(part) = self.next_part().await? else {
                break;
            };
            line.extend_from_slice(&part);
            ensure!(
                line.len() <= LARGEST,
                "the answer is longer than {LARGEST} bytes"
            );
        }
        Ok(serde_json::from_slice(&line).unwrap_or_default())
    }

    /// Returns the next part of the body, or `None` at its end.
    async fn next_part(&mut self) -> Result<Option<Bytes>> {
        let mut body = Pinned::new(self.response.body_mut());
        let frame = poll_fn(|context| body.as_mut().poll_frame(context)).await;
        let frame = frame.transpose()?;
        Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }
}

/// Sends a request through `stream`, and returns the answer. A longer pause than `pause` within it is an error.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    request: Request<String>,
    pause: Option<Duration>,
) -> Result<Answer> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(pause);
    let (mut sender, connection) = http1::handshake(TokioIo::new(Box::pin(stream))).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    ensure!(
        response.headers().contains_key(VERSION),
        "the server is not a farwire: its answer lacks the header {VERSION}"
    );
    Ok(Answer {
        _sender: sender,
        response,
    })
}

impl At {
    /// Returns the address without `--at`: the socket with the name of the link, else the only socket of this user, else the usual
    /// address.
    ///
    /// # Errors
    /// Several farwires of this user listen.
    fn found(link: Option<&str>) -> Result<Self> {
        let (mut all, named) = Listen::private(link);
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        ensure!(
            named.is_some() || all.len() <= 1,
            "several farwires listen: choose one with --at: {}",
            names.join(", ")
        );
        let place = named.or_else(|| all.pop()).unwrap_or(Listen::Tcp(USUAL));
        Ok(Self {
            place: Place::Plain(place),
            token: None,
        })
    }
}

impl Place {
    /// Returns the value of the header `Host`.
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
        let (place, token) = match text.split_once(TOKEN_FRAGMENT) {
            Some((place, token)) => (place, Some(token.to_owned())),
            None => (text, None),
        };
        Ok(Self {
            place: place.parse()?,
            token,
        })
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("https://") else {
            let plain = text.strip_prefix("http://").unwrap_or(text);
            let plain = plain.trim_end_matches('/').parse();
            return plain.map(Self::Plain).map_err(|_| {
                "write an address and a port, such as 127.0.0.1:7700 or https://192.0.2.1:7700, or unix:PATH".to_owned()
            });
        };
        let right = || "write https://HOST:PORT, such as https://192.0.2.1:7700".to_owned();
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

impl fmt::Display for Place {
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
            let at: At = text.parse().unwrap();
            assert_eq!(
                (at.place.host(), at.token),
                (host.to_owned(), None),
                "{text}"
            );
        }
        let at: At = "http://127.0.0.1:7700/#token=0123".parse().unwrap();
        assert_eq!(at.place, Place::Plain(Listen::Tcp(USUAL)));
        assert_eq!(at.token.as_deref(), Some("0123"));
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
