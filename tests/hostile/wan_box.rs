//! How the box between two interfaces ends.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
