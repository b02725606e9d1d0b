//! The box holder: a separate process that takes care of the interfaces when the emulator ends, however it ends.
//!
//! It is this program again, started with the hidden command `box-holder`. It waits for the end of its standard input, which
//! comes when the emulator ends, even by SIGKILL. First it restores from the journals whatever the emulator has changed and not
//! restored itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::ValueEnum;
use netio::iface::Interface;
use netio::lease::{InterfaceLease, LeaseError};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::side_by_side;
use crate::notes::{self, note, warn};

/// The hidden command.
const BOX_HOLDER: &str = "box-holder";
/// What it says when it holds.
const READY: &str = "ready";

/// What becomes of the interfaces when the box ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnExit {
    /// Nothing passes; an unexpected end also sets the interfaces down
    Cut,
    /// A kernel bridge forwards everything, without delay or loss
    Bridge,
}

/// What the box tells its holder.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// Between which interfaces a link stands, by number; the last word about each link counts.
    Between { link: usize, interfaces: [u32; 2] },
    /// It ends in order, with everything put back.
    Ended,
    /// It could not begin: nothing is to be done.
    Dismissed,
}

/// The interfaces of each link, by number.
type Between = Vec<[u32; 2]>;

/// The process, as the box has it.
pub(super) struct BoxHolder {
    process: Child,
    words: ChildStdin,
    on_exit: OnExit,
    between: Between,
}

impl BoxHolder {
    /// Starts it; on return no end of this process goes unseen.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(on_exit: OnExit, between: Between) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        if notes::are_quiet() {
            command.arg("--quiet");
        }
        let format = notes::format().to_possible_value();
        let format = format.context("it has a name")?;
        command.args(["--log-format", format.get_name()]);
        let value = on_exit.to_possible_value().context("it has a name")?;
        command.args([BOX_HOLDER, value.get_name()]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Out of reach of the terminal's Ctrl-C.
            .process_group(0)
            .spawn()
            .context("cannot start the helper process")?;
        let words = process
            .stdin
            .take()
            .context("the helper process has no input")?;
        let answers = process
            .stdout
            .take()
            .context("the helper process has no output")?;
        let mut holder = Self {
            process,
            words,
            on_exit,
            between: Vec::new(),
        };
        for (link, interfaces) in between.into_iter().enumerate() {
            holder.stand_between(link, interfaces);
        }
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line)?;
        anyhow::ensure!(line.trim_end() == READY, "the helper process ended");
        Ok(holder)
    }

    /// Tells it the numbers of a link's interfaces, which are others when one was unplugged and is back.
    pub(super) fn stand_between(&mut self, link: usize, interfaces: [u32; 2]) {
        put(&mut self.between, link, interfaces);
        self.tell(&Word::Between { link, interfaces });
    }

    /// Whether it has ended before the box: nothing is left then that sees a sudden end.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Has it do what is to be done at the end, `orderly` or not, and waits until that is done; everything was put back
    /// before. Where it has ended, that is done here.
    ///
    /// # Errors
    /// An interface could not be changed.
    pub(super) fn end(mut self, orderly: bool) -> Result<()> {
        if self.has_ended() {
            return leave_behind(self.on_exit, &self.between, orderly);
        }
        if orderly {
            self.tell(&Word::Ended);
        }
        drop(self.words);
        let status = self.process.wait().context("the box holder")?;
        anyhow::ensure!(status.success(), "the helper process ended with {status}");
        Ok(())
    }

    /// Ends it without anything done: nothing was begun.
    pub(super) fn dismiss(mut self) {
        self.tell(&Word::Dismissed);
        drop(self.words);
        // It has nothing to fail with.
        let _ = self.process.wait();
    }

    fn tell(&mut self, word: &Word) {
        // It may have ended, which is seen elsewhere.
        if let Ok(line) = serde_json::to_string(word) {
            let _ = writeln!(self.words, "{line}");
        }
    }
}

