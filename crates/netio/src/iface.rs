//! The properties of an interface, and notifications of their changes.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use futures_util::TryStreamExt as _;
use model::BitsPerSec;
use rtnetlink::packet_core::{NLM_F_DUMP, NetlinkPayload};
use rtnetlink::packet_route::address::{AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rtnetlink::{Handle, LinkGetRequest};

use crate::netlink::{self, NetlinkError, RequestContext as _};

/// An interface as it was when it was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Largest L3 packet, in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// The driver sees a carrier.
    pub carrier: bool,
    /// The carrier has settled and the kernel sends through it.
    pub running: bool,
    /// The bridge or bond that it is a port of.
    pub master: Option<u32>,
    /// A default route, IPv4 or IPv6, leads out of it.
    pub default_route: bool,
    /// It carries Ethernet frames; `mac` is all zero if not.
    pub ethernet: bool,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// What the kernel calls its sort ("veth", "bridge"); none for most hardware.
    pub kind: Option<String>,
}

/// Why an interface could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is none of this name.
    #[error("there is no interface {0}")]
    Missing(String),
    /// The kernel could not be asked.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Interface {
    /// Looks up `name` in the calling thread's namespace.
    ///
    /// # Errors
    /// When there is none, or the kernel cannot be asked.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        // The kernel would refuse such a name as malformed, not as missing.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(InterfaceError::Missing(name.to_owned()));
        }
        let what = || format!("look up interface {name}");
        let by_name = |get: LinkGetRequest| get.match_name(name.to_owned());
        netlink::call_here(|handle| look_up(handle, by_name, what))
            .map_err(|error| missing(error, name))
    }

    /// Looks up the interface with the number `index` in the calling thread's namespace.
    ///
    /// # Errors
    /// As [`Interface::find`].
    pub fn by_index(index: u32) -> Result<Self, InterfaceError> {
        let what = || format!("look up interface number {index}");
        netlink::call_here(|handle| look_up(handle, |get| get.match_index(index), what))
            .map_err(|error| missing(error, &format!("number {index}")))
    }

    /// All of the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn all() -> Result<Vec<Self>, InterfaceError> {
        let ask = async |handle: Handle| {
            let what = || "list the interfaces".to_owned();
            let links = handle.link().get().execute();
            let links: Vec<LinkMessage> = links.try_collect().await.asked(what)?;
            let mut all: Vec<Self> = links.iter().map(from_message).collect();
            let defaults = defaults(&handle).await?;
            for interface in &mut all {
                interface.default_route = defaults.contains(&interface.index);
            }
            Ok(all)
        };
        Ok(netlink::call_here(ask)?)
    }

    /// What its cable carries now, on L1; `None` of what has no cable, or does not say. (`/sys/class/net/NAME/speed`, which has a
    /// number for virtual interfaces too, that bounds nothing.)
    pub fn speed(&self) -> Option<BitsPerSec> {
        if self.kind.is_some() {
            return None;
        }
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/speed", self.name)).ok()?;
        let megabits: u64 = text.trim().parse().ok()?;
        BitsPerSec::new(megabits.checked_mul(1_000_000)?).ok()
    }

    /// Whether it has addresses or routes, as [`Interface::configured`] says.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn is_configured(&self) -> Result<bool, InterfaceError> {
        Ok(Self::configured()?.contains(&self.index))
    }

    /// The interfaces of the calling thread's namespace, by number, that have addresses or routes that lowering them would take away
    /// for good: any IPv4 address, any IPv6 one that is not link-local, any route that does not come with an address.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn configured() -> Result<BTreeSet<u32>, InterfaceError> {
        let ask = async |handle: Handle| {
            let mut found = with_addresses(&handle).await?;
            // The kernel makes the others for an address or for the interface.
            let given = |route: &RouteMessage| route.header.protocol != RouteProtocol::Kernel;
            found.extend(ways_out(&handle, given).await?);
            Ok(found)
        };
        Ok(netlink::call_here(ask)?)
    }
}

/// A change of an interface, or what it is after changes that could not be told one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// The interface's number.
    pub index: u32,
    /// Its name now.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// The driver sees a carrier.
    pub carrier: bool,
    /// The carrier has settled and the kernel sends through it.
    pub running: bool,
    /// The interface has left the namespace.
    pub gone: bool,
}

/// Tells of every change of every interface in one namespace.
///
/// Start it before looking an interface up, so that no change falls between the two.
pub struct LinkWatcher {
    socket: Socket,
}

