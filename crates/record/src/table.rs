//! A table as a value: what it says, not how it looks.

use crate::printable::printable_lines;

/// Rows under a header, all as long as that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it is of; empty where that is said elsewhere.
    pub title: String,
    /// The header.
    pub columns: Vec<Column>,
    /// The cells of each row.
    pub rows: Vec<Vec<Cell>>,
    /// How to read it; empty where that needs no word.
    pub note: String,
}

/// A column of words or of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// A line break parts the title from its unit.
    pub title: String,
    /// Numbers stand to the right, words to the left.
    pub numeric: bool,
    /// What it says is of the column before it: the two are never parted.
    pub beside: bool,
    /// The name of the place in the same document that says how far to trust it.
    pub explained_at: Option<String>,
}

/// What stands in one place of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// As people read it.
    pub text: String,
    /// What sets it apart.
    pub mark: Mark,
}

/// What sets a cell apart from others, where the target can show that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
    /// Somebody else published it.
    Published,
    /// The text is a drawing in SVG.
    Drawing,
}

impl Table {
    /// Without rows yet.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            title: shown(title),
            columns: columns.into_iter().collect(),
            ..Self::default()
        }
    }

    /// With one more row.
    pub fn push<C: Into<Cell>>(&mut self, row: impl IntoIterator<Item = C>) {
        self.rows.push(row.into_iter().map(C::into).collect());
    }

    /// With these rows.
    pub fn with<C: Into<Cell>, R: IntoIterator<Item = C>>(
        mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        rows.into_iter().for_each(|row| self.push(row));
        self
    }
}

impl Column {
    /// A column of words.
    pub fn words(title: impl Into<String>) -> Self {
        Self {
            title: shown(title),
            numeric: false,
            beside: false,
            explained_at: None,
        }
    }

    /// A column of numbers.
    pub fn numbers(title: impl Into<String>) -> Self {
        Self {
            title: shown(title),
            numeric: true,
            beside: false,
            explained_at: None,
        }
    }

    /// Explained at this place of the document.
    pub fn explained_at(mut self, place: String) -> Self {
        self.explained_at = Some(place);
        self
    }

    /// Never parted from the column before it.
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

impl Cell {
    /// A text that something sets apart.
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

/// A text of a table, which may have names of strangers in it, as a terminal can show it.
fn shown(text: impl Into<String>) -> String {
    printable_lines(&text.into()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_table_is_obeyed_by_a_terminal() {
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
