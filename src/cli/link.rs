//! `farwire link`: the effect of conditions, and the same conditions as options of netem.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use conditions::in_effect::{DirectionInEffect, InEffect, Tried};
use conditions::{AsNetem, ConditionSet, FromTc, Lack, LinkSpec, warnings};
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::table::{Column, Table};
use report::{Terminal, prose, table_text};

use super::args::link_conditions::{self, ConditionsArgs};
use crate::notes::note;

/// Show the effect of a link's conditions, without sending a packet
///
/// link takes the conditions of `exec` and `emulate`. It calculates what follows from them, and simulates up to 10,000 packets in each
/// direction with the seed. Schedules and rules are left out. The formulas are in docs/theory.md, and docs/conditions.md
/// describes every condition.
#[derive(Args, Debug)]
pub(crate) struct LinkArgs {
    /// Write the conditions as options of `tc qdisc ... netem` instead
    ///
    /// Write the conditions as options of `tc qdisc ... netem` instead. The exit code is 1 if netem has no options for some of them
    #[arg(long, conflicts_with = "json")]
    as_netem: bool,
    /// Convert the tc commands of a script (- for standard input) to a link file
    ///
    /// Convert the tc commands of a script (- for standard input) to a link file on standard output. Lines without an equivalent are
    /// named on standard error, and the exit code is 1 then. With --json, they are also in the JSON, beside the link
    #[arg(long, value_name = "FILE", conflicts_with = "as_netem")]
    from_tc: Option<PathBuf>,
    /// Write everything as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    link: ConditionsArgs,
}

impl LinkArgs {
    /// Prints the effect, or the options of netem.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        if let Some(script) = &self.from_tc {
            return from_tc(script, &spec, self.json.as_deref());
        }
        if self.as_netem {
            return as_netem(&spec);
        }
        let meaning = InEffect::of(&spec).or_bad_input()?;
        let text = text(&spec, &meaning, super::terminal())?;
        super::show(self.json.as_deref(), &meaning, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The longest script, in bytes.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// Prints the link file for a script. Standard error and `json` have the lines without an equivalent. `beside` are conditions of the
/// command line.
fn from_tc(script: &Path, beside: &LinkSpec, json: Option<&Path>) -> Result<ExitCode, Failure> {
    if *beside != LinkSpec::default() {
        return Err(Failure::bad_input(
            "--from-tc takes all conditions from the script: leave the others out, or add them to the file",
        ));
    }
    let name = script.display();
    let text = script_text(script).with_context(|| format!("{name}: cannot read"));
    let converted = FromTc::read(&text.or_bad_input()?);
    let converted = converted.with_context(|| name.to_string()).or_bad_input()?;
    let file = converted.to_file().or_bad_input()?;
    super::show(json, &converted, &file, io::sink())?;
    for Lack { line, what } in &converted.lacks {
        note(format_args!(
            "farwire: {name}:{line}: no equivalent: {what}"
        ));
    }
    let link = converted.link.to_link("box").or_bad_input()?;
    link_conditions::note_all(warnings::of_link(&link.config));
    Ok(super::exit_code(converted.lacks.is_empty()))
}

fn script_text(script: &Path) -> anyhow::Result<String> {
    let source: Box<dyn Read> = if script == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(script)?)
    };
    let mut text = String::new();
    source.take(LONGEST_SCRIPT + 1).read_to_string(&mut text)?;
    ensure!(
        text.len() as u64 <= LONGEST_SCRIPT,
        "the file is longer than 1 MiB"
    );
    Ok(text)
}

