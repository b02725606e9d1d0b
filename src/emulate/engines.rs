//! Asks the container engines, Podman and Docker, for processes and addresses of containers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use serde::Deserialize;

use instruments::failure::Failure;

/// The programs that know containers.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// A container's addresses in a network of its engine. A text is empty if there is no such address.
#[derive(Debug, Deserialize)]
struct EndpointSettings {
    #[serde(rename = "IPAddress", default)]
    v4: String,
    #[serde(rename = "GlobalIPv6Address", default)]
    v6: String,
    #[serde(rename = "MacAddress", default)]
    mac: String,
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
    pub(super) engine: &'static str,
    pub(super) name: String,
    /// Its first process.
    pub(super) pid: u32,
}

/// Returns the running container `name`, whichever engine knows it.
pub(super) fn named(name: &str) -> Result<KnownContainer, Failure> {
    let mut found: Vec<(&'static str, u32)> = Vec::new();
    let mut refusals = Vec::new();
    for engine in engines("--container")? {
        match pid(engine, name) {
            // Debian's podman-docker is Podman under the name of Docker.
            Ok(pid) if found.iter().any(|(_, known)| *known == pid) => {}
            Ok(pid) => found.push((engine, pid)),
            Err(why) => refusals.push(format!("{engine}: {why}")),
        }
    }
    let why = match *found {
        [(_, 0)] => "the container is not running".to_owned(),
        [(engine, pid)] => {
            let name = name.to_owned();
            return Ok(KnownContainer { engine, name, pid });
        }
        [] => refusals.join("; "),
        _ => "podman and docker both have a container of this name; choose it by --pid".to_owned(),
    };
    Err(Failure::bad_input(format!("--container {name}: {why}")))
}

/// Returns all running containers with this label. An engine that does not answer has no containers, unless none answers.
pub(super) fn labelled(label: &str) -> Result<Vec<KnownContainer>, Failure> {
    let filter = format!("label={label}");
    let list = ["ps", "--filter", filter.as_str(), "--format", "{{.Names}}"];
    let mut all: Vec<KnownContainer> = Vec::new();
    let mut refusals = Vec::new();
    let engines = engines("--label")?;
    for &engine in &engines {
        let listed = match ask(engine, &list) {
            Ok(listed) => listed,
            Err(why) => {
                refusals.push(format!("{engine}: {why}"));
                continue;
            }
        };
        for name in listed.lines().map(str::trim) {
            // A container that has ended since it was listed gets no link. Two engines are one if they know the same process.
            if let Ok(pid @ 1..) = pid(engine, name)
                && all.iter().all(|known| known.pid != pid)
            {
                let name = name.to_owned();
                all.push(KnownContainer { engine, name, pid });
            }
        }
    }
    if refusals.len() == engines.len() {
        return Err(Failure::machine(format!(
            "--label {label}: no container engine answers: {}",
            refusals.join("; ")
        )));
    }
    if all.is_empty() {
        let mut why = format!("--label {label}: no running container has this label");
        if !refusals.is_empty() {
            why = format!("{why} ({})", refusals.join("; "));
        }
        return Err(Failure::bad_input(why));
    }
    Ok(all)
}

/// The state of a container, as far as its engine says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// It runs, and this is its first process.
    Running(u32),
    /// It does not run, or the engine does not answer.
    Stopped,
    /// The engine does not know it.
    Removed,
}

/// Returns the state of the container `name` of `engine`.
pub(super) fn state_of(engine: &str, name: &str) -> ContainerState {
    match pid(engine, name) {
        Ok(pid @ 1..) => ContainerState::Running(pid),
        Err(why) if why.to_ascii_lowercase().contains("no such container") => {
            ContainerState::Removed
        }
        Ok(0) | Err(_) => ContainerState::Stopped,
    }
}

/// Returns the addresses of the container `name` in all its networks; `None` if no engine knows a container of this
/// name.
///
/// # Errors
/// The container has no address, in words.
pub(crate) fn addresses_of(name: &str) -> Option<Result<Vec<IpAddr>, String>> {
    let known = present().filter_map(|engine| {
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

/// Returns the networks of the container `name` that have hardware addresses. There are none if no engine answers.
pub(super) fn networks_of(name: &str) -> Vec<ContainerNetwork> {
    let known = present().filter_map(|engine| endpoints(engine, name).ok());
    let networks = known.flat_map(|(_, endpoints)| endpoints);
    let networks = networks.filter_map(|(name, endpoint)| {
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
fn engines(option: &str) -> Result<Vec<&'static str>, Failure> {
    let found: Vec<_> = present().collect();
    if found.is_empty() {
        return Err(Failure::machine(format!(
            "{option}: neither podman nor docker is on PATH; use --pid with the ID of a process in the container"
        )));
    }
    Ok(found)
}

/// Returns the engines on this machine.
pub(crate) fn present() -> impl Iterator<Item = &'static str> {
    let engines = ENGINES.into_iter();
    engines.filter(|engine| which::which(engine).is_ok())
}

/// Returns the first process of a container, which is 0 if the container does not run, or why the engine does not say
/// that.
fn pid(engine: &str, name: &str) -> Result<u32, String> {
    let text = inspect(engine, name, "{{.State.Pid}}")?;
    let what = || format!("printed `{}` instead of a process ID", text.trim());
    text.trim().parse().map_err(|_| what())
}

/// Returns the name of a container, and its addresses by the engine's names of the networks, or why the engine does not say
/// that.
fn endpoints(
    engine: &str,
    name: &str,
) -> Result<(String, BTreeMap<String, EndpointSettings>), String> {
    let format = "{{.Name}} {{json .NetworkSettings.Networks}}";
    let text = inspect(engine, name, format)?;
    let (own, networks) = text.split_once(' ').ok_or("printed no list of networks")?;
    // Docker's names are paths.
    let own = own.strip_prefix('/').unwrap_or(own).to_owned();
    let endpoints: Result<Option<_>, _> = serde_json::from_str(networks);
    let endpoints = endpoints.map_err(|error| format!("printed no list of networks: {error}"))?;
    Ok((own, endpoints.unwrap_or_default()))
}

/// Returns a part of what the engine knows of a container, or the engine's words if it knows no such container.
fn inspect(engine: &str, name: &str, format: &str) -> Result<String, String> {
    let arguments = ["container", "inspect", "--format", format, "--", name];
    ask(engine, &arguments)
}

/// Returns what the engine prints, or the line of its refusal.
fn ask(engine: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(engine)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    // Warnings may come before the error.
    let mut errors = text.lines().filter(|line| line.starts_with("Error"));
    let line = errors.next().or_else(|| text.lines().next());
    Err(line.unwrap_or("refused").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
