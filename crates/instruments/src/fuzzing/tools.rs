//! Checks that every parser of a tool's output ends and returns only finite numbers.

use std::time::Duration;

use model::Nanos;

use crate::external::{OutputLine, OutputStream, ToolOutput};
use crate::http::{curl, wget};
use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport};
use crate::iperf3::tool::{StreamProgram, iperf, iperf3, nuttcp};
use crate::ping::{PingPlan, tool as ping};
use record::Measurement;

/// The most samples that one character of output can cause.
const MOST_SAMPLES: usize = 16;

/// A plan of three requests at intervals of 100 ms.
pub(crate) const PING: PingPlan = PingPlan {
    size: 1200,
    count: 3,
    interval: Nanos::from_millis(100),
    timeout: Some(Nanos::from_secs(1)),
    tos: None,
    dscp: None,
    ttl: None,
};

/// Runs every parser on `text`, with every plan that changes how the parser reads it.
///
/// # Panics
/// Panics if a parser returns too many samples or values that are not finite.
pub(crate) fn parse_all(text: &str) {
    for code in [0, 1] {
        let output = tool_output(text, code);
        for measurement in measurements(&output) {
            assert!(measurement.samples.len() <= MOST_SAMPLES * (text.len() + 1));
            for sample in &measurement.samples {
                let finite = sample.value.is_finite() && sample.at_s.is_finite();
                assert!(finite, "{sample:?}");
            }
            for figure in &measurement.figures {
                assert!(figure.value.is_finite(), "{figure:?}");
            }
        }
    }
}

/// Returns `text` as a tool's output: every seventh line comes from standard error, the others from standard output.
fn tool_output(text: &str, code: i32) -> ToolOutput {
    let lines = text.lines().zip(1..).map(|(text, number)| OutputLine {
        at_s: 0.0,
        stream: match number % 7 {
            0 => OutputStream::Stderr,
            _ => OutputStream::Stdout,
        },
        text: text.to_owned(),
    });
    ToolOutput {
        lines: lines.collect(),
        code,
    }
}

fn measurements(output: &ToolOutput) -> Vec<Measurement> {
    let tools: [&dyn StreamProgram; 3] = [&iperf3::Iperf3, &iperf::Iperf, &nuttcp::Nuttcp];
    let mut measurements = vec![
        curl::parse(output),
        wget::parse(output, Duration::from_secs(1)),
        ping::parse(output, &PING),
    ];
    for protocol in [Transport::Tcp, Transport::Udp] {
        let mut plan = Iperf3Test::new(protocol);
        for way in [TestDirection::Up, TestDirection::Down, TestDirection::Both] {
            plan.direction = way;
            measurements.extend(tools.map(|tool| tool.parse(output, &plan)));
        }
    }
    measurements
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

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

    /// The replacements for a piece of valid output.
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

    /// Generates valid outputs with up to eight pieces replaced; half of them are truncated.
    fn mutated() -> impl Strategy<Value = String> {
        let change = (any::<prop::sample::Index>(), 0..12_usize, 0..PIECES.len());
        let changes = prop::collection::vec(change, 0..8);
        (0..PROPER.len(), changes, any::<prop::sample::Index>()).prop_map(
            |(which, changes, end)| {
                let mut bytes = PROPER[which].as_bytes().to_vec();
                for (at, length, piece) in changes {
                    let at = at.index(bytes.len() + 1);
                    let end = (at + length).min(bytes.len());
                    bytes.splice(at..end, PIECES[piece].bytes());
                }
                let end = end.index(2 * bytes.len() + 1).min(bytes.len());
                String::from_utf8_lossy(&bytes[..end]).into_owned()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 400,
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn parsers_survive_mutated_output(text in mutated()) {
            parse_all(&text);
        }

        #[test]
        fn parsers_survive_any_lines(text in "(.{0,80}\n){0,20}") {
            parse_all(&text);
        }
    }
}
