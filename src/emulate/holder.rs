//! The box holder: a separate process that takes care of the interfaces when the emulator ends, however it ends.
//!
//! It is this program again, started with the hidden command `box-holder`. It waits until its
//! standard input closes, which happens when the emulator ends, even by SIGKILL. First it uses the
//! journals to restore everything that the emulator changed and did not restore. It has inherited the
//! rule that keeps the host's stack out of the interfaces, which therefore lasts until that is done.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::ValueEnum;
use netio::iface::{HostUse, Interface, InterfaceLookup};
use netio::ingress_drop::IngressDrop;
use netio::lease::{InterfaceLease, InterfaceLeases, LeaseError};
use netio::side_by_side;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::new_pair;
use crate::notes::{self, note, warn};
use instruments::failure::{Blame as _, Failure};

/// The name of the hidden command.
const BOX_HOLDER: &str = "box-holder";
/// The line that the holder prints once it is ready.
const READY: &str = "ready";

/// The action on the interfaces when the box ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnExit {
    /// Nothing passes; after an unexpected end, the interfaces are restored, then set down
    Cut,
    /// The interfaces are restored, then a kernel bridge joins them, without delay or loss
    Bridge,
    /// The interfaces are restored, and nothing else; always so for containers, --pid and --netns
    Restore,
}

/// A message from the box to its holder.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The descriptor of the drop rule, which the holder has inherited.
    Guard(RawFd),
    /// The indexes of the interfaces that a link connects, the second of which may be [`NOT_MADE`]; the last message about a
    /// link counts.
    Interfaces { link: usize, interfaces: [u32; 2] },
    /// The box ends in order and has restored everything.
    Ended,
    /// The box could not start, so the holder must do nothing.
    Dismissed,
}

/// The index of an interface that the box is about to make. No interface has it.
pub(super) const NOT_MADE: u32 = 0;

/// The interface indexes of each link, in the order of the links.
type LinkInterfaces = Vec<[u32; 2]>;

/// The holder of a box that has not started yet, and the drop rule that they share. A link that is inserted needs it before
/// its interfaces are made. Dropping it ends the holder without any action.
pub(crate) struct EarlyHolder(Option<(IngressDrop, BoxHolder)>);

impl EarlyHolder {
    /// Starts the holder of a box whose links are inserted at these interfaces of the host.
    ///
    /// # Errors
    /// The drop rule cannot be made, or the holder cannot be started.
    pub(super) fn start(hosts: &[&Interface]) -> Result<Self, Failure> {
        let first = hosts.first().map_or("", |host| host.name.as_str());
        let guard = IngressDrop::open(first).or_machine()?;
        let mut holder = BoxHolder::start(OnExit::Restore, &guard)?;
        for (link, host) in hosts.iter().enumerate() {
            holder.set_interfaces(link, [host.index, NOT_MADE]);
        }
        Ok(Self(Some((guard, holder))))
    }

    /// Returns both parts, for the box that starts now.
    pub(super) fn into_parts(mut self) -> (IngressDrop, BoxHolder) {
        let parts = self.0.take();
        parts.expect("nothing else takes them before the end")
    }
}

impl Drop for EarlyHolder {
    fn drop(&mut self) {
        if let Some((_guard, holder)) = self.0.take() {
            holder.dismiss();
        }
    }
}

/// The holder process, as the box sees it.
pub(super) struct BoxHolder {
    process: Child,
    messages: ChildStdin,
    on_exit: OnExit,
    links: LinkInterfaces,
}

