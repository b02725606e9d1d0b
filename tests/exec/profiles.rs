//! Profiles that a user wrote, and scripts of tc's commands that become links.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::process::{self, farwire, has, stderr, stdout};

/// Returns the program with its files below `home` only.
fn at_home(home: &Path) -> Command {
    let mut command = farwire();
    command
        .current_dir(home)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME");
    command
}

/// Returns the delay of a profile, and the notes beside it.
fn delay(command: &mut Command, name: &str) -> Result<(String, String)> {
    let output = process::succeeds(command.args(["profiles", name, "--json", "-"]))?;
    let listed: Value = serde_json::from_str(&stdout(&output))?;
    let delay = listed["conditions"]["delay"].as_str();
    Ok((delay.context("no delay")?.to_owned(), stderr(&output)))
}

#[test_support::test]
fn a_name_is_looked_for_in_the_given_folder_here_at_home_and_among_those_that_ship() -> Result<()> {
    let home = tempfile::tempdir()?;
    let write = |folder: &str, delay: &str| -> Result<()> {
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder)?;
        let text = format!("# Mine\ndelay = \"{delay}\" # assumed\n");
        Ok(fs::write(folder.join("mobile.toml"), text)?)
    };
    let here = || at_home(home.path());
    let (shipped, note) = delay(&mut here(), "mobile")?;
    ensure!(shipped == "26.55ms" && note.is_empty(), "{shipped}: {note}");
    write(".config/farwire/profiles", "1ms")?;
    let (own, note) = delay(&mut here(), "mobile")?;
    ensure!(own == "1ms", "{own}");
    has(&note, "mobile.toml hides the one that ships with farwire")?;
    write("settings/farwire/profiles", "2ms")?;
    let settings = home.path().join("settings");
    let (own, _) = delay(here().env("XDG_CONFIG_HOME", &settings), "mobile")?;
    ensure!(own == "2ms", "{own}");
    write("profiles", "3ms")?;
    ensure!(delay(&mut here(), "mobile")?.0 == "3ms");
    write("given", "4ms")?;
    let mut link = here();
    link.args([
        "link",
        "--profile",
        "mobile",
        "--profiles",
        "given",
        "--json",
        "-",
    ]);
    let output = process::succeeds(&mut link)?;
    has(&stdout(&output), "\"round_trip_ms\": 8")?;
    Ok(())
}

#[test_support::test]
fn the_list_has_the_figures_of_each_profile_and_no_picture_in_a_pipe() -> Result<()> {
    let home = tempfile::tempdir()?;
    let listed = process::succeeds(at_home(home.path()).arg("profiles"))?;
    let words = stdout(&listed)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    has(
        &words,
        "geo-satellite: A house behind a geostationary satellite 19 Mbit/s down, 3.53 Mbit/s up, round trip 630 ms, loss 0.1 %",
    )?;
    ensure!(!words.contains('\u{2585}'), "{words}");
    let listed =
        process::succeeds(at_home(home.path()).args(["profiles", "train", "--json", "-"]))?;
    let train: Value = serde_json::from_str(&stdout(&listed))?;
    let down = &train["first_minute"]["down"];
    let outage = down["outage_percent"].as_f64().context("no outage")?;
    ensure!((20.0..25.0).contains(&outage), "{down}");
    ensure!(
        down["rate_bit_per_s"].as_f64().context("no rate")? > 4e6,
        "{down}"
    );
    Ok(())
}

#[test_support::test]
fn a_profile_of_ones_own_is_made_used_and_checked() -> Result<()> {
    let home = tempfile::tempdir()?;
    let run = |line: &str| process::run(at_home(home.path()).args(line.split(' ')));
    let made = process::succeeded(run("profiles new office --profile mobile --delay 7ms")?)?;
    has(&stderr(&made), "use it with --profile office")?;
    let file = home.path().join(".config/farwire/profiles/office.toml");
    ensure!(file.is_file());
    process::succeeded(run("link --profile office")?)?;
    let checked = process::succeeded(run("profiles check")?)?;
    has(&stdout(&checked), "office: ok")?;
    let text = fs::read_to_string(&file)?.replace("  # assumed", "");
    fs::write(&file, text)?;
    let checked = run("profiles check")?;
    ensure!(checked.status.code() == Some(1), "{checked:?}");
    has(&stdout(&checked), "`delay = \"7ms\"`: it has no source")?;
    process::ends_with(&run("link --profile offic")?, 2, "did you mean `office`?")?;
    process::ends_with(
        &run("profiles new office --delay 1ms")?,
        2,
        "the file exists",
    )?;
    Ok(())
}

#[test_support::test]
fn a_tc_script_from_standard_input_becomes_a_link_and_what_has_no_equivalent_is_named() -> Result<()>
{
    let script = tempfile::NamedTempFile::new()?;
    fs::write(
        script.path(),
        "tc qdisc add dev eth0 root netem delay 10ms\ntc qdisc add dev eth1 root sfq\n",
    )?;
    let input = Stdio::from(fs::File::open(script.path())?);
    let output = process::run_with(farwire().args(["link", "--from-tc", "-"]), input)?;
    process::ends_with(&output, 1, "-:2: no equivalent: the qdisc sfq")?;
    has(&stdout(&output), "[up]\nnetem = \"delay 10ms\"\n")?;
    let mut as_json = farwire();
    as_json.args(["link", "--json", "-", "--from-tc"]);
    let output = process::run(as_json.arg(script.path()))?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let converted: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        converted["link"]["up"]["netem"] == "delay 10ms",
        "{converted}"
    );
    let lacks = serde_json::json!([{ "line": 2, "what": "the qdisc sfq" }]);
    ensure!(converted["no_equivalent"] == lacks, "{converted}");
    let mut both = farwire();
    both.args(["link", "--delay", "1ms", "--from-tc"])
        .arg(script.path());
    process::ends_with(
        &process::run(&mut both)?,
        2,
        "takes all conditions from the script",
    )?;
    Ok(())
}
