//! `--tui`: links that run, watched and changed on a terminal. Everything it knows of links it has from `live`, as the page has.
//!
//! One thread, "screen", reads keys and draws ten times a second. It never makes the packet path wait: it asks by commands.

mod app;
mod draw;
mod history;
mod output;
mod steps;

use std::io::{self, IsTerminal as _, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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

/// Refuses where no screen can be shown.
///
/// # Errors
/// Standard input or output is no terminal, or one that cannot move its cursor.
pub(crate) fn check() -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "--tui: standard input and output must be a terminal: leave it out, or watch the link with --listen 127.0.0.1:7700"
    );
    let term = std::env::var("TERM").unwrap_or_default();
    ensure!(
        term != "dumb",
        "--tui: this terminal cannot move its cursor (TERM=dumb): leave it out, or watch the link with --listen 127.0.0.1:7700"
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
        set_up().context("setting up the terminal")?;
        let thread = std::thread::Builder::new()
            .name("screen".to_owned())
            .spawn(move || show(app, &own, &leave));
        match thread {
            Ok(thread) => Ok(Self {
                thread: Some(thread),
                is_over,
            }),
            Err(error) => {
                restore();
                Err(error).context("starting the thread that draws")
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
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        // Else what it says would go with the screen.
        restore();
        before(what);
    }));
    notes::hold();
    let shown = enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
        // What reads keys is started here, where the process may still do everything.
        .and_then(|()| event::poll(Duration::ZERO).map(drop));
    shown.inspect_err(|_| restore())
}

/// Puts the terminal back, as often as it is called; then what farwire had to say meanwhile.
fn restore() {
    // A terminal that is gone needs nothing.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    notes::release();
}

/// Draws and reads keys until all is over, or the terminal is gone.
fn show(mut app: App, is_over: &AtomicBool, leave: &dyn Fn()) {
    let mut shown = || -> io::Result<()> {
        let mut terminal: Terminal<CrosstermBackend<Stdout>> =
            Terminal::new(CrosstermBackend::new(io::stdout()))?;
        while !is_over.load(Ordering::Relaxed) {
            app.look();
            terminal.draw(|frame| draw::all(frame, &app))?;
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
