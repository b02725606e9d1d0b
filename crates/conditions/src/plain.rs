//! Plain words in place of those that libraries have for wrong values: clap, serde and the standard library name types of
//! the program, which its users do not know.

use std::borrow::Cow;

/// Raw messages of the standard library, and what is right instead.
const RAW: &[(&str, &str)] = &[
    ("invalid digit found in string", WHOLE),
    ("cannot parse integer from empty string", WHOLE),
    (
        "number too large to fit in target type",
        "the number is too large: write a smaller one",
    ),
    (
        "number too small to fit in target type",
        "the number is too small: write a greater one",
    ),
    ("invalid float literal", "write a number, as in 1.5"),
    (
        "cannot parse float from empty string",
        "write a number, as in 1.5",
    ),
    (
        "provided string was not `true` or `false`",
        "write true or false",
    ),
    (
        "invalid socket address syntax",
        "write an address and a port, as in 127.0.0.1:9100",
    ),
    (
        "invalid IP address syntax",
        "write an address, as in 192.0.2.1, or a network where one is asked for, as in 192.0.2.0/24",
    ),
];
const WHOLE: &str = "write a whole number, as in 3";

/// The whole numbers of Rust, with their limits.
const WHOLE_NUMBERS: &[(&str, i128, i128)] = &[
    ("u8", 0, u8::MAX as i128),
    ("u16", 0, u16::MAX as i128),
    ("u32", 0, u32::MAX as i128),
    ("u64", 0, u64::MAX as i128),
    ("usize", 0, u64::MAX as i128),
    ("i8", i8::MIN as i128, i8::MAX as i128),
    ("i16", i16::MIN as i128, i16::MAX as i128),
    ("i32", i32::MIN as i128, i32::MAX as i128),
    ("i64", i64::MIN as i128, i64::MAX as i128),
    ("isize", i64::MIN as i128, i64::MAX as i128),
];

/// Returns the advice in place of a message of the standard library, or of clap's bounds of a number; any other message
/// stays as it is.
pub fn in_words(message: &str) -> Cow<'_, str> {
    let raw = RAW.iter().find(|(raw, _)| *raw == message);
    match raw {
        Some((_, right)) => Cow::Borrowed(right),
        None => bounds(message).map_or(Cow::Borrowed(message), Cow::Owned),
    }
}

/// Returns the advice in place of clap's message about a number, as in "300 is not in 1..=128".
fn bounds(message: &str) -> Option<String> {
    let (value, bounds) = message.split_once(" is not in ")?;
    let (low, high) = bounds.split_once("..")?;
    let number = |text: &str| text.parse::<i128>().ok();
    number(value)?;
    let low = number(low)?;
    let high = number(high.strip_prefix('=').unwrap_or(high));
    Some(format!("write {}", range(low, high)))
}

/// Returns the expectation of serde in plain words: "a whole number from 0 to 65535" for "u16".
pub(crate) fn expectation(expected: &str) -> Cow<'_, str> {
    let (name, is_nonzero) = match expected.strip_prefix("a nonzero ") {
        Some(name) => (name, true),
        None => (expected, false),
    };
    let known = WHOLE_NUMBERS.iter().find(|(known, ..)| *known == name);
    match (known, expected) {
        (Some((_, low, high)), _) => {
            let low = if is_nonzero { (*low).max(1) } else { *low };
            Cow::Owned(range(low, Some(*high)))
        }
        (None, "f32" | "f64") => Cow::Borrowed("a number"),
        (None, "a boolean") => Cow::Borrowed("true or false"),
        (None, "a string") => Cow::Borrowed("a text in quotes"),
        (None, "a sequence") => Cow::Borrowed("a list"),
        (None, "a map") => Cow::Borrowed("a table"),
        (None, _) => Cow::Borrowed(expected),
    }
}

/// Returns a range of whole numbers in words. An upper end that only the type of the number sets is left out.
fn range(low: i128, high: Option<i128>) -> String {
    let of_type: [i128; 3] = [u32::MAX.into(), u64::MAX.into(), i64::MAX.into()];
    match high.filter(|high| !of_type.contains(high)) {
        Some(high) => format!("a whole number from {low} to {high}"),
        None => format!("a whole number of at least {low}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_standard_library_becomes_advice() {
        let of = |text: &str| in_words(&text.parse::<u8>().unwrap_err().to_string()).into_owned();
        assert_eq!(of("many"), "write a whole number, as in 3");
        assert_eq!(of(""), "write a whole number, as in 3");
        assert_eq!(of("256"), "the number is too large: write a smaller one");
        let negative = "-129".parse::<i8>().unwrap_err().to_string();
        assert_eq!(
            in_words(&negative),
            "the number is too small: write a greater one"
        );
        let float = "x".parse::<f64>().unwrap_err().to_string();
        assert_eq!(in_words(&float), "write a number, as in 1.5");
        let yes = "yes".parse::<bool>().unwrap_err().to_string();
        assert_eq!(in_words(&yes), "write true or false");
        let address = "x".parse::<std::net::SocketAddr>().unwrap_err().to_string();
        assert!(in_words(&address).ends_with("as in 127.0.0.1:9100"));
        let address = "x".parse::<std::net::IpAddr>().unwrap_err().to_string();
        assert!(in_words(&address).contains("as in 192.0.2.1"));
        assert_eq!(in_words("a message of farwire"), "a message of farwire");
    }

    #[test]
    fn bounds_of_a_number_become_a_range() {
        for (message, words) in [
            (
                "300 is not in 1..=128",
                "write a whole number from 1 to 128",
            ),
            (
                "0 is not in 1..=4294967295",
                "write a whole number of at least 1",
            ),
            ("0 is not in 1..", "write a whole number of at least 1"),
            (
                "70000 is not in 0..=65535",
                "write a whole number from 0 to 65535",
            ),
            ("red is not in the list", "red is not in the list"),
        ] {
            assert_eq!(in_words(message), words);
        }
    }

    #[test]
    fn expectations_name_no_types_of_the_program() {
        for (expected, words) in [
            ("u16", "a whole number from 0 to 65535"),
            ("a nonzero u32", "a whole number of at least 1"),
            ("i8", "a whole number from -128 to 127"),
            ("f64", "a number"),
            ("a string", "a text in quotes"),
            ("a text such as 1%,burst=8", "a text such as 1%,burst=8"),
        ] {
            assert_eq!(expectation(expected), words);
        }
    }
}