/// Prints a line of options, or one for each direction if they differ. Standard error has the conditions without options.
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
                "farwire: {way}: netem has no options for {what}"
            ));
        }
    }
    let said = |of: AsNetem| ConditionSet::from(of.netem).into();
    let written = LinkSpec {
        up: said(up),
        down: said(down),
        ..LinkSpec::default()
    };
    let written = written.to_link("box").or_bad_input()?;
    link_conditions::note_all(warnings::of_link(&written.config));
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
        Column::words("effect"),
        Column::words("up"),
        Column::words("down"),
    ];
    let mut known = Table::new("", columns).with(known(up, down));
    known.note = format!("round-trip time without queues: {round_trip_ms} ms");
    let Tried { packets, .. } = up.tried;
    let columns = [
        Column::words(format!("simulation of {packets} packets of 1000 bytes")),
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

/// Returns a row with a value for each direction; `None` if neither has one.
fn row<T>(name: &str, ways: [&T; 2], says: impl Fn(&T) -> Option<String>) -> Option<[String; 3]> {
    let [up, down] = ways.map(says);
    let is_said = up.is_some() || down.is_some();
    let or_none = |said: Option<String>| said.unwrap_or_else(|| "–".to_owned());
    is_said.then(|| [name.to_owned(), or_none(up), or_none(down)])
}

fn known(up: &DirectionInEffect, down: &DirectionInEffect) -> Vec<[String; 3]> {
    let row = |name, says: fn(&DirectionInEffect) -> Option<String>| row(name, [up, down], says);
    let rows = [
        row("random loss", |way| {
            Some(
                way.loss_percent
                    .map_or_else(|| "see below".to_owned(), percent),
            )
        }),
        row("average burst of losses", |way| {
            way.burst_packets.map(|burst| format!("{burst:.2} packets"))
        }),
        row("skip the delay", |way| way.undelayed_percent.map(percent)),
        row("lowest rate, L2", |way| mbit(way.rate_bit_per_s)),
        row("policer rate", |way| mbit(way.police_bit_per_s)),
        row("bandwidth-delay product", |way| bytes(way.bdp_bytes)),
        row("queue size", |way| bytes(way.queue_bytes)),
        row("delay of a full queue", |way| {
            way.queue_ms.map(|ms| format!("{ms:.1} ms"))
        }),
        row("target delay of the AQM", |way| {
            way.aqm_target_ms.map(|ms| format!("{ms} ms"))
        }),
        row("memory for frames in flight", |way| bytes(way.memory_bytes)),
    ];
    rows.into_iter().flatten().collect()
}

fn tried(up: &Tried, down: &Tried) -> Vec<[String; 3]> {
    let row = |name, says: fn(&Tried) -> Option<String>| row(name, [up, down], says);
    let rows = [
        row("sending interval", |tried| {
            Some(format!("{:.3} ms", tried.gap_ms))
        }),
        row("dropped", |tried| Some(percent(tried.dropped_percent))),
        row("still held at the end", |tried| {
            above_zero(tried.held_percent)
        }),
        row("average burst of drops", |tried| {
            tried
                .burst_packets
                .map(|burst| format!("{burst:.2} packets"))
        }),
        row("mean delay", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} ms", delays.mean))
        }),
        row("standard deviation", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} ms", delays.deviation))
        }),
        row("least to greatest", |tried| {
            let delays = tried.delay_ms?;
            Some(format!("{:.3} to {:.3} ms", delays.least, delays.most))
        }),
        row("overtaken by others", |tried| {
            above_zero(tried.reordered_percent)
        }),
        row("duplicated", |tried| above_zero(tried.copied_percent)),
        row("corrupted", |tried| above_zero(tried.corrupted_percent)),
    ];
    rows.into_iter().flatten().collect()
}

/// Returns a percentage with three decimal places. One that is too small for them has three significant digits, without
/// zeros at the end, so that a share that was stated looks as it was written.
fn percent(percent: f64) -> String {
    const LEAST: f64 = 0.001;
    if percent == 0.0 || percent >= LEAST {
        return format!("{percent:.3} %");
    }
    let rounded: f64 = format!("{percent:.2e}").parse().unwrap_or(percent);
    format!("{rounded} %")
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
    fn the_effect_of_conditions_is_two_tables_and_notes() {
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
    fn a_standard_deviation_is_not_shown_as_an_uncertainty() {
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
        let deviation: f64 = words[2].parse().unwrap();
        assert!((deviation - 2.0).abs() < 0.1, "{deviation}");
        assert!(!text.contains('±'), "{text}");
    }

    #[test]
    fn a_very_small_share_is_not_rounded_to_zero() {
        for (loss, shown) in [
            ("0.00001%", "0.00001 %"),
            ("0.000123456%", "0.000123 %"),
            ("0.0012%", "0.001 %"),
            ("0%", "0.000 %"),
        ] {
            let text = said(&["--loss", loss]);
            let line = text.lines().find(|line| line.contains("random loss"));
            assert!(line.is_some_and(|line| line.contains(shown)), "{text}");
        }
    }

    #[test]
    fn an_effect_that_no_direction_has_is_left_out() {
        let text = said(&["--delay", "20ms"]);
        for absent in [
            "skip",
            "lowest rate",
            "policer",
            "queue size",
            "held",
            "duplicated",
            "burst",
        ] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
}
