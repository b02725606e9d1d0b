//! The host's ends of the veth pairs of a container, and the pair by which an emulator is inserted there.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::{LinkUnspec, LinkVeth};

use crate::bridge::without_ipv6;
use crate::iface::{Interface, InterfaceError};
use crate::netlink::{self, NetlinkError, RequestContext as _, Requests};
use crate::netns::{self, NetNs, NetNsError};

/// An interface in another namespace whose other end is in the namespace of the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEnd {
    /// The interface in the other namespace.
    pub inside: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its other end.
    pub host: Interface,
}

/// The reason why the ends could not be found.
#[derive(Debug, thiserror::Error)]
pub enum HostEndError {
    /// The namespace could not be entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The namespaces could not be compared.
    #[error("cannot identify a network namespace: {source}")]
    Same {
        /// The cause.
        source: io::Error,
    },
    /// The interfaces could not be listed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
}

impl HostEnd {
    /// Returns the ends of all veth pairs between `namespace` and the namespace of the calling thread, in the order of
    /// the names inside. There are none if both are the same.
    ///
    /// # Errors
    /// The namespace cannot be entered (CAP_SYS_ADMIN), or a request to the kernel fails.
    pub fn all_of(namespace: &NetNs) -> Result<Vec<Self>, HostEndError> {
        if is_here(namespace)? {
            return Ok(Vec::new());
        }
        // The kernel gives a namespace its number when it lists an interface that leads there.
        let outside = Interface::all()?;
        let Some(number) = number_here(namespace).map_err(InterfaceError::from)? else {
            return Ok(Vec::new());
        };
        let mut inside = namespace.run(Interface::all)??;
        inside.sort_by(|a, b| a.name.cmp(&b.name));
        let pairs = inside.into_iter().filter_map(|inside| {
            let is_other_end = |host: &&Interface| {
                [*host, &inside].into_iter().all(is_veth)
                    && host.depends_on == Some(inside.index)
                    && host.depends_on_namespace == Some(number)
                    && inside.depends_on == Some(host.index)
            };
            let host = outside.iter().find(is_other_end)?.clone();
            Some(Self {
                inside: inside.name,
                mac: inside.mac,
                host,
            })
        });
        Ok(pairs.collect())
    }

    /// Returns true if `namespace` has an end of a veth pair whose other end is in another namespace. Call it if
    /// [`all_of`](Self::all_of) has found none: then that is not the namespace of the calling thread.
    ///
    /// # Errors
    /// Those of [`all_of`](Self::all_of).
    pub fn are_elsewhere(namespace: &NetNs) -> Result<bool, HostEndError> {
        if is_here(namespace)? {
            return Ok(false);
        }
        let inside = namespace.run(Interface::all)??;
        let mut ends = inside.iter().filter(|inside| is_veth(inside));
        Ok(ends.any(|end| end.depends_on_namespace.is_some()))
    }

    /// Returns the interfaces in `namespace` through which packets can leave it without passing one of `ends`, those that
    /// [`all_of`](Self::all_of) has found, in the order of their names. Examples are macvlan and ipvlan.
    ///
    /// # Errors
    /// Those of [`all_of`](Self::all_of).
    pub fn others_of(namespace: &NetNs, ends: &[Self]) -> Result<Vec<Interface>, HostEndError> {
        let mut inside = namespace.run(Interface::all)??;
        inside.retain(|inside| leads_past(inside, ends));
        inside.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(inside)
    }
}

/// Returns true if packets can leave a namespace through its interface `inside` without passing one of `ends`.
fn leads_past(inside: &Interface, ends: &[HostEnd]) -> bool {
    let is_end = ends.iter().any(|end| end.inside == inside.name);
    // The packets of a VLAN or a tunnel pass another interface inside as well.
    let is_stacked = inside.depends_on.is_some() && inside.depends_on_namespace.is_none();
    // Namespaces within this one are connected by a bridge and its ports.
    let is_port = is_veth(inside) && inside.master.is_some();
    let is_inner = is_port || inside.kind.as_deref() == Some("bridge");
    inside.up && inside.name != "lo" && !is_end && !is_stacked && !is_inner
}

/// Returns true if `namespace` is that of the calling thread.
fn is_here(namespace: &NetNs) -> Result<bool, HostEndError> {
    let failed = |source| HostEndError::Same { source };
    let there = namespace.run(netns::cookie_here)?.map_err(failed)?;
    Ok(there == netns::cookie_here().map_err(failed)?)
}

