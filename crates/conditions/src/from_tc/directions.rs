//! The effect of a device's qdiscs, classes and filters on the packets of one direction.

use model::{BitsPerSec, Bytes, Framing, Netem, QueueLimit};

use super::commands::Place;
use super::devices::{ClassNode, Device, Devices, FilterNode, QdiscNode};
use super::filters::{Matched, Target};
use super::ids::ClassId;
use super::qdiscs::{HtbClass, LeafQueue, Prio, Qdisc, Shaper, Tbf};
use super::report::Report;
use crate::condition::{
    AqmSpec, NetemAtSpec, NetemSpec, PoliceSpec, QueueSpec, RateAtSpec, RateSpec,
};
use crate::layer::ConditionSet;

/// The queue of a class of htb or a band of prio without a qdisc, in packets: the length of the device's queue.
const DEVICE_QUEUE: u32 = 1_000;
/// The same on an ifb (Linux 6.1, `drivers/net/ifb.c`).
const IFB_QUEUE: u32 = 32;

/// The conditions that some packets meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path {
    pub(super) netem: Option<Netem>,
    pub(super) rate: Option<RateSpec>,
    rate_at: Option<RateAtSpec>,
    queue: Option<QueueLimit>,
    aqm: Option<AqmSpec>,
    police: Option<PoliceSpec>,
}

/// The conditions that the packets of one direction meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Direction {
    /// The path of packets that no filter matches, with what all packets share.
    pub(super) rest: Path,
    /// The paths of those that filters match, without what all packets share, in the order of the filters.
    pub(super) classes: Vec<OwnPath>,
}

/// The path of the packets of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnPath {
    /// The line of the filter.
    pub(super) line: usize,
    pub(super) matched: Matched,
    pub(super) path: Path,
}

/// A class to which filters may lead.
struct Leaf {
    id: ClassId,
    /// The line that made it, if it has conditions.
    line: Option<usize>,
    path: Path,
    /// Whether packets reach it without a filter.
    is_reached: bool,
}

impl Path {
    /// Returns its conditions. `has_rate` says whether its packets also meet a rate that it shares with others.
    pub(super) fn conditions(&self, has_rate: bool) -> ConditionSet {
        let mut set = ConditionSet::default();
        if let Some(netem) = self.netem {
            set.set(NetemSpec(netem));
            if has_rate || self.rate.is_some() {
                set.set(NetemAtSpec::BeforeRate);
            }
        }
        if let Some(rate) = self.rate {
            set.set(rate);
            self.rate_at.into_iter().for_each(|at| set.set(at));
            self.queue
                .into_iter()
                .for_each(|limit| set.set(QueueSpec(limit)));
            self.aqm.into_iter().for_each(|aqm| set.set(aqm));
        }
        self.police.into_iter().for_each(|police| set.set(police));
        set
    }

    /// Sets the rate and, if no qdisc below has one, the queue. A managed queue without a limit has its own default.
    fn shape(&mut self, rate: RateSpec, shaper: &Shaper, queue: QueueLimit) {
        self.rate = Some(rate);
        self.rate_at = shaper.rate_at;
        let has_own = self.aqm.is_some_and(|aqm| aqm.usual_limit().is_some());
        self.queue = self.queue.or((!has_own).then_some(queue));
    }
}

impl Direction {
    fn has_rate(&self) -> bool {
        self.paths().any(|path| path.rate.is_some())
    }

    fn has_netem(&self) -> bool {
        self.paths().any(|path| path.netem.is_some())
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let classes = self.classes.iter().map(|class| &class.path);
        [&self.rest].into_iter().chain(classes)
    }

    /// Returns the conditions of packets that no filter matches.
    pub(super) fn conditions(&self) -> ConditionSet {
        self.rest.conditions(self.has_rate())
    }

    /// Returns the conditions of a class that differ from these.
    pub(super) fn conditions_of(&self, class: &OwnPath) -> ConditionSet {
        class.path.conditions(self.rest.rate.is_some())
    }
}

/// Converts what one device does.
pub(super) struct Converter<'d> {
    device: &'d Device,
    /// The packets that a queue without a stated limit holds.
    queue: u32,
    report: &'d mut Report,
}

