//! A thousand links of one emulator: the time to open and close them, their cost while nothing passes, and the effect of the others on
//! ten busy ones.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::instruments::pair::figure;
use crate::processes::{FARWIRE, Running, await_listener, processor_seconds};
use crate::report::rows::{Found, Quantity};
use crate::results::{Outcome, scratch};
use crate::rounds::{rounds, shuffled};

const ALL: usize = 1000;
const BUSY: usize = 10;
/// The duration of the stream on each busy link, in seconds.
const SECONDS: u32 = 4;
/// The time until the links are idle, and the time for which their processor time is then counted.
pub(crate) const SETTLED: Duration = Duration::from_secs(10);
pub(crate) const COUNTED: Duration = Duration::from_secs(3);

/// The result for a box of links.
struct Came {
    opened_s: f64,
    closed_s: f64,
    /// The use of one processor; only for all links.
    idle_percent: Option<f64>,
    /// The goodput of all busy links together.
    gbit_per_s: f64,
}

pub(crate) fn run() -> Result<Outcome> {
    let rounds = rounds(3)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "one emulator with {ALL} links of 1 ms in each direction, and with {BUSY} of them: the time from its start until they are open, from SIGTERM to its end, its processor time \
             over {} s when nothing has passed for {} s, and {BUSY} TCP streams (cubic, {SECONDS} s), one through each of those {BUSY} links",
            COUNTED.as_secs(),
            SETTLED.as_secs()
        ),
    );
    let ends = Ends::build(ALL, BUSY)?;
    let counts = [ALL, BUSY];
    let mut found = Vec::new();
    // Only the first round waits until the links are idle, which takes long.
    for number in 0..rounds {
        let round = shuffled(1, &counts, |links| {
            ends.emulate(*links, number == 0 && *links == ALL)
        })?;
        found.extend(round);
    }
    let names = vec![
        format!("farwire, {ALL} links"),
        format!("these {BUSY} alone"),
    ];
    let of = |value: fn(&Came) -> f64| Found {
        names: names.clone(),
        rounds: found
            .iter()
            .map(|round| round.iter().map(|came| value(came).into()).collect())
            .collect(),
    };
    let busy = Quantity::more(&format!("{BUSY} busy links of {ALL}"), "Gbit/s");
    outcome.rows(of(|came| came.gbit_per_s).rows(&busy));
    let opening = Quantity::less(&format!("{ALL} links, opening"), "s");
    outcome.rows(of(|came| came.opened_s).alone(&opening, 0));
    let closing = Quantity::less(&format!("{ALL} links, closing"), "s");
    outcome.rows(of(|came| came.closed_s).alone(&closing, 0));
    let idle: Vec<f64> = found
        .iter()
        .filter_map(|round| round.first()?.idle_percent)
        .collect();
    let idle = Found {
        names: vec![names[0].clone()],
        rounds: idle.iter().map(|percent| vec![(*percent).into()]).collect(),
    };
    outcome.rows(idle.alone(
        &Quantity::less(&format!("{ALL} idle links"), "% of a CPU"),
        0,
    ));
    Ok(outcome)
}

/// The ends of the links: clients in one namespace, servers in another, the peers of their interfaces in a third.
pub(crate) struct Ends {
    pub(crate) client: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) server: NetNs,
    _far_end: Running,
}

