use model::{
    Effect, FourState, GilbertElliott, Nanos, NetemDistribution, NetemLoss, NetemRate, NetemShare,
    NetemSlot, NetemSlotDelay, Probability,
};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::{ConditionSet, LinkSpec, read as reader, warnings};

fn read(text: &str) -> Netem {
    let spec: NetemSpec = text
        .parse()
        .unwrap_or_else(|cause| panic!("{text}: {cause}"));
    spec.0
}

fn percent(text: &str) -> Probability {
    text.parse().unwrap()
}

fn share(share: &str, correlation: Option<&str>) -> NetemShare {
    NetemShare {
        share: percent(share),
        correlation: correlation.map(percent),
    }
}

#[test]
fn every_option_is_read() {
    let all = "limit 2k delay 100ms 10ms 25% distribution normal loss random 1% 25% ecn \
               duplicate 1% 5 reorder 25% 50% gap 5 corrupt 0.1% 10% rate 5kbit 20 100 -5 \
               slot 800us 1ms packets 10 bytes 10k seed 7";
    let netem = Netem {
        limit: 2_048,
        delay: Nanos::from_millis(100),
        jitter: Nanos::from_millis(10),
        delay_correlation: Some(percent("25%")),
        distribution: Some(NetemDistribution::Normal),
        loss: NetemLoss::Random(share("1%", Some("25%"))),
        ecn: true,
        corrupt: Some(share("0.1%", Some("10%"))),
        duplicate: Some(share("1%", Some("5%"))),
        reorder: Some(share("25%", Some("50%"))),
        gap: 5,
        rate: Some(NetemRate {
            bytes_per_s: 625,
            packet_overhead: 20,
            cell_size: 100,
            cell_overhead: -5,
        }),
        slot: Some(NetemSlot {
            delay: NetemSlotDelay::Uniform(Nanos::from_micros(800), Nanos::from_millis(1)),
            packets: 10,
            bytes: 10_240,
        }),
        seed: Some(7),
    };
    assert_eq!(read(all), netem);
    let shortened = "lim 2k d 100ms 10ms 25 di normal lo 1 25 e du 1% 5% reo 25 50 g 5 c 0.1 10 \
                     rat 5kbit 20 100 -5 sl 800us 1ms p 10 b 10240 se 7";
    assert_eq!(read(shortened), netem);
}

#[test]
fn omitted_options_have_tcs_defaults() {
    assert_eq!(read("delay 0ms"), Netem::PLAIN);
    assert_eq!(read(""), Netem::PLAIN);
    assert_eq!(Netem::PLAIN.limit, 1_000);
    let gemodel = |to_good, bad_loss, good_loss| {
        NetemLoss::Gemodel(GilbertElliott {
            to_bad: percent("1%"),
            to_good: percent(to_good),
            bad_loss: percent(bad_loss),
            good_loss: percent(good_loss),
            ecn: false,
        })
    };
    assert_eq!(read("loss gemodel 1%").loss, gemodel("99%", "100%", "0%"));
    assert_eq!(read("loss gemodel 1 10").loss, gemodel("10%", "100%", "0%"));
    assert_eq!(
        read("loss gemodel 1% 10% 70% 0.1%").loss,
        gemodel("10%", "70%", "0.1%")
    );
    let state = |p31, p32, p23, p14| {
        NetemLoss::State(FourState {
            p13: percent("1%"),
            p31: percent(p31),
            p32: percent(p32),
            p23: percent(p23),
            p14: percent(p14),
            ecn: false,
        })
    };
    assert_eq!(read("loss state 1%").loss, state("99%", "0%", "100%", "0%"));
    assert_eq!(
        read("loss state 1 20 30 40 5").loss,
        state("20%", "30%", "40%", "5%")
    );
    let slot = read("slot distribution pareto 10ms 1ms").slot.unwrap();
    let times = [10, 1].map(Nanos::from_millis);
    let [mean, jitter] = times;
    let law = NetemDistribution::Pareto;
    assert_eq!(slot.delay, NetemSlotDelay::Table(law, mean, jitter));
    assert_eq!([slot.packets, slot.bytes], [0, 0]);
    let once = NetemSlotDelay::Uniform(mean, mean);
    assert_eq!(read("slot 10ms").slot.unwrap().delay, once);
}

