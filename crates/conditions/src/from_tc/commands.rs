//! Commands of tc as it reads them: qdiscs, classes and filters (iproute2 6.1, `tc/tc_qdisc.c`, `tc/tc_class.c` and
//! `tc/tc_filter.c`).

use super::filters::{self, Matched, Network, Target};
use super::ids::ClassId;
use super::qdiscs::{self, HtbClass, Qdisc, whole};
use crate::tc_words::Words;

/// A command that changes a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TcCommand {
    pub(super) device: String,
    pub(super) verb: Verb,
    pub(super) object: Object,
    /// The parts that have no equivalent.
    pub(super) lacks: Vec<String>,
}

/// The change that a command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Change,
    Replace,
    Delete,
}

/// The object that a command changes. Its content is absent where a command only names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Object {
    Qdisc {
        place: Place,
        handle: Option<u16>,
        qdisc: Option<Qdisc>,
    },
    Class {
        id: ClassId,
        parent: ClassId,
        class: Option<HtbClass>,
    },
    Filter {
        place: Place,
        priority: Option<u32>,
        filter: Option<(Matched, Target)>,
    },
}

/// The place of a qdisc or of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Below a class, or at the root, for packets that leave.
    Below(ClassId),
    /// Before everything else, for packets that come in.
    Ingress,
}

/// Reads a command behind the word `tc`; `None` if it changes nothing.
///
/// # Errors
/// Returns the part of the command that has no equivalent, or the reason why tc refuses it.
pub(super) fn command(text: &str) -> Result<Option<TcCommand>, String> {
    let words = &mut Words::of(text);
    while let Some(option) = words.peek().filter(|word| word.starts_with('-')) {
        words.next();
        if "-netns".starts_with(option) && option.len() > 1 {
            words.need(option, "the name of a namespace")?;
        } else if "-batch".starts_with(option) && option.len() > 1 {
            return Err("commands of another file: give that file".to_owned());
        }
    }
    let object = words.need("tc", "qdisc, class or filter")?;
    let Some(verb) = verb(words.next().unwrap_or("show"))? else {
        return Ok(None);
    };
    let known = ["qdisc", "class", "filter"];
    let read = match known.into_iter().find(|known| known.starts_with(object)) {
        Some("qdisc") => qdisc(verb, words),
        Some("class") => class(verb, words),
        Some("filter") => filter(verb, words),
        _ => Err(format!("tc {object}")),
    };
    read.map(Some)
}

/// Returns the change; `None` for commands that only show something.
fn verb(word: &str) -> Result<Option<Verb>, String> {
    let all = [
        ("add", Some(Verb::Add)),
        ("change", Some(Verb::Change)),
        ("replace", Some(Verb::Replace)),
        ("link", Some(Verb::Replace)),
        ("delete", Some(Verb::Delete)),
        ("list", None),
        ("show", None),
        ("lst", None),
        ("get", None),
        ("help", None),
    ];
    let known = all.into_iter().find(|(name, _)| name.starts_with(word));
    known.map(|(_, verb)| verb).ok_or_else(|| {
        format!("`{word}` is not a command of tc's; the output of `tc ... show` is not read")
    })
}

/// Keeps the place of an object, and refuses a second one.
fn set<T>(place: &mut Option<T>, key: &str, value: Option<T>, word: &str) -> Result<(), String> {
    let value = value.ok_or_else(|| format!("{key}: `{word}` is not an identifier"))?;
    match place.replace(value) {
        Some(_) => Err(format!("{key}: given twice")),
        None => Ok(()),
    }
}

/// Reads the object behind the word `key`, which is `what`, and keeps its place.
fn take<'a, T>(
    place: &mut Option<T>,
    key: &str,
    words: &mut Words<'a>,
    what: &str,
    read: impl FnOnce(&'a str) -> Option<T>,
) -> Result<(), String> {
    let word = words.need(key, what)?;
    set(place, key, read(word), word)
}

const DEVICE: &str = "a device, as in dev eth0";
const IDENTIFIER: &str = "an identifier, as in 1:10";
const EGRESS_OF_CLSACT: &str = "a filter of clsact for packets that leave";

