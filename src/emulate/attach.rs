//! Finds the network of something that runs, and makes the pair by which a link is inserted there.
//!
//! A container is connected by a veth pair, whose end on the host is a port of a bridge. A link is inserted at that end:
//! between it and a new interface that takes its place in the bridge. Nothing changes inside the container.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use netio::bridge_port::{BridgePort, BridgePortError};
use netio::iface::Interface;
use netio::netns::NetNs;
use netio::veth::{self, HostEnd};

use super::Insertion;
use instruments::failure::{Blame, Failure};

/// The programs that know containers.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// Something that runs in its own network namespace.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A process, by its number.
    Process(u32),
    /// A namespace with a name, as `ip netns` makes it.
    Namespace(PathBuf),
    /// A container of Podman or Docker.
    Container(String),
}

/// An interface of a target, and where a link is inserted.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Name of the interface inside.
    pub(crate) inside: String,
    /// The host's end, and the near end of the new pair.
    pub(crate) names: [String; 2],
    pub(crate) insertion: Insertion,
}

impl Target {
    /// Makes a pair for each interface of the target whose other end is on this host, or only for the interface `network`
    /// inside. Nothing is inserted yet.
    ///
    /// # Errors
    /// Blames the user for a target that does not exist or has no such interface, and for a place where no link can be
    /// inserted; blames the machine for a missing privilege.
    pub(crate) fn attach(&self, network: Option<&str>) -> Result<Vec<Attached>, Failure> {
        let ends = HostEnd::all_of(&self.namespace()?);
        let ends = ends.with_context(|| self.to_string()).or_machine()?;
        if ends.is_empty() {
            return Err(Failure::bad_input(format!(
                "{self} has no interface whose other end is on this host: with the host's network, slirp4netns or pasta \
                 there is none; use a bridge network, or run the program with `farwire exec --net host`"
            )));
        }
        let names: Vec<String> = ends.iter().map(|end| end.inside.clone()).collect();
        let wanted = |end: &HostEnd| network.is_none_or(|name| name == end.inside);
        let ends: Vec<HostEnd> = ends.into_iter().filter(wanted).collect();
        if ends.is_empty() {
            let network = network.unwrap_or_default();
            return Err(Failure::bad_input(format!(
                "--network: {self} has no interface {network}, but {}",
                names.join(", ")
            )));
        }
        let places = ends.iter().map(|end| {
            let place = BridgePort::of(&end.host).map_err(blame);
            place.map(|place| (end, place))
        });
        // All are checked before anything is made.
        let places: Vec<_> = places.collect::<Result<_, Failure>>()?;
        let attached = places
            .into_iter()
            .map(|(end, place)| attach_one(end, place));
        attached.collect::<Result<_>>().or_machine()
    }

    fn namespace(&self) -> Result<NetNs, Failure> {
        match self {
            Self::Process(pid) => NetNs::of_pid(*pid).or_bad_input(),
            Self::Namespace(path) => NetNs::at(path).or_bad_input(),
            Self::Container(name) => NetNs::of_pid(process_of(name)?).or_machine(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Container(name) => write!(f, "container {name}"),
        }
    }
}

/// Removes the pairs, if they still exist.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn detach(attached: &[Attached]) -> Result<()> {
    attached
        .iter()
        .try_for_each(|of| Ok(veth::remove_pair(&of.names[1])?))
}

fn attach_one(end: &HostEnd, place: BridgePort) -> Result<Attached> {
    let [near, far] = ["a", "b"].map(|letter| format!("farwire{}{letter}", end.host.index));
    veth::make_pair(&near, &far, &end.host)?;
    Ok(Attached {
        inside: end.inside.clone(),
        names: [end.host.name.clone(), near],
        insertion: Insertion {
            place,
            far: Interface::find(&far)?,
        },
    })
}

/// Blames the user for a place where no link can be inserted.
fn blame(error: BridgePortError) -> Failure {
    match error {
        BridgePortError::Interface(error) => Failure::machine(error),
        BridgePortError::Routed(_)
        | BridgePortError::NoBridge { .. }
        | BridgePortError::SpanningTree(_)
        | BridgePortError::Vlans(_) => Failure::bad_input(error),
    }
}

/// Returns the first process of the container `name`, whichever engine knows it.
fn process_of(name: &str) -> Result<u32, Failure> {
    let engines = ENGINES.into_iter();
    let engines: Vec<&str> = engines
        .filter(|engine| which::which(engine).is_ok())
        .collect();
    if engines.is_empty() {
        return Err(Failure::machine(
            "--container: neither podman nor docker is on PATH; --pid names a process of the container",
        ));
    }
    let mut found = Vec::new();
    let mut refusals = Vec::new();
    for engine in engines {
        match ask(engine, name).or_machine()? {
            Ok(pid) => found.push((engine, pid)),
            Err(why) => refusals.push(format!("{engine}: {why}")),
        }
    }
    match *found {
        [(_, 0)] => Err(Failure::bad_input(format!(
            "--container {name}: the container is not running"
        ))),
        [(_, pid)] => Ok(pid),
        [] => Err(Failure::bad_input(format!(
            "--container {name}: {}",
            refusals.join("; ")
        ))),
        _ => Err(Failure::bad_input(format!(
            "--container {name}: podman and docker both have a container of this name; choose it by --pid"
        ))),
    }
}

/// Asks an engine for the first process of a container, which is 0 if the container does not run. Returns the engine's
/// words if it knows no such container.
fn ask(engine: &str, name: &str) -> Result<Result<u32, String>> {
    let output = Command::new(engine)
        .args(["container", "inspect", "--format", "{{.State.Pid}}", "--"])
        .arg(name)
        .stdin(Stdio::null())
        .output()
        .with_context(|| engine.to_owned())?;
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let pid = text.trim().parse();
        return Ok(Ok(pid.with_context(|| {
            format!("{engine} printed `{}` and no process number", text.trim())
        })?));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(Err(text.lines().next().unwrap_or("refused").to_owned()))
}
