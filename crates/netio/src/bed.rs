//! The test bed: client — emulator — server, three namespaces joined by two veth pairs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::time::{Duration, Instant};

use model::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};

use crate::iface::{Interface, InterfaceError, LinkWatcher};
use crate::kernel::KernelVersion;
use crate::netlink::{self, Asked as _, NetlinkError};
use crate::netns::{NetNs, NetNsError, write_sysctl_here};
use crate::offloads::{OffloadError, Offloads};

/// The name of the interface at either end.
pub const WAN: &str = "wan";
/// The emulator's interface towards the client.
pub const CLIENT_PORT: &str = "client";
/// The emulator's interface towards the server.
pub const SERVER_PORT: &str = "server";
const BRIDGE: &str = "bridge";

/// The client's addresses.
pub const CLIENT: Endpoint = Endpoint::numbered(1);
/// The server's addresses.
pub const SERVER: Endpoint = Endpoint::numbered(2);

/// One end's addresses; the networks are 10.77.0.0/24 and fd77::/64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
    /// Ethernet, locally administered; the same in every bed, so that captures compare.
    pub mac: [u8; 6],
}

impl Endpoint {
    const fn numbered(n: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(10, 77, 0, n),
            v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n as u16),
            mac: [0x02, 0, 10, 77, 0, n],
        }
    }
}

/// What a bed is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedConfig {
    /// Largest L3 packet in bytes, 68 to 65,535, at both ends; below 1,280 the bed has no IPv6 (RFC 8200 section 5).
    pub mtu: u32,
    /// Segmentation and checksum offloads at the ends; without, every packet travels on its own.
    pub offloads: bool,
    /// Largest TCP buffer, sending and receiving each, if not the kernel's own.
    pub tcp_memory: Option<Bytes>,
}

impl Default for BedConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            offloads: true,
            tcp_memory: None,
        }
    }
}

impl BedConfig {
    /// Whether the bed has IPv6: the MTU allows it, and so does the kernel.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= 1280 && ipv6_exists()
    }
}

/// A bed; the kernel clears it away when it and all that runs in it are gone.
#[derive(Debug)]
pub struct Bed {
    client: NetNs,
    emulator: NetNs,
    server: NetNs,
}

/// Why a bed could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The MTU is out of range.
    #[error("an MTU of {0} is out of range: 68 to 65535")]
    Mtu(u32),
    /// A namespace failed.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The kernel refused an interface, an address or a neighbour.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An offload could not be switched.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// An interface did not come up.
    #[error("interface {0} of the test bed does not come up")]
    Down(&'static str),
}

impl Bed {
    /// Builds a bed; on return packets pass at once, the first like all others.
    ///
    /// The two ports of the emulator are up and silent: no address, no ARP, no IPv6. Both ends know each other's
    /// hardware addresses and keep no TCP metrics, so that no run teaches the next.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN and CAP_NET_ADMIN in the user namespace, on a kernel without veth, and for an MTU out of range.
    pub fn build(config: &BedConfig) -> Result<Self, BedError> {
        if !(68..=65_535).contains(&config.mtu) {
            return Err(BedError::Mtu(config.mtu));
        }
        let bed = Self {
            client: NetNs::create()?,
            emulator: NetNs::create()?,
            server: NetNs::create()?,
        };
        let ends = [(&bed.client, CLIENT, SERVER), (&bed.server, SERVER, CLIENT)];
        bed.emulator.run(silence)??;
        join(&bed.emulator, CLIENT_PORT, &bed.client, CLIENT, config.mtu)?;
        join(&bed.emulator, SERVER_PORT, &bed.server, SERVER, config.mtu)?;
        for (ns, own, peer) in ends {
            ns.run(|| prepare_end(config))??;
            netlink::call(ns, |handle| {
                address_end(handle, own, peer, config.has_ipv6())
            })?;
        }
        bed.emulator
            .run(|| wait_running(&[CLIENT_PORT, SERVER_PORT]))??;
        for (ns, ..) in ends {
            ns.run(|| wait_running(&[WAN]))??;
        }
        Ok(bed)
    }

