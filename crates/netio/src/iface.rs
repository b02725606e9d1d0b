//! The properties of interfaces, and notifications of their changes.

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

/// The state of an interface when it was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Number in its namespace.
    pub index: u32,
    /// Largest L3 packet in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether the driver detects a carrier.
    pub carrier: bool,
    /// Whether the carrier has settled and the kernel sends through it.
    pub running: bool,
    /// Number of the bridge or bond of which it is a port.
    pub master: Option<u32>,
    /// Whether a default route, IPv4 or IPv6, leads out of it.
    pub default_route: bool,
    /// Whether it carries Ethernet frames; if not, `mac` is all zero.
    pub ethernet: bool,
    /// Hardware address.
    pub mac: [u8; 6],
    /// The kernel's name of its kind ("veth", "bridge"); absent for most hardware.
    pub kind: Option<String>,
    /// Number of the interface on which it depends: for a veth, of the other end, in that one's namespace.
    pub depends_on: Option<u32>,
}

/// The reason why an interface could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no interface of this name.
    #[error("there is no interface {0}")]
    Missing(String),
    /// The request to the kernel failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Interface {
    /// Looks up `name` in the namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface, or the request to the kernel fails.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        // The kernel would report such a name as malformed, not as missing.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(InterfaceError::Missing(name.to_owned()));
        }
        let what = || format!("look up interface {name}");
        let by_name = |get: LinkGetRequest| get.match_name(name.to_owned());
        netlink::call_here(|handle| look_up(handle, by_name, what))
            .map_err(|error| missing(error, name))
    }

    /// Looks up the interface with the number `index` in the namespace of the calling thread.
    ///
    /// # Errors
    /// The same as for [`Interface::find`].
    pub fn by_index(index: u32) -> Result<Self, InterfaceError> {
        let what = || format!("look up interface number {index}");
        netlink::call_here(|handle| look_up(handle, |get| get.match_index(index), what))
            .map_err(|error| missing(error, &format!("number {index}")))
    }

    /// Returns all interfaces in the namespace of the calling thread.
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn all() -> Result<Vec<Self>, InterfaceError> {
        let ask = async |handle: Handle| {
            let what = || "list the interfaces".to_owned();
            let links: Vec<LinkMessage> = handle
                .link()
                .get()
                .execute()
                .try_collect()
                .await
                .context(what)?;
            let mut all: Vec<Self> = links.iter().map(from_message).collect();
            let defaults = defaults(&handle).await?;
            for interface in &mut all {
                interface.default_route = defaults.contains(&interface.index);
            }
            Ok(all)
        };
        Ok(netlink::call_here(ask)?)
    }

    /// Returns the present L1 rate of its cable; `None` if it has no cable or the driver does not tell. The source is
    /// `/sys/class/net/NAME/speed`, which also has a number for virtual interfaces, where it limits nothing.
    pub fn speed(&self) -> Option<BitsPerSec> {
        if self.kind.is_some() {
            return None;
        }
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/speed", self.name)).ok()?;
        let megabits: u64 = text.trim().parse().ok()?;
        BitsPerSec::new(megabits.checked_mul(1_000_000)?).ok()
    }

    /// Returns whether it has addresses or routes; see [`Interface::configured`].
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn is_configured(&self) -> Result<bool, InterfaceError> {
        Ok(Self::configured()?.contains(&self.index))
    }

    /// Returns the numbers of the interfaces in the namespace of the calling thread with addresses or routes that would
    /// be lost if the interface were set down: any IPv4 address, any IPv6 address that is not link-local, and any route
    /// that does not result from an address.
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn configured() -> Result<BTreeSet<u32>, InterfaceError> {
        let ask = async |handle: Handle| {
            let mut found = with_addresses(&handle).await?;
            // The kernel creates the other routes for an address or for the interface.
            let given = |route: &RouteMessage| route.header.protocol != RouteProtocol::Kernel;
            found.extend(interfaces_of_routes(&handle, given).await?);
            Ok(found)
        };
        Ok(netlink::call_here(ask)?)
    }
}

/// The IP families for which a network namespace has a default route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultRoutes {
    /// Whether there is one for IPv4.
    pub v4: bool,
    /// Whether there is one for IPv6.
    pub v6: bool,
}

