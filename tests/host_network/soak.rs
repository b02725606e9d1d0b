//! Half an hour of traffic on the host's network, after which farwire is as large as at the beginning.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use netio::replaced_files::{ReplacedFile, replace_files};
use nix::sys::signal::Signal;

use super::{end, serve_folder};
use test_support::host::{Host, OTHER, serve_names};
use test_support::powerless::farwire_unprivileged;
use test_support::usage::{Usage, heap_kib};
use test_support::wan_box::Summary;

/// The time after which every kind of traffic has used memory.
const WARM_UP: Duration = Duration::from_secs(60);
const LASTS: Duration = Duration::from_secs(30 * 60);
/// The time during which usage is read. The least reading has none of the connections that come and go.
const READING: Duration = Duration::from_secs(20);
/// The interval between two readings.
const INTERVAL: Duration = Duration::from_millis(100);
/// The factor by which memory may exceed its first value later.
const FLAT: f64 = 1.05;
/// The number of descriptors that connections under way may have.
const UNDER_WAY: usize = 8;
/// The least number of packets up in that time: those of the pings alone are 20 per second.
const LEAST_PACKETS: u64 = 20 * 30 * 60 / 2;

/// The least usage of a process within some time.
#[derive(Debug)]
struct Least {
    heap_kib: u64,
    descriptors: usize,
    threads: usize,
}

impl Least {
    fn of(pid: u32) -> Result<Self> {
        let began = Instant::now();
        let mut least = Self {
            heap_kib: u64::MAX,
            descriptors: usize::MAX,
            threads: usize::MAX,
        };
        while began.elapsed() < READING {
            let now = Usage::of(pid)?;
            least.heap_kib = least.heap_kib.min(heap_kib(pid)?);
            least.descriptors = least.descriptors.min(now.descriptors);
            least.threads = least.threads.min(now.threads);
            thread::sleep(INTERVAL);
        }
        Ok(least)
    }
}

#[test_support::test(
    serial,
    Soak,
    HostNetwork,
    Tool("python3"),
    Tool("curl"),
    Tool("getent"),
    Tool("ping")
)]
fn half_an_hour_on_the_hosts_network_leaves_no_growth() -> Result<()> {
    let host = Host::start(false)?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("large"), vec![7_u8; 4 << 20])?;
    fs::write(directory.path().join("small"), "small")?;
    let (mut server, port) = serve_folder(host.own(), "127.0.0.1", directory.path())?;
    serve_names(host.other(), OTHER[0], [198, 51, 100, 7])?;
    let line = format!(
        "(while :; do curl -sS --max-time 60 -o /dev/null http://host.farwire.internal:{port}/large || sleep 1; done) & \
         (while :; do curl -sS --max-time 60 -o /dev/null http://localhost:{port}/small || sleep 1; sleep 0.05; done) & \
         (while :; do getent ahostsv4 page.example || sleep 1; sleep 0.1; done >/dev/null) & \
         (while :; do ping -q -n -i 0.05 -c 100 {} >/dev/null || sleep 1; done) & \
         wait",
        OTHER[0]
    );
    let json = directory.path().join("summary");
    let host_port = port.to_string();
    let mut command = farwire_unprivileged()?;
    command
        .args([
            "exec", "--net", "host", "--delay", "5ms", "--rate", "50mbit",
        ])
        .args(["--host-port", &host_port, "--json"])
        .arg(&json)
        .args(["--", "sh", "-c", &line])
        // Use one heap, so that freed memory is reused.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let names = format!("nameserver {}\n", OTHER[0]);
    let file = ReplacedFile::new(Path::new("/etc/resolv.conf"), names)?;
    replace_files(&mut command, vec![file]);
    let mut farwire = host.own().run(|| command.spawn())??;
    let watch = || -> Result<()> {
        thread::sleep(WARM_UP);
        let first = Least::of(farwire.id())?;
        thread::sleep(LASTS);
        let last = Least::of(farwire.id())?;
        ensure!(
            last.heap_kib as f64 <= FLAT * first.heap_kib as f64
                && last.descriptors <= first.descriptors + UNDER_WAY
                && last.threads <= first.threads,
            "at first {first:?}, at the end {last:?}"
        );
        Ok(())
    };
    let watched = watch();
    end(&mut farwire, Signal::SIGTERM)?;
    server.kill()?;
    server.wait()?;
    watched?;
    let summary: Summary = serde_json::from_slice(&fs::read(json)?)?;
    ensure!(summary.up.delivered >= LEAST_PACKETS, "{summary:?}");
    Ok(())
}
