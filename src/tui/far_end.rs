//! The screen of a far end: a row for each running test, totals, and the latest lines of the log. A key resets the
//! counters, as in the console of netprobe.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use instruments::serve::{DirectionTraffic, PacketLoss, Tally, TestRow, TestSnapshot, TestTraffic};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};
use record::now;
use record::printable::printable;
use record::quantity::{counted, number, size};

use super::Content;
use crate::far_end::{TestKey, TrafficRates, WatchedFarEnd, key};
use crate::progress::human;

/// The time between two drawings, which is also that between two readings of the rates.
const INTERVAL: Duration = Duration::from_secs(1);
/// The greatest number of lines of the log that are kept for the screen.
const MOST_LINES: usize = 200;
/// The lines of the log on the screen, with the frame.
const LOG: u16 = 8;
const HELP: &str = "r reset the counters  \u{2191} \u{2193} scroll  p pause  q leave";
/// The lines above the table: the time of counting, the services, and the counts of tests.
const HEAD: u16 = 3;

/// A column of the table.
struct Column {
    title: &'static str,
    width: Constraint,
    /// The width of the narrowest terminal that shows it.
    from: u16,
}

const COLUMNS: [Column; 11] = [
    column("test", Constraint::Length(8), 0),
    column("client", Constraint::Fill(1), 0),
    column("time, s", Constraint::Length(9), 100),
    column("packets up", Constraint::Length(12), 120),
    column("bytes up", Constraint::Length(11), 0),
    column("packets down", Constraint::Length(12), 120),
    column("bytes down", Constraint::Length(11), 0),
    column("Mbit/s up", Constraint::Length(10), 140),
    column("Mbit/s down", Constraint::Length(11), 140),
    column("RTT, ms", Constraint::Length(8), 0),
    column("lost", Constraint::Length(14), 0),
];

const fn column(title: &'static str, width: Constraint, from: u16) -> Column {
    Column { title, width, from }
}

/// The latest lines of the log, which the screen shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScreenLog(Arc<Mutex<VecDeque<String>>>);

/// The state of the screen.
pub(crate) struct FarEndScreen {
    far_end: WatchedFarEnd,
    /// The services with their addresses.
    services: String,
    log: ScreenLog,
    tests: TestSnapshot,
    tally: Tally,
    rates: TrafficRates,
    /// The latest rates of each test.
    shown_rates: HashMap<TestKey, [f64; 2]>,
    /// The counts at the last reset.
    base: CountsAtReset,
    /// The number of rows above the first one that is shown.
    scrolled: usize,
    is_paused: bool,
}

/// The counts at the moment of a reset, which are subtracted from the later ones.
struct CountsAtReset {
    at: Instant,
    /// The time of day.
    time: String,
    tests: HashMap<TestKey, TestTraffic>,
    ended: u64,
    total: TestTraffic,
    failed: u64,
    refused: u64,
}

impl ScreenLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last lines.
    fn tail(&self, lines: usize) -> Vec<String> {
        let all = self.lock();
        all.iter()
            .skip(all.len().saturating_sub(lines))
            .cloned()
            .collect()
    }
}

