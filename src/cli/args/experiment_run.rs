//! The options of commands that run an experiment, and the steps from a plan to a record.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};

use super::api_server::LiveRuns;
use super::forwarder::CpuArg;
use super::headings;
use super::link_conditions::{self, once_each};
use super::threads::ThreadsArgs;
use crate::experiment::artifacts::ARTIFACTS;
use crate::experiment::machine_facts;
use crate::experiment::observer::RunObserver;
use crate::experiment::run_times::{self, RunTimes};
use crate::experiment::runner::{MeasureBaseline, Measures};
use crate::experiment::uses::{self, Uses};
use crate::experiment::{Case, Plan};
use crate::experiment::{
    host_baseline, record_directory, runner, scenario, sharding, testbed, testbeds,
};
use crate::live::quoted;
use crate::named_files::{self, NamedFiles, NamedFilesArgs};
use crate::notes::{self, note};
use crate::progress;
use crate::testbed::TestbedBuilder;
use conditions::reach::{self, Host};
use conditions::warnings;
use instruments::failure::{Blame, Failure};
use instruments::measure;
use instruments::output::{self, PAGE};
use model::Nanos;
use netio::stop::Stop;
use record::lateness::LateBudget;
use record::output_directory::OutputDirectory;
use record::plan::{Order, Repeats};
use record::printable::printable_lines;
use record::quantity::counted;
use record::{GivenScenario, Record, RecordHead, RecordWriter, Shard, ShardBy, ShardNumber};
use report::{DataRows, DataSelection, DataTable};

/// The tables beside a record.
const RUNS: &str = "runs.csv";
const SAMPLES: &str = "samples.csv";
/// The heading of the options that choose runs.
pub(crate) const RUNS_HEADING: &str = "Runs";

/// The options of an experiment: which of its runs take place, and where their record goes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExperimentArgs {
    /// Show the plan, its duration and everything that it would use, without running it
    ///
    /// Show the plan, its duration, and every command, file, host and interface that it would use (with --json only these). It tests
    /// whether this machine can run the plan, but runs nothing. With --resume, it shows the missing runs
    #[arg(long, help_heading = RUNS_HEADING)]
    check: bool,
    /// Reduce counts and sizes for a quick look; the conditions stay the same
    #[arg(long, help_heading = RUNS_HEADING)]
    pub(crate) quick: bool,
    /// Run only this case, or the cases of this sweep, and the reference (repeatable)
    #[arg(long, value_name = "CASE", help_heading = RUNS_HEADING)]
    only: Vec<String>,
    /// Run every case this many times, whatever the scenario says
    ///
    /// Run every case this many times, whatever the scenario says, even the cases whose first runs would decide how many follow
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help_heading = RUNS_HEADING)]
    repeats: Option<u32>,
    /// Continue the experiment in DIR with the runs that its record lacks
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["quick", "only", "repeats", "out", "overwrite"],
        help_heading = RUNS_HEADING
    )]
    resume: Option<PathBuf>,
    /// With --resume, also repeat the runs that are invalid because the machine did not keep up
    #[arg(long, requires = "resume", help_heading = RUNS_HEADING, hide_short_help = true)]
    redo_invalid: bool,
    /// Skip the baseline, which measures this machine without conditions before and after the runs
    ///
    /// Skip the baseline, which measures this machine without conditions before and after the runs. That saves about 5 s, but the
    /// report cannot say which figures are near the machine's own limits
    #[arg(long, help_heading = RUNS_HEADING, hide_short_help = true)]
    no_baseline: bool,
    #[command(flatten, next_help_heading = RUNS_HEADING)]
    files: NamedFilesArgs,
    /// Directory of record.jsonl, report.html, runs.csv and samples.csv [default: out/NAME, or the next free out/NAME-2 ...]
    #[arg(long, value_name = "DIR", help_heading = headings::OUTPUT)]
    out: Option<PathBuf>,
    /// Replace an existing record
    #[arg(long, help_heading = headings::OUTPUT)]
    overwrite: bool,
    /// Write the results as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    pub(crate) json: Option<PathBuf>,
    /// Method by which the emulator waits for departures
    #[arg(
        long,
        value_name = "USE",
        default_value = "spin",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    cpu: CpuArg,
    #[command(flatten)]
    threads: ThreadsArgs,
    /// Count a packet as late above this departure error; at most 1s [default: the scenario's, else 1ms]
    ///
    /// Count a packet as late above this departure error; at most 1s [default: the scenario's, else 1ms]. With
    /// --resume, it applies to the remaining runs, and the record notes the change [default: the record's latest]
    #[arg(
        long,
        value_name = "TIME",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    late_budget: Option<LateBudget>,
}

