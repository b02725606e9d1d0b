//! The JSON messages of the control connection: the parameters before a test, and the results of both ends after it.
//!
//! Received messages are limited in size and strictly typed. Errors name the field, its value and the valid values.
//! iperf3 3.18 and later check the types too; therefore no field is written as `null`.

use crate::measured::mean;
use record::{Direction, Figure, Metric};
use std::time::Duration;

use crate::error::{Context, Result, bail, ensure};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::detail::StreamDetail;
use super::plan::{
    Iperf3Test, LARGEST_WINDOW, LONGEST_BLOCK, LONGEST_OMIT_S, LONGEST_TEST_S, MOST_STREAMS,
    TestDirection, Transport, Until,
};

/// The default TCP block in bytes, as in iperf3.
const DEFAULT_BLOCK: u32 = 128 * 1024;
/// `MAX_MSS` of iperf3, which is 32 KiB minus one since 3.21, and 9 KiB before.
const LARGEST_MSS: i64 = 32 * 1024 - 1;
/// `TCP_CA_NAME_MAX` of the kernel. iperf3 accepts longer names too.
const LONGEST_CONGESTION: usize = 16;
/// The version that this client reports. Servers print it and do not act on it.
const CLIENT_VERSION: &str = concat!("farwire ", env!("CARGO_PKG_VERSION"));
/// farwire's own parameter, which iperf3 ignores: whether receivers copy received data.
const RX_COPY: &str = "farwire_rx_copy";
/// farwire's own parameter, which iperf3 ignores: the time in milliseconds between two reports of what arrived. It asks a
/// server that receives UDP for them.
const ARRIVALS_MS: &str = "farwire_arrivals_ms";
/// The shortest and the longest time between these reports, in milliseconds.
const ARRIVALS_FROM_TO_MS: [i64; 2] = [10, 60_000];
/// The key of these reports in the results of a stream.
const ARRIVALS: &str = "farwire_arrivals";
/// The reason why there is no figure of loss if [`StreamResults::omitted`] is absent and a start was omitted.
pub(super) const LOSS_UNKNOWN: &str = "unknown: the receiving iperf3 is older than 3.14, which counts from the very start and \
    does not report the losses of the omitted part";
/// The number of characters of a wrong value that an error quotes.
const QUOTED: usize = 40;

/// A plan and the form of its datagrams' numbers, as a client sends them before a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Params {
    /// The test.
    pub(crate) plan: Iperf3Test,
    /// Whether the numbers of datagrams have 8 bytes instead of 4.
    pub(crate) udp_counters_64bit: bool,
}

/// The results of a whole test from one end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// CPU time in percent of the test's duration: total, user, system.
    pub(crate) cpu_percent: [f64; 3],
    /// Whether this end knows the retransmissions of its data, or `None` if it did not send.
    pub(crate) has_retransmits: Option<bool>,
    /// The congestion control of this end's sockets.
    pub(crate) congestion_used: Option<String>,
    /// The results of each stream.
    pub(crate) streams: Vec<StreamResults>,
}

/// The results of one stream from one end, without the omitted start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamResults {
    /// The number of the stream.
    pub(crate) id: u32,
    /// Payload bytes that this end sent or received.
    pub(crate) bytes: u64,
    /// Retransmitted TCP segments, or `None` if unknown.
    pub(crate) retransmits: Option<u64>,
    /// RFC 3550 jitter in seconds, which is 0 for TCP.
    pub(crate) jitter_s: f64,
    /// Datagrams missing at the receiver, including the omitted start, or `None` if unknown.
    pub(crate) errors: Option<u64>,
    /// Datagrams sent, or the highest number received, including the omitted start.
    pub(crate) packets: u64,
    /// `errors` and `packets` of the omitted start, which iperf3 before 3.14 does not report.
    pub(crate) omitted: Option<[u64; 2]>,
    /// Time from the start of counting to its end at this end, in seconds, which iperf3 before 3.2 does not report.
    pub(crate) seconds: Option<f64>,
    /// The details that only farwire reports.
    pub(crate) detail: Option<StreamDetail>,
    /// The length of each interval in microseconds, and the payload bytes that arrived in it, if a client asked farwire's
    /// server for them.
    pub(crate) arrivals: Vec<[u64; 2]>,
}

