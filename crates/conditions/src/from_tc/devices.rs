//! The qdiscs, classes and filters of each device after the commands so far.

use std::mem;

use super::commands::{Object, Place, TcCommand, Verb};
use super::filters::{Matched, Target};
use super::ids::ClassId;
use super::qdiscs::{HtbClass, Qdisc};

/// The devices in the order in which the commands first name them.
#[derive(Debug, Default)]
pub(super) struct Devices(pub(super) Vec<Device>);

/// A device.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) name: String,
    qdiscs: Vec<QdiscNode>,
    classes: Vec<ClassNode>,
    filters: Vec<FilterNode>,
    /// The number of handles that the kernel has given.
    handles_given: u16,
}

/// A qdisc at its place.
#[derive(Debug)]
pub(super) struct QdiscNode {
    /// The line of the command that made it.
    pub(super) line: usize,
    pub(super) handle: u16,
    parent: ClassId,
    pub(super) qdisc: Qdisc,
}

/// A class of htb at its place.
#[derive(Debug)]
pub(super) struct ClassNode {
    pub(super) line: usize,
    pub(super) id: ClassId,
    pub(super) parent: ClassId,
    pub(super) class: HtbClass,
}

/// A filter at its place.
#[derive(Debug)]
pub(super) struct FilterNode {
    pub(super) line: usize,
    place: Place,
    priority: u32,
    /// Whether the command stated no priority.
    is_automatic: bool,
    pub(super) matched: Matched,
    pub(super) target: Target,
}

/// The deepest tree of qdiscs that is read, and of classes of htb (Linux 6.1, `TC_HTB_MAXDEPTH`).
const DEEPEST: usize = 8;
/// The first handle that the kernel gives, and the first priority.
const FIRST_HANDLE: u16 = 0x8001;
const FIRST_PRIORITY: u32 = 0xc000;

impl Devices {
    /// Applies a command.
    ///
    /// # Errors
    /// Returns the reason why the kernel would refuse it, or why it has no equivalent.
    pub(super) fn apply(&mut self, line: usize, command: TcCommand) -> Result<(), String> {
        let TcCommand {
            device,
            verb,
            object,
            ..
        } = command;
        let device = self.named(device);
        match object {
            Object::Qdisc {
                place: Place::Ingress,
                ..
            } => {
                if verb == Verb::Delete {
                    device
                        .filters
                        .retain(|filter| filter.place != Place::Ingress);
                }
                Ok(())
            }
            Object::Qdisc {
                place: Place::Below(parent),
                handle,
                qdisc,
            } => device.set_qdisc(line, verb, parent, handle, qdisc),
            Object::Class { id, parent, class } => device.set_class(line, verb, id, parent, class),
            Object::Filter {
                place,
                priority,
                filter,
            } => device.set_filter(line, verb, place, priority, filter),
        }
    }

