//! A kernel bridge used as a wire: it learns addresses, and otherwise passes frames unchanged.

use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgeStpState, In6AddrGenMode, InfoBridge, InfoBridgePort,
    LinkAttribute,
};
use rtnetlink::{LinkBridge, LinkBridgePort, LinkUnspec};

use crate::iface::{Interface, InterfaceError};
use crate::netlink::{self, NetlinkError, RequestContext as _};

/// The link-local groups (01:80:c2:00:00:00 to 0f) that a port forwards: all except the pause frames of 01, for which
/// the kernel does not allow it (`net/bridge/br_netlink.c`, `BR_GROUPFWD_MACPAUSE`).
const LINK_LOCAL_GROUPS: u16 = 0xfffd;

/// Connects the interfaces with the numbers `ports` by a new bridge `name` in the namespace of the calling thread.
///
/// The bridge has no spanning tree, no multicast snooping and no addresses, and answers no ARP.
///
/// # Errors
/// There is an interface of this name, the kernel has no bridges, or a port cannot join.
pub(crate) fn join(name: &str, ports: [u32; 2]) -> Result<(), InterfaceError> {
    netlink::call_here(async |handle| {
        let bridge = LinkBridge::new(name)
            .append_info_data(InfoBridge::StpState(BridgeStpState::Disabled))
            .append_info_data(InfoBridge::MulticastSnooping(false))
            .arp(false)
            .down();
        let add = handle.link().add(bridge.build()).execute().await;
        add.context(|| format!("make the bridge {name}"))
    })?;
    let index = Interface::find(name)?.index;
    netlink::call_here(async |handle| {
        for port in ports {
            let what = || format!("put interface number {port} into the bridge {name}");
            let enter = LinkUnspec::new_with_index(port).controller(index).up();
            let set = handle.link().set(enter.build()).execute().await;
            set.context(what)?;
            let groups = InfoBridgePort::GroupFwdMask(LINK_LOCAL_GROUPS);
            let groups = LinkBridgePort::new(port).append_info_data(groups);
            let set = handle.link().set_port(groups.build()).execute().await;
            set.context(what)?;
        }
        let set_up = || format!("set the bridge {name} up");
        // A kernel without IPv6 does not support this mode, and does not need it.
        let _ = handle.link().set(without_ipv6(index)).execute().await;
        let up = LinkUnspec::new_with_index(index).up().build();
        handle.link().set(up).execute().await.context(set_up)
    })?;
    Ok(())
}

/// Removes the bridge `name`, which frees its ports; does nothing if there is none.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn remove(name: &str) -> Result<(), InterfaceError> {
    let bridge = match Interface::find(name) {
        Ok(found) if found.kind.as_deref() == Some("bridge") => found,
        Ok(_) | Err(InterfaceError::Missing(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let removed = netlink::call_here(async |handle| {
        let del = handle.link().del(bridge.index).execute().await;
        del.context(|| format!("remove the bridge {name}"))
    });
    match removed {
        Err(error) if is_gone(&error) => Ok(()),
        other => Ok(other?),
    }
}

fn is_gone(error: &NetlinkError) -> bool {
    error.errno() == Some(libc::ENODEV)
}

/// Returns a request that disables the link-local address of interface `index`.
pub(crate) fn without_ipv6(index: u32) -> rtnetlink::packet_route::link::LinkMessage {
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let none = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]);
    LinkUnspec::new_with_index(index)
        .append_extra_attribute(none)
        .build()
}
