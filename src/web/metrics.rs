//! `/metrics`: the links' counters, for Prometheus and other readers of its formats.
//!
//! The response is OpenMetrics 1.0 text, or Prometheus's older text format (version 0.0.4) for
//! clients that accept only that, such as `promtool check metrics`. All labels have values from
//! fixed sets: links, directions and causes. None of them grows with the traffic.

use std::fmt;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use model::{DropCause, Nanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram, Info};
use prometheus_client::registry::{Registry, Unit};

use super::AppState;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::live::{DirectionMeter, LinkMeter};

/// Returns the links' counters as OpenMetrics 1.0 text, or in Prometheus's text format for clients that accept only that.
#[utoipa::path(
    get, path = "/metrics",
    responses((
        status = OK, description = "The counters",
        content((String = "application/openmetrics-text; version=1.0.0; charset=utf-8"), (String = "text/plain; version=0.0.4; charset=utf-8"))
    ))
)]
pub(super) async fn scrape(State(app): State<AppState>, headers: HeaderMap) -> Response {
    let format = Format::negotiate(&headers);
    let links = app.links.all();
    // A link that ends meanwhile is left out.
    let meters = links.iter().filter_map(|link| link.meter().ok()).collect();
    format.answer(LinkCollector(meters))
}

/// The format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own format, version 0.0.4.
    Prometheus,
}

/// The values of all links.
#[derive(Debug)]
struct LinkCollector(Vec<LinkMeter>);

/// The name of a family, its type and its help text.
pub(super) type Family = (&'static str, MetricType, &'static str);

/// A family with one sample per link, and the function that returns its value.
type LinkFamily = (
    &'static str,
    MetricType,
    &'static str,
    fn(&LinkMeter) -> f64,
);

/// A family with one sample per direction that has a value, and the function that returns it.
type DirectionFamily = (
    &'static str,
    MetricType,
    &'static str,
    fn(&DirectionMeter) -> Option<f64>,
);

impl Format {
    pub(super) fn negotiate(headers: &HeaderMap) -> Self {
        let accepted: Vec<&str> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|kinds| kinds.to_str().ok())
            .collect();
        let has = |kind| accepted.iter().any(|kinds| kinds.contains(kind));
        if has("text/plain") && !has("application/openmetrics-text") {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }

    /// Returns the metrics of `collector` as a response.
    pub(super) fn answer(self, collector: impl Collector) -> Response {
        let kind = [(header::CONTENT_TYPE, self.kind())];
        (kind, self.text(collector)).into_response()
    }

    pub(super) fn text(self, collector: impl Collector) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector));
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = match self {
            Self::OpenMetrics => text::encode(&mut page, &registry),
            Self::Prometheus => prometheus_text::encode(&mut page, &registry),
        };
        page
    }
}

impl Collector for LinkCollector {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        begin(&mut page, BUILD)?.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let mut info = begin(&mut page, LINK)?;
        for LinkMeter { link, ends, .. } in &self.0 {
            let [client, server] = ends;
            info.encode_info(&[("link", link), ("client", client), ("server", server)])?;
        }
        for (name, kind, help, value) in LINK_FAMILIES {
            let mut metric = begin(&mut page, (name, kind, help))?;
            for meter in &self.0 {
                sample(&mut metric, kind, &[("link", &meter.link)], value(meter))?;
            }
        }
        for (name, kind, help, value) in DIRECTION_FAMILIES {
            let mut metric = begin(&mut page, (name, kind, help))?;
            for (labels, direction) in self.directions() {
                if let Some(value) = value(direction) {
                    sample(&mut metric, kind, &labels, value)?;
                }
            }
        }
        self.packets(begin(&mut page, PACKETS)?)?;
        let mut delays = begin(&mut page, DELAY)?;
        for (labels, DirectionMeter { counters, .. }) in self.directions() {
            let (count, sum) = (counters.delay.packets, counters.delay.sum_ms / 1e3);
            let buckets = [(f64::INFINITY, count)];
            let mut one = delays.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let mut times = begin(&mut page, ROUND_TRIP)?;
        for meter in &self.0 {
            for (side, times_of_side) in ["a", "b"].into_iter().zip(&meter.round_trips) {
                let labels = [("link", meter.link.as_str()), ("side", side)];
                let buckets = (&RoundTripTimes::BOUNDS[..], &times_of_side.counts[..]);
                histogram(&mut times, &labels, buckets, times_of_side.sum)?;
            }
        }
        let mut errors = begin(&mut page, DEPARTURE_ERROR)?;
        for LinkMeter { link, lateness, .. } in &self.0 {
            let buckets = (&LatenessBuckets::BOUNDS[..], &lateness.counts[..]);
            histogram(&mut errors, &[("link", link)], buckets, lateness.sum)?;
        }
        Ok(())
    }
}

