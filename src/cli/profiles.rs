//! `farwire profiles`: lists the profiles of networks.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use conditions::{LinkProfile, LinkSpec, PROFILES};
use report::{Terminal, hanging};
use serde::Serialize;

use instruments::failure::Failure;

/// List the profiles of networks that `--profile NAME` uses, or print one as a file
///
/// A profile is a file of conditions. It says where each of its numbers was published, or that it is assumed. In a file,
/// `profile = "NAME"` uses a profile too.
#[derive(Args, Debug)]
pub(crate) struct ProfilesArgs {
    /// Print the file of this profile
    #[arg(value_parser = super::args::link_conditions::profile_parser())]
    name: Option<LinkProfile>,
    /// Write names and conditions as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A profile, for JSON.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    conditions: LinkSpec,
}

/// The column in which conditions begin.
const INDENT: usize = 4;

impl ProfilesArgs {
    /// Prints the list, or the file of one.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let json = self.json.as_deref();
        match self.name {
            Some(one) => super::show(json, &Listed::of(one), one.text, io::sink()),
            None => {
                let all: Vec<Listed> = PROFILES.iter().copied().map(Listed::of).collect();
                let text = list(&all, super::terminal())?;
                super::show(json, &all, &text, io::sink())
            }
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Listed {
    fn of(profile: LinkProfile) -> Self {
        Self {
            name: profile.name,
            about: profile.about(),
            conditions: profile.conditions(),
        }
    }
}

/// Returns the name, the description and the conditions of each profile.
fn list(all: &[Listed], terminal: Terminal) -> Result<String> {
    let one = |listed: &Listed| {
        let indent = " ".repeat(INDENT);
        let conditions = crate::live::in_force(&listed.conditions);
        let text = format!("{}: {}\n{indent}{conditions}", listed.name, listed.about);
        Ok(hanging(&text, terminal, INDENT))
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_with_what_it_is_and_its_conditions() {
        let all: Vec<Listed> = PROFILES.iter().copied().map(Listed::of).collect();
        let text = list(&all, Terminal::NONE).unwrap();
        for Listed { name, about, .. } in &all {
            let first = format!("{name}: {about}\n{}", " ".repeat(INDENT));
            assert!(text.contains(&first), "{first} in\n{text}");
        }
        assert!(text.contains("delay 315ms"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
