//! An instrument as a scenario file asks for it: the same options by their long names, and a far end that the test bed has.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::error::{Context, Result};
use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, FromArgMatches as _, Subcommand as _};
use conditions::{Error, nearest};
use record::plan::{Plan, RecordedArguments};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::{InstrumentArgs, NAMES};
use crate::external::Tool;
use crate::instrument::FarEnd;

/// What a scenario cannot set: it has its own way to each.
const NOT_IN_SCENARIOS: [&str; 6] = ["json", "csv", "help", "bind", "ipv4", "ipv6"];

/// Options of an instrument by their long names: `true` is a flag, `false` takes one away.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Parameters(BTreeMap<String, Value>);

impl JsonSchema for Parameters {
    fn schema_name() -> Cow<'static, str> {
        "Parameters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "The options of `farwire measure KIND` by their long names.",
            "additionalProperties": { "type": ["string", "number", "boolean", "array"] }
        })
    }
}

impl Parameters {
    /// Takes over what `other` sets.
    pub fn set(&mut self, other: &Self) {
        self.0.extend(other.0.clone());
    }

    /// Those that `left_out` does not name.
    pub fn without(&self, left_out: impl Fn(&str) -> bool) -> Self {
        let mut kept = self.clone();
        kept.0.retain(|key, _| !left_out(key));
        kept
    }

    /// As a command line has them.
    fn options(&self) -> Result<Vec<String>, Error> {
        let mut options = Vec::new();
        for (key, value) in &self.0 {
            let name = key.replace('_', "-");
            match value {
                Value::Boolean(false) => {}
                Value::Boolean(true) => options.push(format!("--{name}")),
                value => options.push(format!("--{name}={}", text(key, value)?)),
            }
        }
        Ok(options)
    }
}

fn text(key: &str, value: &Value) -> Result<String, Error> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Array(all) => {
            let all = all.iter().map(|one| text(key, one));
            all.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        _ => {
            let refused = Error::other("must be a text, a number, true, false or a list");
            return Err(refused.at(key));
        }
    })
}

/// A kind of instruments, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(&'static str);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let name = String::deserialize(source)?;
        let known = Self::all().find(|kind| kind.name() == name);
        known.ok_or_else(|| D::Error::unknown_variant(&name, NAMES))
    }
}

impl JsonSchema for Kind {
    fn schema_name() -> Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": NAMES })
    }
}

