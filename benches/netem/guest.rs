//! Inside the guest: sends packets through each discipline and records the times of sending and arrival.

use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use netio::TimestampedUdp;
use nix::sched::{CloneFlags, unshare};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::socket::{setsockopt, sockopt};

use crate::jobs::{AQMS, Job, NETEMS};

/// The argument that starts this part.
pub(crate) const ARGUMENT: &str = "guest";
/// The file with the names of the jobs.
pub(crate) const JOBS: &str = "jobs";
/// The file for errors.
pub(crate) const FAILED: &str = "failed";

const NEAR: &str = "10.9.0.1";
const FAR: &str = "10.9.0.2";
const PORT: u16 = 5_000;
/// The buffer of the far end's socket, in bytes.
const BUFFER: usize = 32 << 20;
/// The wait for the last packet, longer than the delay of any job.
const LAST: Duration = Duration::from_secs(2);

/// The number of a packet and its arrival, in `CLOCK_REALTIME`, ns.
type Came = (u32, u64);

/// Does the jobs that `directory` names, writes the results there, and turns the machine off.
pub(crate) fn run(directory: &Path) -> Result<()> {
    if let Err(cause) = jobs(directory) {
        fs::write(directory.join(FAILED), format!("{cause:#}"))?;
    }
    reboot(RebootMode::RB_POWER_OFF)?;
    Ok(())
}

fn jobs(directory: &Path) -> Result<()> {
    let wanted = fs::read_to_string(directory.join(JOBS))?;
    ip("link set lo up")?;
    ip("link add wan address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02")?;
    ip(&format!("addr add {NEAR}/24 dev wan"))?;
    ip("link set wan up")?;
    ip(&format!(
        "neigh add {FAR} lladdr 02:00:00:00:00:02 dev wan nud permanent"
    ))?;
    let (to_near, from_far) = mpsc::channel();
    let (to_far, from_near) = mpsc::channel();
    let far = thread::spawn(move || far_end(&to_near, &from_near));
    // The far end's interface is in a separate namespace now.
    from_far.recv().context("the far end did not start")?;
    for job in wanted.lines().filter_map(named) {
        for run in 0..job.runs {
            for discipline in job.kernel {
                tc(&format!("qdisc add dev wan {discipline}"))?;
            }
            let sent = send(job)?;
            thread::sleep(LAST);
            to_far.send(()).context("the far end ended")?;
            let came = from_far.recv().context("the far end ended")?;
            if !job.kernel.is_empty() {
                tc("qdisc del dev wan root")?;
            }
            write(&directory.join(file(job, run)), &sent, &came)?;
        }
    }
    drop(to_far);
    far.join().expect("it does not panic")
}

/// Returns the file for a run of a job: a line for each packet with the times of sending and of the arrival of it and its copies.
pub(crate) fn file(job: &Job, run: u32) -> String {
    format!("{}.{run}.csv", job.name)
}

fn named(name: &str) -> Option<&'static Job> {
    NETEMS.iter().chain(AQMS).find(|job| job.name == name)
}

fn ip(arguments: &str) -> Result<()> {
    command("ip", arguments)
}

fn tc(arguments: &str) -> Result<()> {
    command("tc", arguments)
}

fn command(program: &str, arguments: &str) -> Result<()> {
    let ended = Command::new(program).args(arguments.split(' ')).output();
    let ended = ended.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{program} {arguments}: {said}");
    Ok(())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.expect("a clock behind 1970").as_nanos();
    u64::try_from(nanos).expect("a clock before 2554")
}

/// Sends a job's packets at their times, late ones immediately; returns the time of each.
fn send(job: &Job) -> Result<Vec<u64>> {
    let open = |flow| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((NEAR, 6_000 + flow))?;
        // Packets that wait in a discipline occupy the buffer of their socket.
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER)?;
        socket.connect((FAR, PORT))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..job.flows).map(open).collect::<Result<_>>()?;
    let mut packet = vec![0; job.payload];
    let mut sent = Vec::with_capacity(job.packets as usize);
    let start = Instant::now();
    for number in 0..job.packets {
        let early = (job.gap * number).saturating_sub(start.elapsed());
        if !early.is_zero() {
            thread::sleep(early);
        }
        packet[..4].copy_from_slice(&number.to_be_bytes());
        sent.push(now());
        // A drop by the discipline is reported as ENOBUFS.
        let _ = sockets[number as usize % sockets.len()].send(&packet);
    }
    Ok(sent)
}

/// Receives in a separate namespace, and returns the arrivals whenever it is asked.
fn far_end(to_near: &Sender<Vec<Came>>, from_near: &Receiver<()>) -> Result<()> {
    let thread = nix::unistd::gettid();
    unshare(CloneFlags::CLONE_NEWNET)?;
    // Move the interface from the namespace of the machine.
    command(
        "nsenter",
        &format!("--net=/proc/1/ns/net ip link set far netns /proc/1/task/{thread}/ns/net"),
    )?;
    ip(&format!("addr add {FAR}/24 dev far"))?;
    ip("link set far up")?;
    let socket = UdpSocket::bind((FAR, PORT))?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
    let mut socket = TimestampedUdp::new(socket)?;
    to_near.send(Vec::new())?;
    let mut came: Vec<Came> = Vec::new();
    let mut buffer = [0; 2_048];
    loop {
        while let Some(arrival) = socket.receive(&mut buffer)? {
            ensure!(arrival.dropped == 0, "the far end was too slow");
            let at = arrival.at.context("no stamp")?;
            let number = buffer.first_chunk().context("no number")?;
            came.push((u32::from_be_bytes(*number), at.0));
        }
        match from_near.try_recv() {
            Ok(()) => to_near.send(std::mem::take(&mut came))?,
            Err(mpsc::TryRecvError::Empty) => thread::sleep(Duration::from_millis(5)),
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn write(path: &Path, sent: &[u64], came: &[Came]) -> Result<()> {
    let mut arrivals = vec![Vec::new(); sent.len()];
    for &(number, at) in came {
        arrivals[number as usize].push(at);
    }
    // The file appears under its name only when it is complete.
    let whole = path.with_extension("part");
    let mut file = std::io::BufWriter::new(fs::File::create(&whole)?);
    for (sent, came) in sent.iter().zip(&arrivals) {
        write!(file, "{sent}")?;
        for at in came {
            write!(file, ",{at}")?;
        }
        writeln!(file)?;
    }
    file.into_inner()?.sync_all()?;
    fs::rename(whole, path)?;
    Ok(())
}
