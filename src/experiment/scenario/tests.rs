mod mistakes;
mod wrong_values;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::profile_folders::ProfileFolders;
use conditions::{DelaySpec, LinkProfile, LossSpec, RateSpec};
use instruments::measure::{InstrumentArgs, read_plan, record_plan};
use record::Record;
use record::bed::Bed;
use record::expectation::{Criterion, Judgement, Met, TrendWay};
use record::figure_name::FigureName;
use record::plan::{Plan as RecordedPlan, PlannedInstrument as RecordedInstrument};
use record::plan::{Published, Repeats};
use report::analysis::record_comparison::Comparison;
use stats::deciding::Centre;

const HEAD: &str = "\
name = 'x'
title = 'X'
[bed]
kind = 'netns'
[tcp]
congestion = 'cubic'
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { size = 1200, count = 100 }
quick = { count = 5 }
[[instruments]]
name = 'download'
kind = 'http'
parameters = { bytes = '500MiB' }
quick = { bytes = false, duration = '10s' }
";

pub(super) fn parse(file: &str, text: &str, quick: bool) -> Result<Plan> {
    let source = SourceFile {
        file,
        text,
        also: NamedFiles::OWN,
    };
    super::parse(source, quick)
}

fn plan(cases: &str, quick: bool) -> Plan {
    parse("x.toml", &format!("{HEAD}{cases}"), quick).unwrap()
}

fn refusal(cases: &str) -> String {
    refusal_of(&format!("{HEAD}[[cases]]\n{cases}"))
}

pub(super) fn refusal_of(text: &str) -> String {
    format!("{:#}", parse("x.toml", text, false).unwrap_err())
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.cases.iter().map(|case| case.name.as_str()).collect()
}

fn options(case: &Case, name: &str) -> Vec<String> {
    let options = case.instrument(name).unwrap().args.recorded().options();
    options.split(' ').map(str::to_owned).collect()
}

#[test]
fn quick_shortens_instruments_and_repeats_and_nothing_else() {
    let cases =
        "[[cases]]\nname = 'a'\nrepeats = 9\nlink = { delay = '1ms' }\n[quick]\nrepeats = 2\n";
    let (full, quick) = (plan(cases, false), plan(cases, true));
    assert_eq!(
        options(&full.cases[0], "download"),
        ["--bytes=500MiB", "--seed=1"]
    );
    assert_eq!(
        options(&quick.cases[0], "download"),
        ["--duration=10s", "--seed=1"]
    );
    assert_eq!(
        options(&quick.cases[0], "ping"),
        ["--count=5", "--interval=1s", "--size=1200"]
    );
    assert_eq!(quick.cases[0].repeats, Repeats::fixed(2));
    assert_eq!(quick.cases[0].link, full.cases[0].link);
    // The case takes a hundred pings one second apart, 500 MiB at the speed of the machine, and the
    // test bed.
    let time = crate::experiment::run_times::estimate(&full.cases[0]).as_secs_f64();
    assert!((100.0..101.0).contains(&time), "{time}");
}

#[test]
fn every_round_has_every_case_once_in_an_order_that_the_seed_draws() {
    let cases =
        "[[cases]]\nname = 'a'\nrepeats = 3\n[[cases]]\nname = 'b'\n[[cases]]\nname = 'c'\n";
    let plan = plan(cases, false);
    let round = |repeat| {
        let runs = plan.round(repeat);
        runs.iter()
            .map(|run| (run.case.name.clone(), run.seed))
            .collect::<Vec<_>>()
    };
    assert_eq!(round(3), round(3));
    let mut sorted = round(3);
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"].map(|name| (name.to_owned(), 3)));
    let orders: Vec<_> = (1..=20).map(round).collect();
    let firsts: std::collections::BTreeSet<&str> =
        orders.iter().map(|order| order[0].0.as_str()).collect();
    assert_eq!(firsts.len(), 3);
    assert_eq!(plan.rounds(), 3);
}

