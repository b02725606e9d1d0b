//! Reflectors that answer each other.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
