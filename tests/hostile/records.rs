//! Records from strangers: none stops a command, fills the memory, or causes writes outside of its directory.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use test_support::api::Listening;
use test_support::powerless;
use test_support::process::{self, ends_with, farwire, has, limited, root, stderr, stdout};
use test_support::scenario::{PING, PLAIN, Small};

/// The address space of a command: far more than it needs, but less than an endless record would take.
const MEMORY: &str = "--as=2000000000";
/// The length of a sparse file, which takes no room on the disk.
const SPARSE: u64 = 10 << 30;
const RECORD: &str = "record.jsonl";

/// Directories with records, beside each other.
struct Records(TempDir);

impl Records {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of the record in a new directory.
    fn make(&self, name: &str) -> Result<PathBuf> {
        fs::create_dir(self.at(name))?;
        Ok(self.at(name).join(RECORD))
    }

    /// Writes a new record with this text.
    fn with(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.make(name)?, text)?)
    }

    /// Runs a command in their parent directory, with little memory.
    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = limited(MEMORY);
        process::run(command.args(words).current_dir(self.0.path()))
    }

    /// Checks that every command that reads the record in `name` ends with 2 and prints `why` after the record's path.
    fn all_refuse(&self, name: &str, why: &str) -> Result<()> {
        let commands: [&[&str]; 6] = [
            &["report", name],
            &["compare", name, name],
            &["merge", name, name, "--out", "joined"],
            &["run", "--resume", name],
            &["run", "--resume", name, "--check"],
            &["calibrate", "--resume", name],
        ];
        for words in commands {
            let refused = self.run(words)?;
            let said = ends_with(&refused, 2, format!("{name}/{RECORD}"));
            let said = said.with_context(|| words.join(" "))?;
            has(&said, why)?;
            ensure!(said.lines().count() == 1, "{words:?}: {said}");
        }
        ensure!(!self.at("joined").exists(), "something was written");
        Ok(())
    }
}

/// Returns the small record with one text replaced.
fn small(from: &str, to: &str) -> Result<String> {
    let text = fs::read_to_string(root().join("tests/fixtures/records/small.jsonl"))?;
    ensure!(text.contains(from), "{from} is not in the record");
    Ok(text.replacen(from, to, 1))
}

/// A file that is not regular, or that is endless.
type BadFile = (&'static str, fn(&Path) -> Result<()>, &'static str);

const BAD_FILES: [BadFile; 5] = [
    (
        "fifo",
        |path| Ok(mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?),
        "a FIFO, not a regular file",
    ),
    (
        "device",
        |path| Ok(symlink("/dev/zero", path)?),
        "", // A device, or a link that is not followed.
    ),
    (
        "sparse",
        |path| Ok(File::create(path)?.set_len(SPARSE)?),
        ":1: longer than 64 MiB",
    ),
    (
        "list",
        |path| Ok(fs::write(path, "[\"farwire-record\",5]\n")?),
        ":1: not a farwire record",
    ),
    (
        "repeats",
        |path| {
            let most = small("\"least\":1,\"most\":1", "\"least\":1,\"most\":4294967295")?;
            Ok(fs::write(path, most)?)
        },
        ":1: repeats: 2 cases with up to 4294967295 repeats each: at most 100000 runs in all",
    ),
];

#[test_support::test(Tool("prlimit"))]
fn a_record_that_is_no_regular_file_has_no_end_or_counts_too_far_is_refused_by_every_command()
-> Result<()> {
    let records = Records::new()?;
    for (name, make, why) in BAD_FILES {
        make(&records.make(name)?)?;
        records.all_refuse(name, why)?;
    }
    let shard = r#""seed":1,"shard":{"index":1,"of":4294967295,"by":"run","runs":{}}"#;
    records.with("shard", &small("\"seed\":1", shard)?)?;
    records.all_refuse("shard", ":1: the number of shards must be 1 to 1000")?;
    for (number, name) in ["a\\u001b[2J", "a\\nb", "a\\u202eb"]
        .into_iter()
        .enumerate()
    {
        let record = format!("name-{number}");
        let case = format!("\"name\":\"{name}\"");
        records.with(&record, &small("\"name\":\"slow\"", &case)?)?;
        records.all_refuse(&record, "name: it contains a control character")?;
    }
    records.with(
        "path",
        &small("\"name\":\"small\"", "\"name\":\"../small\"")?,
    )?;
    records.all_refuse(
        "path",
        ":1: name: `../small`: the directory of the record has this name",
    )
}