/// An experiment that has ended, by itself or by a signal.
pub(crate) struct FinishedExperiment {
    plan: Plan,
    pub(crate) record: Record,
    /// The directory of its record.
    pub(crate) directory: PathBuf,
    command: &'static str,
    stop: Stop,
}

/// The missing runs of a record, and what they would use.
pub(crate) struct RestOfRecord {
    plan: Plan,
    uses: Uses,
    /// The text that describes both.
    pub(crate) outline: String,
}

/// The value of `--shard-by`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShardByArg {
    /// One run: the repeats of a case are spread over the shards
    Run,
    /// One case: the same host runs all its repeats
    Case,
}

impl From<ShardByArg> for ShardBy {
    fn from(arg: ShardByArg) -> Self {
        match arg {
            ShardByArg::Run => Self::Run,
            ShardByArg::Case => Self::Case,
        }
    }
}

impl ExperimentArgs {
    /// Returns the options for the experiment `name`, which is one of several.
    ///
    /// # Errors
    /// An option works with one experiment only.
    pub(crate) fn of_several(&self, name: &str) -> Result<Self, Failure> {
        let of_one = [
            ("--only", !self.only.is_empty()),
            ("--json", self.json.is_some()),
        ];
        if let Some((option, _)) = of_one.iter().find(|(_, given)| *given) {
            return Err(Failure::bad_input(format_args!(
                "{option} works with one scenario only: run the scenarios separately"
            )));
        }
        Ok(Self {
            out: self.out.as_ref().map(|out| out.join(name)),
            ..self.clone()
        })
    }

    /// The files that the scenario may name.
    pub(crate) fn named_files(&self) -> NamedFiles {
        self.files.files()
    }

    /// Directories whose files the scenario may name, besides its own directory.
    fn allowed(&self) -> &[PathBuf] {
        &self.files.allow_files
    }

    /// The directory that contains the directories of several experiments.
    pub(crate) fn folder(&self) -> &Path {
        self.out
            .as_deref()
            .unwrap_or(Path::new(record_directory::OUT))
    }

    /// Runs the plan that `given` makes with or without `--quick`, or the missing runs of a record. It returns `None` if only the plan
    /// is asked for.
    ///
    /// `prepare` changes the plan before `--only` and `shard` apply. `command` is the command that can continue the record. `live`
    /// shows the runs.
    pub(crate) fn run(
        &self,
        command: &'static str,
        given: impl FnOnce(bool) -> Result<(GivenScenario, Plan)>,
        prepare: impl FnOnce(Plan) -> Plan,
        shard: Option<(ShardNumber, ShardBy)>,
        live: &mut LiveRuns,
    ) -> Result<Option<FinishedExperiment>, Failure> {
        if let Some(directory) = &self.resume {
            if self.check {
                return self.check_resumed(directory).map(|()| None);
            }
            let (mut record, mut writer) = RecordWriter::resume(directory).or_bad_input()?;
            if record.finished_at.is_some() && !self.redo_invalid {
                note(format_args!("{}: no run is missing", directory.display()));
            }
            let mut plan = measure::read_plan(record.plan()).or_bad_input()?;
            plan.late_budget = self.late_budget.unwrap_or(record.late_budget());
            refuse_files(&plan, writer.path(), self.allowed()).or_bad_input()?;
            let tools = tools(&plan).or_machine()?;
            if let Some(used) = Uses::of_record(&plan, tools.clone()).of_network() {
                note(format_args!(
                    "{}: the experiment {used}",
                    directory.display()
                ));
            }
            if record.finished_at.is_none() || self.redo_invalid {
                writer.go_on(&mut record, machine_facts::collect(tools))?;
                writer.go_on_within(&mut record, plan.late_budget)?;
            }
            return self.finish(command, plan, record, writer, live).map(Some);
        }
        let (given, plan) = given(self.quick).or_bad_input()?;
        let mut plan = prepare(plan);
        plan.late_budget = self.late_budget.unwrap_or(plan.late_budget);
        keep_only(&mut plan, &self.only).or_bad_input()?;
        if let Some(count) = self.repeats {
            scenario::repeat_each(&mut plan, count).or_bad_input()?;
        }
        plan.shard = shard.map(|(number, by)| sharding::of(&plan, number, by));
        live.check(&plan).or_bad_input()?;
        warn(&plan).or_bad_input()?;
        if self.check {
            let tools = tools(&plan).or_machine()?;
            let uses = Uses::of(&plan, Path::new(&given.file), self.allowed(), tools);
            let uses = uses.or_bad_input()?;
            let outline = outline(&plan, None, &RunTimes::default());
            let text = format!("{outline}{uses}");
            crate::cli::show(self.json.as_deref(), &uses, &text, notes::beside())?;
            self.check_machine(&plan)?;
            return warn_of_host(&plan).or_bad_input().map(|()| None);
        }
        let out = self.out.as_deref();
        let directory =
            record_directory::choose(command, out, &record_directory::name(&plan), self.overwrite)
                .or_bad_input()?;
        let tools = tools(&plan).or_machine()?;
        self.testbeds(&plan)?;
        warn_of_host(&plan).or_bad_input()?;
        let head = RecordHead::new(
            given,
            measure::record_plan(&plan),
            machine_facts::collect(tools),
        );
        let replaces = Record::is_in(&directory);
        let writer = match RecordWriter::begin(&directory, &head, self.overwrite) {
            Err(error) if error.is_full() => return Err(error.into()),
            begun => begun.or_bad_input()?,
        };
        clear_reports(&directory, replaces);
        self.finish(command, plan, Record::new(head), writer, live)
            .map(Some)
    }

