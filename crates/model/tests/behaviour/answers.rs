//! The properties that effects state are true of the packets that they pass.

use std::num::{NonZeroU8, NonZeroU32};
use std::sync::Arc;

use farwire_model::{
    BitErrorRate, Bytes, Corruption, Delay, DropCause, Duplication, Ecn, Effect, FourState,
    Framing, Gate, GilbertElliott, HoldBack, Holding, Jitter, Law, Link, LinkConfig, LossLaw,
    Nanos, Netem, NetemLoss, Ordering, Outcome, Packet, PacketId, Police, QueueLimit, RandomLoss,
    Rate, Repeating, Side, Slots, StageSpec, Stall, Toffee, Trace,
};

/// The number of packets of 1,000 bytes that enter an effect, one each millisecond.
const PACKETS: u64 = 20_000;
const GAP: Nanos = Nanos::from_millis(1);
const LENGTH: Bytes = Bytes(1_000);

/// Counts of what happened to the packets.
#[derive(Default)]
struct CrossingCounts {
    dropped_by_law: u64,
    dropped: u64,
    copied: u64,
    damaged: u64,
    marked: u64,
    /// The time at which each original left, in the order of departures.
    left: Vec<(Nanos, u64)>,
}

fn cross(effect: &Effect) -> CrossingCounts {
    let stage = StageSpec::new("box.up.stage", effect.clone());
    let mut link = Link::new(&LinkConfig::new(3, vec![stage], vec![])).unwrap();
    let mut crossed = CrossingCounts::default();
    let mut take = |outcome| match outcome {
        Outcome::Copied { .. } => crossed.copied += 1,
        Outcome::Drop { copy: 0, cause, .. } => {
            crossed.dropped += 1;
            let by_room = matches!(cause, DropCause::QueueFull | DropCause::Aqm);
            crossed.dropped_by_law += u64::from(!by_room);
        }
        Outcome::Deliver {
            id,
            copy: 0,
            due,
            edit,
            mark,
        } => {
            crossed.damaged += u64::from(edit.is_some());
            crossed.marked += u64::from(mark);
            crossed.left.push((due, id.0));
        }
        Outcome::Drop { .. } | Outcome::Deliver { .. } => {}
    };
    for number in 0..PACKETS {
        let at = GAP.saturating_mul(number);
        let packet = Packet {
            ecn: Ecn::Ect0,
            ..Packet::new(PacketId(number), LENGTH)
        };
        link.offer(at, Side::A, packet);
        while let Some(outcome) = link.poll(at) {
            take(outcome);
        }
    }
    while let Some(outcome) = link.poll(Nanos::MAX) {
        take(outcome);
    }
    // Packets that leave at one time leave in the order of decision.
    crossed.left.sort_by_key(|(due, _)| *due);
    crossed
}

