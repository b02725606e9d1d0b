//! `--tui` on a terminal of its own: what it shows, what its keys do, and that the terminal is as it was.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use vt100::Parser;

use crate::common::process::{self, wait_for};
use crate::common::suite::{Need, Suite};

const NEEDS: [Need; 2] = [Need::Namespaces, Need::Tool("ping")];

/// The sizes of the terminal.
const ROWS: NonZero<u16> = NonZero::new(40).expect("40 is not 0");
const COLUMNS: NonZero<u16> = NonZero::new(140).expect("140 is not 0");
/// The right and the up arrow, as terminals send them.
const RIGHT: &str = "\x1b[C";
const UP: &str = "\x1b[A";
/// What ends a command that SIGTERM ends, as a shell has it.
const TERMINATED: i32 = 128 + 15;

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "a screen shows the link and the command's output, and its keys change the link",
        &NEEDS,
        keys,
    );
    suite.test(
        "a signal ends a screen, and the terminal is as it was",
        &NEEDS,
        a_signal,
    );
    suite.test("without a terminal there is no screen", &[], refused);
}

/// A farwire on a terminal.
struct OnTerminal {
    child: Child,
    keys: File,
    /// As the terminal shows it now.
    shown: Arc<Mutex<Parser>>,
    slave: OwnedFd,
    before: Termios,
    folder: TempDir,
}

impl OnTerminal {
    /// `farwire exec --tui` with pings behind 1 ms; on return it shows the link.
    fn start() -> Result<Self> {
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None)?;
        let before = tcgetattr(&pair.slave)?;
        let folder = tempfile::tempdir()?;
        let end = || pair.slave.try_clone().map(Stdio::from);
        let child = process::farwire()
            .args(["exec", "--tui", "--listen"])
            .arg(format!("unix:{}", folder.path().join("api").display()))
            .args(["--delay", "1ms", "--", "sh", "-c"])
            .arg("echo first words; exec ping -n -i 0.2 $FARWIRE_SERVER > /dev/null")
            .env("TERM", "xterm-256color")
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()?;
        let shown = Arc::new(Mutex::new(Parser::new(ROWS, COLUMNS, 0)));
        let (mut master, parser) = (File::from(pair.master), Arc::clone(&shown));
        let keys = master.try_clone()?;
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends when nobody has the other end open any more.
            while let Ok(read @ 1..) = master.read(&mut bytes) {
                if let Ok(mut parser) = parser.lock() {
                    parser.process(&bytes[..read]);
                }
            }
        });
        let screen = Self {
            child,
            keys,
            shown,
            slave: pair.slave,
            before,
            folder,
        };
        screen.await_text("[delay 1ms]")?;
        Ok(screen)
    }

    fn text(&self) -> String {
        let shown = self.shown.lock().expect("the reader does not panic");
        shown.screen().contents()
    }

    /// Waits until a line has this in it.
    fn await_text(&self, text: &str) -> Result<()> {
        self.await_line(text, |line| line.contains(text))
    }

    fn await_line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
        let found = wait_for(what, || Ok(self.text().lines().any(&is_it).then_some(())));
        found.with_context(|| format!("the terminal shows\n{}", self.text()))
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    /// What the API says of the link.
    fn conditions(&self) -> Result<Value> {
        let mut links = process::farwire();
        links.args(["links", "--json", "-", "--at"]);
        links.arg(format!("unix:{}", self.folder.path().join("api").display()));
        let output = process::run(&mut links)?;
        let all: Value = serde_json::from_slice(&output.stdout)?;
        let link = all.pointer("/links/0").or(all.pointer("/0"));
        Ok(link.with_context(|| all.to_string())?["conditions"].clone())
    }

    /// Waits for the end; the terminal is as it was, with what the command printed.
    fn end(mut self) -> Result<ExitStatus> {
        let status = process::end_of(&mut self.child)?;
        self.await_text("first words")?;
        self.await_line("what the link did", |line| line.starts_with("farwire: "))?;
        let shown = self.shown.lock().expect("the reader does not panic");
        let screen = shown.screen();
        ensure!(!screen.alternate_screen(), "the screen still stands");
        ensure!(!screen.hide_cursor(), "the cursor is hidden");
        ensure!(
            tcgetattr(&self.slave)? == self.before,
            "the terminal's settings are others"
        );
        Ok(status)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keys() -> Result<()> {
    let mut screen = OnTerminal::start()?;
    screen.await_text("first words")?;
    screen.press(UP)?;
    screen.await_text("[delay 2ms]")?;
    ensure!(screen.conditions()?["delay"] == "2ms");
    screen.press(RIGHT)?;
    screen.press(UP)?;
    screen.await_text("[loss 0.1%]")?;
    screen.press("\rloss=100%\r")?;
    screen.await_text("[loss 100%]")?;
    ensure!(screen.conditions()?["loss"] == "100%");
    screen.await_line("pings that are lost", |line| {
        line.starts_with("up ") && line.contains("loss ")
    })?;
    screen.press("\rlos=1%\r")?;
    screen.await_text("did you mean `loss`")?;
    screen.press("u")?;
    screen.await_text("[loss 0.1%]")?;
    screen.press("x")?;
    screen.await_text("[loss none]")?;
    screen.press("uuu")?;
    screen.await_text(" delay 1ms ")?;
    let conditions = screen.conditions()?;
    ensure!(
        conditions["delay"] == "1ms" && conditions["loss"].is_null(),
        "{conditions}"
    );
    screen.press("p")?;
    screen.await_text("PAUSED")?;
    screen.press("q")?;
    let status = screen.end()?;
    ensure!(status.code() == Some(TERMINATED), "{status}");
    Ok(())
}

fn a_signal() -> Result<()> {
    let screen = OnTerminal::start()?;
    let pid = Pid::from_raw(i32::try_from(screen.child.id())?);
    kill(pid, Signal::SIGTERM)?;
    let status = screen.end()?;
    ensure!(status.code() == Some(TERMINATED), "{status}");
    Ok(())
}

fn refused() -> Result<()> {
    for (line, code) in [("exec --tui -- true", 125), ("emulate --tui no-a no-b", 2)] {
        let output = process::run(process::farwire().args(line.split(' ')))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "{line}: {said}");
        ensure!(
            said.contains("standard input and output must be a terminal"),
            "{line}: {said}"
        );
    }
    Ok(())
}
