//! A UDP test as iperf3 tells it: its JSON under its names.

use std::time::Instant;

use serde_json::{Value, json};

use super::readings::{Ending, Reading, StreamReading};
use super::streams::UdpStreams;
use crate::iperf3::detail::Detail;
use crate::iperf3::messages::{Sides, StreamResults};
use crate::iperf3::view::{Setting, cpu, sum_name};

/// The test under iperf3's names; what was not measured is not there.
///
/// As iperf3 has it, `lost_packets` are numbers that did not come, whoever dropped them.
pub(super) fn iperf3(
    streams: &UdpStreams,
    sides: &Sides,
    setting: &Setting<'_>,
    failure: Option<&str>,
) -> Value {
    let view = View {
        streams,
        sides,
        setting,
    };
    let mut test = json!({
        "start": setting.start(),
        "intervals": view.intervals(),
        "end": view.end(),
    });
    if let Some(cause) = failure {
        test["error"] = cause.into();
    }
    test
}

struct View<'a> {
    streams: &'a UdpStreams,
    sides: &'a Sides,
    setting: &'a Setting<'a>,
}

/// What one end counted of a stream or of several, in an interval or in the whole test.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    bytes: u64,
    packets: u64,
    /// At a receiver; those that come late are taken back in the interval in which they come.
    lost: Option<i64>,
    /// RFC 3550 jitter, summed up over so many streams.
    jitter_ms: f64,
    streams: u32,
}

impl View<'_> {
    /// The stream's numbers, of those that this end sends or receives.
    fn ids(&self, sends: bool) -> Vec<u32> {
        let results = self.sides.local.streams.iter();
        let of = results.filter(|local| is_sender(local) == sends);
        of.map(|local| local.id).collect()
    }

    fn intervals(&self) -> Vec<Value> {
        let started = self.streams.started();
        let mut intervals = Vec::new();
        let mut before: Option<&Reading> = None;
        for reading in self.streams.readings() {
            if reading.ending != Ending::Nothing {
                let began = before.map_or(started, |before| before.at);
                intervals.push(self.interval(reading, before, began));
            }
            before = Some(reading);
        }
        intervals
    }

    fn interval(&self, reading: &Reading, before: Option<&Reading>, began: Instant) -> Value {
        let seconds = |to: Instant| (to - self.streams.started()).as_secs_f64();
        let (start, end) = (seconds(began), seconds(reading.at));
        let common = |counts: &Counts, sends: bool| {
            let mut json = counts.json(start, end, sends);
            json["omitted"] = (reading.ending == Ending::Omitted).into();
            json
        };
        let mut streams = Vec::new();
        let mut sums = [Counts::default(); 2];
        let results = self.sides.local.streams.iter().zip(&reading.streams);
        for (index, (local, now)) in results.enumerate() {
            let then = before.and_then(|before| before.streams.get(index));
            let (sends, counts) = Counts::between(then, now);
            let sum = &mut sums[usize::from(sends)];
            *sum = sum.with(counts);
            let mut stream = common(&counts, sends);
            stream["socket"] = local.id.into();
            streams.push(stream);
        }
        let mut json = json!({ "streams": streams });
        for sends in [true, false] {
            let sum = &sums[usize::from(sends)];
            if sum.streams > 0 {
                json[sum_name(self.setting.plan, "sum", sends)] = common(sum, sends);
            }
        }
        json
    }

    fn end(&self) -> Value {
        let mut streams = Vec::new();
        let mut end = json!({});
        for sends in [true, false] {
            let ids = self.ids(sends);
            if ids.is_empty() {
                continue;
            }
            let ends = ids.iter().map(|id| self.ends(*id, sends));
            for (id, [sent, came]) in ids.iter().zip(ends.clone()) {
                let Some((sent, seconds)) = sent.and_then(|sent| Some((sent, sent.seconds?)))
                else {
                    continue;
                };
                let counts = Counts::of(sent).that_came(came.map(Counts::of));
                let mut stream = counts.json(0.0, seconds, sends);
                stream["socket"] = (*id).into();
                if let Some(Detail::Receiver(detail)) = came.and_then(|came| came.detail) {
                    stream["out_of_order"] = detail.reordered.into();
                }
                streams.push(json!({ "udp": stream }));
            }
            let sum = |side: usize| sum(ends.clone().map(|ends| ends[side]));
            let (sent, came) = (sum(0), sum(1));
            let name = |name| sum_name(self.setting.plan, name, sends);
            if let Some((sent, seconds)) = sent {
                end[name("sum_sent")] = sent.json(0.0, seconds, true);
                let came = came.map(|(came, _)| came);
                end[name("sum")] = sent.that_came(came).json(0.0, seconds, sends);
            }
            if let Some((came, seconds)) = came {
                end[name("sum_received")] = came.json(0.0, seconds, false);
            }
        }
        end["streams"] = streams.into();
        end["cpu_utilization_percent"] = cpu(self.sides);
        end
    }

    /// What the sending and the receiving end say of a stream.
    fn ends(&self, id: u32, sends: bool) -> [Option<&StreamResults>; 2] {
        let (local, remote) = (&self.sides.local, self.sides.remote.as_ref());
        let ends = [
            local.stream(id),
            remote.and_then(|remote| remote.stream(id)),
        ];
        if sends { ends } else { [ends[1], ends[0]] }
    }
}

