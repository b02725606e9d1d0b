//! HTTP/1.1 server: `GET /bytes/N` returns N bytes, and `GET /seconds/T` streams for T seconds.

mod connection;

use crate::error::Result;
use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::TokioTimer;
use socket2::SockRef;

use self::connection::{BegunTest, ClientConnection};
use crate::endpoint::Local;
use crate::round_trip;
use crate::service::{
    ACCEPT_PAUSE, AdmissionRefusal, BoundService, ConnectionPermit, Permit, PermitPool, PoolPermit,
    RefusalCause, Shared, TestResources, keep_alive, listen,
};
use record::Statistic::Total;
use record::{Direction, Figure, Measurement, Metric};

/// The header in which the server states the effective congestion control of its socket.
pub(crate) const CONGESTION_HEADER: &str = "farwire-congestion-control";

/// The size in bytes of the block that every body repeats.
const BLOCK: usize = 256 * 1024;
const SEED: u64 = 1;
/// The time that a refused client has to send its request, which clients do before they read a response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The most refused connections that are answered simultaneously. Further ones are closed immediately.
const MOST_REFUSALS: usize = 64;

/// Binds the server to `port` of `bind`.
///
/// # Errors
/// Returns an error if that is not possible.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    let listener = listen(bind, port, &shared)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(BoundService::new("http", address, move || {
        runtime.block_on(serve(listener, shared))
    }))
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    tokio::select! {
        () = accept(listener, &shared) => {}
        () = shared.stopped() => {}
    }
}

async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return shared.note(&format!("the far end cannot accept: {error}")),
    };
    let filler = incompressible_block();
    let refusals = PermitPool::new(MOST_REFUSALS);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        match shared.enter("http", peer) {
            Ok(place) => {
                let client = HttpSession {
                    peer,
                    place,
                    filler: filler.clone(),
                    shared: Arc::clone(shared),
                    permit: OnceLock::new(),
                    begun: BegunTest::default(),
                    sent: Arc::default(),
                    requests: AtomicU64::new(0),
                    began: Instant::now(),
                };
                tokio::spawn(client.serve_connection(stream));
            }
            Err(refusal) => {
                if let Some(permit) = refusals.take() {
                    let refusing = refuse_connection(stream, refusal, permit);
                    tokio::spawn(tokio::time::timeout(REFUSAL_TIMEOUT, refusing));
                }
            }
        }
    }
}

