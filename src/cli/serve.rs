//! `farwire serve`: the far end of measurements, until a signal ends it.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use ipnet::IpNet;
use model::Nanos;

use super::args::api_server::{TOKEN, token};
use super::args::{headings, screen};
use crate::far_end::{ProgressLines, WatchedFarEnd};
use crate::notes::{self, log};
use crate::peer_names::ClientNames;
use crate::service_manager;
use crate::tui::{self, FarEndScreen, Screen, ScreenLog, ShownTerminal};
use crate::web::{Access, Listen, Listening, WebServer};
use instruments::capacity::wire::CONTROL_PORT;
use instruments::endpoint::Local;
use instruments::failure::{Blame, Failure};
use instruments::messages::wire::DEFAULT_PORT;
use instruments::output;
use instruments::serve;
use instruments::serve::{
    BoundServer, FarEndServer, Log, PeerNames, ServeConfig, ServiceLimits, ServicePorts,
};
use netio::heap::{self, FREE_PAGES_INTERVAL};
use netio::public_address::{is_public, public_addresses};
use netio::sandbox::{self, OtherUser, Threads};
use netio::stop::STOP_INTERVAL;
use netio::stop::Stop;

/// The advice for a terminal that cannot show the screen.
const ROWS_AS_JSON: &str =
    "read the running tests as JSON from /v1/tests of --metrics 127.0.0.1:9100";

/// Serve as the far end of every instrument, for many clients simultaneously
///
/// serve prints its addresses at startup, and a line for each test when the test ends. On a terminal, it also prints a line when a test
/// begins, and one every second while the test runs. For a port of 0, it uses any free port. As root, serve changes to the user nobody, and gives up all
/// privileges, files and system calls that it does not need.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Listen only on this address or interface
    #[arg(long, value_name = "ADDR|IF")]
    bind: Option<Local>,
    /// TCP port of HTTP (measure http): GET /bytes/N, GET /seconds/T
    #[arg(long, value_name = "PORT", default_value_t = 8080, help_heading = PORTS_HEADING, hide_short_help = true)]
    http_port: u16,
    /// TCP and UDP port of measure pingpong, blast and transfer
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, help_heading = PORTS_HEADING, hide_short_help = true)]
    messages_port: u16,
    /// TCP and UDP port of iperf3's protocol (measure tcp, measure udp, iperf3)
    #[arg(long, value_name = "PORT", default_value_t = 5201, help_heading = PORTS_HEADING, hide_short_help = true)]
    iperf3_port: u16,
    /// UDP port of the UDP Speed Test Protocol (measure capacity, obudpst)
    #[arg(long, value_name = "PORT", default_value_t = CONTROL_PORT, help_heading = PORTS_HEADING, hide_short_help = true)]
    capacity_port: u16,
    /// UDP port of STAMP (measure probe); without the privilege for 862, serve uses 8620
    #[arg(long, value_name = "PORT", default_value_t = 862, help_heading = PORTS_HEADING, hide_short_help = true)]
    stamp_port: u16,
    /// TCP congestion control for data that serve sends, unless the client chooses [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Accept tests only from this network (repeatable) [default: any]
    #[arg(long, value_name = "CIDR")]
    allow: Vec<IpNet>,
    /// Maximum number of simultaneous tests
    #[arg(long, value_name = "COUNT", default_value_t = ServiceLimits::USUAL.tests as u64,
        value_parser = clap::value_parser!(u64).range(1..), help_heading = LIMITS_HEADING)]
    max_tests: u64,
    /// Maximum number of simultaneous tests of one client [default: a quarter of --max-tests]
    ///
    /// Maximum number of simultaneous tests of one client, an IPv4 address or an IPv6 /64. Connections and memory of one client are
    /// limited to the same share [default: a quarter of --max-tests]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), help_heading = LIMITS_HEADING)]
    max_tests_per_client: Option<u64>,
    /// Maximum duration of a test
    #[arg(long, value_name = "TIME", default_value_t = ServiceLimits::USUAL.duration.into(), help_heading = LIMITS_HEADING)]
    max_duration: Nanos,
    /// Disconnect a client after this much silence
    #[arg(long, value_name = "TIME", default_value_t = ServiceLimits::USUAL.idle.into(), help_heading = LIMITS_HEADING)]
    idle_timeout: Nanos,
    /// Append each test to FILE as a line of JSON (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
    /// Print lines about running tests even if the output is not a terminal
    #[arg(long, conflicts_with = "tui", help_heading = headings::OUTPUT)]
    progress: bool,
    /// Look up the names of clients, and add them to the log
    ///
    /// Look up the names of clients with the system's name services, and add them to the log, to --tui and to the JSON. Whoever controls
    /// the reverse DNS of an address chooses its name, so do not rely on it. A name that is not known when a test ends is left out
    #[arg(long, help_heading = headings::OUTPUT)]
    names: bool,
    /// Export counters for Prometheus at http://ADDR:PORT/metrics
    ///
    /// Export counters of tests, bytes and refusals for Prometheus at http://ADDR:PORT/metrics, and the running tests as JSON at
    /// /v1/tests. A loopback address needs no token. Any other address uses TLS, and requires the token in FARWIRE_TOKEN
    #[arg(long, value_name = "ADDR:PORT", help_heading = headings::OUTPUT)]
    metrics: Option<SocketAddr>,
    /// Show the running tests on this terminal; a key resets the counters
    #[arg(long, help_heading = headings::LIVE)]
    tui: bool,
    /// As root, change to this user once all ports are open; `root` keeps root [default: nobody]
    #[arg(long, value_name = "NAME", help_heading = SANDBOX_HEADING, hide_short_help = true)]
    user: Option<String>,
    /// Keep the user and all privileges, for debugging
    #[arg(long, conflicts_with = "user", help_heading = SANDBOX_HEADING, hide_short_help = true)]
    no_sandbox: bool,
}

