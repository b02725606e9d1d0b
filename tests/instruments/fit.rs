//! `farwire fit` on links that it does not know.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig};
use netio::netns::NetNs;
use serde_json::Value;

use super::tcp::start;
use test_support::process::{self, farwire, has, stderr, stdout};

/// The far end of `farwire exec`.
const SERVER: &str = "10.77.0.2";
/// The time that a fit with its comparison takes.
const LONGEST: Duration = Duration::from_secs(180);

/// Fits the link of `farwire exec` with these options, and returns the result and the text of the link.
fn fitted(link: &str, options: &[&str]) -> Result<(Value, String)> {
    fitted_toward(None, link, options)
}

/// Fits such a link towards a far end that runs this command in place of farwire's server.
fn fitted_toward(far: Option<&str>, link: &str, options: &[&str]) -> Result<(Value, String)> {
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path()).arg("exec");
    command.args(link.split_whitespace());
    if let Some(far) = far {
        command.args(["--far", far]);
    }
    command.arg("--");
    command.arg(farwire().get_program());
    command.args(["fit", SERVER, "--json", "-"]).args(options);
    let output = process::run_for(&mut command, LONGEST)?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let result = serde_json::from_str(&stdout(&output))?;
    let text = fs::read_to_string(directory.path().join("fit-10.77.0.2/link.toml"))?;
    Ok((result, text))
}

/// Returns the parameter of a direction.
fn parameter<'a>(result: &'a Value, direction: &str, name: &str) -> Result<&'a Value> {
    let all = result["parameters"].as_array().context("no parameters")?;
    let mut all = all.iter();
    let found = all.find(|one| one["direction"] == direction && one["name"] == name);
    found.with_context(|| format!("no {name} {direction} in {result}"))
}

fn number(result: &Value, direction: &str, name: &str) -> Result<f64> {
    let parameter = parameter(result, direction, name)?;
    parameter["value"]
        .as_f64()
        .with_context(|| format!("{parameter}"))
}

/// Checks that a number is within an absolute or a relative distance of the truth.
fn is_near(found: f64, truth: f64, absolute: f64, relative: f64, what: &str) -> Result<()> {
    let most = absolute.max(relative * truth);
    ensure!(
        (found - truth).abs() <= most,
        "{what}: {found} instead of {truth}"
    );
    Ok(())
}

#[test_support::test(serial, All, Namespaces)]
fn a_rate_that_steps_becomes_a_trace_in_both_directions() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let steps = directory.path().join("steps.csv");
    fs::write(&steps, "t,rate\n0s,4mbit\n1s,12mbit\n2s,\n")?;
    let hidden = format!("--trace {} --delay 10ms --queue 64KiB", steps.display());
    let (result, link) = fitted(&hidden, &["--time", "24s", "--no-proof"])?;
    for way in ["up", "down"] {
        let rate = parameter(&result, way, "rate")?;
        let evidence = rate["evidence"].as_str().unwrap_or_default();
        has(evidence, "the link follows the rate over time")?;
    }
    let traces = link.matches("\ntrace = ").count();
    ensure!(traces == 2 && !link.contains("\nrate = "), "{link}");
    Ok(())
}

