//! Capacity tests that somebody asks for in another's name, and answers from the right address.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
