//! `--net host` and the ports that go with it.

use clap::{Args, ValueEnum};

use crate::host_network::{HostNetwork, Published};
use instruments::failure::Failure;

/// The heading of the options of exec's test bed.
const HEADING: &str = "Test bed";

/// The options for the network that the command reaches.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostNetworkArgs {
    /// With `host`, the command also reaches this host's network (needs pasta)
    #[arg(
        long,
        value_name = "NETWORK",
        help_heading = HEADING,
        hide_possible_values = true
    )]
    net: Option<Network>,
    /// Forward this TCP port of the command's localhost to the host's localhost
    #[arg(
        long,
        value_name = "PORT",
        requires = "net",
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = HEADING,
        hide_short_help = true
    )]
    host_port: Vec<u16>,
    #[arg(
        help = "Publish the command's TCP port: [ADDRESS:]HOST_PORT:[localhost:]PORT",
        short = 'p',
        long = "publish",
        value_name = "PORTS",
        requires = "net",
        help_heading = HEADING,
        hide_short_help = true
    )]
    publish: Vec<Published>,
}

/// A network beyond the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Network {
    /// The network of this machine, as the user's programs reach it
    Host,
}

impl HostNetworkArgs {
    /// Prepares the host's network if it is asked for; see [`HostNetwork::prepare`].
    ///
    /// # Errors
    /// Those of [`HostNetwork::prepare`].
    pub(crate) fn prepare(&self) -> Result<Option<HostNetwork>, Failure> {
        let prepare = |Network::Host| HostNetwork::prepare(&self.host_port, &self.publish);
        self.net.map(prepare).transpose()
    }
}
