//! A program run without any privilege, or in a place that grants none: the test program becomes it.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use caps::{CapSet, Capability};
use netio::userns::{self, Privilege};

use crate::process;

/// The first argument of a test program that is to drop all capabilities but those that follow, and to become the
/// program after them.
const POWERLESS: &str = "__powerless";
/// The same in a user namespace that allows no further one.
const CONFINED: &str = "__confined";

/// The program under test with these capabilities and no other.
pub fn farwire_with(kept: &[Capability]) -> Result<Command> {
    diverted(POWERLESS, kept, process::program())
}

/// The program under test as a user without privileges has it, who may have namespaces of his own.
pub fn farwire_unprivileged() -> Result<Command> {
    plain_user(process::program())
}

/// A program as a user without privileges has it, who may have namespaces of his own.
pub fn plain_user(program: impl AsRef<OsStr>) -> Result<Command> {
    match Privilege::detect() {
        // Without this one, user 0 cannot be user 0 of a user namespace (Linux 5.12, user_namespaces(7)).
        Privilege::Root => diverted(POWERLESS, &[Capability::CAP_SETFCAP], program),
        Privilege::UserNamespace | Privilege::None { .. } => Ok(Command::new(program)),
    }
}

/// The program under test without any capability, where there are no user namespaces.
pub fn farwire_without_namespaces() -> Result<Command> {
    diverted(CONFINED, &[], process::program())
}

/// Becomes another program if the first argument says so; call it first thing in main.
pub fn divert() {
    let mut arguments = std::env::args_os().skip(1);
    let confined = match arguments.next() {
        Some(first) if first == POWERLESS => false,
        Some(first) if first == CONFINED => true,
        _ => return,
    };
    let failure = become_powerless(confined, &arguments.collect::<Vec<_>>());
    eprintln!("cannot become powerless: {failure:?}");
    std::process::exit(1);
}

fn diverted(way: &str, kept: &[Capability], program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    command.args([way, &kept.join(",")]).arg(program);
    Ok(command)
}

fn become_powerless(confined: bool, argv: &[OsString]) -> Result<Infallible> {
    if confined {
        userns::enter()?;
        std::fs::write("/proc/sys/user/max_user_namespaces", "0")?;
    }
    let (kept, argv) = argv.split_first().context("capabilities")?;
    let kept = kept.to_str().context("capabilities have plain names")?;
    let kept: Vec<&str> = kept.split(',').collect();
    // Root regains at exec what the bounding set has.
    for capability in caps::all() {
        if !kept.contains(&capability.to_string().as_str()) {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    let (program, arguments) = argv.split_first().context("a program")?;
    Err(Command::new(program).args(arguments).exec().into())
}