    /// Lets the kernel carry the packets: a bridge between the emulator's ports, which nothing outruns. It is what an
    /// emulator is measured against.
    ///
    /// # Errors
    /// On a kernel without bridges.
    pub fn bridge(&self) -> Result<(), BedError> {
        netlink::call(&self.emulator, async |handle| {
            let bridge = LinkBridge::new(BRIDGE).mcast_snooping(false).up().build();
            let add = handle.link().add(bridge).execute().await;
            add.asked(|| "make a bridge in the test bed".to_owned())?;
            let index = index_of(BRIDGE)?;
            for port in [CLIENT_PORT, SERVER_PORT] {
                let join = LinkUnspec::new_with_name(port).controller(index).build();
                let set = handle.link().set(join).execute().await;
                set.asked(|| format!("put the test bed's {port} into a bridge"))?;
            }
            Ok(())
        })?;
        self.emulator.run(|| wait_running(&[BRIDGE]))?
    }

    /// Where the client runs; its interface is [`WAN`], its addresses are [`CLIENT`].
    #[must_use]
    pub fn client(&self) -> &NetNs {
        &self.client
    }

    /// Where the emulator runs, between [`CLIENT_PORT`] and [`SERVER_PORT`].
    #[must_use]
    pub fn emulator(&self) -> &NetNs {
        &self.emulator
    }

    /// Where the server runs; its interface is [`WAN`], its addresses are [`SERVER`].
    #[must_use]
    pub fn server(&self) -> &NetNs {
        &self.server
    }
}

/// Segmentation of tunnels, and other frames that no virtio header can describe: the emulator could not cut them, so
/// that the ends must do it themselves. Names as in `net/ethtool/common.c`.
const ENCAPSULATION_OFFLOADS: [&str; 13] = [
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-tunnel-remcsum-segmentation",
    "tx-gso-partial",
    "tx-gso-list",
    "tx-sctp-segmentation",
    "tx-esp-segmentation",
    "tx-fcoe-segmentation",
    "esp-hw-offload",
];

/// All that makes one frame of many packets, or leaves a checksum to the receiver.
const PLAIN_OFFLOADS: [&str; 9] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-accecn-segmentation",
    "tx-generic-segmentation",
    UDP_SEGMENTATION,
    "tx-checksum-ip-generic",
    "rx-gro",
];

const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// Keeps the stack of the emulator's namespace quiet on every interface yet to come.
fn silence() -> Result<(), NetNsError> {
    if ipv6_exists() {
        write_sysctl_here("net/ipv6/conf/all/disable_ipv6", "1")?;
        write_sysctl_here("net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    Ok(())
}

/// Joins the emulator's `port` to a new interface in the namespace `end`; both have the MTU, the port is up.
fn join(
    emulator: &NetNs,
    port: &'static str,
    end: &NetNs,
    endpoint: Endpoint,
    mtu: u32,
) -> Result<(), NetlinkError> {
    let wan = LinkUnspec::new_with_name(WAN)
        .mtu(mtu)
        .address(endpoint.mac.to_vec())
        .setns_by_fd(end.as_fd().as_raw_fd())
        .build();
    let pair = LinkVeth::new(port, WAN)
        .mtu(mtu)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(wan)))
        .build();
    let up = LinkUnspec::new_with_name(port).arp(false).up().build();
    let loopback = LinkUnspec::new_with_name("lo").up().build();
    netlink::call(emulator, async |handle| {
        let add = handle.link().add(pair).execute().await;
        add.asked(|| format!("join the test bed's interface {port} to its {WAN}"))?;
        for (name, message) in [("lo", loopback), (port, up)] {
            let set = handle.link().set(message).execute().await;
            set.asked(|| format!("set the test bed's interface {name} up"))?;
        }
        Ok(())
    })
}