/// Each call writes complete lines.
impl Write for ScreenLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.lock();
        for line in String::from_utf8_lossy(bytes).lines() {
            if all.len() == MOST_LINES {
                all.pop_front();
            }
            all.push_back(printable(line).into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CountsAtReset {
    fn of(tests: &TestSnapshot, tally: &Tally) -> Self {
        Self {
            at: Instant::now(),
            time: now(),
            tests: tests
                .rows
                .iter()
                .map(|row| (key(row), row.traffic))
                .collect(),
            ended: tests.ended,
            total: tests.total,
            failed: failed(tally),
            refused: refused(tally),
        }
    }

    /// Returns the counts at the start of the far end.
    fn at_start() -> Self {
        Self::of(&TestSnapshot::default(), &Tally::default())
    }

    /// Returns the traffic of a test since the reset.
    fn since(&self, row: &TestRow) -> TestTraffic {
        let before = self.tests.get(&key(row));
        before.map_or(row.traffic, |before| row.traffic.since(before))
    }
}

impl FarEndScreen {
    /// Returns the screen of a far end with these services, each with its address. `log` has the latest lines of its
    /// log.
    pub(crate) fn new(far_end: WatchedFarEnd, services: &[String], log: ScreenLog) -> Self {
        Self {
            far_end,
            services: services.join(", "),
            log,
            tests: TestSnapshot::default(),
            tally: Tally::default(),
            rates: TrafficRates::default(),
            shown_rates: HashMap::new(),
            base: CountsAtReset::at_start(),
            scrolled: 0,
            is_paused: false,
        }
    }

    fn update_at(&mut self, now: Instant) {
        if self.is_paused {
            return;
        }
        self.tests = self.far_end.tests();
        self.tally = self.far_end.tally();
        for row in &self.tests.rows {
            if let Some(rates) = self.rates.of(row, now) {
                self.shown_rates.insert(key(row), rates);
            }
        }
        self.rates.keep(&self.tests.rows);
        let running: HashSet<TestKey> = self.tests.rows.iter().map(key).collect();
        self.shown_rates.retain(|key, _| running.contains(key));
        self.base.tests.retain(|key, _| running.contains(key));
        self.scrolled = self.scrolled.min(self.tests.rows.len().saturating_sub(1));
    }

    /// Subtracts the present counts from now on.
    fn reset(&mut self) {
        self.tests = self.far_end.tests();
        self.tally = self.far_end.tally();
        self.base = CountsAtReset::of(&self.tests, &self.tally);
    }

    fn head(&self) -> Paragraph<'_> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let since = human(self.base.at.elapsed());
        let paused = if self.is_paused {
            " \u{2014} PAUSED, continue with p"
        } else {
            ""
        };
        let first = format!(
            "farwire serve: counters since {} ({since}){paused}",
            self.base.time
        );
        let tests = format!(
            "{} running, {} ended, {} failed, {}",
            counted(self.tests.rows.len() as u64, "test"),
            self.tests.ended.saturating_sub(self.base.ended),
            failed(&self.tally).saturating_sub(self.base.failed),
            counted(
                refused(&self.tally).saturating_sub(self.base.refused),
                "refusal"
            )
        );
        Paragraph::new(vec![
            Line::styled(first, bold),
            Line::raw(self.services.as_str()),
            Line::raw(tests),
        ])
    }

    /// Returns the cells of a test.
    fn row(&self, row: &TestRow) -> [String; COLUMNS.len()] {
        let name = self.far_end.name_of(row.peer);
        let client = name.map_or_else(String::new, |name| format!(" {name}"));
        let rates = self.shown_rates.get(&key(row)).copied();
        cells(
            [row.test.to_owned(), format!("{}{client}", row.peer)],
            Some(row.lasted),
            &self.base.since(row),
            rates,
        )
    }

    fn total(&self) -> [String; COLUMNS.len()] {
        let rates = self.shown_rates.values();
        let sum = rates.fold([0.0, 0.0], |sum, rates| {
            [sum[0] + rates[0], sum[1] + rates[1]]
        });
        cells(
            ["total".to_owned(), String::new()],
            None,
            &self.tests.total.since(&self.base.total),
            Some(sum),
        )
    }
}

impl Content for FarEndScreen {
    fn interval(&self) -> Duration {
        INTERVAL
    }

    fn update(&mut self) {
        self.update_at(Instant::now());
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = Layout::vertical([
            Constraint::Length(HEAD),
            Constraint::Min(5),
            Constraint::Length(LOG),
            Constraint::Length(1),
        ]);
        let [head, tests, log, help] = rows.areas(frame.area());
        frame.render_widget(self.head(), head);
        let block = Block::bordered().title("running tests");
        // The header and the total take two of the rows.
        let room = usize::from(block.inner(tests).height.saturating_sub(2));
        let shown = self.tests.rows.iter().skip(self.scrolled).take(room);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let width = frame.area().width;
        let visible = |cells: [String; COLUMNS.len()]| {
            let cells = cells.into_iter().zip(&COLUMNS);
            Row::new(cells.filter_map(|(cell, column)| (column.from <= width).then_some(cell)))
        };
        let widths = COLUMNS.iter().filter(|column| column.from <= width);
        let titles = COLUMNS.each_ref().map(|column| column.title.to_owned());
        let rows = shown.map(|row| visible(self.row(row)));
        let table = Table::new(rows, widths.map(|column| column.width))
            .header(visible(titles).style(dim))
            .footer(visible(self.total()).style(bold))
            .block(block);
        frame.render_widget(table, tests);
        let block = Block::bordered().title("log");
        let lines = self.log.tail(usize::from(block.inner(log).height));
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
        frame.render_widget(Paragraph::new(lines).block(block), log);
        frame.render_widget(Paragraph::new(HELP).style(dim), help);
    }

    fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('r') => self.reset(),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            _ => {}
        }
        false
    }
}