    /// Prints the missing runs of the record in `directory` and what they would use, and changes nothing.
    fn check_resumed(&self, directory: &Path) -> Result<(), Failure> {
        let find_tools = |plan: &Plan| tools(plan).or_machine();
        let mut rest =
            RestOfRecord::in_directory(directory, self.allowed(), self.redo_invalid, find_tools)?;
        rest.plan.late_budget = self.late_budget.unwrap_or(rest.plan.late_budget);
        let json = self.json.as_deref();
        crate::cli::show(json, &rest.uses, &rest.outline, notes::beside())?;
        self.check_machine(&rest.plan)
    }

    /// Fails if this machine cannot run the plan. It does not touch existing interfaces and hosts.
    fn check_machine(&self, plan: &Plan) -> Result<(), Failure> {
        let mut specs = testbeds(plan);
        let builder = TestbedBuilder::prepare(&specs, self.cpu.into(), plan.late_budget)?;
        specs.retain(|spec| spec.bed.is_own());
        builder.try_out(&specs, plan.seed)
    }

    /// Returns the builder of the test beds of `plan`, after it has set up each of them once.
    fn testbeds(&self, plan: &Plan) -> Result<TestbedBuilder, Failure> {
        let specs = testbeds(plan);
        let builder = TestbedBuilder::prepare(&specs, self.cpu.into(), plan.late_budget)?;
        let builder = builder.with_threads(self.threads.count(), self.threads.cpus());
        builder.try_out(&specs, plan.seed)?;
        Ok(builder.keeping_flows(plan.by_flow))
    }

    /// Runs what `record` is missing of `plan`, and writes the reports beside it.
    fn finish(
        &self,
        command: &'static str,
        plan: Plan,
        mut record: Record,
        mut writer: RecordWriter,
        live: &mut LiveRuns,
    ) -> Result<FinishedExperiment, Failure> {
        say_shard(&plan);
        let builder = self.testbeds(&plan)?;
        let set_up = |case: &Case, seed| builder.set_up(&testbed(case), seed);
        let stop = Stop::on_signals()?;
        let watched = live.watch()?;
        let baseline: &MeasureBaseline = if self.no_baseline {
            &|_, _, _| Ok(None)
        } else {
            &host_baseline::measure
        };
        let measures = Measures {
            set_up: &set_up,
            baseline,
            watch: RunObserver::by(watched.links),
            captures: watched.captures,
        };
        let redo_invalid = self.redo_invalid;
        let directory = writer.path().parent().unwrap_or(Path::new(".")).to_owned();
        let ran = runner::run(
            &measures,
            &plan,
            &mut record,
            &mut writer,
            redo_invalid,
            &stop,
        );
        ran.map_err(|error| match error.downcast_ref() {
            Some(cause) if record::Error::is_full(cause) => anyhow!(
                "{error:#}; when there is space again, `farwire {command} --resume {}` continues",
                quoted(&directory.display().to_string())
            ),
            _ => error,
        })?;
        measures.watch.enter("reports");
        write_reports(&record, &directory)?;
        Ok(FinishedExperiment {
            plan,
            record,
            directory,
            command,
            stop,
        })
    }
}

