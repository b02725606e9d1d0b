//! The names of a far end's clients, which a helper process looks up.
//!
//! Looking up a name reads files, asks servers that the client may control, and may wait for many seconds. A far end that
//! is confined can do none of that, and its tests must not wait. The helper is this program again, started with the
//! hidden command `name-resolver` before the far end is confined. It reads addresses from standard input, and writes each
//! with its name to standard output. It ends when its input ends, however the far end has ended.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Stdin, Write as _};
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use instruments::serve::PeerNames;
use netio::host_name::{is_host_name, name_of};
use netio::sandbox;

/// The name of the hidden command.
const NAME_RESOLVER: &str = "name-resolver";
/// Greatest number of addresses that are being looked up. Further ones are looked up when they are asked for again. Their
/// lines always fit into the pipe to the helper, so that writing them never waits.
const MOST_PENDING: usize = 64;
/// Greatest number of addresses that are remembered. All are forgotten when there are more.
const MOST_KNOWN: usize = 1_024;
/// The time for which a name, or that there is none, is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The number of addresses that the helper looks up simultaneously, so that a slow name server does not hold up all
/// others.
const LOOKUPS: usize = 4;

/// The names of clients.
#[derive(Debug)]
pub(crate) struct ClientNames {
    known: Mutex<KnownNames>,
    /// The answers of the helper, until a thread reads them.
    answers: Mutex<Option<ChildStdout>>,
}

#[derive(Debug)]
struct KnownNames {
    requests: ChildStdin,
    /// The state of each address.
    addresses: HashMap<IpAddr, Lookup>,
}

/// The state of an address.
#[derive(Debug)]
enum Lookup {
    /// The helper has not answered.
    Pending(Instant),
    /// The name, or that there is none, and when the helper said so.
    Done(Option<String>, Instant),
}

impl ClientNames {
    /// Starts the helper. It runs as the user of this process, and without capabilities.
    ///
    /// # Errors
    /// The helper cannot be started.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let mut helper = Command::new("/proc/self/exe")
            .args(["--quiet", NAME_RESOLVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group keeps the terminal's Ctrl-C away from it.
            .process_group(0)
            .spawn()
            .context("--names: cannot start the helper process")?;
        let requests = helper.stdin.take().context("the helper has no input")?;
        let answers = helper.stdout.take().context("the helper has no output")?;
        Ok(Arc::new(Self {
            known: Mutex::new(KnownNames {
                requests,
                addresses: HashMap::new(),
            }),
            answers: Mutex::new(Some(answers)),
        }))
    }

    /// Starts the thread that reads the helper's answers, which a confined process may do.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn listen(self: &Arc<Self>) -> io::Result<()> {
        let answers = lock(&self.answers).take();
        let Some(answers) = answers else {
            return Ok(());
        };
        let names = Arc::downgrade(self);
        let thread = thread::Builder::new().name("names".to_owned());
        thread.spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                let Some(names) = names.upgrade() else {
                    return;
                };
                lock(&names.known).take(&line);
            }
        })?;
        Ok(())
    }
}

impl PeerNames for ClientNames {
    fn name_of(&self, address: IpAddr) -> Option<String> {
        lock(&self.known).find(address.to_canonical())
    }
}

impl KnownNames {
    /// Returns the name of an address if it is known, and otherwise asks the helper.
    fn find(&mut self, address: IpAddr) -> Option<String> {
        match self.addresses.get(&address) {
            Some(Lookup::Done(name, at)) if at.elapsed() < REMEMBERED => return name.clone(),
            Some(Lookup::Pending(at)) if at.elapsed() < REMEMBERED => return None,
            Some(_) | None => {}
        }
        if self.addresses.len() >= MOST_KNOWN {
            // Those that are pending are still on their way through the pipe.
            self.addresses
                .retain(|_, lookup| matches!(lookup, Lookup::Pending(_)));
        }
        let pending = self.addresses.values();
        let pending = pending.filter(|lookup| matches!(lookup, Lookup::Pending(_)));
        if pending.count() < MOST_PENDING && writeln!(self.requests, "{address}").is_ok() {
            let pending = Lookup::Pending(Instant::now());
            self.addresses.insert(address, pending);
        }
        None
    }

    /// Takes a line of the helper: an address, and its name if it has one.
    fn take(&mut self, line: &str) {
        let (address, name) = line.split_once(' ').unwrap_or((line, ""));
        if let Ok(address) = address.parse()
            && let Some(lookup) = self.addresses.get_mut(&address)
        {
            let name = is_host_name(name).then(|| name.to_owned());
            *lookup = Lookup::Done(name, Instant::now());
        }
    }
}

/// Looks up addresses from standard input until it ends. It is the work of the helper.
pub(crate) fn resolve() -> Result<()> {
    sandbox::give_up_privileges(&[])?;
    let stdin = Mutex::new(BufReader::new(io::stdin()));
    thread::scope(|scope| {
        for _ in 0..LOOKUPS {
            scope.spawn(|| {
                while let Some(address) = next_address(&stdin) {
                    let name = name_of(address).unwrap_or_default();
                    let line = format!("{address} {name}\n");
                    // If nobody reads the answers any more, the input ends, too.
                    let _ = io::stdout().lock().write_all(line.as_bytes());
                    let _ = io::stdout().flush();
                }
                // Other threads may wait for a name server that nobody needs any more.
                std::process::exit(0);
            });
        }
    });
    Ok(())
}

/// Returns the next address of the input; `None` at its end.
fn next_address(stdin: &Mutex<BufReader<Stdin>>) -> Option<IpAddr> {
    let mut line = String::new();
    lock(stdin).read_line(&mut line).ok()?;
    line.trim_end().parse().ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns names without a helper, and a process that copies to `asked` what the helper would be asked.
    fn names(asked: Stdio) -> (KnownNames, std::process::Child) {
        let mut cat = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(asked)
            .spawn()
            .unwrap();
        let names = KnownNames {
            requests: cat.stdin.take().unwrap(),
            addresses: HashMap::new(),
        };
        (names, cat)
    }

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_address_is_asked_for_once_and_then_known() {
        let (mut names, helper) = names(Stdio::piped());
        assert_eq!(names.find(address(1)), None);
        assert_eq!(names.find(address(1)), None);
        assert_eq!(names.find(address(2)), None);
        names.take("10.0.0.1 lestrade3.example");
        names.take("10.0.0.2 ");
        assert_eq!(names.find(address(1)).as_deref(), Some("lestrade3.example"));
        assert_eq!(names.find(address(2)), None);
        drop(names);
        let output = helper.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"10.0.0.1\n10.0.0.2\n");
    }

    #[test]
    fn nothing_but_the_name_of_an_address_that_was_asked_for_is_taken() {
        let (mut names, mut helper) = names(Stdio::null());
        names.find(address(1));
        for line in ["", "10.0.0.9 other.example", "10.0.0.1 a\u{1b}[2J", "x y z"] {
            names.take(line);
        }
        assert_eq!((names.find(address(1)), names.addresses.len()), (None, 1));
        drop(names);
        helper.wait().unwrap();
    }

    #[test]
    fn strangers_fill_neither_the_memory_nor_the_pipe() {
        let (mut names, mut helper) = names(Stdio::null());
        for number in 0..100_000 {
            names.find(address(number));
        }
        assert_eq!(names.addresses.len(), MOST_PENDING);
        for number in 0..100_000 {
            names.find(address(number));
            names.take(&format!("{} host{number}", address(number)));
            assert!(names.addresses.len() <= MOST_KNOWN);
        }
        drop(names);
        helper.wait().unwrap();
    }
}
