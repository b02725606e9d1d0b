//! `farwire emulate`: a transparent box between two interfaces.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use model::BitsPerSec;
use netio::iface::Interface;
use netio::lease::{self, PutBack, PutBackOutcome};

use super::args::api_server::{ListenArg, LiveServer};
use super::args::forwarder::ForwarderArgs;
use super::args::link_conditions::{self, ConditionsArgs};
use super::args::links_file::{self, AllLinks};
use super::args::screen::{self, LiveScreen, TuiArg};
use crate::emulate::{BoxLink, OnExit, WanBox, blame};
use crate::forward::thread::{ForwarderHandle, ForwarderOptions};
use crate::live::NewLink;
use crate::notes::note;
use crate::service_manager;
use conditions::LinkSpec;
use instruments::failure::{Blame, Failure};
use instruments::output::{Prepared, is_stdout, write_json};
use record::bed::THE_LINK;
use record::quantity::counted;
use record::summary::Summary;
use serde::Serialize;

/// Put an emulated link between two Ethernet interfaces, or many between many, until a signal ends it
///
/// Whatever arrives at IF_A leaves by IF_B ("up") and the other way round ("down"): any EtherType, VLAN tags, jumbo
/// frames; no address is touched. The host's own stack sees nothing of it. When one interface loses its carrier the other is
/// lowered until it returns, unless that one has addresses (other than link-local ones) or routes, which it would lose: such an
/// interface is taken only with --force. An interface that goes away and comes back by the same name is taken again. Needs CAP_NET_ADMIN and CAP_NET_RAW.
///
/// At the end what is changed on the interfaces is put back, and nothing passes between them any more, or everything
/// (--on-exit bridge). If farwire is killed or fails, a process that outlives it does the same within a second,
/// but leaves the interfaces down (cut), so that both neighbours see the link go; one with addresses or routes, which
/// it would lose, stays up. --restore, or the next start on these interfaces, undoes that.
///
/// --links FILE.toml has a [[links]] table for each link: its interfaces a and b, and its conditions as link = { delay = "20ms" }. All
/// share one forwarder, its receive rings and --held-memory; the JSON has a list of links.
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the help names a table of a TOML file"
)]
#[derive(Args, Debug)]
pub(crate) struct EmulateArgs {
    /// The client's side
    #[arg(value_name = "IF_A", required_unless_present_any = ["restore", "links"])]
    a: Option<String>,
    /// The server's side
    #[arg(value_name = "IF_B", required_unless_present_any = ["restore", "links"])]
    b: Option<String>,
    /// Many links, with interfaces and conditions from a TOML file
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["a", "b", "packet_log"])]
    links: Option<PathBuf>,
    #[command(flatten)]
    link: ConditionsArgs,
    /// What becomes of the interfaces when the box ends, however it ends
    #[arg(long, value_name = "WHAT", default_value = "cut")]
    on_exit: OnExit,
    /// Put back what boxes left changed that have ended, and do nothing else: interfaces up, features on, bridges removed
    #[arg(long, exclusive = true)]
    restore: bool,
    /// Take an interface even if it has addresses or routes, or the default route leads out of it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    forwarder: ForwarderArgs,
    /// At the end, write what the link did as JSON to FILE (- is standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
}

/// What a box is told to be.
struct Wanted {
    links: Vec<BoxLink>,
    options: ForwarderOptions,
    /// In words.
    said: String,
    /// As they are watched and changed, in the order of the links.
    live: Vec<(String, LinkSpec)>,
}

