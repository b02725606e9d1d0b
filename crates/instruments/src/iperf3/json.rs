//! A client's test of TCP or UDP in iperf3's JSON format, and as a table with a row for each interval.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::plan::{Iperf3Test, TestDirection, Transport, Until};
use super::wire::Cookie;
use record::quantity::{number, scale};
use record::table::{Column, Table};
use record::{Direction, Figure, Measurement, Metric};

/// The metrics that are summed over streams.
const COUNTS: [Metric; 7] = [
    Metric::SentBytes,
    Metric::SentPackets,
    Metric::ReceivedBytes,
    Metric::ReceivedPackets,
    Metric::LostPackets,
    Metric::HostDroppedPackets,
    Metric::RetransmittedPackets,
];
/// The metrics of an interval that a row shows, if they were measured.
const SHOWN: [Metric; 8] = [
    Metric::SentRateBitPerS,
    Metric::GoodputBitPerS,
    Metric::L1RateBitPerS,
    Metric::LostPackets,
    Metric::JitterMs,
    Metric::RetransmittedPackets,
    Metric::TcpRttMs,
    Metric::CongestionWindowBytes,
];

/// The values of a stream or of several.
type MetricValues = BTreeMap<Metric, f64>;

/// Returns a count, or 0 if it was not measured.
fn count(values: &MetricValues, metric: Metric) -> f64 {
    values.get(&metric).copied().unwrap_or(0.0)
}

/// The values of one direction, of an interval or of the whole test.
#[derive(Default)]
struct DirectionValues {
    /// The values of all streams together.
    whole: MetricValues,
    /// The values of each stream. A single stream has no number.
    streams: BTreeMap<Option<u32>, MetricValues>,
}

/// The time from one report to the next, in seconds, and its values.
struct IntervalValues {
    start_s: f64,
    end_s: f64,
    ways: BTreeMap<Direction, DirectionValues>,
}

/// Returns the measurement as iperf3's `start`, `intervals`, `end` and `error`, with `start` as given. Values that were
/// not measured are absent.
pub(crate) fn of(measurement: &Measurement, start: &Value) -> Value {
    let test = TestValues::of(measurement);
    let intervals: Vec<Value> = test.intervals.iter().map(|i| test.interval(i)).collect();
    let mut json = json!({ "start": start, "intervals": intervals, "end": test.end() });
    if let Some(cause) = &measurement.failure {
        json["error"] = cause.as_str().into();
    }
    json
}

/// Returns the `start` of the JSON: the parameters of a test and its connections. Each stream has its number, its local
/// and its remote address. iperf3 numbers streams by descriptor, farwire by the stream's own number.
pub(crate) fn start(
    plan: &Iperf3Test,
    server: SocketAddr,
    cookie: Cookie,
    connected: &[(u32, [SocketAddr; 2])],
) -> Value {
    let connected = connected.iter().map(|(id, [local, remote])| {
        json!({
            "socket": id,
            "local_host": local.ip().to_canonical(),
            "local_port": local.port(),
            "remote_host": remote.ip().to_canonical(),
            "remote_port": remote.port(),
        })
    });
    let is_udp = plan.protocol == Transport::Udp;
    let (duration, bytes) = match plan.until {
        Until::For(time) => (time.as_secs_f64(), 0),
        Until::Bytes(bytes) => (0.0, bytes),
    };
    json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": concat!("farwire ", env!("CARGO_PKG_VERSION")),
        "connecting_to": { "host": server.ip(), "port": server.port() },
        "cookie": format!("{cookie:?}"),
        "target_bitrate": plan.bitrate.unwrap_or(0),
        "sock_bufsize": plan.window.unwrap_or(0),
        "test_start": {
            "protocol": match plan.protocol {
                Transport::Tcp => "TCP",
                Transport::Udp => "UDP",
            },
            "num_streams": plan.parallel,
            "blksize": plan.length.unwrap_or(0),
            "omit": plan.omit.as_secs(),
            "duration": duration,
            "bytes": bytes,
            "blocks": 0,
            "reverse": u8::from(plan.direction == TestDirection::Down),
            "bidir": u8::from(plan.direction == TestDirection::Both),
            "tos": plan.tos.unwrap_or(0),
            "target_bitrate": plan.bitrate.unwrap_or(0),
            // Pacing by the kernel, which farwire does not use.
            "fqrate": 0,
            "interval": plan.interval.as_secs_f64(),
            // Whether senders segment trains and receivers read whole ones, which iperf3 has from 3.21 on.
            "gso": u8::from(is_udp && plan.trains),
            "gro": u8::from(is_udp),
        },
    })
}

