//! A port of a kernel bridge, and another interface that takes its place.

use std::io;

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::{
    AfSpecBridge, BridgeStpState, BridgeVlanInfo, BridgeVlanInfoFlags, InfoBridge, InfoBridgePort,
    InfoData, InfoPortData, LinkAttribute, LinkExtentMask, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{NeighbourMessage, NeighbourState};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, LinkBridgePort, LinkBridgeVlan, LinkUnspec};
use serde::{Deserialize, Serialize};

use crate::iface::{Interface, InterfaceError};
use crate::netlink::{self, NetlinkError, RequestContext as _};

/// The place of an interface in a bridge: the bridge, and the settings of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgePort {
    /// Name of the bridge.
    pub bridge: String,
    settings: PortSettings,
}

/// The reason why another interface cannot take the place of one.
#[derive(Debug, thiserror::Error)]
pub enum BridgePortError {
    /// The interface is routed or not used.
    #[error(
        "{0} is not a port of a bridge: its packets are routed, so no other interface can take its place"
    )]
    Routed(String),
    /// The interface belongs to something else than a kernel bridge.
    #[error("{interface} belongs to {master}, which is no kernel bridge{kind}")]
    NoBridge {
        /// The interface.
        interface: String,
        /// The device to which it belongs.
        master: String,
        /// The kind of that device in brackets, if it is known.
        kind: String,
    },
    /// The bridge runs the spanning tree protocol.
    #[error(
        "the bridge {0} runs the spanning tree protocol, which would block a new port for up to 30 s"
    )]
    SpanningTree(String),
    /// The port maps VLANs to tunnels.
    #[error(
        "the port {0} maps VLANs to tunnels (vlan_tunnel), which a new port does not take over"
    )]
    VlanTunnels(String),
    /// The bridge has static entries for the port.
    #[error(
        "the bridge {bridge} has static entries for the port {port} (bridge fdb), which the kernel deletes when the port \
         leaves: remove them first"
    )]
    StaticEntries {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// An interface could not be looked up or changed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
}

impl From<NetlinkError> for BridgePortError {
    fn from(error: NetlinkError) -> Self {
        Self::Interface(error.into())
    }
}

impl BridgePort {
    /// Reads the place of `port`, an interface in the namespace of the calling thread.
    ///
    /// # Errors
    /// It is not a port of a kernel bridge, or no other interface could take its place in that bridge.
    pub fn of(port: &Interface) -> Result<Self, BridgePortError> {
        let Some(master) = port.master else {
            return Err(BridgePortError::Routed(port.name.clone()));
        };
        let bridge = Interface::by_index(master)?;
        if bridge.kind.as_deref() != Some("bridge") {
            let kind = bridge.kind.map(|kind| format!(" ({kind})"));
            return Err(BridgePortError::NoBridge {
                interface: port.name.clone(),
                master: bridge.name,
                kind: kind.unwrap_or_default(),
            });
        }
        let mut filters_vlans = false;
        for info in bridge_infos(&message(bridge.index)?) {
            match info {
                InfoBridge::StpState(state) if *state != BridgeStpState::Disabled => {
                    return Err(BridgePortError::SpanningTree(bridge.name));
                }
                InfoBridge::VlanFiltering(on) => filters_vlans = *on,
                _ => {}
            }
        }
        let mut settings = PortSettings::of(port_infos(&message(port.index)?));
        if filters_vlans {
            if settings.flags.contains(&(PortFlag::VlanTunnel, true)) {
                return Err(BridgePortError::VlanTunnels(port.name.clone()));
            }
            settings.vlans = Some(vlans_of(port.index)?);
        }
        if has_static_entries(port.index)? {
            return Err(BridgePortError::StaticEntries {
                bridge: bridge.name,
                port: port.name.clone(),
            });
        }
        Ok(Self {
            bridge: bridge.name,
            settings,
        })
    }

    /// Makes the interface with the number `index` a port of the bridge with these settings, and sets it up.
    ///
    /// # Errors
    /// The bridge or the interface is gone, or the kernel refuses.
    pub fn take(&self, index: u32) -> Result<(), InterfaceError> {
        self.join(index)?;
        self.set_up(index)
    }

