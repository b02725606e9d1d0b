//! A thousand half-open clients of one address, and a client of another.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
