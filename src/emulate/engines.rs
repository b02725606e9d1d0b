//! Asks the container engines, Podman and Docker, for processes and addresses of containers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::engine_api::{self, EndpointSettings};
use super::engine_program;
use crate::notes::warn;
use instruments::failure::Failure;

/// The name of Podman's program.
const PODMAN: &str = "podman";

/// The engines that know containers: the program, the variable with the address of its API, and the usual socket of its
/// API for root's containers (podman-system-service(1), dockerd(8)).
const ENGINES: [(&str, &str, &str); 2] = [
    (PODMAN, "CONTAINER_HOST", "/run/podman/podman.sock"),
    ("docker", "DOCKER_HOST", "/var/run/docker.sock"),
];

/// The command for containers of rootless Podman, whose bridges are in a separate network namespace.
pub(super) const ROOTLESS: &str =
    "run, as the user of the container, `podman unshare --rootless-netns farwire emulate ...`";

/// The reason why no engine is found.
pub(crate) const ABSENT: &str =
    "neither podman nor docker is on PATH, and neither has a socket here";

/// A container engine of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Engine {
    /// Its program, which is on PATH.
    Program(String),
    /// The socket of its API, and the name of its program. It is used where the program is not on PATH.
    Socket { name: String, path: PathBuf },
}

impl Engine {
    /// Returns the name of its program.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Program(name) | Self::Socket { name, .. } => name,
        }
    }
}

/// A network of a container.
pub(super) struct ContainerNetwork {
    /// The engine's name of the network.
    pub(super) name: String,
    /// The container's hardware address there.
    pub(super) mac: [u8; 6],
}

/// A container that an engine knows.
#[derive(Debug)]
pub(super) struct KnownContainer {
    pub(super) engine: Engine,
    /// Its ID, which stays when the container is renamed.
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, or 0 if it does not run.
    pub(super) pid: u32,
}

/// Returns the running container `name`, whichever engine knows it.
///
/// # Errors
/// Blames the user for a container that no engine knows, that does not run or that several engines know; blames the
/// machine if an engine does not answer or denies access, because it may know the container.
pub(super) fn named(name: &str) -> Result<KnownContainer, Failure> {
    let mut found: Vec<KnownContainer> = Vec::new();
    let (mut refusals, mut is_unknown_to_podman) = (Vec::new(), false);
    for engine in engines("--container")? {
        match known(&engine, name) {
            // Debian's podman-docker is Podman under the name and the socket of Docker.
            Ok(same) if found.iter().any(|known| known.pid == same.pid) => {}
            Ok(container) => found.push(container),
            Err(why) => {
                is_unknown_to_podman |= engine.name() == PODMAN && is_unknown(&why);
                refusals.push(format!("{engine}: {why}"));
            }
        }
    }
    let why = match found.as_slice() {
        [KnownContainer { pid: 0, .. }] => "the container is not running".to_owned(),
        [_] => return Ok(found.remove(0)),
        [] => {
            let mut why = format!("--container {name}: {}", refusals.join("; "));
            if is_unknown_to_podman {
                why = or_of_other_user(&why);
            }
            return Err(match refusals.iter().all(|why| is_unknown(why)) {
                true => Failure::bad_input(why),
                false => Failure::machine(why),
            });
        }
        several => {
            let engines: Vec<String> = several.iter().map(|of| of.engine.to_string()).collect();
            format!(
                "{} both have a container of this name; choose it by --pid",
                engines.join(" and ")
            )
        }
    };
    Err(Failure::bad_input(format!("--container {name}: {why}")))
}

