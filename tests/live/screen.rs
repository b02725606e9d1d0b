//! `--tui` on a separate terminal: what it shows, what its keys do, and that the terminal is restored.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use vt100::{Color, Parser};

use test_support::process::{self, stderr, wait_for};
use test_support::scenario::TWO_CASES;

/// The sizes of the terminal.
const ROWS: NonZero<u16> = NonZero::new(40).expect("40 is not 0");
const COLUMNS: NonZero<u16> = NonZero::new(140).expect("140 is not 0");
const SIZE: Winsize = Winsize {
    ws_row: ROWS.get(),
    ws_col: COLUMNS.get(),
    ws_xpixel: 0,
    ws_ypixel: 0,
};
/// The right and the up arrow, as terminals send them.
const RIGHT: &str = "\x1b[C";
const UP: &str = "\x1b[A";
/// The exit code that a shell gives to a command that SIGTERM ended.
const TERMINATED: i32 = 128 + 15;

/// A farwire on a terminal.
struct OnTerminal {
    child: Child,
    keys: File,
    /// The present content of the terminal.
    shown: Arc<Mutex<Parser>>,
    slave: OwnedFd,
    before: Termios,
    folder: TempDir,
}

impl OnTerminal {
    /// Starts `farwire exec --tui` with pings behind 1 ms; on return it shows the link.
    fn start() -> Result<Self> {
        Self::exec(&[])
    }

