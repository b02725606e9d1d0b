//! The one error of conditions, and of everything else that is read with [`crate::read`].

use std::fmt;
use std::ops::Range;

use model::ConfigError;
use serde::de;

use crate::nearest;

/// What is wrong, where, and what would be right.
///
/// It has a path of keys, and the place in the text where one is known. Whoever shows it decides what to do with them: a
/// terminal shows file and line, the API the path as a field of its own.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Error {
    /// The keys that lead to what is wrong, the outermost first.
    pub path: Vec<PathStep>,
    /// The bytes of the text that are wrong, where it was read from a text that keeps places.
    pub span: Option<Range<usize>>,
    /// What is wrong there.
    pub problem: Box<Problem>,
}

/// One step on the way to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this key.
    Key(String),
    /// An item of a list.
    Item {
        /// Its place, from 0.
        index: usize,
        /// Its own name, where it has one.
        name: Option<String>,
    },
}

/// What can be wrong with a value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// A key that is not known here.
    #[error("unknown key `{key}`{}", or_all(key, known))]
    UnknownKey {
        /// The key.
        key: String,
        /// Those that are known.
        known: Vec<String>,
    },
    /// A name that stands for nothing here.
    #[error("unknown name `{name}`{}", or_all(name, known))]
    UnknownName {
        /// The name.
        name: String,
        /// Those that are known.
        known: Vec<String>,
    },
    /// A key that must be there.
    #[error("`{key}` is missing{}", advice(example))]
    Missing {
        /// The key.
        key: String,
        /// What could be written.
        example: String,
    },
    /// A key that is there twice.
    #[error("{key}: given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value of another type, or out of its type's range.
    #[error("expected {right}, found {found}")]
    WrongType {
        /// What was found.
        found: String,
        /// What is right.
        right: String,
    },
    /// A value that the model refuses.
    #[error("{}{value} is out of range: {right}", assigned(*field))]
    OutOfRange {
        /// The parameter, where it has another name than the key.
        field: Option<&'static str>,
        /// What was given.
        value: String,
        /// What is right.
        right: String,
    },
    /// What the model refuses of a link as a whole.
    #[error(transparent)]
    Model(ConfigError),
    /// Something is wrong within a text that stands for a table, such as `1%,burst=8`.
    #[error("{}", in_text(error, right))]
    InText {
        /// What is wrong.
        error: Error,
        /// What is right.
        right: String,
    },
    /// A sentence that says what is wrong and what would be right.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// A problem at the place that the caller looks at.
    pub fn new(problem: Problem) -> Self {
        Self {
            path: Vec::new(),
            span: None,
            problem: Box::new(problem),
        }
    }

    /// A problem that needs a sentence of its own.
    pub fn other(sentence: impl fmt::Display) -> Self {
        Self::new(Problem::Other(sentence.to_string()))
    }

    /// A key that is missing; `example` is what could be written.
    pub fn missing(key: &str, example: &str) -> Self {
        Self::new(Problem::Missing {
            key: key.to_owned(),
            example: example.to_owned(),
        })
    }

    /// A name that is not among those that are `known`.
    pub fn unknown_name<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        Self::new(Problem::UnknownName {
            name: name.to_owned(),
            known: known.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The same below a key.
    pub fn at(self, key: impl Into<String>) -> Self {
        self.within(PathStep::Key(key.into()))
    }

    /// The same in an item of a list.
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

    /// The same with a place, unless it has one already.
    pub(crate) fn with_span(mut self, span: Option<&Range<usize>>) -> Self {
        self.span = self.span.or_else(|| span.cloned());
        self
    }

    /// The path of what is wrong as API clients write it, `up.loss` or `classes[0].loss`; nothing where all of it is wrong.
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
    /// The path and the problem in one line: `link: up: queue: it needs a rate ...`.
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
        // A sentence says itself what would be right.
        Problem::Other(_) => error.to_string(),
        _ => format!("{error}; expected {right}"),
    }
}

impl From<ConfigError> for Error {
    /// At no path: [`crate::LinkSpec::check`] knows the keys of a stage.
    fn from(error: ConfigError) -> Self {
        Self::new(Problem::Model(error))
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(sentence: T) -> Self {
        Self::other(sentence)
    }

    fn invalid_type(found: de::Unexpected<'_>, right: &dyn de::Expected) -> Self {
        Self::new(Problem::WrongType {
            found: found.to_string(),
            right: right.to_string(),
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

/// Adds the path to the errors of a check.
pub trait At<T> {
    /// The same, with its errors below a key.
    ///
    /// # Errors
    /// Those that it had.
    fn at(self, key: impl Into<String>) -> Result<T, Error>;

    /// The same, with its errors in an item of the list of a key.
    ///
    /// # Errors
    /// Those that it had.
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

/// Refuses with an [`Error`] of a sentence unless something holds; before the sentence may be the key that is at fault.
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