/// Returns a table with a row per interval, direction and stream.
pub fn intervals(measurement: &Measurement) -> Table {
    let intervals = IntervalValues::all(measurement);
    let measured = |metric: &Metric| measurement.samples.iter().any(|s| s.metric == *metric);
    let shown: Vec<Metric> = SHOWN.into_iter().filter(measured).collect();
    let words = ["interval\ns", "way", "stream"].map(Column::words);
    let numbers = shown
        .iter()
        .map(|metric| Column::numbers(format!("{}\n{}", metric.title(), scale(*metric).1)));
    let mut table = Table::new("", words.into_iter().chain(numbers));
    for IntervalValues {
        start_s,
        end_s,
        ways,
    } in &intervals
    {
        for (direction, way) in ways {
            let numbered = way.streams.keys().flatten().count() > 0;
            let each = way.streams.iter().filter(|_| numbered);
            let rows = each.map(|(stream, values)| (*stream, values));
            for (stream, values) in rows.chain([(None, &way.whole)]) {
                let value = |metric: &Metric| values.get(metric).map(|v| v / scale(*metric).0);
                let values = shown
                    .iter()
                    .map(|metric| value(metric).map_or_else(|| "–".to_owned(), number));
                let first = [
                    format!("{start_s:.2} - {end_s:.2}"),
                    direction.name().to_owned(),
                    stream.map_or("all".to_owned(), |stream| stream.to_string()),
                ];
                table.push(first.into_iter().chain(values));
            }
        }
    }
    table
}

impl DirectionValues {
    fn add(&mut self, stream: Option<u32>, metric: Metric, value: f64) {
        let of = self.streams.entry(stream).or_default();
        of.entry(metric).or_insert(value);
    }

    /// Completes the values of all streams together. Values without a stream belong to all, and to the only one.
    fn complete(&mut self) {
        if self.streams.len() < 2 {
            self.whole = self.streams.values().next().cloned().unwrap_or_default();
            return;
        }
        self.whole = self.streams.remove(&None).unwrap_or_default();
        for metric in COUNTS {
            let values = self.streams.values().map(|values| values.get(&metric));
            // If a stream's value is unknown, so is the sum.
            if let Some(sum) = values.sum::<Option<f64>>() {
                self.whole.entry(metric).or_insert(sum);
            }
        }
    }

    /// Returns the mean jitter of the streams, as iperf3 does.
    fn mean_jitter(&self) -> f64 {
        let values = self.streams.values();
        let sum: f64 = values.filter_map(|v| v.get(&Metric::JitterMs)).sum();
        sum / self.streams.len() as f64
    }
}

impl IntervalValues {
    fn all(measurement: &Measurement) -> Vec<Self> {
        let mut found: BTreeMap<u64, Self> = BTreeMap::new();
        for sample in &measurement.samples {
            let interval = found.entry(sample.index).or_insert_with(|| Self {
                start_s: 0.0,
                end_s: sample.at_s,
                ways: BTreeMap::new(),
            });
            let way = interval
                .ways
                .entry(sample.direction.unwrap_or(Direction::Up));
            way.or_default()
                .add(sample.stream, sample.metric, sample.value);
        }
        let mut before_s = measurement.omitted_s;
        let mut intervals: Vec<Self> = found.into_values().collect();
        for interval in &mut intervals {
            interval.start_s = std::mem::replace(&mut before_s, interval.end_s);
            interval
                .ways
                .values_mut()
                .for_each(DirectionValues::complete);
        }
        intervals
    }
}

struct TestValues<'a> {
    measurement: &'a Measurement,
    intervals: Vec<IntervalValues>,
    /// The values of the whole test.
    ways: BTreeMap<Direction, DirectionValues>,
    udp: bool,
}

impl<'a> TestValues<'a> {
    fn of(measurement: &'a Measurement) -> Self {
        let mut ways: BTreeMap<Direction, DirectionValues> = BTreeMap::new();
        for Figure {
            direction,
            stream,
            metric,
            value,
            ..
        } in &measurement.figures
        {
            let way = ways.entry(direction.unwrap_or(Direction::Up)).or_default();
            way.add(*stream, *metric, *value);
        }
        ways.values_mut().for_each(DirectionValues::complete);
        let has = |metric| ways.values().any(|way| way.whole.contains_key(&metric));
        Self {
            measurement,
            intervals: IntervalValues::all(measurement),
            udp: has(Metric::JitterMs) || has(Metric::SentPackets),
            ways,
        }
    }

