//! Limits on connections: their number and their duration.

use std::io;
use std::time::Duration;

use anyhow::Result;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::access::Peer;
use super::client::ClientConnection;
use super::listen::{Listening, Socket};
use instruments::serve::{ClientKey, ResourceBudget, Share, Unit};

/// The largest number of simultaneous connections. Further ones are closed immediately.
const MOST: u64 = 256;

/// The largest number of simultaneous connections from one network. The network of an IPv6 host is
/// its /64.
const MOST_OF_ONE: u64 = 128;

/// The time within which a client must send the head of a request, also between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// The time for which a client may leave sent data unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of the kernel's send buffer in bytes. On loopback the default would hold megabytes, and
/// a stalled client would be noticed only after minutes.
const SEND_BUFFER: usize = 128 << 10;

/// A silent client is probed after this time, this many times, at this interval. A client that
/// vanished then no longer holds a lease or a place.
const KEEPALIVE_TIME: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// The time for which sent data may stay unacknowledged. It also limits the probes, so that both
/// end at the same time.
const USER_TIMEOUT: Duration = Duration::from_secs(11);

/// The pause after an error of accept, because descriptors may be free only after other connections
/// end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections forever.
pub(super) async fn serve(listening: Listening, router: Router) -> Result<()> {
    let places = places();
    let tls = listening.tls.map(|tls| TlsAcceptor::from(tls.config));
    match listening.socket {
        Socket::Tcp(listener, _) => {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // If the client has already gone, the first read notices it.
                let _ = prepare(SockRef::from(&stream));
                let network = Some(ClientKey::of(peer.ip()));
                let (Ok(place), Ok(client)) =
                    (places.take(network, 1), ClientConnection::of(&stream))
                else {
                    continue;
                };
                let router = router
                    .clone()
                    .layer(Extension(client))
                    .layer(Extension(Peer::Tcp(peer)));
                match &tls {
                    Some(tls) => {
                        let secured = tls.accept(stream);
                        tokio::spawn(async move {
                            // A client that does not complete the TLS handshake in time gets no
                            // response.
                            if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, secured).await {
                                answer_requests(stream, router, place).await;
                            }
                        });
                    }
                    None => {
                        tokio::spawn(answer_requests(stream, router, place));
                    }
                }
            }
        }
        Socket::Unix(listener, _file) => {
            let listener = UnixListener::from_std(listener)?;
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                if let (Ok(place), Ok(client)) =
                    (places.take(None, 1), ClientConnection::of(&stream))
                {
                    let user = stream.peer_cred().ok().map(|user| user.uid());
                    let router = router
                        .clone()
                        .layer(Extension(client))
                        .layer(Extension(Peer::Unix(user)));
                    tokio::spawn(answer_requests(stream, router, place));
                }
            }
        }
    }
}

/// Sets the options of a TCP connection. Every kernel on which this program runs supports them.
fn prepare(stream: SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    stream.set_tcp_keepalive(&keepalive)?;
    stream.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    stream.set_send_buffer_size(SEND_BUFFER)?;
    // Events are small and must arrive without delay.
    stream.set_tcp_nodelay(true)
}

/// Answers the requests of one connection until it ends.
async fn answer_requests(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    router: Router,
    _place: Share,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(router),
        )
        .await;
    // The way in which a client ends its connection does not matter.
    drop(ended);
}

/// Returns the budget of connections, in total and per network. A place is free again when its
/// share is dropped.
fn places() -> ResourceBudget {
    ResourceBudget::new(Unit::Connections, MOST, MOST_OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vanished_client_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let stream = SockRef::from(&accepted);
        assert!(!stream.keepalive().unwrap());
        prepare(SockRef::from(&accepted)).unwrap();
        assert!(stream.keepalive().unwrap() && stream.tcp_nodelay().unwrap());
        assert_eq!(stream.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
        assert_eq!(stream.tcp_keepalive_interval().unwrap(), PROBE_INTERVAL);
        assert_eq!(stream.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(stream.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }

    #[test]
    fn places_are_counted_in_total_and_by_network_and_freed() {
        let places = places();
        let one = Some(ClientKey::of("127.0.0.1".parse().unwrap()));
        let own: Vec<_> = (0..MOST_OF_ONE)
            .map(|_| places.take(one, 1).unwrap())
            .collect();
        assert!(places.take(one, 1).is_err());
        let rest: Vec<_> = (MOST_OF_ONE..MOST)
            .map(|_| places.take(None, 1).unwrap())
            .collect();
        assert!(places.take(None, 1).is_err());
        drop((own, rest));
        assert!(places.take(one, MOST_OF_ONE).is_ok());
    }
}