/// Returns the kernel's number of `namespace` in the namespace of the calling thread (`RTM_GETNSID`, `net/core/net_namespace.c`);
/// `None` if no interface here leads there.
fn number_here(namespace: &NetNs) -> Result<Option<i32>, NetlinkError> {
    let mut get = NsidMessage::default();
    let fd = namespace.as_fd().as_raw_fd().cast_unsigned();
    get.attributes.push(NsidAttribute::Fd(fd));
    let answer =
        Requests::open().and_then(|requests| requests.get(RouteNetlinkMessage::GetNsId(get)));
    let answer = answer.context(|| "look up the number of a network namespace".to_owned())?;
    let RouteNetlinkMessage::NewNsId(found) = answer else {
        return Ok(None);
    };
    Ok(found
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            // A namespace without a number has -1.
            NsidAttribute::Id(number) => Some(*number).filter(|number| *number >= 0),
            _ => None,
        }))
}

fn is_veth(interface: &Interface) -> bool {
    interface.kind.as_deref() == Some("veth")
}

/// Makes a veth pair in the namespace of the calling thread: `near`, and `far`, which takes the place of `like`.
/// Both have its MTU and hardware address, and no IPv6.
///
/// # Errors
/// CAP_NET_ADMIN is missing, an interface has one of these names, or the kernel has no veth.
pub fn make_pair(near: &str, far: &str, like: &Interface) -> Result<(), InterfaceError> {
    let peer = LinkUnspec::new_with_name(far)
        .mtu(like.mtu)
        .address(like.mac.to_vec())
        .build();
    let pair = LinkVeth::new(near, far)
        .mtu(like.mtu)
        .address(like.mac.to_vec())
        .arp(false)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build();
    netlink::call_here(async |handle| {
        let add = handle.link().add(pair).execute().await;
        add.context(|| format!("make the veth pair {near} and {far}"))
    })?;
    for end in [near, far] {
        let index = Interface::find(end)?.index;
        netlink::call_here(async |handle| {
            // A kernel without IPv6 does not support this mode, and does not need it.
            let _ = handle.link().set(without_ipv6(index)).execute().await;
            Ok(())
        })?;
    }
    Ok(())
}

/// Removes a veth pair by one of its ends; does nothing if there is none.
///
/// # Errors
/// The kernel refuses.
pub fn remove_pair(end: &str) -> Result<(), InterfaceError> {
    let index = match Interface::find(end) {
        Ok(found) if is_veth(&found) => found.index,
        Ok(_) | Err(InterfaceError::Missing(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    netlink::call_here(async |handle| {
        let del = handle.link().del(index).execute().await;
        del.context(|| format!("remove the veth pair of {end}"))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_bypass_the_ends_by_an_interface_of_another_kind_that_depends_on_nothing_inside() {
        let interface = |name: &str, kind: &str| Interface {
            name: name.to_owned(),
            kind: Some(kind.to_owned()),
            up: true,
            ..Interface::default()
        };
        let ends = [HostEnd {
            inside: "eth0".to_owned(),
            mac: [0; 6],
            host: Interface::default(),
        }];
        let macvlan = Interface {
            depends_on: Some(2),
            depends_on_namespace: Some(0),
            ..interface("eth1", "macvlan")
        };
        let tap = interface("tap0", "tun");
        let pair_elsewhere = Interface {
            depends_on: Some(9),
            depends_on_namespace: Some(1),
            ..interface("eth2", "veth")
        };
        for other in [&macvlan, &tap, &pair_elsewhere] {
            assert!(leads_past(other, &ends), "{other:?}");
        }
        let vlan = Interface {
            depends_on: Some(2),
            ..interface("eth0.10", "vlan")
        };
        let port = Interface {
            master: Some(4),
            ..pair_elsewhere
        };
        let down = Interface {
            up: false,
            ..macvlan
        };
        let loopback = Interface {
            kind: None,
            ..interface("lo", "")
        };
        let (own, bridge) = (interface("eth0", "veth"), interface("docker0", "bridge"));
        for other in [&own, &vlan, &port, &down, &loopback, &bridge] {
            assert!(!leads_past(other, &ends), "{other:?}");
        }
    }
}
