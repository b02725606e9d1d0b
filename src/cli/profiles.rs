//! `farwire profiles`: the links that ship.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use conditions::{LinkProfile, LinkSpec, PROFILES};
use report::{Terminal, hanging};
use serde::Serialize;

use instruments::failure::Failure;

/// List the links that ship, which `--profile NAME` and `profile = "NAME"` take, or print one as a file
///
/// A file says where each of its numbers was published, or that it is assumed. `farwire profiles mobile > mine.toml` makes one
/// to be edited, for `--link mine.toml`.
#[derive(Args, Debug)]
pub(crate) struct ProfilesArgs {
    /// Print the file of this one
    #[arg(value_parser = super::args::link_conditions::profile_parser())]
    name: Option<LinkProfile>,
    /// Write names and conditions as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One, for JSON.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    conditions: LinkSpec,
}

/// Where conditions begin in a line.
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

/// Of each its name, what it is, and its conditions.
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
