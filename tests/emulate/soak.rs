//! Twenty links at a container of Podman, one after the other: how they delay and lose, what they cost a neighbour, how
//! they end, and how they return when the container restarts.

use std::fs;
use std::iter;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use super::attach::{counts, least_rtt_ms};
use super::container::Podman;
use test_support::process::{self, ip, stdout, succeeds_in, wait_for};
use test_support::wan_box::WanBox;

const ROUNDS: usize = 20;
/// The pings of a neighbour in each round, at intervals of 20 ms: more than 250.
const NEIGHBOUR_PINGS: u32 = 250;
/// The greatest permitted difference of the median round trip from what was asked, in ms.
const TOLERANCE_MS: f64 = 0.3;
/// The longest time without an answer of the container, when its link begins or ends.
const INTERRUPTION: Duration = Duration::from_millis(50);
/// The longest time until everything is as before after a kill, or until a container that has started has its link.
const RECOVERY: Duration = Duration::from_secs(1);
/// The number of standard deviations by which a number of losses may differ from its mean.
const DEVIATIONS: f64 = 5.0;

/// The greatest number of packets besides the pings, such as those of ARP, that a link may lose in a round.
const OTHERS: u64 = 20;

/// A ping that runs until it is interrupted.
struct Watch {
    ping: Child,
    output: NamedTempFile,
}

impl Watch {
    /// Starts a ping from `host` with this interval in seconds. Every answer has the time of its arrival.
    fn start(host: &NetNs, to: &str, interval: &str) -> Result<Self> {
        let output = NamedTempFile::new()?;
        let mut command = Command::new("ping");
        command.args(["-D", "-n", "-i", interval, to]);
        command.stdin(Stdio::null()).stdout(output.reopen()?);
        let ping = host.run(|| command.spawn())??;
        Ok(Self { ping, output })
    }

    /// Returns the arrivals of all answers so far, as times since 1970.
    fn arrivals(&self) -> Result<Vec<Duration>> {
        let said = fs::read_to_string(self.output.path())?;
        let answers = said.lines().filter(|line| line.contains(" time="));
        let arrivals = answers.filter_map(|line| {
            let (time, _) = line.strip_prefix('[')?.split_once(']')?;
            Some(Duration::from_secs_f64(time.parse().ok()?))
        });
        Ok(arrivals.collect())
    }

    /// Waits for an answer that arrived after this time since 1970, and returns when it arrived.
    fn await_answer(&self, after: Duration) -> Result<Duration> {
        wait_for("an answer to a ping", || {
            let arrivals = self.arrivals()?;
            Ok(arrivals.into_iter().find(|arrival| *arrival > after))
        })
    }

    /// Ends the ping, and returns what it has printed.
    fn end(mut self) -> Result<String> {
        kill(Pid::from_raw(self.ping.id().try_into()?), Signal::SIGINT)?;
        process::end_of(&mut self.ping)?;
        Ok(fs::read_to_string(self.output.path())?)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.ping.kill();
        let _ = self.ping.wait();
    }
}

#[test_support::test(serial, Soak, Podman)]
fn twenty_links_delay_the_host_and_a_container_and_cost_a_neighbour_no_packet() -> Result<()> {
    let podman = Podman::start()?;
    for name in ["web", "db"] {
        podman.run(name, "bridge")?;
    }
    let (web, db) = (podman.address("web")?, podman.address("db")?);
    let medians = || -> Result<[f64; 2]> {
        let mut ping = Command::new("ping");
        let ping = ping.args(["-n", "-c", "50", "-i", "0.02", &web]);
        let of_host = stdout(&succeeds_in(&podman.host, ping)?);
        let of_container = podman.podman(&format!("exec db ping -c 7 {web}"))?;
        Ok([median_ms(&of_host)?, median_ms(&of_container)?])
    };
    for round in 0..ROUNDS {
        let watch = Watch::start(&podman.host, &db, "0.02")?;
        watch.await_answer(Duration::ZERO)?;
        let before = medians()?;
        let line = "--container web --delay 50ms";
        let wan = WanBox::start_at(podman.farwire(), &podman.host, line)?;
        let with = medians()?;
        wan.stop()?;
        let [sent, answered] = counts(&watch.end()?)?;
        // The last one may have been under way.
        ensure!(
            sent >= NEIGHBOUR_PINGS && sent - answered <= 1,
            "round {round}: {answered} of {sent} pings of the neighbour were answered"
        );
        for (before, with) in before.into_iter().zip(with) {
            ensure!(
                (with - before - 100.0).abs() <= TOLERANCE_MS,
                "round {round}: the median round trip was {before} ms, and then {with} ms"
            );
        }
    }
    Ok(())
}

