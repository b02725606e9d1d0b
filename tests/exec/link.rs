//! The command experiences the configured conditions on the link.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context, Result, ensure};
use netio::kill_on_drop::KillOnDrop;
use serde_json::Value;
use tempfile::NamedTempFile;

use test_support::process::{self, has, stderr, stdout};
use test_support::wan_box::Summary;

#[test_support::test(Namespaces, Tool("ping"))]
fn every_ping_takes_at_least_the_delay_of_both_directions() -> Result<()> {
    every_ping_takes_at_least("--delay 20ms", "10.77.0.2", 40.0)
}

#[test_support::test(Namespaces, Tool("ping"))]
fn every_ipv6_ping_takes_at_least_the_delay_of_both_directions() -> Result<()> {
    every_ping_takes_at_least("--up-delay 5ms --down-delay 2ms", "fd77::2", 7.0)
}

fn every_ping_takes_at_least(link: &str, to: &str, least: f64) -> Result<()> {
    // Without a deadline (-w) ping waits only two round trips for the last answer. With it, it sends until 50 are answered.
    let pings = Pings::run(link, &format!("-c 50 -w 30 -i 0.02 {to}"))?;
    let answered = &pings.answered;
    let first_50: BTreeSet<u32> = (1..=50).collect();
    ensure!(*answered == first_50, "not the first 50: {answered:?}");
    let shortest = pings.times.iter().copied().fold(f64::INFINITY, f64::min);
    ensure!(shortest >= least, "a ping took {shortest} of {least} ms");
    Ok(())
}

