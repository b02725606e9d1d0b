//! `farwire emulate`: a transparent WAN emulator between two interfaces.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use model::BitsPerSec;
use netio::heap;
use netio::iface::Interface;
use netio::lease::{self, PutBack, PutBackOutcome};
use netio::stop::Stop;

use super::args::api_server::{ListenArg, LiveServer};
use super::args::forwarder::{ForwarderArgs, LinkEnds};
use super::args::headings;
use super::args::link_conditions::{self, ConditionsArgs};
use super::args::links_file::{self, AllLinks};
use super::args::screen::{self, LiveScreen, TuiArg};
use super::args::target::TargetArgs;
use super::args::threads::ThreadsArgs;
use crate::emulate::attach::Target;
use crate::emulate::{BoxEnd, BoxLink, EarlyHolder, OnExit, WanBox, blame, make_room};
use crate::end_names::EndNames;
use crate::forward::thread::ForwarderOptions;
use crate::forward::threads::Forwarders;
use crate::live::NewLink;
use crate::notes::note;
use crate::service_manager;
use conditions::{LinkSpec, warnings};
use instruments::failure::{Blame, Failure};
use instruments::output::{Prepared, is_stdout, write_json};
use record::bed::THE_LINK;
use record::quantity::counted;
use record::summary::Summary;
use serde::Serialize;

/// Connect two Ethernet interfaces through an emulated link, until a signal ends it
///
/// Every frame that arrives at IF_A leaves at IF_B (up), and vice versa (down), whatever its EtherType, VLAN tags and size.
/// The host's own network stack does not see these frames. When one interface loses its carrier, the other one is set down until the
/// carrier returns. emulate needs CAP_NET_ADMIN and CAP_NET_RAW, and for --container also CAP_SYS_ADMIN.
///
/// At the end, emulate restores the interfaces, and nothing passes between them any more (--on-exit cut). If farwire is killed, a
/// helper process restores them within a second, then sets them down, so that both neighbours notice, or joins them with a bridge
/// (--on-exit bridge). `farwire emulate --restore`, or the next start on these interfaces, undoes that. An interface with addresses
/// or routes would lose them when it is set down: emulate uses such an interface only with --force, and then does not set it down.
///
/// --container NAME inserts a link at a running container, in both directions, on each network that connects it by a veth pair. The host
/// end of the pair leaves the bridge, and a new interface with the same address, MTU and port settings takes its place. Nothing changes inside
/// the container. At the end, or when farwire is killed, everything is restored. --label, --service, --pid and --netns do the same for other
/// targets.
///
/// --links FILE.toml connects many pairs. Each table [[links]] contains the interfaces `a` and `b` of a pair and its conditions, such
/// as link = { delay = "20ms" }. All links share --held-memory, and one thread with its receive rings unless --threads asks for more.
/// --packet-log and --pcap write a file for each link, named after its interfaces: FILE-A-B.csv and PREFIX-A-B.pcapng.
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the help names a TOML table"
)]
#[derive(Args, Debug)]
#[command(
    override_usage = "farwire emulate [OPTIONS] IF_A IF_B\n       farwire emulate [OPTIONS] --container NAME\n       farwire emulate [OPTIONS] --links FILE.toml\n       farwire emulate --restore"
)]
pub(crate) struct EmulateArgs {
    /// Interface on the client's side
    #[arg(value_name = "IF_A", required_unless_present_any = ["restore", "links", "target"])]
    a: Option<String>,
    /// Interface on the server's side
    #[arg(value_name = "IF_B", required_unless_present_any = ["restore", "links", "target"])]
    b: Option<String>,
    /// Connect many pairs of interfaces, with conditions from a TOML file
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["a", "b"])]
    links: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    /// State of the interfaces after farwire ends, for whatever reason [default: cut]
    #[arg(long, value_name = "STATE")]
    on_exit: Option<OnExit>,
    /// Restore the interfaces that an earlier farwire left changed, remove its bridge, and do nothing else
    #[arg(long, exclusive = true)]
    restore: bool,
    /// Use an interface even if it has addresses or routes, or carries the default route
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    link: ConditionsArgs,
    /// At the end, write the links' counters as JSON to FILE (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
    #[command(flatten)]
    forwarder: ForwarderArgs,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
}

