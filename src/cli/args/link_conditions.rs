//! The conditions of a link on the command line of `exec`, `emulate`, `set` and `link`.

use std::ffi::OsStr;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use conditions::reach::{self, Host};
use conditions::{
    CONDITIONS, Condition, ConditionKind, ConditionSet, LinkSpec, LinkStart, PROFILES, RuleSpec,
    Rules, ToffeeSpec, warnings,
};
use model::{BitsPerSec, LinkConfig, Nanos};
use netio::{CpuUse, Waiter};
use record::summary::Summary;

use crate::emulate::engines;
use crate::named_files::{NamedFiles, NamedFilesArgs};
use crate::notes::{note, warn};
use crate::{toml_file, trace_files};

/// The heading of the conditions in help.
pub(crate) const CONDITIONS_HEADING: &str = "Conditions, in each direction";
/// The note below the conditions in help.
pub(crate) const ONE_DIRECTION: &str =
    "Each flag also exists as --up-... (from the command or IF_A) and --down-...: --up-rate 1mbit.";
/// The heading of the options that say where other conditions come from.
const SOURCES_HEADING: &str = "More conditions";

/// Threads wake up sooner than this wherever anything can be measured.
const LATEST_WAKE_UP: Nanos = Nanos::from_millis(1);

/// The conditions of a link. A flag overrides the file of `--link` or the profile of `--profile`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConditionsArgs {
    #[command(flatten)]
    conditions: ConditionFlags,
    /// TOFFEE-Mocha's conditions, both ways: delay=1ms,drop=2
    #[arg(
        long,
        value_name = "KEY=VALUE,...",
        help_heading = CONDITIONS_HEADING,
        hide_short_help = true
    )]
    toffee: Option<ToffeeSpec>,
    /// Other conditions for some packets: 'tcp port 443: loss=2%'
    #[arg(long = "rule", value_name = "FILTER: CONDITIONS", help_heading = CONDITIONS_HEADING)]
    rules: Vec<RuleSpec>,
    /// Use a kind of network that `farwire profiles` lists; flags override it
    #[arg(
        long,
        value_name = "NAME",
        value_parser = ProfileName,
        hide_possible_values = true,
        conflicts_with = "link",
        help_heading = SOURCES_HEADING
    )]
    profile: Option<String>,
    /// Use the conditions of a TOML file; flags override them
    #[arg(long, value_name = "FILE.toml", help_heading = SOURCES_HEADING)]
    link: Option<PathBuf>,
    #[command(flatten, next_help_heading = SOURCES_HEADING)]
    files: NamedFilesArgs,
    /// Seed of every random draw [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = SOURCES_HEADING, hide_short_help = true)]
    seed: Option<u64>,
    /// Begin schedules and traces: immediately, first-packet [default: immediately]
    #[arg(long, value_name = "WHEN", help_heading = SOURCES_HEADING, hide_short_help = true)]
    start: Option<LinkStart>,
}

/// Conditions that `-h` leaves out.
const LESS_USED: &[&str] = &[
    "ber",
    "corrupt",
    "handover",
    "outage",
    "path_mtu",
    "police",
    "pps",
    "rate_at",
    "fluctuation",
    "size_delay",
    "netem_at",
];

/// A flag for every condition in each direction, one for up and one for down.
#[derive(Clone, Debug, Default)]
struct ConditionFlags {
    both: ConditionSet,
    up: ConditionSet,
    down: ConditionSet,
}

const UP: &str = "up-";
const DOWN: &str = "down-";

impl ConditionsArgs {
    /// The conditions in effect: the file's or the profile's, overridden by the flags, checked.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong, or conditions that contradict each other.
    pub(crate) fn to_spec(&self) -> Result<LinkSpec> {
        let own = self.without_profile()?;
        let spec = match &self.profile {
            Some(profile) => {
                let folders = self.named_files().profiles;
                own.or(toml_file::read_profile(profile, &folders).context("--profile")?)
            }
            None => own,
        };
        spec.check().context("the link's conditions")?;
        Ok(spec)
    }

