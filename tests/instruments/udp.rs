//! `measure udp` and its far end with iperf3 in the other role: every combination completes, and both count the same.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use serde_json::Value;

use super::tcp::{NEEDS, namespace, serve, start};
use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has, ip, run_in, stderr, stdout};
use test_support::suite::{Need, Suite};

/// No stream carries more than 90 datagrams, by default at 1 Mbit/s. A datagram takes 2,304 of the 212,992 bytes of iperf3's buffers,
/// so they hold a whole test, and nothing is lost however long iperf3 does not run.
const OPTIONS: [&str; 9] = [
    "-t 1",
    "-t 1 -P 4",
    "-t 1 -R",
    "-t 1 --bidir",
    "-t 1 --bidir -P 2 -b 500K",
    "-t 1 -O 1 -b 500K",
    "-t 1 -O 1 -R -P 2 -b 500K",
    "-n 100K -b 20M -P 2",
    "-n 100K -b 20M -R -S 0xb8",
];
/// iperf3's names for farwire's directions, in tests of one direction, and for the second direction in tests of both.
const NAMES: [[&str; 2]; 2] = [
    ["sum_sent", "sum_received"],
    ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"],
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for address in ["127.0.0.1", "::1"] {
        for options in OPTIONS {
            let name = format!("iperf3 -u {options} at {address} and farwire serve count the same");
            suite.test(name, &NEEDS, move || served(options, address));
            let name =
                format!("farwire measure udp {options} at {address} and iperf3 -s count the same");
            suite.test(name, &NEEDS, move || measured(options, address));
        }
    }
    for options in ["-n 1M -P 2", "-n 1M -R", "-n 1M --bidir"] {
        suite.test(
            format!("farwire measure udp {options} has iperf3's names where it means the same"),
            &NEEDS,
            move || names(options),
        );
    }
    for mtu in [1_280, 1_500, 9_000] {
        for address in ["127.0.0.1", "::1"] {
            suite.test(
                format!("datagrams of any size get to {address} and back at MTU {mtu}"),
                &[Need::Namespaces],
                move || sizes(mtu, address),
            );
            let name = format!("datagrams above MTU {mtu} at {address} get to iperf3 and back");
            suite.test(name, &NEEDS, move || sizes_of_iperf3(mtu, address));
        }
    }
}

/// Returns the longest datagram that fits into a packet of this MTU.
fn longest(mtu: u32, address: &str) -> u32 {
    mtu - if address.contains(':') { 48 } else { 28 }
}

/// Creates a namespace whose loopback interface has this MTU.
fn namespace_of(mtu: u32) -> Result<NetNs> {
    let ns = namespace()?;
    ip(&ns, &format!("link set lo mtu {mtu}"))?;
    Ok(ns)
}

/// Sends 20 datagrams a second. If the reader does not run for a while, a full socket may drop some of them, which is not loss.
fn sizes(mtu: u32, address: &str) -> Result<()> {
    let (ns, directory) = (namespace_of(mtu)?, tempfile::tempdir()?);
    let _server = serve(&ns, &directory.path().join("log"))?;
    let fits = longest(mtu, address);
    // Two datagrams of 32,753 bytes are one more than a train has room for.
    for size in [16, 100, fits, fits + 1, 4_096, 8_192, 32_753, 65_507] {
        for options in ["", " -R"] {
            let rate = size * 8 * 20;
            let bytes = size * 10;
            let line = format!("{address} -n {bytes} -l {size} -b {rate}{options}");
            let ours = measure(&ns, &line)?;
            let [direction] = directions(options)[..] else {
                anyhow::bail!("one direction")
            };
            let of = |metric| figure(&ours, direction, metric);
            let (sent, lost) = (of("sent_packets")?, of("lost_packets")?);
            ensure!(lost == 0.0, "{line}: {lost} lost of {sent}");
            // A server sends until the client says that the test is over.
            ensure!(sent == 10.0 || direction == "down", "{line}: {sent}");
            let received = of("received_bytes")? / f64::from(size);
            ensure!(
                received.fract() == 0.0 && (1.0..=sent).contains(&received),
                "{line}: {received} datagrams of {sent}"
            );
            let layers = ours["facts"]["layers"].as_str().context("the layers")?;
            let fragments = if size > fits {
                "IP fragments"
            } else {
                "one packet"
            };
            has(layers, fragments)?;
        }
    }
    Ok(())
}

