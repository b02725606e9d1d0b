//! Recorded runs of a calibration, and the same with the faults of an instrument: nothing is red without a fault, and every fault in
//! each of its cells. `make truth` does this with runs of its own.

#[path = "../../benches/truth/mutation.rs"]
mod mutation;

use std::path::Path;

use model::{Bytes, Effect, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side, StageSpec};
use record::Record;
use report::analysis::calibration::Suite;
use stats::proportion::wilson;

use mutation::Mutation;

fn recorded() -> Record {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/records/truth.jsonl"
    );
    Record::read(Path::new(file)).expect("a record")
}

#[test]
fn nothing_is_red_without_a_fault() {
    let suite = Suite::of(&recorded());
    assert!(!suite.is_red(), "{suite}");
}

#[test]
fn every_fault_turns_its_cells_red() {
    let record = recorded();
    for mutation in Mutation::ALL {
        let unseen = mutation.unseen(&record);
        assert!(unseen.is_empty(), "{mutation}: {unseen:?}");
    }
}

/// How many of `packets` a link drops that was told to drop each with this probability.
fn dropped(seed: u64, probability: &str, packets: u64) -> u64 {
    let loss = Effect::Loss(probability.parse().expect("a probability"));
    let config = LinkConfig::new(seed, vec![StageSpec::new("loss", loss)], Vec::new());
    let mut link = Link::new(&config).expect("conditions within their ranges");
    let lost = (0..packets).filter(|number| {
        link.offer(
            Nanos(*number),
            Side::A,
            Packet::new(PacketId(0), Bytes(1000)),
        );
        matches!(link.poll(Nanos::MAX), Some(Outcome::Drop { .. }))
    });
    lost.count() as u64
}

#[test]
fn wilson_s_interval_holds_the_probability_that_a_link_was_told() {
    // Five losses and more are to be expected.
    for (probability, packets) in [("0.5%", 1000), ("1%", 1000), ("2%", 2000), ("10%", 60)] {
        let told = probability.trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
        let holds = |seed| {
            let [low, high] = wilson(dropped(seed, probability, packets), packets).unwrap();
            (low..=high).contains(&told)
        };
        let held = (1..=200).filter(|seed| holds(*seed)).count();
        assert!(
            (184..=196).contains(&held),
            "{probability} of {packets}: {held} of 200"
        );
    }
}