#[test_support::test(Tool("prlimit"))]
fn bad_records_in_a_folder_are_named_by_view_and_hide_no_other() -> Result<()> {
    let records = Records::new()?;
    records.with("good", &small("", "")?)?;
    for (name, make, _) in BAD_FILES {
        make(&records.make(name)?)?;
    }
    let mut view = limited(MEMORY);
    view.args(["view", "--listen", "127.0.0.1:0"])
        .arg(records.at(""));
    let view = Listening::start(&mut view)?;
    for _ in 0..2 {
        let index = view.get("/")?;
        ensure!(index.status == 200, "{index:?}");
        has(&index.text, "href=\"good/report.html\"")?;
        for (name, ..) in BAD_FILES {
            has(&index.text, format!("{name}/{RECORD}"))?;
            let report = view.get(&format!("/{name}/report.html"))?;
            ensure!(report.status == 500, "{name}: {report:?}");
        }
        let report = view.get("/good/report.html")?;
        ensure!(report.status == 200, "{report:?}");
    }
    view.terminate()
}

#[test_support::test(Tool("prlimit"))]
fn a_scenario_that_repeats_too_many_runs_is_refused_with_its_line() -> Result<()> {
    let records = Records::new()?;
    let cases = "[[cases]]\nname = 'a'\nrepeats = 4294967295\n";
    for (repeats, why) in [
        (
            "4294967295",
            "x.toml:8: repeats: `4294967295` is not a number of runs from 1 to 100000",
        ),
        (
            "100000\n[[cases]]\nname = 'b'",
            "x.toml:1: repeats: 2 cases with up to 100000 repeats each",
        ),
    ] {
        let text = format!("name = 'x'\n{PING}{cases}");
        fs::write(records.at("x.toml"), text.replace("4294967295", repeats))?;
        for words in ["run x.toml --check", "run x.toml --shard 1/2", "run x.toml"] {
            let words: Vec<&str> = words.split(' ').collect();
            let said = ends_with(&records.run(&words)?, 2, "x.toml")?;
            has(&said, why)?;
        }
    }
    ensure!(!records.at("out").exists(), "something was written");
    Ok(())
}

#[test_support::test(Tool("prlimit"))]
fn samples_that_are_years_apart_are_refused_as_flents_with_their_case() -> Result<()> {
    let records = Records::new()?;
    records.with("far", &small("\"at_s\":0.1", "\"at_s\":1e9")?)?;
    let refused = records.run(&["report", "far", "--format", "flent", "--out", "fl"])?;
    ends_with(&refused, 2, "the samples span 1000000000 s, more than the")?;
    for format in ["text", "html", "md", "csv", "json"] {
        let made = records.run(&["report", "far", "--format", format])?;
        ensure!(made.status.success(), "{format}: {made:?}");
    }
    Ok(())
}

#[test_support::test(Tool("prlimit"))]
fn what_merge_suggests_is_obeyed_by_no_terminal() -> Result<()> {
    let records = Records::new()?;
    let shard = r#""seed":1,"shard":{"index":1,"of":2,"by":"run","runs":{}}"#;
    let text = small("\"seed\":1", shard)?;
    let text = text.replacen(
        "\"file\":\"small.toml\"",
        "\"file\":\"a\\u001b[2J\\u202e.toml\"",
        1,
    );
    let head = text.lines().next().context("its head")?;
    records.with("first", &format!("{head}\n"))?;
    let merged = records.run(&["merge", "first", "--out", "joined"])?;
    let said = stdout(&merged);
    has(&said, r"farwire run 'a\u{1b}[2J\u{202e}.toml'")?;
    let all = said + &stderr(&merged);
    ensure!(!all.contains(['\u{1b}', '\u{202e}']), "{all:?}");
    Ok(())
}

