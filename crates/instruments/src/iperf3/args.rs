//! The arguments of `farwire measure tcp`, and those that it shares with `farwire measure udp`.

use crate::error::{Error, Result, bail, ensure};
use clap::Args;
use model::{BitsPerSec, Bytes, Nanos};
use std::time::Duration;

use crate::Session;
use crate::endpoint::{self, CONNECT_TIMEOUT};
use crate::external::{FarTool, Tool};
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, NETWORK, SOCKETS, seconds};
use crate::iperf3::client::Iperf3Server;
use crate::iperf3::plan::{
    Iperf3Test, LARGEST_WINDOW, LONGEST_BLOCK, LONGEST_OMIT_S, LONGEST_TEST_S, TestDirection,
    Transport, Until,
};
use crate::iperf3::tcp::measure;
use crate::iperf3::tool::{StreamTest, StreamTool};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::{Calibration, Carrier, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::{Direction, Measurement, Metric, Statistic};
use serde::{Deserialize, Serialize};

/// Measure TCP throughput, as iperf3 does
///
/// The far end is `farwire serve` or any iperf3 server. Options have the same letters as in iperf3.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct TcpArgs {
    #[command(flatten)]
    #[serde(flatten)]
    test: Iperf3Args,
    /// Bytes per write call [default: 1 MiB]
    #[arg(short = 'l', long, value_name = "SIZE", value_parser = |text: &str| small_size(text, LONGEST_BLOCK), help_heading = SOCKETS, hide_short_help = true)]
    length: Option<u32>,
    /// TCP congestion control of the sender [default: the system's]
    #[arg(short = 'C', long, value_name = "NAME", help_heading = SOCKETS)]
    congestion: Option<String>,
    /// TCP maximum segment size in bytes
    #[arg(short = 'M', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(88..=32_767), help_heading = SOCKETS, hide_short_help = true)]
    set_mss: Option<u32>,
    /// Send immediately, without waiting to fill a segment (TCP_NODELAY)
    #[arg(short = 'N', long, help_heading = SOCKETS, hide_short_help = true)]
    no_delay: bool,
    /// Copy received data to the program, as other tools do, instead of discarding it in the kernel
    #[arg(long, help_heading = SOCKETS, hide_short_help = true)]
    #[serde(default)]
    rx_copy: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

/// The arguments that both kinds of iperf3's test share.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Iperf3Args {
    /// Name or address of the server
    #[serde(skip)]
    host: String,
    /// Port of the server [default: 5201; with --tool, the tool's default]
    #[arg(short, long)]
    port: Option<u16>,
    /// Measure with another program; the far end is a server of that program
    #[arg(long, value_name = "TOOL")]
    tool: Option<StreamTool>,
    /// Number of streams in each direction
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// Reverse the direction: the server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Send in both directions simultaneously
    #[arg(long)]
    bidir: bool,
    /// Duration: 500ms, or a number of seconds [default: 10]
    #[arg(short, long, value_name = "TIME", value_parser = duration, conflicts_with = "bytes")]
    time: Option<Nanos>,
    /// Stop after this many bytes in each direction, in place of --time; K, M and G are 2^10, 2^20 and 2^30
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Omit this time at the start, in seconds, a whole number
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = omit)]
    omit: Nanos,
    /// Time between reports: 500ms, or a number of seconds
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = interval)]
    interval: Nanos,
    /// Payload bits per second of each stream; K, M and G are 10^3, 10^6 and 10^9, 0 is no limit [default: 0 for TCP, 1M for UDP]
    #[arg(short = 'b', long, value_name = "RATE", value_parser = bitrate)]
    pub(crate) bitrate: Option<u64>,
    /// Size of the socket buffers at both ends (SO_SNDBUF, SO_RCVBUF)
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = |text: &str| small_size(text, LARGEST_WINDOW), help_heading = SOCKETS, hide_short_help = true)]
    window: Option<u32>,
    /// Type-of-service byte: decimal, hexadecimal with 0x, or octal with 0
    #[arg(short = 'S', long, value_name = "NUMBER", value_parser = tos, conflicts_with = "dscp", help_heading = NETWORK, hide_short_help = true)]
    tos: Option<u8>,
    /// DSCP: 0 to 63, or a name from cs0 to cs7, af11 to af43, ef
    #[arg(long, value_name = "DSCP", value_parser = dscp, help_heading = NETWORK)]
    dscp: Option<u8>,
    /// Fail if connecting takes longer than this; a number without a unit is milliseconds, as in iperf3 [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = connect_timeout, help_heading = NETWORK, hide_short_help = true)]
    connect_timeout: Option<Nanos>,
}

