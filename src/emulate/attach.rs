//! Finds the network of something that runs, and makes the pair by which a link is inserted there.
//!
//! A container is connected by a veth pair, whose end on the host is a port of a bridge. A link is inserted at that end:
//! between it and a new interface that takes its place in the bridge. Nothing changes inside the container.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use netio::bridge_port::{BridgePort, BridgePortError};
use netio::iface::Interface;
use netio::lease::{InterfaceLease, InterfaceLeases};
use netio::netns::NetNs;
use netio::userns;
use netio::veth::{self, HostEnd};

use super::containers::ContainerEnd;
use super::engines::{ContainerNetwork, KnownContainer, ROOTLESS};
use super::holder::EarlyHolder;
use super::{Insertion, engines, new_pair};
use crate::notes::warn;
use instruments::failure::{Blame, Failure};

/// The reason why an interface inside gets no link, as the end of a sentence about it.
const NO_PAIR: &str = "is no veth whose other end is on this host, as with macvlan and ipvlan";

/// Something that runs in its own network namespace.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A process, by its number.
    Process(u32),
    /// A namespace with a name, as `ip netns` makes it.
    Namespace(PathBuf),
    /// A container of Podman or Docker.
    Container(String),
    /// All running containers with this label.
    Label(String),
}

/// An interface of a target, and where a link is inserted. Nothing is inserted yet. Dropping it removes the new pair.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Name of the interface inside, or of the container if several get links.
    pub(crate) name: String,
    /// The host's end, and the near end of the new pair.
    pub(crate) names: [String; 2],
    pub(crate) insertion: Insertion,
}

impl Target {
    /// Makes a pair for each interface of the target whose other end is on this host, or only for the one with the name
    /// `network`, inside or as the engine names its network. Before that it starts the holder of the box, which removes the
    /// pairs if this process is killed.
    ///
    /// # Errors
    /// Blames the user for a target that does not exist or has no such interface, and for a place where no link can be
    /// inserted; blames the machine for a missing privilege.
    pub(crate) fn attach(
        &self,
        network: Option<&str>,
    ) -> Result<(EarlyHolder, Vec<Attached>), Failure> {
        if !userns::holds_network_capabilities() {
            return Err(Failure::machine(format!(
                "{self}: inserting a link needs root; for a container of rootless Podman on a bridge, {ROOTLESS}"
            )));
        }
        if !userns::may_enter_namespaces() {
            return Err(Failure::machine(format!(
                "{self}: entering its network namespace needs CAP_SYS_ADMIN: run farwire as root, or give its service \
                 this capability"
            )));
        }
        let leases = InterfaceLeases::open().map_err(super::blame)?;
        // All are checked before anything is made.
        let mut places: Vec<Place> = Vec::new();
        match self {
            Self::Process(pid) => {
                let there = NetNs::of_pid(*pid).or_bad_input()?;
                places.extend(places_in(&there, self, &[], network, &leases)?);
            }
            Self::Namespace(path) => {
                let there = NetNs::at(path).or_bad_input()?;
                places.extend(places_in(&there, self, &[], network, &leases)?);
            }
            Self::Container(name) => {
                let known = engines::named(name)?;
                let there = NetNs::of_pid(known.pid).or_machine()?;
                let networks = engines::networks_of(&known);
                for place in places_in(&there, self, &networks, network, &leases)? {
                    let inside = place.name.clone();
                    places.push(place.of_container(&known, inside, network.is_some()));
                }
            }
            Self::Label(label) => places.extend(labelled(label, network, &leases)?),
        }
        let hosts: Vec<&Interface> = places.iter().map(|place| &place.host).collect();
        let holder = EarlyHolder::start(&hosts)?;
        let attached = places.into_iter().map(|place| place.attach(&leases));
        let attached: Vec<Attached> = attached.collect::<Result<_, Failure>>()?;
        Ok((holder, attached))
    }
}

/// Makes a pair for the host's end with the number `index`, to which a container is connected anew. Returns the name of
/// that end and of the near end of the pair. The holder knows already that this end gets a pair.
///
/// # Errors
/// The interface is gone, or no link can be inserted there.
pub(super) fn again(
    index: u32,
    leases: &InterfaceLeases,
) -> Result<([String; 2], Insertion), Failure> {
    let host = Interface::by_index(index).or_machine()?;
    let place = Place::of(String::new(), &host, leases)?;
    let Attached {
        names, insertion, ..
    } = place.attach(leases)?;
    Ok((names, insertion))
}

