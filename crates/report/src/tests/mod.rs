//! The reports as a whole.

mod large;
mod snapshots;
mod width;