    /// Returns the name of a sum. iperf3 uses `sum` for the direction in which a test was started, and
    /// `sum_bidir_reverse` for the other direction of a bidirectional test.
    fn sum_name(&self, name: &str, direction: Direction) -> String {
        let second = self.ways.len() > 1 && direction == Direction::Down;
        format!("{name}{}", if second { "_bidir_reverse" } else { "" })
    }

    fn interval(&self, interval: &IntervalValues) -> Value {
        let (start_s, end_s) = (interval.start_s, interval.end_s);
        let mut streams = Vec::new();
        let mut json = json!({});
        for (direction, way) in &interval.ways {
            let sends = *direction == Direction::Up;
            let entry = |values: &MetricValues, jitter_ms: f64| {
                let metric = if sends {
                    Metric::SentBytes
                } else {
                    Metric::ReceivedBytes
                };
                let bytes = count(values, metric);
                let mut json = over(bytes, start_s, end_s, sends);
                json["omitted"] = false.into();
                if self.udp && sends {
                    json["packets"] = whole(values.get(&Metric::SentPackets).copied());
                } else if self.udp {
                    losses(&mut json, missing(values), to_come(values), jitter_ms);
                } else if sends {
                    json["retransmits"] = whole(values.get(&Metric::RetransmittedPackets).copied());
                }
                json
            };
            for (at, (stream, values)) in way.streams.iter().enumerate() {
                let jitter_ms = count(values, Metric::JitterMs);
                let mut json = entry(values, jitter_ms);
                json["socket"] = self.socket(*direction, *stream, at).into();
                for (name, metric, factor) in [
                    ("snd_cwnd", Metric::CongestionWindowBytes, 1.0),
                    ("rtt", Metric::TcpRttMs, 1e3),
                ] {
                    if let Some(value) = values.get(&metric) {
                        json[name] = whole(Some(value * factor));
                    }
                }
                streams.push(json);
            }
            json[self.sum_name("sum", *direction)] = entry(&way.whole, way.mean_jitter());
        }
        json["streams"] = streams.into();
        json
    }

    fn end(&self) -> Value {
        let mut end = json!({});
        let mut streams = Vec::new();
        for (direction, way) in &self.ways {
            let direction = *direction;
            let name = |name| self.sum_name(name, direction);
            let [sent, received] = self.sides(direction, way, &way.whole, way.mean_jitter());
            if let (true, Some(sent)) = (self.udp, &sent) {
                let mut sum = sent.clone();
                sum["sender"] = (direction == Direction::Up).into();
                let packets = count(&way.whole, Metric::SentPackets);
                losses(&mut sum, missing(&way.whole), packets, way.mean_jitter());
                end[name("sum")] = sum;
            }
            for (name, side) in [(name("sum_sent"), sent), (name("sum_received"), received)] {
                if let Some(side) = side {
                    end[name] = side;
                }
            }
            for (at, (stream, values)) in way.streams.iter().enumerate() {
                let socket = self.socket(direction, *stream, at);
                streams.push(self.stream(direction, way, *stream, values, socket));
            }
            if end["cpu_utilization_percent"].is_null() {
                end["cpu_utilization_percent"] = cpu(direction, &way.whole);
            }
        }
        end["streams"] = streams.into();
        let facts = &self.measurement.facts;
        let up = self.ways.contains_key(&Direction::Up);
        for (name, of_client) in [("sender", up), ("receiver", !up)] {
            let of = if of_client { "client" } else { "server" };
            if let Some(used) = facts.get(&format!("congestion control of the {of}")) {
                end[format!("{name}_tcp_congestion")] = used.as_str().into();
            }
        }
        end
    }

    /// Returns the counts of the sender and of the receiver, if they are known.
    fn sides(
        &self,
        direction: Direction,
        way: &DirectionValues,
        values: &MetricValues,
        jitter_ms: f64,
    ) -> [Option<Value>; 2] {
        let sends = direction == Direction::Up;
        let last = self.intervals.last();
        let own_s = last.map_or(0.0, |last| last.end_s - self.measurement.omitted_s);
        let elapsed_s = way.whole.get(&Metric::ElapsedS).copied().unwrap_or(own_s);
        // For TCP, the elapsed time is the receiver's.
        let sender_s = if sends && !self.udp { own_s } else { elapsed_s };
        let side = |metric, seconds: f64, sender: bool| {
            let bytes = *values.get(&metric)?;
            let mut json = over(bytes, 0.0, seconds, if self.udp { sender } else { sends });
            if self.udp && sender {
                let packets = count(values, Metric::SentPackets);
                losses(&mut json, Some(0.0), packets, 0.0);
            } else if self.udp {
                losses(&mut json, missing(values), to_come(values), jitter_ms);
            } else if let (true, Some(again)) = (sender, values.get(&Metric::RetransmittedPackets))
            {
                json["retransmits"] = whole(Some(*again));
            }
            Some(json)
        };
        [
            side(Metric::SentBytes, sender_s, true),
            side(Metric::ReceivedBytes, elapsed_s, false),
        ]
    }

