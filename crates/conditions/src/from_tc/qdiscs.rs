//! Qdiscs and classes of tc with their options, as far as a link has an equivalent (iproute2 6.1, `tc/q_*.c`).

use model::{Bytes, Nanos, Netem, QueueLimit};

use crate::condition::{AqmSpec, NetemSpec, RateAtSpec};
use crate::tc_number::{self, Wrong};
use crate::tc_words::Words;

/// A qdisc.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Qdisc {
    Netem(Box<Netem>),
    Tbf(Tbf),
    /// It has classes; the number is the minor number of the one for packets that no filter matches.
    Htb(u32),
    Prio(Prio),
    Queue(LeafQueue),
    /// It has no effect on a link, or none that a link could have.
    Plain,
    /// The place of filters for packets that come in.
    Ingress,
}

/// The rate of a shaper.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shaper {
    pub(super) bytes_per_s: u64,
    /// The size of the token bucket, if it was stated.
    pub(super) burst: Option<u32>,
    /// The bytes that it counts, if they are not those of the frame.
    pub(super) rate_at: Option<RateAtSpec>,
}

/// A token bucket filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tbf {
    pub(super) shaper: Shaper,
    /// The bytes that wait at most, unless a qdisc below replaces this queue.
    pub(super) queue: Bytes,
}

/// A class of htb.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HtbClass {
    /// The rate that it always has, for a class without a parent to borrow from.
    pub(super) rate: Shaper,
    /// The rate up to which it borrows from its parent.
    pub(super) ceil: Shaper,
    /// Whether a `burst` was stated.
    pub(super) has_burst: bool,
}

/// Bands of which the first one that has packets is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prio {
    pub(super) bands: u32,
    /// The band of each priority, from 0.
    pub(super) band_of: [u32; 16],
}

/// A queue without classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LeafQueue {
    pub(super) limit: Option<QueueLimit>,
    pub(super) aqm: Option<AqmSpec>,
}

/// Reads the options of a qdisc. `lacks` gets those that have no equivalent.
///
/// # Errors
/// Returns the reason why tc or farwire refuses the options.
pub(super) fn qdisc(
    kind: &str,
    words: &mut Words<'_>,
    lacks: &mut Vec<String>,
) -> Result<Qdisc, String> {
    match kind {
        "netem" => {
            let read: Result<NetemSpec, _> = words.rest().parse();
            read.map(|NetemSpec(netem)| Qdisc::Netem(Box::new(netem)))
                .map_err(|cause| format!("netem: {cause}"))
        }
        "tbf" => tbf(words, lacks).map(Qdisc::Tbf),
        "htb" => htb(words).map(Qdisc::Htb),
        "prio" => prio(words).map(Qdisc::Prio),
        "pfifo" | "bfifo" | "pfifo_head_drop" => fifo(kind, words).map(Qdisc::Queue),
        "codel" | "fq_codel" | "pie" => managed(kind, words, lacks).map(Qdisc::Queue),
        "pfifo_fast" | "noqueue" | "mq" => Ok(Qdisc::Plain),
        other => {
            lacks.push(format!("the qdisc {other}"));
            Ok(Qdisc::Plain)
        }
    }
}

/// The options about the line of a shaper, so far.
#[derive(Default)]
struct LineOptions {
    overhead: u16,
    mpu: u32,
    linklayer: &'static str,
}

impl LineOptions {
    /// Returns what a rate counts.
    fn rate_at(&self, lacks: &mut Vec<String>) -> Option<RateAtSpec> {
        let Self {
            overhead,
            mpu,
            linklayer,
        } = self;
        if (*overhead, *mpu, *linklayer) == (0, 0, "") {
            return None;
        }
        let text = format!("overhead={overhead},mpu={mpu}{linklayer}");
        let read: Result<RateAtSpec, _> = text.parse();
        read.map_err(|_| lacks.push(format!("overhead {overhead} mpu {mpu}: at most 256 each")))
            .ok()
    }

