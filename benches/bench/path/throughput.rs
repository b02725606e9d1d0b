//! One TCP stream through each rival in turn.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::path::rivals::{Carried, Over, Rival, own_loss, rattan_path};
use crate::report::rows::{Found, Quantity, Sample};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

pub(crate) const SECONDS: u32 = 4;

/// The modes of the stream: name, path, and whether rattan takes part.
const MODES: [(&str, Over, bool); 3] = [
    ("one TCP stream", Over::Plain, true),
    ("in a VXLAN tunnel", Over::Vxlan, false),
    ("offloads off", Over::NoOffloads, false),
];

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "TCP, one stream, cubic, MTU 1500, buffers up to 128 MiB, {SECONDS} s; farwire and rattan with 1 ms in each direction; default offloads \
             unless stated. Processor seconds are those of the emulator; \"whole machine\" includes sender, receiver and the kernel's work for them"
        ),
    );
    if rattan_path().is_none() {
        outcome
            .note("rattan is left out: it is not installed (cargo install rattan --version 0.1.1)");
    }
    for (what, over, with_rattan) in MODES {
        let rivals = Rival::all(with_rattan);
        let names = rivals.iter().map(Rival::name).collect();
        let found = shuffled(rounds, &rivals, |rival| one(rival, over))?;
        let goodput = Found {
            names,
            rounds: each(&found, |stream| Sample {
                value: stream.goodput / 1e9,
                cpu: stream.emulator_s_a_gb,
            }),
        };
        let machine = Found {
            names: goodput.names.clone(),
            rounds: each(&found, |stream| stream.machine_s_a_gb.into()),
        };
        outcome.rows(goodput.rows(&Quantity::more(what, "Gbit/s")));
        outcome.rows(machine.rows(&Quantity::less(
            &format!("{what}: whole machine"),
            "CPU s/GB",
        )));
        for (at, name) in goodput.names.iter().enumerate() {
            outcome.note(&format!("{what}, {name}: {}", typical(&found, at)));
        }
    }
    Ok(outcome)
}

/// The result of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The received payload, in bits a second.
    pub(crate) goodput: f64,
    /// Processor seconds of the emulator for each 10^9 bytes received.
    pub(crate) emulator_s_a_gb: Option<f64>,
    /// The same for farwire's thread that forwards.
    pub(crate) forwarder_s_a_gb: Option<f64>,
    /// The same for the whole machine.
    pub(crate) machine_s_a_gb: f64,
    /// The limit of the goodput.
    limit: String,
}

/// Runs one stream through a rival.
pub(crate) fn one(rival: &Rival, over: Over) -> Result<Stream> {
    let mut standing = rival.stand(over, "iperf3 -s")?;
    let carried = standing.carry(&format!("iperf3 -c $TARGET -t {SECONDS} -C cubic -J"))?;
    let summary = standing.end()?;
    Stream::of(&carried, own_loss(&summary))
}

impl Stream {
    /// Reads the result of a load, with the loss of farwire itself.
    pub(crate) fn of(carried: &Carried, own_loss: u64) -> Result<Self> {
        if let Some(error) = carried.said["error"].as_str() {
            bail!("iperf3: {error}");
        }
        let number = |path| {
            let value = carried.said.pointer(path).and_then(Value::as_f64);
            value.with_context(|| format!("iperf3 said no {path}"))
        };
        let gigabytes = number("/end/sum_received/bytes")? / 1e9;
        Ok(Self {
            goodput: number("/end/sum_received/bits_per_second")?,
            emulator_s_a_gb: carried.emulator_s.map(|seconds| seconds / gigabytes),
            forwarder_s_a_gb: carried.forwarder_s.map(|seconds| seconds / gigabytes),
            machine_s_a_gb: carried.machine_s / gigabytes,
            limit: limit(carried, own_loss),
        })
    }
}

/// Describes how busy each side was.
fn limit(carried: &Carried, own_loss: u64) -> String {
    let number = |path| {
        let value = carried.said.pointer(path).and_then(Value::as_f64);
        value.unwrap_or(0.0)
    };
    let mut parts = vec![format!(
        "CPU of the sender {:.0} %, of the receiver {:.0} %",
        number("/end/cpu_utilization_percent/host_total"),
        number("/end/cpu_utilization_percent/remote_total")
    )];
    if let Some((name, seconds)) = &carried.busiest {
        let percent = 100.0 * seconds / f64::from(SECONDS);
        parts.push(format!("of the thread {name} {percent:.0} %"));
    }
    let window = number("/end/streams/0/sender/max_snd_cwnd") * 8.0;
    let rtt_s = number("/end/streams/0/sender/mean_rtt") / 1e6;
    if rtt_s > 0.0 {
        parts.push(format!(
            "the largest window of {:.1} MB allows {:.1} Gbit/s at {:.2} ms",
            window / 8e6,
            window / rtt_s / 1e9,
            rtt_s * 1e3
        ));
    }
    parts.push(format!(
        "{:.0} retransmissions",
        number("/end/sum_sent/retransmits")
    ));
    if own_loss > 0 {
        parts.push(format!("{own_loss} frames lost by the emulator"));
    }
    parts.join(", ")
}

/// Returns the limit of rival `at` in the median round.
fn typical(found: &[Vec<Stream>], at: usize) -> &str {
    let mut streams: Vec<&Stream> = found.iter().map(|round| &round[at]).collect();
    streams.sort_by(|a, b| a.goodput.total_cmp(&b.goodput));
    let middle = streams.get(streams.len() / 2);
    middle.map_or("", |stream| stream.limit.as_str())
}

/// Converts every stream to a sample.
pub(crate) fn each(found: &[Vec<Stream>], sample: impl Fn(&Stream) -> Sample) -> Vec<Vec<Sample>> {
    let round = |round: &Vec<Stream>| round.iter().map(&sample).collect();
    found.iter().map(round).collect()
}
