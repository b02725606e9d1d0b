//! Bad input is refused in one line, and no process outlives farwire, however it ends.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command::exec;
use test_support::family::Family;
use test_support::powerless;
use test_support::process::{self, farwire, stderr};
use test_support::suite::{Need, Suite};

const NEEDS: [Need; 1] = [Need::Namespaces];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (name, arguments, word) in REFUSED {
        suite.test(format!("{name} is refused"), &[], move || {
            check_refusal(&exec(&[arguments, &["--", "true"]].concat())?, word)
        });
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        for moment in MOMENTS {
            let name = format!("{signal} leaves nothing behind: {}", moment.name());
            suite.test(name, &NEEDS, move || leaves_nothing(signal, moment));
        }
    }
}

#[test_support::test]
fn an_unknown_key_in_a_link_file_is_refused_with_line_and_nearest_key() -> Result<()> {
    let file = tempfile::NamedTempFile::with_suffix(".toml")?;
    fs::write(file.path(), "loss = '1%'\ndealy = '20ms'\n")?;
    let path = file.path().to_str().context("a temporary path is plain")?;
    let output = exec(&["--link", path, "--", "true"])?;
    check_refusal(&output, &format!("{path}:2: unknown key `dealy`"))?;
    check_refusal(&output, "did you mean `delay`?")
}

#[test_support::test]
fn copies_that_multiply_are_refused_with_their_product_and_its_limit() -> Result<()> {
    let copier =
        |n: usize| format!("[[stages]]\nkind = 'duplicate'\nname = 'd{n}'\nduplicate = '100%'\n");
    let file = tempfile::NamedTempFile::with_suffix(".toml")?;
    fs::write(file.path(), (0..30).map(copier).collect::<String>())?;
    let path = file.path().to_str().context("a temporary path is plain")?;
    let output = exec(&["--link", path, "--", "true"])?;
    check_refusal(
        &output,
        "makes 1073741824 packets of one: at most 16 are allowed, so use at most 4 such stages",
    )
}

#[test_support::test(Namespaces)]
fn neither_root_nor_user_namespaces_is_one_clear_error() -> Result<()> {
    let mut command = powerless::farwire_without_namespaces()?;
    let output = process::run(command.args(["exec", "--", "true"]))?;
    check_refusal(&output, "run `sysctl -w user.max_user_namespaces=15000`")
}

#[test_support::test(Namespaces)]
fn a_container_that_forbids_namespaces_is_told_the_options_that_allow_them() -> Result<()> {
    let options = "--security-opt seccomp=unconfined";
    let mut exec = powerless::farwire_behind_filter()?;
    let output = process::run(exec.args(["exec", "--", "true"]))?;
    check_refusal(&output, options)?;
    let doctor = process::run(powerless::farwire_behind_filter()?.arg("doctor"))?;
    // Lines are wrapped.
    let text = process::stdout(&doctor);
    let words: Vec<&str> = text.split_whitespace().collect();
    process::has(&words.join(" "), options)
}

const REFUSED: [(&str, &[&str], &str); 7] = [
    (
        "an unknown unit",
        &["--delay", "20lightyears"],
        "20lightyears",
    ),
    ("a number without a unit", &["--delay", "20"], "20"),
    ("a loss above one", &["--loss", "101%"], "101%"),
    ("a rate of nothing", &["--rate", "0mbit"], "0bit"),
    ("a queue without a rate", &["--queue", "10pkt"], "queue"),
    ("an mtu out of range", &["--mtu", "10"], "10"),
    (
        "a link file that is not there",
        &["--link", "/nowhere.toml"],
        "/nowhere.toml",
    ),
];