    fn set_linklayer(&mut self, word: &str) -> Result<(), String> {
        self.linklayer = match word {
            "ethernet" => "",
            "atm" | "adsl" => ",atm",
            other => return Err(format!("linklayer: `{other}` is not one that tc knows")),
        };
        Ok(())
    }
}

fn tbf(words: &mut Words<'_>, lacks: &mut Vec<String>) -> Result<Tbf, String> {
    const SHORT: &[&str] = &[
        "limit",
        "latency",
        "burst",
        "peakrate",
        "overhead",
        "linklayer",
    ];
    const EXACT: &[&str] = &["buffer", "maxburst", "mtu", "minburst", "mpu", "rate"];
    let (mut limit, mut latency, mut burst, mut bytes_per_s) = (0, Nanos::ZERO, 0, 0);
    let mut line = LineOptions::default();
    while let Some(word) = words.next() {
        let option = named("tbf", word, SHORT, EXACT)?;
        let value = words.need(option, "tc needs one")?;
        match option {
            "limit" => limit = size(option, value)?,
            "latency" => latency = time(option, value)?,
            "burst" | "buffer" | "maxburst" => burst = size_and_cell(option, value)?,
            "rate" => bytes_per_s = rate(option, value)?,
            "overhead" => line.overhead = whole(option, value, 10)?,
            "mpu" => line.mpu = size(option, value)?,
            "linklayer" => line.set_linklayer(value)?,
            "peakrate" => lacks.push("peakrate".to_owned()),
            // The size of the second bucket, which a peak rate has.
            _ => {}
        }
    }
    if bytes_per_s == 0 || burst == 0 {
        return Err("tbf: tc requires a rate and a burst above 0".to_owned());
    }
    if (limit == 0) == (latency == Nanos::ZERO) {
        return Err("tbf: tc requires either limit or latency".to_owned());
    }
    let queue = match limit {
        0 => {
            let in_latency = u128::from(bytes_per_s) * u128::from(latency.0) / 1_000_000_000;
            u64::try_from(in_latency)
                .unwrap_or(u64::MAX)
                .saturating_add(u64::from(burst))
        }
        limit => u64::from(limit),
    };
    Ok(Tbf {
        shaper: Shaper {
            bytes_per_s,
            burst: Some(burst),
            rate_at: line.rate_at(lacks),
        },
        queue: Bytes(queue),
    })
}

/// Reads the options of htb: the minor number of the default class. The others do not matter on a link.
fn htb(words: &mut Words<'_>) -> Result<u32, String> {
    const SHORT: &[&str] = &["r2q", "default", "debug", "direct_qlen", "offload"];
    let mut default = 0;
    while let Some(word) = words.next() {
        let option = named("htb", word, SHORT, &[])?;
        if option == "offload" {
            continue;
        }
        let value = words.need(option, "tc needs one")?;
        if option == "default" {
            default = whole(option, value, 16)?;
        }
    }
    Ok(default)
}

