//! `farwire fit`: measures a path, writes the link that behaves like it, and compares both.

mod costs;
mod files;
mod held_out;
mod measure;
mod page;
mod proof;
mod show;
mod trains;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use conditions::read::toml_text;
use conditions::{LinkSpec, TraceSpec};
use fit::{Comparison, LinkFit, Origin, PathObservations, plan};
use instruments::failure::{Blame, Failure};
use instruments::output::{self, PAGE, write_beside};
use instruments::{Live, Session};
use jiff::Timestamp;
use model::{Bytes, Nanos};
use netio::stop::Stop;
use record::Measurement;
use report::{PageDrawing, Terminal};

use self::costs::Limits;
use self::files::Divided;
use self::held_out::HeldOut;
use self::measure::Measured;
use self::show::FitResult;
use super::args::headings;
use super::host_watch::HostWatch;
use crate::named_files::NamedFilesArgs;
use crate::notes::{note, warn};
use crate::profile_folders::{self, ProfileFolders};
use crate::{progress, toml_file};

/// Measure a path, write the link that behaves like it, and say how far the two differ
///
/// The far end is `farwire serve`. The path is probed idle, and beside UDP loads that exceed its rate, in each direction. If
/// its rate varies, trains of packets on the idle path show how it serves a short burst. Then another measurement, with TCP
/// loads, runs over the path and through the fitted link in a test bed, and tables compare the two. The path is full for a
/// part of the time: `farwire fit` says beforehand for how long, and how much it sends at most.
/// An iperf3 server, or a host that only answers pings, shows less, and the result says what is missing. If the far end or the
/// budget allows no loads, only the idle path is compared.
///
/// Files are fitted in place of a path: records and JSON measurements of farwire, observations.json of other fits, output of
/// `ping -D`, JSON of irtt, packet logs in CSV, captures of both ends or of pings, and tables of seconds and Mbit/s. Several files are
/// several sessions on one path. The last probes of a file, at most a third, are held out and compared with the link; of a long
/// file, these are as many as --time allows.
#[derive(Args, Debug)]
pub(crate) struct FitArgs {
    /// Name or address of the far end, or files of measurements
    #[arg(value_name = "HOST|FILE", required = true)]
    sources: Vec<String>,
    /// Time of the measurement that is fitted; the comparison takes half of it, and a third but at least 14s, twice
    ///
    /// Time of the measurement that is fitted. The comparison probes the idle path for half of it, and then measures with loads for a
    /// third of it, but at least 14s. It does so over the path and again through the link. Of files, at most a third of the
    /// probes is held out, and at most as many as can be sent through the link in half of it
    #[arg(long, value_name = "TIME", default_value = "3min", value_parser = time)]
    time: Nanos,
    /// Most bytes that all loads together may send
    #[arg(long, value_name = "SIZE", default_value = "500mb")]
    budget: Bytes,
    /// Do not measure again, hold nothing out of files, and compare nothing
    #[arg(long)]
    no_proof: bool,
    /// Do not fit: compare the path to HOST with the link of this file
    #[arg(long, value_name = "LINK.toml", conflicts_with_all = ["no_proof", "profile"])]
    against: Option<PathBuf>,
    /// Directory for link.toml, which --link takes, the reports and the measurements [default: fit-HOST, or against-HOST]
    #[arg(long, value_name = "DIR", help_heading = headings::OUTPUT)]
    out: Option<PathBuf>,
    /// Also add the link to your profiles under NAME
    #[arg(long, value_name = "NAME", help_heading = headings::OUTPUT)]
    profile: Option<String>,
    /// Write the result as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

/// The shortest and the longest time of the measurement.
const TIMES: [Duration; 2] = [Duration::from_secs(24), Duration::from_secs(3600)];
/// The time in seconds for which lost probes are awaited.
const WAITING_S: f64 = 30.0;
/// The file of the observations of a fit, which can be fitted again.
const OBSERVATIONS: &str = "observations.json";
/// The files of the measurements that are compared, that of the path and that of the link.
const COMPARED: [&str; 2] = ["path.json", "link.json"];
/// The end of the statement if the machine may have spoilt a measurement.
const DOUBTED: &str =
    " This machine may have spoilt the measurements, as the warnings say: measure again.";

/// The sessions on the path, and what is known beside them.
struct Sessions {
    /// All that was observed.
    all: Vec<PathObservations>,
    /// The part of it that is fitted, and the measurement that is held out.
    divided: Divided,
    /// The reasons why these measurements may not describe the path.
    doubts: Vec<String>,
}

impl Sessions {
    /// Returns the parameters that they could not learn, each with its reason; of several sessions, also with its source.
    fn lacks(&self, sources: &[String]) -> Vec<String> {
        let each = sources.iter().zip(&self.all);
        let named = each.flat_map(|(source, observed)| {
            observed.lacks.iter().map(move |lack| match sources {
                [_] => lack.clone(),
                _ => format!("{source}: {lack}"),
            })
        });
        named.collect()
    }
}

impl FitArgs {
    /// Measures or reads, fits, writes and compares. The exit code is 0 if the link was written.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let limits = Limits {
            time_s: Duration::from(self.time).as_secs_f64(),
            budget: self.budget.0 as f64,
            with_proof: !self.no_proof,
        };
        if let Some(link) = &self.against {
            return self.run_against(link, &limits);
        }
        let out = self.out_or("fit");
        // Files are read before the directory is created, and a path is measured after it.
        let files = self.files().or_bad_input()?;
        let read = files.map(|files| read(&files, &limits));
        let read = read.transpose().or_bad_input()?;
        let places = Places::check(&out, self.profile.as_deref()).or_bad_input()?;
        let is_measured = read.is_none();
        let sessions = match read {
            Some(sessions) => sessions,
            None => self.measure(&limits)?,
        };
        let lacks = sessions.lacks(&self.sources);
        let Divided { fitted, held_out } = &sessions.divided;
        let fits: Vec<LinkFit> = fitted.iter().map(LinkFit::of).collect();
        let found = LinkFit::combined(&fits).filter(|found| !found.is_empty());
        let found = found.with_context(|| self.nothing(&lacks))?;
        let (name, date) = (self.sources.join(", "), today());
        let origin = match is_measured {
            true => Origin::of_path(&name, &date),
            false => Origin::of_files(&name, &date, &sessions.all),
        };
        let link = found.to_toml(&origin);
        let spec: LinkSpec = toml_text(&link).context("the fitted link")?;
        spec.check().context("the fitted link")?;
        places.write(&link)?;
        if let [observed] = sessions.all.as_slice() {
            write_beside(&out, OBSERVATIONS, &output::json(observed)?)?;
        }
        let mut result = FitResult {
            sources: self.sources.clone(),
            against: None,
            date,
            parameters: LinkFit::combined_parameters(&fits),
            lacks,
            held_out: held_out.as_ref().ok().map(|one| one.description.clone()),
            comparison: None,
            not_compared: None,
            loads_not_compared: None,
            doubts: sessions.doubts,
            link,
        };
        let drawings = compare(&out, &places.link, held_out, &mut result)?;
        self.write(&out, &result, drawings)?;
        places.announce(self.profile.as_deref());
        Ok(ExitCode::SUCCESS)
    }

    /// Compares the path with a link that exists. The exit code is 0 if they were compared.
    fn run_against(&self, link: &Path, limits: &Limits) -> Result<ExitCode, Failure> {
        let spec = toml_file::read_link(link, &NamedFilesArgs::default().files()).or_bad_input()?;
        if self.files().or_bad_input()?.is_some() {
            return Err(Failure::bad_input(
                "--against: name a far end in place of files, which have no path to measure",
            ));
        }
        let out = self.out_or("against");
        Places::check(&out, None).or_bad_input()?;
        let fitted_s = plan::probed_s(limits.time_s);
        self.announce(limits, fitted_s, limits.proof_loaded_s());
        let with_trains = has_light_load(&spec);
        let (held_out, doubts) = self.on_path(|path| path.only_hold_out(limits, with_trains))?;
        let mut result = FitResult {
            sources: self.sources.clone(),
            against: Some(link.display().to_string()),
            date: today(),
            parameters: Vec::new(),
            lacks: Vec::new(),
            held_out: None,
            comparison: None,
            not_compared: None,
            loads_not_compared: None,
            doubts,
            link: toml_file::text_of(link)?,
        };
        let drawings = compare(&out, link, &held_out, &mut result)?;
        self.write(&out, &result, drawings)?;
        Ok(super::exit_code(result.comparison.is_some()))
    }

    /// Writes the result to its files, and shows it.
    fn write(&self, out: &Path, result: &FitResult, drawings: Vec<PageDrawing>) -> Result<()> {
        write_beside(out, "fit.json", &output::json(result)?)?;
        write_beside(out, "report.txt", &result.text(Terminal::NONE))?;
        let page = result.page(drawings).html().context(PAGE)?;
        write_beside(out, PAGE, &page)?;
        let text = result.text(super::terminal());
        super::show(self.json.as_deref(), result, &text, io::sink())?;
        if result.comparison.is_some() {
            let [path, link] = COMPARED.map(|name| out.join(name));
            note(format_args!(
                "farwire: the measurements that were compared are {} and {}",
                path.display(),
                link.display()
            ));
        }
        Ok(())
    }

    /// Returns the files that are fitted, or `None` for a far end.
    fn files(&self) -> Result<Option<Vec<&Path>>> {
        let paths: Vec<&Path> = self.sources.iter().map(Path::new).collect();
        let Some(missing) = paths.iter().find(|path| !path.exists()) else {
            return Ok(Some(paths));
        };
        ensure!(
            paths.len() == 1,
            "{}: there is no such file: name one far end, or files of measurements",
            missing.display()
        );
        Ok(None)
    }

    /// Measures the path to the far end.
    fn measure(&self, limits: &Limits) -> Result<Sessions, Failure> {
        self.announce(
            limits,
            limits.time_s,
            plan::full_s(limits.time_s) + limits.proof_loaded_s(),
        );
        let began_on = today();
        let (measured, doubts) = self.on_path(|path| path.measure(limits))?;
        let Measured {
            mut observed,
            held_out,
        } = measured;
        observed.measured_on = Some(began_on);
        Ok(Sessions {
            divided: Divided {
                fitted: vec![observed.clone()],
                held_out,
            },
            all: vec![observed],
            doubts,
        })
    }

    /// Measures on the path to the far end. Returns also the reasons why the measurements may not describe it, and prints
    /// them.
    fn on_path<T>(
        &self,
        take: impl FnOnce(&measure::Path<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Vec<String>), Failure> {
        let session = Session {
            stop: Stop::on_signals()?,
            live: Live::quiet(),
            ..Session::default()
        };
        let host = self.sources.first().context("no far end")?;
        let watch = HostWatch::begin()?;
        let measured = take(&measure::Path::find(host, &session)?)?;
        let doubts = watch.end();
        doubts.iter().for_each(warn);
        Ok((measured, doubts))
    }

    /// Returns the error if nothing was learnt.
    fn nothing(&self, lacks: &[String]) -> String {
        let sources = self.sources.join(", ");
        match lacks {
            [] => format!("{sources}: the measurements show neither a delay nor a rate"),
            lacks => format!("{sources}: not learnt: {}", lacks.join("; ")),
        }
    }

    /// Returns the directory of the result, whose usual name begins with this word.
    fn out_or(&self, word: &str) -> PathBuf {
        let usual = || self.usual_directory(word);
        self.out.clone().unwrap_or_else(usual)
    }

    fn usual_directory(&self, word: &str) -> PathBuf {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        let first = self.sources.first().map(Path::new);
        let name = first.and_then(Path::file_name).unwrap_or_default();
        let name = name.to_string_lossy();
        let name = name
            .chars()
            .map(|one| if is_plain(one) { one } else { '-' });
        format!("{word}-{}", name.collect::<String>()).into()
    }

    /// Says what the measurement costs: `before_s` seconds before the comparison, and `full_s` seconds, with the comparison,
    /// during which the path is full.
    fn announce(&self, limits: &Limits, before_s: f64, full_s: f64) {
        let host = self.sources.first().map_or("", String::as_str);
        let (proof_s, full_s) = if limits.with_proof {
            (limits.proof_s(), full_s)
        } else {
            (0.0, full_s - limits.proof_loaded_s())
        };
        let about = |seconds: f64| progress::about(Duration::from_secs_f64(seconds));
        note(format_args!(
            "farwire: fit: this takes {} on a short path, during {} of which the path to {host} is full; the loads send at most {} MB",
            about(before_s + WAITING_S + 2.0 * proof_s),
            about(full_s),
            self.budget.0.div_ceil(1_000_000)
        ));
    }
}

