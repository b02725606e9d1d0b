//! Every instrument, in every direction, over a path as long as the way to the Moon and over one of ten seconds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::FAR_ENDS;
use test_support::process::{self, farwire};
use test_support::suite::{Need, Suite};

/// The delays in each direction, with what a test needs that uses them.
const DELAYS: [(&str, f64, &[Need]); 2] = [
    ("1300ms", 1.3, &[Need::Namespaces]),
    ("10s", 10.0, &[Need::Namespaces, Need::All]),
];

/// A measurement, a figure that is above 0, and the direction of that figure.
type Expected = (&'static str, &'static str, Option<&'static str>);

/// Measurements over iperf3's protocol. Those of a list run at the same time, and have at most the 16 tests that one
/// client may have.
const IPERF3: &[Expected] = &[
    ("tcp HOST -t 3", "received_bytes", Some("up")),
    ("tcp HOST -t 3 -R -P 2", "received_bytes", Some("down")),
    ("tcp HOST -t 3 --bidir", "received_bytes", Some("up")),
    ("tcp HOST -n 50K", "received_bytes", Some("up")),
    ("tcp HOST -n 50K -R", "received_bytes", Some("down")),
    (
        "udp HOST -t 3 -b 100k -l 1000",
        "received_bytes",
        Some("up"),
    ),
    (
        "udp HOST -t 3 -b 100k -l 3000 -R",
        "received_bytes",
        Some("down"),
    ),
    (
        "udp HOST -t 3 -b 100k -l 1000 --bidir",
        "received_bytes",
        Some("down"),
    ),
];

/// The other instruments.
const OTHERS: &[Expected] = &[
    ("ping HOST -c 3", "rtt_ms", None),
    ("probe HOST -c 20 -i 100ms", "rtt_ms", None),
    ("connect HOST -c 2", "connect_ms", None),
    ("http http://URL/bytes/20000", "goodput_bit_per_s", None),
    (
        "http http://URL --count 4 --sizes 2kb --connections 2",
        "completion_ms",
        None,
    ),
    (
        "http http://URL --count 4 --sizes 2kb --connections 2 --keep-alive",
        "completion_ms",
        None,
    ),
    ("pingpong HOST --size 64 --count 3 --runs 1", "rtt_ms", None),
    (
        "pingpong HOST --size 20000 --count 1 --runs 1",
        "rtt_ms",
        None,
    ),
    (
        "pingpong HOST --udp --size 64 --count 3 --runs 1",
        "rtt_ms",
        None,
    ),
    (
        "blast HOST --size 100 --count 100 --runs 1",
        "goodput_bit_per_s",
        None,
    ),
    (
        "transfer HOST --bytes 100000b --runs 1",
        "goodput_bit_per_s",
        None,
    ),
];

/// Instruments whose figure is a round trip or longer.
const ROUND_TRIPS: [&str; 3] = ["rtt_ms", "connect_ms", "completion_ms"];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (delay, seconds, needs) in DELAYS {
        for address in FAR_ENDS {
            for (name, list) in [("iperf3's", IPERF3), ("other", OTHERS)] {
                let mut needs = needs.to_vec();
                // Versions of IP differ by the addresses alone.
                if address.contains(':') {
                    needs.push(Need::All);
                }
                suite.test(
                    format!("{name} instruments get to {address} over {delay} and back"),
                    &needs,
                    move || all_at_once(list, delay, seconds, address),
                );
            }
        }
        let needs: Vec<Need> = needs
            .iter()
            .copied()
            .chain([Need::Tool("openssl")])
            .collect();
        suite.test(
            format!("TLS handshakes are made over {delay}"),
            &needs,
            move || tls(delay, seconds),
        );
    }
    for line in [
        "quality HOST --time 14s -P 4",
        "probe HOST -c 100 -i 20ms --under tcp:4,both",
        "probe HOST -c 100 -i 20ms --under udp:500kbit,both",
    ] {
        let (delay, seconds, _) = DELAYS[0];
        // The loads of other tests would compete with this one's.
        suite.serial(
            format!("{line} has its load while it probes over {delay}"),
            &[Need::Namespaces, Need::All],
            move || beside_a_load(line, delay, seconds),
        );
    }
    for options in ["", " -R", " --bidir", " -P 4"] {
        let needs = [Need::Namespaces, Need::Tool("iperf3"), Need::All];
        suite.test(
            format!("iperf3{options} gets to farwire serve over 3 s and back"),
            &needs,
            move || iperf3_to_serve(options),
        );
        suite.test(
            format!("measure tcp{options} gets to iperf3 -s over 3 s and back"),
            &needs,
            move || measure_to_iperf3(options),
        );
    }
    for direction in ["--down", "--up"] {
        for (delay, seconds, _) in DELAYS {
            // It sends as fast as it can for seconds, so it runs alone.
            suite.serial(
                format!("capacity {direction} finds the link's rate over {delay}"),
                &[Need::Namespaces, Need::All],
                move || capacity(direction, delay, seconds),
            );
        }
    }
}

