//! Links that follow traces, in virtual time.

use std::fmt::Write as _;

use model::{Bytes, Effect, Link, Nanos, Outcome, Packet, PacketId, Side};

use crate::trace::read_offsets;
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
fn every_trace_follows_the_clock_of_the_schedules() {
    for (text, length_ms) in [
        (following("t,delay\n0s,5ms\n2s,\n", ""), 2_000),
        (following("10\n3000\n", ""), 3_000),
        (
            "stages = [{ kind = 'trace', times = [5, 4000] }]".to_owned(),
            4_000,
        ),
    ] {
        let link = spec(&text);
        assert!(link.follows_clock() && link.has_own_times(), "{text}");
        let last = Some(Nanos::from_millis(length_ms));
        assert_eq!(link.last_step(), last, "{text}");
    }
    let mut loads = LinkSpec::default();
    loads.both.at_first.set(two_loads());
    assert_eq!(loads.last_step(), Some(Nanos::from_millis(200)));
    assert!(!spec("delay = '5ms'").follows_clock());
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

/// Returns a trace of CellReplay: a light and a full load, with offsets by size.
fn two_loads() -> TraceSpec {
    let mut trace = TraceSpec::named("up-heavy-pdo");
    trace.light = Some("up-delay-light-pdo".to_owned());
    trace.offsets = Some("latency-offset-up".to_owned());
    trace.read(&b"10\n20\n30\n"[..]).unwrap();
    let offsets = read_offsets(&b"100 1\n200 0.5\n"[..]).unwrap();
    let light = &b"0 20 0 5\n100 40 0\n200 30 0\n"[..];
    trace.read_light(light, offsets).unwrap();
    trace
}

/// Returns when three packets that come at 0 and one that comes at 60 ms leave, in microseconds.
fn burst_and_single(spec: &LinkSpec) -> Vec<u64> {
    let mut link = Link::new(&spec.to_link("link").unwrap().config).unwrap();
    for (id, (ms, len)) in (0..).zip([(0, 1_400), (0, 1_400), (0, 1_400), (60, 200)]) {
        let packet = Packet::new(PacketId(id), Bytes(len));
        link.offer(Nanos::from_millis(ms), Side::A, packet);
    }
    let outcomes = std::iter::from_fn(|| link.poll(Nanos::MAX));
    let due = |outcome| match outcome {
        Outcome::Deliver { due, .. } => due.0 / 1_000,
        other => panic!("{other:?}"),
    };
    outcomes.map(due).collect()
}

#[test]
fn a_burst_meets_the_light_load_of_cellreplay_and_then_the_full_one() {
    let mut both = LinkSpec::default();
    both.both.at_first.set(two_loads());
    // The first two packets have the opportunities of the light load, after 20 ms and half a millisecond for their size.
    // The third one leaves it with the second one and is served at 30 ms. At 60 ms the delay is 32 ms.
    let right = [20_500, 25_500, 30_000, 92_500];
    assert_eq!(burst_and_single(&both), right);
    // The full load alone serves the same packets earlier, because it knows no delay.
    let alone = spec(&following("10\n20\n30\n", ""));
    assert_eq!(burst_and_single(&alone)[..2], [10_000, 20_000]);
    let written = serde_json::to_value(&both).unwrap();
    assert_eq!(written["trace"]["content"], "10\n20\n30\n");
    assert_eq!(
        written["trace"]["light_content"],
        "0 20 0 5\n100 40 0\n200 30 0\n"
    );
    assert_eq!(written["trace"]["offsets_content"], "100 1\n200 0.5\n");
    let read = read::json::<LinkSpec>(written).unwrap();
    assert_eq!(read, both);
    assert_eq!(burst_and_single(&read), right);
    let text = "up-heavy-pdo,light=up-delay-light-pdo,offsets=latency-offset-up";
    let named = read::text::<TraceSpec>(text).unwrap();
    assert_eq!(named.to_string(), text);
    assert_eq!(named.light, both.traces().next().unwrap().light);
}

#[test]
fn the_full_load_beside_a_light_one_may_be_stated_as_rates() {
    let light = &b"0 20 0 5\n100 40 0\n200 30 0\n"[..];
    let with_light = |text: &str| {
        let mut trace = TraceSpec::named("full.csv");
        trace.light = Some("light.pdo".to_owned());
        trace.read(text.as_bytes()).unwrap();
        trace.read_light(light, Vec::new()).map(|()| trace)
    };
    // This rate serves 1,400 bytes in 10 ms.
    let mut both = LinkSpec::default();
    let text = "t,rate\n0ms,1120kbit\n20ms,560kbit\n40ms,\n";
    both.both.at_first.set(with_light(text).unwrap());
    assert_eq!(burst_and_single(&both)[..3], [20_000, 25_000, 40_000]);
    let written = serde_json::to_value(&both).unwrap();
    let again = written["trace"]["content"].as_str().unwrap();
    assert!(again.starts_with("t,rate\n"), "{again}");
    let read = read::json::<LinkSpec>(written).unwrap();
    assert_eq!(read, both);
    assert_eq!(burst_and_single(&read), burst_and_single(&both));
    for (text, words) in [
        ("t,delay\n0ms,5ms\n40ms,\n", "a light load is beside times"),
        (
            "t,rate,delay\n0ms,1mbit,5ms\n40ms,,\n",
            "a light load is beside times",
        ),
    ] {
        let refused = with_light(text).unwrap_err().to_string();
        assert!(refused.starts_with(words), "{text}: {refused}");
    }
}

/// The delays of a light load are the middle of the jitter beside them: it may make a packet faster, too.
#[test]
fn jitter_beside_a_light_load_goes_to_both_sides() {
    let mut trace = TraceSpec::named("full");
    trace.light = Some("light".to_owned());
    trace.read(&b"1\n2\n3\n"[..]).unwrap();
    trace
        .read_light(&b"0 20 0\n100 30 0\n200 20 0\n"[..], Vec::new())
        .unwrap();
    let mut both = spec("jitter = '10ms'");
    both.both.at_first.set(trace);
    let mut link = Link::new(&both.to_link("link").unwrap().config).unwrap();
    let delays = (0..1_000).map(|number| {
        let sent = Nanos::from_millis(200 * number);
        link.offer(sent, Side::A, Packet::new(PacketId(number), Bytes(98)));
        match link.poll(Nanos::MAX) {
            Some(Outcome::Deliver { due, .. }) => (due - sent).0 as f64 / 1e6,
            other => panic!("{other:?}"),
        }
    });
    let delays: Vec<f64> = delays.collect();
    let mean = delays.iter().sum::<f64>() / 1e3;
    assert!((mean - 20.0).abs() < 0.6, "{mean}");
    let least = delays.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((10.0..11.0).contains(&least), "{least}");
}

/// Returns the same link in two forms: as one trace of it when it was saturated, with its least delay, as Mahimahi is used,
/// and as traces of both loads. They are those of docs/traces.md.
fn one_trace_and_two() -> [LinkSpec; 2] {
    let saturated = "1\n2\n3\n4\n6\n7\n8\n9\n10\n";
    let one = format!("{}delay = '20ms'\n", following(saturated, ""));
    let mut trace = TraceSpec::named("heavy-pdo");
    trace.light = Some("delay-light-pdo".to_owned());
    trace.read(saturated.as_bytes()).unwrap();
    let light = &b"0 20 0 1 2 4\n500 26 0 2 3\n1000 22 0 1 1\n1500 20 0\n"[..];
    trace.read_light(light, Vec::new()).unwrap();
    let mut two = LinkSpec::default();
    two.both.at_first.set(trace);
    [spec(&one), two]
}

/// Returns the mean round trip in ms of 300 pings that meet no other packet.
fn mean_round_trip_ms(spec: &LinkSpec) -> f64 {
    const PINGS: u64 = 300;
    let mut link = Link::new(&spec.to_link("link").unwrap().config).unwrap();
    let mut due = |at, side, id| {
        link.offer(at, side, Packet::new(PacketId(id), Bytes(98)));
        match link.poll(Nanos::MAX) {
            Some(Outcome::Deliver { due, .. }) => due,
            other => panic!("{other:?}"),
        }
    };
    let round_trip = |ping: u64| {
        let sent = Nanos::from_micros(100_700 * ping);
        let there = due(sent, Side::A, 2 * ping);
        let back = due(there, Side::B, 2 * ping + 1);
        (back - sent).0 as f64 / 1e6
    };
    (0..PINGS).map(round_trip).sum::<f64>() / PINGS as f64
}

/// Returns the packets of 1,400 bytes that a link delivers within a second while twice as many are offered, four at a time. With
/// CellReplay, packets that come one by one would each begin a train of the light load, and meet no limit.
fn delivered_when_saturated(spec: &LinkSpec) -> u64 {
    let mut link = Link::new(&spec.to_link("link").unwrap().config).unwrap();
    let mut count = 0;
    for id in 0..4_000 {
        let at = Nanos::from_micros(2_000 * (id / 4));
        link.offer(at, Side::A, Packet::new(PacketId(id), Bytes(1_400)));
        while let Some(outcome) = link.poll(at) {
            let Outcome::Deliver { due, .. } = outcome else {
                continue;
            };
            let within = Nanos::from_millis(500)..Nanos::from_millis(1_500);
            count += u64::from(within.contains(&due));
        }
    }
    count
}

/// The result of CellReplay: a trace of a saturated link is right for a load that saturates it, and too fast for a light
/// one.
#[test]
fn one_trace_of_a_saturated_link_is_too_fast_for_a_light_load() {
    let links = one_trace_and_two();
    let [one, two] = links.each_ref().map(mean_round_trip_ms);
    // Pings meet the least delay twice, wait 0.55 ms for an opportunity on average, and on the way back find one.
    assert!((one - 40.55).abs() < 0.1, "{one}");
    // The delay of the light load is 22.67 ms on average over its period.
    assert!((two - 45.33).abs() < 0.1, "{two}");
    // Both have 900 opportunities in a second. One of Mahimahi has 1,504 bytes, and one of CellReplay 1,400.
    let [one, two] = links.each_ref().map(delivered_when_saturated);
    assert!(one.abs_diff(900 * 1_504 / 1_400) <= 2, "{one}");
    assert!(two.abs_diff(900) <= 2, "{two}");
}

#[test]
fn the_delay_of_a_direction_replaces_those_of_a_light_load_which_replace_that_of_both() {
    let mut both = LinkSpec::default();
    both.both.at_first.set(two_loads());
    for profile in ["delay = '9ms'", "[up]\ndelay = '9ms'"] {
        let over_a_profile = both.clone().or(spec(profile));
        assert_eq!(burst_and_single(&over_a_profile)[0], 20_500);
    }
    both.up = spec("[up]\ndelay = '9ms'").up;
    assert_eq!(burst_and_single(&both)[0], 9_500);
    let mut leo = TraceSpec::named("x");
    leo.read(&b"10\n20\n"[..]).unwrap();
    leo.read_delays(&b"20\n30\n"[..]).unwrap();
    let light = &b"0 20 0\n5 20 0\n9 20 0\n"[..];
    let refused = leo.read_light(light, Vec::new()).unwrap_err().to_string();
    assert!(
        refused.starts_with("the trace has its delays in"),
        "{refused}"
    );
}

#[test]
fn a_trace_that_cannot_be_followed_is_refused_with_its_key() {
    for (text, words) in [
        (
            following("0\n5\n", ", light = 'y'"),
            "trace: light: y was not read, because",
        ),
        (
            following("0\n5\n", ", offsets = 'y'"),
            "trace: offsets: they belong to a light load",
        ),
        (
            following("0\n5\n", ", light_content = '0 5 0'"),
            "trace: light_content: its file has no name",
        ),
        (
            following("0\n5\n", ", light = 'y', light_content = '0 5 0'"),
            "trace: light_content: a light load has at least three lines",
        ),
        (
            following("0\n5\n", ", light = 'y', offsets_content = '100 1'"),
            "trace: offsets_content: the offsets belong to a light load",
        ),
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
