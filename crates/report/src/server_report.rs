//! The report of a far end's log: averages over its tests by kind, by client and by hour, as packet-averages.pl of "Perl
//! TCP Transfer Test" makes them of the output of its server.
//!
//! A log may have any length, and strangers decide about some of its content. It is therefore read once, and only sums
//! are kept, whose number is limited.

mod drawings;
mod opening;
mod page;
mod tables;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use record::server_log::{LogEntry, LogLine, RefusalEntry, ServerLog, TestEntry};
use record::{Direction, Figure, Metric, Phase, Statistic, regular_file};

pub(crate) use self::drawings::drawings;
pub use self::page::server_html;
pub use self::tables::{server_csv, server_markdown, server_text};

/// Greatest number of groups of each kind: hours of more than a year, for example.
const MOST_GROUPS: usize = 10_000;
/// Greatest number of averages over all groups, which take about 20 MB.
const MOST_AVERAGES: usize = 200_000;
/// Greatest number of causes of refusals.
const MOST_CAUSES: usize = 1_000;
/// Greatest number of characters of a name in the log.
const LONGEST_NAME: usize = 255;
/// The group of the tests for whose group there is no room.
const OTHERS: &str = "others";

/// The report of a far end's log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerReport {
    /// The end of the first test (RFC 3339, UTC); absent without tests.
    pub first_ended_at: Option<String>,
    /// The end of the last test.
    pub last_ended_at: Option<String>,
    /// The number of tests.
    pub tests: u64,
    /// The number of tests that failed.
    pub failed: u64,
    /// The averages over all tests of each kind.
    pub kinds: Vec<TestGroup>,
    /// The averages over the tests of each client, by kind.
    pub clients: Vec<TestGroup>,
    /// The averages over the tests that ended in each hour (UTC), by kind.
    pub hours: Vec<TestGroup>,
    /// The refusals by protocol and cause.
    pub refusals: Vec<RefusalCount>,
    /// The number of lines that the log lacks, because nobody read it in time.
    pub lost_lines: u64,
    /// The number of lines that are not entries of a log, for example because they were cut off.
    pub unreadable_lines: u64,
    /// The number of figures that are in no average, because there was no room for more averages.
    pub figures_left_out: u64,
}

/// The averages over the tests of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestGroup {
    /// The client or the hour; empty for the tests of one kind.
    pub of: String,
    /// The name of the client, if the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kind of the tests.
    pub test: String,
    /// The number of tests.
    pub tests: u64,
    /// The number of tests that failed.
    pub failed: u64,
    /// The total payload that the far end received, in bytes.
    pub received_bytes: f64,
    /// The total payload that the far end sent, in bytes.
    pub sent_bytes: f64,
    /// The duration of a test in seconds.
    pub duration_s: Spread,
    /// The payload of a test over its time, from the client to the far end, in bits per second.
    pub up_bit_per_s: Option<Spread>,
    /// The same from the far end to the client.
    pub down_bit_per_s: Option<Spread>,
    /// The payload that the far end received over the time within its reads, in MiB per second, for `transfer`: the
    /// "Avg Megabytes/Second" of packet-averages.pl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_mib_per_s: Option<Spread>,
    /// The averages of the figures of the far end.
    pub averages: Vec<FigureAverage>,
}

/// The average of one figure over the tests of a group that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureAverage {
    /// The metric.
    pub metric: Metric,
    /// The statistic over each test.
    pub statistic: Statistic,
    /// The direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The size of the messages or blocks in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The values of the tests.
    #[serde(flatten)]
    pub spread: Spread,
}

/// A summary of the values of several tests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The number of values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation; absent for a single value.
    pub sd: Option<f64>,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

/// The number of refusals of one protocol for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalCount {
    /// The protocol.
    pub protocol: String,
    /// The cause in one word.
    pub cause: String,
    /// The number of refusals.
    pub count: u64,
}

