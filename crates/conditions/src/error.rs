//! The error of conditions, and of everything else that is read with [`crate::read`].

use std::fmt;
use std::ops::Range;

use model::ConfigError;
use serde::de;

use crate::{nearest, plain};

/// An error with its place and the advice on how to correct it.
///
/// It has a path of keys, and the position in the text if one is known. Its receiver decides how to show them: a
/// terminal shows file and line, the API shows the path in a separate field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Error {
    /// The keys that lead to the faulty value, the outermost first.
    pub path: Vec<PathStep>,
    /// The bytes of the text that are faulty, if the value was read from a text with known positions.
    pub span: Option<Range<usize>>,
    /// The problem at that place.
    pub problem: Box<Problem>,
}

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this key.
    Key(String),
    /// An item of a list.
    Item {
        /// Its index, from 0.
        index: usize,
        /// Its name, if it has one.
        name: Option<String>,
    },
}

/// A problem of a value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The key is not known here.
    #[error("unknown key `{key}`{}", place.as_ref().map_or_else(|| or_all(key, known), |place| format!("; {place}")))]
    UnknownKey {
        /// The key.
        key: String,
        /// The known keys.
        known: Vec<String>,
        /// The advice about a key that belongs elsewhere: the table to which it belongs.
        place: Option<String>,
    },
    /// The name is not known here.
    #[error("unknown name `{name}`{}", or_all(name, known))]
    UnknownName {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// A required key is missing.
    #[error("`{key}` is missing{}", advice(example))]
    Missing {
        /// The key.
        key: String,
        /// An example of what could be written.
        example: String,
    },
    /// A key is given twice.
    #[error("{key}: given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// The value has another type, or is out of its type's range.
    #[error("expected {right}, found {found}")]
    WrongType {
        /// The value that was found.
        found: String,
        /// The value that is expected.
        right: String,
    },
    /// The model refuses the value.
    #[error("{}{value} is out of range: {right}", assigned(*field))]
    OutOfRange {
        /// The parameter, if its name differs from the key.
        field: Option<&'static str>,
        /// The value.
        value: String,
        /// The advice on how to write it.
        right: String,
    },
    /// The model refuses the link as a whole.
    #[error(transparent)]
    Model(ConfigError),
    /// The problem is inside a text that represents a table, such as `1%,burst=8`.
    #[error("{}", in_text(error, right))]
    InText {
        /// The error inside the text.
        error: Error,
        /// The text that is expected.
        right: String,
    },
    /// A sentence that states the problem and the advice.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Creates an error at the place that the caller looks at.
    pub fn new(problem: Problem) -> Self {
        Self {
            path: Vec::new(),
            span: None,
            problem: Box::new(problem),
        }
    }

    /// Creates an error with a sentence.
    pub fn other(sentence: impl fmt::Display) -> Self {
        Self::new(Problem::Other(sentence.to_string()))
    }

    /// Creates an error for a missing key; `example` is what could be written.
    pub fn missing(key: &str, example: &str) -> Self {
        Self::new(Problem::Missing {
            key: key.to_owned(),
            example: example.to_owned(),
        })
    }

    /// Creates an error for a name that is not among the `known` ones.
    pub fn unknown_name<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        Self::new(Problem::UnknownName {
            name: name.to_owned(),
            known: known.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Returns the error with a key in front of its path.
    pub fn at(self, key: impl Into<String>) -> Self {
        self.within(PathStep::Key(key.into()))
    }

    /// Returns the error with an item of a list in front of its path.
    pub fn at_item(self, index: usize, name: Option<&str>) -> Self {
        self.within(PathStep::Item {
            index,
            name: name.map(str::to_owned),
        })
    }

    pub(crate) fn within(mut self, step: PathStep) -> Self {
        self.path.insert(0, step);
        self
    }

    /// Returns the error with a position, unless it has one already.
    pub(crate) fn with_span(mut self, span: Option<&Range<usize>>) -> Self {
        self.span = self.span.or_else(|| span.cloned());
        self
    }

    /// Returns the path as API clients write it, `up.loss` or `rules[0].loss`; `None` if it is empty.
    pub fn field(&self) -> Option<String> {
        let mut field = String::new();
        for step in &self.path {
            match step {
                PathStep::Key(key) => push_key(&mut field, key),
                PathStep::Item { index, .. } => field += &format!("[{index}]"),
            }
        }
        if let Problem::UnknownKey { key, .. } | Problem::Missing { key, .. } = &*self.problem {
            push_key(&mut field, key);
        }
        (!field.is_empty()).then_some(field)
    }
}

fn push_key(field: &mut String, key: &str) {
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(key);
}

impl fmt::Display for Error {
    /// Writes the path and the problem in one line: `link: up: queue: it needs a rate ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for step in &self.path {
            match step {
                PathStep::Key(key) => write!(f, "{separator}{key}")?,
                PathStep::Item {
                    name: Some(name), ..
                } => write!(f, "{separator}{name}")?,
                PathStep::Item { index, name: None } => write!(f, " {}", index + 1)?,
            }
            separator = ": ";
        }
        write!(f, "{separator}{}", self.problem)
    }
}