/// Returns whether a link serves a short burst otherwise than a full load.
fn has_light_load(link: &LinkSpec) -> bool {
    let layers = [&link.both, &link.up, &link.down].into_iter();
    let mut traces = layers.filter_map(|layer| layer.get::<TraceSpec>());
    traces.any(|trace| trace.light.is_some())
}

/// Returns the day in UTC, as 2026-11-27.
fn today() -> String {
    fit::day_of(Timestamp::now().as_second()).unwrap_or_default()
}

/// Reads the sessions of files, and holds a part of their probes out.
fn read(files: &[&Path], limits: &Limits) -> Result<Sessions> {
    let all = files::read(files)?;
    let divided = files::divide(&all, limits);
    if let Ok(HeldOut {
        description, plan, ..
    }) = &divided.held_out
    {
        note(format_args!(
            "farwire: fit: {description} are held out; to send as many through the link takes {}",
            progress::about(plan.count * plan.interval)
        ));
    }
    Ok(Sessions {
        all,
        divided,
        doubts: Vec::new(),
    })
}

/// Measures through the link, compares the path with it, and adds the comparison to the result, or the reason why there is
/// none. Writes both measurements. Returns the drawings of both.
fn compare(
    out: &Path,
    link: &Path,
    held_out: &Result<HeldOut, String>,
    result: &mut FitResult,
) -> Result<Vec<PageDrawing>> {
    let [of_path, of_link] = COMPARED;
    let held_out = match held_out {
        Ok(held_out) => held_out,
        Err(cause) => {
            result.not_compared = Some(cause.clone());
            return Ok(Vec::new());
        }
    };
    write_beside(out, of_path, &output::json(&held_out.measurement)?)?;
    result.loads_not_compared = held_out.plan.loads_s.as_ref().err().cloned();
    let replay = match proof::measure(link, &held_out.plan) {
        Ok(replay) => replay,
        Err(error) => {
            result.not_compared = Some(format!("{error:#}"));
            return Ok(Vec::new());
        }
    };
    write_beside(out, of_link, &output::json(&replay.measurement)?)?;
    replay.doubts.iter().for_each(warn);
    result.doubts.extend(replay.doubts);
    let measured = [&held_out.measurement, &replay.measurement];
    result.comparison = Some(comparison(measured, &result.doubts));
    Ok(page::drawings(measured))
}

