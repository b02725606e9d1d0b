//! Checks this machine: what it supports, what each missing part means, and what to do about it.

mod hardware;
mod network;

use std::fmt;

use netio::userns::{self, Privilege};
use serde::Serialize;

use crate::emulate::engines;
use crate::host_network;
pub(crate) use instruments::external::Tool;

/// The results of the checks, in the order of the output.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    checks: Vec<Check>,
    /// The uses of farwire that this machine allows.
    can: Vec<&'static str>,
    /// Those that it does not allow.
    cannot: Vec<&'static str>,
}

/// The uses of farwire, each with the checks that must be ok.
static USES: [(&str, &[&str]); 6] = [
    (
        "run",
        &[hardware::KERNEL, network::TEST_BED, network::PACKET_SOCKETS],
    ),
    (
        "exec",
        &[
            hardware::KERNEL,
            network::TEST_BED,
            network::PACKET_SOCKETS,
            network::PID_NAMESPACES,
        ],
    ),
    (
        "exec --net host",
        &[
            hardware::KERNEL,
            network::TEST_BED,
            network::PACKET_SOCKETS,
            network::PID_NAMESPACES,
            PASTA,
        ],
    ),
    (
        "emulate between interfaces",
        &[
            hardware::KERNEL,
            PRIVILEGES,
            network::PACKET_SOCKETS,
            network::INGRESS,
        ],
    ),
    (
        "emulate --container",
        &[
            hardware::KERNEL,
            PRIVILEGES,
            CONTAINER_NETWORKS,
            network::PACKET_SOCKETS,
            network::INGRESS,
            ENGINES,
        ],
    ),
    ("measure and serve", &[hardware::KERNEL]),
];

const PRIVILEGES: &str = "privileges";
const CONTAINER_NETWORKS: &str = "container networks";
const PASTA: &str = "pasta";
const ENGINES: &str = "container engines";

/// The check of one part of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    verdict: CheckState,
    /// The result of the check, or the cause of its failure.
    found: String,
    /// The consequence of a failure, and the workaround.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    lack: Option<Lack>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    /// farwire works with limits.
    Degraded,
    /// farwire does not work.
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Lack {
    cost: &'static str,
    remedy: &'static str,
}

impl Diagnosis {
    /// Checks the machine. Call it before the process starts any thread, because it may have to become root in a new user
    /// namespace.
    pub(crate) fn make() -> Self {
        let privilege = Privilege::detect();
        let mut checks = vec![
            hardware::kernel(),
            capabilities(),
            container_networks(),
            network::icmp_sockets(),
            user_namespaces(&privilege),
        ];
        // The host's network is looked at from the host.
        let pasta = pasta();
        let entered = match privilege {
            Privilege::Root => Ok(()),
            Privilege::UserNamespace => userns::enter().map_err(|error| error.to_string()),
            Privilege::None { why } => Err(why),
        };
        checks.extend(network::checks(entered));
        checks.extend([hardware::seccomp(), hardware::landlock()]);
        checks.extend([
            hardware::clock(),
            hardware::wake_up(),
            hardware::processors(),
        ]);
        checks.extend(
            [
                ("ping", "-V", "iputils-ping"),
                ("wget", "--version", "wget"),
                ("iperf3", "--version", "iperf3"),
            ]
            .map(|(name, flag, package)| tool(name, flag, package, INSTRUMENT)),
        );
        checks.extend([pasta, container_engines()]);
        Self::of(checks)
    }