#[test_support::test(serial, All, Namespaces)]
fn a_burst_that_is_served_more_slowly_than_a_full_load_becomes_a_light_load() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let full = directory.path().join("full.csv");
    let light = directory.path().join("burst.light");
    let rates = [6, 16, 9, 18, 7, 14, 17, 6, 12, 19];
    let lines = (0..).zip(rates);
    let lines = lines.map(|(at, rate)| format!("{}ms,{rate}mbit\n", 300 * at));
    let lines: String = lines.collect();
    fs::write(&full, format!("t,rate\n{lines}3s,\n"))?;
    // A packet of 1,400 bytes every 5 ms: 2.24 Mbit/s, which is less than a full load ever has.
    let train = "30 0 5 10 15 20 25 30 35 40 45";
    let lines = format!("0 {train}\n1000 {train}\n2000 {train}\n3000 30 0\n");
    fs::write(&light, lines)?;
    let hidden = format!(
        "--up-delay 10ms --up-rate 20mbit --down-queue 100pkt --down-trace {},light={}",
        full.display(),
        light.display()
    );
    let options = ["--time", "40s", "--no-proof", "--budget", "200mb"];
    let (result, link) = fitted(&hidden, &options)?;
    let rate = number(&result, "down", "light load")?;
    is_near(rate, 2.24, 0.0, 0.1, "the rate of a burst")?;
    let (up, down) = link.split_once("[down]").context("no direction down")?;
    ensure!(!up.contains("light"), "{link}");
    let (_, lines) = down
        .split_once("light_content = \"")
        .with_context(|| format!("no light load in {link}"))?;
    let first = lines.split("\\n").next().unwrap_or_default();
    let last = first.rsplit(' ').next().unwrap_or_default();
    is_near(last.parse()?, 45.0, 2.0, 0.0, "the last arrival of a train")?;
    let file = directory.path().join("link.toml");
    fs::write(&file, &link)?;
    process::succeeds(farwire().arg("link").arg("--link").arg(file))?;
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn a_hidden_link_is_found_and_its_file_is_a_link() -> Result<()> {
    let hidden = "--rate 20mbit --queue 100ms --loss 1% --up-delay 20ms --down-delay 35ms --down-path-mtu 1480";
    let (result, link) = fitted(hidden, &["--time", "24s", "--no-proof"])?;
    for (way, delay) in [("up", 20.0), ("down", 35.0)] {
        is_near(number(&result, way, "delay")?, delay, 0.5, 0.02, "delay")?;
        is_near(number(&result, way, "rate")?, 20.0, 0.0, 0.03, "rate")?;
        is_near(number(&result, way, "queue")?, 100.0, 0.0, 0.15, "queue")?;
        let loss = parameter(&result, way, "loss")?;
        let percent = number(&result, way, "loss")?;
        let ends = [0, 1].map(|end| loss["interval"][end].as_f64().unwrap_or(percent));
        // One of twenty intervals may miss the truth. Twice as wide, hardly any does.
        let [low, high] = ends.map(|end| percent + 2.0 * (end - percent));
        ensure!((low..=high).contains(&1.0), "{way}: {loss}");
        let kind = &parameter(&result, way, "queue kind")?["word"];
        // A busy machine may hide which one it is, but no wrong one is stated.
        ensure!(
            kind == "fifo" || kind == "cannot be distinguished",
            "{way}: {kind}"
        );
    }
    has(&link, "# [fitted] farwire fit, \"10.77.0.2\"")?;
    // That up is the test bed's, which no file has to state.
    let mtus = ["up", "down"].map(|way| number(&result, way, "path MTU").ok());
    ensure!(mtus == [Some(1500.0), Some(1480.0)], "{mtus:?}");
    let (_, down) = link.split_once("[down]").context("no direction down")?;
    has(down, "path_mtu = \"1480\"")?;
    ensure!(link.matches("path_mtu").count() == 1, "{link}");
    ensure!(
        result["not_compared"] == "--no-proof leaves the comparison out",
        "{result}"
    );
    Ok(())
}

#[test_support::test(serial, Namespaces, All)]
fn the_fitted_link_is_compared_with_the_path() -> Result<()> {
    let hidden = "--rate 20mbit --queue 60ms --up-delay 10ms --down-delay 15ms";
    let (result, _) = fitted(hidden, &["--time", "24s"])?;
    let comparison = &result["comparison"];
    let delays = comparison["delays"].as_array().context("no delays")?;
    ensure!(delays.len() == 4, "{comparison}");
    let idle = &delays[0];
    let [path, link] = [0, 1].map(|at| idle["p50_ms"][at].as_f64().unwrap_or_default());
    is_near(link, path, 0.5, 0.02, "idle p50")?;
    let statement = comparison["statement"].as_str().context("no statement")?;
    has(statement, "idle delay (")
}