/// Files outside of a record's directory, which must stay as they are.
struct Outside(PathBuf);

impl Outside {
    fn beside(small: &Small) -> Result<Self> {
        let outside = Self(small.path("outside"));
        fs::create_dir(&outside.0)?;
        fs::write(outside.0.join("file"), "of somebody")?;
        Ok(outside)
    }

    /// Creates a symbolic link to the file.
    fn link(&self, from: &Path) -> Result<()> {
        Ok(symlink(self.0.join("file"), from)?)
    }

    fn check_untouched(&self) -> Result<()> {
        ensure!(fs::read_to_string(self.0.join("file"))? == "of somebody");
        ensure!(fs::read_dir(&self.0)?.count() == 1, "it has another file");
        Ok(())
    }
}

/// A probe whose CSV is kept as an artifact, in a case whose name a shell would execute.
const PROBE: &str = "\
[[instruments]]
name = 'probe'
kind = 'probe'
csv = true
parameters = { count = 3, interval = '5ms' }
[[cases]]
name = '$(touch executed)'
";

#[test_support::test(Namespaces)]
fn a_link_in_the_directory_of_a_record_leads_no_write_of_resume_out_of_it() -> Result<()> {
    let small = Small::of(&[PROBE])?;
    process::succeeded(small.run()?)?;
    let outside = Outside::beside(&small)?;
    let record = small.path("out/record.jsonl");
    let text = fs::read_to_string(&record)?;
    let head = text.lines().next().context("its head")?.to_owned() + "\n";
    let resume = || {
        let mut command = farwire();
        process::run(command.args(["run", "--resume"]).arg(small.path("out")))
    };
    // The reports are replaced, including the links.
    fs::write(&record, &head)?;
    for report in ["report.html", "runs.csv", "samples.csv"] {
        fs::remove_file(small.path("out").join(report))?;
        outside.link(&small.path("out").join(report))?;
    }
    process::succeeded(resume()?)?;
    outside.check_untouched()?;
    for report in ["report.html", "runs.csv", "samples.csv", "artifacts"] {
        let found = small.path("out").join(report).symlink_metadata()?;
        ensure!(!found.is_symlink(), "{report} is still a link");
    }
    // The same applies to the files that a run leaves.
    fs::write(&record, &head)?;
    let artifacts = small.path("out/artifacts");
    let mut left = fs::read_dir(&artifacts)?;
    let csv = left.next().context("no artifact")??.path();
    fs::remove_file(&csv)?;
    outside.link(&csv)?;
    process::succeeded(resume()?)?;
    outside.check_untouched()?;
    ensure!(!csv.symlink_metadata()?.is_symlink(), "it is still a link");
    // If the folder itself leads elsewhere, the run has failed.
    fs::write(&record, &head)?;
    fs::remove_dir_all(&artifacts)?;
    symlink(&outside.0, &artifacts)?;
    ensure!(resume()?.status.code() == Some(1));
    outside.check_untouched()?;
    let cause = "artifacts/$(touch executed)-1-probe.csv: cannot write";
    has(&fs::read_to_string(&record)?, cause)?;
    // Nothing is appended to a record that is elsewhere, or that has another name there.
    let elsewhere = small.path("elsewhere");
    fs::write(&elsewhere, &head)?;
    for link in [
        (|from, to| symlink(from, to)) as fn(&Path, &Path) -> std::io::Result<()>,
        |from, to| fs::hard_link(from, to),
    ] {
        fs::remove_file(&record)?;
        link(&elsewhere, &record)?;
        ends_with(&resume()?, 2, "out/record.jsonl: the file ")?;
        ensure!(fs::read_to_string(&elsewhere)? == head, "it was written");
    }
    ensure!(!Path::new("executed").exists() && !small.path("executed").exists());
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_link_in_the_output_directory_leads_no_write_of_run_or_merge_out_of_it() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let outside = Outside::beside(&small)?;
    fs::create_dir(small.path("out"))?;
    outside.link(&small.path("out/record.partial"))?;
    ends_with(&small.run()?, 2, "the file is a symbolic link")?;
    outside.check_untouched()?;
    fs::remove_file(small.path("out/record.partial"))?;
    for name in ["report.html", "runs.csv", "samples.csv", "record.jsonl"] {
        let link = small.path("out").join(name);
        let _ = fs::remove_file(&link);
        outside.link(&link)?;
    }
    // A record behind a symbolic link is a record and is not replaced.
    ends_with(&small.run()?, 2, "contains a record")?;
    fs::remove_file(small.path("out/record.jsonl"))?;
    process::succeeded(small.run()?)?;
    outside.check_untouched()?;
    let merge = || {
        let mut command = farwire();
        command.arg("merge").arg(small.path("out"));
        process::run(command.arg("--out").arg(small.path("all")))
    };
    fs::create_dir(small.path("all"))?;
    outside.link(&small.path("all/record.partial"))?;
    ends_with(&merge()?, 2, "the file is a symbolic link")?;
    outside.check_untouched()?;
    fs::remove_file(small.path("all/record.partial"))?;
    for name in ["report.html", "runs.csv", "samples.csv"] {
        outside.link(&small.path("all").join(name))?;
    }
    process::succeeded(merge()?)?;
    outside.check_untouched()
}