impl BoxHolder {
    /// Starts the holder, which keeps `guard` until it has done its work. After this call returns, the
    /// holder notices every way in which this process can end.
    ///
    /// # Errors
    /// Fails if the holder cannot be started.
    pub(super) fn start(on_exit: OnExit, guard: &IngressDrop) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        if notes::are_quiet() {
            command.arg("--quiet");
        }
        let format = notes::format()
            .to_possible_value()
            .context("it has a name")?;
        command.args(["--log-format", format.get_name()]);
        let value = on_exit.to_possible_value().context("it has a name")?;
        command.args([BOX_HOLDER, value.get_name()]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group keeps the terminal's Ctrl-C away from it.
            .process_group(0);
        let started = guard.share(|descriptor| Ok((descriptor, command.spawn()?)));
        let (descriptor, mut process) = started.context("cannot start the helper process")?;
        let messages = process
            .stdin
            .take()
            .context("the helper process has no input")?;
        let answers = process
            .stdout
            .take()
            .context("the helper process has no output")?;
        let mut holder = Self {
            process,
            messages,
            on_exit,
            links: LinkInterfaces::new(),
        };
        holder.send(&Message::Guard(descriptor));
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line)?;
        anyhow::ensure!(line.trim_end() == READY, "the helper process ended");
        Ok(holder)
    }

    /// Tells the holder the indexes of a link's interfaces. They change when an interface is
    /// unplugged and comes back.
    pub(super) fn set_interfaces(&mut self, link: usize, interfaces: [u32; 2]) {
        put(&mut self.links, link, interfaces);
        self.send(&Message::Interfaces { link, interfaces });
    }

    /// Returns true if the holder has ended before the box. Then no process would notice a sudden
    /// end of the box.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Lets the holder do its work at the end of the box and waits for it. The caller has already
    /// restored everything. If the holder has ended, this process does the work itself. `orderly`
    /// says whether the box ends as intended.
    ///
    /// # Errors
    /// Fails if an interface cannot be changed.
    pub(super) fn end(mut self, orderly: bool) -> Result<()> {
        if self.has_ended() {
            return finish(self.on_exit, &self.links, orderly);
        }
        if orderly {
            self.send(&Message::Ended);
        }
        drop(self.messages);
        let status = self.process.wait().context("the box holder")?;
        anyhow::ensure!(status.success(), "the helper process ended with {status}");
        Ok(())
    }

    /// Ends the holder without any action, because the box never started.
    pub(super) fn dismiss(mut self) {
        self.send(&Message::Dismissed);
        drop(self.messages);
        // A dismissed holder does nothing that could fail.
        let _ = self.process.wait();
    }

    fn send(&mut self, message: &Message) {
        // The holder may have ended; `has_ended` reports that.
        if let Ok(line) = serde_json::to_string(message) {
            let _ = writeln!(self.messages, "{line}");
        }
    }
}

/// Runs the box holder: waits for the end of the box and does what `on_exit` says.
///
/// # Errors
/// Fails if standard input cannot be used or if an interface cannot be changed.
pub(crate) fn hold(on_exit: OnExit) -> Result<()> {
    // These signals may reach the holder together with the box; the holder ends only with the box.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // If the box has already ended, it does not read this line, and the loop below ends
    // immediately.
    let _ = writeln!(std::io::stdout(), "{READY}");
    let (mut links, mut orderly, mut guard) = (LinkInterfaces::new(), false, None);
    // The box may die while it writes: an incomplete last line does not parse and is ignored.
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Message::Guard(descriptor)) => guard = Some(descriptor),
            Ok(Message::Interfaces { link, interfaces }) => put(&mut links, link, interfaces),
            Ok(Message::Ended) => orderly = true,
            Ok(Message::Dismissed) => return Ok(()),
            Err(_) => {}
        }
    }
    let finished = finish(on_exit, &links, orderly);
    if let Some(descriptor) = guard {
        IngressDrop::release(descriptor);
    }
    finished
}

/// Stores the interfaces of a link. The first messages arrive in the order of the links.
fn put(links: &mut LinkInterfaces, link: usize, interfaces: [u32; 2]) {
    match links.get_mut(link) {
        Some(known) => *known = interfaces,
        None => links.push(interfaces),
    }
}

/// A line about an interface or a link. It is printed after the work on all interfaces, because a reader that
/// has stopped reading delays the first line.
enum Line {
    Note(String),
    Warning(String),
}

impl Line {
    fn print(self) {
        match self {
            Self::Note(line) => note(line),
            Self::Warning(line) => warn(line),
        }
    }
}

/// Does the work at the end of the box, for every link, and then says what it did.
///
/// # Errors
/// Returns the first failure in the order of the links, after all links have been tried.
fn finish(on_exit: OnExit, links: &LinkInterfaces, orderly: bool) -> Result<()> {
    if on_exit != OnExit::Bridge && orderly {
        return Ok(());
    }
    let found = FoundInterfaces::of(links)?;
    let work = |interfaces: [u32; 2]| {
        let mut lines = Vec::new();
        let outcome = match on_exit {
            OnExit::Cut => cut(&found, interfaces, &mut lines),
            OnExit::Bridge => bridge(&found, interfaces, orderly, &mut lines),
            OnExit::Restore => restore(&found, interfaces, &mut lines),
        };
        Ok::<_, Infallible>((lines, outcome))
    };
    let Ok(done) = side_by_side::each(links.clone(), work);
    let mut outcome = Ok(());
    for (lines, of_link) in done {
        lines.into_iter().for_each(Line::print);
        outcome = outcome.and(of_link);
    }
    outcome
}