fn qdisc(verb: Verb, words: &mut Words<'_>) -> Result<TcCommand, String> {
    let (mut device, mut handle, mut place, mut qdisc) = (None, None, None, None);
    let mut lacks = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "dev" => take(&mut device, word, words, DEVICE, Some)?,
            "handle" => take(&mut handle, word, words, IDENTIFIER, ClassId::handle)?,
            "root" => set(&mut place, word, Some(Place::Below(ClassId::ROOT)), word)?,
            "parent" => {
                let below = |id: &str| ClassId::class(id).map(Place::Below);
                take(&mut place, word, words, IDENTIFIER, below)?;
            }
            "ingress" | "clsact" => {
                set(&mut place, word, Some(Place::Ingress), word)?;
                handle = Some(ClassId::INGRESS);
                qdisc = Some(Qdisc::Ingress);
                break;
            }
            _ if "estimator".starts_with(word) => {
                words.need(word, "an interval")?;
                words.need(word, "a time constant")?;
            }
            _ if "stab".starts_with(word) => lacks.push(size_table(words)?),
            kind => {
                // A command that deletes may name the options, which do not matter.
                if verb != Verb::Delete {
                    qdisc = Some(qdiscs::qdisc(kind, words, &mut lacks)?);
                }
                break;
            }
        }
    }
    Ok(TcCommand {
        device: device.ok_or("a qdisc without a device")?.to_owned(),
        verb,
        object: Object::Qdisc {
            place: place.ok_or("a qdisc without root or parent")?,
            handle,
            qdisc,
        },
        lacks,
    })
}

/// Passes over the options of `stab`, and returns what has no equivalent.
fn size_table(words: &mut Words<'_>) -> Result<String, String> {
    const OPTIONS: [&str; 5] = ["mtu", "mpu", "tsize", "overhead", "linklayer"];
    while let Some(option) = words.peek().filter(|word| OPTIONS.contains(word)) {
        words.next();
        words.need(option, "tc needs one")?;
    }
    Ok("stab: set overhead, mpu and linklayer at tbf or htb, or rate_at in the file".to_owned())
}

fn class(verb: Verb, words: &mut Words<'_>) -> Result<TcCommand, String> {
    let (mut device, mut id, mut parent, mut class) = (None, None, None, None);
    let mut lacks = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "dev" => take(&mut device, word, words, DEVICE, Some)?,
            "classid" => take(&mut id, word, words, IDENTIFIER, ClassId::class)?,
            "root" => set(&mut parent, word, Some(ClassId::ROOT), word)?,
            "parent" => take(&mut parent, word, words, IDENTIFIER, ClassId::class)?,
            _ if "estimator".starts_with(word) => {
                words.need(word, "an interval")?;
                words.need(word, "a time constant")?;
            }
            "htb" => {
                if verb != Verb::Delete {
                    class = Some(qdiscs::htb_class(words, &mut lacks)?);
                }
                break;
            }
            other => return Err(format!("a class of {other}")),
        }
    }
    let id = id.ok_or("a class without a classid")?;
    Ok(TcCommand {
        device: device.ok_or("a class without a device")?.to_owned(),
        verb,
        object: Object::Class {
            id,
            parent: parent.unwrap_or(ClassId::of(id.qdisc(), 0)),
            class,
        },
        lacks,
    })
}

fn filter(verb: Verb, words: &mut Words<'_>) -> Result<TcCommand, String> {
    let (mut device, mut place, mut priority, mut filter) = (None, None, None, None);
    let mut network = Network::Any;
    while let Some(word) = words.next() {
        match word {
            "dev" => take(&mut device, word, words, DEVICE, Some)?,
            "root" => set(&mut place, word, Some(Place::Below(ClassId::ROOT)), word)?,
            "ingress" => set(&mut place, word, Some(Place::Ingress), word)?,
            "egress" => return Err(EGRESS_OF_CLSACT.to_owned()),
            "parent" => {
                let text = words.need(word, IDENTIFIER)?;
                let id = ClassId::class(text);
                if id.is_some_and(|id| id == ClassId::of(ClassId::INGRESS, 0xfff3)) {
                    return Err(EGRESS_OF_CLSACT.to_owned());
                }
                let place_of = |id: ClassId| match id.qdisc() {
                    ClassId::INGRESS if id != ClassId::ROOT => Place::Ingress,
                    _ => Place::Below(id),
                };
                set(&mut place, word, id.map(place_of), text)?;
            }
            "handle" => {
                words.need(word, IDENTIFIER)?;
            }
            _ if "preference".starts_with(word) || "priority".starts_with(word) => {
                let number = words.need(word, "a number, as in prio 1")?;
                set(&mut priority, word, Some(whole(word, number, 0)?), number)?;
            }
            _ if "protocol".starts_with(word) => {
                network = Network::read(words.need(word, "a protocol, as in protocol ip")?)?;
            }
            "chain" | "block" => return Err(format!("{word} of filters")),
            _ if "estimator".starts_with(word) => {
                words.need(word, "an interval")?;
                words.need(word, "a time constant")?;
            }
            kind => {
                if verb != Verb::Delete {
                    filter = Some(filters::filter(kind, network, words)?);
                }
                break;
            }
        }
    }
    Ok(TcCommand {
        device: device.ok_or("a filter without a device")?.to_owned(),
        verb,
        object: Object::Filter {
            place: place.unwrap_or(Place::Below(ClassId::ROOT)),
            priority,
            filter,
        },
        lacks: Vec::new(),
    })
}
