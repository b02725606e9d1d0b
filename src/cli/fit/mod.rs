//! `farwire fit`: measures a path, writes the link that behaves like it, and compares both.

mod measure;
mod page;
mod proof;
mod show;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use conditions::LinkSpec;
use conditions::read::toml_text;
use fit::{Comparison, LinkFit, Origin, PathObservations, plan};
use instruments::failure::{Blame, Failure};
use instruments::output::{self, PAGE, write_beside};
use instruments::{Live, Session};
use jiff::Timestamp;
use model::{Bytes, Nanos};
use netio::stop::Stop;
use record::{Measurement, Record};
use report::Terminal;

use self::measure::{Limits, Measured};
use self::show::FitResult;
use super::args::headings;
use super::host_watch::HostWatch;
use crate::notes::{note, warn};
use crate::profile_folders::{self, ProfileFolders};
use crate::progress;

/// Measure a path, write the link that behaves like it, and say how far the two differ
///
/// The far end is `farwire serve`. The path is probed idle, and beside UDP loads that exceed its rate, in each direction. Then
/// another measurement, with TCP loads, runs over the path and through the fitted link in a test bed, and tables compare
/// the two. The path is full for a part of the time: `farwire fit` says beforehand for how long, and how much it sends at most.
/// An iperf3 server, or a host that only answers pings, shows less, and the result says what is missing.
///
/// Files are fitted in place of a path: records and JSON measurements of farwire, observations.json of other fits, output of
/// `ping -D`, JSON of irtt, packet logs in CSV, captures of both ends or of pings, and tables of seconds and Mbit/s. Several files are
/// several sessions on one path.
#[derive(Args, Debug)]
pub(crate) struct FitArgs {
    /// Name or address of the far end, or files of measurements
    #[arg(value_name = "HOST|FILE", required = true)]
    sources: Vec<String>,
    /// Time of the measurement that is fitted; the comparison takes a third of it, at least 14s, twice
    #[arg(long, value_name = "TIME", default_value = "3min", value_parser = time)]
    time: Nanos,
    /// Most bytes that all loads together may send
    #[arg(long, value_name = "SIZE", default_value = "500mb")]
    budget: Bytes,
    /// Do not measure again, and compare nothing
    #[arg(long)]
    no_proof: bool,
    /// Directory for link.toml, which --link takes, report.html, report.txt, fit.json and observations.json [default: fit-HOST]
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
/// The words by which a record is recognised.
const RECORD: &str = "\"farwire-record\"";

/// The sessions that are fitted, and what is known beside them.
struct Sessions {
    all: Vec<PathObservations>,
    /// The measurement that is held out, or the reason why there is none.
    held_out: Result<Measurement, String>,
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
        let out = self.out.clone().unwrap_or_else(|| self.usual_directory());
        let limits = Limits {
            time_s: Duration::from(self.time).as_secs_f64(),
            budget: self.budget.0 as f64,
            with_proof: !self.no_proof,
        };
        // Files are read before the directory is created, and a path is measured after it.
        let files = self.files().or_bad_input()?;
        let read = files.map(|files| read(&files)).transpose().or_bad_input()?;
        let places = Places::check(&out, self.profile.as_deref()).or_bad_input()?;
        let is_measured = read.is_none();
        let sessions = match read {
            Some(sessions) => sessions,
            None => self.measure(&limits)?,
        };
        let lacks = sessions.lacks(&self.sources);
        let fits: Vec<LinkFit> = sessions.all.iter().map(LinkFit::of).collect();
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
        let compared = compare(&sessions.held_out, &places.link, limits.proof_s());
        let measured = sessions.held_out.as_ref().ok().zip(compared.as_ref().ok());
        let drawings =
            measured.map_or_else(Vec::new, |(path, (link, _))| page::drawings([path, link]));
        let result = FitResult {
            sources: self.sources.clone(),
            date,
            parameters: LinkFit::combined_parameters(&fits),
            lacks,
            not_compared: compared.as_ref().err().cloned(),
            comparison: compared.ok().map(|(_, comparison)| comparison),
            link,
        };
        write_beside(&out, "fit.json", &output::json(&result)?)?;
        write_beside(&out, "report.txt", &result.text(Terminal::NONE))?;
        let page = result.page(drawings).html().context(PAGE)?;
        write_beside(&out, PAGE, &page)?;
        let text = result.text(super::terminal());
        super::show(self.json.as_deref(), &result, &text, io::sink())?;
        places.announce(self.profile.as_deref());
        Ok(ExitCode::SUCCESS)
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
        let session = Session {
            stop: Stop::on_signals()?,
            live: Live::quiet(),
            ..Session::default()
        };
        let host = self.sources.first().context("no far end")?;
        self.announce(host, limits);
        let watch = HostWatch::begin()?;
        let measured = measure::Path::find(host, &session)?.measure(limits)?;
        for cause in watch.end() {
            warn(cause);
        }
        let Measured {
            mut observed,
            held_out,
        } = measured;
        observed.measured_on = Some(today());
        Ok(Sessions {
            all: vec![observed],
            held_out,
        })
    }