/// The properties that distinguish a figure from the others of its test.
type FigureKey = (
    Metric,
    Statistic,
    Option<Direction>,
    Option<Phase>,
    Option<u64>,
);

/// The sums of a log so far.
#[derive(Debug, Default)]
struct LogSums {
    report: ServerReport,
    kinds: Groups,
    clients: Groups,
    hours: Groups,
    refusals: BTreeMap<(String, String), u64>,
    room: AverageRoom,
}

/// The room for further averages.
#[derive(Debug)]
struct AverageRoom {
    left: usize,
    /// Figures for which there was no room.
    left_out: u64,
}

/// Groups by what they have in common, a client or an hour, and by the kind of their tests.
#[derive(Debug, Default)]
struct Groups(BTreeMap<(String, String), GroupSums>);

/// The sums over the tests of a group.
#[derive(Debug, Default)]
struct GroupSums {
    name: Option<String>,
    tests: u64,
    failed: u64,
    bytes: [f64; 2],
    duration: Moments,
    rates: [Moments; 2],
    read_rate: Moments,
    figures: BTreeMap<FigureKey, Moments>,
}

/// The running mean and the sum of squared deviations of several values (B. P. Welford, "Note on a method for
/// calculating corrected sums of squares and products", 1962).
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl ServerReport {
    /// Reads the log in the file at `path`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::of(regular_file::open(path)?)
    }

    /// Reads a log from its lines.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of(log: impl Read) -> io::Result<Self> {
        let (mut log, mut sums) = (ServerLog::of(log), LogSums::default());
        while let Some(line) = log.next_line()? {
            match line {
                LogLine::Unreadable => sums.report.unreadable_lines += 1,
                LogLine::Entry(entry) => match *entry {
                    LogEntry::Test(test) => sums.add_test(&test),
                    LogEntry::Refusal(refusal) => sums.add_refusal(&refusal),
                    LogEntry::Lost(lost) => {
                        let all = &mut sums.report.lost_lines;
                        *all = all.saturating_add(lost.lost_lines);
                    }
                },
            }
        }
        Ok(sums.into_report())
    }
}

impl LogSums {
    fn add_test(&mut self, entry: &TestEntry) {
        let report = &mut self.report;
        let has_failed = entry.failure.is_some();
        report.tests += 1;
        report.failed += u64::from(has_failed);
        let (first, last) = (&mut report.first_ended_at, &mut report.last_ended_at);
        let ended_at = short(&entry.ended_at);
        if first.as_deref().is_none_or(|first| ended_at < first) {
            *first = Some(ended_at.to_owned());
        }
        if last.as_deref().is_none_or(|last| ended_at > last) {
            *last = Some(ended_at.to_owned());
        }
        let test = short(&entry.test);
        let client = entry.peer.ip().to_canonical().to_string();
        let all = [
            (&mut self.kinds, String::new(), None),
            (&mut self.clients, client, entry.peer_name.as_deref()),
            (&mut self.hours, hour_of(ended_at), None),
        ];
        for (groups, of, name) in all {
            let group = groups.of(of, test);
            group.add(entry, &mut self.room);
            if let Some(name) = name {
                group.name = Some(short(name).to_owned());
            }
        }
    }

    fn add_refusal(&mut self, entry: &RefusalEntry) {
        let key = [&entry.protocol, &entry.cause].map(|text| short(text).to_owned());
        let mut key = (key[0].clone(), key[1].clone());
        if self.refusals.len() >= MOST_CAUSES && !self.refusals.contains_key(&key) {
            key = (OTHERS.to_owned(), OTHERS.to_owned());
        }
        let count = self.refusals.entry(key).or_default();
        *count = count.saturating_add(entry.count);
    }

