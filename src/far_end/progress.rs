//! Lines about the tests of a far end while they run: one when a test begins, and one every second.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use instruments::serve::{DirectionTraffic, TestRow, TestSnapshot, TestTraffic};
use record::quantity::{number, size};

use super::{TestKey, TrafficRates, WatchedFarEnd, key};

/// The time between two lines about a test.
const INTERVAL: Duration = Duration::from_secs(1);
/// Greatest number of lines at a time. Further tests are counted in one line.
const MOST_LINES: usize = 32;

/// The lines about running tests.
pub(crate) struct ProgressLines {
    far_end: WatchedFarEnd,
    rates: TrafficRates,
    /// The tests that were running at the last look.
    known: HashSet<TestKey>,
    /// The time of the last lines about the traffic.
    printed: Option<Instant>,
}

impl ProgressLines {
    /// Returns the lines about the tests of a far end.
    pub(crate) fn about(far_end: WatchedFarEnd) -> Self {
        Self {
            far_end,
            rates: TrafficRates::default(),
            known: HashSet::new(),
            printed: None,
        }
    }

    /// Returns the lines that are due now, without their time. It is called several times a second.
    pub(crate) fn due(&mut self) -> Vec<String> {
        let snapshot = self.far_end.tests();
        self.lines(&snapshot, Instant::now())
    }

    fn lines(&mut self, snapshot: &TestSnapshot, now: Instant) -> Vec<String> {
        let printed = *self.printed.get_or_insert(now);
        let is_due = now.saturating_duration_since(printed) >= INTERVAL;
        if is_due {
            self.printed = Some(now);
        }
        let (mut lines, mut more) = (Vec::new(), 0_u64);
        for row in &snapshot.rows {
            let is_new = !self.known.contains(&key(row));
            if !is_new && !is_due {
                continue;
            }
            if lines.len() >= MOST_LINES {
                more += 1;
                continue;
            }
            let client = match self.far_end.name_of(row.peer) {
                Some(name) => format!("{} ({name})", row.peer),
                None => row.peer.to_string(),
            };
            let what = if is_new {
                "began".to_owned()
            } else {
                progress(row, self.rates.of(row, now))
            };
            lines.push(format!("{client}, {}, {what}", row.test));
        }
        match more {
            0 => {}
            1 => lines.push("one more test is running".to_owned()),
            more => lines.push(format!("{more} more tests are running")),
        }
        self.rates.keep(&snapshot.rows);
        self.known = snapshot.rows.iter().map(key).collect();
        lines
    }
}

/// Describes the traffic of a test since its start, and its rates of late. Packets are left out, so that the line is not cut.
fn progress(row: &TestRow, rates: Option<[f64; 2]>) -> String {
    let TestTraffic {
        up,
        down,
        round_trip,
        loss,
    } = row.traffic;
    let [up_rate, down_rate] = rates.unwrap_or_default();
    let mut words: Vec<String> = [("up", up, up_rate), ("down", down, down_rate)]
        .into_iter()
        .filter(|(_, traffic, _)| traffic.packets > 0)
        .map(|(name, traffic, rate)| direction(name, traffic, rate))
        .collect();
    if let Some(time) = round_trip {
        words.push(format!(
            "round trip {} ms",
            number(time.as_secs_f64() * 1e3)
        ));
    }
    if let Some(loss) = loss.filter(|loss| loss.lost > 0) {
        let percent = loss.percent().unwrap_or(0.0);
        words.push(format!("{} lost ({} %)", loss.lost, number(percent)));
    }
    format!("{:.1} s: {}", row.lasted.as_secs_f64(), words.join(", "))
}

fn direction(name: &str, traffic: DirectionTraffic, bit_per_s: f64) -> String {
    format!(
        "{name} {} at {} Mbit/s",
        size(traffic.bytes),
        number(bit_per_s / 1e6)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use instruments::serve::Tally;

    fn lines_of(rows: Vec<TestRow>) -> (ProgressLines, TestSnapshot) {
        let far_end = WatchedFarEnd::with(TestSnapshot::default, Tally::default);
        let snapshot = TestSnapshot {
            rows,
            ..TestSnapshot::default()
        };
        (ProgressLines::about(far_end), snapshot)
    }

    #[test]
    fn a_test_has_a_line_when_it_begins_and_one_every_second() {
        let (mut lines, mut snapshot) = lines_of(vec![row("transfer", 1, 0)]);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let first = lines.lines(&snapshot, at(0));
        assert_eq!(first, ["192.0.2.1:40000, transfer, began"]);
        assert!(lines.lines(&snapshot, at(900)).is_empty());
        snapshot.rows[0] = row("transfer", 1, 1 << 20);
        assert_eq!(
            lines.lines(&snapshot, at(1_000)),
            [
                "192.0.2.1:40000, transfer, 2.0 s: up 1 MiB at 4.194 Mbit/s, down 2 MiB at 8.389 Mbit/s, round trip 1.500 ms, \
                 1 lost (0.095 %)"
            ]
        );
        snapshot.rows.clear();
        assert!(lines.lines(&snapshot, at(2_000)).is_empty());
        assert!(lines.known.is_empty());
    }

    #[test]
    fn many_tests_are_counted_in_one_line() {
        let all = (0..MOST_LINES as u64 + 5).map(|number| row("probe", number, 0));
        let (mut lines, snapshot) = lines_of(all.collect());
        let lines = lines.lines(&snapshot, Instant::now());
        assert_eq!(lines.len(), MOST_LINES + 1);
        assert_eq!(lines[MOST_LINES], "5 more tests are running");
    }
}
