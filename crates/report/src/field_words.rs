//! The fields of a case and their values in words: "at 200 ms delay and 1 % loss", "without loss", "with aqm codel".

use crate::case_conditions;

/// A value of a field, as its scenario has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldValue {
    /// The value with its field: "200 ms delay", "no loss", "mtu 1500", "bbr".
    pub(crate) full: String,
    /// The value alone: "200 ms", "1500", "bbr".
    pub(crate) short: String,
    /// Whether the value is a name that a sentence can begin with, such as "bbr".
    pub(crate) is_name: bool,
}

/// The conditions that two compared cases share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// The name of the case or of its sweep, if there are several.
    pub(crate) case: Option<String>,
    /// The values of the other swept fields.
    pub(crate) values: Vec<SharedValue>,
}

/// The value of a swept field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedValue {
    /// The field in words.
    pub(crate) field: String,
    pub(crate) value: FieldValue,
    kind: ValueKind,
}

/// The kind of a value, which determines its place in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    /// A number with a unit: "200ms".
    Amount,
    /// A number with a unit that is 0: "0%".
    Nothing,
    /// A number without a unit, or a name.
    Other,
}

/// Returns the path of a field in words: "link.delay" is "delay", "tcp.congestion" is "congestion control".
pub(crate) fn field(path: &str) -> String {
    match path
        .strip_prefix("parameters.")
        .and_then(|path| path.split_once('.'))
    {
        Some((instrument, option)) => format!("{option} of {instrument}").replace('_', " "),
        None if path == "tcp.congestion" => "congestion control".to_owned(),
        None => case_conditions::words(path),
    }
}

impl FieldValue {
    /// Returns the value of the field at `path`.
    pub(crate) fn of(path: &str, text: &str) -> Self {
        let field = field(path);
        let (kind, short) = parsed(text);
        match kind {
            ValueKind::Amount => Self {
                full: format!("{short} {field}"),
                short,
                is_name: false,
            },
            ValueKind::Nothing => Self {
                full: format!("no {field}"),
                short,
                is_name: false,
            },
            ValueKind::Other if is_name(text) => Self::name(text),
            ValueKind::Other => Self {
                full: format!("{field} {short}"),
                short,
                is_name: false,
            },
        }
    }

    /// Returns a value that describes itself.
    pub(crate) fn name(text: &str) -> Self {
        Self {
            full: text.to_owned(),
            short: text.to_owned(),
            is_name: is_name(text),
        }
    }
}

impl Shared {
    /// Returns the values of these swept fields, each with its path; `case` is the name of the sweep if there are
    /// several.
    pub(crate) fn of(case: Option<String>, values: &[(&str, &str)]) -> Self {
        let value = |(path, text): &(&str, &str)| SharedValue {
            field: field(path),
            value: FieldValue::of(path, text),
            kind: parsed(text).0,
        };
        Self {
            case,
            values: values.iter().map(value).collect(),
        }
    }

    /// Formats the conditions as the end of a sentence, with a space in front: "at 200 ms delay and 1 % loss", "at 10 ms
    /// delay without loss", "in case `slow`". It is empty if the cases share no swept value.
    pub(crate) fn in_sentence(&self) -> String {
        let case = self.case.iter().map(|case| format!(" in case `{case}`"));
        let words = |kind: ValueKind, before: &str, one: fn(&SharedValue) -> String| {
            let own = self.values.iter().filter(|value| value.kind == kind);
            let all: Vec<String> = own.map(one).collect();
            (!all.is_empty()).then(|| format!(" {before} {}", listed(&all)))
        };
        let values = [
            words(ValueKind::Amount, "at", |value| value.value.full.clone()),
            words(ValueKind::Other, "with", |value| {
                if value.value.is_name && value.field != "congestion control" {
                    format!("{} {}", value.field, value.value.full)
                } else {
                    value.value.full.clone()
                }
            }),
            words(ValueKind::Nothing, "without", |value| value.field.clone()),
        ];
        case.chain(values.into_iter().flatten()).collect()
    }

