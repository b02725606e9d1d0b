//! Leases: conditions that end by themselves, so that a client that dies leaves no link impaired.
//!
//! A link has at most one lease. Until it ends, no other client can change the link: such a change
//! would end the lease, or would be undone at its end.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use model::{Nanos, ScheduleClock};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::checked_conditions::CheckedConditions;
use super::moment::{WallClock, seconds, since};

/// The longest duration of a lease: a day.
const LONGEST: Nanos = Nanos(86_400_000_000_000);

/// The time after its expiry from which the end of a lease is late.
const LATE: Nanos = Nanos::from_millis(100);

/// The duration of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseFor {
    /// The lease lasts for a time of at most a day.
    Time(Nanos),
    /// The lease lasts as long as the connection of its request.
    Connection,
}

/// The identifier of a lease. A client that has it can change the link. It prevents conflicts
/// between clients, not attacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseId(pub(crate) String);

/// A lease in force.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    span: LeaseFor,
    /// The number of times that the lease was granted or renewed.
    grants: u64,
    until: Option<Nanos>,
    /// The state to which the link reverts.
    pub(super) before: RevertState,
}

/// The grant of a lease to one connection, valid until the next renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseGrant {
    id: LeaseId,
    number: u64,
}

/// The state that is in force again after a lease.
#[derive(Clone, Debug, Default)]
pub(super) struct RevertState {
    pub(super) revision: u64,
    pub(super) conditions: Arc<CheckedConditions>,
    pub(super) clock: ScheduleClock,
}

/// A lease as a link shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseView {
    /// The duration as it was requested, or `connection`.
    #[serde(rename = "for")]
    span: String,
    /// The end of a lease for a time: RFC 3339.
    until: Option<String>,
    /// The revision whose conditions are in force again after the lease.
    reverts_to: u64,
    /// The identifier that the holder sends as `Farwire-Lease` to change the link again or to end the lease. Only the holder gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl LeaseId {
    fn new() -> Self {
        Self(format!("{:032x}", fastrand::u128(..)))
    }

    /// Returns the start of the identifier. It suffices to find the lease in a log, but not to use
    /// it.
    pub(super) fn shortened(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl Lease {
    /// Starts a lease at `now`; the link reverts to `before` at its end.
    pub(super) fn begin(span: LeaseFor, now: Nanos, before: RevertState) -> Self {
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

    /// Extends the lease to `span` from `now` on.
    pub(super) fn renew(&mut self, span: LeaseFor, now: Nanos) {
        self.span = span;
        self.grants += 1;
        self.until = match span {
            LeaseFor::Time(time) => Some(now + time),
            LeaseFor::Connection => None,
        };
    }

    /// Returns the time from `now` until the lease expires, zero if it has expired, or `None` if it
    /// has no expiry.
    pub(super) fn ends_in(&self, now: Nanos) -> Option<Duration> {
        self.until
            .map(|until| Duration::from_nanos(since(now, until).0))
    }

    /// Returns the grant of the connection that holds the lease, if any.
    pub(super) fn grant(&self) -> Option<LeaseGrant> {
        (self.span == LeaseFor::Connection).then(|| LeaseGrant {
            id: self.id.clone(),
            number: self.grants,
        })
    }

    /// Returns true if the connection with this grant holds the lease.
    pub(super) fn is_held_by(&self, grant: &LeaseGrant) -> bool {
        self.grant().as_ref() == Some(grant)
    }

    /// Returns the lease with its expiry set to `now`, unless it has expired before.
    pub(super) fn expired(self, now: Nanos) -> Self {
        Self {
            until: Some(self.until.map_or(now, |until| until.min(now))),
            ..self
        }
    }

    /// Describes the time at which the link reverted, compared with the expiry: "the lease ended at its time".
    pub(super) fn describe_expiry(&self, reverted: Nanos) -> String {
        let late = self.until.map(|until| since(until, reverted));
        match late.filter(|late| *late >= LATE) {
            Some(late) => format!("{:.1} s after it was due", seconds(late)),
            None => "at its time".to_owned(),
        }
    }

    /// Describes the end of the lease in words.
    pub(super) fn describe_end(&self, wall_clock: &WallClock) -> String {
        match self.until {
            Some(until) => format!("until {}", wall_clock.at(until)),
            None => "until its holder's connection closes".to_owned(),
        }
    }

    /// Returns the lease as clients see it. Only its holder gets the identifier.
    pub(super) fn view(&self, wall_clock: &WallClock, to_holder: bool) -> LeaseView {
        LeaseView {
            span: self.span.to_string(),
            until: self.until.map(|until| wall_clock.at(until)),
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
        let before = RevertState {
            revision: 3,
            ..RevertState::default()
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

    #[test]
    fn an_end_that_comes_late_says_how_late_also_after_several_attempts() {
        let second = Nanos::from_millis(1_000);
        let at = Nanos::from_millis;
        let lease = || Lease::begin(LeaseFor::Time(second), at(5_000), RevertState::default());
        assert_eq!(lease().describe_expiry(at(6_001)), "at its time");
        // Attempts to revert were refused at these times.
        let late = lease().expired(at(6_000)).expired(at(6_010));
        assert_eq!(late.ends_in(at(6_010)), Some(Duration::ZERO));
        assert_eq!(late.describe_expiry(at(6_500)), "0.5 s after it was due");
        let early = lease().expired(at(5_200)).expired(at(5_300));
        assert_eq!(early.describe_expiry(at(5_500)), "0.3 s after it was due");
    }
}
