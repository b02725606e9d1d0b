//! Checks of the parts of test beds and of `emulate`. Each part is tested, in new namespaces.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;

use instruments::{ping, serve};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, WAN};
use netio::contain::{self, Contained};
use netio::ingress_drop::IngressDrop;
use netio::kernel::KernelVersion;
use netio::netns::NetNs;
use netio::{AfPacket, RingSlots};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Check, CheckState, Lack};

/// The congestion control that shipped scenarios require.
const CUBIC: &str = "cubic";

pub(super) const TEST_BED: &str = "test bed (veth)";
pub(super) const PACKET_SOCKETS: &str = "packet sockets";
pub(super) const PID_NAMESPACES: &str = "PID namespaces";
pub(super) const INGRESS: &str = "nftables ingress";
const NO_TEST_BED: Lack = Lack {
    cost: "`run` and `exec` do not work",
    remedy: "load or build the missing part of the kernel: namespaces, CONFIG_VETH",
};

/// Runs all checks that need a test bed. `entered` is the cause if there can be none.
pub(super) fn checks(entered: Result<(), String>) -> Vec<Check> {
    let built = entered.and_then(|()| {
        let bed = Bed::build(&BedConfig::default());
        bed.map_err(|error| error.to_string())
    });
    let bed = match built {
        Ok(bed) => bed,
        Err(why) => {
            return vec![
                Check::tried(TEST_BED, Err(why), CheckState::Missing, NO_TEST_BED),
                udp_gso(),
                ipv6(),
            ];
        }
    };
    vec![
        Check::ok(
            TEST_BED,
            "tested: client, emulator and server are connected",
        ),
        packet_sockets(bed.emulator()),
        udp_gso(),
        tunnels(bed.emulator()),
        containment(bed.client()),
        ingress(bed.client()),
        congestion_control(bed.client()),
        ipv6(),
    ]
}

/// Opens a packet socket as the emulator does: TPACKET_V2 ring, virtio headers, arrival time stamps.
fn packet_sockets(emulator: &NetNs) -> Check {
    let lack = Lack {
        cost: "nothing can be emulated",
        remedy: "load or build CONFIG_PACKET",
    };
    let slots = RingSlots { small: 1, large: 1 };
    let tried = tried(emulator, || AfPacket::open(CLIENT_PORT, slots));
    let found =
        tried.map(|_| "tested: receive rings with virtio headers (PACKET_VNET_HDR)".to_owned());
    Check::tried(PACKET_SOCKETS, found, CheckState::Missing, lack)
}

/// Checks whether `measure ping` works outside of test beds. Call it first, before the process enters a namespace.
pub(super) fn icmp_sockets() -> Check {
    let open = |kind| Socket::new(Domain::IPV4, kind, Some(Protocol::ICMPV4)).is_ok();
    judge_icmp(open(Type::DGRAM), open(Type::RAW), &ping::group_range())
}

fn judge_icmp(datagram: bool, raw: bool, groups: &str) -> Check {
    let groups = format!("net.ipv4.ping_group_range is {groups}");
    let found = match (datagram, raw) {
        (true, _) => Ok(format!("tested: {groups}")),
        (false, true) => Ok(format!("tested: with CAP_NET_RAW only; {groups}")),
        (false, false) => Err(format!("{groups}, and this process lacks CAP_NET_RAW")),
    };
    let lack = Lack {
        cost: "`measure ping` does not work outside of test beds",
        remedy: ping::WAY_ROUND,
    };
    Check::tried("ICMP sockets", found, CheckState::Degraded, lack)
}

fn udp_gso() -> Check {
    let (running, first) = (KernelVersion::running(), KernelVersion::UDP_GSO);
    let found = format!("kernel {running}; packet sockets carry UDP GSO frames since {first}");
    let found = if running >= first {
        Ok(found)
    } else {
        Err(found)
    };
    let lack = Lack {
        cost: "the ends of test beds send UDP packets one by one, which reduces their rate",
        remedy: "use a newer kernel; for `emulate`, switch tx-udp-segmentation off at veth neighbours",
    };
    Check::tried("UDP GSO", found, CheckState::Degraded, lack)
}

