//! The fitted link as a file of conditions, in which every number names its source and its interval.

mod two_traces;

use std::fmt::Write as _;

use conditions::Direction;
use model::{BitsPerSec, Nanos};

use crate::bottleneck::Bottleneck;
use crate::delay::{DelayFit, JitterLaw};
use crate::estimate::Estimate;
use crate::loss::LossFit;
use crate::over_time::OverTime;
use crate::queue::QueueKind;
use crate::{DIRECTIONS, LinkFit, PathObservations};

/// The longest time that is written, in microseconds: a day.
const LONGEST_US: f64 = 8.64e10;
/// The least loss in percent that is written.
const LEAST_LOSS_PERCENT: f64 = 0.001;
/// The MTU of Ethernet in bytes. A path with this MTU needs no line.
const ETHERNET_MTU: f64 = 1500.0;
/// The bytes that a queue holds at least: a full packet.
const LEAST_QUEUE_BYTES: f64 = 1514.0;
/// The bytes that a policer without a visible burst is assumed to let pass: ten full packets.
pub(crate) const ASSUMED_POLICER_BURST: f64 = 15_140.0;

/// The most lines of a trace, so that it can be a part of the file.
const MOST_LINES: f64 = 2000.0;

/// The source of the numbers.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The far end, or the files, without characters that a comment cannot have.
    name: String,
    /// The source in a sentence.
    title: String,
    /// The year of the fit.
    year: String,
}

impl Origin {
    /// The path to a far end, which `farwire fit` measured on this day, such as 2026-11-27.
    pub fn of_path(name: &str, day: &str) -> Self {
        let name = plain(name);
        let title = format!(
            "The path to {name} on {}, as farwire fit measured it",
            plain(day)
        );
        Self::new(name, title, day)
    }

    /// Files, fitted on this day, whose observations are these.
    pub fn of_files(name: &str, day: &str, sessions: &[PathObservations]) -> Self {
        let name = plain(name);
        let measured: Option<Vec<&str>> = sessions
            .iter()
            .map(|one| one.measured_on.as_deref())
            .collect();
        let measured = measured.unwrap_or_default();
        let dates = measured.iter().min().zip(measured.iter().max());
        let dates = dates.map_or(String::new(), |(first, last)| match first == last {
            true => format!(", measured on {}", plain(first)),
            false => format!(", measured from {} to {}", plain(first), plain(last)),
        });
        let title = format!("A link fitted from {name}{dates}");
        Self::new(name, title, day)
    }

    fn new(name: String, title: String, day: &str) -> Self {
        let year = day.get(..4).unwrap_or_default().to_owned();
        Self { name, title, year }
    }
}

/// Returns a text without the characters that a comment of a profile cannot have.
fn plain(text: &str) -> String {
    let kept = text.chars();
    kept.filter(|one| !one.is_control() && !"\"[]".contains(*one))
        .collect()
}

/// A line of the file.
struct Line {
    key: &'static str,
    /// The value as TOML.
    value: String,
    comment: String,
}

impl LinkFit {
    /// Returns the text of a file of conditions. Each number has the source `fitted` and its 95 % interval.
    pub fn to_toml(&self, origin: &Origin) -> String {
        let Origin { name, title, year } = origin;
        let intervals = match self.sessions {
            ..2 => "its 95 % interval".to_owned(),
            count => format!("the range of the 95 % intervals of {count} sessions"),
        };
        let mut text = format!(
            "# {title}\n#\n\
             # [fitted] farwire fit, \"{name}\", {year}: behind each number is {intervals}\n"
        );
        for way in DIRECTIONS {
            // Writing to a text cannot fail.
            let _ = write!(text, "\n[{}]\n", way.name());
            for Line {
                key,
                value,
                comment,
            } in self.lines(way)
            {
                let statement = format!("{key} = {value}");
                let _ = writeln!(text, "{statement:<38} # [fitted] {comment}");
            }
        }
        text
    }