    fn named(&mut self, name: String) -> &mut Device {
        let known = self.0.iter().position(|device| device.name == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(Device {
                name,
                ..Device::default()
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

impl Device {
    /// Returns the first qdisc of packets that leave.
    pub(super) fn root(&self) -> Option<&QdiscNode> {
        self.below(ClassId::ROOT)
    }

    /// Returns the qdisc below a class.
    pub(super) fn below(&self, class: ClassId) -> Option<&QdiscNode> {
        let slot = self.slot(class);
        self.qdiscs.iter().find(|node| node.parent == slot)
    }

    /// Returns the classes of a qdisc.
    pub(super) fn classes(&self, qdisc: u16) -> impl Iterator<Item = &ClassNode> {
        let all = self.classes.iter();
        all.filter(move |class| class.id.qdisc() == qdisc)
    }

    /// Returns the filters at a place in the order in which the kernel asks them.
    pub(super) fn filters(&self, place: Place) -> Vec<&FilterNode> {
        let mut filters: Vec<&FilterNode> = self
            .filters
            .iter()
            .filter(|filter| filter.place == place)
            .collect();
        filters.sort_by_key(|filter| filter.priority);
        filters
    }

    /// Returns whether it has a qdisc or a filter.
    pub(super) fn is_used(&self) -> bool {
        !self.qdiscs.is_empty() || !self.filters.is_empty()
    }

    /// Returns the filters below classes of a qdisc, which are not read.
    pub(super) fn filters_below_classes(&self, qdisc: u16) -> impl Iterator<Item = &FilterNode> {
        self.filters
            .iter()
            .filter(move |filter| match filter.place {
                Place::Below(id) => id.qdisc() == qdisc && id.minor() > 0,
                Place::Ingress => false,
            })
    }

    fn qdisc(&self, handle: u16) -> Option<&QdiscNode> {
        self.qdiscs.iter().find(|node| node.handle == handle)
    }

    fn class(&self, id: ClassId) -> Option<&ClassNode> {
        self.classes.iter().find(|class| class.id == id)
    }

    /// Returns the one identifier of a place: netem and tbf have one class, whatever its number is.
    fn slot(&self, parent: ClassId) -> ClassId {
        let above = self.qdisc(parent.qdisc()).map(|node| &node.qdisc);
        match above {
            Some(Qdisc::Netem(_) | Qdisc::Tbf(_)) if parent != ClassId::ROOT => {
                ClassId::of(parent.qdisc(), 1)
            }
            _ => parent,
        }
    }

    fn set_qdisc(
        &mut self,
        line: usize,
        verb: Verb,
        parent: ClassId,
        handle: Option<u16>,
        qdisc: Option<Qdisc>,
    ) -> Result<(), String> {
        let slot = self.slot(parent);
        let existing = self.qdiscs.iter_mut().find(|node| node.parent == slot);
        if verb == Verb::Delete {
            self.remove(slot);
            return Ok(());
        }
        let qdisc = qdisc.ok_or("a qdisc without a kind")?;
        let is_same = |node: &QdiscNode| {
            mem::discriminant(&node.qdisc) == mem::discriminant(&qdisc)
                && handle.is_none_or(|handle| handle == node.handle)
        };
        match (existing, verb) {
            (None, Verb::Change) => return Err(format!("there is no qdisc at {parent}")),
            (Some(node), Verb::Change | Verb::Replace) if is_same(node) => {
                (node.line, node.qdisc) = (line, qdisc);
                return Ok(());
            }
            (Some(_), Verb::Change) => {
                return Err(format!("the qdisc at {parent} is of another kind"));
            }
            (Some(node), Verb::Add) => {
                return Err(format!(
                    "there is a qdisc at {parent} already, of line {}: tc refuses add",
                    node.line
                ));
            }
            (Some(_), _) => self.remove(slot),
            (None, _) => {}
        }
        self.check_parent(slot)?;
        let handle = handle.unwrap_or_else(|| {
            self.handles_given = self.handles_given.saturating_add(1);
            FIRST_HANDLE.saturating_add(self.handles_given - 1)
        });
        if let Some(other) = self.qdisc(handle) {
            return Err(format!(
                "its handle is that of the qdisc of line {}",
                other.line
            ));
        }
        self.qdiscs.push(QdiscNode {
            line,
            handle,
            parent: slot,
            qdisc,
        });
        Ok(())
    }

    /// Refuses a place that does not exist.
    fn check_parent(&self, parent: ClassId) -> Result<(), String> {
        if parent == ClassId::ROOT {
            return Ok(());
        }
        let above_of = |parent: ClassId| {
            let above = self
                .qdisc(parent.qdisc())
                .filter(|_| parent != ClassId::ROOT);
            above.map(|node| node.parent)
        };
        if std::iter::successors(Some(parent), |parent| above_of(*parent))
            .nth(DEEPEST)
            .is_some()
        {
            return Err(format!("more than {DEEPEST} qdiscs below each other"));
        }
        let above = self.qdisc(parent.qdisc());
        let above = above.ok_or_else(|| format!("there is no qdisc {:x}:", parent.qdisc()))?;
        let exists = match &above.qdisc {
            Qdisc::Netem(_) | Qdisc::Tbf(_) => true,
            Qdisc::Htb(_) => self.class(parent).is_some(),
            Qdisc::Prio(prio) => (1..=prio.bands).contains(&parent.minor()),
            Qdisc::Queue(_) | Qdisc::Plain | Qdisc::Ingress => {
                return Err(format!("what is below the qdisc of line {}", above.line));
            }
        };
        exists
            .then_some(())
            .ok_or_else(|| format!("there is no class {parent}"))
    }

    /// Removes the qdisc at a place, with everything below it.
    fn remove(&mut self, slot: ClassId) {
        let mut gone = vec![slot];
        while let Some(slot) = gone.pop() {
            let Some(at) = self.qdiscs.iter().position(|node| node.parent == slot) else {
                continue;
            };
            let QdiscNode { handle, .. } = self.qdiscs.remove(at);
            self.classes.retain(|class| class.id.qdisc() != handle);
            self.filters.retain(|filter| match filter.place {
                Place::Below(id) => id.qdisc() != handle,
                Place::Ingress => true,
            });
            let below = self.qdiscs.iter().map(|node| node.parent);
            gone.extend(
                below.filter(|parent| parent.qdisc() == handle && *parent != ClassId::ROOT),
            );
        }
    }

    fn set_class(
        &mut self,
        line: usize,
        verb: Verb,
        id: ClassId,
        parent: ClassId,
        class: Option<HtbClass>,
    ) -> Result<(), String> {
        if verb == Verb::Delete {
            self.remove(id);
            self.classes.retain(|class| class.id != id);
            return Ok(());
        }
        let class = class.ok_or("a class without its qdisc's kind")?;
        let known = self.classes.iter_mut().find(|class| class.id == id);
        match (known, verb) {
            (Some(known), Verb::Change | Verb::Replace) => {
                (known.line, known.class) = (line, class);
                return Ok(());
            }
            (Some(_), _) => return Err(format!("there is a class {id} already")),
            (None, Verb::Change) => return Err(format!("there is no class {id}")),
            (None, _) => {}
        }
        let is_htb = |node: &QdiscNode| matches!(node.qdisc, Qdisc::Htb(_));
        if !self.qdisc(id.qdisc()).is_some_and(is_htb) {
            return Err(format!("there is no htb with the handle {:x}:", id.qdisc()));
        }
        let is_at_top = parent == ClassId::of(id.qdisc(), 0);
        if !is_at_top && self.class(parent).is_none() {
            return Err(format!("there is no class {parent}"));
        }
        let above = |id: &ClassId| self.class(*id).map(|class| class.parent);
        if std::iter::successors(Some(parent), above)
            .nth(DEEPEST)
            .is_some()
        {
            return Err(format!("more than {DEEPEST} classes below each other"));
        }
        self.classes.push(ClassNode {
            line,
            id,
            parent,
            class,
        });
        Ok(())
    }

    fn set_filter(
        &mut self,
        line: usize,
        verb: Verb,
        place: Place,
        priority: Option<u32>,
        filter: Option<(Matched, Target)>,
    ) -> Result<(), String> {
        let place = match (place, self.root()) {
            (Place::Below(ClassId::ROOT), Some(root)) => Place::Below(ClassId::of(root.handle, 0)),
            (place, _) => place,
        };
        if verb == Verb::Delete {
            let is_one = |filter: &FilterNode| {
                filter.place == place && priority.is_none_or(|own| own == filter.priority)
            };
            self.filters.retain(|filter| !is_one(filter));
            return Ok(());
        }
        if let Place::Below(id) = place
            && self.qdisc(id.qdisc()).is_none()
        {
            return Err(format!("there is no qdisc {:x}:", id.qdisc()));
        }
        let (matched, target) = filter.ok_or("a filter without a kind")?;
        // The kernel puts a filter without a priority in front of those that it gave one.
        let others = self.filters.iter().filter(|filter| filter.place == place);
        let lowest = others.filter(|filter| filter.is_automatic);
        let lowest = lowest.map(|filter| filter.priority).min();
        let automatic = lowest.map_or(FIRST_PRIORITY, |lowest| lowest.saturating_sub(1));
        self.filters.push(FilterNode {
            line,
            place,
            priority: priority.filter(|own| *own > 0).unwrap_or(automatic),
            is_automatic: priority.is_none_or(|own| own == 0),
            matched,
            target,
        });
        Ok(())
    }
}
