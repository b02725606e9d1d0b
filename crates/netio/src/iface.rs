//! The properties of interfaces, and notifications of their changes.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use model::BitsPerSec;
use rtnetlink::packet_core::{NLM_F_DUMP, NetlinkPayload};
use rtnetlink::packet_route::address::{AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netlink::{self, NetlinkError, RequestContext as _, Requests};

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
    /// Whether it carries Ethernet frames; if not, `mac` is all zero.
    pub ethernet: bool,
    /// Hardware address.
    pub mac: [u8; 6],
    /// The kernel's name of its kind ("veth", "bridge"); absent for most hardware.
    pub kind: Option<String>,
    /// Number of the interface on which it depends: for a veth, of the other end, in that one's namespace.
    pub depends_on: Option<u32>,
    /// The kernel's number, in this namespace, of the namespace of that interface; absent if it is this one.
    pub depends_on_namespace: Option<i32>,
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
        InterfaceLookup::open()?.find(name)
    }

    /// Looks up the interface with the number `index` in the namespace of the calling thread.
    ///
    /// # Errors
    /// The same as for [`Interface::find`].
    pub fn by_index(index: u32) -> Result<Self, InterfaceError> {
        InterfaceLookup::open()?.by_index(index)
    }

    /// Returns all interfaces in the namespace of the calling thread.
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn all() -> Result<Vec<Self>, InterfaceError> {
        let mut all = Vec::new();
        let get = RouteNetlinkMessage::GetLink(without_counters());
        let listed = netlink::list(get, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                all.push(from_message(&link));
            }
        });
        listed.context(|| "list the interfaces".to_owned())?;
        Ok(all)
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

    /// Returns whether it has addresses or routes; see [`HostUse::is_configured`].
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn is_configured(&self) -> Result<bool, InterfaceError> {
        Ok(HostUse::now()?.is_configured(self))
    }
}

/// Looks up many interfaces, in the namespace of the thread that opened it. Each one takes the same time for any number of others.
pub struct InterfaceLookup {
    requests: Requests,
}

impl InterfaceLookup {
    /// Prepares to look up interfaces in the namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no socket for this process.
    pub fn open() -> Result<Self, InterfaceError> {
        let opened = Requests::open();
        let requests = opened.context(|| "ask the kernel for interfaces".to_owned())?;
        Ok(Self { requests })
    }

    /// Looks up the interface with this name, or with this alternative name.
    ///
    /// # Errors
    /// There is no such interface, or the request to the kernel fails.
    pub fn find(&self, name: &str) -> Result<Interface, InterfaceError> {
        // The kernel would report such a name as malformed, not as missing.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(InterfaceError::Missing(name.to_owned()));
        }
        let mut get = without_counters();
        get.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.look_up(get, name)
    }

    /// Looks up the interface with the number `index`.
    ///
    /// # Errors
    /// The same as for [`InterfaceLookup::find`].
    pub fn by_index(&self, index: u32) -> Result<Interface, InterfaceError> {
        let mut get = without_counters();
        get.header.index = index;
        self.look_up(get, &format!("number {index}"))
    }

    fn look_up(&self, get: LinkMessage, name: &str) -> Result<Interface, InterfaceError> {
        let answer = self.requests.get(RouteNetlinkMessage::GetLink(get));
        match answer.context(|| format!("look up interface {name}")) {
            Ok(RouteNetlinkMessage::NewLink(link)) => Ok(from_message(&link)),
            Err(error) if error.errno() != Some(libc::ENODEV) => Err(error.into()),
            _ => Err(InterfaceError::Missing(name.to_owned())),
        }
    }
}

/// Returns a request for interfaces whose answers have no counters, which would make them several times as long.
fn without_counters() -> LinkMessage {
    let mut get = LinkMessage::default();
    let mask = LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]);
    get.attributes.push(mask);
    get
}

/// The interfaces that the host itself uses.
#[derive(Clone, Debug, Default)]
pub struct HostUse {
    /// Numbers of those with addresses or routes.
    configured: BTreeSet<u32>,
    /// Numbers of those out of which default routes lead.
    default_routes: BTreeSet<u32>,
}

impl HostUse {
    /// Reads the addresses and routes in the namespace of the calling thread, of both IP versions and all tables.
    ///
    /// # Errors
    /// The request to the kernel fails.
    pub fn now() -> Result<Self, InterfaceError> {
        let mut found = Self::default();
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let listed = netlink::list(addresses, |answer| found.add_address(&answer));
        listed.context(|| "list the addresses".to_owned())?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            list_routes(family, |route| found.add_route(route))?;
        }
        Ok(found)
    }

    /// Returns whether `interface` has addresses or routes that would be lost if it were set down: any IPv4 address, any
    /// IPv6 address that is not link-local, and any route that does not result from an address.
    pub fn is_configured(&self, interface: &Interface) -> bool {
        self.configured.contains(&interface.index)
    }

    /// Returns whether a default route leads out of `interface`.
    pub fn has_default_route(&self, interface: &Interface) -> bool {
        self.default_routes.contains(&interface.index)
    }

    fn add_address(&mut self, answer: &RouteNetlinkMessage) {
        let RouteNetlinkMessage::NewAddress(AddressMessage { header, .. }) = answer else {
            return;
        };
        // The kernel adds a link-local address again by itself.
        if header.family != AddressFamily::Inet6 || header.scope != AddressScope::Link {
            self.configured.insert(header.index);
        }
    }

    fn add_route(&mut self, route: &RouteMessage) {
        // The kernel creates such a route for an address or for the interface.
        if route.header.protocol != RouteProtocol::Kernel {
            self.configured.extend(output_interfaces(route));
        }
        if leads_anywhere(route) {
            self.default_routes.extend(output_interfaces(route));
        }
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
        let has_any = |family| -> Result<bool, NetlinkError> {
            let mut has_any = false;
            list_routes(family, |route| has_any |= leads_anywhere(route))?;
            Ok(has_any)
        };
        Ok(Self {
            v4: has_any(AddressFamily::Inet)?,
            v6: has_any(AddressFamily::Inet6)?,
        })
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
        let get = RouteNetlinkMessage::GetLink(without_counters());
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
            LinkAttribute::LinkNetNsId(number) => interface.depends_on_namespace = Some(*number),
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

/// Returns true for a default route.
fn leads_anywhere(route: &RouteMessage) -> bool {
    route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
}

/// Hands every route of `family`, of any table, in the namespace of the calling thread to `take`.
fn list_routes(
    family: AddressFamily,
    mut take: impl FnMut(&RouteMessage),
) -> Result<(), NetlinkError> {
    let mut all = RouteMessage::default();
    all.header.address_family = family;
    let listed = netlink::list(RouteNetlinkMessage::GetRoute(all), |answer| {
        if let RouteNetlinkMessage::NewRoute(route) = answer {
            take(&route);
        }
    });
    listed.context(|| "list the routes".to_owned())
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