/// Returns every effect, some with several sets of parameters.
fn effects() -> Vec<Effect> {
    let share = |text: &str| text.parse().unwrap();
    let three = NonZeroU32::new(3).unwrap();
    let rate = Rate {
        rate: "16mbit".parse().ok(),
        fluctuation: None,
        burst: None,
        framing: Framing::L2,
        queue: QueueLimit::Packets(10).into(),
    };
    let slow = Rate {
        rate: "4mbit".parse().ok(),
        ..rate
    };
    let delay = Delay {
        time: Nanos::from_millis(5),
        ..Delay::default()
    };
    let netem = Netem {
        delay: Nanos::from_millis(5),
        ..Netem::PLAIN
    };
    let times = vec![Nanos::from_millis(1), Nanos::from_millis(2)];
    let jitter = Some(Jitter::new(Nanos::from_millis(4), Law::Uniform));
    let gemodel = GilbertElliott {
        to_bad: share("1%"),
        to_good: share("10%"),
        bad_loss: share("100%"),
        good_loss: share("0%"),
        ecn: false,
    };
    vec![
        Effect::Nothing,
        Effect::Rate(rate),
        Effect::Rate(slow),
        Effect::Rate(Rate { rate: None, ..rate }),
        Effect::Trace(Trace {
            opportunities: Arc::new(Repeating::new(times).unwrap()),
            queue: QueueLimit::Packets(10).into(),
        }),
        crate::cell_replay::two_loads(),
        Effect::Toffee(Toffee {
            delay: Nanos::from_micros(500),
            dynamic: None,
            queue: QueueLimit::Packets(10).into(),
        }),
        Effect::Loss(share("5%").into()),
        Effect::Loss(RandomLoss {
            share: share("5%"),
            ecn: true,
        }),
        Effect::Indexes(Arc::new([0, 3, 7])),
        Effect::EveryNth(three),
        Effect::GilbertElliott(gemodel),
        Effect::FourState(FourState {
            p13: share("2%"),
            p31: share("30%"),
            p32: share("20%"),
            p23: share("50%"),
            p14: share("1%"),
            ecn: false,
        }),
        Effect::BitErrors(BitErrorRate::new(1e-5).unwrap()),
        Effect::Duplicate(share("5%").into()),
        Effect::Duplicate(Duplication {
            share: share("5%"),
            delay: Nanos::from_millis(3),
        }),
        Effect::Corrupt(Corruption {
            share: share("5%"),
            bits: NonZeroU8::MIN,
            repair: true,
        }),
        Effect::Mtu(1_400),
        Effect::Mtu(500),
        Effect::Delay(delay.clone()),
        Effect::Delay(Delay {
            jitter: jitter.clone(),
            ..delay.clone()
        }),
        Effect::Delay(Delay {
            jitter: jitter.clone(),
            ordering: Ordering::Free,
            ..delay
        }),
        Effect::Slots(Slots {
            delay: Nanos::from_millis(5),
            jitter,
            packets: None,
            bytes: None,
        }),
        Effect::HoldBack(HoldBack {
            share: share("1%"),
            extent: three,
            timeout: Nanos::from_millis(100),
        }),
        Effect::Stall(Stall {
            every: Nanos::from_millis(100),
            lasts: Nanos::from_millis(20),
        }),
        Effect::Gate(Gate {
            open: true,
            queue: QueueLimit::Packets(10),
        }),
        Effect::Gate(Gate {
            open: false,
            queue: QueueLimit::Packets(10),
        }),
        Effect::Police(Police {
            rate: "4mbit".parse().unwrap(),
            burst: Bytes(3_000),
        }),
        Effect::Netem(Box::new(netem)),
        Effect::Netem(Box::new(Netem {
            loss: NetemLoss::Gemodel(gemodel),
            corrupt: Some(share("2%").into()),
            ..netem
        })),
        Effect::Netem(Box::new(Netem {
            jitter: Nanos::from_millis(4),
            duplicate: Some(share("2%").into()),
            ..netem
        })),
    ]
}

#[test]
fn effects_behave_as_they_state() {
    for effect in effects() {
        let says = effect.behaviour();
        let did = cross(&effect);
        let delays: Vec<Nanos> = did
            .left
            .iter()
            .map(|(due, id)| *due - GAP.saturating_mul(*id))
            .collect();
        let least = delays.iter().copied().min().unwrap_or(says.least_delay);
        let most = delays.iter().copied().max().unwrap_or_default();

        let can_lose = says.loss != LossLaw::Never;
        assert!(can_lose || did.dropped_by_law == 0, "{effect:?}");
        let can_drop = can_lose || says.room.is_some();
        assert!(can_drop || did.dropped == 0, "{effect:?}");
        assert!(says.marks || did.marked == 0, "{effect:?}");
        assert_eq!(says.copies.is_some(), did.copied > 0, "{effect:?}");
        assert_eq!(says.damage.is_some(), did.damaged > 0, "{effect:?}");
        assert!(least >= says.least_delay, "{effect:?}: {least}");
        let has_queue = did.dropped > 0 && says.room.is_some();
        assert!(
            says.varies || has_queue || least == most || delays.is_empty(),
            "{effect:?}: {least} to {most}"
        );
        let is_ordered = did.left.is_sorted_by_key(|(_, id)| *id);
        assert!(says.reorders || is_ordered, "{effect:?}");
        match says.holds {
            Holding::Never => assert_eq!(most, Nanos::ZERO, "{effect:?}"),
            Holding::Temporarily => assert!(most > Nanos::ZERO, "{effect:?}"),
            Holding::UntilChanged => assert!(did.left.is_empty(), "{effect:?}"),
        }
    }
}

#[test]
fn the_stated_loss_is_that_of_many_packets() {
    for effect in effects() {
        let says = effect.behaviour();
        let Some(stated) = says.loss.long_run(LENGTH) else {
            continue;
        };
        let did = cross(&effect);
        let found = (did.dropped_by_law + did.marked) as f64 / PACKETS as f64;
        // The tolerance is four standard errors of 20,000 packets in runs of ten. They vary 17 times as much as
        // independent losses.
        assert!(
            (found - stated.share).abs() <= 0.12 * stated.share.sqrt(),
            "{effect:?}: {found} for {stated:?}"
        );
    }
}
