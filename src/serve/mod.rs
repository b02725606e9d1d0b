//! The far end: an HTTP/1.1 server whose sending sockets use a stated congestion control.
//!
//! `GET /bytes/N` gives N bytes, `GET /seconds/T` streams until T seconds have passed.

mod body;

use std::convert::Infallible;
use std::io;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::oneshot;

use self::body::{Filler, Payload};

/// The header in which the server states the congestion control that its socket really uses.
pub(crate) const CONGESTION_HEADER: &str = "farwire-congestion-control";

const BACKLOG: i32 = 1024;
/// A client that sends no whole request for so long is dropped.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Before accepting again when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_STREAM_S: f64 = 86_400.0;

/// Where to listen, and how to send.
#[derive(Clone, Debug)]
pub(crate) struct ServeConfig {
    /// Port 0 takes a free one.
    pub(crate) bind: SocketAddr,
    /// TCP_CONGESTION of the sending sockets; the system's default when absent.
    pub(crate) congestion: Option<String>,
}

/// A running far end; ends, with its connections, when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    congestion: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens in the calling thread's network namespace, and serves from a thread of its own.
///
/// # Errors
/// The address cannot be bound, or the congestion control is not available.
pub(crate) fn start(config: &ServeConfig) -> Result<Server> {
    let listener = listen(config)?;
    let address = listener.local_addr()?;
    let congestion = congestion_of(&listener)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let header = HeaderValue::from_str(&congestion)?;
    let thread = thread::Builder::new()
        .name("far end".to_owned())
        .spawn(move || runtime.block_on(serve(listener, header, stopped)))?;
    Ok(Server {
        address,
        congestion,
        stop: Some(stop),
        thread: Some(thread),
    })
}

/// Whether this machine has the congestion control `name`.
///
/// # Errors
/// It has not: names those that it has.
pub(crate) fn check_congestion(name: &str) -> Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    set_congestion(&socket, name)
}

impl ServeConfig {
    /// A free port on 127.0.0.1, with the system's congestion control.
    #[cfg(test)]
    pub(crate) fn on_loopback() -> Self {
        Self {
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
            congestion: None,
        }
    }
}

impl Server {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The congestion control in effect, as read back from the socket.
    pub(crate) fn congestion(&self) -> &str {
        &self.congestion
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; there is nothing to add to it while dropping.
            let _ = thread.join();
        }
    }
}

fn listen(config: &ServeConfig) -> Result<TcpListener> {
    let bind = config.bind;
    let socket = Socket::new(Domain::for_address(bind), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if bind.is_ipv6() {
        // All addresses are those of IPv4 too, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(false)?;
    }
    if let Some(name) = &config.congestion {
        // Connections inherit it from the socket that accepts them.
        set_congestion(&socket, name)?;
    }
    socket
        .bind(&bind.into())
        .and_then(|()| socket.listen(BACKLOG))
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow!(
                    "{bind} is in use by another program: choose another port or end that program"
                )
            }
            _ => anyhow!(error).context(format!("cannot listen on {bind}")),
        })?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn set_congestion(socket: &Socket, name: &str) -> Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).with_context(|| {
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(path).unwrap_or_default();
        format!(
            "TCP congestion control `{name}` is not available; there are: {}",
            available.trim()
        )
    })
}