/// The results of a test from both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TestResults {
    /// The results of this end.
    pub(crate) local: Results,
    /// The results of the other end, or `None` if the test did not reach that point.
    pub(crate) remote: Option<Results>,
}

impl Params {
    /// Parses the parameters from a client.
    ///
    /// # Errors
    /// Returns an error that names the field if the message differs from those of iperf3 3.12 and later, or asks for
    /// something that a server cannot do.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let fields = JsonFields::parse(bytes)?;
        let protocol = match (fields.flag("tcp")?, fields.flag("udp")?) {
            (true, false) => Transport::Tcp,
            (false, true) => Transport::Udp,
            (true, true) => bail!(Peer, "tcp and udp are both true"),
            (false, false) => bail!(Peer, "neither tcp nor udp is true"),
        };
        let direction = match (fields.flag("reverse")?, fields.flag("bidirectional")?) {
            (false, false) => TestDirection::Up,
            (true, false) => TestDirection::Down,
            (false, true) => TestDirection::Both,
            (true, true) => bail!(Peer, "reverse and bidirectional are both true"),
        };
        let above_zero = |name| -> Result<Option<u64>> {
            Ok(fields.within(name, 0, i64::MAX)?.filter(|n| *n > 0))
        };
        let small = |name, most| -> Result<Option<u32>> {
            Ok(fields.within(name, 0, most)?.filter(|n| *n > 0))
        };
        let seconds = |name, most: u32| -> Result<Duration> {
            let seconds = small(name, most.into())?.unwrap_or(0);
            Ok(Duration::from_secs(seconds.into()))
        };
        let time = seconds("time", LONGEST_TEST_S)?;
        let parallel = fields.within("parallel", 1, MOST_STREAMS.into())?;
        let [least, most] = ARRIVALS_FROM_TO_MS;
        let arrivals = fields.within(ARRIVALS_MS, least, most)?;
        let usual = Iperf3Test::new(protocol);
        let plan = Iperf3Test {
            direction,
            parallel: parallel.unwrap_or(1),
            // A test without a time is ended by the client: after a number of blocks, or at any time.
            until: above_zero("num")?.map_or(Until::For(time), Until::Bytes),
            omit: seconds("omit", LONGEST_OMIT_S)?,
            interval: arrivals.map_or(usual.interval, Duration::from_millis),
            arrivals: arrivals.is_some(),
            bitrate: above_zero("bandwidth")?.or(above_zero("fqrate")?),
            length: small("len", LONGEST_BLOCK.into())?,
            congestion: fields.text("congestion", LONGEST_CONGESTION)?,
            mss: small("MSS", LARGEST_MSS)?,
            window: small("window", LARGEST_WINDOW.into())?,
            no_delay: fields.flag("nodelay")?,
            rx_copy: fields.flag(RX_COPY)?,
            tos: fields.within("TOS", 0, 255)?,
            ..usual
        };
        Ok(Self {
            plan,
            udp_counters_64bit: fields.flag("udp_counters_64bit")?,
        })
    }

    /// Returns iperf3's JSON, with the types that 3.18 and later require.
    pub(crate) fn to_json(&self) -> Value {
        let plan = &self.plan;
        let (seconds, bytes) = match plan.until {
            // A server uses the time only as a limit, so that the client may keep the fraction of a second to itself.
            Until::For(time) => (time.as_secs() + u64::from(time.subsec_nanos() > 0), 0),
            Until::Bytes(bytes) => (0, bytes),
        };
        let if_true = |flag: bool| flag.then_some(true);
        without_null(json!({
            "tcp": if_true(plan.protocol == Transport::Tcp),
            "udp": if_true(plan.protocol == Transport::Udp),
            "reverse": if_true(plan.direction == TestDirection::Down),
            "bidirectional": if_true(plan.direction == TestDirection::Both),
            "omit": plan.omit.as_secs(),
            "time": seconds,
            "num": bytes,
            "blockcount": 0,
            "parallel": plan.parallel,
            "len": plan.length.unwrap_or(DEFAULT_BLOCK),
            "bandwidth": plan.bitrate,
            "congestion": plan.congestion,
            "MSS": plan.mss,
            "window": plan.window,
            "nodelay": if_true(plan.no_delay),
            RX_COPY: if_true(plan.rx_copy),
            ARRIVALS_MS: u64::try_from(plan.interval.as_millis()).ok().filter(|_| plan.arrivals),
            "TOS": plan.tos.filter(|tos| *tos > 0),
            "udp_counters_64bit": self.udp_counters_64bit.then_some(1),
            "pacing_timer": 1000,
            "client_version": CLIENT_VERSION,
        }))
    }
}

