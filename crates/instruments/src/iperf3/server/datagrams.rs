//! Where UDP streams come about: one port for all clients, a connected socket for each stream.
//!
//! A greeting bears no cookie. So of the tests of one source address one at a time may wait for its streams, and what
//! greets from there is its; tests of other addresses do not wait for it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result};
use netio::udp::SharedPort;

use crate::endpoint::Local;
use crate::iperf3::control::{Broken, Control, Step};
use crate::iperf3::plan::MOST_STREAMS;
use crate::service::await_input;
use crate::udp::greeting;
use netio::stop::STOP_INTERVAL;

/// The UDP port of the far end.
#[derive(Debug)]
pub(crate) struct Datagrams {
    port: SharedPort,
    turns: Mutex<HashMap<IpAddr, SyncSender<UdpSocket>>>,
    turn_ended: Condvar,
}

/// The right to the streams that greet from one address; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    datagrams: &'a Datagrams,
    source: IpAddr,
    streams: Receiver<UdpSocket>,
}

impl Datagrams {
    /// On `address`, and on the interface of `bind` if that is one.
    ///
    /// # Errors
    /// The port is in use by another program.
    pub(crate) fn bind(address: SocketAddr, bind: Option<&Local>) -> Result<Self> {
        let interface = match bind {
            Some(Local::Interface(name)) => Some(name.as_str()),
            _ => None,
        };
        let port = SharedPort::bind(address, interface)
            .with_context(|| format!("cannot receive UDP on {address}"))?;
        Ok(Self {
            port,
            turns: Mutex::default(),
            turn_ended: Condvar::new(),
        })
    }

    /// Answers greetings on a thread of its own until `ending` rises.
    pub(crate) fn listen(
        self: Arc<Self>,
        ending: Arc<AtomicBool>,
    ) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new()
            .name("iperf3 udp".to_owned())
            .spawn(move || {
                while !ending.load(Ordering::Relaxed) {
                    self.look();
                }
            })
    }

    /// Waits until no other test of the client's address waits for streams, and then in its place.
    pub(crate) fn turn(&self, control: &Control) -> Step<Turn<'_>> {
        let source = control.peer().ip().to_canonical();
        let deadline = control.deadline();
        let mut turns = self.lock();
        while turns.contains_key(&source) {
            control.check()?;
            if Instant::now() > deadline {
                let text = format!("another test from {source} keeps waiting for its UDP streams");
                return Err(Broken::Silent(text));
            }
            turns = self
                .turn_ended
                .wait_timeout(turns, STOP_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let (sender, streams) = sync_channel(2 * MOST_STREAMS as usize);
        turns.insert(source, sender);
        drop(turns);
        Ok(Turn {
            datagrams: self,
            source,
            streams,
        })
    }

    /// Takes one greeting if there is one soon.
    fn look(&self) {
        let socket = self.port.socket();
        if !await_input(socket) {
            return;
        }
        let mut datagram = [0; greeting::LENGTH + 1];
        let Ok((length, peer)) = socket.recv_from(&mut datagram) else {
            return;
        };
        let Some(answer) = greeting::answer_to(&datagram[..length]) else {
            return;
        };
        let turns = self.lock();
        let Some(awaited) = turns.get(&peer.ip().to_canonical()) else {
            return;
        };
        // Without a descriptor left there is no answer, and the client greets again or gives up.
        let Ok(stream) = self.port.connect(peer) else {
            return;
        };
        let _ = stream.send(&answer);
        // A stream too many is closed again.
        let _ = awaited.try_send(stream);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, SyncSender<UdpSocket>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// The next `count` streams, in the order in which they greeted.
    pub(crate) fn accept(self, control: &Control, count: usize) -> Step<Vec<UdpSocket>> {
        let mut accepted: Vec<UdpSocket> = Vec::new();
        let mut deadline = control.deadline();
        while accepted.len() < count {
            control.check()?;
            match self.streams.recv_timeout(STOP_INTERVAL) {
                Ok(stream) => {
                    accepted.push(stream);
                    deadline = control.deadline();
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    // The last answer may be lost: then the client greets again, on the stream that it has.
                    accepted.iter().for_each(greeting::answer_repeated);
                }
                Err(_) => {
                    let text = format!("{} of {count} UDP streams came", accepted.len());
                    return Err(Broken::Silent(text));
                }
            }
        }
        Ok(accepted)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.datagrams.lock().remove(&self.source);
        self.datagrams.turn_ended.notify_all();
    }
}
