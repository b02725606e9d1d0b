//! The instruments: each acts in the calling thread's network namespace and hands back one [`Measurement`].

pub(crate) mod http;
pub(crate) mod launch;
mod meter;
pub(crate) mod ping;
pub(crate) mod stop;
pub(crate) mod system_ping;
mod tally;
mod udp;
pub(crate) mod wget;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use stop::Stop;

/// What one instrument found in one go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Every single observation, in the order of `at_s`.
    pub(crate) samples: Vec<Sample>,
    /// What the samples add up to; absent when nothing was measured.
    pub(crate) summary: Option<Summary>,
    /// What the numbers are and how they were taken: "rtt", "timestamps", "tool".
    pub(crate) facts: BTreeMap<String, String>,
    /// Why the measurement is not what was asked for; what was seen until then is kept.
    pub(crate) failure: Option<String>,
}

/// One observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Seconds since the instrument started: when a probe was sent, when an interval ended.
    pub(crate) at_s: f64,
    /// What was observed, with its unit.
    pub(crate) metric: Metric,
    /// The probe's sequence number, or the interval's number, from 1.
    pub(crate) index: u64,
    /// The observed value in the metric's unit.
    pub(crate) value: f64,
}

/// What a sample's value is; the name ends in the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Round-trip time of a probe answered in time.
    RttMs,
    /// A probe without an answer in time; the value is 1.
    LostPackets,
    /// Round-trip time of an answer after the time-out; the probe counts as lost too.
    LateRttMs,
    /// Round-trip time of a second answer to one probe.
    DuplicateRttMs,
    /// Payload bytes received in the interval that ends at the sample's time.
    ReceivedBytes,
}

/// What the samples of one measurement add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Summary {
    /// Of echo requests and their answers.
    Ping(PingSummary),
    /// Of a download.
    Download(DownloadSummary),
}

/// Echo requests and their answers, as ping(8) counts them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PingSummary {
    /// Requests sent.
    pub(crate) sent: u64,
    /// Requests answered within the time-out.
    pub(crate) received: u64,
    /// Answers after the time-out.
    pub(crate) late: u64,
    /// Second and further answers to one request.
    pub(crate) duplicates: u64,
    /// Requests not answered in time, in percent of those sent.
    pub(crate) lost_percent: f64,
    /// Of the answers in time; absent when there was none.
    pub(crate) rtt_ms: Option<Spread>,
}

/// Where a set of values lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// ping(8)'s: the square root of the mean square less the squared mean.
    pub(crate) mdev: f64,
}

/// A download's totals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DownloadSummary {
    /// Payload bytes received.
    pub(crate) bytes: u64,
    /// From the request to the last payload byte.
    pub(crate) duration_s: f64,
    /// From the request to the first byte of the answer; absent when the tool does not say.
    pub(crate) first_byte_s: Option<f64>,
    /// Payload bytes over the duration: goodput, L7.
    pub(crate) goodput_bytes_per_s: f64,
}

impl Measurement {
    /// A measurement that never came about.
    pub(crate) fn failed(cause: impl ToString) -> Self {
        Self {
            failure: Some(cause.to_string()),
            ..Self::default()
        }
    }

    /// With one more thing to know about the numbers.
    pub(crate) fn with_fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.insert(name.to_owned(), value.to_string());
        self
    }
}

impl Spread {
    /// Of `values`; nothing when there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let mean_square = sorted.iter().map(|v| v * v).sum::<f64>() / count;
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self {
            min,
            mean,
            median: f64::midpoint(low, high),
            max,
            mdev: (mean_square - mean * mean).max(0.0).sqrt(),
        })
    }
}

impl Metric {
    /// As the record and the CSV name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RttMs => "rtt_ms",
            Self::LostPackets => "lost_packets",
            Self::LateRttMs => "late_rtt_ms",
            Self::DuplicateRttMs => "duplicate_rtt_ms",
            Self::ReceivedBytes => "received_bytes",
        }
    }
}

/// Serde for a duration as a number of seconds, as the names of such fields say.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, target: S) -> Result<S::Ok, S::Error> {
        target.serialize_f64(time.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(source)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_pings_mdev_and_the_middle_of_an_even_count() {
        // From a real run of ping(8): rtt min/avg/max/mdev = 0.034/0.326/0.907/0.410 ms
        let spread = Spread::of(&[0.907, 0.038, 0.034]).unwrap();
        assert!((spread.mean - 0.326).abs() < 0.001);
        assert!((spread.mdev - 0.410).abs() < 0.001);
        assert!((spread.median - 0.038).abs() < 1e-12);
        assert!((Spread::of(&[1.0, 2.0]).unwrap().median - 1.5).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_metric_is_named_alike_in_the_record_and_in_the_csv() {
        for metric in [
            Metric::RttMs,
            Metric::LostPackets,
            Metric::LateRttMs,
            Metric::DuplicateRttMs,
            Metric::ReceivedBytes,
        ] {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }
}