impl Results {
    /// Parses the results from the other end.
    ///
    /// # Errors
    /// Returns an error that names the field if the message differs from those of iperf3 3.12 and later.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let fields = JsonFields::parse(bytes)?;
        let cpu = |name: &str| required(name, fields.number(name));
        let name = "sender_has_retransmits";
        Ok(Self {
            cpu_percent: [
                cpu("cpu_util_total")?,
                cpu("cpu_util_user")?,
                cpu("cpu_util_system")?,
            ],
            has_retransmits: match required(name, fields.integer(name))? {
                ..0 => None,
                number => Some(number > 0),
            },
            congestion_used: fields.text("congestion_used", LONGEST_CONGESTION)?,
            streams: fields.streams()?,
        })
    }

    /// Returns iperf3's JSON.
    pub(crate) fn to_json(&self) -> Value {
        let streams: Vec<_> = self.streams.iter().map(StreamResults::to_json).collect();
        without_null(json!({
            "cpu_util_total": self.cpu_percent[0],
            "cpu_util_user": self.cpu_percent[1],
            "cpu_util_system": self.cpu_percent[2],
            "sender_has_retransmits": self.has_retransmits.map_or(-1, i32::from),
            "congestion_used": self.congestion_used,
            "streams": streams,
        }))
    }

    /// Returns the results of stream `id`.
    pub(crate) fn stream(&self, id: u32) -> Option<&StreamResults> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

impl StreamResults {
    fn of(fields: &JsonFields, id: u32) -> Result<Self> {
        let count = |name: &str| required(name, fields.within(name, 0, i64::MAX));
        // A negative number means "unknown".
        let known = |name: &str| -> Result<Option<u64>> {
            Ok(u64::try_from(required(name, fields.integer(name))?).ok())
        };
        let omitted = |name: &str| -> Result<Option<u64>> {
            let count = fields.integer(name)?;
            Ok(count.map(|count| u64::try_from(count).unwrap_or(0)))
        };
        let times = fields.number("start_time")?.zip(fields.number("end_time")?);
        Ok(Self {
            id,
            bytes: count("bytes")?,
            retransmits: known("retransmits")?,
            jitter_s: required("jitter", fields.number("jitter"))?,
            errors: known("errors")?,
            packets: count("packets")?,
            omitted: match (omitted("omitted_errors")?, omitted("omitted_packets")?) {
                (Some(errors), Some(packets)) => Some([errors, packets]),
                (None, None) => None,
                _ => bail!(
                    Peer,
                    "omitted_errors and omitted_packets must come together"
                ),
            },
            seconds: times.map(|(start, end)| end - start).filter(|s| *s > 0.0),
            detail: fields
                .0
                .get("farwire")
                .map(StreamDetail::deserialize)
                .transpose()
                .context("in farwire")?,
            arrivals: fields
                .0
                .get(ARRIVALS)
                .map(Vec::<[u64; 2]>::deserialize)
                .transpose()
                .context("in farwire_arrivals")?
                .unwrap_or_default(),
        })
    }

    fn to_json(&self) -> Value {
        let [omitted_errors, omitted_packets] = self.omitted.unwrap_or_default();
        let signed = |count: Option<u64>| count.map_or_else(|| json!(-1), Into::into);
        without_null(json!({
            "id": self.id,
            "bytes": self.bytes,
            "retransmits": signed(self.retransmits),
            "jitter": self.jitter_s,
            "errors": signed(self.errors),
            "omitted_errors": omitted_errors,
            "packets": self.packets,
            "omitted_packets": omitted_packets,
            "start_time": 0,
            "end_time": self.seconds.unwrap_or(0.0),
            "farwire": self.detail,
            ARRIVALS: (!self.arrivals.is_empty()).then_some(&self.arrivals),
        }))
    }
}