/// The sysctls and offloads of an end, before its interface goes up.
fn prepare_end(config: &BedConfig) -> Result<(), BedError> {
    if config.has_ipv6() {
        // No address of its own making and no search for routers: nothing crosses the link unasked but MLD.
        for (setting, value) in [
            ("accept_dad", "0"),
            ("dad_transmits", "0"),
            ("accept_ra", "0"),
            ("autoconf", "0"),
            ("router_solicitations", "0"),
            ("addr_gen_mode", "1"),
        ] {
            write_sysctl_here(&format!("net/ipv6/conf/{WAN}/{setting}"), value)?;
        }
    }
    // A user namespace maps one group, and a range may name no group that is not mapped.
    write_sysctl_here("net/ipv4/ping_group_range", "0 2147483647")
        .or_else(|_| write_sysctl_here("net/ipv4/ping_group_range", "0 0"))?;
    write_sysctl_here("net/ipv4/tcp_no_metrics_save", "1")?;
    if let Some(Bytes(max)) = config.tcp_memory {
        // Least, initial and greatest; the first two are the kernel's own (tcp(7)).
        write_sysctl_here(
            "net/ipv4/tcp_rmem",
            &format!("4096 {} {max}", max.min(131_072)),
        )?;
        write_sysctl_here(
            "net/ipv4/tcp_wmem",
            &format!("4096 {} {max}", max.min(16_384)),
        )?;
    }
    let offloads = Offloads::open(WAN)?;
    let mut off = ENCAPSULATION_OFFLOADS.to_vec();
    if !config.offloads {
        off.extend(PLAIN_OFFLOADS);
    } else if KernelVersion::running() < KernelVersion::UDP_GSO {
        off.push(UDP_SEGMENTATION);
    }
    for feature in off {
        offloads.switch(feature, false)?;
    }
    Ok(())
}

/// Brings an end up, with its addresses and its permanent neighbour.
async fn address_end(
    handle: Handle,
    own: Endpoint,
    peer: Endpoint,
    ipv6: bool,
) -> Result<(), NetlinkError> {
    for name in ["lo", WAN] {
        let up = LinkUnspec::new_with_name(name).up().build();
        let set = handle.link().set(up).execute().await;
        set.asked(|| format!("set the test bed's interface {name} up"))?;
    }
    let index = index_of(WAN)?;
    let v4 = (IpAddr::from(own.v4), IpAddr::from(peer.v4), 24);
    let v6 = (IpAddr::from(own.v6), IpAddr::from(peer.v6), 64);
    for (own_address, peer_address, prefix) in [Some(v4), ipv6.then_some(v6)].into_iter().flatten()
    {
        let mut add = handle.address().add(index, own_address, prefix);
        let flags = AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Permanent);
        add.message_mut().attributes.push(flags);
        let add = add.execute().await;
        add.asked(|| format!("give the test bed's {WAN} the address {own_address}/{prefix}"))?;
        // Else the first packet would wait for an ARP or ND exchange across the link.
        let neighbours = handle.neighbours();
        let neighbour = neighbours
            .add(index, peer_address)
            .link_layer_address(&peer.mac);
        let add = neighbour.execute().await;
        add.asked(|| format!("make {peer_address} a permanent neighbour"))?;
    }
    Ok(())
}

fn index_of(name: &str) -> Result<u32, NetlinkError> {
    nix::net::if_::if_nametoindex(name)
        .map_err(std::io::Error::from)
        .asked(|| format!("find the test bed's interface {name}"))
}

/// Waits until the kernel sends through each of the interfaces `names` of the calling thread's namespace.
///
/// Carrier settles some milliseconds after the second end of a pair comes up; what is sent before is lost.
fn wait_running(names: &[&'static str]) -> Result<(), BedError> {
    let what = || "watch the test bed's interfaces".to_owned();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut watcher = LinkWatcher::new().asked(what)?;
    for &name in names {
        while !Interface::find(name)?.running {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout) == Ok(0) {
                return Err(BedError::Down(name));
            }
            watcher.changes().asked(what)?;
        }
    }
    Ok(())
}

/// Whether the kernel has IPv6 at all.
fn ipv6_exists() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
