//! `/metrics`: what the links count, for Prometheus and who reads what it reads.
//!
//! As OpenMetrics 1.0 text, or as Prometheus's older text format (version 0.0.4) for who accepts that alone, as `promtool check
//! metrics` does. Every label's values are of the links, their directions and the causes that there are: none grows with
//! traffic.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use model::{DropCause, Nanos};

use super::AppState;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::live::{DirectionMeter, LinkMeter};

/// What the links count, as OpenMetrics 1.0 text; as Prometheus's text format for who accepts that alone.
#[utoipa::path(
    get, path = "/metrics",
    responses((
        status = OK,
        content((String = "application/openmetrics-text; version=1.0.0; charset=utf-8"), (String = "text/plain; version=0.0.4; charset=utf-8"))
    ))
)]
pub(super) async fn scrape(State(app): State<AppState>, headers: HeaderMap) -> impl IntoResponse {
    let format = Format::for_who_accepts(&headers);
    let links = app.links.all();
    // One that ends meanwhile has nothing to say any more.
    let meters: Vec<LinkMeter> = links.iter().filter_map(|link| link.meter().ok()).collect();
    (
        [(header::CONTENT_TYPE, format.kind())],
        text(format, &meters),
    )
}

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own, version 0.0.4.
    Prometheus,
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Info,
}

/// Names and values of labels.
type Labels<'a> = [(&'a str, &'a str)];

/// Families of metrics as text.
struct Page {
    format: Format,
    text: String,
}

impl Format {
    fn for_who_accepts(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter();
        let accepted: Vec<&str> = accepted.filter_map(|kinds| kinds.to_str().ok()).collect();
        let has = |kind| accepted.iter().any(|kinds| kinds.contains(kind));
        match has("text/plain") && !has("application/openmetrics-text") {
            true => Self::Prometheus,
            false => Self::OpenMetrics,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Kind {
    /// What the names of its samples end in.
    fn ending(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram | Self::Summary => "",
        }
    }

    /// As `format` calls it, where an info is a gauge of 1.
    fn name(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Histogram, _) => "histogram",
            (Self::Summary, _) => "summary",
            (Self::Info, Format::OpenMetrics) => "info",
            (Self::Gauge | Self::Info, _) => "gauge",
        }
    }
}