/// Returns the places of all running containers with this label. A container that has no end on this host is skipped with a
/// warning.
///
/// # Errors
/// No container has such an end, or no link can be inserted at one of the ends.
fn labelled(
    label: &str,
    network: Option<&str>,
    leases: &InterfaceLeases,
) -> Result<Vec<Place>, Failure> {
    let mut places: Vec<Place> = Vec::new();
    let mut refusals = Vec::new();
    for known in engines::labelled(label)? {
        let container = &known.name;
        let there = NetNs::of_pid(known.pid).or_machine()?;
        let this = Target::Container(container.clone());
        let networks = engines::networks_of(&known);
        let mut ends = match ends_in(&there, &this, &networks, network) {
            Ok(ends) => ends,
            Err(refusal) if refusal.is_bad_input() => {
                refusals.push(refusal.to_string());
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let is_only = ends.len() == 1;
        // Containers that share a namespace, such as those of a pod, get its links once.
        let has_place = |end: &HostEnd| {
            let mut all = places.iter();
            all.any(|place| place.host.index == end.host.index)
        };
        ends.retain(|end| !has_place(end));
        for end in ends {
            let mut name = if is_only {
                container.clone()
            } else {
                format!("{container}-{}", end.inside)
            };
            // Each engine may have a container of this name, and another container the name that results.
            for suffix in [known.engine.name(), end.host.name.as_str()] {
                if places.iter().any(|place| place.name == name) {
                    name = format!("{name}-{suffix}");
                }
            }
            let place = Place::of(name, &end.host, leases)?;
            places.push(place.of_container(&known, end.inside, network.is_some()));
        }
    }
    if places.is_empty() {
        return Err(Failure::bad_input(refusals.join("; ")));
    }
    for refusal in refusals {
        warn(format_args!(
            "one of several containers gets no link: {refusal}"
        ));
    }
    Ok(places)
}

/// Returns the places of all interfaces in the namespace of `target`, or of the one with the name `network`; see [`ends_in`].
fn places_in(
    namespace: &NetNs,
    target: &Target,
    networks: &[ContainerNetwork],
    network: Option<&str>,
    leases: &InterfaceLeases,
) -> Result<Vec<Place>, Failure> {
    let ends = ends_in(namespace, target, networks, network)?.into_iter();
    ends.map(|end| Place::of(end.inside, &end.host, leases))
        .collect()
}

/// Returns the host's ends of all interfaces in the namespace of `target`, or of the one with the name `network`, inside or
/// as the engine names its network. `networks` are those that the engine names.
fn ends_in(
    namespace: &NetNs,
    target: &Target,
    networks: &[ContainerNetwork],
    network: Option<&str>,
) -> Result<Vec<HostEnd>, Failure> {
    let ends = HostEnd::all_of(namespace);
    let ends = ends.with_context(|| target.to_string()).or_machine()?;
    if ends.is_empty() {
        let elsewhere = HostEnd::are_elsewhere(namespace);
        if elsewhere.with_context(|| target.to_string()).or_machine()? {
            return Err(Failure::bad_input(format!(
                "{target} is connected to another network namespace than this one, as containers of rootless Podman on \
                 a bridge are: {ROOTLESS}"
            )));
        }
        return Err(Failure::bad_input(format!(
            "{target} has no interface whose other end is on this host: with the host's network, macvlan, ipvlan, \
             slirp4netns or pasta there is none; start it on a bridge network, such as `podman run --network bridge`, or run \
             the program with `farwire exec --net host`"
        )));
    }
    let has_address = |end: &HostEnd| networks.iter().any(|of| of.mac == end.mac);
    if !networks.is_empty() && !ends.iter().any(has_address) {
        return Err(Failure::bad_input(format!(
            "{target} has other hardware addresses here than its engine says: an engine on another machine, or in a \
             virtual machine, does not know the processes of this one; run farwire there, or name a process with --pid"
        )));
    }
    let others = HostEnd::others_of(namespace, &ends);
    let others = others.with_context(|| target.to_string()).or_machine()?;
    let Some(network) = network else {
        warn_of_others(target, &ends, &others, networks);
        return Ok(ends);
    };
    if ends.iter().any(|end| end.inside == network) {
        let chosen = ends.into_iter().filter(|end| end.inside == network);
        return Ok(chosen.collect());
    }
    let names = ends
        .iter()
        .map(|end| described(&end.inside, end.mac, networks));
    let names: Vec<String> = names.collect();
    let is_chosen = |mac| network_of(mac, networks) == Some(network);
    let chosen = ends.into_iter().filter(|end| is_chosen(end.mac));
    let chosen: Vec<HostEnd> = chosen.collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let names = names.join(", ");
    let mut others = others.iter();
    let why = match others.find(|of| of.name == network || is_chosen(of.mac)) {
        Some(other) => {
            let name = described(&other.name, other.mac, networks);
            format!("the interface {name} of {target} {NO_PAIR}; choose {names}")
        }
        None => format!("{target} has no interface or network {network}; it has {names}"),
    };
    Err(Failure::bad_input(format!("--network: {why}")))
}

/// Warns of the interfaces and the networks of `target` that get no link.
fn warn_of_others(
    target: &Target,
    ends: &[HostEnd],
    others: &[Interface],
    networks: &[ContainerNetwork],
) {
    for other in others {
        let name = described(&other.name, other.mac, networks);
        warn(format_args!(
            "{target}: its interface {name} {NO_PAIR}: it gets no link, and its packets are not impaired"
        ));
    }
    let is_unknown = |network: &&ContainerNetwork| {
        let mut known = ends.iter().map(|end| end.mac);
        let mut rest = others.iter().map(|other| other.mac);
        !known.any(|mac| mac == network.mac) && !rest.any(|mac| mac == network.mac)
    };
    for network in networks.iter().filter(is_unknown) {
        warn(format_args!(
            "{target}: no interface inside has the hardware address that the engine has for its network {}: packets \
             of that network may not be impaired",
            network.name
        ));
    }
}

/// Returns the name of an interface inside, with the engine's name of its network, if it has one.
fn described(inside: &str, mac: [u8; 6], networks: &[ContainerNetwork]) -> String {
    match network_of(mac, networks) {
        Some(network) => format!("{inside} ({network})"),
        None => inside.to_owned(),
    }
}

/// Returns the engine's name of the network in which a container has this hardware address.
fn network_of(mac: [u8; 6], networks: &[ContainerNetwork]) -> Option<&str> {
    let found = networks.iter().find(|of| of.mac == mac);
    found.map(|of| of.name.as_str())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Container(name) => write!(f, "container {name}"),
            Self::Label(label) => write!(f, "the containers with label {label}"),
        }
    }
}

