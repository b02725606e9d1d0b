//! Conditions that replaced each other while a link ran, converted to one link with a schedule.

use model::Nanos;

use crate::condition::Shapes;
use crate::error::{At, Error};
use crate::layer::{ConditionSet, Layer, ScheduleCursor, ScheduleStep};
use crate::link::LinkSpec;
use crate::link::hops::HopSpec;
use crate::link::rule::RuleSpec;
use crate::link::stage::{ExtraStage, StageKind};
use crate::require;

/// Returns conditions with a schedule that have the same effect as `revisions`: the conditions in force from each of
/// their times on, in order of time. These times, like those of the revisions' own schedules, count from the link's
/// start; the times in the result count from the first revision.
///
/// # Errors
/// Returns an error with its key for a change that no schedule can express.
pub fn over_time(revisions: &[(Nanos, LinkSpec)]) -> Result<LinkSpec, Error> {
    let Some((start, first)) = revisions.first() else {
        return Ok(LinkSpec::default());
    };
    for (_, spec) in revisions {
        require!(
            spec.toffee == first.toffee,
            "toffee": "this condition was changed while the link ran, and cannot have a schedule"
        );
        require!(
            *start == Nanos::ZERO || !spec.has_own_times(),
            "traces, outages and handovers count from the start of the link, so only all changes since then can be expressed"
        );
    }
    if revisions.iter().any(|(_, spec)| spec.repeats()) {
        require!(
            *start == Nanos::ZERO && revisions.len() == 1,
            "schedule": "steps that repeat count from the start of the link, so conditions that were changed since then cannot be expressed"
        );
        first.check()?;
        return Ok(first.clone());
    }
    let line = Timeline {
        start: *start,
        revisions,
    };
    let spec = LinkSpec {
        both: line.of(|spec| Some(&spec.both)),
        up: line.of(|spec| Some(&spec.up)),
        down: line.of(|spec| Some(&spec.down)),
        toffee: first.toffee.clone(),
        seed: first.seed,
        start: first.start,
        stages: line.stages(|spec| spec.stages.as_slice())?,
        hops: line.hops()?,
        rules: line.rules()?,
    };
    spec.check()?;
    Ok(spec)
}

/// The conditions in force, by time.
#[derive(Clone, Copy)]
struct Timeline<'r> {
    start: Nanos,
    revisions: &'r [(Nanos, LinkSpec)],
}

impl<'r> Timeline<'r> {
    /// Returns the revisions with their beginnings and ends.
    fn spans(self) -> impl Iterator<Item = (Nanos, Nanos, &'r LinkSpec)> {
        let ends = self.revisions.iter().skip(1).map(|(at, _)| *at);
        let spans = self.revisions.iter().zip(ends.chain([Nanos(u64::MAX)]));
        spans.map(|((at, spec), end)| (*at, end, spec))
    }