    /// The name of the profile.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// The conditions of the flags and the file, without those of the profile. They are not checked.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong.
    pub(crate) fn without_profile(&self) -> Result<LinkSpec> {
        let ConditionFlags { both, up, down } = self.conditions.clone();
        let mut flags = LinkSpec {
            both: both.into(),
            toffee: self.toffee.clone(),
            seed: self.seed,
            start: self.start,
            up: up.into(),
            down: down.into(),
            rules: self.rules.clone(),
            ..LinkSpec::default()
        };
        trace_files::read_all(&mut flags)?;
        let Some(file) = &self.link else {
            return Ok(flags);
        };
        let read = toml_file::read_link(file, &self.named_files())?;
        if read == LinkSpec::default() {
            warn(format_args!(
                "{}: the file states no conditions, so it changes nothing: write lines such as delay = \"20ms\"",
                file.display()
            ));
        }
        Ok(flags.or(read))
    }

    /// Returns true if a file, a profile or a TOFFEE box is given, each of which describes a whole link.
    pub(crate) fn has_whole_link(&self) -> bool {
        self.link.is_some() || self.profile.is_some() || self.toffee.is_some()
    }

    /// The files that a file may name outside its folder.
    pub(crate) fn named_files(&self) -> NamedFiles {
        self.files.files()
    }
}

/// Looks up the hosts that the rules of a link name, in the network of this process, and prints their addresses.
///
/// # Errors
/// A name that does not resolve. The message has the rule and the name.
pub(crate) fn resolve_hosts(spec: &mut LinkSpec) -> Result<()> {
    resolve_hosts_by(spec, by_resolver)
}

/// Looks up the hosts that the rules of a link name, first among containers, then in the network of this process. Prints their
/// addresses.
///
/// # Errors
/// A name that does not resolve, or of a container without addresses. The message has the rule and the name.
pub(crate) fn resolve_hosts_and_containers(spec: &mut LinkSpec) -> Result<()> {
    resolve_hosts_by(spec, |name| {
        engines::addresses_of(name).unwrap_or_else(|| by_resolver(name))
    })
}

/// Returns the addresses of a host, which the resolver of this machine knows.
fn by_resolver(name: &str) -> Result<Vec<IpAddr>, String> {
    let found = (name, 0)
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    Ok(found.map(|address| address.ip()).collect())
}

fn resolve_hosts_by(
    spec: &mut LinkSpec,
    lookup: impl FnMut(&str) -> Result<Vec<IpAddr>, String>,
) -> Result<()> {
    for host in spec.resolve(lookup)? {
        let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
        note(format_args!(
            "farwire: rule {}: {} is {}",
            host.rule,
            host.host,
            addresses.join(", ")
        ));
    }
    Ok(())
}

/// Warns of rules that matched no packet of a link. Returns whether there are any. `link` names the link if there are several.
pub(crate) fn warn_of_rules_without_hits(link: Option<&str>, summary: &Summary) -> bool {
    let rules = summary.rules_without_hits();
    let link = link.map(|name| format!("{name}: ")).unwrap_or_default();
    for rule in &rules {
        warn(format_args!(
            "{link}rule {rule} matched no packet: correct its filter, move it before the rules that match its packets, or remove it"
        ));
    }
    !rules.is_empty()
}

/// Warns of traces that a link could not follow to their end.
pub(crate) fn warn_of_unread_traces() {
    let failed = conditions::trace::failed_reads();
    if failed > 0 {
        warn(format_args!(
            "{failed} times, lines of a trace could not be read back from the temporary file that holds them: the link no longer followed the \
             trace from then on; see whether the folder of temporary files has an error, or use a shorter trace"
        ));
    }
}

/// Warns of rules that never apply because of an earlier one. `link` names the link if there are several.
pub(crate) fn warn_of_hidden_rules(link: Option<&str>, rules: &Rules) {
    let link = link.map(|name| format!("{name}: ")).unwrap_or_default();
    for line in warnings::of_rules(rules) {
        warn(format_args!("{link}{line}"));
    }
}

/// Reads the name of a profile. Completions know those that ship; other names are looked for when all arguments have been read.
#[derive(Clone, Debug)]
pub(crate) struct ProfileName;

impl TypedValueParser for ProfileName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = PROFILES
            .iter()
            .map(|shipped| PossibleValue::new(shipped.name));
        Some(Box::new(names))
    }
}