/// Returns all running containers with this label. An engine that does not answer, and a container whose process it does
/// not say, are named in a warning.
///
/// # Errors
/// Blames the user if there is none; blames the machine if no engine answers, or if an engine says the process of none.
pub(super) fn labelled(label: &str) -> Result<Vec<KnownContainer>, Failure> {
    let mut all: Vec<KnownContainer> = Vec::new();
    let (mut refusals, mut incomplete) = (Vec::new(), Vec::new());
    let engines = engines("--label")?;
    for engine in &engines {
        let names = match names(engine, label) {
            Ok(names) => names,
            Err(why) => {
                refusals.push(format!("{engine}: {why}"));
                continue;
            }
        };
        for name in names {
            match known(engine, &name) {
                // A container that has ended since it was listed gets no link.
                Ok(KnownContainer { pid: 0, .. }) => {}
                // Two engines are one if they know the same process.
                Ok(same) if all.iter().any(|known| known.pid == same.pid) => {}
                Ok(container) => all.push(container),
                Err(why) if is_unknown(&why) => {}
                Err(why) => incomplete.push(format!("{engine}: container {name}: {why}")),
            }
        }
    }
    if refusals.len() == engines.len() {
        return Err(Failure::machine(format!(
            "--label {label}: no container engine answers: {}",
            refusals.join("; ")
        )));
    }
    if all.is_empty() && !incomplete.is_empty() {
        let why = incomplete.join("; ");
        return Err(Failure::machine(format!("--label {label}: {why}")));
    }
    if all.is_empty() {
        let mut why = format!("--label {label}: no running container has this label");
        if !refusals.is_empty() {
            why = format!("{why} ({})", refusals.join("; "));
        }
        if engines.iter().any(|engine| engine.name() == PODMAN) {
            why = or_of_other_user(&why);
        }
        return Err(Failure::bad_input(why));
    }
    for why in refusals.iter().chain(&incomplete) {
        warn(format_args!(
            "containers with label {label} may be without a link: {why}"
        ));
    }
    Ok(all)
}

/// The state of a container, as far as its engine says.
#[derive(Debug)]
pub(super) enum ContainerState {
    /// The engine knows it.
    Known(KnownContainer),
    /// The engine does not answer.
    Unanswered,
    /// The engine does not know it.
    Removed,
}

/// Returns the state of the container of `engine` with this ID.
pub(super) fn state_of(engine: &Engine, id: &str) -> ContainerState {
    match known(engine, id) {
        Ok(container) => ContainerState::Known(container),
        Err(why) if is_unknown(&why) => ContainerState::Removed,
        Err(_) => ContainerState::Unanswered,
    }
}

/// Adds to a refusal the command for a container that only the Podman of another user knows.
fn or_of_other_user(why: &str) -> String {
    format!("{why}; only its user's Podman knows a container of rootless Podman: {ROOTLESS}")
}

/// Returns true if an engine refuses because it does not know the container.
fn is_unknown(why: &str) -> bool {
    why.to_ascii_lowercase().contains("no such container")
}

/// Returns the addresses of the container `name` in all its networks; `None` if no engine knows a container of this
/// name.
///
/// # Errors
/// The container has no address, in words.
pub(crate) fn addresses_of(name: &str) -> Option<Result<Vec<IpAddr>, String>> {
    let engines = present();
    let known = engines.iter().filter_map(|engine| {
        let (own, endpoints) = endpoints(engine, name).ok()?;
        // An engine takes the first digits of an ID for the name as well, such as `db`, which may be the name of a host.
        (own == name).then_some(endpoints)
    });
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return None;
    }
    let texts = known.iter().flat_map(BTreeMap::values);
    let texts = texts.flat_map(|endpoint| [&endpoint.v4, &endpoint.v6]);
    let addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    if addresses.is_empty() {
        let why = "the container of this name has no address: start it on a network";
        return Some(Err(why.to_owned()));
    }
    Some(Ok(addresses))
}

/// Returns the networks of a container that have hardware addresses. There are none if its engine does not say them.
pub(super) fn networks_of(container: &KnownContainer) -> Vec<ContainerNetwork> {
    let known = endpoints(&container.engine, &container.id);
    let (_, endpoints) = known.unwrap_or_default();
    let networks = endpoints.into_iter().filter_map(|(name, endpoint)| {
        let mac = mac(&endpoint.mac)?;
        Some(ContainerNetwork { name, mac })
    });
    networks.collect()
}

/// Reads a hardware address such as `02:42:ac:11:00:02`.
fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// Returns the engines on this machine, of which the option `option` needs one.
fn engines(option: &str) -> Result<Vec<Engine>, Failure> {
    let found = present();
    if found.is_empty() {
        return Err(Failure::machine(format!(
            "{option}: {ABSENT}; use --pid with the ID of a process in the container"
        )));
    }
    Ok(found)
}

/// Returns the engines on this machine.
pub(crate) fn present() -> Vec<Engine> {
    let found = ENGINES
        .into_iter()
        .filter_map(|(program, variable, usual)| {
            if which::which(program).is_ok() {
                return Some(Engine::Program(program.to_owned()));
            }
            let path = socket(std::env::var(variable).ok().as_deref(), usual)?;
            path.exists().then(|| Engine::Socket {
                name: program.to_owned(),
                path,
            })
        });
    found.collect()
}