/// A leased end on the host and its place in a bridge.
struct Place {
    /// Name of the link.
    name: String,
    /// The interface of the container, if it is one.
    container: Option<ContainerEnd>,
    host: Interface,
    lease: InterfaceLease,
    place: BridgePort,
}

impl Place {
    fn of(name: String, host: &Interface, leases: &InterfaceLeases) -> Result<Self, Failure> {
        // This undoes the changes of a killed box, which may include that the end has left its bridge.
        let lease = leases.take(host).map_err(super::blame)?;
        let host = Interface::by_index(host.index).or_machine()?;
        let place = BridgePort::of(&host).map_err(blame)?;
        Ok(Self {
            name,
            container: None,
            host,
            lease,
            place,
        })
    }

    fn of_container(self, known: &KnownContainer, inside: String, is_chosen: bool) -> Self {
        Self {
            container: Some(ContainerEnd {
                engine: known.engine.clone(),
                id: known.id.clone(),
                container: known.name.clone(),
                inside,
                is_chosen,
            }),
            ..self
        }
    }

    /// Makes the pair.
    fn attach(self, leases: &InterfaceLeases) -> Result<Attached, Failure> {
        let Self {
            name,
            container,
            host,
            lease,
            place,
        } = self;
        let [near, far] = new_pair::names(host.index);
        // A process may have been killed together with its holder.
        new_pair::remove_of(host.index, leases).or_machine()?;
        let made = veth::make_pair(&near, &far, &host).or_machine();
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
            name,
            names: [host.name, near],
            insertion: Insertion {
                place,
                far,
                leases: [lease, of_near],
                container,
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
        | BridgePortError::VlanTunnels(_)
        | BridgePortError::StaticEntries { .. } => Failure::bad_input(error),
    }
}