    fn stream(
        &self,
        direction: Direction,
        way: &DirectionValues,
        stream: Option<u32>,
        values: &MetricValues,
        socket: u32,
    ) -> Value {
        let jitter_ms = count(values, Metric::JitterMs);
        let [sent, received] = self.sides(direction, way, values, jitter_ms);
        if self.udp {
            let mut json = sent.unwrap_or_else(|| json!({}));
            json["sender"] = (direction == Direction::Up).into();
            json["socket"] = socket.into();
            let packets = count(values, Metric::SentPackets);
            losses(&mut json, missing(values), packets, jitter_ms);
            if let Some(late) = values.get(&Metric::ReorderedPackets) {
                json["out_of_order"] = whole(Some(*late));
            }
            return json!({ "udp": json });
        }
        let mut json = json!({});
        for (name, side) in [("sender", sent), ("receiver", received)] {
            if let Some(mut side) = side {
                side["socket"] = socket.into();
                json[name] = side;
            }
        }
        let of = |metric: Metric| {
            let samples = self.measurement.samples.iter();
            let own = samples.filter(move |s| {
                (s.metric, s.direction, s.stream) == (metric, Some(direction), stream)
            });
            own.map(|sample| sample.value).collect::<Vec<f64>>()
        };
        let (rtts, windows) = (of(Metric::TcpRttMs), of(Metric::CongestionWindowBytes));
        if let (Some(least), Some(most)) = (
            rtts.iter().copied().reduce(f64::min),
            rtts.iter().copied().reduce(f64::max),
        ) {
            let mean = rtts.iter().sum::<f64>() / rtts.len() as f64;
            for (name, ms) in [("min_rtt", least), ("mean_rtt", mean), ("max_rtt", most)] {
                json["sender"][name] = whole(Some(ms * 1e3));
            }
            json["sender"]["max_snd_cwnd"] = whole(windows.into_iter().reduce(f64::max));
        }
        json
    }

    /// Returns the stream's own number (1, 3, 4 and so on) in place of iperf3's descriptor.
    fn socket(&self, direction: Direction, stream: Option<u32>, at: usize) -> u32 {
        let second = self.ways.len() > 1 && direction == Direction::Down;
        stream.unwrap_or(if at > 0 || second { 3 } else { 1 })
    }
}

fn over(bytes: f64, start_s: f64, end_s: f64, sender: bool) -> Value {
    let seconds = end_s - start_s;
    json!({
        "start": start_s,
        "end": end_s,
        "seconds": seconds,
        "bytes": whole(Some(bytes)),
        "bits_per_second": if seconds > 0.0 { bytes * 8.0 / seconds } else { 0.0 },
        "sender": sender,
    })
}

/// Returns the number of datagrams that should have arrived at a receiver: those that did, and the missing ones.
fn to_come(values: &MetricValues) -> f64 {
    let value = |metric| values.get(&metric).copied();
    let received =
        value(Metric::ReceivedPackets).map(|received| received + missing(values).unwrap_or(0.0));
    received.or(value(Metric::SentPackets)).unwrap_or(0.0)
}

/// Returns the number of datagrams that did not arrive, whoever dropped them. `None` means that the network's loss is
/// unknown.
fn missing(values: &MetricValues) -> Option<f64> {
    let lost = values.get(&Metric::LostPackets)?;
    let host_dropped = values.get(&Metric::HostDroppedPackets).unwrap_or(&0.0);
    Some(lost + host_dropped)
}

fn losses(json: &mut Value, lost: Option<f64>, packets: f64, jitter_ms: f64) {
    json["packets"] = whole(Some(packets));
    json["jitter_ms"] = jitter_ms.into();
    json["lost_packets"] = whole(lost);
    let percent = |lost: f64| {
        if packets > 0.0 {
            100.0 * lost / packets
        } else {
            0.0
        }
    };
    json["lost_percent"] = lost.map(percent).into();
}

