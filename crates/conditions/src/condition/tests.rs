//! The text forms of conditions: a value is printed as it was written, and an error comes with advice.

use model::{BitsPerSec, Law};

use super::*;

fn as_written<T: ConditionType>(texts: &[&str]) {
    for text in texts {
        let value: T = text
            .parse()
            .unwrap_or_else(|cause| panic!("{text}: {cause}"));
        assert_eq!(value.to_string(), *text);
    }
}

fn refused<T: ConditionType + fmt::Debug>(text: &str, cause: &str) {
    let error = text.parse::<T>().unwrap_err().to_string();
    assert!(error.contains(cause), "{text}: {error}");
}

#[test]
fn every_condition_is_printed_as_it_was_written() {
    as_written::<RateSpec>(&["10mbit", "0bit", "10mbit,burst=32KiB"]);
    as_written::<PathMtuSpec>(&["68", "1400", "65535"]);
    as_written::<PoliceSpec>(&["10mbit,burst=64KiB"]);
    as_written::<PpsSpec>(&["1", "20000", "20000,queue=100pkt", "20000,queue=50ms"]);
    as_written::<LossSpec>(&[
        "1%",
        "1%,burst=8",
        "0.5%,burst=1.5",
        "1%,ecn",
        "1%,burst=8,ecn",
    ]);
    as_written::<AqmSpec>(&[
        "codel",
        "codel,ecn,target=10ms,interval=200ms",
        "fq_codel",
        "fq_codel,noecn,flows=16,quantum=300",
        "fq_codel,ce_threshold=1ms",
        "codel,ce_threshold=0ms",
        "dualpi2,target=20ms,t_update=8ms,l_threshold=1ms",
        "dualpi2,l_threshold=1ms,ramp=0ms,coupling=4",
        "drop-head",
        "red",
        "red,ecn,min=10kb,max=40kb,probability=5%,avpkt=500b,burst=60,nogentle",
        "red,ecn,noharddrop",
        "pie",
        "pie,ecn,target=20ms,tupdate=30ms,max_burst=100ms",
    ]);
    as_written::<ReorderSpec>(&["5%", "5%,gap=3"]);
    as_written::<DuplicateSpec>(&["1%", "1%,delay=5ms"]);
    as_written::<CorruptSpec>(&["0.1%", "0.1%,bits=2", "0.1%,repair", "1%,bits=3,repair"]);
    as_written::<FluctuationSpec>(&["spread=20%,hold=5s"]);
    as_written::<NetemAtSpec>(&["before-rate", "after-rate"]);
    as_written::<TraceSpec>(&[
        "drive.csv",
        "a/b.down,mahimahi",
        "drive.csv,netem-trace,hold",
    ]);
    as_written::<OutageSpec>(&[
        "200ms/10s",
        "200ms/10s,hold",
        "1s/3600s,hold,jitter=30s",
        "200ms/10s,random",
    ]);
    as_written::<HandoverSpec>(&[
        "every=15s,hold=60ms",
        "every=15s,hold=60ms,loss=1%",
        "every=15s,hold=60ms,loss=1%,delay=5ms",
    ]);
    as_written::<JitterSpec>(&[
        "2ms",
        "2ms,normal",
        "2ms,free",
        "2ms,normal,free",
        "2ms,pareto,per-flow",
        "2ms,paretonormal",
        "2ms,lognormal,half-life=50ms,free",
    ]);
}

#[test]
fn every_example_is_read() {
    for kind in CONDITIONS {
        let read = (kind.read)(kind.example).unwrap();
        assert_eq!(read.kind().key, kind.key);
        let again = (kind.read)(&read.to_string()).unwrap();
        assert_eq!(again, read);
    }
}

#[test]
fn a_table_and_a_text_give_the_same_value() {
    fn same<T: ConditionType + fmt::Debug>(text: &str, table: &str) {
        let table: serde_json::Value = toml::from_str::<toml::Table>(table)
            .map(|table| serde_json::to_value(table).unwrap())
            .unwrap();
        assert_eq!(read::json::<T>(table).unwrap(), text.parse().unwrap());
    }
    let (number, text) = (serde_json::json!(1400), serde_json::json!("1400"));
    assert_eq!(read::json(number), read::json::<PathMtuSpec>(text));
    let (number, text) = (serde_json::json!(20_000), serde_json::json!("20000"));
    assert_eq!(read::json(number), read::json::<PpsSpec>(text));
    same::<PpsSpec>("20000,queue=1MiB", "packets = 20000\nqueue = '1MiB'");
    same::<LossSpec>("1%,burst=8,ecn", "share = '1%'\nburst = 8\necn = true");
    same::<RateSpec>("10mbit,burst=32KiB", "rate = '10mbit'\nburst = '32KiB'");
    same::<AqmSpec>(
        "fq_codel,noecn,flows=3",
        "kind = 'fq_codel'\necn = false\nflows = 3",
    );
    same::<ReorderSpec>("5%,gap=3", "share = '5%'\ngap = 3");
    same::<JitterSpec>(
        "2ms,normal,half-life=50ms,per-flow",
        "spread = '2ms'\nlaw = 'normal'\nhalf_life = '50ms'\nordering = 'per-flow'",
    );
}

