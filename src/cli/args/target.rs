//! The options that name something that runs and gets a link: `--pid`, `--netns`, `--container`, `--label`, `--service`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::emulate::attach::Target;
use instruments::failure::Failure;

/// The heading of these options.
const HEADING: &str = "Containers and processes";

/// The label that Compose gives each container with the name of its service.
const SERVICE: &str = "com.docker.compose.service";

/// The options that name something with its own network.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("target").conflicts_with_all(["a", "b", "links"]))]
pub(crate) struct TargetArgs {
    /// Insert the link at the network of this process, whose veth pair must end at a bridge
    #[arg(long, value_name = "PID", group = "target", help_heading = HEADING)]
    pid: Option<u32>,
    /// Insert the link at this network namespace, such as /run/netns/NAME
    #[arg(long, value_name = "PATH", group = "target", help_heading = HEADING)]
    netns: Option<PathBuf>,
    /// Insert the link at this running container of Podman or Docker
    #[arg(long, value_name = "NAME", group = "target", help_heading = HEADING)]
    container: Option<String>,
    /// Insert a link at each running container of Podman or Docker with this label
    #[arg(long, value_name = "KEY=VALUE", group = "target", help_heading = HEADING)]
    label: Option<String>,
    /// Insert a link at each running container of this service of Compose
    #[arg(long, value_name = "NAME", group = "target", help_heading = HEADING)]
    service: Option<String>,
    /// Insert a link only at this network, or at this interface inside, such as eth0 [default: at each]
    #[arg(long, value_name = "NAME", requires = "target", help_heading = HEADING)]
    network: Option<String>,
}

impl TargetArgs {
    /// Returns what is named, if anything is.
    ///
    /// # Errors
    /// A process number is 0.
    pub(crate) fn target(&self) -> Result<Option<Target>, Failure> {
        if self.pid == Some(0) {
            return Err(Failure::bad_input("--pid 0: no process has this ID"));
        }
        let process = self.pid.map(Target::Process);
        let namespace = || self.netns.clone().map(Target::Namespace);
        let container = || self.container.clone().map(Target::Container);
        let label = || self.label.clone().map(Target::Label);
        let service = || {
            let service = self.service.as_ref();
            service.map(|name| Target::Label(format!("{SERVICE}={name}")))
        };
        let named = process.or_else(namespace).or_else(container);
        Ok(named.or_else(label).or_else(service))
    }

    /// Returns the name of the only network, or of the only interface inside, that gets a link.
    pub(crate) fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }
}
