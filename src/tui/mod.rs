//! `--tui`: shows and changes running links on a terminal, or shows the tests of a far end. Like the
//! web page, it uses only the interfaces of `live` and of `far_end`.
//!
//! One thread, "screen", reads keys and draws: links ten times per second, tests once. The packet
//! path never waits for it, because it only sends commands, and tests never wait for it either.

mod app;
mod draw;
mod far_end;
mod history;
mod output;
mod run;
mod steps;

use std::io::{self, IsTerminal as _, Stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd as _;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

use crate::live::Links;
use crate::notes;
use app::App;
pub(crate) use far_end::{FarEndScreen, ScreenLog};
pub(crate) use output::CommandOutput;

/// The longest wait for a key.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// The name of the thread that draws.
const THREAD: &str = "screen";
/// True while the terminal shows a screen.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// The lock for drawing. Nothing is drawn once the terminal is restored.
static DRAWING: Mutex<()> = Mutex::new(());
/// Ensures that the panic hook is installed only once.
static HOOK: Once = Once::new();

/// Refuses a terminal on which no screen can be shown. `instead` says what shows the same.
///
/// # Errors
/// Fails if standard input or output is not a terminal, or if the terminal cannot move its cursor.
pub(crate) fn check(instead: &str) -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "--tui: standard input and output must be a terminal: use one, or {instead}"
    );
    let term = std::env::var("TERM").unwrap_or_default();
    ensure!(
        term != "dumb",
        "--tui: this terminal cannot move its cursor (TERM=dumb): use another, or {instead}"
    );
    Ok(())
}

/// The content of a screen.
trait Content: Send {
    /// Returns the least time between two drawings if no key is pressed.
    fn interval(&self) -> Duration;

    /// Processes what has happened since the last call.
    fn update(&mut self);

    /// Draws everything.
    fn draw(&self, frame: &mut Frame<'_>);

    /// Handles a key. Returns true if the key asks to leave.
    fn key(&mut self, key: KeyEvent) -> bool;
}

impl Content for App {
    fn interval(&self) -> Duration {
        // It is drawn after every wait for a key.
        Duration::ZERO
    }

    fn update(&mut self) {
        Self::update(self);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        draw::all(frame, self);
    }

    fn key(&mut self, key: KeyEvent) -> bool {
        Self::key(self, key)
    }
}

/// The terminal while it shows a screen. Dropping it restores the terminal.
pub(crate) struct ShownTerminal(());

impl ShownTerminal {
    /// Sets up the terminal. It needs more privileges than the drawing does.
    ///
    /// # Errors
    /// Fails if the terminal cannot be set up.
    pub(crate) fn set_up() -> Result<Self> {
        set_up().context("cannot set up the terminal")?;
        Ok(Self(()))
    }
}

impl Drop for ShownTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// A screen that shows links until this value is dropped; the terminal is then restored.
pub(crate) struct Screen {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// This is dropped when the thread has ended.
    _terminal: ShownTerminal,
}

impl Screen {
    /// Shows `links`, including those that are added later, and below them the output of a command.
    /// `leave` is called whenever the user asks to leave, or if the terminal is gone.
    ///
    /// # Errors
    /// Fails if the terminal cannot be set up or a thread cannot be started.
    pub(crate) fn start(
        links: Links,
        output: Option<CommandOutput>,
        leave: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let terminal = ShownTerminal::set_up()?;
        Self::show(terminal, App::new(links, output), leave)
    }

    /// Shows the tests of a far end on a terminal that is set up. `leave` is called as by
    /// [`Screen::start`].
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn of_far_end(
        terminal: ShownTerminal,
        far_end: FarEndScreen,
        leave: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        Self::show(terminal, far_end, leave)
    }

    fn show(
        terminal: ShownTerminal,
        content: impl Content + 'static,
        leave: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || show(content, &own, &leave))
            .context("cannot start the thread that draws")?;
        Ok(Self {
            thread: Some(thread),
            is_over,
            _terminal: terminal,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has already been printed.
            let _ = thread.join();
        }
    }
}

fn set_up() -> io::Result<()> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            // Otherwise the message of the panic would disappear with the screen.
            restore();
            before(what);
        }));
    });
    notes::hold();
    IS_SHOWN.store(true, Ordering::Relaxed);
    let shown = enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
        // This starts the reader of keys before the process is confined.
        .and_then(|()| event::poll(Duration::ZERO).map(drop));
    shown.inspect_err(|_| restore())
}

/// Restores the terminal, once per screen, and then prints the messages that were held back.
fn restore() {
    // The drawing thread holds the lock after its own panic, but draws nothing more.
    let draws = thread::current().name() == Some(THREAD);
    let _drawn = (!draws).then(drawing);
    // A second restore would move the cursor back over the messages printed meanwhile.
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs no restore.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
    notes::release();
}