/// Checks that a parameter was not learnt in either direction, and that the file has no line for it.
fn is_absent(result: &Value, link: &str, name: &str, key: &str) -> Result<()> {
    for way in ["up", "down"] {
        let word = &parameter(result, way, name)?["word"];
        ensure!(word == "not learnt", "{way} {name}: {word}");
    }
    let stated = link.lines().find(|line| line.starts_with(key));
    ensure!(stated.is_none(), "{stated:?}");
    Ok(())
}

#[test_support::test(serial, Namespaces, All)]
fn a_host_that_only_answers_pings_shows_the_round_trip_and_no_rate() -> Result<()> {
    let hidden = "--rate 20mbit --up-delay 10ms --down-delay 30ms";
    let (result, link) = fitted_toward(Some("sleep 600"), hidden, &["--time", "24s"])?;
    for way in ["up", "down"] {
        is_near(
            number(&result, way, "delay")?,
            20.0,
            0.5,
            0.0,
            "half of the round trip",
        )?;
        let delay = parameter(&result, way, "delay")?;
        has(&delay["evidence"].to_string(), "half of the round trip")?;
    }
    is_absent(&result, &link, "rate", "rate")?;
    let lacks = result["lacks"].to_string();
    has(&lacks, "the far end answers pings, but no probes (STAMP)")?;
    has(&lacks, "the rate up: ")?;
    is_compared_without_loads(&result)?;
    let probes = &result["comparison"]["delays"][0]["probes"];
    // Half of the time, a ping every 10 ms.
    ensure!(probes[0].as_u64() > Some(1_000), "{probes}");
    Ok(())
}

/// Checks that the idle path was compared, and that the result says why nothing else was.
fn is_compared_without_loads(result: &Value) -> Result<()> {
    let comparison = &result["comparison"];
    let delays = comparison["delays"].as_array().context("no delays")?;
    ensure!(delays.len() == 1, "{comparison}");
    ensure!(comparison["throughput"] == serde_json::json!([]));
    has(&comparison["statement"].to_string(), "idle delay (")?;
    has(&result["loads_not_compared"].to_string(), "STAMP")
}

#[test_support::test(serial, Namespaces, All)]
fn a_link_that_exists_is_compared_with_the_path_and_both_measurements_are_kept() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let rate = "rate = \"20mbit\"\nqueue = \"60ms\"\n";
    fs::write(
        directory.path().join("slower.toml"),
        format!("{rate}[up]\ndelay = \"15ms\"\n[down]\ndelay = \"30ms\"\n"),
    )?;
    let mut command = farwire();
    command.current_dir(directory.path());
    command.args(["exec", "--rate", "20mbit", "--queue", "60ms"]);
    command.args(["--up-delay", "10ms", "--down-delay", "25ms", "--"]);
    command.arg(farwire().get_program());
    command.args(["fit", SERVER, "--against", "slower.toml", "--time", "24s"]);
    command.args(["--json", "-"]);
    let output = process::run_for(&mut command, LONGEST)?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output))?;
    let different = result["comparison"]["different"].to_string();
    has(&different, "idle delay (")?;
    ensure!(result["parameters"] == serde_json::json!([]), "{result}");
    let out = directory.path().join("against-10.77.0.2");
    for name in ["path.json", "link.json"] {
        let measurement: Value = serde_json::from_slice(&fs::read(out.join(name))?)?;
        let samples = measurement["samples"].as_array().context("no samples")?;
        for phase in ["idle", "loaded_down", "loaded_up", "loaded_both"] {
            let found = samples.iter().any(|sample| sample["phase"] == phase);
            ensure!(found, "{name}: {phase}");
        }
        has(&stderr(&output), name)?;
    }
    ensure!(!out.join("link.toml").exists());
    let page = fs::read_to_string(out.join("report.html"))?;
    has(&page, "slower.toml compared with the path to 10.77.0.2 on ")
}

