//! Where connections say whose they are: a new test, or a stream of one that waits for it.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::datagrams::Datagrams;
use super::session;
use crate::iperf3::control::{Control, MESSAGE_TIMEOUT};
use crate::iperf3::plan::MOST_STREAMS;
use crate::iperf3::wire::Cookie;
use crate::service::Refusal;
use crate::service::Shared;
use crate::service::{Slot, Slots};
use netio::stop::Stop;

/// Connections that have not said whose they are; more are closed at once.
const MOST_STRANGERS: usize = 256;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    /// Raised when the far end stops.
    pub(crate) ending: Arc<AtomicBool>,
    /// Where UDP streams come about.
    pub(crate) datagrams: Arc<Datagrams>,
    waiting: Mutex<HashMap<Cookie, SyncSender<Arrival>>>,
    strangers: Slots,
}

/// A data connection, and the place of its acceptance among all.
pub(crate) type Arrival = (u64, TcpStream);

/// The streams of one test as they come; ends its waiting when dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    desk: &'a Desk,
    cookie: Cookie,
    pub(crate) arrivals: Receiver<Arrival>,
}

impl Desk {
    pub(crate) fn new(shared: Arc<Shared>, datagrams: Arc<Datagrams>) -> Self {
        Self {
            shared,
            ending: Arc::default(),
            datagrams,
            waiting: Mutex::default(),
            strangers: Slots::new(MOST_STRANGERS),
        }
    }

    /// Hears a connection out on a thread of its own, which ends soon after `ending` rises; none can be had for one too
    /// many.
    pub(crate) fn greet(self: &Arc<Self>, stream: TcpStream, order: u64) -> Option<JoinHandle<()>> {
        let slot = self.strangers.take()?;
        let desk = Arc::clone(self);
        let greeting = thread::Builder::new().name("iperf3 client".to_owned());
        greeting.spawn(move || desk.hear(stream, order, slot)).ok()
    }

    /// Says to one who may not test here that it is so.
    pub(crate) fn turn_away(&self, stream: TcpStream) {
        if let Ok(mut control) = self.control(stream) {
            session::refuse(&mut control, Refusal::NotAllowed);
        }
    }

    fn control(&self, stream: TcpStream) -> io::Result<Control> {
        let stop = Stop::on(Arc::clone(&self.ending));
        let patience = MESSAGE_TIMEOUT.min(self.shared.limits().idle);
        Ok(Control::new(stream, stop)?.patient(patience))
    }

    fn hear(&self, stream: TcpStream, order: u64, slot: Slot) {
        let heard = self.control(stream).ok().and_then(|mut control| {
            // One that does not say whose it is is nobody's: a port scan, a browser.
            let cookie = control.read_cookie().ok()?;
            Some((control, cookie))
        });
        drop(slot);
        let Some((control, cookie)) = heard else {
            return;
        };
        let awaited = self.table().get(&cookie).cloned();
        match awaited {
            // A stream too many has no place, and is closed.
            Some(test) => drop(test.try_send((order, control.into_stream()))),
            None => session::serve(self, control, cookie),
        }
    }

    /// Waits for the streams that bear `cookie`; nothing when another test does already.
    pub(crate) fn await_streams(&self, cookie: Cookie) -> Option<Waiting<'_>> {
        let (sender, arrivals) = sync_channel(2 * MOST_STREAMS as usize);
        let mut table = self.table();
        if table.contains_key(&cookie) {
            return None;
        }
        table.insert(cookie, sender);
        Some(Waiting {
            desk: self,
            cookie,
            arrivals,
        })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Cookie, SyncSender<Arrival>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.desk.table().remove(&self.cookie);
    }
}
