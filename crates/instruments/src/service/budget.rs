//! Budgets of the far end's resources: a total, and a maximum per source.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::lock;
use model::Bytes;

/// The source under which a client is counted: its IPv4 address, or its IPv6 /64 network, since one host may have all
/// addresses of that network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(IpAddr);

/// A limited resource.
#[derive(Clone, Debug)]
pub struct ResourceBudget {
    what: Unit,
    most: u64,
    most_per_source: u64,
    taken: Arc<Mutex<TakenAmounts>>,
}

/// An amount taken from a budget. Dropping it gives the amount back.
#[derive(Debug)]
pub struct Share {
    taken: Arc<Mutex<TakenAmounts>>,
    source: Option<ClientKey>,
    amount: u64,
}

/// The resource that a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Running tests.
    Tests,
    /// Open connections and sockets of tests. Each one has a descriptor and at most one thread.
    Connections,
    /// Connections that have not begun a test.
    Waiting,
    /// Bytes of buffers.
    Memory,
}

/// The error of a budget that cannot provide an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    what: Unit,
    most: u64,
    /// True if the limit per source is reached, false if the total is.
    of_source: bool,
}

#[derive(Debug, Default)]
struct TakenAmounts {
    all: u64,
    by_source: HashMap<ClientKey, u64>,
}

impl ClientKey {
    /// Returns the source of a client's address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            // Hosts of one link share fe80::/64, so that link-local addresses are counted one by one.
            IpAddr::V6(v6) if !v6.is_unicast_link_local() && !v6.is_loopback() => {
                const NETWORK: u128 = !(u64::MAX as u128);
                Ipv6Addr::from_bits(v6.to_bits() & NETWORK).into()
            }
            other => other,
        })
    }
}

impl ResourceBudget {
    /// Returns a budget of `most` in total and `most_per_source` for one source.
    pub fn new(what: Unit, most: u64, most_per_source: u64) -> Self {
        Self {
            what,
            most,
            most_per_source,
            taken: Arc::default(),
        }
    }

    /// Returns whether at least half of the total is taken.
    pub fn is_half_taken(&self) -> bool {
        lock(&self.taken).all >= self.most.div_ceil(2)
    }

    /// Takes `amount` for `source`. An amount without a source counts towards the total only.
    ///
    /// # Errors
    /// Returns an error if the amount exceeds what is left in total or for the source.
    pub fn take(&self, source: Option<ClientKey>, amount: u64) -> Result<Share, Shortage> {
        let mut taken = lock(&self.taken);
        let of_source = source.and_then(|source| taken.by_source.get(&source).copied());
        let short = |most, of_source| Shortage {
            what: self.what,
            most,
            of_source,
        };
        let within = |taken: u64, most: u64| taken.checked_add(amount).filter(|sum| *sum <= most);
        let source_then = within(of_source.unwrap_or(0), self.most_per_source)
            .ok_or(short(self.most_per_source, true))?;
        taken.all = within(taken.all, self.most).ok_or(short(self.most, false))?;
        let by_source = source.map(|source| (source, source_then));
        taken.by_source.extend(by_source);
        Ok(Share {
            taken: Arc::clone(&self.taken),
            source,
            amount,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all -= self.amount;
        let Some(source) = self.source else {
            return;
        };
        if let Entry::Occupied(mut of_source) = taken.by_source.entry(source) {
            *of_source.get_mut() -= self.amount;
            if *of_source.get() == 0 {
                of_source.remove();
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.most;
        match self.what {
            Unit::Tests => write!(f, "{most} tests are already running"),
            Unit::Connections => write!(f, "{most} connections are already open"),
            Unit::Waiting => write!(f, "{most} connections are already waiting for their tests"),
            Unit::Memory => write!(f, "{} of memory are available", Bytes(most)),
        }?;
        f.write_str(if self.of_source {
            " for this address"
        } else {
            ""
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> ClientKey {
        ClientKey::of(text.parse().unwrap())
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("fe80::1"), source("fe80::2"));
    }

    #[test]
    fn one_source_has_its_share_and_leaves_the_rest() {
        let budget = ResourceBudget::new(Unit::Tests, 3, 2);
        let (one, other) = (source("192.0.2.1"), source("192.0.2.2"));
        let first = budget.take(Some(one), 2).unwrap();
        let refused = budget.take(Some(one), 1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2 tests are already running for this address"
        );
        let second = budget.take(Some(other), 1).unwrap();
        assert!(budget.is_half_taken());
        let refused = budget.take(Some(other), 1).unwrap_err();
        assert_eq!(refused.to_string(), "3 tests are already running");
        drop((first, second));
        assert!(!budget.is_half_taken());
        let _all = budget.take(Some(one), 2).unwrap();
        assert_eq!(lock(&budget.taken).by_source.len(), 1);
    }

    #[test]
    fn an_overflow_is_refused() {
        let budget = ResourceBudget::new(Unit::Memory, u64::MAX, u64::MAX);
        let _share = budget.take(Some(source("192.0.2.1")), 1).unwrap();
        assert!(budget.take(Some(source("192.0.2.1")), u64::MAX).is_err());
    }
}
