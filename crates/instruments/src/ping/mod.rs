//! ICMP echo, as ping(8) measures it (RFC 792, RFC 4443).
//!
//! A datagram ICMP socket needs no privilege if `net.ipv4.ping_group_range` allows it. Otherwise a raw socket is used.
//! Requests leave on an absolute schedule. The arrival time of an answer is the kernel's receive timestamp, which
//! excludes the wake-up of this program from the round trip.

pub mod args;
pub(crate) mod tool;

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Context, Result, ensure};
use clap::Args;
use model::Nanos;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
    sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};

use super::Session;
use super::echo_stats::EchoStats;
use crate::codec::ones_complement_sum;
use crate::endpoint::{self, Local};
use crate::failure::check_stop;
use crate::instrument::{NETWORK, interval, intervals};
use crate::iperf3::args::{dscp, tos};
use crate::measured::{QUANTILE_INTERVAL, failed, failure};
use crate::round_trip::LossTimeout;
use netio::stop::STOP_INTERVAL;
use record::{Figure, Measurement, Metric, Statistic};
use serde::{Deserialize, Serialize};
use stats::layers::{ETHERNET_HEADER, ip_header};

const ICMP_HEADER: usize = 8;
/// The time after which a request counts as lost, unless the user states one. Some round trips are added.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most packets received in a row, so that a flood delays neither requests nor a stop.
const TURN: usize = 64;
/// The longest IPv4 header in bytes, which a raw socket delivers in front of the answer.
const LONGEST_IPV4_HEADER: usize = 60;

/// The echo requests
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PingPlan {
    /// Payload size in bytes of a request
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_507))]
    pub(crate) size: u16,
    /// Number of requests
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between requests: 20ms, or a number of seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,
    /// Count a request as lost after this time without an answer [default: 3s, and 4 round trips on a long path]
    #[arg(short = 'W', long, value_name = "TIME")]
    pub(crate) timeout: Option<Nanos>,
    /// Type-of-service byte: decimal, hexadecimal with 0x, or octal with 0
    #[arg(short = 'S', long, value_name = "NUMBER", value_parser = tos, conflicts_with = "dscp", help_heading = NETWORK, hide_short_help = true)]
    pub(crate) tos: Option<u8>,
    /// DSCP: 0 to 63, or a name from cs0 to cs7, af11 to af43, ef
    #[arg(long, value_name = "DSCP", value_parser = dscp, help_heading = NETWORK)]
    pub(crate) dscp: Option<u8>,
    /// TTL (hop limit in IPv6)
    #[arg(short, long, value_name = "HOPS", value_parser = clap::value_parser!(u8).range(1..), help_heading = NETWORK, hide_short_help = true)]
    pub(crate) ttl: Option<u8>,
}

impl PingPlan {
    /// Returns how long the measurement takes over a short path if the last answer is lost.
    pub(crate) fn longest(&self) -> Duration {
        intervals(self.interval(), self.count) + self.timeout()
    }

    /// Returns the time between two requests of the absolute schedule.
    pub(crate) fn interval(&self) -> Duration {
        self.interval.into()
    }

    /// Returns the time after which an answer over a short path counts as late and its request as lost (RFC 2681 asks to
    /// state it).
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.map_or(TIMEOUT, Duration::from)
    }

    /// Returns the TOS byte (DSCP and ECN) of the requests. `None` means the system's default.
    pub(crate) fn tos(&self) -> Option<u8> {
        self.tos.or(self.dscp.map(|dscp| dscp << 2))
    }

    /// Returns a description of the packets that a round-trip time of this plan is measured with.
    pub(crate) fn describe(&self, target: IpAddr) -> String {
        let payload = usize::from(self.size);
        let headers = ip_header(target.is_ipv6()) + ETHERNET_HEADER;
        let l2 = payload + ICMP_HEADER + headers as usize;
        format!(
            "ICMP echo, {payload} payload bytes, {l2} bytes at L2 without FCS (one frame if the MTU allows)"
        )
    }
}

/// The advice for a machine that allows no ICMP socket.
pub const WAY_ROUND: &str = "as root, `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`; or use `measure ping --tool ping`, \
                             `measure probe` or `measure connect`, which need no ICMP socket";

/// Returns the first and the last group whose users may open ICMP sockets.
pub fn group_range() -> String {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ping_group_range");
    range.map_or_else(
        |_| "unknown".to_owned(),
        |range| range.trim().replace('\t', " to "),
    )
}

/// Checks that this machine allows an ICMP socket for `target`.
///
/// # Errors
/// Returns an error if it does not.
pub(crate) fn check(target: IpAddr) -> Result<()> {
    icmp_socket(target).map(drop)
}

/// Pings `target` from the calling thread's network namespace, and from `local` if there is one.
pub(crate) fn measure(
    target: IpAddr,
    plan: &PingPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let pinger = Pinger::open(target, plan, local);
    let measurement = pinger.map_or_else(failed, |pinger| pinger.run(session));
    measurement.with_fact("rtt", plan.describe(target))
}