impl DefaultRoutes {
    /// Looks for default routes in the namespace of the calling thread, in all tables.
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn here() -> Result<Self, InterfaceError> {
        let ask = async |handle: Handle| {
            let v4 = interfaces_of_family(&handle, AddressFamily::Inet, leads_anywhere).await?;
            let v6 = interfaces_of_family(&handle, AddressFamily::Inet6, leads_anywhere).await?;
            Ok(Self {
                v4: !v4.is_empty(),
                v6: !v6.is_empty(),
            })
        };
        Ok(netlink::call_here(ask)?)
    }
}

/// A change of an interface, or its present state after notifications were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// Number of the interface.
    pub index: u32,
    /// Present name.
    pub name: String,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether the driver detects a carrier.
    pub carrier: bool,
    /// Whether the carrier has settled and the kernel sends through it.
    pub running: bool,
    /// Whether the interface has left the namespace.
    pub gone: bool,
}

/// Reports every change of every interface in one namespace.
///
/// Create it before looking an interface up, so that no change in between is missed.
pub struct LinkWatcher {
    socket: Socket,
}

impl LinkWatcher {
    /// Watches the namespace of the calling thread.
    ///
    /// # Errors
    /// A netlink socket cannot be opened.
    pub fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Returns every change since the last call, oldest first, without waiting.
    ///
    /// # Errors
    /// The socket fails.
    pub fn changes(&mut self) -> io::Result<Vec<LinkChange>> {
        let mut changes = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((messages, _)) => changes.extend(read_changes(&messages)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                // Notifications were lost. The kernel is asked for the state of every interface, and the answers count
                // as changes.
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
    /// Returns the socket, which is readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Converts the kernel's "no such device" into an error with the name.
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
    let link = links
        .try_next()
        .await
        .context(&what)?
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
        .context(&what)?;
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
            LinkAttribute::Link(index) => interface.depends_on = Some(*index),
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

/// Returns the interfaces out of which default routes of any table lead.
async fn defaults(handle: &Handle) -> Result<BTreeSet<u32>, NetlinkError> {
    interfaces_of_routes(handle, leads_anywhere).await
}

/// Returns true for a default route.
fn leads_anywhere(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
}

/// Returns the interfaces out of which routes of any table and family lead that are `wanted`.
async fn interfaces_of_routes(
    handle: &Handle,
    wanted: impl Fn(&RouteMessage) -> bool,
) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut found = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        found.extend(interfaces_of_family(handle, family, &wanted).await?);
    }
    Ok(found)
}

/// Returns the interfaces out of which routes of any table lead that are `wanted`.
async fn interfaces_of_family(
    handle: &Handle,
    family: AddressFamily,
    wanted: impl Fn(&RouteMessage) -> bool,
) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut found = BTreeSet::new();
    let mut all = RouteMessage::default();
    all.header.address_family = family;
    let mut routes = handle.route().get(all).execute();
    let what = || "list the routes".to_owned();
    while let Some(route) = routes.try_next().await.context(what)? {
        if wanted(&route) {
            found.extend(output_interfaces(&route));
        }
    }
    Ok(found)
}

/// Returns the interfaces with addresses other than IPv6 link-local ones, which the kernel adds again by itself.
async fn with_addresses(handle: &Handle) -> Result<BTreeSet<u32>, NetlinkError> {
    let mut found = BTreeSet::new();
    let mut addresses = handle.address().get().execute();
    let what = || "list the addresses".to_owned();
    while let Some(AddressMessage { header, .. }) = addresses.try_next().await.context(what)? {
        let is_link_local =
            header.family == AddressFamily::Inet6 && header.scope == AddressScope::Link;
        if !is_link_local {
            found.insert(header.index);
        }
    }
    Ok(found)
}

/// Returns the interfaces out of which a route leads.
fn output_interfaces(route: &RouteMessage) -> impl Iterator<Item = u32> {
    route
        .attributes
        .iter()
        .flat_map(|attribute| match attribute {
            RouteAttribute::Oif(oif) => vec![*oif],
            RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
            _ => Vec::new(),
        })
}

/// Returns the number of changes in a datagram, for fuzzers.
pub(crate) fn changes_in(messages: &[u8]) -> usize {
    read_changes(messages).count()
}

/// Returns the changes in a datagram of netlink messages.
fn read_changes(messages: &[u8]) -> impl Iterator<Item = LinkChange> {
    netlink::payloads(messages).filter_map(parse_change)
}

fn parse_change(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<LinkChange> {
    let (link, gone) = match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => (link, false),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => (link, true),
        _ => return None,
    };
    // A bridge reports its ports in the same group, and leaving a bridge is not leaving the namespace.
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
