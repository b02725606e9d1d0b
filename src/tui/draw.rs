//! Draws the screen.

use std::collections::BTreeMap;
use std::env;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};

use super::app::{App, WatchedLink};
use super::history::SPAN_S;
use super::run;
use super::steps::AdjustableCondition;
use crate::live::{ConditionsSample, DirectionSample, LinkSample};

const HELP: &str = "\u{2190} \u{2192} choose  \u{2191} \u{2193} change  x remove  Enter type  u undo  p pause  Tab link  q leave";
const HELP_OF_RUN: &str =
    "\u{2191} \u{2193} figures  p pause  Tab link  q leave  (the scenario sets the conditions)";
/// The lines of counters: a head, two directions, the drops, the departure error and what the emulator itself lost.
/// Conditions that change by themselves take another one, and so do rules.
const COUNTERS: u16 = 6;
/// The lines of a command's output or of an experiment's figures, with the frame.
const OUTPUT: u16 = 7;
/// The lines of an experiment's progress.
const PROGRESS: u16 = 2;

/// Returns the colours of up and down, which colour-blind people can distinguish. If NO_COLOR is
/// set, there are none (no-color.org).
fn colours() -> [Style; 2] {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if unwanted {
        [Style::new(), Style::new()]
    } else {
        [Color::LightBlue, Color::Yellow].map(|colour| Style::new().fg(colour))
    }
}

/// Draws the whole screen.
pub(super) fn all(frame: &mut Frame<'_>, app: &App) {
    let is_run = app.experiment.is_some();
    let lines = |wanted: bool, lines| Constraint::Length(if wanted { lines } else { 0 });
    let sample = app.watched.as_ref().and_then(|link| link.last.as_ref());
    let changes = sample.is_some_and(|sample| sample.up.in_force.is_some());
    let has_rules = sample.is_some_and(|sample| !sample.up.counters.rules.is_empty());
    let [
        progress,
        head,
        charts,
        counters,
        printed,
        conditions_row,
        message,
        help,
    ] = Layout::vertical([
        lines(is_run, PROGRESS),
        Constraint::Length(2),
        Constraint::Min(6),
        Constraint::Length(COUNTERS + u16::from(changes) + u16::from(has_rules)),
        lines(is_run || app.output.is_some(), OUTPUT),
        lines(!is_run, 1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    if let Some(watched) = &app.watched {
        frame.render_widget(title(app, watched), head);
        let halves = [Constraint::Percentage(50); 2];
        let [rates, queues] = Layout::horizontal(halves).areas(charts);
        curves(
            frame,
            rates,
            "delivered, Mbit/s",
            watched.history.rates(),
            1e6,
        );
        let title = queue_title(watched.history.round_trips());
        curves(frame, queues, &title, watched.history.queues(), 1.0);
        if let Some(sample) = &watched.last {
            frame.render_widget(table(sample), counters);
        }
        if !is_run {
            frame.render_widget(conditions(app, watched), conditions_row);
        }
    } else {
        frame.render_widget(Paragraph::new("no link is running"), head);
    }
    if let Some(output) = &app.output {
        let block = Block::bordered().title("output of the command; printed in full at the end");
        let lines: Vec<Line<'_>> = output
            .tail(usize::from(block.inner(printed).height))
            .into_iter()
            .map(Line::raw)
            .collect();
        frame.render_widget(Paragraph::new(lines).block(block), printed);
    }
    if let Some(experiment) = &app.experiment {
        frame.render_widget(run::progress(experiment), progress);
        // Between two runs there is room for more figures.
        let area = match app.watched {
            Some(_) => printed,
            None => charts.union(counters).union(printed),
        };
        run::figures(frame, area, &experiment.rows, app.figures_below);
    }
    let line = match &app.entry {
        Some(entry) => format!("NAME=VALUE ...: {entry}_"),
        None => app.message.clone(),
    };
    frame.render_widget(Paragraph::new(line), message);
    let help_style = Style::new().add_modifier(Modifier::DIM);
    let keys = if is_run { HELP_OF_RUN } else { HELP };
    frame.render_widget(Paragraph::new(keys).style(help_style), help);
}

fn title(app: &App, watched: &WatchedLink) -> Paragraph<'static> {
    let view = &watched.view;
    let [client, server] = &view.ends;
    let (at, of) = watched.place;
    let mut first = format!("{}: {client} \u{2194} {server}", view.name);
    if of > 1 {
        first += &format!(" ({at} of {of} links)");
    }
    first += &format!(", revision {}", view.revision);
    if let Some(schedule) = &watched.schedule {
        first += &format!(", {schedule}");
    }
    if view.is_leased() {
        first += ", leased";
    }
    if app.is_paused {
        first += " \u{2014} PAUSED, continue with p";
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Paragraph::new(vec![
        Line::styled(first, bold),
        Line::raw(format!("conditions: {}", view.says)),
    ])
}

/// Returns the title of the queue chart, with the latest round trips of sides A and B.
fn queue_title(round_trips_ms: [Option<f64>; 2]) -> String {
    let ms = |time: Option<f64>| time.map_or("-".to_owned(), short);
    match round_trips_ms {
        [None, None] => "queue, ms".to_owned(),
        [a, b] => format!("queue, ms; round trip a {}, b {}", ms(a), ms(b)),
    }
}

/// Draws two curves of the last minute, up with fine marks and down with dots.
fn curves(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    directions: [Vec<(f64, f64)>; 2],
    unit: f64,
) {
    let scaled = directions.map(|direction| {
        let point = |(at, value): (f64, f64)| (at, value / unit);
        direction.into_iter().map(point).collect::<Vec<_>>()
    });
    let values = scaled.iter().flatten().map(|(_, value)| *value);
    let most = round_up(values.fold(0.0, f64::max));
    let curve = |direction: usize, name: &'static str, marker| {
        Dataset::default()
            .name(name)
            .marker(marker)
            .graph_type(GraphType::Line)
            .style(colours()[direction])
            .data(&scaled[direction])
    };
    let chart = Chart::new(vec![
        curve(0, "up", Marker::Braille),
        curve(1, "down", Marker::Dot),
    ])
    .block(Block::bordered().title(name.to_owned()))
    .x_axis(
        Axis::default()
            .bounds([-SPAN_S, 0.0])
            .labels(["-60 s", "now"]),
    )
    .y_axis(
        Axis::default()
            .bounds([0.0, most])
            .labels(["0".to_owned(), short(most)]),
    );
    frame.render_widget(chart, area);
}

/// Rounds up to the next of 1, 2, 5, 10 and so on; returns 1 for 0.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value => format!("{}", (value * 1e3).round() / 1e3),
    }
}

