//! SVG as text: escaping, and looks that distinguish series even without colour.

use std::fmt::Write;

/// The palette of M. Okabe and K. Ito, "Color Universal Design" (2008), whose colours colour-blind readers can
/// distinguish, in an order in which neighbours differ in lightness. Black is the colour of the page's text; yellow is
/// left out, because it is too pale on white.
const COLOURS: [&str; 7] = [
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "currentColor",
    "#E69F00",
    "#56B4E9",
];
/// Dash patterns, which distinguish series besides the colour.
const DASHES: [&str; 7] = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 2", "8 3 2 3 2 3"];
/// Number of series that can be distinguished.
pub(super) const MOST_SERIES: usize = COLOURS.len();

/// The look of the series with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look(pub(super) usize);

impl Look {
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }

    pub(super) fn dash(self) -> &'static str {
        DASHES[self.0 % DASHES.len()]
    }

    /// Returns the outline of the series' mark around a point, filled or not.
    pub(super) fn mark(self, x: f64, y: f64, r: f64) -> String {
        match self.0 % 4 {
            0 => format!(
                "M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
                px(x - r),
                px(y),
                d = 2.0 * r
            ),
            1 => format!("M{} {}h{d}v{d}h-{d}z", px(x - r), px(y - r), d = 2.0 * r),
            2 => format!(
                "M{} {}l{w} {h}h-{d}z",
                px(x),
                px(y - r * 1.2),
                w = px(r * 1.2),
                h = px(r * 2.2),
                d = px(r * 2.4)
            ),
            _ => format!(
                "M{} {}l{w} {w}l-{w} {w}l-{w} -{w}z",
                px(x),
                px(y - r * 1.3),
                w = px(r * 1.3)
            ),
        }
    }
}

/// Formats a coordinate to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Formats points as the attribute of a polyline.
pub(super) fn points(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in points {
        let gap = if text.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{},{}", px(x), px(y));
    }
    text
}

/// Escapes text between tags or within a quoted attribute. Characters that XML 1.0 (§2.2) does not allow are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Shortens a text to this many characters, the last three of which are dots if some are left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Returns a text as lines that are at most this wide, broken after spaces and, if a word is wider than a line, after
/// commas, points, equals signs and hyphens, or anywhere if there is none. An empty text is one empty line.
pub(super) fn wrapped(text: &str, most: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let is_wide = width(word.trim_end()) > most;
        let parts: Vec<&str> = if is_wide {
            word.split_inclusive([',', '.', '=', '-', '_', '/'])
                .collect()
        } else {
            vec![word]
        };
        for part in parts {
            let last = lines.len() - 1;
            let fits = width((lines[last].clone() + part).trim_end()) <= most;
            if fits {
                lines[last].push_str(part);
            } else if width(part.trim_end()) <= most {
                lines.push(part.to_owned());
            } else {
                push_letters(&mut lines, part, most);
            }
        }
    }
    let lines = lines.into_iter().map(|line| line.trim().to_owned());
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        vec![String::new()]
    } else {
        lines
    }
}

/// Adds the letters of a word that is wider than a line.
fn push_letters(lines: &mut Vec<String>, word: &str, most: f64) {
    for letter in word.chars() {
        let last = lines.len() - 1;
        let is_full = width(&lines[last]) + width(letter.encode_utf8(&mut [0; 4])) > most;
        if is_full && !lines[last].is_empty() {
            lines.push(letter.to_string());
        } else {
            lines[last].push(letter);
        }
    }
}

/// Returns a text as lines like [`wrapped`], at most this many, the last of which ends in dots if some are left out.
pub(super) fn wrapped_to(text: &str, most: f64, lines: usize) -> Vec<String> {
    let mut all = wrapped(text, most);
    if all.len() > lines {
        all.truncate(lines);
        if let Some(last) = all.last_mut() {
            *last = fitted(&format!("{last}…"), most);
        }
    }
    all
}

/// Shortens a text to this width; dots take the place of what is left out.
pub(super) fn fitted(text: &str, most: f64) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let dots = width("…");
    let mut kept = String::new();
    for letter in text.chars().filter(|letter| *letter != '…') {
        if width(&kept) + width(letter.encode_utf8(&mut [0; 4])) + dots > most {
            break;
        }
        kept.push(letter);
    }
    kept + "…"
}

