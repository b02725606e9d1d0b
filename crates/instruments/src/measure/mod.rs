//! The kinds of instruments and their arguments, as the command line, a scenario and a plan have them.

mod scenario;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::failure::Failure;
pub use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput};
pub use scenario::{Kind, OptionText, Parameters, read_plan, record_plan};

/// Defines the list of kinds: a variant, its name and the type of its arguments for each.
macro_rules! kinds {
    ($($kind:ident $name:literal $arguments:ty,)*) => {
        /// An instrument of one kind with its arguments.
        #[derive(Clone, Debug, Subcommand, Serialize, Deserialize)]
        #[serde(tag = "kind", content = "arguments")]
        #[allow(missing_docs, reason = "clap would show them in place of those of the arguments")]
        pub enum InstrumentArgs {
            $(#[command(name = $name)] #[serde(rename = $name)] $kind($arguments),)*
        }

        /// The names of the kinds in `farwire measure`, in scenarios and in records.
        const NAMES: &[&str] = &[$($name),*];

        impl InstrumentArgs {
            /// Returns the instrument.
            pub fn instrument(&self) -> &dyn Instrument {
                match self {
                    $(Self::$kind(arguments) => arguments,)*
                }
            }

            /// Returns the arguments that all instruments take.
            pub fn common(&self) -> &CommonArgs {
                match self {
                    $(Self::$kind(arguments) => &arguments.common,)*
                }
            }

            /// Measures.
            ///
            /// # Errors
            /// Returns the failures of [`Instrument::measure`].
            pub fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
                self.instrument().measure(session)
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
    Tls "tls" crate::tls::TlsArgs,
    Http "http" crate::http::args::HttpArgs,
    Quality "quality" crate::quality::args::QualityArgs,
    Capacity "capacity" crate::capacity::CapacityArgs,
    Pingpong "pingpong" crate::messages::pingpong::PingpongArgs,
    Blast "blast" crate::messages::blast::BlastArgs,
    Transfer "transfer" crate::messages::transfer::TransferArgs,
    Tcp "tcp" crate::iperf3::args::TcpArgs,
    Probe "probe" crate::stamp::args::ProbeArgs,
    Udp "udp" crate::iperf3::udp::args::UdpArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig};
    use clap::{Command, FromArgMatches as _};
    use netio::stop::Stop;

    #[test]
    fn the_documentation_has_every_table_of_metrics() {
        let documented = include_str!("../../../../docs/instruments.md");
        let row = |kind: Kind| {
            let args = kind.with(&Parameters::default()).unwrap();
            let metrics = args.instrument().metrics().unwrap().in_words();
            format!("| `{}` | {metrics} |", kind.name())
        };
        let rows = Kind::all().map(row);
        let missing: Vec<String> = rows.filter(|row| !documented.contains(row)).collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn every_measured_figure_is_in_the_table_and_the_first_headline_is_measured() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = |service: &str| server.address(service).unwrap();
        let port = |service: &str| format!("--port={}", address(service).port());
        let [http, messages] = ["http", "messages"].map(|service| address(service).to_string());
        let (url, host) = (format!("http://{http}/bytes/100000"), "127.0.0.1");
        let [iperf3, capacity, stamp] = ["iperf3", "capacity", "stamp"].map(port);
        let kinds = [
            vec!["ping", "--count=2", "--interval=10ms", host],
            vec!["connect", "--count=2", "--interval=10ms", &http],
            vec!["http", &url],
            vec!["capacity", "--time=1s", &capacity, host],
            vec!["pingpong", "--count=3", "--runs=1", &messages],
            vec!["pingpong", "--count=3", "--runs=1", "--udp", &messages],
            vec!["blast", "--count=3", "--runs=1", &messages],
            vec!["transfer", "--bytes=100kb", "--runs=1", &messages],
            vec!["tcp", "--bytes=1M", "--bidir", &iperf3, host],
            vec!["probe", "--count=10", "--interval=1ms", &stamp, host],
            vec![
                "probe",
                "--count=10",
                "--train=5",
                "--size=112",
                &stamp,
                host,
            ],
            vec!["udp", "--bytes=100K", &iperf3, host],
        ];
        for line in kinds {
            let all = InstrumentArgs::augment_subcommands(Command::new("farwire"));
            let words = std::iter::once(&"farwire").chain(&line);
            let matches = all.try_get_matches_from(words).unwrap();
            let args = InstrumentArgs::from_arg_matches(&matches).unwrap();
            let session = Session::quiet(Stop::default());
            let output = match args.measure(&session) {
                // This machine allows this process no ICMP socket.
                Err(failure) if line[0] == "ping" && failure.code() == 3 => continue,
                output => output.unwrap_or_else(|failure| panic!("{line:?}: {failure}")),
            };
            let measurement = output.measurement;
            assert_eq!(measurement.failure, None, "{line:?}");
            let metrics = args.instrument().metrics().unwrap();
            let headline = metrics.headlines()[0];
            let mut figures = measurement.figures.iter();
            let is_headline = |figure: &record::Figure| {
                (figure.metric, figure.statistic) == (headline.metric, headline.statistic)
            };
            assert!(figures.any(is_headline), "{line:?}: {headline:?}");
        }
    }
}