/// Compares the measurement of the path with that of the link. The statement says if there are doubts about them.
fn comparison([path, link]: [&Measurement; 2], doubts: &[String]) -> Comparison {
    let mut found = Comparison::of(path, link);
    if !doubts.is_empty() {
        found.statement += DOUBTED;
    }
    found
}

/// The files of the link.
struct Places {
    /// The link in the directory of the result.
    link: PathBuf,
    /// The file of the profile.
    profile: Option<PathBuf>,
}

impl Places {
    /// Checks before the measurement that the files can be written.
    fn check(out: &Path, profile: Option<&str>) -> Result<Self> {
        let profile = profile.map(place_of_profile).transpose()?;
        let places = Self {
            link: out.join("link.toml"),
            profile,
        };
        for file in places.all() {
            ensure!(
                !file.exists(),
                "{}: the file exists: choose another place or name, or remove it",
                file.display()
            );
        }
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        Ok(places)
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.link].into_iter().chain(&self.profile)
    }

    fn write(&self, text: &str) -> Result<()> {
        for file in self.all() {
            let folder = file.parent().unwrap_or(Path::new(""));
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            write_beside(folder, file.file_name().unwrap_or_default(), text)?;
        }
        Ok(())
    }

    /// Says how to use the link.
    fn announce(&self, profile: Option<&str>) {
        note(format_args!(
            "farwire: use the link with --link {}",
            self.link.display()
        ));
        if let Some(name) = profile {
            note(format_args!(
                "farwire: or with --profile {name}, or by its button on the page of a link that then starts with --listen"
            ));
        }
    }
}