impl LinkCollector {
    /// Returns every direction of every link with its labels.
    fn directions(&self) -> impl Iterator<Item = ([(&str, &str); 2], &DirectionMeter)> {
        self.0.iter().flat_map(|meter| {
            let labels = |direction| [("link", meter.link.as_str()), ("direction", direction)];
            ["up", "down"]
                .map(labels)
                .into_iter()
                .zip(&meter.directions)
        })
    }

    /// Adds the outcomes of all packets.
    fn packets(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        for ([link, direction], DirectionMeter { counters, .. }) in self.directions() {
            let mut add = |verdict, cause, count: u64| {
                let labels = [link, direction, ("verdict", verdict), ("cause", cause)];
                sample(&mut metric, Counter, &labels, count as f64)
            };
            add("delivered", "", counters.delivered)?;
            // Causes without a drop are listed too, because a rate needs an initial value.
            for cause in DropCause::ALL.map(DropCause::name) {
                let count = counters.dropped.get(cause).copied();
                add("dropped", cause, count.unwrap_or(0))?;
            }
            for (cause, count) in &counters.emulator_lost {
                add("lost", cause, *count)?;
            }
        }
        Ok(())
    }
}

/// Begins a family, whose unit is the end of its name.
pub(super) fn begin<'p>(
    page: &'p mut DescriptorEncoder<'_>,
    (name, kind, help): Family,
) -> Result<MetricEncoder<'p>, fmt::Error> {
    static UNITS: [Unit; 2] = [Unit::Seconds, Unit::Bytes];
    let split = |unit: &'static Unit| {
        let rest = name.strip_suffix(unit.as_str())?.strip_suffix('_')?;
        Some((rest, Some(unit)))
    };
    let (name, unit) = UNITS.iter().find_map(split).unwrap_or((name, None));
    page.encode_descriptor(name, help, unit, kind)
}

/// Adds a sample of a counter or a gauge.
pub(super) fn sample(
    metric: &mut MetricEncoder<'_>,
    kind: MetricType,
    labels: &[(&str, &str)],
    value: f64,
) -> fmt::Result {
    let mut one = metric.encode_family(&labels)?;
    match kind {
        Counter => one.encode_counter::<NoLabelSet, _, f64>(&value, None),
        _ => one.encode_gauge(&value),
    }
}

/// Adds a histogram of times: the count up to each bound, the count beyond the last one, and the
/// sum of all times.
fn histogram(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    (bounds, counts): (&[Nanos], &[u64]),
    sum: Nanos,
) -> fmt::Result {
    let seconds = |time: &Nanos| time.0 as f64 / 1e9;
    let bounds = bounds.iter().map(seconds).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
    let mut one = metric.encode_family(&labels)?;
    one.encode_histogram::<NoLabelSet>(seconds(&sum), counts.iter().sum(), &buckets, None)
}

pub(super) const BUILD: Family = ("farwire_build", Info, "Version of farwire.");
const LINK: Family = (
    "farwire_link",
    Info,
    "A running link. Up is the direction from the client's side to the server's.",
);
const PACKETS: Family = (
    "farwire_packets",
    Counter,
    "Packets and copies by outcome: delivered, dropped by the emulated network, or lost by the emulator itself, which is not an \
     effect of the network.",
);
const DELAY: Family = (
    "farwire_delay_seconds",
    Histogram,
    "Time from the arrival of sent packets until they were due.",
);
const ROUND_TRIP: Family = (
    "farwire_round_trip_seconds",
    Histogram,
    "Round-trip times seen at side a, the client's, and at side b: from the arrival of a TCP segment or an ICMP echo at the side \
     until its answer left there.",
);
const DEPARTURE_ERROR: Family = (
    "farwire_departure_error_seconds",
    Histogram,
    "Time from the due time of packets until they left.",
);