    /// Makes the interface with the number `index` a port of the bridge with these settings. If it is down, it stays down, and
    /// no packets pass.
    ///
    /// # Errors
    /// The bridge or the interface is gone, or the kernel refuses.
    pub(crate) fn join(&self, index: u32) -> Result<(), InterfaceError> {
        let bridge = Interface::find(&self.bridge)?.index;
        netlink::call_here(async |handle| {
            let what = || self.join_description(index);
            let join = LinkUnspec::new_with_index(index).controller(bridge).build();
            handle.link().set(join).execute().await.context(what)?;
            let mut port = LinkBridgePort::new(index);
            for info in self.settings.infos() {
                port = port.append_info_data(info);
            }
            let set = handle.link().set_port(port.build()).execute().await;
            set.context(what)
        })?;
        if let Some(vlans) = &self.settings.vlans {
            set_vlans(index, vlans)?;
        }
        Ok(())
    }

    /// Sets the interface with the number `index`, which has joined the bridge, up.
    ///
    /// # Errors
    /// It is gone, or the kernel refuses.
    pub(crate) fn set_up(&self, index: u32) -> Result<(), InterfaceError> {
        netlink::call_here(async |handle| {
            let up = LinkUnspec::new_with_index(index).up().build();
            let set = handle.link().set(up).execute().await;
            set.context(|| self.join_description(index))
        })?;
        Ok(())
    }

    fn join_description(&self, index: u32) -> String {
        format!("make interface number {index} a port of {}", self.bridge)
    }
}

/// Takes the interface with the number `index` out of its bridge.
///
/// # Errors
/// It is gone, or the kernel refuses.
pub(crate) fn leave(index: u32) -> Result<(), InterfaceError> {
    netlink::call_here(async |handle| {
        let leave = LinkUnspec::new_with_index(index).nocontroller().build();
        let set = handle.link().set(leave).execute().await;
        set.context(|| format!("take interface number {index} out of its bridge"))
    })?;
    Ok(())
}

/// The settings of a port that a user can change (`net/bridge/br_netlink.c`, `br_port_policy`), except for its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PortSettings {
    priority: Option<u16>,
    cost: Option<u32>,
    group_fwd_mask: Option<u16>,
    flags: Vec<(PortFlag, bool)>,
    /// Its VLANs, if the bridge filters them.
    #[serde(default)]
    vlans: Option<Vec<PortVlan>>,
}

/// A VLAN of a port, or the first or the last one of a range of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortVlan {
    number: u16,
    /// The kernel's flags (`BRIDGE_VLAN_INFO_...`, `include/uapi/linux/if_bridge.h`).
    flags: u16,
}

/// The settings of a port that are on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PortFlag {
    Hairpin,
    Guard,
    RootBlock,
    FastLeave,
    Learning,
    UnicastFlood,
    MulticastFlood,
    BroadcastFlood,
    MulticastToUnicast,
    ProxyArp,
    ProxyArpWifi,
    VlanTunnel,
    NeighSuppress,
    Isolated,
    Locked,
}

impl PortSettings {
    fn of(infos: &[InfoBridgePort]) -> Self {
        let mut settings = Self::default();
        for info in infos {
            let flag = match info {
                InfoBridgePort::Priority(priority) => {
                    settings.priority = Some(*priority);
                    continue;
                }
                InfoBridgePort::Cost(cost) => {
                    settings.cost = Some(*cost);
                    continue;
                }
                InfoBridgePort::GroupFwdMask(mask) => {
                    settings.group_fwd_mask = Some(*mask);
                    continue;
                }
                InfoBridgePort::HairpinMode(on) => (PortFlag::Hairpin, *on),
                InfoBridgePort::Guard(on) => (PortFlag::Guard, *on),
                InfoBridgePort::Protect(on) => (PortFlag::RootBlock, *on),
                InfoBridgePort::FastLeave(on) => (PortFlag::FastLeave, *on),
                InfoBridgePort::Learning(on) => (PortFlag::Learning, *on),
                InfoBridgePort::UnicastFlood(on) => (PortFlag::UnicastFlood, *on),
                InfoBridgePort::MulticastFlood(on) => (PortFlag::MulticastFlood, *on),
                InfoBridgePort::BroadcastFlood(on) => (PortFlag::BroadcastFlood, *on),
                InfoBridgePort::MulticastToUnicast(on) => (PortFlag::MulticastToUnicast, *on),
                InfoBridgePort::ProxyARP(on) => (PortFlag::ProxyArp, *on),
                InfoBridgePort::ProxyARPWifi(on) => (PortFlag::ProxyArpWifi, *on),
                InfoBridgePort::VlanTunnel(on) => (PortFlag::VlanTunnel, *on),
                InfoBridgePort::NeighSupress(on) => (PortFlag::NeighSuppress, *on),
                InfoBridgePort::Isolated(on) => (PortFlag::Isolated, *on),
                InfoBridgePort::Locked(on) => (PortFlag::Locked, *on),
                // The rest describes the state, or belongs to protocols of the bridge.
                _ => continue,
            };
            settings.flags.push(flag);
        }
        settings
    }