impl<'d> Converter<'d> {
    /// Returns what packets meet that leave by a device.
    pub(super) fn leaving(device: &'d Device, report: &'d mut Report) -> Direction {
        let queue = match device.name.starts_with("ifb") {
            true => IFB_QUEUE,
            false => DEVICE_QUEUE,
        };
        let mut converter = Self {
            device,
            queue,
            report,
        };
        let root = device.root();
        let direction = root.map_or_else(Direction::default, |root| converter.qdisc(root));
        let has_queue = direction.paths().any(|path| path.queue.is_some());
        if has_queue && !direction.has_rate() {
            converter.report.remark(
                "A queue is left out: in tc it fills at the speed of the device, and a link without a rate has no queue.",
            );
        }
        direction
    }

    fn qdisc(&mut self, node: &QdiscNode) -> Direction {
        match &node.qdisc {
            Qdisc::Netem(netem) => self.netem(node, netem),
            Qdisc::Tbf(tbf) => self.tbf(node, tbf),
            Qdisc::Htb(default) => self.htb(node, *default),
            Qdisc::Prio(prio) => self.prio(node, prio),
            Qdisc::Queue(LeafQueue { limit, aqm }) => Direction {
                rest: Path {
                    queue: *limit,
                    aqm: *aqm,
                    ..Path::default()
                },
                classes: Vec::new(),
            },
            Qdisc::Plain | Qdisc::Ingress => Direction::default(),
        }
    }

    /// Converts the qdisc below netem or tbf, which have one class.
    fn below(&mut self, node: &QdiscNode) -> Direction {
        let below = self.device.below(ClassId::of(node.handle, 1));
        below.map_or_else(Direction::default, |below| self.qdisc(below))
    }

    fn netem(&mut self, node: &QdiscNode, netem: &Netem) -> Direction {
        let mut direction = self.below(node);
        if direction.has_netem() {
            self.report
                .lack(node.line, "a second netem for the same packets");
            return direction;
        }
        direction.rest.netem = Some(*netem);
        direction
    }

    fn tbf(&mut self, node: &QdiscNode, tbf: &Tbf) -> Direction {
        let mut direction = self.below(node);
        if direction.has_rate() {
            self.report
                .lack(node.line, "a second rate for the same packets");
            return direction;
        }
        let below = self.device.below(ClassId::of(node.handle, 1));
        let queue = match below.map(|below| &below.qdisc) {
            None => QueueLimit::Bytes(tbf.queue),
            Some(Qdisc::Netem(netem)) => self.queue_of_netem(netem),
            Some(Qdisc::Prio(_)) => {
                self.report.lack(
                    node.line,
                    "the order of prio's bands below a rate: here all packets wait in one queue",
                );
                QueueLimit::Packets(self.queue)
            }
            Some(_) => QueueLimit::Packets(self.queue),
        };
        let (rate, has_burst) = rate_of(&tbf.shaper);
        if !has_burst {
            let burst = tbf.shaper.burst.unwrap_or_default();
            self.report.lack(
                node.line,
                format!("burst {burst}: tbf drops longer packets, and here they pass"),
            );
        }
        direction.rest.shape(rate, &tbf.shaper, queue);
        direction
    }

    /// Returns the queue of a rate above netem: the packets that netem holds.
    fn queue_of_netem(&mut self, netem: &Netem) -> QueueLimit {
        self.report.remark(
            "In tc, packets that wait for the rate also count towards netem's limit. In farwire, the queue of the rate holds as many packets again.",
        );
        QueueLimit::Packets(netem.limit)
    }

    fn htb(&mut self, node: &QdiscNode, default: u32) -> Direction {
        let device = self.device;
        let is_parent = |id: ClassId| device.classes(node.handle).any(|class| class.parent == id);
        let mut leaves = Vec::new();
        for class in device.classes(node.handle) {
            if is_parent(class.id) {
                self.note_sharing(class);
            } else {
                leaves.push(Leaf {
                    id: class.id,
                    line: Some(class.line),
                    path: self.class(class),
                    is_reached: false,
                });
            }
        }
        self.classful(node, leaves, ClassId::of(node.handle, default))
    }

    /// Notes that classes share the rate of their parent, if they could use more than it has.
    fn note_sharing(&mut self, parent: &ClassNode) {
        let classes = self.device.classes(parent.id.qdisc());
        let below = classes.filter(|class| class.parent == parent.id);
        let rates: Vec<u64> = below.map(|class| self.most(class).bytes_per_s).collect();
        let together = rates
            .iter()
            .fold(0_u64, |sum, rate| sum.saturating_add(*rate));
        if rates.len() > 1 && together > self.most(parent).bytes_per_s {
            self.report.lack(
                parent.line,
                format!(
                    "the rate that classes share in class {}: here each class has a separate bottleneck",
                    parent.id
                ),
            );
        }
    }

