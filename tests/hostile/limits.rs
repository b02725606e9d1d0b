//! What one client can take of the far end, and what is left for others.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