impl LinkWatcher {
    /// Watches the calling thread's namespace.
    ///
    /// # Errors
    /// When no netlink socket can be had.
    pub fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Every change since the last call, oldest first; never waits.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn changes(&mut self) -> io::Result<Vec<LinkChange>> {
        let mut changes = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((messages, _)) => changes.extend(read_changes(&messages)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                // Some were lost: ask how every interface stands now; the answer comes as more changes.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.ask_all()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn ask_all(&self) -> io::Result<()> {
        let get = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let bytes = netlink::request(get, NLM_F_DUMP);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }
}

impl AsFd for LinkWatcher {
    /// Readable when there are changes to collect.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the kernel's "no such device" means.
fn missing(error: NetlinkError, name: &str) -> InterfaceError {
    match error.errno() {
        Some(libc::ENODEV) => InterfaceError::Missing(name.to_owned()),
        _ => error.into(),
    }
}

async fn look_up(
    handle: Handle,
    chosen: impl FnOnce(LinkGetRequest) -> LinkGetRequest,
    what: impl Fn() -> String,
) -> Result<Interface, NetlinkError> {
    let mut links = chosen(handle.link().get()).execute();
    let link = links.try_next().await.asked(&what)?;
    let link = link
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
        .asked(&what)?;
    let mut interface = from_message(&link);
    interface.default_route = defaults(&handle).await?.contains(&interface.index);
    Ok(interface)
}

fn from_message(link: &LinkMessage) -> Interface {
    let flags = link.header.flags;
    let mut interface = Interface {
        index: link.header.index,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        running: flags.contains(LinkFlags::Running),
        ethernet: link.header.link_layer_type == LinkLayerType::Ether,
        ..Interface::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Controller(index) => interface.master = Some(*index),
            LinkAttribute::Address(address) => {
                interface.mac = address.as_slice().try_into().unwrap_or_default();
            }
            LinkAttribute::LinkInfo(infos) => {
                interface.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    interface
}

/// The interfaces out of which default routes of any table lead.
async fn defaults(handle: &Handle) -> Result<BTreeSet<u32>, NetlinkError> {
    let leads_anywhere = |route: &RouteMessage| {
        route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
    };
    ways_out(handle, leads_anywhere).await
}

/// The interfaces out of which routes of any table and family lead that are as `wanted`.
async fn ways_out(
    handle: &Handle,
    wanted: impl Fn(&RouteMessage) -> bool,
) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut found = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut all = RouteMessage::default();
        all.header.address_family = family;
        let mut routes = handle.route().get(all).execute();
        let what = || "list the routes".to_owned();
        while let Some(route) = routes.try_next().await.asked(what)? {
            if wanted(&route) {
                found.extend(leaves_by(&route));
            }
        }
    }
    Ok(found)
}

/// The interfaces that have an address beside IPv6 link-local ones, which come back by themselves.
async fn with_addresses(handle: &Handle) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut found = BTreeSet::new();
    let mut addresses = handle.address().get().execute();
    let what = || "list the addresses".to_owned();
    while let Some(AddressMessage { header, .. }) = addresses.try_next().await.asked(what)? {
        let is_link_local =
            header.family == AddressFamily::Inet6 && header.scope == AddressScope::Link;
        if !is_link_local {
            found.insert(header.index);
        }
    }
    Ok(found)
}

/// The interfaces out of which a route leads.
fn leaves_by(route: &RouteMessage) -> impl Iterator<Item = u32> {
    route
        .attributes
        .iter()
        .flat_map(|attribute| match attribute {
            RouteAttribute::Oif(oif) => vec![*oif],
            RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
            _ => Vec::new(),
        })
}

/// How many changes a datagram tells of, for fuzzers.
pub(crate) fn changes_in(messages: &[u8]) -> usize {
    read_changes(messages).count()
}

/// The changes in a datagram of netlink messages.
fn read_changes(messages: &[u8]) -> impl Iterator<Item = LinkChange> {
    netlink::payloads(messages).filter_map(as_change)
}

fn as_change(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<LinkChange> {
    let (link, gone) = match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => (link, false),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => (link, true),
        _ => return None,
    };
    // A bridge reports its ports in the same group: leaving a bridge is not leaving the namespace.
    if link.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let now = from_message(&link);
    Some(LinkChange {
        index: now.index,
        name: now.name,
        up: !gone && now.up,
        carrier: !gone && now.carrier,
        running: !gone && now.running,
        gone,
    })
}
