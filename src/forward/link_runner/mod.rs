//! A link between two ports: takes in the frames that arrive (`intake`), lets the model decide, and
//! sends the packets that are due (`departing`).

mod departing;
mod intake;

use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use model::{ConfigError, Counters, Link, Nanos, Side, Waiting};
use netio::{PortSet, SendTimes, Spare, TxFrame};

use super::allowance::{Allowance, IntakeCost, PacketCost, Share};
use super::capture::TimeShare;
use super::departures::{Changes, Departures};
use super::held_frames::HeldFrames;
use super::observed::ObservedPackets;
use super::observers::Observers;
use super::overload::{Arrears, LatenessBound};
use super::packet_log::PacketLogWriter;
use super::recent_frames::RecentFrames;
use super::send_batch::SendBatch;
use super::stats::{QueueState, StallStats, Stats};
use super::{NewConditions, PortId};
use conditions::Rules;
use record::lateness::FlowDepartures;
use record::summary::{DelaySummary, PacketLogSummary, ShareSummary};

/// A link and its two ports.
pub(super) struct LinkRunner {
    /// The number of the link in its forwarder.
    number: u32,
    pub(super) ports: [PortId; 2],
    link: Link,
    /// The rules that give packets their classes.
    pub(super) rules: Rules,
    pub(super) departures: [Departures; 2],
    stats: Stats,
    pub(super) observers: Observers,
    /// The arrivals at both ports.
    pub(super) load: RecentFrames,
    /// The link's share of the present step's intake.
    pub(super) share: Share,
    /// The list in which the link waits for its turn, if there are several links.
    pub(super) waits_in: WaitsIn,
    /// True if the latest turn with packets to send had more than a few. The packets of other links then
    /// leave before the next turn of this one.
    pub(super) sends_alone: bool,
    arrears: Arrears,
    cost: PacketCost,
    /// The egress side that is served first in the next turn.
    first: Side,
    /// Takes the time of the first packet, if the link begins with it and none has arrived.
    begins: Option<Arc<AtomicU64>>,
}

/// The list in which one of several links waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitsIn {
    /// The link waits in no list.
    #[default]
    None,
    /// The link waits for the next round.
    ForRound,
    /// The link has used up its allowance.
    Behind,
    /// The link has more to drop than a turn allows.
    Dropping,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnEnd {
    /// The time of the next turn.
    pub(super) next: Option<Nanos>,
    /// True if the turn was over before all packets that were due had left or were dropped.
    pub(super) is_cut: bool,
    /// True if the turn dropped as many packets as it may, and more may be too late.
    pub(super) drops_more: bool,
}

/// The parts of a forwarder that all its links share.
pub(super) struct ForwarderShared<P: PortSet> {
    pub(super) sets: Vec<P>,
    pub(super) held: HeldFrames<P::Lent>,
    /// The due times of the runs that are sent next.
    pub(super) due: Vec<Nanos>,
    /// The runs that are sent next, if there are several links.
    pub(super) batch: SendBatch,
    /// The buffers in which frames are built.
    pub(super) spare: Spare,
    /// The latest known time: that of the step, or the end of the latest call that sent something.
    pub(super) latest: Nanos,
    /// The lateness at which packets are dropped if the forwarder cannot keep up.
    pub(super) bound: LatenessBound,
    /// Says since when frames have waited in the rings.
    pub(super) rings: Arrears,
    /// The cost of taking in packets, if there are several links.
    pub(super) intake_cost: IntakeCost,
    /// The times in which the host did not run the thread.
    pub(super) stalls: StallStats,
}

impl<P: PortSet> ForwarderShared<P> {
    /// Returns the time at which the packets that wait in the batch are expected to have left.
    pub(super) fn expected(&self) -> Nanos {
        self.latest + self.batch.takes()
    }
}