    fn lines(&self, way: Direction) -> Vec<Line> {
        let fit = self.toward(way);
        let half = if self.one_way {
            ""
        } else {
            "half of the round trip: "
        };
        let rates = fit.bottleneck.as_ref();
        let rates = rates.and_then(|found| found.over_time.as_ref());
        let light = fit.light.as_ref().filter(|light| light.is_different());
        let both_loads = rates.zip(light);
        let mut lines = Vec::new();
        if let Some(found) = &fit.delay {
            // A light load states the delay, too.
            if both_loads.is_none() && found.over_time.is_none() {
                lines.push(line("delay", ms(found.ms.value), half, found.ms, ms));
            }
            lines.extend(variation(found));
        }
        lines.extend(fit.loss.as_ref().and_then(loss));
        if let Some(duplicated) = self.duplicated_percent {
            let value = percent(duplicated.value);
            lines.push(line(
                "duplicate",
                value,
                "half of both directions: ",
                duplicated,
                percent,
            ));
        }
        if let Some(found) = &fit.bottleneck {
            lines.extend(bottleneck(found, both_loads.is_some()));
        }
        lines.extend(match both_loads {
            Some((rates, light)) => Some(two_traces::line(rates, light, fit.delay.as_ref(), half)),
            None => {
                let delays = fit.delay.as_ref();
                let delays = delays.and_then(|found| found.over_time.as_ref());
                over_time(rates, delays, half)
            }
        });
        if let Some(mtu) = fit.mtu.filter(|mtu| mtu.value < ETHERNET_MTU) {
            lines.push(line(
                "path_mtu",
                bytes(mtu.value),
                "has passed, may pass: ",
                mtu,
                bytes,
            ));
        }
        lines
    }
}

fn line(
    key: &'static str,
    value: String,
    about: &str,
    estimate: Estimate,
    unit: fn(f64) -> String,
) -> Line {
    Line {
        key,
        value: quoted(&value),
        comment: format!("{about}{}", interval(estimate, unit)),
    }
}

/// Returns the ends of the interval of an estimate for people.
fn interval(estimate: Estimate, unit: fn(f64) -> String) -> String {
    match estimate.known_interval() {
        Some([low, high]) => format!("{} to {}", unit(low.max(0.0)), unit(high)),
        None => "too few samples for an interval".to_owned(),
    }
}

/// Returns a text as TOML.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// Returns the lines of the variation of a delay.
fn variation(delay: &DelayFit) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(jitter) = &delay.jitter {
        let mut value = ms(jitter.spread_ms.value);
        if jitter.law == JitterLaw::Normal {
            value += ",normal";
        }
        if let Some(half_life) = jitter.half_life_ms {
            value += &format!(",half-life={}", ms(half_life.value));
        }
        if delay.reorders {
            value += ",free";
        }
        let about = match jitter.is_rejected {
            true => "no law fits, and this is the nearest one; spread ",
            false => "spread ",
        };
        lines.push(line("jitter", value, about, jitter.spread_ms, ms));
    }
    if let Some(skipped) = delay.skipped_percent {
        lines.push(line(
            "reorder",
            percent(skipped.value),
            "",
            skipped,
            percent,
        ));
    }
    lines
}

/// Returns the line of a loss, if it is large enough to be written.
fn loss(loss: &LossFit) -> Option<Line> {
    let share = loss.percent;
    if share.value < LEAST_LOSS_PERCENT {
        return None;
    }
    let burst = loss.burst.map_or(String::new(), |burst| {
        // A burst of exactly the mean that independent losses have would be refused.
        let least = 1.01 / (1.0 - share.value.min(99.0) / 100.0);
        format!(",burst={:.2}", burst.value.max(least))
    });
    let about = match loss.possible_burst() {
        Some(_) => "bursts cannot be distinguished; ",
        None => "",
    };
    Some(line(
        "loss",
        percent(share.value) + &burst,
        about,
        share,
        percent,
    ))
}

/// Returns the line of what varies in a direction: the rate, the delay, or both. Each delay is `half` of a round trip, if that
/// has a text.
fn over_time(rates: Option<&OverTime>, delays: Option<&OverTime>, half: &str) -> Option<Line> {
    let comments = [
        rates.and_then(|all| nine_of_ten("rate", all, bits_or_stall)),
        delays
            .and_then(|all| nine_of_ten("delay", all, ms))
            .map(|text| half.to_owned() + &text),
    ];
    let comments: Vec<String> = comments.into_iter().flatten().collect();
    (!comments.is_empty()).then(|| Line {
        key: "trace",
        value: trace(rates, delays),
        comment: comments.join("; "),
    })
}

/// Returns the range of nine of ten values over time for people; `None` without a value.
fn nine_of_ten(name: &str, all: &OverTime, unit: fn(f64) -> String) -> Option<String> {
    let [low, high] = all.spread()?.interval.map(unit);
    Some(format!(
        "the {name} over time; nine of ten: {low} to {high}"
    ))
}

