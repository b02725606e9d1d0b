//! External tools as instruments: found on the PATH, run where the traffic is, parsed into the one form of samples and figures.

pub mod choice;
pub(crate) mod curl;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod iperf;
pub(crate) mod iperf3;
pub(crate) mod launch;
pub(crate) mod nuttcp;
pub(crate) mod ping;
pub(crate) mod streams;
pub(crate) mod wget;

pub use launch::{Launcher, Running, Tool};
