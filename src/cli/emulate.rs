//! `farwire emulate`: a transparent box between two interfaces.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use model::BitsPerSec;
use netio::iface::Interface;

use super::ForwarderArgs;
use super::link::LinkArgs;
use crate::emulate::WanBox;
use crate::notes::note;
use instruments::failure::{Blame, Failure};
use instruments::output::write_json;

/// Put an emulated link between two Ethernet interfaces, until a signal ends it
///
/// Whatever arrives at IF_A leaves by IF_B ("up") and the other way round ("down"): any EtherType, VLAN tags, jumbo
/// frames; no address is touched. The host's own stack sees nothing of it. What is changed on the interfaces is put
/// back at the end; after a kill, by the next start. When one interface loses its carrier the other is lowered until
/// it returns, unless that one has addresses (other than link-local ones) or routes, which it would lose. Needs CAP_NET_ADMIN and CAP_NET_RAW.
#[derive(Args, Debug)]
pub(crate) struct EmulateArgs {
    /// The client's side
    #[arg(value_name = "IF_A")]
    a: String,
    /// The server's side
    #[arg(value_name = "IF_B")]
    b: String,
    #[command(flatten)]
    link: LinkArgs,
    /// Take an interface even if the default route leads out of it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    forwarder: ForwarderArgs,
    /// At the end, write what the link did as JSON to FILE (- is standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl EmulateArgs {
    /// What the interfaces' cables carry; one that is not there is told when it is taken.
    fn speeds(&self) -> impl Iterator<Item = BitsPerSec> {
        let found = [&self.a, &self.b].map(|name| Interface::find(name));
        found.into_iter().flatten().filter_map(|of| of.speed())
    }

    /// Runs the box until a signal ends it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        super::link::warn(&link.config);
        super::link::warn_of_host(&link.config, self.speeds());
        let in_force = super::link::in_force(&spec)?;
        let options = self.forwarder.options()?;
        let wan_box = WanBox::up([&self.a, &self.b], self.force, link, options)?;
        note(format_args!(
            "farwire: {} <-> {} behind {}, until a signal",
            self.a, self.b, in_force
        ));
        let summary = wan_box.run()?;
        note(format_args!("farwire: {summary}"));
        if let Some(file) = &self.json {
            write_json(file, &summary)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
