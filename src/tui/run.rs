//! The part of the screen for an experiment: its progress, its current run, and its figures up to
//! now.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};
use record::quantity::{counted, number};

use crate::live::{ExperimentView, FigureRow, NumberedRun};
use crate::progress::human;

/// The width of the progress bar in characters.
const BAR: usize = 24;

/// Shows two lines: the progress and the current run.
pub(super) fn progress(of: &ExperimentView) -> Paragraph<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Paragraph::new(vec![
        Line::styled(progress_line(of), bold),
        Line::raw(current_run(of)),
    ])
}

/// Formats the progress: "Title  ██░░ 3 of 12 runs, about 40 s left".
fn progress_line(of: &ExperimentView) -> String {
    let full = (BAR * of.done)
        .checked_div(of.planned)
        .unwrap_or(0)
        .min(BAR);
    let bar = "\u{2588}".repeat(full) + &"\u{2591}".repeat(BAR - full);
    let left = of.eta_s.map_or_else(String::new, |left| {
        let left = Duration::try_from_secs_f64(left).unwrap_or_default();
        format!(", about {} left", human(left))
    });
    let planned = counted(of.planned as u64, "run");
    format!("{}  {bar} {} of {planned}{left}", of.title, of.done)
}

/// Formats the current and the next run: "now long: echo; then short (2)".
fn current_run(of: &ExperimentView) -> String {
    let next = of.next.as_ref().map(named);
    let now = of.case.as_ref().map(|case| {
        named(&NumberedRun {
            case: case.clone(),
            repeat: of.repeat.unwrap_or(1),
            attempt: of.attempt.unwrap_or(1),
        })
    });
    match (now, next) {
        (Some(now), Some(next)) => format!("now {now}: {}; next {next}", of.phase),
        (Some(now), None) => format!("now {now}: {}", of.phase),
        (None, Some(next)) => format!("now {}; next {next}", of.phase),
        (None, None) => format!("now {}", of.phase),
    }
}

/// Formats a run: "case (2)", "case (2, attempt 3)".
fn named(run: &NumberedRun) -> String {
    match run.attempt {
        1 => format!("{} ({})", run.case, run.repeat),
        attempt => format!("{} ({}, attempt {attempt})", run.case, run.repeat),
    }
}

/// Shows the last figures, without the number `below` of them at the end.
pub(super) fn figures(frame: &mut Frame<'_>, area: Rect, all: &[FigureRow], below: usize) {
    let inner = Block::bordered().inner(area);
    let room = usize::from(inner.height.saturating_sub(1));
    let shown = window(all.len(), room, below);
    let title = match all.len() {
        0 => "figures so far: none".to_owned(),
        count if shown.len() == count => "figures so far".to_owned(),
        count => format!(
            "figures so far, {} to {} of {count}",
            shown.start + 1,
            shown.end
        ),
    };
    let head = ["case", "figure", "mean", "95 % interval", "runs"];
    let widths = [3, 3, 1, 2, 1].map(Constraint::Fill);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let table = Table::new(all[shown].iter().map(row), widths)
        .header(Row::new(head).style(dim))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

/// Returns the range of `count` rows that fit into the room.
fn window(count: usize, room: usize, below: usize) -> std::ops::Range<usize> {
    let end = count.saturating_sub(below).max(room.min(count));
    end.saturating_sub(room)..end
}

fn row(of: &FigureRow) -> Row<'static> {
    let interval = match (of.low, of.high) {
        (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
        _ => "-".to_owned(),
    };
    let runs = if of.valid {
        of.runs.to_string()
    } else {
        format!("{}, some invalid", of.runs)
    };
    Row::new([
        of.case.clone(),
        format!("{}.{}", of.instrument, of.figure),
        number(of.value),
        interval,
        runs,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(done: usize, planned: usize, eta_s: Option<f64>) -> ExperimentView {
        ExperimentView {
            scenario: "x".to_owned(),
            title: "X".to_owned(),
            done,
            planned,
            eta_s,
            case: None,
            repeat: None,
            attempt: None,
            phase: "set-up".to_owned(),
            next: None,
            rows: Vec::new(),
        }
    }

    #[test]
    fn progress_is_a_bar_with_the_remaining_time_if_it_is_known() {
        let half = progress_line(&view(1, 2, Some(61.0)));
        assert!(
            half.ends_with("1 of 2 runs, about 1 min 01 s left"),
            "{half}"
        );
        assert_eq!(half.matches('\u{2588}').count(), BAR / 2);
        let none = progress_line(&view(0, 0, None));
        assert!(none.ends_with(" 0 of 0 runs"), "{none}");
        assert_eq!(
            progress_line(&view(5, 4, None)).matches('\u{2591}').count(),
            0
        );
    }

    #[test]
    fn the_current_and_the_next_run_are_shown() {
        let mut of = view(1, 3, None);
        assert_eq!(current_run(&of), "now set-up");
        of.next = Some(NumberedRun {
            case: "b".to_owned(),
            repeat: 2,
            attempt: 3,
        });
        assert_eq!(current_run(&of), "now set-up; next b (2, attempt 3)");
        (of.case, of.repeat, of.attempt) = (Some("a".to_owned()), Some(1), Some(1));
        of.phase = "ping".to_owned();
        assert_eq!(current_run(&of), "now a (1): ping; next b (2, attempt 3)");
    }

    #[test]
    fn the_last_figures_are_shown_and_keys_scroll_back() {
        assert_eq!(window(3, 5, 0), 0..3);
        assert_eq!(window(3, 5, 2), 0..3);
        assert_eq!(window(9, 4, 0), 5..9);
        assert_eq!(window(9, 4, 3), 2..6);
        assert_eq!(window(9, 4, 8), 0..4);
        assert_eq!(window(9, 0, 0), 9..9);
        assert_eq!(window(0, 4, 0), 0..0);
    }
}
