//! An instrument as a scenario file asks for it: the same options by their long names, and a far end that the test bed has.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use clap::builder::ArgAction;
use clap::{Arg, Command, FromArgMatches as _, Subcommand as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use toml::Value;

use super::{Asked, FarTool};
use crate::external::Tool;
use record::Kind;

/// What a scenario cannot set: it has its own way to each.
const NOT_IN_SCENARIOS: [&str; 8] = [
    "host", "url", "json", "quiet", "csv", "help", "bind", "ipv6",
];
/// Options of TCP senders, which have the case's congestion control unless they say otherwise.
const CONGESTION: &str = "--congestion";

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

/// Where the client reaches `farwire serve`.
#[derive(Clone, Debug)]
pub struct FarEnd {
    pub address: IpAddr,
    /// Of its web server.
    pub http: u16,
}

impl Parameters {
    /// Takes over what `other` sets.
    pub fn set(&mut self, other: &Self) {
        self.0.extend(
            other
                .0
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }

    /// Those that `left_out` does not name.
    pub fn without(&self, left_out: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(key, _)| !left_out(key));
        Self(
            kept.map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        )
    }

    /// As a command line has them.
    ///
    /// # Errors
    /// A value that none can have.
    pub fn options(&self) -> Result<Vec<String>> {
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

fn text(key: &str, value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Array(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|one| text(key, one))
                .collect::<Result<_>>()?;
            all.join(",")
        }
        _ => bail!("{key}: must be a text, a number, true, false or a list"),
    })
}

/// What an instrument of a kind takes.
pub trait KindOptions: Copy {
    /// Refuses options that an instrument of this kind has not, or values that they cannot have.
    ///
    /// # Errors
    /// One that names the option.
    fn check(self, options: &[String]) -> Result<()>;

    /// How long an instrument with these options should take, where they say so.
    fn expected(self, options: &[String]) -> Option<Duration>;

    /// The external tools that an instrument with these options needs, at both ends.
    ///
    /// # Errors
    /// One is not on this machine.
    fn tools(self, options: &[String]) -> Result<Vec<Tool>>;

    /// The instrument with these options toward `far_end`; TCP senders have `congestion` unless they say otherwise.
    ///
    /// # Errors
    /// As [`Kind::check`].
    fn ask(self, options: &[String], far_end: &FarEnd, congestion: &str) -> Result<Asked>;

    /// Every option that a scenario may set: name, value name, help.
    fn options(self) -> Vec<OptionText>;
}

impl KindOptions for Kind {
    fn check(self, options: &[String]) -> Result<()> {
        parse(self, options, &FarEnd::example()).map(drop)
    }

    fn expected(self, options: &[String]) -> Option<Duration> {
        let asked = parse(self, options, &FarEnd::example()).ok()?;
        asked.instrument().expected()
    }

    fn tools(self, options: &[String]) -> Result<Vec<Tool>> {
        let asked = parse(self, options, &FarEnd::example())?;
        let instrument = asked.instrument();
        let server: Option<FarTool> = instrument.server()?;
        let tools = [instrument.tool()?, server.map(|server| server.tool)];
        Ok(tools.into_iter().flatten().collect())
    }

    fn ask(self, options: &[String], far_end: &FarEnd, congestion: &str) -> Result<Asked> {
        let mut options = options.to_vec();
        let says = options.iter().any(|option| option.starts_with(CONGESTION));
        if takes_congestion(self, &options) && !says {
            options.push(format!("{CONGESTION}={congestion}"));
        }
        parse(self, &options, far_end)
    }

    fn options(self) -> Vec<OptionText> {
        let command = command(self);
        let arguments = command.get_arguments().filter_map(OptionText::of);
        arguments.collect()
    }
}

/// Whether its sockets send TCP and have their congestion control chosen; nuttcp has no option for it.
fn takes_congestion(kind: Kind, options: &[String]) -> bool {
    kind == Kind::Tcp && !options.iter().any(|option| option == "--tool=nuttcp")
}

fn command(kind: Kind) -> Command {
    let all = Asked::augment_subcommands(Command::new("farwire"));
    all.find_subcommand(kind.name())
        .cloned()
        .unwrap_or_else(|| unreachable!("every kind is a subcommand"))
}

fn parse(kind: Kind, options: &[String], far_end: &FarEnd) -> Result<Asked> {
    let known = KindOptions::options(kind);
    for option in options {
        let name = option
            .trim_start_matches('-')
            .split('=')
            .next()
            .unwrap_or("");
        ensure!(
            known.iter().any(|known| known.name == name),
            "{name}: no option of {}; it has {}",
            kind.name(),
            known
                .iter()
                .map(|known| known.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let mut line: Vec<OsString> = vec!["farwire".into(), kind.name().into()];
    line.extend(options.iter().map(OsString::from));
    line.push(far_end.target(kind).into());
    let all = Asked::augment_subcommands(Command::new("farwire")).subcommand_required(true);
    let matches = all
        .try_get_matches_from(line)
        .map_err(|error| plain(&error))?;
    Asked::from_arg_matches(&matches).map_err(|error| plain(&error))
}

/// An option, for whoever writes a scenario.
#[derive(Clone, Debug)]
pub struct OptionText {
    /// Its long name.
    pub name: String,
    pub help: String,
    /// Whether it has no value.
    pub flag: bool,
}

impl OptionText {
    fn of(argument: &Arg) -> Option<Self> {
        let name = argument.get_long()?.to_owned();
        let settable = !NOT_IN_SCENARIOS.contains(&name.as_str());
        settable.then(|| Self {
            name,
            help: argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default(),
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

    /// As an instrument of this kind takes it.
    fn target(&self, kind: Kind) -> String {
        match (kind, self.address) {
            (Kind::Http, address) => {
                format!("http://{}/", std::net::SocketAddr::new(address, self.http))
            }
            (_, address) => address.to_string(),
        }
    }
}

/// What clap says, without usage and advice.
fn plain(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let text = lines.join(" ");
    anyhow!("{}", text.strip_prefix("error: ").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::IntoEnumIterator as _;

    fn parameters(text: &str) -> Parameters {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn parameters_are_the_options_of_the_command_line() {
        let given = parameters("parallel = 3\ntime = '2s'\nreverse = true\nbidir = false");
        let options = given.options().unwrap();
        assert_eq!(options, ["--parallel=3", "--reverse", "--time=2s"]);
        let asked = Kind::Tcp
            .ask(&options, &FarEnd::example(), "cubic")
            .unwrap();
        let text = format!("{asked:?}");
        for part in [
            "parallel: 3",
            "reverse: true",
            "Some(\"cubic\")",
            "192.0.2.1",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(asked.instrument().expected(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn an_option_that_is_not_there_is_named_with_those_that_are() {
        let error = Kind::Ping
            .check(&["--parallel=3".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("parallel: no option of ping; it has size, count"),
            "{error}"
        );
        let error = Kind::Ping
            .check(&["--count=x".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'x'") && error.contains("--count"),
            "{error}"
        );
        assert!(Kind::Tcp.check(&["--json=x".to_owned()]).is_err());
    }

    #[test]
    fn every_kind_takes_a_target_and_no_option() {
        for kind in Kind::iter() {
            kind.check(&[])
                .unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
        }
    }
}