    fn into_report(self) -> ServerReport {
        let refusal = |((protocol, cause), count)| RefusalCount {
            protocol,
            cause,
            count,
        };
        let mut clients = self.clients.into_groups();
        // The clients with the most tests come first.
        let mut tests: BTreeMap<String, u64> = BTreeMap::new();
        for group in &clients {
            *tests.entry(group.of.clone()).or_default() += group.tests;
        }
        clients.sort_by_cached_key(|group| {
            let all = tests.get(&group.of).copied().unwrap_or(0);
            (std::cmp::Reverse(all), group.of.clone(), group.test.clone())
        });
        ServerReport {
            kinds: self.kinds.into_groups(),
            clients,
            hours: self.hours.into_groups(),
            refusals: self.refusals.into_iter().map(refusal).collect(),
            figures_left_out: self.room.left_out,
            ..self.report
        }
    }
}

impl Default for AverageRoom {
    fn default() -> Self {
        Self {
            left: MOST_AVERAGES,
            left_out: 0,
        }
    }
}

impl TestGroup {
    /// Returns the client with its name, or the hour as people write it.
    fn label(&self) -> String {
        match &self.name {
            Some(name) if !self.of.is_empty() => format!("{} {name}", self.of),
            _ => self.of.replace('T', " ").replace(":00Z", ""),
        }
    }
}

impl Groups {
    /// Returns the group of tests of the kind `test` that have `of` in common.
    fn of(&mut self, of: String, test: &str) -> &mut GroupSums {
        let mut key = (of, test.to_owned());
        if self.0.len() >= MOST_GROUPS && !self.0.contains_key(&key) {
            key = (OTHERS.to_owned(), OTHERS.to_owned());
        }
        self.0.entry(key).or_default()
    }

    fn into_groups(self) -> Vec<TestGroup> {
        let group = |((of, test), sums): ((String, String), GroupSums)| TestGroup {
            of,
            name: sums.name,
            test,
            tests: sums.tests,
            failed: sums.failed,
            received_bytes: sums.bytes[0],
            sent_bytes: sums.bytes[1],
            duration_s: sums.duration.spread().unwrap_or(Spread::NOTHING),
            up_bit_per_s: sums.rates[0].spread(),
            down_bit_per_s: sums.rates[1].spread(),
            read_mib_per_s: sums.read_rate.spread(),
            averages: sums.figures.into_iter().filter_map(average).collect(),
        };
        self.0.into_iter().map(group).collect()
    }
}

fn average((key, moments): (FigureKey, Moments)) -> Option<FigureAverage> {
    let (metric, statistic, direction, phase, size) = key;
    Some(FigureAverage {
        metric,
        statistic,
        direction,
        phase,
        size,
        spread: moments.spread()?,
    })
}

impl GroupSums {
    fn add(&mut self, entry: &TestEntry, room: &mut AverageRoom) {
        self.tests += 1;
        self.failed += u64::from(entry.failure.is_some());
        self.duration.add(entry.duration_s);
        let payload = [
            payload(entry, Direction::Up),
            payload(entry, Direction::Down),
        ];
        for ((sum, rate), (bytes, bit_per_s)) in
            self.bytes.iter_mut().zip(&mut self.rates).zip(payload)
        {
            *sum += bytes.unwrap_or(0.0);
            if let Some(bit_per_s) = bit_per_s {
                rate.add(bit_per_s);
            }
        }
        if let Some(rate) = read_rate(entry) {
            self.read_rate.add(rate);
        }
        // Streams are parts of a test.
        for figure in entry
            .figures
            .iter()
            .filter(|figure| figure.stream.is_none())
        {
            let key = (
                figure.metric,
                figure.statistic,
                figure.direction,
                figure.phase,
                figure.size,
            );
            match self.figures.get_mut(&key) {
                Some(moments) => moments.add(figure.value),
                None if room.left > 0 => {
                    room.left -= 1;
                    self.figures.entry(key).or_default().add(figure.value);
                }
                None => room.left_out += 1,
            }
        }
    }
}

