//! Files over one connection after another, several at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::connection::{Afterwards, Connection, Head, Read};
use super::super::{HttpTarget, LIVE_INTERVAL};
use super::{FilesPlan, MOST_CONNECTIONS};
use crate::Session;
use crate::endpoint::Local;
use netio::stop::Stop;

/// One file of many.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) target: HttpTarget,
    /// What its body must have, where that is known.
    pub(super) size: Option<u64>,
}

/// What one file took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    /// From 1.
    pub(super) index: u64,
    /// From 1.
    pub(super) connection: u32,
    /// When its turn came, since the start.
    pub(super) at_s: f64,
    /// Absent on a connection that was there already.
    pub(super) connect_ms: Option<f64>,
    pub(super) first_byte_ms: f64,
    pub(super) completion_ms: f64,
    pub(super) bytes: u64,
}

/// Fetches `files`; gives those that came, and the first failure, which ends all.
pub(super) fn fetch(
    files: Vec<File>,
    plan: &FilesPlan,
    local: Option<&Local>,
    session: &Session,
) -> (Vec<Fetched>, Option<String>) {
    let fetch = Fetch {
        files,
        plan,
        local,
        stop: &session.stop,
        start: Instant::now(),
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for connection in 1..=plan.connections.clamp(1, MOST_CONNECTIONS) {
            let (fetch, sender) = (&fetch, sender.clone());
            scope.spawn(move || fetch.work(connection, &sender));
        }
        drop(sender);
        fetch.collect(&receiver, session)
    })
}

/// What the connections share.
struct Fetch<'a> {
    files: Vec<File>,
    plan: &'a FilesPlan,
    local: Option<&'a Local>,
    stop: &'a Stop,
    start: Instant,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// A connection on which a file was asked for and the answer has begun.
struct Asked {
    connection: Connection,
    /// When it came about, if it did for this file.
    connected: Option<Instant>,
    sent: Instant,
    head: Head,
}

/// A connection that is kept for its server's next file.
struct Kept {
    connection: Connection,
    authority: String,
}

impl Fetch<'_> {
    /// What all connections fetched, and the first failure.
    fn collect(
        &self,
        results: &Receiver<Result<Fetched>>,
        session: &Session,
    ) -> (Vec<Fetched>, Option<String>) {
        let mut fetched = Vec::new();
        let mut failure = None;
        let mut live_at = LIVE_INTERVAL;
        for result in results {
            match result {
                Ok(file) => fetched.push(file),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    failure.get_or_insert_with(|| format!("{error:#}"));
                }
            }
            let now = self.start.elapsed();
            if now >= live_at {
                live_at = now + LIVE_INTERVAL;
                session.live.line(format_args!(
                    "{:.1} s: {} of {} files",
                    now.as_secs_f64(),
                    fetched.len(),
                    self.plan.count
                ));
            }
        }
        fetched.sort_by_key(|file| file.index);
        (fetched, failure)
    }

    /// Takes one file after the other until there is none left or one failed.
    fn work(&self, connection: u32, results: &Sender<Result<Fetched>>) {
        let mut kept = None;
        while !self.failed.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.files.get(at) else {
                return;
            };
            let fetched = self
                .fetch(file, &mut kept)
                .map(|fetched| Fetched {
                    index: at as u64 + 1,
                    connection,
                    ..fetched
                })
                .with_context(|| format!("file {} ({})", at + 1, file.target));
            let failed = fetched.is_err();
            if results.send(fetched).is_err() || failed {
                return;
            }
        }
    }

    fn fetch(&self, file: &File, kept: &mut Option<Kept>) -> Result<Fetched> {
        let turn = Instant::now();
        let Asked {
            mut connection,
            connected,
            sent,
            head,
        } = match self.ask_again(file, kept.take())? {
            Some(asked) => asked,
            None => self.ask_anew(file)?,
        };
        let (first_byte, persistent) = (head.first_byte, head.persistent);
        let bytes = self.receive(&mut connection, head)?;
        let completed = Instant::now();
        if let Some(size) = file.size {
            ensure!(
                bytes == size,
                "the server gave {bytes} bytes where {size} were asked for"
            );
        }
        if persistent && self.plan.keep_alive {
            *kept = Some(Kept {
                connection,
                authority: file.target.authority.clone(),
            });
        }
        Ok(Fetched {
            index: 0,
            connection: 0,
            at_s: (turn - self.start).as_secs_f64(),
            connect_ms: connected.map(|connected| millis(connected - turn)),
            first_byte_ms: millis(first_byte - sent),
            completion_ms: millis(completed - turn),
            bytes,
        })
    }

    /// Asks on the connection that was kept, if it goes to the file's server; nothing if that has closed it
    /// meanwhile, as it may (RFC 9112 §9.3.1).
    fn ask_again(&self, file: &File, kept: Option<Kept>) -> Result<Option<Asked>> {
        let kept = kept.filter(|kept| kept.authority == file.target.authority);
        let Some(mut connection) = kept.map(|kept| kept.connection) else {
            return Ok(None);
        };
        let Ok(sent) = connection.request(&file.target, Afterwards::Keep) else {
            return Ok(None);
        };
        let head = connection.head(self.stop)?;
        Ok(head.map(|head| Asked {
            connection,
            connected: None,
            sent,
            head,
        }))
    }

    /// Asks on a connection of its own.
    fn ask_anew(&self, file: &File) -> Result<Asked> {
        let afterwards = match self.plan.keep_alive {
            true => Afterwards::Keep,
            false => Afterwards::Close,
        };
        let mut connection = Connection::open(&file.target, self.local, self.stop)?;
        let connected = Some(Instant::now());
        let sent = connection.request(&file.target, afterwards)?;
        let head = connection.head(self.stop)?;
        Ok(Asked {
            head: head.context("the server closed the connection and gave no answer")?,
            connection,
            connected,
            sent,
        })
    }

    /// Reads a whole body; how many bytes of payload it has.
    fn receive(&self, connection: &mut Connection, head: Head) -> Result<u64> {
        let mut body = head.body;
        let mut total = 0;
        while !body.complete() {
            let read = connection.read(self.stop, None);
            match read.with_context(|| format!("after {total} bytes"))? {
                Read::Bytes(data) => total += body.feed(data)?,
                Read::Closed | Read::TimeUp => {
                    body.closed(total)?;
                    break;
                }
            }
            if self.failed.load(Ordering::Relaxed) {
                bail!("another file failed");
            }
        }
        Ok(total)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
