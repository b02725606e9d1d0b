//! Conditions as they are written, and the stages that they make.

use std::num::{NonZeroU8, NonZeroU32};

use super::*;
use crate::link::hop::DEFAULT_QUEUE;
use crate::toffee::DEFAULT_TOFFEE_QUEUE;
use std::str::FromStr;
use std::sync::Arc;

use model::{
    BitErrorRate, BitsPerSec, Bytes, Cells, Codel, Delay, Discipline, DualPi2, Effect, FourState,
    FqCodel, Framing, Gate, GilbertElliott, HoldBack, Jitter, Law, Nanos, Ordering, Pie, Police,
    Probability, QueueLimit, RandomLoss, Rate, Red, Reorder, Side, Slots, StageSpec, Stall, Toffee,
    Weights,
};

fn hop(text: &str) -> Hop {
    let spec: LinkSpec = read::toml_text(text).unwrap();
    spec.check().unwrap();
    spec.hop("box").unwrap()
}

/// Returns the effect of the stage with this name, in either direction.
fn effect(hop: &Hop, name: &str) -> Option<Effect> {
    let mut all = hop.rest.up.iter().chain(&hop.rest.down);
    let found = all.find(|stage| stage.name == format!("box.{name}"));
    found.map(|stage| stage.effect.clone())
}

fn delay(text: &str) -> Option<Effect> {
    Some(Effect::Delay(Delay {
        time: text.parse().unwrap(),
        ..Delay::default()
    }))
}

fn loss(text: &str) -> Option<Effect> {
    Some(Effect::Loss(text.parse().unwrap()))
}

fn rate(hop: &Hop, way: &str) -> Rate {
    match effect(hop, &format!("{way}.rate")) {
        Some(Effect::Rate(rate)) => rate,
        other => panic!("{other:?}"),
    }
}

fn toffee(hop: &Hop) -> Toffee {
    match effect(hop, "toffee") {
        Some(Effect::Toffee(toffee)) => toffee,
        other => panic!("{other:?}"),
    }
}

fn refusal(text: &str) -> String {
    match read::toml_text::<LinkSpec>(text) {
        Ok(spec) => spec.check().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_stall_has_its_period_and_its_length() {
    let text = "[[stages]]\nkind = 'stall'\ndirection = 'up'\nevery = '15s'\nlasts = '100ms'";
    let stall = Stall {
        every: Nanos::from_secs(15),
        lasts: Nanos::from_millis(100),
    };
    assert_eq!(
        hop(text).rest.up,
        [StageSpec::new("box.up.stall", Effect::Stall(stall))]
    );
    let error = refusal("[[stages]]\nkind = 'stall'\nevery = '15s'");
    assert!(error.contains("lasts = \"100ms\""), "{error}");
}

#[test]
fn a_common_value_holds_in_both_directions() {
    let hop = hop("delay = '20ms'\nloss = '1%'");
    for way in ["up", "down"] {
        assert_eq!(effect(&hop, &format!("{way}.delay")), delay("20ms"));
        assert_eq!(effect(&hop, &format!("{way}.loss")), loss("1%"));
    }
}

#[test]
fn a_direction_overrides_the_common_value() {
    let hop = hop("delay = '20ms'\nrate = '1mbit'\n[up]\nrate = '2mbit'\nqueue = '5pkt'");
    assert_eq!(effect(&hop, "up.delay"), effect(&hop, "down.delay"));
    assert_eq!(rate(&hop, "up").rate, "2mbit".parse().ok());
    assert_eq!(rate(&hop, "up").queue, QueueLimit::Packets(5).into());
    assert_eq!(rate(&hop, "down").queue, DEFAULT_QUEUE.into());
}

#[test]
fn toffee_is_a_table_or_a_text() {
    let text = hop("toffee = 'delay=1ms,dynamic=1,drop=2'");
    let table = hop("[toffee]\ndelay = '1ms'\ndynamic = 1\ndrop = 2");
    assert_eq!(text, table);
    assert_eq!(toffee(&text).queue, DEFAULT_TOFFEE_QUEUE.into());
    let names = |stages: &[StageSpec]| stages.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&text.rest.up), ["box.toffee", "box.up.drop"]);
    assert_eq!(names(&text.rest.down), ["box.toffee", "box.down.drop"]);
}

#[test]
fn the_drop_factor_gives_the_fitted_loss() {
    let loss = |drop: &str, way: &str| {
        let hop = hop(&format!("toffee = '{drop}'"));
        match effect(&hop, &format!("{way}.drop")) {
            None => Probability::ZERO,
            Some(Effect::Loss(loss)) => loss.share,
            other => panic!("{other:?}"),
        }
    };
    for way in ["up", "down"] {
        assert_eq!(loss("drop=1", way).percent(), 5.5);
        assert_eq!(loss("drop=4", way).percent(), 5.5 / 32.0);
        assert!((loss("drop=2", way).percent() - 0.9723).abs() < 0.0001);
        assert_eq!(loss("delay=1ms", way), Probability::ZERO);
    }
    assert_eq!(
        refusal("toffee = 'drop=0.5'"),
        "toffee: drop: 0.5 is out of range: a drop factor is at least 1"
    );
}

#[test]
fn a_rate_may_fluctuate() {
    let hop = hop("rate = '22mbit'\nfluctuation = { spread = '20%', hold = '5s' }");
    let fluctuation = rate(&hop, "up").fluctuation.unwrap();
    assert_eq!(fluctuation.hold, "5s".parse().unwrap());
    assert_eq!(rate(&hop, "up"), rate(&hop, "down"));
    assert!(refusal("fluctuation = { spread = '20%', hold = '5s' }").contains("set rate"));
    let all = "rate = '1mbit'\nfluctuation = { spread = '100%', hold = '5s' }";
    assert!(refusal(all).contains("fluctuation: spread = 100% is out of range"));
    let brief = "rate = '1mbit'\nfluctuation = { spread = '1%', hold = '5us' }";
    assert!(refusal(brief).contains("1ms to 3600s"));
}

#[test]
fn a_rate_may_fluctuate_in_one_direction_and_be_written_as_text() {
    let table = hop("rate = '1mbit'\n[up]\nfluctuation = { spread = '20%', hold = '5s' }");
    let text = hop("rate = '1mbit'\n[up]\nfluctuation = 'spread=20%,hold=5s'");
    assert_eq!(table, text);
    assert!(rate(&text, "up").fluctuation.is_some());
    assert!(rate(&text, "down").fluctuation.is_none());
    let alone = "[up]\nfluctuation = 'spread=20%,hold=5s'";
    assert!(refusal(alone).starts_with("up: fluctuation"));
    assert!(refusal("fluctuation = 'spread=20%'").contains("fluctuation: `hold` is missing"));
    assert!(refusal("fluctuation = 'spread=20,hold=5s'").contains("spread: "));
}

#[test]
fn an_unknown_key_is_refused_with_the_known_ones() {
    let message = refusal("dealy = '1ms'");
    assert!(message.contains("unknown key `dealy`; did you mean `delay`?"));
    assert!(refusal("[up]\ntoffee = 'drop=1'").contains("up: unknown key `toffee`"));
}

