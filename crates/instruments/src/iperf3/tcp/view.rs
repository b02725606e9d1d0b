//! A TCP test as iperf3 tells it: its JSON under its names, and its table.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::view::{Setting, cpu, sum_name};
use super::report::{Report, Sum};
use super::{Connection, Interval, StreamInterval, StreamTotal, cwnd_bytes};
use record::quantity;
use record::{Direction, Metric};

/// What a test was set up with.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) setting: Setting<'a>,
    pub(crate) connections: Vec<Connection>,
}

impl Context<'_> {
    /// What took effect, of what could be asked for.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let Some(first) = self.connections.first() else {
            return Vec::new();
        };
        let [send, receive] = first.buffers;
        vec![
            (
                "mss".to_owned(),
                format!("{} bytes (TCP_MAXSEG)", first.mss),
            ),
            (
                "socket buffers".to_owned(),
                format!(
                    "{send} bytes to send, {receive} to receive, at the start (SO_SNDBUF, SO_RCVBUF)"
                ),
            ),
        ]
    }

    fn start(&self) -> Value {
        let mut start = self.setting.start();
        if let Some(first) = self.connections.first() {
            start["tcp_mss_default"] = first.mss.into();
            start["sndbuf_actual"] = first.buffers[0].into();
            start["rcvbuf_actual"] = first.buffers[1].into();
        }
        start
    }
}

/// The test under iperf3's names; what was not measured is not there.
pub(crate) fn iperf3(report: &Report<'_>, context: &Context<'_>, failure: Option<&str>) -> Value {
    let intervals: Vec<_> = report
        .intervals
        .iter()
        .map(|interval| interval_json(report, interval))
        .collect();
    let mut test = json!({
        "start": context.start(),
        "intervals": intervals,
        "end": end_json(report),
    });
    if let Some(cause) = failure {
        test["error"] = cause.into();
    }
    test
}

fn interval_json(report: &Report<'_>, interval: &Interval) -> Value {
    let rate = |bytes: u64| bytes as f64 * 8.0 / (interval.end_s - interval.start_s);
    let common = |bytes: u64, sends: bool| {
        json!({
            "start": interval.start_s,
            "end": interval.end_s,
            "seconds": interval.end_s - interval.start_s,
            "bytes": bytes,
            "bits_per_second": rate(bytes),
            "omitted": interval.omitted,
            "sender": sends,
        })
    };
    let one = |stream: &StreamInterval| {
        let mut json = common(stream.bytes, stream.spec.sends);
        json["socket"] = stream.spec.id.into();
        if stream.spec.sends {
            json["retransmits"] = stream.retransmits.into();
            json["snd_cwnd"] = cwnd_bytes(&stream.info).into();
            json["snd_wnd"] = stream.info.snd_wnd.into();
            json["rtt"] = micros(stream.info.rtt);
            json["rttvar"] = micros(stream.info.rtt_var);
            json["pmtu"] = stream.info.pmtu.into();
        }
        json
    };
    let streams: Vec<_> = interval.streams.iter().map(one).collect();
    let mut json = json!({ "streams": streams });
    for sends in [true, false] {
        let of = || {
            let streams = interval.streams.iter();
            streams.filter(|stream| stream.spec.sends == sends)
        };
        if of().next().is_some() {
            let mut sum = common(of().map(|stream| stream.bytes).sum(), sends);
            if sends {
                let retransmits: u32 = of().map(|stream| stream.retransmits).sum();
                sum["retransmits"] = retransmits.into();
            }
            json[sum_name(report.plan, "sum", sends)] = sum;
        }
    }
    json
}

fn end_json(report: &Report<'_>) -> Value {
    let streams: Vec<_> = report
        .totals
        .iter()
        .map(|total| stream_json(report, total))
        .collect();
    let mut end = json!({ "streams": streams });
    for sends in [true, false] {
        if report.of(sends).next().is_none() {
            continue;
        }
        let sum = report.sum(sends);
        if let Some(sent) = side(&sum, sum.sent, sends, true) {
            end[sum_name(report.plan, "sum_sent", sends)] = sent;
        }
        if let Some(received) = side(&sum, sum.received, sends, false) {
            end[sum_name(report.plan, "sum_received", sends)] = received;
        }
    }
    end["cpu_utilization_percent"] = cpu(report.sides);
    let remote = report.sides.remote.as_ref();
    let ours = report.sides.local.congestion_used.as_ref();
    let theirs = remote.and_then(|remote| remote.congestion_used.as_ref());
    let (sender, receiver) = if report.plan.way.goes_up() {
        (ours, theirs)
    } else {
        (theirs, ours)
    };
    for (name, value) in [
        ("sender_tcp_congestion", sender),
        ("receiver_tcp_congestion", receiver),
    ] {
        if let Some(value) = value {
            end[name] = value.as_str().into();
        }
    }
    end
}