#[test_support::test]
fn a_link_is_compared_with_a_path_and_not_with_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("ping.txt"), pings())?;
    fs::write(directory.path().join("link.toml"), "delay = \"1ms\"\n")?;
    let mut command = farwire();
    command.current_dir(directory.path());
    command.args(["fit", "ping.txt", "--against", "link.toml"]);
    let output = process::run(&mut command)?;
    process::ends_with(
        &output,
        2,
        "name a far end in place of files, which have no path to measure",
    )?;
    Ok(())
}

#[test_support::test(serial, Namespaces, Tool("iperf3"), All)]
fn a_stock_iperf3_shows_the_rate_and_no_queue() -> Result<()> {
    let hidden = "--rate 20mbit --queue 50ms --delay 10ms";
    let (result, link) = fitted_toward(Some("iperf3 -s"), hidden, &["--time", "24s"])?;
    for way in ["up", "down"] {
        // iperf3 does not report when its last datagram arrived.
        let rate = parameter(&result, way, "rate")?;
        let (low, high) = (rate["interval"][0].as_f64(), rate["interval"][1].as_f64());
        ensure!(low <= Some(20.0) && high >= Some(20.0), "{way}: {rate}");
        is_near(number(&result, way, "rate")?, 20.0, 0.0, 0.1, "rate")?;
    }
    is_absent(&result, &link, "queue kind", "queue")?;
    is_compared_without_loads(&result)
}

/// Traffic of others on the path, until it is dropped.
struct CrossTraffic(Child);

impl CrossTraffic {
    /// Sends 1,400 bytes each way every millisecond.
    fn start(client: &NetNs) -> Result<Self> {
        let mut command = farwire();
        command.args(["measure", "probe", SERVER, "-c", "120000", "-i", "1ms"]);
        command.args(["--size", "1400"]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(client.run(|| command.spawn())??))
    }
}

impl Drop for CrossTraffic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test_support::test(serial, Namespaces, All)]
fn a_bridge_that_nobody_shaped_has_a_delay_and_no_rate_that_the_budget_reaches() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    bed.bridge()?;
    let _server = start(bed.server(), farwire().arg("serve").stdout(Stdio::null()))?;
    let _traffic = CrossTraffic::start(bed.client())?;
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path());
    command.args(["fit", SERVER, "--time", "24s", "--budget", "60mb"]);
    command.args(["--out", "bridge", "--json", "-"]);
    let output = bed
        .client()
        .run(|| process::run_for(&mut command, LONGEST))??;
    ensure!(output.status.success(), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output))?;
    let link = fs::read_to_string(directory.path().join("bridge/link.toml"))?;
    for way in ["up", "down"] {
        is_near(number(&result, way, "delay")?, 0.0, 0.5, 0.0, "delay")?;
    }
    is_absent(&result, &link, "rate", "rate")?;
    let lacks = result["lacks"].to_string();
    for way in ["up", "down"] {
        has(&lacks, format!("the rate {way}: it is above "))?;
    }
    let cause = result["loads_not_compared"].to_string();
    has(&cause, "the rate of a direction is not known")
}

/// Writes the output of `ping -D` for a path of 25 ms that loses every twentieth packet.
fn pings() -> String {
    pings_every(0.2)
}

/// Writes the same with another time between two pings, in seconds.
fn pings_every(interval_s: f64) -> String {
    let head = "PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n".to_owned();
    let answered = (1..=400_u32).filter(|number| number % 20 != 0);
    let lines = answered.map(|number| {
        let at = 1_700_000_000.0 + interval_s * f64::from(number);
        format!("[{at:.6}] 64 bytes from 192.0.2.1: icmp_seq={number} ttl=57 time=25.0 ms\n")
    });
    head + &lines.collect::<String>()
}