/// Prints notes about conditions.
pub(crate) fn note_all(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        note(format_args!("farwire: {line}"));
    }
}

/// Returns the side effects of the conditions of several links, with each link's name. An effect of several links is one line.
pub(crate) fn side_effects<'l>(
    links: impl IntoIterator<Item = (String, &'l LinkConfig)>,
) -> Vec<String> {
    let lines = links.into_iter().flat_map(|(name, link)| {
        let lines = warnings::of_link(link).into_iter();
        lines.map(move |line| (name.clone(), line))
    });
    once_each(lines, "links")
}

/// Puts the name in front of each line. A line that several names share comes once, with their number: "12 links (a, b, ...)".
pub(crate) fn once_each(
    lines: impl IntoIterator<Item = (String, String)>,
    things: &str,
) -> Vec<String> {
    let mut known: Vec<(String, Vec<String>)> = Vec::new();
    for (name, line) in lines {
        match known.iter_mut().find(|(known, _)| *known == line) {
            Some((_, names)) => names.push(name),
            None => known.push((line, vec![name])),
        }
    }
    let named = known.into_iter().map(|(line, names)| match &names[..] {
        [name] => format!("{name}: {line}"),
        names if names.len() <= MOST_NAMED => {
            format!("{} {things} ({}): {line}", names.len(), names.join(", "))
        }
        names => {
            let first = names[..MOST_NAMED].join(", ");
            format!("{} {things} ({first}, ...): {line}", names.len())
        }
    });
    named.collect()
}

/// The number of names that share a line and are listed in it.
const MOST_NAMED: usize = 3;

/// Returns which conditions this host, between interfaces of these speeds, cannot meet. Call it when the process has the privileges
/// that it will have, because it starts a thread.
pub(crate) fn beyond_host(
    link: &LinkConfig,
    speeds: impl IntoIterator<Item = BitsPerSec>,
) -> Vec<String> {
    let host = Host {
        wake_up: wake_up(reach::shortest_delay(link)),
        wire: speeds.into_iter().min_by_key(|speed| speed.get()),
    };
    reach::beyond(link, &host)
}

/// Returns how late a thread wakes up that is scheduled like the forwarder's, or 0 if every delay is much longer. It takes about
/// 10 ms.
pub(crate) fn wake_up(shortest_delay: Option<Nanos>) -> Nanos {
    if shortest_delay.is_none_or(|delay| delay > LATEST_WAKE_UP) {
        return Nanos::ZERO;
    }
    // The thread keeps its real-time schedule, so it must not be this one.
    let measured = std::thread::spawn(|| Waiter::measure(CpuUse::Spin, 1).wake_up_latency());
    measured.join().expect("measuring does not panic")
}

