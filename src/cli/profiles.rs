//! `farwire profiles`: lists the profiles of networks, and makes and checks those that a user writes.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use conditions::{LinkSpec, PROFILES, unfounded};
use report::{Terminal, hanging};
use serde::Serialize;

use super::args::link_conditions::{ConditionsArgs, ProfileName};
use super::profile_line::{FirstMinute, ProfileLine};
use crate::notes::{note, warn};
use crate::profile_folders::{self, ProfileFile, ProfileFolders};
use crate::toml_file;
use instruments::failure::{Blame, Failure};
use instruments::output;

/// List the profiles of networks that `--profile NAME` uses, or print, make or check one
///
/// A profile is a file of conditions. It says where each of its numbers was published, or that it is assumed. The list has the rates, the
/// round trip and the loss of each, and on a terminal a picture of its download rate in the first minute. farwire looks for a name in the
/// folder of --profiles, in ./profiles, in ~/.config/farwire/profiles, and among the profiles that ship with farwire. In a link file or a
/// scenario, `profile = "NAME"` uses a profile too.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProfilesArgs {
    #[command(subcommand)]
    command: Option<ProfilesCommand>,
    /// Print the file of this profile
    #[arg(value_parser = ProfileName, hide_possible_values = true)]
    name: Option<String>,
    /// Look for profiles in DIR first, before ./profiles and those that ship
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// Write names, figures and conditions as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ProfilesCommand {
    New(Box<NewArgs>),
    Check(CheckArgs),
}

/// Make a profile from conditions, or from a link file
///
/// farwire writes the file into the folder of --profiles; without that option into ./profiles if it exists, else into
/// ~/.config/farwire/profiles. With --profile, the new profile builds on the one of that name. Every number is marked as assumed: name your sources in the file, and check it with
/// `farwire profiles check`.
#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// Name of the profile
    name: String,
    /// Description in one line [default: the conditions]
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    link: ConditionsArgs,
}

/// Check that profiles can be read and that every number has a source or is marked as assumed
///
/// The exit code is 1 if a profile cannot be read, or if a number has neither a source nor the word `assumed` in the comment behind it. A
/// source is a line `# [NAME] who, "title", year: what was measured`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Profiles to check [default: all that do not ship with farwire]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Look for profiles in DIR first, before ./profiles
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// Write the results as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A profile, for JSON.
#[derive(Serialize)]
struct Listed {
    name: String,
    about: String,
    /// Its file; absent if it ships with farwire.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The averages of its rates, delays and losses in the first minute.
    first_minute: FirstMinute,
    conditions: LinkSpec,
}

/// The result of a check.
#[derive(Serialize)]
struct Checked {
    name: String,
    file: PathBuf,
    /// The problems, each with its file and line. A profile without any is right.
    problems: Vec<String>,
}

/// The column in which conditions begin.
const INDENT: usize = 4;
/// Behind a number of a new profile.
const ASSUMED: &str = "  # assumed";

