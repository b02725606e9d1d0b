//! `farwire serve`: the far end, until a signal.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::thread;

use clap::Args;

use crate::exit::{Blame, Failure};
use crate::instrument::Stop;
use crate::instrument::stop::STOP_INTERVAL;
use crate::serve::{self, ServeConfig};

/// Serve as the far end of instruments, for many clients at once
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The address to listen on; 0.0.0.0 and :: are all addresses
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port of HTTP: GET /bytes/N, GET /seconds/T
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    http_port: u16,
    /// TCP congestion control of what is sent [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
}

impl ServeArgs {
    /// Serves until SIGINT or SIGTERM; a port in use, an address that is not this machine's and an unknown congestion
    /// control are bad input.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let stop = Stop::on_signals()?;
        let config = ServeConfig {
            bind: (self.bind, self.http_port).into(),
            congestion: self.congestion.clone(),
        };
        let server = serve::start(&config).or_bad_input()?;
        eprintln!(
            "farwire serves http://{} with {}",
            server.address(),
            server.congestion()
        );
        while stop.cause().is_none() {
            thread::sleep(STOP_INTERVAL);
        }
        Ok(ExitCode::SUCCESS)
    }
}