impl Ends {
    /// Builds this many links; the first `addressed` ones have addresses.
    pub(crate) fn build(links: usize, addressed: usize) -> Result<Self> {
        let [client, middle, server] = [NetNs::create()?, NetNs::create()?, NetNs::create()?];
        let sides = [(&client, 'a', 1), (&server, 'b', 2)];
        for ns in [&client, &middle, &server] {
            for of in ["all", "default"] {
                // A kernel without IPv6 has no such sysctl.
                let _ = ns.write_sysctl(&format!("net/ipv6/conf/{of}/disable_ipv6"), "1");
            }
        }
        for (ns, side, number) in sides {
            // The peers go to the namespace of a process, because other programs cannot use a thread's own.
            let mut there = Running::start(&middle, Command::new("sleep").arg("600"))?;
            let mut batch = String::new();
            for link in 0..links {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    batch,
                    "link add {side}{link} type veth peer name {side}{link} netns {}\nlink set {side}{link} up",
                    there.pid()
                );
                if link < addressed {
                    let _ = writeln!(
                        batch,
                        "addr add {}/24 dev {side}{link}",
                        address(link, number)
                    );
                }
            }
            ip(ns, &batch)?;
            let up = (0..links).map(|link| format!("link set {side}{link} up\n"));
            ip(&middle, &up.collect::<String>())?;
            for name in ["tcp_rmem", "tcp_wmem"] {
                ns.write_sysctl(&format!("net/ipv4/{name}"), "4096 131072 134217728")?;
            }
        }
        let mut far_end = Command::new(FARWIRE);
        far_end.args(["serve", "--quiet", "--congestion", "cubic"]);
        let running = Running::start(&server, &mut far_end)?;
        await_listener(&server, "farwire serve")?;
        Ok(Self {
            client,
            middle,
            server,
            _far_end: running,
        })
    }

    /// Opens the first `links` links of `program` with a delay of 1 ms in each direction.
    pub(crate) fn open(&self, program: &Path, links: usize) -> Result<OpenLinks> {
        let file = links_file(0..links, "delay = \"1ms\"")?;
        let mut command = Command::new(program);
        command.args(["emulate", "--links"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = Instant::now();
        let mut emulator = KillOnDrop::spawn_in(&self.middle, command.stderr(Stdio::piped()))?;
        let said = emulator.streams().stderr.take();
        let mut said = BufReader::new(said.context("a pipe was asked for")?).lines();
        let mut last = String::new();
        let is_ready = |line: std::io::Result<String>| {
            last = line.unwrap_or_default();
            last.contains("until a signal")
        };
        ensure!(
            said.any(is_ready),
            "emulate --links ended at its start: {last}"
        );
        let opened_s = started.elapsed().as_secs_f64();
        // A reader must take the output at its end.
        thread::spawn(move || said.count());
        Ok(OpenLinks { emulator, opened_s })
    }

    /// Opens the first `links` links, lets the busy ones carry their streams, and closes all.
    fn emulate(&self, links: usize, with_idle: bool) -> Result<Came> {
        let mut open = self.open(Path::new(FARWIRE), links)?;
        let pid = open.pid();
        let idle_percent = with_idle.then(|| idle_percent(pid)).transpose()?;
        Ok(Came {
            opened_s: open.opened_s,
            gbit_per_s: self.streams()? / 1e9,
            closed_s: open.end_by(Signal::SIGTERM)?,
            idle_percent,
        })
    }

    /// Sends a stream through each busy link simultaneously; returns the sum of their goodputs, in bit/s.
    fn streams(&self) -> Result<f64> {
        let mut clients = Vec::new();
        for link in 0..BUSY {
            let report = scratch(&format!("link{link}.json"))?;
            let mut command = Command::new(FARWIRE);
            command.args(["measure", "tcp", &address(link, 2)]);
            command.args([
                "-t",
                &SECONDS.to_string(),
                "-C",
                "cubic",
                "--quiet",
                "--json",
            ]);
            let client = Running::start(&self.client, command.arg(&report))?;
            clients.push((client, report));
        }
        let mut sum = 0.0;
        for (mut client, report) in clients {
            while !client.has_ended()? {
                thread::sleep(Duration::from_millis(50));
            }
            let text = fs::read_to_string(&report).context("a client said nothing")?;
            fs::remove_file(&report)?;
            let measured = serde_json::from_str(&text)?;
            sum += figure(&measured, "goodput_bit_per_s", "mean")?;
        }
        Ok(sum)
    }
}

/// An emulator whose links are open.
pub(crate) struct OpenLinks {
    emulator: KillOnDrop,
    /// The seconds from its start until they were open.
    pub(crate) opened_s: f64,
}

impl OpenLinks {
    pub(crate) fn pid(&mut self) -> u32 {
        self.emulator.streams().id()
    }

    /// Sends a signal that ends the emulator. Returns the seconds until it has ended.
    pub(crate) fn end_by(&mut self, signal: Signal) -> Result<f64> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        let sent = Instant::now();
        kill(pid, signal)?;
        self.emulator.wait()?;
        Ok(sent.elapsed().as_secs_f64())
    }
}

/// Returns the address of an end of a link: the client's number is 1, the server's 2.
pub(crate) fn address(link: usize, number: usize) -> String {
    format!("10.{}.{}.{number}", 80 + link / 250, link % 250)
}

/// Writes the file for `emulate --links` with these links under these conditions.
pub(crate) fn links_file(links: Range<usize>, conditions: &str) -> Result<PathBuf> {
    let file = scratch("links.toml")?;
    let table =
        |link| format!("[[links]]\na = \"a{link}\"\nb = \"b{link}\"\nlink = {{ {conditions} }}\n");
    fs::write(&file, links.map(table).collect::<String>())?;
    Ok(file)
}

/// Measures the use of one processor by that process when nothing has passed for a while.
pub(crate) fn idle_percent(pid: u32) -> Result<f64> {
    let seconds = || processor_seconds(pid).context("the emulator has ended");
    thread::sleep(SETTLED);
    let before = seconds()?;
    thread::sleep(COUNTED);
    Ok(100.0 * (seconds()? - before) / COUNTED.as_secs_f64())
}

/// Runs iproute2 on many lines.
fn ip(ns: &NetNs, batch: &str) -> Result<()> {
    let file = scratch("ip.batch")?;
    fs::write(&file, batch)?;
    let mut command = Command::new("ip");
    let status = ns.run(|| command.arg("-batch").arg(&file).status())??;
    ensure!(status.success(), "ip -batch: {status}");
    Ok(())
}
