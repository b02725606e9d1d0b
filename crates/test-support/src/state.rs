//! The state of an interface as it can be seen from outside, for comparisons.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use netio::offloads::Offloads;

use crate::process::{ip, wait_for};

/// The state of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether each feature is in effect.
    features: BTreeMap<String, bool>,
    /// Flags, MTU, promiscuity and the other details that ip(8) shows.
    link: String,
    addresses: String,
}

impl State {
    pub fn of(ns: &NetNs, interface: &str) -> Result<Self> {
        let features = ns
            .run(|| Offloads::open(interface)?.features())??
            .into_iter()
            .map(|(name, state)| (name, state.active));
        Ok(Self {
            features: features.collect(),
            link: ip(ns, &format!("-details link show dev {interface}"))?,
            addresses: ip(ns, &format!("-oneline address show dev {interface}"))?,
        })
    }

    pub fn feature(&self, name: &str) -> Result<bool> {
        self.features
            .get(name)
            .copied()
            .with_context(|| format!("no feature {name}"))
    }

    pub fn is_up(&self) -> bool {
        self.link.contains(",UP") || self.link.contains("<UP")
    }

    pub fn is_promiscuous(&self) -> bool {
        !self.link.contains(" promiscuity 0 ")
    }

    /// Fails unless the interface is in this state; the carrier may take some time.
    pub fn check_same(&self, ns: &NetNs, interface: &str) -> Result<()> {
        let mut now = Self::of(ns, interface)?;
        let settled = wait_for("an interface to be as it was", || {
            now = Self::of(ns, interface)?;
            Ok((*self == now).then_some(()))
        });
        ensure!(settled.is_ok(), "{interface} was {self:?}, is {now:?}");
        Ok(())
    }
}
