//! Relays TCP connections between a port of one network namespace and a service that another one reaches.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::netns::NetNs;
use socket2::SockRef;
use tokio::net::{TcpListener as Listener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};

/// The most connections of a relay. Further ones wait until one of them ends.
const MOST_CONNECTIONS: usize = 1_024;
/// The bytes that a connection holds in each direction.
const BUFFER: usize = 64 * 1024;
/// The pause after a connection could not be accepted, because there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval at which a connection tries to reach a service that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);

/// The time without data after which a connection ends of which one end has closed its direction. It may have closed the
/// connection as a whole, which looks the same, and the other end may be gone without a word. The kernel's connection
/// tracking forgets such a connection after as long (`nf_conntrack_tcp_timeout_fin_wait`).
const HALF_CLOSED: Duration = Duration::from_secs(120);

/// A port and the service to which its connections are relayed.
pub(super) struct Route {
    pub(super) from: TcpListener,
    pub(super) to: Service,
}

/// A service to which connections are relayed.
#[derive(Clone)]
pub(super) struct Service {
    /// Returns its address, and is asked for each attempt to connect.
    pub(super) at: Arc<dyn Fn() -> SocketAddr + Send + Sync>,
    /// The longest time that a connection waits while the service does not listen yet.
    pub(super) patience: Duration,
}

/// A running relay, which ends with its connections when this is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    /// `None` while this is being dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Relays each of `routes`. The connections to the services are made in `namespace`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the process has no thread or descriptor left.
    pub(super) fn start(namespace: &NetNs, routes: Vec<Route>) -> Result<Self> {
        let namespace = namespace.try_clone()?;
        let (stop, stopped) = oneshot::channel();
        let (started, has_started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                let begun = begin(&namespace, routes);
                let (answer, ready) = match begun {
                    Ok(ready) => (Ok(()), Some(ready)),
                    Err(error) => (Err(error), None),
                };
                let _ = started.send(answer);
                if let Some((runtime, tasks)) = ready {
                    runtime.block_on(async move {
                        for task in tasks {
                            tokio::spawn(accept(task.0, task.1));
                        }
                        // An error means that the relay was dropped, too.
                        let _ = stopped.await;
                    });
                }
            })?;
        has_started.recv().context("the relay has died")??;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The runtime of a relay, and its ports with the services.
type Begun = (tokio::runtime::Runtime, Vec<(Listener, Service)>);

/// Enters the namespace, in which the calling thread then makes all connections.
fn begin(namespace: &NetNs, routes: Vec<Route>) -> Result<Begun> {
    namespace.enter_thread()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let context = runtime.enter();
    let listener = |route: Route| {
        route.from.set_nonblocking(true)?;
        anyhow::Ok((Listener::from_std(route.from)?, route.to))
    };
    let listeners = routes.into_iter().map(listener).collect::<Result<_>>()?;
    drop(context);
    Ok((runtime, listeners))
}