/// Returns the cells of a row, which begins with `first`.
fn cells(
    first: [String; 2],
    lasted: Option<Duration>,
    traffic: &TestTraffic,
    rates: Option<[f64; 2]>,
) -> [String; COLUMNS.len()] {
    let TestTraffic {
        up,
        down,
        round_trip,
        loss,
    } = traffic;
    let [test, client] = first;
    let of = |direction: &DirectionTraffic| (direction.packets.to_string(), size(direction.bytes));
    let ((packets_up, bytes_up), (packets_down, bytes_down)) = (of(up), of(down));
    let [up, down] = rates.map_or(["-", "-"].map(str::to_owned), |rates| {
        rates.map(|rate| format!("{:.2}", rate / 1e6))
    });
    let time = |time: Duration| format!("{:.1}", time.as_secs_f64());
    let round_trip = round_trip.map(|time| number(time.as_secs_f64() * 1e3));
    [
        test,
        client,
        lasted.map_or_else(String::new, time),
        packets_up,
        bytes_up,
        packets_down,
        bytes_down,
        up,
        down,
        round_trip.unwrap_or_else(|| "-".to_owned()),
        loss.map_or_else(|| "-".to_owned(), lost),
    ]
}

/// Formats lost packets: "12 (0.300 %)".
fn lost(loss: PacketLoss) -> String {
    match loss.percent() {
        Some(percent) => format!("{} ({percent:.3} %)", loss.lost),
        None => loss.lost.to_string(),
    }
}

fn failed(tally: &Tally) -> u64 {
    let tests = tally.tests.iter();
    tests
        .filter(|((_, _, has_failed), _)| *has_failed)
        .map(|(_, count)| count)
        .sum()
}

