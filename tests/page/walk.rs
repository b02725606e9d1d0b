//! One walk through the page of a running `farwire exec` with traffic.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::browser::{Browser, ENTER};
use test_support::is_soak;
use test_support::process::{self, farwire, stderr, stdout, wait_for};

/// The number of typed values; each may be tried once before it is complete.
const MOST_HALF_TYPED: usize = 4;

/// The page asks for the required token, again after a wrong one, and then works as usual.
#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget")
)]
fn the_page_asks_for_the_token_that_is_wanted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    fs::write(&token, "token-0123456789abcdef")?;
    let walk = Walk::start(folder, &["--token-file".as_ref(), token.as_os_str()])?;
    let browser = &walk.browser;
    browser.wait("document.getElementById('token-dialog').open")?;
    browser.fill("#token", &format!("wrong{ENTER}"))?;
    browser.wait("document.getElementById('token-wrong').textContent !== ''")?;
    browser.fill("#token", &format!("token-0123456789abcdef{ENTER}"))?;
    walk.says("delay 20ms")?;
    browser.fill("#c-delay", &format!("60ms{ENTER}"))?;
    walk.says("delay 60ms")
}

#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget")
)]
fn by_the_page_a_link_is_changed_undone_and_taken_away_as_a_command_and_as_a_scenario() -> Result<()>
{
    let walk = Walk::start(tempfile::tempdir()?, &[])?;
    let browser = &walk.browser;
    walk.says("delay 20ms")?;
    browser.wait("parseFloat(document.querySelector('#tile-trip b').textContent) >= 40")?;
    browser.wait(
        "[...document.querySelectorAll('figure')].some((one) => one.textContent.startsWith('Round trip') && !one.hidden
            && one.querySelector('.look2') !== null)",
    )?;

    change_by_hand(&walk)?;
    walk.says("delay 60ms")?;
    walk.says("loss 10%")?;
    browser.click("#undo")?;
    walk.wait_for_pings(|ms| ms < 110.0)?;
    walk.says("delay 20ms")?;

    // An empty length of a lease must not make a permanent change.
    browser.click("#lease-wanted")?;
    browser.wait("(document.getElementById('lease-seconds').value = '') === ''")?;
    choose_profile(browser, "mobile")?;
    browser.wait(
        "document.body.textContent.includes('Enter after how many seconds the link reverts')",
    )?;
    walk.says("delay 20ms")?;
    browser.click("#lease-wanted")?;
    choose_profile(browser, "mobile")?;
    walk.says("delay 26.55ms")?;
    run_command(browser)?;
    run_scenario(browser, walk.folder.path())?;
    // A slowly typed value is tried before it is complete.
    let errors = browser.errors()?;
    let is_half_typed =
        |error: &String| error.contains("dry_run=1") && error.contains("status of 422");
    ensure!(errors.len() <= MOST_HALF_TYPED, "{errors:?}");
    ensure!(errors.iter().all(is_half_typed), "{errors:?}");
    Ok(())
}

/// A trace of delays is chosen as a file, applied, drawn, given another end, and removed.
#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget")
)]
fn by_the_page_a_link_follows_the_trace_of_a_file() -> Result<()> {
    let walk = Walk::start(tempfile::tempdir()?, &[])?;
    let browser = &walk.browser;
    walk.says("delay 20ms")?;
    let choose = |content: &str| {
        browser.wait(&format!(
            "(chooser => {{ const files = new DataTransfer(); files.items.add(new File([{content}], 'drive.csv'));
                chooser.files = files.files; return chooser.dispatchEvent(new Event('change')); }})(document.getElementById('c-trace-file'))"
        ))
    };
    choose("'x'.repeat(70000)")?;
    browser.wait("document.getElementById('c-trace-error').textContent.includes('at most 65536 are allowed here')")?;
    choose("'t,delay\\n0s,60ms\\n1s,61ms\\n2s,\\n'")?;
    browser.wait("document.getElementById('c-trace').value === 'drive.csv'")?;
    browser.wait("!document.getElementById('apply').disabled")?;
    browser.click("#apply")?;
    walk.says("trace drive.csv")?;
    walk.wait_for_pings(|ms| ms >= 120.0)?;
    // The link states the trace in its own form, which is no edit.
    browser.wait("document.getElementById('apply').disabled")?;
    browser.wait(
        "[...document.querySelectorAll('figure')].some((one) => one.textContent.startsWith('Delay in force') && !one.hidden
            && one.querySelector('.look0') !== null)",
    )?;
    browser.wait(
        "document.getElementById('schedule-state').textContent.startsWith('is running, at ')",
    )?;
    browser.wait("document.querySelector('.more').open")?;
    browser.fill("#c-trace", &format!("drive.csv,hold{ENTER}"))?;
    walk.says("hold")?;
    walk.wait_for_pings(|ms| ms >= 120.0)?;
    browser.fill("#c-trace", &format!(" {ENTER}"))?;
    walk.wait_for_pings(|ms| ms < 110.0)
}

