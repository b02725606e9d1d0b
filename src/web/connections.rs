//! Limits of connections: how many there may be, and how long they may last.

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

/// Connections at a time; the next are closed at once.
const MOST: u64 = 256;

/// Connections of one network at a time: an IPv6 host has a /64 of addresses.
const MOST_OF_ONE: u64 = 128;

/// How long a client may take to send a request's head, and be idle between two.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a client may leave what is sent to it unread.
const UNREAD: Duration = Duration::from_secs(5);

/// Bytes that the kernel keeps of what a client leaves unread: on the loopback it would take megabytes, and who stalls would be
/// found out after minutes.
const SEND_BUFFER: usize = 128 << 10;

/// A client that says nothing for so long is asked whether it is still there, so often, with so much time between: who vanished without a
/// word holds a lease and a place no longer.
const SILENT: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const BETWEEN_PROBES: Duration = Duration::from_secs(2);

/// How long what was sent may stay without an acknowledgement, which bounds the probes too: they and what is sent end alike.
const UNACKNOWLEDGED: Duration = Duration::from_secs(11);

/// After an error of accepting: there may be no descriptors until others end.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections for good.
pub(super) async fn serve(listening: Listening, router: Router) -> Result<()> {
    let places = places();
    let tls = listening.tls.map(|tls| TlsAcceptor::from(tls.config));
    match listening.socket {
        Socket::Tcp(listener, _) => {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                // One that is gone already is found out when it is read.
                let _ = prepare(SockRef::from(&stream));
                let network = Some(ClientKey::of(peer.ip()));
                let (Ok(place), Ok(client)) =
                    (places.take(network, 1), ClientConnection::of(&stream))
                else {
                    continue;
                };
                let router = router.clone().layer(Extension(client));
                let router = router.layer(Extension(Peer::Tcp(peer)));
                match &tls {
                    Some(tls) => {
                        let secured = tls.accept(stream);
                        tokio::spawn(async move {
                            // Who does not speak TLS, or not in time, is not answered.
                            if let Ok(Ok(stream)) = timeout(PATIENCE, secured).await {
                                converse(stream, router, place).await;
                            }
                        });
                    }
                    None => {
                        tokio::spawn(converse(stream, router, place));
                    }
                }
            }
        }
        Socket::Unix(listener, _file) => {
            let listener = UnixListener::from_std(listener)?;
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                if let (Ok(place), Ok(client)) =
                    (places.take(None, 1), ClientConnection::of(&stream))
                {
                    let user = stream.peer_cred().ok().map(|user| user.uid());
                    let router = router.clone().layer(Extension(client));
                    let router = router.layer(Extension(Peer::Unix(user)));
                    tokio::spawn(converse(stream, router, place));
                }
            }
        }
    }
}

/// Sets what a connection by TCP needs, which every kernel that runs this has.
fn prepare(stream: SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(SILENT)
        .with_interval(BETWEEN_PROBES)
        .with_retries(PROBES);
    stream.set_tcp_keepalive(&keepalive)?;
    stream.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    stream.set_send_buffer_size(SEND_BUFFER)?;
    // Events are small, and each is awaited.
    stream.set_tcp_nodelay(true)
}

/// Answers the requests of one connection until it ends.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    router: Router,
    _place: Share,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(UNREAD));
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 << 10)
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(router),
        )
        .await;
    // How a client ends is its own affair.
    drop(ended);
}

/// Places of connections, in all and of one network; each is free again when it is dropped.
fn places() -> ResourceBudget {
    ResourceBudget::new(Unit::Connections, MOST, MOST_OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_vanishes_is_found_out() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let stream = SockRef::from(&accepted);
        assert!(!stream.keepalive().unwrap());
        prepare(SockRef::from(&accepted)).unwrap();
        assert!(stream.keepalive().unwrap() && stream.tcp_nodelay().unwrap());
        assert_eq!(stream.tcp_keepalive_time().unwrap(), SILENT);
        assert_eq!(stream.tcp_keepalive_interval().unwrap(), BETWEEN_PROBES);
        assert_eq!(stream.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(stream.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }

    #[test]
    fn places_are_counted_in_all_and_by_address_and_given_back() {
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
