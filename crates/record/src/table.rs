//! A table as a value: what it says, not how it looks.

/// Rows under a header, all of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// A title a column; a line break parts the title from its unit.
    pub header: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
}