/// A link that `farwire fit` wrote is put into force by its button.
#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget")
)]
fn the_page_puts_a_fitted_link_into_force() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let profiles = folder.path().join("own");
    fs::create_dir(&profiles)?;
    let fitted = "# The path to the office\n# [fitted] farwire fit, \"office\", 2026: as measured\n\ndelay = \"33ms\"\n";
    fs::write(profiles.join("office.toml"), fitted)?;
    fs::write(profiles.join("plain.toml"), "# By hand\ndelay = \"1ms\"\n")?;
    let walk = Walk::start(folder, &["--profiles".as_ref(), profiles.as_os_str()])?;
    let browser = &walk.browser;
    walk.says("delay 20ms")?;
    browser.wait("document.querySelectorAll('#fitted button').length === 1")?;
    browser.wait(
        "document.getElementById('fitted').textContent.includes('office: The path to the office')",
    )?;
    browser.wait("!document.querySelector('#fitted button').disabled")?;
    browser.click("#fitted button")?;
    walk.says("delay 33ms")?;
    browser.click("#undo")?;
    walk.says("delay 20ms")
}

/// Chooses a profile in the list.
fn choose_profile(browser: &Browser, name: &str) -> Result<()> {
    browser.wait(&format!(
        "(list => {{ list.value = '{name}'; return list.dispatchEvent(new Event('change')); }})(document.getElementById('profiles'))"
    ))
}

/// Types another delay and a loss; curve, counters and a real ping must follow.
fn change_by_hand(walk: &Walk) -> Result<()> {
    let browser = &walk.browser;
    browser.fill("#c-loss", "10%")?;
    browser.fill("#c-delay", "60ms")?;
    browser.wait("document.getElementById('implies').textContent.includes('120 ms')")?;
    browser.fill("#c-delay", &format!("60ms{ENTER}"))?;
    let changed = Instant::now();
    walk.wait_for_pings(|ms| ms >= 120.0)?;
    let ping = changed.elapsed();
    browser.wait("parseFloat(document.querySelector('#tile-trip b').textContent) >= 120")?;
    let page = changed.elapsed();
    println!(
        "after a change by hand a ping followed within {ping:.1?}, the page within {page:.1?}"
    );
    ensure!(
        !is_soak() || page.max(ping) < Duration::from_secs(1),
        "later than a second"
    );
    browser.wait("document.querySelectorAll('#figures figure:first-child polyline').length > 0")?;
    browser.wait("document.getElementById('counters').textContent.includes('dropped: loss')")
}

/// Checks that the command line that the page exports has the profile's delay.
fn run_command(browser: &Browser) -> Result<()> {
    let line = browser.read("document.getElementById('command').value")?;
    let line = line.as_str().context("no command line")?;
    let flags = line
        .strip_prefix("farwire exec ")
        .with_context(|| line.to_owned())?;
    let program = process::program();
    let line = format!("{program} exec {flags} -- ping -c 5 -i 0.1 10.77.0.2");
    let output = process::run(Command::new("sh").args(["-c", &line]))?;
    let said = stdout(&output);
    let fastest = round_trips(&said).fold(f64::INFINITY, f64::min);
    // There are two delays of 26.55 ms, each reduced by at most 5 ms of jitter.
    ensure!((43.0..1_000.0).contains(&fastest), "{line}: {output:?}");
    Ok(())
}