#[test]
fn examples_of_the_manual_page_are_read() {
    // The examples of tc-netem(8) of iproute2 6.1 and 7.1, without the two that tc itself refuses or that are about
    // another qdisc.
    for example in [
        "delay 100ms",
        "delay 100ms 10ms 25%",
        "delay 100ms 20ms distribution normal",
        "loss 0.1%",
        "duplicate 1%",
        "loss 0.3% 25%",
        "delay 10ms reorder 25% 50%",
        "delay 10ms reorder 25% 50% gap 5",
        "delay 100ms 75ms",
        "delay 10ms 100ms",
        "rate 5kbit 20 100 5",
        "delay 200ms 10ms distribution normal",
    ] {
        read(example);
    }
}

#[test]
fn rates_have_the_same_meaning_as_in_tc() {
    for (text, bytes) in [
        ("10mbit", 1_250_000),
        ("1mbps", 1_000_000),
        ("1KBps", 1_000),
        ("1kibit", 128),
        ("1000", 125),
        ("12bit", 1),
        ("1.5gbit", 187_500_000),
    ] {
        let rate = read(&format!("rate {text}")).rate.unwrap();
        assert_eq!(rate.bytes_per_s, bytes, "{text}");
    }
}

#[test]
fn numbers_are_read_as_by_tc() {
    assert_eq!(
        read("loss 1e-05%").loss,
        NetemLoss::Random(share("0.00001%", None))
    );
    assert_eq!(read("rate 1e6").rate.unwrap().bytes_per_s, 125_000);
    assert_eq!(read("delay .5ms").delay, Nanos::from_micros(500));
    assert_eq!(read("delay 1e-3s").delay, Nanos::from_millis(1));
    assert_eq!(read("delay 0x10ms").delay, Nanos::from_millis(16));
    assert_eq!(read("delay 0"), Netem::PLAIN);
    let slot = read("slot 0 5ms").slot.unwrap();
    let times = NetemSlotDelay::Uniform(Nanos::ZERO, Nanos::from_millis(5));
    assert_eq!(slot.delay, times);
    assert_eq!(read("limit 1.5k").limit, 1_536);
    assert_eq!(read("limit 1mbit").limit, 131_072);
    assert_eq!(read("delay 1ms reorder 1% gap 010").gap, 8);
    assert_eq!(read("rate 5kbit -0x10").rate.unwrap().packet_overhead, -16);
}

/// The strings that only one of tc's parser and this one accepts, by the reason that `docs/netem.md` gives.
const DIFFERENCES: &[(&str, &[&str])] = &[
    (
        "a time other than 0 without a unit",
        &[
            "delay 100",
            "delay 2.5",
            "delay 100ms 100",
            "delay 100ms 2.5",
            "slot 100",
            "slot 2.5",
            "slot 0 100",
            "slot 0 2.5",
            "slot distribution normal 100 1ms",
            "slot distribution normal 2.5 1ms",
        ],
    ),
    (
        "an option given twice",
        &[
            "delay 1ms delay 2ms",
            "latency 1ms delay 2ms",
            "limit 5 limit 6",
            "loss 0% loss 2%",
            "rate 5kbit 20 -1 rate 5kbit",
            "delay 1s 5.ms 0x1p-2 delay 10msecs 5.ms loss random 5.% 100",
            "slot 0.5ms 100ms delay 0x10ms 0x.8s distribution normal delay +5ms 100ms 1e-3% slot 0x.8s packets 10",
        ],
    ),
    ("a `limit` of 0", &["limit 0", "limit 0.5"]),
    (
        "a `rate` below one byte per second",
        &["rate 0", "rate 0mbit", "rate 7bit"],
    ),
    (
        "a `slot` of 0",
        &[
            "slot 0",
            "slot 0.0",
            "slot 0ms",
            "slot 0 0",
            "slot 0 0.0",
            "slot 0 0ms",
        ],
    ),
    (
        "a negative number",
        &[
            "rate -1mbit",
            "slot 1ms 2ms packets -3",
            "slot distribution normal -1ms 1ms",
        ],
    ),
    (
        "`inf`, `nan` and numbers that are too large",
        &[
            "delay inf",
            "delay nan",
            "delay 1e400s",
            "delay 100ms 1e400s",
            "delay 10ms reorder nan",
            "duplicate nan",
            "loss random nan",
            "loss state nan",
            "rate nan",
            "rate 1e400mbit",
            "slot 1e400s",
            "slot distribution normal inf 1ms",
            "slot distribution normal nan 1ms",
            "slot distribution normal 1e400s 1ms",
        ],
    ),
    (
        "a percent sign without a number",
        &[
            "loss random %",
            "loss state %",
            "duplicate %",
            "delay 10ms reorder %",
        ],
    ),
    (
        "transitions out of one state whose sum is above 100 %",
        &["loss state 60% 10% 10% 10% 60%", "loss state 1% 60% 60%"],
    ),
    (
        "`distribution experimental`",
        &[
            "delay 100ms 10ms distribution experimental",
            "slot distribution experimental 10ms 1ms",
        ],
    ),
    ("`s` for `slot`", &["s 1ms"]),
    ("`seed`", &["seed 7"]),
    (
        "nanoseconds in `delay`",
        &["delay 20ns", "delay 100ms 20ns"],
    ),
    ("a `delay` above 274 s", &["delay 300s", "delay 100ms 300s"]),
    (
        "minutes and hours",
        &[
            "delay 5min",
            "delay 1h",
            "delay 100ms 5min",
            "delay 100ms 1h",
            "slot 5min",
            "slot 1h",
            "slot 0 5min",
            "slot 0 1h",
            "slot distribution normal 5min 1ms",
            "slot distribution normal 1h 1ms",
        ],
    ),
];