/// Reads the options of a class of htb. Those that only matter where classes share a rate have no effect.
///
/// # Errors
/// Returns the reason why tc refuses the options.
pub(super) fn htb_class(
    words: &mut Words<'_>,
    lacks: &mut Vec<String>,
) -> Result<HtbClass, String> {
    const SHORT: &[&str] = &[
        "prio",
        "mtu",
        "mpu",
        "overhead",
        "linklayer",
        "quantum",
        "burst",
        "cburst",
    ];
    const EXACT: &[&str] = &["buffer", "maxburst", "cbuffer", "cmaxburst", "ceil", "rate"];
    let (mut own, mut most) = (0, 0);
    let (mut burst, mut cburst) = (None, None);
    let mut line = LineOptions::default();
    while let Some(word) = words.next() {
        let option = named("htb", word, SHORT, EXACT)?;
        let value = words.need(option, "tc needs one")?;
        match option {
            "rate" => own = rate(option, value)?,
            "ceil" => most = rate(option, value)?,
            "burst" | "buffer" | "maxburst" => burst = Some(size_and_cell(option, value)?),
            "cburst" | "cbuffer" | "cmaxburst" => cburst = Some(size_and_cell(option, value)?),
            "overhead" => line.overhead = whole(option, value, 10)?,
            "mpu" => line.mpu = u32::from(whole::<u16>(option, value, 10)?),
            "linklayer" => line.set_linklayer(value)?,
            _ => {}
        }
    }
    if own == 0 {
        return Err("htb: tc requires a rate above 0".to_owned());
    }
    let rate_at = line.rate_at(lacks);
    let shaper = |bytes_per_s, burst| Shaper {
        bytes_per_s,
        burst,
        rate_at,
    };
    let ceil = if most == 0 { own } else { most };
    // A class sends while both buckets have tokens: `burst` lasts at the speed of ceil, and `cburst` at that of the device.
    // A bucket that is not stated has room for little more than a packet.
    let own_burst = match (burst, cburst) {
        (Some(burst), _) if ceil > own => Some(burst),
        (Some(burst), Some(cburst)) => Some(burst.min(cburst)),
        _ => None,
    };
    Ok(HtbClass {
        rate: shaper(own, own_burst),
        ceil: shaper(ceil, cburst),
        has_burst: burst.is_some(),
    })
}