/// Returns the file of a new profile.
fn place_of_profile(name: &str) -> Result<PathBuf> {
    profile_folders::check_new_name(name)?;
    let folders = ProfileFolders::usual(None);
    let folder = folders.for_new();
    let folder = folder.context("--profile: there is no folder for profiles: set HOME")?;
    Ok(folder.join(format!("{name}.toml")))
}

fn time(text: &str) -> Result<Nanos> {
    let time: Nanos = text.parse()?;
    let [least, most] = TIMES;
    ensure!(
        (least..=most).contains(&Duration::from(time)),
        "must be from {}s to {}s",
        least.as_secs(),
        most.as_secs()
    );
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_says_that_the_machine_may_have_spoilt_it() {
        let nothing = Measurement::default();
        let statement = |doubts: &[String]| comparison([&nothing, &nothing], doubts).statement;
        assert!(!statement(&[]).contains("This machine"));
        let doubted = statement(&["the host was starved of CPU".to_owned()]);
        assert!(doubted.ends_with(DOUBTED), "{doubted}");
    }

    #[test]
    fn a_light_load_of_either_direction_or_of_both_is_found() {
        let full = r#"file = "full", content = "1\n2\n""#;
        let light = r#"light = "light", light_content = "0 20 0\n10 20 0\n20 20 0\n""#;
        let with_light = format!("trace = {{ {full}, {light} }}");
        let found = |text: &str| has_light_load(&toml_text(text).unwrap());
        assert!(found(&with_light));
        assert!(found(&format!("[down]\n{with_light}")));
        assert!(!found(&format!("[up]\ntrace = {{ {full} }}")));
    }

    #[test]
    fn doubts_are_in_the_report_and_in_the_json() {
        let result = FitResult {
            sources: vec!["192.0.2.1".to_owned()],
            against: None,
            date: "2026-11-27".to_owned(),
            parameters: Vec::new(),
            lacks: Vec::new(),
            held_out: Some("the last 100 of 300 idle probes".to_owned()),
            comparison: None,
            not_compared: None,
            loads_not_compared: Some("the far end answers pings".to_owned()),
            doubts: vec!["the host was starved of CPU".to_owned()],
            link: String::new(),
        };
        let text = result.text(Terminal::NONE);
        assert!(
            text.contains("warning: the host was starved of CPU"),
            "{text}"
        );
        assert!(text.contains("loads were not compared"), "{text}");
        let held_out = "held out: the last 100 of 300 idle probes";
        assert!(text.contains(held_out), "{text}");
        let json = output::json(&result).unwrap();
        assert!(json.contains("the host was starved of CPU"), "{json}");
        let page = result.page(Vec::new()).html().unwrap();
        assert!(page.contains("the host was starved of CPU"), "{page}");
    }
}