/// Returns text elements for lines below one another, the first of which has its baseline at `y`, with these further
/// attributes.
pub(super) fn text_lines(lines: &[String], x: f64, y: f64, attributes: &str) -> String {
    let mut svg = String::new();
    for (line, text) in (0..).zip(lines) {
        let y = y + f64::from(line) * LINE;
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\"{attributes}>{}</text>",
            px(x),
            px(y),
            escaped(text)
        );
    }
    svg
}

/// Greatest width of a bold text in units of its width in regular weight.
pub(super) const BOLD: f64 = 1.12;
/// Distance between the baselines of two lines of a text.
pub(super) const LINE: f64 = 14.0;

/// Returns an upper bound for the width of a text in the drawings' font size, computed for DejaVu Sans, the widest of
/// the usual fonts of desktops.
pub(super) fn width(text: &str) -> f64 {
    const SIZE: f64 = 11.5;
    text.chars().map(|char| SIZE * em(char)).sum()
}

/// Returns the advance width of a character in DejaVu Sans, in units of the font size, rounded up.
fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | ',' | '.' | ':' | ';' | '/' | '|' | 'I' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' => 0.42,
        'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' | '_' => 0.6,
        'm' | '%' | 'W' | 'M' | '@' | '…' => 1.0,
        'w' | '=' | '+' | '<' | '>' | '±' | 'Q' | 'O' | 'G' | 'D' | 'H' | 'N' | 'U' => 0.84,
        'A'..='Z' => 0.7,
        // Ideographs are as wide as they are high.
        c if c > '\u{2e80}' => 1.0,
        _ => 0.64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_escaped() {
        let hostile = "<script>\"&'\u{0}\u{1b}[1m\n</svg>";
        let safe = "&lt;script&gt;&quot;&amp;&#39;\u{fffd}\u{fffd}[1m &lt;/svg&gt;";
        assert_eq!(escaped(hostile), safe);
        assert_eq!(shortened("abcdef", 4), "abc…");
    }

    #[test]
    fn the_estimated_width_suffices_for_the_widest_font() {
        // A browser measures these widths in DejaVu Sans of 11.5 px.
        let measured = [
            ("blocks[mtu=1500]", 107.4),
            ("queue[queue=300ms], published", 193.1),
            ("download, run 1", 93.2),
            ("fast-ethernet (n = 1200)", 141.3),
            ("MMMM WWWW mmmm ABCDEFG", 196.2),
        ];
        for (text, measured) in measured {
            let wide = width(text);
            assert!(
                (measured..measured * 1.15).contains(&wide),
                "{text}: {wide}"
            );
        }
    }

    #[test]
    fn a_wrapped_text_fits_and_loses_no_letter() {
        let texts = [
            "delay 10ms, loss 1%, congestion bbr, queue 100pkt, parallel 4",
            "satellite[delay=300ms,rate=20mbit,loss=1%,queue=100pkt,seed=1234567890123456789]",
            "aVeryLongWordWithoutAnyPlaceAtWhichItCouldBeBroken",
            "",
        ];
        for text in texts {
            for most in [60.0, 120.0, 430.0] {
                let lines = wrapped(text, most);
                assert!(!lines.is_empty());
                for line in &lines {
                    assert!(width(line) <= most, "{line} in {most}");
                }
                assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
                let two = wrapped_to(text, most, 2);
                assert!(two.len() <= 2 && two.iter().all(|line| width(line) <= most));
                assert_eq!(two.concat().contains('…'), lines.len() > 2, "{two:?}");
            }
        }
        assert_eq!(wrapped("a b", 430.0), ["a b"]);
    }

    #[test]
    fn neighbouring_series_differ_in_more_than_colour() {
        for first in 0..MOST_SERIES - 1 {
            let (a, b) = (Look(first), Look(first + 1));
            assert!(a.colour() != b.colour() && a.dash() != b.dash());
            assert!(a.mark(0.0, 0.0, 3.0) != b.mark(0.0, 0.0, 3.0));
        }
    }
}