#[test]
fn a_case_inherits_from_its_bases_unless_it_sets_a_value() {
    let plan = plan(
        "\
[bases.slow]
link = { delay = '20ms', loss = '1%' }
repeats = 5
[bases.slower]
base = 'slow'
link = { delay = '40ms' }
[[cases]]
name = 'a'
base = 'slower'
link = { rate = '1mbit' }
bed = { mtu = 9000 }
[[cases]]
name = 'b'
",
        false,
    );
    let link = &plan.cases[0].link;
    assert_eq!(link.both.get(), Some(&"40ms".parse::<DelaySpec>().unwrap()));
    assert_eq!(link.both.get(), Some(&"1%".parse::<LossSpec>().unwrap()));
    assert_eq!(link.both.get(), Some(&"1mbit".parse::<RateSpec>().unwrap()));
    assert_eq!(plan.cases[0].repeats, Repeats::fixed(5));
    let mtus = plan.cases.iter().map(|case| case.bed.mtu().unwrap());
    assert_eq!(mtus.collect::<Vec<_>>()[..2], [9000, 1500]);
}

#[test]
fn a_sweep_sets_a_field_of_a_hop_by_its_name() {
    let plan = plan(
        "\
[[cases]]
name = 'line'
link = { hops = [{ name = 'dsl', rate = '8mbit' }, { name = 'far', delay = '1ms' }] }
sweep = { 'link.hops.far.delay' = ['20ms', '40ms'] }
",
        false,
    );
    assert_eq!(names(&plan), ["line[delay=20ms]", "line[delay=40ms]"]);
    let [dsl, far] = &plan.cases[1].link.hops[..] else {
        panic!("{:?}", plan.cases[1].link);
    };
    assert_eq!(far.both.get(), Some(&"40ms".parse::<DelaySpec>().unwrap()));
    assert_eq!(dsl.both.get(), Some(&"8mbit".parse::<RateSpec>().unwrap()));
}

#[test]
fn tables_of_a_sweep_multiply_and_keys_of_one_table_advance_together() {
    let plan = plan(
        "\
[[cases]]
name = 'grid'
[[cases.sweep]]
'link.delay' = ['0ms', '20ms']
'published.ping.rtt_ms.median' = ['1ms', '41ms']
[[cases.sweep]]
'parameters.ping.size' = { from = '64', to = '256', times = 2 }
",
        false,
    );
    assert_eq!(
        names(&plan),
        [
            "grid[delay=0ms, size=64]",
            "grid[delay=0ms, size=128]",
            "grid[delay=0ms, size=256]",
            "grid[delay=20ms, size=64]",
            "grid[delay=20ms, size=128]",
            "grid[delay=20ms, size=256]",
        ]
    );
    let last = &plan.cases[5];
    assert_eq!(
        last.link.both.get(),
        Some(&"20ms".parse::<DelaySpec>().unwrap())
    );
    let published: Vec<f64> = last
        .published
        .values()
        .filter_map(|one| one.over(Centre::Mean))
        .collect();
    assert_eq!(published, [41.0]);
    assert!(options(last, "ping").contains(&"--size=256".to_owned()));
    assert_eq!(
        last.axes,
        [("link.delay", "20ms"), ("parameters.ping.size", "256")]
            .map(|(path, value)| (path.to_owned(), value.to_owned()))
    );
}