    /// Returns what a class lets pass at most. One without a parent cannot borrow.
    fn most<'c>(&self, class: &'c ClassNode) -> &'c Shaper
    where
        'd: 'c,
    {
        let mut classes = self.device.classes(class.id.qdisc());
        match classes.find(|other| other.id == class.parent) {
            None => &class.class.rate,
            Some(parent) => {
                let above = self.most(parent);
                match above.bytes_per_s < class.class.ceil.bytes_per_s {
                    true => above,
                    false => &class.class.ceil,
                }
            }
        }
    }

    fn class(&mut self, class: &ClassNode) -> Path {
        let below = self.device.below(class.id);
        let direction = below.map_or_else(Direction::default, |below| self.qdisc(below));
        if !direction.classes.is_empty() {
            self.report
                .lack(class.line, format!("classes below class {}", class.id));
        }
        let mut path = direction.rest;
        if path.rate.is_some() {
            self.report
                .lack(class.line, "a second rate for the same packets");
        }
        let queue = match below.map(|below| &below.qdisc) {
            Some(Qdisc::Netem(netem)) => self.queue_of_netem(netem),
            _ => QueueLimit::Packets(self.queue),
        };
        let shaper = self.most(class);
        self.note_burst(&class.class, shaper);
        // htb lets a packet pass that is longer than the burst.
        let (rate, _) = rate_of(shaper);
        path.shape(rate, shaper, queue);
        path
    }

    /// Notes how the burst of a class, which passes by `shaper`, differs from tc's (tc-htb(8)).
    fn note_burst(&mut self, class: &HtbClass, shaper: &Shaper) {
        match (class.has_burst, shaper.burst) {
            (true, None) => self.report.remark(
                "The burst of a class of htb is left out: in tc it lasts at the speed of its ceil, which is the rate here. A cburst is a burst at the speed of the device.",
            ),
            (true, Some(_)) if class.ceil.bytes_per_s > shaper.bytes_per_s => self.report.remark(
                "In tc, the burst of a class of htb leaves at the speed of its ceil. In farwire, it leaves without waiting.",
            ),
            (true, Some(_)) | (false, _) => {}
        }
    }

    fn prio(&mut self, node: &QdiscNode, prio: &Prio) -> Direction {
        let mut leaves = Vec::new();
        for band in 0..prio.bands {
            let id = ClassId::of(node.handle, band + 1);
            let below = self.device.below(id);
            let direction = below.map_or_else(Direction::default, |below| self.qdisc(below));
            if let Some(below) = below.filter(|_| !direction.classes.is_empty()) {
                self.report
                    .lack(below.line, format!("classes below band {id}"));
            }
            leaves.push(Leaf {
                id,
                line: below.map(|below| below.line),
                path: direction.rest,
                is_reached: prio.band_of.contains(&band),
            });
        }
        let [usual, ..] = prio.band_of;
        let path_of = |band: u32| leaves.get(band as usize).map(|leaf| &leaf.path);
        if prio
            .band_of
            .iter()
            .any(|band| path_of(*band) != path_of(usual))
        {
            let id = ClassId::of(node.handle, usual + 1);
            self.report.lack(
                node.line,
                format!("bands by priority, which the DS field gives: here packets that no filter matches are in {id}, the band of priority 0"),
            );
        }
        self.classful(node, leaves, ClassId::of(node.handle, usual + 1))
    }

    /// Converts the filters that lead to the classes of a qdisc. Packets that none matches are in the default class.
    fn classful(
        &mut self,
        node: &QdiscNode,
        mut leaves: Vec<Leaf>,
        mut default: ClassId,
    ) -> Direction {
        let mut led: Vec<(&FilterNode, ClassId)> = Vec::new();
        for filter in self
            .device
            .filters(Place::Below(ClassId::of(node.handle, 0)))
        {
            let id = match &filter.target {
                Target::Class(id) => ClassId::of(node.handle, id.minor()),
                Target::Device(name) => {
                    let what = format!("packets that leave and are redirected to {name}");
                    self.report.lack(filter.line, what);
                    continue;
                }
                Target::Police(_) => {
                    self.report
                        .lack(filter.line, "a policer for packets that leave");
                    continue;
                }
            };
            let Some(leaf) = leaves.iter_mut().find(|leaf| leaf.id == id) else {
                let what = format!("class {id}: it does not exist, or it has classes itself");
                self.report.lack(filter.line, what);
                continue;
            };
            leaf.is_reached = true;
            if filter.matched.is_all() {
                default = id;
                break;
            }
            let is_shared = leaf.path.rate.is_some() && led.iter().any(|(_, other)| *other == id);
            if is_shared {
                let what = format!(
                    "the rate that the packets of several filters share in class {id}: here each filter has its own"
                );
                self.report.lack(filter.line, what);
            }
            led.push((filter, id));
        }
        for filter in self.device.filters_below_classes(node.handle) {
            self.report.lack(filter.line, "a filter below a class");
        }
        let path_of = |id: ClassId| {
            leaves
                .iter()
                .find(|leaf| leaf.id == id)
                .map(|leaf| leaf.path.clone())
        };
        let rest = path_of(default).unwrap_or_default();
        let mut classes = Vec::new();
        for (filter, id) in led {
            let path = match id == default {
                true => Path::default(),
                false => {
                    let path = path_of(id).unwrap_or_default();
                    differing(path, &rest, filter.line, self.report)
                }
            };
            classes.push(OwnPath {
                line: filter.line,
                matched: filter.matched,
                path,
            });
        }
        for leaf in leaves
            .iter()
            .filter(|leaf| !leaf.is_reached && leaf.id != default)
        {
            if let Some(line) = leaf.line {
                self.report
                    .lack(line, format!("class {}: no filter leads to it", leaf.id));
            }
        }
        Direction { rest, classes }
    }
}

