//! `/metrics`: the links' counters, for Prometheus and other readers of its formats: their sums, or
//! those of one link or of each.
//!
//! The response is OpenMetrics 1.0 text, or Prometheus's older text format (version 0.0.4) for
//! clients that accept only that, such as `promtool check metrics`. All labels have values from
//! fixed sets: links, directions, hops and causes. None of them grows with the traffic.

use std::fmt;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use model::{DropCause, Nanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram, Info};
use prometheus_client::registry::{Registry, Unit};
use serde::Deserialize;

use super::AppState;
use super::links::{compute, unknown_link};
use super::problem::Problem;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::live::{DirectionMeter, LinkMeter, LiveLink};

/// The query of a scrape.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ScrapeQuery {
    /// The link whose counters are wanted, which get its name as the label `link`; `*` for every link. By default, the counters are sums over
    /// all links.
    link: Option<String>,
}

/// The query's name of every link.
const EVERY_LINK: &str = "*";

/// Returns the links' counters as OpenMetrics 1.0 text, or in Prometheus's text format for clients that accept only that.
#[utoipa::path(
    get, path = "/metrics", params(ScrapeQuery),
    responses(
        (
            status = OK, description = "The counters",
            content((String = "application/openmetrics-text; version=1.0.0; charset=utf-8"), (String = "text/plain; version=0.0.4; charset=utf-8"))
        ),
        (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem)
    )
)]
pub(super) async fn scrape(
    State(app): State<AppState>,
    query: Result<Query<ScrapeQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Query(query) = query?;
    let format = Format::negotiate(&headers);
    let links = match query.link.as_deref() {
        None | Some(EVERY_LINK) => app.links.all(),
        Some(name) => vec![app.links.get(name).ok_or_else(|| unknown_link(&app))?],
    };
    // Reading ten thousand links takes a while.
    let page = compute(&app, move || {
        let meters = LiveLink::meters(&links);
        format.text(match query.link {
            None => LinkCollector::total(&meters),
            Some(_) => LinkCollector::each(meters),
        })
    });
    let kind = [(header::CONTENT_TYPE, format.kind())];
    Ok((kind, page.await.ok_or_else(Problem::panicked)?).into_response())
}

/// The format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own format, version 0.0.4.
    Prometheus,
}

/// The values of each link, or of all links together.
#[derive(Debug)]
struct LinkCollector {
    /// The number of links.
    count: usize,
    meters: Vec<LinkMeter>,
    /// True if there is one meter, which has the sums over all links.
    is_total: bool,
}