    /// Returns the error if nothing was learnt.
    fn nothing(&self, lacks: &[String]) -> String {
        let sources = self.sources.join(", ");
        match lacks {
            [] => format!("{sources}: the measurements show neither a delay nor a rate"),
            lacks => format!("{sources}: not learnt: {}", lacks.join("; ")),
        }
    }

    fn usual_directory(&self) -> PathBuf {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        let first = self.sources.first().map(Path::new);
        let name = first.and_then(Path::file_name).unwrap_or_default();
        let name = name.to_string_lossy();
        let name = name
            .chars()
            .map(|one| if is_plain(one) { one } else { '-' });
        format!("fit-{}", name.collect::<String>()).into()
    }

    /// Says what the measurement costs.
    fn announce(&self, host: &str, limits: &Limits) {
        let proof_s = if limits.with_proof {
            limits.proof_s()
        } else {
            0.0
        };
        let about = |seconds: f64| progress::about(Duration::from_secs_f64(seconds));
        note(format_args!(
            "farwire: fit: this takes {} on a short path, during {} of which the path to {host} is full; the loads send at most {} MB",
            about(limits.time_s + WAITING_S + 2.0 * proof_s),
            about(plan::full_s(limits.time_s) + proof_s),
            self.budget.0.div_ceil(1_000_000)
        ));
    }
}

/// Returns the day in UTC, as 2026-11-27.
fn today() -> String {
    fit::day_of(Timestamp::now().as_second()).unwrap_or_default()
}

/// Reads the observations of files, one session each.
fn read(files: &[&Path]) -> Result<Sessions> {
    let read_one = |file: &&Path| {
        let file = match file.join(OBSERVATIONS) {
            observations if observations.exists() => observations,
            _ => file.to_path_buf(),
        };
        let named = || file.display().to_string();
        if file.is_dir() {
            let record = Record::read(&file)?;
            return fit::read_record(&record).with_context(named);
        }
        let bytes = fs::read(&file).with_context(named)?;
        if fit::is_capture(&bytes) {
            return fit::read_capture(&bytes).with_context(named);
        }
        let text = String::from_utf8(bytes).with_context(named)?;
        // The first line of a record is JSON that says so.
        match text
            .lines()
            .next()
            .is_some_and(|head| head.contains(RECORD))
        {
            true => fit::read_record(&Record::read(&file)?).with_context(named),
            false => fit::read(&text).with_context(named),
        }
    };
    let all: Result<Vec<PathObservations>> = files.iter().map(read_one).collect();
    Ok(Sessions {
        all: all?,
        held_out: Err("files have no path to measure again".to_owned()),
    })
}

/// Measures through the link, and compares the path with it. The error is the reason why they were not compared.
fn compare(
    held_out: &Result<Measurement, String>,
    link: &Path,
    lasts_s: f64,
) -> Result<(Measurement, Comparison), String> {
    let of_path = held_out.as_ref().map_err(Clone::clone)?;
    let through_link = proof::measure(link, lasts_s).map_err(|error| format!("{error:#}"))?;
    let comparison = Comparison::of(of_path, &through_link);
    Ok((through_link, comparison))
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
