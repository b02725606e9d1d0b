//! Whatever a tool says, its parser comes to an end and gives numbers that are numbers.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::launch::tests::captured;
use super::launch::{Line, Output, Stream};
use super::streams::StreamTool;
use super::streams::tests::plan;
use super::{curl, iperf, iperf3, nuttcp, ping, wget};
use crate::instrument::Measurement;
use crate::instrument::iperf3::plan::{Protocol, Way};

/// Of one proper output a line may give this many samples.
const MOST_SAMPLES_A_LINE: usize = 16;

/// Every parser under every plan that changes what it does.
fn parse_all(output: &Output) -> Vec<Measurement> {
    let plans = [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .flat_map(|protocol| [Way::Up, Way::Down, Way::Both].map(|way| plan(protocol, way)));
    let tools: [&dyn StreamTool; 3] = [&iperf3::Iperf3, &iperf::Iperf, &nuttcp::Nuttcp];
    let mut measurements: Vec<Measurement> = plans
        .flat_map(|plan| tools.map(|tool| tool.parse(output, &plan)))
        .collect();
    measurements.push(curl::parse(output));
    measurements.push(wget::parse(output, Duration::from_secs(1)));
    measurements.push(ping::parse(output, &ping::tests::PLAN));
    measurements
}

fn check(output: &Output) -> Result<(), TestCaseError> {
    let characters: usize = output.lines.iter().map(|line| line.text.len() + 1).sum();
    for measurement in parse_all(output) {
        prop_assert!(measurement.samples.len() <= MOST_SAMPLES_A_LINE * characters);
        for sample in &measurement.samples {
            prop_assert!(
                sample.value.is_finite() && sample.at_s.is_finite(),
                "{sample:?}"
            );
        }
        for figure in &measurement.figures {
            prop_assert!(figure.value.is_finite(), "{figure:?}");
        }
    }
    Ok(())
}

const PROPER: [&str; 9] = [
    iperf3::tests::TCP,
    iperf3::tests::UDP,
    iperf::tests::TCP,
    iperf::tests::UDP,
    nuttcp::tests::TCP,
    nuttcp::tests::UDP,
    curl::tests::FETCHED,
    ping::tests::ANSWERED,
    wget::tests::ENDED,
];

/// What takes the place of a piece of a proper output.
const PIECES: [&str; 10] = [
    "",
    "-1",
    "1e308",
    "18446744073709551615",
    "nan",
    "[",
    "\"",
    "0/0",
    "\u{0}",
    "K",
];

/// Proper outputs with up to eight pieces replaced, and cut off.
fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0..12_usize, 0..PIECES.len());
    let changes = prop::collection::vec(change, 0..8);
    (0..PROPER.len(), changes, any::<prop::sample::Index>()).prop_map(|(which, changes, end)| {
        let mut bytes = PROPER[which].as_bytes().to_vec();
        for (at, length, piece) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, PIECES[piece].bytes());
        }
        // Half of them stay whole.
        let end = end.index(2 * bytes.len() + 1).min(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn parsers_survive_what_is_nearly_right(text in mutated(), code in -1..2) {
        check(&captured(&text, code))?;
    }

    #[test]
    fn parsers_survive_any_lines(lines in prop::collection::vec((any::<bool>(), ".{0,200}"), 0..20)) {
        let line = |(error, text)| Line {
            at_s: 0.0,
            stream: if error { Stream::Error } else { Stream::Output },
            text,
        };
        check(&Output { lines: lines.into_iter().map(line).collect(), code: 0 })?;
    }
}