/// Headings of the options in help.
const PORTS_HEADING: &str = "Ports";
const LIMITS_HEADING: &str = "Limits";
const SANDBOX_HEADING: &str = "Privileges";

impl ServeArgs {
    /// Serves until SIGINT or SIGTERM. A port in use, an address that is not this machine's, an unknown congestion control and an
    /// unknown user are bad input.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        heap::give_back_freed_blocks();
        let stop = Stop::on_signals()?;
        serve::raise_descriptor_limit();
        self.check_terminal().or_bad_input()?;
        let user = self.other_user()?;
        let screen_log = self.tui.then(ScreenLog::default);
        // The user who runs serve opens the log, and the new user opens the sockets, because sockets that share a port must belong to one user.
        let mut config = self.config(screen_log.clone())?;
        let metrics = self.metrics_socket().or_bad_input()?;
        if let Some(user) = &user {
            user.become_it().or_machine()?;
        }
        let names = self.names.then(ClientNames::start).transpose();
        let names = names.or_machine()?;
        config.names = names.clone().map(|names| names as Arc<dyn PeerNames>);
        let bound = serve::bind(config).or_bad_input()?;
        let open_to_strangers = self.open_to_strangers();
        // From here on no test is refused. Reporting that needs a socket, which a confined process cannot create.
        service_manager::ready("accepting tests");
        // Setting up the terminal needs more privileges than drawing does.
        let terminal = self.tui.then(ShownTerminal::set_up).transpose()?;
        self.confine(&bound, user.as_ref())?;
        let server = bound.start()?;
        if let Some(names) = &names {
            names.listen()?;
        }
        let names = names.map(|names| names as Arc<dyn PeerNames>);
        let far_end = WatchedFarEnd::of(&server, names);
        let services = server.services().iter();
        let services = services.map(|service| format!("{} on {}", service.name, service.address));
        let services: Vec<String> = services.collect();
        for service in &services {
            log(format_args!("farwire serves {service}"));
        }
        let _metrics = metrics
            .map(|listening| serve_metrics(listening, far_end.clone()))
            .transpose()?;
        if let Some(address) = open_to_strangers {
            log(format_args!(
                "warning: {address} is a public address, and anyone can run tests against it: restrict that with --allow CIDR"
            ));
        }
        log(format_args!(
            "farwire sends TCP with congestion control {}",
            server.congestion()
        ));
        let screen = terminal.zip(screen_log).map(|(terminal, log)| {
            let content = FarEndScreen::new(far_end.clone(), &services, log);
            Screen::of_far_end(terminal, content, screen::end)
        });
        let _screen = screen.transpose()?;
        let progress = self.shows_progress().then(|| ProgressLines::about(far_end));
        until_stopped(&server, &stop, progress);
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses `--tui` where it cannot show anything.
    fn check_terminal(&self) -> anyhow::Result<()> {
        if !self.tui {
            return Ok(());
        }
        ensure!(
            !self.json.as_deref().is_some_and(output::is_stdout),
            "--json -: --tui needs standard output for its screen: name a file"
        );
        tui::check(ROWS_AS_JSON)
    }

