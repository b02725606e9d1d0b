//! The trace of a direction that serves a light load in another way than a full one: rates over time for the full load,
//! and trains of packets over time for the light one.
//!
//! A line of the light load has a time, the delay of the first packet of a train, and the times at which the packets of
//! the train are delivered after that one, all in milliseconds. The delay is that of the idle path, with the time that
//! the rate needs for a probe. The last line is the end of the trace.

use super::{Line, bits, bits_or_stall, content, interval, ms, nine_of_ten};
use crate::delay::DelayFit;
use crate::light_load::LightLoadFit;
use crate::over_time::OverTime;

/// The most lines of a light load, apart from its end.
const MOST_LINES: usize = 600;
/// The most bytes of a light load. A file of conditions may have 64 KiB of it.
const MOST_BYTES: usize = 60_000;
/// The bytes of the longest number of milliseconds with three decimals, an hour, and of the blank behind it.
const LONGEST_NUMBER: usize = 12;

/// Returns the line of the rate over time and of the light load beside it. Each delay is `half` of a round trip, if
/// that has a text.
pub(super) fn line(
    rates: &OverTime,
    light: &LightLoadFit,
    delay: Option<&DelayFit>,
    half: &str,
) -> Line {
    let served = format!(
        "the light load, {} packets behind each other: {}",
        light.packets,
        interval(light.rate, bits)
    );
    let delayed = delay.and_then(|delay| {
        let text = match &delay.over_time {
            Some(all) => nine_of_ten("delay", all, ms)?,
            None => format!("the delay: {}", interval(delay.ms, ms)),
        };
        Some(half.to_owned() + &text)
    });
    let comments = [
        nine_of_ten("rate", rates, bits_or_stall),
        Some(served),
        delayed,
    ];
    let comments: Vec<String> = comments.into_iter().flatten().collect();
    Line {
        key: "trace",
        value: format!(
            "{{ file = \"fitted\", content = \"{}\", light = \"fitted light\", light_content = \"{}\" }}",
            content(Some(rates), None),
            trains(light, delay)
        ),
        comment: comments.join("; "),
    }
}

/// Returns the content of a light load, a line for each window. If its delays over time last longer, its trains begin
/// again, and the other way round.
fn trains(light: &LightLoadFit, delay: Option<&DelayFit>) -> String {
    let delays = delay.and_then(|delay| delay.over_time.as_ref());
    let first = light.deliveries_ms.first();
    let both = first.into_iter().chain(delays);
    let lasts_s = both.map(OverTime::lasts_s).fold(0.0, f64::max);
    let every_s = first.map_or(lasts_s, |one| one.every_s);
    let longest_line = LONGEST_NUMBER * (2 + light.deliveries_ms.len());
    let most = MOST_LINES.min(MOST_BYTES / longest_line) as f64;
    let step_s = every_s * (lasts_s / every_s / most).ceil().max(1.0);
    let delay_ms = |from_s: f64, until_s: f64| {
        let propagation = match delays {
            Some(all) => all.mean_between(from_s, until_s),
            None => delay.map_or(0.0, |delay| delay.ms.value),
        };
        milliseconds(propagation + light.probe_ms)
    };
    let mut content = String::new();
    let starts = (0_u32..).map(|at| f64::from(at) * step_s);
    for at_s in starts.take_while(|at_s| *at_s < lasts_s - 0.5 * every_s) {
        let until_s = (at_s + step_s).min(lasts_s);
        let mut latest = 0.0_f64;
        // Means of ascending times are ascending, except for their rounding.
        let deliveries = light.deliveries_ms.iter().map(|one| {
            latest = latest.max(one.mean_between(at_s, until_s));
            milliseconds(latest)
        });
        let deliveries: Vec<String> = deliveries.collect();
        content += &format!(
            "{} {} {}\\n",
            milliseconds(1e3 * at_s),
            delay_ms(at_s, until_s),
            deliveries.join(" ")
        );
    }
    content += &format!(
        "{} {} 0\\n",
        milliseconds(1e3 * lasts_s),
        delay_ms(0.0, step_s)
    );
    content
}

/// Writes milliseconds without their unit, to a microsecond.
fn milliseconds(value: f64) -> String {
    // 0 has no sign.
    let us = (1e3 * value.max(0.0)).round().abs();
    (us / 1e3).to_string()
}

#[cfg(test)]
mod tests {
    use conditions::{Direction, LinkSpec};

    use super::*;
    use crate::bottleneck::Bottleneck;
    use crate::delay::{JitterFit, JitterLaw};
    use crate::estimate::Estimate;
    use crate::{DirectionFit, LinkFit, Origin};

    fn over_time(every_s: f64, values: &[f64]) -> OverTime {
        OverTime {
            every_s,
            values: values.to_vec(),
        }
    }

    /// Returns a light load of trains of three packets in two windows of a second.
    fn light() -> LightLoadFit {
        LightLoadFit {
            rate: Estimate::within(4e6, 1e5),
            full: Estimate::within(10e6, 1e5),
            packets: 3,
            trains: 20,
            deliveries_ms: vec![
                over_time(1.0, &[0.0, 0.0]),
                over_time(1.0, &[1.25, 2.0]),
                over_time(1.0, &[2.5006, 4.5]),
            ],
            probe_ms: 0.125,
        }
    }

    fn delay(over_time: Option<OverTime>) -> DelayFit {
        DelayFit {
            ms: Estimate::within(20.0, 0.5),
            without_transmission: true,
            over_time,
            jitter: None,
            skipped_percent: None,
            reorders: false,
            probes: 100,
            unclear: 0,
            round_trips_only: 0,
        }
    }