impl RestOfRecord {
    /// Reads the record in `directory`, and changes nothing. Its instruments may send files below the directory and below those in `also`.
    /// `find_tools` finds the programs that its instruments use.
    ///
    /// # Errors
    /// No record there can be resumed, or it names other files. The errors of `find_tools` are passed on.
    pub(crate) fn in_directory(
        directory: &Path,
        also: &[PathBuf],
        redo_invalid: bool,
        find_tools: impl FnOnce(&Plan) -> Result<BTreeMap<String, String>, Failure>,
    ) -> Result<Self, Failure> {
        let (record, file) = RecordWriter::look(directory).or_bad_input()?;
        let mut plan = measure::read_plan(record.plan()).or_bad_input()?;
        plan.late_budget = record.late_budget();
        refuse_files(&plan, &file, also).or_bad_input()?;
        let uses = Uses::of_record(&plan, find_tools(&plan)?);
        let missing = runner::missing(&plan, &record, redo_invalid);
        let times = RunTimes::of(&plan, &record);
        let text = format!("{}{uses}", outline(&plan, Some(&missing), &times));
        Ok(Self {
            plan,
            uses,
            outline: printable_lines(&text).into_owned(),
        })
    }
}

impl FinishedExperiment {
    /// The path of its report.
    pub(crate) fn page(&self) -> PathBuf {
        self.directory.join(PAGE)
    }

    /// Prints the path of the report. If a signal ended the experiment, it fails with the command that continues.
    pub(crate) fn conclude(&self) -> Result<(), Failure> {
        note(format_args!("report: {}", self.page().display()));
        match self.stop.cause() {
            None => Ok(()),
            Some(cause) => Err(anyhow!(
                "{cause}; the finished runs are kept; continue with `farwire {} --resume {}{}`",
                self.command,
                quoted(&self.directory.display().to_string()),
                self.files_to_allow()
            )
            .into()),
        }
    }

    /// Returns the options that a resumed experiment needs for the files that it sends.
    fn files_to_allow(&self) -> String {
        let folders = uses::folders_sent_from(&self.plan);
        let option =
            |folder: &PathBuf| format!(" --allow-files {}", quoted(&folder.display().to_string()));
        folders.iter().map(option).collect()
    }
}

/// Writes the reports beside a record.
pub(crate) fn write_reports(record: &Record, directory: &Path) -> Result<()> {
    output::write_beside(directory, PAGE, &report::html(record)?)?;
    write_table(record, directory, RUNS, DataRows::Runs)?;
    write_table(record, directory, SAMPLES, DataRows::Samples)
}

/// Writes the rows that count to the file `name` of `directory`.
fn write_table(record: &Record, directory: &Path, name: &str, rows: DataRows) -> Result<()> {
    let write = |file: &File| -> Result<()> {
        let selection = DataSelection {
            rows,
            with_invalid: false,
        };
        let table = DataTable::of(record, selection)?;
        report::write_csv(table, &mut BufWriter::new(file))?;
        Ok(())
    };
    let within = OutputDirectory::open(directory);
    let written = within.map_err(anyhow::Error::from);
    let written = written.and_then(|within| within.replace(name.as_ref(), write));
    written.with_context(|| format!("{}: cannot write", directory.join(name).display()))
}

/// Removes the reports of an earlier record; with `replaced`, also the files of its instruments.
pub(crate) fn clear_reports(directory: &Path, replaced: bool) {
    if replaced {
        let _ = fs::remove_dir_all(directory.join(ARTIFACTS));
    }
    for report in [PAGE, RUNS, SAMPLES] {
        let _ = fs::remove_file(directory.join(report));
    }
}

