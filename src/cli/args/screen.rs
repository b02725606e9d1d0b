//! `--tui`: the links of a command watched and changed on its terminal.

use anyhow::Result;
use clap::Args;
use nix::sys::signal::{Signal, raise};

use crate::live::{Keeper, Links, NewLink};
use crate::tui::{self, CommandOutput, Screen};
use instruments::failure::{Blame, Failure};

/// Whether the terminal shows the link.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TuiArg {
    /// Watch and change the link on this terminal while it runs: curves, counters, keys; those of `run` are only watched
    #[arg(long)]
    tui: bool,
}

/// A screen, until it is dropped.
pub(crate) struct LiveScreen {
    /// Goes first: then the terminal is as it was.
    _screen: Screen,
    /// Absent where the API has one.
    keeper: Option<Keeper>,
    links: Links,
}

impl TuiArg {
    /// Whether it is asked for.
    ///
    /// # Errors
    /// It is, where there is no terminal for it.
    pub(crate) fn is_wanted(&self) -> Result<bool, Failure> {
        if self.tui {
            tui::check().or_bad_input()?;
        }
        Ok(self.tui)
    }
}

impl LiveScreen {
    /// Shows what the API serves, or else these links. `leave` is called whenever somebody asks to leave.
    ///
    /// # Errors
    /// The terminal cannot be set up, or no thread be had.
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

/// Ends this process, as a signal from without does: for those who are asked to leave and end by signals.
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