impl Page {
    /// Begins a family; the unit is what its name ends in, if that is one. What its samples are named.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> String {
        let samples = format!("farwire_{name}{}", kind.ending());
        let family = match self.format {
            Format::OpenMetrics => samples.trim_end_matches(kind.ending()),
            Format::Prometheus => &samples,
        };
        let said = kind.name(self.format);
        self.add(format_args!(
            "# HELP {family} {help}\n# TYPE {family} {said}\n"
        ));
        let unit = ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.ends_with(unit));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            self.add(format_args!("# UNIT {family} {unit}\n"));
        }
        samples
    }

    /// Adds a sample.
    fn sample(&mut self, name: &str, labels: &Labels<'_>, value: f64) {
        let escaped = |value: &str| {
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let labels = labels.iter();
        let labels: Vec<String> = labels
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        self.add(format_args!("{name}{{{}}} {value}\n", labels.join(",")));
    }

    fn add(&mut self, words: std::fmt::Arguments<'_>) {
        // Nothing refuses to be written into memory.
        let _ = self.text.write_fmt(words);
    }

    /// A family with one sample a link.
    fn of_links(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        links: &[LinkMeter],
        value: impl Fn(&LinkMeter) -> f64,
    ) {
        let samples = self.family(name, kind, help);
        for meter in links {
            self.sample(&samples, &[("link", &meter.link)], value(meter));
        }
    }

    /// A family with one sample a direction, where it has one.
    fn of_ways(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        links: &[LinkMeter],
        value: impl Fn(&DirectionMeter) -> Option<f64>,
    ) {
        let samples = self.family(name, kind, help);
        for (labels, way) in ways(links) {
            if let Some(value) = value(way) {
                self.sample(&samples, &labels, value);
            }
        }
    }

    /// How every packet ended.
    fn verdicts(&mut self, links: &[LinkMeter]) {
        let help = "Packets and copies by how they ended: delivered, dropped by the emulated network, or lost by the emulator \
                    itself, which is no doing of the network's.";
        let samples = self.family("packets", Kind::Counter, help);
        for (of_way, DirectionMeter { counters, .. }) in ways(links) {
            let mut add = |verdict: &str, cause: &str, count: u64| {
                let labels = [of_way[0], of_way[1], ("verdict", verdict), ("cause", cause)];
                self.sample(&samples, &labels, count as f64);
            };
            add("delivered", "", counters.delivered);
            // Those that never were, too: a rate needs a count to begin from.
            for cause in DropCause::ALL.map(DropCause::name) {
                let count = counters.dropped.get(cause).copied();
                add("dropped", cause, count.unwrap_or(0));
            }
            for (cause, count) in &counters.emulator_lost {
                add("lost", cause, *count);
            }
        }
    }

    /// The samples of a histogram: so many times within each bound and beyond the last one, and their sum.
    fn buckets(
        &mut self,
        name: &str,
        labels: &Labels<'_>,
        (bounds, counts, sum): (&[Nanos], &[u64], Nanos),
    ) {
        let bounds = bounds.iter();
        let bounds = bounds.map(|bound| (bound.0 as f64 / 1e9).to_string());
        let mut count = 0;
        for (bound, more) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            count += *more;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&format!("{name}_bucket"), &labels, count as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum.0 as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    /// How late packets left.
    fn lateness(&mut self, links: &[LinkMeter]) {
        let help = "How long after their due times packets left.";
        let name = self.family("departure_error_seconds", Kind::Histogram, help);
        for LinkMeter { link, lateness, .. } in links {
            let times = (
                &LatenessBuckets::BOUNDS[..],
                &lateness.counts[..],
                lateness.sum,
            );
            self.buckets(&name, &[("link", link.as_str())], times);
        }
    }

    /// How long round trips took.
    fn round_trips(&mut self, links: &[LinkMeter]) {
        let help = "Round trips as they are seen at side a, the client's, and at side b: from when a TCP segment or an ICMP echo came there \
                    to when its answer left there.";
        let name = self.family("round_trip_seconds", Kind::Histogram, help);
        for LinkMeter {
            link, round_trips, ..
        } in links
        {
            for (side, seen) in ["a", "b"].into_iter().zip(round_trips) {
                let times = (&RoundTripTimes::BOUNDS[..], &seen.counts[..], seen.sum);
                self.buckets(&name, &[("link", link.as_str()), ("side", side)], times);
            }
        }
    }

    /// How long packets were delayed.
    fn delays(&mut self, links: &[LinkMeter]) {
        let help = "From the arrival of packets that were sent to when they were due.";
        let name = self.family("delay_seconds", Kind::Summary, help);
        for (labels, DirectionMeter { counters, .. }) in ways(links) {
            let delay = counters.delay;
            self.sample(&format!("{name}_sum"), &labels, delay.sum_ms / 1e3);
            self.sample(&format!("{name}_count"), &labels, delay.packets as f64);
        }
    }

    fn info(&mut self, links: &[LinkMeter]) {
        let samples = self.family("build", Kind::Info, "Which farwire this is.");
        self.sample(&samples, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let help = "A link that runs: up is from its client's side to its server's.";
        let samples = self.family("link", Kind::Info, help);
        for LinkMeter { link, ends, .. } in links {
            let [client, server] = ends;
            let labels = [
                ("link", link.as_str()),
                ("client", client),
                ("server", server),
            ];
            self.sample(&samples, &labels, 1.0);
        }
    }
}

/// Every direction of every link, with its labels.
fn ways(links: &[LinkMeter]) -> impl Iterator<Item = ([(&str, &str); 2], &DirectionMeter)> {
    links.iter().flat_map(
        |LinkMeter {
             link, directions, ..
         }| {
            let labels = ["up", "down"].map(|way| [("link", link.as_str()), ("direction", way)]);
            labels.into_iter().zip(directions)
        },
    )
}

/// All families.
fn text(format: Format, links: &[LinkMeter]) -> String {
    use Kind::{Counter, Gauge};
    let mut page = Page {
        format,
        text: String::new(),
    };
    page.info(links);
    page.of_links(
        (
            "link_revision",
            Gauge,
            "The revision of the conditions in force; 1 is what the link began with.",
        ),
        links,
        |meter| meter.revision as f64,
    );
    page.verdicts(links);
    page.of_ways(
        ("offered_packets", Counter, "Packets that came to the link."),
        links,
        |way| Some(way.counters.packets as f64),
    );
    page.of_ways(
        (
            "copied_packets",
            Counter,
            "Copies that the emulated network made.",
        ),
        links,
        |way| Some(way.counters.copies as f64),
    );
    page.of_ways(
        (
            "marked_packets",
            Counter,
            "Delivered with a congestion mark that they did not come with.",
        ),
        links,
        |way| Some(way.counters.marked as f64),
    );
    page.of_ways(
        (
            "in_flight_packets",
            Gauge,
            "Packets and copies on their way now.",
        ),
        links,
        |way| Some(way.counters.in_flight as f64),
    );
    page.of_ways(
        (
            "bytes",
            Counter,
            "L2 bytes without FCS that were delivered.",
        ),
        links,
        |way| Some(way.counters.delivered_bytes as f64),
    );
    page.of_ways(
        (
            "offered_bytes",
            Counter,
            "L2 bytes without FCS that came to the link.",
        ),
        links,
        |way| Some(way.counters.bytes as f64),
    );
    page.of_ways(
        (
            "queue_bytes",
            Gauge,
            "L2 bytes that wait for the bottleneck now, where there is a rate.",
        ),
        links,
        |way| way.backlog.map(|waiting| waiting.bytes.0 as f64),
    );
    page.of_ways(
        (
            "queue_delay_seconds",
            Gauge,
            "How long what comes now waits for the bottleneck, where there is a rate.",
        ),
        links,
        |way| way.backlog.map(|waiting| waiting.delay.0 as f64 / 1e9),
    );
    page.delays(links);
    page.round_trips(links);
    page.lateness(links);
    page.of_links(
        (
            "late_packets",
            Counter,
            "Packets that left later than the budget after their due times.",
        ),
        links,
        |meter| meter.late as f64,
    );
    page.of_links(
        (
            "held_bytes",
            Gauge,
            "Bytes of frames held by all links of this one's forwarder, book-keeping included.",
        ),
        links,
        |meter| meter.held_bytes as f64,
    );
    page.of_links(
        ("run_valid", Gauge, "1 while what crossed the link can be trusted: the emulator lost nothing, and at most 1 packet in 20 was late."),
        links,
        |meter| f64::from(u8::from(meter.is_valid)),
    );
    if format == Format::OpenMetrics {
        page.text += "# EOF\n";
    }
    page.text
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn format(accepts: &[&'static str]) -> Format {
        let mut headers = HeaderMap::new();
        for kinds in accepts {
            headers.append(header::ACCEPT, HeaderValue::from_static(kinds));
        }
        Format::for_who_accepts(&headers)
    }

    #[test]
    fn who_accepts_the_older_text_alone_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accepts in [
            &[][..],
            &["*/*"],
            &[prometheus],
            &["text/plain", prometheus],
        ] {
            assert_eq!(format(accepts), Format::OpenMetrics, "{accepts:?}");
        }
        assert_eq!(format(&["text/plain"]), Format::Prometheus);
    }

    #[test]
    fn a_value_of_a_label_is_escaped() {
        let mut page = Page {
            format: Format::OpenMetrics,
            text: String::new(),
        };
        page.sample("x", &[("link", "a\"b\\c\nd")], 1.5);
        assert_eq!(page.text, "x{link=\"a\\\"b\\\\c\\nd\"} 1.5\n");
    }

    #[test]
    fn a_family_is_named_as_its_format_has_it() {
        let head = |format| {
            let mut page = Page {
                format,
                text: String::new(),
            };
            let samples = page.family("offered_bytes", Kind::Counter, "What came.");
            assert_eq!(samples, "farwire_offered_bytes_total");
            page.family("link", Kind::Info, "A link.");
            page.text
        };
        assert_eq!(
            head(Format::OpenMetrics),
            "# HELP farwire_offered_bytes What came.\n# TYPE farwire_offered_bytes counter\n# UNIT farwire_offered_bytes bytes\n\
             # HELP farwire_link A link.\n# TYPE farwire_link info\n"
        );
        assert_eq!(
            head(Format::Prometheus),
            "# HELP farwire_offered_bytes_total What came.\n# TYPE farwire_offered_bytes_total counter\n\
             # HELP farwire_link_info A link.\n# TYPE farwire_link_info gauge\n"
        );
    }
}