impl Args for ConditionFlags {
    fn augment_args(command: Command) -> Command {
        let both = CONDITIONS.iter().map(|one| {
            flag("", one)
                .help(one.summary)
                .help_heading(CONDITIONS_HEADING)
                .hide_short_help(LESS_USED.contains(&one.key))
        });
        // One sentence of the help describes these flags.
        let only = |prefix, direction| {
            let flag = move |one| {
                let help = format!("--{} {direction}", flag_name("", one));
                flag(prefix, one).help(help).hide(true)
            };
            CONDITIONS.iter().map(flag)
        };
        command
            .args(both)
            .args(only(UP, "from client to server (IF_A to IF_B)"))
            .args(only(DOWN, "from server to client (IF_B to IF_A)"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConditionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |prefix| {
            let one = |kind| {
                let flag = flag_name(prefix, kind);
                matches.get_one::<Condition>(&flag).cloned()
            };
            CONDITIONS.iter().filter_map(one).collect()
        };
        Ok(Self {
            both: given(""),
            up: given(UP),
            down: given(DOWN),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(prefix: &str, condition: &'static ConditionKind) -> Arg {
    let name = flag_name(prefix, condition);
    Arg::new(name.clone())
        .long(name)
        .value_name(condition.value_name)
        .value_parser(condition.read)
}

/// The name of a condition's flag, without hyphens in front: `path-mtu`, or `up-path-mtu` with a prefix.
pub(crate) fn flag_name(prefix: &str, condition: &ConditionKind) -> String {
    format!("{prefix}{}", condition.key.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use conditions::route::{FULL_FRAME, PathStages};
    use conditions::{DelaySpec, LossSpec};
    use model::StageSpec;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        link: ConditionsArgs,
    }

    fn parse(line: &str) -> Result<LinkSpec> {
        Program::try_parse_from(line.split_whitespace())?
            .link
            .to_spec()
    }

    #[test]
    fn what_is_in_force_is_one_line() {
        let line = |line: &str| crate::live::in_force(&parse(line).unwrap());
        assert_eq!(line("x"), "no conditions");
        assert_eq!(
            line("x --rate 10mbit --delay 20ms"),
            "delay 20ms, rate 10mbit in each direction"
        );
        assert_eq!(
            line("x --delay 20ms --up-loss 1% --down-rate 2mbit"),
            "delay 20ms in each direction, down rate 2mbit, up loss 1%"
        );
        assert_eq!(line("x --up-loss 1%"), "up loss 1%");
    }

    #[test]
    fn a_line_that_several_share_comes_once_with_their_number() {
        let lines = |names: &[&str]| {
            let lines = names
                .iter()
                .map(|name| ((*name).to_owned(), "late".to_owned()));
            once_each(lines, "cases")
        };
        assert_eq!(lines(&["a"]), ["a: late"]);
        assert_eq!(lines(&["a", "b"]), ["2 cases (a, b): late"]);
        assert_eq!(
            lines(&["a", "b", "c", "d"]),
            ["4 cases (a, b, c, ...): late"]
        );
    }

    #[test]
    fn flags_become_conditions() {
        let spec =
            parse("x --delay 20ms --loss 1% --rate 10mbit --down-rate 2mbit --seed 7").unwrap();
        let hop = spec.hop("box").unwrap();
        let slowest =
            |stages: &[StageSpec]| PathStages(stages.to_vec()).slowest(FULL_FRAME).unwrap().0;
        assert_eq!(slowest(&hop.rest.up), "10mbit".parse().unwrap());
        assert_eq!(slowest(&hop.rest.down), "2mbit".parse().unwrap());
        assert_eq!(spec.seed(), 7);
    }

    #[test]
    fn a_flag_overrides_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("slow.toml");
        std::fs::write(&file, "delay = '20ms'\nloss = '1%'\n").unwrap();
        let spec = parse(&format!("x --delay 5ms --link {}", file.display())).unwrap();
        assert_eq!(spec.both.get(), Some(&"5ms".parse::<DelaySpec>().unwrap()));
        assert_eq!(spec.both.get(), Some(&"1%".parse::<LossSpec>().unwrap()));
    }

    #[test]
    fn rules_of_the_command_line_replace_those_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("web.toml");
        std::fs::write(&file, "[[rules]]\nmatch = 'udp'\nloss = '1%'\n").unwrap();
        let parse = |rules: &[&str]| {
            let file = file.display().to_string();
            let rules = rules.iter().flat_map(|rule| ["--rule", rule]);
            let line = ["x", "--link", &file].into_iter().chain(rules);
            let read = Program::try_parse_from(line).map_err(anyhow::Error::from);
            read.and_then(|program| program.link.to_spec())
        };
        let names = |rules: &[&str]| {
            let rules = parse(rules).unwrap().rules.into_iter();
            rules.map(|one| one.rule.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["udp"]);
        let both = [
            "tcp port 443: loss=2%",
            "net 10.0.0.0/8: name=far delay=80ms",
        ];
        assert_eq!(names(&both), ["tcp-port-443", "far"]);
        let refused = |rule| format!("{:#}", parse(&[rule]).unwrap_err());
        assert!(refused("tcp or udp: loss=1%").contains("`or` is not supported"));
        assert!(refused("tcp: queue=5pkt").contains("a queue needs a rate"));
    }

    #[test]
    fn names_of_hosts_are_looked_up_or_refused_with_their_rule() {
        let resolved = |rule: &str| {
            let mut spec = LinkSpec {
                rules: vec![rule.parse().unwrap()],
                ..LinkSpec::default()
            };
            resolve_hosts(&mut spec).map(|()| spec)
        };
        let spec = resolved("host localhost: loss=1%").unwrap();
        let found = spec.addresses_of("localhost").unwrap();
        assert!(
            found.iter().all(|address| address.is_loopback()),
            "{found:?}"
        );
        // RFC 6761, section 6.4: names below `invalid` never resolve.
        let why = format!("{:#}", resolved("host no.invalid: loss=1%").unwrap_err());
        assert!(
            why.starts_with("rules: host-no-invalid: no.invalid: "),
            "{why}"
        );
    }

    #[test]
    fn a_flag_overrides_the_profile() {
        let profile: conditions::LinkProfile = "in-flight".parse().unwrap();
        assert_eq!(
            parse("x --profile in-flight").unwrap(),
            profile.conditions()
        );
        let spec = parse("x --rate 1mbit --profile in-flight --seed 7").unwrap();
        let hop = spec.hop("box").unwrap();
        let slowest = |stages: &[StageSpec]| {
            PathStages(stages.to_vec())
                .slowest(model::Bytes(1514))
                .unwrap()
                .0
        };
        assert_eq!(slowest(&hop.rest.up), "1mbit".parse().unwrap());
        assert_eq!(slowest(&hop.rest.down), "1mbit".parse().unwrap());
        assert_eq!(
            spec.both.get::<DelaySpec>(),
            profile.conditions().both.get()
        );
        assert_eq!(spec.seed(), 7);
    }

    #[test]
    fn a_profile_that_is_not_there_or_stands_beside_a_file_is_refused() {
        let refused = |line| format!("{:#}", parse(line).unwrap_err());
        let unknown = refused("x --profile mobil");
        assert_eq!(
            unknown,
            "--profile: unknown name `mobil`; did you mean `mobile`?"
        );
        let both = refused("x --profile mobile --link slow.toml");
        assert!(both.contains("cannot be used with '--link"), "{both}");
    }

    /// Returns all conditions but one: any text may be the name of a trace's file, and the file must be there.
    fn without_trace() -> impl Iterator<Item = &'static ConditionKind> {
        CONDITIONS.iter().filter(|one| one.key != "trace")
    }

    #[test]
    fn every_condition_has_flags_that_say_what_a_file_says() {
        for prefix in ["", "up", "down"] {
            let mut line = vec!["x".to_owned()];
            let mut file = match prefix {
                "" => String::new(),
                _ => format!("[{prefix}]\n"),
            };
            for ConditionKind { key, example, .. } in without_trace() {
                let flag = match prefix {
                    "" => key.replace('_', "-"),
                    _ => format!("{prefix}-{}", key.replace('_', "-")),
                };
                line.extend([format!("--{flag}"), (*example).to_owned()]);
                file += &format!("{key} = '{example}'\n");
            }
            let read: LinkSpec = toml::from_str(&file).unwrap();
            let spec = Program::try_parse_from(line).unwrap().link.to_spec();
            assert_eq!(spec.unwrap(), read);
        }
    }

    #[test]
    fn every_condition_with_a_wrong_value_is_refused_with_its_flag_and_the_correct_form() {
        for ConditionKind { key, .. } in without_trace() {
            for prefix in ["", UP, DOWN] {
                let flag = format!("--{prefix}{}", key.replace('_', "-"));
                let line = ["x", flag.as_str(), "%"];
                let error = Program::try_parse_from(line).map(drop).unwrap_err();
                let error = error.to_string();
                let is_right = ["write ", "as in ", "use one of: "];
                assert!(error.contains(&flag), "{error}");
                assert!(
                    is_right.iter().any(|right| error.contains(right)),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn contradictions_and_bad_units_are_refused() {
        assert!(format!("{:#}", parse("x --queue 10pkt").unwrap_err()).contains("needs a rate"));
        assert!(parse("x --delay 20").is_err());
        assert!(parse("x --loss 101%").is_err());
        assert!(parse("x --toffee drop=0").is_err());
        let refused = |line| format!("{:#}", parse(line).unwrap_err());
        assert!(refused("x --aqm codel").contains("aqm: AQM manages the queue of a rate"));
        assert!(refused("x --loss 1%,burst=0.5").contains("at least 1 packet"));
        assert!(refused("x --jitter 2").contains("unit"));
        assert!(refused("x --rate 0bit").contains("at 0bit nothing ever passes"));
    }
}