/// Returns the payload bytes of a test in one direction as the far end counted them, and the payload over its time.
fn payload(entry: &TestEntry, direction: Direction) -> (Option<f64>, Option<f64>) {
    let figure = |metric, statistic| figure(entry, metric, statistic, direction);
    let counted = direction.choose(Metric::ReceivedBytes, Metric::SentBytes);
    let bytes = figure(counted, Statistic::Total);
    let seconds = figure(Metric::ElapsedS, Statistic::Total).unwrap_or(entry.duration_s);
    let over_time = bytes
        .filter(|bytes| *bytes > 0.0 && seconds > 0.0)
        .map(|bytes| bytes * 8.0 / seconds);
    let goodput = figure(Metric::GoodputBitPerS, Statistic::Mean);
    (bytes, goodput.or(over_time))
}

/// Returns the payload that the far end received over the time within its reads, in MiB per second.
fn read_rate(entry: &TestEntry) -> Option<f64> {
    const MIB: f64 = 1_048_576.0;
    let total = |metric| figure(entry, metric, Statistic::Total, Direction::Up);
    let seconds = total(Metric::NetworkElapsedS).filter(|seconds| *seconds > 0.0)?;
    Some(total(Metric::ReceivedBytes)? / MIB / seconds)
}

/// Returns a figure over all streams of a test, in one direction if it has a direction.
fn figure(
    entry: &TestEntry,
    metric: Metric,
    statistic: Statistic,
    direction: Direction,
) -> Option<f64> {
    let is_it = |figure: &&Figure| {
        (figure.metric, figure.statistic) == (metric, statistic)
            && figure.stream.is_none()
            && figure.direction.is_none_or(|way| way == direction)
    };
    let found = entry.figures.iter().find(is_it)?;
    Some(found.value).filter(|value| value.is_finite())
}

impl Moments {
    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        (self.min, self.max) = match self.count {
            0 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
        self.count += 1;
        let deviation = value - self.mean;
        self.mean += deviation / self.count as f64;
        self.squares += deviation * (value - self.mean);
    }

    fn spread(&self) -> Option<Spread> {
        let Self {
            count,
            mean,
            squares,
            min,
            max,
        } = *self;
        let sd = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        (count > 0).then_some(Spread {
            count,
            mean,
            sd,
            min,
            max,
        })
    }
}

impl Spread {
    /// The summary of no value.
    const NOTHING: Self = Self {
        count: 0,
        mean: 0.0,
        sd: None,
        min: 0.0,
        max: 0.0,
    };
}

/// Returns the start of the hour (RFC 3339, UTC) in which a test ended; `unknown` if the log does not state a time.
fn hour_of(time: &str) -> String {
    let hour = time.parse::<Timestamp>().ok().and_then(|time| {
        let seconds = time.as_second();
        Timestamp::from_second(seconds - seconds.rem_euclid(3_600)).ok()
    });
    hour.map_or_else(|| "unknown".to_owned(), |hour| hour.to_string())
}

