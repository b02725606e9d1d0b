//! `farwire serve`: the far end, until a signal.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use anyhow::Result;
use clap::Args;

use crate::fault::bad_input;
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

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// A port in use, an address that is not this machine's, an unknown congestion control: bad input.
pub(crate) fn run(args: &ServeArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let config = ServeConfig {
        bind: (args.bind, args.http_port).into(),
        congestion: args.congestion.clone(),
    };
    let server = serve::start(&config).map_err(bad_input)?;
    eprintln!(
        "farwire serves http://{} with {}",
        server.address(),
        server.congestion()
    );
    while stop.cause().is_none() {
        thread::sleep(STOP_INTERVAL);
    }
    Ok(0)
}