    fn infos(&self) -> impl Iterator<Item = InfoBridgePort> {
        let priority = self.priority.map(InfoBridgePort::Priority);
        let cost = self.cost.map(InfoBridgePort::Cost);
        let mask = self.group_fwd_mask.map(InfoBridgePort::GroupFwdMask);
        let flags = self.flags.iter().map(|(flag, on)| flag.info(*on));
        [priority, cost, mask].into_iter().flatten().chain(flags)
    }
}

impl PortFlag {
    fn info(self, on: bool) -> InfoBridgePort {
        match self {
            Self::Hairpin => InfoBridgePort::HairpinMode(on),
            Self::Guard => InfoBridgePort::Guard(on),
            Self::RootBlock => InfoBridgePort::Protect(on),
            Self::FastLeave => InfoBridgePort::FastLeave(on),
            Self::Learning => InfoBridgePort::Learning(on),
            Self::UnicastFlood => InfoBridgePort::UnicastFlood(on),
            Self::MulticastFlood => InfoBridgePort::MulticastFlood(on),
            Self::BroadcastFlood => InfoBridgePort::BroadcastFlood(on),
            Self::MulticastToUnicast => InfoBridgePort::MulticastToUnicast(on),
            Self::ProxyArp => InfoBridgePort::ProxyARP(on),
            Self::ProxyArpWifi => InfoBridgePort::ProxyARPWifi(on),
            Self::VlanTunnel => InfoBridgePort::VlanTunnel(on),
            Self::NeighSuppress => InfoBridgePort::NeighSupress(on),
            Self::Isolated => InfoBridgePort::Isolated(on),
            Self::Locked => InfoBridgePort::Locked(on),
        }
    }
}

/// Returns the VLANs of the port with the number `index`. Ranges are two entries, in the form in which the kernel also takes
/// them.
fn vlans_of(index: u32) -> Result<Vec<PortVlan>, NetlinkError> {
    // Only a list of all ports has the VLANs (`net/core/rtnetlink.c`, `rtnl_bridge_getlink`).
    let mut ports = LinkMessage::default();
    ports.header.interface_family = AddressFamily::Bridge;
    let in_ranges = LinkAttribute::ExtMask(vec![LinkExtentMask::BrvlanCompressed]);
    ports.attributes.push(in_ranges);
    let mut vlans = Vec::new();
    let listed = netlink::list(RouteNetlinkMessage::GetLink(ports), |answer| {
        if let RouteNetlinkMessage::NewLink(port) = answer
            && port.header.index == index
        {
            vlans.extend(vlans_in(&port));
        }
    });
    listed.context(|| format!("list the VLANs of interface number {index}"))?;
    Ok(vlans)
}

/// Returns whether a user has given the port with the number `index` addresses that its bridge does not learn.
fn has_static_entries(index: u32) -> Result<bool, NetlinkError> {
    let mut entries = NeighbourMessage::default();
    entries.header.family = AddressFamily::Bridge;
    let mut has_any = false;
    let listed = netlink::list(RouteNetlinkMessage::GetNeighbour(entries), |answer| {
        // A static entry has this state, and the port's own address the state permanent (`net/bridge/br_fdb.c`, `fdb_to_nud`).
        if let RouteNetlinkMessage::NewNeighbour(entry) = answer {
            let is_static = entry.header.state == NeighbourState::Noarp;
            has_any |= is_static && entry.header.ifindex == index;
        }
    });
    listed.context(|| format!("list the bridge's entries for interface number {index}"))?;
    Ok(has_any)
}