/// Refuses a record whose instruments send files that lie neither below its directory nor below one of `also`. The user who resumes
/// somebody else's record does not see on the command line which files it sends.
fn refuse_files(plan: &Plan, kept_in: &Path, also: &[PathBuf]) -> Result<()> {
    for (case, instrument, file) in uses::sent(plan) {
        let is_it = named_files::find(kept_in, file, also).and_then(|found| {
            ensure!(
                found == file,
                "{}: not an absolute path without links, as a record has it",
                file.display()
            );
            Ok(())
        });
        is_it.with_context(|| format!("case `{}`: {}: file", case.name, instrument.name))?;
    }
    Ok(())
}

/// Keeps the named cases, and the reference that they are compared with.
pub(crate) fn keep_only(plan: &mut Plan, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    // A name means a case, or all cases that a sweep or a calibration made of it.
    let is_of = |case: &Case, name: &String| {
        let rest = case.name.strip_prefix(name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('[') || rest.starts_with(": "))
    };
    for name in names {
        let known = || plan.cases.iter().map(|case| case.name.as_str());
        ensure!(
            plan.cases.iter().any(|case| is_of(case, name)),
            "--only {name}: no such case; the cases are: {}",
            known().collect::<Vec<_>>().join(", ")
        );
    }
    let reference = plan.reference.clone();
    plan.cases.retain(|case| {
        names.iter().any(|name| is_of(case, name)) || reference.as_ref() == Some(&case.name)
    });
    let kept = |name: &String| plan.cases.iter().any(|case| case.name == *name);
    plan.trends.retain(|trend| trend.cases.iter().all(kept));
    Ok(())
}

/// Prints which shard of the experiment runs here.
fn say_shard(plan: &Plan) {
    if let Some(shard) = &plan.shard {
        note(part(plan, shard));
    }
}

/// Returns the runs of a shard, and about how long they take: "shard 3/16: 12 of 200 runs, about 1 min".
fn part(plan: &Plan, shard: &Shard) -> String {
    let runs = |case: &Case| shard.runs.get(&case.name).map_or(0, Vec::len);
    let (mut own, mut all, mut time) = (0, 0, Duration::ZERO);
    for case in &plan.cases {
        // If the first runs decide how many follow, only those that certainly take place count.
        let sure = runs(case).min(case.repeats.least as usize);
        own += sure;
        all += case.repeats.least as usize;
        time += run_times::estimate(case) * u32::try_from(sure).unwrap_or(u32::MAX);
    }
    match own {
        0 => format!(
            "shard {}: none of the {}",
            shard.number,
            counted(all, "run")
        ),
        _ => format!(
            "shard {}: {own} of {}, about {}",
            shard.number,
            counted(all, "run"),
            progress::about(time)
        ),
    }
}

/// The external tools that the plan uses, with their versions.
fn tools(plan: &Plan) -> Result<BTreeMap<String, String>> {
    let mut tools = BTreeMap::new();
    for instrument in plan.cases.iter().flat_map(|case| &case.instruments) {
        for tool in instrument.args.tools()? {
            tools.insert(tool.path.display().to_string(), tool.version);
        }
    }
    Ok(tools)
}

/// Returns the conditions of a case: "link: delay 10ms".
fn conditions(case: &Case) -> String {
    format!("link: {}", report::link(&case.link))
}

/// Prints side effects of the conditions of the cases that their names do not suggest. An effect of several cases is one line.
pub(crate) fn warn(plan: &Plan) -> Result<()> {
    let mut lines = Vec::new();
    for case in &plan.cases {
        // The links of several clients are alike.
        for (_, link) in case.links(plan.seed)?.into_iter().take(kinds(case)) {
            let own = warnings::of_link(&link.config).into_iter();
            let own = own.chain(warnings::of_rules(&link.rules));
            lines.extend(own.map(|line| (case.name.clone(), line)));
        }
        let time = run_times::known(case).map(Nanos::from);
        let of_time = time.map(|time| warnings::of_time(&case.link, time, "a run takes about"));
        let of_time = of_time.into_iter().flatten();
        lines.extend(of_time.map(|line| (case.name.clone(), line)));
    }
    once_each(lines, "cases").iter().for_each(note);
    Ok(())
}

