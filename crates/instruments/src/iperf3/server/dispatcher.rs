//! The assignment of connections and datagrams to tests: a TCP connection by its cookie, a UDP stream by its source
//! address.
//!
//! A UDP greeting contains no cookie. Therefore only one test per source address may wait for its streams at a time,
//! and greetings from that address belong to it. Tests of other addresses do not wait for it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::error::{Context, Result};
use netio::stop::{STOP_INTERVAL, Stop};
use netio::udp::SharedPort;

use crate::endpoint::{self, Local};
use crate::iperf3::control::{ControlChannel, ControlError, ControlResult, MESSAGE_TIMEOUT};
use crate::iperf3::plan::MOST_STREAMS;
use crate::iperf3::udp::wire;
use crate::iperf3::wire::Cookie;
use crate::lock;
use crate::service::{ConnectionPermit, Shared};

/// The state that all connections of the far end share.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) shared: Arc<Shared>,
    /// The stop, which is set when the far end stops.
    pub(super) ending: Arc<AtomicBool>,
    /// TCP streams, each with its position in the order of acceptance.
    pub(super) connections: WaitingTests<Cookie, (u64, TcpStream)>,
    /// UDP streams: sockets on the one port, each connected to its client.
    pub(super) datagrams: WaitingTests<IpAddr, UdpSocket>,
    /// The UDP port, which only the thread that answers greetings uses.
    udp_port: Mutex<SharedPort>,
}

/// The tests that wait for their streams, by the key that identifies their streams.
#[derive(Debug)]
pub(super) struct WaitingTests<K, S> {
    tests: Mutex<HashMap<K, SyncSender<S>>>,
    left: Condvar,
}

/// A waiting test. Dropping it ends the wait.
#[derive(Debug)]
pub(super) struct QueuedTest<'a, K: Eq + Hash, S> {
    tests: &'a WaitingTests<K, S>,
    key: K,
    streams: Receiver<S>,
}

impl Dispatcher {
    /// Returns a dispatcher with UDP on `address`, and on the interface of `bind` if that is one.
    ///
    /// # Errors
    /// Returns an error if another program uses the UDP port.
    pub(super) fn new(
        shared: Arc<Shared>,
        address: SocketAddr,
        bind: Option<&Local>,
    ) -> Result<Self> {
        let interface = match bind {
            Some(Local::Interface(name)) => Some(name.as_str()),
            _ => None,
        };
        let port = SharedPort::bind(address, interface);
        let port = port.map_err(|error| endpoint::cannot_listen(address, error));
        Ok(Self {
            shared,
            ending: Arc::default(),
            connections: WaitingTests::default(),
            datagrams: WaitingTests::default(),
            udp_port: Mutex::new(port.context("UDP")?),
        })
    }

    /// Returns the control channel of an accepted connection.
    pub(super) fn control(&self, stream: TcpStream) -> io::Result<ControlChannel> {
        let stop = Stop::on(Arc::clone(&self.ending));
        let idle = self.shared.limits().idle;
        let mut control =
            ControlChannel::new(stream, stop)?.with_timeout(MESSAGE_TIMEOUT.min(idle));
        control.set_up_within(idle);
        Ok(control)
    }

    /// Passes a connection to the test that waits for it, which counts it. A connection that begins a test is returned
    /// with its cookie.
    pub(super) fn dispatch(
        &self,
        stream: TcpStream,
        order: u64,
        place: ConnectionPermit,
    ) -> Option<(ControlChannel, Cookie, ConnectionPermit)> {
        let mut control = self.control(stream).ok()?;
        // A connection without a cookie belongs to nobody, for example a port scan or a browser.
        let cookie = control.read_cookie().ok()?;
        let Some(test) = self.connections.find(&cookie) else {
            return Some((control, cookie, place));
        };
        // A surplus stream is not taken, and is closed.
        let _ = test.try_send((order, control.into_stream()));
        None
    }

    /// Starts a thread that answers UDP greetings until the far end stops.
    pub(super) fn answer_greetings(self: Arc<Self>) -> io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name("iperf3 udp".to_owned());
        thread.spawn(move || {
            while !self.shared.stopping() {
                self.answer_greeting();
            }
        })
    }

    /// Waits for one greeting, and answers it if a test waits for it.
    fn answer_greeting(&self) -> Option<()> {
        let mut port = lock(&self.udp_port);
        let mut datagram = [0; wire::GREETING_LENGTH + 1];
        let request = port
            .receive(&mut datagram, self.shared.stop_alarm())
            .ok()??;
        let answer = wire::answer_to(&datagram[..request.length])?;
        let test = self.datagrams.find(&request.peer().ip())?;
        // Without a free descriptor there is no answer, and the client greets again or gives up.
        let stream = port.connect(&request).ok()?;
        let _ = stream.send(&answer);
        // A surplus stream is closed again.
        test.try_send(stream).ok()
    }
}

impl<K: Copy + Eq + Hash + Debug, S> WaitingTests<K, S> {
    /// Waits until no other test waits for the streams of `key`, and then registers this one.
    ///
    /// # Errors
    /// Returns an error if another test still waits at `deadline`.
    pub(super) fn wait(
        &self,
        key: K,
        control: &ControlChannel,
        deadline: Instant,
    ) -> ControlResult<QueuedTest<'_, K, S>> {
        let mut tests = lock(&self.tests);
        while tests.contains_key(&key) {
            control.check_peer()?;
            if Instant::now() > deadline {
                let text = format!("another test of {key:?} is still waiting for its streams");
                return Err(ControlError::TimedOut(text));
            }
            let waited = self.left.wait_timeout(tests, STOP_INTERVAL);
            tests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (sender, streams) = sync_channel(2 * MOST_STREAMS as usize);
        tests.insert(key, sender);
        Ok(QueuedTest {
            tests: self,
            key,
            streams,
        })
    }

    /// Returns the channel of the test that waits for the streams of `key`.
    fn find(&self, key: &K) -> Option<SyncSender<S>> {
        lock(&self.tests).get(key).cloned()
    }
}

impl<K, S> Default for WaitingTests<K, S> {
    fn default() -> Self {
        Self {
            tests: Mutex::default(),
            left: Condvar::new(),
        }
    }
}

impl<K: Eq + Hash, S> QueuedTest<'_, K, S> {
    /// Receives the next `count` streams. While none arrives, `meanwhile` is called with each that has arrived.
    pub(super) fn accept(
        self,
        control: &ControlChannel,
        count: usize,
        meanwhile: impl Fn(&S),
    ) -> ControlResult<Vec<S>> {
        let mut accepted: Vec<S> = Vec::new();
        let mut deadline = control.deadline();
        while accepted.len() < count {
            control.check_peer()?;
            match self.streams.recv_timeout(STOP_INTERVAL) {
                Ok(stream) => {
                    accepted.push(stream);
                    deadline = control.deadline();
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    accepted.iter().for_each(&meanwhile);
                }
                Err(_) => {
                    let text = format!("{} of {count} streams arrived", accepted.len());
                    return Err(ControlError::TimedOut(text));
                }
            }
        }
        Ok(accepted)
    }
}

impl<K: Eq + Hash, S> Drop for QueuedTest<'_, K, S> {
    fn drop(&mut self) {
        lock(&self.tests.tests).remove(&self.key);
        self.tests.left.notify_all();
    }
}