fn vlans_in(port: &LinkMessage) -> impl Iterator<Item = PortVlan> {
    let specs = port
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::AfSpecBridge(specs) => Some(specs),
            _ => None,
        });
    specs.flatten().filter_map(|spec| match spec {
        AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid }) => Some(PortVlan {
            number: *vid,
            flags: flags.bits(),
        }),
        _ => None,
    })
}

/// Gives the port with the number `index` these VLANs and no others. A new port has the default VLAN of its bridge.
fn set_vlans(index: u32, vlans: &[PortVlan]) -> Result<(), NetlinkError> {
    let what = || format!("set the VLANs of interface number {index}");
    let present = vlans_of(index)?;
    netlink::call_here(async |handle| {
        if !present.is_empty() {
            let old = vlan_message(index, &present);
            let remove = handle.link().del_with_message(old).execute().await;
            remove.context(what)?;
        }
        if vlans.is_empty() {
            return Ok(());
        }
        let new = vlan_message(index, vlans);
        handle.link().set(new).execute().await.context(what)
    })
}

/// Returns the request that adds or removes VLANs of the port with the number `index`.
fn vlan_message(index: u32, vlans: &[PortVlan]) -> LinkMessage {
    let port = LinkBridgeVlan::new(index);
    let port = vlans.iter().fold(port, |port, PortVlan { number, flags }| {
        port.vlan(*number, BridgeVlanInfoFlags::from_bits_retain(*flags))
    });
    port.build()
}

/// Returns the kernel's description of the interface with the number `index`.
fn message(index: u32) -> Result<LinkMessage, NetlinkError> {
    netlink::call_here(async |handle: Handle| {
        let what = || format!("look up interface number {index}");
        let mut links = handle.link().get().match_index(index).execute();
        let link = links.try_next().await.context(what)?;
        link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
            .context(what)
    })
}

fn infos(message: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    let infos = message
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    infos.flatten()
}

fn bridge_infos(message: &LinkMessage) -> &[InfoBridge] {
    let mut found = infos(message).filter_map(|info| match info {
        LinkInfo::Data(InfoData::Bridge(infos)) => Some(infos.as_slice()),
        _ => None,
    });
    found.next().unwrap_or_default()
}

fn port_infos(message: &LinkMessage) -> &[InfoBridgePort] {
    let mut found = infos(message).filter_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BridgePort(infos)) => Some(infos.as_slice()),
        _ => None,
    });
    found.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_can_set_is_taken_over_and_the_state_is_not() {
        let infos = [
            InfoBridgePort::Priority(32),
            InfoBridgePort::Cost(2),
            InfoBridgePort::HairpinMode(true),
            InfoBridgePort::PortNumber(7),
            InfoBridgePort::Isolated(false),
            InfoBridgePort::HoldTimer(5),
        ];
        let settings = PortSettings::of(&infos);
        let json = serde_json::to_string(&settings).unwrap();
        let back: PortSettings = serde_json::from_str(&json).unwrap();
        let [priority, cost, hairpin, _, isolated, _] = infos;
        let right = [priority, cost, hairpin, isolated];
        assert_eq!(back.infos().collect::<Vec<_>>(), right);
    }

    #[test]
    fn vlans_are_set_as_they_were_read() {
        let vlan = |number, flags| PortVlan { number, flags };
        // VLAN 10 is that of frames without a tag (1 << 1 | 1 << 2), and 100 to 110 are a range (1 << 3, 1 << 4).
        let vlans = [vlan(10, 6), vlan(100, 8), vlan(110, 16)];
        let message = vlan_message(7, &vlans);
        assert_eq!(message.header.index, 7);
        assert_eq!(message.header.interface_family, AddressFamily::Bridge);
        assert_eq!(vlans_in(&message).collect::<Vec<_>>(), vlans);
        let settings = PortSettings {
            vlans: Some(vlans.to_vec()),
            ..PortSettings::default()
        };
        let json = serde_json::to_string(&settings).unwrap();
        let back: PortSettings = serde_json::from_str(&json).unwrap();
        assert_eq!(back, settings);
        let earlier = r#"{"priority":32,"cost":2,"group_fwd_mask":0,"flags":[]}"#;
        let earlier: PortSettings = serde_json::from_str(earlier).unwrap();
        assert_eq!(earlier.vlans, None);
    }
}
