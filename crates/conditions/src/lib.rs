//! The conditions of a link as users write them, in a file, on the command line or by the API, and what follows from them.
#![forbid(unsafe_code)]

mod direction;
pub mod dist;
pub mod in_effect;
mod key_values;
pub mod link_spec;
pub mod nearest;
pub mod route;

pub use direction::Direction;