#[test]
fn options_are_accepted_and_refused_as_by_tc_or_the_difference_is_documented() {
    let page = include_str!("../../../../../docs/netem.md");
    let page: Vec<&str> = page.split_whitespace().collect();
    let page = page.join(" ");
    let mut differing: Vec<&str> = Vec::new();
    for (reason, options) in DIFFERENCES {
        assert!(
            page.contains(reason),
            "docs/netem.md does not list: {reason}"
        );
        differing.extend(*options);
    }
    let verdicts = include_str!("verdicts.txt").lines();
    let verdicts = verdicts.filter_map(|line| line.split_once('\t'));
    let mut compared = 0;
    for (verdict, options) in verdicts {
        compared += 1;
        let ours = options.parse::<NetemSpec>();
        let is_listed = differing.contains(&options);
        differing.retain(|listed| *listed != options);
        assert_eq!(
            (verdict == "accepted") == ours.is_ok(),
            !is_listed,
            "`{options}`: {verdict} by tc, here {ours:?}"
        );
    }
    assert!(compared > 150, "{compared}");
    assert_eq!(differing, Vec::<&str>::new(), "tc was not asked");
}

#[test]
fn netem_errors_contain_advice() {
    for case in [
        "gap 5 delay 10ms => write reorder 100% gap 5 for every fifth packet",
        "delay 10ms 1ms distribution uniform => leave distribution out",
        "delay 10ms 1ms distribution experimental => normal, pareto or paretonormal, or leave distribution out",
        "delay 10ms distribution normal => write both times",
        "delay 100 => 100us before iproute2 6.9, and for 100ns since",
        "delay => a time, as in delay 100ms",
        "delay 10ms 5 => delay: `5` has no unit",
        "delay 1ms delay 2ms => delay: given twice",
        "latency 1ms delay 2ms => delay: given twice",
        "loss 101% => loss: `101%` is out of range",
        "loss -1% => loss: `-1%` is not a loss model",
        "loss random => loss random: its value is missing",
        "loss state 60% 10% 10% 10% 60% => p13 and p14 together",
        "loss state 1% 60% 60% => p31 and p32 together",
        "ecn => set loss too",
        "loss 0% ecn => set loss too",
        "reorder 25% 50% => set delay too",
        "delay 1ms reorder 0% gap 3 => tc refuses gap without reorder",
        "slot 10ms 5ms => write the longer time second",
        "slot 0ms => as in slot 10ms",
        "slot distribution normal 10ms 0ms => jitter above 0",
        "slot distribution custom 10ms 1ms => slot distribution: farwire does not read tc's file `custom` here: use normal",
        "slot => its value is missing",
        "slot 1ms bytes 3 packets 4 => `packets`: netem has no such option",
        "slot 10ms packets => as in packets 10",
        "limit 0 => at least 1",
        "limit 5000000000 => out of range",
        "limit ten => `ten` is not a number",
        "rate 10% => of a device's speed",
        "rate 7bit => leave rate out",
        "rate fast => write it as 10mbit",
        "dealy 10ms => did you mean `delay`?",
        "10ms => `10ms`: netem has no such option",
        "seed -1 => out of range",
        "slot 5 => tc takes it for 5ns",
        "slot 10ms packets 10k => not a whole number",
        "slot 10ms packets -3 => out of range",
        "rate -1mbit => out of range",
        "delay -1ms => out of range",
        "duplicate % => `%` is not a percentage",
    ] {
        let (text, cause) = case.split_once(" => ").unwrap();
        let error = text.parse::<NetemSpec>().unwrap_err().to_string();
        assert!(error.contains(cause), "{text}: {error}");
    }
}