fn all_at_once(list: &[Expected], delay: &str, seconds: f64, address: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    };
    let file = |number: usize| directory.path().join(number.to_string());
    let mut script = String::new();
    for (number, (line, ..)) in list.iter().enumerate() {
        let line = line.replace("HOST", address).replace("URL", &url);
        let file = file(number);
        script += &format!(
            "$farwire measure {line} --quiet --json {} &\n",
            file.display()
        );
    }
    let output = behind(&["--delay", delay], &(script + "wait"), seconds)?;
    for (number, &(line, metric, direction)) in list.iter().enumerate() {
        let least = if ROUND_TRIPS.contains(&metric) {
            2_000.0 * seconds
        } else {
            f64::MIN_POSITIVE
        };
        let value = measured(&file(number), metric, direction)
            .with_context(|| format!("{line}: {output}"))?;
        ensure!(value >= least, "{line}: {metric} is {value}");
    }
    Ok(())
}

fn tls(delay: &str, seconds: f64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(path("certificate"), own.cert.pem())?;
    fs::write(path("key"), own.signing_key.serialize_pem())?;
    for version in ["-tls1_2", "-tls1_3"] {
        let far = format!(
            "openssl s_server -4 -accept 443 -quiet {version} -cert {} -key {}",
            path("certificate").display(),
            path("key").display()
        );
        let file = path(version);
        let script = format!(
            "$farwire measure tls 10.77.0.2 -c 2 --quiet --json {}",
            file.display()
        );
        let output = behind(&["--delay", delay, "--far", &far], &script, seconds)?;
        for metric in ["connect_ms", "tls_handshake_ms"] {
            let value = measured(&file, metric, None).context(output.clone())?;
            ensure!(value >= 2_000.0 * seconds, "{version}: {metric} is {value}");
        }
        let lost = measured(&file, "lost_percent", None)?;
        ensure!(lost == 0.0, "{version}: {lost} % lost");
    }
    Ok(())
}

fn capacity(direction: &str, delay: &str, seconds: f64) -> Result<()> {
    const RATE: f64 = 10e6;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    let script = format!(
        "$farwire measure capacity 10.77.0.2 {direction} -t 10s --quiet --json {}",
        file.display()
    );
    let output = behind(&["--delay", delay, "--rate", "10mbit"], &script, seconds)?;
    let way = direction.trim_start_matches('-');
    let l2 = measured(&file, "l2_rate_bit_per_s", Some(way)).context(output)?;
    // A busy machine sends less, and a late emulator passes up to its lateness more in one second.
    ensure!((RATE * 0.5..RATE * 1.5).contains(&l2), "{l2}");
    Ok(())
}

/// Checks that probes cross the path, beside a load that moves data in the same phase.
fn beside_a_load(line: &str, delay: &str, seconds: f64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    let script = format!(
        "$farwire measure {} --quiet --json {}",
        line.replace("HOST", "10.77.0.2"),
        file.display()
    );
    // Three loads, each with a dozen round trips until its streams run.
    let takes = Duration::from_secs_f64(300.0 * seconds);
    let output = behind_for(&["--delay", delay], &script, takes)?;
    let text = fs::read_to_string(&file)?;
    let measured: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    ensure!(measured["failure"].is_null(), "{}", measured["failure"]);
    let samples = measured["samples"].as_array().context("samples")?;
    // The seconds of the samples of a metric that are above 0 in a phase.
    let times = |metric: &str, phase: &str| -> Vec<f64> {
        let is_counted = |sample: &&Value| {
            sample["metric"] == metric
                && sample["phase"] == phase
                && sample["value"].as_f64() > Some(0.0)
        };
        let counted = samples.iter().filter(is_counted);
        counted
            .filter_map(|sample| sample["at_s"].as_f64())
            .collect()
    };
    let loaded: &[&str] = if line.starts_with("quality") {
        &["loaded_down", "loaded_up", "loaded_both"]
    } else {
        &["loaded"]
    };
    for phase in loaded.iter().copied() {
        let probes = times("network_rtt_ms", phase);
        let first = probes.iter().copied().fold(f64::INFINITY, f64::min);
        let last = probes.iter().copied().fold(0.0, f64::max);
        ensure!(
            probes.len() >= 40,
            "{phase}: {} probes: {output}",
            probes.len()
        );
        let goodput = times("goodput_bit_per_s", phase);
        let during = goodput.iter().filter(|at| (first..=last).contains(*at));
        ensure!(
            during.count() > 0,
            "{phase}: {goodput:?}, {first} to {last}"
        );
    }
    let figures = measured["figures"].as_array().context("figures")?;
    let medians = figures
        .iter()
        .filter(|figure| figure["metric"] == "network_rtt_ms" && figure["statistic"] == "median");
    for figure in medians {
        let value = figure["value"].as_f64();
        ensure!(value >= Some(2_000.0 * seconds), "{figure}: {output}");
    }
    Ok(())
}