/// Returns the start of a name in the log.
fn short(name: &str) -> &str {
    let end = name.char_indices().nth(LONGEST_NAME);
    end.map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads per read and in all of the connections in "Examples of differing bufsz" of "Perl TCP Transfer Test": packets
    /// received, bytes received, total and network elapsed seconds.
    const CONNECTIONS: [(f64, f64, f64, f64); 8] = [
        (969.0, 951_296.0, 4.979_201, 4.971_616),
        (917.0, 1_878_016.0, 4.979_274, 4.967_592),
        (962.0, 3_747_840.0, 4.984_485, 4.967_525),
        (1518.0, 7_454_720.0, 4.979_728, 4.968_118),
        (2134.0, 14_483_456.0, 4.984_232, 4.957_092),
        (2212.0, 28_278_784.0, 4.978_841, 4.963_040),
        (2757.0, 56_295_424.0, 4.976_954, 4.961_636),
        (4768.0, 101_056_512.0, 4.982_475, 4.956_841),
    ];

    /// Returns the entry of a transfer from a client that ended at this minute and second of 10 o'clock.
    fn transfer(client: &str, at: &str, values: (f64, f64, f64, f64)) -> String {
        let (reads, bytes, total_s, network_s) = values;
        let up = |metric, statistic, value| {
            Figure::new(metric, statistic, value)
                .toward(Direction::Up)
                .size(8192)
        };
        let figures = vec![
            up(
                Metric::GoodputBitPerS,
                Statistic::Mean,
                bytes * 8.0 / total_s,
            ),
            up(Metric::Reads, Statistic::Total, reads),
            up(Metric::ReadSizeBytes, Statistic::Mean, bytes / reads),
            up(Metric::ElapsedS, Statistic::Total, total_s),
            up(Metric::ReceivedBytes, Statistic::Total, bytes),
            up(Metric::NetworkElapsedS, Statistic::Total, network_s),
        ];
        let entry = TestEntry {
            started_at: None,
            ended_at: format!("2026-11-26T10:{at}.000Z"),
            test: "transfer".to_owned(),
            peer: format!("{client}:40000").parse().unwrap(),
            peer_name: None,
            duration_s: total_s,
            figures,
            facts: [].into(),
            failure: None,
        };
        serde_json::to_string(&entry).unwrap() + "\n"
    }

    fn report(log: &str) -> ServerReport {
        ServerReport::of(log.as_bytes()).unwrap()
    }

    fn spread(group: &TestGroup, metric: Metric) -> Spread {
        let mut averages = group.averages.iter();
        averages.find(|one| one.metric == metric).unwrap().spread
    }

    #[test]
    fn averages_over_connections_are_those_of_packet_averages() {
        let log: String = CONNECTIONS
            .iter()
            .map(|values| transfer("192.0.2.1", "00:01", *values))
            .collect();
        let report = report(&log);
        let [kind] = &report.kinds[..] else {
            panic!("{report:?}");
        };
        assert_eq!((report.tests, report.failed, kind.tests), (8, 0, 8));
        let mean = |value: fn(&(f64, f64, f64, f64)) -> f64| {
            CONNECTIONS.iter().map(value).sum::<f64>() / 8.0
        };
        for (metric, expected) in [
            (Metric::Reads, mean(|of| of.0)),
            (Metric::ReceivedBytes, mean(|of| of.1)),
            (Metric::ElapsedS, mean(|of| of.2)),
            (Metric::NetworkElapsedS, mean(|of| of.3)),
            // Like packet-averages.pl, this is the mean of the connections' averages.
            (Metric::ReadSizeBytes, mean(|of| of.1 / of.0)),
        ] {
            let found = spread(kind, metric);
            assert_eq!(found.count, 8);
            assert!(
                (found.mean / expected - 1.0).abs() < 1e-12,
                "{metric:?}: {found:?}"
            );
        }
        let reads = spread(kind, Metric::Reads);
        assert_eq!((reads.min, reads.max), (917.0, 4768.0));
        // This is the sample standard deviation of the eight numbers.
        assert!((reads.sd.unwrap() - 1_300.35).abs() < 0.01, "{reads:?}");
        let rate = kind.up_bit_per_s.unwrap();
        let expected = mean(|of| of.1 * 8.0 / of.2);
        assert!((rate.mean / expected - 1.0).abs() < 1e-12, "{rate:?}");
        assert_eq!(kind.down_bit_per_s, None);
        let rate = kind.read_mib_per_s.unwrap();
        let expected = mean(|of| of.1 / 1_048_576.0 / of.3);
        assert!((rate.mean / expected - 1.0).abs() < 1e-12, "{rate:?}");
        assert_eq!(kind.received_bytes, mean(|of| of.1) * 8.0);
    }

    #[test]
    fn tests_are_grouped_by_client_and_by_hour() {
        let [one, other] = ["192.0.2.1", "192.0.2.2"];
        let log = [
            transfer(one, "00:01", CONNECTIONS[0]),
            transfer(other, "59:59", CONNECTIONS[1]),
            transfer(other, "59:59", CONNECTIONS[3]).replace("T10:", "T11:"),
        ];
        let report = report(&log.concat());
        let groups = |all: &[TestGroup]| -> Vec<(String, u64)> {
            all.iter().map(|one| (one.of.clone(), one.tests)).collect()
        };
        // The client with the most tests comes first.
        let clients = [(other.to_owned(), 2), (one.to_owned(), 1)];
        assert_eq!(groups(&report.clients), clients);
        let hours = [("2026-11-26T10:00:00Z", 2), ("2026-11-26T11:00:00Z", 1)];
        let hours = hours.map(|(hour, tests)| (hour.to_owned(), tests));
        assert_eq!(groups(&report.hours), hours);
        let ends = [report.first_ended_at, report.last_ended_at].map(Option::unwrap);
        assert_eq!(
            ends,
            ["2026-11-26T10:00:01.000Z", "2026-11-26T11:59:59.000Z"]
        );
    }

    #[test]
    fn a_test_without_goodput_has_its_payload_over_its_time() {
        let entry = r#"{"ended_at":"x","test":"http","peer":"[2001:db8::1]:9","duration_s":9.0,"figures":[
            {"metric":"sent_bytes","statistic":"total","value":1000000.0,"direction":"down"},
            {"metric":"elapsed_s","statistic":"total","value":2.0}],"facts":{},"failure":"gone"}"#;
        let report = report(&entry.replace('\n', ""));
        let kind = &report.kinds[0];
        assert_eq!(kind.down_bit_per_s.unwrap().mean, 4e6);
        assert_eq!((kind.failed, kind.sent_bytes), (1, 1e6));
        assert_eq!(report.hours[0].of, "unknown");
        assert_eq!(report.clients[0].of, "2001:db8::1");
    }

    #[test]
    fn refusals_and_missing_lines_are_counted() {
        let refusal = r#"{"refused_at":"x","protocol":"http","peer":"192.0.2.1:9","cause":"busy","why":"busy","count":3}"#;
        let log = format!("{refusal}\n{{\"lost_lines\":7}}\n{refusal}\nnothing\n{{\"ended");
        let report = report(&log);
        let [refused] = &report.refusals[..] else {
            panic!("{report:?}");
        };
        assert_eq!((refused.cause.as_str(), refused.count), ("busy", 6));
        assert_eq!((report.lost_lines, report.unreadable_lines), (7, 2));
        assert_eq!(report.tests, 0);
    }

    #[test]
    fn the_sums_of_a_log_of_strangers_are_limited() {
        let mut sums = LogSums::default();
        let line = transfer("192.0.2.1", "00:01", CONNECTIONS[0]);
        let mut entry: TestEntry = serde_json::from_str(&line).unwrap();
        sums.room.left = 12;
        for number in 0..MOST_GROUPS + 50 {
            entry.test = format!("test {number}") + &"x".repeat(10_000);
            sums.add_test(&entry);
        }
        let report = sums.into_report();
        assert_eq!(report.kinds.len(), MOST_GROUPS + 1);
        let others = report.kinds.iter().find(|kind| kind.of == OTHERS).unwrap();
        assert_eq!(others.tests, 50);
        assert!(
            report
                .kinds
                .iter()
                .all(|kind| kind.test.len() <= LONGEST_NAME)
        );
        let averages = report
            .kinds
            .iter()
            .chain(&report.clients)
            .chain(&report.hours);
        assert_eq!(
            averages.map(|group| group.averages.len()).sum::<usize>(),
            12
        );
        assert!(report.figures_left_out > 0);
    }
}