    /// Returns the results of checks, with the uses that follow.
    fn of(checks: Vec<Check>) -> Self {
        let is_ok = |name: &&str| {
            let mut own = checks.iter().filter(|check| check.name == *name);
            own.any(|check| check.verdict == CheckState::Ok)
        };
        let (can, cannot): (Vec<_>, Vec<_>) =
            USES.iter().partition(|(_, needs)| needs.iter().all(is_ok));
        let names =
            |uses: Vec<&(&'static str, &[&str])>| uses.iter().map(|(name, _)| *name).collect();
        Self {
            can: names(can),
            cannot: names(cannot),
            checks,
        }
    }

    /// Returns one sentence: the uses that this machine allows, and those that it does not allow.
    pub(crate) fn uses(&self) -> String {
        let list = |uses: &[&str]| match uses {
            [] => "nothing".to_owned(),
            uses => uses.join(", "),
        };
        let cannot = match self.cannot.as_slice() {
            [] => String::new(),
            uses => format!("; it cannot: {}", list(uses)),
        };
        format!("this machine can: {}{cannot}", list(&self.can))
    }

    /// True if everything that farwire needs is there.
    pub(crate) fn is_fit(&self) -> bool {
        let missing = |check: &Check| check.verdict == CheckState::Missing;
        !self.checks.iter().any(missing)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks
            .iter()
            .try_for_each(|check| writeln!(f, "{check}"))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            CheckState::Ok => "ok",
            CheckState::Degraded => "degraded",
            CheckState::Missing => "missing",
        };
        write!(f, "{verdict:<9} {:<22} {}", self.name, self.found)?;
        match self.lack {
            Some(Lack { cost, remedy }) => write!(f, " — {cost}; workaround: {remedy}"),
            None => Ok(()),
        }
    }
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: CheckState::Ok,
            found: found.into(),
            lack: None,
        }
    }

    /// Returns the check for the result of a test: ok, or this `verdict` with the cause.
    fn tried(
        name: &'static str,
        tried: Result<String, String>,
        verdict: CheckState,
        lack: Lack,
    ) -> Self {
        match tried {
            Ok(found) => Self::ok(name, found),
            Err(found) => Self {
                name,
                verdict,
                found,
                lack: Some(lack),
            },
        }
    }
}

/// Checks the privileges of `emulate`. Other commands depend on user namespaces.
fn capabilities() -> Check {
    let found = match userns::holds_network_capabilities() {
        true => Ok("this process has CAP_NET_ADMIN and CAP_NET_RAW".to_owned()),
        false => Err("this process lacks CAP_NET_ADMIN or CAP_NET_RAW".to_owned()),
    };
    let lack = Lack {
        cost: "`emulate` cannot use real interfaces",
        remedy: "run `emulate` as root; other commands need no privileges",
    };
    Check::tried(PRIVILEGES, found, CheckState::Degraded, lack)
}

/// Checks the privilege by which `emulate --container` looks into the network of a container.
fn container_networks() -> Check {
    let found = match userns::may_enter_namespaces() {
        true => Ok("this process has CAP_SYS_ADMIN".to_owned()),
        false => Err("this process lacks CAP_SYS_ADMIN".to_owned()),
    };
    let lack = Lack {
        cost: "`emulate` cannot enter the network of a container",
        remedy: "run `emulate --container` as root; other commands do not need this privilege",
    };
    Check::tried(CONTAINER_NETWORKS, found, CheckState::Degraded, lack)
}

fn user_namespaces(privilege: &Privilege) -> Check {
    let tried = match privilege {
        Privilege::Root => userns::works().map_err(|error| error.to_string()),
        Privilege::UserNamespace => Ok(()),
        Privilege::None { why } => Err(why.clone()),
    };
    let lack = Lack {
        cost: "only root can use `run` and `exec`",
        remedy: "follow the advice in brackets, or run as root (in a container: with SYS_ADMIN, NET_ADMIN and NET_RAW)",
    };
    let verdict = match privilege {
        Privilege::Root => CheckState::Degraded,
        _ => CheckState::Missing,
    };
    let tried = tried.map(|()| "tested, with network interfaces".to_owned());
    Check::tried("user namespaces", tried, verdict, lack)
}

/// The consequence of a missing instrument.
const INSTRUMENT: Lack = Lack {
    cost: "scenarios that use it as an external instrument fail",
    remedy: "install the package; farwire's own instruments do not need it",
};

/// The consequence of a pasta that is missing or cannot be used.
const HOST_NETWORK: Lack = Lack {
    cost: "`exec --net host` does not work",
    remedy: "follow the advice before; other commands do not need pasta",
};

/// Checks pasta as `exec --net host` does.
fn pasta() -> Check {
    let found = host_network::find_pasta().map_err(|error| format!("{error:#}"));
    Check::tried(PASTA, found, CheckState::Degraded, HOST_NETWORK)
}

