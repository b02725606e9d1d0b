//! The state of the screen: the watched link, its history, and the changes that keys have
//! requested.

use std::io;
use std::sync::Arc;

use conditions::{ConditionType as _, LinkSpec, RuleSpec, TraceSpec};
use netio::clock;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::history::SampleHistory;
use super::output::CommandOutput;
use super::steps::AdjustableCondition;
use crate::live::{
    CHANGE_LIMIT, ChangeOrder, Event, EventKind, ExperimentView, LinkSample, LinkView, Links,
    LiveLink, Origin, RequestedConditions,
};
use crate::trace_files;

/// The number of changes that can be undone.
const MOST_UNDO: usize = 100;

/// The state of a screen.
pub(super) struct App {
    links: Links,
    pub(super) output: Option<CommandOutput>,
    pub(super) watched: Option<WatchedLink>,
    /// The progress of the experiment to which the links belong.
    pub(super) experiment: Option<ExperimentView>,
    /// The number of figures below the last one that is shown.
    pub(super) figures_below: usize,
    pub(super) condition: AdjustableCondition,
    /// The text that is being typed.
    pub(super) entry: Option<String>,
    /// The result of the last key.
    pub(super) message: String,
    pub(super) is_paused: bool,
}

/// The link on the screen.
pub(super) struct WatchedLink {
    link: Arc<LiveLink>,
    events: Receiver<Arc<Event>>,
    pub(super) view: LinkView,
    pub(super) history: SampleHistory,
    pub(super) last: Option<LinkSample>,
    /// The present time of the link's schedules in words, if it has any.
    pub(super) schedule: Option<String>,
    /// The changes made on this screen that can be undone.
    own: Vec<OwnChange>,
    /// The place of the link among all links, from 1, and the number of links.
    pub(super) place: (usize, usize),
}

impl App {
    pub(super) fn new(links: Links, output: Option<CommandOutput>) -> Self {
        Self {
            links,
            output,
            watched: None,
            experiment: None,
            figures_below: 0,
            condition: AdjustableCondition::Delay,
            entry: None,
            message: String::new(),
            is_paused: false,
        }
    }

    /// Processes the events since the last call.
    pub(super) fn update(&mut self) {
        self.experiment = self.links.experiment().view();
        let all = self.links.all();
        let at =
            |watched: &WatchedLink| all.iter().position(|link| Arc::ptr_eq(link, &watched.link));
        match self.watched.as_mut().map(|watched| (at(watched), watched)) {
            Some((Some(at), watched)) => watched.place = (at + 1, all.len()),
            _ => {
                self.watched = all
                    .first()
                    .map(|link| WatchedLink::of(link, (1, all.len())))
            }
        }
        if let Some(watched) = &mut self.watched {
            watched.update(self.is_paused);
        }
    }

