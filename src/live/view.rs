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
    /// Its name.
    pub(crate) name: String,
    /// The client's side and the server's.
    pub(crate) ends: [String; 2],
    /// What is in force, in the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(crate) conditions: Arc<LinkSpec>,
    /// In one line.
    pub(crate) says: String,
    /// The flags that give the same; null where no flags do.
    pub(super) command: Option<String>,
    /// The time of its schedules at `since`; null where there are none.
    pub(super) schedule: Option<ScheduleTime>,
    /// Counts up by one with every change; 1 is what the link began with.
    pub(crate) revision: u64,
    /// Since when that is in force: RFC 3339.
    pub(super) since: String,
    /// When the link began: RFC 3339.
    pub(super) started: String,
    /// Whether and how long that is for a time only.
    pub(super) lease: Option<LeaseView>,
    /// Why its conditions cannot be changed; null where they can.
    pub(crate) fixed: Option<String>,
    /// Every random draw follows from it.
    pub(super) seed: u64,
}

/// What a change came to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Changed {
    /// The link after it; of a dry run, as it would be.
    pub(crate) link: LinkView,
    /// From which instant on, in both directions: RFC 3339.
    pub(crate) at: String,
    /// The same in seconds since the link's start.
    pub(crate) at_s: f64,
    /// The revision in force.
    pub(crate) revision: u64,
    /// Packets that had come before and were still on their way.
    pub(crate) under_previous: u64,
    /// Whether nothing was changed.
    pub(crate) dry_run: bool,
    /// What the connection holds by which it was asked for, if it was for that.
    #[serde(skip)]
    pub(crate) grant: Option<LeaseGrant>,
}

/// An entry of what was in force, and when.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Change)]
pub(crate) struct ChangeView {
    /// Its number; 1 is what the link began with.
    pub(crate) revision: u64,
    /// From which instant on: RFC 3339.
    pub(crate) at: String,
    /// The same in seconds since the link's start.
    pub(crate) at_s: f64,
    /// In the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(crate) conditions: Arc<LinkSpec>,
    /// In one line.
    pub(crate) says: String,
    /// The time of its schedules at that instant; null where there are none.
    pub(crate) schedule: Option<ScheduleTime>,
    /// Who changed it.
    pub(crate) by: By,
}

/// Where the time of a link's schedules stands at an instant.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleTime {
    /// Whether it goes on from there.
    pub(super) state: ScheduleState,
    /// What it is, in seconds.
    pub(super) time_s: f64,
}

/// The schedules of a link as clients see them.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    /// The time of the schedules.
    #[serde(flatten)]
    pub(super) time: ScheduleTime,
    /// At which instant it is that: RFC 3339.
    pub(super) at: String,
    /// When the last of its changes comes, in seconds of the same time.
    pub(super) last_s: f64,
    /// What is in force at that time, in the form of a link file.
    #[schema(schema_with = conditions_schema)]
    pub(super) conditions: LinkSpec,
    /// In one line.
    pub(super) says: String,
    /// The revision in force.
    pub(crate) revision: u64,
}

/// Who changed a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) enum By {
    /// Nobody: it began so.
    #[serde(rename = "start")]
    Start,
    /// A client.
    #[serde(rename = "api")]
    Api,
    /// The end of a lease.
    #[serde(rename = "lease ended")]
    LeaseEnded,
}

/// Where the schema of conditions stands, which is that of link files.
fn conditions_schema() -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name("LinkSpec"))
}

impl LinkView {
    /// Whether what is in force is for a time only.
    pub(crate) fn is_leased(&self) -> bool {
        self.lease.is_some()
    }
}