struct Pinger<'a> {
    plan: &'a PingPlan,
    target: SocketAddr,
    socket: Socket,
    raw: bool,
    kernel_stamps: bool,
    ident: u16,
    start: Instant,
    tally: EchoStats,
    /// The largest part of each round trip that the hosts can cause, in milliseconds: twice the duration of its send call.
    /// Empty without the kernel's receive timestamps.
    hosts_ms: Vec<f64>,
}

impl<'a> Pinger<'a> {
    fn open(target: IpAddr, plan: &'a PingPlan, local: Option<&Local>) -> Result<Self> {
        let (socket, raw) = icmp_socket(target)?;
        let target = SocketAddr::new(target, 0);
        endpoint::bind(&socket, target, local)?;
        set_ip_options(&socket, plan, target)?;
        let connected = socket.connect(&target.into());
        connected.with_context(|| target.ip().to_string())?;
        let kernel_stamps = setsockopt(&socket, ReceiveTimestampns, &true).is_ok();
        Ok(Self {
            plan,
            target,
            socket,
            raw,
            kernel_stamps,
            ident: fastrand::u16(..),
            start: Instant::now(),
            tally: EchoStats::new(LossTimeout::new(plan.timeout, TIMEOUT)),
            hosts_ms: Vec::new(),
        })
    }

    fn run(mut self, session: &Session) -> Measurement {
        let failure = failure(self.exchange(session));
        let stamps = if self.kernel_stamps {
            "user space at sending, kernel at receipt"
        } else {
            "user space"
        };
        let hosts_ms = self.hosts_ms.iter().copied().reduce(f64::max);
        let loss = format!("no answer within {:?} of sending", self.tally.timeout());
        let mut measurement = self
            .tally
            .finish(Some(self.plan.interval()))
            .with_fact("timestamps", stamps)
            .with_fact("loss", loss);
        measurement.failure = failure.or(measurement.failure);
        match hosts_ms {
            Some(hosts_ms) => with_hosts_part(measurement, hosts_ms),
            None => measurement,
        }
    }

    /// Sends requests on schedule and receives answers until the last one arrived or is overdue.
    fn exchange(&mut self, session: &Session) -> Result<()> {
        let count = u64::from(self.plan.count);
        let mut progress = session.live.since(self.start);
        while self.tally.count() < count || !self.tally.complete() {
            check_stop(&session.stop)?;
            let now = self.start.elapsed();
            progress.print(|| {
                let (answered, sent) = (self.tally.answers(), self.tally.count());
                format!("{answered} of {sent} answered")
            });
            let wake = if self.tally.count() < count {
                let due = self.plan.interval().mul_f64(self.tally.count() as f64);
                if now >= due {
                    self.send()?;
                    continue;
                }
                due
            } else {
                self.tally.deadline()
            };
            if now >= wake {
                return Ok(());
            }
            self.wait(wake - now)?;
            self.receive_answers()?;
        }
        Ok(())
    }

    fn receive_answers(&mut self) -> Result<()> {
        for _ in 0..TURN {
            if !self.receive()? {
                break;
            }
        }
        let (target, sent) = (self.target.ip(), self.tally.count());
        ensure!(
            Peer,
            !self.tally.flooded(),
            "{target} keeps sending answers, more than any network could make of {sent} requests"
        );
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let index = self.tally.count() + 1;
        let request = self.request(sequence(index));
        let at_s = self.start.elapsed().as_secs_f64();
        self.tally.sent(at_s);
        let sent = self.socket.send(&request);
        sent.with_context(|| format!("echo request {index} to {}", self.target.ip()))?;
        if self.kernel_stamps {
            let hosts_ms = 2e3 * (self.start.elapsed().as_secs_f64() - at_s);
            self.tally.hosts_took(hosts_ms);
            self.hosts_ms.push(hosts_ms);
        }
        Ok(())
    }

