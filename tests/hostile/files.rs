//! What a scenario file can reach, and what a record survives.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
