//! Changes of a link that runs: what is asked for, what became of it, and why not.

use conditions::in_effect::MemoryNeed;
use conditions::link_spec::LinkSpec;
use conditions::nearest;
use model::{ConfigError, Nanos, ScheduleClock, ScheduleOrder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::lease::{LeaseFor, LeaseId};
use crate::forward::thread::{ChangeError, Ended};

/// What a client asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeOrder {
    pub(crate) conditions: Conditions,
    /// Only if this revision is in force.
    pub(crate) if_revision: Option<u64>,
    /// Not for good.
    pub(crate) lease_for: Option<LeaseFor>,
    /// The lease that the client holds.
    pub(crate) lease: Option<LeaseId>,
    /// Says what would be, and changes nothing.
    pub(crate) is_dry_run: bool,
}

/// Which conditions are to be in force.
#[derive(Clone, Debug)]
pub(crate) enum Conditions {
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
pub(crate) enum Refusal {
    /// Conditions that cannot be, with the field that is wrong.
    #[error("{why}")]
    Conditions { field: Option<String>, why: String },
    /// Another revision is in force than the one that the client knows.
    #[error("revision {in_force} is in force: read it, and decide again")]
    Revision { in_force: u64 },
    /// Somebody else has a lease.
    #[error(
        "somebody has a lease of this link {until}: wait for its end, or end it (DELETE on its lease, farwire set --revert); its \
         holder sends Farwire-Lease (--lease)"
    )]
    Leased { until: String },
    /// There is no such lease, or no lease at all.
    #[error("there is no such lease: it has ended")]
    NoLease,
    /// Its conditions stay as they are.
    #[error("{why}")]
    Fixed { why: String },
    /// There is nothing to start, to stop or to move.
    #[error("the conditions in force have no schedule: PUT or PATCH some that have")]
    NoSchedule,
    /// The link has ended.
    #[error("the link has ended")]
    Ended,
}