/// Checks that the scenario that the page exports has every change of the walk, and that it runs with fewer pings: all would take as long as
/// the walk did.
fn run_scenario(browser: &Browser, folder: &Path) -> Result<()> {
    let file = folder.join("link-scenario.toml");
    browser.click("#scenario")?;
    // Chromium reserves the name by an empty file, which the complete download replaces.
    let scenario = wait_for("the scenario to be downloaded", || {
        let text = file.is_file().then(|| fs::read_to_string(&file));
        Ok(text.transpose()?.filter(|text| !text.is_empty()))
    })?;
    for words in ["loss = \"10%\"", "delay = \"60ms\"", "delay = \"26.55ms\""] {
        ensure!(scenario.contains(words), "{words}: {scenario}");
    }
    let mut shorter: toml::Table = toml::from_str(&scenario)?;
    shorter["instruments"][0]["parameters"]["count"] = 20.into();
    fs::write(&file, shorter.to_string())?;
    let mut run = farwire();
    run.arg("run")
        .arg(&file)
        .args(["--late-budget", "1s", "--out"])
        .arg(folder.join("out"));
    let ran = process::run(&mut run)?;
    // The exit code is 1 if the host was too busy for a measurement.
    let said = stderr(&ran);
    ensure!(matches!(ran.status.code(), Some(0 | 1)), "{scenario}{said}");
    ensure!(folder.join("out/record.jsonl").is_file(), "{said}");
    Ok(())
}

/// Reads the round trips in the output of ping(8), in ms.
fn round_trips(said: &str) -> impl Iterator<Item = f64> {
    let times = said.split("time=").skip(1);
    times.filter_map(|rest| rest.split(' ').next()?.parse().ok())
}

/// A link that carries a download and pings, and a browser that shows its page.
pub(crate) struct Walk {
    pub(crate) browser: Browser,
    _link: Running,
    /// The output of the pings.
    pings: PathBuf,
    /// Has the output and the downloads.
    folder: TempDir,
}

impl Walk {
    /// Starts the link with these additional flags, and opens its page.
    pub(crate) fn start(folder: TempDir, flags: &[&OsStr]) -> Result<Self> {
        let pings = folder.path().join("pings");
        let link = Running::start(&pings, flags)?;
        let browser = Browser::start(folder.path())?;
        browser.open(&link.url)?;
        Ok(Self {
            browser,
            _link: link,
            pings,
            folder,
        })
    }

    /// Waits until the page states these conditions.
    fn says(&self, words: &str) -> Result<()> {
        self.browser.wait(&format!(
            "document.getElementById('state-words').textContent.includes('{words}')"
        ))
    }

    /// Waits until the time of the latest ping, in ms, satisfies `is_so`.
    fn wait_for_pings(&self, is_so: impl Fn(f64) -> bool) -> Result<()> {
        wait_for("pings to follow the change", || {
            let text = fs::read_to_string(&self.pings)?;
            Ok(round_trips(&text).last().filter(|ms| is_so(*ms)).map(drop))
        })
    }
}

/// A link that carries a download and pings, and the address of its page.
pub(crate) struct Running {
    farwire: Child,
    pub(crate) url: String,
}

impl Running {
    /// Starts the link with these additional flags.
    fn start(pings: &Path, flags: &[&OsStr]) -> Result<Self> {
        let traffic = "wget -qO /dev/null http://$FARWIRE_SERVER/seconds/600 & exec ping -i 0.1 $FARWIRE_SERVER";
        let mut farwire = farwire();
        farwire
            .args(["exec", "--listen", "127.0.0.1:0", "--delay", "20ms"])
            .args(flags)
            .args(["--rate", "20mbit", "--", "sh", "-c", traffic])
            .stdout(fs::File::create(pings)?);
        Self::of(&mut farwire, "live page and API: ")
    }

    /// Starts a command that prints the address of its page after these words.
    pub(crate) fn of(farwire: &mut Command, words: &str) -> Result<Self> {
        let mut farwire = farwire.stderr(Stdio::piped()).spawn()?;
        let stderr = farwire.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let said = lines.find_map(|line| {
            let (_, url) = line
                .ok()?
                .split_once(words)
                .map(|(a, b)| (a.to_owned(), b.to_owned()))?;
            Some(url)
        });
        // Read the rest, so that the command never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let mut running = Self {
            farwire,
            url: String::new(),
        };
        running.url = said.context("farwire does not say where it listens")?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.farwire.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.farwire.wait();
    }
}