#[test]
fn overrides_apply_in_each_of_their_directions() {
    let spec = |text: &str| read::toml_text::<LinkSpec>(text).unwrap();
    let file = spec("delay = '1ms'\nloss = '1%'\nseed = 3\n[up]\ndelay = '2ms'\nloss = '2%'");
    let merged = spec("delay = '5ms'\n[down]\nloss = '3%'").or(file);
    let expected = "delay = '5ms'\nloss = '1%'\nseed = 3\nup.loss = '2%'\ndown.loss = '3%'";
    assert_eq!(merged, spec(expected));
}

#[test]
fn a_queue_without_a_rate_is_refused() {
    assert!(refusal("queue = '5pkt'").contains("needs a rate"));
    assert!(refusal("[up]\nqueue = '5pkt'").contains("up: queue"));
}

#[test]
fn a_bare_number_and_an_unknown_unit_are_refused() {
    assert!(refusal("delay = 20").contains("unit"));
    assert!(refusal("delay = '20parsec'").contains("20parsec"));
    assert!(refusal("toffee = 'dealy=1ms'").contains("toffee: unknown key `dealy`"));
    assert!(refusal("toffee = 'delay=1ms,delay=2ms'").contains("twice"));
}

#[test]
fn written_values_are_read_back_equal() {
    let text = "delay = '20ms'\nloss = '1%'\nrate = '10mbit'\nqueue = '64KiB'\nseed = 7\n\
                toffee = 'drop=2'\n[down]\nsize_delay = 2";
    let spec: LinkSpec = read::toml_text(text).unwrap();
    let again: LinkSpec = read::toml_text(&toml::to_string(&spec).unwrap()).unwrap();
    assert_eq!(spec, again);
}

fn names(stages: &[StageSpec]) -> Vec<&str> {
    stages.iter().map(|stage| stage.name.as_str()).collect()
}

#[test]
fn stages_are_in_their_order() {
    let text = "path_mtu = 1300\npolice = '9mbit,burst=9kb'\npps = 9000\nrate = '1mbit'\nloss = '1%'\nber = 1e-6\nduplicate = '1%'\ncorrupt = '1%'\ndelay = '1ms'\n\
                toffee = 'delay=1ms,drop=2'\n\
                stages = [{ kind = 'gate' }, { kind = 'loss', name = 'late', loss = '1%', place = 'last' },\n\
                { kind = 'mtu', mtu = 1400, direction = 'down' }]";
    let hop = hop(text);
    let up = "box.up.gate box.toffee box.up.drop box.up.path-mtu box.up.police box.up.pps box.up.rate box.up.loss box.up.ber box.up.duplicate box.up.corrupt \
              box.up.delay box.up.late";
    assert_eq!(names(&hop.rest.up).join(" "), up);
    let down = "box.down.gate box.down.mtu box.toffee box.down.drop box.down.path-mtu box.down.police box.down.pps box.down.rate box.down.loss box.down.ber \
                box.down.duplicate box.down.corrupt box.down.delay box.down.late";
    assert_eq!(names(&hop.rest.down).join(" "), down);
    assert_eq!(effect(&hop, "up.path-mtu"), Some(Effect::Mtu(1300)));
    let tc = self::hop(
        "netem = 'delay 1ms'\nnetem_at = 'before-rate'\nrate = '1mbit'\n[down]\nnetem_at = 'after-rate'",
    );
    assert_eq!(names(&tc.rest.up), ["box.up.netem-first", "box.up.rate"]);
    assert_eq!(names(&tc.rest.down), ["box.down.rate", "box.down.netem"]);
    assert!(refusal("netem_at = 'before-rate'").contains("set netem too"));
    assert!(refusal("netem = ''\nnetem_at = 'before'").contains("did you mean `before-rate`?"));
    let marks = RandomLoss {
        ecn: true,
        ..RandomLoss::from_str("1%").unwrap()
    };
    assert_eq!(
        effect(&self::hop("loss = '1%,ecn'"), "up.loss"),
        Some(Effect::Loss(marks))
    );
    let bursts = self::hop("loss = '1%,burst=8'");
    assert_eq!(names(&bursts.rest.up), ["box.up.burst-loss"]);
    let law = GilbertElliott::of_bursts("1%".parse().unwrap(), 8.0).unwrap();
    assert_eq!(
        effect(&bursts, "up.burst-loss"),
        Some(Effect::GilbertElliott(law))
    );
    assert!(
        self::hop("loss = '0%,burst=8'\njitter = '0ms'\nduplicate = '0%'")
            .rest
            .up
            .is_empty()
    );
}

#[test]
fn jitter_belongs_to_the_delay_and_is_a_text_or_a_table() {
    let text = hop("delay = '20ms'\njitter = '2ms,normal,free'");
    let table = "delay = '20ms'\njitter = { spread = '2ms', law = 'normal', ordering = 'free' }";
    assert_eq!(text, hop(table));
    let delay = Delay {
        time: "20ms".parse().unwrap(),
        jitter: Some(Jitter::new("2ms".parse().unwrap(), Law::Normal)),
        ordering: Ordering::Free,
        ..Delay::default()
    };
    assert_eq!(effect(&text, "down.delay"), Some(Effect::Delay(delay)));
    assert!(
        refusal("jitter = { spred = '2ms' }")
            .contains("jitter: unknown key `spred`; did you mean `spread`?")
    );
    assert!(refusal("jitter = { spread = '2' }").contains("unit"));
    assert!(refusal("jitter = '7200s'").contains("jitter: 7200s is out of range"));
}

#[test]
fn slots_are_a_stage_of_files() {
    let of = |keys: &str| {
        let stages = hop(&format!("stages = [{{ kind = 'slots', {keys} }}]"));
        effect(&stages, "up.slots")
    };
    let slots = Slots {
        delay: Nanos(2_500_000),
        jitter: Some(Jitter::new(Nanos(1_500_000), Law::Uniform)),
        packets: NonZeroU32::new(3),
        bytes: Some("64KiB".parse().unwrap()),
    };
    let keys = "min = '1ms', max = '4ms', packets = 3, bytes = '64KiB'";
    assert_eq!(of(keys), Some(Effect::Slots(slots.clone())));
    let slots = Slots {
        jitter: Some(Jitter::new(Nanos(1_000_000), Law::ParetoNormal)),
        packets: None,
        bytes: None,
        ..slots
    };
    let keys = "delay = '2.5ms', jitter = '1ms,paretonormal'";
    assert_eq!(of(keys), Some(Effect::Slots(slots)));
    let refused = |keys: &str| refusal(&format!("stages = [{{ kind = 'slots', {keys} }}]"));
    for case in [
        "packets = 3 => `min` is missing",
        "min = '2ms', max = '1ms' => max: 1ms is less than min, 2ms",
        "min = '2ms', delay = '1ms' => delay: set either delay, with jitter, or min and max",
        "min = '2ms', jitter = '1ms' => jitter: jitter belongs to delay",
        "delay = '2ms', jitter = '1ms,free' => jitter: slots keep the order",
        "delay = '2ms', jitter = '1ms,half-life=1s' => jitter: half_life = 1s is out of range",
        "delay = '2ms', bytes = '0b' => bytes: 0b is out of range",
    ] {
        let (keys, right) = case.split_once(" => ").unwrap();
        let error = refused(keys);
        assert!(error.contains(right), "{keys}: {error}");
    }
}