    /// The same, in an environment with these variables.
    fn exec(environment: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = process::farwire();
        command
            .args(["exec", "--tui", "--listen"])
            .arg(format!("unix:{}", folder.path().join("api").display()))
            .args(["--delay", "1ms", "--", "sh", "-c"])
            .arg("echo first words; exec ping -n -i 0.2 $FARWIRE_SERVER > /dev/null")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied());
        let screen = Self::of(&mut command, folder)?;
        screen.await_text("[delay 1ms]")?;
        Ok(screen)
    }

    /// Starts `farwire run --tui` with two cases; on return it shows the second.
    fn run() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("scenario.toml");
        fs::write(&file, TWO_CASES)?;
        let mut command = process::farwire();
        command
            .args(["run", "--tui", "--out"])
            .arg(folder.path().join("out"))
            .arg(file);
        let screen = Self::of(&mut command, folder)?;
        screen.await_text("now long (1")?;
        screen.await_text("conditions: delay 2ms")?;
        Ok(screen)
    }

    /// Starts a command on a separate terminal.
    fn of(command: &mut Command, folder: TempDir) -> Result<Self> {
        let pair = put_on_terminal(command)?;
        let before = tcgetattr(&pair.slave)?;
        let child = command.spawn()?;
        let shown = Arc::new(Mutex::new(Parser::new(ROWS, COLUMNS, 0)));
        let (mut master, parser) = (File::from(pair.master), Arc::clone(&shown));
        let keys = master.try_clone()?;
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read ends when nobody has the other end open any more.
            while let Ok(read @ 1..) = master.read(&mut bytes) {
                if let Ok(mut parser) = parser.lock() {
                    parser.process(&bytes[..read]);
                }
            }
        });
        Ok(Self {
            child,
            keys,
            shown,
            slave: pair.slave,
            before,
            folder,
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            signal,
        )?)
    }

    /// Returns whether something is drawn in a colour.
    fn is_coloured(&self) -> bool {
        let shown = self.shown.lock().expect("the reader does not panic");
        let mut cells = (0..ROWS.get()).flat_map(|row| (0..COLUMNS.get()).map(move |at| (row, at)));
        cells.any(|(row, at)| {
            let cell = shown.screen().cell(row, at);
            cell.is_some_and(|cell| cell.fgcolor() != Color::Default)
        })
    }

    fn text(&self) -> String {
        let shown = self.shown.lock().expect("the reader does not panic");
        shown.screen().contents()
    }

    /// Waits until a line contains this text.
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

    /// Changes the link from elsewhere.
    fn set(&self, conditions: &str) -> Result<()> {
        let mut set = process::farwire();
        set.args(["set", "link", "--at"])
            .arg(format!("unix:{}", self.folder.path().join("api").display()))
            .args(conditions.split(' '));
        process::succeeds(&mut set)?;
        Ok(())
    }

    /// Returns the API's view of the link.
    fn conditions(&self) -> Result<Value> {
        let mut links = process::farwire();
        links.args(["links", "--json", "-", "--at"]);
        links.arg(format!("unix:{}", self.folder.path().join("api").display()));
        let output = process::run(&mut links)?;
        let all: Value = serde_json::from_slice(&output.stdout)?;
        let link = all.pointer("/links/0").or(all.pointer("/0"));
        Ok(link.with_context(|| all.to_string())?["conditions"].clone())
    }

    /// Waits until the terminal is restored, after the end of a program. Its last output may be read later than that.
    fn await_restored(&self) -> Result<()> {
        wait_for("the terminal to be as it was", || {
            let shown = self.shown.lock().expect("the reader does not panic");
            Ok((!shown.screen().alternate_screen()).then_some(()))
        })?;
        self.check_settings()
    }

    fn check_settings(&self) -> Result<()> {
        ensure!(
            tcgetattr(&self.slave)? == self.before,
            "the terminal's settings are others"
        );
        Ok(())
    }

    /// Waits for the end of the command of `exec` by SIGTERM; checks that the terminal is restored and has its output.
    fn end(self) -> Result<()> {
        self.end_with("first words", TERMINATED)
    }

    /// Waits for the end with this exit code; checks that the terminal is restored, with this text and farwire's messages on it.
    fn end_with(mut self, printed: &str, code: i32) -> Result<()> {
        let status = process::end_of(&mut self.child)?;
        ensure!(status.code() == Some(code), "{status}: {}", self.text());
        self.await_text(printed)?;
        self.await_line("what farwire said", |line| line.starts_with("farwire: "))?;
        let shown = self.shown.lock().expect("the reader does not panic");
        let screen = shown.screen();
        ensure!(!screen.alternate_screen(), "the screen is still shown");
        ensure!(!screen.hide_cursor(), "the cursor is hidden");
        self.check_settings()
    }

    /// Presses q, waits for the end with success, and checks that the terminal is restored.
    fn quit(mut self) -> Result<()> {
        self.press("q")?;
        let status = process::end_of(&mut self.child)?;
        ensure!(status.success(), "{status}: {}", self.text());
        self.await_restored()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a terminal for `command`, which is to be started on it.
fn put_on_terminal(command: &mut Command) -> Result<OpenptyResult> {
    let pair = openpty(&SIZE, None)?;
    // The program must not hold the end that a test closes.
    fcntl(&pair.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let end = || pair.slave.try_clone().map(Stdio::from);
    command
        .env("TERM", "xterm-256color")
        .stdin(end()?)
        .stdout(end()?)
        .stderr(end()?);
    Ok(pair)
}

#[test_support::test(Namespaces)]
fn a_terminal_that_is_gone_ends_the_command_and_the_link() -> Result<()> {
    let mut command = process::farwire();
    command
        .args(["exec", "--tui", "--delay", "1ms", "--", "sh", "-c"])
        .arg("echo first words; exec sleep 1000");
    let pair = put_on_terminal(&mut command)?;
    let mut child = command.spawn()?;
    drop(command);
    drop(pair.slave);
    let mut master = File::from(pair.master);
    let mut shown = Parser::new(ROWS, COLUMNS, 0);
    while !shown.screen().contents().contains("first words") {
        let mut bytes = [0; 4096];
        let read = master.read(&mut bytes)?;
        shown.process(&bytes[..read]);
    }
    drop(master);
    let status = process::end_of(&mut child)?;
    ensure!(status.code() == Some(TERMINATED), "{status}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_screen_shows_the_link_and_the_commands_output_and_its_keys_change_the_link() -> Result<()> {
    let mut screen = OnTerminal::start()?;
    screen.await_text("first words")?;
    screen.await_text("round trip a ")?;
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
        line.starts_with("dropped by the conditions: up loss ")
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
    ensure!(conditions["delay"] == "1ms", "{conditions}");
    ensure!(conditions["loss"].is_null(), "{conditions}");
    screen.press(UP)?;
    screen.await_text("[loss 0.1%]")?;
    screen.set("--delay 1ms --loss 7%")?;
    screen.await_text("[loss 7%]")?;
    screen.press("u")?;
    screen.await_text("cannot undo: the link has changed to revision ")?;
    ensure!(screen.conditions()?["loss"] == "7%", "another's is undone");
    screen.press("p")?;
    screen.await_text("PAUSED")?;
    screen.press("q")?;
    screen.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_rule_is_typed_and_counted_and_a_schedule_shows_its_time_and_is_moved() -> Result<()> {
    let mut screen = OnTerminal::start()?;
    screen.press("\rat=5s\r")?;
    screen.await_text("the link's conditions have no schedule, trace, outage or handover")?;
    let file = screen.folder.path().join("link.toml");
    fs::write(
        &file,
        "delay = '1ms'\nschedule = [{ at = '90000s', delay = '2ms' }]",
    )?;
    screen.set(&format!("--link {}", file.display()))?;
    screen.await_text(", schedule at ")?;
    screen.press("\rrule=icmp: name=pings loss=0%\r")?;
    screen.await_line("packets of the rule", |line| {
        line.starts_with("packets by rule, up/down: pings ")
    })?;
    let conditions = screen.conditions()?;
    ensure!(conditions["rules"][0]["match"] == "icmp", "{conditions}");
    screen.press("\rrule=icmp\r")?;
    screen.await_text("`icmp` has no conditions")?;
    screen.press("\rat=10h\r")?;
    // The time begins with these digits for a thousand seconds.
    screen.await_text("revision 4, schedule at 36")?;
    screen.press("u")?;
    screen.await_text("revision 5, schedule at 36")?;
    let conditions = screen.conditions()?;
    ensure!(conditions["rules"].is_null(), "{conditions}");
    screen.press("q")?;
    screen.end()
}

/// The test runs in a separate namespace, which ends with it.
const BOX: &str = "ip link add name left type veth peer name client && ip link add name right type veth peer name server && \
    for one in left client right server; do ip link set $one up || exit 99; done; exec \"$0\" emulate left right --tui --delay 3ms";

#[test_support::test(Namespaces, Tool("ip"))]
fn a_screen_shows_a_box_between_two_interfaces_and_its_keys_change_it() -> Result<()> {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", BOX]);
    command.arg(process::farwire().get_program());
    let mut screen = OnTerminal::of(&mut command, tempfile::tempdir()?)?;
    screen.await_text("[delay 3ms]")?;
    screen.press(UP)?;
    screen.await_text("[delay 5ms]")?;
    screen.quit()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_signal_ends_a_screen_and_the_terminal_is_as_it_was() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let screen = OnTerminal::start()?;
        // Before this point, SIGINT would end farwire without the screen.
        screen.await_text("first words")?;
        screen.signal(signal)?;
        screen.end().with_context(|| signal.to_string())?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_screen_shows_a_run_its_links_how_far_it_is_and_its_figures_no_key_changes_it_and_it_ends_as_by_a_signal()
-> Result<()> {
    let mut screen = OnTerminal::run()?;
    screen.await_line("how far it is", |line| {
        line.contains("Two cases") && line.contains(" runs, about ")
    })?;
    screen.await_line("the first case's figure", |line| {
        line.contains("short") && line.contains("echo.rtt_ms.median")
    })?;
    screen.await_line("packets of the link", |line| line.starts_with("up  "))?;
    for keys in ["+", "\r", "x"] {
        screen.press(keys)?;
        screen.await_text("the conditions of a measured run")?;
    }
    screen.press("p")?;
    screen.await_text("PAUSED")?;
    ensure!(screen.text().contains("conditions: delay 2ms"));
    screen.press("q")?;
    screen.end_with("--resume", 1)
}

#[test_support::test(Namespaces)]
fn a_signal_ends_a_runs_screen_and_what_the_run_came_to_stands_on_the_terminal_as_it_was()
-> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let screen = OnTerminal::run()?;
        screen.signal(signal)?;
        // This is the figure of the case that was measured.
        let ended = screen.end_with("short", 1);
        ended.with_context(|| signal.to_string())?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_screen_has_colours_and_none_where_no_color_is_set() -> Result<()> {
    // An empty variable counts as unset (no-color.org).
    for (value, expected) in [("", true), ("1", false)] {
        let screen = OnTerminal::exec(&[("NO_COLOR", value)])?;
        screen.await_line("packets of the link", |line| line.starts_with("up  "))?;
        ensure!(
            screen.is_coloured() == expected,
            "NO_COLOR={value}: {}",
            screen.text()
        );
        screen.await_text("first words")?;
        screen.signal(Signal::SIGTERM)?;
        screen.end()?;
    }
    Ok(())
}

/// A far end on free ports of the loopback.
const FAR_END: &str = "serve --bind 127.0.0.1 --http-port 0 --iperf3-port 0 --messages-port 0 --capacity-port 0 --stamp-port 0 --tui";

#[test_support::test]
fn a_screen_shows_the_tests_of_a_far_end_and_a_key_resets_their_counters() -> Result<()> {
    let mut command = process::farwire();
    command.args(FAR_END.split(' '));
    let mut screen = OnTerminal::of(&mut command, tempfile::tempdir()?)?;
    screen.await_text("0 tests running, 0 ended, 0 failed, 0 refusals")?;
    let text = screen.text();
    let port = text.split("http on 127.0.0.1:").nth(1);
    let port = port.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let port: u16 = port.with_context(|| text.clone())?.parse()?;
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.write_all(b"GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let address = client.local_addr()?.to_string();
    let mut some = vec![0; 100_000];
    wait_for("the row of the test", || {
        client.read_exact(&mut some)?;
        let is_row = |line: &str| line.contains(&address) && line.contains(" MiB ");
        Ok(screen.text().lines().any(is_row).then_some(()))
    })?;
    screen.await_text("1 test running, 0 ended")?;
    drop(client);
    screen.await_text("0 tests running, 1 ended")?;
    let is_total = |line: &str, size: &str| line.contains("│total ") && line.contains(size);
    screen.await_line("the total", |line| is_total(line, " MiB "))?;
    screen.await_text(&format!(", {address}, http, "))?;
    screen.press("r")?;
    screen.await_text("0 tests running, 0 ended")?;
    screen.await_line("a total of nothing", |line| {
        is_total(line, " 0 bytes ") && !is_total(line, "iB")
    })?;
    screen.quit()
}

#[test_support::test]
fn without_a_terminal_there_is_no_screen() -> Result<()> {
    for (line, code) in [
        ("exec --tui -- true", 125),
        ("emulate --tui no-a no-b", 2),
        ("run --tui none.toml", 2),
        ("serve --tui", 2),
    ] {
        let output = process::run(process::farwire().args(line.split(' ')))?;
        let said = stderr(&output);
        ensure!(output.status.code() == Some(code), "{line}: {said}");
        ensure!(
            said.contains("standard input and output must be a terminal"),
            "{line}: {said}"
        );
    }
    let output = process::run(process::farwire().args(["serve", "--tui", "--json", "-"]))?;
    process::ends_with(&output, 2, "--tui needs standard output for its screen")?;
    Ok(())
}
