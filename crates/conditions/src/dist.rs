//! netem's distribution files, as iproute2's `maketable` writes them.

use model::Table;

/// An error in a distribution file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistError {
    /// A word is not a value.
    #[error(
        "line {line}: `{word}` is not a value: write whole numbers from -32768 to 32767, where 8192 stands for one spread"
    )]
    NoValue {
        /// The number of its line, from 1.
        line: usize,
        /// The beginning of the word.
        word: String,
    },
    /// The file has more values than netem takes.
    #[error("line {line}: more than {most} values, netem's maximum", most = Table::MOST)]
    TooMany {
        /// The number of the line with the first excess value, from 1.
        line: usize,
    },
    /// The file has no value.
    #[error(
        "the file has no values: write whole numbers from -32768 to 32767, where 8192 stands for one spread"
    )]
    Empty,
}

/// Reads the distribution in `text`: values separated by white space, and lines that begin with `#`, which are comments
/// (iproute2, `tc/q_netem.c`, `get_distribution`).
///
/// It refuses text that tc would read differently: tc ignores the rest of a line from the first word that is not a
/// number, cuts numbers to 16 bits, and reads those that begin with 0 in base 8.
///
/// # Errors
/// Returns an error for a word that is not a 16-bit number, for no values and for more than [`Table::MOST`].
pub fn parse(text: &str) -> Result<Table, DistError> {
    let mut values: Vec<i16> = Vec::new();
    let lines = text.lines().zip(1..);
    for (content, line) in lines.filter(|(content, _)| !content.trim_start().starts_with('#')) {
        for word in content.split_whitespace() {
            let value = value(word).ok_or_else(|| DistError::NoValue {
                line,
                word: word.chars().take(20).collect(),
            })?;
            if values.len() == Table::MOST {
                return Err(DistError::TooMany { line });
            }
            values.push(value);
        }
    }
    Table::new(values).map_err(|_| DistError::Empty)
}

/// Writes `table` in one line, in the form that [`parse`] reads.
pub fn print(table: &Table) -> String {
    let values: Vec<String> = table.values().iter().map(i16::to_string).collect();
    values.join(" ")
}

fn value(word: &str) -> Option<i16> {
    let digits = word.trim_start_matches(['-', '+']);
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    word.parse().ok().filter(|_| !is_octal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_comments_are_skipped() {
        let text = "# made by hand\n\n -8192 0\t8192\n  # 5\n32767 -32768\n";
        let table = parse(text).unwrap();
        assert_eq!(table.values(), [-32_768, -8_192, 0, 8_192, 32_767]);
        assert_eq!(parse(&print(&table)), Ok(table));
    }

    #[test]
    fn an_invalid_distribution_is_refused_with_its_line() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        let right = "is not a value: write whole numbers from -32768 to 32767, where 8192 stands for one spread";
        for word in [
            "abc", "1.5", "0x10", "010", "-01", "32768", "-32769", "--1", "5,",
        ] {
            assert_eq!(
                refused(&format!("1\n2 {word}")),
                format!("line 2: `{word}` {right}")
            );
        }
        let long = "9".repeat(100);
        assert_eq!(refused(&long), format!("line 1: `{}` {right}", &long[..20]));
        assert!(refused("# 1\n\n").starts_with("the file has no values"));
        let most = "1 2\n".repeat(Table::MOST / 2);
        assert_eq!(parse(&most).unwrap().values().len(), 16_384);
        assert_eq!(
            refused(&(most + "3")),
            "line 8193: more than 16384 values, netem's maximum"
        );
    }
}
