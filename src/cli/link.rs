//! `farwire link`: what conditions mean in effect, and how netem would say them.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conditions::in_effect::{DirectionInEffect, InEffect, Tried};
use conditions::{AsNetem, ConditionSet, LinkSpec};
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::table::{Column, Table};
use report::{Terminal, prose, table_text};

use super::args::link_conditions::{self, ConditionsArgs};
use crate::notes::note;

/// Say what a link's conditions mean in effect
///
/// It takes the conditions that `exec` and `emulate` take, and sends nothing: what follows from them is worked out, and
/// what becomes of 10,000 packets each way is tried in model time, with the seed. What changes later, and what classes of packets
/// meet otherwise, is left out. The formulas are in docs/theory.md.
#[derive(Args, Debug)]
pub(crate) struct LinkArgs {
    /// Write them as options of `tc qdisc ... netem` instead; ends with 1 where these cannot say all
    #[arg(long, conflicts_with = "json")]
    as_netem: bool,
    /// Write everything as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    link: ConditionsArgs,
}

impl LinkArgs {
    /// Says it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        if self.as_netem {
            return as_netem(&spec);
        }
        let meaning = InEffect::of(&spec).or_bad_input()?;
        let text = text(&spec, &meaning, super::terminal())?;
        super::show(self.json.as_deref(), &meaning, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A line of options, or one each way where they differ; what they cannot say is said beside them.
fn as_netem(spec: &LinkSpec) -> Result<ExitCode, Failure> {
    let [up, down] = spec.as_netem();
    let text = match up.netem == down.netem {
        true => format!("{}\n", up.netem),
        false => format!("up: {}\ndown: {}\n", up.netem, down.netem),
    };
    output::write(None, &text)?;
    let mut is_all = true;
    for (way, AsNetem { unsaid, .. }) in [("up", &up), ("down", &down)] {
        for what in unsaid {
            is_all = false;
            note(format_args!(
                "farwire: {way}: netem's options cannot say {what}"
            ));
        }
    }
    let said = |of: AsNetem| ConditionSet::from(of.netem).into();
    let written = LinkSpec {
        up: said(up),
        down: said(down),
        ..LinkSpec::default()
    };
    link_conditions::warn(&written.to_link("box").or_bad_input()?.config);
    Ok(super::exit_code(is_all))
}

fn text(spec: &LinkSpec, meaning: &InEffect, terminal: Terminal) -> anyhow::Result<String> {
    let title = prose(&crate::live::in_force(spec), terminal);
    let InEffect {
        up,
        down,
        round_trip_ms,
        ..
    } = meaning;
    let columns = [
        Column::words("in effect"),
        Column::words("up"),
        Column::words("down"),
    ];
    let mut known = Table::new("", columns).with(known(up, down));
    known.note = format!("round trip without queues: {round_trip_ms} ms");
    let Tried { packets, .. } = up.tried;
    let columns = [
        Column::words(format!("of {packets} packets of 1000 bytes")),
        Column::words("up"),
        Column::words("down"),
    ];
    let tried = Table::new("", columns).with(tried(&up.tried, &down.tried));
    let notes = meaning.notes.iter().map(|note| prose(note, terminal));
    let tables = [table_text(&known, terminal), table_text(&tried, terminal)];
    let parts = [title].into_iter().chain(tables).chain(notes);
    Ok(parts
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n"))
}

/// A row of what both ways say of something; none where neither says anything.
fn row<T>(name: &str, ways: [&T; 2], says: impl Fn(&T) -> Option<String>) -> Option<[String; 3]> {
    let [up, down] = ways.map(says);
    let is_said = up.is_some() || down.is_some();
    let or_none = |said: Option<String>| said.unwrap_or_else(|| "–".to_owned());
    is_said.then(|| [name.to_owned(), or_none(up), or_none(down)])
}

fn known(up: &DirectionInEffect, down: &DirectionInEffect) -> Vec<[String; 3]> {
    let row = |name, says: fn(&DirectionInEffect) -> Option<String>| row(name, [up, down], says);
    let rows = [
        row("lost at random", |way| {
            Some(
                way.loss_percent
                    .map_or_else(|| "see below".to_owned(), percent),
            )
        }),
        row("lost in a row", |way| {
            way.burst_packets.map(|burst| format!("{burst:.2} packets"))
        }),
        row("pass at once", |way| way.at_once_percent.map(percent)),
        row("slowest rate, L2", |way| mbit(way.rate_bit_per_s)),
        row("policed to", |way| mbit(way.police_bit_per_s)),
        row("rate times round trip", |way| bytes(way.bdp_bytes)),
        row("queue when full", |way| bytes(way.queue_bytes)),
        row("then the wait is", |way| {
            way.queue_ms.map(|ms| format!("{ms:.1} ms"))
        }),
        row("its AQM aims at", |way| {
            way.aqm_target_ms.map(|ms| format!("{ms} ms"))
        }),
        row("held when full", |way| bytes(way.memory_bytes)),
    ];
    rows.into_iter().flatten().collect()
}

fn tried(up: &Tried, down: &Tried) -> Vec<[String; 3]> {
    let row = |name, says: fn(&Tried) -> Option<String>| row(name, [up, down], says);
    let rows = [
        row("one every", |tried| Some(format!("{:.3} ms", tried.gap_ms))),
        row("dropped", |tried| Some(percent(tried.dropped_percent))),
        row("never left", |tried| above_zero(tried.held_percent)),
        row("dropped in a row", |tried| {
            tried
                .burst_packets
                .map(|burst| format!("{burst:.2} packets"))
        }),
        row("delay", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} ms in the mean", delays.mean))
        }),
        row("its standard deviation", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} ms", delays.deviation))
        }),
        row("least to most", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} to {:.3} ms", delays.least, delays.most))
        }),
        row("overtaken", |tried| above_zero(tried.reordered_percent)),
        row("copied", |tried| above_zero(tried.copied_percent)),
        row("corrupted", |tried| above_zero(tried.corrupted_percent)),
    ];
    rows.into_iter().flatten().collect()
}

