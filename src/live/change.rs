//! Changes of a running link: the request, its result and the reasons for a refusal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conditions::in_effect::MemoryNeed;
use conditions::{
    ConditionType as _, Error, LinkSpec, Problem, TraceSpec, misplaced, read, require,
};
use model::{ConfigError, Nanos, ScheduleClock, ScheduleOrder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::lease::{LeaseFor, LeaseId};
use crate::forward::thread::{ChangeError, ForwarderEnded};

/// The time within which a change must be checked and made. Otherwise it is refused.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_secs(5);

/// The reason why a link has no time of schedules.
pub(crate) const NO_SCHEDULE: &str =
    "the link's conditions have no schedule, trace, outage or handover";

/// A client's request for a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeOrder {
    pub(crate) conditions: RequestedConditions,
    /// The revision that must be in force; any if `None`.
    pub(crate) if_revision: Option<u64>,
    /// The length of the requested lease; `None` for a permanent change.
    pub(crate) lease_for: Option<LeaseFor>,
    /// The lease that the client holds.
    pub(crate) lease: Option<LeaseId>,
    /// Only computes the result and changes nothing.
    pub(crate) is_dry_run: bool,
    pub(crate) origin: Origin,
}

/// The client that requests a change, in words for the log: `127.0.0.1:50123, full-access token`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) String);

/// The conditions that a client requests.
#[derive(Clone, Debug)]
pub(crate) enum RequestedConditions {
    /// Exactly these conditions.
    All(Value),
    /// The conditions in force, changed by this JSON Merge Patch (RFC 7396).
    Patch(Value),
    /// The conditions in force, with their schedules' time stopped, started or moved as this object
    /// says.
    Schedule(Value),
}

/// The change of the time of a link's schedules.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleChange {
    /// The requested state; unchanged when absent.
    state: Option<ScheduleState>,
    /// The time to jump to, such as `10s`; unchanged when absent.
    #[schema(value_type = Option<String>)]
    to: Option<Nanos>,
}

/// The state of the schedules' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScheduleState {
    /// The time runs.
    Running,
    /// The time does not run, so the current conditions stay in force.
    Stopped,
}

/// The reason why a change is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeRefusal {
    /// The conditions are wrong or contradict each other.
    #[error(transparent)]
    Conditions(#[from] Error),
    /// Another revision is in force than the client requires.
    #[error("the link has changed to revision {in_force} meanwhile: read it and try again")]
    Revision { in_force: u64 },
    /// Another client holds a lease.
    #[error(
        "another client has a lease of this link {until}: wait for its end, or end it (DELETE on the lease, farwire set \
         --revert); its holder can change the link with the header Farwire-Lease (--lease)"
    )]
    Leased { until: String },
    /// The lease does not exist or has ended.
    #[error("there is no such lease, or it has ended")]
    NoLease,
    /// The link's conditions cannot be changed.
    #[error("{why}")]
    Fixed { why: String },
    /// The change took too long.
    #[error(
        "the change was not made within {} s, because it has too many conditions or other changes came first: nothing was changed",
        CHANGE_LIMIT.as_secs()
    )]
    TooLong,
    /// Nothing in the link's conditions has a time that could be started, stopped or moved.
    #[error("{}: PUT or PATCH conditions with one of them", NO_SCHEDULE)]
    NoSchedule,
    /// The link has ended.
    #[error("the link has ended")]
    Ended,
}

impl ChangeRefusal {
    /// Adds to an error of conditions that the return at the end of the lease is what fails.
    pub(super) fn for_lease_end(self) -> Self {
        match self {
            Self::Conditions(mut error) => {
                let why = &error.problem;
                *error.problem = Problem::Other(format!(
                    "{why} (a lease could not restore the earlier conditions at its end; change the link without a lease)"
                ));
                Self::Conditions(error)
            }
            other => other,
        }
    }
}

impl Default for RequestedConditions {
    fn default() -> Self {
        Self::Patch(Value::Object(serde_json::Map::new()))
    }
}