/// No thread wakes up within a nanosecond, and every thread within a second.
#[test_support::test(Namespaces)]
fn a_delay_below_what_the_host_adds_is_said_before_anything_crosses_the_link() -> Result<()> {
    for (delay, is_said) in [("1ns", true), ("1s", false)] {
        let mut command = process::farwire();
        command.args([
            "exec",
            "--up-delay",
            delay,
            "--",
            "sh",
            "-c",
            "echo now >&2",
        ]);
        let ended = process::succeeds(&mut command)?;
        let text = stderr(&ended);
        let (before, _) = text.split_once("now\n").with_context(|| text.clone())?;
        let said = before.contains("box.up.delay: a delay of 1ns is less than the ");
        ensure!(said == is_said, "{text}");
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_file_without_conditions_produces_a_warning_and_one_of_another_kind_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("link.toml");
    for (text, code, words) in [
        (
            "# nothing\n",
            0,
            "the file states no conditions, so it changes nothing",
        ),
        (
            "[[links]]\na = 'eth1'\n",
            125,
            "which `farwire emulate --links` takes",
        ),
    ] {
        fs::write(&file, text)?;
        let mut command = process::farwire();
        command.args(["exec", "--link"]).arg(&file);
        let output = process::run(command.args(["--", "true"]))?;
        process::ends_with(&output, code, words)?;
    }
    Ok(())
}

#[test_support::test(serial, Namespaces, Tool("ping"))]
fn losses_lie_in_the_99_9_binomial_interval_and_add_up() -> Result<()> {
    const COUNT: u64 = 3_000;
    // Only user 0 may send pings this often.
    let pings = Pings::run(
        "--root --loss 10%",
        &format!("-c {COUNT} -i 0.001 10.77.0.2"),
    )?;
    let (up, down) = (&pings.summary.up, &pings.summary.down);
    let told = format!("{} answers, {up:?}, {down:?}", pings.answered.len());
    ensure!(
        up.packets == COUNT,
        "not every ping was offered to the link: {told}"
    );
    ensure!(up.own_losses() + down.own_losses() == 0, "{told}");
    // The far end answers each ping that reaches it.
    ensure!(down.packets == up.delivered, "{told}");
    ensure!(pings.answered.len() as u64 == down.delivered, "{told}");
    for way in [up, down] {
        ensure!(way.delivered + way.lost() == way.packets, "{told}");
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let (packets, lost) = (way.packets as f64, way.lost() as f64);
        let spread = 3.2905 * (packets * 0.1 * 0.9).sqrt();
        ensure!(
            (lost - packets * 0.1).abs() <= spread,
            "not within {spread}: {told}"
        );
    }
    for (stage, way) in [("box.up.loss", up), ("box.down.loss", down)] {
        let shares = &pings.summary.shares;
        let said = shares.iter().find(|share| share.stage == stage);
        let said = said.with_context(|| format!("{stage}: {shares:?}"))?;
        ensure!(
            (said.packets, said.count) == (way.packets, way.lost()),
            "{said:?}, {told}"
        );
        ensure!((said.asked_percent - 10.0).abs() < 1e-9, "{said:?}");
    }
    Ok(())
}

/// A departure is stamped when the send call has returned, which never happens within a nanosecond of its due time.
#[test_support::test(Namespaces)]
fn a_budget_of_a_nanosecond_makes_every_packet_late_and_one_of_a_second_none() -> Result<()> {
    for (budget, ns, late) in [("1ns", 1, 40), ("1s", 1_000_000_000, 0)] {
        let json = NamedTempFile::new()?;
        let mut command = process::farwire();
        command.args(["exec", "--delay", "2ms", "--late-budget", budget]);
        command.arg("--json").arg(json.path()).arg("--");
        command.arg(process::program());
        command.args("measure ping 10.77.0.2 -c 20 -i 0.002".split(' '));
        let said = stderr(&process::succeeds(&mut command)?);
        let summary: Summary = serde_json::from_slice(&fs::read(json.path())?)?;
        let left = &summary.departure_error;
        ensure!(
            (left.count, left.over_budget, left.budget_ns) == (40, late, ns),
            "{left:?}, {said}"
        );
        let is_told = said.contains("late: all figures measured meanwhile show this machine");
        ensure!(is_told == (late > 0), "{said}");
        // The JSON has what was printed.
        let notes = &summary.notes;
        let is_noted = notes.iter().any(|note| note.contains(" left more than "));
        ensure!(is_noted == (late > 0), "{notes:?}");
        let is_printed = |note: &String| said.contains(&format!("farwire: {note}\n"));
        ensure!(notes.iter().all(is_printed), "{notes:?}, {said}");
    }
    Ok(())
}

/// The link drops every answer, so that one packet leaves it.
#[test_support::test(Namespaces)]
fn a_single_late_packet_is_explained_in_the_json_as_on_the_terminal() -> Result<()> {
    let json = NamedTempFile::new()?;
    let mut command = process::farwire();
    command.args(["exec", "--down-loss", "100%", "--late-budget", "1ns"]);
    command.arg("--json").arg(json.path()).arg("--");
    command.arg(process::program());
    command.args("measure ping 10.77.0.2 -c 1 -W 100ms".split(' '));
    let said = stderr(&process::run(&mut command)?);
    let summary: Summary = serde_json::from_slice(&fs::read(json.path())?)?;
    let note = summary.notes.first().with_context(|| said.clone())?;
    has(note, "1 of 1 packet")?;
    has(note, " late, because this machine was busy for a moment")?;
    has(note, "allow it with --late-budget")?;
    has(&said, note)
}

/// The kernel counts datagrams with a wrong checksum together with those that find a socket full.
#[test_support::test(Namespaces)]
fn what_has_a_wrong_checksum_is_lost_and_no_drop_of_a_full_socket() -> Result<()> {
    let measured = |line: &str| -> Result<Value> {
        let mut command = process::farwire();
        command.args(["exec", "--up-corrupt", "5%", "--seed", "3", "--"]);
        command.arg(process::program()).arg("measure");
        let output = process::succeeds(command.args(line.split(' ')))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let udp = measured("udp 10.77.0.2 -t 1 -b 10M --json -")?;
    let up = |metric: &str| {
        let mut figures = udp["figures"].as_array().into_iter().flatten();
        let figure =
            figures.find(|figure| figure["metric"] == metric && figure["direction"] == "up");
        figure.and_then(|figure| figure["value"].as_f64())
    };
    ensure!(up("host_dropped_packets") == Some(0.0), "{udp}");
    // About 43 of 856 are expected.
    ensure!(up("lost_packets").is_some_and(|lost| lost > 15.0), "{udp}");
    let probe = measured("probe 10.77.0.2 -c 400 -i 2ms -W 500ms --json -")?;
    let facts = probe["facts"].as_object().context("facts")?;
    ensure!(!facts.contains_key("far_overflow"), "{probe}");
    ensure!(!facts.contains_key("host_overflow"), "{probe}");
    Ok(())
}

/// The far end's socket has room for one or two datagrams and is never read. The connection follows the datagrams on the same link.
#[test_support::test(Namespaces, Tool("python3"))]
fn what_a_full_socket_dropped_is_no_loss_of_the_link() -> Result<()> {
    const FAR: &str = "import socket, time
full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
full.bind(('', 9))
server = socket.create_server(('', 9))
time.sleep(1000)";
    const NEAR: &str = "import socket
near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(50):
    near.sendto(bytes(1000), ('10.77.0.2', 9))
socket.create_connection(('10.77.0.2', 9))";
    let mut command = process::farwire();
    command.args(["exec", "--far", &format!("exec python3 -c \"{FAR}\"")]);
    let output = process::succeeds(command.args(["--", "python3", "-c", NEAR]))?;
    let said = stderr(&output);
    has(&said, "full UDP sockets dropped ")?;
    has(
        &said,
        "datagrams at the far end: tools count these as lost, but the link did not drop them",
    )
}

/// Two threads for each processor, so that another ordinary thread has to wait for its turn.
#[test_support::test(serial, Namespaces)]
fn a_host_whose_other_programs_leave_nothing_idle_is_told_to_be_starved() -> Result<()> {
    let mut command = process::farwire();
    let output = beside_busy_programs(command.args(["exec", "--", "sleep", "1"]))?;
    has(&stderr(&output), "the host was starved of CPU")
}

/// exec watches the host for the instrument, which would take the emulator for another program.
#[test_support::test(serial, Namespaces)]
fn an_instrument_behind_a_link_says_that_the_host_was_starved() -> Result<()> {
    let mut command = process::farwire();
    command.args(["exec", "--", process::program()]);
    command.args("measure ping 10.77.0.2 -c 50 -i 20ms --json -".split(' '));
    let output = beside_busy_programs(&mut command)?;
    let measurement: Value = serde_json::from_slice(&output.stdout)?;
    let machine = measurement["facts"]["machine"].as_str();
    let machine = machine.with_context(|| measurement["facts"].to_string())?;
    has(machine, "the host was starved of CPU")?;
    has(machine, "so the figures may show this machine")?;
    has(&stderr(&output), "the host was starved of CPU")
}

/// Runs a command beside two busy programs for each processor.
fn beside_busy_programs(command: &mut Command) -> Result<Output> {
    let busy = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        KillOnDrop::spawn(&mut command)
    };
    let count = 2 * thread::available_parallelism()?.get();
    let others: Vec<_> = (0..count).map(|_| busy()).collect::<Result<_, _>>()?;
    let output = process::succeeds(command)?;
    drop(others);
    Ok(output)
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_seed_drops_the_same_packets_again_and_another_seed_others() -> Result<()> {
    let run = |seed: u32| {
        let link = format!("--loss 5% --seed {seed}");
        Pings::run(&link, "-c 500 -i 0.002 10.77.0.2")
    };
    let runs = [run(7)?, run(7)?, run(8)?];
    // Ping waits only two round trips for the last answers, so that a busy machine answers some of them too late.
    let ends = runs.iter().filter_map(|run| run.answered.last()).min();
    let end = *ends.context("no answer")?;
    ensure!(end > 400, "no answer after ping {end} of 500");
    let [first, again, other] = runs.map(|mut run| {
        let _late = run.answered.split_off(&(end + 1));
        run.answered
    });
    ensure!(first.len() < end as usize, "nothing was lost");
    ensure!(
        first == again,
        "one seed, other losses: {:?}",
        first.symmetric_difference(&again)
    );
    ensure!(first != other, "two seeds, the same losses");
    Ok(())
}

/// The output of ping(8), and the counters of the link.
struct Pings {
    /// Sequence numbers of the answers.
    answered: BTreeSet<u32>,
    /// Round-trip times in milliseconds.
    times: Vec<f64>,
    summary: Summary,
}

impl Pings {
    /// Runs ping with the arguments `ping` behind a link with the arguments `link`.
    fn run(link: &str, ping: &str) -> Result<Self> {
        let json = NamedTempFile::new()?;
        let mut command = process::farwire();
        command.arg("exec").args(link.split_whitespace());
        command.arg("--json").arg(json.path());
        command
            .args(["--", "ping", "-n"])
            .args(ping.split_whitespace());
        let output = process::run(&mut command)?;
        let text = stdout(&output);
        ensure!(
            output.status.success(),
            "{}: {text}{}",
            output.status,
            stderr(&output)
        );
        let answers = text.lines().filter(|line| line.contains("time="));
        let mut pings = Self {
            answered: BTreeSet::new(),
            times: Vec::new(),
            summary: serde_json::from_slice(&fs::read(json.path())?)?,
        };
        for line in answers {
            let sequence = value(line, "icmp_seq=")?;
            ensure!(!line.contains("DUP"), "{line}");
            ensure!(
                pings.answered.insert(sequence.parse()?),
                "answered twice: {line}"
            );
            pings.times.push(value(line, "time=")?.parse()?);
        }
        Ok(pings)
    }
}

/// Returns the word after `key` in a line of ping.
fn value<'l>(line: &'l str, key: &str) -> Result<&'l str> {
    let (_, rest) = line.split_once(key).with_context(|| line.to_owned())?;
    Ok(rest.split(' ').next().unwrap_or(rest))
}