/// Opens the device through which `emulate` sends tunnelled trains.
fn tunnels(emulator: &NetNs) -> Check {
    let lack = Lack {
        cost: "`emulate` segments trains in VXLAN and Geneve tunnels, which reduces their rate",
        remedy: "use Linux 6.17 with CONFIG_TUN, CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED and /dev/net/tun",
    };
    let slots = RingSlots { small: 1, large: 1 };
    let tried = tried(emulator, || -> anyhow::Result<()> {
        Ok(AfPacket::open(CLIENT_PORT, slots)?.take_tunnels(CLIENT_PORT)?)
    });
    let found = tried.map(|()| "tested: GSO frames in tunnels leave unsegmented".to_owned());
    Check::tried("tunnel GSO", found, CheckState::Degraded, lack)
}

/// Runs the command `true` as `exec` would.
fn containment(client: &NetNs) -> Check {
    let lack = Lack {
        cost: "`exec` and external instruments cannot run commands",
        remedy: "build CONFIG_PID_NS, or allow the container to mount and unshare (SYS_ADMIN)",
    };
    let found = match run_nothing(client) {
        Ok(0) => Ok("tested: no process outlives its command".to_owned()),
        Ok(code) => Err(format!("the command `true` ended with {code}")),
        Err(error) => Err(error.to_string()),
    };
    Check::tried(PID_NAMESPACES, found, CheckState::Missing, lack)
}

fn run_nothing(client: &NetNs) -> Result<i32, Box<dyn Error>> {
    let mut command = contain::command(client, &[OsString::from("true")])?;
    Ok(Contained::spawn(&mut command)?.wait()?)
}

fn ingress(client: &NetNs) -> Check {
    let lack = Lack {
        cost: "`emulate` refuses real interfaces, because the host would answer the traffic",
        remedy: "load or build the missing part of the kernel; `run` and `exec` do not need it",
    };
    let tried = tried(client, || IngressDrop::new(&[WAN]));
    let found = tried.map(|_| {
        "tested: an nftables rule keeps the host's network stack off an interface".to_owned()
    });
    Check::tried(INGRESS, found, CheckState::Degraded, lack)
}

fn congestion_control(client: &NetNs) -> Check {
    let lack = Lack {
        cost: "scenarios that require cubic are refused",
        remedy: "modprobe tcp_cubic, or require an available one",
    };
    let outcome = tried(client, || {
        serve::check_congestion(CUBIC)?;
        let names = |which| {
            fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"))
        };
        anyhow::Ok((names("available")?, names("allowed")?))
    });
    let found = outcome.map(|(available, allowed)| {
        format!(
            "tested: {CUBIC} works; available: {}; without root, `measure` and `serve` can use: {}",
            available.trim(),
            allowed.trim()
        )
    });
    Check::tried("congestion control", found, CheckState::Degraded, lack)
}

fn ipv6() -> Check {
    let lack = Lack {
        cost: "test beds have IPv4 only",
        remedy: "boot without ipv6.disable=1",
    };
    let found = match fs::exists("/proc/sys/net/ipv6") {
        Ok(true) => Ok("supported".to_owned()),
        _ => Err("this kernel does not support it".to_owned()),
    };
    Check::tried("IPv6", found, CheckState::Degraded, lack)
}

/// Returns the result of `f` inside `ns`, or the cause of its failure.
fn tried<T: Send, E: Display + Send>(
    ns: &NetNs,
    f: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, String> {
    let outcome = ns.run(f).map_err(|error| error.to_string())?;
    outcome.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_sockets_work_by_group_or_by_capability_or_a_workaround_is_named() {
        let open = judge_icmp(true, false, "0 to 2147483647").to_string();
        assert!(open.starts_with("ok "), "{open}");
        let raw = judge_icmp(false, true, "1 to 0").to_string();
        assert!(raw.contains("with CAP_NET_RAW only"), "{raw}");
        let none = judge_icmp(false, false, "1 to 0").to_string();
        assert!(none.starts_with("degraded"), "{none}");
        for part in ["ping_group_range is 1 to 0", "sysctl -w", "--tool ping"] {
            assert!(none.contains(part), "{none}");
        }
    }
}
