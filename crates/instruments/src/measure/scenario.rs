//! Instruments in a scenario file: the options of the command line by their long names, with a far end in the test bed.

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
use conditions::{Error, nearest, plain};
use record::plan::{Plan, RecordedArguments};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::{InstrumentArgs, NAMES};
use crate::external::Tool;
use crate::instrument::FarEnd;

/// The options that a scenario cannot set, because it sets them in other ways.
const NOT_IN_SCENARIOS: [&str; 7] = ["json", "csv", "help", "bind", "ipv4", "ipv6", "details"];

/// The options of an instrument by their long names. `true` sets a flag, and `false` unsets it.
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
    /// Sets the options that `other` sets.
    pub fn set(&mut self, other: &Self) {
        self.0.extend(other.0.clone());
    }

    /// Returns the options without those that `left_out` matches.
    pub fn without(&self, left_out: impl Fn(&str) -> bool) -> Self {
        let mut kept = self.clone();
        kept.0.retain(|key, _| !left_out(key));
        kept
    }

    /// Returns the options as words of a command line.
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

/// A kind of instrument, identified by its name.
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
    /// Returns all kinds, in the order of `farwire measure`.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().copied().map(Self)
    }

    /// Returns the name that the command line and a scenario use.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns all options that a scenario may set.
    pub fn options(self) -> Vec<OptionText> {
        let all = InstrumentArgs::augment_subcommands(Command::new("farwire"));
        let command = all.find_subcommand(self.0);
        let arguments = command.into_iter().flat_map(Command::get_arguments);
        arguments.filter_map(OptionText::of).collect()
    }

    /// Returns an instrument of this kind with these options.
    ///
    /// # Errors
    /// Returns an error that names the option if the kind does not have it, or rejects its value.
    pub fn with(self, parameters: &Parameters) -> Result<InstrumentArgs, Error> {
        let options = parameters.options()?;
        let known: Vec<String> = self.options().into_iter().map(|known| known.name).collect();
        for option in &options {
            let name = option
                .trim_start_matches('-')
                .split('=')
                .next()
                .unwrap_or_default();
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
    /// Returns the instrument of a record's plan.
    ///
    /// # Errors
    /// Returns an error if there is no such kind, or an argument is missing.
    pub fn of(recorded: &RecordedArguments) -> Result<Self> {
        let mut own: Self = serde_json::from_value(serde_json::to_value(recorded)?)?;
        own.instrument_mut().set_far_end(&FarEnd::example());
        Ok(own)
    }

    /// Returns the same instrument with `far_end` as its target. TCP senders use `congestion` unless their arguments
    /// name another.
    #[must_use]
    pub fn toward(&self, far_end: &FarEnd, congestion: &str) -> Self {
        let mut own = self.clone();
        let instrument = own.instrument_mut();
        instrument.set_far_end(far_end);
        instrument.use_congestion(congestion);
        own
    }

    /// Returns the path of the file that it sends, given by its option `file`.
    pub fn file_mut(&mut self) -> Option<&mut PathBuf> {
        self.instrument_mut().file_mut()
    }

    /// Returns the external tools that it needs at both ends.
    ///
    /// # Errors
    /// Returns an error if a tool is not on this machine.
    pub fn tools(&self) -> Result<Vec<Tool>> {
        let instrument = self.instrument();
        let server = instrument.server()?;
        let tools = [instrument.tool()?, server.map(|server| server.tool)];
        Ok(tools.into_iter().flatten().collect())
    }

    /// Returns the arguments in the form that a record keeps.
    pub fn recorded(&self) -> RecordedArguments {
        let written = serde_json::to_value(self).expect("arguments are JSON");
        let mut recorded: RecordedArguments =
            serde_json::from_value(written).expect("arguments have names");
        recorded.arguments.retain(|_, value| !value.is_null());
        recorded
    }
}

/// Returns a record's plan with its instruments.
///
/// # Errors
/// Returns an error if this program does not have an instrument, or an argument is missing.
pub fn read_plan(recorded: &Plan) -> Result<Plan<InstrumentArgs>> {
    recorded.try_map(|planned| {
        let own = InstrumentArgs::of(&planned.args);
        own.with_context(|| format!("`{}` of the plan", planned.name))
    })
}

/// Returns the plan in the form that a record keeps.
pub fn record_plan(plan: &Plan<InstrumentArgs>) -> Plan {
    let recorded = plan.try_map(|planned| Ok::<_, Infallible>(planned.args.recorded()));
    recorded.unwrap_or_else(|never| match never {})
}

/// An option, described for the author of a scenario.
#[derive(Clone, Debug)]
pub struct OptionText {
    /// The long name.
    pub name: String,
    /// The help of `--help` as plain text.
    pub help: String,
    /// Whether the option takes no value.
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
    /// Returns a far end outside every test bed, to check options with.
    fn example() -> Self {
        Self {
            address: IpAddr::from([192, 0, 2, 1]),
            http: 80,
        }
    }
}

/// Converts an error of clap; the key is the option that the error concerns.
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
        (_, Some(cause)) => {
            let cause = cause.to_string();
            let cause = plain::in_words(&cause);
            Error::other(format_args!(
                "invalid value '{value}' for '{option}': {cause}"
            ))
        }
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
    fn a_sender_s_own_congestion_control_takes_precedence() {
        let asked = aimed("tcp", "congestion = 'reno'");
        assert!(format!("{asked:?}").contains("Some(\"reno\")"));
        let carrier = asked.instrument().profile().carrier;
        let Some(Carrier::Tcp { congestion, .. }) = carrier else {
            panic!("{carrier:?}");
        };
        assert_eq!(congestion.as_deref(), Some("reno"));
    }

    #[test]
    fn a_plan_contains_units_as_text_and_default_values() {
        let asked = asked("ping", "count = 3\ninterval = '20ms'");
        assert_eq!(
            asked.recorded().options(),
            "--count=3 --interval=20ms --size=56"
        );
    }

    #[test]
    fn an_unknown_option_is_named_with_the_known_ones() {
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
    fn invalid_values_are_refused_with_their_option_and_valid_ones() {
        for case in [
            "ping: count = 'x' => count: invalid value 'x' for '--count <",
            "tcp: reverse = true, bidir = true => bidir: it cannot be used with --reverse",
            "tcp: reverse = 'x' => reverse: a flag is true or false, not 'x'",
            "pingpong: timeout = '1s' => another option needs --udp",
            "ping: tool = 'pong' => tool: unknown name `pong`; did you mean `ping`?",
        ] {
            let (asked, right) = case.split_once(" => ").unwrap();
            let (name, options) = asked.split_once(": ").unwrap();
            let error = kind(name)
                .with(&parameters(&options.replace(", ", "\n")))
                .unwrap_err()
                .to_string();
            assert!(error.contains(right), "{case}: {error}");
            assert!(!error.contains("Usage"), "{error}");
        }
    }

    #[test]
    fn every_kind_without_options_round_trips_through_a_plan() {
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