/// Returns `cpu_utilization_percent`. Values that the other end did not report are absent.
fn cpu(direction: Direction, values: &MetricValues) -> Value {
    let sender = [Metric::SenderCpuPercent, Metric::SenderUserCpuPercent];
    let receiver = [Metric::ReceiverCpuPercent, Metric::ReceiverUserCpuPercent];
    let [host, remote] = match direction {
        Direction::Up => [sender, receiver],
        Direction::Down => [receiver, sender],
    };
    let mut json = json!({});
    for (end, of) in [("host", host), ("remote", remote)] {
        if let [Some(total), Some(user)] = of.map(|metric| values.get(&metric)) {
            json[format!("{end}_total")] = (*total).into();
            json[format!("{end}_user")] = (*user).into();
            json[format!("{end}_system")] = (total - user).into();
        }
    }
    json
}

/// Returns a count as an integer, since JSON counts have no decimal point, or null if there is none.
fn whole(count: Option<f64>) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counts and microseconds, far below 2^53"
    )]
    count.map_or(Value::Null, |count| (count.round() as i64).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Sample, Statistic};

    /// Returns a test of two streams up and one down, with an interval of half a second after an omitted one.
    fn both_ways() -> Measurement {
        let total = |metric, value| Figure::new(metric, Statistic::Total, value);
        let up = |metric, stream, value| {
            let sample = Sample::new(1.5, metric, 1, value).toward(Direction::Up);
            sample.stream(stream)
        };
        let down = |metric, value| Sample::new(1.5, metric, 1, value).toward(Direction::Down);
        Measurement {
            omitted_s: 1.0,
            samples: vec![
                up(Metric::SentBytes, 1, 1000.0),
                up(Metric::SentBytes, 3, 250.0),
                up(Metric::SentPackets, 1, 4.0),
                up(Metric::SentPackets, 3, 1.0),
                down(Metric::ReceivedBytes, 500.0),
                down(Metric::ReceivedPackets, 7.0),
                down(Metric::LostPackets, 1.0),
                down(Metric::HostDroppedPackets, 2.0),
                down(Metric::JitterMs, 0.5),
            ],
            figures: vec![
                total(Metric::SentBytes, 1250.0).toward(Direction::Up),
                total(Metric::SentPackets, 5.0).toward(Direction::Up),
                total(Metric::ReceivedBytes, 500.0).toward(Direction::Down),
            ],
            ..Measurement::default()
        }
    }

    #[test]
    fn streams_add_up_and_each_direction_has_its_name() {
        let json = of(&both_ways(), &json!({}));
        let interval = &json["intervals"][0];
        assert_eq!(&interval["sum"]["bytes"], &json!(1250));
        assert_eq!(&interval["sum"]["packets"], &json!(5));
        assert_eq!(interval["sum"]["seconds"], 0.5);
        assert_eq!(interval["sum"]["bits_per_second"], 20_000.0);
        let down = &interval["sum_bidir_reverse"];
        assert_eq!(&down["lost_packets"], &json!(3));
        assert_eq!(&down["packets"], &json!(10));
        assert_eq!(down["lost_percent"], 30.0);
        assert_eq!(interval["streams"].as_array().unwrap().len(), 3);
        assert_eq!(json["end"]["sum_sent"]["bytes"], 1250);
        assert_eq!(json["end"]["sum_received_bidir_reverse"]["bytes"], 500);
        assert!(json["end"]["sum_received"].is_null());
        assert!(json["error"].is_null());
    }

    #[test]
    fn the_start_says_whether_datagrams_go_in_trains() {
        let server = SocketAddr::from(([192, 0, 2, 1], 5201));
        let offloads = |transport, trains| {
            let plan = Iperf3Test {
                trains,
                ..Iperf3Test::new(transport)
            };
            let start = start(&plan, server, Cookie::random(), &[]);
            ["gso", "gro"].map(|name| start["test_start"][name].as_u64())
        };
        assert_eq!(offloads(Transport::Udp, true), [Some(1), Some(1)]);
        assert_eq!(offloads(Transport::Udp, false), [Some(0), Some(1)]);
        assert_eq!(offloads(Transport::Tcp, true), [Some(0), Some(0)]);
    }

    #[test]
    fn the_table_has_a_row_per_interval_and_stream_and_for_all_streams() {
        let table = intervals(&both_ways());
        let rows: Vec<Vec<&str>> = table
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| cell.text.as_str()).collect())
            .collect();
        assert_eq!(rows[0][..3], ["1.00 - 1.50", "up", "1"]);
        assert_eq!(rows[2][..3], ["1.00 - 1.50", "up", "all"]);
        assert_eq!(rows[3][1..], ["down", "all", "1.000", "0.500"]);
    }
}
