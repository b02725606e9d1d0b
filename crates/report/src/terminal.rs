//! Formats tables and prose for a terminal: no line is longer than the terminal is wide, and no number is truncated or
//! wrapped.

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, LineStyle, TableStyle, Width,
};
use record::printable::printable;
use record::table::{Cell, Column, Mark, Table};
use textwrap::core::{Word, display_width};
use textwrap::{WordSeparator, WordSplitter};

/// Lines above, below and under the header only.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Padding to the left of a column: the margin before the first, and the space between two columns.
const PADDING: u16 = 1;
/// Longest word that is never broken.
const LONGEST_WORD: usize = 24;

/// Units that stay on the line of the number before them.
const UNITS: [&str; 8] = ["%", "s", "ms", "us", "Mbit/s", "bytes", "packets", "points"];
const NO_BREAK: char = '\u{a0}';

/// The properties of the output device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Number of characters in a line.
    pub width: usize,
    /// Whether it shows colours.
    pub coloured: bool,
}

impl Terminal {
    /// A pipe or a file.
    pub const NONE: Self = Self {
        width: 80,
        coloured: false,
    };
}

/// Formats a table for a terminal; empty for a table without rows.
///
/// If it is wider than the terminal, first the titles of columns of numbers are wrapped, and then the contents of
/// columns of words. Columns that still do not fit are moved to a table below, which starts with the same labels. If
/// the labels alone leave little room, they are joined in one column.
pub fn table_text(table: &Table, terminal: Terminal) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let joined = with_joined_labels(table, terminal.width);
    let table = joined.as_ref().unwrap_or(table);
    let blocks = blocks(table, terminal.width).into_iter();
    let drawn: Vec<String> = blocks
        .map(|(columns, widths)| drawn(table, &columns, &widths, terminal.coloured))
        .collect();
    let last = drawn.len().saturating_sub(1);
    // Between two parts, the upper line of the lower one is sufficient.
    let joined = drawn
        .iter()
        .enumerate()
        .map(|(at, block)| match block.trim_end().rfind('\n') {
            Some(end) if at < last => &block[..=end],
            _ => block,
        });
    let title = prose(&table.title, terminal);
    title + &joined.collect::<String>() + &prose(&table.note, terminal)
}

/// Formats lines of text, each wrapped to the terminal with the following lines indented; empty for an empty text.
pub fn prose(text: &str, terminal: Terminal) -> String {
    hanging(text, terminal, 2)
}

/// Formats lines of text in the same way, with following lines indented by this many characters.
pub fn hanging(text: &str, terminal: Terminal, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let options = textwrap::Options::new(terminal.width)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation);
    let wrapped = |line: &str| {
        let line = with_units_kept(&printable(line));
        let lines = textwrap::wrap(&line, &options)
            .into_iter()
            .map(|line| format!("{}\n", line.trim_end().replace(NO_BREAK, " ")));
        lines.collect::<String>()
    };
    text.lines().map(wrapped).collect()
}