/// The interfaces of a box as it left them.
struct FoundInterfaces {
    /// Those that still exist, by index.
    interfaces: HashMap<u32, Interface>,
    host: HostUse,
    leases: InterfaceLeases,
}

impl FoundInterfaces {
    fn of(links: &LinkInterfaces) -> Result<Self> {
        let lookup = InterfaceLookup::open()?;
        let each = links.iter().flatten();
        let existing = each.flat_map(|index| lookup.by_index(*index));
        Ok(Self {
            interfaces: existing.map(|found| (found.index, found)).collect(),
            host: HostUse::now()?,
            leases: InterfaceLeases::open()?,
        })
    }

    /// Takes over the interface with this index, as it was before the box started. Returns `None`
    /// if it is gone or another box already has it.
    fn take(&self, index: u32) -> Result<Option<(&Interface, InterfaceLease)>> {
        let Some(found) = self.interfaces.get(&index) else {
            return Ok(None);
        };
        match self.leases.take(found) {
            Ok(lease) => Ok(Some((found, lease))),
            Err(LeaseError::InUse { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Restores the interfaces, which taking them over does.
fn restore(found: &FoundInterfaces, interfaces: [u32; 2], lines: &mut Vec<Line>) -> Result<()> {
    let mut outcome = Ok(());
    for index in interfaces {
        match found.take(index) {
            Ok(None) => {}
            Ok(Some((interface, lease))) => {
                if interfaces[1] == NOT_MADE {
                    // The box may have made a pair just before it died. No other box makes one as long as this has the lease.
                    let removed = new_pair::remove_of(index, &found.leases);
                    outcome = outcome.and(removed.map_err(Into::into));
                }
                drop(lease);
                let name = &interface.name;
                lines.push(Line::Warning(format!(
                    "the emulator has died: {name} is as it was before"
                )));
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// Sets the interfaces down, except those that would lose addresses or routes.
fn cut(found: &FoundInterfaces, interfaces: [u32; 2], lines: &mut Vec<Line>) -> Result<()> {
    let mut outcome = Ok(());
    for index in interfaces {
        outcome = outcome.and(cut_one(found, index, lines));
    }
    outcome
}

fn cut_one(found: &FoundInterfaces, index: u32, lines: &mut Vec<Line>) -> Result<()> {
    let Some((interface, mut lease)) = found.take(index)? else {
        return Ok(());
    };
    let name = &interface.name;
    if found.host.is_configured(interface) {
        lines.push(Line::Warning(format!(
            "the emulator has died: {name} is restored but not set down, because it would lose its addresses or routes"
        )));
        return Ok(());
    }
    lease.set_up(false)?;
    lease.leave();
    lines.push(Line::Warning(format!(
        "the emulator has died: {name} is down until `farwire emulate --restore`"
    )));
    Ok(())
}

/// Connects the interfaces with a bridge, or cuts them if that fails.
fn bridge(
    found: &FoundInterfaces,
    interfaces: [u32; 2],
    orderly: bool,
    lines: &mut Vec<Line>,
) -> Result<()> {
    let joined = join(found, interfaces);
    let Ok(Some([a, b])) = &joined else {
        let why = match joined {
            Err(error) => format!("{error:#}"),
            Ok(_) => "one of them is gone".to_owned(),
        };
        lines.push(Line::Warning(format!(
            "cannot bridge the interfaces: {why}"
        )));
        return cut(found, interfaces, lines);
    };
    let outcome = format!("a bridge connects {a} and {b} until `farwire emulate --restore`");
    lines.push(if orderly {
        Line::Note(format!("farwire: {outcome}"))
    } else {
        Line::Warning(format!("the emulator has died: {outcome}"))
    });
    Ok(())
}

/// Connects the interfaces with a bridge and returns their names, or `None` if one of them is gone
/// or belongs to another box.
fn join(found: &FoundInterfaces, [a, b]: [u32; 2]) -> Result<Option<[String; 2]>> {
    let (Some((first, mut a)), Some((second, mut b))) = (found.take(a)?, found.take(b)?) else {
        return Ok(None);
    };
    InterfaceLease::join([&mut a, &mut b])?;
    a.leave();
    b.leave();
    Ok(Some([first.name.clone(), second.name.clone()]))
}
