//! A program run without any privilege, or in a place that grants none: the test program becomes it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use caps::CapSet;
use netio::userns;

/// The first argument of a test program that is to drop all capabilities and become the program that follows.
const POWERLESS: &str = "__powerless";
/// The same in a user namespace that allows no further one.
const CONFINED: &str = "__confined";

/// The program under test without any capability.
pub(crate) fn farwire_without_capabilities() -> Result<Command> {
    diverted(POWERLESS)
}

/// The program under test without any capability, where there are no user namespaces.
pub(crate) fn farwire_without_namespaces() -> Result<Command> {
    diverted(CONFINED)
}

/// Becomes another program if the first argument says so; call it first thing in main.
pub(crate) fn divert() {
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

fn diverted(way: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([way, env!("CARGO_BIN_EXE_farwire")]);
    Ok(command)
}

fn become_powerless(confined: bool, argv: &[OsString]) -> Result<Infallible> {
    if confined {
        userns::enter()?;
        std::fs::write("/proc/sys/user/max_user_namespaces", "0")?;
    }
    // Root regains at exec what the bounding set has.
    for capability in caps::all() {
        caps::drop(None, CapSet::Bounding, capability)?;
    }
    let (program, arguments) = argv.split_first().context("a program")?;
    Err(Command::new(program).args(arguments).exec().into())
}