#[test]
fn outages_and_handovers_end_before_the_next_ones_begin() {
    refused::<OutageSpec>(
        "200ms",
        "`200ms` has no period: write the length and the period, as in 200ms/10s",
    );
    refused::<OutageSpec>(
        "10s/10s",
        "is out of range: the length is at least 100us and below the period",
    );
    refused::<OutageSpec>("10us/1s", "is out of range");
    refused::<OutageSpec>(
        "1s/2s,jitter=1s",
        "does not end within 2s: write a shorter one",
    );
    refused::<OutageSpec>(
        "200ms/10s,random,jitter=1s",
        "jitter: random outages have none: leave jitter or random out",
    );
    refused::<OutageSpec>("200us/1ms,random", "random: 1ms is out of range");
    refused::<HandoverSpec>("every=1s", "`hold` is missing");
    refused::<HandoverSpec>(
        "every=1s,hold=1s",
        "hold: 1s is out of range: it is at least 100us and below the 1s",
    );
}

#[test]
fn a_rate_of_zero_needs_a_unit() {
    for text in ["0bit", "0mbit", "0.0kbit"] {
        let nothing = RateSpec {
            rate: None,
            burst: None,
        };
        assert_eq!(text.parse(), Ok(nothing), "{text}");
    }
    for text in ["0", "", "0parsec", "-1mbit", "0.5", "0 mbit"] {
        assert!(text.parse::<RateSpec>().is_err(), "{text}");
    }
    assert_eq!("0.5mbit".parse::<RateSpec>(), "500kbit".parse());
    assert_eq!(
        "0.5mbit".parse::<RateSpec>().unwrap().rate,
        BitsPerSec::new(500_000).ok()
    );
}

