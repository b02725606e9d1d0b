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
use netio::lease::{InterfaceLease, InterfaceLeases};
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

/// An interface of a target, and where a link is inserted. Nothing is inserted yet. Dropping it removes the new pair.
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
    /// inside.
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
        let leases = InterfaceLeases::open().map_err(super::blame)?;
        let places = ends.into_iter().map(|end| Place::of(end, &leases));
        // All are checked before anything is made.
        let places: Vec<Place> = places.collect::<Result<_, Failure>>()?;
        let attached = places.into_iter().map(|place| place.attach(&leases));
        attached.collect()
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

/// A leased end on the host and its place in a bridge.
struct Place {
    end: HostEnd,
    lease: InterfaceLease,
    place: BridgePort,
}

impl Place {
    fn of(end: HostEnd, leases: &InterfaceLeases) -> Result<Self, Failure> {
        // This undoes the changes of a killed box, which may include that the end has left its bridge.
        let lease = leases.take(&end.host).map_err(super::blame)?;
        let host = Interface::by_index(end.host.index).or_machine()?;
        let place = BridgePort::of(&host).map_err(blame)?;
        let end = HostEnd { host, ..end };
        Ok(Self { end, lease, place })
    }

    /// Makes the pair.
    fn attach(self, leases: &InterfaceLeases) -> Result<Attached, Failure> {
        let Self { end, lease, place } = self;
        // A name has at most 15 characters.
        let [near, far] = ["a", "b"].map(|letter| format!("farw{}{letter}", end.host.index));
        let made = veth::make_pair(&near, &far, &end.host).or_machine();
        let leased = made.and_then(|()| {
            let near = Interface::find(&near).or_machine()?;
            let mut lease = leases.take(&near).map_err(super::blame)?;
            lease.remove_pair_at_end().map_err(super::blame)?;
            Ok((lease, Interface::find(&far).or_machine()?))
        });
        let (of_near, far) = leased.inspect_err(|_| {
            // The first failure counts.
            let _ = veth::remove_pair(&near);
        })?;
        Ok(Attached {
            inside: end.inside,
            names: [end.host.name, near],
            insertion: Insertion {
                place,
                far,
                leases: [lease, of_near],
            },
        })
    }
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