#[test]
fn published_values_are_one_or_one_per_run_and_quick_drops_totals() {
    let text = format!(
        "{HEAD}[[cases]]
name = 'a'
[cases.published]
'ping.rtt_ms.median' = ['1ms', 2, '3000us']
'ping.rtt_ms.min' = 0.5
'ping.rtt_ms.max' = [3, 4]
'download.elapsed_s.total' = '72s'
[[cases]]
name = 'b'
[cases.sweep]
'link.delay' = ['0ms', '20ms']
'published.ping.rtt_ms.median' = ['1ms', ['40ms', '42ms']]
"
    );
    let plan = parse("x.toml", &text, false).unwrap();
    let published = |case: usize, name: &str| {
        let all = &plan.cases[case].published;
        all[&name.parse::<FigureName>().unwrap()].clone()
    };
    let runs = published(0, "ping.rtt_ms.median");
    let of_runs = |values: &[f64], texts: &[&str]| Published::QuotedRuns {
        values: values.to_vec(),
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
    };
    assert_eq!(runs, of_runs(&[1.0, 2.0, 3.0], &["1ms", "2", "3000us"]));
    let skewed = Published::Runs(vec![1.0, 2.0, 6.0]);
    assert_eq!(skewed.over(Centre::Mean), Some(3.0));
    assert_eq!(skewed.over(Centre::Median), Some(2.0));
    assert_eq!(published(0, "ping.rtt_ms.min"), Published::Value(0.5));
    let quoted = |value, text: &str| Published::Quoted {
        value,
        text: text.to_owned(),
    };
    assert_eq!(published(1, "ping.rtt_ms.median"), quoted(1.0, "1ms"));
    assert_eq!(
        published(2, "ping.rtt_ms.median"),
        of_runs(&[40.0, 42.0], &["40ms", "42ms"])
    );
    assert_eq!(
        published(0, "ping.rtt_ms.max"),
        Published::Runs(vec![3.0, 4.0])
    );
    assert_eq!(
        published(0, "download.elapsed_s.total"),
        quoted(72.0, "72s")
    );
    let quick = parse("x.toml", &text, true).unwrap();
    let kept: Vec<String> = quick.cases[0]
        .published
        .keys()
        .map(|name| name.to_string())
        .collect();
    assert_eq!(
        kept,
        ["ping.rtt_ms.median", "ping.rtt_ms.min", "ping.rtt_ms.max"]
    );
    let kept: Published = serde_json::from_value(serde_json::json!([1, 2.5])).unwrap();
    assert_eq!(kept, Published::Runs(vec![1.0, 2.5]));
    let of_old_records: Published = serde_json::from_value(serde_json::json!(3)).unwrap();
    assert_eq!(of_old_records, Published::Value(3.0));
}

#[test]
fn quick_does_not_change_swept_parameters() {
    let cases = "[[cases]]\nname = 'a'\nsweep = { 'parameters.ping.count' = [1, 2] }\n";
    let plan = plan(cases, true);
    assert_eq!(
        options(&plan.cases[1], "ping"),
        ["--count=2", "--interval=1s", "--size=1200"]
    );
}

#[test]
fn sweeps_that_contradict_themselves_are_refused_with_their_line() {
    for case in [
        "[] => sets no field",
        "3 => sweep: must be a table",
        "{} => sets no field",
        "{ 'link.delay' = ['1ms'], 'link.loss' = ['1%', '2%'] } => link.loss: it has 2 values, but the key before it has 1 value: all keys of one table need the same number of values",
        "[{ 'link.delay' = ['1ms'] }, { 'link.delay' = ['2ms'] }] => swept twice",
        "{ 'name.x' = ['1ms'] } => name is a string, not a table",
        "{ 'link.dealy' = ['1ms'] } => did you mean `delay`?",
        "{ 'parameters.pong.size' = [1] } => no instrument `pong`",
    ] {
        let (sweep, cause) = case.split_once(" => ").unwrap();
        let message = refusal(&format!("name = 'a'\nsweep = {sweep}\n"));
        assert!(message.starts_with("x.toml:1"), "{sweep}: {message}");
        assert!(message.contains(cause), "{sweep}: {message}");
    }
}