fn or_all(name: &str, known: &[String]) -> String {
    nearest::or_all(name, known.iter().map(String::as_str))
}

/// Describes a value as it would be written.
fn in_words(found: de::Unexpected<'_>) -> String {
    use de::Unexpected;
    match found {
        Unexpected::Str(text) => format!("\"{text}\""),
        Unexpected::Bool(yes) => format!("`{yes}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{number:?}`"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        other => other.to_string(),
    }
}

fn advice(example: &str) -> String {
    match example {
        "" => String::new(),
        example => format!(": write {example}"),
    }
}

fn assigned(field: Option<&str>) -> String {
    field.map_or_else(String::new, |field| format!("{field} = "))
}

fn in_text(error: &Error, right: &str) -> String {
    match *error.problem {
        // A sentence itself contains the advice.
        Problem::Other(_) => error.to_string(),
        _ => format!("{error}; expected {right}"),
    }
}

impl From<ConfigError> for Error {
    /// Makes an error without a path: [`crate::LinkSpec::check`] knows the keys of a stage.
    fn from(error: ConfigError) -> Self {
        Self::new(Problem::Model(error))
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(sentence: T) -> Self {
        Self::other(plain::in_words(&sentence.to_string()))
    }

    fn invalid_type(found: de::Unexpected<'_>, right: &dyn de::Expected) -> Self {
        Self::new(Problem::WrongType {
            found: in_words(found),
            right: plain::expectation(&right.to_string()).into_owned(),
        })
    }

    fn invalid_value(found: de::Unexpected<'_>, right: &dyn de::Expected) -> Self {
        Self::invalid_type(found, right)
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::unknown_name(name, known.iter().copied())
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(Problem::UnknownKey {
            key: key.to_owned(),
            known: known.iter().copied().map(str::to_owned).collect(),
            place: None,
        })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::missing(key, "")
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::new(Problem::Twice {
            key: key.to_owned(),
        })
    }
}

/// Adds a path to the errors of a check.
pub trait At<T> {
    /// Returns the result with a key in front of its error's path.
    ///
    /// # Errors
    /// Returns the error that it had.
    fn at(self, key: impl Into<String>) -> Result<T, Error>;

    /// Returns the result with an item of a key's list in front of its error's path.
    ///
    /// # Errors
    /// Returns the error that it had.
    fn at_item(self, key: &str, index: usize, name: Option<&str>) -> Result<T, Error>;
}

impl<T, E: Into<Error>> At<T> for Result<T, E> {
    fn at(self, key: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| error.into().at(key))
    }

    fn at_item(self, key: &str, index: usize, name: Option<&str>) -> Result<T, Error> {
        self.map_err(|error| error.into().at_item(index, name).at(key))
    }
}

/// Returns an [`Error`] with a sentence unless a condition holds. The key that is at fault may come before the
/// sentence.
#[macro_export]
macro_rules! require {
    ($holds:expr, $key:literal: $($sentence:tt)+) => {
        $crate::require!($holds, $key => $($sentence)+)
    };
    ($holds:expr, $key:expr => $($sentence:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            return Err($crate::Error::other(format_args!($($sentence)+)).at($key).into());
        }
    }};
    ($holds:expr, $($sentence:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            return Err($crate::Error::other(format_args!($($sentence)+)).into());
        }
    }};
}