#[test_support::test(serial, Soak, Podman)]
fn twenty_links_begin_and_end_without_a_long_interruption() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let web = podman.address("web")?;
    for round in 0..ROUNDS {
        let watch = Watch::start(&podman.host, &web, "0.002")?;
        watch.await_answer(Duration::ZERO)?;
        WanBox::start_at(podman.farwire(), &podman.host, "--container web")?.stop()?;
        watch.await_answer(now()?)?;
        let arrivals = watch.arrivals()?;
        let gaps =
            iter::zip(&arrivals, &arrivals[1..]).map(|(one, next)| next.saturating_sub(*one));
        let longest = gaps.max().context("no answers")?;
        ensure!(
            longest < INTERRUPTION,
            "round {round}: no answer for {longest:?}"
        );
    }
    Ok(())
}

#[test_support::test(serial, Soak, Podman)]
fn twenty_links_lose_in_each_direction_what_was_asked_and_ping_sees_it() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let web = podman.address("web")?;
    for round in 1..=ROUNDS {
        // Both ends know the hardware address of the other one afterwards.
        let mut ping = Command::new("ping");
        succeeds_in(&podman.host, ping.args(["-q", "-c", "1", &web]))?;
        let line = format!("--container web --up-loss 10% --down-loss 20% --seed {round}");
        let wan = WanBox::start_at(podman.farwire(), &podman.host, &line)?;
        let mut ping = Command::new("ping");
        let ping = ping.args(["-q", "-n", "-c", "1000", "-i", "0.002", "-W", "1", &web]);
        let [sent, answered] = counts(&stdout(&succeeds_in(&podman.host, ping)?))?;
        let summary = wan.stop()?;
        for (direction, asked) in [(&summary.down, 0.2), (&summary.up, 0.1)] {
            let packets = direction.packets as f64;
            let (mean, variance) = (packets * asked, packets * asked * (1.0 - asked));
            ensure!(
                (direction.lost() as f64 - mean).abs() <= DEVIATIONS * variance.sqrt(),
                "round {round}: {summary:?}"
            );
        }
        let lost = summary.down.lost() + summary.up.lost();
        let missing = u64::from(sent - answered);
        ensure!(
            missing <= lost && lost <= missing + OTHERS,
            "round {round}: {answered} of {sent} pings were answered: {summary:?}"
        );
    }
    Ok(())
}

#[test_support::test(serial, Soak, Podman)]
fn twenty_killed_emulators_leave_traffic_unimpaired_within_a_second() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let web = podman.address("web")?;
    let before = interfaces(&podman.host)?;
    for round in 0..ROUNDS {
        let mut ping = Command::new("ping");
        succeeds_in(&podman.host, ping.args(["-q", "-c", "1", &web]))?;
        let line = "--container web --loss 100%";
        let mut wan = WanBox::start_at(podman.farwire(), &podman.host, line)?;
        let watch = Watch::start(&podman.host, &web, "0.01")?;
        let killed = now()?;
        wan.end_by(Signal::SIGKILL)?;
        let took = watch.await_answer(killed)?.saturating_sub(killed);
        ensure!(took <= RECOVERY, "round {round}: it took {took:?}");
        wait_for("the interfaces of before", || {
            Ok((interfaces(&podman.host)? == before).then_some(()))
        })?;
    }
    Ok(())
}

#[test_support::test(serial, Soak, Podman)]
fn a_container_that_stops_and_starts_twenty_times_has_its_link_within_a_second() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(podman.farwire(), &podman.host, line)?;
    for round in 0..ROUNDS {
        podman.podman("stop --time 0 web")?;
        wan.await_line("is gone: waiting for container web")?;
        podman.podman("start web")?;
        let started = Instant::now();
        wan.await_line("container web is back: its link is inserted at")?;
        let took = started.elapsed();
        ensure!(took <= RECOVERY, "round {round}: it took {took:?}");
        wan.forget_lines();
        let mut ping = Command::new("ping");
        let ping = ping.args(["-q", "-c", "3", "-i", "0.1", &podman.address("web")?]);
        let least = least_rtt_ms(&stdout(&succeeds_in(&podman.host, ping)?))?;
        ensure!(least >= 40.0, "round {round}: {least} ms");
    }
    wan.stop()?;
    let left = ip(&podman.host, "-brief link show type veth")?;
    ensure!(!left.contains("farw"), "{left}");
    Ok(())
}

/// Returns the names and hardware addresses of all interfaces of a namespace. Their states may still be changing.
fn interfaces(host: &NetNs) -> Result<Vec<(String, String)>> {
    let listed = ip(host, "-brief link show")?;
    let columns = listed.lines().map(|line| line.split_whitespace());
    let interfaces = columns.filter_map(|mut columns| {
        let (name, address) = (columns.next()?, columns.nth(1)?);
        Some((name.to_owned(), address.to_owned()))
    });
    Ok(interfaces.collect())
}

/// Returns the time since 1970.
fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// Returns the median of the times in the lines of ping's answers.
fn median_ms(said: &str) -> Result<f64> {
    let times = said.lines().filter_map(|line| {
        let (_, time) = line.split_once("time=")?;
        time.split_whitespace().next()?.parse().ok()
    });
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("no answers")
}
