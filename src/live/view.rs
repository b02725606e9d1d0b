//! Links and their changes as clients see them.

use std::sync::Arc;

use conditions::LinkSpec;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{Ref, RefOr, Schema};

use super::change::ScheduleState;
use super::lease::{LeaseGrant, LeaseView};

/// A link as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Link)]
pub(crate) struct LinkView {
    /// The name of the link.
    pub(crate) name: String,
    /// The client's side and the server's.
    pub(crate) ends: [String; 2],
    /// The conditions in force, in the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(crate) conditions: Arc<LinkSpec>,
    /// A description of the conditions in one line.
    pub(crate) says: String,
    /// The equivalent flags; null if flags cannot express the conditions.
    pub(super) command: Option<String>,
    /// The time of the schedules at `since`; null without schedules.
    pub(super) schedule: Option<ScheduleTime>,
    /// The number of the conditions in force. Each change adds one; the link starts with 1.
    pub(crate) revision: u64,
    /// The time since which the conditions are in force: RFC 3339.
    pub(super) since: String,
    /// The time at which the link started: RFC 3339.
    pub(super) started: String,
    /// The lease on the conditions; null if they are permanent.
    pub(super) lease: Option<LeaseView>,
    /// The reason why the conditions cannot be changed; null if they can.
    pub(crate) fixed: Option<String>,
    /// The seed of every random draw.
    pub(super) seed: u64,
}

/// The result of a change.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChangeResult {
    /// The link after the change, or as it would be after it in a dry run.
    pub(crate) link: LinkView,
    /// The instant of the change in both directions: RFC 3339.
    pub(crate) at: String,
    /// The same instant in seconds since the link's start.
    pub(crate) at_s: f64,
    /// The revision in force.
    pub(crate) revision: u64,
    /// Packets that had arrived earlier and were still on their way.
    pub(crate) under_previous: u64,
    /// True if nothing was changed.
    pub(crate) dry_run: bool,
    /// The grant of a lease to the connection that requested the change, if it asked for one.
    #[serde(skip)]
    pub(crate) grant: Option<LeaseGrant>,
}

/// An entry of the history of a link's conditions.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Change)]
pub(crate) struct ChangeView {
    /// The number of the revision; 1 is the link's start.
    pub(crate) revision: u64,
    /// The instant from which on it was in force: RFC 3339.
    pub(crate) at: String,
    /// The same instant in seconds since the link's start.
    pub(crate) at_s: f64,
    /// The conditions in the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(crate) conditions: Arc<LinkSpec>,
    /// A description of the conditions in one line.
    pub(crate) says: String,
    /// The time of the schedules at that instant; null without schedules.
    pub(crate) schedule: Option<ScheduleTime>,
    /// The cause of the change.
    pub(crate) by: ChangeCause,
}

/// The time of a link's schedules at an instant.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleTime {
    /// The state of the time: running or stopped.
    pub(super) state: ScheduleState,
    /// The time in seconds.
    pub(super) time_s: f64,
}

/// The schedules of a link as clients see them.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    /// The time of the schedules.
    #[serde(flatten)]
    pub(super) time: ScheduleTime,
    /// The instant of that time: RFC 3339.
    pub(super) at: String,
    /// The time of the last change in the schedules, in seconds; null if only outages or handovers change the conditions.
    pub(super) last_s: Option<f64>,
    /// The conditions in force at that time, in the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(super) conditions: LinkSpec,
    /// A description of the conditions in one line.
    pub(super) says: String,
    /// The revision in force.
    pub(crate) revision: u64,
}

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) enum ChangeCause {
    /// The start of the link.
    #[serde(rename = "start")]
    Start,
    /// A client's request.
    #[serde(rename = "api")]
    Api,
    /// The end of a lease.
    #[serde(rename = "lease ended")]
    LeaseEnded,
}

/// Refers to the schema of conditions, which is that of link files.
fn conditions_schema() -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name("LinkSpec"))
}

impl LinkView {
    /// Returns true if the conditions in force are leased.
    pub(crate) fn is_leased(&self) -> bool {
        self.lease.is_some()
    }
}