    /// Converts a time of the link to the time since the first revision.
    fn since(self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_sub(self.start.0))
    }

    /// Returns one layer of conditions over time; a revision without this layer has no conditions in it.
    fn of(self, layer: impl Fn(&LinkSpec) -> Option<&Layer>) -> Layer {
        let mut all: Option<Layer> = None;
        let mut now = ConditionSet::default();
        let nothing = Layer::default();
        for (begin, end, spec) in self.spans() {
            let layer = layer(spec).unwrap_or(&nothing);
            let mut cursor = ScheduleCursor::of(layer);
            let later: Vec<Nanos> = cursor.times().collect();
            let later = later.into_iter().filter(|at| *at > begin && *at < end);
            for at in [begin].into_iter().chain(later) {
                let then = cursor.advance_to(at).clone();
                match &mut all {
                    None => all = Some(then.clone().into()),
                    Some(all) => {
                        all.schedule
                            .extend(ScheduleStep::between(self.since(at), &now, &then))
                    }
                }
                now = then;
            }
        }
        all.unwrap_or_default()
    }

    /// Returns the further stages of the link itself or of a hop, which `of` returns for a revision, over time.
    fn stages(
        self,
        of: impl Fn(&'r LinkSpec) -> &'r [ExtraStage],
    ) -> Result<Vec<ExtraStage>, Error> {
        let first = self.revisions.first().map_or(&[][..], |(_, spec)| of(spec));
        let same = |one: &ExtraStage, other: &ExtraStage| {
            one.parameters.kind() == other.parameters.kind()
                && one.name() == other.name()
                && one.direction == other.direction
                && one.place == other.place
        };
        for (_, spec) in self.revisions {
            let own = of(spec);
            let is_same = own.len() == first.len()
                && own.iter().zip(first).all(|(one, other)| same(one, other));
            require!(
                is_same,
                "stages": "stages were added, removed or moved while the link ran, which a schedule cannot express"
            );
        }
        let all = first.iter().enumerate();
        let over_time = all.map(|(number, stage)| {
            let stage_over_time = self.stage(stage, |spec| &of(spec)[number]);
            stage_over_time.at_item("stages", number, Some(stage.name()))
        });
        over_time.collect()
    }

    /// Returns a stage, which `of` returns for a revision, over time.
    fn stage(
        self,
        first: &ExtraStage,
        of: impl Fn(&'r LinkSpec) -> &'r ExtraStage,
    ) -> Result<ExtraStage, Error> {
        let mut now: Option<StageKind> = None;
        let mut at_first = first.parameters.clone();
        let mut schedule = Vec::new();
        for (begin, end, spec) in self.spans() {
            let stage = of(spec);
            let steps = stage.schedule.iter().map(|step| step.at);
            let later = steps.filter(|at| *at > begin && *at < end);
            for at in [begin].into_iter().chain(later) {
                let then = stage.then(at);
                match &now {
                    None => at_first = then.clone(),
                    Some(now) => {
                        let step = then.step_from(now, self.since(at));
                        let left_out = "this condition was removed while the link ran, which a schedule cannot express: set a value";
                        schedule.extend(step.map_err(|key| Error::other(left_out).at(key))?);
                    }
                }
                now = Some(then);
            }
        }
        Ok(first.with(at_first, schedule))
    }

    /// Returns the hops over time. Each revision has the same ones.
    fn hops(self) -> Result<Vec<HopSpec>, Error> {
        let first = self
            .revisions
            .first()
            .map_or(&[][..], |(_, spec)| spec.hops.as_slice());
        let is_same = |(_, spec): &(Nanos, LinkSpec)| {
            let names = spec.hops.iter().map(|hop| &hop.name);
            names.eq(first.iter().map(|hop| &hop.name))
        };
        require!(
            self.revisions.iter().all(is_same),
            "hops": "hops were added, removed, renamed or moved while the link ran, which a schedule cannot express"
        );
        let mut hops = Vec::new();
        for (number, HopSpec { name, .. }) in first.iter().enumerate() {
            let layer = |layer: fn(&HopSpec) -> &Layer| {
                self.of(move |spec| spec.hops.get(number).map(layer))
            };
            let stages = self.stages(|spec| spec.hops[number].stages.as_slice());
            hops.push(HopSpec {
                name: name.clone(),
                both: layer(|hop| &hop.both),
                up: layer(|hop| &hop.up),
                down: layer(|hop| &hop.down),
                stages: stages.at_item("hops", number, Some(name))?,
            });
        }
        Ok(hops)
    }

    /// Returns the rules over time. Rules keep their order while a link runs, and new ones are appended, so the
    /// longest list has all of them.
    fn rules(self) -> Result<Vec<RuleSpec>, Error> {
        let lists = self.revisions.iter().map(|(_, spec)| &spec.rules);
        let all = lists
            .clone()
            .max_by_key(|list| list.len())
            .map_or(&[][..], Vec::as_slice);
        let mut rules = Vec::new();
        for (number, first) in all.iter().enumerate() {
            let RuleSpec {
                rule, hop, weight, ..
            } = first;
            let refused = |why: &str| {
                let error = Error::other(why);
                error.at_item(number, Some(&rule.name)).at("rules")
            };
            let mut others = lists.clone().filter_map(|list| list.get(number));
            let is_same = |other: &RuleSpec| {
                other.rule == *rule && other.hop == *hop && other.weight == *weight
            };
            if !others.all(is_same) {
                return Err(refused(
                    "the packets, the hop or the weight of the rule were changed while the link ran, which a schedule cannot express",
                ));
            }
            let layer = |layer: fn(&RuleSpec) -> &Layer| {
                self.of(move |spec| spec.rules.get(number).map(layer))
            };
            let over_time = RuleSpec {
                rule: rule.clone(),
                hop: hop.clone(),
                weight: *weight,
                both: layer(|rule| &rule.both),
                up: layer(|rule| &rule.up),
                down: layer(|rule| &rule.down),
            };
            let layers = [&over_time.both, &over_time.up, &over_time.down];
            if !layers.into_iter().all(Layer::keeps_its_servers) {
                return Err(refused(
                    "the rule had its own bottleneck for a part of the time, which a schedule cannot express",
                ));
            }
            rules.push(over_time);
        }
        Ok(rules)
    }
}

impl Layer {
    /// Returns whether each stage in which packets share a queue always has conditions in this layer, or never does.
    fn keeps_its_servers(&self) -> bool {
        let servers = |conditions: &ConditionSet| {
            [
                Shapes::Police,
                Shapes::Outage,
                Shapes::Handover,
                Shapes::Pps,
                Shapes::Rate,
                Shapes::Trace,
                Shapes::Netem,
            ]
            .map(|stage| conditions.shapes(stage))
        };
        let ever = servers(&self.ever());
        let mut cursor = ScheduleCursor::of(self);
        let has_all_servers = |conditions: &ConditionSet| servers(conditions) == ever;
        has_all_servers(&cursor.now)
            && self
                .schedule
                .iter()
                .all(|step| has_all_servers(cursor.advance_to(step.at)))
    }
}

#[cfg(test)]
mod tests {
    use model::ScheduleClock;

    use super::*;

    fn spec(text: &str) -> LinkSpec {
        crate::read::toml_text(text).unwrap()
    }

    fn ran(revisions: &[(u64, &str)]) -> Result<LinkSpec, Error> {
        let all = revisions
            .iter()
            .map(|(ms, text)| (Nanos::from_millis(*ms), spec(text)));
        over_time(&all.collect::<Vec<_>>())
    }

    #[test]
    fn each_change_is_a_step_of_what_differs() {
        let ran = ran(&[
            (1_000, "delay = '1ms'\nseed = 7"),
            (
                3_000,
                "delay = '1ms'\nseed = 7\nrate = '1mbit'\nqueue = '5pkt'\n[up]\nloss = '100%'",
            ),
            (4_000, "delay = '60ms'\nseed = 7\n[down]\nloss = '1%'"),
        ]);
        let right = "delay = '1ms'\nseed = 7\n\
            schedule = [{ at = '2s', rate = '1mbit', queue = '5pkt' }, { at = '3s', delay = '60ms', without = ['rate', 'queue'] }]\n\
            [up]\nschedule = [{ at = '2s', loss = '100%' }, { at = '3s', without = ['loss'] }]\n\
            [down]\nschedule = [{ at = '3s', loss = '1%' }]";
        assert_eq!(ran.unwrap(), spec(right));
    }

    #[test]
    fn a_schedule_counts_from_the_start_and_ends_with_its_revision() {
        let own = "loss = '1%'\nschedule = [{ at = '1s', loss = '2%' }, { at = '4s', loss = '3%' }, { at = '8s', loss = '4%' }]";
        let ran = ran(&[(0, "loss = '9%'"), (2_000, own), (6_000, "loss = '3%'")]);
        let right =
            "loss = '9%'\nschedule = [{ at = '2s', loss = '2%' }, { at = '4s', loss = '3%' }]";
        assert_eq!(ran.unwrap(), spec(right));
    }

    #[test]
    fn a_moved_and_stopped_schedule_is_converted_as_it_ran() {
        let own = spec(
            "loss = '1%'\nschedule = [{ at = '1s', loss = '2%' }, { at = '2s', loss = '3%' }, { at = '3s', loss = '4%' }]\n\
            stages = [{ kind = 'gate', schedule = [{ at = '1500ms', open = false }] }]",
        );
        let ms = Nanos::from_millis;
        let ran_from = ScheduleClock::Running {
            since: ms(500),
            from: ms(1_200),
        };
        let stopped = ScheduleClock::Stopped { at: ms(2_100) };
        let revisions = [
            (Nanos::ZERO, own.clone()),
            (ms(500), own.clone().on_clock(ran_from)),
            (ms(1_400), own.clone().on_clock(stopped)),
        ];
        let right = "loss = '1%'\nschedule = [{ at = '500ms', loss = '2%' }, { at = '1300ms', loss = '3%' }]\n\
            stages = [{ kind = 'gate', schedule = [{ at = '800ms', open = false }] }]";
        assert_eq!(over_time(&revisions).unwrap(), spec(right));
        assert!(own.has_schedule());
        let then = own.then(ms(2_100));
        let right = spec("loss = '3%'\nstages = [{ kind = 'gate', open = false }]");
        assert_eq!(then, right);
        assert!(!then.has_schedule());
    }

    #[test]
    fn effects_of_stages_and_rules_are_scheduled() {
        let ran = ran(&[
            (0, "stages = [{ kind = 'gate' }]"),
            (500, "stages = [{ kind = 'gate', open = false }]"),
            (
                900,
                "stages = [{ kind = 'gate', open = true }]\nrules = [{ name = 'web', port = 80, loss = '1%' }]",
            ),
        ]);
        let right = "stages = [{ kind = 'gate', schedule = [{ at = '500ms', open = false }, { at = '900ms', open = true }] }]\n\
            rules = [{ name = 'web', port = 80, schedule = [{ at = '900ms', loss = '1%' }] }]";
        assert_eq!(ran.unwrap(), spec(right));
    }

    #[test]
    fn the_conditions_of_hops_are_scheduled() {
        let ran = ran(&[
            (
                0,
                "loss = '1%'\nhops = [{ name = 'a', delay = '1ms', stages = [{ kind = 'gate' }] }, { name = 'b', up = { loss = '1%' } }]",
            ),
            (
                500,
                "loss = '1%'\nhops = [{ name = 'a', delay = '2ms', stages = [{ kind = 'gate', open = false }] }, { name = 'b' }]",
            ),
        ]);
        let right = "loss = '1%'\n\
            [[hops]]\nname = 'a'\ndelay = '1ms'\nschedule = [{ at = '500ms', delay = '2ms' }]\n\
            stages = [{ kind = 'gate', schedule = [{ at = '500ms', open = false }] }]\n\
            [[hops]]\nname = 'b'\nup = { loss = '1%', schedule = [{ at = '500ms', without = ['loss'] }] }";
        assert_eq!(ran.unwrap(), spec(right));
    }

    #[test]
    fn a_trace_is_expressed_from_the_start_of_the_link_only() {
        let trace = r#"trace = { file = "x", content = "t,delay\n0s,5ms\n1s,9ms\n" }"#;
        let since_start = ran(&[(0, "loss = '1%'"), (700, trace)]).unwrap();
        assert_eq!(since_start.traces().count(), 1);
        let later = ran(&[(5, "loss = '1%'"), (700, trace)]).unwrap_err();
        assert!(
            later.to_string().starts_with("traces, outages and"),
            "{later}"
        );
        let then = spec(trace).then(Nanos::from_millis(1_500));
        assert_eq!(then, spec("delay = '9ms'"));
        let again = spec(trace).then(Nanos::from_millis(2_500));
        assert_eq!(again, spec("delay = '5ms'"));
    }

    #[test]
    fn steps_that_repeat_are_expressed_if_nothing_was_changed() {
        let own = "loss = '1%'\nschedule = [{ at = '1s', every = '5s', loss = '2%' }]";
        assert_eq!(ran(&[(0, own)]).unwrap(), spec(own));
        for changed in [&[(5, own)][..], &[(0, own), (5, "loss = '1%'")]] {
            let refused = ran(changed).unwrap_err().to_string();
            assert!(
                refused.starts_with("schedule: steps that repeat"),
                "{refused}"
            );
        }
    }

    #[test]
    fn changes_without_a_schedule_are_refused_with_their_key() {
        for case in [
            " => toffee = 'drop=2' => toffee: ",
            " => hops = [{ name = 'a', delay = '1ms' }] => hops: hops were added, removed, renamed or moved",
            "hops = [{ name = 'a' }] => hops = [{ name = 'a', stages = [{ kind = 'gate' }] }] => hops: a: stages: stages were added",
            " => stages = [{ kind = 'gate' }] => stages: stages were added",
            "stages = [{ kind = 'gate', open = false }] => \
             stages = [{ kind = 'gate' }] => stages: gate: open: this condition was removed",
            "rules = [{ name = 'web', port = 80 }] => rules = [{ name = 'web', port = 81 }] => rules: web: the packets, the hop or the weight",
            "hops = [{ name = 'a' }]\nrules = [{ name = 'web', port = 80 }] => \
             hops = [{ name = 'a' }]\nrules = [{ name = 'web', port = 80, hop = 'a' }] => rules: web: the packets, the hop or",
            "rate = '1mbit' => \
             rate = '1mbit'\nrules = [{ name = 'web', port = 80, rate = '2mbit' }] => rules: web: the rule had its own bottleneck",
        ] {
            let [first, second, words] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            let refused = ran(&[(0, first), (5, second)]).unwrap_err().to_string();
            assert!(refused.starts_with(words), "{second}: {refused}");
        }
    }
}