/// Both roles and directions with iperf3, which counts the same datagrams. The fragments of one take up to half of the 212,992 bytes of
/// its buffer, so there are five a second.
fn sizes_of_iperf3(mtu: u32, address: &str) -> Result<()> {
    for size in [longest(mtu, address) + 1, 8_192.max(mtu), 65_507] {
        for direction in ["", " -R"] {
            let options = format!("-t 1 -l {size} -b {}{direction}", size * 8 * 5);
            let (ns, directory) = (namespace_of(mtu)?, tempfile::tempdir()?);
            let log = directory.path().join("log");
            let server = serve(&ns, &log)?;
            counts_are_those_of_iperf3_client(&ns, &log, &options, address)?;
            drop(server);
            counts_are_those_of_iperf3_server(&ns, &options, address)?;
        }
    }
    Ok(())
}

/// Datagrams that fit into the MTU leave in trains, and longer ones alone.
#[test_support::test(Namespaces)]
fn trains_have_only_datagrams_that_fit_into_a_packet() -> Result<()> {
    for address in ["127.0.0.1", "::1"] {
        for (mtu, has_trains) in [(9_000, true), (1_500, false)] {
            let (ns, directory) = (namespace_of(mtu)?, tempfile::tempdir()?);
            let _server = serve(&ns, &directory.path().join("log"))?;
            // Datagrams are 6.6 us apart, so that trains have three or more.
            let ours = measure(&ns, &format!("{address} -t 0.3 -l 4096 -b 5G"))?;
            let longest = figure(&ours, "up", "train_packets")?;
            ensure!((longest > 1.0) == has_trains, "MTU {mtu}: {longest}");
            ensure!(figure(&ours, "up", "received_bytes")? > 0.0, "{ours}");
        }
    }
    Ok(())
}

/// At one datagram a second, the first three are due before the end.
#[test_support::test(Tool("iperf3"), Namespaces)]
fn iperf3_gets_as_many_datagrams_as_were_asked_for() -> Result<()> {
    let ns = namespace()?;
    let mut command = Command::new("iperf3");
    let server = start(&ns, command.args(["-s", "-1", "-J"]).stdout(Stdio::piped()))?;
    let ours = measure(&ns, "127.0.0.1 -b 8k -l 1000 -t 3")?;
    let theirs: Value = serde_json::from_slice(&server.finish()?)?;
    let (sent, received) = (
        figure(&ours, "up", "sent_packets")?,
        figure(&ours, "up", "received_bytes")?,
    );
    ensure!(
        sent == 3.0 && received == 3_000.0,
        "{sent} and {received} bytes"
    );
    let counted = bytes(&theirs, "sum_received")?;
    ensure!(counted == 3_000.0, "{counted} at iperf3");
    Ok(())
}

/// The rate is 900 Gbit/s, which no machine sends.
#[test_support::test]
fn a_sender_that_cannot_keep_its_rate_says_so() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = far_end.address("iperf3")?.port().to_string();
    for (options, way) in [(&[][..], "up"), (&["-R"], "down")] {
        let mut client = farwire();
        client.args(["measure", "udp", "127.0.0.1", "-p", &port, "--json", "-"]);
        client.args(["-t", "0.3", "-b", "900G"]).args(options);
        let output = process::succeeds(&mut client)?;
        let said = stderr(&output);
        has(&said, "the sender fell short of its schedule: it sent ")?;
        has(&said, format!("of the requested 900000 Mbit/s {way}"))?;
        let measured: Value = serde_json::from_slice(&output.stdout)?;
        let pace = &measured["paces"][0];
        ensure!(
            pace["unit"] == "bits" && pace["asked_per_s"] == 9e11,
            "{pace}"
        );
        ensure!(pace["direction"] == way, "{pace}");
    }
    Ok(())
}