/// Answers the first data with a refusal and closes. Data that arrives later is read too, because the kernel resets a
/// connection that is closed with unread bytes.
async fn refuse_connection(
    stream: tokio::net::TcpStream,
    refusal: AdmissionRefusal,
    _slot: PoolPermit,
) {
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
                // The send buffer of a new connection has room for it.
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

/// One connection. Its test is logged when it is dropped, however the connection ends.
struct HttpSession {
    peer: SocketAddr,
    place: ConnectionPermit,
    filler: Bytes,
    shared: Arc<Shared>,
    /// The permit from the first request of a test onwards.
    permit: OnceLock<Permit>,
    /// The publisher of the test's traffic, from then on.
    begun: BegunTest,
    sent: Arc<AtomicU64>,
    requests: AtomicU64,
    began: Instant,
}

impl HttpSession {
    /// Answers requests until the connection ends, or has lasted as long as a test may.
    async fn serve_connection(self, stream: tokio::net::TcpStream) {
        let limits = self.shared.limits();
        if keep_alive(&SockRef::from(&stream), limits.idle).is_err() {
            return;
        }
        let idle = round_trip::extended(limits.idle, round_trip::of(&stream));
        let service = service_fn(|request: Request<Incoming>| {
            let response = self.answer(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let stream = ClientConnection::new(stream, Arc::clone(&self.begun));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .serve_connection(stream, service);
        // A client that disconnects reports the error itself.
        let _ = tokio::time::timeout(limits.duration, connection).await;
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Payload> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut response = if matches!(*request.method(), Method::GET | Method::HEAD) {
            self.resource(request.uri().path())
        } else {
            let refusal = text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are allowed\n",
            );
            with_header(refusal, ALLOW, "GET, HEAD")
        };
        if let Ok(congestion) = HeaderValue::from_str(self.shared.congestion()) {
            response.headers_mut().insert(CONGESTION_HEADER, congestion);
        }
        if request.method() == Method::HEAD {
            // hyper sends no body after HEAD, but the header must state the length that a GET would have.
            if let Some(length) = response.body().size_hint().exact() {
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
        }
        response
    }

    fn resource(&self, path: &str) -> Response<Payload> {
        let longest = self.shared.limits().duration;
        let end = match path.trim_start_matches('/').split_once('/') {
            None if path == "/" => {
                return text(StatusCode::OK, "farwire: GET /bytes/N or /seconds/T\n");
            }
            Some(("bytes", count)) => count.parse().ok().map(BodyEnd::After),
            Some(("seconds", time)) => {
                let time = seconds(time);
                if let Some(time) = time.filter(|time| *time > longest) {
                    let (time_s, longest_s) = (time.as_secs_f64(), longest.as_secs_f64());
                    let why = format!("{time_s} s exceed the {longest_s} s of a test here");
                    self.shared
                        .refused("http", self.peer, RefusalCause::OverLimit, &why);
                }
                let time = time.filter(|time| *time <= longest);
                time.map(|time| BodyEnd::At(Instant::now() + time))
            }
            _ => return text(StatusCode::NOT_FOUND, "use /bytes/N or /seconds/T\n"),
        };
        let Some(end) = end else {
            let longest_s = longest.as_secs();
            let form = format!(
                "N is a whole number of bytes, and T is a number of seconds from 0 to {longest_s}\n"
            );
            return text(StatusCode::BAD_REQUEST, form);
        };
        if let Err(refusal) = self.admit() {
            let refusal = text(StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n"));
            return with_header(refusal, CONNECTION, "close");
        }
        let payload = Payload {
            block: self.filler.clone(),
            end,
            sent: Arc::clone(&self.sent),
        };
        with_header(
            Response::new(payload),
            CONTENT_TYPE,
            "application/octet-stream",
        )
    }

    /// Makes the connection a test from now on, if one may run.
    fn admit(&self) -> Result<(), AdmissionRefusal> {
        if self.permit.get().is_none() {
            let permit = self
                .shared
                .admit(self.peer, "http", TestResources::default())?;
            self.place.begin();
            // The requests of one connection are sequential, so that both cells are still empty.
            let _ = self.begun.set(permit.publisher());
            let _ = self.permit.set(permit);
        }
        Ok(())
    }
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let requests = self.requests.load(Ordering::Relaxed) as f64;
        let sent = self.sent.load(Ordering::Relaxed) as f64;
        let elapsed = self.began.elapsed().as_secs_f64();
        let figures = vec![
            Figure::new(Metric::Requests, Total, requests),
            Figure::new(Metric::SentBytes, Total, sent).toward(Direction::Down),
            Figure::new(Metric::ElapsedS, Total, elapsed),
        ];
        permit.finish(&Measurement {
            figures,
            ..Measurement::default()
        });
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Payload> {
    let block = text.into();
    let mut response = Response::new(Payload {
        end: BodyEnd::After(block.len() as u64),
        block,
        sent: Arc::default(),
    });
    *response.status_mut() = status;
    response
}

fn with_header(
    mut response: Response<Payload>,
    name: HeaderName,
    value: &'static str,
) -> Response<Payload> {
    let value = HeaderValue::from_static(value);
    response.headers_mut().insert(name, value);
    response
}

/// The body of a response.
#[derive(Debug)]
struct Payload {
    /// The block that is sent repeatedly; slicing it does not allocate.
    block: Bytes,
    end: BodyEnd,
    /// The counter of the bytes that the connection has sent.
    sent: Arc<AtomicU64>,
}

#[derive(Debug)]
enum BodyEnd {
    /// The body ends after this number of further bytes.
    After(u64),
    /// The body ends at this instant.
    At(Instant),
}

/// Returns the block that every body repeats. It is the same in every run, so that two runs carry the same load.
fn incompressible_block() -> Bytes {
    let mut block = vec![0; BLOCK];
    fastrand::Rng::with_seed(SEED).fill(&mut block);
    block.into()
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let block = self.block.len();
        let length = match &mut self.end {
            BodyEnd::After(left) => {
                let length = usize::try_from(*left).map_or(block, |left| left.min(block));
                *left -= length as u64;
                length
            }
            BodyEnd::At(deadline) if Instant::now() < *deadline => block,
            BodyEnd::At(_) => 0,
        };
        self.sent.fetch_add(length as u64, Ordering::Relaxed);
        let frame = (length > 0).then(|| Ok(Frame::data(self.block.slice(..length))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, BodyEnd::After(0))
    }

    fn size_hint(&self) -> SizeHint {
        match self.end {
            BodyEnd::After(left) => SizeHint::with_exact(left),
            BodyEnd::At(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