#[test]
fn netem_is_written_as_tc_prints_it() {
    for text in [
        "limit 1000",
        "delay 100ms 10ms 25% distribution normal loss 1% ecn",
        "delay 1001ms 26550us rate 60900kbit",
        "limit 50 delay 10ms reorder 25% 50% gap 5",
        "loss gemodel 1% 10% 70% 0.1%",
        "duplicate 1% 50% corrupt 0.1%",
        "rate 5kbit 20 100 5 slot 800us 1ms packets 3 bytes 10240 seed 7",
        "slot distribution paretonormal 10ms 1ms",
    ] {
        assert_eq!(NetemSpec(read(text)).to_string(), text);
    }
}

fn link(text: &str) -> LinkSpec {
    reader::toml_text(text).unwrap_or_else(|cause| panic!("{text}: {cause}"))
}

#[test]
fn deviations_of_netem_from_its_options_are_noted_once() {
    let notes =
        |text: &str| warnings::of_link(&link(text).to_link("box").unwrap().config).join("\n");
    for case in [
        "delay 100ms => at most 121 Mbit/s of full frames pass",
        "limit 99 delay 10ms 1ms 25% => no effect with less than 2.1s of jitter",
        "limit 99 delay 10ms 1ms 25% distribution normal => no effect with a distribution",
        "limit 99 delay 3s 2500ms => becomes 2.147s",
        "loss 10% 25% => loses 1.7",
        "duplicate 1% 50% => the correlation of 50% has no effect",
        "loss state 1% 50% 50% => p31 and p32 add up to 100%",
        "limit 9 seed 7 => other random numbers from this seed than the kernel does",
    ] {
        let (options, note) = case.split_once(" => ").unwrap();
        let notes = notes(&format!("netem = '{options}'\n[up]\nnetem = '{options}'"));
        assert!(notes.contains(note), "{options}: {notes}");
        assert!(notes.lines().count() == 1, "{options}: {notes}");
    }
    for options in [
        "limit 99 delay 10ms",
        "loss 1%",
        "limit 99 delay 3s 2100ms 25%",
        "duplicate 1%",
        "loss 1% 0% duplicate 1% 50%",
    ] {
        assert_eq!(notes(&format!("netem = '{options}'")), "", "{options}");
    }
}

#[test]
fn netem_is_a_stage_of_each_direction_between_rate_and_loss() {
    let hop = link("netem = 'delay 1ms'\nloss = '1%'\nrate = '1mbit'\n[down]\nnetem = 'loss 2%'")
        .hop("box")
        .unwrap();
    let names = |stages: &[model::StageSpec]| {
        stages
            .iter()
            .map(|one| one.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&hop.rest.up),
        ["box.up.rate", "box.up.netem", "box.up.loss"]
    );
    let own = |text: &str| Effect::Netem(Box::new(read(text)));
    assert_eq!(hop.rest.up[1].effect, own("delay 1ms"));
    assert_eq!(hop.rest.down[1].effect, own("loss 2%"));
    let text = "delay = '1ms'\nnetem = 'gap 5'";
    let error = reader::toml_text::<LinkSpec>(text).unwrap_err();
    assert_eq!(error.span.clone().map(|span| &text[span]), Some("'gap 5'"));
    let error = error.to_string();
    assert!(error.contains("write reorder 100% gap 5"), "{error}");
}

fn any_percent() -> impl Strategy<Value = Probability> {
    let percent = (0_u32..=100_000).prop_map(|n| f64::from(n) / 1_000.0);
    percent.prop_map(|percent| Probability::from_percent(percent).unwrap())
}

fn any_share() -> impl Strategy<Value = NetemShare> {
    let both = (any_percent(), option::of(any_percent()));
    both.prop_map(|(share, correlation)| NetemShare { share, correlation })
}

fn any_law() -> impl Strategy<Value = NetemDistribution> {
    use NetemDistribution::{Normal, Pareto, ParetoNormal};
    prop::sample::select(vec![Normal, Pareto, ParetoNormal])
}

fn any_loss() -> impl Strategy<Value = NetemLoss> {
    let half = || any_percent().prop_map(|p| Probability::from_percent(p.percent() / 2.0).unwrap());
    let state = (half(), half(), half(), any_percent(), half());
    let gemodel = [any_percent(), any_percent(), any_percent(), any_percent()];
    prop_oneof![
        Just(NetemLoss::Nothing),
        any_share().prop_map(NetemLoss::Random),
        state.prop_map(|(p13, p31, p32, p23, p14)| {
            NetemLoss::State(FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
                ecn: false,
            })
        }),
        gemodel.prop_map(|[to_bad, to_good, bad_loss, good_loss]| {
            NetemLoss::Gemodel(GilbertElliott {
                to_bad,
                to_good,
                bad_loss,
                good_loss,
                ecn: false,
            })
        }),
    ]
}