/// The links of a box, and how they run.
struct Wanted {
    links: Vec<BoxLink>,
    options: ForwarderOptions,
    /// Interfaces and conditions in words.
    said: String,
    /// Notes about the conditions.
    notes: Vec<String>,
    /// Names and conditions for the live page, in the order of the links.
    live: Vec<(String, LinkSpec)>,
    on_exit: OnExit,
    /// The end and the holder of a box whose links are inserted, because both must be ready before the links are made; `None`
    /// if signals end this process until the box starts.
    early: Option<(Stop, EarlyHolder)>,
}

impl EmulateArgs {
    /// Runs the box until a signal ends it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(target) = self.target.target()? {
            return self.emulate_attached(&target);
        }
        match (&self.links, &self.a, &self.b) {
            (Some(file), ..) => self.emulate_all(file),
            (None, Some(a), Some(b)) => self.emulate_one([a, b]),
            _ => restore(),
        }
    }

    fn emulate_one(&self, names: [&str; 2]) -> Result<ExitCode, Failure> {
        let mut spec = self.link.to_spec().or_bad_input()?;
        link_conditions::resolve_hosts(&mut spec).or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        link_conditions::warn_of_hidden_rules(None, &link.rules);
        let mut notes = warnings::of_link(&link.config);
        notes.extend(link_conditions::beyond_host(&link.config, speeds(names)));
        let in_force = crate::live::in_force(&spec);
        let ends = LinkEnds::OfOne(names);
        let options = self.options([&spec], &ends)?;
        let link = BoxLink {
            names: names.map(str::to_owned).into(),
            link,
            insertion: None,
        };
        let wanted = Wanted {
            links: vec![link],
            options,
            said: format!("link {} <-> {}: {in_force}", names[0], names[1]),
            notes,
            live: vec![(THE_LINK.to_owned(), spec)],
            on_exit: self.on_exit.unwrap_or(OnExit::Cut),
            early: None,
        };
        self.stand(wanted, |_, mut summaries| summaries.remove(0))
    }

    /// Inserts a link at each interface of what runs already.
    fn emulate_attached(&self, target: &Target) -> Result<ExitCode, Failure> {
        if matches!(self.on_exit, Some(OnExit::Cut | OnExit::Bridge)) {
            return Err(Failure::bad_input(format!(
                "--on-exit: the interfaces of {target} are always restored: write --on-exit restore, or leave it out"
            )));
        }
        let mut spec = self.link.to_spec().or_bad_input()?;
        link_conditions::resolve_hosts_and_containers(&mut spec).or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        link_conditions::warn_of_hidden_rules(None, &link.rules);
        let mut notes = warnings::of_link(&link.config);
        notes.extend(link_conditions::beyond_host(&link.config, []));
        // A signal that ended this process before the box has started would leave the new pairs behind.
        let stop = Stop::on_signals()?;
        let (holder, attached) = target.attach(self.target.network())?;
        if let Some(cause) = stop.cause() {
            return Err(cause.into());
        }
        let interfaces: Vec<_> = attached.iter().map(|of| of.names.clone()).collect();
        let ends = interfaces
            .iter()
            .map(|names| names.each_ref().map(String::as_str));
        let ends: Vec<[&str; 2]> = ends.collect();
        let specs = ends.iter().map(|_| &spec);
        let recorded = match *ends {
            [only] => LinkEnds::OfOne(only),
            _ => LinkEnds::OfEach(ends.clone()),
        };
        let options = self.options(specs, &recorded)?;
        let places: Vec<String> = attached.iter().map(|of| of.name.clone()).collect();
        let live = places.iter().map(|place| match ends[..] {
            [_] => (THE_LINK.to_owned(), spec.clone()),
            _ => (place.clone(), spec.clone()),
        });
        let links = (0..).zip(attached).map(|(number, of)| {
            Ok(BoxLink {
                names: of.names.into(),
                link: spec.to_link_of("box", number).or_bad_input()?,
                insertion: Some(of.insertion),
            })
        });
        let in_force = crate::live::in_force(&spec);
        let wanted = Wanted {
            links: links.collect::<Result<_, Failure>>()?,
            options,
            said: format!("link at {} of {target}: {in_force}", places.join(", ")),
            notes,
            live: live.collect(),
            on_exit: OnExit::Restore,
            early: Some((stop, holder)),
        };
        let threads = self.threads.count().of_links(interfaces.len());
        match *ends {
            [_] => self.stand(wanted, |_, mut summaries| summaries.remove(0)),
            _ => self.stand(wanted, |ends, summaries| {
                AllLinks::new(ends, threads, summaries)
            }),
        }
    }

    fn emulate_all(&self, file: &Path) -> Result<ExitCode, Failure> {
        heap::give_back_freed_blocks();
        if self.link.to_spec().or_bad_input()? != LinkSpec::default() {
            return Err(Failure::bad_input(
                "--links: the file sets the conditions of each link: leave out the conditions on the command line",
            ));
        }
        let mut links = links_file::read(file, &self.link.named_files()).or_bad_input()?;
        for between in &mut links {
            let name = between.name();
            let resolved = link_conditions::resolve_hosts(&mut between.link);
            resolved.context(name).or_bad_input()?;
        }
        let ends = links.iter().map(|of| [of.a.as_str(), of.b.as_str()]);
        let specs = links.iter().map(|of| &of.link);
        let ends = LinkEnds::OfEach(ends.collect());
        let options = self.options(specs, &ends)?;
        let boxed = links.iter().enumerate();
        let boxed = boxed.map(|(number, link)| link.to_link(number));
        let boxed = boxed.collect::<Result<Vec<_>>>().or_bad_input()?;
        let named = boxed.iter().zip(&links);
        let named = named.map(|(of, between)| (between.name(), &of.link.config));
        let notes = link_conditions::side_effects(named);
        for (of, between) in boxed.iter().zip(&links) {
            link_conditions::warn_of_hidden_rules(Some(&between.name()), &of.link.rules);
        }
        let number = counted(links.len() as u64, "link");
        let live = links.iter().map(|of| (of.name(), of.link.clone()));
        let wanted = Wanted {
            links: boxed,
            options,
            said: format!("{number} from {}", file.display()),
            notes,
            live: live.collect(),
            on_exit: self.on_exit.unwrap_or(OnExit::Cut),
            early: None,
        };
        let threads = self.threads.count().of_links(links.len());
        self.stand(wanted, |ends, summaries| {
            AllLinks::new(ends, threads, summaries)
        })
    }

    /// Returns the options of the forwarders of links with these conditions and ends. Creates the files of the links, if this process
    /// may have enough descriptors for the box.
    fn options<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
        ends: &LinkEnds<'_>,
    ) -> Result<ForwarderOptions, Failure> {
        let count = ends.links();
        let threads = self.threads.count().of_links(count);
        make_room(count, threads, self.forwarder.descriptors_of_link())?;
        self.forwarder.options(links, ends)
    }

    /// Runs a box until a signal ends it. Then it prints what the links did, and writes that as JSON if `--json` asks for it.
    /// `told` takes the names of the interfaces of each link at the end, and what the links did.
    fn stand<T: Serialize + Display>(
        &self,
        wanted: Wanted,
        told: impl Fn(Vec<[String; 2]>, Vec<Summary>) -> T,
    ) -> Result<ExitCode, Failure> {
        // After the box has started, no file can be opened any more.
        let json = self.json.as_deref().filter(|file| !is_stdout(file));
        let json = json.map(Prepared::open).transpose().or_bad_input()?;
        let has_screen = self.tui.is_wanted()?;
        let file = self.links.as_deref().and_then(Path::file_stem);
        let name = file.map_or(THE_LINK.into(), |file| file.to_string_lossy());
        let listening = self.listen.open(&name, &self.link.named_files().profiles)?;
        // If the box does not start, its holder ends after the leases of the links.
        let Wanted {
            early,
            links,
            options,
            said,
            notes,
            live,
            on_exit,
        } = wanted;
        let ends: Vec<EndNames> = links.iter().map(|of| of.names.clone()).collect();
        let names = ends.clone();
        let threads = self.threads.count().of_links(links.len());
        let options = ForwarderOptions {
            cpus: self.threads.cpus(),
            ..options
        };
        let serve = |forwarders: &Forwarders| {
            let all = live.into_iter().zip(names).enumerate();
            let all = all.map(|(link, ((name, spec), ends))| {
                let (forwarder, number) = forwarders.of_link(link);
                NewLink {
                    name,
                    ends,
                    forwarder: forwarder.clone(),
                    number,
                    spec,
                    build: Ok(Box::new(move |spec| spec.to_link_of("box", link as u64))),
                }
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
        let (stop, holder) = match early {
            Some((stop, holder)) => (stop, Some(holder)),
            None => (Stop::on_signals()?, None),
        };
        let end = BoxEnd {
            stop,
            on_exit,
            holder,
        };
        let (wan_box, live) = WanBox::up(links, threads, self.force, end, options, serve)?;
        // The start has freed what it read about all interfaces and what its parallel work took.
        heap::give_back_free_pages();
        let said = format!("{said}; running until a signal ends it");
        note(format_args!("farwire: {said}"));
        link_conditions::note_all(notes);
        service_manager::ready(&said);
        let summaries = wan_box.run();
        drop(live);
        let summaries = summaries?;
        let unhit = summaries.clone();
        let ends: Vec<[String; 2]> = ends.iter().map(EndNames::now).collect();
        let told = told(ends.clone(), summaries);
        note(format_args!("farwire: {told}"));
        link_conditions::warn_of_unread_traces();
        for (names, summary) in ends.iter().zip(&unhit) {
            let link = (ends.len() > 1).then(|| names.join("-"));
            link_conditions::warn_of_rules_without_hits(link.as_deref(), summary);
        }
        match (json, &self.json) {
            (Some(file), _) => file.write_json(&told)?,
            (None, Some(stdout)) => write_json(stdout, &told)?,
            (None, None) => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the speeds of the interfaces' cables. An interface that does not exist is reported when it is opened.
fn speeds(names: [&str; 2]) -> impl Iterator<Item = BitsPerSec> {
    let found = names.map(Interface::find);
    found.into_iter().flatten().filter_map(|of| of.speed())
}

/// Restores what ended boxes left changed, and prints what that was.
fn restore() -> Result<ExitCode, Failure> {
    let all = lease::put_back_all().map_err(blame)?;
    if all.is_empty() {
        note("farwire: there is nothing to restore in this network namespace");
    }
    let mut first_failure = Ok(ExitCode::SUCCESS);
    for PutBack { interface, outcome } in all {
        match outcome {
            PutBackOutcome::Done(replaced) if replaced.is_empty() => {
                note(format_args!("farwire: {interface} needs no change"));
            }
            PutBackOutcome::Done(replaced) => {
                let said: Vec<String> = replaced.iter().rev().map(ToString::to_string).collect();
                note(format_args!(
                    "farwire: {interface} is restored: {}",
                    said.join(", ")
                ));
            }
            PutBackOutcome::Gone => note(format_args!(
                "farwire: interface {interface} is gone: there is nothing to restore"
            )),
            PutBackOutcome::InUse(why) => note(format_args!("farwire: not restored: {why}")),
            PutBackOutcome::Failed(error) => {
                first_failure = first_failure.and(Err(blame(error)));
            }
        }
    }
    first_failure
}
