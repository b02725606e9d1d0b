//! Configures a node of a bed: its sysctls, offloads, addresses and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::Bytes;
use nix::unistd::getegid;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::{Handle, RouteMessageBuilder};

use super::address::{Attachment, Endpoint};
use super::wiring::{index_of, up};
use super::{BedConfig, BedError};
use crate::kernel::KernelVersion;
use crate::netlink::{NetlinkError, RequestContext as _};
use crate::netns::{NetNs, NetNsError, write_sysctl_here};
use crate::offloads::Offloads;

/// Segmentation of tunnels and of other frames that no virtio header can describe. The emulator could not segment them,
/// so the ends must. The names are those of `net/ethtool/common.c`.
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

/// Offloads that combine many packets into one frame, or leave a checksum to the receiver.
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

/// Sets the sysctls and offloads of a node with these interfaces before they go up. A node with several interfaces
/// forwards.
pub(super) fn prepare(config: &BedConfig, interfaces: &[Attachment]) -> Result<(), BedError> {
    if interfaces.len() > 1 {
        write_sysctl_here("net/ipv4/ip_forward", "1")?;
        if config.has_ipv6() {
            write_sysctl_here("net/ipv6/conf/all/forwarding", "1")?;
        }
    }
    prepare_host(config)?;
    for interface in interfaces {
        if config.has_ipv6() {
            quieten_ipv6(interface.name)?;
        }
        switch_offloads(config, interface.name)?;
    }
    Ok(())
}

/// Sets the sysctls of a namespace whose addresses are used.
pub(super) fn prepare_host(config: &BedConfig) -> Result<(), NetNsError> {
    // A user namespace maps only one group, and the range may contain only mapped groups.
    let group = getegid();
    write_sysctl_here("net/ipv4/ping_group_range", "0 2147483647")
        .or_else(|_| write_sysctl_here("net/ipv4/ping_group_range", &format!("{group} {group}")))?;
    write_sysctl_here("net/ipv4/tcp_no_metrics_save", "1")?;
    if let Some(Bytes(max)) = config.tcp_memory {
        // The three values are the least, the initial and the greatest size. The first two are the kernel's defaults
        // (tcp(7)).
        write_sysctl_here(
            "net/ipv4/tcp_rmem",
            &format!("4096 {} {max}", max.min(131_072)),
        )?;
        write_sysctl_here(
            "net/ipv4/tcp_wmem",
            &format!("4096 {} {max}", max.min(16_384)),
        )?;
    }
    Ok(())
}

/// Sets the sysctls of a namespace into which the interface `name` was moved. Its offloads are not changed.
pub(crate) fn prepare_for_nic(namespace: &NetNs, name: &str) -> Result<(), BedError> {
    namespace.run(|| -> Result<(), BedError> {
        let config = BedConfig::default();
        prepare(&config, &[])?;
        if config.has_ipv6() {
            quieten_ipv6(name)?;
        }
        Ok(())
    })?
}

/// Disables address configuration and router solicitation of IPv6, so that no packet except MLD crosses the link
/// unsolicited.
pub(super) fn quieten_ipv6(interface: &str) -> Result<(), NetNsError> {
    for (setting, value) in [
        ("accept_dad", "0"),
        ("dad_transmits", "0"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("addr_gen_mode", "1"),
    ] {
        write_sysctl_here(&format!("net/ipv6/conf/{interface}/{setting}"), value)?;
    }
    Ok(())
}

/// Switches off the offloads that `config` does not want and those that no emulator could segment.
pub(super) fn switch_offloads(config: &BedConfig, interface: &str) -> Result<(), BedError> {
    let offloads = Offloads::open(interface)?;
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

/// Brings the interfaces of a node up, with their addresses, permanent neighbour entries, and routes to all `segments`
/// segments that it is not on.
pub(super) async fn connect(
    handle: Handle,
    interfaces: Vec<Attachment>,
    segments: u8,
    ipv6: bool,
) -> Result<(), NetlinkError> {
    up(&handle, "lo").await?;
    for interface in &interfaces {
        up(&handle, interface.name).await?;
        address(&handle, interface, ipv6).await?;
    }
    for interface in &interfaces {
        for segment in interface.beyond(segments) {
            route(&handle, segment, interface.peer(), ipv6).await?;
        }
    }
    Ok(())
}

async fn address(handle: &Handle, interface: &Attachment, ipv6: bool) -> Result<(), NetlinkError> {
    let (name, own, peer) = (interface.name, interface.own(), interface.peer());
    let index = index_of(name)?;
    for ((own_address, prefix), (peer_address, _)) in own.nets(ipv6).zip(peer.nets(ipv6)) {
        let mut add = handle.address().add(index, own_address, prefix);
        let flags = AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Permanent);
        add.message_mut().attributes.push(flags);
        let add = add.execute().await;
        add.context(|| format!("give the test bed's {name} the address {own_address}/{prefix}"))?;
        // Otherwise the first packet would wait for an ARP or ND exchange across the link.
        let neighbours = handle.neighbours();
        let neighbour = neighbours
            .add(index, peer_address)
            .link_layer_address(&peer.mac);
        let add = neighbour.execute().await;
        add.context(|| format!("make {peer_address} a permanent neighbour"))?;
    }
    Ok(())
}

/// Adds a route to `segment` by `gateway`.
async fn route(
    handle: &Handle,
    segment: u8,
    gateway: Endpoint,
    ipv6: bool,
) -> Result<(), NetlinkError> {
    let there = Endpoint::network(segment);
    for ((network, prefix), (gateway, _)) in there.nets(ipv6).zip(gateway.nets(ipv6)) {
        let add = handle
            .route()
            .add(message(network, prefix, gateway))
            .execute()
            .await;
        add.context(|| format!("route {network}/{prefix} in the test bed through {gateway}"))?;
    }
    Ok(())
}

fn message(network: IpAddr, prefix: u8, gateway: IpAddr) -> RouteMessage {
    match (network, gateway) {
        (IpAddr::V4(network), IpAddr::V4(gateway)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network, prefix)
            .gateway(gateway)
            .build(),
        (IpAddr::V6(network), IpAddr::V6(gateway)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(network, prefix)
            .gateway(gateway)
            .build(),
        _ => unreachable!("both are of one segment's pair"),
    }
}