#[test]
fn an_aqm_manages_the_queue_of_a_rate() {
    let of = |aqm: &str| rate(&hop(&format!("rate = '1mbit'\naqm = '{aqm}'")), "up").queue;
    let codel = Codel {
        ecn: true,
        target: Nanos::from_millis(10),
        ..Codel::default()
    };
    let queue = of("codel,ecn,target=10ms");
    assert_eq!(queue.limit, QueueLimit::Packets(1_000));
    assert_eq!(queue.discipline, Discipline::Codel(codel));
    let fq = FqCodel {
        flows: 7,
        ..FqCodel::default()
    };
    assert_eq!(of("fq_codel,flows=7").limit, QueueLimit::Packets(10_240));
    assert_eq!(of("fq_codel,flows=7").discipline, Discipline::FqCodel(fq));
    let dual = Discipline::DualPi2(DualPi2::default());
    assert_eq!(of("dualpi2").limit, QueueLimit::Packets(10_000));
    assert_eq!(of("dualpi2").discipline, dual);
    let red = Red {
        min: Bytes(10_000),
        ..Red::default()
    };
    assert_eq!(
        (
            of("red,min=10kb,max=90kb").limit,
            of("red,min=10kb,max=90kb").discipline
        ),
        (QueueLimit::Bytes(Bytes(360_000)), Discipline::Red(red))
    );
    assert_eq!(of("red,max=30kb"), of("red,min=10kb"));
    let pie = Discipline::Pie(Pie {
        ecn: true,
        ..Pie::default()
    });
    assert_eq!(of("pie,ecn").limit, QueueLimit::Packets(1_000));
    assert_eq!(of("pie,ecn").discipline, pie);
    assert_eq!(of("drop-head").limit, DEFAULT_QUEUE);
    assert!(
        refusal("rate = '1mbit'\naqm = 'red'\nqueue = '50kb'")
            .contains("max = 90kb is out of range: max must not exceed the queue")
    );
    let limited = hop("rate = '1mbit'\naqm = 'codel'\nqueue = '64KiB'");
    assert_eq!(
        rate(&limited, "up").queue.limit,
        QueueLimit::Bytes(Bytes(65_536))
    );
    assert!(refusal("aqm = 'codel'").starts_with("aqm: AQM manages the queue of a rate"));
    assert!(
        refusal("rate = '1mbit'\naqm = 'sfq'")
            .contains("unknown name `sfq`; use one of: drop-head, red, codel")
    );
}

#[test]
fn a_rate_counts_bytes_at_its_layer() {
    let counted = |text: &str| rate(&hop(&format!("rate = '1mbit'\n{text}")), "up").framing;
    assert_eq!(counted(""), Framing::L2);
    assert_eq!(counted("rate_at = 'l1'"), Framing::L1);
    let adsl = Framing {
        overhead: 26,
        mpu: 0,
        cells: Cells::Atm,
    };
    assert_eq!(counted("rate_at = 'pppoe-llcsnap'"), adsl);
    assert_eq!(counted("rate_at = 'atm,overhead=26'"), adsl);
    assert_eq!(counted("rate_at = 'l2'\n[up]\nrate_at = 'l1'"), Framing::L1);
    assert!(
        refusal("rate_at = 'l1'").starts_with("rate_at: `rate_at` says which bytes a rate counts")
    );
    assert!(refusal("rate = '1mbit'\nrate_at = 'l3'").contains("`l3` is not what a rate counts"));
}

#[test]
fn a_packet_rate_has_its_own_queue_before_the_rate() {
    let pps = |text: &str| match effect(&hop(text), "up.pps") {
        Some(Effect::Rate(rate)) => rate,
        other => panic!("{other:?}"),
    };
    let server = pps("pps = 1000\nrate = '1mbit'\nqueue = '9pkt'");
    assert_eq!(server.rate, BitsPerSec::new(8_000).ok());
    assert_eq!(server.framing, Framing::PACKETS);
    assert_eq!(server.queue.limit, DEFAULT_QUEUE);
    let limited = pps("pps = { packets = 1000, queue = '64KiB' }");
    assert_eq!(limited.queue.limit, QueueLimit::Bytes(Bytes(65_536)));
    assert!(effect(&hop("up.pps = 1000"), "down.pps").is_none());
    let two = "pps = { packets = 9, queue = '9ms,9pkt' }";
    assert!(refusal(two).contains("pps: queue: it has two limits: write one limit"));
    assert!(refusal("pps = 0").starts_with("pps: `0` is not a packet rate"));
    assert!(refusal("pps = 9\nqueue = '9pkt'").starts_with("queue: a queue needs a rate"));
}

#[test]
fn a_rate_may_have_a_bucket_and_a_policer_needs_one() {
    let hop = hop("rate = '1mbit,burst=32KiB'\npolice = '2mbit,burst=64KiB'\ndelay = '1ms'");
    assert_eq!(rate(&hop, "up").burst, Some(Bytes(32_768)));
    let police = Police {
        rate: "2mbit".parse().unwrap(),
        burst: Bytes(65_536),
    };
    assert_eq!(effect(&hop, "down.police"), Some(Effect::Police(police)));
    assert_eq!(
        names(&hop.rest.up),
        ["box.up.police", "box.up.rate", "box.up.delay"]
    );
    let varying = "rate = '1mbit,burst=32KiB'\nfluctuation = 'spread=20%,hold=5s'";
    assert!(
        refusal(varying).contains(
            "rate: burst = 32KiB is out of range: the rate of a token bucket cannot vary"
        )
    );
    assert!(refusal("police = '2mbit'").contains("police: `burst` is missing"));
}

/// Returns when the stage with this name changes, in milliseconds, and to which effect.
fn schedule(stages: &[StageSpec], name: &str) -> Vec<(u64, Effect)> {
    let stage = stages.iter().find(|stage| stage.name == name);
    let stage = stage.unwrap_or_else(|| panic!("{name}: {stages:?}"));
    let schedule = stage.schedule.list().unwrap();
    schedule
        .iter()
        .map(|(at, effect)| (at.0 / 1_000_000, effect.clone()))
        .collect()
}

#[test]
fn conditions_that_a_schedule_does_not_name_stay() {
    let hop = hop("rate = '10mbit'\ndelay = '20ms'\nloss = '1%'\n\
                   schedule = [{ at = '10s', rate = '5mbit', delay = '40ms' }, { at = '20s', loss = '1%,burst=8' }]\n\
                   [up]\ndelay = '1ms'\nschedule = [{ at = '10s', jitter = '1ms' }]");
    let served = schedule(&hop.rest.up, "box.up.rate");
    let [(10_000, Effect::Rate(slower))] = &served[..] else {
        panic!("{served:?}");
    };
    assert_eq!(slower.rate, "5mbit".parse().ok());
    let Some(Effect::Delay(before)) = effect(&hop, "up.delay") else {
        panic!("{hop:?}");
    };
    let later = schedule(&hop.rest.up, "box.up.delay");
    let [(10_000, Effect::Delay(later))] = &later[..] else {
        panic!("{later:?}");
    };
    // The direction's own delay stays, and the common jitter is added.
    assert_eq!(before.time, Nanos::from_millis(1));
    assert_eq!(later.time, Nanos::from_millis(1));
    assert!(before.jitter.is_none() && later.jitter.is_some());
    let down = schedule(&hop.rest.down, "box.down.delay");
    assert_eq!(down, [(10_000, delay("40ms").unwrap())]);
    assert_eq!(
        schedule(&hop.rest.down, "box.down.loss"),
        [(20_000, Effect::Nothing)]
    );
    assert_eq!(effect(&hop, "down.burst-loss"), Some(Effect::Nothing));
    assert_eq!(schedule(&hop.rest.down, "box.down.burst-loss").len(), 1);
}

