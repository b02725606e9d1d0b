//! The results that both ends exchange after a test.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::fields::{Fields, required};
use super::plan::{MOST_STREAMS, Streams};
use super::run::percent;
use crate::udp::Detail;
use record::{Figure, Metric, Statistic};

/// TCP_CA_NAME_MAX of the kernel.
const LONGEST_CONGESTION: usize = 16;

/// One end's view of a whole test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// CPU time in percent of the test's time: total, user, system.
    pub(crate) cpu_percent: [f64; 3],
    /// Whether this end knows the retransmissions of what it sent; absent when it did not send.
    pub(crate) has_retransmits: Option<bool>,
    /// The congestion control of this end's sockets.
    pub(crate) congestion_used: Option<String>,
    /// One entry a stream.
    pub(crate) streams: Vec<StreamResults>,
}

/// One end's view of one stream, without what was omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamResults {
    /// The stream's number.
    pub(crate) id: u32,
    /// Payload bytes that this end sent, or received.
    pub(crate) bytes: u64,
    /// TCP segments sent again; absent when not known.
    pub(crate) retransmits: Option<u64>,
    /// RFC 3550 jitter in seconds; 0 over TCP.
    pub(crate) jitter_s: f64,
    /// Datagrams missing at the receiver, without what was omitted; absent when not known.
    pub(crate) errors: Option<u64>,
    /// Datagrams sent, or the highest number received.
    pub(crate) packets: u64,
    /// `errors` and `packets` of the omitted start; from iperf3 3.15 or so on.
    pub(crate) omitted: Option<[u64; 2]>,
    /// From the start of what counts to its end at this end, in seconds; absent before iperf3 3.2.
    pub(crate) seconds: Option<f64>,
    /// What farwire says besides.
    pub(crate) detail: Option<Detail>,
}

/// Both ends' views of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sides {
    /// This end's.
    pub(crate) local: Results,
    /// The other end's; absent when the test did not come to that.
    pub(crate) remote: Option<Results>,
}

impl Sides {
    /// CPU time of both ends of a direction that this end sends, or receives.
    pub(crate) fn cpu(&self, sends: bool) -> Vec<Figure> {
        let ours = Some(self.local.cpu_percent);
        let theirs = self.remote.as_ref().map(|remote| remote.cpu_percent);
        let (sender, receiver) = if sends {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        let mut figures = Vec::new();
        for (metrics, cpu) in [
            (
                [Metric::SenderCpuPercent, Metric::SenderUserCpuPercent],
                sender,
            ),
            (
                [Metric::ReceiverCpuPercent, Metric::ReceiverUserCpuPercent],
                receiver,
            ),
        ] {
            let values = metrics.into_iter().zip(cpu.into_iter().flatten());
            figures
                .extend(values.map(|(metric, value)| Figure::new(metric, Statistic::Mean, value)));
        }
        figures
    }
}

impl Results {
    /// This end's view of streams that have stopped after running for so long.
    pub(crate) fn of(streams: &impl Streams, sends: bool, lasted: Duration) -> Self {
        Self {
            cpu_percent: percent(streams.cpu(), lasted),
            has_retransmits: sends.then_some(true),
            congestion_used: streams.congestion_used(),
            streams: streams.results(),
        }
    }

    /// Reads what the other end sent.
    ///
    /// # Errors
    /// It is not what iperf3 3.12 and later send; says which field.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::parse(bytes)?;
        let cpu = |name: &str| required(name, fields.number(name));
        let cpu_percent = [
            cpu("cpu_util_total")?,
            cpu("cpu_util_user")?,
            cpu("cpu_util_system")?,
        ];
        let name = "sender_has_retransmits";
        let has_retransmits = match required(name, fields.integer(name))? {
            ..0 => None,
            number => Some(number > 0),
        };
        let most = 2 * MOST_STREAMS as usize;
        let streams = fields.objects("streams", most)?;
        let streams: Result<_> = streams.iter().map(StreamResults::of).collect();
        Ok(Self {
            cpu_percent,
            has_retransmits,
            congestion_used: fields.text("congestion_used", LONGEST_CONGESTION)?,
            streams: streams?,
        })
    }