    /// Handles a key. Returns true if the key asks to leave.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if let Some(entry) = &mut self.entry {
            match key.code {
                KeyCode::Char(c) => entry.push(c),
                KeyCode::Backspace => drop(entry.pop()),
                KeyCode::Esc => self.entry = None,
                KeyCode::Enter => {
                    let typed = self.entry.take().unwrap_or_default();
                    self.message = self.apply_typed(&typed);
                }
                _ => {}
            }
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Tab => self.switch_link(1),
            KeyCode::BackTab => self.switch_link(-1),
            code if self.experiment.is_some() => self.key_of_run(code),
            KeyCode::Right | KeyCode::Char('l') => self.choose(1),
            KeyCode::Left | KeyCode::Char('h') => self.choose(AdjustableCondition::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('+' | 'k') => self.message = self.step(true),
            KeyCode::Down | KeyCode::Char('-' | 'j') => self.message = self.step(false),
            KeyCode::Char('x') => self.message = self.remove(),
            KeyCode::Char('u') => self.message = self.undo(),
            KeyCode::Enter => self.entry = Some(String::new()),
            _ => {}
        }
        false
    }

    /// Handles a key while an experiment runs, whose conditions cannot be changed.
    fn key_of_run(&mut self, code: KeyCode) {
        let figures = self.experiment.as_ref().map_or(0, |of| of.rows.len());
        let below = self.figures_below;
        match code {
            KeyCode::Up | KeyCode::Char('k') => {
                self.figures_below = (below + 1).min(figures.saturating_sub(1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.figures_below = below.saturating_sub(1),
            KeyCode::Char('+' | '-' | 'x' | 'u') | KeyCode::Enter => {
                let view = self.watched.as_ref().map(|watched| &watched.view);
                self.message = view.and_then(|view| view.fixed.clone()).unwrap_or_default();
            }
            _ => {}
        }
    }

    fn choose(&mut self, by: usize) {
        let at = AdjustableCondition::ALL
            .iter()
            .position(|condition| *condition == self.condition);
        self.condition =
            AdjustableCondition::ALL[(at.unwrap_or(0) + by) % AdjustableCondition::ALL.len()];
    }

    /// Watches the next or the previous link.
    fn switch_link(&mut self, by: isize) {
        let all = self.links.all();
        let Some(watched) = &self.watched else { return };
        if all.len() < 2 {
            return;
        }
        let at = all.iter().position(|link| Arc::ptr_eq(link, &watched.link));
        let next = at
            .unwrap_or(0)
            .wrapping_add_signed(by + all.len().cast_signed())
            % all.len();
        self.watched = Some(WatchedLink::of(&all[next], (next + 1, all.len())));
        self.message.clear();
    }

    fn step(&mut self, up: bool) -> String {
        let condition = self.condition;
        let Some(watched) = &mut self.watched else {
            return String::new();
        };
        match condition.step(watched.condition(condition.name()).as_deref(), up) {
            Err(why) => why,
            Ok(next) => {
                let value = next.map_or(Value::Null, Value::String);
                watched.patch(Map::from_iter([(condition.name().to_owned(), value)]))
            }
        }
    }

    fn remove(&mut self) -> String {
        let name = self.condition.name().to_owned();
        let watched = self.watched.as_mut();
        watched.map_or_else(String::new, |of| {
            of.patch(Map::from_iter([(name, Value::Null)]))
        })
    }

    fn undo(&mut self) -> String {
        let watched = self.watched.as_mut();
        watched.map_or_else(String::new, WatchedLink::undo)
    }

    fn apply_typed(&mut self, text: &str) -> String {
        // A rule has blanks, and the time of the schedules is no condition.
        if let Some(watched) = &mut self.watched {
            if let Some(rule) = text.trim().strip_prefix("rule=") {
                return watched.add_rule(rule);
            }
            if let Some(time) = text.trim().strip_prefix("at=") {
                return watched.move_schedule(time);
            }
        }
        let patch = match patch(text).and_then(with_traces) {
            Ok(patch) if patch.is_empty() => return String::new(),
            Ok(patch) => patch,
            Err(why) => return why,
        };
        let watched = self.watched.as_mut();
        watched.map_or_else(String::new, |watched| watched.patch(patch))
    }
}

/// A change made on this screen.
struct OwnChange {
    /// The conditions before the change.
    before: Arc<LinkSpec>,
    /// The revision before the change.
    from: u64,
    /// The revision of the change, or a later one with the same conditions.
    to: u64,
}

impl WatchedLink {
    fn of(link: &Arc<LiveLink>, place: (usize, usize)) -> Self {
        let (kept, events) = link.follow(Some(0));
        let mut watched = Self {
            link: Arc::clone(link),
            events,
            view: link.view(),
            history: SampleHistory::default(),
            last: None,
            schedule: link.schedule_says(),
            own: Vec::new(),
            place,
        };
        kept.iter().for_each(|event| watched.take(event, false));
        watched
    }

    fn update(&mut self, is_paused: bool) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.take(&event, is_paused),
                // The counters in the next sample include what was missed.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        self.view = self.link.view();
        self.schedule = self.link.schedule_says();
    }

    fn take(&mut self, event: &Event, is_paused: bool) {
        if let EventKind::Sample(sample) = &event.what
            && !is_paused
        {
            self.history.add(sample);
            self.last = Some((**sample).clone());
        }
    }

    /// Returns the condition with this name in both directions, as it is written.
    pub(super) fn condition(&self, name: &str) -> Option<String> {
        let all = serde_json::to_value(&*self.view.conditions).ok()?;
        Some(match all.get(name)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    fn patch(&mut self, patch: Map<String, Value>) -> String {
        self.view = self.link.view();
        self.patch_view(patch)
    }

    /// Patches the conditions of the view, if they are still in force.
    fn patch_view(&mut self, patch: Map<String, Value>) -> String {
        let (before, from) = (self.view.conditions.clone(), self.view.revision);
        match self.request_change(RequestedConditions::Patch(Value::Object(patch)), from) {
            Err(why) => why,
            Ok((to, message)) => {
                if self.own.len() == MOST_UNDO {
                    self.own.remove(0);
                }
                self.own.push(OwnChange { before, from, to });
                message
            }
        }
    }

    /// Adds a rule, written as `--rule` has it: it replaces the one of its name, or comes behind the others.
    fn add_rule(&mut self, text: &str) -> String {
        let rule = match text.parse::<RuleSpec>() {
            Ok(rule) => rule,
            Err(error) => return error.to_string(),
        };
        // The patch has all rules. Those of another change that comes now would be lost if it were made from an older view.
        self.view = self.link.view();
        let mut rules = self.view.conditions.rules.clone();
        match rules
            .iter_mut()
            .find(|known| known.rule.name == rule.rule.name)
        {
            Some(known) => *known = rule,
            None => rules.push(rule),
        }
        match serde_json::to_value(rules) {
            Ok(rules) => self.patch_view(Map::from_iter([("rules".to_owned(), rules)])),
            Err(error) => error.to_string(),
        }
    }

    /// Moves the schedules to a time such as `30s`. There is nothing to undo, because the conditions stay.
    fn move_schedule(&mut self, to: &str) -> String {
        self.view = self.link.view();
        let from = self.view.revision;
        let order = RequestedConditions::Schedule(json!({ "to": to }));
        match self.request_change(order, from) {
            Err(why) => why,
            Ok((revision, message)) => {
                self.follow_own(from, revision);
                message
            }
        }
    }

    /// Notes that the conditions of the last change made on this screen, if `from` is its revision, are in force as `to`.
    fn follow_own(&mut self, from: u64, to: u64) {
        if let Some(last) = self.own.last_mut()
            && last.to == from
        {
            last.to = to;
        }
    }

    /// Restores the conditions before the last change made on this screen, unless another client
    /// has changed the link since.
    fn undo(&mut self) -> String {
        let Some(own) = self.own.pop() else {
            return "there is nothing to undo".to_owned();
        };
        let all = match serde_json::to_value(&*own.before) {
            Ok(all) => all,
            Err(error) => return error.to_string(),
        };
        match self.request_change(RequestedConditions::All(all), own.to) {
            Ok((revision, message)) => {
                // The conditions in force are those of the previous change, with another revision
                // number.
                self.follow_own(own.from, revision);
                message
            }
            Err(why) => {
                self.own.push(own);
                format!("cannot undo: {why}")
            }
        }
    }

    /// Makes a change if `revision` is in force. Returns its revision and a message, or the reason
    /// for a refusal.
    fn request_change(
        &mut self,
        conditions: RequestedConditions,
        revision: u64,
    ) -> Result<(u64, String), String> {
        let order = ChangeOrder {
            conditions,
            if_revision: Some(revision),
            origin: Origin("the terminal of --tui".to_owned()),
            ..ChangeOrder::default()
        };
        let deadline = clock::now() + CHANGE_LIMIT.into();
        let changed = self
            .link
            .change(&order, deadline)
            .map_err(|why| why.to_string())?;
        self.view = self.link.view();
        let message = format!(
            "revision {} after {:.1} s; {} in flight under the earlier one",
            changed.revision,
            changed.at_s,
            record::quantity::counted(changed.under_previous, "packet")
        );
        Ok((changed.revision, message))
    }
}

/// Parses "delay=20ms up.loss=1% rate=" as a merge patch. An empty value removes a condition.
fn patch(text: &str) -> Result<Map<String, Value>, String> {
    let mut patch = Map::new();
    for word in text.split_whitespace() {
        let Some((path, value)) = word.split_once('=') else {
            return Err(format!(
                "{word}: write NAME=VALUE, as in delay=20ms or up.loss=1%"
            ));
        };
        let value = match value {
            "" => Value::Null,
            value => Value::String(value.to_owned()),
        };
        let mut table = &mut patch;
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                table.insert(name.to_owned(), value);
                break;
            }
            let inner = table
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            table = match inner {
                Value::Object(inner) => inner,
                _ => return Err(format!("{path}: {name} already has a value")),
            };
        }
    }
    Ok(patch)
}

/// Reads the files of the traces that a patch names.
fn with_traces(mut patch: Map<String, Value>) -> Result<Map<String, Value>, String> {
    for direction in [None, Some("up"), Some("down")] {
        let table = match direction {
            None => Some(&mut patch),
            Some(name) => patch.get_mut(name).and_then(Value::as_object_mut),
        };
        let Some(trace) = table.and_then(|table| table.get_mut(TraceSpec::KEY)) else {
            continue;
        };
        let read = match trace {
            Value::String(text) => read_trace(text)?,
            _ => continue,
        };
        *trace = read;
    }
    Ok(patch)
}

/// Reads a trace that is written as its file, and returns it with its content.
fn read_trace(text: &str) -> Result<Value, String> {
    let spec = conditions::read::text::<TraceSpec>(text);
    let mut spec = spec.map_err(|error| error.to_string())?;
    trace_files::read_again(&mut spec).map_err(|error| {
        let is_denied = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
        let causes = error.chain();
        let mut causes = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
        // An emulator may open no file once packets pass.
        match causes.any(is_denied) {
            true => format!("{error:#}: use farwire set LINK --trace FILE in another terminal"),
            false => format!("{error:#}"),
        }
    })?;
    serde_json::to_value(&spec).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::forward::thread::tests::idle;
    use crate::live::NewLink;

    #[test]
    fn a_patch_of_rules_that_are_no_longer_in_force_is_refused() {
        let forwarder = idle();
        let links = Links::default();
        links.put(NewLink {
            name: "link".to_owned(),
            ends: ["a", "b"].map(str::to_owned).into(),
            forwarder: forwarder.handle().clone(),
            number: 0,
            spec: LinkSpec::default(),
            build: Ok(Box::new(|spec: &LinkSpec| spec.to_link("box"))),
        });
        let link = links.get("link").unwrap();
        let mut watched = WatchedLink::of(&link, (1, 1));
        let order = ChangeOrder {
            conditions: RequestedConditions::Patch(json!({ "delay": "2ms" })),
            ..ChangeOrder::default()
        };
        link.change(&order, clock::now() + CHANGE_LIMIT.into())
            .unwrap();
        let patch = || Map::from_iter([("loss".to_owned(), json!("1%"))]);
        let refused = watched.patch_view(patch());
        assert!(refused.contains("changed to revision 2"), "{refused}");
        let changed = watched.patch(patch());
        assert!(changed.starts_with("revision 3"), "{changed}");
        let added = watched.add_rule("udp: loss=2%");
        assert!(added.starts_with("revision 4"), "{added}");
        assert_eq!(link.view().conditions.rules.len(), 1);
        forwarder.stop().unwrap();
    }

    #[test]
    fn a_trace_that_is_typed_is_read_from_its_file_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drive.csv");
        let name = file.display().to_string();
        let typed = || patch(&format!("delay=5ms up.trace={name},hold")).and_then(with_traces);
        assert!(typed().unwrap_err().contains("drive.csv: cannot open"));
        for delay in ["7ms", "9ms"] {
            std::fs::write(&file, format!("t,delay\n0s,{delay}\n1s,\n")).unwrap();
            let patch = typed().unwrap();
            assert_eq!(patch["delay"], "5ms");
            assert_eq!(patch["up"]["trace"]["end"], "hold");
            let content = patch["up"]["trace"]["content"].as_str().unwrap();
            assert!(content.contains(delay), "{content}");
        }
        let removed = patch("trace=").and_then(with_traces).unwrap();
        assert_eq!(removed["trace"], Value::Null);
    }

    #[test]
    fn typed_text_becomes_a_patch() {
        let read = |text| patch(text).map(Value::Object);
        assert_eq!(
            read("delay=20ms up.loss=1%,burst=8 up.rate=1mbit rate="),
            Ok(
                json!({ "delay": "20ms", "up": { "loss": "1%,burst=8", "rate": "1mbit" }, "rate": null })
            )
        );
        assert_eq!(read("  "), Ok(json!({})));
        assert!(read("delay 20ms").is_err_and(|why| why.contains("NAME=VALUE")));
        assert!(read("up=1 up.loss=1%").is_err());
    }
}
