//! A network interface of this machine, moved into a separate namespace temporarily.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rtnetlink::{LinkUnspec, RouteMessageBuilder};

use crate::bed::{self, BedError};
use crate::console;
use crate::iface::{HostUse, Interface, InterfaceError};
use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::netns::{NetNs, NetNsError};

/// An interface and the addresses that it gets in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// Name of the interface.
    pub interface: String,
    /// Its address in the namespace, and the prefix length of its network.
    pub address: (IpAddr, u8),
    /// Gateway for all destinations outside that network.
    pub gateway: Option<IpAddr>,
}

/// An interface that is in a separate namespace until this is dropped.
///
/// It keeps its name, MTU, hardware address and offloads, and goes back up if it was up. Its sysctls are set to those
/// that its namespace gives new interfaces, as always when the kernel moves an interface.
#[derive(Debug)]
pub struct BorrowedNic {
    name: String,
    was_up: bool,
    home: NetNs,
    namespace: NetNs,
}

/// The reason why an interface could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The interface does not exist or could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface is in use.
    #[error("interface {name} {why}: choose an unused interface")]
    InUse {
        /// Name of the interface.
        name: String,
        /// The use.
        why: &'static str,
    },
    /// A namespace failed.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The namespace could not be prepared, or the interface has no carrier.
    #[error(transparent)]
    Bed(#[from] BedError),
}

impl BorrowedNic {
    /// Moves the interface out of the namespace of the calling thread. On return it is up with its address and has a
    /// carrier.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN or CAP_NET_ADMIN is missing; the interface does not exist, has addresses, routes or a bridge, all
    /// of which it would lose, or gets no carrier within 10 s. It is then back in its namespace.
    pub fn take(config: &NicConfig) -> Result<Self, NicError> {
        let interface = Interface::find(&config.interface)?;
        unused(&interface)?;
        let (home, namespace) = (NetNs::current()?, NetNs::create()?);
        let message = LinkUnspec::new_with_name(&interface.name)
            .setns_by_fd(namespace.as_fd().as_raw_fd())
            .build();
        netlink::call_here(async |handle| {
            let set = handle.link().set(message).execute().await;
            set.context(|| format!("move interface {} into a namespace", interface.name))
        })?;
        let borrowed = Self {
            name: interface.name,
            was_up: interface.up,
            home,
            namespace,
        };
        borrowed.set_up(config)?;
        Ok(borrowed)
    }

    /// Returns the namespace in which the interface is.
    pub fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    fn set_up(&self, config: &NicConfig) -> Result<(), NicError> {
        let name = &self.name;
        bed::prepare_for_nic(&self.namespace, name)?;
        let (address, prefix) = config.address;
        netlink::call(&self.namespace, async |handle| {
            bed::up(&handle, "lo").await?;
            bed::up(&handle, name).await?;
            let index = bed::index_of(name)?;
            let add = handle.address().add(index, address, prefix).execute().await;
            add.context(|| format!("give interface {name} the address {address}/{prefix}"))?;
            if let Some(gateway) = config.gateway {
                let route = RouteMessageBuilder::<IpAddr>::new();
                let refused = || format!("route through {gateway} on interface {name}");
                let route = route.gateway(gateway).map_err(std::io::Error::other);
                let add = handle.route().add(route.context(refused)?.build());
                add.execute().await.context(refused)?;
            }
            Ok(())
        })?;
        self.namespace.run(|| bed::wait_running(&[name]))??;
        Ok(())
    }

    fn give_back(&self) -> Result<(), NetlinkError> {
        let name = &self.name;
        let message = LinkUnspec::new_with_name(name)
            .setns_by_fd(self.home.as_fd().as_raw_fd())
            .build();
        netlink::call(&self.namespace, async |handle| {
            let set = handle.link().set(message).execute().await;
            set.context(|| format!("move interface {name} back"))
        })?;
        if !self.was_up {
            return Ok(());
        }
        netlink::call(&self.home, async |handle| {
            let up = LinkUnspec::new_with_name(name).up().build();
            let set = handle.link().set(up).execute().await;
            set.context(|| format!("set interface {name} up again"))
        })
    }
}

impl Drop for BorrowedNic {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            console::say(&format!("farwire: {error}"));
        }
    }
}

fn unused(interface: &Interface) -> Result<(), NicError> {
    let host = HostUse::now()?;
    let why = if !interface.ethernet {
        "is not an Ethernet interface"
    } else if host.has_default_route(interface) {
        "has the default route"
    } else if interface.master.is_some() {
        "is a port of a bridge or bond"
    } else if host.is_configured(interface) {
        "has addresses or routes, which it would lose"
    } else {
        return Ok(());
    };
    Err(NicError::InUse {
        name: interface.name.clone(),
        why,
    })
}