#[test]
fn missing_or_cyclic_bases_are_refused() {
    assert!(refusal("name = 'a'\nbase = 'z'\n").contains("there is no `bases.z`"));
    let ring = refusal("name = 'a'\nbase = 'p'\n[bases.p]\nbase = 'q'\n[bases.q]\nbase = 'p'\n");
    assert!(ring.contains("`p` is a base of itself"), "{ring}");
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_key() {
    let message = refusal("name = 'a'\nlnik = {}\n");
    assert!(
        message.starts_with("x.toml:19: unknown key `lnik`"),
        "{message}"
    );
    assert!(message.ends_with("did you mean `link`?"), "{message}");
}

#[test]
fn a_key_of_a_link_is_checked_like_any_other() {
    let message = refusal("name = 'a'\nlink = { dealy = '1ms' }\n");
    assert!(message.contains("x.toml:19"), "{message}");
    assert!(message.contains("did you mean `delay`?"), "{message}");
    let message = refusal("name = 'a'\n[cases.link]\ndelay = '1parsec'\n");
    assert!(
        message.starts_with("x.toml:20: link: delay: `1parsec`"),
        "{message}"
    );
}

#[test]
fn a_link_may_change_a_profile_and_a_sweep_may_vary_the_profile() {
    let cases = "[bases.b]\nlink = { profile = 'mobile', delay = '1ms' }\n\
                 [[cases]]\nname = 'a'\nbase = 'b'\nlink.loss = '3%'\n\
                 [[cases]]\nname = 'k'\nsweep = { 'link.profile' = ['mobile', 'in-flight'] }\n";
    let plan = plan(cases, false);
    let conditions = |name: &str| name.parse::<LinkProfile>().unwrap().conditions();
    let [own, mobile, in_flight] = [0, 1, 2].map(|at| &plan.cases[at].link);
    assert_eq!(own.both.get(), Some(&"1ms".parse::<DelaySpec>().unwrap()));
    assert_eq!(own.both.get(), Some(&"3%".parse::<LossSpec>().unwrap()));
    assert_eq!(own.down, conditions("mobile").down);
    assert_eq!(*mobile, conditions("mobile"));
    assert_eq!(*in_flight, conditions("in-flight"));
    assert_eq!(plan.cases[2].name, "k[profile=in-flight]");
    let refused = refusal("name = 'a'\nlink = { delay = '1ms', profile = 'mobil' }\n");
    assert!(
        refused
            .starts_with("x.toml:19: link: profile: unknown name `mobil`; did you mean `mobile`?"),
        "{refused}"
    );
}

#[test]
fn a_case_may_use_a_profile_that_a_user_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("office.toml");
    fs::write(&file, "based_on = 'mobile'\ndelay = '7ms'\n").unwrap();
    let also = NamedFiles {
        profiles: ProfileFolders::usual(Some(directory.path())),
        ..NamedFiles::default()
    };
    let text = format!(
        "{HEAD}[[cases]]\nname = 'k'\nsweep = {{ 'link.profile' = ['office', 'mobile'] }}\n"
    );
    let source = SourceFile {
        file: "x.toml",
        text: &text,
        also: &also,
    };
    let plan = super::parse(source, false).unwrap();
    let names: Vec<&str> = plan.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["k[profile=office]", "k[profile=mobile]"]);
    let [office, mobile] = [0, 1].map(|at| &plan.cases[at].link);
    assert_eq!(
        office.both.get(),
        Some(&"7ms".parse::<DelaySpec>().unwrap())
    );
    assert_eq!(office.down, mobile.down);
}

#[test]
fn two_cases_of_one_name_are_refused() {
    let message = refusal("name = 'a'\n[[cases]]\nname = 'a'\n");
    assert_eq!(
        message,
        "x.toml:20: cases: name: `a` is already used in line 18"
    );
}

#[test]
fn an_unknown_reference_is_refused() {
    let text = format!("reference = 'z'\n{HEAD}[[cases]]\nname = 'a'\n");
    assert_eq!(
        refusal_of(&text),
        "x.toml:1: reference: there is no case `z`; use one of: a"
    );
}

#[test]
fn conditions_that_contradict_each_other_are_refused() {
    let message = refusal("name = 'a'\nlink = { queue = '5pkt' }\n");
    assert!(
        message.starts_with("x.toml:19: case `a`: link: queue: "),
        "{message}"
    );
    assert!(message.contains("needs a rate"), "{message}");
}

