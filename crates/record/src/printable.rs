//! Makes text from unknown sources safe to print on a terminal, in a log and on a page.
//!
//! Control characters (ECMA-48: C0, DEL, C1) can move a terminal's cursor and overwrite what it shows. Bidirectional
//! controls and invisible format characters make text look different from what it is (Unicode Standard Annex #9;
//! Boucher and Anderson, "Trojan Source", 2021). All of them are replaced by their code point, as in `\u{9b}`.

use std::borrow::Cow;

/// Greatest width in columns of a log line for people, who read it on a terminal beside other logs.
pub const COLUMNS: usize = 160;

/// Returns `text` as one line of at most [`COLUMNS`] characters, with unprintable ones escaped. A longer text is cut
/// off and ends in `...`.
pub fn log_line(text: &str) -> String {
    const CUT: &str = "...";
    let line = printable(text);
    match line.char_indices().nth(COLUMNS) {
        None => line.into_owned(),
        Some(_) => {
            let kept: String = line.chars().take(COLUMNS - CUT.len()).collect();
            kept + CUT
        }
    }
}

/// Returns `text` as one line, with unprintable characters escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unfit)
}

/// Returns `text` with unprintable characters escaped, except for line breaks and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unfit(c) && !matches!(c, '\n' | '\t'))
}

/// Returns equivalent JSON, of one line or several, that is safe to print on a terminal.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_unfit = |c| is_unfit(c) && c != '\n';
    if !json.contains(is_unfit) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if is_unfit(c) {
            // In valid JSON, such characters occur only within strings.
            out.extend(
                c.encode_utf16(&mut units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Returns whether a text file must not contain this character, because a terminal obeys it or because it changes the
/// order of the text that follows (Unicode Standard Annex #9, explicit directional formatting). Line breaks and tabs
/// are allowed.
pub fn is_control(letter: char) -> bool {
    let reorders = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    reorders || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}

fn escaped(text: &str, is_unfit: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unfit) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unfit(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.into()
}

fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("reno"), "reno");
        assert_eq!(printable("Zürich → 東京"), "Zürich → 東京");
        assert_eq!(printable("a\nb\x1b[2J"), r"a\nb\u{1b}[2J");
        assert_eq!(printable("\u{9b}2J\u{7f}"), r"\u{9b}2J\u{7f}");
        assert_eq!(printable("gnp.\u{202e}exe"), r"gnp.\u{202e}exe");
        assert_eq!(printable_lines("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn a_log_line_has_at_most_160_columns() {
        let whole = "x".repeat(COLUMNS);
        assert_eq!(log_line(&whole), whole);
        let cut = log_line(&"ü\n".repeat(COLUMNS));
        assert_eq!(cut.chars().count(), COLUMNS);
        assert!(cut.ends_with("..."), "{cut}");
    }

    proptest! {
        #[test]
        fn printable_json_is_equivalent_and_has_no_control_characters(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let json = printable_json(&json);
            prop_assert!(!json.contains(is_unfit));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