impl Instrument for TcpArgs {
    fn profile(&self) -> InstrumentProfile {
        InstrumentProfile {
            carrier: Some(Carrier::Tcp {
                streams: self.test.parallel,
                congestion: self.congestion.clone(),
            }),
            ..self.test.profile(Transport::Tcp, HostLimit::TcpRate)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(self.test.metrics(Transport::Tcp))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(self.test.known_port())]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.test.set_far_end(far_end);
    }

    fn use_congestion(&mut self, name: &str) {
        // nuttcp has no option for it.
        if self.congestion.is_none() && self.test.tool != Some(StreamTool::Nuttcp) {
            self.congestion = Some(name.to_owned());
        }
    }

    fn expected(&self) -> Option<Duration> {
        self.plan().duration()
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        self.plan().estimate(pace)
    }

    fn round_trips(&self) -> u32 {
        self.plan().round_trips()
    }

    fn server(&self) -> Result<Option<FarTool>> {
        self.test.far_tool(&self.plan())
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.test.find_tool()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let server = self.test.server(&self.common).or_bad_input()?;
        let plan = self.plan();
        if let Some(name) = &plan.congestion {
            crate::service::check_congestion(name).or_bad_input()?;
        }
        if let Some(measurement) = self.test.with_tool(&server, &plan, session) {
            return measurement.map(MeasureOutput::from);
        }
        Ok(measure::measure(&server, &plan, session))
    }
}

impl TcpArgs {
    fn plan(&self) -> Iperf3Test {
        Iperf3Test {
            length: self.length,
            congestion: self.congestion.clone(),
            mss: self.set_mss,
            no_delay: self.no_delay,
            rx_copy: self.rx_copy,
            ..self.test.plan(Transport::Tcp)
        }
    }
}

impl Iperf3Args {
    /// Sets the far end to measure towards.
    pub(crate) fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    /// Returns the part of the profile that both kinds share: a goodput, with a sample per interval.
    pub(crate) fn profile(&self, protocol: Transport, host_limit: HostLimit) -> InstrumentProfile {
        let goodput = Headline::new(Metric::GoodputBitPerS, Statistic::Mean);
        let direction = if self.reverse {
            Direction::Down
        } else {
            Direction::Up
        };
        let metrics = self.metrics(protocol);
        let usual = metrics.profile(goodput.toward(direction), host_limit);
        InstrumentProfile {
            direction: Some(direction),
            samples: Some(SampleKind::Intervals),
            calibration: Calibration {
                omits_start: self.omit > Nanos::ZERO,
                timed: self.bytes.is_none(),
                ..usual.calibration
            },
            ..usual
        }
    }

    /// Returns the metrics over this protocol.
    pub(crate) fn metrics(&self, protocol: Transport) -> MetricTable {
        super::metrics::metrics(self.tool, &self.plan(protocol))
    }

    /// Returns the server that another program needs for `plan`, unless farwire's server is of its kind.
    pub(crate) fn far_tool(&self, plan: &Iperf3Test) -> Result<Option<FarTool>> {
        let Some(tool) = self.tool else {
            return Ok(None);
        };
        tool.server(&self.host, plan)
    }