fn any_slot() -> impl Strategy<Value = NetemSlot> {
    let times = (0_u64..1 << 40, 1_u64..1 << 40);
    let delay = (option::of(any_law()), times).prop_map(|(law, (first, second))| {
        let [first, second] = [Nanos(first), Nanos(second)];
        law.map_or(NetemSlotDelay::Uniform(first, first + second), |law| {
            NetemSlotDelay::Table(law, first, second)
        })
    });
    let slot = (delay, 0_u32..=i32::MAX.unsigned_abs(), any::<u32>());
    slot.prop_map(|(delay, packets, bytes)| NetemSlot {
        delay,
        packets,
        bytes,
    })
}

/// Generates any netem that tc would accept.
fn any_netem() -> impl Strategy<Value = Netem> {
    let rate = (1_u64..1 << 40, any::<i32>(), any::<u32>(), any::<i32>());
    let rate =
        rate.prop_map(
            |(bytes_per_s, packet_overhead, cell_size, cell_overhead)| NetemRate {
                bytes_per_s,
                packet_overhead,
                cell_size,
                cell_overhead,
            },
        );
    let times = (0_u64..1 << 40, 0_u64..1 << 40, option::of(any_percent()));
    let shares = [any_share(), any_share(), any_share()].map(option::of);
    let laws = (times, option::of(any_law()), any_loss(), any::<bool>());
    let rest = (
        shares,
        any::<u32>(),
        option::of(rate),
        option::of(any_slot()),
    );
    let all = (1_u32.., laws, rest, option::of(any::<u64>()));
    let netem = all.prop_map(|(limit, laws, rest, seed)| {
        let ((delay, jitter, delay_correlation), distribution, loss, ecn) = laws;
        let ([corrupt, duplicate, reorder], gap, rate, slot) = rest;
        Netem {
            limit,
            delay: Nanos(delay),
            jitter: Nanos(jitter),
            delay_correlation,
            distribution: distribution.filter(|_| delay > 0 && jitter > 0),
            loss,
            ecn,
            corrupt,
            duplicate,
            reorder: reorder.filter(|_| delay > 0),
            gap: if delay > 0 && reorder.is_some_and(|of| of.share > Probability::ZERO) {
                gap
            } else {
                0
            },
            rate,
            slot,
            seed,
        }
    });
    netem.prop_map(|netem| {
        let loses = match netem.loss {
            NetemLoss::Nothing => false,
            NetemLoss::Random(of) => of.share > Probability::ZERO,
            _ => true,
        };
        Netem {
            ecn: netem.ecn && loses,
            ..netem
        }
    })
}

/// Asserts that a text that is accepted is read as the same value after it was written.
fn again(text: &str) {
    if let Ok(netem) = text.parse::<NetemSpec>() {
        assert_eq!(netem.to_string().parse(), Ok(netem), "{text}");
    }
}

proptest! {
    #[test]
    fn written_options_are_read_as_the_same_value(netem in any_netem()) {
        let text = NetemSpec(netem).to_string();
        prop_assert_eq!(text.parse::<NetemSpec>(), Ok(NetemSpec(netem)), "{}", text);
        // tc would multiply a fraction of a time or a rate in floating point and cut off what is left. Only shares are
        // percentages with fractions.
        let has_fraction = |word: &str| word.contains('.') && !word.ends_with('%');
        prop_assert!(!text.split(' ').any(has_fraction), "{}", text);
        let both = ConditionSet::from(NetemSpec(netem)).into();
        let [up, down] = LinkSpec { both, ..LinkSpec::default() }.as_netem();
        prop_assert_eq!(up.netem.to_string().parse::<NetemSpec>(), Ok(NetemSpec(netem)));
        prop_assert_eq!((up.unsaid, down.unsaid), (vec![], vec![]));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*", words in prop::collection::vec(
        prop::sample::select(vec![
            "limit", "delay", "loss", "state", "gemodel", "random", "reorder", "gap", "duplicate", "corrupt", "rate", "slot",
            "distribution", "normal", "packets", "bytes", "seed", "ecn", "1%", "25", "10ms", "-5", "10mbit", "1k", "99999999999", "é",
        ]), 0..12)
    ) {
        [text, words.join(" ")].iter().for_each(|text| again(text));
    }
}
