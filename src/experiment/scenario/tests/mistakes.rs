//! Mistakes that people make, each with the line, the key and the correction that its error must
//! name.

use super::parse;

/// A correct scenario that uses most keys of a scenario file.
const SOUND: &str = r#"name = "office"
title = "An office line"
reference = "idle"
repeats = 2

[bed]
kind = "netns"

[bed.wire]
delay = "0.5ms"

[tcp]
congestion = "reno"

[quick]
repeats = 1

[[instruments]]
name = "latency"
kind = "ping"
parameters = { count = 20, interval = "50ms" }
quick = { count = 5 }

[[instruments]]
name = "load"
kind = "tcp"
parameters = { time = "5s" }

[bases.line]
note = "as rented"
[bases.line.link]
rate = "20mbit"
queue = "50ms"

[[cases]]
name = "idle"
base = "line"
instruments = ["latency"]

[[cases]]
name = "queue"
base = "line"
link.delay = "10ms"
parameters.load = { parallel = 3 }
published = { "latency.rtt_ms.median" = "31ms" }
expect = [
  { of = "load.goodput_bit_per_s.mean", least = "10mbit" },
  { of = "latency.rtt_ms.median", gain = "20ms", within = "10%" },
]

[[cases.sweep]]
"link.queue" = ["10ms", "100ms"]

[[trends]]
of = "latency.rtt_ms.median"
rising = ["queue"]
"#;

/// A mistake in the correct scenario: `wrong` replaces `sound`, and the error must name the key and
/// the correction. A mark in `wrong` shows the line at fault.
struct Mistake {
    sound: &'static str,
    wrong: &'static str,
    key: &'static str,
    right: &'static str,
}

const fn mistake(
    sound: &'static str,
    wrong: &'static str,
    key: &'static str,
    right: &'static str,
) -> Mistake {
    Mistake {
        sound,
        wrong,
        key,
        right,
    }
}

/// The mark at the end of the line that an error must name.
const HERE: &str = "# here";