/// The families with one sample per link.
const LINK_FAMILIES: [LinkFamily; 4] = [
    (
        "farwire_link_revision",
        Gauge,
        "Revision of the link's conditions; 1 stands for the initial ones.",
        |meter| meter.revision as f64,
    ),
    (
        "farwire_late_packets",
        Counter,
        "Packets that left more than the late budget after their due times.",
        |meter| meter.late as f64,
    ),
    (
        "farwire_held_bytes",
        Gauge,
        "Bytes of frames held for all links of the same emulator, with bookkeeping.",
        |meter| meter.held_bytes as f64,
    ),
    (
        "farwire_run_valid",
        Gauge,
        "1 if measurements through the link can be trusted: the emulator lost nothing, and at most 1 packet in 20 was late.",
        |meter| f64::from(u8::from(meter.is_valid)),
    ),
];

/// The families with one sample per direction that has a value.
const DIRECTION_FAMILIES: [DirectionFamily; 8] = [
    (
        "farwire_offered_packets",
        Counter,
        "Packets that arrived at the link.",
        |direction| Some(direction.counters.packets as f64),
    ),
    (
        "farwire_copied_packets",
        Counter,
        "Copies made by the emulated network.",
        |direction| Some(direction.counters.copies as f64),
    ),
    (
        "farwire_marked_packets",
        Counter,
        "Packets that were delivered with a congestion mark that they did not arrive with.",
        |direction| Some(direction.counters.marked as f64),
    ),
    (
        "farwire_in_flight_packets",
        Gauge,
        "Packets and copies in flight now.",
        |direction| Some(direction.counters.in_flight as f64),
    ),
    (
        "farwire_bytes",
        Counter,
        "Delivered L2 bytes without FCS.",
        |direction| Some(direction.counters.delivered_bytes as f64),
    ),
    (
        "farwire_offered_bytes",
        Counter,
        "L2 bytes without FCS that arrived at the link.",
        |direction| Some(direction.counters.bytes as f64),
    ),
    (
        "farwire_queue_bytes",
        Gauge,
        "L2 bytes in the queue of the bottleneck now, if there is a rate.",
        |direction| direction.backlog.map(|waiting| waiting.bytes.0 as f64),
    ),
    (
        "farwire_queue_delay_seconds",
        Gauge,
        "Time that a packet arriving now waits for the bottleneck, if there is a rate.",
        |direction| {
            direction
                .backlog
                .map(|waiting| waiting.delay.0 as f64 / 1e9)
        },
    ),
];

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn format(accepts: &[&'static str]) -> Format {
        let mut headers = HeaderMap::new();
        for kinds in accepts {
            headers.append(header::ACCEPT, HeaderValue::from_static(kinds));
        }
        Format::negotiate(&headers)
    }

    #[test]
    fn clients_that_accept_only_the_older_format_get_it() {
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
    fn the_name_of_a_family_depends_on_the_format() {
        let openmetrics = Format::OpenMetrics.text(LinkCollector(Vec::new()));
        let prometheus = Format::Prometheus.text(LinkCollector(Vec::new()));
        for (page, head) in [
            (
                &openmetrics,
                "# HELP farwire_offered_bytes L2 bytes without FCS that arrived at the link.\n\
                 # TYPE farwire_offered_bytes counter\n# UNIT farwire_offered_bytes bytes\n",
            ),
            (&openmetrics, "\n# TYPE farwire_link info\n"),
            (
                &prometheus,
                "\n# TYPE farwire_offered_bytes_total counter\n",
            ),
            (&prometheus, "\n# TYPE farwire_link_info gauge\n"),
        ] {
            assert!(page.contains(head), "{head}: {page}");
        }
        assert!(openmetrics.ends_with("# EOF\n") && !prometheus.contains("# EOF"));
    }
}
