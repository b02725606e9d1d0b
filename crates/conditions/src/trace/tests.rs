//! Links that follow traces, in virtual time.

use std::fmt::Write as _;

use model::{Bytes, Effect, Link, Nanos, Outcome, Packet, PacketId, Side};

use crate::{LONGEST_CONTENT, LinkSpec, TraceSpec, read};

fn spec(text: &str) -> LinkSpec {
    read::toml_text(text).unwrap()
}

fn refused(text: &str) -> String {
    let spec = read::toml_text::<LinkSpec>(text);
    let checked = spec.and_then(|spec| spec.check());
    checked.unwrap_err().to_string()
}

/// Returns a link file's line with a trace of this content.
fn following(content: &str, options: &str) -> String {
    format!("trace = {{ file = 'x', content = \"\"\"{content}\"\"\"{options} }}\n")
}

/// Returns the outcomes of packets in both directions, one of 600 bytes each 1.7 ms until `end`.
fn outcomes(spec: &LinkSpec, end: Nanos) -> Vec<Outcome> {
    let mut link = Link::new(&spec.to_link("link").unwrap().config).unwrap();
    let mut all = Vec::new();
    for id in 0..end.0 / 1_700_000 {
        let at = Nanos(id * 1_700_000);
        let side = [Side::A, Side::B][usize::from(id.is_multiple_of(3))];
        link.offer(at, side, Packet::new(PacketId(id), Bytes(600)));
        while let Some(outcome) = link.poll(at) {
            all.push(outcome);
        }
    }
    while let Some(outcome) = link.poll(end + Nanos::from_secs(1)) {
        all.push(outcome);
    }
    all
}

fn assert_same(one: &str, other: &str, end_ms: u64) {
    let end = Nanos::from_millis(end_ms);
    let [one, other] = [one, other].map(|text| outcomes(&spec(text), end));
    assert!(one.len() as u64 > end_ms / 2, "{}", one.len());
    assert_eq!(one, other);
}

const TABLE: &str = "t,rate,delay,jitter,loss\n0s,3mbit,20ms,0ms,0%\n0.1s,1mbit,,4ms,30%\n0.25s,0bit,35ms,,\n0.3s,9mbit,5ms,0ms,0%\n0.4s,,,,\n";
/// The same as a schedule.
const SCHEDULE: &str = "rate = '3mbit'\ndelay = '20ms'\nschedule = [\
    { at = '100ms', rate = '1mbit', jitter = '4ms', loss = '30%' },\
    { at = '250ms', rate = '0bit', delay = '35ms' },\
    { at = '300ms', rate = '9mbit', delay = '5ms', without = ['jitter', 'loss'] }";

#[test]
fn a_table_has_the_same_outcomes_as_a_schedule() {
    let held = format!("{SCHEDULE}]");
    assert_same(&following(TABLE, ", end = 'hold'"), &held, 900);
    let again = ", { at = '400ms', rate = '3mbit', delay = '20ms' }, \
                 { at = '500ms', rate = '1mbit', jitter = '4ms', loss = '30%' }, \
                 { at = '650ms', rate = '0bit', delay = '35ms' }, \
                 { at = '700ms', rate = '9mbit', delay = '5ms', without = ['jitter', 'loss'] }]";
    assert_same(&following(TABLE, ""), &format!("{SCHEDULE}{again}"), 790);
    let cleared = ", { at = '400ms', without = ['rate', 'delay'] }]";
    assert_same(
        &following(TABLE, ", end = 'clear'"),
        &format!("{SCHEDULE}{cleared}"),
        900,
    );
}

#[test]
fn other_conditions_and_their_schedule_apply_beside_a_trace() {
    let beside = "queue = '5pkt'\naqm = 'codel'\nrate_at = 'l1'\nduplicate = '10%'\n";
    let changed = "{ at = '150ms', queue = '2pkt' }";
    let traced = format!(
        "{}{beside}schedule = [{changed}]\n",
        following(TABLE, ", end = 'hold'")
    );
    let (before, after) = SCHEDULE.split_once("{ at = '250ms'").unwrap();
    let scheduled = format!("{beside}{before}{changed}, {{ at = '250ms'{after}]");
    assert_same(&traced, &scheduled, 900);
}

#[test]
fn a_more_specific_condition_overrides_a_column_of_a_trace() {
    let table = "t,delay,loss\n0s,20ms,100%\n1s,30ms,50%\n";
    let rules = "[[rules]]\nname = 'voice'\nprotocol = 'udp'\nloss = '0%'\n";
    let of = |text: &str| spec(text).hop("box").unwrap();
    let hop = of(&format!(
        "{}[up]\ndelay = '5ms'\n{rules}",
        following(table, "")
    ));
    let find = |stages: &[model::StageSpec], end: &str| {
        let found = stages.iter().find(|stage| stage.name.ends_with(end));
        found.map(|stage| (stage.effect.clone(), stage.schedule.is_empty()))
    };
    let (delay, is_constant) = find(&hop.rest.up, "up.delay").unwrap();
    assert!(is_constant);
    assert_eq!(delay.behaviour().propagation, Nanos::from_millis(5));
    let (delay, is_constant) = find(&hop.rest.down, "down.delay").unwrap();
    assert!(!is_constant);
    assert_eq!(delay.behaviour().propagation, Nanos::from_millis(20));
    let (loss, is_constant) = find(&hop.rest.up, "up.loss").unwrap();
    assert!(!is_constant && matches!(loss, Effect::Loss(_)));
    let voice = &hop.rules[0].1;
    assert_eq!(find(&voice.up, ".loss"), None);
    assert!(find(&voice.down, "down.delay").is_some());
    // Nothing overrides a trace beside it.
    let beside = of(&format!("{}delay = '5ms'\n", following(table, "")));
    let (delay, _) = find(&beside.rest.up, "up.delay").unwrap();
    assert_eq!(delay.behaviour().propagation, Nanos::from_millis(20));
}