#[test_support::test]
fn files_are_sessions_on_one_path_whose_spread_is_stated() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("morning.txt"), pings())?;
    fs::write(
        directory.path().join("evening.txt"),
        pings().replace("25.0 ms", "35.0 ms"),
    )?;
    let mut command = farwire();
    command.current_dir(directory.path());
    command.args([
        "fit",
        "morning.txt",
        "evening.txt",
        "--no-proof",
        "--out",
        "both",
        "--json",
        "-",
    ]);
    let result: Value = process::json(&mut command)?;
    let delay = parameter(&result, "up", "delay")?;
    is_near(
        number(&result, "up", "delay")?,
        15.0,
        0.01,
        0.0,
        "half of the median",
    )?;
    ensure!(
        delay["sessions"] == serde_json::json!([12.5, 17.5]),
        "{delay}"
    );
    let loss = &parameter(&result, "up", "loss")?["interval"];
    // Both directions together lose 5 %.
    let half = Some(2.53);
    ensure!(
        loss[0].as_f64() <= half && loss[1].as_f64() >= half,
        "{loss}"
    );
    let link = fs::read_to_string(directory.path().join("both/link.toml"))?;
    has(&link, "# [fitted] half of the round trip: ")?;
    let files = "# A link fitted from morning.txt, evening.txt, measured on 2023-11-14\n";
    has(&link, files)?;
    let page = fs::read_to_string(directory.path().join("both/report.html"))?;
    has(&page, "A link fitted to morning.txt, evening.txt on ")?;
    has(&page, "half of the round trip")?;
    let mut command = farwire();
    command.current_dir(directory.path());
    process::succeeds(command.args(["link", "--link", "both/link.toml"]))?;
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn the_last_third_of_the_probes_of_a_file_is_held_out_and_compared() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("ping.txt"), pings_every(0.01))?;
    let mut command = farwire();
    command.current_dir(directory.path());
    command.args(["fit", "ping.txt", "--out", "out", "--json", "-"]);
    let output = process::run_for(&mut command, LONGEST)?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output))?;
    ensure!(
        result["held_out"] == "the last 133 of 399 idle probes",
        "{result}"
    );
    let delay = parameter(&result, "up", "delay")?;
    // Of the first 266 probes, every twentieth was lost.
    has(&delay["evidence"].to_string(), "median of 253 idle probes")?;
    let delays = result["comparison"]["delays"]
        .as_array()
        .with_context(|| format!("no comparison in {result}"))?;
    ensure!(delays.len() == 1, "{result}");
    // Of the other 133, the probes 280, 300 and so on until 380 were lost.
    ensure!(delays[0]["probes"][0] == 127, "{result}");
    let [path, link] = [0, 1].map(|at| delays[0]["p50_ms"][at].as_f64().unwrap_or_default());
    is_near(path, 25.0, 0.01, 0.0, "the held-out probes")?;
    is_near(link, 25.0, 1.0, 0.0, "the same through the link")?;
    let report = fs::read_to_string(directory.path().join("out/report.txt"))?;
    has(&report, "held out: the last 133 of 399 idle probes")?;
    has(&report, "loads were not compared with those of the path")
}

#[test_support::test]
fn observations_of_a_fit_can_be_fitted_again() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("ping.txt"), pings())?;
    let fit = |source: &str, out: &str| -> Result<String> {
        let mut command = farwire();
        command.current_dir(directory.path());
        process::succeeds(command.args(["fit", source, "--no-proof", "--out", out]))?;
        let link = fs::read_to_string(directory.path().join(out).join("link.toml"))?;
        Ok(link.replace(source, ""))
    };
    ensure!(fit("ping.txt", "first")? == fit("first", "second")?);
    Ok(())
}