    /// Returns the server's port if the data arrives there too, which is certain only without another program.
    pub(crate) fn known_port(&self) -> Option<u16> {
        let own = || self.port.unwrap_or(StreamTool::Iperf3.port());
        self.tool.is_none().then(own)
    }

    /// Returns the program that measures, if the user asked for another one.
    pub(crate) fn find_tool(&self) -> Result<Option<Tool>> {
        self.tool.map(StreamTool::find_tool).transpose()
    }

    /// Resolves the server.
    pub(crate) fn server(&self, common: &CommonArgs) -> Result<Iperf3Server> {
        let tool = self.tool.unwrap_or(StreamTool::Iperf3);
        let port = self.port.unwrap_or(tool.port());
        let address = endpoint::resolve(&self.host, port, common.family())?;
        Ok(Iperf3Server {
            local: common.bind.clone(),
            connect_timeout: self.connect_timeout.map_or(CONNECT_TIMEOUT, Duration::from),
            ..Iperf3Server::at(address)
        })
    }

    /// Measures with another program, if the user asked for one.
    pub(crate) fn with_tool(
        &self,
        server: &Iperf3Server,
        plan: &Iperf3Test,
        session: &Session,
    ) -> Option<Result<Measurement, Failure>> {
        let test = StreamTest {
            local: server.local.as_ref(),
            connect_timeout: self.connect_timeout.map(Duration::from),
            ..StreamTest::new(server.address, plan)
        };
        Some(self.tool?.measure(&test, session))
    }

    /// Returns the test to measure.
    pub(crate) fn plan(&self, protocol: Transport) -> Iperf3Test {
        let usual = Iperf3Test::new(protocol);
        Iperf3Test {
            direction: match (self.reverse, self.bidir) {
                (true, _) => TestDirection::Down,
                (_, true) => TestDirection::Both,
                _ => TestDirection::Up,
            },
            parallel: self.parallel,
            until: match (self.bytes, self.time) {
                (Some(bytes), _) => Until::Bytes(bytes),
                (_, Some(time)) => Until::For(time.into()),
                _ => usual.until,
            },
            omit: self.omit.into(),
            interval: self.interval.into(),
            bitrate: self.bitrate.filter(|rate| *rate > 0),
            window: self.window,
            tos: self.tos.or(self.dscp.map(|dscp| dscp << 2)),
            ..usual
        }
    }
}

fn duration(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    let longest = Nanos::from_secs(LONGEST_TEST_S.into());
    ensure!(
        Input,
        time > Nanos::ZERO && time <= longest,
        "must be above 0 and at most {LONGEST_TEST_S} s"
    );
    Ok(time)
}

fn omit(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    ensure!(
        Input,
        Duration::from(time).subsec_nanos() == 0 && time <= Nanos::from_secs(LONGEST_OMIT_S.into()),
        "must be whole seconds (by iperf3's protocol), at most {LONGEST_OMIT_S}"
    );
    Ok(time)
}

fn interval(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    let least = Nanos::from_millis(10);
    ensure!(Input, time >= least, "must be at least 10 ms");
    Ok(time)
}

fn connect_timeout(text: &str) -> Result<Nanos> {
    let time = match text.parse::<f64>() {
        Ok(number) => match Duration::try_from_secs_f64(number / 1e3) {
            Ok(time) => time.into(),
            Err(_) => bail!(
                Input,
                "`{text}` is not a time: write a number of milliseconds above 0, or a time with its unit, as in 2s"
            ),
        },
        Err(_) => text.parse()?,
    };
    ensure!(Input, time > Nanos::ZERO, "must be above 0");
    Ok(time)
}

/// Parses a number with iperf3's letters, which are powers of `base`. `None` means that it has another form.
fn lettered(text: &str, base: f64) -> Option<u64> {
    let number_end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, letter) = text.split_at(number_end);
    let power = match letter {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * base.powi(power);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within u64"
    )]
    (0.0..1e18).contains(&value).then_some(value as u64)
}