fn served(options: &str, address: &str) -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    // This version sends for a whole second, however few bytes are asked for. At the lower rate its streams do not carry more than 90
    // datagrams in that time either.
    let options = match iperf3_minor()? {
        21 => options.replace("-b 20M", "-b 500K"),
        _ => options.to_owned(),
    };
    let log = directory.path().join("log");
    let _server = serve(&ns, &log)?;
    counts_are_those_of_iperf3_client(&ns, &log, &format!("-l 1400 {options}"), address)
}

/// iperf3 is the client of a farwire that logs to `log`, and states the counts of both ends.
fn counts_are_those_of_iperf3_client(
    ns: &NetNs,
    log: &Path,
    options: &str,
    address: &str,
) -> Result<()> {
    let theirs = iperf3(ns, &format!("-c {address} -u {options} -J"))?;
    let logged = || Ok(Some(fs::read_to_string(log)?).filter(|text| text.ends_with('\n')));
    let line = process::wait_for("the test to be logged", logged)?;
    let ours: Value = serde_json::from_str(&line)?;
    ensure!(ours["failure"].is_null(), "{}", ours["failure"]);
    let mut compared = 0;
    for (direction, names) in directions(options).into_iter().zip(NAMES) {
        for (metric, name) in ["sent_bytes", "received_bytes"].into_iter().zip(names) {
            let (ours, theirs) = (figure(&ours, direction, metric)?, bytes(&theirs, name)?);
            ensure!(
                ours == theirs,
                "{direction} {metric}: {ours} here, {theirs} at iperf3"
            );
            compared += 1;
        }
        let lost = &theirs["end"]["sum"]["lost_packets"];
        ensure!(lost == 0, "{lost} lost, says iperf3");
    }
    ensure!(compared > 0, "nothing was compared");
    all_came(options, &ours, Some("down"))
}

fn measured(options: &str, address: &str) -> Result<()> {
    let options = format!("-l 1400 {options}");
    counts_are_those_of_iperf3_server(&namespace()?, &options, address)
}

/// iperf3 is the server and states its own counts.
fn counts_are_those_of_iperf3_server(ns: &NetNs, options: &str, address: &str) -> Result<()> {
    let mut command = Command::new("iperf3");
    let server = start(ns, command.args(["-s", "-1", "-J"]).stdout(Stdio::piped()))?;
    let ours = measure(ns, &format!("{address} {options}"))?;
    let theirs: Value = serde_json::from_slice(&server.finish()?)?;
    for (direction, names) in directions(options).into_iter().zip(NAMES) {
        let (metric, name) = match direction {
            "up" => ("received_bytes", names[1]),
            _ => ("sent_bytes", names[0]),
        };
        // From 3.16 on, an iperf3 may report before it has counted the last datagram of each stream.
        let uncounted = match iperf3_minor()? {
            16.. if metric == "sent_bytes" => {
                let packets = figure(&ours, direction, "sent_packets")?;
                streams(options)? * figure(&ours, direction, metric)? / packets
            }
            _ => 0.0,
        };
        let (ours, theirs) = (figure(&ours, direction, metric)?, bytes(&theirs, name)?);
        ensure!(
            (0.0..=uncounted).contains(&(ours - theirs)),
            "{direction} {metric}: {ours} here, {theirs} at iperf3"
        );
    }
    all_came(options, &ours, Some("up"))
}

/// Returns the number of streams in each direction.
fn streams(options: &str) -> Result<f64> {
    let mut words = options.split_whitespace();
    let asked = words.find(|word| *word == "-P").and_then(|_| words.next());
    Ok(asked.unwrap_or("1").parse()?)
}