impl Kind {
    /// Every kind, in the order of `farwire measure`.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().copied().map(Self)
    }

    /// As the command line and a scenario call it.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Every option that a scenario may set.
    pub fn options(self) -> Vec<OptionText> {
        let all = InstrumentArgs::augment_subcommands(Command::new("farwire"));
        let command = all.find_subcommand(self.0);
        let arguments = command.into_iter().flat_map(Command::get_arguments);
        arguments.filter_map(OptionText::of).collect()
    }

    /// The instrument of this kind with these options.
    ///
    /// # Errors
    /// One that names an option that it has not, or whose value it cannot have.
    pub fn with(self, parameters: &Parameters) -> Result<InstrumentArgs, Error> {
        let options = parameters.options()?;
        let known: Vec<String> = self.options().into_iter().map(|known| known.name).collect();
        for option in &options {
            let name = option.trim_start_matches('-').split('=').next();
            let name = name.unwrap_or_default();
            if !known.iter().any(|known| known == name) {
                let known = known.iter().map(String::as_str);
                let near = nearest::of(name, known.clone()).map_or_else(
                    || format!("it has {}", known.collect::<Vec<_>>().join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                let refused = Error::other(format_args!("not an option of {}; {near}", self.0));
                return Err(refused.at(name));
            }
        }
        let mut line = vec!["farwire".to_owned(), self.0.to_owned()];
        line.extend(options);
        line.push(FarEnd::example().address.to_string());
        let all = InstrumentArgs::augment_subcommands(Command::new("farwire"));
        let matches = all.subcommand_required(true).try_get_matches_from(line);
        let instrument = matches.and_then(|matches| InstrumentArgs::from_arg_matches(&matches));
        instrument.map_err(|error| refusal(&error))
    }
}

impl InstrumentArgs {
    /// The instrument of a record's plan.
    ///
    /// # Errors
    /// There is no such kind, or it lacks an argument.
    pub fn of(recorded: &RecordedArguments) -> Result<Self> {
        let mut own: Self = serde_json::from_value(serde_json::to_value(recorded)?)?;
        own.instrument_mut().aim(&FarEnd::example());
        Ok(own)
    }

    /// The same instrument toward `far_end`; TCP senders have `congestion` unless they say otherwise.
    #[must_use]
    pub fn toward(&self, far_end: &FarEnd, congestion: &str) -> Self {
        let mut own = self.clone();
        let instrument = own.instrument_mut();
        instrument.aim(far_end);
        instrument.use_congestion(congestion);
        own
    }

    /// The file that it sends, its option `file`.
    pub fn file_mut(&mut self) -> Option<&mut PathBuf> {
        self.instrument_mut().file_mut()
    }

    /// The external tools that it needs, at both ends.
    ///
    /// # Errors
    /// One is not on this machine.
    pub fn tools(&self) -> Result<Vec<Tool>> {
        let instrument = self.instrument();
        let server = instrument.server()?;
        let tools = [instrument.tool()?, server.map(|server| server.tool)];
        Ok(tools.into_iter().flatten().collect())
    }

    /// As a record keeps it.
    pub fn recorded(&self) -> RecordedArguments {
        let written = serde_json::to_value(self).expect("arguments are JSON");
        let mut recorded: RecordedArguments =
            serde_json::from_value(written).expect("arguments have names");
        recorded.arguments.retain(|_, value| !value.is_null());
        recorded
    }
}

/// A record's plan with its instruments.
///
/// # Errors
/// An instrument that this program does not have, or that lacks an argument.
pub fn read_plan(recorded: &Plan) -> Result<Plan<InstrumentArgs>> {
    recorded.try_map(|planned| {
        let own = InstrumentArgs::of(&planned.args);
        own.with_context(|| format!("`{}` of the plan", planned.name))
    })
}

/// The plan as a record keeps it.
pub fn record_plan(plan: &Plan<InstrumentArgs>) -> Plan {
    let recorded = plan.try_map(|planned| Ok::<_, Infallible>(planned.args.recorded()));
    recorded.unwrap_or_else(|never| match never {})
}

/// An option, for whoever writes a scenario.
#[derive(Clone, Debug)]
pub struct OptionText {
    /// Its long name.
    pub name: String,
    /// What `--help` says of it, in plain text.
    pub help: String,
    /// Whether it has no value.
    pub flag: bool,
}

impl OptionText {
    fn of(argument: &Arg) -> Option<Self> {
        let name = argument.get_long()?.to_owned();
        let settable = !NOT_IN_SCENARIOS.contains(&name.as_str());
        let help = argument.get_help().map(ToString::to_string);
        settable.then(|| Self {
            name,
            help: help.unwrap_or_default(),
            flag: matches!(argument.get_action(), ArgAction::SetTrue),
        })
    }
}

impl FarEnd {
    /// Of no test bed, to try options on.
    fn example() -> Self {
        Self {
            address: IpAddr::from([192, 0, 2, 1]),
            http: 80,
        }
    }
}

/// What clap refuses, with the option that it is about as key.
fn refusal(error: &clap::Error) -> Error {
    let all = |kind| match error.get(kind) {
        Some(ContextValue::String(one)) => vec![one.as_str()],
        Some(ContextValue::Strings(all)) => all.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let [options, values] = [ContextKind::InvalidArg, ContextKind::InvalidValue].map(all);
    let [others, known] = [ContextKind::PriorArg, ContextKind::ValidValue].map(all);
    let (option, value, others) = (options.join(", "), values.concat(), others.join(", "));
    let refused = match (error.kind(), error.source()) {
        (ErrorKind::InvalidValue, _) if !known.is_empty() => Error::unknown_name(&value, known),
        (ErrorKind::ArgumentConflict, _) => {
            Error::other(format_args!("it cannot be used with {others}"))
        }
        (ErrorKind::TooManyValues, _) => {
            Error::other(format_args!("a flag is true or false, not '{value}'"))
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            Error::other(format_args!("another option needs {option}"))
        }
        (_, Some(cause)) => Error::other(format_args!(
            "invalid value '{value}' for '{option}': {cause}"
        )),
        (kind, None) => Error::other(format_args!("{option}: {kind}")),
    };
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => {
            let name = option.trim_start_matches('-').split([' ', '=']).next();
            refused.at(name.unwrap_or_default())
        }
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::profile::Carrier;
    use std::time::Duration;

    fn parameters(text: &str) -> Parameters {
        toml::from_str(text).unwrap()
    }

    fn kind(name: &str) -> Kind {
        Kind::all().find(|kind| kind.name() == name).unwrap()
    }

    fn asked(name: &str, text: &str) -> InstrumentArgs {
        kind(name).with(&parameters(text)).unwrap()
    }

    fn aimed(name: &str, text: &str) -> InstrumentArgs {
        asked(name, text).toward(&FarEnd::example(), "cubic")
    }

    #[test]
    fn parameters_are_the_options_of_the_command_line() {
        let given = parameters("parallel = 3\ntime = '2s'\nreverse = true\nbidir = false");
        let options = given.options().unwrap();
        assert_eq!(options, ["--parallel=3", "--reverse", "--time=2s"]);
        let asked = aimed("tcp", "parallel = 3\ntime = '2s'\nreverse = true");
        let text = format!("{asked:?}");
        for part in [
            "parallel: 3",
            "reverse: true",
            "Some(\"cubic\")",
            "192.0.2.1",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let estimate = asked.instrument().estimate(None);
        assert_eq!(estimate, Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_a_sender_says_of_congestion_control_stays() {
        let asked = aimed("tcp", "congestion = 'reno'");
        assert!(format!("{asked:?}").contains("Some(\"reno\")"));
        let carrier = asked.instrument().profile().carrier;
        let Some(Carrier::Tcp { congestion, .. }) = carrier else {
            panic!("{carrier:?}");
        };
        assert_eq!(congestion.as_deref(), Some("reno"));
    }

    #[test]
    fn a_plan_has_units_as_text_and_what_no_one_said() {
        let asked = asked("ping", "count = 3\ninterval = '20ms'");
        assert_eq!(
            asked.recorded().options(),
            "--count=3 --interval=20ms --size=56 --timeout=3s"
        );
    }

    #[test]
    fn an_option_that_is_not_there_is_named_with_those_that_are() {
        let refused = |name: &str, text: &str| {
            let error = kind(name).with(&parameters(text)).unwrap_err();
            error.to_string()
        };
        let error = refused("ping", "parallel = 3");
        assert!(
            error.starts_with("parallel: not an option of ping; it has size, count"),
            "{error}"
        );
        let error = refused("ping", "count = 'x'");
        assert!(error.contains("'x'"), "{error}");
        assert!(error.contains("--count"), "{error}");
        assert!(kind("tcp").with(&parameters("json = 'x'")).is_err());
    }

    #[test]
    fn what_no_instrument_can_be_is_refused_by_its_option_with_what_would_be_right() {
        for case in [
            "ping: count = 'x' => count: invalid value 'x' for '--count <",
            "tcp: reverse = true, bidir = true => bidir: it cannot be used with --reverse",
            "tcp: reverse = 'x' => reverse: a flag is true or false, not 'x'",
            "pingpong: timeout = '1s' => another option needs --udp",
            "ping: tool = 'pong' => tool: unknown name `pong`; did you mean `ping`?",
        ] {
            let (asked, right) = case.split_once(" => ").unwrap();
            let (name, options) = asked.split_once(": ").unwrap();
            let error = kind(name).with(&parameters(&options.replace(", ", "\n")));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(right), "{case}: {error}");
            assert!(!error.contains("Usage"), "{error}");
        }
    }

    #[test]
    fn every_kind_takes_a_target_and_no_option_and_comes_back_from_a_plan() {
        for kind in Kind::all() {
            let asked = asked(kind.name(), "");
            let recorded = asked.recorded();
            let kept = serde_json::to_string(&recorded).unwrap();
            let read: RecordedArguments = serde_json::from_str(&kept).unwrap();
            assert_eq!(read, recorded);
            let back = InstrumentArgs::of(&read)
                .unwrap_or_else(|error| panic!("{}: {error:#}", kind.name()));
            assert_eq!(back.recorded(), recorded);
            assert_eq!(back.instrument().profile(), asked.instrument().profile());
        }
    }
}
