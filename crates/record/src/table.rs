//! A table as a value, which determines its content but not its appearance.

use crate::printable::printable_lines;

/// Rows under a header, each with as many cells as the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The title; empty if the context already says it.
    pub title: String,
    /// The header.
    pub columns: Vec<Column>,
    /// The cells of each row.
    pub rows: Vec<Vec<Cell>>,
    /// Notes on how to read the table; empty if none are needed.
    pub note: String,
}

/// A column of words or of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The title; a line break separates it from its unit.
    pub title: String,
    /// Whether the column has numbers, which are right-aligned; words are left-aligned.
    pub numeric: bool,
    /// Whether the column belongs to the one before it, from which it is never separated.
    pub beside: bool,
    /// Whether the column, together with those before it, identifies the row. The first column always does.
    pub label: bool,
    /// Anchor in the same document at which the trust in these numbers is explained.
    pub explained_at: Option<String>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text as people read it.
    pub text: String,
    /// The highlighting.
    pub mark: Mark,
}

/// The highlighting of a cell, if the output format supports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// No highlighting.
    #[default]
    Plain,
    /// The value meets an expectation.
    Good,
    /// The value does not meet an expectation.
    Bad,
    /// The value was published elsewhere.
    Published,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            title: shown(title),
            columns: columns.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns the number of columns, from the first on, that identify a row.
    pub fn labels(&self) -> usize {
        let more = self.columns.iter().skip(1);
        let labels = 1 + more.take_while(|column| column.label).count();
        labels.min(self.columns.len())
    }

    /// Adds a row.
    pub fn push<C: Into<Cell>>(&mut self, row: impl IntoIterator<Item = C>) {
        self.rows.push(row.into_iter().map(C::into).collect());
    }

    /// Adds these rows.
    pub fn with<C: Into<Cell>, R: IntoIterator<Item = C>>(
        mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        rows.into_iter().for_each(|row| self.push(row));
        self
    }
}

impl Column {
    /// Creates a column of words.
    pub fn words(title: impl Into<String>) -> Self {
        Self {
            title: shown(title),
            numeric: false,
            beside: false,
            label: false,
            explained_at: None,
        }
    }

    /// Creates a column of numbers.
    pub fn numbers(title: impl Into<String>) -> Self {
        Self {
            title: shown(title),
            numeric: true,
            beside: false,
            label: false,
            explained_at: None,
        }
    }

    /// Sets the anchor of the document at which the column is explained.
    pub fn explained_at(mut self, place: String) -> Self {
        self.explained_at = Some(place);
        self
    }

    /// Marks the column as one that identifies the row.
    pub fn label(mut self) -> Self {
        self.label = true;
        self
    }

    /// Marks the column as belonging to the one before it.
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

impl Cell {
    /// Creates a highlighted cell.
    pub fn marked(text: impl Into<String>, mark: Mark) -> Self {
        let text = shown(text);
        Self { text, mark }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::marked(text, Mark::Plain)
    }
}

/// Returns a text, which may contain names from unknown sources, in a form that is safe to print on a terminal.
fn shown(text: impl Into<String>) -> String {
    printable_lines(&text.into()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_and_the_label_columns_after_it_identify_a_row() {
        let [one, two, three] = ["case", "delay", "rtt"].map(Column::words);
        let columns = [one, two.label(), three, Column::words("late").label()];
        assert_eq!(Table::new("", columns).labels(), 2);
        assert_eq!(Table::new("", [Column::words("case")]).labels(), 1);
    }

    #[test]
    fn control_characters_in_tables_are_escaped() {
        let columns = [
            Column::words("a\u{1b}[2J"),
            Column::numbers("b\u{202e}\nms"),
        ];
        let table = Table::new("c\u{9b}2J", columns).with([["d\u{7}", "1"]]);
        let cell = |at: usize| &table.columns[at].title;
        assert_eq!(cell(0), r"a\u{1b}[2J");
        assert_eq!(cell(1), "b\\u{202e}\nms");
        assert_eq!(table.title, r"c\u{9b}2J");
        assert_eq!(table.rows[0][0].text, r"d\u{7}");
    }
}
