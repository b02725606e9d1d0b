//! `--tui`: shows the links of a command on its terminal, and changes them.

use anyhow::Result;
use clap::Args;
use nix::sys::signal::{Signal, raise};

use super::headings;
use crate::live::{Keeper, Links, NewLink};
use crate::tui::{self, CommandOutput, Screen};
use instruments::failure::{Blame, Failure};

/// The advice for a terminal that cannot show the screen.
const LIVE_PAGE: &str = "open the live page of --listen 127.0.0.1:7700";

/// The option that shows links on the terminal.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TuiArg {
    /// Show live charts on this terminal; except for run, keys change the link
    #[arg(long, help_heading = headings::LIVE)]
    tui: bool,
}

/// A screen on the terminal, which ends when this is dropped.
pub(crate) struct LiveScreen {
    /// This is dropped first, which restores the terminal.
    _screen: Screen,
    /// The keeper of the links; `None` if the API has one.
    keeper: Option<Keeper>,
    links: Links,
}

impl TuiArg {
    /// True if `--tui` is given.
    ///
    /// # Errors
    /// `--tui` is given, and there is no suitable terminal.
    pub(crate) fn is_wanted(&self) -> Result<bool, Failure> {
        if self.tui {
            tui::check(LIVE_PAGE).or_bad_input()?;
        }
        Ok(self.tui)
    }
}

impl LiveScreen {
    /// Shows the links that the API serves, or else `all`. It calls `leave` whenever the user presses the key to leave.
    ///
    /// # Errors
    /// The terminal cannot be set up, or a thread cannot be started.
    pub(crate) fn start(
        served: Option<Links>,
        all: impl IntoIterator<Item = NewLink>,
        output: Option<CommandOutput>,
        leave: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (links, keeper) = match served {
            Some(links) => (links, None),
            None => {
                let links = Links::default();
                all.into_iter().for_each(|link| links.put(link));
                let keeper = Keeper::start(links.clone())?;
                (links, Some(keeper))
            }
        };
        Ok(Self {
            _screen: Screen::start(links.clone(), output, leave)?,
            keeper,
            links,
        })
    }
}

/// Ends this process by SIGTERM, for a command that runs until a signal ends it.
pub(crate) fn end() {
    // A process can always signal itself.
    let _ = raise(Signal::SIGTERM);
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            self.links.clear();
        }
    }
}