/// A JSON object that another program wrote.
#[derive(Debug)]
struct JsonFields(Map<String, Value>);

impl JsonFields {
    /// Parses a message. serde_json refuses more than 128 levels.
    fn parse(bytes: &[u8]) -> Result<Self> {
        Self::of(serde_json::from_slice(bytes).context("it is not JSON")?)
    }

    fn of(value: Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            other => bail!(Peer, "it is not a JSON object but {}", quoted(&other)),
        }
    }

    /// Reads a field with `read`, if it is present. `wanted` describes valid values for the error message.
    fn read<'a, T>(
        &'a self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let wrong = || format!("{name} must be {wanted}, not {}", quoted(value));
        read(value).map(Some).with_context(wrong)
    }

    /// Reads a whole number. The value -1, which iperf3 3.12 writes as 2^64 - 1, means that the other end does not know
    /// it.
    fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.read(name, "a whole number", whole)
    }

    /// Reads a whole number from `least` to `most`.
    fn within<T: TryFrom<i64>>(&self, name: &str, least: i64, most: i64) -> Result<Option<T>> {
        let Some(number) = self.integer(name)? else {
            return Ok(None);
        };
        let fits = (least..=most).contains(&number);
        let fitting = T::try_from(number).ok().filter(|_| fits);
        let wrong = || format!("{name} must be from {least} to {most}, not {number}");
        fitting.map(Some).with_context(wrong)
    }

    /// Reads a finite number that is not negative.
    fn number(&self, name: &str) -> Result<Option<f64>> {
        let number = |value: &Value| value.as_f64().filter(|n| n.is_finite() && *n >= 0.0);
        self.read(name, "a number of 0 or more", number)
    }

    /// Returns whether a flag is present and true. iperf3 writes most flags as `true`, and some as 1.
    fn flag(&self, name: &str) -> Result<bool> {
        let flag = |value: &Value| value.as_bool().or_else(|| Some(whole(value)? != 0));
        Ok(self.read(name, "true or false", flag)?.unwrap_or(false))
    }

    /// Reads a text of at most `longest` bytes.
    fn text(&self, name: &str, longest: usize) -> Result<Option<String>> {
        let text = self.read(name, "a text", Value::as_str)?;
        let length = text.map_or(0, str::len);
        ensure!(
            Peer,
            length <= longest,
            "{name} must be at most {longest} bytes long, not {length}"
        );
        Ok(text.map(str::to_owned))
    }

    /// Reads the entries of `streams`.
    fn streams(&self) -> Result<Vec<StreamResults>> {
        let streams = self.read("streams", "an array", Value::as_array);
        let (streams, most) = (required("streams", streams)?, 2 * MOST_STREAMS as usize);
        ensure!(
            Peer,
            streams.len() <= most,
            "streams must have at most {most} entries, not {}",
            streams.len()
        );
        let stream = |value: &Value| {
            let fields = Self::of(value.clone()).context("in streams")?;
            let id =
                required("id", fields.within("id", 1, u32::MAX.into())).context("in streams")?;
            StreamResults::of(&fields, id).with_context(|| format!("in streams, id {id}"))
        };
        streams.iter().map(stream).collect()
    }
}

/// Returns a required field.
fn required<T>(name: &str, field: Result<Option<T>>) -> Result<T> {
    field?.with_context(|| format!("{name} is missing"))
}

/// Returns an object without its `null` fields.
fn without_null(mut json: Value) -> Value {
    if let Value::Object(fields) = &mut json {
        fields.retain(|_, value| !value.is_null());
    }
    json
}

/// Returns a whole number. iperf3 prints them in C's format of doubles, for example as 1e+15.
fn whole(value: &Value) -> Option<i64> {
    const UNKNOWN: f64 = (1_u64 << 63) as f64;
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    if number.fract() != 0.0 {
        return None;
    }
    if number >= UNKNOWN {
        return (number <= 2.0 * UNKNOWN).then_some(-1);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole, and within i64 on both sides"
    )]
    (number >= -UNKNOWN).then_some(number as i64)
}

fn quoted(value: &Value) -> String {
    let text = match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() <= QUOTED {
        return text;
    }
    text.chars().take(QUOTED).chain("...".chars()).collect()
}

