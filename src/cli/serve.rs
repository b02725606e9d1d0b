//! `farwire serve`: the far end, until a signal.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use ipnet::IpNet;
use model::Nanos;

use super::args::api_server::{TOKEN, token};
use crate::notes::log;
use crate::service_manager;
use crate::web::{Access, Listen, Listening, WebServer};
use instruments::capacity::wire::CONTROL_PORT;
use instruments::endpoint::Local;
use instruments::failure::{Blame, Failure};
use instruments::messages::wire::DEFAULT_PORT;
use instruments::serve;
use instruments::serve::{Log, ServeConfig, ServiceLimits, ServicePorts};
use netio::heap;
use netio::public_address::{is_public, public_addresses};
use netio::sandbox::{self, OtherUser, Threads};
use netio::stop::STOP_INTERVAL;
use netio::stop::Stop;

/// How often what has been freed is given back.
const TIDIED_EVERY: Duration = Duration::from_secs(5);

/// Serve as the far end of every instrument, for many clients at once
///
/// Each test is a line on standard output when it ends. A port of 0 takes a free one; where it listens is said at
/// the start.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Listen on this address, or this interface, only
    #[arg(long, value_name = "ADDR|IF")]
    bind: Option<Local>,
    /// TCP port of HTTP: GET /bytes/N, GET /seconds/T
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    http_port: u16,
    /// TCP port of pingpong, blast and transfer, and UDP port of pingpong
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    messages_port: u16,
    /// TCP and UDP port of iperf3's protocol
    #[arg(long, value_name = "PORT", default_value_t = 5201)]
    iperf3_port: u16,
    /// UDP port of the UDP Speed Test Protocol (measure capacity, obudpst)
    #[arg(long, value_name = "PORT", default_value_t = CONTROL_PORT)]
    capacity_port: u16,
    /// UDP port of STAMP; without the privilege to use 862, it is 8620
    #[arg(long, value_name = "PORT", default_value_t = 862)]
    stamp_port: u16,
    /// TCP congestion control of what is sent, where the client does not choose [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Take tests from this network only; may be given several times
    #[arg(long, value_name = "CIDR")]
    allow: Vec<IpNet>,
    /// Tests at a time, of all protocols together
    #[arg(long, value_name = "COUNT", default_value_t = ServiceLimits::USUAL.tests as u64,
        value_parser = clap::value_parser!(u64).range(1..))]
    max_tests: u64,
    /// Those among them of one client, an IPv4 address or an IPv6 /64, which may also have no more than this part of all
    /// connections and memory [default: a quarter]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    max_tests_per_client: Option<u64>,
    /// How long one test may last
    #[arg(long, value_name = "TIME", default_value_t = ServiceLimits::USUAL.duration.into())]
    max_duration: Nanos,
    /// After which silence a client is taken to be gone
    #[arg(long, value_name = "TIME", default_value_t = ServiceLimits::USUAL.idle.into())]
    idle_timeout: Nanos,
    /// Append each test to this file as a line of JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Serve counts of tests, bytes and refusals at http://ADDR:PORT/metrics, for Prometheus
    ///
    /// A loopback address needs no token. Any other address requires the token of FARWIRE_TOKEN and uses TLS.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// As root, go on as this user once all ports are bound; root stays root [default: nobody]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Keep the user, all privileges, files and system calls: for debugging, and for measuring what giving them up costs
    #[arg(long, conflicts_with = "user")]
    no_sandbox: bool,
}

impl ServeArgs {
    /// Serves until SIGINT or SIGTERM; a port in use, an address that is not this machine's, an unknown congestion
    /// control and an unknown user are bad input.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        heap::give_back_freed_blocks();
        let stop = Stop::on_signals()?;
        serve::raise_descriptor_limit();
        let user = self.other_user()?;
        // The log is opened by who runs this, and the sockets are the new user's: those that share a port must be one user's.
        let config = self.config()?;
        let metrics = self.metrics_socket().or_bad_input()?;
        if let Some(user) = &user {
            user.become_it().or_machine()?;
        }
        let bound = serve::bind(config).or_bad_input()?;
        let open_to_strangers = self.open_to_strangers();
        // From here on nobody is refused; telling so takes a socket that the far end may not make any more once it is confined.
        service_manager::ready("takes tests");
        if self.no_sandbox {
            log("farwire keeps its privileges (--no-sandbox)");
        } else {
            let in_force = sandbox::confine_far_end(bound.needs(), Threads::All).or_machine()?;
            let user = user.map_or_else(String::new, |user| format!("as user {}, ", user.name));
            log(format_args!("farwire is confined: {user}{in_force}"));
        }
        let server = bound.start()?;
        for service in server.services() {
            log(format_args!(
                "farwire serves {} on {}",
                service.name, service.address
            ));
        }
        if let Some(listening) = &metrics {
            let pin = listening.pin();
            let pin = pin.map_or_else(String::new, |pin| format!(", certificate {pin}"));
            log(format_args!(
                "farwire exports metrics at {listening}metrics{pin}"
            ));
        }
        let counts = server.counts();
        let metrics = metrics.map(|listening| WebServer::of_far_end(listening, counts));
        let _metrics = metrics.transpose()?;
        if let Some(address) = open_to_strangers {
            log(format_args!(
                "warning: {address} is a public address, and everyone may test: --allow CIDR names who may"
            ));
        }
        log(format_args!(
            "farwire sends TCP with {}",
            server.congestion()
        ));
        let mut tidied = Instant::now();
        while stop.cause().is_none() {
            thread::sleep(STOP_INTERVAL);
            server.log_refusals();
            if tidied.elapsed() > TIDIED_EVERY {
                tidied = Instant::now();
                heap::give_back_free_pages();
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Opens the socket of the metrics, while this still may.
    fn metrics_socket(&self) -> anyhow::Result<Option<Listening>> {
        let open = |address: SocketAddr| {
            let access = Access::new(token(None, TOKEN)?.as_deref(), None)?;
            ensure!(
                address.ip().is_loopback() || access.is_guarded(),
                "--metrics {address}: an address beyond loopback requires a token: give it in {TOKEN}"
            );
            Listen::Tcp(address).open(access, None).context("--metrics")
        };
        self.metrics.map(open).transpose()
    }

    /// A public address that is served without a limit to whom.
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

    /// Whom to go on as, if not as who runs this.
    fn other_user(&self) -> Result<Option<OtherUser>, Failure> {
        match &self.user {
            _ if self.no_sandbox => Ok(None),
            Some(name) => OtherUser::named(name).or_bad_input(),
            None => Ok(OtherUser::nobody()),
        }
    }

    fn config(&self) -> Result<ServeConfig, Failure> {
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        let tests = count(self.max_tests);
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
            log: Log::open(self.json.as_deref()).or_bad_input()?,
        })
    }
}
