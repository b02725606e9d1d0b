//! The two directions of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

/// A direction of a link.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Direction {
    /// The direction from client to server.
    Up,
    /// The direction from server to client.
    Down,
}

impl Direction {
    /// Returns its name in files, records and CSV.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the one of two values that belongs to this direction.
    pub fn choose<T>(self, up: T, down: T) -> T {
        match self {
            Self::Up => up,
            Self::Down => down,
        }
    }

    /// Returns a sentence that explains it in reports.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Up => "From client to server.",
            Self::Down => "From server to client.",
        }
    }
}