/// The exit code is 125, standard output is empty, and the error names the problem.
fn check_refusal(output: &std::process::Output, word: &str) -> Result<()> {
    let stderr = stderr(output);
    let errors = stderr
        .lines()
        .filter(|line| line.contains("error: ") || line.starts_with("farwire: "));
    ensure!(
        output.status.code() == Some(125),
        "{}: {stderr}",
        output.status
    );
    ensure!(output.stdout.is_empty(), "{output:?}");
    ensure!(errors.count() == 1 && stderr.contains(word), "{stderr}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn daemons_of_the_command_end_with_it() -> Result<()> {
    let family = Family::begin();
    let directory = tempfile::tempdir()?;
    let ran = directory.path().join("ran");
    // A daemon in a separate session, whose parent has ended.
    let line = format!(
        "setsid sh -c 'sleep 1000 & echo $! > {}' & wait",
        ran.display()
    );
    // The far end's daemon also listens; the test waits for that.
    let far = format!("setsid sleep 1000 & exec '{}' serve", process::program());
    let mut command = farwire();
    command.args(["exec", "--far", &far, "--", "sh", "-c", &line]);
    process::succeeds(family.mark(&mut command))?;
    ensure!(
        !fs::read_to_string(&ran)?.is_empty(),
        "the daemon was not started"
    );
    // farwire has ended, so everything that it started must be gone by now.
    ensure!(family.members().is_empty(), "left: {:?}", family.members());
    Ok(())
}

/// The progress of farwire, as it can be observed from outside.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Started,
    FirstNamespace,
    AllNamespaces,
    Forwarding,
    Contained,
    CommandRunning,
}

const MOMENTS: [Moment; 6] = [
    Moment::Started,
    Moment::FirstNamespace,
    Moment::AllNamespaces,
    Moment::Forwarding,
    Moment::Contained,
    Moment::CommandRunning,
];

impl Moment {
    fn name(self) -> &'static str {
        match self {
            Self::Started => "at once",
            Self::FirstNamespace => "with the first namespace made",
            Self::AllNamespaces => "with all namespaces made",
            Self::Forwarding => "with the forwarder started",
            Self::Contained => "with the command about to start",
            Self::CommandRunning => "with the command running",
        }
    }

    /// Returns whether farwire, the process `pid`, has reached this state; the command creates the file `mark` when it runs.
    fn is_here(self, pid: u32, family: &Family, mark: &Path) -> bool {
        match self {
            Self::Started => true,
            Self::FirstNamespace => !family.namespaces().is_empty(),
            Self::AllNamespaces => family.namespaces().len() >= 3,
            Self::Forwarding => process::has_thread(pid, "forwarder"),
            Self::Contained => family.members().len() > 1,
            Self::CommandRunning => mark.exists(),
        }
    }
}

fn leaves_nothing(signal: Signal, moment: Moment) -> Result<()> {
    let family = Family::begin();
    let directory = tempfile::tempdir()?;
    let mark = directory.path().join("running");
    let mut farwire = start(&family, &mark)?;
    let pid = farwire.id();
    let namespaces = process::wait_for(moment.name(), || {
        let ended = farwire.try_wait()?;
        ensure!(ended.is_none(), "farwire ended by itself: {ended:?}");
        let here = moment.is_here(pid, &family, &mark);
        Ok(here.then(|| family.namespaces()))
    });
    let ended = namespaces.and_then(|namespaces| end(&mut farwire, signal, namespaces, &family));
    if ended.is_err() {
        let _ = farwire.kill();
        let _ = farwire.wait();
    }
    ended
}

/// Starts farwire as a shell would, in a new process group.
fn start(family: &Family, mark: &Path) -> Result<Child> {
    let line = format!(
        "touch {}; sleep 1000 & setsid sleep 1000 & wait",
        mark.display()
    );
    let mut command = farwire();
    command.args(["exec", "--", "sh", "-c", &line]);
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(family.mark(&mut command).spawn()?)
}

fn end(
    farwire: &mut Child,
    signal: Signal,
    mut namespaces: BTreeSet<PathBuf>,
    family: &Family,
) -> Result<()> {
    let pid = i32::try_from(farwire.id())?;
    namespaces.extend(family.namespaces());
    // A terminal's interrupt reaches the whole group; the other signals are sent only to farwire.
    let target = if signal == Signal::SIGINT { -pid } else { pid };
    kill(Pid::from_raw(target), signal)?;
    process::end_of(farwire).with_context(|| format!("after {signal}"))?;
    family.check_gone(&namespaces)
}
