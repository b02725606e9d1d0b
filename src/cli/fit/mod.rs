//! `farwire fit`: measures a path, writes the link that behaves like it, and compares both.

mod measure;
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
use fit::{Comparison, LinkFit, Origin};
use instruments::failure::{Blame, Failure};
use instruments::{Live, Session, output};
use jiff::Timestamp;
use model::{Bytes, Nanos};
use netio::stop::Stop;
use record::lateness::LateBudget;

use self::measure::{Limits, Measured};
use self::show::FitResult;
use super::args::headings;
use super::exec::SERVER_VARIABLE;
use crate::notes::{note, warn};
use crate::profile_folders::{self, ProfileFolders};
use crate::progress;
use crate::testbed::StallWatch;

/// Measure a path, write the link that behaves like it, and say how far the two differ
///
/// The far end is `farwire serve`. The path is probed idle, and beside UDP loads that exceed its rate, in each direction. Then
/// another measurement, with TCP loads, runs over the path and through the fitted link in a test bed, and a table compares
/// the two. The path is full for a part of the time: `farwire fit` says beforehand for how long, and how much it sends at most.
#[derive(Args, Debug)]
pub(crate) struct FitArgs {
    /// Name or address of the far end
    host: String,
    /// Time of the measurement that is fitted; the comparison takes a third of it, at least 14s, twice
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = time)]
    time: Nanos,
    /// Most bytes that all loads together may send
    #[arg(long, value_name = "SIZE", default_value = "500mb")]
    budget: Bytes,
    /// Do not measure again, and compare nothing
    #[arg(long)]
    no_proof: bool,
    /// Directory for link.toml, which --link takes, and fit.json [default: fit-HOST]
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
const TIMES: [Duration; 2] = [Duration::from_secs(16), Duration::from_secs(3600)];
/// The part of the time in which the path is full.
const FULL_PART: f64 = 0.7;

impl FitArgs {
    /// Measures, fits, writes and compares. The exit code is 0 if the link was written.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let out = self.out.clone().unwrap_or_else(|| self.usual_directory());
        let places = Places::check(&out, self.profile.as_deref()).or_bad_input()?;
        let session = Session {
            stop: Stop::on_signals()?,
            live: Live::quiet(),
            ..Session::default()
        };
        let limits = Limits {
            time_s: Duration::from(self.time).as_secs_f64(),
            budget: self.budget.0 as f64,
            with_proof: !self.no_proof,
        };
        self.announce(&limits);
        let host = match std::env::var_os(SERVER_VARIABLE) {
            // `farwire exec` watches the host itself.
            Some(_) => None,
            None => Some(StallWatch::begin(LateBudget::DEFAULT)?),
        };
        let path = measure::Path::find(&self.host, &session)?;
        let measured = path.measure(&limits)?;
        if let Some(cause) = host.and_then(|host| host.spoilt()) {
            warn(format_args!("{cause}: the fit may describe this machine instead of the network"));
        }
        let origin = Origin {
            name: self.host.clone(),
            date: Timestamp::now().to_string().chars().take(10).collect(),
        };
        let found = LinkFit::of(&measured.observed).context("no probe on the idle path was answered")?;
        let link = found.to_toml(&origin);
        let spec: LinkSpec = toml_text(&link).context("the fitted link")?;
        spec.check().context("the fitted link")?;
        places.write(&link)?;
        let compared = compare(&measured, &places.link);
        let result = FitResult {
            source: origin.name,
            date: origin.date,
            parameters: found.parameters(),
            lacks: measured.lacks,
            not_compared: compared.as_ref().err().cloned(),
            comparison: compared.ok(),
            link,
        };
        output::write_json(&out.join("fit.json"), &result)?;
        let text = result.text(super::terminal());
        super::show(self.json.as_deref(), &result, &text, io::sink())?;
        places.announce(self.profile.as_deref());
        Ok(ExitCode::SUCCESS)
    }

    fn usual_directory(&self) -> PathBuf {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        let host = self.host.chars();
        let host: String = host.map(|one| if is_plain(one) { one } else { '-' }).collect();
        format!("fit-{host}").into()
    }

    /// Says what the measurement costs.
    fn announce(&self, limits: &Limits) {
        let proof_s = if limits.with_proof { limits.proof_s() } else { 0.0 };
        let about = |seconds: f64| progress::about(Duration::from_secs_f64(seconds));
        note(format_args!(
            "farwire: fit: this takes {}, during {} of which the path to {} is full; the loads send at most {} MB",
            about(1.3 * limits.time_s + 2.0 * proof_s),
            about(FULL_PART * limits.time_s + proof_s),
            self.host,
            self.budget.0 / 1_000_000
        ));
    }
}

/// Compares the path with the link. The error is the reason why they were not compared.
fn compare(measured: &Measured, link: &Path) -> Result<Comparison, String> {
    let of_path = measured.held_out.as_ref().map_err(Clone::clone)?;
    let through_link = proof::measure(link, measured.held_out_s);
    let through_link = through_link.map_err(|error| format!("{error:#}"))?;
    Ok(Comparison::of(of_path, &through_link))
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
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            }
            output::write(Some(file), text)?;
        }
        Ok(())
    }

    /// Says how to use the link.
    fn announce(&self, profile: Option<&str>) {
        note(format_args!("farwire: use the link with --link {}", self.link.display()));
        if let Some(name) = profile {
            note(format_args!("farwire: or with --profile {name}"));
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
