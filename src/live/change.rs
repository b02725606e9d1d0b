//! Changes of a link that runs: what is asked for, what became of it, and why not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conditions::in_effect::MemoryNeed;
use conditions::{Error, LinkSpec, Problem, read, require};
use model::{ConfigError, Nanos, ScheduleClock, ScheduleOrder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::lease::{LeaseFor, LeaseId};
use crate::forward::thread::{ChangeError, Ended};

/// A change is refused if it is not checked and made within this time.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_secs(5);

/// What a client asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeOrder {
    pub(crate) conditions: RequestedConditions,
    /// Only if this revision is in force.
    pub(crate) if_revision: Option<u64>,
    /// Not for good.
    pub(crate) lease_for: Option<LeaseFor>,
    /// The lease that the client holds.
    pub(crate) lease: Option<LeaseId>,
    /// Says what would be, and changes nothing.
    pub(crate) is_dry_run: bool,
    pub(crate) origin: Origin,
}

/// Who asks for a change, in words for the log: `127.0.0.1:50123, full-access token`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) String);

/// Which conditions are to be in force.
#[derive(Clone, Debug)]
pub(crate) enum RequestedConditions {
    /// These, and no others.
    All(Value),
    /// Those in force, with this JSON Merge Patch (RFC 7396) over them.
    Patch(Value),
    /// Those in force, with the time of their schedules stopped, started or moved, as this object says.
    Schedule(Value),
}

/// What is to become of the time of a link's schedules.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleChange {
    /// Whether it runs from now on; as before when absent.
    state: Option<ScheduleState>,
    /// The time that it goes to: `10s`. It stays where it is when absent.
    #[schema(value_type = Option<String>)]
    to: Option<Nanos>,
}

/// Whether the time of schedules runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScheduleState {
    /// It does.
    Running,
    /// It stands still: what is in force stays.
    Stopped,
}

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeRefusal {
    /// Conditions that cannot be.
    #[error(transparent)]
    Conditions(#[from] Error),
    /// Another revision is in force than the one that the client knows.
    #[error("the link has changed to revision {in_force} meanwhile: read it and try again")]
    Revision { in_force: u64 },
    /// Somebody else has a lease.
    #[error(
        "another client has a lease of this link {until}: wait for its end, or end it (DELETE on the lease, farwire set \
         --revert); its holder sends Farwire-Lease (--lease)"
    )]
    Leased { until: String },
    /// There is no such lease, or no lease at all.
    #[error("there is no such lease, or it has ended")]
    NoLease,
    /// Its conditions stay as they are.
    #[error("{why}")]
    Fixed { why: String },
    /// It took too long.
    #[error(
        "the change was not made within {} s, because it has too many conditions or other changes came first: nothing was changed",
        CHANGE_LIMIT.as_secs()
    )]
    TooLong,
    /// There is nothing to start, to stop or to move.
    #[error("the link's conditions have no schedule: PUT or PATCH conditions with one")]
    NoSchedule,
    /// The link has ended.
    #[error("the link has ended")]
    Ended,
}

impl ChangeRefusal {
    /// As what would be refused at the end of a lease is.
    pub(super) fn of_the_way_back(self) -> Self {
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
    /// What is to be in force, where `now` is, and what is to become of the time of its schedules; the seed stays that of the
    /// link's start.
    ///
    /// Conditions that stay the same are shared with `now`.
    pub(super) fn over(
        &self,
        now: &Arc<LinkSpec>,
    ) -> Result<(Arc<LinkSpec>, ScheduleOrder), ChangeRefusal> {
        let value = match self {
            Self::Schedule(_) if !now.has_schedule() => return Err(ChangeRefusal::NoSchedule),
            Self::Schedule(value) => {
                let change: ScheduleChange = object(value.clone(), "{\"to\": \"10s\"}")?;
                return Ok((Arc::clone(now), change.order()?));
            }
            Self::All(value) => value.clone(),
            Self::Patch(patch) => {
                let mut value = serde_json::to_value(&**now).map_err(Error::other)?;
                json_patch::merge(&mut value, patch);
                value
            }
        };
        let asked: LinkSpec = object(value, "{\"delay\": \"20ms\"}")?;
        if asked.seed.is_some_and(|seed| seed != now.seed()) {
            let error = Error::other(format_args!(
                "the seed of a running link, {}, cannot be changed: leave seed out",
                now.seed()
            ));
            return Err(error.at("seed").into());
        }
        let new = LinkSpec {
            seed: now.seed,
            ..asked
        };
        if new == **now {
            return Ok((Arc::clone(now), ScheduleOrder::default()));
        }
        new.check()?;
        Ok((Arc::new(new), ScheduleOrder::default()))
    }
}

impl ScheduleChange {
    fn order(&self) -> Result<ScheduleOrder, ChangeRefusal> {
        if self.state.is_none() && self.to.is_none() {
            let why = "state what to change in the schedule: state (running or stopped), to (a time such as 10s), or both";
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
        match clock.is_running() {
            true => Self::Running,
            false => Self::Stopped,
        }
    }
}

/// Reads what is asked for from a JSON object, of which `example` is one.
fn object<T: DeserializeOwned>(value: Value, example: &str) -> Result<T, Error> {
    if !value.is_object() {
        return Err(Error::new(Problem::WrongType {
            found: value.to_string(),
            right: format!("a JSON object, as in {example}"),
        }));
    }
    read::json(value)
}

/// Refuses what needs more memory than the forwarder may hold.
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
    /// What the model or the forwarder refuses of the change to `spec`.
    pub(super) fn of_change(spec: &LinkSpec, error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(refused) => Self::of_model(spec, refused),
            ChangeError::Ended(ended) => ended.into(),
        }
    }

