//! A list of tests, run one at a time, in which a test that this machine cannot run is named with the cause.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitCode};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use netio::bed::{Bed, BedConfig};
use netio::netns::NetNs;
use netio::userns::{self, Privilege};

use crate::{process, steering};

/// What a test needs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program in the path.
    Tool(&'static str),
    /// A peer that `make test-tools` builds.
    Peer(&'static str),
    /// That `make soak-tools` has fetched this.
    SoakTool(&'static str),
    /// obudpst's program in the path.
    Udpst,
    /// Namespaces of one's own, as root or by [`gain_privilege`].
    Namespaces,
    /// The host's own root.
    Root,
    /// The congestion control cubic, which this host allows root alone (net.ipv4.tcp_allowed_congestion_control).
    CubicForRootOnly,
    /// Receive packet steering in a namespace of one's own.
    Steering,
    /// A kind of interface, as ip(8) names it.
    Device(&'static str),
    /// `FARWIRE_SOAK=1`.
    Soak,
}

/// Puts this process into a user namespace of its own, with a loopback, unless it is root; call it before any thread is
/// started.
///
/// Where that fails, the tests that need it are skipped: they find out themselves.
pub fn gain_privilege() {
    if Privilege::detect() == Privilege::UserNamespace {
        // A failure shows again when Need::Namespaces is looked at, or when a test finds no loopback.
        let _ = userns::enter();
        let _ = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
    }
}

/// The tests of one program.
pub struct Suite {
    trials: Vec<Trial>,
    /// What was found out about needs so far.
    lacking: BTreeMap<Need, Option<String>>,
}

impl Suite {
    pub fn new() -> Self {
        Self {
            trials: Vec::new(),
            lacking: BTreeMap::new(),
        }
    }

    /// Adds a test; it is skipped when one of its needs is not met.
    pub fn test(
        &mut self,
        name: impl Into<String>,
        needs: &[Need],
        test: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        let name = name.into();
        let cause = needs.iter().find_map(|need| {
            let found = self.lacking.entry(*need);
            found.or_insert_with(|| need.lacking()).clone()
        });
        let run = move || test().map_err(|error| Failed::from(format!("{error:#}")));
        self.trials.push(match cause {
            None => Trial::test(name, run),
            Some(cause) => {
                Trial::test(format!("{name} [skipped: {cause}]"), run).with_ignored_flag(true)
            }
        });
    }

    /// Adds what is not tested, with its cause.
    pub fn skip(&mut self, cause: &str) {
        let trial = Trial::test(format!("[not run: {cause}]"), || Ok(()));
        self.trials.push(trial.with_ignored_flag(true));
    }

    /// Runs the tests that the arguments ask for, one at a time: they share two cores with the program.
    pub fn run(self) -> ExitCode {
        if let Err(why) = process::take_usual_signals() {
            eprintln!("{why:#}");
            return ExitCode::FAILURE;
        }
        let mut arguments = Arguments::from_args();
        arguments.test_threads = Some(1);
        libtest_mimic::run(&arguments, self.trials).exit_code()
    }
}

impl Need {
    /// Why this machine does not meet the need, if so.
    fn lacking(self) -> Option<String> {
        match self {
            Self::Tool(name) => {
                let found = which::which(name);
                found.is_err().then(|| format!("there is no {name} here"))
            }
            Self::Peer(name) => {
                let built = process::peer(name).is_file();
                (!built).then(|| format!("{name} is not built: make test-tools"))
            }
            Self::SoakTool(path) => {
                let fetched = process::soak_tool(path).is_file();
                (!fetched).then(|| format!("{path} is not fetched: make soak-tools"))
            }
            Self::Udpst => which::which("udpst").is_err().then(|| {
                "there is no udpst here: it has to be built from github.com/BroadbandForum/obudpst, no package registry has it".to_owned()
            }),
            Self::Namespaces => match Privilege::detect() {
                Privilege::Root | Privilege::UserNamespace => None,
                Privilege::None { why } => Some(format!("neither root nor user namespaces: {why}")),
            },
            Self::Root => {
                // Of a user namespace's own root few users are mapped.
                let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
                let is_root = Privilege::detect() == Privilege::Root && map.contains("4294967295");
                (!is_root).then(|| "not root of this host".to_owned())
            }
            Self::CubicForRootOnly => {
                let has_cubic = |which| {
                    let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
                    let names = fs::read_to_string(path).unwrap_or_default();
                    names.split_whitespace().any(|name| name == "cubic")
                };
                let cause = match (has_cubic("available"), has_cubic("allowed")) {
                    (true, false) => return None,
                    (true, true) => "this host allows cubic to every user, so it would prove nothing",
                    (false, _) => "there is no cubic here: modprobe tcp_cubic",
                };
                Some(cause.to_owned())
            }
            Self::Steering => NetNs::create()
                .map_err(Into::into)
                .and_then(|ns| steering::to_one_cpu(&ns, &["lo"]))
                .err()
                .map(|why| format!("no receive packet steering: {why:#}")),
            Self::Device(kind) => try_device(kind)
                .err()
                .map(|why| format!("no {kind} interfaces: {why:#}")),
            Self::Soak => (!crate::is_soak()).then(|| "only with FARWIRE_SOAK=1".to_owned()),
        }
    }
}

/// Tries to make an interface of this kind on a test bed.
fn try_device(kind: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let options = match kind {
        "vxlan" => "id 1 dev wan dstport 4789",
        "bridge" => "",
        _ => "local 10.77.0.1 remote 10.77.0.2",
    };
    process::ip(
        bed.client(),
        &format!("link add probe type {kind} {options}"),
    )
    .map(drop)
}