/// Runs the same test with iperf3 and with farwire: farwire has all of iperf3's counts and rates, and they agree with the figures.
fn names(options: &str) -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let _server = serve(&ns, &directory.path().join("log"))?;
    let options = format!("127.0.0.1 -l 1400 -b 10M -i 0.1 {options}");
    let theirs = iperf3(&ns, &format!("-u -J -c {options}"))?;
    let ours = measure(&ns, &options)?;
    let mut places = vec![
        "/start/test_start".to_owned(),
        "/start/connected/0".to_owned(),
        "/intervals/0/streams/0".to_owned(),
        "/end/streams/0/udp".to_owned(),
        "/end/cpu_utilization_percent".to_owned(),
    ];
    let ways = directions(&options);
    for (_, ending) in ways.iter().zip(["", "_bidir_reverse"]) {
        places.push(format!("/intervals/0/sum{ending}"));
        places.extend(["sum", "sum_sent", "sum_received"].map(|sum| format!("/end/{sum}{ending}")));
    }
    for place in places {
        let theirs = theirs.pointer(&place).and_then(Value::as_object);
        let theirs = theirs.with_context(|| format!("iperf3 has no {place}"))?;
        let ours = ours
            .pointer(&place)
            .with_context(|| format!("no {place}"))?;
        for (name, value) in theirs {
            let same = match (value, &ours[name]) {
                (Value::Number(_), ours) => ours.is_number(),
                (Value::Bool(theirs), Value::Bool(ours)) => theirs == ours,
                (Value::String(_), ours) => ours.is_string(),
                _ => false,
            };
            ensure!(
                same,
                "{place}/{name}: {value} at iperf3, {} here",
                ours[name]
            );
        }
    }
    for (direction, ending) in ways.into_iter().zip(["", "_bidir_reverse"]) {
        for (metric, sum, name) in [
            ("sent_bytes", "sum_sent", "bytes"),
            ("sent_packets", "sum_sent", "packets"),
            ("received_bytes", "sum_received", "bytes"),
            ("lost_packets", "sum", "lost_packets"),
        ] {
            let told = &ours["end"][format!("{sum}{ending}")][name];
            let figure = figure(&ours, direction, metric)?;
            ensure!(
                told.as_f64() == Some(figure),
                "{sum}{ending}/{name}: {told}, {figure}"
            );
        }
    }
    Ok(())
}

/// Checks that nothing is lost on a loopback, except where each end omits its own start. An iperf3 receives the direction `iperf3`; its
/// socket may be full, and at the end of the test it ignores datagrams that it has not read yet.
fn all_came(options: &str, ours: &Value, iperf3: Option<&str>) -> Result<()> {
    for direction in directions(options) {
        let of = |metric| figure(ours, direction, metric);
        let by_iperf3 = iperf3 == Some(direction) && options.contains("-O");
        if by_iperf3 && !tells_what_it_omits()? {
            let said = ours["facts"][format!("loss {direction}")].as_str();
            ensure!(
                said.is_some_and(|said| said.starts_with("unknown")),
                "{ours}"
            );
            for metric in ["lost_packets", "lost_percent"] {
                ensure!(of(metric).is_err(), "{ours}");
            }
            ensure!(ours["end"]["sum"]["lost_packets"].is_null(), "{ours}");
        } else if iperf3 == Some(direction) {
            // A socket of iperf3 that was full for a while may have dropped some, so the network may have lost none.
            let mut figures = ours["figures"].as_array().context("figures")?.iter();
            let lost = figures
                .find(|one| one["metric"] == "lost_percent" && one["direction"] == direction);
            let least = lost.and_then(|one| one["interval"][0].as_f64());
            ensure!(least == Some(0.0), "{ours}");
        } else {
            ensure!(of("lost_packets")? == 0.0, "{ours}");
        }
        ensure!(of("received_bytes")? > 0.0, "{ours}");
        let to_the_end = direction == "up" && iperf3 != Some("up") && !options.contains("-O");
        if to_the_end {
            ensure!(of("sent_bytes")? == of("received_bytes")?, "{ours}");
        }
    }
    Ok(())
}