#[test_support::test]
fn what_files_could_not_show_is_stated_with_their_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    fs::write(at("ping.txt"), pings())?;
    let fit = |sources: &[&str], out: &str| -> Result<Value> {
        let mut command = farwire();
        command.current_dir(directory.path()).arg("fit");
        command.args(sources).args(["--no-proof", "--out", out]);
        process::json(command.args(["--json", "-"]))
    };
    let complete = fit(&["ping.txt"], "first")?;
    ensure!(complete["lacks"] == serde_json::json!([]), "{complete}");
    let observations = fs::read_to_string(at("first/observations.json"))?;
    let mut observations: Value = serde_json::from_str(&observations)?;
    observations["lacks"] = serde_json::json!(["the loss up: a cause"]);
    fs::write(at("again.json"), observations.to_string())?;
    let alone = fit(&["again.json"], "alone")?;
    ensure!(alone["lacks"][0] == "the loss up: a cause", "{alone}");
    let report = fs::read_to_string(at("alone/report.txt"))?;
    has(&report, "not learnt: the loss up: a cause")?;
    let both = fit(&["ping.txt", "again.json"], "both")?;
    ensure!(
        both["lacks"] == serde_json::json!(["again.json: the loss up: a cause"]),
        "{both}"
    );
    Ok(())
}

#[test_support::test]
fn a_profile_of_a_fit_has_a_source_for_each_number() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("ping.txt"), pings())?;
    let in_home = |arguments: &[&str]| {
        let mut command = farwire();
        command
            .current_dir(directory.path())
            .env("HOME", directory.path());
        command.env_remove("XDG_CONFIG_HOME").args(arguments);
        process::succeeds(&mut command)
    };
    in_home(&["fit", "ping.txt", "--no-proof", "--profile", "from-ping"])?;
    in_home(&["profiles", "check", "from-ping"])?;
    in_home(&["link", "--profile", "from-ping"])?;
    Ok(())
}

#[test_support::test]
fn a_link_in_a_directory_leads_no_file_of_a_fit_out_of_it() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    fs::write(at("ping.txt"), pings())?;
    fs::write(at("outside"), "of somebody")?;
    fs::create_dir(at("out"))?;
    fs::create_dir_all(at(".config/farwire/profiles"))?;
    let results = ["report.html", "report.txt", "fit.json", "observations.json"];
    let results = results.map(|name| at("out").join(name));
    for link in &results {
        symlink(at("outside"), link)?;
    }
    // These files must not exist, and the ends of their links do not.
    let new = [at("out/link.toml"), at(".config/farwire/profiles/own.toml")];
    for link in &new {
        symlink(at("nowhere"), link)?;
    }
    let mut command = farwire();
    command.current_dir(directory.path());
    command
        .env("HOME", directory.path())
        .env_remove("XDG_CONFIG_HOME");
    command.args(["fit", "ping.txt", "--no-proof", "--out", "out"]);
    command.args(["--profile", "own"]);
    process::succeeds(&mut command)?;
    ensure!(fs::read_to_string(at("outside"))? == "of somebody");
    ensure!(!at("nowhere").exists());
    for file in results.iter().chain(&new) {
        let found = file.symlink_metadata()?;
        ensure!(found.is_file(), "{} is still a link", file.display());
    }
    Ok(())
}

#[test_support::test]
fn a_record_of_several_paths_is_refused_with_the_way_to_one() -> Result<()> {
    let record = process::root().join("tests/fixtures/records/every-kind.jsonl");
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path()).arg("fit").arg(record);
    let output = process::run(&mut command)?;
    process::ends_with(
        &output,
        2,
        "run one of them, with `farwire run --only CASE`",
    )?;
    Ok(())
}

const SCENARIO: &str = "\
name = 'path'
title = 'One path'
late_budget = '1s'
bed = { kind = 'netns', wire = { rate = '50mbit' } }
[[instruments]]
name = 'probe'
kind = 'probe'
parameters = { count = 100 }
[[cases]]
name = 'far'
title = 'a delay'
link = { delay = '20ms' }
";