/// Returns a trace with its content.
fn trace(rates: Option<&OverTime>, delays: Option<&OverTime>) -> String {
    let content = content(rates, delays);
    format!("{{ file = \"fitted\", content = \"{content}\" }}")
}

/// Returns the content of a trace. If one of both is shorter, it begins again until the other one ends.
fn content(rates: Option<&OverTime>, delays: Option<&OverTime>) -> String {
    let both = || rates.into_iter().chain(delays);
    let lasts_s = both().map(OverTime::lasts_s).fold(0.0, f64::max);
    let shortest_s = both().map(|one| one.every_s).fold(f64::INFINITY, f64::min);
    let together = (lasts_s / shortest_s / MOST_LINES).ceil().max(1.0);
    let step_s = together * shortest_s;
    let columns = [("rate", rates), ("delay", delays)];
    let names = columns.iter().filter(|(_, all)| all.is_some());
    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
    let mut content = format!("t,{}\\n", names.join(","));
    let mut before = vec![String::new(); names.len()];
    let starts = (0_u32..).map(|at| f64::from(at) * step_s);
    for at_s in starts.take_while(|at_s| *at_s < lasts_s - 0.5 * shortest_s) {
        let until_s = (at_s + step_s).min(lasts_s);
        let mean = |all: &OverTime| all.mean_between(at_s, until_s);
        let cells = [
            rates.map(|all| bits_or_stall(mean(all))),
            delays.map(|all| ms(mean(all))),
        ];
        let cells: Vec<String> = cells.into_iter().flatten().collect();
        if cells != before {
            // An empty cell has the value of the line before.
            let cell = |(now, before): (&String, &String)| match now == before {
                true => String::new(),
                false => now.clone(),
            };
            let changed: Vec<String> = cells.iter().zip(&before).map(cell).collect();
            content += &format!("{}s,{}\\n", seconds(at_s), changed.join(","));
            before = cells;
        }
    }
    content += &format!("{}s{}\\n", seconds(lasts_s), ",".repeat(names.len()));
    content
}

/// Writes seconds to a millisecond.
fn seconds(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}

fn bottleneck(found: &Bottleneck, has_light_load: bool) -> Vec<Line> {
    let rate = found.rate;
    let burst = found.burst_bytes.map(|burst| burst.value);
    if found.queue == Some(QueueKind::Policed) {
        let about = match found.has_assumed_burst() {
            true => "a policer, whose burst was not visible and is assumed; ",
            false => "a policer; ",
        };
        let burst = burst.unwrap_or(ASSUMED_POLICER_BURST);
        let value = format!("{},burst={burst:.0}b", bits(rate.value));
        return vec![line("police", value, about, rate, bits)];
    }
    let burst = burst.map_or(String::new(), |burst| format!(",burst={burst:.0}b"));
    let constant = found.over_time.is_none();
    let constant = constant.then(|| line("rate", bits(rate.value) + &burst, "", rate, bits));
    let mut lines: Vec<Line> = constant.into_iter().collect();
    let length = |about, length: Estimate| match found.queue_bytes {
        Some(held) => {
            let least = held.value.max(LEAST_QUEUE_BYTES);
            line("queue", bytes(least) + "b", about, held, bytes)
        }
        // A bottleneck of opportunities has no rate by which a time would be a number of bytes.
        None if has_light_load => {
            let held = length.map(|ms| (ms * rate.value / 8e3).max(LEAST_QUEUE_BYTES));
            line("queue", bytes(held.value) + "b", about, held, bytes)
        }
        None => line("queue", ms(length.value), about, length, ms),
    };
    let managed = |name: &str, comment: &str| Line {
        key: "aqm",
        value: quoted(name),
        comment: comment.to_owned(),
    };
    let Some(queue) = found.queue else {
        return lines;
    };
    match queue {
        QueueKind::Fifo {
            ms,
            is_least: false,
        } => lines.push(length("", ms)),
        QueueKind::Fifo { ms, is_least: true } => {
            lines.push(length("at least: it still grew; ", ms));
        }
        QueueKind::Managed { most_ms: None } => {
            lines.push(managed(
                "codel,ecn",
                "it marked packets; CoDel's usual parameters",
            ));
        }
        QueueKind::Managed { most_ms: Some(ms) } => {
            lines.push(managed(
                "codel",
                "kept short under a gentle load; CoDel's usual parameters",
            ));
            lines.push(length("the most under a strong load; ", ms));
        }
        QueueKind::PerFlow => {
            lines.push(managed(
                "fq_codel",
                "other flows did not wait; its usual parameters",
            ));
        }
        QueueKind::Unclear { ms: Some(ms) } => {
            lines.push(length("FIFO and AQM cannot be distinguished; ", ms));
        }
        QueueKind::Unclear { ms: None } => {
            lines.push(managed(
                "fq_codel",
                "other flows did not wait; a policer cannot be distinguished",
            ));
        }
        QueueKind::Policed => {}
    }
    lines
}

