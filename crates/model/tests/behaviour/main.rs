//! Tests of the model's behaviour in virtual time: no clock, no sleep, and every draw from a seed.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up its case fails the test, as in the tests themselves"
)]

mod answers;
mod bottleneck;
mod buckets;
mod cell_replay;
mod closed_forms;
mod codel;
mod discipline;
mod drive;
mod drop_head;
mod dual_pi2;
mod effects;
mod hops;
mod invariants;
mod live;
mod netem;
mod over_time;
mod pie;
mod randomness;
mod recorded_outcomes;
mod red;
#[cfg(any(feature = "serde", feature = "schema"))]
mod serialized;
mod units;
mod weighted;

#[test]
fn the_example_of_the_readme_is_the_example_program() {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(include_str!("../../examples/seeded_bad_link.rs")));
}