#[test_support::test(Namespaces)]
fn a_record_of_one_path_is_fitted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("path.toml"), SCENARIO)?;
    let command = || {
        let mut command = farwire();
        command.current_dir(directory.path());
        command
    };
    process::succeeds(command().args(["run", "path.toml", "--quiet", "--out", "record"]))?;
    let mut fit = command();
    let result: Value = process::json(fit.args(["fit", "record", "--json", "-"]))?;
    for way in ["up", "down"] {
        is_near(number(&result, way, "delay")?, 20.0, 0.5, 0.0, "delay")?;
    }
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn a_capture_of_both_ends_of_a_link_is_fitted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut exec = farwire();
    exec.current_dir(directory.path());
    exec.args(["exec", "--up-delay", "10ms", "--down-delay", "30ms"]);
    exec.args(["--pcap", "path", "--"]);
    exec.arg(farwire().get_program());
    exec.args(["measure", "ping", SERVER, "-c", "300", "-i", "10ms"]);
    process::succeeds(&mut exec)?;
    let mut fit = farwire();
    fit.current_dir(directory.path());
    fit.args(["fit", "path.pcapng", "--json", "-"]);
    let result: Value = process::json(&mut fit)?;
    let compared = result["comparison"]["delays"]
        .as_array()
        .with_context(|| format!("no comparison in {result}"))?;
    let ways: Vec<&Value> = compared.iter().map(|one| &one["direction"]).collect();
    ensure!(ways == ["up", "down"], "{result}");
    for (way, delay) in [("up", 10.0), ("down", 30.0)] {
        // The model's delay and the time until the packet is sent.
        is_near(number(&result, way, "delay")?, delay, 1.0, 0.0, "delay")?;
        let loss = parameter(&result, way, "loss")?;
        ensure!(loss["value"] == 0.0, "{loss}");
    }
    Ok(())
}

#[test_support::test(serial, Namespaces, All)]
fn a_capture_of_a_full_link_has_its_rate_and_a_delay_without_the_queue() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut exec = farwire();
    exec.current_dir(directory.path());
    exec.args(["exec", "--rate", "10mbit", "--queue", "100ms"]);
    exec.args(["--delay", "20ms", "--pcap", "full", "--"]);
    exec.arg(farwire().get_program());
    exec.args(["measure", "udp", SERVER, "-b", "20M", "-t", "14"]);
    process::succeeds(&mut exec)?;
    let mut fit = farwire();
    fit.current_dir(directory.path());
    fit.args(["fit", "full.pcapng", "--no-proof", "--json", "-"]);
    let result: Value = process::json(&mut fit)?;
    is_near(number(&result, "up", "rate")?, 10.0, 0.0, 0.03, "rate")?;
    // The fastest packets show it, with the 1.2 ms of their transmission.
    let delay = number(&result, "up", "delay")?;
    ensure!((20.0..23.0).contains(&delay), "{delay}");
    let loss = &parameter(&result, "up", "loss")?["word"];
    ensure!(loss == "not learnt", "{loss}");
    has(&result["lacks"].to_string(), "the direction was full")
}

#[test_support::test]
fn a_file_of_another_form_is_bad_input_and_nothing_is_written() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("notes.txt"), "a;b;c\n")?;
    let mut command = farwire();
    command
        .current_dir(directory.path())
        .args(["fit", "notes.txt"]);
    let output = process::run(&mut command)?;
    process::ends_with(&output, 2, "a table of seconds and Mbit/s")?;
    ensure!(!directory.path().join("fit-notes.txt").exists());
    Ok(())
}

#[test_support::test]
fn a_file_that_exists_is_not_replaced_and_nothing_is_measured() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("link.toml"), "delay = \"1ms\"\n")?;
    let mut command = farwire();
    command
        .args(["fit", "192.0.2.1", "--out"])
        .arg(directory.path());
    let output = process::run(&mut command)?;
    process::ends_with(
        &output,
        2,
        "the file exists: choose another place or name, or remove it",
    )?;
    Ok(())
}

#[test_support::test]
fn a_time_that_is_too_short_to_fit_is_bad_input() -> Result<()> {
    let mut command = farwire();
    let output = process::run(command.args(["fit", "192.0.2.1", "--time", "5s"]))?;
    process::ends_with(&output, 2, "must be from 24s to 3600s")?;
    Ok(())
}
