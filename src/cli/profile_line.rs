//! The line that shows a profile in a list: its rate over a minute, delay and loss.

use conditions::outline::{Averages, Outline, OutlinePeriod};
use conditions::{Error, LinkSpec};
use model::Nanos;
use serde::Serialize;

/// The time for which profiles are shown.
const MINUTE: Nanos = Nanos::from_secs(60);
/// The number of parts of that time, each of which is a bar.
const BARS: u32 = 12;
/// The lowest and the highest rate whose bars differ, in bit/s, as powers of ten.
const POWERS: [f64; 2] = [4.0, 10.0];
/// The bars, from the lowest to the highest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The character that replaces a bar while nothing passes.
const NOTHING: char = '·';

/// The figures of a profile in its first minute.
pub(crate) struct ProfileLine {
    outline: Outline,
    averages: FirstMinute,
}

/// The averages of both directions in the first minute, for JSON.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct FirstMinute {
    /// The direction from client to server.
    up: Averages,
    /// The direction from server to client.
    down: Averages,
}

impl ProfileLine {
    /// Derives the figures of conditions.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::all_hops`].
    pub(crate) fn of(spec: &LinkSpec) -> Result<Self, Error> {
        let outline = Outline::of(spec, MINUTE)?;
        let [up, down] = [&outline.up, &outline.down].map(|all| Averages::of(all));
        let averages = FirstMinute { up, down };
        Ok(Self { outline, averages })
    }

    /// Returns the averages.
    pub(crate) fn averages(&self) -> FirstMinute {
        self.averages
    }

    /// Returns the line, which begins with a picture of the download where `pictures` is true.
    pub(crate) fn text(&self, pictures: bool) -> String {
        let [down, up, trip, loss] = self.columns();
        let numbers = format!("{down} down, {up} up, round trip {trip}, loss {loss}");
        let outage = self.outage().map_or_else(String::new, |share| {
            format!(", nothing passes for {share} of the time")
        });
        if pictures {
            format!("{} {numbers}{outage}", self.picture())
        } else {
            format!("{numbers}{outage}")
        }
    }

    /// Returns the average rates down and up, the round trip and the loss in words.
    pub(crate) fn columns(&self) -> [String; 4] {
        let FirstMinute { up, down } = self.averages;
        let loss = match [down.loss_percent, up.loss_percent].map(percent) {
            [down, up] if down == up => down,
            [down, up] => format!("{down} down and {up} up"),
        };
        [
            rate(down.rate_bit_per_s),
            rate(up.rate_bit_per_s),
            time(down.delay_ms + up.delay_ms),
            loss,
        ]
    }

    /// Returns the share of the time in which nothing passes down, unless it is below 1 %.
    fn outage(&self) -> Option<String> {
        let share = self.averages.down.outage_percent;
        (share >= 1.0).then(|| percent(share))
    }

    /// Returns a bar for each part of the first minute: the rate down, in logarithmic steps.
    pub(crate) fn picture(&self) -> String {
        let part = MINUTE.0 as f64 / 1e9 / f64::from(BARS);
        (0..BARS)
            .map(|number| bar(&self.outline.down, part * f64::from(number), part))
            .collect()
    }
}

/// Returns the bar of the average rate from `from` on, for `length` seconds.
fn bar(all: &[OutlinePeriod], from: f64, length: f64) -> char {
    let mut bits = 0.0;
    for one in all {
        let [begin, end] = [one.from, one.until].map(|at| at.0 as f64 / 1e9);
        let seconds = (end.min(from + length) - begin.max(from)).max(0.0);
        let rate = one.rate.map_or(f64::INFINITY, |rate| rate as f64);
        if seconds > 0.0 {
            bits += rate * (1.0 - one.stalled) * seconds;
        }
    }
    if bits <= 0.0 {
        return NOTHING;
    }
    let [lowest, highest] = POWERS;
    let share = ((bits / length).log10() - lowest) / (highest - lowest);
    let level = LEVELS
        .iter()
        .enumerate()
        .rev()
        .find(|(level, _)| share * LEVELS.len() as f64 >= *level as f64);
    level.map_or(LEVELS[0], |(_, bar)| *bar)
}

fn rate(bit_per_s: Option<f64>) -> String {
    match bit_per_s {
        None => "no limit".to_owned(),
        Some(rate) if rate < 1e6 => format!("{} kbit/s", short(rate / 1e3)),
        Some(rate) if rate < 1e9 => format!("{} Mbit/s", short(rate / 1e6)),
        Some(rate) => format!("{} Gbit/s", short(rate / 1e9)),
    }
}

fn time(ms: f64) -> String {
    match ms {
        ms if ms < 1e3 => format!("{} ms", short(ms)),
        ms if ms < 60e3 => format!("{} s", short(ms / 1e3)),
        ms => format!("{} min", short(ms / 60e3)),
    }
}

fn percent(percent: f64) -> String {
    format!("{} %", short(percent))
}

/// Returns a number with three significant digits, and without zeros at its end.
fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use conditions::PROFILES;

    use super::*;

    fn line(text: &str) -> ProfileLine {
        ProfileLine::of(&toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_line_has_rates_round_trip_and_loss() {
        let of =
            line("delay = '20ms'\nloss = '0.5%'\n[up]\nrate = '512kbit'\n[down]\nrate = '2gbit'");
        let words = "2 Gbit/s down, 512 kbit/s up, round trip 40 ms, loss 0.5 %";
        assert_eq!(of.text(false), words);
        assert_eq!(of.text(true), format!("████████████ {words}"));
        let far = line("delay = '827s'\n[up]\nloss = '1%'");
        let words = "no limit down, no limit up, round trip 27.6 min, loss 0 % down and 1 % up";
        assert_eq!(far.text(false), words);
        assert_eq!(far.picture(), "████████████");
    }

    #[test]
    fn a_picture_follows_the_rate_and_shows_when_nothing_passes() {
        let of = line(
            "delay = '600ms'\nrate = '10kbit'\nschedule = [{ at = '10s', rate = '1mbit' }, { at = '20s', rate = '0bit' },\n\
             { at = '35s', rate = '100gbit' }]",
        );
        assert_eq!(of.picture(), "▁▁▃▃···█████");
        let words = of.text(false);
        assert!(words.contains("round trip 1.2 s"), "{words}");
        assert!(
            words.ends_with("nothing passes for 25 % of the time"),
            "{words}"
        );
    }

    #[test]
    fn the_page_of_profiles_has_a_row_for_each() {
        let page = include_str!("../../docs/profiles.md");
        let rows = PROFILES.iter().map(|profile| {
            let line = ProfileLine::of(&profile.conditions()).unwrap();
            let [down, up, trip, loss] = line.columns();
            let (name, about, picture) = (profile.name, profile.about(), line.picture());
            format!("| `{name}` | {about} | {picture} | {down} | {up} | {trip} | {loss} |\n")
        });
        let missing: String = rows.filter(|row| !page.contains(row.as_str())).collect();
        assert!(
            missing.is_empty(),
            "docs/profiles.md lacks these rows:\n{missing}"
        );
        let count = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(
            count,
            PROFILES.len(),
            "docs/profiles.md has rows of no profile"
        );
    }
}
