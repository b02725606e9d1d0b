//! Recorded runs of a calibration, and the same with the faults of an instrument: nothing is red without a fault, and every fault turns
//! each of its cells red. `make truth` does this with new runs.

#[path = "../../benches/truth/losses.rs"]
mod losses;
#[path = "../../benches/truth/mutation.rs"]
mod mutation;

use std::path::Path;

use model::{Bytes, Effect, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side, StageSpec};
use record::Record;
use report::analysis::calibration::{PooledLosses, Suite};
use stats::proportion::wilson;

use losses::{Coverage, LEAST_OF_BURSTS, LEAST_OF_RARE};
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

#[test]
fn at_least_165_of_180_intervals_of_bursts_contain_the_truth() {
    let bursts = |covered| {
        let cells = [[20, 20]; 8].into_iter().chain([[covered, 20]]);
        Coverage::sum("bursts", LEAST_OF_BURSTS, cells)
    };
    assert!(bursts(5).is_enough());
    assert_eq!(
        bursts(5).to_string(),
        "bursts, 9 cells: 165 of 180 intervals contain the truth, at least 165 must"
    );
    assert!(!bursts(4).is_enough() && bursts(4).to_string().ends_with("RED"));
}

#[test]
fn nine_of_twelve_groups_of_rare_losses_are_enough() {
    let is_enough = |covered| {
        let cells = [[4, 4], [4, 4], [covered, 4]].into_iter();
        Coverage::sum("rare", LEAST_OF_RARE, cells).is_enough()
    };
    assert!(is_enough(1) && !is_enough(0));
}

#[test]
fn a_record_without_bursts_and_rare_losses_has_nothing_to_judge_them_by() {
    let record = recorded();
    for coverage in [
        Coverage::of_bursts(&Suite::of(&record)),
        Coverage::of_rare(&PooledLosses::of(&record)),
    ] {
        assert!(!coverage.is_there() && !coverage.is_enough(), "{coverage}");
    }
}

/// Draws how many of `packets` a link drops that drops each with this probability.
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
    // The case expects at least five losses.
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

/// A limit that `scripts/limits` lifts.
#[derive(serde::Deserialize)]
struct ValidityLimit {
    what: String,
    file: String,
    limit: String,
    package: String,
    test: String,
}

#[test]
fn every_limit_of_validity_is_in_its_file_and_has_its_test() {
    #[derive(serde::Deserialize)]
    struct Limits {
        limits: Vec<ValidityLimit>,
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = include_str!("../fixtures/limits.toml");
    let all: Limits = toml::from_str(text).unwrap();
    assert!(all.limits.len() > 30);
    for one in all.limits {
        let source = std::fs::read_to_string(root.join(&one.file)).unwrap();
        let found = source.matches(&one.limit).count();
        assert_eq!(found, 1, "{}: {} in {}", one.what, one.limit, one.file);
        let folder = match one.package.strip_prefix("farwire-") {
            Some(name) => root.join("crates").join(name).join("src"),
            None => root.to_owned(),
        };
        let folders = match one.package.as_str() {
            "farwire" => vec![folder.join("src"), folder.join("tests")],
            _ => vec![folder],
        };
        let is_there = folders.iter().any(|folder| has_test(folder, &one.test));
        assert!(is_there, "{}: {} of {}", one.what, one.test, one.package);
    }
}

/// Returns whether a Rust file in or below `folder` has the function `name`.
fn has_test(folder: &Path, name: &str) -> bool {
    let function = format!("fn {name}()");
    let mut entries = std::fs::read_dir(folder).expect("a folder of sources");
    entries.any(|entry| {
        let path = entry.expect("an entry").path();
        let is_source = path.extension().is_some_and(|end| end == "rs");
        let text = || std::fs::read_to_string(&path).expect("a source");
        path.is_dir() && has_test(&path, name) || is_source && text().contains(&function)
    })
}
