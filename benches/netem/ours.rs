//! The same packets through farwire's model.

use anyhow::{Context as _, Result};
use conditions::LinkSpec;
use model::{Bytes, Flow, Link, Nanos, Outcome, Packet, PacketId, Side};

use crate::jobs::{HEADERS, Job};

/// A packet: the time of sending, and the times at which it and its copies arrived, in ns.
pub(crate) struct Passed {
    pub(crate) sent: u64,
    pub(crate) came: Vec<u64>,
}

/// Passes a job's packets, sent at these times, through the model.
pub(crate) fn through(
    job: &Job,
    sent: impl Iterator<Item = u64>,
    seed: u32,
) -> Result<Vec<Passed>> {
    let text = format!("seed = {seed}\n{}", job.ours);
    let spec: LinkSpec = toml::from_str(&text).with_context(|| text.clone())?;
    let mut link = Link::new(&spec.to_link("link")?.config)?;
    let mut passed: Vec<Passed> = Vec::new();
    for sent in sent {
        let number = passed.len();
        passed.push(Passed {
            sent,
            came: Vec::new(),
        });
        let id = PacketId(number as u64);
        let flow = u32::try_from(number % usize::from(job.flows))?;
        let mut packet = Packet::new(id, Bytes((job.payload + HEADERS) as u64));
        // Spread the flows like hashes.
        packet.flow = Flow {
            id: flow.wrapping_mul(0x9e37_79b9),
            ..Flow::default()
        };
        link.offer(Nanos(sent), Side::A, packet);
        take(&mut link, Nanos(sent), &mut passed)?;
    }
    take(&mut link, Nanos::MAX, &mut passed)?;
    Ok(passed)
}

fn take(link: &mut Link, until: Nanos, passed: &mut [Passed]) -> Result<()> {
    while let Some(outcome) = link.poll(until) {
        if let Outcome::Deliver { id, due, .. } = outcome {
            passed[usize::try_from(id.0)?].came.push(due.0);
        }
    }
    Ok(())
}
