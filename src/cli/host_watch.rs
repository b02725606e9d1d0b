//! The watch of this machine while `farwire measure` or `farwire fit` measures.
//!
//! Behind `farwire exec`, that command watches the machine, because here its emulator would look like another program. It answers on a
//! Unix socket in the command's network namespace: it watches for everybody who connects, and answers when they end their side.

use std::env;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use record::lateness::LateBudget;
use record::summary::Summary;

use crate::testbed::{EmulatedBed, StallWatch};

/// The variable that tells the command of `farwire exec` the far end's address.
pub(super) const SERVER_VARIABLE: &str = "FARWIRE_SERVER";
/// The abstract name of the socket. Only processes in the network namespace can connect to it.
const NAME: &str = "farwire-exec";
/// The most commands that exec watches for simultaneously. Further ones get an empty answer.
const MOST: usize = 16;
/// The longest time for which a command waits for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of an answer that are read.
const LONGEST: u64 = 16 << 10;

/// The one who watches this machine while an instrument measures.
pub(super) enum HostWatch {
    /// This process.
    Own(StallWatch),
    /// The `farwire exec` behind which this process runs.
    OfExec(UnixStream),
    /// Nobody, because the `farwire exec` behind which this process runs cannot be reached.
    Nobody,
}

impl HostWatch {
    /// Watches from now on until [`Self::end`].
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(super) fn begin() -> Result<Self> {
        if env::var_os(SERVER_VARIABLE).is_none() {
            return StallWatch::begin(LateBudget::DEFAULT).map(Self::Own);
        }
        let connected = address().and_then(|address| UnixStream::connect_addr(&address));
        Ok(connected.map_or(Self::Nobody, Self::OfExec))
    }

    /// Returns the reasons why what was measured until now may not describe the network, each with advice.
    pub(super) fn end(self) -> Vec<String> {
        match self {
            Self::Own(watch) => watch.spoilt().into_iter().collect(),
            // Without an answer, exec has ended, and so has the link.
            Self::OfExec(stream) => answer(stream).unwrap_or_default(),
            Self::Nobody => Vec::new(),
        }
    }
}

fn address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(NAME)
}

/// Ends this side and reads the answer, which has a line for each reason.
fn answer(stream: UnixStream) -> io::Result<Vec<String>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The commands behind the link of a bed for which `farwire exec` watches the machine.
pub(super) struct WatchedCommands<'b> {
    bed: &'b EmulatedBed,
    late_budget: LateBudget,
    listener: UnixListener,
    watched: Vec<WatchedCommand>,
}

/// A command that measures.
struct WatchedCommand {
    stream: UnixStream,
    host: StallWatch,
    /// The counters of the link when the command began to measure.
    before: Summary,
}

impl<'b> WatchedCommands<'b> {
    /// Listens in the client's namespace.
    ///
    /// # Errors
    /// Fails if the socket cannot be opened.
    pub(super) fn listen(bed: &'b EmulatedBed, late_budget: LateBudget) -> Result<Self> {
        let listen = || UnixListener::bind_addr(&address()?);
        let listener = bed.client().run(listen)?;
        let listener = listener.context("listening to measurements behind the link")?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            bed,
            late_budget,
            listener,
            watched: Vec::new(),
        })
    }

    /// Begins to watch for commands that have connected, and answers those that have ended their side.
    pub(super) fn serve(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.watched.len() < MOST {
                let watched = WatchedCommand::begin(stream, self.bed, self.late_budget);
                self.watched.extend(watched);
            }
        }
        let bed = self.bed;
        self.watched.retain_mut(|command| command.measures(bed));
    }
}

impl WatchedCommand {
    fn begin(stream: UnixStream, bed: &EmulatedBed, late_budget: LateBudget) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self {
            stream,
            host: StallWatch::begin(late_budget).ok()?,
            before: counters(bed)?,
        })
    }

    /// Answers the command if it has ended its side. Returns whether it still measures.
    fn measures(&mut self, bed: &EmulatedBed) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return true;
            }
            // Another program, which has something to say.
            Ok(_) | Err(_) => return false,
        }
        let lost = counters(bed).and_then(|now| now.own_loss_since(&self.before));
        let lost = lost
            .map(|cause| format!("the figures may show the emulator instead of the link: {cause}"));
        let reasons = lost.into_iter().chain(self.host.spoilt());
        let lines: String = reasons.map(|reason| reason + "\n").collect();
        // A command that has gone needs no answer.
        let _ = self.stream.write_all(lines.as_bytes());
        false
    }
}

/// Returns the counters of the bed's link up to now, unless its forwarder has ended.
fn counters(bed: &EmulatedBed) -> Option<Summary> {
    let reading = bed.forwarders().next()?.read(0).ok()?;
    Some(reading.summary)
}
