//! The readers of files from untrusted sources, each as one function that fuzzers call. A reader
//! must accept or refuse any content without a panic.

use std::str;

use conditions::{LinkSpec, warnings};
use instruments::measure::{read_plan, record_plan};
use model::{Bytes, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side};
use record::plan::Plan;

use crate::experiment::{runner, scenario};
use crate::toml_file::SourceFile;

/// The number of packets that cross a link.
const PACKETS: u64 = 20;

/// Reads a scenario, both whole and shortened by `--quick`: its plan survives being saved and read,
/// and its links carry packets.
pub fn scenarios(bytes: &[u8]) {
    let Some(source) = source(bytes) else {
        return;
    };
    for quick in [false, true] {
        let Ok(plan) = scenario::parse(source, quick) else {
            continue;
        };
        let recorded = record_plan(&plan);
        let kept = serde_json::to_string(&recorded).expect("a plan is JSON");
        let read: Plan = serde_json::from_str(&kept).expect("what was kept is a plan");
        assert_eq!(read.cases.len(), plan.cases.len());
        assert!(read_plan(&read).is_ok());
        for case in &plan.cases {
            let _ = runner::estimate(case);
            for (_, link) in case.links(plan.seed).expect("a case was checked") {
                let _ = warnings::of_link(&link.config);
                pass(&link.config);
            }
        }
    }
}

/// Reads a file of conditions: the reports describe it, and the link carries packets.
pub fn links(bytes: &[u8]) {
    let read = |source: SourceFile<'_>| {
        let table = source.parse()?;
        source.read::<LinkSpec>(&table)
    };
    let Some(Ok(spec)) = source(bytes).map(read) else {
        return;
    };
    if spec.check().is_err() {
        return;
    }
    let _ = report::link(&spec);
    let _ = spec.as_netem();
    let link = spec.to_link("link").expect("conditions were checked");
    let _ = warnings::of_link(&link.config);
    pass(&link.config);
}

fn source(bytes: &[u8]) -> Option<SourceFile<'_>> {
    Some(SourceFile {
        // This folder does not exist, so a path in the file leads to no file.
        file: "/nowhere/x.toml",
        text: str::from_utf8(bytes).ok()?,
        also: &[],
    })
}

/// Sends packets through a link, some simultaneously and some later, and checks that none leaves
/// before it arrived.
fn pass(config: &LinkConfig) {
    let mut link = Link::new(config).expect("conditions were checked");
    let due = |outcome: Outcome| match outcome {
        Outcome::Deliver { id, due, .. } => assert!(due >= at(id.0), "it left before it came"),
        Outcome::Copied { .. } | Outcome::Drop { .. } => {}
    };
    for id in 0..PACKETS {
        let side = [Side::A, Side::B][usize::from(id % 3 == 0)];
        link.offer(
            at(id),
            side,
            Packet::new(PacketId(id), Bytes(60 + 100 * id)),
        );
        while let Some(outcome) = link.poll(at(id)) {
            due(outcome);
        }
    }
    // A schedule may change the link forever, so this asks for one moment only.
    while let Some(outcome) = link.poll(at(PACKETS)) {
        due(outcome);
    }
}

/// Returns the time at which a packet arrives.
fn at(id: u64) -> Nanos {
    Nanos::from_millis(id / 4 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = include_str!("../scenarios/burst-loss.toml");
    const LINK: &str = "delay = '20ms'\njitter = '2ms'\nloss = '1%,burst=3'\n[up]\nrate = '10mbit'\nqueue = '50ms'\naqm = 'codel'\n";
    const BYTES: &[u8] = b"0159-e.'\"}],:n %=[\n";

    #[test]
    fn nothing_nearly_right_makes_a_reader_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        for (text, read) in [(SCENARIO, scenarios as fn(&[u8])), (LINK, links)] {
            read(text.as_bytes());
            for _ in 0..100 {
                let mut bytes = text.as_bytes().to_vec();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..bytes.len());
                    bytes[at] = BYTES[random.usize(..BYTES.len())];
                }
                read(&bytes);
            }
        }
    }
}