#[test]
fn a_rate_of_zero_keeps_the_queue_limit() {
    let hop = hop(
        "rate = '8mbit'\nschedule = [{ at = '1s', rate = '0bit' }, { at = '2s', rate = '16mbit' }]",
    );
    let served = schedule(&hop.rest.up, "box.up.rate");
    let rates: Vec<_> = served
        .iter()
        .map(|(_, effect)| match effect {
            Effect::Rate(rate) => (rate.rate.map(BitsPerSec::get), rate.queue.limit),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        rates,
        [
            (None, QueueLimit::Bytes(Bytes(100_000))),
            (Some(16_000_000), DEFAULT_QUEUE)
        ]
    );
    let at_first = self::hop("rate = '0bit'\nschedule = [{ at = '1s', rate = '8mbit' }]");
    assert_eq!(
        rate(&at_first, "up").queue.limit,
        QueueLimit::Bytes(Bytes(100_000))
    );
    assert!(refusal("rate = '0bit'").starts_with("rate: at 0bit nothing ever passes"));
}

#[test]
fn a_step_removes_conditions() {
    let hop = hop(
        "rate = '1mbit'\nqueue = '5pkt'\nloss = '1%'\nup = { loss = '2%', schedule = [{ at = '3s', without = ['loss'] }] }\n\
         schedule = [{ at = '2s', without = ['rate', 'queue'], delay = '5ms' }]",
    );
    let schedule = |name: &str| {
        let all = &hop.rest.up;
        let stage = all
            .iter()
            .find(|stage| stage.name == format!("box.up.{name}"));
        stage.unwrap().schedule.list().unwrap().to_vec()
    };
    let seconds = |at: u64| Nanos::from_millis(at * 1_000);
    assert_eq!(schedule("rate"), [(seconds(2), Effect::Nothing)]);
    // The common value below it takes effect.
    assert_eq!(schedule("loss"), [(seconds(3), loss("1%").unwrap())]);
    assert_eq!(schedule("delay"), [(seconds(2), delay("5ms").unwrap())]);
    for case in [
        "without = ['rat'] => without 1: unknown name `rat`; did you mean `rate`?",
        "without = ['loss'], loss = '1%' => schedule 1: without: loss is both removed and set",
    ] {
        let (step, words) = case.split_once(" => ").unwrap();
        let refused = refusal(&format!(
            "loss = '1%'\nschedule = [{{ at = '1s', {step} }}]"
        ));
        assert!(refused.contains(words), "{case}: {refused}");
    }
}

#[test]
fn a_schedule_out_of_order_and_one_without_a_time_are_refused() {
    let back = "schedule = [{ at = '2s', delay = '1ms' }, { at = '1s', delay = '2ms' }]";
    assert_eq!(
        refusal(back),
        "schedule 2: at: 1s comes after 2s: put the schedule in order of time"
    );
    assert!(refusal(&format!("[up]\n{back}")).starts_with("up: schedule 2: at: 1s"));
    assert!(refusal("schedule = [{ delay = '1ms' }]").contains("schedule 1: `at` is missing"));
    assert!(refusal("schedule = [{ at = '1s', dealy = '1ms' }]").contains("unknown key `dealy`"));
    assert!(refusal("schedule = [{ at = '1s', queue = '1pkt' }]").contains("needs a rate"));
    let late = "schedule = [{ at = '1s', delay = '7200s' }]";
    assert!(refusal(late).contains("delay: 7200s is out of range: a delay must be at most 3600s"));
    let gate = "stages = [{ kind = 'gate', schedule = [{ at = '2s', open = false }, { at = '1s', open = true }] }]";
    assert_eq!(
        refusal(gate),
        "stages: gate: schedule 2: at: 1s comes after 2s: put the schedule in order of time"
    );
}

#[test]
fn a_stage_has_the_keys_of_its_kind() {
    let hop = hop(
        "[[stages]]\nkind = 'gate'\nopen = false\nqueue = '10pkt'\nschedule = [{ at = '1s', open = true }]\n\
                   [[stages]]\nkind = 'gemodel'\np = '1%'\nr = '10%'\n\
                   [[stages]]\nkind = 'trace'\ntimes = [0, 5, 10]\naqm = 'codel'\n\
                   [[stages]]\nkind = 'delay'\ndelay = '1ms'\ndirection = 'up'",
    );
    let gate = |open| {
        Effect::Gate(Gate {
            open,
            queue: QueueLimit::Packets(10),
        })
    };
    assert_eq!(effect(&hop, "up.gate"), Some(gate(false)));
    assert_eq!(
        schedule(&hop.rest.down, "box.down.gate"),
        [(1_000, gate(true))]
    );
    let Some(Effect::GilbertElliott(law)) = effect(&hop, "up.gemodel") else {
        panic!("{hop:?}");
    };
    assert_eq!(law.bad_loss.percent(), 100.0);
    assert_eq!(law.good_loss.percent(), 0.0);
    let four = self::hop(
        "[[stages]]\nkind = 'four-state'\np13 = '2%'\necn = true\n\
                          [[stages]]\nkind = 'indexes'\nindexes = [0, 7]\ndirection = 'up'\n\
                          [[stages]]\nkind = 'ber'\nber = '1e-6'",
    );
    let percent = |percent| Probability::from_percent(percent).unwrap();
    let of_tc = FourState {
        p13: percent(2.0),
        p31: percent(98.0),
        p32: Probability::ZERO,
        p23: percent(100.0),
        p14: Probability::ZERO,
        ecn: true,
    };
    assert_eq!(
        effect(&four, "down.four-state"),
        Some(Effect::FourState(of_tc))
    );
    let indexes = Effect::Indexes([0, 7].as_slice().into());
    assert_eq!(effect(&four, "up.indexes"), Some(indexes));
    let ber = Effect::BitErrors(BitErrorRate::new(1e-6).unwrap());
    assert_eq!(effect(&four, "up.ber"), Some(ber.clone()));
    assert_eq!(effect(&self::hop("ber = 1e-6"), "down.ber"), Some(ber));
    let Some(Effect::Trace(trace)) = effect(&hop, "up.trace") else {
        panic!("{hop:?}");
    };
    let times = [0, 1, 2, 3].map(|index| trace.opportunities.at(index).0 / 1_000_000);
    assert_eq!(times, [0, 5, 10, 10]);
    assert_eq!(trace.queue.limit, QueueLimit::Packets(1_000));
    assert_eq!(effect(&hop, "up.delay"), delay("1ms"));
    assert!(!names(&hop.rest.down).contains(&"box.down.delay"));
}

#[test]
fn an_invalid_stage_is_refused_with_its_name() {
    for case in [
        "kind = 'gate', times = [1] => stages 1: unknown key `times`; use one of: open, queue",
        "kind = 'gate', queue = '1s' => stages: gate: queue: 1s is out of range: set a gate's queue in packets or bytes",
        "kind = 'trace' => stages: trace: times: a trace is out of range: write at least one time",
        "kind = 'trace', times = [] => write at least one time",
        "kind = 'trace', times = [5, 3] => must be in ascending order",
        "kind = 'trace', times = [0] => above 0",
        "kind = 'trace', times = [1], queue = '1s' => \
         stages: trace: queue: 1s is out of range: a trace has no rate, so set its queue in packets or bytes",
        "kind = 'gemodel', p = '1%' => stages: gemodel: `r` is missing: write r = \"10%\"",
        "kind = 'mtu' => stages: mtu: `mtu` is missing: write mtu = 1400",
        "kind = 'mtu', mtu = 60 => stages: mtu: mtu: 60 is out of range",
        "kind = 'delay' => stages: delay: `delay` is missing: write delay = \"20ms\"",
        "kind = 'delay', reorder = '5%' => stages: delay: reorder: reordered packets skip a delay",
        "kind = 'reorder', share = '1%' => stages: reorder: `extent` is missing: write extent = 3",
        "kind = 'reorder', share = '1%', extent = 0 => \
         stages 1: extent: expected a whole number of at least 1, found `0`",
        "kind = 'reorder', share = '1%', extent = 3, timeout = '0s' => \
         stages: reorder: timeout: 0ms is out of range: a packet must be held for more than 0 and at most 3600s",
        "kind = 'four-state', p31 = '1%' => stages: four-state: `p13` is missing: write p13 = \"1%\"",
        "kind = 'four-state', p13 = '1%', p31 = '60%', p32 = '50%' => \
         stages: four-state: p32: 50% and p31 = 60% is out of range: p31 and p32, which leave state 3, must not exceed 100%",
        "kind = 'four-state', p13 = '60%', p14 = '50%' => \
         stages: four-state: p14: 50% and p13 = 60% is out of range: p13 and p14, which leave state 1, must not exceed 100%",
        "kind = 'indexes' => stages: indexes: `indexes` is missing: write indexes = [0, 3, 7]",
        "kind = 'indexes', indexes = [3, 1] => \
         stages: indexes: indexes: 3, 1 is out of range: write each packet's number once, in ascending order",
        "kind = 'indexes', indexes = [-1] => -1",
        "kind = 'ber', ber = 1.0 => `1` is out of range: write the share of bits that are wrong, 0 or more and below 1",
        "kind = 'ber' => stages: ber: `ber` is missing: write ber = \"1e-6\"",
        "kind = 'loss', name = 'a.b', loss = '1%' => a stage needs a name of letters, digits, - and _",
        "kind = 'loss', loss = '1%', schedule = [{ at = '1s', loss = '1%,burst=8' }] => \
         stages: loss: link.up.loss would become a stage of another kind",
        "kind = 'lose' => stages 1: kind: unknown name `lose`; did you mean `loss`?",
    ] {
        let (stage, cause) = case.split_once(" => ").unwrap();
        let refused = refusal(&format!("stages = [{{ {stage} }}]"));
        assert!(refused.contains(cause), "{case}: {refused}");
    }
    let twice = "loss = '1%'\nstages = [{ kind = 'loss', loss = '1%' }]";
    assert!(refusal(twice).starts_with("stages: loss: link.up.loss occurs twice in one path"));
}

#[test]
fn a_rule_shares_the_stages_that_do_not_differ() {
    let spec: LinkSpec = read::toml_text(
        "rate = '10mbit'\ndelay = '20ms'\nloss = '1%'\n\
         [[rules]]\nname = 'voice'\nprotocol = 'udp'\nport = 5004\njitter = '1ms'\nloss = '0%'\n\
         down.delay = '5ms'\n\
         [[rules]]\nname = 'bulk'\nport = 873\nqueue = '5pkt'",
    )
    .unwrap();
    spec.check().unwrap();
    let link = spec.to_link("box").unwrap();
    assert_eq!(link.rules.names().collect::<Vec<_>>(), ["voice", "bulk"]);
    let path = |side, class| {
        let found = link
            .config
            .paths
            .iter()
            .find(|path| (path.side, path.class) == (side, class));
        &found.unwrap().stages
    };
    assert_eq!(link.config.paths.len(), 6);
    assert_eq!(
        names(path(Side::A, 0)),
        ["box.up.rate", "box.up.loss", "box.up.delay"]
    );
    assert_eq!(
        names(path(Side::A, 1)),
        ["box.up.rate", "box.voice.up.delay"]
    );
    assert_eq!(
        names(path(Side::B, 2)),
        ["box.bulk.down.rate", "box.down.loss", "box.down.delay"]
    );
    assert_eq!(path(Side::A, 0)[0], path(Side::A, 1)[0]);
    let delay = |side| match &path(side, 1)[1].effect {
        Effect::Delay(delay) => (delay.time.0, delay.jitter.is_some()),
        other => panic!("{other:?}"),
    };
    assert_eq!(delay(Side::A), (20_000_000, true));
    assert_eq!(delay(Side::B), (5_000_000, true));
    let Effect::Rate(bulk) = path(Side::A, 2)[0].effect else {
        panic!("{link:?}");
    };
    assert_eq!(bulk.rate, "10mbit".parse().ok());
    assert_eq!(bulk.queue.limit, QueueLimit::Packets(5));
}

#[test]
fn a_rule_follows_the_schedules_of_conditions_that_it_does_not_state() {
    let hop = hop(
        "loss = '1%'\nschedule = [{ at = '1s', loss = '2%', delay = '5ms' }, { at = '2s', without = ['loss'] }]\n\
         [[rules]]\nname = 'own'\nport = 1\nloss = '3%'\n\
         [[rules]]\nname = 'late'\nport = 2\nschedule = [{ at = '3s', loss = '4%' }]\n\
         [[rules]]\nname = 'once'\nport = 3\nup = { loss = '5%', schedule = [{ at = '2s', without = ['loss'] }] }",
    );
    let up = |class: usize| &hop.rules[class].1.up;
    let of = |class: usize, name: &str| schedule(up(class), &format!("box.{name}"));
    assert!(of(0, "own.up.loss").is_empty());
    let late = [(1_000, "2%"), (3_000, "4%")].map(|(at, text)| (at, loss(text).unwrap()));
    let gone = (2_000, Effect::Nothing);
    assert_eq!(
        of(1, "late.up.loss"),
        [late[0].clone(), gone.clone(), late[1].clone()]
    );
    assert_eq!(of(2, "once.up.loss"), [gone]);
    for class in 0..3 {
        assert_eq!(of(class, "up.delay"), [(1_000, delay("5ms").unwrap())]);
    }
}

#[test]
fn wrong_rules_are_refused() {
    for case in [
        "{ name = '', port = 1 } => rules: : name: ``: a rule needs a name",
        "{ name = 'a' } => rules: a: the rule matches no packet in particular: set match",
        "{ name = 'a', direction = 'up' } => rules: a: the rule matches no packet in particular",
        "{ name = 'a', port = 1 }, { name = 'a', port = 2 } => rules: a: name: two rules have the name a",
        "{ port = 1 }, { match = 'port 1' } => rules: port-1: name: two rules have the name port-1",
        "{ name = 'a', protocol = 'icmp', port = 1 } => rules: a: port: ICMP has no ports: leave port out",
        "{ name = 'a', source_port = 0 } => source_port: 0 is not a port",
        "{ name = 'a', port = 65536 } => 65536",
        "{ name = 'a', port = '9-1' } => rules 1: port: `9-1` is not a port",
        "{ name = 'a', host = '10.0.0.1/8' } => write 10.0.0.0/8",
        "{ name = 'a', dscp = 64 } => rules 1: dscp: `64` is not a DSCP",
        "{ name = 'a', vlan = 4096 } => rules 1: vlan: `4096` is not a VLAN",
        "{ name = 'a', match = 'tcp or udp' } => rules 1: match: `or` is not supported",
        "{ name = 'a', protocol = 'gre' } => rules 1: protocol: unknown name `gre`; use one of",
        "{ name = 'a', port = 1, queue = '5pkt' } => rules: a: queue: a queue needs a rate",
        "{ name = 'a', port = 1, dealy = '5ms' } => rules 1: unknown key `dealy`; did you mean `delay`?",
    ] {
        let (rules, cause) = case.split_once(" => ").unwrap();
        let refused = refusal(&format!("rules = [{rules}]"));
        assert!(refused.contains(cause), "{case}: {refused}");
    }
    let many = (1..=32)
        .map(|n| format!("port {n}"))
        .collect::<Vec<_>>()
        .join(" and ");
    let rules = (0..33).map(|n| format!("{{ name = 'r{n}', match = '{many}' }}"));
    let refused = refusal(&format!(
        "rules = [{}]",
        rules.collect::<Vec<_>>().join(", ")
    ));
    let why = "rules: their filters have 1056 conditions together: at most 1024 are allowed";
    assert_eq!(refused, why);
}

#[test]
fn a_schedule_may_begin_with_the_first_packet() {
    let steps = "delay = '1ms'\nschedule = [{ at = '5s', delay = '2ms' }]\n";
    let link = |start: &str| -> LinkSpec { read::toml_text(&format!("{steps}{start}")).unwrap() };
    for (start, waits) in [
        ("", false),
        ("start = 'immediately'", false),
        ("start = 'first-packet'", true),
    ] {
        let spec = link(start);
        assert_eq!(spec.to_link("box").unwrap().config.waits, waits, "{start}");
        let again: LinkSpec = read::json(serde_json::to_value(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }
    assert!(refusal("start = 'noon'").contains("use one of: immediately, first-packet"));
    let both = link("start = 'immediately'").or(link("start = 'first-packet'"));
    assert!(!both.waits());
}

#[test]
fn rules_share_the_rate_by_weight() {
    let hop = hop(
        "rate = '10mbit'\ndelay = '5ms'\n[[rules]]\nname = 'web'\nport = 443\nweight = 3\n\
         [[rules]]\nname = 'voice'\nmatch = 'udp'\nloss = '1%'\n\
         [[rules]]\nname = 'bulk'\nport = 873\nrate = '1mbit'",
    );
    let mut weights = Weights::default();
    weights.set(1, NonZeroU8::new(3).unwrap());
    for way in ["up", "down"] {
        let queue = rate(&hop, way).queue;
        assert_eq!(queue.discipline, Discipline::Weighted(weights));
        assert_eq!(queue.limit, DEFAULT_QUEUE);
    }
    for rule in 0..2 {
        assert_eq!(hop.rules[rule].1.up[0], hop.rest.up[0]);
    }
    let Effect::Rate(bulk) = hop.rules[2].1.up[0].effect else {
        panic!("{hop:?}");
    };
    assert_eq!(bulk.queue.discipline, Discipline::DropTail);
    let plain = self::hop("rate = '10mbit'\n[[rules]]\nmatch = 'udp'\nloss = '1%'");
    assert_eq!(rate(&plain, "up").queue.discipline, Discipline::DropTail);
    let rule = |keys: &str| format!("[[rules]]\nname = 'web'\nport = 443\n{keys}");
    for (link, keys, why) in [
        (
            "rate = '1mbit'",
            "weight = 0",
            "expected a whole number from 1 to 255",
        ),
        (
            "rate = '1mbit'",
            "weight = 256",
            "expected a whole number from 1 to 255",
        ),
        (
            "loss = '1%'",
            "weight = 2",
            "rules: web: weight: packets share a rate",
        ),
        (
            "rate = '1mbit'",
            "weight = 2\nqueue = '9pkt'",
            "rules: web: weight: the rule has a separate bottleneck",
        ),
        (
            "rate = '1mbit'\naqm = 'codel'",
            "weight = 2",
            "aqm: rules share the rate by weight",
        ),
        ("rate = '1mbit'\nweight = 2", "", "unknown key `weight`"),
    ] {
        let refused = refusal(&format!("{link}\n{}", rule(keys)));
        assert!(refused.contains(why), "{keys}: {refused}");
    }
}

#[test]
fn a_rule_has_a_form_of_one_line() {
    let read = |text: &str| text.parse::<RuleSpec>().map_err(|error| error.to_string());
    for (line, file) in [
        (
            "tcp port 443: loss=2%,burst=8 up-delay=20ms",
            "match = 'tcp port 443'\nloss = '2%,burst=8'\nup.delay = '20ms'",
        ),
        (
            "host fd77:: and tcp: name=far direction=down netem=delay 10ms 1ms rate-at=l1 rate=1mbit",
            "match = 'host fd77:: and tcp'\nname = 'far'\ndirection = 'down'\nnetem = 'delay 10ms 1ms'\n\
             rate_at = 'l1'\nrate = '1mbit'",
        ),
        ("udp:", "match = 'udp'"),
        ("udp: weight=3", "match = 'udp'\nweight = 3"),
        (
            "udp: hop=dsl loss=1%",
            "match = 'udp'\nhop = 'dsl'\nloss = '1%'",
        ),
        (
            "net 10.0.0.0/8: down-path-mtu=1400",
            "match = 'net 10.0.0.0/8'\ndown.path_mtu = 1400",
        ),
    ] {
        let rule: RuleSpec = read::toml_text(file).unwrap();
        assert_eq!(read(line), Ok(rule), "{line}");
    }
    for (line, why) in [
        (
            "tcp port 443",
            "`tcp port 443` has no conditions: write a filter, a colon, a space",
        ),
        ("tcp or udp: loss=1%", "`or` is not supported"),
        (
            "tcp: loss",
            "`loss` is not a condition: write its name, = and its value",
        ),
        (
            "tcp: los=1%",
            "unknown condition `los`; did you mean `loss`?",
        ),
        ("tcp: loss=101%", "loss: "),
        ("tcp: direction=left", "direction=left: write up or down"),
        (
            "tcp: weight=0",
            "weight=0: write a whole number from 1 to 255",
        ),
    ] {
        let refused = read(line).unwrap_err();
        assert!(refused.contains(why), "{line}: {refused}");
    }
}

#[test]
fn the_hosts_of_rules_are_resolved_before_a_link_is_made() {
    let text =
        "[[rules]]\nmatch = 'host example.com'\n[[rules]]\nname = 'own'\nsource = 'localhost'";
    let mut spec: LinkSpec = read::toml_text(text).unwrap();
    spec.check().unwrap();
    let refused = spec.to_link("box").unwrap_err().to_string();
    let why = "rules: host-example-com: example.com is the name of a host, whose addresses are not known here";
    assert!(refused.starts_with(why), "{refused}");
    let refused = spec.resolve(|_| Ok(Vec::new())).unwrap_err().to_string();
    assert_eq!(
        refused,
        "rules: host-example-com: example.com: it has no addresses: correct the name, or write addresses"
    );
    let addresses = ["fd77::2", "10.77.0.2", "10.77.0.2"].map(|text| text.parse().unwrap());
    let resolved = spec.resolve(|_| Ok(addresses.to_vec())).unwrap();
    assert_eq!(resolved.len(), 2);
    assert_eq!(
        (resolved[1].rule.as_str(), resolved[1].host.as_str()),
        ("own", "localhost")
    );
    assert_eq!(resolved[0].addresses, [addresses[1], addresses[0]]);
    assert_eq!(spec.addresses_of("example.com").unwrap().len(), 2);
    assert_eq!(spec.addresses_of("example.org"), None);
    spec.to_link("box").unwrap();
}

#[test]
fn stages_and_rules_are_read_back_equal() {
    let text = "jitter = '2ms,normal'\nrate = '0bit'\naqm = 'codel,ecn'\nloss = '1%,burst=8'\n\
                schedule = [{ at = '1s', rate = '1mbit' }]\n\
                [up]\nschedule = [{ at = '2s', corrupt = '1%' }]\n\
                [[stages]]\nkind = 'trace'\ntimes = [1, 2]\nplace = 'last'\nschedule = [{ at = '1s', queue = '5pkt' }]\n\
                [[rules]]\nname = 'voice'\nprotocol = 'udp'\nduplicate = '1%'\ndown.delay = '5ms'\n\
                schedule = [{ at = '1s', delay = '1ms' }]\n\
                [[rules]]\nmatch = 'src net 10.0.0.0/8 and tcp'\nport = '5000-6000'\nhost = 'fd77::/64'\n\
                source_port = 7\ndscp = 'ef'\nvlan = 3\nether_type = '0x86dd'\nfragment = false\n\
                direction = 'down'";
    let spec: LinkSpec = read::toml_text(text).unwrap();
    spec.check().unwrap();
    let again: LinkSpec = read::toml_text(&toml::to_string(&spec).unwrap()).unwrap();
    assert_eq!(spec, again);
    let json: LinkSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(spec, json);
}

#[test]
fn the_documented_example_is_a_valid_link() {
    let text = include_str!("../../../docs/conditions.md");
    let (_, whole) = text.split_once("\n## A whole file\n").unwrap();
    let (_, file) = whole.split_once("```toml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();
    let spec: LinkSpec = read::toml_text(file).unwrap();
    spec.check().unwrap();
    let link = spec.to_link("box").unwrap();
    assert_eq!(link.rules.names().collect::<Vec<_>>(), ["voice", "backup"]);
    assert_eq!(link.config.paths.len(), 6);
    for ConditionKind { key, .. } in CONDITIONS {
        let rows = [format!("\n| `{key}` | "), format!("\n| [`{key}`](effects/")];
        assert!(rows.iter().any(|row| text.contains(row)), "{key}");
    }
}

#[test]
fn reordering_needs_a_delay() {
    let hop = hop("delay = '20ms'\nreorder = '5%,gap=3'\n[up]\nreorder = '0%'");
    let Some(Effect::Delay(delay)) = effect(&hop, "down.delay") else {
        panic!("{hop:?}");
    };
    let reorder = Reorder {
        share: "5%".parse().unwrap(),
        gap: 3.try_into().unwrap(),
    };
    assert_eq!(delay.reorder, Some(reorder));
    assert_eq!(effect(&hop, "up.delay"), self::delay("20ms"));
    let why = "reorder: reordered packets skip a delay: set delay too, or leave reorder out";
    assert_eq!(refusal("reorder = '5%'"), why);
    assert_eq!(
        refusal("up.delay = '1ms'\ndown.reorder = '5%'"),
        format!("down: {why}")
    );
    assert_eq!(
        refusal("schedule = [{ at = '1s', reorder = '5%' }]"),
        format!("schedule 1: {why}")
    );
    self::hop("reorder = '5%'\njitter = '1ms'");
    let held = self::hop("[[stages]]\nkind = 'reorder'\nshare = '1%'\nextent = 3");
    let law = HoldBack {
        share: "1%".parse().unwrap(),
        extent: 3.try_into().unwrap(),
        timeout: Nanos::from_millis(100),
    };
    assert_eq!(effect(&held, "up.reorder"), Some(Effect::HoldBack(law)));
}

#[test]
fn expensive_conditions_are_refused_before_they_are_built() {
    let copier =
        |n: usize| format!("[[stages]]\nkind = 'duplicate'\nname = 'd{n}'\nduplicate = '100%'\n");
    let rule = |n: usize| format!("[[rules]]\nname = 'c{n}'\nport = {}\n", n + 1);
    let loss = |n: usize| format!("[[stages]]\nkind = 'loss'\nname = 'l{n}'\nloss = '1%'\n");
    let all = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<String>();
    for (text, field, words) in [
        (
            all(30, &copier),
            "stages",
            "30 stages of one path duplicate packets, which makes 1073741824 packets of one: at most 16",
        ),
        (all(800, &copier), "stages", "there are 800: at most 64"),
        (
            format!(
                "netem = 'duplicate 1%'\nduplicate = '1%'\n{}",
                all(3, &copier)
            ),
            "stages",
            "makes 32 packets of one",
        ),
        (all(800, &rule), "rules", "there are 800: at most 128"),
    ] {
        let spec: LinkSpec = toml::from_str(&text).unwrap();
        let error = spec.check().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.field().as_deref(), Some(field));
    }
    let spec: LinkSpec = toml::from_str(&all(40, &loss)).unwrap();
    let error = spec.check().unwrap_err().to_string();
    assert!(
        error.contains("40 stages of one path: at most 32"),
        "{error}"
    );
    let most = format!("{}{}", all(4, &copier), all(128, &rule));
    toml::from_str::<LinkSpec>(&most).unwrap().check().unwrap();
}

#[test]
fn conditions_count_all_their_memory() {
    let memory = |text: &str| toml::from_str::<LinkSpec>(text).unwrap().memory();
    let empty = memory("");
    let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let list = |count: usize| numbers(count).join(", ");
    let values = |count: usize| numbers(count).join(" ");
    let steps = |count: usize, step: &str| {
        let all = (0..count).map(|n| format!("{{ at = '{n}s', {step} }}"));
        all.collect::<Vec<_>>().join(", ")
    };
    let table = format!(
        "{{ spread = '1ms', law = 'table', values = '{}' }}",
        values(5_000)
    );
    for (text, least) in [
        (
            format!("[[stages]]\nkind = 'indexes'\nindexes = [{}]", list(5_000)),
            40_000,
        ),
        (
            format!("[[stages]]\nkind = 'trace'\ntimes = [{}]", list(5_000)),
            40_000,
        ),
        (format!("delay = '9ms'\njitter = {table}"), 10_000),
        (
            format!("[[stages]]\nkind = 'delay'\ndelay = '9ms'\njitter = {table}"),
            10_000,
        ),
        (
            format!("[[stages]]\nkind = 'slots'\ndelay = '9ms'\njitter = {table}"),
            10_000,
        ),
        (
            format!("[[rules]]\nname = 'a'\nport = 1\ndelay = '9ms'\njitter = {table}"),
            10_000,
        ),
        (
            format!(
                "netem = 'delay 1ms'\nschedule = [{}]",
                steps(100, "netem = 'delay 1ms'")
            ),
            100 * (size_of::<ScheduleStep>() + size_of::<NetemSpec>()),
        ),
        (
            format!(
                "schedule = [{}]",
                steps(100, "without = ['loss', 'delay', 'rate']")
            ),
            100 * (size_of::<ScheduleStep>() + 3 * size_of::<ConditionName>()),
        ),
        (
            format!(
                "[[stages]]\nkind = 'loss'\nloss = '1%'\nschedule = [{}]",
                steps(100, "loss = '2%'")
            ),
            100 * size_of::<StageStep>(),
        ),
        (
            format!("[[rules]]\nname = '{}'\nport = 1", "n".repeat(5_000)),
            5_000,
        ),
        (
            format!(
                "[[stages]]\nkind = 'mtu'\nmtu = 1400\nname = '{}'",
                "n".repeat(5_000)
            ),
            5_000,
        ),
        (
            format!(
                "[trace]\nfile = '{name}'\ncontent = \"t,delay\\n0s,1ms\\n1s,\\n\"\ndelays = '{name}'\nlight = '{name}'\noffsets = '{name}'",
                name = "n".repeat(5_000)
            ),
            20_000,
        ),
    ] {
        let own = memory(&text) - empty;
        assert!(own >= least, "{own} is below {least}: {}", &text[..60]);
        // Lists grow by doubling.
        assert!(
            own < 3 * least + 8_192,
            "{own} is far above {least}: {}",
            &text[..60]
        );
    }
}

#[test]
fn the_steps_of_a_stage_share_its_lists() {
    let steps = "schedule = [{ at = '1s' }, { at = '2s', queue = '9pkt' }]\ndirection = 'up'";
    let hop = hop(&format!(
        "[[stages]]\nkind = 'trace'\ntimes = [1, 2]\n{steps}\n[[stages]]\nkind = 'indexes'\nindexes = [3]\ndirection = 'up'\n\
         schedule = [{{ at = '1s' }}]"
    ));
    let [trace, indexes] = &hop.rest.up[..] else {
        panic!("{hop:?}");
    };
    let traces = trace.effects().map(|effect| match effect {
        Effect::Trace(trace) => Arc::as_ptr(&trace.opportunities).cast::<()>(),
        other => panic!("{other:?}"),
    });
    let lists = indexes.effects().map(|effect| match effect {
        Effect::Indexes(list) => list.as_ptr(),
        other => panic!("{other:?}"),
    });
    assert!(
        traces
            .collect::<Vec<_>>()
            .windows(2)
            .all(|pair| pair[0] == pair[1])
    );
    assert!(
        lists
            .collect::<Vec<_>>()
            .windows(2)
            .all(|pair| pair[0] == pair[1])
    );
}

/// Passes a packet each millisecond up, and returns when each leaves, in milliseconds; `None` if it is lost.
fn passed(text: &str, packets: u64) -> Vec<Option<f64>> {
    let spec: LinkSpec = read::toml_text(text).unwrap();
    let mut link = model::Link::new(&spec.to_link("box").unwrap().config).unwrap();
    let mut left = vec![None; usize::try_from(packets).unwrap()];
    let mut take = |outcome: model::Outcome| {
        if let model::Outcome::Deliver { id, due, .. } = outcome {
            left[usize::try_from(id.0).unwrap()] = Some(due.0 as f64 / 1e6);
        }
    };
    for id in 0..packets {
        let at = Nanos::from_millis(id);
        let packet = model::Packet::new(model::PacketId(id), Bytes(100));
        link.offer(at, Side::A, packet);
        while let Some(outcome) = link.poll(at) {
            take(outcome);
        }
    }
    while let Some(outcome) = link.poll(Nanos::from_millis(packets + 1_000)) {
        take(outcome);
    }
    left
}

#[test]
fn outages_lose_or_hold_packets_after_each_period() {
    let lost = passed("outage = '20ms/100ms'", 350);
    for (at, left) in (0_u64..).zip(&lost) {
        let is_out = at >= 100 && at % 100 < 20;
        assert_eq!(*left, (!is_out).then_some(at as f64), "{at}");
    }
    let held = passed("outage = '20ms/100ms,hold'", 350);
    for (at, left) in (0_u64..).zip(&held) {
        let is_out = at >= 100 && at % 100 < 20;
        let leaves = if is_out { at / 100 * 100 + 20 } else { at };
        assert_eq!(*left, Some(leaves as f64), "{at}");
    }
}

#[test]
fn a_handover_holds_packets_in_order_and_moves_the_delay() {
    let text = "delay = '30ms'\nhandover = 'every=200ms,hold=10ms,delay=5ms'";
    let left: Vec<f64> = passed(text, 1_000).into_iter().flatten().collect();
    assert_eq!(left.len(), 1_000);
    assert!(left.is_sorted());
    let delay = |at: usize| left[at] - at as f64;
    assert!((0..200).all(|at| delay(at) == 30.0));
    assert_eq!(left[200..210], [left[210]; 10]);
    let moved: Vec<f64> = (1..5).map(|period| delay(period * 200 + 100)).collect();
    assert!(
        moved.iter().all(|delay| (25.0..=35.0).contains(delay)),
        "{moved:?}"
    );
    assert!(moved.windows(2).any(|pair| pair[0] != pair[1]), "{moved:?}");
    let lossy = passed("handover = 'every=200ms,hold=50ms,loss=50%'", 2_000);
    let lost: Vec<usize> = (0..2_000).filter(|at| lossy[*at].is_none()).collect();
    assert!(lost.iter().all(|at| *at >= 200 && at % 200 < 50));
    assert!((150..300).contains(&lost.len()), "{}", lost.len());
}

#[test]
fn a_handover_that_moves_a_delay_needs_one_that_is_long_enough() {
    let handover = "handover = 'every=15s,hold=60ms,delay=5ms'\n";
    assert!(refusal(&format!("{handover}delay = '4ms'")).starts_with(
        "handover: delay: it moves the delay by up to 5ms down, and the delay is 4ms"
    ));
    let trace = "trace = { file = 'x', content = \"t,delay\\n0s,9ms\\n1s,\\n\" }";
    assert!(
        refusal(&format!("{handover}{trace}"))
            .starts_with("handover: delay: the trace states the delay")
    );
}
