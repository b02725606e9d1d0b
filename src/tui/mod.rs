//! `--tui`: watches and changes running links on a terminal. It reaches links only through `live`, as the page does.
//!
//! One thread, "screen", reads keys and draws ten times a second. The packet path never waits for it: it sends commands.

mod app;
mod draw;
mod history;
mod output;
mod run;
mod steps;

use std::io::{self, IsTerminal as _, Stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::live::Links;
use crate::notes;
use app::App;
pub(crate) use output::CommandOutput;

/// How long the screen stands still when no key comes.
const STILL: Duration = Duration::from_millis(100);
/// The thread that draws, by name.
const THREAD: &str = "screen";
/// Whether the terminal is a screen's.
static STANDS: AtomicBool = AtomicBool::new(false);
/// Held while something is drawn: nothing is, once the terminal is put back.
static DRAWING: Mutex<()> = Mutex::new(());
/// What a panic does is said once.
static HOOK: Once = Once::new();

/// Refuses where no screen can be shown.
///
/// # Errors
/// Standard input or output is no terminal, or one that cannot move its cursor.
pub(crate) fn check() -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "--tui: standard input and output must be a terminal: use one, or open the live page of --listen 127.0.0.1:7700"
    );
    let term = std::env::var("TERM").unwrap_or_default();
    ensure!(
        term != "dumb",
        "--tui: this terminal cannot move its cursor (TERM=dumb): use another, or open the live page of --listen 127.0.0.1:7700"
    );
    Ok(())
}

/// The terminal shows links, until this is dropped; then it is as it was.
pub(crate) struct Screen {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Screen {
    /// Shows `links`, those that are put in later included, and below them what a command prints. `leave` is called whenever somebody
    /// asks to leave, or the terminal is gone.
    ///
    /// # Errors
    /// The terminal cannot be set up, or no thread be had.
    pub(crate) fn start(
        links: Links,
        output: Option<CommandOutput>,
        leave: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, app) = (Arc::clone(&is_over), App::new(links, output));
        set_up().context("cannot set up the terminal")?;
        let thread = thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || show(app, &own, &leave));
        match thread {
            Ok(thread) => Ok(Self {
                thread: Some(thread),
                is_over,
            }),
            Err(error) => {
                restore();
                Err(error).context("cannot start the thread that draws")
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it died of it has said itself.
            let _ = thread.join();
        }
        restore();
    }
}

fn set_up() -> io::Result<()> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            // Else what it says would go with the screen.
            restore();
            before(what);
        }));
    });
    notes::hold();
    STANDS.store(true, Ordering::Relaxed);
    let shown = enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
        // What reads keys is started here, where the process may still do everything.
        .and_then(|()| event::poll(Duration::ZERO).map(drop));
    shown.inspect_err(|_| restore())
}

/// Puts the terminal back, once for a screen; then what farwire had to say meanwhile.
fn restore() {
    // It cannot wait for itself, and draws nothing after a panic of its own.
    let draws = thread::current().name() == Some(THREAD);
    let _drawn = (!draws).then(drawing);
    // Twice, and the cursor would go back to where it was before what was said meanwhile.
    if STANDS.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
    notes::release();
}

/// Waits for what is drawn; a panic in it leaves nothing half done that matters here.
fn drawing() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws and reads keys until all is over, or the terminal is gone.
fn show(mut app: App, is_over: &AtomicBool, leave: &dyn Fn()) {
    let mut shown = || -> io::Result<()> {
        let mut terminal: Terminal<CrosstermBackend<Stdout>> =
            Terminal::new(CrosstermBackend::new(io::stdout()))?;
        while !is_over.load(Ordering::Relaxed) {
            app.look();
            {
                let _drawing = drawing();
                if !STANDS.load(Ordering::Relaxed) {
                    return Ok(());
                }
                terminal.draw(|frame| draw::all(frame, &app))?;
            }
            if !event::poll(STILL)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && app.key(key) => leave(),
                _ => {}
            }
        }
        Ok(())
    };
    if shown().is_err() {
        // Nobody can see it any more, nor leave it by a key.
        leave();
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

    /// What a terminal is told to leave the screen.
    const LEAVE: &str = "\x1b[?1049l";
    const CAUSE: &str = "the cause is said";

    /// A panic behind a screen, in a thread of this name, which is drawing if it draws at all.
    fn panics_in(thread: &str) {
        if check().is_err() {
            // `--ignored` by hand: a test below gives it a terminal.
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
    #[ignore = "it takes a terminal, which a_panic_is_said_on_the_terminal_as_it_was gives it"]
    fn a_panic_beside_the_screen() {
        panics_in("another");
    }

    #[test]
    #[ignore = "it takes a terminal, which a_panic_is_said_on_the_terminal_as_it_was gives it"]
    fn a_panic_of_what_draws() {
        panics_in(THREAD);
    }

    #[test]
    fn a_panic_is_said_on_the_terminal_as_it_was() {
        for test in ["a_panic_beside_the_screen", "a_panic_of_what_draws"] {
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
                // It ends when nobody has the other end open any more.
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
            let behind = all.split_once(LEAVE).map(|(_, behind)| behind);
            let behind = behind.unwrap_or_else(|| panic!("{test}: the screen stands: {all:?}"));
            let (_, drawn) = behind
                .split_once(CAUSE)
                .unwrap_or_else(|| panic!("{test}: {all:?}"));
            assert!(!drawn.contains("no link is running"), "{test}: {all:?}");
            assert!(!drawn.contains(LEAVE), "{test}: {all:?}");
        }
    }
}
