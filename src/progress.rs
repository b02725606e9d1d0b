//! How far an experiment is, in runs or in shards: a bar with the time left on a terminal, plain lines elsewhere.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use record::printable::printable;
use record::quantity::counted;

use crate::notes::{are_watched, note};

/// Redraws of the bar.
const TICK: Duration = Duration::from_millis(250);

/// Progress on standard error.
pub(crate) struct ProgressLine {
    /// What is counted: "run".
    unit: &'static str,
    total: usize,
    done: usize,
    /// Whether the line without a bar was said.
    is_said: bool,
    /// When the end is expected; moved whenever a run starts.
    end: Arc<Mutex<Instant>>,
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// Nothing of so many runs, or whatever the `unit` is, done yet.
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

    /// One starts; it and all after it, `units` as far as is known, should take `left`.
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
                note(format_args!("{units}, about {} left", human(left)));
            }
            None => {}
        }
    }

    /// One ended.
    pub(crate) fn finish(&mut self, what: &str) {
        self.done += 1;
        let line = format!("[{}/{}] {what}", self.done, self.total);
        match &self.bar {
            Some(bar) => {
                bar.println(printable(&line));
                bar.inc(1);
            }
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
        // The bar has nobody to tell that it could not write.
        let _ = out.write_str(&human(end.saturating_duration_since(Instant::now())));
    };
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  about {left} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", left);
    let bar = ProgressBar::new(total as u64).with_style(style);
    bar.enable_steady_tick(TICK);
    bar
}

/// A time for people: "2 min 05 s".
pub(crate) fn human(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    let (minutes, rest) = ((seconds / 60.0).floor(), seconds % 60.0);
    if minutes > 0.0 {
        format!("{minutes} min {rest:02} s")
    } else {
        format!("{rest} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        assert_eq!(human(Duration::from_millis(9_600)), "10 s");
        assert_eq!(human(Duration::from_secs(125)), "2 min 05 s");
    }
}