fn size(text: &str) -> Result<u64> {
    const BASE: f64 = 1024.0;
    let bytes = match lettered(text, BASE) {
        Some(bytes) => bytes,
        None => text.parse::<Bytes>()?.0,
    };
    ensure!(Input, bytes > 0, "must be above 0");
    Ok(bytes)
}

fn bitrate(text: &str) -> Result<u64> {
    const BASE: f64 = 1000.0;
    match lettered(text, BASE) {
        Some(rate) => Ok(rate),
        None => Ok(text.parse::<BitsPerSec>()?.get()),
    }
}

/// Parses a size of at most `most`. A number without a unit is bytes; only -n and -b take iperf3's letters.
fn small_size(text: &str, most: u32) -> Result<u32> {
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => text.parse::<Bytes>()?.0,
    };
    ensure!(
        Input,
        bytes > 0 && bytes <= most.into(),
        "must be above 0 and at most {}",
        Bytes(most.into())
    );
    Ok(u32::try_from(bytes)?)
}

/// Parses the value of `--tos`: decimal, hexadecimal with 0x, or octal with 0.
pub(crate) fn tos(text: &str) -> Result<u8> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u8::from_str_radix(&text[1..], 8),
        None => text.parse(),
    };
    parsed.map_err(|_| Error::Input("write 0 to 255, as in 184, 0xb8 or 0270".to_owned()))
}

/// Parses a code point: a number, or a name of RFC 2474, RFC 2597 or RFC 3246.
pub(crate) fn dscp(text: &str) -> Result<u8> {
    let name = text.to_ascii_lowercase();
    let digits: Vec<u8> = name
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(|d| d - b'0')
        .collect();
    let code = match (
        name.trim_end_matches(|c: char| c.is_ascii_digit()),
        &digits[..],
    ) {
        ("ef", []) => 46,
        ("cs", &[class @ 0..=7]) => class * 8,
        ("af", &[class @ 1..=4, drop @ 1..=3]) => class * 8 + drop * 2,
        ("", _) => match name.parse() {
            Ok(code @ 0..=63) => code,
            _ => bail!(Input, "write 0 to 63"),
        },
        _ => bail!(Input, "write 0 to 63, cs0 to cs7, af11 to af43 or ef"),
    };
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_iperf3_and_units_of_farwire_are_both_accepted() {
        assert_eq!(size("100M").unwrap(), 100 << 20);
        assert_eq!(size("1.5K").unwrap(), 1536);
        assert_eq!(size("100mb").unwrap(), 100_000_000);
        assert_eq!(size("64KiB").unwrap(), 65_536);
        assert_eq!(bitrate("50M").unwrap(), 50_000_000);
        assert_eq!(bitrate("50mbit").unwrap(), 50_000_000);
        assert_eq!(bitrate("0").unwrap(), 0);
        assert!(size("0").is_err() && size("-1").is_err() && bitrate("1x").is_err());
    }

    #[test]
    fn a_time_without_a_unit_is_seconds_and_an_omitted_start_is_whole_seconds() {
        assert_eq!(duration("10").unwrap(), Nanos::from_secs(10));
        assert_eq!(duration("500ms").unwrap(), Nanos::from_millis(500));
        assert_eq!(omit("2").unwrap(), Nanos::from_secs(2));
        assert_eq!(connect_timeout("500").unwrap(), Nanos::from_millis(500));
        assert!(omit("0.5").is_err() && duration("0").is_err() && duration("nan").is_err());
    }

    #[test]
    fn code_points_have_names() {
        for (text, code) in [("ef", 46), ("AF41", 34), ("cs6", 48), ("10", 10)] {
            assert_eq!(dscp(text).unwrap(), code);
        }
        assert!(dscp("64").is_err() && dscp("af54").is_err() && dscp("x").is_err());
        assert_eq!(tos("0xb8").unwrap(), 184);
        assert_eq!(tos("0270").unwrap(), 184);
        assert_eq!(tos("184").unwrap(), 184);
        assert!(tos("256").is_err());
    }
}
