//! The cost of observers for the emulator: with a page's events open and a scrape a second, beside a farwire that does not listen.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::path::rivals::{Over, Rival, own_loss};
use crate::path::throughput::{SECONDS, Stream, each};
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const PAIRS: usize = 11;
/// The time between two scrapes.
const SCRAPE: Duration = Duration::from_secs(1);

pub(crate) fn run() -> Result<Outcome> {
    let pairs = rounds(PAIRS)?;
    let mut outcome = Outcome::new(
        pairs,
        &format!(
            "farwire whose events a page reads, with a scrape of /metrics a second, beside farwire without --listen, 1 ms in each direction, one TCP stream, cubic, \
             {SECONDS} s: processor seconds of the whole process; pairs in random order"
        ),
    );
    let found = shuffled(pairs, &[true, false], |is_watched| one(*is_watched))?;
    let names = ["farwire watched", "farwire without"].map(str::to_owned);
    let cpu = Found {
        names: names.to_vec(),
        rounds: each(&found, |stream| {
            stream.emulator_s_a_gb.unwrap_or(f64::NAN).into()
        }),
    };
    let goodput = Found {
        names: names.to_vec(),
        rounds: each(&found, |stream| (stream.goodput / 1e9).into()),
    };
    outcome.rows(cpu.rows(&Quantity::less("a page and a scrape: emulator", "CPU s/GB")));
    outcome.rows(goodput.rows(&Quantity::more("a page and a scrape: goodput", "Gbit/s")));
    Ok(outcome)
}

/// Runs one stream, watched or not.
fn one(is_watched: bool) -> Result<Stream> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("api");
    let options = match is_watched {
        true => vec!["--listen".to_owned(), format!("unix:{}", socket.display())],
        false => Vec::new(),
    };
    let mut standing = Rival::Farwire(options).stand(Over::Plain, "iperf3 -s")?;
    let watcher = is_watched.then(|| Watcher::start(&socket)).transpose()?;
    let carried = standing.carry(&format!("iperf3 -c $TARGET -t {SECONDS} -C cubic -J"))?;
    // Stop scraping while the emulator still runs.
    let watcher = watcher.map(Watcher::stop_scraping).transpose()?;
    let summary = standing.end()?;
    if let Some((events, scrapes)) = watcher {
        let samples = joined(events)?;
        let seconds = u64::from(SECONDS);
        ensure!(
            samples >= 5 * seconds && scrapes >= seconds,
            "only {samples} samples and {scrapes} scrapes were read in {seconds} s"
        );
    }
    Stream::of(&carried, own_loss(&summary))
}

/// Reads the events of the link until it ends, and scrapes.
struct Watcher {
    events: JoinHandle<Result<u64>>,
    scrapes: JoinHandle<Result<u64>>,
    scraping: Sender<()>,
}

impl Watcher {
    fn start(socket: &Path) -> Result<Self> {
        let events = get(socket, "/v1/links/link/events")?;
        let reads = thread::spawn(move || {
            let lines = BufReader::new(events).lines();
            // The stream of events ends with the emulator.
            let lines = lines.map_while(Result::ok);
            Ok(lines.filter(|line| line == "event: sample").count() as u64)
        });
        let (scraping, ends) = channel();
        let socket = PathBuf::from(socket);
        let scrapes = thread::spawn(move || {
            let mut scrapes = 0;
            loop {
                let mut text = String::new();
                get(&socket, "/metrics")?.read_to_string(&mut text)?;
                ensure!(text.contains("farwire_packets_total"), "{text}");
                scrapes += 1;
                if ends.recv_timeout(SCRAPE) != Err(RecvTimeoutError::Timeout) {
                    return Ok(scrapes);
                }
            }
        });
        Ok(Self {
            events: reads,
            scrapes,
            scraping,
        })
    }

    /// Returns the thread that still reads events, and the number of scrapes.
    fn stop_scraping(self) -> Result<(JoinHandle<Result<u64>>, u64)> {
        drop(self.scraping);
        Ok((self.events, joined(self.scrapes)?))
    }
}

fn joined(thread: JoinHandle<Result<u64>>) -> Result<u64> {
    let ended = thread.join();
    ended.map_err(|_| anyhow!("a reader of the API panicked"))?
}

/// Asks for a resource; the answer can be read from the stream.
pub(super) fn get(socket: &Path, path: &str) -> Result<UnixStream> {
    let stream = UnixStream::connect(socket);
    let mut stream = stream.with_context(|| format!("{}: cannot connect", socket.display()))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    Ok(stream)
}
