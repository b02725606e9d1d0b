//! Many clients for long, some of which misbehave.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