/// The kernel pads the name with zeros.
fn congestion_of(listener: &TcpListener) -> Result<String> {
    let name = SockRef::from(listener)
        .tcp_congestion()
        .context("reading TCP_CONGESTION back")?;
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

async fn serve(listener: TcpListener, congestion: HeaderValue, stopped: oneshot::Receiver<()>) {
    let filler = Filler::new();
    let accept = async {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return eprintln!("farwire: the far end cannot accept: {error}"),
        };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(answer_client(stream, filler.clone(), congestion.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stopped => {}
    }
}

async fn answer_client(stream: tokio::net::TcpStream, filler: Filler, congestion: HeaderValue) {
    let service = service_fn(|request| {
        let response = answer(&request, &filler, &congestion);
        async { Ok::<_, Infallible>(response) }
    });
    // A client that goes away is that client's affair: it says so itself.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(
    request: &Request<Incoming>,
    filler: &Filler,
    congestion: &HeaderValue,
) -> Response<Payload> {
    let mut response = if matches!(*request.method(), Method::GET | Method::HEAD) {
        resource(request.uri().path(), filler)
    } else {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refusal
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        refusal
    };
    response
        .headers_mut()
        .insert(CONGESTION_HEADER, congestion.clone());
    if request.method() == Method::HEAD {
        // hyper sends no body after HEAD, but the length that a GET would have must be said.
        if let Some(length) = response.body().length() {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
    }
    response
}

fn resource(path: &str, filler: &Filler) -> Response<Payload> {
    let payload = match path.trim_start_matches('/').split_once('/') {
        None if path == "/" => {
            return text(StatusCode::OK, "farwire: GET /bytes/N or /seconds/T\n");
        }
        Some(("bytes", count)) => count
            .parse()
            .map(|count| Payload::bytes(filler, count))
            .ok(),
        Some(("seconds", time)) => seconds(time).map(|time| Payload::seconds(filler, time)),
        _ => return text(StatusCode::NOT_FOUND, "there is /bytes/N and /seconds/T\n"),
    };
    let Some(payload) = payload else {
        return text(
            StatusCode::BAD_REQUEST,
            "N is a whole number of bytes, T seconds from 0 to 86400\n",
        );
    };
    let mut response = Response::new(payload);
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=LONGEST_STREAM_S)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

fn text(status: StatusCode, text: &'static str) -> Response<Payload> {
    let mut response = Response::new(Payload::text(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn head_and_length(answer: &str) -> (&str, usize) {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head, body.len())
    }

    #[test]
    fn the_status_fits_the_request() {
        let server = start(&ServeConfig::on_loopback()).unwrap();
        for (request, status) in [
            ("GET /bytes/10 HTTP/1.1", "200"),
            ("GET /seconds/0 HTTP/1.1", "200"),
            ("GET / HTTP/1.1", "200"),
            ("GET /nothing HTTP/1.1", "404"),
            ("GET /bytes/x HTTP/1.1", "400"),
            ("GET /bytes/-1 HTTP/1.1", "400"),
            ("GET /seconds/NaN HTTP/1.1", "400"),
            ("GET /seconds/1e9 HTTP/1.1", "400"),
            ("POST /bytes/10 HTTP/1.1", "405"),
            ("garbage", "400"),
        ] {
            let answer = ask(&server, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{request}: {answer}"
            );
        }
    }

    #[test]
    fn head_states_the_length_and_sends_nothing() {
        let server = start(&ServeConfig::on_loopback()).unwrap();
        let answer = ask(&server, "HEAD /bytes/5000000000 HTTP/1.1");
        let (head, length) = head_and_length(&answer);
        assert!(
            head.to_lowercase().contains("content-length: 5000000000"),
            "{head}"
        );
        assert_eq!(length, 0);
    }

    #[test]
    fn the_congestion_control_in_effect_is_stated() {
        let config = ServeConfig {
            congestion: Some("reno".to_owned()),
            ..ServeConfig::on_loopback()
        };
        let server = start(&config).unwrap();
        assert_eq!(server.congestion(), "reno");
        let answer = ask(&server, "GET /bytes/1 HTTP/1.1");
        assert!(
            answer.contains("farwire-congestion-control: reno"),
            "{answer}"
        );
    }

    #[test]
    fn a_congestion_control_that_is_not_there_is_refused() {
        let config = ServeConfig {
            congestion: Some("warp".to_owned()),
            ..ServeConfig::on_loopback()
        };
        let error = format!("{:#}", start(&config).unwrap_err());
        assert!(
            error.contains("`warp` is not available; there are: "),
            "{error}"
        );
    }

    #[test]
    fn a_port_in_use_is_one_clear_error() {
        let first = start(&ServeConfig::on_loopback()).unwrap();
        let config = ServeConfig {
            bind: first.address(),
            congestion: None,
        };
        let error = start(&config).unwrap_err().to_string();
        assert!(error.contains("is in use by another program"), "{error}");
    }

    #[test]
    fn a_dropped_server_frees_its_port_and_ends_its_streams() {
        let server = start(&ServeConfig::on_loopback()).unwrap();
        let address = server.address();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut some = [0; 1024];
        stream.read_exact(&mut some).unwrap();
        drop(server);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        drop(stream);
        start(&ServeConfig {
            bind: address,
            congestion: None,
        })
        .unwrap();
    }
}
