//! Leases: conditions that end by themselves, so that a client that dies leaves no link impaired.
//!
//! A link has at most one lease. Until it ends, nobody else can change the link: another client's change would undo the lease, or
//! be undone at its end.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use model::{Nanos, ScheduleClock};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::checked_conditions::CheckedConditions;
use super::moment::{Calendar, since};

/// The longest lease of a time: a day.
const LONGEST: Nanos = Nanos(86_400_000_000_000);

/// How long a lease is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseFor {
    /// For a time, at most a day.
    Time(Nanos),
    /// For as long as the connection lives by which it was asked for.
    Connection,
}

/// By what its holder is known. Who has it can change the link: it keeps clients from each other's way, not attackers out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseId(pub(crate) String);

/// A lease that stands.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    span: LeaseFor,
    /// How often it was granted or renewed.
    grants: u64,
    until: Option<Nanos>,
    /// What stood before.
    pub(super) before: Before,
}

/// That a lease is held by one connection, until it is renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseGrant {
    id: LeaseId,
    number: u64,
}

/// What is in force again after a lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    pub(super) revision: u64,
    pub(super) conditions: Arc<CheckedConditions>,
    pub(super) clock: ScheduleClock,
}

/// A lease, as a link shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseView {
    /// A time as it was asked for, or `connection`.
    #[serde(rename = "for")]
    span: String,
    /// When it ends, where it is for a time: RFC 3339.
    until: Option<String>,
    /// The revision whose conditions are in force again after it.
    reverts_to: u64,
    /// What its holder sends as `Farwire-Lease` to change the link again, or to end the lease; shown to nobody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl LeaseId {
    fn new() -> Self {
        Self(format!("{:032x}", fastrand::u128(..)))
    }

    /// Enough of it to find it again in a log, whose readers need not be able to use it.
    pub(super) fn shortened(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl Lease {
    /// Begins at `now`; `before` is what stands until then.
    pub(super) fn begin(span: LeaseFor, now: Nanos, before: Before) -> Self {
        let mut lease = Self {
            id: LeaseId::new(),
            span,
            grants: 0,
            until: None,
            before,
        };
        lease.renew(span, now);
        lease
    }

    /// Holds for `span` from `now` on.
    pub(super) fn renew(&mut self, span: LeaseFor, now: Nanos) {
        self.span = span;
        self.grants += 1;
        self.until = match span {
            LeaseFor::Time(time) => Some(now + time),
            LeaseFor::Connection => None,
        };
    }

    /// How long from `now` until it ends by itself; zero if it has.
    pub(super) fn ends_in(&self, now: Nanos) -> Option<Duration> {
        self.until
            .map(|until| Duration::from_nanos(since(now, until).0))
    }

    /// By what a connection holds it, if one does.
    pub(super) fn grant(&self) -> Option<LeaseGrant> {
        (self.span == LeaseFor::Connection).then(|| LeaseGrant {
            id: self.id.clone(),
            number: self.grants,
        })
    }

    /// Whether it is held by the connection of that grant.
    pub(super) fn is_held_by(&self, grant: &LeaseGrant) -> bool {
        self.grant().as_ref() == Some(grant)
    }

    /// The same, whose time was over at `now`.
    pub(super) fn over(self, now: Nanos) -> Self {
        Self {
            until: Some(now),
            ..self
        }
    }

    /// Until when it holds, in words.
    pub(super) fn says(&self, calendar: &Calendar) -> String {
        match self.until {
            Some(until) => format!("until {}", calendar.at(until)),
            None => "until its holder's connection closes".to_owned(),
        }
    }

    /// As a link shows it; to its holder with what it is known by.
    pub(super) fn view(&self, calendar: &Calendar, to_holder: bool) -> LeaseView {
        LeaseView {
            span: self.span.to_string(),
            until: self.until.map(|until| calendar.at(until)),
            reverts_to: self.before.revision,
            id: to_holder.then(|| self.id.0.clone()),
        }
    }
}

impl FromStr for LeaseFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "connection" {
            return Ok(Self::Connection);
        }
        let right = "a lease lasts a time above 0 and at most 24h, such as 60s, or `connection`";
        let time: Nanos = text.parse().map_err(|cause| format!("{cause}: {right}"))?;
        if time == Nanos::ZERO || time > LONGEST {
            return Err(format!("{text}: {right}"));
        }
        Ok(Self::Time(time))
    }
}

impl fmt::Display for LeaseFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => time.fmt(f),
            Self::Connection => f.write_str("connection"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_for_a_time_or_a_connection() {
        let read = |text: &str| text.parse::<LeaseFor>();
        assert_eq!(read("60s"), Ok(LeaseFor::Time(Nanos::from_millis(60_000))));
        assert_eq!(read("24h"), Ok(LeaseFor::Time(LONGEST)));
        assert_eq!(read("connection"), Ok(LeaseFor::Connection));
        for wrong in ["", "60", "0s", "25h", "forever"] {
            assert!(read(wrong).unwrap_err().contains("at most 24h"), "{wrong}");
        }
    }

    #[test]
    fn a_lease_ends_after_its_time_and_later_when_it_is_renewed() {
        let second = Nanos::from_millis(1_000);
        let begun = Nanos::from_millis(5_000);
        let before = Before {
            revision: 3,
            ..Before::default()
        };
        let mut lease = Lease::begin(LeaseFor::Time(second), begun, before);
        let ends_in = |lease: &Lease, millis| lease.ends_in(Nanos::from_millis(millis));
        assert_eq!(ends_in(&lease, 5_400), Some(Duration::from_millis(600)));
        assert_eq!(ends_in(&lease, 7_000), Some(Duration::ZERO));
        lease.renew(LeaseFor::Time(second), Nanos::from_millis(5_900));
        assert_eq!(ends_in(&lease, 6_000), Some(Duration::from_millis(900)));
        assert_eq!(lease.grant(), None);
        lease.renew(LeaseFor::Connection, begun);
        assert_eq!(ends_in(&lease, 6_000), None);
        let first = lease.grant().unwrap();
        lease.renew(LeaseFor::Connection, begun);
        assert!(!lease.is_held_by(&first) && lease.is_held_by(&lease.grant().unwrap()));
        assert_eq!(lease.before.revision, 3);
    }
}