// Each line holds one mistake.
#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    // Values without a unit or with a wrong one.
    mistake(r#"least = "10mbit""#, r#"least = "10" }, # here
  { of = "load.goodput_bit_per_s.mean", least = "10mbit""#, "expect", "has no unit"),
    mistake("repeats = 2\n", "repeat = 2 # here\n", "repeat", "did you mean `repeats`?"),
    mistake(r#"delay = "0.5ms""#, r#"delay = "50" # here"#, "bed: wire: delay", "write a time with ns, us, ms, s, min or h, as in 20ms"),
    mistake("repeats = 2\n", "repeats = 2\nlate_budget = \"2s\" # here\n", "late_budget", "above 0 and at most 1s, as in 1ms"),
    mistake("repeats = 2\n", "repeats = 2\nlate_budget = 0 # here\n", "late_budget", "write a time with ns, us, ms, s, min or h"),
    mistake(r#"link.delay = "10ms""#, "link.delay = 10 # here", "link: delay", "write a time"),
    mistake(r#"rate = "20mbit""#, r#"rate = "20mbps" # here"#, "link: rate", "write 20mbit, or 160mbit if bytes are meant"),
    mistake(r#"rate = "20mbit""#, "rate = \"20mbit\"\nloss = 1 # here", "link: loss", "a text such as 1%,burst=8"),
    mistake(r#"rate = "20mbit""#, "rate = \"20mbit\"\nloss = \"1%,8\" # here", "link: loss", "burst=8"),
    mistake(r#"rate = "20mbit""#, "rate = \"20mbit\"\nber = 1.5 # here", "link: ber", "below 1, as in 1e-6"),
    mistake(r#"queue = "50ms""#, "queue = \"50ms\"\n[[bases.line.link.stages]]\nkind = \"four-state\"\np13 = \"1%\"\np31 = \"60%\"\np32 = \"50%\" # here",
        "link: stages: four-state: p32", "p31 and p32, which leave state 3, must not exceed 100%"),
    mistake(r#"queue = "50ms""#, "queue = \"50ms\"\n[[bases.line.link.stages]]\nkind = \"indexes\"\nindexes = [7, 3] # here",
        "link: stages: indexes: indexes", "in ascending order"),
    mistake(r#"link.delay = "10ms""#, "link.delay = \"10ms\"\nlink.reorder = \"5%,gap=0\" # here", "link: reorder", "gap=3"),
    mistake(r#"queue = "50ms""#, "queue = \"50ms\"\nreorder = \"5%\" # here", "link: reorder", "set delay too"),
    mistake(r#"queue = "50ms""#, "queue = \"50ms\"\n[[bases.line.link.stages]]\nkind = \"reorder\"\nshare = \"1%\"\nextent = 0 # here",
        "link: stages 1: extent", "a whole number of at least 1"),
    mistake(r#"["10ms", "100ms"]"#, r#"["10ms", "100"] # here"#, "link: queue", "100pkt"),
    mistake(r#"quick = { count = 5 }"#, "timeout = 30 # here", "instruments 1: timeout", "write a time"),
    mistake(r#"least = "10mbit" }"#, r#"least = "10ms" }, # here"#, "expect 1: least", "as in 10mbit"),
    mistake(r#"within = "10%" }"#, r#"within = "ten" } # here"#, "expect 2: within", "as in 20ms"),
    mistake(r#"median" = "31ms""#, r#"median" = "31 apples""#, "published: latency.rtt_ms.median", "write a time"),
    mistake(r#"median" = "31ms""#, r#"median" = ["31ms", "31 apples"]"#, "published: latency.rtt_ms.median 2", "write a time"),
    mistake(r#"median" = "31ms""#, r#"median" = ["31ms", "31"]"#, "published: latency.rtt_ms.median", "has no unit"),
    mistake(r#"median" = "31ms""#, r#"median" = []"#, "published: latency.rtt_ms.median", "a value for each run"),
    // Impossible counts.
    mistake("repeats = 2\n", "repeats = 0 # here\n", "repeats", "from 1 to 100000"),
    mistake("[quick]\nrepeats = 1", "[quick]\nrepeats = 0 # here", "quick: repeats", "at least 1"),
    mistake("repeats = 2\n", "repeats = { of = \"latency.rtt_ms.median\", within = \"5%\", most = 99 } # here\n",
        "repeats: most", "the first 5 decide it"),
    mistake(r#"kind = "netns""#, "kind = \"netns\"\nmtu = 150 # here", "bed: mtu", "1280 to 65535"),
    mistake("count = 20, interval", "count = \"many\", interval", "instruments 1: parameters: count", "write a whole number, as in 3"),
    mistake("kind = \"ping\"", "kind = \"ping\"\ncsv = true # here", "instruments 1: csv", "ping has no CSV; probe has one"),
    // Unknown keys.
    mistake(r#"title = "An"#, r#"titel = "An"#, "unknown key `titel`", "did you mean `title`?"),
    mistake(r#"delay = "0.5ms""#, r#"dealy = "0.5ms" # here"#, "bed: wire: unknown key `dealy`", "did you mean `delay`?"),
    mistake("congestion =", "congestoin =", "tcp: unknown key `congestoin`", "`congestion`"),
    mistake(r#"note = "as rented""#, r#"nota = "as rented" # here"#, "unknown key `nota`", "did you mean `note`?"),
    mistake("parameters = { count = 20", "paramters = { count = 20", "instruments 1: unknown key `paramters`", "did you mean `parameters`?"),
    mistake("{ time = \"5s\" }", "{ tiem = \"5s\" } # here", "instruments 2: parameters: tiem", "did you mean `time`?"),
    mistake("quick = { count = 5 }", "quick = { cuont = 5 } # here", "instruments 1: quick: cuont", "did you mean `count`?"),
    mistake("parameters.load = { parallel = 3 }", "parameters.load = { paralel = 3 } # here",
        "parameters: load: paralel", "did you mean `parallel`?"),
    mistake("least = \"10mbit\" }", "lest = \"10mbit\" }, # here", "expect 1: unknown key `lest`", "did you mean `least`?"),
    mistake("\"link.queue\" =", "\"link.qeue\" =", "link: unknown key `qeue`", "did you mean `queue`?"),
    mistake(r#"kind = "netns""#, "kind = \"netns\"\nnodes = [\"a\", \"b\"] # here",
        "bed: unknown key `nodes`", "use one of: mtu, offloads, tbf, wire"),
    mistake(r#"link.delay = "10ms""#, r#"link.satellite = "geo" # here"#, "link: unknown key `satellite`", "use one of: profile, based_on, delay"),
    mistake(r#"link.delay = "10ms""#, r#"link.profile = "geo-sat" # here"#, "link: profile", "did you mean `geo-satellite`?"),
    // Names of things that do not exist.
    mistake(r#"name = "office""#, r#"name = "../office" # here"#, "name: `../office`", "begin with a letter or a digit"),
    mistake(r#"kind = "ping""#, r#"kind = "pnig" # here"#, "instruments 1: kind", "did you mean `ping`?"),
    mistake(r#"kind = "netns""#, r#"kind = "netsn" # here"#, "bed: kind", "did you mean `netns`?"),
    mistake("name = \"idle\"\nbase = \"line\"", "name = \"idle\"\nbase = \"lien\" # here", "base", "did you mean `line`?"),
    mistake(r#"instruments = ["latency"]"#, r#"instruments = ["delay"] # here"#,
        "instruments 1: there is no instrument `delay`", "use one of: latency, load"),
    mistake("parameters.load =", "parameters.laod =", "parameters: laod", "did you mean `load`?"),
    mistake("{ of = \"load.", "{ of = \"tcp.", "expect 1: of", "use one of: latency, load"),
    mistake("load.goodput_bit_per_s.mean", "load.goodput.mean", "expect 1: of", "did you mean `goodput_bit_per_s`?"),
    mistake("latency.rtt_ms.median\", gain", "latency.rtt_ms.p99\", gain", "expect 2: of", "it has latency.rtt_ms.m"),
    mistake("load.goodput_bit_per_s.mean", "load.goodput_bit_per_s.mean.64b", "expect 1: of", "it has load.goodput_bit_per_s.mean.up"),
    mistake("of = \"latency.rtt_ms.median\"\nrising", "of = \"latency.rtt_ms.sd\"\nrising", "trends 1: of", "it has latency.rtt_ms.m"),
    mistake("{ \"latency.rtt_ms.median\" = \"31ms\" }", "{ \"latency.rtt_ms.p90\" = \"31ms\" } # here",
        "published: latency.rtt_ms.p90", "it has latency.rtt_ms.m"),
    mistake("repeats = 2\n", "repeats = { of = \"latency.one_way_delay_ms.mean\", within = \"5%\" } # here\n", "repeats: of", "it has latency."),
    mistake(r#"reference = "idle""#, r#"reference = "idel" # here"#, "reference", "did you mean `idle`?"),
    mistake(r#"rising = ["queue"]"#, r#"rising = ["queues"] # here"#, "trends 1: rising 1", "did you mean `queue`?"),
    // Contradictions.
    mistake("rate = \"20mbit\"\nqueue = \"50ms\"", "queue = \"50ms\" # here", "case `idle`: link: queue", "set rate too"),
    mistake("least = \"10mbit\" }", "published = { within = \"5%\" } }, # here",
        "expect 1: load.goodput_bit_per_s.mean", "its value is missing in `published`"),
    mistake("least = \"10mbit\" }", "least = \"10mbit\", ratio = 2 }, # here", "expect 1", "write one of least and most, value, gain, ratio"),
    mistake("gain = \"20ms\", within = \"10%\" }", "gain = \"20ms\" } # here", "expect 2", "say `within`"),
    // Intervals with too few runs of the case, of the reference or of a trend's cases.
    mistake("gain = \"20ms\", within = \"10%\" }", "gain = \"20ms\", within = \"10%\", met = \"unless-contradicted\" }, # here",
        "expect 2: met", "an interval needs at least 5 repeats; case `queue[queue=10ms]` has 2 runs"),
    mistake("least = \"10mbit\" }", "least = \"10mbit\", over = \"median\", met = \"when-shown\" }, # here",
        "expect 1: met", "needs at least 11 repeats"),
    mistake("within = \"10%\" },\n]", "within = \"10%\", met = \"when-shown\" }, # here\n]\nrepeats = 5", "expect 2: met", "case `idle` has 2 runs"),
    mistake("rising = [\"queue\"]", "rising = [\"queue\"]\nmet = \"unless-contradicted\" # here", "trends 1: met", "needs at least 5 repeats"),
    // Comparisons.
    mistake("repeats = 2\n", "repeats = 4\ncompare = [\"queu\"] # here\n", "compare 1: no sweep sets `queu`", "did you mean `queue`?"),
    mistake("repeats = 2\n", "repeats = 2\ncompare = [\"queue\"] # here\n", "compare 1",
        "a comparison needs at least 4 repeats; case `queue[queue=10ms]` has 2 runs"),
    mistake("repeats = 2\n", "repeats = 4\ncompare = [] # here\n", "compare", "name at least one swept field"),
    mistake("repeats = 2\n", "repeats = 4\ncompare = \"queue\" # here\n", "compare", "a list of swept fields"),
    mistake("repeats = 2\n", "repeats = 4\ncompare = { fields = [\"queue\"] } # here\n", "compare: unknown key `fields`", "use one of: by, of"),
    mistake("repeats = 2\n", "repeats = 4\ncompare = { by = [\"queue\"], of = [\"latency.rtt_ms.medain\"] } # here\n",
        "compare: of", "did you mean `median`?"),
    // Spreads.
    mistake("least = \"10mbit\" }", "spread = { most = \"2%\" } }, # here",
        "expect 1: spread", "a spread needs at least 5 repeats; case `queue[queue=10ms]` has 2 runs"),
    mistake("least = \"10mbit\" }", "spread = { most = \"2%\" }, met = \"when-shown\" }, # here", "expect 1: spread", "leave `over` and `met` out"),
    mistake("least = \"10mbit\" }", "spread = { most = \"2ms\" } }, # here", "expect 1: spread: most", "not a percentage such as 15%"),
    mistake("least = \"10mbit\" }", "spread = {} }, # here", "expect 1: spread", "write least, most or both"),
    mistake("rising = [\"queue\"]", "rising = [\"queue\"]\nmet = \"shown\" # here", "trends 1: met", "did you mean `when-shown`?"),
    mistake("rising = [\"queue\"]", "rising = [\"queue\"]\nover = \"medain\" # here", "trends 1: over", "did you mean `median`?"),
    mistake("name = \"load\"", "name = \"latency\" # here", "instruments 2: name", "its own name"),
    mistake("name = \"queue\"", "name = \"idle\"\nsweep = [] # here\n[[cases]]\nname = \"idle\"", "sweep", "it sets no field"),
    mistake("\"link.queue\" = [\"10ms\", \"100ms\"]", "\"link.queue\" = [\"10ms\", \"100ms\"]\n\"link.loss\" = [\"1%\"] # here",
        "sweep: link.loss", "it has 1 value, but the key before it has 2 values: all keys of one table need the same number of values"),
    mistake("\"link.queue\" = [\"10ms\", \"100ms\"]", "\"link.queue\" = [\"10ms\", \"100ms\"]\n\"expect.loss\" = [\"1%\", \"2%\"] # here",
        "sweep: expect.loss", "expect is a list of tables: write the name of one and its key, expect.NAME.KEY"),
    mistake("[[cases]]\nname = \"queue\"", "[cases] # here\nname = \"queue\"", "`cases`", "duplicate key"),
    // Text that is not TOML.
    mistake(r#"link.delay = "10ms""#, "link.delay = 10ms # here", "", "quoted"),
];

/// Returns the line of the mark, or otherwise the line of the wrong text.
fn line_of(text: &str, mistake: &Mistake) -> usize {
    let offset = text.find(HERE).or_else(|| text.find(mistake.wrong));
    text[..offset.unwrap()].matches('\n').count() + 1
}

#[test]
fn a_mistake_is_refused_with_its_line_its_key_and_the_correction() {
    parse("x.toml", SOUND, false).unwrap();
    let mut failures = Vec::new();
    for mistake in MISTAKES {
        assert!(SOUND.contains(mistake.sound), "{}", mistake.sound);
        let text = SOUND.replacen(mistake.sound, mistake.wrong, 1);
        let place = format!("x.toml:{}: ", line_of(&text, mistake));
        match parse("x.toml", &text, false) {
            Ok(_) => failures.push(format!("{}: taken", mistake.wrong)),
            Err(error) => {
                let error = format!("{error:#}");
                let is_right = error.starts_with(&place)
                    && error.contains(mistake.key)
                    && error.contains(mistake.right)
                    && error.lines().count() == 1;
                println!("{error}");
                if !is_right {
                    failures.push(format!(
                        "{place}{} … {}\n   {error}",
                        mistake.key, mistake.right
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_base_is_refused_if_there_are_no_bases() {
    let text = "name = 'x'\n[[instruments]]\nkind = 'ping'\n[[cases]]\nname = 'a'\nbase = 'lan'\n";
    let error = parse("x.toml", text, false).unwrap_err().to_string();
    assert_eq!(
        error,
        "x.toml:6: base: there is no `bases.lan`; there are none"
    );
}