    /// Gives up what serving does not need. No thread may run yet.
    fn confine(&self, bound: &BoundServer, user: Option<&OtherUser>) -> Result<(), Failure> {
        if self.no_sandbox {
            log("farwire keeps all privileges (--no-sandbox)");
            return Ok(());
        }
        let needs = bound.needs();
        let in_force = if self.tui {
            sandbox::confine_far_end_on_terminal(needs, Threads::All)
        } else {
            sandbox::confine_far_end(needs, Threads::All)
        };
        let in_force = in_force.or_machine()?;
        let user = user.map_or_else(String::new, |user| format!("as user {}, ", user.name));
        log(format_args!("farwire is confined: {user}{in_force}"));
        Ok(())
    }

    /// True if people get lines about running tests: on a terminal, or if they ask for them.
    fn shows_progress(&self) -> bool {
        if self.tui || self.progress {
            return self.progress;
        }
        let is_terminal = match self.json.as_deref() {
            Some(file) if output::is_stdout(file) => io::stderr().is_terminal(),
            _ => io::stdout().is_terminal(),
        };
        is_terminal && !notes::are_quiet()
    }

    /// Opens the socket of the metrics, before the privileges for that are given up.
    fn metrics_socket(&self) -> anyhow::Result<Option<Listening>> {
        let open = |address: SocketAddr| {
            let access = Access::new(token(None, TOKEN)?.as_deref(), None)?;
            ensure!(
                address.ip().is_loopback() || access.is_guarded(),
                "--metrics {address}: a non-loopback address requires a token: set {TOKEN}"
            );
            Listen::Tcp(address).open("--metrics", access, None)
        };
        self.metrics.map(open).transpose()
    }

    /// Returns a public address at which any client is served.
    fn open_to_strangers(&self) -> Option<IpAddr> {
        if !self.allow.is_empty() {
            return None;
        }
        let served = match &self.bind {
            Some(Local::Address(address)) if !address.is_unspecified() => vec![*address],
            Some(Local::Interface(name)) => public_addresses(Some(name)),
            _ => public_addresses(None),
        };
        served.into_iter().find(|address| is_public(*address))
    }

    /// Returns the user to change to, if there is one.
    fn other_user(&self) -> Result<Option<OtherUser>, Failure> {
        match &self.user {
            _ if self.no_sandbox => Ok(None),
            Some(name) => OtherUser::named(name).or_bad_input(),
            None => Ok(OtherUser::nobody()),
        }
    }

    /// Returns the configuration of the far end. Its log goes to `screen` if there is one.
    fn config(&self, screen: Option<ScreenLog>) -> Result<ServeConfig, Failure> {
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        let tests = count(self.max_tests);
        let json = self.json.as_deref();
        let log = match screen {
            None => Log::open(json),
            Some(screen) => Log::beside_screen(json, screen),
        };
        Ok(ServeConfig {
            bind: self.bind.clone(),
            ports: ServicePorts {
                http: self.http_port,
                messages: self.messages_port,
                iperf3: self.iperf3_port,
                capacity: self.capacity_port,
                stamp: self.stamp_port,
            },
            congestion: self.congestion.clone(),
            limits: ServiceLimits {
                tests,
                tests_per_source: self.max_tests_per_client.map_or(tests.div_ceil(4), count),
                duration: self.max_duration.into(),
                idle: self.idle_timeout.into(),
                ..ServiceLimits::default()
            },
            allow: self.allow.clone(),
            log: log.or_bad_input()?,
            names: None,
        })
    }
}

/// Serves the metrics, and prints their address.
fn serve_metrics(listening: Listening, far_end: WatchedFarEnd) -> anyhow::Result<WebServer> {
    let pin = listening.pin();
    let pin = pin.map_or_else(String::new, |pin| format!(", certificate {pin}"));
    log(format_args!(
        "farwire exports metrics at {listening}metrics{pin}"
    ));
    WebServer::of_far_end(listening, far_end)
}

/// Waits for a cause to stop. Meanwhile, it prints what is due, and returns free memory.
fn until_stopped(server: &FarEndServer, stop: &Stop, mut progress: Option<ProgressLines>) {
    let mut tidied = Instant::now();
    while stop.cause().is_none() {
        thread::sleep(STOP_INTERVAL);
        server.log_refusals();
        for line in progress.iter_mut().flat_map(ProgressLines::due) {
            server.print_progress(&line);
        }
        if tidied.elapsed() > FREE_PAGES_INTERVAL {
            tidied = Instant::now();
            heap::give_back_free_pages();
        }
    }
}