/// The labels of a sample.
type Labels<'a> = Vec<(&'a str, &'a str)>;

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
        if self.is_total {
            sample(&mut begin(&mut page, LINKS)?, Gauge, &[], self.count as f64)?;
        } else {
            self.identities(&mut page)?;
        }
        for (name, kind, help, value) in LINK_FAMILIES {
            let mut metric = begin(&mut page, (name, kind, help))?;
            for meter in &self.meters {
                sample(&mut metric, kind, &self.labels(meter, []), value(meter))?;
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
        if self
            .directions()
            .any(|(_, way)| !way.counters.hops.is_empty())
        {
            self.drops_by_hop(begin(&mut page, DROPPED_BY_HOP)?)?;
        }
        let mut delays = begin(&mut page, DELAY)?;
        for (labels, DirectionMeter { counters, .. }) in self.directions() {
            let (count, sum) = (counters.delay.packets, counters.delay.sum_ms / 1e3);
            let buckets = [(f64::INFINITY, count)];
            let labels = labels.as_slice();
            let mut one = delays.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let mut times = begin(&mut page, ROUND_TRIP)?;
        for meter in &self.meters {
            for (side, times_of_side) in ["a", "b"].into_iter().zip(&meter.round_trips) {
                let labels = self.labels(meter, [("side", side)]);
                let buckets = (&RoundTripTimes::BOUNDS[..], &times_of_side.counts[..]);
                histogram(&mut times, &labels, buckets, times_of_side.sum)?;
            }
        }
        let mut errors = begin(&mut page, DEPARTURE_ERROR)?;
        for meter in &self.meters {
            let lateness = &meter.lateness;
            let buckets = (&LatenessBuckets::BOUNDS[..], &lateness.counts[..]);
            histogram(&mut errors, &self.labels(meter, []), buckets, lateness.sum)?;
        }
        Ok(())
    }
}

impl LinkCollector {
    fn total(meters: &[LinkMeter]) -> Self {
        Self {
            count: meters.len(),
            meters: vec![LinkMeter::total(meters)],
            is_total: true,
        }
    }

    fn each(meters: Vec<LinkMeter>) -> Self {
        Self {
            count: meters.len(),
            meters,
            is_total: false,
        }
    }

    /// Returns the labels of a sample: the link, unless the sample is a sum over all links, and `more`.
    fn labels<'a, const N: usize>(
        &self,
        meter: &'a LinkMeter,
        more: [(&'a str, &'a str); N],
    ) -> Labels<'a> {
        let link = (!self.is_total).then_some(("link", meter.link.as_str()));
        link.into_iter().chain(more).collect()
    }

    /// Adds the ends and the revision of each link.
    fn identities(&self, page: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut info = begin(page, LINK)?;
        for LinkMeter { link, ends, .. } in &self.meters {
            let [client, server] = ends;
            info.encode_info(&[("link", link), ("client", client), ("server", server)])?;
        }
        let mut revisions = begin(page, REVISION)?;
        for meter in &self.meters {
            let labels = self.labels(meter, []);
            sample(&mut revisions, Gauge, &labels, meter.revision as f64)?;
        }
        Ok(())
    }

    /// Returns every direction of every link with its labels.
    fn directions(&self) -> impl Iterator<Item = (Labels<'_>, &DirectionMeter)> {
        self.meters.iter().flat_map(move |meter| {
            let labels = |direction| self.labels(meter, [("direction", direction)]);
            ["up", "down"]
                .map(labels)
                .into_iter()
                .zip(&meter.directions)
        })
    }

    /// Adds the outcomes of all packets.
    fn packets(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        for (of, DirectionMeter { counters, .. }) in self.directions() {
            let mut add = |verdict, cause, count: u64| {
                let labels = [&of[..], &[("verdict", verdict), ("cause", cause)]].concat();
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

    /// Adds the packets that each further hop dropped.
    fn drops_by_hop(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        for (of, DirectionMeter { counters, .. }) in self.directions() {
            for hop in &counters.hops {
                let labels = [&of[..], &[("hop", hop.name.as_str())]].concat();
                let dropped: u64 = hop.dropped.values().sum();
                sample(&mut metric, Counter, &labels, dropped as f64)?;
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
    let put = |one: &mut MetricEncoder<'_>| match kind {
        Counter => one.encode_counter::<NoLabelSet, _, f64>(&value, None),
        _ => one.encode_gauge(&value),
    };
    if labels.is_empty() {
        put(metric)
    } else {
        put(&mut metric.encode_family(&labels)?)
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
    let put = |one: &mut MetricEncoder<'_>| {
        one.encode_histogram::<NoLabelSet>(seconds(&sum), counts.iter().sum(), &buckets, None)
    };
    if labels.is_empty() {
        put(metric)
    } else {
        put(&mut metric.encode_family(&labels)?)
    }
}

pub(super) const BUILD: Family = ("farwire_build", Info, "Version of farwire.");
const LINKS: Family = (
    "farwire_links",
    Gauge,
    "Running links, over which all values are sums. Of waiting times it is the longest.",
);
const REVISION: Family = (
    "farwire_link_revision",
    Gauge,
    "Revision of the link's conditions; 1 stands for the initial ones.",
);
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
const DROPPED_BY_HOP: Family = (
    "farwire_hop_dropped_packets",
    Counter,
    "Packets and copies that a further hop of the link dropped, for any cause.",
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

/// The families with one sample per link, or with one in all.
const LINK_FAMILIES: [LinkFamily; 4] = [
    (
        "farwire_late_packets",
        Counter,
        "Packets that left more than the late budget after their due times.",
        |meter| meter.late as f64,
    ),
    (
        "farwire_held_bytes",
        Gauge,
        "Bytes of frames held, with bookkeeping, for all links of the same emulator; in the sums, of every emulator.",
        |meter| meter.held_bytes as f64,
    ),
    (
        "farwire_shared_ring_lost_frames",
        Counter,
        "Frames that the emulator lost because a receive ring was full that several links share, for all links of the same emulator; \
         in the sums, of every emulator.",
        |meter| meter.shared_rings_lost as f64,
    ),
    (
        "farwire_run_valid",
        Gauge,
        "1 if measurements through the link can be trusted, or through every link in the sums: the emulator lost nothing, and at \
         most 1 packet in 20 was late.",
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
        let none = || LinkCollector::each(Vec::new());
        let openmetrics = Format::OpenMetrics.text(none());
        let prometheus = Format::Prometheus.text(none());
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

    #[test]
    fn samples_are_sums_over_all_links_or_have_the_name_of_their_link() {
        let meter = |link: &str, packets| {
            let mut meter = LinkMeter {
                link: link.to_owned(),
                is_valid: true,
                late: 1,
                shared_rings_lost: 9,
                ..LinkMeter::default()
            };
            meter.directions[0].counters.packets = packets;
            meter
        };
        let both = vec![meter("a-b", 3), meter("c-d", 4)];
        let sums = Format::OpenMetrics.text(LinkCollector::total(&both));
        for line in [
            "\nfarwire_links 2.0\n",
            "\nfarwire_late_packets_total 2.0\n",
            "\nfarwire_shared_ring_lost_frames_total 9.0\n",
            "\nfarwire_offered_packets_total{direction=\"up\"} 7.0\n",
            "\nfarwire_departure_error_seconds_count 0\n",
        ] {
            assert!(sums.contains(line), "{line}: {sums}");
        }
        assert!(!sums.contains("link=") && !sums.contains("farwire_link_revision"));
        let each = Format::OpenMetrics.text(LinkCollector::each(both));
        for line in [
            "\nfarwire_link_info{link=\"a-b\",client=\"\",server=\"\"} 1\n",
            "\nfarwire_offered_packets_total{link=\"a-b\",direction=\"up\"} 3.0\n",
            "\nfarwire_offered_packets_total{link=\"c-d\",direction=\"up\"} 4.0\n",
        ] {
            assert!(each.contains(line), "{line}: {each}");
        }
        assert!(!each.contains("farwire_links "));
    }
}