impl EmulateArgs {
    /// Runs the box until a signal ends it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match (&self.links, &self.a, &self.b) {
            (Some(file), ..) => self.emulate_all(file),
            (None, Some(a), Some(b)) => self.emulate_one([a, b]),
            _ => restore(),
        }
    }

    fn emulate_one(&self, names: [&str; 2]) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        link_conditions::warn(&link.config);
        link_conditions::warn_of_host(&link.config, speeds(names));
        let in_force = crate::live::in_force(&spec);
        let options = self.forwarder.options([&spec], |of| of.capture(names))?;
        let link = BoxLink {
            names: names.map(str::to_owned),
            link,
        };
        let wanted = Wanted {
            links: vec![link],
            options,
            said: format!("{} <-> {} behind {in_force}", names[0], names[1]),
            live: vec![(THE_LINK.to_owned(), spec)],
        };
        self.stand(wanted, |mut summaries| summaries.remove(0))
    }

    fn emulate_all(&self, file: &Path) -> Result<ExitCode, Failure> {
        if self.link.to_spec().or_bad_input()? != LinkSpec::default() {
            return Err(Failure::bad_input(
                "--links: each link has its conditions in the file: leave those of the command line out",
            ));
        }
        let links = links_file::read(file, self.link.allowed_files()).or_bad_input()?;
        let ends = links.iter().map(|of| [of.a.as_str(), of.b.as_str()]);
        let specs = links.iter().map(|of| &of.link);
        let options = self.forwarder.options(specs, |of| of.captures(ends))?;
        let boxed = links.iter().enumerate();
        let boxed = boxed.map(|(number, link)| link.to_link(number));
        let boxed = boxed.collect::<Result<Vec<_>>>().or_bad_input()?;
        for of in &boxed {
            link_conditions::warn(&of.link.config);
        }
        let number = counted(links.len() as u64, "link");
        let live = links.iter().map(|of| (of.name(), of.link.clone()));
        let wanted = Wanted {
            links: boxed,
            options,
            said: format!("{number} of {}", file.display()),
            live: live.collect(),
        };
        self.stand(wanted, |summaries| AllLinks::new(&links, summaries))
    }

    /// Runs a box until a signal ends it; tells what the links did, and writes it as JSON where that is asked for.
    fn stand<T: Serialize + Display>(
        &self,
        wanted: Wanted,
        told: impl Fn(Vec<Summary>) -> T,
    ) -> Result<ExitCode, Failure> {
        // Once the box stands, no file can be opened any more.
        let json = self.json.as_deref().filter(|file| !is_stdout(file));
        let json = json.map(Prepared::open).transpose().or_bad_input()?;
        let has_screen = self.tui.is_wanted()?;
        let file = self.links.as_deref().and_then(Path::file_stem);
        let name = file.map_or(THE_LINK.into(), |file| file.to_string_lossy());
        let listening = self.listen.open(&name)?;
        let Wanted {
            links,
            options,
            said,
            live,
        } = wanted;
        let names: Vec<_> = links.iter().map(|of| of.names.clone()).collect();
        let serve = |forwarder: &ForwarderHandle| {
            let all = live.into_iter().zip(names).enumerate();
            let all = all.map(|(number, ((name, spec), ends))| NewLink {
                name,
                ends,
                forwarder: forwarder.clone(),
                number,
                spec,
                build: Ok(Box::new(move |spec| spec.to_link_of("box", number as u64))),
            });
            let all: Vec<NewLink> = all.collect();
            let Some(listening) = listening else {
                let screen = has_screen.then(|| LiveScreen::start(None, all, None, screen::end));
                return Ok((screen.transpose()?, None));
            };
            let server = LiveServer::start(listening, all)?;
            let screen =
                has_screen.then(|| LiveScreen::start(Some(server.links()), [], None, screen::end));
            Ok((screen.transpose()?, Some(server)))
        };
        let (wan_box, live) = WanBox::up(links, self.force, self.on_exit, options, serve)?;
        let said = format!("{said}, until a signal");
        note(format_args!("farwire: {said}"));
        service_manager::ready(&said);
        let summaries = wan_box.run();
        drop(live);
        let told = told(summaries?);
        note(format_args!("farwire: {told}"));
        match (json, &self.json) {
            (Some(file), _) => file.write_json(&told)?,
            (None, Some(stdout)) => write_json(stdout, &told)?,
            (None, None) => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What the interfaces' cables carry; one that is not there is told when it is taken.
fn speeds(names: [&str; 2]) -> impl Iterator<Item = BitsPerSec> {
    let found = names.map(Interface::find);
    found.into_iter().flatten().filter_map(|of| of.speed())
}

/// Puts back what boxes left that have ended, and says what that was.
fn restore() -> Result<ExitCode, Failure> {
    let all = lease::put_back_all().map_err(blame)?;
    if all.is_empty() {
        note("farwire: there is nothing to put back in this network namespace");
    }
    let mut first_failure = Ok(ExitCode::SUCCESS);
    for PutBack { interface, outcome } in all {
        match outcome {
            PutBackOutcome::Done(replaced) if replaced.is_empty() => {
                note(format_args!("farwire: {interface} is as it was"));
            }
            PutBackOutcome::Done(replaced) => {
                let said: Vec<String> = replaced.iter().rev().map(ToString::to_string).collect();
                note(format_args!(
                    "farwire: {interface} is put back: {}",
                    said.join(", ")
                ));
            }
            PutBackOutcome::Gone => note(format_args!(
                "farwire: interface {interface} is gone: nothing is left to put back"
            )),
            PutBackOutcome::InUse(why) => note(format_args!("farwire: {why}: left alone")),
            PutBackOutcome::Failed(error) => {
                first_failure = first_failure.and(Err(blame(error)));
            }
        }
    }
    first_failure
}