#[test_support::test(Namespaces)]
fn check_of_a_resume_lists_what_would_run_and_be_used_and_changes_nothing() -> Result<()> {
    let records = Records::new()?;
    let bed = r#""bed":{"kind":"netns","mtu":1500,"offloads":true,"wire":{}}"#;
    let nic = |number: u32| {
        format!(r#"{{"interface":"no-such{number}","address":"192.0.2.{number}/24"}}"#)
    };
    let nics = format!(
        r#""bed":{{"kind":"nics","client":{},"server":{}}}"#,
        nic(1),
        nic(2)
    );
    let lines =
        |text: &str, count: usize| -> String { text.split_inclusive('\n').take(count).collect() };
    // The last line is cut off; a resume would remove it.
    // Every host supports reno.
    let head = |from: &str, to: &str| -> Result<String> {
        Ok(small(from, to)?.replace("\"congestion\":\"cubic\"", "\"congestion\":\"reno\""))
    };
    let one_run = lines(&head("", "")?, 2) + "{\"run\":";
    let foreign = lines(&head(bed, &nics)?, 1) + "{\"run\":";
    records.with("one", &one_run)?;
    records.with("foreign", &foreign)?;
    for (name, code, said) in [
        (
            "one",
            0,
            vec!["slow: repeats 1 to 2", "\ninterfaces: none\n"],
        ),
        (
            "foreign",
            0,
            vec!["base: repeat 1", "\ninterfaces: no-such1, no-such2\n"],
        ),
    ] {
        let before = fs::read_to_string(records.at(name).join(RECORD))?;
        let mut command = farwire();
        command.current_dir(records.at(""));
        let checked = process::run(command.args(["run", "--resume", name, "--check"]))?;
        let (text, told) = (stdout(&checked), stderr(&checked));
        ensure!(checked.status.code() == Some(code), "{name}: {text}{told}");
        for words in said {
            has(&text, words)?;
        }
        ensure!(name != "one" || !text.contains("base: repeat"), "{text}");
        let after = fs::read_to_string(records.at(name).join(RECORD))?;
        ensure!(before == after, "{name}: the record has changed");
        ensure!(
            fs::read_dir(records.at(name))?.count() == 1,
            "{name}: a file"
        );
    }
    // Without --check, the interfaces are printed before they are taken.
    let mut command = farwire();
    command.current_dir(records.at(""));
    let resumed = process::run(command.args(["run", "--resume", "foreign"]))?;
    has(
        &stderr(&resumed),
        "foreign: the experiment uses the interfaces no-such1, no-such2",
    )
}

#[test_support::test(Tool("prlimit"))]
fn a_report_that_ends_half_way_leaves_the_file_as_it_was() -> Result<()> {
    let records = Records::new()?;
    records.with("small", &small("", "")?)?;
    let page = records.at("page");
    for (line, end) in [
        ("report small --format html --out page", "</html>"),
        ("profiles lte-good --json page", "\n}\n"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        for before in [None, Some("older")] {
            if let Some(text) = before {
                fs::write(&page, text)?;
            }
            // A file with more bytes than this ends the program.
            let mut command: Command = limited("--fsize=64");
            let ended = process::run(command.args(&words).current_dir(records.at("")))?;
            ensure!(!ended.status.success(), "{line}: {ended:?}");
            let after = fs::read_to_string(&page).ok();
            ensure!(after.as_deref() == before, "{line}: {after:?}");
        }
        let made = records.run(&words)?;
        ensure!(made.status.success(), "{line}: {made:?}");
        has(&fs::read_to_string(&page)?, end).context(line)?;
        fs::remove_file(&page)?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("mount"), Tool("unshare"))]
fn a_file_that_no_new_file_can_replace_is_written_in_place() -> Result<()> {
    let records = Records::new()?;
    let write = ["profiles", "lte-good", "--json", "file"];
    let longer = "older ".repeat(10_000);
    let check = |folder: &str, written: &str| -> Result<()> {
        let text = fs::read_to_string(records.at(written))?;
        let is_new = text.starts_with('{') && text.ends_with("\n}\n");
        ensure!(is_new, "{folder}: {text:.200}");
        let files = fs::read_dir(records.at(folder))?.count();
        ensure!(files == 1, "{folder}: {files} files");
        Ok(())
    };

    // A file that a container has from outside cannot be renamed over.
    fs::create_dir(records.at("container"))?;
    fs::write(records.at("container/file"), "")?;
    fs::write(records.at("outside"), &longer)?;
    let mut command = Command::new("unshare");
    let script = "mount --bind ../outside file && exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", script]);
    command.arg(process::program()).args(write);
    process::succeeds(command.current_dir(records.at("container")))?;
    check("container", "outside")?;

    // Without capabilities, root too may not write this directory.
    let folder = records.at("folder");
    fs::create_dir(&folder)?;
    fs::write(folder.join("file"), &longer)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o555))?;
    let in_folder = |name: &str| -> Result<Output> {
        let mut command = powerless::farwire_with(&[])?;
        command.args(&write[..3]).arg(name);
        process::run(command.current_dir(&folder))
    };
    process::succeeded(in_folder("file")?)?;
    check("folder", "folder/file")?;
    let refused = in_folder("new")?;
    has(&stderr(&refused), "new: cannot write: Permission denied")?;
    fs::hard_link(folder.join("file"), records.at("second"))?;
    has(&stderr(&in_folder("file")?), "hard links")?;
    fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    Ok(())
}

#[test_support::test(Root, Tool("prlimit"))]
fn a_file_that_root_replaces_stays_its_owners() -> Result<()> {
    let records = Records::new()?;
    let file = records.at("file");
    fs::write(&file, "older")?;
    fs::set_permissions(&file, Permissions::from_mode(0o640))?;
    chown(&file, Some(1001), Some(1002))?;
    let before = fs::metadata(&file)?;
    let made = records.run(&["profiles", "lte-good", "--json", "file"])?;
    ensure!(made.status.success(), "{made:?}");
    let after = fs::metadata(&file)?;
    ensure!(after.ino() != before.ino(), "the file was not replaced");
    let found = (after.uid(), after.gid(), after.mode() & 0o777);
    ensure!(found == (1001, 1002, 0o640), "{found:?}");
    Ok(())
}