/// Returns how many of the first links of `case` have conditions that the others do not have: one if the others are other clients'.
fn kinds(case: &Case) -> usize {
    match case.bed.clients() {
        1 => usize::MAX,
        _ => 1,
    }
}

/// Prints which conditions of the cases this machine cannot meet. Call it when the process has the privileges that it will have.
fn warn_of_host(plan: &Plan) -> Result<()> {
    let mut links = Vec::new();
    for case in &plan.cases {
        for (_, link) in case.links(plan.seed)?.into_iter().take(kinds(case)) {
            links.push((&case.name, link.config));
        }
    }
    let delays = links
        .iter()
        .filter_map(|(_, link)| reach::shortest_delay(link));
    let host = Host {
        wake_up: link_conditions::wake_up(delays.min()),
        wire: None,
    };
    let lines = links.iter().flat_map(|(case, link)| {
        let lines = reach::beyond(link, &host).into_iter();
        lines.map(|line| ((*case).clone(), line))
    });
    once_each(lines, "cases").iter().for_each(note);
    Ok(())
}

/// Returns the plan for people: the runs, their instruments and about how long they take. For a record to be resumed, it has only
/// the `missing` repeats of each case. `times` are those of the runs that have ended.
fn outline(plan: &Plan, missing: Option<&BTreeMap<String, Vec<u32>>>, times: &RunTimes) -> String {
    let mut lines = vec![plan.title.clone()];
    let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
    let (mut cases, mut sure) = (0, 0);
    for case in &plan.cases {
        let time = times.expected(case);
        let (runs, [first, last]) = match missing.map(|missing| missing.get(&case.name)) {
            None => {
                let Repeats { least, most, .. } = case.repeats;
                let runs = match least == most {
                    true => counted(least, "run"),
                    false => format!("{least} to {most} runs"),
                };
                (runs, [least, most])
            }
            Some(None) => continue,
            Some(Some(repeats)) => {
                let count = u32::try_from(repeats.len()).unwrap_or(u32::MAX);
                let noun = if count == 1 { "repeat" } else { "repeats" };
                let runs = format!("{noun} {}", sharding::ranges(repeats, " to ", ", "));
                (runs, [count, count])
            }
        };
        least += time * first;
        most += time * last;
        cases += 1;
        sure += first;
        lines.push(format!(
            "{}: {runs}, {} each",
            case.name,
            progress::about(time)
        ));
        lines.push(format!("  {}, TCP {}", conditions(case), case.congestion));
        for instrument in &case.instruments {
            let args = instrument.args.recorded();
            let (name, kind, options) = (&instrument.name, &args.kind, args.options());
            lines.push(format!("  {name}: {kind} {options}").trim_end().to_owned());
        }
    }
    let order = match plan.order {
        Order::Random => format!("in random order (seed {})", plan.seed),
        Order::AsWritten => "in the order of the scenario".to_owned(),
    };
    let time = if least == most {
        progress::about(least)
    } else {
        format!("{} to {}", progress::about(least), progress::about(most))
    };
    lines.push(format!(
        "{}, {} {order}; about {time}, excluding instruments without a set duration",
        counted(cases, "case"),
        counted(sure, "run")
    ));
    lines.extend(plan.shard.as_ref().map(|shard| part(plan, shard)));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::small_record as record;

    fn plan() -> Plan {
        measure::read_plan(record().plan()).unwrap()
    }

    #[test]
    fn only_keeps_the_reference_too() {
        let mut plan = plan();
        keep_only(&mut plan, &["slow".to_owned()]).unwrap();
        assert_eq!((plan.cases.len(), plan.trends.len()), (2, 1));
        keep_only(&mut plan, &["base".to_owned()]).unwrap();
        assert_eq!((plan.cases.len(), plan.trends.len()), (1, 0));
    }

    #[test]
    fn an_unknown_case_is_refused_with_the_known_ones() {
        let error = keep_only(&mut plan(), &["fast".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--only fast: no such case; the cases are: base, slow"
        );
    }

    #[test]
    fn the_outline_has_every_case_and_the_known_time() {
        let text = outline(&plan(), None, &RunTimes::default());
        assert!(text.contains("slow: 2 runs"), "{text}");
        assert!(text.contains("  ping: ping --count=3"), "{text}");
        assert!(
            text.contains("2 cases, 3 runs in random order (seed 1)"),
            "{text}"
        );
    }
}