impl Refusal {
    /// As what would be refused at the end of a lease is.
    pub(super) fn of_the_way_back(self) -> Self {
        match self {
            Self::Conditions { field, why } => Self::Conditions {
                field,
                why: format!(
                    "{why} (at the lease's end what stood before could not come back; without a lease it is changed for good)"
                ),
            },
            other => other,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::Patch(Value::Object(serde_json::Map::new()))
    }
}

impl Conditions {
    /// What is to be in force, where `now` is, and what is to become of the time of its schedules; the seed stays that of the
    /// link's start.
    pub(super) fn over(&self, now: &LinkSpec) -> Result<(LinkSpec, ScheduleOrder), Refusal> {
        let value = match self {
            Self::Schedule(_) if !now.has_schedule() => return Err(Refusal::NoSchedule),
            Self::Schedule(value) => {
                let change: ScheduleChange = read(value.clone(), "{\"to\": \"10s\"}")?;
                return Ok((now.clone(), change.order()?));
            }
            Self::All(value) => value.clone(),
            Self::Patch(patch) => {
                let mut value = serde_json::to_value(now).map_err(|cause| Refusal::Conditions {
                    field: None,
                    why: cause.to_string(),
                })?;
                json_patch::merge(&mut value, patch);
                value
            }
        };
        let asked: LinkSpec = read(value, "{\"delay\": \"20ms\"}")?;
        if asked.seed.is_some_and(|seed| seed != now.seed()) {
            return Err(Refusal::Conditions {
                field: Some("seed".to_owned()),
                why: format!(
                    "seed: a link keeps the seed that it began with, {}: leave it out",
                    now.seed()
                ),
            });
        }
        let new = LinkSpec {
            seed: now.seed,
            ..asked
        };
        check(&new)?;
        Ok((new, ScheduleOrder::default()))
    }
}

impl ScheduleChange {
    fn order(&self) -> Result<ScheduleOrder, Refusal> {
        if self.state.is_none() && self.to.is_none() {
            return Err(Refusal::Conditions {
                field: None,
                why: "say what is to become of the schedule: state (running or stopped), to (a time such as 10s), or both"
                    .to_owned(),
            });
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

/// Reads what is asked for from JSON, of which `example` is one.
fn read<T: DeserializeOwned>(value: Value, example: &str) -> Result<T, Refusal> {
    if !value.is_object() {
        // Else serde would take a list as the values of all fields in their order.
        return Err(Refusal::Conditions {
            field: None,
            why: format!("it is to be a JSON object, as in {example}"),
        });
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let why = error.inner().to_string();
        let mut field = (path != ".").then_some(path);
        let why = match unknown_key(&why) {
            Some((key, known)) => {
                let place = field.as_deref().and_then(|path| path.strip_suffix(key));
                field = Some(format!("{}{key}", place.unwrap_or_default()));
                format!("unknown key `{key}`{}", nearest::or_all(key, known))
            }
            None => why,
        };
        let why = match &field {
            Some(field) => format!("{field}: {why}"),
            None => why,
        };
        Refusal::Conditions { field, why }
    })
}

/// The key that serde does not know, and those that it does.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = message
        .strip_prefix("unknown field ")?
        .split('`')
        .skip(1)
        .step_by(2);
    let key = quoted.next()?;
    Some((key, quoted.collect()))
}

/// Refuses what would be refused at a start.
fn check(spec: &LinkSpec) -> Result<(), Refusal> {
    spec.check().map_err(|error| {
        let why = format!("{error:#}");
        Refusal::Conditions {
            field: field_of(&why),
            why,
        }
    })
}

/// Refuses what needs more memory than the forwarder may hold.
pub(super) fn check_memory(spec: &LinkSpec, allowed: u64) -> Result<(), Refusal> {
    let refused = |why: String| Refusal::Conditions { field: None, why };
    let need = MemoryNeed::of(spec).map_err(|error| refused(format!("{error:#}")))?;
    if need.bytes() > allowed {
        return Err(refused(format!(
            "rate times delay has {} bytes of full frames on their way up and {} down, more than --held-memory allows ({allowed} \
             bytes): less rate or delay, or a start with more",
            need.up, need.down
        )));
    }
    Ok(())
}

/// The field that a message begins with: "up: queue: a queue needs a rate" is of `up.queue`, and "box.up.loss: ..." of `up.loss`.
fn field_of(message: &str) -> Option<String> {
    let is_key = |part: &&str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    let mut parts: Vec<&str> = message.split(": ").collect();
    // What is wrong with it.
    parts.pop();
    let keys: Vec<&str> = parts.into_iter().take_while(is_key).collect();
    let field = keys.join(".");
    let field = field.strip_prefix("box.").unwrap_or(&field);
    (!field.is_empty()).then(|| field.to_owned())
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(refused) => refused.into(),
            ChangeError::Ended(ended) => ended.into(),
        }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        if let ConfigError::LeavesHalf(stage) = &error {
            let condition = stage.split_once('.').map_or(stage.as_str(), |(_, of)| of);
            return Self::Conditions {
                field: Some("classes".to_owned()),
                why: format!(
                    "classes: {condition} is one queue or one draw for packets of several classes, and none of these can begin or cease \
                     to have its own while the link runs: change it for all of them, or begin with a class that has its own"
                ),
            };
        }
        let why = error.to_string();
        Self::Conditions {
            field: field_of(&why),
            why,
        }
    }
}

impl From<Ended> for Refusal {
    fn from(_: Ended) -> Self {
        Self::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn over(now: &str, order: Conditions) -> Result<LinkSpec, (Option<String>, String)> {
        let now: LinkSpec = toml::from_str(now).unwrap();
        let asked = order.over(&now).map(|(spec, _)| spec);
        asked.map_err(|refusal| match refusal {
            Refusal::Conditions { field, why } => (field, why),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_patch_changes_what_it_names_and_a_whole_replaces_all() {
        let now = "delay = '20ms'\nseed = 7\n[up]\nloss = '1%'";
        let patched = over(
            now,
            Conditions::Patch(json!({"delay": null, "up": {"rate": "1mbit"}})),
        );
        let right: LinkSpec =
            toml::from_str("seed = 7\n[up]\nloss = '1%'\nrate = '1mbit'").unwrap();
        assert_eq!(patched.unwrap(), right);
        let whole = over(now, Conditions::All(json!({"loss": "2%"}))).unwrap();
        assert_eq!(whole, toml::from_str("loss = '2%'\nseed = 7").unwrap());
        assert_eq!(
            over(now, Conditions::default()).unwrap(),
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
                "keeps the seed that it began with, 1",
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
            let (found, why) = over("", Conditions::All(asked.clone())).unwrap_err();
            assert_eq!(found.as_deref(), Some(field), "{asked}: {why}");
            assert!(why.contains(words), "{asked}: {why}");
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
