//! A test bed of namespaces joined by veth pairs: a client, an emulator and a server; or a chain of these, with routers between the
//! segments; or a star of many clients around one server.

mod address;
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
pub(crate) use self::wiring::{index_of, up, wait_running};

pub use self::address::{
    CLIENT, CLIENT_PORT, Endpoint, LEFT, RIGHT, SERVER, SERVER_PORT, SegmentEnd, WAN,
};
pub use self::star::Star;

/// The bridge in place of an emulator.
const BRIDGE: &str = "bridge";
/// More segments than any chain of this machine would carry.
const MOST_SEGMENTS: u8 = 16;

/// What a bed is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedConfig {
    /// Largest L3 packet in bytes, 68 to 65,535, at both ends; below 1,280 the bed has no IPv6 (RFC 8200 section 5).
    pub mtu: u32,
    /// Segmentation and checksum offloads at the ends; without, every packet travels on its own.
    pub offloads: bool,
    /// Largest TCP buffer, sending and receiving each, if not the kernel's own.
    pub tcp_memory: Option<Bytes>,
    /// Links in a row, 1 to 16, each with an emulator; between two of them is a router.
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
    /// Whether the bed has IPv6: the MTU allows it, and so does the kernel.
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

/// A bed; the kernel clears it away when it and all that runs in it are gone.
#[derive(Debug)]
pub struct Bed {
    /// From the client to the server; one more than there are emulators.
    nodes: Vec<NetNs>,
    /// One at least.
    emulators: Vec<NetNs>,
}

/// Why a bed could not be built.
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
    #[error("interface {0} has no carrier")]
    Down(String),
}

impl Bed {
    /// Builds a bed; on return packets pass at once, the first like all others.
    ///
    /// The two ports of every emulator are up and silent: no address, no ARP, no IPv6. Neighbours know each other's
    /// hardware addresses and keep no TCP metrics, so that no run teaches the next.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN and CAP_NET_ADMIN in the user namespace, on a kernel without veth, and for a configuration out
    /// of range.
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
            let names = Attachment::of(number, segments + 1);
            let names: Vec<_> = names.iter().map(|interface| interface.name).collect();
            node.run(|| wait_running(&names))??;
        }
        Ok(bed)
    }

    /// Lets the kernel carry the packets: a bridge between each emulator's ports, which nothing outruns. It is what an
    /// emulator is measured against.
    ///
    /// # Errors
    /// On a kernel without bridges.
    pub fn bridge(&self) -> Result<(), BedError> {
        for emulator in &self.emulators {
            emulator.run(|| -> Result<(), BedError> {
                bridge::join(BRIDGE, [index_of(CLIENT_PORT)?, index_of(SERVER_PORT)?])?;
                wait_running(&[BRIDGE])
            })??;
        }
        Ok(())
    }

    /// Where the client runs, the first node; its interface is [`WAN`], its addresses are [`CLIENT`].
    pub fn client(&self) -> &NetNs {
        &self.nodes[0]
    }

    /// Where the emulator of the first segment runs, between [`CLIENT_PORT`] and [`SERVER_PORT`].
    pub fn emulator(&self) -> &NetNs {
        &self.emulators[0]
    }

    /// Where the server runs, the last node; its interface is [`WAN`], its addresses are [`SERVER`] if there is one
    /// segment.
    pub fn server(&self) -> &NetNs {
        &self.nodes[self.nodes.len() - 1]
    }

    /// From the client to the server; a router's interfaces are [`LEFT`] and [`RIGHT`].
    pub fn nodes(&self) -> &[NetNs] {
        &self.nodes
    }

    /// Of every segment, from the client to the server, as [`Bed::emulator`].
    pub fn emulators(&self) -> &[NetNs] {
        &self.emulators
    }
}
