//! `farwire submit` with a real Slurm on this machine, which `scripts/slurm-here` starts.

mod cases;
mod cluster;
mod fake;
mod faults;
mod refusals;
mod soak;
mod tutorial;

pub(crate) use cluster::stop;