    /// What the model refuses of the change to `spec`.
    pub(super) fn of_model(spec: &LinkSpec, error: ConfigError) -> Self {
        let ConfigError::LeavesHalf(stage) = &error else {
            return spec.located(error).into();
        };
        let condition = stage.split_once('.').map_or(stage.as_str(), |(_, of)| of);
        let error = Error::other(format_args!(
            "several classes share {condition}, and a running link cannot give one of them its own: change it for all of them, \
             or restart with a class that has its own"
        ));
        error.at("classes").into()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Ended> for ChangeRefusal {
    fn from(_: Ended) -> Self {
        Self::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::{CONDITIONS, ConditionKind};
    use serde_json::json;

    fn over(now: &str, order: RequestedConditions) -> Result<LinkSpec, (Option<String>, String)> {
        let now: Arc<LinkSpec> = Arc::new(toml::from_str(now).unwrap());
        let asked = order.over(&now).map(|(spec, _)| LinkSpec::clone(&spec));
        asked.map_err(|refusal| match refusal {
            ChangeRefusal::Conditions(error) => (error.field(), error.to_string()),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_patch_changes_what_it_names_and_a_whole_replaces_all() {
        let now = "delay = '20ms'\nseed = 7\n[up]\nloss = '1%'";
        let patched = over(
            now,
            RequestedConditions::Patch(json!({"delay": null, "up": {"rate": "1mbit"}})),
        );
        let right: LinkSpec =
            toml::from_str("seed = 7\n[up]\nloss = '1%'\nrate = '1mbit'").unwrap();
        assert_eq!(patched.unwrap(), right);
        let whole = over(now, RequestedConditions::All(json!({"loss": "2%"}))).unwrap();
        assert_eq!(whole, toml::from_str("loss = '2%'\nseed = 7").unwrap());
        assert_eq!(
            over(now, RequestedConditions::default()).unwrap(),
            toml::from_str(now).unwrap()
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        for (asked, field, words) in [
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
                json!({"classes": [{"name": "a", "loss": "x"}]}),
                "classes[0].loss",
                "classes",
            ),
            (
                json!({"jitter": {"spread": "2ms", "law": "table", "file": "x"}}),
                "jitter",
                "was not read",
            ),
        ] {
            let (found, why) = over("", RequestedConditions::All(asked.clone())).unwrap_err();
            assert_eq!(found.as_deref(), Some(field), "{asked}: {why}");
            assert!(why.contains(words), "{asked}: {why}");
        }
    }

    #[test]
    fn every_condition_with_a_wrong_value_is_refused_with_its_field_and_the_correct_form() {
        for ConditionKind { key, .. } in CONDITIONS {
            for (wrong, right) in [
                (json!([[1]]), &["expected "][..]),
                (json!("%"), &["write ", "as in ", "use one of: "]),
            ] {
                for (field, asked) in [
                    ((*key).to_owned(), json!({ *key: wrong })),
                    (format!("down.{key}"), json!({ "down": { *key: wrong } })),
                    (
                        format!("classes[0].up.{key}"),
                        json!({ "classes": [{ "name": "a", "port": 1, "up": { *key: wrong } }] }),
                    ),
                    (
                        format!("schedule[0].{key}"),
                        json!({ "schedule": [{ "at": "1s", *key: wrong }] }),
                    ),
                ] {
                    for order in [
                        RequestedConditions::All(asked.clone()),
                        RequestedConditions::Patch(asked),
                    ] {
                        let (found, why) = over("", order).unwrap_err();
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
    fn conditions_that_stay_the_same_are_shared() {
        let now: LinkSpec = toml::from_str("delay = '20ms'\nseed = 7").unwrap();
        let now = Arc::new(now);
        for order in [
            RequestedConditions::default(),
            RequestedConditions::All(json!({"delay": "20ms"})),
            RequestedConditions::Patch(json!({"delay": "0.02s"})),
        ] {
            let (same, _) = order.over(&now).unwrap();
            assert!(Arc::ptr_eq(&same, &now), "{order:?}");
        }
        let (other, _) = RequestedConditions::Patch(json!({"delay": "21ms"}))
            .over(&now)
            .unwrap();
        assert!(!Arc::ptr_eq(&other, &now));
    }

    #[test]
    fn more_memory_than_is_allowed_is_refused() {
        let spec: LinkSpec = toml::from_str("delay = '1s'\nrate = '1gbit'").unwrap();
        assert!(check_memory(&spec, 1 << 30).is_ok());
        let refused = check_memory(&spec, 1 << 20).unwrap_err().to_string();
        assert!(refused.contains("--held-memory"), "{refused}");
    }
}
