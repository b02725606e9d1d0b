//! The progress of an experiment, in runs or in shards: a bar with the remaining time on a terminal, plain lines elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use record::printable::printable;
use record::quantity::counted;

use crate::notes::{are_watched, note};

/// The interval at which the bar is drawn.
const TICK: Duration = Duration::from_millis(250);

/// Progress on standard error.
pub(crate) struct ProgressLine {
    /// The unit of the counts: "run".
    unit: &'static str,
    total: usize,
    done: usize,
    /// True after the line that replaces the bar was printed.
    is_said: bool,
    /// The expected end, which each start of a run updates.
    end: Arc<Mutex<Instant>>,
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// Returns the progress at the beginning of `total` runs, or of another `unit`.
    pub(crate) fn new(total: usize, unit: &'static str) -> Self {
        let end = Arc::new(Mutex::new(Instant::now()));
        let bar = are_watched().then(|| bar(total, Arc::clone(&end)));
        Self {
            unit,
            total,
            done: 0,
            is_said: false,
            end,
            bar,
        }
    }

    /// Reports that a run starts. It and all later runs, `units` as far as is known, should take `left`.
    pub(crate) fn start(&mut self, what: &str, units: usize, left: Duration) {
        self.total = self.done + units;
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
        match &self.bar {
            Some(bar) => {
                bar.set_length(self.total as u64);
                bar.set_message(printable(what).into_owned());
            }
            None if !self.is_said => {
                self.is_said = true;
                let units = counted(self.total, self.unit);
                note(format_args!("{units}, about {}", about(left)));
            }
            None => {}
        }
    }

    /// Reports that a run ended.
    pub(crate) fn finish(&mut self, what: &str) {
        self.attempt(what);
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Reports that an attempt at a run ended, after which there is another one. The counts stay as they are.
    pub(crate) fn attempt(&self, what: &str) {
        let line = format!("[{}/{}] {what}", self.done + 1, self.total);
        match &self.bar {
            Some(bar) => bar.println(printable(&line)),
            None => note(line),
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: usize, end: Arc<Mutex<Instant>>) -> ProgressBar {
    let left = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure to write the bar can be ignored.
        let _ = out.write_str(&human(end.saturating_duration_since(Instant::now())));
    };
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  about {left} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", left);
    let bar = ProgressBar::new(total as u64).with_style(style);
    bar.enable_steady_tick(TICK);
    bar
}

/// Returns a time for people: "2 min 05 s".
pub(crate) fn human(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    let (minutes, rest) = ((seconds / 60.0).floor(), seconds % 60.0);
    if minutes > 0.0 {
        format!("{minutes} min {rest:02} s")
    } else {
        format!("{rest} s")
    }
}

/// Returns an estimated time, in the unit that a person would choose: "0.4 s", "48 s", "13 min", "5.2 h".
pub(crate) fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..9.95 => format!("{seconds:.1} s"),
        ..119.5 => format!("{seconds:.0} s"),
        ..5_970.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        assert_eq!(human(Duration::from_millis(9_600)), "10 s");
        assert_eq!(human(Duration::from_secs(125)), "2 min 05 s");
        for (seconds, words) in [
            (0.42, "0.4 s"),
            (9.96, "10 s"),
            (48.4, "48 s"),
            (765.0, "13 min"),
            (18_900.0, "5.2 h"),
            (432_000.0, "5.0 days"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), words);
        }
    }
}