/// Replaces spaces between numbers and their units by ones at which a line is not wrapped.
fn with_units_kept(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    for (at, word) in line.split(' ').enumerate() {
        let unit = word.trim_end_matches([',', ';', ':', '.', ')']);
        if kept.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit) {
            kept.push(NO_BREAK);
        } else if at > 0 {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    kept
}

/// Returns the same table with all labels of a row in one column, "delay 10ms, loss 1%", if several columns of them
/// would take more than half of `width`.
fn with_joined_labels(table: &Table, width: usize) -> Option<Table> {
    let labels = table.labels();
    let least = (0..labels).map(|at| extent(table, at, width).least);
    let between = labels * (usize::from(PADDING) + 1);
    if labels == 1 || least.sum::<usize>() + between <= width / 2 {
        return None;
    }
    let label = |(column, cell): (&Column, &Cell)| {
        let title = column.title.as_str();
        let (name, unit) = title.split_once('\n').unwrap_or((title, ""));
        match name {
            _ if cell.text.is_empty() || cell.text == "–" => None,
            "case" => Some(cell.text.clone()),
            _ => {
                let words = format!("{name} {} {unit}", cell.text);
                Some(words.trim_end().replace(' ', &NO_BREAK.to_string()))
            }
        }
    };
    let row = |cells: &Vec<Cell>| {
        let words: Vec<String> = table.columns[..labels]
            .iter()
            .zip(cells)
            .filter_map(label)
            .collect();
        let mark = cells.first().map(|cell| cell.mark).unwrap_or_default();
        // The texts of the cells are printable already.
        let text = words.join(", ");
        let first = Cell { text, mark };
        let others = cells.iter().skip(labels).cloned();
        std::iter::once(first).chain(others).collect::<Vec<_>>()
    };
    let columns = table.columns.iter().skip(labels).cloned();
    let columns = std::iter::once(Column::words("case")).chain(columns);
    let mut joined = Table::new(table.title.as_str(), columns).with(table.rows.iter().map(row));
    joined.note.clone_from(&table.note);
    Some(joined)
}

/// The width that a column has and can have.
#[derive(Clone, Copy)]
struct Extent {
    natural: usize,
    least: usize,
}

/// Returns the columns of each part of `table` on a terminal of this width, and their widths.
fn blocks(table: &Table, width: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let extents: Vec<Extent> = (0..table.columns.len())
        .map(|at| extent(table, at, width))
        .collect();
    let fit = |columns: &[usize]| {
        let own: Vec<(Extent, bool)> = columns
            .iter()
            .map(|at| (extents[*at], table.columns[*at].numeric))
            .collect();
        fitted(&own, width)
    };
    let all: Vec<usize> = (0..table.columns.len()).collect();
    if let Some(widths) = fit(&all) {
        return vec![(all, widths)];
    }
    // Each group is a column with those that belong to it.
    let labels: Vec<usize> = (0..table.labels()).collect();
    let mut together: Vec<Vec<usize>> = Vec::new();
    for at in labels.len()..table.columns.len() {
        match together.last_mut() {
            Some(last) if table.columns[at].beside => last.push(at),
            _ => together.push(vec![at]),
        }
    }
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for more in together {
        match blocks.last_mut() {
            Some(last) if fit(&[last.as_slice(), &more].concat()).is_some() => last.extend(more),
            _ => blocks.push([labels.clone(), more].concat()),
        }
    }
    let least = |columns: &[usize]| columns.iter().map(|at| extents[*at].least).collect();
    let sized = blocks.into_iter().map(|columns| {
        let widths = fit(&columns).unwrap_or_else(|| least(&columns));
        (columns, widths)
    });
    sized.collect()
}

/// Returns widths of columns that fit into `width` together. Columns of numbers (`true`) are narrowed first.
fn fitted(columns: &[(Extent, bool)], width: usize) -> Option<Vec<usize>> {
    let mut widths: Vec<usize> = columns.iter().map(|(extent, _)| extent.natural).collect();
    let over = |widths: &[usize]| {
        let between = widths.len() * (usize::from(PADDING) + 1) - 1;
        (widths.iter().sum::<usize>() + between).saturating_sub(width)
    };
    for numeric in [true, false] {
        for _ in 0..over(&widths) {
            let own = columns.iter().zip(&mut widths);
            let wider = own.filter(|((extent, n), width)| *n == numeric && **width > extent.least);
            let Some((_, widest)) = wider.max_by_key(|(_, width)| **width) else {
                break;
            };
            *widest -= 1;
        }
    }
    (over(&widths) == 0).then_some(widths)
}

fn extent(table: &Table, at: usize, width: usize) -> Extent {
    let column = &table.columns[at];
    let cells = table.rows.iter().map(|row| row[at].text.as_str());
    let line = |text: &str| text.lines().map(display_width).max().unwrap_or_default();
    let word = |text: &str| {
        let words = text.split_whitespace().map(display_width);
        words.max().unwrap_or_default()
    };
    let part = |text: &str| {
        let text = with_units_kept(text);
        let parts = text
            .lines()
            .flat_map(parts)
            .map(|part| display_width(part.trim_end_matches(' ')));
        parts.max().unwrap_or_default()
    };
    let cell = cells.clone().map(line).max().unwrap_or_default();
    let natural = cell.max(line(&column.title));
    let least = if column.numeric {
        cell.max(word(&column.title))
    } else if at < table.labels() && label_width(table) <= width / 2 {
        // The labels of a row stay on one line if that leaves at least half of the width.
        natural
    } else {
        let longest = cells.map(part).max().unwrap_or_default();
        longest.max(word(&column.title)).min(LONGEST_WORD)
    };
    Extent { natural, least }
}

/// Returns the width of the labels of a row on one line.
fn label_width(table: &Table) -> usize {
    let line = |text: &str| text.lines().map(display_width).max().unwrap_or_default();
    let widths = (0..table.labels()).map(|at| {
        let cells = table.rows.iter().map(|row| line(&row[at].text));
        cells
            .max()
            .unwrap_or_default()
            .max(line(&table.columns[at].title))
    });
    widths.sum::<usize>() + (table.labels() - 1) * (usize::from(PADDING) + 1)
}

fn drawn(table: &Table, columns: &[usize], widths: &[usize], coloured: bool) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(STYLE);
    if coloured {
        drawn.enforce_styling();
    } else {
        drawn.force_no_tty();
    }
    drawn.set_header(header(table, columns, widths));
    let cell = |row: &Vec<Cell>, at: usize, width: usize| {
        if table.columns[at].numeric {
            terminal_cell(&row[at].text, row[at].mark)
        } else {
            terminal_cell(&in_parts(&row[at].text, width), row[at].mark)
        }
    };
    let row = |row: &Vec<Cell>| {
        let cells = columns
            .iter()
            .zip(widths)
            .map(|(at, width)| cell(row, *at, *width));
        cells.collect::<Vec<_>>()
    };
    drawn.add_rows(table.rows.iter().map(row));
    for ((at, width), drawn) in columns.iter().zip(widths).zip(drawn.column_iter_mut()) {
        drawn.set_padding((PADDING, 0));
        let width = u16::try_from(*width)
            .unwrap_or(u16::MAX)
            .saturating_add(PADDING);
        drawn.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        if table.columns[*at].numeric {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    drawn
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Returns the titles, wrapped and aligned at the bottom.
fn header(table: &Table, columns: &[usize], widths: &[usize]) -> Vec<String> {
    let wrapped = |(at, width): (&usize, &usize)| {
        let lines = table.columns[*at]
            .title
            .lines()
            .flat_map(|line| textwrap::wrap(line, *width));
        lines.map(|line| line.into_owned()).collect::<Vec<_>>()
    };
    let titles: Vec<Vec<String>> = columns.iter().zip(widths).map(wrapped).collect();
    let height = titles.iter().map(Vec::len).max().unwrap_or_default();
    let ending = |title: Vec<String>| "\n".repeat(height - title.len().max(1)) + &title.join("\n");
    titles.into_iter().map(ending).collect()
}

/// Wraps words to a column; names are broken after points and commas.
fn in_parts(text: &str, width: usize) -> String {
    fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
        Box::new(parts(line).into_iter().map(Word::from))
    }
    let options = textwrap::Options::new(width)
        .word_splitter(WordSplitter::NoHyphenation)
        .word_separator(WordSeparator::Custom(words));
    let text = with_units_kept(text);
    let lines = text.lines().flat_map(|line| textwrap::wrap(line, &options));
    lines.collect::<Vec<_>>().join("\n").replace(NO_BREAK, " ")
}

/// Splits a line at the places at which it may be wrapped: into words, each with the space after it, and names at
/// points and commas.
fn parts(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut chars = line.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = match char {
            ' ' => next.is_some_and(|next| next != ' '),
            '.' | ',' => next.is_some_and(char::is_alphabetic),
            _ => false,
        };
        if ends {
            parts.push(&line[start..=at]);
            start = at + 1;
        }
    }
    parts.push(&line[start..]);
    parts
}

fn terminal_cell(text: &str, mark: Mark) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new(text);
    match mark {
        Mark::Good => drawn.add_attribute(Attribute::Bold).fg(Color::Green),
        Mark::Bad => drawn.add_attribute(Attribute::Bold).fg(Color::Red),
        _ => drawn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with twelve figures of a case with a long name, each with a change beside it.
    fn wide() -> Table {
        let mut columns = vec![Column::words("case"), Column::words("what it ran under")];
        for figure in 0..12 {
            let title = format!("a figure with a long name, number {figure}\nMbit/s");
            columns.extend([Column::numbers(title), Column::numbers("Δ\n%").beside()]);
        }
        let mut table = Table::new("a title ".repeat(30), columns);
        for case in [
            "satellite[delay=300ms,loss=1%,rate=20mbit,queue=100pkt]",
            "short",
        ] {
            let mut cells = vec![case.to_owned(), "some conditions in many words ".repeat(4)];
            for figure in 0..12 {
                cells.extend([format!("{figure}23.45 ± 6.789"), "+12.3".to_owned()]);
            }
            table.push(cells);
        }
        table.note = "how to read it, ".repeat(20);
        table
    }

    fn longest_line(text: &str) -> usize {
        text.lines().map(display_width).max().unwrap_or_default()
    }

    #[test]
    fn a_table_fits_the_terminal_without_truncated_numbers() {
        for width in [60, 80, 100, 200] {
            let terminal = Terminal {
                width,
                ..Terminal::NONE
            };
            let text = table_text(&wide(), terminal);
            assert!(longest_line(&text) <= width, "{width}:\n{text}");
            for figure in 0..12 {
                let number = format!("{figure}23.45 ± 6.789  +12.3");
                assert!(text.contains(&number), "{width}: {number} in\n{text}");
            }
        }
    }

    #[test]
    fn a_table_that_fits_is_as_wide_as_its_content() {
        let columns = [Column::words("case"), Column::numbers("rtt median\nms")];
        let table = Table::new("ping", columns).with([["base", "1.844 ± 0.066"]]);
        let lines = [
            "ping",
            "────────────────────",
            "          rtt median",
            " case             ms",
            "────────────────────",
            " base  1.844 ± 0.066",
            "────────────────────",
        ];
        let text = table_text(&table, Terminal::NONE);
        assert_eq!(text.lines().collect::<Vec<_>>(), lines, "\n{text}");
    }

    #[test]
    fn prose_is_wrapped_without_separating_numbers_from_units() {
        let terminal = Terminal {
            width: 30,
            ..Terminal::NONE
        };
        let text = prose(
            "a warm-up of exactly so many: 18.85 Mbit/s, then 3",
            terminal,
        );
        assert_eq!(
            text,
            "a warm-up of exactly so many:\n  18.85 Mbit/s, then 3\n"
        );
    }

    #[test]
    fn a_name_is_wrapped_after_points_and_a_number_is_not() {
        let wrapped = in_parts("download.goodput_bit_per_s.mean: 18.85 Mbit/s", 20);
        let lines = ["download.", "goodput_bit_per_s.", "mean: 18.85 Mbit/s"];
        assert_eq!(wrapped.lines().collect::<Vec<_>>(), lines);
    }

    /// A table of a sweep over this many fields, with three figures.
    fn swept(fields: usize) -> Table {
        let labels = (1..=fields).map(|field| Column::words(format!("field{field}")).label());
        let figures = (1..=3).map(|figure| Column::numbers(format!("figure {figure}\nMbit/s")));
        let mut table = Table::new("a sweep", labels.chain(figures));
        for row in 1..=2 {
            let labels = (1..=fields).map(|field| format!("{}ms", row * field));
            let figures = (1..=3).map(|figure| format!("{figure}23.45 ± 6.78{row}"));
            table.push(labels.chain(figures).collect::<Vec<_>>());
        }
        table
    }

    #[test]
    fn labels_are_columns_that_every_part_of_a_folded_table_repeats() {
        let text = table_text(&swept(3), Terminal::NONE);
        let header = text.lines().find(|line| line.contains("field1")).unwrap();
        assert!(header.contains("field1  field2  field3"), "{text}");
        let folded = Terminal {
            width: 60,
            ..Terminal::NONE
        };
        let text = table_text(&swept(3), folded);
        assert!(longest_line(&text) <= 60, "{text}");
        assert_eq!(text.matches(" 2ms     4ms     6ms").count(), 2, "{text}");
    }

    #[test]
    fn labels_that_would_leave_no_room_are_joined_in_one_column() {
        for width in [60, 80] {
            let terminal = Terminal {
                width,
                ..Terminal::NONE
            };
            let text = table_text(&swept(9), terminal);
            assert!(longest_line(&text) <= width, "{text}");
            assert!(text.contains("field1 2ms"), "{text}");
            assert!(text.contains("123.45 ± 6.782"), "{text}");
        }
    }

    #[test]
    fn a_folded_table_begins_with_the_same_column_again() {
        let text = table_text(&wide(), Terminal::NONE);
        let starts = text.lines().filter(|line| line.starts_with(" case"));
        assert!(starts.count() > 2, "{text}");
    }
}