/// Returns whether this machine's iperf3 is 3.14 or later.
fn tells_what_it_omits() -> Result<bool> {
    Ok(iperf3_minor()? >= 14)
}

/// Returns the second number of the version of this machine's iperf3.
fn iperf3_minor() -> Result<u32> {
    let output = Command::new("iperf3").arg("--version").output()?;
    let text = stdout(&output);
    let minor = text.strip_prefix("iperf 3.").context("a version")?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    Ok(minor.parse()?)
}

#[test_support::test(Tool("iperf3"), Namespaces)]
fn ten_iperf3_u_at_once_from_one_address_are_all_served() -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let log = directory.path().join("log");
    let _server = serve(&ns, &log)?;
    std::thread::scope(|scope| {
        let one = || iperf3(&ns, "-c 127.0.0.1 -u -t 1 -P 2 --bidir -J").map(drop);
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(one)).collect();
        let mut ends = clients.into_iter().map(|client| client.join());
        ends.try_for_each(|end| end.expect("a client does not panic"))
    })?;
    let logged =
        || Ok(Some(fs::read_to_string(&log)?.lines().count()).filter(|count| *count >= 10));
    ensure!(process::wait_for("ten tests to be logged", logged)? == 10);
    Ok(())
}

#[test_support::test(Tool("iperf3"), Namespaces)]
fn garbage_at_the_port_of_udp_streams_changes_no_figure() -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let _server = serve(&ns, &directory.path().join("log"))?;
    let stranger = ns.run(|| UdpSocket::bind("127.0.0.1:0"))??;
    // A greeting from the client's own address would be mistaken for the client's.
    let elsewhere = ns.run(|| UdpSocket::bind("127.0.0.2:0"))??;
    std::thread::scope(|scope| {
        let measuring = scope.spawn(|| measure(&ns, "127.0.0.1 -t 1 -b 20M -l 1400"));
        while !measuring.is_finished() {
            elsewhere.send_to(b"9876", "127.0.0.1:5201")?;
            for garbage in [&b""[..], b"987", &[0xff; 1400], &[0; 65_000]] {
                stranger.send_to(garbage, "127.0.0.1:5201")?;
            }
            // More than the port's buffer holds would crowd out the greetings.
            std::thread::sleep(Duration::from_millis(1));
        }
        let ours = measuring.join().expect("measuring does not panic")?;
        all_came("-t 1", &ours, None)
    })
}

fn iperf3(ns: &NetNs, line: &str) -> Result<Value> {
    let output = run_in(ns, Command::new("iperf3").args(line.split(' ')))?;
    let said: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(said["error"].is_null(), "{}", said["error"]);
    Ok(said)
}

fn measure(ns: &NetNs, line: &str) -> Result<Value> {
    let mut client = farwire();
    client.args(["measure", "udp", "--quiet", "--json", "-"]);
    let output = process::succeeds_in(ns, client.args(line.split(' ')))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the directions of the data, in the order in which iperf3 sums them up.
fn directions(options: &str) -> Vec<&'static str> {
    if options.contains("--bidir") {
        vec!["up", "down"]
    } else if options.contains("-R") {
        vec!["down"]
    } else {
        vec!["up"]
    }
}

/// Returns the total of a metric over all streams of a direction.
fn figure(measured: &Value, direction: &str, metric: &str) -> Result<f64> {
    let mut figures = measured["figures"].as_array().context("figures")?.iter();
    let found = figures.find(|figure| {
        figure["metric"] == metric && figure["direction"] == direction && figure["stream"].is_null()
    });
    let value = found.and_then(|figure| figure["value"].as_f64());
    value.with_context(|| format!("no {direction} {metric} in {measured}"))
}

fn bytes(iperf3: &Value, sum: &str) -> Result<f64> {
    let bytes = iperf3["end"][sum]["bytes"].as_f64();
    bytes.with_context(|| format!("no {sum} in {}", iperf3["end"]))
}
