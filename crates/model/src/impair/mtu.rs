//! A hop with an MTU that packets may exceed.

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::Draws;
use crate::in_flight::InFlight;
use crate::packet::{DropCause, Reply};
use crate::spec::Effect;
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;

/// Drops packets longer than an MTU and requests an ICMP reply to their senders, like a router that may not fragment.
#[derive(Debug)]
pub(crate) struct Mtu {
    mtu: Option<u16>,
}

impl Mtu {
    pub(crate) fn new(_start: Nanos, _: Draws) -> Self {
        Self { mtu: None }
    }
}

pub(crate) fn behaviour(mtu: u16) -> Behaviour<'static> {
    Behaviour {
        loss: LossLaw::LongerThan(mtu),
        ..Behaviour::default()
    }
}

impl Stage for Mtu {
    fn enter(&mut self, at: Nanos, _: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let l3 = t.packet.len.0.saturating_sub(u64::from(t.packet.l3_at));
        match self.mtu {
            Some(mtu) if l3 > u64::from(mtu) => {
                EntryResult::Refused(DropCause::TooBig, Reply::TooBig { mtu })
            }
            _ => EntryResult::Passes(at),
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.mtu = match effect {
            Effect::Mtu(mtu) => Some(*mtu),
            _ => None,
        };
    }
}
