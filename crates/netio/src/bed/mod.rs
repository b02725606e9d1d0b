//! A test bed of namespaces that are connected by veth pairs: a client, an emulator and a server; or a chain of
//! segments with routers between them; or a star of many clients around one server.

mod address;
mod gateway;
mod node;
mod star;
mod wiring;

use model::Bytes;

use self::address::Attachment;
use self::wiring::{ipv6_exists, join, silence};
use crate::bridge;
use crate::iface::InterfaceError;
use crate::netlink::{self, NetlinkError};
use crate::netns::{NetNs, NetNsError};
use crate::offloads::OffloadError;

pub(crate) use self::node::prepare_for_nic;
pub(crate) use self::wiring::{index_of, up, wait_running, wait_running_within};

pub use self::address::{
    CLIENT, CLIENT_PORT, Endpoint, LEFT, RIGHT, SERVER, SERVER_PORT, SegmentEnd, WAN,
};
pub use self::gateway::{HOST, HOST_TAP};
pub use self::star::Star;

/// Name of the bridge that replaces an emulator.
const BRIDGE: &str = "bridge";
/// Largest number of segments; no machine could keep up with more.
const MOST_SEGMENTS: u8 = 16;

/// Configuration of a bed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedConfig {
    /// Largest L3 packet in bytes, 68 to 65,535, at both ends. Below 1,280 the bed has no IPv6 (RFC 8200 section 5).
    pub mtu: u32,
    /// Whether the ends use segmentation and checksum offloads; if not, every packet is sent by itself.
    pub offloads: bool,
    /// Largest TCP send buffer and receive buffer, if different from the kernel's default.
    pub tcp_memory: Option<Bytes>,
    /// Number of links in a row, 1 to 16, each with an emulator. There is a router between two links.
    pub segments: u8,
}

impl Default for BedConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            offloads: true,
            tcp_memory: None,
            segments: 1,
        }
    }
}

impl BedConfig {
    /// Returns whether the bed has IPv6, which requires a sufficient MTU and a kernel with IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= 1280 && ipv6_exists()
    }

    fn check_mtu(&self) -> Result<(), BedError> {
        match self.mtu {
            68..=65_535 => Ok(()),
            mtu => Err(BedError::Mtu(mtu)),
        }
    }
}

/// A test bed. The kernel removes it when this value and all processes in the bed are gone.
#[derive(Debug)]
pub struct Bed {
    /// The nodes from the client to the server, one more than there are emulators.
    nodes: Vec<NetNs>,
    /// The emulators, at least one.
    emulators: Vec<NetNs>,
}

/// The reason why a bed could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The MTU is out of range.
    #[error("an MTU of {0} is out of range: 68 to 65535")]
    Mtu(u32),
    /// The number of segments is out of range.
    #[error("{0} segments are out of range: 1 to 16")]
    Segments(u8),
    /// The number of clients is out of range.
    #[error("{0} clients are out of range: 1 to {most}", most = Star::MOST_CLIENTS)]
    Clients(u16),
    /// A namespace failed.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The kernel refused an interface, an address or a neighbour entry.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An offload could not be switched.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// An interface did not come up.
    #[error("interface {0} has no carrier")]
    Down(String),
    /// Nothing made the tap to the host's network.
    #[error("the far end has no interface {tap} to the host's network", tap = HOST_TAP)]
    NoTap,
}

impl Bed {
    /// Builds a bed. From the return on packets pass, and the first one is not delayed.
    ///
    /// The two ports of every emulator are up and silent: they have no address, no ARP, and no IPv6. Nodes have
    /// permanent neighbour entries and keep no TCP metrics, so that no run affects the next one.
    ///
    /// # Errors
    /// Missing CAP_SYS_ADMIN or CAP_NET_ADMIN in the user namespace, a kernel without veth, or a configuration out of
    /// range.
    pub fn build(config: &BedConfig) -> Result<Self, BedError> {
        config.check_mtu()?;
        let segments = config.segments;
        if !(1..=MOST_SEGMENTS).contains(&segments) {
            return Err(BedError::Segments(segments));
        }
        let namespaces = |count| -> Result<Vec<NetNs>, NetNsError> {
            (0..count).map(|_| NetNs::create()).collect()
        };
        let bed = Self {
            nodes: namespaces(segments + 1)?,
            emulators: namespaces(segments)?,
        };
        for emulator in &bed.emulators {
            emulator.run(silence)??;
        }
        for (number, node) in (0..).zip(&bed.nodes) {
            let interfaces = Attachment::of(number, segments + 1);
            for interface in &interfaces {
                let emulator = &bed.emulators[usize::from(interface.segment)];
                join(emulator, node, *interface, config.mtu)?;
            }
            node.run(|| node::prepare(config, &interfaces))??;
            netlink::call(node, |handle| {
                node::connect(handle, interfaces, segments, config.has_ipv6())
            })?;
        }
        for emulator in &bed.emulators {
            emulator.run(|| wait_running(&[CLIENT_PORT, SERVER_PORT]))??;
        }
        for (number, node) in (0..).zip(&bed.nodes) {
            let names: Vec<_> = Attachment::of(number, segments + 1)
                .iter()
                .map(|interface| interface.name)
                .collect();
            node.run(|| wait_running(&names))??;
        }
        Ok(bed)
    }

    /// Replaces the emulators by kernel bridges, which nothing outperforms. An emulator is compared with them.
    ///
    /// # Errors
    /// A kernel without bridges.
    pub fn bridge(&self) -> Result<(), BedError> {
        for emulator in &self.emulators {
            emulator.run(|| -> Result<(), BedError> {
                bridge::join(BRIDGE, [index_of(CLIENT_PORT)?, index_of(SERVER_PORT)?])?;
                wait_running(&[BRIDGE])
            })??;
        }
        Ok(())
    }

    /// Returns the client's namespace, which is the first node. Its interface is [`WAN`] and its addresses are
    /// [`CLIENT`].
    pub fn client(&self) -> &NetNs {
        &self.nodes[0]
    }

    /// Returns the namespace of the first segment's emulator, between [`CLIENT_PORT`] and [`SERVER_PORT`].
    pub fn emulator(&self) -> &NetNs {
        &self.emulators[0]
    }

    /// Returns the server's namespace, which is the last node. Its interface is [`WAN`]. Its addresses are [`SERVER`]
    /// if there is one segment.
    pub fn server(&self) -> &NetNs {
        &self.nodes[self.nodes.len() - 1]
    }

    /// Returns the nodes from the client to the server. The interfaces of a router are [`LEFT`] and [`RIGHT`].
    pub fn nodes(&self) -> &[NetNs] {
        &self.nodes
    }

    /// Returns the emulators of all segments, from the client to the server; see [`Bed::emulator`].
    pub fn emulators(&self) -> &[NetNs] {
        &self.emulators
    }
}