impl LinkRunner {
    pub(super) fn new(
        number: u32,
        ports: [PortId; 2],
        link: Link,
        rules: Rules,
        stats: Stats,
        log: Option<PacketLogWriter>,
        captures: TimeShare,
    ) -> Self {
        Self {
            number,
            ports,
            link,
            rules,
            departures: [Departures::default(), Departures::default()],
            stats,
            observers: Observers::new(log, captures),
            load: RecentFrames::default(),
            share: Share::default(),
            waits_in: WaitsIn::None,
            sends_alone: false,
            arrears: Arrears::default(),
            cost: PacketCost::default(),
            first: Side::A,
            begins: None,
        }
    }

    /// Allocates what the statistics of departures need.
    pub(super) fn prepare_statistics(&mut self) {
        self.stats.prepare(1 + self.rules.names().count());
    }

    /// Stores the time of the first packet, with which the link begins, in `begins`.
    pub(super) fn announce_start(&mut self, begins: Arc<AtomicU64>) {
        self.begins = Some(begins);
    }

    /// Decides on the packets that arrived before `horizon` and sends those that are due by `now`,
    /// as far as `allowance` goes.
    pub(super) fn turn<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        horizon: Nanos,
        now: Nanos,
        allowance: Allowance,
    ) -> TurnEnd {
        self.observers.follow(now, horizon);
        self.decide(shared, horizon);
        self.note_arrears(shared);
        self.depart_both(shared, now, Nanos::ZERO, allowance)
    }

    /// Notes how late the first packet is that waits to leave.
    fn note_arrears<P: PortSet>(&mut self, shared: &mut ForwarderShared<P>) {
        let ForwarderShared { latest, bound, .. } = shared;
        self.arrears
            .note(self.next_due(), *latest, bound.limit(), bound);
    }

    /// Returns the due time of the first packet that waits to leave.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        let both = self.departures.iter().filter_map(Departures::next_due);
        both.min()
    }

    /// Prepares the packets that are due at the future time `at` and sends them then. Returns the
    /// time of the next turn.
    pub(super) fn turn_ahead<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        at: Nanos,
    ) -> Option<Nanos> {
        self.depart_both(shared, at, at, Allowance::UNLIMITED).next
    }

    /// Sends the packets that are due by `now`, but not before `not_before`.
    fn depart_both<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
        now: Nanos,
        not_before: Nanos,
        mut allowance: Allowance,
    ) -> TurnEnd {
        self.stats.stalls = shared.stalls;
        let sides = [self.first, self.first.other()];
        // Each packet taken in may have become this many.
        let mut drops = allowance.drops().saturating_mul(self.link.most_copies());
        let next = sides
            .map(|egress| self.depart(shared, egress, now, not_before, &mut allowance, &mut drops));
        let departures = next.into_iter().flatten();
        let is_over = allowance.is_used_up() || drops == 0;
        let is_cut = is_over && departures.clone().any(|due| due <= now);
        if is_cut {
            // Otherwise one direction could use up every turn.
            self.first = self.first.other();
        }
        TurnEnd {
            next: departures.chain(self.next_decision()).min(),
            is_cut,
            drops_more: is_cut && drops == 0,
        }
    }

    /// Returns the time of the next turn apart from departures: when the model may decide on a packet,
    /// or an observer has something to do.
    fn next_decision(&self) -> Option<Nanos> {
        let both = [self.link.next_at(), self.observers.next_at()];
        both.into_iter().flatten().min()
    }

    /// Returns the time of the turn that an arrival by `now` gives one of several links, if any. A turn
    /// now would decide nothing if the packet waits behind others, which is usual for a link with a
    /// queue. A link under high load has it immediately, because the end of a turn lets it wait for the
    /// next round.
    pub(super) fn turn_after_arrival(&self, now: Nanos) -> Option<Nanos> {
        if self.load.is_high(now) {
            return Some(now);
        }
        self.next_decision().map(|at| at.max(now))
    }

    /// Returns the average time that a packet of this link takes to be sent.
    pub(super) fn cost(&self) -> PacketCost {
        self.cost
    }

    /// Learns from a call that sent packets of this link and perhaps of others.
    pub(super) fn learn_cost(&mut self, took: Nanos, packets: u32) {
        self.cost.learn(took, packets);
    }

    /// Puts new conditions into force at `at`, or as soon after it as the link can. Returns the
    /// time of the change.
    ///
    /// # Errors
    /// Fails if the link refuses the conditions, which then stay unchanged.
    pub(super) fn change(&mut self, at: Nanos, new: NewConditions) -> Result<Nanos, ConfigError> {
        let NewConditions {
            paths,
            rules,
            clock,
            order,
        } = new;
        let at = self.link.change_by_clock(at, paths, clock, order)?;
        self.rules = rules;
        Ok(at)
    }

    /// Gives up the packets that are still on their way and ends the packet log with them. Returns
    /// the summary of the log.
    pub(super) fn finish<P: PortSet>(
        &mut self,
        shared: &mut ForwarderShared<P>,
    ) -> Option<PacketLogSummary> {
        // Time zero yields only the outcomes that are already decided.
        self.decide(shared, Nanos::ZERO);
        let undecided = self.link.stop();
        let scheduled = self
            .departures
            .iter_mut()
            .flat_map(|schedule| iter::from_fn(|| schedule.pop()))
            .map(|next| (next.id, Some(next.due), next.changes));
        let undecided = undecided
            .into_iter()
            .map(|(id, copy)| (id, None, Changes::new(copy, false, None)));
        for (id, due, changes) in scheduled.chain(undecided) {
            self.observers.held(|| ObservedPackets {
                due: due.as_slice(),
                changes,
                ..shared.held.observed(id, 1)
            });
        }
        self.observers.finish()
    }

    /// Returns all counters. The cost does not grow with the number of packets, because packets
    /// wait meanwhile.
    pub(super) fn stats(&mut self) -> &mut Stats {
        for side in [Side::A, Side::B] {
            self.stats.link[side.index()] = self.link.by_class(side).to_vec();
        }
        self.stats.hops = self.link.hops().to_vec();
        self.stats.shares = ShareSummary::of(self.link.stages());
        self.stats.delays = DelaySummary::of(self.link.stages());
        &mut self.stats
    }

    /// Returns the backlog at the bottleneck of each direction at `at`, by ingress side.
    pub(super) fn backlogs(&self, at: Nanos) -> [Option<Waiting>; 2] {
        Side::BOTH.map(|ingress| self.link.backlog(at, ingress))
    }

    /// Returns the queue and the drops at `at`.
    pub(super) fn queue_state(&self, at: Nanos) -> QueueState {
        let all = |ingress| {
            let classes = self.link.by_class(ingress).iter();
            classes.fold(Counters::default(), |sum, class| sum + *class)
        };
        QueueState {
            backlogs: self.backlogs(at),
            counters: Side::BOTH.map(all),
        }
    }

    /// Returns the departures up to now, by kind.
    pub(super) fn departures(&self) -> Vec<FlowDepartures> {
        self.stats.flows.departures()
    }

    /// Returns the least time between the arrival of a packet and its due time.
    pub(super) fn least_delay(&self) -> Nanos {
        self.link.least_delay()
    }
}

/// Sends `frames` through `port`, after completing the checksums that the port cannot complete.
fn send<P: PortSet>(
    sets: &mut [P],
    port: PortId,
    not_before: Nanos,
    frames: &mut [TxFrame<'_>],
    mut sent: impl FnMut(usize, io::Result<SendTimes>),
) {
    let set = &mut sets[port.set()];
    if !set.capabilities().checksum {
        frames.iter_mut().for_each(TxFrame::complete_checksum);
    }
    set.send(port.port(), not_before, frames, &mut sent);
}