/// The box holder: waits for the box's end and does what `on_exit` says.
///
/// # Errors
/// Standard input or output fail; an interface could not be changed.
pub(crate) fn hold(on_exit: OnExit) -> Result<()> {
    // It ends with the box, which these reach as well.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // A box that has ended meanwhile reads nothing, and what is to be done at its end follows.
    let _ = writeln!(std::io::stdout(), "{READY}");
    let (mut between, mut orderly) = (Between::new(), false);
    // The last line is whole or was never meant: the box may end while it writes.
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Word::Between { link, interfaces }) => put(&mut between, link, interfaces),
            Ok(Word::Ended) => orderly = true,
            Ok(Word::Dismissed) => return Ok(()),
            Err(_) => {}
        }
    }
    leave_behind(on_exit, &between, orderly)
}

/// Words come link by link at first.
fn put(between: &mut Between, link: usize, interfaces: [u32; 2]) {
    match between.get_mut(link) {
        Some(known) => *known = interfaces,
        None => between.push(interfaces),
    }
}

/// Does what is to be done at the box's end, for every link.
fn leave_behind(on_exit: OnExit, between: &Between, orderly: bool) -> Result<()> {
    side_by_side::each(between.clone(), |interfaces| match (on_exit, orderly) {
        (OnExit::Cut, true) => Ok(()),
        (OnExit::Cut, false) => cut(interfaces),
        (OnExit::Bridge, _) => bridge(interfaces, orderly),
    })
    .map(drop)
}

/// Sets the interfaces down, but for those that would lose addresses or routes.
fn cut(interfaces: [u32; 2]) -> Result<()> {
    let mut outcome = Ok(());
    for index in interfaces {
        outcome = outcome.and(cut_one(index));
    }
    outcome
}

fn cut_one(index: u32) -> Result<()> {
    let Some((interface, mut lease)) = take(index)? else {
        return Ok(());
    };
    let name = &interface.name;
    if interface.is_configured()? {
        warn(format_args!(
            "the emulator has died: {name} is restored but not set down, because it would lose its addresses or routes"
        ));
        return Ok(());
    }
    lease.set_up(false)?;
    lease.leave();
    warn(format_args!(
        "the emulator has died: {name} is down until `farwire emulate --restore`"
    ));
    Ok(())
}

/// Joins the interfaces; if that cannot be, cuts them.
fn bridge(interfaces: [u32; 2], orderly: bool) -> Result<()> {
    let joined = join(interfaces);
    let Ok(Some([a, b])) = &joined else {
        let why = match joined {
            Err(error) => format!("{error:#}"),
            Ok(_) => "one of them is gone".to_owned(),
        };
        warn(format_args!("cannot bridge the interfaces: {why}"));
        return cut(interfaces);
    };
    let said = format!("a bridge connects {a} and {b} until `farwire emulate --restore`");
    match orderly {
        true => note(format_args!("farwire: {said}")),
        false => warn(format_args!("the emulator has died: {said}")),
    }
    Ok(())
}

/// The names of the interfaces, joined; none if one is gone, or another box has one.
fn join([a, b]: [u32; 2]) -> Result<Option<[String; 2]>> {
    let (Some((first, mut a)), Some((second, mut b))) = (take(a)?, take(b)?) else {
        return Ok(None);
    };
    InterfaceLease::join([&mut a, &mut b])?;
    a.leave();
    b.leave();
    Ok(Some([first.name, second.name]))
}

/// Takes the interface with this number over, as it was before the box; none if it is gone or another box has it already.
fn take(index: u32) -> Result<Option<(Interface, InterfaceLease)>> {
    let Ok(found) = Interface::by_index(index) else {
        return Ok(None);
    };
    match InterfaceLease::take(&found) {
        Ok(lease) => Ok(Some((found, lease))),
        Err(LeaseError::InUse { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
