//! Packets that meet something else than the rest.

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{Protocol, Rule};
use super::{DirectionSpec, FlatClassSpec};

/// Packets that a rule takes, and what is different for them: all else they share with those that no rule takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "FlatClassSpec", into = "FlatClassSpec")]
pub struct ClassSpec {
    /// Its name, and which packets it takes.
    pub rule: Rule,
    /// What differs in each direction.
    pub both: DirectionSpec,
    /// What differs from client to server.
    pub up: DirectionSpec,
    /// What differs from server to client.
    pub down: DirectionSpec,
}

/// Refuses rules that could not be told apart or take nothing.
pub(super) fn check(classes: &[ClassSpec]) -> Result<()> {
    for (number, ClassSpec { rule, .. }) in classes.iter().enumerate() {
        let name = &rule.name;
        ensure!(
            super::is_name(name),
            "classes: name = \"{name}\": a class needs a name of letters, digits, - and _, such as voice"
        );
        let others = &classes[..number];
        ensure!(
            others.iter().all(|other| other.rule.name != *name),
            "classes: two are named {name}: give each a name of its own"
        );
        rule.check().with_context(|| format!("classes: {name}"))?;
    }
    ensure!(
        u16::try_from(classes.len()).is_ok(),
        "classes: at most 65535"
    );
    Ok(())
}

impl Rule {
    fn check(&self) -> Result<()> {
        ensure!(
            self.protocol.is_some() || self.port.is_some(),
            "no rule: say whose packets it takes, by protocol, port or both"
        );
        ensure!(
            self.protocol != Some(Protocol::Icmp) || self.port.is_none(),
            "port: ICMP has none: leave it out, or say protocol = \"udp\" or \"tcp\""
        );
        ensure!(self.port != Some(0), "port: 0 is none: say 1 to 65535");
        Ok(())
    }
}