    /// As iperf3 writes it.
    pub(crate) fn to_json(&self) -> Value {
        let streams: Vec<_> = self.streams.iter().map(StreamResults::to_json).collect();
        let mut json = json!({
            "cpu_util_total": self.cpu_percent[0],
            "cpu_util_user": self.cpu_percent[1],
            "cpu_util_system": self.cpu_percent[2],
            "sender_has_retransmits": self.has_retransmits.map_or(-1, i32::from),
            "streams": streams,
        });
        if let Some(name) = &self.congestion_used {
            json["congestion_used"] = name.as_str().into();
        }
        json
    }

    /// The entry of stream `id`.
    pub(crate) fn stream(&self, id: u32) -> Option<&StreamResults> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

impl StreamResults {
    fn of(fields: &Fields) -> Result<Self> {
        let id: u32 =
            required("id", fields.within("id", 1, i64::from(u32::MAX))).context("in streams")?;
        Self::read(id, fields).with_context(|| format!("in streams, id {id}"))
    }

    fn read(id: u32, fields: &Fields) -> Result<Self> {
        // Below 0 is "not known".
        let known = |name: &str| -> Result<Option<u64>> {
            Ok(u64::try_from(required(name, fields.integer(name))?).ok())
        };
        let omitted = |name: &str| -> Result<Option<u64>> {
            let count = fields.integer(name)?;
            Ok(count.map(|count| u64::try_from(count).unwrap_or(0)))
        };
        let bytes = required("bytes", fields.within("bytes", 0, i64::MAX))?;
        let packets = required("packets", fields.within("packets", 0, i64::MAX))?;
        let times = (fields.number("start_time")?, fields.number("end_time")?);
        Ok(Self {
            id,
            bytes,
            retransmits: known("retransmits")?,
            jitter_s: required("jitter", fields.number("jitter"))?,
            errors: known("errors")?,
            packets,
            omitted: match (omitted("omitted_errors")?, omitted("omitted_packets")?) {
                (Some(errors), Some(packets)) => Some([errors, packets]),
                (None, None) => None,
                _ => {
                    anyhow::bail!("omitted_errors and omitted_packets come together or not at all")
                }
            },
            seconds: match times {
                (Some(start), Some(end)) => Some(end - start).filter(|s| *s > 0.0),
                _ => None,
            },
            detail: fields.detail("farwire")?,
        })
    }

    fn to_json(&self) -> Value {
        let [omitted_errors, omitted_packets] = self.omitted.unwrap_or_default();
        let mut json = json!({
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
        });
        if let Some(detail) = self.detail {
            json["farwire"] = json!(detail);
        }
        json
    }
}

fn signed(count: Option<u64>) -> Value {
    count.map_or_else(|| (-1).into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_3_12: &str = r#"{"cpu_util_total":98.1,"cpu_util_user":2.2,"cpu_util_system":95.9,
        "sender_has_retransmits":18446744073709551615,"congestion_used":"cubic","streams":[
        {"id":1,"bytes":1310720,"retransmits":18446744073709551615,"jitter":0,"errors":0,
         "packets":0,"start_time":0,"end_time":1.00009}]}"#;

    #[test]
    fn the_results_of_a_receiver_of_3_12_are_read() {
        let results = Results::parse(OF_3_12.as_bytes()).unwrap();
        assert_eq!(results.has_retransmits, None);
        assert_eq!(results.congestion_used.as_deref(), Some("cubic"));
        let stream = results.stream(1).unwrap();
        assert_eq!((stream.bytes, stream.retransmits), (1_310_720, None));
        assert_eq!(stream.seconds, Some(1.00009));
        assert_eq!(results.stream(3), None);
    }

    #[test]
    fn results_are_read_as_they_were_written() {
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
            }],
        };
        let bytes = results.to_json().to_string();
        assert_eq!(Results::parse(bytes.as_bytes()).unwrap(), results);
    }

    #[test]
    fn an_error_names_the_stream_and_the_field() {
        let text = OF_3_12.replace("1310720", "\"many\"");
        let error = format!("{:#}", Results::parse(text.as_bytes()).unwrap_err());
        assert_eq!(
            error,
            r#"in streams, id 1: bytes must be a whole number, not "many""#
        );
        let text = OF_3_12.replace("\"errors\":0,", "");
        let error = format!("{:#}", Results::parse(text.as_bytes()).unwrap_err());
        assert_eq!(error, "in streams, id 1: errors is missing");
    }
}