    fn request(&self, sequence: u16) -> Vec<u8> {
        let mut request = vec![0; ICMP_HEADER];
        request[0] = if self.target.is_ipv4() { 8 } else { 128 };
        request[4..6].copy_from_slice(&self.ident.to_be_bytes());
        request[6..8].copy_from_slice(&sequence.to_be_bytes());
        request.extend((0..=u8::MAX).cycle().take(self.plan.size.into()));
        // The kernel computes the ICMPv6 checksum, which covers a pseudo-header.
        if self.target.is_ipv4() {
            let checksum = !ones_complement_sum(&request);
            request[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        request
    }

    fn wait(&self, at_most: Duration) -> Result<()> {
        let at_most = at_most.min(STOP_INTERVAL);
        let waited = endpoint::wait_for(&self.socket, PollFlags::POLLIN, at_most);
        waited.map(drop).context("waiting for echo replies")
    }

    /// Receives a waiting packet and records it if it is an answer. Returns whether there was a packet.
    fn receive(&mut self) -> Result<bool> {
        let mut buffer = vec![0; LONGEST_IPV4_HEADER + ICMP_HEADER + usize::from(self.plan.size)];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let mut control = nix::cmsg_space!(TimeSpec);
        let flags = MsgFlags::MSG_DONTWAIT;
        let (length, stamp) = match recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            flags,
        ) {
            Ok(message) => (message.bytes, kernel_stamp(message.cmsgs())),
            Err(Errno::EAGAIN) => return Ok(false),
            Err(Errno::EINTR) => return Ok(true),
            Err(errno) => return Err(errno).context("receiving echo replies"),
        };
        let received_s = (self.start.elapsed().saturating_sub(age(stamp))).as_secs_f64();
        if let Some(sequence) = self.answered_sequence(&buffer[..length]) {
            let index = number(sequence, self.tally.count());
            if let Some(sent_s) = self.tally.sent_at(index) {
                self.tally.answered(index, (received_s - sent_s) * 1e3);
            }
        }
        Ok(true)
    }

    /// Returns the sequence number of an answer to one of this pinger's requests, or `None` for any other packet.
    fn answered_sequence(&self, packet: &[u8]) -> Option<u16> {
        let icmp = if self.raw && self.target.is_ipv4() {
            let header = usize::from(packet.first()? & 0xf) * 4;
            packet.get(header..)?
        } else {
            packet
        };
        let reply = if self.target.is_ipv4() { 0 } else { 129 };
        let (header, payload) = icmp.split_at_checked(ICMP_HEADER)?;
        let ident = u16::from_be_bytes([header[4], header[5]]);
        // A datagram socket has the kernel's own identifier and receives only its own answers.
        let ours = header[0] == reply && (!self.raw || ident == self.ident);
        (ours && payload.len() == usize::from(self.plan.size))
            .then(|| u16::from_be_bytes([header[6], header[7]]))
    }
}

/// Adds the largest of the hosts' parts of the round trips (`hosts_ms`) to the figures, and the facts about it.
///
/// The kernel's receive timestamp excludes the wake-up. The hosts' remaining part is the way down through this host's
/// kernel, which is the duration of a send call (unless a queue delays the packet, it has left when the call returns),
/// and the way up and down at the far end, which is assumed to take no longer.
fn with_hosts_part(mut measurement: Measurement, hosts_ms: f64) -> Measurement {
    let hosts = Figure::new(Metric::HostMs, Statistic::Max, hosts_ms);
    measurement.figures.push(hosts);
    measurement
        .with_fact(
            "rtt interval",
            format!(
                "{QUANTILE_INTERVAL}; the lower end is that of the round trips without the hosts' parts"
            ),
        )
        .with_fact(
            "host",
            "the largest part of a round trip that the hosts can cause: twice the duration of its send call, once for sending \
             here and once for echoing there",
        )
}

/// Returns a socket for echo requests to `target`, and whether it is a raw one.
fn icmp_socket(target: IpAddr) -> Result<(Socket, bool)> {
    let (domain, protocol) = match target {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    if let Ok(socket) = Socket::new(domain, Type::DGRAM, Some(protocol)) {
        return Ok((socket, false));
    }
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).with_context(|| {
        format!(
            "no ICMP socket: net.ipv4.ping_group_range ({}) has none of this user's groups, and CAP_NET_RAW is not held; \
             {WAY_ROUND}",
            group_range()
        )
    })?;
    Ok((socket, true))
}

/// Sets the TTL and TOS byte of the requests.
fn set_ip_options(socket: &Socket, plan: &PingPlan, target: SocketAddr) -> Result<()> {
    if let Some(ttl) = plan.ttl.map(u32::from) {
        match target {
            SocketAddr::V4(_) => socket.set_ttl_v4(ttl)?,
            SocketAddr::V6(_) => socket.set_unicast_hops_v6(ttl)?,
        }
    }
    if let Some(tos) = plan.tos().map(u32::from) {
        match target {
            SocketAddr::V4(_) => socket.set_tos_v4(tos)?,
            SocketAddr::V6(_) => socket.set_tclass_v6(tos)?,
        }
    }
    Ok(())
}

/// Returns the 16-bit sequence number of a probe, which is numbered from 1.
fn sequence(index: u64) -> u16 {
    let [.., high, low] = index.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the latest probe up to `sent` that has this sequence number, or 0 if there is none.
fn number(on_wire: u16, sent: u64) -> u64 {
    let behind = sequence(sent).wrapping_sub(on_wire);
    sent.saturating_sub(behind.into())
}

/// Returns the age of a kernel timestamp. An age that is negative or at least a second means that the clock was set; it
/// counts as 0.
fn age(stamp: Option<TimeSpec>) -> Duration {
    const PLAUSIBLE: Duration = Duration::from_secs(1);
    let elapsed = stamp.and_then(|stamp| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(Duration::from(stamp))
    });
    elapsed.filter(|age| *age < PLAUSIBLE).unwrap_or_default()
}

fn kernel_stamp(
    messages: nix::Result<impl Iterator<Item = ControlMessageOwned>>,
) -> Option<TimeSpec> {
    messages.ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
