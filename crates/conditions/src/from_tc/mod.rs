//! Commands of tc as a link: qdiscs, classes and filters of one or two devices.
//!
//! A script is read command by command, as the kernel would see them, into the qdiscs that exist at its end. The packets
//! that one device sends are one direction of the link. Those that it receives, by way of an ifb, or those that a second
//! device sends are the other one. Everything without an equivalent is named with its line.

mod commands;
mod devices;
mod directions;
mod filters;
mod ids;
mod qdiscs;
mod report;
mod script;

use std::fmt::Write;

use serde::Serialize;

pub use self::report::Lack;

use self::commands::Place;
use self::devices::{Device, Devices};
use self::directions::{Converter, Direction, OwnPath, arriving};
use self::filters::{Matched, Target};
use self::report::Report;
use self::script::ScriptCommand;
use crate::Direction as LinkDirection;
use crate::error::Error;
use crate::filter::value::Addresses;
use crate::layer::{ConditionSet, Layer};
use crate::link::LinkSpec;
use crate::link::rule::RuleSpec;
use crate::require;
use crate::rules::Rule;

/// The most commands of tc in a script.
const MOST_COMMANDS: usize = 2_000;

/// Commands of the set-up around tc, which impair nothing.
const SET_UP: [&str; 14] = [
    "modprobe", "insmod", "echo", "printf", "set", "exit", "return", "true", ":", "[", "}", "fi",
    "done", "esac",
];

/// A link that was made of tc's commands. As JSON it has `link`, `remarks` and `no_equivalent`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FromTc {
    /// The link.
    pub link: LinkSpec,
    /// Sentences about the link as a whole.
    pub remarks: Vec<String>,
    /// The parts of the script that have no equivalent, in the order of its lines.
    #[serde(rename = "no_equivalent")]
    pub lacks: Vec<Lack>,
}

impl FromTc {
    /// Converts a shell script, or a file for `tc -batch`.
    ///
    /// # Errors
    /// Returns an error for a script without a command of tc or with too many, and for a link that farwire refuses.
    pub fn read(script: &str) -> Result<Self, Error> {
        let mut report = Report::default();
        let devices = after(script, &mut report)?;
        let [up, down] = two_directions(&devices, &mut report);
        let link = link_of(&up, &down, &mut report);
        link.check()?;
        if !link.rules.is_empty() {
            report.remark(
                "The port of a rule matches either end, and a rule without addresses matches both IPv4 and IPv6.",
            );
        }
        let Report { mut lacks, remarks } = report;
        lacks.sort();
        Ok(Self {
            link,
            remarks,
            lacks,
        })
    }

    /// Returns a file for `--link` that begins with the remarks and with what has no equivalent, as comments.
    ///
    /// # Errors
    /// Returns an error if the conditions cannot be written, which never happens to those that were read.
    pub fn to_file(&self) -> Result<String, Error> {
        let mut text = String::new();
        for remark in &self.remarks {
            let _ = writeln!(text, "# {remark}");
        }
        for Lack { line, what } in &self.lacks {
            let _ = writeln!(text, "# No equivalent: line {line}: {what}");
        }
        let link = toml::to_string(&self.link).map_err(Error::other)?;
        if !link.is_empty() {
            text.push('\n');
        }
        Ok(text + &link)
    }
}

/// Returns the devices after all commands of a script.
fn after(script: &str, report: &mut Report) -> Result<Devices, Error> {
    let mut devices = Devices::default();
    let mut count = 0;
    for command in script::commands(script) {
        let line = command.line;
        let Some(text) = behind_tc(&command) else {
            if !is_set_up(&command) {
                report.lack(
                    line,
                    format!("`{}`, which is not tc", command.words.join(" ")),
                );
            }
            continue;
        };
        count += 1;
        require!(
            count <= MOST_COMMANDS,
            "there are more than {MOST_COMMANDS} commands of tc"
        );
        let read = match command.unknown {
            Some(cause) => Err(cause),
            None => commands::command(&text),
        };
        let applied = read.and_then(|read| match read {
            None => Ok(()),
            Some(command) => {
                command
                    .lacks
                    .iter()
                    .for_each(|what| report.lack(line, what));
                devices.apply(line, command)
            }
        });
        if let Err(what) = applied {
            report.lack(line, what);
        }
    }
    require!(
        count > 0,
        "there is no command of tc: write for example tc qdisc add dev eth0 root netem delay 100ms"
    );
    Ok(devices)
}