impl Counts {
    /// Of the whole test.
    fn of(results: &StreamResults) -> Self {
        let [omitted_lost, omitted] = results.omitted.unwrap_or_default();
        Self {
            bytes: results.bytes,
            packets: results.packets.saturating_sub(omitted),
            lost: results
                .errors
                .map(|lost| lost.saturating_sub(omitted_lost).cast_signed()),
            jitter_ms: results.jitter_s * 1e3,
            streams: 1,
        }
    }

    /// Of an interval, and whether this end sent.
    fn between(then: Option<&StreamReading>, now: &StreamReading) -> (bool, Self) {
        let counts = match now {
            StreamReading::Sent(now) => {
                let then = match then {
                    Some(StreamReading::Sent(then)) => *then,
                    _ => Default::default(),
                };
                Self {
                    bytes: now.bytes.saturating_sub(then.bytes),
                    packets: now.datagrams.saturating_sub(then.datagrams),
                    ..Self::default()
                }
            }
            StreamReading::Came(now) => {
                let then = match then {
                    Some(StreamReading::Came(then)) => *then,
                    _ => Default::default(),
                };
                let missing = now.missing().cast_signed() - then.missing().cast_signed();
                Self {
                    bytes: now.bytes.saturating_sub(then.bytes),
                    packets: now.expected().saturating_sub(then.expected()),
                    lost: Some(missing),
                    jitter_ms: now.jitter_ns / 1e6,
                    ..Self::default()
                }
            }
        };
        let sends = matches!(now, StreamReading::Sent(_));
        (
            sends,
            Self {
                streams: 1,
                ..counts
            },
        )
    }

    fn with(self, other: Self) -> Self {
        if self.streams == 0 {
            return other;
        }
        let lost = self.lost.zip(other.lost);
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            packets: self.packets.saturating_add(other.packets),
            lost: lost.map(|(a, b)| a.saturating_add(b)),
            jitter_ms: self.jitter_ms + other.jitter_ms,
            streams: self.streams + other.streams,
        }
    }

    /// What was sent, with what became of it at the receiver, as iperf3 sums a stream up.
    fn that_came(self, came: Option<Self>) -> Self {
        let came = came.unwrap_or_default();
        Self {
            lost: came.lost,
            jitter_ms: came.jitter_ms,
            ..self
        }
    }

    /// iperf3's jitter of several streams is their mean.
    fn json(&self, start: f64, end: f64, sender: bool) -> Value {
        let seconds = end - start;
        let rate = self.bytes as f64 * 8.0 / seconds;
        let mut json = json!({
            "start": start,
            "end": end,
            "seconds": seconds,
            "bytes": self.bytes,
            "bits_per_second": if seconds > 0.0 { rate } else { 0.0 },
            "packets": self.packets,
            "sender": sender,
        });
        if let Some(lost) = self.lost {
            let percent = 100.0 * lost as f64 / self.packets as f64;
            json["jitter_ms"] = (self.jitter_ms / f64::from(self.streams)).into();
            json["lost_packets"] = lost.into();
            json["lost_percent"] = if self.packets > 0 { percent } else { 0.0 }.into();
        }
        json
    }
}

/// What one end says of all streams of a direction, and its longest time; nothing where it does not say all.
fn sum<'a>(mut streams: impl Iterator<Item = Option<&'a StreamResults>>) -> Option<(Counts, f64)> {
    streams.try_fold((Counts::default(), 0.0), |(sum, longest), results| {
        let results = results?;
        Some((sum.with(Counts::of(results)), results.seconds?.max(longest)))
    })
}

fn is_sender(local: &StreamResults) -> bool {
    matches!(local.detail, Some(Detail::Sender(_)))
}