#[test]
fn errors_of_conditions_contain_advice() {
    refused::<LossSpec>("1%,burst=0.5", "at least 1 packet");
    refused::<LossSpec>("1%,burst=NaN", "at least 1 packet");
    refused::<LossSpec>("90%,burst=2", "bursts of at least 9.000 packets");
    refused::<LossSpec>("100%,burst=2", "leave burst out");
    refused::<LossSpec>("1%,bursts=2", "did you mean `burst`?");
    refused::<LossSpec>("1%,burst=x", "burst: expected a number, found `x`");
    refused::<LossSpec>("1%,burst=2,burst=3", "burst: given twice");
    refused::<LossSpec>("1%,ecn,ecn", "ecn: given twice");
    refused::<LossSpec>("1%,ect", "unknown key `ect`; did you mean `ecn`?");
    refused::<LossSpec>("1%,8", "unknown key `8`; use one of: share, burst, ecn");
    refused::<LossSpec>("1", "%");
    refused::<RateSpec>(
        "10mbit,burst=1kb",
        "burst = 1kb is out of range: a burst must be at least 1514b",
    );
    refused::<RateSpec>("10mbit,burst=32", "burst: `32` has no unit");
    refused::<RateSpec>(
        "10mbit,32KiB",
        "unknown key `32KiB`; use one of: rate, burst",
    );
    refused::<RateSpec>("10mbit,burst=9kb,burst=9kb", "twice");
    refused::<RateSpec>("0bit,burst=32KiB", "has no burst");
    refused::<PathMtuSpec>("67", "mtu = 67 is out of range: an MTU must be at least 68");
    for text in ["65536", "1400b", "-1", ""] {
        refused::<PathMtuSpec>(
            text,
            "expected L3 bytes from 68 to 65535, as in 1400, found ",
        );
    }
    refused::<PoliceSpec>("10mbit", "`burst` is missing");
    refused::<PoliceSpec>("0bit,burst=32KiB", "at least 1bit");
    refused::<PoliceSpec>("10mbit,burst=1513b", "at least 1514b");
    for text in ["0", "100000001", "4294967296", "-1", "1.5", "10mbit", ""] {
        refused::<PpsSpec>(
            text,
            "is not a packet rate: write a whole number of packets per second from 1 to 100000000",
        );
    }
    refused::<PpsSpec>("20000,queue=9", "queue: `9` has no unit");
    refused::<PpsSpec>(
        "20000,queue=2h",
        "a queue must be above 0 and at most 3600s",
    );
    refused::<PpsSpec>("20000,queue=9ms,9pkt", "unknown key `9pkt`");
    refused::<PpsSpec>("20000,aqm=codel", "use one of: packets, queue");
    refused::<AqmSpec>("sfq", "drop-head, red, codel, fq_codel, pie, dualpi2");
    refused::<AqmSpec>("drop-head,ecn", "unknown key `ecn`; there are none");
    refused::<AqmSpec>("red,limit=400kb", "unknown key `limit`; use one of: ");
    refused::<AqmSpec>(
        "red,min=90kb,max=30kb",
        "max = 30kb is out of range: max must be above min",
    );
    refused::<AqmSpec>(
        "red,burst=3",
        "burst = 3 is out of range: burst must be at least min / avpkt",
    );
    refused::<AqmSpec>(
        "red,probability=0%",
        "probability = 0% is out of range: it must be above 0",
    );
    refused::<AqmSpec>(
        "red,avpkt=0b",
        "avpkt = 0b is out of range: it must be above 0",
    );
    refused::<AqmSpec>(
        "pie,target=0ms",
        "target = 0ms is out of range: it must be above 0",
    );
    refused::<AqmSpec>(
        "pie,tupdate=1us",
        "tupdate = 1us is out of range: the interval of a controller",
    );
    refused::<AqmSpec>("codel,interval=2h", "interval");
    refused::<AqmSpec>("codel,flows=3", "unknown key");
    refused::<AqmSpec>("dualpi2,ecn", "unknown key");
    refused::<AqmSpec>("fq_codel,target=5", "target: ");
    refused::<AqmSpec>("fq_codel,ecn,noecn", "twice");
    refused::<ReorderSpec>("5", "%");
    refused::<ReorderSpec>("5%,gap=0", "gap: ");
    refused::<ReorderSpec>("5%,gap", "gap: expected a whole number");
    refused::<ReorderSpec>("5%,extent=3", "use one of: share, gap");
    refused::<ReorderSpec>("5%,gap=3,gap=4", "gap: given twice");
    refused::<DuplicateSpec>("1%,delay=5", "delay: `5` has no unit");
    refused::<DuplicateSpec>("1%,5ms", "share, delay");
    refused::<CorruptSpec>("0.1%,bits=0", "bits: expected a whole number from 1 to 255");
    refused::<CorruptSpec>(
        "0.1%,bits=256",
        "bits: expected a whole number from 1 to 255",
    );
    refused::<CorruptSpec>("0.1%,repair=yes", "repair: expected true or false");
    refused::<CorruptSpec>("0.1%,repair,repair", "repair: given twice");
    for case in [
        "2 => unit",
        "normal => `normal` is not a time: write a time",
        "free,normal => as in 20ms",
        "2ms,zipf => lognormal, normal, pareto, paretonormal, uniform",
        "2ms,normal,uniform => law: given twice",
        "2ms,free,per-flow => ordering: given twice",
        "2ms,half-life=0ms => half_life: it must be above 0; leave it out",
        "2ms,half-life=5 => half_life: `5` has no unit",
        "2ms,half-life=1s,half-life=2s => half_life: given twice",
        "2ms,law=table => a table needs its values",
        "2ms,25% => unknown key `25%`; for similar delays of neighbouring packets, write half-life=50ms",
    ] {
        let (text, right) = case.split_once(" => ").unwrap();
        refused::<JitterSpec>(text, right);
    }
    // A text cannot have the values of a distribution.
    let error = "2ms,zipf".parse::<JitterSpec>().unwrap_err().to_string();
    assert!(
        !error.contains("values") && !error.contains("file"),
        "{error}"
    );
}

#[test]
fn a_table_of_values_is_kept_in_records() {
    let text =
        "spread = '2ms'\nlaw = 'table'\nfile = 'x.dist'\nvalues = '8192 -8192'\nhalf_life = '5ms'";
    let spec: JitterSpec = read::toml_text(text).unwrap();
    let Some(Law::Table(table)) = spec.to_model().map(|jitter| jitter.law) else {
        panic!("{spec:?}")
    };
    assert_eq!(table.values(), [-8_192, 8_192]);
    let written = serde_json::to_value(&spec).unwrap();
    assert_eq!(written["values"], "-8192 8192");
    assert_eq!(read::json::<JitterSpec>(written).unwrap(), spec);
    for case in [
        "law = 'normal' => `spread` is missing",
        "spread = '2ms'\nlaw = 'table' => law: a table needs its values",
        "spread = '2ms'\nlaw = 'table'\nfile = 'x' => file: x was not read",
        "spread = '2ms'\nlaw = 'table'\nvalues = '1 b' => values: line 1: `b` is not a value",
        "spread = '2ms'\nfile = 'x' => file: add law = \"table\"",
        "spread = '2ms'\nvalues = '1' => values: add law",
        "spread = '2ms'\nhalf_life = '0s' => half_life: it must be above 0",
        "spread = '2ms'\nordering = 'perflow' => ordering: unknown name `perflow`; did you mean `per-flow`?",
    ] {
        let (table, right) = case.split_once(" => ").unwrap();
        let error = read::toml_text::<JitterSpec>(table).unwrap_err();
        assert!(error.to_string().contains(right), "{table}: {error}");
    }
}