#[test]
fn opportunities_have_the_same_outcomes_as_a_stage_of_kind_trace() {
    let times = [1, 1, 4, 9, 9, 30];
    let mahimahi = times.map(|time| time.to_string()).join("\n");
    let stage = format!("stages = [{{ kind = 'trace', times = {times:?}, queue = '7pkt' }}]\n");
    let traced = format!("{}queue = '7pkt'\n", following(&mahimahi, ""));
    assert_same(&traced, &stage, 500);
    // After its end nothing limits the link.
    let cleared = format!(
        "{}queue = '7pkt'\n",
        following(&mahimahi, ", end = 'clear'")
    );
    let all = outcomes(&spec(&cleared), Nanos::from_millis(500));
    let is_immediate = |outcome: &&Outcome| match outcome {
        Outcome::Deliver { id, due, .. } => due.0 == id.0 * 1_700_000,
        _ => false,
    };
    assert!(all.iter().filter(is_immediate).count() > 250);
}

#[test]
fn a_trace_replaces_the_rates_of_a_profile_in_each_direction() {
    let profile = spec("[up]\nrate = '1mbit'\nloss = '1%'\n[down]\nrate = '2mbit'\n");
    let table = spec(&following("t,rate\n0s,5mbit\n1s,6mbit\n", ""));
    let both = table.or(profile);
    assert!(both.down.is_empty() && !both.up.is_empty());
    let hop = both.hop("box").unwrap();
    let rate = |stages: &[model::StageSpec]| match &stages[0].effect {
        Effect::Rate(rate) => rate.rate.unwrap().get(),
        _ => 0,
    };
    assert_eq!([rate(&hop.rest.up), rate(&hop.rest.down)], [5_000_000; 2]);
}

#[test]
fn a_trace_survives_being_written_and_a_long_one_is_kept_by_its_digest() {
    let short = spec(&following(TABLE, ", end = 'hold'"));
    let written = serde_json::to_value(&short).unwrap();
    assert_eq!(written["trace"]["end"], "hold");
    assert!(
        written["trace"]["content"]
            .as_str()
            .unwrap()
            .starts_with("t,rate")
    );
    assert_eq!(read::json::<LinkSpec>(written).unwrap(), short);
    let mut long = String::from("t,rate\n");
    for second in 0..LONGEST_CONTENT / 8 {
        writeln!(long, "{second}s,{}kbit", second + 1).unwrap();
    }
    let mut trace = TraceSpec::named("long.csv");
    trace.read(long.as_bytes()).unwrap();
    let mut both = LinkSpec::default();
    both.both.at_first.set(trace);
    assert!(!both.traces().next().unwrap().is_short());
    let written = serde_json::to_value(&both).unwrap();
    assert_eq!(written["trace"]["kept"].as_str().unwrap().len(), 32);
    assert_eq!(read::json::<LinkSpec>(written.clone()).unwrap(), both);
    let mut elsewhere = written;
    elsewhere["trace"]["kept"] = "0".repeat(32).into();
    let elsewhere: LinkSpec = read::json(elsewhere).unwrap();
    let error = elsewhere.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "trace: its content is too long to be part of a record: read long.csv again"
    );
    assert_eq!(
        serde_json::to_value(&elsewhere).unwrap()["trace"]["kept"],
        "0".repeat(32)
    );
}

#[test]
fn a_pair_of_opportunities_and_delays_repeats_each_after_its_own_length() {
    let mut trace = TraceSpec::named("bw.txt");
    trace.delays = Some("delay.txt".to_owned());
    trace.read(&b"1\n2\n3\n4\n"[..]).unwrap();
    trace.read_delays(&b"20\n20\n40\n"[..]).unwrap();
    let mut both = LinkSpec::default();
    both.both.at_first.set(trace);
    let stage = "stages = [{ kind = 'trace', times = [1, 2, 3, 4] }]\ndelay = '20ms'\n\
                 schedule = [{ at = '20ms', delay = '40ms' }, { at = '30ms', delay = '20ms' }, { at = '50ms', delay = '40ms' }]";
    let end = Nanos::from_millis(55);
    assert_eq!(outcomes(&both, end), outcomes(&spec(stage), end));
    let written = serde_json::to_value(&both).unwrap();
    assert_eq!(written["trace"]["content"], "1\n2\n3\n4\n");
    assert_eq!(read::json::<LinkSpec>(written).unwrap(), both);
}

#[test]
fn a_trace_that_cannot_be_followed_is_refused_with_its_key() {
    for (text, words) in [
        (
            "trace = 'drive.csv'".to_owned(),
            "trace: drive.csv was not read, because only the command line and files",
        ),
        (
            following("0\n5\n", ", end = 'hold'"),
            "trace: end: hold: a trace of times at which packets are served has no last",
        ),
        (
            format!("{}queue = '50ms'\n", following("0\n5\n", "")),
            "queue: 50ms is out of range: a trace has no rate",
        ),
        (
            following("0\n0\n", ""),
            "trace: content: line 2: all times are 0",
        ),
        (
            "queue = '5pkt'\ntrace = { file = 'x', content = \"t,loss\\n0s,1%\\n1s,\\n\" }"
                .to_owned(),
            "queue: ",
        ),
        (
            "trace = { file = 'x', end = 'never' }".to_owned(),
            "trace: end: unknown name `never`",
        ),
    ] {
        let error = refused(&text);
        assert!(error.starts_with(words), "{text}: {error}");
    }
}