fn table(sample: &LinkSample) -> Paragraph<'static> {
    let row = |name: &str, direction: &DirectionSample| {
        let of = &direction.counters;
        let queue = direction
            .queue_packets
            .map_or("-".to_owned(), |packets| packets.to_string());
        format!(
            "{name:<6}{:>13}{:>13}{:>11}{:>9}{:>12.3}{:>12.3}",
            of.packets,
            of.delivered,
            of.in_flight,
            queue,
            direction.offered_bit_per_s / 1e6,
            direction.delivered_bit_per_s / 1e6
        )
    };
    let error = &sample.departure_error;
    let dropped = [&sample.up, &sample.down].map(|direction| causes(&direction.counters.dropped));
    let lost =
        [&sample.up, &sample.down].map(|direction| causes(&direction.counters.emulator_lost));
    let mut lines = vec![
        Line::raw(format!(
            "{:<6}{:>13}{:>13}{:>11}{:>9}{:>12}{:>12}",
            "", "packets", "delivered", "in flight", "queued", "in Mbit/s", "out Mbit/s"
        )),
        Line::styled(row("up", &sample.up), colours()[0]),
        Line::styled(row("down", &sample.down), colours()[1]),
        Line::raw(format!(
            "dropped by the conditions: up {}; down {}",
            dropped[0], dropped[1]
        )),
        Line::raw(format!(
            "departure error: median {:.0} us, p99 {:.0} us, max {:.0} us; {} packets late",
            error.p50_us, error.p99_us, error.max_us, error.late
        )),
    ];
    if lost.iter().any(|lost| lost != "none") {
        lines.push(Line::raw(format!(
            "lost by the emulator itself: up {}; down {}",
            lost[0], lost[1]
        )));
    }
    if let (Some(up), Some(down)) = (&sample.up.in_force, &sample.down.in_force) {
        lines.push(Line::raw(format!(
            "in force now: up {}; down {}",
            in_force(up),
            in_force(down)
        )));
    }
    if !sample.up.counters.rules.is_empty() {
        lines.push(Line::raw(hits(sample)));
    }
    Paragraph::new(lines)
}