#[test]
fn expectations_are_read_in_the_metrics_units() {
    let text = format!(
        "reference = 'a'\n{HEAD}\
[[cases]]
name = 'a'
published = {{ 'ping.rtt_ms.median' = '2ms' }}
expect = [
  {{ of = 'ping.rtt_ms.median', least = '1ms', most = 3 }},
  {{ of = 'ping.rtt_ms.median', value = '2ms', within = '10%' }},
  {{ of = 'ping.rtt_ms.median', gain = '-1ms', within = '100us' }},
  {{ of = 'download.goodput_bit_per_s.mean', ratio = 0.5, within = '5%' }},
  {{ of = 'download.longest_stall_s.max', ratio = {{ least = 3 }} }},
  {{ of = 'ping.rtt_ms.median', published = {{ factor = 1.5 }} }},
]
[[cases]]
name = 'b'
[[trends]]
of = 'ping.rtt_ms.median'
rising = ['a', 'b']
"
    );
    let plan = parse("x.toml", &text, false).unwrap();
    let rules: Vec<Criterion> = plan.cases[0].expect.iter().map(|e| e.rule).collect();
    assert_eq!(
        rules,
        [
            Criterion::Range {
                least: Some(1.0),
                most: Some(3.0)
            },
            Criterion::Value {
                value: 2.0,
                within: 0.2
            },
            Criterion::Gain {
                gain: -1.0,
                within: 0.1
            },
            Criterion::Ratio {
                ratio: 0.5,
                within: 0.05
            },
            Criterion::RatioRange {
                least: Some(3.0),
                most: None
            },
            Criterion::PublishedFactor { factor: 1.5 },
        ]
    );
    assert_eq!(plan.trends[0].way, TrendWay::Rising);
    assert_eq!(plan.trends[0].cases, ["a", "b"]);
}

#[test]
fn rules_are_judged_by_the_value_of_the_mean_by_default() {
    let cases = "[quick]
repeats = 2
[[cases]]
name = 'a'
expect = [
  { of = 'ping.rtt_ms.median', least = '1ms' },
  { of = 'ping.rtt_ms.median', least = '1ms', over = 'median', met = 'unless-contradicted' },
]
[[cases]]
name = 'b'
[[trends]]
of = 'ping.rtt_ms.median'
rising = ['a', 'b']
met = 'when-shown'
";
    let text = format!("repeats = 11\n{HEAD}{cases}");
    let plan = parse("x.toml", &text, false).unwrap();
    let judgements: Vec<_> = plan.cases[0].expect.iter().map(|e| e.judgement).collect();
    let by_median = Judgement {
        over: Centre::Median,
        met: Met::UnlessContradicted,
    };
    assert_eq!(judgements, [Judgement::default(), by_median]);
    assert_eq!(plan.trends[0].judgement.met, Met::WhenShown);
    // The record's expectations can be read again, and default judgements are not written.
    let recorded = record_plan(&plan);
    let json = serde_json::to_value(&recorded).unwrap();
    let [by_value, by_median] = &json["cases"][0]["expect"].as_array().unwrap()[..] else {
        panic!("{json}");
    };
    assert_eq!(by_value.as_object().unwrap().len(), 2);
    assert_eq!(by_median["over"], "median");
    assert_eq!(by_median["met"], "unless-contradicted");
    let read: RecordedPlan = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(read, recorded);
    assert_eq!(record_plan(&read_plan(&read).unwrap()), recorded);
    let message = parse("x.toml", &text, true).unwrap_err().to_string();
    assert!(
        message.contains("an interval needs at least 11 repeats; case `a` has 2 runs with --quick"),
        "{message}"
    );
}