/// The length of a block in bytes. iperf3 3.21 counts only whole blocks, and less than one of its usual 128 KiB arrives in 20 s.
const SHORT: u32 = 1448;

/// iperf3 is the client, and `farwire serve` the far end.
fn iperf3_to_serve(options: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    // The JSON has the error of a test that failed.
    let script = format!(
        "iperf3 -c 10.77.0.2 -J -t 20 -l {SHORT}{options} > {0} || cat {0}",
        file.display()
    );
    let output = behind(&["--delay", "3s"], &script, 3.0)?;
    let text = fs::read_to_string(&file)?;
    let theirs: Value = serde_json::from_str(&text).with_context(|| output.clone())?;
    ensure!(theirs["error"].is_null(), "{}", theirs["error"]);
    let both = ["sum_received", "sum_received_bidir_reverse"];
    let sums = if options.contains("--bidir") {
        &both[..]
    } else {
        &both[..1]
    };
    for sum in sums {
        let bytes = &theirs["end"][*sum]["bytes"];
        ensure!(bytes.as_u64() > Some(0), "{sum}: {bytes}: {output}");
    }
    Ok(())
}

/// `farwire measure tcp` is the client, and `iperf3 -s` the far end.
fn measure_to_iperf3(options: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("measured");
    let script = format!(
        "$farwire measure tcp 10.77.0.2 -t 20 -l {SHORT}{options} --quiet --json {}",
        file.display()
    );
    let link = ["--delay", "3s", "--far", "iperf3 -s"];
    let output = behind(&link, &script, 3.0)?;
    let ways: &[&str] = match options {
        " -R" => &["down"],
        " --bidir" => &["up", "down"],
        _ => &["up"],
    };
    for way in ways {
        let bytes = measured(&file, "received_bytes", Some(*way)).context(output.clone())?;
        ensure!(bytes > 0.0, "{way}: {bytes}: {output}");
    }
    Ok(())
}

/// Runs `script` behind a link with this delay, where `$farwire` is the program, and returns what it printed.
fn behind(link: &[&str], script: &str, seconds: f64) -> Result<String> {
    // The longest measurement has a dozen round trips.
    behind_for(link, script, Duration::from_secs_f64(40.0 * seconds))
}

/// Does the same as [`behind`] with a script that takes this time.
fn behind_for(link: &[&str], script: &str, takes: Duration) -> Result<String> {
    let mut command = farwire();
    command
        .arg("exec")
        .args(link)
        .args(["--", "sh", "-c", script]);
    command.env("farwire", process::program());
    let output = process::run_for(&mut command, takes)?;
    let said = process::stdout(&output) + &process::stderr(&output);
    process::succeeded(output).map(|_| said)
}

/// Returns the first figure of a metric and a direction. The measurement must not have failed.
fn measured(file: &Path, metric: &str, direction: Option<&str>) -> Result<f64> {
    let text = fs::read_to_string(file)?;
    let measured: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    ensure!(measured["failure"].is_null(), "{}", measured["failure"]);
    let mut figures = measured["figures"].as_array().context("figures")?.iter();
    let found = figures.find(|figure| {
        figure["metric"] == metric && direction.is_none_or(|way| figure["direction"] == way)
    });
    let value = found.and_then(|figure| figure["value"].as_f64());
    value.with_context(|| format!("no {metric}: {text}"))
}