fn refused(tally: &Tally) -> u64 {
    tally.refusals.values().sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use instruments::serve::RefusalCause;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::far_end::tests::row;

    /// Returns the screen of a far end with two tests, which received as many bytes as the number says, a failed test
    /// and three refusals.
    fn screen(bytes: &Arc<AtomicU64>) -> FarEndScreen {
        let bytes = Arc::clone(bytes);
        let tests = move || {
            let bytes = bytes.load(Ordering::Relaxed);
            let rows = vec![row("transfer", 1, bytes), row("probe", 1, 3_000)];
            let mut total = rows[0].traffic;
            total.up.packets += 3;
            TestSnapshot {
                rows,
                ended: 4,
                total,
            }
        };
        let tally = || {
            let mut tally = Tally::default();
            tally.tests.insert(("iperf3", "tcp", true), 1);
            tally.tests.insert(("iperf3", "tcp", false), 3);
            tally.refusals.insert(("http", RefusalCause::Busy), 3);
            tally
        };
        let far_end = WatchedFarEnd::with(tests, tally);
        let services = ["http on 127.0.0.1:8080".to_owned()];
        FarEndScreen::new(far_end, &services, ScreenLog::default())
    }

    /// Returns what a terminal of 160 columns shows.
    fn shown(screen: &FarEndScreen) -> String {
        shown_within(screen, 160)
    }

    fn shown_within(screen: &FarEndScreen, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    /// Returns the words of the line that begins with this one, within its frame.
    fn words(text: &str, first: &str) -> Vec<String> {
        let lines = text.lines().map(|line| line.replace(['│', '"'], " "));
        let mut all = lines.map(|line| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        all.find(|words| words.first().is_some_and(|word| word == first))
            .unwrap_or_else(|| panic!("{first} in\n{text}"))
    }

    fn press(screen: &mut FarEndScreen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn each_test_has_a_row_and_all_have_a_total() {
        let bytes = Arc::new(AtomicU64::new(1 << 20));
        let mut screen = screen(&bytes);
        screen.update_at(Instant::now());
        let text = shown(&screen);
        let transfer = [
            "transfer",
            "192.0.2.1:40000",
            "2.0",
            "1048",
            "1",
            "MiB",
            "2097",
            "2",
            "MiB",
            "4.19",
            "8.39",
            "1.500",
            "1",
            "(0.095",
            "%)",
        ];
        assert_eq!(words(&text, "transfer"), transfer);
        assert_eq!(words(&text, "total")[1], "1051");
        assert!(
            text.contains("2 tests running, 4 ended, 1 failed, 3 refusals"),
            "{text}"
        );
        assert!(text.contains("http on 127.0.0.1:8080"), "{text}");
        assert!(text.contains("r reset the counters"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_cuts_none() {
        let mut screen = screen(&Arc::new(AtomicU64::new(1 << 20)));
        screen.update_at(Instant::now());
        let text = shown_within(&screen, 80);
        assert_eq!(
            words(&text, "transfer"),
            [
                "transfer",
                "192.0.2.1:40000",
                "1",
                "MiB",
                "2",
                "MiB",
                "1.500",
                "1",
                "(0.095",
                "%)"
            ]
        );
        let titles = [
            "test", "client", "bytes", "up", "bytes", "down", "RTT,", "ms", "lost",
        ];
        assert_eq!(words(&text, "test"), titles);
    }

    #[test]
    fn a_key_resets_the_counters_and_only_those() {
        let bytes = Arc::new(AtomicU64::new(1_000_000));
        let mut screen = screen(&bytes);
        screen.update_at(Instant::now());
        assert!(!press(&mut screen, KeyCode::Char('r')));
        let row = words(&shown(&screen), "transfer");
        assert_eq!(row[3..6], ["0", "0", "bytes"]);
        let text = shown(&screen);
        assert_eq!(words(&text, "total")[1], "0");
        assert!(
            text.contains("2 tests running, 0 ended, 0 failed, 0 refusals"),
            "{text}"
        );
        bytes.store(1_500_000, Ordering::Relaxed);
        screen.update_at(Instant::now() + Duration::from_secs(1));
        let row = words(&shown(&screen), "transfer");
        assert_eq!((row[2].as_str(), row[3].as_str()), ("2.0", "500"));
        assert_eq!(words(&shown(&screen), "total")[1], "500");
    }

    #[test]
    fn keys_pause_scroll_and_leave() {
        let bytes = Arc::new(AtomicU64::new(1_000_000));
        let mut screen = screen(&bytes);
        screen.update_at(Instant::now());
        press(&mut screen, KeyCode::Down);
        let text = shown(&screen);
        assert!(
            !text.contains("transfer") && text.contains("probe"),
            "{text}"
        );
        press(&mut screen, KeyCode::Up);
        press(&mut screen, KeyCode::Char('p'));
        bytes.store(9_000_000, Ordering::Relaxed);
        screen.update_at(Instant::now() + Duration::from_secs(1));
        let text = shown(&screen);
        assert!(text.contains("PAUSED"), "{text}");
        assert_eq!(words(&text, "transfer")[3], "1000");
        assert!(press(&mut screen, KeyCode::Char('q')));
        assert!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn the_log_keeps_its_latest_lines_without_control_sequences() {
        let mut log = ScreenLog::default();
        for number in 0..MOST_LINES + 10 {
            let line = format!("line {number} \x1b[2J\n");
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(log.lock().len(), MOST_LINES);
        assert_eq!(
            log.tail(1),
            [format!("line {} \\u{{1b}}[2J", MOST_LINES + 9)]
        );
        let mut screen = screen(&Arc::default());
        screen.log = log;
        assert!(shown(&screen).contains("line 209 "), "{}", shown(&screen));
    }
}