/// Writes milliseconds to a microsecond, as conditions have them.
fn ms(value: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is at most the longest time"
    )]
    let us = (value * 1e3).round().clamp(0.0, LONGEST_US) as u64;
    Nanos(us * 1_000).to_string()
}

/// Writes bit/s with four digits, as conditions have them.
fn bits(value: f64) -> String {
    let step = 10.0_f64.powf((value.max(1.0).log10().floor() - 3.0).max(0.0));
    #[expect(clippy::cast_possible_truncation, reason = "rates are far below 2^64")]
    let rounded = ((value / step).round() * step).round().max(1.0) as u64;
    BitsPerSec::new(rounded).map_or_else(|_| format!("{rounded}bit"), |rate| rate.to_string())
}

/// Writes bit/s, 0 included, at which packets wait.
fn bits_or_stall(value: f64) -> String {
    match value < 0.5 {
        true => "0bit".to_owned(),
        false => bits(value),
    }
}

/// Writes a number of bytes.
fn bytes(value: f64) -> String {
    format!("{value:.0}")
}

/// Writes a share in percent with three digits.
fn percent(value: f64) -> String {
    format!("{}%", (value * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_of_both_repeats_in_a_trace_and_equal_cells_are_empty() {
        let rates = OverTime {
            every_s: 0.5,
            values: vec![8e6, 4e6],
        };
        let delays = OverTime {
            every_s: 1.0,
            values: vec![20.0, 20.0, 30.0],
        };
        let lines = [
            "t,rate,delay",
            "0s,8mbit,20ms",
            "0.5s,4mbit,",
            "1s,8mbit,",
            "1.5s,4mbit,",
            "2s,8mbit,30ms",
            "2.5s,4mbit,",
            "3s,,",
        ];
        let content = |text: &str| format!("{{ file = \"fitted\", content = \"{text}\\n\" }}");
        assert_eq!(
            trace(Some(&rates), Some(&delays)),
            content(&lines.join("\\n"))
        );
        let alone = ["t,delay", "0s,20ms", "2s,30ms", "3s,"];
        assert_eq!(trace(None, Some(&delays)), content(&alone.join("\\n")));
    }

    #[test]
    fn a_long_trace_has_longer_steps() {
        let delays = OverTime {
            every_s: 1.0,
            values: (0..5000).map(f64::from).collect(),
        };
        let text = trace(None, Some(&delays));
        // Three seconds each, the header, and the end.
        assert_eq!(text.matches("\\n").count(), 1667 + 2);
        assert!(text.contains("\\n3s,4ms\\n"), "{text}");
    }
    #[test]
    fn a_link_from_files_names_them_and_their_own_days() {
        let on = |day: Option<&str>| PathObservations {
            measured_on: day.map(str::to_owned),
            ..PathObservations::default()
        };
        let title = |days: &[Option<&str>]| {
            let sessions: Vec<PathObservations> = days.iter().map(|day| on(*day)).collect();
            Origin::of_files("a.txt, [b].txt", "2026-11-27", &sessions).title
        };
        let one = "A link fitted from a.txt, b.txt, measured on 2025-03-01";
        assert_eq!(title(&[Some("2025-03-01")]), one);
        let several = "A link fitted from a.txt, b.txt, measured from 2025-03-01 to 2025-03-09";
        assert_eq!(title(&[Some("2025-03-09"), Some("2025-03-01")]), several);
        let unknown = "A link fitted from a.txt, b.txt";
        assert_eq!(title(&[Some("2025-03-01"), None]), unknown);
        let path = Origin::of_path("192.0.2.1", "2026-11-27");
        assert_eq!(
            path.title,
            "The path to 192.0.2.1 on 2026-11-27, as farwire fit measured it"
        );
    }
}