impl RequestedConditions {
    /// Returns the requested conditions and the change of their schedules' time. `now` are the
    /// conditions in force. The seed stays that of the link's start.
    ///
    /// Conditions that do not change are shared with `now`.
    pub(super) fn apply_to(
        &self,
        now: &Arc<LinkSpec>,
    ) -> Result<(Arc<LinkSpec>, ScheduleOrder), ChangeRefusal> {
        let value = match self {
            Self::Schedule(_) if !now.follows_clock() => return Err(ChangeRefusal::NoSchedule),
            Self::Schedule(value) => {
                let change: ScheduleChange = object(value.clone(), "{\"to\": \"10s\"}")?;
                return Ok((Arc::clone(now), change.order()?));
            }
            Self::All(value) => value.clone(),
            Self::Patch(patch) => {
                let mut value = serde_json::to_value(&**now).map_err(Error::other)?;
                prepare_traces(&mut value, patch);
                json_patch::merge(&mut value, patch);
                value
            }
        };
        let mut requested: LinkSpec = object(value, "{\"delay\": \"20ms\"}")?;
        // A client's request makes no look-up. A name that is in force keeps its addresses.
        requested.resolve(|name| {
            let known = now.addresses_of(name).map(<[_]>::to_vec);
            known.ok_or_else(|| "only exec and emulate look names up, when they start".to_owned())
        })?;
        if requested.seed.is_some_and(|seed| seed != now.seed()) {
            let error = Error::other(format_args!(
                "the seed of a running link, {}, cannot be changed: leave seed out",
                now.seed()
            ));
            return Err(error.at("seed").into());
        }
        if requested.start.is_some() && requested.waits() != now.waits() {
            let error = Error::other(
                "it is too late to say when the schedules of a running link begin: leave start out",
            );
            return Err(error.at("start").into());
        }
        let new = LinkSpec {
            seed: now.seed,
            start: now.start,
            ..requested
        };
        if new == **now {
            return Ok((Arc::clone(now), ScheduleOrder::default()));
        }
        new.check()?;
        Ok((Arc::new(new), ScheduleOrder::default()))
    }
}

/// Prepares the traces in force for a patch: a new trace replaces the old one as a whole, and other conditions of the patch override
/// those of a trace that stays.
fn prepare_traces(now: &mut Value, patch: &Value) {
    for direction in [None, Some("up"), Some("down")] {
        let (table, own) = match direction {
            None => (Some(&mut *now), patch),
            Some(name) => (now.get_mut(name), &patch[name]),
        };
        let Some(table) = table.and_then(Value::as_object_mut) else {
            continue;
        };
        if own.get(TRACE).is_some() {
            table.remove(TRACE);
        }
        let Some(trace) = table.get_mut(TRACE) else {
            continue;
        };
        let Ok(mut spec) = read::json::<TraceSpec>(trace.clone()) else {
            continue;
        };
        let both = [own, patch].into_iter().filter_map(Value::as_object);
        for (key, _) in both.flatten().filter(|(_, value)| !value.is_null()) {
            spec.override_by(key);
        }
        if let Ok(overridden) = serde_json::to_value(&spec) {
            *trace = overridden;
        }
    }
}

/// The key of a trace.
const TRACE: &str = TraceSpec::KEY;

impl ScheduleChange {
    fn order(&self) -> Result<ScheduleOrder, ChangeRefusal> {
        if self.state.is_none() && self.to.is_none() {
            let why = "write what to change in the schedule: state (running or stopped), to (a time such as 10s), or both";
            return Err(Error::other(why).into());
        }
        Ok(ScheduleOrder {
            runs: self.state.map(|state| state == ScheduleState::Running),
            to: self.to,
        })
    }
}

impl From<ScheduleClock> for ScheduleState {
    fn from(clock: ScheduleClock) -> Self {
        if clock.is_running() {
            Self::Running
        } else {
            Self::Stopped
        }
    }
}

/// Reads a request from a JSON object; errors show `example`.
fn object<T: DeserializeOwned>(value: Value, example: &str) -> Result<T, Error> {
    if !value.is_object() {
        return Err(Error::new(Problem::WrongType {
            found: value.to_string(),
            right: format!("a JSON object, as in {example}"),
        }));
    }
    read::json(value).map_err(misplaced::with_place)
}

