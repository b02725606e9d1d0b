//! The files that a scenario can reach, and the damage that a record survives.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use record::Record;
use serde_json::Value;
use tempfile::TempDir;

use test_support::process::{self, farwire, has, stderr, stdout};

const PING: &str = "\
name = 'small'
order = 'as-written'
late_budget = '1s'
tcp = { congestion = 'reno' }
[[instruments]]
kind = 'ping'
parameters = { count = 3, interval = '5ms', timeout = '1s' }
";
const TRANSFER: &str = "\
name = 'small'
late_budget = '1s'
tcp = { congestion = 'reno' }
[[instruments]]
kind = 'transfer'
";

/// A folder with a scenario in it, beside another folder.
struct Folder(TempDir);

impl Folder {
    fn of(scenario: &str) -> Result<Self> {
        let folder = Self(tempfile::tempdir()?);
        fs::create_dir(folder.at("own"))?;
        fs::create_dir(folder.at("other"))?;
        fs::write(folder.at("own/x.toml"), scenario)?;
        Ok(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the command that runs its scenario.
    fn command(&self) -> Command {
        let mut command = farwire();
        command.arg("run").arg(self.at("own/x.toml"));
        command.arg("--out").arg(self.at("out"));
        command
    }

    fn resume(&self) -> Command {
        let mut command = farwire();
        command.args(["run", "--resume"]).arg(self.at("out"));
        command
    }

    fn record(&self) -> Result<Record> {
        Ok(Record::read(&self.at("out"))?)
    }
}

#[test_support::test]
fn a_scenario_names_files_below_its_own_folder_or_below_allow_files_and_no_others() -> Result<()> {
    let link = "[[cases]]\nname = 'a'\nlink = { delay = '9ms', jitter = { spread = '2ms', law = 'table', file = 'FILE' } }\n";
    let own = "parameters = { file = 'FILE' }\n[[cases]]\nname = 'a'\n";
    let of_case = "[[cases]]\nname = 'a'\nparameters.transfer = { file = 'FILE' }\n";
    let swept = "[[cases]]\nname = 'a'\nsweep = { 'parameters.transfer.file' = ['FILE'] }\n";
    for (text, place) in [
        (PING.to_owned() + link, "x.toml:10: file: "),
        (
            TRANSFER.to_owned() + own,
            "x.toml:6: instruments 1: parameters: file: ",
        ),
        (
            TRANSFER.to_owned() + of_case,
            "x.toml:8: case `a`: parameters: transfer: file: ",
        ),
        (
            TRANSFER.to_owned() + swept,
            "x.toml:8: case `a`: parameters: transfer: file: ",
        ),
    ] {
        let folder = Folder::of("")?;
        let outside = folder.at("other/file");
        fs::write(&outside, "1 2 3\n")?;
        symlink(&outside, folder.at("own/link"))?;
        let outside = outside.display().to_string();
        for name in [&outside, "../other/file", "link"] {
            fs::write(folder.at("own/x.toml"), text.replace("FILE", name))?;
            let refused = process::run(&mut folder.command())?;
            let told = told(&refused);
            ensure!(refused.status.code() == Some(2), "{name}: {told}");
            let end = format!("--allow-files {}\n", folder.at("other").display());
            ensure!(told.contains(place) && told.ends_with(&end), "{told}");
            ensure!(told.lines().count() == 1, "{told}");
            ensure!(!folder.at("out").exists(), "something was written");
        }
    }
    // A file of conditions has the same rules as a scenario.
    let file = tempfile::NamedTempFile::with_suffix(".toml")?;
    let jitter =
        "delay = '9ms'\njitter = { spread = '2ms', law = 'table', file = '/proc/version' }\n";
    fs::write(file.path(), jitter)?;
    let refused = process::run(farwire().args(["link", "--link"]).arg(file.path()))?;
    ensure!(refused.status.code() == Some(2), "{}", told(&refused));
    has(&told(&refused), "/proc/version is not below")?;
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_file_below_the_scenarios_folder_is_sent_and_no_record_of_a_stranger_sends_another()
-> Result<()> {
    let case = "parameters = { file = '../other/data' }\n[[cases]]\nname = 'a'\nrepeats = 2\n";
    let folder = Folder::of(&(TRANSFER.to_owned() + case))?;
    fs::write(folder.at("other/data"), [7; 4321])?;
    let allow =
        |mut command: Command| process::run(command.arg("--allow-files").arg(folder.at("other")));
    process::succeeded(allow(folder.command())?)?;
    let record = folder.record()?;
    let facts = &record.runs[0].measurements[0].measurement.facts;
    let data = folder.at("other").canonicalize()?.join("data");
    ensure!(
        facts.get("data") == Some(&data.display().to_string()),
        "{facts:?}"
    );

    // The plan of a stranger's record is not from the command line either.
    let text = fs::read_to_string(folder.at("out/record.jsonl"))?;
    let head = text.lines().next().context("its head")?.to_owned() + "\n";
    fs::write(folder.at("out/record.jsonl"), &head)?;
    let refused = process::run(&mut folder.resume())?;
    let place = "case `a`: transfer: file: ";
    ensure!(refused.status.code() == Some(2), "{}", told(&refused));
    ensure!(told(&refused).contains(place), "{}", told(&refused));
    ensure!(folder.record()?.runs.is_empty(), "it was sent");
    process::succeeded(allow(folder.resume())?)?;
    // A path that depends on the current directory is refused too.
    let head = head.replace(&data.display().to_string(), "Cargo.toml");
    fs::write(folder.at("out/record.jsonl"), head)?;
    fs::write(folder.at("out/Cargo.toml"), "a decoy")?;
    let refused = process::run(&mut folder.resume())?;
    ensure!(refused.status.code() == Some(2), "{}", told(&refused));
    has(&told(&refused), "not an absolute path")?;
    Ok(())
}

#[test_support::test(Tool("ping"), Namespaces)]
fn check_lists_every_command_file_and_host_that_a_scenario_would_use() -> Result<()> {
    let text = "\
name = 'small'
[[instruments]]
kind = 'transfer'
parameters = { file = 'data' }
[[instruments]]
name = 'system'
kind = 'ping'
parameters = { tool = 'ping' }
[[cases]]
name = 'here'
link = { delay = '9ms', jitter = { spread = '2ms', law = 'table', file = 'two.dist' } }
[[cases]]
name = 'there'
bed = { kind = 'external', host = 'far.example' }
[[cases]]
name = 'cards'
[cases.bed]
kind = 'nics'
client = { interface = 'no-such0', address = '192.0.2.1/24' }
server = { interface = 'no-such1', address = '192.0.2.2/24' }
";
    let folder = Folder::of(text)?;
    fs::write(folder.at("own/data"), "x")?;
    fs::write(folder.at("own/two.dist"), "-8192 8192\n")?;
    // The cards do not exist; the error follows the list.
    let output = process::run(folder.command().arg("--check"))?;
    let text = stdout(&output);
    let own = folder.at("own").canonicalize()?;
    let files = ["data", "two.dist"].map(|name| own.join(name).display().to_string());
    let ping = which::which("ping")?.display().to_string();
    ensure!(
        text.contains(&format!("\ncommands: {ping} (")),
        "{text}{}",
        told(&output)
    );
    for line in [
        format!("files: {}", files.join(", ")),
        "hosts: far.example".to_owned(),
        "interfaces: no-such0, no-such1".to_owned(),
    ] {
        ensure!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    let output = process::run(folder.command().args(["--check", "--json", "-"]))?;
    let uses: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(uses["files"] == serde_json::json!(files), "{uses}");
    ensure!(uses["hosts"][0] == "far.example", "{uses}");
    ensure!(uses["commands"][&ping].is_string(), "{uses}");
    ensure!(!folder.at("out").exists(), "something was written");
    Ok(())
}

#[test_support::test(Namespaces)]
fn names_from_a_scenario_lead_to_no_other_folder_no_formula_and_no_markup() -> Result<()> {
    let text = "\
name = 'small'
late_budget = '1s'
title = '=1+1 <script>alert(1)</script>'
[[instruments]]
name = '=x<b>'
kind = 'probe'
csv = true
parameters = { count = 3, interval = '5ms' }
[[cases]]
name = '../../../evil'
[[cases]]
name = \"=cmd|' /C calc'!A0<script>\"
[[cases]]
name = '+1'
[[cases]]
name = '-1'
[[cases]]
name = '@x'
";
    let folder = Folder::of(text)?;
    process::succeeds(&mut folder.command())?;
    let mut all: Vec<String> = Vec::new();
    below(folder.0.path(), &mut all)?;
    let artifacts = folder.at("out/artifacts").display().to_string();
    let kept = all.iter().filter(|file| file.starts_with(&artifacts));
    ensure!(kept.count() == 5 && all.len() == 5 + 1 + 4, "{all:?}");
    let tables =
        ["out/runs.csv", "out/samples.csv"].map(|name| fs::read_to_string(folder.at(name)));
    let [runs, samples] = tables;
    for line in runs?.lines().chain(samples?.lines()) {
        let mut cells = line.split([',', '"']);
        let formula = cells
            .find(|cell| cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err());
        ensure!(formula.is_none(), "{line}");
    }
    for format in ["html", "md", "junit"] {
        let mut command = farwire();
        command.arg("report").arg(folder.at("out"));
        let output = process::run(command.args(["--format", format]))?;
        let text = stdout(&output);
        ensure!(output.status.success(), "{format}: {output:?}");
        ensure!(text.contains("script"), "{format}: {output:?}");
        for markup in ["<script>alert", "A0<script>", "=x<b>"] {
            ensure!(!text.contains(markup), "{format}: {markup}");
        }
    }
    Ok(())
}

/// Lists the plain files below `folder`.
fn below(folder: &Path, all: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => below(&path, all)?,
            false => all.push(path.display().to_string()),
        }
    }
    Ok(())
}

#[test_support::test]
fn names_that_a_terminal_would_obey_or_that_are_another_folder_s_are_refused() -> Result<()> {
    let case = "[[cases]]\nname = 'a'\n";
    for (from, to, cause) in [
        ("'small'", "'../x'", "x.toml:1: name: `../x`"),
        ("'small'", "'/x'", "x.toml:1: name: `/x`"),
        ("'small'", "'.x'", "x.toml:1: name: `.x`"),
        (
            "'a'",
            "\"a\\u001b[2J\"",
            "x.toml:9: name: it contains the control character U+001B",
        ),
        (
            "'a'",
            "\"a\\nb\"",
            "x.toml:9: case `a\nb`: name: it must be one line",
        ),
        (
            "'a'",
            "\"a\\u202e\"",
            "x.toml:9: name: it contains the control character U+202E",
        ),
        (
            "kind",
            "name = \"a\\nb\"\nkind",
            "x.toml:6: instruments 1: name: `a\\nb`: a name contains",
        ),
    ] {
        let folder = Folder::of(&(PING.to_owned() + case).replace(from, to))?;
        let refused = process::run(&mut folder.command())?;
        ensure!(refused.status.code() == Some(2), "{to}: {}", told(&refused));
        let told = told(&refused);
        has(&told, cause)?;
        ensure!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_second_run_in_one_directory_is_told_which_process_writes_the_record_and_changes_nothing()
-> Result<()> {
    let case = "[[cases]]\nname = 'a'\nrepeats = 1000\n";
    let folder = Folder::of(&(PING.to_owned() + case))?;
    let mut first = Killed(
        folder
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    );
    process::wait_for("its first run", || {
        let ended = first.0.try_wait()?;
        ensure!(ended.is_none(), "it ended by itself: {ended:?}");
        Ok(folder
            .record()
            .ok()
            .filter(|record| !record.runs.is_empty()))
    })?;
    let mut overwrite = folder.command();
    overwrite.arg("--overwrite");
    for mut command in [overwrite, folder.resume()] {
        let refused = process::run(&mut command)?;
        let cause = format!("another farwire is writing it, process {}", first.0.id());
        ensure!(refused.status.code() == Some(2), "{}", told(&refused));
        ensure!(told(&refused).contains(&cause), "{}", told(&refused));
    }
    let before = folder.record()?.runs.len();
    process::wait_for("one run more", || {
        Ok((folder.record()?.runs.len() > before).then_some(()))
    })
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test_support::test(Namespaces, Tool("strace"))]
fn a_record_is_on_the_disk_with_its_directory_when_a_run_is_called_finished() -> Result<()> {
    let folder = Folder::of(&(PING.to_owned() + "[[cases]]\nname = 'a'\n"))?;
    let mut command = Command::new("strace");
    let calls = "trace=fsync,fdatasync,write,rename,renameat,renameat2";
    command.args(["-f", "-y", "-s", "40", "-e", calls, "-o"]);
    command.arg(folder.at("calls"));
    let traced = folder.command();
    command.arg(traced.get_program()).args(traced.get_args());
    process::succeeds(&mut command)?;
    let text = fs::read_to_string(folder.at("calls"))?;
    let out = folder.at("out").canonicalize()?.display().to_string();
    let [file, directory, above] = [
        format!("<{out}/record.jsonl>"),
        format!("<{out}>"),
        format!("<{}>", folder.0.path().canonicalize()?.display()),
    ];
    let mut rest = text.lines();
    // If another thread calls meanwhile, strace splits the line of a call; the arguments are in the first part.
    // The order is: the entry of its directory, its own entry, the run, the end.
    for (what, name) in [
        ("fsync(", above.as_str()),
        ("rename", "record.jsonl\""),
        ("fsync(", &directory),
        ("write(", &file),
        ("sync(", &file),
        ("finished_at", &file),
        ("sync(", &file),
        ("fsync(", &directory),
    ] {
        let found = rest.find(|line| line.contains(what) && line.contains(name));
        ensure!(
            found.is_some(),
            "no {what} of {name} where it should be: {text}"
        );
    }
    Ok(())
}

/// The file system has room for the beginning and a few of the runs.
const ROOM: &str = "size=128k";

#[test_support::test(Namespaces, Tool("unshare"))]
fn a_full_disk_ends_an_experiment_with_1_and_what_was_whole_is_resumed() -> Result<()> {
    let text = "\
name = 'small'
late_budget = '1s'
tcp = { congestion = 'reno' }
[[instruments]]
kind = 'probe'
parameters = { count = 300, interval = '1ms' }
[[cases]]
name = 'a'
repeats = 5
";
    let folder = Folder::of(text)?;
    // Use a mount namespace, which ends with its last process. The last command may end with 1 because a busy machine spoilt a run.
    let script = format!(
        "mkdir disk && mount -t tmpfs -o {ROOM} tmpfs disk || exit 99
         \"$0\" run own/x.toml --out disk/out 2>first
         echo $? >code
         cp disk/out/record.jsonl kept
         \"$0\" report disk/out >report 2>&1 || exit 98
         mount -o remount,size=8m tmpfs disk || exit 97
         \"$0\" run --resume disk/out 2>&1
         test $? -le 1 || exit 96
         cp -r disk/out out
         mount -o remount,size=8m tmpfs disk && dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null
         \"$0\" run own/x.toml --out disk/again 2>again
         echo $? >>code"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let program = farwire().get_program().to_owned();
    let output = process::run(command.arg(program).current_dir(folder.0.path()))?;
    ensure!(
        output.status.success(),
        "{}{}",
        output.status,
        told(&output)
    );
    let read = |name: &str| fs::read_to_string(folder.at(name));
    let (first, kept) = (read("first")?, read("kept")?);
    let why = "disk/out/record.jsonl: cannot write; the earlier runs are kept: No space left";
    ensure!(read("code")? == "1\n1\n", "{first}");
    has(&first, why)?;
    has(&first, "`farwire run --resume disk/out` continues")?;
    let before = kept.matches("\n{\"run\"").count();
    ensure!((1..5).contains(&before), "{before}: {first}");
    ensure!(kept.ends_with("}\n"), "{before}: {first}");
    let record = folder.record()?;
    // The record also has attempts that the machine spoilt.
    let repeats: BTreeSet<u32> = record.runs.iter().map(|run| run.repeat).collect();
    ensure!(
        repeats.len() == 5 && record.finished_at.is_some(),
        "{repeats:?}, {:?}, {}",
        record.finished_at,
        told(&output)
    );
    let all = read("out/record.jsonl")?;
    ensure!(
        all.starts_with(&kept),
        "what was kept is not what there was"
    );
    has(&read("again")?, "No space left")?;
    Ok(())
}

fn told(output: &Output) -> String {
    stderr(output)
}