fn stream_json(report: &Report<'_>, total: &StreamTotal) -> Value {
    let sends = total.spec.sends;
    let sum = report.stream(total);
    let mut json = json!({});
    if let Some(mut sender) = side(&sum, sum.sent, sends, true) {
        sender["socket"] = total.spec.id.into();
        if sends {
            sender["max_snd_cwnd"] = total.most_cwnd.into();
            sender["max_snd_wnd"] = total.most_wnd.into();
            if let Some([least, mean, most]) = total.rtt {
                sender["min_rtt"] = micros(least);
                sender["mean_rtt"] = micros(mean);
                sender["max_rtt"] = micros(most);
            }
        }
        json["sender"] = sender;
    }
    if let Some(mut receiver) = side(&sum, sum.received, sends, false) {
        receiver["socket"] = total.spec.id.into();
        json["receiver"] = receiver;
    }
    json
}

fn side(sum: &Sum, counted: Option<(u64, f64)>, sends: bool, sender: bool) -> Option<Value> {
    let (bytes, seconds) = counted?;
    let mut json = json!({
        "start": 0,
        "end": seconds,
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 },
        "sender": sends,
    });
    if let (true, Some(retransmits)) = (sender, sum.retransmits) {
        json["retransmits"] = retransmits.into();
    }
    Some(json)
}

fn micros(time: Duration) -> Value {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into()
}

/// One line an interval and direction, then the ends' totals; every rate says of which layer it is.
pub(crate) fn text(report: &Report<'_>) -> String {
    let mut text = String::new();
    let many = report.plan.parallel > 1;
    let _ = writeln!(
        text,
        "{:<17} {:>4} {:>6} {:>18} {:>18} {:>8} {:>10} {:>10}",
        "interval [s]",
        "way",
        "stream",
        "goodput (L7)",
        "wire rate (L1)",
        "retrans",
        "rtt [ms]",
        "cwnd [KiB]"
    );
    for interval in report.intervals {
        let mut rows: Vec<(Option<u32>, Vec<&StreamInterval>)> = Vec::new();
        for sends in [true, false] {
            let streams = interval.streams.iter();
            let of: Vec<_> = streams.filter(|s| s.spec.sends == sends).collect();
            if many {
                rows.extend(
                    of.iter()
                        .map(|stream| (Some(stream.spec.id), vec![*stream])),
                );
            }
            if !of.is_empty() {
                rows.push((None, of));
            }
        }
        for (id, streams) in rows {
            let _ = writeln!(text, "{}", row(report, interval, id, many, &streams));
        }
    }
    text
}

fn row(
    report: &Report<'_>,
    interval: &Interval,
    id: Option<u32>,
    many: bool,
    streams: &[&StreamInterval],
) -> String {
    let sends = streams[0].spec.sends;
    let lasted = interval.end_s - interval.start_s;
    let arrived: u64 = streams.iter().map(|stream| stream.arrived).sum();
    let goodput = arrived as f64 * 8.0 / lasted;
    let l1 = report.layers(sends).map(|layers| layers.l1(goodput));
    let rate = |rate| quantity(Metric::GoodputBitPerS, rate);
    let stream = match id {
        Some(id) => id.to_string(),
        None if many => "all".to_owned(),
        None => streams[0].spec.id.to_string(),
    };
    let way = match report.direction(sends) {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let only = (streams.len() == 1 && sends).then(|| streams[0].info);
    let retransmits: u32 = streams.iter().map(|stream| stream.retransmits).sum();
    format!(
        "{:<17} {way:>4} {stream:>6} {:>18} {:>18} {:>8} {:>10} {:>10}{}",
        format!("{:.2} - {:.2}", interval.start_s, interval.end_s),
        rate(goodput),
        l1.map(rate).unwrap_or_default(),
        if sends {
            retransmits.to_string()
        } else {
            String::new()
        },
        only.map(|info| format!("{:.3}", info.rtt.as_secs_f64() * 1e3))
            .unwrap_or_default(),
        only.map(|info| format!("{:.0}", cwnd_bytes(&info) as f64 / 1024.0))
            .unwrap_or_default(),
        if interval.omitted { "  (omitted)" } else { "" },
    )
}