#[test]
fn a_rule_and_a_trend_can_be_marked_as_fitted() {
    let cases = "[[cases]]
name = 'a'
expect = [
  { of = 'ping.rtt_ms.median', value = '2ms', within = '10%' },
  { of = 'ping.rtt_ms.median', value = '2ms', within = '50%', fitted = true },
]
[[cases]]
name = 'b'
[[trends]]
of = 'ping.rtt_ms.median'
rising = ['a', 'b']
fitted = true
";
    let plan = parse("x.toml", &format!("{HEAD}{cases}"), false).unwrap();
    let fitted: Vec<bool> = plan.cases[0].expect.iter().map(|e| e.fitted).collect();
    assert_eq!(fitted, [false, true]);
    assert!(plan.trends[0].fitted);
    let recorded = record_plan(&plan);
    let read: RecordedPlan =
        serde_json::from_value(serde_json::to_value(&recorded).unwrap()).unwrap();
    assert_eq!(read, recorded);
    let wrong = cases.replace("fitted = true }", "fited = true }");
    let refused = refusal_of(&format!("{HEAD}{wrong}"));
    assert!(refused.contains("fitted"), "{refused}");
}

#[test]
fn another_tool_does_not_report_the_stalls_of_a_download() {
    let instrument = "name = 'x'\n[[instruments]]\nkind = 'http'\n";
    let case =
        "[[cases]]\nname = 'a'\nexpect = [{ of = 'http.longest_stall_s.max', most = '1s' }]\n";
    assert!(parse("x.toml", &format!("{instrument}{case}"), false).is_ok());
    for tool in ["curl", "wget"] {
        let parameters = format!("parameters = {{ tool = '{tool}', path = '/bytes/1' }}\n");
        let message = refusal_of(&format!("{instrument}{parameters}{case}"));
        assert!(
            message.contains("has no figure http.longest_stall_s.max"),
            "{message}"
        );
    }
}

#[test]
fn expectations_that_cannot_be_judged_are_refused() {
    for case in [
        "{ of = 'ping.rtt_ms.median' } => write one of least and most",
        "{ of = 'ping.rtt_ms.median', value = '1ms' } => say `within`",
        "{ of = 'ping.rtt.median', value = 1, within = 1 } => did you mean `rtt_ms`?",
        "{ of = 'pong.rtt_ms.median', value = 1, within = 1 } => no instrument `pong`",
        "{ of = 'ping.rtt_ms.median', gain = 1, within = 1 } => name one in `reference`",
        "{ of = 'ping.rtt_ms.median', ratio = {} } => ratio: write `least`, `most` or both",
        "{ of = 'ping.rtt_ms.median', ratio = { least = 1 }, within = '5%' } => a range needs no value",
        "{ of = 'ping.rtt_ms.median', ratio = { last = 1 } } => `last`",
        "{ of = 'ping.rtt_ms.median', ratio = '1' } => a number, or { least, most }",
        "{ of = 'ping.rtt_ms.median', published = { within = '5%' } } => its value is missing in `published`",
    ] {
        let (expect, cause) = case.split_once(" => ").unwrap();
        let message = refusal(&format!("name = 'a'\nexpect = [{expect}]\n"));
        assert!(message.contains(cause), "{expect}: {message}");
        assert!(message.starts_with("x.toml:"), "{expect}: {message}");
    }
}

#[test]
fn repeats_until_an_interval_is_narrow_are_bounded() {
    let cases = "[[cases]]\nname = 'a'\nrepeats = { of = 'ping.rtt_ms.median', within = '5%' }\n";
    let repeats = plan(cases, false).cases[0].repeats.clone();
    assert_eq!((repeats.least, repeats.most), (5, 30));
    assert!((repeats.until.unwrap().percent - 5.0).abs() < 1e-9);
    let message =
        refusal("name = 'a'\nrepeats = { of = 'ping.rtt_ms.median', within = '5%', most = 99 }\n");
    assert!(message.contains("the first 5 decide it"), "{message}");
}