fn percent(percent: f64) -> String {
    format!("{percent:.3} %")
}

fn above_zero(share: f64) -> Option<String> {
    (share > 0.0).then(|| percent(share))
}

fn mbit(rate: Option<u64>) -> Option<String> {
    rate.map(|rate| format!("{} Mbit/s", rate as f64 / 1e6))
}

fn bytes(bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| format!("{bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: LinkArgs,
    }

    fn said(line: &[&str]) -> String {
        let line = ["x"].iter().chain(line);
        let args = Program::try_parse_from(line).unwrap().args;
        let spec = args.link.to_spec().unwrap();
        let meaning = InEffect::of(&spec).unwrap();
        text(&spec, &meaning, Terminal::NONE).unwrap()
    }

    #[test]
    fn what_conditions_mean_stands_in_two_tables_and_notes() {
        let text = said(&[
            "--netem",
            "delay 10ms loss 10% 25%",
            "--down-rate",
            "8mbit",
            "--seed",
            "3",
        ]);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_standard_deviation_is_called_that_and_no_uncertainty() {
        let text = said(&[
            "--delay",
            "20ms",
            "--jitter",
            "2ms,normal,free",
            "--seed",
            "1",
        ]);
        let line = text
            .lines()
            .find(|line| line.contains("standard deviation"));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        let deviation: f64 = words[3].parse().unwrap();
        assert!((deviation - 2.0).abs() < 0.1, "{deviation}");
        assert!(!text.contains('±'), "{text}");
    }

    #[test]
    fn what_is_not_there_has_no_row() {
        let text = said(&["--delay", "20ms"]);
        for absent in [
            "at once",
            "slowest rate",
            "policed",
            "queue when",
            "held",
            "left",
            "copied",
            "in a row",
        ] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
}