/// Returns the socket of an engine: the one that its variable names, or else the usual one. An engine that the variable
/// names elsewhere, such as on another machine, has none here.
fn socket(variable: Option<&str>, usual: &str) -> Option<PathBuf> {
    match variable {
        None | Some("") => Some(usual.into()),
        Some(address) => address.strip_prefix("unix://").map(PathBuf::from),
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => f.write_str(program),
            Self::Socket { path, .. } => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Returns the names of all running containers with this label, or why the engine does not say that.
fn names(engine: &Engine, label: &str) -> Result<Vec<String>, String> {
    match engine {
        Engine::Program(program) => {
            let filter = format!("label={label}");
            let list = ["ps", "--filter", filter.as_str(), "--format", "{{.Names}}"];
            let listed = engine_program::ask(program, &list)?;
            Ok(listed.lines().map(|name| name.trim().to_owned()).collect())
        }
        Engine::Socket { path, .. } => engine_api::labelled(path, label),
    }
}

/// Returns the container with this name or ID, or why the engine does not say anything about it.
fn known(engine: &Engine, name: &str) -> Result<KnownContainer, String> {
    let (pid, id, own) = match engine {
        Engine::Program(program) => {
            let text = inspect(program, name, "{{.State.Pid}} {{.Id}} {{.Name}}")?;
            let what = || {
                let text = text.trim();
                format!("printed `{text}` instead of a process ID, an ID and a name")
            };
            let words: Vec<&str> = text.split_whitespace().collect();
            let [pid, id, own] = words[..] else {
                return Err(what());
            };
            let pid = pid.parse().map_err(|_| what())?;
            (pid, id.to_owned(), own.to_owned())
        }
        Engine::Socket { path, .. } => {
            let container = engine_api::container(path, name)?;
            (container.state.pid, container.id, container.name)
        }
    };
    Ok(KnownContainer {
        engine: engine.clone(),
        id,
        name: without_slash(&own),
        pid,
    })
}

/// Returns the name of a container without the slash with which Docker's names begin, because they are paths.
fn without_slash(name: &str) -> String {
    name.strip_prefix('/').unwrap_or(name).to_owned()
}

/// Returns the name of a container, and its addresses by the engine's names of the networks, or why the engine does not say
/// that.
fn endpoints(
    engine: &Engine,
    name: &str,
) -> Result<(String, BTreeMap<String, EndpointSettings>), String> {
    let (own, endpoints) = match engine {
        Engine::Program(program) => {
            let format = "{{.Name}} {{json .NetworkSettings.Networks}}";
            let text = inspect(program, name, format)?;
            let (own, networks) = text.split_once(' ').ok_or("printed no list of networks")?;
            let endpoints: Result<Option<_>, _> = serde_json::from_str(networks);
            let why = |error| format!("printed no list of networks: {error}");
            (own.to_owned(), endpoints.map_err(why)?)
        }
        Engine::Socket { path, .. } => {
            let container = engine_api::container(path, name)?;
            (container.name, container.network_settings.networks)
        }
    };
    Ok((without_slash(&own), endpoints.unwrap_or_default()))
}

/// Returns a part of what the engine knows of a container, or the engine's words if it knows no such container.
fn inspect(program: &str, name: &str, format: &str) -> Result<String, String> {
    let arguments = ["container", "inspect", "--format", format, "--", name];
    engine_program::ask(program, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_an_engine_is_the_usual_one_unless_its_variable_names_another() {
        let usual = "/var/run/docker.sock";
        let found = |variable| socket(variable, usual);
        assert_eq!(found(None), Some(usual.into()));
        assert_eq!(found(Some("")), Some(usual.into()));
        let other = "unix:///run/user/1000/docker.sock";
        assert_eq!(
            found(Some(other)),
            Some("/run/user/1000/docker.sock".into())
        );
        assert_eq!(found(Some("tcp://192.0.2.1:2376")), None);
    }

    #[test]
    fn a_hardware_address_has_six_bytes() {
        assert_eq!(
            mac("02:42:ac:11:00:fe"),
            Some([2, 0x42, 0xac, 0x11, 0, 0xfe])
        );
        for text in [
            "",
            "02:42:ac:11:00",
            "02:42:ac:11:00:fe:01",
            "02:42:ac:11:00:1fe",
        ] {
            assert_eq!(mac(text), None, "{text}");
        }
    }
}