/// Accepts connections permanently.
async fn accept(from: Listener, to: Service) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match from.accept().await {
            Ok((near, _)) => {
                let to = to.clone();
                tokio::spawn(async move {
                    relay(near, to, HALF_CLOSED).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Relays one connection to its end. It is reset if the service cannot be reached, or if one direction has ended and the
/// other one carries nothing for the time `half_closed`.
async fn relay(near: TcpStream, to: Service, half_closed: Duration) {
    let (ended, _) = watch::channel(false);
    let relayed = async {
        let far = connect(&near, &to).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        tokio::try_join!(
            copy(&near, &far, &ended, half_closed),
            copy(&far, &near, &ended, half_closed)
        )
    };
    if relayed.await.is_err() {
        let _ = SockRef::from(&near).set_linger(Some(Duration::ZERO));
    }
}

/// Connects to a service. While the service does not listen, it tries again as long as the client waits and the patience
/// lasts.
async fn connect(near: &TcpStream, to: &Service) -> io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        let at = (to.at)();
        let refused = match TcpStream::connect(at).await {
            // A free port of the loopback can be connected to itself (RFC 9293 section 3.5, simultaneous open).
            Ok(far) if far.local_addr()? == at => io::ErrorKind::ConnectionRefused.into(),
            Ok(far) => return Ok(far),
            Err(error) => error,
        };
        if refused.kind() != io::ErrorKind::ConnectionRefused || began.elapsed() >= to.patience {
            return Err(refused);
        }
        tokio::time::sleep(RETRY).await;
        if is_gone(near).await {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

/// Returns true if the client has ended its connection without having sent anything.
async fn is_gone(near: &TcpStream) -> bool {
    let mut first = [0];
    let peeked = tokio::time::timeout(Duration::ZERO, near.peek(&mut first)).await;
    matches!(peeked, Ok(Ok(0) | Err(_)))
}

/// Copies one direction to its end, and passes the end on. The value of `ended` is whether a direction has ended.
///
/// # Errors
/// Reading or writing fails, or the other direction has ended and this one carries nothing for the time `half_closed`.
async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    ended: &watch::Sender<bool>,
    half_closed: Duration,
) -> io::Result<()> {
    let silence = || async {
        let mut other = ended.subscribe();
        // An error means that the sender is gone, which this function borrows.
        let _ = other.wait_for(|has_ended| *has_ended).await;
        tokio::time::sleep(half_closed).await;
    };
    let mut buffer = vec![0; BUFFER];
    loop {
        tokio::select! {
            readable = from.readable() => readable?,
            () = silence() => return Err(io::ErrorKind::TimedOut.into()),
        }
        let len = match from.try_read(&mut buffer) {
            Ok(0) => {
                ended.send_replace(true);
                return SockRef::from(to).shutdown(Shutdown::Write);
            }
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as Connection;

    use socket2::{Domain, Socket, Type};

    /// Returns a listener on a free port of the loopback, with its address.
    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Accepts connections in the namespace of the test, which needs no privilege for that.
    fn relay_here(from: TcpListener, at: SocketAddr, patience: Duration) -> JoinHandle<()> {
        relay_for(from, at, patience, HALF_CLOSED)
    }

    /// Does so with another time for connections of which one end has closed its direction.
    fn relay_for(
        from: TcpListener,
        at: SocketAddr,
        patience: Duration,
        half_closed: Duration,
    ) -> JoinHandle<()> {
        let at = Arc::new(move || at);
        let to = Service { at, patience };
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                from.set_nonblocking(true).unwrap();
                let from = Listener::from_std(from).unwrap();
                let (near, _) = from.accept().await.unwrap();
                relay(near, to, half_closed).await;
            });
        })
    }

    #[test]
    fn each_direction_ends_by_itself() {
        let ((from, at), (service, to)) = (listener(), listener());
        let relayed = relay_here(from, to, Duration::ZERO);
        let mut near = Connection::connect(at).unwrap();
        let (mut far, _) = service.accept().unwrap();
        near.write_all(b"question").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        far.write_all(b"answer").unwrap();
        drop(far);
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "questionanswer");
        relayed.join().unwrap();
    }

    #[test]
    fn a_connection_whose_client_has_ended_is_reset_when_the_service_says_nothing_more() {
        let ((from, at), (service, to)) = (listener(), listener());
        let relayed = relay_for(from, to, Duration::ZERO, Duration::from_millis(50));
        let mut near = Connection::connect(at).unwrap();
        let (mut far, _) = service.accept().unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        assert_eq!(far.read_to_string(&mut text).unwrap(), 0);
        relayed.join().unwrap();
        let reset = near.read(&mut [0]).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_connection_to_a_service_that_is_not_there_is_reset() {
        let ((from, at), (service, to)) = (listener(), listener());
        drop(service);
        let relayed = relay_here(from, to, Duration::ZERO);
        let mut near = Connection::connect(at).unwrap();
        let reset = near.read(&mut [0]).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        relayed.join().unwrap();
    }

    #[test]
    fn a_connection_waits_for_a_service_that_does_not_listen_yet() {
        let (from, at) = listener();
        // A bound socket that does not listen keeps the port and refuses connections.
        let service = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        service.bind(&any.into()).unwrap();
        let to = service.local_addr().unwrap().as_socket().unwrap();
        let relayed = relay_here(from, to, Duration::from_secs(100));
        let mut near = Connection::connect(at).unwrap();
        near.write_all(b"question").unwrap();
        service.listen(1).unwrap();
        let (mut far, _) = TcpListener::from(service).accept().unwrap();
        let mut text = [0; 8];
        far.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"question");
        drop((near, far));
        relayed.join().unwrap();
    }

    #[test]
    fn a_client_that_waits_no_longer_is_forgotten() {
        let ((from, at), (service, to)) = (listener(), listener());
        drop(service);
        let relayed = relay_here(from, to, Duration::from_secs(100));
        drop(Connection::connect(at).unwrap());
        relayed.join().unwrap();
    }
}