/// Looks for the engines that know containers. They are not asked for anything, because some then make folders.
fn container_engines() -> Check {
    let lack = Lack {
        cost: "`emulate --container` and `--label` find no containers",
        remedy: "name a process of the container with `emulate --pid`",
    };
    let present = engines::present().into_iter();
    let present: Vec<String> = present.map(|engine| engine.to_string()).collect();
    let found = if present.is_empty() {
        Err(engines::ABSENT.to_owned())
    } else {
        Ok(present.join(", "))
    };
    Check::tried(ENGINES, found, CheckState::Degraded, lack)
}

fn tool(name: &'static str, version_flag: &str, package: &'static str, lack: Lack) -> Check {
    let found = Tool::find(name, version_flag, package)
        .map(|tool| format!("{}: {}", tool.path.display(), tool.version))
        .map_err(|error| error.to_string());
    Check::tried(name, found, CheckState::Degraded, lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LACK: Lack = Lack {
        cost: "it is dark",
        remedy: "light a candle",
    };

    fn lamp(verdict: CheckState) -> Check {
        Check::tried("lamp", Err("no oil".to_owned()), verdict, LACK)
    }

    #[test]
    fn a_line_states_verdict_consequence_and_workaround() {
        let line = lamp(CheckState::Degraded).to_string();
        assert_eq!(
            line,
            "degraded  lamp                   no oil — it is dark; workaround: light a candle"
        );
    }

    #[test]
    fn a_machine_that_lacks_a_convenience_is_fit() {
        let checks = vec![Check::ok("sun", "up"), lamp(CheckState::Degraded)];
        assert!(Diagnosis::of(checks).is_fit());
    }

    #[test]
    fn a_machine_that_lacks_a_need_is_not_fit() {
        let checks = vec![Check::ok("sun", "up"), lamp(CheckState::Missing)];
        assert!(!Diagnosis::of(checks).is_fit());
    }

    #[test]
    fn the_last_line_says_what_the_machine_can_do() {
        let found = |names: &[&'static str]| {
            let checks = names.iter().map(|name| Check::ok(name, "found")).collect();
            Diagnosis::of(checks).uses()
        };
        let all = [
            hardware::KERNEL,
            PRIVILEGES,
            network::TEST_BED,
            network::PACKET_SOCKETS,
            network::PID_NAMESPACES,
            network::INGRESS,
            PASTA,
            ENGINES,
            CONTAINER_NETWORKS,
        ];
        assert_eq!(
            found(&all),
            "this machine can: run, exec, exec --net host, emulate between interfaces, emulate --container, measure and serve"
        );
        assert_eq!(
            found(&all[..all.len() - 1]),
            "this machine can: run, exec, exec --net host, emulate between interfaces, measure and serve; it cannot: emulate --container"
        );
        assert_eq!(
            found(&all[..all.len() - 3]),
            "this machine can: run, exec, emulate between interfaces, measure and serve; it cannot: exec --net host, emulate --container"
        );
        assert_eq!(
            found(&[hardware::KERNEL]),
            "this machine can: measure and serve; it cannot: run, exec, exec --net host, emulate between interfaces, emulate --container"
        );
        assert_eq!(
            found(&[]),
            "this machine can: nothing; it cannot: run, exec, exec --net host, emulate between interfaces, emulate --container, measure and serve"
        );
        let degraded = Check::tried(
            hardware::KERNEL,
            Err("old".to_owned()),
            CheckState::Degraded,
            LACK,
        );
        assert_eq!(Diagnosis::of(vec![degraded]).can, Vec::<&str>::new());
    }

    #[test]
    fn json_has_consequence_and_workaround_beside_the_verdict() {
        let json = serde_json::to_value(lamp(CheckState::Missing)).unwrap();
        assert_eq!(json["verdict"], "missing");
        assert_eq!(json["cost"], "it is dark");
        assert_eq!(json["remedy"], "light a candle");
    }

    #[test]
    fn the_check_of_a_missing_tool_names_its_package() {
        let check = tool("no-such-tool", "-V", "some-package", INSTRUMENT);
        assert_eq!(check.verdict, CheckState::Degraded);
        assert!(check.found.contains("some-package"), "{check}");
    }
}
