//! The lines of an older record, made into those of the present version.

use model::DropCause;
use serde_json::{Map, Value, json};

/// The oldest version that is read.
pub(crate) const OLDEST: u32 = 4;

/// The profiles of version 4's kinds of instruments without an option.
const PROFILES: &str = include_str!("upgrade_profiles.json");

/// Version 4 had an instrument's options as texts of a command line, and no profile; a later one's head is as today's.
/// What it lacks is left as it is, for reading it to name.
pub(crate) fn upgrade_head(head: &mut Value) {
    let profiles: Value = serde_json::from_str(PROFILES).unwrap_or_default();
    let cases = head.pointer_mut("/plan/cases");
    let cases = cases.and_then(Value::as_array_mut).into_iter().flatten();
    let instruments = cases.filter_map(|case| case.get_mut("instruments")?.as_array_mut());
    for instrument in instruments.flatten().filter_map(Value::as_object_mut) {
        if let Some(options) = instrument.remove("options") {
            let arguments = arguments(&options);
            let kind = instrument.get("kind").and_then(Value::as_str);
            let profile = kind.map(|kind| profile(kind, profiles[kind].clone(), &arguments));
            instrument.insert("profile".to_owned(), profile.unwrap_or_default());
            instrument.insert("arguments".to_owned(), arguments.into());
        }
    }
}

/// Versions 4 and 5 counted a link's two causes of drops as `lost` and `queue_full`.
pub(crate) fn upgrade_line(line: &mut Value) {
    let links = line.pointer_mut("/run/links");
    let links = links.and_then(Value::as_array_mut).into_iter().flatten();
    for link in links.filter_map(Value::as_object_mut) {
        for way in ["up", "down"] {
            let Some(way) = link.get_mut(way).and_then(Value::as_object_mut) else {
                continue;
            };
            let mut dropped = Map::new();
            for (old, cause) in [
                ("lost", DropCause::Loss),
                ("queue_full", DropCause::QueueFull),
            ] {
                let count = way.remove(old);
                dropped.extend(count.map(|count| (cause.name().to_owned(), count)));
            }
            way.insert("dropped".to_owned(), dropped.into());
        }
    }
}

fn arguments(options: &Value) -> Map<String, Value> {
    let options = options.as_array().into_iter().flatten();
    let texts = options.filter_map(|option| option.as_str()?.strip_prefix("--"));
    let argument = |text: &str| match text.split_once('=') {
        Some((name, value)) => (name.replace('-', "_"), json!(value)),
        None => (text.replace('-', "_"), json!(true)),
    };
    texts.map(argument).collect()
}

/// The profile of a kind, with what the options change of it.
fn profile(kind: &str, mut profile: Value, arguments: &Map<String, Value>) -> Value {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let number = |name: &str| text(name)?.parse::<u32>().ok();
    if arguments.contains_key("reverse") {
        profile["direction"] = json!("down");
        profile["calibration"]["figure"]["direction"] = json!("down");
    }
    if arguments.contains_key("udp") {
        profile["carrier"] = json!({ "udp": {} });
    }
    if let Some(tcp) = profile.pointer_mut("/carrier/tcp") {
        if let Some(streams) = number("parallel").or(number("connections")) {
            tcp["streams"] = json!(streams);
        }
        if let Some(congestion) = text("congestion") {
            tcp["congestion"] = json!(congestion);
        }
    }
    if let Some(length) = number("length").filter(|_| kind == "udp") {
        profile["carrier"]["udp"]["length"] = json!(length);
    }
    let calibration = &mut profile["calibration"];
    if text("omit").is_some_and(|omit| omit != "0") {
        calibration["omits_start"] = json!(true);
    }
    if let Some(runs) = number("runs").filter(|_| !calibration["runs"].is_null()) {
        calibration["runs"] = json!(runs);
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use crate::profile::{Carrier, InstrumentProfile};

    /// An instrument of version 4 as it is now.
    fn upgraded(kind: &str, options: &[&str]) -> (Value, InstrumentProfile) {
        let mut head = json!({ "plan": { "cases": [{ "instruments": [{ "kind": kind, "options": options }] }] } });
        upgrade_head(&mut head);
        let instrument = &mut head["plan"]["cases"][0]["instruments"][0];
        let profile = serde_json::from_value(instrument["profile"].take()).unwrap();
        (instrument["arguments"].take(), profile)
    }

    #[test]
    fn options_become_arguments() {
        let (arguments, _) = upgraded("http", &["--keep-alive", "--sizes=1kb,2kb"]);
        assert_eq!(arguments, json!({ "keep_alive": true, "sizes": "1kb,2kb" }));
    }

    #[test]
    fn every_kind_of_version_4_has_a_profile() {
        for kind in [
            "ping", "http", "capacity", "pingpong", "blast", "transfer", "tcp", "probe", "udp",
        ] {
            upgraded(kind, &[]);
        }
    }

    #[test]
    fn what_options_say_is_in_the_profile() {
        let options = ["--reverse", "--parallel=3", "--congestion=reno", "--omit=2"];
        let (_, tcp) = upgraded("tcp", &options);
        let carrier = Carrier::Tcp {
            streams: 3,
            congestion: Some("reno".to_owned()),
        };
        assert_eq!(
            (tcp.direction, tcp.carrier, tcp.calibration.omits_start),
            (Some(Direction::Down), Some(carrier), true)
        );
        let (_, udp) = upgraded("udp", &["--length=1200"]);
        let length = Some(1200);
        assert_eq!(udp.carrier, Some(Carrier::Udp { length }));
        let (_, echoed) = upgraded("pingpong", &["--udp", "--runs=2"]);
        assert_eq!(echoed.carrier, Some(Carrier::Udp { length: None }));
        let (_, blast) = upgraded("blast", &["--runs=2"]);
        assert_eq!(blast.calibration.runs, Some(2));
    }

    #[test]
    fn drops_are_by_cause() {
        let way = json!({ "packets": 9, "lost": 2, "queue_full": 3 });
        let mut line = json!({ "run": { "links": [{ "name": "link", "up": way }] } });
        upgrade_line(&mut line);
        let dropped = json!({ "packets": 9, "dropped": { "loss": 2, "queue_full": 3 } });
        assert_eq!(line["run"]["links"][0]["up"], dropped);
        let mut baseline = json!({ "baseline": {} });
        upgrade_line(&mut baseline);
        assert_eq!(baseline, json!({ "baseline": {} }));
    }
}