/// Returns the path of a class beside the one of other packets: a class has what these have, unless it states something
/// else.
fn differing(mut path: Path, rest: &Path, line: usize, report: &mut Report) -> Path {
    if rest.netem.is_some() && path.netem.is_none() {
        path.netem = Some(Netem::PLAIN);
        report.remark("`netem = \"limit 1000\"` does nothing: packets of its rule pass without the netem of the others.");
    }
    if rest.rate.is_some() && path.rate.is_none() {
        let what = "packets without a rate beside others with one: here they wait in the queue of that rate";
        report.lack(line, what);
    }
    if path.rate.is_some() && rest.rate_at.is_some() && path.rate_at.is_none() {
        path.rate_at = Some(RateAtSpec(Framing::L2));
    }
    if path.rate.is_some() && rest.aqm.is_some() && path.aqm.is_none() {
        let what = "a class with a plain queue beside others with queue management";
        report.lack(line, what);
    }
    path
}

/// Returns what packets meet that come in by a device: policers, and the qdiscs of devices to which they are redirected.
pub(super) fn arriving(device: &Device, devices: &Devices, report: &mut Report) -> Direction {
    let mut all = Direction::default();
    let mut own: Vec<OwnPath> = Vec::new();
    for filter in device.filters(Place::Ingress) {
        let led = match &filter.target {
            Target::Class(_) => {
                report.lack(filter.line, "a class for packets that come in");
                continue;
            }
            Target::Police(police) => Direction {
                rest: Path {
                    police: Some(*police),
                    ..Path::default()
                },
                classes: Vec::new(),
            },
            Target::Device(name) => match devices.0.iter().find(|other| other.name == *name) {
                Some(other) => Converter::leaving(other, report),
                None => Direction::default(),
            },
        };
        if filter.matched.is_all() {
            all = led;
            break;
        }
        if !led.classes.is_empty() {
            report.lack(
                filter.line,
                "classes for a part of the packets that come in",
            );
        }
        own.push(OwnPath {
            line: filter.line,
            matched: filter.matched,
            path: led.rest,
        });
    }
    for class in &mut own {
        let path = std::mem::take(&mut class.path);
        class.path = differing(path, &all.rest, class.line, report);
    }
    own.append(&mut all.classes);
    Direction {
        classes: own,
        ..all
    }
}

/// Returns the rate of a shaper, and whether it has the shaper's burst, if that has one.
fn rate_of(shaper: &Shaper) -> (RateSpec, bool) {
    let bits = shaper.bytes_per_s.saturating_mul(8);
    let plain = RateSpec {
        rate: BitsPerSec::new(bits).ok(),
        burst: None,
    };
    let Some(burst) = shaper.burst else {
        return (plain, true);
    };
    let text = format!("{bits}bit,burst={}", Bytes(burst.into()));
    match text.parse() {
        Ok(rate) => (rate, true),
        Err(_) => (plain, false),
    }
}