/// Returns the packets of each rule, which both directions list.
fn hits(sample: &LinkSample) -> String {
    let [up, down] = [&sample.up, &sample.down].map(|direction| &direction.counters.rules);
    let both = up.iter().zip(down);
    let words = both.map(|(up, down)| format!("{} {}/{}", up.name, up.packets, down.packets));
    let words: Vec<String> = words.collect();
    format!("packets by rule, up/down: {}", words.join(", "))
}

/// Describes the conditions in force in one direction.
fn in_force(one: &ConditionsSample) -> String {
    let rate = match one.rate_bit_per_s {
        None => "any rate".to_owned(),
        Some(0) => "nothing passes".to_owned(),
        Some(rate) => format!("{} Mbit/s", short(rate as f64 / 1e6)),
    };
    format!(
        "{rate}, {} ms, {} % lost",
        short(one.delay_ms),
        short(one.loss_percent)
    )
}

fn causes(all: &BTreeMap<String, u64>) -> String {
    let some = all.iter().filter(|(_, count)| **count > 0);
    let words: Vec<String> = some
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

/// Shows the conditions that keys change, with the chosen one marked.
fn conditions(app: &App, watched: &WatchedLink) -> Paragraph<'static> {
    let words = AdjustableCondition::ALL.map(|condition| {
        let value = watched.condition(condition.name());
        let text = format!(
            "{} {}",
            condition.name(),
            value.as_deref().unwrap_or("none")
        );
        if condition == app.condition {
            Span::styled(
                format!("[{text}]"),
                Style::new().add_modifier(Modifier::REVERSED),
            )
        } else {
            Span::raw(format!(" {text} "))
        }
    });
    let mut spans = Vec::new();
    for word in words {
        spans.extend([word, Span::raw("  ")]);
    }
    Paragraph::new(Line::from(spans))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (value, most) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (7.0, 10.0),
            (230.0, 500.0),
        ] {
            assert!((round_up(value) - most).abs() < 1e-9, "{value}");
        }
        assert_eq!((short(500.0).as_str(), short(0.5).as_str()), ("500", "0.5"));
    }

    #[test]
    fn measured_round_trips_are_in_the_title_of_the_queue() {
        assert_eq!(queue_title([None, None]), "queue, ms");
        assert_eq!(
            queue_title([Some(40.3), None]),
            "queue, ms; round trip a 40, b -"
        );
    }

    #[test]
    fn conditions_in_force_are_in_words() {
        let outage = ConditionsSample {
            rate_bit_per_s: Some(0),
            delay_ms: 26.55,
            jitter_ms: 5.0,
            loss_percent: 0.0,
        };
        assert_eq!(in_force(&outage), "nothing passes, 27 ms, 0 % lost");
        let trace = ConditionsSample {
            rate_bit_per_s: Some(4_500_000),
            delay_ms: 5.25,
            loss_percent: 1.5,
            ..outage
        };
        assert_eq!(in_force(&trace), "4.5 Mbit/s, 5.25 ms, 1.5 % lost");
        let free = ConditionsSample {
            rate_bit_per_s: None,
            ..trace
        };
        assert!(in_force(&free).starts_with("any rate, "));
    }

    #[test]
    fn causes_are_in_words() {
        let all = BTreeMap::from([("loss".to_owned(), 3), ("queue full".to_owned(), 0)]);
        assert_eq!(causes(&all), "loss 3");
        assert_eq!(causes(&BTreeMap::new()), "none");
    }
}