/// Returns the direction of a stream that this end sends or receives.
pub(crate) fn direction(sends: bool, client: bool) -> Direction {
    if sends == client {
        Direction::Up
    } else {
        Direction::Down
    }
}

impl TestResults {
    /// Returns the CPU time of both ends for a direction that this end sends or receives.
    pub(crate) fn cpu(&self, sends: bool) -> Vec<Figure> {
        let ours = Some(self.local.cpu_percent);
        let theirs = self.remote.as_ref().map(|remote| remote.cpu_percent);
        let [sender, receiver] = if sends {
            [ours, theirs]
        } else {
            [theirs, ours]
        };
        let metrics = [
            (Metric::SenderCpuPercent, sender, 0),
            (Metric::SenderUserCpuPercent, sender, 1),
            (Metric::ReceiverCpuPercent, receiver, 0),
            (Metric::ReceiverUserCpuPercent, receiver, 1),
        ];
        let figures = metrics.into_iter();
        figures
            .filter_map(|(metric, cpu, part)| Some(mean(metric, cpu?[part])))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS_OF_3_12: &str = r#"{"tcp":true,"omit":1,"time":10,"num":0,"blockcount":0,"parallel":4,
        "bidirectional":true,"len":131072,"pacing_timer":1000,"congestion":"cubic",
        "client_version":"3.12"}"#;

    #[test]
    fn the_parameters_of_3_12_are_read() {
        let params = Params::parse(PARAMS_OF_3_12.as_bytes()).unwrap();
        let expected = Iperf3Test {
            direction: TestDirection::Both,
            parallel: 4,
            omit: Duration::from_secs(1),
            length: Some(131_072),
            congestion: Some("cubic".to_owned()),
            ..Iperf3Test::new(Transport::Tcp)
        };
        assert_eq!(params.plan, expected);
    }

    #[test]
    fn parameters_round_trip() {
        let plan = Iperf3Test {
            direction: TestDirection::Down,
            until: Until::Bytes(1 << 40),
            bitrate: Some(50_000_000),
            length: Some(1448),
            mss: Some(1400),
            window: Some(1 << 20),
            no_delay: true,
            rx_copy: true,
            tos: Some(0xb8),
            ..Iperf3Test::new(Transport::Udp)
        };
        let params = Params {
            plan,
            udp_counters_64bit: true,
        };
        let bytes = params.to_json().to_string();
        assert_eq!(Params::parse(bytes.as_bytes()).unwrap(), params);
    }

    #[test]
    fn a_client_that_asks_for_arrivals_sets_the_interval_of_the_server() {
        let plan = Iperf3Test {
            interval: Duration::from_millis(100),
            arrivals: true,
            length: Some(1448),
            ..Iperf3Test::new(Transport::Udp)
        };
        let params = Params {
            plan,
            udp_counters_64bit: true,
        };
        let text = params.to_json().to_string();
        assert_eq!(Params::parse(text.as_bytes()).unwrap(), params);
        let often = text.replace("\"farwire_arrivals_ms\":100", "\"farwire_arrivals_ms\":1");
        let error = format!("{:#}", Params::parse(often.as_bytes()).unwrap_err());
        assert!(
            error.contains("farwire_arrivals_ms must be from 10 to 60000, not 1"),
            "{error}"
        );
    }

    #[test]
    fn a_test_of_a_number_of_blocks_has_no_time_limit() {
        let of_blocks = PARAMS_OF_3_12.replace("\"time\":10", "\"time\":0");
        let params = Params::parse(of_blocks.as_bytes()).unwrap();
        assert_eq!(params.plan.duration(), None);
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        for case in [
            r#""tcp":true => "sctp":true => neither tcp nor udp"#,
            r#""parallel":4 => "parallel":129 => parallel must be from 1 to 128, not 129"#,
            r#""parallel":4 => "parallel":-1 => parallel must be"#,
            r#""time":10 => "time":[10] => time must be a whole number, not an array"#,
            r#""len":131072 => "len":1073741824 => len must be"#,
            r#""omit":1 => "omit":601 => omit must be"#,
            r#""len":131072 => "len":131072,"MSS":32768 => MSS must be from 0 to 32767, not 32768"#,
            r#""cubic" => "xxxxxxxxxxxxxxxxxxxxxxxx" => congestion must be at most 16"#,
        ] {
            let [from, to, cause] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let text = PARAMS_OF_3_12.replace(from, to);
            let error = format!("{:#}", Params::parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(cause), "{case}: {error}");
        }
    }