impl ProfilesArgs {
    /// Prints the list, or the file of one.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match &self.command {
            Some(ProfilesCommand::New(new)) => return new.run(),
            Some(ProfilesCommand::Check(check)) => return check.run(),
            None => {}
        }
        let json = self.json.as_deref();
        let folders = ProfileFolders::usual(self.profiles.as_deref());
        match &self.name {
            Some(name) => {
                let (one, text) = Listed::named(name, &folders).or_bad_input()?;
                super::show(json, &one, &text, io::sink())
            }
            None => {
                let all = Listed::all(&folders)?;
                let text = list(&all, super::terminal(), io::stdout().is_terminal())?;
                super::show(json, &all, &text, io::sink())
            }
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Listed {
    /// Returns a profile and the text of its file.
    fn named(name: &str, folders: &ProfileFolders) -> Result<(Self, String)> {
        match folders.find(name)? {
            Some(own) => Ok((Self::own(&own, folders)?, own.text)),
            None => {
                let shipped = profile_folders::shipped(name, folders)?;
                Ok((Self::shipped(shipped)?, shipped.text.to_owned()))
            }
        }
    }

    fn own(file: &ProfileFile, folders: &ProfileFolders) -> Result<Self> {
        let conditions = toml_file::read_profile(&file.name, folders)?;
        Ok(Self {
            name: file.name.clone(),
            about: file.about().to_owned(),
            file: Some(file.path.clone()),
            first_minute: ProfileLine::of(&conditions)?.averages(),
            conditions,
        })
    }

    fn shipped(profile: conditions::LinkProfile) -> Result<Self> {
        let conditions = profile.conditions();
        Ok(Self {
            name: profile.name.to_owned(),
            about: profile.about().to_owned(),
            file: None,
            first_minute: ProfileLine::of(&conditions)?.averages(),
            conditions,
        })
    }

    /// Returns all profiles by name. One of the user's that is wrong is left out, with a warning.
    fn all(folders: &ProfileFolders) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let own = folders.all()?;
        for file in &own {
            match Self::own(file, folders) {
                Ok(listed) => all.push(listed),
                Err(error) => warn(format_args!("profile {}: {error:#}", file.name)),
            }
        }
        let is_hidden = |name: &str| own.iter().any(|file| file.name == name);
        let shipped = PROFILES.iter().filter(|shipped| !is_hidden(shipped.name));
        for profile in shipped {
            all.push(Self::shipped(*profile)?);
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }
}

/// Returns the name, the description, the file and the figures of each profile, with a picture of its rate if `pictures` is true.
fn list(all: &[Listed], terminal: Terminal, pictures: bool) -> Result<String> {
    let one = |listed: &Listed| {
        let indent = " ".repeat(INDENT);
        let figures = ProfileLine::of(&listed.conditions)?.text(pictures);
        let mut text = match listed.about.as_str() {
            "" => listed.name.clone(),
            about => format!("{}: {about}", listed.name),
        };
        if let Some(file) = &listed.file {
            write!(text, "\n{indent}{}", file.display())?;
        }
        write!(text, "\n{indent}{figures}")?;
        Ok(hanging(&text, terminal, INDENT))
    };
    all.iter().map(one).collect()
}

impl NewArgs {
    /// Writes the file.
    fn run(&self) -> Result<ExitCode, Failure> {
        profile_folders::check_new_name(&self.name).or_bad_input()?;
        let whole = self.link.to_spec().or_bad_input()?;
        let own = self.link.without_profile().or_bad_input()?;
        if whole == LinkSpec::default() {
            return Err(Failure::bad_input(
                "no conditions: give some, such as --delay 20ms, or a file with --link, or a profile with --profile",
            ));
        }
        let about = match &self.about {
            Some(about) => about.clone(),
            None => crate::live::in_force(&whole),
        };
        let text = file_of(&about, self.link.profile(), &own)?;
        let folders = self.link.named_files().profiles;
        let folder = folders
            .for_new()
            .context("there is no folder for the new profile: name one with --profiles DIR")
            .or_bad_input()?;
        let path = folder.join(format!("{}.toml", self.name));
        self.write(&path, &text).or_bad_input()?;
        note(format_args!(
            "farwire: {}: use it with --profile {}",
            path.display(),
            self.name
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, path: &Path, text: &str) -> Result<()> {
        ensure!(
            self.overwrite || !path.exists(),
            "{}: the file exists: choose another name, or add --overwrite",
            path.display()
        );
        let folder = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let name = path.file_name().unwrap_or_default();
        Ok(output::write_beside(folder, name, text)?)
    }
}

/// Returns the file of a new profile, in which every number is assumed.
fn file_of(about: &str, based_on: Option<&str>, own: &LinkSpec) -> Result<String> {
    let about: String = about.chars().filter(|one| !one.is_control()).collect();
    let mut text = format!(
        "# {about}\n#\n\
         # Name the source of each number: write a line here that begins with a name in brackets, followed by author, \"title\" and year,\n\
         # and repeat the name in brackets after the number. Mark a number without a source as assumed.\n\n"
    );
    if let Some(name) = based_on {
        writeln!(text, "based_on = \"{name}\"")?;
    }
    let conditions = toml::to_string(own).context("cannot write the conditions")?;
    let mut is_beside_values = false;
    for line in conditions.lines() {
        is_beside_values |= line.starts_with("values = ");
        text.push_str(line);
        text.push('\n');
    }
    if is_beside_values {
        // The values of a distribution are in the profile itself.
        text = text
            .lines()
            .filter(|line| !line.starts_with("file = "))
            .map(|line| format!("{line}\n"))
            .collect();
    }
    let unfounded = unfounded(&text);
    let is_unfounded = |number: usize| unfounded.iter().any(|one| one.line == number);
    let lines = (1..).zip(text.lines());
    let marked = lines.map(|(number, line)| match is_unfounded(number) {
        true => format!("{line}{ASSUMED}\n"),
        false => format!("{line}\n"),
    });
    Ok(marked.collect())
}

impl CheckArgs {
    /// Prints the problems of each profile.
    fn run(&self) -> Result<ExitCode, Failure> {
        let folders = ProfileFolders::usual(self.profiles.as_deref());
        let files = self.files(&folders).or_bad_input()?;
        let all: Vec<Checked> = files.iter().map(|file| checked(file, &folders)).collect();
        let mut text = String::new();
        for Checked {
            name,
            file,
            problems,
        } in &all
        {
            if problems.is_empty() {
                text += &format!("{name}: ok ({})\n", file.display());
            }
            problems
                .iter()
                .for_each(|problem| text += &format!("{problem}\n"));
        }
        if all.is_empty() {
            note("farwire: there are no profiles except those that ship with farwire");
        }
        super::show(self.json.as_deref(), &all, &text, io::sink())?;
        Ok(super::exit_code(
            all.iter().all(|one| one.problems.is_empty()),
        ))
    }

    fn files(&self, folders: &ProfileFolders) -> Result<Vec<ProfileFile>> {
        if self.names.is_empty() {
            return folders.all();
        }
        let named = |name: &String| match folders.find(name)? {
            Some(file) => Ok(file),
            None => {
                let shipped = profile_folders::shipped(name, folders)?;
                Ok(ProfileFile {
                    name: name.clone(),
                    path: format!("{name}.toml").into(),
                    text: shipped.text.to_owned(),
                })
            }
        };
        self.names.iter().map(named).collect()
    }
}

fn checked(file: &ProfileFile, folders: &ProfileFolders) -> Checked {
    let place = file.path.display();
    let mut problems = Vec::new();
    if let Err(error) = toml_file::read_profile(&file.name, folders) {
        problems.push(format!("{error:#}"));
    }
    if file.about().is_empty() {
        problems.push(format!(
            "{place}:1: the first line says nothing about the profile: begin with # and a description"
        ));
    }
    let unfounded = unfounded(&file.text).into_iter();
    problems.extend(unfounded.map(|one| format!("{place}:{}: {}", one.line, one.problem)));
    Checked {
        name: file.name.clone(),
        file: file.path.clone(),
        problems,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: ProfilesArgs,
    }

    fn run(line: &[&str]) -> Result<ExitCode, Failure> {
        let line = ["x"].iter().chain(line);
        Program::try_parse_from(line).unwrap().args.run()
    }

    #[test]
    fn each_is_listed_with_what_it_is_and_its_figures() {
        let all = Listed::all(&ProfileFolders::NONE).unwrap();
        let text = list(&all, Terminal::NONE, false).unwrap();
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for Listed { name, about, .. } in &all {
            let first = format!("{name}: {about}");
            assert!(one_line(&text).contains(&first), "{first} in\n{text}");
        }
        let geo = "19 Mbit/s down, 3.53 Mbit/s up, round trip 630 ms, loss 0.1 %";
        assert!(one_line(&text).contains(geo), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let with_pictures = list(&all, Terminal::NONE, true).unwrap();
        assert!(
            with_pictures.contains("▅▅▅▅▅▅▅▅▅▅▅▅ 19 Mbit/s down"),
            "{with_pictures}"
        );
    }

    #[test]
    fn a_new_profile_is_listed_and_every_number_is_assumed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().display().to_string();
        let new = |more: &[&str]| {
            let line = ["new", "office", "--profiles", &folder];
            run(&[&line[..], more].concat()).map(drop)
        };
        new(&[
            "--profile",
            "mobile",
            "--delay",
            "7ms",
            "--up-rate",
            "2mbit",
            "--about",
            "An office",
        ])
        .unwrap();
        let folders = ProfileFolders::usual(Some(directory.path()));
        let file = folders.find("office").unwrap().unwrap();
        assert_eq!(file.about(), "An office");
        assert!(unfounded(&file.text).is_empty(), "{}", file.text);
        for line in [
            "based_on = \"mobile\"",
            "delay = \"7ms\"  # assumed",
            "[up]",
            "rate = \"2mbit\"  # assumed",
        ] {
            assert!(
                file.text.lines().any(|own| own == line),
                "{line} in\n{}",
                file.text
            );
        }
        let (listed, _) = Listed::named("office", &folders).unwrap();
        let mobile = Listed::named("mobile", &folders).unwrap().0.conditions;
        assert_eq!(listed.conditions.down, mobile.down);
        assert!(
            Listed::all(&folders)
                .unwrap()
                .iter()
                .any(|one| one.name == "office")
        );
        assert!(checked(&file, &folders).problems.is_empty());
        let again = new(&["--delay", "1ms"]).unwrap_err().to_string();
        assert!(again.contains("the file exists"), "{again}");
        new(&["--delay", "1ms", "--overwrite"]).unwrap();
        let (_, text) = Listed::named("office", &folders).unwrap();
        assert!(
            text.starts_with("# delay 1ms in each direction\n"),
            "{text}"
        );
        assert!(new(&["--overwrite"]).is_err());
        assert!(run(&["new", "a b", "--delay", "1ms"]).is_err());
    }

    #[test]
    fn a_new_profile_replaces_a_link_and_does_not_follow_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink(at("nowhere"), at("office.toml")).unwrap();
        let folder = directory.path().display().to_string();
        run(&["new", "office", "--profiles", &folder, "--delay", "1ms"]).unwrap();
        assert!(at("office.toml").symlink_metadata().unwrap().is_file());
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn a_check_names_the_line_of_each_problem() {
        let directory = tempfile::tempdir().unwrap();
        let check = |text: &str| {
            let path = directory.path().join("one.toml");
            fs::write(&path, text).unwrap();
            let folders = ProfileFolders::usual(Some(directory.path()));
            let file = folders.find("one").unwrap().unwrap();
            let problems = checked(&file, &folders).problems.join("\n");
            problems.replace(&directory.path().display().to_string(), "F")
        };
        assert_eq!(check("# One\ndelay = \"1ms\" # assumed\n"), "");
        assert_eq!(
            check("delay = \"1ms\"\n"),
            "F/one.toml:1: the first line says nothing about the profile: begin with # and a description\n\
             F/one.toml:1: `delay = \"1ms\"`: it has no source: name one, or write # assumed behind it"
        );
        assert!(
            check("# One\n\ndelay = \"1\" # assumed\n")
                .starts_with("F/one.toml:3: delay: `1` has no unit")
        );
    }
}