#[test]
fn an_option_of_another_instrument_is_refused() {
    let text = HEAD.replace("size = 1200", "parallel = 3");
    let message = refusal_of(&format!("{text}[[cases]]\nname = 'a'\n"));
    assert!(
        message.starts_with(
            "x.toml:10: instruments 1: parameters: parallel: not an option of ping; it has size"
        ),
        "{message}"
    );
}

#[test]
fn the_scenarios_that_ship_are_sound() {
    for file in shipped() {
        for quick in [false, true] {
            read(&file, NamedFiles::OWN, quick).unwrap();
        }
    }
}

/// Returns the paths of the scenarios that ship.
pub(super) fn shipped() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let folders = [root.clone(), root.join("needs-cards")];
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(|file| file.is_file()).collect()
}

#[test]
fn an_instrument_may_have_its_own_timeout_and_warm_up() {
    let with = |lines: &str| {
        let instrument = format!("name = 'ping'\nkind = 'ping'\n{lines}\n");
        HEAD.replacen("name = 'ping'\nkind = 'ping'\n", &instrument, 1) + "[[cases]]\nname = 'a'\n"
    };
    let text = with("timeout = '30s'\nwarm_up = '500ms'");
    let plan = parse("x.toml", &text, false).unwrap();
    let [ping, download] = &plan.cases[0].instruments[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(
        ping.timeout.map(Duration::from),
        Some(Duration::from_secs(30))
    );
    assert_eq!(
        ping.warm_up.map(Duration::from),
        Some(Duration::from_millis(500))
    );
    assert_eq!((download.timeout, download.warm_up), (None, None));
    // The record holds the requested values.
    let recorded = record_plan(&plan);
    let kept = serde_json::to_string(&recorded).unwrap();
    assert!(kept.contains("\"timeout\":\"30s\""), "{kept}");
    let read: RecordedPlan = serde_json::from_str(&kept).unwrap();
    assert_eq!(read, recorded);
    let refused = refusal_of(&with("timeout = '0s'"));
    assert!(refused.contains("timeout: must be above 0"), "{refused}");
    let refused = refusal_of(&with("timeout = 30"));
    assert!(refused.contains("30"), "{refused}");
}

#[test]
fn a_record_of_every_kind_has_todays_profiles_and_is_reported_and_compared() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/records/every-kind.jsonl"
    );
    let record = Record::read(Path::new(file)).unwrap();
    let today = parse("every-kind.toml", &record.head.scenario.text, false).unwrap();
    let profiles = |plan: &RecordedPlan| {
        let all = plan.instruments();
        let of = |i: &RecordedInstrument| (i.name.clone(), i.profile.clone());
        all.map(of).collect::<Vec<_>>()
    };
    assert_eq!(profiles(record.plan()), profiles(&record_plan(&today)));
    let html = report::html(&record).unwrap();
    assert!(html.contains("--path=/bytes/300000"));
    let mut other = record.clone();
    let comparison = Comparison::of(&record, &other, false, |_, _| true).unwrap();
    assert_eq!(comparison.regressions(0.0).count(), 0);
    let arguments = &mut other.head.plan.cases[0].instruments[0].args.arguments;
    arguments.insert("count".to_owned(), 99.into());
    let error = Comparison::of(&record, &other, false, |_, _| true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "records of different scenarios: case `near` differs in its set of instruments; if that is on purpose, use --by instruments"
    );
}

#[test]
fn every_figure_of_a_record_is_declared_by_its_instrument() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records");
    let mut kinds = std::collections::BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let record = Record::read(&entry.unwrap().path()).unwrap();
        for run in &record.runs {
            let case = record.plan().case(&run.case).unwrap();
            for measured in &run.measurements {
                let of = |i: &&RecordedInstrument| i.name == measured.instrument;
                let instrument = case.instruments.iter().find(of).unwrap();
                let args = InstrumentArgs::of(&instrument.args).unwrap();
                let stated = args.instrument().metrics().unwrap().figures();
                let figures = measured.measurement.figures.iter();
                for figure in figures.filter(|figure| figure.stream.is_none()) {
                    let name = FigureName::of(&instrument.name, figure);
                    assert!(stated.has(&name), "{}: {name}", instrument.args.options());
                }
                kinds.insert(instrument.args.kind.clone());
            }
        }
    }
    // The record has no `tls` and no `quality`, and lacks one other kind that needs more than its test bed.
    assert!(kinds.len() + 3 >= instruments::measure::Kind::all().count());
}