    const RESULTS_OF_3_12: &str = r#"{"cpu_util_total":98.1,"cpu_util_user":2.2,"cpu_util_system":95.9,
        "sender_has_retransmits":18446744073709551615,"congestion_used":"cubic","streams":[
        {"id":1,"bytes":1310720,"retransmits":18446744073709551615,"jitter":0,"errors":0,
         "packets":0,"start_time":0,"end_time":1.00009}]}"#;

    #[test]
    fn the_results_of_a_receiver_of_3_12_are_read() {
        let results = Results::parse(RESULTS_OF_3_12.as_bytes()).unwrap();
        assert_eq!(results.has_retransmits, None);
        assert_eq!(results.congestion_used.as_deref(), Some("cubic"));
        let stream = results.stream(1).unwrap();
        assert_eq!((stream.bytes, stream.retransmits), (1_310_720, None));
        assert_eq!(stream.seconds, Some(1.00009));
        assert_eq!(results.stream(3), None);
    }

    #[test]
    fn results_round_trip() {
        let results = Results {
            cpu_percent: [3.0, 1.0, 2.0],
            has_retransmits: Some(true),
            congestion_used: None,
            streams: vec![StreamResults {
                id: 3,
                bytes: 5,
                retransmits: Some(2),
                jitter_s: 0.25,
                errors: Some(1),
                packets: 9,
                omitted: Some([1, 2]),
                seconds: Some(2.5),
                detail: None,
                arrivals: vec![[100_000, 5], [99_000, 0]],
            }],
        };
        let bytes = results.to_json().to_string();
        assert_eq!(Results::parse(bytes.as_bytes()).unwrap(), results);
    }

    #[test]
    fn an_error_names_the_stream_and_the_field() {
        let text = RESULTS_OF_3_12.replace("1310720", "\"many\"");
        let error = format!("{:#}", Results::parse(text.as_bytes()).unwrap_err());
        assert_eq!(
            error,
            r#"in streams, id 1: bytes must be a whole number, not "many""#
        );
        let text = RESULTS_OF_3_12.replace("\"errors\":0,", "");
        let error = format!("{:#}", Results::parse(text.as_bytes()).unwrap_err());
        assert_eq!(error, "in streams, id 1: errors is missing");
    }

    fn fields(text: &str) -> JsonFields {
        JsonFields::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn whole_numbers_are_read_in_every_format_of_iperf3() {
        let fields = fields(
            r#"{"a":7,"b":7.0,"c":1e+15,"d":18446744073709551615,"e":-1,"f":1.8446744073709552e+19}"#,
        );
        let read = |name| fields.integer(name).unwrap().unwrap();
        assert_eq!(read("a"), 7);
        assert_eq!(read("b"), 7);
        assert_eq!(read("c"), 1_000_000_000_000_000);
        assert_eq!((read("d"), read("e"), read("f")), (-1, -1, -1));
        assert_eq!(fields.integer("z").unwrap(), None);
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_value_and_the_right_type() {
        let fields = fields(r#"{"time":"10","num":1.5,"big":1e300,"parallel":0,"reverse":"yes"}"#);
        let error = |result: Result<Option<i64>>| result.unwrap_err().to_string();
        assert_eq!(
            error(fields.integer("time")),
            r#"time must be a whole number, not "10""#
        );
        assert_eq!(
            error(fields.integer("num")),
            "num must be a whole number, not 1.5"
        );
        assert!(fields.integer("big").is_err());
        assert_eq!(
            error(fields.within("parallel", 1, 128)),
            "parallel must be from 1 to 128, not 0"
        );
        assert!(fields.flag("reverse").is_err());
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
        assert!(JsonFields::parse(&deep).is_err());
        let error = JsonFields::parse(b"[1]").unwrap_err().to_string();
        assert_eq!(error, "it is not a JSON object but an array");
    }
}
