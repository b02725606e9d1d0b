//! HTTP/1.1: `GET /bytes/N` gives N bytes, `GET /seconds/T` streams until T seconds have passed.

mod body;

use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;

use self::body::{Filler, Payload};
use crate::endpoint::Local;
use crate::service::{
    ACCEPT_PAUSE, Permit, Refusal, Service, Shared, Slot, Slots, WAITING_ROOM, listen,
};
use netio::stop::STOP_INTERVAL;
use record::{Direction, Figure, Measurement, Metric, Statistic};

/// The header in which the server states the congestion control that its socket really uses.
pub(crate) const CONGESTION_HEADER: &str = "farwire-congestion-control";

/// How long one who is turned away may take to send a request, which clients do before they read an answer.
const PARTING: Duration = Duration::from_secs(1);
/// Connections that are turned away at a time; more are closed at once.
const MOST_PARTING: usize = 64;

/// Serves on `port` of `bind`.
///
/// # Errors
/// It cannot be bound.
pub(crate) fn start(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<Service> {
    let listener = listen(bind, port, &shared)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(serve(listener, shared)))?;
    Ok(Service {
        name: "http",
        address,
        thread,
    })
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let stopped = async {
        while !shared.stopping() {
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    };
    tokio::select! {
        () = accept(listener, &shared) => {}
        () = stopped => {}
    }
}

async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return eprintln!("farwire: the far end cannot accept: {error}"),
    };
    let filler = Filler::new();
    let connections = Slots::new(shared.limits().tests.saturating_add(WAITING_ROOM));
    let partings = Slots::new(MOST_PARTING);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let slot = if shared.allows(peer.ip()) {
            let busy = Refusal::Busy(shared.limits().tests);
            connections.take().ok_or(busy)
        } else {
            Err(Refusal::NotAllowed)
        };
        match slot {
            Ok(slot) => {
                let client = Client::new(peer, filler.clone(), Arc::clone(shared));
                tokio::spawn(client.attend(stream, slot));
            }
            Err(refusal) => {
                if let Some(slot) = partings.take() {
                    let parting = turn_away(stream, refusal, slot);
                    tokio::spawn(tokio::time::timeout(PARTING, parting));
                }
            }
        }
    }
}

/// Answers whatever comes first, and closes; what comes then is read too, because the kernel resets a connection that is
/// closed with unread bytes.
async fn turn_away(stream: tokio::net::TcpStream, refusal: Refusal, _slot: Slot) {
    const READ_AT_MOST: usize = 16;
    let text = format!("{refusal}\n");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    let mut request = [0; 4096];
    let mut answered = false;
    for _ in 0..READ_AT_MOST {
        let readable = stream.readable().await;
        match readable.and_then(|()| stream.try_read(&mut request)) {
            Ok(1..) if !answered => {
                // A new connection has room for it.
                let _ = stream.try_write(answer.as_bytes());
                let _ = SockRef::from(&stream).shutdown(Shutdown::Write);
                answered = true;
            }
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// One connection; what it tested is logged when it is dropped, however it ends.
struct Client {
    peer: SocketAddr,
    filler: Filler,
    shared: Arc<Shared>,
    /// From the first request of a test on.
    permit: OnceLock<Permit>,
    sent: Arc<AtomicU64>,
    requests: AtomicU64,
    began: Instant,
}

impl Client {
    fn new(peer: SocketAddr, filler: Filler, shared: Arc<Shared>) -> Self {
        Self {
            peer,
            filler,
            shared,
            permit: OnceLock::new(),
            sent: Arc::default(),
            requests: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// Answers requests until the connection ends, or has lasted as long as a test may.
    async fn attend(self, stream: tokio::net::TcpStream, _slot: Slot) {
        let limits = self.shared.limits();
        // Sent bytes that nobody acknowledges for so long end the connection (tcp(7), TCP_USER_TIMEOUT).
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.idle));
        let service = service_fn(|request: Request<Incoming>| {
            let response = self.answer(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .serve_connection(TokioIo::new(stream), service);
        // A client that goes away is that client's affair: it says so itself.
        let _ = tokio::time::timeout(limits.duration, connection).await;
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Payload> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut response = if matches!(*request.method(), Method::GET | Method::HEAD) {
            self.resource(request.uri().path())
        } else {
            let mut refusal = text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD\n".to_owned(),
            );
            refusal
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        };
        if let Ok(congestion) = HeaderValue::from_str(self.shared.congestion()) {
            response.headers_mut().insert(CONGESTION_HEADER, congestion);
        }
        if request.method() == Method::HEAD {
            // hyper sends no body after HEAD, but the length that a GET would have must be said.
            if let Some(length) = response.body().length() {
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
        }
        response
    }

    fn resource(&self, path: &str) -> Response<Payload> {
        let longest = self.shared.limits().duration;
        let payload = match path.trim_start_matches('/').split_once('/') {
            None if path == "/" => {
                return text(
                    StatusCode::OK,
                    "farwire: GET /bytes/N or /seconds/T\n".to_owned(),
                );
            }
            Some(("bytes", count)) => count
                .parse()
                .map(|count| Payload::bytes(&self.filler, count, &self.sent))
                .ok(),
            Some(("seconds", time)) => {
                seconds(time, longest).map(|time| Payload::seconds(&self.filler, time, &self.sent))
            }
            _ => {
                return text(
                    StatusCode::NOT_FOUND,
                    "there is /bytes/N and /seconds/T\n".to_owned(),
                );
            }
        };
        let Some(payload) = payload else {
            return text(
                StatusCode::BAD_REQUEST,
                format!(
                    "N is a whole number of bytes, T seconds from 0 to {}\n",
                    longest.as_secs()
                ),
            );
        };
        if let Err(refusal) = self.admit() {
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n"));
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            return response;
        }
        let mut response = Response::new(payload);
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// Takes the connection for a test from now on, if one may run.
    fn admit(&self) -> Result<(), Refusal> {
        if self.permit.get().is_none() {
            let permit = self.shared.admit(self.peer, "http")?;
            // Requests of one connection come one after the other.
            let _ = self.permit.set(permit);
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let total = |metric, value: u64| Figure::new(metric, Statistic::Total, value as f64);
        let sent = total(Metric::SentBytes, self.sent.load(Ordering::Relaxed));
        let elapsed = self.began.elapsed().as_secs_f64();
        permit.finish(&Measurement {
            figures: vec![
                total(Metric::Requests, self.requests.load(Ordering::Relaxed)),
                sent.toward(Direction::Down),
                Figure::new(Metric::ElapsedS, Statistic::Total, elapsed),
            ],
            ..Measurement::default()
        });
    }
}

fn seconds(text: &str, longest: Duration) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=longest.as_secs_f64())
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

fn text(status: StatusCode, text: String) -> Response<Payload> {
    let mut response = Response::new(Payload::text(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
