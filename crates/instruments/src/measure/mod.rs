//! The kinds of instruments, and their arguments on the command line, in a scenario and in a plan.

mod scenario;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::failure::{Blame, Failure};
pub use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput};
pub use scenario::{Kind, OptionText, Parameters, read_plan, record_plan};

/// The one list of kinds: a variant, its name and its arguments each.
macro_rules! kinds {
    ($($kind:ident $name:literal $arguments:ty,)*) => {
        /// One kind of instrument with its arguments.
        #[derive(Clone, Debug, Subcommand, Serialize, Deserialize)]
        #[serde(tag = "kind", content = "arguments")]
        #[allow(missing_docs, reason = "clap would show them in place of those of the arguments")]
        pub enum InstrumentArgs {
            $(#[command(name = $name)] #[serde(rename = $name)] $kind($arguments),)*
        }

        /// As `farwire measure`, scenarios and records call the kinds.
        const NAMES: &[&str] = &[$($name),*];

        impl InstrumentArgs {
            /// The instrument that was asked for.
            pub fn instrument(&self) -> &dyn Instrument {
                match self {
                    $(Self::$kind(arguments) => arguments,)*
                }
            }

            /// Measures, and keeps the figures that the instrument's table of metrics has.
            ///
            /// # Errors
            /// As [`Instrument::measure`].
            pub fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
                let instrument = self.instrument();
                let metrics = instrument.metrics().or_bad_input()?;
                let mut output = instrument.measure(session)?;
                output.measurement.figures.retain(|figure| {
                    let is_declared = metrics.has(figure);
                    debug_assert!(is_declared, "not in the table of metrics: {figure:?}");
                    is_declared
                });
                Ok(output)
            }

            fn instrument_mut(&mut self) -> &mut dyn Instrument {
                match self {
                    $(Self::$kind(arguments) => arguments,)*
                }
            }
        }
    };
}

kinds! {
    Ping "ping" crate::ping::args::PingArgs,
    Connect "connect" crate::connect::ConnectArgs,
    Http "http" crate::http::args::HttpArgs,
    Capacity "capacity" crate::capacity::CapacityArgs,
    Pingpong "pingpong" crate::messages::pingpong::PingpongArgs,
    Blast "blast" crate::messages::blast::BlastArgs,
    Transfer "transfer" crate::messages::transfer::TransferArgs,
    Tcp "tcp" crate::iperf3::args::TcpArgs,
    Probe "probe" crate::stamp::args::ProbeArgs,
    Udp "udp" crate::iperf3::udp::args::UdpArgs,
}