/// Refuses conditions that need more memory than the forwarder may hold.
pub(super) fn check_memory(spec: &LinkSpec, allowed: u64) -> Result<(), Error> {
    let need = MemoryNeed::of(spec)?;
    require!(
        need.bytes() <= allowed,
        "rate times delay puts {} bytes of full frames in flight up and {} down, more than --held-memory allows ({allowed} \
         bytes): reduce the rate or the delay, or restart farwire with more memory",
        need.up,
        need.down
    );
    Ok(())
}

impl ChangeRefusal {
    /// Converts a refusal by the model or the forwarder to change to `spec`.
    pub(super) fn of_change(spec: &LinkSpec, error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(refused) => Self::of_model(spec, refused),
            ChangeError::Ended(ended) => ended.into(),
        }
    }

    /// Converts a refusal by the model to change to `spec`.
    pub(super) fn of_model(spec: &LinkSpec, error: ConfigError) -> Self {
        let ConfigError::LeavesHalf(stage) = &error else {
            return spec.located(error).into();
        };
        let condition = stage.split_once('.').map_or(stage.as_str(), |(_, of)| of);
        let error = Error::other(format_args!(
            "several rules share {condition}, and a running link cannot give one of them its own: change it for all of them, \
             or restart with a rule that has its own"
        ));
        error.at("rules").into()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ForwarderEnded> for ChangeRefusal {
    fn from(_: ForwarderEnded) -> Self {
        Self::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::{CONDITIONS, ConditionKind};
    use serde_json::json;

    fn apply(now: &str, order: RequestedConditions) -> Result<LinkSpec, (Option<String>, String)> {
        let now: Arc<LinkSpec> = Arc::new(toml::from_str(now).unwrap());
        let requested = order.apply_to(&now).map(|(spec, _)| LinkSpec::clone(&spec));
        requested.map_err(|refusal| match refusal {
            ChangeRefusal::Conditions(error) => (error.field(), error.to_string()),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_patch_changes_the_named_conditions_and_a_whole_replaces_all() {
        let now = "delay = '20ms'\nseed = 7\n[up]\nloss = '1%'";
        let patched = apply(
            now,
            RequestedConditions::Patch(json!({"delay": null, "up": {"rate": "1mbit"}})),
        );
        let right: LinkSpec =
            toml::from_str("seed = 7\n[up]\nloss = '1%'\nrate = '1mbit'").unwrap();
        assert_eq!(patched.unwrap(), right);
        let whole = apply(now, RequestedConditions::All(json!({"loss": "2%"}))).unwrap();
        assert_eq!(whole, toml::from_str("loss = '2%'\nseed = 7").unwrap());
        assert_eq!(
            apply(now, RequestedConditions::default()).unwrap(),
            toml::from_str(now).unwrap()
        );
    }

    #[test]
    fn an_error_names_the_field() {
        for (requested, field, words) in [
            (json!({"dely": "1ms"}), "dely", "did you mean `delay`"),
            (
                json!({"up": {"los": "1%"}}),
                "up.los",
                "did you mean `loss`",
            ),
            (json!({"up": {"loss": "101%"}}), "up.loss", "101%"),
            (json!({"delay": 20}), "delay", "delay: "),
            (
                json!({"down": {"queue": "5pkt"}}),
                "down.queue",
                "needs a rate",
            ),
            (
                json!({"seed": 8}),
                "seed",
                "the seed of a running link, 1, cannot be changed",
            ),
            (
                json!({"rules": [{"name": "a", "loss": "x"}]}),
                "rules[0].loss",
                "rules",
            ),
            (
                json!({"jitter": {"spread": "2ms", "law": "table", "file": "x"}}),
                "jitter",
                "was not read",
            ),
        ] {
            let (found, why) = apply("", RequestedConditions::All(requested.clone())).unwrap_err();
            assert_eq!(found.as_deref(), Some(field), "{requested}: {why}");
            assert!(why.contains(words), "{requested}: {why}");
        }
    }

    #[test]
    fn every_condition_with_a_wrong_value_is_refused_with_its_field_and_the_correct_form() {
        for ConditionKind { key, .. } in CONDITIONS {
            for (wrong, right) in [
                (json!([[1]]), &["expected "][..]),
                (json!("%"), &["write ", "as in ", "use one of: "]),
            ] {
                for (field, requested) in [
                    ((*key).to_owned(), json!({ *key: wrong })),
                    (format!("down.{key}"), json!({ "down": { *key: wrong } })),
                    (
                        format!("rules[0].up.{key}"),
                        json!({ "rules": [{ "name": "a", "port": 1, "up": { *key: wrong } }] }),
                    ),
                    (
                        format!("schedule[0].{key}"),
                        json!({ "schedule": [{ "at": "1s", *key: wrong }] }),
                    ),
                ] {
                    for order in [
                        RequestedConditions::All(requested.clone()),
                        RequestedConditions::Patch(requested),
                    ] {
                        let (found, why) = apply("", order).unwrap_err();
                        assert_eq!(found, Some(field.clone()), "{why}");
                        assert!(
                            right.iter().any(|right| why.contains(right)),
                            "{field}: {why}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_looks_no_name_up_and_a_name_in_force_keeps_its_addresses() {
        let mut now: LinkSpec = toml::from_str("[[rules]]\nmatch = 'host example.com'").unwrap();
        now.resolve(|_| Ok(vec![[10, 77, 0, 2].into()])).unwrap();
        let now = Arc::new(now);
        let patch = |patch| RequestedConditions::Patch(patch).apply_to(&now);
        let (same, _) = patch(json!({"delay": null})).unwrap();
        assert!(Arc::ptr_eq(&same, &now));
        let (more, _) = patch(json!({"delay": "1ms"})).unwrap();
        assert_eq!(more.addresses_of("example.com").unwrap().len(), 1);
        let refused = patch(json!({"rules": [{"match": "host example.org"}]})).unwrap_err();
        let ChangeRefusal::Conditions(error) = refused else {
            panic!("{refused}");
        };
        assert_eq!(error.field().as_deref(), Some("rules[0]"));
        assert!(
            error
                .to_string()
                .contains("example.org: only exec and emulate look names up")
        );
    }

    #[test]
    fn conditions_that_stay_the_same_are_shared() {
        let now: LinkSpec = toml::from_str("delay = '20ms'\nseed = 7").unwrap();
        let now = Arc::new(now);
        for order in [
            RequestedConditions::default(),
            RequestedConditions::All(json!({"delay": "20ms"})),
            RequestedConditions::Patch(json!({"delay": "0.02s"})),
        ] {
            let (same, _) = order.apply_to(&now).unwrap();
            assert!(Arc::ptr_eq(&same, &now), "{order:?}");
        }
        let (other, _) = RequestedConditions::Patch(json!({"delay": "21ms"}))
            .apply_to(&now)
            .unwrap();
        assert!(!Arc::ptr_eq(&other, &now));
    }

    #[test]
    fn what_has_a_time_is_named_to_who_moves_the_time_of_a_link_without() {
        let order = || RequestedConditions::Schedule(json!({"to": "10s"}));
        let now = Arc::new(toml::from_str("delay = '20ms'").unwrap());
        assert_eq!(
            order().apply_to(&now).unwrap_err().to_string(),
            "the link's conditions have no schedule, trace, outage or handover: PUT or PATCH conditions with one of them"
        );
        for with_time in [
            "schedule = [{ at = '1s', loss = '1%' }]",
            "outage = '200ms/10s'",
            "handover = 'every=15s,hold=60ms'",
        ] {
            assert!(apply(with_time, order()).is_ok(), "{with_time}");
        }
    }

    #[test]
    fn more_memory_than_is_allowed_is_refused() {
        let spec: LinkSpec = toml::from_str("delay = '1s'\nrate = '1gbit'").unwrap();
        assert!(check_memory(&spec, 1 << 30).is_ok());
        let refused = check_memory(&spec, 1 << 20).unwrap_err().to_string();
        assert!(refused.contains("--held-memory"), "{refused}");
    }
}