    /// Formats the conditions as a label: "slow, 200 ms delay, 1 % loss".
    pub(crate) fn label(&self) -> String {
        let values = self.values.iter().map(|value| &value.value.full);
        let all: Vec<&str> = self.case.iter().chain(values).map(String::as_str).collect();
        all.join(", ")
    }
}

/// Joins words as a sentence does: "a", "a and b", "a, b and c".
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => words.join(", "),
    }
}

/// Returns the kind of a value, and the value with a space before its unit.
fn parsed(text: &str) -> (ValueKind, String) {
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let is_unit = unit == "%" || unit.chars().all(|letter| letter.is_ascii_alphabetic());
    match digits.parse::<f64>() {
        Ok(number) if is_unit && !unit.is_empty() => {
            let unit = match unit.to_ascii_lowercase().as_str() {
                "bit" => "bit/s",
                "kbit" => "kbit/s",
                "mbit" => "Mbit/s",
                "gbit" => "Gbit/s",
                "pkt" => "packets",
                "b" => "bytes",
                _ => unit,
            };
            let kind = if number == 0.0 {
                ValueKind::Nothing
            } else {
                ValueKind::Amount
            };
            (kind, format!("{digits} {unit}"))
        }
        _ => (ValueKind::Other, text.to_owned()),
    }
}

/// Returns whether a text is a single word that begins with a letter.
fn is_name(text: &str) -> bool {
    let within = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    text.starts_with(char::is_alphabetic)
        && text.chars().all(within)
        && !["true", "false"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(values: &[(&str, &str)]) -> String {
        Shared::of(None, values).in_sentence()
    }

    #[test]
    fn shared_conditions_end_a_sentence() {
        for (values, words) in [
            (
                &[("link.delay", "200ms"), ("link.loss", "1%")][..],
                " at 200 ms delay and 1 % loss",
            ),
            (
                &[("link.delay", "10ms"), ("link.loss", "0%")],
                " at 10 ms delay without loss",
            ),
            (
                &[
                    ("link.rate", "20mbit"),
                    ("link.aqm", "codel"),
                    ("bed.mtu", "9000"),
                ],
                " at 20 Mbit/s rate with aqm codel and mtu 9000",
            ),
            (
                &[("tcp.congestion", "bbr"), ("parameters.load.parallel", "3")],
                " with bbr and parallel of load 3",
            ),
            (&[], ""),
        ] {
            assert_eq!(sentence(values), words);
        }
        let slow = Shared {
            case: Some("slow".to_owned()),
            values: Vec::new(),
        };
        assert_eq!(slow.in_sentence(), " in case `slow`");
        let both = Shared::of(Some("a".to_owned()), &[("link.up.loss", "1%")]);
        assert_eq!(both.label(), "a, 1 % up loss");
    }

    #[test]
    fn values_are_read_with_and_without_their_field() {
        for (path, text, full, short, is_name) in [
            ("tcp.congestion", "bbr", "bbr", "bbr", true),
            ("link.delay", "0ms", "no delay", "0 ms", false),
            (
                "link.queue",
                "100pkt",
                "100 packets queue",
                "100 packets",
                false,
            ),
            (
                "link.jitter",
                "2ms,normal",
                "jitter 2ms,normal",
                "2ms,normal",
                false,
            ),
            ("bed.offloads", "true", "offloads true", "true", false),
            ("x", "", "x ", "", false),
            ("x", "1.2.3ms", "x 1.2.3ms", "1.2.3ms", false),
        ] {
            let expected = FieldValue {
                full: full.to_owned(),
                short: short.to_owned(),
                is_name,
            };
            assert_eq!(FieldValue::of(path, text), expected);
        }
        assert_eq!(field("parameters.load.parallel"), "parallel of load");
    }

    #[test]
    fn lists_read_as_sentences() {
        let words = ["a", "b", "c"].map(str::to_owned);
        let lists = [0, 1, 2, 3].map(|count| listed(&words[..count]));
        assert_eq!(lists, ["", "a", "a and b", "a, b and c"]);
    }
}
