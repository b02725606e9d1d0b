//! Where connections and datagrams find their test: a TCP connection by its cookie, a UDP stream by where it comes from.
//!
//! A UDP greeting bears no cookie. So of the tests of one source address one at a time may wait for its streams, and what
//! greets from there belongs to it; tests of other addresses do not wait for it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::error::{Context, Result};
use netio::stop::{STOP_INTERVAL, Stop};
use netio::udp::SharedPort;

use crate::endpoint::Local;
use crate::iperf3::control::{ControlChannel, ControlError, ControlResult, MESSAGE_TIMEOUT};
use crate::iperf3::plan::MOST_STREAMS;
use crate::iperf3::udp::wire;
use crate::iperf3::wire::Cookie;
use crate::lock;
use crate::service::{ConnectionPermit, Shared};

/// What all connections of the far end share.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) shared: Arc<Shared>,
    /// Raised when the far end stops.
    pub(super) ending: Arc<AtomicBool>,
    /// TCP streams, each with its place in the order of acceptance.
    pub(super) connections: WaitingTests<Cookie, (u64, TcpStream)>,
    /// UDP streams: sockets on the one port, each connected to its client.
    pub(super) datagrams: WaitingTests<IpAddr, UdpSocket>,
    /// Of the thread that answers greetings.
    udp_port: Mutex<SharedPort>,
}

/// The tests that wait for their streams, by what tells whose a stream is.
#[derive(Debug)]
pub(super) struct WaitingTests<K, S> {
    tests: Mutex<HashMap<K, SyncSender<S>>>,
    left: Condvar,
}

/// One of them; it no longer waits when dropped.
#[derive(Debug)]
pub(super) struct QueuedTest<'a, K: Eq + Hash, S> {
    tests: &'a WaitingTests<K, S>,
    key: K,
    streams: Receiver<S>,
}

impl Dispatcher {
    /// With UDP on `address`, and on the interface of `bind` if that is one.
    ///
    /// # Errors
    /// The UDP port is in use by another program.
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
        Ok(Self {
            shared,
            ending: Arc::default(),
            connections: WaitingTests::default(),
            datagrams: WaitingTests::default(),
            udp_port: Mutex::new(port.with_context(|| format!("cannot receive UDP on {address}"))?),
        })
    }

    /// The control of a connection that was accepted.
    pub(super) fn control(&self, stream: TcpStream) -> io::Result<ControlChannel> {
        let stop = Stop::on(Arc::clone(&self.ending));
        let idle = self.shared.limits().idle;
        let mut control =
            ControlChannel::new(stream, stop)?.with_timeout(MESSAGE_TIMEOUT.min(idle));
        control.set_up_within(idle);
        Ok(control)
    }

    /// Gives a connection to the test that waits for it, which counts it; one that begins a test is given back, with its cookie.
    pub(super) fn dispatch(
        &self,
        stream: TcpStream,
        order: u64,
        place: ConnectionPermit,
    ) -> Option<(ControlChannel, Cookie, ConnectionPermit)> {
        let mut control = self.control(stream).ok()?;
        // One without a cookie belongs to nobody: a port scan, a browser.
        let cookie = control.read_cookie().ok()?;
        let Some(test) = self.connections.find(&cookie) else {
            return Some((control, cookie, place));
        };
        // A stream too many is not taken, and closed.
        let _ = test.try_send((order, control.into_stream()));
        None
    }

    /// Answers UDP greetings on a thread of its own until `ending` rises.
    pub(super) fn answer_greetings(self: Arc<Self>) -> io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name("iperf3 udp".to_owned());
        thread.spawn(move || {
            while !self.ending.load(Ordering::Relaxed) {
                self.answer_greeting();
            }
        })
    }

    /// Answers one greeting if there is one soon and a test waits for it.
    fn answer_greeting(&self) -> Option<()> {
        let mut port = lock(&self.udp_port);
        let mut datagram = [0; wire::GREETING_LENGTH + 1];
        let request = port.receive(&mut datagram, STOP_INTERVAL).ok()??;
        let answer = wire::answer_to(&datagram[..request.length])?;
        let test = self.datagrams.find(&request.peer().ip())?;
        // Without a descriptor left there is no answer, and the client greets again or gives up.
        let stream = port.connect(&request).ok()?;
        let _ = stream.send(&answer);
        // A stream too many is closed again.
        test.try_send(stream).ok()
    }
}

impl<K: Copy + Eq + Hash + Debug, S> WaitingTests<K, S> {
    /// Waits for the streams of `key`, once no other test does any more.
    ///
    /// # Errors
    /// Another test still does at `deadline`.
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

    /// Where the test that waits for the streams of `key` takes them.
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
    /// The next `count` streams as they come; `meanwhile` is called with those that are there when none comes for a while.
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
