//! The guest, seen from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use netio::kill_on_drop::KillOnDrop;

use crate::guest;
use crate::jobs::Job;

const KERNEL: &str = "linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
/// The modules that the guest's kernel needs, unless they are built in.
const NEEDED: [&str; 6] = [
    "veth",
    "sch_netem",
    "sch_tbf",
    "sch_codel",
    "sch_fq_codel",
    "sch_pie",
];

/// The result of a boot.
pub(crate) enum Booted {
    /// All jobs were done.
    Ran,
    /// This machine cannot run the guest, for this reason.
    Skipped(String),
}

/// Lets a guest do these jobs; its results are then in `directory`.
pub(crate) fn boot<'a>(directory: &Path, jobs: impl Iterator<Item = &'a Job>) -> Result<Booted> {
    if let Some(cause) = cannot() {
        return Ok(Booted::Skipped(cause));
    }
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let jobs: Vec<&Job> = jobs.collect();
    let names: Vec<&str> = jobs.iter().map(|job| job.name).collect();
    fs::write(directory.join(guest::JOBS), names.join("\n"))?;
    let init = directory.join("init");
    fs::write(&init, script(directory)?)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;

    let console = fs::File::create(directory.join("console"))?;
    let mut guest = Command::new(KERNEL);
    guest
        .args([
            "mem=512M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "con=null",
            "con0=fd:0,fd:1",
        ])
        .arg(format!("init={}", init.display()))
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        .process_group(0);
    let mut running =
        KillOnDrop::spawn(&mut guest).with_context(|| format!("cannot start {KERNEL}"))?;
    let guest = running.streams();
    let took: Duration = jobs
        .iter()
        .map(|job| (job.gap * job.packets + Duration::from_secs(3)) * job.runs)
        .sum();
    println!(
        "{} disciplines in a guest kernel, about {} s",
        jobs.len(),
        took.as_secs()
    );
    // The guest may run at a fraction of the requested speed, and take seconds to start.
    let limit = Instant::now() + took * 5 + Duration::from_secs(60);
    while guest.try_wait()?.is_none() {
        if Instant::now() > limit {
            let group = nix::unistd::Pid::from_raw(i32::try_from(guest.id())?);
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL)?;
            guest.wait()?;
            bail!(
                "the guest did not end: see {}",
                directory.join("console").display()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if let Ok(cause) = fs::read_to_string(directory.join(guest::FAILED)) {
        bail!("in the guest: {cause}");
    }
    let missing = jobs
        .iter()
        .find(|job| !directory.join(guest::file(job, job.runs - 1)).exists());
    ensure!(
        missing.is_none(),
        "the guest ended early: see {}",
        directory.join("console").display()
    );
    Ok(Booted::Ran)
}

/// Returns the reason why this machine cannot run the guest, if there is one.
fn cannot() -> Option<String> {
    for (program, package) in [
        (KERNEL, "user-mode-linux"),
        ("insmod", "kmod"),
        ("tc", "iproute2"),
    ] {
        if !is_there(program) {
            return Some(format!("no {program} here (package {package})"));
        }
    }
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_too_wide = processor.contains(" amx_tile");
    is_too_wide.then(|| "user-mode-linux 6.1 does not run on a processor with AMX, whose registers it has no room for".to_owned())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Returns the script of the guest's first program; the guest has this machine's files, and may write to `directory`.
fn script(directory: &Path) -> Result<String> {
    let own = std::env::current_exe()?;
    let (own, directory) = (own.display(), directory.display());
    let mut lines = vec![
        "#!/bin/sh".to_owned(),
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        "mount -t proc proc /proc".to_owned(),
        format!("mount -t hostfs none '{directory}' -o '{directory}'"),
    ];
    for module in NEEDED {
        if let Some(path) = module_file(module) {
            lines.push(format!("insmod '{}'", path.display()));
        }
    }
    lines.push(format!("exec '{own}' {} '{directory}'\n", guest::ARGUMENT));
    Ok(lines.join("\n"))
}

fn module_file(module: &str) -> Option<PathBuf> {
    let mut folders = vec![PathBuf::from(MODULES)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.file_stem()? == module => return Some(path),
                false => {}
            }
        }
    }
    None
}
