//! The inputs behind iperf3's published vulnerabilities.

use crate::common::suite::Suite;

pub(crate) fn add(_suite: &mut Suite) {}
