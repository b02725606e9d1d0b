//! The tests of a program. Tests that mostly wait run in parallel, and those that measure time run one at a time. A
//! test that this machine cannot run is listed with the cause.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, WAN};
use netio::iface::DefaultRoutes;
use netio::ingress_drop::IngressDrop;
use netio::netns::NetNs;
use netio::userns::{self, Privilege};
use netio::{AfPacket, RingSlots};

use crate::{powerless, process, steering};

/// Number of tests that run in parallel: one more than a small machine has cores, because most of them wait and some
/// send as fast as they can.
const AT_A_TIME: usize = 3;
/// Number of the slowest tests that are listed.
const SLOWEST: usize = 20;

/// A requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program in the path.
    Tool(&'static str),
    /// A peer that `make format-tools` builds.
    Peer(&'static str),
    /// A tool that `make soak-tools` has fetched.
    SoakTool(&'static str),
    /// A program or package for the longest tests, most of which read or validate formats, which `make format-tools` has installed.
    FormatTool(&'static str),
    /// A tool for the Python package, which `make test-tools` has installed.
    PythonTool(&'static str),
    /// obudpst's program in the path.
    Udpst,
    /// The right to create namespaces, as root or by a user namespace that the test program enters.
    Namespaces,
    /// pasta and the device for its tap, with which `exec --net host` works.
    HostNetwork,
    /// Podman with its tools, and the rights to run it with separate storage and to insert links at its containers.
    Podman,
    /// Docker's daemon and program with their tools, and the rights to run it with separate storage and to insert links at
    /// its containers.
    Docker,
    /// A user other than 0 who may run the program under test and create namespaces.
    OrdinaryUser,
    /// A font for the texts of drawings as PNG files.
    Font,
    /// A default route of the machine, which pages take for granted that use its network.
    DefaultRoute,
    /// The host's own root.
    Root,
    /// The congestion control cubic, which this host allows only root (net.ipv4.tcp_allowed_congestion_control).
    CubicForRootOnly,
    /// Receive packet steering in a separate namespace.
    Steering,
    /// A kind of interface, as ip(8) names it.
    Device(&'static str),
    /// Keeping the host's stack away from an interface (nftables' ingress hook).
    Ingress,
    /// Whole trains of a tunnel by a tap (Linux 6.17).
    TunnelGso,
    /// The variable `FARWIRE_SOAK=1`.
    Soak,
    /// The command `make test-all`.
    All,
}

/// A variable that is set for the process whose suites run as root of a user namespace.
const AS_ROOT: &str = "FARWIRE_TEST_AS_ROOT";

/// Runs the tests of this program that the arguments select. If an ordinary user runs it, the suites of these names run
/// in a separate process that is root of a user namespace. Call it before any thread is started.
pub fn run(as_root: &[&str]) -> ExitCode {
    if let Err(why) = process::take_usual_signals() {
        eprintln!("{why:#}");
        return ExitCode::FAILURE;
    }
    let is_as_root = |module: &str| as_root.contains(&suite_of(module));
    if std::env::var_os(AS_ROOT).is_some() {
        gain_privilege();
        return Suite::of(is_as_root).run();
    }
    if Privilege::detect() != Privilege::UserNamespace {
        return Suite::of(|_| true).run();
    }
    let of_root = std::env::current_exe().and_then(|program| {
        let mut program = Command::new(program);
        program.args(std::env::args_os().skip(1)).env(AS_ROOT, "1");
        program.status()
    });
    let others = Suite::of(|module| !is_as_root(module)).run();
    match of_root {
        Ok(status) if status.success() => others,
        _ => ExitCode::FAILURE,
    }
}

/// Moves this process into a user namespace with a loopback.
fn gain_privilege() {
    // An error becomes visible when Need::Namespaces is checked, or when a test finds no loopback.
    let _ = userns::enter();
    let _ = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
}

/// Returns the suite of a module by its path in this program.
fn suite_of(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

/// A function that is a test by the attribute [`crate::test`].
pub struct Test {
    pub module: &'static str,
    pub name: &'static str,
    pub line: u32,
    pub is_serial: bool,
    pub needs: &'static [Need],
    pub run: fn() -> Result<()>,
}

/// A function that adds tests by the attribute [`crate::tests`].
pub struct Tests {
    pub module: &'static str,
    pub add: fn(&mut Suite),
}

/// The return type of a test: nothing, if the test fails by a panic, or a result.
pub trait Ended {
    fn ended(self) -> Result<()>;
}

impl Ended for () {
    fn ended(self) -> Result<()> {
        Ok(())
    }
}

impl Ended for Result<()> {
    fn ended(self) -> Result<()> {
        self
    }
}

inventory::collect!(Test);
inventory::collect!(Tests);

/// Registers a function as a test; the attribute [`crate::test`] calls it.
#[macro_export]
macro_rules! submit_test {
    ($name:ident; serial, each($cases:expr) $(, $need:expr)*) => {
        $crate::submit_test! { @each $name serial $cases; $($need),* }
    };
    ($name:ident; each($cases:expr) $(, $need:expr)*) => {
        $crate::submit_test! { @each $name test $cases; $($need),* }
    };
    (@each $name:ident $add:ident $cases:expr; $($need:expr),*) => {
        $crate::inventory::submit! {
            $crate::suite::Tests {
                module: ::core::module_path!(),
                add: |suite| {
                    #[allow(unused_imports, reason = "a test may need nothing")]
                    use $crate::suite::Need::*;
                    for case in $cases {
                        let name = ::std::format!("{}: {case}", ::core::stringify!($name));
                        let run = move || $crate::suite::Ended::ended($name(case));
                        suite.$add(name, &[$($need),*], run);
                    }
                },
            }
        }
    };
    ($name:ident; serial $(, $need:expr)*) => { $crate::submit_test! { $name; true; $($need),* } };
    ($name:ident; $($need:expr),*) => { $crate::submit_test! { $name; false; $($need),* } };
    ($name:ident; $is_serial:literal; $($need:expr),*) => {
        $crate::inventory::submit! {
            $crate::suite::Test {
                module: ::core::module_path!(),
                name: ::core::stringify!($name),
                line: ::core::line!(),
                is_serial: $is_serial,
                needs: {
                    #[allow(unused_imports, reason = "a test may need nothing")]
                    use $crate::suite::Need::*;
                    &[$($need),*]
                },
                run: || $crate::suite::Ended::ended($name()),
            }
        }
    };
}

/// Registers a function that adds tests; the attribute [`crate::tests`] calls it.
#[macro_export]
macro_rules! submit_tests {
    ($name:ident;) => {
        $crate::inventory::submit! {
            $crate::suite::Tests { module: ::core::module_path!(), add: $name }
        }
    };
}

/// The tests of this program by module.
pub struct Suite {
    /// The module whose tests are being added.
    module: &'static str,
    parallel: Vec<Trial>,
    serial: Vec<Trial>,
    /// The requirements that were checked so far, with the cause if they are not met.
    lacking: BTreeMap<Need, Option<String>>,
    times: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Suite {
    /// Creates a suite of all tests in modules for whose paths in this program `is_in` returns true.
    fn of(is_in: impl Fn(&str) -> bool) -> Self {
        let mut suite = Self {
            module: "",
            parallel: Vec::new(),
            serial: Vec::new(),
            lacking: BTreeMap::new(),
            times: Arc::default(),
        };
        let mut tests: Vec<&Test> = inventory::iter::<Test>.into_iter().collect();
        // The soak tests take longest, so they start first.
        tests.sort_by_key(|test| (!test.module.ends_with("soak"), test.module, test.line));
        for test in tests.into_iter().filter(|test| is_in(within(test.module))) {
            suite.module = within(test.module);
            suite.add(test.is_serial, test.name, test.needs, test.run);
        }
        let mut lists: Vec<&Tests> = inventory::iter::<Tests>.into_iter().collect();
        lists.sort_by_key(|list| list.module);
        for list in lists.into_iter().filter(|list| is_in(within(list.module))) {
            suite.module = within(list.module);
            (list.add)(&mut suite);
        }
        suite
    }

    /// Adds a test that runs in parallel with others. It is skipped if one of its requirements is not met.
    pub fn test(
        &mut self,
        name: impl AsRef<str>,
        needs: &[Need],
        test: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        self.add(false, name.as_ref(), needs, test);
    }

    /// Adds a test that runs alone, because it measures time or uses something that the machine has only once.
    pub fn serial(
        &mut self,
        name: impl AsRef<str>,
        needs: &[Need],
        test: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        self.add(true, name.as_ref(), needs, test);
    }

    fn add(
        &mut self,
        is_serial: bool,
        name: &str,
        needs: &[Need],
        test: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        let name = format!("{}::{name}", self.module);
        let cause = needs.iter().find_map(|need| {
            let found = self.lacking.entry(*need);
            found.or_insert_with(|| need.lacking()).clone()
        });
        let listed = match &cause {
            None => name.clone(),
            Some(cause) => format!("{name} [skipped: {cause}]"),
        };
        let times = Arc::clone(&self.times);
        let run = move || {
            let begun = Instant::now();
            let ended = test();
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            times.push((name, begun.elapsed()));
            ended.map_err(|error| Failed::from(format!("{error:#}")))
        };
        let trials = if is_serial {
            &mut self.serial
        } else {
            &mut self.parallel
        };
        trials.push(Trial::test(listed, run).with_ignored_flag(cause.is_some()));
    }

    /// Adds an entry for something that is not tested, with the cause.
    pub fn skip(&mut self, cause: &str) {
        let name = format!("{}::[not run: {cause}]", self.module);
        self.parallel
            .push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }

    /// Runs the tests that the arguments select: first the parallel ones, and then the others one at a time. It prints
    /// the durations of the modules and of the slowest tests.
    fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(Some(AT_A_TIME));
        let parallel = libtest_mimic::run(&arguments, self.parallel);
        arguments.test_threads = Some(1);
        let serial = libtest_mimic::run(&arguments, self.serial);
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if !times.is_empty() {
            print_times(&times);
        }
        if parallel.has_failed() {
            return parallel.exit_code();
        }
        serial.exit_code()
    }
}

/// Returns the path of a module without the name of this program.
fn within(module: &'static str) -> &'static str {
    module.split_once("::").map_or("", |(_, path)| path)
}

/// Prints the duration of each suite over all its tests, which `scripts/test` reads, and the slowest tests.
fn print_times(times: &[(String, Duration)]) {
    let mut suites: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for (name, took) in times {
        let (tests, all) = suites.entry(suite_of(name)).or_default();
        *tests += 1;
        *all += *took;
    }
    println!("the tests of each suite, added up");
    for (suite, (tests, took)) in suites {
        println!("  {suite:<42} {tests:>5} {:>8.1}", took.as_secs_f64());
    }
    let mut slowest: Vec<_> = times.iter().collect();
    slowest.sort_by_key(|(_, took)| Reverse(*took));
    println!("\nthe slowest tests");
    for (name, took) in slowest.iter().take(SLOWEST) {
        println!("{:>8.1} {name}", took.as_secs_f64());
    }
}

impl Need {
    /// Returns the reason why this machine does not meet the requirement, if it does not.
    fn lacking(self) -> Option<String> {
        match self {
            Self::Tool(name) => {
                let found = which::which(name);
                found.is_err().then(|| format!("there is no {name} here"))
            }
            Self::Peer(name) => {
                let built = process::peer(name).is_file();
                (!built).then(|| format!("{name} is not built: make format-tools"))
            }
            Self::SoakTool(path) => {
                let fetched = process::soak_tool(path).is_file();
                (!fetched).then(|| format!("{path} is not fetched: make soak-tools"))
            }
            Self::FormatTool(path) => {
                let installed = process::format_tool(path).is_file();
                (!installed).then(|| format!("{path} is not installed: make format-tools"))
            }
            Self::PythonTool(path) => {
                let installed = process::python_tool(path).is_file();
                (!installed).then(|| format!("{path} is not installed: make test-tools"))
            }
            Self::Udpst => which::which("udpst").is_err().then(|| {
                "there is no udpst here: it has to be built from github.com/BroadbandForum/obudpst, no package registry has it".to_owned()
            }),
            Self::Namespaces => match Privilege::detect() {
                Privilege::Root | Privilege::UserNamespace => None,
                Privilege::None { why } => Some(format!("neither root nor user namespaces: {why}")),
            },
            Self::HostNetwork => Self::Namespaces
                .lacking()
                .or_else(|| Self::Tool("pasta").lacking())
                .or_else(|| {
                    let mut device = fs::File::options();
                    let opened = device.read(true).write(true).open("/dev/net/tun");
                    opened.err().map(|why| format!("/dev/net/tun: {why}"))
                }),
            Self::Podman => lacking_for_containers(&[
                "podman",
                "runc",
                "/usr/lib/podman/netavark",
                "iptables",
                "busybox",
                "ip",
                "ping",
            ]),
            Self::Docker => lacking_for_containers(&[
                "dockerd",
                "docker",
                "containerd",
                "runc",
                "iptables",
                "busybox",
                "ip",
                "ping",
            ]),
            Self::OrdinaryUser => {
                let mut exec = powerless::farwire_of_ordinary_user();
                let tried = process::succeeds(exec.args(["exec", "--", "true"]));
                let why = |why| format!("an ordinary user cannot run `farwire exec`: {why:#}");
                tried.err().map(why)
            }
            Self::Font => try_png().err().map(|why| format!("{why:#}")),
            Self::DefaultRoute => match DefaultRoutes::here() {
                Ok(routes) if routes.v4 || routes.v6 => None,
                Ok(_) => Some("this machine has no default route".to_owned()),
                Err(why) => Some(why.to_string()),
            },
            Self::Root => {
                // Few users are mapped in a user namespace.
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
            Self::Ingress => try_ingress_drop().err().map(|why| format!("{why:#}")),
            Self::TunnelGso => try_tunnels().err().map(|why| format!("{why:#}")),
            Self::All => (!crate::is_all()).then(|| "only with make test-all".to_owned()),
            Self::Soak => (!crate::is_soak()).then(|| "only with FARWIRE_SOAK=1".to_owned()),
        }
    }
}

/// Returns the reason why this machine cannot run containers with these programs and insert links at them, if it cannot.
fn lacking_for_containers(tools: &[&'static str]) -> Option<String> {
    let rights = [Need::Root, Need::Ingress, Need::Device("bridge")];
    let mut needs = rights
        .into_iter()
        .chain(tools.iter().copied().map(Need::Tool));
    needs.find_map(Need::lacking)
}

fn try_ingress_drop() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    bed.client().run(|| IngressDrop::new(&[WAN]))??;
    Ok(())
}

fn try_tunnels() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let slots = RingSlots {
        small: 512,
        large: 60,
    };
    bed.emulator().run(|| -> Result<()> {
        AfPacket::open(CLIENT_PORT, slots)?.take_tunnels(CLIENT_PORT)?;
        Ok(())
    })?
}

/// A bridge that filters VLANs, as a kind of interface.
const VLAN_BRIDGE: &str = "bridge vlan_filtering 1";

/// Tries to write the drawings of a record as PNG files.
fn try_png() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut report = process::farwire();
    report.arg("report");
    report.arg(process::root().join("tests/fixtures/records/small.jsonl"));
    process::succeeds(report.arg("--png").arg("--figures").arg(folder.path()))?;
    Ok(())
}

/// Tries to create an interface of this kind on a test bed.
fn try_device(kind: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let options = match kind {
        "vxlan" => "id 1 dev wan dstport 4789",
        "bridge" | VLAN_BRIDGE | "dummy" => "",
        _ => "local 10.77.0.1 remote 10.77.0.2",
    };
    process::ip(
        bed.client(),
        &format!("link add probe type {kind} {options}"),
    )
    .map(drop)
}
