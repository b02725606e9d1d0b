//! What the emulator did, in the form that is printed and kept in a record.

use model::Side;
use netio::Waiter;
use record::summary::{DirectionSummary, OwnLoss, PacketLogSummary, Summary};

use super::{Loss, Stats};

/// The summary of a forwarder's counters, of how late its machine wakes it, of the bytes that its frames and its rings may
/// take, and of its packet log.
pub(super) fn summary(
    stats: &Stats,
    waiter: &Waiter,
    held_limit_bytes: usize,
    ring_bytes: usize,
    packet_log: Option<PacketLogSummary>,
) -> Summary {
    Summary {
        up: direction(stats, Side::A),
        down: direction(stats, Side::B),
        departure_error: stats.departure.summary(),
        peak_held_bytes: stats.peak_bytes,
        held_limit_bytes,
        ring_bytes,
        wake_up_latency_ns: waiter.wake_up_latency().0,
        spin_ns: waiter.guard().0,
        real_time: waiter.real_time(),
        send_error: stats.send_error.clone(),
        truth: packet_log,
    }
}

fn direction(stats: &Stats, ingress: Side) -> DirectionSummary {
    let counters = stats.link[ingress.index()];
    let missed = ("receive ring full", stats.missed[ingress.index()]);
    let emulator_lost = Loss::ALL
        .map(|cause| (cause.name(), stats.lost(ingress, cause)))
        .into_iter()
        .chain([missed])
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| OwnLoss {
            cause: cause.to_owned(),
            count,
        })
        .collect();
    DirectionSummary {
        packets: counters.packets,
        bytes: counters.bytes,
        delivered: stats.sent[ingress.index()],
        delivered_bytes: stats.sent_bytes[ingress.index()],
        lost: counters.lost,
        queue_full: counters.queue_full,
        held_at_end: held_at_end(stats, ingress),
        late_arrivals: counters.late,
        link_control: stats.control[ingress.index()],
        emulator_lost,
    }
}

/// What was offered and neither left nor was dropped.
fn held_at_end(stats: &Stats, ingress: Side) -> u64 {
    let counters = stats.link[ingress.index()];
    let gone = stats.sent[ingress.index()]
        + stats.lost(ingress, Loss::Send)
        + counters.lost
        + counters.queue_full;
    counters.packets.saturating_sub(gone)
}
