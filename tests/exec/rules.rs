//! Rules give the packets that match them other conditions, and count them.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use test_support::process::{self, has, stderr, stdout};
use test_support::wan_box::Summary;

/// 14 flows of UDP over IPv4 and IPv6, some of them of large packets, connections of TCP, and pings, which end when all packets before
/// them have passed.
const TRAFFIC: &str = r#"
for n in $(seq 50); do exec 3<>/dev/tcp/10.77.0.2/80; exec 3>&-; done
for n in $(seq 700); do
  for port in 5000 5001 5002 5003 5004 6000 6001 7000; do echo > /dev/udp/10.77.0.2/$port; done
  for port in 5000 5001 5002 6000 6001 7000; do echo > /dev/udp/fd77::2/$port; done
done
ping -n -q -c 100 -i 0.002 10.77.0.2
"#;

/// The rules, in an order in which several match one packet.
const RULES: [(&str, &str); 6] = [
    ("first", "udp port 5001 and ip6"),
    ("media", "udp portrange 5000-5003"),
    ("far", "dst net fd77::/64 and udp"),
    ("near", "udp dst port 6000 and dst host 10.77.0.2"),
    ("web", "tcp port 80"),
    ("ping", "icmp"),
];

#[test_support::test(Namespaces, Tool("bash"), Tool("ping"), Tool("tcpdump"))]
fn the_hits_of_rules_are_the_packets_that_tcpdump_finds_with_the_same_filters() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (json, capture) = (directory.path().join("json"), directory.path().join("seen"));
    let mut run = process::farwire();
    run.args(["exec", "--require-hits", "--pcap"]).arg(&capture);
    run.arg("--json").arg(&json);
    for (name, filter) in RULES {
        run.args(["--rule", &format!("{filter}: name={name} loss=0%")]);
    }
    run.args(["--", "bash", "-c", TRAFFIC]);
    let said = stderr(&process::succeeds(&mut run)?);
    let summary: Summary = serde_json::from_slice(&std::fs::read(json)?)?;
    let mut before = Vec::new();
    for (number, (name, filter)) in RULES.iter().enumerate() {
        let words = format!("({filter}){}", before.concat());
        before.push(format!(" and not ({filter})"));
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-tt", "-n", "-q", "-r"]);
        tcpdump.arg(capture.with_extension("pcapng")).arg(&words);
        let text = stdout(&process::succeeds(&mut tcpdump)?);
        // A line of a packet begins with its time.
        let is_packet = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let seen = text.lines().filter(is_packet).count() as u64;
        let of = [&summary.up, &summary.down].map(|way| &way.rules[number]);
        let context = || format!("{name}: {seen} lines, {of:?}: {said}");
        ensure!(of.iter().all(|rule| rule.name == *name), context());
        ensure!(
            of.iter().all(|rule| rule.packets == rule.delivered),
            context()
        );
        // The capture has every packet twice: as it arrives, and as it leaves.
        let hits: u64 = of.iter().map(|rule| rule.packets).sum();
        ensure!(hits > 0 && 2 * hits == seen, context());
    }
    let up: u64 = summary.up.rules.iter().map(|rule| rule.packets).sum();
    ensure!(
        summary.up.packets > up && summary.up.packets >= 9_900,
        "{said}"
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_rule_impairs_the_packets_that_match_it_and_no_others() -> Result<()> {
    let mut run = process::farwire();
    run.args([
        "exec",
        "--rule",
        "ip6: name=six up-loss=100%",
        // Ping waits two of its round trips for the last answer.
        "--down-delay",
        "200ms",
        "--",
        "sh",
        "-c",
    ]);
    run.arg("ping -c 3 -i 0.01 10.77.0.2; ping -c 3 -i 0.01 -W 1 fd77::2; true");
    let output = process::succeeds(&mut run)?;
    let pings = stdout(&output);
    has(&pings, "3 received, 0% packet loss")?;
    has(&pings, "0 received")?;
    let said = stderr(&output);
    has(
        &said,
        "rule six: 3 packets, 0 delivered, 3 dropped; no rule: 3 packets",
    )
}

#[test_support::test(Namespaces)]
fn a_rule_without_hits_is_said_and_refused_if_that_was_asked_for() -> Result<()> {
    for (options, command, code) in [
        (&[][..], "true", 0),
        (&["--require-hits"][..], "true", 125),
        (&["--require-hits"][..], "exit 7", 7),
    ] {
        let mut run = process::farwire();
        run.arg("exec").args(options);
        run.args([
            "--rule",
            "tcp: loss=1%",
            "--rule",
            "tcp port 9: name=late loss=2%",
        ]);
        run.args(["--", "sh", "-c", command]);
        let output = process::run(&mut run)?;
        process::ends_with(&output, code, "rule late matched no packet")?;
        let said = stderr(&output);
        let hidden = "rule late never applies: rule tcp comes first and matches all its packets";
        let (start, _) = said.split_once("farwire: link:").context("no link")?;
        has(start, hidden)?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn wrong_rules_are_refused_before_the_command_runs() -> Result<()> {
    for (arguments, words) in [
        (
            &["--rule", "tcp or udp: loss=1%"][..],
            "`or` is not supported",
        ),
        (
            &["--rule", "tcp port 443"][..],
            "write a filter, a colon, a space and conditions",
        ),
        (
            &["--rule", "host no.invalid: loss=1%"][..],
            "rules: host-no-invalid: no.invalid: ",
        ),
        (&["--require-hits"][..], "the link has no rules"),
    ] {
        let mut run = process::farwire();
        run.arg("exec").args(arguments).args(["--", "echo", "ran"]);
        let output = process::run(&mut run)?;
        process::ends_with(&output, 125, words)?;
        ensure!(output.stdout.is_empty(), "the command ran");
    }
    Ok(())
}