    #[test]
    fn a_constant_delay_is_a_part_of_each_line() {
        let expected = "0 20.125 0 1.25 2.501\\n1000 20.125 0 2 4.5\\n2000 20.125 0\\n";
        assert_eq!(trains(&light(), Some(&delay(None))), expected);
        let expected = "0 0.125 0 1.25 2.501\\n1000 0.125 0 2 4.5\\n2000 0.125 0\\n";
        assert_eq!(trains(&light(), None), expected);
    }

    #[test]
    fn the_shorter_of_trains_and_delays_begins_again() {
        let longer = delay(Some(over_time(1.0, &[20.0, 30.0, 40.0])));
        let lines = [
            "0 20.125 0 1.25 2.501",
            "1000 30.125 0 2 4.5",
            "2000 40.125 0 1.25 2.501",
            "3000 20.125 0",
        ];
        let expected = |lines: &[&str]| lines.join("\\n") + "\\n";
        assert_eq!(trains(&light(), Some(&longer)), expected(&lines));
        let shorter = delay(Some(over_time(0.5, &[20.0])));
        let lines = [
            "0 20.125 0 1.25 2.501",
            "1000 20.125 0 2 4.5",
            "2000 20.125 0",
        ];
        assert_eq!(trains(&light(), Some(&shorter)), expected(&lines));
    }

    #[test]
    fn a_long_light_load_has_longer_steps_and_stays_ascending() {
        // Times that no train has: half an hour at most, in which the last three packets arrive at one time.
        let times = |place: u32| -> Vec<f64> {
            let at = |second: u32| 1.8e6 / (1.0 + f64::from(second) / 7.0);
            let share = f64::from(place.min(7)) / 7.0;
            (0..5000).map(|second| share * at(second)).collect()
        };
        let long = LightLoadFit {
            packets: 10,
            deliveries_ms: (0..10).map(|place| over_time(1.0, &times(place))).collect(),
            ..light()
        };
        let text = trains(&long, Some(&delay(None)));
        let lines: Vec<&str> = text.split_terminator("\\n").collect();
        assert!((300..=601).contains(&lines.len()), "{}", lines.len());
        assert!(text.len() < 64 << 10, "{}", text.len());
        let (end, lines) = lines.split_last().unwrap();
        assert_eq!(*end, "5000000 20.125 0");
        for line in lines {
            let numbers = line.split(' ').map(|word| word.parse::<f64>().unwrap());
            let numbers: Vec<f64> = numbers.collect();
            assert_eq!((numbers.len(), numbers[2]), (12, 0.0), "{line}");
            assert!(numbers[2..].is_sorted(), "{line}");
        }
    }

    /// Returns a link whose rate and light load down are known.
    fn link(delay: DelayFit, light: LightLoadFit) -> LinkFit {
        let rates = over_time(0.5, &[8e6, 4e6]);
        let down = DirectionFit {
            delay: Some(delay),
            loss: None,
            bottleneck: Some(Bottleneck {
                rate: rates.spread().unwrap(),
                over_time: Some(rates),
                burst_bytes: None,
                queue: None,
                queue_bytes: None,
                rate_evidence: String::new(),
                evidence: String::new(),
            }),
            light: Some(light),
            mtu: None,
        };
        let up = DirectionFit {
            delay: None,
            loss: None,
            bottleneck: None,
            light: None,
            mtu: None,
        };
        LinkFit {
            up,
            down,
            one_way: false,
            duplicated_percent: None,
            sessions: 1,
        }
    }

    fn text(link: &LinkFit) -> String {
        link.to_toml(&Origin::of_path("203.0.113.7", "2026-11-27"))
    }

    #[test]
    fn a_link_with_a_light_load_has_one_line_for_both_loads_and_the_delay() {
        let jitter = JitterFit {
            spread_ms: Estimate::within(2.0, 0.1),
            law: JitterLaw::Uniform,
            misfit: 0.0,
            is_clear: true,
            is_rejected: false,
            half_life_ms: None,
        };
        let delay = DelayFit {
            jitter: Some(jitter),
            ..delay(None)
        };
        let text = text(&link(delay, light()));
        let (_, down) = text.split_once("[down]\n").unwrap();
        let trace = "trace = { file = \"fitted\", content = \"t,rate\\n0s,8mbit\\n0.5s,4mbit\\n1s,\\n\", \
                     light = \"fitted light\", light_content = \"0 20.125 0 1.25 2.501\\n1000 20.125 0 2 4.5\\n2000 20.125 0\\n\" } \
                     # [fitted] the rate over time; nine of ten: 4.2mbit to 7.8mbit; \
                     the light load, 3 packets behind each other: 3.9mbit to 4.1mbit; \
                     half of the round trip: the delay: 19.5ms to 20.5ms\n";
        let jitter = "jitter = \"2ms\"                         # [fitted] spread 1.9ms to 2.1ms\n";
        assert_eq!(down, format!("{jitter}{trace}"));
        assert_eq!(conditions::unfounded(&text), [], "{text}");
        let spec: LinkSpec = conditions::read::toml_text(&text).unwrap();
        spec.check().unwrap();
    }

    #[test]
    fn a_light_load_that_is_as_the_full_one_changes_nothing() {
        let same = LightLoadFit {
            deliveries_ms: Vec::new(),
            ..light()
        };
        let varying = delay(Some(over_time(1.0, &[20.0, 30.0])));
        let mut without = link(varying.clone(), same.clone());
        without.down.light = None;
        let text_of_same = text(&link(varying, same));
        assert_eq!(text_of_same, text(&without));
        assert!(text_of_same.contains("t,rate,delay"), "{text_of_same}");
        let found = link(delay(None), light());
        assert!(found.toward(Direction::Down).light.is_some());
        assert!(!text(&found).contains("delay = "));
    }
}
