//! Links of several hops: their stages, and packets that pass them in virtual time.

use std::num::NonZeroU8;
use std::ops::Range;

use model::{
    Bytes, CheckedPaths, ConfigError, Discipline, DropCause, Effect, Link, Nanos, Outcome, Packet,
    PacketId, Schedule, Side, Weights,
};

use crate::in_effect::InEffect;
use crate::{EmulatedLink, Hop, LinkProfile, LinkSpec, read};

fn spec(text: &str) -> LinkSpec {
    let spec: LinkSpec = read::toml_text(text).unwrap();
    spec.check().unwrap();
    spec
}

fn refusal(text: &str) -> String {
    match read::toml_text::<LinkSpec>(text) {
        Ok(spec) => spec.check().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

fn model_link(spec: &LinkSpec) -> Link {
    Link::new(&spec.to_link("box").unwrap().config).unwrap()
}

/// The fate of a packet: the time at which it leaves or is dropped, and the cause of the drop.
type Fate = (Nanos, Option<DropCause>);

/// Offers packets of 1,000 bytes, numbered from `first` on, at one time, and returns the fate of every packet that the
/// link holds, by number.
fn offered(link: &mut Link, side: Side, at: Nanos, numbers: Range<u64>) -> Vec<Fate> {
    for id in numbers {
        link.offer(at, side, Packet::new(PacketId(id), Bytes(1_000)));
    }
    let mut all = Vec::new();
    while let Some(outcome) = link.poll(Nanos::MAX) {
        match outcome {
            Outcome::Deliver { id, due, .. } => all.push((id, (due, None))),
            Outcome::Drop { id, at, cause, .. } => all.push((id, (at, Some(cause)))),
            Outcome::Copied { .. } => {}
        }
    }
    all.sort_by_key(|(id, _)| *id);
    all.into_iter().map(|(_, fate)| fate).collect()
}

/// Returns the names of the stages that packets of a class meet from a side on.
fn names(link: &EmulatedLink, side: Side, class: u16) -> Vec<&str> {
    let mut paths = link.config.paths.iter();
    let path = paths.find(|path| (path.side, path.class) == (side, class));
    let stages = &path.unwrap().stages;
    stages.iter().map(|stage| stage.name.as_str()).collect()
}

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

#[test]
fn packets_meet_the_stages_of_all_hops_in_order_and_in_reverse_on_the_way_down() {
    let link = spec(
        "rate = '9mbit'\ndelay = '1ms'\n\
         [[hops]]\nname = 'dsl'\nrate = '8mbit'\nloss = '1%'\n\
         [[hops]]\nname = 'core'\ndelay = '5ms'\ndown.loss = '2%'",
    )
    .to_link("box")
    .unwrap();
    let names = |side| names(&link, side, 0);
    let up = [
        "box.up.rate",
        "box.up.delay",
        "box.dsl.up.rate",
        "box.dsl.up.loss",
        "box.core.up.delay",
    ];
    assert_eq!(names(Side::A), up);
    let down = [
        "box.core.down.loss",
        "box.core.down.delay",
        "box.dsl.down.rate",
        "box.dsl.down.loss",
        "box.down.rate",
        "box.down.delay",
    ];
    assert_eq!(names(Side::B), down);
}

#[test]
fn delays_of_hops_add_up() {
    let link = spec(
        "delay = '10ms'\nhops = [{ name = 'a', delay = '5ms', down.delay = '7ms' }, { name = 'b', delay = '1ms' }]",
    );
    for (side, delay) in [(Side::A, 16_000), (Side::B, 18_000)] {
        let fates = offered(&mut model_link(&link), side, us(500), 0..2);
        assert_eq!(fates, [(us(500 + delay), None); 2]);
    }
}

/// The first server takes 1 ms for a packet and the second one 2.5 ms. Packets reach the second one at 11 ms, 12 ms and so
/// on, the fifth one at 15 ms, when one packet is in service until 16 ms and two wait.
#[test]
fn the_queue_of_a_slower_second_bottleneck_builds_up_and_drops() {
    let link = spec(
        "rate = '8mbit'\ndelay = '10ms'\n[[hops]]\nname = 'slow'\nrate = '3200kbit'\nqueue = '2pkt'\ndelay = '5ms'",
    );
    let up = offered(&mut model_link(&link), Side::A, Nanos::ZERO, 0..5);
    let right = [
        (us(18_500), None),
        (us(21_000), None),
        (us(23_500), None),
        (us(26_000), None),
        (us(15_000), Some(DropCause::QueueFull)),
    ];
    assert_eq!(up, right);
    // Downwards the slow server comes first, so three packets fit, and the fast one delays each by its own service.
    let down = offered(&mut model_link(&link), Side::B, Nanos::ZERO, 0..4);
    let right = [
        (us(18_500), None),
        (us(21_000), None),
        (us(23_500), None),
        (Nanos::ZERO, Some(DropCause::QueueFull)),
    ];
    assert_eq!(down, right);
}

/// Each hop loses the first packet that it meets.
#[test]
fn a_packet_that_one_hop_loses_does_not_reach_the_next() {
    let first = "stages = [{ kind = 'indexes', indexes = [0] }]";
    let link = spec(&format!("{first}\n[[hops]]\nname = 'a'\n{first}"));
    for (side, order) in [
        (Side::A, ["box.up.indexes", "box.a.up.indexes"]),
        (Side::B, ["box.a.down.indexes", "box.down.indexes"]),
    ] {
        let mut link = model_link(&link);
        let fates = offered(&mut link, side, us(7), 0..3);
        let lost = Some(DropCause::Loss);
        assert_eq!(fates, [(us(7), lost), (us(7), lost), (us(7), None)]);
        for (name, packets) in order.into_iter().zip([3, 2]) {
            let report = link.stages().find(|stage| stage.name == name).unwrap();
            assert_eq!((report.packets, report.dropped), (packets, 1), "{name}");
        }
        let [hop] = link.hops() else {
            panic!("{:?}", link.hops());
        };
        assert_eq!((hop.name(), hop.dropped(side, DropCause::Loss)), ("a", 1));
        assert_eq!(hop.dropped(side.other(), DropCause::Loss), 0);
    }
}

#[test]
fn a_rule_concerns_the_hop_that_it_names() {
    let spec = spec(
        "delay = '1ms'\n[[hops]]\nname = 'dsl'\nrate = '8mbit'\ndelay = '5ms'\n\
         [[rules]]\nname = 'web'\nport = 80\nhop = 'dsl'\ndelay = '9ms'\nup.rate = '1mbit'\n\
         [[rules]]\nname = 'voice'\nmatch = 'udp'\ndelay = '2ms'",
    );
    let link = spec.to_link("box").unwrap();
    assert_eq!(link.rules.names().collect::<Vec<_>>(), ["web", "voice"]);
    let others = ["box.up.delay", "box.dsl.up.rate", "box.dsl.up.delay"];
    assert_eq!(names(&link, Side::A, 0), others);
    let web = [
        "box.up.delay",
        "box.dsl.web.up.rate",
        "box.dsl.web.up.delay",
    ];
    assert_eq!(names(&link, Side::A, 1), web);
    let web = [
        "box.dsl.down.rate",
        "box.dsl.web.down.delay",
        "box.down.delay",
    ];
    assert_eq!(names(&link, Side::B, 1), web);
    let voice = ["box.voice.up.delay", "box.dsl.up.rate", "box.dsl.up.delay"];
    assert_eq!(names(&link, Side::A, 2), voice);
    for (class, due) in [(0, 7_000), (1, 18_000), (2, 8_000)] {
        let mut link = model_link(&spec);
        let packet = Packet {
            class,
            ..Packet::new(PacketId(7), Bytes(1_000))
        };
        link.offer(Nanos::ZERO, Side::A, packet);
        let left = match link.poll(Nanos::MAX) {
            Some(Outcome::Deliver { due, .. }) => due,
            other => panic!("{other:?}"),
        };
        assert_eq!(left, us(due), "{class}");
    }
}

#[test]
fn rules_share_the_rate_of_their_hop_by_weight() {
    let rule = "[[rules]]\nname = 'web'\nport = 443\nweight = 3\n";
    let spec = spec(&format!(
        "rate = '9mbit'\n{rule}hop = 'dsl'\n[[hops]]\nname = 'dsl'\nrate = '8mbit'"
    ));
    let hops = spec.all_hops("box").unwrap();
    let discipline = |hop: &Hop| match hop.rest.up[0].effect {
        Effect::Rate(rate) => rate.queue.discipline,
        ref other => panic!("{other:?}"),
    };
    let mut weights = Weights::default();
    weights.set(1, NonZeroU8::new(3).unwrap());
    assert_eq!(discipline(&hops[0]), Discipline::DropTail);
    assert_eq!(discipline(&hops[1]), Discipline::Weighted(weights));
    let refused = refusal(&format!("{rule}[[hops]]\nname = 'dsl'\nrate = '8mbit'"));
    assert!(
        refused.starts_with("rules: web: weight: packets share a rate"),
        "{refused}"
    );
}

#[test]
fn equal_hops_have_different_draws() {
    let lossy = "loss = '50%'\noutage = '20ms/100ms,jitter=50ms'";
    let link = spec(&format!(
        "{lossy}\n[[hops]]\nname = 'a'\n{lossy}\n[[hops]]\nname = 'b'\n{lossy}"
    ));
    let hops = link.all_hops("box").unwrap();
    let begin = |hop: &Hop| {
        let is_outage = |name: &str| name.ends_with(".outage");
        let mut stages = hop.rest.up.iter();
        let stage = stages.find(|stage| is_outage(&stage.name)).unwrap();
        match &stage.schedule {
            Schedule::Computed(steps) => {
                let mut times = (0..).map_while(|index| steps.step(index)).map(|(at, _)| at);
                times.find(|at| *at > Nanos::ZERO).unwrap()
            }
            Schedule::List(list) => panic!("{list:?}"),
        }
    };
    let [own, a, b] = &hops[..] else {
        panic!("{hops:?}");
    };
    assert!(begin(own) != begin(a) && begin(a) != begin(b));
    let again = link.all_hops("box").unwrap();
    assert_eq!(begin(a), begin(&again[1]));
    // Of 400 packets, 50 are expected to pass three independent losses, with a standard deviation of 6.6.
    let three =
        spec("loss = '50%'\nhops = [{ name = 'a', loss = '50%' }, { name = 'b', loss = '50%' }]");
    let fates = offered(&mut model_link(&three), Side::A, Nanos::ZERO, 0..400);
    let passed = fates.iter().filter(|(_, cause)| cause.is_none()).count();
    assert!((20..80).contains(&passed), "{passed}");
}

#[test]
fn a_running_link_gains_and_loses_a_hop() {
    let mut link = model_link(&spec("delay = '5ms'"));
    let paths = |text: &str| spec(text).to_link("box").unwrap().config.paths;
    let two = paths("delay = '5ms'\n[[hops]]\nname = 'a'\nrate = '8mbit'\ndelay = '3ms'");
    assert_eq!(
        offered(&mut link, Side::A, us(0), 0..1),
        [(us(5_000), None)]
    );
    link.change(us(10_000), &two).unwrap();
    let fates = offered(&mut link, Side::A, us(20_000), 1..3);
    assert_eq!(fates, [(us(29_000), None), (us(30_000), None)]);
    link.change(us(40_000), &paths("delay = '5ms'")).unwrap();
    let fates = offered(&mut link, Side::A, us(50_000), 3..4);
    assert_eq!(fates, [(us(55_000), None)]);
}

#[test]
fn hops_of_a_running_link_do_not_change_places() {
    let checked = |text: &str| {
        let spec = spec(text);
        let paths = CheckedPaths::new(spec.to_link("box").unwrap().config.paths);
        (spec, paths.unwrap())
    };
    let hop = |name: &str| format!("[[hops]]\nname = '{name}'\ndelay = '1ms'\n");
    let (_, before) = checked(&[hop("a"), hop("b")].concat());
    for other in [
        [hop("a"), hop("c"), hop("b")].concat(),
        hop("b"),
        String::new(),
    ] {
        let (_, after) = checked(&other);
        assert_eq!(before.check_successor(&after), Ok(()), "{other}");
    }
    let (spec, after) = checked(&[hop("b"), hop("a")].concat());
    let refused = before.check_successor(&after).unwrap_err();
    assert!(matches!(refused, ConfigError::Reordered(_)), "{refused:?}");
    let located = spec.located(refused).to_string();
    assert!(located.starts_with("hops: "), "{located}");
}

#[test]
fn wrong_hops_are_refused_with_their_place() {
    for case in [
        "hops = [{ delay = '1ms' }] => hops 1: `name` is missing: write name = \"dsl\"",
        "hops = [{ name = 'a.b' }] => hops: a.b: name: `a.b`: a hop needs a name of letters",
        "hops = [{ name = 'a' }, { name = 'a' }] => hops: a: name: two hops have the name a",
        "hops = [{ name = 'a' }]\nrules = [{ name = 'a', port = 1 }] => hops: a: name: a rule has the name a, too",
        "hops = [{ name = 'a', queue = '5pkt' }] => hops: a: queue: a queue needs a rate",
        "rate = '1mbit'\nhops = [{ name = 'a', queue = '5pkt' }] => hops: a: queue: a queue needs a rate",
        "hops = [{ name = 'a', rate = '0bit' }] => hops: a: rate: at 0bit nothing ever passes",
        "hops = [{ name = 'a', up.schedule = [{ at = '2s' }, { at = '1s' }] }] => hops: a: up: schedule 2: at: 1s comes after",
        "hops = [{ name = 'a', loss = '1%', stages = [{ kind = 'loss', loss = '1%' }] }] => \
         hops: a: stages: loss: link.a.up.loss occurs twice in one path",
        "hops = [{ name = 'a', stages = [{ kind = 'mtu' }] }] => hops: a: stages: mtu: `mtu` is missing",
        "rules = [{ name = 'w', port = 1, hop = 'a' }] => rules: w: hop: the link has no hops",
        "hops = [{ name = 'a' }]\nrules = [{ name = 'w', port = 1, hop = 'b' }] => rules: w: hop: unknown name `b`",
        "hops = [{ name = 'a' }]\nrules = [{ name = 'w', port = 1, hop = 'a', queue = '5pkt' }] => \
         rules: w: queue: a queue needs a rate",
        "hops = [{ name = 'a', toffee = 'drop=2' }] => hops 1: unknown key `toffee`",
        "hops = [{ name = 'a', seed = 1 }] => hops 1: unknown key `seed`",
        "hops = [{ name = 'a', profile = 'x25' }] => hops 1: profile: unknown name `x25`",
    ] {
        let (text, cause) = case.split_once(" => ").unwrap();
        let refused = refusal(text);
        assert!(refused.starts_with(cause), "{text}: {refused}");
    }
}

#[test]
fn the_cost_of_hops_is_limited() {
    let hops = |count: usize, of: &dyn Fn(usize) -> String| -> String {
        let all = (0..count).map(|n| format!("[[hops]]\nname = 'h{n}'\n{}", of(n)));
        all.collect()
    };
    let most = hops(16, &|_| "delay = '1ms'\nloss = '1%'\n".to_owned());
    spec(&most);
    let stage = |n: usize| {
        format!("[[hops.stages]]\nkind = 'loss'\nname = 'l{n}'\nloss = '1%'\ndirection = 'up'\n")
    };
    let stages = |_: usize| (0..13).map(stage).collect::<String>();
    // A step over 10 s makes 1,000 changes, in each direction.
    let ramps = |_: usize| {
        let step = |n| format!("{{ at = '{}s', over = '10s', delay = '2ms' }}", 10 * n);
        let steps: Vec<String> = (0..9).map(step).collect();
        format!("delay = '1ms'\nschedule = [{}]\n", steps.join(", "))
    };
    let copies = |_: usize| "duplicate = '1%'\n".to_owned();
    for (text, words) in [
        (
            hops(17, &|_| String::new()),
            "hops: there are 17: at most 16 are allowed",
        ),
        (
            hops(11, &|_| {
                "rate = '1mbit'\ndelay = '1ms'\nloss = '1%'\n".to_owned()
            }),
            "hops: the link and its hops make 33 stages of one path: at most 32 are allowed",
        ),
        (
            hops(5, &stages),
            "hops: the link and its hops have 65 stages of [[stages]] together: at most 64 are allowed",
        ),
        (hops(2, &ramps), "there are 36000 steps"),
        // The packets of a rule follow them, too, whether it concerns the hop, another one or the link itself.
        (
            format!("[[rules]]\nmatch = 'udp'\n{}", hops(1, &ramps)),
            "there are 36000 steps",
        ),
        (
            format!("[[rules]]\nmatch = 'udp'\nhop = 'h0'\n{}", hops(1, &ramps)),
            "there are 36000 steps",
        ),
        (
            format!(
                "{}[[rules]]\nmatch = 'udp'\nhop = 'h0'\n[[hops]]\nname = 'h0'\n",
                ramps(0)
            ),
            "there are 36000 steps",
        ),
        (
            hops(5, &copies),
            "5 stages of one path duplicate packets, which makes 32 packets of one",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(words), "{refused}");
    }
    spec(&hops(1, &ramps));
}

#[test]
fn hops_are_read_back_equal() {
    let link = spec(
        "delay = '1ms'\n[[stages]]\nkind = 'gate'\n[[rules]]\nname = 'web'\nport = 80\nhop = 'dsl'\nloss = '1%'\n\
         [[hops]]\nname = 'dsl'\nrate = '8mbit'\nschedule = [{ at = '1s', rate = '2mbit' }]\n\
         up = { rate = '1mbit', queue = '9pkt' }\nstages = [{ kind = 'every-nth', n = 3 }]\n\
         [[hops]]\nname = 'core'\ndown.delay = '5ms'",
    );
    assert_eq!(link.hops.len(), 2);
    let toml: LinkSpec = read::toml_text(&toml::to_string(&link).unwrap()).unwrap();
    assert_eq!(toml, link);
    let json: LinkSpec = serde_json::from_str(&serde_json::to_string(&link).unwrap()).unwrap();
    assert_eq!(json, link);
    // The hops of a file are replaced as a whole.
    let other = spec("loss = '1%'\nhops = [{ name = 'sat' }]").or(link.clone());
    assert_eq!(other.hops.len(), 1);
    assert_eq!(spec("loss = '1%'").or(link.clone()).hops, link.hops);
    assert!(link.memory() > spec("delay = '1ms'").memory());
}

#[test]
fn a_hop_may_have_the_conditions_of_a_profile() {
    let link = spec("[[hops]]\nname = 'wifi'\nprofile = 'wifi-good'\ndelay = '7ms'");
    let profile: LinkProfile = "wifi-good".parse().unwrap();
    let right: LinkSpec = read::toml_text::<LinkSpec>("delay = '7ms'")
        .unwrap()
        .or(profile.conditions());
    let [hop] = &link.hops[..] else {
        panic!("{link:?}");
    };
    assert_eq!(
        [&hop.both, &hop.up, &hop.down],
        [&right.both, &right.up, &right.down]
    );
    assert_eq!(hop.stages, right.stages);
}

#[test]
fn schedules_of_hops_count_among_those_of_the_link() {
    let link = spec(
        "delay = '1ms'\nhops = [{ name = 'a', delay = '1ms', schedule = [{ at = '1s', delay = '2ms' }], \
         stages = [{ kind = 'gate', schedule = [{ at = '3s', open = false }] }] }]",
    );
    assert_eq!(link.last_step(), Some(Nanos::from_secs(3)));
    let then = link.then(Nanos::from_secs(2));
    let right =
        spec("delay = '1ms'\nhops = [{ name = 'a', delay = '2ms', stages = [{ kind = 'gate' }] }]");
    assert_eq!(then, right);
    assert!(!then.has_schedule());
    let trace =
        r#"hops = [{ name = "a", trace = { file = "x", content = "t,delay\n0s,5ms\n1s,9ms\n" } }]"#;
    let traced = spec(trace);
    assert_eq!(traced.traces().count(), 1);
    assert!(traced.has_own_times());
    let late = offered(&mut model_link(&traced), Side::A, us(600_000), 0..1);
    assert_eq!(late, [(us(605_000), None)]);
}

#[test]
fn the_meaning_of_a_link_covers_all_hops() {
    let link = spec(
        "rate = '9mbit'\ndelay = '1ms'\n[[hops]]\nname = 'a'\nrate = '8mbit'\nqueue = '10pkt'\ndelay = '4ms'\nup.loss = '1%'",
    );
    let meaning = InEffect::of(&link).unwrap();
    assert_eq!(meaning.round_trip_ms, 10.0);
    assert_eq!(meaning.up.rate_bit_per_s, Some(8_000_000));
    assert_eq!(meaning.up.queue_bytes, Some(15_140));
    assert!((meaning.up.loss_percent.unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(meaning.down.loss_percent, Some(0.0));
}