#[test]
fn a_scenario_needs_only_a_name_an_instrument_and_a_case() {
    let text = "name = 'x'\n[[instruments]]\nkind = 'ping'\n[[cases]]\nname = 'a'\n";
    let plan = parse("x.toml", text, false).unwrap();
    assert_eq!(plan.title, "x");
    let case = &plan.cases[0];
    assert_eq!(case.bed, Bed::default());
    assert_eq!(case.bed.mtu(), Some(1500));
    assert_eq!(case.instruments[0].name, "ping");
    let host = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    assert_eq!(case.congestion, host.trim());
}

/// Compares the estimates of complete cases that ship with the times that they took: on this
/// project's machines or, where a comment says so, at their authors.
#[test]
fn estimates_of_shipped_cases_are_within_a_third_of_their_times() {
    let shipped = |text: &str| parse("x.toml", text, false).unwrap();
    let transfer = shipped(include_str!("../../../scenarios/tcp-transfer.toml"));
    let router = shipped(include_str!("../../../scenarios/bc10-router.toml"));
    let speed = shipped(include_str!("../../../scenarios/alt-speed.toml"));
    let toffee = shipped(include_str!("../../../scenarios/toffee-mocha.toml"));
    let near = |name: &str, estimate_s: f64, took_s: f64| {
        let ratio = estimate_s / took_s;
        assert!(
            (2.0 / 3.0..=4.0 / 3.0).contains(&ratio),
            "{name}: {estimate_s} s for {took_s} s"
        );
    };
    for (plan, case, took_s) in [
        // The case sends 2 MiB five times with every block size; the published times per MiB add up
        // to this.
        (&transfer, "blocks[mtu=1500]", 110.3),
        // The case sends 1,073,733,637 bytes 23 times, at the published 5.8185 ms per MiB.
        (&transfer, "file", 137.0),
        // These were measured on 25 November 2026 on 2 cores.
        (&transfer, "wondershaper", 39.4),
        (&transfer, "what-would", 13.0),
        (&router, "wan", 32.6),
        (&speed, "udp-beside", 32.9),
    ] {
        let estimate = crate::experiment::run_times::estimate(plan.case(case).unwrap());
        near(case, estimate.as_secs_f64(), took_s);
    }
    // These are the published seconds of each download.
    for (case, took_s) in [
        ("case1", 72.0),
        ("case2", 577.0),
        ("case3", 856.0),
        ("case4", 579.0),
        ("case5", 302.0),
        ("case6", 745.0),
        ("case7", 95.0),
    ] {
        let case = toffee.case(case).unwrap();
        let pace = record::pace::PathPace::of(case).unwrap();
        let download = case.instrument("download").unwrap().args.instrument();
        let estimate = download.estimate(Some(&pace));
        near(&case.name, estimate.unwrap().as_secs_f64(), took_s);
    }
}

#[test]
fn absurd_counts_and_intervals_have_an_estimate() {
    for (kind, count) in [
        ("ping", u32::MAX),
        ("connect", u32::MAX),
        ("tls", u32::MAX),
        ("probe", 1_000_000),
    ] {
        let text = format!(
            "name = 'x'\n[[instruments]]\nkind = '{kind}'\n\
             parameters = {{ count = {count}, interval = '9000000000s' }}\n[[cases]]\nname = 'a'\n"
        );
        let plan = parse("x.toml", &text, false).unwrap();
        let estimate = crate::experiment::run_times::estimate(&plan.cases[0]);
        assert!(
            estimate > Duration::from_secs(1_000_000_000) / 4,
            "{kind}: {estimate:?}"
        );
    }
}