/// Waits until nothing is drawn. A panic while drawing leaves no incomplete state that matters
/// here.
fn drawing() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws and reads keys until the screen ends or the terminal is gone.
fn show(mut content: impl Content, is_over: &AtomicBool, leave: &dyn Fn()) {
    let mut shown = || -> io::Result<()> {
        let terminal: Terminal<CrosstermBackend<Stdout>> =
            Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // Its drop would print an error to standard error, and panic if that is gone as well. The cursor is shown by `restore`.
        let mut terminal = ManuallyDrop::new(terminal);
        let mut drawn: Option<Instant> = None;
        while !is_over.load(Ordering::Relaxed) {
            if drawn.is_none_or(|at| at.elapsed() >= content.interval()) {
                content.update();
                let _drawing = drawing();
                if !IS_SHOWN.load(Ordering::Relaxed) {
                    return Ok(());
                }
                terminal.draw(|frame| content.draw(frame))?;
                drawn = Some(Instant::now());
            }
            if !event_waits(FRAME_INTERVAL)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && content.key(key) => leave(),
                _ => {}
            }
            // The effect of a key, or a new size, shows immediately.
            drawn = None;
        }
        Ok(())
    };
    if shown().is_err() {
        // The user can neither see the screen nor press a key.
        leave();
    }
}

/// Waits for a key or a new size of the terminal, for at most `time`, and returns whether there is one.
///
/// # Errors
/// The terminal is gone. The library must not be asked then: it would read the end of the input for ever.
fn event_waits(time: Duration) -> io::Result<bool> {
    input_waits(Duration::ZERO)?;
    if event::poll(Duration::ZERO)? {
        return Ok(true);
    }
    input_waits(time)?;
    event::poll(Duration::ZERO)
}

/// Waits for input on the terminal, or for a signal, for at most `time`.
fn input_waits(time: Duration) -> io::Result<()> {
    let input = io::stdin();
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, time) {
        // A new size of the terminal comes as a signal.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    match polled[0].revents() {
        Some(found) if found.intersects(is_gone) => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use nix::pty::openpty;
    use nix::sys::termios::tcgetattr;

    use super::*;

    /// The control sequence with which a terminal leaves the screen.
    const LEAVE: &str = "\x1b[?1049l";
    const CAUSE: &str = "the cause is said";

    /// Panics behind a screen in a thread with this name. The drawing thread panics while it draws.
    fn panics_in(thread: &str) {
        if check("nothing").is_err() {
            // The test was started by hand with `--ignored`; the test below gives it a terminal.
            return;
        }
        let screen = Screen::start(Links::default(), None, || {}).unwrap();
        let name = thread.to_owned();
        let thread = thread::Builder::new().name(name.clone());
        let panics = move || {
            let _drawing = (name == THREAD).then(drawing);
            panic!("{CAUSE}")
        };
        let ended = thread.spawn(panics).unwrap().join();
        assert!(ended.is_err());
        drop(screen);
    }

    #[test]
    #[ignore = "it takes a terminal, which a_panic_is_printed_on_the_restored_terminal gives it"]
    fn a_panic_beside_the_screen() {
        panics_in("another");
    }

    #[test]
    #[ignore = "it takes a terminal, which a_panic_is_printed_on_the_restored_terminal gives it"]
    fn a_panic_of_the_drawing_thread() {
        panics_in(THREAD);
    }

    #[test]
    fn a_panic_is_printed_on_the_restored_terminal() {
        for test in ["a_panic_beside_the_screen", "a_panic_of_the_drawing_thread"] {
            let pair = openpty(None, None).unwrap();
            let before = tcgetattr(&pair.slave).unwrap();
            let end = || Stdio::from(pair.slave.try_clone().unwrap());
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "--nocapture"])
                .arg(format!("tui::tests::{test}"))
                .env("TERM", "xterm-256color")
                .stdin(end())
                .stdout(end())
                .stderr(end())
                .spawn()
                .unwrap();
            let reads = thread::spawn(move || {
                let (mut master, mut all, mut some) =
                    (File::from(pair.master), Vec::new(), [0; 4096]);
                // The read ends when the other end is closed.
                while let Ok(read @ 1..) = master.read(&mut some) {
                    all.extend_from_slice(&some[..read]);
                }
                String::from_utf8_lossy(&all).into_owned()
            });
            let status = child.wait().unwrap();
            let after = tcgetattr(&pair.slave).unwrap();
            drop(pair.slave);
            let all = reads.join().unwrap();
            assert!(status.success(), "{test}: {all:?}");
            assert_eq!(after, before, "{test}: {all:?}");
            let behind = all
                .split_once(LEAVE)
                .map(|(_, behind)| behind)
                .unwrap_or_else(|| panic!("{test}: the screen stands: {all:?}"));
            let (_, drawn) = behind
                .split_once(CAUSE)
                .unwrap_or_else(|| panic!("{test}: {all:?}"));
            assert!(!drawn.contains("no link is running"), "{test}: {all:?}");
            assert!(!drawn.contains(LEAVE), "{test}: {all:?}");
        }
    }
}