fn prio(words: &mut Words<'_>) -> Result<Prio, String> {
    const MOST: u32 = 16;
    let mut read = Prio {
        bands: 3,
        band_of: [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    };
    let mut priority = None;
    while let Some(word) = words.next() {
        match (word, &mut priority) {
            ("bands", _) => {
                let value = words.need(word, "a number, as in bands 4")?;
                read.bands = whole(word, value, 10)?;
            }
            ("priomap", None) => priority = Some(read.band_of.iter_mut()),
            ("multiqueue", _) => {}
            (band, Some(places)) => {
                let band = whole("priomap", band, 10)?;
                let place = places.next().ok_or("priomap: tc takes at most 16 bands")?;
                if band >= read.bands {
                    return Err(format!("priomap: there is no band {band}"));
                }
                *place = band;
            }
            (other, None) => return Err(format!("prio: `{other}` is not an option of tc's")),
        }
    }
    if let Some(band) = read.band_of.iter().find(|band| **band >= read.bands) {
        return Err(format!(
            "prio: the map of priorities has band {band}, and there are {}",
            read.bands
        ));
    }
    let is_right = (2..=MOST).contains(&read.bands);
    is_right
        .then_some(read)
        .ok_or_else(|| format!("bands: the kernel takes 2 to {MOST}"))
}

fn fifo(kind: &str, words: &mut Words<'_>) -> Result<LeafQueue, String> {
    let mut limit = None;
    while let Some(word) = words.next() {
        let option = named(kind, word, &[], &["limit"])?;
        limit = Some(size(option, words.need(option, "tc needs one")?)?);
    }
    let in_unit = |limit: u32| match kind {
        "bfifo" => QueueLimit::Bytes(Bytes(limit.into())),
        _ => QueueLimit::Packets(limit),
    };
    let drops_head = kind == "pfifo_head_drop";
    let aqm: Option<Result<AqmSpec, _>> = drops_head.then(|| "drop-head".parse());
    Ok(LeafQueue {
        limit: limit.filter(|limit| *limit > 0).map(in_unit),
        aqm: aqm.transpose().map_err(|cause| cause.to_string())?,
    })
}

/// The options of codel, fq_codel and pie that farwire has under the same names.
const TIMES: &[&str] = &["target", "interval", "tupdate"];
const NUMBERS: &[&str] = &["flows", "quantum"];
const SWITCHES: &[&str] = &["ecn", "noecn"];
/// Further options of theirs: with a value, and without one.
const OTHER_VALUES: &[&str] = &[
    "ce_threshold",
    "ce_threshold_selector",
    "memory_limit",
    "drop_batch",
    "alpha",
    "beta",
];
const OTHER_SWITCHES: &[&str] = &[
    "bytemode",
    "nobytemode",
    "dq_rate_estimator",
    "no_dq_rate_estimator",
];

fn managed(
    kind: &str,
    words: &mut Words<'_>,
    lacks: &mut Vec<String>,
) -> Result<LeafQueue, String> {
    let mut limit = None;
    let mut text = kind.to_owned();
    while let Some(word) = words.next() {
        if SWITCHES.contains(&word) {
            text += &format!(",{word}");
            continue;
        }
        if OTHER_SWITCHES.contains(&word) {
            lacks.push(format!("{word} of {kind}"));
            continue;
        }
        let value = words.need(word, "tc needs one")?;
        if word == "limit" {
            let packets: u32 = whole(word, value, 0)?;
            limit = (packets > 0).then_some(packets);
        } else if TIMES.contains(&word) {
            text += &format!(",{word}={}", time(word, value)?);
        } else if NUMBERS.contains(&word) {
            let number: u32 = whole(word, value, 0)?;
            text += &format!(",{word}={number}");
        } else if OTHER_VALUES.contains(&word) {
            lacks.push(format!("{word} of {kind}"));
        } else {
            return Err(format!("{kind}: `{word}` is not an option of tc's"));
        }
    }
    let aqm: Result<AqmSpec, _> = text.parse();
    let aqm = aqm.map_err(|cause| format!("{kind}: {cause}"))?;
    Ok(LeafQueue {
        limit: limit.map(QueueLimit::Packets),
        aqm: Some(aqm),
    })
}

/// Returns the option that a word names; some may be shortened, others not.
///
/// # Errors
/// Returns a message for an unknown word.
pub(super) fn named(
    kind: &str,
    word: &str,
    short: &[&'static str],
    exact: &[&'static str],
) -> Result<&'static str, String> {
    let exactly = exact.iter().find(|option| **option == word);
    let begun = || short.iter().find(|option| option.starts_with(word));
    let found = exactly.or_else(begun).copied();
    found.ok_or_else(|| format!("{kind}: `{word}` is not an option of tc's"))
}

/// Reads a rate in bytes per second.
///
/// # Errors
/// Returns the reason why tc or farwire refuses it.
pub(super) fn rate(option: &str, word: &str) -> Result<u64, String> {
    if word.contains('%') {
        return Err(format!(
            "{option}: `{word}` is a share of a device's speed, and a link has none"
        ));
    }
    tc_number::rate(word).map_err(|wrong| refused(option, word, wrong, "a rate"))
}

/// Reads a size in bytes or packets.
///
/// # Errors
/// Returns the reason why tc refuses it.
pub(super) fn size(option: &str, word: &str) -> Result<u32, String> {
    tc_number::size(word).map_err(|wrong| refused(option, word, wrong, "a size"))
}

/// Reads a size that may have the size of a cell behind a slash, which does not matter any more.
fn size_and_cell(option: &str, word: &str) -> Result<u32, String> {
    let (bytes, _) = word.split_once('/').unwrap_or((word, ""));
    size(option, bytes)
}

/// Reads a time; a number alone is microseconds, as for every qdisc but netem.
fn time(option: &str, word: &str) -> Result<Nanos, String> {
    let read = match tc_number::time(word) {
        Err(Wrong::NoUnit) => tc_number::time(&format!("{word}us")),
        read => read,
    };
    read.map_err(|wrong| refused(option, word, wrong, "a time"))
}

/// Reads an integer in a base.
///
/// # Errors
/// Returns the reason why tc refuses it.
pub(super) fn whole<T: TryFrom<i128>>(option: &str, word: &str, base: u32) -> Result<T, String> {
    let read = tc_number::integer(word, base).and_then(|number| T::try_from(number).ok());
    read.ok_or_else(|| {
        refused(
            option,
            word,
            Wrong::Malformed,
            "a whole number in its range",
        )
    })
}

fn refused(option: &str, word: &str, wrong: Wrong, what: &str) -> String {
    match wrong {
        Wrong::OutOfRange => format!("{option}: `{word}` is out of range"),
        Wrong::Malformed | Wrong::NoUnit => format!("{option}: `{word}` is not {what}"),
    }
}