/// Returns the words behind `tc`; `None` for another command. A file for `tc -batch` leaves `tc` out.
fn behind_tc(command: &ScriptCommand) -> Option<String> {
    let mut words = command.words.as_slice();
    if words
        .first()
        .is_some_and(|first| base_name(first) == "sudo")
    {
        let is_option = |word: &String| word.starts_with('-');
        let options = words[1..].iter().take_while(|word| is_option(word)).count();
        words = &words[1 + options..];
    }
    let first = words.first()?;
    match base_name(first) {
        "tc" => Some(words[1..].join(" ")),
        "qdisc" | "class" | "filter" => Some(words.join(" ")),
        _ => None,
    }
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns whether a command only prepares devices, or the shell itself.
fn is_set_up(command: &ScriptCommand) -> bool {
    let words = command.words.iter().map(String::as_str);
    let mut words = words.skip_while(|word| *word == "sudo");
    match words.next().map(base_name) {
        Some("ip") => words
            .next()
            .is_some_and(|object| "link".starts_with(object)),
        Some(name) => SET_UP.contains(&name),
        None => true,
    }
}

/// Returns what packets meet upwards and downwards, and says which devices these directions are.
fn two_directions(devices: &Devices, report: &mut Report) -> [Direction; 2] {
    let is_led_to = |device: &Device| {
        let mut filters = devices
            .0
            .iter()
            .flat_map(|other| other.filters(Place::Ingress));
        filters.any(|filter| matches!(&filter.target, Target::Device(name) if *name == device.name))
    };
    let used = || devices.0.iter().filter(|device| device.is_used());
    let mut own: Vec<&Device> = used().filter(|device| !is_led_to(device)).collect();
    if own.is_empty() {
        own = used().collect();
    }
    match own.as_slice() {
        [] => {
            report.remark("At its end, the script leaves no qdisc.");
            Default::default()
        }
        [one] => {
            let name = &one.name;
            report.remark(&format!(
                "up is what {name} sends, and down what it receives."
            ));
            [
                Converter::leaving(one, report),
                arriving(one, devices, report),
            ]
        }
        [first, second, others @ ..] => {
            let [one, two] = [&first.name, &second.name];
            report.remark(&format!(
                "up is what {one} sends, and down what {two} sends. `farwire emulate {two} {one}` has these directions."
            ));
            for device in [first, second] {
                for filter in device.filters(Place::Ingress) {
                    let what = "packets that come in, beside those that another device sends";
                    report.lack(filter.line, what);
                }
            }
            for device in others {
                let line = device.root().map_or(0, |root| root.line);
                report.lack(line, format!("{}, which is a third device", device.name));
            }
            [first, second].map(|device| Converter::leaving(device, report))
        }
    }
}

/// The conditions of a class in both directions, if a filter of that direction leads to it.
struct Class {
    matched: Matched,
    up: Option<ConditionSet>,
    down: Option<ConditionSet>,
}

impl Class {
    /// Returns the only direction of its packets. A match on addresses is one on those of a direction; without addresses,
    /// a rule has the packets of both.
    fn only_direction(&self) -> Option<LinkDirection> {
        match (self.matched.has_addresses(), &self.up, &self.down) {
            (true, Some(_), None) => Some(LinkDirection::Up),
            (true, None, Some(_)) => Some(LinkDirection::Down),
            _ => None,
        }
    }
}

/// Creates the link.
fn link_of(up: &Direction, down: &Direction, report: &mut Report) -> LinkSpec {
    let mut classes: Vec<Class> = Vec::new();
    for own in &up.classes {
        // The kernel never asks a second filter for the same packets.
        if classes.iter().all(|class| class.matched != own.matched) {
            classes.push(Class {
                matched: own.matched,
                up: Some(up.conditions_of(own)),
                down: None,
            });
        }
    }
    for own in &down.classes {
        add_down(&mut classes, down, own, report);
    }
    let [both, up, down] = layers(up.conditions(), down.conditions());
    let classes = classes.into_iter().map(|class| {
        let direction = class.only_direction();
        let Class { matched, up, down } = class;
        let [both, up, down] = layers(up.unwrap_or_default(), down.unwrap_or_default());
        let Matched {
            protocol,
            port,
            source,
            destination,
        } = matched;
        RuleSpec {
            rule: Rule {
                name: matched.name(),
                protocol,
                port: port.map(Into::into),
                source: source.map(Addresses::Net),
                destination: destination.map(Addresses::Net),
                direction,
                ..Rule::default()
            },
            hop: None,
            weight: None,
            both,
            up,
            down,
        }
    });
    LinkSpec {
        both,
        up,
        down,
        rules: classes.collect(),
        ..LinkSpec::default()
    }
}

/// Adds the conditions of a class downwards. A link has one list of classes for both directions, so a packet that comes
/// down must not belong to a class that only exists upwards, or to another one that comes first.
fn add_down(classes: &mut Vec<Class>, down: &Direction, own: &OwnPath, report: &mut Report) {
    let known = classes
        .iter()
        .position(|class| class.matched == own.matched);
    let before = &classes[..known.unwrap_or(classes.len())];
    let is_taken = |class: &Class| {
        let has_down = class.only_direction() != Some(LinkDirection::Up);
        class.down.is_none() && has_down && class.matched.overlaps(own.matched)
    };
    if before.iter().any(is_taken) {
        let what = "packets, some of which a filter of the other direction matches too";
        report.lack(own.line, what);
        return;
    }
    let conditions = Some(down.conditions_of(own));
    match known {
        Some(at) if classes[at].down.is_some() => {}
        Some(at) => classes[at].down = conditions,
        None => classes.push(Class {
            matched: own.matched,
            up: None,
            down: conditions,
        }),
    }
}

/// Returns layers for both directions, up and down.
fn layers(up: ConditionSet, down: ConditionSet) -> [Layer; 3] {
    match up == down {
        true => [up.into(), Layer::default(), Layer::default()],
        false => [Layer::default(), up.into(), down.into()],
    }
}

#[cfg(test)]
mod tests;
